"""`Tester`: what it runs a graph with."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from cues_kafka import ConfigError, Graph, Json, Processor, RetriableError, Source, State, Store, Topic, alts
from cues_kafka.brokers.memory import Faults, MemoryBroker
from cues_kafka.errors import FactoryError
from cues_kafka.task.gate import Gate
from cues_kafka.testing.tester import Crash, Tester, VirtualClock


class Shelf:
    """What stands for a database."""

    def __init__(self) -> None:
        self.kept: list[int] = []
        self.closed = False

    def close(self) -> None:
        self.closed = True


def refuse() -> Shelf:
    raise OSError("there is no database here")


def keep(number: int, db: Shelf, factor: int) -> None:
    db.kept.append(number * factor)


GRAPH = Graph(
    "g",
    Source("in"),
    Processor(keep, inputs="in"),
    defaults=Topic(partitions=1),
    system={"db": refuse, "factor": lambda: 10},
)


def test_a_fake_takes_the_place_of_what_a_factory_would_open() -> None:
    """The factory is not called, the other one is; the fake is the caller's, so it is not closed."""
    shelf = Shelf()
    tester = Tester(GRAPH, system={"db": shelf})
    tester.send("in", 7)
    tester.run()
    tester.stop()

    assert (shelf.kept, shelf.closed) == ([70], False)


def test_a_fake_that_nothing_asks_for_is_refused_with_the_nearest_name() -> None:
    """A misspelt one would leave the real one in its place."""
    with pytest.raises(ConfigError, match=r"no 'dbs' in its system= \(did you mean 'db'\?\)"):
        Tester(GRAPH, system={"dbs": Shelf()})
    with pytest.raises(FactoryError, match="there is no database here"):
        Tester(GRAPH).run()


def test_messages_since_a_while_ago_follow_virtual_time() -> None:
    """As deadlines do."""
    tester = Tester(GRAPH, system={"db": Shelf()})
    tester.send("in", 1)
    tester.clock.advance(100)
    tester.send("in", 2)

    assert [message.value for message in tester.messages("in", since=timedelta(seconds=50))] == [2]
    assert [message.value for message in tester.messages("in", last=1)] == [2]


@pytest.mark.parametrize(("moment", "effect"), [("befor", "Commit"), ("before", "Comit"), ("never", "Call")])
def test_a_crash_that_never_comes_is_refused(moment: str, effect: str) -> None:
    """A test with a misspelt crash would pass for nothing."""
    with pytest.raises(ValueError, match=r"'before' or|did you mean 'Commit'"):
        Crash(moment, effect)


class TwoRefusals(Faults):
    """The first two attempts to take a transactional id fail."""

    left = 2

    def before(self, operation: str, client: str) -> None:
        if operation == "init" and self.left:
            self.left -= 1
            raise RetriableError("no coordinator")


def test_a_task_waits_in_virtual_time_before_it_recovers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test of a failed commit took real seconds."""

    def wait(_: Gate, seconds: float) -> None:
        raise AssertionError(f"{seconds} s of real time")

    monkeypatch.setattr(Gate, "wait", wait)
    shelf, broker = Shelf(), MemoryBroker(clock=VirtualClock(), faults=TwoRefusals())
    tester = Tester(GRAPH, system={"db": shelf}, broker=broker)
    tester.send("in", 7)
    before = tester.clock.monotonic()
    tester.run()

    assert shelf.kept == [70]
    assert tester.clock.monotonic() - before > 0.1


def count(word: str, counts: State[int]) -> int:
    counts[word] = counts.get(word, 0) + 1
    return counts[word]


COUNTING = Graph("g", Source("in"), Processor(count, inputs="in", outputs="out", state={"counts": Store(Json(int))}))
LATE = Crash("before", "Commit", nth=10)


@pytest.mark.parametrize(
    "runs",
    [
        [None, Crash("before", "Commit")],
        [LATE, Crash("after", "Commit"), Crash("after", "Produce")],
        [Crash("before", "Commit"), Crash("before", "Begin"), None, Crash("after", "Call"), Crash("before", "Commit")],
    ],
)
def test_each_run_may_have_a_crash_of_its_own(runs: list[Crash | None]) -> None:
    """Also where the run before it had none, or did not reach it: then the same process crashes."""
    tester = Tester(COUNTING)
    for crash in runs:
        tester.send("in", "a")
        tester.run(crash=crash)
        assert tester.crashed == (crash not in (None, LATE))
    tester.run()
    assert tester.values("out") == [*range(1, len(runs) + 1)]
    assert tester.state("counts") == {"a": len(runs)}


def test_a_kill_needs_a_run_that_may_crash() -> None:
    """Else it would hold the thread of the test without end."""

    def deadly(word: str) -> str:
        if word == "kill":
            tester.kill()
        return word

    tester = Tester(Graph("g", Source("in"), Processor(deadly, inputs="in", outputs="out")))
    tester.send("in", "a")
    assert not tester.run_to_death()
    tester.send("in", "kill")
    with pytest.raises(ConfigError, match=r"kill\(\) ends a run with crash=, or run_to_death\(\)"):
        tester.run()
    assert tester.run_to_death()


def test_the_client_of_a_tester_has_everything_in_virtual_time() -> None:
    """Topics, tailers that wait, transactions by hand, ids, and the default source."""
    graph = Graph("g", Source("in", default=True), Processor(abs, name="abs", inputs="in", outputs="out"))
    tester = Tester(graph)
    client = tester.client
    assert tester.send(-1).topic == "in"
    tester.send("in", -2, id="two")
    assert client.sent("in", "two") is not None
    assert client.sent("in", "three") is None
    with client.topic("out").tailer(name="reader") as tailer:
        before_s = tester.clock.monotonic()
        assert tailer.read_blocking(600) is None
        assert 600 <= tester.clock.monotonic() - before_s < 601
        tester.run()
        with client.transaction() as tx:
            found = alts([tailer, client.topic("in").tailer(start="latest")], timeout_s=60)
            assert found is not None
            tx.append("in", -10 * found[1].value)
            tx.advance(tailer)
        tester.run()
        assert [message.value for message in tailer.messages()] == [2, 10]
    assert {topic: len(found) for topic, found in tester.messages().items()} == {"in": 3, "out": 3}


def test_topic_with_a_typo_is_answered_with_the_names_of_the_graph() -> None:
    """Not with a command for a cluster."""
    tester = Tester(
        Graph("g", Source("orders"), Processor(lambda order: order, name="check", inputs="orders", outputs="checked"))
    )
    asks = (
        lambda: tester.values("cheked"),
        lambda: tester.messages("cheked"),
        lambda: tester.send("cheked", 1),
    )
    for ask in asks:
        with pytest.raises(ConfigError) as refused:
            ask()
        assert "did you mean 'checked'?" in str(refused.value)
        assert "The graph's topics are 'checked', 'orders'" in str(refused.value)
        assert "cues-kafka" not in str(refused.value)


@pytest.mark.parametrize("ask", [Tester.totals, Tester.records, Tester.outcomes])
def test_processor_that_the_graph_does_not_have_is_named(ask: Any) -> None:
    """`outcomes` had none, and the others a bare KeyError."""
    tester = Tester(Graph("g", Source("in"), Processor(keep, name="price", inputs="in", opts={"db": 0, "factor": 1})))
    with pytest.raises(ConfigError, match=r"graph 'g' has no processor 'prise'; it has 'price' \(did you mean 'price'"):
        ask(tester, "prise")

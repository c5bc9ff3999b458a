"""Cuts on the reference broker (X4): taken while a graph runs, gone back to, and refused."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cues_kafka import (
    ConfigError,
    DataFrameProcessor,
    Graph,
    GraphError,
    Json,
    Memory,
    Processor,
    RecoveryError,
    Source,
    State,
    Store,
    Topic,
    connect,
    start,
)
from cues_kafka.brokers.memory import MemoryBroker
from cues_kafka.brokers.open import open_broker
from cues_kafka.core.spec import Move
from cues_kafka.errors import FatalError
from cues_kafka.graph.declare import CommitPolicy
from cues_kafka.operate.applying import apply_plan
from cues_kafka.operate.cut import drain as cuts
from cues_kafka.operate.cut.control import ControlTopic, cuts_of, delete_cut
from cues_kafka.operate.cut.drain import Drain
from cues_kafka.operate.cut.going_back import GoBack
from cues_kafka.operate.move.base import Maintenance, PlannedMove
from cues_kafka.plan.plan import plan
from cues_kafka.plan.topics import KEEPS, topics_to_ask
from cues_kafka.ports.facts import NewTopic
from cues_kafka.ports.log import TopicPartition
from cues_kafka.records.control import PAUSE, RESET, Pause, ResetUnderWay, encode
from cues_kafka.records.reading import newest_record
from cues_kafka.running.running import Running
from cues_kafka.state.marks import UNFINISHED
from cues_kafka.task.clock import SystemClock
from cues_kafka.testing.tester import Tester
from cues_kafka.workers.pauses import Pauses

WIDTH = 2
HELD_S = 20.0


def check(order: dict[str, Any], seen: State[int]) -> dict[str, Any]:
    """Number the orders of each customer."""
    customer = order["customer"]
    seen[customer] = seen.get(customer, 0) + 1
    return {**order, "nth": seen[customer]}


def total(order: dict[str, Any], sums: State[int]) -> None:
    """The sum of each customer; every ninth order forgets it."""
    customer = order["customer"]
    if order["id"] % 9:
        sums[customer] = sums.get(customer, 0) + order["id"]
    else:
        sums.pop(customer, None)


def graph_of(*more: Any, sums: Store | None = None, **changes: Any) -> Graph:
    """Two processors with a store each, one behind the other."""
    settings: dict[str, Any] = {"cuts": "1 day", "defaults": Topic(value=Json(), partitions=WIDTH)}
    return Graph(
        "g",
        Source("orders"),
        Processor(check, inputs="orders", outputs="checked", state={"seen": Store(Json(int))}),
        Processor(total, inputs="checked", state={"sums": sums or Store(Json(int))}),
        *more,
        **{**settings, **changes},
    )


GRAPH = graph_of()


def send(client: Any, numbers: range) -> None:
    """Orders of five customers."""
    for n in numbers:
        client.send("orders", {"customer": f"c{n % 5}", "id": n}, key=f"c{n % 5}")


def stores(cluster: Memory, graph: Graph = GRAPH) -> tuple[dict[str, int], dict[str, int]]:
    """Both stores, as they are committed."""
    with connect(cluster, graph) as client:
        return client.table("check", "seen").copy(), client.table("total", "sums").copy()


def model(numbers: range) -> tuple[dict[str, int], dict[str, int]]:
    """The same in plain Python."""
    sums: dict[str, int] = {}
    for n in numbers:
        if n % 9:
            sums[f"c{n % 5}"] = sums.get(f"c{n % 5}", 0) + n
        else:
            sums.pop(f"c{n % 5}", None)
    return Counter(f"c{n % 5}" for n in numbers), sums


def drain(cluster: Memory, name: str = "one", graph: Graph = GRAPH, **settings: Any) -> Any:
    """Take a cut."""
    return Drain(graph, open_broker(cluster), who="drain on here").take(name, timeout_s=20.0, **settings)


def back(cluster: Memory, name: str = "one", graph: Graph = GRAPH) -> list[str]:
    """Go back to a cut; gives what was said of it."""
    tool = GoBack(graph, open_broker(cluster), who="reset on here")
    planned = tool.plan(name)
    tool.carry_out(planned)
    return [f"{move.spec.name}: {note}" for move in planned.all for note in move.notes]


def until(condition: Callable[[], Any], news: threading.Event) -> None:
    """Wait for what another thread does, which sets `news` behind it."""
    deadline = time.monotonic() + HELD_S
    while True:
        news.clear()
        if condition():
            return
        assert news.wait(deadline - time.monotonic()), f"not within {HELD_S:g} s"


def comes(running: Running, condition: Callable[[], Any]) -> None:
    """Wait for what the tasks of a graph do, as `wait_idle` does."""
    running._await(condition, HELD_S, "what the test waits for")


@contextmanager
def control_of(cluster: Memory) -> Iterator[ControlTopic]:
    """The control topic, to write into it by hand."""
    topic = ControlTopic(GRAPH, open_broker(cluster))
    try:
        yield topic
    finally:
        topic.close()


@pytest.fixture
def cluster() -> Memory:
    """49 orders are delivered, a cut is taken, and then come as many again."""
    cluster = Memory()
    with start(GRAPH, cluster, policy=CommitPolicy(max_messages=7)) as running:
        send(running, range(1, 50))
        running.wait_idle()
        drain(cluster)
        send(running, range(50, 99))
        running.wait_idle()
    assert stores(cluster) == model(range(1, 99))
    return cluster


# --------------------------------------------------------------------------------------------- there and back


def test_a_graph_goes_back_to_a_cut_and_on_again(cluster: Memory) -> None:
    """The stores are those of the cut, then those of all messages, once; a second run has nothing to do."""
    said = back(cluster)

    assert stores(cluster) == model(range(1, 50))
    assert any(note.endswith("1 of them deleted") or "deleted" in note for note in said)
    assert {note.split(":")[0] for note in said} == {"check/0", "check/1", "total/0", "total/1"}
    assert back(cluster) == []
    with start(GRAPH, cluster) as running:
        running.wait_idle()
    assert stores(cluster) == model(range(1, 99))


def test_what_the_graph_has_written_since_the_cut_is_not_read(cluster: Memory) -> None:
    """It died with messages between its processors: they are undone, and come again."""
    with start(GRAPH, cluster, only=["check"]) as running:
        send(running, range(99, 120))
        running.wait_idle()
    said = back(cluster)

    assert any("skips [" in note and "which the graph writes again" in note for note in said)
    with start(GRAPH, cluster) as running:
        running.wait_idle()
    assert stores(cluster) == model(range(1, 120))


def test_a_graph_goes_back_twice_and_to_an_earlier_cut() -> None:
    """Marks of tools stand between those of steps, however many they are (R4b)."""
    cluster = Memory()
    with start(GRAPH, cluster) as running:
        for name, first in (("one", 1), ("two", 21), ("three", 41)):
            send(running, range(first, first + 20))
            running.wait_idle()
            drain(cluster, name)
        send(running, range(61, 70))
        running.wait_idle()
    assert [one.name for one in cuts_of(GRAPH, open_broker(cluster))] == ["one", "two", "three"]
    back(cluster, "two")
    with start(GRAPH, cluster) as running:
        running.wait_idle()
    back(cluster, "two")
    back(cluster, "one")
    assert stores(cluster) == model(range(1, 21))
    back(cluster, "one")
    with start(GRAPH, cluster) as running:
        running.wait_idle()
    assert stores(cluster) == model(range(1, 70))


def test_entries_that_ended_since_the_cut_live_again() -> None:
    """The time by which they end goes back with them."""
    graph, cluster = graph_of(sums=Store(Json(int), ttl_messages=20)), Memory()
    with start(graph, cluster) as running:
        send(running, range(1, 6))
        running.wait_idle()
        before = stores(cluster, graph)
        drain(cluster, graph=graph)
        for n in range(100, 200):
            running.send("orders", {"customer": "c7", "id": n}, key="c0")
            running.send("orders", {"customer": "c8", "id": n}, key="c1")
        running.wait_idle()
        assert not stores(cluster, graph)[1].keys() & before[1].keys()
    back(cluster, graph=graph)

    assert stores(cluster, graph) == before
    with start(graph, cluster, only=["total"]) as running:
        [value] = {running.query("total", "sums", "c1", partition=p).value for p in range(WIDTH)} - {None}
        assert value == before[1]["c1"]


def shown(order: dict[str, Any], sums: State[int]) -> dict[str, Any]:
    """What the store holds before the order."""
    before = dict(sums.items())
    sums[order["customer"]] = sums.get(order["customer"], 0) + order["id"]
    return {"id": order["id"], "before": before}


def test_entries_on_a_disk_go_back_with_the_changelog(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The file was further on, in entries and in time. It is read on, and each order meets again what it met."""
    state = {"sums": Store(Json(int), ttl_messages=20, on_disk=True)}
    graph = graph_of(Processor(shown, inputs="checked", outputs="shown", state=state))
    tester = Tester(graph, state_dir=tmp_path)
    send(tester, range(1, 20))
    tester.run()
    tester.stop()
    Drain(graph, tester.broker, who="d", clock=tester.clock).take("one")
    tester.restart()
    send(tester, range(20, 100))
    tester.run()
    tester.stop()
    tool = GoBack(graph, tester.broker, who="r", clock=tester.clock)
    tool.carry_out(tool.plan("one"))
    tester.restart()
    tester.run()

    met: dict[int, list[dict[str, int]]] = {}
    for value in tester.values("shown"):
        met.setdefault(value["id"], []).append(value["before"])
    assert [len(met[n]) for n in range(1, 100)] == [1] * 19 + [2] * 80
    assert all(first == again for first, again in (met[n] for n in range(20, 100)))
    assert "wiped" not in caplog.text


def test_each_cut_under_load_has_delivered_all_that_the_graph_wrote() -> None:
    """The orders below a cut are as many as the messages between the processors below it."""
    cluster, ended = Memory(), threading.Event()
    with start(GRAPH, cluster, policy=CommitPolicy(max_messages=5)) as running, connect(cluster, GRAPH) as client:
        sent, one_more = 0, threading.Event()

        def load() -> None:
            nonlocal sent
            while not ended.wait(0.001):
                send(client, range(sent, sent + 1))
                sent += 1
                one_more.set()

        def at_least(count: int) -> bool:
            return sent >= count

        sender = threading.Thread(target=load)
        sender.start()
        taken = []
        for nth in range(6):
            until(partial(at_least, 30 * (nth + 1)), one_more)
            taken.append(drain(cluster, f"cut-{nth}"))
        ended.set()
        sender.join()
        running.wait_idle()
        messages = {topic: running.messages(topic) for topic in ("orders", "checked")}
    for cut in taken:
        below = {}
        for name, topic in (("check", "orders"), ("total", "checked")):
            [at] = cut.processors[name].inputs.values()
            below[topic] = {m.value["id"] for m in messages[topic] if m.offset < at.offsets[m.partition]}
        assert below["orders"] == below["checked"]
        assert len(below["orders"]) == sum(cut.processors["check"].steps) == sum(cut.processors["total"].steps)
    counts = [sum(cut.processors["check"].steps) for cut in taken]
    assert counts == sorted(counts)
    assert 0 < counts[0] < counts[-1]


# --------------------------------------------------------------------------------------------- coming to rest


def test_workers_hold_their_tasks_back_until_the_pause_is_taken_back() -> None:
    """The status says why; what is behind in the graph is not held back."""
    cluster = Memory()
    with start(GRAPH, cluster) as running, control_of(cluster) as control:
        pause = Pause(by="drain on here", token="t", cut="one", processors=("check",), lease_s=100.0)
        control.write(PAUSE, encode(pause))
        comes(
            running,
            lambda: all(
                ("drain on here" in task.held) == task.task.startswith("check") for task in running.status().tasks
            ),
        )
        send(running, range(5))
        comes(running, lambda: sum(lane.seen.get("orders", 0) for lane in lanes(running, "check")) == 5)
        assert running.messages("checked") == []
        assert "HELD BACK: paused by drain on here" in str(running.status())
        control.write(PAUSE, None)
        running.wait_idle()
        assert len(running.messages("checked")) == 5


def lanes(running: Running, processor: str) -> list[Any]:
    """The tasks of a processor."""
    return [lane for worker in running._workers if worker.name == processor for lane in worker.lanes.values()]


def test_workers_go_on_when_the_lease_of_a_dead_tool_ends() -> None:
    """Nothing renews it; a worker that starts meanwhile waits no longer than the others."""
    cluster = Memory()
    with start(GRAPH, cluster) as running, control_of(cluster) as control:
        pause = Pause(by="drain on here", token="t", cut="one", processors=("check",), lease_s=0.5)
        control.write(PAUSE, encode(pause))
        comes(running, lambda: any(task.held for task in running.status().tasks))
        send(running, range(5))
        running.wait_idle()
        assert len(running.messages("checked")) == 5
    with start(GRAPH, cluster) as running:
        assert not any(task.held for task in running.status().tasks)
    drain(cluster)


def test_a_second_tool_waits_for_the_first() -> None:
    """It names the first one, and how long its pause lasts at most."""
    cluster = Memory()
    with start(GRAPH, cluster), control_of(cluster) as control:
        pause = Pause(by="drain on there", token="t", cut="two", processors=("check",), lease_s=100.0)
        control.write(PAUSE, encode(pause))
        with pytest.raises(RecoveryError, match=r"drain on there takes cut 'two' just now.*within \d+ s"):
            drain(cluster)


def test_a_task_that_goes_on_committing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its worker does not follow the control topic, as one of an older release, and commits before each look."""
    monkeypatch.setattr(Pauses, "why", lambda *_: "")
    cluster, look = Memory(), Drain._look
    with start(GRAPH, cluster) as running, connect(cluster, GRAPH) as client:

        def look_behind_a_commit(drain: Drain) -> Any:
            send(client, range(1))
            running.wait_idle()
            return look(drain)

        monkeypatch.setattr(Drain, "_look", look_behind_a_commit)
        with pytest.raises(RecoveryError, match="did not come to rest in 1 s"):
            Drain(GRAPH, open_broker(cluster), who="d").take("one", timeout_s=1.0)
    assert cuts_of(GRAPH, open_broker(cluster)) == []


def test_what_no_worker_delivers_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The workers that run go on."""
    monkeypatch.setattr(cuts, "UNMANNED_S", 0.2)
    cluster, told = Memory(), list[str]()
    with start(GRAPH, cluster):
        pass
    with start(GRAPH, cluster, only=["check"]) as running:
        send(running, range(5))
        running.wait_idle()
        with pytest.raises(
            RecoveryError, match=r"total/\d has messages to deliver on 'checked'.*no worker runs 'total'"
        ):
            drain(cluster, tell=told.append)
        send(running, range(5, 10))
        running.wait_idle()
    assert any("waiting: total/" in text for text in told)


def test_a_stopped_graph_is_cut_where_it_stands(cluster: Memory) -> None:
    """Nothing has to pause; messages of its sources may wait."""
    with connect(cluster, GRAPH) as client:
        send(client, range(99, 110))
    drain(cluster, "two")
    with start(GRAPH, cluster) as running:
        running.wait_idle()
    back(cluster, "two")
    assert stores(cluster) == model(range(1, 99))


def test_an_interrupted_drain_lets_the_workers_go_on() -> None:
    """As Ctrl-C does."""
    cluster, ended = Memory(), threading.Event()
    with start(GRAPH, cluster) as running:
        ended.set()
        with pytest.raises(RecoveryError, match="interrupted"):
            drain(cluster, ended=ended)
        send(running, range(5))
        running.wait_idle()


def pair(left: dict[str, Any], right: dict[str, Any]) -> dict[str, Any]:
    """A join."""
    return {"id": left["id"] + right["id"]}


def half(order: dict[str, Any]) -> dict[str, Any] | None:
    """Every second order."""
    return order if order["id"] % 2 else None


def one_of(order: dict[str, Any] | None = None, other: dict[str, Any] | None = None) -> dict[str, Any]:
    """Of either input."""
    return order or other or {}


def test_a_join_with_messages_left_is_named() -> None:
    """A position cannot say which of them were undone."""
    graph = graph_of(
        Processor(half, inputs="orders", outputs="halves"),
        Processor(pair, inputs={"left": "checked", "right": "halves"}, outputs="pairs"),
    )
    cluster = Memory()
    with start(graph, cluster) as running:
        send(running, range(10))
        with pytest.raises(
            RecoveryError, match=r"pair/\d has messages .* 'checked', which have no partner in the join"
        ):
            Drain(graph, open_broker(cluster), who="d").take("one", timeout_s=1.5)


def test_a_processor_of_both_kinds_of_input_pauses_when_the_graph_s_own_is_delivered() -> None:
    """It takes from outside until then."""
    graph = graph_of(
        Source("others"), Processor(one_of, alts={"order": "checked", "other": "others"}, outputs="either")
    )
    cluster = Memory()
    with start(graph, cluster) as running:
        send(running, range(20))
        for n in range(20):
            running.send("others", {"id": n})
        cut = drain(cluster, graph=graph)
        running.wait_idle()
        ids = sorted(message.value["id"] for message in running.messages("either"))
        send(running, range(20, 30))
        running.wait_idle()
    assert ids == sorted([*range(20), *range(20)])
    back(cluster, graph=graph)
    with start(graph, cluster) as running:
        running.wait_idle()
        ids = [message.value["id"] for message in running.messages("either")]
    undone = 20 - sum(cut.processors["check"].steps)
    assert Counter(ids)[25] == 2
    assert len(ids) >= 40 + 2 * 10 + undone


# --------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize("name", ["a.b", "", "x" * 90, "send"])
def test_a_name_that_cannot_be_used_is_refused(cluster: Memory, name: str) -> None:
    """Names are as those of processors."""
    with pytest.raises(ConfigError, match="name"):
        drain(cluster, name)


def test_a_cut_is_not_overwritten_and_can_be_deleted(cluster: Memory) -> None:
    """The message has the command."""
    with pytest.raises(ConfigError, match=r"a cut 'one' already.*--delete one"):
        drain(cluster)
    delete_cut(GRAPH, open_broker(cluster), "one")
    with pytest.raises(ConfigError, match=r"no cut 'one'\. The cuts of this graph are none"):
        delete_cut(GRAPH, open_broker(cluster), "one")
    drain(cluster)


def test_a_graph_that_takes_no_cuts_says_how(cluster: Memory) -> None:
    """It is declared, and planned."""
    with pytest.raises(ConfigError, match=r'Declare Graph\(\.\.\., cuts="7 days"\)'):
        drain(cluster, "two", graph_of(cuts=None))
    with pytest.raises(ConfigError, match="takes no cuts"):
        back(cluster, graph=graph_of(cuts=None))


def test_changelogs_that_do_not_keep_enough_are_told_and_changed_by_the_plan() -> None:
    """The graph ran before cuts= was declared; a longer time stays."""
    cluster, before = Memory(), graph_of(cuts=None)
    broker = open_broker(cluster)
    with start(before, cluster):
        pass
    with pytest.raises(
        ConfigError, match=r"topic 'g.control' does not exist. Run `cues-kafka plan MODULE:GRAPH --apply`"
    ):
        drain(cluster)
    broker.configure("g.total.sums.changelog", {KEEPS: str(10**12)})
    broker.create([NewTopic("g.control", 1, config={"cleanup.policy": "compact"})])
    with pytest.raises(
        ConfigError, match=r"'?g.check.seen.changelog'? has min.compaction.lag.ms=0, and 90000000 is needed"
    ):
        drain(cluster)
    planned = plan(GRAPH, broker.facts(topics_to_ask(GRAPH)))
    assert "g.check.seen.changelog: min.compaction.lag.ms from 0 to 90000000" in planned.text()
    apply_plan(planned, broker)
    assert plan(GRAPH, broker.facts(topics_to_ask(GRAPH))).alter == ()
    drain(cluster)


def test_a_graph_that_never_started_is_refused() -> None:
    """Its tasks stand nowhere."""
    cluster = Memory()
    apply_plan(plan(GRAPH, open_broker(cluster).facts(topics_to_ask(GRAPH))), open_broker(cluster))
    with pytest.raises(RecoveryError, match="has no record yet"):
        drain(cluster)


def test_a_reset_needs_a_cut_that_is_there(cluster: Memory) -> None:
    """It names those that are."""
    with pytest.raises(ConfigError, match=r"no cut 'two'\. The cuts of this graph are 'one'"):
        back(cluster, "two")


def test_a_reset_beside_workers_is_refused(cluster: Memory) -> None:
    """As that of a processor."""
    with start(GRAPH, cluster), pytest.raises(RecoveryError, match="has members"):
        back(cluster)


@pytest.mark.parametrize(
    ("graph", "text"),
    [
        (graph_of(Processor(half, inputs="orders", outputs="halves")), "processors 'half' came after cut 'one'"),
        (
            Graph(
                "g",
                Source("orders"),
                Processor(check, inputs="orders", outputs="checked", state={"seen": Store(Json(int))}),
                cuts="1 day",
                defaults=Topic(value=Json(), partitions=WIDTH),
            ),
            "has processors 'total', which this graph does not have",
        ),
        (
            graph_of(
                Processor(half, name="more", inputs="orders", outputs="halves"),
            ),
            "processors 'more' came after",
        ),
    ],
)
def test_other_processors_are_refused(cluster: Memory, graph: Graph, text: str) -> None:
    """The graph as it was at the cut is needed."""
    with pytest.raises(ConfigError, match=text):
        back(cluster, graph=graph)


def other_check(order: dict[str, Any], count: State[int]) -> dict[str, Any]:
    """With another store."""
    return order


def test_other_stores_and_inputs_are_refused(cluster: Memory) -> None:
    """Each by name."""
    settings: dict[str, Any] = {"cuts": "1 day", "defaults": Topic(value=Json(), partitions=WIDTH)}
    last = Processor(total, inputs="checked", state={"sums": Store(Json(int))})

    def graph(fn: Any, source: str, **state: Store) -> Graph:
        first = Processor(fn, name="check", inputs=source, outputs="checked", state=state)
        return Graph("g", Source(source), first, last, **settings)

    def plain(order: dict[str, Any]) -> dict[str, Any]:
        return order

    broker = open_broker(cluster)
    for other, text in (
        (graph(other_check, "orders", count=Store(Json(int))), "has stores 'count', which cut 'one' does not know"),
        (graph(plain, "orders"), "cut 'one' has stores 'seen', which 'check' does not have"),
        (graph(check, "elsewhere", seen=Store(Json(int))), r"had other inputs at cut 'one': .*'orders'"),
    ):
        apply_plan(plan(other, broker.facts(topics_to_ask(other))), broker)
        with pytest.raises(ConfigError, match=text):
            back(cluster, graph=other)


def recreate(broker: Any, topic: str) -> None:
    """The same name, another topic."""
    [facts] = broker.facts([topic]).topics.values()
    broker.delete([topic])
    broker.create([NewTopic(facts.name, facts.partitions, facts.replication, facts.config)])


@pytest.mark.parametrize("topic", ["orders", "checked", "g.check.seen.changelog"])
def test_a_recreated_topic_is_refused(cluster: Memory, topic: str) -> None:
    """Offsets mean other messages now."""
    recreate(open_broker(cluster), topic)
    with pytest.raises(RecoveryError, match=f"'{topic}' was deleted, or deleted and recreated, since cut 'one'"):
        back(cluster)


def test_a_changelog_that_is_not_there_any_more_is_refused(cluster: Memory) -> None:
    """Without a traceback: it has no id to compare."""
    open_broker(cluster).delete(["g.check.seen.changelog"])
    with pytest.raises(RecoveryError, match=r"'g.check.seen.changelog' was deleted.* since cut 'one'"):
        back(cluster)


def test_pause_that_may_have_been_written_is_taken_back(cluster: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write without an answer may be there all the same; workers would wait for the end of its lease."""
    wrote = ControlTopic.write

    def unanswered(self: ControlTopic, key: bytes, value: bytes | None) -> None:
        wrote(self, key, value)
        if value is not None:
            raise FatalError("no answer")

    with monkeypatch.context() as patched:
        patched.setattr(ControlTopic, "write", unanswered)
        with pytest.raises(FatalError, match="no answer"):
            drain(cluster, "two")

    with control_of(cluster) as control:
        assert control.read().pause() is None


def test_deleted_messages_are_refused(cluster: Memory) -> None:
    """What would have to be read again is gone; what was delivered before the cut may go."""
    broker = open_broker(cluster)
    [at] = cuts_of(GRAPH, broker)[0].processors["check"].inputs.values()
    broker.trim({TopicPartition("orders", 0): at.offsets[0]})
    assert GoBack(GRAPH, broker, who="r").plan("one").all
    broker.trim({TopicPartition("orders", 0): at.offsets[0] + 1})
    with pytest.raises(RecoveryError, match=rf"orders/0 begins at {at.offsets[0] + 1}, and cut 'one' has offset"):
        back(cluster)


def test_a_trimmed_changelog_is_refused(cluster: Memory) -> None:
    """Its first messages are needed."""
    open_broker(cluster).trim({TopicPartition("g.total.sums.changelog", 1): 1})
    with pytest.raises(RecoveryError, match=r"g.total.sums.changelog/1 has offsets \[1, .*messages were deleted"):
        back(cluster)


def test_added_partitions_are_refused(cluster: Memory) -> None:
    """Keys have moved."""
    open_broker(cluster).add_partitions("orders", WIDTH + 1)
    with pytest.raises(RecoveryError, match="had 2 tasks at cut 'one' and has 3 now: partitions were added"):
        back(cluster)


class Later(SystemClock):
    """A day and a minute later."""

    def time(self) -> float:
        """Seconds since the epoch."""
        return super().time() + 86_460


def test_a_cut_that_compaction_may_have_passed_is_refused(cluster: Memory) -> None:
    """By its age, or by a setting that was made smaller."""
    broker = open_broker(cluster)
    with pytest.raises(RecoveryError, match=r"cut 'one' is 1 day, 0:01:\d\d old. .* can be gone back to for 1 day"):
        GoBack(GRAPH, broker, who="r", clock=Later()).plan("one")
    broker.configure("g.check.seen.changelog", {KEEPS: "1000"})
    with pytest.raises(RecoveryError, match=r"'g.check.seen.changelog' has min.compaction.lag.ms=1000, which is less"):
        back(cluster)


def test_a_compacted_changelog_is_refused(cluster: Memory) -> None:
    """Whatever the settings say: the mark of the cut is gone."""
    broker = open_broker(cluster)
    assert isinstance(broker, MemoryBroker)
    broker.compact("g.total.sums.changelog")
    with pytest.raises(RecoveryError, match=r"g.total.sums.changelog/\d below \d+ is not what it was at cut 'one'"):
        back(cluster)


def test_an_open_transaction_is_refused(cluster: Memory) -> None:
    """A worker was killed in it; its time-out ends it."""
    session = open_broker(cluster).session("someone")
    session.init(timeout_s=1)
    session.begin()
    session.produce([("checked", 0, b"k", b"{}", None, 0)])
    session.flush()
    with pytest.raises(RecoveryError, match=r"a transaction is open on checked/0"):
        back(cluster)
    session.abandon()
    back(cluster)


def test_a_reset_that_was_cut_short_holds_the_workers_back_until_it_is_complete(
    cluster: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first processor has moved and the second has not: between them, messages would be delivered twice."""
    carried = Maintenance.carry_out

    def dies(self: Any, moves: Any, **settings: Any) -> None:
        if self.specs[0].processor == "total":
            raise KeyboardInterrupt
        carried(self, moves, **settings)

    monkeypatch.setattr(Maintenance, "carry_out", dies)
    with pytest.raises(KeyboardInterrupt):
        back(cluster)
    monkeypatch.undo()

    with start(GRAPH, cluster) as running:
        comes(
            running,
            lambda: all(
                "the reset to cut 'one' by reset on here is not complete" in t.held for t in running.status().tasks
            ),
        )
        with pytest.raises(
            RecoveryError, match=r"a reset to cut:one is not complete. Run `cues-kafka reset MODULE:GRAPH --to"
        ):
            drain(cluster, "two")
        with pytest.raises(ConfigError, match="a reset to cut 'one' is not complete, and needs it"):
            delete_cut(GRAPH, open_broker(cluster), "one")
    assert {note.split(":")[0] for note in back(cluster)} == {"total/0", "total/1"}
    assert stores(cluster) == model(range(1, 50))
    with start(GRAPH, cluster) as running:
        running.wait_idle()
    assert stores(cluster) == model(range(1, 99))


def test_a_reset_that_only_lacks_its_end_is_ended(cluster: Memory) -> None:
    """All tasks stand there; the workers are let go."""
    back(cluster)
    with control_of(cluster) as control:
        control.write(RESET, encode(ResetUnderWay(by="r", cut="one")))
        back(cluster)
        assert not control.read().resetting


def test_workers_hold_everything_back_until_they_have_read_the_control_topic(cluster: Memory) -> None:
    """A reset that is not complete may stand in it."""
    changed = threading.Event()
    pauses = Pauses(open_broker(cluster), "g.control", "g.check", SystemClock(), changed.set)
    assert pauses.why("check") == "g.control is not read to its end yet"
    pauses.start()
    until(lambda: pauses.why("check") == "", changed)
    pauses.stop()


@pytest.mark.parametrize("processor", ["check", "total"])
def test_stores_that_are_being_rebuilt_are_no_part_of_a_cut(cluster: Memory, processor: str) -> None:
    """Neither to take one nor to go back to one."""
    broker = open_broker(cluster)
    tool = Maintenance(GRAPH, broker, processor, who="rebuild on here")
    record = newest_record(tool.specs[0], broker, SystemClock())
    assert record is not None
    move = Move(after=record.sequence, positions=record.positions, stores=(*record.stores, (UNFINISHED, 0)))
    tool.carry_out([PlannedMove(replace(tool.specs[0], move=move), ())])

    for act in (lambda: drain(cluster, "two"), lambda: back(cluster)):
        with pytest.raises(RecoveryError, match=f"the stores of {processor}/0 are being rebuilt"):
            act()


# --------------------------------------------------------------------------------------------- declaration


def test_a_graph_with_cuts_is_data_like_others() -> None:
    """Written down, read back, merged and bound."""
    day = graph_of(cuts=timedelta(days=1))
    assert day == GRAPH
    assert day.cuts_ms == 86_400_000
    assert Graph.from_dict(GRAPH.to_dict()) == GRAPH
    assert GRAPH.bind({"orders": "others"}).cuts == GRAPH.cuts
    other = Graph("h", Source("x"), Processor(half, inputs="x", outputs="y"), defaults=GRAPH.defaults)
    assert GRAPH.merge(other).cuts == GRAPH.cuts
    assert "cuts" not in graph_of(cuts=None).to_dict()


def test_permissions_and_topics_of_cuts_are_in_the_plan() -> None:
    """And only where cuts are declared."""
    planned = plan(GRAPH)
    [control] = [topic for topic in planned.create if topic.name == "g.control"]
    assert (control.partitions, control.config["cleanup.policy"]) == (1, "compact")
    kept = {topic.name: topic.config.get(KEEPS) for topic in planned.create}
    assert {name for name, value in kept.items() if value == "90000000"} == {
        "g.check.seen.changelog",
        "g.total.sums.changelog",
    }
    rights = {(acl.role, acl.operation) for acl in planned.acls if acl.name == "g.control"}
    assert {("worker", "Read"), ("worker", "Write"), ("deployer", "Create")} <= rights
    assert ("deployer", "Alter") not in rights
    without = plan(graph_of(cuts=None))
    assert not [topic for topic in without.create if topic.name == "g.control" or KEEPS in topic.config]
    assert not [acl for acl in without.acls if acl.operation == "AlterConfigs" or acl.name == "g.control"]


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        ([Processor(half, inputs="checked", outputs="orders")], "'check', 'half' feed each other in a cycle"),
        ([Source("checked")], r"'total' reads 'checked', which is a Source and an output as well"),
        ([DataFrameProcessor(half, name="frame", inputs="orders", outputs="frames")], "'frame' work on DataFrames"),
        ([Processor(half, inputs="orders", outputs="g.control")], "only the framework writes 'g.control'"),
    ],
)
def test_a_graph_that_cannot_come_to_rest_is_refused(parts: Any, text: str) -> None:
    """Where it is declared."""
    with pytest.raises(GraphError, match=text):
        graph_of(*parts)


@pytest.mark.parametrize("cuts", ["7", "a week", 7, "0 days"])
def test_a_wrong_time_is_refused(cuts: Any) -> None:
    """With the units."""
    with pytest.raises(GraphError, match=r'cuts=.*such as "7 days"'):
        graph_of(cuts=cuts)


def test_an_engine_that_does_not_pause_is_refused() -> None:
    """Before anything is asked of the cluster."""
    engine: Any = SimpleNamespace(runtime="spark")
    with pytest.raises(ConfigError, match="'g' has cuts=, which needs workers that pause: run it natively"):
        start(GRAPH, Memory(), engine=engine)


def looked(order: dict[str, Any], old: Any) -> dict[str, Any]:
    """The order, and the next one of the tailed topic."""
    found = old.read()
    return {**order, "old": found and found.value["id"]}


def test_a_processor_with_tailers_does_not_go_back() -> None:
    """A cut does not hold where they stood. One that has delivered nothing since stays where it is."""
    cluster = Memory()
    graph = graph_of(Processor(looked, inputs="orders", outputs="looked", tailers={"old": "checked"}))
    with start(graph, cluster) as running, connect(cluster, graph) as client:
        send(client, range(10))
        running.wait_idle()
        drain(cluster, graph=graph)
    assert back(cluster, graph=graph) == []
    with start(graph, cluster) as running, connect(cluster, graph) as client:
        send(client, range(10, 20))
        running.wait_idle()

    with pytest.raises(ConfigError, match="a cut does not hold where its tailers stood"):
        back(cluster, graph=graph)

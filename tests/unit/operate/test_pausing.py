"""Pauses by an operator, on the reference broker: what a paused task commits and keeps, and who stays paused."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from cues_kafka import ConfigError, Feed, Graph, Iterate, Json, Memory, Processor, RecoveryError, Source, Topic, start
from cues_kafka.brokers.memory import MemoryBroker
from cues_kafka.brokers.open import open_broker
from cues_kafka.graph.declare import CommitPolicy
from cues_kafka.operate import pausing as pausing_module
from cues_kafka.operate.cut.drain import Drain
from cues_kafka.operate.look.status import status
from cues_kafka.operate.pausing import Pausing
from cues_kafka.plan.topics import Sides
from cues_kafka.ports.facts import NewTopic
from cues_kafka.ports.log import TopicPartition
from cues_kafka.records.control import Hold, encode, key_of_hold
from cues_kafka.running import status_writer
from cues_kafka.running.running import Running
from cues_kafka.task.clock import SystemClock
from cues_kafka.workers.pauses import Pauses

WAIT_S = 20.0
SIDES = Sides(status=True, control=True)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Status is told and looked at without long waits."""
    monkeypatch.setattr(status_writer, "LOOK_S", 0.02)
    monkeypatch.setattr(pausing_module, "LOOK_S", 0.02)
    monkeypatch.setattr(pausing_module, "UNMANNED_S", 0.05)


@pytest.fixture
def cluster() -> Memory:
    """A cluster with status and control."""
    return Memory(status_every_s=5.0, control=True)


class Counting:
    """A function that counts its calls, and waits in each where the test wants it."""

    def __init__(self) -> None:
        self.calls: list[int] = []
        self.called = threading.Semaphore(0)
        self.go = threading.Event()
        self.go.set()

    def check(self, order: dict[str, int]) -> dict[str, int]:
        self.calls.append(order["n"])
        self.called.release()
        assert self.go.wait(WAIT_S)
        return order


def graph_of(function: Callable[..., Any], *more: Any, width: int = 1, **settings: Any) -> Graph:
    """One processor, and what the test adds."""
    return Graph(
        "g",
        Source("orders"),
        Processor(function, inputs="orders", outputs="checked", name="check"),
        *more,
        defaults=Topic(value=Json(), partitions=width),
        **settings,
    )


def tool_of(cluster: Memory, graph: Graph, sides: Sides = SIDES) -> Pausing:
    """What the command uses."""
    return Pausing(graph, open_broker(cluster), who="amy@desk", sides=sides)


def send(running: Running, *numbers: int) -> None:
    running.send_many("orders", [{"n": n} for n in numbers])


def outputs(cluster: Memory) -> list[int]:
    """What readers see."""
    broker = open_broker(cluster)
    reader, place = broker.reader("test"), TopicPartition("checked", 0)
    reader.assign({place: 0})
    end, found = broker.watermarks([place])[place].stable, []
    while True:
        for _, messages, eof in reader.poll(1.0):
            found += [json.loads(message.value() or b"")["n"] for message in messages]
            if eof is not None and eof >= end:
                return found


def comes(running: Running, condition: Callable[[], Any]) -> None:
    """Wait for what tasks do."""
    running._await(condition, WAIT_S, "what the test waits for")


def test_paused_task_commits_its_batch_keeps_its_place_and_goes_on_after_resume(cluster: Memory) -> None:
    """The call under way ends, its output is there, and nothing more is called until the pause is taken back."""
    counting = Counting()
    graph = graph_of(counting.check)
    with start(graph, cluster, policy=CommitPolicy(max_messages=1)) as running:
        tool = tool_of(cluster, graph)
        counting.go.clear()
        send(running, 1, 2, 3)
        assert counting.called.acquire(timeout=WAIT_S)
        said: list[str] = []
        left: list[dict[str, str]] = []
        thread = threading.Thread(target=lambda: left.append(tool.pause(timeout_s=WAIT_S, tell=said.append)))
        thread.start()
        comes(running, lambda: running.status().tasks[0].held)
        assert not left  # it calls
        counting.go.set()
        thread.join(WAIT_S)

        assert left == [{}]
        assert said == ["pausing all processors"]
        assert counting.calls == outputs(cluster) == [1]
        [task] = running.status().tasks
        assert task.resting
        assert task.held.startswith("paused by amy@desk since 20")
        seen = status(cluster, graph)
        assert (seen["check/0"].state, seen["check/0"].held, seen.ok) == ("paused", task.held, True)
        assert open_broker(cluster).members("g.check")

        assert [hold.by for hold in tool.resume().holds] == ["amy@desk"]
        running.wait_idle()
        assert counting.calls == outputs(cluster) == [1, 2, 3]
        assert not tool.resume().any
        tool.close()


def test_log_names_the_processors_that_go_on(cluster: Memory, caplog: pytest.LogCaptureFixture) -> None:
    """Also where all of them do."""

    def said(name: str) -> bool:
        line = f"goes on processors=['{name}'] why='no pause or reset holds them'"
        return line in [one.getMessage() for one in caplog.records]

    graph = graph_of(Counting().check)
    with start(graph, cluster) as running, caplog.at_level("WARNING", "cues_kafka.control"):
        tool = tool_of(cluster, graph)
        tool.pause("check", timeout_s=WAIT_S)
        tool.resume("check")
        comes(running, lambda: said("check"))
        tool.pause(timeout_s=WAIT_S)
        tool.resume()
        comes(running, lambda: said("all"))
        tool.close()


def test_what_was_called_ahead_is_committed_before_a_task_counts_as_paused(cluster: Memory) -> None:
    """While a commit is under way the next batch is called (P7); a paused task leaves none of it open."""
    counting, committing, go = Counting(), threading.Semaphore(0), threading.Event()

    def hook(when: str, effect: str, *_: Any) -> None:
        if (when, effect) == ("before", "Commit") and len(counting.calls) == 1 and not go.is_set():
            committing.release()
            assert go.wait(WAIT_S)

    graph = graph_of(counting.check)
    with start(graph, cluster, policy=CommitPolicy(max_messages=10)) as running:
        send(running, 0)
        running.wait_idle()  # the first batch runs under a snapshot, and nothing is called ahead of it
        counting.calls.clear()
    with start(graph, cluster, policy=CommitPolicy(max_messages=10), hook=hook) as running:
        go.set()
        send(running, 0)
        running.wait_idle()
        counting.calls.clear()
        go.clear()
        tool = tool_of(cluster, graph)
        send(running, 1)
        assert committing.acquire(timeout=WAIT_S)
        send(running, 2)
        comes(running, lambda: counting.calls == [1, 2])
        tool.pause(timeout_s=0.05)
        comes(running, lambda: running.status().tasks[0].held)
        assert not running.status().tasks[0].resting
        go.set()

        assert tool.pause(timeout_s=WAIT_S) == {}
        assert outputs(cluster) == [0, 0, 1, 2]
        tool.resume()
        tool.close()


def test_outcomes_of_at_most_once_are_committed_when_a_task_pauses(cluster: Memory) -> None:
    """Else they would wait for the next take, which does not come (W1)."""
    counting = Counting()
    graph = graph_of(counting.check, strategy="at-most-once")
    with start(graph, cluster, policy=CommitPolicy(max_messages=2)) as running:
        tool = tool_of(cluster, graph)
        counting.go.clear()
        send(running, 1, 2, 3, 4)
        assert counting.called.acquire(timeout=WAIT_S)
        tool.pause(timeout_s=0.05)
        comes(running, lambda: running.status().tasks[0].held)
        counting.go.set()

        assert tool.pause(timeout_s=WAIT_S) == {}
        assert counting.calls == outputs(cluster)
        assert len(counting.calls) < 4
        tool.resume()
        running.wait_idle()
        assert counting.calls == outputs(cluster) == [1, 2, 3, 4]
        tool.close()


@pytest.mark.parametrize("end", ["stop", "abandon"])
def test_successor_of_a_paused_worker_stays_paused(cluster: Memory, end: str) -> None:
    """The pause is on the cluster; a successor calls nothing before it has read that."""
    counting = Counting()
    graph = graph_of(counting.check)
    running = start(graph, cluster)
    tool = tool_of(cluster, graph)
    assert tool.pause(timeout_s=WAIT_S) == {}
    getattr(running, end)()

    with start(graph, cluster) as running:
        send(running, 1)
        assert tool.pause(timeout_s=WAIT_S) == {}
        assert running.status().tasks[0].held.startswith("paused by amy@desk since ")
        assert counting.calls == []
        tool.resume()
        running.wait_idle()
        assert counting.calls == [1]
    tool.close()


def test_one_processor_pauses_and_the_others_work(cluster: Memory) -> None:
    """What it has not delivered waits in its input; a feed can be paused, too."""
    graph = graph_of(
        lambda order: order,
        Processor(lambda _: None, inputs="checked", name="count"),
        Feed(Iterate(lambda _: []), into="orders", name="old"),
    )
    with start(graph, cluster) as running:
        tool = tool_of(cluster, graph)
        assert tool.pause("count", timeout_s=WAIT_S) == {}
        assert tool.pause("old", timeout_s=WAIT_S) == {}
        send(running, 1)
        comes(running, lambda: outputs(cluster) == [1])
        seen = status(cluster, graph)
        assert (seen["count/0"].state, seen["old/0"].state) == ("paused", "paused")
        assert (seen["count/0"].deliveries, seen["check/0"].state in ("idle", "working")) == (0, True)
        assert sorted(name or "" for name in tool.holds()) == ["count", "old"]
        assert [hold.processor for hold in tool.resume("count").holds] == ["count"]
        tool.resume()
        running.wait_idle()
        tool.close()


def test_tasks_that_do_not_pause_in_time_are_named(cluster: Memory) -> None:
    """The pause stays, and a later call waits for the same one."""
    counting = Counting()
    graph = graph_of(counting.check)
    with start(graph, cluster) as running:
        tool = tool_of(cluster, graph)
        counting.go.clear()
        send(running, 1)
        assert counting.called.acquire(timeout=WAIT_S)
        comes(running, lambda: "check/0" in tool._view.told())
        left = tool.pause(timeout_s=0.3)
        assert list(left) == ["check/0"]
        assert left["check/0"].startswith(("it finishes its batch on ", "it has not read the pause yet on "))
        ended = threading.Event()
        ended.set()
        assert list(tool.pause(timeout_s=WAIT_S, ended=ended)) == ["check/0"]
        said: list[str] = []
        counting.go.set()
        assert tool.pause(timeout_s=WAIT_S, tell=said.append) == {}
        assert said[0].startswith("already paused by amy@desk since ")
        tool.resume()
        tool.close()


def test_processor_without_a_worker_counts_as_paused(cluster: Memory) -> None:
    """Nothing is called, and a worker that starts later stays paused."""
    graph = graph_of(lambda order: order)
    start(graph, cluster).stop()
    tool = tool_of(cluster, graph)

    assert tool.pause(timeout_s=WAIT_S) == {}
    tool.close()


def test_task_that_told_nothing_is_named_while_workers_live(cluster: Memory) -> None:
    """Its worker may have no status; so it is not known whether it has paused."""
    graph = graph_of(lambda order: order)
    quiet = Memory(control=True)
    quiet.held.append(open_broker(cluster))  # the same brokers
    start(graph, cluster).stop()
    broker = open_broker(cluster)
    broker.delete(["g.status"])
    broker.create([NewTopic("g.status", 1, config={"cleanup.policy": "compact"})])
    with start(graph, quiet):
        tool = tool_of(cluster, graph)
        [(task, why)] = tool.pause(timeout_s=0.2).items()
        assert (task, why) == ("check/0", "it has not reported: its worker was started without status, or is starting")
        tool.close()


def test_without_status_no_task_can_say_that_it_has_paused(cluster: Memory) -> None:
    """The pause is written all the same."""
    graph = graph_of(lambda order: order)
    with start(graph, cluster) as running:
        tool = tool_of(cluster, graph, Sides(status=False, control=True))
        assert tool.pause() == {"check": "status is off, so tasks cannot say that they have paused"}
        comes(running, lambda: running.status().tasks[0].resting)
        tool.resume()
        tool.close()


def test_refusals_name_the_remedy(cluster: Memory) -> None:
    """What cannot be paused or resumed, and why."""
    graph = graph_of(lambda order: order)
    with pytest.raises(ConfigError, match="the setting `control` is off"):
        tool_of(cluster, graph, Sides(status=True))
    with pytest.raises(ConfigError, match=r"'g.control' does not exist. Run `cues-kafka plan"):
        tool_of(cluster, graph)
    start(graph, cluster).stop()
    tool = tool_of(cluster, graph)
    with pytest.raises(ConfigError, match="no processor 'chek'"):
        tool.pause("chek")
    tool.pause(timeout_s=WAIT_S)
    with pytest.raises(ConfigError, match=r"the whole graph is paused by amy@desk .* Run `cues-kafka resume MODULE"):
        tool.resume("check")
    tool.close()


def test_no_cut_is_taken_of_a_paused_graph(cluster: Memory) -> None:
    """It would not come to rest."""
    graph = graph_of(lambda order: order, cuts="1 day")
    with start(graph, cluster):
        tool = tool_of(cluster, graph)
        tool.pause("check", timeout_s=WAIT_S)
        with pytest.raises(RecoveryError, match=r"paused by amy@desk .* Run `cues-kafka resume MODULE:GRAPH` first"):
            Drain(graph, open_broker(cluster), who="drain").take("one")
        tool.resume()
        tool.close()


def _followed(broker: MemoryBroker, *, required: bool) -> Iterator[Pauses]:
    news = threading.Event()
    pauses = Pauses(broker, "g.control", "g.check", SystemClock(), news.set, required=required)
    pauses.start()
    try:
        yield pauses
        if not required:
            assert news.wait(WAIT_S)
            yield pauses
    finally:
        pauses.stop()


@pytest.mark.parametrize("required", [False, True])
def test_only_a_graph_with_cuts_waits_for_a_control_topic_that_is_missing(required: bool) -> None:
    """Another one works: there is no pause, or none can be heard."""
    steps = _followed(MemoryBroker(), required=required)
    pauses = next(steps)
    assert required is False or pauses.why("check") == "g.control is not read to its end yet"
    for pauses in steps:
        assert (pauses.why("check"), pauses.token("check")) == ("", "")


def test_the_pause_of_the_graph_comes_before_that_of_a_processor() -> None:
    """So tasks tell the token that `pause` waits for."""
    broker = MemoryBroker()
    broker.create([NewTopic("g.control", 1, config={"cleanup.policy": "compact"})])
    holds = [Hold(by="amy", token="a", processor="check"), Hold(by="bob", token="b")]
    broker.sender("test").send([("g.control", 0, key_of_hold(one.processor), encode(one), None, 0) for one in holds])
    steps = _followed(broker, required=False)
    next(steps)
    pauses = next(steps)

    assert (pauses.token("check"), pauses.token("other")) == ("b", "b")
    assert pauses.why("check").startswith("paused by bob since ")
    assert list(steps) == []

"""The status writer: what it tells and when, and that tasks do not notice where it cannot write."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from cues_kafka import Graph, Json, Memory, Processor, Source, Topic, start
from cues_kafka.brokers.memory import MemoryBroker
from cues_kafka.brokers.memory.clients import MemorySender
from cues_kafka.brokers.open import open_broker
from cues_kafka.core.records import Totals
from cues_kafka.core.task import Doing
from cues_kafka.errors import FatalError
from cues_kafka.observe.tally import TaskTally
from cues_kafka.observe.throttling import Throttling
from cues_kafka.ports.facts import NewTopic
from cues_kafka.ports.log import Position
from cues_kafka.records.scanning import read_all
from cues_kafka.records.status import StatusRecord, TaskOwner, decode_status, encode_status
from cues_kafka.running import status_writer
from cues_kafka.running.collector import TaskFacts
from cues_kafka.running.status_writer import StatusWriter, record_of, state_of
from cues_kafka.task.status import TaskStatus
from tests.unit.samples import StandingClock

TOPIC = "g.status"
OWNER = TaskOwner(instance="blue.1", host="node-7", pid=12, runtime="native", incarnation="ab")


def facts(task: str = "check/0", *, rate: float = 0.0, state: str = "ready", **status: Any) -> TaskFacts:
    """A task of this process."""
    processor, _, p = task.rpartition("/")
    positions = (Position("orders", "orders", b"i" * 16, 7),)
    of_task = TaskStatus(task, state, positions, status.pop("totals", Totals()), **status)
    return TaskFacts(processor or task, int(p) if processor else None, of_task, TaskTally(), rate)


class Bench:
    """A writer without its thread, and what it wrote."""

    def __init__(self, *, policy: str | None = "compact") -> None:
        self.broker = MemoryBroker()
        if policy:
            self.broker.create([NewTopic(TOPIC, 1, config={"cleanup.policy": policy})])
        self.clock = StandingClock()
        self.now: Sequence[TaskFacts] = [facts()]
        self.pauses = {"check": ""}
        self.throttling = Throttling(self.clock.monotonic)
        self.writer = StatusWriter(
            self.broker, TOPIC, OWNER, every_s=5.0, clock=self.clock, collect=lambda: self.now,
            pause=lambda name: self.pauses.get(name, ""), throttling=self.throttling,
        )  # fmt: skip

    def told(self) -> list[StatusRecord]:
        """All records, in order."""
        return [decode_status(message) for message in read_all(self.broker, TOPIC, 1) if message.value()]

    def look_at(self, *now: TaskFacts, later_s: float = 0.0) -> list[str]:
        """The tasks of the records that another look adds."""
        before, self.clock.s = len(self.told()), self.clock.s + later_s
        self.now = now or self.now
        self.writer.look()
        return [one.task for one in self.told()[before:]]


def test_task_is_told_at_once_when_it_changes_and_else_every_period() -> None:
    """Counts, rates and whether it is idle wait for the period: they change with each message."""
    bench = Bench()
    assert bench.look_at() == ["check/0"]
    assert bench.look_at(later_s=1.0) == []
    assert bench.look_at(facts(rate=5.0, totals=Totals(9)), later_s=1.0) == []
    assert bench.look_at(facts(stopped="why", remedy="do"), later_s=0.5) == ["check/0"]
    assert bench.look_at(later_s=3.0) == []
    assert bench.look_at(later_s=2.0) == ["check/0"]
    assert bench.look_at(facts(), later_s=0.5) == ["check/0"]
    assert bench.look_at(facts(), facts("check/1"), later_s=0.5) == ["check/1"]
    bench.pauses["check"] = "token"
    assert bench.look_at(facts(held="paused"), later_s=0.5) == ["check/0"]
    assert (bench.told()[-1].pause, bench.told()[-1].state) == ("token", "pausing")
    assert bench.look_at(facts(held="paused", resting=True), later_s=0.5) == ["check/0"]
    assert bench.told()[-1].state == "paused"


def test_every_task_tells_what_brokers_hold_back_of_its_process() -> None:
    """It waits for the period: it changes with each look."""
    bench = Bench()
    bench.look_at()
    bench.throttling.held_back("session g.check.0", "b1", 1.5)
    assert bench.look_at(facts(), facts("check/1"), later_s=0.5) == ["check/1"]
    assert bench.look_at(later_s=5.0) == ["check/0", "check/1"]
    assert [one.throttled_s for one in bench.told()] == [0.0, 1.5, 1.5, 1.5]


def test_task_that_moved_away_is_left_to_its_new_process() -> None:
    """A processor on Spark that had stopped as a whole has no other process, so its record is taken back."""
    bench = Bench()
    bench.look_at(facts(), facts("totals", state="stopped", stopped="why"))
    bench.look_at(facts("other/0"), later_s=1.0)

    messages = [(m.key(), m.value() is None) for m in read_all(bench.broker, TOPIC, 1)]
    assert messages == [(b"check/0", False), (b"totals", False), (b"other/0", False), (b"totals", True)]


@pytest.mark.parametrize(
    ("state", "status"),
    [
        ("stopped", {"stopped": "why", "held": "paused"}),
        ("paused", {"held": "paused", "resting": True}),
        ("pausing", {"held": "paused"}),
        ("starting", {"state": "new"}),
        ("starting", {"state": "starting"}),
        ("recovering", {"state": "assigning"}),
        ("working", {"rate": 0.1}),
        ("working", {"calling": "calling for 75 s"}),
        ("idle", {"state": "on spark"}),
        ("idle", {}),
    ],
)
def test_state_of_a_task_is_a_word_for_people(state: str, status: dict[str, Any]) -> None:
    """Each state of the protocol has its word."""
    assert state_of(facts(**status)) == state


def test_every_state_of_a_task_has_a_word() -> None:
    """A task that recovers does not look idle."""
    works = {Doing.READY, Doing.CALLING, Doing.BEGINNING, Doing.SENDING_OFFSETS, Doing.EMITTING, Doing.PRODUCING,
             Doing.FLUSHING, Doing.COMMITTING, Doing.STOPPED, Doing.RELEASED}  # fmt: skip
    assert {one for one in Doing if state_of(facts(state=one.value)) == "idle"} == works


def test_record_survives_its_bytes() -> None:
    """All fields, and the owner in words."""
    bench = Bench()
    tally = TaskTally(errors=1, retries=2, failures=3, stops=4, error="e", error_s=5.0, committed_s=6.0, stopped_s=7.0)
    full = replace(
        facts(stopped="why", remedy="do", at="orders/0 at 7", hash="ab", calling="calls", silent="no answer",
              rival="other", unreachable_s=12.34, held="paused", unpausable="no", place="line 3",
              totals=Totals(9, 5, 1, 3, 6)),
        tally=tally, rate=1.25,
    )  # fmt: skip
    record = record_of(full, OWNER, 5.0, "token", 12.34)
    bench.broker.sender("x").send([(TOPIC, 0, b"check/0", encode_status(record), None, 0)])
    [read] = bench.told()

    assert replace(read, told_s=0.0) == record
    assert (read.told_s > 0, read.throttled_s) == (True, 12.3)
    assert read.totals == {"deliveries": 9, "outputs": 5, "errors": 1, "nils": 3, "messages": 6, "dropped": 0}
    assert str(read.owner) == "blue.1 (node-7, pid 12)"
    assert str(TaskOwner(instance="node-7-12", host="node-7", pid=12)) == "node-7-12"


def test_missing_topic_is_said_once_and_used_when_it_is_there(caplog: pytest.LogCaptureFixture) -> None:
    """The wait doubles from a period up to a minute."""
    bench = Bench(policy=None)
    with caplog.at_level(logging.INFO, "cues_kafka.status"):
        for _ in range(8):
            bench.clock.s += 60.0
            bench.writer.look()
        bench.broker.create([NewTopic(TOPIC, 1, config={"cleanup.policy": "compact"})])
        assert bench.look_at(later_s=30.0) == []
        assert bench.look_at(later_s=30.0) == ["check/0"]

    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 2
    assert said[0].startswith("status not written topic='g.status' why=\"topic 'g.status' does not exist. `cues-kafka")
    assert said[1] == "status written again topic='g.status'"


def test_topic_of_another_program_is_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    """Ours is compacted."""
    bench = Bench(policy="delete")
    bench.writer.look()

    assert bench.told() == []
    assert "cleanup.policy=delete, so it may be another program's" in caplog.text


def test_tasks_work_where_status_may_not_be_written(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A missing right costs the status, and nothing else; the log says so once."""
    refused = threading.Event()

    class Forbidden(MemorySender):
        def send(self, records: Sequence[tuple[Any, ...]], *, timeout_s: float = 30.0) -> list[Any]:
            if records[0][0] == TOPIC:
                refused.set()
                raise FatalError("user `worker` may not write", code="TOPIC_AUTHORIZATION_FAILED")
            return super().send(records, timeout_s=timeout_s)

    monkeypatch.setattr(status_writer, "LOOK_S", 0.01)
    monkeypatch.setattr(MemoryBroker, "sender_type", Forbidden)
    with start(graph_of(lambda order: order), Memory(status_every_s=0.5)) as running:
        assert refused.wait(20.0)
        running.send("orders", {"n": 1})
        running.wait_idle()
        assert running.status().tasks[0].totals.deliveries == 1

    assert caplog.text.count("status not written") == 1


def test_writer_that_fails_is_said_and_the_tasks_go_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A defect in it is no reason to stop."""
    monkeypatch.setattr(status_writer, "LOOK_S", 0.01)
    monkeypatch.setattr(status_writer, "record_of", _fails)
    with start(graph_of(lambda order: order), Memory(status_every_s=0.5)) as running:
        assert running._status is not None
        running._status._thread.join(20.0)
        running.send("orders", {"n": 1})
        running.wait_idle()

    assert "status writer ended topic='g.status' error='ZeroDivisionError: defect'" in caplog.text


def _fails(*_: Any) -> StatusRecord:
    raise ZeroDivisionError("defect")


def test_no_topic_and_no_client_are_there_where_status_is_off() -> None:
    """What is off is free."""
    cluster = Memory()
    with start(graph_of(lambda order: order), cluster) as running:
        assert running._status is None
        assert running._pauses is None
    assert not {"g.status", "g.control"} & open_broker(cluster).partitions().keys()


def test_a_short_run_opens_no_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first look comes after half a second."""
    opened: list[str] = []

    class Noted(MemorySender):
        def __init__(self, cluster: Any, name: str, faults: Any) -> None:
            opened.append(name)
            super().__init__(cluster, name, faults)

    monkeypatch.setattr(MemoryBroker, "sender_type", Noted)
    monkeypatch.setattr(status_writer, "LOOK_S", 60.0)
    start(graph_of(lambda order: order), Memory(status_every_s=0.5)).stop()

    assert opened == []


def graph_of(function: Callable[..., Any]) -> Graph:
    """One processor."""
    return Graph(
        "g",
        Source("orders"),
        Processor(function, inputs="orders", outputs="checked", name="check"),
        defaults=Topic(value=Json(), partitions=1),
    )

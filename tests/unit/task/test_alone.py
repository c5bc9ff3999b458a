"""Who of a process may run user code, and whom a death counts on (Q2a); which input of alts is next."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from cues_kafka import Graph, Processor, Source
from cues_kafka.brokers.memory import MemorySession
from cues_kafka.core import effects as do
from cues_kafka.core.events import Event
from cues_kafka.core.records import Snapshot
from cues_kafka.core.task import Task
from cues_kafka.ports.log import Fetched, Position, TopicPartition, WireMessage
from cues_kafka.task.alone import PATIENCE_S, WISH_S, Alone
from cues_kafka.task.announcing import Announcing
from cues_kafka.task.calling.batch import Batch
from cues_kafka.task.calling.pairing import Buffer
from cues_kafka.task.lane import Lane
from cues_kafka.testing.tester import Crash, Tester
from tests.unit.samples import at


def test_a_task_that_is_alone_keeps_others_out_until_it_releases() -> None:
    alone = Alone()

    assert alone.take("a", 0.0)
    assert not alone.enter("b", 1.0)
    assert not alone.take("b", 1.0)
    assert alone.enter("a", 1.0)
    alone.release("a")
    assert not alone.enter("b", 2.0), "user code of a task that was given up may still kill"
    alone.leave("a")
    assert alone.enter("b", 3.0)


def test_no_task_waits_without_end() -> None:
    """Neither for a call that never returns, nor for one that wants to be alone beside it."""
    alone = Alone()
    assert alone.enter("hangs", 0.0)
    assert not alone.take("a", 0.0)
    assert not alone.enter("b", WISH_S - 1)
    assert alone.enter("b", WISH_S)
    alone.leave("b")
    alone.leave("hangs")
    assert alone.take("a", WISH_S)
    assert not alone.enter("b", WISH_S + PATIENCE_S - 1)
    assert alone.enter("b", WISH_S + PATIENCE_S)


def test_a_call_that_never_returns_stops_no_other_task_with_a_death_behind_it() -> None:
    """After a while that task runs beside the call."""
    alone = Alone()
    assert alone.enter("hangs", 0.0)
    now_s = 0.0
    while not alone.take("a", now_s):
        now_s += WISH_S / 2
        assert now_s <= PATIENCE_S, "it waits without end"
    assert now_s > PATIENCE_S - WISH_S
    assert alone.enter("a", now_s)
    alone.leave("a")
    alone.release("a")
    assert alone.enter("b", now_s)
    assert not alone.take("a", now_s), "the next time it waits again"


def test_a_task_that_is_given_up_while_it_asks_keeps_no_other_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker stops in that moment, so that what the task says then reaches no reader."""
    dead: list[str] = []

    def deadly(value: str) -> str:
        if not dead:
            dead.append(value)
            tester.kill()
        return value

    tester = Tester(Graph("given-up", Source("in"), Processor(deadly, inputs="in", outputs="out")))
    tester.send("in", "once")
    assert tester.run_to_death()
    take, asked = Alone.take, list[tuple[Alone, float]]()

    def take_late(alone: Alone, lane: Any, now_s: float) -> bool:
        if not lane.short:  # its message is there
            tester._workers[0].stop(leave=True)
            lane.lose()
            asked.append((alone, now_s))
        return take(alone, lane, now_s)

    monkeypatch.setattr(Alone, "take", take_late)
    tester.run()

    [(alone, now_s)] = asked
    assert alone.enter("a task of another worker", now_s)


def test_a_task_that_must_be_alone_keeps_its_wish_while_others_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else tasks that always have messages would keep it waiting without end."""
    dead: list[str] = []

    def deadly(value: str) -> str:
        if not dead:
            dead.append(value)
            tester.kill()
        return value

    tester = Tester(Graph("wishes", Source("in"), Processor(deadly, inputs="in", outputs="out")))
    tester.send("in", "once")
    assert tester.run_to_death()
    take, entered = Alone.take, list[bool]()

    def take_beside(alone: Alone, lane: Any, now_s: float) -> bool:
        if len(entered) < 3:
            entered.append(alone.enter(len(entered), now_s))
            if len(entered) == 3:
                for other in range(3):
                    alone.leave(other)
        return take(alone, lane, now_s)

    monkeypatch.setattr(Alone, "take", take_beside)
    tester.run()

    assert entered == [True, False, False]
    assert tester.values("out") == ["once"]


def test_a_task_stays_alone_while_its_announced_message_comes_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a suspect commit of the snapshot the task recovers, and waits for its reader with that snapshot newest."""
    calls: list[str] = []

    def deadly(value: str) -> str:
        calls.append(value)
        if len(calls) == 1:
            tester.kill()
        return value

    tester = Tester(Graph("suspect", Source("in"), Processor(deadly, inputs="in", outputs="out")))
    tester.send("in", "once")
    assert tester.run_to_death()
    commit, polled, release = MemorySession.commit, Announcing.polled, Alone.release
    suspect, waited = ["the coordinator did not answer"], list[bool]()
    released: list[bool] = []

    def commit_and_doubt(session: MemorySession) -> str | None:
        return commit(session) or (suspect.pop() if suspect else None)

    def polled_later(announcing: Announcing, task: Task, buffer: Buffer) -> Event | None:
        if task.settled or waited:
            return polled(announcing, task, buffer)
        waited.append(True)
        return None

    def release_settled(alone: Alone, lane: Lane) -> None:
        released.append(lane.task.settled)
        release(alone, lane)

    monkeypatch.setattr(MemorySession, "commit", commit_and_doubt)
    monkeypatch.setattr(Announcing, "polled", polled_later)
    monkeypatch.setattr(Alone, "release", release_settled)
    tester.run()

    assert waited, "the task recovered with its snapshot as the newest record"
    assert all(released), "a death of another task's message would have counted on this one"
    assert tester.values("out") == calls[1:] == ["once"]


class Desk:
    """A graph whose first processor kills its process once, and an operator who pauses that processor."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.paused = False
        self.graph = Graph(
            "desk",
            *(Source("in"), Source("beside")),
            Processor(self.deadly, inputs="in", outputs="out"),
            Processor(self.other, inputs="beside", outputs="other"),
            errors="failed",
        )
        self.tester = Tester(self.graph)

    def deadly(self, value: str) -> str:
        """Kills the process in the first call."""
        self.calls.append(value)
        if len(self.calls) == 1:
            self.tester.kill()
        return value

    def other(self, value: str) -> str:
        """Kills no process, but for one message."""
        if value == "kills":
            self.tester.kill()
        return value

    def pause_when(self, comes: Callable[[Lane], bool]) -> Lane:
        """Begin a process, whose first processor is paused as soon as its lane is so."""
        self.tester.restart()._start()
        worker = self.tester._workers[0]
        worker.poll_once()
        [lane] = worker.lanes.values()

        def held(_: str) -> str:
            self.paused = self.paused or comes(lane)
            return "paused" if self.paused else ""

        worker._options = replace(worker._options, held=held)
        return lane

    def resume(self) -> None:
        """Let the processor go on."""
        worker = self.tester._workers[0]
        worker._options = replace(worker._options, held=lambda _: "")


def is_to_be_called(lane: Lane) -> bool:
    """Between the task's becoming alone and its call, above its own snapshot."""
    return isinstance(lane.interpreter.effect, do.Call)


def asks_below_its_snapshot(lane: Lane) -> bool:
    """Its snapshot is the newest record, and after a recovery its message is not fetched again yet."""
    return isinstance(lane.interpreter.effect, do.Await) and not lane.task.settled


def doubt_the_first_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    """The commit of the first snapshot is suspect: the task recovers."""
    commit, suspect = MemorySession.commit, ["the coordinator did not answer"]

    def commit_and_doubt(session: MemorySession) -> str | None:
        return commit(session) or (suspect.pop() if suspect else None)

    monkeypatch.setattr(MemorySession, "commit", commit_and_doubt)


@pytest.mark.parametrize("comes", [is_to_be_called, asks_below_its_snapshot])
def test_a_paused_task_keeps_no_other_out(comes: Callable[[Lane], bool], monkeypatch: pytest.MonkeyPatch) -> None:
    """It was alone already when the pause came; others waited for 300 s, as for a call that does not return."""
    desk = Desk()
    tester = desk.tester
    tester.send("in", "once")
    assert tester.run_to_death()
    if comes is asks_below_its_snapshot:
        doubt_the_first_commit(monkeypatch)
    lane = desk.pause_when(comes)
    tester.send("beside", "fine")
    began_s = tester.clock.monotonic()
    tester.run()

    assert desk.paused
    assert tester.values("other") == ["fine"]
    assert tester.clock.monotonic() - began_s < WISH_S
    assert desk.calls == ["once"], "it is called in a pause"
    assert lane.task.settled, "a death of another task's message would count on this one"

    desk.resume()
    tester.run()
    assert tester.values("out") == ["once"]
    assert tester.errors() == []


def test_a_death_of_another_message_in_a_pause_does_not_count_on_the_paused_task() -> None:
    """I11: it says `left` before others run."""
    desk = Desk()
    tester = desk.tester
    tester.send("in", "once")
    assert tester.run_to_death()
    desk.pause_when(is_to_be_called)
    tester.send("beside", "kills")
    tester.run(crash=Crash("before", "Stop", 10**9))
    assert tester.crashed
    assert desk.paused

    tester.restart().run(crash=Crash("before", "Call"))
    snapshot = tester.records("deadly")[-1]
    assert isinstance(snapshot, Snapshot)
    assert snapshot.starts == 1


def test_an_innocent_message_is_not_quarantined_for_another_processors_deaths() -> None:
    """I11: all snapshots of the process are open when it dies."""
    made: list[Tester] = []

    def deadly(value: str) -> str:
        made[0].kill()
        return value

    def innocent(value: str) -> str:
        return value

    graph = Graph(
        "together",
        Source("poison"),
        Source("fine"),
        Processor(deadly, inputs="poison", outputs="bad"),
        Processor(innocent, inputs="fine", outputs="good"),
        errors="failed",
    )
    tester = Tester(graph)
    made.append(tester)
    tester.send_many("poison", ["poison"])
    tester.send_many("fine", ["fine"])
    while tester.run_to_death():
        pass

    assert tester.values("good") == ["fine"]
    assert [(error.kind, error.processor, error.starts) for error in tester.errors()] == [("quarantine", "deadly", 3)]


def test_alts_alternate_when_one_step_is_taken_at_a_time() -> None:
    """Every input is served, however much waits on the first."""
    buffer = Buffer("alts", tuple(Position(name, name, b"", 0) for name in "abc"))
    for name in "abc":
        messages: list[WireMessage] = [at(name, offset) for offset in range(4)]
        buffer.add(Fetched(TopicPartition(name, 0), messages, None))

    assert [buffer.cut(1).steps[0][0] for _ in range(9)] == [0, 1, 2] * 3


@pytest.mark.parametrize("effects", [False, True])
def test_alts_serve_every_input_although_the_function_is_slow(*, effects: bool) -> None:
    """A call of 12 ms makes chunks of one step. Only the first input was served then, while it had a backlog."""
    served: list[str] = []

    def slow(a: int | None = None, b: int | None = None) -> str:
        tester.clock.advance(0.012)
        served.append("a" if b is None else "b")
        return served[-1]

    processor = Processor(slow, alts={"a": "a", "b": "b"}, outputs="out", effects=effects)
    tester = Tester(Graph("g", Source("a"), Source("b"), processor))
    tester.send_many("a", list(range(2000)))
    tester.run()
    tester.send_many("a", list(range(2000)))
    tester.send_many("b", list(range(20)))
    served.clear()
    tester.run()

    assert len(served) == 2020
    assert served[:100].count("b") == 20


def test_a_task_that_is_idle_holds_none_of_its_last_records() -> None:
    """Each one kept its last batch, up to 32 MiB of outputs, until the next."""

    def double(n: int) -> int:
        return 2 * n

    tester = Tester(Graph("idle", Source("in"), Processor(double, inputs="in", outputs="out")))
    for _ in range(2):
        tester.send_many("in", [1, 2, 3])
        tester.run()
        assert not [one for one in gc.get_objects() if isinstance(one, Batch) and one.spec.graph == "idle"]
    assert tester.values("out") == [2, 4, 6] * 2

"""D7: of two drivers with live batches of one processor the later one gives way, and never both; in memory."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import PySparkException

from cues_kafka.core.events import Halt
from cues_kafka.core.records import Writer
from cues_kafka.errors import TaskStopped
from cues_kafka.on_spark.direct.plain import PlainRun
from cues_kafka.on_spark.direct.work import Work
from cues_kafka.on_spark.query.earlier import MEETINGS, MEETINGS_S, QUIET_S, EarlierDriver, GaveWay
from cues_kafka.on_spark.query.outcome import Outcome
from cues_kafka.on_spark.query.run import QuerySettings
from cues_kafka.on_spark.query.worker import SparkWorker
from cues_kafka.on_spark.source.ranges import InputRange, RangeRow
from cues_kafka.task.workers import Job, Stopped
from cues_kafka.testing.tester import VirtualClock
from tests.unit.on_spark.direct.test_replay_slot import IN, World


def record_of(slot: str, runtime: str = "spark") -> Any:
    """A record of a slot, `run.number`."""
    return SimpleNamespace(writer=Writer("id", runtime, f"driver-{slot[0]}", slot))


def found(slot: str, partition: int = 0) -> list[Outcome]:
    """The outcome of a slot that began behind a record of another one."""
    return [Outcome("pipe/0", partition, found=slot, found_name=f"driver-{slot[:1]}")]


def met(slots: Iterable[str], *, every_s: float, before: Any = ("a.0",), runtime: str = "spark") -> list[str]:
    """What a driver says that finds records of these slots, one after the other."""
    clock = VirtualClock()
    earlier = EarlierDriver(clock, [None, *(record_of(slot, runtime) for slot in before)])
    said = []
    for slot in slots:
        clock.advance(every_s)
        said.append(earlier.meet(found(slot)))
    return said


def test_driver_that_goes_on_writing_is_met() -> None:
    """Three slots of it, over two minutes."""
    assert met(["a.1", "b.1", "a.2", "a.3", "a.4"], every_s=MEETINGS_S / 3) == ["", "", "", "driver-a", "driver-a"]
    assert met(["a.1", "a.2", "a.3"], every_s=MEETINGS_S / 2 - 1) == [""] * 3


@pytest.mark.parametrize(
    ("slots", "before", "runtime"),
    [
        (["a.1", "a.1", "a.2", "a.2", "a.1"], ["a.0"], "spark"),
        (["a.0"] * 5, ["a.0"], "spark"),
        (["b.1", "b.2", "b.3", "b.4"], ["a.0"], "spark"),
        (["a.1", "a.2", "a.3", "a.4"], [], "spark"),
        (["a.1", "a.2", "a.3", "a.4"], ["a.0"], "tool"),
        (["", "", "", ""], ["a.0"], "spark"),
    ],
    ids=["processes that outlive it", "a dead one", "a later one", "an unseen one", "a tool", "no records"],
)
def test_driver_gives_way_to_no_other(slots: list[str], before: list[str], runtime: str) -> None:
    """However long it lasts."""
    assert not any(met(slots, every_s=MEETINGS_S, before=before, runtime=runtime))


def test_a_last_record_that_is_found_late_is_no_sign_of_life() -> None:
    """In a roll-out drivers overlap; the next message of a task may come long after the earlier one was stopped."""
    clock = VirtualClock()
    earlier = EarlierDriver(clock, [record_of("a.0")])
    for slot, wait_s in (("a.1", 0), ("a.2", 20), ("a.3", 20), ("a.4", 160)):
        clock.advance(wait_s)
        assert not earlier.meet(found(slot))


def test_slots_of_several_tasks_are_not_taken_together() -> None:
    """A dead driver leaves processes of each task."""
    clock = VirtualClock()
    earlier = EarlierDriver(clock, [record_of("a.0")])
    for p in range(2 * MEETINGS):
        clock.advance(MEETINGS_S)
        assert not earlier.meet(found(f"a.{p}", p))


def orders(one: int, other: int) -> Iterator[str]:
    """All orders of what two drivers do."""
    for places in itertools.combinations(range(one + other), one):
        yield "".join("a" if n in places else "b" for n in range(one + other))


def test_two_drivers_never_give_way_to_each_other() -> None:
    """In each order of their looks and batches; one does, unless neither had written when the other one looked."""
    outcomes = set()
    for order in orders(6, 6):
        clock, newest, number = VirtualClock(), record_of("x.0"), itertools.count(1)
        drivers: dict[str, EarlierDriver] = {}
        gave_way: set[str] = set()
        wrote: set[str] = set()
        seen: set[str] = set()
        for who in order:
            clock.advance(MEETINGS_S / 3)
            if who not in drivers:
                drivers[who] = EarlierDriver(clock, [newest])
                seen |= wrote
                continue
            if drivers[who].meet(found(newest.writer.incarnation)):
                gave_way.add(who)
            wrote.add(who)
            newest = record_of(f"{who}.{next(number)}")
        assert len(gave_way) < 2, order
        assert gave_way <= {"a", "b"} - seen or not seen, order
        outcomes.add((len(seen), len(gave_way)))
    assert outcomes == {(0, 0), (1, 0), (1, 1)}


# Slots and their drivers


class Query(PlainRun):
    """Its query has one batch after another, until one fails; nothing else of Spark."""

    status = {"message": "Waiting for data to arrive"}  # noqa: RUF012  # of Spark's query

    def __init__(self, world: World, work: Work, batches: int) -> None:
        self.__dict__.update(world.run(work).__dict__)
        self.work, self.left, self.clock = work, batches, VirtualClock()
        self.others: list[Query] = []
        self.world = world
        self.starts = 0

    def start(self, positions: Any, tell: Any) -> Any:
        self.tell, self.starts = tell, self.starts + 1
        return self

    def awaitTermination(self) -> None:  # noqa: N802  # Spark's name
        """A batch of the others first, then one of its own."""
        while self.left:
            self.left -= 1
            self.clock.advance(MEETINGS_S / 2)
            self.world.client.send("in", 5)
            for other in self.others:
                other.batch()
            try:
                self.tell([self.batch()])
            except GaveWay as error:
                raise PySparkException(f"FOREACH_BATCH_USER_FUNCTION_ERROR {error}") from error

    def batch(self) -> Outcome:
        """All messages that are there."""
        given = RangeRow(0, (InputRange("in", 0, self.world.end(IN)),))
        return self.work.deliver(given, attempt=str(next(self.world.numbers)), first=False)


def worker_of(query: Query, trigger: dict[str, Any]) -> SparkWorker:
    """Its worker."""
    world = query.world
    job = Job(world.graph, "pipe", world.memory, world.planned, world.facts, world.broker, lambda: None)
    worker = SparkWorker(job, query, QuerySettings(object(), "checkpoint", trigger), query.clock)
    worker._conditions.rehearsed = True
    return worker


@pytest.fixture(autouse=True)
def _no_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cues_kafka.on_spark.query.worker.drop_unfinished", lambda *_: None)
    monkeypatch.setattr("cues_kafka.on_spark.query.worker.has_jvm", lambda _: True)
    monkeypatch.setattr("cues_kafka.on_spark.query.conditions.repaired", lambda *_, **__: None)


NAMES = "'one' runs this processor on Spark too, and started before this driver, which gives way"


def overlapping(batches: int) -> tuple[World, Query, Query]:
    """A world, a driver that has delivered two batches, and one that starts beside it and has this many of its own."""
    world = World(values=(1,))
    one = Query(world, world.work("one"), 0)
    one.batch()
    world.client.send("in", 2)
    one.batch()
    two = Query(world, world.work("two"), batches)
    two.others = [one]
    return world, one, two


def test_later_driver_stops_with_the_name_of_the_earlier_one() -> None:
    """`available-now`: its program is told so. The earlier one has delivered all."""
    world, _, two = overlapping(5)
    worker = worker_of(two, {"availableNow": True})

    worker._run()

    assert isinstance(worker.failed, TaskStopped)
    assert NAMES in str(worker.failed)
    assert "stop one of the two" in str(worker.failed)
    assert two.left == 5 - MEETINGS
    assert world.out() == [1, 2, 5, 5, 5]


def test_earlier_driver_goes_on() -> None:
    """It has not seen the later one when it looked."""
    world = World(values=(1,))
    one = Query(world, world.work("one"), 2)
    worker = worker_of(one, {})
    assert worker._once()
    two = Query(world, world.work("two"), 0)
    one.left, one.others = 5, [two]

    assert worker._once()

    assert (one.left, worker.stopped()) == (0, [])
    assert world.out() == [1] + [5] * 7


def test_later_driver_goes_on_once_the_earlier_one_is_silent() -> None:
    """Until then it takes no id, and says why; also behind a look that failed."""
    world, one, two = overlapping(3)
    worker = worker_of(two, {})
    with pytest.raises(PySparkException) as failed:
        worker._once()
    worker._read_failure(failed.value)
    [status] = [one for one in worker.status() if one.task == "pipe"]
    assert (status.state, status.stopped) == ("stopped", NAMES)

    for _ in range(3):  # it works
        world.client.send("in", 5)
        one.batch()
        assert not worker._once()
        two.clock.advance(QUIET_S)
    worker._books.stops = [Stopped("pipe", Halt("refused", "the broker is away", ""))]
    world.client.send("in", 5)
    one.batch()
    newest = world.records()[-1]
    assert not worker._once()
    two.clock.advance(QUIET_S - 1)
    assert not worker._once()
    assert [one.halt.text for one in worker.stopped()] == [NAMES]
    assert (two.starts, world.records()[-1]) == (1, newest)

    two.clock.advance(1)
    two.others, two.left = [], 2
    assert worker._once()
    assert (two.starts, worker.stopped()) == (2, [])
    assert world.out() == [1, 2] + [5] * 9


def test_driver_that_starts_again_behind_a_dead_one_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its predecessor has written all records. It looks before it takes an id."""
    world = World(values=(1,))
    dead = Query(world, world.work("dead"), 0)
    dead.batch()
    query = Query(world, world.work("next"), 6)
    worker = worker_of(query, {})
    looked = []

    def enter(run: Query, partition: int) -> Outcome:
        looked.append(worker._way._earlier is not None)
        return PlainRun.enter(run, partition)

    monkeypatch.setattr(Query, "enter", enter)

    assert worker._once()
    assert (looked, worker.stopped()) == ([True], [])

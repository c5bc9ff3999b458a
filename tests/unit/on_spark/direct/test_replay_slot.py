"""Requests to replay errors on Spark: a slot between two batches delivers each once (Y1 to Y3), in memory."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any
from unittest.mock import Mock

import pytest

from cues_kafka import Graph, Memory, Processor, Source, Step
from cues_kafka.brokers.memory import MemoryBroker
from cues_kafka.brokers.open import open_broker
from cues_kafka.client.client import Client
from cues_kafka.core.records import Record, Snapshot
from cues_kafka.errors import BrokerError, CodecError, RetriableError
from cues_kafka.on_spark.direct.plain import PlainRun
from cues_kafka.on_spark.direct.work import Work
from cues_kafka.on_spark.query.books import RIVAL_S
from cues_kafka.on_spark.query.hold import BatchHold
from cues_kafka.on_spark.query.outcome import Outcome
from cues_kafka.on_spark.query.replays import BetweenBatches
from cues_kafka.on_spark.query.run import QuerySettings
from cues_kafka.on_spark.query.slots import FENCED_S
from cues_kafka.on_spark.query.worker import SparkWorker
from cues_kafka.on_spark.source.ranges import InputRange, RangeRow
from cues_kafka.operate.repair.ask import Repairs
from cues_kafka.ports.clock import Clock
from cues_kafka.ports.facts import NewTopic
from cues_kafka.ports.log import TopicPartition
from cues_kafka.records.reading import records_of
from cues_kafka.records.scanning import read_all
from cues_kafka.task.clock import SystemClock
from cues_kafka.task.making.prepare import prepare
from cues_kafka.task.making.specs import Identity
from cues_kafka.task.workers import Job
from cues_kafka.testing.tester import VirtualClock
from cues_kafka.verify.scan import verify

IN, REQUESTS = TopicPartition("in", 0), TopicPartition("g.pipe.replay", 0)


class Killed(BaseException):
    """Ends a slot as SIGKILL would: nothing of it runs any more."""


@dataclass
class World:
    """A pipe that has left errors for negative numbers, and whose bug is fixed; slots of queries on it."""

    options: dict[str, Any] = field(default_factory=dict)
    values: tuple[int, ...] = (1, -2, 3, -4)
    fixed: bool = False
    calls: list[tuple[int, int | None]] = field(default_factory=list)
    at_call: Callable[[], None] = lambda: None

    def __post_init__(self) -> None:
        def pipe(value: int, step: Step) -> int:
            self.calls.append((value, step.replay))
            self.at_call()
            if value < 0 and not self.fixed:
                raise ValueError(f"{value} is negative")
            return abs(value)

        processor = Processor(pipe, inputs="in", outputs="out", **self.options)
        self.graph = Graph("g", Source("in"), processor, errors="g.errors")
        self.memory = Memory()
        self.broker = open_broker(self.memory)
        self.planned, self.facts = prepare(self.graph, self.broker)
        self.client = Client(self.broker, self.graph, name="test")
        self.client.send_many("in", list(self.values))
        self.numbers = itertools.count()
        self.batch()
        self.fixed = True
        self.calls.clear()

    def work(self, driver: str = "query") -> Work:
        """Of another query run, of the driver with this name."""
        identity = Identity.of_process("spark", driver)
        return Work(self.graph, "pipe", self.memory, self.planned, self.facts, identity)

    def run(self, work: Work) -> PlainRun:
        """Its driver, which runs Spark's jobs itself."""
        job = Job(self.graph, "pipe", self.memory, self.planned, self.facts, self.broker, lambda: None)
        run = PlainRun(job, work, QuerySettings(None, "checkpoint", {}))
        run._replay = lambda partition, until: self.replay(work, until)  # type: ignore[method-assign]
        return run

    def batch(self) -> Outcome:
        """Deliver all messages that are there, as a batch does."""
        given = RangeRow(0, (InputRange("in", 0, self.end(IN)),))
        return self.work().deliver(given, attempt=str(next(self.numbers)), first=True)

    def ask(self, wish: Any = "replay") -> int:
        """Ask for all that is open, as the command does."""
        with Repairs(self.graph, self.broker) as tool:
            return tool.ask(wish).asked

    def fails_again(self, value: int) -> None:
        """Leave one more error, and ask for it."""
        self.fixed = False
        self.client.send("in", value)
        self.batch()
        self.fixed = True
        assert self.ask() == 1

    def replay(self, work: Work | None = None, until: int | None = None) -> Outcome:
        """Deliver requests."""
        end = self.end(REQUESTS) if until is None else until
        return (work or self.work()).replay(0, end, attempt=str(next(self.numbers)))

    def dies(self, moment: str, effect: str, work: Work | None = None, nth: int = 1) -> None:
        """A slot that delivers requests is gone at a crash point."""
        slot = (work or self.work()).replay_slot(0, str(next(self.numbers)))
        slot._close = lambda: None  # type: ignore[method-assign]  # the dead close nothing
        passes = itertools.count(1)

        def hook(*point: str) -> None:
            if point == (moment, effect) and next(passes) == nth:
                raise Killed

        interpreter = slot._lane.interpreter
        interpreter._world = replace(interpreter._world, hook=hook)
        with pytest.raises(Killed):
            slot.replay(self.end(REQUESTS))

    def end(self, place: TopicPartition) -> int:
        """The last stable offset."""
        return self.broker.watermarks([place])[place].stable

    def out(self) -> list[int]:
        """What readers see."""
        return [one.value for one in self.client.messages("out")]

    def records(self) -> list[Record]:
        """Of the task."""
        found = [m for m in read_all(self.broker, "g.pipe.backing", 1) if m.key() == b"t"]
        return records_of(found)

    def check(self) -> None:
        """Each message has one outcome that is no error, and nothing is open."""
        assert sorted(self.out()) == [1, 2, 3, 4]
        with Repairs(self.graph, self.broker) as tool:
            assert tool.causes() == ()
        report = verify(self.graph, self.broker)
        assert not report.anomalies, report


def test_requests_are_delivered_once_and_batches_go_on() -> None:
    """Under the hash of the original, by the records too; the next batch's slot keeps the place."""
    world = World()
    assert world.ask() == 2

    outcome = world.replay()

    assert (outcome.kind, outcome.asked, outcome.counts.replays) == ("", 2, 2)
    assert world.calls == [(-2, 1), (-4, 1)]
    assert world.replay().counts.deliveries == 0
    world.client.send("in", 5)
    assert world.batch().counts.deliveries == 1
    assert world.records()[-1].replays[0].offset == 2
    assert world.out() == [1, 3, 2, 4, 5]


def test_requests_to_drop_call_nothing() -> None:
    """They are settled."""
    world = World()
    world.ask("drop")

    assert world.replay().counts.nils == 2

    assert world.calls == []
    with Repairs(world.graph, world.broker) as tool:
        assert tool.causes() == ()


POINTS = [
    (moment, effect, nth)
    for effect in ("Init", "ReadNewest", "Begin", "SendOffsets", "Produce", "Flush", "Commit", "Call")
    for moment in ("before", "after")
    for nth in ((1,) if effect in ("Init", "ReadNewest") else (1, 2))
]


@pytest.mark.parametrize("point", POINTS, ids=lambda point: "-".join(map(str, point)))
def test_slot_that_dies_at_an_effect_leaves_each_replay_once(point: tuple[str, str, int]) -> None:
    """The next driver enters, has the rest delivered, and runs a batch."""
    world = World(options={"quarantine_after": None})
    world.ask()
    moment, effect, nth = point

    world.dies(moment, effect, nth=nth)
    work = world.work()
    assert world.run(work).enter(0).kind == ""
    world.replay(work)
    assert world.batch().kind == ""

    world.check()


def test_driver_that_enters_ends_a_replay_that_was_announced() -> None:
    """A slot of a batch cannot deliver it, and would refuse."""
    world = World()
    world.ask()
    world.dies("before", "Call")
    newest = world.records()[-1]
    assert isinstance(newest, Snapshot)
    assert newest.replay

    world.run(world.work()).enter(0)

    assert world.calls[0] == (-2, 1)
    assert not isinstance(world.records()[-1], Snapshot)
    assert world.batch().kind == ""


def test_message_that_kills_its_process_again_is_quarantined() -> None:
    """Deaths are counted from snapshot to snapshot: the fourth start calls nothing."""
    world = World(values=(-2,))
    world.ask()
    for _ in range(3):
        world.dies("after", "Call")

    assert world.replay().counts.errors == 1

    assert len(world.calls) == 3
    with Repairs(world.graph, world.broker) as tool:
        assert [cause.kind for cause in tool.causes()] == ["quarantine"]


def test_replay_that_its_driver_cuts_off_counts_no_death() -> None:
    """The driver leaves in its place."""
    world = World(values=(-2,))
    world.ask()
    for _ in range(4):
        work = world.work()
        world.dies("before", "Call", work)
        world.run(work).leave(0)
        newest = world.records()[-1]
        assert isinstance(newest, Snapshot)
        assert (newest.left, newest.starts) == (True, 0)

    assert world.replay().counts.outputs == 1


def test_death_counts_although_the_second_attempt_of_its_replay_is_fenced() -> None:
    """Spark runs it again; another driver takes the id before the snapshot of that attempt is committed."""
    world = World(values=(-2,))
    world.ask()
    work = world.work("first")
    run = world.run(work)

    def deliver(partition: int, until: int) -> Outcome:
        world.dies("after", "Call", work)
        slot = work.replay_slot(partition, str(next(world.numbers)))
        interpreter = slot._lane.interpreter
        alone = interpreter._world

        def fence(*point: str) -> None:
            if point == ("before", "Produce"):
                interpreter._world = alone
                world.work("second").slot(0, "1").enter()

        interpreter._world = replace(alone, hook=fence)
        return slot.replay(until)

    run._replay = deliver  # type: ignore[method-assign]
    starts = []
    for _ in range(3):
        assert run.replay(0, world.end(REQUESTS)).kind == "fenced"
        newest = world.records()[-1]
        assert isinstance(newest, Snapshot)
        starts.append((newest.starts, newest.left))
    assert starts == [(0, False), (1, False), (2, False)]

    assert world.replay().counts.errors == 1

    with Repairs(world.graph, world.broker) as tool:
        assert [cause.kind for cause in tool.causes()] == ["quarantine"]


def test_replay_that_outlasts_its_query_is_left_alone() -> None:
    """The query is started again while the function has not returned; a batch waits until it has (Y1)."""
    world = World(values=(-2,))
    world.ask()
    work = world.work()
    run = world.run(work)
    entered: list[Outcome] = []
    world.at_call = lambda: entered.append(run.enter(0))

    outcome = run.replay(0, world.end(REQUESTS))

    assert [(one.kind, one.positions) for one in entered] == [("", {"in": world.end(IN)})]
    assert (outcome.fenced, outcome.counts.replays, world.calls) == (False, 1, [(-2, 1)])
    assert world.out() == [2]


def test_death_counts_although_the_query_starts_again_before_the_next_attempt() -> None:
    """Spark has not begun it, so the newest record is the snapshot of the process that died."""
    world = World(values=(-2,))
    world.ask()
    work = world.work()
    run = world.run(work)

    def deliver(partition: int, until: int) -> Outcome:
        for _ in range(3):
            world.dies("after", "Call", work)
            run.enter(partition)
        return world.replay(work, until)

    run._replay = deliver  # type: ignore[method-assign]

    assert run.replay(0, world.end(REQUESTS)).counts.errors == 1

    assert len(world.calls) == 3
    with Repairs(world.graph, world.broker) as tool:
        assert [cause.kind for cause in tool.causes()] == ["quarantine"]


def test_slot_that_is_fenced_never_takes_the_id_again() -> None:
    """D5: it tells so, and another process goes on undisturbed."""
    world = World(values=(-2,))
    world.ask()
    owners: list[str] = []

    def fence() -> None:
        world.at_call = lambda: None
        other = world.work()
        other.replay_slot(0, "other").enter()
        owners.append(other.identity.incarnation)

    world.at_call = fence
    outcome = world.replay()

    assert outcome.kind == "fenced"
    assert owners
    assert isinstance(world.broker, MemoryBroker)
    assert world.replay().counts.outputs == 1
    assert world.out() == [2]


@pytest.mark.parametrize(
    "error", [RetriableError("the leader moved"), CodecError("no record")], ids=lambda e: e.args[0]
)
def test_slot_that_is_fenced_tells_so_where_the_newest_record_cannot_be_read(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """D5: it reads it for a name alone. Spark would run a job that raises again, and take the id each time."""
    world = World(values=(-2,))
    world.ask()
    monkeypatch.setattr("cues_kafka.on_spark.direct.replay_slot.newest_record", Mock(side_effect=error))

    def fence() -> None:
        world.at_call = lambda: None
        world.work().replay_slot(0, "other").enter()

    world.at_call = fence
    outcome = world.replay()

    assert (outcome.kind, outcome.fenced, outcome.rival) == ("fenced", True, "")


def test_range_that_a_dead_batch_left_is_delivered_before_requests() -> None:
    """What was announced comes first (S1)."""
    world = World()
    world.ask()
    world.client.send("in", 5)

    def die() -> None:
        raise Killed

    world.at_call = die
    slot = world.work().slot(0, "dead")
    slot._close = lambda: None  # type: ignore[method-assign]
    with pytest.raises(Killed):
        slot.deliver({"in": world.end(IN)}, first=True)
    world.at_call = lambda: None
    world.calls.clear()

    world.replay()

    assert world.calls == [(5, None), (-2, 1), (-4, 1)]


@pytest.mark.parametrize(("effects", "calls"), [(False, [(-2, 1)]), (True, [(5, None), (-2, 1)])])
def test_messages_come_first_where_calls_have_effects(effects: bool, calls: list[Any]) -> None:
    """A former process may have called the next message without a snapshot."""
    world = World(options={"effects": True} if effects else {}, values=(-2,))
    world.ask()
    world.client.send("in", 5)

    world.replay()

    assert world.calls == calls


def test_native_worker_is_not_disturbed() -> None:
    """A member of the group has the task."""
    world = World()
    world.ask()
    before = world.records()
    member = world.broker.member("g.pipe", "in", _Silent())
    while member.metadata().generation < 0:
        member.poll()

    assert world.replay().kind == "claimed"

    member.close(leave=True)
    assert world.records() == before


class _Silent:
    def on_assign(self, partitions: Any) -> None: ...

    on_revoke = on_lost = on_assign


# The driver


@dataclass
class Driver:
    """What looks for requests beside a query."""

    world: World
    held: str = ""
    told: list[Outcome] = field(default_factory=list)
    name: str = "query"
    met: list[tuple[int, str]] = field(default_factory=list)
    clock: Clock = field(default_factory=SystemClock)

    def __post_init__(self) -> None:
        run = self.world.run(self.world.work(self.name))
        self.hold = BatchHold(lambda: self.held)
        self.replays = BetweenBatches(
            *(run.replay, run.first, self.world.broker, self.clock),
            hold=self.hold,
            tell=self.told.append,
            met=lambda *other: self.met.append(other),
        )


def test_driver_has_requests_delivered_that_are_there() -> None:
    """It looks at the end of the replay topic, and at the record once."""
    world = World()
    driver = Driver(world)
    assert (driver.replays.turn(), driver.told) == (False, [])
    world.ask()

    driver.replays.turn()

    assert [outcome.counts.replays for outcome in driver.told] == [2]
    world.check()
    driver.replays.turn()
    again = Driver(world)
    again.replays.turn()
    assert (len(driver.told), again.told) == (1, [])


def test_replay_topic_that_was_recreated_is_read_from_its_beginning() -> None:
    """The driver knew the end of the topic before."""
    world = World()
    driver = Driver(world)
    world.ask()
    driver.replays.turn()
    [facts] = world.broker.facts([REQUESTS.topic]).topics.values()
    world.broker.delete([REQUESTS.topic])
    world.broker.create([NewTopic(facts.name, facts.partitions, facts.replication, facts.config)])
    world.fails_again(-5)

    driver.replays.turn()
    driver.replays.turn()

    assert world.out()[-1] == 5


def test_replay_topic_that_was_away_when_looked_at_is_read_from_its_beginning() -> None:
    """It has as many requests as the one before, so its end tells nothing."""
    world = World(values=(-2,))
    driver = Driver(world)
    world.ask()
    driver.replays.turn()
    [facts] = world.broker.facts([REQUESTS.topic]).topics.values()
    world.broker.delete([REQUESTS.topic])
    with pytest.raises(BrokerError):
        driver.replays.turn()
    world.broker.create([NewTopic(facts.name, facts.partitions, facts.replication, facts.config)])
    world.fails_again(-5)

    driver.replays.turn()

    assert world.out() == [2, 5]


def test_two_turns_at_once_are_one_after_the_other() -> None:
    """A query that ends by itself takes turns beside the thread, and one of them may fail."""
    world = World(values=(-2,))
    world.ask()
    entered, release = threading.Event(), threading.Event()
    run = world.run(world.work())

    def deliver(partition: int, until: int) -> Outcome:
        if not entered.is_set():
            entered.set()
            release.wait(20.0)
            return Outcome("g.pipe/0", 0, kind="refused", text="lost")
        return run.replay(partition, until)

    driver = Driver(world)
    driver.replays._deliver = deliver
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(driver.replays.turn)
        assert entered.wait(20.0)
        second = pool.submit(driver.replays.turn)
        SystemClock().sleep(0.1)
        release.set()
        with pytest.raises(BrokerError, match="lost"):
            first.result()
        assert second.result() is False

    assert world.out() == [2]


def test_second_driver_leaves_a_request_to_the_one_that_has_announced_it() -> None:
    """To take the id would throw the call away, and count as a death. The next request it may take."""
    world = World()
    world.ask()
    first, second = Driver(world, name="first"), Driver(world, name="second")
    turns: list[bool] = []

    def look() -> None:
        world.at_call = lambda: None  # should it call
        turns.append(second.replays.turn())
        world.at_call = look

    world.at_call = look
    first.replays.turn()

    assert turns == [False, False]
    assert second.met == [(0, "first"), (0, "first")]
    assert (first.met, second.told) == ([], [])
    assert [outcome.counts.replays for outcome in first.told] == [2]
    assert not any(outcome.fenced for outcome in first.told)
    assert all(record.starts == 0 for record in world.records() if isinstance(record, Snapshot))
    world.check()


def test_request_that_a_dead_driver_has_announced_is_taken_after_a_while() -> None:
    """Nothing else tells a dead one from one whose function takes long (D5)."""
    world = World(values=(-2,))
    world.ask()
    clock = VirtualClock()
    driver = Driver(world, name="second", clock=clock)
    world.dies("before", "Call", world.work("first"))
    driver.replays.turn()
    clock.sleep(FENCED_S - 1)
    driver.replays.turn()
    assert (driver.told, driver.met) == ([], [(0, "first"), (0, "first")])

    clock.sleep(1)
    driver.replays.turn()

    assert [outcome.counts.replays for outcome in driver.told] == [1]
    assert world.out() == [2]


def test_request_whose_call_takes_long_is_taken_over_and_that_counts_as_a_death() -> None:
    """The message is quarantined after three takeovers, although no process died: one driver is to be stopped."""
    world = World(values=(-2,))
    world.ask()
    clock = VirtualClock()
    drivers = iter([Driver(world, name=name, clock=clock) for name in "abcd"])

    def look() -> None:
        other = next(drivers)
        other.replays.turn()
        clock.sleep(FENCED_S)
        with suppress(BrokerError):  # it is fenced itself
            other.replays.turn()

    world.at_call = look
    with pytest.raises(BrokerError, match="was fenced by another process"):
        next(drivers).replays.turn()

    assert len(world.calls) == 3
    assert [record.starts for record in world.records() if isinstance(record, Snapshot)][-3:] == [0, 1, 2]
    with Repairs(world.graph, world.broker) as tool:
        assert [cause.kind for cause in tool.causes()] == ["quarantine"]


def test_driver_that_is_fenced_gives_way_for_longer_each_time() -> None:
    """The other one does not, so they do not fence each other in turn. A fence is no death of the message."""
    world = World(values=(-2,))
    world.ask()
    driver = Driver(world, name="first")

    def fence() -> None:  # a batch of another driver, which cannot deliver what is announced
        world.at_call = lambda: None
        given = RangeRow(0, (InputRange("in", 0, world.end(IN)),))
        assert world.work("second").deliver(given, attempt="1", first=False).kind == "refused"

    pauses = []
    for _ in range(6):
        world.at_call = fence
        with pytest.raises(BrokerError, match="was fenced by another process"):
            driver.replays.turn()
        pauses.append(driver.replays._pause_s)
    assert pauses == [5, 10, 20, 40, 60, 60]
    assert [outcome.fenced for outcome in driver.told] == [True] * 6

    driver.replays.turn()

    assert (world.out(), driver.replays._pause_s) == ([2], 5)


@pytest.mark.parametrize("where", ["broker", "deliver"])
def test_driver_waits_five_seconds_after_another_failure_than_a_fence(where: str) -> None:
    """However often it was fenced before: no other driver is in the way."""
    world = World(values=(-2,))
    world.ask()
    driver = Driver(world)
    fenced = Outcome("g.pipe/0", 0, kind="fenced", text="fenced", fenced=True)
    driver.replays._deliver = Mock(return_value=fenced)
    for _ in range(3):
        with pytest.raises(BrokerError, match="fenced"):
            driver.replays.turn()
    assert driver.replays._pause_s == 20

    away = Mock(**{"watermarks.side_effect": BrokerError("away")})
    if where == "broker":
        driver.replays._broker = away
    else:
        driver.replays._deliver = away.watermarks
    with pytest.raises(BrokerError, match="away"):
        driver.replays.turn()

    assert driver.replays._pause_s == 5


def test_driver_that_leaves_a_request_to_another_one_forgets_no_fence() -> None:
    """They may fence each other again with the next request."""
    world = World(values=(-2,))
    world.ask()
    driver = Driver(world, name="second", clock=VirtualClock())
    deliver = driver.replays._deliver
    driver.replays._deliver = Mock(return_value=Outcome("g.pipe/0", 0, kind="fenced", text="fenced", fenced=True))
    for _ in range(2):
        with pytest.raises(BrokerError, match="fenced"):
            driver.replays.turn()
    driver.replays._deliver = deliver
    world.dies("before", "Call", world.work("first"))

    driver.replays.turn()

    assert (driver.met, driver.replays._pause_s) == ([(0, "first")], 10)


def test_paused_processor_takes_no_requests() -> None:
    """And none begins once its worker stops."""
    world = World()
    world.ask()
    driver = Driver(world, held="paused")
    driver.replays.turn()
    driver.held = ""
    driver.hold.end()
    driver.replays.turn()

    assert (driver.told, world.calls) == ([], [])


def test_thread_of_the_driver_delivers_while_the_query_runs() -> None:
    """No batch is needed."""
    world = World()
    driver = Driver(world)
    world.ask()
    with driver.replays:
        deadline = SystemClock().monotonic() + 20.0
        while not driver.told and SystemClock().monotonic() < deadline:
            SystemClock().sleep(0.01)

    world.check()
    assert not driver.replays.under_way


class Scripted(PlainRun):
    """Its query ends at once, with everything delivered."""

    status = {"message": "Waiting for data to arrive"}  # noqa: RUF012  # of Spark's query

    def __init__(self, run: PlainRun) -> None:
        self.__dict__.update(run.__dict__)

    def start(self, positions: Any, tell: Any) -> Any:
        return self

    def awaitTermination(self) -> None:  # noqa: N802  # Spark's name
        """Nothing is left."""


def test_query_that_ends_by_itself_delivers_the_requests_that_are_there() -> None:
    """`available-now`: nothing else would come for them."""
    world = World()
    world.ask()
    run = Scripted(world.run(world.work()))
    job = Job(world.graph, "pipe", world.memory, world.planned, world.facts, world.broker, lambda: None)
    settings = QuerySettings(object(), "checkpoint", {"availableNow": True}, hold=BatchHold(str))
    worker = SparkWorker(job, run, settings)
    worker.start()
    worker.join()

    assert (worker.over, worker.failed) == (True, None)
    world.check()


def test_driver_counts_fences_and_names_the_other_one() -> None:
    """Those that slots of batches told, and those of replays; the name is forgotten after a while."""
    world = World(values=(1,))
    work = world.work("first")
    job = Job(world.graph, "pipe", world.memory, world.planned, world.facts, world.broker, lambda: None)
    settings = QuerySettings(object(), "checkpoint", {}, hold=BatchHold(str))
    clock = VirtualClock()
    worker = SparkWorker(job, Scripted(world.run(work)), settings, clock)
    world.client.send("in", 5)

    def fence() -> None:
        world.at_call = lambda: None
        given = RangeRow(0, (InputRange("in", 0, world.end(IN)),))
        world.work("second").deliver(given, attempt="1", first=True)

    world.at_call = fence
    outcome = work.deliver(RangeRow(0, (InputRange("in", 0, world.end(IN)),)), attempt="0", first=False)
    worker._take_and_tell([outcome])

    assert (outcome.kind, outcome.fenced, outcome.rival) == ("", True, "second")
    [status] = worker.status()
    assert (status.fenced, status.rival) == (1, "'second' runs this task too: stop one of the two")
    worker._take_replayed(replace(outcome, kind="fenced", rival=""))
    clock.sleep(RIVAL_S)
    [status] = worker.status()
    assert (status.fenced, status.rival, status.stopped) == (2, "", "")

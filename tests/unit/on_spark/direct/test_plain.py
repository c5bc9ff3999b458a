"""A driver tells slots that it cut off from slots that died (Q1), and failures that pass from those that stay."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import pytest
from pyspark.errors import PySparkException

from cues_kafka import Graph, Memory, Processor, Source
from cues_kafka.brokers.open import open_broker
from cues_kafka.client.client import Client
from cues_kafka.core.records import Record, Snapshot
from cues_kafka.errors import BrokerError, ConfigError, RetriableError
from cues_kafka.on_spark.direct.plain import PlainRun
from cues_kafka.on_spark.direct.work import Work
from cues_kafka.on_spark.query.jobs import cut_off
from cues_kafka.on_spark.query.outcome import Outcome, SlotsStopped, raise_stops
from cues_kafka.on_spark.query.run import QuerySettings, Tell
from cues_kafka.on_spark.query.worker import SparkWorker
from cues_kafka.on_spark.source.ranges import Begins, InputRange, RangeRow
from cues_kafka.plan.plan import Plan
from cues_kafka.ports.broker import Broker
from cues_kafka.ports.facts import ClusterFacts
from cues_kafka.ports.log import TopicPartition
from cues_kafka.records.reading import records_of
from cues_kafka.records.scanning import read_all
from cues_kafka.task.making.prepare import prepare
from cues_kafka.task.making.specs import Identity
from cues_kafka.task.workers import Job

IN = TopicPartition("in", 0)


class Killed(BaseException):
    """Ends a slot as SIGKILL would: nothing of it runs any more."""


@dataclass
class World:
    """A pipe over one partition, and query runs on it."""

    graph: Graph
    options: Memory
    broker: Broker
    planned: Plan
    facts: ClusterFacts
    client: Client
    ending: list[bool]

    def run(self) -> tuple[PlainRun, Work]:
        """Another query run, of a driver of its own."""
        identity = Identity.of_process("spark", "query")
        work = Work(self.graph, "pipe", self.options, self.planned, self.facts, identity)
        job = Job(self.graph, "pipe", self.options, self.planned, self.facts, self.broker, lambda: None)
        return PlainRun(job, work, QuerySettings(None, "checkpoint", {})), work

    def end_in_call(self, work: Work, attempt: str) -> None:
        """A slot that is gone while the function works, under its snapshot."""
        slot = work.slot(0, attempt)
        slot._close = lambda: None  # type: ignore[method-assign] # the dead close nothing
        self.ending.append(True)
        with pytest.raises(Killed):
            slot.deliver(self.given().ends, first=True)
        self.ending.clear()
        assert isinstance(self.newest(), Snapshot)

    def given(self) -> RangeRow:
        """All of the input."""
        return RangeRow(0, (InputRange("in", 0, self.broker.watermarks([IN])[IN].stable),))

    def newest(self) -> Record:
        """Of the only task."""
        return records_of(list(read_all(self.broker, "g.pipe.backing", 1)))[-1]


@pytest.fixture
def world() -> World:
    """With three messages."""
    ending: list[bool] = []

    def same(value: int) -> int:
        if ending:
            raise Killed
        return value

    graph = Graph("g", Source("in"), Processor(same, name="pipe", inputs="in", outputs="out"), errors="errors")
    options = Memory()
    broker = open_broker(options)
    planned, facts = prepare(graph, broker)
    client = Client(broker, graph, name="test")
    client.send_many("in", [1, 2, 3])
    return World(graph, options, broker, planned, facts, client, ending)


def test_a_slot_that_its_driver_cuts_off_counts_no_death(world: World) -> None:
    """Else five stops under one slow message would quarantine it."""
    for _ in range(5):
        run, work = world.run()
        run.enter(0)
        world.end_in_call(work, "17")

        run.leave(0)

        assert (world.newest().left, world.newest().starts) == (True, 0)

    _, work = world.run()
    outcome = work.deliver(world.given(), attempt="1", first=True)
    assert (outcome.counts.outputs, outcome.counts.errors) == (3, 0)


def test_a_slot_that_was_ended_because_another_one_failed_leaves_when_its_query_starts_again(world: World) -> None:
    """The driver knows from Spark which one failed."""
    run, work = world.run()
    run.enter(0)
    world.end_in_call(work, "17")

    run._cut.add(0)
    run.enter(0)

    assert world.newest().left
    assert run._cut == set()


def test_a_slot_of_another_driver_is_not_left_in_its_place(world: World) -> None:
    """That driver was killed, perhaps by this very message."""
    _, dead = world.run()
    world.end_in_call(dead, "17")
    run, work = world.run()

    run.leave(0)
    assert not world.newest().left

    world.end_in_call(work, "18")
    assert world.newest().starts == 1


def test_a_slot_that_died_is_counted_by_the_next_attempt(world: World) -> None:
    """What entered without a word of its driver is a death."""
    run, work = world.run()
    world.end_in_call(work, "17")

    run.enter(0)

    assert not world.newest().left
    world.end_in_call(work, "18")
    assert world.newest().starts == 1


FAILED = (
    "An error occurred while calling z:org.apache.spark.api.python.PythonRDD.collectAndServe.\n: "
    "org.apache.spark.SparkException: Job aborted due to stage failure: Task 1 in stage 7.0 failed 4 times, most "
    "recent failure: Lost task 1.3 in stage 7.0 (TID 31) (127.0.0.1 executor driver): org.apache.spark.SparkException: "
    "Python worker exited unexpectedly (crashed)"
)


@pytest.mark.parametrize(("text", "found"), [(FAILED, {0, 2}), ("Job 3 cancelled", set())])
def test_spark_names_the_task_that_failed_and_the_others_were_cut_off(text: str, found: set[int]) -> None:
    """Where it names none, each of them may have died."""
    assert cut_off(text, 3) == found


class Scripted(PlainRun):
    """Its query ends as it is told each time, and then with everything delivered."""

    def __init__(self, run: PlainRun, ends: list[Exception]) -> None:
        self.__dict__.update(run.__dict__)
        self.ends = ends
        self.starts = 0

    def start(self, positions: Begins, tell: Tell) -> Any:
        self.starts += 1
        return self

    def awaitTermination(self) -> None:  # noqa: N802 - Spark's name
        if self.ends:
            raise self.ends.pop(0)


USERS = PySparkException("Job aborted\nValueError: thirteen")
STOPPED = Outcome("pipe/0", 0, kind="unhandled", text="ValueError: thirteen", remedy="fix the cause")


def of_stops() -> PySparkException:
    """As Spark gives a batch of which a task stopped."""
    with pytest.raises(SlotsStopped) as caught:
        raise_stops([STOPPED], 1)
    return PySparkException(str(caught.value))


def ended(world: World, ends: list[Exception], monkeypatch: pytest.MonkeyPatch) -> tuple[SparkWorker, int]:
    """A worker with `available-now` that is over, and how often its query began."""
    monkeypatch.setattr("cues_kafka.on_spark.query.worker.RESTART_FIRST_S", 0.01)
    run, _ = world.run()
    job = Job(world.graph, "pipe", world.options, world.planned, world.facts, world.broker, lambda: None)
    scripted = Scripted(run, ends)
    worker = SparkWorker(job, scripted, QuerySettings(object(), "checkpoint", {"availableNow": True}))
    worker.start()
    worker.join()
    return worker, scripted.starts


@pytest.mark.parametrize(
    ("ending", "said"),
    [
        (USERS, "pipe stopped: the query ended: ValueError: thirteen. Remedy: fix the cause; start again"),
        (of_stops(), "pipe/0 stopped: ValueError: thirteen. Remedy: fix the cause"),
        (BrokerError("group 'g.pipe' has members"), "group 'g.pipe' has members"),
        (ConfigError("no such topic"), "no such topic"),
    ],
    ids=["a user's exception", "a stopped task", "native workers", "a wrong setting"],
)
def test_a_query_that_ends_by_itself_is_not_tried_again_where_no_later_try_helps(
    world: World, ending: Exception, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`available-now`: the program that waits for its end is told the cause once."""
    worker, starts = ended(world, [ending], monkeypatch)

    assert (starts, worker.over) == (1, False)
    assert str(worker.failed).startswith(said)


@pytest.mark.parametrize(
    "ending",
    [
        PySparkException("ExecutorLostFailure (executor 1 exited)"),
        PySparkException("Python worker exited unexpectedly (crashed)"),
        PySparkException("cues_kafka.errors.RetriableError: the cluster does not answer"),
        RetriableError("the cluster does not answer"),
    ],
    ids=["an executor", "a Python process", "the cluster, in a slot", "the cluster"],
)
def test_a_query_that_ends_by_itself_is_tried_again_where_something_was_lost(
    world: World, ending: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A message that kills its process is quarantined that way, too."""
    worker, starts = ended(world, [ending, ending], monkeypatch)

    assert (starts, worker.over, worker.failed) == (3, True, None)


@pytest.mark.parametrize(("times", "stops"), [(1, 0), (5, 0), (6, 1)])
def test_a_python_process_that_starts_too_slowly_stops_nothing_before_the_sixth_time(
    world: World, times: int, stops: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Spark waits 10 s for it. On a busy machine that ended `wait_idle`, although the next try went well."""
    late = PySparkException("[STREAM_FAILED] terminated with exception: Python worker failed to connect back.")
    worker, starts = ended(world, [late] * times, monkeypatch)

    assert (starts, worker.over, worker.failed) == (times + 1, True, None)
    assert caplog.text.count("failed processor='pipe' why='[STREAM_FAILED]") == times - stops
    assert caplog.text.count("stopped processor='pipe'") == stops


def test_process_of_spark_leaves_nothing_open_that_it_could_not_use() -> None:
    """Spark tries again in the same process, after a failure and with the next run of the query."""
    open_now: list[str] = []

    @contextmanager
    def opened(name: str) -> Iterator[str]:
        open_now.append(name)
        yield name
        open_now.remove(name)

    def fn(value: Any, db: str) -> Any:
        return value

    processor = Processor(fn, name="pipe", inputs="in", outputs="out")
    graph = Graph("sites", Source("in"), processor, system={"db": lambda: opened("db")})
    options = Memory()
    broker = open_broker(options)
    planned, facts = prepare(graph, broker)
    lacking = replace(facts, topics={name: one for name, one in facts.topics.items() if name != "out"})

    def run(number: int, found: ClusterFacts = facts) -> None:
        identity = replace(Identity.of_process("spark", "query"), incarnation=f"run-{number}")
        Work(graph, "pipe", options, planned, found, identity).slot(0, "driver")

    with pytest.raises(KeyError):
        run(1, lacking)
    assert open_now == []
    run(2)
    run(3)
    assert open_now == ["db"]

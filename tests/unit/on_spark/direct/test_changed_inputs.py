"""Operators change a processor that runs on Spark, and its query goes on with the checkpoint of before, in memory."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows

from cues_kafka import Graph, Json, Memory, Processor, RecoveryError, Source, Topic
from cues_kafka.brokers.open import open_broker
from cues_kafka.client.client import Client
from cues_kafka.errors import FatalError
from cues_kafka.on_spark.direct.work import Work
from cues_kafka.on_spark.query.outcome import Outcome
from cues_kafka.on_spark.source.planning import from_json
from cues_kafka.on_spark.source.ranges import RangeReader, SourceInput, offsets_of, rows_of
from cues_kafka.operate.applying import apply_plan
from cues_kafka.operate.look.status import StatusView
from cues_kafka.operate.move import migrate as verb
from cues_kafka.operate.move.base import Maintenance
from cues_kafka.operate.move.rename import Renaming
from cues_kafka.plan.plan import plan
from cues_kafka.plan.topics import topics_to_ask
from cues_kafka.ports.facts import NewTopic
from cues_kafka.records.status import StatusRecord, TaskOwner, encode_status
from cues_kafka.task.making.prepare import prepare
from cues_kafka.task.making.specs import Identity
from cues_kafka.verify.scan import verify

pytestmark = pytest.mark.timeout(20)  # a slot that reads too little turns without end

TOPICS = ("x", "y", "z")


def all_of(**values: int) -> list[int]:
    """A pipe or a join: the values of all inputs, in the order of their names."""
    return [values[name] for name in sorted(values)]


def any_of(**message: int) -> list[int]:
    """Alts: the value of the one input that a message came from."""
    return [n for n in message.values() if n is not None]


def graph_of(fn: Any, name: str = "work", partitions: int = 1, **declared: Any) -> Graph:
    """One processor that reads some of `x`, `y` and `z`."""
    work = Processor(fn, name=name, outputs="out", **declared)
    return Graph("m", *map(Source, TOPICS), work, defaults=Topic(value=Json(), partitions=partitions))


PIPE = graph_of(all_of, inputs={"a": "x"})
OTHER = graph_of(all_of, inputs={"a": "z"})
JOIN = graph_of(all_of, inputs={"a": "x", "b": "y"})
ALTS = graph_of(any_of, alts={"a": "x", "b": "y"})
WIDE = graph_of(any_of, alts={"a": "x", "b": "y", "c": "z"})


class Cluster:
    """With a checkpoint, as Spark keeps it: the planned ends of each batch, and how many batches are done."""

    def __init__(self) -> None:
        self.memory = Memory()
        self.broker = open_broker(self.memory)
        self.planned: list[dict[str, Any]] = []
        self.done = 0
        self.attempts = itertools.count()

    def send(self, graph: Graph, partition: int = 0, **numbers: list[int]) -> None:
        """Messages, by topic."""
        prepare(graph, self.broker)
        records = [(topic, partition, None, b"%d" % n, None, 0) for topic, found in numbers.items() for n in found]
        self.broker.sender("test").send(records)

    def out(self, graph: Graph) -> list[Any]:
        """What readers see."""
        return [one.value for one in Client(self.broker, graph, name="test").messages("out")]


class Query:
    """A query of a processor over the checkpoint, and its driver, which runs the slots itself."""

    def __init__(self, cluster: Cluster, graph: Graph) -> None:
        self.cluster = cluster
        self.name = next(iter(graph.processors))
        planned, facts = prepare(graph, cluster.broker)
        identity = Identity.of_process("spark", "query")
        self.work = Work(graph, self.name, cluster.memory, planned, facts, identity)
        entered = [self.work.slot(p, "driver").enter() for p in range(self.work.width)]
        assert not any(one.kind for one in entered), entered
        self.begins = {topic: tuple(one.positions[topic] for one in entered) for topic in entered[0].positions}
        self.first = True

    def batch(self, *, dies: bool = False, limit: ReadLimit | None = None) -> list[Outcome] | None:
        """
        One micro-batch, first of all the one that a dead driver has planned; None: nothing is there.

        Args:
            dies: the driver, before any slot has begun.
            limit: of offsets.
        """
        done, planned = self.cluster.done, self.cluster.planned
        before = planned[done - 1] if done else {}
        if len(planned) == done:
            reader = RangeReader(SourceInput(f"m.{self.name}", self.cluster.memory, self.begins))
            start = before or reader.initialOffset()
            ends = reader.latestOffset(start, limit or ReadAllAvailable())
            if ends == start:
                return None
            planned.append(ends)
        if dies:
            return None
        rows = rows_of({**offsets_of(self.begins), **from_json(before)}, from_json(planned[done]))
        due = [row for row in rows if self.first or row.holds_offsets]
        outcomes = [self.work.deliver(row, attempt=str(next(self.cluster.attempts)), first=self.first) for row in due]
        if not any(one.kind for one in outcomes):
            self.cluster.done, self.first = done + 1, False
        return outcomes

    def run(self, limit: ReadLimit | None = None) -> int:
        """Until nothing is left; the number of batches."""
        for number in itertools.count():
            if (outcomes := self.batch(limit=limit)) is None:
                return number
            assert not any(one.kind for one in outcomes), outcomes
        raise AssertionError


def told(cluster: Cluster, state: Any = "idle") -> None:
    """What the driver of a query tells on the graph's status topic."""
    if "m.status" not in cluster.broker.partitions():
        cluster.broker.create([NewTopic("m.status", 1, config={"cleanup.policy": "compact"})])
    owner = TaskOwner(instance="spark-1", host="node-7", pid=12, runtime="spark")
    value = encode_status(StatusRecord(task="work/0", state=state, owner=owner, every_s=5.0))
    cluster.broker.sender("driver").send([("m.status", 0, b"work/0", value, None, 0)])


def migrate(cluster: Cluster, graph: Graph, add: Mapping[str, str], *drop: str) -> None:
    """What the command does."""
    apply_plan(plan(graph, cluster.broker.facts(topics_to_ask(graph))), cluster.broker)
    tool = Maintenance(graph, cluster.broker, "work", who="migrate on here")
    tool.carry_out(verb.migrate(tool, add, drop))
    assert verb.migrate(tool, add, drop) == []


@pytest.mark.parametrize("unfinished", [False, True], ids=["done", "planned"])
@pytest.mark.parametrize(
    ("before", "after", "add", "drop", "expected"),
    [
        (PIPE, JOIN, {"b": "earliest"}, (), [[1], [2], [3, 10], [4, 20]]),
        (PIPE, ALTS, {"b": "earliest"}, (), [[1], [2], [3], [4], [10], [20]]),
        (PIPE, ALTS, {"b": "latest"}, (), [[1], [2], [3], [4]]),
        (JOIN, PIPE, {}, ("b",), [[1, 10], [2, 20], [3], [4]]),
        (ALTS, PIPE, {}, ("b",), [[1], [2], [10], [20], [3], [4]]),
        (ALTS, WIDE, {"c": "earliest"}, (), [[1], [2], [10], [20], [3], [4], [100]]),
        (PIPE, OTHER, {"a": "earliest"}, ("a",), [[1], [2], [100]]),
    ],
    ids=["pipe-join", "pipe-alts", "pipe-alts-latest", "join-pipe", "alts-pipe", "alts-alts", "pipe-pipe"],
)
def test_query_goes_on_with_other_inputs(  # noqa: PLR0917 - each is a column of the table
    before: Graph, after: Graph, add: dict[str, str], drop: tuple[str, ...], expected: list[Any], unfinished: bool
) -> None:
    """Also where Spark repeats a batch first that it has planned for the former inputs."""
    cluster = Cluster()
    cluster.send(before, x=[1, 2], y=[10, 20], z=[100])
    Query(cluster, before).run()
    cluster.send(before, x=[3, 4])
    if unfinished:
        Query(cluster, before).batch(dies=True)
    migrate(cluster, after, add, *drop)

    Query(cluster, after).run()

    assert sorted(cluster.out(after)) == sorted(expected)
    Query(cluster, after).run()
    assert len(cluster.out(after)) == len(expected)


def test_added_input_is_limited_from_its_place_on() -> None:
    """Not from offset 0: batches without messages would lead there."""
    cluster = Cluster()
    cluster.send(PIPE, x=[1], y=list(range(100)))
    Query(cluster, PIPE).run()
    migrate(cluster, ALTS, {"b": "latest"})
    cluster.send(ALTS, y=[10, 20, 30, 40])

    assert Query(cluster, ALTS).run(ReadMaxRows(2)) == 2

    assert cluster.out(ALTS) == [[1], [10], [20], [30], [40]]


def test_slot_of_the_former_query_stops_and_names_the_operator() -> None:
    """It was delivering when the command took its id, and commits nothing. The next slot refuses by the record."""
    cluster = Cluster()

    def moved(**values: int) -> list[int]:
        if values == {"a": 3}:
            migrate(cluster, JOIN, {"b": "earliest"})
        return all_of(**values)

    cluster.send(PIPE, x=[1, 2], y=[10, 20])
    query = Query(cluster, graph_of(moved, inputs={"a": "x"}))
    query.run()
    cluster.send(PIPE, x=[3, 4])

    stopped, again = query.batch(), query.batch()

    assert stopped
    assert again
    assert (stopped[0].kind, again[0].kind) == ("refused", "refused")
    assert stopped[0].text == (
        "work/0 was fenced by 'migrate on here', and its newest record has other inputs: 'a' from 'x', 'b' from 'y'"
    )
    assert "with the declaration of now" in stopped[0].remedy
    assert "bindings changed" in again[0].text
    Query(cluster, JOIN).run()
    assert cluster.out(JOIN) == [[1], [2], [3, 10], [4, 20]]


@pytest.mark.parametrize("unfinished", [False, True], ids=["done", "planned"])
def test_query_goes_on_with_more_partitions_and_another_input(unfinished: bool) -> None:
    """What was added to the first input is delivered from its beginning, whatever Spark had planned."""
    cluster = Cluster()
    cluster.send(PIPE, x=[1, 2], y=[10])
    Query(cluster, PIPE).run()
    cluster.send(PIPE, x=[3])
    if unfinished:
        Query(cluster, PIPE).batch(dies=True)
    for topic in ("x", "y"):
        cluster.broker.add_partitions(topic, 2)
    wide = graph_of(any_of, partitions=2, alts={"a": "x", "b": "y"})
    cluster.send(wide, partition=1, x=[7], y=[70])

    migrate(cluster, wide, {"b": "earliest"})
    Query(cluster, wide).run()

    assert sorted(cluster.out(wide)) == [[1], [2], [3], [7], [10], [70]]
    report = verify(wide, cluster.broker)
    assert not report.anomalies, report


def test_query_goes_on_under_another_name() -> None:
    """Its checkpoint is another one, so Spark begins where the records say."""
    cluster = Cluster()
    cluster.send(PIPE, x=[1, 2])
    query = Query(cluster, PIPE)
    query.run()
    cluster.send(PIPE, x=[3])
    new = graph_of(all_of, "new", inputs={"a": "x"})
    tool = Renaming(new, cluster.broker, "work", "new", who="rename on here")
    tool.carry_out(tool.plan())

    refused = query.batch()
    cluster.planned, cluster.done = [], 0
    Query(cluster, new).run()

    assert refused
    assert "has moved to the name 'new'" in refused[0].text
    assert cluster.out(new) == [[1], [2], [3]]
    report = verify(new, cluster.broker)
    assert not report.anomalies, report


def test_slot_that_is_fenced_by_a_rename_stops() -> None:
    """The slot of the former name has called the function, and commits nothing."""
    cluster, new = Cluster(), graph_of(all_of, "new", inputs={"a": "x"})

    def moved(**values: int) -> list[int]:
        if values == {"a": 2}:
            tool = Renaming(new, cluster.broker, "work", "new", who="rename on here")
            tool.carry_out(tool.plan())
        return all_of(**values)

    cluster.send(PIPE, x=[1])
    query = Query(cluster, graph_of(moved, inputs={"a": "x"}))
    query.run()
    cluster.send(PIPE, x=[2])

    stopped = query.batch()

    assert stopped
    assert stopped[0].kind == "refused"
    assert "has moved to the name 'new'" in stopped[0].text
    cluster.planned, cluster.done = [], 0
    Query(cluster, new).run()
    assert cluster.out(new) == [[1], [2]]


def rename(cluster: Cluster) -> tuple[str, ...]:
    """What the command does; what it says."""
    new = graph_of(all_of, "new", inputs={"a": "x"})
    tool = Renaming(new, cluster.broker, "work", "new", who="rename on here")
    planned = tool.plan()
    tool.carry_out(planned)
    return planned.notes


def add_input(cluster: Cluster) -> tuple[str, ...]:
    """What the command does; what it says."""
    apply_plan(plan(JOIN, cluster.broker.facts(topics_to_ask(JOIN))), cluster.broker)
    tool = Maintenance(JOIN, cluster.broker, "work", who="migrate on here")
    moves = verb.migrate(tool, {"b": "earliest"}, ())
    tool.carry_out(moves)
    return moves[0].notes


@pytest.mark.parametrize("command", [rename, add_input])
def test_commands_refuse_while_a_driver_tells_that_it_runs_the_processor(
    command: Callable[[Cluster], tuple[str, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is no member of the group. Where its status may not be read, the command says so and goes on."""
    cluster = Cluster()
    cluster.send(PIPE, x=[1])
    Query(cluster, PIPE).run()
    told(cluster)
    with pytest.raises(RecoveryError, match=r"spark-1 \(node-7, pid 12\) runs work on Spark, and reported it 0 s ago"):
        command(cluster)

    def forbidden(_: Any) -> Any:
        raise FatalError("user `ann` may not read topic `m.status`", code="TOPIC_AUTHORIZATION_FAILED")

    with monkeypatch.context() as patch:
        patch.setattr(StatusView, "told", forbidden)
        assert "stop its query first: that was not looked at, because user `ann`" in command(cluster)[0]


@pytest.mark.parametrize("command", [rename, add_input])
def test_commands_work_once_the_driver_has_stopped(command: Callable[[Cluster], tuple[str, ...]]) -> None:
    """In order, which it tells."""
    cluster = Cluster()
    cluster.send(PIPE, x=[1])
    Query(cluster, PIPE).run()
    told(cluster, "left")

    assert command(cluster)

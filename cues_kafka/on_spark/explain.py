"""
`explain(graph)`: where each processor would run, under which names, and why. It starts and creates nothing.

Only Spark's plan tells whether a function of DataFrames with one input and one output is written directly. With a
cluster and an engine, `explain` calls the function, as `start` does, and looks at its plan.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from cues_kafka.brokers.open import open_broker
from cues_kafka.brokers.options import Kafka
from cues_kafka.graph.dataframe import DataFrameProcessor
from cues_kafka.graph.definition import Graph
from cues_kafka.graph.names import backing_topic, group_id, transactional_prefix
from cues_kafka.graph.processor import Processor
from cues_kafka.on_spark.engine import Spark, checkpoint_of, query_name, session_findings
from cues_kafka.on_spark.query.plans import call_function
from cues_kafka.on_spark.query.run import QuerySettings
from cues_kafka.on_spark.shipping import ship_options
from cues_kafka.on_spark.verdict import ON_SPARK, Mode, Verdict, planned_verdict, verdict
from cues_kafka.plan.plan import plan
from cues_kafka.plan.topics import partitions_of, topics_to_ask
from cues_kafka.ports.facts import ClusterFacts
from cues_kafka.ports.log import TopicPartition
from cues_kafka.records.reading import record_below
from cues_kafka.task.clock import SystemClock

NO_CLUSTER = "127.0.0.1:9"
"""Stands for a cluster whose facts are given, because a plan asks no broker."""

ANYWHERE = "<checkpoint>"
"""Stands for a directory that is not known."""


@dataclass(frozen=True, slots=True)
class Explained:
    """
    How Spark would run one processor.

    Attributes:
        name: the processor's name.
        kind: pipe, fork, sink, join ...
        mode: see `Verdict`.
        why: the reason, with the remedy if Spark cannot run it.
        slots: concurrent transactions, one for each partition of its inputs; of a staged processor its parts, as many
            as the widest input had partitions when it began; None: not known without the cluster.
        group: the consumer group that shows its positions to lag tools.
        transactional_prefix: what its transactional ids begin with; slot p has `<prefix>p`.
        query: the name of its streaming query; empty if it does not run on Spark.
        checkpoint: the directory of that query.
        stage: the directory in which a staged processor prepares its batches.
        state: see `Verdict`.
    """

    name: str
    kind: str
    mode: Mode
    why: str
    slots: int | None
    group: str
    transactional_prefix: str
    query: str
    checkpoint: str
    stage: str = ""
    state: bool | None = None

    @property
    def transactional_ids(self) -> tuple[str, ...]:
        """The transactional ids, one for each slot; empty while their number is not known."""
        return tuple(f"{self.transactional_prefix}{slot}" for slot in range(self.slots or 0))

    def __str__(self) -> str:
        return "\n".join(_lines(self))


@dataclass(frozen=True, slots=True)
class Explanation:
    """
    A graph as Spark would run it; `print` shows it.

    Attributes:
        graph: name of the graph.
        processors: all of them, in the order of declaration.
        refusals: why the graph would not start, by what the cluster and the engine's session show.
        warnings: settings of the session that only make it slow.
    """

    graph: str
    processors: tuple[Explained, ...]
    refusals: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def __getitem__(self, name: str) -> Explained:
        """
        Find the explanation of one processor.

        Raises:
            KeyError: the graph has no processor of that name.
        """
        for one in self.processors:
            if one.name == name:
                return one
        raise KeyError(name)

    @property
    def carried(self) -> tuple[str, ...]:
        """Names of the processors that run on Spark."""
        return tuple(one.name for one in self.processors if one.mode in ON_SPARK)

    @property
    def left(self) -> dict[str, str]:
        """The processors that do not run on Spark, with the reason."""
        return {one.name: one.why for one in self.processors if one.mode not in ON_SPARK}

    def __str__(self) -> str:
        parts = [f"Graph {self.graph} on Spark", *map(str, self.processors)]
        parts += [f"Refused: {text}" for text in self.refusals] + [f"Warning: {text}" for text in self.warnings]
        return "\n\n".join(parts)


def explain(graph: Graph, cluster: Kafka | ClusterFacts | None = None, *, engine: Spark | None = None) -> Explanation:
    """
    Say how Spark would run a graph.

    Args:
        graph: the graph.
        cluster: tells how many partitions the inputs have; None: the declaration tells, if it does.
        engine: the engine for `start`, whose checkpoint and session are checked; with a cluster, functions of
            DataFrames are called with empty streams, and their plans are checked.

    Raises:
        ConfigError: a function of DataFrames returns something else than its declaration says.
        BrokerError: the cluster does not answer.
    """
    facts, parts = _facts(graph, cluster)
    everyone: list[Processor | DataFrameProcessor] = [*graph.processors.values(), *graph.dataframes.values()]
    directory = engine.checkpoint if engine else ANYWHERE
    verdicts = {part.name: verdict(graph, part) for part in everyone}
    if engine and facts is not None:
        options = ship_options(cluster) if isinstance(cluster, Kafka) else Kafka(NO_CLUSTER)
        for name, frame in graph.dataframes.items():
            verdicts[name] = planned_verdict(frame, _frames(graph, frame, facts, engine, options))
    processors = tuple(
        _explained(graph, part, verdicts[part.name], _slots(graph, part, facts, parts), directory) for part in everyone
    )
    names = [one.name for one in processors if one.query]
    refusals, warnings = session_findings(engine.session, graph, names) if engine else ([], [])
    accept_unchecked = isinstance(cluster, Kafka) and cluster.accept_unchecked
    planned = plan(graph, facts, accept_unchecked=accept_unchecked)
    return Explanation(graph.name, processors, (*planned.refusals, *refusals), tuple(warnings))


def _facts(graph: Graph, cluster: Kafka | ClusterFacts | None) -> tuple[ClusterFacts | None, dict[str, int]]:
    """Facts of the topics, and the number of parts of staged processors by the records that they wrote."""
    if cluster is None or isinstance(cluster, ClusterFacts):
        return cluster, {}
    broker = open_broker(cluster)
    try:
        facts = broker.facts(topics_to_ask(graph))
        firsts = {name: TopicPartition(backing_topic(graph.name, name), 0) for name in graph.dataframes}
        places = [place for place in firsts.values() if place.topic in facts.topics]
        marks = broker.watermarks(places) if places else {}
        parts: dict[str, int] = {}
        for name, place in firsts.items():
            low, stable, _ = marks.get(place, (0, 0, 0))
            record = record_below(broker, place, low, stable, SystemClock(), group=group_id(graph.name, name))
            staged = record.staged if record is not None else None
            parts |= {name: staged.parts} if staged else {}
        return facts, parts
    finally:
        broker.close()


def _frames(
    graph: Graph, frame: DataFrameProcessor, facts: ClusterFacts, engine: Spark, options: Kafka
) -> dict[str, Any]:
    begin = {topic: (0,) * (partitions_of(graph, topic, facts) or 1) for topic in frame.read_topics}
    settings = QuerySettings(engine.session, checkpoint_of(engine.checkpoint, graph.name, frame.name), {})
    return call_function(settings, options, graph, frame, begin)


def _slots(
    graph: Graph, part: Processor | DataFrameProcessor, facts: ClusterFacts | None, parts: Mapping[str, int]
) -> int | None:
    sizes = [partitions_of(graph, topic, facts) for topic in part.read_topics]
    if isinstance(part, Processor):
        return sizes[0]
    if part.whole:
        return parts.get(part.name, 1)
    known = [size for size in sizes if size is not None]
    return parts.get(part.name, max(known) if len(known) == len(sizes) else None)


def _explained(
    graph: Graph, part: Processor | DataFrameProcessor, found: Verdict, slots: int | None, directory: str
) -> Explained:
    here = found.mode in ON_SPARK
    checkpoint = checkpoint_of(directory, graph.name, part.name) if here else ""
    return Explained(
        name=part.name,
        kind=part.kind,
        mode=found.mode,
        why=found.why,
        slots=slots if here else None,
        group=group_id(graph.name, part.name),
        transactional_prefix=transactional_prefix(graph.name, part.name),
        query=query_name(graph.name, part.name) if here else "",
        checkpoint=checkpoint,
        stage=f"{checkpoint}/stage" if found.mode == "staged" else "",
        state=found.state,
    )


def _lines(one: Explained) -> Iterator[str]:
    yield f"{one.name}: {one.kind}, {f'on Spark, {one.mode}' if one.mode in ON_SPARK else one.mode}"
    rows = [("why", one.why)]
    if one.mode in ON_SPARK:
        label = "parts" if one.mode == "staged" else "slots"
        unknown = "as many as the widest input has partitions" if one.stage else "as many as the input has partitions"
        last = f" .. {one.transactional_ids[-1]}" if one.slots and one.slots > 1 else ""
        rows += [
            (label, unknown if one.slots is None else str(one.slots)),
            (
                "transactional ids",
                f"{one.transactional_prefix}0{last}" if one.slots else f"{one.transactional_prefix}<p>",
            ),
            ("group", one.group),
            ("query", one.query),
            ("checkpoint", one.checkpoint),
            *([("stage", one.stage)] if one.stage else []),
        ]
    yield from (f"  {label:<22}{text}" for label, text in rows)

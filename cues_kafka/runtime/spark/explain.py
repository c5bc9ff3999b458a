"""`explain(graph)`: where each processor would run, under which names, and why; nothing is started or created."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from cues_kafka.brokers.open import open_broker
from cues_kafka.brokers.options import Kafka
from cues_kafka.graph.definition import DataFrameProcessor, Graph, Processor
from cues_kafka.graph.names import group_id, transactional_prefix
from cues_kafka.plan import partitions_of, plan, topics_to_ask
from cues_kafka.ports import ClusterFacts
from cues_kafka.runtime.spark.engine import Mode, Spark, checkpoint_of, query_name, session_findings, verdict

ANYWHERE = "<checkpoint>"
"""In the place of a directory that is not known."""


@dataclass(frozen=True, slots=True)
class Explained:
    """
    One processor.

    Attributes:
        name: of the processor.
        kind: pipe, fork, sink, join ...
        mode: `direct`: on Spark; `natively`: in native workers; `refused`: not in this release.
        why: the reason, with the remedy where Spark cannot carry it.
        slots: transactions side by side, one for each partition of the input; None: not known without the cluster.
        group: where its positions are shown to lag tools.
        transactional_prefix: what its transactional ids begin with; slot p has `<prefix>p`.
        query: the name of its streaming query; empty where it is not on Spark.
        checkpoint: the directory of that query.
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

    @property
    def transactional_ids(self) -> tuple[str, ...]:
        """One for each slot; none while their number is not known."""
        return tuple(f"{self.transactional_prefix}{slot}" for slot in range(self.slots or 0))

    def __str__(self) -> str:
        return "\n".join(_lines(self))


@dataclass(frozen=True, slots=True)
class Explanation:
    """
    A graph as Spark would run it; print it.

    Attributes:
        graph: its name.
        processors: all of them, in the order of declaration.
        refusals: why it would not start at all: what the cluster shows, and what the engine's session does.
        warnings: what of the session costs more than it gives.
    """

    graph: str
    processors: tuple[Explained, ...]
    refusals: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def __getitem__(self, name: str) -> Explained:
        """
        One processor.

        Raises:
            KeyError: there is none of that name.
        """
        for one in self.processors:
            if one.name == name:
                return one
        raise KeyError(name)

    @property
    def carried(self) -> tuple[str, ...]:
        """Names of the processors that run on Spark."""
        return tuple(one.name for one in self.processors if one.mode == "direct")

    @property
    def left(self) -> dict[str, str]:
        """The others, and why."""
        return {one.name: one.why for one in self.processors if one.mode != "direct"}

    def __str__(self) -> str:
        parts = [f"Graph {self.graph} on Spark", *map(str, self.processors)]
        parts += [f"Refused: {text}" for text in self.refusals] + [f"Warning: {text}" for text in self.warnings]
        return "\n\n".join(parts)


def explain(graph: Graph, cluster: Kafka | ClusterFacts | None = None, *, engine: Spark | None = None) -> Explanation:
    """
    Say how Spark would run a graph.

    Args:
        graph: the graph.
        cluster: where to look how many partitions the inputs have; None: as they are declared, if they are.
        engine: what `start` would be given, for the checkpoint's directory and for what its session says.

    Raises:
        BrokerError: the cluster does not answer.
    """
    facts = _facts(graph, cluster)
    everyone: list[Processor | DataFrameProcessor] = [*graph.processors.values(), *graph.dataframes.values()]
    directory = engine.checkpoint if engine else ANYWHERE
    processors = tuple(_explained(graph, part, facts, directory) for part in everyone)
    queries = [one.query for one in processors if one.query]
    refusals, warnings = session_findings(engine.session, queries) if engine else ([], [])
    return Explanation(graph.name, processors, (*plan(graph, facts).refusals, *refusals), tuple(warnings))


def _facts(graph: Graph, cluster: Kafka | ClusterFacts | None) -> ClusterFacts | None:
    if cluster is None or isinstance(cluster, ClusterFacts):
        return cluster
    broker = open_broker(cluster)
    try:
        return broker.facts(topics_to_ask(graph))
    finally:
        broker.close()


def _explained(
    graph: Graph, part: Processor | DataFrameProcessor, facts: ClusterFacts | None, directory: str
) -> Explained:
    found = verdict(graph, part)
    direct = found.mode == "direct"
    return Explained(
        name=part.name,
        kind=part.kind,
        mode=found.mode,
        why=found.why,
        slots=partitions_of(graph, part.read_topics[0], facts) if direct else None,
        group=group_id(graph.name, part.name),
        transactional_prefix=transactional_prefix(graph.name, part.name),
        query=query_name(graph.name, part.name) if direct else "",
        checkpoint=checkpoint_of(directory, graph.name, part.name) if direct else "",
    )


def _lines(one: Explained) -> Iterator[str]:
    yield f"{one.name}: {one.kind}, {'on Spark, direct' if one.mode == 'direct' else one.mode}"
    rows = [("why", one.why)]
    if one.mode == "direct":
        last = f" .. {one.transactional_ids[-1]}" if one.slots and one.slots > 1 else ""
        rows += [
            ("slots", "as many as the input has partitions" if one.slots is None else str(one.slots)),
            (
                "transactional ids",
                f"{one.transactional_prefix}0{last}" if one.slots else f"{one.transactional_prefix}<p>",
            ),
            ("group", one.group),
            ("query", one.query),
            ("checkpoint", one.checkpoint),
        ]
    yield from (f"  {label:<22}{text}" for label, text in rows)

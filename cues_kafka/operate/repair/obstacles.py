"""Why error messages cannot be replayed, or take no requests at all."""

from __future__ import annotations

from collections.abc import Mapping

from cues_kafka.core.delivery import show_topic_id
from cues_kafka.core.hashing import delivery_hash
from cues_kafka.core.strategies import EXACTLY_ONCE
from cues_kafka.graph.definition import Graph
from cues_kafka.graph.error_message import ErrorMessage
from cues_kafka.graph.names import backing_topic, replay_topic
from cues_kafka.operate.repair.ledger import Ledgers
from cues_kafka.ports import TopicFacts, TopicPartition, Watermarks
from cues_kafka.records.requests import kept_payload, not_paired


class Obstacles:
    """
    Says what stands against requests.

    Args:
        graph: the graph.
        ledgers: know what became of processors that the graph does not declare.
        facts: what the cluster says of the topics of its processors.
        lows: the ends of their inputs.
    """

    def __init__(
        self,
        graph: Graph,
        ledgers: Ledgers,
        facts: Mapping[str, TopicFacts],
        lows: Mapping[TopicPartition, Watermarks],
    ) -> None:
        self._graph, self._ledgers, self._facts, self._lows = graph, ledgers, facts, lows

    def never(self, name: str) -> str:
        """Why a processor takes no requests; empty: it does."""
        graph = self._graph
        if name in graph.feeds:
            return (
                f"{name} is a feed, and its errors name no message of a topic. Correct the source, and have it give "
                "the rows again"
            )
        if name in graph.dataframes:
            return (
                f"{name} is a processor of DataFrames, and Spark's batches take no requests. Send the messages again, "
                "or declare a Processor with the same work and run it natively"
            )
        if name not in graph.processors:
            if why := self._ledgers.followed(name).why:
                return why
            name = self._ledgers.now(name)
        if (strategy := graph.strategy_of(name)) != EXACTLY_ONCE:
            return (
                f"{name} is {strategy}, and only exactly-once settles a request once. Declare strategy='exactly-once' "
                f"and run `cues-kafka strategy MODULE:GRAPH {name}`, or send the messages again"
            )
        if graph.errors_of(name) is None:
            return f"{name} has no errors topic any more. Declare errors= for it, and restart its workers"
        missing = [made(graph.name, name) for made in (backing_topic, replay_topic)]
        if missing := [topic for topic in missing if topic not in self._facts]:
            return f"topic {missing[0]!r} does not exist. Run `cues-kafka plan MODULE:GRAPH --apply`"
        return ""

    def elsewhere(self, error: ErrorMessage) -> str:
        """Why the task of an error takes no requests; empty: it does."""
        partition = error.task.rpartition("/")[2]
        if int(partition) >= self._facts[replay_topic(self._graph.name, self._ledgers.now(error.processor))].partitions:
            return (
                f"its replay topic has no partition {partition}. Run `cues-kafka plan MODULE:GRAPH --apply`, and ask "
                "again"
            )
        return ""

    def gone(self, error: ErrorMessage) -> str:
        """Why the messages of an error cannot be delivered again; empty: they can, as far as can be seen."""
        if not error.consumed:
            return "it names no message"
        if error.hash != delivery_hash(error.graph, error.processor, error.consumed):
            return (
                "a timer failed, not a message, and timers fire once. Drop it, and have a message set the timer again"
            )
        processor = self._graph.processors[self._ledgers.now(error.processor)]
        bindings = dict(processor.inputs)
        for place, topic in zip(error.consumed, error.topics, strict=True):
            facts = self._facts.get(topic)
            if bindings.get(place.binding) != topic:
                return f"the processor has no input {place.binding!r} on {topic!r} any more"
            if facts is None or facts.topic_id != place.topic_id:
                return f"topic {topic!r} was deleted or recreated since ({show_topic_id(place.topic_id)})"
            marks = self._lows.get(TopicPartition(topic, place.partition))
            if (marks is None or place.offset < marks.low) and kept_payload(error) is None:
                return (
                    f"its message is gone from {topic!r} (retention), and the error message has not kept it. Declare "
                    "errors=Errors(..., payload=True) for the next time, without redact="
                )
        return not_paired(processor.input_shape, list(bindings), error.consumed)

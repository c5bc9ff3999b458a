"""The error messages of input messages that cannot be decoded: those that a native worker would write for them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from cues_kafka.brokers.options import Options
from cues_kafka.codecs.lookup import MadeFor
from cues_kafka.graph.dataframe import DataFrameProcessor
from cues_kafka.graph.definition import Graph
from cues_kafka.on_spark.source.decoding import Decoding, NotDecoded
from cues_kafka.on_spark.source.planning import OffsetRange
from cues_kafka.on_spark.source.rows import message_batches
from cues_kafka.ports.broker import Broker
from cues_kafka.ports.facts import ClusterFacts
from cues_kafka.ports.log import Headers
from cues_kafka.task.calling.adding import Adding
from cues_kafka.task.calling.batch import Batch
from cues_kafka.task.calling.carried import Carried, carried_by
from cues_kafka.task.calling.ending import shown_of
from cues_kafka.task.calling.failures import Delivering, error_message, note
from cues_kafka.task.calling.metadata import Marks
from cues_kafka.task.calling.outputs import Target
from cues_kafka.task.making.build import limits_of
from cues_kafka.task.making.specs import Identity, frame_spec
from cues_kafka.task.parts.participant import CallContext

_SEQUENCE: Final = 10**12
"""A number as long as the longest that is likely: only the length of its digits counts here."""


class ErrorRow(NamedTuple):
    """
    The error message of one message, but for its provenance, which names the attempt that writes it.

    Attributes:
        offset: of the message.
        key, value, headers: of the error message; without a value there is no errors topic.
        why: what happened to which message, for people.
        note: keys and values for the log.
    """

    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    why: str
    note: dict[str, str]


@dataclass(frozen=True)
class Undecoded:
    """
    Makes error messages of one input's messages. It can be pickled.

    Attributes:
        graph, processor: their names.
        binding, topic, topic_id, width: the input, and its number of partitions.
        decoding: of its values.
        identity: of the run of the query.
        errors: takes error messages; None: the query stops instead.
        carried: what error messages have besides the failure.
        marks: `meta=` of the input.
    """

    graph: str
    processor: str
    binding: str
    topic: str
    topic_id: bytes
    width: int
    decoding: Decoding
    identity: Identity
    errors: Target | None
    carried: Carried
    marks: Marks = None

    def rows(self, partition: int, failed: Iterable[NotDecoded]) -> Iterator[ErrorRow]:
        """The error messages of these messages of one partition."""
        inputs = ((self.binding, self.topic),)
        spec = frame_spec(self.graph, self.processor, partition, self.width, self.identity, inputs=inputs)
        batch = Batch(spec, _SEQUENCE, {self.binding: self.topic_id}, CallContext({}))
        for message, error in failed:
            yield self._row(Delivering(((0, message),), batch, None), error)

    def _row(self, step: Delivering, error: Exception) -> ErrorRow:
        [(_, message)] = step.taken
        why, told = step.describe(error), note(step, error, step.consumed)
        if self.errors is None:
            return ErrorRow(message.offset(), None, None, [], why, told)
        batch = step.batch
        shown = shown_of(step, self.carried, (self.decoding.decoder,))
        made = error_message(step, error, step.consumed, self.carried.declaration, shown)
        marks = None if self.marks is None else (self.marks,)
        Adding((self.binding,), marks).add_error(replace(self.errors, provenance=False), step, made)
        [(_, _, key, value, headers, _)] = batch.records
        batch.records.cut(0)
        return ErrorRow(message.offset(), key, value, headers or [], why, told)

    def within(self, broker: Broker, given: OffsetRange, *, remedy: str) -> Iterator[ErrorRow]:
        """
        Read a range, and give the error messages of what cannot be decoded in it.

        Args:
            broker: the cluster.
            given: the range.
            remedy: what to do if messages of it are lost.
        """
        name = f"{self.graph}.{self.processor}"
        for messages in message_batches(broker, given, name=name, fail=True, remedy=remedy):
            yield from self.rows(given.place.partition, self.decoding.separate(messages).failed)


def undecoded_of(
    graph: Graph,
    processor: DataFrameProcessor,
    identity: Identity,
    *,
    facts: ClusterFacts,
    options: Options,
    client_bytes: int,
) -> dict[str, Undecoded]:
    """What makes the error messages of each input of a processor, by topic."""
    topic = graph.errors_of(processor)
    errors = target_of_errors(graph, topic, facts, client_bytes) if topic else None
    carried = carried_by(graph, processor)
    return {
        name: Undecoded(
            graph=graph.name,
            processor=processor.name,
            binding=binding,
            topic=name,
            topic_id=facts.topics[name].topic_id,
            width=facts.topics[name].partitions,
            decoding=Decoding(graph.topic(name).value, MadeFor(name, options)),
            identity=identity,
            errors=errors,
            carried=carried,
            marks=None if (meta := graph.topic(name).meta) == frozenset() else meta,
        )
        for binding, name in processor.inputs
    }


def target_of_errors(graph: Graph, topic: str, facts: ClusterFacts, client_bytes: int) -> Target:
    """The errors topic, as what makes error messages needs it. It can be pickled."""
    settings, found = graph.topic(topic), facts.topics[topic]
    return Target(
        **limits_of(found, client_bytes),
        provenance=settings.provenance,
        bare=settings.meta is False,
        binding="errors",
        encode=bytes,
        key_of=None,
    )

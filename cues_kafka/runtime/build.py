"""From a graph on a cluster to what runs it: specs of tasks, and callers with codecs and targets looked up by type."""

from __future__ import annotations

import os
import secrets
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cues_kafka.codecs.lookup import codec_for
from cues_kafka.core.records import Writer
from cues_kafka.core.spec import Input, Spec
from cues_kafka.errors import CodecError, ConfigError, RetriableError, TopicsMissing
from cues_kafka.graph.declare import Raw
from cues_kafka.graph.definition import Graph, Processor, Topic
from cues_kafka.graph.names import quoted
from cues_kafka.plan.plan import LEAST_BYTES, Plan, plan, topics_to_ask
from cues_kafka.plan.renamed import renamed
from cues_kafka.ports import Broker, ClusterFacts, TopicFacts
from cues_kafka.records.bytes import ErrorMessage, decode_error
from cues_kafka.runtime.calling.caller import Caller, Decode, as_is
from cues_kafka.runtime.calling.outputs import Output, Returned, Target, key_field

VISIBLE_S = 30.0
"""How long a topic that was just made may take until every broker has heard of it."""

FOREVER_MS = 10**15
"""30,000 years; brokers say 2^63 - 1 where a topic takes any timestamp."""


@dataclass(frozen=True, slots=True)
class Identity:
    """
    Who a process is, in records and logs.

    Attributes:
        runtime: `native` or `memory`.
        name: as people know it.
        incarnation: of this run; another run is another one.
    """

    runtime: str
    name: str
    incarnation: str

    @classmethod
    def of_process(cls, runtime: str, name: str | None = None) -> Identity:
        """A new incarnation, named after host and process where no name is given."""
        return cls(runtime, name or f"{socket.gethostname()}-{os.getpid()}", secrets.token_hex(8))


@dataclass(frozen=True, slots=True)
class Terms:
    """
    What a start may do on a cluster.

    Attributes:
        names: the processors that it starts; None: whichever, nobody looks whether they were renamed.
        new: processors that the user says are new, not renamed ones.
        create_topics: whether it may create what is missing.
        accept_unchecked: whether it runs although the settings of topics may not be read.
    """

    names: Sequence[str] | None = None
    new: Sequence[str] = ()
    create_topics: bool = True
    accept_unchecked: bool = False


def prepare(
    graph: Graph, broker: Broker, *, only: Sequence[str] | None = None, terms: Terms | None = None
) -> tuple[Plan, ClusterFacts]:
    """
    Plan the graph on the cluster, refuse or create what is missing, and give the facts as they are then.

    Args:
        graph: the graph.
        broker: the cluster.
        only: names of the processors to run; None: all.
        terms: what the start may do; None: everything, with no look for renamed processors.

    Raises:
        ConfigError: the plan is refused, this runtime cannot carry a processor, or one may have been renamed.
        TopicsMissing: they must not be created.
        BrokerError: the cluster does not answer.
    """
    names, terms = topics_to_ask(graph), terms or Terms()
    listed = {} if terms.names is None else broker.partitions()
    planned = plan(graph, broker.facts(names), listed=listed, accept_unchecked=terms.accept_unchecked)
    if terms.names is not None:
        refused = renamed(graph, broker, listed, names=terms.names, new=terms.new)
        planned = replace(planned, refusals=(*planned.refusals, *refused))
    planned.refuse()
    for processor in selected(graph, only):
        _check_carried(processor, graph)
    if planned.create:
        if not terms.create_topics:
            raise TopicsMissing(
                f"graph {graph.name!r} needs topics that do not exist: "
                f"{quoted([topic.name for topic in planned.create])}. 'cues-kafka plan MODULE:GRAPH --apply' creates "
                "them"
            )
        broker.create(planned.create)
    facts = _facts_with(broker, names, {topic.name for topic in planned.create})
    if facts.unchecked and not terms.accept_unchecked:
        plan(graph, facts).refuse()  # topics that were created just now
    return planned, facts


def _facts_with(broker: Broker, names: Sequence[str], created: set[str]) -> ClusterFacts:
    """Facts with all topics that were just made: the broker that answers may not have heard of them yet."""
    deadline = time.monotonic() + VISIBLE_S
    while True:
        facts = broker.facts(names)
        missing = sorted(created - set(facts.topics))
        if not missing:
            return facts
        if time.monotonic() > deadline:
            raise RetriableError(
                f"topics {missing} are still not there after {VISIBLE_S:g} s; look at the brokers' logs"
            )
        time.sleep(0.05)


def selected(graph: Graph, only: Sequence[str] | None) -> list[Processor]:
    """
    The processors to run.

    Raises:
        ConfigError: a name that the graph does not have.
    """
    unknown = sorted(set(only or ()) - set(graph.processors))
    if unknown:
        raise ConfigError(f"only={unknown}: graph {graph.name!r} has the processors {quoted(sorted(graph.processors))}")
    return [p for p in graph.processors.values() if only is None or p.name in only]


def _check_carried(processor: Processor, graph: Graph) -> None:
    for refusal in refusals(graph, [processor.name]):
        raise ConfigError(refusal)


def refusals(graph: Graph, only: Sequence[str] | None = None) -> Iterator[str]:
    """What of these processors no runtime of this release can do, a sentence with the remedy for each."""
    for processor in selected(graph, only):
        if why := not_in_this_release(processor, graph):
            yield f"processor {processor.name!r}: {why}"


def not_in_this_release(processor: Processor, graph: Graph) -> str:
    """
    What of a declaration no runtime of this release can do, with the remedy; empty: nothing.

    Raises:
        GraphError: the class of `Json(cls)` of one of its topics has a field that cannot travel.
    """
    missing = [
        (bool(processor.state), "state="),
        (bool(processor.tailers or processor.appenders), "tailers= and appenders="),
        (graph.strategy_of(processor) != "exactly-once", f"strategy={graph.strategy_of(processor)!r}"),
    ]
    for present, what in missing:
        if present:
            return (
                f"{what} can be declared, but this release does not run it. Leave it out, or leave the processor out: "
                f"only=[...] of start(), --except {processor.name} of the commands."
            )
    return next(_without_codec(processor, graph), "")


def _without_codec(processor: Processor, graph: Graph) -> Iterator[str]:
    """Topics that it reads or writes in bytes that nobody makes, so it is said before anything is created."""
    errors = graph.errors_of(processor)
    for topic in dict.fromkeys((*processor.input_topics, *processor.output_topics, *([errors] if errors else []))):
        try:
            codec_for(graph.topic(topic).value)
        except ConfigError as error:
            yield f"topic {topic!r}: {error}"


def spec_of(graph: Graph, planned: Plan, processor: Processor, width: int, identity: Identity) -> Callable[[int], Spec]:
    """Makes the spec of one partition of a processor with so many partitions."""
    names = planned[processor.name]

    def make(partition: int) -> Spec:
        transactional_id = names.transactional_id(partition)
        return Spec(
            graph=graph.name,
            processor=processor.name,
            partition=partition,
            inputs=tuple(Input(*pair) for pair in processor.inputs),
            pairing=processor.input_shape,
            effects=processor.has_effects,
            errors=graph.errors_of(processor) is not None,
            transactional_id=transactional_id,
            group=names.group,
            backing=names.backing,
            start=processor.start,
            strategy=graph.strategy_of(processor),
            quarantine_after=processor.quarantine_after,
            compacted=processor.input_shape == "single" and bool(names.compacted),
            width=width,
            writer=Writer(transactional_id, identity.runtime, identity.name, identity.incarnation),
        )

    return make


def caller_of(
    graph: Graph, processor: Processor, facts: ClusterFacts, system: Mapping[str, Any], client_bytes: int
) -> Caller:
    """
    The caller of one processor.

    Args:
        graph: the graph.
        processor: what it calls.
        facts: of its topics.
        system: values of `system=`.
        client_bytes: see `ports.Broker.max_bytes`.
    """
    targets = {
        binding: target_of(graph.topic(topic), facts.topics[topic], binding, client_bytes)
        for binding, topic in processor.outputs
    }
    errors = graph.errors_of(processor)
    places: Mapping[str, Mapping[str, Any]] = {"opts": processor.opts, "system": system}
    context = {param: places[source][name] for param, (source, name) in processor.call.context.items()}
    return Caller(
        processor,
        decoders=[
            _decode_errors if topic in graph.error_topics() else decoder(graph.topic(topic), topic)
            for _, topic in processor.inputs
        ],
        returned=Returned(processor.output_shape, targets, generator=processor.call.is_generator),
        errors=target_of(graph.topic(errors), facts.topics[errors], "errors", client_bytes) if errors else None,
        context=context,
    )


def decoder(settings: Topic, topic: str) -> Decode:
    """Values of a topic from bytes. A null value is None where the codec has None, else an error like any other."""
    declared = settings.value
    if isinstance(declared, Raw):
        return as_is
    codec = codec_for(declared)
    decode = codec.decode
    try:
        decode(b"null")
        nullable = True
    except CodecError:
        nullable = False

    def read(data: bytes | None) -> Any:
        if data is not None:
            return decode(data)
        if nullable:
            return None
        raise CodecError(f"a null value (tombstone) on {topic!r}, whose codec {declared!r} has no None")

    return read


def _decode_errors(data: bytes | None) -> ErrorMessage:
    """A processor that reads an errors topic gets its messages as `ErrorMessage`."""
    return decode_error(data or b"")


def target_of(settings: Topic, found: TopicFacts, binding: str, client_bytes: int) -> Target:
    """
    An output topic of native workers and senders.

    Args:
        settings: what the graph says of it.
        found: what the cluster says of it.
        binding: of the output; `errors`: it takes error messages.
        client_bytes: see `ports.Broker.max_bytes`.
    """
    return Target(
        **limits_of(found, client_bytes),
        provenance=settings.provenance,
        binding=binding,
        encode=codec_for(settings.value).encode,
        key_of=key_field(settings.key) if settings.key and binding != "errors" else None,
    )


def output_of(found: TopicFacts, client_bytes: int, *, provenance: bool = True) -> Output:
    """An output topic of processors of DataFrames; see `target_of`."""
    return Output(**limits_of(found, client_bytes), provenance=provenance)


def limits_of(found: TopicFacts, client_bytes: int) -> dict[str, Any]:
    """
    The fields of `Output` that the cluster decides.

    Where the topic's settings may not be read, batches keep to the least limit that `plan` takes: a topic refuses a
    batch above its limit as a whole, however small the messages are.
    """
    config = found.config
    topic_bytes = int(config["max.message.bytes"]) if "max.message.bytes" in config else None
    bounds = [("message.max.bytes in Kafka(producer={...})", client_bytes)]
    if topic_bytes is not None:
        bounds.append(("the topic's max.message.bytes", topic_bytes))
    checked = config.get("message.timestamp.type") != "LogAppendTime"
    older, newer = (
        most if checked and (most := int(config.get(name, FOREVER_MS))) < FOREVER_MS else None
        for name in ("message.timestamp.before.max.ms", "message.timestamp.after.max.ms")
    )
    return {
        "topic": found.name,
        "partitions": found.partitions,
        "max_bytes": min(most for _, most in bounds),
        "bounds": tuple(bounds),
        "batch_bytes": LEAST_BYTES if topic_bytes is None else topic_bytes,
        "compacted": "compact" in config.get("cleanup.policy", ""),
        "older_ms": older,
        "newer_ms": newer,
    }

"""From a graph on a cluster to what runs it: specs of tasks, and callers with codecs and targets looked up by type."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import platformdirs

from cues_kafka.codecs.framing import header_of, in_front
from cues_kafka.codecs.lookup import MadeFor, codec_for
from cues_kafka.codecs.raw import as_is
from cues_kafka.errors import CodecError, ConfigError, RetriableError
from cues_kafka.extras import ARROW, require
from cues_kafka.graph.codec import Codec
from cues_kafka.graph.declare import CodecSpec, Raw, Store, Table
from cues_kafka.graph.definition import Graph
from cues_kafka.graph.formats import SchemaSpec
from cues_kafka.graph.message import key_bytes
from cues_kafka.graph.names import changelog_topic, journal_topic
from cues_kafka.graph.placed import keyed_topics
from cues_kafka.graph.processor import Processor
from cues_kafka.graph.sink import is_sink
from cues_kafka.graph.timers import Timers
from cues_kafka.graph.topic import Topic
from cues_kafka.plan.refusals import LEAST_BYTES
from cues_kafka.ports.facts import ClusterFacts, TopicFacts
from cues_kafka.ports.log import UNREADABLE, WireMessage, headers_of
from cues_kafka.sinks.lookup import open_calls
from cues_kafka.sinks.publish import open_publishers
from cues_kafka.state.entries import TIME_BYTES
from cues_kafka.state.mapping import StoreSpec
from cues_kafka.state.on_disk import library
from cues_kafka.state.scheduled import key_of, timer_of
from cues_kafka.state.tables import TableSpec
from cues_kafka.task.calling.caller import Caller
from cues_kafka.task.calling.carried import carried_by
from cues_kafka.task.calling.decoding import Decoder
from cues_kafka.task.calling.function import Function
from cues_kafka.task.calling.imperative import TailerSpec
from cues_kafka.task.calling.inheriting import inherit, key_reader
from cues_kafka.task.calling.lists import Calling, with_values
from cues_kafka.task.calling.outage import Outage
from cues_kafka.task.calling.outputs import OVERHEAD_BYTES, Output, Returned, Target, key_field
from cues_kafka.task.calling.placements import placement_of
from cues_kafka.task.calling.step import Received, unreadable
from cues_kafka.task.following import Tables
from cues_kafka.task.making.contexts import TaskContexts
from cues_kafka.task.making.file_schemas import with_schemas
from cues_kafka.task.parts.participant import Participant

if TYPE_CHECKING:
    from cues_kafka.observe.spans import Spans

FOREVER_MS = 10**15
"""30,000 years. Brokers report 2^63 - 1 for a topic that takes any timestamp."""


def caller_of(
    graph: Graph,
    processor: Processor,
    facts: ClusterFacts,
    system: Mapping[str, Any],
    client_bytes: int,
    *,
    cluster: Any = None,
    state_dir: Path | None = None,
    threads: bool = True,
    spans: Spans | None = None,
) -> Caller:
    """
    Make the caller of one processor.

    Args:
        graph: what runs.
        processor: the one.
        facts: of its topics.
        system: values of `Graph(system=)`.
        client_bytes: see `ports.broker.Broker.max_bytes`.
        cluster: see `MadeFor`.
        state_dir: where stores with `on_disk=True` are; None: in memory.
        threads: whether calls of coroutines wait in threads (E4).
        spans: which steps have spans; None: none.

    Raises:
        ConfigError: a package is missing.
    """
    target = partial(
        _inheriting, graph=graph, processor=processor, facts=facts, client_bytes=client_bytes, cluster=cluster
    )
    targets = {binding: target(binding, topic) for binding, topic in processor.outputs}
    read_key = key_reader([graph.topic(topic) for _, topic in processor.inputs])
    kept = journal_topic(graph.name, processor.name) if processor.journaled else None
    calls = {name: one for name, one in processor.calls.items() if name in processor.call.context}
    contexts = TaskContexts(
        *(graph, processor, facts, _values(processor, system)),
        stores=_store_specs(graph, processor, facts, client_bytes, cluster=cluster, state_dir=state_dir),
        tables=_tables_of(graph, processor, facts, cluster),
        targets=targets,
        appenders={binding: target(binding, topic) for binding, topic in processor.appenders.items()},
        tailers=[
            TailerSpec(binding, topic, _received(graph.topic(topic), MadeFor(topic, cluster)))
            for binding, topic in processor.tailers.items()
        ],
        calls=calls,
        shared=open_calls(calls, graph.name, processor, threads=threads) if calls else None,
        journal=kept,
        journal_bytes=limits_of(facts.topics[kept], client_bytes)["max_bytes"] if kept else 0,
        effects=with_schemas(graph, processor),
        publishers=open_publishers(processor.targets, graph.name, processor.name),
        trail=target("trail", processor.trail) if processor.trail else None,
        read_key=read_key,
        tracing=_tracing(graph, processor, spans),
    )
    function = _function(graph, processor, facts, client_bytes, cluster, targets=targets, read_key=read_key)
    calling = _calling(graph, processor, function, cluster)
    return Caller(function, context_of=contexts.of, release=contexts.release, calling=calling)


def _calling(graph: Graph, processor: Processor, function: Function, cluster: Any) -> Calling:
    """How a function is called; what needs the package of an extra is imported for a processor that asks for it."""
    if not processor.columnar:
        return with_values
    require(processor.label, ARROW)
    from cues_kafka.task.making.columns import calling_of  # noqa: PLC0415 - needs an extra

    return calling_of(graph, processor, function, cluster)


def _inheriting(
    binding: str,
    topic: str,
    *,
    graph: Graph,
    processor: Processor,
    facts: ClusterFacts,
    client_bytes: int,
    cluster: Any,
) -> Target:
    """A topic that the processor writes; a message without a key of its own inherits that of its lead input."""
    made = target_of(graph.topic(topic), facts.topics[topic], binding, client_bytes, cluster)
    came, goes = MadeFor(processor.lead, cluster, "key"), MadeFor(topic, cluster, "key")
    key = inherit(graph.topic(processor.lead), came, graph.topic(topic), goes, _outages_told)
    return made if key is None else replace(made, inherit=key)


def _function(
    graph: Graph,
    processor: Processor,
    facts: ClusterFacts,
    client_bytes: int,
    cluster: Any,
    *,
    targets: Mapping[str, Target],
    read_key: Callable[[WireMessage], bytes | None],
) -> Function:
    """The function of a processor, with what decodes its messages and encodes what it returns."""
    decoders = [
        decoder(graph.topic(topic), MadeFor(topic, cluster), nulls=is_sink(processor)) for _, topic in processor.inputs
    ]
    errors = graph.errors_of(processor)
    return Function(
        processor,
        decoders=decoders,
        returned=Returned(processor.output_shape, targets, generator=processor.call.is_generator),
        errors=target_of(graph.topic(errors), facts.topics[errors], "errors", client_bytes, cluster)
        if errors
        else None,
        carried=carried_by(graph, processor),
        key=read_key,
    )


def _values(processor: Processor, system: Mapping[str, Any]) -> dict[str, Any]:
    """What the functions of a processor get of `opts=` and `Graph(system=)`, by name."""
    places: Mapping[str, Mapping[str, Any]] = {"opts": processor.opts, "system": system}
    asked = {**(processor.timer_call.context if processor.timer_call else {}), **processor.call.context}
    return {name: places[source][name] for name, source in asked.items() if source in places}


def _store_specs(
    graph: Graph,
    processor: Processor,
    facts: ClusterFacts,
    client_bytes: int,
    *,
    cluster: Any,
    state_dir: Path | None,
) -> list[StoreSpec]:
    """The stores of a processor, with their changelogs."""
    if state_dir is not None and any(store.on_disk for store in processor.state.values()):
        library()  # a missing package is told before the start
    changelogs = {name: changelog_topic(graph.name, processor.name, name) for name in processor.state}
    return [
        store_spec(
            *(name, processor.state[name], topic, limits_of(facts.topics[topic], client_bytes)["max_bytes"], cluster),
            directory=state_dir and state_dir / graph.name / processor.name / name,
        )
        for name, topic in changelogs.items()
    ]


def _tables_of(graph: Graph, processor: Processor, facts: ClusterFacts, cluster: Any) -> Tables | None:
    """The tables of a processor; None: it has none."""
    found = [_table(name, one, graph.topic(one.topic), facts, cluster) for name, one in processor.tables.items()]
    keyed = keyed_topics(processor)
    looks = {
        one.topic: partial(placement_of, graph, processor, one.topic, facts) for one in found if one.topic in keyed
    }
    return Tables(found, looks) if found else None


def _tracing(graph: Graph, processor: Processor, spans: Spans | None) -> Callable[[], Participant | None]:
    """What makes the participant of a task that has spans; its package is imported only where they are asked for."""
    if spans is None:
        return lambda: None
    from cues_kafka.task.parts.spans import Sampling, Tracing  # noqa: PLC0415 - needs an extra

    written = {*graph.error_topics(), *(topic for one in graph.processors.values() for topic in one.output_topics)}
    entering = [topic in graph.sources or topic not in written for _, topic in processor.inputs]
    return partial(Tracing, Sampling(spans, graph.name, entering), is_async=processor.call.is_async)


def state_dir_of(options: Any, facts: ClusterFacts) -> Path | None:
    """Where the stores of a cluster are on the disk; None: the cluster ends with this process, and they with it."""
    if not facts.cluster_id:
        return None
    given = getattr(options, "state_dir", "")
    root = Path(given) if given else platformdirs.user_state_path("cues_kafka") / "stores"
    return root.expanduser().absolute() / facts.cluster_id


def store_spec(
    name: str, declared: Store, topic: str, max_bytes: int, cluster: Any, *, directory: Path | None = None
) -> StoreSpec:
    """Make a store with its changelog topic, which takes records of at most `max_bytes`."""
    encode_key: Callable[[Any], bytes] = _text_key
    decode_key: Callable[[bytes], Any] = bytes.decode
    if declared.key is not None:
        key = codec_for(declared.key, MadeFor(topic, cluster, "key"))
        encode_key, decode_key = key.encode, key.decode
    timers = declared.by if isinstance(declared, Timers) else None
    if timers is not None:
        encode_key, decode_key = (lambda timer: key_of(*timer)), timer_of
    value = codec_for(declared.value, MadeFor(topic, cluster))
    limit = max_bytes - OVERHEAD_BYTES - TIME_BYTES
    return StoreSpec(
        *(name, topic, value, encode_key, decode_key, limit, declared.max_bytes),
        *(declared.lifetime, declared.by_time),
        directory if declared.on_disk else None,
        timers,
    )


def _table(name: str, declared: Table, settings: Topic, facts: ClusterFacts, cluster: Any) -> TableSpec:
    """A table with the codecs of its topic."""
    made_for = MadeFor(declared.topic, cluster)
    codec = codec_for(settings.value, made_for)
    encode_key: Callable[[Any], bytes | None] = key_bytes
    decode_key = _naming(f"A key on {declared.topic!r}", _key_text)
    if settings.key_codec is not None:
        encode_key = _key_encoder(settings.key_codec, made_for._replace(part="key"))
        read_key = codec_for(settings.key_codec, made_for._replace(part="key")).decode
        decode_key = _naming(f"A key on {declared.topic!r}", _outages_told(settings.key_codec, read_key))
    return TableSpec(
        name,
        declared.topic,
        facts.topics[declared.topic].partitions,
        declared.kind == "global",
        _naming(f"A value on {declared.topic!r}", _outages_told(settings.value, codec.decode)),
        getattr(codec, "id_header", None),
        encode_key,
        decode_key,
        declared.max_bytes,
        declared.wait_s,
        declared.then == "stop",
    )


def _key_text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise CodecError(f"{data[:80]!r} is no text in UTF-8. Declare what it is: Topic(key_codec=...)") from error


def _text_key(key: Any) -> bytes:
    if type(key) is not str:
        raise TypeError(
            f"{key!r:.60} is not a key of this store: keys are text. For other keys, write Store(..., key=codec)"
        )
    return key.encode()


def decoder(settings: Topic, made_for: MadeFor, *, nulls: bool = False) -> Decoder:
    """
    Makes the decoder of a topic's values.

    A null value is None if the codec has None, or with `nulls` in any case; else it is a decoding error.
    """
    codec = codec_for(settings.value, made_for)
    decode, nullable, name = codec.decode, codec.nullable, type(settings.value).__name__
    key = None if settings.key_codec is None else _key_decoder(settings.key_codec, made_for._replace(part="key"))
    marks = None if settings.meta == frozenset() else settings.meta
    if decode is as_is:
        return Decoder(as_is, key=key, declared=settings.value, marks=marks)

    def read(data: bytes | None) -> Any:
        if data is not None:
            return decode(data)
        if nullable or nulls:
            return None
        raise CodecError(
            f"A message on {made_for.topic!r} has no value (a tombstone), and the declared {name} does not accept "
            "None. To read such messages, declare a codec that does: Json() without a class, or Avro(['null', ...])."
        )

    quick = getattr(codec, "quick", None)
    return Decoder(read, getattr(codec, "id_header", None), key, settings.value, marks, quick)


def _received(settings: Topic, made_for: MadeFor) -> Callable[[WireMessage], Received]:
    """
    Makes what a tailer gives of a message.

    It is decoded in the user's function, so the outages of a registry must be told from what that raises.
    """
    found = decoder(settings, made_for, nulls=True)
    read = _naming(f"A message on {made_for.topic!r}", _outages_told(settings.value, found.read))

    def received(message: WireMessage) -> Received:
        if headers_of(message) is UNREADABLE:
            raise unreadable(message)
        return Received(message, read(message), found.key, found.marks)

    return received


def _key_decoder(declared: CodecSpec, made_for: MadeFor) -> Callable[[WireMessage], Any]:
    codec = codec_for(declared, made_for)
    name = getattr(codec, "id_header", None)

    # In the user's function, which asks for the key.
    decode = _naming(f"A key on {made_for.topic!r}", _outages_told(declared, codec.decode))

    def read(message: WireMessage) -> Any:
        data = message.key()
        if data is None:
            return None
        return decode(data if name is None else in_front(headers_of(message), name, data))

    return read


def _encoder(declared: CodecSpec, made_for: MadeFor) -> Callable[[Any], bytes]:
    return _outages_told(declared, codec_for(declared, made_for).encode)


def _key_encoder(declared: CodecSpec, made_for: MadeFor) -> Callable[[Any], bytes | None]:
    encode = _encoder(declared, made_for)
    return lambda key: key if key is None or type(key) is bytes else encode(key)


def _outages_told(declared: CodecSpec, convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """
    The function, whose outages can be told from what a user's function raises.

    A generator's outputs are encoded while it runs, and keys are decoded when a function asks for them.
    """
    passing: tuple[type[Exception], ...]
    if isinstance(declared, SchemaSpec) and declared.registry:
        passing = (RetriableError, ConfigError)  # the registry may have lost a schema since the start
    elif isinstance(declared, Codec):
        passing = (RetriableError,)
    else:
        return convert

    def told(given: Any) -> Any:
        try:
            return convert(given)
        except passing as error:
            raise Outage(str(error)) from error

    return told


def _naming(what: str, convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The function, whose errors say what they are about: user code that reads it may read several topics."""

    def read(given: Any) -> Any:
        try:
            return convert(given)
        except CodecError as error:
            raise CodecError(f"{what} cannot be read: {error}") from error

    return read


def target_of(settings: Topic, found: TopicFacts, binding: str, client_bytes: int, cluster: Any = None) -> Target:
    """Make an output topic of native workers and senders."""
    codec = codec_for(settings.value, MadeFor(found.name, cluster))
    return Target(
        **limits_of(found, client_bytes),
        provenance=settings.provenance,
        bare=settings.meta is False,
        binding=binding,
        encode=_outages_told(settings.value, codec.encode),
        encode_all=getattr(codec, "encode_all", None),
        unchecked=getattr(codec, "unchecked", None),
        key_of=key_field(settings.key) if settings.key else None,
        foreign=() if isinstance(settings.value, Raw) else (header_of("value"),),
        encode_key=key_bytes
        if settings.key_codec is None
        else _key_encoder(settings.key_codec, MadeFor(found.name, cluster, "key")),
    )


def output_of(found: TopicFacts, client_bytes: int, *, provenance: bool = True) -> Output:
    """Make an output topic of DataFrame processors; see `target_of`."""
    return Output(**limits_of(found, client_bytes), provenance=provenance)


def limits_of(found: TopicFacts, client_bytes: int) -> dict[str, Any]:
    """
    The fields of `Output` that the cluster decides.

    If the topic's settings may not be read, batches keep to the smallest limit that `plan` accepts: a topic refuses a
    whole batch above its limit, however small the messages are.
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

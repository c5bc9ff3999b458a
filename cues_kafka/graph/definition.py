"""Graph, Source, Processor, DataFrameProcessor, Topic: frozen, and validated when they are constructed.

A declaration is plain data. What was written is kept as it was written (`Graph.parts`); what follows from it, with the
graph's defaults filled in, is `Graph.processors` and `Graph.topic`. Cycles are allowed (a crawler feeds itself):
`topology.cycles` finds them, and a plan says that they are there.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import types
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias, TypeVar, get_args

from cues_kafka.errors import GraphError
from cues_kafka.graph.binding import Call, ContextSource, Declared, bind
from cues_kafka.graph.declare import CODEC_SPECS, CodecSpec, Json, Raw, Retry, Store
from cues_kafka.graph.kind import InputShape, OutputShape, kind
from cues_kafka.graph.names import (
    backing_topic,
    changelog_topic,
    check_name,
    check_topic,
    hint,
    is_owned,
    quoted,
    replay_topic,
)
from cues_kafka.graph.wiring import check_topics, check_wiring
from cues_kafka.words import article

F = TypeVar("F", bound=Callable[..., Any])

Strategy: TypeAlias = Literal["exactly-once", "at-least-once", "at-most-once"]
Start: TypeAlias = Literal["earliest", "latest"]
OutputMode: TypeAlias = Literal["append", "update"]
"""Of a DataFrame processor, as Spark calls it."""

Bindings: TypeAlias = tuple[tuple[str, str], ...]
"""(binding, topic) pairs in the order of declaration."""

INPUT = "input"
"""The binding of ``inputs="orders"``."""

OUTPUT = "output"
"""The binding of ``outputs="checked"``."""


class Unset(enum.Enum):
    """Stands for a setting that was not given, where None means something."""

    UNSET = "unset"

    def __repr__(self) -> str:
        return "..."


UNSET: Final = Unset.UNSET


def _settle(target: Any, **values: Any) -> None:
    for name, value in values.items():
        object.__setattr__(target, name, value)


def _frozen(mapping: Mapping[str, Any]) -> Mapping[str, Any]:
    return types.MappingProxyType(dict(mapping))


def _one_of(value: object, allowed: tuple[str, ...], what: str) -> None:
    if value not in allowed:
        near = hint(value, allowed) if isinstance(value, str) else ""
        raise GraphError(f"{what}={value!r} is not known{near}. Choose one of {quoted(allowed)}.")


def _whole(value: object, what: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise GraphError(f"{what}={value!r}: takes a whole number from 1 on.")


@dataclass(frozen=True, slots=True, init=False)
class Topic:
    """
    Settings of a topic. What is not given comes from the graph's `defaults=`, key by key also within `config`.

    Attributes:
        value: codec of the values; `Json()`.
        key: the field of a value that is its key where a message brings none; None: the lead input's key.
        partitions: how many partitions the topic is created with, where it is missing; 1.
        provenance: whether outputs carry the `cues` header, without which `verify` cannot vouch for the topic; True.
        config: Kafka's settings of a topic that is created, such as ``{"retention.ms": "86400000"}``.
        given: the settings that were given, in the order of declaration.
    """

    value: CodecSpec
    key: str | None
    partitions: int
    provenance: bool
    config: Mapping[str, str]
    given: tuple[str, ...]

    def __init__(
        self,
        value: CodecSpec | Unset = UNSET,
        *,
        key: str | Unset | None = UNSET,
        partitions: int | Unset = UNSET,
        provenance: bool | Unset = UNSET,
        config: Mapping[str, str] | Unset = UNSET,
    ) -> None:
        all_of_them = {"value": value, "key": key, "partitions": partitions, "provenance": provenance, "config": config}
        given = {name: setting for name, setting in all_of_them.items() if not isinstance(setting, Unset)}
        _check_topic_settings(given)
        usual: dict[str, Any] = {"value": Json(), "key": None, "partitions": 1, "provenance": True, "config": {}}
        settings = {**usual, **given}
        config_text = {name: str(setting) for name, setting in settings.pop("config").items()}
        _settle(self, **settings, config=_frozen(config_text), given=tuple(given))
        _check_key_field(self)

    def over(self, defaults: Topic) -> Topic:
        """These settings, and where they were not given, those of `defaults`."""
        merged: dict[str, Any] = {name: getattr(defaults, name) for name in defaults.given}
        merged |= {name: getattr(self, name) for name in self.given}
        if merged.get("config"):
            merged["config"] = {**defaults.config, **self.config}
        if "value" in self.given and "key" not in self.given and isinstance(self.value, Raw):
            merged.pop("key", None)  # bytes have no fields; a default for the others is not meant for them
        return Topic(**merged)


def _check_topic_settings(given: Mapping[str, Any]) -> None:
    if "value" in given and not isinstance(given["value"], CODEC_SPECS):
        value = given["value"]
        shown = value.__name__ if isinstance(value, type) else repr(value)
        fix = f"{shown}()" if value in CODEC_SPECS else f"Json({shown})"
        raise GraphError(f"Topic(value={shown}): takes a codec. Write Topic(value={fix}).")
    if "key" in given and not (given["key"] is None or (isinstance(given["key"], str) and given["key"])):
        raise GraphError(f"Topic(key={given['key']!r}): takes the name of a field of the value, or None.")
    if "partitions" in given:
        _whole(given["partitions"], "Topic(partitions)")
    if "provenance" in given and not isinstance(given["provenance"], bool):
        raise GraphError(f"Topic(provenance={given['provenance']!r}): takes True or False.")
    if "config" in given and not isinstance(given["config"], Mapping):
        raise GraphError(f"Topic(config={given['config']!r}): takes a mapping such as {{'retention.ms': '86400000'}}.")


def _check_key_field(topic: Topic) -> None:
    if topic.key is None:
        return
    if isinstance(topic.value, Raw):
        raise GraphError(
            f"Topic(value=Raw(), key={topic.key!r}): bytes have no fields. "
            "Drop key=, and return Message(value, key=...)."
        )
    cls = topic.value.cls if isinstance(topic.value, Json) else topic.value.schema
    if isinstance(cls, type) and dataclasses.is_dataclass(cls):
        fields = [f.name for f in dataclasses.fields(cls)]
        if topic.key not in fields:
            raise GraphError(
                f"Topic(key={topic.key!r}): {cls.__name__} has no such field{hint(topic.key, fields)}. "
                f"Fields: {quoted(fields)}."
            )


@dataclass(frozen=True, slots=True)
class Source:
    """
    A topic that messages enter the graph by: `send` writes to it, and it is created where it is missing.

    Attributes:
        topic: the topic's name.
        default: whether `send(message)` without a topic goes here; where a graph has one source only it does anyway.
    """

    topic: str
    default: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        check_topic(self.topic, "Source")
        if is_owned(self.topic):
            raise GraphError(f"Source({self.topic!r}): only the framework writes such topics. Choose another name.")


@dataclass(frozen=True, slots=True, init=False)
class Processor:
    """
    A function between topics.

    Attributes:
        fn: the function.
        name: its name in the graph; the function's own where none is given.
        inputs: (binding, topic) of each input in the order of declaration, for alts too.
        input_shape: single, join (the k-th message of each input) or alts (one of any).
        outputs: (binding, topic) of each output.
        output_shape: none, one (``outputs="topic"``) or many (``outputs={...}``).
        by_name: whether inputs are passed by name.
        errors: the errors topic; None: the graph's; False: none, even if the graph has one.
        filter: which messages are passed to the function; the others are delivered as nil.
        strategy: None: the graph's. Other ones than exactly-once are not in this release, and refused at the start.
        state: stores by name; not in this release, and refused at the start.
        opts: plain values by name.
        tailers: topics to read at will, by binding; not in this release, and refused at the start.
        appenders: topics to write to at will, by binding; not in this release, and refused at the start.
        effects: whether the function does something outside of Kafka; a sink always counts as one.
        batch: whether it gets lists.
        concurrency: how many calls of an ``async def`` may be under way at once.
        retry: which exceptions are worth another call.
        start: where to begin when the processor has never run.
        quarantine_after: deaths of the process on one message before it becomes an error; None: never.
        call: how `fn` is called.
    """

    fn: Callable[..., Any]
    name: str
    inputs: Bindings
    input_shape: InputShape
    outputs: Bindings
    output_shape: OutputShape
    by_name: bool
    errors: str | Literal[False] | None
    filter: Callable[[Any], bool] | None
    strategy: Strategy | None
    state: Mapping[str, Store]
    opts: Mapping[str, Any]
    tailers: Mapping[str, str]
    appenders: Mapping[str, str]
    effects: bool
    batch: bool
    concurrency: int
    retry: Retry | None
    start: Start
    quarantine_after: int | None
    call: Call = field(compare=False, repr=False)

    def __init__(
        self,
        fn: Callable[..., Any],
        *,
        inputs: str | Mapping[str, str] | None = None,
        alts: Mapping[str, str] | None = None,
        outputs: str | Mapping[str, str] | None = None,
        errors: str | Literal[False] | None = None,
        filter: Callable[[Any], bool] | None = None,  # noqa: A002  # Cues' word
        strategy: Strategy | None = None,
        state: Mapping[str, Store] | None = None,
        opts: Mapping[str, Any] | None = None,
        tailers: Mapping[str, str] | None = None,
        appenders: Mapping[str, str] | None = None,
        effects: bool = False,
        batch: bool = False,
        concurrency: int = 1,
        retry: Retry | None = None,
        start: Start = "earliest",
        quarantine_after: int | None = 2,
        name: str | None = None,
    ) -> None:
        name = _processor_name(fn, name)
        label = f"Processor {name!r}"
        check_name(name, label)
        input_shape, ins = _inputs(inputs, alts, label)
        output_shape, outs = _outputs(outputs, label)
        _settle(
            self,
            fn=fn,
            name=name,
            inputs=ins,
            input_shape=input_shape,
            outputs=outs,
            output_shape=output_shape,
            by_name=not isinstance(inputs, str),
            errors=errors,
            filter=filter,
            strategy=strategy,
            state=_frozen(_mapping(state, label, "state")),
            opts=_frozen(_mapping(opts, label, "opts")),
            tailers=_frozen(dict(_topics(tailers or {}, label, "tailers"))),
            appenders=_frozen(dict(_topics(appenders or {}, label, "appenders"))),
            effects=effects,
            batch=batch,
            concurrency=concurrency,
            retry=retry,
            start=start,
            quarantine_after=quarantine_after,
        )
        _check_settings(self, label)
        _check_topics_once(self, label)
        _settle(self, call=bind(fn, _declared(self, system=None)))
        _check_concurrency(self, label)

    @property
    def kind(self) -> str:
        """The kind's name, for people: pipe, fork, join-sink ..."""
        return kind(self.input_shape, self.output_shape, imperative=bool(self.tailers or self.appenders))

    @property
    def lead(self) -> str:
        """Topic of the first input, which the group subscribes to (A1)."""
        return self.inputs[0][1]

    @property
    def input_topics(self) -> tuple[str, ...]:
        """Topics of the inputs, in order."""
        return tuple(topic for _, topic in self.inputs)

    @property
    def read_topics(self) -> tuple[str, ...]:
        """Topics of the inputs, then of the tailers."""
        return (*self.input_topics, *self.tailers.values())

    @property
    def output_topics(self) -> tuple[str, ...]:
        """Topics of the outputs, then of the appenders."""
        return (*(topic for _, topic in self.outputs), *self.appenders.values())

    @property
    def has_effects(self) -> bool:
        """Whether it does something outside of Kafka: it says so, or it has nowhere else to leave a trace."""
        return self.effects or not (self.outputs or self.appenders)

    def replace(self, **changes: Any) -> Processor:
        """The same declaration with other arguments, validated again."""
        return Processor(**{**self.arguments(), **changes})

    def arguments(self) -> dict[str, Any]:
        """The arguments that construct an equal processor."""
        bindings: Any = dict(self.inputs) if self.by_name else self.inputs[0][1]
        arguments: dict[str, Any] = {"alts" if self.input_shape == "alts" else "inputs": bindings}
        if self.output_shape != "none":
            arguments["outputs"] = self.outputs[0][1] if self.output_shape == "one" else dict(self.outputs)
        return arguments | {name: getattr(self, name) for name in ("fn", *_PLAIN)}


_PLAIN = (
    *("errors", "filter", "strategy", "state", "opts", "tailers", "appenders", "effects", "batch", "concurrency"),
    *("retry", "start", "quarantine_after", "name"),
)


def _processor_name(fn: Any, name: str | None) -> str:
    if name is not None:
        return name
    plain = fn
    while isinstance(plain, functools.partial):
        plain = plain.func
    own = getattr(plain, "__name__", None) or type(plain).__name__
    if own == "<lambda>":
        raise GraphError('A lambda has no name of its own. Write Processor(lambda ..., name="...").')
    return str(own)


def _mapping(value: Any, label: str, what: str) -> Mapping[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise GraphError(f'{label}: {what}={value!r}: takes a mapping. Write {what}={{"name": ...}}.')
    for name in value:
        if not isinstance(name, str):
            raise GraphError(f"{label}: {what}= has the name {name!r}. Names are strings.")
    return value


def _topics(value: Any, label: str, what: str) -> Bindings:
    if not isinstance(value, Mapping):
        raise GraphError(f'{label}: {what}={value!r}: takes a mapping. Write {what}={{"binding": "topic"}}.')
    pairs = []
    for binding, topic in value.items():
        check_name(binding, f"{label}, {what}=")
        pairs.append((binding, check_topic(topic, f"{label}, {what}=")))
    return tuple(pairs)


def _inputs(inputs: Any, alts: Any, label: str) -> tuple[InputShape, Bindings]:
    if inputs is not None and alts is not None:
        raise GraphError(
            f"{label}: inputs= and alts= exclude each other: one of each, or one of any. Drop one of them."
        )
    if alts is not None:
        if isinstance(alts, str):
            raise GraphError(
                f'{label}: alts={alts!r} is one topic. Write inputs={alts!r}, or alts={{"binding": "topic"}}.'
            )
        pairs = _topics(alts, label, "alts")
        shape: InputShape = "alts"
    elif isinstance(inputs, str):
        pairs = ((INPUT, check_topic(inputs, f"{label}, inputs=")),)
        shape = "single"
    elif inputs is not None:
        pairs = _topics(inputs, label, "inputs")
        shape = "join" if len(pairs) > 1 else "single"
    else:
        pairs, shape = (), "single"
    if not pairs:
        raise GraphError(
            f"{label} has no inputs. Give inputs= or alts=; where messages enter the graph, write Source(topic)."
        )
    return shape, pairs


def _outputs(outputs: Any, label: str) -> tuple[OutputShape, Bindings]:
    if outputs is None:
        return "none", ()
    if isinstance(outputs, str):
        return "one", ((OUTPUT, check_topic(outputs, f"{label}, outputs=")),)
    pairs = _topics(outputs, label, "outputs")
    if not pairs:
        raise GraphError(f"{label}: outputs={{}} is empty. Name a topic, or drop outputs= (a sink).")
    return "many", pairs


def _check_settings(processor: Processor, label: str) -> None:
    if not (processor.errors is None or processor.errors is False):
        check_topic(processor.errors, f"{label}, errors=")
    if processor.filter is not None and not callable(processor.filter):
        raise GraphError(
            f"{label}: filter={processor.filter!r} cannot be called. Write filter=has_type(...), or a function."
        )
    if processor.strategy is not None:
        _one_of(processor.strategy, get_args(Strategy), f"{label}: strategy")
    _one_of(processor.start, get_args(Start), f"{label}: start")
    for name, store in processor.state.items():
        check_name(name, f"{label}, state=")
        if not isinstance(store, Store):
            raise GraphError(f"{label}: state= gives {name!r} {store!r}. Write state={{{name!r}: Store()}}.")
    for name in ("effects", "batch"):
        if not isinstance(getattr(processor, name), bool):
            raise GraphError(f"{label}: {name}={getattr(processor, name)!r}: takes True or False.")
    _whole(processor.concurrency, f"{label}: concurrency")
    if processor.retry is not None and not isinstance(processor.retry, Retry):
        raise GraphError(f"{label}: retry={processor.retry!r}. Write retry=Retry(on=(OSError,)).")
    if processor.quarantine_after is not None:
        _whole(processor.quarantine_after, f"{label}: quarantine_after")
    if processor.batch and (processor.input_shape == "alts" or (processor.filter and processor.input_shape == "join")):
        raise GraphError(
            f"{label}: batch=True gets lists of equal length, but here a step may miss bindings. "
            "Drop batch=True, or use inputs= without filter=."
        )


def _check_topics_once(processor: Processor, label: str) -> None:
    reads = "alts" if processor.input_shape == "alts" else "inputs"
    groups = (
        [(reads, pair) for pair in processor.inputs] + [("tailers", pair) for pair in processor.tailers.items()],
        [("outputs", pair) for pair in processor.outputs]
        + [("appenders", pair) for pair in processor.appenders.items()],
    )
    for group in groups:
        seen: dict[str, str] = {}
        for place, (binding, topic) in group:
            if topic in seen:
                raise GraphError(
                    f"{label}: topic {topic!r} is under two bindings, {seen[topic]} and {place}={binding!r}. "
                    "Keep one of them; a second reader of the topic is a processor of its own."
                )
            seen[topic] = f"{place}={binding!r}"
    for topic in (*processor.output_topics, *([processor.errors] if processor.errors else [])):
        if is_owned(topic):
            raise GraphError(f"{label}: only the framework writes topics such as {topic!r}. Choose another topic.")


def _check_concurrency(processor: Processor, label: str) -> None:
    if processor.concurrency > 1 and not processor.call.is_async:
        raise GraphError(
            f"{label}: concurrency={processor.concurrency} is for coroutines, but the function is none. "
            "Write async def, or drop concurrency= and add partitions."
        )
    if processor.concurrency > 1 and processor.batch:
        raise GraphError(f"{label}: batch=True is one call for all messages. Drop concurrency=, or batch=True.")


def _declared(processor: Processor, *, system: Iterable[str] | None) -> Declared:
    places: dict[ContextSource, tuple[str, ...]] = {
        "state": tuple(processor.state),
        "opts": tuple(processor.opts),
        "tailers": tuple(processor.tailers),
        "appenders": tuple(processor.appenders),
        "system": tuple(system or ()),
    }
    return Declared(
        label=f"Processor {processor.name!r}",
        shape=processor.input_shape,
        by_name=processor.by_name,
        inputs=tuple(binding for binding, _ in processor.inputs),
        partial=processor.input_shape == "alts" or (processor.input_shape == "join" and processor.filter is not None),
        output_shape=processor.output_shape,
        outputs=tuple(binding for binding, _ in processor.outputs),
        places=places,
        batch=processor.batch,
        in_graph=system is not None,
    )


@dataclass(frozen=True, slots=True, init=False)
class DataFrameProcessor:
    """
    A function of DataFrames, for the Spark runtime; the native runtime refuses it.

    Attributes:
        fn: takes one DataFrame for each input, returns one, or ``{binding: DataFrame}``.
        name: its name in the graph; the function's own where none is given.
        inputs: (binding, topic) of each input.
        outputs: (binding, topic) of each output.
        output_shape: one or many.
        by_name: whether inputs are passed by name.
        output_mode: Spark's: ``append`` gives rows that are final, ``update`` each row that a batch has changed.
    """

    fn: Callable[..., Any]
    name: str
    inputs: Bindings
    outputs: Bindings
    output_shape: OutputShape
    by_name: bool
    output_mode: OutputMode

    def __init__(
        self,
        fn: Callable[..., Any],
        *,
        inputs: str | Mapping[str, str],
        outputs: str | Mapping[str, str],
        name: str | None = None,
        output_mode: OutputMode = "append",
    ) -> None:
        name = _processor_name(fn, name)
        label = f"DataFrameProcessor {name!r}"
        if output_mode not in ("append", "update"):
            raise GraphError(
                f"{label}: output_mode={output_mode!r}. Choose 'append' (rows that are final) or 'update' (each row "
                "that a batch has changed); 'complete' would write all rows again with every batch."
            )
        check_name(name, label)
        if not callable(fn):
            raise GraphError(f"{label}: {fn!r} cannot be called. Give the function itself as the first argument.")
        _, ins = _inputs(inputs, None, label)
        shape, outs = _outputs(outputs, label)
        if shape == "none":
            raise GraphError(f"{label} has no outputs. Name a topic in outputs=.")
        for topic in (topic for _, topic in outs):
            if is_owned(topic):
                raise GraphError(f"{label}: only the framework writes topics such as {topic!r}. Choose another topic.")
        _settle(
            self,
            fn=fn,
            name=name,
            inputs=ins,
            outputs=outs,
            output_shape=shape,
            by_name=not isinstance(inputs, str),
            output_mode=output_mode,
        )

    @property
    def kind(self) -> str:
        """The kind's name."""
        return "dataframe"

    @property
    def read_topics(self) -> tuple[str, ...]:
        """Topics of the inputs."""
        return tuple(topic for _, topic in self.inputs)

    @property
    def output_topics(self) -> tuple[str, ...]:
        """Topics of the outputs."""
        return tuple(topic for _, topic in self.outputs)

    def arguments(self) -> dict[str, Any]:
        """The arguments that construct an equal processor."""
        return {
            "fn": self.fn,
            "inputs": dict(self.inputs) if self.by_name else self.inputs[0][1],
            "outputs": self.outputs[0][1] if self.output_shape == "one" else dict(self.outputs),
            "name": self.name,
        } | ({} if self.output_mode == "append" else {"output_mode": self.output_mode})


DECORATED = "__cues_processor__"


def processor(**settings: Any) -> Callable[[F], F]:
    """
    Declare a processor where its function is defined; `Graph` takes the function as a part.

    The function stays what it was: it can be called and tested. Nothing is registered.

    Args:
        settings: the arguments of `Processor`.
    """

    def decorate(fn: F) -> F:
        setattr(fn, DECORATED, Processor(fn, **settings))
        return fn

    return decorate


Part: TypeAlias = Source | Processor | DataFrameProcessor | Callable[..., Any]


@dataclass(frozen=True, slots=True, init=False)
class Graph:
    """
    Processors between topics, as data.

    Attributes:
        name: first part of every name that the graph has on the cluster.
        parts: sources and processors as they were declared, in order.
        errors: errors topic of all processors that name none.
        defaults: settings of all topics.
        topics: settings of single topics, over the defaults.
        system: factories of what a worker process opens once and closes at its end, such as a database.
        strategy: strategy of all processors that name none.
        sources: sources by topic.
        processors: processors by name, their calls resolved with `system`.
        dataframes: processors of DataFrames by name.
    """

    name: str
    parts: tuple[Source | Processor | DataFrameProcessor, ...]
    errors: str | None
    defaults: Topic
    topics: Mapping[str, Topic]
    system: Mapping[str, Callable[[], Any]]
    strategy: Strategy
    sources: Mapping[str, Source] = field(compare=False, repr=False)
    processors: Mapping[str, Processor] = field(compare=False, repr=False)
    dataframes: Mapping[str, DataFrameProcessor] = field(compare=False, repr=False)

    def __init__(
        self,
        name: str,
        *parts: Part,
        errors: str | None = None,
        defaults: Topic | None = None,
        topics: Mapping[str, Topic] | None = None,
        system: Mapping[str, Callable[[], Any]] | None = None,
        strategy: Strategy = "exactly-once",
    ) -> None:
        check_name(name, "Graph")
        _settle(
            self,
            name=name,
            parts=tuple(_part(part, name) for part in parts),
            errors=errors,
            defaults=Topic() if defaults is None else defaults,
            topics=_frozen(_mapping(topics, f"Graph {name!r}", "topics")),
            system=_frozen(_mapping(system, f"Graph {name!r}", "system")),
            strategy=strategy,
        )
        _check_graph_settings(self)
        sources, processors, dataframes = _catalogue(self)
        _settle(self, sources=sources, dataframes=dataframes, processors=processors)
        _settle(self, processors=_frozen({name: _resolved(p, self) for name, p in processors.items()}))
        check_wiring(self)
        check_topics(self)

    def topic(self, name: str) -> Topic:
        """A topic's settings: its own over the defaults."""
        own = self.topics.get(name)
        return self.defaults if own is None else own.over(self.defaults)

    def errors_of(self, processor: Processor | str) -> str | None:
        """The errors topic of a processor: its own, else the graph's; None: it has none."""
        own = (self.processors[processor] if isinstance(processor, str) else processor).errors
        return self.errors if own is None else own or None

    def strategy_of(self, processor: Processor | str) -> Strategy:
        """The strategy of a processor: its own, else the graph's."""
        return (self.processors[processor] if isinstance(processor, str) else processor).strategy or self.strategy

    @property
    def default_source(self) -> Source | None:
        """Where `send(message)` goes: the source that says so, else the only one, else None."""
        marked = [source for source in self.sources.values() if source.default]
        candidates = marked or list(self.sources.values())
        return candidates[0] if len(candidates) == 1 else None

    def error_topics(self) -> tuple[str, ...]:
        """All errors topics, sorted. Processors of DataFrames have that of the graph."""
        found = {topic for p in self.processors.values() if (topic := self.errors_of(p))}
        return tuple(sorted(found | ({self.errors} if self.errors and self.dataframes else set())))

    def topics_used(self) -> tuple[str, ...]:
        """All topics that the user named, sorted; the framework's own are not among them."""
        used = {*self.sources, *self.error_topics()}
        for p in self.processors.values():
            used |= {*p.read_topics, *p.output_topics}
        for frame in self.dataframes.values():
            used |= {*frame.read_topics, *frame.output_topics}
        return tuple(sorted(used))

    def topics_written(self) -> tuple[str, ...]:
        """The topics that the graph or its callers write: sources, outputs, appenders, errors; sorted."""
        written = {*self.sources, *self.error_topics()}
        for p in self.processors.values():
            written |= set(p.output_topics)
        for frame in self.dataframes.values():
            written |= set(frame.output_topics)
        return tuple(sorted(written))

    def internal_topics(self) -> tuple[str, ...]:
        """The framework's own topics, processor by processor: backing, replay (with an errors topic), changelogs."""
        names = []
        for p in self.processors.values():
            names.append(backing_topic(self.name, p.name))
            if self.errors_of(p) is not None:
                names.append(replay_topic(self.name, p.name))
            names += [changelog_topic(self.name, p.name, store) for store in p.state]
        return (*names, *(backing_topic(self.name, frame) for frame in self.dataframes))

    def settings(self) -> dict[str, Any]:
        """The keyword arguments that, with name and parts, construct an equal graph."""
        names = ("errors", "defaults", "topics", "system", "strategy")
        return {name: getattr(self, name) for name in names}

    def merge(self, *others: Graph, name: str | None = None) -> Graph:
        """
        One graph of the parts of several; each part keeps the errors topic, strategy and topic settings that it had.

        Raises:
            GraphError: two different parts of one name, or one topic with two settings.
        """
        from cues_kafka.graph.data import merge  # noqa: PLC0415  # it is built on this module

        return merge((self, *others), self.name if name is None else name)

    def bind(
        self, topics: Mapping[str, str] | None = None, *, opts: Mapping[str, Mapping[str, Any]] | None = None
    ) -> Graph:
        """
        The same graph between other topics, or with other options.

        Args:
            topics: new name of each topic to rename.
            opts: for each processor what is merged over its `opts`.

        Raises:
            GraphError: a topic or processor that the graph does not have.
        """
        from cues_kafka.graph.data import rebind  # noqa: PLC0415  # as in `merge`

        return rebind(self, topics or {}, opts or {})

    def to_dict(self) -> dict[str, Any]:
        """
        The graph as data for JSON; functions and classes as ``module:qualname``.

        Raises:
            GraphError: a function that cannot be named so (a lambda, a local function, a partial).
        """
        from cues_kafka.graph.data import to_dict  # noqa: PLC0415  # as in `merge`

        return to_dict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Graph:
        """
        The graph that `to_dict` described. Imports the modules that are named in it: only for data that you trust.

        Raises:
            GraphError: it does not fit, or names something that is not there.
        """
        from cues_kafka.graph.data import from_dict  # noqa: PLC0415  # as in `merge`

        return from_dict(data)

    def isomorphic(self, other: Graph) -> bool:
        """Whether both are the same up to the names of processors and topics."""
        from cues_kafka.graph.topology import isomorphic  # noqa: PLC0415  # as in `merge`

        return isomorphic(self, other)


def _part(part: Any, graph: str) -> Source | Processor | DataFrameProcessor:
    if isinstance(part, Source | Processor | DataFrameProcessor):
        return part
    declared = getattr(part, DECORATED, None)
    if isinstance(declared, Processor):
        return declared
    if isinstance(part, str):
        raise GraphError(f"Graph {graph!r}: {part!r} is no part. Write Source({part!r}) if messages enter there.")
    if callable(part):
        name = getattr(part, "__name__", "fn")
        raise GraphError(
            f"Graph {graph!r}: {name} is a bare function. Write Processor({name}, inputs=..., outputs=...)."
        )
    raise GraphError(
        f"Graph {graph!r}: {part!r} is no part. Give Source(...), Processor(...) or DataFrameProcessor(...)."
    )


def _check_graph_settings(graph: Graph) -> None:
    label = f"Graph {graph.name!r}"
    if not graph.parts:
        raise GraphError(f"{label} has no parts. Give it Source(...) and Processor(...).")
    if graph.errors is not None:
        check_topic(graph.errors, f"{label}, errors=")
        if is_owned(graph.errors):
            raise GraphError(
                f"{label}: only the framework writes topics such as {graph.errors!r}. Choose another topic."
            )
    _one_of(graph.strategy, get_args(Strategy), f"{label}: strategy")
    for name, settings in {"defaults": graph.defaults, **graph.topics}.items():
        if not isinstance(settings, Topic):
            raise GraphError(f"{label}: the settings of {name!r} are {settings!r}. Write Topic(...).")
    for name, factory in graph.system.items():
        check_name(name, f"{label}, system=")
        if not callable(factory):
            raise GraphError(
                f"{label}: system= gives {name!r} {article(type(factory).__name__)}, which a worker cannot open for "
                f"itself. Give a factory: system={{{name!r}: lambda: ...}}."
            )


def _catalogue(
    graph: Graph,
) -> tuple[Mapping[str, Source], Mapping[str, Processor], Mapping[str, DataFrameProcessor]]:
    sources: dict[str, Source] = {}
    processors: dict[str, Processor] = {}
    dataframes: dict[str, DataFrameProcessor] = {}
    for part in graph.parts:
        if isinstance(part, Source):
            if part.topic in sources:
                raise GraphError(f"Graph {graph.name!r}: Source({part.topic!r}) is there twice. Keep one of them.")
            sources[part.topic] = part
            continue
        if part.name in processors or part.name in dataframes:
            raise GraphError(
                f"Graph {graph.name!r}: two processors are called {part.name!r}. Give one of them another name=."
            )
        if isinstance(part, Processor):
            processors[part.name] = part
        else:
            dataframes[part.name] = part
    marked = [source.topic for source in sources.values() if source.default]
    if len(marked) > 1:
        raise GraphError(f"Graph {graph.name!r}: {quoted(marked)} all say default=True. Keep it on one of them.")
    return _frozen(sources), _frozen(processors), _frozen(dataframes)


def _resolved(processor: Processor, graph: Graph) -> Processor:
    """The same processor, its call decided with what the graph's system offers."""
    resolved = processor.replace()
    _settle(resolved, call=bind(processor.fn, _declared(processor, system=graph.system)))
    return resolved

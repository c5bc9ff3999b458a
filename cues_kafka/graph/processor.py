"""`Source`, `Processor`, `DataFrameProcessor` and the decorator `@processor`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, TypeVar, get_args

from cues_kafka.errors import GraphError
from cues_kafka.graph.binding import CallShape, ContextSource, Declared, bind
from cues_kafka.graph.declare import Retry, Store
from cues_kafka.graph.kind import InputShape, OutputShape, kind
from cues_kafka.graph.names import check_name, check_topic, is_owned
from cues_kafka.graph.topic import frozen, one_of, settle, whole

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
    call: CallShape = field(compare=False, repr=False)

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
        settle(
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
            state=frozen(mapping(state, label, "state")),
            opts=frozen(mapping(opts, label, "opts")),
            tailers=frozen(dict(bound_topics(tailers or {}, label, "tailers"))),
            appenders=frozen(dict(bound_topics(appenders or {}, label, "appenders"))),
            effects=effects,
            batch=batch,
            concurrency=concurrency,
            retry=retry,
            start=start,
            quarantine_after=quarantine_after,
        )
        _check_settings(self, label)
        _check_topics_once(self, label)
        settle(self, call=bind(fn, declared_of(self, system=None)))
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


def mapping(value: Any, label: str, what: str) -> Mapping[str, Any]:
    """Names and values of `opts=`, `state=` and their like, checked."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise GraphError(f'{label}: {what}={value!r}: takes a mapping. Write {what}={{"name": ...}}.')
    for name in value:
        if not isinstance(name, str):
            raise GraphError(f"{label}: {what}= has the name {name!r}. Names are strings.")
    return value


def bound_topics(value: Any, label: str, what: str) -> Bindings:
    """Bindings and topics of `tailers=` or `appenders=`, checked."""
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
        pairs = bound_topics(alts, label, "alts")
        shape: InputShape = "alts"
    elif isinstance(inputs, str):
        pairs = ((INPUT, check_topic(inputs, f"{label}, inputs=")),)
        shape = "single"
    elif inputs is not None:
        pairs = bound_topics(inputs, label, "inputs")
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
    pairs = bound_topics(outputs, label, "outputs")
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
        one_of(processor.strategy, get_args(Strategy), f"{label}: strategy")
    one_of(processor.start, get_args(Start), f"{label}: start")
    for name, store in processor.state.items():
        check_name(name, f"{label}, state=")
        if not isinstance(store, Store):
            raise GraphError(f"{label}: state= gives {name!r} {store!r}. Write state={{{name!r}: Store()}}.")
    for name in ("effects", "batch"):
        if not isinstance(getattr(processor, name), bool):
            raise GraphError(f"{label}: {name}={getattr(processor, name)!r}: takes True or False.")
    whole(processor.concurrency, f"{label}: concurrency")
    if processor.retry is not None and not isinstance(processor.retry, Retry):
        raise GraphError(f"{label}: retry={processor.retry!r}. Write retry=Retry(on=(OSError,)).")
    if processor.quarantine_after is not None:
        whole(processor.quarantine_after, f"{label}: quarantine_after")
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


def declared_of(processor: Processor, *, system: Iterable[str] | None) -> Declared:
    """What binding a function has to know of its declaration."""
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
        settle(
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

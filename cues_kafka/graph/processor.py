"""`Source`, `Processor`, `DataFrameProcessor` and the decorator `@processor`."""

from __future__ import annotations

import functools
import re
import types
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Any, Literal, Never, TypeAlias, TypeVar, get_args

from cues_kafka.arguments import known_arguments
from cues_kafka.errors import GraphError
from cues_kafka.graph.binding import CallShape, asked_for, bind
from cues_kafka.graph.blobs import PARQUET, FileTable
from cues_kafka.graph.calls import check_calls, journaled
from cues_kafka.graph.declare import CodecSpec, CommitPolicy, Retry, Store, Table
from cues_kafka.graph.effects import Effect
from cues_kafka.graph.error_message import Errors, check_errors
from cues_kafka.graph.feed import Feed
from cues_kafka.graph.filters import check_filter
from cues_kafka.graph.handler import Handler, StateHandler
from cues_kafka.graph.kind import KINDS, InputShape, OutputShape
from cues_kafka.graph.names import check_name, check_topic, check_written_topic, quoted
from cues_kafka.graph.publish import check_published
from cues_kafka.graph.timers import Timers
from cues_kafka.graph.topic import check_choice, check_count, check_flag, read_only, set_fields

F = TypeVar("F", bound=Callable[..., Any])

INTO = "into"
"""The name of the table that `into=` gives."""

Strategy: TypeAlias = Literal["exactly-once", "at-least-once", "at-most-once"]
SourceLevel: TypeAlias = Literal["at-least-once", "exactly-once"]
Start: TypeAlias = Literal["earliest", "latest"] | datetime | Mapping[int, int]
FrameStart: TypeAlias = Literal["earliest"] | datetime | Mapping[int, int] | Mapping[str, Mapping[int, int]]
OutputMode: TypeAlias = Literal["append", "update"]

Bindings: TypeAlias = tuple[tuple[str, str], ...]
"""(binding, topic) pairs in the order of declaration."""


@known_arguments()
@dataclass(frozen=True, slots=True)
class Source:
    """
    A topic where messages enter the graph: `send` writes to it, and it is created if it is missing.

    Attributes:
        topic: the topic's name. With a pattern, the name by which processors read all of its topics.
        default: whether `send(message)` without a topic writes here. In a graph with one source it always does.
        level: what the applications that write to it promise. `at-least-once`: an application may repeat a message
            after a crash. `exactly-once`: each of them names its messages, `send(..., id=)`, or writes in transactions
            that hold its own place too. Clients with this graph then refuse to send without `id=`.
        pattern: a regular expression of whole names, such as ``sensors[.].+``: the source stands for all topics that
            match it, those that appear later too (docs/graphs.md); empty: it is one topic.
        look_seconds: how often running workers look for new topics of the pattern.
    """

    topic: str
    default: bool = field(default=False, kw_only=True)
    level: SourceLevel = field(default="at-least-once", kw_only=True)
    pattern: str = field(default="", kw_only=True)
    look_seconds: float = field(default=30.0, kw_only=True)

    def __post_init__(self) -> None:
        check_written_topic(self.topic, "Source")
        check_flag(self.default, f"Source({self.topic!r}): default")
        check_choice(self.level, get_args(SourceLevel), f"Source({self.topic!r}): level")
        _check_pattern(self)


def _check_pattern(source: Source) -> None:
    label = f"Source({source.topic!r}, pattern={source.pattern!r})"
    try:
        re.compile(source.pattern)
    except (re.error, TypeError) as error:
        raise GraphError(
            f"{label}: it is no regular expression: {error}. Write such as pattern='sensors[.].+'."
        ) from None
    if source.pattern and source.default:
        raise GraphError(f"{label}: default=True, but messages are sent to a topic. Drop default=.")
    seconds = source.look_seconds
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds > 0:
        raise GraphError(f"{label}: look_seconds={seconds!r}: takes a number of seconds above 0.")


@dataclass(frozen=True, slots=True, init=False)
class BoundFunction:
    """
    A function and the topics that it is bound to; what processors of both kinds have in common.

    Attributes:
        fn: the function.
        name: its name in the graph; by default the function's.
        inputs: (binding, topic) of each input in the order of declaration, also for alts.
        input_shape: single, join (the k-th message of each input) or alts (one of any).
        outputs: (binding, topic) of each output.
        output_shape: none, one (``outputs="topic"``) or many (``outputs={...}``).
        by_name: whether inputs are passed by name.
    """

    fn: Callable[..., Any]
    name: str
    inputs: Bindings
    input_shape: InputShape
    outputs: Bindings
    output_shape: OutputShape
    by_name: bool

    def _bind(self, fn: Callable[..., Any], name: str | None, inputs: Any, alts: Any, outputs: Any) -> None:
        set_fields(self, fn=fn, name=_name_of(fn) if name is None else name)
        check_name(self.name, self.label)
        input_shape, input_bindings = _inputs(inputs, alts, self.label)
        output_shape, output_bindings = _outputs(outputs, self.label)
        set_fields(self, inputs=input_bindings, input_shape=input_shape, by_name=not isinstance(inputs, str))
        set_fields(self, outputs=output_bindings, output_shape=output_shape)

    @property
    def label(self) -> str:
        """How error messages name the processor."""
        return f"{type(self).__name__} {self.name!r}"

    @property
    def inputs_word(self) -> str:
        """The argument that declared the inputs: inputs or alts."""
        return "alts" if self.input_shape == "alts" else "inputs"

    @property
    def input_topics(self) -> tuple[str, ...]:
        """Topics of the inputs, in order."""
        return tuple(topic for _, topic in self.inputs)

    @property
    def read_topics(self) -> tuple[str, ...]:
        """All topics that it reads."""
        return self.input_topics

    @property
    def output_topics(self) -> tuple[str, ...]:
        """All topics that it writes, without its errors topic."""
        return tuple(topic for _, topic in self.outputs)

    def offsets_of(self, binding: str) -> Mapping[int, int]:
        """The offsets that `start=` names of this input's partitions; empty if it names none."""
        start: Any = getattr(self, "start", None)
        if not isinstance(start, Mapping):
            return {}
        return start.get(binding, {}) if len(self.inputs) > 1 else start

    def arguments(self) -> dict[str, Any]:
        """The arguments that construct an equal processor; those that equal a default are left out."""
        own: dict[str, Any] = {"fn": self.fn, "name": self.name}
        own[self.inputs_word] = dict(self.inputs) if self.by_name else self.inputs[0][1]
        if self.outputs:
            own["outputs"] = dict(self.outputs) if self.output_shape == "many" else self.outputs[0][1]
        settings = {f.name: getattr(self, f.name) for f in fields(self) if f.name in _DEFAULTS}
        return own | {name: setting for name, setting in settings.items() if setting != _DEFAULTS[name]}


_DEFAULTS: dict[str, Any] = {
    **dict.fromkeys(("errors", "filter", "strategy", "retry", "commit", "into", "renamed_from")),
    **{name: {} for name in ("state", "tables", "opts", "tailers", "appenders")},
    **dict.fromkeys(("effects", "batch"), False),
    "concurrency": 1,
    "start": "earliest",
    "quarantine_after": 2,
    "output_mode": "append",
}


@known_arguments()
@dataclass(frozen=True, slots=True, init=False)
class Processor(BoundFunction):
    """
    A function between topics.

    Attributes:
        errors: the errors topic, or `Errors`; None: the graph's; False: no errors topic, even if the graph has one.
        filter: which messages are passed to the function; the others are delivered as nil. Where the headers alone
            decide, a message that is left out is not decoded.
        strategy: None: the graph's. `docs/strategies.md` says what each promises; native workers run all three.
        state: stores by name.
        tables: topics that the function looks up by key, by name; in `inputs=`, too, they may stand.
        opts: plain values by name.
        tailers: topics that the function reads at will, by the name of a `Tailer`; any topic, an input too.
        appenders: topics that the function writes at will, by the name of an `Appender`.
        effects: whether the function does something outside of Kafka; a sink always counts as one. Or what it acts on,
            by name, such as a database.
        batch: whether the function gets lists.
        concurrency: how many calls of an ``async def`` may run at once.
        retry: which exceptions are retried.
        commit: when its batches are committed at the latest; None: as the runtime is told.
        start: where a processor that has never run begins: `earliest`, `latest`, at the first message that is not
            older than a time, or at an offset of each partition of its only input.
        quarantine_after: after how many deaths of its process a message becomes an error message; None: never.
        renamed_from: its former name, for texts that name the command. Only `cues-kafka rename` moves it; afterwards
            this may be left out.
        call: how `fn` is called.
        timer_call: how the function of its `Timers` is called; None: it has none.
    """

    errors: str | Errors | Literal[False] | None
    filter: Callable[[Any], bool] | None
    strategy: Strategy | None
    state: Mapping[str, Store]
    tables: Mapping[str, Table]
    opts: Mapping[str, Any]
    tailers: Mapping[str, str]
    appenders: Mapping[str, str]
    effects: bool | Mapping[str, Effect]
    batch: bool
    concurrency: int
    retry: Retry | None
    commit: CommitPolicy | None
    start: Start
    quarantine_after: int | None
    renamed_from: str | None
    call: CallShape = field(compare=False, repr=False)
    timer_call: CallShape | None = field(compare=False, repr=False)

    def __init__(
        self,
        fn: Callable[..., Any],
        *,
        inputs: str | Mapping[str, str | Table] | None = None,
        alts: Mapping[str, str] | None = None,
        outputs: str | Mapping[str, str] | None = None,
        errors: str | Errors | Literal[False] | None = None,
        filter: Callable[[Any], bool] | None = None,  # noqa: A002  # Cues' word
        strategy: Strategy | None = None,
        state: Mapping[str, Store] | None = None,
        tables: Mapping[str, Table] | None = None,
        opts: Mapping[str, Any] | None = None,
        tailers: Mapping[str, str] | None = None,
        appenders: Mapping[str, str] | None = None,
        effects: bool | Mapping[str, Effect] = False,
        batch: bool = False,
        concurrency: int = 1,
        retry: Retry | None = None,
        commit: CommitPolicy | None = None,
        start: Start = "earliest",
        quarantine_after: int | None = 2,
        renamed_from: str | None = None,
        name: str | None = None,
    ) -> None:
        inputs, among = _without_tables(inputs)
        self._bind(fn, name, inputs, alts, outputs)
        label = self.label
        set_fields(
            self,
            tables=read_only({**among, **check_mapping(tables, f"{label}: tables")}),
            errors=errors,
            filter=filter,
            strategy=strategy,
            state=check_mapping(state, f"{label}: state"),
            opts=check_mapping(opts, f"{label}: opts"),
            tailers=read_only(dict(_bound_topics(tailers or {}, label, "tailers"))),
            appenders=read_only(dict(_bound_topics(appenders or {}, label, "appenders", check_written_topic))),
            effects=_acted_on(effects, label),
            batch=batch,
            concurrency=concurrency,
            retry=retry,
            commit=commit,
            start=_fixed_place(start),
            quarantine_after=quarantine_after,
            renamed_from=renamed_from,
        )
        _check_settings(self, label)
        _check_topics_once(self, label)
        set_fields(self, call=bind(self), timer_call=bind_timers(self))
        _check_concurrency(self, label)

    @property
    def kind(self) -> str:
        """The kind's name: pipe, fork, join-sink and so on."""
        name = KINDS[self.input_shape, self.output_shape]
        return f"imperative {name}" if self.imperative else name

    @property
    def may_miss_bindings(self) -> bool:
        """Whether a call may get fewer messages than there are inputs: alts, or a join with a filter."""
        return self.input_shape == "alts" or (self.input_shape == "join" and self.filter is not None)

    @property
    def lead(self) -> str:
        """Topic of the first input, which the group subscribes to (A1)."""
        return self.inputs[0][1]

    @property
    def read_topics(self) -> tuple[str, ...]:
        """Topics of the inputs, then of the tables and of the tailers."""
        return (*self.input_topics, *(table.topic for table in self.tables.values()), *self.tailers.values())

    @property
    def output_topics(self) -> tuple[str, ...]:
        """Topics of the outputs, then of the appenders."""
        return (*(topic for _, topic in self.outputs), *self.appenders.values())

    @property
    def timers(self) -> tuple[str, Timers] | None:
        """Its timers with their name in `state=`; None: it has none."""
        return next(((name, one) for name, one in self.state.items() if isinstance(one, Timers)), None)

    @property
    def imperative(self) -> bool:
        """Whether its function reads or writes topics by itself."""
        return bool(self.tailers or self.appenders)

    @property
    def has_effects(self) -> bool:
        """Whether it does something outside of Kafka: it is declared so, or it writes to no topic."""
        return bool(self.effects) or not (self.outputs or self.appenders)

    @property
    def targets(self) -> Mapping[str, Effect]:
        """What its function acts on besides Kafka, by name."""
        return {} if isinstance(self.effects, bool) else self.effects

    @property
    def target(self) -> tuple[str, Effect] | None:
        """The first that commits what the function writes together with the attempt (E1); None: no target does."""
        return next(((name, one) for name, one in self.targets.items() if one.transactional), None)

    @property
    def placed(self) -> bool:
        """Whether what its function acts on must be told which message the function is called with."""
        return any(one.placed for one in self.targets.values())

    @property
    def calls(self) -> Mapping[str, Effect]:
        """Those of them of which each step gets its own, which knows the step (E4), by name."""
        return {name: one for name, one in self.targets.items() if one.stepwise}

    @property
    def journaled(self) -> bool:
        """Whether answers to its calls are kept in a journal topic (E4)."""
        return journaled(self.targets)

    def replace(self, **changes: Any) -> Processor:
        """The same declaration with other arguments, validated again."""
        return Processor(**{**self.arguments(), **changes})


def bind_timers(processor: Processor, system: Iterable[str] | None = None) -> CallShape | None:
    """
    Decide how the function of a processor's timers is called: with the timer, and by name with what it asks for.

    Raises:
        GraphError: see `bind`.
    """
    if processor.timers is None:
        return None
    own, timers = processor.timers
    asked, everything = asked_for(timers.fn)

    def kept(given: Mapping[str, Any]) -> dict[str, Any]:
        return {name: one for name, one in given.items() if name != own and (everything or name in asked)}

    outputs = dict(processor.outputs) if processor.output_shape == "many" else next(iter(processor.output_topics), None)
    try:
        stands_in = Processor(
            timers.fn,
            inputs=processor.lead,
            outputs=outputs,
            state=kept(processor.state),
            tables=kept(processor.tables),
            opts=kept(processor.opts),
            name=processor.name,
        )
        return bind(stands_in, system)
    except GraphError as error:
        raise GraphError(f"{timers!r}, which is called with a timer: {error}") from None


def _name_of(fn: Any) -> str:
    if isinstance(fn, str):
        raise GraphError(f"Processor({fn!r}): a name is not a function. Write Processor(function, name={fn!r}, ...).")
    while isinstance(fn, functools.partial):
        fn = fn.func
    name = str(getattr(fn, "__name__", None) or type(fn).__name__)
    if name == "<lambda>":
        raise GraphError('A lambda has no name of its own. Write Processor(lambda ..., name="...").')
    return name


def check_mapping(value: Any, what: str) -> Mapping[str, Any]:
    """A read-only copy of `opts=`, `state=` or another mapping by name; empty for None."""
    if value is None:
        return read_only({})
    if not isinstance(value, Mapping):
        raise GraphError(f'{what}={value!r}: takes a mapping. Write {what.rpartition(" ")[2]}={{"name": ...}}.')
    for name in value:
        if not isinstance(name, str):
            raise GraphError(f"{what}= has the name {name!r}. Names are strings.")
    return read_only(value)


def _bound_topics(value: Any, label: str, what: str, check: Callable[[object, str], str] = check_topic) -> Bindings:
    place = f"{label}, {what}="
    if not isinstance(value, Mapping):
        raise GraphError(f'{label}: {what}={value!r}: takes a mapping. Write {what}={{"binding": "topic"}}.')
    return tuple((check_name(binding, place), check(topic, place)) for binding, topic in value.items())


def _inputs(inputs: Any, alts: Any, label: str) -> tuple[InputShape, Bindings]:
    shape: InputShape = "single"
    pairs: Bindings = ()
    if inputs is not None and alts is not None:
        raise GraphError(f"{label}: inputs= (one of each) and alts= (one of any) exclude each other. Drop one of them.")
    if isinstance(alts, str):
        raise GraphError(f'{label}: alts={alts!r} is one topic. Write inputs={alts!r}, or alts={{"binding": "topic"}}.')
    if alts is not None:
        shape, pairs = "alts", _bound_topics(alts, label, "alts")
    elif isinstance(inputs, str):
        pairs = (("input", check_topic(inputs, f"{label}, inputs=")),)
    elif inputs is not None:
        pairs = _bound_topics(inputs, label, "inputs")
        shape = "join" if len(pairs) > 1 else "single"
    if not pairs:
        raise GraphError(
            f"{label} has no inputs. Give inputs= or alts=; where messages enter the graph, write Source(topic)."
        )
    return shape, pairs


def _without_tables(inputs: Any) -> tuple[Any, dict[str, Table]]:
    """The inputs whose messages cause calls, and the tables among them."""
    if not isinstance(inputs, Mapping):
        return inputs, {}
    tables = {name: one for name, one in inputs.items() if isinstance(one, Table)}
    return {name: one for name, one in inputs.items() if name not in tables}, tables


def _outputs(outputs: Any, label: str) -> tuple[OutputShape, Bindings]:
    if outputs is None:
        return "none", ()
    if isinstance(outputs, str):
        return "one", (("output", check_written_topic(outputs, f"{label}, outputs=")),)
    pairs = _bound_topics(outputs, label, "outputs", check_written_topic)
    if not pairs:
        raise GraphError(f"{label}: outputs={{}} is empty. Name a topic, or drop outputs= (a sink).")
    return "many", pairs


def _fixed_place(start: Any) -> Any:
    """A place in which nothing can be changed any more."""
    if not isinstance(start, Mapping):
        return start
    return types.MappingProxyType({key: _fixed_place(item) for key, item in start.items()})


def _kept(given: object) -> str:
    """How to declare as state what was given in place of a store."""
    if isinstance(given, CodecSpec):
        return f"Store({type(given).__name__}(...))"
    made = given if isinstance(given, type) else type(given)
    return f"Handler({made.__name__})" if issubclass(made, StateHandler) else "Store()"


def _check_settings(processor: Processor, label: str) -> None:
    check_errors(processor.errors, f"{label}, errors=")
    check_filter(processor.filter, label)
    if processor.strategy is not None:
        check_choice(processor.strategy, get_args(Strategy), f"{label}: strategy")
    _check_start(processor, label)
    _check_held(processor, label)
    _check_timers(processor, label)
    _check_targets(processor, label)
    check_flag(processor.batch, f"{label}: batch")
    check_count(processor.concurrency, f"{label}: concurrency")
    if processor.state and processor.concurrency > 1:
        raise GraphError(
            f"{label}: state= with concurrency={processor.concurrency}: steps that run side by side would see each "
            "other's changes. Drop one of them."
        )
    if processor.batch and any(isinstance(store, Handler) for store in processor.state.values()):
        raise GraphError(
            f"{label}: a Handler with batch=True: where one message fails, its steps are called again one by one. Have "
            "the function take one message."
        )
    _check_imperative(processor, label)
    _check_policies(processor, label)
    if processor.quarantine_after is not None:
        check_count(processor.quarantine_after, f"{label}: quarantine_after")
    _check_former_name(processor, label)
    if processor.batch and processor.may_miss_bindings:
        raise GraphError(
            f"{label}: batch=True gets lists of equal length, but here a step may miss bindings. "
            "Drop batch=True, or use inputs= without filter=."
        )


def _check_former_name(processor: Processor, label: str) -> None:
    if processor.renamed_from is None:
        return
    if check_name(processor.renamed_from, f"{label}: renamed_from") == processor.name:
        raise GraphError(
            f"{label}: renamed_from={processor.renamed_from!r} is its name now. Write its former name, or leave it out."
        )


def _acted_on(effects: Any, label: str) -> bool | Mapping[str, Effect]:
    if isinstance(effects, bool):
        return effects
    if not isinstance(effects, Mapping):
        raise GraphError(
            f'{label}: effects={effects!r}. Write True or False, or what it acts on: effects={{"db": Sql("...")}}.'
        )
    return check_mapping(effects, f"{label}: effects")


def _check_held(processor: Processor, label: str) -> None:
    for name, store in processor.state.items():
        check_name(name, f"{label}, state=")
        if not isinstance(store, Store):
            raise GraphError(f"{label}: state= gives {name!r} {store!r}. Write state={{{name!r}: {_kept(store)}}}.")
    for name, table in processor.tables.items():
        check_name(name, f"{label}, tables=")
        if not isinstance(table, Table):
            raise GraphError(f'{label}: tables= gives {name!r} {table!r}. Write tables={{{name!r}: Table("topic")}}.')
        check_topic(table.topic, f"{label}, tables=")


def _check_targets(processor: Processor, label: str) -> None:
    for name, one in processor.targets.items():
        check_name(name, f"{label}, effects=")
        if not isinstance(one, Effect):
            raise GraphError(
                f'{label}: effects= gives {name!r} something that is no target. Write effects={{{name!r}: Sql("...")}}.'
            )
    check_calls(label, processor.targets, batch=processor.batch)
    check_published(
        label,
        processor.targets,
        together={
            "state=": bool(processor.state),
            "batch=True": bool(processor.batch),
            "concurrency=": processor.concurrency > 1,
            "a database or a store": any(one.transactional for one in processor.targets.values()),
            f"strategy={processor.strategy!r}": processor.strategy not in (None, "exactly-once"),
        },
    )
    found = [name for name, one in processor.targets.items() if one.transactional]
    if len({processor.targets[name].home for name in found}) > 1:
        raise GraphError(
            f"{label}: effects= has several databases or stores, {quoted(found)}: no transaction spans two of them. "
            "Write to one, and have a second processor write to the other."
        )
    _check_placed(processor, label)
    if found and processor.concurrency > 1:
        raise GraphError(
            f"{label}: effects= with a database or a store and concurrency={processor.concurrency}: steps that run "
            "side by side would share one transaction. Drop concurrency=, and add partitions."
        )
    if found and any(isinstance(store, Handler) for store in processor.state.values()):
        raise GraphError(
            f"{label}: a Handler beside a database or a store: where that is ahead after a death, its outcome is "
            "published without a call, and the handler would not see it. Use Store."
        )
    if found and processor.strategy not in (None, "exactly-once"):
        raise GraphError(f"{label}: a database or a store with strategy={processor.strategy!r}. Leave strategy= out.")


def _check_placed(processor: Processor, label: str) -> None:
    """Refuse an upsert where the place of the messages says nothing about their order."""
    name = next((name for name, one in processor.targets.items() if one.placed), None)
    if name is None:
        return
    if processor.input_shape != "single":
        raise GraphError(
            f"{label}: effects= has the upsert {name!r}, whose rows tell older from newer by the offset of their "
            f"message, and a step of {processor.inputs_word}= has several inputs. Have another processor read the "
            "inputs, and write the topic that this one reads."
        )
    if processor.timers is not None:
        raise GraphError(
            f"{label}: effects= has the upsert {name!r}, and state= has Timers. A timer has no offset that tells older "
            "from newer. Have the function of the timer send a message, and upsert in the processor that reads it."
        )


def _check_timers(processor: Processor, label: str) -> None:
    found = [name for name, store in processor.state.items() if isinstance(store, Timers)]
    if len(found) > 1:
        raise GraphError(f"{label}: state= has several Timers, {quoted(found)}. Keep one, and tell by the timer's key.")
    if found and processor.batch:
        raise GraphError(
            f"{label}: Timers with batch=True: a timer must fire before the message behind it, and a list has both. "
            "Have the function take one message."
        )
    if found and any(isinstance(store, Handler) for store in processor.state.values()):
        raise GraphError(f"{label}: Timers with a Handler: only stores are taken back where a timer fails. Use Store.")


def _check_imperative(processor: Processor, label: str) -> None:
    """Refuse what does not go with moves and appends that belong to one step (L1)."""
    if not processor.imperative:
        return
    which = "tailers" if processor.tailers else "appenders"
    if processor.batch:
        raise GraphError(
            f"{label}: {which}= with batch=True: which step of a list has moved or appended is not known. Have the "
            "function take one message: drop batch=True."
        )
    if processor.concurrency > 1:
        raise GraphError(
            f"{label}: {which}= with concurrency={processor.concurrency}: steps that run side by side would share one "
            "place. Drop concurrency=, and add partitions."
        )
    if any(isinstance(store, Handler) for store in processor.state.values()):
        raise GraphError(
            f"{label}: {which}= with a Handler: where a step fails, those before it are called again for the handler, "
            "and would move and append again. Use Store."
        )


def _check_start(processor: Processor, label: str) -> None:
    if not isinstance(processor.start, str) and processor.input_shape != "single":
        raise GraphError(
            f"{label}: start={processor.start!r} is for a processor with one input. Write start='earliest' or "
            "'latest'; to begin elsewhere, create the topics with `cues-kafka plan MODULE:GRAPH --apply`, then "
            "use `cues-kafka reset MODULE:GRAPH PROCESSOR --to FILE`."
        )
    _check_place(processor.start, label, ("earliest", "latest"))


def _check_place(start: Any, label: str, words: tuple[str, ...]) -> None:
    if isinstance(start, datetime):
        if start.tzinfo is None:
            raise GraphError(f"{label}: start={start!r} has no zone. Write datetime(..., tzinfo=UTC).")
    elif not isinstance(start, Mapping):
        check_choice(start, words, f"{label}: start")
    else:
        whole = [number for pair in start.items() for number in pair]
        if not whole or any(not isinstance(number, int) or isinstance(number, bool) or number < 0 for number in whole):
            raise GraphError(
                f"{label}: start={dict(start)!r}. Write the offset of each partition: start={{0: 17, 1: 4}}."
            )


def _check_policies(processor: Processor, label: str) -> None:
    if not isinstance(processor.retry, Retry | None):
        raise GraphError(f"{label}: retry={processor.retry!r}. Write retry=Retry(on=(OSError,)).")
    if not isinstance(processor.commit, CommitPolicy | None):
        raise GraphError(f"{label}: commit={processor.commit!r}. Write commit=CommitPolicy(max_messages=1_000).")


def _check_topics_once(processor: Processor, label: str) -> None:
    for places in (
        {
            processor.inputs_word: processor.inputs,
            "tables": [(name, table.topic) for name, table in processor.tables.items()],
        },
        {"outputs": processor.outputs, "appenders": processor.appenders.items()},
    ):
        seen: dict[str, str] = {}
        for place, binding, topic in [(place, *pair) for place, pairs in places.items() for pair in pairs]:
            if topic in seen:
                raise GraphError(
                    f"{label}: topic {topic!r} is under two bindings, {seen[topic]} and {place}={binding!r}. "
                    "Keep one of them; a second reader of the topic is a processor of its own."
                )
            seen[topic] = f"{place}={binding!r}"


def _check_concurrency(processor: Processor, label: str) -> None:
    if processor.concurrency > 1 and not processor.call.is_async:
        raise GraphError(
            f"{label}: concurrency={processor.concurrency} needs a coroutine function, which this is not. "
            "Write async def, or drop concurrency= and add partitions."
        )
    if processor.concurrency > 1 and processor.batch:
        raise GraphError(f"{label}: batch=True is one call for all messages. Drop concurrency=, or batch=True.")


@known_arguments()
@dataclass(frozen=True, slots=True, init=False)
class DataFrameProcessor(BoundFunction):
    """
    A function of DataFrames, for the Spark runtime; the native runtime refuses it.

    The function takes one DataFrame for each input, and returns one or ``{binding: DataFrame}``. Its rows become
    messages of `outputs`, or rows of Parquet files.

    Attributes:
        into: the table of files that its rows go to, `Blobs(...).parquet(...)` (E5); None: they go to `outputs`.
        output_mode: Spark's: ``append`` writes rows that are final, ``update`` each row that a batch has changed.
        start: where a processor that has never run begins: `earliest`, at the first message that is not older than a
            time, or at an offset of each partition; with several inputs, of each partition by binding.
    """

    into: FileTable | None
    output_mode: OutputMode
    start: FrameStart

    def __init__(
        self,
        fn: Callable[..., Any],
        *,
        inputs: str | Mapping[str, str],
        outputs: str | Mapping[str, str] | None = None,
        into: FileTable | None = None,
        name: str | None = None,
        output_mode: OutputMode = "append",
        start: FrameStart = "earliest",
    ) -> None:
        self._bind(fn, name, inputs, None, outputs)
        set_fields(self, into=into, output_mode=output_mode, start=_fixed_place(start))
        if output_mode not in get_args(OutputMode):
            raise GraphError(
                f"{self.label}: output_mode={output_mode!r}. Choose 'append' (rows that are final) or 'update' (each "
                "row that a batch has changed). 'complete' would write all rows again with every batch."
            )
        if not callable(fn):
            raise GraphError(f"{self.label}: {fn!r} cannot be called. Give the function itself as the first argument.")
        self._check_results()
        self._check_start()

    def _check_results(self) -> None:
        if self.into is None:
            if not self.outputs:
                raise GraphError(
                    f"{self.label} has no outputs. Name a topic in outputs=, or a table of files in "
                    'into=Blobs(...).parquet("name").'
                )
            return
        if not isinstance(self.into, FileTable) or self.into.format != PARQUET:
            shown = self.into.title(INTO) if isinstance(self.into, Effect) else repr(self.into)
            raise GraphError(
                f"{self.label}: into= gives {shown:.200}, and Spark writes Parquet files only. Write "
                'into=Blobs("s3://bucket/prefix").parquet("name"), or outputs= and a Sink that reads that topic.'
            )
        if self.outputs:
            raise GraphError(
                f"{self.label} has outputs= and into=, and no transaction spans both. Keep one of them; a second "
                "processor that reads the topic of outputs= writes the files."
            )

    @property
    def targets(self) -> Mapping[str, Effect]:
        """Where its rows go besides Kafka, by name."""
        return {} if self.into is None else {INTO: self.into}

    @property
    def results(self) -> tuple[str, ...]:
        """The names of the DataFrames that the function returns."""
        return tuple(binding for binding, _ in self.outputs) or (INTO,)

    def _check_start(self) -> None:
        bindings = dict(self.inputs)
        if not isinstance(self.start, Mapping) or len(bindings) == 1:
            _check_place(self.start, self.label, ("earliest",))
            return
        if set(self.start) != set(bindings):
            raise GraphError(
                f"{self.label}: start={self.start!r} does not name its inputs {quoted(bindings)}. Write "
                f"start={{{next(iter(bindings))!r}: {{0: 17, 1: 4}}, ...}}."
            )
        for binding, place in self.start.items():
            _check_place(place, f"{self.label}, {binding!r}", ())

    @property
    def kind(self) -> str:
        """The kind's name."""
        return "dataframe"


Declaration: TypeAlias = Source | Feed | Processor | DataFrameProcessor
"""A part of a graph."""

DECORATED = "__cues_processor__"


def processor(*refused: Never, **settings: Any) -> Callable[[F], F]:
    """
    Declare a processor where its function is defined; `Graph` takes the function as a part.

    The function is not changed: it can be called and tested as before, and nothing is registered.

    Args:
        refused: nothing.
        settings: the arguments of `Processor`.

    Raises:
        GraphError: it stands without arguments.
    """
    if refused:
        raise GraphError('@processor needs to know what the function reads. Write @processor(inputs="topic").')

    def decorate(fn: F) -> F:
        setattr(fn, DECORATED, Processor(fn, **settings))
        return fn

    return decorate

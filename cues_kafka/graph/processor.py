"""`Source` and `Processor`, the parts of a graph of plain functions, and the decorator `@processor`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Never, TypeAlias, TypeVar, get_args

from cues_kafka.arguments import known_arguments
from cues_kafka.errors import GraphError
from cues_kafka.graph.batch_form import BatchForm
from cues_kafka.graph.binding import CallShape, asked_for, bind
from cues_kafka.graph.bound import bound_topics, check_mapping, fixed_place
from cues_kafka.graph.dataframe import DataFrameProcessor
from cues_kafka.graph.declare import CommitPolicy, Retry, Store, Table
from cues_kafka.graph.effects import Effect
from cues_kafka.graph.error_message import Errors
from cues_kafka.graph.feed import Feed
from cues_kafka.graph.names import check_written_topic
from cues_kafka.graph.processor_checks import check_settings, check_topics_once
from cues_kafka.graph.processor_fields import ProcessorFields, Start, Strategy
from cues_kafka.graph.topic import check_choice, check_flag, read_only, set_fields

F = TypeVar("F", bound=Callable[..., Any])

SourceLevel: TypeAlias = Literal["at-least-once", "exactly-once"]


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
            f"{label}: it is not a regular expression: {error}. Write such as pattern='sensors[.].+'."
        ) from None
    if source.pattern and source.default:
        raise GraphError(f"{label}: default=True, but messages are sent to a topic. Drop default=.")
    seconds = source.look_seconds
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds > 0:
        raise GraphError(f"{label}: look_seconds={seconds!r}: takes a number of seconds above 0.")


@known_arguments()
@dataclass(frozen=True, slots=True, init=False)
class Processor(ProcessorFields):
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
        trail: the topic that gets one record for each step that ends: what it consumed, and how it ended.
        effects: whether the function does something outside of Kafka; a sink always counts as one. Or what it acts on,
            by name, such as a database.
        batch: whether the function gets lists of messages, True, or their columns, "arrow": then it gets and returns
            `pyarrow.RecordBatch`, see docs/columns.md.
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
        trail: str | None = None,
        effects: bool | Mapping[str, Effect] = False,
        batch: BatchForm = False,
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
            tailers=read_only(dict(bound_topics(tailers or {}, label, "tailers"))),
            appenders=read_only(dict(bound_topics(appenders or {}, label, "appenders", check_written_topic))),
            trail=None if trail is None else check_written_topic(trail, f"{label}: trail"),
            effects=_acted_on(effects, label),
            batch=batch,
            concurrency=concurrency,
            retry=retry,
            commit=commit,
            start=fixed_place(start),
            quarantine_after=quarantine_after,
            renamed_from=renamed_from,
        )
        check_settings(self, label)
        check_topics_once(self, label)
        set_fields(self, call=bind(self), timer_call=bind_timers(self))
        _check_concurrency(self, label)

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

    written = (*(topic for _, topic in processor.outputs), *processor.appenders.values())
    outputs = dict(processor.outputs) if processor.output_shape == "many" else next(iter(written), None)
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


def _without_tables(inputs: Any) -> tuple[Any, dict[str, Table]]:
    """The inputs whose messages cause calls, and the tables among them."""
    if not isinstance(inputs, Mapping):
        return inputs, {}
    tables = {name: one for name, one in inputs.items() if isinstance(one, Table)}
    return {name: one for name, one in inputs.items() if name not in tables}, tables


def _acted_on(effects: Any, label: str) -> bool | Mapping[str, Effect]:
    if isinstance(effects, bool):
        return effects
    if not isinstance(effects, Mapping):
        raise GraphError(
            f'{label}: effects={effects!r}. Write True or False, or what it acts on: effects={{"db": Sql("...")}}.'
        )
    return check_mapping(effects, f"{label}: effects")


def _check_concurrency(processor: Processor, label: str) -> None:
    if processor.concurrency > 1 and not processor.call.is_async:
        raise GraphError(
            f"{label}: concurrency={processor.concurrency} needs a coroutine function, which this is not. "
            "Write async def, or drop concurrency= and add partitions."
        )
    if processor.concurrency > 1 and processor.batch:
        raise GraphError(
            f"{label}: batch={processor.batch!r} is one call for all messages. Drop concurrency=, or batch=."
        )


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

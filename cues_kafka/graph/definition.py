"""`Graph`: sources, processors and topics together; frozen, and validated when it is constructed.

A declaration is plain data. What was written is kept as it was written (`Graph.parts`); what follows from it, with the
graph's defaults filled in, is `Graph.processors` and `Graph.topic`. Cycles are allowed (a crawler feeds itself):
`topology.cycles` finds them, and a plan says that they are there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias, get_args

from cues_kafka.errors import GraphError
from cues_kafka.graph.binding import bind
from cues_kafka.graph.names import (
    backing_topic,
    changelog_topic,
    check_name,
    check_topic,
    is_owned,
    quoted,
    replay_topic,
)
from cues_kafka.graph.processor import DECORATED, DataFrameProcessor, Processor, Source, Strategy, declared_of, mapping
from cues_kafka.graph.topic import Topic, frozen, one_of, settle
from cues_kafka.graph.wiring import check_topics, check_wiring
from cues_kafka.words import article

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
        settle(
            self,
            name=name,
            parts=tuple(_part(part, name) for part in parts),
            errors=errors,
            defaults=Topic() if defaults is None else defaults,
            topics=frozen(mapping(topics, f"Graph {name!r}", "topics")),
            system=frozen(mapping(system, f"Graph {name!r}", "system")),
            strategy=strategy,
        )
        _check_graph_settings(self)
        sources, processors, dataframes = _catalogue(self)
        settle(self, sources=sources, dataframes=dataframes, processors=processors)
        settle(self, processors=frozen({name: _resolved(p, self) for name, p in processors.items()}))
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
    one_of(graph.strategy, get_args(Strategy), f"{label}: strategy")
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
    return frozen(sources), frozen(processors), frozen(dataframes)


def _resolved(processor: Processor, graph: Graph) -> Processor:
    """The same processor, its call decided with what the graph's system offers."""
    resolved = processor.replace()
    settle(resolved, call=bind(processor.fn, declared_of(processor, system=graph.system)))
    return resolved

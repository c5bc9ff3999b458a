"""`Graph`: sources, processors and topics together; frozen, and validated when it is constructed.

`Graph.parts` holds the declaration as it was written; `Graph.processors` and `Graph.topic` add the graph's defaults.
Cycles are allowed, since a crawler feeds itself; `Graph.topology.cycles` has them, and a plan warns of them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeAlias, get_args

from cues_kafka.arguments import known_arguments
from cues_kafka.errors import GraphError
from cues_kafka.graph.binding import bind
from cues_kafka.graph.bound import check_mapping
from cues_kafka.graph.dataframe import DataFrameProcessor
from cues_kafka.graph.dependencies import Topology
from cues_kafka.graph.durations import written
from cues_kafka.graph.error_message import Errors, check_errors
from cues_kafka.graph.feed import Feed
from cues_kafka.graph.graph_parts import GraphParts
from cues_kafka.graph.names import check_name, prefixed, quoted
from cues_kafka.graph.processor import DECORATED, Declaration, Processor, Source, bind_timers
from cues_kafka.graph.processor_fields import Strategy
from cues_kafka.graph.topic import Topic, check_choice, read_only, set_fields
from cues_kafka.graph.wiring import check_topics, check_wiring
from cues_kafka.words import article

Part: TypeAlias = Declaration | Callable[..., Any]


@known_arguments()
@dataclass(frozen=True, slots=True, init=False)
class Graph(GraphParts):
    """
    Processors between topics, as data.

    Attributes:
        name: first part of every name that the graph has on the cluster; `prefix` is in it.
        prefix: what all names begin with that the graph gives to topics, groups and transactional ids of its own, such
            as "team-x."; topics that the user names keep their names.
        parts: sources and processors as they were declared, in order.
        errors: errors topic of all processors without one of their own, or `Errors`, which also says what its messages
            carry.
        defaults: settings of all topics.
        topics: settings of single topics, over the defaults.
        system: factories of objects that a worker process opens once and closes at its end, such as a database.
        strategy: strategy of all processors without one of their own.
        cuts: how long a cut of the whole graph can be gone back to, such as "7 days"; None: no cuts are taken.
        sources: sources by topic.
        processors: processors by name, their calls resolved with `system`.
        dataframes: processors of DataFrames by name.
        feeds: feeds by name.
    """

    def __init__(
        self,
        name: str,
        *parts: Part,
        errors: str | Errors | None = None,
        defaults: Topic | None = None,
        topics: Mapping[str, Topic] | None = None,
        system: Mapping[str, Callable[[], Any]] | None = None,
        strategy: Strategy = "exactly-once",
        cuts: str | timedelta | None = None,
        prefix: str = "",
    ) -> None:
        name = prefixed(name, prefix, "Graph")
        set_fields(
            self,
            name=name,
            prefix=prefix,
            parts=tuple(_part(part, name) for part in parts),
            errors=errors,
            defaults=Topic() if defaults is None else defaults,
            topics=check_mapping(topics, f"Graph {name!r}: topics"),
            system=check_mapping(system, f"Graph {name!r}: system"),
            strategy=strategy,
            cuts=_duration(cuts, name),
        )
        _check_graph_settings(self)
        _check_parts_once(self)
        set_fields(
            self,
            sources=read_only({part.topic: part for part in self.parts if isinstance(part, Source)}),
            processors=read_only({part.name: _bound(part, self) for part in self.parts if isinstance(part, Processor)}),
            dataframes=read_only({part.name: part for part in self.parts if isinstance(part, DataFrameProcessor)}),
            feeds=read_only({part.name: part for part in self.parts if isinstance(part, Feed)}),
        )
        found = {topic for part in self.all_processors.values() if (topic := self.errors_of(part))}
        set_fields(self, _error_topics=tuple(sorted(found)))
        check_wiring(self)
        check_topics(self)
        if self.cuts is not None:
            from cues_kafka.graph.topology import check_cuts  # noqa: PLC0415  # each module costs each start a millisecond

            check_cuts(self)
        if self.patterns:
            from cues_kafka.graph.patterns import check_patterns  # noqa: PLC0415  # the same

            check_patterns(self)

    def resolve(self, topics: Collection[str]) -> Graph:
        """
        The graph with the topics of a cluster in the place of patterns; without a pattern the graph itself.

        Each processor that reads a pattern is there once for each topic, as `<processor>_<topic>`.

        Args:
            topics: names of topics that are there.

        Raises:
            GraphError: nothing matches and the graph has nothing else, or a pattern matches a topic that it writes.
        """
        from cues_kafka.graph.patterns import resolved  # noqa: PLC0415  # few graphs have patterns

        if not self.patterns:
            return self
        parts, settings = resolved(self, topics)
        return Graph(self.name, *parts, **settings)

    def merge(self, *others: Graph, name: str | None = None, override: bool = False) -> Graph:
        """
        One graph with the parts of several; each part keeps its errors topic, strategy and topic settings.

        Args:
            others: graphs to take in. Settings of the whole graph are those of the first one.
            name: of the merged graph; None: that of the first one.
            override: of two different parts of one name the later one wins, in the place of the earlier one; and so
                with factories of `system=` and the settings of a topic in `topics=`.

        Raises:
            GraphError: without `override`, two different parts of one name, or one topic with two settings.
        """
        from cues_kafka.graph.merging import merged  # noqa: PLC0415  # few programs merge graphs

        name = self.name if name is None else name
        parts, settings = merged((self, *others), f"Merging into {name!r}", override=override)
        return Graph(name, *parts, **settings)

    def bind(
        self,
        topics: Mapping[str, str] | None = None,
        *,
        opts: Mapping[str, Mapping[str, Any]] | None = None,
        names: Mapping[str, str] | None = None,
    ) -> Graph:
        """
        The same graph between other topics, with other options, or with other names for its processors.

        A processor under a new name has no past: it begins at its `start=`.

        Args:
            topics: new name of each topic to rename.
            opts: for each processor, under its present name, options to merge over its own.
            names: new name of each processor or feed to rename.

        Raises:
            GraphError: a topic or processor that the graph does not have, or what comes out contradicts itself.
        """
        from cues_kafka.graph.merging import rebound  # noqa: PLC0415  # as in `merge`

        parts, settings = rebound(self, topics or {}, opts or {}, names or {})
        return Graph(self.name, *parts, **settings)

    def to_dict(self) -> dict[str, Any]:
        """
        The graph as data for JSON; functions and classes as ``module:qualname``.

        Raises:
            GraphError: a function without such a name (a lambda, a local function, a partial).
        """
        from cues_kafka.graph.data import to_dict  # noqa: PLC0415  # few programs write graphs down

        return to_dict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Graph:
        """
        The graph that `to_dict` described. It imports the modules that the data names: use it for trusted data only.

        Raises:
            GraphError: the data does not describe a graph, or names something that does not exist.
        """
        from cues_kafka.graph.data import from_dict  # noqa: PLC0415  # few programs read graphs

        return from_dict(Graph, data)

    @property
    def topology(self) -> Topology:
        """Which sources, feeds and processors come before which others."""
        from cues_kafka.graph.topology import topology_of  # noqa: PLC0415  # few programs ask

        return topology_of(self)

    def isomorphic(self, other: Graph) -> bool:
        """Whether both are the same up to the names of processors and topics."""
        from cues_kafka.graph.topology import isomorphic  # noqa: PLC0415  # as in `topology`

        return isomorphic(self, other)


def _duration(cuts: str | timedelta | None, graph: str) -> str | None:
    try:
        return None if cuts is None else written(cuts, "cuts")
    except ValueError as error:
        raise GraphError(f"Graph {graph!r}: {error}.") from error


def _part(part: Any, graph: str) -> Declaration:
    if isinstance(part, Declaration):
        return part
    declared = getattr(part, DECORATED, None)
    if isinstance(declared, Processor):
        return declared
    if isinstance(part, str):
        raise GraphError(f"Graph {graph!r}: {part!r} is not a part. Write Source({part!r}) if messages enter there.")
    if callable(part):
        name = getattr(part, "__name__", "fn")
        raise GraphError(
            f"Graph {graph!r}: {name} is a bare function. Write Processor({name}, inputs=..., outputs=...)."
        )
    if isinstance(part, list | tuple | set | dict):
        raise GraphError(
            f"Graph {graph!r}: a {type(part).__name__} is not a part. Give the parts one by one: "
            f"Graph({graph!r}, Source(...), Processor(...)), or Graph({graph!r}, *parts)."
        )
    raise GraphError(
        f"Graph {graph!r}: {part!r} is not a part. Give Source(...), Processor(...), DataFrameProcessor(...) or "
        "Feed(...)."
    )


def _check_graph_settings(graph: Graph) -> None:
    label = f"Graph {graph.name!r}"
    if not graph.parts:
        raise GraphError(f"{label} has no parts. Give it Source(...) and Processor(...).")
    check_errors(graph.errors, f"{label}, errors=")
    check_choice(graph.strategy, get_args(Strategy), f"{label}: strategy")
    for name, settings in {"defaults": graph.defaults, **graph.topics}.items():
        if not isinstance(settings, Topic):
            raise GraphError(f"{label}: the settings of {name!r} are {settings!r}. Write Topic(...).")
    for name, factory in graph.system.items():
        check_name(name, f"{label}, system=")
        if not callable(factory):
            raise GraphError(
                f"{label}: system= gives {name!r} {article(type(factory).__name__)}, which workers cannot open for "
                f"themselves. Give a factory: system={{{name!r}: lambda: ...}}."
            )


def _check_parts_once(graph: Graph) -> None:
    seen: set[str] = set()
    sources = [part for part in graph.parts if isinstance(part, Source)]
    for topic in (source.topic for source in sources):
        if topic in seen:
            raise GraphError(f"Graph {graph.name!r}: Source({topic!r}) is there twice. Keep one of them.")
        seen.add(topic)
    seen.clear()
    for name in (part.name for part in graph.parts if not isinstance(part, Source)):
        if name in seen:
            raise GraphError(
                f"Graph {graph.name!r}: two processors or feeds are called {name!r}. Give one of them another name=."
            )
        seen.add(name)
    marked = [source.topic for source in sources if source.default]
    if len(marked) > 1:
        raise GraphError(f"Graph {graph.name!r}: {quoted(marked)} all have default=True. Keep it on one of them.")


def _bound(processor: Processor, graph: Graph) -> Processor:
    """The same processor, its call decided with what the graph's system offers."""
    bound = processor.replace()
    set_fields(bound, call=bind(processor, graph.system), timer_call=bind_timers(processor, graph.system))
    return bound

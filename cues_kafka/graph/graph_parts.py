"""`GraphParts`: what a graph declares, and what follows from that alone: its topics, their settings, its targets.

`Graph` constructs it, checks it, and makes other graphs of it; what it checks itself with is written for `GraphParts`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from cues_kafka.graph.dataframe import DataFrameProcessor
from cues_kafka.graph.declare import Json
from cues_kafka.graph.durations import milliseconds
from cues_kafka.graph.effects import Effect
from cues_kafka.graph.error_message import ErrorMessages, Errors, errors_topic
from cues_kafka.graph.feed import Feed
from cues_kafka.graph.names import backing_topic, changelog_topic, control_topic, journal_topic, replay_topic
from cues_kafka.graph.processor import Declaration, Processor, Source
from cues_kafka.graph.processor_fields import Strategy
from cues_kafka.graph.topic import Topic


@dataclass(frozen=True, slots=True, init=False)
class GraphParts:
    """The fields of a `Graph`, which describes them, and questions that they answer."""

    name: str
    prefix: str
    parts: tuple[Declaration, ...]
    errors: str | Errors | None
    defaults: Topic
    topics: Mapping[str, Topic]
    system: Mapping[str, Callable[[], Any]]
    strategy: Strategy
    cuts: str | None
    sources: Mapping[str, Source] = field(compare=False, repr=False)
    processors: Mapping[str, Processor] = field(compare=False, repr=False)
    dataframes: Mapping[str, DataFrameProcessor] = field(compare=False, repr=False)
    feeds: Mapping[str, Feed] = field(compare=False, repr=False)
    _error_topics: tuple[str, ...] = field(compare=False, repr=False)

    def topic(self, name: str) -> Topic:
        """A topic's settings: its own over the defaults. The framework sets the codec of errors topics and trails."""
        own = self.topics.get(name)
        settings = self.defaults if own is None else own.over(self.defaults)
        if any(one.trail == name for one in self.processors.values()):
            return Topic(**{**settings.given, "value": Json(), "key": None, "key_codec": None})
        if name not in self._error_topics:
            return settings
        return Topic(**{**settings.given, "value": ErrorMessages(), "key": None, "key_codec": None})

    def trails(self) -> tuple[str, ...]:
        """The topics that get a record of each step of a processor, sorted."""
        return tuple(sorted({one.trail for one in self.processors.values() if one.trail is not None}))

    def errors_of(self, processor: Processor | DataFrameProcessor | Feed | str) -> str | None:
        """The errors topic of a processor or feed, its own or else the graph's; None if neither has one."""
        return errors_topic(self.declared_errors(processor))

    def declared_errors(self, processor: Processor | DataFrameProcessor | Feed | str) -> str | Errors | None:
        """The errors topic of a part as it was declared; processors of DataFrames have the graph's."""
        part = self.all_processors[processor] if isinstance(processor, str) else processor
        own = None if isinstance(part, DataFrameProcessor) else part.errors
        return self.errors if own is None else own or None

    def strategy_of(self, processor: Processor | str) -> Strategy:
        """The strategy of a processor: its own, else the graph's."""
        return (self.processors[processor] if isinstance(processor, str) else processor).strategy or self.strategy

    @property
    def cuts_ms(self) -> int | None:
        """`cuts` in milliseconds; None: no cuts are taken."""
        return None if self.cuts is None else milliseconds(self.cuts, "cuts")

    @property
    def patterns(self) -> Mapping[str, Source]:
        """The sources that stand for the topics of a pattern, by name; with one, the graph is a template."""
        return {name: source for name, source in self.sources.items() if source.pattern}

    @property
    def default_source(self) -> Source | None:
        """The source that `send(message)` writes to: the marked one, else the only one, else None."""
        marked = [source for source in self.sources.values() if source.default]
        candidates = marked or [source for source in self.sources.values() if not source.pattern]
        return candidates[0] if len(candidates) == 1 else None

    def error_topics(self) -> tuple[str, ...]:
        """All errors topics, sorted. Processors of DataFrames use the graph's."""
        return self._error_topics

    @property
    def all_processors(self) -> Mapping[str, Processor | DataFrameProcessor | Feed]:
        """All processors by name, those of DataFrames behind the others; feeds, which read no topic, come last."""
        return {**self.processors, **self.dataframes, **self.feeds}

    @property
    def targets(self) -> Mapping[str, Mapping[str, Effect]]:
        """By processor, what its function or its rows act on besides Kafka, by name; those that have something."""
        parts: tuple[Processor | DataFrameProcessor, ...] = (*self.processors.values(), *self.dataframes.values())
        return {part.name: part.targets for part in parts if part.targets}

    def declared_targets(self, names: Iterable[str] | None = None) -> Iterator[tuple[str, Effect]]:
        """
        Single targets, each behind where it is declared, as texts name it.

        Args:
            names: of processors; None: all.
        """
        chosen = None if names is None else set(names)
        for name, targets in self.targets.items():
            if chosen is None or name in chosen:
                for key, one in targets.items():
                    yield f"{name}, {key}=" if name in self.dataframes else f"{name}, effects[{key!r}]", one

    def topics_used(self) -> tuple[str, ...]:
        """All topics that the user named, sorted; the framework's own are not among them."""
        read = (topic for part in self.all_processors.values() for topic in part.read_topics)
        return tuple(sorted({*self.topics_written(), *read}))

    def topics_written(self) -> tuple[str, ...]:
        """The topics that the graph or its callers write: sources, outputs, appenders, errors; sorted."""
        outputs = (topic for part in self.all_processors.values() for topic in part.output_topics)
        return tuple(sorted({*self.sources, *self.error_topics(), *outputs}))

    def internal_topics(self) -> tuple[str, ...]:
        """
        The framework's own topics, processor by processor: backing, replay (with an errors topic), changelogs,
        journal (where answers to calls are kept); and the control topic, of a graph with cuts.
        """
        names = [] if self.cuts is None else [control_topic(self.name)]
        for p in self.processors.values():
            names.append(backing_topic(self.name, p.name))
            if self.errors_of(p) is not None:
                names.append(replay_topic(self.name, p.name))
            names += [changelog_topic(self.name, p.name, store) for store in p.state]
            if p.journaled:
                names.append(journal_topic(self.name, p.name))
        for frame in self.dataframes.values():
            names.append(backing_topic(self.name, frame.name))
            if self.errors_of(frame) is not None:
                names.append(replay_topic(self.name, frame.name))
        return (*names, *(backing_topic(self.name, name) for name in self.feeds))

    def settings(self) -> dict[str, Any]:
        """The keyword arguments that, with name and parts, construct an equal graph."""
        names = ("errors", "defaults", "topics", "system", "strategy", "cuts", "prefix")
        return {name: getattr(self, name) for name in names}

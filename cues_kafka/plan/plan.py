"""What a graph is on a cluster: tasks, names, topics to create, ACLs, and the reasons why it must not run.

`plan` is pure: it gets the cluster's facts as a value and returns a value, which can be printed before anything is
created. The code that creates topics and starts tasks takes all names and settings from it.

Only the backing records show whether a topic was recreated, or bindings changed under undelivered messages. Recovery
reads them, and refuses both (R5).
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

from cues_kafka.core.hashing import fingerprint
from cues_kafka.errors import ConfigError
from cues_kafka.graph.binding import shows_bindings
from cues_kafka.graph.dataframe import DataFrameProcessor
from cues_kafka.graph.definition import Graph
from cues_kafka.graph.feed import Feed
from cues_kafka.graph.names import (
    backing_topic,
    changelog_topic,
    control_topic,
    group_id,
    journal_topic,
    replay_topic,
    status_topic,
    transactional_prefix,
)
from cues_kafka.graph.patterns import unresolved
from cues_kafka.graph.processor import Processor
from cues_kafka.graph.topic import Topic
from cues_kafka.plan.acls import acls_of
from cues_kafka.plan.edges import edges_of
from cues_kafka.plan.notes import notes_of
from cues_kafka.plan.planned import PlanFields
from cues_kafka.plan.processors import FeedPlan, FramePlan, ProcessorPlan
from cues_kafka.plan.rebuildable import cannot_grow
from cues_kafka.plan.refusals import (
    misspelt_inputs,
    refusals_of,
    refused_feeds,
    side_warnings,
    undeclared_inputs,
    unread_settings,
    warnings_of,
)
from cues_kafka.plan.text import feed_data, frame_data, lines, processor_data
from cues_kafka.plan.topics import (
    NO_SIDES,
    Growth,
    NewSetting,
    Sides,
    backing_config,
    in_sync,
    kept_for_cuts,
    may_lack,
    partitions_of,
    replication,
    status_config,
)
from cues_kafka.ports.facts import ClusterFacts, NewTopic, TopicFacts


@dataclass(frozen=True, slots=True)
class Plan(PlanFields):
    """
    A graph on a cluster.

    Attributes:
        graph: the graph's name.
        brokers: how many brokers there are; None: planned offline.
        processors: the processors, in the order of declaration.
        create: topics to create, the user's before the framework's own.
        grow: topics of the framework's own that need more partitions.
        alter: settings of topics of the framework's own that have to change.
        dataframes: processors of DataFrames, in the order of declaration; their tasks are slots on Spark.
        acls: the permissions that are needed, sorted.
        warnings: what is allowed but weakens something, in full sentences.
        refusals: why the graph must not run, in full sentences with the remedy.
        expected: inputs that must exist on the cluster, because nothing in the graph writes or declares them. Listed
            offline only; with a cluster a missing input is refused.
        changes: what has to change outside of the cluster, each with the command that does it.
        notes: what a reader should know, though nothing is wrong, in full sentences.
        begins: where processors without a record begin on their inputs, if their `start=` names offsets or a time.
        edges: what each edge of the graph guarantees.
        feeds: feeds, in the order of declaration.
        stops: tasks that would stop by what their newest records say; None: the records were not read.
        unwell: what is unwell with the graph now, as `operate.unwell` says; empty also where the records were not read.
        status: topic on which workers tell the state of their tasks; None: they tell nothing.
        control: topic that workers follow, where pauses and cuts are; None: they follow none.
    """

    def text(self, *, topics: bool = False, acls: bool = False, principals: Mapping[str, str] | None = None) -> str:
        """
        Plain text, the same for the same plan: what would change, a line for each processor, warnings and refusals.

        Args:
            topics: with all names on the cluster, and the settings of topics that are created.
            acls: with the permissions that are needed.
            principals: role to principal, for the commands that grant them; see `kafka_acls`.
        """
        return "\n".join(lines(self, topics=topics, acls=acls, principals=principals or {}))

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return {
            "graph": self.graph,
            "brokers": self.brokers,
            "would_change": self.would_change,
            "processors": [processor_data(one) for one in self.processors],
            "dataframes": [frame_data(one) for one in self.dataframes],
            "edges": [edge._asdict() for edge in self.edges],
            "weakest": [edge.where for edge in self.weakest],
            "guarantee": self.weakest[0].guarantee if self.weakest else "exactly-once",
            "feeds": [feed_data(one) for one in self.feeds],
            "status": self.status,
            "control": self.control,
            "create": [{k: v for k, v in asdict(topic).items() if k != "may_lack"} for topic in self.create],
            "grow": [growth._asdict() for growth in self.grow],
            "alter": [setting._asdict() for setting in self.alter],
            "expected": list(self.expected),
            "changes": list(self.changes),
            "stops": None if self.stops is None else [stop._asdict() for stop in self.stops],
            "unwell": [one._asdict() for one in self.unwell],
            "acls": [acl._asdict() for acl in self.acls],
            "notes": list(self.notes),
            "warnings": list(self.warnings),
            "refusals": list(self.refusals),
        }

    def __str__(self) -> str:
        """The short text."""
        return self.text()


def plan(
    graph: Graph, facts: ClusterFacts | None = None, *, accept_unchecked: bool = False, sides: Sides = NO_SIDES
) -> Plan:
    """
    Plan a graph.

    Args:
        graph: the graph.
        facts: what the cluster says of `topics_to_ask`, and of the topics of `sides`; None: offline.
        accept_unchecked: topics whose settings may not be read are a warning, not a refusal.
        sides: topics that the graph can work without.

    Raises:
        ConfigError: the graph has a pattern, whose topics are not known; see `Graph.resolve`.
    """
    if graph.patterns:
        raise ConfigError(unresolved(graph))
    sizes = {topic: partitions_of(graph, topic, facts) for topic in graph.topics_used()}
    processors = tuple(_processor_plan(graph, processor, sizes, facts) for processor in graph.processors.values())
    frames = tuple(_frame_plan(graph, frame, sizes, facts) for frame in graph.dataframes.values())
    feeds = tuple(_feed_plan(graph, feed) for feed in graph.feeds.values())
    brokers, known = (None, {}) if facts is None else (facts.brokers, facts.topics)
    own = _own_topics(graph, processors, frames, brokers) | _side_topics(graph, sides, brokers)
    of_feeds = {feed.backing: (feed.parts, backing_config(brokers)) for feed in feeds}
    wanted = _user_topics(graph, brokers) | own | of_feeds
    unread = tuple(unread_settings(graph, facts))

    return Plan(
        graph=graph.name,
        brokers=brokers,
        processors=processors,
        create=tuple(_new_topics(graph, wanted, {*own, *of_feeds}, known, brokers)),
        grow=tuple(
            Growth(topic, known[topic].partitions, width)
            for topic, (width, _) in own.items()
            if topic in known and known[topic].partitions < width
        ),
        acls=acls_of(graph, sides=sides),
        warnings=(
            *side_warnings(graph, sides, facts),
            *(misspelt_inputs(graph) if facts is None else ()),
            *warnings_of(graph, processors, facts),
            *(unread if accept_unchecked else ()),
        ),
        refusals=(
            *refusals_of(graph, (processors, frames), sizes, facts),
            *refused_feeds(feeds, facts),
            *(() if accept_unchecked else unread),
        ),
        dataframes=frames,
        feeds=feeds,
        notes=(*notes_of(graph, sizes), *(() if facts is None else cannot_grow(graph, known))),
        alter=tuple(_settings_for_cuts(graph, processors, known)),
        expected=tuple(sorted({topic for _, topic in undeclared_inputs(graph)})) if facts is None else (),
        edges=tuple(edges_of(graph)),
        status=status_topic(graph.name) if sides.of_graph(graph).status else None,
        control=control_topic(graph.name) if sides.of_graph(graph).control else None,
    )


def _feed_plan(graph: Graph, feed: Feed) -> FeedPlan:
    source = type(feed.source).__name__
    return FeedPlan(**_common(graph, feed), outputs=feed.outputs, source=source, parts=feed.parts, level=feed.level)


def _common(graph: Graph, part: Processor | DataFrameProcessor | Feed) -> dict[str, Any]:
    """The fields of `PartPlan`."""
    return {
        "name": part.name,
        "inputs": part.inputs,
        "errors": graph.errors_of(part),
        "group": group_id(graph.name, part.name),
        "transactional_prefix": transactional_prefix(graph.name, part.name),
        "backing": backing_topic(graph.name, part.name),
    }


def _processor_plan(
    graph: Graph, processor: Processor, sizes: Mapping[str, int | None], facts: ClusterFacts | None
) -> ProcessorPlan:
    name = processor.name
    known = None if facts is None else facts.topics.get(backing_topic(graph.name, name))
    return ProcessorPlan(
        **_common(graph, processor),
        outputs=(
            *(*processor.outputs, *processor.appenders.items()),
            *([("trail", processor.trail)] if processor.trail else []),
        ),
        kind=processor.kind,
        strategy=graph.strategy_of(processor),
        replay=None if graph.errors_of(processor) is None else replay_topic(graph.name, name),
        changelogs=tuple((store, changelog_topic(graph.name, name, store)) for store in processor.state),
        journal=journal_topic(graph.name, name) if processor.journaled else None,
        tables=tuple((table, one.topic) for table, one in processor.tables.items()),
        tailers=tuple(processor.tailers.items()),
        partitions=sizes[processor.lead],
        backing_partitions=sizes[processor.lead] if known is None else known.partitions,
        fingerprint=_fingerprint(processor, facts),
        unchecked=_unchecked(processor),
        compacted=tuple(_compacted(graph, processor, facts)),
        commit=processor.commit,
        columnar=processor.columnar,
    )


def _compacted(graph: Graph, processor: Processor, facts: ClusterFacts | None) -> Iterator[str]:
    """
    Inputs whose messages are superseded by newer ones of their key.

    The cluster's settings decide. Where they cannot be read, only a declaration of that very topic counts, not the
    defaults of the graph: a task must never skip a message of a topic that keeps all of them.
    """
    for topic in dict.fromkeys(processor.input_topics):
        known = None if facts is None else facts.topics.get(topic)
        declared = graph.topic(topic) if known is None else graph.topics.get(topic, Topic())
        config = declared.config if known is None or "cleanup.policy" not in known.config else known.config
        if "compact" in config.get("cleanup.policy", ""):
            yield topic


def _unchecked(processor: Processor) -> tuple[str, ...]:
    named = processor.output_shape == "many" and not shows_bindings(processor.fn, batch=processor.batch is True)
    return tuple(binding for binding, _ in processor.outputs) if named else ()


def _fingerprint(processor: Processor, facts: ClusterFacts | None) -> bytes | None:
    if facts is None or any(topic not in facts.topics for topic in processor.input_topics):
        return None
    ids = [(binding, facts.topics[topic].topic_id) for binding, topic in processor.inputs]
    return fingerprint(processor.name, processor.input_shape, ids)


def _frame_plan(
    graph: Graph, frame: DataFrameProcessor, sizes: Mapping[str, int | None], facts: ClusterFacts | None
) -> FramePlan:
    known = None if facts is None else facts.topics.get(backing_topic(graph.name, frame.name))
    staged = len(frame.inputs) > 1 or len(frame.outputs) > 1 or frame.into is not None
    widths = [sizes[topic] for topic in frame.read_topics]
    widest = None if None in widths else max(size for size in widths if size is not None)
    replay = None if graph.errors_of(frame) is None else replay_topic(graph.name, frame.name)
    common = {**_common(graph, frame), "replay": replay, "replay_partitions": widest}
    slots = known.partitions if staged and known else widest  # added input partitions add no parts
    into = "" if frame.into is None else frame.into.title("")
    slots = 1 if frame.whole else slots
    return FramePlan(**common, outputs=frame.outputs, staged=staged, slots=slots, into=into)


_Wanted: TypeAlias = dict[str, tuple[int, dict[str, str]]]
"""Topics with their partitions and settings."""


def _user_topics(graph: Graph, brokers: int | None) -> _Wanted:
    """Topics that the graph writes or declares."""
    found: _Wanted = {}
    for name in graph.topics_used():
        if name in graph.topics_written() or name in graph.topics:
            settings = graph.topic(name)
            config = {"min.insync.replicas": str(in_sync(brokers))}
            if name in graph.error_topics():
                config["message.timestamp.type"] = "LogAppendTime"  # an error message ages by the brokers' clock only
            found[name] = settings.partitions, config | dict(settings.config)
    return found


def _new_topics(
    graph: Graph, wanted: _Wanted, own: Container[str], known: Container[str], brokers: int | None
) -> Iterator[NewTopic]:
    """Topics that are not there yet; those of the user's may lack settings that are not declared."""
    for topic, (width, config) in wanted.items():
        if topic not in known:
            declared = {} if topic in own else graph.topic(topic).config
            copies = replication(graph, topic, brokers)
            yield NewTopic(topic, width, copies, config, may_lack(config, declared))


def _settings_for_cuts(
    graph: Graph, processors: Iterable[ProcessorPlan], known: Mapping[str, TopicFacts]
) -> Iterator[NewSetting]:
    """Changelogs that compaction would take from before a cut can be gone back to. A longer time is left as it is."""
    for name, wanted in kept_for_cuts(graph).items():
        for topic in (topic for one in processors for _, topic in one.changelogs if topic in known):
            was = known[topic].config.get(name)
            if was is not None and int(was) < int(wanted):
                yield NewSetting(topic, name, was, wanted)


def _own_topics(
    graph: Graph, processors: Iterable[ProcessorPlan], frames: Iterable[FramePlan], brokers: int | None
) -> _Wanted:
    """Topics of the framework's own whose size is known."""
    kept = backing_config(brokers)
    changes = kept | kept_for_cuts(graph)
    replayed = kept | {"cleanup.policy": "delete", "retention.ms": "-1"}  # a replay stays due until it is done
    found: dict[str, tuple[int | None, dict[str, str]]] = {}
    for one in processors:
        found[one.backing] = one.partitions, kept
        found |= {one.replay: (one.partitions, replayed)} if one.replay else {}
        found |= {topic: (one.partitions, changes) for _, topic in one.changelogs}
        found |= {one.journal: (one.partitions, kept)} if one.journal else {}
    for frame in frames:
        found[frame.backing] = frame.slots, kept
        found |= {frame.replay: (frame.replay_partitions, replayed)} if frame.replay else {}
    found |= {control_topic(graph.name): (1, kept)} if graph.cuts is not None else {}
    return {topic: (width, config) for topic, (width, config) in found.items() if width is not None}


def _side_topics(graph: Graph, sides: Sides, brokers: int | None) -> _Wanted:
    """Topics of the framework's own that the graph can work without."""
    config = {status_topic(graph.name): status_config(brokers)}
    return {topic: (1, config.get(topic) or backing_config(brokers)) for topic in sides.topics(graph)}

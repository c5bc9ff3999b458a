"""What a graph is on a cluster: tasks, names, topics to create, ACLs, and the reasons why it must not run.

`plan` is pure: it gets the cluster's facts as a value and gives a value. It can be printed before anything is created
and compared with an earlier one, and it refuses. Whatever creates topics or starts tasks takes names and settings here.

What only the backing records show (a topic made anew, bindings that changed under undelivered messages) is refused
where they are read, in the recovery of a task (R5).
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from cues_kafka.core.hashing import fingerprint
from cues_kafka.errors import ConfigError
from cues_kafka.graph import topology
from cues_kafka.graph.binding import shows_bindings
from cues_kafka.graph.definition import DataFrameProcessor, Graph, Processor, Strategy, Topic
from cues_kafka.graph.names import (
    backing_topic,
    changelog_topic,
    group_id,
    hint,
    quoted,
    replay_topic,
    sender_id,
    transactional_id,
    transactional_prefix,
)
from cues_kafka.plan.acls import Acl, Role, acls_of, grant, kafka_acls
from cues_kafka.ports import ClusterFacts, NewTopic, TopicFacts
from cues_kafka.words import count

__all__ = [
    "Acl",
    "FramePlan",
    "Growth",
    "Plan",
    "ProcessorPlan",
    "Role",
    "Task",
    "acls_of",
    "backing_config",
    "backing_topic",
    "changelog_topic",
    "fingerprint",
    "group_id",
    "kafka_acls",
    "orphans",
    "plan",
    "replay_topic",
    "sender_id",
    "topics_to_ask",
    "transactional_id",
    "transactional_prefix",
]

REPLICATION = 3
"""Copies of every partition where the cluster has that many brokers: with two in sync one may be lost."""

MIN_IN_SYNC = 2
"""Copies that must have a record before it is acknowledged, so that no single broker's loss is a loss of data."""

LEAST_BYTES = 65_536
"""The least `max.message.bytes` of a topic that is written. It bounds a batch of records, so each batch of a task keeps
to the least of its topics; with less than this a batch holds a few messages, or not even an error message (16,500)."""

DAY_MS = 24 * 60 * 60 * 1000

SEGMENT_BYTES = 16 * 1024 * 1024
"""Compaction leaves the newest segment alone, so this bounds what stays of a task: 60,000 records of 256 bytes."""


Pairs: TypeAlias = tuple[tuple[str, str], ...]
"""(Binding, topic) in the order of declaration."""


class Task(NamedTuple):
    """One processor at one partition; printed ``enrich/3``."""

    processor: str
    partition: int

    def __str__(self) -> str:
        return f"{self.processor}/{self.partition}"


class Growth(NamedTuple):
    """A topic of the framework's own that needs more partitions, because its input has more by now."""

    topic: str
    partitions: int
    wanted: int


@dataclass(frozen=True, slots=True)
class ProcessorPlan:
    """
    One processor on the cluster.

    Attributes:
        name: the processor's name.
        kind: its kind, for people.
        strategy: its strategy.
        inputs: (binding, topic) of each input.
        outputs: (binding, topic) of each output.
        errors: its errors topic, or None.
        group: its consumer group.
        transactional_prefix: what its transactional ids begin with.
        backing: its backing topic.
        replay: its replay topic, or None where it has no errors topic.
        changelogs: (store, topic) of each store.
        partitions: partitions of its inputs, so its number of tasks; None: not known offline.
        backing_partitions: partitions that the backing topic has, or will have when it is created.
        fingerprint: the plan fingerprint (O7); None where the topics' ids are not known yet.
        unchecked: output bindings that the function's annotation does not name, so that a misspelt one shows only when
            the function gives it.
        compacted: topics of its inputs that Kafka compacts.
    """

    name: str
    kind: str
    strategy: Strategy
    inputs: tuple[tuple[str, str], ...]
    outputs: tuple[tuple[str, str], ...]
    errors: str | None
    group: str
    transactional_prefix: str
    backing: str
    replay: str | None
    changelogs: tuple[tuple[str, str], ...]
    partitions: int | None
    backing_partitions: int | None
    fingerprint: bytes | None
    unchecked: tuple[str, ...] = ()
    compacted: tuple[str, ...] = ()

    @property
    def tasks(self) -> tuple[Task, ...]:
        """All tasks; none while the number of partitions is not known."""
        return tuple(Task(self.name, partition) for partition in range(self.partitions or 0))

    @property
    def stopped(self) -> tuple[Task, ...]:
        """Tasks of added partitions, which must wait until the backing topic has a partition for them (O9)."""
        return () if self.backing_partitions is None else self.tasks[self.backing_partitions :]

    def transactional_id(self, partition: int) -> str:
        """The lock of one task."""
        return f"{self.transactional_prefix}{partition}"


@dataclass(frozen=True, slots=True)
class FramePlan:
    """
    One processor of DataFrames on the cluster.

    Attributes:
        name: the processor's name.
        inputs: (binding, topic) of each input.
        outputs: (binding, topic) of each output.
        errors: the graph's errors topic, or None.
        group: where lag tools see how far it is.
        transactional_prefix: what its transactional ids begin with.
        backing: its backing topic.
        staged: it is written staged whatever its function does, because it has several inputs or outputs; else only
            Spark's plan says so.
        slots: transactions side by side: of a staged processor the parts, which its first record fixes; else one for
            each partition of the input; None: not known offline.
    """

    name: str
    inputs: tuple[tuple[str, str], ...]
    outputs: tuple[tuple[str, str], ...]
    errors: str | None
    group: str
    transactional_prefix: str
    backing: str
    staged: bool
    slots: int | None


@dataclass(frozen=True, slots=True)
class Plan:
    """
    A graph on a cluster.

    Attributes:
        graph: the graph's name.
        brokers: how many brokers there are; None: planned offline.
        processors: the processors, in the order of declaration.
        create: topics to create, the user's before the framework's own.
        grow: topics of the framework's own that need more partitions.
        dataframes: processors of DataFrames, in the order of declaration; their tasks are slots on Spark.
        acls: the permissions that are needed, sorted.
        warnings: what is allowed but weakens something, in full sentences.
        refusals: why the graph must not run, in full sentences with the remedy.
        expected: inputs that nothing in the graph writes or declares, so that they must exist on the cluster; offline
            only, for with a cluster a missing one is refused.
    """

    graph: str
    brokers: int | None
    processors: tuple[ProcessorPlan, ...]
    create: tuple[NewTopic, ...]
    grow: tuple[Growth, ...]
    acls: tuple[Acl, ...]
    warnings: tuple[str, ...]
    refusals: tuple[str, ...]
    dataframes: tuple[FramePlan, ...] = ()
    expected: tuple[str, ...] = ()

    def __getitem__(self, processor: str) -> ProcessorPlan:
        """
        The plan of one processor.

        Raises:
            KeyError: there is none of that name.
        """
        for one in self.processors:
            if one.name == processor:
                return one
        raise KeyError(processor)

    @property
    def tasks(self) -> tuple[Task, ...]:
        """The tasks of all processors."""
        return tuple(task for one in self.processors for task in one.tasks)

    def refuse(self) -> None:
        """
        Raise if there is a reason not to run.

        Raises:
            ConfigError: with all refusals.
        """
        if self.refusals:
            reasons = "".join(f"\n  - {reason}" for reason in self.refusals)
            raise ConfigError(
                f"Graph {self.graph!r} must not run{'' if self.brokers is None else ' on this cluster'}:{reasons}"
            )

    def diff(self, earlier: Plan) -> str:
        """What changed since an earlier plan, line by line, names and permissions included; empty if nothing did."""
        before, after = (one.text(topics=True, acls=True).splitlines() for one in (earlier, self))
        return "\n".join(difflib.unified_diff(before, after, "earlier plan", "this plan", lineterm="", n=1))

    def text(self, *, topics: bool = False, acls: bool = False, principals: Mapping[str, str] | None = None) -> str:
        """
        Plain text, the same for the same plan: a line for each processor, what changes, then warnings and refusals.

        Args:
            topics: with all names on the cluster, and the settings of topics that are created.
            acls: with the permissions that are needed.
            principals: role to principal, for the commands that grant them; see `kafka_acls`.
        """
        return "\n".join(_lines(self, topics=topics, acls=acls, principals=principals or {}))

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return {
            "graph": self.graph,
            "brokers": self.brokers,
            "processors": [_processor_data(one) for one in self.processors],
            "dataframes": [_frame_data(one) for one in self.dataframes],
            "create": [_topic_data(topic) for topic in self.create],
            "grow": [growth._asdict() for growth in self.grow],
            "expected": list(self.expected),
            "acls": [acl._asdict() for acl in self.acls],
            "warnings": list(self.warnings),
            "refusals": list(self.refusals),
        }

    def __str__(self) -> str:
        """The short text."""
        return self.text()


def plan(
    graph: Graph,
    facts: ClusterFacts | None = None,
    *,
    listed: Collection[str] = (),
    accept_unchecked: bool = False,
) -> Plan:
    """
    Plan a graph.

    Args:
        graph: the graph.
        facts: what the cluster says of `topics_to_ask`; None: offline.
        listed: names of all topics of the cluster, where they are known: backing topics without a processor are
            warned of.
        accept_unchecked: warn of topics whose settings may not be read, instead of refusing.
    """
    sizes = {topic: partitions_of(graph, topic, facts) for topic in graph.topics_used()}
    processors = tuple(_processor_plan(graph, processor, sizes, facts) for processor in graph.processors.values())
    frames = tuple(_frame_plan(graph, frame, sizes, facts) for frame in graph.dataframes.values())
    own = (*_own_topics(processors), *(_OwnTopic(one.backing, one.slots, compacted=True) for one in frames))
    create = (*_user_topics(graph, facts), *_missing(own, facts))
    unread = tuple(_unread_settings(graph, facts))
    return Plan(
        graph=graph.name,
        brokers=None if facts is None else facts.brokers,
        processors=processors,
        create=create,
        grow=tuple(_growths(own, facts)),
        acls=acls_of(graph),
        warnings=(
            *(_misspelt_inputs(graph) if facts is None else ()),
            *_warnings(graph, processors, facts),
            *_orphans(graph, listed),
            *(unread if accept_unchecked else ()),
        ),
        refusals=(
            *_refusals(graph, (processors, frames), sizes, facts),
            *(() if accept_unchecked else unread),
        ),
        dataframes=frames,
        expected=tuple(sorted({topic for _, topic in _unmade_inputs(graph)})) if facts is None else (),
    )


def topics_to_ask(graph: Graph) -> tuple[str, ...]:
    """The topics whose facts `plan` wants to know: all that the user named, and the framework's own."""
    return (*graph.topics_used(), *graph.internal_topics())


def backing_config(brokers: int | None) -> dict[str, str]:
    """
    Settings of backing topics (O5), replay topics apart.

    Args:
        brokers: how many brokers there are; None: not known, so at least three.
    """
    return {
        "cleanup.policy": "compact",
        "message.timestamp.type": "LogAppendTime",
        "min.insync.replicas": str(_in_sync(brokers)),
        "segment.bytes": str(SEGMENT_BYTES),
        "unclean.leader.election.enable": "false",
    }


# --- Tasks and topics


class _OwnTopic(NamedTuple):
    """A topic of the framework's own."""

    name: str
    partitions: int | None
    compacted: bool


def partitions_of(graph: Graph, topic: str, facts: ClusterFacts | None) -> int | None:
    """How many partitions a topic has, or will have when it is created; None: nobody knows."""
    if facts is not None and topic in facts.topics:
        return facts.topics[topic].partitions
    if topic in graph.topics or topic in graph.topics_written():
        return graph.topic(topic).partitions
    return None


def _processor_plan(
    graph: Graph, processor: Processor, sizes: Mapping[str, int | None], facts: ClusterFacts | None
) -> ProcessorPlan:
    name = processor.name
    errors = graph.errors_of(processor)
    backing = backing_topic(graph.name, name)
    known = None if facts is None else facts.topics.get(backing)
    return ProcessorPlan(
        name=name,
        kind=processor.kind,
        strategy=graph.strategy_of(processor),
        inputs=processor.inputs,
        outputs=(*processor.outputs, *processor.appenders.items()),
        errors=errors,
        group=group_id(graph.name, name),
        transactional_prefix=transactional_prefix(graph.name, name),
        backing=backing,
        replay=None if errors is None else replay_topic(graph.name, name),
        changelogs=tuple((store, changelog_topic(graph.name, name, store)) for store in processor.state),
        partitions=sizes[processor.lead],
        backing_partitions=sizes[processor.lead] if known is None else known.partitions,
        fingerprint=_fingerprint(processor, facts),
        unchecked=_unchecked(processor),
        compacted=tuple(_compacted(graph, processor, facts)),
    )


def _compacted(graph: Graph, processor: Processor, facts: ClusterFacts | None) -> Iterator[str]:
    """
    Inputs whose messages are superseded by newer ones of their key.

    What the cluster says decides. Where it does not show a topic's settings, only a declaration of that very topic
    counts, and the defaults of the graph do not: a message of a topic that keeps all of them is never done without.
    """
    for topic in dict.fromkeys(processor.input_topics):
        known = None if facts is None else facts.topics.get(topic)
        declared = graph.topic(topic) if known is None else graph.topics.get(topic, Topic())
        config = declared.config if known is None or "cleanup.policy" not in known.config else known.config
        if "compact" in config.get("cleanup.policy", ""):
            yield topic


def _unchecked(processor: Processor) -> tuple[str, ...]:
    named = processor.output_shape == "many" and not shows_bindings(processor.fn, batch=processor.batch)
    return tuple(binding for binding, _ in processor.outputs) if named else ()


def _fingerprint(processor: Processor, facts: ClusterFacts | None) -> bytes | None:
    if facts is None or any(topic not in facts.topics for topic in processor.input_topics):
        return None
    ids = [(binding, facts.topics[topic].topic_id) for binding, topic in processor.inputs]
    return fingerprint(processor.name, processor.input_shape, ids)


def _own_topics(processors: Iterable[ProcessorPlan]) -> Iterator[_OwnTopic]:
    for one in processors:
        yield _OwnTopic(one.backing, one.partitions, compacted=True)
        if one.replay is not None:
            yield _OwnTopic(one.replay, one.partitions, compacted=False)
        for _, topic in one.changelogs:
            yield _OwnTopic(topic, one.partitions, compacted=True)


def _frame_plan(
    graph: Graph, frame: DataFrameProcessor, sizes: Mapping[str, int | None], facts: ClusterFacts | None
) -> FramePlan:
    backing = backing_topic(graph.name, frame.name)
    known = None if facts is None else facts.topics.get(backing)
    staged = len(frame.inputs) > 1 or len(frame.outputs) > 1
    widths = [sizes[topic] for topic in frame.read_topics]
    widest = None if None in widths else max(size for size in widths if size is not None)
    return FramePlan(
        name=frame.name,
        inputs=frame.inputs,
        outputs=frame.outputs,
        errors=graph.errors,
        group=group_id(graph.name, frame.name),
        transactional_prefix=transactional_prefix(graph.name, frame.name),
        backing=backing,
        staged=staged,
        slots=known.partitions if staged and known else widest,  # added input partitions add no parts
    )


def _replication(brokers: int | None) -> int:
    return REPLICATION if brokers is None else min(REPLICATION, brokers)


def _in_sync(brokers: int | None) -> int:
    return MIN_IN_SYNC if brokers is None else min(MIN_IN_SYNC, brokers)


def _user_topics(graph: Graph, facts: ClusterFacts | None) -> Iterator[NewTopic]:
    brokers = None if facts is None else facts.brokers
    for name in graph.topics_used():
        if facts is not None and name in facts.topics:
            continue
        if name in graph.topics_written() or name in graph.topics:
            settings = graph.topic(name)
            config = {"min.insync.replicas": str(_in_sync(brokers))}
            if name in graph.error_topics():
                config["message.timestamp.type"] = "LogAppendTime"  # no clock but the brokers' ages an error message
            config |= settings.config
            yield NewTopic(name, settings.partitions, _replication(brokers), config)


def _missing(own: Iterable[_OwnTopic], facts: ClusterFacts | None) -> Iterator[NewTopic]:
    brokers = None if facts is None else facts.brokers
    for topic in own:
        if topic.partitions is None or (facts is not None and topic.name in facts.topics):
            continue
        config = backing_config(brokers)
        if not topic.compacted:
            config |= {"cleanup.policy": "delete", "retention.ms": "-1"}  # a replay is due until it was done
        yield NewTopic(topic.name, topic.partitions, _replication(brokers), config)


def _growths(own: Iterable[_OwnTopic], facts: ClusterFacts | None) -> Iterator[Growth]:
    for topic in own:
        known = None if facts is None else facts.topics.get(topic.name)
        if known is not None and topic.partitions is not None and known.partitions < topic.partitions:
            yield Growth(topic.name, known.partitions, topic.partitions)


# --- Refusals and warnings


def _refusals(
    graph: Graph,
    planned: tuple[Collection[ProcessorPlan], Collection[FramePlan]],
    sizes: Mapping[str, int | None],
    facts: ClusterFacts | None,
) -> Iterator[str]:
    processors, frames = planned
    for one in processors:
        yield from _unequal_inputs(graph.processors[one.name], sizes)
        yield from _compacted_join(graph.processors[one.name], one.compacted)
    if facts is None:
        return
    yield from _missing_inputs(graph, facts)
    for one in processors:
        yield from _bad_policy((one.backing, *(changelog for _, changelog in one.changelogs)), facts)
        yield from _bad_backing(one, facts)
    for frame in frames:
        yield from _bad_policy((frame.backing,), facts)
    yield from _narrow(graph, facts)
    for topic, known in sorted(facts.topics.items()):
        if facts.brokers >= REPLICATION and topic in topics_to_ask(graph) and _promised(graph):
            yield from _unsafe(known)


def _unread_settings(graph: Graph, facts: ClusterFacts | None) -> Iterator[str]:
    """A setting that nobody could look at may be the one that breaks the promise: a backing topic that is not kept."""
    topics = [topic for topic in topics_to_ask(graph) if facts is not None and topic in facts.unchecked]
    if facts is not None and topics:
        command = grant(f"User:{facts.user or 'NAME'}", ["DescribeConfigs"], "topic", topics)
        who = f"user `{facts.user}`" if facts.user else "the user of this client"
        yield (
            f"Not checked: {who} may not read the settings of topics {', '.join(f'`{topic}`' for topic in topics)}. "
            f"They decide how long records are kept and how large they may be. Grant it with `{command}`, or set "
            "accept_unchecked=True in Kafka(...) to run without these checks."
        )


def _promised(graph: Graph) -> bool:
    """Whether any processor promises exactly-once; those of DataFrames always do."""
    return bool(graph.dataframes) or any(
        graph.strategy_of(processor) == "exactly-once" for processor in graph.processors.values()
    )


def _unmade_inputs(graph: Graph) -> Iterator[tuple[str, str]]:
    """(Processor, topic) of each input that nothing in the graph writes or declares."""
    made = {*graph.topics_written(), *graph.topics}
    everyone: tuple[Processor | DataFrameProcessor, ...] = (*graph.processors.values(), *graph.dataframes.values())
    yield from ((part.name, topic) for part in everyone for topic in part.read_topics if topic not in made)


def _missing_inputs(graph: Graph, facts: ClusterFacts) -> Iterator[str]:
    for name, topic in _unmade_inputs(graph):
        if topic not in facts.topics:
            yield (
                f"{name} reads {topic!r}, which does not exist and which nothing in the graph writes"
                f"{hint(topic, graph.topics_written())}. Create it, or declare Source({topic!r}) or "
                f"topics={{{topic!r}: Topic(...)}} to have it created."
            )


def _misspelt_inputs(graph: Graph) -> Iterator[str]:
    """Offline nobody knows which topics exist, but a name that is nearly one of the graph's is worth a look."""
    for name, topic in _unmade_inputs(graph):
        if near := hint(topic, graph.topics_written()):
            yield (
                f"{name} reads {topic!r}, which nothing in the graph writes{near}. Correct the name; if the topic "
                "exists on the cluster under this name, plan without --offline."
            )


def _unequal_inputs(processor: Processor, sizes: Mapping[str, int | None]) -> Iterator[str]:
    counts = {topic: sizes[topic] for topic in processor.input_topics if sizes[topic] is not None}
    if len(set(counts.values())) > 1:
        shown = ", ".join(f"{topic}: {count}" for topic, count in counts.items())
        yield (
            f"The inputs of {processor.name} ({processor.kind}) have different numbers of partitions ({shown}). Task p "
            "reads partition p of each, so make them equal: add partitions to the smaller, or copy it into a wider one."
        )
    lead = sizes[processor.lead]
    for topic in processor.tailers.values():
        if lead is not None and (sizes[topic] or lead) < lead:
            yield (
                f"{processor.name} tails {topic!r}, which has {count(sizes[topic] or 0, 'partition')}, but its inputs "
                f"have {lead}. Task p reads partition p of it, so add partitions to {topic!r}."
            )


def _compacted_join(processor: Processor, compacted: Iterable[str]) -> Iterator[str]:
    if processor.input_shape != "join":
        return
    for topic in compacted:
        yield (
            f"The join {processor.name} reads {topic!r}, which is compacted. A join pairs the k-th messages of its "
            "inputs. Compaction takes messages out, so wrong ones would be paired, and no error would show it. Read a "
            "topic that keeps every message: let its writer send to a second topic with cleanup.policy=delete."
        )


def _bad_policy(topics: Iterable[str], facts: ClusterFacts) -> Iterator[str]:
    for topic in topics:
        known = facts.topics.get(topic)
        if known is None:
            continue
        policy = known.config.get("cleanup.policy", "compact")
        if policy != "compact":
            yield (
                f"Topic {topic!r} has cleanup.policy={policy}, so Kafka would delete what tasks recover from. Set it "
                f"to compact alone: kafka-configs --alter --topic {topic} --add-config cleanup.policy=compact."
            )


def _bad_backing(planned: ProcessorPlan, facts: ClusterFacts) -> Iterator[str]:
    backing = facts.topics.get(planned.backing)
    if backing is not None and planned.partitions is not None and backing.partitions > planned.partitions:
        yield (
            f"{planned.backing!r} has {count(backing.partitions, 'partition')}, but the inputs of {planned.name} have "
            f"{planned.partitions}. Partitions never become fewer, so the inputs are others than before: bind the "
            "processor to the old topics, or give it a new name=: it then begins at its start=, and with 'earliest' "
            "all that its inputs hold is delivered again, so outputs repeat."
        )


def _narrow(graph: Graph, facts: ClusterFacts) -> Iterator[str]:
    """Topics that take smaller batches than tasks write; an error message, too, must always fit its topic."""
    everyone: tuple[Processor | DataFrameProcessor, ...] = (*graph.processors.values(), *graph.dataframes.values())
    for topic in sorted({*graph.error_topics(), *(topic for part in everyone for topic in part.output_topics)}):
        known = facts.topics.get(topic)
        most = _config_of(graph, topic, facts).get("max.message.bytes")
        if most is not None and int(most) < LEAST_BYTES:
            yield (
                f"Topic {topic!r} has max.message.bytes={most}, which bounds a whole batch of records; tasks need at "
                f"least {LEAST_BYTES}. "
                + (
                    f"Declare it in Topic(config={{'max.message.bytes': '{LEAST_BYTES}'}}), or leave it out."
                    if known is None
                    else f"Set it: kafka-configs --alter --topic {topic} --add-config max.message.bytes={LEAST_BYTES}."
                )
            )


def _unsafe(topic: TopicFacts) -> Iterator[str]:
    """The conditions of the promise (docs/guarantee.md), as far as the facts show the settings."""
    if topic.replication < REPLICATION:
        yield (
            f"Topic {topic.name!r} has {count(topic.replication, 'replica')}, so the loss of brokers is the loss "
            f"of data. Give it {REPLICATION}: kafka-reassign-partitions, or recreate it."
        )
    in_sync = topic.config.get("min.insync.replicas")
    if in_sync is not None and int(in_sync) < MIN_IN_SYNC:
        yield (
            f"Topic {topic.name!r} has min.insync.replicas={in_sync}, so an acknowledged record may be on one broker "
            f"only. Set it: kafka-configs --alter --topic {topic.name} --add-config min.insync.replicas={MIN_IN_SYNC}."
        )
    if topic.config.get("unclean.leader.election.enable", "false") == "true":
        yield (
            f"Topic {topic.name!r} allows unclean leader election, which drops acknowledged records. Set it: "
            f"kafka-configs --alter --topic {topic.name} --add-config unclean.leader.election.enable=false."
        )


def _warnings(graph: Graph, processors: Iterable[ProcessorPlan], facts: ClusterFacts | None) -> Iterator[str]:
    if facts is not None and facts.brokers < REPLICATION:
        yield (
            f"The cluster has {count(facts.brokers, 'broker')}: what its disks lose is lost. The promise needs "
            f"{REPLICATION}; this is for development."
        )
    for group in topology.cycles(graph):
        yield f"Messages can go round in a cycle: {quoted(group)}. Make sure that they come to an end."
    everyone: tuple[Processor | DataFrameProcessor, ...] = (*graph.processors.values(), *graph.dataframes.values())
    for topic in sorted({topic for p in everyone for topic in p.output_topics}):
        if not graph.topic(topic).provenance:
            yield f"Topic {topic!r} has provenance=False, so verify cannot say what in it is lost or duplicated."
    yield from outgrown(processors)
    for one in processors:
        if one.strategy != "exactly-once":
            yield f"{one.name} runs {one.strategy}: a crash may {_weakness(one.strategy)} messages."
        yield from _aged(graph, graph.processors[one.name], facts)
        yield from _compacted_alts(graph.processors[one.name], one.compacted)
    for frame in graph.dataframes:
        yield f"{frame} is a processor of DataFrames: the native runtime refuses it, Spark runs it."


def outgrown(processors: Iterable[ProcessorPlan]) -> Iterator[str]:
    """Warnings of inputs with more partitions than their backing topics, which applying the plan resolves."""
    for one in processors:
        if one.stopped:
            stopped = ", ".join(map(str, one.stopped))
            yield (
                f"{one.inputs[0][1]!r} has {count(one.partitions or 0, 'partition')}, {one.backing!r} has "
                f"{one.backing_partitions}: {stopped} stop until 'cues-kafka plan MODULE:GRAPH --apply' has added the "
                "rest."
            )


def _aged(graph: Graph, processor: Processor, facts: ClusterFacts | None) -> Iterator[str]:
    """Outputs have the timestamps of their inputs, by which retention counts."""
    if facts is None:
        return
    kept = {topic: _retention_ms(graph, topic, facts) for topic in (*processor.input_topics, *processor.output_topics)}
    oldest = max(processor.input_topics, key=lambda topic: kept[topic])
    for topic in dict.fromkeys(processor.output_topics):
        stamped = _config_of(graph, topic, facts).get("message.timestamp.type") == "LogAppendTime"
        if kept[topic] < kept[oldest] and not stamped:
            yield (
                f"Topic {topic!r} keeps messages for {kept[topic] / DAY_MS:g} days, {oldest!r} for longer. What "
                f"{processor.name} makes of older messages has their timestamps, so Kafka deletes it soon after it is "
                f"written. Set it: kafka-configs --alter --topic {topic} --add-config retention.ms=-1, or "
                "message.timestamp.type=LogAppendTime."
            )


def _compacted_alts(processor: Processor, compacted: Iterable[str]) -> Iterator[str]:
    if processor.input_shape != "alts":
        return
    for topic in compacted:
        yield (
            f"{processor.name} (alts) reads {topic!r}, which is compacted. If a worker dies in a batch and compaction "
            "takes a message of that batch before it is retried, the task stops. 'cues-kafka accept-loss MODULE:GRAPH "
            f"{processor.name}' then lets it go on with what is left."
        )


def _retention_ms(graph: Graph, topic: str, facts: ClusterFacts) -> float:
    """How long a topic keeps messages, by their timestamps; the brokers' default where it is not known."""
    config = _config_of(graph, topic, facts)
    for_ever = "delete" not in config.get("cleanup.policy", "delete") or config.get("retention.ms") == "-1"
    return math.inf if for_ever else int(config.get("retention.ms", 7 * DAY_MS))


def _config_of(graph: Graph, topic: str, facts: ClusterFacts) -> Mapping[str, str]:
    """A topic's settings; where it does not exist yet, those that are declared."""
    known = facts.topics.get(topic)
    return graph.topic(topic).config if known is None else known.config


def orphans(graph: Graph, listed: Collection[str]) -> dict[str, str]:
    """Backing topics under this graph's name whose processor is not in it: it was renamed, or removed."""
    known = {backing_topic(graph.name, name) for name in (*graph.processors, *graph.dataframes)}
    prefix, suffix = backing_topic(graph.name, "|").split("|")
    found = {topic: topic.removeprefix(prefix).removesuffix(suffix) for topic in sorted(set(listed) - known)}
    return {topic: name for topic, name in found.items() if topic == f"{prefix}{name}{suffix}" and "." not in name}


def _orphans(graph: Graph, listed: Collection[str]) -> Iterator[str]:
    for topic, name in orphans(graph, listed).items():
        yield (
            f"{topic!r} holds the place of a processor {name!r}, which this graph does not have. If it was "
            "renamed, the new one begins at its start=, and with 'earliest' outputs repeat: take the old name "
            "back. If it was removed, delete the topic."
        )


def _weakness(strategy: Strategy) -> str:
    return "repeat" if strategy == "at-least-once" else "lose"


# --- Text


def _lines(planned: Plan, *, topics: bool, acls: bool, principals: Mapping[str, str]) -> Iterator[str]:
    yield _headline(planned)
    yield ""
    yield from _table([*map(_processor_row, planned.processors), *map(_frame_row, planned.dataframes)])
    if topics:
        for title, names in [
            *((one.name, _processor_names(one)) for one in planned.processors),
            *((one.name, _frame_names(one)) for one in planned.dataframes),
        ]:
            yield from _section(f"Names of {title}", _table(names))
    if acls:
        yield from _acl_lines(planned.acls, principals)
    yield from _section("Topics that must exist", planned.expected)
    yield from _section("Topics to create", [_new_topic(topic, settings=topics) for topic in planned.create])
    yield from _section("Partitions to add", [f"{g.topic}: from {g.partitions} to {g.wanted}" for g in planned.grow])
    yield from _section("Output bindings not checked", map(_not_checked, filter(_has_unchecked, planned.processors)))
    yield from _section("Warnings", planned.warnings)
    yield from _section("Refused", planned.refusals)


def _headline(planned: Plan) -> str:
    where = "offline" if planned.brokers is None else f"on {count(planned.brokers, 'broker')}"
    parts = [count(len(planned.processors) + len(planned.dataframes), "processor")]
    if planned.processors:
        unknown = any(one.partitions is None for one in planned.processors)
        parts.append("number of tasks not known offline" if unknown else count(len(planned.tasks), "task"))
    if planned.dataframes:
        parts.append(f"{count(sum(one.slots or 0 for one in planned.dataframes), 'slot')} on Spark")
    return f"Graph {planned.graph}, planned {where}: {', '.join(parts)}"


def _table(rows: Iterable[tuple[str, ...]]) -> list[str]:
    """Rows with their columns below each other."""
    rows = list(rows)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  " + "  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]


def _section(title: str, lines: Iterable[str]) -> Iterator[str]:
    if lines := list(lines):
        yield ""
        yield f"{title}:"
        yield from (f"  {line.removeprefix('  ')}" for line in lines)


def _processor_row(one: ProcessorPlan) -> tuple[str, ...]:
    kind = one.kind if one.strategy == "exactly-once" else f"{one.kind}, {one.strategy}"
    tasks = "? tasks" if one.partitions is None else count(one.partitions, "task")
    return one.name, kind, tasks, _wires(one.inputs, one.outputs, one.errors)


def _frame_row(one: FramePlan) -> tuple[str, ...]:
    kind, slot = ("dataframe, staged", "part") if one.staged else ("dataframe", "slot")
    slots = f"? {slot}s" if one.slots is None else count(one.slots, slot)
    return one.name, kind, slots, _wires(one.inputs, one.outputs, one.errors)


def _wires(inputs: Pairs, outputs: Pairs, errors: str | None) -> str:
    """``orders -> checked; errors: shop.errors``; a binding's name is shown where there are several."""
    wires = f"{_bound(inputs)} -> {_bound(outputs)}" if outputs else _bound(inputs)
    return f"{wires}; errors: {errors}" if errors else wires


def _bound(pairs: Pairs) -> str:
    return pairs[0][1] if len(pairs) == 1 else ", ".join(f"{binding}={topic}" for binding, topic in pairs)


def _processor_names(one: ProcessorPlan) -> Iterator[tuple[str, str]]:
    yield from _names(one, one.partitions)
    if one.replay:
        yield "replay", one.replay
    for store, topic in one.changelogs:
        yield f"changelog {store}", topic
    if one.fingerprint:
        yield "fingerprint", one.fingerprint.hex()


def _frame_names(one: FramePlan) -> Iterator[tuple[str, str]]:
    yield "written", "staged" if one.staged else "direct, or staged if its plan shuffles or keeps state"
    yield from _names(one, one.slots)


def _names(one: ProcessorPlan | FramePlan, width: int | None) -> Iterator[tuple[str, str]]:
    first = f"{one.transactional_prefix}0"
    last = "" if not width or width == 1 else f" .. {one.transactional_prefix}{width - 1}"
    yield "group", one.group
    yield "transactional ids", f"{first}{last}"
    yield "backing", one.backing


def _new_topic(topic: NewTopic, *, settings: bool) -> str:
    shown = f"{topic.name}: {count(topic.partitions, 'partition')}, replication {topic.replication}"
    return shown + "".join(f", {name}={value}" for name, value in sorted(topic.config.items()) if settings)


def _has_unchecked(one: ProcessorPlan) -> bool:
    return bool(one.unchecked)


def _not_checked(one: ProcessorPlan) -> str:
    shown = ", ".join(f'"{binding}"' for binding in one.unchecked)
    return f"{one.name}: to have them checked, annotate its result with their names as Literal[{shown}]"


def _acl_lines(acls: Collection[Acl], principals: Mapping[str, str]) -> Iterator[str]:
    """The commands that grant what each role needs."""
    for role, commands in kafka_acls(acls, principals).items():
        yield from _section(f"ACLs of the {role}", commands)


# --- Data


def _topic_data(topic: NewTopic) -> dict[str, Any]:
    return {
        "name": topic.name,
        "partitions": topic.partitions,
        "replication": topic.replication,
        "config": dict(topic.config),
    }


def _processor_data(one: ProcessorPlan) -> dict[str, Any]:
    return {
        "name": one.name,
        "kind": one.kind,
        "strategy": one.strategy,
        "inputs": dict(one.inputs),
        "outputs": dict(one.outputs),
        "errors": one.errors,
        "tasks": one.partitions,
        "waiting": [str(task) for task in one.stopped],
        "group": one.group,
        "transactional_prefix": one.transactional_prefix,
        "backing": one.backing,
        "replay": one.replay,
        "changelogs": dict(one.changelogs),
        "fingerprint": None if one.fingerprint is None else one.fingerprint.hex(),
        "unchecked": list(one.unchecked),
    }


def _frame_data(one: FramePlan) -> dict[str, Any]:
    return {
        "name": one.name,
        "inputs": dict(one.inputs),
        "outputs": dict(one.outputs),
        "errors": one.errors,
        "staged": one.staged,
        "slots": one.slots,
        "group": one.group,
        "transactional_prefix": one.transactional_prefix,
        "backing": one.backing,
    }

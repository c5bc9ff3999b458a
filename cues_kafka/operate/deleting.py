"""Deletes what a graph, or a processor of it, has on a cluster: topics and groups, after a plan.

The group of a processor goes first, and Kafka refuses that while it has members. Its backing topic goes last. Until
then a task that is started again goes on by its record, or stops because its changelogs are gone: it delivers nothing
twice. A deletion that was cut short is run again. It finds what is left by the names of topics.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from cues_kafka.brokers.examination import GroupHealth
from cues_kafka.errors import BrokerError, ConfigError, RecoveryError
from cues_kafka.graph.dataframe import DataFrameProcessor
from cues_kafka.graph.definition import Graph
from cues_kafka.graph.names import (
    backing_topic,
    control_topic,
    group_id,
    hint,
    no_such_processor,
    processor_of,
    quoted,
    status_topic,
    tools_group,
    transactional_prefix,
)
from cues_kafka.graph.processor import Processor
from cues_kafka.operate.look.drivers import refuse_drivers
from cues_kafka.operate.look.members import has_members
from cues_kafka.operate.look.newest import NewestRecords
from cues_kafka.operate.other_readers import other_readers
from cues_kafka.ports.clock import Clock
from cues_kafka.ports.log import TopicPartition
from cues_kafka.task.clock import SystemClock
from cues_kafka.words import count


class Owned(NamedTuple):
    """
    What one processor or feed has on the cluster.

    Attributes:
        name: of the processor.
        declared: whether the graph has it.
        group: its consumer group; empty: the cluster has no such group.
        topics: its topics, the backing topic last.
        transactional_prefix: the beginning of its transactional ids, which the brokers forget by themselves.
    """

    name: str
    declared: bool
    group: str
    topics: tuple[str, ...]
    transactional_prefix: str


@dataclass(frozen=True, slots=True)
class Deletion:
    """
    What would be deleted.

    Attributes:
        graph: name of the graph.
        parts: what its processors have, those that have nothing left out.
        topics: other topics: of the graph as a whole, and of the user.
        kept: topics of the user that stay.
        remains: what is outside of the cluster, and stays there, in full sentences.
        warnings: what follows from the deletion, in full sentences.
        readers: groups that are not the graph's and read some of the topics.
    """

    graph: str
    parts: tuple[Owned, ...]
    topics: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    remains: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    readers: tuple[str, ...] = ()

    @property
    def empty(self) -> bool:
        """Whether there is nothing to delete."""
        return not (self.parts or self.topics)

    def lines(self) -> Iterator[str]:
        """What would be deleted, for people."""
        for part in self.parts:
            yield f"{part.name}{'' if part.declared else ' (no longer in the graph)'}:"
            if part.group:
                yield f"  - group {part.group}"
            yield from (f"  - topic {topic}" for topic in part.topics)
            if part.transactional_prefix:
                yield f"  (the brokers forget the transactional ids {part.transactional_prefix}* by themselves)"
        if self.topics:
            yield "other topics:"
            yield from (f"  - topic {topic}" for topic in self.topics)
        if self.kept:
            yield f"kept: topics {', '.join(self.kept)}"
        for title, texts in (("Stays", self.remains), ("Note", self.warnings)):
            yield from (f"{title}: {text}" for text in texts)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return {
            "graph": self.graph,
            "parts": [part._asdict() for part in self.parts],
            "topics": list(self.topics),
            "kept": list(self.kept),
            "remains": list(self.remains),
            "warnings": list(self.warnings),
            "readers": list(self.readers),
        }


class Deleting:
    """Plans deletions for one graph, and carries them out."""

    def __init__(self, graph: Graph, broker: Any, *, clock: Clock | None = None) -> None:
        """
        Raises:
            BrokerError: the cluster does not answer.
        """
        self._graph, self._broker, self._clock = graph, broker, clock or SystemClock()
        self._sizes: Mapping[str, int] = broker.partitions()
        left = {processor_of(graph.name, topic) for topic in self._sizes} - {None, *graph.all_processors}
        self._unused = sorted(name for name in left if name is not None)

    def whole(self, *, data: bool = False) -> Deletion:
        """
        Plan to delete everything that the graph has, also what removed processors have left.

        Args:
            data: also the topics of the user that the graph writes or declares, with the messages in them.
        """
        found = self._of([*self._graph.all_processors, *self._unused])
        users = [topic for topic in self._graph.topics_used() if topic in self._sizes]
        made = {*self._graph.topics_written(), *self._graph.topics}
        going = tuple(topic for topic in users if data and topic in made)
        kept = tuple(topic for topic in users if topic not in going)
        unseen = self._unseen({*self._graph.internal_topics(), *(made if data else ())})
        planned = replace(found, topics=(*self._shared(), *going), kept=kept, warnings=(*found.warnings, *unseen))
        return self._with_readers(planned, going)

    def _with_readers(self, planned: Deletion, topics: Collection[str]) -> Deletion:
        """The plan with who else reads topics of the user that go: other graphs share them, and other applications."""
        own = {group_id(self._graph.name, name) for name in (*self._graph.all_processors, *self._unused)}
        others = other_readers(self._broker, topics, own)
        return replace(planned, warnings=(*planned.warnings, *others.warnings), readers=tuple(others.topics))

    def _unseen(self, wanted: Collection[str]) -> Iterator[str]:
        """The cluster does not list topics that this user may not describe, so they would stay without a word."""
        try:
            self._broker.partitions(sorted({*wanted} - {*self._sizes}))
        except BrokerError as error:
            if not error.forbidden:
                raise
            yield f"topics that this user cannot see are not deleted: {error}"

    def _shared(self) -> Iterator[str]:
        """
        Topics of the graph as a whole, also where the settings do without them now, or cuts= was taken back.

        Ours are compacted. Another program may have a topic of such a name.
        """
        names = (control_topic(self._graph.name), status_topic(self._graph.name))
        there = [name for name in names if name in self._sizes]
        for name, found in self._broker.facts(there).topics.items() if there else ():
            if found.config.get("cleanup.policy", "compact") == "compact":
                yield name

    def processor(self, name: str) -> Deletion:
        """
        Plan to delete what one processor has, whether the graph declares it or not.

        Raises:
            ConfigError: the graph has no such processor, and the cluster has nothing of it.
        """
        known = [*self._graph.all_processors, *self._unused]
        if name not in known:
            raise ConfigError(no_such_processor(self._graph.name, [name], known))
        found = self._of([name])
        if name not in self._graph.all_processors or found.empty:
            return found
        again = (
            f"the graph still declares {name}. Started again, it begins at its start=, and with 'earliest' everything "
            "that its inputs hold is delivered again, so outputs and effects repeat."
        )
        return replace(found, warnings=(*found.warnings, again))

    def unused(self) -> Deletion:
        """
        Plan to delete what processors have that the graph does not declare any more.

        Topics of those that it declares count too, if the declaration does without them now: changelogs of removed
        stores, for example.
        """
        found, used = self._of(self._unused), {*self._graph.internal_topics()}
        own = {topic: processor_of(self._graph.name, topic) for topic in sorted(self._sizes)}
        left = {
            name: tuple(topic for topic, owner in own.items() if owner == name and topic not in used)
            for name in self._graph.all_processors
        }
        parts = tuple(Owned(name, True, "", topics, "") for name, topics in left.items() if topics)
        stores = sorted(topic for topics in left.values() for topic in topics if topic.endswith(".changelog"))
        again = (
            f"a store that is declared again under its name does not fit its task without {quoted(stores)}: its task "
            "refuses to run until `cues-kafka rebuild MODULE:GRAPH PROCESSOR` has built it."
        )
        return replace(
            found, parts=(*found.parts, *parts), warnings=(*found.warnings, again) if stores else found.warnings
        )

    def topic(self, name: str) -> Deletion:
        """
        Plan to delete one topic of the user.

        Raises:
            ConfigError: the graph does not use it, or it is one of the framework's own.
        """
        users = self._graph.topics_used()
        if (owner := processor_of(self._graph.name, name)) is not None:
            raise ConfigError(f"{name!r} belongs to {owner!r}. Delete it with its processor: MODULE:GRAPH {owner}")
        if name not in users:
            raise ConfigError(
                f"graph {self._graph.name!r} does not use a topic {name!r}{hint(name, users)}; it uses {quoted(users)}"
            )
        readers = [one.name for one in self._graph.all_processors.values() if name in one.read_topics]
        again = (
            f"read by {', '.join(readers)}. A topic that is created again under its name is another one: their tasks "
            "stop until `cues-kafka reset MODULE:GRAPH PROCESSOR` lets them begin there."
        )
        topics = (name,) if name in self._sizes else ()
        planned = Deletion(self._graph.name, (), topics, warnings=(again,) if readers else ())
        return self._with_readers(planned, topics)

    def carry_out(self, planned: Deletion, *, tell: Callable[[str], Any] = lambda _: None) -> None:
        """
        Delete what was planned, processor by processor; run again, it goes on where it was cut short.

        Args:
            planned: the plan.
            tell: told of each group and topic that is gone, and why the command waits.

        Raises:
            RecoveryError: a group has members, a driver of Spark runs, or a transaction is open; nothing was deleted.
            BrokerError: the cluster refuses.
        """
        self._refuse_used(planned, tell)
        for part in planned.parts:
            # The group first: Kafka refuses that while a worker is in it. The backing topic last: a task that is
            # started meanwhile goes on by its record, or stops without its changelogs. Without its record (R4) it would
            # begin at start= and deliver everything again.
            if part.group:
                gone = self._broker.forget(part.group, self._broker.partitions())
                left = f"group {part.group} stays: it has offsets of a topic that was created just now"
                tell(f"group {part.group} is deleted" if gone else f"{left}. Run the command again")
            for topic in part.topics:
                if topic == part.topics[-1]:
                    self._refuse_members([part.name])  # one that was started since
                self._delete(topic, tell)
        for topic in planned.topics:
            self._delete(topic, tell)

    def _delete(self, topic: str, tell: Callable[[str], Any]) -> None:
        self._broker.delete([topic])
        tell(f"topic {topic} is deleted")

    def _refuse_used(self, planned: Deletion, tell: Callable[[str], Any]) -> None:
        """Refuse while anything runs; a query on Spark is no member of a group, but its driver tells its status."""
        topics = set(planned.topics)
        users = [
            one.name
            for one in self._graph.all_processors.values()
            if topics & {*one.read_topics, *one.output_topics, self._graph.errors_of(one)}
        ]
        names = {*users, *(part.name for part in planned.parts)}
        if planned.topics and not topics & {*self._graph.topics_used()}:
            names |= {*self._graph.all_processors}  # the control topic, to which all workers listen
        self._refuse_members(sorted(names))
        others = {group: tuple(members) for group in planned.readers if (members := self._broker.members(group))}
        if others:
            raise RecoveryError(has_members(others))
        if unseen := refuse_drivers(self._graph, self._broker, names, clock=self._clock, tell=tell):
            tell(unseen)
        self._refuse_moving({part.name for part in planned.parts})
        backing = [topic for part in planned.parts for topic in part.topics[-1:]]
        places = [TopicPartition(topic, p) for topic in backing for p in range(self._sizes[topic])]
        marks = self._broker.watermarks(places)
        if written := sorted({place.topic for place, (_, stable, high) in marks.items() if stable < high}):
            raise RecoveryError(
                f"a transaction is open in {', '.join(written)}. Stop what writes there; that of a process which was "
                "killed ends with its time-out, after 60 s by default"
            )

    def _refuse_moving(self, names: set[str]) -> None:
        """Refuse while a processor that stays is half-way from a name that goes (X5): its place is still there."""
        stay = [name for name in self._graph.processors if name not in names]
        if self._graph.all_processors.keys() >= names:
            return
        topics = {backing_topic(self._graph.name, name): name for name in stay}
        places = [TopicPartition(topic, p) for topic in topics for p in range(self._sizes.get(topic, 0))]
        reading = NewestRecords(self._broker, tools_group(self._graph.name), self._clock)
        for place, found in reading.look(self._broker.watermarks(places) if places else {}).items():
            if found.why:
                raise RecoveryError(
                    f"the newest record of {place.topic}/{place.partition} cannot be read: {found.why}. Until then it "
                    f"is not known whether {topics[place.topic]!r} still needs what would be deleted."
                )
            old = found.record.moving_from if found.record else ""
            if old in names:
                raise RecoveryError(
                    f"{topics[place.topic]!r} has not arrived from the name {old!r} yet, and would lose its place. End "
                    f"the move first: `cues-kafka rename MODULE:GRAPH {old} {topics[place.topic]} --yes`."
                )

    def _refuse_members(self, names: Collection[str]) -> None:
        groups = self._groups(names)
        if members := {group: health.members for group, health in groups.items() if health.members}:
            raise RecoveryError(has_members(members))

    def _groups(self, names: Collection[str]) -> Mapping[str, GroupHealth]:
        groups: Mapping[str, GroupHealth] = self._broker.examine(
            (), [group_id(self._graph.name, name) for name in names]
        ).groups
        return groups

    def _of(self, names: Sequence[str]) -> Deletion:
        """What these processors have."""
        groups = self._groups(names)
        parts = []
        for name in names:
            backing, group = backing_topic(self._graph.name, name), group_id(self._graph.name, name)
            own = sorted(topic for topic in self._sizes if processor_of(self._graph.name, topic) == name)
            topics = (*(topic for topic in own if topic != backing), *(topic for topic in own if topic == backing))
            # Without a topic of the framework's own a group of this name may be another application's.
            there = groups[group].state or groups[group].allowed == frozenset()
            if topics:
                declared = name in self._graph.all_processors
                prefix = transactional_prefix(self._graph.name, name)
                parts.append(Owned(name, declared, group if there else "", topics, prefix))
        return Deletion(self._graph.name, tuple(parts), remains=tuple(self._outside([part.name for part in parts])))

    def _outside(self, names: Collection[str]) -> Iterator[str]:
        for name, one in self._graph.all_processors.items():
            if name not in names:
                continue
            for key, target in getattr(one, "targets", {}).items():
                yield (
                    f"{name} -> {target.title(key)}: what it wrote there, and what we noted of its tasks. If it is "
                    f"started again, `cues-kafka reset MODULE:GRAPH {name} --to here` says that this is right."
                )
            if isinstance(one, DataFrameProcessor):
                yield f"the checkpoint of its query (<checkpoint>/{self._graph.name}.{name}); delete its directory."
            if isinstance(one, Processor) and any(store.on_disk for store in one.state.values()):
                yield f"the stores of {name} on the disks of its workers, which a new changelog invalidates."
        if self._unused and set(self._unused) & set(names):
            yield (
                f"what {count(len(set(self._unused) & set(names)), 'processor')} not in the graph wrote outside of the "
                "cluster, which the graph does not know."
            )

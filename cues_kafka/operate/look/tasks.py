"""What a cluster says of the tasks of a graph: the one reading that status, doctor, plans and verbs share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property

from cues_kafka.core.events import InputFacts
from cues_kafka.core.records import Record
from cues_kafka.core.spec import Input, Spec
from cues_kafka.errors import CodecError, RecoveryError, UnstableOffsets
from cues_kafka.graph.definition import Graph
from cues_kafka.graph.feed import Feed
from cues_kafka.graph.processor import Processor
from cues_kafka.plan.plan import Plan, plan
from cues_kafka.plan.topics import topics_to_ask
from cues_kafka.ports.broker import Broker
from cues_kafka.ports.clock import Clock
from cues_kafka.ports.facts import ClusterFacts, Watermarks
from cues_kafka.ports.log import TopicPartition
from cues_kafka.records.reading import record_below
from cues_kafka.task.clock import SystemClock
from cues_kafka.task.making.specs import Identity, feed_spec_of, frame_spec, spec_of


class TaskReading:
    """
    Reads what the cluster says of a graph and of its tasks, part by part, each when it is needed.

    Topics and the plan are asked once. Records, ends and offsets move while workers run, so each question about them is
    a new one. Facts and a plan that a caller has already are not asked for again.
    """

    def __init__(
        self,
        graph: Graph,
        broker: Broker,
        clock: Clock | None = None,
        *,
        facts: ClusterFacts | None = None,
        planned: Plan | None = None,
    ) -> None:
        self.graph, self.broker, self.clock = graph, broker, clock or SystemClock()
        self._given = facts, planned

    # What does not move

    @cached_property
    def facts(self) -> ClusterFacts:
        """What the cluster says of the topics of the graph."""
        return self._given[0] or self.broker.facts(topics_to_ask(self.graph))

    @cached_property
    def plan(self) -> Plan:
        """The plan of the graph on this cluster."""
        return self._given[1] or plan(self.graph, self.facts)

    def width(self, topic: str) -> int:
        """The number of partitions of a topic; 0: it does not exist."""
        found = self.facts.topics.get(topic)
        return found.partitions if found else 0

    def topic_id(self, topic: str) -> bytes:
        """The id of a topic that exists."""
        return self.facts.topics[topic].topic_id

    def specs(self, name: str, identity: Identity, width: int) -> Callable[[int], Spec]:
        """Gives a function that makes the specs of a processor's tasks, or of its slots on Spark; see `task_spec`."""
        declared = self.graph.all_processors[name]
        if isinstance(declared, Processor):
            return spec_of(self.graph, self.plan, declared, width, identity)
        if isinstance(declared, Feed):
            return feed_spec_of(self.graph, declared, identity)
        return lambda slot: frame_spec(self.graph.name, name, slot, width, identity, inputs=declared.inputs)

    # What moves while workers run

    def ends(self, spec: Spec) -> Watermarks:
        """The ends of a task's backing partition."""
        return self.broker.watermarks([place_of(spec)])[place_of(spec)]

    def record(self, spec: Spec, *, whole: bool = False) -> Record | None:
        """
        The newest committed record of a task, below the last stable offset.

        `whole`: below the high watermark, for which it waits until open transactions end (R3).

        Raises:
            CodecError: it cannot be decoded.
            BrokerError: it cannot be read.
        """
        low, stable, high = self.ends(spec)
        return record_below(self.broker, place_of(spec), low, high if whole else stable, self.clock, group=spec.group)

    def settled(self, spec: Spec, *, whole: bool = False) -> Record | None:
        """The same, for a tool that writes behind it: what cannot be decoded is a `RecoveryError`."""
        try:
            return self.record(spec, whole=whole)
        except CodecError as error:
            raise RecoveryError(f"{spec.name}: its newest record cannot be read: {error}") from error

    def inputs(self, spec: Spec, bindings: Sequence[Input] | None = None) -> dict[str, InputFacts]:
        """What the cluster says of the partitions that a task reads, or of these bindings of it; all must exist."""
        places = places_of(spec, spec.inputs if bindings is None else bindings)
        marks = self.broker.watermarks([*dict.fromkeys(places.values())]) if places else {}
        return {name: InputFacts(self.topic_id(place.topic), *marks[place]) for name, place in places.items()}

    def there(self, spec: Spec, bindings: Iterable[Input]) -> list[Input]:
        """Those of the bindings whose partition exists."""
        return [one for one in bindings if spec.partition < self.width(one.topic)]

    def offsets(self, spec: Spec) -> dict[str, int | None] | None:
        """The offsets that a task's group has committed, by binding; None: an open transaction holds them."""
        places = places_of(spec, spec.inputs)
        try:
            held = self.broker.committed(spec.group, [*dict.fromkeys(places.values())])
        except UnstableOffsets:
            return None
        return {binding: held[place] for binding, place in places.items()}


def place_of(spec: Spec) -> TopicPartition:
    """Where a task's records are."""
    return TopicPartition(spec.backing, spec.partition)


def places_of(spec: Spec, bindings: Iterable[Input]) -> dict[str, TopicPartition]:
    """The partition of a task that each binding reads."""
    return {one.binding: TopicPartition(one.topic, spec.partition) for one in bindings}

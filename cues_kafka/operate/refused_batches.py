"""Where tasks go on that stand before a batch which the client refuses to read, for `accept-loss`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from cues_kafka.core.events import InputFacts
from cues_kafka.core.spec import Spec
from cues_kafka.ports import Broker, Position, Positions, TopicPartition
from cues_kafka.records.unreadable import RefusedBatch, refused_at


class RefusedBatches:
    """
    Finds batches that the client refuses, at positions of tasks.

    Args:
        broker: the cluster.

    Attributes:
        found: the batches, by task's partition.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.found: dict[int, list[RefusedBatch]] = {}

    def behind(self, spec: Spec, positions: Positions, facts: Mapping[str, InputFacts]) -> Positions:
        """
        The positions; those at a batch that the client refuses are moved behind it.

        Args:
            spec: the task.
            positions: where it stands.
            facts: what the cluster says of its inputs or tailers, by binding.

        Raises:
            BrokerError: a partition cannot be read for another reason.
        """
        return tuple(self._behind(spec, position, facts[position.binding]) for position in positions)

    def _behind(self, spec: Spec, position: Position, facts: InputFacts) -> Position:
        place = TopicPartition(position.topic, spec.partition)
        while (batch := refused_at(self._broker, place, position.offset, facts.stable, group=spec.group)) is not None:
            self.found.setdefault(spec.partition, []).append(batch)
            position = position._replace(offset=batch.end)
        return position

    def notes(self, partition: int) -> Iterator[str]:
        """Why what is passed over cannot be read."""
        for batch in self.found.get(partition, ()):
            yield f"{batch} cannot be read: {batch.why}"

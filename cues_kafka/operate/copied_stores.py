"""The stores of a renamed task: what its changelogs hold under the old name is written under the new one (X5, R4b).

The copy is in the transaction with which the task arrives, behind its record, and ends with the same marks. So a task
has all entries of the old name, or none and no record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from cues_kafka.core.records import Record
from cues_kafka.core.spec import Spec
from cues_kafka.errors import RecoveryError
from cues_kafka.graph.names import quoted
from cues_kafka.ports import Broker, TopicPartition
from cues_kafka.records.scanning import read_range
from cues_kafka.state.layers import MARK, TOPIC
from cues_kafka.state.marks import UNFINISHED, shown_mark


def refuse_other_stores(spec: Spec, record: Record) -> None:
    """
    Refuse where the record's stores are not those of the declaration.

    Args:
        spec: the task under its old name.
        record: its newest record.

    Raises:
        RecoveryError: stores were added, or are being rebuilt.
    """
    kept = dict(record.stores)
    if UNFINISHED in kept:
        raise RecoveryError(
            f"{spec.name}: its stores are being rebuilt, and that is not finished. While the processor has its old "
            f"name: `cues-kafka rebuild MODULE:GRAPH {spec.processor} --yes`."
        )
    if kept and (added := sorted(dict(spec.stores).keys() - kept.keys())):
        raise RecoveryError(
            f"{spec.name} has not run with {quoted(added)} in state= yet. Declare its stores as they were, and rename "
            "it first; or start it once under its old name."
        )


def copied(
    broker: Broker, old: Spec, new: Spec, record: Record, topic_ids: Callable[[], Mapping[str, bytes]]
) -> Callable[[], Iterator[tuple[Any, ...]]] | None:
    """
    What is written into the changelogs of the new name, without the marks; None: there is nothing to copy.

    Args:
        broker: the cluster.
        old: the task under its old name.
        new: the same under its new name.
        record: the last one under the old name.
        topic_ids: of the changelogs of the new name.
    """
    if not record.stores or not new.stores:
        return None
    kept, sources = dict(record.stores), dict(old.stores)

    def changes() -> Iterator[tuple[Any, ...]]:
        """Asked whenever the transaction is begun again."""
        ids = topic_ids()
        for name, topic in new.stores:
            yield from _entries(broker, old, TopicPartition(sources[name], old.partition), topic, kept[name])
            yield topic, new.partition, TOPIC, ids[topic], None, 0

    return changes


def _entries(broker: Broker, old: Spec, place: TopicPartition, topic: str, expected: int) -> Iterator[tuple[Any, ...]]:
    low, stable, _ = broker.watermarks([place])[place]
    mark: int | None = None
    for message in read_range(broker, place, low, stable, group=old.group) if low < stable else ():
        match message.key():
            case key if key == MARK:
                mark = int(message.value() or b"-1")
            case key if key != TOPIC:
                yield topic, place.partition, key, message.value(), None, 0
    if mark != expected:
        ends = "has no entries" if mark is None else f"ends with {shown_mark(mark)}"
        raise RecoveryError(
            f"{place.topic}/{place.partition} {ends}, and the task's record says {shown_mark(expected)}: a broker gave "
            "an old end of the log, or the changelog was recreated or has lost messages. Run the command again; if it "
            f"says the same, and {old.name} has not left yet, declare the old name again and run `cues-kafka rebuild "
            f"MODULE:GRAPH {old.processor} --yes`."
        )

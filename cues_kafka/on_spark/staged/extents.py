"""The offsets that a staged batch takes of its sources, and where a query stands by them."""

from __future__ import annotations

import json
from collections import ChainMap
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cues_kafka.core.records import Extent, Staged
from cues_kafka.errors import ConfigError
from cues_kafka.on_spark.query.offset_log import source_ends
from cues_kafka.on_spark.staged.publish import StagedWork
from cues_kafka.ports.log import TopicPartition
from cues_kafka.records.extents import ids_of, offsets_of


def extents_of(
    session: Any,
    checkpoint: str,
    number: int,
    *,
    names: Callable[[int, Any], tuple[str, bytes]],
    first: Mapping[str, str],
) -> tuple[Extent, ...]:
    """
    Return what a micro-batch takes of each source, as Spark wrote it to the checkpoint before it called.

    `names` gives name and topic id for the number and the end of a source; `first` says where batch 0 began, by name.

    Raises:
        ConfigError: two sources of the query have one name and end at different places.
    """
    ends = source_ends(session, checkpoint, number)
    starts: Sequence[Any] = source_ends(session, checkpoint, number - 1) if number else ()
    found: dict[str, Extent] = {}
    for place, end in enumerate(ends):
        name, topic_id = names(place, end)
        before = starts[place] if place < len(starts) else None
        start = canonical(before) if before is not None else "" if number else first.get(name, "")
        # A source without an offset has no start of the next batch either.
        extent = Extent(name, topic_id, start, "" if end is None else canonical(end))
        if found.setdefault(name, extent) != extent:
            raise ConfigError(
                f"the query reads {name!r} twice, and not up to the same place: bind it once, use it twice"
            )
    return tuple(found[name] for name in sorted(found))


def canonical(offsets: Any) -> str:
    """Offsets as canonical JSON: the same text for the same offsets."""
    return json.dumps(offsets, sort_keys=True, separators=(",", ":"))


def ends_in(batch: Staged) -> dict[TopicPartition, int]:
    """The end of a batch in each topic."""
    return dict(ChainMap(*(offsets_of(extent, extent.end) for extent in batch.extents)))


def begun(newest: Staged, query: str, committed: Collection[str]) -> dict[TopicPartition, int]:
    """Find where a query stands in its topics, by the newest record, see `begins_of`."""
    begins = begins_of(newest, query, committed)
    return dict(ChainMap(*(offsets_of(extent, begins[extent.source]) for extent in newest.extents)))


def begins_of(newest: Staged, query: str, committed: Collection[str]) -> dict[str, str]:
    """
    Find where a query stands in its sources, by the newest record.

    Spark asks where batch 0 begins each time it runs that batch. Only the announcement tells, because the log may have
    been cut since, or a reset may have moved the processor. From another place its state would not fit the published
    rows. Spark runs batches again that are not among `committed`, the numbers of those that it knows to be published;
    the newest batch of another query must be published.
    """
    ended = newest.query != query or str(newest.batch) in committed
    return {extent.source: extent.end if ended else extent.start for extent in newest.extents}


def offsets_in(offsets: str, topic: str) -> dict[int, int]:
    """The offsets of one topic, by partition, in those of a source."""
    return {int(p): offset for p, offset in (json.loads(offsets or "{}") or {}).get(topic, {}).items()}


@dataclass(frozen=True)
class BatchExtents:
    """
    What a micro-batch of a processor takes of its inputs. It can be pickled, for the process that Spark calls.

    Attributes:
        work: of the slots.
        checkpoint: the query's directory.
        bindings: of the inputs, by topic.
        first: where batch 0 begins, by binding.
        listed: whether the ids of topics are a list, because a replay topic may be read beside an input.
    """

    work: StagedWork
    checkpoint: str
    bindings: Mapping[str, str]
    first: Mapping[str, str]
    listed: bool

    def __call__(self, session: Any, number: int) -> tuple[Extent, ...]:
        """What batch `number` takes of each input; see `extents_of`."""
        ids = {name: facts.topic_id for name, facts in self.work.broker.facts(list(self.bindings)).topics.items()}

        def named(_: int, end: Mapping[str, Any]) -> tuple[str, bytes]:
            [topic] = [one for one in end if one in self.bindings]
            if not self.listed:
                return self.bindings[topic], ids.get(topic, b"")
            return self.bindings[topic], ids_of({topic: ids[topic]} if topic in ids else {})

        return extents_of(session, self.checkpoint, number, names=named, first=self.first)

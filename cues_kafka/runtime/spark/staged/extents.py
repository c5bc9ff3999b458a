"""What a staged batch takes of its sources: as Spark wrote it, and where a query stands by that."""

from __future__ import annotations

import json
from collections import ChainMap
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from cues_kafka.core.records import Extent, Staged
from cues_kafka.errors import ConfigError
from cues_kafka.ports import TopicPartition
from cues_kafka.records.reading import offsets_of
from cues_kafka.runtime.spark.query.offset_log import source_ends


def extents_of(
    session: Any,
    checkpoint: str,
    number: int,
    *,
    names: Callable[[int, Any], tuple[str, bytes]],
    first: Mapping[str, str],
) -> tuple[Extent, ...]:
    """
    What a micro-batch takes of each source, as Spark wrote it before it called.

    Args:
        session: of Spark.
        checkpoint: the query's directory.
        number: of the batch.
        names: from the number and the end of a source to its name and topic id.
        first: by name, where batch 0 began.

    Raises:
        ConfigError: two sources of the query have one name, and do not end at the same place.
    """
    ends = source_ends(session, checkpoint, number)
    starts: Sequence[Any] = source_ends(session, checkpoint, number - 1) if number else ()
    found: dict[str, Extent] = {}
    for place, end in enumerate(ends):
        name, topic_id = names(place, end)
        before = starts[place] if place < len(starts) else None
        start = canonical(before) if before is not None else "" if number else first.get(name, "")
        # A source that has no offset yet has none as the start of the next batch either.
        extent = Extent(name, topic_id, start, "" if end is None else canonical(end))
        if found.setdefault(name, extent) != extent:
            raise ConfigError(
                f"the query reads {name!r} twice, and not up to the same place: bind it once, use it twice"
            )
    return tuple(found[name] for name in sorted(found))


def canonical(offsets: Any) -> str:
    """Offsets as JSON, the same text for the same offsets."""
    return json.dumps(offsets, sort_keys=True, separators=(",", ":"))


def ends_in(batch: Staged) -> dict[TopicPartition, int]:
    """Up to where a batch took topics."""
    return _all(offsets_of(extent, extent.end) for extent in batch.extents)


def begun(newest: Staged, query: str, committed: Collection[str]) -> dict[TopicPartition, int]:
    """
    Where a query stands in its topics, by the newest record.

    Spark asks again where batch 0 begins when that comes again. Only its announcement tells: the log may have been cut
    since, or a reset may have said where; from elsewhere its state would not be that of the rows that are published.

    Args:
        newest: the newest batch that was announced.
        query: which one asks.
        committed: numbers of the batches that Spark knows to be published; others come again. Of another query, the
            newest one must be published.
    """
    if newest.query != query or str(newest.batch) in committed:
        return ends_in(newest)
    return _all(offsets_of(extent, extent.start) for extent in newest.extents)


def _all(found: Iterable[dict[TopicPartition, int]]) -> dict[TopicPartition, int]:
    return dict(ChainMap(*found))

"""What a staged batch takes of its sources: checked where a record is read, and as offsets of partitions (T2)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from cues_kafka.core.records import Extent
from cues_kafka.errors import CodecError
from cues_kafka.ports.log import TopicPartition
from cues_kafka.records.strangers import MOST, PARTITIONS, TOPIC


def checked(extent: Extent) -> Extent:
    """
    Return an extent whose texts are what they should be, so that readers can rely on it.

    Raises:
        CodecError: an id is none, or its start or end is no JSON or, where it names topics, has no offsets of them.
    """
    ids = extent.topic_id
    if len(ids) > 16:
        found = _json(extent, "ids", ids)
        if not isinstance(found, dict) or not all(isinstance(i, str) and _ID.fullmatch(i) for i in found.values()):
            raise _unfit(extent, "ids", "they are no ids of topics by name")
    elif len(ids) not in (0, 16):
        raise _unfit(extent, "ids", "an id has 16 bytes")
    for side in ("start", "end"):
        if text := getattr(extent, side):
            plain = _json(extent, side, text)
            if ids and plain is not None and not _is_offsets(plain):
                raise _unfit(extent, side, "it has no offsets by topic and partition")
    return extent


def offsets_of(extent: Extent, at: str) -> dict[TopicPartition, int]:
    """
    Return where a staged batch stands in the topics of a source; nothing if that is not known, or the topics are not
    here.

    Args:
        extent: of the source.
        at: its `start`, or its `end`.
    """
    named, ids = (json.loads(at) or {}) if extent.topic_id and at else {}, extent.ids
    return {
        TopicPartition(topic, int(p)): offset
        for topic, own in named.items()
        if topic in ids or "" in ids
        for p, offset in own.items()
    }


def ids_of(topics: Mapping[str, bytes]) -> bytes:
    """
    The ids of a source's topics, as an extent has them, with their names.

    A source may have offsets of a topic that has no id here, as of the replay topic: they are not those of an input.
    """
    ids = {topic: topic_id.hex() for topic, topic_id in topics.items()}
    return json.dumps(ids, sort_keys=True, separators=(",", ":")).encode() if ids else b""


_ID: Final = re.compile("(?:[0-9a-f]{32})?")
"""The id of a topic; empty: not known."""

_PARTITION: Final = re.compile("[0-9]{1,10}", re.ASCII)


def _is_offsets(plain: Any) -> bool:
    return isinstance(plain, dict) and all(
        TOPIC.fullmatch(topic) and isinstance(own, dict) and all(_is_offset(*one) for one in own.items())
        for topic, own in plain.items()
    )


def _is_offset(partition: str, offset: object) -> bool:
    fits = bool(_PARTITION.fullmatch(partition)) and int(partition) <= PARTITIONS
    return fits and type(offset) is int and 0 <= offset <= MOST


def _json(extent: Extent, what: str, text: str | bytes) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _unfit(extent, what, str(error)) from None


def _unfit(extent: Extent, what: str, why: str) -> CodecError:
    return CodecError(f"not a backing record: the {what} of its source {extent.source[:80]!r} does not fit ({why})")

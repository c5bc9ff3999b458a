"""An attempt as the text that a target keeps of it, and the records that it publishes later (E1)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from cues_kafka.core.delivery import HEADER, with_sequence
from cues_kafka.core.records import TargetRow, Totals
from cues_kafka.errors import CodecError
from cues_kafka.ports.log import Position, Positions
from cues_kafka.ports.target import HeldAttempt
from cues_kafka.records.strangers import MOST, Fields, read_versioned

VERSION = 1
"""The version of the text. An attempt of another version is refused."""


def held_of(row: TargetRow) -> HeldAttempt:
    """What a target keeps of an attempt."""
    attempt = {
        "version": VERSION,
        "ends": _texts(row.ends),
        "batch": {name: count for name, count in row.batch._asdict().items() if count},
        "choice": [list(one) for one in row.choice],
        "tails": _texts(row.tails),
        "tail_ends": _texts(row.tail_ends),
        "replays": _texts(row.replays),
    }
    return HeldAttempt(row.base, row.step, row.owner, json.dumps({name: one for name, one in attempt.items() if one}))


def row_of(held: HeldAttempt) -> TargetRow:
    """
    Read what `held_of` made.

    Raises:
        CodecError: it is no such text, or one of another release.
    """
    if not held.attempt:
        return TargetRow(base=held.base, step=held.step, owner=held.owner)
    found, version = read_versioned(held.attempt.encode(errors="replace"), "target's row of an attempt")
    if version != VERSION:
        raise CodecError(
            f"the target holds an attempt of version {version}; this release reads version {VERSION}: run the release "
            "that wrote it, or a newer one"
        )
    counts = found.counts("batch", -MOST) if found.has("batch") else {}
    if unknown := counts.keys() - {*Totals._fields}:
        found.refuse("batch", min(unknown))
    return TargetRow(
        base=held.base,
        step=held.step,
        owner=held.owner,
        batch=Totals(**counts),
        choice=tuple((row.text("0"), row.whole("1")) for row in _rows(found, "choice", 2)),
        ends=_positions(found, "ends"),
        tails=_positions(found, "tails"),
        tail_ends=_positions(found, "tail_ends"),
        replays=_positions(found, "replays"),
    )


def _texts(positions: Positions) -> list[list[Any]]:
    return [[p.binding, p.topic, p.topic_id.hex(), p.offset] for p in positions]


def _rows(found: Fields, name: str, length: int) -> Iterator[Fields]:
    return found.rows(name, length) if found.has(name) else iter(())


def _positions(found: Fields, name: str) -> Positions:
    rows = _rows(found, name, 4)
    return tuple(Position(row.text("0"), row.text("1"), row.id("2"), row.whole("3")) for row in rows)


def published(records: Iterable[tuple[Any, ...]], sequence: int) -> Iterator[tuple[Any, ...]]:
    """Records of a target's outbox, whose provenance names the attempt that commits them."""
    for topic, partition, key, value, headers, timestamp_ms in records:
        found = [(name, with_sequence(one, sequence) if name == HEADER else one) for name, one in headers or ()]
        yield topic, partition, key, value, found or None, timestamp_ms

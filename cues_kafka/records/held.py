"""An attempt as the text that a target keeps of it, and the records that it publishes later (E1)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from cues_kafka.core.delivery import HEADER, with_sequence
from cues_kafka.core.records import TargetRow, Totals
from cues_kafka.errors import CodecError
from cues_kafka.ports import HeldAttempt, Position, Positions

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
    try:
        found: Any = json.loads(held.attempt) if held.attempt else {"version": VERSION}
        if found["version"] != VERSION:
            raise CodecError(
                f"the target holds an attempt of version {found['version']}; this release reads version {VERSION}: run "
                "the release that wrote it, or a newer one"
            )
        places = {name: _positions(found.get(name, ())) for name in ("ends", "tails", "tail_ends", "replays")}
        choice = tuple((binding, count) for binding, count in found.get("choice", ()))
        batch = Totals(**found.get("batch", {}))
    except (ValueError, KeyError, TypeError) as error:
        raise CodecError(f"not an attempt that a target holds: {held.attempt[:200]!r} ({error})") from None
    return TargetRow(base=held.base, step=held.step, owner=held.owner, batch=batch, choice=choice, **places)


def _texts(positions: Positions) -> list[list[Any]]:
    return [[p.binding, p.topic, p.topic_id.hex(), p.offset] for p in positions]


def _positions(texts: Iterable[tuple[str, str, str, int]]) -> Positions:
    return tuple(Position(b, topic, bytes.fromhex(id_), offset) for b, topic, id_, offset in texts)


def published(records: Iterable[tuple[Any, ...]], sequence: int) -> Iterator[tuple[Any, ...]]:
    """Records of a target's outbox, whose provenance names the attempt that commits them."""
    for topic, partition, key, value, headers, timestamp_ms in records:
        found = [(name, with_sequence(one, sequence) if name == HEADER else one) for name, one in headers or ()]
        yield topic, partition, key, value, found or None, timestamp_ms

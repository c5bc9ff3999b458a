"""The Avro bytes of backing records: single-object encoding, so that each names its schema.

::

    C3 01 | CRC-64-AVRO of the schema, little-endian, 8 bytes | body

The schemas are `schemas/backing.avsc`, `schemas/stores.avsc` for tasks with stores, `schemas/tails.avsc` for records
that fix what tailers show (S5), `schemas/replays.avsc` for tasks that have replayed an error message (Y1), and
`schemas/staged.avsc`. A schema that changes gets a new file beside the old one,
which every later release still reads: `decode_record` chooses by the fingerprint.
"""

from __future__ import annotations

import functools
import io
from collections.abc import Callable
from typing import Any, NamedTuple

import fastavro
import fastavro.schema

from cues_kafka.core.records import VERSION, Attempt, Extent, Record, Snapshot, Staged, Start, Totals, Writer
from cues_kafka.errors import CodecError
from cues_kafka.graph.own_schemas import load_schema
from cues_kafka.ports.log import Position, Positions
from cues_kafka.records.extents import checked
from cues_kafka.records.fitting import unfit
from cues_kafka.records.strangers import LIMIT

RECORD_LIMIT = 256_000
"""Largest size of a backing record in bytes; the batch of a larger one must be cut (O6)."""

MARK = b"\xc3\x01"
"""Avro's single-object encoding, version 1."""

_KINDS: dict[str, type[Record]] = {"Start": Start, "Snapshot": Snapshot, "Attempt": Attempt}

_KIND_BYTES = {b"\0", b"\2", b"\4"}
"""Their indexes, which come first in each schema, as Avro writes them."""


# ------------------------------------------------------------------------------------------------ backing records


def encode_record(record: Record) -> bytes:
    """
    Encode a `Start`, `Snapshot` or `Attempt`.

    Raises:
        CodecError: the record is larger than `RECORD_LIMIT`; the batch must be cut.
    """
    if record.staged:
        data = _pack(_staged(), _staged_fields(record))
    elif record.totals.replays or (isinstance(record, Snapshot) and record.replay):
        data = _pack(_replayed(), _fields(record) | _store_fields(record) | _replay_fields(record))
    elif record.tail_ends:
        data = _pack(_fixed(), _fields(record) | _store_fields(record) | {"tail_ends": _plain(record.tail_ends)})
    elif record.stores:
        data = _pack(_kept(), _fields(record) | _store_fields(record))
    else:
        data = _pack(_backing(), _fields(record))
    if len(data) > RECORD_LIMIT:
        raise CodecError(
            f"A backing record has {len(data)} bytes, above {RECORD_LIMIT}. Deliver fewer messages at a time."
        )
    return data


def _common(record: Record) -> dict[str, Any]:
    return {
        "kind": type(record).__name__,
        "version": record.version,
        "sequence": record.sequence,
        "step": record.step,
        "totals": record.totals._asdict(),
        "batch": record.batch._asdict(),
        "born": record.born,
        "writer": {name: getattr(record.writer, name) for name in Writer.__slots__},
        "strategy": record.strategy,
        "epoch": record.epoch,
        "moved_to": record.moved_to,
        "moving_from": record.moving_from,
    }


def _fields(record: Record) -> dict[str, Any]:
    snapshot = record if isinstance(record, Snapshot) else None
    return _common(record) | {
        "positions": _plain(record.positions),
        "tails": _plain(record.tails),
        "place": record.place,
        "ledger": list(record.ledger),
        "starts": record.starts,
        "left": record.left,
        "careful_until": _plain(record.careful_until),
        "choice": [{"binding": binding, "count": count} for binding, count in record.choice],
        "owner": record.owner,
        "journal_from": record.journal_from,
        "fingerprint": record.fingerprint,
        "ends": _plain(snapshot.ends) if snapshot else [],
        "steps": snapshot.steps if snapshot else 0,
    }


def _store_fields(record: Record) -> dict[str, Any]:
    return {
        "stores": [{"store": one, "step": step} for one, step in record.stores],
        "careful_timers": record.careful_timers,
        "timers": isinstance(record, Snapshot) and record.timers,
    }


def _replay_fields(record: Record) -> dict[str, Any]:
    """Before the first replay no record has them, so that the release before this one can read it."""
    return {
        "tail_ends": _plain(record.tail_ends),
        "replays": _plain(record.replays),
        "replay": isinstance(record, Snapshot) and record.replay,
    }


def _staged_fields(record: Record) -> dict[str, Any]:
    staged = {name: getattr(record.staged, name) for name in Staged.__slots__}
    return _common(record) | {"staged": staged | {"extents": [extent._asdict() for extent in staged["extents"]]}}


def decode_record(data: bytes) -> Record:
    """
    A `Start`, `Snapshot` or `Attempt`.

    Raises:
        CodecError: the bytes are no backing record, or one of a version that this program does not know.
    """
    schema, read = _readers().get(data[:10], (_backing(), _task_fields))
    fields = _unpack(schema, data, "backing record")
    version = fields["version"]
    if version != VERSION:
        raise CodecError(f"A backing record has version {version}; this program knows {VERSION}. Update cues-kafka.")
    try:
        found = _made(fields | read(fields))
    except (ValueError, TypeError, KeyError) as error:
        raise CodecError(f"not a backing record: its fields do not go together ({error})") from None
    if why := unfit(found):
        raise CodecError(f"not a backing record: {why}")
    return found


def _made(fields: dict[str, Any]) -> Record:
    kind = _KINDS[fields.pop("kind")]
    snapshot = {name: fields.pop(name) for name in ("ends", "steps", "timers", "replay") if name in fields}
    return kind(
        **fields
        | {
            "totals": Totals(**fields["totals"]),
            "batch": Totals(**fields["batch"]),
            "writer": Writer(**fields["writer"]),
        }
        | (snapshot if kind is Snapshot else {})
    )


@functools.cache
def _readers() -> dict[bytes, tuple[_Schema, Callable[[dict[str, Any]], dict[str, Any]]]]:
    """
    By the header of a record, its schema and the function that makes values of its fields.

    Every schema stays here.
    """
    return {
        _backing().header: (_backing(), _task_fields),
        _kept().header: (_kept(), _kept_fields),
        _fixed().header: (_fixed(), _fixed_fields),
        _replayed().header: (_replayed(), _replayed_fields),
        _staged().header: (_staged(), _slot_fields),
    }


def _kept_fields(fields: dict[str, Any]) -> dict[str, Any]:
    return _task_fields(fields) | {"stores": tuple((kept["store"], kept["step"]) for kept in fields["stores"])}


def _fixed_fields(fields: dict[str, Any]) -> dict[str, Any]:
    return _kept_fields(fields) | {"tail_ends": _positions(fields["tail_ends"])}


def _replayed_fields(fields: dict[str, Any]) -> dict[str, Any]:
    return _fixed_fields(fields) | {"replays": _positions(fields["replays"])}


def _task_fields(fields: dict[str, Any]) -> dict[str, Any]:
    places = {name: _positions(fields[name]) for name in ("positions", "tails", "careful_until", "ends")}
    choice = tuple((run["binding"], run["count"]) for run in fields["choice"])
    return places | {"choice": choice, "ledger": tuple(fields["ledger"])}


def _slot_fields(fields: dict[str, Any]) -> dict[str, Any]:
    staged = fields["staged"]
    extents = tuple(checked(Extent(**extent)) for extent in staged["extents"])
    return {"staged": Staged(**staged | {"extents": extents}), "positions": (), "ends": (), "steps": 0}


def _plain(positions: Positions) -> list[dict[str, Any]]:
    return [position._asdict() for position in positions]


def _positions(plain: list[dict[str, Any]]) -> Positions:
    return tuple(Position(**position) for position in plain)


# ------------------------------------------------------------------------------------------ single-object encoding


class _Schema(NamedTuple):
    """A parsed schema with the ten bytes that begin its objects."""

    parsed: Any
    header: bytes


@functools.cache
def _backing() -> _Schema:
    return _schema("backing")


@functools.cache
def _kept() -> _Schema:
    """That of tasks with stores."""
    return _schema("stores")


@functools.cache
def _fixed() -> _Schema:
    """That of records that fix what tailers show."""
    return _schema("tails")


@functools.cache
def _replayed() -> _Schema:
    """That of tasks that have replayed an error message."""
    return _schema("replays")


@functools.cache
def _staged() -> _Schema:
    return _schema("staged")


def _schema(name: str) -> _Schema:
    loaded = load_schema(name)
    canonical = fastavro.schema.to_parsing_canonical_form(loaded)
    return _Schema(fastavro.parse_schema(loaded), MARK + crc64(canonical.encode()).to_bytes(8, "little"))


_EMPTY = 0xC15D213AA4D7A795


@functools.cache
def _table() -> tuple[int, ...]:
    def entry(value: int) -> int:
        for _ in range(8):
            value = (value >> 1) ^ (_EMPTY & -(value & 1))
        return value

    return tuple(entry(value) for value in range(256))


def crc64(data: bytes) -> int:
    """CRC-64-AVRO as the Avro specification gives it: the fingerprint of a schema in canonical form."""
    table, value = _table(), _EMPTY
    for byte in data:
        value = (value >> 8) ^ table[(value ^ byte) & 0xFF]
    return value


def _pack(schema: _Schema, fields: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    out.write(schema.header)
    try:
        fastavro.schemaless_writer(out, schema.parsed, fields)
    except (ValueError, TypeError, OverflowError, KeyError) as error:
        raise CodecError(f"A record does not fit its own schema: {error}. This is a defect of cues-kafka.") from error
    return out.getvalue()


def _unpack(schema: _Schema, data: bytes, what: str) -> dict[str, Any]:
    if data[:2] != MARK:
        raise CodecError(f"These bytes are not a {what}: another application wrote here. Give it a topic of its own.")
    if data[:10] != schema.header:
        raise CodecError(
            f"This {what} has a schema that this program does not know ({data[2:10].hex()}). Update cues-kafka."
        )
    if data[10:11] not in _KIND_BYTES or len(data) > LIMIT:  # the reader takes an index from the end for a kind
        raise CodecError(f"This {what} is damaged: it has {len(data):,} bytes, and its kind is {data[10:11]!r}.")
    body = io.BytesIO(data[10:])
    try:
        fields = fastavro.schemaless_reader(body, schema.parsed, None)
    except Exception as error:  # cut or foreign bytes make the reader raise any exception
        raise CodecError(f"This {what} is damaged: {error}.") from error
    rest = len(data) - 10 - body.tell()
    if rest or not isinstance(fields, dict):
        raise CodecError(f"This {what} is damaged: {rest:,} bytes are left after it.")
    return fields

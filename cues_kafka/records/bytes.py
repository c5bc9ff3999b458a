"""The Avro bytes of backing records and of error messages: single-object encoding, so that each names its schema.

::

    C3 01 | CRC-64-AVRO of the schema, little-endian, 8 bytes | body

The schemas are `schemas/backing.avsc`, `schemas/stores.avsc` for tasks with stores, `schemas/staged.avsc` and
`schemas/error.avsc`. A schema that changes gets a new file beside the old one, which every later release still reads:
`decode_record` chooses by the fingerprint.
"""

from __future__ import annotations

import functools
import io
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import fastavro
import fastavro.schema

from cues_kafka.core.records import VERSION, Attempt, Extent, Record, Snapshot, Staged, Start, Totals, Writer
from cues_kafka.errors import CodecError
from cues_kafka.ports import Coordinates, Position, Positions

RECORD_LIMIT = 256_000
"""Largest size of a backing record in bytes; the batch of a larger one must be cut (O6)."""

ERROR_LIMIT = 16_000
"""Largest size of an error message in bytes (P4); longer fields are cut and named in `truncated`."""

ERROR_VERSION = 1

MARK = b"\xc3\x01"
"""Avro's single-object encoding, version 1."""

_KINDS: dict[str, type[Record]] = {"Start": Start, "Snapshot": Snapshot, "Attempt": Attempt}
_CAPS = {"text": 4_000, "exception": 200, "location": 500, "key": 2_000}
"""Bytes that the fields keep in a message above its limit. The context keeps 4,000, the payload the rest."""

_CONTEXT_CAP = 4_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorMessage:
    """
    An error message, which is committed in the place of all outputs of one delivery.

    Attributes:
        graph: name of the graph.
        processor: name of the processor.
        task: `processor/partition`.
        consumed: coordinates of the consumed messages, in the order of bindings.
        topics: their topics, in the same order.
        hash: the delivery hash, 16 bytes.
        kind: `raised`, `decode`, `output`, `quarantine` or `retries exhausted`.
        exception: name of the exception's class.
        text: what the exception says.
        location: `file:function:line` of the innermost frame, or empty.
        context: what `step.error_context()` was given.
        attempts: calls of the function for this step in this process.
        starts: deaths in user code before this one.
        timestamp_ms: when it failed, milliseconds since the epoch.
        key: of the lead input.
        payload: raw bytes of a value that was not decoded: that of the input that failed, after deaths that of the
            lead.
        truncated: fields that were cut.
        version: of what the message means.
    """

    graph: str
    processor: str
    task: str
    consumed: tuple[Coordinates, ...]
    topics: tuple[str, ...]
    hash: bytes
    kind: str
    exception: str
    text: str
    location: str = ""
    context: Mapping[str, Any]
    attempts: int = 1
    starts: int = 0
    timestamp_ms: int
    key: bytes | None = None
    payload: bytes | None = None
    truncated: tuple[str, ...] = ()
    version: int = ERROR_VERSION


# ------------------------------------------------------------------------------------------------ backing records


def encode_record(record: Record) -> bytes:
    """
    Encode a `Start`, `Snapshot` or `Attempt`.

    Raises:
        CodecError: the record is larger than `RECORD_LIMIT`; the batch must be cut.
    """
    if record.staged:
        data = _pack(_staged(), _staged_fields(record))
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
    fields |= read(fields)
    kind = _KINDS[fields.pop("kind")]
    snapshot = {name: fields.pop(name) for name in ("ends", "steps", "timers") if name in fields}
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
        _staged().header: (_staged(), _slot_fields),
    }


def _kept_fields(fields: dict[str, Any]) -> dict[str, Any]:
    return _task_fields(fields) | {"stores": tuple((kept["store"], kept["step"]) for kept in fields["stores"])}


def _task_fields(fields: dict[str, Any]) -> dict[str, Any]:
    places = {name: _positions(fields[name]) for name in ("positions", "tails", "careful_until", "ends")}
    choice = tuple((run["binding"], run["count"]) for run in fields["choice"])
    return places | {"choice": choice, "ledger": tuple(fields["ledger"])}


def _slot_fields(fields: dict[str, Any]) -> dict[str, Any]:
    staged = fields["staged"]
    extents = tuple(Extent(**extent) for extent in staged["extents"])
    return {"staged": Staged(**staged | {"extents": extents}), "positions": (), "ends": (), "steps": 0}


def _plain(positions: Positions) -> list[dict[str, Any]]:
    return [position._asdict() for position in positions]


def _positions(plain: list[dict[str, Any]]) -> Positions:
    return tuple(Position(**position) for position in plain)


# ------------------------------------------------------------------------------------------------- error messages


def encode_error(message: ErrorMessage) -> bytes:
    """
    Encode an error message in at most `ERROR_LIMIT` bytes: longer fields are cut and named in `truncated`.

    Raises:
        CodecError: the coordinates alone are too long (dozens of inputs with the longest names).
    """
    data = _pack_error(message)
    if len(data) <= ERROR_LIMIT:
        return data
    message = _capped(message)
    data = _pack_error(message)
    over = len(data) - ERROR_LIMIT
    if over > 0 and message.payload:
        # Naming `payload` in `truncated` costs a few bytes itself.
        kept = message.payload[: max(0, len(message.payload) - over - 16)]
        data = _pack_error(replace(message, payload=kept, truncated=(*message.truncated, "payload")))
    if len(data) > ERROR_LIMIT:
        raise CodecError(
            f"An error message has {len(data)} bytes without its payload, above {ERROR_LIMIT}. Shorten names."
        )
    return data


def decode_error(data: bytes) -> ErrorMessage:
    """
    An error message.

    Raises:
        CodecError: the bytes are no error message, or one of a version that this program does not know.
    """
    fields = _unpack(_error(), data, "error message")
    if fields["version"] != ERROR_VERSION:
        raise CodecError(
            f"An error message has version {fields['version']}; this program knows {ERROR_VERSION}. Update cues-kafka."
        )
    consumed = fields["consumed"]
    return ErrorMessage(
        **fields
        | {
            "consumed": tuple(Coordinates(*(each[name] for name in Coordinates._fields)) for each in consumed),
            "topics": tuple(each["topic"] for each in consumed),
            "kind": fields["kind"].replace("_", " "),
            "truncated": tuple(fields["truncated"]),
        }
    )


def _pack_error(message: ErrorMessage) -> bytes:
    fields = {name: getattr(message, name) for name in ErrorMessage.__slots__ if name != "topics"}
    return _pack(
        _error(),
        fields
        | {
            "consumed": [
                coordinates._asdict() | {"topic": topic}
                for coordinates, topic in zip(message.consumed, message.topics, strict=True)
            ],
            "kind": message.kind.replace(" ", "_"),
            # The text of an exception may not fit UTF-8; an error message must not fail for that.
            **{name: _text(fields[name]) for name in ("exception", "text", "location")},
            "context": {_text(name): _text(value) for name, value in message.context.items()},
            "truncated": list(message.truncated),
        },
    )


def _text(value: Any) -> str:
    return str(value).encode(errors="replace").decode()


def _capped(message: ErrorMessage) -> ErrorMessage:
    """Cut the long fields of a message, and name those that were cut."""
    cut: dict[str, Any] = {}
    for name, cap in _CAPS.items():
        value = getattr(message, name)
        data = _text(value).encode() if isinstance(value, str) else value or b""
        if len(data) > cap:
            cut[name] = data[:cap].decode(errors="ignore") if isinstance(value, str) else data[:cap]
    context: dict[str, str] = {}
    room = _CONTEXT_CAP
    for name, value in message.context.items():
        room -= len(_text(name).encode()) + len(_text(value).encode()) + 8
        if room < 0:
            cut["context"] = context
            break
        context[name] = value
    return replace(message, **cut, truncated=(*message.truncated, *cut)) if cut else message


# ------------------------------------------------------------------------------------------ single-object encoding


class _Schema(NamedTuple):
    """A parsed schema with the ten bytes that begin its objects."""

    parsed: Any
    header: bytes


def load_schema(name: str) -> Any:
    """The parsed JSON of `schemas/<name>.avsc`: in the wheel inside the package, in a checkout beside it."""
    packaged = files("cues_kafka") / "schemas" / f"{name}.avsc"
    source = packaged if packaged.is_file() else Path(__file__).parents[2] / "schemas" / f"{name}.avsc"
    return json.loads(source.read_text(encoding="utf-8"))


@functools.cache
def _backing() -> _Schema:
    return _schema("backing")


@functools.cache
def _kept() -> _Schema:
    """That of tasks with stores."""
    return _schema("stores")


@functools.cache
def _staged() -> _Schema:
    return _schema("staged")


@functools.cache
def _error() -> _Schema:
    return _schema("error")


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
        raise CodecError(f"These bytes are no {what}: another application wrote here. Give it a topic of its own.")
    if data[:10] != schema.header:
        raise CodecError(
            f"This {what} has a schema that this program does not know ({data[2:10].hex()}). Update cues-kafka."
        )
    try:
        fields = fastavro.schemaless_reader(io.BytesIO(data[10:]), schema.parsed, None)
    except Exception as error:  # cut or foreign bytes make the reader raise any exception
        raise CodecError(
            f"This {what} is damaged: {error}. Restore the topic; or delete it, run `cues-kafka plan MODULE:GRAPH "
            "--apply`, and reset the processor."
        ) from error
    assert isinstance(fields, dict)
    return fields

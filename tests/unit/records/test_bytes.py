"""The Avro bytes of backing records (O6)."""

from __future__ import annotations

from dataclasses import replace

import fastavro.schema
import pytest

from cues_kafka import CodecError
from cues_kafka.core.records import Attempt, Extent, Record, Snapshot, Staged, Start, Totals, Writer
from cues_kafka.graph.own_schemas import load_schema
from cues_kafka.ports.log import Position
from cues_kafka.records.bytes import (
    RECORD_LIMIT,
    crc64,
    decode_record,
    encode_record,
)

POSITIONS = (Position("flight", "flights", bytes(range(16)), 2**40), Position("plane", "planes", bytes(16), 0))
WRITER = Writer("g.p.0", "native", "worker-1", "f00d")
START = Start(sequence=0, step=0, positions=POSITIONS, born=4, writer=WRITER, fingerprint=b"f" * 16, moving_from="o")
SNAPSHOT = Snapshot(
    sequence=7,
    step=100,
    positions=POSITIONS,
    tails=POSITIONS[1:],
    place="file-7:4096",
    ledger=("m-1", "m-2"),
    totals=Totals(100, 90, 4, 6, 180, 103, 2, 1),
    starts=2,
    left=True,
    careful_until=POSITIONS[:1],
    choice=(("flight", 3), ("plane", 1)),
    owner=5,
    epoch=2,
    journal_from=12,
    born=4,
    writer=WRITER,
    ends=POSITIONS,
    steps=4,
)
ATTEMPT = Attempt(
    sequence=8,
    step=104,
    positions=POSITIONS,
    batch=Totals(4, 4),
    born=4,
    writer=WRITER,
    strategy="at-least-once",
    moved_to="q",
)
KEPT = replace(ATTEMPT, stores=(("counts", 104), ("seen", 90)), batch=Totals(4, 4, timers=2), careful_timers=3)
TIMERS = replace(SNAPSHOT, stores=(("counts", 104),), totals=Totals(100, 90, 4, 6, 180, 103, 2, 1, 7), timers=True)
REPLAY = replace(TIMERS, timers=False, replay=True, replays=POSITIONS[1:])
REPLAYED = replace(KEPT, replays=POSITIONS[1:], totals=Totals(4, 4, replays=1), batch=Totals(4, 4, replays=1))
FIXED = replace(SNAPSHOT, tail_ends=POSITIONS)
FIXED_KEPT = replace(KEPT, tails=POSITIONS, tail_ends=POSITIONS[:1])
STAGED = Staged(
    query="0f0e",
    batch=7,
    attempt="a1",
    checksum=bytes(16),
    number=12,
    part=0,
    parts=3,
    extents=(Extent("orders", bytes(range(16)), '{"orders":{"0":5}}', '{"orders":{"0":9}}'),),
)
ANNOUNCED = Snapshot(
    sequence=12,
    step=40,
    positions=(),
    totals=ATTEMPT.totals,
    born=3,
    writer=ATTEMPT.writer,
    staged=STAGED,
    ends=(),
    steps=0,
)
PUBLISHED = Attempt(
    sequence=13,
    step=43,
    positions=(),
    totals=ATTEMPT.totals,
    batch=ATTEMPT.batch,
    born=3,
    writer=ATTEMPT.writer,
    epoch=1,
    moved_to="q",
    moving_from="o",
    staged=replace(STAGED, part=2, extents=()),
)


@pytest.mark.parametrize(
    "record",
    [START, SNAPSHOT, ATTEMPT, ANNOUNCED, PUBLISHED, KEPT, TIMERS, FIXED, FIXED_KEPT, REPLAY, REPLAYED],
    ids=[
        *("start", "snapshot", "attempt", "announced", "published", "with stores", "with timers"),
        *("with fixed views", "with stores and fixed views", "replay", "replayed"),
    ],
)
def test_a_backing_record_comes_back_as_it_was(record: Record) -> None:
    """All fields, and the class."""
    assert decode_record(encode_record(record)) == record


def test_the_schemas_have_the_fingerprints_that_are_on_clusters() -> None:
    """Golden: a changed schema gets a file of its own beside the old one."""
    assert encode_record(START)[:10].hex() == "c30163a6e350ca98c5af"
    assert encode_record(KEPT)[:10].hex() == "c30197a9fbf145ffb29d"
    assert encode_record(PUBLISHED)[:10].hex() == "c301c910d76ae107f4eb"
    assert encode_record(FIXED)[:10].hex() == "c301db3d6e281c1d9932"


def test_each_schema_has_the_fields_of_a_move() -> None:
    """So what knows a schema knows of `rename`, and refuses; what does not know it refuses the record."""
    for name in ("backing", "stores", "tails", "replays", "staged"):
        fields = {field["name"] for field in load_schema(name)["fields"]}
        assert {"moved_to", "moving_from"} <= fields


def test_a_record_that_fixes_no_views_has_the_bytes_that_older_releases_read() -> None:
    """Where tailers stand has had its field from the first schema on."""
    assert encode_record(replace(FIXED, tail_ends=())) == encode_record(SNAPSHOT)


def test_a_record_of_a_task_without_replays_has_the_bytes_that_older_releases_read() -> None:
    """Until it has replayed something, where it stands in its replay topic is not written."""
    assert encode_record(replace(KEPT, replays=POSITIONS[1:])) == encode_record(KEPT)


def test_the_fingerprint_is_that_of_the_avro_specification() -> None:
    """Against the specification's own example, and against the library for both schemas."""
    assert crc64(b'"int"') == 0x7275D51A3F395C8F
    for name in ("backing", "stores", "tails", "replays", "staged"):
        canonical = fastavro.schema.to_parsing_canonical_form(load_schema(name))
        theirs = bytes.fromhex(fastavro.schema.fingerprint(canonical, "CRC-64-AVRO"))
        assert crc64(canonical.encode()).to_bytes(8, "little") == theirs


@pytest.mark.parametrize("data", [b"", b"{}", b"\xc3\x01", b"\xc3\x01" + bytes(8), encode_record(START)[:-3]])
def test_foreign_or_damaged_bytes_are_a_codec_error(data: bytes) -> None:
    """Another application's record is refused, never guessed at (R5)."""
    with pytest.raises(CodecError):
        decode_record(data)


def test_a_record_of_another_version_is_a_codec_error() -> None:
    """It names both versions."""
    with pytest.raises(CodecError, match="version 2; this program knows 1"):
        decode_record(encode_record(replace(START, version=2)))


def test_a_record_above_its_limit_is_a_codec_error() -> None:
    """The batch must be cut."""
    choice = tuple((f"binding-{n % 7}", 1) for n in range(RECORD_LIMIT // 10))
    with pytest.raises(CodecError, match="Deliver fewer messages"):
        encode_record(replace(SNAPSHOT, choice=choice))

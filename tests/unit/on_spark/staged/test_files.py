"""Chunks, manifests, spools, and rows that cannot be sent: the parts of staged writing that need no Spark."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from cues_kafka import CodecError, ConfigError, Json, Raw, RecoveryError
from cues_kafka.codecs.error_messages import error_messages
from cues_kafka.on_spark.staged.batch import check_parts
from cues_kafka.on_spark.staged.chunks import CHUNK_BYTES, Pack, sliced, unpacked
from cues_kafka.on_spark.staged.error_rows import Refusing
from cues_kafka.on_spark.staged.files import MANIFEST, Staging
from cues_kafka.on_spark.staged.manifest import Chunk, Manifest, parsed
from cues_kafka.on_spark.staged.part_slot import Spool
from cues_kafka.on_spark.staged.topics import ERRORS, StagedTarget
from cues_kafka.task.calling.outputs import Output

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


@dataclass(frozen=True)
class Line:
    """What the first output takes."""

    n: int


def rows(*values: bytes | None, output: int = 0, headers: Any = None) -> pa.RecordBatch:
    """Messages as job 1 gets them."""
    count = len(values)
    columns = {
        "output": pa.array([output] * count, pa.int32()),
        "key": pa.array([b"k"] * count, pa.binary()),
        "value": pa.array(values, pa.binary()),
        "headers": pa.array([headers] * count, HEADERS),
        "timestamp": pa.array([1] * count, pa.int64()),
        "error": pa.array([False] * count),
    }
    return pa.RecordBatch.from_pydict(columns)


BOUNDS = (("message.max.bytes in Kafka(producer={...})", 1_000),)

TARGET = StagedTarget(
    (Output("lines", 3, 1_000, bounds=BOUNDS), Output("raw", 3, 1_000)), Output("errors", 1, 1_000_000)
)
CHECK = Refusing("g", "p", "q", 7, (Json(Line), Raw()), TARGET)


def same(piece: pa.RecordBatch, _: int) -> pa.RecordBatch:
    """Nothing is refused."""
    return piece


def chunks_of(*batches: pa.RecordBatch) -> list[dict[str, Any]]:
    """What `Pack` makes of them."""
    return [row for batch in Pack(4, same, 1)(batches) for row in batch.to_pylist()]


def expected(chunks: list[dict[str, Any]]) -> tuple[Chunk, ...]:
    """As a manifest lists them."""
    return tuple(Chunk(c["part"], c["row"], c["rows"], c["errors"], c["checksum"].hex(), 0) for c in chunks)


def test_chunks_give_back_what_they_were_made_of() -> None:
    """Rows are numbered through, and the bytes survive."""
    batches = [rows(b"1", None, b"3"), rows(b"4")]
    chunks = chunks_of(*batches)
    assert [(chunk["row"], chunk["rows"]) for chunk in chunks] == [(0, 3), (3, 1)]
    assert [unpacked(chunk["payload"]).to_pylist() for chunk in chunks] == [batch.to_pylist() for batch in batches]


def test_large_batches_are_cut_and_empty_ones_leave_nothing() -> None:
    """A chunk is in memory as a whole, wherever it goes."""
    large = rows(*[b"x" * (CHUNK_BYTES // 4)] * 9)
    assert [len(piece) for piece in sliced(large)] == [3, 3, 3]
    assert [len(piece) for piece in sliced(rows(b"x" * (2 * CHUNK_BYTES)))] == [1]
    assert list(sliced(rows())) == []


def test_a_manifest_survives_its_text() -> None:
    """And another one has another checksum."""
    files = (("part-0.parquet", 10), ("part-1.parquet", 20))
    manifest = Manifest(7, "a1", files, expected(chunks_of(rows(b"1"))), ("lines", "raw"), "errors")
    assert parsed(manifest.text) == manifest
    assert (manifest.rows, manifest.bytes, manifest.part(0), manifest.part(1)) == (1, 30, manifest.chunks, ())
    assert replace(manifest, attempt="a2").checksum != manifest.checksum
    assert replace(manifest, outputs=("raw", "lines")).checksum != manifest.checksum


@pytest.mark.parametrize(
    ("rows", "size", "timeout_s", "fits"),
    [
        (12_000_000, 6 * 10**9, 60, True),
        (12_000_001, 1, 60, False),
        (1, 6 * 10**9 + 1, 60, False),
        (12_000_001, 1, 61, True),
        (90_000_001, 1, 900, False),
    ],
)
def test_a_part_that_no_transaction_can_take_is_refused_before_it_is_announced(
    rows: int, size: int, timeout_s: float, *, fits: bool
) -> None:
    """What is announced can be published, if need be with a longer time-out."""
    chunks = tuple(Chunk(part, at, rows // 2 + at * (rows % 2), 0, "", part) for part in (0, 1) for at in (0, 1))
    manifest = Manifest(7, "a1", (("a", size), ("b", 1)), chunks, ("lines",), "")
    assert manifest.largest == (rows, size)
    if fits:
        check_parts(manifest, timeout_s)
    else:
        with pytest.raises(ConfigError, match=r"a part of batch 7 has .* Raise transaction_timeout_s"):
            check_parts(manifest, timeout_s)


def test_a_manifest_of_another_version_is_refused_by_name() -> None:
    """It may mean something else by the same fields."""
    with pytest.raises(RecoveryError, match="has version 2; this program knows 1"):
        parsed('{"version": 2}')


def test_rows_go_to_the_topics_that_they_were_announced_for() -> None:
    """Whatever the order in which a changed program declares them."""
    lines, raw = TARGET.outputs
    changed = StagedTarget((Output("new", 3, 1_000), raw, lines), TARGET.errors)
    assert changed.announced(("lines", "raw"), "errors") == TARGET
    assert replace(changed, errors=None).announced(("lines",), "").outputs == (lines,)


@pytest.mark.parametrize(
    ("now", "text"),
    [
        (replace(TARGET, outputs=TARGET.outputs[1:]), r"announced for \['lines'\].* are \['raw', 'errors'\] now"),
        (replace(TARGET, errors=None), r"announced for \['errors'\]"),
        (replace(TARGET, errors=Output("e2", 1, 1_000)), r"announced for \['errors'\]"),
    ],
    ids=["an output is gone", "the errors topic is gone", "another errors topic"],
)
def test_a_topic_that_announced_rows_need_is_named_where_it_is_gone(now: StagedTarget, text: str) -> None:
    """With what to do; nothing of the part is written."""
    with pytest.raises(RecoveryError, match=text) as refused:
        now.announced(("lines", "raw"), "errors")
    assert "as they were" in str(refused.value)


def test_a_spool_is_read_as_often_as_a_transaction_is_tried() -> None:
    """Also when it does not fit into memory."""
    chunks = chunks_of(rows(b"1"), rows(b"2"))
    spool = Spool("part 0")
    spool.take(((chunk["row"], chunk["payload"]) for chunk in chunks), expected(chunks))
    for _ in range(2):
        assert [table.column("value").to_pylist() for table in spool] == [[b"1"], [b"2"]]
    spool.close()


FIRST, SECOND = chunks_of(rows(b"1"), rows(b"2"))


@pytest.mark.parametrize(
    ("coming", "text"),
    [
        ([(0, FIRST["payload"])], "end before row 1"),
        ([(1, SECOND["payload"])], "have row 1, which was not announced"),
        ([(0, FIRST["payload"]), (1, FIRST["payload"])], "do not have their checksum at row 1"),
        ([(0, FIRST["payload"]), (1, SECOND["payload"]), (2, SECOND["payload"])], "have row 2"),
        ([(0, b"\0" + FIRST["payload"][1:]), (1, SECOND["payload"])], "checksum at row 0"),
    ],
    ids=["cut", "the first is gone", "exchanged", "more", "altered"],
)
def test_what_was_not_announced_is_refused_and_named(coming: list[tuple[int, bytes]], text: str) -> None:
    """Before anything of the part is written, with the remedy."""
    spool = Spool("part 2 of batch 7 (a1)")
    with pytest.raises(ConfigError, match=text) as refused:
        spool.take(coming, expected([FIRST, SECOND]))
    assert "part 2 of batch 7" in str(refused.value)
    assert "Restore the directory" in str(refused.value)
    spool.close()


def test_rows_that_do_not_fit_become_error_messages_and_the_others_stay() -> None:
    """In their places, so that the order of a part is the same."""
    piece = rows(b'{"n": 1}', b'{"n": "x"}', None, b"x" * 2_000)
    checked = CHECK(piece, 100)
    assert checked.column("output").to_pylist() == [0, ERRORS, 0, ERRORS]
    assert checked.column("error").to_pylist() == [False, True, False, True]
    assert checked.column("value").to_pylist()[:3:2] == [b'{"n": 1}', None]
    wrong, large = (error_messages().decode(checked.column("value")[at].as_py()) for at in (1, 3))
    assert (wrong.kind, wrong.payload, wrong.context["row"]) == ("output", b'{"n": "x"}', "101")
    assert "2501 bytes, more than the 1000 of message.max.bytes in Kafka(producer={...})" in large.text
    assert wrong.hash != large.hash


def test_nothing_is_copied_where_everything_fits() -> None:
    """Outputs without a schema are not even looked into."""
    piece = rows(b"\xff", output=1)
    assert CHECK(piece, 0) is piece


def test_headers_count_as_bytes_of_a_record() -> None:
    """As the broker counts them."""
    checked = CHECK(rows(b'{"n": 1}', headers=[{"key": "trace", "value": b"x" * 1_000}]), 0)
    assert checked.column("output").to_pylist() == [ERRORS]
    assert checked.column("headers").to_pylist() == [None]


STRICT = Output("lines", 3, 1_000, compacted=True, older_ms=60_000, newer_ms=60_000)


@pytest.mark.parametrize(
    ("column", "value", "why"),
    [
        ("key", None, "it has no key, and a compacted topic takes none without"),
        ("timestamp", -1, "its timestamp is -1"),
        ("timestamp", 1, "its timestamp 1 is older than the 60000 ms"),
        ("timestamp", 2**42, "is further ahead than the 60000 ms"),
        ("headers", [{"key": None, "value": b"x"}], "a header has no name"),
        ("headers", [None], "a header has no name"),
        ("headers", [{"key": "a\0b", "value": b"x"}], "one with a NUL"),
        ("headers", [{"key": "\u00e9" * 300, "value": b""}], "1110 bytes, more than the 1000"),
    ],
    ids=[
        "no key",
        "negative",
        "old",
        "ahead",
        "nameless header",
        "null header",
        "NUL in a header",
        "header of two bytes a letter",
    ],
)
def test_what_the_broker_would_always_refuse_is_refused_before_it_is_announced(
    column: str, value: Any, why: str
) -> None:
    """A batch that is announced must be one that can be published; its error message can be, wherever it goes."""
    strict = replace(
        CHECK, codecs=(Raw(),), target=StagedTarget((STRICT,), replace(STRICT, topic="errors", max_bytes=10_000))
    )
    piece = changed(rows(b"1", b"2"), "timestamp", int(time.time() * 1000))
    assert strict(piece, 0) is piece
    checked = strict(changed(piece, column, value), 100)
    assert checked.column("error").to_pylist() == [True, True]
    assert why in error_messages().decode(checked.column("value")[0].as_py()).text
    again = checked.set_column(0, "output", pa.array([0, 0], pa.int32()))
    assert replace(strict, target=StagedTarget((replace(STRICT, max_bytes=10_000),)))(again, 0) is again


def changed(piece: pa.RecordBatch, column: str, value: Any) -> pa.RecordBatch:
    """All rows with one value in one column."""
    at = piece.schema.get_field_index(column)
    return piece.set_column(at, column, pa.array([value] * len(piece), piece.schema.field(at).type))


def test_a_topic_without_such_settings_takes_what_it_always_took() -> None:
    """A null key, the broker's own time, and any timestamp."""
    piece = changed(changed(rows(b"1", output=1), "key", None), "timestamp", 0)
    assert CHECK(piece, 0) is piece


def test_a_row_whose_key_is_too_large_becomes_an_error_message_without_it() -> None:
    """The message itself says what the key was, cut."""
    small = replace(CHECK, target=replace(TARGET, errors=Output("errors", 1, 20_000)))
    checked = small(changed(rows(b'{"n": 1}'), "key", b"k" * 30_000), 0)
    assert checked.column("key").to_pylist() == [None]
    assert error_messages().decode(checked.column("value")[0].as_py()).key


def test_an_errors_topic_that_takes_no_error_message_fails_the_batch_and_is_named() -> None:
    """It could never be published."""
    tiny = replace(CHECK, target=replace(TARGET, errors=Output("errors", 1, 600)))
    with pytest.raises(
        CodecError, match=r"does not fit 'errors', with 500 more it has to keep to the 600 of the topic"
    ):
        tiny(rows(b"{}"), 0)


def test_without_an_errors_topic_the_batch_fails_and_says_what_to_declare() -> None:
    """Before it is announced."""
    check = replace(CHECK, target=replace(TARGET, errors=None))
    with pytest.raises(CodecError, match=r"does not fit 'lines': .*Declare an errors topic"):
        check(rows(b"{}"), 0)


def test_a_driver_cleans_up_behind_its_batch_and_never_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T4: a driver that wakes up late would delete files that its successor has announced and not yet published."""
    monkeypatch.setattr("cues_kafka.on_spark.staged.files.local", lambda *_: tmp_path)
    for attempt in ("5/old", "6/old", "7/mine", "7/loser", "8/successor", "10/successor"):
        (tmp_path / attempt).mkdir(parents=True)

    Staging(None, str(tmp_path)).clean(7, "mine")

    assert {str(path.relative_to(tmp_path)) for path in tmp_path.glob("*/*")} == {
        "7/mine",
        "8/successor",
        "10/successor",
    }


def staged(directory: Path) -> tuple[Staging, Manifest]:
    """One file and its manifest, on the local disk, where no Spark is asked."""
    staging = Staging(None, str(directory))
    staging.__dict__["_here"] = directory
    manifest = Manifest(3, "one", (("few.parquet", 5),), (), ("lines",), "")
    rows = directory / "3" / "one" / "rows"
    rows.mkdir(parents=True)
    (rows / "few.parquet").write_bytes(b"12345")
    (rows.parent / MANIFEST).write_text(manifest.text, "utf-8")
    return staging, manifest


def test_a_manifest_that_is_not_as_it_was_announced_is_refused(tmp_path: Path) -> None:
    """Its checksum is in the announcement: whatever else stands in the file, nothing of it is published."""
    staging, manifest = staged(tmp_path)

    assert staging.read(3, "one", manifest.checksum) == manifest
    (tmp_path / "3" / "one" / MANIFEST).write_text(replace(manifest, outputs=("other",)).text, "utf-8")
    with pytest.raises(RecoveryError, match="its checksum differs"):
        staging.read(3, "one", manifest.checksum)


@pytest.mark.parametrize(("data", "why"), [(None, "is gone"), (b"123", "has 3 bytes, not 5")])
def test_an_announced_file_that_is_not_as_it_was_is_named(tmp_path: Path, data: bytes | None, why: str) -> None:
    """Spark would only say that a job has failed, again and again."""
    staging, manifest = staged(tmp_path)
    file = tmp_path / "3" / "one" / "rows" / "few.parquet"

    staging.check(manifest)
    file.unlink()
    if data is not None:
        file.write_bytes(data)
    with pytest.raises(RecoveryError, match=why):
        staging.check(manifest)

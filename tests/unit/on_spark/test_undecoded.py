"""Messages that cannot be decoded: on Spark their error messages are those that native workers write."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import pytest

from cues_kafka import (
    Avro,
    Codec,
    CodecError,
    DataFrameProcessor,
    Digits,
    Errors,
    Graph,
    Json,
    Memory,
    Processor,
    Protobuf,
    Raw,
    Registry,
    RetriableError,
    Source,
    Topic,
    connect,
    start,
)
from cues_kafka.brokers.memory import MemoryMessage
from cues_kafka.codecs.error_messages import error_messages
from cues_kafka.codecs.lookup import MadeFor
from cues_kafka.core.delivery import HEADER
from cues_kafka.on_spark.direct.frame_slot import Range
from cues_kafka.on_spark.direct.left_out import Reported
from cues_kafka.on_spark.source import report as reports
from cues_kafka.on_spark.source.decoding import Decoding
from cues_kafka.on_spark.source.report import ReportReader, ReportWriter
from cues_kafka.on_spark.undecoded import ErrorRow, Undecoded, undecoded_of
from cues_kafka.ports.log import UNREADABLE
from cues_kafka.records.scanning import read_all
from cues_kafka.task.making.specs import Identity
from cues_kafka.testing.registry import TestRegistry
from tests.unit.codecs.protos import Order as ProtoOrder

GOOD_JSON = b'{"id": "a", "total": 1}'


@dataclass(frozen=True)
class Order:
    """What comes in."""

    id: str
    total: int


@dataclass(frozen=True)
class Checked:
    """A class that looks at its own values."""

    id: str

    def __post_init__(self) -> None:
        if not self.id:
            raise ValueError("an order has an id")


class Lines(Codec):
    """A user's own codec, without a schema."""

    def encode(self, value: Any) -> bytes:
        return b"\n".join(line.encode() for line in value)

    def decode(self, data: bytes) -> Any:
        if not data.endswith(b"\n"):
            raise ValueError("the last line is not complete")
        return data.decode().splitlines()


SCHEMA = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "string"}]}

TYPED = Avro(Order)

CASES: dict[str, tuple[Any, list[bytes | None]]] = {
    "json": (Json(Order), [b"no json", b'{"id": 5, "total": 1}', b"", None, b"{}", b"\xff", b'{"id": "a"} {}']),
    "any json": (Json(), [b"{", b"NaN", b"\xff\xfe"]),
    "a class that checks itself": (Json(Checked), [b'{"id": ""}', b'{"id": "a"']),
    "avro": (Avro(SCHEMA), [b"\x00", b"no avro at all", b"", None]),
    "avro of a class": (TYPED, [b"\xc3\x01" + b"\0" * 8, b"no avro at all"]),
    "protobuf": (Protobuf(ProtoOrder), [b"\x0a\x05ab", b"\x0b", None]),
    "own": (Lines(), [b"one\ntw", b"\xff\n"]),
}
"""Bytes that a codec refuses."""


def keep(value: Any) -> None:
    """The user's function, which is never called for them."""


def graph_of(value: Any, *, processor: Any = Processor, errors: Any = "g.errors") -> Graph:
    """One processor, native or of DataFrames, with the same names."""
    frames = {} if processor is Processor else {"outputs": "out"}
    return Graph(
        "g",
        Source("in"),
        processor(keep, name="copy", inputs="in", **frames),
        errors=errors,
        topics={"in": Topic(value=value, partitions=1), **{name: Topic(value=Raw()) for name in frames.values()}},
    )


def natively(value: Any, data: Sequence[bytes | None], options: Memory, errors: Any = "g.errors") -> list[Any]:
    """The error messages of a native worker."""
    raw = Graph("raw", Source("in"), topics={"in": Topic(value=Raw(), partitions=1)})
    with start(graph_of(value, errors=errors), options) as running:
        with connect(options, raw) as client:
            for n, one in enumerate(data):
                client.send("in", one, key=f"k{n}", headers={"trace": f"t{n}"})
        running.wait_idle(timeout_s=30)
        return list(running.committed("g.errors"))


def on_spark(value: Any, options: Memory, errors: Any = "g.errors") -> tuple[Undecoded, list[ErrorRow]]:
    """The error messages that Spark's processes make of the same messages."""
    [broker], graph = options.held, graph_of(value, processor=DataFrameProcessor, errors=errors)
    undecoded = undecoded_of(
        *(graph, graph.dataframes["copy"], Identity.of_process("spark")),
        facts=broker.facts(["in", "g.errors"]),
        options=options,
        client_bytes=broker.max_bytes,
    )["in"]
    failed = undecoded.decoding.separate(list(read_all(broker, "in", 1))).failed
    return undecoded, list(undecoded.rows(0, failed))


def told(value: bytes | None) -> Any:
    """An error message but for its time, and the declaration, which names the engine."""
    assert value is not None
    return replace(error_messages().decode(value), timestamp_ms=0, declaration={})


@pytest.mark.parametrize("case", CASES)
def test_error_messages_are_those_of_a_native_worker(case: str) -> None:
    """Kind, text, trace, hash, coordinates, payload, key and headers."""
    value, data = CASES[case]
    options = Memory()
    expected = natively(value, data, options)

    _, found = on_spark(value, options)

    assert [told(row.value) for row in found] == [told(one.value()) for one in expected]
    assert [row.key for row in found] == [one.key() for one in expected]
    assert [row.headers for row in found] == [[h for h in one.headers() if h[0] != HEADER] for one in expected]
    assert [row.offset for row in found] == [*range(len(data))]


def test_redacted_fields_are_left_out_as_natively() -> None:
    """The payload of a message that is JSON of another shape has no such field either."""
    errors, data = Errors("g.errors", payload=True, redact=("id",)), [b'{"id": "secret", "total": "x"}', b"secret"]
    options = Memory()
    expected = natively(Json(Order), data, options, errors)

    _, found = on_spark(Json(Order), options, errors)

    assert [told(row.value) for row in found] == [told(one.value()) for one in expected]
    assert not any(b"secret" in (row.value or b"") for row in found[:1])


def test_an_unknown_schema_id_is_an_error_message_as_natively() -> None:
    """The registry answers that there is no such schema; a registry that does not answer is no error of a message."""
    with TestRegistry() as registry:
        options = Memory(registry=Registry(registry.url))
        declared = Avro(SCHEMA, registry=True)
        expected = natively(declared, [b"\0\0\0\0\x63\x02a", b"\1"], options)
        undecoded, found = on_spark(declared, options)
        where = {"location": ""}  # a line of this package: the first look asks the registry, and the second remembers
        mine = [replace(told(row.value), **where) for row in found]
        assert mine == [replace(told(one.value()), **where) for one in expected]
        assert len(found) == 2
    [broker] = options.held
    gone = replace(
        undecoded, decoding=Decoding(declared, MadeFor("in", Memory(registry=Registry("http://127.0.0.1:1"))))
    )
    with pytest.raises(RetriableError):
        gone.decoding.separate(list(read_all(broker, "in", 1)))


def message(offset: int, value: bytes | None, headers: Any = None) -> MemoryMessage:
    """A message of the input."""
    return MemoryMessage("in", 0, offset, b"k", value, headers, (1, 1000), 0)


def test_message_with_unreadable_headers_makes_no_row() -> None:
    """As natively, whatever the codec is."""
    for declared in (Raw(), Json(), Json(Order)):
        found = Decoding(declared, MadeFor("in")).separate([message(0, GOOD_JSON), message(1, GOOD_JSON, UNREADABLE)])
        assert [one.offset() for one in found.good] == [0]
        [failed] = found.failed
        assert "not UTF-8" in str(failed.error)


@dataclass(frozen=True)
class Priced:
    """Values that a column of Spark cannot always hold."""

    id: int
    price: Annotated[Decimal, Digits(6, 2)]


def test_value_that_a_column_cannot_hold_makes_no_row() -> None:
    """A number beyond 64 bits; the others of its record batch are rows."""
    decoding = Decoding(Json(Priced), MadeFor("in"))
    decoding.kind = pa.struct([("id", pa.int64()), ("price", pa.decimal128(6, 2))])
    wide = [7, 2**63, -(2**63), 2**70]
    data = [b'{"id": %d, "price": "1.25"}' % n for n in wide]

    found = decoding.separate([message(n, one) for n, one in enumerate([*data, b"no json"])])

    assert [one["id"] for one in found.values.to_pylist()] == [7, -(2**63)]
    assert [one.message.offset() for one in found.failed] == [1, 3, 4]
    assert "A column of Spark cannot hold the value" in str(found.failed[0].error)
    assert isinstance(found.failed[0].error, CodecError)


@dataclass
class Flagged:
    """A field that a message may leave out."""

    id: int
    flag: bool = False


def test_field_that_is_left_out_has_its_default() -> None:
    """Also where instances are made without it."""
    decoding = Decoding(Json(Flagged), MadeFor("in"))
    decoding.kind = pa.struct([("id", pa.int64()), ("flag", pa.bool_())])

    found = decoding.separate([message(0, b'{"id": 1}'), message(1, b'{"id": 2, "flag": true}')])

    assert found.values.to_pylist() == [{"id": 1, "flag": False}, {"id": 2, "flag": True}]


def test_message_beside_one_that_fails_at_its_offset_is_a_row() -> None:
    """Messages that are replayed together come from several partitions."""
    found = Decoding(Json(), MadeFor("in")).separate([message(5, b"no json"), message(5, GOOD_JSON)])

    assert [one.value() for one in found.good] == [GOOD_JSON]
    assert len(found.failed) == 1


# From the source to the slot.


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The file of a Spark task."""
    return tmp_path / "report"


def row(offset: int) -> ErrorRow:
    """An error message."""
    return ErrorRow(offset, None, b"e%d" % offset, [("trace", None)], f"in/0 at {offset}", {"kind": "decode"})


class NeverAsked:
    """Makes no error messages, because the report has all of them."""

    topic = "in"

    def within(self, *_: Any, **__: Any) -> Iterator[ErrorRow]:
        raise AssertionError("the range was read again")


class Found(NeverAsked):
    """Finds messages where the report ends; `asked` says where it looked."""

    def __init__(self, *offsets: int) -> None:
        self.offsets, self.asked = offsets, (-1, -1)

    def within(self, _: Any, given: Any, **__: Any) -> Iterator[ErrorRow]:
        self.asked = given.start, given.end
        return (row(offset) for offset in self.offsets if given.start <= offset < given.end)


def offsets(rows: Iterator[Any]) -> list[int]:
    return [one.offset for one in rows]


def test_slot_gets_reported_errors_up_to_each_row(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The source is ahead of the slot, and writes while the slot reads."""
    monkeypatch.setattr(reports, "_AT_ONCE", 2)
    writer, reader = ReportWriter(file, 3), ReportReader(file)
    reported = Reported(NeverAsked(), None, 3, Range(0, 100), reader)  # type: ignore[arg-type]
    reported.begin(0)
    writer.add(map(row, (1, 2, 3, 7)), 10)

    assert reader.partition == 3
    assert offsets(reported.below(3)) == [1, 2]
    assert offsets(reported.below(10)) == [3, 7]
    writer.add([row(50)], 60)
    writer.add((), 100)
    assert offsets(reported.below(55)) == [50]
    assert offsets(reported.below(100)) == []
    writer.close()
    reader.close()
    assert not file.exists()


def test_file_of_a_report_is_of_its_user_alone(file: Path) -> None:
    """It has what messages had, and another file of that name is never written to."""
    ReportWriter(file, 0).close()
    assert file.stat().st_mode & 0o777 == 0o600
    with pytest.raises(FileExistsError):
        ReportWriter(file, 0)


@pytest.mark.parametrize("position", [0, 30])
def test_slot_reads_what_the_source_did_not(file: Path, position: int) -> None:
    """The plan asked for a part of the rows, or for none, so the report ends early, or there is no report."""
    writer = ReportWriter(file, 0)
    writer.add([row(1)], 20)
    writer.close()
    found = Found(5, 25, 35, 99)
    reported = Reported(found, None, 0, Range(0, 100), ReportReader(file))  # type: ignore[arg-type]
    reported.begin(position)

    assert offsets(reported.below(100)) == ([1, 25, 35, 99] if position == 0 else [1, 35, 99])
    assert found.asked == (max(20, position), 100)

    alone = Found(5, 25, 35, 99)
    reported = Reported(alone, None, 0, Range(0, 100), ReportReader(file.with_name("none")))  # type: ignore[arg-type]
    reported.begin(position)
    assert offsets(reported.below(26)) == ([5, 25] if position == 0 else [])
    assert offsets(reported.below(100)) == [35, 99]


def test_entry_that_is_being_written_is_read_later(file: Path) -> None:
    """Each cut of the file gives whole entries only."""
    writer = ReportWriter(file, 0)
    writer.add([row(1)], 20)
    writer.add([row(30)], 40)
    writer.close()
    whole = file.read_bytes()
    for length in range(len(whole)):
        file.write_bytes(whole[:length])
        reader = ReportReader(file)
        entries = list(iter(reader.next, None))
        assert [entry.to for entry in entries] == [20, 40][: len(entries)]
        assert len(entries) < 2
        with io.FileIO(file, "ab") as rest:
            rest.write(whole[length:])
        entries += list(iter(reader.next, None))
        assert [(entry.to, entry.rows) for entry in entries] == [(20, [row(1)]), (40, [row(30)])]

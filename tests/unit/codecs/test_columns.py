"""Columns of messages: they hold what the codec decodes, refuse what it refuses, and are written as it writes."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any

import msgspec
import pyarrow as pa
import pytest

from cues_kafka import Alias, Avro, CodecError, Digits, Json, OutputError, Raw
from cues_kafka.codecs.arrow.fitting import fitted, rows_of
from cues_kafka.codecs.arrow.kinds import schema_of
from cues_kafka.codecs.arrow.reading import DecodedReader, LightReader, reader_of
from cues_kafka.codecs.arrow.writing import LightJsonWriter, ValueWriter, writer_of
from cues_kafka.codecs.lookup import MadeFor, codec_for
from cues_kafka.errors import ConfigError
from cues_kafka.graph.declare import CodecSpec


@dataclass
class Light:
    """Fields that are read without an instance."""

    id: int
    name: str
    ratio: float
    seen: bool
    data: bytes = b"none"
    note: str | None = None


class Short(msgspec.Struct, rename={"id": "order-id"}):
    """A struct with a name of its own in messages."""

    id: int
    total: Annotated[int, msgspec.Meta(ge=0)] = 7


class Colour(Enum):
    """Named values."""

    RED = "red"


@dataclass
class Line:
    """Inside another one."""

    sku: str
    count: int


@dataclass
class Heavy:
    """Fields of all kinds that a column can have."""

    at: datetime
    day: date
    price: Annotated[Decimal, Digits(12, 2)]
    colour: Colour
    lines: list[Line]
    tags: dict[str, int]
    first: Line
    other: Line | None = None


@dataclass
class Checked:
    """Has a check of its own."""

    id: int

    def __post_init__(self) -> None:
        if self.id < 0:
            raise ValueError("negative")


LIGHT = Light(1, 'a "b"\n\x01é', 2.0, True, b"\x00\xff", None)
HEAVY = Heavy(
    datetime(2026, 1, 2, 3, 4, 5, 678_901, tzinfo=UTC), date(2026, 1, 2), Decimal("12.50"), Colour.RED,
    [Line("a", 1), Line("b", 2)], {"x": 1}, Line("c", 3), Line("d", 4),
)  # fmt: skip

GOOD = b'{"id":1,"name":"a","ratio":1.5,"seen":true}'
CASES: list[tuple[type[Any], bytes | None]] = [
    *((Light, one) for one in (
        GOOD, None, b"", b"1", b"null", b"[]", b"{", GOOD + GOOD, GOOD + b"\n", b"\xff", b'{"id":1}',
        GOOD.replace(b"1,", b'"1",'), GOOD.replace(b"1,", b"1.0,"), GOOD.replace(b"1,", b"1.5,"),
        GOOD.replace(b"1.5", b"1"), GOOD.replace(b"1.5", b"NaN"), GOOD.replace(b"1.5", b"1e999"),
        GOOD.replace(b"true", b"1"), GOOD.replace(b'"a"', b"null"), GOOD.replace(b'"a"', b'"\\ud800"'),
        GOOD.replace(b'"a"', b'"\xff"'), GOOD.replace(b'"id":1', b'"id":1,"id":2'),
        GOOD.replace(b"}", b',"more":[1]}'), GOOD.replace(b"}", b',"note":"n"}'), GOOD.replace(b"}", b',"note":null}'),
        GOOD.replace(b"}", b',"data":"AP8="}'), GOOD.replace(b"}", b',"data":"?"}'),
        GOOD.replace(b"1,", b"9223372036854775807,"),
    )),
    *((Short, one) for one in (b'{"order-id":1}', b'{"order-id":1,"total":-1}', b'{"id":1}')),
    *((Checked, one) for one in (b'{"id":1}', b'{"id":-1}')),
]  # fmt: skip


def codec_of(declared: CodecSpec) -> Any:
    """The codec of a topic."""
    return codec_for(declared, MadeFor("t"))


def reading(declared: CodecSpec) -> Any:
    """The reader of a topic."""
    codec = codec_of(declared)
    return reader_of(codec, codec.decode)


def rows(reader: Any, arrays: list[Any]) -> list[dict[str, Any]]:
    """The rows of columns."""
    batch = pa.RecordBatch.from_arrays(arrays, schema=reader.schema)
    return list(batch.to_pylist(maps_as_pydicts="strict"))


def decoded(codec: Any, data: bytes | None) -> tuple[Any, Exception | None]:
    """What the codec makes of bytes, or what it raises."""
    try:
        return codec.decode(data), None
    except Exception as error:
        return None, error


def fields_of(value: Any, cls: type[Any]) -> dict[str, Any]:
    """The fields of an instance by their names in messages."""
    if issubclass(cls, msgspec.Struct):
        pairs = zip(cls.__struct_fields__, cls.__struct_encode_fields__, strict=True)
        return {wire: getattr(value, name) for name, wire in pairs}
    return asdict(value)


@pytest.mark.parametrize(("cls", "data"), CASES)
def test_a_message_is_read_into_columns_as_the_codec_decodes_it(cls: type[Any], data: bytes | None) -> None:
    """Also beside messages before and behind it, whose rows stay."""
    codec, reader = codec_of(Json(cls)), reading(Json(cls))
    good = codec.encode(cls(1, "a", 1.5, True) if cls is Light else cls(1))

    found = reader.read([good, data, good])

    first = rows(reader, reader.read([good]).arrays)
    expected, error = decoded(codec, data)
    if error is None:
        assert found.failed == []
        assert rows(reader, found.arrays) == [*first, fields_of(expected, cls), *first]
    else:
        assert [(index, type(one), str(one)) for index, one in found.failed] == [(1, type(error), str(error))]
        assert rows(reader, found.arrays) == first * 2


def test_class_with_plain_fields_is_read_without_instances() -> None:
    """And one that checks itself is not."""
    assert isinstance(reading(Json(Light)), LightReader)
    assert isinstance(reading(Json(Short)), LightReader)
    assert isinstance(reading(Json(Checked)), DecodedReader)
    assert isinstance(reading(Json(Heavy)), DecodedReader)


@pytest.mark.parametrize("declared", [Json(Heavy), Avro(Heavy)])
def test_values_of_all_kinds_go_into_columns_and_come_back(declared: Any) -> None:
    """The bytes are those that the codec writes."""
    codec, reader = codec_of(declared), reading(declared)
    data = codec.encode(HEAVY)

    found = reader.read([data, data])

    assert found.failed == []
    batch = pa.RecordBatch.from_arrays(found.arrays, schema=reader.schema)
    assert batch.schema.field("at").type == pa.timestamp("us", tz="UTC")
    assert batch.schema.field("price").type == pa.decimal128(12, 2)
    assert batch["colour"].to_pylist() == ["red", "red"]
    assert writer_of(declared, MadeFor("t")).encode(batch) == [data, data]


def test_number_that_no_column_holds_fails_alone() -> None:
    found = reading(Json(Light)).read([GOOD, GOOD.replace(b"1,", b"%d," % 2**63), GOOD])

    assert [index for index, _ in found.failed] == [1]
    assert isinstance(found.failed[0][1], CodecError)
    assert "cannot hold" in str(found.failed[0][1])
    assert found.arrays[0].to_pylist() == [1, 1]


def test_values_that_are_no_record_are_one_column() -> None:
    assert schema_of(codec_of(Avro('"long"')).shape).names == ["value"]
    nullable = reading(Avro(["null", "long"]))
    codec = codec_of(Avro(["null", "long"]))
    assert nullable.read([codec.encode(7), codec.encode(None)]).arrays[0].to_pylist() == [7, None]
    assert reading(Raw()).read([b"a", b"\xff"]).arrays[0].to_pylist() == [b"a", b"\xff"]


@dataclass
class Odd:
    """A decimal without digits."""

    price: Decimal


@dataclass
class Union:
    """No column has two types."""

    value: int | str


@pytest.mark.parametrize(("cls", "text"), [(Odd, "Digits(12, 2)"), (Union, "leaves the field out")])
def test_class_that_no_column_holds_is_refused_with_the_remedy(cls: type[Any], text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        reading(Json(cls))

    assert text in str(caught.value)


LIGHTS = [
    LIGHT, Light(-(2**63), "", 0.0, False), Light(2**63 - 1, "\u2028/\x7f", -0.0, True, b"", "é"),
    Light(3, "plain", 1e300, False, b"x", 'q"'), Light(4, "\\", 1e-7, True), Light(5, "a", 100000000000000000.0, False),
]  # fmt: skip


@pytest.mark.parametrize("values", [LIGHTS, [Light(1, "a", 0.5, True)], LIGHTS[1:3], []])
def test_columns_are_written_as_the_codec_writes_instances(values: list[Light]) -> None:
    codec, writer = codec_of(Json(Light)), writer_of(Json(Light), MadeFor("t"))
    assert isinstance(writer, LightJsonWriter)
    batch = pa.RecordBatch.from_pylist([asdict(one) for one in values], schema=writer.schema)

    assert writer.encode(batch) == [codec.encode(one) for one in values]


def test_sliced_and_chunked_columns_are_written_whole() -> None:
    codec, writer = codec_of(Json(Light)), writer_of(Json(Light), MadeFor("t"))
    batch = pa.RecordBatch.from_pylist([asdict(one) for one in LIGHTS], schema=writer.schema)
    table = pa.Table.from_batches([batch.slice(1, 2), batch.slice(3, 2)])

    assert writer.encode(rows_of(table, "t")) == [codec.encode(one) for one in LIGHTS[1:5]]
    assert writer.encode(batch.slice(2, 1)) == [codec.encode(LIGHTS[2])]


def test_row_that_cannot_be_written_has_its_error_and_the_others_their_bytes() -> None:
    codec, writer = codec_of(Json(Light)), writer_of(Json(Light), MadeFor("t"))
    good = Light(1, "a", 1.5, True)
    batch = pa.RecordBatch.from_pylist(
        [asdict(good), {**asdict(good), "ratio": float("nan")}, asdict(good)], schema=writer.schema
    )

    first, error, last = writer.encode(batch)

    assert [first, last] == [codec.encode(good)] * 2
    assert isinstance(error, CodecError)


def test_class_that_checks_itself_is_asked_for_each_row() -> None:
    writer = writer_of(Json(Checked), MadeFor("t"))
    assert isinstance(writer, ValueWriter)

    good, bad = writer.encode(pa.RecordBatch.from_pylist([{"id": 1}, {"id": -1}], schema=writer.schema))

    assert good == b'{"id":1}'
    assert isinstance(bad, CodecError)


def test_any_columns_are_the_fields_of_json_without_a_class() -> None:
    batch = pa.RecordBatch.from_pylist([{"a": 1, "_key": "k", "b": None}])

    assert writer_of(Json(), MadeFor("t")).encode(fitted(batch, None, "t")) == [b'{"a":1,"b":null}']


def made(**columns: Any) -> Any:
    """A record batch that lacks nothing of `Light` but what is given."""
    usual = {"id": [1], "name": ["a"], "ratio": [1.5], "seen": [True], "data": [b""]}
    return pa.RecordBatch.from_pydict({name: one for name, one in {**usual, **columns}.items() if one is not None})


SCHEMA = schema_of(codec_of(Json(Light)).shape)


@pytest.mark.parametrize(
    ("batch", "texts"),
    [
        (made(name=None), ("lack 'name'", "Append it")),
        (made(other=[1]), ("no field 'other'", "batch.drop_columns(['other'])")),
        (made(id=["1"]), ("'id' of 't' is string, not int64", "Cast it")),
        (made(id=[1.0]), ("is double, not int64",)),
        (made(id=pa.array([2**63], pa.uint64())), ("does not fit int64",)),
        (made(name=pa.array([b"a"], pa.binary())), ("is binary, not string",)),
        (made(name=pa.array([None], pa.string())), ("1 nulls", "Fill or filter")),
    ],
)
def test_columns_that_do_not_fit_are_refused_with_the_remedy(batch: Any, texts: tuple[str, ...]) -> None:
    with pytest.raises(OutputError) as caught:
        fitted(batch, SCHEMA, "t")

    assert [text for text in texts if text not in str(caught.value)] == []


@pytest.mark.parametrize(
    "batch",
    [
        made(id=pa.array([1], pa.int8())),
        made(ratio=pa.array([1], pa.int32())),
        made(name=pa.array(["a"]).dictionary_encode()),
        made(name=pa.array(["a"], pa.large_string())),
        made(note=pa.nulls(1)),
        made(_key=["k"]),
    ],
)
def test_columns_whose_values_stay_what_they_are_fit(batch: Any) -> None:
    """In the order of the class, a missing column that takes nulls is null."""
    found = fitted(batch, SCHEMA, "t")

    assert found.schema.equals(SCHEMA)
    assert found.column("note").null_count == 1
    assert found.column("id").to_pylist() == [1]


def test_time_without_a_zone_is_refused() -> None:
    schema = pa.schema([pa.field("at", pa.timestamp("us", tz="UTC"))])

    with pytest.raises(OutputError, match="assume_timezone"):
        fitted(pa.RecordBatch.from_pydict({"at": pa.array([1], pa.timestamp("us"))}), schema, "t")


@pytest.mark.parametrize("given", [[1], {"a": [1]}, 1, "text"])
def test_something_else_than_columns_is_refused(given: Any) -> None:
    with pytest.raises(OutputError, match="RecordBatch or Table"):
        rows_of(given, "t")


@dataclass
class Named:
    """Has another name in messages."""

    id: Annotated[int, Alias("order_id")]


@pytest.mark.parametrize("declared", [Json(Named), Avro(Named)])
def test_columns_have_the_names_of_messages(declared: Any) -> None:
    codec, reader = codec_of(declared), reading(declared)
    data = codec.encode(Named(3))

    assert rows(reader, reader.read([data]).arrays) == [{"order_id": 3}]
    batch = pa.RecordBatch.from_pydict({"order_id": [3]}, schema=reader.schema)
    assert writer_of(declared, MadeFor("t")).encode(batch) == [data]

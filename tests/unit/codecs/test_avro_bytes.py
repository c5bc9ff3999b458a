"""Avro: bytes that other programs wrote, that may not fit their schema, are read exactly or refused by path."""

from __future__ import annotations

import json
import time as clock
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Annotated, Any

import pytest

from cues_kafka import Avro, CodecError, Digits, GraphError
from cues_kafka.codecs.avro import AvroCodec
from cues_kafka.codecs.avro_records import AvroRecord
from cues_kafka.codecs.avro_schema import fingerprint, parse


def number(value: int) -> bytes:
    """A whole number as Avro writes it."""
    value = (value << 1) ^ (value >> 63)
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def sized(data: bytes) -> bytes:
    """Bytes or text as Avro writes them."""
    return number(len(data)) + data


def one_field(kind: Any) -> dict[str, Any]:
    """A record with one field."""
    return {"type": "record", "name": "shop.R", "fields": [{"name": "x", "type": kind}]}


def read(schema: Any, body: bytes) -> Any:
    """The value of a message without a registry."""
    return AvroCodec(Avro(schema)).decode(b"\xc3\x01" + fingerprint(parse(json.dumps(schema))) + body)


ENUM = {"type": "enum", "name": "E", "symbols": ["a", "b", "c"]}
FIXED = {"type": "fixed", "name": "F", "size": 4}
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}
FIXED_DECIMAL = {"type": "fixed", "name": "D", "size": 8, "logicalType": "decimal", "precision": 4, "scale": 2}
INTS = {"type": "array", "items": "int"}
MAP = {"type": "map", "values": "int"}
LEAST = -(2**63)


def logical(kind: str, name: str) -> dict[str, str]:
    """A schema with a logical type."""
    return {"type": kind, "logicalType": name}


@pytest.mark.parametrize(
    ("kind", "body", "text"),
    [
        (ENUM, number(-1), r"R\.x: expected one of 3 symbols, from 0 on, got the symbol -1"),
        (ENUM, number(3), "the symbol 3"),
        (ENUM, number(LEAST), "32 bits"),
        (["null", "int"], number(-1) + number(5), r"R\.x: expected one of 2 options, from 0 on, got the option -1"),
        (["null", "int"], number(2), "the option 2"),
        (["null", "int"], number(LEAST), "the option -9223372036854775808"),
        (INTS, number(LEAST) + number(1) + number(0), r"R\.x\[0\]: the message|ends before"),
        (INTS, number(-1) + number(-1) + number(5) + number(0), r"R\.x\[0\]: expected the size of a block, got -1"),
        (INTS, number(-1) + number(100) + number(5) + number(0), "expected the size of a block, got 100"),
        (INTS, number(-2) + number(1) + number(5) + number(5) + number(0), "1 bytes more"),
        (MAP, number(-1) + number(-9) + sized(b"k") + number(5) + number(0), "expected the size of a block, got -9"),
        (MAP, number(1) + number(-1) + number(5) + number(0), r"R\.x\[key 0\]: expected a length, got -1"),
        (MAP, number(1) + sized(b"\xff") + number(5) + number(0), "UTF-8"),
        ("string", number(-1) + b"abc", r"R\.x: expected a length, got -1"),
        ("string", number(2**62) + b"abc", r"ends before the last field of the schema shop.R.*: at R\.x"),
        ("bytes", number(LEAST) + b"abc", "expected a length"),
        ("bytes", number(4) + b"abc", "ends before"),
        (FIXED, b"abc", "ends before"),
        ("int", number(2**31), r"R\.x: expected a whole number of 32 bits, got 2147483648"),
        ("long", b"\xff" * 9 + b"\x02", "64 bits"),
        ("long", b"\x80" * 11, "64 bits"),
        ("long", b"\x80" * 3, "ends before"),
        ("boolean", b"\x02", "0 or 1"),
        ("float", b"\0\0\0", "ends before"),
        ("double", b"\0" * 7, "ends before"),
    ],
)
def test_indexes_lengths_and_counts_that_cannot_be_are_errors(kind: Any, body: bytes, text: str) -> None:
    """Negative ones above all: a library takes the last option for -1, and all bytes for a length of -1."""
    with pytest.raises(CodecError, match=text):
        read(one_field(kind), body)


@pytest.mark.parametrize(
    ("kind", "body", "text"),
    [
        (
            DECIMAL,
            sized(b"\x12\xd6\x87"),
            r"R\.x: expected a decimal of 4 digits, 2 of them after the point, got one",
        ),
        (DECIMAL, sized((10_000).to_bytes(2, "big")), "got one of 5 digits"),
        (DECIMAL, sized((-10_000).to_bytes(3, "big", signed=True)), "got one of 5 digits"),
        (DECIMAL, sized(b"\x7f" * 500), "more digits"),
        (FIXED_DECIMAL, (10**4).to_bytes(8, "big"), "got one of 5 digits"),
        (logical("int", "time-millis"), number(-1), "a time of a day of 24 hours, got -1"),
        (logical("int", "time-millis"), number(86_400_000), "a time of a day of 24 hours"),
        (logical("long", "time-micros"), number(86_400_000_000), "a time of a day of 24 hours"),
        (logical("long", "time-micros"), number(-1), "a time of a day of 24 hours"),
        (logical("int", "date"), number(2_932_897), r"R\.x: expected a date in the years 1 to 9999, got day 2932897"),
        (logical("int", "date"), number(-(2**31)), "a date in the years"),
        (logical("long", "timestamp-micros"), number(253_402_300_800_000_000), "a time in the years 1 to 9999"),
        (logical("long", "timestamp-millis"), number(2**63 - 1), "a time in the years 1 to 9999"),
        (logical("long", "local-timestamp-micros"), number(LEAST), "a time in the years 1 to 9999"),
        (logical("long", "local-timestamp-millis"), number(LEAST), "a time in the years 1 to 9999"),
        (logical("string", "uuid"), sized(b"no"), r"R\.x: expected a UUID as RFC 4122 has it"),
        (logical("string", "uuid"), sized(b"{12345678-1234-1234-1234-123456789012}"), "a UUID as RFC 4122 has it"),
        ("string", sized(b"\xed\xa0\x80"), r"R\.x: expected text in UTF-8"),
    ],
)
def test_values_that_their_logical_type_does_not_have_are_errors(kind: Any, body: bytes, text: str) -> None:
    """A writer may not check the precision or the hours; what it wrote is never rounded, cut or taken for another."""
    with pytest.raises(CodecError, match=text):
        read(one_field(kind), body)


@pytest.mark.parametrize(
    ("kind", "body", "value"),
    [
        (DECIMAL, sized((9_999).to_bytes(2, "big")), Decimal("99.99")),
        (DECIMAL, sized((-9_999).to_bytes(2, "big", signed=True)), Decimal("-99.99")),
        (DECIMAL, sized(b"\0" * 300 + b"\x05"), Decimal("0.05")),
        (DECIMAL, sized(b"\xff" * 300), Decimal("-0.01")),
        (FIXED_DECIMAL, (-5).to_bytes(8, "big", signed=True), Decimal("-0.05")),
        (logical("int", "time-millis"), number(86_399_999), time(23, 59, 59, 999_000)),
        (logical("long", "time-micros"), number(3_661_000_001), time(1, 1, 1, 1)),
        (logical("int", "date"), number(-1), date(1969, 12, 31)),
        (logical("int", "date"), number(2_932_896), date(9999, 12, 31)),
        (logical("long", "timestamp-millis"), number(-1), datetime(1969, 12, 31, 23, 59, 59, 999_000, UTC)),
        (logical("long", "local-timestamp-micros"), number(1), datetime(1970, 1, 1, 0, 0, 0, 1)),  # noqa: DTZ001
        (INTS, number(-2) + number(2) + number(5) + number(6) + number(1) + number(7) + number(0), [5, 6, 7]),
        ("int", b"\x8a\x00", 5),
        (["null", "int"], b"\x82\x00" + number(5), 5),
        ("long", number(LEAST), LEAST),
    ],
)
def test_what_the_specification_allows_is_read_exactly(kind: Any, body: bytes, value: Any) -> None:
    """The edges, and forms that few writers use: padded numbers, blocks with a size."""
    assert read(one_field(kind), body) == {"x": value}


def test_a_message_that_ends_in_a_field_that_is_left_out_is_an_error() -> None:
    """A library skips over the end, and over a length below 0."""
    writer = {"type": "record", "name": "R", "fields": [{"name": "x", "type": "int"}, {"name": "y", "type": "string"}]}
    codec = AvroCodec(Avro({**writer, "fields": writer["fields"][:1]}, older=[writer]))
    head = b"\xc3\x01" + fingerprint(parse(json.dumps(writer)))
    assert codec.decode(head + number(1) + sized(b"abc")) == {"x": 1}
    for body in (number(9) + b"abc", number(-9) + b"abc", number(2**62)):
        with pytest.raises(CodecError, match=r"R\.y|ends before"):
            codec.decode(head + number(1) + body)


@pytest.mark.parametrize("size", [200_000, 400_000])
def test_time_for_a_long_decimal_does_not_grow_with_the_square_of_its_bytes(size: int) -> None:
    """Also where the schema allows that many digits: 400 kB took a minute."""
    kind = {"type": "bytes", "logicalType": "decimal", "precision": 2**31, "scale": 0}
    started = clock.process_time()
    with pytest.raises(CodecError, match=r"R\.x: expected a decimal of 10000 digits"):
        read(one_field(kind), sized(b"\x7f" * size))
    with pytest.raises(CodecError, match=r"R\.x: expected a decimal of 10000 digits"):
        AvroCodec(Avro(one_field(kind))).encode({"x": Decimal("1" * 20_000)})
    assert clock.process_time() - started < 2


def test_a_decimal_of_more_digits_than_columns_have_is_exact() -> None:
    """Avro has no limit; those of Spark have 38."""
    codec = AvroCodec(Avro({"type": "bytes", "logicalType": "decimal", "precision": 60, "scale": 10}))
    value = Decimal("-" + "9" * 50 + "." + "1" * 10)
    assert codec.decode(codec.encode(value)) == value


def test_decimals_of_two_schemas_are_exact_in_two_threads() -> None:
    """A library has one context for all threads, and sets its precision before each value."""
    values = {3: Decimal("1.25"), 30: Decimal("9" * 28 + ".25")}
    codecs = {
        digits: AvroCodec(Avro({"type": "bytes", "logicalType": "decimal", "precision": digits, "scale": 2}))
        for digits in values
    }
    messages = {digits: codec.encode(values[digits]) for digits, codec in codecs.items()}

    def many(digits: int) -> set[Decimal]:
        return {codecs[digits].decode(messages[digits]) for _ in range(20_000)}

    with ThreadPoolExecutor(2) as pool:
        assert [*pool.map(many, values)] == [{value} for value in values.values()]


# Unions


RECORD = {"type": "record", "name": "shop.P", "fields": [{"name": "x", "type": "int"}]}


@pytest.mark.parametrize("union", [[RECORD, MAP], [MAP, RECORD], ["null", MAP, RECORD], [RECORD, "string", MAP]])
def test_a_record_beside_a_map_comes_back_as_what_it_was(union: list[Any]) -> None:
    """They look alike: each knows what it is, and a dict that could be both is refused."""
    codec = AvroCodec(Avro(one_field(union)))
    as_record = number(union.index(RECORD)) + number(1)
    as_map = number(union.index(MAP)) + number(1) + sized(b"x") + number(1) + number(0)
    for body, name in ((as_record, "shop.P"), (as_map, "map")):
        found = read(one_field(union), body)["x"]
        assert (type(found), found, found.record_name) == (AvroRecord, {"x": 1}, name)
        assert codec.encode({"x": found})[10:] == body
    assert codec.encode({"x": {"other": 1}})[10:] == number(union.index(MAP)) + number(1) + sized(b"other") + b"\2\0"
    with pytest.raises(CodecError, match=r"R\.x: expected an AvroRecord, .*, got a dict that is"):
        codec.encode({"x": {"x": 1}})


def test_a_symbol_of_two_enums_must_say_which_one_it_is() -> None:
    """As must bytes of two fixed types; a pair names the type."""
    other = {"type": "enum", "name": "O", "symbols": ["a", "d"]}
    codec = AvroCodec(Avro(one_field([ENUM, other, FIXED, {**FIXED, "name": "G"}])))
    with pytest.raises(
        CodecError, match=r"R\.x: expected a pair of a name and a value, got a str that is shop.E and shop.O"
    ):
        codec.encode({"x": "a"})
    with pytest.raises(CodecError, match=r"R\.x: .* got a bytes that is shop.F and shop.G"):
        codec.encode({"x": b"1234"})
    assert codec.encode({"x": ("shop.O", "a")})[10:] == number(1) + number(0)
    assert codec.encode({"x": "d"})[10:] == number(1) + number(1)
    assert codec.encode({"x": ("shop.G", b"1234")})[10:] == number(3) + b"1234"


def test_a_symbol_beside_text_stays_a_symbol() -> None:
    """Whatever the order of the options."""
    codec = AvroCodec(Avro(["string", ENUM]))
    assert codec.encode("b")[10:] == number(1) + number(1)
    assert codec.encode("z")[10:] == number(0) + sized(b"z")


# Schemas


@pytest.mark.parametrize(
    "kind",
    [
        logical("bytes", "decimal"),
        {**DECIMAL, "precision": "4"},
        {**DECIMAL, "precision": 0},
        {**DECIMAL, "precision": True},
        {**DECIMAL, "scale": 5},
        {**DECIMAL, "scale": -1},
        {**DECIMAL, "scale": None},
        {**DECIMAL, "scale": 1.5},
        {**FIXED_DECIMAL, "precision": 19},
        {"type": "bytes", "logicalType": ["a"]},
        {"type": "bytes", "logicalType": {}},
        {"type": "bytes", "logicalType": None},
        logical("bytes", "uuid"),
        logical("bytes", "no-such-type"),
        {"type": "fixed", "name": "U", "size": 8, "logicalType": "uuid"},
    ],
)
def test_a_logical_type_that_is_not_valid_is_ignored(kind: dict[str, Any]) -> None:
    """As the specification says: values are those of the type, both ways."""
    codec = AvroCodec(Avro(one_field(kind)))
    assert codec.decode(codec.encode({"x": b"12345678"})) == {"x": b"12345678"}
    assert parse(json.dumps(one_field(kind)))["fields"][0]["type"].get("logicalType") in (None, "no-such-type")


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (logical("string", "date"), "a"),
        (logical("long", "date"), 2**40),
        (logical("long", "time-millis"), -1),
        (logical("int", "timestamp-millis"), 1),
        (logical("int", "local-timestamp-millis"), 1),
        (logical("string", "decimal"), "a"),
        (logical("double", "timestamp-micros"), 0.5),
        ({"type": "array", "items": "int", "logicalType": "decimal"}, [1]),
    ],
)
def test_a_logical_type_of_another_type_is_ignored(kind: dict[str, Any], value: Any) -> None:
    """As the specification says."""
    codec = AvroCodec(Avro(one_field(kind)))
    assert codec.decode(codec.encode({"x": value})) == {"x": value}


@dataclass
class Priced:
    """A class whose decimal needs its digits."""

    x: Annotated[Decimal, Digits(4, 2)]


def test_a_class_that_needs_an_ignored_logical_type_is_refused_by_its_field() -> None:
    """Where the graph is declared, and not at its first message."""
    with pytest.raises(GraphError, match=r"Priced\.x is declared as Decimal, and the schema gives bytes"):
        AvroCodec(Avro({**one_field(logical("bytes", "decimal")), "name": "Priced"}, Priced))


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        (5, "not int"),
        ([["int"]], "no union as an option"),
        ([{"type": []}], "no union as an option"),
        (["null", {"type": {"type": ["int", "string"]}}], "no union as an option"),
        ({}, "it has no type"),
        ({"type": 5}, "not int"),
        ({"type": "record"}, "its name None"),
        ({"type": "record", "name": 5, "fields": []}, "its name 5"),
        ({"type": "record", "name": "a-b", "fields": []}, "its name 'a-b'"),
        ({"type": "record", "name": "a", "namespace": 5, "fields": []}, "the namespace 5"),
        ({"type": "record", "name": "string", "fields": []}, "a type of Avro"),
        ({"type": "record", "name": "a"}, "no list of fields"),
        ({"type": "record", "name": "a", "fields": {}}, "no list of fields"),
        ({"type": "record", "name": "a", "fields": [5]}, r"a.fields\[0\]: a field is an object"),
        ({"type": "record", "name": "a", "fields": [{"name": "x"}]}, r"a\.x: it has no type"),
        ({"type": "record", "name": "a", "fields": [{"type": "int"}]}, "the name None of a field"),
        ({"type": "record", "name": "a", "fields": [{"name": "x", "type": None}]}, r"a\.x: a schema is .*NoneType"),
        ({"type": "record", "name": "a", "fields": [{"name": "x", "type": "nope"}]}, "names the type nope"),
        ({"type": "record", "name": "a", "fields": [{"name": "x", "type": "int"}] * 2}, "the field 'x' twice"),
        ({"type": "record", "name": "a", "aliases": "b", "fields": []}, "the aliases of a"),
        (one_field({"type": "enum", "name": "E"}), r"shop\.R\.x: the symbols of the enum E"),
        (one_field({"type": "enum", "name": "E", "symbols": 5}), "the symbols of the enum E"),
        (one_field({"type": "enum", "name": "E", "symbols": ["a", "a"]}), "a symbol twice"),
        (one_field({"type": "enum", "name": "E", "symbols": ["a"], "default": "b"}), "not one of its symbols"),
        (one_field({"type": "fixed", "name": "F", "size": -1}), "the size of the fixed type F"),
        (one_field({"type": "fixed", "name": "F", "size": "4"}), "the size of the fixed type F"),
        (one_field({"type": "fixed", "name": "F"}), "the size of the fixed type F"),
        (one_field({"type": "array"}), "the array has no items"),
        (one_field({"type": "map", "values": 5}), r"shop\.R\.x\{\}: a schema is"),
    ],
)
def test_a_schema_that_is_none_is_refused_by_the_place(schema: Any, text: str) -> None:
    """Of a user; that of a registry is a CodecError of the message."""
    with pytest.raises(GraphError, match=text):
        AvroCodec(Avro(schema))


def test_a_default_that_json_writes_as_a_whole_number_is_one_of_a_double() -> None:
    """A library refuses 0 where the type is written as an object."""
    field = {"name": "y", "type": {"type": "double"}, "default": 0}
    schema = one_field("int")
    codec = AvroCodec(Avro({**schema, "fields": [*schema["fields"], field]}, older=[schema]))
    assert codec.decode(AvroCodec(Avro(schema)).encode({"x": 1})) == {"x": 1, "y": 0.0}

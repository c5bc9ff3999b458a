"""Avro: classes and schemas, values that fit and values that do not, resolution, hostile bytes."""

from __future__ import annotations

import dataclasses
import json
import pickle
import random
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from io import BytesIO
from pathlib import Path
from typing import Annotated, Any, Literal
from uuid import UUID, uuid4

import fastavro
import msgspec
import pytest

from cues_kafka import Alias, Avro, CodecError, Digits, GraphError, Limits
from cues_kafka.codecs.avro import AvroCodec, schema_text
from cues_kafka.codecs.avro_compat import problems
from cues_kafka.codecs.avro_schema import fingerprint, parse
from cues_kafka.codecs.lookup import MadeFor, codec_for


class Colour(Enum):
    """An enum whose values are names."""

    RED = "red"
    BLUE = "blue"


@dataclass
class Line:
    """Inside an order."""

    sku: str
    count: int = 1


@dataclass(frozen=True)
class Order:
    """One field of each type, and itself."""

    id: int
    price: Annotated[Decimal, Digits(12, 2)]
    at: datetime
    day: date
    clock: time
    key: UUID
    colour: Colour
    lines: list[Line]
    tags: dict[str, int]
    raw: bytes = b"\xff\x00"
    note: str | None = None
    paid: bool = True
    weight: float = 1.5
    sizes: tuple[int, ...] = (1, 2)
    parts: list[Order] = field(default_factory=list)


ORDER = Order(
    1,
    Decimal("3.5"),
    datetime(2026, 1, 2, 3, 4, 5, 678901, UTC),
    date(2026, 1, 2),
    time(1, 2, 3, 4),
    UUID(int=7),
    Colour.BLUE,
    [Line("a"), Line("b", 2)],
    {"x": 1},
)


@dataclass
class Paid:
    """One of two records of a union."""

    amount: int
    kind: Literal["paid"] = "paid"


@dataclass
class Sent:
    """The other one."""

    by: str
    kind: Literal["sent"] = "sent"


@dataclass
class Event:
    """A union of records."""

    what: Paid | Sent | None = None


def through(declared: Avro, value: Any) -> Any:
    """Written and read."""
    codec = AvroCodec(declared)
    return codec.decode(codec.encode(value))


def record(name: str, *fields: tuple[Any, ...]) -> dict[str, Any]:
    """A schema; a field is a name, a type and perhaps a default."""
    made = [dict(zip(("name", "type", "default"), each, strict=False)) for each in fields]
    return {"type": "record", "name": name, "fields": made}


@pytest.mark.parametrize(
    ("cls", "value"),
    [
        (Order, ORDER),
        (Order, dataclasses.replace(ORDER, parts=[ORDER, ORDER], note="x", lines=[])),
        (Event, Event(Paid(3))),
        (Event, Event(Sent("post"))),
        (Event, Event()),
    ],
)
def test_an_instance_is_the_same_after_it_was_written_and_read(cls: type[Any], value: Any) -> None:
    """Logical types, enums, unions of records, records inside themselves."""
    assert through(Avro(cls), value) == value


def test_a_message_names_its_schema_as_the_specification_says() -> None:
    """C3 01 and the CRC-64 fingerprint, little-endian: 0x7275d51a3f395c8f for an int."""
    assert AvroCodec(Avro("int")).encode(7) == bytes.fromhex("c301 8f5c393f1ad57572 0e")


def test_defaults_of_a_class_are_defaults_of_its_schema() -> None:
    """Also a None, whose option comes first then; a reader with a new field reads old messages."""
    fields = {each["name"]: each for each in json.loads(json.dumps(AvroCodec(Avro(Order)).schema))["fields"]}

    assert fields["note"] | {"default": None} == fields["note"]
    assert fields["note"]["type"] == ["null", "string"]
    assert (fields["paid"]["default"], fields["sizes"]["default"], fields["raw"]["default"]) == (True, [1, 2], "\xff\0")
    assert "default" not in fields["id"]


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"id": "1"}, r"Order.id: expected a whole number .*, got str"),
        ({"id": 2**63}, r"Order.id: expected a whole number .*, got another number"),
        ({"id": True}, r"Order.id: expected a whole number .*, got bool"),
        ({"price": Decimal("1.234")}, r"Order.price: expected a decimal of 12 digits, 2 of them after the point"),
        ({"price": Decimal("NaN")}, r"Order.price: expected a decimal"),
        ({"price": 1.5}, r"Order.price: expected a decimal .*, got float"),
        ({"at": datetime(2026, 1, 1)}, r"Order.at: expected a datetime with a time zone"),  # noqa: DTZ001
        ({"day": ORDER.at}, r"Order.day: expected date, got datetime"),
        ({"colour": "green"}, r"Order.colour: expected Colour, got str"),
        ({"lines": [Line("a"), Line(3)]}, r"Order.lines\[1\].sku: expected string, got int"),  # type: ignore[arg-type]
        ({"tags": {"x": 1.5}}, r"Order.tags\['x'\]: expected a whole number"),
        ({"note": 5}, r"Order.note: expected string, got int"),
        ({"paid": "no"}, r"Order.paid: expected boolean, got str"),
        ({"weight": "2"}, r"Order.weight: expected double, got str"),
        ({"weight": 2**53 + 1}, r"Order.weight: expected a whole number of at most 53 bits, or a float, got a larger"),
        ({"parts": [3]}, r"Order.parts\[0\]: expected Order, got int"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_with_its_path(change: dict[str, Any], text: str) -> None:
    """The library would write 1.5 as 1 and "no" as true."""
    codec = AvroCodec(Avro(Order))
    codec.encode(ORDER)
    with pytest.raises(CodecError, match=text):
        codec.encode(dataclasses.replace(ORDER, **change))


def test_a_dict_must_have_the_fields_of_its_schema() -> None:
    """None is left out in silence, none is dropped; a default fills what is missing."""
    codec = AvroCodec(Avro(record("n.O", ("a", "int"), ("b", "string", "x"))))

    assert codec.decode(codec.encode({"a": 1})) == {"a": 1, "b": "x"}
    for value, text in (({"b": "x"}, "a field 'a'"), ({"a": 1, "b": "x", "c": 2}, "'c' besides"), ([], "a dict")):
        with pytest.raises(CodecError, match=text):
            codec.encode(value)
    with pytest.raises(CodecError, match="from -2147483648 to"):
        codec.encode({"a": 2**31})


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"type": "long", "logicalType": "timestamp-millis"}, ORDER.at.replace(microsecond=5000), ORDER.at),
        ({"type": "long", "logicalType": "local-timestamp-micros"}, ORDER.at.replace(tzinfo=None), ORDER.at),
        ({"type": "int", "logicalType": "time-millis"}, time(1, 2, 3, 4000), time(1, 2, 3, 4)),
        ({"type": "fixed", "name": "f", "size": 2}, b"ab", b"abc"),
        ("float", 0.5, 1e300),
        ({"type": "string", "logicalType": "uuid"}, UUID(int=3), "no"),
        ({"type": "int", "logicalType": "unknown"}, 5, "5"),
        (["null", "long", "string"], "x", 1.5),
    ],
)
def test_types_that_only_schemas_have(schema: Any, good: Any, bad: Any) -> None:
    """Precision that the schema would lose is refused."""
    assert through(Avro(schema), good) == good
    with pytest.raises(CodecError):
        AvroCodec(Avro(schema)).encode(bad)


def test_a_record_of_a_union_says_which_it_is() -> None:
    """A dict alone does not; `has_type` reads it, and it is written again as the same record."""
    one, other = record("n.A", ("x", "int")), record("n.B", ("x", "int"))
    codec = AvroCodec(Avro([one, other]))

    read = codec.decode(codec.encode(("n.B", {"x": 3})))

    assert (read, read.record_name, codec.decode(codec.encode(read)).record_name) == ({"x": 3}, "n.B", "n.B")
    assert pickle.loads(pickle.dumps(read)).record_name == "n.B"


def test_a_schema_of_others_gives_instances_of_a_class() -> None:
    """Its other fields need defaults to be written; what the class has must be there."""
    schema = record("com.shop.Line", ("sku", "string"), ("count", "int"), ("more", "string", "-"))

    assert through(Avro(schema, Line), Line("a", 2)) == Line("a", 2)
    with pytest.raises(GraphError, match=r"Line\.count: the schema 'x' does not have this field"):
        AvroCodec(Avro(record("x", ("sku", "string")), Line))
    with pytest.raises(GraphError, match="Line has no field 'more', which the schema 'x' demands"):
        AvroCodec(Avro(record("x", ("sku", "string"), ("count", "int"), ("more", "string")), Line))


def test_older_messages_are_read_into_the_declared_schema() -> None:
    """New fields take their defaults, removed ones are left out, numbers are widened."""
    old = record("com.shop.Line", ("sku", "string"), ("count", "int"), ("gone", "string"))
    written = AvroCodec(Avro(old)).encode({"sku": "a", "count": 3, "gone": "x"})

    assert AvroCodec(Avro(Line, older=[old])).decode(written) == Line("a", 3)
    with pytest.raises(CodecError, match=r"schema of fingerprint [0-9a-f]{16}, and Line has .*older="):
        AvroCodec(Avro(Line)).decode(written)


def test_a_message_that_does_not_resolve_names_both_schemas() -> None:
    """So that one of the two can be changed."""
    old = record("com.shop.Line", ("sku", "long"))
    written = AvroCodec(Avro(old)).encode({"sku": 5})
    with pytest.raises(CodecError, match=r"schema com.shop.Line, which is not readable as Line"):
        AvroCodec(Avro(Line, older=[old])).decode(written)


def test_a_message_that_ends_too_early_is_told_as_such() -> None:
    """The schemas fit, so the text does not doubt them."""
    codec = AvroCodec(Avro(Line))
    with pytest.raises(CodecError, match="The message ends before the last field of the schema Line"):
        codec.decode(codec.encode(Line("a", 3))[:-1])


def test_a_schema_is_a_file_text_or_parsed_json(tmp_path: Path) -> None:
    """All are the same declaration, which holds the schema itself."""
    schema, file = record("L", ("sku", "string")), tmp_path / "line.avsc"
    file.write_text(json.dumps(schema))

    assert Avro(str(file)) == Avro(file) == Avro(json.dumps(schema)) == Avro(schema)
    assert hash(Avro(file)) == hash(Avro(schema))
    assert codec_for(Avro(file), MadeFor("t")) is codec_for(Avro(schema), MadeFor("t"))


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (Avro, "has no schema"),
        (lambda: Avro("nowhere.avsc"), "cannot be read"),
        (lambda: Avro("{"), "not JSON"),
        (lambda: AvroCodec(Avro({"type": "strings"})), "not an Avro schema"),
        (lambda: AvroCodec(Avro('{"type":"array","items":' * 300 + '"int"' + "}" * 300)), "nested more than"),
        (lambda: Avro("int", subject="x"), "need a registry"),
        (lambda: Avro("int", registry=True, older=["long"]), "Drop older="),
        (lambda: AvroCodec(Avro(Anything)), "Avro has no type for anything"),
        (lambda: AvroCodec(Avro(Money)), "Avro needs the digits of a Decimal"),
        (lambda: Digits(3, 4), "no more than these after the point"),
    ],
)
def test_a_declaration_that_means_nothing_is_refused(make: Any, text: str) -> None:
    """With the remedy."""
    with pytest.raises(GraphError, match=text):
        make()


@dataclass
class Anything:
    """A field without a type."""

    value: Any


@dataclass
class Money:
    """A decimal without digits."""

    value: Decimal


# Hostile bytes


LIST = record("List", ("value", "int"), ("next", ["null", "List"]))


def in_front(schema: Any, body: bytes) -> bytes:
    """A message of this schema."""
    return b"\xc3\x01" + fingerprint(parse(json.dumps(schema))) + body


@pytest.mark.parametrize(
    ("schema", "body", "text"),
    [
        ({"type": "array", "items": "null"}, bytes.fromhex("80808080808040 00"), "items that take no bytes"),
        ({"type": "array", "items": record("E")}, bytes.fromhex("80808080808040 00"), "items that take no bytes"),
        (LIST, b"\x02\x02" * 100_000 + b"\x02\x00", "nests values more than 100 deep"),
        (LIST, b"\x02\x02\x02", "ends before its values do"),
        (LIST, b"\x02\x08", "option 4 of a union of 2"),
        (LIST, b"\xff" * 20, "more than 64 bits"),
        ("string", b"\xff\xff\xff\xff\x0f", "."),
        ("bytes", b"\x01", "."),
        ("string", b"\x02\xff", "expected text in UTF-8"),
        ("int", b"\x02\x02", "expected the end of the message, got 1 bytes more"),
        ({"type": "enum", "name": "E", "symbols": ["a"]}, b"\x08", "."),
        (["null", "int"], b"\x08", "."),
    ],
)
def test_bytes_that_would_hang_or_kill_the_decoder_are_errors(schema: Any, body: bytes, text: str) -> None:
    """2^40 nulls in seven bytes, and a record inside itself, deeper than the C stack."""
    with pytest.raises(CodecError, match=text):
        AvroCodec(Avro(schema)).decode(in_front(schema, body))


def test_a_message_beyond_its_limit_of_bytes_is_an_error() -> None:
    """Before it is decoded."""
    codec = AvroCodec(Avro("string", limits=Limits(bytes=100)))
    with pytest.raises(CodecError, match="has 111 bytes, and the declared limit is 100"):
        codec.decode(AvroCodec(Avro("string")).encode("x" * 99))


def test_what_is_within_the_limits_is_read() -> None:
    """A hundred records inside each other, and as many nulls as are allowed."""
    value: Any = None
    for number in range(40):
        value = {"value": number, "next": value}
    assert through(Avro(LIST), value) == value
    nulls = {"type": "array", "items": "null"}
    assert through(Avro(nulls), [None] * 10_000) == [None] * 10_000


_NAMES = iter(range(10**9))


def random_schema(rng: random.Random, depth: int = 0) -> Any:
    """A random schema."""
    plain = ["null", "boolean", "int", "long", "float", "double", "bytes", "string"]
    logical = [{"type": "int", "logicalType": "date"}, {"type": "long", "logicalType": "timestamp-micros"}]
    decimal = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
    if depth > 2:
        return rng.choice([*plain, *logical, decimal])
    name = f"N{next(_NAMES)}"
    match rng.randrange(7):
        case 0:
            return {"type": "array", "items": random_schema(rng, depth + 1)}
        case 1:
            return {"type": "map", "values": random_schema(rng, depth + 1)}
        case 2:
            return ["null", *rng.sample(["long", "string", "boolean", {"type": "array", "items": "int"}], 2)]
        case 3:
            return {"type": "enum", "name": name, "symbols": ["a", "b", "c"]}
        case 4:
            return {"type": "fixed", "name": name, "size": rng.randrange(9)}
        case _:
            fields = [(f"f{n}", random_schema(rng, depth + 1)) for n in range(rng.randrange(1, 6))]
            return record(name, *fields, *([("me", ["null", name])] if rng.random() < 0.3 else []))


def mutated(rng: random.Random, data: bytes) -> bytes:
    body = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 5))):
        at = rng.randrange(len(body) + 1)
        match rng.randrange(4):
            case 0:
                body[at : at + 1] = bytes([rng.randrange(256)])
            case 1:
                body[at:at] = rng.randbytes(rng.choice((1, 3, 30)))
            case 2:
                del body[at : at + rng.choice((1, 4, 100))]
            case _:
                body[at:at] = b"\xff\xff\xff\xff\xff\xff\xff\xff\x7f"
    return bytes(body)


@pytest.mark.parametrize("count", [2_010, pytest.param(20_010, marks=pytest.mark.full)])
def test_mutated_messages_are_values_or_errors(count: int) -> None:
    """Of 30 schemas: none hangs, none kills, none raises anything but a decoding error."""
    from fastavro.utils import generate_one

    rng, errors = random.Random(20261123), 0
    random.seed(7)
    for _ in range(30):
        schema = random_schema(rng)
        codec = AvroCodec(Avro(schema))
        parsed, good = parse(json.dumps(schema)), BytesIO()
        fastavro.schemaless_writer(good, parsed, generate_one(parsed))
        for _ in range(count // 30):
            try:
                codec.decode(in_front(schema, mutated(rng, good.getvalue())))
            except CodecError:
                errors += 1
    assert errors > count * 0.4


# Compatibility


@pytest.mark.parametrize(
    ("writer", "reader", "found"),
    [
        ("int", "double", []),
        ("double", "int", ["int: written as double, read as int"]),
        (record("a.O", ("x", "int")), record("O", ("x", "long"), ("y", "int", 3)), []),
        (
            record("O", ("x", "int")),
            record("O", ("y", "int")),
            ["O.y: the writer does not have this field, and it has no default"],
        ),
        (record("O"), record("P"), ["P: the record is O, read as P"]),
        (["null", "int"], "int", ["int: written as null, read as int"]),
        ("int", ["null", "long"], []),
        ("boolean", ["null", "long"], ["null | long: written as boolean, which the union null | long lacks"]),
        (LIST, LIST, []),
        (
            {"type": "enum", "name": "E", "symbols": ["a", "b"]},
            {"type": "enum", "name": "E", "symbols": ["a"]},
            ["E: the reader does not know b"],
        ),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
            {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 3},
            ["bytes: written as decimal(9, 2), read as decimal(9, 3)"],
        ),
    ],
)
def test_schemas_are_compared_by_the_rules_of_resolution(writer: Any, reader: Any, found: list[str]) -> None:
    """A decimal's scale changes the number, which the rules of Avro do not see."""
    assert problems(parse(json.dumps(writer)), parse(json.dumps(reader))) == found


@dataclass(frozen=True)
class Named:
    """Its names in messages are those of another team."""

    order_id: Annotated[int, Alias("orderId")]
    note: str = ""


class NamedStruct(msgspec.Struct, frozen=True, rename="camel"):
    """The same by msgspec."""

    order_id: int
    note: str = ""


@pytest.mark.parametrize("cls", [Named, NamedStruct])
def test_an_alias_is_the_name_in_messages(cls: type[Any]) -> None:
    """In the schema, in what is written, in what is read, and in what is said of a value that does not fit."""
    codec = AvroCodec(Avro(cls))
    value = cls(order_id=4, note="a")
    assert codec.decode(codec.encode(value)) == value
    written = json.loads(schema_text(Avro(cls)))
    assert [field["name"] for field in written["fields"]] == ["orderId", "note"]
    of_dict = AvroCodec(Avro(written))
    assert of_dict.decode(codec.encode(value)) == {"orderId": 4, "note": "a"}
    with pytest.raises(CodecError, match="orderId"):
        codec.encode(cls(order_id="four", note="a"))


@dataclass
class Dashed:
    """What JSON would take."""

    order: Annotated[int, Alias("order-id")]


def test_an_alias_that_is_no_name_of_avro_is_refused() -> None:
    """When the codec is made."""
    with pytest.raises(GraphError, match="'order-id' is not a name in Avro"):
        AvroCodec(Avro(Dashed))


@dataclass(slots=True)
class InSlots:
    """Has no `__dict__`."""

    note: str | None


@dataclass
class BelowSlots(InSlots):
    """Has one field in a slot, and one in `__dict__`."""

    count: int = 0


class Upper:
    """A descriptor that changes what is set."""

    def __set_name__(self, owner: type[Any], name: str) -> None:
        self.name = "_" + name

    def __get__(self, instance: Any, owner: type[Any]) -> Any:
        return "none" if instance is None else getattr(instance, self.name)

    def __set__(self, instance: Any, value: str) -> None:
        setattr(instance, self.name, value.upper())


@dataclass
class Behind:
    """Its field is behind a descriptor."""

    word: str = Upper()  # type: ignore[assignment]


@dataclass
class OwnWay:
    """Sets attributes in a way of its own."""

    word: str

    def __setattr__(self, name: str, value: str) -> None:
        object.__setattr__(self, name, value.upper())


class Reads:
    """A base that changes what is read."""

    def __getattribute__(self, name: str) -> Any:
        found = object.__getattribute__(self, name)
        return found.upper() if name == "word" else found


@dataclass
class ReadOwnWay(Reads):
    """Gets attributes in a way of its own."""

    word: str


def test_what_an_instance_shows_is_what_is_written() -> None:
    """And not what it keeps."""
    plain = AvroCodec(Avro(schema_text(Avro(ReadOwnWay))))
    assert plain.decode(AvroCodec(Avro(ReadOwnWay)).encode(ReadOwnWay("a"))) == {"word": "A"}


@pytest.mark.parametrize("value", [InSlots("kept"), BelowSlots("kept", 2), Behind("kept"), OwnWay("kept")], ids=repr)
def test_fields_come_back_wherever_a_class_keeps_them(value: Any) -> None:
    """Each time: a shortcut through `__dict__` would write a null for a field in a slot from the second message on."""
    codec = AvroCodec(Avro(type(value)))
    for _ in range(3):
        assert codec.decode(codec.encode(value)) == value


@pytest.mark.parametrize(("cls", "read"), [(Behind, "A"), (OwnWay, "A")])
def test_a_class_that_changes_its_fields_does_so_when_it_is_read(cls: type[Any], read: str) -> None:
    """Its own code runs for each message."""
    codec = AvroCodec(Avro(cls))
    plain = AvroCodec(Avro(schema_text(Avro(cls))))
    assert codec.decode(plain.encode({"word": "a"})).word == read


class SubLine(Line):
    """Is a Line, too."""


def test_an_instance_of_a_subclass_is_written_as_its_base() -> None:
    """It takes the slower way."""
    assert through(Avro(Line), SubLine("a", 2)) == Line("a", 2)
    with pytest.raises(CodecError, match=r"Line\.sku: expected string, got int"):
        AvroCodec(Avro(Line)).encode(SubLine(1))  # type: ignore[arg-type]


def test_an_error_deep_in_a_value_is_found_in_one_look() -> None:
    """Each level passes the error on; a second look at each of 90 levels would take 2^90 steps."""
    codec = AvroCodec(Avro(Order))
    bad = dataclasses.replace(ORDER, note=5)  # type: ignore[arg-type]
    for _ in range(90):
        bad = dataclasses.replace(ORDER, parts=[ORDER, bad])
    with pytest.raises(CodecError, match=r"^Order(\.parts\[1\]){90}\.note: expected string, got int"):
        codec.encode(bad)


@pytest.mark.parametrize("digits", [(5, 2), (3, 3), (4, 0)])
def test_a_decimal_fits_where_its_digits_do(digits: tuple[int, int]) -> None:
    """Each number of digits before and behind the point, compared with arithmetic."""
    precision, scale = digits
    codec = AvroCodec(Avro({"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}))
    for coefficient in (0, 1, 9, 10, 99, 999, 1000, 9999, 10000, 99999, 100000):
        for exponent in range(-4, 4):
            value = Decimal(coefficient).scaleb(exponent)
            fits = value < 10 ** (precision - scale) and value * 10**scale % 1 == 0  # zeros at the end do not count
            try:
                assert codec.decode(codec.encode(value)) == value
            except CodecError:
                assert not fits, value
            else:
                assert fits, value


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ([["a"], ["a", 3]], r"\[1\]\[1\]: expected string, got int"),
        ([("a", "b"), [3]], r"\[1\]\[0\]: expected string, got int"),
        ([[]] * 5 + [[True]], r"\[5\]\[0\]: expected string, got bool"),
    ],
)
def test_an_item_that_does_not_fit_is_named_by_its_place(value: Any, text: str) -> None:
    """In lists and tuples."""
    codec = AvroCodec(Avro({"type": "array", "items": {"type": "array", "items": "string"}}))
    with pytest.raises(CodecError, match=text):
        codec.encode(value)


def test_names_of_a_schema_that_are_words_of_python_are_written() -> None:
    """They are text in what is generated."""
    schema = record("n.W", ("class", "int"), ("cls", "string"), ("slowly", ["null", {"type": "array", "items": "int"}]))
    value = {"class": 1, "cls": "a", "slowly": [1]}
    assert through(Avro(schema), value) == value


def test_a_time_with_a_zone_is_refused() -> None:
    """Avro has no place for the zone."""
    codec = AvroCodec(Avro({"type": "long", "logicalType": "time-micros"}))
    assert codec.decode(codec.encode(time(1, 2, 3, 4))) == time(1, 2, 3, 4)
    with pytest.raises(CodecError, match="expected a time without a time zone, got one with"):
        codec.encode(time(1, tzinfo=UTC))


@dataclass
class Fit:
    """Fields of several types."""

    id: int
    rate: float
    kind: Literal["a", "b"] | None
    lines: list[Line]


def fit(**changed: Any) -> dict[str, Any]:
    """A schema that fits `Fit`, with other types for some fields."""
    line = {
        "type": "record",
        "name": "L",
        "fields": [{"name": "sku", "type": "string"}, {"name": "count", "type": "int"}],
    }
    kinds = {"type": "enum", "name": "K", "symbols": ["a", "b"]}
    types = {"id": "int", "rate": "long", "kind": ["null", kinds], "lines": {"type": "array", "items": line}, **changed}
    return record("n.Fit", *types.items())


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"id": "string"}, "Fit.id is declared as int, and the schema gives str"),
        ({"id": ["null", "long"]}, "Fit.id is declared as int, and the schema gives null"),
        (
            {"id": {"type": "long", "logicalType": "timestamp-micros"}},
            "Fit.id is declared as int, and the schema gives d",
        ),
        ({"rate": "string"}, "Fit.rate is declared as float"),
        ({"kind": ["null", "long"]}, "Fit.kind is declared as .* and the schema gives int"),
        (
            {"lines": {"type": "array", "items": "string"}},
            r"Fit.lines\[\] is declared as Line, and the schema gives str",
        ),
        (
            {"lines": {"type": "map", "values": "int"}},
            "Fit.lines is declared as list of Line, and the schema gives dict",
        ),
    ],
)
def test_a_class_that_cannot_hold_the_schemas_values_is_refused(changed: dict[str, Any], text: str) -> None:
    """When the codec is made: a message would put a number into a field that is declared as text."""
    assert AvroCodec(Avro(fit(), Fit)).shape is not None
    with pytest.raises(GraphError, match=text):
        AvroCodec(Avro(fit(**changed), Fit))


def test_a_class_and_null_read_tombstones() -> None:
    """Of a compacted topic."""
    codec = AvroCodec(Avro(["null", record("n.Line", ("sku", "string"), ("count", "int"))], Line))
    assert codec.nullable
    for value in (Line("a", 2), None):
        assert codec.decode(codec.encode(value)) == value


@dataclass
class TwoColours:
    """One enum in two fields, and a default that is made for each instance."""

    front: Colour
    back: Colour | None = Colour.BLUE
    number: str = field(default_factory=lambda: str(uuid4()))


def test_an_enum_may_be_in_two_fields() -> None:
    """The schema defines it once."""
    assert through(Avro(TwoColours), TwoColours(Colour.RED, None, "a")) == TwoColours(Colour.RED, None, "a")


def test_a_default_that_is_made_for_each_instance_is_not_the_schemas() -> None:
    """Each process would have a schema of its own, and could not read the messages of the others."""
    assert schema_text(Avro(TwoColours)) == schema_text(Avro(TwoColours))
    assert "default" not in json.loads(schema_text(Avro(TwoColours)))["fields"][2]


@pytest.mark.parametrize(
    ("schema", "value", "text"),
    [
        ("float", 2**24 + 1, "a whole number of at most 24 bits"),
        (
            {"type": "long", "logicalType": "timestamp-micros"},
            datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=5))),
            "in the years 1 to 9999 in UTC",
        ),
    ],
)
def test_what_could_not_be_read_again_is_refused(schema: Any, value: Any, text: str) -> None:
    """As it was."""
    with pytest.raises(CodecError, match=text):
        AvroCodec(Avro(schema)).encode(value)


@dataclass
class Grown:
    """Has fields that older messages lack."""

    id: int
    tags: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    raw: bytes = b"\xff"


@pytest.mark.parametrize("declared", [Grown, schema_text(Avro(Grown))], ids=["class", "dict"])
def test_a_default_of_an_older_message_is_its_own(declared: Any) -> None:
    """What a function puts into the list of one message is not in the next one; bytes are bytes."""
    old = record("Grown", ("id", "long"))
    codec, former = AvroCodec(Avro(declared, older=[old])), AvroCodec(Avro(old))
    get = (lambda one, name: one[name]) if isinstance(declared, str) else getattr
    first = codec.decode(former.encode({"id": 1}))
    get(first, "tags").append("mine")
    get(first, "counts")["mine"] = 1
    second = codec.decode(former.encode({"id": 2}))
    assert [get(second, name) for name in ("tags", "counts", "raw")] == [[], {}, b"\xff"]

"""Avro: values of a union that look alike come back as what they were, also through another version of the schema."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from datetime import UTC, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from typing import Any, Literal
from uuid import UUID, uuid4

import msgspec
import pytest

from cues_kafka import Avro, CodecError, GraphError
from cues_kafka.codecs.avro import AvroCodec, schema_text
from cues_kafka.codecs.avro_records import AvroRecord
from cues_kafka.codecs.registered import Own, Registered

MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
TIME_MILLIS = {"type": "int", "logicalType": "time-millis"}
MICROS = {"type": "long", "logicalType": "timestamp-micros"}
LIGHT = {"type": "enum", "name": "Light", "symbols": ["red", "green"]}


@dataclass
class Paid:
    """One of two records with the same fields."""

    kind: Literal["paid"] = "paid"
    amount: int = 0


@dataclass
class Owed:
    """The other one."""

    kind: Literal["owed"] = "owed"
    amount: int = 0


@dataclass
class Late(Paid):
    """An option beside its base."""

    kind: Literal["late"] = "late"  # type: ignore[assignment]
    days: int = 0


class Met(msgspec.Struct, tag="met"):
    """An option."""

    amount: int


class Missed(Met, tag="missed"):
    """An option beside its base."""

    days: int = 0


@dataclass
class Named:
    """Both records are defined before the union, which has their names only."""

    paid: Paid
    owed: Owed
    either: Paid | Owed


@dataclass
class HalfNamed:
    """One of the records is defined before the union."""

    paid: Paid
    many: list[Paid | Owed]


@dataclass
class Numbers:
    """The default moves the double before the long."""

    x: float | int = 1.5


@dataclass
class Texts:
    """A tuple of texts is no record with its name."""

    x: str | tuple[str, ...]


class Size(IntEnum):
    """Its values are no names of Avro."""

    SMALL = 1
    LARGE = 2


class Way(StrEnum):
    """One of its values is no name of Avro."""

    UP = "up"
    UP_AND_DOWN = "up-and-down"


class Colour(Enum):
    """Its values are names of Avro."""

    RED = "red"
    BLUE = "blue"


@dataclass
class Sized:
    """Enums in all places."""

    size: Size
    way: Way
    colour: Colour
    colours: list[Colour]
    sizes: dict[str, Size]
    perhaps: Way | None = None


@dataclass
class Held:
    """A list of instances that may be missing."""

    lines: list[Paid] | None = None


@pytest.mark.parametrize(
    "value",
    [
        Named(Paid(), Owed(), Owed(amount=3)),
        Named(Paid(), Owed(), Paid(amount=3)),
        HalfNamed(Paid(), [Owed(), Paid(), Owed(amount=1)]),
        Numbers(5),
        Numbers(2**53 + 1),
        Numbers(0.5),
        Texts(("string", "a")),
        Texts(("a", "b")),
        Sized(Size.LARGE, Way.UP_AND_DOWN, Colour.RED, [Colour.BLUE], {"a": Size.SMALL}, Way.UP),
        Held([Paid(amount=2)]),
        Held(),
    ],
)
def test_a_value_comes_back_as_the_option_that_it_was(value: Any) -> None:
    """Fastavro takes the first option that looks alike, and a whole number for a double."""
    codec = AvroCodec(Avro(type(value)))
    read = codec.decode(codec.encode(value))
    assert read == value
    assert repr(read) == repr(value)  # 5 is not 5.0


def test_a_subclass_beside_its_base_is_itself() -> None:
    """It is an instance of its base, too, whose fields alone would be written."""
    for one, other, value in ((Paid, Late, Late(amount=1, days=2)), (Met, Missed, Missed(amount=1, days=2))):
        union = dataclasses.make_dataclass("Union", [("of", one | other)])
        codec = AvroCodec(Avro(union))
        assert codec.decode(codec.encode(union(value))) == union(value)


@pytest.mark.parametrize(
    ("options", "value"),
    [
        (["double", "long"], 2**53 + 1),
        (["float", "long"], 2**24 + 1),
        (["float", "double"], 1.1),
        ([{"type": "int", "logicalType": "date"}, MICROS], datetime(2026, 1, 2, 3, 4, 5, 6, UTC)),
        ([TIME_MILLIS, {"type": "long", "logicalType": "time-micros"}], time(1, 2, 3, 4)),
        ([LIGHT, {"type": "string", "logicalType": "uuid"}], UUID(int=7)),
        ([LIGHT, {"type": "enum", "name": "Size", "symbols": ["small", "large"]}], "large"),
    ],
)
def test_a_value_is_written_as_the_option_that_holds_all_of_it(options: Any, value: Any) -> None:
    """The other one would cut it."""
    codec = AvroCodec(Avro(options))
    read = codec.decode(codec.encode(value))
    assert (read, type(read)) == (value, type(value))


@pytest.mark.parametrize(
    "options", [[MILLIS, MICROS], [MICROS, "long"], [{"type": "string", "logicalType": "uuid"}, "string"]]
)
def test_a_union_with_a_type_twice_is_refused(options: Any) -> None:
    """The specification forbids it: a time of micros became one of millis, a number a time, and text was no UUID."""
    with pytest.raises(GraphError, match=r"a union has the type (long|string) twice"):
        AvroCodec(Avro(options))


def test_a_class_whose_union_would_have_a_type_twice_is_refused_with_the_field() -> None:
    """A time is a long, so a number beside it came back as a time."""
    when = dataclasses.make_dataclass("When", [("x", datetime | int)])
    with pytest.raises(GraphError, match=r"When.x: datetime and int are both long in Avro"):
        AvroCodec(Avro(when))


LOOK_ALIKE = [
    {"type": "record", "name": "shop.A", "fields": [{"name": "q", "type": "int"}]},
    {"type": "record", "name": "shop.B", "fields": [{"name": "q", "type": "int"}]},
]


def test_a_dict_that_is_several_records_is_refused() -> None:
    """It would be written as the first one. A copy of an `AvroRecord` is such a dict."""
    codec = AvroCodec(Avro(LOOK_ALIKE))
    read = codec.decode(codec.encode(AvroRecord("shop.B", {"q": 1})))
    assert (read, read.record_name) == ({"q": 1}, "shop.B")
    with pytest.raises(CodecError, match=r"expected an AvroRecord, .*, got a dict that is shop.A and shop.B"):
        codec.encode({**read})


@pytest.mark.parametrize(
    ("field_type", "value"),
    [(Owed, Owed(amount=5)), (Owed | None, Owed(amount=5)), (Paid | Owed, Owed(amount=5))],
)
def test_a_union_that_grew_reads_what_was_written_before(field_type: Any, value: Any) -> None:
    """The writer had one record, so fastavro does not say its name; the first option was made of it."""
    old = dataclasses.make_dataclass("Box", [("item", field_type)])
    for wider in (Paid | Owed, Paid | Owed | None, Owed | Paid):
        new = dataclasses.make_dataclass("Box", [("item", wider)])
        read = AvroCodec(Avro(new, older=[schema_text(Avro(old))])).decode(AvroCodec(Avro(old)).encode(old(value)))
        assert read == new(value)


def test_a_union_that_shrank_reads_the_records_that_are_left() -> None:
    """The writer's name of the record is not part of the value."""
    old = dataclasses.make_dataclass("Box", [("item", Paid | Owed)])
    new = dataclasses.make_dataclass("Box", [("item", Owed)])
    codec, written = AvroCodec(Avro(new, older=[schema_text(Avro(old))])), AvroCodec(Avro(old))
    assert codec.decode(written.encode(old(Owed(amount=5)))) == new(Owed(amount=5))
    with pytest.raises(CodecError, match="not readable as Box"):
        codec.decode(written.encode(old(Paid(amount=5))))


def test_records_of_dicts_keep_their_names_through_resolution() -> None:
    """In another order, and from a single record."""
    first = AvroCodec(Avro(LOOK_ALIKE))
    single = AvroCodec(Avro(LOOK_ALIKE[1]))
    turned = AvroCodec(Avro(LOOK_ALIKE[::-1], older=[LOOK_ALIKE, LOOK_ALIKE[1]]))
    for data in (first.encode(AvroRecord("shop.B", {"q": 1})), single.encode({"q": 1})):
        read = turned.decode(data)
        assert (read, read.record_name) == ({"q": 1}, "shop.B")


def test_records_of_one_name_in_two_namespaces_are_not_taken_for_each_other() -> None:
    """Also through another version of the schema, although the last part of their names is the same."""
    union = [{**one, "name": name} for one, name in zip(LOOK_ALIKE, ("a.R", "b.R"), strict=True)]
    codec = AvroCodec(Avro(union))
    later = AvroCodec(Avro([*union[::-1], "null"], older=[union]))
    for name, value in (("a.R", {"q": 1}), ("b.R", {"q": 2})):
        for reader in (codec, later):
            found = reader.decode(codec.encode(AvroRecord(name, value)))
            assert (found, found.record_name) == (value, name)


# ------------------------------------------------------------------------------------------------ defaults


@dataclass
class Inner:
    """A record with a default of its own."""

    z: int = 1


@dataclass
class Basket:
    """Defaults that can be changed."""

    x: int
    items: list[int] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    raw: bytes = b"\xff"


OLD = {"type": "record", "name": "Basket", "fields": [{"name": "x", "type": "int"}]}


def test_each_message_has_defaults_of_its_own() -> None:
    """Fastavro gives the same list to all messages, so what a function added to one was in the next ones."""
    codec, data = AvroCodec(Avro(Basket, older=[OLD])), AvroCodec(Avro(OLD)).encode({"x": 1})
    first = codec.decode(data)
    first.items.append(7)
    first.counts["a"] = 1
    assert codec.decode(data) == Basket(1)


def test_a_record_that_is_a_default_is_made_for_each_message() -> None:
    """Its dict was the `__dict__` of all instances."""
    inner = {"type": "record", "name": "Inner", "fields": [{"name": "z", "type": "int", "default": 1}]}
    schema = {**OLD, "fields": [*OLD["fields"], {"name": "inner", "type": inner, "default": {}}]}
    basket = dataclasses.make_dataclass("Basket", [("x", int), ("inner", Inner)])
    codec, data = AvroCodec(Avro(schema, basket, older=[OLD])), AvroCodec(Avro(OLD)).encode({"x": 1})
    codec.decode(data).inner.z = 99
    assert codec.decode(data) == basket(1, Inner())


def test_a_default_is_a_value_of_its_field() -> None:
    """Fastavro gives it as the schema has it in JSON, to readers and writers."""
    more = [
        ("raw", "bytes", "\u00ff", b"\xff"),
        ("at", MICROS, 5, datetime(1970, 1, 1, 0, 0, 0, 5, UTC)),
        ("price", {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}, "\u0001", Decimal("0.01")),
        ("weight", "double", 1, 1.0),
        ("either", ["double", "long"], 2**53 + 1, 2**53 + 1),
    ]
    fields = [{"name": name, "type": kind, "default": plain} for name, kind, plain, _ in more[:-1]]
    schema = {**OLD, "fields": [*OLD["fields"], *fields]}
    read = AvroCodec(Avro(schema, older=[OLD])).decode(AvroCodec(Avro(OLD)).encode({"x": 1}))
    expected = {"x": 1, **{name: value for name, _, _, value in more[:-1]}}
    assert read == expected
    assert repr(read) == repr(expected)

    codec = AvroCodec(Avro(schema))
    assert codec.decode(codec.encode({"x": 1})) == expected


def test_a_default_that_is_no_value_of_its_field_is_refused() -> None:
    """It would be given to a function."""
    fixed = {"type": "fixed", "name": "F", "size": 2}
    schema = {**OLD, "fields": [{"name": "f", "type": {"type": "array", "items": fixed}, "default": [5]}]}
    with pytest.raises(GraphError, match=r"the default of Basket.f is not a value of the field"):
        AvroCodec(Avro(schema))


def test_a_default_that_is_another_one_each_time_is_none_of_the_schema() -> None:
    """All messages had the one of the process's start, and the registry did not know the schema of the next start."""
    cls = dataclasses.make_dataclass("R", [("x", int), ("id", str, field(default_factory=lambda: str(uuid4())))])
    assert schema_text(Avro(cls)) == schema_text(Avro(cls))
    assert "default" not in json.loads(schema_text(Avro(cls)))["fields"][1]


# ------------------------------------------------------------------------------------------------ logical types


class OneSchema:
    """A registry with one schema."""

    def __init__(self, schema: Any) -> None:
        self._text = json.dumps(schema)

    def by_id(self, name: int | UUID) -> Registered:
        """The schema."""
        assert isinstance(name, int)
        return Registered(name, self._text)

    def id_of(self, subject: str, own: Own) -> int:
        """Any id."""
        return len(subject) and len(own)

    def latest(self, subject: str) -> Registered:
        """The schema."""
        return self.by_id(len(subject))


@pytest.mark.parametrize(
    ("writer", "declared", "value"),
    [
        ("long", MICROS, 5),
        (MICROS, "long", datetime(2026, 1, 1, tzinfo=UTC)),
        ("string", {"type": "string", "logicalType": "uuid"}, "a"),
        (["null", "int"], ["null", {"type": "int", "logicalType": "date"}], 5),
        (["string", "int"], ["string", {"type": "int", "logicalType": "date"}, "boolean"], 5),
    ],
)
def test_a_value_of_another_type_than_declared_is_an_error(writer: Any, declared: Any, value: Any) -> None:
    """Fastavro converts by the writer's logical type: the function got a number for a time, or a time for a number."""

    def schema(kind: Any) -> dict[str, Any]:
        return {"type": "record", "name": "R", "fields": [{"name": "x", "type": kind}]}

    registry = OneSchema(schema(writer))
    data = AvroCodec(Avro(registry=True), "s", registry).encode({"x": value})
    with pytest.raises(CodecError, match="not readable as R"):
        AvroCodec(Avro(schema(declared), registry=True), "s", registry).decode(data)


def test_units_of_a_time_are_the_writers() -> None:
    """These do resolve."""
    registry = OneSchema(MILLIS)
    at = datetime(2026, 1, 1, tzinfo=UTC)
    data = AvroCodec(Avro(registry=True), "s", registry).encode(at)
    assert AvroCodec(Avro(MICROS, registry=True), "s", registry).decode(data) == at


def test_older_schemas_that_no_fingerprint_tells_apart_are_refused() -> None:
    """1.50 of two digits would be read as 0.0150 of four."""
    two, four = ({"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": scale} for scale in (2, 4))
    for older, declared in ((two, four), (MILLIS, MICROS)):
        with pytest.raises(GraphError, match="fingerprints leave these out"):
            AvroCodec(Avro(declared, older=[older]))
    assert AvroCodec(Avro(two, older=[two]))


def test_a_number_that_a_float_cannot_hold_is_refused() -> None:
    """2**24 + 1 would come back as 2**24."""
    codec = AvroCodec(Avro("float"))
    assert codec.decode(codec.encode(2**24)) == 2**24
    with pytest.raises(CodecError, match="at most 24 bits"):
        codec.encode(2**24 + 1)


def test_a_time_that_is_none_in_utc_is_refused() -> None:
    """It was written, and could not be read."""
    codec = AvroCodec(Avro(MICROS))
    with pytest.raises(CodecError, match="in the years 1 to 9999 in UTC"):
        codec.encode(datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=2))))


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"colour": "red"}, "Sized.colour: expected Colour, got str"),
        ({"size": 1}, "Sized.size: expected Size, got int"),
        ({"colours": [Way.UP]}, r"Sized.colours\[0\]: expected Colour, got Way"),
    ],
)
def test_a_value_of_an_enum_is_a_member(change: dict[str, Any], text: str) -> None:
    """It came back as a member, though it was none."""
    value = Sized(Size.LARGE, Way.UP, Colour.RED, [], {})
    with pytest.raises(CodecError, match=text):
        AvroCodec(Avro(Sized)).encode(dataclasses.replace(value, **change))


def test_a_value_of_a_literal_is_one_of_its_values() -> None:
    """A record that another one's literal names was written."""
    with pytest.raises(CodecError, match=r"Paid.kind: expected 'paid', got another value"):
        AvroCodec(Avro(Paid)).encode(Paid("owed"))  # type: ignore[arg-type]

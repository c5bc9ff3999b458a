"""What a codec writes, its own readers take: what they would refuse is refused where it is returned."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from io import BytesIO
from typing import Any, Literal

import fastavro
import pydantic
import pytest
from google.protobuf import struct_pb2

from cues_kafka import Avro, CodecError, GraphError, JsonSchema, Limits, Protobuf
from cues_kafka.codecs.avro import AvroCodec
from cues_kafka.codecs.avro_schema import fingerprint, parse
from cues_kafka.codecs.json import JsonCodec
from cues_kafka.codecs.json_schema import JsonSchemaCodec
from cues_kafka.codecs.protobuf import ProtobufCodec

NODE = {"type": "record", "name": "Node", "fields": [{"name": "next", "type": ["null", "Node"]}]}
NULLS = {"type": "array", "items": "null"}


def nested(depth: int) -> dict[str, Any]:
    """Nodes inside each other."""
    value: dict[str, Any] = {"next": None}
    for _ in range(depth):
        value = {"next": value}
    return value


def nested_message(depth: int) -> Any:
    """Lists inside each other."""
    value = inner = struct_pb2.Value()
    for _ in range(depth):
        inner = inner.list_value.values.add()
    inner.bool_value = True
    return value


@pytest.mark.parametrize(
    ("codec", "good", "bad", "text"),
    [
        (AvroCodec(Avro(NODE)), nested(100), nested(101), "nests values more than 100 deep"),
        (AvroCodec(Avro(NODE, limits=Limits(nesting=5))), nested(5), nested(6), "more than 5 deep"),
        (AvroCodec(Avro(NULLS)), [None] * 10_000, [None] * 10_001, "more than 10000 items that take no bytes"),
        (AvroCodec(Avro("string", limits=Limits(bytes=100))), "x" * 88, "x" * 89, "takes 101 bytes, and readers"),
        (JsonSchemaCodec(JsonSchema({}, limits=Limits(bytes=10))), "x" * 8, "x" * 9, "takes 11 bytes, and readers"),
        (ProtobufCodec(Protobuf(struct_pb2.Value)), nested_message(49), nested_message(60), "that readers refuse"),
        (ProtobufCodec(Protobuf(struct_pb2.Value, limits=Limits(bytes=8))), struct_pb2.Value(string_value="x" * 6),
         struct_pb2.Value(string_value="x" * 7), "takes 9 bytes, and readers"),
    ],
)  # fmt: skip
def test_value_beyond_the_limits_of_its_readers_is_refused_where_it_is_written(
    codec: Any, good: Any, bad: Any, text: str
) -> None:
    """And the largest one that they take is written."""
    assert codec.decode(codec.encode(good)) == good
    with pytest.raises(CodecError, match=text):
        codec.encode(bad)


def test_key_of_a_map_that_utf8_cannot_carry_is_named() -> None:
    """With the path of the map."""
    schema = {"type": "record", "name": "R", "fields": [{"name": "m", "type": {"type": "map", "values": "int"}}]}
    with pytest.raises(
        CodecError, match=r"^R\.m\[.*ud800'\]: expected text that UTF-8 can carry, got half of a surrogate pair"
    ):
        AvroCodec(Avro(schema)).encode({"m": {"\ud800": 1}})


# What another program wrote, and a class refuses


class Colour(Enum):
    RED = "RED"


@dataclass
class Article:
    price: int

    def __post_init__(self) -> None:
        if self.price < 0:
            raise ValueError("a price is not negative")


@dataclass
class Basket:
    articles: list[Article] = field(default_factory=list)
    pairs: tuple[Article, ...] = ()
    by_name: dict[str, Article] = field(default_factory=dict)
    modes: list[Literal["fast", "slow"]] = field(default_factory=list)
    inner: Basket | None = None


class Model(pydantic.BaseModel):
    price: int = pydantic.Field(ge=0)


class Models(pydantic.BaseModel):
    articles: list[Model] = []


def theirs(cls: type[Any], value: Any) -> tuple[Any, bytes]:
    """The codec of a class, and a message that fastavro wrote by its schema."""
    codec = AvroCodec(Avro(cls))
    schema: Any = codec.schema
    out = BytesIO()
    fastavro.schemaless_writer(out, schema, value)
    return codec, b"\xc3\x01" + fingerprint(schema) + out.getvalue()


EMPTY: dict[str, Any] = {"articles": [], "pairs": [], "by_name": {}, "modes": [], "inner": None}


@pytest.mark.parametrize(
    ("cls", "value", "path"),
    [
        (Basket, EMPTY | {"articles": [{"price": 1}, {"price": -1}]}, r"Basket\.articles\[1\]: ValueError: a price"),
        (Basket, EMPTY | {"pairs": [{"price": -1}]}, r"Basket\.pairs\[0\]: ValueError: a price"),
        (Basket, EMPTY | {"by_name": {"a": {"price": 0}, "b": {"price": -1}}}, r"Basket\.by_name\['b'\]: ValueError"),
        (Basket, EMPTY | {"modes": ["fast", "x"]}, r"Basket\.modes\[1\]: expected 'fast' or 'slow', got another value"),
        (Basket, EMPTY | {"inner": EMPTY | {"articles": [{"price": -1}]}}, r"Basket\.inner\.articles\[0\]: ValueError"),
        (
            Models,
            {"articles": [{"price": 1}, {"price": -1}]},
            r"Models\.articles\[1\]: ValueError: Model\.price: Input",
        ),
    ],
)
def test_value_that_a_class_refuses_is_one_error_with_its_path(cls: type[Any], value: Any, path: str) -> None:
    """Wherever in the message it is, as with JSON; also text that is none of a `Literal`."""
    codec, data = theirs(cls, value)
    with pytest.raises(CodecError, match=path) as caught:
        codec.decode(data)
    if "ValueError" in path:
        assert isinstance(caught.value.__cause__, ValueError)


def test_logical_type_of_the_writer_that_is_another_one_is_named_with_its_path() -> None:
    """A date is declared as a timestamp."""
    date = {"type": "int", "logicalType": "date"}
    schemas = [
        {"type": "record", "name": "R", "fields": [
            {"name": "l", "type": {"type": "array", "items": {"type": "record", "name": "I", "fields": [
                {"name": "at", "type": kind}]}}}]}
        for kind in (date, {"type": "long", "logicalType": "timestamp-millis"})
    ]  # fmt: skip
    out = BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schemas[0]), {"l": [{"at": 1}, {"at": 2}]})
    codec = AvroCodec(Avro(schemas[1], older=[schemas[0]]))

    with pytest.raises(CodecError, match=r"R\.l\[0\]\.at: expected the declared datetime, got the writer's date: decl"):
        codec.decode(b"\xc3\x01" + fingerprint(parse(str(schemas[0]).replace("'", '"'))) + out.getvalue())


# Unions of dataclasses without a tag


@dataclass
class Paid:
    order: int


@dataclass
class Owed:
    order: int


@dataclass
class Events:
    newest: Paid | Owed | None = None
    all: list[Paid | Owed] = field(default_factory=list)
    by_name: dict[str, Paid | Owed] = field(default_factory=dict)
    earlier: Events | Paid | None = None


@pytest.mark.parametrize(
    "value",
    [
        Events(Paid(1)),
        Events(Owed(1), [Owed(2), Paid(2)], {"a": Owed(3), "b": Paid(3)}),
        Events(earlier=Events(Owed(1), earlier=Paid(4))),
    ],
)
def test_dataclasses_of_a_union_are_told_apart_by_their_names(value: Events) -> None:
    """In Avro, which has the names of records; JSON needs a field that says it."""
    codec = AvroCodec(Avro(Events))
    assert codec.decode(codec.encode(value)) == value
    with pytest.raises(GraphError, match="told apart"):
        JsonCodec(Events)

"""JSON Schema: classes and schemas, values that fit and values that do not, other clients' bytes, hostile ones."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Annotated, Any, Literal

import msgspec
import pytest
from confluent_kafka.schema_registry import (
    Schema,
    SchemaReference,
    SchemaRegistryClient,
    header_schema_id_serializer,
)
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from cues_kafka import Alias, CodecError, ConfigError, GraphError, JsonSchema, Limits, Registry
from cues_kafka.codecs.formats import subject_of
from cues_kafka.codecs.framing import in_front
from cues_kafka.codecs.json_derived import derived
from cues_kafka.codecs.json_schema import JsonSchemaCodec, own_schema
from cues_kafka.codecs.registry import RegistrySchemas
from cues_kafka.testing.codecs import check_codec
from cues_kafka.testing.registry import TestRegistry


@dataclass
class Line:
    """Inside an order."""

    sku: str
    count: Annotated[int, msgspec.Meta(gt=0)] = 1


@dataclass
class Order:
    """With names and types of its own."""

    id: Annotated[int, Alias("order-id")]
    lines: list[Line]
    price: Decimal = Decimal(1)
    at: datetime = datetime(2026, 1, 1, tzinfo=UTC)
    inside: Order | None = None


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
    """A union of records, which msgspec alone does not tell apart."""

    what: Paid | Sent


SCHEMA: dict[str, Any] = {
    "title": "Order",
    "type": "object",
    "properties": {
        "id": {"type": "integer", "minimum": 0},
        "lines": {"type": "array", "items": {"$ref": "line.json"}, "uniqueItems": True},
    },
    "required": ["id"],
}
LINE: dict[str, Any] = {"type": "object", "properties": {"sku": {"type": "string"}}, "required": ["sku"]}

GOOD = {"id": 1, "lines": [{"sku": "a"}, {"sku": "b"}]}


@pytest.fixture
def registry() -> Iterator[TestRegistry]:
    """A registry without schemas."""
    with TestRegistry() as found:
        yield found


def schemas_in(registry: TestRegistry) -> RegistrySchemas:
    """The registry as codecs ask it."""
    return RegistrySchemas(Registry(registry.url))


def context(headers: list[Any] | None = None) -> SerializationContext:
    """What Confluent's serializers are told of a message."""
    return SerializationContext("orders", MessageField.VALUE, headers)


def test_contract_of_codecs_holds() -> None:
    """For a class, for a schema, and for both."""
    order = Order(1, [Line("a"), Line("b", 2)], inside=Order(2, []))
    check_codec(JsonSchema(Order), [order], misfits=[Order("1", [])], bad=[b"{}"])  # type: ignore[arg-type]
    check_codec(JsonSchema(Event), [Event(Paid(1)), Event(Sent("x"))], misfits=[Event(3)])  # type: ignore[arg-type]
    whole = JsonSchema(SCHEMA, references={"line.json": LINE})
    check_codec(whole, [GOOD, {"id": 0, "more": None}], misfits=[{}, {"id": -1}], bad=[b'{"id": 1.5}', b"[]"])
    check_codec(JsonSchema({"required": ["sku"]}, Line), [Line("a")], bad=[b'{"count": 1}'])


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"id": -1}, r"Order\.id: -1 is less than the minimum of 0\. Return a value"),
        ({"id": 1, "lines": [{"sku": "a"}, {}]}, r"Order\.lines\[1\]: 'sku' is a required property"),
        ({"id": 1, "lines": [{"sku": "a", "n": 1}, {"sku": "a", "n": 1.0}]}, r"Order\.lines: .* is in the array twice"),
        ({"id": float("nan")}, "NaN"),
        (None, "Order: None is not of type 'object'"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_with_its_path(value: Any, text: str) -> None:
    """When it is written, and when it is read."""
    codec = JsonSchemaCodec(JsonSchema(SCHEMA, references={"line.json": LINE}))
    with pytest.raises(CodecError, match=text):
        codec.encode(value)
    with pytest.raises(CodecError):
        codec.decode(json.dumps(value).encode())
    assert not codec.nullable


def test_demands_of_a_class_hold_when_it_is_written() -> None:
    """The types of its fields, and what msgspec's Meta adds."""
    with pytest.raises(CodecError, match=r"line\.count: expected int >= 1\. Return a value that fits"):
        JsonSchemaCodec(JsonSchema(Line)).encode(Line("a", 0))


def test_schema_of_a_class_has_its_names() -> None:
    """Its title is at the top, where a subject's name comes from; fields have their names in messages."""
    schema = json.loads(derived(Order))

    assert schema["title"] == "Order"
    assert list(schema["properties"]) == ["order-id", "lines", "price", "at", "inside"]
    assert schema["required"] == ["order-id", "lines"]
    assert sorted(schema["$defs"]) == ["Line", "Order"]
    assert json.loads(derived(Line))["properties"]["count"] == {"type": "integer", "exclusiveMinimum": 0, "default": 1}
    assert subject_of(JsonSchema(Order, registry=True, strategy="topic-record"), "t", "value") == "t-Order"


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (JsonSchema, "has no schema"),
        (lambda: JsonSchema("nowhere.json"), "cannot be read"),
        (lambda: JsonSchema({}, subject="x"), "need a registry"),
        (lambda: JsonSchema(Line, references={"x": {}}), "Drop them"),
        (lambda: JsonSchemaCodec(JsonSchema({"$ref": "line.json"})), "names 'line.json', which is not here"),
        (lambda: JsonSchemaCodec(JsonSchema({"$ref": "http://127.0.0.1:9/x"})), "which is not here"),
        (lambda: JsonSchemaCodec(JsonSchema({"type": "strings"})), "not a JSON Schema: .type: 'strings'"),
        (lambda: JsonSchemaCodec(JsonSchema([1])), "an object or a boolean"),
        (lambda: subject_of(JsonSchema({}, registry=True, strategy="record"), "t", "key"), "no title"),
    ],
)
def test_a_declaration_that_means_nothing_is_refused(make: Any, text: str) -> None:
    """With the remedy, and without a look into the network."""
    with pytest.raises(GraphError, match=text):
        make()


def test_a_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """As pip takes it."""
    monkeypatch.setitem(__import__("sys").modules, "cues_kafka.codecs.json_validation", None)
    with pytest.raises(ConfigError, match=r"pip install 'cues-kafka\[jsonschema\]'"):
        JsonSchemaCodec(JsonSchema({}))
    assert JsonSchemaCodec(JsonSchema(Line)).encode(Line("a"))


# Confluent's own


@pytest.mark.parametrize("in_header", [False, True])
def test_confluents_bytes_are_read_and_ours_by_confluent(registry: TestRegistry, in_header: bool) -> None:
    """With a schema of theirs that names another one; the id is in the payload, or in a header."""
    client = SchemaRegistryClient({"url": registry.url})
    registry.register("line.json", LINE, "JSON")
    theirs = Schema(json.dumps(SCHEMA), "JSON", [SchemaReference("line.json", "line.json", 1)])
    conf: dict[str, Any] = {"schema.id.serializer": header_schema_id_serializer} if in_header else {}
    declared = JsonSchema(SCHEMA, registry=True, references={"line.json": LINE})
    codec = JsonSchemaCodec(declared, "orders-value", schemas_in(registry))
    of_registry = JsonSchemaCodec(JsonSchema(registry=True), "orders-value", schemas_in(registry))

    headers: list[Any] = []
    data = JSONSerializer(theirs, client, conf=conf)(GOOD, context(headers))
    assert data is not None
    message = in_front(headers, "__value_schema_id", data)

    assert codec.decode(message) == of_registry.decode(message) == GOOD
    read = JSONDeserializer(None, schema_registry_client=client)
    assert [read(each.encode(GOOD), context()) for each in (codec, of_registry)] == [GOOD, GOOD]
    if not in_header:
        assert codec.encode(GOOD) == of_registry.encode(GOOD) == data
    with pytest.raises(CodecError, match="less than the minimum"):
        of_registry.encode({"id": -1})


def test_confluent_takes_the_schema_of_a_class(registry: TestRegistry) -> None:
    """Derived and registered by us, read by them with it."""
    own = own_schema(JsonSchema(Order))
    assert own is not None
    registry.register("orders-value", own.text, "JSON")
    codec = JsonSchemaCodec(JsonSchema(Order, registry=True), "orders-value", schemas_in(registry))
    order = Order(1, [Line("a", 3)], Decimal("1.5"))

    data = codec.encode(order)

    client = SchemaRegistryClient({"url": registry.url})
    read = JSONDeserializer(own.text, schema_registry_client=client)(data, context())
    assert read["order-id"] == 1
    assert codec.decode(JSONSerializer(own.text, client)(read, context()) or b"") == order
    with pytest.raises(Exception, match="required"):
        JSONDeserializer(own.text, schema_registry_client=client)(data[:5] + b"{}", context())


BAD = (
    (b'{"id": 1}', "has 9 bytes|expected 0x00 and the id of a schema"),
    (b"\0\0\0\x27\x0f{}", "which the registry .* does not have"),
    (b"\0\0\0\0\x01{}", "is no JSON Schema: it is of the type AVRO"),
    (b"\0\0\0\0\x02{", "not JSON"),
    (b"\0\0\0\0\x02{}", "'id' is a required property"),
    (b"", "no bytes"),
)


def test_bytes_of_other_formats_are_errors(registry: TestRegistry) -> None:
    """One error each."""
    registry.register("other", '"long"')
    registry.register("orders-value", {"type": "object", "required": ["id"]}, "JSON")
    codec = JsonSchemaCodec(JsonSchema(registry=True), "orders-value", schemas_in(registry))
    for data, text in BAD:
        with pytest.raises(CodecError, match=text):
            codec.decode(data)


def test_a_schema_that_is_not_registered_is_not_written(registry: TestRegistry) -> None:
    """The text says how to add it."""
    with pytest.raises(ConfigError, match="cues-kafka schemas register"):
        JsonSchemaCodec(JsonSchema(Line, registry=True), "lines-value", schemas_in(registry)).encode(Line("a"))


# Hostile bytes


TREE: dict[str, Any] = {
    "anyOf": [
        {"type": "object", "properties": {"c": {"type": "array", "items": {"$ref": "#"}}, "k": {"const": number}}}
        for number in (1, 2)
    ]
}


def test_work_and_depth_are_bounded() -> None:
    """A tree of 45 objects would be checked 2^45 times."""
    data = b"{}"
    for _ in range(45):
        data = b'{"c":[' + data + b'],"k":3}'
    with pytest.raises(CodecError, match="follows more than 2000 references"):
        JsonSchemaCodec(JsonSchema(TREE, limits=Limits(references=2_000))).decode(data)
    with pytest.raises(CodecError, match="nests values more than 100 deep"):
        JsonSchemaCodec(JsonSchema({})).decode(b"[" * 102 + b"]" * 102)
    with pytest.raises(CodecError, match="nested too deeply"):
        JsonSchemaCodec(JsonSchema({})).decode(b"[" * 100_000)
    with pytest.raises(CodecError, match="has 7 bytes, and the declared limit is 6"):
        JsonSchemaCodec(JsonSchema({}, limits=Limits(bytes=6))).decode(b"[1,2,3]")


def test_items_that_are_unlike_each_other_are_told_in_one_pass() -> None:
    """The library compares each object with all others."""
    codec = JsonSchemaCodec(JsonSchema({"uniqueItems": True}))
    items = [{"n": number} for number in range(20_000)]
    began = time.process_time()
    assert codec.decode(json.dumps([*items, True, 1]).encode())[-1] == 1
    assert time.process_time() - began < 10
    with pytest.raises(CodecError, match="twice"):
        codec.decode(json.dumps([*items, {"n": 7.0}]).encode())


@pytest.mark.parametrize("count", [2_000, pytest.param(20_000, marks=pytest.mark.full)])
def test_mutated_messages_are_values_or_errors(count: int) -> None:
    """None hangs, and none raises anything but a decoding error."""
    rng, errors = random.Random(20261123), 0
    codecs = [
        JsonSchemaCodec(JsonSchema(SCHEMA, references={"line.json": LINE})),
        JsonSchemaCodec(JsonSchema(Order)),
        JsonSchemaCodec(JsonSchema(TREE)),
    ]
    good = json.dumps(GOOD | {"order-id": 1, "c": [{"c": [], "k": 1}], "k": 2}).encode()
    parts = [b"[" * 50, b'{"c":[', b"1e999", b"-0", b'"\\ud800"', b"\xff", b"null", b"99999999999999999999"]
    for _ in range(count):
        body = bytearray(good)
        for _ in range(rng.choice((1, 1, 2, 5))):
            at = rng.randrange(len(body) + 1)
            body[at : at + rng.choice((0, 1, 1, 9))] = rng.choice((b"", rng.randbytes(1), rng.choice(parts)))
        for codec in codecs:
            try:
                codec.decode(bytes(body))
            except CodecError:
                errors += 1
    assert errors > count

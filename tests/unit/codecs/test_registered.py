"""Schemas of a registry: the same one written in another way is found, and those that name others are read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from cues_kafka import Avro, ConfigError, Graph, GraphError, JsonSchema, Processor, Registry, Source, Topic
from cues_kafka.codecs.avro import AvroCodec
from cues_kafka.codecs.avro_records import AvroRecord
from cues_kafka.codecs.json_schema import JsonSchemaCodec
from cues_kafka.codecs.registry import RegistrySchemas, schemas_of
from cues_kafka.codecs.subjects import check, subjects
from cues_kafka.testing.registry import TestRegistry


@pytest.fixture
def registry() -> Iterator[TestRegistry]:
    """A registry of this process."""
    with TestRegistry() as found:
        yield found


def schemas_in(registry: TestRegistry) -> RegistrySchemas:
    """What codecs ask."""
    return schemas_of(Registry(registry.url))


@dataclass
class Order:
    """What is declared."""

    id: int
    note: str = "x"


OTHER_WAY = """{
  "doc": "an order", "name": "Order", "type": "record",
  "fields": [
    {"type": "long", "name": "id", "doc": "its number"},
    {"name": "note", "type": {"avro.java.string": "String", "type": "string"}, "default": "y", "aliases": ["text"]}
  ]
}"""


def test_a_schema_that_is_registered_in_another_way_is_found(registry: TestRegistry) -> None:
    """Order of keys, doc, avro.java.string and defaults say nothing of a message's bytes."""
    registry.register("orders-value", '"string"')
    number = registry.register("orders-value", OTHER_WAY)
    registry.register("orders-value", '"int"')
    codec = AvroCodec(Avro(Order, registry=True), "orders-value", schemas_in(registry))
    data = codec.encode(Order(1))
    assert data[:5] == b"\0" + number.to_bytes(4, "big")
    assert codec.decode(data) == Order(1)


DATED = {"type": "long", "logicalType": "timestamp-millis"}


@pytest.mark.parametrize(
    ("registered", "text"),
    [
        ('"long"', "version 1 differs: it is long, declared as record"),
        ({"id": "int", "note": "string"}, r"version 1 differs: Order\.id is int, declared as long"),
        ({"id": DATED, "note": "string"}, r"Order\.id is long, declared as long|Order\.id has logicalType"),
        ({"id": "long"}, "Order has no field 'note'"),
        ({"id": "long", "note": "string", "more": "int"}, "Order has a field 'more', which is not declared"),
        ({"note": "string", "id": "long"}, "the fields of Order are in another order"),
        ({"id": "long", "note": ["null", "string"]}, r"Order\.note is a union of 2, declared as string"),
    ],
)
def test_the_difference_of_a_schema_that_is_not_registered_is_shown(
    registry: TestRegistry, registered: Any, text: str
) -> None:
    """With the newest version, and the field."""
    if isinstance(registered, dict):
        fields = [{"name": name, "type": kind} for name, kind in registered.items()]
        registered = {"type": "record", "name": "Order", "fields": fields}
    registry.register("orders-value", registered)
    codec = AvroCodec(Avro(Order, registry=True), "orders-value", schemas_in(registry))
    with pytest.raises(ConfigError, match=text):
        codec.encode(Order(1))


def test_a_json_schema_with_its_keys_in_another_order_is_found(registry: TestRegistry) -> None:
    """Nothing else is taken for the same."""
    schema = {"title": "a", "type": "object", "properties": {"a": {"type": "string", "minLength": 1}}}
    turned = {"properties": {"a": {"minLength": 1, "type": "string"}}, "type": "object", "title": "a"}
    number = registry.register("a-value", json.dumps(turned), "JSON")
    codec = JsonSchemaCodec(JsonSchema(schema, registry=True), "a-value", schemas_in(registry))
    assert codec.encode({"a": "x"})[:5] == b"\0" + number.to_bytes(4, "big")
    other = {**schema, "properties": {"a": {"type": "string", "minLength": 2}}}
    codec = JsonSchemaCodec(JsonSchema(other, registry=True), "a-value", schemas_in(registry))
    with pytest.raises(ConfigError, match="differs: /properties/a/minLength is 1, declared as 2"):
        codec.encode({"a": "xy"})


# Several types of events in one topic: a union of schemas in other subjects


MONEY = {"type": "record", "name": "Money", "namespace": "com.shop", "fields": [{"name": "cents", "type": "long"}]}
PAID = {"type": "record", "name": "com.shop.Paid", "fields": [{"name": "sum", "type": "Money"}]}
OWED = {"type": "record", "name": "com.shop.Owed", "fields": [
    {"name": "sum", "type": "com.shop.Money"}, {"name": "rest", "type": ["null", "Money"]}]}  # fmt: skip
EVENTS = ["com.shop.Paid", "com.shop.Owed"]
NAMED = {"com.shop.Money": MONEY, "com.shop.Paid": PAID, "com.shop.Owed": OWED}
VALUES = [
    AvroRecord("com.shop.Paid", {"sum": {"cents": 1}}),
    AvroRecord("com.shop.Owed", {"sum": {"cents": 2}, "rest": {"cents": 3}}),
    AvroRecord("com.shop.Owed", {"sum": {"cents": 2}, "rest": None}),
]


def same(value: Any) -> Any:
    """Pass on."""
    return value


def register(registry: TestRegistry) -> Graph:
    """Add what a graph declares."""
    declared = Topic(value=Avro(EVENTS, registry=True, references=NAMED))
    graph = Graph("shop", Source("in"), Processor(same, inputs="in", outputs="events"), topics={"events": declared})
    found = schemas_in(registry)
    for subject in subjects(graph):
        if check(subject, found).state == "new":
            found.register(subject.name, subject.own)
    assert all(check(subject, found).state == "registered" for subject in subjects(graph))
    return graph


def test_a_union_of_schemas_that_are_registered_elsewhere_is_registered_written_and_read(
    registry: TestRegistry,
) -> None:
    """Those that others need come first; readers without a schema, and writers, have it from the registry."""
    register(registry)
    assert list(registry.subjects()) == ["com.shop.Money", "com.shop.Owed", "com.shop.Paid", "events-value"]
    declared = AvroCodec(Avro(EVENTS, registry=True, references=NAMED), "events-value", schemas_in(registry))
    theirs = AvroCodec(Avro(registry=True), "events-value", RegistrySchemas(Registry(registry.url)))
    alone = AvroCodec(Avro(EVENTS, references=NAMED))
    for value in VALUES:
        data = declared.encode(value)
        assert theirs.encode(value) == data
        assert data[5:] == alone.encode(value)[10:]
        for found in (declared.decode(data), theirs.decode(data), alone.decode(alone.encode(value))):
            assert (found, found.record_name) == (value, value.record_name)


def test_schemas_that_are_named_and_not_given_are_refused() -> None:
    """And those that belong to nothing."""
    with pytest.raises(GraphError, match=r"it names the type com\.shop\.Owed, which is not defined before"):
        AvroCodec(Avro(EVENTS, references={name: NAMED[name] for name in ("com.shop.Money", "com.shop.Paid")}))
    with pytest.raises(GraphError, match="belong to a schema that is given"):
        Avro(Order, references=NAMED)
    with pytest.raises(GraphError, match="takes schemas by their names"):
        Avro(EVENTS, references=[1])


def test_references_are_part_of_a_graph_as_data() -> None:
    """Programs that show or move a graph have them, too."""
    declared = Topic(value=Avro(EVENTS, references=NAMED))
    graph = Graph("shop", Source("in"), Processor(same, inputs="in", outputs="events"), topics={"events": declared})
    assert Graph.from_dict(graph.to_dict()).topic("events") == declared

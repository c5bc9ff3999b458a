"""`cues-kafka docs asyncapi`: the document has everything that a graph declares, and its schemas fit its messages."""

from __future__ import annotations

import dataclasses
import json
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import fastavro
import jsonschema
import pytest
from typer.testing import CliRunner

from cues_kafka import (
    Alias,
    Avro,
    Codec,
    DataFrameProcessor,
    Feed,
    Graph,
    GraphError,
    Iterate,
    Json,
    JsonSchema,
    Processor,
    Protobuf,
    Raw,
    Sink,
    Source,
    Sql,
    Table,
    Topic,
)
from cues_kafka.cli.asyncapi import document
from cues_kafka.cli.main import app
from cues_kafka.codecs.lookup import MadeFor, codec_for
from cues_kafka.testing.tester import Tester
from tests.unit.codecs import protos

SPECIFICATION = "@asyncapi/specs@6.11.1"
"""The package on npm that has AsyncAPI's own JSON Schemas."""

ROOT = Path(__file__).parents[3]


@dataclass(frozen=True)
class Item:
    """A line of an order."""

    article: str
    place: tuple[int, str] = (0, "")


@dataclass(frozen=True)
class Order:
    """What a customer wants."""

    id: str
    items: list[Item] = field(default_factory=list)
    parent: Order | None = None


@dataclass(frozen=True)
class Csv(Codec):
    """Values between commas."""

    separator: str = ","

    def encode(self, value: Any) -> bytes:
        return self.separator.join(value).encode()

    def decode(self, data: bytes) -> Any:
        return data.decode().split(self.separator)


OTHER = dataclasses.make_dataclass("Order", [("number", int), ("text", Annotated[str, Alias("the-text")], "")])
"""Another class of the same name."""


@dataclass(frozen=True)
class Unusual:
    """A class whose default JSON cannot hold."""

    anything: Any = object


def enrich(order: Order, customers: Any = None) -> Order:
    """
    Add what is missing
    to an order.

    More about it.
    """
    return order


def same(*values: Any, **more: Any) -> Any:
    return values[0]


REFERRING = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "$id": "https://example.com/shipment",
    "type": "object",
    "properties": {"to": {"$ref": "address.json#/definitions/city"}, "by": {"$ref": "#/definitions/carrier"},
                   "$ref": {"type": "string"}},
    "definitions": {"carrier": {"enum": ["post", "van"]}},
    "required": ["to"],
}  # fmt: skip
ADDRESS = {"definitions": {"city": {"type": "string", "minLength": 2}}}
SUMS = {"type": "record", "name": "Sum", "namespace": "shop", "fields": [{"name": "total", "type": "long"}]}

GRAPH = Graph(
    "shop",
    Source("orders"),
    Feed(Iterate(lambda _: []), into="shipments", name="feed"),
    Processor(enrich, inputs={"order": "orders", "customers": Table("customers")}, outputs="rich"),
    Processor(same, name="fork", inputs="rich", outputs={"csv": "csv", "raw": "raw", "sums": "sums", "proto": "proto"}),
    Processor(same, name="watch", alts={"a": "raw", "b": "csv"}, errors=False),
    Sink("rows", inputs="sums", into=Sql("sqlite:////tmp/never-opened.db").table("sums", columns=["total"])),
    DataFrameProcessor(same, inputs="rich", outputs="frames", name="frame"),
    errors="shop.errors",
    defaults=Topic(value=Json(Order), partitions=4, replication=3),
    topics={
        "customers": Topic(value=Json()),
        "rich": Topic(key="id", config={"cleanup.policy": "compact,delete", "retention.ms": "1000", "x": "1"}),
        "csv": Topic(value=Csv(), key_codec=Avro("long"), provenance=False),
        "raw": Topic(value=Raw(), key_codec=Raw()),
        "sums": Topic(value=Avro(SUMS, registry=True, strategy="record"), key_codec=Avro(SUMS)),
        "proto": Topic(value=Protobuf(protos.Order), key_codec=Json(Item)),
        "shipments": Topic(value=JsonSchema(REFERRING, references={"address.json": ADDRESS})),
        "frames": Topic(value=Json(OTHER), key_codec=JsonSchema({"type": "integer"})),
    },
)


def refs(found: Any) -> Iterator[str]:
    """All references; a property of a schema may be named so, too."""
    if isinstance(found, dict) and isinstance(ref := found.get("$ref"), str):
        yield ref
    if isinstance(found, dict | list):
        for one in found.values() if isinstance(found, dict) else found:
            yield from refs(one)


def at(whole: Any, ref: str) -> Any:
    """What a reference of a document points at."""
    assert ref.startswith("#/"), ref
    for part in ref[2:].split("/"):
        whole = whole[part.replace("~1", "/").replace("~0", "~")]
    return whole


def fits(whole: dict[str, Any], topic: str, value: Any) -> bool:
    """Whether a value fits the payload of a topic's messages; places count in the whole document."""
    schema = whole | whole["components"]["messages"][topic]["payload"]
    return bool(jsonschema.Draft7Validator(schema).is_valid(value))


def test_every_topic_is_a_channel_and_every_binding_an_operation() -> None:
    """Groups are on the inputs alone; tables are read without one."""
    whole = document(GRAPH)

    assert whole["channels"].keys() == whole["components"]["messages"].keys() == set(GRAPH.topics_used())
    assert [*whole["operations"]] == [
        "enrich.receive.orders", "enrich.send.rich", "enrich.receive.customers", "enrich.send.shop.errors",
        "fork.receive.rich", "fork.send.csv", "fork.send.raw", "fork.send.sums", "fork.send.proto",
        "fork.send.shop.errors", "watch.receive.raw", "watch.receive.csv", "rows.receive.sums", "rows.send.shop.errors",
        "frame.receive.rich", "frame.send.frames", "frame.send.shop.errors", "feed.send.shipments",
        "feed.send.shop.errors",
    ]  # fmt: skip
    assert whole["operations"]["enrich.receive.orders"] == {
        "action": "receive",
        "channel": {"$ref": "#/channels/orders"},
        "title": "enrich (pipe)",
        "summary": "Add what is missing to an order.",
        "messages": [{"$ref": "#/channels/orders/messages/message"}],
        "bindings": {"kafka": {"groupId": {"type": "string", "enum": ["shop.enrich"]}, "bindingVersion": "0.5.0"}},
    }
    assert [name for name, one in whole["operations"].items() if "bindings" in one] == [
        "enrich.receive.orders", "fork.receive.rich", "watch.receive.raw", "watch.receive.csv", "rows.receive.sums",
        "frame.receive.rich",
    ]  # fmt: skip
    assert "summary" not in whole["operations"]["feed.send.shipments"]


def test_channels_have_the_settings_of_topics_that_the_graph_creates() -> None:
    """Numbers are numbers, as the bindings want them; of a topic of others nothing is known."""
    bindings = {topic: one["bindings"]["kafka"] for topic, one in document(GRAPH)["channels"].items()}

    assert bindings["rich"] == {
        "partitions": 4,
        "replicas": 3,
        "topicConfiguration": {"cleanup.policy": ["compact", "delete"], "retention.ms": 1000, "x": "1"},
        "bindingVersion": "0.5.0",
    }
    assert bindings["customers"] == {"bindingVersion": "0.5.0"}


def test_every_reference_points_into_the_document() -> None:
    """Those of schemas too, whose own places have moved."""
    whole = document(GRAPH)

    found = set(refs(whole))
    assert len(found) > 30
    for ref in found:
        assert at(whole, ref), ref


def test_messages_have_their_formats_keys_and_headers() -> None:
    """What has no schema is described in words."""
    messages = document(GRAPH)["components"]["messages"]
    kafka = {topic: one["bindings"]["kafka"] for topic, one in messages.items()}

    assert {topic: one["contentType"] for topic, one in messages.items()} == {
        **dict.fromkeys(("orders", "rich", "customers", "shipments", "frames"), "application/json"),
        **dict.fromkeys(("csv", "raw"), "application/octet-stream"),
        **dict.fromkeys(("sums", "shop.errors"), "application/vnd.apache.avro"),
        "proto": "application/x-protobuf",
    }
    assert messages["csv"]["description"] == "In the format Csv. Values between commas."
    assert messages["proto"]["description"] == f"The Protobuf message {protos.Order.DESCRIPTOR.full_name}."
    assert {topic for topic, one in messages.items() if "payload" not in one} == {"csv", "proto", "raw"}
    assert {topic for topic, one in messages.items() if "headers" in one} == {
        "rich", "raw", "sums", "proto", "frames", "shipments"
    }  # fmt: skip
    assert [kafka[topic]["key"] for topic in ("orders", "csv", "raw", "sums", "proto", "frames")] == [
        {"type": "string"},
        {"type": "integer"},
        {"description": "Bytes."},
        {"description": "A value in Avro.", "x-avro": json.loads(json.dumps(SUMS, sort_keys=True))},
        {"allOf": [{"$ref": "#/components/schemas/Item"}]},
        {"allOf": [{"$ref": "#/components/schemas/frames.key/schema"}]},
    ]
    assert {key: one for key, one in kafka["sums"].items() if key.startswith("schema")} == {
        "schemaIdLocation": "payload",
        "schemaIdPayloadEncoding": "confluent",
        "schemaLookupStrategy": "RecordNameStrategy",
    }


def test_schemas_are_those_of_the_messages() -> None:
    """A message that the graph writes fits its payload, and a wrong one does not."""
    whole = document(GRAPH)
    tester = Tester(Graph("g", Source("orders"), Processor(enrich, inputs="orders", outputs="rich"),
                          defaults=Topic(value=Json(Order))))  # fmt: skip
    tester.send("orders", Order("a", [Item("nut", (3, "left"))], Order("b")))
    [sent] = tester.run().values("rich")
    value = json.loads(codec_for(Json(Order), MadeFor("rich")).encode(sent))

    assert fits(whole, "rich", value)
    assert not fits(whole, "rich", {"id": 1})
    assert not fits(whole, "rich", value | {"parent": {"id": 1}})
    assert not fits(whole, "rich", {"id": "a", "items": [{"article": "nut", "place": ["left", 3]}]})
    assert fits(whole, "customers", [None])
    assert fits(whole, "shipments", {"to": "Bonn", "by": "van"})
    assert not fits(whole, "shipments", {"to": "B"})
    assert not fits(whole, "shipments", {"to": "Bonn", "by": "ship"})
    assert fits(whole, "frames", {"number": 1, "the-text": "x"})
    assert not fits(whole, "frames", {"id": "a"})


def test_classes_of_one_name_keep_their_own_schemas() -> None:
    """The first one has the name; topics of the same class share its schema."""
    one = document(Graph("g", Source("a"), Source("b"), defaults=Topic(value=Json(Order))))
    both = document(Graph("g", Source("a"), Source("b"), topics={"a": Topic(Json(Order)), "b": Topic(Json(OTHER))}))

    assert [*one["components"]["schemas"]] == ["Order"]
    assert [*both["components"]["schemas"]] == ["Order", "b.value"]
    assert both["components"]["messages"]["b"]["payload"] == {"$ref": "#/components/schemas/b.value"}
    assert [*both["components"]["schemas"]["b.value"]["properties"]] == ["number", "the-text"]


@pytest.mark.parametrize("codec", [Json(dataclasses.make_dataclass("b.value", [("n", int)])), Avro("long")])
def test_two_schemas_of_one_name_are_refused_with_the_fix(codec: Any) -> None:
    """Of a class, and of a format that has one schema for each topic."""
    titled = dataclasses.make_dataclass("b.value", [("text", str)])
    topics = {"a": Topic(value=Json(titled)), "b": Topic(value=codec)}
    graph = Graph("g", Source("a"), Processor(same, inputs="a", outputs="b"), topics=topics)

    with pytest.raises(GraphError, match=r"The value of topic 'b' .* named 'b\.value' .* Give the class another name"):
        document(graph)


def test_name_of_a_class_is_made_a_key_of_the_document() -> None:
    """A key has letters, digits, dots, hyphens and underscores."""
    graph = Graph("g", Source("a"), defaults=Topic(value=Json(dataclasses.make_dataclass("Box[int]", [("n", int)]))))

    assert list(document(graph)["components"]["schemas"]) == ["Box_int_"]


def test_avro_payloads_can_be_parsed() -> None:
    """The errors topic has that of error messages."""
    schemas = document(GRAPH)["components"]["schemas"]
    avro = {name: one["schema"] for name, one in schemas.items() if "avro" in one.get("schemaFormat", "")}

    assert avro.keys() == {"sums.value", "cues_kafka.Error"}
    for schema in avro.values():
        fastavro.parse_schema(schema)


def test_a_class_without_a_json_schema_is_described() -> None:
    """The rest of the document is there."""
    whole = document(
        Graph("g", Source("in"), defaults=Topic(value=Json(Unusual))),
    )

    message = whole["components"]["messages"]["in"]
    assert message["payload"] == {}
    assert message["description"].startswith("Values of Unusual. ")


def test_command_prints_the_document() -> None:
    """With the servers and the version that it is given."""
    command = ["docs", "asyncapi", "examples/shop.py:graph"]
    printed = CliRunner().invoke(app, [*command, "--server", "a:1", "--server", "b:2", "--document-version", "2.0.0"])
    whole = json.loads(printed.output)

    assert whole["asyncapi"] == "3.0.0"
    assert whole["info"] == {"title": "shop", "version": "2.0.0"}
    assert whole["servers"] == {
        "kafka": {"host": "a:1", "protocol": "kafka"},
        "kafka1": {"host": "b:2", "protocol": "kafka"},
    }
    refused = CliRunner().invoke(app, [*command, "--server", "kafka"])
    assert (refused.exit_code, "write HOST:PORT" in refused.output) == (2, True)


@pytest.mark.full
def test_document_fits_the_schema_of_the_specification(tmp_path: Path) -> None:
    """That of the specification's own package on npm, which is fetched once."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("no npm here, from whose registry the specification's schema comes")
    cache = ROOT / ".venv" / ".cache" / "asyncapi"
    cache.mkdir(parents=True, exist_ok=True)
    schema = cache / "3.0.0.json"
    if not schema.is_file():
        pack = [npm, "pack", SPECIFICATION]
        packed = subprocess.run(pack, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)
        if packed.returncode:
            pytest.skip(f"npm cannot fetch {SPECIFICATION}: {packed.stderr.strip():.300}")
        with tarfile.open(tmp_path / packed.stdout.split()[-1]) as archive:
            found = archive.extractfile("package/schemas/3.0.0.json")
            assert found
            schema.write_bytes(found.read())
    validator = jsonschema.Draft7Validator(json.loads(schema.read_text()))

    whole = document(GRAPH, servers=["localhost:9092"])
    assert [f"{error.json_path}: {error.message:.200}" for error in validator.iter_errors(whole)] == []
    assert not validator.is_valid(whole | {"channels": {"orders": {"adress": "orders"}}})

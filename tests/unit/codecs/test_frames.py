"""Wrong frames of a schema registry, in front of the bytes and in headers: each is one decoding error with a remedy."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, Literal
from uuid import UUID, uuid4

import pytest

from cues_kafka import (
    Avro,
    CodecError,
    Graph,
    Json,
    JsonSchema,
    Memory,
    Message,
    OutputError,
    Processor,
    Protobuf,
    Registry,
    Source,
    Step,
    Table,
    Topic,
    start,
)
from cues_kafka.brokers.memory.log import MemoryMessage
from cues_kafka.brokers.open import open_broker
from cues_kafka.codecs import registry as registry_module
from cues_kafka.codecs.avro import parse_with
from cues_kafka.codecs.framing import id_prefix, in_front
from cues_kafka.codecs.lookup import MadeFor, codec_for
from cues_kafka.codecs.protobuf_files import own_of
from cues_kafka.codecs.registered import Registered
from cues_kafka.codecs.registry import RegistrySchemas, schemas_of
from cues_kafka.graph.declare import CodecSpec
from cues_kafka.ports.facts import ClusterFacts, TopicFacts
from cues_kafka.task.calling.inheriting import inherit, key_reader
from cues_kafka.task.calling.outage import Outage
from cues_kafka.task.making.build import _table
from cues_kafka.testing.registry import TestRegistry, _Stored
from tests.unit.codecs.protos import Order

AVRO = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}, {"name": "note", "type": "string"}]}
JSON = {"title": "r", "type": "object", "properties": {"id": {"type": "integer"}}}

UNREADABLE_ID = 77
"""Each world has this schema. It has the right type, but nothing can parse its text."""

OTHER_ID = 78
"""A schema of another type."""

LOST_ID = 79
"""A schema of the right type that refers to one that is not there."""

ABSENT_ID = 900


@dataclass
class World:
    """
    A registry, and a codec that reads with it.

    Attributes:
        declared: the codec of the topic.
        number, guid: of the schema of a good message.
        places: of Protobuf, behind the id.
        body: of a good message.
    """

    registry: TestRegistry
    declared: CodecSpec
    number: int
    guid: bytes
    places: bytes
    body: bytes

    @property
    def codec(self) -> Any:
        """Made for the test's registry."""
        return self.codec_of("value")

    def codec_of(self, part: Literal["key", "value"]) -> Any:
        """Made for keys or for values."""
        return codec_for(self.declared, MadeFor("in", Memory(registry=Registry(self.registry.url)), part))

    @property
    def frame(self) -> bytes:
        """What stands before the body of a good message."""
        return id_prefix(self.number) + self.places

    @property
    def header(self) -> bytes:
        """What stands in the header of a good message."""
        return b"\1" + self.guid + self.places


def world(kind: str, registry: TestRegistry) -> World:
    """Of Avro, JSON Schema or Protobuf."""
    texts = {"AVRO": json.dumps(AVRO), "JSON": json.dumps(JSON), "PROTOBUF": own_of(Order.DESCRIPTOR.file).text}
    other = "JSON" if kind == "AVRO" else "AVRO"
    found = {
        1: _Stored(1, str(uuid4()), kind, texts[kind], []),
        UNREADABLE_ID: _Stored(UNREADABLE_ID, str(uuid4()), kind, '{"type": "reco', []),
        OTHER_ID: _Stored(OTHER_ID, str(uuid4()), other, texts[other], []),
        LOST_ID: _Stored(
            LOST_ID, str(uuid4()), kind, texts[kind], [{"name": "a", "subject": "gone", "version": 1}]
        ),
    }  # fmt: skip
    registry._by_id.update(found)
    registry._versions["in-value"] = registry._versions["in-key"] = [1]
    guid = UUID(found[1].guid).bytes
    match kind:
        case "AVRO":
            return World(registry, Avro(AVRO, registry=True), 1, guid, b"", b"\x02\x06abc")
        case "JSON":
            return World(registry, JsonSchema(registry=True), 1, guid, b"", b'{"id":1}')
    return World(registry, Protobuf(Order, registry=True), 1, guid, b"\0", b"\x08\x01")


KINDS = ("AVRO", "JSON", "PROTOBUF")


@pytest.fixture(scope="module")
def worlds() -> Iterator[Callable[[str], World]]:
    """Each with a registry of its own, which the tests here share: a client of a registry takes long to make."""
    with TestRegistry() as avro, TestRegistry() as json_schema, TestRegistry() as protobuf:
        made = {kind: world(kind, one) for kind, one in zip(KINDS, (avro, json_schema, protobuf), strict=True)}
        yield made.__getitem__


@dataclass
class Wrong:
    """
    A wrong message.

    Attributes:
        why: what the error says.
        data: the key or value; None: a good frame and body.
        header: None: none.
        kinds: of the worlds where it is wrong.
    """

    why: str
    data: Callable[[World], bytes]
    header: Callable[[World], bytes] | None = None
    kinds: tuple[str, ...] = KINDS


def framed(frame: bytes) -> Callable[[World], bytes]:
    """A frame before a good body."""
    return lambda world: frame + world.places + world.body


def placed(places: bytes) -> Callable[[World], bytes]:
    """Another place in the Protobuf file."""
    return lambda world: id_prefix(world.number) + places + world.body


def body(world: World) -> bytes:
    """As where the header names the schema."""
    return world.body


def with_frame(world: World) -> bytes:
    """A frame as well."""
    return world.frame + world.body


PB = ("PROTOBUF",)
NO_FRAME = r"expected 0x00 and the id of a schema in 4 bytes .* declare the codec that it uses\."
NO_HEADER = r"header __{part}_schema_id has {length} bytes that name no schema\. .* leave it out\."
BOTH = r"bytes more|is not JSON|is not a cues\.test\.Order"
UNKNOWN = r"does not have\. Its producer uses another registry\."

WRONG = {
    # In front of the bytes
    "empty": Wrong("has no bytes, " + NO_FRAME, lambda _: b""),
    "a magic byte alone": Wrong("has 1 bytes, " + NO_FRAME, lambda _: b"\0"),
    "the magic byte of a GUID alone": Wrong("has 1 bytes, " + NO_FRAME, lambda _: b"\1"),
    "a wrong magic byte": Wrong("begins with byte 0x02, " + NO_FRAME, framed(b"\2\0\0\0\1")),
    "an id cut short": Wrong("has 4 bytes, " + NO_FRAME, lambda _: b"\0\0\0\1"),
    "a GUID cut short": Wrong("begins with byte 0x01, " + NO_FRAME, lambda world: b"\1" + world.guid[:-1]),
    "no frame at all": Wrong(NO_FRAME, body),
    "our own mark of a wrong header": Wrong("name no schema", lambda _: b"\xff\0cues-kafka:header\0" + b"\xff" * 9),
    "a part of it": Wrong("name no schema", lambda _: b"\xff\0cues-kafka:header\0"),
    "an id that does not exist": Wrong("the schema 900, which .* " + UNKNOWN, framed(id_prefix(ABSENT_ID))),
    "id 0": Wrong("the schema 0, .* " + UNKNOWN, framed(id_prefix(0))),
    "an id of more than 31 bits": Wrong("the schema 4294967295, .* " + UNKNOWN, framed(b"\0\xff\xff\xff\xff")),
    "a GUID that does not exist": Wrong(UNKNOWN, framed(b"\1" + bytes(16))),
    "an id of another type": Wrong(
        r"is of the type (AVRO|JSON)\. Its producer uses another codec: declare (Avro|JsonSchema)\(",
        framed(id_prefix(OTHER_ID)),
    ),
    "an unreadable schema": Wrong(
        r"The schema 77 of the registry is no (Avro|JSON) [sS]chema: .* Have its producer use a schema that readers",
        framed(id_prefix(77)),
        kinds=("AVRO", "JSON"),
    ),
    "a schema whose reference is lost": Wrong(
        "the schema 79, which names a schema that the registry .* does not have. Restore", framed(id_prefix(79))
    ),
    # The place in a Protobuf file
    "no place": Wrong(r"place of the message in its Protobuf file is not readable\. .* declare the codec", lambda world:
                      id_prefix(world.number), kinds=PB),
    "a place cut short": Wrong("is not readable", lambda world: id_prefix(world.number) + b"\x04\x02", kinds=PB),
    "a number cut short": Wrong("is not readable", lambda world: id_prefix(world.number) + b"\x02\x80", kinds=PB),
    "a number without an end": Wrong("is not readable", placed(b"\x02" + b"\xff" * 20), kinds=PB),
    "a negative place": Wrong(r"has no message at the place \[-1\], .* another version", placed(b"\x02\x01"), kinds=PB),
    "a place that is not there": Wrong(r"no message at the place \[8\]", placed(b"\x02\x10"), kinds=PB),
    "a place far away": Wrong(r"no message at the place \[\d+\]", placed(b"\x02\xfe\xff\xff\xff\x0f"), kinds=PB),
    "a place inside of a message that holds none": Wrong(r"place \[0, 0\]", placed(b"\x04\0\0"), kinds=PB),
    "a place of a hundred numbers": Wrong("no message at the place", placed(b"\xc8\x01" + bytes(100)), kinds=PB),
    "a place of 101 numbers": Wrong("has 101 numbers, expected 0 to 100", placed(b"\xca\x01" + bytes(101)), kinds=PB),
    "a place of thousands": Wrong("has 5000 numbers", placed(b"\x90\x4e" + bytes(5_000)), kinds=PB),
    "a negative count": Wrong("has -1 numbers", placed(b"\x01"), kinds=PB),
    "the place of another message": Wrong("is a cues.test.Bill", placed(b"\x02\x02"), kinds=PB),
    # In a header
    "an empty header": Wrong(NO_HEADER, body, lambda _: b""),
    "an empty header and a frame": Wrong(NO_HEADER, with_frame, lambda _: b""),
    "a header of a magic byte": Wrong(NO_HEADER, body, lambda _: b"\0"),
    "a header whose rest the value has": Wrong(NO_HEADER, lambda world: b"\0\0\1" + world.places + world.body,
                                               lambda _: b"\0\0"),
    "a header of a wrong magic byte": Wrong(NO_HEADER, body, lambda world: b"\2" + world.header[1:]),
    "a header with an id cut short": Wrong(NO_HEADER, body, lambda world: id_prefix(world.number)[:-1]),
    "a header with a GUID cut short": Wrong(NO_HEADER, body, lambda world: world.header[:16]),
    "a header with a byte too many": Wrong(NO_HEADER, lambda world: world.body[1:], lambda world: world.header
                                           + world.body[:1]),
    "a header with an id and a byte too many": Wrong(NO_HEADER, lambda world: world.body[1:], lambda world: world.frame
                                                     + world.body[:1]),
    "a long header": Wrong(NO_HEADER, body, lambda world: world.header + bytes(100_000)),
    "a header of text": Wrong(NO_HEADER, body, lambda _: b"11111111-2222-3333-4444-555555555555"),
    "a header without the place": Wrong(NO_HEADER, body, lambda world: world.header[:17], PB),
    "a header with a negative count": Wrong(NO_HEADER, body, lambda world: world.header[:17] + b"\x01", PB),
    "a header with a place that is not there": Wrong(r"no message at the place \[8\]", body, lambda world:
                                                     world.header[:17] + b"\x02\x10", PB),
    "a header with a GUID that does not exist": Wrong(UNKNOWN, body, lambda world: b"\1" + bytes(16) + world.places),
    "a header with an id that does not exist": Wrong(UNKNOWN, body, lambda world: id_prefix(900) + world.places),
    "a header with an id of another type": Wrong("is of the type", body, lambda world: id_prefix(78) + world.places),
    "a header and a frame": Wrong(BOTH, with_frame, lambda world: world.header),
    "a header that is not known and a frame that is": Wrong(UNKNOWN, with_frame, lambda world: b"\1" + bytes(16)
                                                            + world.places),
}  # fmt: skip

CASES = [pytest.param(kind, wrong, id=f"{kind}-{name}") for name, wrong in WRONG.items() for kind in wrong.kinds]


@pytest.mark.parametrize("part", ["key", "value"])
@pytest.mark.parametrize(("kind", "wrong"), CASES)
def test_a_wrong_frame_is_one_decoding_error(
    worlds: Callable[[str], World], kind: str, wrong: Wrong, part: Literal["key", "value"]
) -> None:
    """It says what is wrong, and what to do; a good message is read before and after it."""
    world = worlds(kind)
    codec = world.codec_of(part)
    other = "value" if part == "key" else "key"

    def read(data: bytes, header: bytes | None) -> Any:
        headers: list[Any] = [("other", b"x"), (f"__{other}_schema_id", b"wrong")]
        if header is not None:
            headers.append((f"__{part}_schema_id", header))
        return codec.decode(in_front(headers, codec.id_header, data))

    good = read(world.frame + world.body, None)
    assert read(world.body, world.header) == read(world.body, world.frame) == good
    header = None if wrong.header is None else wrong.header(world)
    text = wrong.why.replace("{part}", part).replace("{length}", str(len(header or b"") or "no"))
    for _ in range(2):
        with pytest.raises(CodecError, match=text) as raised:
            read(wrong.data(world), header)
        assert len(str(raised.value)) < 800
    assert read(world.frame + world.body, None) == good


def test_the_last_header_counts_and_one_without_a_value_does_not(worlds: Callable[[str], World]) -> None:
    """An application that writes a message again adds a header behind the old one."""
    world = worlds("AVRO")
    name = world.codec.id_header
    old = (name, b"\1" + bytes(16))
    cases: list[list[tuple[str, bytes | None]]] = [
        [old, (name, world.header)],
        [old, (name, world.header), (name, None)],
    ]
    for headers in cases:
        assert world.codec.decode(in_front(headers, name, world.body)) == {"id": 1, "note": "abc"}
    assert world.codec.decode(in_front([(name, None)], name, world.frame + world.body)) == {"id": 1, "note": "abc"}


def test_a_place_that_is_negative_or_too_long_is_wrong_where_the_registry_has_source_text() -> None:
    """What else is there, the source text does not tell."""
    with TestRegistry() as registry:
        world_ = world("PROTOBUF", registry)
        registry._by_id[5] = _Stored(5, str(uuid4()), "PROTOBUF", 'syntax = "proto3"; message Order {}', [])
        assert world_.codec.decode(id_prefix(5) + b"\x02\x10" + world_.body) == Order(id=1)
        for places, text in ((b"\x02\x01", r"\[-1\]"), (b"\x90\x4e" + bytes(5_000), "5000 numbers")):
            with pytest.raises(CodecError, match=text):
                world_.codec.decode(id_prefix(5) + places + world_.body)


def test_a_declared_json_schema_decides_without_the_registry() -> None:
    """An unknown id is read: the schema of the writer does not matter. Its frame does."""
    with TestRegistry() as registry:
        memory = Memory(registry=Registry(registry.url))
        codec: Any = codec_for(JsonSchema(JSON, registry=True), MadeFor("in", memory))
        assert codec.decode(id_prefix(ABSENT_ID) + b'{"id":1}') == {"id": 1}
        for header in (b"", b"\0\0\0\0", b"\1" + bytes(17)):
            with pytest.raises(CodecError, match="name no schema"):
                codec.decode(in_front([(codec.id_header, header)], codec.id_header, b'{"id":1}'))
    assert registry.requests == []


# What a flood costs


@pytest.mark.parametrize("kind", KINDS)
def test_a_flood_of_one_unknown_id_asks_once(worlds: Callable[[str], World], kind: str) -> None:
    """Whether it is missing, of another type, not readable, or lacks a reference."""
    world = worlds(kind)
    decode = world.codec.decode
    schemas_of(Registry(world.registry.url))._missing.clear()  # other tests asked
    for prefix in (
        *map(id_prefix, (ABSENT_ID, OTHER_ID, UNREADABLE_ID, LOST_ID)),
        b"\1" + bytes(16),
        b"\0\xff\xff\xff\xff",
    ):
        before, most = len(world.registry.requests), 3 if prefix == id_prefix(LOST_ID) else 2
        for _ in range(1_000):
            if kind == "PROTOBUF" and prefix == id_prefix(UNREADABLE_ID):
                decode(prefix + world.places + world.body)  # for it is taken for source text
                continue
            with pytest.raises(CodecError):
                decode(prefix + world.places + world.body)
        assert len(world.registry.requests) - before <= most


def test_a_flood_of_unknown_ids_asks_once_for_each_and_remembers_a_bounded_number(
    worlds: Callable[[str], World], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any of them may be new, so each is asked for; not again within half a minute. The newest are remembered."""
    monkeypatch.setattr(registry_module, "MOST_MISSING", 600)
    world = worlds("AVRO")
    schemas = RegistrySchemas(Registry(world.registry.url))

    def ask(ids: range) -> int:
        before = len(world.registry.requests)
        for number in ids:
            with pytest.raises(CodecError, match=UNKNOWN):
                schemas.by_id(number)
        return len(world.registry.requests) - before

    assert ask(range(1_000, 1_500)) == 500
    assert ask(range(1_000, 1_500)) == 0
    assert ask(range(1_500, 2_000)) == 500
    assert len(schemas._missing) == 600
    assert ask(range(1_400, 2_000)) == 0
    assert ask(range(1_000, 1_001)) == 1


def test_an_unreadable_schema_is_read_once(worlds: Callable[[str], World], monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading a large one takes long, and each message of a flood may name it."""
    world, read = worlds("AVRO"), []
    codec = world.codec

    def parse(found: Registered) -> Any:
        read.append(found.number)
        return parse_with(found)

    monkeypatch.setattr("cues_kafka.codecs.avro.parse_with", parse)
    for _ in range(10):
        with pytest.raises(CodecError, match="is no Avro schema: "):
            codec.decode(id_prefix(UNREADABLE_ID) + world.body)
    assert read == [UNREADABLE_ID]


# Registries without GUIDs


@pytest.fixture
def without_guids() -> Iterator[list[str]]:
    """The address of a registry that answers to a GUID as to any unknown path, and what it was asked."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        """Answers as Apicurio Registry 2.6 does."""

        def do_GET(self) -> None:
            """Answer."""
            asked.append(self.path)
            code = 40403 if self.path.startswith("/schemas/ids/") else 0
            data = json.dumps({"error_code": code, "message": "RESTEASY003210: Could not find resource"}).encode()
            self.send_response(404)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    asked.append(f"http://127.0.0.1:{server.server_port}")
    yield asked
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_guid_where_the_registry_has_none_is_an_error_and_no_outage(without_guids: list[str]) -> None:
    """One such message stopped its task for good. Asked twice: for the GUID, and whether a registry is there."""
    schemas = RegistrySchemas(Registry(without_guids[0]))
    for _ in range(100):
        with pytest.raises(CodecError, match=r"and the registry .* has no GUIDs\. Have its producer write the id"):
            schemas.by_id(UUID(int=5))
    assert len(without_guids) == 3


# Through a graph


@pytest.mark.parametrize("kind", KINDS)
def test_each_wrong_message_of_a_topic_is_one_error_message_and_nothing_stops(kind: str) -> None:
    """The error message names the topic and the place; those of keys, the topic in its text."""
    with TestRegistry() as registry:
        found = world(kind, registry)
        cluster = Memory(registry=Registry(registry.url))

        def see(value: Any, step: Step) -> Message[str]:
            [received] = step.inputs.values()
            return Message(str(received.key is not None), key="k")

        topics = {
            "in": Topic(value=found.declared, key_codec=found.declared, partitions=1),
            "out": Topic(value=Json(str), partitions=1),
        }
        processor = Processor(see, inputs="in", outputs="out", errors="errors")
        graph = Graph("frames", Source("in"), processor, topics=topics)
        wrong = [one for one in WRONG.values() if kind in one.kinds]
        good = found.frame + found.body
        records: list[Any] = [("in", 0, good, good, None, 0)]
        for part in ("value", "key"):
            for one in wrong:
                headers = [(f"__{part}_schema_id", one.header(found))] if one.header else None
                data = one.data(found)
                records.append(
                    ("in", 0, good, data, headers, 0) if part == "value" else ("in", 0, data, good, headers, 0)
                )
        records.append(("in", 0, found.body, found.body, [(f"__{part}_schema_id", found.header) for part in
                                                          ("key", "value")], 0))  # fmt: skip
        with start(graph, cluster) as running:
            open_broker(cluster).sender("other").send(records)
            running.wait_idle()
            errors = [message.value for message in running.messages("errors", limit=1_000)]
            assert [message.value for message in running.messages("out")] == ["True", "True"]
        assert [error.consumed[0].offset for error in errors] == [*range(1, len(records) - 1)]
        assert {error.topics for error in errors} == {("in",)}
        assert [error.kind for error in errors] == ["decode"] * len(wrong) + ["raised"] * len(wrong)
        assert {error.exception for error in errors} == {"CodecError"}
        for part, of_part in (("value", errors[: len(wrong)]), ("key", errors[len(wrong) :])):
            for error, one in zip(of_part, wrong, strict=True):
                assert re.search(one.why.replace("{part}", part).replace("{length}", r"\w+"), error.text), error.text
        assert all(error.text.startswith("A key on 'in' cannot be read: ") for error in errors[len(wrong) :])


def test_what_a_table_holds_is_refused_with_its_topic_and_waits_for_the_registry() -> None:
    """Keys, when a function goes over them, and values."""
    topic = Topic(value=Avro(AVRO, registry=True), key_codec=Avro("long", registry=True))
    facts = ClusterFacts(1, {"prices": TopicFacts("prices", b"i" * 16, 1)})
    spec = _table("prices", Table("prices"), topic, facts, Memory(registry=Registry("http://127.0.0.1:1")))
    for what, decode in (("key", spec.decode_key), ("value", spec.decode)):
        with pytest.raises(CodecError, match=f"A {what} on 'prices' cannot be read: The message has no bytes"):
            decode(b"")
        with pytest.raises(Outage, match="did not return the schema 1"):
            decode(id_prefix(1) + b"\x02")


def test_a_key_whose_header_names_no_schema_is_not_inherited(worlds: Callable[[str], World]) -> None:
    """Neither as it is, nor as what stands for the header."""
    found = worlds("AVRO")
    memory, topic = Memory(registry=Registry(found.registry.url)), Topic(key_codec=found.declared)
    convert = inherit(topic, MadeFor("in", memory, "key"), topic, MadeFor("out", memory, "key"), lambda _, one: one)
    message = MemoryMessage("in", 0, 0, found.body, b"1", [("__key_schema_id", found.header[:-1])], (1, 0), 0)
    read = key_reader([topic])(message)
    assert read is not None
    assert convert is not None
    with pytest.raises(OutputError, match=r"the key of 'in', .* has 16 bytes that name no schema"):
        convert(read)

"""Protobuf: messages that fit and that do not, other clients' bytes, classes in other processes, hostile bytes."""

from __future__ import annotations

import pickle
import random
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient, header_schema_id_serializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.internal.encoder import _VarintBytes

from cues_kafka import CodecError, ConfigError, GraphError, Limits, Message, Protobuf, Registry, has_type
from cues_kafka.codecs.formats import subject_of
from cues_kafka.codecs.framing import in_front, places, places_of
from cues_kafka.codecs.protobuf import ProtobufCodec, own_schema
from cues_kafka.codecs.registered import Own
from cues_kafka.codecs.registry import RegistrySchemas
from cues_kafka.graph.topic import Topic
from cues_kafka.testing.codecs import check_codec
from cues_kafka.testing.registry import TestRegistry
from tests.unit.codecs.protos import Bill, Line, Order, class_named

ORDER = Order(id=7, total={"cents": 450}, tags=["a", "b"], inside={"id": 8}, at={"seconds": 5})


@pytest.fixture
def registry() -> Iterator[TestRegistry]:
    """A registry without schemas."""
    with TestRegistry() as found:
        yield found


def schemas_in(registry: TestRegistry) -> RegistrySchemas:
    """The registry as codecs ask it."""
    return RegistrySchemas(Registry(registry.url))


def register(registry: TestRegistry, subject: str, cls: Any) -> None:
    """As `cues-kafka schemas register` does it: first what the schema names."""
    schemas = schemas_in(registry)

    def add(name: str, own: Own) -> None:
        for below, one in own.references:
            add(below, one)
        schemas.register(name, own)

    own = own_schema(Protobuf(cls))
    assert own is not None
    add(subject, own)


def context(headers: list[Any] | None = None) -> SerializationContext:
    """What Confluent's serializers are told of a message."""
    return SerializationContext("orders", MessageField.VALUE, headers)


def test_contract_of_codecs_holds() -> None:
    """Without a registry messages are Protobuf, and nothing else."""
    check_codec(Protobuf(Order), [ORDER, Order()], misfits=[Bill(), {}, b""], bad=[b"\x0a\x05ab", b"\x0b"])
    assert ProtobufCodec(Protobuf(Order)).encode(ORDER) == ORDER.SerializeToString(deterministic=True)
    assert ProtobufCodec(Protobuf(Order)).nullable is False


def test_required_fields_are_required() -> None:
    """When they are written, and when they are read."""
    file = descriptor_pb2.FileDescriptorProto(name="cues/old.proto", package="cues.test", syntax="proto2")
    file.message_type.add(name="Old").field.add(name="name", number=1, type=9, label=2)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    codec = ProtobufCodec(Protobuf(message_factory.GetMessageClass(pool.FindMessageTypeByName("cues.test.Old"))))

    with pytest.raises(CodecError, match=r"not a complete cues\.test\.Old: .*name"):
        codec.encode(message_factory.GetMessageClass(pool.FindMessageTypeByName("cues.test.Old"))())
    with pytest.raises(CodecError, match=r"not a cues\.test\.Old: it lacks name"):
        codec.decode(b"")


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Protobuf(None), "takes a class of messages"),
        (lambda: Protobuf(dict), "takes a class of messages"),
        (lambda: Protobuf(Order, strategy="record"), "need a registry"),
        (lambda: Topic(value=Protobuf(Order), key="nothing"), "Order does not have this field"),
    ],
)
def test_a_declaration_that_means_nothing_is_refused(make: Any, text: str) -> None:
    """With the remedy."""
    with pytest.raises(GraphError, match=text):
        make()


def test_a_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """As pip takes it."""
    from cues_kafka.codecs.lookup import MadeFor, codec_for

    monkeypatch.setitem(sys.modules, "cues_kafka.codecs.protobuf", None)
    with pytest.raises(ConfigError, match=r"pip install 'cues-kafka\[protobuf\]'"):
        codec_for(Protobuf(Order, limits=Limits(bytes=99)), MadeFor("t"))


def test_has_type_takes_the_full_name_the_short_one_and_the_class() -> None:
    """As with records of Avro."""
    message: Any = Message(ORDER)
    for one in ("cues.test.Order", "Order", Order):
        assert has_type(one)(message)
    assert not has_type("cues.test.Bill")(message)


# Confluent's own


@pytest.mark.parametrize("in_header", [False, True])
def test_confluents_bytes_are_read_and_ours_by_confluent(registry: TestRegistry, in_header: bool) -> None:
    """The first message of a file, another one, and one inside of it; with the files that they need."""
    client, schemas = SchemaRegistryClient({"url": registry.url}), schemas_in(registry)
    conf: dict[str, Any] = {"schema.id.serializer": header_schema_id_serializer} if in_header else {}
    for cls, value in ((Order, ORDER), (Bill, Bill(order=7)), (Line, Line(sku="x"))):
        codec = ProtobufCodec(Protobuf(cls, registry=True), "orders-value", schemas)

        headers: list[Any] = []
        data = ProtobufSerializer(cls, client, conf=conf)(value, context(headers))
        assert data is not None

        assert codec.decode(in_front(headers, "__value_schema_id", data)) == value
        ours = codec.encode(value)
        assert ProtobufDeserializer(cls, schema_registry_client=client)(ours, context()) == value
        assert in_header or ours == data
    assert registry.subjects() == {"cues/money.proto": [1], "orders-value": [2]}


def test_what_we_register_confluent_finds(registry: TestRegistry) -> None:
    """The same text, with the same references: theirs needs no registration of its own."""
    register(registry, "orders-value", Bill)
    client = SchemaRegistryClient({"url": registry.url})
    codec = ProtobufCodec(Protobuf(Bill, registry=True), "orders-value", schemas_in(registry))

    data = ProtobufSerializer(Bill, client, conf={"auto.register.schemas": False})(Bill(order=3), context())

    assert codec.encode(Bill(order=3)) == data == b"\0\0\0\0\x02" + b"\x02\x02" + b"\x08\x03"
    assert subject_of(Protobuf(Line, registry=True, strategy="record"), "t", "value") == "cues.test.Bill.Line"


BAD = (
    (b"\x08\x01", "has 2 bytes, expected 0x00 and the id of a schema"),
    (b"\0\0\0\x27\x0f\0", "which the registry .* does not have"),
    (b"\0\0\0\0\x01\0", "is no Protobuf schema: it is of the type AVRO"),
    (b"\0\0\0\0\x03\x02\x02\x08\x01", r"is a cues\.test\.Bill, and the topic is declared as cues\.test\.Order"),
    (b"\0\0\0\0\x03\x02\x10", r"has no message at the place \[8\]"),
    (b"\0\0\0\0\x03\x02\x01", r"has no message at the place \[-1\]"),
    (b"\0\0\0\0\x03", "is not readable"),
    (b"\0\0\0\0\x03\xff\xff\xff\xff\xff\x01", "is not readable"),
    (b"\0\0\0\0\x03\xfe\xff\x03", "has 32767 numbers"),
    (b"\0\0\0\0\x03\x01", "has -1 numbers"),
    (b"\0\0\0\0\x03\0\x0b", r"is not a cues\.test\.Order"),
    (b"", "no bytes"),
)


def test_bytes_of_other_formats_are_errors(registry: TestRegistry) -> None:
    """One error each."""
    registry.register("other", '"long"')
    register(registry, "orders-value", Order)
    codec = ProtobufCodec(Protobuf(Order, registry=True), "orders-value", schemas_in(registry))
    for data, text in BAD:
        with pytest.raises(CodecError, match=text):
            codec.decode(data)


def test_places_are_written_as_confluent_writes_them() -> None:
    """Zigzag varints behind their count; a single 0 for the first message, which may also be spelt out."""
    assert [places(one) for one in ([0], [1], [1, 0], [100])] == [b"\0", b"\x02\x02", b"\x04\x02\x00", b"\x02\xc8\x01"]
    for one in ([1], [1, 0], [100], [70_000]):
        assert places_of(b"x" + places(one), 1, 9) == (tuple(one), 1 + len(places(one)))
    assert places_of(b"\x02\x00", 0, 9) == ((0,), 2)


# Other processes


def test_a_class_without_a_module_arrives_in_another_process_by_its_description() -> None:
    """As on Spark's executors, which have no generated module."""
    declared = Protobuf(class_named("Bill.Line", descriptor_pool.DescriptorPool()), limits=Limits(bytes=50))
    text = (
        "import pickle, sys; from cues_kafka.codecs.protobuf import ProtobufCodec;"
        "declared = pickle.loads(sys.stdin.buffer.read()); codec = ProtobufCodec(declared);"
        "value = codec.decode(bytes([10, 1, 120])); print(value.DESCRIPTOR.full_name, value.sku, declared.limits.bytes,"
        "codec.encode(value))"
    )
    done = subprocess.run([sys.executable, "-c", text], input=pickle.dumps(declared), capture_output=True, check=True)

    assert done.stdout.decode().strip() == r"cues.test.Bill.Line x 50 b'\n\x01x'"


def test_a_generated_class_arrives_as_itself() -> None:
    """By its module, where that can be imported."""
    from google.protobuf import timestamp_pb2

    declared = Protobuf(timestamp_pb2.Timestamp)
    copy = pickle.loads(pickle.dumps(declared))

    assert copy.cls is timestamp_pb2.Timestamp
    assert copy == declared
    assert hash(copy) == hash(declared)
    assert copy != Protobuf(Order)


# Hostile bytes


def test_size_and_depth_are_bounded() -> None:
    """The library itself counts messages inside each other."""
    with pytest.raises(CodecError, match="has 7 bytes, and the declared limit is 6"):
        ProtobufCodec(Protobuf(Order, limits=Limits(bytes=6))).decode(b"1234567")
    codec, deep = ProtobufCodec(Protobuf(Order)), b""
    for _ in range(99):
        deep = b"\x22" + _VarintBytes(len(deep)) + deep
    inner, depth = codec.decode(deep), 0
    while inner.HasField("inside"):
        inner, depth = inner.inside, depth + 1
    assert depth == 99
    for _ in range(10_000):
        deep = b"\x22" + _VarintBytes(len(deep)) + deep
    with pytest.raises(CodecError, match=r"is not a cues\.test\.Order"):
        codec.decode(deep)
    with pytest.raises(CodecError, match=r"is not a cues\.test\.Order"):
        codec.decode(b"\x22\xff\xff\xff\xff\x0f")


@pytest.mark.parametrize("count", [5_000, pytest.param(20_000, marks=pytest.mark.full)])
def test_mutated_messages_are_values_or_errors(registry: TestRegistry, count: int) -> None:
    """None hangs, and none raises anything but a decoding error."""
    rng, errors = random.Random(20261123), 0
    register(registry, "orders-value", Order)
    codec = ProtobufCodec(Protobuf(Order, registry=True), "orders-value", schemas_in(registry))
    good = codec.encode(ORDER)
    assert codec.decode(good) == ORDER
    for _ in range(count):
        body = bytearray(good)
        for _ in range(rng.choice((1, 1, 2, 5))):
            at = rng.randrange(5 if rng.random() < 0.9 else 0, len(body) + 1)
            body[at : at + rng.choice((0, 1, 1, 9))] = rng.choice((b"", rng.randbytes(1), b"\xff" * 9, b"\x22" * 200))
        try:
            codec.decode(bytes(body))
        except CodecError:
            errors += 1
    assert errors > count * 0.4

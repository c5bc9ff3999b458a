"""`tail --format json --graph` piped into `send --graph`: values and keys of any codec come out as they went in."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any
from uuid import UUID

import pytest
from google.protobuf import struct_pb2

from cues_kafka import (
    Alias,
    Avro,
    Codec,
    ConfigError,
    Digits,
    Graph,
    Json,
    JsonSchema,
    Memory,
    Message,
    OutputError,
    Protobuf,
    Raw,
    Source,
    Topic,
    connect,
)
from cues_kafka.cli.send import _headers, _Sending
from cues_kafka.cli.tail import printer
from cues_kafka.client.connect import Connection
from cues_kafka.graph.message import header_list, key_bytes


class Colour(Enum):
    RED = "R"


@dataclass
class Order:
    """What plain JSON has no form for."""

    id: Annotated[int, Alias("orderId")] = 0
    seal: bytes = b"abcd"  # also Base64
    colour: Colour = Colour.RED
    total: Annotated[Decimal, Digits(10, 2)] = Decimal("1.10")
    placed: datetime = datetime(2026, 1, 1, tzinfo=UTC)
    ref: UUID = UUID(int=1)  # noqa: RUF009  it is immutable
    weight: float = 1.5
    tags: list[str] = field(default_factory=list)


@dataclass
class Lines(Codec):
    """A codec of a user, without a schema."""

    def encode(self, value: Any) -> bytes:
        return repr(value).encode()

    def decode(self, data: bytes) -> Any:
        return complex(data.decode()) if b"j" in data else data.decode().strip("'")


STAMPED = {"type": "record", "name": "R", "fields": [
    {"name": "total", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
    {"name": "seal", "type": "bytes"},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
]}  # fmt: skip
EVENTS = [{"type": "record", "name": name, "fields": [{"name": "n", "type": "int"}]} for name in ("Paid", "Owed")]

VALUES: list[tuple[Any, Any]] = [
    (Avro(Order), Order(5)),
    (Avro(Order), Order(5, b"\xff\0", weight=float("nan"), tags=["\u2028", "é"])),
    (Avro(STAMPED), {"total": Decimal("1.10"), "seal": b"abcd", "at": datetime(2026, 1, 1, tzinfo=UTC)}),
    (Avro(EVENTS), ("Owed", {"n": 1})),
    (Avro(["string", "bytes"]), b"abcd"),
    (JsonSchema(Order), Order(5)),
    (JsonSchema({}), {"a": [1.5, None]}),
    (Protobuf(struct_pb2.Struct), struct_pb2.Struct(fields={"a": struct_pb2.Value(number_value=1.5)})),
    (Protobuf(struct_pb2.Value), struct_pb2.Value(number_value=float("nan"))),
    (Lines(), 1 + 2j),
    (Lines(), "text"),
    (Raw(), b"null"),
    (Raw(), b'{"a": 1.10}'),
    (Raw(), b"\xff"),
    (Json(Order), Order(5)),
]
KEYS: list[tuple[Any, Any]] = [
    (None, "k"),
    (None, b"\xff"),
    (Avro("long"), 5),
    (Avro("bytes"), b"abcd"),
    (Avro({"type": "string", "logicalType": "uuid"}), UUID(int=1)),
    (Json(Decimal), Decimal("1.10")),
    (Json(bytes), b"abcd"),
    (Json(), {"a": [1]}),
    (Raw(), b"\0"),
    (Protobuf(struct_pb2.Value), struct_pb2.Value(string_value="k")),
]


def graph_of(topic: Topic) -> Graph:
    """With codecs for two topics."""
    return Graph("g", Source("from"), Source("to"), defaults=topic)


def copied(client: Connection, *messages: Message[Any], change: Any = lambda line: line) -> list[str]:
    """Send messages to one topic, and the lines that show them to another."""
    for name in ("from", "to"):
        client.topic(name, create=True)
    client.topic("from").append_many(messages)
    source = client.topic("from")
    lines = [printer("json", source.access.settings)(message) for message in source.messages()]
    to = _Sending(client, "to", "message", key=None, headers=None, named=False)
    to.chunk([change(line) for line in lines])
    return lines


def same(client: Connection) -> bool:
    """Whether both topics have the same messages."""
    first, second = (
        [(one.key(), one.value(), one.headers(), one.timestamp()) for one in client.committed(name)]
        for name in ("from", "to")
    )
    return bool(first) and first == second


@pytest.mark.parametrize(("codec", "value"), VALUES, ids=lambda one: repr(one)[:40])
def test_value_of_a_codec_is_copied_with_its_graph(codec: Any, value: Any) -> None:
    """Also one that JSON has no form for, or several: Base64 that is text, an alias, two records with one form."""
    with connect(Memory(), graph_of(Topic(value=codec, partitions=1))) as client:
        [line] = copied(client, Message(value, key="k"))
        assert same(client), line
        json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))


@pytest.mark.parametrize(("codec", "key"), KEYS, ids=lambda one: repr(one)[:40])
def test_key_of_a_codec_is_copied_with_its_graph(codec: Any, key: Any) -> None:
    """As values are."""
    with connect(Memory(), graph_of(Topic(value=Json(), key_codec=codec, partitions=1))) as client:
        [line] = copied(client, Message(1, key=key))
        assert same(client), line


def test_value_that_was_changed_beside_its_bytes_is_refused() -> None:
    """Its JSON only shows what the bytes have, and a change of it would be lost."""
    with (
        connect(Memory(), graph_of(Topic(value=Avro(EVENTS), partitions=1))) as client,
        pytest.raises(ConfigError, match=r"value is not what value_bytes has\. If you changed it, drop value_bytes"),
    ):
        copied(client, Message(("Owed", {"n": 1})), change=lambda line: line.replace('{"n": 1}', '{"n": 2}'))


@pytest.mark.parametrize(("written", "sent"), [(-1, 1), (-(2**40), 1), (0, 1), (1, 1)])
def test_time_that_others_wrote_is_copied_as_far_as_kafka_takes_it(written: int, sent: int) -> None:
    """A line of `tail` with -1, which stands for no time, or with one before 1970 was refused, and stopped the copy."""
    line = f'{{"value": 1, "key": "k", "timestamp_ms": {written}}}'
    with connect(Memory()) as client:
        client.topic("t", Topic(partitions=1), create=True)
        _Sending(client, "t", "message", key=None, headers=None, named=False).chunk([line])
        assert [one.timestamp()[1] for one in client.committed("t")] == [sent]


def test_json_of_the_command_line_is_written_as_it_came() -> None:
    """A parser would make 1.1 of 1.10, and another number of one with many digits."""
    texts = ["1.10", "12345678901234567.89", '{"a": 1.10, "b": [ ]}', '"\\u00e9"']
    with connect(Memory()) as client:
        client.topic("t", Topic(partitions=1), create=True)
        to = _Sending(client, "t", "json", key="k", headers=_headers(["a=1", "a=2"]), named=False)
        to.chunk(texts)
        assert [one.value() for one in client.committed("t")] == [one.encode() for one in texts]
        assert all(one.headers() == [("a", b"1"), ("a", b"2")] for one in client.committed("t"))
        for wrong in ("NaN", '"\\ud800"', "1e400", "[1,]"):
            with pytest.raises(ConfigError, match=r"message .*(JSON|out of range)"):
                to.chunk([wrong])


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda: key_bytes("\ud800"), "A key"),
        (lambda: header_list({"a": "\ud800"}), "Header 'a'"),
    ],
)
def test_text_that_utf8_cannot_carry_is_named(make: Any, what: str) -> None:
    """A key or a header with half of a surrogate pair."""
    with pytest.raises(OutputError, match=f"^{what} holds half of a surrogate pair, which UTF-8 cannot carry"):
        make()

"""Messages of AMQP 1.0 as others may have encoded them, and what they are in Kafka."""

from __future__ import annotations

import json
import random
import struct
from typing import Any
from uuid import UUID

import pytest

from cues_kafka.bridges.amqp.arrivals import UNREADABLE, incoming
from cues_kafka.bridges.amqp.encoding import (
    DEEPEST,
    DescribedValue,
    EncodingError,
    Pairs,
    Symbol,
    ValueReader,
    contents,
)

BODY = b"\x00\x53\x75\xa0\x05hello"


def text(given: str | bytes, code: int = 0xB1) -> bytes:
    """A text, or a symbol with another code."""
    data = given.encode() if isinstance(given, str) else given
    return bytes([code]) + struct.pack(">I", len(data)) + data


def several(code: int, *values: bytes) -> bytes:
    """A list (0xD0) or a map (0xD1)."""
    joined = b"".join(values)
    return bytes([code]) + struct.pack(">II", len(joined) + 4, len(values)) + joined


def section(code: int, value: bytes) -> bytes:
    """A section of a message."""
    return b"\x00\x53" + bytes([code]) + value


def message(*, properties: tuple[bytes, ...] = (), application: tuple[bytes, ...] = (), body: bytes = BODY) -> bytes:
    """A message as a stranger may send it."""
    return section(0x73, several(0xD0, *properties)) + section(0x74, several(0xD1, *application)) + body


VALUES = [
    (b"\x40", None),
    (b"\x41\x00"[:1], True),
    (b"\x56\x00", False),
    (b"\x50\xff", 255),
    (b"\x60\xff\xff", 65_535),
    (b"\x43", 0),
    (b"\x80" + b"\xff" * 8, 2**64 - 1),
    (b"\x51\x80", -128),
    (b"\x81" + b"\x80" + b"\0" * 7, -(2**63)),
    (b"\x82" + struct.pack(">d", 0.5), 0.5),
    (b"\x73\x00\x01\xf6\x00", "\U0001f600"),
    (b"\x83" + struct.pack(">q", -5), -5),
    (b"\x98" + bytes(range(16)), UUID(bytes=bytes(range(16)))),
    (b"\x74\x22\x50\x00\x01", "decimal32:22500001"),
    (b"\xa0\x02\x00\xff", b"\0\xff"),
    (text("é"), "é"),
    (text(b"\xff\xfe"), "\\xff\\xfe"),
    (text("name", 0xB3), Symbol("name")),
    (b"\x45", []),
    (several(0xD0, b"\x43", b"\x40"), [0, None]),
    (several(0xD1, several(0xD0, b"\x43"), b"\x41"), Pairs([([0], True)])),
    (b"\x00\x43" + b"\x00\x44" + b"\x41", DescribedValue(0, DescribedValue(0, True))),
    (b"\xf0" + struct.pack(">II", 7, 2) + b"\x50\x01\x02", [1, 2]),
    (
        b"\xe0\x05\x02\x00\x43\x50\x07\x08"[:1] + b"\x06\x02\x00\x43\x50\x07\x08",
        [DescribedValue(0, 7), DescribedValue(0, 8)],
    ),
    (b"\xf0" + struct.pack(">II", 5, 3) + b"\x41", [True] * 3),
]


@pytest.mark.parametrize(("encoded", "expected"), VALUES, ids=lambda one: repr(one)[:40])
def test_each_type_of_the_standard_is_read(encoded: bytes, expected: Any) -> None:
    """And nothing is left behind it."""
    reader = ValueReader(encoded)
    found = reader.value()
    assert (found, type(found), reader.more) == (expected, type(expected), False) or (
        found == expected and isinstance(found, int | str)
    )


BROKEN = {
    "ends in a text": text("abc")[:-1],
    "ends in a list": several(0xD0, b"\x43")[:-1],
    "no such type": b"\xff",
    "too many values": b"\xd0" + struct.pack(">II", 5, 2**32 - 1) + b"\x43",
    "an array of nothing without an end": b"\xf0" + struct.pack(">II", 5, 2**32 - 1) + b"\x40",
    "a key alone": several(0xD1, b"\x43"),
    "a list of another size": b"\xd0" + struct.pack(">II", 6, 1) + b"\x43\x43",
    "deep lists": b"\xc0\xff\x01" * 1_000,
    "deep descriptors": b"\x00" * 100_000,
    "half a pair": b"\x73\x00\x00\xd8\x00",
}


@pytest.mark.parametrize("encoded", BROKEN.values(), ids=BROKEN)
def test_bytes_that_are_no_value_are_refused(encoded: bytes) -> None:
    """At once, whatever they promise."""
    with pytest.raises(EncodingError):
        ValueReader(encoded).value()


@pytest.mark.parametrize("encoded", [*BROKEN.values(), b"\x43", section(0x99, b"\x43"), BODY + section(0x77, b"\x43")])
def test_a_message_that_cannot_be_read_comes_in_its_bytes(encoded: bytes) -> None:
    """With the reason, and without an id; so nothing is lost, and no feed stops."""
    found = incoming(encoded, "message_id", timestamps=True)
    assert found.id == ""
    assert found.message.value == encoded
    assert [str(one[0]) for one in found.message.headers] == [UNREADABLE]


def test_random_bytes_end_no_feed() -> None:
    """Each of them is a message, or is refused."""
    source = random.Random(1)
    whole = message(properties=(text("id"),), application=(text("a"), several(0xD1, text("b"), b"\x43")))
    for _ in range(3_000):
        data = bytearray(whole)
        for _ in range(source.randint(1, 4)):
            data[source.randrange(len(data))] = source.randrange(256)
        assert incoming(bytes(data[: source.randint(1, len(data))]), "properties.a", timestamps=True).message


def test_ids_of_all_types_differ() -> None:
    """Numbers, texts, bytes and UUIDs; and the body counts, too."""
    given = [
        text("1"),
        b"\x53\x01",
        b"\xa0\x011",
        b"\x98" + b"\0" * 15 + b"\x01",
        text("00000000-0000-0000-0000-000000000001"),
    ]
    found = [incoming(message(properties=(one,)), None, timestamps=False).id for one in given]
    found.append(incoming(message(properties=(given[0],), body=section(0x75, b"\xa0\x01x")), None, timestamps=False).id)
    assert len({*found}) == 6
    assert "" not in found
    again = incoming(message(properties=(given[0],), application=(text("n"), b"\x43")), None, timestamps=False).id
    assert again == found[0]
    for none in ((), (b"\x40",), (text(""),)):
        assert incoming(message(properties=none), None, timestamps=False).id == ""


BODIES = [
    (section(0x75, b"\xa0\x01a") + section(0x75, b"\xa0\x01b"), b"ab"),
    (section(0x77, text("é\0")), "é\0".encode()),
    (section(0x77, b"\xa0\x01\xff"), b"\xff"),
    (section(0x77, b"\x40"), b""),
    (b"", b""),
    (section(0x77, several(0xD1, text("a"), b"\x82" + struct.pack(">d", float("nan")))), b'{"a": "nan"}'),
    (section(0x77, several(0xD1, b"\x43", b"\xa0\x02\xff1")), b'{"0": "\\\\xff1"}'),
    (section(0x76, several(0xD0, b"\x43")) + section(0x76, several(0xD0, text("s", 0xB3))), b'[0, "s"]'),
    (section(0x77, b"\x00" + text("my:type", 0xB3) + b"\x43"), b'{"descriptor": "my:type", "value": 0}'),
    (section(0x77, b"\x83" + struct.pack(">q", 2**62)), b"4611686018427387904"),
    (section(0x77, b"\x80" + b"\xff" * 8), b"18446744073709551615"),
]


@pytest.mark.parametrize(("body", "value"), BODIES)
def test_bodies_become_bytes(body: bytes, value: bytes) -> None:
    """Data and text as they are, other values as JSON."""
    assert incoming(message(body=body), None, timestamps=False).message.value == value


def test_nested_values_are_read_as_deep_as_the_limit() -> None:
    """One more is refused."""
    deep = b"\x43"
    for _ in range(DEEPEST - 2):
        deep = several(0xD0, deep)
    assert json.loads(incoming(message(body=section(0x77, deep)), None, timestamps=False).message.value)
    assert incoming(message(body=section(0x77, several(0xD0, several(0xD0, deep)))), None, timestamps=False).id == ""


def test_headers_and_key_are_what_the_publisher_gave() -> None:
    """Names of ours are left out, and so is what has no name."""
    names = ("text", "amqp.forged", "", "n", "map", "raw", "none", "when")
    values = (
        text("x"), text("y"), text("z"), b"\x71\xff\xff\xff\xff", several(0xD1, text("k"), several(0xD0, b"\x43")),
        b"\xa0\x01\xff", b"\x40", b"\x83" + struct.pack(">q", 0),
    )  # fmt: skip
    pairs = tuple(one for pair in zip(map(text, names), values, strict=True) for one in pair)
    at = b"\x83" + struct.pack(">q", 1_700_000_000_000)
    properties = (b"\x80" + b"\0" * 7 + b"\x07", b"\xa0\x02me", text("q"), *[b"\x40"] * 6, at)
    found = incoming(message(properties=properties, application=pairs), "properties.n", timestamps=True).message
    assert (found.key, found.timestamp_ms) == ("-1", 1_700_000_000_000)
    assert list(found.headers) == [
        ("text", "x"), ("n", "-1"), ("map", '{"k": [0]}'), ("raw", b"\xff"), ("when", "1970-01-01T00:00:00.000+00:00"),
        ("amqp.message-id", "7"), ("amqp.user-id", b"me"), ("amqp.to", "q"),
        ("amqp.creation-time", "2023-11-14T22:13:20.000+00:00"),
    ]  # fmt: skip


def test_a_map_may_have_more_values_than_proton_counts() -> None:
    """It stops at 65,535."""
    values = several(0xD0, *[b"\x43"] * 100_000)
    assert len(contents(message(body=section(0x77, values))).body) == 100_000

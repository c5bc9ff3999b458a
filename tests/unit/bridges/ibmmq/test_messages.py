"""What a message of IBM MQ is in Kafka, and what names it."""

from __future__ import annotations

from typing import Any

import pytest

from cues_kafka import OutputError
from cues_kafka.bridges.ibmmq.messages import (
    Descriptor,
    content_or_whole,
    correlation_of,
    message_of,
    name_of,
    written,
)
from cues_kafka.bridges.ibmmq.rfh2 import UTF_8, Content, with_properties
from cues_kafka.graph.feed import Encoded

ID = bytes(range(24))
FULL = Descriptor(
    ID,
    format="MQHRF2",
    correl_id=b"c" * 24,
    group_id=b"g" * 24,
    put_date="20261129",
    put_time="02485512",
    priority=4,
    persistence=0,
    msg_type=1,
    seq=3,
    reply_to_q="ANSWERS",
    reply_to_q_mgr="QM1",
    user="app",
    application="orders",
)


def brought(descriptor: Descriptor, data: bytes, key: str | None = None, *, timestamps: bool = True) -> Any:
    """The message in Kafka."""
    return message_of(descriptor, content_or_whole(descriptor, data), key=key, timestamps=timestamps)


def test_properties_and_fields_become_headers() -> None:
    """Properties come first. One that has the name of ours is left out."""
    data = with_properties({"country": "é"}, b"{}", "MQSTR")
    message = brought(FULL, data, "properties.country")
    assert (message.value, message.key, type(message.value)) == (b"{}", "é", Encoded)
    assert message.timestamp_ms == 1_795_920_535_120
    assert list(message.headers) == [
        ("country", "é"),
        ("mq.message-id", ID.hex()),
        ("mq.correlation-id", "63" * 24),
        ("mq.group-id", "67" * 24),
        ("mq.sequence", "3"),
        ("mq.format", "MQSTR"),
        ("mq.ccsid", "1208"),
        ("mq.type", "request"),
        ("mq.priority", "4"),
        ("mq.persistent", "false"),
        ("mq.reply-to-queue", "ANSWERS"),
        ("mq.reply-to-queue-manager", "QM1"),
        ("mq.user", "app"),
        ("mq.application", "orders"),
    ]


def test_no_sender_writes_a_header_of_ours() -> None:
    """A property `mq.user` would say who has put the message."""
    content = Content(b"", "MQSTR", UTF_8, [("mq.user", "forged"), ("mq", "kept"), ("a", "1"), ("a", "2")])
    message = message_of(Descriptor(ID), content, key="properties.a", timestamps=True)
    assert [one[0] for one in message.headers if one[0] in ("mq.user", "mq", "a")] == ["mq", "a", "a"]
    assert (message.key, message.timestamp_ms) == ("1", None)


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (None, None),
        ("message_id", ID.hex()),
        ("correlation_id", "63" * 24),
        ("group_id", "67" * 24),
        ("properties.gone", None),
    ],
)
def test_key_is_an_id_or_a_property(key: str | None, expected: str | None) -> None:
    """What is missing leaves the key to the topic."""
    assert brought(FULL._replace(format="MQSTR"), b"x", key).key == expected
    if key in ("correlation_id", "group_id"):
        assert brought(Descriptor(ID, format="MQSTR"), b"x", key).key is None


@pytest.mark.parametrize(
    ("date", "clock", "expected"),
    [
        ("19700101", "00000000", 0),
        ("20261129", "02485512", 1_795_920_535_120),
        ("", "", None),
        ("20261341", "02485512", None),
        ("19691231", "23595999", None),
        ("2026112x", "02485512", None),
    ],
)
def test_time_is_that_of_the_put(date: str, clock: str, expected: int | None) -> None:
    """In UTC, with hundredths of a second; what is no time is left out."""
    own = Descriptor(ID, format="MQSTR", put_date=date, put_time=clock)
    assert brought(own, b"").timestamp_ms == expected
    assert brought(own, b"", timestamps=False).timestamp_ms is None


def test_message_with_a_broken_header_is_taken_as_a_whole() -> None:
    """Its codec says then that it does not fit; no message of a stranger holds the queue up."""
    data = b"RFH \x02\x00\x00\x00\xff\xff\xff\x7f" + bytes(40)
    message = brought(FULL, data)
    assert message.value == data
    assert ("mq.format", "MQHRF2") in message.headers


def test_name_is_the_msgid_and_tells_messages_apart_that_share_it() -> None:
    """The count of backouts and the conversion of properties are no part of it."""
    plain = Content(b"x", "MQSTR", UTF_8, [])
    own = Descriptor(ID, put_date="20261129", put_time="02485512")
    first = name_of(own, plain)
    assert first.startswith(ID.hex())
    assert first == name_of(own._replace(priority=9), plain._replace(properties=[("a", "1")], ccsid=819))
    others = [
        name_of(own._replace(msg_id=ID[::-1]), plain),
        name_of(own._replace(put_time="02485513"), plain),
        name_of(own._replace(correl_id=b"c" * 24), plain),
        name_of(own, plain._replace(body=b"y")),
    ]
    assert len({first, *others}) == 5


@pytest.mark.parametrize("flags", [2, 4, 6])
def test_segment_is_known_by_its_flags(flags: int) -> None:
    """MQMF_SEGMENT and MQMF_LAST_SEGMENT."""
    assert Descriptor(ID, msg_flags=flags).is_segment
    assert not Descriptor(ID, msg_flags=8).is_segment


@pytest.mark.parametrize(
    ("given", "expected"),
    [(b"", bytes(24)), ("é", "é".encode().ljust(24, b"\0")), ("0A" * 24, b"\n" * 24), (b"x" * 24, b"x" * 24)],
)
def test_correlation_id_has_24_bytes(given: str | bytes, expected: bytes) -> None:
    """As text, as hexadecimal digits or as bytes."""
    assert correlation_of(given) == expected


def test_what_is_no_message_is_refused() -> None:
    """With the reason."""
    for wrong in (
        lambda: written("A", {1, 2}, {}),
        lambda: correlation_of("x" * 25),
        lambda: written("A", "", {"": 1}),
    ):
        with pytest.raises(OutputError):
            wrong()

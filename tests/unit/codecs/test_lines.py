"""A message comes out of a line of JSON as it went in."""

from __future__ import annotations

import json
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cues_kafka import (
    Avro,
    CodecError,
    ConfigError,
    Digits,
    Graph,
    Json,
    Memory,
    Message,
    Processor,
    Raw,
    Source,
    Topic,
    connect,
)
from cues_kafka.cli.send import _Sending
from cues_kafka.cli.tail import printer
from cues_kafka.client.connect import Connection
from cues_kafka.codecs.lines import headers_json, is_exact_json, key_fields, line_of, read_line, value_fields
from cues_kafka.operate.shown import TOMBSTONE
from cues_kafka.ports.log import Headers, WireMessage

RAW = Topic(value=Raw())

VALUES: list[bytes | None] = [
    None,
    b"",
    b"null",
    b"true",
    b"1.10",
    b"1e400",
    b"12345678901234567.89",
    b"123456789012345678901234567890",
    b"-0",
    b"NaN",
    b"Infinity",
    b'{"a": 1.10, "a": 2}',
    b'{\n  "a": 1\n}',
    b" 1",
    b'"\\ud800"',
    b'"\xc3\xa9 \xe2\x80\xae"',
    b"plain text",
    b"\xef\xbb\xbf1",
    b"\x1b[31mred\x1b[0m\x07",
    b"\x00\x00\x00\x00\x07bin\xff\xfe",
    b"[" * 100_000 + b"]" * 100_000,
]
KEYS: list[bytes | None] = [None, b"", b"k", "é\u202e".encode(), b"\xff\x00", b"7"]
HEADERS: Headers = [
    ("twice", b"1"),
    ("twice", b"2"),
    ("null", None),
    ("empty", b""),
    ("binary", b"\xff\x00"),
    ("é", b"\x1b"),
    ("", b"no name"),
]


def written(key: bytes | None, value: bytes | None, headers: Headers) -> str:
    """The line of a message."""
    return line_of([*key_fields(key), ("headers", headers_json(headers)), *value_fields(value)])


def read(line: str) -> tuple[Any, bytes | None, Headers]:
    """What a line says, as bytes."""
    found = read_line(line)
    key = found.key.encode() if isinstance(found.key, str) else found.key
    return key, found.data if found.json is None else found.json.encode(), found.headers


@pytest.mark.parametrize("value", VALUES, ids=lambda one: repr(one)[:30])
@pytest.mark.parametrize("key", KEYS)
def test_line_keeps_each_byte(key: bytes | None, value: bytes | None) -> None:
    """It is one line of strict JSON, with nothing that a terminal obeys."""
    line = written(key, value, HEADERS)
    assert read(line) == (key, value, HEADERS)
    assert line.isprintable()
    if value is None or len(value) < 100_000:
        json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))


@given(
    key=st.none() | st.binary(max_size=20) | st.text(max_size=20).map(str.encode),
    value=st.none()
    | st.binary()
    | st.text().map(str.encode)
    | st.from_regex(r"-?[0-9]{1,30}\.[0-9]{1,30}").map(str.encode),
    headers=st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=10))),
)
def test_any_message_comes_back(key: bytes | None, value: bytes | None, headers: Headers) -> None:
    """Drawn ones, too."""
    line = written(key, value, headers)
    assert read(line) == (key, value, headers)
    assert "\n" not in line


def test_json_is_shown_as_json() -> None:
    """So that other tools read the fields; null is another value than a tombstone."""
    assert is_exact_json(b'{"a": 1.10}')
    assert written(b"k", b'{"a": 1.10}', []) == '{"key": "k", "headers": [], "value": {"a": 1.10}}'
    assert value_fields(None) == [("value", "null")]
    assert value_fields(b"null") == [("value", "null"), ("value_encoding", '"json"')]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("[1]", "a JSON object with the field value"),
        ('{"key": "k"}', "it has no value"),
        ('{"value": 1, "valeu": 2}', "field 'valeu' is unknown"),
        ('{"value": NaN}', "a JSON object with the field value"),
        ('{"value": 1, "value_encoding": "text"}', "value is not text"),
        ('{"value": "", "value_encoding": "utf-16"}', "value_encoding is 'utf-16'. Write one of json, text, base64"),
        ('{"value": "!", "value_encoding": "base64"}', "value is not base64"),
        ('{"value": 1, "key": "!", "key_encoding": "base64"}', "key is not base64"),
        ('{"value": 1, "key": "1", "key_encoding": "json"}', "key_encoding is 'json'"),
        ('{"value": 1, "headers": [1]}', "its headers are no pairs"),
        ('{"value": 1, "headers": [["a", 1]]}', "header 'a' is 1"),
        ('{"value": 1, "headers": {"a": {"base64": "!"}}}', "header 'a' is not base64"),
    ],
)
def test_wrong_line_is_refused_by_the_name_of_its_field(line: str, why: str) -> None:
    """With what to write."""
    with pytest.raises(CodecError) as refused:
        read_line(line)
    assert why in str(refused.value)


# ------------------------------------------------------------------------------------------------- the commands


def sending(client: Connection, topic: str) -> _Sending:
    """`send --format message`."""
    return _Sending(client, topic, "message", key=None, headers=None, named=False)


def stored(message: WireMessage) -> tuple[Any, ...]:
    """All that a message is, but its place."""
    return message.key(), message.value(), message.headers(), message.timestamp()[1]


def test_tail_piped_into_send_copies_messages() -> None:
    """Headers twice and null, NaN, 1.10, large numbers, binary keys, tombstones and times; ours are left out."""
    with connect(Memory()) as client:
        for name in ("from", "to"):
            client.topic(name, Topic(partitions=1), create=True)
        source = client.topic("from", RAW)
        keyed = [(key, value) for key in KEYS for value in VALUES if value is not None or key is not None]
        source.append_many(
            Message(value, key=key, headers=HEADERS, timestamp_ms=number) for number, (key, value) in enumerate(keyed)
        )
        show = printer("json")
        sending(client, "to").chunk([show(message) for message in source.messages()])
        assert [stored(one) for one in client.committed("to")] == [stored(one) for one in client.committed("from")]


@dataclass
class Order:
    """With what JSON has no form for."""

    id: str
    total: Annotated[Decimal, Digits(9, 2)]
    weight: float = 0.0


def same(order: Any) -> Any:
    return order


def graph_of(value: Any, **settings: Any) -> Graph:
    """A graph that says the codecs."""
    topics = {name: Topic(value=value, partitions=1, **settings) for name in ("from", "to")}
    return Graph("g", Source("from"), Processor(same, inputs="from", outputs="to"), topics=topics)


def test_json_of_a_graph_stays_the_text_that_it_is() -> None:
    """It is validated, and its field is the key."""
    with connect(Memory(), graph_of(Json(Order), key="id")) as client:
        for name in ("from", "to"):
            client.topic(name, create=True)
        text = '{"id":"a", "total":"1.10","weight":1.10, "more":1e400}'
        sending(client, "from").chunk([f'{{"value": {text}}}'])
        source = client.topic("from")
        show = printer("json", source.access.settings)
        sending(client, "to").chunk([show(message) for message in source.messages()])
        assert [one.value() for one in client.committed("to")] == [text.encode()]
        assert [one.key() for one in client.committed("to")] == [b"a"]
        with pytest.raises(ConfigError, match=r"message 1, .*weight"):
            sending(client, "to").chunk(['{"value": {"id": "a", "total": "1", "weight": "x"}}'])


def test_avro_of_a_graph_is_shown_as_strict_json() -> None:
    """NaN is text there: JSON has no such number. Without the graph the bytes are copied."""
    with connect(Memory(), graph_of(Avro(Order), key="id")) as client:
        for name in ("from", "to"):
            client.topic(name, create=True)
        source = client.topic("from")
        source.append(Order("a", Decimal("1.10"), float("nan")))
        [message] = source.messages()
        line = json.loads(printer("json", source.access.settings)(message), parse_constant=pytest.fail)
        assert line["value"] == {"id": "a", "total": "1.10", "weight": "NaN"}
        [bare] = client.topic("from", RAW).messages()
        line = json.loads(printer("json")(bare))
        assert line["value_encoding"] in {"base64", "text"}


def test_tombstone_is_another_value_than_null() -> None:
    """In each form."""
    with connect(Memory()) as client:
        client.topic("t", Topic(partitions=1), create=True)
        client.topic("t", RAW).append_many([Message(None, key="k"), Message(b"null", key="k")])
        tombstone, null = client.topic("t").messages()
        assert [printer("value")(one) for one in (tombstone, null)] == [TOMBSTONE, "null"]
        assert printer("full")(tombstone).endswith(f"  k  {TOMBSTONE}")
        lines = [json.loads(printer("json")(one)) for one in (tombstone, null)]
        assert [(one["value"], one.get("value_encoding")) for one in lines] == [(None, None), (None, "json")]


@pytest.mark.parametrize("form", ["value", "full", "json"])
def test_terminal_gets_nothing_that_it_obeys(form: Any) -> None:
    """Neither bytes of a codec, nor the escapes of a stranger. What is no terminal gets the text."""
    with connect(Memory()) as client:
        client.topic("t", Topic(partitions=1), create=True)
        topic = client.topic("t", RAW)
        topic.append(Message(b"\x00\x07\x1b[2J\xff\r\n\xc2\x9b", key=b"\x1b[1m\xfe", headers={"\x1b": "\x07"}))
        [message] = topic.messages()
        shown = printer(form, terminal=True)(message)
        assert shown.isprintable()
        assert form == "json" or "\\u001b[2J" in shown
        assert form == "json" or "\x1b[2J" in printer(form)(message)

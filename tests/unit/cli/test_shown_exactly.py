"""`lineage` and `errors show`: keys, values and times come out as they went in, for people and as JSON."""

from __future__ import annotations

import ast
import base64
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from decimal import Decimal
from io import StringIO
from math import inf, nan
from typing import Annotated, Any

import pytest
from hypothesis import Phase, example, given
from hypothesis import strategies as st

from cues_kafka import Avro, Digits, Errors, Graph, Json, Processor, Raw, Source, State, Store, Topic
from cues_kafka.brokers import open as open_module
from cues_kafka.cli import loading
from cues_kafka.cli.config import ClusterOptions
from cues_kafka.cli.errors import show
from cues_kafka.cli.lineage import lineage
from cues_kafka.codecs.avro import AvroCodec
from cues_kafka.graph.declare import CodecSpec
from cues_kafka.operate.shown import plain_json
from cues_kafka.task.calling.step import Received
from cues_kafka.testing.tester import Tester
from cues_kafka.words import visible
from tests.examples import examples

TRICKY = [
    b"",
    b"null",
    b"\xff",
    b"\\xff",
    b"b'\\xff'",
    b"'",
    b'"',
    b"\n",
    b"\\n",
    b"k  sent",
    b"\xed\xa0\x80",
    b"\xc2\xad",
]
KEYS = st.none() | st.sampled_from(TRICKY) | st.binary(max_size=12) | st.text(max_size=8).map(str.encode)
HEADERS = st.lists(st.tuples(st.sampled_from(["a", "a", "é", ""]), st.none() | st.binary(max_size=4)), max_size=4)
TIMES = st.sampled_from([1, 999, 1_000, 1_790_000_000_000, 1_790_000_000_001, 2**62]) | st.integers(1, 2**62)


PHASES = (Phase.explicit, Phase.generate, Phase.shrink)
"""Without an explanation, which follows each line of a graph at work."""


def same(value: bytes) -> bytes:
    """Passes it on."""
    return value


def fail(value: Any) -> Any:
    """Refuses it."""
    raise ValueError("no")


@contextmanager
def commands_of(tester: Tester, graph: Graph) -> Iterator[None]:
    """The commands work on this graph in memory."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loading, "load_graph", lambda _: graph)
        patch.setattr(open_module, "open_broker", lambda _: tester.broker)
        patch.setattr(tester.broker, "close", lambda: None)
        yield


def printed(command: Any, *words: str, **options: Any) -> str:
    """What a command prints. It is called as a function: the whole command line takes long to build."""
    with redirect_stdout(StringIO()) as out:
        command(*words, cluster=ClusterOptions("localhost:1"), **options)
    return out.getvalue()


def traced(place: str, **options: Any) -> tuple[list[str], dict[str, Any]]:
    """What `lineage` prints of a message, as lines and as data."""
    given = {"most": 9, "graph": "", "changes": False, **options}
    lines = printed(lineage, place, as_json=False, **given).splitlines()
    return lines, json.loads(printed(lineage, place, as_json=True, **given))


def shown(error: Received) -> tuple[list[str], dict[str, Any]]:
    """What `errors show` prints of an error message, as lines and as data."""
    place = f"errors/{error.partition}@{error.offset}"
    lines = printed(show, "g:g", place, as_json=False).split("\n")
    return lines, json.loads(printed(show, "g:g", place, as_json=True))


def read(data: dict[str, Any], name: str) -> bytes | None:
    """Bytes of a field of JSON."""
    value = data[name]
    if value is None:
        return None
    return base64.b64decode(value) if data.get(f"{name}_encoding") == "base64" else value.encode()


def decoded(text: str) -> bytes | None:
    """A key as a line of `lineage` shows it."""
    found = re.search(r"Z?  key (b?(['\"]).*\2)  (?:by|sent)", text)
    if found is None:
        return None
    value = ast.literal_eval(found[1])
    return value if isinstance(value, bytes) else value.encode()


@examples(30, phases=PHASES)
@given(st.lists(st.tuples(KEYS, KEYS, HEADERS, TIMES), min_size=1, max_size=5))
@example([(key, key, [("a", None), ("a", b"")], 1) for key in (None, *TRICKY)])
def test_lineage_shows_keys_and_times_as_they_are(messages: list[tuple[Any, ...]]) -> None:
    """Of a message and of the one it was made of."""
    topic = Topic(Raw(), partitions=1, config={"message.timestamp.after.max.ms": str(2**63 - 1)})
    graph = Graph("g", Source("in"), Processor(same, inputs="in", outputs="out"), defaults=topic)
    tester = Tester(graph)
    tester.broker.sender("s").send([("in", 0, key, value, headers, time) for key, value, headers, time in messages])
    tester.run()
    outputs = list(tester.client.committed("out"))
    assert len(outputs) == sum(value is not None for _, value, *_ in messages)
    with commands_of(tester, graph):
        for output in outputs:
            lines, data = traced(f"out/0@{output.offset()}")
            [origin] = data["inputs"]
            key, _, _, time = messages[origin["offset"]]
            assert (read(origin, "key"), origin["timestamp_ms"]) == (key, time)
            assert read(data, "key") == key
            assert [decoded(line) for line in lines] == [key, key]
            if found := re.search(r"  (\d{4}-\d\d-\d\dT[^ ]*Z)  ", lines[1]):
                assert (".") in found[1] or time % 1_000 == 0
            else:
                assert f"  {time} ms  " in lines[1]


@examples(20, phases=PHASES)
@given(st.lists(st.tuples(KEYS, KEYS.filter(lambda one: one is not None), HEADERS), min_size=1, max_size=4))
@example([(key, key or b"", [("a", None), ("a", b"")]) for key in (None, *TRICKY)])
def test_error_shows_key_and_payload_as_they_are(messages: list[tuple[Any, ...]]) -> None:
    """An empty one is not a missing one, and bytes are not their escapes."""
    graph = graph_of(Raw())
    tester = Tester(graph)
    tester.broker.sender("s").send([("in", 0, key, value, headers, 0) for key, value, headers in messages])
    with commands_of(tester.run(), graph):
        for error in tester.messages("errors"):
            key, value, _ = messages[error.value.consumed[0].offset]
            lines, data = shown(error)
            assert (read(data, "key"), read(data, "payload")) == (key, value)
            for name, expected in (("key", key), ("payload", value)):
                assert [one for one in lines if one.startswith(f"  {name}")] == shown_as(name, expected)


def shown_as(name: str, value: bytes | None) -> list[str]:
    """The lines of a field of bytes."""
    if value is None:
        return []
    first = visible(f"  {name:<9} {value.decode(errors='backslashreplace')}")
    try:
        value.decode()
    except UnicodeDecodeError:
        return [first, f"  {name} in base64 {base64.b64encode(value).decode()}"]
    return [first]


def graph_of(codec: CodecSpec) -> Graph:
    """One processor that fails, with payloads."""
    return Graph(
        "g",
        Source("in"),
        Processor(fail, inputs="in", name="check"),
        errors=Errors("errors", payload=True),
        defaults=Topic(codec, partitions=1),
    )


@dataclass
class Order:
    """What plain JSON has no form for."""

    number: int
    total: Annotated[Decimal, Digits(20, 4)]
    weight: float
    seal: bytes
    note: str | None


ORDERS = st.builds(
    Order,
    st.integers(-(2**63), 2**63 - 1),
    st.decimals(-(10**15), 10**15, places=4),
    st.floats() | st.sampled_from([nan, inf, -0.0]),
    st.binary(max_size=4),
    st.none() | st.sampled_from(["", "null"]) | st.text(st.characters(codec="utf-8"), max_size=4),
)


@examples(20, phases=PHASES)
@given(ORDERS)
@example(Order(2**63 - 1, Decimal("1.1000"), nan, b"\xff", None))
@example(Order(-(2**63), Decimal("99999999999999.9999"), -inf, b"\\xff", ""))
def test_error_shows_a_value_of_a_codec_as_it_is(order: Order) -> None:
    """As JSON its bytes, for people the value."""
    graph = graph_of(Avro(Order))
    tester = Tester(graph)
    tester.send("in", order)
    with commands_of(tester.run(), graph):
        [error] = tester.messages("errors")
        lines, data = shown(error)
        assert repr(AvroCodec(Avro(Order)).decode(read(data, "payload") or b"")) == repr(order)
        assert visible(f"  payload   {plain_json(order)}") in lines


@pytest.mark.parametrize("text", [b'{"a": 1.10, "a": 12345678901234567890}', b"1e400", b"NaN", b'"\\ud800"', b""])
def test_error_shows_json_that_was_sent_as_it_came(text: bytes) -> None:
    """Numbers of many digits, names that are there twice, and what is not JSON."""
    graph = graph_of(Json())
    tester = Tester(graph)
    tester.broker.sender("s").send([("in", 0, None, text, None, 0)])
    with commands_of(tester.run(), graph):
        [error] = tester.messages("errors")
        lines, data = shown(error)
        assert (read(data, "key"), read(data, "payload")) == (None, text)
        assert f"  payload   {text.decode()}" in lines


def noted(value: bytes, *, seen: State[bytes]) -> bytes:
    """Notes each value under itself."""
    seen[value.decode()] = value
    return value


def test_lineage_shows_keys_of_entries_as_they_are() -> None:
    """Another program may write bytes that are not UTF-8 among them."""
    processor = Processor(noted, inputs="in", outputs="out", state={"seen": Store(Raw())})
    graph = Graph("g", Source("in"), processor, defaults=Topic(Raw(), partitions=1))
    tester = Tester(graph)
    for value in (b"", b"\\xff", b"'"):
        tester.send("in", value)
    with commands_of(tester.run(), graph):
        for output in tester.client.committed("out"):
            _, data = traced(f"out/0@{output.offset()}", changes=True)
            keys = [read(entry, "key") for store in data["changed"]["stores"] for entry in store["entries"]]
            assert output.value() in keys


def test_keys_that_json_does_not_take_are_text() -> None:
    """A dictionary may have any keys; bytes or a pair as a key ended commands with a TypeError, a class as a value."""
    value = {b"\xff": 1, (1, 2): {None: nan, b"k": (Order, {b"x": b"y"})}, 3: [{1.5: True}], "a": {frozenset(): 0}}
    shown = json.loads(plain_json(value))
    assert shown["\\xff"] == 1
    assert shown["(1, 2)"]["null"] == "NaN"
    assert shown["(1, 2)"]["k"][1] == {"x": "y"}
    assert shown["3"] == [{"1.5": True}]
    assert shown["a"] == {"frozenset()": 0}

"""Functions with `batch=True`: a list that is taken column by column has the outcomes of one that is not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from cues_kafka import Graph, Json, Message, Processor, Raw, Source, Step, Topic
from cues_kafka.codecs.json import JsonCodec
from cues_kafka.testing.tester import Tester

KEYS = ("a", None, "c", "d", "e", "f", "g", "h" * 3_000, "i")
GIVEN: list[Message[Any]] = [
    Message(n, key=key, headers={"travels": b"yes"} if n == 2 else {}, timestamp_ms=1_700_000_000_000 + n)
    for n, key in enumerate(KEYS)
]


def given(odd: Mapping[int, Any]) -> tuple[Any, Any]:
    """The function, without and with `step`, which makes its lists go the long way."""

    def short(numbers: list[int]) -> list[Any]:
        return [odd.get(n, n) for n in numbers]

    def long(numbers: list[int], step: list[Step]) -> list[Any]:
        assert len(step) == len(numbers)
        return short(numbers)

    return short, long


def world(fn: Any, outputs: str | None) -> list[Any]:
    """What the function's processor leaves behind."""
    processor = Processor(fn, name="p", inputs="in", outputs=outputs, batch=True)
    graph = Graph(
        "g", Source("in"), processor, errors="errors", topics={"in": Topic(value=Json(), partitions=1)},
        defaults=Topic(partitions=3),
    )  # fmt: skip
    tester = Tester(graph)
    for message in GIVEN:
        tester.send("in", message)
    tester.run()
    found = tester.messages(outputs) if outputs else []
    seen = [(m.partition, m.key, m.value, m.headers, m.timestamp_ms) for m in found]
    errors = [(one.exception, one.text, one.kind, one.hash, one.key) for one in tester.errors()]
    return [seen, errors, tester.totals("p")]


ODD: dict[str, dict[int, Any]] = {
    "plain": {},
    "nils": {1: None, 2: None},
    "all nils": dict.fromkeys(range(9)),
    "a message": {3: Message({"n": 3}, key="other", headers={"more": b"1"})},
    "a tombstone": {3: Message(None, key="other")},
    "an exception": {3: ValueError("three"), 4: KeyError("four")},
    "too large": {3: "x" * 2_000_000},
    "not JSON": {3: object(), 8: {1, 2}},
}


@pytest.mark.parametrize("outputs", ["out", None])
@pytest.mark.parametrize("name", ODD)
def test_list_has_the_same_outcomes_column_by_column(name: str, outputs: str | None) -> None:
    short, long = given(ODD[name])

    assert world(short, outputs) == world(long, outputs)


def test_list_with_a_message_that_cannot_be_decoded_calls_once_for_the_others() -> None:
    calls: list[list[int]] = []

    def fn(numbers: list[int]) -> list[int]:
        calls.append(numbers)
        return numbers

    defaults = Topic(value=Json(), partitions=1)
    writer = Tester(Graph("w", Source("in"), defaults=Topic(value=Raw(), partitions=1)))
    for data in (b"1", b"\xff", b"2"):
        writer.send("in", data)
    processor = Processor(fn, name="p", inputs="in", outputs="out", batch=True)
    tester = Tester(Graph("g", Source("in"), processor, errors="errors", defaults=defaults), broker=writer.broker).run()

    assert calls == [[1, 2]]
    assert tester.values("out") == [1, 2]
    assert [one.kind for one in tester.errors()] == ["decode"]


@dataclass(frozen=True)
class Order:
    """A message with fields."""

    id: int


def called_with(data: list[bytes | None], value: Json) -> tuple[list[list[Any]], list[str]]:
    """What a function is called with for messages of these bytes, and the error messages' texts."""
    calls: list[list[Any]] = []
    writer = Tester(Graph("w", Source("in"), defaults=Topic(value=Raw(), partitions=1)))
    for one in data:
        writer.send("in", Message(one, key="k"))
    processor = Processor(calls.append, name="p", inputs="in", batch=True)
    graph = Graph("g", Source("in"), processor, errors="errors", defaults=Topic(value=value, partitions=1))
    tester = Tester(graph, broker=writer.broker).run()
    return calls, [one.text for one in tester.errors()]


def test_list_of_usual_messages_is_decoded_without_a_line_of_python_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """By msgspec's own function; and the codec is asked where that fails, and for tombstones."""
    asked: list[bytes] = []
    decode = JsonCodec.decode

    def counted(codec: JsonCodec, data: bytes) -> Any:
        asked.append(data)
        return decode(codec, data)

    monkeypatch.setattr(JsonCodec, "decode", counted)
    good: list[bytes | None] = [b'{"id":1}', b'{"id":2}']

    assert called_with(good, Json(Order)) == ([[Order(1), Order(2)]], [])
    assert asked == []
    calls, texts = called_with([*good, b'{"id":"3"}', None], Json(Order))
    assert calls == [[Order(1), Order(2)]]
    assert texts[0] == "order.id: expected int, got str. Fix the message, or its class."
    assert "has no value (a tombstone)" in texts[1]
    assert called_with([b"1", None], Json()) == ([[1, None]], [])

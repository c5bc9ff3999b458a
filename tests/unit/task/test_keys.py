"""Outputs without a key of their own inherit the input's key, in the format of the topic that they are written to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import pytest

from cues_kafka import (
    Avro,
    Graph,
    GraphError,
    Json,
    JsonSchema,
    Message,
    Out,
    Processor,
    Raw,
    Source,
    State,
    Step,
    Store,
    Timer,
    Timers,
    Topic,
)
from cues_kafka.codecs.framing import in_front
from cues_kafka.codecs.lookup import MadeFor, codec_for
from cues_kafka.task.calling.inheriting import inherit
from cues_kafka.testing.tester import Tester

LONG, TEXT = Avro("long"), Avro("string")


def same(value: Any) -> Any:
    """A value alone."""
    return value


def both(value: Any) -> dict[str, Any]:
    """One for each of two topics."""
    return {"a": value, "b": value}


def yielded(value: Any) -> Iterator[Any]:
    """A generator."""
    yield value
    yield Message(value)


def outs(value: Any) -> Iterator[Out[Any]]:
    """A generator with bindings."""
    yield Out("a", value)


def of_list(values: list[Any]) -> list[Any]:
    """A batch."""
    return values


async def later(value: Any) -> Any:
    """A coroutine."""
    return value


def with_step(value: Any, step: Step) -> Any:
    """The long way."""
    return (value, step)[0]


def counted(value: Any, seen: State[int]) -> Any:
    """With a store."""
    seen["a"] = seen.get("a", 0) + 1
    return value


def added(left: Any, right: Any) -> Any:
    """A join."""
    return left + right


def any_of(left: Any = None, right: Any = None) -> Any:
    """An alts."""
    return left or right


KINDS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "pipe": (same, {"inputs": "in", "outputs": "out"}),
    "fork": (both, {"inputs": "in", "outputs": {"a": "out", "b": "more"}}),
    "generator": (yielded, {"inputs": "in", "outputs": "out"}),
    "generator of a fork": (outs, {"inputs": "in", "outputs": {"a": "out", "b": "more"}}),
    "batch": (of_list, {"inputs": "in", "outputs": "out", "batch": True}),
    "coroutine": (later, {"inputs": "in", "outputs": "out"}),
    "step": (with_step, {"inputs": "in", "outputs": "out"}),
    "store": (counted, {"inputs": "in", "outputs": "out", "state": {"seen": Store(Json(int))}}),
    "join": (added, {"inputs": {"left": "in", "right": "other"}, "outputs": "out"}),
    "alts": (any_of, {"alts": {"left": "in", "right": "other"}, "outputs": "out"}),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("value", [Json(int), Raw()])
def test_an_inherited_key_has_the_format_of_its_topic(kind: str, value: Any) -> None:
    """Text becomes Avro in each kind of processor; a message without a key has none."""
    fn, declared = KINDS[kind]
    settings: dict[str, Topic] = {"in": Topic(value=value), "out": Topic(value=value, key_codec=TEXT)}
    if kind == "fork" or "fork" in kind:
        settings["more"] = Topic(value=value)
    if kind in ("join", "alts"):
        settings["other"] = Topic(value=value)
    graph = Graph(
        "keys", *(Source(one) for one in ("in", "other") if one in settings), Processor(fn, **declared), topics=settings
    )
    tester = Tester(graph)
    given = 1 if isinstance(value, Json) else b"1"
    for key in ("ü", None):
        tester.send("in", Message(given, key=key))
        if kind == "join":
            tester.send("other", Message(given, key="not this one"))
    tester.run()
    times = 2 if kind == "generator" else 1
    found = tester.messages("out")
    assert [(one.key, one.key_bytes) for one in found] == [
        *[("ü", codec_for(TEXT, MadeFor("out")).encode("ü"))] * times,
        *[(None, None)] * times,
    ]
    if "more" in settings and kind == "fork":
        assert [one.key_bytes for one in tester.messages("more")] == ["ü".encode(), None]


@pytest.mark.parametrize(
    ("was", "now", "key", "expected"),
    [
        (LONG, None, 5, b"5"),
        (None, JsonSchema({"type": "string"}), "a", b'"a"'),
        (Json(int), LONG, 7, codec_for(LONG, MadeFor("t")).encode(7)),
        (LONG, LONG, 7, codec_for(LONG, MadeFor("t")).encode(7)),
        (Avro("bytes"), Avro("string"), b"x", None),
        (LONG, TEXT, 5, None),
        (Avro({"type": "map", "values": "int"}), None, {"a": 1}, None),
        (None, TEXT, b"\xff", None),
    ],
)
def test_a_key_is_converted_or_is_one_error(was: Any, now: Any, key: Any, expected: bytes | None) -> None:
    """The error names both topics, and what to do."""
    topics = {"in": Topic(value=Json(), key_codec=was), "out": Topic(value=Json(), key_codec=now)}
    graph = Graph("keys", Source("in"), Processor(same, inputs="in", outputs="out"), topics=topics, errors="errors")
    tester = Tester(graph)
    given = key if was is None or type(key) is not bytes else codec_for(was, MadeFor("in")).encode(key)
    tester.send("in", Message(1, key=given))
    tester.run()
    assert [one.key_bytes for one in tester.messages("out")] == ([] if expected is None else [expected])
    if expected is None:
        [error] = tester.errors()
        assert "the key of 'in', which outputs without a key of their own inherit" in error.text
        assert "Topic(key=...) for 'out'" in error.text


def test_a_key_of_its_own_is_not_touched() -> None:
    """That of a message, and the field that `key=` names, although the input's key would not fit."""
    settings: dict[str, Topic] = {"in": Topic(value=Json(), key_codec=LONG), "out": Topic(value=Json(), key_codec=TEXT)}
    own = Processor(lambda value: Message(value, key="own"), name="own", inputs="in", outputs="out")
    tester = Tester(Graph("keys", Source("in"), own, topics=settings))
    tester.send("in", Message({"id": "field"}, key=5))
    tester.run()
    assert [one.key for one in tester.messages("out")] == ["own"]
    settings["out"] = Topic(value=Json(), key="id", key_codec=TEXT)
    tester = Tester(Graph("keys", Source("in"), Processor(same, inputs="in", outputs="out"), topics=settings))
    tester.send("in", Message({"id": "field"}, key=5))
    tester.run()
    assert [one.key for one in tester.messages("out")] == ["field"]


def follow(value: Any, step: Step) -> None:
    """Set a timer."""
    step.schedule("ü", at=step.time_ms + 1)


def fire(timer: Timer) -> Any:
    """A value alone."""
    return timer.due_ms


def test_an_output_of_a_timer_inherits_the_timers_key_in_the_format_of_its_topic() -> None:
    """It is text, whatever the input's keys are."""
    settings: dict[str, Topic] = {"in": Topic(value=Json(), key_codec=LONG), "out": Topic(value=Json(), key_codec=TEXT)}
    timed = Processor(follow, inputs="in", outputs="out", state={"timers": Timers(fire)})
    tester = Tester(Graph("keys", Source("in"), timed, topics=settings))
    for at in (1_000_000, 2_000_000):
        tester.send("in", Message(1, key=5, timestamp_ms=at))
    tester.run()
    assert {one.key for one in tester.messages("out")} == {"ü"}


def test_an_alts_of_several_formats_of_keys_is_refused() -> None:
    """Unless outputs have a key of their own, or there are none."""
    topics = {"in": Topic(key_codec=LONG), "other": Topic(key_codec=TEXT)}
    declared: dict[str, Any] = {"alts": {"left": "in", "right": "other"}, "outputs": "out"}
    with pytest.raises(
        GraphError, match=r"messages on 'out' without a key .* 'in' and 'other', whose key_codec= differ"
    ):
        Graph("keys", Source("in"), Source("other"), Processor(any_of, **declared), topics=topics)
    Graph(
        "keys", Source("in"), Source("other"), Processor(any_of, **declared), topics={**topics, "out": Topic(key="id")}
    )
    del declared["outputs"]
    Graph(
        "keys",
        Source("in"),
        Source("other"),
        Processor(lambda left=None, right=None: None, name="s", **declared),
        topics=topics,
    )


# Ids of schemas in headers


GUID = UUID("11111111-2222-3333-4444-555555555555")
IN_HEADER = b"\x01" + GUID.bytes


class Registry:
    """Stands for the registry's codec: what it reads names its schema by a GUID, what it writes by an id."""

    @staticmethod
    def decode(data: bytes) -> Any:
        assert data[:17] == IN_HEADER
        return int(data[17:])

    @staticmethod
    def encode(key: Any) -> bytes:
        return b"\0\0\0\0\7%d" % key


def test_a_key_whose_schema_a_header_names_is_written_with_the_id(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its bytes alone would name none; a key that names its schema itself is the same bytes."""
    monkeypatch.setattr("cues_kafka.task.calling.inheriting.codec_for", lambda *_: Registry)
    topic = Topic(key_codec=Avro("long", registry=True))
    convert = inherit(topic, MadeFor("in"), topic, MadeFor("out"), lambda _, convert: convert)
    assert convert is not None
    assert convert(in_front([("__key_schema_id", IN_HEADER)], "__key_schema_id", b"5")) == b"\0\0\0\0\7" + b"5"
    assert convert(b"\0\0\0\0\1" + b"5") == b"\0\0\0\0\1" + b"5"


def passed_on(value: bytes, step: Step, read: Callable[[bytes], Any]) -> Message[Any]:
    """All headers of the input."""
    [received] = step.inputs.values()
    return Message(read(value), headers=received.headers, key=received.key_bytes)


def renamed(value: bytes, step: Step, read: Callable[[bytes], Any]) -> Message[Any]:
    """All headers of the input, and a key of its own."""
    [received] = step.inputs.values()
    return Message(read(value), headers=received.headers, key="new")


@pytest.mark.parametrize(
    ("fn", "value", "kept"),
    [
        (passed_on, Raw(), ["__value_schema_id", "__key_schema_id", "other"]),
        (passed_on, Json(int), ["__key_schema_id", "other"]),
        (passed_on, Avro("long"), ["__key_schema_id", "other"]),
        (renamed, Raw(), ["__value_schema_id", "other"]),
        (renamed, Json(int), ["other"]),
    ],
)
def test_a_header_with_a_schemas_id_goes_where_the_bytes_are_new(fn: Any, value: Any, kept: list[str]) -> None:
    """The codec says itself how it wrote them; bytes that are passed on keep their header."""
    settings: dict[str, Topic] = {"in": Topic(value=Raw()), "out": Topic(value=value)}
    read = bytes if isinstance(value, Raw) else int
    processor = Processor(fn, inputs="in", outputs="out", opts={"read": read})
    tester = Tester(Graph("keys", Source("in"), processor, topics=settings))
    headers = [("__value_schema_id", IN_HEADER), ("__key_schema_id", IN_HEADER), ("other", b"x")]
    tester.send("in", Message(b"1", key=b"k", headers=headers))
    tester.run()
    [found] = tester.messages("out")
    assert [name for name, _ in found.headers if name != "cues"] == kept
    assert found.value == read(b"1")

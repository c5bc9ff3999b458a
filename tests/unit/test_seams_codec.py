"""The seam of codecs: a new declaration and its codec arrive as one row of a table, and touch no other room."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import pytest

from cues_kafka import ConfigError, Graph, Memory, Message, Processor, Source, Topic, connect, start
from cues_kafka.codecs import lookup
from cues_kafka.codecs.lookup import MadeFor, codec_for
from cues_kafka.codecs.schema import Null, Scalar, describe
from cues_kafka.errors import CodecError
from cues_kafka.graph.declare import CodecSpec, Json, Raw


@dataclass(frozen=True, slots=True)
class Stamped(CodecSpec):
    """Whole numbers as text behind an id, which a registry gave the topic."""

    kind: ClassVar[str] = "stamped"


class StampedCodec:
    """The codec of `Stamped`; -1 is the null value."""

    nullable = True
    shape = Scalar(int)

    def __init__(self, made_for: MadeFor) -> None:
        self._id = f"{made_for.cluster.seed if made_for.cluster else '?'}/{made_for.topic}/{made_for.part}:"

    def encode(self, value: Any) -> bytes:
        """An int behind the id."""
        return f"{self._id}{value}".encode()

    def decode(self, data: bytes) -> int:
        """The int behind the id."""
        head, text = data[: len(self._id)].decode(), data[len(self._id) :]
        if head != self._id:
            raise CodecError(f"The id is {head!r}, not {self._id!r}.")
        return int(text)


def double(value: int | None) -> int:
    """Twice the value."""
    return 2 * (value or 0)


@pytest.fixture(autouse=True)
def stamped_has_a_maker(monkeypatch: pytest.MonkeyPatch) -> None:
    """The row of the table."""
    monkeypatch.setitem(lookup.MAKERS, Stamped, lambda _, made_for: StampedCodec(made_for))


def test_a_new_codec_runs_end_to_end_and_knows_its_topic_and_its_cluster() -> None:
    """Values are sent, decoded, called, encoded and read; a message without a value is None; foreign bytes fail."""
    graph = Graph(
        "g",
        Source("in"),
        Processor(double, inputs="in", outputs="out"),
        defaults=Topic(value=Stamped()),
        errors="errors",
    )
    memory, raw = Memory(seed=7), Graph("raw", Source("in"), defaults=Topic(value=Raw()))
    with (
        start(graph, memory) as running,
        connect(memory, raw) as foreign,
    ):
        running.send("in", 21)
        foreign.send("in", Message(None, key="k"))
        foreign.send("in", b"0/in/value:1")
        running.wait_idle()

        assert [message.value for message in running.messages("out")] == [42, 0]
        assert [message.value() for message in running.committed("out")] == [b"7/out/value:42", b"7/out/value:0"]
        [error] = running.messages("errors")
        assert error.value.text == "The id is '0/in/value:', not '7/in/value:'."


def test_a_codec_says_whether_none_is_a_value_and_which_shape_values_have() -> None:
    """So that no caller tries it out, or asks for its class."""

    def facts(declared: CodecSpec) -> tuple[bool, Any]:
        codec = codec_for(declared, MadeFor("t"))
        return codec.nullable, codec.shape

    assert facts(Stamped()) == (True, Scalar(int))
    assert facts(Raw()) == facts(Json()) == (True, None)
    assert facts(Json(Stamped)) == (False, describe(Stamped))
    assert facts(Json(type(None))) == (True, Null())


def test_a_declaration_without_a_maker_is_refused_by_its_name() -> None:
    """A class that nothing makes codecs for."""

    @dataclass(frozen=True, slots=True)
    class Unknown(CodecSpec):
        kind: ClassVar[str] = "unknown"

    with pytest.raises(ConfigError, match=r"Unknown\(\) is not a codec"):
        codec_for(Unknown(), MadeFor("t"))


@dataclass(frozen=True, slots=True)
class Headed(CodecSpec):
    """Text; an id in a header goes in front of it."""

    kind: ClassVar[str] = "headed"


class HeadedCodec:
    """The codec of `Headed`."""

    nullable = False
    shape = None
    id_header = "id"

    def encode(self, value: Any) -> bytes:
        """The text."""
        return str(value).encode()

    def decode(self, data: bytes) -> str:
        """The text behind the id."""
        if not data.startswith(b"7:"):
            raise CodecError("There is no id.")
        return data[2:].decode()


def test_an_id_in_a_header_goes_before_an_empty_value_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Protobuf message with nothing set has no bytes; where the id is in a header, the value is empty."""
    monkeypatch.setitem(lookup.MAKERS, Headed, lambda *_: HeadedCodec())

    def same(value: str) -> str:
        return value

    graph = Graph(
        "g",
        Source("in"),
        Processor(same, inputs="in", outputs="out"),
        topics={"in": Topic(value=Headed())},
        errors="errors",
    )
    with start(graph, Memory()) as running:
        for text in ("a", "", "b"):
            running.send("in", text, headers={"id": "7:"})
        running.wait_idle()
        assert running.messages("errors") == []
        assert [message.value for message in running.messages("out")] == ["a", "", "b"]

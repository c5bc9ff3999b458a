"""Many values at once are written as one after the other: the short cut changes no byte, and lets nothing through."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cues_kafka import CodecError
from cues_kafka.codecs import json
from cues_kafka.codecs.json import JsonCodec


class Text(str):
    """Text of a class of its own."""

    __slots__ = ()


class Size(Enum):
    """A choice."""

    SMALL = "small"


@dataclass(frozen=True)
class Row:
    """Fields whose types alone decide, and a number with a point."""

    name: str
    count: int
    price: float
    note: str | None
    size: Size
    open: bool


@dataclass(frozen=True)
class Wide(Row):
    """A class below it is written with its own fields."""

    more: str = ""


class Part(msgspec.Struct, frozen=True):
    """A struct."""

    name: str
    count: int = 0


LEAVES = st.one_of(
    st.text(max_size=3), st.integers(), st.booleans(), st.none(), st.floats(), st.just(Text("a")), st.just(b"a"),
    st.just({1}), st.just("\ud800"),
)  # fmt: skip
KEYS = st.one_of(st.text(max_size=2), st.integers(0, 2), st.just(Text("k")), st.booleans(), st.none())
OBJECTS = st.dictionaries(KEYS, st.one_of(LEAVES, st.lists(LEAVES, max_size=2)), max_size=3)
ROWS = st.builds(Row, LEAVES, LEAVES, LEAVES, LEAVES, st.one_of(st.just(Size.SMALL), LEAVES), LEAVES)


REFUSED = (CodecError, UnicodeEncodeError, TypeError, OverflowError)
"""What a value is refused with: by the codec, or by msgspec where many values are written at once."""


def one_by_one(codec: JsonCodec, values: Sequence[Any]) -> list[bytes] | None:
    """What `encode` makes of each; None: it refuses one."""
    try:
        return [codec.encode(value) for value in values]
    except REFUSED:
        return None


def all_at_once(codec: JsonCodec, values: Sequence[Any]) -> list[bytes] | None:
    """The same by `encode_all`."""
    try:
        return codec.encode_all(values)
    except REFUSED:
        return None


@given(st.lists(st.one_of(OBJECTS, LEAVES, ROWS), max_size=4))
def test_plain_values_are_written_as_one_by_one(values: list[Any]) -> None:
    codec = JsonCodec()
    assert all_at_once(codec, values) == one_by_one(codec, values)


@given(st.lists(st.one_of(ROWS, st.just(Wide("a", 1, 1.0, None, Size.SMALL, True)), LEAVES), max_size=3))
def test_objects_of_a_class_are_written_as_one_by_one(values: list[Any]) -> None:
    codec = JsonCodec(Row)
    assert all_at_once(codec, values) == one_by_one(codec, values)


@given(st.lists(st.builds(Part, LEAVES, LEAVES), max_size=3))
def test_structs_are_written_as_one_by_one(values: list[Any]) -> None:
    codec = JsonCodec(Part)
    assert all_at_once(codec, values) == one_by_one(codec, values)


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (Any, {"a": "text", "b": 1, "c": True, "d": None, "e": 0.5}),
        (Row, Row("a", 1, 0.5, None, Size.SMALL, True)),
        (Part, Part("a", 2)),
    ],
)
def test_usual_values_are_not_looked_at_one_by_one(
    annotation: Any, value: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    codec = JsonCodec(annotation)
    wanted = [codec.encode(value)] * 3
    monkeypatch.setattr(JsonCodec, "encode", None)
    assert codec.encode_all([value] * 3) == wanted


@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf])
def test_one_number_that_is_none_is_found_among_many(odd: float) -> None:
    """Msgspec would write null."""
    assert json._encode(odd) == b"null"
    with pytest.raises(CodecError, match="NaN and infinity"):
        JsonCodec().encode_all([{"a": 1.0}, {"a": odd}])
    with pytest.raises(CodecError, match="finite"):
        JsonCodec(Row).encode_all([Row("a", 1, odd, None, Size.SMALL, True)])

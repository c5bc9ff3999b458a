"""Messages, keys and the headers that travel."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from cues_kafka import Message, Out, OutputError
from cues_kafka.graph.message import (
    header_list,
    key_bytes,
    quick_message,
    travelling,
    travels,
    with_travelling,
    writable,
)

LEAD: list[tuple[str, bytes | None]] = [
    ("traceparent", b"1"),
    ("x", b"mine"),
    ("cues", b"provenance"),
    ("cues-type", b"order"),
]
OTHER: list[tuple[str, bytes | None]] = [
    ("tracestate", b"of another"),
    ("traceparent", b"2"),
    ("baggage", b"b"),
    ("cues-type", b"y"),
]


def test_quick_message_is_the_same_message() -> None:
    """Bridges make one for each delivery."""
    made = quick_message(b"v", "k", [("a", "b")], 7)
    assert type(made) is Message
    assert made == Message(b"v", key="k", headers=[("a", "b")], timestamp_ms=7)
    assert made.partition is None


@pytest.mark.parametrize(
    ("key", "written"), [(None, None), (b"\xff", b"\xff"), ("é", b"\xc3\xa9"), ("", b""), (7, b"7"), (-1, b"-1")]
)
def test_a_key_is_written_as_text(key: Any, written: bytes | None) -> None:
    """An empty key is a key; None means that there is no key."""
    assert written == key_bytes(key)


@pytest.mark.parametrize("key", [1.5, True, ["a"], object()])
def test_a_key_of_another_type_is_refused_with_the_fix(key: Any) -> None:
    """True is not a number here: a flag cannot be a key."""
    with pytest.raises(OutputError, match="Return Message"):
        key_bytes(key)


def test_headers_are_a_mapping_or_pairs() -> None:
    """Text is encoded, order and repeated names stay."""
    assert header_list({"a": "1", "b": None}) == [("a", b"1"), ("b", None)]
    assert header_list([("a", b"1"), ("a", "2")]) == [("a", b"1"), ("a", b"2")]
    assert header_list(None) == []


@pytest.mark.parametrize("headers", [{"a": 1}, [(1, b"")], {"\ud800": "x"}, {"a\0b": "x"}])
def test_headers_that_cannot_be_written_are_refused(headers: Any) -> None:
    """A lone surrogate would end the process, and a NUL would cut the name."""
    with pytest.raises(OutputError):
        header_list(headers)


def test_name_of_a_header_is_not_kept() -> None:
    """Functions forward headers of strangers, and a name may have a megabyte."""
    name = "x" * 1_000
    before = sys.getrefcount(name)
    assert writable(name)
    assert sys.getrefcount(name) == before


@pytest.mark.parametrize(
    ("name", "goes"),
    [
        ("traceparent", True),
        ("tracestate", True),
        ("baggage", True),
        ("cues-tags", True),
        ("cues", False),
        ("x", False),
    ],
)
def test_trace_headers_and_ours_travel(name: str, goes: bool) -> None:
    """The provenance header says where one record came from, so it stays."""
    assert goes == travels(name)


def test_the_first_input_gives_a_header_that_several_have() -> None:
    """And a trace state comes only with the trace that it belongs to."""
    assert travelling([LEAD, None, OTHER]) == [("traceparent", b"1"), ("cues-type", b"order"), ("baggage", b"b")]
    assert travelling([[("x", b"")], OTHER]) == [
        ("tracestate", b"of another"),
        ("traceparent", b"2"),
        ("baggage", b"b"),
        ("cues-type", b"y"),
    ]


def test_an_outputs_own_headers_win() -> None:
    """A new trace drops the old one's state."""
    own: list[tuple[str, bytes | None]] = [("traceparent", b"new")]

    assert with_travelling(own, OTHER) == [("traceparent", b"new"), ("baggage", b"b"), ("cues-type", b"y")]
    assert own == with_travelling(own, [])


def test_a_tombstone_is_a_message_without_a_value() -> None:
    """And messages with the same content are equal."""
    assert Message(None, key="a") == Message(None, key="a")
    assert Out("all", 1) == Out(binding="all", message=1)

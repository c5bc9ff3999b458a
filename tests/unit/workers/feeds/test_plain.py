"""The quick way of a row gives the record of the general way, or leaves the row to it."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cues_kafka import Encoded, Message
from cues_kafka.codecs.raw import as_is
from cues_kafka.core.delivery import HEADER
from cues_kafka.task.calling.outputs import Now, Target
from cues_kafka.workers.feeds.plain import LONGEST_NAME, MARK, MOST_NAMES, PlainRows
from cues_kafka.workers.feeds.rows import Into, RowBatch

NOW_MS = 1_700_000_000_000
TARGET = Target(
    topic="t", partitions=3, max_bytes=900, binding="output", encode=bytes, key_of=None, newer_ms=1_000, foreign=("id",)
)
SPEC: Any = SimpleNamespace(full_name="g.feed/4", partition=4, graph="g", processor="feed", name="feed/4")

NAMES = st.sampled_from(["a", "b-c", "id", "cues", "cues-meta", "", "ä", "x" * 101, "cues.key.schema", "traceparent"])
VALUES = st.none() | st.binary(max_size=9) | st.text(max_size=9)
MESSAGES = st.builds(
    Message,
    st.binary(max_size=500).map(Encoded),
    key=st.none() | st.binary(max_size=9) | st.text(max_size=9) | st.integers(),
    headers=st.lists(st.tuples(NAMES, VALUES), max_size=4),
    timestamp_ms=st.none() | st.sampled_from([-1, 0, 1, NOW_MS, NOW_MS + 1_000, NOW_MS + 1_001, 2**63]),
    partition=st.none() | st.integers(0, 3),
)
TARGETS = st.builds(
    replace,
    st.just(TARGET),
    provenance=st.booleans(),
    compacted=st.booleans(),
    older_ms=st.sampled_from([None, 10]),
    newer_ms=st.sampled_from([None, 1_000]),
)


def batch_of(message: Any, target: Target, *, quick: bool) -> tuple[Any, ...]:
    """What a batch holds behind this one row."""
    into = Into(target, as_is, None, str, None, None)  # type: ignore[arg-type]
    if not quick:
        object.__setattr__(into, "_plain", SimpleNamespace(record=lambda *_: None))
    today = Now(lambda: NOW_MS / 1000)
    batch = RowBatch(SPEC, 7, {}, SimpleNamespace(), today=today)
    added = into.add(message, "place", batch)
    batch.seal()
    halt = batch.halt and batch.halt.text
    return added, halt, list(batch.records), batch.size, batch.deliveries, batch.outputs, batch.messages, batch.place


@given(message=MESSAGES, target=TARGETS)
def test_the_quick_way_gives_the_same_record(message: Message[Any], target: Target) -> None:
    """Keys, headers, times and partitions of all kinds, also those that are refused."""
    assert batch_of(message, target, quick=True) == batch_of(message, target, quick=False)


@pytest.mark.parametrize(
    ("change", "is_quick"),
    [
        ({}, True),
        ({"key": "k", "headers": [("a", "b"), ("c", b"d"), ("e", None)], "timestamp_ms": NOW_MS}, True),
        ({"value": b"x"}, False),
        ({"partition": 0}, False),
        ({"key": 7}, False),
        ({"headers": (("a", "b"),)}, False),
        ({"headers": [("id", b"1")]}, False),
        ({"headers": [("cues", b"1")]}, False),
        ({"value": Encoded(b"x" * 400)}, False),
    ],
)
def test_usual_rows_go_the_quick_way(change: dict[str, Any], *, is_quick: bool) -> None:
    """All others go the general one."""
    rows = PlainRows(replace(TARGET, max_bytes=700), as_is)
    row = rows.record(replace(Message(Encoded(b"x"), headers=[]), **change), 4, Now(lambda: NOW_MS / 1000))
    assert (row is not None) is is_quick
    assert row is None or (row.headers is not None and row.headers[0] == MARK)


def test_a_topic_that_is_not_of_bytes_has_no_quick_way() -> None:
    """Its values are read, so that what does not fit is an error."""
    now = Now(lambda: NOW_MS / 1000)
    for target, decode in ((TARGET, bytes), (replace(TARGET, key_of=len), as_is)):
        assert PlainRows(target, decode).record(Message(Encoded(b"x")), 0, now) is None  # type: ignore[arg-type]


def test_names_of_strangers_are_not_kept() -> None:
    """Neither long ones nor any number of them."""
    rows, now = PlainRows(TARGET, as_is), Now(lambda: NOW_MS / 1000)
    for number in range(MOST_NAMES + 5):
        assert rows.record(Message(Encoded(b"x"), headers=[(f"name-{number}", b"")]), 0, now) is not None
    assert rows.record(Message(Encoded(b"x"), headers=[("n" * (LONGEST_NAME + 1), b"")]), 0, now) is None
    assert len(rows._names) == MOST_NAMES


def test_headers_of_messages_before_are_not_made_again() -> None:
    """Short ones are remembered, and no number of others takes more room; the record is the same."""
    rows, now = PlainRows(TARGET, as_is), Now(lambda: NOW_MS / 1000)
    given: list[tuple[str, str | bytes | None]] = [
        ("a", "b"),
        ("n", "x" * (LONGEST_NAME + 1)),
        ("c", b"b"),
        ("d", None),
    ]
    first, again = (rows.record(Message(Encoded(b"x"), headers=given), 0, now) for _ in range(2))
    assert first == again
    assert first is not None
    assert again is not None
    assert first.headers is not None
    assert again.headers is not None
    assert [one is two for one, two in zip(first.headers, again.headers, strict=True)] == [
        True,
        True,
        False,
        False,
        False,
    ]
    for number in range(2 * MOST_NAMES):
        assert rows.record(Message(Encoded(b"x"), headers=[("a", str(number))]), 0, now) is not None
    assert len(rows._pairs) <= MOST_NAMES


def test_rows_of_a_batch_say_which_they_are() -> None:
    """The header of provenance is written at the end, for rows of both ways."""
    into = Into(TARGET, as_is, None, str, None, None)  # type: ignore[arg-type]
    batch = RowBatch(SPEC, 7, {}, SimpleNamespace(), today=Now(lambda: NOW_MS / 1000))
    for place, message in enumerate((Message(Encoded(b"1")), Message(Encoded(b"2"), partition=1), Message(b"3"))):
        assert into.add(message, str(place), batch)
    batch.seal()
    headers = [dict(headers)[HEADER] for _, _, _, _, headers, _ in batch.records]
    assert [one.rpartition(b"7 - ")[2] for one in headers] == [b"0/3 -", b"1/3 -", b"2/3 -"]

"""Records as columns say the same as records as rows."""

from __future__ import annotations

import pytest

from cues_kafka.core.delivery import HEADER
from cues_kafka.task.calling.outbox import Outbox


def mixed() -> Outbox:
    """Usual records, one of another kind, usual ones again; one without a key."""
    box = Outbox()
    box.extend("out", 3, [b"a", None], [b"1", b"2"], [b"p0", b"p1"], [7, 8], alone=True)
    box.add("errors", 1, b"c", None, None, 9)
    box.extend("out", 3, [b"d"], [b"4"], [[(HEADER, b"p3"), ("traceparent", b"t")]], [10])
    return box


def test_rows_and_columns_are_the_same_records() -> None:
    """Whichever of them a session takes."""
    box = mixed()
    topics, partitions, keys, values, headers, times = box.columns()
    by_column = [
        (topic, None if where < 0 else where, *rest)
        for topic, where, *rest in zip(topics, partitions, keys, values, headers, times, strict=True)
    ]

    assert list(box) == by_column == [box[i] for i in range(len(box))]
    assert by_column == [
        ("out", None, b"a", b"1", [(HEADER, b"p0")], 7),
        ("out", 3, None, b"2", [(HEADER, b"p1")], 8),
        ("errors", 1, b"c", None, None, 9),
        ("out", None, b"d", b"4", [(HEADER, b"p3"), ("traceparent", b"t")], 10),
    ]


def test_headers_that_stand_alone_come_out_the_same() -> None:
    """They take another way, which is quicker."""
    box = Outbox()
    box.extend("out", 0, [b"a", b"b"], [b"1", b"2"], [b"p0", b"p1"], [7, 8], alone=True)

    assert list(box.columns()[4]) == [[(HEADER, b"p0")], [(HEADER, b"p1")]] == [row[4] for row in box]


def test_records_without_headers_stand_behind_those_that_have_one() -> None:
    """The changes of a store come behind the outputs. What is cut off takes its headers with it."""
    box = Outbox()
    box.extend("out", 0, [b"a", b"b"], [b"1", b"2"], [b"p0", b"p1"], [7, 8], alone=True)
    box.extend_alike("changelog", 2, [b"k1", b"k2"], {1: b"5", 2: None}.values(), 0)
    box.cut(1)
    box.extend_alike("changelog", 2, [b"k1", b"k2"], {1: b"5", 2: None}.values(), 0)
    box.extend("out", 0, [b"c"], [b"3"], [b"p2"], [9], alone=True)

    assert list(box) == [
        ("out", None, b"a", b"1", [(HEADER, b"p0")], 7),
        ("changelog", 2, b"k1", b"5", None, 0),
        ("changelog", 2, b"k2", None, None, 0),
        ("out", None, b"c", b"3", [(HEADER, b"p2")], 9),
    ]
    assert list(box.columns()[4]) == [row[4] for row in box]


def test_columns_of_different_lengths_are_refused() -> None:
    """Taken at once they would end with the shortest, and records would be lost in silence."""
    box = Outbox()
    box.extend("out", 0, [b"a"], [b"1", b"2"], [b"p0", b"p1"], [7, 8], alone=True)

    with pytest.raises(ValueError, match="columns of"):
        box.columns()


def test_rows_are_added_like_one_after_the_other() -> None:
    """With and without a partition; none is none."""
    rows = [("t", None, b"k", b"v", None, 1), ("u", 2, None, None, [("h", b"1")], 3)]
    one, many = mixed(), mixed()
    for row in rows:
        one.add(*row)
    many.extend_rows(rows)
    many.extend_rows([])
    assert list(many) == list(one)
    assert [list(column) for column in many.columns()] == [list(column) for column in one.columns()]

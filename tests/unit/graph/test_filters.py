"""Filters: what passes, how they combine, and what their headers decide alone."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import pytest

from cues_kafka import GraphError, has_header, has_tag, has_type
from cues_kafka.graph.filters import Filter
from cues_kafka.ports.log import Headers


def received(value: Any, **headers: str | None) -> Any:
    """A message; `cues-` is put before the names of its headers."""
    pairs = [(f"cues-{name}", None if text is None else text.encode()) for name, text in headers.items()]
    return SimpleNamespace(value=value, headers=pairs)


@pytest.mark.parametrize(
    ("message", "passes"),
    [
        (received(1), True),
        (received("text"), False),
        (received({"type": "order"}), True),
        (received({"type": "refund"}), False),
        (received("text", type="order"), True),
        (received({"type": "order"}, type="refund"), False),
        (received(SimpleNamespace(type="order")), True),
        (received(None), False),
    ],
)
def test_has_type_looks_at_class_header_and_field(message: Any, passes: bool) -> None:
    """The header wins over the field."""
    assert passes == has_type(int, "order")(message)


@pytest.mark.parametrize(
    ("message", "passes"),
    [
        (received(1, tags="audit,eu"), True),
        (received(1, tags="auditor"), False),
        (received({"tags": ["audit"]}, tags="eu"), False),
        (received({"tags": ["audit"]}), True),
        (received({"tags": "audit"}), True),
        (received({"tags": "auditor"}), False),
        (received({"tags": {"eu": 1}}), False),
        (received({"tags": {"us": {"since": 2020}}}), True),
        (received({"tags": {"us": False, "audit": None}}), False),
        (received({"tags": {"us": False, "audit": True}}), True),
        (received({"tags": 3}), False),
        (received(None), False),
    ],
)
def test_has_tag_looks_at_header_and_field(message: Any, passes: bool) -> None:
    """One common tag is enough; in a mapping its value must be true, as in Cues' topics."""
    assert passes == has_tag("audit", "us")(message)


@pytest.mark.parametrize(
    ("value", "passes"), [(None, True), ("eu", True), (b"us", True), ("", False), ("e", False), (b"\xff", False)]
)
def test_has_header_compares_any_header_of_the_name(value: str | bytes | None, passes: bool) -> None:
    """Text as UTF-8."""
    message = SimpleNamespace(value=1, headers=[("region", None), ("region", b"eu"), ("region", b"us")])

    assert has_header("region", value)(message) == passes
    assert has_header("region", value).by_headers(message.headers) == passes
    assert not has_header("regions", value)(message)
    assert not has_header("region", value)(SimpleNamespace(value=1, headers=None))


def is_seven(message: Any) -> bool:
    return bool(message.value == 7)


A, B, C = has_header("a"), has_header("b"), has_header("c")


@pytest.mark.parametrize(
    ("combined", "expected"),
    [
        (A & B, lambda a, b, c: a and b),
        (A | B, lambda a, b, c: a or b),
        (~A, lambda a, b, c: not a),
        (A & B | ~C, lambda a, b, c: (a and b) or not c),
        (A & (B | C), lambda a, b, c: a and (b or c)),
        (~(A & ~B) & C, lambda a, b, c: not (a and not b) and c),
        (A & B & C, lambda a, b, c: a and b and c),
    ],
)
def test_filters_combine_as_sets_do(combined: Filter, expected: Any) -> None:
    """All eight messages; before decoding and after it, the answer is the same."""
    for present in itertools.product([False, True], repeat=3):
        headers: Headers = [(name, b"") for name, there in zip("abc", present, strict=True) if there]
        assert combined(SimpleNamespace(value=1, headers=headers)) == expected(*present)
        assert combined.by_headers(headers) == expected(*present)


@pytest.mark.parametrize(
    ("combined", "decided"),
    [
        (A & is_seven, None),
        (B & is_seven, False),
        (is_seven & A, None),
        (is_seven & B, False),
        (A | is_seven, True),
        (is_seven | B, None),
        (~(A & has_type(int)), None),
        (~(B & has_type(int)), True),
        (has_type("order"), True),
        (has_type("refund"), None),
        (has_type(int), None),
        (has_tag("eu"), True),
        (has_tag("us"), False),
        (~has_tag("us") & A, True),
    ],
)
def test_headers_decide_what_they_can(combined: Filter, decided: bool | None) -> None:
    """A type may still be that of the value; tags are those of the header where there is one."""
    assert combined.by_headers([("a", None), ("cues-type", b"order"), ("cues-tags", b"eu,audit")]) is decided


def test_without_a_header_the_value_decides() -> None:
    """Of its tags and its type."""
    assert has_tag("eu").by_headers([]) is None
    assert has_type("order").by_headers([]) is None


def test_equal_combinations_are_equal() -> None:
    """However they were written: filters are data."""
    assert A & (B & C) == (A & B) & C == A & B & C
    assert A | (B | C) == A | B | C
    assert {A & B | C}.isdisjoint({A & (B | C)})
    assert ~~A == A
    assert has_type("a") & has_tag("b") | ~A == has_type("a") & has_tag("b") | ~A
    assert len({A & B, A & B, B & A}) == 2


def test_a_filter_that_stands_first_is_asked_first() -> None:
    """So a function may rely on the filter in front of it."""
    both = has_type(int) & (lambda one: one.value > 5)

    assert both(received(7))
    assert not both(received("x"))


@pytest.mark.parametrize("wrong", [lambda: A and B, lambda: A or B, lambda: not A, lambda: bool(A & B)])
def test_the_words_of_python_do_not_combine_filters(wrong: Any) -> None:
    """`a and b` would be b alone, without a word."""
    with pytest.raises(GraphError, match="a & b"):
        wrong()

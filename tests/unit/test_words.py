"""Plurals and articles."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from cues_kafka.words import article, count

PACKAGE = Path(__file__).parents[2] / "cues_kafka"


@pytest.mark.parametrize(
    ("number", "words"), [(0, "0 tasks"), (1, "1 task"), (2, "2 tasks"), (10_000, "10,000 tasks"), (-1, "-1 tasks")]
)
def test_a_noun_follows_its_number(number: int, words: str) -> None:
    """Only one is singular."""
    assert count(number, "task") == words


def test_an_irregular_plural_is_given() -> None:
    """The helper guesses nothing."""
    assert (count(1, "anomaly", "anomalies"), count(2, "anomaly", "anomalies")) == ("1 anomaly", "2 anomalies")


def test_an_article_fits_its_noun() -> None:
    """Of names of types."""
    assert [article(noun) for noun in ("int", "Graph", "Annotated", "str")] == [
        "an int", "a Graph", "an Annotated", "a str",
    ]  # fmt: skip


def test_no_text_of_the_program_has_a_plural_in_brackets() -> None:
    """`1 task(s)` is no English."""
    found = [
        f"{path.relative_to(PACKAGE)}:{node.lineno}: {node.value}"
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and "(s)" in node.value
    ]

    assert found == []

"""docs/install.md against pyproject.toml and against what is installed."""

from __future__ import annotations

import re

import pytest

from cues_kafka.extras import LMDB, PSYCOPG, missing
from tests.install.extras import FOR, PAGE, Measured, measure, project, row, written

DIGITS = 0.15
"""By how much a size may differ: wheels of other versions of Python are a little larger or smaller."""


@pytest.fixture(scope="module")
def measured() -> dict[str, Measured]:
    """What is installed here."""
    return measure()


def test_the_table_has_a_row_for_the_core_and_for_each_extra() -> None:
    """In the order of their names, each with what it is for."""
    names = ["", *sorted(project()["optional-dependencies"])]

    assert list(written()) == names
    assert sorted(FOR) == names
    assert {name: cells[0] for name, cells in written().items()} == dict(FOR)


def test_the_table_names_what_each_extra_brings(measured: dict[str, Measured]) -> None:
    """`python -m tests.install.extras --write` writes it again."""
    assert {name: cells[1] for name, cells in written().items()} == {
        name: ", ".join(one.direct) for name, one in measured.items()
    }


def test_the_sizes_in_the_table_are_those_of_what_is_installed(measured: dict[str, Measured]) -> None:
    """`python -m tests.install.extras --write` measures again; an extra that cannot be built here is left out."""
    complete = {name: one for name, one in measured.items() if not one.missing}

    assert {*measured} - {*complete} <= {"amqp", "ibmmq"}
    for name, one in complete.items():
        said = float(re.fullmatch(r"([\d.]+) MB", written()[name][3])[1]) * 1e6  # type: ignore[index]
        assert abs(one.size - said) <= max(DIGITS * said, 100_000), row(name, one)


def test_the_page_shows_the_sentence_about_missing_packages_as_it_is() -> None:
    """With two of them."""
    said = missing("graph 'shop'", PSYCOPG, LMDB)

    assert f"\ncues-kafka: {said}\n" in PAGE.read_text(encoding="utf-8")

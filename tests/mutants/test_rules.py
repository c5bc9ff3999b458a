"""The list of mutants of the shell fits the code, and the command that runs them can fail."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.mutants.__main__ import RESULTS, ROOT, mutated, results
from tests.mutants.rules import MUTANTS, Mutant


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.rule)
def test_a_mutant_changes_one_place_of_the_code_and_names_tests(mutant: Mutant) -> None:
    """A rule that has moved on would be taken out of nothing."""
    mutated(mutant, (ROOT / mutant.file).read_text(encoding="utf-8"))
    assert all((ROOT / test.partition("::")[0]).is_file() for test in mutant.tests)


def test_every_rule_was_taken_out_and_caught() -> None:
    """A mutant that is listed and was never run, or survived, has no line in the results."""
    found = json.loads((ROOT / "docs/proof" / RESULTS).read_text(encoding="utf-8"))

    assert [one["rule"] for one in found] == [mutant.rule for mutant in MUTANTS]
    assert all("::" in one["caught by"] or "time" in one["caught by"] for one in found)


@pytest.mark.parametrize("caught", [None, "tests/a.py::test_a"])
def test_a_mutant_is_caught_by_what_fails_with_it_alone(tmp_path: Path, caught: str | None) -> None:
    """Each file is as it was when the next mutant is made."""
    (tmp_path / "pyproject.toml").write_text("a = 1\n", encoding="utf-8")
    mutant = Mutant("a is 1", "pyproject.toml", "a = 1", "a = 2", ("tests",))
    seen: list[str] = []

    def run(tree: Path, tests: Sequence[str]) -> str | None:
        seen.append((tree / "pyproject.toml").read_text(encoding="utf-8"))
        return caught if "2" in seen[-1] else None

    [found] = results([mutant], tmp_path, run)

    assert found["caught by"] == caught
    assert seen == ["a = 1\n", "a = 2\n"]
    assert (tmp_path / "pyproject.toml").read_text(encoding="utf-8") == "a = 1\n"


def test_tests_that_fail_without_a_mutant_catch_none(tmp_path: Path) -> None:
    """They would catch anything."""
    mutant = Mutant("a is 1", "pyproject.toml", "a = 1", "a = 2", ("tests",))

    with pytest.raises(RuntimeError, match="fails without any mutant"):
        list(results([mutant], tmp_path, lambda *_: "tests/a.py::test_a"))

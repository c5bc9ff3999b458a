"""The list of mutants of the shell fits the code, and the command that runs them can fail."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.mutants.__main__ import RESULTS, ROOT, catching, digest, results, written
from tests.mutants.code import Code
from tests.mutants.edits import Replace
from tests.mutants.mutant import Mutant
from tests.mutants.rules import MUTANTS

MUTANT = Mutant("a is 1", "f", Replace("1", "2"), ("tests/test_a.py",))

BEFORE = "def f():\n    return 1\n"


@pytest.fixture(scope="module")
def code() -> Code:
    """The package."""
    return Code(ROOT)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A package of one function, with a test."""
    (tmp_path / "cues_kafka").mkdir()
    (tmp_path / "cues_kafka" / "a.py").write_text(BEFORE, encoding="utf-8")
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_a.py").write_text("assert True\n", encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.rule)
def test_a_mutant_changes_one_place_of_the_code_and_names_tests(mutant: Mutant, code: Code) -> None:
    """A rule that has moved on would be taken out of nothing."""
    compile(code.mutated(mutant).text, mutant.rule, "exec")
    assert all((ROOT / test.partition("::")[0]).is_file() for test in mutant.tests)


def test_no_two_mutants_have_one_name() -> None:
    """A result is found by it."""
    assert len({mutant.rule for mutant in MUTANTS}) == len(MUTANTS)


def test_every_rule_was_taken_out_and_caught() -> None:
    """A mutant that is listed and was never run, or survived, has no line in the results."""
    found = json.loads((ROOT / "docs/proof" / RESULTS).read_text(encoding="utf-8"))

    assert [one["rule"] for one in found] == [mutant.rule for mutant in MUTANTS]
    assert all("::" in one["caught by"] or "time" in one["caught by"] for one in found)


@pytest.mark.parametrize("caught", [None, "tests/a.py::test_a"])
def test_a_mutant_is_caught_by_what_fails_with_it_alone(tree: Path, caught: str | None) -> None:
    """Each file is as it was when the next mutant is made."""
    file = tree / "cues_kafka" / "a.py"
    seen: list[str] = []

    def run(_: Path, tests: Sequence[str]) -> str | None:
        seen.append(file.read_text(encoding="utf-8"))
        return caught if "2" in seen[-1] else None

    [found] = results([MUTANT], tree, run)

    assert found["caught by"] == caught
    assert found["file"] == "cues_kafka/a.py"
    assert seen == [BEFORE, BEFORE.replace("1", "(2)")]
    assert file.read_text(encoding="utf-8") == BEFORE


def test_tests_that_fail_without_a_mutant_catch_none(tree: Path) -> None:
    """They would catch anything."""
    with pytest.raises(RuntimeError, match="fails without any mutant"):
        list(results([MUTANT], tree, lambda *_: "tests/a.py::test_a"))


@pytest.mark.parametrize(
    ("file", "text", "stays"),
    [
        ("cues_kafka/a.py", f'"""A module."""\n\n\n{BEFORE}', True),
        ("cues_kafka/a.py", f"import os\n{BEFORE}", False),
        ("tests/test_a.py", "assert True  # as always\n", True),
        ("tests/test_a.py", "assert False\n", False),
    ],
)
def test_result_holds_for_the_same_programs(tree: Path, file: str, text: str, *, stays: bool) -> None:
    """Of the whole file, for other code in it may guard the rule, and of the tests."""
    before = digest(MUTANT, Code(tree).mutated(MUTANT), tree)
    (tree / file).write_text(text, encoding="utf-8")

    assert (digest(MUTANT, Code(tree).mutated(MUTANT), tree) == before) is stays


def test_result_does_not_hold_for_another_edit_or_another_test(tree: Path) -> None:
    """They are another mutant, and another way to find it."""
    code = Code(tree)
    others = [replace(MUTANT, edit=Replace("1", "3")), replace(MUTANT, tests=("tests/test_a.py::test_b",))]

    assert len({digest(one, code.mutated(one), tree) for one in (MUTANT, *others)}) == 3


def test_test_that_caught_a_mutant_before_comes_first_and_alone(tree: Path) -> None:
    """Only where it passes with the mutant do all tests run, and first without the mutant."""
    former = {MUTANT.rule: {"caught by": "tests/test_a.py::test_a[1-a"}}
    (tree / "tests/test_a.py").write_text("def test_a(): ...\n", encoding="utf-8")
    ran: list[tuple[str, ...]] = []

    def run(_: Path, tests: Sequence[str]) -> str | None:
        ran.append(tuple(tests))
        return None

    first = catching([MUTANT], tree, run, former)
    [found] = results([MUTANT], tree, run, first)

    alone = ("tests/test_a.py::test_a",)
    assert found["caught by"] is None
    assert ran == [alone, alone, MUTANT.tests, MUTANT.tests]


@pytest.mark.parametrize("name", ["tests/test_a.py::test_gone", "tests/test_b.py::test_a", "a test's time-out"])
def test_test_that_is_gone_or_not_of_the_mutant_does_not_come_first(tree: Path, name: str) -> None:
    """Then all tests of the mutant run, as if it was never caught."""
    assert not catching([MUTANT], tree, lambda *_: None, {MUTANT.rule: {"caught by": name}})


def test_each_text_of_a_file_has_a_time_of_its_own(tree: Path) -> None:
    """Compiled code of a mutant of the same size would stay in use."""
    file = tree / "cues_kafka/a.py"
    before = file.stat().st_mtime
    seen = []
    for text in ("A = 2\n", "A = 3\n"):
        with written(file, text):
            seen.append(int(file.stat().st_mtime))

    assert len({*seen, int(before)}) == 3
    assert file.stat().st_mtime == before

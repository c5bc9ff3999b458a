"""Edits of code as trees find their one place wherever the code stands, change it, and say why where they cannot."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.mutants.code import Code, PlaceError
from tests.mutants.edits import Default, Delete, Edit, Never, Replace, Text, Without
from tests.mutants.mutant import Mutant

LANE = '''"""A lane."""

import time
from a.errors import FencedError, StoppedError

LIMITS = {"first": 1, "second": 2}


class Lane:
    """Steps."""

    def work(self, task, *, stable=True):
        """One step."""
        begun = time.monotonic()  # seconds
        if task.settled and not self._closed:
            return None
        elif task.owner > self._owner:
            raise FencedError(f"{task} is of {task.owner}")
        for step in task.steps:
            self._write(step, flush=stable)
            self._count += 1
        try:
            self._tell(begun)
        finally:
            self._close()
        return f"SELECT a FROM {self._table} WHERE a = ? AND b < {begun}"


def limit(lane):
    """A limit."""
    return lane.first or lane.second
'''

RULE = Replace("$task.owner > self._owner", "$task.owner >= self._owner")


def package(root: Path, **modules: str) -> Code:
    """Code in files of these names."""
    (root / "a").mkdir(exist_ok=True)
    for file in (root / "a").iterdir():
        file.unlink()
    for name, text in modules.items():
        (root / "a" / f"{name}.py").write_text(text, encoding="utf-8")
    return Code(root, "a")


def changed(code: Code, edit: Edit, at: str = "work") -> str:
    """The file of a mutant's place, as Python writes it."""
    return ast.unparse(code.mutated(Mutant("a rule", at, edit, ())).tree)


def replaced(old: str, new: str) -> str:
    """The lane with one piece of text in place of another one, as Python writes it."""
    assert LANE.count(old) == 1
    return ast.unparse(ast.parse(LANE.replace(old, new)))


@pytest.mark.parametrize(
    ("edit", "old", "new"),
    [
        (RULE, "task.owner > self._owner", "task.owner >= self._owner"),
        (Never("$task.owner > self._owner"), "task.owner > self._owner", "False"),
        (Without("not self._closed"), " and not self._closed", ""),
        (Without("flush=$flush"), ", flush=stable", ""),
        (Without("begun"), "_tell(begun)", "_tell()"),
        (Delete("self._count += 1"), "            self._count += 1\n", ""),
        (Delete("self._tell($begun)"), "self._tell(begun)", "pass"),
        (
            Delete("self._write(...)\nself._count += 1"),
            "self._write(step, flush=stable)\n            self._count += 1",
            "pass",
        ),
        (Replace("self._count += 1", "pass"), "self._count += 1", "pass"),
        (Replace("self._close()", "self._write(0)\n$it"), "self._close()", "self._write(0)\n            self._close()"),
        (Replace("not self._closed", "not $it"), "not self._closed", "not (not self._closed)"),
        (Replace("raise FencedError($text)", "raise StoppedError($text)"), "raise FencedError", "raise StoppedError"),
        (Default("stable", "False"), "stable=True", "stable=False"),
        (Text(" AND b < {begun}", ""), " AND b < {begun}", ""),
        (
            Replace("try:\n    $told\nfinally:\n    $closed", "$closed\n$told"),
            "        try:\n            self._tell(begun)\n        finally:\n            self._close()\n",
            "        self._close()\n        self._tell(begun)\n",
        ),
        (
            Replace("for $step in $steps:\n    $*work", "for $step in $steps[:1]:\n    $*work"),
            "in task.steps:",
            "in task.steps[:1]:",
        ),
    ],
)
def test_edit_changes_what_it_names(tmp_path: Path, edit: Edit, old: str, new: str) -> None:
    """The rest of the file is as it was."""
    assert changed(package(tmp_path, lane=LANE), edit) == replaced(old, new)


@pytest.mark.parametrize(
    ("at", "edit", "old", "new"),
    [
        ("limit", Without("$lane.first"), "lane.first or lane.second", "lane.second"),
        ("LIMITS", Without("'second'"), ', "second": 2', ""),
        ("Lane.work", RULE, "task.owner > self._owner", "task.owner >= self._owner"),
        ("a.lane.Lane.work", RULE, "task.owner > self._owner", "task.owner >= self._owner"),
    ],
)
def test_place_is_the_end_of_a_qualified_name(tmp_path: Path, at: str, edit: Edit, old: str, new: str) -> None:
    """Of a function, a method, a class or a name with a value."""
    assert changed(package(tmp_path, lane=LANE), edit, at) == replaced(old, new)


def test_text_around_an_edit_stays_as_it_is(tmp_path: Path) -> None:
    """A test that reads the code, or a line number, sees no other difference."""
    text = package(tmp_path, lane=LANE).mutated(Mutant("a rule", "work", RULE, ())).text

    assert text == LANE.replace("task.owner > self._owner", "(task.owner >= self._owner)")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("task.owner > self._owner", "(  # fenced\n            task.owner\n            > self._owner\n        )"),
        ("self._owner", "self.owner"),
        ("self._owner", "self._lane.record.owner"),
        ("class Lane:", "class Filling:"),
        ("    def work(", "    def _work("),
        ("        begun = time", "        ahead = 1\n        begun = time"),
    ],
)
def test_refactored_code_keeps_its_mutant(tmp_path: Path, old: str, new: str) -> None:
    """Layout, comments, another class, another receiver, and what becomes public."""
    code = package(tmp_path, lane=LANE.replace(old, new) if "_owner" not in old or "\n" in new else LANE)
    if old == "self._owner":
        code = package(tmp_path, lane=LANE.replace(old, new))

    owner = new if old == "self._owner" else "self._owner"
    assert f"elif task.owner >= {owner}:" in changed(code, RULE)


def test_renamed_local_variable_keeps_its_mutant(tmp_path: Path) -> None:
    """A hole stands for its name."""
    code = package(tmp_path, lane=LANE.replace("task", "work_item"))

    assert "elif work_item.owner >= self._owner:" in changed(code, RULE)


def test_moved_function_keeps_its_mutant(tmp_path: Path) -> None:
    """To another module, out of its class."""
    function = (
        LANE[LANE.index("    def work") : LANE.index("def limit")].replace("\n    ", "\n").replace("    def", "def", 1)
    )
    code = package(tmp_path, lane=LANE.replace("def work", "def other"), filling=f"import time\n\n{function}")
    rule = Mutant("a rule", "filling.work", RULE, ())

    assert code.mutated(rule).path == Path("a/filling.py")
    assert "task.owner >= self._owner" in code.mutated(rule).text


def test_pattern_that_is_gone_is_an_error_with_the_nearest_code(tmp_path: Path) -> None:
    """It names the rule, what reads nearly so there, and where the pattern is found otherwise."""
    code = package(tmp_path, lane=LANE.replace("task.owner >", "task.holder >"))

    with pytest.raises(
        PlaceError, match=r"(?s)^a rule: .* not found in a\.lane\.Lane\.work\..*lane\.py:17: task\.holder > "
    ):
        code.mutated(Mutant("a rule", "work", RULE, ()))


def test_name_that_is_gone_is_an_error_with_the_nearest_names(tmp_path: Path) -> None:
    """And with the place of the pattern, which is the new name in most cases."""
    code = package(tmp_path, lane=LANE.replace("def work", "def works"))

    with pytest.raises(
        PlaceError,
        match=r"(?s)^a rule: .*'work'.*- a\.lane\.Lane\.works\n.*elsewhere:\n- a\.lane\.Lane\.works \(a/lane\.py:17\)",
    ):
        code.mutated(Mutant("a rule", "work", RULE, ()))


def test_pattern_that_is_found_twice_is_an_error_with_both_places(tmp_path: Path) -> None:
    """A mutant takes one rule out."""
    code = package(tmp_path, lane=LANE, other=LANE)

    with pytest.raises(PlaceError, match=r"(?s)^a rule: .*2 times.*a\.lane\.Lane\.work \(.*a\.other\.Lane\.work \("):
        code.mutated(Mutant("a rule", "work", RULE, ()))
    assert "task.owner >= self._owner" in changed(code, RULE, "other.Lane.work")


def test_hole_that_occurs_twice_stands_for_the_same(tmp_path: Path) -> None:
    """Both times."""
    code = package(tmp_path, a="def f(one, two):\n    return one.a + one.b, two.a + one.b\n")

    assert "(0, two.a + one.b)" in changed(code, Replace("$x.a + $x.b", "0"), "f")


def test_edit_that_changes_nothing_is_an_error(tmp_path: Path) -> None:
    """Its tests would pass, whatever they check."""
    with pytest.raises(PlaceError, match=r"a rule: .* changes nothing"):
        changed(package(tmp_path, lane=LANE), Replace("$task.owner > self._owner", "$task.owner > self._owner"))


@pytest.mark.parametrize("new", ["job.owner > 1", "$task.rank_of_owner > 1"])
def test_new_code_with_a_name_that_is_not_there_is_an_error(tmp_path: Path, new: str) -> None:
    """A test would fail because of the name, and not because the rule is gone."""
    with pytest.raises(PlaceError, match=r"has names that are not there: .*(job|rank_of_owner)"):
        changed(package(tmp_path, lane=LANE), Replace("$task.owner > self._owner", new))


def test_hole_that_the_pattern_does_not_have_is_an_error(tmp_path: Path) -> None:
    """Nothing could stand there."""
    with pytest.raises(ValueError, match=r"\$other is not in the pattern"):
        changed(package(tmp_path, lane=LANE), Replace("$task.owner > self._owner", "$other"))

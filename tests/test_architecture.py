"""docs/architecture.md: the picture is drawn from the code, and the walks go through files and functions that exist."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest

from tests.test_layers import PACKAGE, RANK, RANKS, imports, modules

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "architecture.md"

STEP = re.compile(r"^(\d+)\. `(cues_kafka/[\w/]+\.py)`((?:, `[\w.]+`)+): ", re.MULTILINE)


def packages() -> list[list[str]]:
    """By rank, the packages and modules of the table that are there."""
    found = [sorted(n for n in names if (PACKAGE / n).is_dir() or (PACKAGE / f"{n}.py").is_file()) for names in RANKS]
    return [names for names in found if names]


def arrows() -> dict[str, set[str]]:
    """What each package imports, without what follows from other imports."""
    direct: dict[str, set[str]] = defaultdict(set)
    for module, path in modules():
        own = module.split(".")[1] if "." in module else ""
        for _, name in imports(module, path.read_text(encoding="utf-8"), is_package=path.name == "__init__.py"):
            parts = name.split(".")
            if own in RANK and parts[0] == "cues_kafka" and len(parts) > 1 and parts[1] in RANK.keys() - {own}:
                direct[own].add(parts[1])

    def reached(package: str) -> set[str]:
        return set().union(*({one, *reached(one)} for one in direct[package]))

    return {own: targets - set().union(*map(reached, targets)) for own, targets in list(direct.items())}


def picture() -> str:
    """The packages in Mermaid, the outermost first."""
    lines = ["flowchart TD"]
    for number, names in enumerate(reversed(packages())):
        lines += [f'    subgraph rank{number} [" "]', *(f"        {name}" for name in names), "    end"]
    found = arrows()
    drawn = [name for names in reversed(packages()) for name in names]
    lines += [f"    {own} --> {target}" for own in drawn for target in drawn if target in found.get(own, ())]
    return "\n".join(lines)


@cache
def walks() -> dict[str, list[tuple[str, str, list[str]]]]:
    """By title, the steps of a walk: number, file, functions."""
    parts = re.split(r"^## (.*)$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    found = {
        title: [(number, file, re.findall(r"`([\w.]+)`", names)) for number, file, names in STEP.findall(text)]
        for title, text in zip(parts[1::2], parts[2::2], strict=True)
    }
    return {title: steps for title, steps in found.items() if steps}


@cache
def names_in(file: str) -> set[str]:
    """Functions and classes of a module, methods with their class in front."""
    found = set()
    for node in ast.parse((ROOT / file).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{inner.name}" for inner in node.body if isinstance(inner, ast.FunctionDef)}
    return found


def test_the_picture_of_the_packages_is_that_of_the_layers() -> None:
    """Print `picture()` and put that into the page when this fails."""
    [shown] = re.findall(r"^```mermaid\n(.*?)\n```$", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)

    assert shown == picture()


def test_every_package_is_in_the_table_of_the_page() -> None:
    """A package that is not explained is not found."""
    table = PAGE.read_text(encoding="utf-8").split("| package | what is in it |")[1].split("\n\n")[0]
    named = set(re.findall(r"`(\w+)`", "\n".join(row.split("|")[1] for row in table.splitlines() if row)))

    assert named == {name for names in packages() for name in names}


def test_there_are_five_walks_whose_steps_are_numbered() -> None:
    """Every numbered line is a step: a file, a function, what happens."""
    lines = re.findall(r"^\d+\. ", PAGE.read_text(encoding="utf-8"), re.MULTILINE)

    assert list(walks()) == [
        "One message", "A direct batch on Spark", "A staged batch on Spark", "A recovery", "An error message",
    ]  # fmt: skip
    assert len(lines) == sum(map(len, walks().values()))
    assert all(
        [number for number, _, _ in steps] == list(map(str, range(1, len(steps) + 1))) for steps in walks().values()
    )
    assert all(10 <= len(steps) <= 20 for steps in walks().values())


@pytest.mark.parametrize("walk", walks())
def test_a_walk_goes_through_functions_that_exist(walk: str) -> None:
    """In the files that are named."""
    missing = [f"{file}: {name}" for _, file, names in walks()[walk] for name in names if name not in names_in(file)]

    assert missing == []

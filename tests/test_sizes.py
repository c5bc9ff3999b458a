"""How large a room's files, classes and functions may be, and that a lane and a caller name no capability."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from cues_kafka.task.parts import participant
from cues_kafka.task.parts.order import ORDER

ROOT: Final = Path(__file__).parents[1]
PACKAGE: Final = ROOT / "cues_kafka"

MOST: Final = {"file": 500, "class": 400, "methods": 30, "function": 60}
"""Lines, and the number of methods."""

CAPABILITIES: Final = re.compile("(store|table|handler|target|tailer|timer|replay|span|journal|trail|hand)s?")
"""Words of what takes part in steps, which is in `task/parts`."""


@cache
def sizes() -> dict[str, int]:
    """By `kind path::name`, all that is larger than `MOST`."""
    found: dict[str, int] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        name = str(path.relative_to(PACKAGE))
        found[f"file {name}"] = text.count("\n")
        for owner, node in _definitions(ast.parse(text)):
            lines = (node.end_lineno or 0) - node.lineno + 1
            if isinstance(node, ast.ClassDef):
                found[f"class {name}::{owner}"] = lines
                methods = (ast.FunctionDef, ast.AsyncFunctionDef)
                found[f"methods {name}::{owner}"] = sum(isinstance(one, methods) for one in node.body)
            else:
                found[f"function {name}::{owner}"] = lines
    return {name: size for name, size in found.items() if size > MOST[name.split()[0]]}


def _definitions(
    node: ast.AST, owner: str = ""
) -> Iterator[tuple[str, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Classes and functions with their qualified names."""
    for one in ast.iter_child_nodes(node):
        if isinstance(one, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            name = f"{owner}.{one.name}" if owner else one.name
            yield name, one
            yield from _definitions(one, name)
        else:
            yield from _definitions(one, owner)


def test_the_package_is_in_small_pieces() -> None:
    """No file above 500 lines, class above 400 or 30 methods, function above 60."""
    assert sizes() == {}


@pytest.mark.parametrize(
    ("file", "owner"),
    [("lane.py", "Lane"), ("seen.py", "Seen"), ("filling.py", "Filling"), ("calling/caller.py", "Caller")],
)
def test_a_lane_and_a_caller_name_no_capability(file: str, owner: str) -> None:
    """The next one is one file and one row, and no line of these."""
    tree = ast.parse((PACKAGE / "task" / file).read_text(encoding="utf-8"))
    [found] = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == owner]

    assert sorted(name for name in _names(found) if any(map(CAPABILITIES.fullmatch, _words(name)))) == []


def _words(name: str) -> list[str]:
    """The words of an identifier."""
    return re.sub("([A-Z])", r"_\1", name).lower().split("_")


def _names(node: ast.AST) -> set[str]:
    """All identifiers in a piece of code."""
    found = set()
    for one in ast.walk(node):
        for field in ("id", "attr", "name", "arg"):
            if isinstance(name := getattr(one, field, None), str):
                found.add(name)
    return found


def test_every_participant_has_its_place_in_the_order() -> None:
    """With a reason; and nothing is in the order that does not take part."""
    found = {
        node.name
        for path in (PACKAGE / "task" / "parts").glob("*.py")
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef) and node.name not in BASES and _takes_part(node)
    }

    assert found - VARIANTS.keys() == ORDER.keys()
    assert all(ORDER.values())


BASES: Final = {"Participant", "StepParticipant", "StepSource"}

VARIANTS: Final = {"Placing": "Committing"}
"""Participants that take the place of another one."""


def _takes_part(node: ast.ClassDef) -> bool:
    return any(isinstance(base, ast.Name) and base.id in BASES | VARIANTS.keys() | ORDER.keys() for base in node.bases)


def test_a_plain_pipe_has_no_participant_at_any_moment() -> None:
    """So its loop has no line more than it had without them."""
    at = participant.Moments(())

    assert {name: found for name, found in vars(at).items() if found != ()} == {"flat": True, "side_by_side": True}


def test_a_participant_is_called_at_the_moments_that_it_overrides_alone() -> None:
    """What takes back goes the other way round."""

    class One(participant.StepParticipant):
        def begin_step(self, step: object, received: object) -> None:
            """Does something."""

        def undo_step(self, error: object, step: object) -> None:
            """Does something, too."""

    class Other(One):
        def void(self) -> None:
            """Does something."""

    first, second = One(), Other()
    at = participant.Moments((first, second))

    assert (at.begin_step, at.undo_step, at.void) == ((first, second), (second, first), (second,))
    others = {name: found for name, found in vars(at).items() if name not in ("begin_step", "undo_step", "void")}
    assert {name: found for name, found in others.items() if found not in ((), True)} == {}


def test_every_moment_of_a_participant_is_looked_for() -> None:
    """One that is left out of the lists would never come."""
    moments = {
        name
        for kind in (participant.Participant, participant.StepParticipant)
        for name in vars(kind)
        if not name.startswith("_")
    }

    assert moments - vars(participant.Moments(())).keys() == {"each", "apart", "check", "expect", "outbox", "missed"}

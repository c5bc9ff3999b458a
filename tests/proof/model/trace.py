"""A counterexample as numbered lines, and as a file that can be followed again."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.proof.model.invariants import Invariants
from tests.proof.model.machine import Broken
from tests.proof.model.search import Found, Move, stuck
from tests.proof.model.states import Faults, Setting
from tests.proof.model.worlds import world_of


class Differs(Exception):
    """The file was made by other code: a move is not there any more. Search again."""


def lines(path: Iterable[Move], violated: str) -> Iterator[str]:
    """For people."""
    for number, move in enumerate(path, 1):
        yield f"{number:4}  {move.who:10} {move.what}"
    yield f"      violated: {violated}"


def save(file: Path, setting: Setting, found: Found, mutant: str = "") -> None:
    """Write a counterexample."""
    file.parent.mkdir(parents=True, exist_ok=True)
    content = {"world": asdict(setting), "mutant": mutant, "violated": found.violated, "path": found.path}
    file.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def load(file: Path) -> tuple[Setting, str, list[Move]]:
    """The world of a counterexample, the mutant by name (empty: none), and the path."""
    content: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    world = content["world"]
    world |= {name: tuple(world[name]) for name in ("inputs", "others", "workers")} | {
        "faults": Faults(*world["faults"])
    }
    return Setting(**world), content["mutant"], [Move(*move) for move in content["path"]]


def follow(setting: Setting, path: Iterable[Move]) -> str:
    """
    Go along a path, with the code as it is now.

    Returns:
        What is violated at its end; empty: nothing.

    Raises:
        Differs: the path does not exist any more.
    """
    world = world_of(setting)
    state = world.first()
    for line, move in enumerate(path, 1):
        moves = world.moves(state)
        if move.number >= len(moves) or moves[move.number][0] != (move.who, move.what):
            raise Differs(f"line {line}, {move.who} {move.what!r}, cannot happen any more: search anew")
        state = moves[move.number][2]
    try:
        return Invariants(world).violated(state) or stuck(world, state, world.moves(state), set())
    except Broken as broken:
        return str(broken)

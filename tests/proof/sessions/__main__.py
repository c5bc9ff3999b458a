"""Explore the worlds of joint sessions and their mutants; go on where the last run was stopped."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests.proof import subjects
from tests.proof.model import trace
from tests.proof.model.mutant import applied
from tests.proof.model.search import Found
from tests.proof.model.worlds import LEVELS
from tests.proof.sessions.mutants import COVERED, MUTANTS, JointMutant
from tests.proof.sessions.search import JointSearch
from tests.proof.sessions.walks import Walks
from tests.proof.sessions.worlds import WORLDS, with_faults, world_of

FILE, PAGE = "sessions.json", "sessions.md"

INTRODUCTION = (
    "Written by `make proof-sessions`, which explores [J1 to J9](../protocol.md#j-joint-sessions). No worker does them "
    "yet; what it says is in [proof.md](../proof.md#joint-sessions)."
)

FAULTS = (
    "Faults are how many come together. Of the states that are judged it is known, too, that everything is delivered "
    "and nothing stays open once the faults end."
)

OUT_OF_DATE = "A star marks what was found with an earlier state of the code, and was not looked at again since."

JUDGED = 5_000
"""Of how many states progress is judged where nothing else is asked for: it costs more than the states."""

Kept = dict[str, Any]


MOST = 400_000
"""States of a mutant, unless it is said."""


class Bound(NamedTuple):
    """How many states are looked at, and of how many of them progress is judged."""

    states: int | None
    judged: int


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; its result is the exit status."""
    options = _parser().parse_args(arguments)
    kept: Kept = {}
    if options.write and (file := options.write / FILE).exists():
        kept = _still_named(json.loads(file.read_text(encoding="utf-8")))
    wrong = 0
    if options.walks:
        for name in options.world or WORLDS:
            wrong += _walked(name, options.level, options.walks)
    elif not options.mutants:
        for name in options.world or WORLDS:
            wrong += _explored(name, options.level, Bound(options.states, options.judged), kept)
            _write(options.write, kept)
    else:
        for mutant, by in [*((one, "") for one in MUTANTS), *COVERED]:
            if options.only in {None, mutant.name}:
                bound = Bound(options.states, options.judged)
                wrong += _tried(mutant, by, bound, kept, shows=bool(options.only))
                _write(options.write, kept)
    return min(wrong, 1)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.proof.sessions", description=__doc__)
    parser.add_argument("--world", action="append", choices=list(WORLDS), help="only this one; may be repeated")
    parser.add_argument("--level", type=int, choices=list(LEVELS), default=1, help="how many faults together")
    parser.add_argument("--states", type=int, help="stop a search after this number")
    parser.add_argument("--judged", type=int, default=JUDGED, help="judge progress of these nearest states")
    parser.add_argument("--walks", type=int, metavar="N", help="make this many random walks in each world instead")
    parser.add_argument("--mutants", action="store_true", help="try each mutant instead; fails when one survives")
    parser.add_argument("--only", metavar="NAME", help="only this mutant, with its counterexample")
    parser.add_argument("--write", type=Path, metavar="FOLDER", help=f"keep results in {FILE} and {PAGE} there")
    return parser


def _still_named(kept: Kept) -> Kept:
    """What is kept of worlds and mutants that are there; that of another code is kept until it is made again."""
    names = {"worlds": {*WORLDS}, "mutants": {one.name for one in (*MUTANTS, *(one for one, _ in COVERED))}}
    return {
        kind: {name: one for name, one in found.items() if (one["world"] if kind == "worlds" else name) in names[kind]}
        for kind, found in kept.items()
    }


def _is_current(kind: str, found: Mapping[str, Any]) -> bool:
    """Whether a result is about the code of now."""
    return bool(found["digest"] == subjects.sessions(mutants=kind == "mutants"))


def _known(kept: Kept, kind: str, name: str, bound: Bound) -> Mapping[str, Any] | None:
    found = kept.get(kind, {}).get(name)
    if found is None or not _is_current(kind, found):
        return None
    enough = found["complete"] or (bound.states is not None and found["states"] >= bound.states)
    judged = not found["judged"] or found["judged"] >= min(bound.judged, found["states"])
    return found if found["violated"] or (enough and judged) else None


def _keep(kept: Kept, kind: str, name: str, found: Found, **more: Any) -> None:
    shown = {key: getattr(found, key) for key in ("states", "transitions", "depth", "complete", "violated")}
    steps = [f"{move.who}: {move.what}" for move in found.path]
    about = {"digest": subjects.sessions(mutants=kind == "mutants"), "seconds": round(found.seconds)}
    kept.setdefault(kind, {})[name] = about | shown | more | {"path": steps}


def _explored(name: str, level: int, bound: Bound, kept: Kept) -> int:
    key = f"{name}, {level}"
    if known := _known(kept, "worlds", key, bound):
        print(f"{key:24}{known['states']:10,}  is there already, from the same code")
        return 0
    search = JointSearch(
        world_of(with_faults(name, LEVELS[level])), limit=bound.states, nearest=bound.judged, turns=True
    )
    found = search.run()
    verdict = found.violated or ("all states" if found.complete else "the nearest states")
    print(f"{key:24}{found.states:10,}{found.depth:5}{found.seconds:8.0f} s  {verdict}", flush=True)
    if found.violated:
        print(*trace.lines(found.path, found.violated), sep="\n")
    about = WORLDS[name].about
    _keep(kept, "worlds", key, found, about=about, world=name, faults=level, judged=search.judged)
    return bool(found.violated)


def _walked(name: str, level: int, number: int) -> int:
    """Random walks are not kept: another number is another look."""
    found = Walks(world_of(with_faults(name, LEVELS[level]))).run_all(range(number))
    print(
        f"{name:24}{found.states:10,}{found.depth:5}{found.seconds:8.0f} s  {found.violated or 'nothing'}", flush=True
    )
    if found.violated:
        print(*trace.lines(found.path, found.violated), sep="\n")
    return bool(found.violated)


def _tried(mutant: JointMutant, by: str, bound: Bound, kept: Kept, *, shows: bool) -> int:
    if not shows and _known(kept, "mutants", mutant.name, bound):
        return 0
    with applied(*mutant.patches):
        search = mutant.search(bound.states or MOST, bound.judged if by else None)
        found = search.run()
    print(
        f"{mutant.name[:60]:60}{found.states:10,}{found.depth:5}{found.seconds:8.0f} s  {found.violated[:80]}",
        flush=True,
    )
    if shows or (by and found.violated):
        print(*trace.lines(found.path, found.violated), sep="\n")
    about = {"world": mutant.world, "faults": mutant.faults._asdict(), "by": by, "judged": search.judged}
    _keep(kept, "mutants", mutant.name, found, **about)
    return bool(found.violated) == bool(by)


def _write(folder: Path | None, kept: Kept) -> None:
    if folder:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / FILE).write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        (folder / PAGE).write_text(page(kept), encoding="utf-8")


def page(kept: Kept) -> str:
    """The results in Markdown."""
    worlds, mutants = kept.get("worlds", {}), kept.get("mutants", {})
    lines = [
        "# Joint sessions",
        "",
        INTRODUCTION,
        "",
        FAULTS,
        "",
        OUT_OF_DATE,
        "",
        "| world | faults | states | transitions | depth | judged | seen | what it is |",
        "|---|---|---|---|---|---|---|---|",
        *(
            f"| {one['world']}{_age('worlds', one)} | {one['faults']} | {one['states']:,} | {one['transitions']:,} "
            f"| {one['depth']} | {one['judged']:,} | {one['violated'] or _seen(one)} | {one['about']} |"
            for _, one in sorted(worlds.items())
        ),
        "",
        "With a rule taken out, the explorer refutes it; steps are those of a shortest counterexample:",
        "",
        "| mutant | world | states | steps | violated |",
        "|---|---|---|---|---|",
        *(
            f"| {name}{_age('mutants', one)} | {one['world']} | {one['states']:,} | {one['depth']} "
            f"| {one['violated'] or '**survived**'} |"
            for name, one in mutants.items()
            if not one["by"]
        ),
        "",
        "Alone harmless within these faults:",
        "",
        "| rule taken out | world | states | seen | covered by |",
        "|---|---|---|---|---|",
        *(
            f"| {name}{_age('mutants', one)} | {one['world']} | {one['states']:,} "
            f"| {one['violated'] or _seen(one)} | {one['by']} |"
            for name, one in mutants.items()
            if one["by"]
        ),
        "",
        "Shortest counterexamples:",
        "",
        *_paths((name, one) for name, one in mutants.items() if one["violated"]),
    ]
    return "\n".join(lines) + "\n"


def _age(kind: str, one: Mapping[str, Any]) -> str:
    return "" if _is_current(kind, one) else " *"


def _seen(one: Mapping[str, Any]) -> str:
    return "all states" if one["complete"] else "the nearest"


def _paths(found: Iterable[tuple[str, Mapping[str, Any]]]) -> Iterable[str]:
    for name, one in found:
        yield f"- **{name}**: {one['violated']}"
        yield ""
        yield from (f"  {number}. {step}" for number, step in enumerate(one["path"], 1))
        yield ""


if __name__ == "__main__":
    sys.exit(main())

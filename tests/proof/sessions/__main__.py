"""Explore the worlds of joint sessions and their mutants; go on where the last run was stopped."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.proof import subjects
from tests.proof.digest import digest
from tests.proof.model import trace
from tests.proof.model.search import Found
from tests.proof.model.worlds import LEVELS
from tests.proof.sessions.mutants import COVERED, MUTANTS, JointMutant
from tests.proof.sessions.search import JointSearch
from tests.proof.sessions.worlds import WORLDS, with_faults, world_of

FILE, PAGE = "sessions.json", "sessions.md"

INTRODUCTION = (
    "Written by `python -m tests.proof.sessions --write docs/proof`, which explores "
    "[J1 to J9](../protocol.md#j-joint-sessions). No worker does them yet. `--level 2` has two faults together."
)

Kept = dict[str, Any]


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; its result is the exit status."""
    options = _parser().parse_args(arguments)
    kept: Kept = {}
    if options.write and (file := options.write / FILE).exists():
        kept = json.loads(file.read_text(encoding="utf-8"))
    wrong = 0
    if not options.mutants:
        for name in options.world or WORLDS:
            wrong += _explored(name, options.level, options.states, kept)
            _write(options.write, kept)
    else:
        for mutant, by in [*((one, "") for one in MUTANTS), *COVERED]:
            if options.only in {None, mutant.name}:
                wrong += _tried(mutant, by, options.states, kept, shows=bool(options.only))
                _write(options.write, kept)
    return min(wrong, 1)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.proof.sessions", description=__doc__)
    parser.add_argument("--world", action="append", choices=list(WORLDS), help="only this one; may be repeated")
    parser.add_argument("--level", type=int, choices=list(LEVELS), default=1, help="how many faults together")
    parser.add_argument("--states", type=int, help="stop a search after this number")
    parser.add_argument("--mutants", action="store_true", help="try each mutant instead; fails when one survives")
    parser.add_argument("--only", metavar="NAME", help="only this mutant, with its counterexample")
    parser.add_argument("--write", type=Path, metavar="FOLDER", help=f"keep results in {FILE} and {PAGE} there")
    return parser


def subject(kind: str) -> str:
    """Of the core, the explorer, and what these worlds add; of mutants too, where they are tried."""
    away = {"__main__.py", "tla.py", *(() if kind == "mutants" else ("mutants.py",))}
    files = [file for file in Path(__file__).parent.glob("*.py") if file.name not in away]
    return f"{digest(files)}.{subjects.core()}"


def _known(kept: Kept, kind: str, name: str, states: int | None) -> Mapping[str, Any] | None:
    found = kept.get(kind, {}).get(name)
    if found is None or found["digest"] != subject(kind):
        return None
    enough = found["complete"] or found["violated"] or (states is not None and found["states"] >= states)
    return found if enough else None


def _keep(kept: Kept, kind: str, name: str, found: Found, **more: Any) -> None:
    shown = {key: getattr(found, key) for key in ("states", "transitions", "depth", "complete", "violated")}
    steps = [f"{move.who}: {move.what}" for move in found.path]
    about = {"digest": subject(kind), "seconds": round(found.seconds), **shown, **more, "path": steps}
    kept.setdefault(kind, {})[name] = about


def _explored(name: str, level: int, states: int | None, kept: Kept) -> int:
    key = f"{name}, {level}"
    if known := _known(kept, "worlds", key, states):
        print(f"{key:24}{known['states']:10,}  is there already, from the same code")
        return 0
    found = JointSearch(world_of(with_faults(name, LEVELS[level])), limit=states).run()
    verdict = found.violated or ("all states" if found.complete else "the nearest states")
    print(f"{key:24}{found.states:10,}{found.depth:5}{found.seconds:8.0f} s  {verdict}", flush=True)
    if found.violated:
        print(*trace.lines(found.path, found.violated), sep="\n")
    _keep(kept, "worlds", key, found, about=WORLDS[name].about, world=name, faults=level)
    return bool(found.violated)


def _tried(mutant: JointMutant, by: str, states: int | None, kept: Kept, *, shows: bool) -> int:
    if not shows and _known(kept, "mutants", mutant.name, states):
        return 0
    found = mutant.explore(**({"limit": states} if states else {}))
    print(
        f"{mutant.name[:60]:60}{found.states:10,}{found.depth:5}{found.seconds:8.0f} s  {found.violated[:80]}",
        flush=True,
    )
    if shows or (by and found.violated):
        print(*trace.lines(found.path, found.violated), sep="\n")
    _keep(kept, "mutants", mutant.name, found, world=mutant.world, faults=mutant.faults._asdict(), by=by)
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
        "| world | faults | states | transitions | depth | seen | what it is |",
        "|---|---|---|---|---|---|---|",
        *(
            f"| {one['world']} | {one['faults']} | {one['states']:,} | {one['transitions']:,} | {one['depth']} "
            f"| {one['violated'] or ('all states' if one['complete'] else 'the nearest')} | {one['about']} |"
            for _, one in sorted(worlds.items())
        ),
        "",
        "With a rule taken out, the explorer refutes it; steps are those of a shortest counterexample:",
        "",
        "| mutant | world | states | steps | violated |",
        "|---|---|---|---|---|",
        *(
            f"| {name} | {one['world']} | {one['states']:,} | {one['depth']} | {one['violated'] or '**survived**'} |"
            for name, one in mutants.items()
            if not one["by"]
        ),
        "",
        "Alone harmless within these faults:",
        "",
        "| rule taken out | world | states | seen | covered by |",
        "|---|---|---|---|---|",
        *(
            f"| {name} | {one['world']} | {one['states']:,} | {one['violated'] or _seen(one)} | {one['by']} |"
            for name, one in mutants.items()
            if one["by"]
        ),
        "",
        "Shortest counterexamples:",
        "",
        *_paths((name, one) for name, one in mutants.items() if one["violated"]),
    ]
    return "\n".join(lines) + "\n"


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

"""Explore the worlds, try the mutants, write results, or follow a counterexample again."""

from __future__ import annotations

import argparse
import json
import logging
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from tests.proof import subjects
from tests.proof.model import trace
from tests.proof.model.mutant import applied
from tests.proof.model.mutants import COVERED, MUTANTS, NO_SUBJECT
from tests.proof.model.search import Found, Search
from tests.proof.model.states import Faults, Setting
from tests.proof.model.worlds import LEVELS, WORLDS, with_faults, world_of


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; its result is the exit status."""
    options = _parser().parse_args(arguments)
    if options.replay:
        return _replay(options.replay)
    if options.mutants:
        return _mutants(options.write)
    names = options.world or list(WORLDS)
    faults = Faults(*map(int, options.faults.split(","))) if options.faults else LEVELS[options.level]
    print(f"{'world':16}{'states':>12}{'moves':>12}{'depth':>7}{'seconds':>9}{'states/s':>10}  verdict")
    settings = [with_faults(name, faults) for name in names]
    return max([_explore(setting, options.states, options.write) for setting in settings])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.proof.model", description=__doc__)
    parser.add_argument("--world", action="append", choices=list(WORLDS), help="only this one; may be repeated")
    parser.add_argument("--level", type=int, choices=list(LEVELS), default=1, help="how many faults together")
    parser.add_argument("--faults", help="crash,move,net,zombie,total instead of a level")
    parser.add_argument("--states", type=int, help="stop a world after so many")
    parser.add_argument("--mutants", action="store_true", help="try each mutant instead; fails when one survives")
    parser.add_argument(
        "--write", type=Path, metavar="FOLDER", help="keep results there; what is there is not done again"
    )
    parser.add_argument("--replay", type=Path, metavar="FILE", help="follow a counterexample")
    return parser


def _explore(setting: Setting, states: int | None, folder: Path | None) -> int:
    file = folder / f"model-{setting.name}-{setting.faults.total}.json" if folder else None
    known = json.loads(file.read_text(encoding="utf-8")) if file and file.exists() else {}
    about = {
        "digest": subjects.core(),
        "shell": subjects.shell_of(setting),
        **asdict(setting),
        "faults": setting.faults._asdict(),
    }
    about = json.loads(json.dumps(about))
    enough = known.get("complete") or (states is not None and known.get("states", 0) >= states)
    if enough and all(known.get(key) == value for key, value in about.items()):
        print(f"{setting.name:16}{known['states']:12,}  is there already, from the same code")
        return 0
    found = Search(world_of(setting), limit=states).run()
    verdict = found.violated or ("all states" if found.complete else "the nearest states")
    print(
        f"{setting.name:16}{found.states:12,}{found.transitions:12,}{found.depth:7}{found.seconds:9.1f}"
        f"{found.rate:10,.0f}  {verdict}",
        flush=True,
    )
    if found.violated:
        print(*trace.lines(found.path, found.violated), sep="\n")
        if folder:
            trace.save(folder / f"counterexample-{setting.name}.json", setting, found)
        return 1
    if file:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps({**about, **_shown(found)}, indent=1) + "\n", encoding="utf-8")
    return 0


def _shown(found: Found) -> dict[str, object]:
    """What is kept of a search."""
    names = ("states", "transitions", "depth", "complete")
    return {name: getattr(found, name) for name in names} | {
        "seconds": round(found.seconds, 1),
        "states per second": round(found.rate),
    }


def _mutants(folder: Path | None) -> int:
    """One line for each, as a table in Markdown."""
    rows = [
        (
            f"Code `{subjects.core()}`, code of the shell `{subjects.shell()}`, of bridges "
            f"`{subjects.shell(subjects.BRIDGE, subjects.BRIDGING)}`, mutants `{subjects.model_mutants()}`."
        ),
        "",
        "| mutant | world | states | steps | violated |",
        "|---|---|---|---|---|",
    ]
    survived = 0
    for mutant in MUTANTS:
        found = mutant.explore()
        survived += not found.violated
        verdict = found.violated[:150] or "**survived**"
        rows.append(f"| {mutant.name} | {mutant.world} | {found.states:,} | {found.depth} | {verdict} |")
    rows += [
        "",
        "Alone harmless within the same faults:",
        "",
        "| rule taken out | world | states | covered by |",
        "|---|---|---|---|",
    ]
    for mutant, by in COVERED:
        found = mutant.explore()
        rows.append(f"| {mutant.name} | {mutant.world} | {found.states:,} | {found.violated or by} |")
    rows += ["", "Without a subject here:", "", *(f"- {name}: {why}" for name, why in NO_SUBJECT)]
    text = "\n".join([f"{len(MUTANTS) - survived} of {len(MUTANTS)} mutants are caught.", *rows])
    print(text)
    if folder:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "mutants.md").write_text(f"# Mutants\n\n{text}\n", encoding="utf-8")
    return 1 if survived else 0


def _replay(file: Path) -> int:
    setting, name, path = trace.load(file)
    patches = next((mutant.patches for mutant in MUTANTS if mutant.name == name), ())
    with applied(*patches):
        violated = trace.follow(setting, path)
    print(*trace.lines(path, violated or "nothing"), sep="\n")
    return 1 if violated else 0


if __name__ == "__main__":
    logging.getLogger("cues_kafka").setLevel(logging.ERROR)  # in some worlds handlers fail, which is logged
    sys.exit(main())

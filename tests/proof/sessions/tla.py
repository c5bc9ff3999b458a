"""Check docs/proof/sessions.tla with TLC, also with rules switched off: `python -m tests.proof.sessions.tla`.

Each check is kept as soon as it has ended, so the command goes on where it was stopped.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.proof.tla import Check, Found, digest, run, surprising

MODULE: Final = Path(__file__).parents[3] / "docs" / "proof" / "sessions.tla"
FILE, RESULT = "sessions-tla.json", "sessions-tla.md"
INVARIANTS: Final = ("I1", "I2", "I3", "I4", "I13", "J1", "J3")
PROGRESS: Final = ("Progress",)

Kept = dict[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class JointCheck(Check):
    """
    One run of TLC.

    Attributes:
        former: workers with a session for each task.
    """

    former: str = ""

    @property
    def name(self) -> str:
        """For tables and `--only`."""
        checked = "invariants" if self.properties == INVARIANTS else ", ".join(self.properties)
        beside = ", beside a former release" if self.former else ""
        return f"{' + '.join(self.without) or 'the protocol'}: {checked}{beside}"

    @property
    def subject(self) -> str:
        """What a result is about: the module, and how it is configured."""
        text = self.configuration(MODULE.with_suffix(".cfg").read_text(encoding="utf-8"))
        return f"{digest(MODULE)} {text}"

    def configuration(self, text: str) -> str:
        """See `Check.configuration`."""
        invariants = [one for one in self.properties if one in INVARIANTS]
        lines = {
            r"  Former = .*": f"  Former = {{{self.former}}}",
            r"  N = .*": f"  N = {self.messages}",
            r"  Faults = .*": f"  Faults = {self.faults}",
            r"  Without = .*": "  Without = {" + ", ".join(f'"{rule}"' for rule in self.without) + "}",
            r"INVARIANTS .*": f"INVARIANTS {' '.join(invariants)}" if invariants else "",
            r"PROPERTIES .*": "PROPERTIES Progress" if self.properties == PROGRESS else "",
        }
        for pattern, line in lines.items():
            text, found = re.subn(f"^{pattern}$", line, text, flags=re.MULTILINE)
            if found != 1:
                raise ValueError(f"the configuration must have one line like {pattern!r}, it has {found}")
        return text


PROTOCOL = (
    JointCheck(INVARIANTS, 1, 1, holds=True),
    JointCheck(PROGRESS, 1, 1, holds=True),
    JointCheck(INVARIANTS, 1, 1, holds=True, former="b"),
    JointCheck(PROGRESS, 1, 1, holds=True, former="b"),
)

ANYWHERE: Final = "place of the record"

MUTANTS = (
    JointCheck(("I2",), 1, 1, ("discard when in doubt",), why="a late commit request ends the next transaction"),
    JointCheck(("I1",), 1, 1, ("stable fetch", ANYWHERE), why="a zombie commits after the log was read"),
    JointCheck(("I1",), 1, 1, ("generation check", ANYWHERE), why="a zombie begins after the log was read"),
    JointCheck(("I2",), 2, 1, ("markers of the former id",), why="older offsets become visible after newer ones"),
    JointCheck(("J1",), 1, 1, ("id of an own task",), why="the next owner has the same id, and both fence each other"),
    JointCheck(("J3",), 1, 2, ("offsets first",), why="a zombie writes under an id whose owner has nothing to do"),
    JointCheck(PROGRESS, 1, 1, ("throwaway init",), why="no session ends what a former owner left open"),
)  # fmt: skip
"""Each must be refuted by a violation of the one property that it names."""

COVERED = (
    JointCheck(
        ("I1",), 1, 1, ("stop before giving back", ANYWHERE), holds=True,
        why="the next owner waits for stable offsets; with two transactions for a message the explorer refutes it",
    ),
)  # fmt: skip

ALL = (*PROTOCOL, *MUTANTS, *COVERED)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; its result is the exit status: 1 for a surprise."""
    parser = argparse.ArgumentParser(prog="python -m tests.proof.sessions.tla", description=__doc__)
    parser.add_argument("--only", metavar="NAME", help="only the checks whose name begins so, with counterexamples")
    parser.add_argument("--write", type=Path, metavar="FOLDER", help=f"keep results in {FILE} and {RESULT} there")
    options = parser.parse_args(arguments)
    kept: Kept = {}
    if options.write and (file := options.write / FILE).exists():
        kept = json.loads(file.read_text(encoding="utf-8"))
    wrong = 0
    for check in sorted(ALL, key=lambda one: one.properties == PROGRESS):  # which takes longest
        if not check.name.startswith(options.only or ""):
            continue
        if not options.only and kept.get(check.name, {}).get("subject") == check.subject:
            print(f"{check.name:64}  is there already, of the same module")
            continue
        wrong += _checked(check, kept, shows=bool(options.only))
        if options.write:
            (options.write / FILE).write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n", encoding="utf-8")
            (options.write / RESULT).write_text(page(kept), encoding="utf-8")
    return min(wrong, 1)


def _checked(check: JointCheck, kept: Kept, *, shows: bool) -> bool:
    """Run it; whether the result is another one than it must be, which is not kept."""
    found = run(check, MODULE)
    verdict = f"violates {found.violated} in {found.steps} states" if found.violated else "holds"
    wrong = surprising(check, found)
    print(
        f"{check.name:64}{found.distinct:10,}{found.seconds:7.1f} s  {verdict}{', not as it must' * wrong}", flush=True
    )
    if found.violated and (shows or wrong):
        print(*found.path, sep="\n")
    if wrong:
        kept.pop(check.name, None)
    else:
        kept[check.name] = {"subject": check.subject, **_shown(found)}
    return wrong


def _shown(found: Found) -> dict[str, Any]:
    names = ("distinct", "violated", "steps", "version", "seconds")
    return {name: getattr(found, name) for name in names}


def page(kept: Kept) -> str:
    """The results in Markdown; a check without one of this module says so."""
    rows = ""
    for check in ALL:
        one = kept.get(check.name)
        bounds = f"| {check.name} | {check.messages} | {check.faults}"
        if one is None or one["subject"] != check.subject:
            rows += f"{bounds} | not run | | | {check.why} |\n"
        else:
            found = f"{one['distinct']:,} | {one['violated'] or 'nothing'} | {one['steps'] or ''}"
            rows += f"{bounds} | {found} | {check.why} |\n"
    versions = ", ".join(sorted({one["version"] for one in kept.values()})) or "not run"
    return (
        "# The TLA+ module of joint sessions\n\nWritten by `make proof-sessions`; what it says is in "
        "[proof.md](../proof.md#joint-sessions).\n\n"
        f"Module `{digest(MODULE)}` (SHA-256), TLC {versions}, two workers, two tasks.\n\n"
        "| checked | messages | faults | states | violated | steps | what happens, or what covers for the rule |\n"
        "|---|---|---|---|---|---|---|\n" + rows
    )


if __name__ == "__main__":
    sys.exit(main())

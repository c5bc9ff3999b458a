"""Check docs/proof/sessions.tla with TLC, also with rules switched off: `python -m tests.proof.sessions.tla`."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.proof.tla import Check, Found, digest, run, surprising

MODULE: Final = Path(__file__).parents[3] / "docs" / "proof" / "sessions.tla"
RESULT: Final = "sessions-tla.md"
INVARIANTS: Final = ("I1", "I2", "I3", "I4", "I13")
PROGRESS: Final = ("Progress",)


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
        checked = "progress" if self.properties == PROGRESS else "invariants"
        beside = ", beside a former release" if self.former else ""
        return f"{' + '.join(self.without) or 'the protocol'}: {checked}{beside}"

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
    JointCheck(("I1",), 1, 1, ("stop before giving back", ANYWHERE), why="a task goes on that was given back"),
    JointCheck(("I2",), 2, 1, ("markers of the former id",), why="older offsets become visible after newer ones"),
    JointCheck(PROGRESS, 1, 1, ("throwaway init",), why="no session ends what a former owner left open"),
    JointCheck(PROGRESS, 1, 1, ("id of an own task",), why="the next owner of the id fences it again and again"),
    JointCheck(PROGRESS, 1, 2, ("offsets first",), why="a zombie writes under an id whose owner has nothing to do"),
)  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; its result is the exit status: 1 for a surprise."""
    parser = argparse.ArgumentParser(prog="python -m tests.proof.sessions.tla", description=__doc__)
    parser.add_argument("--only", metavar="NAME", help="only the checks whose name begins so, with counterexamples")
    parser.add_argument("--write", type=Path, metavar="FOLDER", help=f"write {RESULT} there, if all is as it must be")
    options = parser.parse_args(arguments)
    results = []
    for check in (*PROTOCOL, *MUTANTS):
        if check.name.startswith(options.only or ""):
            found = run(check, MODULE)
            verdict = f"violates {found.violated} in {found.steps} states" if found.violated else "holds"
            print(f"{check.name[:64]:64}{found.distinct:10,}{found.seconds:7.1f} s  {verdict}", flush=True)
            if found.violated and (options.only or surprising(check, found)):
                print(*found.path, sep="\n")
            results.append((check, found))
    wrong = [check.name for check, found in results if surprising(check, found)]
    print(*(f"not as it must be: {name}" for name in wrong), sep="\n")
    if options.write and not wrong and not options.only:
        (options.write / RESULT).write_text(page(results), encoding="utf-8")
    return bool(wrong)


def page(results: Sequence[tuple[Check, Found]]) -> str:
    """The results in Markdown."""
    rows = "".join(
        f"| {check.name} | {check.messages} | {check.faults} | {found.distinct:,} "
        f"| {found.violated or 'nothing'} | {found.steps or ''} | {check.why} |\n"
        for check, found in results
    )
    return (
        "# The TLA+ module of joint sessions\n\nWritten by `python -m tests.proof.sessions.tla --write docs/proof`.\n\n"
        f"Module `{digest(MODULE)}` (SHA-256), TLC {results[0][1].version}, two workers, two tasks.\n\n"
        "| checked | messages | faults | states | violated | steps | what happens |\n|---|---|---|---|---|---|---|\n"
        + rows
    )


if __name__ == "__main__":
    sys.exit(main())

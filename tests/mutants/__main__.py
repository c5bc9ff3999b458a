"""Takes rules out of the shell, one at a time, and runs the tests that must notice: `python -m tests.mutants`.

The explorer does this with the core. Here a mutant is a small edit of the code around it (`tests.mutants.rules`). It is
made in a copy of the tree, never in the tree itself. A mutant is caught when one of its tests fails, after the same
tests have passed in the copy as it is. Each result is written at once, so the command goes on where it was stopped.

The test that caught a mutant the last time comes first and alone, because most files of tests have many that pass.
These tests have passed together before, in the copy as it is. Where that one passes, is gone, or is no test of the
mutant any more, all tests of the mutant run.

**A mutant names its rule so that code may move.** It names a definition by the end of its qualified name, wherever in
the package that is, and an edit by patterns that are compared with the code as trees (`trees.py`). So code that is
moved to another file or class, is laid out in another way, or has other names for its local variables keeps its
mutants. A mutant that has no place, or more than one, is an error that names the nearest (`code.py`). Marks in the code
(`# rule: ...`) would outlive the change of a function's name, too. But a reader of a mutant would not see what it
takes out, a comment is lost or left behind without notice when its statement changes, and no rule needed one.

**A result is kept** for as long as the mutated file, the mutant's tests and the files that have them are the same
programs (`tests.proof.digest`): words, layout and folders do not count, nor does how the mutant is written.
It is the whole file and not only the mutated function, because other code of the file may guard the same rule. Code of
other files does not count, so after a larger change `--again` is the proof.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cues_kafka.brokers.temporary import temporary_directory
from tests.mutants.code import Code, Source
from tests.mutants.mutant import Mutant
from tests.mutants.rules import MUTANTS
from tests.proof.digest import digest_of

ROOT = Path(__file__).parents[2]

RESULTS = "shell-mutants.json"

FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+::\S+)", re.MULTILINE)

HANGS_S = 600
"""A mutant whose tests take longer hangs, and a test that hangs is one that fails."""

Run = Callable[[Path, Sequence[str]], str | None]
"""Runs tests in a copy of the tree; the first that failed, or None."""


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; its result is the exit status: 1 where a mutant is not caught."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--only", action="append", help="part of a rule's name; may be repeated")
    parser.add_argument("--again", action="store_true", help="also what was caught before")
    parser.add_argument("--write", type=Path, help="the folder for the results")
    given = parser.parse_args(arguments)
    chosen = [one for one in MUTANTS if not given.only or any(part in one.rule for part in given.only)]
    path = given.write / RESULTS if given.write else None
    former = read((given.write or ROOT / "docs/proof") / RESULTS)
    known = {} if path is None or given.again else dict(former)
    code = Code(ROOT)
    due = [one for one in chosen if known.get(one.rule, {}).get("digest") != digest(one, code.mutated(one))]
    print(f"{len(chosen)} mutants, {len(chosen) - len(due)} known from before", flush=True)
    survivors = 0
    with copied() as tree:
        for found in results(due, tree, pytest_in, catching(due, tree, pytest_in, former)):
            survivors += found["caught by"] is None
            print(f"{found['seconds']:6.1f} s  {found['rule']}: {found['caught by'] or 'SURVIVES'}", flush=True)
            if path and found["caught by"]:
                known[found["rule"]] = found
                write(path, known)
    if path:
        write(path, {one.rule: known[one.rule] for one in MUTANTS if one.rule in known})
    return int(survivors > 0)


def catching(due: Sequence[Mutant], tree: Path, run: Run, former: Mapping[str, Any]) -> Mapping[str, str]:
    """
    Find the test that caught each mutant the last time, by rule.

    If one of these tests fails without a mutant, it finds none.

    Args:
        due: which.
        tree: a copy of the tree.
        run: runs tests in it.
        former: results of the last time, by rule.
    """
    found = {}
    for mutant in due:
        # A name is without its parameters: in those with a blank, pytest's summary does not show where it ends.
        name = str(former.get(mutant.rule, {}).get("caught by")).partition("[")[0]
        file, _, test = name.partition("::")
        asked = any(name == one or name.startswith(f"{one}::") for one in mutant.tests)
        if test and asked and f"def {test.rpartition('::')[2]}(" in (tree / file).read_text(encoding="utf-8"):
            found[mutant.rule] = name
    return {} if found and run(tree, sorted(set(found.values()))) else found


def results(
    due: Iterable[Mutant], tree: Path, run: Run, first: Mapping[str, str] | None = None
) -> Iterator[Mapping[str, Any]]:
    """
    What became of each mutant.

    Args:
        due: which.
        tree: a copy of the tree, which is as it was when this ends.
        run: runs tests in it.
        first: by rule, one test that runs before the others, and passes without any mutant.

    Raises:
        RuntimeError: tests of a mutant fail without it, so they would catch anything.
    """
    sound: set[tuple[str, ...]] = {(one,) for one in (first or {}).values()}
    code = Code(tree)
    for mutant in due:
        began_s = time.monotonic()
        changed = code.mutated(mutant)
        caught = None
        for tests in [(first[mutant.rule],), mutant.tests] if first and mutant.rule in first else [mutant.tests]:
            if caught is None:
                if tests not in sound:
                    if failed := run(tree, tests):
                        raise RuntimeError(f"{failed} fails without any mutant")
                    sound.add(tests)
                with written(tree / changed.path, changed.text):
                    caught = run(tree, tests)
        yield {
            "rule": mutant.rule,
            "file": changed.path.as_posix(),
            "digest": digest(mutant, changed, tree),
            "caught by": caught,
            "seconds": round(time.monotonic() - began_s, 1),
        }


_MOMENTS = itertools.count(1_000_000_000)


@contextmanager
def written(file: Path, text: str) -> Iterator[None]:
    """
    A file has another text.

    Python takes compiled code for that of a file by the file's size and its time in whole seconds. So each text gets a
    time of its own.
    """
    before, status = file.read_text(encoding="utf-8"), file.stat()
    moment_s = next(_MOMENTS)
    try:
        file.write_text(text, encoding="utf-8")
        os.utime(file, (moment_s, moment_s))
        yield
    finally:
        file.write_text(before, encoding="utf-8")
        os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))


def digest(mutant: Mutant, changed: Source, root: Path = ROOT) -> str:
    """Of the program that the mutant makes of its file, of the files of its tests, and of which tests of them run."""
    files = sorted({test.partition("::")[0] for test in mutant.tests})
    chosen = sorted(test.partition("::")[2] for test in mutant.tests)
    return digest_of([changed.text, repr(chosen), *((root / one).read_text(encoding="utf-8") for one in files)])


def read(path: Path) -> dict[str, Any]:
    """Results by rule."""
    if not path.exists():
        return {}
    return {found["rule"]: found for found in json.loads(path.read_text(encoding="utf-8"))}


def write(path: Path, known: Mapping[str, Any]) -> None:
    """Results, in the order in which they were made."""
    path.write_text(json.dumps(list(known.values()), indent=1) + "\n", encoding="utf-8")


@contextmanager
def copied() -> Iterator[Path]:
    """A copy of what git knows, as it is in the working tree."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout.decode()
    with temporary_directory("cues-mutants-") as tree:
        for file in filter(None, listed.split("\0")):
            if (ROOT / file).is_file():
                (tree / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / file, tree / file)
        yield tree


def pytest_in(tree: Path, tests: Sequence[str]) -> str | None:
    """
    Run tests with pytest, up to the first failure.

    Raises:
        RuntimeError: pytest could not run them.
    """
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--no-header", "--tb=no", *tests]
    environment = os.environ | {"PYTHONPATH": str(tree), "PYTHONPYCACHEPREFIX": str(tree / ".compiled")}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    try:
        done = subprocess.run(
            command, cwd=tree, env=environment, capture_output=True, text=True, check=False, timeout=HANGS_S
        )
    except subprocess.TimeoutExpired:
        return f"hangs for {HANGS_S} s"
    if done.returncode == 0:
        return None
    if failed := FAILED.search(done.stdout):
        return failed[1].partition(" - ")[0]
    if "Timeout" in done.stderr + done.stdout:
        return "a test's time-out"
    raise RuntimeError(
        f"pytest {' '.join(tests)} ended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
    )


if __name__ == "__main__":
    sys.exit(main())

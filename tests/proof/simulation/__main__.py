"""`python -m tests.proof.simulation`: run seeds, replay one, shrink one, write what came of many."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from tests.proof import subjects
from tests.proof.simulation.options import Options
from tests.proof.simulation.shrink import Result, attempt, attempt_seed, shrink


def main(arguments: Sequence[str] | None = None) -> int:
    """Run; 1 if a seed failed."""
    parser = argparse.ArgumentParser("python -m tests.proof.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, help="one seed: prints its options, its faults and what became of it")
    parser.add_argument("--with", dest="changes", type=json.loads, default={}, help="JSON of options to change")
    parser.add_argument("--seeds", type=_range, default=range(100), help="many: A:B, B not included (0:100)")
    parser.add_argument("--shrink", action="store_true", help="make the first failure small")
    parser.add_argument("--jobs", type=int, default=1, help="processes (1)")
    parser.add_argument("--write", type=Path, help="a JSON file for the result; one of the same code is not made again")
    given = parser.parse_args(arguments)
    if given.seed is not None:
        return _one(Options.of_seed(given.seed, given.changes), small=given.shrink)
    return _many(given.seeds, jobs=given.jobs, small=given.shrink, path=given.write)


def _range(text: str) -> range:
    first, _, last = text.partition(":")
    return range(int(first), int(last))


def _one(options: Options, *, small: bool) -> int:
    result = attempt(options)
    if small and result.failure:
        result = _shrunk(result)
    say(str(result.options))
    for fault in result.faults:
        say(f"{'fault':17} {fault}")
    say(f"{'digest':17} {result.digest}")
    say(f"{'failure':17} {result.failure}" if result.failure else f"{result.deliveries} deliveries, nothing wrong")
    say(result.options.command())
    return bool(result.failure)


def _shrunk(failed: Result) -> Result:
    return shrink(failed, tell=lambda text: print(text, file=sys.stderr))


def say(text: str) -> None:
    """To standard output, at once."""
    print(text, flush=True)


def _many(seeds: range, *, jobs: int, small: bool, path: Path | None) -> int:
    made_of = {"code": subjects.simulated(), "checker": subjects.simulation()}
    if path and path.exists() and json.loads(path.read_text()).items() >= made_of.items():
        say(f"{path}: made from this code already")
        return 0
    began = time.monotonic()
    book = Book()
    for result in run_seeds(seeds, jobs=jobs):
        book.add(result)
        if result.failure:
            say(f"seed {result.options.seed}: {result.failure[:300]}")
    seconds = time.monotonic() - began
    found = {**made_of, "seeds": [seeds.start, seeds.stop], **book.as_dict(), "seconds": round(seconds)}
    say(json.dumps(found))
    if book.failed and small:
        _one(Options.of_seed(book.failed[0]), small=True)
    if path and not book.failed:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(found, indent=1) + "\n")
    return bool(book.failed)


class Book:
    """
    Counts over many runs.

    Attributes:
        failed: seeds.
    """

    def __init__(self) -> None:
        self.failed: list[int] = []
        self._runs = self._deliveries = self._called_ahead = 0
        self._least: int | None = None
        self._faults: dict[str, int] = {}

    def add(self, result: Result) -> None:
        """One more."""
        self._runs += 1
        if result.failure:
            self.failed.append(result.options.seed)
            return
        self._deliveries += result.deliveries
        self._called_ahead += result.called_ahead
        self._least = min(result.deliveries, self._least or result.deliveries)
        for fault in result.faults:
            kind = fault.split()[1]
            self._faults[kind] = self._faults.get(kind, 0) + 1

    def as_dict(self) -> dict[str, Any]:
        """For the file."""
        return {
            "runs": self._runs,
            "failed": self.failed,
            "deliveries": self._deliveries,
            "least_deliveries": self._least,
            "called_ahead": self._called_ahead,
            "faults": dict(sorted(self._faults.items())),
        }


def run_seeds(seeds: Iterable[int], *, jobs: int = 1) -> Iterator[Result]:
    """Each seed's result, in order; with more jobs, in as many processes."""
    if jobs == 1:
        yield from map(attempt_seed, seeds)
        return
    # A process that was forked from one with clients of Kafka crashes when it collects them.
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        yield from pool.map(attempt_seed, seeds, chunksize=10)


if __name__ == "__main__":
    sys.exit(main())

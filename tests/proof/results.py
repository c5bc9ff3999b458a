"""What the proof runs have left in a folder, as one page: `python -m tests.proof.results docs/proof`.

`make proof-model`, `make proof-simulation`, `make proof-spark` and `make proof-faults` write one small JSON file for
each part, and `make proof-mutants` one for all. This makes their tables, so no figure of the docs is written by hand.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

PAGE = "results.md"

Part = Mapping[str, Any]


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; its result is the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.proof.results", description=__doc__)
    parser.add_argument("folder", type=Path, help="where the parts are; the page is written there too")
    folder = parser.parse_args(arguments).folder
    text = page(folder)
    (folder / PAGE).write_text(text, encoding="utf-8")
    print(text)
    return 0


def page(folder: Path) -> str:
    """
    The whole page.

    Raises:
        ValueError: parts of one run are about different code.
    """
    model, simulation = _parts(folder, "model-*.json"), _parts(folder, "simulation-*.json")
    spark = _parts(folder, "spark-*.json")
    mutants = [one for found in _parts(folder, "shell-mutants.json") for one in found]
    sections = (
        _model(model),
        _simulation(simulation),
        _spark(spark),
        _faults(_parts(folder, "faults-*.json")),
        _mutants(mutants),
    )
    return "\n".join(["# Results", "", *(line for section in sections for line in (*section, ""))])


def _parts(folder: Path, pattern: str) -> list[Any]:
    return [json.loads(file.read_text(encoding="utf-8")) for file in sorted(folder.glob(pattern))]


def _code(parts: Iterable[Part], key: str) -> str:
    found = {part[key] for part in parts}
    if len(found) != 1:
        raise ValueError(f"parts from different code, run them again: {sorted(found)}")
    return str(found.pop())


def _model(parts: Sequence[Part]) -> list[str]:
    if not parts:
        return ["No part of `make proof-model` is here."]
    states, seconds = sum(part["states"] for part in parts), sum(part["seconds"] for part in parts)
    whole = sum(part["complete"] for part in parts)
    rows = [
        f"| {part['name']}: {part['about']} | {', '.join(f'`{log}`' for log in part['inputs'])} "
        f"| {part['faults']['total']} | {part['states']:,} | {part['transitions']:,} | {part['depth']} "
        f"| {part['states per second']:,} | {'all states' if part['complete'] else 'the nearest'} |"
        for part in sorted(parts, key=lambda part: (part["faults"]["total"], not part["complete"], part["name"]))
    ]
    told = (
        f"Code `{_code(parts, 'digest')}`. {states:,} states in {len(parts)} parts, {whole} of them to the last state, "
        f"in {seconds / 60:,.0f} minutes. Nothing was violated."
    )
    return [
        "## The model: `make proof-model`",
        "",
        told,
        "",
        "| world | inputs | faults | states | transitions | depth | states/s | seen |",
        "|---|---|---|---|---|---|---|---|",
        *rows,
    ]


def _simulation(parts: Sequence[Part]) -> list[str]:
    if not parts:
        return ["No part of `make proof-simulation` is here."]
    runs, deliveries = sum(part["runs"] for part in parts), sum(part["deliveries"] for part in parts)
    failed = [seed for part in parts for seed in part["failed"]]
    faults: Counter[str] = Counter()
    for part in parts:
        faults.update(part["faults"])
    seeds = ", ".join(f"{first} to {end - 1}" for first, end in _joined(part["seeds"] for part in parts))
    told = (
        f"Code `{_code(parts, 'code')}`, {_by_checker(parts)}. {runs:,} seeds ({seeds}), {len(failed)} failed; "
        f"{deliveries:,} deliveries, at least {min(part['least_deliveries'] for part in parts)} in a run; "
        f"{sum(faults.values()):,} faults, in {sum(part['seconds'] for part in parts) / 60:,.0f} minutes."
    )
    return [
        "## The simulation: `make proof-simulation`",
        "",
        told,
        "",
        "| fault | times |",
        "|---|---|",
        *(f"| {kind} | {count:,} |" for kind, count in sorted(faults.items())),
    ]


def _spark(parts: Sequence[Part]) -> list[str]:
    if not parts:
        return ["No part of `make proof-spark` is here."]
    kills: Counter[str] = Counter()
    for part in parts:
        kills.update(part["kills"])
    sums = {name: sum(part[name] for part in parts) for name in ("batches", "rows", "lost", "doubled", "mixed")}
    told = (
        f"Code `{_code(parts, 'code')}`. {sum(kills.values())} kills of drivers in {len(parts)} parts; "
        f"{sums['batches']:,} batches, {sums['rows']:,} rows: {sums['lost']} lost, {sums['doubled']} doubled, "
        f"{sums['mixed']} batches mixed of two attempts, {sum(len(one['problems']) for one in parts)} other problems; "
        f"in {sum(part['seconds'] for part in parts) / 60:,.0f} minutes."
    )
    return [
        "## Staged writing on Spark: `make proof-spark`",
        "",
        told,
        "",
        "| killed | times |",
        "|---|---|",
        *(f"| {moment} | {count:,} |" for moment, count in sorted(kills.items())),
    ]


def _faults(parts: Sequence[Part]) -> list[str]:
    if not parts:
        return ["No part of `make proof-faults` is here."]
    rows = [
        f"| {part['part']} | {part['faults']} | {part['messages']:,} | {part['recovered_s']['median']:.1f} "
        f"| {part['recovered_s']['longest']:.1f} | {_of(part, 'median')} | {_of(part, 'longest')} "
        f"| {part['seconds']} |"
        for part in parts
    ]
    told = (
        f"Code `{_code(parts, 'code')}`. {sum(part['faults'] for part in parts)} faults of three nodes under load, "
        f"{sum(part['messages'] for part in parts):,} messages: nothing was lost, doubled, torn or out of order. "
        "Recovered: how long after a fault each task had delivered again, in seconds. Silent: the longest time in "
        "which a task delivered nothing, during the fault too; a rolling restart restarts three nodes."
    )
    return [
        "## Three nodes under faults: `make proof-faults`",
        "",
        told,
        "",
        "| fault | times | messages | recovered, median | longest | silent, median | longest | seconds in all |",
        "|---|---|---|---|---|---|---|---|",
        *rows,
    ]


def _of(part: Part, which: str) -> str:
    """How long tasks were silent; older results do not say it."""
    return f"{part['silent_s'][which]:.1f}" if "silent_s" in part else "-"


def _mutants(found: Sequence[Part]) -> list[str]:
    if not found:
        return ["No result of `make proof-mutants` is here."]
    rows = [f"| {one['rule']} | `{one['file']}` | `{one['caught by']}` |" for one in found]
    told = (
        f"{len(found)} rules were taken out of the runtime, of Spark's slots and of the Kafka adapter, one at a time. "
        f"A test caught each of them, in {sum(one['seconds'] for one in found) / 60:,.0f} minutes."
    )
    return [
        "## Rules of the shell: `make proof-mutants`",
        "",
        told,
        "",
        "| rule | file | caught by |",
        "|---|---|---|",
        *rows,
    ]


def _by_checker(parts: Sequence[Part]) -> str:
    """Which simulation ran the seeds: the code that it runs must be one, but it may be repaired itself on the way."""
    found: dict[str, list[Sequence[int]]] = {}
    for part in parts:
        found.setdefault(part["checker"], []).append(part["seeds"])
    if len(found) == 1:
        return f"simulation `{next(iter(found))}`"
    shown = {
        checker: ", ".join(f"{first} to {end - 1}" for first, end in _joined(seeds)) for checker, seeds in found.items()
    }
    return "simulations " + " and ".join(f"`{checker}` (seeds {seeds})" for checker, seeds in sorted(shown.items()))


def _joined(ranges: Iterable[Sequence[int]]) -> list[tuple[int, int]]:
    """Ranges, the adjacent ones as one."""
    found: list[tuple[int, int]] = []
    for first, end in sorted((one[0], one[1]) for one in ranges):
        if found and found[-1][1] == first:
            found[-1] = (found[-1][0], end)
        else:
            found.append((first, end))
    return found


if __name__ == "__main__":
    sys.exit(main())

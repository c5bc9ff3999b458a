"""Messages per second through one pipe, steady state, both sides in turn."""

from __future__ import annotations

import time
from dataclasses import dataclass

from benchmarks.harness import Cluster, Pipe, alternating, cpu_s, median, side, spread, unique, until, values_of
from benchmarks.report import Section, holds

TARGETS = {"raw": 0.8, "json": 1.0, "dict": 1.0}
LOOK_S = 0.02
WARM = 0.1
"""Share of the messages that belong to the start: processes, group, first fetches, first small batches."""

NAMES = {"raw": "raw", "json": "JSON dataclass", "dict": "JSON dict"}

HOW = """100-byte values with 8-byte keys, lz4, one worker process each side, a backlog that is there from the
beginning. A process outside reads the committed offsets of the group every 20 ms (both sides commit them in the
transaction with their outputs). The rate is that from the first commit at or past a tenth of the messages to the
commit of the last one, so start-up and ramp are in neither figure. *CPU* is processor time of the worker process
per message over the same stretch."""


@dataclass(frozen=True, slots=True)
class Run:
    """Measure one side once."""

    per_s: float
    cpu_us: float


def measure(repetitions: int, messages: int, cluster: Cluster) -> Section:
    """Measure all cases."""
    section = Section(
        "Throughput",
        HOW + f"\n{messages:,} raw or {messages // 2:,} JSON messages a run, medians of {repetitions} (min to max).",
        ("case", "cues-kafka, /s", "by hand, /s", "ratio", "goal", "CPU us: ours", "by hand", "ratio"),
    )
    for codec in NAMES:
        for partitions in (1, 4):
            count = messages if codec == "raw" else messages // 2
            section.rows.append(_case(codec, partitions, repetitions, count, cluster))
    return section


def _case(codec: str, partitions: int, repetitions: int, messages: int, cluster: Cluster) -> list[str]:
    source = cluster.create(unique(f"in-{codec}-{partitions}-"), partitions)
    cluster.fill(source, values_of(codec), messages)
    runs: dict[str, list[Run]] = {"cues": [], "hand": []}
    for sides in alternating(repetitions):
        for name in sides:
            runs[name].append(run(name, Pipe(unique("t"), source, unique("out"), codec, partitions), messages, cluster))
    cluster.delete(source)
    cues, hand = runs["cues"], runs["hand"]
    ratio = median([r.per_s for r in cues]) / median([r.per_s for r in hand])
    cpu = [median([r.cpu_us for r in each]) for each in (cues, hand)]
    return [
        f"{NAMES[codec]}, {partitions} partition{'s' * (partitions > 1)}",
        spread([r.per_s for r in cues]),
        spread([r.per_s for r in hand]),
        f"{ratio:.2f}",
        f">= {TARGETS[codec]}: {holds(ratio >= TARGETS[codec])}",
        f"{cpu[0]:.1f}",
        f"{cpu[1]:.1f}",
        f"{cpu[0] / cpu[1]:.2f}",
    ]


COMPARED = ("case", "cues-kafka, rows/s", "by hand, rows/s", "ratio", "goal", "CPU us: ours", "by hand")
"""The head of a table of rows that both sides write."""


def compared(name: str, ours: list[Run], hand: list[Run], goal: float | None) -> list[str]:
    """A line of such a table; without a goal the ratio is reported."""
    ratio = median([r.per_s for r in ours]) / median([r.per_s for r in hand])
    return [
        name,
        spread([r.per_s for r in ours]),
        spread([r.per_s for r in hand]),
        f"{ratio:.2f}",
        "reported" if goal is None else f">= {goal}: {holds(ratio >= goal)}",
        *(f"{median([r.cpu_us for r in side]):.1f}" for side in (ours, hand)),
    ]


def run(name: str, pipe: Pipe, messages: int, cluster: Cluster) -> Run:
    """Let one side move all messages, and measure it."""
    cluster.create(pipe.target, pipe.partitions)
    group = pipe.group(name)
    began: list[float] = []

    with side(name, cluster, pipe) as process:

        def finished() -> bool:
            done = cluster.committed(group, pipe.source, pipe.partitions)
            if not began and done >= messages * WARM:
                began[:] = [time.monotonic(), done, cpu_s(process)]
            return done >= messages

        until(finished, timeout_s=300, every_s=LOOK_S, what=f"{messages} committed by {name}", process=process)
        wall, cpu = time.monotonic() - began[0], cpu_s(process) - began[2]
    cluster.delete(pipe.target)
    moved = messages - began[1]
    result = Run(moved / wall, cpu / moved * 1e6)
    print(
        f"  {pipe.codec} {pipe.partitions} {pipe.most} {name}: {result.per_s:,.0f}/s, {result.cpu_us:.2f} us CPU",
        flush=True,
    )
    return result

"""The price of telling the state of tasks: messages per second and processor time with the status topic and without."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.harness import Cluster, Pipe, median, spread, unique, values_of
from benchmarks.report import Section, holds
from benchmarks.throughput import Run, run

GOAL = 0.98
SETTINGS = {"on": {}, "off": {"CUES_KAFKA_STATUS_EVERY_S": "0", "CUES_KAFKA_CONTROL": "false"}}

HOW = """One worker process with four partitions and raw 100-byte values, measured as *Throughput* is. *On* is the
default: the worker reports the state of its tasks every 5 s, and follows the control topic. *Off* has
`status_every_s = 0` and `control = false`."""


def measure(repetitions: int, messages: int, cluster: Cluster) -> Section:
    """Measure both in turn."""
    section = Section(
        "Status",
        HOW + f"\n{messages:,} messages a run, medians of {repetitions} (min to max).",
        ("case", "on, /s", "off, /s", "ratio", "goal", "CPU us: on", "off", "ratio"),
    )
    source = cluster.create(unique("in-status-"), 4)
    cluster.fill(source, values_of("raw"), messages)
    runs: dict[str, list[Run]] = {name: [] for name in SETTINGS}
    for turn in range(repetitions):
        for name in list(SETTINGS) if turn % 2 == 0 else reversed(SETTINGS):
            with _environment(SETTINGS[name]):
                runs[name].append(run("cues", Pipe(unique("t"), source, unique("out"), "raw", 4), messages, cluster))
    cluster.delete(source)
    on, off = runs["on"], runs["off"]
    ratio = median([one.per_s for one in on]) / median([one.per_s for one in off])
    cpu = [median([one.cpu_us for one in each]) for each in (on, off)]
    section.rows.append(
        [
            "raw, 4 partitions",
            spread([one.per_s for one in on]),
            spread([one.per_s for one in off]),
            f"{ratio:.3f}",
            f">= {GOAL}: {holds(ratio >= GOAL)}",
            f"{cpu[0]:.2f}",
            f"{cpu[1]:.2f}",
            f"{cpu[0] / cpu[1]:.3f}",
        ]
    )
    return section


@contextmanager
def _environment(settings: dict[str, str]) -> Iterator[None]:
    """What child processes inherit."""
    os.environ.update(settings)
    try:
        yield
    finally:
        for name in settings:
            del os.environ[name]

"""Rows of a table of Delta Lake in one commit with the attempt, beside the same rows by hand."""

from __future__ import annotations

import os
import tempfile

from benchmarks.graphs import DELTA, ENV
from benchmarks.harness import Cluster, Pipe, alternating, unique, values_of
from benchmarks.report import Section
from benchmarks.throughput import COMPARED, Run, compared, run

TARGET = 0.8

CASES: tuple[tuple[str, int, int], ...] = (("10,000 rows a commit", 10_000, 1), ("1,000 rows a commit", 1_000, 4))
"""Name, rows in a commit, and which share of the messages is enough for some seconds."""

HOW = """JSON values of about 100 bytes in one partition. Each message becomes a row of five columns in a table of Delta
Lake, in a directory. With cues-kafka, `Sink(..., into=Delta(...).table(...))`, exactly once. By hand,
[benchmarks/hand_delta.py](../benchmarks/hand_delta.py): the rows of what came are appended with deltalake, with an
application transaction, then the positions are committed in Kafka; a crash between the two doubles rows."""

AFTER = (
    """- With cues-kafka each commit also looks for the newest version of the table, and puts and deletes an object."""
)


def measure(repetitions: int, messages: int, cluster: Cluster) -> Section:
    """Measure all cases, both sides in turn."""
    backlog = 2 * messages
    section = Section(
        "Tables of Delta Lake",
        f"{HOW}\nUp to {backlog:,} messages a run, medians of {repetitions} (min to max).",
        COMPARED,
    )
    source = cluster.create(unique("in-delta-"))
    cluster.fill(source, values_of("json"), backlog)
    runs: dict[tuple[str, str], list[Run]] = {}
    for sides in alternating(repetitions):
        for name, most, share in CASES:
            for side in sides:
                with tempfile.TemporaryDirectory() as lake:
                    os.environ[f"{ENV}LAKE"] = f"file://{lake}"
                    pipe = Pipe(unique("q"), source, unique("out"), DELTA, most=most)
                    runs.setdefault((name, side), []).append(run(side, pipe, backlog // share, cluster))
    cluster.delete(source)
    for name, *_ in CASES:
        section.rows.append(compared(name, runs[name, "cues"], runs[name, "hand"], TARGET))
    section.after = AFTER
    return section

"""Staged writing on Spark, beside the same query without any guarantee, and beside raw producing."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

from benchmarks.harness import Cluster, median, spread, unique, until, values_of
from benchmarks.report import Section, holds
from benchmarks.spark import WIDTH, said_by

SIZES = {3_000: (28, 16), 300_000: (16, 8)}
"""By rows of a micro-batch: the number of batches, and of first batches that do not count, while Java compiles."""

PUBLISHED = 1_000_000

HOW = """4 partitions, `local[2]`, which shares its two processors with the broker. A *batch* counts the messages
of each key, in update mode; it has each key once, so there are as many rows as messages. The figure is the
median time that Spark gives for what its sink does (`addBatch`: the query, its state, the output), without
the first 16 of 28 micro-batches, or the first 8 of 16 large ones: Java compiles. *Directly* is the same query
whose rows each Spark task produces with a plain producer, which doubles them whenever a batch comes again
([benchmarks/staged_side.py](../benchmarks/staged_side.py)). *Publication* is the step that comes after
staging and announcement, for 1,000,000 rows of 70 bytes in four parts, beside two plain processes that
produce the same messages from a loop, each with a header as long as ours; the first of three is not
counted. *Delta* is the same query whose rows go into a table of Delta Lake, beside the rows of each batch
that come to the driver, which appends them with deltalake and an application transaction."""


def measure(repetitions: int, cluster: Cluster) -> Section:
    """Measure all cases, the sides in turn."""
    section = Section("Spark, staged", HOW, ("case", "staged", "compared with", "ratio", "target", "holds"))
    for rows in SIZES:
        section.rows.append(_batches(rows, repetitions, cluster))
    section.rows.append(_publication(repetitions, cluster))
    section.rows.append(_delta(repetitions, cluster))
    return section


def _batches(rows: int, repetitions: int, cluster: Cluster) -> list[str]:
    took = _took(("staged", "direct"), rows, repetitions, cluster)
    ratio = median(took["staged"]) / median(took["direct"])
    return [f"batch of {rows:,} rows, directly", *_shown(took), f"{ratio:.2f}", "<= 1.3", holds(ratio <= 1.3)]


def _delta(repetitions: int, cluster: Cluster) -> list[str]:
    """The ratio is that of the rates, so a greater one is better."""
    rows = max(SIZES)
    took = _took(("delta", "delta-by-hand"), rows, repetitions, cluster)
    ratio = median(took["delta-by-hand"]) / median(took["delta"])
    return [f"Delta, batch of {rows:,} rows, by hand", *_shown(took), f"{ratio:.2f}", ">= 0.8", holds(ratio >= 0.8)]


def _shown(took: Mapping[str, Sequence[float]]) -> list[str]:
    return [spread(found, "{:,.0f} ms") for found in took.values()]


def _took(modes: Sequence[str], rows: int, repetitions: int, cluster: Cluster) -> dict[str, list[float]]:
    """What batches took in milliseconds, by mode."""
    source = cluster.create(unique("staged-in-"), WIDTH)
    cluster.fill(source, values_of("raw"), rows * SIZES[rows][0])
    took: dict[str, list[float]] = {mode: [] for mode in modes}
    for _ in range(repetitions):
        for mode, found in took.items():
            found.extend(_addbatch_ms(mode, rows, source, cluster))
            print(f"  {mode}, {rows:,} rows: {median(found):,.0f} ms", flush=True)
    cluster.delete(source)
    return took


def _addbatch_ms(mode: str, rows: int, source: str, cluster: Cluster) -> list[float]:
    target = cluster.create(unique("staged-out-"), WIDTH)
    batches, warm = SIZES[rows]
    with said_by(_command(mode, cluster, source, target, rows)) as (process, said):

        def over() -> bool:
            said("progress")
            return len([row for row in said.rows if "addBatch" in row]) >= batches

        until(over, timeout_s=400, every_s=0.1, what=f"{batches} batches, {mode}", process=process)
    cluster.delete(target)
    return [float(row["addBatch"]) for row in said.rows if "addBatch" in row][warm:]


def _publication(repetitions: int, cluster: Cluster) -> list[str]:
    ours, raw = [], []
    for _ in range(repetitions):
        target = cluster.create(unique("published-"), WIDTH)
        with said_by(_command("publish", cluster, target, target, PUBLISHED)) as (process, said):
            until(lambda said=said: said("rows") >= 3, timeout_s=400, every_s=0.1, what="published", process=process)  # type: ignore[misc]
        ours += [PUBLISHED / row["published_s"] for row in said.rows[1:]]
        with said_by(_command("raw", cluster, target, target, PUBLISHED)) as (process, said):
            until(lambda said=said: said("rate") >= 1, timeout_s=200, every_s=0.05, what="produced", process=process)  # type: ignore[misc]
        raw.append(said.rows[0]["rate"])
        cluster.delete(target)
        print(f"  publication {median(ours):,.0f}/s, raw {median(raw):,.0f}/s", flush=True)
    ratio = median(ours) / median(raw)
    what = "publication of 1,000,000 rows, raw"
    return [what, spread(ours), spread(raw), f"{ratio:.2f}", ">= 0.9", holds(ratio >= 0.9)]


def _command(mode: str, cluster: Cluster, source: str, target: str, rows: int) -> list[str]:
    words = ["--bootstrap", cluster.bootstrap, "--name", unique("s"), "--source", source, "--target", target]
    return [sys.executable, "-m", "benchmarks.staged_side", mode, *words, "--rows", str(rows)]

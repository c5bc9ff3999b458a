"""Measure everything and write docs/benchmarks.md: ``python benchmarks/run.py [--quick] [--only PROGRAM]``."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks import (
    arrow,
    bridges,
    codecs,
    columns,
    delta,
    growth,
    latency,
    memory,
    metrics,
    recovery,
    report,
    spans,
    spark,
    spark_start,
    sql,
    staged,
    start,
    state,
    status,
    strategies,
    throughput,
)
from benchmarks.harness import Cluster
from cues_kafka.brokers.local import LocalBroker


@dataclass(frozen=True, slots=True)
class Size:
    """The amount of measuring; `QUICK` only shows that the programs work."""

    repetitions: int
    moved: int
    backlog: int
    hops: int
    kills: int
    records: int


FULL = Size(repetitions=5, moved=600_000, backlog=1_000_000, hops=1_000, kills=11, records=1_000_000)
QUICK = Size(repetitions=1, moved=150_000, backlog=150_000, hops=100, kills=1, records=20_000)

PROGRAMS: dict[str, Callable[[Size, Cluster], report.Section]] = {
    "throughput": lambda size, cluster: throughput.measure(size.repetitions, size.moved, cluster),
    "status": lambda size, cluster: status.measure(size.repetitions, size.moved, cluster),
    "latency": lambda size, cluster: latency.measure(min(3, size.repetitions), size.hops, cluster),
    "strategies": lambda size, cluster: strategies.measure(size.repetitions, size.moved, size.hops, cluster),
    "state": lambda size, cluster: state.measure(size.repetitions, size.moved, size.records, cluster),
    "sql": lambda size, cluster: sql.measure(size.repetitions, size.moved, cluster),
    "delta": lambda size, cluster: delta.measure(size.repetitions, size.moved, cluster),
    "bridges": lambda size, cluster: bridges.measure(min(3, size.repetitions), size.moved / 150_000, cluster),
    "recovery": lambda size, cluster: recovery.measure(size.kills, cluster),
    "memory": lambda size, cluster: memory.measure(size.backlog, size.records, cluster),
    "growth": lambda size, cluster: growth.measure(10 * size.backlog, cluster),
    "metrics": lambda size, cluster: metrics.measure(max(7, size.repetitions), 10 * size.moved, cluster),
    "spans": lambda size, cluster: spans.measure(size.repetitions, size.moved, cluster),
    "avro": lambda size, _: codecs.measure(400 * size.repetitions),
    "columns": lambda size, _: columns.measure(6 * size.repetitions),
    "arrow": lambda size, _: arrow.measure(max(2, size.repetitions)),
    "start": lambda size, cluster: start.measure(size.repetitions, cluster),
    "staged": lambda size, cluster: staged.measure(min(3, size.repetitions), cluster),
    "spark": lambda size, cluster: spark.measure(min(3, size.repetitions), size.backlog, cluster),
    "spark-start": lambda size, cluster: spark_start.measure(min(3, size.repetitions), cluster),
}


def main() -> None:
    parser = argparse.ArgumentParser(description="Ratios against a hand-written transactional loop, on a real broker.")
    parser.add_argument("--quick", action="store_true", help="measure a little, once, and write nothing")
    parser.add_argument("--only", action="append", choices=list(PROGRAMS), help="run this program only; repeatable")
    cases = [one.case for one in bridges.BRIDGES]
    parser.add_argument("--bridge", action="append", choices=cases, help="renew the row of this bridge; repeatable")
    given = parser.parse_args()
    size = QUICK if given.quick else FULL
    if (load := os.getloadavg()[0]) > 1:
        print(f"The load average is {load:.1f}: something else runs here, and the figures will be worth less.")
    for case in given.bridge or []:
        _renew(case, size, quick=given.quick)
    if given.bridge:
        return
    for name in given.only or [name for name in PROGRAMS if name not in ("spark", "staged", "spark-start")]:
        began, load = time.monotonic(), os.getloadavg()[0]
        print(f"{name} ...", flush=True)
        with LocalBroker(benchmark=True) as broker:  # a new one for each program, with an empty heap
            section = PROGRAMS[name](size, Cluster(broker.bootstrap))
        section.load = load
        print(f"\n{section.text()}\n({time.monotonic() - began:.0f} s)\n", flush=True)
        if not given.quick:
            report.save([section])


def _renew(case: str, size: Size, *, quick: bool) -> None:
    load, repetitions, seconds = os.getloadavg()[0], min(3, size.repetitions), size.moved / 150_000
    with LocalBroker(benchmark=True) as broker:
        section = bridges.measure(repetitions, seconds, Cluster(broker.bootstrap), case)
    section.load = load
    if not quick:
        report.renew(section, f"medians of {repetitions} runs of {seconds:g} s on the quicker side")


if __name__ == "__main__":
    main()

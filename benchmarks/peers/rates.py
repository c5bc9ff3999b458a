"""Messages per second of two jobs on each side, whose outputs are compared with what plain Python makes."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from benchmarks.harness import Cluster, cpu_s, median, spread, until
from benchmarks.peers import jobs
from benchmarks.peers.runs import GIVE_UP_S, LOOK_S, PARTITIONS, prepared
from benchmarks.peers.sides import ORDERS, PIPE, Peer
from benchmarks.report import Section

HOW = f"""Two jobs in cues-kafka and in three other libraries, one process each, {PARTITIONS} partitions, a
backlog that is there from the beginning, values of 100 bytes, lz4. *Pipe*: bytes from one topic to another. *Orders*:
read JSON, refuse what is no order, count the orders of each customer in a store, send each count, and a message for
each order that was refused. The programs are those of [Come from Kafka Streams, Quix Streams or Faust](coming-from.md),
in [benchmarks/peers/programs](../benchmarks/peers/programs). The outputs of every run are compared with what plain
Python makes of the same messages. Rates are measured as under Throughput, but from three tenths on, since
Java compiles a program while it runs; what it compiles later is in its figures. A ratio is that of the medians."""

WARM = 0.3
"""The share of the messages that belongs to the start."""


@dataclass(slots=True)
class Rates:
    """One side's runs of one job."""

    per_s: list[float] = field(default_factory=list)
    cpu_us: list[float] = field(default_factory=list)
    verdict: jobs.Verdict = field(default_factory=jobs.Verdict)


def measure(repetitions: int, messages: int, sides: Mapping[str, Peer], cluster: Cluster) -> Section:
    """Run both jobs on every side, in turn; the first side is the one that the others are compared with."""
    section = Section(
        "Peers",
        f"{HOW}\n{messages:,} messages a run, a tenth of them for Faust; medians of {repetitions} (min to max).",
        ("job", "library", "messages/s", "ratio", "CPU us", "outputs"),
    )
    for job in (PIPE, ORDERS):
        found = {name: Rates() for name in sides}
        for turn in range(repetitions):
            for name in list(sides) if turn % 2 == 0 else list(sides)[::-1]:
                _run(sides[name], job, messages, found[name], cluster)
        first = median(next(iter(found.values())).per_s)
        for name, rates in found.items():
            ratio, cpu = f"{median(rates.per_s) / first:.2f}", f"{median(rates.cpu_us):.1f}"
            section.rows.append([job, sides[name].title, spread(rates.per_s), ratio, cpu, rates.verdict.said()])
    section.after = "\n".join(f"- {peer.title}: {peer.settings}." for peer in sides.values())
    return section


def _run(peer: Peer, job: str, messages: int, found: Rates, cluster: Cluster) -> None:
    with prepared(cluster, peer, job, messages) as run, run.started() as process:
        began: list[float] = []

        def finished() -> bool:
            done = run.done()
            if not began and done >= len(run.records) * WARM:
                began[:] = [time.monotonic(), done, cpu_s(process)]
            return done >= len(run.records)

        until(finished, timeout_s=GIVE_UP_S, every_s=LOOK_S, what=f"all committed by {peer.title}", process=process)
        wall, cpu, moved = time.monotonic() - began[0], cpu_s(process) - began[2], len(run.records) - began[1]
        verdict = run.verdict()
    found.per_s.append(moved / wall)
    found.cpu_us.append(cpu / moved * 1e6)
    found.verdict += verdict
    print(f"  {job} {peer.short}: {moved / wall:,.0f}/s, {found.cpu_us[-1]:.1f} us CPU, {verdict.said()}", flush=True)

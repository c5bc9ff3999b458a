"""Messages per second of two jobs on each side, whose outputs are compared with what plain Python makes."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from benchmarks.harness import Cluster, cpu_s, median, spread, until
from benchmarks.peers import jobs
from benchmarks.peers.runs import GIVE_UP_S, LOOK_S, USUAL, Shape, prepared
from benchmarks.peers.sides import ORDERS, PIPE, Peer
from benchmarks.report import Section

HOW = f"""Two jobs in cues-kafka and in three other libraries, one process each, {USUAL.partitions} partitions, a
backlog that is there from the beginning, values of 100 bytes, lz4. *Pipe*: bytes from one topic to another. *Orders*:
read JSON, refuse what is no order, count the orders of each customer in a store, send each count, and a message for
each order that was refused. The programs are those of [Come from Kafka Streams, Quix Streams or Faust](coming-from.md),
in `benchmarks/peers/programs`. The outputs of every run are compared with what plain
Python makes of the same messages. Rates are measured as under Throughput, but from three tenths on, since
Java compiles a program while it runs; what it compiles later is in its figures. With 64 partitions Kafka Streams has
two threads, as many as the machine has processors. A ratio is that of the medians."""

CASES = (
    (PIPE, PIPE, USUAL),
    (f"{PIPE}, 1 partition", PIPE, Shape(partitions=1)),
    (f"{PIPE}, 64 partitions", PIPE, Shape(partitions=64, threads=2)),
    (f"{PIPE}, 1 kB", PIPE, Shape(value_bytes=1_000)),
    (ORDERS, ORDERS, USUAL),
)
"""The rows: a title, a job, and what it moves. All but the usual shape are for the sides of `FASTEST` alone."""

FASTEST = ("cues", "streams")

WARM = 0.3
"""The share of the messages that belongs to the start."""


@dataclass(slots=True)
class Rates:
    """One side's runs of one job."""

    per_s: list[float] = field(default_factory=list)
    cpu_us: list[float] = field(default_factory=list)
    verdict: jobs.Verdict = field(default_factory=jobs.Verdict)

    def add(self, per_s: float, cpu_us: float, verdict: jobs.Verdict) -> None:
        """Add a run."""
        self.per_s.append(per_s)
        self.cpu_us.append(cpu_us)
        self.verdict += verdict


def measure(repetitions: int, messages: int, sides: Mapping[str, Peer], cluster: Cluster) -> Section:
    """Run both jobs on every side, in turn; the first side is the one that the others are compared with."""
    section = Section(
        "Peers",
        f"{HOW}\n{messages:,} messages a run, a tenth of them for Faust; medians of {repetitions} (min to max).",
        ("job", "library", "messages/s", "ratio", "CPU us", "outputs"),
    )
    for title, job, shape in CASES:
        names = [name for name in sides if shape == USUAL or name in FASTEST]
        found = {name: Rates() for name in names}
        for turn in range(repetitions):
            for name in names if turn % 2 == 0 else names[::-1]:
                print(f"  {title}: ", end="", flush=True)
                found[name].add(*_run(sides[name], job, shape, messages, cluster))
        first = median(next(iter(found.values())).per_s)
        for name, rates in found.items():
            ratio, cpu = f"{median(rates.per_s) / first:.2f}", f"{median(rates.cpu_us):.1f}"
            section.rows.append([title, sides[name].title, spread(rates.per_s), ratio, cpu, rates.verdict.said()])
    section.after = "\n".join(f"- {peer.title}: {peer.settings}." for peer in sides.values())
    return section


def _run(peer: Peer, job: str, shape: Shape, messages: int, cluster: Cluster) -> tuple[float, float, jobs.Verdict]:
    """Messages per second, microseconds of processor time for each, and what is wrong with the outputs."""
    with prepared(cluster, peer, job, messages, shape) as run, run.started() as process:
        began: list[float] = []

        def finished() -> bool:
            done = run.done()
            if not began and done >= len(run.records) * WARM:
                began[:] = [time.monotonic(), done, cpu_s(process)]
            return done >= len(run.records)

        until(finished, timeout_s=GIVE_UP_S, every_s=LOOK_S, what=f"all committed by {peer.title}", process=process)
        wall, cpu, moved = time.monotonic() - began[0], cpu_s(process) - began[2], len(run.records) - began[1]
        verdict = run.verdict()
    print(f"{peer.short}: {moved / wall:,.0f}/s, {cpu / moved * 1e6:.1f} us CPU, {verdict.said()}", flush=True)
    return moved / wall, cpu / moved * 1e6, verdict

"""Plain processors on Spark, beside one native worker, beside the same job at least once, and beside an empty job."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import psutil

from benchmarks.harness import ROOT, Cluster, Pipe, median, side, spread, unique, until, values_of
from benchmarks.report import Section, holds
from cues_kafka.ports.log import TopicPartition

WIDTH = 4
PER_SLOT = 50_000
BATCHES = 8
WARM = 2 / BATCHES
TRIGGERS = 12
LARGE = 1_000

HOW = """4 partitions, 8-byte keys, a backlog that is there from the beginning, 50,000 messages for each slot and
micro-batch; Spark is `local[2]`, so it has both processors, and shares them with the broker. The rate is that of the
output topic's last stable offset behind the first two of 8 micro-batches, in which Java compiles; a run that is not
counted comes before the others, in which the broker's Java does. *At least once* is the same code without its
transactions, *by hand* the least that does the job: the same ranges, reader and function, a plain producer, no records,
no headers ([benchmarks/spark_side.py](../benchmarks/spark_side.py)). *Source* is `format("cues")` into nothing, 200,000
rows for each Spark task, beside our own reader in one process, whose key, value and offset of each message are
looked at. *Trigger* is the time that Spark gives for a micro-batch of one message for each partition, beside one whose
job does nothing with its rows. *Start* is from the start of the program to the first committed message, Spark's own
start with it."""


AFTER = """The source misses its target, which grows with what a bare reader in one process takes."""


@dataclass(frozen=True, slots=True)
class Speed:
    """
    One run.

    Attributes:
        rate: messages a second.
        start_s: from the start of the process to the first message that a reader sees.
    """

    rate: float
    start_s: float


def measure(repetitions: int, backlog: int, cluster: Cluster) -> Section:
    """Measure all cases, the sides in turn."""
    section = Section("Spark", HOW, ("case", "on Spark", "compared with", "figure", "target", "holds"), after=AFTER)
    messages = max(backlog, BATCHES * WIDTH * PER_SLOT)
    small = cluster.create(unique("spark-in-"), WIDTH)
    cluster.fill(small, values_of("raw"), messages)
    _speeds(("two",), 1, small, messages, cluster)
    speeds = _speeds(("exactly", "native", "least", "hand", "two"), repetitions, small, messages, cluster)
    ours, starts = [one.rate for one in speeds["exactly"]], [one.start_s for one in speeds["exactly"]]
    for name, what, target in (("native", "one native process", 0.9), ("least", "at least once", 0.85)):
        section.rows.append(_ratio(what, ours, [one.rate for one in speeds[name]], target))
    for name, what in (("hand", "at least once, by hand"), ("two", "two native processes")):
        section.rows.append(_ratio(what, ours, [one.rate for one in speeds[name]], None))
    section.rows.append(_source(small, messages, cluster, repetitions))
    cluster.delete(small)
    large = cluster.create(unique("spark-in-"), WIDTH)
    cluster.fill(large, values_of("raw", LARGE), messages // 2)
    speeds = _speeds(("exactly", "native"), repetitions, large, messages // 2, cluster)
    rates = {name: [one.rate for one in found] for name, found in speeds.items()}
    section.rows.append(_ratio("one native process, 1 kB", rates["exactly"], rates["native"], None))
    cluster.delete(large)
    section.rows.append(_triggers(cluster))
    section.rows.append(["start", spread(starts, "{:.1f} s"), "", "", "reported", ""])
    return section


def _ratio(what: str, ours: list[float], others: list[float], target: float | None) -> list[str]:
    ratio = median(ours) / median(others)
    verdict = [f">= {target}", holds(ratio >= target)] if target else ["reported", ""]
    return [what, spread(ours), spread(others), f"{ratio:.2f}", *verdict]


def _speeds(
    names: Sequence[str], repetitions: int, source: str, messages: int, cluster: Cluster
) -> dict[str, list[Speed]]:
    found: dict[str, list[Speed]] = {name: [] for name in names}
    for _ in range(repetitions):
        for name, speeds in found.items():
            speeds.append(_speed(name, source, messages, cluster))
            print(f"  {name}: {speeds[-1].rate:,.0f}/s, first after {speeds[-1].start_s:.1f} s", flush=True)
    return found


def _speed(name: str, source: str, messages: int, cluster: Cluster) -> Speed:
    target = cluster.create(unique("spark-out-"), WIDTH)
    begin, first, warm = time.monotonic(), math.inf, (math.inf, 0)

    def finished() -> bool:
        nonlocal first, warm
        done, now = _written(target, cluster), time.monotonic()
        first = min(first, now) if done else first
        warm = (now, done) if done >= messages * WARM and not warm[1] else warm
        return done >= messages

    pipe = Pipe(unique("s"), source, target, "raw", WIDTH)
    with ExitStack() as stack:
        if name in ("native", "two"):
            processes = [stack.enter_context(side("cues", cluster, pipe)) for _ in range(1 + (name == "two"))]
        else:
            processes = [stack.enter_context(spark(name, cluster, pipe, limit=WIDTH * PER_SLOT))[0]]
        until(finished, timeout_s=300, every_s=0.05, what=f"written, {name}", process=processes[0])
        end = time.monotonic()
    cluster.delete(target)
    return Speed((messages - warm[1]) / (end - warm[0]), first - begin)


def _written(topic: str, cluster: Cluster) -> int:
    places = [TopicPartition(topic, p) for p in range(WIDTH)]
    return sum(marks.stable for marks in cluster.broker.watermarks(places).values())


def _source(source: str, messages: int, cluster: Cluster, repetitions: int) -> list[str]:
    """Rows a second of the second batch, and of a plain consumer, in turn."""
    ours, raw = [], []
    for _ in range(repetitions):
        with spark("source", cluster, Pipe(unique("s"), source, source, "raw", WIDTH), limit=messages // 2) as (
            child,
            said,
        ):
            until(lambda said=said: said("progress") >= 2, timeout_s=300, every_s=0.2, what="read", process=child)  # type: ignore[misc]
        ours.append(float(said.rows[1]["per_s"]))
        raw.append(_consumed(source, messages, cluster))
    wanted = 250_000 * median(raw) / 400_000
    verdict = [f">= {wanted:,.0f}/s", holds(median(ours) >= wanted)]
    return ["source", spread(ours), spread(raw), f"{median(ours) / median(raw):.2f}", *verdict]


def _consumed(source: str, messages: int, cluster: Cluster) -> float:
    reader, count, began = cluster.broker.reader("raw", prompt=True), 0, time.monotonic()
    reader.assign({TopicPartition(source, p): 0 for p in range(WIDTH)})
    while count < messages:
        for part in reader.poll(0.5):
            for message in part.messages:
                message.key(), message.value(), message.offset()
                count += 1
    reader.close()
    return messages / (time.monotonic() - began)


def _triggers(cluster: Cluster) -> list[str]:
    took = {name: _trigger_ms(name, cluster) for name in ("empty", "exactly")}
    added = median(took["exactly"]) - median(took["empty"])
    form = "{:,.0f} ms"
    return [
        "trigger",
        spread(took["exactly"], form),
        spread(took["empty"], form),
        f"{added:.0f} ms",
        "<= 100 ms",
        holds(added <= 100),
    ]


def _trigger_ms(name: str, cluster: Cluster) -> list[float]:
    source, target = cluster.create(unique("trigger-in-"), WIDTH), cluster.create(unique("trigger-out-"), WIDTH)
    pipe = Pipe(unique("s"), source, target, "raw", WIDTH)
    with spark(name, cluster, pipe, limit=1_000_000) as (process, said):
        for n in range(TRIGGERS):
            cluster.fill(source, [b"x" * 100], WIDTH)
            until(lambda n=n: said("progress") > n, timeout_s=120, every_s=0.02, what="a batch", process=process)  # type: ignore[misc]
    return [float(one["triggerExecution"]) for one in said.rows][2:]


class _Said:
    """The child's messages about its batches, by line."""

    def __init__(self, process: Any) -> None:
        self._process = process
        self.rows: list[dict[str, Any]] = []
        os.set_blocking(process.stdout.fileno(), False)
        self._rest = b""

    def __call__(self, _: str) -> int:
        self._rest += self._process.stdout.read() or b""
        *lines, self._rest = self._rest.split(b"\n")
        self.rows += [json.loads(line) for line in lines if line.startswith(b"{")]
        return len(self.rows)


@contextmanager
def spark(mode: str, cluster: Cluster, pipe: Pipe, *, limit: int) -> Iterator[tuple[Any, _Said]]:
    """A driver program as a child process; it ends cleanly when its input is closed."""
    words = ["--bootstrap", cluster.bootstrap, "--name", pipe.name, "--source", pipe.source, "--target", pipe.target]
    command = [sys.executable, "-m", "benchmarks.spark_side", mode, *words]
    command += ["--partitions", str(pipe.partitions), "--limit", str(limit)]
    with said_by(command) as found:
        yield found


@contextmanager
def said_by(command: Sequence[str]) -> Iterator[tuple[Any, _Said]]:
    """A child process that reports its progress; it ends cleanly when its input is closed."""
    process = psutil.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
    said = _Said(process)
    try:
        yield process, said
        process.stdin.close()
        process.wait(60)
        said("rest")
    finally:
        with suppress(psutil.NoSuchProcess):
            for child in [*process.children(recursive=True), process]:
                with suppress(psutil.NoSuchProcess):
                    child.kill()
        process.wait(10)

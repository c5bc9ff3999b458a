"""Plain processors on Spark, beside one native worker, beside the same job at least once, and beside an empty job."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psutil

from benchmarks.harness import ROOT, Cluster, Pipe, median, side, spread, unique, until, values_of
from benchmarks.report import Section, holds
from cues_kafka.ports import TopicPartition

WIDTH = 4
PER_SLOT = 50_000
WARM = 0.1
TRIGGERS = 12

HOW = """100-byte values with 8-byte keys, 4 partitions, a backlog that is there from the beginning, at least
50,000 messages for each slot and batch; Spark is `local[2]`, so it has both processors, and shares them with the
broker. The rate is that of the output topic's last stable offset, from a tenth of the messages to the last one. *At
least once* is [benchmarks/spark_side.py](../benchmarks/spark_side.py): the same ranges, reader, function and batches, a
plain producer. *Source* is `format("cues")` into nothing, beside a loop of `poll`. *Trigger* is the time that Spark
gives for a micro-batch of one message for each partition, beside one whose job does nothing with its rows."""


def measure(repetitions: int, messages: int, cluster: Cluster) -> Section:
    """All cases, the sides in turn."""
    section = Section("Spark", HOW, ("case", "on Spark", "beside it", "figure", "target", "holds"))
    source = cluster.create(unique("spark-in-"), WIDTH)
    cluster.fill(source, values_of("raw"), messages)
    rates: dict[str, list[float]] = {"exactly": [], "native": [], "least": []}
    for _ in range(repetitions):
        for name, found in rates.items():
            found.append(_rate(name, source, messages, cluster))
            print(f"  {name}: {found[-1]:,.0f}/s", flush=True)
    ours = median(rates["exactly"])
    for name, what, target in (("native", "one native process", 0.9), ("least", "at least once", 0.85)):
        ratio = ours / median(rates[name])
        section.rows.append(
            [
                what,
                spread(rates["exactly"]),
                spread(rates[name]),
                f"{ratio:.2f}",
                f">= {target}",
                holds(ratio >= target),
            ]
        )
    section.rows.append(_source(source, messages, cluster))
    section.rows.append(_triggers(cluster))
    return section


def _rate(name: str, source: str, messages: int, cluster: Cluster) -> float:
    target = cluster.create(unique("spark-out-"), WIDTH)
    began: list[float] = []

    def finished() -> bool:
        done = _written(target, cluster)
        if not began and done >= messages * WARM:
            began[:] = [time.monotonic(), done]
        return done >= messages

    pipe = Pipe(unique("s"), source, target, "raw", WIDTH)
    if name == "native":
        with side("cues", cluster, pipe) as process:
            until(finished, timeout_s=300, every_s=0.05, what="written natively", process=process)
    else:
        with spark(name, cluster, pipe, limit=WIDTH * PER_SLOT) as (process, _):
            until(finished, timeout_s=300, every_s=0.05, what=f"written on Spark, {name}", process=process)
    rate = (messages - began[1]) / (time.monotonic() - began[0])
    cluster.delete(target)
    return rate


def _written(topic: str, cluster: Cluster) -> int:
    places = [TopicPartition(topic, p) for p in range(WIDTH)]
    return sum(marks.stable for marks in cluster.broker.watermarks(places).values())


def _source(source: str, messages: int, cluster: Cluster) -> list[str]:
    """Rows a second of the batches after the first, and of a plain consumer."""
    pipe = Pipe(unique("s"), source, source, "raw", WIDTH)
    told: list[dict[str, Any]] = []
    with spark("source", cluster, pipe, limit=messages // 5) as (process, said):
        until(lambda: said("progress") >= 5, timeout_s=300, every_s=0.2, what="read", process=process)
    told = said.rows
    rate = median([one["per_s"] for one in told[1:] if one["rows"]])
    began, count = time.monotonic(), 0
    reader = cluster.broker.reader("raw")
    reader.assign({TopicPartition(source, p): 0 for p in range(WIDTH)})
    while count < messages:
        count += sum(len(part.messages) for part in reader.poll(0.5))
    reader.close()
    raw = messages / (time.monotonic() - began)
    wanted = 250_000 * raw / 400_000
    return ["source", f"{rate:,.0f}", f"{raw:,.0f}", f"{rate / raw:.2f}", f">= {wanted:,.0f}/s", holds(rate >= wanted)]


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
    return [float(one["triggerExecution"]) for one in said.rows if one["rows"] or name == "exactly"][2:]


class _Said:
    """What the child says of its batches, line by line."""

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
    """A driver program as a child process; it ends in order when its input is closed."""
    words = ["--bootstrap", cluster.bootstrap, "--name", pipe.name, "--source", pipe.source, "--target", pipe.target]
    command = [sys.executable, "-m", "benchmarks.spark_side", mode, *words]
    command += ["--partitions", str(pipe.partitions), "--limit", str(limit)]
    process = psutil.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
    said = _Said(process)
    try:
        yield process, said
        process.stdin.close()
        process.wait(60)
        said("rest")
    finally:
        for child in [*process.children(recursive=True), process]:
            with_gone = psutil.NoSuchProcess
            try:
                child.kill()
            except with_gone:
                continue
        process.wait(10)

"""Start and restart of ``cues-kafka run --engine spark``: ``python -m benchmarks.spark_start --before OLDER_TREE``.

Three queries on `local[2]`: a plain processor, DataFrames that are written directly, and DataFrames that are written
staged. Times go from the start of the command, and from a SIGKILL of the driver's process group, to the first committed
message of the first and of the last of the three queries. Processor seconds are those of all processes of the command
in that time; beside other programs they say more than times. The first start of each version is not shown with
`--warm`: it fills the caches of a machine.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Self

import psutil

from benchmarks.harness import ROOT, Cluster, child, median, unique, until
from cues_kafka import DataFrameProcessor, Graph, Json, Processor, Source, Topic
from cues_kafka.brokers.local import LocalBroker
from cues_kafka.errors import CuesError, RetriableError
from cues_kafka.ports.log import TopicPartition

NAME = "CUES_BENCH_SPARK_START"
WIDTH = 2
EACH = 10
QUERIES = ("plain", "direct", "staged")


def selected(orders: Any) -> Any:
    return orders.select("n", "_cues")


def shuffled(orders: Any) -> Any:
    return orders.repartition(WIDTH, "n").select("n")


@dataclass(frozen=True)
class Order:
    """What is sent."""

    n: int


def same(order: Order) -> Order:
    return order


def make(name: str) -> Graph:
    """The graph of a run, whose topics begin with its name."""
    source = f"{name}.orders"
    topics = {source: Topic(value=Json(Order), partitions=WIDTH)}
    topics |= {f"{name}.{query}": Topic(value=Json(Order), partitions=WIDTH) for query in QUERIES}
    return Graph(
        name,
        Source(source),
        Processor(same, name="plain", inputs=source, outputs=f"{name}.plain"),
        DataFrameProcessor(selected, name="direct", inputs=source, outputs=f"{name}.direct"),
        DataFrameProcessor(shuffled, name="staged", inputs=source, outputs=f"{name}.staged"),
        topics=topics,
    )


graph = make(os.environ.get(NAME, "start"))


@dataclass
class Taken:
    """
    What one start took.

    Attributes:
        first_s: to the first query's first commit.
        last_s: to the last query's.
        cpu_s: processor seconds of all processes of the command.
        javas: JVMs that were started.
        pythons: Python processes.
        each: processes with their start and processor seconds, for a look at single ones.
    """

    first_s: float = 0.0
    last_s: float = 0.0
    cpu_s: float = 0.0
    javas: int = 0
    pythons: int = 0
    each: list[tuple[float, float, str]] = field(default_factory=list)


class Family:
    """Looks every few hundredths of a second at the processes of a session, and keeps what each has used."""

    def __init__(self, mark: str) -> None:
        self._mark = f"{NAME}={mark}\0".encode()
        self._seen: dict[tuple[int, float], tuple[float, str]] = {}
        self._foreign: set[int] = set()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._began_s = time.time()
        self._base: dict[tuple[int, float], float] = {}

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(0.04):
            for pid in psutil.pids():
                if pid not in self._foreign:
                    self._look(pid)

    def _look(self, pid: int) -> None:
        try:
            if self._mark not in Path(f"/proc/{pid}/environ").read_bytes():
                self._foreign.add(pid)
                return
            process = psutil.Process(pid)
            times = process.cpu_times()
            self._seen[pid, process.create_time()] = times.user + times.system, " ".join(process.cmdline())
        except (psutil.Error, OSError):
            return

    def mark(self) -> None:
        """Begin to count here."""
        self._began_s = time.time()
        self._base = {one: used for one, (used, _) in self._seen.items()}

    def taken(self) -> Taken:
        """What was used since the mark."""
        found = Taken()
        for one, (used, text) in list(self._seen.items()):
            found.cpu_s += used - self._base.get(one, 0.0)
            if one not in self._base:
                found.javas += "java" in text.partition(" ")[0]
                found.pythons += "python" in text.partition(" ")[0]
                found.each.append((one[1] - self._began_s, used, text))
        found.each.sort()
        return found


def measure(root: Path, cluster: Cluster, directory: Path, cache: Path, options: list[str]) -> tuple[Taken, Taken]:
    """Start and restart the graph with the code of one tree."""
    name = unique("s")
    named = make(name)
    for topic in named.topics_used():
        until(partial(_created, cluster, topic), timeout_s=120, every_s=1.0, what=f"topic {topic}")
    env = {**os.environ, NAME: name, "PYTHONPATH": f"{root}", "CUES_KAFKA_CACHE": str(cache)}
    env["PYTHONPATH"] = f"{root}:{ROOT}" if root != ROOT else str(root)
    program = [sys.executable, "-m", "cues_kafka.cli.main", "run", "benchmarks.spark_start:graph"]
    program += ["--bootstrap", cluster.bootstrap, "--engine", "spark", "--master", "local[2]"]
    program += ["--checkpoint", str(directory / name), *options]
    cluster.fill(f"{name}.orders", [b'{"n": 1}'], EACH * WIDTH)
    with Family(name) as family:
        family.mark()
        with child(program, env) as process:
            start = _until_committed(name, EACH * WIDTH, cluster, family, process)
            if root == ROOT:  # the first run writes a class archive, for this restart, too
                with suppress(TimeoutError):
                    until(lambda: any(cache.glob("spark/*.jsa")), timeout_s=90, every_s=0.2, what="a class archive")
            cluster.fill(f"{name}.orders", [b'{"n": 2}'], EACH * WIDTH)
            family.mark()
            [driver] = process.children()
            os.killpg(driver.pid, signal.SIGKILL)
            again = _until_committed(name, 2 * EACH * WIDTH, cluster, family, process)
    return start, again


def _created(cluster: Cluster, topic: str) -> bool:
    try:
        cluster.create(topic, WIDTH)
    except CuesError:  # the machine is busy, and the broker new
        return False
    return True


def _until_committed(name: str, count: int, cluster: Cluster, family: Family, process: psutil.Popen) -> Taken:
    began = time.monotonic()
    found: dict[str, float] = {}

    def over() -> bool:
        places = {query: [TopicPartition(f"{name}.{query}", p) for p in range(WIDTH)] for query in QUERIES}
        try:
            marks = cluster.broker.watermarks([place for own in places.values() for place in own])
        except RetriableError:  # the machine is busy
            return False
        for query, own in places.items():
            if sum(marks[place].stable for place in own) >= count:
                found.setdefault(query, time.monotonic() - began)
        return len(found) == len(QUERIES)

    until(over, timeout_s=400, every_s=0.05, what=f"committed: {found}", process=process)
    taken = family.taken()
    taken.first_s, taken.last_s = min(found.values()), max(found.values())
    return taken


@contextmanager
def _directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--before", type=Path, help="root of a tree of an older version, to compare with")
    parser.add_argument("--only-before", action="store_true", help="measure that tree alone")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--warm", action="store_true", help="do not show the first start of each version")
    parser.add_argument("--processes", action="store_true", help="show each process")
    parser.add_argument("options", nargs="*", help="more options of the command")
    given = parser.parse_args()
    trees = {} if given.only_before else {"now": ROOT}
    trees |= {"before": given.before.resolve()} if given.before else {}
    found: dict[tuple[str, str], list[Taken]] = {}
    with LocalBroker() as broker, _directory() as directory:
        cluster = Cluster(broker.bootstrap)
        for turn in range(given.repetitions + given.warm):
            for tree, root in trees.items():
                start, again = measure(root, cluster, directory, directory / f"cache-{tree}", given.options)
                for what, one in (("start", start), ("restart", again)):
                    if turn >= given.warm:
                        found.setdefault((what, tree), []).append(one)
                    _show(f"{what}, {tree}", one, each=given.processes)
    for (what, tree), taken in found.items():
        texts = [f"{label} {_spread(taken, of)}" for label, of in FIGURES.items()]
        print(f"{what}, {tree}: " + ", ".join(texts), flush=True)


FIGURES: dict[str, Callable[[Taken], float]] = {
    "first commit s": lambda one: one.first_s,
    "last commit s": lambda one: one.last_s,
    "processor s": lambda one: one.cpu_s,
    "JVMs": lambda one: one.javas,
    "Pythons": lambda one: one.pythons,
}


def _spread(taken: list[Taken], of: Callable[[Taken], float]) -> str:
    figures = [of(one) for one in taken]
    return f"{median(figures):.1f} ({min(figures):.1f} to {max(figures):.1f})"


def _show(label: str, one: Taken, *, each: bool) -> None:
    words = ", ".join(f"{name} {of(one):.1f}" for name, of in FIGURES.items())
    print(f"  {label}: {words}; load {os.getloadavg()[0]:.1f}", flush=True)
    for at_s, used_s, text in one.each if each else ():
        print(f"    {at_s:6.2f} s: {used_s:6.2f} s {text[:40]} ... {text[-110:]}", flush=True)


if __name__ == "__main__":
    main()

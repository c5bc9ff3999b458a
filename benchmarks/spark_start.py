"""Start and restart of ``cues-kafka run --engine spark``, with a standby, with the quick start and without it.

    python -m benchmarks.spark_start [--repetitions 3] [--timeline] [--json FILE] [--cache DIR] [--side NAME] [--write]

Three queries run on `local[2]`: a plain processor, and DataFrames that are written directly and staged. `--timeline`
also shows what happens when, and which process uses the processors; looking costs some time. With `--cache` the class
archive stays for later runs, whose first turn counts then, and with `--json` the figures of earlier runs are added. So
one measurement can be made in several runs, with the sides in turn.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from operator import itemgetter
from pathlib import Path
from typing import Self

import psutil

from benchmarks import report
from benchmarks.harness import ROOT, Cluster, median, spread, unique, until
from benchmarks.spark_start_graph import NAME, QUERIES, WIDTH, make
from cues_kafka.brokers.local import LocalBroker
from cues_kafka.errors import RetriableError
from cues_kafka.on_spark.quick import OFF
from cues_kafka.ports.log import TopicPartition

EACH = 10
"""Messages for each partition."""

SIDES = {"standby": "", "quick": "", "by itself": "no"}
"""Values of the variable `OFF`."""

STANDBY = "standby"
"""The side with the option of this name."""

TARGET = 0.33
PATIENCE_S = 400.0

SLACK_S = 0.5
"""By how much the system's times of processes may be early."""

HOW = """A plain processor, DataFrames that are written directly, and DataFrames that are written staged, on `local[2]`.
*Start* goes from the start of the process of `cues-kafka run`, *restart* from a SIGKILL of the driver's process group;
messages for all three are there, or are sent right after the kill. *First* ends with the first committed message of any
query, *all* when each query has committed all of its messages, seen from outside. *Processor* is the processor time of
all processes that the start began, until then, and of *Java* among them; beside other programs it says more than the
time on the clock. *Quick* is the command as it is, *standby* the same with `--standby`, whose standby is ready before
the kill, and *by itself* the command with `CUES_KAFKA_QUICK_START=no`, in turn; a run of each that is not counted fills
the caches ([benchmarks/spark_start.py](../benchmarks/spark_start.py))."""


@dataclass(frozen=True)
class Taken:
    """
    One start or restart.

    Attributes:
        side: see `SIDES`.
        what: `start` or `restart`.
        first_s: to the first commit of any query.
        all_s: until each query has committed everything.
        used_s: processor time of all processes that it started, until then.
        java_s: that of Java alone.
        load: load average at its end.
    """

    side: str
    what: str
    first_s: float
    all_s: float
    used_s: float
    java_s: float
    load: float


@dataclass(frozen=True)
class Seen:
    """
    A process.

    Attributes:
        used_s: its processor time.
        words: what it runs, see `program_of`.
    """

    used_s: float
    words: str

    @property
    def is_java(self) -> bool:
        """Whether it is a JVM, or what becomes one."""
        return "org.apache.spark" in self.words


class Processes:
    """Looks ten times a second which processes a run has, and keeps when each began and what it has used."""

    def __init__(self, pid: int) -> None:
        self._root = psutil.Process(pid)
        self._seen: dict[tuple[int, float], Seen] = {}
        self._before: dict[tuple[int, float], float] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        known = {self._root}
        while not self._over.wait(0.1):
            self._look(known)

    def _look(self, known: set[psutil.Process]) -> None:
        """Look once at these processes and their children, which are known then."""
        for one in [*known]:
            try:
                known.update(one.children())
                times = one.cpu_times()
                words = program_of(one.cmdline())
                self._seen[one.pid, one.create_time()] = Seen(times.user + times.system, words)
            except psutil.Error:
                known.discard(one)

    def mark(self) -> None:
        """From now on `since` also tells what the processes use that are there, such as those of a standby."""
        self._look({self._root, *self._root.children(recursive=True)})
        self._before = {key: seen.used_s for key, seen in list(self._seen.items())}

    def since(self, began_s: float) -> dict[tuple[int, float], Seen]:
        """What each process has used that began after this time, or is marked, by its id and when it began."""
        found = list(self._seen.items())
        return {
            key: replace(seen, used_s=seen.used_s - self._before.get(key, 0.0))
            for key, seen in found
            if key in self._before or key[1] > began_s - SLACK_S
        }


def program_of(words: list[str]) -> str:
    """What a process runs: the module of a Python, the class of a Java."""
    named = (
        words[words.index("-m") + 1 :] if "-m" in words else [word for word in words if word.startswith("org.apache.")]
    )
    return " ".join([*(Path(word).name for word in words[:1]), *named[:2]])


@dataclass
class Run:
    """
    One run of the command.

    Attributes:
        side: see `SIDES`.
        name: of the graph.
        log: the file of its output.
        command: the supervisor; its first child is the driver.
        cluster: the broker.
        began_s: when it was started.
    """

    side: str
    name: str
    log: Path
    command: psutil.Popen
    cluster: Cluster
    began_s: float

    def ends(self) -> dict[str, int]:
        """The ends of what each query has committed, markers of transactions included; they only come with messages."""
        places = {query: [TopicPartition(f"{self.name}.{query}", p) for p in range(WIDTH)] for query in QUERIES}
        marks = self.cluster.broker.watermarks([place for own in places.values() for place in own])
        return {query: sum(marks[place].stable for place in own) for query, own in places.items()}

    def await_committed(self, before: dict[str, int]) -> dict[str, float]:
        """Wait until each query has committed its messages beyond these ends; when it had the first, and all."""
        found: dict[str, float] = {}

        def over() -> bool:
            with suppress(RetriableError):  # the machine is busy
                for query, end in self.ends().items():
                    if end > before[query]:
                        found.setdefault(f"first of {query}", time.time())
                    if end >= before[query] + EACH * WIDTH:
                        found.setdefault(f"all of {query}", time.time())
            return len(found) == 2 * len(QUERIES)

        until(over, timeout_s=PATIENCE_S, every_s=0.05, what="committed", process=self.command)
        return found

    def driver(self) -> psutil.Process:
        """The older of its children; the other one is the standby."""
        driver: psutil.Process = min(self.command.children(), key=psutil.Process.create_time)
        return driver

    def said(self) -> Iterator[tuple[float, str]]:
        """Lines of its log, with their times."""
        for line in self.log.read_text("utf-8", "replace").splitlines():
            if found := re.match(r"(\d{4}-\S+) \w+ +(cues_kafka\S* .*)", line):
                yield datetime.fromisoformat(found[1]).timestamp(), found[2][:120]


@contextmanager
def running(side: str, cluster: Cluster, directory: Path, cache: Path, *options: str) -> Iterator[Run]:
    """The command with new topics, which hold messages; and at the end its end."""
    name = unique("s")
    for topic in make(name).topics_used():
        cluster.create(topic, WIDTH)
    cluster.fill(f"{name}.orders", [b'{"n": 1}'], EACH * WIDTH)
    env = {**os.environ, NAME: name, OFF: SIDES[side], "CUES_KAFKA_CACHE": str(cache)}
    words = [
        "run",
        "benchmarks.spark_start_graph:graph",
        "--bootstrap",
        cluster.bootstrap,
        "--engine",
        "spark",
        *options,
    ]
    words += ["--master", "local[2]", "--checkpoint", str(directory / name)]
    log = directory / f"{name}.log"
    with log.open("wb") as output:
        began_s = time.time()
        command = psutil.Popen(
            [sys.executable, "-m", "cues_kafka.cli.main", *words], cwd=ROOT, env=env, stdout=output, stderr=output
        )
    measured = False
    try:
        yield Run(side, name, log, command, cluster, began_s)
        measured = True
    finally:
        if not measured:
            sys.stderr.write(log.read_text("utf-8", "replace")[-4_000:])
        with suppress(psutil.NoSuchProcess):
            command.send_signal(signal.SIGTERM)
        try:
            command.wait(90)
        except (psutil.TimeoutExpired, subprocess.TimeoutExpired):
            for one in [command, *command.children(recursive=True)]:
                one.kill()


def measure_once(
    side: str, cluster: Cluster, directory: Path, *, cache: Path, archive: bool, timeline: bool
) -> list[Taken]:
    """
    One start, and one restart after a SIGKILL.

    Args:
        side: see `SIDES`.
        cluster: the broker.
        directory: of checkpoints and logs.
        cache: of the class archive.
        archive: wait for the class archive, which the first run with the quick start writes.
        timeline: print what happens when.
    """
    with running(side, cluster, directory, cache, *(["--standby"] if side == STANDBY else [])) as run:
        with Processes(run.command.pid) as processes:
            found = [_taken(run, "start", run.began_s, dict.fromkeys(QUERIES, 0), processes, timeline=timeline)]
        if archive:
            until(lambda: any(cache.glob("spark/*.jsa")), timeout_s=90, every_s=0.2, what="a class archive")
        if side == STANDBY:
            ready = "standby ready"
            until(lambda: ready in run.log.read_text("utf-8"), timeout_s=PATIENCE_S, every_s=0.2, what=ready)
        with Processes(run.command.pid) as processes:
            before, driver = run.ends(), run.driver()
            if side == STANDBY:
                processes.mark()
            began_s = time.time()
            os.killpg(driver.pid, signal.SIGKILL)
            cluster.fill(f"{run.name}.orders", [b'{"n": 2}'], EACH * WIDTH)
            found.append(_taken(run, "restart", began_s, before, processes, timeline=timeline))
    return found


def _taken(
    run: Run, what: str, began_s: float, before: dict[str, int], processes: Processes, *, timeline: bool
) -> Taken:
    found = run.await_committed(before)
    seen = processes.since(began_s)
    taken = Taken(
        run.side,
        what,
        min(found.values()) - began_s,
        max(found.values()) - began_s,
        sum(one.used_s for one in seen.values()),
        sum(one.used_s for one in seen.values() if one.is_java),
        os.getloadavg()[0],
    )
    print(
        f"  {what}, {run.side}: first {taken.first_s:.1f} s, all {taken.all_s:.1f} s, processor {taken.used_s:.1f} s, "
        f"of it Java {taken.java_s:.1f} s, load {taken.load:.1f}",
        flush=True,
    )
    if timeline:
        _show(run, began_s, found, seen)
    return taken


def _show(run: Run, began_s: float, found: dict[str, float], seen: dict[tuple[int, float], Seen]) -> None:
    """Print what happened when, and what the threads of Java have used."""
    events = [*((at_s, text) for text, at_s in found.items()), *run.said()]
    events += [
        (at_s, f"process {pid}, {one.used_s:.2f} s of processor: {one.words}") for (pid, at_s), one in seen.items()
    ]
    for at_s, text in sorted(events):
        if at_s > began_s - SLACK_S:
            print(f"    {at_s - began_s:6.2f} s  {text}", flush=True)
    for pid in {pid for (pid, _), one in seen.items() if one.is_java}:
        used = sorted(threads_of(pid).items(), key=itemgetter(1), reverse=True)
        print(f"    Java {pid}: " + ", ".join(f"{name} {used_s:.2f} s" for name, used_s in used[:12]), flush=True)


def threads_of(pid: int) -> dict[str, float]:
    """Processor seconds of a process by the names of its threads, without the numbers behind them."""
    found = defaultdict[str, float](float)
    for task in Path(f"/proc/{pid}/task").glob("*"):
        with suppress(OSError):  # it has ended
            used = (task / "stat").read_text().rpartition(")")[2].split()[11:13]
            name = re.sub(r"[\d# -]+$", "", (task / "comm").read_text().strip())
            found[name] += sum(map(int, used)) / os.sysconf("SC_CLK_TCK")
    return found


def measure_all(
    repetitions: int,
    cluster: Cluster,
    *,
    timeline: bool = False,
    cache: Path | None = None,
    sides: Sequence[str] = tuple(SIDES),
) -> Iterator[Taken]:
    """The sides in turn, and in the other order in every other turn; the turn that fills the caches is not counted."""
    with tempfile.TemporaryDirectory() as name:
        cache = (cache or Path(name, "cache")).absolute()
        filled = any(cache.glob("spark/*.jsa"))
        for turn in range(1 if filled else 0, repetitions + 1):
            for side in reversed(sides) if turn % 2 == 0 else sides:
                print(f"turn {turn}:" if turn else "not counted:", flush=True)
                archive = turn == 0 and not SIDES[side]
                taken = measure_once(
                    *(side, cluster, Path(name)), cache=cache, archive=archive, timeline=timeline and turn > 0
                )
                yield from taken if turn else ()


FIGURES: dict[str, Callable[[Taken], float]] = {
    "first": lambda one: one.first_s,
    "all": lambda one: one.all_s,
    "processor": lambda one: one.used_s,
    "processor, Java": lambda one: one.java_s,
}


def section_of(found: list[Taken]) -> report.Section:
    """The table of the page."""
    titles = ("case", *(f"{side}, s" for side in SIDES), "quick / by itself", "standby / quick", "goal")
    section = report.Section("Spark, start", HOW, titles)
    for what in ("start", "restart"):
        for label, of in FIGURES.items():
            sides = [[of(one) for one in found if (one.what, one.side) == (what, side)] for side in SIDES]
            standby, quick, other = (median(one) if one else math.nan for one in sides)
            ratios = (quick / other, standby / quick)
            ratio = ratios[0] if what == "start" else ratios[1]
            goal = "" if "Java" in label or math.isnan(ratio) else f"<= {TARGET}: {report.holds(ratio <= TARGET)}"
            shown = [spread(one, "{:.1f}") if one else "not measured" for one in sides]
            section.rows.append([f"{what}, {label}", *shown, *(f"{one:.2f}" for one in ratios), goal])
    return section


def measure(repetitions: int, cluster: Cluster) -> report.Section:
    """Measure all, for `make bench-spark`."""
    return section_of(list(measure_all(repetitions, cluster)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--timeline", action="store_true", help="show what happens when")
    parser.add_argument("--json", type=Path, help="a file with the raw figures of all runs")
    parser.add_argument("--side", action="append", choices=SIDES, help="only this side; repeatable, in this order")
    parser.add_argument("--cache", type=Path, help="a directory that keeps the class archive for later runs")
    parser.add_argument("--write", action="store_true", help="write the section into docs/benchmarks.md")
    given = parser.parse_args()
    load = os.getloadavg()[0]
    with LocalBroker(benchmark=True) as broker:
        found = []
        if given.json and given.json.exists():
            found += [Taken(**one) for one in json.loads(given.json.read_text())]
        for one in measure_all(
            *(given.repetitions, Cluster(broker.bootstrap)),
            timeline=given.timeline,
            cache=given.cache,
            sides=given.side or tuple(SIDES),
        ):
            found.append(one)
            if given.json:  # at once: a run that is ended has measured something, too
                given.json.write_text(json.dumps([asdict(one) for one in found], indent=1))
    section = section_of(found)
    section.load = load
    print(section.text())
    print(json.dumps([asdict(one) for one in found], indent=1))
    if given.write:
        report.save([section])


if __name__ == "__main__":
    main()

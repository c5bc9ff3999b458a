"""Spark drivers in processes of their own, whose every part can be killed; what goes in, and what must come out."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Self

import psutil
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from cues_kafka import Graph, Kafka
from cues_kafka.brokers.open import open_broker
from cues_kafka.verify.scan import verify
from tests.fault.support import (
    PATIENCE_S,
    QUICK,
    Program,
    Record,
    Setup,
    _avro,
    _task_records,
    check_chain,
    committed_all,
    outcomes,
    until,
)
from tests.spark.fault_driver import BAD, NIL, PARTITIONS, graph

GRAPH = "tests.spark.fault_driver:graph"
SINKS = ("all", "even")
STARTED_S = 180.0
"""A JVM, a session, sixteen imports: on a busy machine."""

CONF = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "768m",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
}


class Driver(Program):
    """A driver, its JVM, and what that starts: all processes of one session of the operating system."""

    def __init__(
        self,
        setup: Setup,
        directory: Path,
        *args: Any,
        graph: str = GRAPH,
        program: str = "tests.spark.fault_driver",
        master: str = "local[2]",
        conf: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
        limit: int | None = None,
        policy: Mapping[str, Any] | None = None,
        options: Mapping[str, Any] | None = None,
        point: Mapping[str, Any] | None = None,
        batches: int | None = None,
        checkpoint: str = "checkpoint",
    ) -> None:
        """
        Args:
            setup: names.
            directory: for checkpoint and scratch; drivers of one test share it.
            args: of the graph, behind its name.
            graph: `module:function` that makes it.
            program: the module that is run.
            master: of Spark.
            conf: of Spark.
            environment: variables besides those of this process.
            limit: `max_offsets_per_trigger`.
            policy: of `CommitPolicy`.
            options: of `Kafka`.
            point: of `fault_driver.Point`.
            batches: see `fault_driver.PointedSpark`.
            checkpoint: name of its directory.
        """
        self._pipe = directory / f"pipe-{os.urandom(4).hex()}"
        os.mkfifo(self._pipe)
        given = {
            "bootstrap": setup.bootstrap,
            "graph": graph,
            "args": [setup.name, *args],
            "master": master,
            "conf": {**CONF, **(conf or {})},
            "limit": limit,
            "policy": dict(policy or {}),
            "options": {**QUICK, **(options or {})},
            "checkpoint": f"file://{directory / checkpoint}",
            "point": {**_POINT, **point} if point else None,
            "batches": batches,
            "pipe": str(self._pipe),
        }
        written = self._pipe.with_suffix(".json")
        written.write_text(json.dumps(given))
        self._pipe_fd = os.open(self._pipe, os.O_RDWR)  # never empty of writers, so that reading never ends by itself
        super().__init__(
            [sys.executable, "-m", program, str(written)],
            start_new_session=True,
            env={**os.environ, **_ENVIRONMENT, "SPARK_LOCAL_DIRS": str(directory), **(environment or {})},
        )
        self._strays: set[psutil.Process] = set()  # others may have their numbers later
        self._told = threading.Thread(target=self._hear, daemon=True)
        self._told.start()

    def started(self) -> Driver:
        """Wait until it has entered every slot, and so ended what a dead one left open (D6)."""
        self.expect("started", STARTED_S)
        return self

    def reached(self, text: str = "point: ", timeout_s: float = STARTED_S) -> int:
        """Wait until a process says that, and stands still; give its process id."""
        pid = int(self.expect(text, timeout_s).rpartition(" pid ")[2])
        until(lambda: _state(pid) in ("T", None), f"process {pid} is paused")
        return pid

    def pids(self, command: str = "") -> list[int]:
        """Processes of this driver's session that have a text in their command."""
        return [pid for pid in self._session() if command in _command(pid)]

    def java(self) -> int:
        """The JVM of the driver."""
        return next(pid for pid in self.pids("SparkSubmit") if "java" in _command(pid).split(" ")[0])

    def executors(self) -> list[int]:
        """JVMs of executors, on a `local-cluster` master."""
        return self.pids("CoarseGrainedExecutorBackend")

    def workers(self) -> list[int]:
        """Python workers that are forked for Spark tasks, without the daemon that forks them."""
        daemons = self.pids("pyspark.daemon pyspark.worker")
        return [pid for pid in daemons if _parent(pid) in daemons]

    def kill_worker(self) -> None:
        """SIGKILL of a Python worker, the one with most to do."""
        _end(max(self.workers(), key=_ticks))

    def kill_executor(self) -> None:
        """SIGKILL of an executor, the one with most to do, and of what it started."""
        self.kill_executor_of(max(self.executors(), key=_ticks))

    def kill_executor_of(self, pid: int) -> None:
        """SIGKILL of the executor above a process, and of everything below it."""
        above = [pid]
        while above[-1] not in self.executors():
            above.append(_parent(above[-1]))
        below = [other for other in self.pids() if above[-1] in _ancestors(other)]
        for one in (above[-1], *above, *below):
            _end(one)

    def wake(self, pid: int) -> None:
        """SIGCONT."""
        os.kill(pid, signal.SIGCONT)

    def lives(self, pid: int) -> bool:
        """Whether it has not ended."""
        return _alive(pid)

    def kill_driver(self) -> None:
        """SIGKILL of the driver and of its JVM at once; what else there is sees to itself."""
        java = self.java()
        for pid in (self.process.pid, java):
            _end(pid)
        self.process.wait()

    def gone(self) -> None:
        """Wait until whatever it has started has ended, but for what is paused."""
        until(lambda: not self.pids(), "all ends")

    def kill_all(self, *but: int) -> None:
        """SIGKILL of everything that it started, but for these; daemons first, before they tell their workers."""
        for pid in self.pids("pyspark.daemon") + self._session():
            if pid not in but:
                _end(pid)
        for pid in but:
            self._meet(pid)
        if self.process.pid not in but:  # the driver itself publishes a batch that is small
            self.process.wait()

    def kill(self) -> None:
        """All that lives, also what left the session."""
        # Until no process is left: one that is not dead yet may still be starting others.
        until(lambda: not self._kill_once(), "all end")
        super().kill()
        if self._told.is_alive():  # a test may kill it, and the block that it leaves does so again
            os.write(self._pipe_fd, b"over\n")
            self._told.join(5)
            os.close(self._pipe_fd)

    def _kill_once(self) -> list[int]:
        """SIGKILL; the processes that lived."""
        lived = [_end(pid) for pid in self._session()]
        for stray in [*self._strays]:
            with suppress(psutil.NoSuchProcess):
                if stray.is_running() and stray.status() != psutil.STATUS_ZOMBIE:
                    stray.kill()
                    lived.append(stray.pid)
        return lived

    def _session(self) -> list[int]:
        """Living processes of its session. When all are gone, the number may soon be another test's process."""
        pid = self.process.pid
        return [] if self.process.returncode is not None and _fields(pid) is not None else _session(pid)

    def _meet(self, pid: int) -> None:
        with suppress(psutil.NoSuchProcess):
            self._strays.add(psutil.Process(pid))

    def _hear(self) -> None:
        with self._pipe.open(encoding="utf-8") as told:
            for line in told:
                if line == "over\n":
                    return
                if found := re.search(r" pid (\d+)$", line):
                    self._meet(int(found[1]))
                with self._news:
                    self.lines.append(line.rstrip())
                    self._news.notify_all()


_ENVIRONMENT = {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
_POINT = {"nth": 1, "partition": None, "action": "SIGSTOP", "times": 1, "entering": False, "replays": False}


class Drivers(ExitStack):
    """Several drivers of one graph, all ended with the block."""

    def __init__(self, setup: Setup, directory: Path, *args: Any, **settings: Any) -> None:
        super().__init__()
        self._make: Callable[..., Driver] = lambda **more: Driver(setup, directory, *args, **{**settings, **more})

    def add(self, **settings: Any) -> Driver:
        """Start one more, with the settings of all where it has none of its own."""
        return self.enter_context(self._make(**settings))


# ---- processes, by /proc


def _fields(pid: int) -> list[str] | None:
    """State, parent, group, session, ...; None: it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None


def _session(session: int) -> list[int]:
    """Living processes of a session."""
    pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal()]
    return [pid for pid in pids if (found := _fields(pid)) and int(found[3]) == session and found[0] not in "ZX"]


def _state(pid: int) -> str | None:
    found = _fields(pid)
    return found[0] if found and found[0] not in "ZX" else None


def _alive(pid: int) -> bool:
    return _state(pid) is not None


def _parent(pid: int) -> int:
    found = _fields(pid)
    return int(found[1]) if found else 0


def _ancestors(pid: int) -> list[int]:
    found: list[int] = []
    while (pid := _parent(pid)) > 1:
        found.append(pid)
    return found


def _ticks(pid: int) -> int:
    """CPU time so far."""
    found = _fields(pid)
    return int(found[11]) + int(found[12]) if found else -1


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except (FileNotFoundError, ProcessLookupError):
        return ""


def _end(pid: int) -> int:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    return pid


# ---- what goes in, and what must come out


class Numbers:
    """The whole numbers in order, each in the partition of its key; some without a key."""

    def __init__(self, setup: Setup, partitions: int = PARTITIONS) -> None:
        """
        Args:
            setup: names.
            partitions: how many of the input's partitions get some.
        """
        self.setup = setup
        self.count = 0
        self._widths = [(0, partitions)]

    def widen(self, partitions: int) -> None:
        """From here on this number of partitions get some, with keys that were not there before."""
        self._widths.append((self.count, partitions))

    def send(self, count: int, *, transaction: bool = False) -> None:
        """The next ones, up to a number."""
        new = range(self.count, self.count + count)
        self.setup.send(*(self.record(n) for n in new), transaction=transaction)
        self.count += count

    def record(self, n: int) -> Record:
        """One of them."""
        return Record(str(n).encode(), self.key(n), self.partition(n))

    def key(self, n: int) -> bytes | None:
        """Each stays in one partition; only at first some have none."""
        since, width = self._width(n)
        if since:
            return b"k%d-%d" % (since, n % width)
        return None if n % 5 == 0 else b"k%d" % (n % 8)

    def partition(self, n: int) -> int:
        """Of the input."""
        return n % self._width(n)[1]

    def _width(self, n: int) -> tuple[int, int]:
        return next(found for found in reversed(self._widths) if found[0] <= n)

    def delivered(self) -> int:
        """How many have an outcome, by the backing records."""
        return sum(one["totals"]["deliveries"] for one in self._newest())

    def wait(self, timeout_s: float = STARTED_S) -> None:
        """Until all are delivered."""
        until(lambda: self.delivered() >= self.count, f"all {self.count} are delivered", timeout_s)

    def _newest(self) -> list[dict[str, Any]]:
        found = committed_all(self.setup.bootstrap, [self.setup.backing], to_stable=True)
        return [partition[-1] for partition in _task_records(found[self.setup.backing])]

    def check(self, **more: int) -> None:
        """
        Everything, with a plain reader: each number has its one outcome, in order per key and partition.

        Args:
            more: how many errors of another kind there are, of other messages.
        """
        setup, extra = self.setup, sum(more.values())
        topics = [f"{setup.name}.{sink}" for sink in SINKS]
        found = committed_all(setup.bootstrap, [*topics, setup.errors, setup.backing])
        good = [n for n in range(self.count) if n % 10 not in (BAD, NIL)]
        self._check_order(found[topics[0]], good)
        self._check_order(found[topics[1]], [n for n in good if n % 2 == 0])
        errors = [_avro(message.value() or b"", "error") for message in found[setup.errors]]
        self._check_errors(errors, more)
        seen = outcomes([message for topic in (*topics, setup.errors) for message in found[topic]])
        assert set(seen.values()) <= {1}, [place for place, count in seen.items() if count > 1]
        nils = sum(n % 10 == NIL for n in range(self.count))
        assert len(seen) == self.count + extra - nils
        records = _task_records(found[setup.backing])
        check_chain(records)
        totals = Counter[str]()
        for partition in records:
            totals.update(partition[-1]["totals"])
        assert totals["deliveries"] == self.count + extra
        assert (totals["nils"], totals["errors"]) == (nils, len(errors))
        self.verify(graph(setup.name))

    def verify(self, graph: Graph) -> None:
        """What our own tool says."""
        broker = open_broker(Kafka(self.setup.bootstrap))
        try:
            report = verify(graph, broker)
        finally:
            broker.close()
        assert report.ok, str(report)

    def _check_errors(self, errors: list[dict[str, Any]], more: Mapping[str, int]) -> None:
        bad = [int(error["text"].split()[-1]) for error in errors if error["kind"] == "raised"]
        assert sorted(bad) == [n for n in range(self.count) if n % 10 == BAD]
        assert Counter(error["kind"] for error in errors if error["kind"] != "raised") == Counter(more)

    def _check_order(self, messages: Sequence[Message], wanted: Sequence[int]) -> None:
        """Per key where there is one, else per partition: exactly these, in this order."""
        rows: dict[bytes | int, list[int]] = {}
        for message in messages:
            key = message.key()
            place = int(message.partition() or 0) if key is None else key
            rows.setdefault(place, []).append(int(message.value() or b""))
        expected: dict[bytes | int, list[int]] = {}
        for n in wanted:
            due = self.key(n)
            expected.setdefault(self.partition(n) if due is None else due, []).append(n)
        assert rows == expected


def _marks(consumer: Consumer, place: TopicPartition) -> tuple[int, int]:
    """Low and high watermark; of a topic that was just made as soon as its leader knows that it is."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            found: tuple[int, int] = consumer.get_watermark_offsets(place, timeout=PATIENCE_S)
        except KafkaException as problem:
            if problem.args[0].code() != KafkaError.NOT_LEADER_FOR_PARTITION or time.monotonic() > deadline:
                raise
            consumer.poll(0.05)
        else:
            return found


def stable(setup: Setup, sinks: Sequence[str] = SINKS) -> dict[str, list[tuple[int, int]]]:
    """Of the topics that a graph writes: last stable offsets and high watermarks."""
    found: dict[str, list[tuple[int, int]]] = {}
    consumers = [
        Consumer({"bootstrap.servers": setup.bootstrap, "group.id": "check", "isolation.level": level})
        for level in ("read_committed", "read_uncommitted")
    ]
    try:
        for topic in (*(f"{setup.name}.{sink}" for sink in sinks), setup.errors, setup.backing):
            count = len(consumers[0].list_topics(topic, timeout=PATIENCE_S).topics[topic].partitions)
            for p in range(count):
                marks = [_marks(consumer, TopicPartition(topic, p)) for consumer in consumers]
                found.setdefault(topic, []).append((marks[0][1], marks[1][1]))
        return found
    finally:
        for consumer in consumers:
            consumer.close()


def hidden(marks: Mapping[str, list[tuple[int, int]]]) -> bool:
    """Whether an open transaction hides something from readers."""
    return any(low < high for places in marks.values() for low, high in places)


def await_open(setup: Setup, sinks: Sequence[str] = SINKS) -> None:
    """Until a transaction is open: at "before Commit" its records may still be on their way from the client."""
    until(lambda: hidden(stable(setup, sinks)), "a transaction is open, else this kill proves nothing")


def readable(marks: Mapping[str, list[tuple[int, int]]], since: Mapping[str, list[tuple[int, int]]]) -> bool:
    """Whether readers are past everything that there was then."""
    return all(
        now[0] >= then[1] for topic, places in marks.items() for now, then in zip(places, since[topic], strict=False)
    )


class Load:
    """Writes the next numbers, with pauses, in a thread of its own."""

    def __init__(self, numbers: Numbers) -> None:
        self._numbers = numbers
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.finish()

    def finish(self) -> None:
        """Stop, and wait until all is acknowledged."""
        self._over.set()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        while not self._over.wait(0.5):
            self._numbers.send(20)

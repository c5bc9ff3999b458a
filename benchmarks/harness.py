"""Helpers of all programs: the broker, child processes, waiting, and figures."""

from __future__ import annotations

import itertools
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from confluent_kafka import ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from benchmarks import graphs
from benchmarks.work import TAKE, VALUE_BYTES
from cues_kafka import Kafka
from cues_kafka.brokers.local.ports import free_ports
from cues_kafka.brokers.open import open_broker
from cues_kafka.ports.facts import NewTopic, Watermarks
from cues_kafka.ports.log import TopicPartition as Place

ROOT = Path(__file__).parents[1]
GRAPH = "benchmarks/graphs.py:graph"
SCRAPED_PORT = free_ports(1)[0]
"""Where the side `metrics` serves them."""
SPANS = "spans "
"""Begins the names of sides with spans; the share follows."""

_numbers = itertools.count(1)


def unique(stem: str) -> str:
    """A name that is unique in this run."""
    return f"{stem}{next(_numbers)}"


@dataclass(frozen=True, slots=True)
class Pipe:
    """
    One pipe between two topics, for either side.

    Attributes:
        name: of the graph; the hand-written loop's group.
        source, target: topics.
        codec: `raw`, `json` (a dataclass), `dict` (JSON without a class) one of `graphs.STORES` (raw, with a store)
            or of `graphs.DATABASES` (raw, with a database), or `graphs.DELTA`.
        partitions: of both topics.
        most: messages in one transaction.
    """

    name: str
    source: str
    target: str
    codec: str = "raw"
    partitions: int = 1
    most: int = TAKE

    def group(self, side: str) -> str:
        """The group whose committed offsets show the progress."""
        return graphs.group(self.name) if side != "hand" else self.name


class Cluster:
    """A broker, for programs that create topics, write messages and read offsets."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})  # it outlives the broker
        self.broker = open_broker(Kafka(bootstrap))

    def create(self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> str:
        """Create a topic, and wait until it exists."""
        self.broker.create([NewTopic(name, partitions, 1, dict(config or {}))])
        return name

    def delete(self, *names: str) -> None:
        """Delete topics, because all runs share the disk."""
        self.broker.delete(names)

    def fill(self, topic: str, values: Sequence[bytes], count: int, *, before_key: bytes = b"") -> None:
        """Write `count` messages with keys of 8 bytes, behind those of `before_key`, evenly over the partitions."""
        partitions = len(self.admin.list_topics(topic, 10).topics[topic].partitions)
        self._write(topic, ((before_key + b"%08d" % i, values[i % len(values)], i % partitions) for i in range(count)))

    def send(self, topic: str, records: Iterable[tuple[bytes | None, bytes]]) -> None:
        """Write keys and values; the keys decide about the partitions, as they do for Java programs."""
        self._write(topic, ((key, value, -1) for key, value in records))

    def _write(self, topic: str, records: Iterable[tuple[bytes | None, bytes, int]]) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "log_level": 2,
                "compression.type": "lz4",
                "linger.ms": 20,
                "queue.buffering.max.messages": 500_000,
                "partitioner": "murmur2_random",
            }
        )
        for key, value, partition in records:
            while True:
                try:
                    producer.produce(topic, value, key, partition=partition)
                except BufferError:
                    producer.poll(0.1)
                else:
                    break
        assert producer.flush(60) == 0

    def committed(self, group: str, topic: str, partitions: int) -> int:
        """Messages that a group has committed, over all partitions of a topic without markers."""
        asked = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, p) for p in range(partitions)])
        found = self.admin.list_consumer_group_offsets([asked])[group].result(10)
        return sum(max(0, place.offset) for place in found.topic_partitions)

    def marks(self, topic: str) -> Watermarks:
        """The high watermark of partition 0."""
        place = Place(topic, 0)
        return self.broker.watermarks([place])[place]


def values_of(codec: str, size: int = VALUE_BYTES, count: int = 1_000) -> list[bytes]:
    """Different values of 100 bytes. Random text compresses to about a half, JSON better, as real messages do."""
    if codec == "raw":
        return [os.urandom(size // 2).hex().encode() for _ in range(count)]
    return [
        b'{"id":"%s","account":"%s","currency":"EUR","cents":%d,"settled":false}'
        % (os.urandom(10).hex().encode(), os.urandom(4).hex().encode(), 1_000_000 + i)
        for i in range(count)
    ]


def cues_command(cluster: Cluster) -> list[str]:
    """The framework as its users start it: ``cues-kafka run MODULE:GRAPH --bootstrap ...``."""
    return [sys.executable, "-m", "cues_kafka.cli.main", "run", GRAPH, "--bootstrap", cluster.bootstrap]


def environment(pipe: Pipe) -> dict[str, str]:
    """The environment that `graphs` reads."""
    names = {
        "NAME": pipe.name,
        "SOURCE": pipe.source,
        "TARGET": pipe.target,
        "CODEC": pipe.codec,
        "PARTITIONS": str(pipe.partitions),
        "MOST": str(pipe.most),
    }
    return {**os.environ, **{f"{graphs.ENV}{key}": value for key, value in names.items()}}


def hand_command(cluster: Cluster, pipe: Pipe, take: str) -> list[str]:
    """The hand-written loop."""
    options = {
        "bootstrap": cluster.bootstrap,
        "group": pipe.name,
        "source": pipe.source,
        "target": pipe.target,
        "codec": pipe.codec,
        "most": str(pipe.most),
        "take": take,
    }
    module = "benchmarks.hand_sql" if pipe.codec in graphs.DATABASES else "benchmarks.hand"
    module = "benchmarks.hand_delta" if pipe.codec == graphs.DELTA else module
    return [sys.executable, "-m", module, *(f"--{key}={value}" for key, value in options.items())]


@contextmanager
def side(
    name: str, cluster: Cluster, pipe: Pipe, *, take: str = "full", more: Sequence[str] = ()
) -> Iterator[psutil.Popen]:
    """Run one side as a child process, and stop it cleanly at the end; `more` are options of ours."""
    command = hand_command(cluster, pipe, take) if name == "hand" else [*cues_command(cluster), *more]
    if name == "metrics":
        command += ["--http", str(SCRAPED_PORT)]
    if name.startswith(SPANS):
        command += ["--spans", name.removeprefix(SPANS)]
    with (
        tempfile.TemporaryDirectory() as files,
        child(command, {**environment(pipe), "CUES_KAFKA_STATE_DIR": files}) as process,
    ):
        yield process


@contextmanager
def child(command: Sequence[str], env: Mapping[str, str], **options: Any) -> Iterator[psutil.Popen]:
    """A child process whose output is kept, and shown if it fails; it may end by a SIGKILL, which the caller sends."""
    with tempfile.TemporaryFile() as words:
        process = psutil.Popen(list(command), cwd=ROOT, env=dict(env), stdout=words, stderr=words, **options)
        try:
            yield process
            if process.poll() not in (None, -signal.SIGKILL):
                raise RuntimeError(f"{command[2]} ended with {process.returncode}")
        except BaseException:
            if process.poll() is None:
                process.kill()
                process.wait()
            words.seek(0)
            sys.stderr.write(words.read().decode(errors="replace")[-4_000:])
            raise
        if process.poll() is not None:
            return
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(30)
        except (psutil.TimeoutExpired, subprocess.TimeoutExpired):
            process.kill()
            process.wait()


def until(
    condition: Callable[[], bool], *, timeout_s: float, every_s: float, what: str, process: psutil.Popen | None = None
) -> None:
    """Check a condition until it holds."""
    end = time.monotonic() + timeout_s
    while not condition():
        if process is not None and process.poll() is not None:
            raise RuntimeError(f"waiting for {what}: the process ended with {process.returncode}")
        if time.monotonic() > end:
            raise TimeoutError(f"not {what} after {timeout_s:g} s")
        time.sleep(every_s)


def cpu_s(process: psutil.Process) -> float:
    """Processor seconds of all its threads so far."""
    times = process.cpu_times()
    return float(times.user + times.system)


def peak_mib(process: psutil.Process) -> float:
    """The largest resident size so far; the present one if the system does not keep it."""
    status = Path(f"/proc/{process.pid}/status")
    if status.exists():
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
    return float(process.memory_info().rss) / 2**20


def alternating(repetitions: int) -> Iterator[tuple[str, str]]:
    """The two sides in turn, with alternating first, so that a drift of the machine affects both."""
    for i in range(repetitions):
        yield ("cues", "hand") if i % 2 == 0 else ("hand", "cues")


def median(figures: Sequence[float]) -> float:
    """The median."""
    return statistics.median(figures)


def percentile(figures: Sequence[float], percent: float) -> float:
    """A percentile, by rank."""
    ordered = sorted(figures)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


def spread(figures: Sequence[float], form: str = "{:,.0f}") -> str:
    """A text: median (min to max)."""
    low, middle, high = (form.format(f) for f in (min(figures), median(figures), max(figures)))
    return f"{middle} ({low} to {high})"

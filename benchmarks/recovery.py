"""The time from a worker's SIGKILL under the supervisor to the next committed message."""

from __future__ import annotations

import random
import signal
import threading
import time

import psutil
from confluent_kafka import Consumer, Producer

from benchmarks.harness import GRAPH, ROOT, Cluster, Pipe, environment, spread, unique, until
from benchmarks.report import Section, holds
from cues_kafka.cli.supervise import worker_command
from cues_kafka.workers.supervisor import Supervisor

PER_S = 500
TARGET_S = 3.0

HOW = """A supervised worker moves 500 messages/s; at a random moment it gets a SIGKILL, mostly inside of a
transaction. The time goes from the kill to the moment when a read-committed consumer sees the first message that
was *sent after the kill*: it holds the supervisor's back-off (0.02 s), the start of Python and of the worker, taking
over the place in the group, and recovery. The transaction timeout is 60 s and plays no part: the successor fences
and decides what was left open."""


def measure(kills: int, cluster: Cluster) -> Section:
    """Measure each kill with a new supervisor, so that its back-off is always the first."""
    took = []
    for _ in range(kills):
        took.append(_kill(cluster))
        print(f"  {took[-1]:.2f} s", flush=True)
    section = Section("Recovery", HOW, ("kills", "seconds, median (min to max)", "target", "holds"))
    middle = sorted(took)[len(took) // 2]
    section.rows.append([str(kills), spread(took, "{:.2f}"), f"< {TARGET_S:g}", holds(middle < TARGET_S)])
    return section


class _Stream(threading.Thread):
    """Sends the present time 500 times a second."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        super().__init__(daemon=True)
        self._producer = Producer(
            {"bootstrap.servers": cluster.bootstrap, "linger.ms": 0, "partitioner": "murmur2_random"}
        )
        self._topic = topic
        self.over = threading.Event()

    def run(self) -> None:
        while not self.over.wait(1 / PER_S):
            self._producer.produce(self._topic, b"%d" % time.monotonic_ns())
            self._producer.poll(0)
        self._producer.flush(10)


def _kill(cluster: Cluster) -> float:
    pipe = Pipe(unique("r"), cluster.create(unique("in")), cluster.create(unique("out")))
    watch = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": unique("watch"),
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
        }
    )
    watch.subscribe([pipe.target])
    stream = _Stream(cluster, pipe.source)
    stream.start()
    options = ["--bootstrap", cluster.bootstrap, "--log-level", "error"]

    def command(k: int) -> list[str]:
        return worker_command(GRAPH, instance=f"{pipe.name}.{k}", options=options)

    with Supervisor(command, workers=1, env=environment(pipe), cwd=ROOT) as supervisor:
        _see_sent_after(watch, time.monotonic_ns())
        _see_sent_after(watch, time.monotonic_ns() + int(1e9 * random.uniform(1.0, 1.2)))
        pid = supervisor.pids[1]
        killed = time.monotonic_ns()
        supervisor.signal(1, signal.SIGKILL)
        seen = _see_sent_after(watch, killed)
        assert not psutil.pid_exists(pid)
    stream.over.set()
    stream.join()
    watch.close()
    cluster.delete(pipe.source, pipe.target)
    return (seen - killed) / 1e9


def _see_sent_after(watch: Consumer, moment_ns: int) -> int:
    """The time at which a message arrives that was sent after this moment."""
    seen = 0

    def came() -> bool:
        nonlocal seen
        message = watch.poll(0.5)
        if message is None:
            return False
        seen = time.monotonic_ns()
        return not message.error() and int(message.value() or b"0") > moment_ns

    until(came, timeout_s=90, every_s=0, what="a message that was sent after the kill")
    return seen

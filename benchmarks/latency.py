"""One hop at a low rate: from `produce` to the moment when a read-committed consumer has the output."""

from __future__ import annotations

import threading
import time

from confluent_kafka import Consumer, Producer

from benchmarks.harness import Cluster, Pipe, alternating, median, percentile, side, spread, unique
from benchmarks.report import Section, holds
from benchmarks.work import VALUE_BYTES

WARM_UP = 2_000
WARM_UP_PER_S = 400
PER_S = 50

HOW = """50 messages/s of 100 bytes through one pipe at default settings, after 2,000 warm-up messages (at 400/s).
Producer and consumer are in a third process; the time goes from `produce` (linger 0) to the return of the
consumer's `poll`, so it holds producing, fetching, the step, its commit, and fetching again. The hand-written loop
takes what is there as soon as anything is (`poll`, then `consume(n, 0)`), and commits once for each poll."""


def measure(repetitions: int, messages: int, cluster: Cluster) -> Section:
    """Measure both sides in turn."""
    section = Section(
        "Latency",
        HOW + f"\n{messages:,} messages a run, medians of {repetitions} (min to max), in ms.",
        ("figure", "cues-kafka", "by hand", "target", "holds"),
    )
    p50: dict[str, list[float]] = {"cues": [], "hand": []}
    p99: dict[str, list[float]] = {"cues": [], "hand": []}
    for sides in alternating(repetitions):
        for name in sides:
            took = _run(name, messages, cluster)
            p50[name].append(percentile(took, 50))
            p99[name].append(percentile(took, 99))
            print(f"  {name}: p50 {p50[name][-1]:.2f} ms, p99 {p99[name][-1]:.2f} ms", flush=True)
    ratio = median(p50["cues"]) / median(p50["hand"])
    form = "{:.1f}"
    section.rows += [
        ["p50", spread(p50["cues"], form), spread(p50["hand"], form), "< 10", holds(median(p50["cues"]) < 10)],
        ["p99", spread(p99["cues"], form), spread(p99["hand"], form), "< 40", holds(median(p99["cues"]) < 40)],
        ["p50, ratio", f"{ratio:.2f}", "1", "<= 1.3", holds(ratio <= 1.3)],
    ]
    return section


def _run(name: str, messages: int, cluster: Cluster) -> list[float]:
    pipe = Pipe(unique("l"), cluster.create(unique("in")), cluster.create(unique("out")))
    with side(name, cluster, pipe, take="soon"):
        took = hop(cluster, pipe, messages)
    cluster.delete(pipe.source, pipe.target)
    return took


def hop(cluster: Cluster, pipe: Pipe, messages: int) -> list[float]:
    """Send and receive; return the milliseconds of each message after the warm-up."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": unique("watch"),
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([pipe.target])
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 0, "partitioner": "murmur2_random"})
    for count, per_s in (
        (1, PER_S),
        (WARM_UP, WARM_UP_PER_S),
        (messages, PER_S),
    ):  # the first message shows that the side runs
        sender = threading.Thread(target=_send, args=(producer, pipe.source, count, per_s), daemon=True)
        sender.start()
        took = _receive(consumer, count, timeout_s=60 + count / per_s)
        sender.join()
    consumer.close()
    return took


def _receive(consumer: Consumer, count: int, *, timeout_s: float) -> list[float]:
    took: list[float] = []
    end = time.monotonic() + timeout_s
    while len(took) < count:
        message = consumer.poll(1.0)
        now = time.monotonic_ns()
        if message is not None:
            if message.error():
                raise RuntimeError(message.error())
            took.append((now - int(message.value() or b"0")) / 1e6)
        if time.monotonic() > end:
            raise TimeoutError(f"{len(took)} of {count} messages came")
    return took


def _send(producer: Producer, topic: str, count: int, per_s: float) -> None:
    due = time.monotonic()
    for i in range(count):
        due += 1 / per_s
        while (left := due - time.monotonic()) > 0:
            producer.poll(left)
        producer.produce(topic, b"%0*d" % (VALUE_BYTES, time.monotonic_ns()), b"%08d" % i)
    producer.flush(30)

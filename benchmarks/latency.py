"""From `produce` to the moment when a read-committed consumer has the output: a hop at three rates, and three hops."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, Producer

from benchmarks import graphs
from benchmarks.harness import (
    Cluster,
    Pipe,
    alternating,
    child,
    cues_command,
    environment,
    hand_command,
    median,
    percentile,
    spread,
    unique,
)
from benchmarks.report import PAGE, Section, holds
from benchmarks.work import VALUE_BYTES

WARM_UP: Final = 2_000
WARM_UP_PER_S: Final = 400
PER_S: Final = 50

LINGERS_FROM_PER_S: Final = 5_000
"""Above this rate the producer waits a millisecond for more messages; else its requests alone keep the broker busy."""

PICTURE: Final = PAGE.with_name("latency.svg")

TITLES: Final = {"cues": "cues-kafka", "hand": "by hand"}

HOW = """Messages of 100 bytes at default settings, after 2,000 warm-up messages (at 400/s). Producer and consumer are
in a third process; the time goes from `produce` (linger 0, at 10,000/s 1 ms) to the return of the consumer's `poll`,
so it holds producing, fetching, the step, its commit, and fetching again. The hand-written loop takes what is there as
soon as anything is (`poll`, then `consume(n, 0)`), and commits once for each poll. *Three hops* are three processors of
one graph, in one worker process; by hand they are three processes.

Most of a hop is waiting for the broker. The client asks it six times for a transaction (to add the offsets, to commit
them, to add the partitions, for each of two partitions to write, to end it), by hand five times, since there is no
record of a task. A node answers the requests of one connection one by one, in 0.7 to 3 ms each on the machine of this
table. The order in which we ask is not what counts: a linger of 0, 1 or 5 ms gave the same times."""


@dataclass(frozen=True)
class Case:
    """
    One row of the table.

    Attributes:
        title: of the row.
        per_s: messages in a second.
        hops: steps one behind the other.
        p50_ms, p99_ms: the goals in milliseconds; None: the case has no goal.
    """

    title: str
    per_s: int
    hops: int = 1
    p50_ms: float | None = None
    p99_ms: float | None = None

    @property
    def goal(self) -> str:
        """The goals as text."""
        goals = {"p50": self.p50_ms, "p99": self.p99_ms}
        return ", ".join(f"{name} < {goal:g}" for name, goal in goals.items() if goal is not None) or "reported"

    def holds(self, p50_ms: float, p99_ms: float) -> str:
        """The verdict; empty: there is no goal."""
        if self.p50_ms is None:
            return ""
        return holds(p50_ms < self.p50_ms and (self.p99_ms is None or p99_ms < self.p99_ms))


CASES: Final = (
    Case("50/s", PER_S, p50_ms=5, p99_ms=20),
    Case("1,000/s", 1_000),
    Case("10,000/s", 10_000),
    Case("50/s, three hops", PER_S, hops=3, p50_ms=15),
)


def measure(repetitions: int, messages: int, cluster: Cluster) -> Section:
    """
    Measure both sides in turn, and draw how the times are spread.

    Args:
        repetitions: runs of each side in each case.
        messages: in a run at `PER_S`; at a higher rate as many as take half as long.
        cluster: the broker.
    """
    section = Section(
        "Latency",
        HOW + f"\n{messages:,} messages a run at 50/s, medians of {repetitions} (min to max), in ms.",
        ("case", "p50: ours", "by hand", "ratio", "p99: ours", "by hand", "goal", "holds"),
    )
    all_took: dict[str, dict[str, list[float]]] = {}
    for case in CASES:
        runs: dict[str, list[list[float]]] = {"cues": [], "hand": []}
        for sides in alternating(repetitions):
            for name in sides:
                took = _run(name, case, max(messages, messages * case.per_s // PER_S // 2), cluster)
                runs[name].append(took)
                print(f"  {case.title}: {name}: {percentile(took, 50):.2f}, {percentile(took, 99):.2f} ms", flush=True)
        section.rows.append(_row(case, runs))
        all_took[case.title] = {name: [ms for took in found for ms in took] for name, found in runs.items()}
    draw(all_took, PICTURE)
    section.after = f"![How the times are spread, ours and by hand, in each case]({PICTURE.name})"
    return section


def _row(case: Case, runs: dict[str, list[list[float]]]) -> Sequence[str]:
    p50, p99 = ({name: [percentile(took, q) for took in runs[name]] for name in runs} for q in (50, 99))
    ours_p50, ours_p99, form = median(p50["cues"]), median(p99["cues"]), "{:.1f}"
    return [
        case.title,
        spread(p50["cues"], form),
        spread(p50["hand"], form),
        f"{ours_p50 / median(p50['hand']):.2f}",
        spread(p99["cues"], form),
        spread(p99["hand"], form),
        case.goal,
        case.holds(ours_p50, ours_p99),
    ]


def draw(took: dict[str, dict[str, list[float]]], picture: Path) -> None:
    """
    Draw which share of the messages took at most so long.

    Args:
        took: milliseconds of each message, by case and side.
        picture: an SVG file.
    """
    from matplotlib import rc_context  # noqa: PLC0415 - only this program draws
    from matplotlib.figure import Figure  # noqa: PLC0415

    shares = [share / 10 for share in range(10, 1_000)]
    with rc_context({"svg.hashsalt": "latency"}):  # the same figures give the same file
        figure = Figure(figsize=(8, 2.2 * len(took)), layout="constrained")
        axes = figure.subplots(len(took), sharex=True, squeeze=False)
        for (title, sides), (place,) in zip(took.items(), axes, strict=True):
            for name, values in sides.items():
                ordered = sorted(values)
                reached = [ordered[int(len(ordered) * share / 100)] for share in shares]
                place.plot(reached, shares, label=TITLES[name])
            place.set(xscale="log", ylabel="% of messages", title=title)
            place.set_xticks([1, 2, 5, 10, 20, 50, 100], ["1", "2", "5", "10", "20", "50", "100"])
            place.grid(alpha=0.3)
        axes[0][0].legend(loc="lower right")
        axes[-1][0].set(xlabel="ms from produce to the reader")
        figure.savefig(picture, format="svg", metadata={"Date": None})


def _run(name: str, case: Case, messages: int, cluster: Cluster) -> list[float]:
    topics = [cluster.create(unique(f"l{number}-")) for number in range(case.hops + 1)]
    with _started(name, topics, cluster):
        took = hop(cluster, Pipe(unique("l"), topics[0], topics[-1]), messages, per_s=case.per_s)
    cluster.delete(*topics)
    return took


@contextmanager
def _started(name: str, topics: Sequence[str], cluster: Cluster) -> Iterator[None]:
    """One side, which moves messages from each topic to the next one."""
    with ExitStack() as running:
        if name == "hand":
            for source, target in pairwise(topics):
                pipe = Pipe(unique("l"), source, target)
                running.enter_context(child(hand_command(cluster, pipe, "soon"), environment(pipe)))
        else:
            chain = environment(Pipe(unique("l"), topics[0], topics[-1])) | {f"{graphs.ENV}CHAIN": " ".join(topics)}
            running.enter_context(child(cues_command(cluster), chain))
        yield


def hop(cluster: Cluster, pipe: Pipe, messages: int, *, per_s: int = PER_S) -> list[float]:
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
    settings = {"bootstrap.servers": cluster.bootstrap, "partitioner": "murmur2_random"}
    producer = Producer({**settings, "linger.ms": int(per_s > LINGERS_FROM_PER_S)})
    # The first message shows that the side runs.
    for count, rate in ((1, PER_S), (WARM_UP, WARM_UP_PER_S), (messages, per_s)):
        sender = threading.Thread(target=_send, args=(producer, pipe.source, count, rate), daemon=True)
        sender.start()
        took = _receive(consumer, count, timeout_s=60 + count / rate)
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

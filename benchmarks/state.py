"""What a store costs a step, beside a dictionary and a changelog by hand; and how fast it comes back."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TypeAlias

from confluent_kafka import Producer

from benchmarks import hand
from benchmarks.harness import Cluster, Pipe, alternating, median, spread, unique, values_of
from benchmarks.report import Section, holds
from benchmarks.throughput import Run, run
from benchmarks.work import TAKE
from cues_kafka import Json, Store
from cues_kafka.state.layers import ENTRY, MARK
from cues_kafka.state.stores import Stores
from cues_kafka.task.clock import SystemClock
from cues_kafka.task.making.build import store_spec
from cues_kafka.task.restoring import Restoring

IN_MEMORY_US = 3
ON_DISK_US = 12
NARROW, WIDE = 1_000, 100_000
"""Different keys."""

FEW = 1_000
"""Messages in a small batch."""

TARGET_ENTRIES = 200_000
STEP = 7
"""The mark at the end of the changelog: the step that changed the store last."""

MAX_BYTES = 1_048_588
"""Of a message, as brokers have it by default."""


@dataclass(frozen=True, slots=True)
class Case:
    """
    One row.

    Attributes:
        name: as the report shows it.
        codec: of the pipe.
        most: messages in one transaction.
        goal_us: what a step may cost more than one without a store; None: it has no store.
        wide: whether the keys are `WIDE`, instead of `NARROW`.
    """

    name: str
    codec: str
    most: int = TAKE
    goal_us: int | None = None
    wide: bool = False


CASES = (
    Case("without a store", "raw"),
    Case("in memory", "state", goal_us=IN_MEMORY_US),
    Case("in memory, ttl", "ttl", goal_us=IN_MEMORY_US),
    Case("on disk", "disk", goal_us=ON_DISK_US),
    Case("on disk, ttl", "disk-ttl", goal_us=ON_DISK_US),
    Case(f"on disk, {WIDE:,} keys", "disk", goal_us=ON_DISK_US, wide=True),
    Case(f"on disk, ttl, {WIDE:,} keys", "disk-ttl", goal_us=ON_DISK_US, wide=True),
    Case("without a store, small batches", "raw", FEW),
    Case("in memory, small batches", "state", FEW, IN_MEMORY_US),
    Case("on disk, small batches", "disk", FEW, ON_DISK_US),
    Case("on disk, ttl, small batches", "disk-ttl", FEW, ON_DISK_US),
    Case(f"on disk, {WIDE:,} keys, small batches", "disk", FEW, ON_DISK_US, wide=True),
    Case(f"on disk, ttl, {WIDE:,} keys, small batches", "disk-ttl", FEW, ON_DISK_US, wide=True),
)

HOW = f"""As under Throughput, raw values in one partition, with up to {TAKE:,} messages in a transaction; *small
batches* have {FEW:,}. Where there is a store, the function also counts messages by the first 8 bytes of the value,
{NARROW:,} different keys if the row says nothing else: `counts[key] = counts.get(key, 0) + 1`. *ttl* is a minute. By
hand the counts are in a dictionary, and the last count of each key in a batch goes to a changelog in the same
transaction. *A step* is the time from one message to the next: one second divided by the rate. *More* compares it with
a step without a store in batches of the same size. *Restoring* reads a changelog of different keys into an empty store,
from the call until the store is complete."""


def measure(repetitions: int, messages: int, entries: int, cluster: Cluster) -> Section:
    """Measure all cases, and both sides where there are two, in turn; then restoring."""
    section = Section(
        "State",
        f"{HOW}\n{messages:,} messages a run, {entries:,} entries, medians of {repetitions} (min to max).",
        (
            *("case", "cues-kafka, /s", "by hand, /s", "a step: ours, us", "by hand", "CPU us: ours", "by hand"),
            *("more, us", "goal"),
        ),
    )
    runs = _runs(repetitions, messages, cluster)
    for case in CASES:
        cues, by_hand = runs[case, "cues"], runs.get((case, "hand"), [])
        goal = "-" if case.goal_us is None else f"<= {case.goal_us}: {holds(_more(runs, case, 'cues') <= case.goal_us)}"
        section.rows.append(
            [
                case.name,
                spread([r.per_s for r in cues]),
                spread([r.per_s for r in by_hand]) if by_hand else "-",
                f"{_step_us(cues):.1f}",
                f"{_step_us(by_hand):.1f}" if by_hand else "-",
                f"{_cpu(cues):.1f}",
                f"{_cpu(by_hand):.1f}" if by_hand else "-",
                "-" if case.goal_us is None else f"{_more(runs, case, 'cues'):.1f}",
                goal,
            ]
        )
    restored = _restored(repetitions, entries, cluster)
    by_hand_us = [max(0.0, _more(runs, case, "hand")) for case in CASES if case.codec == "state"]
    section.after = (
        f"- By hand, in memory, a state update costs {by_hand_us[0]:.1f} us more than a stateless step, in small "
        f"batches {by_hand_us[1]:.1f} us.\n"
        f"- Restoring: {spread(restored)} entries/s (goal at least {TARGET_ENTRIES:,}: "
        f"{holds(median(restored) >= TARGET_ENTRIES)})."
    )
    return section


Runs: TypeAlias = dict[tuple[Case, str], list[Run]]
"""By the case and the side."""


def _more(runs: Runs, case: Case, side: str) -> float:
    """Microseconds that a step takes more than one without a store, in batches of the same size."""
    [plain] = [one for one in CASES if one.codec == "raw" and one.most == case.most]
    return _step_us(runs[case, side]) - _step_us(runs[plain, side])


def _step_us(runs: list[Run]) -> float:
    return 1e6 / median([r.per_s for r in runs])


def _cpu(runs: list[Run]) -> float:
    return median([r.cpu_us for r in runs])


def _runs(repetitions: int, messages: int, cluster: Cluster) -> Runs:
    sources = {wide: cluster.create(unique("in-state-")) for wide in (False, True)}
    for wide, source in sources.items():
        cluster.fill(source, values_of("raw", count=WIDE if wide else NARROW), messages)
    runs: Runs = {}
    for sides in alternating(repetitions):
        for case in CASES:
            for side in sides if case.codec in ("raw", "state") else ("cues",):
                pipe = Pipe(unique("s"), sources[case.wide], unique("out"), case.codec, most=case.most)
                if side == "hand" and case.codec == "state":
                    cluster.create(hand.changelog(pipe.name), config={"cleanup.policy": "compact"})
                runs.setdefault((case, side), []).append(run(side, pipe, messages, cluster))
    cluster.delete(*sources.values())
    return runs


def _restored(repetitions: int, entries: int, cluster: Cluster) -> list[float]:
    """Entries per second, each time into an empty store."""
    topic = cluster.create(unique("changelog-"))
    cluster.fill(topic, [b"%d" % i for i in range(1_000)], entries, before_key=ENTRY)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 2, "partitioner": "murmur2_random"})
    producer.produce(topic, b"%d" % STEP, MARK)
    assert producer.flush(60) == 0
    spec = store_spec("counts", Store(Json(int)), topic, MAX_BYTES, None)
    restoring = Restoring(cluster.broker, SystemClock(), "state/0", 0, unique("restore"), lambda: False)
    rates = []
    for _ in range(repetitions):
        stores = Stores([spec], 0)
        began = time.monotonic()
        restoring.bring_up(stores, (("counts", STEP),))
        rates.append(entries / (time.monotonic() - began))
        found = len(stores.cache("counts").layers.committed_entries())
        assert found == entries, f"{found} of {entries} entries were restored"
        print(f"  restoring: {rates[-1]:,.0f} entries/s", flush=True)
    cluster.delete(topic)
    return rates

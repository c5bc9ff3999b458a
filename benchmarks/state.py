"""What a store costs a step, beside a dictionary and a changelog by hand; and how fast it comes back."""

from __future__ import annotations

import time

from confluent_kafka import Producer

from benchmarks import hand
from benchmarks.harness import Cluster, Pipe, alternating, median, spread, unique, values_of
from benchmarks.report import Section, holds
from benchmarks.throughput import Run, run
from cues_kafka import Json, Store
from cues_kafka.runtime.build import store_spec
from cues_kafka.runtime.task.clock import SystemClock
from cues_kafka.runtime.task.restoring import Restoring
from cues_kafka.state.layers import ENTRY, MARK
from cues_kafka.state.stores import Stores

TARGET_US = 3
TARGET_ENTRIES = 200_000
STEP = 7
"""The mark at the end of the changelog: the step that changed the store last."""

MAX_BYTES = 1_048_588
"""Of a message, as brokers have it by default."""

NAMES = {"raw": "without a store", "state": "with a store"}

HOW = """As under Throughput, raw values in one partition. *With a store*, the function also counts messages by the
first 8 bytes of the value, 1,000 different keys: `counts[key] = counts.get(key, 0) + 1`. By hand the counts are in a
dictionary, and the last count of each key in a batch goes to a changelog in the same transaction. *A step* is the
time from one message to the next: one second divided by the rate. *Restoring* reads a changelog of different keys into
an empty store, from the call until the store is complete."""


def measure(repetitions: int, messages: int, entries: int, cluster: Cluster) -> Section:
    """Measure both sides without and with a store, in turn, then restoring."""
    section = Section(
        "State",
        f"{HOW}\n{messages:,} messages a run, {entries:,} entries, medians of {repetitions} (min to max).",
        ("case", "cues-kafka, /s", "by hand, /s", "ratio", "a step: ours, us", "by hand", "CPU us: ours", "by hand"),
    )
    runs = _runs(repetitions, messages, cluster)
    for codec, name in NAMES.items():
        cues, by_hand = runs[codec, "cues"], runs[codec, "hand"]
        section.rows.append(
            [
                name,
                spread([r.per_s for r in cues]),
                spread([r.per_s for r in by_hand]),
                f"{_rate(cues) / _rate(by_hand):.2f}",
                f"{1e6 / _rate(cues):.1f}",
                f"{1e6 / _rate(by_hand):.1f}",
                f"{_cpu(cues):.1f}",
                f"{_cpu(by_hand):.1f}",
            ]
        )
    more = {side: 1e6 / _rate(runs["state", side]) - 1e6 / _rate(runs["raw", side]) for side in ("cues", "hand")}
    cpu = {side: _cpu(runs["state", side]) - _cpu(runs["raw", side]) for side in more}
    restored = _restored(repetitions, entries, cluster)
    section.after = (
        f"- A state update costs {more['cues']:.1f} us more than a stateless step (goal at most {TARGET_US}: "
        f"{holds(more['cues'] <= TARGET_US)}); by hand {more['hand']:.1f} us.\n"
        f"- Of processor time it costs {cpu['cues']:.1f} us more; by hand {cpu['hand']:.1f} us.\n"
        f"- Restoring: {spread(restored)} entries/s (goal at least {TARGET_ENTRIES:,}: "
        f"{holds(median(restored) >= TARGET_ENTRIES)})."
    )
    return section


def _rate(runs: list[Run]) -> float:
    return median([r.per_s for r in runs])


def _cpu(runs: list[Run]) -> float:
    return median([r.cpu_us for r in runs])


def _runs(repetitions: int, messages: int, cluster: Cluster) -> dict[tuple[str, str], list[Run]]:
    source = cluster.create(unique("in-state-"))
    cluster.fill(source, values_of("state"), messages)
    runs: dict[tuple[str, str], list[Run]] = {(codec, side): [] for codec in NAMES for side in ("cues", "hand")}
    for sides in alternating(repetitions):
        for codec in NAMES:
            for side in sides:
                pipe = Pipe(unique("s"), source, unique("out"), codec)
                if side == "hand" and codec == "state":
                    cluster.create(hand.changelog(pipe.name), config={"cleanup.policy": "compact"})
                runs[codec, side].append(run(side, pipe, messages, cluster))
    cluster.delete(source)
    return runs


def _restored(repetitions: int, entries: int, cluster: Cluster) -> list[float]:
    """Entries per second, each time into an empty store."""
    topic = cluster.create(unique("changelog-"))
    cluster.fill(topic, [b"%d" % i for i in range(1_000)], entries, before_key=ENTRY)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 2})
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

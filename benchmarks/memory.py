"""Resident memory of a worker over a long backlog, and over a long backing topic."""

from __future__ import annotations

import time
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition, admin

from benchmarks import graphs
from benchmarks.harness import Cluster, Pipe, peak_mib, side, unique, until, values_of
from benchmarks.report import Section, holds

TARGET_MIB = 150

HOW = """The peak of the worker's resident size (the kernel's high-water mark), from its start until the messages
are delivered. *Idle*: 100 messages. *Backing records*: a worker delivers 100 messages and leaves; its newest record
is then appended a million times to its backing topic, where compaction is held back; the worker starts again over
it, recovers, and delivers 20,000 more."""


def measure(messages: int, records: int, cluster: Cluster) -> Section:
    """Measure three cases."""
    section = Section("Memory", HOW, ("case", "peak, MiB", "target", "holds", "seconds to the last commit"))
    source = cluster.create(unique("in-raw-1-"))
    cluster.fill(source, values_of("raw"), 100)
    _add(section, "idle", *_deliver(Pipe(unique("m"), source, unique("out")), 100, cluster))
    cluster.fill(source, values_of("raw"), messages - 100)
    _add(
        section,
        f"{messages:,} messages of backlog",
        *_deliver(Pipe(unique("m"), source, unique("out")), messages, cluster),
    )
    wide = cluster.create(unique("in-raw-4-"), 4)
    cluster.fill(wide, values_of("raw"), messages)
    pipe = Pipe(unique("m"), wide, unique("out"), partitions=4)
    _add(section, f"{messages:,} messages of backlog, 4 partitions", *_deliver(pipe, messages, cluster))
    _add(section, *_backing(records, cluster))
    return section


def _add(section: Section, case: str, peak: float, seconds: float) -> None:
    print(f"  {case}: {peak:.0f} MiB", flush=True)
    section.rows.append([case, f"{peak:.0f}", f"< {TARGET_MIB}", holds(peak < TARGET_MIB), f"{seconds:.1f}"])


def _deliver(pipe: Pipe, messages: int, cluster: Cluster, *, create: bool = True) -> tuple[float, float]:
    if create:
        cluster.create(pipe.target, pipe.partitions)
    began = time.monotonic()
    with side("cues", cluster, pipe) as process:

        def finished() -> bool:
            return cluster.committed(pipe.group("cues"), pipe.source, pipe.partitions) >= messages

        until(finished, timeout_s=300, every_s=0.05, what=f"{messages} committed", process=process)
        return peak_mib(process), time.monotonic() - began


def _backing(records: int, cluster: Cluster) -> tuple[str, float, float]:
    source = cluster.create(unique("in-raw-1-"))
    pipe = Pipe(unique("m"), source, unique("out"))
    cluster.fill(source, values_of("raw"), 100)
    _deliver(pipe, 100, cluster)
    backing = f"{graphs.group(pipe.name)}.backing"
    _hold_compaction(backing, cluster)
    _repeat_newest(backing, records, cluster)
    cluster.fill(source, values_of("raw"), 20_000)
    low, _, high = cluster.marks(backing)
    peak, seconds = _deliver(pipe, 20_100, cluster, create=False)
    assert high - low >= records, f"only {high - low} records are left: the log was compacted"
    return f"{high - low:,} backing records", peak, seconds


def _hold_compaction(topic: str, cluster: Cluster) -> None:
    client: Any = admin  # its stubs leave these names out
    entries = [
        client.ConfigEntry(key, value, incremental_operation=client.AlterConfigOpType.SET)
        for key, value in {"min.compaction.lag.ms": "86400000", "min.cleanable.dirty.ratio": "1.0"}.items()
    ]
    resource = client.ConfigResource(client.ResourceType.TOPIC, topic, incremental_configs=entries)
    for future in cluster.admin.incremental_alter_configs([resource]).values():
        future.result(30)


def _repeat_newest(topic: str, count: int, cluster: Cluster) -> None:
    """Copy the newest record: only the newest one counts, so copies change only the length of the log."""
    reader = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": unique("look"), "enable.auto.commit": False})
    low, _, high = cluster.marks(topic)
    reader.assign([TopicPartition(topic, 0, low)])
    newest = None
    while (message := reader.poll(3.0)) is not None and (message.offset() or 0) < high:
        newest = message
    reader.close()
    assert newest is not None
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap, "linger.ms": 20, "queue.buffering.max.messages": 500_000}
    )
    for _ in range(count):
        while True:
            try:
                producer.produce(topic, newest.value(), newest.key(), 0, headers=newest.headers())
            except BufferError:
                producer.poll(0.1)
            else:
                break
    assert producer.flush(120) == 0

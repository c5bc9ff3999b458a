"""What a test of Spark Connect runs: a client of a server of its own, without a JVM in this process."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import Any

from pyspark.sql import SparkSession

import cues_kafka.spark
from cues_kafka import Graph, Json, Kafka, Processor, Source, TaskStopped, Topic, start
from cues_kafka.brokers.open import open_broker
from cues_kafka.errors import ConfigError, UnstableOffsets
from cues_kafka.ports.facts import NewTopic
from cues_kafka.ports.log import TopicPartition
from cues_kafka.spark import Spark
from tests.fault.support import until
from tests.spark.streams import frame_of

BAD = 1_000


def double(n: int) -> int:
    """One message has no double."""
    if n == BAD:
        raise ValueError("no double")
    return 2 * n


def graph_of(name: str) -> Graph:
    """A pipe over two partitions, without an errors topic."""
    pipe = Processor(double, inputs=f"{name}.in", outputs=f"{name}.out")
    return Graph(name, Source(f"{name}.in"), pipe, defaults=Topic(value=Json(), partitions=2))


def main(bootstrap: str, name: str, directory: str) -> None:
    """Prints what a test looks for."""
    builder: Any = SparkSession.builder
    session = (
        builder.remote("local[2]")
        .config("spark.connect.grpc.binding.address", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .getOrCreate()
    )
    plain(session, Kafka(bootstrap), name, f"{directory}/plain")
    frame(session, Kafka(bootstrap), name, f"{directory}/frame")
    session.stop()


def plain(session: Any, kafka: Kafka, name: str, checkpoint: str) -> None:
    """A graph, twice, and a message that stops its task."""
    for begin in (0, 20):
        with start(graph_of(name), kafka, engine=Spark(session, checkpoint=checkpoint)) as running:
            running.send_many(f"{name}.in", range(begin, begin + 20))
            running.wait_idle(timeout_s=120)
            print("status:", sum(task.totals.deliveries for task in running.status().tasks), flush=True)
    print("plain:", sorted(m.value for m in running.messages(f"{name}.out")), flush=True)
    try:
        with start(graph_of(name), kafka, engine=Spark(session, checkpoint=checkpoint)) as running:
            running.send(f"{name}.in", BAD)
            running.wait_idle(timeout_s=120)
    except TaskStopped as stopped:
        print("stopped:", stopped, flush=True)


def frame(session: Any, kafka: Kafka, name: str, checkpoint: str) -> None:
    """A DataFrame without a shuffle, and one with."""
    source, target = f"{name}.in", f"{name}.copy"
    broker = open_broker(kafka)
    broker.create([NewTopic(target, 2, 1, {})])
    rows = frame_of(session, kafka, source)
    write = cues_kafka.spark.write_exactly_once
    try:
        write(rows.groupBy("key").count(), kafka, topic=target, name=f"{name}-c", checkpoint=f"{checkpoint}-counted")
    except ConfigError as refused:
        print("refused:", refused, flush=True)
    query = write(rows.where("offset >= 5"), kafka, topic=target, name=f"{name}-f", checkpoint=checkpoint)
    places = [TopicPartition(f"{name}-f.write.backing", p) for p in range(2)]
    ends = [TopicPartition(source, p) for p in range(2)]

    def written() -> bool:
        with suppress(UnstableOffsets):
            committed, marks = broker.committed(f"{name}-f.write", ends), broker.watermarks(ends)
            return all(committed[place] == marks[place].stable for place in ends)
        return False

    until(lambda: written() or not query.isActive, "everything is written", 120)
    query.stop()
    print("rows:", sum(m.stable for m in broker.watermarks(places).values()) > 0, query.exception(), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])

"""What a test of Spark Connect runs: a client of a server of its own, without a JVM in this process."""

from __future__ import annotations

import sys
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from confluent_kafka import Producer

import cues_kafka.spark
from cues_kafka import DataFrameProcessor, Graph, Json, Kafka, Processor, Source, TaskStopped, Topic, start
from cues_kafka.brokers.open import open_broker
from cues_kafka.errors import ConfigError, UnstableOffsets
from cues_kafka.operate.repair.ask import Repairs
from cues_kafka.operate.repair.filed import ALL
from cues_kafka.ports.facts import NewTopic
from cues_kafka.ports.log import TopicPartition
from cues_kafka.running.running import Running
from cues_kafka.spark import Spark
from tests.fault.support import until
from tests.spark.connect_server import connect_session
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
    session = connect_session("local[2]", {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2"})
    plain(session, Kafka(bootstrap), name, f"{directory}/plain")
    frame(session, Kafka(bootstrap), name, f"{directory}/frame")
    staged(session, Kafka(bootstrap), f"{name}-s", directory)
    session.stop()


def plain(session: Any, kafka: Kafka, name: str, checkpoint: str) -> None:
    """A graph, twice, and a message that stops its task."""
    for begin in (0, 20):
        with start(graph_of(name), kafka, engine=Spark(session, checkpoint=checkpoint)) as running:
            running.send_many(f"{name}.in", range(begin, begin + 20))
            running.wait_idle(timeout_s=120)
            until(partial(all_delivered, running, begin + 20), "the status has what the records have", 30)
            print("status:", delivered(running), flush=True)
    print("plain:", sorted(m.value for m in running.messages(f"{name}.out")), flush=True)
    try:
        with start(graph_of(name), kafka, engine=Spark(session, checkpoint=checkpoint)) as running:
            running.send(f"{name}.in", BAD)
            running.wait_idle(timeout_s=120)
    except TaskStopped as stopped:
        print("stopped:", stopped, flush=True)


def all_delivered(running: Running, count: int) -> bool:
    """Whether the status has caught up with the records."""
    return delivered(running) >= count


def delivered(running: Running) -> int:
    """By the status, which reads the records of the slots every two seconds."""
    return sum(task.totals.deliveries for task in running.status().tasks)


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


@dataclass(frozen=True)
class Number:
    """What is counted."""

    n: int


@dataclass(frozen=True)
class Corrected:
    """The same, and a message without a number counts as 2."""

    n: int = 2


def counts(numbers: Any) -> Any:
    """How often each of four remainders has come."""
    return numbers.selectExpr("n % 4 AS rest").groupBy("rest").count()


def counting(name: str, cls: type[Any]) -> Graph:
    """An aggregate of messages of a class."""
    return Graph(
        name,
        Source(f"{name}.in"),
        DataFrameProcessor(counts, inputs=f"{name}.in", outputs=f"{name}.out", output_mode="update"),
        topics={f"{name}.in": Topic(value=Json(cls), partitions=2), f"{name}.out": Topic(partitions=2)},
        errors=f"{name}.errors",
    )


def staged(session: Any, kafka: Kafka, name: str, directory: str) -> None:
    """An aggregate, twice, and replays of what it could not decode; a place that only Spark knows is refused."""
    graph, engine = counting(name, Number), Spark(session, checkpoint=f"file:{directory}/staged")
    try:
        start(graph, kafka, engine=Spark(session, checkpoint=f"{directory}/staged"))
    except ConfigError as refused:
        print("unshared:", refused, flush=True)
    for begin in (0, 20):
        with start(graph, kafka, engine=engine) as running:
            running.send_many(f"{name}.in", [Number(n) for n in range(begin, begin + 20)])
            producer = Producer({"bootstrap.servers": kafka.bootstrap})
            producer.produce(f"{name}.in", b"{}", partition=0)
            producer.flush()
            running.wait_idle(timeout_s=120)
            counted(running, name)
    graph, broker = counting(name, Corrected), open_broker(kafka)
    with start(graph, kafka, engine=engine) as running, Repairs(graph, broker, owned=True) as tool:
        print("asked:", tool.ask("replay", ALL).asked, flush=True)
        until(lambda: all(one.settled for one in tool.find()), "all are rows", 120)
        counted(running, name)


def counted(running: Running, name: str) -> None:
    """What is readable: the newest counts, and what was published more than once."""
    values = [(one.value["rest"], one.value["count"]) for one in running.messages(f"{name}.out", limit=1_000)]
    newest = {rest: max(n for r, n in values if r == rest) for rest in range(4)}
    errors = [one.value.payload for one in running.messages(f"{name}.errors")]
    print(f"counted {sum(newest.values())}:", newest, len(values) - len(set(values)), errors, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])

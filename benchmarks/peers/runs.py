"""One run of one job on one side: its topics, its process, how far it is, and what it wrote."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import psutil
from confluent_kafka import Consumer, KafkaError, TopicPartition

from benchmarks.harness import Cluster, child, unique, until
from benchmarks.peers import jobs
from benchmarks.peers.sides import FORK, ORDERS, PIPE, Peer
from cues_kafka.ports.facts import Watermarks
from cues_kafka.ports.log import TopicPartition as Place

LOOK_S = 0.02
GIVE_UP_S = 240.0
"""More than all timeouts of a session and a transaction that follow a kill, 10 s and 60 s."""


@dataclass(frozen=True, slots=True)
class Shape:
    """
    What a run moves.

    Attributes:
        partitions: of each topic.
        value_bytes: of each value of a pipe; orders have about 100 bytes.
        threads: of Kafka Streams.
    """

    partitions: int = 4
    value_bytes: int = 100
    threads: int = 1


USUAL = Shape()

TOPICS = {
    ORDERS: ("orders", "counts", "errors"),
    PIPE: ("values", "copies"),
    FORK: ("numbers", "first", "second", "errors"),
}
"""Of each job, its input first."""


@dataclass(frozen=True, slots=True)
class Run:
    """
    One run.

    Attributes:
        name: the first part of all its names on the cluster.
        records: what was written to its input.
        topics: of the job, the input first.
        files: a folder for the state of its processes.
        shape: of its messages.
    """

    cluster: Cluster
    peer: Peer
    job: str
    name: str
    records: Sequence[jobs.Record]
    topics: Sequence[str]
    files: str
    shape: Shape

    @contextmanager
    def started(self) -> Iterator[psutil.Popen]:
        """The program as a child process, which is stopped at the end."""
        names = {"NAME": self.name, "BROKER": self.cluster.bootstrap, "STATE": self.files}
        names |= {"PARTITIONS": str(self.shape.partitions), "THREADS": str(self.shape.threads)}
        ours = {"CUES_KAFKA_STATE_DIR": self.files, "CUES_KAFKA_BOOTSTRAP": self.cluster.bootstrap}
        with child(self.peer.command(self.job), {**os.environ, **ours, **names}) as process:
            yield process

    def done(self) -> int:
        """How many of its messages are committed."""
        return self.cluster.committed(self.peer.group(self.name, self.job), self.topics[0], self.shape.partitions)

    def finish(self, process: psutil.Popen, *, timeout_s: float = GIVE_UP_S) -> None:
        """Wait until all messages are committed."""
        until(
            lambda: self.done() >= len(self.records),
            timeout_s=timeout_s, every_s=LOOK_S, what=f"all committed by {self.peer.title}", process=process,
        )  # fmt: skip

    def marks(self, topic: str) -> dict[Place, Watermarks]:
        """The watermarks of all partitions of a topic."""
        return dict(self.cluster.broker.watermarks([Place(topic, p) for p in range(self.shape.partitions)]))

    def outputs(self) -> list[list[jobs.Record]]:
        """All that a reader with `read_committed` gets of each output, after the last transaction has ended."""
        return [self._read(topic) for topic in self.topics[1:]]

    def verdict(self) -> jobs.Verdict:
        """Compare the outputs of a pipe, or of orders, with what plain Python makes."""
        if self.job == PIPE:
            [copies] = self.outputs()
            return jobs.compared(self.records, copies)
        counts, errors = ([value for _, value in records] for records in self.outputs())
        return jobs.judged(jobs.by_hand(self.records), counts, map(self.peer.refused, errors))

    def _read(self, topic: str) -> list[jobs.Record]:
        until(
            lambda: all(mark.stable == mark.high for mark in self.marks(topic).values()),
            timeout_s=GIVE_UP_S, every_s=LOOK_S, what=f"all transactions of {topic} ended",
        )  # fmt: skip
        consumer = Consumer(
            {
                "bootstrap.servers": self.cluster.bootstrap,
                "group.id": unique("read"),
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
            }
        )
        consumer.assign([TopicPartition(topic, p, 0) for p in range(self.shape.partitions)])
        found: list[jobs.Record] = []
        ends = 0
        while ends < self.shape.partitions:
            for message in consumer.consume(10_000, 0.2):
                if (error := message.error()) is None:
                    found.append((message.key(), message.value() or b""))
                elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - the client names it so
                    ends += 1
                else:
                    raise RuntimeError(error)
        consumer.close()
        return found


@contextmanager
def prepared(cluster: Cluster, peer: Peer, job: str, messages: int, shape: Shape = USUAL) -> Iterator[Run]:
    """Topics with messages for one run, and a folder for its files; a slow side gets a tenth of the messages."""
    count = messages // 10 if peer.slow else messages
    records = jobs.values(count, shape.value_bytes) if job == PIPE else jobs.INPUTS[job](count)
    name = unique(f"{peer.short}-{job}-")
    topics = [cluster.create(f"{name}.{topic}", shape.partitions) for topic in TOPICS[job]]
    cluster.send(topics[0], records)
    with tempfile.TemporaryDirectory(prefix="peers-") as files:
        yield Run(cluster, peer, job, name, records, topics, files, shape)
    cluster.delete(*topics)

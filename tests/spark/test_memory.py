"""Ranges and staged parts of any size are delivered with bounded memory."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import chain, repeat
from pathlib import Path
from subprocess import PIPE

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from pyarrow import parquet

from cues_kafka import Kafka
from cues_kafka.brokers.open import open_broker
from cues_kafka.graph.names import backing_topic
from cues_kafka.on_spark.staged.chunks import Pack
from cues_kafka.plan.topics import backing_config
from cues_kafka.ports.facts import NewTopic
from cues_kafka.ports.log import TopicPartition
from cues_kafka.testing.fixtures import KafkaFixture

MESSAGE_BYTES = 20_000
MESSAGES = 100_000
LIMIT_MIB = 1024
PIECE = 200

CHILD = """
import sys
from cues_kafka import Graph, Kafka, Processor, Raw, Source, Topic
from cues_kafka.brokers.open import open_broker
from cues_kafka.task.making.prepare import prepare
from cues_kafka.on_spark.direct.work import Work
from cues_kafka.task.making.specs import Identity

def head(value: bytes) -> bytes:
    return value[:100]

bootstrap, source, end = sys.argv[1], sys.argv[2], int(sys.argv[3])
pipe = Processor(head, name="head", inputs=source, outputs=source + ".out")
graph = Graph(source + "-g", Source(source), pipe, defaults=Topic(value=Raw()))
options = Kafka(bootstrap)
planned, facts = prepare(graph, open_broker(options))
work = Work(graph, "head", options, planned, facts, Identity.of_process("spark"))
outcome = work.deliver(0, 0, end, attempt="0", first=False)
peak = [line for line in open("/proc/self/status") if line.startswith("VmHWM")][0].split()[1]
print(outcome.kind or "delivered", outcome.counts.outputs, int(peak) // 1024)
"""


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_two_gigabytes_in_one_range_need_less_than_one(kafka: KafkaFixture) -> None:
    """
    In a process like that of a Spark task; batches of steps are cut by messages and by bytes, and these messages are
    large, so their number alone bounds nothing.
    """
    source = kafka.unique("large")
    broker = open_broker(Kafka(kafka.bootstrap))
    broker.create([NewTopic(source, 1)])
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "compression.type": "lz4", "linger.ms": 50})
    value = os.urandom(MESSAGE_BYTES // 20).hex().encode() * 10
    for _ in range(MESSAGES):
        while True:
            try:
                producer.produce(source, value, partition=0)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(120) == 0
    place = TopicPartition(source, 0)
    end = broker.watermarks([place])[place].stable
    broker.close()

    within_limit(CHILD, kafka.bootstrap, source, end)


def within_limit(program: str, *args: object) -> None:
    """A program delivers all messages, and needs no more memory than it may."""
    command = [sys.executable, "-c", program, *map(str, args)]
    ran = subprocess.run(command, stdout=PIPE, text=True, check=True, cwd=Path(__file__).parents[2], timeout=400)
    said, outputs, peak_mib = ran.stdout.split()
    assert (said, int(outputs)) == ("delivered", MESSAGES)
    assert int(peak_mib) < LIMIT_MIB


STAGED = """
import sys
from pathlib import Path
from pyarrow import parquet
from cues_kafka import Kafka
from cues_kafka.core.records import Staged
from cues_kafka.task.making.specs import Identity
from cues_kafka.on_spark.staged.manifest import Chunk
from cues_kafka.on_spark.staged.chunks import INDEX
from cues_kafka.on_spark.staged.topics import StagedTarget
from cues_kafka.task.calling.outputs import Output
from cues_kafka.on_spark.staged.publish import PublishFiles, StagedWork

bootstrap, name, file = sys.argv[1:]
options = Kafka(bootstrap, transaction_timeout_s=300)
target = StagedTarget((Output(f"{name}.out", 1, 1_000_000),))
identity = Identity.of_process("spark")
work = StagedWork(options, name, "work", 2, target, (None,), (None,), True, identity, "q")
index = parquet.read_table(file, columns=list(INDEX)).to_pylist()
chunks = tuple(Chunk(c["part"], c["row"], c["rows"], c["errors"], c["checksum"].hex(), 0) for c in index)
batch = Staged(query="q", batch=0, attempt="a", checksum=b"", parts=2, number=1)
[outcome] = PublishFiles(work, batch, {1: chunks}, [Path(file)])([1])
peak = [line for line in open("/proc/self/status") if line.startswith("VmHWM")][0].split()[1]
print(outcome.kind or "delivered", outcome.counts.outputs, int(peak) // 1024)
"""


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_two_gigabytes_in_one_staged_part_need_less_than_one(kafka: KafkaFixture, tmp_path: Path) -> None:
    """In a process like that of a Spark task that publishes: of the staged files only a few chunks are in memory."""
    name, file = kafka.unique("large"), tmp_path / "rows.parquet"
    broker = open_broker(Kafka(kafka.bootstrap))
    broker.create([NewTopic(f"{name}.out", 1), NewTopic(backing_topic(name, "work"), 2, config=backing_config(1))])
    broker.close()
    value = os.urandom(MESSAGE_BYTES // 20).hex().encode() * 10
    given = pa.RecordBatch.from_pydict({"key": [value[:10]] * PIECE, "value": [value] * PIECE})
    chunks = Pack(2, lambda piece, _: piece, 1)(repeat(given, MESSAGES // PIECE))
    first = next(chunks)
    with parquet.ParquetWriter(file, first.schema, use_dictionary=False) as writer:
        for chunk in chain([first], chunks):
            part = chunk.set_column(0, "part", pa.array([1], pa.int32()))
            writer.write_batch(part)

    within_limit(STAGED, kafka.bootstrap, name, file)

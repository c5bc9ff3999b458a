"""A range of any size is delivered with bounded memory: batches of steps are cut by messages and by bytes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Producer

from cues_kafka import Kafka
from cues_kafka.brokers.open import open_broker
from cues_kafka.ports import NewTopic, TopicPartition
from cues_kafka.testing.fixtures import KafkaFixture

MESSAGE_BYTES = 20_000
MESSAGES = 100_000
LIMIT_MIB = 1024

CHILD = """
import sys
from cues_kafka import Graph, Kafka, Processor, Raw, Source, Topic
from cues_kafka.brokers.open import open_broker
from cues_kafka.runtime.build import Identity, prepare
from cues_kafka.runtime.spark.work import Work

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
    """In a process like that of a Spark task; the messages are large, so their number alone bounds nothing."""
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

    command = [sys.executable, "-c", CHILD, kafka.bootstrap, source, str(end)]
    ran = subprocess.run(
        command, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2], timeout=400
    )

    said, outputs, peak_mib = ran.stdout.split()
    assert (said, int(outputs)) == ("delivered", MESSAGES)
    assert int(peak_mib) < LIMIT_MIB

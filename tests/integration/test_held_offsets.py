"""A transaction that holds the offsets of a group, on a real broker: found by `doctor`, and ended by what it prints."""

from __future__ import annotations

import re
import shlex
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as ClientPartition

from cues_kafka import Graph, Json, Kafka, Processor, Source, Topic, start
from cues_kafka.brokers.kafka import KafkaBroker
from cues_kafka.brokers.local.jars import fetched, find_jars
from cues_kafka.brokers.local.java import find_java
from cues_kafka.brokers.local.prepare import command
from cues_kafka.errors import UnstableOffsets
from cues_kafka.operate.look.doctor import Ailment, examine
from cues_kafka.operate.look.held_offsets import OFFSETS, offsets_partition
from cues_kafka.ports.log import TopicPartition
from cues_kafka.testing.fixtures import KafkaFixture
from tests.docker.parts import TOOLS


def passed(value: Any) -> Any:
    """Pass it on."""
    return value


def examined(graph: Graph, kafka: KafkaFixture) -> list[Ailment]:
    """What `doctor` says of transactions."""
    with closing(KafkaBroker(Kafka(kafka.bootstrap))) as broker:
        return [one for one in examine(graph, broker, address=kafka.bootstrap) if one.check == "transactions"]


def run_tool(line: str, directory: Path) -> str:
    """Run a line for Kafka's script `kafka-transactions`: its class, with the jars of the local broker."""
    program, *words = shlex.split(line)
    assert program == "kafka-transactions"
    java = find_java(who="Kafka's tools")
    jars = find_jars(java)
    tools = fetched(TOOLS, java)
    run = command(java, jars, directory, "org.apache.kafka.tools.TransactionsCommand", *words)
    path = run.index("-cp") + 1
    run[path] = f"{run[path]}:{tools.class_path}"
    ended = subprocess.run(run, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


@pytest.mark.full  # a minute, in which each look waits for the offsets
def test_transaction_that_holds_offsets_is_found_and_ended_by_the_printed_command(
    kafka: KafkaFixture, tmp_path: Path
) -> None:
    """`doctor` saw nothing, and the task's own text had no place. The process that began it does not end it here."""
    name = kafka.unique("held")
    graph = Graph(
        name,
        Source(f"{name}.in"),
        Processor(passed, name="work", inputs=f"{name}.in", outputs=f"{name}.out"),
        defaults=Topic(value=Json(), partitions=1),
    )
    with start(graph, Kafka(kafka.bootstrap)) as running:
        running.send(f"{name}.in", 1)
        running.wait_idle()
    assert examined(graph, kafka) == []
    group, place = f"{name}.work", TopicPartition(f"{name}.in", 0)
    with closing(Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": group})) as outside:
        metadata = outside.consumer_group_metadata()
        hanging = Producer({
            "bootstrap.servers": kafka.bootstrap, "transactional.id": f"{name}-lost", "transaction.timeout.ms": 600_000,
        })  # fmt: skip
        hanging.init_transactions(30)
        hanging.begin_transaction()
        hanging.send_offsets_to_transaction([ClientPartition(*place, 7)], metadata, 30)

        [found] = examined(graph, kafka)

        assert found.wrong
        assert f"held offsets of group {group}" in found.what
        [line] = re.findall(r"`(kafka-transactions [^`]*)`", found.remedy)
        with closing(KafkaBroker(Kafka(kafka.bootstrap))) as broker:
            width = broker.partitions([OFFSETS])[OFFSETS]
            assert f"--topic {OFFSETS} --partition {offsets_partition(group, width)} --start-offset " in line
            with pytest.raises(UnstableOffsets, match="`cues-kafka doctor MODULE:GRAPH` prints that command"):
                broker.committed(group, [place])
            # What texts have where the place is not known; the tool calls none hanging within 15 minutes.
            run_tool(re.sub(r" abort (.*) --start-offset .*", r" find-hanging \1", line), tmp_path)
            run_tool(line, tmp_path)
            assert broker.committed(group, [place]) == {place: 1}
        assert examined(graph, kafka) == []
        del hanging


@pytest.mark.parametrize(
    ("group", "number"),
    # As Java's String.hashCode gives them; the last one is the one whose absolute value Java does not have.
    [
        ("", 0),
        ("hello", 99_162_322),
        ("shop.count", 2_085_455_895),
        ("grün", 3_185_949),
        ("polygenelubricants", -(1 << 31)),
    ],
)
def test_offsets_of_a_group_are_where_java_puts_them(group: str, number: int) -> None:
    """With 50 partitions, Kafka's default, and with another number."""
    for width in (50, 7):
        assert offsets_partition(group, width) == (0 if number == -(1 << 31) else abs(number)) % width

"""E1: streams of RabbitMQ whose tasks operators move, and that operators delete; what the broker keeps stays."""

from __future__ import annotations

import secrets
from typing import Any
from unittest.mock import patch

import pytest

from cues_kafka import CommitPolicy, ConfigError, Graph, Memory, Processor, Running, Source, Topic, start
from cues_kafka.bridges.rabbitmq.stream_client import StreamConnection
from cues_kafka.errors import TaskStopped
from cues_kafka.operate.move.base import Maintenance
from cues_kafka.operate.move.rename import Renaming
from cues_kafka.operate.move.reset import reset
from cues_kafka.testing.tester import Crash, Tester
from tests.fault.support import until
from tests.servers.fixtures import RabbitMqQueues
from tests.servers.rabbitmq_world import Shop, bodies_of, new_stream, out

pytestmark = [pytest.mark.bridge, pytest.mark.timeout(300)]


@pytest.fixture
def stream(rabbitmq: RabbitMqQueues) -> str:
    """A stream of this test."""
    return new_stream(rabbitmq)


def recreate(rabbitmq: RabbitMqQueues, stream: str) -> None:
    """Delete a stream and declare it again."""
    with Shop(rabbitmq.server) as shop:
        shop.channel.queue_delete(stream)
        shop.declare(stream, "stream")


def tell(number: int, parcels: Any) -> str:
    """It says something else whenever it is called."""
    said = f"{number}-{secrets.token_hex(4)}"
    parcels.publish(said)
    return said


def graph_of(rabbitmq: RabbitMqQueues, stream: str, name: str = "tell", **given: Any) -> Graph:
    """A function that publishes."""
    declared = Processor(
        tell, name=name, inputs="numbers", outputs="told", effects={"parcels": out(rabbitmq, stream, **given)}
    )
    return Graph(rabbitmq.name, Source("numbers"), declared, defaults=Topic(partitions=1))


def batches(graph: Graph, broker: Any = None) -> Tester:
    """Batches of four."""
    return Tester(graph, broker=broker, policy=CommitPolicy(max_messages=4))


def told(running: Running) -> list[Any]:
    """What the function has given."""
    return [one.value for one in running.messages("told")]


def numbers_of(values: list[Any]) -> list[int]:
    """What they begin with."""
    return [int((one.decode() if isinstance(one, bytes) else one).partition("-")[0]) for one in values]


def agree(tester: Tester, rabbitmq: RabbitMqQueues, stream: str, expected: list[int]) -> None:
    """The stream has what Kafka has, in order."""
    told = tester.values("told")
    assert numbers_of(told) == expected
    assert bodies_of(rabbitmq, stream) == [one.encode() for one in told]


def crashed(rabbitmq: RabbitMqQueues, stream: str) -> Tester:
    """Its process has died behind an entry of the log: four messages are decided, and not committed in Kafka."""
    tester = batches(graph_of(rabbitmq, stream))
    for number in range(6):
        tester.send("numbers", number)
    tester.run(crash=Crash("after", "CommitTarget", 2))
    assert tester.crashed
    return tester


def test_a_reset_publishes_again_under_greater_numbers(rabbitmq: RabbitMqQueues, stream: str) -> None:
    """The stream drops nothing of what is delivered again."""
    tester = crashed(rabbitmq, stream)
    tester.restart().run()
    tester.stop()
    for _ in range(2):
        tool = Maintenance(tester.graph, tester.broker, "tell", who="reset on here", clock=tester.clock)
        tool.carry_out(reset(tool, to="earliest"))
        tester = batches(graph_of(rabbitmq, stream), tester.broker)
        tester.run()
        tester.stop()

    agree(tester, rabbitmq, stream, [*range(6)] * 3)


def test_a_processor_that_publishes_to_streams_keeps_its_name(rabbitmq: RabbitMqQueues, stream: str) -> None:
    """Its log and its numbers are kept under the name, so the command refuses. It goes on under the old name."""
    tester = crashed(rabbitmq, stream)
    tester.restart().run()
    tester.stop()
    with pytest.raises(ConfigError, match="kept under the processor's name"):
        Renaming(graph_of(rabbitmq, stream, "say"), tester.broker, "tell", "say", who="rename on here")
    tester = batches(graph_of(rabbitmq, stream), tester.broker)
    tester.send("numbers", 6)
    tester.run()
    tester.stop()

    agree(tester, rabbitmq, stream, [*range(7)])


def test_a_new_cluster_of_kafka_is_refused_until_it_has_logs_of_its_own(rabbitmq: RabbitMqQueues, stream: str) -> None:
    """RabbitMQ has the log and the numbers of a task that Kafka does not know. Nothing is published, or dropped."""
    tester = crashed(rabbitmq, stream)
    tester.restart().run()
    tester.stop()
    before = bodies_of(rabbitmq, stream)
    tester = batches(graph_of(rabbitmq, stream))
    for number in range(6):
        tester.send("numbers", number)
    with pytest.raises(TaskStopped, match="another application uses this name with this target"):
        tester.run()
    tester.stop()
    assert bodies_of(rabbitmq, stream) == before

    tester.broker.expire(f"{rabbitmq.name}.tell")
    tester = batches(graph_of(rabbitmq, stream, logs=f"{rabbitmq.name}-2"), tester.broker)
    tester.run()
    tester.stop()
    values = tester.values("told")
    assert numbers_of(values) == [*range(6)]
    assert bodies_of(rabbitmq, stream) == before + [one.encode() for one in values]


def test_a_stream_that_is_deleted_and_declared_again_under_an_idle_task_is_gone_on_with(
    rabbitmq: RabbitMqQueues, stream: str
) -> None:
    """All was confirmed, so nothing is published again."""
    with start(graph_of(rabbitmq, stream), Memory()) as running:
        for number in range(3):
            running.send("numbers", number)
        running.wait_idle(timeout_s=60)
        assert numbers_of(bodies_of(rabbitmq, stream)) == [0, 1, 2]
        recreate(rabbitmq, stream)
        for number in range(3, 6):
            running.send("numbers", number)
        until(lambda: len(told(running)) == 6, "it goes on")
        assert bodies_of(rabbitmq, stream) == [one.encode() for one in told(running)[3:]]


def test_a_stream_that_is_gone_stops_its_task_until_it_is_declared(rabbitmq: RabbitMqQueues, stream: str) -> None:
    """The remedy says so; nothing is lost."""
    running = start(graph_of(rabbitmq, stream), Memory(), timeout_s=None)
    try:
        running.send("numbers", 0)
        running.wait_idle(timeout_s=60)
        with Shop(rabbitmq.server) as shop:
            shop.channel.queue_delete(stream)
        running.send("numbers", 1)
        with pytest.raises(TaskStopped, match="declare it at the broker"):
            running.wait_idle(timeout_s=60)
        with Shop(rabbitmq.server) as shop:
            shop.declare(stream, "stream")
        until(lambda: len(told(running)) == 2, "it goes on")
        assert bodies_of(rabbitmq, stream) == [told(running)[1].encode()]
    finally:
        running.stop()


def test_a_stream_that_is_declared_again_in_the_middle_of_a_batch_stops_its_task(
    rabbitmq: RabbitMqQueues, stream: str
) -> None:
    """Whether its newest messages were there cannot be known. The remedy delivers them again, to the new stream."""
    tester = batches(graph_of(rabbitmq, stream))
    for number in range(4):
        tester.send("numbers", number)
    tester.run()
    for number in range(4, 8):
        tester.send("numbers", number)
    dies = patch.object(StreamConnection, "confirmed", side_effect=ConnectionError("it dies behind its entry"))
    with dies, pytest.raises(TaskStopped, match="it dies behind its entry"):
        tester.run()
    recreate(rabbitmq, stream)
    with pytest.raises(TaskStopped, match=r"deleted and declared again.*look whether they are there"):
        tester.restart().run()
    tester.stop()
    tester.broker.expire(f"{rabbitmq.name}.tell")
    assert bodies_of(rabbitmq, stream) == []

    with Shop(rabbitmq.server) as shop:
        shop.channel.queue_delete(f"{rabbitmq.name}.log.{rabbitmq.name}.tell.0")
    tool = Maintenance(tester.graph, tester.broker, "tell", who="reset on here", clock=tester.clock)
    tool.carry_out(reset(tool, to="here"))
    tester = batches(graph_of(rabbitmq, stream), tester.broker)
    tester.run()
    tester.stop()
    assert numbers_of(tester.values("told")) == [*range(8)]
    assert bodies_of(rabbitmq, stream) == [one.encode() for one in tester.values("told")[4:]]

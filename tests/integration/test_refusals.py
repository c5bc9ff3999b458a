"""What a task or a start refuses, on a real broker: nothing is skipped or written, and the text says what to do."""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from confluent_kafka import Producer

from cues_kafka import BrokerError, ConfigError, Graph, Json, Kafka, Processor, Source, TaskStopped, Topic, start
from cues_kafka.core.records import Snapshot, Start, Totals, Writer
from cues_kafka.graph.declare import CommitPolicy
from cues_kafka.ports.log import Position
from cues_kafka.running.running import Running
from cues_kafka.testing.fixtures import KafkaFixture
from tests.fault.support import Record, Setup, backing, create, delete, end_offset, produce, trim, until


@pytest.fixture
def setup(kafka: KafkaFixture) -> Setup:
    """Names of the test's own."""
    return Setup(kafka.bootstrap, kafka.unique("g"))


def same(value: Any) -> Any:
    """What all functions of these tests do."""
    return value


def ran(setup: Setup, *values: bytes, idle_seconds: float = 60.0) -> Graph:
    """A graph that has delivered these values and stopped."""
    graph = setup.graph(same)
    with setup.start(graph, policy=CommitPolicy(idle_seconds=idle_seconds)) as running:
        setup.send(*values)
        running.wait_idle(timeout_s=30)
    return graph


def refused(setup: Setup, graph: Graph, match: str) -> str:
    """The graph must not start, and must not have written a record."""
    before = end_offset(setup.bootstrap, setup.backing)
    with pytest.raises(TaskStopped, match=match) as stopped:
        setup.start(graph).stop()
    assert end_offset(setup.bootstrap, setup.backing) == before, "I12: a refused recovery writes nothing"
    return str(stopped.value)


# ---- inputs


def test_a_missing_input_topic_is_refused_before_anything_is_created(kafka: KafkaFixture) -> None:
    """Only topics that the graph writes or declares are created."""
    name = kafka.unique("g")
    graph = Graph(name, Processor(same, inputs="nowhere-at-all", outputs=f"{name}.out"), defaults=Topic(value=Json()))

    with pytest.raises(ConfigError, match=r"nowhere-at-all.*does not exist"):
        start(graph, Kafka(kafka.bootstrap))

    with pytest.raises(AssertionError, match="UNKNOWN_TOPIC"):
        end_offset_of_missing(kafka.bootstrap, f"{name}.out")


def end_offset_of_missing(bootstrap: str, topic: str) -> None:
    """Fails with the reason where the topic is not there."""
    producer = Producer({"bootstrap.servers": bootstrap})
    error = producer.list_topics(topic, timeout=10).topics[topic].error
    assert error is None, f"UNKNOWN_TOPIC {error}"


def test_a_recreated_topic_is_refused(setup: Setup) -> None:
    """Its offsets mean other messages now."""
    graph = ran(setup, b"1", b"2")
    delete(setup.bootstrap, setup.source)
    create(setup.bootstrap, setup.source)
    setup.send(b"3", b"4", b"5")

    text = refused(setup, graph, "was deleted and recreated")
    assert setup.source in text
    assert "reset" in text
    assert setup.world().values == [1, 2]


def test_a_topic_that_is_recreated_under_a_running_task_stops_it(setup: Setup) -> None:
    """The new one is shorter than the position, which the reader finds out of range: no message of it is delivered."""
    running = setup.start(setup.graph(same))
    try:
        setup.send(b"1", b"2")
        running.wait_idle(timeout_s=30)
        delete(setup.bootstrap, setup.source)
        create(setup.bootstrap, setup.source)
        setup.send(b"3")
        found = until(lambda: running.status().stopped, "the task stops")
        assert "recreated" in found[0].stopped
    finally:
        running.stop()
    assert setup.world().values == [1, 2]


def test_a_topic_that_was_trimmed_below_the_position_is_refused_with_the_lost_range(setup: Setup) -> None:
    """[2, 4) was never delivered and cannot be any more."""
    graph = ran(setup, b"0", b"1")
    setup.send(b"2", b"3", b"4")
    trim(setup.bootstrap, setup.source, 4)

    text = refused(setup, graph, r"offsets \[2, 4\) of .* are gone")
    assert f"{setup.source}/0" in text
    assert "accept-loss" in text
    assert setup.world().values == [0, 1]


def test_a_source_of_transactions_that_is_trimmed_to_its_end_goes_on(setup: Setup) -> None:
    """Delivered and idle: the position has moved over the last marker, so that nothing is missing (P1)."""
    graph = setup.graph(same)
    with setup.start(graph, policy=CommitPolicy(idle_seconds=1)) as running:
        setup.send(b"0", b"1", transaction=True)
        setup.send(b"2", transaction=True)
        running.wait_idle(timeout_s=30)
        end = end_offset(setup.bootstrap, setup.source)
        assert end == 5
        until(lambda: backing(setup.bootstrap, setup.backing)[0][-1]["positions"][0]["offset"] == end, "idle commit")
    trim(setup.bootstrap, setup.source, end)

    with setup.start(graph) as running:
        setup.send(b"3")
        running.wait_idle(timeout_s=30)
    world = setup.world()
    assert world.values == [0, 1, 2, 3]
    assert world.totals == {"deliveries": 4, "outputs": 4, "errors": 0, "nils": 0}


@pytest.mark.slow
def test_group_offsets_that_another_program_reset_are_refused_after_a_second_look(setup: Setup) -> None:
    """The record decides; offsets that contradict it are asked again for 15 s, because a coordinator may lag."""
    graph = ran(setup, b"0", b"1")
    from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": setup.bootstrap})
    wanted = ConsumerGroupTopicPartitions(f"{setup.name}.work", [TopicPartition(setup.source, 0, 0)])
    for future in admin.alter_consumer_group_offsets([wanted]).values():
        future.result()

    began = time.monotonic()
    text = refused(setup, graph, "group offset 0 of .* is not the record's 2")
    assert time.monotonic() - began >= 14
    assert "set the group's offsets back" in text


# ---- clusters that are not there


@pytest.fixture
def silence() -> Iterator[int]:
    """A port that no program listens on."""
    with closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))  # bound, and never listening: connections are refused
        yield taken.getsockname()[1]


@pytest.fixture
def stranger() -> Iterator[int]:
    """A port where something answers that is not Kafka."""
    with closing(socket.socket()) as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        over = threading.Event()

        def answer() -> None:
            while not over.is_set():
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(1024)
                    connection.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        over.set()
        server.shutdown(socket.SHUT_RDWR)
        thread.join(5)


def small() -> Graph:
    """Any graph."""
    return Graph("any", Processor(same, inputs="a", outputs="b"), defaults=Topic(value=Json()))


def test_a_cluster_that_is_not_there_is_waited_for_visibly_and_then_named(
    silence: int, caplog: pytest.LogCaptureFixture
) -> None:
    """A message while it waits, then an error with address, time and cause."""
    began = time.monotonic()
    with (
        caplog.at_level(logging.WARNING),
        pytest.raises(BrokerError, match=rf"127\.0\.0\.1:{silence} did not answer within 3 s.*nothing listens there"),
    ):
        start(small(), Kafka(f"127.0.0.1:{silence}", start_timeout_s=3))

    assert 2.5 < time.monotonic() - began < 10
    [told] = [r for r in caplog.records if r.name == "cues_kafka.broker"]
    assert f"127.0.0.1:{silence}" in told.getMessage()
    assert "nothing listens there" in told.getMessage()


def test_a_wrong_port_that_speaks_something_else_is_named_as_such(stranger: int) -> None:
    """Not a bare time-out."""
    with pytest.raises(BrokerError, match=r"not a Kafka broker|something other than Kafka") as failed:
        start(small(), Kafka(f"127.0.0.1:{stranger}", start_timeout_s=3))
    assert "wrong port" in str(failed.value)


def test_a_cluster_that_comes_late_is_waited_for(kafka: KafkaFixture) -> None:
    """A worker that is started beside its broker must not fail for a second or two."""
    host, _, port = kafka.bootstrap.partition(",")[0].rpartition(":")
    setup = Setup("", kafka.unique("g"))
    with closing(socket.socket()) as door:
        door.bind(("127.0.0.1", 0))
        late = door.getsockname()[1]
        graph = setup.graph(same)
        failed: list[BaseException] = []

        def begin() -> None:
            try:
                start(graph, Kafka(f"127.0.0.1:{late}", start_timeout_s=20)).stop()
            except BaseException as error:
                failed.append(error)

        worker = threading.Thread(target=begin)
        worker.start()
        worker.join(1.5)
        assert worker.is_alive(), failed
        door.listen()
        threading.Thread(target=forward_all, args=(door, (host, int(port))), daemon=True).start()
        worker.join(30)
        assert not worker.is_alive()
        assert not failed, failed
        door.shutdown(socket.SHUT_RDWR)


def forward_all(door: socket.socket, target: tuple[str, int]) -> None:
    """Copy bytes between every connection that comes and the broker, whose metadata names it by itself afterwards."""

    def copy(source: socket.socket, sink: socket.socket) -> None:
        try:
            while data := source.recv(65_536):
                sink.sendall(data)
        except OSError:
            pass
        finally:
            for side in (source, sink):
                side.close()

    while True:
        try:
            connection, _ = door.accept()
        except OSError:
            return
        other = socket.create_connection(target)
        threading.Thread(target=copy, args=(connection, other), daemon=True).start()
        threading.Thread(target=copy, args=(other, connection), daemon=True).start()


# ---- another program writes


def other_record(setup: Setup, kind: type[Any], **fields: Any) -> bytes:
    """A record that another incarnation of the same application would write next."""
    from cues_kafka.records.bytes import encode_record

    newest = backing(setup.bootstrap, setup.backing)[0][-1]
    positions = tuple(Position(**p) for p in newest["positions"])
    values: dict[str, Any] = {
        "sequence": newest["sequence"] + 1,
        "step": newest["step"],
        "positions": positions,
        "totals": Totals(**newest["totals"]),
        "born": newest["born"],
        "writer": Writer(setup.transactional_id, "native", "the-other-worker", "another incarnation"),
        "fingerprint": newest["fingerprint"],
    }
    return encode_record(kind(**values | fields))


def claim(setup: Setup) -> None:
    """What another worker does that takes this task: init its id, write a snapshot."""
    producer = Producer({"bootstrap.servers": setup.bootstrap, "transactional.id": setup.transactional_id})
    producer.init_transactions(30)
    newest = backing(setup.bootstrap, setup.backing)[0][-1]
    ends = tuple(Position(**p | {"offset": p["offset"] + 1}) for p in newest["positions"])
    producer.begin_transaction()
    producer.produce(setup.backing, other_record(setup, Snapshot, ends=ends, steps=1), b"t", 0)
    assert producer.flush(30) == 0
    producer.commit_transaction(30)


def test_a_second_worker_that_claims_the_same_task_is_named(setup: Setup) -> None:
    """R7: fenced twice within a minute by a program that is no successor: stop with the name, do not fight."""
    running = setup.start(setup.graph(same))
    try:
        setup.send(b"0")
        running.wait_idle(timeout_s=30)
        claim(setup)
        setup.send(b"1")
        until(lambda: backing(setup.bootstrap, setup.backing)[0][-1]["writer"]["name"] != "the-other-worker", "it won")
        running.wait_idle(timeout_s=30)
        assert not running.status().stopped
        claim(setup)
        setup.send(b"2")
        with pytest.raises(TaskStopped, match="fenced twice by 'the-other-worker'") as stopped:
            running.wait_idle(timeout_s=30)
        assert "stop one of the two" in str(stopped.value)
    finally:
        running.stop()


def test_a_record_of_another_application_is_refused(setup: Setup) -> None:
    """I14: the writer's id tells whose it is."""
    graph = ran(setup, b"0")
    stranger = Writer("another.app.0", "native", "x", "y")
    produce(setup.bootstrap, setup.backing, [Record(other_record(setup, Start, writer=stranger), b"t")])

    text = refused(setup, graph, "was written by 'another.app.0'")
    assert "its own graph name" in text


@pytest.mark.parametrize("value", [b"not a record", None])
def test_bytes_that_are_no_record_are_refused_with_their_place(setup: Setup, value: bytes | None) -> None:
    """Another program wrote into the backing topic."""
    graph = ran(setup, b"0")
    place = end_offset(setup.bootstrap, setup.backing)
    produce(setup.bootstrap, setup.backing, [Record(value, b"t")])

    refused(setup, graph, f"offset {place} of {setup.backing}/0")


def test_a_foreign_write_into_the_backing_partition_is_noticed_by_the_next_commit(setup: Setup) -> None:
    """P6a: the record lands elsewhere than expected: one discard, then it goes on, nothing doubled."""
    with setup.start(setup.graph(same)) as running:
        setup.send(b"0")
        running.wait_idle(timeout_s=30)
        produce(setup.bootstrap, setup.backing, [Record(b"x", b"a foreign key")])
        setup.send(b"1")
        running.wait_idle(timeout_s=30)
    world = setup.world()
    assert world.values == [0, 1]
    assert world.totals == {"deliveries": 2, "outputs": 2, "errors": 0, "nils": 0}


@pytest.mark.full
def test_a_hanging_transaction_on_the_backing_partition_is_refused_with_the_command_that_finds_it(
    setup: Setup,
) -> None:
    """R4, R7: what it hides cannot be known: the task stops after the stated rounds, and goes on once it is ended."""
    graph = ran(setup, b"0")
    settings = {"bootstrap.servers": setup.bootstrap, "transactional.id": setup.name, "transaction.timeout.ms": 600_000}
    hanging = Producer(settings)
    hanging.init_transactions(30)
    hanging.begin_transaction()
    hanging.produce(setup.backing, b"x", b"t", 0)
    assert hanging.flush(30) == 0
    before = end_offset(setup.bootstrap, setup.backing)

    running: Running = setup.start(graph, timeout_s=None)
    try:
        [task] = until(lambda: running.status().stopped, "the task stops", 60)
        assert "5 attempts failed" in task.stopped
        assert "kafka-transactions --bootstrap-server" in task.stopped
        assert f"--topic {setup.backing} --partition 0" in task.stopped
        assert end_offset(setup.bootstrap, setup.backing) == before
        hanging.abort_transaction(30)
        setup.send(b"1")
        until(lambda: [t.totals.deliveries for t in running.status().tasks] == [2], "it goes on by itself")
    finally:
        running.stop()
    assert setup.world().values == [0, 1]


def test_a_worker_whose_name_another_one_takes_says_so(kafka: KafkaFixture) -> None:
    """Two with one `instance`: the former is fenced, and the cause is not hidden behind its leaving."""
    name = kafka.unique("g")
    graph = Graph(name, Source(f"{name}.in"), Processor(same, inputs=f"{name}.in", outputs=f"{name}.out"))
    first = start(graph, Kafka(kafka.bootstrap), instance="blue")
    second = start(graph, Kafka(kafka.bootstrap), instance="blue")
    try:
        with pytest.raises(TaskStopped, match="another process runs with the same instance name"):
            first.wait()
    finally:
        second.stop()
        first.abandon()

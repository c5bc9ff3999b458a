"""E1: messages to streams of RabbitMQ, exactly once; kills and freezes of both sides."""

from __future__ import annotations

import multiprocessing
import os
import secrets
import signal
from collections.abc import Callable, Iterable
from contextlib import closing
from multiprocessing.connection import Connection
from typing import Any
from unittest.mock import patch

import pytest

from cues_kafka import (
    CommitPolicy,
    Graph,
    Message,
    OutputError,
    Processor,
    RabbitMq,
    Raw,
    RecoveryError,
    Sink,
    Source,
    Topic,
)
from cues_kafka.bridges.rabbitmq.stream_client import StreamConnection
from cues_kafka.bridges.rabbitmq.stream_log import REMEMBER, StreamItem, StreamTransactions
from cues_kafka.bridges.rabbitmq.stream_target import KEY_HEADER, RabbitMqStreamOut
from cues_kafka.bridges.rabbitmq.stream_wire import data_section, entry, message
from cues_kafka.targets import TargetMoved, TaskName
from cues_kafka.testing.targets import TargetContract
from cues_kafka.testing.tester import Crash, Tester
from tests.fault.support import until
from tests.servers.fixtures import RabbitMqQueues
from tests.servers.rabbitmq_world import Shop, bodies_of, new_stream, out, read_all

pytestmark = pytest.mark.bridge

WAIT_S = 60.0
MESSAGES = 12


@pytest.fixture
def stream(rabbitmq: RabbitMqQueues) -> str:
    """A stream of this test."""
    return new_stream(rabbitmq)


class TestContract(TargetContract):
    """The contract of targets."""

    most_lines = 12

    @pytest.fixture
    def target(self, rabbitmq: RabbitMqQueues, stream: str) -> RabbitMqStreamOut:
        self.rabbitmq = rabbitmq
        return out(rabbitmq, stream, timeout_s=3.0)

    def write(self, into: Any, number: int) -> None:
        into.publish(str(number))

    def read(self, target: Any) -> Iterable[int]:
        return [int(body) for _, body in read_all(self.rabbitmq, target.name)]


def owned(target: RabbitMqStreamOut, task: str = "g.p") -> closing[StreamTransactions]:
    """The transactions of a task, as one of its owners opens them."""
    graph, _, processor = task.partition(".")
    return closing(target.home.open(TaskName(graph, processor, 0)))


def commit(owner: StreamTransactions, kept: bytes, over: bytes | None, stream: str, *bodies: bytes) -> None:
    """One attempt."""
    owner.begin()
    for body in bodies:
        owner.write(StreamItem(stream, message(body, "", "", {})))
    owner.commit(kept, over)


def test_what_a_function_publishes_comes_as_it_was(rabbitmq: RabbitMqQueues, stream: str) -> None:
    """Bytes, texts, JSON, properties, and a body of the greatest size; read by AMQP 0-9-1."""
    target, items = out(rabbitmq, stream, content_type="text/plain"), list[StreamItem]()

    def write(item: StreamItem) -> None:
        items.append(item)

    into = target.value(write)
    into.publish("é", message_id="m-1", headers={"plain": "x" * 300, "bytes": b"\xff\x00"})
    into.publish(bytes(range(256)))
    into.publish({"json": [1, None, "é"]}, headers={f"h{n}": "v" for n in range(200)})
    into.publish(b"x" * 1_000_000)
    with pytest.raises(OutputError, match=r"1,000,001 bytes.*1,000,000 are allowed"):
        into.publish(b"x" * 1_000_001)
    with pytest.raises(OutputError, match="not a text or bytes"):
        into.publish(b"", headers={"n": 1})  # type: ignore[dict-item]
    with owned(target) as owner:
        owner.ask()
        owner.begin()
        for item in items:
            owner.write(item)
        owner.commit(b"kept\x00\n", None)
        assert owner.ask() == b"kept\x00\n"

    found = read_all(rabbitmq, stream)
    assert [body for _, body in found] == [
        "é".encode(),
        bytes(range(256)),
        b'{"json":[1,null,"\\u00e9"]}',
        b"x" * 10**6,
    ]
    first, _, third, _ = (properties for properties, _ in found)
    assert (first.message_id, first.content_type) == ("m-1", "text/plain")
    assert first.headers["plain"] == "x" * 300
    assert {f"h{n}" for n in range(200)} <= set(third.headers)


def test_a_sink_carries_key_and_headers(rabbitmq: RabbitMqQueues, stream: str) -> None:
    """The value has the bytes of Kafka; a key that is text is the property cues-key."""
    graph = Graph(
        rabbitmq.name,
        Source("paid"),
        Sink("out", inputs="paid", into=out(rabbitmq, stream, headers=["tenant"])),
        defaults=Topic(value=Raw(), partitions=1),
    )
    tester = Tester(graph)
    tester.send("paid", Message(b"v", key="k", headers=[("tenant", "acme"), ("other", "x")]))
    tester.run()
    tester.stop()

    [(properties, body)] = read_all(rabbitmq, stream)
    assert body == b"v"
    assert {name: one for name, one in properties.headers.items() if name != "x-stream-offset"} == {
        KEY_HEADER: "k",
        "tenant": "acme",
    }


def test_an_attempt_larger_than_frames_is_one(rabbitmq: RabbitMqQueues, stream: str) -> None:
    """Its parts are read together; those of another process, which were not decided, are not."""
    target = out(rabbitmq, stream)
    bodies = [b"%d-" % n + b"x" * 700_000 for n in range(5)]
    with owned(target) as former, owned(target) as owner:
        former.ask()
        owner.ask()
        commit(owner, b"k" * 3_000_000, None, stream, *bodies)
        with pytest.raises(TargetMoved):
            commit(former, b"f" * 3_000_000, None, stream, b"void" * 200_000)
    with owned(target) as owner:
        assert owner.ask() == b"k" * 3_000_000
        commit(owner, b"next", b"k" * 3_000_000, stream, b"last")

    assert bodies_of(rabbitmq, stream) == [*bodies, b"last"]


def test_a_log_is_read_from_its_newest_entries(rabbitmq: RabbitMqQueues, stream: str) -> None:
    """Behind some entries the place to read from is stored, so that a start reads few of them."""
    target, kept = out(rabbitmq, stream), None
    with owned(target) as owner:
        owner.ask()
        for number in range(2 * REMEMBER + 3):
            commit(owner, b"%d" % number, kept, stream, b"%d" % number)
            kept = b"%d" % number
    with (
        owned(target) as owner,
        patch.object(StreamConnection, "next", autospec=True, side_effect=StreamConnection.next) as read,
    ):
        assert owner.ask() == kept
        assert read.call_count <= REMEMBER
    assert bodies_of(rabbitmq, stream) == [b"%d" % n for n in range(2 * REMEMBER + 3)]


# Kills of the broker


def has(rabbitmq: RabbitMqQueues, stream: str) -> bool:
    """Whether the broker knows a stream and its log again, some seconds behind a restart."""
    with owned(out(rabbitmq, stream), f"{rabbitmq.name}.tell") as owner:
        try:
            owner.ask()
            owner.write(StreamItem(stream, b""))
        except (OSError, RecoveryError):
            return False
    return True


def killed_at(moment: str, rabbitmq: RabbitMqQueues, killed: list[str], turn: int) -> Callable[..., int]:
    """Kills the broker once, at a moment of the commit of this number."""
    publish, commits = StreamConnection.publish, 0

    def publishes(self: StreamConnection, publisher: int, entries: Iterable[bytes]) -> int:
        nonlocal commits
        some = list(entries)
        commits += publisher >= 2
        log = moment == "before the entry" and publisher == 0 and commits == turn - 1 and len(some[0]) > 400
        if killed or not (log or (publisher >= 2 and commits == turn and moment != "before the entry")):
            return publish(self, publisher, some)
        killed.append(moment)
        if moment == "in the middle":
            self.confirmed(publisher, publish(self, publisher, some[: len(some) // 2]))
        if moment == "behind the batch":
            self.confirmed(publisher, publish(self, publisher, some))
        rabbitmq.server.kill()
        rabbitmq.server.start()
        until(lambda: has(rabbitmq, f"{rabbitmq.name}-stream"), "the streams are back")
        raise ConnectionError("the test has killed the broker")

    return publishes


@pytest.mark.timeout(400)
@pytest.mark.parametrize("moment", ["before the entry", "before the batch", "in the middle", "behind the batch"])
def test_a_broker_that_is_killed_has_each_message_once(moment: str, rabbitmq: RabbitMqQueues, stream: str) -> None:
    """In order. It is started again, and the task goes on by itself; the function never says the same twice."""

    def tell(number: int, out: Any) -> str:
        said = f"{number}-{secrets.token_hex(4)}"
        out.publish(said)
        return said

    killed: list[str] = []
    graph = Graph(
        rabbitmq.name,
        Source("numbers"),
        Processor(tell, inputs="numbers", outputs="told", effects={"out": out(rabbitmq, stream)}),
        defaults=Topic(partitions=1),
    )
    tester = Tester(graph, policy=CommitPolicy(max_messages=4))
    for number in range(MESSAGES):
        tester.send("numbers", number)
    with patch.object(StreamConnection, "publish", killed_at(moment, rabbitmq, killed, 2)):
        tester.run()
    tester.stop()

    told = tester.values("told")
    assert killed == [moment]
    assert [int(one.partition("-")[0]) for one in told] == list(range(MESSAGES))
    assert bodies_of(rabbitmq, stream) == [one.encode() for one in told]


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("effect", ["CommitTarget", "Produce", "Commit"])
def test_a_process_that_is_killed_repeats_nothing_of_a_function_that_varies(
    moment: Any, effect: str, rabbitmq: RabbitMqQueues, stream: str
) -> None:
    """Each call gives something else. What the stream has is what Kafka has."""

    def tell(number: int, out: Any) -> str:
        said = f"{number}-{secrets.token_hex(4)}"
        out.publish(said)
        return said

    graph = Graph(
        rabbitmq.name,
        Source("numbers"),
        Processor(tell, inputs="numbers", outputs="told", effects={"out": out(rabbitmq, stream)}),
        defaults=Topic(partitions=1),
    )
    tester = Tester(graph, policy=CommitPolicy(max_messages=4))
    for number in range(MESSAGES):
        tester.send("numbers", number)
    tester.run(crash=Crash(moment, effect, 2))
    assert tester.crashed
    tester.restart().run()
    tester.stop()

    told = tester.values("told")
    assert [int(one.partition("-")[0]) for one in told] == list(range(MESSAGES))
    assert bodies_of(rabbitmq, stream) == [one.encode() for one in told]


# Former owners


def owner_that_freezes(where: tuple[str, int, str, str], moment: str, said: Connection) -> None:
    """A process that stops in its commit: before its entry, or with half of its messages published."""
    publish, (url, port, name, stream) = StreamConnection.publish, where

    def publishes(self: StreamConnection, publisher: int, entries: Iterable[bytes]) -> int:
        some = list(entries)
        if publisher < 2:
            return publish(self, publisher, some)
        half = publish(self, publisher, some[:5])
        said.send("open")
        said.recv()
        return max(half, publish(self, publisher, some[5:]))

    with owned(RabbitMq(url).to_stream(stream, port=port, logs=name)) as owner:
        owner.ask()
        owner.fence(b"one", None)
        if moment == "before its entry":
            said.send("open")
            said.recv()
        with patch.object(StreamConnection, "publish", publishes if moment == "in the middle" else publish):
            results = []
            for kept, over in ((b"two", b"one"), (b"four", b"two")):
                try:
                    commit(owner, kept, over, stream, *(b"%d" % n for n in range(10)))
                except Exception as error:  # whatever it is, the test compares it
                    results.append(type(error).__name__)
                else:
                    results.append("committed")
        said.send(results)


@pytest.mark.parametrize("moment", ["before its entry", "in the middle"])
def test_an_owner_that_was_frozen_adds_nothing(moment: str, rabbitmq: RabbitMqQueues, stream: str) -> None:
    """RabbitMQ ends no publisher of the same name. What the frozen one still publishes has numbers that are there."""
    ours, theirs = multiprocessing.Pipe()
    where = (rabbitmq.url, rabbitmq.server.stream_port, rabbitmq.name, stream)
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=owner_that_freezes, args=(where, moment, theirs), daemon=True)
    process.start()
    try:
        assert ours.poll(WAIT_S)
        assert ours.recv() == "open"
        assert process.pid
        os.kill(process.pid, signal.SIGSTOP)
        decided = moment == "in the middle"
        with owned(out(rabbitmq, stream)) as heir:
            kept = heir.ask()
            assert kept == (b"two" if decided else b"one")
            heir.fence(b"mine", kept)
            os.kill(process.pid, signal.SIGCONT)
            ours.send("go on")
            commit(heir, b"three", b"mine", stream, *(b"heir-%d" % n for n in range(10)))
            assert ours.poll(WAIT_S)
            assert ours.recv() == (["committed", "TargetMoved"] if decided else ["TargetMoved", "TargetMoved"])
    finally:
        process.kill()
        process.join()
    first = [b"%d" % n for n in range(10)] if decided else []
    assert bodies_of(rabbitmq, stream) == first + [b"heir-%d" % n for n in range(10)]


# What a stream forgets


def test_a_stream_that_has_forgotten_a_task_is_noticed(rabbitmq: RabbitMqQueues) -> None:
    """RabbitMQ keeps the numbers of the newest 255 publishers, and drops the others with a new segment."""
    stream = f"{rabbitmq.name}-small"
    target = out(rabbitmq, stream)
    with Shop(rabbitmq.server) as shop:
        shop.declare(stream, "stream", **{"x-stream-max-segment-size-bytes": 1_000_000})
    former = target.home.open(TaskName("g", "p", 0))
    former.ask()
    commit(former, b"one", None, stream, b"1")
    dies = patch.object(StreamConnection, "confirmed", side_effect=ConnectionError("it dies behind its entry"))
    with dies, pytest.raises(ConnectionError):
        commit(former, b"two", b"one", stream, b"2")
    login = RabbitMq(rabbitmq.url).stream_login(rabbitmq.server.stream_port)
    for turn in range(2):
        with closing(StreamConnection(login, "others")) as others:
            for number in range(130):
                others.declare(number, f"other-{turn}-{number}", stream)
                others.confirmed(number, others.publish(number, [entry(1, data_section(b"x"))]))
            for again in range(2, 6):
                others.confirmed(0, others.publish(0, [entry(again, data_section(b"x" * 400_000))]))
    with owned(target) as heir, pytest.raises(RecoveryError, match="more than 255 publishers"):
        heir.ask()
    assert bodies_of(rabbitmq, stream).count(b"2") == 1


def test_a_stream_that_was_declared_again_is_gone_on_with_after_a_stop(rabbitmq: RabbitMqQueues, stream: str) -> None:
    """The former owner noted that all was published, so nothing is published again."""
    target = out(rabbitmq, stream)
    for kept, over in ((b"one", None), (b"two", b"one")):
        with owned(target) as owner:
            assert owner.ask() == over
            commit(owner, kept, over, stream, kept)
    with Shop(rabbitmq.server) as shop:
        shop.channel.queue_delete(stream)
        shop.declare(stream, "stream")
    with owned(target) as owner:
        assert owner.ask() == b"two"
        commit(owner, b"three", b"two", stream, b"three")
    assert bodies_of(rabbitmq, stream) == [b"three"]


# What a user meets


def test_missing_stream_and_wrong_login_name_the_remedy(rabbitmq: RabbitMqQueues) -> None:
    """And a foreign message in a log is not taken for an entry."""
    with owned(out(rabbitmq, f"{rabbitmq.name}-none")) as owner:
        owner.ask()
        owner.begin()
        with pytest.raises(RecoveryError, match="does not exist") as missing:
            owner.write(StreamItem(f"{rabbitmq.name}-none", b""))
        assert "declare it" in missing.value.remedy
    wrong = rabbitmq.url.replace(rabbitmq.server.password, "wrong")
    refused = owned(RabbitMq(wrong).to_stream("any", port=rabbitmq.server.stream_port))
    with refused as owner, pytest.raises(RecoveryError, match="user or the password"):
        owner.ask()
    with Shop(rabbitmq.server) as shop:
        shop.publish(f"{rabbitmq.name}.log.g.p.0", b"foreign")
    with owned(out(rabbitmq, "any")) as owner:
        assert owner.ask() is None
        with pytest.raises(RecoveryError, match="no task has written"):
            owner.fence(b"one", None)

"""E1: messages by AMQP 1.0, exactly once, on Artemis; kills and freezes of both sides."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterable
from contextlib import closing
from multiprocessing.connection import Connection
from typing import Any
from unittest.mock import patch

import pytest

from cues_kafka import Amqp, CommitPolicy, Graph, Processor, RetriableError, Sink, Source, Topic
from cues_kafka.bridges.amqp.client import AmqpConnection
from cues_kafka.bridges.amqp.encoding import AmqpContents
from cues_kafka.bridges.amqp.messages import message_of
from cues_kafka.bridges.marker import MarkerTransactions
from cues_kafka.graph.effects import Effect
from cues_kafka.targets import TaskName
from cues_kafka.testing.targets import TargetContract
from cues_kafka.testing.tester import Tester
from tests.servers.amqp_world import AmqpShop, amqp_url
from tests.servers.bridge_world import deliver_over_a_death
from tests.servers.fixtures import JmsQueues

QUIET_S = 0.3
"""A queue is empty if nothing comes for so long."""

WAIT_S = 30.0
MESSAGES = 12
CLAIMS = 2
"""Commits without messages, with which the two tasks begin."""


def amqp(artemis: JmsQueues, **given: Any) -> Amqp:
    """A declaration with short times."""
    return Amqp(amqp_url(artemis), **{"timeout_s": 3.0, **given})


def taken(artemis: JmsQueues, queue: str, least: int = 0) -> list[AmqpContents]:
    """Take all messages of a queue, for good; it waits for `least` of them at first."""
    with AmqpShop(amqp_url(artemis)) as shop:
        return shop.takes(queue, least, quiet_s=QUIET_S)


def test_messages_come_once_over_a_death_behind_the_brokers_commit(artemis: JmsQueues) -> None:
    """The next owner reads the marker, and calls nothing again."""
    graph = Graph(
        artemis.name,
        Source("orders"),
        Sink("out", inputs="orders", into=amqp(artemis).to_queue(artemis.name, headers={"priority": 7, "n": 1})),
    )
    deliver_over_a_death(graph, 9)
    found = taken(artemis, artemis.name, 9)
    assert [one.body for one in found] == [f'{{"id": {number}}}' for number in range(9)]
    assert {(one.header[0], one.header[1], one.application["n"]) for one in found} == {(True, 7, 1)}


@pytest.mark.bridge
class TestContract(TargetContract):
    """The contract of targets."""

    most_lines = 12

    @pytest.fixture
    def target(self, artemis: JmsQueues) -> Effect:
        self.artemis, self.found = artemis, list[int]()
        return amqp(artemis, timeout_s=1.5).to_queue(artemis.name)

    def write(self, into: Any, number: int) -> None:
        into.send(str(number))

    def read(self, target: Any) -> Iterable[int]:
        self.found += (int(one.body) for one in taken(self.artemis, target.name))
        return self.found


@pytest.mark.bridge
def test_broker_that_gives_a_queue_to_two_consumers_is_refused(artemis: JmsQueues) -> None:
    """Artemis does so where broker.xml says nothing about these names."""
    asked = {markers: list(amqp(artemis).target(markers=markers).inspect()) for markers in ("cues", artemis.name)}

    assert asked["cues"] == []
    assert [f'match="{artemis.name}.#"' in why for why in asked[artemis.name]] == [True]


@pytest.mark.bridge
def test_what_a_function_sends_comes_as_it_was(artemis: JmsQueues) -> None:
    """Texts, bytes, headers of all kinds, and a message of two megabytes."""
    target, task = amqp(artemis), TaskName("g", artemis.name, 0)
    sent: list[tuple[Any, dict[str, Any]]] = [
        ("é\n\0", {"plain": "x", "odd:na\\me": "a\\b:c\r\nd", "\u4e2d": ""}),
        (bytes(range(256)), {"n": 7, "big": 2**63 - 1, "f": 0.5, "raw": b"\0\xff"}),
        ("", {}),
        (b"", {}),
        (b"x" * 2_000_000, {}),
        ({"json": [1, None, "é"]}, {"flag": True}),
    ]
    with closing(target.target().open(task)) as owner:
        owner.ask()
        owner.begin()
        for body, headers in sent:
            owner.write(message_of("queue", artemis.name, body, headers))
        owner.commit(b"kept\x00\n", None)

    found = taken(artemis, artemis.name, len(sent))
    bodies = ["é\n\0", bytes(range(256)), "", b"", b"x" * 2_000_000, '{"json": [1, null, "é"]}']
    assert [one.body for one in found] == bodies
    assert [one.application for one in found] == [headers for _, headers in sent]
    with closing(target.target().open(task)) as owner:
        assert owner.ask() == b"kept\x00\n"


@pytest.mark.bridge
def test_more_queues_than_links_are_written_in_one_transaction(artemis: JmsQueues) -> None:
    """A function may name any number of them."""
    names = [f"{artemis.name}.{number}" for number in range(5)]
    with (
        patch("cues_kafka.bridges.amqp.client.MOST_LINKS", 3),
        closing(amqp(artemis).target().open(TaskName("g", artemis.name, 0))) as owner,
    ):
        owner.ask()
        for turn in range(2):
            owner.begin()
            for name in names:
                owner.write(message_of("queue", name, str(turn), {}))
            owner.commit(b"%d" % turn, None if turn == 0 else b"0")
    assert [[one.body for one in taken(artemis, name, 2)] for name in names] == [["0", "1"]] * 5


@pytest.mark.bridge
def test_owner_that_is_cut_off_in_its_transaction_leaves_the_marker(artemis: JmsQueues) -> None:
    """What it has sent and taken in the transaction is as before."""
    task = TaskName("g", artemis.name, 0)
    with closing(amqp(artemis).target().open(task)) as owner:
        owner.ask()
        owner.fence(b"one", None)
        with patch.object(AmqpConnection, "discharge", side_effect=ConnectionError("cut")):
            owner.begin()
            owner.write(message_of("queue", artemis.name, "void", {}))
            with pytest.raises(ConnectionError, match="cut"):
                owner.commit(b"two", b"one")
    for _ in range(12):
        with closing(heir_of(artemis)) as heir:
            assert heir.ask() == b"one"
            with patch.object(AmqpConnection, "discharge", side_effect=ConnectionError("cut")):
                heir.begin()
                with pytest.raises(ConnectionError, match="cut"):
                    heir.commit(b"two", b"one")
    assert taken(artemis, artemis.name) == []


def owner_that_freezes(url: str, name: str, said: Connection) -> None:
    """A process that has sent a message in a transaction, and is asked to commit it later."""
    owner = Amqp(url, timeout_s=3.0).target().open(TaskName("g", name, 0))
    owner.ask()
    owner.fence(b"one", None)
    owner.begin()
    owner.write(message_of("queue", name, "void", {}))
    said.send("open")
    said.recv()
    try:
        owner.commit(b"two", b"one")
    except Exception as error:  # whatever it is, it must be one
        said.send(type(error).__name__)
    else:
        said.send("committed")


@pytest.mark.bridge
def test_owner_that_was_frozen_in_its_transaction_commits_nothing(artemis: JmsQueues) -> None:
    """The broker misses it, and another process gets the marker. Then the frozen one wakes up."""
    ours, theirs = multiprocessing.Pipe()
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=owner_that_freezes, args=(amqp_url(artemis), artemis.name, theirs), daemon=True)
    process.start()
    try:
        assert ours.poll(WAIT_S * 2)
        assert ours.recv() == "open"
        assert process.pid
        os.kill(process.pid, signal.SIGSTOP)
        heir = heir_of(artemis)
        with closing(heir):
            assert heir.ask() == b"one"
            os.kill(process.pid, signal.SIGCONT)
            ours.send("commit")
            assert ours.poll(WAIT_S)
            assert ours.recv() != "committed"
            heir.begin()
            heir.write(message_of("queue", artemis.name, "right", {}))
            heir.commit(b"two", b"one")
            assert heir.ask() == b"two"
    finally:
        process.kill()
        process.join()
    assert [one.body for one in taken(artemis, artemis.name, 1)] == ["right"]


def heir_of(artemis: JmsQueues) -> MarkerTransactions:
    """The next owner, which has asked until the broker gave it the queue."""
    deadline = time.monotonic() + WAIT_S
    while True:
        heir = amqp(artemis).target().open(TaskName("g", artemis.name, 0))
        try:
            heir.ask()
        except OSError:
            heir.close()
            if time.monotonic() > deadline:
                raise
        else:
            return heir


def killed_in_the_commit(artemis: JmsQueues, killed: list[int], *, done: bool) -> Callable[..., None]:
    """Kills the broker at a discharge: before it came, or behind its answer, which is lost then."""
    discharge, seen = AmqpConnection.discharge, 0

    def discharges(connection: AmqpConnection, transaction: bytes) -> None:
        nonlocal seen
        seen += 1
        if seen != CLAIMS + 2:
            discharge(connection, transaction)
            return
        if done:
            discharge(connection, transaction)
        killed.append(seen)
        artemis.server.kill()
        artemis.server.start()
        raise ConnectionError("the test has killed the broker")

    return discharges


@pytest.mark.bridge
@pytest.mark.parametrize("moment", ["in a call", "before the commit", "behind the commit"])
def test_broker_that_is_killed_has_each_message_once(moment: str, artemis: JmsQueues) -> None:
    """It is started again, and the tasks go on by themselves."""

    def tell(number: int, out: Any) -> int:
        out.send(str(number))
        if moment == "in a call" and number == 5:
            killed.append(number)
            if len(killed) == 1:
                artemis.server.kill()
                artemis.server.start()
        return number

    killed: list[int] = []
    graph = Graph(
        artemis.name,
        Source("numbers"),
        Processor(tell, inputs="numbers", outputs="told", effects={"out": amqp(artemis).to_queue(artemis.name)}),
        defaults=Topic(partitions=2),
    )
    tester = Tester(graph, policy=CommitPolicy(max_messages=3))
    for number in range(MESSAGES):
        tester.send("numbers", number, key=str(number))
    fault = killed_in_the_commit(artemis, killed, done=moment == "behind the commit")
    with patch.object(AmqpConnection, "discharge", AmqpConnection.discharge if moment == "in a call" else fault):
        tester.run()
    tester.stop()

    assert killed
    assert sorted(int(one.body) for one in taken(artemis, artemis.name, MESSAGES)) == list(range(MESSAGES))
    assert sorted(tester.values("told")) == list(range(MESSAGES))


@pytest.mark.bridge
def test_broker_that_is_away_is_asked_again(artemis: JmsQueues) -> None:
    """A plan warns of it, and a task goes on when it is back."""
    target = amqp(artemis, timeout_s=1.0).target()
    with closing(target.open(TaskName("g", artemis.name, 0))) as owner:
        owner.ask()
        owner.fence(b"one", None)
    artemis.server.kill()
    with pytest.raises(RetriableError, match="does not answer"):
        list(target.inspect())
    artemis.server.start()
    with closing(heir_of(artemis)) as heir:
        assert heir.ask() == b"one"

"""E1: messages to JMS by STOMP, exactly once, on ActiveMQ Classic and Artemis; kills and freezes of both sides."""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
import time
from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from multiprocessing.connection import Connection
from typing import Any
from unittest.mock import patch

import pytest

from cues_kafka import CommitPolicy, Graph, Processor, RetriableError, Source, Stomp, Topic
from cues_kafka.bridges.marker import PROBE, MarkerTransactions
from cues_kafka.bridges.stomp import client
from cues_kafka.bridges.stomp.frames import Frame
from cues_kafka.bridges.stomp.marker import StompMarkers
from cues_kafka.bridges.stomp.messages import message_of
from cues_kafka.bridges.stomp.session import GUARD, StompSession
from cues_kafka.graph.effects import Effect
from cues_kafka.sinks import writes
from cues_kafka.targets import TaskName
from cues_kafka.testing.targets import TargetContract
from cues_kafka.testing.tester import Tester
from tests.servers.fixtures import JmsQueues

pytestmark = pytest.mark.bridge

QUIET_S = 0.3
"""A queue is empty if nothing comes for so long."""

WAIT_S = 30.0
MESSAGES = 12
CLAIMS = 2
"""Commits without messages, with which the two tasks begin."""


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each message is sent while the function is called, and none waits for the next one."""
    monkeypatch.setattr(writes, "EARLY", 1)
    monkeypatch.setattr(client, "TOGETHER_BYTES", 1)


@pytest.fixture(params=["activemq", "artemis"])
def jms(request: pytest.FixtureRequest) -> JmsQueues:
    """A name of this test on each broker."""
    found: JmsQueues = request.getfixturevalue(request.param)
    return found


def stomp(jms: JmsQueues, **given: Any) -> Stomp:
    """A declaration with short times."""
    return Stomp(jms.url, **{"heart_beat_s": 0.5, "timeout_s": 3.0, **given})


def taken(broker: Stomp, queue: str) -> list[Frame]:
    """Take all messages of a queue, for good."""
    with closing(StompSession(broker.login())) as session:
        session.subscribe(queue)
        found = []
        while (message := session.message(QUIET_S)) is not None:
            session.acknowledge(message)
            found.append(message)
        session.send("UNSUBSCRIBE", {"id": "marker"}, receipt=True)  # all before it is done, too
        return found


class TestContract(TargetContract):
    """The contract of targets."""

    most_lines = 12

    @pytest.fixture
    def target(self, jms: JmsQueues) -> Effect:
        self.found: list[int] = []
        return stomp(jms, timeout_s=1.5).to_queue(jms.name)

    def write(self, into: Any, number: int) -> None:
        into.send(str(number))

    def read(self, target: Any) -> Iterable[int]:
        self.found += (int(one.body) for one in taken(target.home.broker, target.name))
        return self.found


def test_broker_that_gives_a_queue_to_two_consumers_is_refused(jms: JmsQueues) -> None:
    """Artemis does so where broker.xml says nothing about these names. ActiveMQ Classic never does."""
    asked = {markers: list(stomp(jms).target(markers=markers).inspect()) for markers in ("cues", jms.name)}

    assert asked["cues"] == []
    assert [f'match="{jms.name}.#"' in why for why in asked[jms.name]] == [True] * (jms.server.kind == "artemis")


def test_what_a_function_sends_comes_as_it_was(jms: JmsQueues) -> None:
    """Texts, bytes, headers with every letter that STOMP escapes, and a message of two megabytes."""
    target, task = stomp(jms), TaskName("g", jms.name, 0)
    sent: list[tuple[Any, dict[str, Any]]] = [
        ("é\n\\:", {"plain": "x", "odd:na\\me": "a\\b:c\r\nd"}),
        (bytes(range(256)), {"n": 7}),
        ("", {}),
        (b"", {}),
        (b"x" * 2_000_000, {}),
        ({"json": [1, None, "é"]}, {"flag": True}),
    ]
    with closing(target.target().open(task)) as owner:
        owner.ask()
        owner.begin()
        for body, headers in sent:
            owner.write(message_of("queue", jms.name, body, headers))
        owner.commit(b"kept\x00\n", None)

    found = taken(target, jms.name)
    bodies = ["é\n\\:".encode(), bytes(range(256)), b"", b"", b"x" * 2_000_000, '{"json": [1, null, "é"]}'.encode()]
    assert [one.body for one in found] == bodies
    for one, (_, headers) in zip(found, sent, strict=True):
        assert {name: one.headers[name] for name in headers} == {
            name: str(value).lower() if value is True else str(value) for name, value in headers.items()
        }
    with closing(target.target().open(task)) as owner:
        assert owner.ask() == b"kept\x00\n"


def owner_that_freezes(url: str, name: str, said: Connection) -> None:
    """A process that has sent a message in a transaction, and is asked to commit it later."""
    broker = Stomp(url, heart_beat_s=0.5, timeout_s=3.0)
    owner = broker.target().open(TaskName("g", name, 0))
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


def test_owner_that_was_frozen_in_its_transaction_commits_nothing(jms: JmsQueues) -> None:
    """The broker misses its heart-beats, and another process gets the marker. Then the frozen one wakes up."""
    ours, theirs = multiprocessing.Pipe()
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=owner_that_freezes, args=(jms.url, jms.name, theirs), daemon=True)
    process.start()
    try:
        assert ours.poll(WAIT_S * 2)
        assert ours.recv() == "open"
        assert process.pid
        os.kill(process.pid, signal.SIGSTOP)
        heir = heir_of(jms)
        with closing(heir):
            assert heir.ask() == b"one"
            os.kill(process.pid, signal.SIGCONT)
            ours.send("commit")
            assert ours.poll(WAIT_S)
            assert ours.recv() != "committed"
            heir.begin()
            heir.write(message_of("queue", jms.name, "right", {}))
            heir.commit(b"two", b"one")
            assert heir.ask() == b"two"
    finally:
        process.kill()
        process.join()
    assert [one.body for one in taken(stomp(jms), jms.name)] == [b"right"]


def test_artemis_first_delivers_a_message_that_may_be_lost_and_then_the_marker(artemis: JmsQueues) -> None:
    """When a connection is lost, Artemis may keep the first message of it, until it is restarted."""
    for expected in (b"0", b"1", b"2"):
        seen: list[str] = []
        arrived = StompSession._arrived

        def arrives(session: StompSession, frame: Frame, arrived: Any = arrived, seen: list[str] = seen) -> None:
            seen.append(frame.headers.get(PROBE, "marker"))
            arrived(session, frame)

        with patch.object(StompSession, "_arrived", arrives):
            heir = heir_of(artemis)
            if expected == b"0":
                heir.fence(b"0", None)
            assert heir.ask() == expected
            heir.fence(b"%d" % (int(expected) + 1), expected)
            assert heir.ask() == b"%d" % (int(expected) + 1)
        assert seen[0] == GUARD
        assert seen.count("marker") >= 2
        session = heir._session
        assert isinstance(session, StompMarkers)
        session._session._connection._socket.shutdown(socket.SHUT_RDWR)  # without a goodbye


def heir_of(jms: JmsQueues) -> MarkerTransactions:
    """The next owner, which has asked until the broker gave it the queue."""
    deadline = time.monotonic() + WAIT_S
    while True:
        heir = stomp(jms).target().open(TaskName("g", jms.name, 0))
        try:
            heir.ask()
        except OSError:
            heir.close()
            if time.monotonic() > deadline:
                raise
        else:
            return heir


def killed_in_the_commit(jms: JmsQueues, killed: list[int], *, done: bool) -> Callable[..., None]:
    """Kills the broker at a COMMIT: before it came, or behind its answer, which is lost then."""
    send, seen = StompSession.send, 0

    def sends(session: StompSession, command: str, *given: Any, **named: Any) -> None:
        nonlocal seen
        seen += command == "COMMIT"
        if command != "COMMIT" or seen != CLAIMS + 2:
            send(session, command, *given, **named)
            return
        if done:
            send(session, command, *given, **named)
        killed.append(seen)
        jms.server.kill()
        jms.server.start()
        raise ConnectionError("the test has killed the broker")

    return sends


def acknowledging(jms: JmsQueues, moment: str) -> Callable[..., None]:
    """Takes a marker as ever; the owner ends behind it if that is the moment. In a transaction it is part of that."""
    acknowledge = StompSession.acknowledge

    def acknowledges(session: StompSession, *given: Any, **named: Any) -> None:
        acknowledge(session, *given, **named)
        if moment == "behind the acknowledgement" and not named:
            session.probe(f"{jms.name}.other")  # its receipt says that the broker has done all before it
            raise ConnectionError("the owner ends here")

    return acknowledges


@pytest.mark.parametrize("moment", ["before the commit", "behind the commit", "behind the acknowledgement"])
def test_marker_is_there_once_wherever_the_owner_ends_in_its_commit(moment: str, jms: JmsQueues) -> None:
    """Also if the broker has done all that was sent: Artemis takes what is acknowledged at once, in no transaction."""
    send, ended = StompSession.send, ConnectionError("the owner ends here")

    def sends(session: StompSession, command: str, *given: Any, **named: Any) -> None:
        if command == "COMMIT" and moment == "before the commit":
            session.probe(f"{jms.name}.other")  # its receipt says that the broker has done all before it
            raise ended
        send(session, command, *given, **named)
        if command == "COMMIT" and moment == "behind the commit":
            raise ended

    for over, number in ((b"one", b"two"), (b"two", b"three")):
        with closing(heir_of(jms)) as owner:
            if over == b"one":
                owner.fence(b"one", None)
            owner.begin()
            owner.write(message_of("queue", jms.name, number, {}))
            with (
                patch.object(StompSession, "send", sends),
                patch.object(StompSession, "acknowledge", acknowledging(jms, moment)),
                suppress(ConnectionError),
            ):
                owner.commit(number, over)
        with closing(heir_of(jms)) as heir:
            expected = over if moment == "before the commit" else number
            assert heir.ask() == expected
            assert heir.ask() == expected
            if expected == over:
                heir.fence(number, over)


@pytest.mark.parametrize(
    "moment", ["before the commit", "under way", "behind the commit", "behind the acknowledgement"]
)
def test_marker_is_there_once_wherever_the_owner_ends_while_its_commit_is_under_way(
    moment: str, jms: JmsQueues
) -> None:
    """Messages of the next transaction, which the owner has sent meanwhile, are taken back."""
    in_turn, wait_for, ended = StompSession.send_in_turn, StompSession.wait_for, ConnectionError("the owner ends here")

    def sends(session: StompSession, first: Frame, second: Frame) -> str:
        if moment != "before the commit":
            return in_turn(session, first, second)
        session.send(first.command, first.headers, first.body, receipt=True)
        raise ended

    def waits(session: StompSession, done: str) -> None:
        if moment == "under way":
            raise ended
        wait_for(session, done)
        if moment == "behind the commit":
            raise ended

    over = b"one"
    for number in (b"two", b"three", b"four"):
        with closing(heir_of(jms)) as owner:
            if number == b"two":
                owner.fence(b"one", None)
            owner.begin()
            owner.write(message_of("queue", jms.name, number, {}))
            with (
                patch.object(StompSession, "send_in_turn", sends),
                patch.object(StompSession, "wait_for", waits),
                patch.object(StompSession, "acknowledge", acknowledging(jms, moment)),
                suppress(ConnectionError),
            ):
                owner.start_commit(number, over)
                owner.begin()
                owner.write(message_of("queue", jms.name, b"void", {}))
                owner.finish_commit()
        with closing(heir_of(jms)) as heir:
            found = heir.ask()
            expected = {"before the commit": {over}, "under way": {over, number}}.get(moment, {number})
            assert found in expected
            assert heir.ask() == found
            if found == over:
                heir.begin()
                heir.write(message_of("queue", jms.name, number, {}))
                heir.commit(number, over)
        over = number
    assert [one.body for one in taken(stomp(jms), jms.name)] == [b"two", b"three", b"four"]


def a_tester_of(jms: JmsQueues, tell: Callable[..., Any], *, partitions: int, **settings: Any) -> Tester:
    """A processor that sends to a queue of the broker, three messages in a commit, and its messages."""
    effects = {"out": stomp(jms).to_queue(jms.name)}
    graph = Graph(
        jms.name,
        Source("numbers"),
        Processor(tell, inputs="numbers", effects=effects, **settings),
        defaults=Topic(partitions=partitions),
    )
    tester = Tester(graph, policy=CommitPolicy(max_messages=3))
    for number in range(MESSAGES):
        tester.send("numbers", number, key=str(number))
    return tester


@pytest.mark.parametrize("nth", [1, 3])
@pytest.mark.parametrize("moment", ["before it came", "under way", "behind it"])
def test_broker_that_is_killed_while_a_part_is_committed_has_each_message_once(
    moment: str, nth: int, jms: JmsQueues
) -> None:
    """The next part is called meanwhile. What is committed of the parts is published by the recovery."""
    in_turn, killed = StompSession.send_in_turn, list[int]()

    def sends(session: StompSession, first: Frame, second: Frame) -> str:
        killed.append(nth)
        if len(killed) != nth:
            return in_turn(session, first, second)
        done = "" if moment == "before it came" else in_turn(session, first, second)
        if moment == "behind it":
            session.wait_for(done)
        jms.server.kill()
        jms.server.start()
        return done

    def tell(number: int, out: Any) -> None:
        out.send(str(number))

    tester = a_tester_of(jms, tell, partitions=1)
    with patch.object(StompSession, "send_in_turn", sends):
        tester.run()
    tester.stop()

    assert len(killed) >= nth
    assert [int(one.body) for one in taken(stomp(jms), jms.name)] == list(range(MESSAGES))
    assert tester.totals("tell").deliveries == MESSAGES


@pytest.mark.parametrize("moment", ["in a call", "before the commit", "behind the commit"])
def test_broker_that_is_killed_has_each_message_once(moment: str, jms: JmsQueues) -> None:
    """It is started again, and the tasks go on by themselves."""

    def tell(number: int, out: Any) -> int:
        out.send(str(number))
        if moment == "in a call" and number == 5:
            killed.append(number)
            if len(killed) == 1:
                jms.server.kill()
                jms.server.start()
        return number

    killed: list[int] = []
    tester = a_tester_of(jms, tell, partitions=2, outputs="told")
    fault = killed_in_the_commit(jms, killed, done=moment == "behind the commit")
    with patch.object(StompSession, "send", StompSession.send if moment == "in a call" else fault):
        tester.run()
    tester.stop()

    assert killed
    assert sorted(int(one.body) for one in taken(stomp(jms), jms.name)) == list(range(MESSAGES))
    assert sorted(tester.values("told")) == list(range(MESSAGES))


def test_broker_that_is_away_is_asked_again(jms: JmsQueues) -> None:
    """A plan warns of it, and a task goes on when it is back."""
    target = stomp(jms, timeout_s=1.0).target()
    with closing(target.open(TaskName("g", jms.name, 0))) as owner:
        owner.ask()
        owner.fence(b"one", None)
    jms.server.kill()
    with pytest.raises(RetriableError, match="does not answer"):
        list(target.inspect())
    jms.server.start()
    with closing(heir_of(jms)) as heir:
        assert heir.ask() == b"one"

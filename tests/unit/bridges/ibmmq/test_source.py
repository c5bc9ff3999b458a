"""Queues of IBM MQ as the source of a feed, on a fake of IBM's client: each message once, whatever dies when."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from cues_kafka import Feed, Graph, IbmMq, Json, Memory, RetriableError, Topic, start
from cues_kafka.errors import RecoveryError
from tests.unit.bridges.ibmmq.fake import managed, needs_package
from tests.unit.bridges.ibmmq.manager import Manager
from tests.unit.bridges.ibmmq.world import QUEUE, URL, WAIT_S, Reader, World

pytestmark = needs_package


@pytest.fixture
def manager(monkeypatch: pytest.MonkeyPatch) -> Iterator[Manager]:
    """A queue manager with one queue; a reader asks it often."""
    with managed() as made:
        from cues_kafka.bridges.ibmmq import source

        monkeypatch.setattr(source, "WAIT_S", 0.01)
        made.define(QUEUE)
        yield made


def empty(manager: Manager, queue: str = QUEUE) -> bool:
    """Whether a queue becomes empty, units of work included."""
    with manager.news:
        return manager.news.wait_for(lambda: not manager.queues[queue], WAIT_S)


def dies(manager: Manager, _: Reader) -> None:
    """Its connection ends without a word."""
    manager.drop()


def leaves(_: Manager, reader: Reader) -> None:
    """It closes its connection in order: MQBACK, then MQDISC."""
    reader.source.close()


def restarts(manager: Manager, _: Reader) -> None:
    """The queue manager stops and starts."""
    manager.restart()


ENDS = [dies, leaves, restarts]


@pytest.mark.parametrize("end", ENDS)
def test_what_was_not_committed_in_kafka_comes_again(manager: Manager, end: Callable[[Manager, Reader], None]) -> None:
    """Before Kafka's commit: no message is lost, also where the end is orderly."""
    manager.put(QUEUE, b"1", b"2", b"3")
    first = Reader()
    assert first.take(2) == [b"1", b"2"]
    end(manager, first)
    assert manager.left(QUEUE) == 3
    second = Reader()
    assert second.take(3) == [b"1", b"2", b"3"]
    second.committed()
    assert empty(manager)
    second.source.close()
    first.source.close()


@pytest.mark.parametrize("end", ENDS)
def test_what_is_committed_in_kafka_and_not_in_ibm_mq_is_dropped(
    manager: Manager, end: Callable[[Manager, Reader], None]
) -> None:
    """Between Kafka's commit and that of the unit of work (B1): the ledger knows the redeliveries by their ids."""
    manager.put(QUEUE, b"1", b"2", b"3")
    first = Reader()
    assert first.take(2) == [b"1", b"2"]
    end(manager, first)
    assert manager.backouts(QUEUE)[:2] == [1, 1]
    second = Reader(place=first.at)
    manager.put(QUEUE, b"4")
    assert second.take(2) == [b"3", b"4"]
    second.committed()
    assert empty(manager)
    second.source.close()


@pytest.mark.parametrize("reason", [2003, 2009, 2161, 2162])
def test_unit_of_work_that_was_not_committed_comes_again_and_is_dropped(manager: Manager, reason: int) -> None:
    """MQCMIT fails, for example because the queue manager has backed the unit out."""
    manager.put(QUEUE, b"1", b"2")
    reader = Reader()
    assert reader.take(2) == [b"1", b"2"]
    manager.refusals["MQCMIT"] = [reason]
    reader.committed()
    with manager.news:
        assert manager.news.wait_for(lambda: not manager.refusals["MQCMIT"], WAIT_S)
    manager.put(QUEUE, b"3")
    found: list[bytes] = []
    while not found:
        with suppress(OSError):
            found = reader.take(1)
    assert found == [b"3"]
    reader.committed()
    assert empty(manager)
    reader.source.close()


def test_answer_of_a_commit_that_is_lost_changes_nothing(manager: Manager) -> None:
    """The unit of work is committed, and the connection is gone."""
    manager.put(QUEUE, b"1", b"2")
    manager.unanswered["MQCMIT"] = 1
    reader = Reader()
    assert reader.take(2) == [b"1", b"2"]
    reader.committed()
    assert empty(manager)
    again = Reader(place=reader.at)
    manager.put(QUEUE, b"3")
    assert again.take(1) == [b"3"]
    again.source.close()
    reader.source.close()


def test_unit_of_work_is_committed_when_all_of_it_is_in_kafka_and_not_before(manager: Manager) -> None:
    """A commit in IBM MQ covers all that was read on its connection (B2)."""
    manager.put(QUEUE, b"1", b"2", b"3")
    reader = Reader()
    assert reader.take(1) == [b"1"]
    reader.committed()
    with manager.news:
        assert not manager.news.wait_for(lambda: manager.commits, 0.1)
    assert reader.take(2) == [b"2", b"3"]
    reader.committed()
    assert empty(manager)
    assert manager.commits == 1
    reader.source.close()


def test_connection_reads_no_more_than_its_window(manager: Manager) -> None:
    """A unit of work has at most `prefetch` messages (B5), which must be at most MAXUMSGS."""
    manager.put(QUEUE, *(b"%d" % n for n in range(9)))
    manager.limit = 4
    reader = Reader(prefetch=4)
    got = reader.take(4)
    with manager.news:
        assert not manager.news.wait_for(lambda: sum(one.read_in is not None for one in manager.queues[QUEUE]) > 4, 0.1)
    reader.committed()
    got += reader.take(4)
    reader.committed()
    got += reader.take(1)
    reader.committed()
    assert got == [b"%d" % n for n in range(9)]
    assert empty(manager)
    assert manager.commits == 3
    reader.source.close()


def test_second_reader_is_refused_until_the_first_one_has_ended(manager: Manager) -> None:
    """Its messages would pass the ledger by."""
    manager.put(QUEUE, b"1")
    first, second = Reader(), Reader()
    assert first.take(1) == [b"1"]
    with pytest.raises(RetriableError, match="OBJECT_IN_USE") as refused:
        second.read(1)
    assert "DISPLAY QSTATUS" in (refused.value.remedy or "")
    first.source.close()
    assert second.take(1) == [b"1"]
    second.source.close()


@pytest.mark.parametrize(
    ("verb", "reason", "kind", "says"),
    [
        ("MQCONNX", 2059, OSError, "Q_MGR_NOT_AVAILABLE"),
        ("MQCONNX", 2538, OSError, "HOST_NOT_AVAILABLE"),
        ("MQCONNX", 2035, RecoveryError, r"\+connect"),
        ("MQOPEN", 2035, RecoveryError, r"\+get"),
        ("MQOPEN", 2085, RecoveryError, "define the queue"),
        ("MQGET", 2009, OSError, "CONNECTION_BROKEN"),
        ("MQGET", 2161, OSError, "Q_MGR_QUIESCING"),
        ("MQGET", 2016, RetriableError, r"GET\(ENABLED\)"),
        ("MQGET", 2024, RecoveryError, "MAXUMSGS"),
        ("MQGET", 2195, OSError, "UNEXPECTED_ERROR"),
    ],
)
def test_each_reason_code_is_retried_or_stops_the_task_with_its_remedy(
    manager: Manager, verb: str, reason: int, kind: type[Exception], says: str
) -> None:
    """`OSError` and `RetriableError` are asked again; `RecoveryError` stops. None of them loses a message."""
    manager.put(QUEUE, b"1")
    manager.refusals[verb] = [reason]
    reader = Reader()
    failed: Exception | None = None
    while failed is None:
        try:
            reader.read(1)
        except (OSError, RetriableError, RecoveryError) as error:
            failed = error
    assert isinstance(failed, kind)
    assert any(re.search(says, text) for text in (str(failed), getattr(failed, "remedy", "")))
    assert "geheim" not in str(failed)
    assert reader.take(1) == [b"1"]
    reader.source.close()


def test_messages_that_are_larger_than_the_buffer_are_read_with_more_room(
    manager: Manager, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MQRC_TRUNCATED_MSG_FAILED leaves the message in the queue; one that grew by its conversion goes back."""
    from cues_kafka.bridges.ibmmq import client

    monkeypatch.setattr(client, "ROOM", 16)
    manager.put(QUEUE, b"x" * 1000)
    manager.put(QUEUE, ("é" * 4000).encode("latin-1"), CodedCharSetId=819)
    reader = Reader()
    found: list[bytes] = []
    while len(found) < 2:
        with suppress(OSError):
            found += reader.read(1)
    assert found == [b"x" * 1000, ("é" * 4000).encode()]
    reader.source.close()


@pytest.mark.parametrize(
    ("fields", "body", "expected", "ccsid"),
    [
        ({"CodedCharSetId": 500}, "äß{1}".encode("cp500"), "äß{1}".encode(), "1208"),
        ({"CodedCharSetId": 819}, b"caf\xe9", "café".encode(), "1208"),
        ({"CodedCharSetId": 4711}, b"\x00\xff", b"\x00\xff", "4711"),
        ({"CodedCharSetId": 1208}, b"\xff\xfe", b"\xff\xfe", "1208"),
        ({"CodedCharSetId": 500, "Format": b"        "}, b"\x81", b"\x81", "500"),
    ],
    ids=["EBCDIC", "Latin-1", "an unknown set", "broken UTF-8", "bytes"],
)
def test_text_becomes_utf_8_and_what_cannot_comes_as_it_is(
    manager: Manager, fields: dict[str, Any], body: bytes, expected: bytes, ccsid: str
) -> None:
    """The header says in which character set it is. No message is lost by a failed conversion."""
    manager.put(QUEUE, body, **fields)
    reader = Reader()
    found: list[Any] = []
    while not found:
        found = [message for message, _ in reader.source.read(0, None, 1)]
    assert (bytes(found[0].value), dict(found[0].headers)["mq.ccsid"]) == (expected, ccsid)
    reader.source.close()


def test_segments_stop_the_task(manager: Manager) -> None:
    """A part of a message would be a message in Kafka."""
    manager.put(QUEUE, b"1")
    manager.put(QUEUE, b"half", MsgFlags=2)
    reader = Reader()
    assert reader.take(1) == [b"1"]
    with pytest.raises(RecoveryError, match="segments"):
        reader.take(1)
    reader.source.close()


def test_different_messages_with_one_msgid_are_both_taken(manager: Manager) -> None:
    """A program may choose the MsgId, and choose it twice (B6)."""
    manager.put(QUEUE, b"1", MsgId=b"same".ljust(24))
    manager.put(QUEUE, b"2", MsgId=b"same".ljust(24))
    reader = Reader()
    assert reader.take(2) == [b"1", b"2"]
    reader.source.close()


def test_connection_asks_for_what_exactly_once_rests_on(manager: Manager) -> None:
    """No reconnection by the library, heartbeats, and its own conversation."""
    import ibmmq

    manager.put(QUEUE, b"1")
    source = IbmMq(URL, heartbeat_s=7).queue(QUEUE).open()
    list(source.read(0, None, 1))
    source.close()
    [facts] = manager.connects
    assert facts["options"] & ibmmq.CMQC.MQCNO_RECONNECT_DISABLED
    assert (facts["heartbeat"], facts["sharing"], facts["user"], facts["cipher"]) == (7, 1, "app", "")
    assert manager.connections() == 0
    read = ("SYNCPOINT", "WAIT", "PROPERTIES_FORCE_MQRFH2", "FAIL_IF_QUIESCING", "CONVERT")
    assert {*manager.gets} == {sum(getattr(ibmmq.CMQC, f"MQGMO_{name}") for name in read)}

    secure = IbmMq(URL.replace("mq://", "mqs://"), key_repository="/keys/app", key_label="app").queue(QUEUE).open()
    list(secure.read(0, None, 1))
    secure.close()
    facts = manager.connects[1]
    assert (facts["cipher"], facts["keys"], facts["label"]) == ("ANY_TLS12_OR_HIGHER", "/keys/app", "app")


def test_closing_commits_nothing_if_it_cannot_take_back(manager: Manager) -> None:
    """MQDISC commits an open unit of work. Without an answer to MQBACK the connection is left to the queue manager."""
    manager.put(QUEUE, b"1")
    reader = Reader()
    assert reader.take(1) == [b"1"]
    manager.refusals["MQBACK"] = [2195]
    reader.source.close()
    assert "MQDISC" not in manager.calls
    manager.drop()
    assert manager.bodies(QUEUE) == [b"1"]


def test_a_connection_that_is_collected_commits_nothing(manager: Manager) -> None:
    """The package disconnects what is collected, unless it is told not to."""
    import gc

    from cues_kafka.bridges.ibmmq.client import CONSUMES, TAKE, MqConnection

    manager.put(QUEUE, b"1")
    connection = MqConnection(IbmMq(URL).login())
    assert connection.get(connection.open(QUEUE, CONSUMES), TAKE) is not None
    del connection
    gc.collect()
    assert (manager.commits, manager.calls.count("MQDISC")) == (0, 0)
    manager.drop()
    assert manager.bodies(QUEUE) == [b"1"]


def test_a_feed_brings_each_message_of_a_queue_once(manager: Manager) -> None:
    """Over lost connections and a restart, in order, with its place in the status."""
    source = IbmMq(URL).queue(QUEUE, prefetch=10)
    graph = Graph("g", Feed(source, into="in", poll_seconds=0.02), topics={"in": Topic(value=Json())}, errors="bad")
    memory = Memory()
    numbers = [json.dumps(number).encode() for number in range(30)]
    manager.put(QUEUE, *numbers[:10], b"no JSON")
    with start(graph, memory) as running:
        running._await(lambda: len(list(running.messages("in"))) == 10, 20.0, "fed")
        manager.drop()
        manager.put(QUEUE, *numbers[10:20])
        running._await(lambda: len(list(running.messages("in"))) == 20, 20.0, "fed")
        [error] = running.messages("bad")
        assert error.value.context == {"place": "message 11 of the IBM MQ queue ORDERS"}
    manager.put(QUEUE, *numbers[20:])
    with start(graph, memory) as running:
        running._await(lambda: len(list(running.messages("in"))) == 30, 20.0, "fed")
        assert empty(manager)
        assert [one.value for one in running.messages("in")] == list(range(30))


SEEDS = 25


def test_messages_come_once_in_random_worlds() -> None:
    """B1 to B7: whatever dies, is lost or refuses, at any moment, and wherever the task goes."""
    for seed in range(SEEDS):
        wrong, trace = outcome(seed)
        assert not wrong, f"seed {seed}: {wrong}: {trace}"


def outcome(seed: int) -> tuple[str, list[str]]:
    """What is wrong in a world of its own."""
    from cues_kafka.bridges.ibmmq import source

    with managed() as made, pytest.MonkeyPatch.context() as patch:
        patch.setattr(source, "WAIT_S", 0.002)
        made.define(QUEUE)
        world = World(made, seed)
        return world.run(), world.trace


def _commits_at_the_end(patch: pytest.MonkeyPatch) -> None:
    """MQDISC without MQBACK before it."""
    import ibmmq

    patch.setattr(ibmmq.QueueManager, "backout", lambda _: None)


def _commits_what_is_not_in_kafka(patch: pytest.MonkeyPatch) -> None:
    """A unit of work is committed at the first acknowledgement."""
    from cues_kafka.bridges.ibmmq.source import IbmMqDeliveries

    ack = IbmMqDeliveries.ack

    def early(self: Any, tokens: Any) -> None:
        with self._news:
            ack(self, tokens)
            self._acked = self._read

    patch.setattr(IbmMqDeliveries, "ack", early)


def _reads_in_no_unit(patch: pytest.MonkeyPatch) -> None:
    """MQGMO_NO_SYNCPOINT: what is read is gone."""
    from cues_kafka.bridges.ibmmq import client

    patch.setattr(client, "TAKE", client.TAKE_ALONE | client.CMQC.MQGMO_WAIT)


def _another_id(patch: pytest.MonkeyPatch) -> None:
    """The id has BackoutCount in it, or whatever else differs with each delivery."""
    from itertools import count

    from cues_kafka.bridges.ibmmq import source

    numbers = count()
    patch.setattr(source, "name_of", lambda *_: str(next(numbers)))


def _one_id(patch: pytest.MonkeyPatch) -> None:
    """The id is no name of one message."""
    from cues_kafka.bridges.ibmmq import source

    patch.setattr(source, "name_of", lambda *_: "message")


def _never_full(patch: pytest.MonkeyPatch) -> None:
    """A unit of work takes all that comes."""
    from cues_kafka.bridges.ibmmq.source import IbmMqDeliveries

    made = IbmMqDeliveries.__init__

    class Endless:
        def __init__(self, declared: Any) -> None:
            self.key, self.convert, self.timestamps = declared.key, declared.convert, declared.timestamps
            self.prefetch = 10**9

    def endless(self: Any, declared: Any, *given: Any) -> None:
        made(self, Endless(declared), *given)  # type: ignore[arg-type]

    patch.setattr(IbmMqDeliveries, "__init__", endless)


MUTANTS: dict[Callable[[pytest.MonkeyPatch], None], str] = {
    _commits_at_the_end: "loss",
    _commits_what_is_not_in_kafka: "loss",
    _reads_in_no_unit: "loss",
    _another_id: "duplicate",
    _one_id: "loss",
    _never_full: "duplicate",
}


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda one: one.__name__.strip("_"))
def test_without_a_rule_a_world_is_broken(
    mutant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each rule is needed; a world without it loses or repeats a message."""
    mutant(monkeypatch)
    found = []
    for seed in range(8 * SEEDS):
        found.append(outcome(seed)[0])
        if found[-1].startswith(MUTANTS[mutant]):
            return
    pytest.fail(f"no world was broken: {[one for one in found if one]}")

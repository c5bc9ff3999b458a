"""Parts of the Kafka adapter that need no broker: classification, group metadata, grouping, what the client says."""

from __future__ import annotations

import ctypes
import logging
import os
import struct
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, libversion, version

import cues_kafka.brokers.kafka
from cues_kafka.brokers.kafka import KafkaBroker
from cues_kafka.brokers.kafka.classify import CLIENT_ERRORS, MEANINGS, catchable, classify, error_of, translate
from cues_kafka.brokers.kafka.reader import KafkaReader
from cues_kafka.brokers.kafka.sender import KafkaSender
from cues_kafka.brokers.kafka.session import KafkaSession, _Reports, generation_of, outside_token
from cues_kafka.brokers.kafka.watch import Watch, likely_cause
from cues_kafka.brokers.options import Kafka
from cues_kafka.errors import AbortableError, BrokerError, ConfigError, FatalError, RetriableError, UnstableOffsets
from cues_kafka.observe.together import Together
from cues_kafka.ports.clients import OUTSIDE, GroupMetadata
from cues_kafka.ports.log import TopicPartition

NOWHERE = Kafka("127.0.0.1:1", socket_timeout_s=1, transaction_timeout_s=3, start_timeout_s=1)


def codes() -> dict[str, int]:
    """All error codes of the installed client by name."""
    return {
        KafkaError(value).name(): value
        for attribute in dir(KafkaError)
        if attribute.isupper() or attribute.startswith("_")
        if isinstance(value := getattr(KafkaError, attribute), int)
    }


def test_every_code_in_the_table_exists_in_the_client() -> None:
    """A misspelt name would never match."""
    assert set(MEANINGS) - set(codes()) == set()


@pytest.mark.parametrize(
    ("code", "kind", "fenced"),
    [
        ("_TIMED_OUT", RetriableError, False),
        ("_FENCED", FatalError, True),
        ("PRODUCER_FENCED", FatalError, True),
        ("INVALID_PRODUCER_EPOCH", FatalError, True),
        ("ILLEGAL_GENERATION", AbortableError, False),
        ("UNKNOWN_MEMBER_ID", AbortableError, False),
        ("UNSTABLE_OFFSET_COMMIT", UnstableOffsets, False),
        ("MSG_SIZE_TOO_LARGE", AbortableError, False),
        ("TRANSACTIONAL_ID_AUTHORIZATION_FAILED", FatalError, False),
        ("_AUTO_OFFSET_RESET", FatalError, False),
        ("UNKNOWN_PRODUCER_ID", AbortableError, False),
        ("OUT_OF_ORDER_SEQUENCE_NUMBER", FatalError, False),
    ],
)
def test_errors_are_classified_by_the_table(code: str, kind: type[BrokerError], fenced: bool) -> None:
    """Class, code and place arrive in the error."""
    problem = KafkaException(KafkaError(codes()[code]))
    error = translate(problem, "doing it", at=TopicPartition("t", 3))

    assert type(error) is kind
    assert (error.code, error.fenced, error.at) == (code, fenced, ("t", 3))
    assert MEANINGS[code].sentence in str(error)


def test_the_clients_own_marks_decide_for_unknown_errors() -> None:
    """In the order: fatal, abortable, retriable, else fatal."""
    code = codes()["_APPLICATION"]

    assert classify(KafkaError(code, "x", True)).error is FatalError
    assert classify(KafkaError(code, "x", False, False, True)).error is AbortableError
    assert classify(KafkaError(code, "x", False, True)).error is RetriableError
    assert classify(KafkaError(code, "x")).error is FatalError


def test_a_time_out_names_what_the_client_said_meanwhile() -> None:
    """A wrong password ends as a time-out; only what came by the way tells."""
    error = translate(KafkaError(codes()["_TIMED_OUT"]), "init", reasons=["wrong user name or password"] * 2)

    assert str(error).endswith("meanwhile: wrong user name or password")


def test_an_error_that_points_at_a_fatal_one_becomes_that_one() -> None:
    """Messages purged because of a fencing say that they were purged; the session must know that it was fenced."""
    error = translate(KafkaError(codes()["_PURGE_QUEUE"]), "x", fatal=KafkaError(codes()["_FENCED"], "f", True))

    assert error.fenced


def raise_bare(error: KafkaError) -> None:
    """As the client does it, below Python 3.12."""
    raising = ctypes.pythonapi.PyErr_SetObject
    raising(ctypes.py_object(type(error)), ctypes.py_object(error))


def test_an_error_that_is_no_exception_is_caught_and_keeps_what_it_says() -> None:
    """A worker's thread ended without a word when its session was fenced: no `except` of ours caught the error."""
    fenced = KafkaError(KafkaError._FENCED, "transactional producer fenced", True)
    with pytest.raises(CLIENT_ERRORS) as caught:
        catchable(raise_bare, fenced)
    if sys.version_info < (3, 12):
        assert error_of(caught.value) is fenced
        assert (fenced.fatal(), fenced.str()) == (True, "transactional producer fenced")
        assert (caught.value.__context__, caught.value.__cause__) == (None, None)

    with pytest.raises(ZeroDivisionError):
        catchable(lambda: 1 // 0)
    assert catchable(max, 1, 2) == 2


@pytest.mark.parametrize("doing", ["flush", "commit_transaction", "poll"])
def test_a_session_names_an_error_that_is_no_exception(doing: str) -> None:
    """Each call that hears what the client reports."""
    fenced = KafkaError(KafkaError._FENCED, "transactional producer fenced", True)
    session = KafkaSession(NOWHERE, "id")
    session.abandon()
    calls: dict[str, Any] = {"flush": lambda _: 0, "commit_transaction": lambda _: None, "poll": lambda _: 0}
    calls |= {"begin_transaction": lambda: None, doing: lambda _: raise_bare(fenced)}
    session._producer = SimpleNamespace(**calls)  # type: ignore[assignment]
    session.begin()

    def end() -> None:
        session.flush()
        session.commit()

    with pytest.raises(BrokerError) as caught:
        end()
    if sys.version_info < (3, 12):
        assert caught.value.fenced


def test_a_client_error_inside_a_system_error_is_found() -> None:
    """The client calls back with an exception set; Python wraps it, once for each call back."""
    problem: Exception = KafkaException(KafkaError(codes()["_FENCED"], "f", True))
    for _ in range(2):
        wrapped = SystemError("returned a result with an exception set")
        wrapped.__cause__, problem = problem, wrapped

        assert translate(wrapped, "x").fenced


@pytest.mark.parametrize("called_back", [_Reports(), Watch("x")])
def test_what_the_client_calls_back_has_slots(called_back: object) -> None:
    """The client may call while its exception is pending; a failed look-up in a class clears it and hides a fencing."""
    assert not hasattr(called_back, "__dict__")


def test_the_generation_is_read_from_the_metadata_of_this_client() -> None:
    """The format is undocumented: this test holds every new version of the client to it."""
    consumer = Consumer({"bootstrap.servers": "127.0.0.1:1", "group.id": "some group", "log_level": 0})
    token: Any = consumer.consumer_group_metadata()
    consumer.close()

    assert f"{version()} {libversion()[0]}" == "2.16.1 2.16.0"
    assert token.startswith(b"CGMDv2:\xff\xff\xff\xffsome group\0")
    assert generation_of(token) == -1
    assert token == outside_token("some group")
    assert generation_of(b"CGMDv2:" + struct.pack("=i", 70_000) + b"g\0") == 70_000


@pytest.mark.parametrize("token", [b"", b"CGMDv3:\0\0\0\0", b"CGMDv2:\0\0"])
def test_metadata_of_an_unknown_format_is_refused(token: bytes) -> None:
    """Guessing a generation would switch the fence off."""
    with pytest.raises(AbortableError, match="unknown format"):
        generation_of(token)


def test_a_negative_generation_is_refused_before_the_cluster_is_asked() -> None:
    """There is no cluster here, and the answer comes at once."""
    session = KafkaSession(NOWHERE, "id")

    with pytest.raises(AbortableError, match="not a member") as refused:
        session.send_offsets({TopicPartition("t", 0): 1}, GroupMetadata("g", -1, b""))
    assert refused.value.code == "ILLEGAL_GENERATION"
    session.abandon()


@pytest.mark.parametrize(
    ("report", "first_word"),
    [
        (None, "sending offsets"),
        ("_PURGE_QUEUE", "sending offsets"),
        ("_PURGE_INFLIGHT", "sending offsets"),
        ("MSG_SIZE_TOO_LARGE", "writing to out/1"),
    ],
)
def test_refused_offsets_name_the_cause_and_not_what_was_thrown_away_with_it(
    report: str | None, first_word: str
) -> None:
    """Records are under way while offsets are sent. One that failed by itself is the cause of both failures."""

    class Refusing:
        def poll(self, _: float) -> int:
            return 0

        def send_offsets_to_transaction(self, *_: Any) -> None:
            raise KafkaException(KafkaError(codes()["GROUP_AUTHORIZATION_FAILED"]))

    session = KafkaSession(NOWHERE, "id")
    session.abandon()
    session._producer = Refusing()  # type: ignore[assignment]
    session._reports.error = None if report is None else (KafkaError(codes()[report]), "out", 1)

    with pytest.raises(BrokerError, match=f"^id: {first_word}"):
        session.send_offsets({TopicPartition("t", 0): 1}, GroupMetadata("g", OUTSIDE, b""))


class Columns(list[tuple[Any, ...]]):
    """Records that the session takes by column."""

    def columns(self) -> tuple[Any, ...]:
        topics, partitions, keys, values, headers, times = zip(*self, strict=True)
        return topics, partitions, keys, values, headers, times


@pytest.mark.parametrize("records", [list, Columns])
def test_a_record_that_the_client_refuses_at_once_names_its_topic(records: Any) -> None:
    """The client remembers what the brokers have refused. The error said that a right on "the topic" was missing."""

    class Refusing:
        def poll(self, _: float) -> int:
            return 0

        def produce(self, topic: str, *_: Any) -> None:
            if topic == "closed":
                raise KafkaException(KafkaError(codes()["TOPIC_AUTHORIZATION_FAILED"]))

    session = KafkaSession(NOWHERE, "id")
    session.abandon()
    session._producer = Refusing()  # type: ignore[assignment]
    session._counted._module = None  # it takes real clients alone
    session.produce([("first", 0, b"", b"", [], 0)])

    with pytest.raises(BrokerError, match="may not write to topic `closed`"):
        session.produce(records((topic, 0, b"", b"", [], 0) for topic in ("open", "closed", "other")))


class Waiting:
    """A producer whose coordinator does not answer until the test says so, in a cluster with these brokers."""

    def __init__(self, brokers: set[int]) -> None:
        self.brokers, self.answered, self.looks = brokers, threading.Event(), 0

    def list_topics(self, *_: Any, **__: Any) -> Any:
        self.looks += 1
        if self.looks == 3:
            self.answered.set()  # the coordinator that was slow
        return SimpleNamespace(brokers=dict.fromkeys(self.brokers))

    def poll(self, _: float) -> int:
        return 0

    def send_offsets_to_transaction(self, *_: Any) -> None:
        self.answered.wait(60)


@pytest.fixture
def waiting(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[KafkaSession, Waiting]]:
    """A session that looks for brokers a hundred times a second, and gives up at once, and its producer."""
    monkeypatch.setattr("cues_kafka.brokers.kafka.session.LOOK_S", 0.01)
    monkeypatch.setattr("cues_kafka.brokers.kafka.session.GONE_S", 0.0)
    session, producer = KafkaSession(NOWHERE, "id"), Waiting({1, 3})
    session.abandon()
    session._producer, session._socket_timeout_s, session._timeout_s = producer, 30, 30  # type: ignore[assignment]
    yield session, producer
    producer.answered.set()


def test_a_coordinator_that_has_left_the_cluster_is_not_waited_for(waiting: tuple[KafkaSession, Waiting]) -> None:
    """The client would wait without end for its old handle (librdkafka issue 5511)."""
    session, producer = waiting
    session._departures.known.update({1, 2, 3})

    with pytest.raises(RetriableError, match="broker 2 has left the cluster"):
        session.send_offsets({TopicPartition("t", 0): 1}, GroupMetadata("g", OUTSIDE, b""))
    assert not producer.answered.is_set()


def test_a_slow_coordinator_is_waited_for_while_all_brokers_are_there(
    waiting: tuple[KafkaSession, Waiting], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The session ignores a broker that joins. An answer makes it forget the brokers that left before."""
    session, producer = waiting
    session._departures.known.update({1})

    session.send_offsets({TopicPartition("t", 0): 1}, GroupMetadata("g", OUTSIDE, b""))
    assert producer.looks >= 3
    assert session._departures.known == {1, 3}

    producer.brokers = {1}
    assert session._departures.gone(producer, "t", 0.0)  # type: ignore[arg-type]
    monkeypatch.setattr("cues_kafka.brokers.kafka.session.LOOK_S", 5)  # the answer comes before the first look
    session.send_offsets({TopicPartition("t", 0): 2}, GroupMetadata("g", OUTSIDE, b""))
    assert not session._departures.gone(producer, "t", 0.0)  # type: ignore[arg-type]


def test_a_session_that_was_thrown_away_refuses_everything() -> None:
    """And may be thrown away again."""
    session = KafkaSession(NOWHERE, "id")
    session.abandon()
    session.abandon()
    session.close()

    with pytest.raises(AbortableError, match="this session is closed"):
        session.begin()


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ("Connect to ipv4#127.0.0.1:1 failed: Connection refused (after 0ms)", "nothing listens there"),
        ("Receive failed: Invalid response size 1213486160 (0..100000000)", "not a Kafka broker"),
        ("Failed to resolve 'nope:9092': Name or service not known", "no address"),
        ("SASL authentication error: Authentication failed", "password"),
        (
            "SASL authentication error: SaslAuthenticateRequest failed: Local: Broker transport failure (after 0ms)",
            "ended during a login",
        ),
        (
            "SASL PLAIN mechanism handshake failed: Local: Broker transport failure: broker's supported",
            "ended during a login",
        ),
        (
            "SASL PLAIN mechanism handshake failed: Broker: Unsupported SASL mechanism: broker's supported",
            "do not offer this mechanism",
        ),
        (
            "SASL OAUTHBEARER mechanism handshake failed: Broker: Request not valid in current SASL state: broker's",
            "take no login there",
        ),
        ("certificate verify failed: broker certificate could not be verified", "ssl.ca.location"),
        ("something else", None),
    ],
)
def test_the_likely_cause_is_read_from_the_clients_words(line: str, cause: str | None) -> None:
    """The words of librdkafka 2.16."""
    found = likely_cause(line)

    assert (found is None) is (cause is None)
    assert found is None or str(cause) in found.sentence


@pytest.mark.parametrize(
    ("line", "suspect"),
    [
        ("REQTMOUT [rdkafka#p]: [thrd:TxnCoordinator]: TxnCoordinator/1: Timed out EndTxnRequest in flight", True),
        ("FAIL [rdkafka#p]: [thrd:TxnCoordinator]: TxnCoordinator: 127.0.0.1:1: Disconnected (after 3ms in UP)", True),
        ("FAIL [rdkafka#p]: [thrd:127.0.0.1:1/1]: 127.0.0.1:1/1: Disconnected (after 3ms in UP)", False),
    ],
)
def test_only_trouble_with_the_coordinator_makes_a_commit_suspect(line: str, suspect: bool) -> None:
    """Trouble with leaders of partitions is repaired by idempotence."""
    watch = Watch("x")
    watch.log(30, "%s", line)

    assert bool(watch.suspicions) is suspect


def test_statistics_with_more_ends_than_calls_are_suspect() -> None:
    """The second witness of a repeated EndTxn."""
    watch = Watch("x")
    watch.ends = 2
    watch.on_statistics('{"brokers": {"TxnCoordinator": {"req": {"EndTxn": 2}}, "b": {}}}')
    assert watch.suspicions == []
    watch.on_statistics('{"brokers": {"TxnCoordinator": {"req": {"EndTxn": 3}}}}')

    assert watch.suspicions == ["statistics: 3 EndTxn requests for 2 calls"]


def test_a_client_is_refused_in_a_fork() -> None:
    """The child has none of the client's threads; it would wait without end."""
    watch = Watch("session x")
    watch.pid = os.getpid() + 1

    with pytest.raises(FatalError, match="after the fork"):
        watch.same_process()


def test_nothing_is_written_to_stderr(capfd: pytest.CaptureFixture[str]) -> None:
    """The client's complaints go to its logger."""
    broker = KafkaBroker(NOWHERE)
    session = broker.session("id")
    with pytest.raises(BrokerError):
        session.init(timeout_s=1)
    with pytest.raises(BrokerError, match="nothing listens there"):
        broker.facts([])
    session.abandon()

    assert capfd.readouterr().err == ""


def test_what_a_client_says_again_and_again_is_said_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then each 10 s with a count; different lines are not held back, and every line is still a witness."""
    now = [0.0]
    monkeypatch.setattr("cues_kafka.brokers.kafka.watch.time.monotonic", lambda: now[0])
    watch = Watch("admin")
    with caplog.at_level("INFO", "cues_kafka.librdkafka"):
        for i in range(190):
            watch.log(
                30, "%s [%s] %s", "FAIL", "c", f"[thrd:b]: b: Connect failed: Connection refused (after {i}ms in)"
            )
        watch.log(30, "%s", "another")
        assert [r.message.partition(" (")[0] for r in caplog.records] == [
            "FAIL [c] [thrd:b]: b: Connect failed: Connection refused",
            "another",
        ]
        now[0] = 10.5
        watch.log(30, "%s [%s] %s", "FAIL", "c", "[thrd:b]: b: Connect failed: Connection refused (after 7ms in)")

    assert "(189 times more" in caplog.records[-1].message
    assert len(watch.reasons) == 1


def test_a_node_that_is_away_is_said_once_for_all_clients(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A restarted node gave twenty lines; another node, and another reason, are lines of their own."""
    now = [0.0]
    monkeypatch.setattr("cues_kafka.brokers.kafka.watch.CLUSTER", Together(now=lambda: now[0]))
    caplog.set_level(logging.INFO, "cues_kafka.librdkafka")

    def say(client: str, thread: str, port: int, why: str = "Connection refused") -> None:
        text = f"[thrd:{thread}]: {thread}: Connect to ipv4#127.0.0.1:{port} failed: {why} (after 0ms in state CONNECT)"
        Watch(client).log(logging.WARNING, "%s [%s] %s", "FAIL", f"{client}#consumer-6", text)

    for number in range(20):
        say(f"reader {number}", "127.0.0.1:9092/1" if number % 2 else "GroupCoordinator", 9092)
    say("reader", "127.0.0.1:9093/2", 9093)
    say("reader", "127.0.0.1:9092/1", 9092, "No route to host")
    assert [one.levelno for one in caplog.records] == [logging.WARNING] * 3
    now[0] = 61.0
    say("member", "127.0.0.1:9092/1", 9092)
    assert caplog.records[-1].getMessage().endswith("(19 lines of other clients in 61 s)")


@pytest.mark.parametrize(
    ("why", "level"),
    [
        ("Broker: Coordinator load in progress: retrying", logging.INFO),
        ("Broker: Producer attempted to update a transaction while another was ongoing: retrying", logging.INFO),
        ("Broker: Coordinator load in progress", logging.WARNING),
        ("Broker: Transactional Id authorization failed", logging.WARNING),
    ],
)
def test_what_a_client_says_at_a_normal_start_is_no_warning(
    why: str, level: int, caplog: pytest.LogCaptureFixture
) -> None:
    """A new cluster makes the coordinators' topic when the first client asks: each task of a first start said this."""
    caplog.set_level(logging.INFO, "cues_kafka.librdkafka")  # `run` in a test of this process has raised it
    said = f"[thrd:main]: Failed to acquire transactional PID from broker TxnCoordinator/1: {why}"
    Watch("session x").log(logging.WARNING, "%s [%s] %s", "GETPID", "shop.count.2#producer-6", said)
    assert [(one.levelno, one.getMessage()) for one in caplog.records] == [
        (level, f"GETPID [shop.count.2#producer-6] {said}")
    ]


@pytest.mark.parametrize(
    ("said", "level"),
    [
        ("Current transaction failed: Broker: Specified group generation id is not valid", logging.INFO),
        ("Current transaction failed: Broker: Unknown member", logging.INFO),
        ("Current transaction failed: Broker: Producer attempted to produce with an old epoch", logging.INFO),
        ("Current transaction failed: Broker: Topic authorization failed", logging.WARNING),
    ],
)
def test_a_transaction_that_a_rebalance_ends_is_no_warning(
    said: str, level: int, caplog: pytest.LogCaptureFixture
) -> None:
    """The task that moves hears it from its call; a start of two workers with a backlog said it for each task."""
    caplog.set_level(logging.INFO, "cues_kafka.librdkafka")
    Watch("session x").log(logging.WARNING, "%s [%s] %s", "TXNERR", "shop.count.2#producer-6", said)
    assert [one.levelno for one in caplog.records] == [level]


def test_an_unreachable_cluster_is_explained_once_with_the_remedy(caplog: pytest.LogCaptureFixture) -> None:
    """A wrong port: the error says what to do, and the line that waits does not say the same cause twice."""
    with caplog.at_level("INFO"), pytest.raises(RetriableError) as refusal:
        KafkaBroker(NOWHERE).facts([])

    assert "Start the brokers, or correct the address: Kafka(...) in a program, --bootstrap" in str(refusal.value)
    assert str(refusal.value).count("nothing listens there") == 1
    assert refusal.value.code


@pytest.mark.parametrize("given", ["config", "producer", "consumer"])
def test_a_setting_that_librdkafka_does_not_have_is_named(given: str) -> None:
    """At the first use, before any task runs; never as a raw KafkaError."""
    options = Kafka("127.0.0.1:1", **{given: {"compresion.type": "lz4"}}, start_timeout_s=1)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r'No such configuration property: "compresion.type"'):
        KafkaBroker(options).facts([])


def test_nothing_that_comes_behind_a_damaged_message_is_delivered() -> None:
    """The client goes on behind a wrong checksum; what followed was delivered, and the message skipped for good."""
    reader = KafkaReader(NOWHERE, "reader")
    places = [TopicPartition("t", 0), TopicPartition("t", 1)]
    reader._assigned = {(place.topic, place.partition): place for place in places}
    damaged = Message(topic="t", partition=0, offset=2, error=KafkaError(KafkaError._BAD_MSG))
    end = Message(topic="t", partition=0, offset=9, error=KafkaError(KafkaError._PARTITION_EOF))
    batch = [sent(0, 1), damaged, sent(0, 3), sent(1, 7), end]

    found = reader._group(batch)

    assert [(f.partition.partition, [m.offset() for m in f.messages], f.eof) for f in found] == [
        (0, [1], None),
        (1, [7], None),
    ]
    with pytest.raises(BrokerError, match="t/0 at offset 2"):
        reader.poll(0)
    reader.close()


def test_an_error_of_no_partition_hides_nothing_that_comes_with_it() -> None:
    """It ended the poller with a TypeError, before anybody could hear of it."""
    reader = KafkaReader(NOWHERE, "reader")
    reader._assigned = {("t", 0): TopicPartition("t", 0)}
    down = Message(error=KafkaError(KafkaError._ALL_BROKERS_DOWN))
    refused = Message(topic="t", error=KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))

    found = reader._group([down, refused, sent(0, 1)])

    assert [[m.offset() for m in f.messages] for f in found] == [[1]]
    with pytest.raises(BrokerError, match="AUTHORIZATION_FAILED"):
        reader.poll(0)
    reader.close()


def test_an_error_of_one_partition_loses_no_message_of_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client hands a message over once: one that is dropped with the error of a neighbour is skipped for good."""
    reader = KafkaReader(NOWHERE, "reader")
    places = [TopicPartition("t", 0), TopicPartition("t", 1)]
    reader._assigned = {(place.topic, place.partition): place for place in places}
    damaged = Message(topic="t", partition=0, offset=2, error=KafkaError(KafkaError._BAD_MSG))
    monkeypatch.setattr(reader._polling, "take", lambda *_: [damaged, sent(1, 7)])

    [found] = reader.poll(0)

    assert (found.partition, [m.offset() for m in found.messages]) == (TopicPartition("t", 1), [7])
    with pytest.raises(BrokerError, match="t/0 at offset 2"):
        reader.poll(0)
    reader.close()


def test_an_end_of_a_partition_that_messages_follow_is_no_end() -> None:
    """A position would move over them as over markers, and skip them."""
    reader = KafkaReader(NOWHERE, "reader")
    reader._assigned = {("t", 0): TopicPartition("t", 0)}
    end = Message(topic="t", partition=0, offset=5, error=KafkaError(KafkaError._PARTITION_EOF))

    [found] = reader._group([end, sent(0, 5)])

    assert ([m.offset() for m in found.messages], found.eof) == ([5], None)
    reader.close()


def test_what_comes_of_a_partition_that_is_not_read_any_more_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its task has gone to another worker, or will read the same messages again from its position."""
    reader = KafkaReader(NOWHERE, "reader")
    gone = TopicPartition("t", 1)
    reader._assigned = {("t", 0): TopicPartition("t", 0), ("t", 1): gone}
    damaged = Message(topic="t", partition=1, offset=2, error=KafkaError(KafkaError._BAD_MSG))
    monkeypatch.setattr(reader, "_call", lambda *_: None)
    reader._group([damaged])
    reader.unassign([gone])

    batches = iter([[sent(1, 3), sent(0, 7)]])
    monkeypatch.setattr(reader._polling, "take", lambda *_: next(batches))
    [found] = reader.poll(0)
    assert found.partition == TopicPartition("t", 0)
    reader.close()


def sent(partition: int, offset: int) -> Message:
    """A message."""
    return Message(topic="t", partition=partition, offset=offset, value=b"v")


def test_offsets_are_never_asked_with_the_call_that_can_end_the_process() -> None:
    """Librdkafka's issue 5040: where a coordinator has just moved, the administrative call is a segmentation fault."""
    for file in Path(cues_kafka.brokers.kafka.__file__).parent.glob("*.py"):
        assert "client.list_consumer_group_offsets" not in file.read_text("utf-8"), file


def test_a_sender_that_has_failed_closes_without_an_error() -> None:
    """What `send` raised, with the right that is missing, would be replaced by the client's own words."""
    sender = KafkaSender(NOWHERE, "tired")
    failed: Any = sender._producer
    asked: list[float] = []

    class Failed:
        def flush(self, timeout_s: float) -> int:
            asked.append(timeout_s)
            raise KafkaException(KafkaError(KafkaError.CLUSTER_AUTHORIZATION_FAILED, "no PID", True))

    sender._producer = Failed()  # type: ignore[assignment]
    sender.close()

    failed.flush(0)
    assert asked == [0]


def test_a_sender_says_why_its_client_has_failed_before_the_client_has_said_so() -> None:
    """The call that fails only names the failure; `poll` raises the reason a moment later, and once only."""
    sender = KafkaSender(NOWHERE, "early")
    real: Any = sender._producer
    polls: list[KafkaError | None] = [None, KafkaError(KafkaError.CLUSTER_AUTHORIZATION_FAILED, "no PID", True)]

    class Failing:
        def produce(self, *_: Any) -> None:
            raise KafkaException(KafkaError(KafkaError._FATAL, "Unable to produce message"))

        def poll(self, _: float) -> int:
            if polls and (error := polls.pop(0)):
                raise KafkaException(error)
            return 0

    sender._producer = Failing()  # type: ignore[assignment]
    for _ in range(2):
        with pytest.raises(FatalError, match=r"kafka-acls .* --operation Write --topic orders"):
            sender.send([("orders", None, None, b"x", [], 0)])
    real.flush(0)


def test_a_session_says_why_its_client_has_failed_before_the_client_has_said_so() -> None:
    """As a sender does. So a fence is known as one, and a client that has failed is not asked to abort."""
    session = KafkaSession(NOWHERE, "early")
    real: Any = session._producer
    polls: list[KafkaError | None] = [None, KafkaError(KafkaError.INVALID_PRODUCER_EPOCH, "fenced", True)]

    class Failing:
        def produce(self, *_: Any) -> None:
            raise KafkaException(KafkaError(KafkaError._FATAL, "Unable to produce message"))

        def poll(self, _: float) -> int:
            if polls and (error := polls.pop(0)):
                raise KafkaException(error)
            return 0

    session._producer = Failing()  # type: ignore[assignment]
    with pytest.raises(BrokerError, match=r"early: writing: .* \[INVALID_PRODUCER_EPOCH: fenced\]") as met:
        session.produce([("orders", None, None, b"x", [], 0)])
    assert met.value.fenced
    assert session._watch.fatal is not None
    real.flush(0)

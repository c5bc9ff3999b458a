"""The Kafka adapter on a real broker: what the contract suite does not ask because only Kafka has it."""

from __future__ import annotations

import random
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

import confluent_kafka.admin
import psutil
import pytest

from cues_kafka.brokers.kafka import KafkaBroker
from cues_kafka.brokers.local import LocalBroker
from cues_kafka.brokers.options import Kafka
from cues_kafka.errors import AbortableError, BrokerError, FatalError, RetriableError, UnstableOffsets
from cues_kafka.ports.clients import FlushReport, Member, Reader
from cues_kafka.ports.facts import NewTopic
from cues_kafka.ports.log import TopicPartition
from cues_kafka.testing.fixtures import KafkaFixture
from tests.fault.support import committed
from tests.integration.clients import clients

SIX = 6
CLIENT: Any = confluent_kafka.admin  # its names of rights are not exported to type checkers


class Notes:
    """A listener that writes down what it hears."""

    def __init__(self) -> None:
        self.held: set[int] = set()
        self.lost: list[int] = []
        self.calls: list[tuple[str, tuple[int, ...]]] = []

    def on_assign(self, partitions: Sequence[int]) -> None:
        self.calls.append(("assign", tuple(sorted(partitions))))
        self.held |= set(partitions)

    def on_revoke(self, partitions: Sequence[int]) -> None:
        self.calls.append(("revoke", tuple(sorted(partitions))))
        self.held -= set(partitions)

    def on_lost(self, partitions: Sequence[int]) -> None:
        self.lost += partitions
        self.held -= set(partitions)


@pytest.fixture
def broker(kafka: KafkaFixture) -> Iterator[KafkaBroker]:
    """The adapter with default options."""
    broker = KafkaBroker(Kafka(kafka.bootstrap))
    yield broker
    broker.close()


def make(broker: KafkaBroker, topic: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> str:
    """A topic."""
    broker.create([NewTopic(topic, partitions, config=config or {})])
    return topic


def fill(broker: KafkaBroker, topic: str, count: int, *, partitions: int = 1) -> None:
    """Numbered values, spread over partitions in turn."""
    sender = broker.sender("filler")
    sender.send([(topic, n % partitions, None, str(n).encode(), None, 0) for n in range(count)])
    sender.close()


def connected(port: int) -> bool:
    """Whether this process has a connection to a broker; the client itself tells of its end only when it is asked."""
    held = psutil.Process().net_connections()
    return any(c.raddr and c.raddr.port == port and c.status == psutil.CONN_ESTABLISHED for c in held)


def serve(members: Sequence[Member], until: Callable[[], bool], *, timeout_s: float = 20.0) -> None:
    """Poll members in turn until something is the case."""
    deadline = time.monotonic() + timeout_s
    while not until():
        assert time.monotonic() < deadline, "it never came to be"
        for member in members:
            member.poll()
        time.sleep(0.01)


def read_to_end(reader: Reader, places: Sequence[TopicPartition], timeout_s: float = 20.0) -> dict[Any, list[int]]:
    """Offsets by partition, until each has ended."""
    found: dict[Any, list[int]] = {place: [] for place in places}
    ended: set[TopicPartition] = set()
    deadline = time.monotonic() + timeout_s
    while ended != set(places):
        assert time.monotonic() < deadline, "an end never came"
        for fetched in reader.poll(0.5):
            found[fetched.partition] += [message.offset() for message in fetched.messages]
            ended -= {fetched.partition}
            if fetched.eof is not None:
                ended.add(fetched.partition)
    return found


# --- reaching the cluster -------------------------------------------------------------------------------------------


def refusing() -> tuple[socket.socket, int]:
    """A port that nothing listens on, held so that no other program takes it."""
    held = socket.socket()
    held.bind(("127.0.0.1", 0))
    return held, held.getsockname()[1]


def answering(answer: bytes) -> tuple[socket.socket, int]:
    """A server of another protocol."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve_all() -> None:
        while True:
            try:
                client, _ = server.accept()
            except OSError:
                return
            client.recv(4096)
            client.sendall(answer)
            client.close()

    threading.Thread(target=serve_all, daemon=True).start()
    return server, server.getsockname()[1]


@pytest.mark.parametrize(
    ("server", "cause"),
    [
        (refusing, "nothing listens there"),
        (lambda: answering(b"HTTP/1.1 400 Bad Request\r\n\r\n"), "not a Kafka broker"),
        (lambda: answering(b""), "Kafka"),
    ],
    ids=["no listener", "web server", "hangs up"],
)
def test_a_cluster_that_cannot_be_reached_is_named_with_the_cause(
    server: Callable[[], tuple[socket.socket, int]], cause: str
) -> None:
    """Within the time given, with the address and what is likely wrong with it."""
    held, port = server()
    broker = KafkaBroker(Kafka(f"127.0.0.1:{port}", start_timeout_s=2))
    began = time.monotonic()
    with pytest.raises(RetriableError) as refused:
        broker.facts(["t"])
    held.close()

    assert time.monotonic() - began < 4
    assert f"127.0.0.1:{port}" in str(refused.value)
    assert cause in str(refused.value)


def test_facts_tell_the_configuration_and_the_identity(kafka: KafkaFixture, broker: KafkaBroker) -> None:
    """The topic's id is the one that `describe` prints, as 16 bytes; a missing topic is left out."""
    topic = make(broker, kafka.unique("t"), 3, {"cleanup.policy": "compact"})
    facts = broker.facts([topic, kafka.unique("missing")])

    assert list(facts.topics) == [topic]
    found = facts.topics[topic]
    assert (found.partitions, found.config["cleanup.policy"], len(found.topic_id)) == (3, "compact", 16)
    assert facts.brokers >= 1


@pytest.fixture(scope="module")
def strict() -> Iterator[LocalBroker]:
    """A broker that closes connections which are idle for a second, and takes rights away where an ACL says so."""
    overrides = {
        "connections.max.idle.ms": "1000",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
    }
    with LocalBroker(overrides=overrides) as cluster:
        yield cluster


def test_a_question_behind_an_idle_connection_that_was_closed_is_answered(strict: LocalBroker) -> None:
    """The client then says that it knows no leader, once; a query whose batches are far apart would end for it."""
    broker = KafkaBroker(Kafka(strict.bootstrap))
    topic = make(broker, "idle")
    fill(broker, topic, 3)
    for _ in range(2):
        assert broker.watermarks([TopicPartition(topic, 0)])[TopicPartition(topic, 0)] == (0, 3, 3)
        serve([], lambda: not connected(strict.nodes[0].port))  # the broker closes by its own clock
    began = time.monotonic()
    with pytest.raises(RetriableError, match="no leader of the partition"):
        broker.watermarks([TopicPartition(topic, 7)])  # it says the same of a partition that is not there
    assert time.monotonic() - began < broker.options.start_timeout_s / 2  # and is not asked on and on
    broker.close()


@pytest.mark.parametrize(
    "question",
    [
        lambda broker, place: broker.watermarks([place]),
        lambda broker, place: broker.offsets_at({place: 0}),
        lambda broker, place: broker.trim({place: 0}),
    ],
    ids=["ends", "time", "trim"],
)
def test_the_client_never_searches_for_a_leader_by_itself(
    broker: KafkaBroker, kafka: KafkaFixture, caplog: pytest.LogCaptureFixture, question: Callable[..., object]
) -> None:
    """Its search is one of two threads that do not wait for each other; with a new client it ended the process."""
    place = TopicPartition(make(broker, kafka.unique("led")), 0)
    new = KafkaBroker(Kafka(kafka.bootstrap, config={"debug": "metadata"}))
    with caplog.at_level("DEBUG", "cues_kafka.librdkafka"):
        question(new, place)
        new._admin.asking.client.poll(0)  # log lines come through here
    new.close()

    assert "describe topics" in caplog.text
    assert "query partition leaders" not in caplog.text


def test_a_group_that_may_not_be_read_is_named_with_the_right_that_is_missing(strict: LocalBroker) -> None:
    """The client only says that it has no answer; why comes by the way, and asking again would not help."""
    broker = KafkaBroker(Kafka(strict.bootstrap))
    place = TopicPartition(make(broker, "denied"), 0)
    client = CLIENT.AdminClient({"bootstrap.servers": strict.bootstrap})
    group = (CLIENT.ResourceType.GROUP, "g", CLIENT.ResourcePatternType.LITERAL)
    denied = (CLIENT.AclOperation.ALL, CLIENT.AclPermissionType.DENY)
    [created] = client.create_acls([CLIENT.AclBinding(*group, "User:ANONYMOUS", "*", *denied)]).values()
    created.result()
    with pytest.raises(FatalError, match=r"of group g: user `ANONYMOUS` may not read group `g`.*") as refused:
        broker.committed("g", [place])
    command = f"kafka-acls --bootstrap-server {strict.bootstrap} --add --allow-principal User:ANONYMOUS"
    assert f"`{command} --operation Read --group g`" in str(refused.value)
    assert broker.committed("other", [place]) == {place: None}
    broker.close()


def test_pending_offsets_are_told_from_an_outage(kafka: KafkaFixture, broker: KafkaBroker) -> None:
    """R2: both are silence to the client; only one of the two needs a look at transactions."""
    topic, group = make(broker, kafka.unique("t"), 2), kafka.unique("g")
    notes = Notes()
    member = broker.member(group, topic, notes)
    serve([member], lambda: len(notes.held) == 2)
    session = broker.session(kafka.unique("id"))
    session.init(timeout_s=20)
    session.begin()
    session.send_offsets({TopicPartition(topic, 0): 7}, member.metadata())
    with pytest.raises(UnstableOffsets, match=rf"{topic}/0: an open transaction holds offsets.* find-hanging"):
        broker.committed(group, [TopicPartition(topic, 0)])
    with pytest.raises(UnstableOffsets, match=rf"of group {group}: an open transaction"):
        broker.committed(group, [TopicPartition(topic, p) for p in (0, 1)])
    assert broker.committed(group, [TopicPartition(topic, 1)]) == {TopicPartition(topic, 1): None}
    assert session.commit() is None
    session.close()
    member.close(leave=True)


# --- reading --------------------------------------------------------------------------------------------------------


@pytest.mark.full
def test_pausing_under_load_neither_loses_nor_repeats(kafka: KafkaFixture, broker: KafkaBroker) -> None:
    """Fetched messages are dropped by the client when a partition is paused and fetched again when it goes on."""
    topic = make(broker, kafka.unique("t"), 2)
    fill(broker, topic, 20_000, partitions=2)
    places = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
    reader = broker.reader(kafka.unique("g"))
    reader.assign(dict.fromkeys(places, 0))
    found: dict[TopicPartition, list[int]] = {place: [] for place in places}
    deadline, turn = time.monotonic() + 100, 0
    while any(len(offsets) < 10_000 for offsets in found.values()):
        assert time.monotonic() < deadline
        turn += 1
        reader.pause([places[turn % 2]])
        for fetched in reader.poll(0.05, 700):
            found[fetched.partition] += [message.offset() for message in fetched.messages]
        reader.resume([places[turn % 2]])
    reader.close()

    assert [found[place] for place in places] == [list(range(10_000))] * 2


def test_partitions_of_several_topics_are_told_apart(kafka: KafkaFixture, broker: KafkaBroker) -> None:
    """Same numbers, different topics, as a join reads them."""
    topics = [make(broker, kafka.unique(name), 2) for name in ("a", "b")]
    for topic, count in zip(topics, (1_000, 600), strict=True):
        fill(broker, topic, count, partitions=2)
    places = [TopicPartition(topic, partition) for topic in topics for partition in (0, 1)]
    reader = broker.reader(kafka.unique("g"))
    reader.assign(dict.fromkeys(places, 0))

    expected = {place: list(range(500 if place.topic == topics[0] else 300)) for place in places}
    assert read_to_end(reader, places) == expected
    reader.close()


def test_a_prompt_reader_begins_in_the_place_of_a_closed_one_with_nothing_of_its_own(
    kafka: KafkaFixture, broker: KafkaBroker
) -> None:
    """Its consumer is connected already, and brings what the new one asks for, also in the same partition."""
    topic = make(broker, kafka.unique("t"))
    fill(broker, topic, 3_000)
    place = TopicPartition(topic, 0)
    broker.expect([kafka.unique("id")])
    others, own = clients(), set[frozenset[int]]()
    for start in (0, 2_000, 10, 0, 2_990):
        reader = broker.reader("again", prompt=True)
        reader.assign({place: start})
        fetched = reader.poll(10, 5)
        own.add(clients() - others)
        reader.close()
        reader.close()

        assert [message.offset() for one in fetched for message in one.messages] == list(range(start, start + 5))
        own.add(clients() - others)
    assert [len(one) for one in own] == [1]
    other = broker.reader("again", prompt=True)
    other.assign({place: 2_999})
    assert read_to_end(other, [place]) == {place: [2_999]}
    other.close()
    own.add(clients() - others)
    broker.expect([])
    assert [len(one) for one in own] == [1]
    assert not clients() & frozenset[int]().union(*own)


def test_a_reader_that_failed_or_found_nothing_is_not_used_again(kafka: KafkaFixture, broker: KafkaBroker) -> None:
    """What it has heard may be the reason, so the next one has a consumer of its own."""
    topic = make(broker, kafka.unique("t"))
    fill(broker, topic, 10)
    broker.trim({TopicPartition(topic, 0): 5})
    broker.expect([kafka.unique("id")])
    others = clients()
    failed = broker.reader("again", prompt=True)
    failed.assign({TopicPartition(topic, 0): 1})
    with pytest.raises(BrokerError):
        failed.poll(10)
    failed.close()
    silent = broker.reader("again", prompt=True)
    silent.assign({TopicPartition(topic, 0): 5})
    assert silent.poll(10)
    silent.unassign([TopicPartition(topic, 0)])
    assert not silent.poll(0)
    silent.close()

    assert clients() <= others


def test_a_position_outside_of_the_log_is_named_and_costs_no_other(kafka: KafkaFixture, broker: KafkaBroker) -> None:
    """The error names topic, partition and offset; the other partition's messages all come."""
    topic = make(broker, kafka.unique("t"), 2)
    fill(broker, topic, 2_000, partitions=2)
    bad, good = TopicPartition(topic, 0), TopicPartition(topic, 1)
    broker.trim({bad: 500})
    reader = broker.reader(kafka.unique("g"))
    reader.assign({bad: 100, good: 0})
    offsets: list[int] = []
    errors: list[BrokerError] = []
    deadline = time.monotonic() + 20
    while len(offsets) < 1_000 or not errors:
        assert time.monotonic() < deadline
        try:
            for fetched in reader.poll(0.5):
                assert fetched.partition == good
                offsets += [message.offset() for message in fetched.messages]
        except BrokerError as error:
            errors.append(error)
    reader.close()

    assert offsets == list(range(1_000))
    assert (errors[0].code, errors[0].at) == ("_AUTO_OFFSET_RESET", bad)
    assert f"{topic}/0 at 100" in str(errors[0])


# --- membership -----------------------------------------------------------------------------------------------------

PROTOCOLS: list[tuple[Literal["classic", "consumer"], Any]] = [
    ("classic", "cooperative-sticky"),
    ("classic", "range"),
    ("consumer", "uniform"),
]


@pytest.mark.parametrize(("protocol", "assignor"), PROTOCOLS)
def test_members_share_partitions_under_every_protocol(
    kafka: KafkaFixture, protocol: Literal["classic", "consumer"], assignor: Any
) -> None:
    """One has all, two share, one leaves and the other has all again; offsets of the group commit all the while."""
    broker = KafkaBroker(Kafka(kafka.bootstrap, group_protocol=protocol, assignor=assignor))
    topic, group = make(broker, kafka.unique("t"), SIX), kafka.unique("g")
    one, two = Notes(), Notes()
    first = broker.member(group, topic, one)
    serve([first], lambda: len(one.held) == SIX)
    second = broker.member(group, topic, two)
    serve(
        [first, second], lambda: bool(two.held) and one.held | two.held == set(range(SIX)) and not one.held & two.held
    )
    assert len(two.held) == SIX // 2

    session = broker.session(kafka.unique("id"))
    session.init(timeout_s=20)
    session.begin()
    session.send_offsets({TopicPartition(topic, 0): 7}, second.metadata())
    assert session.commit() is None
    session.close()

    first.close(leave=True)
    assert one.held == set()
    serve([second], lambda: two.held == set(range(SIX)))
    second.close(leave=True)
    assert (two.held, one.lost, two.lost) == (set(), [], [])


def test_a_static_member_that_restarts_has_its_partitions_at_once(kafka: KafkaFixture, broker: KafkaBroker) -> None:
    """Closed without leaving, its place is kept; the group does not rebalance."""
    topic, group = make(broker, kafka.unique("t"), SIX), kafka.unique("g")
    notes, other_notes, again = Notes(), Notes(), Notes()
    member = broker.member(group, topic, notes, instance="w.1")
    other = broker.member(group, topic, other_notes, instance="w.2")
    serve([member, other], lambda: len(notes.held) == len(other_notes.held) == SIX // 2)
    held, generation = set(notes.held), other.metadata().generation
    member.close(leave=False)
    assert notes.held == set()
    assert sorted(broker.members(group)) == ["w.1", "w.2"]
    successor = broker.member(group, topic, again, instance="w.1")
    serve([successor, other], lambda: again.held == held)

    assert other.metadata().generation == generation
    successor.close(leave=True)
    assert broker.members(group) == ["w.2"]
    other.close(leave=True)


@pytest.mark.full
def test_a_static_member_of_the_consumer_protocol_waits_for_the_place_of_its_predecessor(
    kafka: KafkaFixture, caplog: pytest.LogCaptureFixture
) -> None:
    """A4: the brokers refuse it (M26), and its client fails for good; another one asks again until it has the place."""
    broker = KafkaBroker(Kafka(kafka.bootstrap, group_protocol="consumer"))
    topic, group = make(broker, kafka.unique("t"), SIX), kafka.unique("g")
    notes, again = Notes(), Notes()
    member = broker.member(group, topic, notes, instance="w.1")
    serve([member], lambda: len(notes.held) == SIX)
    assert broker.members(group) == ["w.1"]
    successor = broker.member(group, topic, again, instance="w.1")
    serve([member, successor], lambda: "another member still has this instance name" in caplog.text)
    assert successor.metadata().generation < 0
    member.close(leave=False)

    serve([successor], lambda: len(again.held) == SIX)
    successor.close(leave=True)
    assert broker.members(group) == ["w.1"]  # M32: until its session ends


def test_an_exception_of_the_listener_reaches_the_caller(kafka: KafkaFixture, broker: KafkaBroker) -> None:
    """It is not eaten by the client."""

    class Clumsy(Notes):
        def on_assign(self, partitions: Sequence[int]) -> None:
            raise ZeroDivisionError

    topic = make(broker, kafka.unique("t"))
    member = broker.member(kafka.unique("g"), topic, Clumsy())
    with pytest.raises(ZeroDivisionError):
        serve([member], lambda: False)
    member.close(leave=True)


# --- writing --------------------------------------------------------------------------------------------------------


def test_a_full_queue_is_waited_for(kafka: KafkaFixture) -> None:
    """More records than the queue holds, in one call, in order."""
    broker = KafkaBroker(Kafka(kafka.bootstrap, producer={"queue.buffering.max.messages": 500}))
    topic = make(broker, kafka.unique("t"))
    session = broker.session(kafka.unique("id"))
    session.init(timeout_s=20)
    session.begin()

    assert session.produce((topic, 0, None, str(n).encode(), None, 0) for n in range(5_000)) == 5_000
    assert session.flush() == FlushReport(5_000, 0)
    assert session.commit() is None
    session.close()


def test_a_refused_record_is_named(kafka: KafkaFixture, broker: KafkaBroker) -> None:
    """The broker refuses a message over the topic's limit; the error names the topic and partition."""
    topic = make(broker, kafka.unique("t"), config={"max.message.bytes": "1000"})
    session = broker.session(kafka.unique("id"))
    session.init(timeout_s=20)
    session.begin()
    session.produce([(topic, 0, None, random.Random(3).randbytes(5_000), None, 0), (topic, 0, None, b"small", None, 0)])
    with pytest.raises(AbortableError) as refused:
        session.flush()
    session.abandon()

    assert (refused.value.code, refused.value.at) == ("MSG_SIZE_TOO_LARGE", (topic, 0))


def test_throwing_away_is_quick_when_the_cluster_is_gone(kafka_fault_cluster: Any) -> None:
    """Whatever state the session is in: bounded, and without an exception."""
    cluster = kafka_fault_cluster()
    broker = KafkaBroker(Kafka(cluster.bootstrap, socket_timeout_s=2, transaction_timeout_s=6))
    topic = make(broker, "t")
    session, unused = broker.session("id"), broker.session("unused")
    session.init(timeout_s=20)
    session.begin()
    session.produce([(topic, 0, None, b"v", None, 0)])
    session.flush()
    cluster.nodes[0].kill()
    began = time.monotonic()
    session.produce([(topic, 0, None, b"w", None, 0)])
    session.abandon()
    unused.abandon()

    assert time.monotonic() - began < 3


def test_a_transaction_of_a_session_that_is_thrown_away_holds_up_no_reader(
    kafka: KafkaFixture, broker: KafkaBroker
) -> None:
    """P8: no session may take that id again for a while, and readers would wait for the transaction time-out (60 s)."""
    topic = make(broker, kafka.unique("t"))
    session = broker.session(kafka.unique("id"))
    session.init(timeout_s=20)
    session.begin()
    session.produce([(topic, 0, None, b"v", None, 0)])
    session.flush()
    session.abandon()

    place = TopicPartition(topic, 0)
    deadline = time.monotonic() + 20
    while (marks := broker.watermarks([place])[place]).stable < marks.high:
        assert time.monotonic() < deadline, "the transaction stays open"
    assert marks.high == 2, "one record, and the marker of the abort"


def test_an_abort_while_the_first_write_is_under_way_leaves_nothing(kafka: KafkaFixture, broker: KafkaBroker) -> None:
    """The client may have failed for good (librdkafka 4849); its session is thrown away, and the next one writes."""
    topic, name = make(broker, kafka.unique("t")), kafka.unique("id")
    for value in (b"thrown away", b"kept"):
        session = broker.session(name)
        session.init(timeout_s=20)
        session.begin()
        session.produce([(topic, 0, None, value, None, 0)])
        if value == b"kept":
            session.flush()
            session.commit()
            session.close()
        else:
            session.abandon()

    assert [message.value() for message in committed(kafka.bootstrap, topic)] == [b"kept"]


def test_an_application_sends_and_learns_the_places(kafka: KafkaFixture, broker: KafkaBroker) -> None:
    """Offsets in the order of the records, from several threads at once."""
    topic = make(broker, kafka.unique("t"))
    sender = broker.sender("app")
    places: list[int] = []

    def work() -> None:
        places.extend(sent.offset for sent in sender.send([(topic, 0, b"k", b"v", [("h", b"1")], 0)] * 50))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sender.close()

    assert sorted(places) == list(range(200))


def test_a_setting_that_the_cluster_refuses_is_left_out_if_the_topic_may_lack_it(
    broker: KafkaBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """Brokers refuse the smallest segments, as managed clusters refuse more settings than that."""
    topic = "settings-of-the-cluster"
    config = {"cleanup.policy": "compact", "segment.bytes": "1"}
    with pytest.raises(FatalError, match=r"segment\.bytes"):
        broker.create([NewTopic(topic, 1, config=config)])

    broker.create([NewTopic(topic, 1, config=config, may_lack=("segment.bytes",))])

    found = broker.facts([topic]).topics[topic].config
    assert found["cleanup.policy"] == "compact"
    assert int(found["segment.bytes"]) > 1 << 20
    assert "setting left to the cluster" in caplog.text
    caplog.clear()
    wrong = {"cleanup.policy": "x", "segment.bytes": str(1 << 24)}
    with pytest.raises(FatalError, match=r"cleanup\.policy"):
        broker.create([NewTopic(f"{topic}-2", 1, config=wrong, may_lack=("segment.bytes",))])
    assert "setting left to the cluster" not in caplog.text
    broker.delete([topic])

"""What the contract suite cannot ask of a real broker: virtual time, faults, misuse, threads, the same seed twice."""

from __future__ import annotations

import threading
import time

import pytest

from cues_kafka.brokers.memory import Faults, MemoryBroker
from cues_kafka.errors import AbortableError, BrokerError, FatalError, RetriableError, UnstableOffsets
from cues_kafka.ports.broker import Broker
from cues_kafka.ports.clients import FlushReport, GroupMetadata
from cues_kafka.ports.facts import NewTopic
from cues_kafka.ports.log import Fetched, Outgoing, TopicPartition
from tests.unit.samples import StandingClock

PLACE = TopicPartition("t", 0)
ONE = [Outgoing("t", 0, b"k", b"v")]


class SilentListener:
    """A listener that does nothing."""

    def on_assign(self, partitions: object) -> None: ...
    def on_revoke(self, partitions: object) -> None: ...
    def on_lost(self, partitions: object) -> None: ...


class Plan(Faults):
    """Faults by operation: raise before, raise after, or call a commit suspect."""

    def __init__(self) -> None:
        self.refused: set[str] = set()
        self.unanswered: set[str] = set()
        self.suspect: str | None = None
        self.seen: list[tuple[str, str]] = []

    def before(self, operation: str, client: str) -> None:
        self.seen.append((operation, client))
        if operation in self.refused:
            raise RetriableError("not applied", code="_TRANSPORT")

    def after(self, operation: str, client: str) -> str | None:
        if operation in self.unanswered:
            raise RetriableError("applied, reply lost", code="_TIMED_OUT")
        return self.suspect


def a_broker(faults: Plan | None = None, **options: float) -> MemoryBroker:
    broker = MemoryBroker(StandingClock(), faults=faults, **options)  # type: ignore[arg-type]
    broker.create([NewTopic("t", 1)])
    return broker


def metadata(broker: MemoryBroker) -> GroupMetadata:
    member = broker.member("g", "t", SilentListener())
    member.poll()
    return member.metadata()


def values(broker: MemoryBroker) -> list[bytes | None]:
    return [message.value() for message in broker.messages("t")]


def test_it_is_a_broker() -> None:
    """For the type checker as much as for the reader."""
    broker: Broker = MemoryBroker()

    assert broker.facts(["missing"]).brokers == 1


def test_the_same_seed_gives_the_same_topic_ids() -> None:
    """Simulations are repeated by their seed."""

    def ids(seed: int) -> list[bytes]:
        broker = MemoryBroker(seed=seed)
        broker.create([NewTopic("a", 1), NewTopic("b", 1)])
        return [facts.topic_id for facts in broker.facts(["a", "b"]).topics.values()]

    assert ids(7) == ids(7)
    assert len({*ids(7), *ids(8)}) == 4


def test_a_transaction_times_out_on_the_virtual_clock() -> None:
    """Counted from its first write; the owner is refused afterwards."""
    clock = StandingClock()
    broker = MemoryBroker(clock, transaction_timeout_s=60)
    broker.create([NewTopic("t", 1)])
    session = broker.session("id")
    session.init(timeout_s=1)
    session.begin()
    clock.s += 100  # nothing has been written: nothing times out
    session.produce(ONE)
    clock.s += 59
    assert broker.watermarks([PLACE])[PLACE] == (0, 0, 1)

    clock.s += 1

    assert broker.watermarks([PLACE])[PLACE] == (0, 2, 2)
    with pytest.raises(FatalError) as refused:
        session.commit()
    assert refused.value.fenced


def test_a_poll_does_not_wait_under_virtual_time() -> None:
    """No test would move the clock meanwhile."""
    reader = a_broker().reader("r")
    began = time.monotonic()

    assert reader.poll(60) == []

    assert time.monotonic() - began < 5


def test_a_waiting_poll_wakes_up_when_a_transaction_commits() -> None:
    """Under real time it waits for the event, not for the end of its time."""
    broker = MemoryBroker()
    broker.create([NewTopic("t", 1)])
    reader = broker.reader("r")
    reader.assign({PLACE: 0})
    assert reader.poll(0) == [Fetched(PLACE, [], 0)]
    session = broker.session("id")
    session.init(timeout_s=1)
    session.begin()
    session.produce(ONE)
    found: list[Fetched] = []
    thread = threading.Thread(target=lambda: found.extend(reader.poll(30)))
    thread.start()

    session.commit()
    thread.join(10)

    assert [(len(fetched.messages), fetched.eof) for fetched in found] == [(1, 2)]


def test_a_waiting_poll_wakes_up_when_a_transaction_times_out() -> None:
    """The end moves over the abort marker, and no other client touches the broker."""
    broker = MemoryBroker(transaction_timeout_s=0.05)
    broker.create([NewTopic("t", 1)])
    reader = broker.reader("r")
    reader.assign({PLACE: 0})
    reader.poll(0)
    session = broker.session("id")
    session.init(timeout_s=1)
    session.begin()
    session.produce(ONE)

    assert reader.poll(30) == [Fetched(PLACE, [], 2)]


def test_many_threads_lose_and_double_nothing() -> None:
    """One lock: tasks commit side by side."""
    broker = MemoryBroker()
    broker.create([NewTopic("t", 1)])

    def work(name: str) -> None:
        session = broker.session(name)
        session.init(timeout_s=1)
        for n in range(50):
            session.begin()
            session.produce([Outgoing("t", 0, b"k", f"{name}{n}".encode())] * 2)
            assert session.flush().delivered == 2
            session.commit()

    threads = [threading.Thread(target=work, args=(f"{i}.",)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)

    found = values(broker)
    assert len(found) == 400
    assert all(found.count(value) == 2 for value in set(found))
    assert broker.watermarks([PLACE])[PLACE] == (0, 600, 600)


# ---- faults


@pytest.mark.parametrize("operation", ["init", "offsets", "produce", "commit"])
@pytest.mark.parametrize("applied", [False, True])
def test_a_fault_in_a_transaction_ends_the_session_and_init_heals(operation: str, applied: bool) -> None:
    """P8: whether the request was applied or not, the next session finds a decided world."""
    faults = Plan()
    broker = a_broker(faults)
    proof = metadata(broker)
    (faults.unanswered if applied else faults.refused).add(operation)
    session = broker.session("id")

    with pytest.raises(RetriableError):
        _transaction(session, proof)
    with pytest.raises(FatalError):
        session.begin()

    faults.refused.clear()
    faults.unanswered.clear()
    fresh = broker.session("id")
    fresh.init(timeout_s=1)
    decided = applied and operation == "commit"
    low, stable, high = broker.watermarks([PLACE])[PLACE]
    assert (low, stable) == (0, high)
    assert values(broker) == ([b"v"] if decided else [])
    assert broker.committed("g", [PLACE]) == {PLACE: 1 if decided else None}


def test_a_fault_of_a_produced_record_shows_at_the_flush() -> None:
    """As with a real client, which only enqueues in produce."""
    faults = Plan()
    faults.refused.add("produce")
    session = a_broker(faults).session("id")
    session.init(timeout_s=1)
    session.begin()

    assert session.produce(ONE) == 1
    with pytest.raises(RetriableError):
        session.flush()


def test_a_commit_can_be_made_suspect() -> None:
    """P8: it succeeded, and yet the producer must go."""
    faults = Plan()
    faults.suspect = "it took too long"
    broker = a_broker(faults)
    session = broker.session("id")
    session.init(timeout_s=1)

    assert _transaction(session, metadata(broker)) == "it took too long"
    assert values(broker) == [b"v"]


def test_faults_are_told_the_operation_and_who_asks() -> None:
    """Names are the interface of the simulation."""
    faults = Plan()
    broker = a_broker(faults)
    session = broker.session("id")
    session.init(timeout_s=1)
    _transaction(session, metadata(broker))
    broker.sender("app").send(ONE)
    broker.committed("g", [PLACE])
    broker.watermarks([PLACE])
    broker.facts(["t"])
    session.begin()
    session.produce(ONE)
    session.abandon()

    assert faults.seen == [
        ("init", "id"),
        ("offsets", "id"),
        ("produce", "id"),
        ("commit", "id"),
        ("send", "app"),
        ("committed", "g"),
        ("watermarks", ""),
        ("facts", ""),
        ("produce", "id"),
        ("abort", "id"),
    ]


# ---- sessions


def test_an_abandoned_transaction_is_aborted_where_the_broker_still_listens() -> None:
    """So that readers do not wait behind it; where the abort fails it stays open, and nothing is raised."""
    faults = Plan()
    broker = a_broker(faults)
    for refused, expected in ((set[str](), (0, 2, 2)), ({"abort"}, (0, 2, 3))):
        faults.refused = refused
        session = broker.session("id")
        session.init(timeout_s=1)
        session.begin()
        session.produce(ONE)
        session.abandon()
        session.abandon()

        assert broker.watermarks([PLACE])[PLACE] == expected


def test_a_killed_session_leaves_its_transaction_open() -> None:
    """A process that dies calls nothing."""
    broker = a_broker()
    session = broker.session("id")
    session.init(timeout_s=1)
    session.begin()
    session.send_offsets({PLACE: 1}, metadata(broker))
    session.produce(ONE)
    del session

    assert broker.watermarks([PLACE])[PLACE] == (0, 0, 1)
    with pytest.raises(UnstableOffsets):
        broker.committed("g", [PLACE])


def test_a_session_is_used_in_its_order_only() -> None:
    """What a real client calls an invalid state."""
    broker = a_broker()
    session = broker.session("id")
    for call in (session.begin, session.flush, session.commit):
        with pytest.raises(FatalError):
            call()
    session.init(timeout_s=1)
    with pytest.raises(FatalError):
        session.produce(ONE)
    session.begin()
    with pytest.raises(FatalError):
        session.begin()
    with pytest.raises(FatalError, match="abandon"):
        session.close()


def test_a_fenced_session_says_so_ever_after() -> None:
    """The reason of the first refusal is the answer to every later call."""
    broker = a_broker()
    session = broker.session("id")
    session.init(timeout_s=1)
    broker.session("id").init(timeout_s=1)
    session.begin()
    with pytest.raises(FatalError):
        session.send_offsets({PLACE: 1}, metadata(broker))

    for call in (session.begin, session.flush, session.commit):
        with pytest.raises(BrokerError) as refused:
            call()
        assert refused.value.fenced


def test_an_empty_transaction_asks_nothing_of_the_cluster() -> None:
    """As librdkafka sends no EndTxn for it."""
    broker = a_broker()
    session = broker.session("id")
    session.init(timeout_s=1)
    session.begin()

    assert session.flush() == FlushReport(0, None)
    assert session.commit() is None
    assert broker.watermarks([PLACE])[PLACE] == (0, 0, 0)


def test_a_missing_topic_is_named() -> None:
    """By writers at the flush, by readers once at the poll, by questions at once."""
    broker = a_broker()
    lost = TopicPartition("lost", 0)
    session = broker.session("id")
    session.init(timeout_s=1)
    session.begin()
    session.produce([Outgoing("lost", 0, b"k", b"v")])
    with pytest.raises(AbortableError, match="lost/0"):
        session.flush()
    reader = broker.reader("r")
    reader.assign({lost: 0, PLACE: 0})
    assert reader.poll(0) == [Fetched(PLACE, [], 0)]
    with pytest.raises(BrokerError) as refused:
        reader.poll(0)
    assert refused.value.at == lost
    assert reader.poll(0) == []
    with pytest.raises(BrokerError):
        broker.watermarks([lost])


def test_deleting_a_topic_takes_it_out_of_open_transactions() -> None:
    """The rest of the transaction commits."""
    broker = a_broker()
    broker.create([NewTopic("u", 1)])
    session = broker.session("id")
    session.init(timeout_s=1)
    session.begin()
    session.produce([*ONE, Outgoing("u", 0, b"k", b"v")])

    broker.delete(["u", "never there"])
    session.commit()

    assert values(broker) == [b"v"]
    assert broker.messages("u") == []


def test_a_reader_serves_all_its_partitions_in_turn() -> None:
    """One that always has more does not starve the others."""
    broker = MemoryBroker(StandingClock())
    broker.create([NewTopic("t", 2)])
    broker.sender("s").send([Outgoing("t", n % 2, b"k", b"v") for n in range(20)])
    reader = broker.reader("r")
    reader.assign({TopicPartition("t", 0): 0, TopicPartition("t", 1): 0})

    first = [fetched.partition.partition for _ in range(4) for fetched in reader.poll(0, 3)]

    assert first == [0, 1, 0, 1]


def test_topics_that_cannot_be_are_refused() -> None:
    """With the reason."""
    broker = MemoryBroker()
    for topic in (NewTopic("a b", 1), NewTopic("a", 0), NewTopic("a", 1, replication=3)):
        with pytest.raises(BrokerError):
            broker.create([topic])


def _transaction(session: object, proof: GroupMetadata) -> str | None:
    from cues_kafka.brokers.memory import MemorySession

    assert isinstance(session, MemorySession)
    if session._state == "new":
        session.init(timeout_s=1)
    session.begin()
    session.send_offsets({PLACE: 1}, proof)
    session.produce(ONE)
    session.flush()
    return session.commit()


def test_an_operator_lets_the_offsets_of_a_group_expire() -> None:
    """Afterwards there are none, as after `offsets.retention.minutes` without a member."""
    broker = a_broker()
    group = metadata(broker)
    session = broker.session("id")
    session.init(timeout_s=1.0)
    session.begin()
    session.send_offsets({PLACE: 3}, group)
    session.commit()
    assert broker.committed("g", [PLACE]) == {PLACE: 3}

    broker.forget_offsets("g")

    assert broker.committed("g", [PLACE]) == {PLACE: None}

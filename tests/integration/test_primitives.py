"""Topics as objects, tailers, transactions by hand and ids: the same in memory and on Kafka (K1, K3, K4)."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from cues_kafka import (
    ClientTopic,
    ConfigError,
    FatalError,
    Json,
    Kafka,
    Memory,
    Message,
    Raw,
    RecoveryError,
    Topic,
    Unknown,
    alts,
    connect,
)
from cues_kafka.brokers.open import open_broker
from cues_kafka.client.connect import Connection
from cues_kafka.ports.broker import Broker
from cues_kafka.ports.facts import NewTopic
from cues_kafka.ports.log import TopicPartition
from cues_kafka.testing.fixtures import KafkaFixture

ROOT = Path(__file__).parents[2]
HOUR_AGO = datetime.now(UTC) - timedelta(hours=1)


class Place:
    """A cluster, with names that no other test has."""

    def __init__(self, options: Kafka | Memory, unique: Callable[[str], str], closing: ExitStack) -> None:
        self.options, self.unique, self._closing = options, unique, closing
        self.broker: Broker = open_broker(options)
        closing.callback(self.broker.close)

    def topic(self, partitions: int = 1, config: dict[str, str] | None = None) -> str:
        """A new topic."""
        name = self.unique(f"t{next(_numbers)}")
        self.broker.create([NewTopic(name, partitions, config=config or {})])
        return name

    def connect(self, name: str | None = None) -> Connection:
        """A client that closes with the test."""
        client = connect(self.options, name=name and self.unique(name))
        self._closing.callback(client.close)
        return client

    def left_open(self, topic: str, client: str = "dead") -> None:
        """Leave a transaction open, as a killed run of a client does; a client with this name ends it."""
        session = self.broker.session(f"{self.unique(client)}.send")
        self._closing.callback(session.abandon)
        session.init(timeout_s=30)
        session.begin()
        session.produce([(topic, 0, None, b'"lost"', [("cues-id", b"lost")], 0)])
        session.flush()


_numbers = iter(range(10_000))


@pytest.fixture(params=["memory", "kafka"])
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    """Both brokers."""
    with ExitStack() as closing:
        if request.param == "memory":
            yield Place(Memory(), lambda name: name, closing)
        else:
            kafka: KafkaFixture = request.getfixturevalue("kafka")
            yield Place(Kafka(kafka.bootstrap), kafka.unique, closing)


def values(found: Any) -> list[Any]:
    return [message.value for message in found]


def when_shown(topic: ClientTopic, offset: int) -> None:
    """Wait until readers see the message at this offset: a commit returns a moment before."""
    with topic.tailer(start=offset) as tailer:
        assert tailer.read_blocking(10) is not None


def test_a_topic_is_created_written_and_asked(place: Place) -> None:
    """With its own codec, key and partitions."""
    name = place.unique("created")
    client = place.connect()
    with pytest.raises(ConfigError, match="does not exist"):
        client.topic(name)
    pairs = client.topic(name, Topic(value=Json(list), partitions=2), create=True)
    assert (pairs.partitions, pairs.last_offset(1)) == (2, None)
    appender = pairs.appender()
    first = appender.append(Message(["a", 1], partition=1))
    assert (first.partition, first.offset, appender.last) == (1, 0, first)
    assert appender.append(["b", 2], key="k", headers={"h": "x"}).partition == pairs.append(["c", 3], key="k").partition
    assert pairs.last_offset(1) in (0, 2)
    assert sorted(values(pairs.messages())) == [["a", 1], ["b", 2], ["c", 3]]
    raw = client.topic(name, Topic(value=Raw()), create=True)
    assert sorted(values(raw.messages())) == [b'["a",1]', b'["b",2]', b'["c",3]']
    with pytest.raises(ConfigError, match="has partitions 0 to 1, not 2"):
        pairs.last_offset(2)


def test_a_tailer_moves_both_ways_over_markers(place: Place) -> None:
    """What is aborted or a marker has offsets, and is no message."""
    client = place.connect()
    topic = client.topic(place.topic())
    client.send_many(topic.name, range(30))
    client.send_many(topic.name, range(30, 40))
    when_shown(topic, 31)
    with topic.tailer() as tailer:
        assert (tailer.offset, tailer.last_read_offset) == (0, None)
        assert values(tailer.messages(limit=2)) == [0, 1]
        assert (tailer.offset, tailer.last_read_offset) == (2, 1)
        assert [tailer.peek().value, tailer.peek().value, tailer.read().value] == [2, 2, 2]  # type: ignore[union-attr]
        tailer.direction = "backward"
        assert values(tailer.messages()) == [2, 1, 0]
        assert tailer.read() is None
        assert tailer.read_blocking() is None
        tailer.direction = "forward"
        assert values(tailer.messages()) == list(range(40))
        assert tailer.offset == 42
        tailer.direction = "backward"
        assert values(tailer.messages()) == list(reversed(range(40)))
        assert values(tailer.to_end().messages(limit=1)) == [39]
        tailer.direction = "forward"
        assert values(tailer.seek(31).messages(limit=1)) == [30]
        assert tailer.to_start().offset == 0
        for wrong, said in ((43, "has 0 to 42"), (-1, "has 0 to 42"), (True, "has 0 to 42"), ({1: 0}, "not 1")):
            with pytest.raises(ConfigError, match=said):
                tailer.seek(wrong)
        with pytest.raises(ConfigError, match="'forward' or 'backward'"):
            tailer.direction = "up"  # type: ignore[assignment]
    with pytest.raises(RuntimeError, match="is closed"):
        tailer.read()


def test_a_tailer_of_all_partitions_has_offsets_by_partition(place: Place) -> None:
    """Backward, the newest by timestamp comes first."""
    client = place.connect()
    topic = client.topic(place.topic(2))
    for number in range(6):
        time_ms = int(HOUR_AGO.timestamp() * 1000) + number
        topic.append(Message(number, partition=number % 2, timestamp_ms=time_ms))
    with topic.tailer(None) as tailer:
        assert tailer.offset == {0: 0, 1: 0}
        assert sorted(values(tailer.messages())) == list(range(6))
        assert (tailer.offset, tailer.last_read_offset) == ({0: 3, 1: 3}, {0: 2, 1: 2})
        tailer.direction = "backward"
        assert values(tailer.messages()) == [5, 4, 3, 2, 1, 0]
        tailer.direction = "forward"
        assert values(tailer.seek({1: 2}).messages(limit=1)) in ([0], [5])
        assert tailer.to_time(HOUR_AGO + timedelta(milliseconds=4)).offset == {0: 2, 1: 2}
        assert tailer.to_time(timedelta(minutes=1)).offset == {0: 3, 1: 3}
        with pytest.raises(ConfigError, match="Give a mapping"):
            tailer.seek(1)
    assert topic.tailer(None, start={0: 1}).offset == {0: 1, 1: 0}
    assert topic.tailer(1, start=HOUR_AGO + timedelta(milliseconds=2)).offset == 1
    assert topic.tailer(start="latest").offset == 3
    with pytest.raises(ConfigError, match="has partitions 0 to 1"):
        topic.tailer(2)
    with pytest.raises(ConfigError, match="give 'earliest', 'latest'"):
        topic.tailer(start="newest")  # type: ignore[arg-type]


def test_a_tailer_waits_for_a_message_and_can_be_woken(place: Place) -> None:
    """By time, by an event, from another thread, and by its end; a second thread is refused meanwhile."""
    client = place.connect()
    topic = client.topic(place.topic())
    tailer, event = topic.tailer(), threading.Event()

    def within(seconds: float, call: Callable[[], object], meanwhile: Callable[[], object]) -> Any:
        found: list[object] = []
        thread = threading.Thread(target=lambda: found.append(call()))
        thread.start()
        began_s = time.monotonic()
        while not tailer._using.locked() and thread.is_alive():
            time.sleep(0.001)
        meanwhile()
        thread.join(seconds)
        assert not thread.is_alive()
        return found[0], time.monotonic() - began_s

    assert tailer.read_blocking(0) is None
    assert within(10, lambda: tailer.read_blocking(0.1), lambda: None)[0] is None
    assert within(5, lambda: tailer.read_blocking(unblock=event), event.set)[0] is None
    event.clear()

    def second_thread() -> None:
        with pytest.raises(RuntimeError, match="used by another thread"):
            tailer.read()
        tailer.unblock()

    assert within(5, tailer.read_blocking, second_thread)[0] is None
    assert within(10, tailer.read_blocking, lambda: topic.append("there"))[0].value == "there"
    assert within(5, tailer.read_blocking, tailer.close)[0] is None


def test_alts_takes_the_oldest_of_what_is_there(place: Place) -> None:
    """Only the tailer that it returns moves."""
    client = place.connect()
    one, two = (client.topic(place.topic()) for _ in range(2))
    with one.tailer() as a, two.tailer() as b:
        assert alts([a, b], timeout_s=0) is None
        began_s = time.monotonic()
        assert alts([a, b], timeout_s=0.2) is None
        assert 0.15 < time.monotonic() - began_s < 5
        now_ms = int(time.time() * 1000)
        two.append(Message("first", timestamp_ms=now_ms - 5))
        one.append(Message("second", timestamp_ms=now_ms))
        found = [alts([a, b], timeout_s=10) for _ in range(2)]
        assert [(t, m.value) for t, m in filter(None, found)] == [(b, "first"), (a, "second")]
        threading.Timer(0.1, lambda: two.append("later")).start()
        waited = alts([a, b], timeout_s=10)
        assert waited is not None
        assert (waited[0], waited[1].value, a.offset, b.offset) == (b, "later", 1, 2)
        b.unblock()
        assert alts([a, b]) is None
        a.direction = "backward"
        with pytest.raises(ConfigError, match="read forward"):
            alts([a, b])


def test_a_transaction_is_seen_as_a_whole_or_not_at_all(place: Place) -> None:
    """Nothing is sent before its end."""
    client = place.connect("writer")
    one, two = place.topic(), place.topic(2)
    with suppress(ZeroDivisionError), client.transaction() as tx:
        tx.append(one, 1)
        raise ZeroDivisionError
    with client.transaction() as tx:
        assert not client.messages(one)
        tx.append(one, 1, key="k", headers={"a": "b"})
        tx.append(client.topic(two), 2, id="i")
    when_shown(client.topic(one), 0)
    [first], [second] = client.messages(one), list(_shown(client, two, 1))
    assert (first.value, first.key, first.headers) == (1, "k", [("a", b"b")])
    assert (second.value, second.headers) == (2, [("cues-id", b"i")])
    with pytest.raises(ConfigError, match="is over"):
        tx.append(one, 3)
    with client.transaction():
        pass
    assert client.send_many(one, []) == 0


def _shown(client: Connection, topic: str, count: int) -> list[Any]:
    deadline = time.monotonic() + 10
    while len(found := list(client.messages(topic))) < count:
        assert time.monotonic() < deadline
    return found


def test_a_named_tailer_goes_on_where_its_last_transaction_left_it(place: Place) -> None:
    """What a run reads and does not commit is read again; the start counts from the first opening."""
    source, target = place.topic(), place.topic()
    client = place.connect("loop")
    for number in range(5):
        client.send(source, number)
    tailer = client.topic(source).tailer(name="copy")
    for _ in range(2):
        with client.transaction() as tx:
            tx.append(target, tailer.read().value * 10)  # type: ignore[union-attr]
            tx.advance(tailer)
    assert tailer.read().value == 2  # type: ignore[union-attr]
    assert tailer.to_place().offset == 2
    with suppress(ZeroDivisionError), client.transaction() as tx:
        tailer.read()
        tx.advance(tailer)
        raise ZeroDivisionError
    assert tailer.offset == 2
    with pytest.raises(ConfigError, match="is open in this client already"):
        client.topic(source).tailer(name="copy")
    client.close()

    again = place.connect("loop")
    with (
        again.topic(source).tailer(name="copy") as tailer,
        again.topic(source).tailer(name="new", start="latest") as new,
    ):
        assert values(tailer.messages()) == [2, 3, 4]
        with again.transaction() as tx:
            tx.advance(tailer)
            with pytest.raises(ConfigError, match="can store only one"):
                tx.advance(new)
        again.send(source, 5)
    assert values(_shown(again, target, 2)) == [0, 10]
    with again.topic(source).tailer(name="copy") as tailer, again.topic(source).tailer(name="new") as new:
        assert (values(tailer.messages()), values(new.messages())) == ([5], [5])
    with again.topic(source).tailer(name="copy", again=True) as tailer:
        assert tailer.offset == 0
    place.broker.add_partitions(source, 2)
    again.close()
    again = place.connect("loop")
    again.send(source, Message(6, partition=1))
    with again.topic(source).tailer(None, name="copy", start="latest") as tailer:
        assert tailer.offset == {0: 0, 1: 0}
        assert 6 in values(tailer.messages())
    with (
        again.topic(source).tailer() as plain,
        pytest.raises(ConfigError, match="has no name"),
        again.transaction() as tx,
    ):
        tx.advance(plain)
    with pytest.raises(ConfigError, match="write connect"):
        place.connect().topic(source).tailer(name="copy")


def test_the_second_holder_of_a_tailer_fences_the_first(place: Place) -> None:
    """The first one can no longer write, and says why."""
    source, target = place.topic(2), place.topic()
    first, second = place.connect("holder"), place.connect("holder")
    second.send(source, Message(1, partition=0))
    one = first.topic(source).tailer(None, name="same")
    two = second.topic(source).tailer(None, name="same")
    for client, tailer in ((second, two), (first, one)):
        tailer.read_blocking(10)
        tx = client.transaction()
        tx.append(target, tailer.name)
        tx.advance(tailer)
        if client is second:
            tx.commit()
        else:
            for _ in range(2):
                with pytest.raises(FatalError, match=r"'same' .* was opened by another"):
                    tx.commit()
                tx = client.transaction()
                tx.append(target, "more")
                tx.advance(tailer)
    assert len(_shown(second, target, 1)) == 1
    with pytest.raises(FatalError, match=r"the client '.*holder' was opened by another"):
        first.send(target, 1, id="x")
    assert first.send(target, "plain sends need no id").offset > 0


def test_a_place_whose_messages_are_gone_is_refused(place: Place) -> None:
    """A tailer skips nothing by itself, and reads no other topic of the same name."""
    source = place.topic()
    client = place.connect("careful")
    topic = client.topic(source)
    topic.append(1), topic.append(2)
    open_one = topic.tailer()
    assert open_one.read().value == 1  # type: ignore[union-attr]
    open_one.to_start()
    with topic.tailer(name="t") as tailer:
        assert tailer.offset == 0
    place.broker.trim({TopicPartition(source, 0): 2})
    with pytest.raises(
        RecoveryError, match=r"'t' is at offset 0 of .*, which has offsets 2 to 2: the messages between were deleted"
    ):
        topic.tailer(name="t")
    with pytest.raises(RecoveryError, match="is at offset 0"):
        open_one.read_blocking(5)
    topic.append(3)
    assert open_one.to_start().read_blocking(10).value == 3  # type: ignore[union-attr]
    with topic.tailer(name="t", again=True) as tailer:
        assert tailer.read_blocking(10).value == 3  # type: ignore[union-attr]
    place.broker.delete([source])
    place.broker.create([NewTopic(source, 1)])
    client.close()
    client = place.connect("careful")
    with pytest.raises(RecoveryError, match="was recreated after tailer 't' had stored"):
        client.topic(source).tailer(name="t")


def test_a_sent_message_is_found_by_its_id(place: Place) -> None:
    """In any partition, by this run or an earlier one; what is not there is certainly not there."""
    topic = place.topic(3)
    with place.connect("seller") as client:
        sent = {f"o-{n}": client.send(topic, n, id=f"o-{n}", key=str(n)) for n in range(5)}
        client.send(topic, Message("other", headers={"cues-id": "o-9"}), id="o-10")
    place.left_open(topic, "seller")
    client = place.connect("seller")
    assert {one: client.sent(topic, one) for one in sent} == sent
    assert len({place.partition for place in sent.values()}) > 1
    assert client.sent(topic, "o-9") is None
    assert client.sent(topic, "lost") is None
    assert client.topic(topic).sent("o-10") is not None
    assert client.sent(topic, "o-3", since=timedelta(hours=1)) == sent["o-3"]
    assert client.sent(topic, "o-3", since=datetime.now(UTC) + timedelta(minutes=1)) is None
    at = sent["o-3"]
    assert client.sent(topic, "o-3", since={at.partition: at.offset}) == at
    assert client.sent(topic, "o-3", since={at.partition: at.offset + 1}) is None
    with pytest.raises(ConfigError, match="has no partition 3"):
        client.sent(topic, "o-3", since={3: 0})
    with pytest.raises(ConfigError, match="needs a client with a name"):
        place.connect().sent(topic, "o-3")
    for wrong in ("", 7):
        with pytest.raises(ConfigError, match="an id is text"):
            client.send(topic, 1, id=wrong)  # type: ignore[arg-type]


def test_what_cannot_be_known_is_said(place: Place) -> None:
    """Never None, where the message may have been there."""
    compacted, trimmed, hidden = place.topic(config={"cleanup.policy": "compact"}), place.topic(), place.topic()
    client = place.connect("asker")
    client.send(compacted, 1, key="k", id="there")
    assert client.sent(compacted, "there") is not None
    with pytest.raises(Unknown, match="but the topic is compacted"):
        client.sent(compacted, "gone")
    for number in range(3):
        client.send(trimmed, Message(number, timestamp_ms=int(HOUR_AGO.timestamp() * 1000) + number), id=str(number))
    when_shown(client.topic(trimmed), 4)
    place.broker.trim({TopicPartition(trimmed, 0): 2})
    assert client.sent(trimmed, "2") is not None
    for since in (None, {0: 1}, HOUR_AGO):
        with pytest.raises(Unknown, match="begins at offset 2: what was before is deleted"):
            client.sent(trimmed, "0", since=since)
    assert client.sent(trimmed, "0", since=HOUR_AGO + timedelta(milliseconds=2)) is None
    assert client.sent(trimmed, "0", since={0: 2}) is None
    place.left_open(hidden)
    with pytest.raises(Unknown, match=r"has been open for 0\.5 s .* hides the messages after it"):
        client.sent(hidden, "x", timeout_s=0.5)
    place.connect("dead")  # ends what its former run left open
    assert client.sent(hidden, "lost") is None


def test_messages_are_read_when_they_are_looked_at(place: Place) -> None:
    """Up to the end that the topic had, and again with each look, until all are kept."""
    client = place.connect()
    topic = client.topic(place.topic())
    client.send_many(topic.name, range(50))
    when_shown(topic, 49)
    found = client.messages(topic.name)
    topic.append("later")
    assert next(iter(found)).value == 0
    assert values(found) == values(found) == list(range(50))
    assert (bool(found), bool(client.messages(topic.name, 0)), found == list(found)) == (True, False, False)
    assert repr(found).endswith(", ...]")
    assert (len(found), found[-1].value, values(found[1:3])) == (50, 49, [1, 2])
    assert values(client.messages(topic.name, 2)) == [0, 1]
    with pytest.raises(ConfigError, match="limit=-1"):
        client.messages(topic.name, -1)
    with pytest.raises(ConfigError, match="all topics of a graph"):
        client.messages()


@pytest.mark.parametrize("name", ["a b", "a..b", "", "send", "team.send", "x" * 81])
def test_a_name_that_cannot_be_on_the_cluster_is_refused(name: str) -> None:
    """Before anything is opened."""
    with pytest.raises(ConfigError, match="name"):
        connect(Memory(), name=name)


@pytest.mark.parametrize("runs", [1, pytest.param(2, marks=pytest.mark.full)])
def test_the_example_bills_each_order_once(kafka: KafkaFixture, tmp_path: Path, runs: int) -> None:
    """Also in its second run."""
    text = (ROOT / "examples" / "by_hand.py").read_text(encoding="utf-8")
    program = tmp_path / "by_hand.py"
    program.write_text(
        text.replace("localhost:9092", kafka.bootstrap).replace('"by-hand', f'"{kafka.unique("by-hand")}')
    )
    for _ in range(runs):
        done = subprocess.run(
            [sys.executable, program],
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines() == [f"ann {{'order': 'o-{n}', 'due': {100 + n}}}" for n in range(5)]

"""E1: messages to JMS brokers by STOMP, exactly once; a small broker on loopback takes the place of a real one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from functools import partial
from typing import Any
from unittest.mock import patch

import pytest

from cues_kafka import CommitPolicy, Graph, GraphError, Message, OutputError, Processor, Sink, Source, Stomp, Topic
from cues_kafka.bridges.destinations import BrokerSender
from cues_kafka.bridges.marker import PROBE, MarkerMessage, MarkerTransactions, shared_markers
from cues_kafka.bridges.stomp.marker import StompMarkers
from cues_kafka.bridges.stomp.messages import message_of
from cues_kafka.bridges.stomp.session import GUARD
from cues_kafka.bridges.stomp.target import StompDestination, StompTarget
from cues_kafka.errors import ConfigError, RecoveryError, RetriableError, TaskStopped
from cues_kafka.graph.declare import Raw
from cues_kafka.graph.effects import Effect
from cues_kafka.targets import TargetMoved, TaskName
from cues_kafka.testing.targets import TargetContract
from cues_kafka.testing.tester import Crash, Tester
from tests.unit.bridges.stomp.broker import FakeBroker, fake_broker

TASK = TaskName("shop", "tell", 0)
MARKER = "/queue/cues.marker.shop.tell.0"


def classic() -> Iterator[FakeBroker]:
    """A broker that calls itself ActiveMQ Classic. It gives all messages of a queue to its first consumer."""
    with fake_broker() as broker:
        broker.connected["server"] = "ActiveMQ/5.17.2"
        yield broker


broker = pytest.fixture(classic)


def stomp(broker: FakeBroker, **given: Any) -> Stomp:
    """A declaration with short times."""
    return Stomp(f"stomp://127.0.0.1:{broker.port}", **{"heart_beat_s": 0.2, "timeout_s": 1.0, **given})


def bodies(broker: FakeBroker, name: str) -> list[bytes]:
    """What lies in a queue or a topic."""
    with broker.lock:
        return [one.body for one in broker.queues.get(name, ())]


class TestContract(TargetContract):
    """The contract of targets, with a broker in this process."""

    most_lines = 6

    @pytest.fixture
    def target(self, broker: FakeBroker) -> Effect:
        self.broker = broker
        return stomp(broker).to_queue("numbers")

    def write(self, into: Any, number: int) -> None:
        into.send(str(number))

    def read(self, target: Any) -> Iterable[int]:
        return map(int, bodies(self.broker, "/queue/numbers"))


def transactions(broker: FakeBroker) -> MarkerTransactions:
    """What a task opens."""
    return stomp(broker).target().open(TASK)


def test_marker_is_one_message_that_moves_with_the_data(broker: FakeBroker) -> None:
    """The transaction takes the old one, and sends data and the next one."""
    with closing(transactions(broker)) as owner:
        assert owner.ask() is None
        owner.fence(b"one", None)
        owner.begin()
        owner.write(message_of("queue", "out", "text", {"n": 1}))
        owner.write(message_of("topic", "news", b"\0", {}))
        assert bodies(broker, "/queue/out") == []
        owner.commit(b"two", b"one")
        assert owner.ask() == b"two"
        assert broker.left(MARKER) == 1
        assert bodies(broker, "/queue/out") == [b"text"]
        assert bodies(broker, "/topic/news") == [b"\0"]
        with pytest.raises(TargetMoved):
            owner.fence(b"three", b"one")


@pytest.mark.parametrize("waits_in", ["guard", "consume", "probe"])
def test_owner_that_is_closed_while_it_asks_leaves_no_connection(waits_in: str, broker: FakeBroker) -> None:
    """The process gives the task up meanwhile. Its connection would keep the queue from the next owner."""
    owner = transactions(broker)
    does = getattr(StompMarkers, waits_in)

    def closes(session: StompMarkers, queue: str) -> Any:
        owner.close()
        return does(session, queue)

    with patch.object(StompMarkers, waits_in, closes), pytest.raises(OSError, match="closed"):
        owner.ask()
    with broker.news:
        assert broker.news.wait_for(lambda: not broker.links, 20.0)


def test_second_owner_waits_for_the_connection_of_the_first_one(broker: FakeBroker) -> None:
    """It learns by its probe that it has the queue. Of the first one's open transaction nothing stays."""
    first = transactions(broker)
    assert first.ask() is None
    first.fence(b"one", None)
    first.begin()
    first.write(message_of("queue", "out", "void", {}))
    second = transactions(broker)
    with pytest.raises(TimeoutError, match=r"Another process has the queue cues\.marker\.shop\.tell\.0"):
        second.ask()
    broker.drop()  # as when the broker misses the heart-beats of a process that is frozen
    with closing(transactions(broker)) as heir:
        assert heir.ask() == b"one"
        with pytest.raises(OSError, match=r"closed|lost"):
            first.commit(b"two", b"one")
        assert heir.ask() == b"one"
    assert bodies(broker, "/queue/out") == []
    first.close()


def test_probe_of_one_who_waits_does_not_come_between(broker: FakeBroker) -> None:
    """It lies before the marker of the last commit. Who counted what lies before it would see no marker."""
    with closing(transactions(broker)) as owner:
        assert owner.ask() is None
        owner.fence(b"one", None)
        with pytest.raises(TimeoutError):
            transactions(broker).ask()
        owner.begin()
        owner.commit(b"two", b"one")
    with closing(transactions(broker)) as heir:
        assert heir.ask() == b"two"


def test_marker_that_came_back_is_sent_again_in_its_place(broker: FakeBroker) -> None:
    """Artemis moves a message away that was delivered ten times."""
    with closing(transactions(broker)) as owner:
        owner.ask()
        owner.fence(b"one", None)
    for _ in range(12):
        broker.drop()
        with closing(transactions(broker)) as looks:
            assert looks.ask() == b"one"
    with broker.lock:
        assert [one.deliveries for one in broker.queues[MARKER]] <= [1]


def test_lost_connection_keeps_a_message_that_is_no_marker(broker: FakeBroker) -> None:
    """
    Artemis may keep the first message that was not acknowledged on a lost connection, until it is restarted.

    So the first one is a guard, also where the next owner finds guards of others, and when the kept ones come back.
    """
    broker.connected["server"] = "ActiveMQ-Artemis/2.44.0 ActiveMQ Artemis Messaging Engine"
    broker.loses_first = True
    queue = MARKER.removeprefix("/queue/")
    with closing(transactions(broker)) as owner:
        assert owner.ask() is None
        owner.fence(b"0", None)
    for number in range(5):
        broker.drop()
        if number == 3:  # it is restarted
            back, broker.kept = broker.kept, []
            for one in back:
                broker.put(queue, one.body, **one.headers)
        with closing(transactions(broker)) as heir:
            assert heir.ask() == b"%d" % number
            heir.fence(b"%d" % (number + 1), b"%d" % number)
            assert heir.ask() == b"%d" % (number + 1)
    with broker.lock:
        assert {one.headers[PROBE] for one in broker.kept} == {GUARD}


def test_marker_that_comes_before_the_guard_is_sent_again_behind_it(broker: FakeBroker) -> None:
    """As where a broker that pages gives messages in the order in which they came."""
    broker.connected["server"] = "ActiveMQ-Artemis/2.44.0 ActiveMQ Artemis Messaging Engine"
    with closing(transactions(broker)) as owner:
        owner.ask()
        owner.fence(b"one", None)
    queue = MARKER.removeprefix("/queue/")
    broker.drop()
    with broker.lock:
        [marker] = [one for one in broker.queues[queue] if PROBE not in one.headers]
        broker.queues[queue].clear()
    broker.put(queue, marker.body, **(marker.headers | {"priority": "9"}))
    with closing(transactions(broker)) as heir:
        assert heir.ask() == b"one"
        broker.wait_until_left(queue, 2)  # the old marker is taken
        broker.loses_first = True
        broker.drop()
    with broker.lock:
        assert [one.headers.get(PROBE) for one in broker.kept] == [GUARD]
        assert [(one.body, one.headers.get("priority")) for one in broker.queues[queue]] == [(b"one", None)]


def test_two_markers_are_refused(broker: FakeBroker) -> None:
    """Each of them says where the task stands, so neither of them does."""
    broker.put(MARKER, b"one", b"two")
    with closing(transactions(broker)) as owner, pytest.raises(RecoveryError, match="has 2 messages") as refused:
        owner.ask()
    assert "leave the one with the greatest step" in refused.value.remedy


def fence_until_it_fails(owner: MarkerTransactions) -> None:
    """A message is on its way."""
    for _ in range(100):
        owner.fence(b"one", b"one")


def test_foreign_message_behind_the_marker_ends_the_ownership(broker: FakeBroker) -> None:
    """What is in the queue is no longer what this owner has put there."""
    with closing(transactions(broker)) as owner:
        owner.ask()
        owner.fence(b"one", None)
        assert owner.ask() == b"one"
        broker.put(MARKER, b"foreign")
        with pytest.raises(ConnectionError, match="did not send"):
            fence_until_it_fails(owner)


@pytest.mark.parametrize("server", ["RabbitMQ/3.10.8", "", "ActiveMQ-like"])
def test_broker_that_is_not_known_to_be_right_is_refused(server: str, broker: FakeBroker) -> None:
    """RabbitMQ has no transaction over several queues."""
    broker.connected["server"] = server
    with pytest.raises(ConfigError, match="ActiveMQ Classic and Artemis only"):
        transactions(broker).ask()


def test_broker_that_shares_a_queue_is_refused_at_the_start(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Artemis does, unless broker.xml says otherwise. `plan` asks by two consumers of a queue of its own."""
    connect = partial(StompMarkers, stomp(broker).login())
    assert shared_markers(connect, "own") == []
    turns = broker._deliver

    def deliver() -> None:
        broker.links.reverse()
        turns()

    monkeypatch.setattr(broker, "window", 1)
    monkeypatch.setattr(broker, "_deliver", deliver)
    [why] = shared_markers(connect, "own")
    assert '<address-setting match="own.#"><default-max-consumers>1<' in why


@pytest.mark.parametrize("done", [False, True])
def test_connection_that_is_lost_while_its_queue_is_checked_accuses_no_broker(broker: FakeBroker, done: bool) -> None:
    """The second consumer gets what the first one held, as it should."""

    class Lost(StompMarkers):
        def drop(self, message: MarkerMessage) -> None:
            with broker.news:
                broker.ends_at = (len(broker.seen) + 1, done)
                super().drop(message)
                assert broker.news.wait_for(lambda: len(broker.links) == 1, self.timeout_s)

        def message(self, timeout_s: float) -> MarkerMessage | None:
            return super().message(timeout_s or (self.timeout_s if broker.ends_at else 0.0))

    with pytest.raises(RetriableError, match="the broker does not answer"):
        shared_markers(partial(Lost, stomp(broker).login()), "own")


def test_sink_sends_values_with_their_keys_and_headers(broker: FakeBroker) -> None:
    """Text stays text, bytes stay bytes, and the rest becomes JSON. A tombstone is an error."""
    shop = stomp(broker)
    graph = Graph(
        "shop",
        Source("orders"),
        Source("raw"),
        Sink("orders-out", inputs="orders", into=shop.to_queue("orders", headers={"priority": 7, "test": True})),
        Sink("raw-out", inputs="raw", into=shop.to_topic("raw")),
        errors="errors",
        topics={"raw": Topic(value=Raw())},
    )
    tester = Tester(graph, policy=CommitPolicy(max_messages=2))
    tester.send("orders", Message({"id": 1, "name": "é"}, key="k"))
    tester.send("orders", Message("plain", key="k"))
    tester.send("orders", Message(None, key="k"))
    tester.send("raw", b"\x00\xff")
    tester.run()
    tester.stop()

    with broker.lock:
        sent = [(one.body, one.headers) for one in broker.queues["/queue/orders"]]
    assert [body.decode() for body, _ in sent] == ['{"id": 1, "name": "é"}', "plain"]
    own = {"priority": "7", "test": "true", "cues_key": "k", "persistent": "true"}
    assert all(own.items() <= headers.items() and "content-length" not in headers for _, headers in sent)
    assert bodies(broker, "/topic/raw") == [b"\x00\xff"]
    [error] = tester.errors()
    assert "tombstone" in error.text


def test_function_chooses_destinations_and_what_cannot_be_sent_is_its_error(broker: FakeBroker) -> None:
    """Only its own message becomes an error message."""
    given: list[Any] = [
        ("queue://a", "x", None),
        ("topic://b", {"y": 1}, {"h": 1.5}),
        ("a", "x", None),
        ("queue://a b", "x", None),
        ("queue://a", "\0", None),
        ("queue://a", "\ud800", None),
        ("queue://a", object, None),
        ("queue://a", float("nan"), None),
        ("queue://a", "x", {"receipt": "1"}),
        ("queue://a", "x", {"Transaction": "1"}),
        ("queue://a", "x", {"h": "\0"}),
        ("queue://a", "x", {"h": [1]}),
        ("queue://a", "x", {"": "1"}),
    ]

    def tell(number: int, jms: BrokerSender) -> None:
        jms.send(*given[number])

    graph = Graph(
        "shop",
        Source("numbers"),
        Processor(tell, inputs="numbers", effects={"jms": stomp(broker).target()}),
        errors="errors",
    )
    tester = Tester(graph)
    for number in range(len(given)):
        tester.send("numbers", number)
    tester.run()
    tester.stop()

    assert (bodies(broker, "/queue/a"), bodies(broker, "/topic/b")) == ([b"x"], [b'{"y": 1}'])
    assert len(tester.errors()) == len(given) - 2
    assert {one.kind for one in tester.errors()} == {"output"}


def test_task_that_has_taken_steps_and_finds_no_marker_stops(broker: FakeBroker) -> None:
    """It sends nothing again. Where the broker gives the marker after all, the task continues."""
    graph = Graph("shop", Source("orders"), Sink("tell", inputs="orders", into=stomp(broker).to_queue("out")))
    tester = Tester(graph)
    tester.send("orders", "first")
    tester.run()
    tester.stop()
    broker.drop()  # as when it notices that the owner is gone
    with broker.lock:
        [marker] = broker.queues[MARKER]
        broker.queues[MARKER].clear()
    tester.send("orders", "second")

    with pytest.raises(TaskStopped, match="the target of tell/0 has no row of it, although it has taken 1 step"):
        tester.restart().run()
    assert bodies(broker, "/queue/out") == [b"first"]
    broker.drop()
    with broker.lock:
        broker.queues[MARKER].clear()
    broker.put(MARKER, marker.body, **marker.headers)
    tester.restart().run()
    tester.stop()
    assert bodies(broker, "/queue/out") == [b"first", b"second"]


def test_task_that_has_begun_its_first_batch_and_finds_no_marker_stops(broker: FakeBroker) -> None:
    """It died behind the broker's commit, and the marker queue was purged. A first start would send again."""
    graph = Graph("shop", Source("orders"), Sink("tell", inputs="orders", into=stomp(broker).to_queue("out")))
    tester = Tester(graph)
    tester.send("orders", "first")
    tester.run(crash=Crash("after", "CommitTarget"))
    broker.drop()
    assert bodies(broker, "/queue/out") == [b"first"]
    with broker.lock:
        [marker] = broker.queues[MARKER]
        broker.queues[MARKER].clear()

    with pytest.raises(TaskStopped, match="keeps nothing, although the first batch was begun") as stopped:
        tester.restart().run()
    assert "--to here" in str(stopped.value)
    assert bodies(broker, "/queue/out") == [b"first"]
    broker.drop()
    with broker.lock:
        assert not [one for one in broker.queues[MARKER] if PROBE not in one.headers]
        broker.queues[MARKER].clear()
    broker.put(MARKER, marker.body, **marker.headers)
    tester.restart().run()
    tester.stop()
    assert bodies(broker, "/queue/out") == [b"first"]


def test_declarations_that_cannot_be_are_refused() -> None:
    """With what to write."""
    shop = Stomp("stomp://jms.internal")
    with pytest.raises(GraphError, match="cannot be the name of a queue"):
        shop.to_queue("a b")
    with pytest.raises(GraphError, match="cannot have the header 'receipt'"):
        shop.to_topic("a", headers={"receipt": "1"})
    with pytest.raises(GraphError, match="markers="):
        shop.target(markers="")
    with pytest.raises(GraphError, match="heart-beats"):
        Stomp("stomp://jms.internal", heart_beat_s=0).to_queue("a")
    with pytest.raises(OutputError, match="not a destination"):
        BrokerSender(lambda _: None, message_of).send("orders", "x")


def test_destinations_of_one_broker_share_a_transaction_and_are_written_down() -> None:
    """Two brokers are refused; the address is not in what is written."""
    shop = Stomp(env="JMS_BROKER")
    into = {"a": shop.to_queue("a"), "b": shop.to_topic("b", headers={"n": 1})}
    graph = Graph("shop", Source("orders"), Processor(both, inputs="orders", effects=into))

    assert Graph.from_dict(graph.to_dict()).to_dict() == graph.to_dict()
    again = Graph.from_dict(graph.to_dict()).processors["both"].targets["b"]
    assert again == StompDestination(StompTarget(shop), "topic", "b", {"n": "1"})
    with pytest.raises(GraphError, match="no transaction spans two"):
        Processor(both, inputs="orders", effects={"a": shop.to_queue("a"), "b": Stomp(env="OTHER").to_queue("b")})
    secret = Graph("shop", Source("orders"), Sink("s", inputs="orders", into=Stomp("stomp://u:p@h").to_queue("a")))
    with pytest.raises(GraphError, match="its address would be in the text") as refused:
        secret.to_dict()
    assert "u:p" not in str(refused.value)


def both(order: Any, a: Any, b: Any) -> None:
    """A function with two destinations."""
    a.send(order)
    b.send(order)

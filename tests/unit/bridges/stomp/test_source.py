"""Queues over STOMP as the source of a feed: each message once, whatever dies when."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from cues_kafka import Feed, Graph, GraphError, Json, Memory, Topic, start
from cues_kafka.bridges.acked import Acked
from cues_kafka.bridges.stomp.declare import Stomp
from cues_kafka.bridges.stomp.frames import Frame
from cues_kafka.bridges.stomp.source import StompDeliveries, destination, name_of
from cues_kafka.errors import ConfigError, RecoveryError
from cues_kafka.plan.edges import edges_of
from tests.unit.bridges.stomp.broker import FakeBroker, fake_broker


@pytest.fixture(params=["classic", "artemis"])
def broker(request: pytest.FixtureRequest) -> Iterator[FakeBroker]:
    """Both ways of naming messages."""
    with fake_broker(ids=request.param) as made:
        if request.param == "artemis":
            made.connected["server"] = "ActiveMQ-Artemis/2.44.0 ActiveMQ Artemis Messaging Engine"
        yield made


def test_artemis_is_read_by_stomp_1_1(broker: FakeBroker) -> None:
    """By 1.2 it may hold back the oldest message of a lost connection until it is restarted."""
    broker.put("q", b"1")
    source = stomp(broker).open()
    taken(source, None, 1)
    source.close()
    with broker.lock:
        asked = [one.headers["accept-version"] for one in broker.seen if one.command == "CONNECT"]
        commands = [one.command for one in broker.seen if one.command in ("CONNECT", "SUBSCRIBE")]
    assert asked == (["1.2", "1.1"] if broker.ids == "artemis" else ["1.2"])
    assert commands == ["CONNECT"] * len(asked) + ["SUBSCRIBE"]


def stomp(broker: FakeBroker, **given: Any) -> Stomp:
    """A declaration."""
    return Stomp(f"stomp://127.0.0.1:{broker.port}", **{"queue": "q", "timeout_s": 5.0, **given})


def taken(source: Acked, place: str | None, many: int) -> tuple[list[bytes], str | None]:
    """This number of messages from a place on, and the place behind them; messages take a moment to arrive."""
    found: list[tuple[Any, str]] = []
    while len(found) < many:
        found += source.read(0, found[-1][1] if found else place, many - len(found))
    return [bytes(message.value) for message, _ in found], found[-1][1]


@pytest.mark.parametrize("committed", [False, True])
@pytest.mark.parametrize("acknowledged", [False, True])
def test_a_process_that_dies_loses_and_repeats_nothing(
    broker: FakeBroker, *, committed: bool, acknowledged: bool
) -> None:
    """Before its commit, between commit and acknowledgement, and with an acknowledgement that got lost."""
    broker.put("q", b"1", b"2", b"3")
    first = stomp(broker).open()
    _, place = taken(first, None, 2)
    broker.deaf = set() if acknowledged else {"ACK"}
    if committed:
        assert place is not None
        if acknowledged:
            first.committed(0, place)
            broker.wait_until_left("q", 1)
    broker.drop()
    broker.deaf = set()
    second = stomp(broker).open()
    broker.put("q", b"4")
    if committed:
        assert place is not None
        second.committed(0, place)
    found, place = taken(second, place if committed else None, 2 if committed else 4)
    assert found == ([b"3", b"4"] if committed else [b"1", b"2", b"3", b"4"])
    assert place is not None
    second.committed(0, place)
    broker.wait_until_left("q", 0)
    second.close()
    first.close()


def test_a_message_brings_its_headers_its_key_and_its_time(broker: FakeBroker) -> None:
    """Not those of its delivery."""
    broker.put("q", b"{}", timestamp="1700000000000", customer="rome", colour="red:\n")
    source = stomp(broker, key="customer").open()
    message = None
    while message is None:
        message = next((one for one, _ in source.read(0, None, 1)), None)
    source.close()

    assert (message.key, message.timestamp_ms) == ("rome", 1_700_000_000_000)
    headers = dict(message.headers)
    assert headers["colour"] == "red:\n"
    assert not headers.keys() & {"ack", "message-id", "subscription", "redelivered"}


def test_a_delivery_without_an_id_is_refused_behind_those_before_it() -> None:
    """Deliveries are made ready on the connection's thread, and the refusal comes where the feed takes them."""
    told: list[int] = []
    made = StompDeliveries(Stomp("stomp://127.0.0.1:1", queue="q"), lambda: told.append(1))
    for headers in ({"message-id": "ID:1", "ack": "1"}, {"ack": "2"}, {"message-id": "ID:3", "ack": "3"}):
        made.receive(Frame("MESSAGE", headers, b"v"))
    made.hand_over()

    assert [(one.id, one.token) for one in made.take(10)] == [("ID:1", "1")]
    for _ in range(2):
        with pytest.raises(RecoveryError, match="without a message-id"):
            made.take(10)
    assert told


def test_feed_is_woken_once_for_what_one_read_brought() -> None:
    """Each wake-up takes the interpreter from the thread that reads; what is handed over behind is told again."""
    told: list[int] = []
    made = StompDeliveries(Stomp("stomp://127.0.0.1:1", queue="q"), lambda: told.append(1))

    def read(*ids: str) -> None:
        for one in ids:
            made.receive(Frame("MESSAGE", {"message-id": one}, b"v"))
        made.hand_over()

    read("a", "b", "c")
    read("d")  # the feed was told already, and takes all
    assert [(len(told), one.id) for one in made.take(3)] == [(1, "a"), (1, "b"), (1, "c")]
    assert [one.token for one in made.take(10)] == ["d"]
    read("e", "f")
    assert len(told) == 2
    assert [one.id for one in made.take(10)] == ["e", "f"]


def test_each_part_reads_its_queue_or_its_selector(broker: FakeBroker) -> None:
    """With the window for both kinds of brokers."""
    for declared, subscribed in (
        (stomp(broker, queue=["a", "b"]), [("a", None), ("b", None)]),
        (stomp(broker, selector=["x = 1", "x <> 1"]), [("q", "x = 1"), ("q", "x <> 1")]),
        (stomp(broker, queue=["a", "b"], selector="x = 1"), [("a", "x = 1"), ("b", "x = 1")]),
    ):
        broker.seen.clear()
        source = declared.open()
        for part in range(declared.parts()):
            list(source.read(part, None, 1))
        source.close()
        frames = [one.headers for one in broker.seen if one.command == "SUBSCRIBE"]
        assert [(one["destination"], one.get("selector")) for one in frames] == subscribed
        assert (frames[0]["activemq.prefetchSize"], frames[0]["consumer-window-size"]) == ("250", "131072")
        exclusive = [one.get("activemq.exclusive") for one in frames]
        assert exclusive == [None if selector else "true" for _, selector in subscribed]
        assert frames[0]["ack"] == "client-individual"


def test_rabbitmq_is_refused(broker: FakeBroker) -> None:
    """Its message-id is another one on each delivery."""
    broker.connected["server"] = "RabbitMQ/3.10.8"
    with pytest.raises(RecoveryError, match="RabbitMQ gives each delivery") as refused:
        list(stomp(broker).open().read(0, None, 1))
    assert "Feed(RabbitMq(...))" in refused.value.remedy


def test_a_queue_is_named_as_its_broker_wants_it() -> None:
    """ActiveMQ Classic wants a prefix; a name that has one is left as it is."""
    assert destination("orders", "ActiveMQ/5.17.2") == "/queue/orders"
    assert destination("/queue/orders", "ActiveMQ/5.17.2") == "/queue/orders"
    assert destination("orders", "ActiveMQ-Artemis/2.50.0 ActiveMQ Artemis Messaging Engine") == "orders"


def test_id_is_the_same_on_each_delivery_and_another_for_each_message() -> None:
    """Artemis numbers messages, and one that was made again numbers others so; a message without an id is refused."""

    def named(name: str, body: bytes = b"1", sent: str = "1700000000000") -> str:
        return name_of(Frame("MESSAGE", {"message-id": name, "timestamp": sent}, body))

    assert named("24,23") == named("25,23")
    assert len({named("24,23"), named("24,24"), named("24,23", b"2"), named("24,23", sent="1700000000001")}) == 4
    assert named("ID:host-1:2:3") == "ID:host-1:2:3"
    with pytest.raises(RecoveryError, match="without a message-id"):
        named("")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"env": "BROKER"}, "takes an address"),
        ({"queue": ["a", "a"]}, "several that differ"),
        ({"queue": ["a", ""]}, "one of them is empty"),
        ({"queue": ["a", "b"], "selector": ["x", "y"]}, "a feed for each queue"),
        ({"prefetch": 0}, "prefetch=0"),
        ({"prefetch": 2501}, "from 1 to 2,500"),
        ({"window_bytes": True}, "window_bytes=True"),
        ({"timeout_s": 0}, "timeout_s=0"),
        ({"heart_beat_s": -1}, "heart_beat_s=-1"),
        ({"key": "JMSXGroupID"}, "Artemis calls it _AMQ_GROUP_ID"),
        ({"cert_key": "k.pem"}, "Give cert=, too"),
    ],
)
def test_a_declaration_that_cannot_be_is_refused(given: dict[str, Any], words: str) -> None:
    """Where it is declared."""
    with pytest.raises(GraphError, match=words):
        Stomp("stomp://host", **{"queue": "q", **given})


def test_what_a_feed_needs_is_asked_for() -> None:
    """A queue, and an address where it runs; no text shows the address."""
    with pytest.raises(GraphError, match="name what it reads"):
        Feed(Stomp("stomp://host"), into="in")
    with pytest.raises(GraphError, match="a process whose machine is dead"):
        Feed(Stomp("stomp://host", queue="q", heart_beat_s=0), into="in")
    with pytest.raises(ConfigError, match="the environment variable UNSET_BROKER is not set"):
        Stomp(env="UNSET_BROKER", queue="q").open()
    declared = Stomp("stomp://user:geheim@host", queue="q")
    [edge] = edges_of(Graph("g", Feed(declared, into="in")))
    assert edge.guarantee == "exactly-once"
    assert "geheim" not in f"{declared!r}{edge}"


def test_a_feed_brings_each_message_of_a_queue_once(broker: FakeBroker) -> None:
    """Over lost connections and a restart, in order, with its place in the status."""
    graph = Graph(
        "g", Feed(stomp(broker), into="in", poll_seconds=0.02), topics={"in": Topic(value=Json())}, errors="bad"
    )
    memory = Memory()
    numbers = [json.dumps(number).encode() for number in range(30)]
    broker.put("q", *numbers[:10], b"no JSON")
    with start(graph, memory) as running:
        running._await(lambda: len(list(running.messages("in"))) == 10, 20.0, "fed")
        broker.drop()
        broker.put("q", *numbers[10:20])
        running._await(lambda: len(list(running.messages("in"))) == 20, 20.0, "fed")
        [error] = running.messages("bad")
        assert error.value.context == {"place": "message 11 of q"}
    broker.put("q", *numbers[20:])
    with start(graph, memory) as running:
        running._await(lambda: len(list(running.messages("in"))) == 30, 20.0, "fed")
        running._await(lambda: broker.left("q") == 0, 20.0, "acknowledged")
        assert [one.value for one in running.messages("in")] == list(range(30))


def test_acknowledgements_wait_for_those_before_them(broker: FakeBroker) -> None:
    """So those of one batch at most are not confirmed, and the broker confirms them while the next batch is read."""
    broker.put("q", b"1", b"2", b"3")
    source = stomp(broker, timeout_s=0.3).open()
    broker.deaf = {"ACK"}
    _, place = taken(source, None, 1)
    assert place is not None
    source.committed(0, place)
    _, place = taken(source, place, 1)
    assert place is not None
    with pytest.raises(TimeoutError, match="did not answer in time"):
        source.committed(0, place)
    source.close()


def test_a_source_that_closes_waits_for_its_last_acknowledgements(broker: FakeBroker) -> None:
    """So the next consumer of the queue, which may be another program, gets none of these messages."""
    broker.put("q", b"1")
    source = stomp(broker).open()
    _, place = taken(source, None, 1)
    assert place is not None
    closing = threading.Thread(target=source.close)
    with broker.lock:  # it does nothing meanwhile
        source.committed(0, place)
        closing.start()
        closing.join(0.3)
        assert closing.is_alive()
    closing.join()
    assert broker.left("q") == 0

"""The client of STOMP: what it says to a broker, and what each failure of a broker or of a network becomes."""

from __future__ import annotations

import queue
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from cues_kafka.bridges.stomp.address import StompAddress
from cues_kafka.bridges.stomp.client import QUICK_ACK, StompConnection, StompLogin
from cues_kafka.bridges.stomp.frames import Frame
from cues_kafka.bridges.stomp.refusals import StompRefused
from cues_kafka.errors import GraphError
from tests.unit.bridges.stomp.broker import FakeBroker, fake_broker


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    """A broker."""
    with fake_broker() as made:
        yield made


def login(broker: FakeBroker, **given: float) -> StompLogin:
    """At this broker."""
    url = f"stomp://shop:geheim@127.0.0.1:{broker.port}"
    return StompLogin(
        StompAddress(url, "Stomp(...)"), timeout_s=given.get("timeout_s", 5.0), heart_beat_s=given.get("beat", 0)
    )


def test_a_client_says_who_it_is_and_takes_messages(broker: FakeBroker) -> None:
    """A receipt means that all frames before it are done."""
    came = queue.Queue[Frame]()
    connection = StompConnection(login(broker), on_message=came.put)
    connection.send("SUBSCRIBE", {"id": "1", "destination": "q", "ack": "client-individual"})
    connection.send("SEND", {"destination": "q", "kind": "a:b\n"}, b"\0body\0", receipt=True)

    frame = came.get(timeout=5)
    assert (frame.body, frame.headers["kind"]) == (b"\0body\0", "a:b\n")
    assert connection.server == "Fake/1"
    sent = broker.seen[0].headers
    assert (sent["accept-version"], sent["login"], sent["passcode"]) == ("1.2", "shop", "geheim")
    connection.send("ACK", {"id": frame.headers["ack"]}, receipt=True)
    assert broker.left("q") == 0
    connection.close()


def test_receiver_hears_of_the_end_of_each_read(broker: FakeBroker) -> None:
    """It comes behind the messages of the read, on the same thread."""
    came: queue.SimpleQueue[str] = queue.SimpleQueue()
    connection = StompConnection(
        login(broker), on_message=lambda one: came.put(one.body.decode()), on_read=lambda: came.put("end")
    )
    assert came.get(timeout=5) == "end"  # of what came with the login
    connection.send("SUBSCRIBE", {"id": "1", "destination": "q", "ack": "client-individual"})
    connection.send("SEND", {"destination": "q"}, b"body", receipt=True)

    heard = [came.get(timeout=5)]
    while "body" not in heard or heard[-1] != "end":
        heard.append(came.get(timeout=5))
    assert heard.count("body") == 1
    connection.close()


def test_system_tells_at_once_that_an_answer_has_come(broker: FakeBroker) -> None:
    """Else it waits for something to send, and a broker holds back the small packet behind the answer for 40 ms."""
    connection = StompConnection(login(broker))
    for _ in range(3):  # the system takes it for a conversation by now
        connection.send("SEND", {"destination": "q"}, b"body", receipt=True)
    assert QUICK_ACK is None or connection._socket.getsockopt(socket.IPPROTO_TCP, QUICK_ACK) == 1
    connection.close()


def test_a_transaction_is_done_whole_or_not_at_all(broker: FakeBroker) -> None:
    """Committed, it sends; aborted or with a lost connection, it does not."""
    for end in ("COMMIT", "ABORT", "lost"):
        connection = StompConnection(login(broker))
        connection.send("BEGIN", {"transaction": "t"})
        connection.send("SEND", {"destination": "q", "transaction": "t"}, end.encode(), receipt=True)
        if end == "lost":
            broker.drop()
            with pytest.raises(ConnectionError):
                connection.send("COMMIT", {"transaction": "t"}, receipt=True)
        else:
            connection.send(end, {"transaction": "t"}, receipt=True)
        connection.close()
    assert [one.body for one in broker.queues["q"]] == [b"COMMIT"]


def test_closing_says_goodbye(broker: FakeBroker) -> None:
    """Brokers then count no failed delivery; closing twice, or a connection that is lost, does no harm."""
    lost = threading.Event()
    connection = StompConnection(login(broker), on_lost=lost.set)
    connection.close("1")
    connection.close()

    assert broker.left_by.wait(5)
    assert [one.command for one in broker.seen] == ["CONNECT", "UNSUBSCRIBE", "DISCONNECT"]
    assert not lost.is_set()
    with pytest.raises(ConnectionError, match="is closed"):
        connection.check()


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"ERROR\nmessage:User name [shop] or password is invalid.\n\n\0", "refuses: User name"),
        (b"CONNECTED\nversion:1.1\n\n\0", "speaks STOMP '1.1'"),
        (b"HTTP/1.1 400 Bad Request\n\n\0", "not STOMP 1.2"),
    ],
)
def test_a_broker_that_refuses_is_told_with_a_remedy(broker: FakeBroker, answer: bytes, words: str) -> None:
    """And without the address: not even the user's name, which the broker says."""
    broker.answer = answer
    with pytest.raises(StompRefused, match=words) as refused:
        StompConnection(login(broker))
    assert "shop" not in str(refused.value)
    assert refused.value.remedy


def test_a_broker_that_does_not_answer_is_an_error_of_the_network(broker: FakeBroker) -> None:
    """It is asked again, whatever is away: the port, the answer to CONNECT, or to a frame."""
    broker.deaf.add("CONNECT")
    with pytest.raises(ConnectionError, match="does not answer"):
        StompConnection(login(broker, timeout_s=0.1))
    broker.deaf = {"SUBSCRIBE"}
    connection = StompConnection(login(broker, timeout_s=0.1))
    with pytest.raises(TimeoutError, match="in time"):
        connection.send("SUBSCRIBE", {}, receipt=True)
    with pytest.raises(ConnectionError):
        connection.send("ACK", {})
    connection.close()
    broker.close()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(ConnectionError, match="does not answer"):
        StompConnection(StompLogin(StompAddress(f"stomp://127.0.0.1:{port}", ""), timeout_s=1.0))


def test_a_frame_that_is_refused_later_is_told(broker: FakeBroker) -> None:
    """The broker closes the connection behind its ERROR."""
    lost = threading.Event()
    connection = StompConnection(login(broker), on_lost=lost.set)
    [link] = broker.links
    link.send(Frame("ERROR", {"message": "no such queue"}))
    assert lost.wait(5)
    with pytest.raises(StompRefused, match="no such queue"):
        connection.send("SEND", {"destination": "q"}, receipt=True)
    connection.close()


def test_a_silent_broker_is_noticed_and_a_client_beats(broker: FakeBroker) -> None:
    """Each side as often as both agree."""
    broker.connected["heart-beat"] = "100,100"
    lost = threading.Event()
    began_s = time.monotonic()
    connection = StompConnection(login(broker, beat=0.1), on_lost=lost.set)
    assert lost.wait(5)
    assert 0.2 < time.monotonic() - began_s < 4
    with pytest.raises(ConnectionError, match="silent"):
        connection.check()
    connection.close()


@pytest.mark.parametrize(
    "url", ["tcp://host", "stomp://", "stomp://host/queue", "stomp://host:x", "stomp://a b:1?x=1", 7]
)
def test_an_address_that_cannot_be_read_is_refused_without_showing_it(url: str) -> None:
    """Before anything connects."""
    with pytest.raises(GraphError) as refused:
        StompAddress(url, "Stomp(...)")
    assert str(url) not in str(refused.value).replace("stomp://host:61613", "")


def test_an_address_has_the_port_of_its_scheme() -> None:
    """And a password with what URLs reserve."""
    address = StompAddress("stomps://user:p%40ss%3A@broker", "")
    assert (address.port, address.encrypted, address.password) == (61612, True, "p@ss:")
    assert address.quiet("broker said p@ss: no") == "*** said *** no"

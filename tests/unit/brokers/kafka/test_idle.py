"""Clients of idle tasks are polled, so that what they report does not pile up."""

from __future__ import annotations

import threading
from typing import Any

from cues_kafka import Kafka
from cues_kafka.brokers.kafka.idle import IDLE, IdleServer
from cues_kafka.brokers.kafka.session import KafkaSession

WAIT_S = 30


class Polled:
    """A producer that counts its polls."""

    def __init__(self) -> None:
        self.polls = 0

    def poll(self, timeout_s: float) -> int:
        assert timeout_s == 0
        self.polls += 1
        return 0

    def flush(self, _: float) -> int:
        return 0

    def begin_transaction(self) -> None:
        pass

    def commit_transaction(self, _: float) -> None:
        pass

    def abort_transaction(self, _: float) -> None:
        pass


class Served:
    """A client that says that it was served."""

    def __init__(self) -> None:
        self.served = threading.Event()

    def serve(self) -> None:
        self.served.set()


def session_with(producer: Polled, *, transactional: bool) -> KafkaSession:
    """A session over this producer, in place of the client."""
    session = KafkaSession(Kafka("127.0.0.1:1"), "id", transactional=transactional)
    session.abandon()
    session._producer = producer  # type: ignore[assignment]
    return session


def polls_of(session: KafkaSession, producer: Polled) -> int:
    """How often it is polled when it is served."""
    before = producer.polls
    session.serve()
    return producer.polls - before


def test_a_session_is_served_between_transactions_only() -> None:
    """Within one, the task's own calls hear what the client reports, and count the reports of its records."""
    producer = Polled()
    session = session_with(producer, transactional=True)
    assert polls_of(session, producer) == 0  # before its first transaction

    for _ in range(2):
        session.begin()
        session.flush()
        assert polls_of(session, producer) == 0
        session.commit()
        assert polls_of(session, producer) == 1

    session.abandon()
    assert polls_of(session, producer) == 0


def test_a_session_without_transactions_is_served_behind_its_flush() -> None:
    """At-least-once: a batch ends with the reports of its records."""
    producer = Polled()
    session = session_with(producer, transactional=False)

    session.begin()
    assert polls_of(session, producer) == 0
    session.flush()
    assert polls_of(session, producer) == 1


def serving() -> list[threading.Thread]:
    return [one for one in threading.enumerate() if one.name == "cues-kafka-idle"]


def test_the_thread_ends_with_the_last_client_and_begins_again_with_the_next() -> None:
    """A program that has closed its clients keeps no thread."""
    others = set(serving())
    server = IdleServer(every_s=0.01)
    for _ in range(2):
        one, two = Served(), Served()
        server.add(one)
        server.add(two)
        (thread,) = set(serving()) - others
        server.remove(one)
        assert two.served.wait(WAIT_S)
        server.remove(two)
        server.remove(two)
        thread.join(WAIT_S)
        assert not thread.is_alive()


def test_a_session_that_is_thrown_away_is_served_no_more() -> None:
    session = KafkaSession(Kafka("127.0.0.1:1"), "id")
    assert session in IDLE._served
    session.abandon()
    assert session not in IDLE._served


def test_what_was_added_is_served_until_it_is_gone() -> None:
    """One thread serves all; it keeps nothing alive."""
    served: dict[str, threading.Event] = {"first": threading.Event(), "second": threading.Event()}
    gone = threading.Event()

    class Client:
        def __init__(self, name: str) -> None:
            self.name = name

        def serve(self) -> None:
            served[self.name].set()

        def __del__(self) -> None:
            gone.set()

    server = IdleServer(every_s=0.01)
    clients: list[Any] = [Client("first"), Client("second")]
    for client in clients:
        server.add(client)
    del client
    assert all(one.wait(WAIT_S) for one in served.values())

    clients.clear()
    assert gone.wait(WAIT_S)

"""
Whether an MQTT broker delivers a message again under the packet number that it had.

The standard says so, and ids of messages without `cues-id` rest on it. Mosquitto does it. Artemis and RabbitMQ give
other numbers: a redelivery would be taken for a new message, or a new message for a redelivery, and be lost. So it is
tried out, with a session and a topic of our own, before the first message is taken by its number.
"""

from __future__ import annotations

import secrets
from queue import Empty, Queue
from typing import Any, Final, Self

from cues_kafka.bridges.mqtt.client import Login, MqttConnection
from cues_kafka.errors import RecoveryError

TOPIC: Final = "cues-kafka/check"
"""What the names of the topics begin with."""

EXPIRY_S: Final = 60
"""How long the broker keeps the session if this process dies meanwhile; MQTT 5 only."""

MOST_WAIT_S: Final = 3.0
"""How long each message is waited for. One that this user may not publish never comes."""


def why_not_kept(login: Login) -> str | None:
    """
    Why redeliveries cannot be told by their numbers; empty: they can. None: it cannot be seen, for want of a right.

    Raises:
        OSError, RetriableError: the broker does not answer.
    """
    mark = secrets.token_hex(6)
    name, topic = f"cues-check-{mark}", f"{TOPIC}/{mark}"  # client ids of 23 characters are always taken
    try:
        before = _first(login, name, topic)
        found = None if before is None else _second(login, name, before)
        _Session(login, name, clean=True).close()  # the broker forgets it
    except RecoveryError:  # it refuses the client id, or the topic
        return None
    return found


def _first(login: Login, name: str, topic: str) -> Any:
    """The message that is not acknowledged, behind one that is."""
    with _Session(login, name) as session:
        session.connection.subscribe([(topic, 1)])
        for payload in (b"1", b"2"):
            session.connection.publish(topic, payload, retain=False, properties=None)
        if (one := session.message()) is None or (two := session.message()) is None:
            return None
        handled = Queue[None]()
        session.connection.ack([(one.mid, one.qos)])
        session.connection.confirm(lambda: handled.put(None))
        session.wait(handled)
        return two


def _second(login: Login, name: str, before: Any) -> str | None:
    with _Session(login, name) as session:
        if (again := session.message()) is None:
            return "it does not deliver again what was not acknowledged"
        if not again.dup:
            return "it does not mark what it delivers again"
        if (again.mid, again.payload) != (before.mid, before.payload):
            return f"it delivered packet {before.mid} again with the number {again.mid}"
        return ""


class _Session:
    """A connection to the session of this trial."""

    def __init__(self, login: Login, name: str, *, clean: bool = False) -> None:
        self._got = Queue[Any]()
        self._wait_s = min(login.timeout_s, MOST_WAIT_S)
        properties = {"SessionExpiryInterval": 0 if clean else EXPIRY_S} if login.modern else {}
        self.connection = MqttConnection(
            *(login, name),
            clean=clean,
            properties=properties,
            on_message=self._got.put,
            on_lost=lambda: self._got.put(None),
            on_published=lambda _, reason: self._got.put(None) if reason.is_failure else None,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def message(self) -> Any:
        """The next message; None: it does not come, or may not be published."""
        found = self.wait(self._got)
        self.connection.check()
        return found

    def wait(self, queue: Queue[Any]) -> Any:
        """What comes next; None: nothing in time."""
        try:
            return queue.get(timeout=self._wait_s)
        except Empty:
            return None

    def close(self) -> None:
        self.connection.close()

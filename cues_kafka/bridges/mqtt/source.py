"""The messages of an MQTT session, for `Acked`."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Any, Final, Protocol

from paho.mqtt.client import MQTTMessage
from paho.mqtt.subscribeoptions import SubscribeOptions

from cues_kafka.bridges.deliveries import Arrival
from cues_kafka.bridges.mqtt.client import ID_PROPERTY, Login, MqttConnection
from cues_kafka.bridges.mqtt.numbers import TOPIC, why_not_kept
from cues_kafka.errors import RecoveryError, RetriableError
from cues_kafka.graph.feed import Encoded
from cues_kafka.graph.message import Message
from cues_kafka.observe.log import get_logger

log = get_logger("cues_kafka.bridges")

FOREVER: Final = 2**32 - 1
"""Seconds that mean: the session does not expire."""

SHORT_S: Final = 2.0
STRIKES: Final = 3
MOST_PAUSE_S: Final = 10.0
"""A connection that lasts less than `SHORT_S` for the third time is not made again at once."""

MOST_UNACKNOWLEDGED: Final = 10_000
"""Messages with QoS 0 that wait here at most. The broker sends them without a limit; what is above it is dropped."""

MOST_PACKETS: Final = 65_535
"""The largest packet number; 1 follows."""

RECENT: Final = 1_000
"""Packet numbers among which a new message must not have one that was used."""


_NO_NUMBERS: Final = (
    "write Mqtt(..., packet_ids=False), which is at least once; with the user property "
    f"{ID_PROPERTY} in each message it is exactly once"
)


class MqttSession(Protocol):
    """What a source needs to know: attributes and methods of `Mqtt`."""

    @property
    def topics(self) -> Any: ...
    @property
    def session(self) -> str: ...
    @property
    def version(self) -> str: ...
    @property
    def prefetch(self) -> int: ...
    @property
    def session_expiry_s(self) -> int | None: ...
    @property
    def key(self) -> Any: ...
    @property
    def ledger(self) -> int: ...
    @property
    def retained(self) -> bool: ...
    @property
    def packet_ids(self) -> bool: ...
    def session_of(self, part: int) -> str: ...
    def shown(self, message: str) -> str: ...


class MqttSource:
    """Connects to the sessions of a declared source; see `Acknowledging`."""

    def __init__(self, declared: MqttSession, login: Login, now: Callable[[], float] = time.monotonic) -> None:
        self._declared, self._login, self._now = declared, login, now
        self._known: set[int] = set()
        self._had: dict[int, deque[int]] = {}
        self._ended: dict[int, tuple[int, float]] = {}
        self._tried = not declared.packet_ids

    def show(self, message: str) -> str:
        return self._declared.shown(message)

    def connect(self, part: int, arrived: Callable[[], None]) -> MqttDeliveries:
        declared, name = self._declared, self._declared.session_of(part)
        self._wait_for_turn(part, name)
        began = self._now()
        had = self._had.setdefault(part, deque(maxlen=declared.ledger))
        made = MqttDeliveries(declared, arrived, lambda: self._lost(part, began), self._try_numbers, had)
        wishes: dict[str, Any] = {}
        if self._login.modern:
            expiry = declared.session_expiry_s
            wishes = {
                "ReceiveMaximum": declared.prefetch,
                "SessionExpiryInterval": FOREVER if expiry is None else expiry,
            }
        connection = MqttConnection(
            *(self._login, name),
            clean=False,
            properties=wishes,
            on_message=made.receive,
            on_lost=made.lose,
        )
        try:
            made.begin(connection)
            self._check_session(part, name, made, connection)
            connection.subscribe([(one, self._options()) for one in declared.topics[part]])
        except BaseException:
            connection.close()
            raise
        return made

    def _options(self) -> Any:
        if not self._login.modern:
            return 1
        new_only, never = 1, 2
        return SubscribeOptions(qos=1, retainHandling=new_only if self._declared.retained else never)

    def _check_session(self, part: int, name: str, made: MqttDeliveries, connection: MqttConnection) -> None:
        """Say what the broker does not keep."""
        made.name = name
        if part in self._known and made.fresh:
            made.forgotten()
        self._known.add(part)
        granted = connection.granted.get("SessionExpiryInterval")
        wished = self._declared.session_expiry_s or FOREVER
        if granted is not None and granted < wished:
            log.warning("the broker keeps the session for less time", session=name, seconds=granted)

    def _try_numbers(self) -> None:
        """
        See whether packet numbers tell redeliveries, once in a process.

        Raises:
            OSError, RetriableError: the broker does not answer.
            RecoveryError: they do not.
        """
        if self._tried:
            return
        why = why_not_kept(self._login)
        if why:
            raise RecoveryError(
                f"packet numbers of this MQTT broker do not distinguish redeliveries from new messages: {why}",
                remedy=_NO_NUMBERS,
            )
        self._tried = True
        if why is None:
            log.warning(
                "packet numbers are not checked",
                session=self._declared.session,
                why=f"this user may not publish and read {TOPIC}/#",
                effect="if the broker does not keep them, a crash may repeat messages",
            )

    def _wait_for_turn(self, part: int, name: str) -> None:
        """
        Two clients of one name end each other's connections. Slow down, and name it.

        Raises:
            RetriableError: it is too early for another connection.
        """
        strikes, at = self._ended.get(part, (0, 0.0))
        if strikes >= STRIKES and self._now() < at + min(0.1 * 2.0 ** min(strikes, 16), MOST_PAUSE_S):
            raise RetriableError(
                f"{strikes} connections with the client id {name!r} were lost within {SHORT_S:g} s each: another "
                "client may have the same one; give each feed a session= of its own"
            )

    def _lost(self, part: int, began: float) -> None:
        now = self._now()
        self._ended[part] = (self._ended.get(part, (0, 0.0))[0] + 1 if now - began < SHORT_S else 0, now)


class MqttDeliveries:
    """
    The messages of one connection; see `Deliveries`.

    A broker may deliver more than it was asked to: mosquitto 2.0 does after a restart, hundreds of messages before it
    reads our acknowledgements. So messages are taken only as far as the ledger reaches: at most `room` of them are
    without an acknowledgement that the broker has confirmed. What it delivers again is known then.

    Args:
        had: packet numbers that former connections brought, the newest last; those of this one are added.

    Attributes:
        fresh: whether the broker had no session, so that it numbers packets from 1 again.
        name: of the session.
    """

    def __init__(
        self,
        declared: MqttSession,
        arrived: Callable[[], None],
        lost: Callable[[], None],
        try_numbers: Callable[[], None] = lambda: None,
        had: deque[int] | None = None,
    ) -> None:
        self._declared = declared
        self._had = deque[int]() if had is None else had
        self._before: set[int] = set()
        self._try_numbers = try_numbers
        self._room = declared.ledger
        self._taken = self._acked = self._confirmed = 0
        self._asked = False
        self._news, self._tell_lost = arrived, lost
        self._connection: MqttConnection | None = None
        self._lock = threading.Lock()
        self._waiting: deque[MQTTMessage] = deque()
        self._unacknowledged = 0
        self._dropped = 0
        self._recent: deque[int] = deque()
        self._numbers: set[int] = set()
        self._last: int | None = None  # number of the packet before, if it was a new message
        self._missing, self._say_from = 0, 1
        self.fresh = True
        self.name = declared.session
        self._said = False

    def begin(self, connection: MqttConnection) -> None:
        """The connection is open; messages may have come already."""
        self._connection = connection
        self.fresh = not connection.session_present
        if self.fresh:
            self._had.clear()
        self._before = set(self._had)

    def forgotten(self) -> None:
        if self._said:
            return
        self._said = True
        log.warning(
            "the broker has lost the session",
            session=self.name,
            effect="messages that were published meanwhile, or were not acknowledged, may be missing",
        )

    # On the connection's thread

    def receive(self, message: MQTTMessage) -> None:
        """A message has arrived."""
        with self._lock:
            if message.qos == 0:
                if self._unacknowledged >= MOST_UNACKNOWLEDGED:
                    self._dropped += 1
                    return
                self._unacknowledged += 1
            first = not self._waiting  # else the reader was told, and takes until none is left
            self._waiting.append(message)
        if first:
            self._news()

    def lose(self) -> None:
        """The connection is lost."""
        self._tell_lost()
        self._news()

    # On the feed's thread

    def take(self, limit: int) -> Sequence[Arrival]:
        assert self._connection is not None
        self._connection.check()
        with self._lock:
            most = min(limit, len(self._waiting), self._room - (self._taken - self._confirmed))
            messages = [self._waiting.popleft() for _ in range(most)]
            self._taken += sum(message.qos > 0 for message in messages)
            self._unacknowledged -= sum(message.qos == 0 for message in messages)
            dropped, self._dropped = self._dropped, 0
            more = bool(self._waiting)
        if dropped:
            log.warning("messages with QoS 0 came too quickly", session=self._declared.session, dropped=dropped)
        self._count_missing(messages)
        found = [arrival for one in messages if (arrival := self._arrival(one)) is not None]
        if more and messages and not found:  # the reader takes the end for the end of all
            self._news()
        return found

    def ack(self, tokens: Sequence[Any]) -> None:
        assert self._connection is not None
        packets = [token for token in tokens if token is not None]
        self._connection.ack(packets)
        with self._lock:
            self._acked += len(packets)
            count = self._acked
            if self._asked or count - self._confirmed < max(1, self._room // 8):
                return
            self._asked = True
        self._connection.confirm(lambda: self._heard_confirmed(count))

    def _heard_confirmed(self, count: int) -> None:
        """The broker has read these acknowledgements. On the connection's thread."""
        with self._lock:
            self._confirmed, self._asked = count, False
        self._news()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def _arrival(self, message: MQTTMessage) -> Arrival | None:
        """A message as a feed takes it; None: it repeats what the session has had."""
        topic, payload = topic_of(message), bytes(message.payload)
        token = (message.mid, message.qos) if message.qos else None
        new_only = self.fresh or self._declared.version == "5"
        if message.retain and not message.dup and not (self._declared.retained and new_only):
            # MQTT 3.1.1 sends what is retained at each subscription. MQTT 5 is asked for it where a filter is new.
            self.ack([token])
            return None
        given = dict(properties := user_properties(message)).get(ID_PROPERTY)
        if given is not None:
            name, again = f"{topic}\0{given}", True
        elif message.retain and message.qos and self._declared.version != "5":
            # The same one may come with each subscription, under other numbers; a live one has no such mark.
            name, again = f"retained:{packet_name(0, topic, payload)}", True
        elif message.qos and self._declared.packet_ids:
            self._try_numbers()
            name, again = packet_name(message.mid, topic, payload), bool(message.dup)
            self._check_number(message)
        else:
            name, again = "", False
        headers = [*properties, *_own_headers(message, topic)]
        return Arrival(name, again, Message(Encoded(payload), key=self._key(topic), headers=headers), token)

    def _count_missing(self, messages: Sequence[MQTTMessage]) -> None:
        """Say what the broker has counted and not delivered; the next line comes when ten times as much is missing."""
        if not self._declared.packet_ids:
            return
        for one in messages:
            if not one.qos:
                continue
            if self._last is not None and not one.dup:
                self._missing += (one.mid - self._last - 1) % MOST_PACKETS
            self._last = None if one.dup else one.mid
        if self._missing >= self._say_from:
            self._say_from = 10 * self._missing
            log.warning(
                "packet numbers are missing",
                session=self.name,
                count=self._missing,
                why="the broker has dropped messages: its queue was full (max_queued_messages), or they had expired",
            )

    def _key(self, topic: str) -> str | None:
        at = self._declared.key
        if at is None or at == "topic":
            return None if at is None else topic
        levels = topic.split("/")
        return levels[at] if -len(levels) <= at < len(levels) else topic

    def _check_number(self, message: MQTTMessage) -> None:
        """
        See whether the broker counts its packets.

        Raises:
            RecoveryError: a new message has a number that another one had a moment ago.
        """
        self._had.append(message.mid)
        if message.dup:
            return
        if message.mid in self._before:
            self._before.clear()
            log.warning(
                "the broker has gone back to an older state of the session",
                session=self.name,
                effect="messages of its last moments may be missing, or come twice",
                remedy=f"let the broker save each change at once; with the property {ID_PROPERTY} none comes twice",
            )
        if message.mid in self._numbers:
            raise RecoveryError(
                f"the MQTT broker has used the packet number {message.mid} again within {RECENT:,} messages, so "
                "numbers do not distinguish redeliveries from new messages",
                remedy=_NO_NUMBERS,
            )
        self._numbers.add(message.mid)
        self._recent.append(message.mid)
        if len(self._recent) > RECENT:
            self._numbers.discard(self._recent.popleft())


def packet_name(mid: int, topic: str, payload: bytes) -> str:
    """The id of a message that has no other one. Properties are not in it: the broker counts an expiry down."""
    text = topic.encode(errors="surrogateescape")
    digest = blake2b(b"%d:%b" % (len(text), text), digest_size=16)
    digest.update(payload)
    return f"{mid}:{digest.hexdigest()}"


def topic_of(message: MQTTMessage) -> str:
    """The topic; bytes that are not UTF-8, which the standard forbids, are written as hexadecimal numbers."""
    try:
        return str(message.topic)
    except UnicodeDecodeError as error:
        return bytes(error.object).decode(errors="backslashreplace")


def user_properties(message: MQTTMessage) -> list[tuple[str, str]]:
    """The pairs that the publisher has added; MQTT 5 only."""
    properties = message.properties
    return list(getattr(properties, "UserProperty", ())) if properties is not None else []


def _own_headers(message: MQTTMessage, topic: str) -> list[tuple[str, str | bytes]]:
    found: list[tuple[str, str | bytes]] = [("mqtt.topic", topic)]
    if message.retain:
        found.append(("mqtt.retained", "1"))
    for name, header in HEADERS.items():
        value = getattr(message.properties, name, None) if message.properties is not None else None
        if value is not None:
            found.append((header, value))
    return found


HEADERS: Final = {
    "ContentType": "mqtt.content-type",
    "ResponseTopic": "mqtt.response-topic",
    "CorrelationData": "mqtt.correlation-data",
}
"""Properties of MQTT 5 that are headers in Kafka."""

"""`Stomp`, a JMS broker that speaks STOMP 1.2, such as ActiveMQ Classic and Artemis, as the source of a feed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from cues_kafka.arguments import known_arguments
from cues_kafka.bridges.acked import Acked
from cues_kafka.bridges.destinations import QUEUE, TOPIC
from cues_kafka.bridges.ledger import MOST_IDS
from cues_kafka.bridges.queues import LedgeredSource, read_by, several
from cues_kafka.bridges.stomp.address import StompAddress
from cues_kafka.bridges.stomp.client import StompLogin
from cues_kafka.bridges.stomp.source import StompSource
from cues_kafka.bridges.stomp.target import StompDestination, StompTarget
from cues_kafka.errors import GraphError
from cues_kafka.graph.levels import EdgeKind

LEDGERS: Final = 4
"""Ids of a ledger for each message of the window: a successor may get one window before what its predecessor had."""

MOST_PREFETCH: Final = MOST_IDS // LEDGERS

FROM_STOMP: Final = EdgeKind(
    "a JMS queue of ActiveMQ Classic or Artemis to Kafka, `Feed(Stomp(...), ...)`",
    "exactly once (while the broker keeps its queue)",
    "acknowledged after Kafka's commit; message-id names redeliveries. The feed is the only consumer, and the broker "
    "gives no message up (Artemis: max-delivery-attempts=-1); what was sent as non-persistent may be lost",
    "pytest tests/unit/bridges/stomp tests/servers/test_stomp.py",
)

One: TypeAlias = "str | Sequence[str]"


@known_arguments()
@dataclass(frozen=True, slots=True)
class Stomp(LedgeredSource):
    """
    A broker that speaks STOMP 1.2: `Feed(Stomp(..., queue="orders"), into="orders")`. It needs no library.

    Messages are acknowledged one by one, behind their commit in Kafka. A redelivery is known by its `message-id`.

    Attributes:
        url: ``stomp://user:password@host:61613``, with TLS ``stomps://host:61612``. It is never shown.
        env: the environment variable that holds the address; then `url` is empty.
        queue: the queue to read; several: one part for each.
        selector: which messages, in JMS' language; several: one part for each, all of one queue. No message may match
            two of them, and one that matches none stays in the queue.
        key: the property or header that is the key of a message, such as `correlation-id`; None: as the topic says.
        timestamps: whether a message in Kafka has the time at which it was sent; else that of its arrival.
        prefetch: messages that ActiveMQ Classic may deliver before it gets an acknowledgement.
        window_bytes: bytes that Artemis may deliver before it gets an acknowledgement.
        vhost: the virtual host; empty: the name of the host.
        heart_beat_s: how often each side says that it lives, in seconds. The broker ends the connection of a dead
            process after about twice as long. That should be before its successor reads: less than `session_timeout_s`
            (10).
        timeout_s: how long connecting, and each answer of the broker, may take, in seconds.
        ca, cert, cert_key: files in PEM form for TLS: who signs brokers, and our own certificate with its key. Without
            `ca` the system decides whom to trust.
    """

    url: str = field(default="", repr=False, metadata={"hidden": True})
    env: str = field(default="", kw_only=True)
    queue: One = field(default="", kw_only=True)
    selector: One = field(default="", kw_only=True)
    key: str | None = field(default=None, kw_only=True)
    timestamps: bool = field(default=True, kw_only=True)
    prefetch: int = field(default=250, kw_only=True)
    window_bytes: int = field(default=128 * 1024, kw_only=True)
    vhost: str = field(default="", kw_only=True)
    heart_beat_s: float = field(default=3.0, kw_only=True)
    timeout_s: float = field(default=10.0, kw_only=True)
    ca: str = field(default="", kw_only=True)
    cert: str = field(default="", kw_only=True)
    cert_key: str = field(default="", kw_only=True)

    def __post_init__(self) -> None:
        StompAddress.check(self.url, self.env, "ORDERS_BROKER")
        object.__setattr__(self, "queue", several(self.queue, f"Stomp(queue={self.queue!r})"))
        object.__setattr__(self, "selector", several(self.selector, f"Stomp(selector={self.selector!r})"))
        _check(self)

    def parts(self) -> int:
        """One for each queue or selector."""
        if not self.queue:
            raise GraphError('Stomp(...) as the source of a feed: name what it reads, Stomp(..., queue="orders").')
        if not self.heart_beat_s:
            raise GraphError(
                "Stomp(heart_beat_s=0) as the source of a feed: the broker would keep messages for a process whose "
                "machine is dead, and deliver them long after others. Give it seconds, such as 3."
            )
        return max(len(self.queue), len(self.selector))

    def read_by(self, part: int) -> tuple[str, str]:
        """The queue and the selector of a part; the selector may be empty."""
        return read_by(part, self.queue, self.selector)

    @property
    def edge(self) -> EdgeKind:
        """What it guarantees, on which condition, and the command that shows it."""
        return FROM_STOMP

    def open(self) -> Acked:
        """
        Make what a process reads from. It connects when it is first read.

        Raises:
            ConfigError: the environment variable is not set or is not an address, or a file for TLS cannot be read.
        """
        room = LEDGERS * self.prefetch
        return Acked(
            StompSource(self, self.login()), parts=self.parts(), prefetch=self.prefetch, ledger=room, unique=True
        )

    def shown(self, message: str) -> str:
        """A message for people."""
        return f"{message} of {', '.join(self.queue)}"

    def target(self, *, markers: str = "cues") -> StompTarget:
        """
        The broker as what a processor writes to, exactly once: `effects={"jms": Stomp(...).target()}`.

        Args:
            markers: what the names of the queues begin with that say how far each task is.

        Raises:
            GraphError: it cannot be the beginning of a queue's name, or there are no heart-beats.
        """
        return StompTarget(self, markers)

    def to_queue(
        self, name: str, *, headers: Mapping[str, Any] | None = None, markers: str = "cues"
    ) -> StompDestination:
        """
        A queue that messages go to, exactly once: `Sink(..., into=Stomp(...).to_queue("orders"))`.

        Args:
            name: of the queue.
            headers: of each message, such as `{"priority": 7, "type": "order"}`.
            markers: see `target`.

        Raises:
            GraphError: it cannot be the name of a queue, or a message cannot have such a header.
        """
        return StompDestination(self.target(markers=markers), QUEUE, name, headers or {})

    def to_topic(
        self, name: str, *, headers: Mapping[str, Any] | None = None, markers: str = "cues"
    ) -> StompDestination:
        """A topic that messages go to; see `to_queue`."""
        return StompDestination(self.target(markers=markers), TOPIC, name, headers or {})

    def login(self) -> StompLogin:
        """
        What a client needs to connect.

        Raises:
            ConfigError: the environment variable is not set or is not an address, or a file for TLS cannot be read.
        """
        address = StompAddress.declared(self.url, self.env)
        tls = address.tls(self.ca, self.cert, self.cert_key)
        return StompLogin(address, vhost=self.vhost, heart_beat_s=self.heart_beat_s, timeout_s=self.timeout_s, tls=tls)


def _check(declared: Stomp) -> None:
    if len(declared.queue) > 1 and len(declared.selector) > 1:
        raise GraphError(
            "Stomp(queue=[...], selector=[...]): parts are several queues, or several selectors of one queue. Declare "
            "a feed for each queue."
        )
    if type(declared.prefetch) is not int or not 1 <= declared.prefetch <= MOST_PREFETCH:
        raise GraphError(f"Stomp(prefetch={declared.prefetch!r}): takes a whole number from 1 to {MOST_PREFETCH:,}.")
    if type(declared.window_bytes) is not int or declared.window_bytes < 1:
        raise GraphError(f"Stomp(window_bytes={declared.window_bytes!r}): takes a number of bytes, from 1 on.")
    for name in ("heart_beat_s", "timeout_s"):
        seconds = getattr(declared, name)
        known = isinstance(seconds, int | float) and not isinstance(seconds, bool)
        if not known or seconds < 0 or (name == "timeout_s" and not seconds):
            raise GraphError(f"Stomp({name}={seconds!r}): takes a number of seconds.")
    if declared.key == "JMSXGroupID":
        raise GraphError(
            "Stomp(key='JMSXGroupID'): ActiveMQ Classic does not tell the group of a message over STOMP, and Artemis "
            "calls it _AMQ_GROUP_ID. Name a property of the sender, or correlation-id."
        )
    if declared.cert_key and not declared.cert:
        raise GraphError("Stomp(cert_key=...): is the key of a certificate. Give cert=, too.")

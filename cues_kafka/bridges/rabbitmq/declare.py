"""`RabbitMq`, whose queues and streams are sources of feeds, and whose exchanges are targets of sinks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Final

from cues_kafka.arguments import known_arguments
from cues_kafka.bridges.acked import Acked
from cues_kafka.bridges.queues import LedgeredSource
from cues_kafka.bridges.rabbitmq.address import RabbitMqAddress
from cues_kafka.bridges.rabbitmq.messages import HEADERS, KEYS
from cues_kafka.bridges.rabbitmq.routing import LONGEST, ROUTING_KEYS
from cues_kafka.bridges.rabbitmq.stream_target import RabbitMqStreamOut, RabbitMqStreams
from cues_kafka.errors import GraphError
from cues_kafka.extras import PIKA, Package, missing
from cues_kafka.graph.levels import AT_LEAST_ONCE, EXACTLY_ONCE, EdgeKind
from cues_kafka.graph.publish import Published

if TYPE_CHECKING:
    from cues_kafka.bridges.rabbitmq.client import RabbitMqLogin
    from cues_kafka.bridges.rabbitmq.stream_client import StreamLogin
    from cues_kafka.bridges.rabbitmq.streams import StreamSource
    from cues_kafka.graph.message import Message
    from cues_kafka.graph.publish import Publisher

MOST_PREFETCH: Final = 2_500
LEDGERS: Final = 4
"""
Ids that are kept for each message that the broker delivers without an acknowledgement.

Behind a restart a quorum queue of RabbitMQ delivers as many new messages as a window has, before those that the former
connection had not acknowledged. A ledger of two windows would hold; the rest is margin.
"""

FROM_QUEUE: Final = EdgeKind(
    'a queue of RabbitMQ to Kafka, `Feed(RabbitMq(...).queue("orders"), ...)`',
    "exactly once (if publishers give each message an id)",
    "acknowledged after Kafka's commit; the property message_id names redeliveries, so a crash may repeat a message "
    "without one. The feed is the only consumer, and the queue gives no message up (quorum: x-delivery-limit=-1)",
    "pytest -m 'bridge or not bridge' tests/servers/test_rabbitmq.py",
)
FROM_QUEUE_REPEATED: Final = EdgeKind(
    'a queue of RabbitMQ whose messages have no ids, to Kafka, `Feed(RabbitMq(...).queue("orders", ids=False), ...)`',
    AT_LEAST_ONCE,
    "acknowledged after Kafka's commit; a crash repeats messages",
    "pytest -m 'bridge or not bridge' tests/servers/test_rabbitmq.py",
    "Have publishers set the property message_id, another one for each message, and leave ids=False out.",
)
FROM_STREAM: Final = EdgeKind(
    'a stream of RabbitMQ to Kafka, `Feed(RabbitMq(...).stream("events"), ...)`',
    EXACTLY_ONCE,
    "messages and the offset in the stream in one transaction; the stream keeps messages until they are read",
    "pytest -m 'bridge or not bridge' tests/servers/test_rabbitmq.py",
)
TO_EXCHANGE: Final = EdgeKind(
    'Kafka to RabbitMQ, `Sink(..., into=RabbitMq(...).exchange("shop", "{key}"))`',
    AT_LEAST_ONCE,
    "confirmed by the broker before Kafka's commit; a crash repeats the messages of a batch, with the same message_id",
    "pytest -m 'bridge or not bridge' tests/servers/test_rabbitmq.py tests/servers/test_rabbitmq_out.py",
    "Have the receiver drop messages whose message_id it has had: a feed of cues-kafka does.",
)


@known_arguments()
@dataclass(frozen=True, slots=True)
class RabbitMq:
    """
    A RabbitMQ: `Feed(RabbitMq("amqp://...").queue("orders"), into="ingress")`. docs/bridges.md says what each level
    rests on.

    Attributes:
        url: ``amqp://user:password@host:5672/virtual-host``, with TLS ``amqps://``. It is never shown.
        env: the environment variable that holds the address; then `url` is empty.
        heartbeat_s: the broker or we notice a dead connection after about twice as many seconds.
        timeout_s: how long connecting, and each answer of the broker, may take, in seconds.
        ca, cert, cert_key: files in PEM form for TLS: who signs brokers, and our own certificate with its key. Without
            `ca` the system decides whom to trust.
    """

    url: str = field(default="", repr=False, metadata={"hidden": True})
    env: str = field(default="", kw_only=True)
    heartbeat_s: int = field(default=20, kw_only=True)
    timeout_s: float = field(default=10.0, kw_only=True)
    ca: str = field(default="", kw_only=True)
    cert: str = field(default="", kw_only=True)
    cert_key: str = field(default="", kw_only=True)

    def __post_init__(self) -> None:
        RabbitMqAddress.check(self.url, self.env, "SHOP_RABBITMQ")
        _check_number("RabbitMq", "heartbeat_s", self.heartbeat_s, 1, 65_535)
        if isinstance(self.timeout_s, bool) or not isinstance(self.timeout_s, int | float) or not self.timeout_s > 0:
            raise GraphError(f"RabbitMq(timeout_s={self.timeout_s!r}): takes a number of seconds above 0.")
        if bool(self.cert) != bool(self.cert_key):
            raise GraphError("RabbitMq(...): cert= and cert_key= belong together. Give both files, or none.")

    def queue(
        self, name: str | Sequence[str], *, prefetch: int = 250, ids: bool = True, key: str | None = None
    ) -> RabbitMqQueue:
        """
        A classic or a quorum queue, as the source of a feed. It must exist.

        Args:
            name: of the queue; a list of names has one queue for each part.
            prefetch: messages that the broker may deliver before it gets an acknowledgement.
            ids: whether publishers give each message a property `message_id` of its own.
            key: the key of a message: `routing_key`, `message_id`, `correlation_id`, or `headers.NAME`; None: as the
                topic in Kafka says.

        Raises:
            GraphError: an argument cannot be.
        """
        return RabbitMqQueue(self, name, prefetch=prefetch, ids=ids, key=key)

    def stream(
        self, name: str | Sequence[str], *, prefetch: int = 1_000, start: int = 0, key: str | None = None
    ) -> RabbitMqStream:
        """
        A stream, as the source of a feed. It must exist.

        Args:
            name: of the stream; a list of names, such as the partitions of a super stream, has one for each part.
            prefetch: messages that the broker sends ahead.
            start: the offset at which a new feed begins; 0: the oldest message that the stream has.
            key: see `queue`.

        Raises:
            GraphError: an argument cannot be.
        """
        return RabbitMqStream(self, name, prefetch=prefetch, start=start, key=key)

    def exchange(
        self,
        name: str,
        routing_key: str = "{key}",
        *,
        headers: Sequence[str] = (),
        content_type: str = "",
        expiry_s: int | None = None,
        max_bytes: int | None = None,
    ) -> RabbitMqExchange:
        """
        An exchange that gets a message for each value, for `Sink(..., into=...)` and `effects=`. It must exist.

        Args:
            name: of the exchange. The empty name is RabbitMQ's own one, which puts messages into the queue that the
                routing key names: `exchange("", "orders")`.
            routing_key: `{key}` stands for the key of the message in Kafka, and `{country}` for the field `country` of
                its value, which have one word each; `{key:path}` may have several, with dots between them.
            headers: names of headers of the message in Kafka that become headers.
            content_type: of the messages.
            expiry_s: for how long a queue keeps a message that is not read, in seconds.
            max_bytes: the largest body; a larger one becomes an error message.

        Raises:
            GraphError: an argument cannot be.
        """
        return RabbitMqExchange(self, name, routing_key, tuple(headers), content_type, expiry_s, max_bytes)

    def to_stream(
        self,
        name: str,
        *,
        headers: Sequence[str] = (),
        content_type: str = "",
        max_bytes: int = 1_000_000,
        port: int = 0,
        logs: str = "cues",
    ) -> RabbitMqStreamOut:
        """
        A stream that gets a message for each value, exactly once, for `Sink(..., into=...)` and `effects=`.

        It must exist. Each task has a stream of its own beside it, its log, which it makes.

        Args:
            name: of the stream.
            headers: names of headers of the message in Kafka that become application properties.
            content_type: of the messages.
            max_bytes: the largest body; a larger one becomes an error message.
            port: of the stream protocol; 0: 5552, or with TLS 5551.
            logs: what the names of the tasks' logs begin with; see docs/rabbitmq-streams.md.

        Raises:
            GraphError: an argument cannot be.
        """
        target = RabbitMqStreams(self, port, logs)
        return RabbitMqStreamOut(target, name, headers, content_type, max_bytes)  # type: ignore[arg-type]  # it checks

    def stream_login(self, port: int) -> StreamLogin:
        """
        What a client of the stream protocol needs to connect.

        Raises:
            ConfigError: the environment variable is not set or is not an address, or a file for TLS cannot be read.
        """
        from cues_kafka.bridges.rabbitmq.stream_client import PORT, TLS_PORT, StreamLogin  # noqa: PLC0415 - when needed

        address = RabbitMqAddress.declared(self.url, self.env)
        tls = address.tls(self.ca, self.cert, self.cert_key)
        return StreamLogin(address, port or (PORT if tls is None else TLS_PORT), self.timeout_s, tls)

    def login(self) -> RabbitMqLogin:
        """
        What a client needs to connect.

        Raises:
            ConfigError: the environment variable is not set or is not an address, or pika is not installed.
        """
        address = RabbitMqAddress.declared(self.url, self.env)
        try:
            from cues_kafka.bridges.rabbitmq.client import RabbitMqLogin  # noqa: PLC0415 - needs an extra
        except ImportError as error:
            raise missing("RabbitMq(...)", PIKA, error=error) from None
        tls = address.tls(self.ca, self.cert, self.cert_key)
        return RabbitMqLogin(address, self.heartbeat_s, self.timeout_s, tls)


@dataclass(frozen=True, slots=True)
class RabbitMqQueue(LedgeredSource):
    """
    One queue for each part, read behind a ledger; see `RabbitMq.queue`.

    Attributes:
        broker: where it is.
        name, prefetch, ids, key: see `RabbitMq.queue`; `name` has one for each part.
    """

    broker: RabbitMq
    name: str | Sequence[str]
    prefetch: int = field(default=250, kw_only=True)
    ids: bool = field(default=True, kw_only=True)
    key: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", _names(self.name, "queue", self.key))
        _check_number("RabbitMq(...).queue", "prefetch", self.prefetch, 1, MOST_PREFETCH)

    def packages(self) -> tuple[Package, ...]:
        """What must be installed for it, besides the core."""
        return (PIKA,)

    def parts(self) -> int:
        """One for each queue."""
        return len(self.name)

    @property
    def edge(self) -> EdgeKind:
        """What it guarantees, on which condition, and the command that shows it."""
        return FROM_QUEUE if self.ids else FROM_QUEUE_REPEATED

    def open(self) -> Acked:
        """
        Make what a process reads from. It connects when it is first read.

        Raises:
            ConfigError: the environment variable is not set or is not an address, or pika is not installed.
        """
        login = self.broker.login()
        from cues_kafka.bridges.rabbitmq.queues import QueueSource  # noqa: PLC0415 - needs an extra

        ledger = LEDGERS * self.prefetch
        queues = QueueSource(login, self.name, prefetch=self.prefetch, ids=self.ids, key=self.key, shown=self.shown)
        return Acked(queues, parts=self.parts(), prefetch=self.prefetch, ledger=ledger, unique=True)

    def shown(self, message: str) -> str:
        """A message for people."""
        return f"{message} of the RabbitMQ queue {', '.join(self.name)}"


@dataclass(frozen=True, slots=True)
class RabbitMqStream:
    """
    One stream for each part, read from offsets of its own; see `RabbitMq.stream`.

    Attributes:
        broker: where it is.
        name, prefetch, start, key: see `RabbitMq.stream`; `name` has one for each part.
    """

    broker: RabbitMq
    name: str | Sequence[str]
    prefetch: int = field(default=1_000, kw_only=True)
    start: int = field(default=0, kw_only=True)
    key: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", _names(self.name, "stream", self.key))
        _check_number("RabbitMq(...).stream", "prefetch", self.prefetch, 1, 65_535)
        _check_number("RabbitMq(...).stream", "start", self.start, 0, 2**63 - 1)

    def packages(self) -> tuple[Package, ...]:
        """What must be installed for it, besides the core."""
        return (PIKA,)

    def parts(self) -> int:
        """One for each stream."""
        return len(self.name)

    @property
    def edge(self) -> EdgeKind:
        """What it guarantees, on which condition, and the command that shows it."""
        return FROM_STREAM

    def open(self) -> StreamSource:
        """
        Make what a process reads from. It connects when it is first read.

        Raises:
            ConfigError: the environment variable is not set or is not an address, or pika is not installed.
        """
        login = self.broker.login()
        from cues_kafka.bridges.rabbitmq.streams import ReadStream, StreamSource  # noqa: PLC0415 - needs an extra

        streams = [ReadStream(one, self.prefetch, self.start, self.key) for one in self.name]
        return StreamSource(login, streams, self.show)

    def read(self, part: int, place: str | None, limit: int) -> Iterable[tuple[Message[Any], str]]:
        """See `ReplayableSource`; it is read by what `open` gives."""
        return self.open().read(part, place, limit)

    def show(self, place: str) -> str:
        """The message by its offset."""
        return f"offset {place.partition(':')[0]} of the RabbitMQ stream {', '.join(self.name)}"


@dataclass(frozen=True, slots=True)
class RabbitMqExchange(Published):
    """
    An exchange that gets a message for each value, at least once; see `RabbitMq.exchange`.

    A function gets it with the method `publish(value, step, routing_key=None)`. Each message has a `message_id` that is
    the same on each attempt at its step.

    Attributes:
        broker: where it is.
        name, routing_key, headers, content_type, expiry_s, max_bytes: see `RabbitMq.exchange`.
    """

    edge: ClassVar[EdgeKind] = TO_EXCHANGE
    what: ClassVar[str] = "RabbitMQ exchange"

    broker: RabbitMq
    name: str
    routing_key: str = "{key}"
    headers: tuple[str, ...] = ()
    content_type: str = ""
    expiry_s: int | None = None
    max_bytes: int | None = None

    def __post_init__(self) -> None:
        where = "RabbitMq(...).exchange"
        for name, value in (("", self.name), ("content_type=", self.content_type)):
            if not isinstance(value, str) or len(value.encode(errors="replace")) > LONGEST:
                raise GraphError(f"{where}({name}{value!r:.200}): takes a text of at most {LONGEST} bytes.")
        if not isinstance(self.routing_key, str) or (why := ROUTING_KEYS.wrong_template(self.routing_key)):
            why = why if isinstance(self.routing_key, str) else "is not a text"
            raise GraphError(f"{where}(routing_key={self.routing_key!r:.200}): it {why}.")
        object.__setattr__(self, "headers", tuple(self.headers))
        for one in self.headers:
            if not isinstance(one, str) or not 1 <= len(one.encode(errors="replace")) <= LONGEST:
                raise GraphError(f"{where}(headers={one!r:.200}): the name of a header has 1 to {LONGEST} bytes.")
        for name in ("expiry_s", "max_bytes"):
            if (value := getattr(self, name)) is not None:
                _check_number(where, name, value, 1, 2**31 - 1)

    def packages(self) -> tuple[Package, ...]:
        return (PIKA,)

    def title(self, name: str) -> str:
        del name
        return f"{self.what} {self.name!r}" if self.name else f"RabbitMQ queue {self.routing_key!r}"

    def publisher(self, graph: str, processor: str) -> Publisher:
        login = self.broker.login()
        from cues_kafka.bridges.rabbitmq.publisher import ExchangeSettings, RabbitMqPublisher  # noqa: PLC0415 - an extra

        settings = (self.name, self.routing_key, self.headers, self.content_type, self.expiry_s, self.max_bytes)
        return RabbitMqPublisher(ExchangeSettings(*settings), login, f"cues-kafka {graph}.{processor}")


def _names(name: Any, what: str, key: Any) -> tuple[str, ...]:
    """
    The names of queues, one for each part.

    Raises:
        GraphError: one of them cannot be, or one is twice; or the key cannot be.
    """
    names = (name,) if isinstance(name, str) else tuple(name) if isinstance(name, Sequence) else ()
    for one in names:
        if not isinstance(one, str) or not 1 <= len(one.encode(errors="replace")) <= 255:
            raise GraphError(f"RabbitMq(...).{what}({name!r:.200}): the name of a {what} has 1 to 255 bytes.")
    if not names or len(set(names)) < len(names):
        raise GraphError(
            f"RabbitMq(...).{what}({name!r:.200}): takes the name of a {what}, or a list with one for each part."
        )
    if (
        key is not None
        and key not in KEYS
        and not (isinstance(key, str) and key.removeprefix(HEADERS) not in ("", key))
    ):
        raise GraphError(
            f"RabbitMq(...).{what}(key={key!r:.80}): takes {', '.join(map(repr, KEYS))}, 'headers.NAME', or None."
        )
    return names


def _check_number(where: str, name: str, value: Any, least: int, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise GraphError(f"{where}({name}={value!r}): takes a whole number from {least} to {most:,}.")

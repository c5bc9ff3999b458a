"""`Amqp`, a broker that speaks AMQP 1.0, whose queues are sources of feeds, and targets of sinks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeAlias

from cues_kafka.arguments import known_arguments
from cues_kafka.bridges.acked import Acked
from cues_kafka.bridges.amqp.address import AmqpAddress
from cues_kafka.bridges.amqp.addresses import ADDRESSES
from cues_kafka.bridges.amqp.target import AmqpDestination, AmqpTarget
from cues_kafka.bridges.destinations import QUEUE, TOPIC
from cues_kafka.bridges.ledger import MOST_IDS
from cues_kafka.bridges.queues import LedgeredSource, read_by, several
from cues_kafka.errors import GraphError
from cues_kafka.extras import PROTON, Package, missing
from cues_kafka.graph.levels import AT_LEAST_ONCE, EdgeKind
from cues_kafka.graph.publish import Published

if TYPE_CHECKING:
    from cues_kafka.bridges.amqp.engine import AmqpLogin
    from cues_kafka.graph.publish import Publisher

LEDGERS: Final = 4
"""Ids of a ledger for each message of the window: a successor may get one window before what its predecessor had."""

MOST_PREFETCH: Final = MOST_IDS // LEDGERS

KEYS: Final = ("message_id", "subject", "to", "correlation_id", "group_id", "user_id")
NAMED: Final = ("properties.", "annotations.")

_TESTS: Final = "pytest -m 'bridge or not bridge' tests/servers/test_amqp.py"

FROM_AMQP: Final = EdgeKind(
    'a queue of an AMQP 1.0 broker to Kafka, `Feed(Amqp(...).queue("orders"), ...)`',
    "exactly once (if publishers give each message an id)",
    "accepted after Kafka's commit; message-id names redeliveries, so a crash may repeat a message without one. The "
    "broker keeps the queue, gives it to one consumer at a time, and gives no message up (Artemis: "
    "max-delivery-attempts=-1)",
    _TESTS,
)
FROM_AMQP_REPEATED: Final = EdgeKind(
    'a queue of an AMQP 1.0 broker whose messages have no ids, to Kafka, `Feed(Amqp(...).queue("orders", ids=False), '
    "...)`",
    AT_LEAST_ONCE,
    "accepted after Kafka's commit; a crash repeats messages",
    _TESTS,
    "Have publishers set the message-id, another one for each message, and leave ids=False out.",
)
TO_ADDRESS: Final = EdgeKind(
    'Kafka to any AMQP 1.0 broker, `Sink(..., into=Amqp(...).address("/queue/orders"))`',
    AT_LEAST_ONCE,
    "confirmed by the broker before Kafka's commit; a crash repeats the messages of a batch, with the same message-id",
    "pytest -m 'bridge or not bridge' tests/servers/test_amqp.py tests/servers/test_amqp_rabbitmq.py",
    "On a broker with transactions, such as Artemis, write Sink(..., into=Amqp(...).to_queue(...)). Or have the "
    "receiver drop messages whose message-id it has had: a feed of cues-kafka does.",
)

One: TypeAlias = "str | Sequence[str]"


@known_arguments()
@dataclass(frozen=True, slots=True)
class Amqp:
    """
    A broker that speaks AMQP 1.0, such as Artemis and RabbitMQ with its plugin. docs/amqp.md says what each level rests
    on.

    Attributes:
        url: ``amqp://user:password@host:5672``, with TLS ``amqps://host:5671``. It is never shown.
        env: the environment variable that holds the address; then `url` is empty.
        vhost: the virtual host, as the broker wants it: RabbitMQ ``vhost:name``. Empty: the name of the host.
        idle_s: after how many seconds a silent broker counts as lost. How long the broker waits is its own setting.
        timeout_s: how long connecting, and each answer of the broker, may take, in seconds.
        ca, cert, cert_key: files in PEM form for TLS: who signs brokers, and our own certificate with its key. Without
            `ca` the system decides whom to trust. Without a user the certificate is the login.
    """

    url: str = field(default="", repr=False, metadata={"hidden": True})
    env: str = field(default="", kw_only=True)
    vhost: str = field(default="", kw_only=True)
    idle_s: float = field(default=10.0, kw_only=True)
    timeout_s: float = field(default=10.0, kw_only=True)
    ca: str = field(default="", kw_only=True)
    cert: str = field(default="", kw_only=True)
    cert_key: str = field(default="", kw_only=True)

    def __post_init__(self) -> None:
        AmqpAddress.check(self.url, self.env, "ORDERS_BROKER")
        for name in ("idle_s", "timeout_s"):
            seconds = getattr(self, name)
            if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds <= 4_000_000:
                raise GraphError(f"Amqp({name}={seconds!r}): takes a number of seconds above 0.")
        if self.cert_key and not self.cert:
            raise GraphError("Amqp(cert_key=...): is the key of a certificate. Give cert=, too.")

    def queue(
        self,
        name: One,
        *,
        selector: One = "",
        prefetch: int = 250,
        ids: bool = True,
        key: str | None = None,
        timestamps: bool = True,
    ) -> AmqpQueue:
        """
        A queue, as the source of a feed.

        Args:
            name: of the queue, as the broker wants it: Artemis ``orders``, RabbitMQ ``/amq/queue/orders``. Several: one
                part for each.
            selector: which messages, in JMS' language, as Artemis has it; several: one part for each, all of one queue.
                No message may match two of them, and one that matches none stays in the queue.
            prefetch: messages that the broker may deliver before it gets an acknowledgement.
            ids: whether publishers give each message a `message-id` of its own.
            key: the key of a message: `message_id`, `subject`, `to`, `correlation_id`, `group_id`, `user_id`,
                `properties.NAME` or `annotations.NAME`; None: as the topic in Kafka says.
            timestamps: whether a message in Kafka has the time at which it was made; else that of its arrival.

        Raises:
            GraphError: an argument cannot be.
        """
        return AmqpQueue(self, name, selector, prefetch=prefetch, ids=ids, key=key, timestamps=timestamps)

    def target(self, *, markers: str = "cues") -> AmqpTarget:
        """
        The broker as what a processor writes to, exactly once: `effects={"jms": Amqp(...).target()}`.

        It must have transactions, as Artemis has; RabbitMQ has none.

        Args:
            markers: what the names of the queues begin with that say how far each task is.

        Raises:
            GraphError: it cannot be the beginning of a queue's name.
        """
        return AmqpTarget(self, markers)

    def to_queue(
        self, name: str, *, headers: Mapping[str, Any] | None = None, markers: str = "cues"
    ) -> AmqpDestination:
        """
        A queue that messages go to, exactly once: `Sink(..., into=Amqp(...).to_queue("orders"))`.

        Args:
            name: of the queue.
            headers: of each message, such as `{"priority": 7, "colour": "red"}`.
            markers: see `target`.

        Raises:
            GraphError: it cannot be the name of a queue, or a message cannot have such a header.
        """
        return AmqpDestination(self.target(markers=markers), QUEUE, name, headers or {})

    def to_topic(
        self, name: str, *, headers: Mapping[str, Any] | None = None, markers: str = "cues"
    ) -> AmqpDestination:
        """A topic that messages go to; see `to_queue`."""
        return AmqpDestination(self.target(markers=markers), TOPIC, name, headers or {})

    def address(
        self, name: str, *, headers: Sequence[str] = (), content_type: str = "", max_bytes: int | None = None
    ) -> AmqpSink:
        """
        An address of any broker, at least once: `Sink(..., into=Amqp(...).address("/queue/orders"))`.

        Args:
            name: as the broker wants it. `{key}` stands for the key of the message in Kafka, and `{country}` for the
                field `country` of its value, which have no `/`; `{key:path}` may have some.
            headers: names of headers of the message in Kafka that become properties.
            content_type: of the messages.
            max_bytes: the largest body; a larger one becomes an error message.

        Raises:
            GraphError: an argument cannot be.
        """
        return AmqpSink(self, name, headers, content_type, max_bytes)

    def login(self) -> AmqpLogin:
        """
        What a client needs to connect.

        Raises:
            ConfigError: the environment variable is not set or is not an address, a file for TLS cannot be read, or
                Proton is not installed.
        """
        address = AmqpAddress.declared(self.url, self.env)
        try:
            from cues_kafka.bridges.amqp.engine import AmqpLogin  # noqa: PLC0415 - needs an extra
        except ImportError as error:
            otherwise = ", which builds it with a C compiler (docs/amqp.md)"
            raise missing("Amqp(...)", PROTON, otherwise=otherwise, error=error) from None
        tls = address.tls(self.ca, self.cert, self.cert_key)
        return AmqpLogin(
            address,
            vhost=self.vhost,
            idle_s=self.idle_s,
            timeout_s=self.timeout_s,
            tls=tls,
            certificate=bool(self.cert),
        )


@dataclass(frozen=True, slots=True)
class AmqpQueue(LedgeredSource):
    """
    A queue for each part, or a selector of one queue, read behind a ledger; see `Amqp.queue`.

    Attributes:
        broker: where it is.
        name, selector, prefetch, ids, key, timestamps: see `Amqp.queue`; the first two have one for each part.
    """

    broker: Amqp
    name: One
    selector: One = ""
    prefetch: int = field(default=250, kw_only=True)
    ids: bool = field(default=True, kw_only=True)
    key: str | None = field(default=None, kw_only=True)
    timestamps: bool = field(default=True, kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", several(self.name, f"Amqp(...).queue(queue {self.name!r:.200})"))
        object.__setattr__(
            self, "selector", several(self.selector, f"Amqp(...).queue(selector {self.selector!r:.200})")
        )
        if not self.name:
            raise GraphError('Amqp(...).queue(""): name the queue, Amqp(...).queue("orders").')
        if len(self.name) > 1 and len(self.selector) > 1:
            raise GraphError(
                "Amqp(...).queue([...], selector=[...]): parts are several queues, or several selectors of one queue. "
                "Declare a feed for each queue."
            )
        if type(self.prefetch) is not int or not 1 <= self.prefetch <= MOST_PREFETCH:
            raise GraphError(
                f"Amqp(...).queue(prefetch={self.prefetch!r}): takes a whole number from 1 to {MOST_PREFETCH:,}."
            )
        if self.key is not None and not _is_key(self.key):
            raise GraphError(
                f"Amqp(...).queue(key={self.key!r:.80}): takes {', '.join(map(repr, KEYS))}, 'properties.NAME', "
                "'annotations.NAME', or None."
            )

    def packages(self) -> tuple[Package, ...]:
        """What must be installed for it, besides the core."""
        return (PROTON,)

    def parts(self) -> int:
        """One for each queue or selector."""
        return max(len(self.name), len(self.selector))

    def read_by(self, part: int) -> tuple[str, str]:
        """The queue and the selector of a part; the selector may be empty."""
        return read_by(part, self.name, self.selector)

    @property
    def edge(self) -> EdgeKind:
        """What it guarantees, on which condition, and the command that shows it."""
        return FROM_AMQP if self.ids else FROM_AMQP_REPEATED

    def open(self) -> Acked:
        """
        Make what a process reads from. It connects when it is first read.

        Raises:
            ConfigError: see `Amqp.login`.
        """
        login = self.broker.login()
        from cues_kafka.bridges.amqp.source import AmqpSource  # noqa: PLC0415 - needs an extra

        room = LEDGERS * self.prefetch
        return Acked(AmqpSource(self, login), parts=self.parts(), prefetch=self.prefetch, ledger=room, unique=True)

    def shown(self, message: str) -> str:
        """A message for people."""
        return f"{message} of {', '.join(self.name)}"


@dataclass(frozen=True, slots=True)
class AmqpSink(Published):
    """
    An address that gets a message for each value, at least once; see `Amqp.address`.

    A function gets it with the method `publish(value, step, address=None)`. Each message has a `message-id` that is the
    same on each attempt at its step.

    Attributes:
        broker: where it is.
        name, headers, content_type, max_bytes: see `Amqp.address`.
    """

    edge: ClassVar[EdgeKind] = TO_ADDRESS
    what: ClassVar[str] = "AMQP address"

    broker: Amqp
    name: str
    headers: Sequence[str] = ()
    content_type: str = ""
    max_bytes: int | None = None

    def __post_init__(self) -> None:
        where = "Amqp(...).address"
        if not isinstance(self.name, str) or (why := ADDRESSES.wrong_template(self.name)):
            raise GraphError(f"{where}({self.name!r:.200}): it {why if isinstance(self.name, str) else 'is not text'}.")
        if not isinstance(self.content_type, str):
            raise GraphError(f"{where}(content_type={self.content_type!r:.80}): takes a text.")
        if isinstance(self.headers, str) or not all(isinstance(one, str) and one for one in self.headers):
            raise GraphError(f"{where}(headers={self.headers!r:.200}): takes a list of names.")
        object.__setattr__(self, "headers", tuple(self.headers))
        most = self.max_bytes
        if most is not None and (isinstance(most, bool) or not isinstance(most, int) or most < 1):
            raise GraphError(f"{where}(max_bytes={most!r}): takes a number of bytes, from 1 on.")

    def packages(self) -> tuple[Package, ...]:
        return (PROTON,)

    def title(self, name: str) -> str:
        del name
        return f"{self.what} {self.name!r}"

    def publisher(self, graph: str, processor: str) -> Publisher:
        login = self.broker.login()
        from cues_kafka.bridges.amqp.publisher import AddressSettings, AmqpPublisher  # noqa: PLC0415 - needs an extra

        settings = AddressSettings(self.name, tuple(self.headers), self.content_type, self.max_bytes)
        return AmqpPublisher(settings, login, f"cues-kafka {graph}.{processor}")


def _is_key(key: Any) -> bool:
    if not isinstance(key, str):
        return False
    return key in KEYS or any(key.startswith(one) and key != one for one in NAMED)

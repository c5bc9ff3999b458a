"""
`IbmMq`, whose queues are sources of feeds and targets of sinks.

Not run against a real IBM MQ; tested on a fake of its client.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from cues_kafka.arguments import known_arguments
from cues_kafka.bridges.acked import Acked
from cues_kafka.bridges.ibmmq.address import IbmMqAddress
from cues_kafka.bridges.ibmmq.messages import KEYS, PROPERTY
from cues_kafka.bridges.ibmmq.target import NOT_RUN, QUEUE_NAME, IbmMqDestination, IbmMqTarget
from cues_kafka.bridges.ledger import MOST_IDS
from cues_kafka.bridges.queues import LedgeredSource
from cues_kafka.errors import ConfigError, GraphError
from cues_kafka.extras import IBMMQ, Package
from cues_kafka.extras import missing as missing_package
from cues_kafka.graph.levels import EdgeKind

if TYPE_CHECKING:
    from cues_kafka.bridges.ibmmq.client import MqLogin

LEDGERS: Final = 4
"""Ids of a ledger for each message of a unit of work: messages of a higher priority may come before a redelivery."""

MOST_PREFETCH: Final = MOST_IDS // LEDGERS

ANY_CIPHER: Final = "ANY_TLS12_OR_HIGHER"

FROM_IBMMQ: Final = EdgeKind(
    'a queue of IBM MQ to Kafka, `Feed(IbmMq(...).queue("ORDERS"), ...)`',
    "exactly once (while the queue manager keeps its queue)",
    "read in a unit of work that is committed after Kafka's commit; MsgId, time and body name redeliveries. The feed "
    "is the only reader, and the queue has MSGDLVSQ(FIFO) or messages of one priority; what was put as non-persistent "
    f"may be lost. {NOT_RUN}",
    "pytest tests/unit/bridges/ibmmq",
)


@known_arguments()
@dataclass(frozen=True, slots=True)
class IbmMq:
    """
    A queue manager of IBM MQ: `Feed(IbmMq("mq://...").queue("ORDERS"), into="orders")`.

    Not run against a real IBM MQ; tested on a fake of its client. It needs the extra `ibmmq` and IBM's C client.

    Attributes:
        url: ``mq://user:password@host:1414/QM1?channel=APP.SVRCONN``, with TLS ``mqs://``. It is never shown.
        env: the environment variable that holds the address; then `url` is empty.
        heartbeat_s: after how many seconds of silence each side asks whether the other one is there. The larger one of
            this and HBINT of the channel holds.
        timeout_s: how long a task waits for its marker, in seconds.
        cipher: the CipherSpec for TLS.
        key_repository: the file with certificates for TLS, as IBM's client takes it.
        key_label: of our own certificate in that file; empty: the default one.
    """

    url: str = field(default="", repr=False, metadata={"hidden": True})
    env: str = field(default="", kw_only=True)
    heartbeat_s: int = field(default=10, kw_only=True)
    timeout_s: float = field(default=10.0, kw_only=True)
    cipher: str = field(default=ANY_CIPHER, kw_only=True)
    key_repository: str = field(default="", kw_only=True)
    key_label: str = field(default="", kw_only=True)

    def __post_init__(self) -> None:
        IbmMqAddress.check(self.url, self.env, "ORDERS_MQ")
        _check_number("IbmMq", "heartbeat_s", self.heartbeat_s, 1, 999_999)
        if isinstance(self.timeout_s, bool) or not isinstance(self.timeout_s, int | float) or not self.timeout_s > 0:
            raise GraphError(f"IbmMq(timeout_s={self.timeout_s!r}): takes a number of seconds above 0.")
        for name, most in (("cipher", 32), ("key_repository", 256), ("key_label", 64)):
            given = getattr(self, name)
            if not isinstance(given, str) or len(given) > most or not given.isascii():
                raise GraphError(f"IbmMq({name}={given!r:.300}): takes a text of at most {most} ASCII characters.")
        if not self.cipher:
            raise GraphError(
                f"IbmMq(cipher=''): leave it out for {ANY_CIPHER}; without TLS write mq:// in the address."
            )

    def queue(
        self,
        name: str | Sequence[str],
        *,
        prefetch: int = 250,
        key: str | None = None,
        convert: bool = True,
        timestamps: bool = True,
    ) -> IbmMqQueue:
        """
        A queue, as the source of a feed. It must exist, and nothing else may read it.

        Args:
            name: of the queue; a list of names has one queue for each part.
            prefetch: messages of one unit of work, at most MAXUMSGS of the queue manager (10,000 by default).
            key: the key of a message: `message_id`, `correlation_id`, `group_id`, or `properties.NAME`; None: as the
                topic in Kafka says.
            convert: whether the queue manager converts text (MQSTR) to UTF-8. Text that it cannot convert comes as it
                is.
            timestamps: whether a message in Kafka has the time at which it was put; else that of its arrival.

        Raises:
            GraphError: an argument cannot be.
        """
        return IbmMqQueue(self, name, prefetch=prefetch, key=key, convert=convert, timestamps=timestamps)

    def target(self, *, markers: str = "CUES") -> IbmMqTarget:
        """
        The queue manager as what a processor writes to, exactly once: `effects={"mq": IbmMq(...).target()}`.

        Args:
            markers: what the names of the queues begin with that say how far each task is.

        Raises:
            GraphError: it cannot be the beginning of a queue's name.
        """
        return IbmMqTarget(self, markers)

    def to_queue(
        self,
        name: str,
        *,
        headers: Mapping[str, Any] | None = None,
        priority: int | None = None,
        expiry_s: float | None = None,
        markers: str = "CUES",
    ) -> IbmMqDestination:
        """
        A queue that messages go to, exactly once: `Sink(..., into=IbmMq(...).to_queue("ORDERS"))`.

        Args:
            name: of the queue. It must exist.
            headers: properties of each message.
            priority: of each message, from 0 to 9; None: as the queue says.
            expiry_s: for how long the queue keeps a message that is not read, in seconds.
            markers: see `target`.

        Raises:
            GraphError: an argument cannot be.
        """
        return IbmMqDestination(self.target(markers=markers), name, headers or {}, priority, expiry_s)

    def login(self) -> MqLogin:
        """
        What a client needs to connect.

        Raises:
            ConfigError: the environment variable is not set or is not an address, or the package `ibmmq` or IBM's C
                client is not there.
        """
        address = IbmMqAddress.declared(self.url, self.env)
        try:
            from cues_kafka.bridges.ibmmq.client import MqLogin  # noqa: PLC0415 - needs an extra
        except ImportError as error:
            raise missing(error) from None
        return MqLogin(address, self.heartbeat_s, self.cipher, self.key_repository, self.key_label)


@dataclass(frozen=True, slots=True)
class IbmMqQueue(LedgeredSource):
    """
    One queue for each part, read behind a ledger; see `IbmMq.queue`.

    Not run against a real IBM MQ; tested on a fake of its client.

    Attributes:
        manager: where it is.
        name, prefetch, key, convert, timestamps: see `IbmMq.queue`; `name` has one for each part.
    """

    manager: IbmMq
    name: str | Sequence[str]
    prefetch: int = field(default=250, kw_only=True)
    key: str | None = field(default=None, kw_only=True)
    convert: bool = field(default=True, kw_only=True)
    timestamps: bool = field(default=True, kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", _names(self.name))
        _check_number("IbmMq(...).queue", "prefetch", self.prefetch, 1, MOST_PREFETCH)
        known = self.key is None or self.key in KEYS
        if not known and not (isinstance(self.key, str) and self.key.removeprefix(PROPERTY) not in ("", self.key)):
            raise GraphError(
                f"IbmMq(...).queue(key={self.key!r:.80}): takes {', '.join(map(repr, KEYS))}, 'properties.NAME', or "
                "None."
            )

    def packages(self) -> tuple[Package, ...]:
        """What must be installed for it, besides the core."""
        return (IBMMQ,)

    def parts(self) -> int:
        """One for each queue."""
        return len(self.name)

    @property
    def edge(self) -> EdgeKind:
        """What it guarantees, on which condition, and the command that shows it."""
        return FROM_IBMMQ

    def open(self) -> Acked:
        """
        Make what a process reads from. It connects when it is first read.

        Raises:
            ConfigError: see `IbmMq.login`.
        """
        login = self.manager.login()
        from cues_kafka.bridges.ibmmq.source import IbmMqSource  # noqa: PLC0415 - needs an extra

        source = IbmMqSource(self, login)
        return Acked(source, parts=self.parts(), prefetch=self.prefetch, ledger=LEDGERS * self.prefetch, unique=True)

    def shown(self, message: str) -> str:
        """A message for people."""
        return f"{message} of the IBM MQ queue {', '.join(self.name)}"


def missing(error: ImportError) -> ConfigError:
    """What is not there, and what to do."""
    if error.name == "ibmmq":
        otherwise = (
            ". It needs IBM's C client, too: the redistributable client for IBM MQ, in /opt/mqm or where MQ_FILE_PATH "
            "says"
        )
        return missing_package("IbmMq(...)", IBMMQ, otherwise=otherwise)
    return ConfigError(
        "IbmMq: the package ibmmq of the extra cues-kafka[ibmmq] does not find IBM's C client "
        f"({error.__context__ or error}). Install the redistributable client for IBM MQ, in /opt/mqm or where "
        "MQ_FILE_PATH says, and let the system find its libraries: . /opt/mqm/bin/setmqenv -s -k, or "
        "LD_LIBRARY_PATH=/opt/mqm/lib64"
    )


def _names(name: Any) -> tuple[str, ...]:
    """
    The names of queues, one for each part.

    Raises:
        GraphError: one of them cannot be, or one is twice.
    """
    names = (name,) if isinstance(name, str) else tuple(name) if isinstance(name, Sequence) else ()
    for one in names:
        if not isinstance(one, str) or not QUEUE_NAME.fullmatch(one):
            raise GraphError(
                f"IbmMq(...).queue({one!r:.200}): the name of a queue has at most 48 letters, digits, and . _ / %"
            )
    if not names or len(set(names)) < len(names):
        raise GraphError(
            f"IbmMq(...).queue({name!r:.200}): takes the name of a queue, or a list with one for each part."
        )
    return names


def _check_number(where: str, name: str, value: Any, least: int, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise GraphError(f"{where}({name}={value!r}): takes a whole number from {least} to {most:,}.")

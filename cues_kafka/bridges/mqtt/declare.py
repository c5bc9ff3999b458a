"""`Mqtt`, a broker of MQTT 3.1.1 or 5, as the source of a feed and as the target of a sink."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, TypeAlias

from cues_kafka.arguments import known_arguments
from cues_kafka.bridges.acked import Acked
from cues_kafka.bridges.mqtt.address import MqttAddress
from cues_kafka.bridges.mqtt.filters import TOPICS, overlap, wrong_filter, wrong_published
from cues_kafka.bridges.queues import LedgeredSource
from cues_kafka.errors import GraphError
from cues_kafka.extras import PAHO, Package, missing
from cues_kafka.graph.levels import AT_LEAST_ONCE, EdgeKind
from cues_kafka.graph.publish import Published

if TYPE_CHECKING:
    from cues_kafka.bridges.mqtt.client import Login
    from cues_kafka.graph.publish import Publisher

VERSIONS: Final = ("5", "3.1.1")

MOST_PREFETCH: Final = 5_000
"""Packet numbers go to 65,535. They must not come again while a ledger has them."""

LEDGER: Final = 1_000
"""Ids that are kept at least. A broker that takes no Receive Maximum may deliver more than `prefetch`."""

FROM_MQTT: Final = EdgeKind(
    "an MQTT broker to Kafka, `Feed(Mqtt(...), ...)`",
    "exactly once (while the broker keeps the session)",
    "QoS 1, acknowledged after Kafka's commit; numbers of packets, which are tried out, or the property cues-id, name "
    "redeliveries. The broker drops nothing that waits (mosquitto: max_queued_messages 0); what was published with "
    "QoS 0 may be lost",
    "pytest tests/servers/test_mqtt.py",
)
FROM_MQTT_REPEATED: Final = EdgeKind(
    "an MQTT broker that uses packet numbers again at once, to Kafka, `Feed(Mqtt(..., packet_ids=False), ...)`",
    AT_LEAST_ONCE,
    "QoS 1, acknowledged after Kafka's commit; a crash repeats messages without the property cues-id",
    "pytest tests/unit/bridges/mqtt",
    "Have publishers set the user property cues-id, which names each message.",
)

TO_MQTT: Final = EdgeKind(
    'Kafka to an MQTT broker, `Sink(..., into=Mqtt(...).topic("alarms/{key}"))`',
    AT_LEAST_ONCE,
    "QoS 1, acknowledged by the broker before Kafka's commit; a crash repeats the messages of a batch, with the same "
    "property cues-id",
    "pytest tests/servers/test_mqtt.py",
    "Have the receiver drop messages whose user property cues-id it has had: a feed of cues-kafka does.",
)

Topics: TypeAlias = "str | Sequence[str] | Sequence[Sequence[str]]"


@known_arguments()
@dataclass(frozen=True, slots=True)
class Mqtt(LedgeredSource):
    """
    An MQTT broker: `Feed(Mqtt(..., topics=["t/#"], session="s1"), into="ingress")`.

    Messages are acknowledged behind their commit in Kafka, and the broker keeps a session for the feed. docs/bridges.md
    says what each level rests on.

    Attributes:
        url: ``mqtt://user:password@host:1883``, with TLS ``mqtts://``; ``tcp://`` and ``ssl://`` mean the same. It is
            never shown.
        env: the environment variable that holds the address; then `url` is empty.
        topics: filters to read; a list of lists has one list for each part, which has a session of its own.
        session: the name of the session: the client id. With several parts, a number follows: `s1-0`, `s1-1`.
        version: of MQTT, `5` or `3.1.1`.
        qos: 1. QoS 2 is refused.
        prefetch: messages that the broker may deliver before it gets an acknowledgement (Receive Maximum).
        session_expiry_s: for how long the broker keeps the session while nothing is connected, in seconds; None: for
            good, as far as the broker allows. MQTT 5 only.
        key: the key of a message: its topic; the number of a level of its topic, from 0; or None, as the topic in
            Kafka says.
        retained: whether messages that the broker has retained are read when a filter is new to the session.
        packet_ids: whether packet numbers tell redeliveries from new messages, as those of mosquitto do. It is tried
            out; brokers that give other numbers, such as Artemis and RabbitMQ, are refused.
        keep_alive_s: the broker or we notice a dead connection after about 1.5 times as many seconds.
        timeout_s: how long connecting, and each answer of the broker, may take, in seconds.
        ca, cert, cert_key: files in PEM form for TLS: who signs brokers, and our own certificate with its key. Without
            `ca` the system decides whom to trust.
    """

    url: str = field(default="", repr=False, metadata={"hidden": True})
    env: str = field(default="", kw_only=True)
    topics: Topics = field(default=(), kw_only=True)
    session: str = field(default="", kw_only=True)
    version: Literal["5", "3.1.1"] = field(default="5", kw_only=True)
    qos: int = field(default=1, kw_only=True)
    prefetch: int = field(default=500, kw_only=True)
    session_expiry_s: int | None = field(default=None, kw_only=True)
    key: Literal["topic"] | int | None = field(default="topic", kw_only=True)
    retained: bool = field(default=True, kw_only=True)
    packet_ids: bool = field(default=True, kw_only=True)
    keep_alive_s: int = field(default=60, kw_only=True)
    timeout_s: float = field(default=10.0, kw_only=True)
    ca: str = field(default="", kw_only=True)
    cert: str = field(default="", kw_only=True)
    cert_key: str = field(default="", kw_only=True)

    def __post_init__(self) -> None:
        MqttAddress.check(self.url, self.env, "PLANT_BROKER")
        object.__setattr__(self, "topics", _each_part(self.topics))
        _check(self)

    def topic(
        self,
        topic: str,
        *,
        retain: bool = False,
        expiry_s: int | None = None,
        content_type: str = "",
        headers: Sequence[str] = (),
        max_bytes: int | None = None,
    ) -> MqttTopic:
        """
        A topic of the broker that gets a message for each value, for `Sink(..., into=...)` and `effects=`.

        Args:
            topic: where messages go. `{key}` stands for the key of the message in Kafka, and `{site}` for the field
                `site` of its value; `{key:path}` may have several levels.
            retain: whether the broker keeps the newest message for those who subscribe later. A value of None, a
                tombstone, deletes it.
            expiry_s: for how long the broker keeps a message for a session that is away, in seconds. MQTT 5 only.
            content_type: of the payload. MQTT 5 only.
            headers: names of headers of the message in Kafka that become user properties. MQTT 5 only.
            max_bytes: the largest payload; a larger one becomes an error message. None: what the broker takes, as far
                as it says so.

        Raises:
            GraphError: an argument cannot be.
        """
        return MqttTopic(self, topic, retain, expiry_s, content_type, tuple(headers), max_bytes)

    def packages(self) -> tuple[Package, ...]:
        """What must be installed for it, besides the core."""
        return (PAHO,)

    def parts(self) -> int:
        """One for each list of filters."""
        if not self.topics or not self.session:
            raise GraphError(
                "Mqtt(...) as the source of a feed: name what it reads and the session that the broker keeps for it, "
                'Mqtt(..., topics=["plant/#"], session="plant").'
            )
        return len(self.topics)

    @property
    def edge(self) -> EdgeKind:
        """What it guarantees, on which condition, and the command that shows it."""
        return FROM_MQTT if self.packet_ids else FROM_MQTT_REPEATED

    def open(self) -> Acked:
        """
        Make what a process reads from. It connects when it is first read.

        Raises:
            ConfigError: the environment variable is not set or is not an address, or paho-mqtt is not installed.
        """
        login = self.login()
        from cues_kafka.bridges.mqtt.source import MqttSource  # noqa: PLC0415 - needs an extra

        return Acked(MqttSource(self, login), parts=self.parts(), prefetch=self.prefetch, ledger=self.ledger)

    @property
    def ledger(self) -> int:
        """Ids that the ledger of a part has room for."""
        return max(self.prefetch, LEDGER)

    def shown(self, message: str) -> str:
        """A message for people."""
        return f"{message} of the MQTT session {self.session!r}"

    def session_of(self, part: int) -> str:
        """The client id of a part."""
        return self.session if len(self.topics) == 1 else f"{self.session}-{part}"

    def login(self) -> Login:
        """
        What a client needs to connect.

        Raises:
            ConfigError: the environment variable is not set or is not an address, or paho-mqtt is not installed.
        """
        address = MqttAddress.declared(self.url, self.env)
        try:
            from cues_kafka.bridges.mqtt.client import Login  # noqa: PLC0415 - needs an extra
        except ImportError as error:
            raise missing("Mqtt(...)", PAHO, error=error) from None
        tls = address.tls(self.ca, self.cert, self.cert_key)
        return Login(address, self.version, self.keep_alive_s, self.timeout_s, tls)


@dataclass(frozen=True, slots=True)
class MqttTopic(Published):
    """
    A topic that gets a message for each value, at least once; see `Mqtt.topic`.

    A function gets it with the method `publish(value, step, topic=None)`. Each message has the user property `cues-id`,
    which is the same on each attempt at its step; MQTT 5 only.

    Attributes:
        broker: where it is.
        name, retain, expiry_s, content_type, headers, max_bytes: see `Mqtt.topic`.
    """

    edge: ClassVar[EdgeKind] = TO_MQTT
    what: ClassVar[str] = "MQTT topic"

    broker: Mqtt
    name: str
    retain: bool = False
    expiry_s: int | None = None
    content_type: str = ""
    headers: tuple[str, ...] = ()
    max_bytes: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise GraphError(f"Mqtt(...).topic({self.name!r}): takes a topic, such as 'alarms/{{key}}'.")
        if why := TOPICS.wrong_template(self.name):
            raise GraphError(f"Mqtt(...).topic({self.name!r}): the topic {why}.")
        object.__setattr__(self, "headers", tuple(self.headers))
        modern = {"expiry_s": self.expiry_s, "content_type": self.content_type, "headers": self.headers}
        if self.broker.version != "5" and (given := [name for name, one in modern.items() if one]):
            raise GraphError(f"Mqtt(version='3.1.1').topic({given[0]}=...): only MQTT 5 has it. Leave it out.")
        for one in (*self.headers, self.content_type):
            if why := wrong_published(one) if isinstance(one, str) else "is not a text":
                raise GraphError(f"Mqtt(...).topic(...): the property {one!r:.80} {why}.")
        if "cues-id" in self.headers:
            raise GraphError("Mqtt(...).topic(headers=...): 'cues-id' is the id that each message gets. Leave it out.")
        for name in ("expiry_s", "max_bytes"):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
                raise GraphError(f"Mqtt(...).topic({name}={value!r}): takes a whole number from 1 on, or None.")

    def packages(self) -> tuple[Package, ...]:
        return (PAHO,)

    def title(self, name: str) -> str:
        del name
        return f"{self.what} {self.name}"

    def publisher(self, graph: str, processor: str) -> Publisher:
        login = self.broker.login()
        from cues_kafka.bridges.mqtt.publisher import MqttPublisher  # noqa: PLC0415 - needs an extra

        return MqttPublisher(self, login, f"{graph}.{processor}")


def _each_part(topics: Any) -> tuple[tuple[str, ...], ...]:
    """The filters of each part."""
    if isinstance(topics, str):
        return ((topics,),)
    if not isinstance(topics, Sequence):
        raise GraphError(f"Mqtt(topics={topics!r}): takes a filter, a list of filters, or a list of lists, one a part.")
    nested = [not isinstance(one, str) and isinstance(one, Sequence) for one in topics]
    if any(nested):
        if not all(nested) or not all(topics):
            raise GraphError(f"Mqtt(topics={topics!r}): with several parts, each one has a list of filters.")
        return tuple(tuple(part) for part in topics)
    return (tuple(topics),) if topics else ()


def _check(mqtt: Mqtt) -> None:
    """
    Check the settings.

    Raises:
        GraphError: one of them cannot be.
    """
    if mqtt.qos == 2:
        raise GraphError(
            "Mqtt(qos=2): as a source QoS 2 loses messages. Its receipt is sent before Kafka has the message, and the "
            "broker does not deliver it again: of five messages, three that were not yet acknowledged were gone after "
            "a restart. QoS 1 with the ledger of the feed is exactly once. Leave qos= out."
        )
    if mqtt.qos != 1 or isinstance(mqtt.qos, bool):
        raise GraphError(f"Mqtt(qos={mqtt.qos!r}): takes 1. With QoS 0 nothing is delivered again after a crash.")
    if mqtt.version not in VERSIONS:
        raise GraphError(f"Mqtt(version={mqtt.version!r}): takes '5' or '3.1.1'.")
    if not isinstance(mqtt.session, str) or len(mqtt.session.encode(errors="replace")) > 1_000 or "\0" in mqtt.session:
        raise GraphError(f"Mqtt(session={mqtt.session!r:.80}): takes a name, which is the client id at the broker.")
    _check_number(mqtt, "prefetch", 1, MOST_PREFETCH)
    _check_number(mqtt, "keep_alive_s", 1, 65_535)
    if mqtt.session_expiry_s is not None:
        _check_number(mqtt, "session_expiry_s", 1, 2**32 - 1)
        if mqtt.version != "5":
            raise GraphError("Mqtt(session_expiry_s=...): MQTT 3.1.1 cannot ask for it. Set it at the broker.")
    if isinstance(mqtt.timeout_s, bool) or not isinstance(mqtt.timeout_s, int | float) or not mqtt.timeout_s > 0:
        raise GraphError(f"Mqtt(timeout_s={mqtt.timeout_s!r}): takes a number of seconds above 0.")
    if mqtt.key not in (None, "topic") and (isinstance(mqtt.key, bool) or not isinstance(mqtt.key, int)):
        raise GraphError(f"Mqtt(key={mqtt.key!r}): takes 'topic', the number of a level from 0, or None.")
    if bool(mqtt.cert) != bool(mqtt.cert_key):
        raise GraphError("Mqtt(...): cert= and cert_key= belong together. Give both files, or none.")
    _check_filters([one for part in mqtt.topics for one in part])


def _check_number(mqtt: Mqtt, name: str, least: int, most: int) -> None:
    value = getattr(mqtt, name)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise GraphError(f"Mqtt({name}={value!r}): takes a whole number from {least} to {most:,}.")


def _check_filters(filters: Sequence[Any]) -> None:
    for one in filters:
        if why := wrong_filter(one):
            raise GraphError(f"Mqtt(topics=...): {one!r} is not a filter of MQTT topics: it {why}.")
        if one.startswith("$share/"):
            raise GraphError(
                f"Mqtt(topics=...): {one!r} is a shared subscription. When its session ends a connection, the broker "
                "may deliver what was not acknowledged to another one, which cannot know that it is in Kafka. Give "
                'each part filters of its own instead: topics=[["plant/a/#"], ["plant/b/#"]].'
            )
    for at, one in enumerate(filters):
        for other in filters[:at]:
            if overlap(one, other):
                raise GraphError(
                    f"Mqtt(topics=...): {other!r} and {one!r} can match the same topic, and the broker may deliver its "
                    "messages twice. Drop one of them, or make them narrower."
                )

"""Which cluster to use, as plain frozen values: `Kafka(...)` and `Memory(...)`.

Standard library only, so that plans and the command line can name a cluster without a client library.

The guarantee needs some client settings. One table, `FORCED`, lists them with their reasons. If a user sets one of them
to another value, constructing `Kafka(...)` raises a `ConfigError` with that reason. All other settings of librdkafka
pass through `config=` (all clients), `producer=` and `consumer=`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias
from urllib.parse import urlsplit

from cues_kafka.arguments import known_arguments
from cues_kafka.brokers.addresses import addresses, check_bootstrap
from cues_kafka.brokers.forced import (
    AGE,
    ALIASES,
    COMMON_TUNING,
    FORCED,
    FORCED_BY_KEY,
    OURS,
    READERS,
    REFRESH,
    SIZES,
    TUNING,
    WRITERS,
    Forced,
    Role,
)
from cues_kafka.brokers.java_names import equal_of
from cues_kafka.brokers.secrets import masked, scrubbed, without_user
from cues_kafka.brokers.security import Security, is_loopback, read_secrets
from cues_kafka.errors import ConfigError

if TYPE_CHECKING:
    from cues_kafka.ports.broker import Broker
    from cues_kafka.ports.clock import Clock

GroupProtocol: TypeAlias = Literal["classic", "consumer"]
Assignor: TypeAlias = Literal["cooperative-sticky", "range", "roundrobin", "uniform"]

LEAST_BYTES = 262_144
"""The least `message.max.bytes`: a backing record may have 256,000 bytes, an error message 16,000."""

LEAST_STATUS_S = 0.5
"""The least `status_every_s`: a process looks at its tasks as often."""

MAX_TRANSACTION_TIMEOUT_S = 900.0
"""The brokers' default for `transaction.max.timeout.ms` is 15 minutes."""


@known_arguments(ConfigError)
@dataclass(frozen=True, slots=True, repr=False)
class Registry:
    """
    A schema registry that speaks Confluent's protocol: Confluent's own, Apicurio, Karapace, Redpanda.

    Nothing is ever registered by a worker: `cues-kafka schemas register` does that.

    Attributes:
        url: such as ``https://registry:8081``; several with commas.
        auth: user name and password; or a token, as text.
        tls: files in PEM form: ``ca``, and ``certificate`` with ``key`` where the registry wants one.
        cache: how many schemas a process remembers.
        timeout_s: how long one request may take. A registry that does not answer is an outage: tasks retry, then stop.
        config: more settings of confluent-kafka's `SchemaRegistryClient`, such as those of OAuth.
        allow_plaintext: send a login without encryption to an address that is not on this machine.

    Raises:
        ConfigError: the address is none, or a login would cross the network readable.
    """

    url: str
    _: KW_ONLY
    auth: tuple[str, str] | str | None = None
    tls: Mapping[str, str] = field(default_factory=dict)
    cache: int = 1000
    timeout_s: float = 10.0
    config: Mapping[str, Any] = field(default_factory=dict)
    allow_plaintext: bool = False

    def __post_init__(self) -> None:
        for url in self.url.split(","):
            parts = urlsplit(url.strip())
            if parts.scheme not in ("http", "https") or not parts.hostname:
                raise ConfigError(f"{without_user(url)!r} is not the address of a registry; write http://host:port")
            if parts.username:
                raise ConfigError("the address of a registry holds a login: write auth=(user, password)")
            readable = parts.scheme == "http" and not is_loopback(parts.hostname)
            if readable and (self.auth or self.config) and not self.allow_plaintext:
                raise ConfigError(
                    f"{url.strip()} would send the login over the network unencrypted: write https://, or in a network "
                    "that you trust set allow_plaintext=True"
                )
        if unknown := set(self.tls) - {"ca", "certificate", "key"}:
            raise ConfigError(f"Registry(tls=...) takes ca, certificate and key, not {sorted(unknown)}")

    def __repr__(self) -> str:
        """The address; logins are secrets."""
        return f"Registry({self.url!r}{', auth=***' if self.auth or self.config else ''})"

    def scrubbed(self, text: str) -> str:
        """A client's text without the login."""
        secrets = {"token": self.auth} if isinstance(self.auth, str) else {"password": (self.auth or ("", ""))[1]}
        return scrubbed(text, {name: one for name, one in secrets.items() if one}, self.config)


@known_arguments(ConfigError)
@dataclass(frozen=True, slots=True, repr=False)
class Kafka:
    """
    A Kafka cluster (brokers >= 3.7).

    Attributes:
        bootstrap: ``host:port``, or several with commas.
        security: how clients log in and encrypt: `Tls`, `Plain`, `Scram`, `OAuthBearer` or `Oidc`. None: as `config`
            says, else without both.
        config: librdkafka settings for all clients, such as ``client.rack``.
        producer: librdkafka settings for producers only.
        consumer: librdkafka settings for consumers only.
        transaction_timeout_s: after this time the brokers abort the open transaction of a dead worker without a
            successor; until then readers of its outputs wait. At least 3 x `socket_timeout_s`, at most 900.
        socket_timeout_s: how long one request may take. A commit that takes longer is suspect.
        session_timeout_s: after this time without a heartbeat a worker's tasks move to others; classic groups only.
        heartbeat_s: time between heartbeats; classic groups only.
        max_poll_interval_s: a processor's thread that is silent for longer loses its tasks.
        group_protocol: ``classic`` or ``consumer`` (KIP-848, brokers >= 4.0; A4 says what it costs).
        assignor: how the group shares partitions; under ``consumer`` it is a server-side one (``uniform``, ``range``).
        sessions: 0: each task of a native worker has a transactional producer; 1: the tasks of a processor in a process
            share one, which needs fewer threads and less memory.
        start_timeout_s: how long the first contact with the cluster may take.
        registry: the schema registry of topics that are declared with ``registry=True``.
        oauth: ``module:function`` that gives tokens for OAUTHBEARER. It takes the text of ``sasl.oauthbearer.config``,
            and returns the token and the second of its end since 1970. One call serves all clients of a process; the
            next call comes when half of the token's life is over and a client asks. Empty: none.
        state_dir: directory for the entries of stores with ``on_disk=True``; empty: one of this user.
        status_every_s: how often a process tells the state of its tasks on ``<graph>.status``, for `cues-kafka status`
            on any machine; 0: never, and no such topic is needed.
        control: follow ``<graph>.control``, so that `cues-kafka pause` works; a graph with ``cuts=`` does so anyway.
        allow_plaintext: talk without encryption to an address that is not on this machine.
        allow_unverified_tls: allow settings that switch the verification of certificates or host names off.
        accept_unchecked: run although this user may not read the settings of topics (DescribeConfigs), so that no
            check finds a setting that breaks the guarantee.

    Raises:
        ConfigError: a setting contradicts the guarantee or another one.
    """

    bootstrap: str
    _: KW_ONLY
    security: Security | None = None
    config: Mapping[str, Any] = field(default_factory=dict)
    producer: Mapping[str, Any] = field(default_factory=dict)
    consumer: Mapping[str, Any] = field(default_factory=dict)
    transaction_timeout_s: float = 60.0
    socket_timeout_s: float = 10.0
    session_timeout_s: float = 10.0
    heartbeat_s: float = 1.0
    max_poll_interval_s: float = 300.0
    group_protocol: GroupProtocol = "classic"
    assignor: Assignor = "cooperative-sticky"
    sessions: int = 0
    start_timeout_s: float = 10.0
    registry: Registry | None = None
    oauth: str = ""
    state_dir: str = ""
    status_every_s: float = 5.0
    control: bool = True
    allow_plaintext: bool = False
    allow_unverified_tls: bool = False
    accept_unchecked: bool = False

    def __post_init__(self) -> None:
        for name in ("config", "producer", "consumer"):
            object.__setattr__(self, name, dict(getattr(self, name)))
        check_bootstrap(self.bootstrap)
        _check_times(self)
        _check_group(self)
        for name, key, value in self._user_settings():
            _check_name(name, key, value)
            _check_forced(self, name, key, value)
        _check_given_once(self)
        _check_security(self)
        if self.max_bytes < LEAST_BYTES:
            raise ConfigError(
                f"message.max.bytes={self.max_bytes} is less than {LEAST_BYTES}, which a task's own record may need: "
                "raise it, or leave it out"
            )

    def __repr__(self) -> str:
        """All options, secrets masked."""
        values = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "bootstrap"}
        shown = (f"{name}={masked(v) if isinstance(v, Mapping) else v!r}" for name, v in values.items())
        return f"Kafka({self.bootstrap!r}, {', '.join(shown)})"

    @property
    def cooperative(self) -> bool:
        """Whether rebalances are incremental (A3); with eager assignors everything is revoked first."""
        return self.group_protocol == "consumer" or self.assignor == "cooperative-sticky"

    @property
    def max_bytes(self) -> int:
        """Bytes of the largest record that its producers take."""
        return _bytes({**SIZES, **self.config, **self.producer}, "message.max.bytes")

    def brief(self) -> Kafka:
        """The same with the shortest `transaction_timeout_s` that is allowed."""
        return replace(self, transaction_timeout_s=min(self.transaction_timeout_s, 3 * self.socket_timeout_s))

    def settings(
        self,
        role: Role,
        *,
        client_id: str,
        tuning: Mapping[str, Any] | None = None,
        batch_bytes: int | None = None,
    ) -> dict[str, Any]:
        """
        Configuration of one client in librdkafka's words, without callbacks, ids of groups and of transactions.

        Args:
            role: what the client is for.
            client_id: its name in logs of brokers and client; a `client.id` of the user goes before it.
            tuning: more defaults for this client; the user's settings win.
            batch_bytes: the largest batch of records that all topics of a producer take. A topic refuses a larger one
                as a whole, and the client never divides it.
        """
        own = self.producer if role in WRITERS else self.consumer if role in READERS else {}
        chosen = {**self.common(), **own}
        settings = {**COMMON_TUNING, **TUNING[role], **(tuning or {}), **chosen}
        if REFRESH in chosen and AGE not in chosen:
            settings.pop(AGE, None)  # ours goes with our own interval only
        for forced in FORCED:
            settings.pop(forced.key, None)
            if role in forced.roles and forced.value is not OURS:
                settings[forced.key] = _forced_value(self, forced)
        prefix = f"{settings['client.id']}." if settings.get("client.id") else ""
        settings |= {"bootstrap.servers": self.bootstrap, "client.id": f"{prefix}{client_id}"}
        if self.oauth:
            settings["oauth_cb"] = self.oauth
        if batch_bytes is not None:
            settings["batch.size"] = min(_bytes(settings, "batch.size"), batch_bytes)
        if role == "session":
            # librdkafka demands message.timeout.ms <= transaction.timeout.ms; a tenth is left for the commit.
            settings["message.timeout.ms"] = int(self.transaction_timeout_s * 900)
        elif role == "sender":
            settings["message.timeout.ms"] = self.producer.get("message.timeout.ms", 30_000)
        elif role == "reader":
            settings["enable.partition.eof"] = True
        elif role == "member":
            _add_group_settings(self, settings)
        return settings

    def common(self) -> dict[str, Any]:
        """
        The settings for all clients, of `security` and of `config`, with the secrets.

        Raises:
            ConfigError: a secret is not in its place.
        """
        return {**(self.security.settings() if self.security else {}), **self.config}

    def scrubbed(self, text: str) -> str:
        """A client's text without the secrets of these settings, and without those that it had before."""
        given = self.security.outline() if self.security else {}
        return scrubbed(text, given, read_secrets(), self.config, self.producer, self.consumer)

    def _user_settings(self) -> Iterator[tuple[str, str, Any]]:
        for name in ("config", "producer", "consumer"):
            for key, value in getattr(self, name).items():
                yield name, key, value


@known_arguments(ConfigError)
@dataclass(frozen=True, slots=True, eq=False)
class Memory:
    """
    A cluster in this process, for tests: each value is a cluster of its own.

    Attributes:
        seed: decides the random choices of the cluster.
        brokers: how many brokers it says it has.
        clock: None: real time.
        registry: the schema registry of topics that are declared with ``registry=True``.
        sessions: see `Kafka`.
        status_every_s, control: see `Kafka`; both are off by default.
    """

    _: KW_ONLY
    seed: int = 0
    brokers: int = 1
    clock: Clock | None = None
    registry: Registry | None = None
    sessions: int = 0
    status_every_s: float = 0.0
    control: bool = False
    held: list[Broker] = field(default_factory=list, init=False, repr=False)
    """The broker, once it has been opened; belongs to `open_broker`."""


Options: TypeAlias = Kafka | Memory


def _bytes(settings: Mapping[str, Any], key: str) -> int:
    try:
        return int(settings[key])
    except (TypeError, ValueError):
        raise ConfigError(f"{key}={settings[key]!r} is not a number of bytes; write a whole number") from None


def login_of(settings: Mapping[str, Any]) -> tuple[str, str]:
    """The security protocol of a client in lower case, and its SASL mechanism as given; empty: none."""
    protocol = str(settings.get("security.protocol", "plaintext")).lower()
    return protocol, str(settings.get("sasl.mechanisms") or settings.get("sasl.mechanism") or "")


def _check_times(options: Kafka) -> None:
    for f in fields(options):
        if f.name.endswith("_s") and f.name != "status_every_s" and not getattr(options, f.name) > 0:
            raise ConfigError(f"{f.name} must be more than 0 seconds, not {getattr(options, f.name)!r}")
    if options.status_every_s != 0 and not options.status_every_s >= LEAST_STATUS_S:
        raise ConfigError(
            f"status_every_s={options.status_every_s:g}: write {LEAST_STATUS_S:g} seconds or more, or 0 for no status"
        )
    timeout_s, socket_s = options.transaction_timeout_s, options.socket_timeout_s
    if timeout_s < 3 * socket_s:
        raise ConfigError(
            f"transaction_timeout_s={timeout_s:g} is less than 3 x socket_timeout_s={socket_s:g}: one lost request "
            "would use up the time of the transaction. Raise transaction_timeout_s, or lower socket_timeout_s"
        )
    if timeout_s > MAX_TRANSACTION_TIMEOUT_S:
        raise ConfigError(f"transaction_timeout_s={timeout_s:g} is above 900, the most that brokers allow. Lower it")
    if options.session_timeout_s < 3 * options.heartbeat_s:
        raise ConfigError(
            f"session_timeout_s={options.session_timeout_s:g} is less than 3 x heartbeat_s={options.heartbeat_s:g}: "
            "one late heartbeat would move the tasks; lower heartbeat_s"
        )
    if options.max_poll_interval_s < options.session_timeout_s:
        least = f"session_timeout_s={options.session_timeout_s:g}"
        raise ConfigError(f"max_poll_interval_s={options.max_poll_interval_s:g} is less than {least}. Raise it")


_DECIDED_BY_BROKERS = {
    "session_timeout_s": "consumer.session.timeout.ms",
    "heartbeat_s": "consumer.heartbeat.interval.ms",
}
"""Options of the classic protocol, and the setting of a group in their place."""


def _check_group(options: Kafka) -> None:
    if options.sessions not in (0, 1):
        raise ConfigError(f"sessions is 0 (one for each task) or 1 (one for all tasks), not {options.sessions!r}")
    if options.group_protocol not in ("classic", "consumer"):
        raise ConfigError(f"group_protocol is 'classic' or 'consumer', not {options.group_protocol!r}")
    known = ("cooperative-sticky", "range", "roundrobin", "uniform")
    if options.assignor not in known:
        raise ConfigError(f"assignor is one of {', '.join(known)}, not {options.assignor!r}")
    if options.group_protocol == "classic" and options.assignor == "uniform":
        raise ConfigError("assignor='uniform' runs on the brokers and needs group_protocol='consumer'")
    if options.group_protocol == "consumer" and options.assignor == "roundrobin":
        raise ConfigError("assignor='roundrobin' exists in group_protocol='classic' only; use 'uniform' or 'range'")
    if options.group_protocol == "consumer":
        for f in fields(options):
            if f.name in _DECIDED_BY_BROKERS and getattr(options, f.name) != f.default:
                raise ConfigError(
                    f"{f.name}={getattr(options, f.name)!r} has no effect with group_protocol='consumer': the brokers "
                    f"decide. Leave it out, and set {_DECIDED_BY_BROKERS[f.name]} for the group, with "
                    "kafka-configs --bootstrap-server BOOTSTRAP --alter --entity-type groups"
                )


def _check_name(name: str, key: str, value: Any) -> None:
    if isinstance(value, Mapping) and key not in FORCED_BY_KEY:
        inner = next(iter(value), "...")
        raise ConfigError(
            f"{name}={{{key!r}: ...}} holds a table, but librdkafka's settings are flat: write the whole name with its "
            f"dots as one key, in quotes: '{key}.{inner}'"
        )
    if (equal := equal_of(key)) is not None:
        raise ConfigError(
            f"{name}={{{key!r}: ...}} is a setting of Java clients, but this client is librdkafka: {equal}"
        )


def _check_forced(options: Kafka, name: str, key: str, value: Any) -> None:
    forced = FORCED_BY_KEY.get(ALIASES.get(key, key))
    if forced is None:
        return
    if forced.key == "message.timeout.ms" and name == "producer" and key == forced.key:
        raise ConfigError(f"producer={{{key!r}: {value!r}}} is refused: {forced.reason}")
    if forced.value is OURS:
        raise ConfigError(f"{name}={{{key!r}: ...}} is refused: {forced.reason}")
    wanted = _forced_value(options, forced)
    if not _same(value, wanted):
        raise ConfigError(f"{name}={{{key!r}: {value!r}}} is refused, it must be {wanted!r}: {forced.reason}")


def _forced_value(options: Kafka, forced: Forced) -> Any:
    if isinstance(forced.value, str) and forced.value.startswith("="):
        return int(getattr(options, forced.value[1:]) * 1000)
    return forced.value


def _same(given: Any, wanted: Any) -> bool:
    """Whether librdkafka reads both as the same value: it takes True, "true", "TRUE"; -1 means "all"."""

    def canonical(value: Any) -> str:
        text = str(value).strip().lower()
        return {"-1": "all", "1": "true", "0": "false", "t": "true", "f": "false"}.get(text, text)

    return canonical(given) == canonical(wanted)


def _check_given_once(options: Kafka) -> None:
    """Refuse a login that is given twice: which one counts could not be seen."""
    if options.security is None:
        return
    if not isinstance(options.security, Security):
        raise ConfigError(
            f"security= takes Tls(...), Plain(...), Scram(...), OAuthBearer(...) or Oidc(...), not "
            f"{type(options.security).__name__}"
        )
    made = options.security.outline().keys()
    for name, key, _ in options._user_settings():  # noqa: SLF001 - of the same module
        if key in made or key in ("sasl.mechanism", "oauth_cb") or key.startswith("sasl.oauthbearer."):
            raise ConfigError(
                f"{name}={{{key!r}: ...}} and security={type(options.security).__name__}(...) both say how clients log "
                "in. Leave out one of them"
            )
    if options.oauth:
        raise ConfigError("oauth= and security= both say how clients log in. Write security=OAuthBearer(token=...)")


def _check_security(options: Kafka) -> None:
    common = {**(options.security.outline() if options.security else {}), **options.config}
    for own in (options.producer, options.consumer):
        merged = {**common, **own}
        protocol, mechanism = login_of(merged)
        strangers = [host for host, _ in addresses(options.bootstrap) if not is_loopback(host)]
        if protocol in ("plaintext", "sasl_plaintext") and strangers and not options.allow_plaintext:
            raise ConfigError(
                f"security.protocol is {protocol}, and {strangers[0]} is another machine: all data, including "
                "passwords, would cross the network unencrypted. Set security=Tls(...), or Scram(..., tls=Tls(...)), "
                "or as settings of librdkafka config={'security.protocol': 'SSL'} or 'SASL_SSL'; in a network that you "
                "trust set allow_plaintext=True; for commands in cues-kafka.toml, or CUES_KAFKA_ALLOW_PLAINTEXT=true"
            )
        if protocol.startswith("sasl") and not mechanism:
            raise ConfigError(
                f"sasl.mechanisms is missing: security.protocol is {protocol}, so the brokers want a login. Set "
                "config={'sasl.mechanisms': 'SCRAM-SHA-512'}, or one that they offer: SCRAM-SHA-256, PLAIN, "
                "OAUTHBEARER; or write security=Scram(user, password) instead of such settings"
            )
        if not options.allow_unverified_tls:
            _check_tls(merged)


def _check_tls(settings: Mapping[str, Any]) -> None:
    for key, off in (
        ("enable.ssl.certificate.verification", "false"),
        ("ssl.endpoint.identification.algorithm", "none"),
    ):
        value = settings.get(key)
        if value is not None and _same(value, off):
            raise ConfigError(
                f"{key}={value!r} lets any machine on the way pose as the broker. Give the authority's certificate as "
                "ssl.ca.location; if that is impossible set allow_unverified_tls=True"
            )


def _add_group_settings(options: Kafka, settings: dict[str, Any]) -> None:
    """Add the settings of the group protocol: KIP-848 refuses those of the classic one, as the brokers decide them."""
    settings["group.protocol"] = options.group_protocol
    if options.group_protocol == "classic":
        settings["partition.assignment.strategy"] = options.assignor
        return
    del settings["session.timeout.ms"], settings["heartbeat.interval.ms"]
    if options.assignor in ("range", "uniform"):
        settings["group.remote.assignor"] = options.assignor

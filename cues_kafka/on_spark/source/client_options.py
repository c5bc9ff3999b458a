"""`kafka.*` options: translate names of the Java client, as Spark's users write them, to librdkafka's.

A setting that cannot be translated is refused by name. A setting that is silently dropped makes a connection less
secure than its author believes, or lets a reader see more. librdkafka's own names are taken, too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, Final

from cues_kafka.brokers.forced import ALIASES, FORCED, OURS
from cues_kafka.brokers.java_names import EQUALS
from cues_kafka.brokers.options import Kafka
from cues_kafka.brokers.token_sources import ClientCredentials
from cues_kafka.errors import ConfigError


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


CONSUMER_NAMES: Final = _words(
    """
    check.crcs fetch.error.backoff.ms fetch.max.bytes fetch.message.max.bytes fetch.min.bytes fetch.queue.backoff.ms
    fetch.wait.max.ms queued.max.messages.kbytes queued.min.messages
    """
)
"""librdkafka's settings for consumers that a source may have."""

COMMON_NAMES: Final = _words(
    """
    broker.address.family broker.address.ttl client.dns.lookup client.id client.rack connections.max.idle.ms debug
    enable.metrics.push enable.ssl.certificate.verification https.ca.location https.ca.pem
    max.in.flight.requests.per.connection message.max.bytes metadata.recovery.rebootstrap.trigger.ms
    metadata.recovery.strategy receive.message.max.bytes reconnect.backoff.max.ms reconnect.backoff.ms
    retry.backoff.max.ms retry.backoff.ms sasl.kerberos.keytab sasl.kerberos.kinit.cmd
    sasl.kerberos.min.time.before.relogin sasl.kerberos.principal sasl.kerberos.service.name sasl.mechanisms
    sasl.oauthbearer.assertion.algorithm sasl.oauthbearer.assertion.claim.aud
    sasl.oauthbearer.assertion.claim.exp.seconds sasl.oauthbearer.assertion.claim.iss
    sasl.oauthbearer.assertion.claim.jti.include sasl.oauthbearer.assertion.claim.nbf.seconds
    sasl.oauthbearer.assertion.claim.sub sasl.oauthbearer.assertion.file
    sasl.oauthbearer.assertion.jwt.template.file sasl.oauthbearer.assertion.private.key.file
    sasl.oauthbearer.assertion.private.key.passphrase sasl.oauthbearer.assertion.private.key.pem
    sasl.oauthbearer.client.credentials.client.id sasl.oauthbearer.client.credentials.client.secret
    sasl.oauthbearer.client.id sasl.oauthbearer.client.secret sasl.oauthbearer.config sasl.oauthbearer.extensions
    sasl.oauthbearer.grant.type sasl.oauthbearer.metadata.authentication.type sasl.oauthbearer.method
    sasl.oauthbearer.scope sasl.oauthbearer.token.endpoint.url sasl.password sasl.username security.protocol
    socket.connection.setup.timeout.ms socket.keepalive.enable socket.max.fails socket.nagle.disable
    socket.receive.buffer.bytes socket.send.buffer.bytes ssl.ca.location ssl.ca.pem ssl.certificate.location
    ssl.certificate.pem ssl.cipher.suites ssl.crl.location ssl.curves.list ssl.endpoint.identification.algorithm
    ssl.engine.id ssl.key.location ssl.key.password ssl.key.pem ssl.keystore.location ssl.keystore.password
    ssl.providers ssl.sigalgs.list topic.metadata.refresh.fast.interval.ms topic.metadata.refresh.interval.ms
    topic.metadata.refresh.sparse
    """
)
"""librdkafka's settings for connections: for all clients of a source."""

TIMES: Final = {
    "request.timeout.ms": "socket_timeout_s",
    "socket.timeout.ms": "socket_timeout_s",
    "default.api.timeout.ms": "start_timeout_s",
}
"""Names of times that are arguments of `Kafka(...)`."""

_GROUP: Final = "the source is no member of a group: Spark's checkpoint keeps the positions"

_REASONS: Final = {
    _GROUP: """
        group.instance.id group.protocol group.remote.assignor heartbeat.interval.ms leave.group.on.close
        max.poll.interval.ms partition.assignment.strategy session.timeout.ms
        """,
    f'{_GROUP}; to pin where a stream begins, give it option("name", N)': "group.id",
    "positions are in Spark's checkpoint, and startingOffsets says where a query begins": """
        auto.commit.interval.ms auto.offset.reset enable.auto.commit
        """,
    "it names a Java class, and this source has no Java client": """
        interceptor.classes sasl.client.callback.handler.class security.providers ssl.engine.factory.class
        """,
    "use kafka.sasl.oauthbearer.method=oidc and the kafka.sasl.oauthbearer.* settings of librdkafka": """
        sasl.login.callback.handler.class sasl.login.class
        """,
    "librdkafka renews logins itself; kafka.sasl.kerberos.min.time.before.relogin bounds how often": """
        sasl.kerberos.ticket.renew.jitter sasl.kerberos.ticket.renew.window.factor
        """,
    "librdkafka has no such metrics; lag is in the query's progress": """
        auto.include.jmx.reporter metric.reporters metrics.num.samples metrics.recording.level metrics.sample.window.ms
        """,
    "OpenSSL decides it here; ssl.cipher.suites, ssl.curves.list and ssl.providers have an influence on it": """
        ssl.enabled.protocols ssl.keymanager.algorithm ssl.protocol ssl.provider ssl.secure.random.implementation
        ssl.trustmanager.algorithm
        """,
    "a PEM file with certificates of authorities has none; use kafka.ssl.ca.location": "ssl.truststore.password",
    "it is a setting of producers, and this source reads": """
        acks batch.size buffer.memory compression.type delivery.timeout.ms enable.idempotence key.serializer linger.ms
        max.block.ms max.request.size partitioner.class retries transaction.timeout.ms transactional.id value.serializer
        """,
    "a misspelt name must not become a topic": "allow.auto.create.topics",
    "subscribePattern never matches the brokers' own topics": "exclude.internal.topics",
    "keys come as bytes; decode them in the DataFrame: col('key').cast('string')": "key.deserializer",
    "values come as bytes; decode them in the DataFrame: col('value').cast('string')": "value.deserializer",
    "messages come in the batches that are there; kafka.queued.min.messages and kafka.queued.max.messages.kbytes bound "
    "the memory for them": "max.poll.records",
    "librdkafka does not raise this time between attempts; use kafka.socket.connection.setup.timeout.ms": (
        "socket.connection.setup.timeout.max.ms"
    ),
}

REFUSED: Final = {name: reason for reason, names in _REASONS.items() for name in names.split()}
"""Names without an equal here, with the reason or what to use instead."""

_STORES: Final = {
    "ssl.truststore": (
        {"PEM": "ssl.ca.location"},
        "certificates of authorities as a PEM file: kafka.ssl.ca.location, or kafka.ssl.truststore.type=PEM",
    ),
    "ssl.keystore": (
        {"PKCS12": "ssl.keystore.location"},
        "kafka.ssl.keystore.type=PKCS12, or PEM files: kafka.ssl.certificate.location and kafka.ssl.key.location",
    ),
}

_JAAS_USER: Final = re.compile(
    r"^\s*org\.apache\.kafka\.common\.security\.(?:plain\.Plain|scram\.Scram)LoginModule\s+required\b(.*);\s*$",
    re.DOTALL,
)
_JAAS_FIELD: Final = re.compile(r"""\b(username|password)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)')""")

_FORCED: Final = {forced.key: forced for forced in FORCED if {"admin", "reader"} & set(forced.roles)}


def kafka_of(given: Mapping[str, str], *, allow_plaintext: bool = False, allow_unverified_tls: bool = False) -> Kafka:
    """
    Return the cluster that `kafka.*` options name, which come without that prefix.

    Raises:
        ConfigError: an option has no equal, is refused, or is not known.
    """
    if not given.get("bootstrap.servers", "").strip():
        raise ConfigError('the source needs option("kafka.bootstrap.servers", "host:port"), several with commas')
    translated = _translated({name: value for name, value in given.items() if name != "bootstrap.servers"})
    times = {key: translated.pop(key) for key in set(TIMES.values()) & set(translated)}
    if "socket_timeout_s" in times:
        # The source's only transaction pins where a stream begins; it must outlast some requests, see Kafka(...).
        times["transaction_timeout_s"] = max(60.0, 3 * times["socket_timeout_s"])
    try:
        return Kafka(
            given["bootstrap.servers"],
            config={name: value for name, value in translated.items() if name not in CONSUMER_NAMES},
            consumer={name: value for name, value in translated.items() if name in CONSUMER_NAMES},
            allow_plaintext=allow_plaintext,
            allow_unverified_tls=allow_unverified_tls,
            **times,
        )
    except ConfigError as error:
        raise ConfigError(_as_options(str(error))) from error


def options_of(options: Kafka) -> dict[str, str]:
    """
    The options of `format("cues")` that name a cluster: `reader.options(**options_of(kafka))`.

    They hold the secrets themselves, because Spark's processes have neither the files nor the variables of the driver.

    Raises:
        ConfigError: a secret is not in its place, or tokens come from a function or a file, which are no text.
    """
    settings = {**options.common(), **options.consumer}
    source = settings.pop("oauth_cb", None) or options.oauth
    if isinstance(source, ClientCredentials):
        settings |= _oidc(source)
    elif source:
        raise ConfigError(
            "options are text, and tokens of a function or a file are none. Name the server of tokens: "
            "security=Oidc(url, client_id, client_secret)"
        )
    found = {"bootstrap.servers": options.bootstrap, **settings}
    flags = {"allowPlaintext": options.allow_plaintext, "allowUnverifiedTls": options.allow_unverified_tls}
    return {f"kafka.{name}": str(value) for name, value in found.items()} | {
        name: "true" for name, given in flags.items() if given
    }


def _oidc(source: ClientCredentials) -> dict[str, str]:
    """What librdkafka needs to ask the server of tokens itself."""
    names = "sasl.oauthbearer."
    found = {
        f"{names}method": "oidc",
        f"{names}client.id": source.client_id,
        f"{names}client.secret": source.client_secret,
        f"{names}token.endpoint.url": source.url,
    }
    found |= {f"{names}scope": source.scope} if source.scope else {}
    found |= {f"{names}extensions": source.extensions} if source.extensions else {}
    return found | ({f"https.ca.{'pem' if '-----BEGIN' in source.ca else 'location'}": source.ca} if source.ca else {})


def _translated(given: Mapping[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    origin: dict[str, str] = {}
    for name, value in given.items():
        for equal, translated in _one(name, value, given).items():
            if equal in origin:
                raise ConfigError(f"kafka.{origin[equal]} and kafka.{name} mean the same setting; give one of them")
            found[equal], origin[equal] = translated, name
    return found


def _one(name: str, value: str, given: Mapping[str, str]) -> dict[str, Any]:
    """The settings that one option becomes: none, one, or two."""
    if name in TIMES:
        return {TIMES[name]: _seconds(name, value)}
    if name == "sasl.jaas.config":
        return _jaas(value)
    store, _, part = name.rpartition(".")
    if store in _STORES and part in ("type", "location"):
        return _store(store, part, value, given)
    equal = EQUALS.get(name, ALIASES.get(name, name))
    _check(name, equal, value)
    if name == "ssl.endpoint.identification.algorithm":
        return {equal: value.strip().lower() or "none"}  # Java's empty text disables the check
    if equal == "isolation.level" or (equal in _FORCED and _FORCED[equal].value is not OURS):
        return {}  # the value is the one that is needed
    return {equal: value}


def _check(name: str, equal: str, value: str) -> None:
    if name in REFUSED:
        raise ConfigError(f"kafka.{name} is refused: {REFUSED[name]}")
    forced = _FORCED.get(equal)
    if forced and forced.value is OURS:
        raise ConfigError(f"kafka.{name} is refused: {forced.reason}")
    if forced and value.strip().lower() != str(forced.value).lower():
        raise ConfigError(f"kafka.{name}={value} is refused, it must be {forced.value}: {forced.reason}")
    if not forced and equal not in CONSUMER_NAMES | COMMON_NAMES:
        raise ConfigError(f"kafka.{name} is not a setting of this source{nearest(name, known_names(), 'kafka.')}")


def known_names() -> list[str]:
    """All names that are taken, or refused for a reason, without the prefix."""
    stores = [f"{store}.{part}" for store in _STORES for part in ("type", "location")]
    return sorted(
        {*CONSUMER_NAMES, *COMMON_NAMES, *EQUALS, *TIMES, *REFUSED, *stores, "bootstrap.servers", "sasl.jaas.config"}
    )


def nearest(name: str, known: list[str], prefix: str = "") -> str:
    """`; did you mean ...?`, or nothing."""
    by_lower = {one.lower(): one for one in known}
    found = get_close_matches(name.lower(), by_lower, n=1, cutoff=0.6)
    return f"; did you mean {prefix}{by_lower[found[0]]}?" if found else ""


def _seconds(name: str, value: str) -> float:
    if not value.strip().isdecimal() or int(value) < 1:
        raise ConfigError(f"kafka.{name}={value} is not a number of milliseconds")
    return int(value) / 1000


def _jaas(value: str) -> dict[str, str]:
    """User name and password; no message ever shows the value."""
    match = _JAAS_USER.match(value)
    found = _JAAS_FIELD.findall(match.group(1)) if match else []
    fields = {name: re.sub(r"\\(.)", r"\1", double or single) for name, double, single in found}
    if set(fields) != {"username", "password"}:
        raise ConfigError(
            "kafka.sasl.jaas.config is translated for PlainLoginModule and ScramLoginModule with username and password;"
            " for others use librdkafka's settings: kafka.sasl.username and kafka.sasl.password, kafka.sasl.kerberos.* "
            "or kafka.sasl.oauthbearer.*"
        )
    return {f"sasl.{name}": text for name, text in fields.items()}


def _store(store: str, part: str, value: str, given: Mapping[str, str]) -> dict[str, str]:
    """Files of certificates: librdkafka reads PEM and PKCS#12, never JKS, which is Java's default."""
    equals, advice = _STORES[store]
    kind = given.get(f"{store}.type", "JKS").strip().upper()
    if kind not in equals:
        raise ConfigError(
            f"kafka.{store}.{part} with the type {kind} is refused: librdkafka cannot read it. Give {advice}"
        )
    return {equals[kind]: value} if part == "location" else {}


def _as_options(text: str) -> str:
    """Advice written for `Kafka(...)`, in the words of options."""
    for argument, option in (("allow_plaintext", "allowPlaintext"), ("allow_unverified_tls", "allowUnverifiedTls")):
        text = text.replace(f"{argument}=True", f'option("{option}", "true")')
    text = re.sub(r"config=\{'([^']+)': '([^']+)'\}", r'option("kafka.\1", "\2")', text)
    return text.replace("Kafka('localhost:9092')", 'option("kafka.bootstrap.servers", "localhost:9092")')

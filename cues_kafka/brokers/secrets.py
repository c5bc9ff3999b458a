"""Masks a client's settings before they are shown: names on a list are harmless, all others are secrets.

A list of secrets would have gaps: a misspelt `sasl.pasword`, a key that the next release of librdkafka adds. Standard
library only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

MASK: Final = "***"

HARMLESS: Final = frozenset(
    """
    acks allow.auto.create.topics api.version.request auto.commit.enable auto.commit.interval.ms
    auto.offset.reset batch.num.messages batch.size bootstrap bootstrap.servers broker.address.family
    broker.address.ttl builtin.features check.crcs client.dns.lookup client.id client.rack compression.codec
    compression.level compression.type connections.max.idle.ms coordinator.query.interval.ms debug
    delivery.report.only.error delivery.timeout.ms dr_cb enable.auto.commit enable.auto.offset.store
    enable.gapless.guarantee enable.idempotence enable.metrics.push enable.partition.eof enable.random.seed
    enable.sasl.oauthbearer.unsecure.jwt enable.sparse.connections enable.ssl.certificate.verification
    fetch.error.backoff.ms fetch.max.bytes fetch.message.max.bytes fetch.min.bytes fetch.queue.backoff.ms
    fetch.wait.max.ms group.id group.instance.id group.protocol group.protocol.type group.remote.assignor
    heartbeat.interval.ms https.ca.location internal.termination.signal isolation.level linger.ms
    log.connection.close log.queue log.thread.name log_level max.in.flight max.in.flight.requests.per.connection
    max.partition.fetch.bytes max.poll.interval.ms message.copy.max.bytes message.max.bytes
    message.send.max.retries message.timeout.ms metadata.broker.list metadata.max.age.ms
    metadata.recovery.rebootstrap.trigger.ms metadata.recovery.strategy msg_order_cmp
    partition.assignment.strategy partitioner queue.buffering.backpressure.threshold queue.buffering.max.kbytes
    queue.buffering.max.messages queue.buffering.max.ms queued.max.messages.kbytes queued.min.messages
    queuing.strategy receive.message.max.bytes reconnect.backoff.jitter.ms reconnect.backoff.max.ms
    reconnect.backoff.ms request.required.acks request.timeout.ms retries retry.backoff.max.ms retry.backoff.ms
    sasl.kerberos.keytab sasl.kerberos.min.time.before.relogin sasl.kerberos.principal
    sasl.kerberos.service.name sasl.mechanism sasl.mechanisms sasl.oauthbearer.assertion.algorithm
    sasl.oauthbearer.assertion.file sasl.oauthbearer.assertion.jwt.template.file
    sasl.oauthbearer.assertion.private.key.file sasl.oauthbearer.grant.type sasl.oauthbearer.method
    sasl.oauthbearer.scope sasl.username security.protocol session.timeout.ms socket.blocking.max.ms
    socket.connection.setup.timeout.ms socket.keepalive.enable socket.max.fails socket.nagle.disable
    socket.receive.buffer.bytes socket.send.buffer.bytes socket.timeout.ms ssl.ca.location
    ssl.certificate.location ssl.cipher.suites ssl.crl.location ssl.curves.list
    ssl.endpoint.identification.algorithm ssl.engine.id ssl.key.location ssl.keystore.location ssl.providers
    ssl.sigalgs.list statistics.interval.ms sticky.partitioning.linger.ms timeout_s topic.blacklist
    topic.metadata.propagation.max.ms topic.metadata.refresh.fast.interval.ms topic.metadata.refresh.interval.ms
    topic.metadata.refresh.sparse transaction.timeout.ms transactional.id url
    """.split()  # noqa: SIM905 - the words, not a line for each
)
"""Names of settings whose values may be shown. A name that is not here is a secret."""

_WITH_AT: Final = {"sasl.username", "sasl.kerberos.principal"}
"""Harmless values that may contain "@". In all others it ends a user name and a password."""


def masked(settings: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of the settings that may be shown."""
    return {key: _shown(key, value) for key, value in settings.items()}


def without_user(address: str) -> str:
    """An address, or several with commas, that may be shown: the text before the last "@" is masked."""
    return f"{MASK}@{address.rpartition('@')[2]}" if "@" in address else address


def scrubbed(text: str, *settings: Mapping[str, Any]) -> str:
    """
    A client's text without the secrets of its settings.

    A secret of less than four characters is masked only in quotes: elsewhere it may be a part of another word.
    """
    for secret in sorted({value for one in settings for value in _secrets(one)}, key=len, reverse=True):
        for quote in ('"', "'"):
            text = text.replace(f"{quote}{secret}{quote}", f"{quote}{MASK}{quote}")
        if len(secret) >= 4:
            text = text.replace(secret, MASK)
    return text


def _shown(key: str, value: Any) -> Any:
    if isinstance(value, Mapping):
        return masked(value)
    if key.lower() not in HARMLESS or not isinstance(value, str | int | float | None):
        return MASK
    if not isinstance(value, str):
        return value
    if "\n" in value or "-----" in value:
        return MASK  # a key that was pasted instead of its file
    return value if key in _WITH_AT else without_user(value)


def _secrets(settings: Mapping[str, Any]) -> Iterator[str]:
    for key, value in settings.items():
        if isinstance(value, Mapping):
            yield from _secrets(value)
        elif isinstance(value, str | int | float) and not isinstance(value, bool) and _shown(key, value) != value:
            text = str(value)
            yield from (part for part in {text, *text.splitlines(), text.rpartition("@")[0]} if part.strip())

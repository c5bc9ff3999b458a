"""Names of the Java client's settings, and librdkafka's names for them. Standard library only."""

from __future__ import annotations

from typing import Final

EQUALS: Final = {
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "max.partition.fetch.bytes": "fetch.message.max.bytes",
    "metadata.max.age.ms": "topic.metadata.refresh.interval.ms",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "sasl.mechanism": "sasl.mechanisms",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
    "ssl.truststore.certificates": "ssl.ca.pem",
}
"""The Java client's names that librdkafka spells differently, with librdkafka's names."""

_ADOPTED: Final = {"max.partition.fetch.bytes", "metadata.max.age.ms", "sasl.mechanism"}
"""The names of these that librdkafka 2.16 takes, too."""

_LOGIN: Final = "write 'sasl.username' and 'sasl.password', with 'sasl.mechanisms'"
_CA: Final = "write 'ssl.ca.location', a PEM file with the certificates of the authorities"
_OWN: Final = "write 'ssl.certificate.location' and 'ssl.key.location', PEM files, or 'ssl.keystore.location', PKCS#12"
_CODEC: Final = "codecs are declared on topics: Topic(value=Json(...))"
_OAUTH: Final = "write oauth='module:function', or 'sasl.oauthbearer.method': 'oidc'"
_NONE: Final = "it names a Java class, and nothing here replaces it; leave it out"

_ADVICE: Final = {
    "sasl.jaas.config": _LOGIN,
    "sasl.client.callback.handler.class": _OAUTH,
    "sasl.login.callback.handler.class": _OAUTH,
    "sasl.login.class": _OAUTH,
    "ssl.truststore.location": _CA,
    "ssl.truststore.password": _CA,
    "ssl.truststore.type": _CA,
    "ssl.keystore.type": _OWN,
    "key.serializer": _CODEC,
    "value.serializer": _CODEC,
    "key.deserializer": _CODEC,
    "value.deserializer": _CODEC,
    "interceptor.classes": _NONE,
    "metric.reporters": _NONE,
    "partitioner.class": _NONE,
    "security.providers": _NONE,
    "ssl.engine.factory.class": _NONE,
    "buffer.memory": "write 'queue.buffering.max.kbytes'",
    "max.request.size": "write 'message.max.bytes'",
    "max.poll.records": "write 'queued.min.messages'",
}


def equal_of(name: str) -> str | None:
    """What to write instead of a Java client's setting; None: librdkafka has the name, or the Java client has not."""
    if name in EQUALS and name not in _ADOPTED:
        return f"write {EQUALS[name]!r}"
    return _ADVICE.get(name)

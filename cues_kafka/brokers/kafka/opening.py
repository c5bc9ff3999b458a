"""Opens clients of librdkafka. A setting that librdkafka refuses becomes a `ConfigError` that names it."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaException, Producer

from cues_kafka.brokers.kafka.classify import error_of, name
from cues_kafka.brokers.kafka.probe import add_certificate, path_of
from cues_kafka.brokers.options import Kafka, login_of
from cues_kafka.brokers.secrets import scrubbed
from cues_kafka.brokers.tokens import tokens_of
from cues_kafka.errors import ConfigError

_Client = TypeVar("_Client")

_REFUSED = {"_INVALID_ARG", "_CONFLICT", "_NOT_IMPLEMENTED"}


def open_client(make: Callable[[dict[str, Any]], _Client], settings: dict[str, Any]) -> _Client:
    """
    A client with these settings.

    Raises:
        ConfigError: a setting does not exist, or does not take its value.
        BrokerError: the user's function gives no token.
    """
    if (oauth := settings.get("oauth_cb")) is not None:
        tokens = tokens_of(oauth)
        settings = settings | {"oauth_cb": tokens}
        if login_of(settings)[1].upper() == "OAUTHBEARER":
            # This fails here with its reason; the client would wait for 10 s.
            tokens(settings.get("sasl.oauthbearer.config"))
    try:
        return make(settings)
    except KafkaException as problem:
        error = error_of(problem)
        if name(error) not in _REFUSED:
            raise
        said = scrubbed(error.str(), settings)
        raise ConfigError(
            f"librdkafka refuses config=, producer= or consumer= of Kafka(...): {said}. Fix the setting; librdkafka's "
            "CONFIGURATION.md lists them all"
        ) from None


FILES = (
    "ssl.ca.location",
    "ssl.certificate.location",
    "ssl.key.location",
    "ssl.keystore.location",
    "ssl.crl.location",
    "https.ca.location",
    "sasl.oauthbearer.assertion.file",
    "sasl.oauthbearer.assertion.jwt.template.file",
    "sasl.oauthbearer.assertion.private.key.file",
)
"""Settings that name files. If one is wrong, librdkafka names neither the file nor the reason."""


def check_files(settings: Mapping[str, Any]) -> None:
    """
    Read the files that the settings name, before the client does.

    Raises:
        ConfigError: a file does not exist, cannot be read, or is not what it should be; with the file and the reason.
    """
    for setting in FILES:
        path = path_of(settings, setting)
        if path and not Path(path).is_dir():
            try:
                Path(path).read_bytes()
            except OSError as error:
                raise ConfigError(f"{setting}: the file {path!r} cannot be read: {error.strerror}") from None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    authorities = path_of(settings, "ssl.ca.location")
    if authorities and Path(authorities).is_file():
        try:
            context.load_verify_locations(authorities)
        except ssl.SSLError:
            raise ConfigError(f"ssl.ca.location: {authorities!r} has no certificate in PEM") from None
    certificate, key = path_of(settings, "ssl.certificate.location"), path_of(settings, "ssl.key.location")
    if certificate and key:
        try:
            add_certificate(context, settings)
        except ssl.SSLError as error:
            raise ConfigError(_why_no_key(certificate, key, error.reason)) from None


def _why_no_key(certificate: str, key: str, reason: str | None) -> str:
    if reason == "KEY_VALUES_MISMATCH":
        return f"ssl.key.location: {key!r} is not the key of {certificate!r}, the ssl.certificate.location"
    head = Path(key).read_bytes()
    if b"ENCRYPTED" in head:
        return f"ssl.key.location: {key!r} is encrypted, and ssl.key.password does not open it. Set the right password"
    if b"PRIVATE KEY" not in head:
        return f"ssl.key.location: {key!r} has no key in PEM"
    return f"ssl.certificate.location: {certificate!r} has no certificate in PEM"


def check_own_settings(options: Kafka) -> None:
    """
    Open a producer and a consumer that have settings of their own, to find a wrong one before any task runs.

    Raises:
        ConfigError: see `open_client`.
    """
    nowhere = {"bootstrap.servers": ""}
    if options.producer:
        open_client(Producer, options.settings("sender", client_id="check") | nowhere)
    if options.consumer:
        open_client(Consumer, options.settings("reader", client_id="check") | nowhere | {"group.id": "check"}).close()

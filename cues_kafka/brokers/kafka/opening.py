"""Opening a client of librdkafka: what it does not take of the user's settings is an error of ours that names it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaException, Producer

from cues_kafka.brokers.kafka.classify import error_of, name
from cues_kafka.brokers.options import Kafka
from cues_kafka.brokers.secrets import scrubbed
from cues_kafka.errors import ConfigError

_Client = TypeVar("_Client")

_REFUSED = {"_INVALID_ARG", "_CONFLICT", "_NOT_IMPLEMENTED"}


def opened(make: Callable[[dict[str, Any]], _Client], settings: dict[str, Any]) -> _Client:
    """
    A client with these settings.

    Raises:
        ConfigError: a setting does not exist, or its value is none of it.
    """
    try:
        return make(settings)
    except KafkaException as problem:
        error = error_of(problem)
        if name(error) not in _REFUSED:
            raise
        said = scrubbed(error.str(), settings)
        raise ConfigError(
            f"librdkafka refuses config=, producer= or consumer= of Kafka(...): {said}. Mend the setting; librdkafka's "
            "CONFIGURATION.md lists them all"
        ) from None


def check_own(options: Kafka) -> None:
    """
    Open what producers and consumers have of their own once, so that a wrong setting is found before any task runs.

    Raises:
        ConfigError: see `opened`.
    """
    nowhere = {"bootstrap.servers": ""}
    if options.producer:
        opened(Producer, options.settings("sender", client_id="check") | nowhere)
    if options.consumer:
        opened(Consumer, options.settings("reader", client_id="check") | nowhere | {"group.id": "check"}).close()

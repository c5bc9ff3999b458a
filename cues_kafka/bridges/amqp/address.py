"""The address of an AMQP 1.0 broker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from cues_kafka.bridges.address import BrokerAddress


class AmqpAddress(BrokerAddress):
    """See `BrokerAddress`."""

    kind: ClassVar[str] = "Amqp"
    ports: ClassVar[Mapping[str, int]] = {"amqp": 5672, "amqps": 5671}
    secure: ClassVar[frozenset[str]] = frozenset({"amqps"})
    example: ClassVar[str] = "amqp://user:password@host:5672"
    plain: ClassVar[str] = "amqp://host:5672"
    form: ClassVar[str] = (
        "amqp://host:5672, with TLS amqps://host:5671. Queues are given by queue(), a virtual host by vhost=."
    )

"""The address of a STOMP broker."""

from __future__ import annotations

from typing import ClassVar

from cues_kafka.bridges.address import BrokerAddress


class StompAddress(BrokerAddress):
    """See `BrokerAddress`."""

    kind: ClassVar = "Stomp"
    ports: ClassVar = {"stomp": 61613, "stomps": 61612}
    secure: ClassVar = frozenset({"stomps"})
    example: ClassVar = "stomp://user:password@host:61613"
    plain: ClassVar = "stomp://host:61613"
    form: ClassVar = "stomp://host:61613, with TLS stomps://host:61612. Queues are given by queue=."

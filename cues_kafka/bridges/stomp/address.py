"""The address of a STOMP broker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from cues_kafka.bridges.address import BrokerAddress


class StompAddress(BrokerAddress):
    """See `BrokerAddress`."""

    kind: ClassVar[str] = "Stomp"
    ports: ClassVar[Mapping[str, int]] = {"stomp": 61613, "stomps": 61612}
    secure: ClassVar[frozenset[str]] = frozenset({"stomps"})
    example: ClassVar[str] = "stomp://user:password@host:61613"
    plain: ClassVar[str] = "stomp://host:61613"
    form: ClassVar[str] = "stomp://host:61613, with TLS stomps://host:61612. Queues are given by queue=."

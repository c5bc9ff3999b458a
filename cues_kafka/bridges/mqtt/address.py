"""The address of an MQTT broker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from cues_kafka.bridges.address import BrokerAddress


class MqttAddress(BrokerAddress):
    """See `BrokerAddress`."""

    kind: ClassVar[str] = "Mqtt"
    ports: ClassVar[Mapping[str, int]] = {"tcp": 1883, "mqtt": 1883, "ssl": 8883, "tls": 8883, "mqtts": 8883}
    secure: ClassVar[frozenset[str]] = frozenset({"ssl", "tls", "mqtts"})
    example: ClassVar[str] = "mqtt://user:password@host:1883"
    plain: ClassVar[str] = "mqtt://host:1883"
    form: ClassVar[str] = (
        "mqtt://host:1883, with TLS mqtts://host:8883. The schemes tcp:// and ssl:// mean the same. Topics are given "
        "by topics= and topic()."
    )

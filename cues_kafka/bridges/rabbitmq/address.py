"""The address of a RabbitMQ."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar
from urllib.parse import unquote

from cues_kafka.bridges.address import BrokerAddress


class RabbitMqAddress(BrokerAddress):
    """
    See `BrokerAddress`. RabbitMQ's own user and password, the default, work on the broker's machine alone.

    Attributes:
        virtual_host: where its queues are.
    """

    kind: ClassVar[str] = "RabbitMq"
    ports: ClassVar[Mapping[str, int]] = {"amqp": 5672, "amqps": 5671}
    secure: ClassVar[frozenset[str]] = frozenset({"amqps"})
    example: ClassVar[str] = "amqp://user:password@host:5672"
    plain: ClassVar[str] = "amqp://host:5672"
    form: ClassVar[str] = (
        "amqp://user:password@host:5672/virtual-host, with TLS amqps://host:5671. A '/' in the name of the virtual "
        "host is written %2F."
    )
    login: ClassVar[str | None] = "guest"

    def __init__(self, url: str, where: str) -> None:
        super().__init__(url, where)
        self.virtual_host: str = unquote(self.path) or "/"

    @staticmethod
    def takes_path(path: str) -> bool:
        """A virtual host."""
        return "/" not in path

"""The address of a RabbitMQ, which shows in no text."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote, urlsplit

from cues_kafka.errors import GraphError

PORTS: Final = {"amqp": 5672, "amqps": 5671}
"""The schemes of addresses, and the port that each has by default."""

MASK: Final = "***"


class RabbitMqAddress:
    """
    What an address is made of.

    Attributes:
        host, port: of the broker.
        encrypted: whether the connection has TLS.
        user, password: of the login; RabbitMQ's own ones by default, which work on the broker's machine alone.
        virtual_host: where its queues are.

    Raises:
        GraphError: the text is not an address; the message does not show it.
    """

    def __init__(self, url: str, where: str) -> None:
        try:
            parts = urlsplit(url if isinstance(url, str) else "")
            port = parts.port
        except ValueError:
            raise GraphError(
                f"{where}: the host or the port in the address cannot be read. Write amqp://user:password@host:5672; "
                "in a user name and a password write %2F for '/', %3A for ':', %40 for '@' and %23 for '#'."
            ) from None
        path = parts.path.removeprefix("/")
        if parts.scheme not in PORTS or not parts.hostname or "/" in path or parts.query or parts.fragment:
            raise GraphError(
                f"{where}: the address is not of the form amqp://user:password@host:5672/virtual-host, with TLS "
                "amqps://host:5671. A '/' in the name of the virtual host is written %2F."
            )
        self.host = parts.hostname
        self.port = port or PORTS[parts.scheme]
        self.encrypted = parts.scheme == "amqps"
        self.user = "guest" if parts.username is None else unquote(parts.username)
        self.password = "guest" if parts.password is None else unquote(parts.password)
        self.virtual_host = unquote(path) or "/"
        words = {url, parts.netloc, parts.hostname, parts.username, parts.password, self.user, self.password}
        self._words = sorted((one for one in words - {"guest"} if one), key=len, reverse=True)

    def quiet(self, text: object) -> str:
        """A text without the parts of the address."""
        said = str(text)
        for word in self._words:
            said = re.sub(rf"(?<!\w){re.escape(word)}(?!\w)", MASK, said)
        return " ".join(said.split())

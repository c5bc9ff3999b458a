"""The address of an MQTT broker, which shows in no text."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote, urlsplit

from cues_kafka.errors import GraphError

PORTS: Final = {"tcp": 1883, "mqtt": 1883, "ssl": 8883, "tls": 8883, "mqtts": 8883}
"""The schemes of addresses, and the port that each has by default."""

ENCRYPTED: Final = frozenset({"ssl", "tls", "mqtts"})

MASK: Final = "***"


class MqttAddress:
    """
    What an address is made of.

    Attributes:
        host, port: of the broker.
        encrypted: whether the connection has TLS.
        user, password: of the login; None: none.

    Raises:
        GraphError: the text is not an address; the message does not show it.
    """

    def __init__(self, url: str, where: str) -> None:
        try:
            parts = urlsplit(url if isinstance(url, str) else "")
            port = parts.port
        except ValueError:
            raise GraphError(
                f"{where}: the host or the port in the address cannot be read. Write mqtt://user:password@host:1883; "
                "in a user name and a password write %2F for '/', %3A for ':', %40 for '@' and %23 for '#'."
            ) from None
        if parts.scheme not in PORTS or not parts.hostname or parts.path.strip("/") or parts.query or parts.fragment:
            raise GraphError(
                f"{where}: the address is not of the form mqtt://host:1883, with TLS mqtts://host:8883. The schemes "
                "tcp:// and ssl:// mean the same. Topics are given by topics= and topic()."
            )
        self.host = parts.hostname
        self.port = port or PORTS[parts.scheme]
        self.encrypted = parts.scheme in ENCRYPTED
        self.user = None if parts.username is None else unquote(parts.username)
        self.password = None if parts.password is None else unquote(parts.password)
        words = {url, parts.netloc, parts.hostname, parts.username, parts.password, self.user, self.password}
        self._words = sorted((one for one in words if one), key=len, reverse=True)

    def quiet(self, text: object) -> str:
        """A text without the parts of the address."""
        said = str(text)
        for word in self._words:
            said = re.sub(rf"(?<!\w){re.escape(word)}(?!\w)", MASK, said)
        return " ".join(said.split())

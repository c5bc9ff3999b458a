"""The address of a STOMP broker, which shows in no text."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote, urlsplit

from cues_kafka.errors import GraphError

PORTS: Final = {"stomp": 61613, "stomps": 61612}
"""The schemes of addresses, without and with TLS, and the port that each has by default."""

MASK: Final = "***"


class StompAddress:
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
                f"{where}: the host or the port in the address cannot be read. Write stomp://user:password@host:61613; "
                "in a user name and a password write %2F for '/', %3A for ':', %40 for '@' and %23 for '#'."
            ) from None
        if parts.scheme not in PORTS or not parts.hostname or parts.path.strip("/") or parts.query or parts.fragment:
            raise GraphError(
                f"{where}: the address is not of the form stomp://host:61613, with TLS stomps://host:61612. Queues are "
                "given by queue=."
            )
        self.host = parts.hostname
        self.port = port or PORTS[parts.scheme]
        self.encrypted = parts.scheme == "stomps"
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

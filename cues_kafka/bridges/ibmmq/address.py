"""The address of a queue manager of IBM MQ."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import ClassVar, Final
from urllib.parse import parse_qsl, unquote

from cues_kafka.bridges.address import BrokerAddress
from cues_kafka.errors import GraphError

_NAME: Final = re.compile(r"[A-Za-z0-9._/%]{1,48}")
_CHANNEL: Final = re.compile(r"[A-Za-z0-9._/%]{1,20}")


class IbmMqAddress(BrokerAddress):
    """
    See `BrokerAddress`.

    Attributes:
        queue_manager: its name. A group of queue managers is refused: each has its own queues.
        channel: the server-connection channel.
    """

    kind: ClassVar[str] = "IbmMq"
    ports: ClassVar[Mapping[str, int]] = {"mq": 1414, "mqs": 1414}
    secure: ClassVar[frozenset[str]] = frozenset({"mqs"})
    example: ClassVar[str] = "mq://user:password@host:1414/QM1?channel=APP.SVRCONN"
    plain: ClassVar[str] = "mq://host:1414/QM1?channel=APP.SVRCONN"
    form: ClassVar[str] = (
        "mq://host:1414/QM1?channel=APP.SVRCONN, with TLS mqs://. QM1 is the name of the queue manager. Queues are "
        "given by queue(...) and to_queue(...)."
    )

    def __init__(self, url: str, where: str) -> None:
        base, _, query = url.partition("?") if isinstance(url, str) else ("", "", "")
        super().__init__(base, where)
        given = parse_qsl(query, keep_blank_values=True)
        self.queue_manager: str = unquote(self.path)
        self.channel: str = dict(given).get("channel", "")
        if len(given) != 1 or not _CHANNEL.fullmatch(self.channel) or not _NAME.fullmatch(self.queue_manager):
            raise GraphError(f"{where}: the address is not of the form {self.form}")

    @staticmethod
    def takes_path(path: str) -> bool:
        """See `BrokerAddress`: the name of the queue manager."""
        return bool(path)

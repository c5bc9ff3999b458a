"""The shop: a JMS client that sends orders, a look into the warehouse's queue, and what should be there."""

from __future__ import annotations

import json
import queue
import random
import threading
import time
from collections import Counter
from typing import Any, Final

from cues_kafka import RecoveryError
from cues_kafka.bridges.stomp.address import StompAddress
from cues_kafka.bridges.stomp.client import StompConnection, StompLogin
from cues_kafka.bridges.stomp.frames import Frame
from cues_kafka.bridges.stomp.source import ANYCAST, destination
from examples.orders_jms.graph import ORDERS, WAREHOUSE, Order

ARTICLES: Final = tuple(f"a{n:02}" for n in range(20))
STOCK: Final = 1_000_000
MISSING: Final = "a99"
"""An article that the database does not have."""

GROUP: Final = 10
"""Orders that are sent before the shop waits for a receipt."""

ANSWER_S: Final = 30.0
END: Final = b"end"


def orders(count: int, seed: int) -> list[Order]:
    """Orders in the order in which they are sent; each twentieth or so asks for an article that does not exist."""
    draw = random.Random(seed)
    return [
        Order(f"o{n}", MISSING if draw.random() < 0.05 else draw.choice(ARTICLES), draw.randrange(1, 10))
        for n in range(count)
    ]


def stock(given: list[Order]) -> dict[str, int]:
    """What is left of each article when all orders are booked."""
    left = Counter(dict.fromkeys(ARTICLES, STOCK))
    left.subtract({article: sum(one.pieces for one in given if one.article == article) for article in ARTICLES})
    return dict(left)


class Shop(threading.Thread):
    """
    Sends orders to a JMS queue. What the broker has not confirmed is sent again.

    Each message has the property `sending`, which no other one has.

    Attributes:
        confirmed: the sendings that the broker has confirmed, each with its order.
        doubtful: the sendings whose receipt was lost: the broker may have them or not.
        error: why it ended before the last order; None: it has not.
    """

    def __init__(self, url: str, given: list[Order], rate: float) -> None:
        super().__init__(name="shop", daemon=True)
        self.confirmed: dict[str, str] = {}
        self.doubtful: dict[str, str] = {}
        self.error: BaseException | None = None
        self._url, self._rate = url, rate
        self._groups = [given[at : at + GROUP] for at in range(0, len(given), GROUP)]
        self._connection: StompConnection | None = None
        self._sendings = 0

    def run(self) -> None:
        """Send all orders."""
        try:
            for group in self._groups:
                until_s = time.monotonic() + ANSWER_S
                while not self._sent(group):
                    if time.monotonic() > until_s:
                        raise TimeoutError(f"the broker has confirmed no order for {ANSWER_S:g} s")
                    time.sleep(0.1)  # the broker is down
                time.sleep(GROUP / self._rate)
        except BaseException as error:
            self.error = error
            raise
        finally:
            if self._connection is not None:
                self._connection.close()

    def _sent(self, group: list[Order]) -> bool:
        """Send some orders; whether the broker has confirmed them. The receipt of the last one is for all."""
        made: dict[str, str] = {}
        try:
            if self._connection is None:
                self._connection = connected(self._url)
            for order in group:
                self._sendings += 1
                made[f"s{self._sendings}"] = order.id
                own = {"persistent": "true", "article": order.article, "sending": f"s{self._sendings}"}
                body = json.dumps({"id": order.id, "article": order.article, "pieces": order.pieces}).encode()
                send(self._connection, ORDERS, body, own, receipt=order is group[-1])
        except (OSError, RecoveryError):
            self.doubtful |= made
            if self._connection is not None:
                self._connection.close()
                self._connection = None
            return False
        self.confirmed |= made
        return True


def shipped(url: str) -> list[dict[str, Any]]:
    """Take all messages from the warehouse's queue, up to a last one that is sent now."""
    got = queue.Queue[Frame]()
    connection = connected(url, got)
    try:
        send(connection, WAREHOUSE, END, {"persistent": "true"}, receipt=True)
        where = {"destination": destination(WAREHOUSE, connection.server), "id": "1", "ack": "auto", **ANYCAST}
        connection.send("SUBSCRIBE", where, receipt=True)
        found = []
        while (body := got.get(timeout=ANSWER_S).body) != END:
            found.append(json.loads(body))
        return found
    finally:
        connection.close("1")


def connected(url: str, got: queue.Queue[Frame] | None = None) -> StompConnection:
    """A connection to the broker."""
    return StompConnection(StompLogin(StompAddress(url, "shop")), on_message=(got or queue.Queue()).put)


def send(connection: StompConnection, to: str, body: bytes, headers: dict[str, str], *, receipt: bool) -> None:
    """Send a message to a queue."""
    where = {"destination": destination(to, connection.server), **ANYCAST}
    connection.send("SEND", {**where, **headers}, body, receipt=receipt)

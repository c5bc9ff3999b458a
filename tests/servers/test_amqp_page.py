"""The part of broker.xml that docs/amqp.md shows, in an Artemis that has nothing else of the kind."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from cues_kafka import Amqp, Feed, Graph, Json, Memory, Sink, Topic, start
from cues_kafka.bridges.amqp.source import AmqpDeliveries
from tests.servers.amqp_world import AmqpShop
from tests.servers.artemis import Artemis
from tests.servers.bridge_world import Cut, payloads, until
from tests.servers.fixtures import started

pytestmark = [pytest.mark.bridge, pytest.mark.timeout(300)]

PAGE = Path(__file__).parents[2] / "docs" / "amqp.md"
BY_DEFAULT = 10
"""How often Artemis delivers a message before it moves it away."""


def shown() -> list[str]:
    """The elements of broker.xml on the page: the acceptor, and the settings of addresses."""
    [block] = re.findall(r"^```xml\n(.*?)^```$", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    return [f"<{element}" for element in re.split(r"^<(?!/)", block, flags=re.MULTILINE)[1:]]


class Documented(Artemis):
    """An Artemis with what the page shows. Only host and port are ours; and one of STOMP, to see that it is there."""

    def acceptors(self) -> str:
        [acceptor] = [one for one in shown() if one.startswith("<acceptor ")]
        assert "0.0.0.0:5672" in acceptor
        return acceptor.replace("0.0.0.0:5672", f"127.0.0.1:{self.amqp_port}") + self._acceptor("STOMP", self.port)

    def addresses(self) -> str:
        return "".join(one for one in shown() if one.startswith("<address-setting "))


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """The address of such an Artemis by AMQP."""
    with ExitStack() as running:
        yield f"amqp://127.0.0.1:{started(running, Documented()).amqp_port}"


def connected(source: Any) -> AmqpDeliveries:
    """What a source has connected to."""
    found = source._parts[0]._connection
    assert isinstance(found, AmqpDeliveries)
    return found


def test_block_gives_a_queue_one_consumer_misses_it_soon_and_gives_nothing_up(url: str) -> None:
    """Another consumer is refused. Of a silent one it waits for 6 s. More deliveries than by default change nothing."""
    with AmqpShop(url) as shop, Cut(int(url.rpartition(":")[2])) as cut:
        shop.send("orders", *payloads(3))
        first = Amqp(f"amqp://127.0.0.1:{cut.port}").queue("orders").open()
        found: list[Any] = []

        def came(count: int) -> bool:
            found.extend(first.read(0, found[-1][1] if found else None, 3))
            return len(found) >= count

        until(lambda: came(3))
        assert connected(first)._connection.silence_s == 6.0
        with pytest.raises(ConnectionError, match="Maximum Consumer Limit"):
            list(Amqp(url).queue("orders").open().read(0, None, 1))
        for _ in range(BY_DEFAULT + 2):
            cut.cut()
            first.release(0)
            found.clear()
            until(lambda: bool(taken_again(first, found)))
        first.close()
        second = Amqp(url).queue("orders").open()
        found.clear()
        until(lambda: taken_again(second, found))
        assert sorted(bytes(message.value) for message, _ in found) == payloads(3)
        second.committed(0, found[-1][1])
        second.close()


def taken_again(source: Any, found: list[Any]) -> bool:
    """Whether all three have come again on a new connection."""
    try:
        found.extend(source.read(0, found[-1][1] if found else None, 3))
    except OSError:
        found.clear()
    return len(found) >= 3


def test_graph_reads_and_sends_with_it(url: str) -> None:
    """The queue of the markers takes one consumer, too."""
    broker = Amqp(url)
    graph = Graph(
        "shop",
        Feed(broker.queue("orders"), into="orders", name="orders-in", poll_seconds=0.05),
        Sink("out", inputs="orders", into=broker.to_queue("checked")),
        defaults=Topic(value=Json(), partitions=1),
    )
    with AmqpShop(url) as shop:
        shop.send("orders", *payloads(20))
        with start(graph, Memory()):
            assert sorted(int(one.body) for one in shop.takes("checked", 20)) == list(range(20))
    with AmqpShop(url) as one, AmqpShop(url) as other:
        one.connection.receive("cues.any", one.got.put, credit=1)
        with pytest.raises(OSError, match="Maximum Consumer Limit"):
            other.connection.receive("cues.any", other.got.put, credit=1)

"""What `RabbitMq`, its queues and its streams take, and what they say of themselves."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from cues_kafka import ConfigError, Feed, GraphError, RabbitMq, RecoveryError
from cues_kafka.bridges.acked import Acked
from cues_kafka.bridges.rabbitmq.address import RabbitMqAddress
from cues_kafka.bridges.rabbitmq.streams import StreamPlace

URL = "amqp://shop:s3cret@broker.example:5673/ware%2Fhouse"


def test_address_is_read() -> None:
    """With its defaults."""
    address = RabbitMqAddress(URL, "here")
    assert (address.host, address.port, address.user, address.password) == ("broker.example", 5673, "shop", "s3cret")
    assert (address.virtual_host, address.encrypted) == ("ware/house", False)
    plain = RabbitMqAddress("amqps://broker", "here")
    assert (plain.port, plain.user, plain.virtual_host, plain.encrypted) == (5671, "guest", "/", True)
    assert RabbitMqAddress("amqp://broker/", "here").virtual_host == "/"


def test_address_shows_in_no_text() -> None:
    """Neither in `repr` nor in what the client says."""
    assert "s3cret" not in repr(RabbitMq(URL).queue("orders"))
    said = RabbitMqAddress(URL, "here").quiet(f"{URL}: user 'shop' at broker.example refused")
    assert "s3cret" not in said
    assert "shop" not in said
    assert "broker.example" not in said


@pytest.mark.parametrize(
    "url", ["http://broker", "amqp:///x", "amqp://broker/a/b", "amqp://broker:port", "amqp://broker?x=1", "broker"]
)
def test_what_is_no_address_is_refused_without_showing_it(url: str) -> None:
    """With the form that it has."""
    with pytest.raises(GraphError, match=r"^RabbitMq\(\.\.\.\): the ") as refused:
        RabbitMq(url)
    assert url not in str(refused.value)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (RabbitMq, "takes an address"),
        (lambda: RabbitMq(URL, env="X"), "takes an address"),
        (lambda: RabbitMq(URL, heartbeat_s=0), "heartbeat_s=0"),
        (lambda: RabbitMq(URL, timeout_s=0), "timeout_s=0"),
        (lambda: RabbitMq(URL, cert="a.pem"), "belong together"),
        (lambda: RabbitMq(URL).queue(""), "has 1 to 255 bytes"),
        (lambda: RabbitMq(URL).queue("x" * 256), "has 1 to 255 bytes"),
        (lambda: RabbitMq(URL).queue([]), "takes the name of a queue"),
        (lambda: RabbitMq(URL).queue(["a", "a"]), "takes the name of a queue"),
        (lambda: RabbitMq(URL).queue("a", prefetch=0), "prefetch=0"),
        (lambda: RabbitMq(URL).queue("a", prefetch=2_501), "prefetch=2501"),
        (lambda: RabbitMq(URL).queue("a", key="body"), "takes 'routing_key'"),
        (lambda: RabbitMq(URL).queue("a", key="headers."), "takes 'routing_key'"),
        (lambda: RabbitMq(URL).stream("a", start=-1), "start=-1"),
        (lambda: RabbitMq(URL).stream(["a", 1]), "has 1 to 255 bytes"),  # type: ignore[list-item]
    ],
)
def test_what_cannot_be_is_refused(make: Any, text: str) -> None:
    """Where it is declared, with what it takes."""
    with pytest.raises(GraphError, match=text):
        make()


def test_parts_are_queues() -> None:
    """One for each name."""
    assert RabbitMq(URL).queue("a").parts() == 1
    assert RabbitMq(URL).stream(["a", "b"]).parts() == 2


@pytest.mark.parametrize(
    ("source", "level"),
    [
        (RabbitMq(URL).queue("a"), "exactly once (if publishers give each message an id)"),
        (RabbitMq(URL).queue("a", ids=False), "at least once"),
        (RabbitMq(URL).stream("a"), "exactly once"),
    ],
)
def test_plan_says_the_level_of_each_source(source: Any, level: str) -> None:
    """With what it rests on; one that is weaker has a remedy."""
    edge = Feed(source, into="ingress").edge
    assert edge.level == level
    assert edge.why
    assert bool(edge.remedy) == (level == "at least once")


def test_a_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """When the source is opened."""
    monkeypatch.setitem(sys.modules, "pika", None)
    for name in [one for one in sys.modules if one.startswith("cues_kafka.bridges.rabbitmq.") and "declare" not in one]:
        monkeypatch.delitem(sys.modules, name)
    for source in (RabbitMq(URL).queue("a"), RabbitMq(URL).stream("a")):
        with pytest.raises(
            ConfigError, match=r"needs pika, which is not installed.*pip install 'cues-kafka\[rabbitmq\]'"
        ):
            source.open()


def test_a_missing_variable_is_named() -> None:
    """With what it holds."""
    with pytest.raises(ConfigError, match="the environment variable SHOP_RABBITMQ is not set"):
        RabbitMq(env="SHOP_RABBITMQ").queue("a").open()


def test_a_variable_that_holds_no_address_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """And not shown."""
    monkeypatch.setenv("SHOP_RABBITMQ", "http://s3cret")
    with pytest.raises(ConfigError, match="SHOP_RABBITMQ") as refused:
        RabbitMq(env="SHOP_RABBITMQ").stream("a").open()
    assert "s3cret" not in str(refused.value)


def test_a_batch_leaves_room_in_the_window() -> None:
    """Half of it, so that the next batch fills during a commit."""
    opened = RabbitMq(URL).queue("a", prefetch=100).open()
    assert isinstance(opened, Acked)
    assert opened.most == 50


def test_places_are_shown_to_people() -> None:
    """A count for a queue, and an offset for a stream."""
    assert RabbitMq(URL).queue("orders").show("7.0123abcd:") == "message 7 of the RabbitMQ queue orders"
    assert RabbitMq(URL).stream("orders").show("7:0123456789abcdef") == "offset 7 of the RabbitMQ stream orders"


def test_place_of_another_source_is_refused() -> None:
    """With the remedy."""
    with pytest.raises(RecoveryError, match="the feed had another source before"):
        StreamPlace.read("7.0123abcd:")

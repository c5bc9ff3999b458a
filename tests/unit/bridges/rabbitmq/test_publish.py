"""What is published to RabbitMQ: routing keys, refusals, and the declaration as data."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from cues_kafka import Feed, Graph, GraphError, RabbitMq, Raw, RecoveryError, RetriableError, Sink, Source, Topic
from cues_kafka.bridges.published import Template
from cues_kafka.bridges.rabbitmq.address import RabbitMqAddress
from cues_kafka.bridges.rabbitmq.client import RabbitMqLogin
from cues_kafka.bridges.rabbitmq.publisher import ExchangeSettings, RabbitMqMessage, RabbitMqPublisher
from cues_kafka.bridges.rabbitmq.routing import ROUTING_KEYS
from cues_kafka.errors import OutputError
from cues_kafka.sinks.publish import PublishSink

BROKER = RabbitMq(env="SHOP_RABBITMQ")


@pytest.mark.parametrize(
    ("text", "value", "key", "found"),
    [
        ("orders", None, None, "orders"),
        ("{key}", None, b"k1", "k1"),
        ("{key}", None, "ü", "ü"),
        ("orders.{country}.{n}", {"country": "eu", "n": 7}, None, "orders.eu.7"),
        ("{key:path}", None, b"a.b", "a.b"),
        ("{key}", None, b"\xff", "\\xff"),
    ],
)
def test_places_are_filled(text: str, value: Any, key: Any, found: str) -> None:
    """With the key and with fields."""
    assert Template(text, ROUTING_KEYS).fill(value, key) == found


@pytest.mark.parametrize(
    ("text", "value", "key", "why"),
    [
        ("{key}", None, None, "has no key"),
        ("{key}", None, b"a.b", "another word"),
        ("{key}", None, b"", "is empty"),
        ("{key}", None, b"x" * 256, "longer than 255 bytes"),
        ("{country}", {}, None, "no field 'country'"),
        ("{country}", {"country": [1]}, None, "is a list"),
        ("{country}", {"country": True}, None, "is a bool"),
        ("{country}", {"country": "\ud800"}, None, "surrogate"),
        ("{country}", None, None, "no field 'country'"),
    ],
)
def test_places_that_cannot_be_filled_are_errors_of_the_message(text: str, value: Any, key: Any, why: str) -> None:
    """They name what is wrong."""
    with pytest.raises(OutputError, match=why):
        Template(text, ROUTING_KEYS).fill(value, key)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"name": "x" * 256}, "at most 255 bytes"),
        ({"name": 3}, "at most 255 bytes"),
        ({"name": "", "routing_key": "{a b}"}, "is not a place"),
        ({"name": "", "routing_key": 3}, "is not a text"),
        ({"name": "", "routing_key": "x" * 256}, "longer than 255 bytes"),
        ({"name": "", "headers": [""]}, "has 1 to 255 bytes"),
        ({"name": "", "expiry_s": 0}, "expiry_s=0"),
        ({"name": "", "max_bytes": True}, "max_bytes=True"),
    ],
)
def test_what_an_exchange_cannot_be_is_refused(arguments: dict[str, Any], why: str) -> None:
    """Where it is declared."""
    with pytest.raises(GraphError, match=why):
        BROKER.exchange(**arguments)


def test_a_graph_with_rabbitmq_is_written_down_and_read() -> None:
    """Sources and targets; the address is in the variable."""
    graph = Graph(
        "shop",
        Feed(BROKER.queue(["a", "b"], key="headers.customer"), into="orders", name="in"),
        Feed(BROKER.stream("clicks", start=7), into="clicks", name="clicks-in"),
        Sink("out", inputs="orders", into=BROKER.exchange("shop", "{key}", headers=["unit"])),
        defaults=Topic(value=Raw()),
    )
    assert Graph.from_dict(json.loads(json.dumps(graph.to_dict()))) == graph


def test_an_address_is_not_written_down() -> None:
    """It may have a password."""
    broker = RabbitMq("amqp://shop:s3cret@broker")
    for part in (
        Feed(broker.queue("a"), into="orders", name="in"),
        Sink("out", inputs="orders", into=broker.exchange("shop")),
    ):
        graph = Graph("shop", Source("orders"), part) if not isinstance(part, Feed) else Graph("shop", part)
        with pytest.raises(GraphError, match="address would be in the text") as refused:
            graph.to_dict()
        assert "s3cret" not in str(refused.value)


class Refusing:
    """A publisher whose broker refuses."""

    def prepare(self, value: Any, step: Any, given: Any) -> Any:
        """Anything goes."""
        return value

    def publish(self, messages: Any) -> None:
        """Nothing does."""
        raise RecoveryError("no exchange 'shop'", remedy="declare it")

    def close(self) -> None:
        """Nothing is open."""


def test_refusal_of_a_broker_sends_the_task_back_and_keeps_the_remedy() -> None:
    """The worker goes on: another task may publish elsewhere."""
    publisher = Refusing()
    sink = PublishSink({"out": publisher})
    sink.begin_batch(1)
    sink.begin_step()
    sink.add(publisher, "hash", b"1")
    with pytest.raises(RetriableError, match="no exchange 'shop'") as refused:
        sink.before_commit(1, [])
    assert refused.value.remedy == "declare it"


def test_step_of_a_timer_publishes_without_a_message() -> None:
    """It has no key and no headers of one."""
    settings = ExchangeSettings("shop", "late", ("unit",), "", None, None)
    publisher = RabbitMqPublisher(
        settings, RabbitMqLogin(RabbitMqAddress("amqp://broker", "here"), 20, 1.0, None), "me"
    )
    step: Any = SimpleNamespace(inputs={})
    assert publisher.prepare({"n": 1}, step, {}) == RabbitMqMessage("late", b'{"n":1}', {})
    with pytest.raises(OutputError, match="has no key"):
        RabbitMqPublisher(settings._replace(routing_key="{key}"), publisher._login, "me").prepare(b"1", step, {})

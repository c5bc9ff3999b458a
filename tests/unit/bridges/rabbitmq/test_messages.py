"""Messages of RabbitMQ as messages for Kafka, and the ids that name them."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from pika import BasicProperties
from pika.spec import Basic

from cues_kafka.bridges.rabbitmq.messages import message_of
from cues_kafka.bridges.rabbitmq.queues import name_of

DELIVERED = Basic.Deliver("tag", 1, False, "shop", "orders.eu")


def made(key: str | None = None, **properties: Any) -> Any:
    """A message."""
    return message_of(DELIVERED, BasicProperties(**properties), b"body", key)


@pytest.mark.parametrize(
    ("key", "found"),
    [
        (None, None),
        ("routing_key", "orders.eu"),
        ("message_id", "m1"),
        ("correlation_id", None),
        ("headers.n", "7"),
        ("headers.none", None),
    ],
)
def test_key_is_what_the_source_says(key: str | None, found: str | None) -> None:
    """None where the message lacks it: as the topic in Kafka says."""
    assert made(key, message_id="m1", headers={"n": 7}).key == found


def test_headers_keep_their_meaning() -> None:
    """Text and bytes as they are; other types of AMQP as text."""
    given = {
        "text": "ü", "bytes": b"\xff", "number": -1, "float": 1.5, "decimal": Decimal("1.50"), "yes": True, "no": False,
        "time": datetime(2026, 1, 2, tzinfo=UTC), "table": {"a": [1, None, b"\xff"]}, "none": None,
    }  # fmt: skip
    got = dict(made(headers=given).headers)
    assert got == {
        "text": "ü", "bytes": b"\xff", "number": "-1", "float": "1.5", "decimal": "1.50", "yes": "true", "no": "false",
        "time": "2026-01-02T00:00:00+00:00", "table": '{"a": [1, null, "\\\\xff"]}',
        "rabbitmq.exchange": "shop", "rabbitmq.routing-key": "orders.eu",
    }  # fmt: skip


def test_properties_are_headers_that_no_publisher_can_forge() -> None:
    """Their names begin with the broker's."""
    got = made(message_id="m1", content_type="text/plain", headers={"rabbitmq.message-id": "forged"}).headers
    assert [value for name, value in got if name == "rabbitmq.message-id"] == ["m1"]
    assert ("rabbitmq.content-type", "text/plain") in got


def test_headers_of_the_broker_that_differ_with_each_delivery_are_left_out() -> None:
    """Replays of a feed write the same messages."""
    names = [name for name, _ in made(headers={"x-delivery-count": 2, "x-stream-offset": 7, "x-death": []}).headers]
    assert names == ["x-death", "rabbitmq.exchange", "rabbitmq.routing-key"]


def test_tables_without_an_end_are_cut() -> None:
    """A publisher may nest them as deep as a frame allows."""
    table: dict[str, Any] = {}
    for _ in range(5_000):
        table = {"a": table}
    assert dict(made(headers={"deep": table}).headers)["deep"].endswith('"..."' + "}" * 20)


@pytest.mark.parametrize(
    "other",
    [("m2", "k", b"b"), ("m1", "l", b"b"), ("m1", "k", b"c"), ("m1k", "", b"b"), (b"m\xff", "k", b"b")],
)
def test_id_names_a_message_with_its_contents(other: Any) -> None:
    """A publisher that gives two messages one id loses neither."""
    assert name_of("m1", "k", b"b") == name_of(b"m1", "k", b"b")
    assert name_of(*other) != name_of("m1", "k", b"b")

"""What `Amqp` declares, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest

from cues_kafka import Amqp, ConfigError, Feed, Graph, GraphError, OutputError, Sink, Source
from cues_kafka.bridges.amqp.declare import FROM_AMQP, FROM_AMQP_REPEATED, MOST_PREFETCH
from cues_kafka.bridges.amqp.messages import message_of

BROKER = Amqp("amqp://user:secret@amqp.internal")


@pytest.mark.parametrize(
    ("declare", "words"),
    [
        (lambda: Amqp("amqp://h/vhost"), "Queues are given by queue"),
        (lambda: Amqp("http://h"), "not of the form"),
        (Amqp, "ORDERS_BROKER"),
        (lambda: Amqp("amqp://h", idle_s=0), "idle_s"),
        (lambda: Amqp("amqp://h", timeout_s=True), "timeout_s"),
        (lambda: Amqp("amqps://h", cert_key="key.pem"), "Give cert="),
        (lambda: BROKER.queue(""), "name the queue"),
        (lambda: BROKER.queue(["a", "a"]), "several that differ"),
        (lambda: BROKER.queue(["a", ""]), "one of them is empty"),
        (lambda: BROKER.queue(["a", "b"], selector=["c", "d"]), "Declare a feed for each queue"),
        (lambda: BROKER.queue("a", prefetch=MOST_PREFETCH + 1), "prefetch"),
        (lambda: BROKER.queue("a", key="properties."), "properties.NAME"),
        (lambda: BROKER.to_queue("a b"), "cannot be the name of a queue"),
        (lambda: BROKER.to_queue("a", headers={"cues-probe": 1}), "cannot have the header"),
        (lambda: BROKER.to_queue("a", headers={"priority": 256}), "priority"),
        (lambda: BROKER.target(markers="a b"), r"Amqp\(...\), markers="),
        (lambda: BROKER.address(""), "is empty"),
        (lambda: BROKER.address("a/{"), "is not a place"),
        (lambda: BROKER.address("a", headers="tenant"), "a list of names"),
        (lambda: BROKER.address("a", max_bytes=0), "max_bytes"),
    ],
)  # fmt: skip
def test_declarations_that_cannot_be_are_refused(declare: Any, words: str) -> None:
    """With what to write, and without the address."""
    with pytest.raises(GraphError, match=words) as refused:
        declare()
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("body", "headers", "words"),
    [
        (object, {}, "not text, bytes or JSON"),
        ("\ud800", {}, "surrogate"),
        ("x", {"n": 2**63}, "64 bits"),
        ("x", {"n": [1]}, "is not a text"),
        ("x", {"n": "\ud800"}, "surrogate"),
        ("x", {"\ud800": 1}, "surrogate"),
        ("x", {1: 1}, "cannot have the header"),
        ("x", {"ttl_s": 0}, "ttl_s"),
        ("x", {"ttl_s": True}, "seconds"),
        ("x", {"subject": 7}, "is not a text"),
    ],
)
def test_messages_that_cannot_be_are_errors_of_their_step(body: Any, headers: Any, words: str) -> None:
    """Before anything is sent."""
    with pytest.raises(OutputError, match=words):
        message_of("queue", "a", body, headers)


def test_parts_and_levels_are_those_of_the_declaration() -> None:
    """A part for each queue or selector."""
    assert BROKER.queue(["a", "b"], selector="s").read_by(1) == ("b", "s")
    assert BROKER.queue("a", selector=["s", "t"]).read_by(1) == ("a", "t")
    assert BROKER.queue(["a", "b"]).parts() == BROKER.queue("a", selector=["s", "t"]).parts() == 2
    assert (BROKER.queue("a").edge, BROKER.queue("a", ids=False).edge) == (FROM_AMQP, FROM_AMQP_REPEATED)


def test_a_graph_is_written_down_without_the_address() -> None:
    """And read again; an address in the declaration is refused there."""
    broker = Amqp(env="ORDERS_BROKER", vhost="vhost:shop")
    graph = Graph(
        "shop",
        Feed(broker.queue("orders", key="subject"), into="orders"),
        Source("paid"),
        Sink("a", inputs="paid", into=broker.to_queue("a", headers={"priority": 7})),
        Sink("b", inputs="paid", into=broker.address("/queue/{key}", headers=["h"])),
    )
    assert Graph.from_dict(graph.to_dict()).to_dict() == graph.to_dict()
    with pytest.raises(ConfigError, match="ORDERS_BROKER is not set"):
        broker.login()

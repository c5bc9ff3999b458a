"""What a sink publishes by MQTT, without a broker: topics, payloads, ids, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from cues_kafka import (
    Graph,
    GraphError,
    Json,
    Message,
    Mqtt,
    OutputError,
    Processor,
    RetriableError,
    Sink,
    Source,
    Store,
    TaskStopped,
    Topic,
)
from cues_kafka.bridges.mqtt import publisher as module
from cues_kafka.bridges.mqtt.filters import TOPICS
from cues_kafka.bridges.mqtt.publisher import MqttPublisher
from cues_kafka.bridges.published import Template
from cues_kafka.graph.declare import CommitPolicy
from cues_kafka.graph.publish import Published
from cues_kafka.on_spark.verdict import verdict
from cues_kafka.plan.edges import edges_of
from cues_kafka.testing.tester import Crash, Tester

URL = "mqtt://planter:s3cret@127.0.0.1:1"


@pytest.mark.parametrize(
    ("text", "value", "key", "topic"),
    [
        ("alarms", None, None, "alarms"),
        ("alarms/{key}", None, b"k1", "alarms/k1"),
        ("alarms/{key}/{site}", {"site": 7}, "k1", "alarms/k1/7"),
        ("{site}/x", SimpleNamespace(site="a"), None, "a/x"),
        ("mirror/{key:path}", None, "a/b/c", "mirror/a/b/c"),
        ("{key}", None, b"\xff", r"\xff"),
        ("{key}{key}", None, "{key}", "{key}{key}"),
    ],
)
def test_places_of_a_topic_are_filled_in(text: str, value: Any, key: Any, topic: str) -> None:
    """With the key, or with a field; what was filled in is not looked through again."""
    assert Template(text, TOPICS).fill(value, key) == topic


@pytest.mark.parametrize(
    ("text", "value", "key", "why"),
    [
        ("alarms/{key}", None, None, "the message has no key"),
        ("alarms/{key}", None, "", "is empty"),
        ("alarms/{key}", None, "a/b", "would lead to another topic"),
        ("alarms/{key}", None, "#", "which only filters have"),
        ("alarms/{key}", None, "a\0", r"U\+0000"),
        ("{site}", {}, None, "the value has no field 'site'"),
        ("{site}", None, None, "the value has no field 'site'"),
        ("{site}", {"site": [1]}, None, "is a list"),
        ("{site}", {"site": True}, None, "is a bool"),
        ("{key:path}", None, "a/+", "which only filters have"),
        ("{key}", None, "x" * 70_000, "more than 65,535 bytes"),
    ],
)
def test_what_does_not_fit_a_topic_is_an_error_of_the_message(text: str, value: Any, key: Any, why: str) -> None:
    """A key from outside does not lead to the topics of others."""
    with pytest.raises(OutputError, match=why):
        Template(text, TOPICS).fill(value, key)


@pytest.mark.parametrize("text", ["", "a/#", "a/+", "a\0", "{", "{key", "{a.b}", "{key!r}", "{0}", "{key:>9}"])
def test_topics_that_cannot_be_are_refused(text: str) -> None:
    """When the graph is made."""
    with pytest.raises(GraphError, match="topic"):
        Mqtt(URL).topic(text)


@pytest.mark.parametrize("name", ["expiry_s", "content_type", "headers"])
def test_what_mqtt_3_does_not_have_is_refused(name: str) -> None:
    """With its name."""
    given: dict[str, Any] = {"expiry_s": 5, "content_type": "text/plain", "headers": ["a"]}
    with pytest.raises(GraphError, match=f"{name}=.*only MQTT 5"):
        Mqtt(URL, version="3.1.1").topic("a", **{name: given[name]})


@pytest.mark.parametrize(
    ("settings", "what"),
    [
        ({"state": {"kept": Store()}}, "state="),
        ({"batch": True}, "batch=True"),
        ({"concurrency": 2}, "concurrency="),
        ({"strategy": "at-most-once"}, "at-most-once"),
    ],
)
def test_what_does_not_go_with_publishing_is_refused_with_the_remedy(settings: dict[str, Any], what: str) -> None:
    """Two processors do it."""

    def publish(value: Any, step: Any, mqtt: Any) -> None:
        mqtt.publish(value, step)

    async def later(value: Any, step: Any, mqtt: Any) -> None:
        mqtt.publish(value, step)

    with pytest.raises(GraphError, match=rf"publishes messages, with .*{what}.*a Sink read it"):
        Processor(
            later if "concurrency" in settings else publish,
            inputs="in",
            outputs="out",
            effects={"mqtt": Mqtt(URL).topic("a")},
            **settings,
        )


def graph_of(into: Published, **more: Any) -> Graph:
    """A sink."""
    return Graph(
        "g",
        Source("alerts"),
        Sink("alarms", inputs="alerts", into=into),
        defaults=Topic(value=Json(), key="id", partitions=1),
        **more,
    )


def test_plan_says_at_least_once_and_what_makes_it_more() -> None:
    """And names the topic, not the address."""
    [edge] = [one for one in edges_of(graph_of(Mqtt(URL).topic("alarms/{key}"))) if one.where.startswith("alarms")]
    assert (edge.where, edge.level) == ("alarms -> MQTT topic alarms/{key}", "at least once")
    assert "cues-id" in edge.remedy


def test_graph_with_the_address_in_a_variable_can_be_written_down() -> None:
    """One with the address in it cannot."""
    graph = graph_of(Mqtt(env="PLANT_BROKER").topic("alarms/{key}", retain=True, headers=["unit"]))
    again = Graph.from_dict(json.loads(json.dumps(graph.to_dict())))
    assert again.processors["alarms"].targets == graph.processors["alarms"].targets
    with pytest.raises(GraphError, match="its address would be in the text"):
        graph_of(Mqtt(URL).topic("a")).to_dict()
    assert "s3cret" not in repr(Mqtt(URL).topic("a"))


def test_spark_leaves_it_to_native_workers() -> None:
    """With the reason."""
    graph = graph_of(Mqtt(URL).topic("a"))
    assert "published by native workers" in str(verdict(graph, graph.processors["alarms"]))


# What runs, with a publisher that remembers


@dataclass
class Remembering:
    """A publisher; see `Publisher`."""

    published: list[tuple[str, Any]] = field(default_factory=list)
    away: int = 0

    def prepare(self, value: Any, step: Any, given: Any) -> Any:
        """Refuse a negative number."""
        if value["n"] < 0:
            raise OutputError("too few")
        return value["n"]

    def publish(self, messages: Sequence[tuple[str, Any]]) -> None:
        """Remember, unless the broker is away: then half of it arrives all the same."""
        if self.away:
            self.away -= 1
            self.published += messages[: len(messages) // 2]
            raise ConnectionResetError("it is lost")
        self.published += messages

    def close(self) -> None:
        """Nothing is open."""


@dataclass(frozen=True)
class Declared(Published):
    """A target that remembers."""

    to: Remembering

    def publisher(self, graph: str, processor: str) -> Remembering:
        """See `Published`."""
        return self.to


def sent(tester: Tester, *numbers: int) -> None:
    """Messages for the sink."""
    for n in numbers:
        tester.send("alerts", Message({"id": f"k{n}", "n": n}))


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("effect", ["Call", "Begin", "Produce", "Commit"])
@pytest.mark.parametrize("nth", [1, 2, 3, 4, 5])
def test_a_death_at_any_effect_loses_nothing_and_repeats_ids(moment: Any, effect: str, nth: int) -> None:
    """The receiver that drops ids it has had gets each message once."""
    to = Remembering()
    tester = Tester(graph_of(Declared(to)), policy=CommitPolicy(max_messages=4))
    sent(tester, *range(12))
    tester.run(crash=Crash(moment, effect, nth))
    tester.run()
    assert sorted(dict(to.published).values()) == list(range(12))


def test_messages_are_published_before_the_commit_and_those_of_a_failed_step_are_not() -> None:
    """The failed step is one error message; the steps around it are published once."""
    to = Remembering()
    tester = Tester(graph_of(Declared(to), errors="g.errors"))
    sent(tester, 1, -1, 2)
    tester.run(crash=Crash("before", "Commit", 3))
    assert [n for _, n in to.published] == [1, 2]
    tester.run()
    assert [n for _, n in to.published] == [1, 2, 1, 2]
    assert len({name for name, _ in to.published}) == 2
    assert [error.kind for error in tester.errors()] == ["output"]


def test_a_broker_that_is_away_is_waited_for() -> None:
    """What arrived before comes again with its id."""
    to = Remembering(away=2)
    tester = Tester(graph_of(Declared(to)))
    sent(tester, *range(4))
    tester.run()
    assert sorted(dict(to.published).values()) == list(range(4))


def test_a_broker_that_stays_away_is_named() -> None:
    """After several attempts."""
    tester = Tester(graph_of(Declared(Remembering(away=1_000))))
    sent(tester, 1)
    with pytest.raises(TaskStopped, match="ConnectionResetError: it is lost"):
        tester.run()


def test_messages_of_a_step_have_different_ids() -> None:
    """And a function may publish beside its output."""
    to = Remembering()

    def both(value: dict[str, Any], step: Any, mqtt: Any) -> dict[str, Any]:
        mqtt.publish(value, step)
        mqtt.publish({**value, "n": value["n"] + 100}, step)
        return value

    graph = Graph(
        "g",
        Source("alerts"),
        Processor(both, inputs="alerts", outputs="done", effects={"mqtt": Declared(to)}),
        defaults=Topic(value=Json(), key="id", partitions=1),
    )
    tester = Tester(graph)
    sent(tester, 1, 2)
    tester.run()
    assert [n for _, n in to.published] == [1, 101, 2, 102]
    assert [name.rpartition(".")[2] for name, _ in to.published] == ["0", "1", "0", "1"]
    assert len(tester.values("done")) == 2


# The publisher, with a connection that remembers


class Wire:
    """A connection that acknowledges when it is told to."""

    def __init__(self, made: MqttPublisher, granted: dict[str, Any], reason: int = 0) -> None:
        self.granted, self.sent, self.closed = granted, [], False
        self._made, self._reason = made, reason
        self.most = 0
        self._open: list[int] = []

    sent: list[tuple[str, bytes, bool, Any]]

    def check(self) -> None:
        """It is never lost; a message under way is acknowledged now."""
        if self._open:
            self._made._published(self._open.pop(0), SimpleNamespace(is_failure=self._reason >= 128))

    def publish(self, topic: str, payload: bytes, *, retain: bool, properties: Any) -> int:
        """See `MqttConnection`."""
        self.sent.append((topic, payload, retain, properties))
        self._open.append(len(self.sent))
        self.most = max(self.most, len(self._open))
        return len(self.sent)

    def close(self) -> None:
        """Remember."""
        self.closed = True


def wired(monkeypatch: pytest.MonkeyPatch, granted: dict[str, Any], reason: int = 0, **settings: Any) -> Any:
    """A publisher, and the wires that it makes."""
    broker = Mqtt(URL, version=settings.pop("version", "5"), timeout_s=0.01)
    made = MqttPublisher(broker.topic("a/{key}", **settings), broker.login(), "g.alarms")
    wires: list[Wire] = []

    def connect(*_: Any, **__: Any) -> Wire:
        wires.append(Wire(made, granted, reason))
        return wires[-1]

    monkeypatch.setattr(module, "MqttConnection", connect)
    return made, wires


def step_of(value: Any, payload: bytes | None, **headers: bytes) -> Any:
    """A step with one message."""
    received = SimpleNamespace(value=value, value_bytes=payload, key_bytes=b"k", headers=list(headers.items()))
    return SimpleNamespace(inputs={"input": received}, hash="h")


def test_no_more_messages_are_under_way_than_the_broker_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its Receive Maximum."""
    made, wires = wired(monkeypatch, {"ReceiveMaximum": 3})
    value = {"n": 1}
    made.publish([(f"id.{n}", made.prepare(value, step_of(value, b"p"), {})) for n in range(10)])
    assert wires[0].most == 3
    assert [dict(properties.UserProperty)["cues-id"] for *_, properties in wires[0].sent] == [
        f"id.{n}" for n in range(10)
    ]


def test_payload_is_that_in_kafka_and_other_values_are_json(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tombstone is empty, which deletes what the broker has retained."""
    made, _ = wired(monkeypatch, {}, headers=["unit"])
    value = {"n": 1}
    assert made.prepare(value, step_of(value, b'{"n": 1}'), {}).payload == b'{"n": 1}'
    assert made.prepare({"m": 2}, step_of(value, b'{"n": 1}'), {}).payload == b'{"m":2}'
    assert made.prepare("text", step_of(value, b"p"), {"topic": "b"}) == module.MqttMessage("b", b"text", ())
    assert made.prepare(None, step_of(None, None), {}).payload == b""
    step = step_of(value, b"p", unit=b"C", other=b"x")
    assert made.prepare(value, step, {}).properties == (("unit", "C"),)
    for headers in ({"unit": b"C\n"}, {"unit": b"\0"}, {"unit": b"\xff"}, {"unit": b"x" * 65_536}):
        assert made.prepare(value, step_of(value, b"p", **headers), {}).properties == ()
    wrong: Any
    for wrong, given in (({1}, {}), (float("nan"), {}), ("\ud800", {}), (value, {"topic": "a/#"}), (value, {"qos": 2})):
        with pytest.raises(OutputError, match="publish"):
            made.prepare(wrong, step_of(value, b"p"), given)


def test_step_of_a_timer_publishes_without_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no headers and no key; the function says where its message goes."""
    made, _ = wired(monkeypatch, {}, headers=["unit"])
    fired = SimpleNamespace(inputs={}, hash="h")
    assert made.prepare({"m": 2}, fired, {"topic": "b"}) == module.MqttMessage("b", b'{"m":2}', ())


@pytest.mark.parametrize("name", ["a\n", "a\0", "cues-id", "x" * 65_536, 7])
def test_properties_that_cannot_be_are_refused(name: Any) -> None:
    """When the graph is made; brokers close the connection of one who sends them."""
    with pytest.raises(GraphError, match=r"Mqtt\(...\).topic"):
        Mqtt(URL).topic("a", headers=[name])


def test_a_packet_larger_than_mqtt_has_is_an_error_of_the_message(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever limit is declared: the client would raise an error for the batch, again and again."""
    for settings in ({}, {"max_bytes": 2**30}):
        made, _ = wired(monkeypatch, {}, **settings)
        value = bytes(module.LARGEST_BYTES - module.OVERHEAD_BYTES)
        with pytest.raises(OutputError, match=r"268,434,943 bytes, and 268,435,455 are allowed"):
            made.prepare(value, step_of(None, None), {"topic": "b"})
        assert made.prepare(value[1:], step_of(None, None), {"topic": "b"}).topic == "b"


def test_too_large_a_payload_is_an_error_of_the_message(monkeypatch: pytest.MonkeyPatch) -> None:
    """By our limit at once, by the broker's as soon as it is known."""
    made, _ = wired(monkeypatch, {}, max_bytes=3)
    with pytest.raises(OutputError, match=r"has 4 bytes, and 3 are allowed"):
        made.prepare(1, step_of(1, b"1234"), {})
    made, _ = wired(monkeypatch, {"MaximumPacketSize": 1_000})
    message = made.prepare(1, step_of(1, b"x" * 900), {})
    made.publish([("id", message)])
    with pytest.raises(OutputError, match=r"900 bytes, and 1,000 are allowed"):
        made.prepare(1, step_of(1, b"x" * 900), {})


@pytest.mark.parametrize(
    ("granted", "reason", "why"),
    [
        ({"MaximumQoS": 0}, 0, "QoS 0 only"),
        ({"RetainAvailable": 0}, 0, "does not retain"),
        ({}, 135, "refuses a message"),
    ],
)
def test_what_the_broker_does_not_do_is_named(
    granted: dict[str, Any], reason: int, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is committed in Kafka then."""
    made, wires = wired(monkeypatch, granted, reason, retain=True)
    with pytest.raises(RetriableError, match=why) as refused:
        made.publish([("id", module.MqttMessage("a", b"", ()))])
    assert refused.value.remedy
    assert wires[0].closed


def test_a_broker_that_acknowledges_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection is closed, and the batch is published again on another one."""
    made, wires = wired(monkeypatch, {})
    monkeypatch.setattr(Wire, "check", lambda _: None)
    with pytest.raises(RetriableError, match="has not acknowledged 1 messages"):
        made.publish([("id", module.MqttMessage("a", b"", ()))])
    assert wires[0].closed

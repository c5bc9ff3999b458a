"""`Mqtt` as it is declared: what it refuses, what it shows, and what `plan` says of it."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

import pytest

from cues_kafka import ConfigError, Feed, Graph, GraphError, Json, Mqtt, Topic
from cues_kafka.bridges.mqtt.address import MqttAddress
from cues_kafka.plan.edges import edges_of

URL = "mqtt://planter:s3cr/et@broker.plant.example:1884".replace("/et", "%2Fet")


def graph_of(source: Mqtt) -> Graph:
    """A feed of it."""
    return Graph("plant", Feed(source, into="ingress"), defaults=Topic(value=Json()))


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"qos": 2}, "QoS 2 loses messages"),
        ({"qos": 0}, "takes 1"),
        ({"version": "3.1"}, "takes '5' or '3.1.1'"),
        ({"version": "3.1.1", "session_expiry_s": 60}, "MQTT 3.1.1 cannot ask for it"),
        ({"prefetch": 0}, "from 1 to 5,000"),
        ({"prefetch": True}, "from 1 to 5,000"),
        ({"keep_alive_s": 0}, "from 1 to 65,535"),
        ({"timeout_s": 0}, "above 0"),
        ({"key": "payload"}, "takes 'topic'"),
        ({"cert": "a.pem"}, "belong together"),
        ({"session": "a\0b"}, "takes a name"),
        ({"topics": ["$share/g/t/#"]}, "is a shared subscription"),
        ({"topics": ["a/#", "a/b"]}, "can match the same topic"),
        ({"topics": [["a/#"], ["a/b"]]}, "can match the same topic"),
        ({"topics": [["a/#"], "b"]}, "each one has a list of filters"),
        ({"topics": ["a#"]}, "is not a filter"),
        ({"topics": 5}, "takes a filter"),
        ({"topic": "a"}, "topics"),
    ],
)
def test_what_cannot_be_is_refused_with_the_reason(settings: Mapping[str, Any], why: str) -> None:
    """When the graph is made, before anything connects."""
    with pytest.raises(GraphError, match=why):
        Mqtt(**{"url": URL, "topics": ["t/#"], "session": "s1", **settings})


@pytest.mark.parametrize(
    "url", ["", "http://host", "mqtt://", "mqtt://host/topic", "mqtt://host:port", "mqtt://u:s3cr/et@host", "host:1883"]
)
def test_an_address_that_cannot_be_is_refused_and_not_shown(url: str) -> None:
    """It may hold a password."""
    with pytest.raises(GraphError) as refused:
        Mqtt(url)
    assert not url or "s3cr" not in str(refused.value)


def test_a_source_names_topics_and_session() -> None:
    """A sink needs neither."""
    with pytest.raises(GraphError, match=r"name what it reads and the session"):
        Feed(Mqtt(URL), into="ingress")


def test_schemes_of_other_tools_mean_the_same() -> None:
    """With the ports that they have there."""
    found = {one: MqttAddress(f"{one}://host", "") for one in ("tcp", "mqtt", "ssl", "tls", "mqtts")}
    assert {name: (one.port, one.encrypted) for name, one in found.items()} == {
        "tcp": (1883, False),
        "mqtt": (1883, False),
        "ssl": (8883, True),
        "tls": (8883, True),
        "mqtts": (8883, True),
    }


def test_address_shows_in_no_text() -> None:
    """Neither as it is written, nor as it is meant."""
    source = Mqtt(URL, topics=["t/#"], session="s1")
    assert "plant.example" not in repr(source)
    address = MqttAddress(URL, "")
    assert (address.user, address.password, address.port) == ("planter", "s3cr/et", 1884)
    said = address.quiet("certificate of broker.plant.example is not for planter, s3cr/et or s3cr%2Fet")
    assert said == "certificate of *** is not for ***, *** or ***"


def test_one_list_of_filters_is_one_part_with_the_session_as_it_is_named() -> None:
    """Several lists have a session each."""
    one = Mqtt(URL, topics="t/#", session="s1")
    several = Mqtt(URL, topics=[["a/#"], ["b/#", "c"]], session="s1")
    assert (one.topics, one.parts(), one.session_of(0)) == ((("t/#",),), 1, "s1")
    assert [several.session_of(part) for part in range(several.parts())] == ["s1-0", "s1-1"]


def test_a_graph_with_the_address_in_a_variable_can_be_written_down() -> None:
    """One with the address in it cannot."""
    graph = graph_of(Mqtt(env="PLANT_BROKER", topics=[["a/#"], ["b"]], session="s1", key=1))
    again = Graph.from_dict(json.loads(json.dumps(graph.to_dict())))
    assert again.feeds["mqtt"].source == graph.feeds["mqtt"].source
    with pytest.raises(GraphError, match=r"its address would be in the text"):
        graph_of(Mqtt(URL, topics="t", session="s1")).to_dict()


@pytest.mark.parametrize(("value", "why"), [(None, "is not set"), ("http://x", "is not of the form mqtt://")])
def test_a_variable_without_an_address_is_named(value: str | None, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the start."""
    if value is not None:
        monkeypatch.setenv("PLANT_BROKER", value)
    with pytest.raises(ConfigError, match=why):
        Mqtt(env="PLANT_BROKER", topics="t", session="s1").open()


def test_a_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only where a client is made."""
    for name in [one for one in sys.modules if one.startswith(("paho", "cues_kafka.bridges.mqtt.client"))]:
        monkeypatch.delitem(sys.modules, name)
    for name in [one for one in sys.modules if one.startswith("cues_kafka.bridges.mqtt.source")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "paho", None)
    with pytest.raises(ConfigError, match=r"pip install 'cues-kafka\[mqtt\]'"):
        Mqtt(URL, topics="t", session="s1").open()


def test_files_for_tls_that_cannot_be_read_are_named() -> None:
    """At the start."""
    with pytest.raises(ConfigError, match=r"/nowhere/ca\.pem cannot be read for TLS"):
        Mqtt("mqtts://host", topics="t", session="s1", ca="/nowhere/ca.pem").open()


def test_plan_says_the_level_and_its_condition() -> None:
    """At least once where nothing names redeliveries."""
    [edge] = [one for one in edges_of(graph_of(Mqtt(URL, topics="t", session="s1"))) if "Mqtt" in one.where]
    assert edge.level == "exactly once (while the broker keeps the session)"
    [edge] = [
        one for one in edges_of(graph_of(Mqtt(URL, topics="t", session="s1", packet_ids=False))) if "Mqtt" in one.where
    ]
    assert edge.level == "at least once"
    assert "cues-id" in edge.remedy

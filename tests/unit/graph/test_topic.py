"""Settings of topics: what transient and compacted mean to Kafka, and how a topic's own settings lie over defaults."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from cues_kafka import Graph, GraphError, Message, Processor, Source, Table, Topic
from cues_kafka.testing.tester import Tester

DAY_MS = 24 * 60 * 60 * 1000
WEEK = {"cleanup.policy": "delete", "retention.ms": str(7 * DAY_MS), "segment.ms": str(7 * DAY_MS // 10)}


@pytest.mark.parametrize(
    ("topic", "config"),
    [
        (Topic(), {}),
        (Topic(transient=False, compacted=False), {}),
        (Topic(transient="7 days"), WEEK),
        (Topic(transient=timedelta(weeks=1)), WEEK),
        (Topic(transient=True), {**WEEK, "retention.ms": str(10 * DAY_MS), "segment.ms": str(DAY_MS)}),
        (Topic(compacted=True), {"cleanup.policy": "compact"}),
        (Topic(compacted=True, transient="7 days"), {**WEEK, "cleanup.policy": "compact,delete"}),
        (Topic(transient="7 days", config={"segment.ms": "60000"}), {**WEEK, "segment.ms": "60000"}),
        (Topic(transient="7 days", config={"segment.bytes": 1}), {**WEEK, "segment.bytes": "1"}),  # type: ignore[dict-item]
        (Topic(transient="7 days", config=WEEK), WEEK),
        (Topic(compacted=True, config={"cleanup.policy": "compact, delete"}), {"cleanup.policy": "compact, delete"}),
    ],
)
def test_transient_and_compacted_are_settings_of_kafka(topic: Topic, config: dict[str, str]) -> None:
    """A transient topic lies in ten files, as Cues' ten daily ones; written out they are the same settings."""
    assert topic.config == config
    assert topic.compacted == ("compact" in config.get("cleanup.policy", ""))
    assert Topic(**topic.settings()).settings() == topic.settings()
    assert Graph.from_dict(Graph("g", Source("a"), defaults=topic).to_dict()).defaults == topic


@pytest.mark.parametrize(
    ("own", "defaults", "config"),
    [
        (Topic(transient="7 days"), Topic(config={"retention.ms": "5", "x": "y"}), {**WEEK, "x": "y"}),
        (Topic(config={"retention.ms": "5"}), Topic(transient="7 days"), {"retention.ms": "5"}),
        (Topic(config={"segment.ms": "5"}), Topic(transient="7 days"), {**WEEK, "segment.ms": "5"}),
        (Topic(transient=False), Topic(transient="7 days"), {}),
        (Topic(compacted=True), Topic(transient="7 days"), {**WEEK, "cleanup.policy": "compact,delete"}),
        (Topic(compacted=False), Topic(compacted=True), {}),
        (Topic(compacted=False), Topic(config={"cleanup.policy": "compact"}), {}),
        (Topic(config={"cleanup.policy": "delete"}), Topic(compacted=True), {"cleanup.policy": "delete"}),
        (Topic(partitions=2), Topic(transient="7 days"), WEEK),
    ],
)
def test_what_a_topic_says_of_itself_wins(own: Topic, defaults: Topic, config: dict[str, str]) -> None:
    """By our names or by Kafka's."""
    merged = own.over(defaults)

    assert merged.config == config
    assert (merged.transient is not None) == (config.get("retention.ms") == str(7 * DAY_MS))


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"transient": "soon"}, "transient='soon'.*\"7 days\", or a timedelta, or True"),
        ({"transient": 7}, "transient=7"),
        ({"transient": "5 seconds"}, 'every five minutes.*"1 hour"'),
        ({"compacted": "yes"}, "compacted='yes': takes True or False"),
        ({"transient": True, "config": {"retention.ms": "5"}}, "contradicts itself. Drop 'retention.ms'"),
        ({"transient": True, "config": {"cleanup.policy": "compact"}}, "Drop 'cleanup.policy'"),
        ({"compacted": True, "config": {"cleanup.policy": "delete"}}, "compacted=True.*Drop 'cleanup.policy'"),
        ({"compacted": False, "config": {"cleanup.policy": "compact"}}, "compacted=False"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(settings: dict[str, Any], says: str) -> None:
    """With the one to drop."""
    with pytest.raises(GraphError, match=says):
        Topic(**settings)


def test_equal_times_are_equal_topics() -> None:
    """However they are written."""
    assert Topic(transient="7 days") == Topic(transient="1 week") == Topic(transient=timedelta(days=7))
    assert Topic(transient=True) == Topic(transient="10 days")


def test_a_merged_graph_keeps_transient_topics() -> None:
    """Also where they are so by the defaults of a later graph."""
    second = Graph("b", Source("b"), Source("c"), defaults=Topic(transient=True), topics={"c": Topic(compacted=True)})
    merged = Graph("a", Source("a")).merge(second)

    assert (merged.topic("a").transient, merged.topic("b").transient) == (None, "864000.0 seconds")
    assert merged.topic("c").config["cleanup.policy"] == "compact,delete"


def test_a_compacted_topic_is_a_table() -> None:
    """It is created so, and its newest message of each key is looked up."""

    def name(order: str, customers: Any) -> str:
        return str(customers[order]["name"])

    graph = Graph(
        "g", Source("customers"), Source("orders"),
        Processor(name, inputs="orders", tables={"customers": Table("customers")}, outputs="out"),
        topics={"customers": Topic(compacted=True)},
    )  # fmt: skip
    tester = Tester(graph)
    for who in ("Ann", "Bea"):
        tester.send("customers", Message({"name": who}, key="c"))
    tester.send("orders", "c")
    tester.run()

    assert tester.values("out") == ["Bea"]
    facts = tester.broker.facts(["customers"])
    assert facts.topics["customers"].config["cleanup.policy"] == "compact"


def test_a_topic_takes_back_the_default_key() -> None:
    """Its values may have no such field."""
    graph = Graph("g", Source("a"), Source("b"), defaults=Topic(key="id"), topics={"a": Topic(key=None)})

    assert (graph.topic("a").key, graph.topic("b").key) == (None, "id")

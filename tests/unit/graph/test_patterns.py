"""Sources that stand for the topics of a pattern: which topics, which processors, and what is refused."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from cues_kafka import ConfigError, DataFrameProcessor, Feed, Graph, GraphError, Iterate, Json, Processor, Source, Topic
from cues_kafka.graph.declare import Table
from cues_kafka.graph.names import MAX_NAME_CHARS
from cues_kafka.graph.patterns import copies, copy_name, expanded, new_copies
from cues_kafka.plan.acls import acls_of
from cues_kafka.plan.plan import plan

READINGS = Source("readings", pattern="sensors[.].+")
THERE = ["sensors.rome", "sensors.oslo", "sensors", "my.sensors.x", "other", "__sensors.x", "sensors.g.backing"]


def seen(reading: dict[str, Any]) -> Any:
    """One input."""
    raise NotImplementedError


def either(**one: Any) -> Any:
    """One of several inputs."""
    raise NotImplementedError


def looked(reading: dict[str, Any], t: Any) -> Any:
    """With a table."""
    raise NotImplementedError


def template(*parts: Any, **settings: Any) -> Graph:
    """A graph with the pattern."""
    return Graph("g", READINGS, *(parts or (Processor(seen, inputs="readings", outputs="out"),)), **settings)


def test_a_processor_is_there_once_for_each_topic_that_matches() -> None:
    """The whole name must match; topics of the brokers and of the framework never do."""
    resolved = template(Processor(seen, inputs={"reading": "readings"}, outputs="out")).resolve(THERE)

    assert {name: one.inputs for name, one in resolved.processors.items()} == {
        "seen_sensors_oslo": (("reading", "sensors.oslo"),),
        "seen_sensors_rome": (("reading", "sensors.rome"),),
    }
    assert [*resolved.sources] == ["sensors.oslo", "sensors.rome"]
    assert not resolved.patterns


def test_what_is_declared_of_a_pattern_holds_for_each_topic() -> None:
    """Settings and level; a topic with settings of its own keeps them, and a Source of its own stays."""
    own = Topic(key="own")
    topics = {"readings": Topic(value=Json(), key="id"), "sensors.rome": own, "sensors.oslo": own}
    graph = Graph(
        "g",
        Source("readings", pattern="sensors[.].+", level="exactly-once"),
        Source("sensors.oslo"),
        Source("sensors.rome"),
        Processor(seen, inputs="readings", start=datetime(2026, 1, 1, tzinfo=UTC)),
        topics=topics,
    )
    resolved = graph.resolve(["sensors.rome", "sensors.oslo", "sensors.bari"])

    assert {name: one.level for name, one in resolved.sources.items()} == {
        "sensors.bari": "exactly-once",
        "sensors.oslo": "at-least-once",
        "sensors.rome": "at-least-once",
    }
    keys = {topic: resolved.topic(topic).key for topic in resolved.sources}
    assert keys == {"sensors.bari": "id", "sensors.oslo": "own", "sensors.rome": "own"}
    assert {one.start for one in resolved.processors.values()} == {datetime(2026, 1, 1, tzinfo=UTC)}


def test_a_graph_without_a_pattern_is_its_own_resolution() -> None:
    """Whatever topics there are."""
    graph = Graph("g", Source("a"), Processor(seen, inputs="a"))

    assert graph.resolve(["b"]) is graph


def test_a_pattern_is_written_down_and_read_back() -> None:
    """With the times between two looks."""
    graph = template()

    assert Graph.from_dict(graph.to_dict()) == graph
    assert graph.to_dict()["parts"][0] == {"source": "readings", "pattern": "sensors[.].+"}


def test_names_of_copies_are_short_and_differ() -> None:
    """A digest of the topic ends what would be too long; it depends on nothing else."""
    long = [f"sensors.{'x' * 200}.{number}" for number in range(3)]
    names = [copy_name("seen", topic) for topic in long]

    assert len({*names}) == 3
    assert all(len(name) <= MAX_NAME_CHARS for name in names)
    assert len(template().resolve(long).processors) == 3


def test_a_template_stands_for_its_copies_where_names_are_given() -> None:
    """As in --only and --except."""
    graph = template(Processor(seen, inputs="readings"), Processor(seen, name="other", inputs="a"))

    assert expanded(graph, THERE, ["other", "seen"]) == ["other", "seen_sensors_oslo", "seen_sensors_rome"]
    assert copies(graph, THERE)["seen_sensors_rome"] == ("seen", "sensors.rome")


@pytest.mark.parametrize(
    ("left", "new"),
    [
        ([], ["seen_sensors_oslo", "seen_sensors_rome"]),
        (["seen_sensors_bari"], ["seen_sensors_oslo", "seen_sensors_rome"]),
        (["look_sensors_rome"], ["seen_sensors_oslo"]),
    ],
)
def test_a_copy_is_new_unless_its_template_may_have_been_renamed(left: list[str], new: list[str]) -> None:
    """A deleted topic leaves a place that is no former name of another one's."""
    assert new_copies(template(), THERE, left) == new


@pytest.mark.parametrize(
    ("parts", "settings", "words"),
    [
        ([DataFrameProcessor(seen, inputs="readings", outputs="out")], {}, "place of a processor of DataFrames names"),
        ([Processor(either, alts={"a": "readings", "b": "x"})], {}, "the one input"),
        ([Processor(looked, inputs="x", tables={"t": Table("readings")})], {}, "the one input"),
        ([Processor(seen, inputs="readings", start="latest")], {}, "before it is found would be lost"),
        ([Processor(seen, inputs="readings", start={0: 7})], {}, "names offsets of one topic"),
        ([Feed(Iterate(list), into="readings")], {}, "writes to 'readings', which stands for"),
        ([Processor(seen, inputs="x", outputs="readings")], {}, "writes to 'readings', which stands for"),
        ([Processor(seen, inputs="readings")], {"cuts": "1 day"}, "a topic that appears later has none"),
    ],
)
def test_what_a_pattern_cannot_be_is_refused(parts: list[Any], settings: dict[str, Any], words: str) -> None:
    """Where the graph is declared, with the reason."""
    with pytest.raises(GraphError, match=words):
        template(*parts, **settings)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"pattern": "("}, "not a regular expression"),
        ({"pattern": 7}, "not a regular expression"),
        ({"pattern": "a", "default": True}, "default=True, but messages are sent to a topic"),
        ({"pattern": "a", "look_seconds": 0}, "takes a number of seconds above 0"),
        ({"pattern": "a", "look_seconds": True}, "takes a number of seconds above 0"),
    ],
)
def test_a_source_with_a_wrong_pattern_is_refused(given: dict[str, Any], words: str) -> None:
    """With the name of the source."""
    with pytest.raises(GraphError, match=rf"Source\('readings'.*{words}"):
        Source("readings", **given)


def test_a_pattern_that_matches_what_the_graph_writes_is_refused() -> None:
    """The graph would read its own outputs."""
    graph = template(Processor(seen, inputs="readings", outputs="sensors.out"))

    with pytest.raises(GraphError, match=r"matches 'sensors\.out', which the graph writes"):
        graph.resolve(["sensors.rome", "sensors.out"])


def test_a_graph_that_would_be_empty_is_refused() -> None:
    """One that has something else to do begins without the topics of its pattern."""
    with pytest.raises(GraphError, match=r"no topic matches 'sensors\[\.\]\.\+'"):
        template().resolve(["other"])
    assert not template(Processor(seen, inputs="readings"), Source("a")).resolve(["other"]).processors


def test_a_template_is_not_planned() -> None:
    """Without the cluster its topics are not known."""
    for ask in (plan, acls_of):
        with pytest.raises(ConfigError, match=r"reads 1 pattern \('readings'\), and only the cluster knows"):
            ask(template())
    assert not plan(template().resolve(THERE)).expected

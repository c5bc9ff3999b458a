"""A renamed processor does not begin again in silence, and a new one is asked for once."""

from __future__ import annotations

import pytest

from cues_kafka import Graph, Processor, Source, Topic
from cues_kafka.brokers.memory import MemoryBroker
from cues_kafka.errors import ConfigError, TopicsMissing
from cues_kafka.plan.inspectors import Terms
from cues_kafka.task.making.names import inspect_names
from cues_kafka.task.making.prepare import prepare
from cues_kafka.testing.tester import Tester


def graph_of(*names: str) -> Graph:
    """Sinks side by side."""
    parts = [Processor(lambda value: None, name=name, inputs="meals") for name in names]
    return Graph("meal", Source("meals"), *parts, defaults=Topic(partitions=2))


def ran(*names: str) -> MemoryBroker:
    """A cluster where these processors have their places."""
    broker = MemoryBroker()
    Tester(graph_of(*names), broker=broker).run().stop()
    return broker


def refused(broker: MemoryBroker, *names: str, new: tuple[str, ...] = ()) -> list[str]:
    """What a start of these processors is told."""
    graph = graph_of(*names)
    return list(inspect_names(graph, broker, Terms(names, new)).refusals)


def test_a_processor_without_a_place_beside_a_place_without_its_processor_is_refused() -> None:
    """The text names the topic that is left, and both ways out."""
    [text] = refused(ran("eat", "wash"), "devour", "wash")

    assert "'devour' has no place" in text
    assert "'meal.eat.backing' holds the place of 'eat'" in text
    assert "give it its old name back" in text
    assert "--new devour" in text


def test_a_name_that_is_said_to_be_new_may_start_and_is_then_known() -> None:
    """The old topic may stay: once the new processor has a record, nothing is asked about it."""
    broker = ran("eat")
    assert refused(broker, "devour", new=("devour",)) == []
    assert len(refused(broker, "devour", "taste", new=("devour",))) == 1

    Tester(graph_of("devour"), broker=broker).run().stop()

    assert refused(broker, "devour") == []
    assert ["'taste' has no place" in text for text in refused(broker, "devour", "taste")] == [True]


def test_topics_alone_are_no_place() -> None:
    """`plan --apply` makes them before anything has run: neither the old nor the new one holds a record then."""
    broker = MemoryBroker()
    prepare(graph_of("eat"), broker)
    assert refused(broker, "devour") == []

    broker = ran("eat")
    prepare(graph_of("devour"), broker)
    assert len(refused(broker, "devour")) == 1


def test_a_processor_that_is_added_or_taken_out_is_no_renamed_one() -> None:
    """Nothing is missing beside what is new, or nothing is new beside what is missing."""
    assert refused(ran("eat"), "eat", "wash") == []
    assert refused(ran("eat", "wash"), "eat") == []


def test_a_start_is_refused_with_all_of_it_before_anything_is_created() -> None:
    """As with any refusal of the plan; without names nothing is compared."""
    broker = ran("eat")
    before = broker.partitions()

    with pytest.raises(ConfigError, match="--new devour"):
        prepare(graph_of("devour"), broker, terms=Terms(["devour"]))
    with pytest.raises(
        ConfigError, match=r"--new: graph 'meal' has no processor 'devours'; its processors are 'devour'"
    ):
        prepare(graph_of("devour"), broker, terms=Terms(["devour"], new=["devours"]))

    assert broker.partitions() == before
    prepare(graph_of("devour"), broker, terms=Terms(["devour"], new=["devour"]))
    assert "meal.devour.backing" in broker.partitions()


def test_a_start_that_must_not_create_topics_names_what_is_missing() -> None:
    """And creates nothing; where nothing is missing it starts."""
    broker = MemoryBroker()

    with pytest.raises(TopicsMissing, match=r"'meals', 'meal\.eat\.backing'"):
        prepare(graph_of("eat"), broker, terms=Terms(create_topics=False))

    assert broker.partitions() == {}
    prepare(graph_of("eat"), broker)
    prepare(graph_of("eat"), broker, terms=Terms(create_topics=False))

"""The seam of inspectors: a plan asks another system as it asks the cluster, by one more row of a list."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from cues_kafka import ConfigError, Graph, Memory, Processor, Source, start
from cues_kafka.brokers.memory import MemoryBroker
from cues_kafka.plan.inspectors import Findings, Terms
from cues_kafka.ports.broker import Broker
from cues_kafka.task.making import prepare
from cues_kafka.task.making.prepare import plan_start


class FakeRegistry(NamedTuple):
    """A registry that knows a schema, or keeps one that does not fit, for each of these topics."""

    known: frozenset[str] = frozenset()
    unfit: frozenset[str] = frozenset()

    def __call__(self, graph: Graph, broker: Broker, terms: Terms) -> Findings:
        """The inspector: the same graph and terms that the cluster's inspector gets."""
        del broker
        topics = set(graph.topics_used())
        return Findings(
            refusals=[f"The schema of {topic!r} does not fit its newest version." for topic in topics & self.unfit],
            warnings=[f"Nothing protects {topic!r} from other schemas." for topic in topics & self.known],
            changes=[f"{topic}-value: register its schema" for topic in topics - self.known - self.unfit]
            if terms.cluster
            else (),
        )


GRAPH = Graph("g", Source("in"), Processor(lambda value: value, name="copy", inputs="in", outputs="out"))


def test_a_plan_has_what_another_inspector_finds_beside_what_the_cluster_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refusals, warnings and changes, in the text and in the data; the cluster's topics are planned as before."""
    monkeypatch.setattr(prepare, "INSPECTORS", [*prepare.INSPECTORS, FakeRegistry(frozenset({"in"}))])

    planned = plan_start(GRAPH, MemoryBroker(brokers=3), Terms(["copy"], cluster=Memory()))

    assert [topic.name for topic in planned.create] == ["in", "out", "g.copy.backing"]
    assert planned.warnings == ("Nothing protects 'in' from other schemas.",)
    assert planned.to_dict()["changes"] == ["out-value: register its schema"]
    assert "\n  ~ out-value: register its schema" in planned.text()


def test_a_start_is_refused_by_another_inspector_before_anything_is_created(monkeypatch: pytest.MonkeyPatch) -> None:
    """As by the cluster's own."""
    monkeypatch.setattr(prepare, "INSPECTORS", [*prepare.INSPECTORS, FakeRegistry(unfit=frozenset({"out"}))])
    memory = Memory()

    with pytest.raises(ConfigError, match="The schema of 'out' does not fit its newest version"):
        start(GRAPH, memory)

    assert memory.held[0].partitions() == {}

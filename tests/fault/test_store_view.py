"""A table outlives its broker: it keeps what it has, and follows again when the broker is back."""

from __future__ import annotations

import pytest

from cues_kafka import Graph, Json, Kafka, Processor, Source, State, Store, connect, start
from cues_kafka.testing.fixtures import FaultClusters
from tests.fault.support import IMPATIENT

pytestmark = pytest.mark.fault


def count(word: str, counts: State[int]) -> None:
    """Count words."""
    counts[word] = counts.get(word, 0) + 1


@pytest.mark.full
def test_a_table_goes_on_when_its_broker_is_back(kafka_fault_cluster: FaultClusters) -> None:
    """With nothing lost and nothing twice."""
    broker = kafka_fault_cluster()
    cluster = Kafka(broker.bootstrap, **IMPATIENT)
    graph = Graph("g", Source("words"), Processor(count, inputs="words", state={"counts": Store(Json(int))}))
    with start(graph, cluster) as running, connect(cluster, graph) as client:
        view = client.table("count", "counts")
        view.wait_for(client.send("words", "a"))
        [node] = broker.nodes
        node.kill()
        assert view.copy() == {"a": 1}
        node.start()
        sent = client.send("words", "a")
        view.wait_for(sent, timeout_s=60)
        assert view.copy() == {"a": 2}
        assert running.query("count", "counts", "a", partition=sent.partition, after=sent).value == 2

"""The example of sensors: its graph raises the alarms that one pass over the readings raises."""

from __future__ import annotations

from cues_kafka.testing.tester import Tester
from examples.sensors.graph import Reading, graph
from examples.sensors.plant import alarms, readings


def test_graph_raises_the_alarms_of_one_pass() -> None:
    """Of all sensors; the demo compares the same while processes are killed."""
    given = readings(500, seed=1)
    tester = Tester(graph, only=["watch"])
    for reading in given:
        tester.send("readings", Reading(**reading))
    found = tester.run().values("alarms")
    key = lambda one: (one["sensor"], one["number"])  # noqa: E731
    assert sorted(found, key=key) == sorted(alarms(given), key=key)
    assert len(found) > 10

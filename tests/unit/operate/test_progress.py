"""`Progress` of graphs that changed since their tasks ran."""

from __future__ import annotations

from typing import Any

from cues_kafka import Graph, Processor, Source
from cues_kafka.ports.facts import NewTopic
from cues_kafka.ports.log import Outgoing, TopicPartition
from cues_kafka.testing.tester import Tester
from examples.flights.progress import Progress


def same(value: Any) -> Any:
    """Nothing changes."""
    return value


def test_input_that_no_record_knows_waits_from_its_beginning() -> None:
    """The task stops when it starts, and says why; what looks at it from outside must not fail."""
    tester = Tester(Graph("g", Source("a"), Processor(same, name="p", inputs="a", outputs="c")))
    tester.send("a", 1)
    tester.run()
    tester.broker.create([NewTopic("b", 1)])
    tester.broker.sender("raw").send([Outgoing("b", 0, None, b"1")])
    changed = Graph("g", Source("b"), Processor(same, name="p", inputs="b", outputs="c"))

    with Progress(changed, tester.broker) as progress:
        while not progress.newest:
            progress.poll(0.2)
        assert progress.behind() == [TopicPartition("b", 0)]

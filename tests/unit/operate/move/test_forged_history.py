"""Forged histories of tasks in a backing topic: tools go on with the newest one that can be read."""

from __future__ import annotations

import pytest

from cues_kafka import Graph, Json, Memory, Processor, Source, Topic, start
from cues_kafka.brokers.open import open_broker
from cues_kafka.core.records import Totals
from cues_kafka.graph.names import backing_topic
from cues_kafka.observe.refused import REFUSED
from cues_kafka.operate.look.former_names import arrivals
from cues_kafka.operate.move.base import Maintenance
from cues_kafka.operate.move.reset import reset
from cues_kafka.ports.log import Position, TopicPartition
from cues_kafka.records.history import HISTORY, TRIED, History, Moved, encode_history, read_history
from cues_kafka.task.clock import SystemClock
from tests.unit.records.strangers_bytes import RAW

PLACE = Position("in", "in", b"i" * 16, 2)
RENAMED = History((PLACE,), (Moved(1, (PLACE,), (PLACE,), (PLACE,), Totals(), "old"),))
FORGED = [
    *RAW,
    encode_history(RENAMED).replace(b'"version":1', b'"version":99'),
    encode_history(RENAMED).replace(b'"old"', b'"\\ud800"'),
    encode_history(RENAMED).replace(b'"whole":true', b'"whole":1'),
    encode_history(RENAMED).replace(b'"sequence":1', b'"sequence":-1'),
    encode_history(RENAMED).replace(PLACE.topic_id.hex().encode(), b"00"),
]


def graph_of() -> Graph:
    """One processor with an errors topic."""
    part = Processor(lambda order: order, inputs="in", outputs="out", name="p")
    return Graph("g", Source("in"), part, errors="g.errors", defaults=Topic(value=Json(), partitions=1))


def written(cluster: Memory, *values: bytes | None) -> None:
    """Write to the task's backing partition under the key of its history."""
    sender = open_broker(cluster).sender("stranger")
    sender.send([(backing_topic("g", "p"), 0, HISTORY, value, None, 0) for value in values])
    sender.close()


def found(cluster: Memory) -> History:
    """The history that tools read."""
    broker, place = open_broker(cluster), TopicPartition(backing_topic("g", "p"), 0)
    marks = broker.watermarks([place])[place]
    return read_history(broker, place, marks.low, marks.stable, SystemClock(), group="g")


@pytest.fixture
def cluster() -> Memory:
    """A cluster on which the task has delivered a message."""
    cluster = Memory()
    with start(graph_of(), cluster) as running:
        running.send("in", {"n": 1})
        running.wait_idle(timeout_s=20.0)
    return cluster


@pytest.mark.parametrize("value", FORGED, ids=range(len(FORGED)))
def test_newest_history_that_can_be_read_counts(cluster: Memory, value: bytes | None) -> None:
    """It says that it lacks moves; the forged one is counted."""
    written(cluster, encode_history(RENAMED), value)
    REFUSED.forget()
    REFUSED.forget()  # another test of this process may have met a record at the same place
    before = REFUSED.total

    history = found(cluster)

    assert (history.names, history.whole, REFUSED.total) == (("old",), False, before + 1)
    assert arrivals(graph_of(), open_broker(cluster), SystemClock()) == {"old": "p"}


def test_tool_moves_a_task_beside_forged_histories_alone(cluster: Memory) -> None:
    """The next history says that it lacks moves, whatever stood there."""
    written(cluster, *[b"xx"] * (TRIED + 5))
    tool = Maintenance(graph_of(), open_broker(cluster), "p", who="reset")
    tool.carry_out(reset(tool, to="earliest"))

    history = found(cluster)

    assert (len(history.moves), history.whole) == (1, False)

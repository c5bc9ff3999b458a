"""Batches that the client refuses to read: the stop, the way past them, and what each look at the graph says."""

from __future__ import annotations

from typing import Any

import pytest

from cues_kafka import Graph, Json, Memory, Processor, Source, TaskStopped, Topic, start
from cues_kafka.brokers.memory import MemoryBroker
from cues_kafka.brokers.open import open_broker
from cues_kafka.operate.look.doctor import examine
from cues_kafka.operate.look.status import status
from cues_kafka.operate.move.accept_loss import accept_loss
from cues_kafka.operate.move.base import Maintenance
from cues_kafka.ports.log import TopicPartition
from cues_kafka.records.unreadable import refused_at
from cues_kafka.verify.scan import verify

PLACE = TopicPartition("orders", 0)


def same(order: Any) -> Any:
    """Nothing changes."""
    return order


GRAPH = Graph(
    "g",
    Source("orders"),
    Processor(same, inputs="orders", outputs="checked", name="check"),
    defaults=Topic(value=Json(), partitions=1),
)


def world(*refused: tuple[int, int], size: int = 10) -> tuple[Memory, MemoryBroker]:
    """Orders 0 to 9, some of which no client can unpack; the first was delivered before."""
    options = Memory()
    with start(GRAPH, options) as running:
        running.send("orders", 0)
        running.wait_idle(timeout_s=20)
    broker = open_broker(options)
    assert isinstance(broker, MemoryBroker)
    sender = broker.sender("other")
    end = broker.watermarks([PLACE])[PLACE].high
    sender.send([("orders", 0, None, str(n).encode(), None, 0) for n in range(end, size)], timeout_s=5)
    for first, behind in refused:
        broker.damage(PLACE, first, behind)
    return options, broker


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_end_of_a_refused_batch_is_found_from_each_of_its_offsets(size: int) -> None:
    """Also where another refused batch follows."""
    _, broker = world((3, 3 + size), (3 + size, 9))
    for offset in range(3, 3 + size):
        found = refused_at(broker, PLACE, offset, 10, group="g.check")
        assert found is not None
        assert (found.start, found.end) == (offset, 3 + size)
    assert refused_at(broker, PLACE, 1, 10, group="g.check") is None
    assert refused_at(broker, PLACE, 10, 10, group="g.check") is None


def test_task_delivers_what_comes_before_a_refused_batch_and_names_a_way_past_it() -> None:
    """The stop names topic, partition and offset; `accept-loss` passes both batches; `verify` counts them."""
    options, broker = world((4, 6), (6, 7))
    with start(GRAPH, options) as running, pytest.raises(TaskStopped) as stopped:  # noqa: PT012
        try:
            running.wait_idle(timeout_s=20)
        finally:
            running.abandon()
    text = str(stopped.value)
    assert "orders/0 at offset 4" in text
    assert "receive.message.max.bytes" in text
    assert "`cues-kafka accept-loss MODULE:GRAPH check`" in text
    assert "deleted topic" not in text
    assert [int(m.value() or b"") for m in broker.messages("checked")][-1] == 3

    seen = status(options, GRAPH)
    assert not seen.unreachable
    assert not [one for one in examine(GRAPH, broker, watch_s=0) if "Not checked" in one.what]

    tool = Maintenance(GRAPH, broker, "check", who="accept-loss")
    [move] = accept_loss(tool)
    assert [p.offset for p in move.positions] == [7]
    assert any("offsets [4, 6) of orders/0 cannot be read" in note for note in move.notes)
    tool.carry_out([move])
    assert accept_loss(tool) == []

    with start(GRAPH, options) as running:
        running.wait_idle(timeout_s=20)
    report = verify(GRAPH, broker)
    assert report.ok, list(report.lines)
    assert report["check"].accepted == 3
    assert any("accepted: the task continued after offsets [4, 6) of orders/0" in line for line in report.lines)


def test_what_a_stronger_client_delivered_of_a_refused_batch_is_not_unfounded() -> None:
    """The batch was read once; now the client refuses it."""
    options, broker = world(size=6)
    with start(GRAPH, options) as running:
        running.wait_idle(timeout_s=20)
    broker.damage(PLACE, 3, 5)
    report = verify(GRAPH, broker)
    assert report.ok, list(report.lines)
    assert report["check"].accepted == 0


def test_outcomes_in_a_refused_batch_of_an_output_are_not_called_lost() -> None:
    """They cannot be seen, which the report says."""
    options, broker = world(size=6)
    with start(GRAPH, options) as running:
        running.wait_idle(timeout_s=20)
    broker.damage(TopicPartition("checked", 0), 0, 1)
    report = verify(GRAPH, broker)
    assert report.verdict == "not verifiable"
    assert any("checked/0 cannot be read" in line for line in report.lines)

"""`verify --state`: finds each planted defect of a store, and says which stores it cannot make again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from cues_kafka import Graph, Json, Memory, Message, Processor, Source, State, Store, Topic, start
from cues_kafka.brokers.memory import MemoryBroker
from cues_kafka.brokers.open import open_broker
from cues_kafka.state.layers import ENTRY, MARK
from cues_kafka.verify.report import Report
from cues_kafka.verify.scan import verify


def total(payment: dict[str, Any], sums: State[int]) -> int:
    name = payment["name"]
    sums[name] = sums.get(name, 0) + payment["cents"]
    if sums[name] < 0:
        raise ValueError("the account is empty")
    return sums[name]


def graph_of(fn: Any = total, store: Store | None = None, **options: Any) -> Graph:
    return Graph(
        "bank",
        Source("payments"),
        Processor(
            fn,
            **{"inputs": "payments", "outputs": "sums", "name": "total", **options},
            state={"sums": store or Store(Json(int))},
        ),
        errors="errors",
        defaults=Topic(value=Json(), partitions=1),
    )


def payments(*pairs: tuple[str, int]) -> list[Message]:
    return [Message({"name": name, "cents": cents}, key=name) for name, cents in pairs]


PAYMENTS = payments(("ann", 5), ("bob", 7), ("ann", -9), ("ann", 2), ("bob", 1))


def ran(graph: Graph, *batches: Sequence[Message]) -> MemoryBroker:
    memory = Memory()
    with start(graph, memory) as running:
        for batch in batches:
            running.send_many("payments", batch)
            running.wait_idle()
    broker = open_broker(memory)
    assert isinstance(broker, MemoryBroker)
    return broker


def plant(broker: MemoryBroker, *entries: tuple[bytes, bytes | None], partition: int = 0) -> None:
    session = broker.session("vandal")
    session.init(timeout_s=5)
    session.begin()
    session.produce([("bank.total.sums.changelog", partition, key, value, None, 0) for key, value in entries])
    session.flush()
    session.commit()
    session.close()


def look(broker: MemoryBroker, graph: Graph | None = None, **options: Any) -> Report:
    return verify(graph or graph_of(), broker, state=True, **options)


@pytest.fixture
def broker() -> MemoryBroker:
    return ran(graph_of(), PAYMENTS[:2], PAYMENTS[2:])


def test_a_store_that_is_what_its_messages_make_is_ok(broker: MemoryBroker) -> None:
    report = look(broker)
    assert list(report.lines) == []
    assert (report.verdict, report["total"].entries, report["total"].diverging) == ("ok", 2, 0)


def test_a_doubled_update_is_found_with_its_key_and_both_values(broker: MemoryBroker) -> None:
    plant(broker, (ENTRY + b"ann", b"9"), (MARK, b"5"))
    report = look(broker)
    assert report.verdict == "WRONG"
    assert report["total"].diverging == 1
    lines = "\n".join(report.lines)
    assert "store 'sums': 'ann' is 9, and its messages make it 7" in lines
    assert "says step 5, behind the mark of step 5" in lines

"""Processors that are ready to use: the first message of each id, and messages with other keys."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from cues_kafka import Avro, Dedupe, Graph, GraphError, Header, Json, Message, Raw, Source, Topic, rekey
from cues_kafka.graph.ready import By
from cues_kafka.testing.tester import Tester


@dataclass(frozen=True)
class Order:
    """What is sent."""

    id: str
    customer: str = "ann"

    @property
    def both(self) -> str:
        """No field, but found like one."""
        return f"{self.customer}/{self.id}"


AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "string"}, {"name": "customer", "type": "string"}],
}


def number(order: Order) -> int:
    """An id that is not text."""
    return int(order.id)


def one(part: Any, value: Any = None) -> Tester:
    """One processor from `in` to `out`."""
    topics = {name: Topic(value=value or Json(Order), partitions=1 if name == "in" else 3) for name in ("in", "out")}
    return Tester(Graph("g", Source("in"), part, topics=topics, errors="bad"))


def dedupe(within: str | timedelta | int, by: By = "id", **settings: Any) -> Tester:
    """`Dedupe` in a graph."""
    return one(Dedupe("once", inputs="in", outputs="out", by=by, within=within, **settings))


@pytest.mark.parametrize("by", ["id", number, Header("order")])
def test_the_first_message_of_each_id_goes_on(by: By) -> None:
    """With its key and headers; also after a restart."""
    tester = dedupe("1 hour", by)
    for name in ("1", "2", "1"):
        tester.send("in", Message(Order(name), key=f"k{name}", headers={"order": name, "trace": "t"}))
    tester.run().restart()
    for name in ("2", "3"):
        tester.send("in", Message(Order(name), key=f"k{name}", headers={"order": name}))
    tester.run()

    out = sorted(tester.messages("out"), key=lambda one: str(one.key))
    assert [(one.value.id, one.key) for one in out] == [("1", "k1"), ("2", "k2"), ("3", "k3")]
    assert dict(out[0].headers)["trace"] == b"t"


def test_an_id_is_known_as_long_as_the_bound_says(caplog: pytest.LogCaptureFixture) -> None:
    """By the time of messages. A message that is older than the bound goes on, and is told."""
    tester, noon = dedupe("10 minutes"), datetime(2026, 1, 1, 12, tzinfo=UTC)
    with caplog.at_level(logging.WARNING):
        for minutes in (0, 9, 10, 11, 1):
            at = int((noon + timedelta(minutes=minutes)).timestamp() * 1000)
            tester.send("in", Message(Order("x", f"{minutes}"), timestamp_ms=at))
            tester.run().restart()
    assert sorted(order.customer for order in tester.values("out")) == ["0", "1", "10"]
    [told] = [one for one in caplog.records if "older than the bound" in one.getMessage()]
    assert "in/0 at 4" in told.getMessage()


def test_messages_beyond_the_bound_are_counted_and_do_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """A replay of a long log has many of them."""
    tester, now = dedupe("1 minute"), 1_767_268_800_000
    tester.send("in", Message(Order("new"), timestamp_ms=now))
    for number in range(100):
        tester.send("in", Message(Order(f"{number}"), timestamp_ms=now - 3_600_000))
    with caplog.at_level(logging.WARNING):
        tester.run()
    assert len(tester.values("out")) == 101
    told = [one.getMessage() for one in caplog.records if "older than the bound" in one.getMessage()]
    assert len(told) == 7
    assert "messages=64" in told[-1]
    [status] = tester._workers[0].status()
    assert status.late == 100
    assert "101 delivered, 0 errors, 0 nil, 100 late" in str(status)
    assert tester.restart().run()._workers[0].status()[0].late == 0


def test_an_id_is_known_for_a_number_of_messages() -> None:
    """Those of the task, whatever became of them."""
    tester = dedupe(3)
    for name in ("a", "b", "a", "c", "a", "b"):
        tester.send("in", Order(name))
        tester.run().restart()
    assert sorted(order.id for order in tester.values("out")) == ["a", "a", "b", "b", "c"]
    assert len(tester.state("seen")) <= 3


def test_a_message_without_an_id_is_an_error() -> None:
    """It says what is missing."""
    tester = one(Dedupe("once", inputs="in", outputs="out", by="number", within=10), Json())
    tester.send("in", {"id": "a"})
    tester.run()
    assert [error.text for error in tester.errors()] == ["the value has no field 'number'"]

    tester = dedupe(10, Header("id"))
    tester.send("in", Order("a"))
    tester.run()
    assert [error.text for error in tester.errors()] == ["the message has no header 'id'"]


IDS = ["1", 1, b"1", UUID(int=1), "x" * 100, "x" * 101]


def nth(index: Any) -> Any:
    """An id of each type, and a list."""
    return [*IDS, [1]][index]


def test_ids_of_different_types_are_different() -> None:
    """Also long ones; a list is none."""
    tester = one(Dedupe("once", inputs="in", outputs="out", by=nth, within="1 day"), Json())
    for index in (*range(len(IDS)), *range(len(IDS) + 1)):
        tester.send("in", index)
    tester.run()
    assert sorted(tester.values("out")) == [*range(len(IDS))]
    assert ["list" in error.text for error in tester.errors()] == [True]


def test_a_message_gets_another_key() -> None:
    """Messages with the same key meet in one partition."""
    tester = one(rekey("by-customer", inputs="in", outputs="out", by="customer"))
    for name, customer in (("1", "ann"), ("2", "bob"), ("3", "ann")):
        tester.send("in", Message(Order(name, customer), key=name))
    tester.run()
    out = tester.messages("out")
    assert sorted((one.key, one.value.id) for one in out) == [("ann", "1"), ("ann", "3"), ("bob", "2")]
    assert len({one.partition for one in out if one.key == "ann"}) == 1


def test_what_is_declared_is_written_down() -> None:
    """And read back; what does not fit is refused with the remedy."""
    for part in (
        Dedupe("once", inputs="in", outputs="out", by=number, within="7 days", max_bytes=10**6),
        rekey("by-customer", inputs="in", outputs="out", by="customer"),
    ):
        graph = Graph("g", Source("in"), part, defaults=Topic(value=Json()))
        assert Graph.from_dict(graph.to_dict()) == graph
    with pytest.raises(GraphError, match='Header\\("name"\\)'):
        rekey("by-customer", inputs="in", outputs="out", by=3)  # type: ignore[arg-type]
    with pytest.raises(GraphError, match='such as "7 days"'):
        Dedupe("once", inputs="in", outputs="out", by="id", within="7 moons")
    with pytest.raises(GraphError, match="number of messages"):
        Dedupe("once", inputs="in", outputs="out", by="id", within=0)


@pytest.mark.parametrize(
    ("value", "by", "told"),
    [
        (
            Json(Order),
            "idd",
            r"by='idd': Order, the value of 'in', does not have this field \(did you mean 'id'\?\). .*'customer'",
        ),
        (
            Avro(AVRO),
            "idd",
            r"by='idd': Order, the value of 'in', does not have this field \(did you mean 'id'\?\). .*'customer'",
        ),
        (Raw(), "id", r"the values of 'in' are bytes, which have no fields. Write Header\(\"name\"\), or a function"),
    ],
)
def test_a_field_that_there_is_not_is_refused_when_the_graph_is_declared(value: Any, by: str, told: str) -> None:
    """Else each message would become an error message."""
    for part in (
        Dedupe("once", inputs="in", outputs="out", by=by, within="7 days"),
        rekey("by", inputs="in", outputs="out", by=by),
    ):
        with pytest.raises(GraphError, match=told):
            one(part, value)


@pytest.mark.parametrize(
    ("value", "by"),
    [(Json(), "idd"), (Json(Order), "both"), (Avro(AVRO), "id"), (Raw(), Header("id")), (Json(Order), number)],
)
def test_what_may_be_there_is_not_refused(value: Any, by: By) -> None:
    """The declaration does not tell the fields, or it is a property."""
    one(Dedupe("once", inputs="in", outputs="out", by=by, within="7 days"), value)


@pytest.mark.parametrize("within", ["soon", "10 min", timedelta(0)])
def test_a_bound_that_is_none_is_refused_by_the_name_that_was_written(within: str | timedelta) -> None:
    with pytest.raises(GraphError, match=r"^once: within=.*takes a number of seconds, .* or a number of messages"):
        Dedupe("once", inputs="in", outputs="out", by="id", within=within)

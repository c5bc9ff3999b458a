"""Functions look up tables: those of their own partition, or whole ones; tables never cause a call."""

from __future__ import annotations

from typing import Any

import pytest

from cues_kafka import (
    Avro,
    BrokerError,
    ConfigError,
    GlobalTable,
    Graph,
    GraphError,
    Json,
    Message,
    Processor,
    Source,
    Table,
    TableView,
    TaskStopped,
    Topic,
)
from cues_kafka.brokers.memory import MemoryBroker
from cues_kafka.brokers.memory.clients import MemoryReader
from cues_kafka.plan.plan import plan
from cues_kafka.ports.facts import NewTopic
from cues_kafka.ports.log import Fetched
from cues_kafka.state.tables import TableSpec
from cues_kafka.task.following import Tables
from cues_kafka.testing.tester import Crash, Tester

CODECS = {"orders": Topic(value=Json(), partitions=3), "customers": Topic(value=Json(), partitions=3)}


def priced(order: str, customers: TableView[str]) -> str:
    """The order with its customer."""
    return f"{order} of {customers.get(order[-1], 'unknown')}"


def graph_of(table: Table, **topics: Topic) -> Graph:
    """One processor with a table."""
    return Graph(
        "g",
        Source("orders"),
        Source("customers"),
        Processor(priced, inputs={"order": "orders", "customers": table}, outputs="out"),
        defaults=Topic(value=Json()),
        topics={**CODECS, **topics},
    )


@pytest.mark.parametrize("table", [Table("customers"), GlobalTable("customers")])
def test_the_order_comes_with_its_customer(table: Table) -> None:
    """As of now: a change of a table causes no call, and is seen by the next one, also after a restart."""
    tester = Tester(graph_of(table))
    for name in ("ann", "bob"):
        tester.send("customers", Message(name.title(), key=name[0]))
    tester.run()
    assert tester.values("out") == []
    for order in ("1a", "2b", "3c"):
        tester.send("orders", Message(order, key=order[-1]))
    tester.run()
    assert sorted(tester.values("out")) == ["1a of Ann", "2b of Bob", "3c of unknown"]

    tester.send("customers", Message("Anna", key="a"))
    tester.send("customers", Message(None, key="b"))
    for order in ("4a", "5b"):
        tester.send("orders", Message(order, key=order[-1]))
    tester.restart().run(crash=Crash("before", "Commit"))
    tester.restart().run()
    assert sorted(tester.values("out"))[3:] == ["4a of Anna", "5b of unknown"]


def test_a_whole_table_has_any_number_of_partitions() -> None:
    """Each task sees all of it, so keys need not meet."""
    graph = graph_of(GlobalTable("customers"), orders=Topic(value=Json(), partitions=1))
    tester = Tester(graph)
    for name in "abcdefgh":
        tester.send("customers", Message(name.upper(), key=name))
    tester.send("orders", "1h")
    tester.run()
    assert tester.values("out") == ["1h of H"]


def test_a_table_that_is_not_partitioned_as_the_input_is_refused() -> None:
    """With what would help."""
    graph = graph_of(Table("customers"), customers=Topic(value=Json(), partitions=2))
    [refusal] = plan(graph).refusals
    assert "'customers' (customers), which has 2 partitions, and its input 'orders' has 3" in refusal
    assert "GlobalTable('customers')" in refusal
    assert "rekey" in refusal
    with pytest.raises(ConfigError, match="GlobalTable"):
        Tester(graph)


def keys(order: str, customers: TableView[Any]) -> Any:
    """All that a mapping can do."""
    assert len(customers) == 2
    assert 9 not in customers
    assert customers[7] == {"name": "ann"}
    return sorted(customers)


def test_a_tables_keys_have_the_topics_codec() -> None:
    """Also where they are listed."""
    topics = {"customers": Topic(value=Json(), key_codec=Avro("long")), "orders": Topic(value=Json())}
    processor = Processor(keys, inputs="orders", tables={"customers": Table("customers")}, outputs="out")
    parts = (Source("orders"), Source("customers"), processor)
    tester = Tester(Graph("g", *parts, defaults=Topic(value=Json()), topics=topics, errors="bad"))
    for number, name in ((7, "ann"), (8, "bob")):
        tester.send("customers", Message({"name": name}, key=number))
    tester.send("orders", "1")
    tester.run()
    assert (tester.errors(), tester.values("out")) == ([], [[7, 8]])


def test_a_table_that_needs_too_much_memory_stops_its_task() -> None:
    """It is said, and nothing is dropped."""
    tester = Tester(graph_of(Table("customers", max_bytes=100)))
    tester.send("customers", Message("Ann", key="a"))
    tester.send("orders", Message("1a", key="a"))
    with pytest.raises(TaskStopped, match="max_bytes=100"):
        tester.run()
    assert tester.values("out") == []


class SlowReader(MemoryReader):
    """Brings one message at a time."""

    def poll(self, timeout_s: float, max_messages: int = 10_000) -> list[Fetched]:
        """See `ports.clients.Reader`."""
        return super().poll(timeout_s, min(max_messages, 1))


class Slow(MemoryBroker):
    """A broker with such readers."""

    reader_type = SlowReader


def test_a_table_is_read_to_its_end_before_the_first_call() -> None:
    """However long that takes."""
    topics = {name: Topic(value=Json(), partitions=1) for name in CODECS}
    graph = graph_of(Table("customers"), **topics)
    before = Tester(graph, broker=Slow(), only=[])
    for number in range(300):
        before.send("customers", Message(f"Customer {number}", key=f"{number % 30}"))
    before.send("customers", Message("Zoe", key="z"))
    before.send("orders", "1z")
    tester = Tester(graph, broker=before.broker)
    tester.run()
    assert tester.values("out") == ["1z of Zoe"]


@pytest.mark.parametrize("whole", [True, False])
def test_a_task_that_comes_back_reads_its_tables_to_their_end(*, whole: bool) -> None:
    """Its process still has a whole table, as far as it was read: calls saw an older one than those before them."""
    topics = {name: Topic(value=Json(), partitions=1) for name in CODECS}
    tester = Tester(graph_of(Table("customers"), **topics))
    tester.send("customers", Message("Ann", key="a"))
    spec = TableSpec("customers", "customers", 1, whole, bytes.decode, None, str.encode, bytes.decode, 10**6)
    tables = Tables([spec])

    def bring_up() -> None:
        tables.bring_up(0, tester.broker, tester.clock, group="g.priced", task="g.priced/0", given_up=lambda: False)

    bring_up()
    view = tables.values(0)["customers"]
    assert dict(view) == {"a": '"Ann"'}
    tables.leave(0)
    tester.send("customers", Message("Anna", key="a"))
    bring_up()
    assert dict(view) == {"a": '"Anna"'}
    tester.send("customers", Message("Annabel", key="a"))
    bring_up()
    assert dict(view) == {"a": '"Annabel"'}
    tables.close()


class BreakingReader(MemoryReader):
    """Readers of tables fail once, when they are told to."""

    def poll(self, timeout_s: float, max_messages: int = 10_000) -> list[Fetched]:
        """See `ports.clients.Reader`."""
        if isinstance(self._cluster, Breaking) and self._cluster.broken and self._reads_tables():
            self._cluster.broken -= 1
            raise BrokerError("it broke", code="_ALL_BROKERS_DOWN")
        return super().poll(timeout_s, max_messages)

    def _reads_tables(self) -> bool:
        return {place.topic for place in self._cursors} == {"customers"}


class Breaking(MemoryBroker):
    """A broker with such readers."""

    broken = 0
    reader_type = BreakingReader


@pytest.mark.parametrize("table", [Table("customers"), GlobalTable("customers")])
def test_a_table_that_cannot_be_read_on_is_read_again_by_all_tasks(table: Table) -> None:
    """Whichever of them met the failure, none goes on with what it saw before."""
    broker = Breaking()
    tester = Tester(graph_of(table), broker=broker)
    for name in "abcd":
        tester.send("orders", Message(f"1{name}", key=name))
    tester.run()
    broker.broken = 1
    for name in "abcd":
        tester.send("customers", Message(name.upper(), key=name))
    for name in "abcd":
        tester.send("orders", Message(f"2{name}", key=name))
    tester.run()

    assert broker.broken == 0
    assert sorted(tester.values("out"))[4:] == ["2a of A", "2b of B", "2c of C", "2d of D"]
    assert tester.errors() == []


def test_tables_are_written_down_and_read_back() -> None:
    """Bound to other topics, too; what does not fit is refused."""
    for table in (Table("customers"), GlobalTable("customers", max_bytes=10**6)):
        graph = graph_of(table)
        assert Graph.from_dict(graph.to_dict()) == graph
        bound = graph.bind({"customers": "people"})
        assert [*bound.processors["priced"].tables.values()] == [type(table)("people", table.max_bytes)]
        assert "people" in bound.topics_used()
    with pytest.raises(GraphError, match=r"Write tables=.'customers': Table"):
        Processor(priced, inputs="orders", outputs="out", tables={"customers": "customers"})  # type: ignore[dict-item]
    with pytest.raises(GraphError, match="under two bindings"):
        Processor(priced, inputs={"order": "orders", "customers": Table("orders")}, outputs="out")
    with pytest.raises(GraphError, match="max_bytes= takes a number of bytes"):
        Table("customers", max_bytes=0)


def test_a_plan_names_the_tables() -> None:
    """As text and as data; workers may read them."""
    planned = plan(graph_of(GlobalTable("customers")))
    assert "table customers" in planned.text(topics=True)
    assert planned.to_dict()["processors"][0]["tables"] == {"customers": "customers"}
    assert ("worker", "customers", "Read") in {(one.role, one.name, one.operation) for one in planned.acls}


@pytest.mark.parametrize("table", [Table("customers"), GlobalTable("customers")])
def test_table_that_was_recreated_beside_a_worker_is_read_again(table: Table) -> None:
    """R6: what it held is gone, and the first entries of the new topic are below the place of the reader."""
    tester = Tester(graph_of(table))
    for name in ("ann", "bob"):
        tester.send("customers", Message(name.title(), key=name[0]))
    tester.send("orders", Message("1a", key="a"))
    [worker] = tester.run()._workers
    tester.broker.delete(["customers"])
    tester.broker.create([NewTopic("customers", 3)])
    for name in ("cleo", "dora", "emma", "fay"):
        tester.send("customers", Message(name.title(), key=name[0]))
    worker._questions.compare_topic_ids()
    for order in ("2a", "3c", "4d", "5e", "6f"):
        tester.send("orders", Message(order, key=order[-1]))
    tester.run()
    behind = ["2a of unknown", "3c of Cleo", "4d of Dora", "5e of Emma", "6f of Fay"]
    assert sorted(tester.values("out")) == ["1a of Ann", *behind]

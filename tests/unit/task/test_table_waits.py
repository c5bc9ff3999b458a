"""`Table(wait=)`: a call sees what was committed in its tables before its messages were fetched."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from cues_kafka import (
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
from cues_kafka.errors import RetriableError
from cues_kafka.ports.log import Fetched, TopicPartition
from cues_kafka.state.tables import TableSpec
from cues_kafka.task.following import Tables
from cues_kafka.testing.tester import Tester


def named(order: str, customers: TableView[str]) -> str:
    """The order with its customer."""
    return f"{order} of {customers.get(order[-1], 'unknown')}"


def graph_of(table: Table) -> Graph:
    """One processor with a table, of one partition."""
    return Graph(
        "g",
        Source("orders"),
        Source("customers"),
        Processor(named, inputs={"order": "orders", "customers": table}, outputs="out"),
        defaults=Topic(value=Json(), partitions=1),
    )


class LaggingReader(MemoryReader):
    """A reader of the table finds nothing for a while, and does not tell at once that only markers were left."""

    prompt = False
    busy = 0

    def poll(self, timeout_s: float, max_messages: int = 10_000) -> list[Fetched]:
        """See `ports.clients.Reader`."""
        broker = self._cluster
        assert isinstance(broker, Lagging)
        if self.busy > 0:
            self.busy -= 1
            return []
        topics = {place.topic for place in self._cursors}
        broker.seen += [("read", topic) for topic in topics]
        if topics == {"customers"} and broker.lag > 0:
            broker.lag -= 1
            return []
        found = super().poll(timeout_s, max_messages if self.prompt else min(max_messages, broker.most))
        if self.prompt or broker.eager:
            return found
        return [one._replace(eof=None) for one in found if one.messages]


class Lagging(MemoryBroker):
    """A broker whose readers of `customers` come behind, as a fetch that is under way does."""

    reader_type = LaggingReader

    def __init__(self) -> None:
        super().__init__()
        self.monitor.waits = False
        self.lag = self.silent = self.beyond = self.connects = 0
        self.opened: list[str] = []
        self.eager, self.most = True, 10_000
        self.seen: list[tuple[str, str]] = []

    def reader(self, name: str, *, prompt: bool = False) -> LaggingReader:
        """See `ports.broker.Broker`."""
        made = LaggingReader(self)
        made.prompt = prompt
        self.opened += [name] if prompt else []
        made.busy = self.connects if prompt else 0
        return made

    def stable_ends(
        self, partitions: Collection[TopicPartition], *, timeout_s: float = 2.0
    ) -> dict[TopicPartition, int]:
        """See `ports.broker.Broker`."""
        self.seen += [("ask", one.topic) for one in partitions]
        if self.silent > 0:
            self.silent -= 1
            raise RetriableError("no answer")
        ends = super().stable_ends(partitions, timeout_s=timeout_s)
        return {place: end + self.beyond for place, end in ends.items()}


def world_of(table: Table) -> tuple[Tester, Lagging]:
    """A task that has started, and has read its empty table."""
    broker = Lagging()
    tester = Tester(graph_of(table), broker=broker)
    tester.send("orders", Message("0x", key="x"))
    tester.run()
    broker.seen.clear()
    return tester, broker


def race(tester: Tester, broker: Lagging, lag: int) -> str:
    """A customer, acknowledged; then its order. The table's reader brings the customer that many polls later."""
    tester.send("customers", Message("Ann", key="a"))
    tester.send("orders", Message("1a", key="a"))
    broker.lag = lag
    tester.run()
    return str(tester.values("out")[-1])


@pytest.mark.parametrize("lag", [1, 2, 7])
@pytest.mark.parametrize("kind", [Table, GlobalTable])
def test_call_waits_for_a_customer_that_was_acknowledged_before_its_order(kind: type[Table], lag: int) -> None:
    """Without `wait=` the same race shows no customer."""
    assert race(*world_of(kind("customers")), lag) == "1a of unknown"
    assert race(*world_of(kind("customers", wait="10 seconds")), lag) == "1a of Ann"


def test_end_is_asked_for_after_the_order_was_fetched_and_once_for_a_chunk() -> None:
    """A table without `wait=` asks for nothing."""
    tester, broker = world_of(Table("customers", wait="10 seconds"))
    for number in range(3):
        tester.send("orders", Message(f"{number}a", key="a"))
    tester.run()
    asked = [at for at, one in enumerate(broker.seen) if one == ("ask", "customers")]
    assert broker.seen.index(("read", "orders")) < asked[0]
    assert len(asked) <= 3

    tester, broker = world_of(Table("customers"))
    race(tester, broker, 0)
    assert ("ask", "customers") not in broker.seen


def test_end_behind_markers_is_found_by_a_second_reader() -> None:
    """Transactions leave markers, which no reader gives; the reader of the table passes them half a second later."""
    tester, broker = world_of(Table("customers", wait="10 seconds", then="call"))
    session = broker.session("other")
    session.init(timeout_s=1.0)
    session.begin()
    session.produce([("customers", 0, b"b", b'"Bob"', (), 0)])
    session.flush()
    session.commit()
    broker.eager = False
    tester.send("orders", Message("1b", key="b"))
    tester.run()
    assert tester.values("out")[-1] == "1b of Bob"
    [task] = tester._workers[0].status()
    assert task.missed == 0


def test_second_reader_that_takes_long_to_connect_is_opened_once() -> None:
    """A new one for each look never came as far as to read."""
    tester, broker = world_of(Table("customers", wait="10 seconds"))
    session = broker.session("other")
    session.init(timeout_s=1.0)
    broker.eager, broker.connects = False, 3
    broker.opened.clear()
    for name in ("Bob", "Ann", "Eve"):
        session.begin()
        session.produce([("customers", 0, b"b", f'"{name}"'.encode(), (), 0)])
        session.flush()
        session.commit()
        tester.send("orders", Message("1b", key="b"))
        tester.run()
        assert tester.values("out")[-1] == f"1b of {name}"
    assert broker.opened.count("g.named") == 1


def test_what_the_second_reader_took_is_not_taken_again() -> None:
    """The reader of the table brings it later, one after another: a call would see an older customer again."""
    tester, broker = world_of(Table("customers"))
    spec = TableSpec("customers", "customers", 1, False, bytes.decode, None, str.encode, bytes.decode, 10**6)
    tables, place = Tables([spec]), TopicPartition("customers", 0)
    tables.bring_up(0, broker, tester.clock, group="g.named", task="named/0", given_up=lambda: False)
    for name in ("Ann", "Anna"):
        tester.send("customers", Message(name, key="a"))
    broker.lag, broker.most = 1, 1
    tables.read_up_to({place: 2}, 0.01)
    for _ in range(3):
        assert dict(tables.values(0)["customers"]) == {"a": '"Anna"'}
        tables.read_up_to({place: 2}, 0.01)
    tables.close()


def test_task_stops_if_its_table_is_not_read_in_time() -> None:
    """With the table, how far it is, and what to do. It goes on by itself."""
    tester, broker = world_of(Table("customers", wait="0.1 seconds"))
    broker.beyond = 1
    with pytest.raises(
        TaskStopped, match=r"'customers' was not read up to its end within wait=0\.1 s: customers/0 is"
    ) as told:
        race(tester, broker, 0)
    assert "customers/0 is read up to 1 of 2" in str(told.value)
    assert "raise the table's wait=" in str(told.value)
    assert tester.values("out") == ["0x of unknown"]
    broker.beyond = 0
    tester.restart().run()
    assert tester.values("out")[1:] == ["1a of Ann"]


def test_call_goes_on_without_if_it_is_declared_to(caplog: pytest.LogCaptureFixture) -> None:
    """It is logged, and counted."""
    tester, broker = world_of(Table("customers", wait="0.1 seconds", then="call"))
    assert race(tester, broker, 10**9) == "1a of unknown"
    assert [one.message for one in caplog.records if "called before its table was read" in one.message]
    [task] = tester._workers[0].status()
    assert task.missed == 1
    assert "1 times a table was not read in time" in str(task)


def test_question_without_an_answer_is_asked_again() -> None:
    """Within the same limit."""
    tester, broker = world_of(Table("customers", wait="10 seconds"))
    broker.silent = 2
    assert race(tester, broker, 1) == "1a of Ann"
    broker.silent = 10**9
    tester.send("orders", Message("2a", key="a"))
    with pytest.raises(TaskStopped, match="no answer"):
        tester.run()


def test_wait_is_checked_and_written_down() -> None:
    """Equal durations are equal tables."""
    for table in (Table("customers", wait="1 minute", then="call"), GlobalTable("customers", wait="60 seconds")):
        graph = graph_of(table)
        assert Graph.from_dict(graph.to_dict()) == graph
    assert Table("t", wait="1 minute") == Table("t", wait="60 seconds")
    assert "wait" not in graph_of(Table("customers")).to_dict()["parts"][-1]["tables"]["customers"]
    with pytest.raises(GraphError, match="takes a number of seconds"):
        Table("customers", wait=10)  # type: ignore[arg-type]
    with pytest.raises(GraphError, match="then= is 'stop' or 'call'"):
        Table("customers", wait="1 minute", then="go")  # type: ignore[arg-type]


def test_then_without_wait_is_refused() -> None:
    """It would do nothing."""
    with pytest.raises(GraphError, match="needs wait="):
        Table("customers", then="call")

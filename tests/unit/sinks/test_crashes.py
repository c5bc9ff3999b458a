"""E1: rows of a database and messages of Kafka, compared through crashes at every effect; SQLite needs no server."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from cues_kafka import (
    CommitPolicy,
    Graph,
    Json,
    Message,
    Out,
    Processor,
    RetriableError,
    Source,
    Sql,
    Store,
    TaskStopped,
    Timers,
    Topic,
)
from cues_kafka.brokers.memory import Faults, MemoryBroker
from cues_kafka.core.records import Attempt
from cues_kafka.ports.facts import NewTopic
from cues_kafka.ports.target import HeldAttempt, TransactionalSink
from cues_kafka.sinks.lookup import open_target
from cues_kafka.sinks.sql import SqlTarget
from cues_kafka.sinks.tables import make_tables
from cues_kafka.testing.tester import Crash, Tester, VirtualClock

EFFECTS = ("AskTarget", "Begin", "Call", "Commit", "CommitTarget", "Flush", "Init", "Produce", "SendOffsets")
MESSAGES = 30


def book(order: dict[str, Any], db: Any) -> dict[str, Any] | None:
    """A row for each order, a message for each even one; every tenth is refused after its row is written."""
    db.execute("INSERT INTO rows (id, text) VALUES (?, ?)", (order["id"], order["text"]))
    if order["id"] % 10 == 3:
        raise ValueError("three")
    return {"booked": order["id"]} if order["id"] % 2 == 0 else None


def book_keyed(order: dict[str, Any], db: Any) -> Message[int]:
    """A row and a message with the key of the order."""
    db.execute("INSERT INTO rows (id, text) VALUES (?, ?)", (order["id"], order["text"]))
    return Message(order["id"], key=str(order["id"]))


def book_many(orders: list[dict[str, Any]], db: Any) -> list[dict[str, Any] | None]:
    """The same for a list."""
    db.executemany("INSERT INTO rows (id, text) VALUES (?, ?)", [(one["id"], one["text"]) for one in orders])
    if any(one["id"] % 10 == 3 for one in orders):
        raise ValueError("three")
    return [{"booked": one["id"]} if one["id"] % 2 == 0 else None for one in orders]


def book_and_count(order: dict[str, Any], db: Any, counts: Any) -> dict[str, Any] | None:
    """The same, with a store beside the database."""
    key = str(order["id"] % 5)  # that of the message
    counts[key] = counts.get(key, 0) + 1
    return book(order, db)


def fork(order: dict[str, Any], db: Any) -> Any:
    """A generator, which writes to the database between its messages."""
    yield Out("all", order)
    found = book(order, db)
    if found:
        yield Out("booked", found)


def graph_of(path: Path, kind: str) -> Graph:
    """One processor with a database."""
    settings: Mapping[str, Mapping[str, Any]] = {
        "plain": {"fn": book, "outputs": "booked"},
        "batch": {"fn": book_many, "outputs": "booked", "batch": True},
        "store": {"fn": book_and_count, "outputs": "booked", "state": {"counts": Store(Json(int))}},
        "keyed": {"fn": book_keyed, "outputs": "booked"},
        "fork": {"fn": fork, "outputs": {"all": "all", "booked": "booked"}},
    }
    own = dict(settings[kind])
    processor = Processor(own.pop("fn"), name="book", inputs="orders", effects={"db": Sql(f"sqlite:///{path}")}, **own)
    return Graph("g", Source("orders"), processor, errors="errors", defaults=Topic(partitions=2))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A database with an empty table of the user's."""
    found = tmp_path / "shop.db"
    with sqlite3.connect(found) as made:
        made.execute("CREATE TABLE rows (id INTEGER PRIMARY KEY, text TEXT)")
    return found


def rows(path: Path) -> list[int]:
    """The ids in the user's table."""
    with sqlite3.connect(path) as opened:
        return [row[0] for row in opened.execute("SELECT id FROM rows ORDER BY id")]


def run(graph: Graph, crash: Crash | None, messages: int = MESSAGES) -> Tester:
    """Send, run to the crash, and run to the end in a new process."""
    tester = Tester(graph, policy=CommitPolicy(max_messages=7))
    for i in range(messages):
        tester.send("orders", {"id": i, "text": f"order {i}"}, key=str(i % 5))
    tester.run(crash=crash)
    return tester.run() if crash is None else tester.restart().run()


def check(tester: Tester, path: Path, messages: int = MESSAGES) -> None:
    """Each order has one outcome: a row and its messages, or an error and nothing else."""
    refused = [i for i in range(messages) if i % 10 == 3]
    kept = [i for i in range(messages) if i % 10 != 3]
    assert rows(path) == kept
    assert sorted(one["booked"] for one in tester.values("booked")) == [i for i in kept if i % 2 == 0]
    assert len(tester.errors()) == len(refused)
    assert tester.totals("book").deliveries == messages
    for partition in range(2):
        records = tester.records("book", partition)
        for before, after in pairwise(records):  # I13
            assert after.sequence == before.sequence + 1
            assert after.step == before.step + (after.batch.taken if isinstance(after, Attempt) else 0)


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("effect", EFFECTS)
@pytest.mark.parametrize("kind", ["plain", "batch", "store", "fork"])
def test_crash_at_any_effect_leaves_one_outcome_of_each_message(
    kind: str, effect: str, moment: str, path: Path
) -> None:
    """Rows, messages and errors are those of a run without a crash."""
    for nth in (1, 2, 4):
        tester = run(graph_of(path, kind), Crash(moment, effect, nth))
        check(tester, path)
        if kind == "fork":
            assert len(tester.values("all")) == MESSAGES - MESSAGES // 10
        if kind == "store":
            assert sum(tester.state("counts").values()) == MESSAGES - MESSAGES // 10
        with sqlite3.connect(path) as made:
            for table in ("rows", "cues_task", "cues_outbox"):
                made.execute(f"DELETE FROM {table}")
        tester.stop()


def test_every_crash_point_is_reached(path: Path) -> None:
    """Else the test above would pass for nothing."""
    for effect in EFFECTS:
        with sqlite3.connect(path) as made:
            made.execute("DELETE FROM rows")
        tester = Tester(graph_of(path, "plain"), policy=CommitPolicy(max_messages=7))
        for i in range(MESSAGES):
            tester.send("orders", {"id": i, "text": ""}, key=str(i % 5))
        tester.run(crash=Crash("before", effect, 2))
        assert tester.crashed, effect
        with sqlite3.connect(path) as made:
            for table in ("rows", "cues_task", "cues_outbox"):
                made.execute(f"DELETE FROM {table}")


def test_provenance_of_a_published_attempt_names_the_attempt_that_publishes_it(path: Path) -> None:
    """The sequence is that of the record which commits the messages, or `verify` would call them torn."""
    tester = run(graph_of(path, "plain"), Crash("after", "CommitTarget", 2))

    attempts = {
        (f"g.book/{p}", one.sequence) for p in range(2) for one in tester.records("book", p) if isinstance(one, Attempt)
    }
    headers = [dict(one.headers)["cues"] or b"" for topic in ("booked", "errors") for one in tester.messages(topic)]
    named = {(task.decode(), int(sequence)) for _, task, sequence, *_ in (header.split(b" ") for header in headers)}
    assert named <= attempts


@pytest.mark.parametrize("batch", [False, True])
def test_generator_that_a_failed_step_left_open_writes_nothing_behind_it(batch: bool, path: Path) -> None:
    """Its `finally` ran when the exception was forgotten, after the step was taken back, and its row stayed."""

    def looks(number: int, db: Any, counts: Any) -> Any:
        try:
            yield number
        finally:
            db.execute("INSERT INTO rows (id, text) VALUES (?, '')", (number,))
            counts[str(number)] = 1

    def one(order: Any, db: Any, counts: Any) -> int:
        looked = looks(order["id"], db, counts)
        found = next(looked)
        if found % 2:
            raise ValueError("odd")
        return int(found)

    def many(orders: Any, db: Any, counts: Any) -> list[int]:
        return [one(order, db, counts) for order in orders]

    processor = Processor(
        many if batch else one, name="book", inputs="orders", outputs="booked", batch=batch,
        state={"counts": Store(Json(int))}, effects={"db": Sql(f"sqlite:///{path}")},
    )  # fmt: skip
    tester = Tester(Graph("g", Source("orders"), processor, errors="errors"))
    for i in range(4):
        tester.send("orders", {"id": i}, key=str(i))
    tester.run()

    assert (rows(path), tester.state("counts")) == ([0, 2], {"0": 1, "2": 1})
    assert (tester.values("booked"), len(tester.errors())) == ([0, 2], 2)


def test_timer_whose_step_the_database_refuses_gives_its_error_alone(path: Path) -> None:
    """A constraint that waits for the commit speaks when its outputs are in the batch already."""
    with sqlite3.connect(path) as made:
        made.execute("CREATE TABLE lines (id INTEGER REFERENCES rows DEFERRABLE INITIALLY DEFERRED)")
    seen: list[Any] = []

    def on_message(order: dict[str, Any], step: Any, db: Any) -> None:
        seen.append(db)
        step.schedule("later", at=order["id"])

    def on_timer(timer: Any) -> str:
        seen[-1].execute("INSERT INTO lines (id) VALUES (99)")
        return str(timer.key)

    processor = Processor(
        on_message, name="book", inputs="orders", outputs="booked", state={"timers": Timers(on_timer)},
        effects={"db": Sql(f"sqlite:///{path}")},
    )  # fmt: skip
    tester = Tester(Graph("g", Source("orders"), processor, errors="errors"))
    tester.send("orders", Message({"id": 5}, timestamp_ms=5))
    tester.run()

    assert (tester.values("booked"), len(tester.errors())) == ([], 1)
    assert tester.totals("book").nils == 1


def _later(order: dict[str, Any], step: Any, db: Any) -> None:
    db.execute("INSERT INTO rows (id, text) VALUES (?, 'asked')", (order["id"],))
    step.schedule(str(order["id"]), at=100 + 10 * order["id"])


def _fired(timer: Any) -> dict[str, Any]:
    return {"booked": int(timer.key)}


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("effect", ["Call", "CommitTarget", "Produce", "Commit"])
def test_crash_fires_each_timer_once_beside_a_database(effect: str, moment: str, path: Path) -> None:
    """Timers that a step sets, and those that fire, are in the outbox of an attempt that is published later."""
    processor = Processor(
        _later, name="book", inputs="orders", outputs="booked", state={"timers": Timers(_fired)},
        effects={"db": Sql(f"sqlite:///{path}")},
    )  # fmt: skip
    graph = Graph("g", Source("orders"), processor, errors="errors", defaults=Topic(partitions=1))
    for nth in (1, 2, 3):
        tester = Tester(graph, policy=CommitPolicy(max_messages=3))
        for i in range(8):
            tester.send("orders", Message({"id": i}, timestamp_ms=30 * i))
        tester.run(crash=Crash(moment, effect, nth))
        assert tester.crashed
        tester.restart().run()

        assert [one["booked"] for one in tester.values("booked")] == list(range(8))
        assert rows(path) == list(range(8))
        assert not tester.errors()
        tester.stop()
        with sqlite3.connect(path) as made:
            for table in ("rows", "cues_task", "cues_outbox"):
                made.execute(f"DELETE FROM {table}")


@pytest.mark.parametrize(
    "crash", [None, *(Crash(m, e) for m in ("before", "after") for e in ("CommitTarget", "Commit"))]
)
def test_an_exception_in_the_result_of_a_list_takes_back_the_rows_of_its_message_alone(
    crash: Crash | None, path: Path
) -> None:
    """The others of the list keep theirs; a list that is called one by one afterwards writes no row twice."""

    def many(orders: list[dict[str, Any]], db: Any) -> list[Any]:
        db.executemany("INSERT INTO rows (id, text) VALUES (?, '')", [(one["id"],) for one in orders])
        return [
            ValueError("three") if one["id"] % 10 == 3 else {"booked": one["id"]} if one["id"] % 2 == 0 else None
            for one in orders
        ]

    processor = Processor(
        many, name="book", inputs="orders", outputs="booked", batch=True, effects={"db": Sql(f"sqlite:///{path}")}
    )
    tester = run(Graph("g", Source("orders"), processor, errors="errors", defaults=Topic(partitions=2)), crash)

    check(tester, path)


def test_batch_that_a_recovery_overtakes_is_committed_as_it_was_begun(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The recovery has no record yet when the batch names its step; the thread that calls the function died of it."""
    recovering, committed = threading.Event(), threading.Event()

    class Held(Faults):
        """Holds the first recovery behind a failed read before its first answer."""

        def before(self, operation: str, client: str) -> None:
            """Wait."""
            if threading.current_thread().name == "reads" and operation == "init":
                recovering.set()
                committed.wait(10)

    def late(order: dict[str, Any], db: Any) -> dict[str, Any] | None:
        if not recovering.is_set():
            reader.start()
            assert recovering.wait(10)
        return book(order, db)

    def commit(self: SqlTarget, *args: Any) -> None:
        commits(self, *args)
        committed.set()

    commits = SqlTarget.commit
    monkeypatch.setattr(SqlTarget, "commit", commit)
    processor = Processor(
        late, name="book", inputs="orders", outputs="booked", effects={"db": Sql(f"sqlite:///{path}")}
    )  # fmt: skip
    graph = Graph("g", Source("orders"), processor, errors="errors")
    tester = Tester(graph, broker=MemoryBroker(clock=VirtualClock(), faults=Held()))
    reader = threading.Thread(
        target=lambda: tester._workers[0]._fetching.broken(RetriableError("fetch failed")), name="reads"
    )
    for i in range(5):
        tester.send("orders", {"id": i, "text": ""})
    tester.run()
    reader.join(10)

    assert rows(path) == [0, 1, 2, 4]
    assert [one["booked"] for one in tester.values("booked")] == [0, 2, 4]
    assert len(tester.errors()) == 1


def test_outcome_whose_topic_or_partition_is_gone_is_named_and_published_once_it_is_there(path: Path) -> None:
    """The remedy is that of the cause; the function is not called again, and no row and no message is doubled."""
    called: list[int] = []

    def sort(order: int, db: Any) -> Message[int]:
        called.append(order)
        db.execute("INSERT INTO rows (id, text) VALUES (?, '')", (order,))
        return Message(order, partition=2)

    processor = Processor(sort, inputs="orders", outputs="sorted", effects={"db": Sql(f"sqlite:///{path}")})
    widths = {"orders": Topic(partitions=1), "sorted": Topic(partitions=3)}
    tester = Tester(Graph("g", Source("orders"), processor, topics=widths))
    for order in range(4):
        tester.send("orders", order)
    tester.run(crash=Crash("after", "CommitTarget", 1))

    tester.broker.delete(["sorted"])
    with pytest.raises(
        TaskStopped, match=r"go to 'sorted', which does not exist\. Remedy: `cues-kafka plan .* creates"
    ):
        tester.restart().run()
    tester.broker.create([NewTopic("sorted", 2, None, {})])
    with pytest.raises(
        TaskStopped, match=r"partition 2 of 'sorted', which has 2 partitions\. Remedy: kafka-topics .* 3 a"
    ):
        tester.restart().run()
    assert (rows(path), tester.broker.messages("sorted")) == ([0, 1, 2, 3], [])
    tester.broker.add_partitions("sorted", 3)
    tester.restart().run()

    published = [one.value() for one in tester.broker.messages("sorted")]
    assert published == [b"0", b"1", b"2", b"3"]
    assert called == rows(path) == [0, 1, 2, 3]


@pytest.mark.parametrize("width", [1, 7])
def test_outcome_with_a_key_goes_to_the_partition_that_its_key_has_when_it_is_published(width: int, path: Path) -> None:
    """The count changes between the commit of the database and that of Kafka, and a partition may be gone."""
    tester = Tester(graph_of(path, "keyed"))
    for i in range(20):
        tester.send("orders", {"id": i, "text": ""}, key=str(i))
    tester.run(crash=Crash("after", "CommitTarget", 1))
    assert tester.crashed
    tester.broker.delete(["booked"])
    tester.broker.create([NewTopic("booked", width, None, {})])
    tester.restart().run()

    published = tester.broker.messages("booked")
    came = {one.key(): one.partition() for one in published}
    assert (len(published), set(came)) == (20, {str(i).encode() for i in range(20)})
    others = tester.broker.sender("other").send([("booked", None, key, b"0", [], 1) for key in came])
    assert [one.partition for one in others] == [*came.values()]
    assert len({*came.values()}) == width


@pytest.mark.parametrize("began", [True, False])
def test_former_owner_begins_no_batch_once_its_successor_has_asked(began: bool, path: Path) -> None:
    """The question alone puts the owner into the row, whether or not the former one had begun a batch."""
    declared = Sql(f"sqlite:///{path}")
    make_tables(declared, "the test", create=True)
    former, successor = (open_target({"db": declared}, "g", "book", 0) for _ in range(2))
    former.ask(1, 0)
    if began:
        former.begin_batch(1, 0)
        former.discard()

    assert successor.ask(3, 0) == HeldAttempt(0, 0, 1, "")
    for _ in range(2):
        with pytest.raises(RetriableError, match="is at step 0, owner 3; the task is at step 0, owner 1, and asks"):
            former.begin_batch(1, 0)
    successor.begin_batch(3, 0)
    successor.commit(HeldAttempt(0, 1, 3, ""), [])

    assert successor.newest() == HeldAttempt(0, 1, 3, "")
    for target in (former, successor):
        target.close()


def test_outbox_of_another_process_is_not_published_twice(path: Path) -> None:
    """A process that comes back took the outbox for as empty as it had left it, and its attempt published it again."""
    declared = Sql(f"sqlite:///{path}")
    make_tables(declared, "the test", create=True)
    paused, other = (open_target({"db": declared}, "g", "book", 0) for _ in range(2))
    record = ("booked", 0, None, b"1", None, 5)

    def commit(target: TransactionalSink, owner: int, step: int, *records: Any) -> None:
        """One batch of a start that has recovered."""
        target.ask(owner, step)
        target.begin_batch(owner, step)
        target.commit(HeldAttempt(step, step + 1, owner, ""), records)

    commit(paused, 1, 0)
    commit(other, 3, 1, record)
    assert list(other.outbox()) == [record]
    commit(paused, 5, 2)

    assert list(paused.outbox()) == []
    for target in (paused, other):
        target.close()


@pytest.mark.parametrize("held", [False, True])
def test_asynchronous_generator_that_is_left_open_ends_within_its_step(held: bool, path: Path) -> None:
    """The loop closed it beside the next call, to whose step its row then belonged."""

    async def looks(number: int, db: Any) -> Any:
        try:
            yield number
        finally:
            for _ in range(5):
                await asyncio.sleep(0)
            db.execute("INSERT INTO rows (id, text) VALUES (?, '')", (number,))

    async def one(order: Any, db: Any) -> int:
        looked = looks(order["id"], db)
        if held:
            found = await anext(looked)
        else:
            async for found in looks(order["id"], db):  # noqa: B007
                break
        if found % 2:
            raise ValueError("odd")
        return int(found)

    processor = Processor(
        one, name="book", inputs="orders", outputs="booked", effects={"db": Sql(f"sqlite:///{path}")}
    )  # fmt: skip
    tester = Tester(Graph("g", Source("orders"), processor, errors="errors"))
    for i in range(4):
        tester.send("orders", {"id": i}, key=str(i))
    tester.run()

    assert (rows(path), tester.values("booked"), len(tester.errors())) == ([0, 2], [0, 2], 2)

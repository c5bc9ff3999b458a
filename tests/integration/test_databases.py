"""E1 on SQLite, PostgreSQL and MariaDB: each message has one outcome, in the database and in Kafka."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any, cast
from uuid import UUID

import pytest

from cues_kafka import CommitPolicy, Graph, Message, Processor, Retry, Source, Sql, Step, Topic
from cues_kafka.core.records import Attempt
from cues_kafka.testing.tester import Crash, Tester
from tests.integration.databases import DIALECTS, SERVERS, Shop, Shops


@pytest.fixture(scope="module")
def shops(request: pytest.FixtureRequest) -> Shops:
    """The databases."""
    return Shops(request)


@pytest.fixture(params=DIALECTS)
def shop(request: pytest.FixtureRequest, shops: Shops, tmp_path: Path) -> Shop:
    """An empty database of each kind."""
    return shops.give(request.param, tmp_path)


def graph_of(shop: Shop, fn: Any, *, partitions: int = 1, **settings: Any) -> Graph:
    """One processor `book` with the database."""
    settings = {"inputs": "orders", "outputs": "booked", "effects": {"db": Sql(shop.url)}} | settings
    return Graph(
        "g",
        Source("orders"),
        Processor(fn, name="book", **settings),
        errors="errors",
        defaults=Topic(partitions=partitions),
    )


def loaded(graph: Graph, count: int, batch: int = 100) -> Tester:
    """With that many orders."""
    tester = Tester(graph, policy=CommitPolicy(max_messages=batch))
    for i in range(count):
        tester.send("orders", i, key=str(i))
    return tester


def test_each_message_has_one_outcome(shop: Shop) -> None:
    def book(order: int, db: Any) -> int | None:
        shop.insert(db, order)
        if order % 10 == 3:
            raise ValueError("three")
        return order if order % 2 == 0 else None

    tester = loaded(graph_of(shop, book, partitions=3), 40, batch=7).run()

    assert shop.ids() == [i for i in range(40) if i % 10 != 3]
    assert sorted(tester.values("booked")) == [i for i in range(40) if i % 2 == 0]
    assert len(tester.errors()) == 4


VALUES = (
    (UUID(int=5), "00000000-0000-0000-0000-000000000005"),
    (Decimal("12345678901234567.10"), "12345678901234567.10"),
    (time(1, 2, 3), "01:02:03"),
    (date(2020, 2, 3), "2020-02-03"),
    (datetime(2020, 2, 3, 4, 5, 6), "2020-02-03 04:05:06"),  # noqa: DTZ001  it has no zone in the message either
    ("a\\'b\U0001f600", "a\\'b\U0001f600"),
)


def test_values_of_messages_are_written_as_they_are(shop: Shop) -> None:
    """Those that docs/effects.md lists, by a statement and in a table."""

    def book(order: int, db: Any, rows: Any) -> None:
        shop.insert(db, order, cast("Any", VALUES[order][0]))
        rows.insert({"id": 100 + order, "text": VALUES[order][0]})

    sql = Sql(shop.url)
    effects = {"db": sql, "rows": sql.table("shop", columns=["id", "text"])}
    loaded(graph_of(shop, book, effects=effects, outputs=None), len(VALUES)).run()

    found = dict(shop.query("SELECT id, text FROM shop"))
    for at, (_, text) in enumerate(VALUES):
        assert found[at] == text
        assert found[100 + at].replace("-", "") == text.replace("-", "")  # COPY writes a UUID into a text without them


def test_one_moment_is_one_row_whatever_its_zone(shop: Shop) -> None:
    """MySQL's driver left the zone out, and 4 o'clock in two zones was one time."""
    zones = [UTC, timezone(timedelta(hours=2)), timezone(timedelta(hours=-11))]
    moment = datetime(2020, 1, 1, 1, 30, tzinfo=UTC)

    def book(order: int, db: Any) -> None:
        shop.insert(db, order, cast("Any", moment.astimezone(zones[order])))

    loaded(graph_of(shop, book, outputs=None), len(zones)).run()
    found = [row[0] for row in shop.query("SELECT text FROM shop ORDER BY id")]
    if shop.name == "mysql":
        assert found == ["2020-01-01 01:30:00"] * 3
    else:
        assert [datetime.fromisoformat(text if text[-3] == ":" else f"{text}:00") for text in found] == [moment] * 3


def test_time_of_day_with_a_zone_is_an_error_in_mysql(shops: Shops, tmp_path: Path) -> None:
    """It has none, and the driver left the zone out."""
    shop = shops.give("mysql", tmp_path)

    def book(order: int, db: Any) -> None:
        shop.insert(db, order, cast("Any", time(1, 2, tzinfo=UTC if order else None)))

    tester = loaded(graph_of(shop, book, outputs=None), 2).run()
    assert shop.ids() == [0]
    assert texts(tester) == ["ProgrammingError: MySQL has no time of day with a zone"]


def texts(tester: Tester) -> list[str]:
    """What the error messages say."""
    return [f"{one.exception}: {one.text}" for one in tester.errors()]


@pytest.mark.parametrize("kind", ["one", "list"])
def test_constraint_violation_is_one_error_message_and_no_row(shop: Shop, kind: str) -> None:
    def book(order: int, db: Any) -> int:
        shop.insert(db, order)
        if order % 10 == 3:
            shop.insert(db, order - 1)  # is there
        return order

    def book_many(orders: list[int], db: Any) -> list[int]:
        return [book(order, db) for order in orders]

    many = {"one": book, "list": book_many}
    tester = loaded(graph_of(shop, many[kind], batch=kind == "list", partitions=3), 40, batch=7).run()

    assert shop.ids() == [i for i in range(40) if i % 10 != 3]
    assert sorted(tester.values("booked")) == shop.ids()
    assert len(texts(tester)) == 4
    assert {one.exception for one in tester.errors()} <= {"UniqueViolation", "IntegrityError"}


@pytest.mark.parametrize("name", ["sqlite", "postgresql"])
@pytest.mark.parametrize("kind", ["one", "list"])
def test_violation_of_a_deferred_constraint_is_one_error_message(
    kind: str, name: str, shops: Shops, tmp_path: Path
) -> None:
    """The constraint stays deferred: each step writes the row that refers to another one first."""
    shop = shops.give(name, tmp_path)
    shop.query(
        "CREATE TABLE parts (id INTEGER PRIMARY KEY, "
        "order_id INTEGER REFERENCES shop (id) DEFERRABLE INITIALLY DEFERRED)"
    )

    def book(order: int, db: Any) -> int:
        db.execute(f"INSERT INTO parts (id, order_id) VALUES ({order}, {order})")
        if order % 10 != 3:
            shop.insert(db, order)
        return order

    def book_many(orders: list[int], db: Any) -> list[int]:
        return [book(order, db) for order in orders]

    many = {"one": book, "list": book_many}
    tester = loaded(graph_of(shop, many[kind], batch=kind == "list"), 20, batch=20).run()

    kept = [i for i in range(20) if i % 10 != 3]
    assert shop.ids() == [row[0] for row in shop.query("SELECT id FROM parts ORDER BY id")] == kept
    assert sorted(tester.values("booked")) == kept
    assert len(texts(tester)) == 2


def test_swallowed_database_error_does_not_tear_a_step(shop: Shop) -> None:
    """PostgreSQL takes nothing more in such a transaction, so the step is an error; the others go on without it."""

    def book(order: int, db: Any) -> int:
        shop.insert(db, order)
        if order == 3:
            try:
                shop.insert(db, 2)
            except Exception:
                return -1
        return order

    tester = loaded(graph_of(shop, book), 6).run()

    if shop.name == "postgresql":
        assert shop.ids() == [0, 1, 2, 4, 5] == tester.values("booked")
        [text] = texts(tester)
        assert "with db.savepoint()" in text
    else:
        assert shop.ids() == [0, 1, 2, 3, 4, 5]
        assert tester.values("booked") == [0, 1, 2, -1, 4, 5]
        assert not tester.errors()


def test_savepoint_takes_back_its_own_block_alone(shop: Shop) -> None:
    def book(order: int, db: Any) -> int:
        shop.insert(db, order)
        with db.savepoint():
            shop.insert(db, order + 100)
            with suppress(Exception), db.savepoint():
                shop.insert(db, order + 200)
                shop.insert(db, order)
        with suppress(ValueError), db.savepoint():
            shop.insert(db, order + 300)
            raise ValueError("not after all")
        return order

    tester = loaded(graph_of(shop, book), 6).run()

    assert shop.ids() == [*range(6), *range(100, 106)]
    assert tester.values("booked") == [*range(6)]
    assert not tester.errors()


ENDING = (
    "COMMIT",
    "rollback",
    "DROP TABLE shop",
    "SELECT 1; COMMIT",
    "-- why not\nBEGIN",
    "ROLLBACK TO SAVEPOINT cues",
)


def test_statement_that_would_end_the_transaction_is_refused(shop: Shop) -> None:
    def book(order: int, db: Any) -> int:
        shop.insert(db, order)
        if order < len(ENDING):
            db.execute(ENDING[order])
        return order

    tester = loaded(graph_of(shop, book), len(ENDING) + 2).run()

    assert shop.ids() == [len(ENDING), len(ENDING) + 1] == tester.values("booked")
    assert [one.exception for one in tester.errors()] == ["OutputError"] * len(ENDING)


def test_connection_is_refused_after_the_call(shop: Shop) -> None:
    kept: list[Any] = []

    def book(order: int, db: Any) -> int:
        kept.append(db)
        return order

    loaded(graph_of(shop, book), 1).run()

    with pytest.raises(RuntimeError, match="only during the call"):
        kept[0].execute("SELECT 1")


def test_batches_of_three_partitions_insert_many_rows(shop: Shop) -> None:
    def book(orders: list[int], db: Any) -> list[int | None]:
        db.insert("shop", ["id", "text"], [(order, f"'{order}'\t\\") for order in orders])
        return [order if order % 2 == 0 else None for order in orders]

    tester = loaded(graph_of(shop, book, batch=True, partitions=3), 300, batch=50).run()

    assert shop.query("SELECT id, text FROM shop ORDER BY id") == [(i, f"'{i}'\t\\") for i in range(300)]
    assert sorted(tester.values("booked")) == [*range(0, 300, 2)]
    assert tester.totals("book").deliveries == 300


def test_every_way_to_end_a_step_moves_the_row(shop: Shop) -> None:
    """Nil, filtered, a commit asked for: the row stands where the record stands."""

    def book(order: int, db: Any, step: Step) -> int | None:
        if order == 4:
            step.request_commit()
        if order in (2, 4):
            shop.insert(db, order)
            return None
        return None

    tester = loaded(graph_of(shop, book, filter=lambda message: message.value != 3), 6)
    tester.run()

    assert shop.ids() == [2, 4]
    assert shop.query("SELECT step FROM cues_task") == [(tester.records("book")[-1].step,)] == [(6,)]
    ends = [record.step for record in tester.records("book") if isinstance(record, Attempt)]
    assert 5 in ends, "the commit that the step asked for"
    for i in range(6, 9):
        tester.send("orders", i)
    tester.restart().run()
    assert tester.totals("book").deliveries == 9


def test_message_that_kills_its_process_is_quarantined_and_the_row_moves(shop: Shop) -> None:
    found: list[Tester] = []

    def book(order: int, db: Any) -> int:
        shop.insert(db, order)
        if order == 3:
            found[0].kill()
        return order

    tester = loaded(graph_of(shop, book), 6, batch=2)
    found.append(tester)
    for _ in range(10):
        if not tester.run_to_death():
            break

    assert shop.ids() == [0, 1, 2, 4, 5] == tester.values("booked")
    [error] = tester.errors()
    assert error.kind == "quarantine"
    assert shop.query("SELECT step FROM cues_task") == [(6,)]


def test_no_transaction_is_held_while_a_step_waits_for_its_retry(shop: Shop) -> None:
    """The steps before it are committed in both systems, and what its first call wrote is taken back."""
    calls: list[int] = []
    seen: list[tuple[list[int], int]] = []

    def book(order: int, db: Any) -> int:
        calls.append(order)
        shop.insert(db, order)
        if order == 3 and calls.count(3) < 3 + 1:  # once of them in the chunk that is called in one go
            raise ConnectionError("not now")
        return order

    tester = loaded(graph_of(shop, book, retry=Retry(ConnectionError, for_s=60)), 6)
    pause = tester.clock.advance

    def look(seconds: float) -> None:
        if 3 in calls and calls.count(3) < 4:
            seen.append((shop.ids(), open_transactions(shop)))
        pause(seconds)

    tester.clock.advance = look  # type: ignore[method-assign]
    tester.run()

    assert shop.ids() == [*range(6)] == tester.values("booked")
    assert not tester.errors()
    assert seen
    assert set(map(str, seen)) == {str(([0, 1, 2], 0))}


def open_transactions(shop: Shop) -> int:
    """How many transactions other connections have open."""
    if shop.name == "postgresql":
        where = "state LIKE 'idle in transaction%' AND datname = current_database()"
        return int(shop.query(f"SELECT count(*) FROM pg_stat_activity WHERE {where}")[0][0])
    if shop.name == "mysql":
        return int(shop.query("SELECT count(*) FROM information_schema.innodb_trx")[0][0])
    with shop.opened() as connection:
        connection.execute("PRAGMA busy_timeout = 0")
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("ROLLBACK")
    return 0


def test_messages_through_the_outbox_are_those_that_the_function_gave(shop: Shop) -> None:
    """Headers, tombstones, explicit partitions, timestamps and errors, published by a second process."""

    def book(order: int, db: Any) -> Message[Any]:
        shop.insert(db, order)
        match order % 5:
            case 0:
                return Message({"n": order}, key=f"k{order}", headers={"a": b"\x00\xff", "b": "text", "c": None})
            case 1:
                return Message(None, key=f"k{order}")
            case 2:
                return Message({"n": order}, partition=2, timestamp_ms=1_700_000_000_000 + order)
            case 3:
                raise ValueError(f"'{order}'")
        return Message({"n": "ü\x00" * 3}, key=f"k{order}")

    def world(crash: Crash | None) -> tuple[list[Any], list[Any]]:
        tester = loaded(graph_of(shop, book, partitions=3), 30)
        tester.run(crash=crash)
        if crash is not None:
            assert tester.crashed
            tester.restart().run()
        seen = [
            (m.partition, m.key, m.value, [h for h in m.headers if h[0] != "cues"]) for m in tester.messages("booked")
        ]
        failed = [(one.exception, one.text, one.key, one.hash) for one in tester.errors()]
        for table in ("shop", "cues_task", "cues_outbox"):
            shop.query(f"DELETE FROM {table}")
        return seen, failed

    plain, twice = world(None), world(Crash("after", "CommitTarget", 2))
    assert [one[:4] for one in plain[0]] == [one[:4] for one in twice[0]]
    assert len(plain[0]) == 24
    assert sorted(one[1] for one in plain[1]) == sorted(one[1] for one in twice[1])


def test_alts_with_a_database_keep_their_order_through_a_crash(shop: Shop) -> None:
    """Which input comes next is decided once, and the row holds what remains of that."""

    def book(db: Any, left: str | None = None, right: str | None = None) -> str:
        name = left or right or ""
        [last] = db.execute("SELECT coalesce(max(id), 0) FROM shop").fetchone()
        shop.insert(db, last + 1, name)
        return name

    processor = Processor(
        book, name="book", alts={"left": "left", "right": "right"}, outputs="booked", effects={"db": Sql(shop.url)}
    )
    graph = Graph(
        "g", Source("left"), Source("right"), processor, errors="errors", defaults=Topic(partitions=1)
    )  # fmt: skip
    tester = Tester(graph, policy=CommitPolicy(max_messages=4))
    for i in range(15):
        for side in ("left", "right"):
            tester.send(side, f"{side} {i}")
    for moment, nth in (("after", 2), ("before", 2), ("after", 1)):
        tester.run(crash=Crash(moment, "CommitTarget", nth))
        assert tester.crashed
        tester.restart()
    tester.run()

    rows = [row[0] for row in shop.query("SELECT text FROM shop ORDER BY id")]
    assert rows == tester.values("booked")
    assert sorted(rows) == sorted(f"{side} {i}" for side in ("left", "right") for i in range(15))
    for side in ("left", "right"):
        assert [row for row in rows if row.startswith(side)] == [f"{side} {i}" for i in range(15)]


@pytest.mark.parametrize("name", SERVERS)
@pytest.mark.parametrize(
    "crash",
    [
        Crash("before", "CommitTarget", 2),
        Crash("after", "CommitTarget", 2),
        Crash("before", "Produce", 3),
        Crash("before", "Commit", 3),
        Crash("after", "Commit", 3),
        Crash("after", "AskTarget", 1),
    ],
)
def test_crash_leaves_one_outcome_of_each_message(name: str, crash: Crash, shops: Shops, tmp_path: Path) -> None:
    """The same as for SQLite in tests/unit/sinks, at fewer places."""
    shop = shops.give(name, tmp_path)

    def book(order: int, db: Any) -> int | None:
        shop.insert(db, order)
        if order % 10 == 3:
            raise ValueError("three")
        return order if order % 2 == 0 else None

    tester = loaded(graph_of(shop, book, partitions=2), 40, batch=7)
    tester.run(crash=crash)
    assert tester.crashed
    tester.restart().run()

    assert shop.ids() == [i for i in range(40) if i % 10 != 3]
    assert sorted(tester.values("booked")) == [*range(0, 40, 2)]
    assert len(tester.errors()) == 4
    assert tester.totals("book").deliveries == 40

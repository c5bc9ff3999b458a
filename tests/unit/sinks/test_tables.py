"""Tables that a graph writes: a row for each value, and the newest row of each key (E2), through crashes and resets."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cues_kafka import (
    CommitPolicy,
    ConfigError,
    Graph,
    GraphError,
    Json,
    Message,
    Processor,
    Raw,
    Sink,
    Source,
    Sql,
    TaskStopped,
    Topic,
    Upsert,
)
from cues_kafka.graph.effects import SqlTable
from cues_kafka.graph.timers import Timers
from cues_kafka.operate.move.base import Maintenance
from cues_kafka.operate.move.reset import reset
from cues_kafka.ports.facts import NewTopic
from cues_kafka.sinks.dialect import OUTBOX, TASKS
from cues_kafka.sinks.sqlite import Sqlite
from cues_kafka.sinks.tables import make_tables
from cues_kafka.testing.tester import Crash, Tester

EFFECTS = ("AskTarget", "Begin", "Call", "Commit", "CommitTarget", "Flush", "Init", "Produce", "SendOffsets")
GUARD = "cues_source TEXT, cues_offset INTEGER, cues_deleted BOOLEAN NOT NULL DEFAULT FALSE"
TABLES = f"""
CREATE TABLE flight (id INTEGER PRIMARY KEY, carrier TEXT NOT NULL);
CREATE TABLE entry (id INTEGER);
CREATE TABLE latest (carrier TEXT PRIMARY KEY, n INTEGER, {GUARD});
"""
SMALL = CommitPolicy(max_messages=3)


@dataclass(frozen=True)
class Flight:
    """A value with attributes."""

    id: int
    carrier: str


class Shop:
    """A graph with one processor over "flights", its database, and a Tester."""

    def __init__(self, path: Path, processor: Processor, **topic: Any) -> None:
        self.path = path
        self.graph = graph_of(processor, **topic)
        self.tester = Tester(self.graph, policy=SMALL)

    def send(self, *values: Any) -> Shop:
        """Send values with keys, or tombstones."""
        for value in values:
            given = value if isinstance(value, Message) else Message(value, key=value.get("carrier"))
            self.tester.send("flights", given)
        return self

    def run(self, crash: Crash | None = None) -> Shop:
        """Run until idle, or to a crash."""
        self.tester.run(crash=crash)
        return self

    def rows(self, statement: str = "SELECT carrier, n FROM latest WHERE NOT cues_deleted ORDER BY 1") -> list[Any]:
        """What a reader of the database sees."""
        with sqlite3.connect(self.path) as opened:
            return opened.execute(statement).fetchall()

    def reset(self, processor: Processor | None = None) -> Shop:
        """Stop, go back to the first message, and go on, with another function if need be."""
        [name] = self.graph.processors
        self.tester.stop()
        self.tester.broker.expire(f"g.{name}")
        tool = Maintenance(self.graph, self.tester.broker, name, who="test", clock=self.tester.clock)
        tool.carry_out(reset(tool, to="earliest"))
        if processor is not None:
            self.graph = graph_of(processor)
        self.tester = Tester(self.graph, policy=SMALL, broker=self.tester.broker)
        return self

    def errors(self) -> list[str]:
        """The texts of the error messages."""
        return [one.text for one in self.tester.errors()]


def graph_of(processor: Processor, **topic: Any) -> Graph:
    """One processor over one topic."""
    return Graph("g", Source("flights"), processor, errors="errors", defaults=Topic(**{"partitions": 1, **topic}))


def tombstone(key: str | None) -> Message:
    """A message without a value."""
    return Message(None, key=key)


def latest(sql: Sql) -> Upsert:
    """The newest number of each carrier."""
    return sql.upsert("latest", key="carrier", columns=["carrier", "n"])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A database with the tables of the tests."""
    found = tmp_path / "shop.db"
    with sqlite3.connect(found) as made:
        made.executescript(TABLES)
    return found


@pytest.fixture
def sql(path: Path) -> Sql:
    """The database as it is declared."""
    return Sql(f"sqlite:///{path}")


# Rows


def test_a_sink_writes_the_fields_of_each_value(path: Path, sql: Sql) -> None:
    """Of dicts and of objects; a column may have another name than its field."""
    shop = Shop(path, Sink("rows", inputs="flights", into=sql.table("flight", columns=["id", "carrier"])))
    shop.send({"id": 1, "carrier": "UA", "more": 1}).run()
    other = Sink("other", inputs="flights", into=sql.table("flight", columns={"id": "id", "carrier": "carrier"}))
    typed = Shop(path, other, value=Json(Flight))
    typed.tester.send("flights", Flight(2, "B6"))
    typed.run()

    assert shop.rows("SELECT * FROM flight ORDER BY id") == [(1, "UA"), (2, "B6")]
    assert shop.errors() == typed.errors() == []


def test_what_is_no_row_is_an_error_of_its_message_alone(path: Path, sql: Sql) -> None:
    """A tombstone, a value without a field, and rows that the database or its driver refuses."""
    shop = Shop(path, Sink("rows", inputs="flights", into=sql.table("flight", columns={"id": "id", "carrier": "by"})))
    shop.send(
        {"id": 1, "by": "UA"},
        tombstone("k"),
        {"id": 2},
        {"id": 1, "by": "again"},
        {"id": 3, "by": {"no": "text"}},
        {"id": 2**70, "by": "long"},
        {"id": 4, "by": "B6"},
    ).run()

    assert shop.rows("SELECT * FROM flight ORDER BY id") == [(1, "UA"), (4, "B6")]
    no_value, lacking, twice, no_text, long = shop.errors()
    assert no_value.startswith("a message without a value (a tombstone) has no fields for table 'flight'")
    assert lacking == "the value lacks fields of table 'flight': 'by' for column 'carrier'"
    assert "IntegrityError: UNIQUE constraint failed: flight.id" in twice
    assert "table 'flight' refuses a row" in no_text
    assert "OverflowError" in long


def test_rows_of_a_batch_that_an_outage_ends_are_forgotten(path: Path, sql: Sql) -> None:
    """The batch is called again as a whole, and hands over its rows again."""
    outages = [sqlite3.SQLITE_BUSY]

    def unlucky(flight: dict[str, Any], rows: Any) -> None:
        rows.insert(flight)
        if outages and flight["id"] == 2:
            error = sqlite3.OperationalError("database is locked")
            error.sqlite_errorcode = outages.pop()
            raise error

    effects = {"rows": sql.table("entry", columns=["id"])}
    shop = Shop(path, Processor(unlucky, inputs="flights", effects=effects))
    shop.send(*({"id": i, "carrier": "UA"} for i in range(4))).run()

    assert not outages
    assert [row[0] for row in shop.rows("SELECT id FROM entry ORDER BY id")] == [0, 1, 2, 3]
    assert shop.errors() == []


@pytest.mark.parametrize("settings", [{}, {"batch": True}], ids=["each", "batch"])
def test_outage_in_a_function_says_to_bring_the_database_back(settings: dict[str, Any], path: Path, sql: Sql) -> None:
    """A task that stops because of it has the remedy of databases, not that of most tasks."""

    def locked(flight: Any, rows: Any) -> None:
        error = sqlite3.OperationalError("database is locked")
        error.sqlite_errorcode = sqlite3.SQLITE_BUSY
        raise error

    effects = {"rows": sql.table("entry", columns=["id"])}
    shop = Shop(path, Processor(locked, inputs="flights", effects=effects, **settings))
    with pytest.raises(TaskStopped, match=r"Remedy: bring the database or the store back"):
        shop.send({"id": 1, "carrier": "UA"}, {"id": 2, "carrier": "UA"}).run()


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("effect", ["Begin", "Commit", "CommitTarget"])
def test_a_crash_around_the_commits_leaves_each_row_once(effect: str, moment: str, path: Path, sql: Sql) -> None:
    """Rows and errors are those of a run without a crash."""
    for nth in (1, 3):
        shop = Shop(path, Sink("rows", inputs="flights", into=sql.table("flight", columns=["id", "carrier"])))
        shop.send(*({"id": i, "carrier": None if i == 7 else "UA"} for i in range(12)))
        shop.run(Crash(moment, effect, nth))
        shop.tester.restart().run()

        assert [row[0] for row in shop.rows("SELECT id FROM flight ORDER BY id")] == [i for i in range(12) if i != 7]
        assert len(shop.errors()) == 1
        shop.tester.stop()
        empty(path)


def empty(path: Path) -> None:
    """Take everything out of the database."""
    with sqlite3.connect(path) as made:
        for table in ("flight", "latest", "cues_task", "cues_outbox"):
            made.execute(f"DELETE FROM {table}")


# The newest row of each key


def test_an_upsert_keeps_the_newest_row_and_marks_deleted_ones(path: Path, sql: Sql) -> None:
    """A tombstone deletes the row of its key; a later value brings it back; one without a row changes nothing."""
    shop = Shop(path, Sink("latest", inputs="flights", into=latest(sql)))
    shop.send({"carrier": "UA", "n": 1}, {"carrier": "B6", "n": 2}, {"carrier": "UA", "n": 3}, tombstone("B6")).run()

    assert shop.rows() == [("UA", 3)]
    assert shop.rows("SELECT carrier FROM latest WHERE cues_deleted") == [("B6",)]
    shop.send({"carrier": "B6", "n": 4}, tombstone("DL")).run()
    assert shop.rows() == [("B6", 4), ("UA", 3)]
    assert shop.errors() == []


def test_what_says_no_key_is_an_error_of_its_message(path: Path, sql: Sql) -> None:
    """A tombstone without a key, and a value whose key is None."""
    shop = Shop(path, Sink("latest", inputs="flights", into=latest(sql)))
    shop.tester.broker.sender("other").send([("flights", 0, None, None, [], 1_700_000_000_000)])
    shop.send({"carrier": None, "n": 1}, {"carrier": "UA", "n": 2}).run()

    assert shop.rows() == [("UA", 2)]
    assert shop.errors() == [
        "the message has neither a value nor a key, so it does not say what to delete in table 'latest'",
        "'carrier', a part of the key of table 'latest', is None",
    ]


def keep(flight: dict[str, Any], latest: Any) -> dict[str, Any]:
    """Two rows of one key in one step: the second stays. Number 7 is refused after both."""
    latest.put({"carrier": flight["carrier"], "n": -flight["n"]})
    latest.put(flight)
    if flight["n"] == 7:
        raise ValueError("seven")
    return flight


def swap(flight: dict[str, Any], latest: Any) -> None:
    """The order of calls is kept: of one key deleted and put, and of another put and deleted."""
    latest.delete(flight["carrier"])
    latest.put(flight)
    latest.put({"carrier": "gone", "n": 1})
    latest.delete("gone")


def keep_many(flights: list[dict[str, Any]], latest: Any) -> list[dict[str, Any]]:
    """A list, whose messages are named by their index."""
    for index, flight in enumerate(flights):
        latest.put(flight, index=index)
    return flights


def keep_unnamed(flights: list[dict[str, Any]], latest: Any) -> None:
    """Which message a row is from is not said."""
    for flight in flights:
        latest.put(flight)


async def keep_later(flight: dict[str, Any], latest: Any) -> None:
    """A coroutine."""
    latest.put(flight)


def book(flight: dict[str, Any], db: Any) -> None:
    """A function with a database."""
    raise NotImplementedError


def processor_of(fn: Any, sql: Sql, **settings: Any) -> Processor:
    """A function with an upsert."""
    return Processor(fn, name=fn.__name__, inputs="flights", effects={"latest": latest(sql)}, **settings)


def test_the_last_of_several_rows_of_a_step_stays(path: Path, sql: Sql) -> None:
    """Also where one is deleted and put in one step."""
    shop = Shop(path, processor_of(keep, sql, outputs="kept"))
    shop.send({"carrier": "UA", "n": 1}, {"carrier": "UA", "n": 7}).run()
    assert shop.rows() == [("UA", 1)]
    assert shop.tester.values("kept") == [{"carrier": "UA", "n": 1}]
    assert shop.errors() == ["seven"]  # the function's, not one of the row that it had put

    shop = Shop(path, processor_of(swap, sql))
    shop.send({"carrier": "B6", "n": 2}).run()
    assert shop.rows("SELECT carrier FROM latest WHERE NOT cues_deleted") == [("UA",), ("B6",)]


def test_functions_of_lists_say_which_message_a_row_is_from(path: Path, sql: Sql) -> None:
    """Else each message of the list becomes an error that says how; called alone, it need not."""
    shop = Shop(path, processor_of(keep_many, sql, batch=True, outputs="kept"))
    shop.send({"carrier": "UA", "n": 1}, {"carrier": "UA", "n": 2}).run()
    assert shop.rows("SELECT n, cues_offset FROM latest") == [(2, 1)]

    shop = Shop(path, processor_of(keep_unnamed, sql, batch=True))
    shop.send({"carrier": "B6", "n": 1}, {"carrier": "B6", "n": 2}).run()
    assert shop.errors() == []
    assert shop.rows("SELECT n, cues_offset FROM latest WHERE carrier = 'B6'") == [(2, 1)]

    shop = Shop(path, processor_of(keep_later, sql))
    shop.send({"carrier": "DL", "n": 1}, {"carrier": "DL", "n": 2}).run()
    assert shop.rows("SELECT n, cues_offset FROM latest WHERE carrier = 'DL'") == [(2, 1)]


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("effect", EFFECTS)
def test_a_crash_at_any_effect_leaves_the_newest_row_of_each_key(
    effect: str, moment: str, path: Path, sql: Sql
) -> None:
    """Rows, messages and errors are those of a run without a crash."""
    for nth in (1, 3):
        shop = Shop(path, processor_of(keep, sql, outputs="kept"))
        shop.send(*({"carrier": str(i % 3), "n": i} for i in range(12)))
        shop.run(Crash(moment, effect, nth))
        shop.tester.restart().run()

        assert shop.rows() == [("0", 9), ("1", 10), ("2", 11)]
        assert [one["n"] for one in shop.tester.values("kept")] == [i for i in range(12) if i != 7]
        assert len(shop.errors()) == 1
        shop.tester.stop()
        empty(path)


# After a reset


def replace_row(flight: dict[str, Any], db: Any) -> None:
    """An upsert without a guard, which a replay takes back in time."""
    db.execute("INSERT OR REPLACE INTO latest (carrier, n) VALUES (?, ?)", (flight["carrier"], flight["n"]))


@pytest.mark.parametrize("guarded", [True, False])
def test_a_replay_after_a_reset_does_not_go_back_in_time(guarded: bool, path: Path, sql: Sql) -> None:
    """In the middle of the replay a reader sees what it saw before; without the guard it would see an old row."""
    sink = Sink("latest", inputs="flights", into=latest(sql))
    plain = Processor(replace_row, name="latest", inputs="flights", effects={"db": sql})
    shop = Shop(path, sink if guarded else plain)
    shop.send(*({"carrier": "UA", "n": i} for i in range(12))).run()

    shop.reset().run(Crash("after", "CommitTarget", 1))
    assert shop.tester.crashed
    [(_, between)] = shop.rows()
    assert between == 11 if guarded else between < 11
    shop.tester.restart().run()
    assert shop.rows() == [("UA", 11)]


def test_a_processor_with_a_new_name_takes_over_the_rows_of_the_former_one(path: Path, sql: Sql) -> None:
    """It begins at step 0 and at the first message: older messages change nothing, newer ones do."""
    shop = Shop(path, Sink("latest", inputs="flights", into=latest(sql)))
    shop.send(*({"carrier": "UA", "n": i} for i in range(9))).run()
    shop.tester.stop()

    shop.graph = graph_of(Sink("again", inputs="flights", into=latest(sql)))
    shop.tester = Tester(shop.graph, policy=SMALL, broker=shop.tester.broker)
    shop.send({"carrier": "B6", "n": 9}).run(Crash("after", "CommitTarget", 1))
    assert shop.tester.crashed
    assert shop.rows() == [("UA", 8)]
    shop.tester.restart()
    shop.send({"carrier": "UA", "n": 10}).run()
    assert shop.rows() == [("B6", 9), ("UA", 10)]


def test_a_deleted_row_stays_deleted_in_a_replay(path: Path, sql: Sql) -> None:
    """The row is marked, so it is its own guard."""
    shop = Shop(path, Sink("latest", inputs="flights", into=latest(sql)))
    shop.send(*({"carrier": "UA", "n": i} for i in range(6)), tombstone("UA")).run()
    assert shop.rows() == []

    shop.reset().run(Crash("after", "CommitTarget", 1))
    assert shop.rows() == []
    shop.tester.restart().run()
    assert shop.rows() == []


def test_an_old_deletion_does_not_delete_a_newer_row_in_a_replay(path: Path, sql: Sql) -> None:
    """A deletion has the same guard as a row."""
    shop = Shop(path, Sink("latest", inputs="flights", into=latest(sql)))
    shop.send({"carrier": "UA", "n": 0}, tombstone("UA"), *({"carrier": "UA", "n": i} for i in range(2, 7))).run()

    shop.reset().run(Crash("after", "CommitTarget", 1))

    assert shop.rows() == [("UA", 6)]


def wrong(flight: dict[str, Any], latest: Any) -> None:
    """What the first release did."""
    latest.put({**flight, "n": -1})


def test_a_corrected_function_writes_its_rows_again_after_a_reset(path: Path, sql: Sql) -> None:
    """The newest message of each key passes the guard of the row that it made itself."""
    shop = Shop(path, processor_of(wrong, sql))
    shop.send({"carrier": "UA", "n": 1}, {"carrier": "B6", "n": 2}, {"carrier": "UA", "n": 3}).run()
    assert shop.rows() == [("B6", -1), ("UA", -1)]

    corrected = Sink("wrong", inputs="flights", into=latest(sql))
    shop.reset(corrected).run()

    assert shop.rows() == [("B6", 2), ("UA", 3)]


def test_a_topic_that_was_recreated_writes_over_the_rows_of_the_former_one(path: Path, sql: Sql) -> None:
    """Its offsets begin at 0 again, so they say nothing beside those of the former topic."""
    shop = Shop(path, Sink("latest", inputs="flights", into=latest(sql)))
    shop.send(*({"carrier": "UA", "n": i} for i in range(9))).run()
    broker = shop.tester.broker
    shop.tester.stop()
    broker.delete(["flights"])
    broker.create([NewTopic("flights", 1, 1, {})])

    shop.reset().send({"carrier": "UA", "n": -1}).run()

    assert shop.rows() == [("UA", -1)]


# What is refused


BAD_TABLES = {
    "CREATE TABLE other (a INTEGER)": "it cannot be read: no such table: latest. Create it, correct its name",
    f"CREATE TABLE latest (carrier TEXT PRIMARY KEY, {GUARD})": "it has no column 'n'. Add what is missing",
    "CREATE TABLE latest (carrier TEXT PRIMARY KEY, n INTEGER, cues_source TEXT)": (
        "ALTER TABLE latest ADD COLUMN cues_offset INTEGER; ALTER TABLE latest ADD COLUMN cues_deleted BOOLEAN NOT NULL"
    ),
    f"CREATE TABLE latest (carrier TEXT, n INTEGER, {GUARD})": ("CREATE UNIQUE INDEX latest_key ON latest (carrier)"),
    f"CREATE TABLE latest (carrier TEXT, n INTEGER, {GUARD}, PRIMARY KEY (carrier, n))": (
        "no primary key and no unique index has exactly the columns 'carrier' of key="
    ),
    f"CREATE TABLE latest (carrier TEXT PRIMARY KEY, n INTEGER, Town TEXT NOT NULL, seat TEXT NOT NULL, {GUARD})": (
        "no row can be inserted without the column 'Town', 'seat', which takes no NULL and has no default. Name what "
        "is missing in columns=, or give it a default"
    ),
    f"CREATE TABLE latest (carrier TEXT UNIQUE, n INTEGER, id INTEGER PRIMARY KEY, {GUARD}) WITHOUT ROWID": (
        "no row can be inserted without the column 'id'"
    ),
    f"CREATE TABLE latest (carrier TEXT PRIMARY KEY, n INTEGER AS (1), {GUARD})": (
        "rows cannot be written: cannot INSERT into generated column"
    ),
}


@pytest.mark.parametrize("statement", BAD_TABLES)
def test_a_table_that_does_not_fit_is_refused_before_the_start(statement: str, tmp_path: Path) -> None:
    """With what to do; the table is not touched."""
    path = tmp_path / "bad.db"
    with sqlite3.connect(path) as made:
        made.execute(statement)
    sql = Sql(f"sqlite:///{path}")

    with pytest.raises(ConfigError) as refused:
        Shop(path, Sink("latest", inputs="flights", into=latest(sql)))

    assert "latest, effects['into'], table 'latest': " in str(refused.value)
    assert BAD_TABLES[statement] in str(refused.value)
    with sqlite3.connect(path) as made:
        assert [row[0] for row in made.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL")] == [statement]


def test_columns_that_sqlite_fills_need_no_value(tmp_path: Path) -> None:
    """The number of a row, a default, and a column that is computed; the case of letters does not count."""
    path = tmp_path / "filled.db"
    with sqlite3.connect(path) as made:
        made.execute(
            f"CREATE TABLE latest (number INTEGER PRIMARY KEY, Carrier TEXT NOT NULL UNIQUE, n INTEGER NOT NULL, "
            f"town TEXT NOT NULL DEFAULT '', twice INTEGER NOT NULL AS (2 * n) STORED, {GUARD})"
        )
    shop = Shop(path, Sink("latest", inputs="flights", into=latest(Sql(f"sqlite:///{path}"))))

    shop.send({"carrier": "UA", "n": 1}, {"carrier": "B6", "n": 2}, {"carrier": "UA", "n": 3}).run()

    assert shop.errors() == []
    assert shop.rows("SELECT Carrier, n, twice FROM latest ORDER BY 1") == [("B6", 2, 4), ("UA", 3, 6)]


def test_our_tables_and_those_of_the_user_are_seen_to_through_one_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the plan has not looked at them, because the database did not answer then."""
    path, connected = tmp_path / "bad.db", list[Any]()
    with sqlite3.connect(path) as made:
        made.execute("CREATE TABLE latest (carrier TEXT)")
    sql, connect = Sql(f"sqlite:///{path}"), Sqlite.connect

    def connecting(self: Sqlite) -> Any:
        connected.append(self)
        return connect(self)

    monkeypatch.setattr(Sqlite, "connect", connecting)

    with pytest.raises(ConfigError, match="the place: it has no column 'n'"):
        make_tables(sql, "the test", create=True, written=[("the place", latest(sql))])

    assert len(connected) == 1
    with sqlite3.connect(path) as made:
        assert {TASKS, OUTBOX} < {row[0] for row in made.execute("SELECT name FROM sqlite_master")}


def test_partitions_that_were_added_are_refused_until_they_are_accepted(path: Path, sql: Sql) -> None:
    """A key may come to another task then, and offsets of two partitions do not say which message is newer."""
    shop = Shop(path, Sink("latest", inputs="flights", into=latest(sql)))
    shop.send({"carrier": "UA", "n": 1}).run()
    broker = shop.tester.broker
    shop.tester.stop()
    broker.add_partitions("flights", 2)

    with pytest.raises(ConfigError, match=r"BOOTSTRAP --alter --topic g\.latest\.backing --partitions 2"):
        Tester(shop.graph, broker=broker)

    broker.add_partitions("g.latest.backing", 2)
    shop.tester = Tester(shop.graph, broker=broker)
    shop.tester.send("flights", Message({"carrier": "UA", "n": 2}, key="AA", partition=1))
    shop.run()
    assert shop.rows() == [("UA", 2)]


def nothing(*_: Any, **__: Any) -> None:
    """A function for declarations."""


def wrong_declarations(sql: Sql) -> Iterator[tuple[Any, str]]:
    """Each with a part of its error."""
    yield lambda: sql.table("a b", columns=["x"]), "'a b' cannot be the name of a table"
    yield lambda: sql.table("a.b.c", columns=["x"]), "cannot be the name of a table"
    yield lambda: sql.table("a", columns="x"), "write columns="
    yield lambda: sql.table("a", columns=[]), "write columns="
    yield lambda: sql.table("a", columns=["x", "X"]), "'x' twice"
    yield lambda: sql.table("a", columns={"x": 1}), "A field's name is a string"  # type: ignore[dict-item]
    yield lambda: sql.upsert("a", key=[], columns=["x"]), "name the column that tells rows apart"
    yield lambda: sql.upsert("a", key="x", columns=["cues_offset"]), "filled in by cues-kafka"
    yield lambda: Upsert("postgresql://x/y", "a", key="x", columns=["x"]), "is not a database"  # type: ignore[arg-type]
    yield lambda: Sink("s", inputs="a", into=sql), "is not a table"  # type: ignore[arg-type]
    yield lambda: Sink("s", inputs="a", into=latest(sql), outputs="b"), "'outputs' are not for a sink"
    two = {"one": latest(sql), "two": Sql(env="OTHER")}
    yield lambda: Processor(nothing, inputs="a", effects=two), "several databases"
    up = {"up": latest(sql)}
    yield lambda: Processor(nothing, alts={"a": "a", "b": "b"}, effects=up), "Have another processor read the inputs"
    timers = {"timers": Timers(nothing)}
    yield lambda: Processor(nothing, inputs="a", effects=up, state=timers), "A timer has no offset"
    sink = Sink("s", inputs="flights", into=sql.table("flight", columns=["id", "carier"]))
    yield lambda: graph_of(sink, value=Json(Flight)), "has no field 'carier' (did you mean 'carrier'?)"
    yield lambda: graph_of(sink, value=Raw()), "are bytes, which have no fields"


def test_declarations_that_cannot_work_are_refused(sql: Sql) -> None:
    """With what to write."""
    for declare, text in wrong_declarations(sql):
        with pytest.raises(GraphError) as refused:
            declare()
        assert text in str(refused.value)


# As data


def test_tables_are_written_down_and_read_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the variable that holds the address, never with the address."""
    sql = Sql(env="SHOP_DATABASE")
    graph = Graph(
        "g",
        Source("flights"),
        Sink("rows", inputs="flights", into=sql.table("shop.flight", columns={"id": "number"})),
        Sink("latest", inputs="flights", into=sql.upsert("latest", key=["a", "b"], columns=["a", "n"])),
        Processor(keep, inputs="flights", outputs="kept", effects={"latest": latest(sql)}),
    )

    assert Graph.from_dict(graph.to_dict()) == graph
    with pytest.raises(GraphError, match="its address would be in the text"):
        graph_of(Sink("rows", inputs="flights", into=Sql("sqlite:///x").table("t", columns=["a"]))).to_dict()


def both(flight: dict[str, Any], db: Any, rows: Any, latest: Any) -> None:
    """Several tables of one database, and statements, in one transaction."""
    rows.insert({"id": flight["n"], "carrier": flight["carrier"]})
    latest.put(flight)
    db.execute("INSERT INTO flight (id, carrier) VALUES (?, 'by hand')", (100 + flight["n"],))


def test_a_function_may_act_on_several_tables_of_one_database(path: Path, sql: Sql) -> None:
    """All of a step is there, or none of it."""
    effects = {"db": sql, "rows": sql.table("flight", columns=["id", "carrier"]), "latest": latest(sql)}
    shop = Shop(path, Processor(both, inputs="flights", effects=effects))
    shop.send({"carrier": "UA", "n": 1}, {"carrier": "UA", "n": 1}, {"carrier": "UA", "n": 2}).run()

    assert shop.rows() == [("UA", 2)]
    assert [row[0] for row in shop.rows("SELECT id FROM flight ORDER BY id")] == [1, 2, 101, 102]
    assert len(shop.errors()) == 1


def test_several_columns_of_a_key(tmp_path: Path) -> None:
    """They are given in order or by name; the text of a message's key does not say them."""
    path = tmp_path / "two.db"
    with sqlite3.connect(path) as made:
        made.execute(f"CREATE TABLE latest (a TEXT, b TEXT, n INTEGER, {GUARD}, PRIMARY KEY (a, b))")
    upsert = Sql(f"sqlite:///{path}").upsert("latest", key=["a", "b"], columns=["n"])
    shop = Shop(path, Processor(by_two, name="by_two", inputs="flights", effects={"latest": upsert}))
    shop.send({"a": 1, "b": 1, "n": 1}, {"a": 2, "b": 1, "n": 2}, {"a": 3, "b": 1, "n": 3}, {"drop": [1, 1]}).run()
    shop.send({"drop": {"a": 2, "b": 1}}, {"drop": "31"}, {"drop": [1]}).run()

    assert shop.rows("SELECT a, b, n FROM latest WHERE NOT cues_deleted") == [("3", "1", 3)]
    unnamed, short = shop.errors()
    assert unnamed.startswith("'31' lacks columns of the key of table 'latest': a, b.")
    assert short == "[1] has 1 parts, the key of table 'latest' 2: a, b"


def by_two(flight: dict[str, Any], latest: Any) -> None:
    """Put or delete."""
    latest.delete(flight["drop"]) if "drop" in flight else latest.put(flight)


def test_a_table_is_valid_only_during_the_call(path: Path, sql: Sql) -> None:
    """What comes later would be of no step."""
    kept: list[Any] = []

    def escape(flight: dict[str, Any], latest: Any, rows: Any) -> None:
        kept[:] = [latest.put, rows.insert]

    effects: dict[str, SqlTable | Upsert] = {"latest": latest(sql), "rows": sql.table("entry", columns=["id"])}
    shop = Shop(path, Processor(escape, inputs="flights", effects=effects))
    shop.send({"carrier": "UA", "n": 1}).run()

    for method in kept:
        with pytest.raises(RuntimeError, match="valid only during the call"):
            method({"carrier": "UA", "n": 1, "id": 1})

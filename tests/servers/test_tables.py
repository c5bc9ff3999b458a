"""Tables that a graph writes, on a real PostgreSQL and a real MariaDB (E2); SQLite's cases are in tests/unit/sinks."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

from cues_kafka import CommitPolicy, ConfigError, Graph, Message, Sink, Source, Sql, Topic
from cues_kafka.brokers.memory import MemoryBroker
from cues_kafka.graph.effects import Upsert
from cues_kafka.operate.move.base import Maintenance
from cues_kafka.operate.move.reset import reset
from cues_kafka.plan.inspectors import Terms
from cues_kafka.ports.log import Coordinates
from cues_kafka.sinks.dialect import OUTBOX, TASKS, Dialect
from cues_kafka.sinks.lookup import dialect
from cues_kafka.sinks.rows import UpsertTable
from cues_kafka.sinks.table_checks import GUARD
from cues_kafka.sinks.tables import make_tables
from cues_kafka.task.making.prepare import plan_start
from cues_kafka.testing.tester import Crash, Tester


class Server:
    """A database of one of the kinds, with the tables of the tests."""

    def __init__(self, url: str) -> None:
        self.sql = Sql(url)
        self.talk: Dialect = dialect(self.sql)
        self.connection = self.talk.connect()
        guard = ", ".join(GUARD[self.talk.name])
        self.run("CREATE TABLE flight (id BIGINT PRIMARY KEY, carrier VARCHAR(9) NOT NULL)")
        self.run(f"CREATE TABLE latest (carrier VARCHAR(9) PRIMARY KEY, n BIGINT, {guard})")

    def run(self, statement: str) -> Any:
        """Run a statement."""
        return self.talk.execute(self.connection, statement)

    def latest(self) -> list[tuple[Any, ...]]:
        """The rows that are not deleted."""
        return list(self.run("SELECT carrier, n FROM latest WHERE NOT cues_deleted ORDER BY carrier").fetchall())

    @property
    def upsert(self) -> Upsert:
        """The table as it is declared."""
        return self.sql.upsert("latest", key="carrier", columns=["carrier", "n"])


@pytest.fixture(params=["postgres", "mariadb"])
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """An empty database."""
    found = Server(request.getfixturevalue(request.param).url)
    yield found
    found.talk.close(found.connection)


def graph_of(*sinks: Any) -> Graph:
    """Sinks over one topic."""
    return Graph("g", Source("flights"), *sinks, errors="errors", defaults=Topic(partitions=1))


def test_rows_and_newest_rows_through_a_crash_and_a_reset(server: Server) -> None:
    """Each row once, by COPY where there is one; the newest row of each key, and no older one in a replay."""
    graph = graph_of(
        Sink("rows", inputs="flights", into=server.sql.table("flight", columns={"id": "n", "carrier": "carrier"})),
        Sink("latest", inputs="flights", into=server.upsert),
    )
    tester = Tester(graph, policy=CommitPolicy(max_messages=4))
    for i in range(20):
        tester.send("flights", {"n": i, "carrier": None if i == 7 else f"c{i % 2}"}, key=f"c{i % 2}")
    tester.send("flights", Message(None, key="c1"))
    tester.run(crash=Crash("after", "CommitTarget", 3))
    assert tester.crashed
    tester.restart().run()

    assert [row[0] for row in server.run("SELECT id FROM flight ORDER BY id").fetchall()] == [
        i for i in range(20) if i != 7
    ]
    assert server.latest() == [("c0", 18)]
    assert len(tester.errors()) == 3  # number 7 in both sinks, and the tombstone as a row

    tester.stop()
    tool = Maintenance(graph, tester.broker, "latest", who="test", clock=tester.clock)
    tool.carry_out(reset(tool, to="earliest"))
    replay = Tester(graph, policy=CommitPolicy(max_messages=4), broker=tester.broker, only=["latest"])
    replay.run(crash=Crash("after", "CommitTarget", 1))
    assert server.latest() == [("c0", 18)]
    replay.restart().run()
    assert server.latest() == [("c0", 18)]


def test_the_guard_keeps_what_a_model_of_it_keeps(server: Server) -> None:
    """Random changes, in batches: of several keys, sources and offsets, in any order."""
    chance = random.Random(7)
    within: Any = Within(server)
    table = UpsertTable(within, server.upsert)
    model: dict[str, tuple[int, str, int, bool]] = {}
    for n in range(300):
        key, source, offset = chance.choice("abc"), chance.choice((0, 0, 0, 1)), chance.randrange(40)
        table.places = [Coordinates("input", b"\xfb" * 16, source, offset)]
        held = model.get(key)
        wins = held is None or held[1] != str(source) or held[2] <= offset
        if chance.random() < 0.3:
            table.delete(key)
            if held is not None and wins:
                model[key] = (held[0], str(source), offset, True)
        else:
            table.put({"carrier": key, "n": n})
            if wins:
                model[key] = (n, str(source), offset, False)
        if chance.random() < 0.1:
            table.flush()
    table.flush()

    rows = server.run("SELECT carrier, n, cues_source, cues_offset, cues_deleted FROM latest").fetchall()
    assert {row[0]: (row[1], row[2].split("/")[1], row[3], bool(row[4])) for row in rows} == model


class Within:
    """A transaction that is open for the test."""

    def __init__(self, server: Server) -> None:
        self.dialect = server.talk
        self.in_use = server.connection


def test_a_table_that_does_not_fit_is_refused(server: Server) -> None:
    """With statements that make it fit."""
    server.run("CREATE TABLE bare (carrier VARCHAR(9), n BIGINT)")
    bare = server.sql.upsert("bare", key="carrier", columns=["carrier", "m"])
    with pytest.raises(ConfigError) as refused:
        Tester(graph_of(Sink("bare", inputs="flights", into=bare)))
    text = str(refused.value)
    assert "table 'bare': it has no column 'm'" in text

    bare = server.sql.upsert("bare", key="carrier", columns=["n"])
    with pytest.raises(ConfigError, match="CREATE UNIQUE INDEX bare_key") as refused:
        Tester(graph_of(Sink("bare", inputs="flights", into=bare)))
    for line in str(refused.value).splitlines():
        for remedy in ("ALTER TABLE", "CREATE UNIQUE INDEX"):
            if remedy in line:
                server.run(line[line.index(remedy) :])
    tester = Tester(graph_of(Sink("bare", inputs="flights", into=bare)))
    tester.send("flights", {"carrier": "UA", "n": 1})
    tester.run()

    assert server.run("SELECT carrier, n FROM bare").fetchone() == ("UA", 1)


BOTH, PG, MY = ("postgres", "mariadb"), ("postgres",), ("mariadb",)
UNFIT = (
    (
        BOTH,
        "carrier VARCHAR(9) PRIMARY KEY, n BIGINT, seat BIGINT NOT NULL",
        "'seat', which takes no NULL and has no def",
    ),
    (
        BOTH,
        "carrier VARCHAR(9), n BIGINT, PRIMARY KEY (carrier, n)",
        "exactly the columns 'carrier' of key=. Add one: ",
    ),
    (BOTH, "carrier VARCHAR(9) PRIMARY KEY, n BIGINT GENERATED ALWAYS AS (1) STORED", "rows cannot be written: "),
    (PG, "carrier VARCHAR(9) UNIQUE DEFERRABLE, n BIGINT", "'latest_carrier_key' may wait for the commit (DEFERRABLE)"),
    (
        MY,
        "carrier VARCHAR(9), n BIGINT, UNIQUE (carrier(3))",
        "no unique index has exactly the columns 'carrier' of key=",
    ),
    (
        MY,
        "carrier VARCHAR(9) PRIMARY KEY, n BIGINT, UNIQUE by_n (n)",
        "the unique index 'by_n' has other columns than key",
    ),
)
"""Columns of a table that no upsert can write, in which databases, and a part of what is said."""


@pytest.mark.parametrize(
    ("server", "columns", "told"),
    [(one, columns, told) for kinds, columns, told in UNFIT for one in kinds],
    indirect=["server"],
)
def test_a_table_whose_rows_or_keys_do_not_fit_is_refused_and_not_touched(
    server: Server, columns: str, told: str
) -> None:
    """With the remedy, by a plan and by a start. Else each row would fail, or take the place of another key's."""
    server.run("DROP TABLE latest")
    server.run(f"CREATE TABLE latest ({columns}, {', '.join(GUARD[server.talk.name])})")
    graph = graph_of(Sink("latest", inputs="flights", into=server.upsert))

    refusals = plan_start(graph, MemoryBroker(), Terms()).refusals
    with pytest.raises(ConfigError) as refused:
        Tester(graph)

    assert all(one.startswith("latest, effects['into'], table 'latest': ") for one in refusals)
    assert told in " ".join(refusals)
    assert told in str(refused.value)
    assert server.latest() == []


FILLED: dict[str, tuple[str, list[str]]] = {
    "postgresql": (
        "number BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
        [
            "CREATE FUNCTION fill() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN NEW.seat := 7; RETURN NEW; END'",
            "CREATE TRIGGER fill BEFORE INSERT ON latest FOR EACH ROW EXECUTE FUNCTION fill()",
        ],
    ),
    "mysql": (
        "number BIGINT AUTO_INCREMENT PRIMARY KEY, kind ENUM('a', 'b') NOT NULL",
        ["CREATE TRIGGER fill BEFORE INSERT ON latest FOR EACH ROW SET NEW.seat = 7, NEW.kind = 'b'"],
    ),
}
"""How each kind of database counts rows, and the statements that make a trigger which fills `seat`."""


def test_columns_that_the_database_fills_need_no_value(server: Server) -> None:
    """By a default, by counting, by computing, and by a trigger before the insertion."""
    numbered, trigger = FILLED[server.talk.name]
    server.run("DROP TABLE latest")
    server.run(
        f"CREATE TABLE latest ({numbered}, carrier VARCHAR(9) UNIQUE NOT NULL, n BIGINT NOT NULL, "
        f"seat BIGINT NOT NULL, town VARCHAR(9) DEFAULT '' NOT NULL, twice BIGINT GENERATED ALWAYS AS (2 * n) STORED, "
        f"{', '.join(GUARD[server.talk.name])})"
    )
    graph = graph_of(Sink("latest", inputs="flights", into=server.upsert))
    with pytest.raises(ConfigError, match="without the column 'seat', which"):
        Tester(graph)
    for statement in trigger:
        server.run(statement)
    tester = Tester(graph)
    for n, carrier in enumerate(["UA", "B6", "UA"]):
        tester.send("flights", {"carrier": carrier, "n": n}, key=carrier)
    tester.run()

    assert tester.errors() == []
    assert server.latest() == [("B6", 1), ("UA", 2)]
    rows = server.run("SELECT carrier, seat, twice FROM latest ORDER BY carrier").fetchall()
    assert list(rows) == [("B6", 7, 2), ("UA", 7, 4)]


def test_rows_of_an_identity_column_are_written_by_copy(postgres: Any) -> None:
    """PostgreSQL refuses such values in INSERT and takes them in COPY, which a table of rows is written by."""
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute("CREATE TABLE flight (id bigint GENERATED ALWAYS AS IDENTITY, carrier text NOT NULL)")
        sql = Sql(postgres.url)
        rows = sql.table("flight", columns=["id", "carrier"])
        tester = Tester(graph_of(Sink("rows", inputs="flights", into=rows)))
        tester.send("flights", {"id": 5, "carrier": "UA"})
        tester.run()
        assert connection.execute("SELECT id, carrier FROM flight").fetchall() == [(5, "UA")]
        for addition in (*GUARD["postgresql"], "UNIQUE (id)"):
            connection.execute(f"ALTER TABLE flight ADD {addition}")
        upsert = sql.upsert("flight", key="id", columns=["carrier"])
        with pytest.raises(ConfigError, match="rows cannot be written: cannot insert a non-DEFAULT value"):
            Tester(graph_of(Sink("latest", inputs="flights", into=upsert)))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (f"ALTER TABLE {TASKS} DROP COLUMN backend", "no backend"),
        (f"ALTER TABLE {TASKS} ADD COLUMN version INT", "version is not known"),
        (f"ALTER TABLE {OUTBOX} {{modify}}", "place is bigint, not int"),
    ],
)
def test_our_tables_of_another_shape_are_refused(change: str, told: str, server: Server) -> None:
    """Those of this release are taken as they are, also at the second start."""
    for _ in range(2):
        make_tables(server.sql, "the test", create=True)
    modify = {"postgresql": "ALTER place TYPE bigint", "mysql": "MODIFY place BIGINT NOT NULL"}[server.talk.name]
    server.run(change.format(modify=modify))

    with pytest.raises(ConfigError, match=rf"the test: the table cues_\w+ has other columns .*\({told}"):
        make_tables(server.sql, "the test", create=True)


def test_a_table_that_the_user_may_not_write_is_refused(postgres: Any) -> None:
    """Else each message would become an error, for a fault that is none of theirs."""
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute(
            f"CREATE TABLE latest (carrier text PRIMARY KEY, n bigint, {', '.join(GUARD['postgresql'])})"
        )
        connection.execute("CREATE ROLE reader LOGIN PASSWORD 'r'")
        connection.execute("GRANT SELECT, INSERT ON latest TO reader")
        url = urlsplit(postgres.url)
        reader = Sql(url._replace(netloc=f"reader:r@{url.hostname}:{url.port}").geturl())
        try:
            upsert = reader.upsert("latest", key="carrier", columns=["n"])
            with pytest.raises(ConfigError, match=r"rows cannot be written: permission denied .* Grant SELECT, INSERT"):
                Tester(graph_of(Sink("latest", inputs="flights", into=upsert)))
        finally:
            connection.execute("DROP OWNED BY reader")
            connection.execute("DROP ROLE reader")


def test_a_table_in_a_schema_is_found(postgres: Any) -> None:
    """And one that is not there is refused."""
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA shop")
        connection.execute("CREATE TABLE shop.flight (id bigint)")
        sql = Sql(postgres.url)
        tester = Tester(graph_of(Sink("rows", inputs="flights", into=sql.table("shop.flight", columns=["id"]))))
        tester.send("flights", {"id": 1})
        tester.run()
        assert connection.execute("SELECT id FROM shop.flight").fetchall() == [(1,)]
        with pytest.raises(ConfigError, match=r'relation "shop.other" does not exist'):
            Tester(graph_of(Sink("rows", inputs="flights", into=sql.table("shop.other", columns=["id"]))))

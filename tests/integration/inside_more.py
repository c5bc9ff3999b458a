"""More of what user code and databases do inside the transaction: triggers on our tables, odd texts, odd uses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from tests.integration.inside import KEPT, LITE, MY, PG, REFUSED, Case, function, quietly, sql


def rows_that_run(db: Any) -> None:
    """Runs a statement while rows go to the database."""

    def rows() -> Iterator[tuple[int]]:
        yield (2000,)
        db.execute("SELECT 1").fetchall()
        yield (2001,)

    db.insert("t", ["x"], rows())


def many_that_run(db: Any) -> None:
    """Runs a statement while rows of `executemany` are made: psycopg would wait for its own lock without end."""

    def rows() -> Iterator[tuple[int]]:
        for number in (2000, 2001):
            [found] = db.execute("SELECT count(*) FROM t WHERE x = 3").fetchone()
            yield (number + 10 * found,)

    db.executemany("INSERT INTO t (x) VALUES (%s)", rows())


def rows_that_fail(db: Any) -> None:
    """Fails while rows go to the database."""

    def rows() -> Iterator[tuple[int]]:
        yield (2000,)
        raise ValueError("no more")

    db.insert("t", ["x"], rows())


def odd_row(then: str, table: str, when: str) -> str:
    """A trigger of SQLite on a table of ours, which acts where the odd message has its row."""
    return f"CREATE TRIGGER tr {when} ON {table} WHEN EXISTS (SELECT 1 FROM t WHERE x = 3) BEGIN {then}; END"


def pg_trigger(body: str, table: str, when: str, *, deferred: bool = False) -> tuple[str, ...]:
    """The same of PostgreSQL."""
    kind = "CONSTRAINT TRIGGER" if deferred else "TRIGGER"
    late = "DEFERRABLE INITIALLY DEFERRED " if deferred else ""
    return (
        (
            "CREATE FUNCTION odd() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
            f"IF EXISTS (SELECT FROM public.t WHERE x = 3) THEN {body}; END IF; RETURN NEW; END $$"
        ),
        f"CREATE {kind} tr {when} ON {table} {late}FOR EACH ROW EXECUTE FUNCTION odd()",
    )


def my_trigger(body: str, table: str, when: str) -> tuple[str, ...]:
    """The same of MariaDB."""
    return (
        (
            f"CREATE TRIGGER tr {when} ON {table} FOR EACH ROW BEGIN "
            f"IF EXISTS (SELECT 1 FROM t WHERE x = 3) THEN {body}; END IF; END"
        ),
    )


NOTHING: Final = sql()
"""The function does nothing odd; the database does."""

U: Final = "CREATE TABLE u (x INTEGER)"

MORE: Final = (
    # Triggers and rules on our tables, which count as if they had let the row be moved
    Case("step set back by a trigger", NOTHING, REFUSED, LITE, (
        odd_row("UPDATE cues_task SET step = OLD.step", "cues_task", "AFTER UPDATE"),)),
    Case("step kept by a trigger", NOTHING, REFUSED, PG, pg_trigger(
        "NEW.step := OLD.step", "cues_task", "BEFORE UPDATE")),
    Case("step set back by a trigger behind", NOTHING, REFUSED, PG, pg_trigger(
        "IF pg_trigger_depth() < 2 THEN UPDATE public.cues_task SET step = OLD.step; END IF",
        "cues_task", "AFTER UPDATE")),
    Case("row deleted by a trigger behind", NOTHING, REFUSED, PG, pg_trigger(
        "DELETE FROM public.cues_task", "cues_task", "AFTER UPDATE")),
    Case("row deleted by a deferred trigger", NOTHING, REFUSED, PG, pg_trigger(
        "DELETE FROM public.cues_task", "t", "AFTER INSERT", deferred=True)),
    Case("row moved by a deferred trigger", NOTHING, REFUSED, PG, pg_trigger(
        "UPDATE public.cues_task SET step = step + 1", "t", "AFTER INSERT", deferred=True)),
    Case("row deleted by a deferred trigger of ours", NOTHING, REFUSED, PG, pg_trigger(
        "DELETE FROM public.cues_task", "cues_task", "AFTER UPDATE", deferred=True)),
    Case("attempt changed by a trigger of MariaDB", NOTHING, REFUSED, MY, my_trigger(
        "SET NEW.step = OLD.step", "cues_task", "BEFORE UPDATE")),
    Case("outbox ignored by a trigger", NOTHING, REFUSED, LITE, (
        odd_row("SELECT RAISE(IGNORE)", "cues_outbox", "BEFORE INSERT"),)),
    Case("outbox emptied by a trigger", NOTHING, REFUSED, LITE, (
        odd_row("DELETE FROM cues_outbox", "cues_outbox", "AFTER INSERT"),)),
    Case("outbox ignored by a rule", NOTHING, REFUSED, PG, (
        "CREATE RULE r AS ON INSERT TO cues_outbox WHERE EXISTS (SELECT FROM t WHERE x = 3) DO INSTEAD NOTHING",)),
    Case("outbox emptied by a deferred trigger", NOTHING, REFUSED, PG, pg_trigger(
        "DELETE FROM public.cues_outbox", "t", "AFTER INSERT", deferred=True)),
    Case("outbox changed by a trigger", NOTHING, REFUSED, PG, pg_trigger(
        "NEW.records := ''", "cues_outbox", "BEFORE INSERT")),
    Case("outbox moved by a trigger of MariaDB", NOTHING, REFUSED, MY, my_trigger(
        "SET NEW.processor = 'x'", "cues_outbox", "BEFORE INSERT")),
    # Odd texts
    Case("COMMIT behind a text that goes on", sql("SELECT E'a'\n'\\'' ; COMMIT; -- '"), REFUSED, PG),
    Case("COMMIT behind a text that goes on behind a comment",
         sql("SELECT E'a' -- b\n --c\n '\\'' ; COMMIT; -- '"), REFUSED, PG),
    Case("COMMIT between comments that MariaDB runs", sql("/*!999999 ' */ COMMIT /*!999999 ' */"), REFUSED, MY),
    Case("COMMIT in a comment of the next but one", sql("/*M!999999 ' */ COMMIT /*M!999999 ' */"), REFUSED, MY),
    Case("COMMIT by a parameter in a comment", lambda db: db.execute(
        "/* order %s */ INSERT INTO t (x) VALUES (%s)", ("*/ COMMIT -- ", 1000)), REFUSED, MY),
    Case("SET STATEMENT for CALL", sql("SET STATEMENT max_statement_time = 10 FOR CALL odd()"), REFUSED, MY, (
        "CREATE PROCEDURE odd() BEGIN COMMIT; END",)),
    Case("SET STATEMENT for EXECUTE", sql("SET STATEMENT max_statement_time = 10 FOR EXECUTE IMMEDIATE 'COMMIT'"),
         REFUSED, MY),
    Case("COMMIT in CASE", sql("CASE 1 WHEN 1 THEN COMMIT; END CASE"), REFUSED, MY),
    Case("COMMIT in FOR", sql("FOR i IN 1..1 DO COMMIT; END FOR"), REFUSED, MY),
    Case("COMMIT behind a label", sql("a: BEGIN NOT ATOMIC COMMIT; END a"), REFUSED, MY),
    Case("BEGIN IMMEDIATE", sql("BEGIN IMMEDIATE"), REFUSED, LITE),
    Case("END", sql("END TRANSACTION"), REFUSED, ("sqlite", "postgresql")),
    Case("ATTACH", sql("ATTACH ':memory:' AS other"), REFUSED, LITE),
    Case("XA", sql("XA START 'a'"), REFUSED, MY),
    Case("LOCK TABLES", sql("LOCK TABLES t WRITE"), REFUSED, MY),
    # Odd uses
    Case("COPY from the client", sql("COPY t FROM STDIN"), REFUSED, PG),
    Case("COPY from the client that is taken", quietly(sql("COPY t FROM STDIN")), KEPT, PG),
    Case("COPY to the client", sql("COPY t TO STDOUT"), REFUSED, PG),
    Case("rows that run a statement", rows_that_run, REFUSED, PG),
    Case("rows of a statement that run another", many_that_run, KEPT, (*PG, *MY)),
    Case("rows that fail", rows_that_fail, REFUSED),
    Case("cursor that is held", sql("DECLARE c CURSOR WITH HOLD FOR SELECT 1"), KEPT, PG),
    Case("cursor that is open", sql("DECLARE c CURSOR FOR SELECT 1", "FETCH 1 FROM c"), KEPT, PG),
    Case("LISTEN", sql("LISTEN a", "NOTIFY a"), KEPT, PG),
    Case("SELECT INTO", sql("SELECT 1 AS x INTO TEMP made"), KEPT, PG),
    Case("INTO a table of our name", sql("SELECT odd()"), KEPT, PG, function(
        "CREATE TEMP TABLE cues_outbox AS SELECT * FROM public.cues_outbox")),
    Case("constraints deferred", sql("SET CONSTRAINTS ALL DEFERRED"), KEPT, PG),
    Case("user of the session", sql("SET SESSION AUTHORIZATION DEFAULT"), KEPT, PG),
    Case("triggers off", sql("SET LOCAL session_replication_role = replica"), KEPT, PG),
    Case("lock of the table", sql("LOCK TABLE t IN ACCESS EXCLUSIVE MODE"), KEPT, PG),
    Case("read only in a function", sql("SELECT odd()"), KEPT, PG, function(
        "PERFORM set_config('transaction_read_only', 'on', true)")),
    Case("read only in a function, then a row", sql("SELECT odd()", "INSERT INTO t VALUES (1000)"), REFUSED, PG,
         function("PERFORM set_config('transaction_read_only', 'on', true)")),
    Case("internal error of a function", sql("SELECT odd()"), REFUSED, PG, function(
        "RAISE EXCEPTION 'parse error - invalid geometry' USING ERRCODE = 'XX000'")),
    Case("file that is missing", sql("COPY t FROM '/nowhere/at/all'"), REFUSED, PG),
    Case("a mode of Oracle", sql("SET SESSION sql_mode = 'ORACLE'"), KEPT, MY),
    Case("texts that are NULL", sql("SET SESSION sql_mode = 'EMPTY_STRING_IS_NULL'"), KEPT, MY),
    Case("locks released", sql("SELECT RELEASE_ALL_LOCKS()"), REFUSED, MY),
    Case("HANDLER", sql("HANDLER t OPEN"), KEPT, MY),
    Case("SIGNAL", sql("SIGNAL SQLSTATE '45000'"), REFUSED, MY),
    Case("value that is too large", lambda db: db.execute(
        "INSERT INTO u VALUES (LENGTH(%s))", ("a" * (17 << 20),)), REFUSED, MY, (U,)),
    Case("rows of a script", sql("INSERT INTO t VALUES (1000); INSERT INTO t VALUES (1001)"), KEPT, PG),
    Case("rows of a script, refused", sql("INSERT INTO t VALUES (1000); INSERT INTO t VALUES (1001)"),
         REFUSED, ("sqlite", "mysql")),
    Case("rollback in a savepoint", quietly(sql("INSERT OR ROLLBACK INTO u VALUES (1)")), REFUSED, LITE,
         ("CREATE TABLE u (x UNIQUE)", "INSERT INTO u VALUES (1)")),
    Case("ROLLBACK of many", lambda db: db.executemany("INSERT OR ROLLBACK INTO u VALUES (?)", [(2,), (1,)]), REFUSED,
         LITE, ("CREATE TABLE u (x UNIQUE)", "INSERT INTO u VALUES (1)")),
    Case("RAISE(FAIL)", sql("INSERT INTO u VALUES (1)"), REFUSED, LITE, (
        "CREATE TABLE u (x)", "CREATE TRIGGER tr BEFORE INSERT ON u BEGIN SELECT RAISE(FAIL, 'no'); END")),
    Case("VACUUM", sql("VACUUM"), REFUSED, ("sqlite", "postgresql")),
    Case("ANALYZE", sql("ANALYZE"), KEPT, LITE),
    Case("EXPLAIN COMMIT", sql("EXPLAIN COMMIT"), KEPT, LITE),
)  # fmt: skip
"""All of it."""

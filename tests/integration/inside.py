"""What user code and databases do inside the transaction of a batch: one table, for all databases."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

ALL: Final = ("sqlite", "postgresql", "mysql")
PG: Final = ("postgresql",)
MY: Final = ("mysql",)
LITE: Final = ("sqlite",)

KEPT, REFUSED = True, False
ODD: Final = 3
"""The message at which something odd is done, in the middle of a batch."""


class Case(NamedTuple):
    """
    Something odd.

    Attributes:
        name: of it.
        act: does it, with the function's connection; the row of the message is written before.
        kept: whether the message has its row and its output; else it is an error message.
        where: the databases that it is tried on.
        made: statements that an administrator has run before; in them `{schema}` is a new schema's name.
        value: what the odd message writes.
    """

    name: str
    act: Callable[[Any], Any]
    kept: bool
    where: Sequence[str] = ALL
    made: Sequence[str] = ()
    value: int = ODD


def sql(*statements: str) -> Callable[[Any], None]:
    """Runs these statements one after the other."""

    def act(db: Any) -> None:
        for statement in statements:
            db.execute(statement)

    return act


def quietly(act: Callable[[Any], Any]) -> Callable[[Any], None]:
    """Takes whatever the odd thing raises, and writes on."""

    def quiet(db: Any) -> None:
        try:
            act(db)
        except Exception:
            db.execute("INSERT INTO t (x) VALUES (1000)")

    return quiet


def left_savepoint(db: Any) -> None:
    """Begins a savepoint, and never ends it."""
    db.savepoint().__enter__()
    db.execute("INSERT INTO t (x) VALUES (2000)")


def in_thread(db: Any) -> None:
    """Has another thread write."""
    raised: list[BaseException] = []

    def write() -> None:
        try:
            db.execute("INSERT INTO t (x) VALUES (3000)")
        except RuntimeError as error:
            raised.append(error)

    thread = threading.Thread(target=write)
    thread.start()
    thread.join()
    assert len(raised) == 1


TENANT: Final = ("CREATE SCHEMA {schema}", "CREATE TABLE {schema}.t (x INTEGER)")
SHADOW: Final = "SELECT * INTO TEMP cues_ta" + "sk FROM (SELECT 1 AS x) AS y"
FUNCTION: Final = "CREATE FUNCTION odd() RETURNS integer LANGUAGE plpgsql AS $$ BEGIN {body}; RETURN 1; END $$".replace(
    "{body}", "{}"
)


def function(body: str) -> tuple[str, ...]:
    """A function of PostgreSQL that does this."""
    return (FUNCTION.format(body),)


CASES: Final = (
    # The end of the transaction, in a text
    Case("COMMIT", sql("COMMIT"), REFUSED),
    Case("COMMIT that is taken", quietly(sql("COMMIT")), KEPT),
    Case("ROLLBACK behind a comment", sql("/* a */ ROLLBACK"), REFUSED),
    Case("COMMIT behind another statement", sql("SELECT 1; COMMIT"), REFUSED),
    Case("COMMIT in a text", sql("SELECT '; COMMIT'"), KEPT),
    Case("SAVEPOINT", sql("SAVEPOINT cues"), REFUSED),
    Case("PREPARE TRANSACTION", sql("PREPARE TRANSACTION 'a'"), REFUSED),
    Case("START TRANSACTION", sql("START TRANSACTION"), REFUSED),
    Case("COMMIT in DO", sql("DO $$ BEGIN COMMIT; END $$"), REFUSED, PG),
    Case("COMMIT in CALL", sql("CALL odd()"), REFUSED, PG, (
        "CREATE PROCEDURE odd() LANGUAGE plpgsql AS $$ BEGIN COMMIT; END $$",)),
    Case("COMMIT in CALL of MariaDB", sql("CALL odd()"), REFUSED, MY, ("CREATE PROCEDURE odd() BEGIN COMMIT; END",)),
    Case("COMMIT in EXECUTE", sql("EXECUTE IMMEDIATE 'COMMIT'"), REFUSED, MY),
    Case("COMMIT with a backslash", sql(
        "SET LOCAL standard_conforming_strings = off", "SELECT '\\'; COMMIT; SELECT '\\'"), REFUSED, PG),
    Case("DDL", sql("CREATE TABLE u (x INTEGER)"), REFUSED),
    Case("DDL of MariaDB that commits", sql("ANALYZE TABLE t"), REFUSED, MY),
    Case("autocommit", sql("SET autocommit = 1"), REFUSED, MY),
    Case("completion_type", sql("SET completion_type = 'CHAIN'"), REFUSED, MY),
    # The end of the transaction, by the driver or by the database
    Case("execute of the result", lambda db: db.execute("SELECT 1").execute("COMMIT"), REFUSED),
    Case("commit of the driver", lambda db: db.execute("SELECT 1").connection.commit(), REFUSED),
    Case("script of the driver", lambda db: db.execute("SELECT 1").executescript("SELECT 1"), REFUSED),
    Case("INSERT OR ROLLBACK", sql("INSERT OR ROLLBACK INTO u VALUES (1)"), REFUSED, LITE, (
        "CREATE TABLE u (x UNIQUE)", "INSERT INTO u VALUES (1)")),
    Case("INSERT OR ROLLBACK that is taken", quietly(sql("INSERT OR ROLLBACK INTO u VALUES (1)")), REFUSED, LITE, (
        "CREATE TABLE u (x UNIQUE)", "INSERT INTO u VALUES (1)")),
    Case("ON CONFLICT ROLLBACK", sql("INSERT INTO u VALUES (1)"), REFUSED, LITE, (
        "CREATE TABLE u (x UNIQUE ON CONFLICT ROLLBACK)", "INSERT INTO u VALUES (1)")),
    Case("ON CONFLICT ROLLBACK of many rows", lambda db: db.insert("u", ["x"], [(2,), (1,)]), REFUSED, LITE, (
        "CREATE TABLE u (x UNIQUE ON CONFLICT ROLLBACK)", "INSERT INTO u VALUES (1)")),
    Case("RAISE(ROLLBACK)", sql("INSERT INTO u VALUES (1)"), REFUSED, LITE, (
        "CREATE TABLE u (x)", "CREATE TRIGGER tr BEFORE INSERT ON u BEGIN SELECT RAISE(ROLLBACK, 'no'); END")),
    Case("RAISE in a trigger", sql("INSERT INTO u VALUES (1)"), REFUSED, PG, (
        "CREATE TABLE u (x INTEGER)", ("CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION 'no'; END $$"), "CREATE TRIGGER tr BEFORE INSERT ON u EXECUTE FUNCTION no()")),
    Case("savepoint that is left open", left_savepoint, REFUSED),
    # Settings
    Case("search_path", sql("SET LOCAL search_path TO {schema}"), KEPT, PG, TENANT),
    Case("search_path of the session", sql("SET search_path TO {schema}, public"), KEPT, PG, TENANT),
    Case("search_path with tables of ours", sql("SET LOCAL search_path TO {schema}"), KEPT, PG, (
        *TENANT, "CREATE TABLE {schema}.cues_task (LIKE cues_task INCLUDING ALL)",
        "CREATE TABLE {schema}.cues_outbox (LIKE cues_outbox INCLUDING ALL)",
        ("CREATE FUNCTION {schema}.fill() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        "INSERT INTO {schema}.cues_task SELECT * FROM public.cues_task ON CONFLICT DO NOTHING; RETURN NEW; END $$"),
        "CREATE TRIGGER tr AFTER INSERT ON t FOR EACH ROW EXECUTE FUNCTION {schema}.fill()")),
    Case("role", sql("SET LOCAL ROLE pg_monitor"), KEPT, PG),
    Case("role of the session", sql("SET ROLE pg_monitor"), KEPT, PG),
    Case("role of MariaDB", sql("SET ROLE NONE"), REFUSED, MY),
    Case("a short time limit", sql("SET LOCAL statement_timeout = '20ms'", "SELECT pg_sleep(1)"), REFUSED, PG),
    Case("a short time limit of MariaDB", sql("SET STATEMENT max_statement_time = 0.05 FOR SELECT SLEEP(1) FROM t"),
         REFUSED, MY),
    Case("a limit that ends the connection", sql("SET LOCAL idle_in_transaction_session_timeout = 1"), REFUSED, PG),
    Case("read only", sql("SET TRANSACTION READ ONLY"), REFUSED, PG),
    Case("read only by a function", sql("SELECT set_config('transaction_read_only', 'on', true)"), REFUSED, PG),
    Case("isolation of MariaDB", sql("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ"), REFUSED, MY),
    Case("limit of rows of MariaDB", sql("SET sql_select_limit = 0"), REFUSED, MY),
    Case("another database of MariaDB", sql("USE mysql"), REFUSED, MY),
    Case("a mode of MariaDB", sql("SET SESSION sql_mode = 'ANSI_QUOTES,NO_BACKSLASH_ESCAPES'"), KEPT, MY),
    Case("RESET ALL", sql("RESET ALL"), KEPT, PG),
    Case("encoding", sql("SET LOCAL client_encoding = 'LATIN1'"), KEPT, PG),
    Case("PRAGMA", sql("PRAGMA query_only = ON"), REFUSED, LITE),
    Case("DEALLOCATE", sql("DEALLOCATE ALL"), REFUSED, PG),
    # Our tables
    Case("our row deleted", sql("DELETE FROM cues_task"), REFUSED),
    Case("our outbox deleted", sql('DELETE FROM "cues_outbox"'), REFUSED, ("sqlite", "postgresql")),
    Case("our row deleted by a function", sql("SELECT odd()"), REFUSED, PG, function("DELETE FROM public.cues_task")),
    Case("our row moved by a function", sql("SELECT odd()"), REFUSED, PG, function(
        "UPDATE public.cues_task SET step = step + 1")),
    Case("our row deleted by a trigger", sql("INSERT INTO u VALUES (1)"), REFUSED, LITE, (
        "CREATE TABLE u (x)", "CREATE TRIGGER tr AFTER INSERT ON u BEGIN DELETE FROM cues_task; END")),
    Case("our row moved by a trigger", sql("INSERT INTO u VALUES (1)"), REFUSED, LITE, (
        "CREATE TABLE u (x)", "CREATE TRIGGER tr AFTER INSERT ON u BEGIN UPDATE cues_task SET step = 9; END")),
    Case("our row deleted by a trigger of MariaDB", sql("INSERT INTO u VALUES (1)"), REFUSED, MY, (
        "CREATE TABLE u (x INTEGER)", "CREATE TRIGGER tr AFTER INSERT ON u FOR EACH ROW DELETE FROM cues_task")),
    Case("a temporary table of our name", sql("SELECT odd()"), KEPT, PG, function(
        "CREATE TEMP TABLE cues_task AS SELECT * FROM public.cues_task")),
    Case("a temporary table of our name of MariaDB", sql("SELECT odd()"), KEPT, MY, (
        ("CREATE FUNCTION odd() RETURNS INTEGER NOT DETERMINISTIC MODIFIES SQL DATA BEGIN "
        "CREATE TEMPORARY TABLE copied AS SELECT * FROM cues_task; "
        "CREATE TEMPORARY TABLE cues_task AS SELECT * FROM copied; RETURN 1; END"),)),
    Case("another thread", in_thread, KEPT),
)  # fmt: skip
"""All of it."""

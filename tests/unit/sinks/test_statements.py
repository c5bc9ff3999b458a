"""Statements that user code must not run in the transaction of its batch."""

from __future__ import annotations

import pytest

from cues_kafka.sinks.statements import ENDING_MYSQL, refused

PASS = (
    "",
    "SELECT 1",
    "(SELECT 1)",
    "WITH x AS (SELECT 1) SELECT * FROM x",
    "INSERT INTO t VALUES (1); -- COMMIT\n",
    "INSERT INTO t VALUES ('; COMMIT')",
    "INSERT INTO t VALUES ('it''s; ROLLBACK')",
    'UPDATE "begin" SET "commit" = 1',
    "SELECT $$ ; COMMIT $$",
    "SELECT $tag$ ; COMMIT $tag$",
    "SET LOCAL statement_timeout = 1000",
    "SELECT a #> '{b}' FROM t",
)

REFUSED = (
    "COMMIT",
    "  commit ;",
    "-- why not\nROLLBACK",
    "/* a */ BEGIN",
    "/*!40000 COMMIT */",
    "SELECT 1; COMMIT",
    ";;COMMIT",
    "INSERT INTO t VALUES ('it''s'); ROLLBACK",
    "SELECT $$ a $$; END",
    "ROLLBACK TO SAVEPOINT cues",
    "SAVEPOINT cues",
    "RELEASE SAVEPOINT cues",
    "SET autocommit = 1",
    "SET @@session.autocommit = ON",
    "DROP TABLE t",
    "create index i on t (a)",
    "TRUNCATE t",
)


@pytest.mark.parametrize("statement", PASS)
def test_statement_that_ends_nothing_may_run(statement: str) -> None:
    assert refused(statement, ENDING_MYSQL) == ""


@pytest.mark.parametrize("statement", REFUSED)
def test_statement_that_ends_the_transaction_or_changes_tables_is_refused(statement: str) -> None:
    assert refused(statement)


@pytest.mark.parametrize("statement", ["LOCK TABLES t WRITE", "unlock tables", "ANALYZE TABLE t", "FLUSH TABLES"])
def test_statement_at_which_mysql_commits_is_refused_there_alone(statement: str) -> None:
    assert refused(statement, ENDING_MYSQL)
    assert refused(statement) == ""

"""Statements that user code must not run in the transaction of its batch, as each database reads them."""

from __future__ import annotations

import pytest

from cues_kafka.sinks.statements import MYSQL, POSTGRES, SQLITE, Grammar, refused

ALL = {"mysql": MYSQL, "postgres": POSTGRES, "sqlite": SQLITE}

PASS = (
    "",
    "SELECT 1",
    "(SELECT 1)",
    "WITH x AS (SELECT 1) SELECT * FROM x",
    "INSERT INTO t VALUES (1); -- COMMIT\n",
    "INSERT INTO t VALUES ('; COMMIT')",
    "INSERT INTO t VALUES ('it''s; ROLLBACK')",
    'UPDATE "begin" SET "commit" = 1',
    "SELECT 1 /* ; COMMIT */",
)

REFUSED = (
    "COMMIT",
    "  commit ;",
    "-- why not\nROLLBACK",
    "/* a */ BEGIN",
    "/* a **/ BEGIN",
    "SELECT 1; COMMIT",
    ";;COMMIT",
    "INSERT INTO t VALUES ('it''s'); ROLLBACK",
    "SELECT 'a\\\\'; COMMIT",
    "ROLLBACK TO SAVEPOINT cues",
    "SAVEPOINT cues",
    "RELEASE SAVEPOINT cues",
    "SET autocommit = 1",
    "SET @@session.autocommit = ON",
    "DROP TABLE t",
    "create index i on t (a)",
    "TRUNCATE t",
)

ONE_PASSES = (
    ("mysql", "SELECT 'a\\'; COMMIT; --'"),
    ("mysql", 'SELECT "a\\"; COMMIT; --"'),
    ("mysql", "SELECT 1 # ; COMMIT"),
    ("postgres", "SELECT E'a\\'; COMMIT; --'"),
    ("postgres", "SELECT e'a\\'; COMMIT; --'"),
    ("postgres", "SELECT $$ ; COMMIT $$"),
    ("postgres", "SELECT $tag$ ; COMMIT $tag$"),
    ("postgres", "SELECT a #> '{b}' FROM t"),
    ("postgres", "SET LOCAL statement_timeout = 1000"),
    ("postgres", "SELECT 1 /* /* */ ; COMMIT */"),
    ("postgres", "SELECT 1 /*! ; COMMIT */"),
    ("postgres", "SELECT $\u00b7$ ; COMMIT $\u00b7$"),
    ("postgres", "EXPLAIN ANALYZE SELECT 1"),
    ("mysql", "SELECT 1 -- \r; COMMIT"),
    ("mysql", "SET STATEMENT max_statement_time = 1 FOR SELECT 1"),
    ("mysql", "SET @a = 1"),
    ("sqlite", "SELECT 1 -- \r; COMMIT"),
    ("sqlite", "SELECT [; COMMIT]"),
    ("postgres", "SELECT E'a' -- b\n '\\'; COMMIT; --'"),
    ("postgres", "SELECT 1 /* 100%s */"),
    ("sqlite", "SELECT 1 /*! %s */"),
    ("mysql", "SELECT 1 /* ! 100 % */ -- 5 %\n"),
    ("mysql", "SELECT '/*! ', \"-- %s\" # 100 %"),
)
"""One database and what it may run."""

ONE_REFUSES = (
    ("mysql", "SELECT 1--1; COMMIT"),
    ("mysql", "/*!40000 COMMIT */"),
    ("mysql", "/*M!100000 COMMIT */"),
    ("mysql", "/* /* */ COMMIT"),
    ("mysql", "SELECT E'a\\'; --'; COMMIT"),
    ("postgres", "SELECT 'a\\'; COMMIT; --'"),
    ("postgres", 'SELECT "a\\"; COMMIT; --"'),
    ("postgres", "SELECT xe'a\\'; COMMIT; --'"),
    ("postgres", "SELECT $$ a $$; END"),
    ("postgres", "SELECT a #> '{b}' FROM t; COMMIT"),
    ("postgres", "SELECT a$b$; COMMIT; SELECT a$b$"),
    ("postgres", "/* /* a */ b */ COMMIT"),
    ("mysql", "SELECT 1 --\u00a0 FROM (SELECT 1 AS `\u00a0`) AS x; COMMIT"),
    ("mysql", "SET STATEMENT max_statement_time = 1 FOR COMMIT"),
    ("mysql", "IF 1 THEN COMMIT; END IF"),
    ("postgres", "SELECT 1 -- \r; COMMIT"),
    ("postgres", "SELECT 1 AS \u00b7$$; COMMIT; SELECT 1 AS a$$"),
    ("postgres", "SELECT 1 AS \u00a0$$; COMMIT; SELECT 1 AS a$$"),
    ("sqlite", "\ufeffCOMMIT"),
    ("sqlite", "SELECT 'a\\'; COMMIT; --'"),
    ("sqlite", "SELECT [it's]; COMMIT; SELECT 'x'"),
    ("sqlite", "SELECT a AS $$; COMMIT; SELECT $$"),
    ("postgres", "SELECT E'a'\n'\\'' ; COMMIT; -- '"),
    ("postgres", "SELECT e'a'\t-- b\r\n -- c\n '\\'' ; COMMIT; -- '"),
    ("postgres", "SELECT E'a' '\\'; COMMIT; --'"),
    ("mysql", "/*!999999 ' */ COMMIT /*!999999 ' */"),
    ("mysql", "SELECT 1 /*M!999999 ' */ FROM t /* ' */"),
    ("mysql", "/* %s */ INSERT INTO t VALUES (1)"),
    ("mysql", "/* a */ -- %(x)s\nINSERT INTO t VALUES (1)"),
    ("mysql", "SET STATEMENT max_statement_time = 1 FOR CALL p()"),
    ("mysql", "SET STATEMENT max_statement_time = 1 FOR EXECUTE IMMEDIATE 'COMMIT'"),
    ("mysql", "a: BEGIN NOT ATOMIC COMMIT; END a"),
    ("mysql", "CASE 1 WHEN 1 THEN COMMIT; END CASE"),
    ("mysql", "FOR i IN 1..1 DO COMMIT; END FOR"),
)
"""One database and what ends its transaction."""

MYSQL_REFUSES = (
    "LOCK TABLES t WRITE",
    "unlock tables",
    "ANALYZE TABLE t",
    "FLUSH TABLES",
    "BACKUP LOCK t",
    "SET DEFAULT ROLE NONE",
    "STOP SLAVE",
    "LOAD INDEX INTO CACHE t",
    "EXECUTE IMMEDIATE 'COMMIT'",
    "CALL a_procedure_that_commits()",
    "REPEAT COMMIT; UNTIL 1 END REPEAT",
    "SELECT RELEASE_ALL_LOCKS()",
)


@pytest.mark.parametrize("grammar", ALL.values(), ids=ALL)
@pytest.mark.parametrize("statement", PASS)
def test_statement_that_ends_nothing_may_run(statement: str, grammar: Grammar) -> None:
    assert refused(statement, grammar) == ""


@pytest.mark.parametrize("grammar", ALL.values(), ids=ALL)
@pytest.mark.parametrize("statement", REFUSED)
def test_statement_that_ends_the_transaction_or_changes_tables_is_refused(statement: str, grammar: Grammar) -> None:
    assert refused(statement, grammar)


@pytest.mark.parametrize(("name", "statement"), ONE_PASSES)
def test_what_a_database_reads_as_a_text_or_a_comment_may_run_there(name: str, statement: str) -> None:
    assert refused(statement, ALL[name]) == ""


@pytest.mark.parametrize(("name", "statement"), ONE_REFUSES)
def test_what_only_looks_like_a_text_or_a_comment_hides_no_commit(name: str, statement: str) -> None:
    assert "would end the transaction" in refused(statement, ALL[name])


@pytest.mark.parametrize(
    "statement", ["COPY t FROM STDIN", "copy (SELECT 1) TO stdout (FORMAT csv)", "COPY t TO STDOUT"]
)
def test_copy_with_rows_of_the_client_is_refused(statement: str) -> None:
    """The driver would leave the connection in the middle of it."""
    assert "db.insert(" in refused(statement, POSTGRES)
    assert refused("COPY t FROM '/a/file'", POSTGRES) == ""


@pytest.mark.parametrize("statement", MYSQL_REFUSES)
def test_statement_at_which_mysql_commits_is_refused_there_alone(statement: str) -> None:
    assert refused(statement, MYSQL)
    assert refused(statement, POSTGRES) == refused(statement, SQLITE) == ""

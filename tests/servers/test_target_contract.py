"""E1: the contract of targets on the databases that need a server; SQLite is in tests/unit/testing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import psycopg
import pytest

from cues_kafka import Sql
from cues_kafka.graph.effects import Effect
from cues_kafka.sinks.mysql import MySql
from cues_kafka.sinks.postgres import Postgres
from cues_kafka.sinks.tables import make_tables
from cues_kafka.testing.targets import TargetContract

pytestmark = pytest.mark.full


@pytest.mark.parametrize("database", ["postgres", "mariadb"])
class TestDatabases(TargetContract):
    """PostgreSQL and MariaDB."""

    @pytest.fixture
    def target(self, request: pytest.FixtureRequest, database: str, monkeypatch: pytest.MonkeyPatch) -> Effect:
        given = request.getfixturevalue(database)
        for dialect in (Postgres, MySql):
            monkeypatch.setattr(dialect, "lock_s", 1.0)
        self.database = given
        found = Sql(given.url)
        make_tables(found, "the contract", create=True)
        check = "CHECK (number >= 0)"
        self.run(f"CREATE TABLE numbers (number integer {check})")
        return found

    def run(self, statement: str) -> Any:
        """Run a statement as another program."""
        if self.database.url.startswith("mysql"):
            with self.database.server.connect(self.database.name) as connection, connection.cursor() as cursor:
                cursor.execute(statement)
                connection.commit()
                return cursor.fetchall()
        with psycopg.connect(self.database.url, autocommit=True) as connection:
            found = connection.execute(statement)
            return found.fetchall() if found.description else []

    def write(self, into: Any, number: int) -> None:
        into.execute("INSERT INTO numbers VALUES (%s)", (number,))

    def write_refused(self, into: Any) -> bool:
        into.execute("INSERT INTO numbers VALUES (-1)")
        return True

    def read(self, target: Sql) -> Iterable[int]:
        return [row[0] for row in self.run("SELECT number FROM numbers")]

"""E1: rows and place never part, whatever user code and the database do inside the transaction of a batch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cues_kafka import Graph, Processor, Source, Sql, Topic
from cues_kafka.sinks.tables import make_tables
from cues_kafka.testing.tester import Crash, Tester
from tests.integration.databases import TABLE, Shop, Shops
from tests.integration.inside import CASES, ODD, TENANT, Case
from tests.integration.inside_more import MORE

SHORT = {
    "search_path with tables of ours",
    "our row deleted by a function",
    "commit of the driver",
    "our row deleted by a trigger of MariaDB",
    "rows of a statement that run another",
}
"""What is tried on servers in each run of the tests; the rest in the long ones."""

MESSAGES = 6


@pytest.fixture(scope="module")
def shops(request: pytest.FixtureRequest) -> Shops:
    """The databases."""
    return Shops(request)


def tried() -> Iterator[Any]:
    """Each case on each of its databases."""
    for case in (*CASES, *MORE):
        for name in case.where:
            full = name != "sqlite" and case.name not in SHORT
            yield pytest.param(case, name, id=f"{name}-{case.name}", marks=[pytest.mark.full] if full else [])


def prepare(shop: Shop, case: Case) -> str:
    """Make the table `t`, our tables, and what the case needs, where nothing is left of the case before."""
    schema = "other"
    if shop.name == "postgresql":
        shop.query("DROP SCHEMA public CASCADE")
        shop.query("CREATE SCHEMA public")
        shop.query(f"DROP SCHEMA IF EXISTS {schema} CASCADE")
        shop.query(TABLE)
    elif shop.name == "mysql":
        for what in (
            "TABLE IF EXISTS t, u, cues_task, cues_outbox",
            "FUNCTION IF EXISTS odd",
            "PROCEDURE IF EXISTS odd",
        ):
            shop.query(f"DROP {what}")
    shop.query("CREATE TABLE t (x INTEGER)")
    if shop.name == "postgresql":
        shop.query("GRANT USAGE ON SCHEMA public TO pg_monitor")
        shop.query("GRANT ALL ON t TO pg_monitor")
    make_tables(Sql(shop.url), "the test", create=True)
    for statement in case.made:
        shop.query(statement.replace("{schema}", schema))
    return schema


class Given:
    """The function's connection, with the name of the schema in statements."""

    def __init__(self, db: Any, schema: str) -> None:
        self._db, self._schema = db, schema

    def execute(self, statement: str) -> Any:
        """Run it."""
        return self._db.execute(statement.replace("{schema}", self._schema))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._db, name)


@pytest.mark.parametrize(("case", "name"), list(tried()))
def test_rows_and_place_stay_together(case: Case, name: str, shops: Shops, tmp_path: Path) -> None:
    """Each message has one row and one output, or one error message and no row; with and without a kill between."""
    shop = shops.give(name, tmp_path)
    for moment in (None, "before", "after"):
        if moment is not None and name == "sqlite":
            (tmp_path / moment).mkdir()
            shop = shops.give(name, tmp_path / moment)
        schema = prepare(shop, case)

        def write(number: int, db: Any, schema: str = schema, shop: Shop = shop) -> int:
            db.execute(f"INSERT INTO t (x) VALUES ({shop.mark})", (number,))
            if number == ODD:
                case.act(Given(db, schema))
            return number

        processor = Processor(write, inputs="numbers", outputs="written", effects={"db": Sql(shop.url)})
        graph = Graph("g", Source("numbers"), processor, errors="errors", defaults=Topic(partitions=1))
        tester = Tester(graph)
        tester.send_many("numbers", list(range(MESSAGES)))
        tester.run(crash=None if moment is None else Crash(moment, "CommitTarget", 1))
        assert tester.crashed == (moment is not None)
        if moment is not None:
            tester = tester.restart()
            tester.run()

        kept = [one for one in range(MESSAGES) if case.kept or one != ODD]
        found = shop.query("SELECT x FROM t")
        if TENANT[0] in case.made:
            found += shop.query(f"SELECT x FROM {schema}.t")
        assert sorted(row[0] for row in found if row[0] < 1000) == kept
        assert tester.values("written") == kept
        assert len(tester.errors()) == MESSAGES - len(kept)
        tester.stop()

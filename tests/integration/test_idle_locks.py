"""A process that is frozen while it holds a task's lock under no name loses it after a while (E1)."""

from __future__ import annotations

import time
from typing import Any

import pytest

from cues_kafka.graph.effects import Sql
from cues_kafka.graph.targets import TaskName
from cues_kafka.sinks import mysql as of_mysql
from cues_kafka.sinks import postgres as of_postgres
from cues_kafka.sinks.lookup import dialect
from cues_kafka.sinks.sql import SqlTarget
from cues_kafka.sinks.tables import make_tables


@pytest.mark.parametrize("kind", ["postgres", "mariadb"])
def test_lock_of_a_connection_that_no_row_names_ends_by_itself(
    kind: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server ends the connection that was asking when its process froze."""
    monkeypatch.setattr(of_postgres, "IDLE_S", 1)
    monkeypatch.setattr(of_mysql, "IDLE_S", 1)
    declared = Sql(request.getfixturevalue(kind).url)
    make_tables(declared, "a test", create=True)
    task, talk = TaskName("g", "book", 0), dialect(declared)
    assert SqlTarget(talk, task).ask(0, 0) is None
    frozen: Any = talk.connect()
    talk.brief(frozen, on=True)
    talk.begin(frozen, "SELECT step FROM cues_task FOR UPDATE", ())

    began = time.monotonic()
    assert SqlTarget(dialect(declared), task).ask(1, 0) is not None
    assert time.monotonic() - began < 4.5, "it waited for the lock no longer than the connection may be idle"
    talk.close(frozen)

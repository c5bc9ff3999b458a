"""A record that is gone while a command works: the command says what to do, and changes nothing more."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from cues_kafka.errors import RecoveryError
from cues_kafka.operate.move.base import Maintenance
from cues_kafka.operate.move.reset import reset
from tests.unit.operate.move.test_settling import Shop


def test_record_that_is_gone_behind_a_reset_leaves_the_database_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The row of the task says what the record said, so without a record there is nothing to write there."""
    shop = Shop(tmp_path / "shop.db")
    shop.send(4).tester.run()
    shop.tester.stop()
    with sqlite3.connect(shop.path) as made:
        made.execute("DELETE FROM cues_task")
    tool = Maintenance(shop.graph, shop.tester.broker, "book", who="test", clock=shop.tester.clock)
    moves = reset(tool, to="here")
    monkeypatch.setattr(tool, "settled", lambda _: None)
    with pytest.raises(RecoveryError, match=r"book/0 was moved, and its record is gone from 'g.book.backing'"):
        tool.carry_out(moves)
    with sqlite3.connect(shop.path) as made:
        assert made.execute("SELECT count(*) FROM cues_task").fetchone() == (0,)

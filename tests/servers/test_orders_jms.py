"""The example of orders, small: workers, the JMS broker and PostgreSQL are killed, and everything is there once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from examples.orders_jms.__main__ import differences
from examples.orders_jms.shop import orders, stock

ROOT = Path(__file__).parents[2]


@pytest.mark.bridge
@pytest.mark.timeout(240)
@pytest.mark.parametrize("broker", ["activemq", "artemis"])
def test_orders_are_booked_and_shipped_once_over_kills(broker: str, tmp_path: Path) -> None:
    """The fourth kill is PostgreSQL's. The demo compares all, and leaves no file."""
    options = ("--broker", broker, "--orders", "1000", "--kills", "4", "--seed", "1")
    done = subprocess.run(
        [sys.executable, "-m", "examples.orders_jms", *options],
        capture_output=True, text=True, cwd=ROOT, env=os.environ | {"TMPDIR": str(tmp_path)}, timeout=220, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stdout + done.stderr
    assert "every order exactly once" in done.stdout
    assert [done.stdout.count(f": {victim}") for victim in ("worker", broker, "postgres")] == [2, 1, 1]
    assert list(tmp_path.iterdir()) == []


def test_comparison_names_what_is_missing_and_what_is_too_many() -> None:
    """Each row counts, also one that is there twice."""
    assert differences("rows", [1, 2, 3], [1, 3, 3]) == ["rows: missing 2", "rows: too many 3"]
    assert differences("rows", [1, 2], [2, 1]) == []


def test_stock_is_what_all_orders_leave() -> None:
    """Those of the article that does not exist take nothing."""
    given = orders(500, seed=1)
    taken = sum(one.pieces for one in given if one.article != "a99")
    assert sum(stock(given).values()) == 20 * 1_000_000 - taken
    assert sum(one.article == "a99" for one in given) > 10

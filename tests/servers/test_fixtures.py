"""Where a server cannot be had, a test fails with the reason; none is skipped."""

from __future__ import annotations

import re
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.servers import prefetch
from tests.servers.fixtures import started
from tests.servers.packages import ServerError

ROOT = Path(__file__).parents[2]
FIXTURES = ("postgres", "mariadb", "s3", "mosquitto", "rabbitmq", "activemq", "artemis")


class Missing:
    """A server whose program cannot be had."""

    kind = "PostgreSQL"
    closed = False

    def start(self) -> Any:
        """It cannot."""
        raise ServerError("the package postgresql-17 cannot be reached")

    def close(self) -> None:
        """Remember that it was asked."""
        self.closed = True


def test_a_server_that_cannot_be_started_fails_the_test_with_the_reason() -> None:
    """A skipped test would be green where nothing was shown; and what was begun is closed."""
    server: Any = Missing()

    with ExitStack() as running, pytest.raises(BaseException) as failed:  # noqa: PT011 - which one is the question
        started(running, server)

    assert type(failed.value) is pytest.fail.Exception
    assert "This test needs PostgreSQL, and it could not be started." in str(failed.value)
    assert "the package postgresql-17 cannot be reached" in str(failed.value)
    assert server.closed


def test_a_server_that_cannot_be_fetched_is_named_and_stops_nothing() -> None:
    """The tests that need it fail by themselves; the others run."""
    fetched = []

    def missing() -> object:
        raise ServerError("the package cannot be reached")

    said = prefetch.fetch({"One": missing, "Other": lambda: fetched.append("other")})

    assert said == ["One cannot be had: the package cannot be reached"]
    assert fetched == ["other"]


def test_no_test_that_asks_for_a_server_can_be_skipped() -> None:
    """Neither by a mark nor by a call, in the files that ask for one and in the servers themselves."""
    asks = re.compile(rf"\b(?:{'|'.join(FIXTURES)})(?:_servers?)?: |param=.*({'|'.join(FIXTURES)})|getfixturevalue")
    skips = re.compile(r"pytest\.skip|mark\.skip|importorskip|mark\.xfail")
    files = [*(ROOT / "tests").rglob("test_*.py"), *(ROOT / "tests/servers").glob("*.py")]
    asking = {path for path in files if asks.search(path.read_text(encoding="utf-8"))} - {Path(__file__)}

    assert len(asking) > 5
    assert [path for path in asking if skips.search(path.read_text(encoding="utf-8"))] == []

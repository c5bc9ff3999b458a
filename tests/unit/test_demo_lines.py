"""The demo prints numbers where they changed, and else what it waits for."""

from __future__ import annotations

import io

from rich.console import Console

from examples.flights.demo import Kill
from examples.flights.sides import DRIVER
from examples.flights.table import Bars


def test_a_line_is_never_repeated() -> None:
    """A killed driver takes longer than the time between two lines."""
    bars = Bars(Console(file=io.StringIO()), 10, ["clean"])
    killed = Kill(DRIVER, 100.0, frozenset(), None)
    said = [
        bars._news("sent 5", [], 90.0),
        bars._news("sent 5", [], 95.0),
        bars._news("sent 5", [killed], 122.0),
        bars._news("sent 9", [killed], 130.0),
    ]
    assert said == [
        "sent 5",
        "waiting for the next commit, 5 s",
        "waiting for the Spark driver that replaces the killed one, 22 s",
        "sent 9",
    ]

"""What the browser view beside the demo shows is what runs."""

from __future__ import annotations

import pytest

from cues_kafka.cli.loading import load_graph
from examples.flights.database import LEDGER, NONE, POSTGRES, SQLITE
from examples.flights.view import target


@pytest.mark.parametrize("native", [True, False])
def test_the_view_of_the_demo_has_a_ledger_only_where_there_is_a_database(native: bool) -> None:
    """All other processors and topics are the same, so the view finds what workers of the whole graph say."""
    whole = load_graph(target(native=native, database=SQLITE))
    without = load_graph(target(native=native, database=NONE))

    assert target(native=native, database=POSTGRES) == target(native=native, database=SQLITE)
    assert whole.name == without.name
    assert set(whole.all_processors) - set(without.all_processors) == {LEDGER}
    assert set(without.all_processors) < set(whole.all_processors)
    assert set(whole.topics_used()) - set(without.topics_used()) == {"flights.inspections"}
    assert ("hourly" in without.all_processors) is not native

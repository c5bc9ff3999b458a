"""Slots of Spark with a database in a server: of two at once one gives way, also where the database says so first."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cues_kafka import Processor, Sql
from tests.integration.databases import SERVERS, Shop, Shops
from tests.unit.on_spark.direct.test_slot_database import COUNT, World

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def shops(request: pytest.FixtureRequest) -> Shops:
    """The databases."""
    return Shops(request)


@pytest.fixture(params=SERVERS)
def shop(request: pytest.FixtureRequest, shops: Shops, tmp_path: Path) -> Shop:
    """An empty database in a server."""
    return shops.give(request.param, tmp_path)


def write(n: int, db: Any) -> int:
    """A row and a message."""
    db.execute("INSERT INTO shop (id, text) VALUES (%s, %s)", (n, "row"))
    return n


@pytest.mark.parametrize("effect", ["Call", "CommitTarget", "Begin"])
def test_slot_that_is_overtaken_gives_way_and_never_takes_the_id_again(shop: Shop, effect: str) -> None:
    """
    D5: the other slot waits for the lock, has the connection ended, and delivers. Each message has one row.

    Without that, the database refuses the batch, the slot recovers, and fences the other one, which then does the same.
    """
    world = World(Sql(shop.url), lambda into: Processor(write, inputs="in", outputs="out", effects={"db": into}))
    world.client.send_many("in", list(range(COUNT)))
    twin: list[Any] = []
    inits: list[str] = []

    def overtaken(when: str, what: str) -> None:
        if twin and (when, what) == ("before", "Init"):
            inits.append(what)
        if (when, what) == ("after", "Call") and not twin and effect == "Call":
            twin.append(world.slot().deliver(world.ends, first=True))
        if (when, what) == ("before", effect) and len(shop.ids()) >= 3 and not twin:
            twin.append(world.slot().deliver(world.ends, first=True))

    outcome = world.slot(overtaken).deliver(world.ends, first=False)

    assert twin
    assert twin[0].positions == world.ends
    assert (outcome.kind, outcome.positions, outcome.fenced) == ("", world.ends, True)
    assert inits == []
    assert shop.ids() == list(range(COUNT))
    assert [one.value for one in world.client.messages("out")] == list(range(COUNT))

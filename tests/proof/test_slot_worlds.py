"""Slots of Spark with two inputs: worlds that stand beside the explorer, so that they leave its results as they are."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.proof.model import trace
from tests.proof.model.mutant import MOVE, applied, fenced_slot_again
from tests.proof.model.search import Found, Search
from tests.proof.model.states import Setting
from tests.proof.model.world import World
from tests.proof.model.worlds import ONE

NEAREST = 1_500
"""How many states `make test` looks at, see `test_explorer`."""

SLOTS = ("slot", "slot")

WORLDS = {
    setting.name: setting
    for setting in (
        Setting(
            name="slots-join",
            about="two Spark slots for one range of each input, and a message whose partner is not there",
            inputs=("on", "o"),
            pairing="join",
            workers=SLOTS,
            faults=ONE,
        ),
        Setting(
            name="slots-alts",
            about="two Spark slots for any of two inputs",
            inputs=("o", "o"),
            pairing="alts",
            workers=SLOTS,
            faults=ONE,
        ),
        Setting(
            name="slots-alts-effects",
            about="the same, and the choice is kept",
            inputs=("o", "n"),
            pairing="alts",
            effects=True,
            workers=SLOTS,
            faults=ONE,
        ),
    )
}


def search(name: str, limit: int | None) -> Found:
    """One fault of any kind at any moment; from every state the healed world delivers everything."""
    found = Search(World(WORLDS[name]), limit=limit).run()
    assert not found.violated, "\n".join(trace.lines(found.path, found.violated))
    return found


@pytest.mark.parametrize("name", WORLDS)
def test_no_near_state_of_slots_with_two_inputs_violates_an_invariant(name: str) -> None:
    assert search(name, NEAREST).states >= NEAREST


@pytest.mark.full
def test_all_states_of_a_join_in_slots_and_many_of_alts_are_right() -> None:
    assert search("slots-join", None).complete
    assert search("slots-alts", 20_000).states >= 20_000


def test_join_shows_what_a_fenced_slot_must_not_do() -> None:
    """D5: the worlds would see a hole."""
    world = World(replace(WORLDS["slots-join"], faults=MOVE))
    with applied(fenced_slot_again()):
        found = Search(world, limit=20_000).run()

    assert "D5: a fenced slot goes on" in found.violated

"""What the staged worlds of the explorer are about does happen in them: takeovers, zombies, refusals and remedies."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import pytest

from tests.proof.model import trace
from tests.proof.model.search import Search
from tests.proof.model.staging import REFUSED, Staging
from tests.proof.model.states import Faults, State
from tests.proof.model.worlds import TWO, with_faults, world_of

NOTHING = Faults(crash=0, move=0, net=0, zombie=0, total=0)
CRASH = NOTHING._replace(crash=1, total=1)
MOVE = NOTHING._replace(move=1, total=1)
ZOMBIE = NOTHING._replace(zombie=1, total=1)


@pytest.mark.parametrize(
    ("name", "faults"),
    [
        ("staged", NOTHING._replace(net=1, total=1)),
        ("staged", ZOMBIE),
        pytest.param("staged-one", NOTHING._replace(net=1, zombie=1, total=2), marks=pytest.mark.full),
        pytest.param("staged-one", NOTHING._replace(crash=1, net=1, total=2), marks=pytest.mark.full),
        pytest.param("staged", CRASH, marks=(pytest.mark.slow, pytest.mark.timeout(600))),
        pytest.param("staged-restored", TWO, marks=(pytest.mark.slow, pytest.mark.timeout(600))),
    ],
)
def test_all_states_within_these_faults_are_as_they_should_be(name: str, faults: Faults) -> None:
    """Both batches to their end, and from every state too."""
    found = Search(world_of(with_faults(name, faults))).run()

    assert found.complete
    assert not found.violated, "\n".join(trace.lines(found.path, found.violated))


@cache
def seen(name: str, faults: Faults, limit: int) -> tuple[Staging, frozenset[tuple[str, str]], tuple[State, ...]]:
    """The nearest states of a world, and who does what in them."""
    world = world_of(with_faults(name, faults))
    assert isinstance(world, Staging)
    states, labels, layer = {world.first()}, set(), [world.first()]
    while layer and len(states) < limit:
        moves = [move for state in layer for move in world.moves(state)]
        labels |= {label for label, _, _ in moves}
        layer = list(dict.fromkeys(after for _, _, after in moves if after not in states))
        states.update(layer)
    return world, frozenset(labels), tuple(states)


def texts(name: str, faults: Faults, limit: int) -> Iterator[str]:
    """Labels as lines."""
    return (f"{who} {what}" for who, what in seen(name, faults, limit)[1])


def announced(world: Staging, states: tuple[State, ...]) -> set[tuple[str, int, str]]:
    """(query, batch, attempt) of all newest announcements."""
    records = [world.decided(state, 0) for state in states]
    return {(of.query, of.batch, of.attempt) for record in records if record and (of := record.staged)}


def test_without_faults_two_batches_are_published_and_only_the_first_asks_for_nothing() -> None:
    """T2: the driver saw the parts of its own batch published, so it asks no broker for them (`settled`)."""
    world, labels, states = seen("staged", NOTHING, 1_000)

    assert any(world.done(state) for state in states)
    assert announced(world, states) == {("q0", 0, "0"), ("q0", 1, "0")}
    assert not any("is in all parts" in what for _, what in labels)


def test_a_driver_that_comes_back_publishes_the_attempt_that_was_announced() -> None:
    """T2: of its own, whose rows differ, none is ever out."""
    world, labels, states = seen("staged", CRASH, 15_000)

    assert ("driver 0", "stages batch 0 of q0, up to 1, attempt 1") in labels
    rows = {row.step for state in states for p in (0, 1) for row in world.part(state, p).outputs}
    assert {p for (_, p), _ in rows} == {0, 1}
    assert {attempt for _, (_, attempt) in rows} == {0}


def test_a_successor_asks_whether_all_parts_are_published() -> None:
    """It did not see them itself."""
    assert "driver 1/0 publication 0 is in all parts: True" in texts("staged-query", MOVE, 10_000)


def test_a_query_without_state_goes_on_where_another_one_ended() -> None:
    """T2: over a complete batch, from its end on; over an incomplete one it is refused, and heeds the remedy."""
    world, labels, states = seen("staged-query", MOVE, 10_000)

    assert {query for query, _, _ in announced(world, states)} == {"q0", "q1"}
    assert ("driver 1", "is started with the checkpoint of q0") in labels
    assert not any("in all parts: False" in what for _, what in labels)  # with one part its own record says enough


def test_a_query_with_state_never_goes_on_over_another_one() -> None:
    """T2: it is refused when it enters, or when it announces."""
    world, _, states = seen("staged-state", MOVE, 10_000)
    refused = [state for state in states if world.spark(state).drivers[1].doing == REFUSED]

    assert {query for query, _, _ in announced(world, states)} >= {"q0"}
    assert refused
    for state in states:
        record = world.decided(state, 0)
        if record and record.staged and record.staged.query == "q1":
            assert all(row.step[1][0] == 1 for row in world.part(state, 0).outputs)


def test_a_restored_checkpoint_is_refused_or_agrees_with_what_is_announced() -> None:
    """The operator puts the newest one back."""
    world, labels, states = seen("staged-restored", MOVE, 10_000)

    assert ("operator", "puts back a copy of the checkpoint with 0 batches") in labels
    assert any(world.spark(state).saved and world.spark(state).drivers[0].doing == REFUSED for state in states)


@pytest.mark.parametrize("what", ["sees that its part is published", "gives up"])
def test_a_fenced_task_watches_its_record(what: str) -> None:
    """D5."""
    assert any(f"fenced, {what}" in text for text in texts("staged", ZOMBIE, 10_000))


def test_a_driver_that_was_replaced_goes_on_until_it_is_ended() -> None:
    """At any moment, at no price."""
    labels = seen("staged-one", MOVE, 10_000)[1]

    assert ("driver 0", "ends: another one is in its place") in labels
    assert any(who == "driver 0/0" and "fenced" in what for who, what in labels)

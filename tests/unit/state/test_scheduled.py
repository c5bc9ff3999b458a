"""Timers of one task: which is due, and what a step, a batch or a commit that fails takes back (F2, F4)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cues_kafka.errors import CodecError
from cues_kafka.graph.timers import ENDLESS
from cues_kafka.state.scheduled import ROOM, Scheduled, Set

ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(["set", "unset", "step", "undo", "commit", "discard", "fire"]),
        st.sampled_from("ab"),
        st.integers(0, 3),
    ),
    max_size=25,
)


def timers(*, clock: bool = False, limit: int = 1_000) -> Scheduled:
    """Timers of a task whose first batch is open."""
    made = Scheduled(None, ENDLESS, limit, clock=clock)
    made.begin_batch()
    made.begin_step()
    return made


def test_timers_come_by_their_time_and_then_by_their_key() -> None:
    """The order does not depend on when they were set."""
    some = timers()
    for key, due in [("b", 5), ("a", 5), ("c", 2)]:
        some.schedule(key, due, b"o")
    some.advance(4)

    assert some.due == Set(2, "c", b"o")
    assert some.count_due(10) == 1
    some.unschedule("c", 2)
    assert some.due is None
    some.advance(5)
    assert some.due == Set(5, "a", b"o")
    assert some.count_due(10) == 2
    assert some.count_due(1) == 1


def test_the_same_key_at_the_same_time_is_one_timer() -> None:
    """The step that set it first counts."""
    some = timers()
    some.schedule("a", 5, b"first")
    some.schedule("a", 5, b"second")
    some.advance(9)

    assert some.due == Set(5, "a", b"first")
    assert some.unschedule("a", 5)
    assert not some.unschedule("a", 5)
    assert some.first is None


def test_timers_that_are_put_off_again_and_again_leave_nothing() -> None:
    """As those of sessions, which each message prolongs."""
    some = timers()
    some.schedule("first", 0, b"o")  # is in front of all others
    some.schedule("a", 0, b"o")
    for due in range(1, 3 * ROOM):
        some.unschedule("a", due - 1)
        some.schedule("a", due, b"o")
        assert some.first == Set(0, "first", b"o")

    assert len(some._heap) <= ROOM + 1
    some.unschedule("first", 0)
    assert some.first == Set(3 * ROOM - 1, "a", b"o")


def test_the_clock_never_goes_back() -> None:
    """What was due stays due where the time of day is set back."""
    some = timers(clock=True)
    some.schedule("a", 5_000, b"o")
    some.advance(9_000)
    assert some.due is None  # the time of messages does not count

    some.tell(5.0)
    some.tell(1.0)

    assert some.due == Set(5_000, "a", b"o")


def test_a_timer_that_its_changelog_does_not_take_is_refused() -> None:
    """The step learns it, and no transaction fails for it."""
    with pytest.raises(CodecError, match="takes 20"):
        timers(limit=20).schedule("k" * 20, 5, b"o")


def test_a_timer_of_a_void_batch_is_left_alone() -> None:
    """A recovery on another thread may make the batch void between two timers."""
    some = timers()
    some.schedule("a", 5, b"o")
    some.seal(1)
    some.commit(1)
    some.begin_batch()
    first = some.first
    assert first is not None
    some.discard()

    assert not some.end(first)
    some.begin_batch()
    assert some.first == first
    assert some.end(first)


def _plain_due(plain: dict[tuple[int, str], bytes], now: int) -> Any:
    return next((Set(due, key, origin) for (due, key), origin in sorted(plain.items()) if due <= now), None)


@pytest.mark.parametrize("commits", [False, True])
def test_what_is_taken_back_is_due_again(commits: bool) -> None:
    """A timer that a step or a void batch removed, also where it was looked for meanwhile."""
    some = timers()
    some.schedule("a", 1, b"o")
    some.advance(2)
    if commits:
        some.seal(1)
        some.commit(1)
        some.begin_batch()
    some.begin_step()
    some.unschedule("a", 1)
    assert some.due is None

    if commits:
        some.discard()
        some.begin_batch()
    else:
        some.undo_step()

    assert some.due == Set(1, "a", b"o")
    assert some.count_due(10) == 1


@given(ACTIONS)
def test_timers_are_those_of_a_plain_dict(actions: list[tuple[str, str, int]]) -> None:
    """Whatever is taken back: a step, a batch whose commit is under way, or one that is open."""
    some = timers()
    committed: dict[tuple[int, str], bytes] = {}
    batch, step = dict(committed), dict(committed)
    sequence = 0
    for what, key, due in actions:
        match what:
            case "set":
                some.schedule(key, due, b"o")
                step.setdefault((due, key), b"o")
            case "unset":
                assert some.unschedule(key, due) == (step.pop((due, key), None) is not None)
            case "fire" if (first := some.first) is not None:
                some.unschedule(first.key, first.due_ms)
                del step[first.due_ms, first.key]
            case "step":
                some.begin_step()
                batch = dict(step)
            case "undo":
                some.undo_step()
                step = dict(batch)
            case "commit":
                sequence += 1
                some.seal(sequence)
                some.commit(sequence)
                committed = dict(step)
                batch = dict(step)
                some.begin_batch()
                some.begin_step()
            case "discard":
                some.discard()
                batch, step = dict(committed), dict(committed)
                some.begin_batch()
                some.begin_step()
        some.advance(2)

        assert some.due == _plain_due(step, 2)
        assert some.count_due(10) == sum(due <= 2 for due, _ in step)

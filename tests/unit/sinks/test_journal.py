"""What the journal of a task forgets, and when (E4)."""

from __future__ import annotations

from cues_kafka.core.delivery import show_origin
from cues_kafka.ports.log import Coordinates, Position
from cues_kafka.sinks.journal import Answered, Journal, encode

TOPIC_ID = b"t" * 16


def step(offset: int) -> bytes:
    """A step, as the keys of its entries name it."""
    return show_origin([Coordinates("orders", TOPIC_ID, 0, offset)])


def filled(*offsets: int) -> Journal:
    """A journal with an answer for each of these steps."""
    journal = Journal("g.p.journal", 0, 1_000_000)
    journal.load([(b"%b 0 0" % step(offset), encode(Answered("d", {}, b"1"))) for offset in offsets], 9)
    return journal


def standing(offset: int) -> tuple[Position, ...]:
    """The position of the task."""
    return (Position("orders", "orders", TOPIC_ID, offset),)


def test_only_entries_of_steps_below_the_position_are_left_over() -> None:
    """That of the step at the position is the answer that this step is going to use."""
    journal = filled(4, 5, 6)
    journal.sort_out(standing(5))

    assert journal.leftovers == [b"%b 0 0" % step(4)]


def test_a_refused_answer_is_forgotten_with_its_step() -> None:
    """The set of refused answers would grow without end, and refuse what is kept under that name later."""
    journal = filled(4, 5)
    journal.refuse(step(4), b"0 0")
    journal.refuse(step(5), b"0 0")
    journal.settle(standing(5))
    journal.load([(b"%b 0 0" % step(4), encode(Answered("d", {}, b"2")))], 10)

    assert journal.find(step(4), b"0 0") == Answered("d", {}, b"2")
    assert journal.find(step(5), b"0 0") is None

"""Where Kafka says that a staged processor of Spark stands (E5): what a target's own place is compared with."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeVar

Why = TypeVar("Why")


class StandsAt(NamedTuple):
    """
    Where Kafka says that a staged processor stands.

    Attributes:
        number: publication number of its newest record.
        published: the record is that of a part, so the target must have the rows of this number.
        reset: an operator has reset the processor.
    """

    number: int
    published: bool
    reset: bool


def compared(
    asked: Callable[[], StandsAt | None], kafka: StandsAt | None, look: Callable[[StandsAt | None], Why]
) -> tuple[StandsAt | None, Why]:
    """
    Compare a target with Kafka, and again while another driver goes on meanwhile.

    Args:
        asked: where the processor stands in Kafka by now.
        kafka: where it stood a moment ago.
        look: looks at the target, and says why it does not fit; nothing if it does.

    Returns:
        Where the processor stands, and what was said of it.
    """
    while (why := look(kafka)) and (again := asked()) != kafka:
        kafka = again
    return kafka, why

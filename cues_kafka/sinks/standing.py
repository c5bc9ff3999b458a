"""Where Kafka says that a staged processor of Spark stands (E5): what a target's own place is compared with."""

from __future__ import annotations

from typing import NamedTuple


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

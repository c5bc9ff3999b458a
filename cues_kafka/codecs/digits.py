"""The digits that a decimal may have, for all codecs alike: zeros at its end do not count, nothing is rounded."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal

from cues_kafka.graph.declare import Digits


def checked(digits: Digits | None) -> Callable[[Decimal], bool]:
    """Compile what says whether a finite decimal has no more digits than these."""
    if digits is None:
        return Decimal.is_finite
    return fitting(digits.precision, digits.scale)


def fitting(precision: int, scale: int) -> Callable[[Decimal], bool]:
    """Compile what says whether a decimal is finite and fits this many digits, and this many behind the point."""
    last, before = Decimal((0, (1,), -scale)), precision - scale

    def fits(value: Decimal) -> bool:
        if value.same_quantum(last) and value.adjusted() < before:
            return True
        _, digits, exponent = value.as_tuple()
        if not isinstance(exponent, int):  # it is infinite, or no number
            return False
        if not value:
            return True
        more = -exponent - scale
        return value.adjusted() < before and (more <= 0 or not any(digits[-more:]))

    return fits


def text(precision: int, scale: int) -> str:
    """`a decimal of 12 digits, 2 behind the point`."""
    return f"a decimal of {precision} digits, {scale} of them after the point"

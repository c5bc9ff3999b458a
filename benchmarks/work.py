"""What both sides do with a message, the very same functions for the framework and for the hand-written loop."""

from __future__ import annotations

from dataclasses import dataclass

VALUE_BYTES = 100


@dataclass(frozen=True)
class Payment:
    """A message of the JSON runs, about 100 bytes on the wire."""

    id: str
    account: str
    currency: str
    cents: int
    settled: bool


def forward(value: bytes) -> bytes:
    """Raw runs: the value as it is, so that only the moving is measured."""
    return value


def settle(payment: Payment) -> Payment:
    """JSON runs: a new object with two changed fields, the smallest thing that a function does."""
    return Payment(payment.id, payment.account, payment.currency, payment.cents + 1, True)

"""The functions on messages, the same for the framework and for the hand-written loop."""

from __future__ import annotations

from collections.abc import MutableMapping
from dataclasses import dataclass
from typing import Any

VALUE_BYTES = 100

TAKE = 10_000
"""Messages in one transaction, on both sides where a program does not say otherwise."""


@dataclass(frozen=True)
class Payment:
    """A message of the JSON runs, about 100 bytes on the wire."""

    id: str
    account: str
    currency: str
    cents: int
    settled: bool


def forward(value: bytes) -> bytes:
    """Raw runs: return the value unchanged, so that only the transport is measured."""
    return value


COLUMNS = ("key", "value")
"""Of the table `rows`."""


def row_of(value: bytes) -> tuple[str, str]:
    """Runs with a database: the row of a message."""
    text = value.decode()
    return text[:16], text


def settle(payment: Payment) -> Payment:
    """JSON runs: return a new object with two changed fields, a minimal function."""
    return Payment(payment.id, payment.account, payment.currency, payment.cents + 1, True)


def settle_plain(payment: dict[str, Any]) -> dict[str, Any]:
    """JSON dict runs: the same on a dictionary."""
    return {**payment, "cents": payment["cents"] + 1, "settled": True}


def count(value: bytes, counts: MutableMapping[str, int]) -> bytes:
    """State runs: count the values that begin alike, and return the value unchanged."""
    key = value[:8].decode()
    counts[key] = counts.get(key, 0) + 1
    return value

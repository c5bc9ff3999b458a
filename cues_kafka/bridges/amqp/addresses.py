"""Addresses that messages go to."""

from __future__ import annotations

from typing import Final

from cues_kafka.bridges.published import Names

LONGEST: Final = 1_000
"""Bytes of an address."""


def wrong_address(address: str) -> str:
    """Why a text cannot be an address; empty: it can."""
    try:
        size = len(address.encode())
    except UnicodeEncodeError:
        return "has half of a surrogate pair, which UTF-8 cannot carry"
    if "\0" in address:
        return "has a zero character"
    return "is empty" if not size else f"is longer than {LONGEST:,} bytes" if size > LONGEST else ""


ADDRESSES: Final = Names(
    *("AMQP address", "an", "/", "lead to another address", "parts", "country", "address()"), wrong_address
)

"""The two jobs in plain Python: their inputs, what must come of them, and what is wrong with what came."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from cues_kafka.codecs.error_messages import ErrorMessagesCodec

Record: TypeAlias = tuple[bytes | None, bytes]
"""A key and a value."""

CUSTOMERS = 1_000
WITHOUT_PRICE, NOT_JSON = 100, 1_000
"""One order in a hundred has no price, one in a thousand is no JSON; `check` in each program refuses both."""

EACH_FAILS = 10
"""The function that fails in the middle fails at every tenth number; a literal in each program."""

FILLING = 34
"""Letters of the note: with them an order has about 100 bytes."""


def orders(count: int) -> list[Record]:
    """Orders of 100 bytes, keyed by their customer; all values differ."""
    note = os.urandom(FILLING // 2).hex()
    found: list[Record] = []
    for i in range(count):
        customer = f"c{i * 7919 % CUSTOMERS:04d}"
        order = {"id": f"o{i:07d}", "customer": customer, "cents": 0 if i % WITHOUT_PRICE == 1 else i + 1, "note": note}
        value = f"no order: {i:07d}".encode() if i % NOT_JSON == 2 else json.dumps(order).encode()
        found.append((customer.encode(), value))
    return found


def values(count: int, size: int = 100) -> list[Record]:
    """Values of `size` bytes for the pipe; no two are alike."""
    some = [os.urandom(size // 2 - 4).hex().encode() for _ in range(1_000)]
    return [(b"%08d" % i, b"%08d" % i + some[i % 1_000]) for i in range(count)]


def numbers(count: int) -> list[Record]:
    """Numbers with one key, so that they are in one partition and have one count."""
    return [(b"one", b"%d" % i) for i in range(count)]


INPUTS: dict[str, Callable[[int], list[Record]]] = {"orders": orders, "pipe": values, "fork": numbers}
"""By the name of the job."""


@dataclass(frozen=True, slots=True)
class Expected:
    """
    What plain Python makes of orders.

    Attributes:
        counts: by the id of each valid order, how many the customer has made with it.
        refused: values of the others.
    """

    counts: dict[str, int]
    refused: frozenset[bytes]

    def __len__(self) -> int:
        return len(self.counts) + len(self.refused)


def by_hand(records: Iterable[Record]) -> Expected:
    """The job, without Kafka."""
    seen: Counter[str] = Counter()
    counts: dict[str, int] = {}
    refused = set()
    for _, value in records:
        try:
            order = json.loads(value)
            if order["cents"] <= 0:
                raise ValueError("cents must be positive")
        except ValueError:
            refused.add(value)
        else:
            seen[order["customer"]] += 1
            counts[order["id"]] = seen[order["customer"]]
    return Expected(counts, frozenset(refused))


@dataclass(slots=True)
class Verdict:
    """
    How outputs differ from what is expected.

    Attributes:
        lost: inputs that have neither an output nor an error message.
        doubled: outputs and error messages that are too many.
        wrong: orders whose count is another one, at least once: the state has lost or counted twice.
        strange: outputs that no input asks for.
    """

    lost: int = 0
    doubled: int = 0
    wrong: int = 0
    strange: int = 0

    def said(self) -> str:
        """What is wrong, for a table."""
        words = {"lost": self.lost, "doubled": self.doubled, "wrong": self.wrong, "strange": self.strange}
        return ", ".join(f"**{number:,} {word}**" for word, number in words.items() if number) or "right"

    def __add__(self, other: Verdict) -> Verdict:
        return Verdict(
            self.lost + other.lost,
            self.doubled + other.doubled,
            self.wrong + other.wrong,
            self.strange + other.strange,
        )


def judged(expected: Expected, counts: Iterable[bytes], refused: Iterable[bytes]) -> Verdict:
    """
    Compare the values of both output topics with what is expected.

    Args:
        expected: what plain Python made of the same orders.
        counts: values of the topic of counts, JSON with `id` and `orders`.
        refused: values of the orders that the error messages are about.
    """
    came: Counter[str] = Counter()
    wrong = set()
    for value in counts:
        count = json.loads(value)
        came[count["id"]] += 1
        if expected.counts.get(count["id"]) != count["orders"]:
            wrong.add(count["id"])
    both = _compared(Counter(dict.fromkeys(expected.counts, 1)), came)
    both += _compared(Counter(dict.fromkeys(expected.refused, 1)), Counter(refused))
    both.wrong = len(wrong & expected.counts.keys())
    return both


def compared(expected: Sequence[Record], came: Sequence[Record]) -> Verdict:
    """Compare what came through the pipe with what was sent."""
    return _compared(Counter(expected), Counter(came))


def _compared(expected: Counter, came: Counter) -> Verdict:  # type: ignore[type-arg]
    lost = sum((expected - came).values())
    more = came - expected
    strange = sum(number for value, number in more.items() if value not in expected)
    return Verdict(lost, sum(more.values()) - strange, 0, strange)


def of_ours(value: bytes) -> bytes:
    """The order that an error message of cues-kafka is about."""
    return ErrorMessagesCodec().decode(value).payload or b""


def of_json(value: bytes) -> bytes:
    """The order that an error message of the programs for Quix and Faust is about."""
    text: str = json.loads(value)["value"]
    return text.encode()


def of_bytes(value: bytes) -> bytes:
    """The order itself, which Kafka Streams puts into its dead letter queue."""
    return value


Reader: TypeAlias = Callable[[bytes], bytes]

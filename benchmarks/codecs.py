"""Avro into a class, beside plain fastavro with dicts: the same schema, the same bytes, one process."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from io import BytesIO
from typing import Annotated, Any

from fastavro import schemaless_reader, schemaless_writer

from benchmarks.report import Section, holds
from benchmarks.work import Payment
from cues_kafka import Avro, Digits
from cues_kafka.codecs.avro import AvroCodec

TARGET = 1.3
CALLS = 200
PREFIX = 10
"""Bytes of the mark and the fingerprint, which plain fastavro does not have."""

HOW = """One message at a time, without a broker. *Plain* is `schemaless_reader` and `schemaless_writer` of fastavro, to
and from a dict, with a `BytesIO` for each message; it checks nothing. *Ours* also finds the writer's schema by the
fingerprint, holds limits, checks each value's type before it is written, and makes the instance. The four calls are
timed in turn, in random order, {calls} at a time; a figure is the least of {rounds:,} rounds, as other work on the
machine only adds to it."""


@dataclass
class Line:
    """Inside an order."""

    sku: str
    count: int
    price: float


@dataclass
class Order:
    """Has records, a map, and a field that may be missing."""

    id: int
    customer: str
    lines: list[Line]
    tags: dict[str, str]
    note: str | None


class Colour(Enum):
    """An enum of names."""

    RED = "red"
    BLUE = "blue"


@dataclass
class Offer:
    """Has logical types."""

    id: int
    at: datetime
    price: Annotated[Decimal, Digits(12, 2)]
    colour: Colour


PAYMENT = Payment("0123456789abcdef0123", "01234567", "EUR", 1_000_000, False)
LINES = [Line(f"a{n}", n, 1.5) for n in range(3)]
ORDER = Order(7, "bob", LINES, {"a": "b"}, None)
AT = datetime(2026, 1, 1, tzinfo=UTC)

CASES: dict[str, tuple[Any, dict[str, Any]]] = {
    "five fields, frozen": (PAYMENT, asdict(PAYMENT)),
    "records, a map": (ORDER, asdict(ORDER)),
    "logical types": (
        Offer(1, AT, Decimal("3.50"), Colour.RED),
        {"id": 1, "at": AT, "price": Decimal("3.50"), "colour": "red"},
    ),
}
"""By what is in the class: an instance, and the dict that plain fastavro takes."""


def measure(rounds: int) -> Section:
    """Measure all cases."""
    section = Section(
        "Avro",
        HOW.format(calls=CALLS, rounds=rounds),
        ("class with", "read us: ours", "plain", "ratio", "write us: ours", "plain", "ratio", "both", f"<= {TARGET}"),
    )
    for name, (value, plain) in CASES.items():
        section.rows.append([name, *_case(value, plain, rounds)])
        print(f"  {', '.join(section.rows[-1])}", flush=True)
    return section


def _case(value: Any, plain: dict[str, Any], rounds: int) -> list[str]:
    codec = AvroCodec(Avro(type(value)))
    schema, data = codec.schema, codec.encode(value)
    assert schema is not None
    body = data[PREFIX:]

    def write() -> bytes:
        out = BytesIO()
        schemaless_writer(out, schema, plain)
        return out.getvalue()

    assert write() == body
    assert codec.decode(data) == value
    read_ours, read, write_ours, write_plain = _least(
        [
            lambda: codec.decode(data),
            lambda: schemaless_reader(BytesIO(body), schema, None),
            lambda: codec.encode(value),
            write,
        ],
        rounds,
    )
    both = (read_ours + write_ours) / (read + write_plain)
    ratios = read_ours / read, write_ours / write_plain
    us = [f"{figure:.2f}" for figure in (read_ours, read, write_ours, write_plain)]
    verdict = holds(round(max(*ratios, both), 2) <= TARGET)
    return [*us[:2], f"{ratios[0]:.2f}", *us[2:], f"{ratios[1]:.2f}", f"{both:.2f}", verdict]


def _least(calls: list[Callable[[], Any]], rounds: int) -> list[float]:
    """Microseconds of each call."""
    least = [float("inf")] * len(calls)
    order = list(range(len(calls)))
    for _ in range(rounds):
        random.shuffle(order)
        for place in order:
            call, began = calls[place], time.perf_counter_ns()
            for _ in range(CALLS):
                call()
            least[place] = min(least[place], (time.perf_counter_ns() - began) / CALLS / 1_000)
    return least

"""Values as columns, as a source of DataFrames makes them, beside a bare loop that decodes the same bytes."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

import pyarrow as pa
from confluent_kafka import Message

from benchmarks.codecs import ORDER, PAYMENT, Order
from benchmarks.report import Section, holds
from benchmarks.work import Payment
from cues_kafka import Avro, Json
from cues_kafka.codecs.lookup import MadeFor, codec_for
from cues_kafka.on_spark.source.decoding import Decoding
from cues_kafka.on_spark.source.planning import OffsetRange
from cues_kafka.on_spark.source.rows import ROWS, arrow
from cues_kafka.ports.log import TopicPartition

TARGET = 0.6

HOW = """{rows:,} messages at a time, as in a record batch, without a broker and without Spark. *Ours* is what the
source of a DataFrame processor does in Python with messages that the client has read: look at their headers, decode
each value by the topic's codec, set aside what cannot be decoded, and make a record batch of Arrow with key, value,
offset, timestamp and headers. *Loop* calls the same codec for the same bytes, and keeps key, instance, offset and
timestamp. The two run in turn, in random order; a figure is the least processor time of {rounds} rounds, in
microseconds for one message. With *1 % bad*, one message of a hundred cannot be decoded."""

FLAT = pa.struct(
    [
        ("id", pa.string()),
        ("account", pa.string()),
        ("currency", pa.string()),
        ("cents", pa.int64()),
        ("settled", pa.bool_()),
    ]
)
LINE = pa.struct([("sku", pa.string()), ("count", pa.int64()), ("price", pa.float64())])
NESTED = pa.struct(
    [
        ("id", pa.int64()),
        ("customer", pa.string()),
        ("lines", pa.list_(LINE)),
        ("tags", pa.map_(pa.string(), pa.string())),
        ("note", pa.string()),
    ]
)

CASES: dict[str, tuple[Any, Any, Any, int]] = {
    "Json, five fields": (Json(Payment), PAYMENT, FLAT, 0),
    "Json, five fields, 1 % bad": (Json(Payment), PAYMENT, FLAT, 100),
    "Json, records, a map": (Json(Order), ORDER, NESTED, 0),
    "Avro, five fields": (Avro(Payment), PAYMENT, FLAT, 0),
    "Avro, records, a map": (Avro(Order), ORDER, NESTED, 0),
}
"""By codec and class: an instance, Arrow's type, and which message of how many is bad; 0: none."""


def measure(rounds: int) -> Section:
    """Measure all cases."""
    section = Section(
        "Columns for Spark",
        HOW.format(rows=ROWS, rounds=rounds),
        ("codec, class", "ours us", "loop us", "loop / ours", f">= {TARGET}"),
    )
    for name, case in CASES.items():
        ours, loop = _case(*case, rounds=rounds)
        section.rows.append([name, f"{ours:.2f}", f"{loop:.2f}", f"{loop / ours:.2f}", holds(loop / ours >= TARGET)])
        print(f"  {', '.join(section.rows[-1])}", flush=True)
    return section


def _case(declared: Any, value: Any, kind: Any, bad: int, *, rounds: int) -> tuple[float, float]:
    codec, decoding = codec_for(declared, MadeFor("in")), Decoding(declared, MadeFor("in"))
    decoding.kind = kind
    good, span = codec.encode(value), OffsetRange(TopicPartition("in", 0), 0, ROWS)
    wrong = [bad and n % bad == 0 for n in range(ROWS)]
    messages: list[Any] = [
        Message("in", 0, n, b"%08d" % n, b"" if each else good, None, None, (1, 1_000 + n))
        for n, each in enumerate(wrong)
    ]
    decode = codec.decode

    def ours() -> None:
        found = decoding.separate(messages)
        made = arrow(found.good, span, headers=True, came=found.headers, values=found.values)
        assert len(made) + len(found.failed) == ROWS

    def loop() -> None:
        kept = []
        for message in messages:
            try:
                kept.append((message.key(), decode(message.value()), message.offset(), message.timestamp()))
            except Exception:  # noqa: BLE001 - whatever the codec raises
                continue

    return _least([ours, loop], rounds)


def _least(calls: list[Callable[[], None]], rounds: int) -> tuple[float, float]:
    """Microseconds of each for one message."""
    least = [float("inf")] * len(calls)
    for _ in range(rounds):
        for place in random.sample(range(len(calls)), len(calls)):
            began = time.thread_time_ns()
            calls[place]()
            least[place] = min(least[place], (time.thread_time_ns() - began) / ROWS / 1_000)
    return least[0], least[1]

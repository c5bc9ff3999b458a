"""One meaning of bytes: native workers and Spark read and write the same values, and the same errors (D1, T1)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, is_dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Annotated, Any
from uuid import UUID

import pyarrow as pa
import pytest
from confluent_kafka import Producer

from cues_kafka import (
    Avro,
    CodecError,
    DataFrameProcessor,
    Digits,
    Graph,
    Json,
    Kafka,
    Processor,
    Protobuf,
    Source,
    Topic,
    start,
)
from cues_kafka.brokers.memory import MemoryMessage
from cues_kafka.codecs.lookup import MadeFor, codec_for
from cues_kafka.codecs.text import text_of
from cues_kafka.on_spark.columns import as_columns, as_messages, as_outputs
from cues_kafka.on_spark.source.decoding import Decoding
from cues_kafka.on_spark.source.planning import OffsetRange
from cues_kafka.on_spark.source.rows import arrow
from cues_kafka.ports.log import TopicPartition
from cues_kafka.running.running import Running
from cues_kafka.spark import Spark
from cues_kafka.task.making.build import decoder
from cues_kafka.testing.fixtures import KafkaFixture
from tests.unit.codecs.protos import Order as ProtoOrder

pytestmark = pytest.mark.timeout(600)

ZONE = "spark.sql.session.timeZone"


class Color(Enum):
    """A value by its name."""

    RED = "red"
    BLUE = "blue"


SEVEN = UUID(int=7)


@dataclass(frozen=True)
class Inner:
    """A record in a record."""

    a: int
    b: str | None = None


@dataclass(frozen=True)
class Wide:
    """A field of each kind that columns can hold."""

    flag: bool = False
    whole: int = 0
    number: float = 0.0
    price: Annotated[Decimal, Digits(8, 2)] = Decimal("0.00")
    text: str = ""
    data: bytes = b""
    at: datetime = datetime(2026, 1, 1, 12, tzinfo=UTC)
    day: date = date(2026, 1, 1)
    uuid: UUID = SEVEN
    color: Color = Color.RED
    items: list[int] = field(default_factory=list)
    words: dict[str, str] = field(default_factory=dict)
    inner: Inner = Inner(0)
    maybe: int | None = None
    perhaps: Inner | None = None
    many: list[Inner] = field(default_factory=list)
    times: list[datetime] = field(default_factory=list)
    prices: dict[str, Annotated[Decimal, Digits(8, 2)]] = field(default_factory=dict)
    holes: list[int | None] = field(default_factory=list)


JSON: dict[str, str] = {
    # Fields: left out, added, null, of another type.
    "nothing": "{}",
    "added": '{"more": [1, {"x": null}]}',
    "null of a field": '{"text": null}',
    "null of another": '{"whole": null}',
    "null where it may be": '{"maybe": null, "perhaps": null}',
    "set where it may be": '{"maybe": 5, "perhaps": {"a": 1}}',
    "twice": '{"whole": 1, "whole": 2}',
    "text for a number": '{"whole": "5"}',
    "number for text": '{"text": 5}',
    "true for a number": '{"whole": true}',
    "one for true": '{"flag": 1}',
    "record for a number": '{"whole": {}}',
    "list for a record": '{"inner": []}',
    "required is missing": '{"inner": {}}',
    "required is null": '{"inner": {"a": null}}',
    # Whole numbers.
    "least": '{"whole": -9223372036854775808}',
    "most": '{"whole": 9223372036854775807}',
    "whole as a fraction": '{"whole": 1.0}',
    "fraction": '{"whole": 1.5}',
    "exponent": '{"whole": 1e3}',
    "minus zero": '{"whole": -0}',
    # Numbers.
    "whole for a number": '{"number": 3}',
    "tenth": '{"number": 0.1}',
    "sum of tenths": '{"number": 0.30000000000000004}',
    "large number": '{"number": 1.7976931348623157e308}',
    "small number": '{"number": 5e-324}',
    "negative zero": '{"number": -0.0}',
    "beyond all numbers": '{"number": 1e999}',
    "not a number": '{"number": NaN}',
    "infinity": '{"number": Infinity}',
    "not a number as text": '{"number": "NaN"}',
    "digits": '{"number": 123456789.123456789}',
    # Decimals.
    "price": '{"price": "1.25"}',
    "price as a number": '{"price": 1.25}',
    "price of one digit": '{"price": "1.5"}',
    "price with zeros": '{"price": "1.5000"}',
    "price with more digits": '{"price": "1.005"}',
    "largest price": '{"price": "999999.99"}',
    "larger price": '{"price": "1000000.00"}',
    "least price": '{"price": "-999999.99"}',
    "price with an exponent": '{"price": "1E2"}',
    "price that is none": '{"price": "NaN"}',
    "price that is text": '{"price": "cheap"}',
    "whole price": '{"price": 7}',
    "prices": '{"prices": {"a": "1.10", "b": 2}}',
    "prices, one too long": '{"prices": {"a": "1.101"}}',
    # Text and bytes.
    "umlauts": '{"text": "Zürich"}',
    "beyond the plane": '{"text": "😀"}',
    "escaped": '{"text": "\\u00fc\\ud83d\\ude00\\n\\t\\"\\\\"}',
    "half a pair": '{"text": "\\ud83d"}',
    "zero byte": '{"text": "a\\u0000b"}',
    "separators": '{"text": "\\u2028\\u2029\\u007f"}',
    "base64": '{"data": "AP8="}',
    "no bytes": '{"data": ""}',
    "not base64": '{"data": "?"}',
    # Times, with a zone and without, in hours that come twice and not at all, and at the ends of the calendar.
    "utc": '{"at": "2026-07-01T12:00:00Z"}',
    "offset": '{"at": "2026-07-01T12:00:00+02:00"}',
    "odd offset": '{"at": "2026-07-01T12:00:00-03:30"}',
    "microseconds": '{"at": "2026-07-01T12:00:00.123456Z"}',
    "milliseconds": '{"at": "2026-07-01T12:00:00.123Z"}',
    "nanoseconds": '{"at": "2026-07-01T12:00:00.123456789Z"}',
    "without a zone": '{"at": "2026-07-01T12:00:00"}',
    "first of the hour twice": '{"at": "2026-11-01T01:30:00-04:00"}',
    "second of the hour twice": '{"at": "2026-11-01T01:30:00-05:00"}',
    "hour that is not there": '{"at": "2026-03-08T02:30:00"}',
    "before zones": '{"at": "1850-01-01T00:00:00Z"}',
    "first year": '{"at": "0001-01-01T00:00:00Z"}',
    "last year": '{"at": "9999-12-31T23:59:59.999999Z"}',
    "before the epoch": '{"at": "1969-12-31T23:59:59.999999Z"}',
    "old calendar": '{"at": "1582-10-10T00:00:00Z"}',
    "no time": '{"at": "yesterday"}',
    "time as a number": '{"at": 1700000000}',
    "times": '{"times": ["1883-11-18T12:00:00Z", "2026-07-01T12:00:00.5Z"]}',
    "day": '{"day": "2024-02-29"}',
    "first day": '{"day": "0001-01-01"}',
    "last day": '{"day": "9999-12-31"}',
    "old day": '{"day": "1582-10-10"}',
    "no day": '{"day": "2026-02-29"}',
    # Names, lists, maps, records.
    "uuid": '{"uuid": "6BA7B810-9DAD-11D1-80B4-00C04FD430C8"}',
    "no uuid": '{"uuid": "6ba7b810"}',
    "color": '{"color": "blue"}',
    "no color": '{"color": "green"}',
    "items": '{"items": [1, -2, 3]}',
    "item of another type": '{"items": [1, "2"]}',
    "null in items": '{"items": [1, null]}',
    "null in holes": '{"holes": [1, null, 3]}',
    "words": '{"words": {"a": "1", "": "2", "b c": ""}}',
    "null in words": '{"words": {"a": null}}',
    "inner": '{"inner": {"a": 1, "b": "x", "c": 2}}',
    "many": '{"many": [{"a": 1}, {"a": 2, "b": null}]}',
    # What is no JSON.
    "empty": "",
    "blanks": "  ",
    "single quotes": "{'whole': 1}",
    "comment": '{"whole": 1} // one',
    "two values": '{"whole": 1}{"whole": 2}',
    "comma at the end": '{"whole": 1,}',
    "cut": '{"whole": 1',
    "null": "null",
    "list": "[]",
    "text": '"text"',
    "leading zero": '{"whole": 01}',
    "deep": "[" * 5_000,
}
"""The value of each case, as text."""

RAW: dict[str, bytes | None] = {
    **{name: text.encode() for name, text in JSON.items()},
    "tombstone": None,
    "latin": b'{"text": "Z\xfcrich"}',
    "utf-16": '{"whole": 1}'.encode("utf-16"),
    "byte order mark": b'\xef\xbb\xbf{"whole": 1}',
    "cut in a character": b'{"text": "\xc3"}',
}

BEYOND: dict[str, bytes] = {
    "beyond 64 bits": b'{"whole": 9223372036854775808}',
    "far beyond": b'{"items": [1, 1180591620717411303424]}',
}
"""Values that only native workers can hold."""

AVRO: dict[str, Any] = {
    "not a number": Wide(number=float("nan")),
    "infinity": Wide(number=float("inf"), holes=[None]),
    "minus infinity": Wide(number=float("-inf")),
}
"""More values in Avro, which JSON does not carry."""

NO_AVRO: dict[str, bytes | None] = {"empty": b"", "tombstone": None, "no avro": b"no avro", "cut": b"\xc3\x01\0"}

PROTOBUF: dict[str, bytes | None] = {
    "all": ProtoOrder(id=5, tags=["a"]).SerializeToString(),
    "defaults": b"",
    "unknown field": b"\x9a\x06\x01x",
    "cut": b"\x0a\x05ab",
    "no tag": b"\x0b",
    "tombstone": None,
}


def same(value: Any) -> Any:
    return value


def direct(rows: Any) -> Any:
    return rows


def staged(rows: Any) -> Any:
    return rows.repartition(2)


CODECS = {"json": Json(Wide), "avro": Avro(Wide), "protobuf": Protobuf(ProtoOrder)}


def messages() -> dict[str, dict[str, bytes | None]]:
    """The bytes of each case, by codec."""
    encode, decode = codec_for(CODECS["avro"], MadeFor("t")).encode, codec_for(CODECS["json"], MadeFor("t")).decode
    avro: dict[str, bytes | None] = dict(NO_AVRO)
    for name, data in RAW.items():
        try:
            avro.setdefault(name, encode(decode(data or b"")))
        except CodecError:
            continue  # no value, or one that Avro refuses to write
    return {"json": RAW | BEYOND, "avro": avro | {n: encode(v) for n, v in AVRO.items()}, "protobuf": PROTOBUF}


def graph_of(name: str, codec: str) -> Graph:
    """One codec natively, direct and staged, over the same input."""
    parts, topics = [], {f"{name}.in": Topic(value=CODECS[codec], partitions=1)}
    for fn, kind in ((same, Processor), (direct, DataFrameProcessor), (staged, DataFrameProcessor)):
        parts.append(kind(fn, name=fn.__name__, inputs=f"{name}.in", outputs=f"{name}.{fn.__name__}"))
        topics[f"{name}.{fn.__name__}"] = Topic(value=CODECS[codec], partitions=1)
    return Graph(name, Source(f"{name}.in"), *parts, topics=topics, errors=f"{name}.errors")


def seen(value: Any) -> Any:
    """A value so that equal ones compare equal: NaN is itself, and a time without a zone is one of UTC."""
    match value:
        case datetime():
            return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
        case float():
            return repr(value)
        case list():
            return [seen(one) for one in value]
        case dict():
            return {name: seen(one) for name, one in value.items()}
        case _ if is_dataclass(value):
            return {each.name: seen(getattr(value, each.name)) for each in fields(value)}
    return value


def outcomes(running: Running, name: str, label: str) -> dict[str, Any]:
    """What became of each case: its value, or kind and text of its error."""
    found: dict[str, Any] = {}
    for one in running.messages(f"{name}.{label}"):
        assert found.setdefault(one.key, seen(one.value)) == seen(one.value)
    for one in running.messages(f"{name}.errors", limit=10_000):
        if one.value.processor == label:
            assert one.key not in found
            found[one.key] = (one.value.kind, one.value.exception, one.value.text, one.value.payload)
    return found


@contextmanager
def zone(spark: Any, name: str) -> Iterator[None]:
    """A session whose times are shown in a zone."""
    was = spark.conf.get(ZONE)
    spark.conf.set(ZONE, name)
    try:
        yield
    finally:
        spark.conf.set(ZONE, was)


def check(found: dict[str, Any], expected: dict[str, Any]) -> None:
    """The same value or the same error, but for what a column cannot hold."""
    different = {}
    for case, value in expected.items():
        if case in BEYOND:
            assert "A column of Spark cannot hold the value" in str(found.get(case))
        elif found.get(case) != value:
            different[case] = [str(found.get(case)), str(value)]
    assert json.dumps(different, indent=1) == "{}"


@pytest.mark.parametrize("codec", ["json", "avro"])
def test_columns_have_the_values_of_native_workers_under_any_time_zone(codec: str, spark: Any) -> None:
    """From the bytes to columns, and back to the bytes of direct and of staged processors."""
    declared, made_for = CODECS[codec], MadeFor("t")
    cases, decoding, text = messages()[codec], Decoding(CODECS[codec], made_for), text_of(declared, made_for)
    decoding.know(spark.createDataFrame([], f"`value` {decoding.ddl}").schema)
    came = [MemoryMessage("t", 0, n, one.encode(), cases[one], None, (1, 5_000), 0) for n, one in enumerate(cases)]
    separated, expected = decoding.separate(came), {}
    for message in came:
        try:
            expected[(message.key() or b"").decode()] = seen(decoder(Topic(value=declared), made_for).read(message))
        except CodecError as error:
            expected[(message.key() or b"").decode()] = str(error)
    errors = {(one.message.key() or b"").decode(): str(one.error) for one in separated.failed}
    span = OffsetRange(TopicPartition("t", 0), 0, len(came))
    rows = arrow(separated.good, span, headers=True, came=separated.headers, values=separated.values)
    for session_zone in ("America/New_York", "UTC", "Asia/Kolkata"):
        with zone(spark, session_zone):
            frame = as_columns(spark.createDataFrame(pa.Table.from_batches([rows])), decoding.ddl)
            for made in (as_messages(frame, None, text), as_outputs(frame, None, text, columns=("timestamp",))):
                written = made.select("key", "value", "timestamp").collect()
                values = {row.key.decode(): seen(decoding.decoder.decode(bytes(row.value))) for row in written}
                assert {row.timestamp for row in written} == {5_000}
                check(values | errors, expected)


@pytest.mark.full
@pytest.mark.parametrize("codec", CODECS)
def test_values_and_errors_are_the_same_natively_direct_and_staged(
    codec: str, spark: Any, kafka: KafkaFixture, tmp_path: Path
) -> None:
    """On real topics, in a session of another time zone."""
    name, options, cases = kafka.unique("values"), Kafka(kafka.bootstrap), messages()
    graph = graph_of(name, codec)
    with start(graph, options, only=["same"]) as running:
        producer = Producer({"bootstrap.servers": kafka.bootstrap})
        for case, data in cases[codec].items():
            producer.produce(f"{name}.in", data, case.encode(), 0)
        assert producer.flush(30) == 0
        running.wait_idle(timeout_s=60)
        expected = outcomes(running, name, "same")
    assert expected.keys() == cases[codec].keys()
    engine = Spark(spark, checkpoint=str(tmp_path))
    with (
        zone(spark, "America/New_York"),
        start(graph, options, only=["direct", "staged"], engine=engine, timeout_s=250) as running,
    ):
        running.wait_idle(timeout_s=300)
        for label in ("direct", "staged"):
            check(outcomes(running, name, label), expected)

"""Values as bytes in JSON and in Avro, which native workers and Spark read; those of Protobuf are beside its codec."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal
from uuid import UUID

from cues_kafka import Alias, Avro, CodecError, Digits, Json, Protobuf
from cues_kafka.codecs.lookup import MadeFor, codec_for
from cues_kafka.graph.declare import CodecSpec
from tests.unit.codecs.protobuf_cases import CASES, OLD_CASES, Old
from tests.unit.codecs.protobuf_cases import Wide as ProtobufWide


class Color(Enum):
    """A value by its name."""

    RED = "red"
    BLUE = "blue"


SEVEN = UUID(int=7)
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@dataclass(frozen=True)
class Inner:
    """A record in a record."""

    a: int
    b: str | None = None


@dataclass(frozen=True)
class Stamp:
    """A record whose fields travel in forms of their own."""

    at: datetime
    price: Annotated[Decimal, Digits(8, 2)] = Decimal("0.00")
    color: Color = Color.RED
    uuid: UUID = SEVEN
    data: bytes = b""
    number: float = 0.0
    times: dict[str, datetime] = field(default_factory=dict)


@dataclass(frozen=True)
class Inside:
    """A record in a record with such names."""

    at: Annotated[datetime, Alias("a.b")] = NOON
    tick: Annotated[int, Alias("`")] = 0


@dataclass(frozen=True)
class Wide:
    """A field of each kind that columns can hold."""

    flag: bool = False
    whole: int = 0
    number: float = 0.0
    price: Annotated[Decimal, Digits(8, 2)] = Decimal("0.00")
    text: str = ""
    data: bytes = b""
    at: datetime = NOON
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
    perhaps_many: list[str] | None = None
    places: dict[str, Inner] = field(default_factory=dict)
    perhaps_places: dict[str, Inner | None] | None = None
    layers: dict[str, list[Inner]] = field(default_factory=dict)
    groups: list[dict[str, Inner]] = field(default_factory=list)
    stamps: dict[str, Stamp] = field(default_factory=dict)


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
    "price that is not a number": '{"price": "NaN"}',
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
    "no list where it may be": '{"perhaps_many": null}',
    "list where it may be": '{"perhaps_many": ["a", ""]}',
    # Maps of records.
    "places": '{"places": {"a": {"a": 1}, "": {"a": 2, "b": "x", "c": 3}}}',
    "one place twice": '{"places": {"a": {"a": 1}, "a": {"a": 2}}}',
    "null for a place": '{"places": {"a": null}}',
    "place without a required field": '{"places": {"a": {}}}',
    "number for a place": '{"places": {"a": 1}}',
    "no places": '{"places": {}, "perhaps_places": null}',
    "places where they may be": '{"perhaps_places": {"a": {"a": 1}, "b": null}}',
    "layers": '{"layers": {"a": [{"a": 1}, {"a": 2, "b": null}], "b": []}}',
    "groups": '{"groups": [{}, {"a": {"a": 1}}]}',
    "stamps": (
        '{"stamps": {"a": {"at": "2026-07-01T12:00:00.000001+02:00", "price": "1.5", "color": "blue", "data": "/w==", '
        '"uuid": "6ba7b810-9dad-11d1-80b4-00c04fd430c8", "number": 0.1, '
        '"times": {"x": "9999-12-31T23:59:59.999999Z"}}}}'
    ),
    "stamp of year 1": '{"stamps": {"a": {"at": "0001-01-01T00:00:00Z", "times": {"x": "1850-01-01T00:00:00Z"}}}}',
    "stamp with more digits": '{"stamps": {"a": {"at": "2026-07-01T12:00:00Z", "price": "1.005"}}}',
    "stamp of no time": '{"stamps": {"a": {"at": "noon"}}}',
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


@dataclass(frozen=True)
class Value:
    """One field, with the name of the column that has whole values."""

    value: str


@dataclass(frozen=True)
class Names:
    """Fields whose names in messages mean something to Spark."""

    dotted: Annotated[int, Alias("a.b")] = 0
    a: int = 0
    quoted: Annotated[str, Alias("`a`")] = ""
    spaced: Annotated[datetime, Alias("a b")] = NOON
    inside: Annotated[dict[str, Inside], Alias("in.side")] = field(default_factory=dict)
    value: str = ""
    key: int = 0
    topic: str = ""
    timestamp: datetime = NOON


NAMES: dict[str, str] = {
    "nothing": "{}",
    "all": (
        '{"a.b": 1, "a": 2, "`a`": "x", "a b": "2026-07-01T12:00:00Z", "value": "v", "key": 3, "topic": "t", '
        '"timestamp": "0001-01-01T00:00:00Z", "in.side": {"a.b": {"a.b": "2026-07-01T12:00:00Z", "`": 1}}}'
    ),
}
"""Values of `Names`, as text."""


@dataclass(frozen=True)
class Circle:
    """One kind of shape."""

    kind: Literal["circle"]
    radius: float


@dataclass(frozen=True)
class Square:
    """Another one."""

    kind: Literal["square"]
    side: int
    at: datetime | None = None


@dataclass(frozen=True)
class Unions:
    """Fields of several types, which no column holds."""

    one: int | str = 0
    number: int | float = 0
    shape: Circle | Square | None = None
    mixed: dict[str, int | bool | None] = field(default_factory=dict)
    shapes: dict[str, Circle | Square] = field(default_factory=dict)
    many: list[str | Inner] = field(default_factory=list)
    listed: list[int] | str = ""


UNIONS: dict[str, str] = {
    "nothing": "{}",
    "number": '{"one": 5}',
    "text": '{"one": "5"}',
    "true for number or text": '{"one": true}',
    "null for number or text": '{"one": null}',
    "fraction for number or text": '{"one": 1.5}',
    "beyond 64 bits": '{"one": 9223372036854775808}',
    "whole": '{"number": 3}',
    "whole as a fraction": '{"number": 3.0}',
    "fraction": '{"number": 0.1}',
    "circle": '{"shape": {"kind": "circle", "radius": 1}}',
    "square": '{"shape": {"kind": "square", "side": 2, "at": "0001-01-01T00:00:00Z"}}',
    "no shape": '{"shape": null}',
    "unknown shape": '{"shape": {"kind": "line"}}',
    "shape without a kind": '{"shape": {"side": 2}}',
    "square with a radius": '{"shape": {"kind": "square", "radius": 1}}',
    "mixed": '{"mixed": {"a": 1, "b": true, "c": null}}',
    "text in mixed": '{"mixed": {"a": "1"}}',
    "shapes": '{"shapes": {"a": {"kind": "circle", "radius": 0.5}, "b": {"kind": "square", "side": 1}}}',
    "many": '{"many": ["a", {"a": 1}, ""]}',
    "list": '{"listed": [1, 2]}',
    "text for a list": '{"listed": "1"}',
}
"""Values of `Unions`, as text."""

CODECS: dict[str, CodecSpec] = {
    "json": Json(Wide),
    "avro": Avro(Wide),
    "protobuf": Protobuf(ProtobufWide),
    "protobuf 2": Protobuf(Old),
    "json names": Json(Names),
    "json value": Json(Value),
    "avro value": Avro(Value),
    "json unions": Json(Unions),
    "avro unions": Avro(Unions),
}

PROTOBUF: dict[str, bytes | None] = {name: data for name, (data, _) in CASES.items()} | {"tombstone": None}


def _as_avro(cls: type[Any], cases: dict[str, bytes | None], found: dict[str, bytes | None]) -> dict[str, bytes | None]:
    """Add values in Avro. A case is left out that is no value, or one that Avro refuses to write."""
    encode, decode = codec_for(Avro(cls), MadeFor("t")).encode, codec_for(Json(cls), MadeFor("t")).decode
    for name, data in cases.items():
        try:
            found.setdefault(name, encode(decode(data or b"")))
        except CodecError:
            continue
    return found


def messages() -> dict[str, dict[str, bytes | None]]:
    """The bytes of each case, by codec."""
    unions: dict[str, bytes | None] = {name: text.encode() for name, text in UNIONS.items()}
    values: dict[str, bytes | None] = {
        "text": b'{"value": "x"}',
        "text that is JSON": b'{"value": "{}"}',
        "none": b"{}",
    }
    encode = codec_for(CODECS["avro"], MadeFor("t")).encode
    return {
        "json": {**RAW, **BEYOND},
        "avro": _as_avro(Wide, RAW, {**NO_AVRO, **{name: encode(value) for name, value in AVRO.items()}}),
        "protobuf": PROTOBUF,
        "protobuf 2": {name: data for name, (data, _) in OLD_CASES.items()} | {"tombstone": None},
        "json names": {name: text.encode() for name, text in NAMES.items()},
        "json value": values,
        "avro value": _as_avro(Value, values, {}),
        "json unions": unions,
        "avro unions": _as_avro(Unions, unions, {"no such type": b"\x09"}),
    }

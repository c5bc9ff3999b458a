"""
What passes through a codec or a key comes out as it went in, or is one error.

Schemas and values are drawn, both ways, and other programs write and read them: fastavro, the `json` of Python, and
Protobuf's own library.
"""

from __future__ import annotations

import json
import math
import re
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from io import BytesIO
from typing import Any, Final, Self
from uuid import UUID

import fastavro
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from cues_kafka import Avro, CodecError, GraphError, Json, JsonSchema, OutputError, Protobuf, Topic
from cues_kafka.codecs.avro import AvroCodec
from cues_kafka.codecs.avro_records import AvroRecord
from cues_kafka.codecs.avro_schema import fingerprint, parse
from cues_kafka.codecs.json_schema import JsonSchemaCodec
from cues_kafka.codecs.lookup import MadeFor, codec_for
from cues_kafka.graph.message import key_bytes
from cues_kafka.task.calling.inheriting import inherit
from tests.examples import examples
from tests.unit.codecs.protos import Order

EXAMPLES: Final = examples(150, suppress_health_check=[*HealthCheck])
MANY: Final = settings(max_examples=4_000, deadline=None, suppress_health_check=[*HealthCheck])

TEXT = st.text(st.characters(codec="utf-8"), max_size=8)
FLOATS = st.floats(allow_nan=False)
YEARS = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30))  # noqa: DTZ001  a zone is added
DAY_US: Final = 86_400_000_000


def millis(value: datetime) -> datetime:
    """A time in whole milliseconds."""
    return value.replace(microsecond=value.microsecond // 1000 * 1000)


def time_of(micros: int) -> time:
    """A time of day."""
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)).time()


def logical(kind: str, name: str) -> dict[str, Any]:
    """A schema."""
    return {"type": kind, "logicalType": name}


SCALARS: Final[list[tuple[Any, st.SearchStrategy[Any]]]] = [
    ("null", st.none()),
    ("boolean", st.booleans()),
    ("int", st.integers(-(2**31), 2**31 - 1)),
    ("long", st.integers(-(2**63), 2**63 - 1)),
    ("float", st.floats(width=32, allow_nan=False)),
    ("double", FLOATS),
    ("string", TEXT),
    ("bytes", st.binary(max_size=8)),
    (logical("int", "date"), st.dates()),
    (logical("int", "time-millis"), st.integers(0, DAY_US // 1000 - 1).map(lambda n: time_of(n * 1000))),
    (logical("long", "time-micros"), st.integers(0, DAY_US - 1).map(time_of)),
    (logical("long", "timestamp-micros"), YEARS.map(lambda one: one.replace(tzinfo=UTC))),
    (logical("long", "timestamp-millis"), YEARS.map(lambda one: millis(one).replace(tzinfo=UTC))),
    (logical("long", "local-timestamp-micros"), YEARS),
    (logical("long", "local-timestamp-millis"), YEARS.map(millis)),
    (logical("string", "uuid"), st.uuids()),
]


class Drawing:
    """Draws one schema, with what draws its values."""

    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw
        self._count = 0

    def one(self, depth: int = 2) -> tuple[Any, st.SearchStrategy[Any]]:
        """A schema and its values."""
        kinds = ["scalar", "decimal", "fixed", "enum", *(["array", "map", "record", "union"] if depth else [])]
        match self._draw(st.sampled_from(kinds)):
            case "decimal":
                return self._decimal()
            case "fixed":
                size = self._draw(st.integers(0, 5))
                return {"type": "fixed", "name": self._name(), "size": size}, st.binary(min_size=size, max_size=size)
            case "enum":
                symbols = [f"S{n}" for n in range(self._draw(st.integers(1, 70)))]
                return {"type": "enum", "name": self._name(), "symbols": symbols}, st.sampled_from(symbols)
            case "array":
                items, values = self.one(depth - 1)
                return {"type": "array", "items": items}, st.lists(values, max_size=3)
            case "map":
                inner, values = self.one(depth - 1)
                return {"type": "map", "values": inner}, st.dictionaries(TEXT, values, max_size=3)
            case "record":
                return self._record(depth)
            case "union":
                return self._union(depth)
            case _:
                return SCALARS[self._draw(st.integers(0, len(SCALARS) - 1))]

    def _name(self) -> str:
        self._count += 1
        return f"N{self._count}" if self._draw(st.booleans()) else f"shop.N{self._count}"

    def _decimal(self) -> tuple[Any, st.SearchStrategy[Any]]:
        precision = self._draw(st.integers(1, 45))
        scale = self._draw(st.integers(0, precision))
        most = 10**precision - 1
        values = st.integers(-most, most).map(lambda n: Decimal((int(n < 0), tuple(map(int, str(abs(n)))), -scale)))
        schema: dict[str, Any] = {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}
        if self._draw(st.booleans()):
            schema |= {"type": "fixed", "name": self._name(), "size": 20}
        return schema, values

    def _record(self, depth: int) -> tuple[Any, st.SearchStrategy[Any]]:
        name = self._name()
        inner = {f"f{n}": self.one(depth - 1) for n in range(self._draw(st.integers(0, 3)))}
        fields = [{"name": field, "type": schema} for field, (schema, _) in inner.items()]
        schema = {"type": "record", "name": name, "fields": fields}
        return schema, st.fixed_dictionaries({field: values for field, (_, values) in inner.items()})

    def _union(self, depth: int) -> tuple[Any, st.SearchStrategy[Any]]:
        options: dict[str, tuple[Any, st.SearchStrategy[Any]]] = {}
        for _ in range(self._draw(st.integers(1, 4))):
            schema, values = self.one(depth - 1)
            if not isinstance(schema, list):
                plain = schema if isinstance(schema, str) else schema.get("name", schema["type"])
                options.setdefault(plain, (schema, values))
        assume(options)
        alike = sum(isinstance(one, dict) and one["type"] in ("record", "map") for one, _ in options.values()) > 1
        drawn = []
        for name, (schema, values) in options.items():
            if alike and isinstance(schema, dict) and schema["type"] in ("record", "map"):
                values = _saying(name.rpartition(".")[2], values)  # noqa: PLW2901
            drawn.append(values)
        return [schema for schema, _ in options.values()], st.one_of(drawn)


def _saying(name: str, values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return values.map(lambda one: Said(name, one))


class Said(tuple[str, Any]):
    """A value of a union that says what it is, by the last part of its name."""

    __slots__ = ()

    def __new__(cls, name: str, value: Any) -> Self:
        return tuple.__new__(cls, (name, value))


@st.composite
def avro(draw: st.DrawFn) -> tuple[Any, Any]:
    """A schema and a value of it."""
    schema, values = Drawing(draw).one()
    return schema, draw(values)


def names_of(parsed: Any) -> dict[str, str]:
    """The full names in a schema by their last parts, which are unique here."""
    found = {"map": "map"}

    def collect(one: Any) -> None:
        if isinstance(one, dict):
            if isinstance(one.get("name"), str) and "type" in one and one["type"] in ("record", "enum", "fixed"):
                found[one["name"].rpartition(".")[2]] = one["name"]
            for key in ("fields", "items", "values", "type"):
                collect(one.get(key))
        elif isinstance(one, list):
            for inner in one:
                collect(inner)

    collect(parsed)
    return found


def ours(value: Any, names: dict[str, str]) -> Any:
    """A drawn value as our codec takes it and gives it."""
    if isinstance(value, Said):
        return AvroRecord(names[value[0]], ours(value[1], names))
    if isinstance(value, dict):
        return {key: ours(one, names) for key, one in value.items()}
    return [ours(one, names) for one in value] if isinstance(value, list) else value


def theirs(value: Any, names: dict[str, str]) -> Any:
    """A drawn value as fastavro takes it: a pair says the option of a union."""
    if isinstance(value, Said):
        return names[value[0]], theirs(value[1], names)
    if isinstance(value, dict):
        return {key: theirs(one, names) for key, one in value.items()}
    return [theirs(one, names) for one in value] if isinstance(value, list) else value


def said(value: Any) -> Any:
    """A value with the names of its records, to be compared."""
    if isinstance(value, AvroRecord):
        return value.record_name, {key: said(one) for key, one in value.items()}
    if isinstance(value, dict):
        return {key: said(one) for key, one in value.items()}
    return [said(one) for one in value] if isinstance(value, list) else value


def written(schema: Any, value: Any) -> bytes:
    """Bytes of fastavro."""
    out = BytesIO()
    fastavro.schemaless_writer(out, schema, value)
    return out.getvalue()


def avro_passes(drawn: tuple[Any, Any]) -> None:
    """There and back, beside fastavro as the writer and as the reader."""
    schema, value = drawn
    parsed = parse(json.dumps(schema))
    codec, names = AvroCodec(Avro(schema)), names_of(parsed)
    mark = b"\xc3\x01" + fingerprint(parsed)
    own = ours(value, names)
    try:
        data = codec.encode(own)
    except CodecError as error:  # two enums, fixed types or decimals of a union take it
        assert re.search("got a (str|bytes|Decimal) that is", str(error))  # noqa: PT017
        return
    assert said(codec.decode(data)) == said(own)
    assert codec.encode(codec.decode(data)) == data
    try:
        other = mark + written(parsed, theirs(value, names))
    except (ValueError, TypeError, OverflowError):  # what fastavro itself cannot write
        return
    try:
        found = codec.decode(other)
    except CodecError as error:
        # fastavro may take another option of a union, and does not look at what is in it.
        assert re.search("a decimal of|a UUID as", str(error)), error  # noqa: PT017
        assert unions(schema)
        return
    assert codec.decode(codec.encode(found)) == found
    if not unions(schema):
        assert (other, found) == (data, own)
        assert fastavro.schemaless_reader(BytesIO(data[10:]), parsed, None) == own or _precise(schema)


def unions(schema: Any) -> list[Any]:
    """The unions in a schema, the outer ones."""
    if isinstance(schema, list):
        return [schema]
    if not isinstance(schema, dict):
        return []
    inner = [each["type"] for each in schema.get("fields", [])] + [
        schema[k] for k in ("items", "values") if k in schema
    ]
    return [found for one in inner for found in unions(one)]


def _precise(schema: Any) -> bool:
    """Whether fastavro may round: it has one decimal context for all precisions."""
    return "decimal" in json.dumps(schema)


@EXAMPLES
@given(avro())
def test_values_of_any_avro_schema_pass_unchanged(drawn: tuple[Any, Any]) -> None:
    """Also what another client wrote."""
    avro_passes(drawn)


@pytest.mark.full
@MANY
@given(avro())
def test_values_of_many_avro_schemas_pass_unchanged(drawn: tuple[Any, Any]) -> None:
    """The same, longer."""
    avro_passes(drawn)


def avro_bytes_pass(drawn: tuple[Any, Any], noise: bytes, at: int) -> None:
    """Damaged bytes are read as something that comes back, or are one error."""
    schema, value = drawn
    parsed = parse(json.dumps(schema))
    codec = AvroCodec(Avro(schema))
    try:
        data = codec.encode(ours(value, names_of(parsed)))
    except CodecError:
        data = b"\xc3\x01" + fingerprint(parsed)
    at = 10 + at % max(1, len(data) - 9)
    for damaged in (data[:at] + noise + data[at:], data[:at] + noise, data[:10] + noise, data[:at]):
        try:
            found = codec.decode(damaged)
        except CodecError:
            continue
        try:
            again = codec.decode(codec.encode(found))
        except CodecError as error:
            assert " that is " in str(error)  # noqa: PT017  two named types of a union take it
            continue
        assert repr(said(again)) == repr(said(found))


@EXAMPLES
@given(avro(), st.binary(min_size=1, max_size=12), st.integers(0, 100))
def test_any_bytes_are_a_value_that_comes_back_or_one_error(drawn: tuple[Any, Any], noise: bytes, at: int) -> None:
    """No other exception ends a task."""
    avro_bytes_pass(drawn, noise, at)


@pytest.mark.full
@MANY
@given(avro(), st.binary(min_size=1, max_size=12), st.integers(0, 100))
def test_many_bytes_are_values_that_come_back_or_errors(drawn: tuple[Any, Any], noise: bytes, at: int) -> None:
    """The same, longer."""
    avro_bytes_pass(drawn, noise, at)


# Schemas of users and registries


WORDS = st.sampled_from(
    ["type", "name", "fields", "items", "values", "symbols", "size", "logicalType", "precision", "scale", "default",
     "aliases", "namespace", "record", "enum", "fixed", "array", "map", "bytes", "int", "long", "string", "decimal",
     "date", "uuid", "properties", "pattern", "patternProperties", "$ref", "$id", "$schema", "allOf", "enum", "const",
     "multipleOf", "minimum", "required", "additionalProperties", "definitions", "#/definitions/a", "object", "[",
     "^a$"]
)  # fmt: skip
JUNK = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 20) | st.floats(allow_nan=False, allow_infinity=False) | WORDS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WORDS, inner, max_size=6),
    max_leaves=20,
)


@EXAMPLES
@given(JUNK, avro(), st.data())
def test_no_schema_raises_anything_but_a_graph_error(junk: Any, drawn: tuple[Any, Any], data: st.DataObject) -> None:
    """Neither a drawn one, nor a good one with one thing replaced."""
    good = json.loads(json.dumps(drawn[0]))
    places = [(one, key) for one in _containers(good) for key in (one if isinstance(one, dict) else range(len(one)))]
    if places:
        where, key = data.draw(st.sampled_from(places))
        where[key] = data.draw(JUNK)
    for schema in (junk, good):
        for make in (lambda one: AvroCodec(Avro(one)), lambda one: JsonSchemaCodec(JsonSchema(one))):
            try:
                made = make(schema)
            except GraphError:
                continue
            for body in (b"", b"1", b"{}", b"\xc3\x01" + bytes(12)):
                try:
                    made.decode(body)
                except CodecError:
                    continue


def _containers(value: Any) -> list[Any]:
    if not isinstance(value, dict | list):
        return []
    inner = value.values() if isinstance(value, dict) else value
    return [value, *(found for one in inner for found in _containers(one))]


# JSON


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | FLOATS.filter(math.isfinite) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@EXAMPLES
@given(JSON, st.binary(max_size=10))
def test_any_json_passes_or_is_one_error(value: Any, noise: bytes) -> None:
    """As Python's library writes it, with and without escapes, and damaged."""
    plain, checked = codec_for(Json(), MadeFor("t")), codec_for(JsonSchema({}), MadeFor("t"))
    for codec in (plain, checked):
        try:
            data = codec.encode(value)
        except CodecError as error:
            assert re.search("surrogate|range|64 bits", str(error))  # noqa: PT017
        else:
            assert repr(codec.decode(data)) == repr(value)
            assert repr(json.loads(data)) == repr(value)
        texts = [
            json.dumps(value).encode(),
            json.dumps(value, ensure_ascii=False, indent=1).encode(errors="surrogatepass"),
        ]
        for text in (*texts, noise, *(text[: len(noise)] + noise for text in texts)):
            try:
                found = codec.decode(text)
                again = codec.encode(found)
            except CodecError:
                continue
            assert repr(codec.decode(again)) == repr(found)


# Protobuf


@EXAMPLES
@given(st.binary(max_size=30))
def test_any_bytes_are_a_protobuf_message_that_comes_back_or_one_error(data: bytes) -> None:
    """Beside the library itself; fields that the class does not know are kept."""
    codec = codec_for(Protobuf(Order), MadeFor("t"))
    try:
        found = codec.decode(data)
    except CodecError:
        return
    own = Order()
    own.ParseFromString(data)
    assert codec.encode(found) == own.SerializeToString(deterministic=True)
    assert codec.decode(codec.encode(found)) == found


# Keys


KEYS: Final = [None, Json(), Json(int), Json(str), Avro("long"), Avro("string"), Avro("bytes"),
               Avro(logical("string", "uuid")), JsonSchema({"type": "string"})]  # fmt: skip
KEY_VALUES = TEXT | st.integers(-(2**70), 2**70) | st.binary(max_size=8) | st.uuids() | st.booleans() | st.none()


@EXAMPLES
@given(st.sampled_from(KEYS), st.sampled_from(KEYS), KEY_VALUES)
def test_a_key_passes_from_any_format_to_any_other_or_is_one_error(was: Any, now: Any, key: Any) -> None:
    """The key that readers of the output decode is the one that readers of the input do; without a codec, its text."""
    source, target = Topic(key_codec=was), Topic(key_codec=now)
    convert = inherit(source, MadeFor("in", part="key"), target, MadeFor("out", part="key"), lambda _, one: one)
    try:
        data = key_bytes(key) if was is None else codec_for(was, MadeFor("in")).encode(key)
    except (CodecError, OutputError, UnicodeEncodeError):
        return
    if data is None or convert is None:
        assert data is None or was == now
        return
    try:
        made = convert(data)
    except OutputError as error:
        assert re.search("the key of 'in'.*'out'", str(error))  # noqa: PT017
        return
    came: Any = data.decode(errors="replace") if was is None else codec_for(was, MadeFor("in")).decode(data)
    assert (made is None) == (came is None and now is None)  # the null of JSON has no text
    if made is None:
        return
    if now is not None:
        goes = codec_for(now, MadeFor("out")).decode(made)
        assert goes == came or (was == now and made == data)
    else:
        assert made == key_bytes(came)
        assert isinstance(came, str | int | bytes | UUID | date)

"""Checks of single values of Avro: each is of its type and within its bounds, or is refused."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, time
from decimal import Context, Decimal
from enum import Enum
from typing import Any, Final

from cues_kafka.codecs.avro_records import Convert, Unfit
from cues_kafka.codecs.avro_scalars import MAX_DIGITS
from cues_kafka.codecs.avro_schema import logical
from cues_kafka.codecs.digits import fitting, text

_FLOAT_MAX: Final = 3.4028234663852886e38


def kind_of_value(value: Any) -> str:
    """What was found instead. Messages hold what logs must not, so the value itself is not shown."""
    return "null" if value is None else type(value).__name__


EXACT: Final[dict[str, tuple[type[Any], ...]]] = {
    "null": (type(None),), "boolean": (bool,), "long": (int,), "double": (float,), "string": (str,),
    "bytes": (bytes,),
}  # fmt: skip
"""Types whose values fit without a further look."""


def or_null(convert: Convert) -> Convert:
    """The same for a value that may be null."""
    return lambda value: None if value is None else convert(value)


def check_of_scalar(schema: Mapping[str, Any]) -> Convert:
    """What checks values of a schema that is neither a union, a record nor a container."""
    kind = schema["type"]
    if schema.get("logicalType") == "decimal" and kind in ("bytes", "fixed"):
        return _decimal(min(schema["precision"], MAX_DIGITS), schema.get("scale", 0))
    if (cls := logical(schema)) is not None:
        return _logical(cls, schema["logicalType"])
    if kind == "enum":
        return _enum(tuple(schema["symbols"]))
    if kind == "int":
        return _whole(-(2**31), 2**31 - 1)
    if kind == "long":
        return _whole(-(2**63), 2**63 - 1)
    if kind == "float":
        return _float
    if kind == "double":
        return _double
    if kind == "fixed":
        return _sized(schema["size"])
    return valid_text if kind == "string" else _exactly(EXACT[kind], kind)


def valid_text(value: Any) -> str:
    """A text, if it can be written in UTF-8."""
    if type(value) is not str:
        raise Unfit("string", kind_of_value(value))
    try:
        value.encode()
    except UnicodeEncodeError:
        raise Unfit("text that UTF-8 can carry", "half of a surrogate pair") from None
    return value


def _exactly(types: tuple[type[Any], ...], expected: str) -> Convert:
    def convert(value: Any) -> Any:
        if type(value) in types:
            return value
        raise Unfit(expected, kind_of_value(value))

    return convert


def _whole(least: int, most: int) -> Convert:
    def convert(value: Any) -> int:
        if type(value) is int and least <= value <= most:
            return value
        raise Unfit(
            f"a whole number from {least} to {most}", "another number" if type(value) is int else kind_of_value(value)
        )

    return convert


def _float(value: Any) -> Any:
    if type(value) not in (float, int):
        raise Unfit("a number", kind_of_value(value))
    if type(value) is int and not -(2**24) <= value <= 2**24:
        raise Unfit("a whole number of at most 24 bits, or a float", "a larger one")
    if _FLOAT_MAX < abs(value) < float("inf"):
        raise Unfit("a number of 32 bits", "a larger one")
    return value


def _double(value: Any) -> Any:
    if type(value) is float:
        return value
    if type(value) is not int:
        raise Unfit("double", kind_of_value(value))
    if not -(2**53) <= value <= 2**53:
        raise Unfit("a whole number of at most 53 bits, or a float", "a larger one")
    return value


def _sized(size: int) -> Convert:
    def convert(value: Any) -> bytes:
        if type(value) is bytes and len(value) == size:
            return value
        raise Unfit(f"{size} bytes", f"{len(value)}" if type(value) is bytes else kind_of_value(value))

    return convert


def _enum(symbols: tuple[str, ...]) -> Convert:
    expected = f"one of {', '.join(symbols):.200}"

    def convert(value: Any) -> str:
        plain = value._value_ if isinstance(value, Enum) else value
        if type(plain) is str and plain in symbols:
            return plain
        raise Unfit(expected, f"{plain!r:.40}" if type(plain) is str else kind_of_value(value))

    return convert


def _decimal(precision: int, scale: int) -> Convert:
    fits, quantum, expected = fitting(precision, scale), Decimal((0, (1,), -scale)), text(precision, scale)
    exact, before = Context(prec=precision), precision - scale

    def convert(value: Any) -> Decimal:
        if type(value) is not Decimal:
            raise Unfit(expected, kind_of_value(value))
        if value.same_quantum(quantum) and value.adjusted() < before:
            return value  # as `fits` does it first; a call takes longer
        if not fits(value):
            raise Unfit(expected, "one with more digits" if value.is_finite() else str(value))
        return value if value.same_quantum(quantum) else value.quantize(quantum, context=exact)

    return convert


def _logical(cls: type[Any], name: str) -> Convert:
    aware = None if cls is time else not name.startswith("local")
    zone = {True: "a datetime with a time zone", False: "a datetime without a time zone"}
    expected = cls.__name__ if aware is None else zone[aware]
    millis = name.endswith("-millis")

    def convert(value: Any) -> Any:
        if aware and type(value) is datetime and value.tzinfo is UTC and not millis:
            return value
        if type(value) is not cls or (aware is not None and (value.utcoffset() is not None) is not aware):
            raise Unfit(expected, "one of the other kind" if type(value) is cls else kind_of_value(value))
        if aware is None and value.tzinfo is not None:
            raise Unfit("a time without a time zone", "one with")
        if aware and not _in_utc(value):
            raise Unfit(f"{expected} in the years 1 to 9999 in UTC", "another one")
        if millis and value.microsecond % 1000:
            raise Unfit(f"{expected} in whole milliseconds", "one with microseconds")
        return value

    return convert if cls in (datetime, time) else _exactly((cls,), cls.__name__)


def _in_utc(value: datetime) -> bool:
    try:
        value.astimezone(UTC)
    except OverflowError:
        return False
    return True

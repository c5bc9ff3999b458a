"""Avro's scalars as they are read: each constraint of the specification is checked, because writers may not have."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Context, Decimal
from struct import Struct
from typing import Any, Final, TypeAlias
from uuid import UUID

from cues_kafka.codecs.avro_records import Unfit
from cues_kafka.codecs.digits import text

Read: TypeAlias = Callable[[bytes, int], tuple[Any, int]]
"""(bytes, position) to the value and the position behind it."""

MAX_DIGITS: Final = 10_000
"""Digits of a decimal. Making one of bytes takes time that grows with the square of its digits."""


class TooShort(Unfit):
    """The message ends inside a value."""

    def __init__(self) -> None:
        super().__init__("more bytes", "the end of the message")


def read_long(data: bytes, at: int) -> tuple[int, int]:
    """A whole number of 64 bits, in zigzag form."""
    byte = data[at]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), at + 1
    number, shift = byte & 0x7F, 7
    for byte in data[at + 1 : at + 10]:
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            if number >> 64:
                break
            return (number >> 1) ^ -(number & 1), at + shift // 7
    if len(data) < at + 10 and shift < 70 and byte >= 0x80:
        raise TooShort
    raise Unfit("a whole number of 64 bits", "one of more")


def _read_int(data: bytes, at: int) -> tuple[int, int]:
    byte = data[at]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), at + 1
    number, at = read_long(data, at)
    if -(2**31) <= number < 2**31:
        return number, at
    raise Unfit("a whole number of 32 bits", f"{number}")


def _read_null(_: bytes, at: int) -> tuple[None, int]:
    return None, at


def _read_boolean(data: bytes, at: int) -> tuple[bool, int]:
    byte = data[at]
    if byte > 1:
        raise Unfit("a boolean, which is 0 or 1", f"the byte {byte}")
    return byte == 1, at + 1


_FLOAT: Final = Struct("<f")
_DOUBLE: Final = Struct("<d")


def _read_float(data: bytes, at: int) -> tuple[float, int]:
    if at + 4 > len(data):
        raise TooShort
    return _FLOAT.unpack_from(data, at)[0], at + 4


def _read_double(data: bytes, at: int) -> tuple[float, int]:
    if at + 8 > len(data):
        raise TooShort
    return _DOUBLE.unpack_from(data, at)[0], at + 8


def read_bytes(data: bytes, at: int) -> tuple[bytes, int]:
    """Bytes behind their number."""
    size = data[at]
    if size < 0x80 and not size & 1:
        size >>= 1
        at += 1
    else:
        size, at = read_long(data, at)
        if size < 0:
            raise Unfit("a length", f"{size}")
    end = at + size
    if end > len(data):
        raise TooShort
    return data[at:end], end


def read_string(data: bytes, at: int) -> tuple[str, int]:
    """Text in UTF-8."""
    found, at = read_bytes(data, at)
    try:
        return found.decode(), at
    except UnicodeDecodeError:
        raise Unfit("text in UTF-8", "other bytes") from None


PLAIN: Final[Mapping[str, Read]] = {
    "null": _read_null, "boolean": _read_boolean, "int": _read_int, "long": read_long, "float": _read_float,
    "double": _read_double, "bytes": read_bytes, "string": read_string,
}  # fmt: skip


def fixed(size: int) -> Read:
    """Bytes of one size."""

    def read(data: bytes, at: int) -> tuple[bytes, int]:
        end = at + size
        if end > len(data):
            raise TooShort
        return data[at:end], end

    return read


def enum(symbols: list[str]) -> Read:
    """The symbol of a number."""
    by_byte = {n << 1: one for n, one in enumerate(symbols[:64])}

    def read(data: bytes, at: int) -> tuple[str, int]:
        symbol = by_byte.get(data[at])
        if symbol is not None:
            return symbol, at + 1
        index, at = _read_int(data, at)
        if 0 <= index < len(symbols):
            return symbols[index], at
        raise Unfit(f"one of {len(symbols)} symbols, from 0 on", f"the symbol {index}")

    return read


def decimal(read: Read, precision: int, scale: int) -> Read:
    """A decimal with at most the digits of its schema, and exactly them: Avro has no rounding."""
    digits = min(precision, MAX_DIGITS)
    limit = 10**digits
    most = limit.bit_length() // 8 + 1
    exact = Context(prec=digits, traps=[])
    expected = text(digits, scale)

    def convert(data: bytes, at: int) -> tuple[Decimal, int]:
        found, at = read(data, at)
        if len(found) > most:
            pad = b"\xff" if found[0] & 0x80 else b"\0"
            found = pad + found.lstrip(pad)
            if len(found) > most + 100:
                raise Unfit(expected, "one of more digits")
        unscaled = int.from_bytes(found, "big", signed=True)
        if not -limit < unscaled < limit:
            shown = len(str(abs(unscaled))) if digits < 1_000 else "more"
            raise Unfit(expected, f"one of {shown} digits")
        return Decimal(unscaled).scaleb(-scale, exact), at

    return convert


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_LOCAL: Final = datetime(1970, 1, 1)  # noqa: DTZ001  a local time
_DAY_MS: Final = 24 * 60 * 60 * 1000
_DAYS: Final = _EPOCH.toordinal()


def _timestamp(read: Read, epoch: datetime, unit: int) -> Read:
    def convert(data: bytes, at: int) -> tuple[datetime, int]:
        number, at = read(data, at)
        try:
            return epoch + timedelta(0, 0, number * unit), at
        except OverflowError:
            raise Unfit("a time in the years 1 to 9999", f"{number}") from None

    return convert


def _time(read: Read, unit: int) -> Read:
    def convert(data: bytes, at: int) -> tuple[time, int]:
        number, at = read(data, at)
        if not 0 <= number * unit < _DAY_MS * 1000:
            raise Unfit("a time of a day of 24 hours", f"{number}")
        seconds, micros = divmod(number * unit, 1_000_000)
        return time(seconds // 3600, seconds // 60 % 60, seconds % 60, micros), at

    return convert


def _date(read: Read) -> Read:
    def convert(data: bytes, at: int) -> tuple[date, int]:
        number, at = read(data, at)
        try:
            return date.fromordinal(number + _DAYS), at
        except (ValueError, OverflowError):
            raise Unfit("a date in the years 1 to 9999", f"day {number}") from None

    return convert


_UUID: Final = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


def _uuid(read: Read) -> Read:
    def convert(data: bytes, at: int) -> tuple[UUID, int]:
        found, at = read(data, at)
        if _UUID.fullmatch(found) is None:
            raise Unfit("a UUID as RFC 4122 has it", "other text")
        return UUID(found), at

    return convert


_LOGICAL: Final[Mapping[str, Callable[[Read], Read]]] = {
    "date": _date,
    "time-millis": lambda read: _time(read, 1000),
    "time-micros": lambda read: _time(read, 1),
    "timestamp-millis": lambda read: _timestamp(read, _EPOCH, 1000),
    "timestamp-micros": lambda read: _timestamp(read, _EPOCH, 1),
    "local-timestamp-millis": lambda read: _timestamp(read, _EPOCH_LOCAL, 1000),
    "local-timestamp-micros": lambda read: _timestamp(read, _EPOCH_LOCAL, 1),
    "uuid": _uuid,
}


def scalar(schema: Mapping[str, Any], *, converted: bool) -> Read:
    """
    The reader of a scalar.

    Args:
        schema: parsed, so that its logical type is one that fits its type.
        converted: whether values have the class of the logical type.
    """
    kind = schema["type"]
    if kind == "enum":
        return enum(schema["symbols"])
    read = fixed(schema["size"]) if kind == "fixed" else PLAIN[kind]
    if schema.get("logicalType") == "decimal" and kind in ("bytes", "fixed"):
        return decimal(read, schema["precision"], schema.get("scale", 0))
    return _LOGICAL[schema["logicalType"]](read) if converted else read

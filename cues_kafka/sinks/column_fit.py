"""Values as the columns of a table keep them: each comes out as it went in, or is refused with the column's name.

Databases round and cut without a word. PostgreSQL makes 1.01 of 1.005 in NUMERIC(6, 2), and leaves out the zone of a
time in TIMESTAMP. MariaDB leaves out the microseconds in DATETIME. SQLite keeps 15 digits of a decimal.

A number with a point goes by its digits: 0.1 fits NUMERIC(6, 1). It becomes the nearest one of a shorter type, as in
Parquet files. What a database refuses by itself, such as a number that is too large, is left to it.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal, InvalidOperation
from enum import Enum
from typing import Any, Final, NamedTuple, TypeAlias

from cues_kafka.errors import OutputError

Keep: TypeAlias = Callable[[Any], Any]
"""Gives a value as it is written; raises `_Unfit`."""


class _Unfit(Exception):
    """Why a column would not keep a value."""


class Kind(NamedTuple):
    """
    The type of a column.

    Attributes:
        text: as the database writes it, in small letters.
        base: without its numbers.
        numbers: those in brackets, such as precision and scale.
    """

    text: str
    base: str
    numbers: tuple[int, ...]

    @classmethod
    def of(cls, text: str) -> Kind:
        """Take a type apart: ``timestamp(3) without time zone``."""
        plain = " ".join(text.lower().split())
        found = _NUMBERS.search(plain)
        numbers = () if found is None else tuple(int(one) for one in found[1].split(","))
        return cls(plain, " ".join(_NUMBERS.sub(" ", plain).split()), numbers)


_NUMBERS: Final = re.compile(r"\(\s*(-?\d+(?:\s*,\s*-?\d+)?)\s*\)")


class Fitting:
    """
    Fits rows to the columns of one table.

    Args:
        table: its name, for errors.
        database: the dialect's name.
        kinds: the types of its columns by name, as the database writes them; a column that is not known keeps anything.
        columns: those of a row, in order.
    """

    def __init__(self, table: str, database: str, kinds: Mapping[str, str], columns: Sequence[str]) -> None:
        self._table = table
        same: Callable[[str], str] = str if database == "postgresql" else str.lower
        found = {same(name): Kind.of(text) for name, text in kinds.items()}
        self._rules = [
            (at, name, kind, *_rule(database, kind))
            for at, name in enumerate(columns)
            if (kind := found.get(same(name))) is not None
        ]

    def row(self, row: tuple[Any, ...]) -> tuple[Any, ...]:
        """
        The row as it is written.

        Raises:
            OutputError: a column would keep another value than the one in the row; names the column.
        """
        changed: list[Any] | None = None
        for at, name, kind, plain, keep in self._rules:
            if (value := row[at]) is None or type(value) in plain:
                continue
            try:
                kept = keep(value.value if isinstance(value, Enum) else value)
            except _Unfit as unfit:
                raise OutputError(f"column {name!r} of table {self._table!r} is {kind.text}, and {unfit}") from None
            if kept is not value:
                changed = changed or [*row]
                changed[at] = kept
        return row if changed is None else tuple(changed)


def _rule(database: str, kind: Kind) -> tuple[frozenset[type[Any]], Keep]:
    """Types whose values need no look, and what looks at the others."""
    plain, keep = _RULES[database](kind)
    array = database == "postgresql" and kind.text.endswith("]")
    return plain, keep if array or database == "sqlite" else _no_container(keep)


def _no_container(keep: Keep) -> Keep:
    """PyMySQL writes a list of one value as that value, and psycopg a list as text in braces."""

    def checked(value: Any) -> Any:
        if isinstance(value, list | tuple | set | frozenset | dict):
            raise _Unfit(f"takes no {type(value).__name__}. Write a function that makes text or rows of it")
        return keep(value)

    return checked


# Numbers


def _decimal_of(value: Any) -> Decimal | None:
    """A finite number with its digits as they are written; None: it is no number."""
    if isinstance(value, float):
        value = repr(float(value))
    try:
        found = Decimal(value) if isinstance(value, str | int | Decimal) else None
    except (InvalidOperation, ValueError):
        return None
    return found if found is not None and found.is_finite() else None


def _digits_behind(scale: int) -> Keep:
    """A number with at most these digits behind the point; a float becomes the decimal that it is written as."""

    def keep(value: Any) -> Any:
        if (found := _decimal_of(value)) is None:
            return value
        _, digits, exponent = found.as_tuple()
        more = -int(exponent) - scale
        if found and more > 0 and any(digits[-more:]):
            after = f"more than {scale} digits after the point" if scale > 0 else "a fraction"
            raise _Unfit(f"the value has {after}: the database would round it. Round it, or widen the column")
        return found if isinstance(value, float) else value

    return keep


_no_fraction: Final = _digits_behind(0)


def _whole(value: Any) -> Any:
    """A number without a fraction; 5.0 is 5, which `COPY` takes."""
    found = _no_fraction(value)
    return int(found) if isinstance(value, float) and isinstance(found, Decimal) else found


def _as_written(value: Any) -> Any:
    """A float as the decimal that it is written as: PostgreSQL would make one of 15 digits."""
    return value if not isinstance(value, float) or (found := _decimal_of(value)) is None else found


def _double(value: Any) -> Any:
    if isinstance(value, int | Decimal) and (found := _decimal_of(value)) is not None:
        near = float(found)
        if Decimal(near) != found and Decimal(repr(near)) != found:
            raise _Unfit("the value has more digits than that: it would be another number. Round it, or use NUMERIC")
    return value


def _single(value: Any) -> Any:
    """4 bytes keep whole numbers of 24 bits, and 6 digits of all others."""
    if isinstance(value, int | Decimal) and (found := _decimal_of(value)) is not None:
        try:
            [near] = struct.unpack("f", struct.pack("f", float(found)))
        except OverflowError:
            return value
        if Decimal(near) != found and len(found.normalize().as_tuple().digits) > 6:
            raise _Unfit("the value has more digits than that: it would be another number. Round it, or use NUMERIC")
    return value


def _sqlite_number(value: Any) -> Any:
    """SQLite reads text in such a column, and decimals are text; it keeps 15 digits of what is no whole number."""
    if isinstance(value, str | Decimal) and (found := _decimal_of(value)) is not None:
        whole = found == found.to_integral_value() and abs(found) < 1 << 63 if found.adjusted() < 20 else False
        if not whole and len(found.normalize().as_tuple().digits) > 15:
            raise _Unfit("the value has more than the 15 digits that SQLite keeps. Give the column the type TEXT")
    return value


# Times


_FRACTION: Final = re.compile(r":\d\d[.,](\d+)")
"""The fraction of a second in a time that is text."""

_ROUNDED: Final = "the value has more digits of a second: the database would leave them out. Leave them out, or use {}"


def _check_fraction(micros: int, digits: int, better: str) -> None:
    if micros % 10 ** (6 - digits):
        raise _Unfit(_ROUNDED.format(better))


def _check_written(text: str, digits: int, better: str) -> None:
    found = _FRACTION.search(text)
    if found is not None and found[1][digits:].strip("0"):
        raise _Unfit(_ROUNDED.format(better))


def _read(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text.strip())
    except ValueError:
        return None


def _moment(digits: int, better: str, *, zone: bool) -> Keep:
    """A moment; with a zone in a column without one it is written in UTC, which all readers can know."""

    def keep(value: Any) -> Any:
        if isinstance(value, str):
            _check_written(value, digits, better)
            found = None if zone else _read(value)
            return value if found is None or found.tzinfo is None else _utc(found)
        if not isinstance(value, datetime):
            return value
        _check_fraction(value.microsecond, digits, better)
        return value if zone or value.tzinfo is None else _utc(value)

    return keep


def _utc(value: datetime) -> datetime:
    try:
        return value.astimezone(UTC).replace(tzinfo=None)
    except OverflowError:
        raise _Unfit("the value is not in the years 1 to 9999 in UTC") from None


def _time_of_day(digits: int, better: str, *, zone: bool) -> Keep:
    def keep(value: Any) -> Any:
        if isinstance(value, str):
            _check_written(value, digits, better)
        elif isinstance(value, datetime):
            raise _Unfit("the value has a date: the database would leave it out. Give its time()")
        elif isinstance(value, time):
            if value.tzinfo is not None and not zone:
                raise _Unfit("the value has a zone: the database would leave it out. Leave it out, or write text")
            _check_fraction(value.microsecond, digits, better)
        elif isinstance(value, timedelta):
            _check_fraction(value.microseconds, digits, better)
        return value

    return keep


def _day(value: Any) -> Any:
    found = _read(value) if isinstance(value, str) else value if isinstance(value, datetime) else None
    if found is not None and (found.tzinfo is not None or found.time() != time()):
        raise _Unfit("the value has a time: the database would leave it out. Give its date()")
    return value


# Text and bytes


def _characters(most: int | None, *, bare: bool, encoded: bool) -> Keep:
    """
    Text in a column of characters.

    Args:
        most: how many it holds; None: any number.
        bare: whether the column keeps no blanks at the end.
        encoded: whether bytes are written as they are.
    """

    def keep(value: Any) -> Any:
        if isinstance(value, str):
            if most is not None and len(value) > most and not value[most:].strip(" "):
                raise _Unfit("the value has more blanks at its end: the database would leave them out. Strip them")
            if bare and value.endswith(" "):
                raise _Unfit("the value has blanks at its end: the database would leave them out. Use VARCHAR or TEXT")
        elif isinstance(value, bytes | bytearray | memoryview) and not encoded:
            raise _Unfit("the value is bytes, of which it would keep the hexadecimal digits. Decode them")
        return value

    return keep


def _no_text(value: Any) -> Any:
    if isinstance(value, str):
        raise _Unfit("the value is text, in which a backslash would mean other bytes. Encode it")
    return value


def _whole_length(size: int) -> Keep:
    def keep(value: Any) -> Any:
        if isinstance(value, bytes | bytearray | str) and len(value) < size:
            raise _Unfit("the value is shorter: the database would put zero bytes behind it. Use VARBINARY or BLOB")
        return value

    return keep


# The kinds of each database

_Rule: TypeAlias = tuple[frozenset[type[Any]], Keep]

_WHOLE: Final[_Rule] = frozenset({int, bool}), _whole
_DOUBLE: Final[_Rule] = frozenset({float, bool}), _double
_SINGLE: Final[_Rule] = frozenset({float, bool}), _single


def _any(value: Any) -> Any:
    return value


_PLAIN: Final = frozenset({int, float, bool, str})
_OTHER: Final[_Rule] = _PLAIN, _any


def _numeric(kind: Kind, scale: int) -> _Rule:
    """NUMERIC of PostgreSQL without numbers keeps all digits."""
    scale = kind.numbers[1] if len(kind.numbers) > 1 else scale
    return frozenset({int, bool}), _digits_behind(scale)


def _postgres(kind: Kind) -> _Rule:
    digits = kind.numbers[0] if kind.numbers else 6
    match kind.base:
        case "smallint" | "integer" | "bigint":
            return _WHOLE
        case "numeric":
            return _numeric(kind, 0) if kind.numbers else (frozenset({int, bool, Decimal}), _as_written)
        case "money":
            return frozenset({int}), _digits_behind(2)
        case "real":
            return _SINGLE
        case "double precision":
            return _DOUBLE
        case "timestamp without time zone":
            return frozenset(), _moment(digits, "TIMESTAMP(6)", zone=False)
        case "timestamp with time zone":
            return frozenset(), _moment(digits, "TIMESTAMPTZ(6)", zone=True)
        case "time without time zone" | "time with time zone":
            return frozenset(), _time_of_day(digits, "TIME(6)", zone=kind.base == "time with time zone")
        case "date":
            return frozenset({date}), _day
        case "text" | "character varying" | "character":
            most = kind.numbers[0] if kind.numbers else None
            return _PLAIN - ({str} if most else set()), _characters(most, bare=False, encoded=False)
        case "bytea":
            return frozenset({bytes}), _no_text
    return _OTHER


def _mysql(kind: Kind) -> _Rule:
    digits = kind.numbers[0] if kind.numbers else 0
    match kind.base.removesuffix(" zerofill").removesuffix(" unsigned"):
        case "tinyint" | "smallint" | "mediumint" | "int" | "bigint":
            return _WHOLE
        case "decimal":
            return _numeric(kind, 0)
        case "float":
            return _numeric(kind, 0) if len(kind.numbers) > 1 else _SINGLE
        case "double":
            return _numeric(kind, 0) if len(kind.numbers) > 1 else _DOUBLE
        case "datetime" | "timestamp" as base:
            return frozenset(), _moment(digits, f"{base.upper()}(6)", zone=False)
        case "time":
            return frozenset(), _time_of_day(digits, "TIME(6)", zone=False)
        case "date":
            return frozenset({date}), _day
        case "varchar" | "char" as base:
            bare = base == "char"
            return _PLAIN - {str}, _characters(kind.numbers[0] if kind.numbers else None, bare=bare, encoded=True)
        case "binary":
            return frozenset(), _whole_length(digits or 1)
    return _OTHER


def _sqlite(kind: Kind) -> _Rule:
    """By the affinity of the type; see https://sqlite.org/datatype3.html."""
    if "int" in kind.base:
        return frozenset({int, bool, float}), _sqlite_number
    if not kind.base or any(one in kind.base for one in ("char", "clob", "text", "blob")):
        return _OTHER
    if any(one in kind.base for one in ("real", "floa", "doub")):
        return frozenset({float, bool}), lambda value: _double(_sqlite_number(value))
    return frozenset({int, bool, float}), _sqlite_number


_RULES: Final[Mapping[str, Callable[[Kind], _Rule]]] = {
    "postgresql": _postgres, "mysql": _mysql, "sqlite": _sqlite,
}  # fmt: skip

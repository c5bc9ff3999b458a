"""Checks of values before they are written as JSON, compiled once from a shape into closures.

msgspec writes a value of any type, whatever the annotation says, and NaN as null. Here each value must be of its type.
A record whose fields' types were all seen before passes with one look into a set, and is written as it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, time
from decimal import Decimal
from operator import attrgetter, call, is_
from typing import Any, Final, TypeAlias

from cues_kafka.codecs.digits import checked, text
from cues_kafka.codecs.schema import (
    Anything,
    Choice,
    Fixed,
    Items,
    Mapped,
    Null,
    OneOf,
    Ref,
    Scalar,
    Shape,
    Structure,
    is_struct,
    shape_name,
)
from cues_kafka.graph.declare import Digits

Convert: TypeAlias = Callable[[Any], Any]

MAX_SHAPES: Final = 64
"""Tuples of types that a record remembers; one with many unions has more, and is checked field by field then."""

ARRAYS: Final = frozenset({list, tuple})


@dataclass(eq=False)
class JsonMisfit(Exception):
    """A value that does not fit. On its way out each container adds its own part of the path."""

    expected: str
    found: str
    path: list[str] = field(default_factory=list)

    def text(self, root: str) -> str:
        """`order.lines[3].price: expected Decimal, got a number`."""
        return f"{root}{''.join(reversed(self.path))}: expected {self.expected}, got {self.found}"


_LOOKS: Final[dict[type[Any], str]] = {
    dict: "an object", list: "an array", str: "text", bool: "a boolean", type(None): "null",
}  # fmt: skip


def _found(value: Any) -> str:
    """What was found instead. Messages hold what logs must not, so only a short number is shown."""
    if type(value) in (int, float):
        return f"the number {value!r:.40}"
    return _LOOKS.get(type(value)) or type(value).__name__


# ------------------------------------------------------------------------------------------- values without a class

_LEAVES: Final = frozenset({str, int, bool, type(None)})
"""Types whose values need no further look; a float may be NaN."""


def refuse_foreign(value: Any) -> Any:
    """
    Refuse what JSON does not have, such as a set (another order at each run), and give the value back.

    Raises:
        TypeError, ValueError: the value is not JSON.
    """
    inner: Iterable[Any] = (value,)
    if isinstance(value, dict):
        # Most objects have a few entries: a `map` over them costs more to set up than these loops to run.
        for key in value:
            if type(key) is not str:
                _refuse_keys(value)
                break
        inner = value.values()
    elif isinstance(value, list | tuple):
        inner = value
        if _LEAVES.issuperset(map(type, inner)):  # a list may be long
            return value
    for one in inner:
        if type(one) in _LEAVES:
            continue
        if isinstance(one, float):
            if not math.isfinite(one):
                raise ValueError("it has no form for NaN and infinity")
        elif isinstance(one, dict | list | tuple):
            refuse_foreign(one)
        elif not isinstance(one, str | int | None):
            raise TypeError(f"it has no form for {type(one).__name__}")
    return value


def _refuse_keys(keys: Iterable[Any]) -> None:
    """Whole numbers become text, as in the `json` of Python, if no other key is the same text."""
    seen = set()
    for key in keys:
        if not isinstance(key, str | int) or isinstance(key, bool):
            raise TypeError(f"it has no keys of {type(key).__name__}, only text")
        if (written := key if isinstance(key, str) else int.__repr__(key)) in seen:
            raise ValueError(f"two keys of an object are both {written!r:.60} as text, and readers keep one of them")
        seen.add(written)


def as_json(value: Any) -> Any:
    """What msgspec asks for: text and numbers of classes of their own, as numpy has them."""
    plains: tuple[tuple[type[Any], Convert], ...] = (
        (str, str.__str__), (int, int.__int__), (float, float.__float__),
    )  # fmt: skip
    for cls, plain in plains:  # not what a class of its own says of itself, which may be another text
        if isinstance(value, cls):
            return refuse_foreign(plain(value))
    raise TypeError(f"it has no form for {type(value).__name__}")


# ------------------------------------------------------------------------------------------- values and containers


def _of_types(types: frozenset[type[Any]], expected: str) -> Convert:
    def check(value: Any) -> Any:
        if type(value) in types:
            return value
        raise JsonMisfit(expected, _found(value))

    return check


def _float(value: Any) -> Any:
    if type(value) is float and math.isfinite(value):
        return value
    if type(value) is not int:
        raise JsonMisfit("a finite number", _found(value))
    if not -(2**53) <= value <= 2**53:  # it would come back as another number
        raise JsonMisfit("a whole number of at most 53 bits, or a float", "a larger one")
    return value


def _decimal(digits: Digits | None) -> Convert:
    fits, usual = checked(digits), None if digits is None else Decimal((0, (1,), -digits.scale))
    before = 0 if digits is None else digits.precision - digits.scale
    expected = "a finite Decimal" if digits is None else text(digits.precision, digits.scale)

    def check(value: Any) -> Any:
        if type(value) is not Decimal:
            raise JsonMisfit("Decimal", _found(value))
        if usual is not None and value.same_quantum(usual) and value.adjusted() < before:
            return value  # as `fits` does it first; a call takes longer
        if not fits(value):
            raise JsonMisfit(expected, "one with more digits" if value.is_finite() else str(value))
        return value

    return check


def _datetime(value: Any) -> Any:
    """RFC 3339 has no seconds in an offset, and old times have some: these are written in UTC, the same time."""
    if type(value) is not datetime:
        raise JsonMisfit("datetime", _found(value))
    if value.tzinfo is None or value.tzinfo is UTC or not _seconds(value):
        return value
    try:
        return value.astimezone(UTC)
    except OverflowError:
        raise JsonMisfit("a datetime in the years 1 to 9999 of UTC", "another one") from None


def _time(value: Any) -> Any:
    """A region's offset depends on the date, which a time has not: it would come back without its zone."""
    if type(value) is not time:
        raise JsonMisfit("time", _found(value))
    if value.tzinfo is not None and (value.utcoffset() is None or _seconds(value)):
        raise JsonMisfit("a time whose offset is in whole minutes", "another one")
    return value


def _seconds(value: datetime | time) -> bool:
    offset = value.utcoffset()
    return offset is not None and bool(offset.seconds % 60 or offset.microseconds)


_LOOKED_AT: Final[dict[type[Any], Convert]] = {
    float: _float, Decimal: _decimal(None), datetime: _datetime, time: _time,
}  # fmt: skip
"""Types whose values are looked at, too."""


def _one_of(values: Iterable[Any], expected: str) -> Convert:
    members = {(type(value), value) for value in values}  # with the type, because True == 1

    def check(value: Any) -> Any:
        if type(value) in (str, int, bool) and (type(value), value) in members:
            return value
        raise JsonMisfit(expected, f"{value!r:.40}" if type(value) is str else _found(value))

    return check


def _each(results: Iterator[Any], part: Callable[[int], str]) -> list[Any]:
    made: list[Any] = []
    try:
        made.extend(results)  # what came before a misfit stays, so its place is known
    except JsonMisfit as misfit:
        misfit.path.append(part(len(made)))
        raise
    return made


_place = "[{}]".format


def _array(convert: Convert, types: frozenset[type[Any]]) -> Convert:
    def convert_array(value: Any) -> Any:
        if type(value) not in ARRAYS:
            raise JsonMisfit("an array", _found(value))
        if types.issuperset(map(type, value)):
            return value
        made = _each(map(convert, value), _place)
        return value if all(map(is_, made, value)) else made

    return convert_array


def _fixed(converts: list[Convert]) -> Convert:
    expected = f"an array of {len(converts)} items"

    def convert_fixed(value: Any) -> Any:
        if type(value) not in ARRAYS or len(value) != len(converts):
            raise JsonMisfit(expected, f"{len(value)} of them" if type(value) in ARRAYS else _found(value))
        return _each(map(call, converts, value), _place)

    return convert_fixed


def _object(convert: Convert) -> Convert:
    def convert_object(value: Any) -> Any:
        if type(value) is not dict:
            raise JsonMisfit("an object", _found(value))
        if odd := [key for key in value if type(key) is not str]:
            raise JsonMisfit("text as a key", _found(odd[0]))
        made = _each(map(convert, value.values()), lambda n: f"[{[*value][n]!r:.60}]")
        return value if all(map(is_, made, value.values())) else dict(zip(value, made, strict=True))

    return convert_object


# ------------------------------------------------------------------------------------------- from shapes to closures


def deciding(shape: Shape) -> frozenset[type[Any]]:
    """The exact types that decide about a value, none: what is in the value counts, too."""
    match shape:
        case Null():
            return frozenset({type(None)})
        case Scalar(cls) if cls not in _LOOKED_AT:
            return frozenset({cls})
        case Choice(_, enum) if enum is not None:
            return frozenset({enum})
        case OneOf(options) if all(map(deciding, options)):
            return frozenset().union(*map(deciding, options))
    return frozenset()


class Checks:
    """
    Compiles a shape into what checks a value, and gives it as msgspec writes it.

    Args:
        native: whether msgspec writes the dataclasses as they are.
    """

    def __init__(self, *, native: bool) -> None:
        self._native = native
        self._records: dict[type[Any], Convert] = {}

    def convert(self, shape: Shape) -> Convert:
        """The closure for values of this shape; raises `JsonMisfit`."""
        if types := deciding(shape):
            return _of_types(types, shape_name(shape))
        match shape:
            case Anything():
                return refuse_foreign
            case Scalar(cls, digits):
                return _LOOKED_AT[cls] if digits is None else _decimal(digits)
            case Choice(values):
                return _one_of(values, shape_name(shape))
            case Items(item):
                return _array(self.convert(item), deciding(item))
            case Fixed(items):
                return _fixed([*map(self.convert, items)])
            case Mapped(value):
                return _object(self.convert(value))
            case OneOf(options):
                return self._union(options, shape_name(shape))
            case Structure(cls):
                convert = self._records[cls] = self._record(shape)
                return convert
            case Ref(cls):  # the class is inside itself: its closure is there when a value comes
                return lambda value: self._records[cls](value)  # noqa: PLW0108
        raise AssertionError(shape)

    def _union(self, options: tuple[Shape, ...], expected: str) -> Convert:
        converts = [*map(self.convert, options)]
        by_type: dict[type[Any], Convert] = {}
        for option, made in zip(options, converts, strict=True):
            by_type |= dict.fromkeys(
                {option.cls} if isinstance(option, Structure | Ref | Scalar) else deciding(option), made
            )

        def convert(value: Any) -> Any:
            if found := by_type.get(type(value)):
                return found(value)
            for each in converts:
                try:
                    return each(value)
                except JsonMisfit as misfit:
                    if misfit.path:  # its type fits, so this option was meant
                        raise
            raise JsonMisfit(expected, _found(value))

        return convert

    def _record(self, record: Structure) -> Convert:
        cls, names = record.cls, [each.name for each in record.fields]
        keys = [each.wire_name for each in record.fields]
        every = [*enumerate(self.convert(each.shape) for each in record.fields)]
        others = [one for one, each in zip(every, record.fields, strict=True) if not deciding(each.shape)]
        pick, struct = _picker(names), is_struct(cls)
        whole = self._native or struct
        known: set[tuple[type[Any], ...]] = set()

        def convert(value: Any) -> Any:
            if type(value) is not cls and (struct or not isinstance(value, cls)):
                raise JsonMisfit(cls.__name__, _found(value))
            made = found = pick(value)
            types = tuple(map(type, found))
            if rows := others if types in known else every:
                made, n = [*found], 0
                try:
                    for n, check in rows:
                        made[n] = check(found[n])
                except JsonMisfit as misfit:
                    misfit.path.append(f".{names[n]}")
                    raise
                if rows is every and len(known) < MAX_SHAPES:
                    known.add(types)
            if whole and type(value) is cls and (made is found or all(map(is_, made, found))):
                return value
            return dict(zip(keys, made, strict=True))

        return convert


def _picker(names: list[str]) -> Convert:
    """The fields of a value as a tuple."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda value: tuple(getattr(value, name) for name in names)

"""Which values of a column say something else in another type: a Parquet file keeps values, or refuses them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime, timedelta
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

_EXACT: Final[dict[str, set[type]]] = {
    **{f"{sign}int{bits}": {int} for sign in ("", "u") for bits in (8, 16, 32, 64)},
    "double": {float, int},
    "bool": {bool},
    "string": {str},
    "large_string": {str},
    "binary": {bytes, str},
    "large_binary": {bytes, str},
    "date32[day]": {date, int},
    "timestamp[us]": {datetime, int},
    "timestamp[ns]": {datetime, int},
    "duration[us]": {timedelta, int},
    "duration[ns]": {timedelta, int},
}
"""Classes of Python whose values pyarrow keeps in a type, or refuses by itself."""


def exact(kind: pa.DataType) -> frozenset[type]:
    """Classes whose values need no look: pyarrow keeps them in this type, or refuses them."""
    return frozenset({type(None)}.union(_EXACT.get(str(kind), ())))


def loses(values: Sequence[Any], made: pa.Array) -> bool:
    """
    Whether one of the values of Python says something else in the array that pyarrow has made of them.

    Raises:
        pyarrow.ArrowException, OverflowError: pyarrow does not know such a value.
    """
    if len({type(value) for value in values} - {type(None)}) == 1:
        return bool(lost(pa.array(values), made))
    # pyarrow takes the class of the first value for that of all
    return any(lost(pa.array([value]), made.slice(at, 1)) for at, value in enumerate(values))


def cast(given: pa.Array, kind: pa.DataType) -> pa.Array:
    """
    The values in another type. Decimals and binary numbers become each other as they are written: 0.1 is 0.1.

    Raises:
        pyarrow.ArrowInvalid: pyarrow sees that a value does not fit. It does not see all: see `lost`.
        pyarrow.ArrowNotImplementedError: no value of the one type can have the other one.
    """
    decimal, other = pa.types.is_decimal(kind), given.type if pa.types.is_decimal(kind) else kind
    if decimal and pa.types.is_integer(other):
        given = given.cast(pa.string())  # pyarrow asks for a type that could hold every whole number
    elif decimal != pa.types.is_decimal(given.type) and pa.types.is_floating(other):
        given = given.cast(pa.string())  # pyarrow's arithmetic makes the number beside it
    return given.cast(kind)


def unfit(given: pa.Array, kind: pa.DataType) -> list[int]:
    """The places of values that do not fit a type, found by halves: mostly few rows are wrong."""
    found, spans = list[int](), [(0, len(given))]
    while spans:
        start, count = spans.pop()
        part = given.slice(start, count)
        try:
            made = cast(part, kind)
        except pa.ArrowInvalid:
            half = count // 2
            if half:
                spans += [(start, half), (start + half, count - half)]
            else:
                found.append(start)
        else:
            found += (start + at for at in lost(part, made))
    return sorted(found)


def lost(given: pa.Array, made: pa.Array) -> list[int]:
    """
    The places of values that say something else in the array that was made of them: they do not come back from it.

    A number becomes the nearest one of a shorter floating-point type, but not infinity. A text that was read, such as
    ``"01"`` as a number, and a value that was written as a text are kept.
    """
    if given.type == made.type or given.null_count == len(given) or _is_text(made.type):
        return []
    if pa.types.is_floating(made.type) and (pa.types.is_floating(given.type) or _is_text(given.type)):
        finite = pc.is_finite(given) if pa.types.is_floating(given.type) else _names_no_infinity(given)
        return _places(pc.and_(pc.is_inf(made), finite))
    if _is_text(given.type):
        return []
    try:
        return _places(pc.invert(_same(cast(made, given.type), given)))
    except pa.ArrowNotImplementedError:  # such as a time, which does not say of which day
        return _places(given.is_valid())
    except pa.ArrowInvalid:
        if len(given) == 1:
            return [0]
        return [at for at in range(len(given)) if lost(given.slice(at, 1), made.slice(at, 1))]


def _same(back: pa.Array, given: pa.Array) -> pa.Array:
    if pa.types.is_nested(given.type):
        pairs = zip(back.to_pylist(), given.to_pylist(), strict=True)
        return pa.array([one == other for one, other in pairs], pa.bool_())
    return pc.equal(back, given)


def _places(where: pa.Array) -> list[int]:
    found: list[int] = pc.indices_nonzero(pc.fill_null(where, fill_value=False)).to_pylist()
    return found


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _names_no_infinity(texts: pa.Array) -> pa.Array:
    return pc.invert(pc.match_substring(texts, "inf", ignore_case=True))

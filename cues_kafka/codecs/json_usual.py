"""Looks at many values at once: whether msgspec writes each of them as `json_checks` would have it.

Each question is one walk in C over a column of types. It is a short cut: where the answer is no, every value is checked
by itself, which also finds what is wrong with which.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from operator import attrgetter
from typing import Any, Final, TypeAlias

from cues_kafka.codecs.json_checks import deciding
from cues_kafka.codecs.schema import Anything, Scalar, Shape, Structure

Usual: TypeAlias = Callable[[Sequence[Any]], bool]

Form: TypeAlias = "tuple[()] | tuple[type[Any], tuple[tuple[str, tuple[type[Any], ...]], ...]]"
"""The same for one value, for the compiled module: a class and the types of its fields, of which a float is finite;
empty: an object, with nothing in it but what JSON has."""

_PLAIN: Final = frozenset({str, int, bool, type(None)})
_TEXT: Final = frozenset({str})


def usual(shape: Shape, *, native: bool) -> Usual | None:
    """
    Make the function that looks at values of a shape; None: values of this shape are checked one by one.

    Args:
        shape: of the values.
        native: whether msgspec writes the dataclass as it is.
    """
    match shape:
        case Anything():
            return _flat_objects
        case Structure(cls) if native and shape.fields:
            fields = [_field(each.name, each.shape) for each in shape.fields]
            columns = [one for one in fields if one is not None]
            return _of(cls, columns) if len(columns) == len(fields) else None
    return None


def form_of(shape: Shape, *, native: bool) -> Form | None:
    """The form of values that msgspec writes as they are; None: values of this shape are checked. See `usual`."""
    match shape:
        case Anything():
            return ()
        case Structure(cls) if native and shape.fields:
            fields = tuple((each.name, tuple(_types(each.shape))) for each in shape.fields)
            return (cls, fields) if all(types for _, types in fields) else None
    return None


def _types(shape: Shape) -> frozenset[type[Any]]:
    return frozenset({float}) if shape == Scalar(float) else deciding(shape)


def _flat_objects(values: Sequence[Any]) -> bool:
    """Objects with text as keys, and with nothing but text, finite numbers, booleans and nulls in them."""
    if set(map(type, values)) != {dict} or not _TEXT.issuperset(map(type, chain.from_iterable(values))):
        return False
    types = set(map(type, chain.from_iterable(map(dict.values, values))))
    if not types - _PLAIN:
        return True
    return types <= {*_PLAIN, float} and _finite(chain.from_iterable(map(dict.values, values)))


def _finite(values: Iterable[Any]) -> bool:
    return all(math.isfinite(value) for value in values if type(value) is float)


def _field(name: str, shape: Shape) -> Usual | None:
    """The same for one field of objects, whose types alone decide; of a number with a point also what it is."""
    pick = attrgetter(name)
    if types := deciding(shape):
        return lambda values: types.issuperset(map(type, map(pick, values)))
    if shape == Scalar(float):
        return lambda values: _are_finite([*map(pick, values)])
    return None


def _are_finite(values: Sequence[Any]) -> bool:
    return set(map(type, values)) == {float} and all(map(math.isfinite, values))


def _of(cls: type[Any], fields: Sequence[Usual]) -> Usual:
    return lambda values: set(map(type, values)) == {cls} and all(field(values) for field in fields)

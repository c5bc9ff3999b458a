"""Shapes: the neutral schema of a dataclass, from which codecs make their checks and Spark its columns.

`describe` reads the annotations of a class once and gives a tree of shapes. It refuses types that cannot travel, or
that could not be told apart when they are read, and names the remedy. So no codec has rules of its own about classes.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum
from typing import Any, Literal, TypeAlias, Union, get_args, get_origin
from uuid import UUID

from cues_kafka.errors import GraphError
from cues_kafka.graph.declare import Digits

SCALARS: tuple[type[Any], ...] = (bool, int, float, str, bytes, datetime, date, time, Decimal, UUID)
"""Classes that travel as one value. In JSON all from `bytes` on are strings."""


@dataclass(frozen=True, slots=True)
class Anything:
    """Any value that the format can carry."""


@dataclass(frozen=True, slots=True)
class Null:
    """None."""


@dataclass(frozen=True, slots=True)
class Scalar:
    """
    One value.

    Attributes:
        cls: one of `SCALARS`.
        digits: of a `Decimal`, as far as they are declared; Avro and Spark need them, JSON does not.
    """

    cls: type[Any]
    digits: Digits | None = None


@dataclass(frozen=True, slots=True)
class Choice:
    """One of a few named values: an `Enum` (then `cls` is set, and travels by its value) or a `Literal`."""

    values: tuple[Any, ...]
    cls: type[Enum] | None = None


@dataclass(frozen=True, slots=True)
class Items:
    """A list, or a tuple of any length, of one shape."""

    item: Shape
    container: type[Any]


@dataclass(frozen=True, slots=True)
class Fixed:
    """A tuple with one shape for each place."""

    items: tuple[Shape, ...]


@dataclass(frozen=True, slots=True)
class Mapped:
    """A dict with text keys."""

    value: Shape


@dataclass(frozen=True, slots=True)
class OneOf:
    """A union. No two options look alike in JSON, except records that a `Literal` field tells apart."""

    options: tuple[Shape, ...]


@dataclass(frozen=True, slots=True)
class Field:
    """
    One field of a record.

    Attributes:
        name: as in the class.
        shape: of its values.
        default: makes the value of a field that is missing; None: the field is required.
    """

    name: str
    shape: Shape
    default: Callable[[], Any] | None = field(compare=False)
    keyword_only: bool


@dataclass(frozen=True, slots=True)
class Structure:
    """
    A record.

    Attributes:
        cls: its dataclass, or `dict` for the records of a schema. Fields with ``init=False`` are derived, so they do
            not travel.
        fields: in the order of declaration.
        name: of a record without a class.
    """

    cls: type[Any]
    fields: tuple[Field, ...]
    name: str = ""


@dataclass(frozen=True, slots=True)
class Ref:
    """A dataclass inside itself: the `Structure` of this class further up."""

    cls: type[Any]


Shape: TypeAlias = Anything | Null | Scalar | Choice | Items | Fixed | Mapped | OneOf | Structure | Ref


def describe(annotation: Any) -> Shape:
    """
    The shape of a dataclass, or of any other annotation.

    Raises:
        GraphError: a class or a combination that cannot travel; names the field, and says what to write instead.
    """
    return _Describer().shape(annotation, _name(annotation))


def _name(annotation: Any) -> str:
    return getattr(annotation, "__name__", None) or str(annotation)


class _Describer:
    """One walk: `_open` holds the classes that are being described, `_done` the described ones."""

    def __init__(self) -> None:
        self._open: list[type[Any]] = []
        self._done: dict[type[Any], Structure] = {}

    def shape(self, annotation: Any, where: str) -> Shape:
        if isinstance(annotation, typing.NewType):
            return self.shape(annotation.__supertype__, where)
        if origin := get_origin(annotation):
            return self._generic(origin, get_args(annotation), where)
        if isinstance(annotation, type) and dataclasses.is_dataclass(annotation):
            return self._record(annotation)
        if isinstance(annotation, type) and issubclass(annotation, Enum):
            return Choice(_choices([member.value for member in annotation], where), annotation)
        if annotation in (set, frozenset):
            raise GraphError(f"{where}: {_NO_SETS}")
        if isinstance(annotation, Hashable) and annotation in _PLAIN:
            return _PLAIN[annotation]
        raise GraphError(f"{where}: {_name(annotation)} cannot travel. {_ALLOWED}")

    def _generic(self, origin: Any, arguments: tuple[Any, ...], where: str) -> Shape:
        if origin is typing.Annotated:
            shape = self.shape(arguments[0], where)
            digits = next((one for one in arguments[1:] if isinstance(one, Digits)), None)
            return Scalar(Decimal, digits) if digits and shape == Scalar(Decimal) else shape
        if origin in (Union, types.UnionType):
            return _union([self.shape(option, where) for option in arguments], where)
        if origin is Literal:
            return Choice(_choices(list(arguments), where))
        if origin is tuple and not (len(arguments) == 2 and arguments[1] is Ellipsis):
            return Fixed(tuple(self.shape(item, f"{where}[{place}]") for place, item in enumerate(arguments)))
        if origin in (list, tuple, Sequence):
            return Items(self.shape(arguments[0], f"{where}[]"), tuple if origin is tuple else list)
        if origin in (dict, Mapping):
            if arguments[0] is not str:
                raise GraphError(
                    f"{where}: keys are {_name(arguments[0])}. Keys that travel are text: write dict[str, ...]."
                )
            return Mapped(self.shape(arguments[1], f"{where}{{}}"))
        if origin in (set, frozenset):
            raise GraphError(f"{where}: {_NO_SETS}")
        raise GraphError(f"{where}: {_name(origin)}[...] cannot travel. {_ALLOWED}")

    def _record(self, cls: type[Any]) -> Shape:
        if cls in self._done:
            return self._done[cls]
        if cls in self._open:
            return Ref(cls)
        self._open.append(cls)
        hints = _hints(cls)
        fields = tuple(
            Field(
                name=each.name,
                shape=self.shape(hints[each.name], f"{cls.__name__}.{each.name}"),
                default=_default(each),
                keyword_only=each.kw_only is True,
            )
            for each in dataclasses.fields(cls)
            if each.init
        )
        self._open.pop()
        record = Structure(cls, fields)
        if not self._open:  # inside another class it may hold a `Ref` that only makes sense there
            self._done[cls] = record
        return record


_PLAIN: dict[Any, Shape] = {
    **{cls: Scalar(cls) for cls in SCALARS},
    Any: Anything(),
    object: Anything(),
    None: Null(),
    type(None): Null(),
    list: Items(Anything(), list),
    tuple: Items(Anything(), tuple),
    dict: Mapped(Anything()),
}
_ALLOWED = (
    "Write a dataclass, an Enum, a Literal, Any, list[...], tuple[...], dict[str, ...], a union of these, or one of "
    + ", ".join(cls.__name__ for cls in SCALARS)
    + "."
)
_NO_SETS = "a set has no order, so a replay would write other bytes. Write tuple[...] or list[...]."


def _hints(cls: type[Any]) -> dict[str, Any]:
    try:
        hints = typing.get_type_hints(cls, include_extras=True)
    except NameError as error:
        raise GraphError(
            f"{cls.__name__}: its module has no name {error.name!r}, which an annotation needs. Define both classes at "
            "module level, and import what annotations name outside of `if TYPE_CHECKING`."
        ) from error
    for name, hint in hints.items():
        if isinstance(hint, dataclasses.InitVar):
            raise GraphError(f"{cls.__name__}.{name}: an InitVar is not kept, so it cannot travel. Make it a field.")
    return hints


def _is_missing(default: Any) -> bool:
    """By type: a class that was pickled by value to another process has sentinels of its own."""
    return isinstance(default, type(MISSING))


def _default(declared: dataclasses.Field[Any]) -> Callable[[], Any] | None:
    factory: Any = declared.default_factory
    if not _is_missing(factory):
        return factory  # type: ignore[no-any-return]
    return None if _is_missing(declared.default) else lambda: declared.default


def _choices(values: list[Any], where: str) -> tuple[Any, ...]:
    for value in values:
        if not isinstance(value, str | int | bool):
            raise GraphError(f"{where}: the value {value!r} cannot travel. Give choices text or whole numbers.")
    return tuple(values)


def _union(options: list[Shape], where: str) -> Shape:
    if any(isinstance(option, Anything) for option in options):
        return Anything()
    taken: dict[str, Shape] = {}
    for option in options:
        for look in json_types(option):
            other = taken.setdefault(look, option)
            if other is not option and not _tagged(other, option):
                raise GraphError(
                    f"{where}: {shape_name(other)} and {shape_name(option)} are both {_ARTICLES[look]} in JSON, "
                    f"so they could not be told apart when read. Use one of them, or give dataclasses a field like "
                    f"`kind: Literal['a']` each."
                )
    # A float field takes whole numbers too, so that `1` is read: the int must be asked first.
    return OneOf(tuple(sorted(options, key=lambda option: option == Scalar(float))))


_ARTICLES = {
    "null": "null", "boolean": "a boolean", "integer": "a whole number", "number": "a number", "string": "a string",
    "array": "an array", "object": "an object",
}  # fmt: skip


def json_types(shape: Shape) -> Iterator[str]:
    """The JSON types that values of a shape have."""
    match shape:
        case Null():
            yield "null"
        case Scalar(cls):
            yield {bool: "boolean", int: "integer", float: "number"}.get(cls, "string")
        case Choice(values):
            looks = {bool: "boolean", int: "integer"}
            yield from sorted({looks.get(type(value), "string") for value in values})
        case Items() | Fixed():
            yield "array"
        case Mapped() | Structure() | Ref():
            yield "object"
        case OneOf(options):
            for option in options:
                yield from json_types(option)
        case Anything():
            yield from _ARTICLES


def _tagged(one: Shape, other: Shape) -> bool:
    """Whether two records have a field of one name whose choices have nothing in common."""
    if not isinstance(one, Structure) or not isinstance(other, Structure):
        return False
    tags = {each.name: set(each.shape.values) for each in one.fields if isinstance(each.shape, Choice)}
    theirs = {each.name: each.shape.values for each in other.fields if isinstance(each.shape, Choice)}
    return any(tags[name].isdisjoint(theirs[name]) for name in tags.keys() & theirs.keys())


def shape_name(shape: Shape) -> str:
    """What a person calls it, for error messages."""
    match shape:
        case Anything():
            return "anything"
        case Null():
            return "null"
        case Structure(_, _, name) if name:
            return name
        case Scalar(cls) | Structure(cls) | Ref(cls):
            return str(cls.__name__)
        case Choice(values, enum):
            return enum.__name__ if enum else " or ".join(map(repr, values))
        case Items(item, container):
            return f"{container.__name__} of {shape_name(item)}"
        case Fixed(items):
            return f"tuple of {', '.join(map(shape_name, items))}"
        case Mapped(value):
            return f"dict of {shape_name(value)}"
        case OneOf(options):
            return " or ".join(map(shape_name, options))

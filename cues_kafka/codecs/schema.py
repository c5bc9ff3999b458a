"""Shapes: the neutral schema of a class, from which codecs make their checks and Spark its columns.

`describe` reads the annotations of a class once and gives a tree of shapes. It refuses types that cannot travel, or
that could not be told apart when they are read, and names the remedy. So no codec has rules of its own about classes.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum
from typing import Any, Literal, TypeAlias, Union, get_args, get_origin
from uuid import UUID

import msgspec

from cues_kafka.codecs.models import is_model, model_fields
from cues_kafka.errors import GraphError
from cues_kafka.graph.declare import Alias, Digits

SCALARS: tuple[type[Any], ...] = (bool, int, float, str, bytes, datetime, date, time, Decimal, UUID)
"""Classes that travel as one value. In JSON all from `bytes` on are strings."""


@dataclass(frozen=True, slots=True)
class Anything:
    """Any value that the format can carry."""


@dataclass(frozen=True, slots=True)
class Null:
    """The type of None."""


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
    """A union. No two options look alike in JSON, except records that a `Literal` field or their name tells apart."""

    options: tuple[Shape, ...]


@dataclass(frozen=True, slots=True)
class Field:
    """
    One field of a record.

    Attributes:
        name: as in the class.
        shape: of its values.
        default: makes the value of a field that is missing; None: the field is required.
        alias: its name in messages where that is another one.
    """

    name: str
    shape: Shape
    default: Callable[[], Any] | None = field(compare=False)
    keyword_only: bool
    alias: str | None = None

    @property
    def wire_name(self) -> str:
        """Its name in messages and in Spark's columns."""
        return self.alias or self.name


@dataclass(frozen=True, slots=True)
class Structure:
    """
    A record.

    Attributes:
        cls: its dataclass, `msgspec.Struct` or pydantic model, or `dict` for the records of a schema. Fields with
            ``init=False`` are derived, so they do not travel.
        fields: in the order of declaration.
        name: of a record without a class.
        tag: name and value of the field in messages that tells a `msgspec.Struct` from others; None: it has none.
    """

    cls: type[Any]
    fields: tuple[Field, ...]
    name: str = ""
    tag: tuple[str, str | int] | None = None


@dataclass(frozen=True, slots=True)
class Ref:
    """A class inside itself: the `Structure` of this class further up."""

    cls: type[Any]


Shape: TypeAlias = Anything | Null | Scalar | Choice | Items | Fixed | Mapped | OneOf | Structure | Ref


def describe(annotation: Any, *, models: bool = False) -> Shape:
    """
    The shape of a dataclass, a `msgspec.Struct`, or any other annotation.

    Args:
        annotation: what the values are.
        models: for Avro: pydantic models may be in it, and records of a union are told apart by their names.

    Raises:
        GraphError: a class or a combination that cannot travel; names the field, and says what to write instead.
    """
    return _Describer(models=models).shape(annotation, _name(annotation))


def _name(annotation: Any) -> str:
    return getattr(annotation, "__name__", None) or str(annotation)


class _Describer:
    """One walk: `_open` holds the classes that are being described, `_done` the described ones."""

    def __init__(self, *, models: bool) -> None:
        self._models = models
        self._open: list[type[Any]] = []
        self._done: dict[type[Any], Structure] = {}

    def shape(self, annotation: Any, where: str) -> Shape:
        if isinstance(annotation, typing.NewType):
            return self.shape(annotation.__supertype__, where)
        if origin := get_origin(annotation):
            return self._generic(origin, get_args(annotation), where)
        if isinstance(annotation, type) and (dataclasses.is_dataclass(annotation) or is_struct(annotation)):
            return self._record(annotation)
        if isinstance(annotation, type) and is_model(annotation):
            if not self._models:
                raise GraphError(f"{where}: {annotation.__name__} is a pydantic model. {_NO_MODELS}")
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
            return _union([self.shape(option, where) for option in arguments], where, named=self._models)
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
        hints, declared = _declared(cls)
        fields = tuple(
            Field(name, self.shape(hints[name], f"{cls.__name__}.{name}"), default, keyword_only, alias)
            for name, default, keyword_only, alias in declared
        )
        self._open.pop()
        _check_names(cls, fields)
        record = Structure(cls, fields, tag=_tag(cls))
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
    "Write a dataclass, a msgspec.Struct, an Enum, a Literal, Any, list[...], tuple[...], dict[str, ...], a union of "
    "these, or one of " + ", ".join(cls.__name__ for cls in SCALARS) + "."
)
_NO_MODELS = "JSON takes dataclasses and msgspec.Structs. Declare one of these, or Avro(Model), or a codec of your own."
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


_Declared: TypeAlias = tuple[str, Callable[[], Any] | None, bool, str | None]
"""Name, default, whether it is passed by keyword only, alias."""


def _declared(cls: type[Any]) -> tuple[dict[str, Any], Iterator[_Declared]]:
    """Annotations and fields of a class."""
    if is_model(cls):
        fields = [*model_fields(cls)]
        annotations = {each.name: each.annotation for each in fields}
        return annotations, ((each.name, each.default, True, each.alias) for each in fields)
    hints = _hints(cls)
    return hints, _struct_fields(cls) if is_struct(cls) else _dataclass_fields(cls, hints)


def is_struct(cls: type[Any]) -> bool:
    """Whether a class is a `msgspec.Struct`."""
    return issubclass(cls, msgspec.Struct)


def forget_decoders(shape: Shape) -> None:
    """Drop what msgspec keeps on classes when it makes a decoder; with it no class can be sent to Spark's processes."""
    for cls in classes_of(shape):
        if "__msgspec_cache__" in vars(cls) and not is_struct(cls):
            delattr(cls, "__msgspec_cache__")


def _dataclass_fields(cls: type[Any], hints: Mapping[str, Any]) -> Iterator[_Declared]:
    for each in dataclasses.fields(cls):
        _mend(each)
        if each.init:
            notes = get_args(hints[each.name])[1:] if get_origin(hints[each.name]) is typing.Annotated else ()
            alias = next((note.name for note in notes if isinstance(note, Alias)), None)
            yield each.name, _default(each.default, each.default_factory, MISSING), each.kw_only is True, alias


def _struct_fields(cls: type[Any]) -> Iterator[_Declared]:
    if cls.__struct_config__.array_like:
        raise GraphError(f"{cls.__name__}: array_like=True has no names of fields in messages. Drop it.")
    for each in msgspec.structs.fields(cls):
        alias = each.encode_name if each.encode_name != each.name else None
        yield each.name, _default(each.default, each.default_factory, msgspec.NODEFAULT), True, alias


def _mend(declared: dataclasses.Field[Any]) -> None:
    """A class that was pickled by value to another process has sentinels of its own, which msgspec does not know."""
    for name in ("default", "default_factory"):
        if isinstance(getattr(declared, name), type(MISSING)):
            setattr(declared, name, MISSING)


def _default(value: Any, factory: Any, missing: Any) -> Callable[[], Any] | None:
    if factory is not missing:
        return factory  # type: ignore[no-any-return]
    return None if value is missing else lambda: value


def _tag(cls: type[Any]) -> tuple[str, str | int] | None:
    config = cls.__struct_config__ if is_struct(cls) else None
    return (config.tag_field, config.tag) if config is not None and config.tag is not None else None


def _check_names(cls: type[Any], fields: tuple[Field, ...]) -> None:
    taken: dict[str, str] = {}
    for each in fields:
        if (other := taken.setdefault(each.wire_name, each.name)) != each.name:
            raise GraphError(
                f"{cls.__name__}: the fields {other!r} and {each.name!r} are both {each.wire_name!r} in messages. "
                "Give one of them another Alias."
            )


def _choices(values: list[Any], where: str) -> tuple[Any, ...]:
    for value in values:
        if not isinstance(value, str | int | bool):
            raise GraphError(f"{where}: the value {value!r} cannot travel. Give choices text or whole numbers.")
    return tuple(values)


def _union(options: list[Shape], where: str, *, named: bool) -> Shape:
    """A union; `named`: the format tells records by their names, as Avro does."""
    if any(isinstance(option, Anything) for option in options):
        return Anything()
    taken: dict[str, Shape] = {}
    for option in options:
        for look in json_types(option):
            other = taken.setdefault(look, option)
            by_name = named and isinstance(other, Structure | Ref) and isinstance(option, Structure | Ref)
            if other is not option and not by_name and not _tagged(other, option):
                raise GraphError(
                    f"{where}: {shape_name(other)} and {shape_name(option)} are both {_ARTICLES[look]} in JSON, "
                    f"so they could not be told apart when read. Use one of them, or give dataclasses a field like "
                    f"`kind: Literal['a']` each, and each msgspec.Struct a tag."
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


def within(shape: Shape) -> Iterator[Shape]:
    """A shape, and all that are in it."""
    yield shape
    inner: Iterable[Shape] = ()
    match shape:
        case Structure(_, fields):
            inner = [each.shape for each in fields]
        case Items(item) | Mapped(item):
            inner = (item,)
        case Fixed(shapes) | OneOf(shapes):
            inner = shapes
    for one in inner:
        yield from within(one)


def classes_of(shape: Shape) -> Iterator[type[Any]]:
    """The classes of a shape: records and enums."""
    return (one.cls for one in within(shape) if isinstance(one, Structure | Choice) and one.cls is not None)


def holds_decimal(shape: Shape) -> bool:
    """Whether a `Decimal` is somewhere in values of a shape."""
    return any(isinstance(one, Scalar) and one.cls is Decimal for one in within(shape))


def _tagged(one: Shape, other: Shape) -> bool:
    """Whether two records have a field of one name whose choices have nothing in common."""
    if not isinstance(one, Structure) or not isinstance(other, Structure):
        return False
    tags, theirs = tags_of(one), tags_of(other)
    return any(tags[name].isdisjoint(theirs[name]) for name in tags.keys() & theirs.keys())


def tags_of(record: Structure) -> dict[str, set[Any]]:
    """The fields that may tell a record from others, by their names in messages, each with its values."""
    tags = {each.wire_name: set(each.shape.values) for each in record.fields if isinstance(each.shape, Choice)}
    return tags if record.tag is None else {record.tag[0]: {record.tag[1]}}


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

"""Values of Avro after they are read: made instances of the classes that a program declares."""

from __future__ import annotations

from enum import Enum
from operator import length_hint
from typing import Any, Final

from cues_kafka.codecs.avro_checks import kind_of_value, or_null
from cues_kafka.codecs.avro_records import AvroRecord, Convert, ToRead, Unfit, reader, unfit_at
from cues_kafka.codecs.models import is_model, validates, why_refused
from cues_kafka.codecs.schema import (
    SCALARS,
    Choice,
    Field,
    Items,
    Mapped,
    Null,
    OneOf,
    Ref,
    Scalar,
    Shape,
    Structure,
    shape_name,
)


class _Members(dict[Any, Enum]):
    """The members of an enum by their values: a look into a dict takes a third of a call of the enum."""

    def __init__(self, enum: type[Enum]) -> None:
        super().__init__((each.value, each) for each in enum)
        self._enum = enum

    def __missing__(self, value: Any) -> Enum:
        return self._enum(value)


class Reading:
    """
    Compiles a shape into what makes values of what the decoder gives; None where that is the value already.

    Args:
        exact: whether the schema comes from the class, so that records have its fields and no others.
        resolved: whether values were written with another schema, so that a field's type may be the writer's.
    """

    def __init__(self, *, exact: bool, resolved: bool = False) -> None:
        self._exact = exact
        self._resolved = resolved
        self._made: dict[type[Any], Convert | None] = {}

    def build(self, shape: Shape) -> Convert | None:
        """The closure that makes one value."""
        match shape:
            case Scalar(cls) if self._resolved and cls not in _ALIKE:
                return _checked(cls)
            case Structure(cls, fields):
                return self._record(cls, [self._field(each) for each in fields])
            case Choice(_, enum) if enum is not None:
                return _Members(enum).__getitem__
            case Choice(values):
                return _one_of_values(values, shape_name(shape))
            case Items(item, container):
                return _items(self.build(item), container)
            case Mapped(value):
                build = self.build(value)
                return None if build is None else _values(build)
            case OneOf(options):
                return self._union(options)
            case Ref(cls):
                return None if cls is dict else lambda found: (self._made[cls] or cls)(found)  # noqa: PLW0108  made later
            case _:
                return None

    def _field(self, each: Field) -> ToRead:
        if isinstance(each.shape, Items) and each.shape.container is list:
            return ToRead(each.wire_name, each.name, self.build(each.shape.item), many=True)
        return ToRead(each.wire_name, each.name, self.build(each.shape))

    def _record(self, cls: type[Any], fields: list[ToRead]) -> Convert | None:
        if cls is dict and all(each.build is None for each in fields):
            return None
        if is_model(cls):  # whose constructor takes aliases
            fields = [each._replace(attribute=each.name) for each in fields]
        made = reader(cls, fields, exact=self._exact)
        made = _validated(cls, made) if validates(cls) else made
        self._made[cls] = made
        return made

    def _union(self, options: tuple[Shape, ...]) -> Convert | None:
        rest = [one for one in options if not isinstance(one, Null)]
        if len(rest) == 1:
            build = self.build(rest[0])
            return None if build is None else or_null(build)
        builds = [(one, self.build(one)) for one in rest]
        records = {_name(one): build for one, build in builds if isinstance(one, Structure | Ref | Mapped)}
        scalars: set[type[Any]] = {one.cls for one in rest if isinstance(one, Scalar)}
        scalars.update(type(value) for one in rest if isinstance(one, Choice) for value in one.values)

        def make(found: Any) -> Any:
            if type(found) is tuple:  # one of several records and maps, and its name
                name, value = found
                last = name.rpartition(".")[2]
                if last not in records:
                    return AvroRecord(name, value)
                made = records[last]
                value = value if made is None else made(value)
                return AvroRecord(name, value) if type(value) is dict else value
            if self._resolved and type(found) not in scalars and type(found) in SCALARS:
                raise Unfit("one of the declared options", f"the writer's {type(found).__name__}")
            return next(
                (made(found) for one, made in builds if made is not None and _fits(one, found)),
                found,
            )

        return make


_ALIKE: Final = {bool, float}
"""Types that no logical type stands behind."""


def _checked(cls: type[Any]) -> Convert:
    """Refuses what only the writer's schema or only the declared one calls a time, a UUID or a decimal."""

    def check(found: Any) -> Any:
        if type(found) is cls:
            return found
        raise Unfit(f"the declared {cls.__name__}", f"the writer's {type(found).__name__}: declare the writer's type")

    return check


def _one_of_values(values: tuple[Any, ...], expected: str) -> Convert:
    """Refuses values that a `Literal` does not have: the schema of a writer may say no more than text."""
    kinds = {type(value) for value in values}

    def check(found: Any) -> Any:
        if type(found) in kinds and found in values:
            return found
        raise Unfit(expected, "another value" if type(found) in kinds else kind_of_value(found))

    return check


def _values(build: Convert) -> Convert:
    def convert(found: dict[str, Any]) -> dict[str, Any]:
        made, key = {}, ""
        try:
            for key, one in found.items():
                made[key] = build(one)
        except Exception as error:  # noqa: BLE001  a class may raise what it likes
            raise unfit_at(error, f"[{key!r:.60}]") from None
        return made

    return convert


def _validated(cls: type[Any], make: Convert) -> Convert:
    def validated(found: Any) -> Any:
        try:
            return make(found)
        except ValueError as error:
            if type(error).__name__ != "ValidationError":
                raise
            raise ValueError(why_refused(cls, error)) from None

    return validated


def _name(shape: Structure | Ref | Mapped) -> str:
    if isinstance(shape, Mapped):
        return "map"
    return (shape.name if isinstance(shape, Structure) and shape.name else shape.cls.__name__).rpartition(".")[2]


def _fits(shape: Shape, found: Any) -> bool:
    match shape:
        case Choice(values):
            return found in values
        case Items():
            return isinstance(found, list)
        case Structure() | Mapped() | Ref():
            return isinstance(found, dict)
        case _:
            return False


def _items(build: Convert | None, container: type[Any]) -> Convert | None:
    if build is None:
        return None if container is list else container

    def convert(found: list[Any]) -> Any:
        rest = iter(found)
        try:
            made = [*map(build, rest)]
        except Exception as error:  # noqa: BLE001  a class may raise what it likes
            raise unfit_at(error, f"[{len(found) - length_hint(rest) - 1}]") from None
        return made if container is list else container(made)

    return convert

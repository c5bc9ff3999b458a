"""Values of a shape as Arrow takes them: records as dicts by the names of columns, and enums by their values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any, TypeAlias
from uuid import UUID

from cues_kafka.codecs.schema import Choice, Items, Mapped, OneOf, Scalar, Shape, Structure

Convert: TypeAlias = Callable[[Any], Any]


def plain(shape: Shape) -> Convert | None:
    """What makes of a value what Arrow takes: records as dicts by the names of columns; None: it is that already."""
    match shape:
        case Scalar(cls) if cls is UUID:
            return str
        case Choice(_, enum) if enum is not None:
            return lambda value: value.value
        case Items(item):
            each = plain(item)
            return None if each is None else lambda value: [*map(each, value)]
        case Mapped(item):
            return _pairs(plain(item))
        case OneOf(options):
            inner = next((made for one in options if (made := plain(one)) is not None), None)
            return None if inner is None else lambda value: None if value is None else inner(value)
        case Structure():
            return _record(shape)
        case _:
            return None


def _pairs(each: Convert | None) -> Convert:
    if each is None:
        return lambda value: [*value.items()]
    return lambda value: [(key, each(one)) for key, one in value.items()]


def _record(shape: Structure) -> Convert | None:
    made = [(each.name, each.wire_name, plain(each.shape)) for each in shape.fields]
    if shape.cls is dict:
        if all(convert is None for _, _, convert in made):
            return None
        return lambda found: _fields(found, made)
    names = [name for name, _, _ in made]
    if not _has_dict(shape.cls, names):
        return lambda value: _fields({name: getattr(value, name) for name in names}, made)
    if all(convert is None and name == wire for name, wire, convert in made):
        return attrgetter("__dict__")  # Arrow takes the fields of its type, and looks at no other
    return lambda value: _fields(value.__dict__, made)


def _has_dict(cls: type[Any], names: Sequence[str]) -> bool:
    """Whether an instance's dict has all of these: of a default, a slot or a descriptor the class has the name, too."""
    return bool(cls.__dictoffset__) and not any(hasattr(cls, name) for name in names)


def _fields(found: Mapping[str, Any], made: Sequence[tuple[str, str, Convert | None]]) -> dict[str, Any]:
    return {wire: found[name] if convert is None else convert(found[name]) for name, wire, convert in made}


def revived(shape: Shape) -> Convert | None:
    """What makes of rows of Arrow the values of a schema that have no class; None: they are that already."""
    match shape:
        case Scalar(cls) if cls is UUID:
            return UUID
        case Items(item):
            each = revived(item)
            return None if each is None else lambda value: [*map(each, value)]
        case Mapped(item):
            one = revived(item)
            return None if one is None else lambda value: {key: one(of) for key, of in value.items()}
        case OneOf(options):
            inner = next((made for option in options if (made := revived(option)) is not None), None)
            return None if inner is None else lambda value: None if value is None else inner(value)
        case Structure(_, fields):
            return _revived_fields({each.wire_name: revived(each.shape) for each in fields})
        case _:
            return None


def _revived_fields(made: Mapping[str, Convert | None]) -> Convert | None:
    own = {name: convert for name, convert in made.items() if convert is not None}
    if not own:
        return None
    return lambda value: {name: own[name](of) if name in own else of for name, of in value.items()}

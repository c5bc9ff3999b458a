"""Twins: what msgspec reads in place of a dataclass that it cannot read by itself.

msgspec reads a dataclass in C, except for aliases, unions of dataclasses that a Literal tells apart, fields with
``init=False`` and constructors written by hand. For such a class it reads a `msgspec.Struct` with the same fields, and
the instance is made from that. Aliases and tags are the Struct's.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Final, ForwardRef, Literal, TypeAlias, Union

import msgspec

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
from cues_kafka.errors import GraphError

Revive: TypeAlias = Callable[[Any], Any]

Tag: TypeAlias = tuple[str, str | int]
"""The name of a field, and the one value that it has in the messages of a twin."""


_STRUCTS_ALL_THROUGH: Final = (
    "a msgspec.Struct cannot hold a dataclass with an Alias, with a field that is not passed to it, or one that a "
    "Literal tells apart. Make that a msgspec.Struct, too."
)


def is_native(shape: Shape) -> bool:
    """Whether msgspec reads and writes it as it is."""
    match shape:
        case Structure(cls, fields):
            inner = all(is_native(each.shape) for each in fields)
            if is_struct(cls):
                if not inner:
                    raise GraphError(f"{cls.__name__}: {_STRUCTS_ALL_THROUGH}")
                return True
            return (
                inner
                and bool(cls.__dataclass_params__.init)
                and not any(each.alias for each in fields)
                and len(dataclasses.fields(cls)) == len(fields)
            )
        case Items(item) | Mapped(item):
            return is_native(item)
        case Fixed(shapes):
            return all(map(is_native, shapes))
        case OneOf(options):
            return not _told_apart(options) and all(map(is_native, options))
    return True


def _told_apart(options: tuple[Shape, ...]) -> bool:
    records = [one for one in options if isinstance(one, Structure)]
    return len(records) > 1 and not all(is_struct(one.cls) for one in records)


def _left_out() -> Any:
    return ...


class Twins:
    """Makes the twins of one shape that is not native."""

    def __init__(self) -> None:
        self._made: dict[tuple[type[Any], Tag | None], type[msgspec.Struct]] = {}
        self._inside: dict[type[Any], Any] = {}  # what stands for a class inside itself
        self._revive: dict[type[Any], Revive] = {}

    def annotation(self, shape: Shape) -> Any:
        """What msgspec reads."""
        made = self._annotation(shape)
        for twin in self._made.values():  # msgspec looks names up in the class
            for other in self._made.values():
                setattr(twin, other.__name__, other)
        return made

    def _annotation(self, shape: Shape) -> Any:
        match shape:
            case Anything():
                return Any
            case Null():
                return None
            case Scalar(cls):
                return cls
            case Choice(values, enum):
                return enum or Literal[values]
            case Items(item, container):
                inner = self._annotation(item)
                return tuple[inner, ...] if container is tuple else list[inner]  # type: ignore[valid-type]
            case Fixed(items):
                return tuple[tuple(map(self._annotation, items))]  # type: ignore[misc]
            case Mapped(value):
                return dict[str, self._annotation(value)]  # type: ignore[misc]
            case OneOf(options):
                return _any_of([each for option in options for each in self._option(option, options)])
            case Structure(cls):
                return _closed(shape) if is_struct(cls) else self._twins(shape, [None])[0]
            case Ref(cls):
                return self._inside[cls]

    def _option(self, option: Shape, options: tuple[Shape, ...]) -> list[Any]:
        """One option of a union as msgspec reads it; a dataclass with a tag of several values is several."""
        if isinstance(option, Structure) and not is_struct(option.cls) and _told_apart(options):
            name, values = _tags(option, options)
            return self._twins(option, [(name, value) for value in values])
        return [self._annotation(option)]

    def _twins(self, record: Structure, tags: Sequence[Tag | None]) -> list[Any]:
        cls, first = record.cls, len(self._made)
        names = [f"{cls.__name__}_{first + n}" for n in range(len(tags))]
        if (cls, tags[0]) not in self._made:
            self._inside[cls] = _any_of([ForwardRef(name) for name in names])
            for name, tag in zip(names, tags, strict=True):
                self._made[cls, tag] = self._twin(name, record, tag)
        return [self._made[cls, tag] for tag in tags]

    def _twin(self, name: str, record: Structure, tag: Tag | None) -> type[msgspec.Struct]:
        fields = []
        for each in record.fields:
            if tag is None or each.wire_name != tag[0]:
                default = {} if each.default is None else {"default_factory": _left_out}  # a schema takes none
                named = msgspec.field(name=each.wire_name, **default)
                fields.append((each.name, self._annotation(each.shape), named))
        tagged: dict[str, Any] = {"tag_field": tag[0], "tag": tag[1]} if tag else {}
        return msgspec.defstruct(name, fields, kw_only=True, **tagged)

    def revive(self, shape: Shape) -> Revive:
        """What makes the value from what msgspec read."""
        match shape:
            case Items(item, container):
                one = self.revive(item)
                return lambda value: container(map(one, value))
            case Fixed(items):
                each = [self.revive(item) for item in items]
                return lambda value: tuple(made(item) for made, item in zip(each, value, strict=True))
            case Mapped(item):
                one = self.revive(item)
                return lambda value: {key: one(inner) for key, inner in value.items()}
            case OneOf(options):
                return self._union(options)
            case Structure(cls) if not is_struct(cls):
                made = self._revive[cls] = self._record(shape)
                return made
            case Ref(cls):
                return lambda value: self._revive[cls](value)  # noqa: PLW0108
        return lambda value: value

    def _union(self, options: tuple[Shape, ...]) -> Revive:
        by_type: dict[type[Any], Revive] = {}
        for option in options:
            if isinstance(option, Items | Fixed | Mapped | Structure | Ref):
                made = self.revive(option)
                by_type |= {_python_type(option, each): made for each in self._option(option, options)}
        inside = by_type.pop(object, None)

        def revive(value: Any) -> Any:
            made = by_type.get(type(value), inside if isinstance(value, msgspec.Struct) else None)
            return value if made is None else made(value)

        return revive

    def _record(self, record: Structure) -> Revive:
        cls = record.cls
        rows = [(each.name, each.wire_name, self.revive(each.shape), each.default) for each in record.fields]

        def revive(twin: Any) -> Any:
            config = twin.__struct_config__
            values = {}
            for name, wire_name, make, default in rows:
                if wire_name == config.tag_field:
                    values[name] = config.tag
                    continue
                value = getattr(twin, name)
                values[name] = default() if value is ... and default is not None else make(value)
            return cls(**values)

        return revive


def _any_of(annotations: list[Any]) -> Any:
    return Union[tuple(annotations)]  # noqa: UP007  made of a list


def _closed(record: Structure) -> type[Any]:
    """A Struct, which msgspec reads by itself, so no class that has a twin may be around and in it."""
    own: set[type[Any]] = set()
    inside: set[type[Any]] = set()

    def look(shape: Shape) -> None:
        match shape:
            case Structure(cls, fields):
                own.add(cls)
                for each in fields:
                    look(each.shape)
            case Items(item) | Mapped(item):
                look(item)
            case Fixed(shapes) | OneOf(shapes):
                for one in shapes:
                    look(one)
            case Ref(cls):
                inside.add(cls)

    look(record)
    if inside - own:
        raise GraphError(f"{record.cls.__name__}: {_STRUCTS_ALL_THROUGH}")
    return record.cls


def _python_type(option: Shape, annotation: Any) -> type[Any]:
    match option:
        case Items(_, container):
            return container
        case Fixed():
            return tuple
        case Mapped():
            return dict
        case Structure():
            return annotation  # type: ignore[no-any-return]
    return object


def _tags(record: Structure, options: tuple[Shape, ...]) -> tuple[str, tuple[Any, ...]]:
    """The field by which all records of a union are told apart, and its values for this one."""
    records = [one for one in options if isinstance(one, Structure)]
    for each in record.fields:
        if (
            isinstance(each.shape, Choice)
            and each.shape.cls is None
            and all(_has(one, each.wire_name) for one in records)
        ):
            return each.wire_name, each.shape.values
    raise GraphError(
        f"{' | '.join(map(shape_name, options))}: no field tells all of them apart. Give each a field "
        "of one name, like `kind: Literal['a']`."
    )


def _has(record: Structure, name: str) -> bool:
    if record.tag is not None:
        return record.tag[0] == name
    return any(each.wire_name == name and isinstance(each.shape, Choice) for each in record.fields)

"""Values of an Avro schema: checked and made plain before they are written, and made instances after they are read.

fastavro writes what it is given: 1.5 as the whole number 1, "no" as true. Here each value must be of its type. A schema
is compiled once into closures. A record whose fields' types were all seen before passes with one look into a set.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, time
from decimal import Decimal
from enum import Enum
from operator import attrgetter, itemgetter
from typing import Any, Final, TypeAlias

from cues_kafka.codecs.avro_schema import Schema, full_name, logical
from cues_kafka.codecs.schema import Choice, Items, Mapped, Null, OneOf, Ref, Shape, Structure
from cues_kafka.errors import GraphError
from cues_kafka.graph.declare import Digits

Convert: TypeAlias = Callable[[Any], Any]

MAX_SHAPES: Final = 64
"""Tuples of types that a record remembers; one with many unions has more, and is checked field by field then."""

_FLOAT_MAX: Final = 3.4028234663852886e38


class AvroRecord(dict[str, Any]):
    """
    A record that was one of several in a union: a dict that knows which.

    Attributes:
        record_name: its full name, which `has_type` compares, too.
    """

    __slots__ = ("record_name",)

    def __init__(self, record_name: str, fields: Mapping[str, Any]) -> None:
        super().__init__(fields)
        self.record_name = record_name

    def __reduce__(self) -> tuple[Any, ...]:
        return AvroRecord, (self.record_name, dict(self))


@dataclass(eq=False)
class Unfit(Exception):
    """A value that does not fit. On its way out each container adds its own part of the path."""

    expected: str
    found: str
    path: list[str] = field(default_factory=list)

    def text(self, root: str) -> str:
        """`Order.lines[3].price: expected decimal(12, 2), got text`."""
        return f"{root}{''.join(reversed(self.path))}: expected {self.expected}, got {self.found}"


def _found(value: Any) -> str:
    """What was found instead. Messages hold what logs must not, so the value itself is not shown."""
    return "null" if value is None else type(value).__name__


# ------------------------------------------------------------------------------------------------ writing


_EXACT: Final[dict[str, tuple[type[Any], ...]]] = {
    "null": (type(None),), "boolean": (bool,), "long": (int,), "double": (float, int), "string": (str,),
    "bytes": (bytes,),
}  # fmt: skip
"""Types whose values fit without a further look."""


class Writing:
    """Compiles a schema into what checks values, and gives them as fastavro takes them."""

    def __init__(self) -> None:
        self._named: dict[str, Convert] = {}
        self._open: dict[str, list[Convert]] = {}

    def convert(self, schema: Schema, shape: Shape | None = None) -> Convert:
        """
        The closure that converts one value.

        Args:
            schema: parsed.
            shape: of the class that the values are instances of, as far as they are.
        """
        if isinstance(schema, list):
            return self._union(schema, shape)
        if isinstance(schema, str):
            return self._by_name(schema)
        kind = schema["type"]
        if isinstance(kind, dict | list):
            return self.convert(kind, shape)
        if kind in ("record", "error"):
            return self._record(schema, shape)
        if kind == "array":
            return _array(self.convert(schema["items"], shape.item if isinstance(shape, Items) else None))
        if kind == "map":
            return _map(self.convert(schema["values"], shape.value if isinstance(shape, Mapped) else None))
        made = _scalar(schema)
        if "name" in schema:
            self._named[schema["name"]] = made
        return made

    def _by_name(self, name: str) -> Convert:
        if name in self._open:  # the record is inside itself: its closure is there when a value comes
            return lambda value: self._named[name](value)  # noqa: PLW0108
        return self._named.get(name) or _scalar({"type": name})

    def _record(self, schema: Mapping[str, Any], shape: Shape | None) -> Convert:
        name = schema["name"]
        self._open[name] = []
        record = shape if isinstance(shape, Structure) and shape.cls is not dict else None
        shapes = {each.wire_name: each.shape for each in record.fields} if record else {}
        fields = [each for each in schema["fields"] if record is None or each["name"] in shapes]
        if record:
            _check_fields(record, schema)
        converts = [self.convert(each["type"], shapes.get(each["name"])) for each in fields]
        del self._open[name]
        made = self._named[name] = _record(fields, converts, record)
        return made

    def _union(self, options: list[Schema], shape: Shape | None) -> Convert:
        inner = shape.options if isinstance(shape, OneOf) else (shape,)
        converts: list[tuple[str, Convert]] = []
        for option in options:
            name = full_name(option)
            fits = next((one for one in inner if one is not None and _means(one, name)), None)
            converts.append((name, self.convert(option, fits or (inner[0] if len(inner) == 1 else None))))
        records = sum(isinstance(one, dict) and one["type"] == "record" for one in options) > 1
        rest = [convert for name, convert in converts if name != "null"]
        if len(rest) == 1 and len(rest) < len(options):
            return _optional(rest[0])
        return _first_that_fits(converts, " or ".join(name for name, _ in converts), named=records)


def _check_fields(record: Structure, schema: Mapping[str, Any]) -> None:
    declared, cls = {each["name"]: each for each in schema["fields"]}, record.cls.__name__
    if more := [each.wire_name for each in record.fields if each.wire_name not in declared]:
        raise GraphError(
            f"{cls}.{more[0]}: the schema {schema['name']!r} has no such field. Drop one or add the other."
        )
    own = {each.wire_name for each in record.fields}
    if less := [name for name, each in declared.items() if name not in own and "default" not in each]:
        raise GraphError(
            f"{cls} has no field {less[0]!r}, which the schema {schema['name']!r} demands. Add it to the class."
        )


def _means(shape: Shape, name: str) -> bool:
    """Whether a class is the record of this name."""
    return isinstance(shape, Structure | Ref) and shape.cls.__name__ == name.rpartition(".")[2]


def _optional(convert: Convert) -> Convert:
    return lambda value: None if value is None else convert(value)


def _first_that_fits(options: list[tuple[str, Convert]], expected: str, *, named: bool) -> Convert:
    def convert(value: Any) -> Any:
        name = getattr(value, "record_name", None)
        if type(value) is tuple and len(value) == 2 and isinstance(value[0], str):
            name, value = value
        meant: Unfit | None = None
        for option, each in options:
            if name is not None and option != name:
                continue
            try:
                plain = each(value)
            except Unfit as unfit:
                meant = unfit if unfit.path else meant
            else:
                return (option, plain) if named and isinstance(plain, dict) else plain
        raise meant or Unfit(expected, _found(value))

    return convert


def _array(item: Convert) -> Convert:
    def convert(value: Any) -> list[Any]:
        if type(value) not in (list, tuple):
            raise Unfit("a list", _found(value))
        items: list[Any] = []
        try:
            for one in value:
                items.append(item(one))  # noqa: PERF401  its length is the place of the unfit
        except Unfit as unfit:
            unfit.path.append(f"[{len(items)}]")
            raise
        return items

    return convert


def _map(item: Convert) -> Convert:
    def convert(value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise Unfit("a dict", _found(value))
        result = {}
        for key, one in value.items():
            if type(key) is not str:
                raise Unfit("text as a key", _found(key))
            try:
                result[key] = item(one)
            except Unfit as unfit:
                unfit.path.append(f"[{key!r:.60}]")
                raise
        return result

    return convert


def _record(fields: list[dict[str, Any]], converts: list[Convert], record: Structure | None) -> Convert:
    cls = record.cls if record else None
    names = [each["name"] for each in fields]
    attributes = {each.wire_name: each.name for each in record.fields} if record else {}
    places = {name: (attributes.get(name, name), convert) for name, convert in zip(names, converts, strict=True)}
    others = [(names[n], convert) for n, convert in enumerate(converts) if not _by_type(fields[n]["type"])]
    pick = _picker([attribute for attribute, _ in places.values()], cls)
    defaults = {each["name"] for each in fields if "default" in each}
    known: set[tuple[type[Any], ...]] = set()
    same = all(name == attribute for name, (attribute, _) in places.items())
    # fastavro takes from it what the schema names
    whole = not others and same and (cls is None or "__dict__" in dir(cls))

    def convert(value: Any) -> dict[str, Any]:
        try:
            found = pick(value)
        except (KeyError, AttributeError, TypeError):
            return _slowly(value, places, defaults, cls or dict)
        types = (type(value), *map(type, found))
        if types not in known or (cls is None and len(value) > len(names)):
            plain = _slowly(value, places, defaults, cls or dict)
            if len(known) < MAX_SHAPES:
                known.add(types)
            return plain
        if whole:
            return dict(value) if cls is None else vars(value)
        plain = dict(zip(names, found, strict=True))
        for name, each in others:
            plain[name] = _at(f".{name}", each, plain[name])
        return plain

    return convert


def _picker(names: list[str], cls: type[Any] | None) -> Convert:
    get: Any = itemgetter if cls is None else attrgetter
    if len(names) > 1:
        return get(*names)  # type: ignore[no-any-return]
    if not names:
        return lambda _: ()
    one = get(names[0])
    return lambda value: (one(value),)


def _slowly(value: Any, places: dict[str, tuple[str, Convert]], defaults: set[str], cls: type[Any]) -> dict[str, Any]:
    """Field by field, with the path of what does not fit; `places` has attribute and closure by the schema's name."""
    if not isinstance(value, cls):
        raise Unfit(cls.__name__ if cls is not dict else "a dict", _found(value))
    if cls is not dict:
        return {name: _at(f".{name}", convert, getattr(value, own)) for name, (own, convert) in places.items()}
    if unknown := [name for name in value if name not in places]:
        raise Unfit(f"the fields {', '.join(places)}", f"{unknown[0]!r:.60} besides")
    if missing := [name for name in places if name not in value and name not in defaults]:
        raise Unfit(f"a field {missing[0]!r}", "none")
    return {name: _at(f".{name}", places[name][1], one) for name, one in value.items()}


def _at(part: str, convert: Convert, value: Any) -> Any:
    try:
        return convert(value)
    except Unfit as unfit:
        unfit.path.append(part)
        raise


def _by_type(schema: Schema) -> bool:
    """Whether the type of a value says that it fits, and that it is plain."""
    if isinstance(schema, list):
        return all(isinstance(one, str) and one in _EXACT for one in schema)
    if isinstance(schema, dict):
        return schema["type"] in _EXACT and "logicalType" not in schema
    return schema in _EXACT


def _scalar(schema: Mapping[str, Any]) -> Convert:
    kind = schema["type"]
    if schema.get("logicalType") == "decimal" and kind in ("bytes", "fixed"):
        return _decimal(Digits(schema["precision"], schema.get("scale", 0)))
    if (cls := logical(schema)) is not None:
        return _logical(cls, schema["logicalType"])
    if kind == "enum":
        return _enum(tuple(schema["symbols"]))
    if kind == "int":
        return _whole(-(2**31), 2**31 - 1)
    if kind == "long":
        return _whole(-(2**63), 2**63 - 1)
    if kind == "float":
        return _float
    if kind == "fixed":
        return _sized(schema["size"])
    return _exactly(_EXACT[kind], kind)


def _exactly(types: tuple[type[Any], ...], expected: str) -> Convert:
    def convert(value: Any) -> Any:
        if type(value) in types:
            return value
        raise Unfit(expected, _found(value))

    return convert


def _whole(least: int, most: int) -> Convert:
    def convert(value: Any) -> int:
        if type(value) is int and least <= value <= most:
            return value
        raise Unfit(f"a whole number from {least} to {most}", "another number" if type(value) is int else _found(value))

    return convert


def _float(value: Any) -> Any:
    if type(value) not in (float, int):
        raise Unfit("a number", _found(value))
    if _FLOAT_MAX < abs(value) < float("inf"):
        raise Unfit("a number of 32 bits", "a larger one")
    return value


def _sized(size: int) -> Convert:
    def convert(value: Any) -> bytes:
        if type(value) is bytes and len(value) == size:
            return value
        raise Unfit(f"{size} bytes", f"{len(value)}" if type(value) is bytes else _found(value))

    return convert


def _enum(symbols: tuple[str, ...]) -> Convert:
    expected = f"one of {', '.join(symbols):.200}"

    def convert(value: Any) -> str:
        plain = value.value if isinstance(value, Enum) else value
        if type(plain) is str and plain in symbols:
            return plain
        raise Unfit(expected, f"{plain!r:.40}" if type(plain) is str else _found(value))

    return convert


def _decimal(digits: Digits) -> Convert:
    def convert(value: Any) -> Decimal:
        if type(value) is not Decimal:
            raise Unfit(expected, _found(value))
        if not value.is_finite():
            raise Unfit(expected, str(value))
        _, places, exponent = value.as_tuple()
        assert isinstance(exponent, int)
        if -exponent > digits.scale or len(places) + exponent > digits.precision - digits.scale:
            raise Unfit(expected, "one with more digits")
        return value

    expected = f"a decimal of {digits.precision} digits, {digits.scale} behind the point"
    return convert


def _logical(cls: type[Any], name: str) -> Convert:
    aware = None if cls is time else not name.startswith("local")
    zone = {True: "a datetime with a time zone", False: "a datetime without a time zone"}
    expected = cls.__name__ if aware is None else zone[aware]
    millis = name.endswith("-millis")

    def convert(value: Any) -> Any:
        if type(value) is not cls or (aware is not None and (value.utcoffset() is not None) is not aware):
            raise Unfit(expected, "one of the other kind" if type(value) is cls else _found(value))
        if millis and value.microsecond % 1000:
            raise Unfit(f"{expected} in whole milliseconds", "one with microseconds")
        return value

    return convert if cls in (datetime, time) else _exactly((cls,), cls.__name__)


# ------------------------------------------------------------------------------------------------ reading


class Reading:
    """Compiles a shape into what makes values of what fastavro gives; None where that is the value already."""

    def __init__(self) -> None:
        self._made: dict[type[Any], Convert | None] = {}

    def build(self, shape: Shape) -> Convert | None:
        """The closure that makes one value."""
        match shape:
            case Structure(cls, fields):
                return self._record(cls, {each.wire_name: (each.name, self.build(each.shape)) for each in fields})
            case Choice(_, enum) if enum is not None:
                return enum
            case Items(item, container):
                return _items(self.build(item), container)
            case Mapped(value):
                build = self.build(value)
                return None if build is None else lambda found: {key: build(one) for key, one in found.items()}
            case OneOf(options):
                return self._union(options)
            case Ref(cls):
                return None if cls is dict else lambda found: (self._made[cls] or cls)(found)  # noqa: PLW0108  made later
            case _:
                return None

    def _record(self, cls: type[Any], builds: dict[str, tuple[str, Convert | None]]) -> Convert | None:
        """`builds` has attribute and closure by the schema's name."""
        others = [(name, build) for name, (_, build) in builds.items() if build is not None]
        renamed = [(name, own) for name, (own, _) in builds.items() if name != own]
        if cls is dict and not others:
            return None
        count, new, fill = len(builds), object.__new__, object.__setattr__
        quick = cls is not dict and _only_keeps(cls)

        def make(found: dict[str, Any]) -> Any:
            if len(found) > count:  # the schema has fields that the class has not
                found = {name: found[name] for name in builds}
            for name, build in others:
                found[name] = build(found[name])
            if renamed:
                found = {own: found[name] for name, (own, _) in builds.items()}
            if quick:
                made = new(cls)
                fill(made, "__dict__", found)
                return made
            return found if cls is dict else cls(**found)

        self._made[cls] = make
        return make

    def _union(self, options: tuple[Shape, ...]) -> Convert | None:
        rest = [one for one in options if not isinstance(one, Null)]
        if len(rest) == 1:
            build = self.build(rest[0])
            return None if build is None else _optional(build)
        builds = [(one, self.build(one)) for one in rest]
        records = {_name(one): build for one, build in builds if isinstance(one, Structure | Ref)}

        def make(found: Any) -> Any:
            if type(found) is tuple:  # one of several records, behind its name
                name, value = found
                last = name.rpartition(".")[2]
                if last not in records:
                    return AvroRecord(name, value)
                made = records[last]
                value = value if made is None else made(value)
                return AvroRecord(name, value) if type(value) is dict else value
            return next((made(found) for one, made in builds if made is not None and _fits(one, found)), found)

        return make


def _only_keeps(cls: type[Any]) -> bool:
    """Whether making an instance only keeps its fields, so that the generated `__init__` can be left out."""
    own = vars(cls)
    generated = "__dataclass_params__" in own and own["__dataclass_params__"].init and "__init__" in own
    written = generated and own["__init__"].__code__.co_filename != "<string>"
    new: Any = cls.__new__
    plain = new is object.__new__ and not hasattr(cls, "__post_init__") and "__dict__" in dir(cls)
    return generated and not written and plain and all(each.init for each in dataclasses.fields(cls))


def _name(shape: Structure | Ref) -> str:
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
    return (lambda found: [*map(build, found)]) if container is list else (lambda found: container(map(build, found)))

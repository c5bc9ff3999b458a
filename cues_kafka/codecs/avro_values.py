"""Values of an Avro schema: checked and made plain before they are written, and made instances after they are read.

fastavro writes what it is given: 1.5 as the whole number 1, "no" as true. Here each value must be of its type. A schema
is compiled once into closures, and records into generated functions, see `avro_records`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, time
from decimal import Decimal
from enum import Enum
from operator import length_hint
from typing import Any, Final

from cues_kafka.codecs.avro_records import AvroRecord, Convert, ToRead, ToWrite, Unfit, reader, writer
from cues_kafka.codecs.avro_schema import Schema, full_name, logical
from cues_kafka.codecs.models import is_model, validates, why_refused
from cues_kafka.codecs.schema import Choice, Field, Items, Mapped, Null, OneOf, Ref, Shape, Structure
from cues_kafka.errors import GraphError
from cues_kafka.graph.declare import Digits

_FLOAT_MAX: Final = 3.4028234663852886e38


def _found(value: Any) -> str:
    """What was found instead. Messages hold what logs must not, so the value itself is not shown."""
    return "null" if value is None else type(value).__name__


# ------------------------------------------------------------------------------------------------ writing


_EXACT: Final[dict[str, tuple[type[Any], ...]]] = {
    "null": (type(None),), "boolean": (bool,), "long": (int,), "double": (float,), "string": (str,),
    "bytes": (bytes,),
}  # fmt: skip
"""Types whose values fit without a further look."""


class Writing:
    """
    Compiles a schema into what checks values, and gives them as fastavro takes them.

    Args:
        each: look at each value, also where its type is enough and fastavro refuses those of more than 64 bits.
    """

    def __init__(self, *, each: bool = False) -> None:
        self._types = _none if each else _types
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
            item = self.convert(schema["items"], shape.item if isinstance(shape, Items) else None)
            return _array(item, self._types(schema["items"]))
        if kind == "map":
            one = self.convert(schema["values"], shape.value if isinstance(shape, Mapped) else None)
            return _map(one, self._types(schema["values"]))
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
        made = self._named[name] = _record(fields, converts, record, self._types)
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


def _array(item: Convert, types: tuple[type[Any], ...]) -> Convert:
    fit = frozenset(types).issuperset

    def convert(value: Any) -> list[Any]:
        if types and type(value) is list and fit(map(type, value)):
            return value
        if type(value) not in (list, tuple):
            raise Unfit("a list", _found(value))
        rest = iter(value)
        try:
            return [*map(item, rest)]
        except Unfit as unfit:
            unfit.path.append(f"[{len(value) - length_hint(rest) - 1}]")
            raise

    return convert


def _map(item: Convert, types: tuple[type[Any], ...]) -> Convert:
    def convert(value: Any) -> dict[str, Any]:
        if types and type(value) is dict:
            for key, one in value.items():
                if type(key) is not str or type(one) not in types:
                    break
            else:
                return value
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


def _record(
    fields: list[dict[str, Any]],
    converts: list[Convert],
    record: Structure | None,
    types: Callable[[Schema], tuple[type[Any], ...]],
) -> Convert:
    cls = record.cls if record else None
    attributes = {each.wire_name: each.name for each in record.fields} if record else {}
    made = [
        ToWrite(each["name"], attributes.get(each["name"], each["name"]), types(each["type"]), convert)
        for each, convert in zip(fields, converts, strict=True)
    ]
    places = {each.name: (each.attribute, each.convert) for each in made}
    defaults = {each["name"] for each in fields if "default" in each}

    def slowly(value: Any) -> dict[str, Any]:
        return _slowly(value, places, defaults, cls or dict)

    return writer(cls, made, slowly)


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


def _types(schema: Schema) -> tuple[type[Any], ...]:
    """The types whose values fit and are plain; none: a look at the type is not enough."""
    if isinstance(schema, list):
        found = [_types(one) for one in schema]
        return tuple(each for one in found for each in one) if all(found) else ()
    if isinstance(schema, dict):
        return _EXACT.get(schema["type"], ()) if isinstance(schema["type"], str) and "logicalType" not in schema else ()
    return _EXACT.get(schema, ())


def _none(_: Schema) -> tuple[type[Any], ...]:
    return ()


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
    if kind == "double":
        return _double
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
    if type(value) is int and not -(2**24) <= value <= 2**24:
        raise Unfit("a whole number of at most 24 bits, or a float", "a larger one")
    if _FLOAT_MAX < abs(value) < float("inf"):
        raise Unfit("a number of 32 bits", "a larger one")
    return value


def _double(value: Any) -> Any:
    if type(value) is float:
        return value
    if type(value) is not int:
        raise Unfit("double", _found(value))
    if not -(2**53) <= value <= 2**53:
        raise Unfit("a whole number of at most 53 bits, or a float", "a larger one")
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
        plain = value._value_ if isinstance(value, Enum) else value
        if type(plain) is str and plain in symbols:
            return plain
        raise Unfit(expected, f"{plain!r:.40}" if type(plain) is str else _found(value))

    return convert


def _decimal(digits: Digits) -> Convert:
    def convert(value: Any) -> Decimal:
        if type(value) is not Decimal:
            raise Unfit(expected, _found(value))
        if value.same_quantum(last) and value.adjusted() < before:  # the same as below, without its tuple
            return value
        _, places, exponent = value.as_tuple()
        if not isinstance(exponent, int):  # it is infinite, or no number
            raise Unfit(expected, str(value))
        if -exponent > digits.scale or len(places) + exponent > before:
            raise Unfit(expected, "one with more digits")
        return value

    last, before = Decimal((0, (1,), -digits.scale)), digits.precision - digits.scale
    expected = f"a decimal of {digits.precision} digits, {digits.scale} behind the point"
    return convert


def _logical(cls: type[Any], name: str) -> Convert:
    aware = None if cls is time else not name.startswith("local")
    zone = {True: "a datetime with a time zone", False: "a datetime without a time zone"}
    expected = cls.__name__ if aware is None else zone[aware]
    millis = name.endswith("-millis")

    def convert(value: Any) -> Any:
        if aware and type(value) is datetime and value.tzinfo is UTC and not millis:
            return value
        if type(value) is not cls or (aware is not None and (value.utcoffset() is not None) is not aware):
            raise Unfit(expected, "one of the other kind" if type(value) is cls else _found(value))
        if aware is None and value.tzinfo is not None:
            raise Unfit("a time without a time zone", "one with")
        if aware and not _in_utc(value):
            raise Unfit(f"{expected} in the years 1 to 9999 of UTC", "another one")
        if millis and value.microsecond % 1000:
            raise Unfit(f"{expected} in whole milliseconds", "one with microseconds")
        return value

    return convert if cls in (datetime, time) else _exactly((cls,), cls.__name__)


def _in_utc(value: datetime) -> bool:
    try:
        value.astimezone(UTC)
    except OverflowError:
        return False
    return True


# ------------------------------------------------------------------------------------------------ reading


class _Members(dict[Any, Enum]):
    """The members of an enum by their values: a look into a dict takes a third of a call of the enum."""

    def __init__(self, enum: type[Enum]) -> None:
        super().__init__((each.value, each) for each in enum)
        self._enum = enum

    def __missing__(self, value: Any) -> Enum:
        return self._enum(value)


class Reading:
    """
    Compiles a shape into what makes values of what fastavro gives; None where that is the value already.

    Args:
        exact: whether the schema comes from the class, so that records have its fields and no others.
    """

    def __init__(self, *, exact: bool) -> None:
        self._exact = exact
        self._made: dict[type[Any], Convert | None] = {}

    def build(self, shape: Shape) -> Convert | None:
        """The closure that makes one value."""
        match shape:
            case Structure(cls, fields):
                return self._record(cls, [self._field(each) for each in fields])
            case Choice(_, enum) if enum is not None:
                return _Members(enum).__getitem__
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
        made = self._made[cls] = _validated(cls, made) if validates(cls) else made
        return made

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


def _validated(cls: type[Any], make: Convert) -> Convert:
    def validated(found: Any) -> Any:
        try:
            return make(found)
        except ValueError as error:
            if type(error).__name__ != "ValidationError":
                raise
            raise ValueError(why_refused(cls, error)) from None

    return validated


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

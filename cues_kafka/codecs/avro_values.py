"""Values of an Avro schema: checked and made plain before they are written, and made instances after they are read.

fastavro writes what it is given: 1.5 as the whole number 1, "no" as true. Here each value must be of its type. A schema
is compiled once into closures, and records into generated functions, see `avro_records`.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, time
from decimal import Context, Decimal
from enum import Enum
from operator import length_hint
from typing import Any, Final, NamedTuple

from cues_kafka.codecs.avro_records import AvroRecord, Convert, ToRead, ToWrite, Unfit, reader, unfit_at, writer
from cues_kafka.codecs.avro_scalars import MAX_DIGITS
from cues_kafka.codecs.avro_schema import Schema, full_name, logical
from cues_kafka.codecs.digits import fitting, text
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
from cues_kafka.errors import GraphError

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
        self._kinds: dict[str, str] = {}
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
            return _chosen(self._by_name(schema), shape)
        kind = schema["type"]
        if isinstance(kind, dict | list):
            return self.convert(kind, shape)
        if kind in ("record", "error"):
            return self._record(schema, shape)
        if kind == "array":
            inner = shape.item if isinstance(shape, Items) else None
            return _array(self.convert(schema["items"], inner), self._types(schema["items"], inner))
        if kind == "map":
            inner = shape.value if isinstance(shape, Mapped) else None
            return _map(self.convert(schema["values"], inner), self._types(schema["values"], inner))
        made = _scalar(schema)
        if "name" in schema:
            self._named[schema["name"]] = made
        return _chosen(made, shape)

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
        types = [self._types(each["type"], shapes.get(each["name"])) for each in fields]
        made = self._named[name] = _record(fields, converts, record, types)
        return made

    def _union(self, options: list[Schema], shape: Shape | None) -> Convert:
        inner = [one for one in _options(shape) if not isinstance(one, Null)]
        alone = len(inner) == 1 and sum(option != "null" for option in options) == 1
        made: list[_Option] = []
        for option in options:
            name, kind = full_name(option), self._kind(option)
            texts = kind == "string" and Scalar(str) in inner  # an enum beside it is another option
            plain = texts or _is_logical(option)
            fits = (
                None if plain else next((one for one in inner if _means(one, name, kind)), inner[0] if alone else None)
            )
            cls = fits.cls if isinstance(fits, Structure | Ref) and fits.cls is not dict else None
            made.append(_Option(name, self.convert(option, fits), cls, kind))
        rest = [one.convert for one in made if one.name != "null"]
        if len(rest) == 1 and len(rest) < len(options):
            return _optional(rest[0])
        return _one_of(made)

    def _kind(self, option: Schema) -> str:
        """The kind of type of a union's option, which may be the name of one that was defined before."""
        if isinstance(option, str):
            return "record" if option in self._open else self._kinds.get(option, option)
        kind = str(option["type"])
        if "name" in option:
            self._kinds[option["name"]] = kind
        return kind


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


class _Option(NamedTuple):
    """
    An option of a union.

    Attributes:
        name: by which fastavro knows it: of a record, an enum or a fixed type, or the type.
        convert: checks a value and makes it plain.
        cls: whose instances are written so; None: of no class.
        kind: its type.
    """

    name: str
    convert: Convert
    cls: type[Any] | None
    kind: str

    @property
    def alike(self) -> str:
        """The same for options whose values look alike, and mean different things."""
        return "record" if self.kind in ("record", "error", "map") and self.cls is None else self.kind


def _options(shape: Shape | None) -> tuple[Shape, ...]:
    if shape is None:
        return ()
    return shape.options if isinstance(shape, OneOf) else (shape,)


def _is_logical(option: Schema) -> bool:
    return isinstance(option, dict) and logical(option) is not None


def _means(shape: Shape, name: str, kind: str) -> bool:
    """Whether a shape is that of a union's option."""
    match shape:
        case Structure() | Ref():
            return shape.cls.__name__ == name.rpartition(".")[2]
        case Choice(values):
            return kind in _CHOICES[type(values[0])]
        case Items():
            return kind == "array"
        case Mapped():
            return kind == "map"
        case _:
            return False


_CHOICES: Final[dict[type[Any], tuple[str, ...]]] = {
    str: ("enum", "string"), int: ("int", "long"), bool: ("boolean",),
}  # fmt: skip


def _chosen(convert: Convert, shape: Shape | None) -> Convert:
    """The convert of an `Enum`'s members or of a `Literal`; other shapes are what the schema says."""
    if not isinstance(shape, Choice):
        return convert
    enum, values = shape.cls, shape.values
    kinds, expected = {type(value) for value in values}, shape_name(shape)

    def member(value: Any) -> Any:
        if enum is not None and isinstance(value, enum):
            return convert(value.value)
        raise Unfit(expected, _found(value))

    def literal(value: Any) -> Any:
        if type(value) in kinds and value in values:
            return convert(value)
        raise Unfit(expected, "another value" if type(value) in kinds else _found(value))

    return literal if enum is None else member


def _optional(convert: Convert) -> Convert:
    return lambda value: None if value is None else convert(value)


def _one_of(options: list[_Option]) -> Convert:
    """The convert of a union: it tells fastavro which option it is, which would take the first that looks alike."""
    classes = {one.cls: one for one in options if one.cls is not None}
    named = {one.name: one for one in options if one.kind in _NAMED}
    tried = sorted(options, key=lambda one: _LAST.get(one.kind, 0))
    expected = " or ".join(one.name for one in options)

    def convert(value: Any) -> Any:
        kind = type(value)
        for base in kind.__mro__ if classes else ():  # the nearest one: a subclass may be an option beside its base
            if (found := classes.get(base)) is not None:
                return found.name, found.convert(value)
        name = value.record_name if kind is AvroRecord else None
        if kind is tuple and len(value) == 2 and isinstance(value[0], str) and value[0] in named:
            name, value = value
        if name is None:
            return _first_that_fits(tried, value, expected)
        if name not in named:
            raise Unfit(expected, f"the record {name}")
        return name, named[name].convert(value)

    return convert


_LAST: Final = {"string": 1, "bytes": 1, "double": 1, "float": 2}
"""
Options that are tried last: they take whole numbers, too, a `float` takes what only a `double` can hold, and a text
that is a symbol of an enum is that.
"""

_NAMED: Final = ("record", "error", "map", "enum", "fixed")
"""Kinds of options that a pair may name, or an `AvroRecord`."""

_SAYS: Final = {"record": "an AvroRecord, which says what it is", "map": "an AvroRecord, which says what it is"}


def _first_that_fits(options: list[_Option], value: Any, expected: str) -> Any:
    """The option that a value without a name is; a dict that is several records is refused."""
    meant: Unfit | None = None
    found: tuple[_Option, Any] | None = None
    for one in options:
        if found is not None and (one.alike != found[0].alike or one.kind not in _NAMED):
            continue
        try:
            plain = one.convert(value)
        except Unfit as unfit:
            meant = unfit if unfit.path else meant
            continue
        if found is not None:
            says = _SAYS.get(one.kind, "a pair of a name and a value")
            raise Unfit(says, f"a {type(value).__name__} that is {found[0].name} and {one.name}")
        found = one, plain
    if found is None:
        raise meant or Unfit(expected, _found(value))
    return found[0].name, found[1]


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
                result[_text(key)] = item(one)
            except Unfit as unfit:
                unfit.path.append(f"[{key!r:.60}]")
                raise
        return result

    return convert


def _record(
    fields: list[dict[str, Any]],
    converts: list[Convert],
    record: Structure | None,
    types: list[tuple[type[Any], ...]],
) -> Convert:
    cls = record.cls if record else None
    attributes = {each.wire_name: each.name for each in record.fields} if record else {}
    made = [
        ToWrite(each["name"], attributes.get(each["name"], each["name"]), exact, convert)
        for each, exact, convert in zip(fields, types, converts, strict=True)
    ]
    places = {each.name: (each.attribute, each.convert) for each in made}
    defaults = {each["name"]: each["default"] for each in fields if "default" in each}

    def slowly(value: Any) -> dict[str, Any]:
        return _slowly(value, places, defaults, cls or dict)

    return writer(cls, made, slowly)


def _slowly(
    value: Any, places: dict[str, tuple[str, Convert]], defaults: Mapping[str, Any], cls: type[Any]
) -> dict[str, Any]:
    """Field by field, with the path of what does not fit; `places` has attribute and closure by the schema's name."""
    if not isinstance(value, cls):
        raise Unfit(cls.__name__ if cls is not dict else "a dict", _found(value))
    if cls is not dict:
        return {name: _at(f".{name}", convert, getattr(value, own)) for name, (own, convert) in places.items()}
    if unknown := [name for name in value if name not in places]:
        raise Unfit(f"the fields {', '.join(places)}", f"{unknown[0]!r:.60} besides")
    if missing := [name for name in places if name not in value and name not in defaults]:
        raise Unfit(f"a field {missing[0]!r}", "none")
    whole = {**{name: one for name, one in defaults.items() if name in places}, **value}
    return {name: _at(f".{name}", places[name][1], one) for name, one in whole.items()}


def _at(part: str, convert: Convert, value: Any) -> Any:
    try:
        return convert(value)
    except Unfit as unfit:
        unfit.path.append(part)
        raise


def _types(schema: Schema, shape: Shape | None) -> tuple[type[Any], ...]:
    """The types whose values fit and are plain; none: a look at the type is not enough."""
    if any(isinstance(one, Choice) for one in _options(shape)):
        return ()
    if isinstance(schema, list):
        found = [_types(one, None) for one in schema]
        flat = tuple(each for one in found for each in one) if all(found) else ()
        return () if {int, float} <= {*flat} else flat  # fastavro would write a whole number as a double
    if isinstance(schema, dict):
        return _EXACT.get(schema["type"], ()) if isinstance(schema["type"], str) and "logicalType" not in schema else ()
    return _EXACT.get(schema, ())


def _none(*_: Any) -> tuple[type[Any], ...]:
    return ()


def _scalar(schema: Mapping[str, Any]) -> Convert:
    kind = schema["type"]
    if schema.get("logicalType") == "decimal" and kind in ("bytes", "fixed"):
        return _decimal(min(schema["precision"], MAX_DIGITS), schema.get("scale", 0))
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
    return _text if kind == "string" else _exactly(_EXACT[kind], kind)


def _text(value: Any) -> str:
    if type(value) is not str:
        raise Unfit("string", _found(value))
    try:
        value.encode()
    except UnicodeEncodeError:
        raise Unfit("text that UTF-8 can carry", "half of a surrogate pair") from None
    return value


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


def _decimal(precision: int, scale: int) -> Convert:
    fits, quantum, expected = fitting(precision, scale), Decimal((0, (1,), -scale)), text(precision, scale)
    exact, before = Context(prec=precision), precision - scale

    def convert(value: Any) -> Decimal:
        if type(value) is not Decimal:
            raise Unfit(expected, _found(value))
        if value.same_quantum(quantum) and value.adjusted() < before:
            return value  # as `fits` does it first; a call takes longer
        if not fits(value):
            raise Unfit(expected, "one with more digits" if value.is_finite() else str(value))
        return value if value.same_quantum(quantum) else value.quantize(quantum, context=exact)

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
            raise Unfit(f"{expected} in the years 1 to 9999 in UTC", "another one")
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
            return None if build is None else _optional(build)
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
        raise Unfit(expected, "another value" if type(found) in kinds else _found(found))

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

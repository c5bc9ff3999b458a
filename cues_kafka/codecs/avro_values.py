"""Values of an Avro schema: checked and made plain before they are written.

fastavro writes what it is given: 1.5 as the whole number 1, "no" as true. Here each value must be of its type. A schema
is compiled once into closures, and records into generated functions, see `avro_records`.
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import length_hint
from typing import Any, Final, NamedTuple

from cues_kafka.codecs.avro_checks import EXACT, check_of_scalar, kind_of_value, or_null, valid_text
from cues_kafka.codecs.avro_records import AvroRecord, Convert, ToWrite, Unfit, writer
from cues_kafka.codecs.avro_schema import Schema, full_name, logical
from cues_kafka.codecs.schema import (
    Choice,
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
        made = check_of_scalar(schema)
        if "name" in schema:
            self._named[schema["name"]] = made
        return _chosen(made, shape)

    def _by_name(self, name: str) -> Convert:
        if name in self._open:  # the record is inside itself: its closure is there when a value comes
            return lambda value: self._named[name](value)  # noqa: PLW0108
        return self._named.get(name) or check_of_scalar({"type": name})

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
            return or_null(rest[0])
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
            f"{cls}.{more[0]}: the schema {schema['name']!r} does not have this field. Drop one or add the other."
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
        raise Unfit(expected, kind_of_value(value))

    def literal(value: Any) -> Any:
        if type(value) in kinds and value in values:
            return convert(value)
        raise Unfit(expected, "another value" if type(value) in kinds else kind_of_value(value))

    return literal if enum is None else member


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
        raise meant or Unfit(expected, kind_of_value(value))
    return found[0].name, found[1]


def _array(item: Convert, types: tuple[type[Any], ...]) -> Convert:
    fit = frozenset(types).issuperset

    def convert(value: Any) -> list[Any]:
        if types and type(value) is list and fit(map(type, value)):
            return value
        if type(value) not in (list, tuple):
            raise Unfit("a list", kind_of_value(value))
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
            raise Unfit("a dict", kind_of_value(value))
        result = {}
        for key, one in value.items():
            if type(key) is not str:
                raise Unfit("text as a key", kind_of_value(key))
            try:
                result[valid_text(key)] = item(one)
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
        raise Unfit(cls.__name__ if cls is not dict else "a dict", kind_of_value(value))
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
        return EXACT.get(schema["type"], ()) if isinstance(schema["type"], str) and "logicalType" not in schema else ()
    return EXACT.get(schema, ())


def _none(*_: Any) -> tuple[type[Any], ...]:
    return ()

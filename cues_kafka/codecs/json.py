"""JSON: whatever the standard library reads and writes, or instances of a dataclass, validated on both ways.

The rules, for a dataclass as for anything that `schema.describe` takes:

- Unknown fields are ignored when reading, so that a producer may add fields first; missing ones take their default,
  and without a default the message is refused.
- Nothing is coerced: a number is not text, `true` is not a number. A whole number is a fine float.
- NaN and infinity are refused (JSON has neither), and so is nesting beyond the interpreter's recursion limit.
- `datetime`, `date`, `UUID` travel in ISO form, `Decimal` as text, `bytes` as Base64, an Enum by its value.

A class is compiled once into closures; the field loop tests the exact type first, which is all that happens to most
values. The path of an error (``order.lines[3].price``) is put together only when there is one.
"""

from __future__ import annotations

import binascii
import functools
import json
import math
from base64 import b64decode, b64encode
from collections.abc import Callable, Sequence
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from operator import attrgetter, itemgetter
from typing import Any, NoReturn, TypeAlias
from uuid import UUID

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
    describe,
    json_types,
    shape_name,
)
from cues_kafka.errors import CodecError

Convert: TypeAlias = Callable[[Any], Any]


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


# Made once: `json.loads` with options builds a decoder for each call.
_decoder = json.JSONDecoder(parse_constant=_refuse_constant)
_loads = _decoder.decode
# What `decode` calls between two searches for white space, which messages written by programs have none of.
_scan: Callable[[str, int], tuple[Any, int]] = getattr(_decoder, "scan_once")  # noqa: B009  the stubs have it not
_encoder = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _dumper() -> Callable[[Any], str]:
    """The encoder's C half, made once; `encode` makes one for each value, which costs a third of a small message."""
    make: Any = getattr(json.encoder, "c_make_encoder", None)
    if make is None:
        return _encoder.encode
    text: Any = json.encoder.encode_basestring
    chunks = make(None, _encoder.default, text, None, ":", ",", False, False, False)
    return lambda value: "".join(chunks(value, 0))


_dumps = _dumper()


def _read(data: bytes) -> Any:
    try:
        text = data.decode()
        plain, end = _scan(text, 0)
        if end == len(text):
            return plain
    except Exception:  # noqa: BLE001  the long way has the words
        return _read_slowly(data)
    return _read_slowly(data)


def _read_slowly(data: bytes) -> Any:
    try:
        return _loads(data.decode())
    except UnicodeDecodeError as error:
        raise CodecError(f"The message is not UTF-8 at byte {error.start}. Send JSON, or declare Raw().") from error
    except RecursionError:
        # Without its traceback, which is as deep as the message.
        raise CodecError("The message is nested too deeply. Send flatter JSON, or declare Raw().") from None
    except ValueError as error:
        raise CodecError(f"The message is not JSON: {error}. Send JSON, or declare Raw().") from error


def _write(value: Any) -> bytes:
    try:
        return _dumps(value).encode()
    except RecursionError:
        raise CodecError("The value is nested too deeply for JSON. Flatten it.") from None
    except UnicodeEncodeError as error:
        raise CodecError("The value holds text with half of a surrogate pair, which UTF-8 cannot carry.") from error
    except TypeError as error:
        raise CodecError(
            f"The value is not JSON: {error}. Return plain data, or declare Json(SomeDataclass)."
        ) from error
    except ValueError as error:  # NaN, infinity, a list inside itself
        raise CodecError(f"The value is not JSON: {error}.") from error


class JsonCodec:
    """Any JSON: dict, list, str, int, float, bool, None."""

    nullable = True
    shape = None

    def encode(self, value: Any) -> bytes:
        """
        Raises:
            CodecError: the value is no JSON; NaN and infinity are not.
        """
        return _write(value)

    def decode(self, data: bytes) -> Any:
        """
        Raises:
            CodecError: the bytes are no JSON.
        """
        return _read(data)


class TypedJsonCodec:
    """JSON of one class.

    Args:
        annotation: a dataclass, or any other annotation that `describe` takes.

    Raises:
        GraphError: the class has a field that cannot travel.
    """

    def __init__(self, annotation: Any) -> None:
        shape = self.shape = describe(annotation)
        self.nullable = "null" in json_types(shape)
        name = shape_name(shape)
        self._root = name[:1].lower() + name[1:] if isinstance(shape, Structure) else "value"
        self._to_value = _Compiler(_decoders).convert(shape)
        self._to_plain = _Compiler(_encoders).convert(shape)
        self._lasting = isinstance(shape, Structure) and _by_type_alone(shape) and _is_frozen(shape.cls)
        self._last: tuple[Any, bytes] = (None, b"null")

    def encode(self, value: Any) -> bytes:
        """
        Raises:
            CodecError: the value does not fit the class; names the path and what was expected.
        """
        if self._lasting and value is not None:
            # A fork sends the same value to several topics; one that cannot change is encoded once.
            same, data = self._last
            if same is value:
                return data
        try:
            data = _dumps(self._to_plain(value)).encode()
        except Exception:  # noqa: BLE001  the long way has the words
            return self._encode_slowly(value)
        if self._lasting and value is not None:
            self._last = value, data
        return data

    def _encode_slowly(self, value: Any) -> bytes:
        try:
            plain = self._to_plain(value)
        except Misfit as misfit:
            raise CodecError(f"{misfit.text(self._root)}. Return a value that fits its annotation.") from misfit.cause
        except RecursionError:
            raise CodecError("The value is nested too deeply for JSON. Flatten it.") from None
        return _write(plain)

    def decode(self, data: bytes) -> Any:
        """
        Raises:
            CodecError: the bytes are no JSON, or do not fit the class; names the path and what was expected.
        """
        try:
            text = data.decode()
            plain, end = _scan(text, 0)
            if end == len(text):
                return self._to_value(plain)
        except Exception:  # noqa: BLE001  the long way has the words
            return self._decode_slowly(data)
        return self._decode_slowly(data)

    def _decode_slowly(self, data: bytes) -> Any:
        plain = _read_slowly(data)
        try:
            return self._to_value(plain)
        except Misfit as misfit:
            raise CodecError(f"{misfit.text(self._root)}. Fix the message, or its class.") from misfit.cause
        except RecursionError:
            raise CodecError("The message is nested too deeply. Send flatter JSON, or declare Raw().") from None


class Misfit(Exception):
    """A value that does not fit. On its way out each container puts its own part in front of the path."""

    def __init__(self, expected: str, found: str, cause: Exception | None = None, *, choice: bool = False) -> None:
        super().__init__()
        self.choice = choice
        self.expected = expected
        self.found = found
        self.cause = cause
        self.path: list[str] = []

    def text(self, root: str) -> str:
        """`order.lines[3].price: expected Decimal, got a number`."""
        return f"{root}{''.join(reversed(self.path))}: expected {self.expected}, got {self.found}"


_LOOKS: dict[type[Any], str] = {dict: "an object", list: "an array", str: "text", bool: "a boolean", type(None): "null"}


def _found(value: Any) -> str:
    """What was found instead, never its content beyond a short scalar: messages hold what logs must not."""
    if type(value) in (int, float):
        return f"the number {value!r:.40}"
    return _LOOKS.get(type(value)) or type(value).__name__


class _Never:
    """No value has exactly this type."""


class _Missing:
    """Stands for a field that the message does not have."""


_MISSING = _Missing()


class _Compiler:
    """Turns shapes into closures; a class inside itself finds its own closure when it is called."""

    def __init__(self, rules: Callable[[Shape, _Compiler], Convert]) -> None:
        self._rules = rules
        self._records: dict[type[Any], Convert] = {}

    def convert(self, shape: Shape) -> Convert:
        """The closure that turns one value of this shape."""
        if isinstance(shape, Ref):
            return self._later(shape.cls)
        convert = self._rules(shape, self)
        if isinstance(shape, Structure):
            self._records[shape.cls] = convert
        return convert

    def _later(self, cls: type[Any]) -> Convert:
        def convert(value: Any) -> Any:
            return self._records[cls](value)

        return convert


def _fast(shape: Shape) -> type[Any]:
    """The exact type whose values pass as they are; floats never do, because of NaN."""
    options = shape.options if isinstance(shape, OneOf) else (shape,)
    for option in options:
        if isinstance(option, Scalar) and option.cls in (str, int, bool):
            return option.cls
    return _Never


def _same(value: Any) -> Any:
    return value


def _exactly(cls: type[Any], expected: str) -> Convert:
    def check(value: Any) -> Any:
        if type(value) is cls:
            return value
        raise Misfit(expected, _found(value))

    return check


def _float(value: Any) -> float:
    if type(value) is float and math.isfinite(value):
        return value
    if type(value) is int:
        try:
            return float(value)
        except OverflowError:
            raise Misfit("a finite number", "a number beyond the range of a float") from None
    raise Misfit("a finite number", _found(value))


def _union(options: tuple[Shape, ...], compiler: _Compiler, expected: str) -> Convert:
    converts = [compiler.convert(option) for option in options if not isinstance(option, Null)]
    optional = len(converts) < len(options)
    convert = converts[0] if len(converts) == 1 else _first_that_fits(converts, expected)
    if not optional:
        return convert

    def convert_optional(value: Any) -> Any:
        return None if value is None else convert(value)

    return convert_optional


def _first_that_fits(converts: list[Convert], expected: str) -> Convert:
    def convert(value: Any) -> Any:
        meant: Misfit | None = None
        for each in converts:
            try:
                return each(value)
            except Misfit as misfit:
                # A record whose `kind: Literal[...]` fits is the one that was meant, whatever else is wrong with it.
                if misfit.path and (meant is None or meant.choice):
                    meant = misfit
        raise meant or Misfit(expected, _found(value))

    return convert


def _array(convert: Convert, accepted: tuple[type[Any], ...], container: type[Any]) -> Convert:
    def convert_array(value: Any) -> Any:
        if type(value) not in accepted:
            raise Misfit("an array", _found(value))
        place = 0
        items = []
        try:
            for item in value:
                items.append(convert(item))
                place += 1
        except Misfit as misfit:
            misfit.path.append(f"[{place}]")
            raise
        return items if container is list else container(items)

    return convert_array


def _places(converts: list[Convert], accepted: tuple[type[Any], ...], container: type[Any]) -> Convert:
    def convert_places(value: Any) -> Any:
        if type(value) not in accepted or len(value) != len(converts):
            found = f"{len(value)} of them" if type(value) in accepted else _found(value)
            raise Misfit(f"an array of {len(converts)} items", found)
        items = []
        for place, item in enumerate(value):
            try:
                items.append(converts[place](item))
            except Misfit as misfit:
                misfit.path.append(f"[{place}]")
                raise
        return container(items)

    return convert_places


def _object(convert: Convert) -> Convert:
    def convert_object(value: Any) -> Any:
        if type(value) is not dict:
            raise Misfit("an object", _found(value))
        result = {}
        for key, item in value.items():
            if type(key) is not str:
                raise Misfit("text as a key", _found(key))
            try:
                result[key] = convert(item)
            except Misfit as misfit:
                misfit.path.append(f"[{key!r:.60}]")
                raise
        return result

    return convert_object


# ------------------------------------------------------------------------------------------------------- reading


def _decoders(shape: Shape, compiler: _Compiler) -> Convert:
    match shape:
        case Anything():
            return _same
        case Null():
            return _exactly(type(None), "null")
        case Scalar(cls):
            return _SCALAR_DECODERS[cls]
        case Choice(values, enum):
            return _choice_decoder(values, enum, shape_name(shape))
        case Items(item, container):
            return _array(compiler.convert(item), (list,), container)
        case Fixed(items):
            return _places([compiler.convert(item) for item in items], (list,), tuple)
        case Mapped(value):
            return _object(compiler.convert(value))
        case OneOf(options):
            return _union(options, compiler, shape_name(shape))
        case Structure():
            return _record_decoder(shape, compiler)
        case Ref():
            return compiler.convert(shape)


def _parsed(parse: Convert, expected: str) -> Convert:
    def decode(value: Any) -> Any:
        if type(value) is not str:
            raise Misfit(expected, _found(value))
        try:
            return parse(value)
        except (ValueError, InvalidOperation, binascii.Error) as error:
            raise Misfit(expected, "other text", error) from None

    return decode


def _decimal(text: str) -> Decimal:
    number = Decimal(text)
    if not number.is_finite():
        raise ValueError(f"{text} is not finite")
    return number


_SCALAR_DECODERS: dict[type[Any], Convert] = {
    bool: _exactly(bool, "a boolean"),
    int: _exactly(int, "a whole number"),
    float: _float,
    str: _exactly(str, "text"),
    bytes: _parsed(functools.partial(b64decode, validate=True), "Base64 text"),
    datetime: _parsed(datetime.fromisoformat, "an ISO date and time as text"),
    date: _parsed(date.fromisoformat, "an ISO date as text"),
    Decimal: _parsed(_decimal, "a decimal number as text"),
    UUID: _parsed(UUID, "a UUID as text"),
}


def _choice_decoder(values: tuple[Any, ...], enum: Any, expected: str) -> Convert:
    # With the type in the key, because True == 1.
    members = {(type(value), value): enum(value) if enum else value for value in values}
    if enum:
        expected = f"{expected} ({' or '.join(map(repr, values))})"

    def decode(value: Any) -> Any:
        try:
            return members[type(value), value]
        except (KeyError, TypeError):
            found = f"{value!r:.40}" if type(value) is str else _found(value)
            raise Misfit(expected, found, choice=True) from None

    return decode


def _record_decoder(record: Structure, compiler: _Compiler) -> Convert:
    cls = record.cls
    fields = [(each.name, _fast(each.shape), compiler.convert(each.shape)) for each in record.fields]
    defaults = {each.name: each.default for each in record.fields if each.default}
    expected = {each.name: shape_name(each.shape) for each in record.fields}
    names = [each.name for each in record.fields]
    keywords = any(each.keyword_only for each in record.fields)

    def missing(name: str) -> Any:
        make = defaults.get(name)
        if make is None:
            raise Misfit(expected[name], "nothing: the field is missing")
        return make()

    def decode(data: Any) -> Any:
        if type(data) is not dict:
            raise Misfit(f"an object ({cls.__name__})", _found(data))
        values: list[Any] = []
        append = values.append
        get = data.get
        name = ""
        try:
            for name, fast, convert in fields:
                value = get(name, _MISSING)
                if type(value) is fast:
                    append(value)
                elif value is _MISSING:
                    append(missing(name))
                else:
                    append(convert(value))
        except Misfit as misfit:
            misfit.path.append(f".{name}")
            raise
        try:
            return cls(*values) if not keywords else cls(**dict(zip(names, values, strict=True)))
        except Exception as error:  # noqa: BLE001  a class may raise what it likes when it validates itself
            raise Misfit(f"a valid {cls.__name__}", f"{type(error).__name__}: {error}", error) from None

    if keywords or not _by_type_alone(record):
        return decode
    make = _by_dict(cls, names) if _sets_fields_only(cls) else lambda values: cls(*values)
    return _short_cut(decode, itemgetter(*names), attrgetter(*names), dict, make)


def _sets_fields_only(cls: type[Any]) -> bool:
    """Whether making an instance does nothing but put its fields into its dictionary: all methods are the generated."""
    init, methods = vars(cls).get("__init__"), {name: getattr(cls, name) for name in ("__new__", "__setattr__")}
    generated = getattr(getattr(init, "__code__", None), "co_filename", "") == "<string>"  # dataclasses compiles text
    return (
        generated
        and not hasattr(cls, "__post_init__")
        and methods["__new__"] is object.__new__
        and (_is_frozen(cls) or methods["__setattr__"] is object.__setattr__)
        and not any("__slots__" in vars(base) for base in cls.__mro__[:-1])
    )


def _by_dict(cls: type[Any], names: Sequence[str]) -> Convert:
    """An instance from its fields, without a call for each: a frozen dataclass sets them one by one, in Python."""
    new, put = object.__new__, object.__setattr__

    def make(values: Any) -> Any:
        made = new(cls)
        put(made, "__dict__", dict(zip(names, values)))  # noqa: B905  as long as they are known to be
        return made

    return make


def _is_frozen(cls: type[Any]) -> bool:
    """Whether instances of a dataclass cannot be changed."""
    return bool(cls.__dataclass_params__.frozen)


MAX_SHAPES = 64
"""Combinations of field types that are remembered for one class; more of them would be a class of anything."""


def _by_type_alone(record: Structure) -> bool:
    """Whether the exact types of the fields decide about a value: no field has a rule about what is in it."""
    plain = {str, int, float, bool}

    def decided(shape: Shape) -> bool:
        match shape:
            case Null():
                return True
            case Scalar(cls):
                return cls in plain
            case OneOf(options):
                return all(map(decided, options))
        return False

    return len(record.fields) > 1 and all(decided(each.shape) for each in record.fields)


def _short_cut(convert: Convert, pick: Convert, pick_made: Convert, cls: type[Any], make: Convert) -> Convert:
    """
    A conversion that remembers which types of fields it took as they are, and asks no questions of the like.

    The first value of its kind goes the long way, field by field. If all fields came out as the same objects, the next
    one with the same exact types would too, so it is made at once; all that happens in C.

    Args:
        convert: the long way.
        pick: the fields of what comes in, as a tuple.
        pick_made: the fields of what comes out.
        cls: the exact class of what comes in.
        make: what comes out, of the fields.
    """
    known: set[tuple[type[Any], ...]] = set()

    def quick(value: Any) -> Any:
        if type(value) is not cls:
            return convert(value)
        try:
            fields = pick(value)
            types = tuple(map(type, fields))
            if types in known:
                return make(fields)
        except Exception:  # noqa: BLE001  a missing field, or a class that validates itself: the long way has the words
            return convert(value)
        made = convert(value)
        if len(known) < MAX_SHAPES and all(a is b for a, b in zip(fields, pick_made(made), strict=True)):
            known.add(types)
        return made

    return quick


# ------------------------------------------------------------------------------------------------------- writing


def _encoders(shape: Shape, compiler: _Compiler) -> Convert:
    match shape:
        case Anything():
            return _same
        case Null():
            return _exactly(type(None), "None")
        case Scalar(cls):
            return _SCALAR_ENCODERS[cls]
        case Choice(values, enum):
            return _choice_encoder(values, enum, shape_name(shape))
        case Items(item):
            return _array(compiler.convert(item), (list, tuple), list)
        case Fixed(items):
            return _places([compiler.convert(item) for item in items], (list, tuple), list)
        case Mapped(value):
            return _object(compiler.convert(value))
        case OneOf(options):
            return _union(options, compiler, shape_name(shape))
        case Structure():
            return _record_encoder(shape, compiler)
        case Ref():
            return compiler.convert(shape)


def _formatted(cls: type[Any], render: Callable[[Any], str]) -> Convert:
    def encode(value: Any) -> str:
        if type(value) is not cls:
            raise Misfit(cls.__name__, _found(value))
        return render(value)

    return encode


def _decimal_text(number: Decimal) -> str:
    if not number.is_finite():
        raise Misfit("a finite Decimal", str(number))
    return str(number)


_SCALAR_ENCODERS: dict[type[Any], Convert] = {
    bool: _exactly(bool, "bool"),
    int: _exactly(int, "int"),
    float: _float,
    str: _exactly(str, "str"),
    bytes: _formatted(bytes, lambda value: b64encode(value).decode()),
    datetime: _formatted(datetime, lambda value: value.isoformat()),
    date: _formatted(date, lambda value: value.isoformat()),
    Decimal: _formatted(Decimal, _decimal_text),
    UUID: _formatted(UUID, str),
}


def _choice_encoder(values: tuple[Any, ...], enum: Any, expected: str) -> Convert:
    if enum:

        def encode_member(value: Any) -> Any:
            if type(value) is enum:
                return value.value
            raise Misfit(expected, _found(value))

        return encode_member
    return _choice_decoder(values, None, expected)


def _record_encoder(record: Structure, compiler: _Compiler) -> Convert:
    cls = record.cls
    fields = [(each.name, _fast(each.shape), compiler.convert(each.shape)) for each in record.fields]
    names = [each.name for each in record.fields]
    # attrgetter gives a tuple for two names or more, and a bare value for one.
    read: Convert = (
        attrgetter(*names) if len(names) > 1 else lambda value: tuple(getattr(value, name) for name in names)
    )

    def encode(value: Any) -> dict[str, Any]:
        if not isinstance(value, cls):
            raise Misfit(cls.__name__, _found(value))
        result = {}
        name = ""
        try:
            for (name, fast, convert), item in zip(fields, read(value), strict=False):
                result[name] = item if type(item) is fast else convert(item)
        except Misfit as misfit:
            misfit.path.append(f".{name}")
            raise
        return result

    if not _by_type_alone(record):
        return encode
    return _short_cut(encode, read, itemgetter(*names), cls, lambda values: dict(zip(names, values)))  # noqa: B905

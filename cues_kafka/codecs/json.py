"""JSON: plain values, or instances of a dataclass that are checked when they are read and when they are written.

The rules, for a dataclass and for anything else that `schema.describe` takes:

- Unknown fields are ignored when reading, so that a producer may add fields first. Missing fields take their default;
  a message without a field that has no default is refused.
- Nothing is coerced: a number is not text, and `true` is not a number. A whole number is a valid float.
- NaN and infinity are refused (JSON has neither), and so is nesting beyond the interpreter's recursion limit.
- `datetime`, `date`, `time` and `UUID` travel in ISO form, `Decimal` as text, `bytes` as Base64, an Enum by its value.

A class is compiled once into closures. The loop over its fields tests the exact type first, and most values need no
more. The path of an error (``order.lines[3].price``) is put together only when there is an error.
"""

from __future__ import annotations

import json
import math
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, time
from decimal import Decimal, InvalidOperation
from functools import partial
from itertools import repeat
from operator import attrgetter, itemgetter
from typing import Any, ClassVar, NoReturn, TypeAlias
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

# --------------------------------------------------------------------------------------------------------- text


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


# Made once: `json.loads` with options builds a decoder for each call.
_decoder = json.JSONDecoder(parse_constant=_refuse_constant)
# What `decode` calls between two searches for white space, which messages written by programs do not have.
_scan: Callable[[str, int], tuple[Any, int]] = getattr(_decoder, "scan_once")  # noqa: B009  the stubs lack it
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


class JsonCodec:
    """
    JSON of one class, or any JSON: dict, list, str, int, float, bool, None.

    Args:
        annotation: a dataclass, or any other annotation that `describe` takes; `Any`: any JSON.

    Raises:
        GraphError: the class has a field that cannot travel.
    """

    def __init__(self, annotation: Any = Any) -> None:
        shape = describe(annotation)
        name = shape_name(shape)
        self.shape = None if shape == Anything() else shape
        self.nullable = "null" in json_types(shape)
        self._root = name[:1].lower() + name[1:] if isinstance(shape, Structure) else "value"
        self._to_value = _Decoding().convert(shape)
        self._to_plain = _Encoding().convert(shape)
        self._keeps_last = isinstance(shape, Structure) and _by_type_alone(shape) and _is_frozen(shape.cls)
        self._last: tuple[Any, bytes] = (self, b"")  # no value is this codec

    def encode(self, value: Any) -> bytes:
        """
        Raises:
            CodecError: the value does not fit; names the path and what was expected.
        """
        if self._keeps_last:
            # A fork sends the same value to several topics; a value that cannot change is encoded once.
            same, data = self._last
            if same is value:
                return data
        try:
            data = _dumps(self._to_plain(value)).encode()
        except Exception as error:  # noqa: BLE001  what it is not made for is raised again
            self._refuse_value(error)
        if self._keeps_last:
            self._last = value, data
        return data

    def _refuse_value(self, error: Exception) -> NoReturn:
        match error:
            case Misfit():
                text, cause = f"{error.text(self._root)}. Return a value that fits its annotation.", error.cause
            case RecursionError():  # without its traceback, which is as deep as the value
                text, cause = "The value is nested too deeply for JSON. Flatten it.", None
            case UnicodeEncodeError():
                text, cause = "The value holds text with half of a surrogate pair, which UTF-8 cannot carry.", error
            case TypeError():
                text = f"The value is not JSON: {error}. Return plain data, or declare Json(SomeDataclass)."
                cause = error
            case ValueError():  # NaN, infinity, a list inside itself
                text, cause = f"The value is not JSON: {error}.", error
            case _:
                raise error
        raise CodecError(text) from cause

    def decode(self, data: bytes) -> Any:
        """
        Raises:
            CodecError: the bytes are not JSON, or do not fit the class; names the path and what was expected.
        """
        try:
            text = data.decode()
            plain, end = _scan(text, 0)
            if end == len(text):
                return self._to_value(plain)
        except Exception:  # noqa: BLE001  white space in front, or an error, whose words are found the long way
            return self._decode_slowly(data)
        return self._decode_slowly(data)

    def _decode_slowly(self, data: bytes) -> Any:
        try:
            return self._to_value(_parse(data))
        except Misfit as misfit:
            raise CodecError(f"{misfit.text(self._root)}. Fix the message, or its class.") from misfit.cause
        except RecursionError:  # without its traceback, which is as deep as the message
            raise CodecError("The message is nested too deeply. Send flatter JSON, or declare Raw().") from None


def _parse(data: bytes) -> Any:
    try:
        return _decoder.decode(data.decode())
    except UnicodeDecodeError as error:
        raise CodecError(f"The message is not UTF-8 at byte {error.start}. Send JSON, or declare Raw().") from error
    except ValueError as error:
        raise CodecError(f"The message is not JSON: {error}. Send JSON, or declare Raw().") from error


@dataclass(eq=False)
class Misfit(Exception):
    """A value that does not fit. On its way out each container adds its own part of the path."""

    expected: str
    found: str
    cause: Exception | None = None
    choice: bool = False
    path: list[str] = field(default_factory=list)

    def text(self, root: str) -> str:
        """`order.lines[3].price: expected Decimal, got a number`."""
        return f"{root}{''.join(reversed(self.path))}: expected {self.expected}, got {self.found}"


_LOOKS: dict[type[Any], str] = {dict: "an object", list: "an array", str: "text", bool: "a boolean", type(None): "null"}


def _found(value: Any) -> str:
    """What was found instead. Messages hold what logs must not, so only a short number is shown."""
    if type(value) in (int, float):
        return f"the number {value!r:.40}"
    return _LOOKS.get(type(value)) or type(value).__name__


# ------------------------------------------------------------------------------------------- values and containers


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


def _parsed(parse: Convert, expected: str) -> Convert:
    def decode(value: Any) -> Any:
        if type(value) is not str:
            raise Misfit(expected, _found(value))
        try:
            return parse(value)
        except (ValueError, InvalidOperation) as error:
            raise Misfit(expected, "other text", error) from None

    return decode


def _decimal(text: str) -> Decimal:
    number = Decimal(text)
    if not number.is_finite():
        raise ValueError(f"{text} is not finite")
    return number


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


def _one_of(values: Iterable[Any], results: Iterable[Any], expected: str) -> Convert:
    # With the type in the key, because True == 1.
    members = {(type(value), value): result for value, result in zip(values, results, strict=True)}

    def convert(value: Any) -> Any:
        try:
            return members[type(value), value]
        except (KeyError, TypeError):
            found = f"{value!r:.40}" if type(value) is str else _found(value)
            raise Misfit(expected, found, choice=True) from None

    return convert


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


def _array(
    converts: Iterable[Convert], length: int | None, accepted: tuple[type[Any], ...], container: type[Any]
) -> Convert:
    expected = "an array" if length is None else f"an array of {length} items"

    def convert_array(value: Any) -> Any:
        if type(value) not in accepted:
            raise Misfit(expected, _found(value))
        if length is not None and len(value) != length:
            raise Misfit(expected, f"{len(value)} of them")
        items: list[Any] = []
        try:
            for convert, item in zip(converts, value):  # noqa: B905  the same convert for all items has no end
                items.append(convert(item))
        except Misfit as misfit:
            misfit.path.append(f"[{len(items)}]")
            raise
        return items if container is list else container(items)

    return convert_array


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


# ------------------------------------------------------------------------------------------- from shapes to closures


class _Compiler:
    """Turns shapes into closures that convert values; the base of both ways."""

    SCALARS: ClassVar[Mapping[type[Any], Convert]]
    ARRAYS: ClassVar[tuple[type[Any], ...]]
    CONTAINER: ClassVar[type[Any] | None] = None

    def __init__(self) -> None:
        self._records: dict[type[Any], Convert] = {}

    def convert(self, shape: Shape) -> Convert:
        """The closure that converts one value of this shape."""
        match shape:
            case Anything():
                return _same
            case Null():
                return self.SCALARS[type(None)]
            case Scalar(cls):
                return self.SCALARS[cls]
            case Choice():
                return self._choice(shape)
            case Items(item, container):
                return _array(repeat(self.convert(item)), None, self.ARRAYS, self.CONTAINER or container)
            case Fixed(items):
                return _array([*map(self.convert, items)], len(items), self.ARRAYS, self.CONTAINER or tuple)
            case Mapped(value):
                return _object(self.convert(value))
            case OneOf(options):
                return self._union(options, shape_name(shape))
            case Structure(cls):
                convert = self._records[cls] = self._record(shape)
                return convert
            case Ref(cls):  # the class is inside itself: its closure is there when a value comes
                return lambda value: self._records[cls](value)  # noqa: PLW0108

    def _union(self, options: tuple[Shape, ...], expected: str) -> Convert:
        converts = [self.convert(option) for option in options if not isinstance(option, Null)]
        convert = converts[0] if len(converts) == 1 else _first_that_fits(converts, expected)
        return (lambda value: None if value is None else convert(value)) if len(converts) < len(options) else convert

    def _choice(self, choice: Choice) -> Convert:
        raise NotImplementedError

    def _record(self, record: Structure) -> Convert:
        raise NotImplementedError


class _Never:
    """No value has exactly this type."""


def _type_that_passes(shape: Shape) -> type[Any]:
    """The exact type whose values pass as they are; floats never do, because of NaN."""
    options = shape.options if isinstance(shape, OneOf) else (shape,)
    return next((one.cls for one in options if isinstance(one, Scalar) and one.cls in (str, int, bool)), _Never)


class _Decoding(_Compiler):
    """From plain JSON to values."""

    ARRAYS = (list,)
    SCALARS: ClassVar[Mapping[type[Any], Convert]] = {
        type(None): _exactly(type(None), "null"),
        bool: _exactly(bool, "a boolean"),
        int: _exactly(int, "a whole number"),
        float: _float,
        str: _exactly(str, "text"),
        bytes: _parsed(partial(b64decode, validate=True), "Base64 text"),
        datetime: _parsed(datetime.fromisoformat, "an ISO date and time as text"),
        date: _parsed(date.fromisoformat, "an ISO date as text"),
        time: _parsed(time.fromisoformat, "an ISO time as text"),
        Decimal: _parsed(_decimal, "a decimal number as text"),
        UUID: _parsed(UUID, "a UUID as text"),
    }

    def _choice(self, choice: Choice) -> Convert:
        expected = shape_name(choice)
        if choice.cls:
            expected = f"{expected} ({' or '.join(map(repr, choice.values))})"
        return _one_of(choice.values, map(choice.cls or _same, choice.values), expected)

    def _record(self, record: Structure) -> Convert:
        cls = record.cls
        names = [each.name for each in record.fields]
        keywords = any(each.keyword_only for each in record.fields)
        fields = [
            (each.name, _type_that_passes(each.shape), self.convert(each.shape), each.default or _missing(each.shape))
            for each in record.fields
        ]

        def decode(data: Any) -> Any:
            if type(data) is not dict:
                raise Misfit(f"an object ({cls.__name__})", _found(data))
            values: list[Any] = []
            name = ""
            try:
                for name, passes, convert, default in fields:
                    value = data.get(name, ...)
                    if type(value) is passes:
                        values.append(value)
                    else:
                        values.append(default() if value is ... else convert(value))
            except Misfit as misfit:
                misfit.path.append(f".{name}")
                raise
            try:
                return cls(**dict(zip(names, values, strict=True))) if keywords else cls(*values)
            except Exception as error:  # noqa: BLE001  a class may raise what it likes when it validates itself
                raise Misfit(f"a valid {cls.__name__}", f"{type(error).__name__}: {error}", error) from None

        if keywords or not _by_type_alone(record):
            return decode
        return _short_cut(decode, itemgetter(*names), attrgetter(*names), dict, _maker(cls, names))


def _missing(shape: Shape) -> Callable[[], NoReturn]:
    def refuse() -> NoReturn:
        raise Misfit(shape_name(shape), "nothing: the field is missing")

    return refuse


class _Encoding(_Compiler):
    """From values to plain JSON."""

    ARRAYS = (list, tuple)
    CONTAINER = list
    SCALARS: ClassVar[Mapping[type[Any], Convert]] = {
        type(None): _exactly(type(None), "None"),
        bool: _exactly(bool, "bool"),
        int: _exactly(int, "int"),
        float: _float,
        str: _exactly(str, "str"),
        bytes: _formatted(bytes, lambda value: b64encode(value).decode()),
        datetime: _formatted(datetime, datetime.isoformat),
        date: _formatted(date, date.isoformat),
        time: _formatted(time, time.isoformat),
        Decimal: _formatted(Decimal, _decimal_text),
        UUID: _formatted(UUID, str),
    }

    def _choice(self, choice: Choice) -> Convert:
        if choice.cls:
            member = _exactly(choice.cls, shape_name(choice))
            return lambda value: member(value).value
        return _one_of(choice.values, choice.values, shape_name(choice))

    def _record(self, record: Structure) -> Convert:
        cls = record.cls
        names = [each.name for each in record.fields]
        fields = [(each.name, _type_that_passes(each.shape), self.convert(each.shape)) for each in record.fields]
        # attrgetter gives a tuple for two names or more, and a bare value for one.
        read: Convert = attrgetter(*names) if len(names) > 1 else lambda value: [getattr(value, name) for name in names]

        def encode(value: Any) -> dict[str, Any]:
            if not isinstance(value, cls):
                raise Misfit(cls.__name__, _found(value))
            result = {}
            name = ""
            try:
                for (name, passes, convert), item in zip(fields, read(value), strict=False):
                    result[name] = item if type(item) is passes else convert(item)
            except Misfit as misfit:
                misfit.path.append(f".{name}")
                raise
            return result

        if not _by_type_alone(record):
            return encode
        return _short_cut(encode, read, itemgetter(*names), cls, lambda values: dict(zip(names, values)))  # noqa: B905


# ------------------------------------------------------------------------------------- short cuts for plain records

MAX_SHAPES = 64
"""Combinations of field types that are remembered for one class; more of them would be a class of anything."""


def _by_type_alone(record: Structure) -> bool:
    """Whether the exact types of the fields decide about a value: no field has a rule about what is in it."""

    def decided(shape: Shape) -> bool:
        match shape:
            case Scalar(cls):
                return cls in (str, int, float, bool)
            case OneOf(options):
                return all(map(decided, options))
        return isinstance(shape, Null)

    return len(record.fields) > 1 and all(decided(each.shape) for each in record.fields)


def _is_frozen(cls: type[Any]) -> bool:
    """Whether instances of a dataclass cannot be changed."""
    return bool(cls.__dataclass_params__.frozen)


def _maker(cls: type[Any], names: list[str]) -> Convert:
    """
    Makes an instance from the values of its fields.

    The constructor of a frozen dataclass sets fields one by one, in Python. Where making an instance does nothing else
    than setting fields, because all methods are generated, they go into its dictionary at once.
    """
    init, new, put = vars(cls).get("__init__"), object.__new__, object.__setattr__
    generated = getattr(getattr(init, "__code__", None), "co_filename", "") == "<string>"  # dataclasses compiles text
    if not (
        generated
        and not hasattr(cls, "__post_init__")
        and getattr(cls, "__new__") is new  # noqa: B009  mypy refuses the attribute of a class
        and (_is_frozen(cls) or getattr(cls, "__setattr__") is put)  # noqa: B009
        and not any("__slots__" in vars(base) for base in cls.__mro__[:-1])
    ):
        return lambda values: cls(*values)

    def make(values: Any) -> Any:
        made = new(cls)
        put(made, "__dict__", dict(zip(names, values)))  # noqa: B905  as many as there are names
        return made

    return make


def _short_cut(convert: Convert, pick: Convert, pick_made: Convert, cls: type[Any], make: Convert) -> Convert:
    """
    A conversion that remembers which types of fields it took as they are, and then makes its result at once.

    The first value of its kind goes the long way, field by field. If all fields came out as the same objects, the next
    value with the same exact types would too, so its result is made by functions in C.

    Args:
        convert: the long way.
        pick: the fields of what comes in, as a tuple.
        pick_made: the fields of what comes out.
        cls: the exact class of what comes in.
        make: what comes out, from the fields.
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

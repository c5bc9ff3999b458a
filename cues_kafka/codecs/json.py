"""JSON: plain values, or instances of a class that are checked when they are read and when they are written.

msgspec reads and writes. These are the rules, for a class and for anything else that `schema.describe` takes:

- Unknown fields are ignored when reading, so that a producer may add fields first. Missing fields take their default;
  a message without a field that has no default is refused.
- Nothing is coerced: a number is not text, and `true` is not a number. A whole number is a valid float.
- NaN and infinity are refused (JSON has neither), and so is nesting beyond the interpreter's recursion limit.
- `datetime`, `date` and `time` travel as RFC 3339 has them, with at most 6 digits of a second, `UUID` and `Decimal` as
  text, `bytes` as Base64, an Enum by its value. A `Decimal` is also read from a number, with all its digits.

msgspec writes what it is given, and NaN as null, so `json_checks` looks at values first. What msgspec has no form for
in a dataclass, `json_twins` adds.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, TypeAlias

import msgspec

from cues_kafka.codecs.json_checks import Checks, JsonMisfit, as_json
from cues_kafka.codecs.json_faults import half_pair, why_no_json
from cues_kafka.codecs.json_fractions import Fractions, holds_time
from cues_kafka.codecs.json_twins import Twins, is_native
from cues_kafka.codecs.json_usual import form_of, usual
from cues_kafka.codecs.schema import (
    Anything,
    Shape,
    Structure,
    describe,
    forget_decoders,
    holds_decimal,
    is_struct,
    json_types,
    shape_name,
)
from cues_kafka.errors import CodecError, GraphError

Read: TypeAlias = Callable[[bytes], Any]

_encode = msgspec.json.Encoder(enc_hook=as_json, decimal_format="string").encode


def _reader(annotation: Any, shape: Shape) -> Read:
    """What msgspec makes for an annotation; for a shape that it has no form for, by way of twins."""
    twins = None if is_native(shape) else Twins()
    read = msgspec.json.Decoder(twins.annotation(shape) if twins else annotation).decode
    forget_decoders(shape)  # this one has all it needs
    return read if twins is None else lambda data: twins.revive(read(data))


def _after(check: Callable[[Any], Any], value: Any) -> Any:
    check(value)
    return value


def _exact_times(read: Read, fractions: Fractions) -> Read:
    def exact(data: bytes) -> Any:
        value = read(data)
        fractions.check(data)
        return value

    return exact


class JsonCodec:
    """
    JSON of one class, or any JSON: dict, list, str, int, float, bool, None.

    Args:
        annotation: a dataclass, a `msgspec.Struct`, or any other annotation that `describe` takes; `Any`: any JSON.

    Attributes:
        quick: as `decode`, but it raises what msgspec raises. Of a class with plain fields it is msgspec's own
            function, so a loop in C calls no line of Python for a message.
        unchecked: writes values of a form, which need no check, and the form; None: every value is checked.

    Raises:
        GraphError: the class has a field that cannot travel.
    """

    def __init__(self, annotation: Any = Any) -> None:
        shape = describe(annotation)
        name = shape_name(shape)
        self.shape = None if shape == Anything() else shape
        self.nullable = "null" in json_types(shape)
        self._root = name[:1].lower() + name[1:] if isinstance(shape, Structure) else "value"
        native = is_native(shape)
        self._check = check = Checks(native=native).convert(shape)
        whole = native or (isinstance(shape, Structure) and is_struct(shape.cls))
        self._usual, form = usual(shape, native=whole), form_of(shape, native=whole)
        self.unchecked = None if form is None else (_encode, form)
        try:
            self._read = read = _reader(annotation, shape)
        except TypeError as error:
            raise GraphError(f"{name}: {error}. Declare another type for this field.") from error
        if holds_decimal(shape):  # msgspec reads "NaN" into a Decimal
            self._read = lambda data: _after(check, read(data))
        if holds_time(shape):
            self._read = _exact_times(self._read, Fractions(shape))
        self.quick: Read = self._read

    def encode(self, value: Any) -> bytes:
        """
        Raises:
            CodecError: the value does not fit; names the path and what was expected.
        """
        try:
            return _encode(self._check(value))
        except Exception as error:  # noqa: BLE001  what it is not made for is raised again
            self._refuse_value(error, value)

    def encode_all(self, values: Sequence[Any]) -> list[bytes]:
        """
        Encode many values, in one go if all are of usual types.

        Raises:
            CodecError: one of them does not fit; or what msgspec raises: a caller then asks `encode`, which says why.
        """
        whole = self._usual is not None and self._usual(values)
        return list(map(_encode if whole else self.encode, values))

    def decode(self, data: bytes) -> Any:
        """
        Raises:
            CodecError: the bytes are not JSON, or do not fit the class; names the path and what was expected.
        """
        try:
            return self._read(data)
        except Exception as error:  # noqa: BLE001  a class may raise what it likes when it validates itself
            self._refuse_message(error, data)

    def _refuse_value(self, error: Exception, value: Any) -> NoReturn:
        cause: Exception | None = error
        match error:
            case JsonMisfit():
                text, cause = f"{error.text(self._root)}. Return a value that fits its annotation.", None
            case RecursionError():  # without its traceback, which is as deep as the value
                text, cause = "The value is nested too deeply for JSON. Flatten it.", None
            case UnicodeEncodeError():
                text = f"{self._root}{half_pair(value)} holds half of a surrogate pair, which UTF-8 cannot carry."
            case TypeError():
                text = f"The value is not JSON: {error}. Return plain data, or declare Json(SomeDataclass)."
            case ValueError():  # NaN, infinity
                text = f"The value is not JSON: {error}."
            case _:
                raise error
        raise CodecError(text) from cause

    def _refuse_message(self, error: Exception, data: bytes) -> NoReturn:
        cause: Exception | None = error
        match error:
            case JsonMisfit():
                text, cause = f"{error.text(self._root)}. Fix the message, or its class.", None
            case msgspec.ValidationError():
                text = f"{_placed(str(error), self._root)}. Fix the message, or its class."
            case msgspec.DecodeError():
                why = why_no_json(data, str(error), self._root)
                text = f"The message is not JSON: {why}. Send JSON, or declare Raw()."
            case UnicodeDecodeError():
                text = f"The message is not UTF-8: {error.reason}. Send JSON, or declare Raw()."
            case RecursionError():  # without its traceback, which is as deep as the message
                text, cause = "The message is nested too deeply. Send flatter JSON, or declare Raw().", None
            case MemoryError():
                raise error
            case _:
                text = f"{self._root}: its class refuses it: {type(error).__name__}: {error}. Fix the message."
        raise CodecError(text) from cause


_AT = re.compile(r"(?P<text>.*?)(?: - at `(?P<what>[^`$]*)\$(?P<path>[^`]*)`)?", re.DOTALL)


def _placed(text: str, root: str) -> str:
    """`order.lines[3]: expected str`, from what msgspec says: "Expected `str` - at `$.lines[3]`"."""
    found = _AT.fullmatch(text)
    assert found  # the pattern takes any text
    said, what, path = found["text"], found["what"] or "", found["path"] or ""
    return f"{what}{root}{path}: {said[:1].lower()}{said[1:].replace('`', ''):.300}"

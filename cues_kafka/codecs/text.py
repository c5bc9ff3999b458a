"""Values of a codec as JSON text and back, for engines whose columns come from JSON, and not from objects of Python."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal, Required, TypeAlias, TypedDict

import msgspec

from cues_kafka.codecs.avro import schema_text
from cues_kafka.codecs.error_messages import as_avro
from cues_kafka.codecs.framing import in_front
from cues_kafka.codecs.json import JsonCodec
from cues_kafka.codecs.json_schema import JsonSchemaCodec
from cues_kafka.codecs.lookup import MadeFor, codec_for
from cues_kafka.codecs.own import OwnCodec
from cues_kafka.codecs.schema import Choice, Items, Mapped, Null, OneOf, Scalar, Shape, Structure
from cues_kafka.errors import CodecError
from cues_kafka.graph.codec import Codec
from cues_kafka.graph.declare import CodecSpec
from cues_kafka.graph.formats import Avro, JsonSchema
from cues_kafka.ports.log import Headers

Convert: TypeAlias = Callable[[Any], Any]


class Text:
    """
    Converts the values of a topic to JSON and back. It can be pickled, and makes its codec where it is used.

    Args:
        declared: the topic's codec: Avro, JSON Schema with a class, or a user's own with a schema. In Avro no
            class is needed, because values are the records of its schema.
        made_for: see `codec_for`.
    """

    def __init__(self, declared: Avro | JsonSchema | Codec, made_for: MadeFor) -> None:
        if isinstance(declared, Avro):
            declared = replace(declared, schema=declared.schema and schema_text(declared), cls=None)
        self._declared = declared
        self._made_for = made_for
        self._codec: Any = None
        self._read: Any = None
        self._write: Any = None
        self._to_text: Convert | None = None
        self._of_text: Convert | None = None

    def __getstate__(self) -> tuple[Avro | JsonSchema | Codec, MadeFor]:
        return self._declared, self._made_for

    def __setstate__(self, state: tuple[Avro | JsonSchema | Codec, MadeFor]) -> None:
        (self._declared, self._made_for), self._codec, self._read, self._write = state, None, None, None
        self._to_text = self._of_text = None

    def decode(self, data: bytes | None, headers: Any = None) -> str | None:
        """
        The JSON of a message's value; None: it has none.

        Raises:
            CodecError: the bytes do not fit.
        """
        if data is None:
            return None
        codec = self._open()
        came: Headers = [(one[0], one[1]) for one in headers or ()]
        name = getattr(codec, "id_header", None)
        value = codec.decode(in_front(came, name, bytes(data)) if name else bytes(data))
        return str(self._write(value if self._to_text is None else self._to_text(value)), "utf-8")

    def encode(self, text: str | None) -> bytes | None:
        """
        The bytes of a value that is given as JSON.

        Raises:
            CodecError: it does not fit the schema.
        """
        if text is None:
            return None
        codec = self._open()
        try:
            value = self._read(text.encode())
        except msgspec.MsgspecError as error:
            raise CodecError(f"The row does not fit the topic's schema: {error}") from error
        return bytes(codec.encode(value if self._of_text is None else self._of_text(value)))

    def _open(self) -> Any:
        if self._codec is None:
            self._codec = codec_for(self._declared, self._made_for)
            if isinstance(self._codec, OwnCodec | JsonSchemaCodec):
                json = JsonCodec(
                    self._declared.record if isinstance(self._declared, JsonSchema) else self._codec.schema
                )
                self._read, self._write = json.decode, json.encode
            else:
                self._read = msgspec.json.Decoder(_annotation(self._codec.shape)).decode
                self._write = msgspec.json.encode  # decimals as text
                self._to_text = _floats(self._codec.shape, _written)
                self._of_text = _floats(self._codec.shape, float)
        return self._codec


def text_of(declared: CodecSpec, made_for: MadeFor) -> Text | None:
    """What converts the values of a topic with a schema that are not JSON; None: columns take them as they are."""
    declared = as_avro(declared)
    if isinstance(declared, JsonSchema):
        return Text(declared, made_for) if declared.cls is not None else None
    return Text(declared, made_for) if isinstance(declared, Avro | Codec) and declared.schema is not None else None


def _annotation(shape: Shape) -> Any:
    """What msgspec reads from JSON as the codec takes it: records as dicts, everything else as its own class."""
    match shape:
        case Structure(_, fields, name):
            of_fields = {each.name: Required[_annotation(each.shape)] for each in fields}
            return TypedDict(name.rpartition(".")[2] or "Record", of_fields)  # type: ignore[operator]
        case Items(item):
            return list[_annotation(item)]  # type: ignore[misc]
        case Mapped(value):
            return dict[str, _annotation(value)]  # type: ignore[misc]
        case OneOf(options):
            made = _annotation(options[0])
            for option in options[1:]:
                made = made | _annotation(option)
            return made
        case Scalar(cls):
            return float | Literal["NaN", "Infinity", "-Infinity"] if cls is float else cls
        case Choice():
            return str
        case Null():
            return None
    raise CodecError(f"no column holds {shape!r:.200}")


def _written(number: float) -> float | str:
    """Spark reads and writes the numbers that JSON lacks as text; msgspec would write null."""
    if math.isfinite(number):
        return number
    return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"


def _floats(shape: Shape, convert: Convert) -> Convert | None:
    """Make a function that converts the floats of a value; None if the shape has no floats."""
    match shape:
        case Scalar(cls):
            return convert if cls is float else None
        case Items(item) if of_item := _floats(item, convert):
            return lambda value: [*map(of_item, value)]
        case Mapped(item) if of_value := _floats(item, convert):
            return lambda value: {key: of_value(one) for key, one in value.items()}
        case OneOf(options) if found := [made for option in options if (made := _floats(option, convert))]:
            return lambda value: None if value is None else found[0](value)
        case Structure(_, fields) if inner := {
            one.name: made for one in fields if (made := _floats(one.shape, convert))
        }:
            return lambda value: {**value, **{name: made(value[name]) for name, made in inner.items()}}
    return None

"""Values of any codec as JSON that can be read again: `tail --format json` writes it, `send` reads it.

A value has several forms in JSON, in this order: that of its class, plain JSON, and that of its schema, where bytes are
Base64 and a decimal is text. `text` gives one only if it is read as the same value. A JSON of another form, such as
Protobuf's, is that of its library.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

from cues_kafka.codecs.json import JsonCodec
from cues_kafka.codecs.lookup import MadeFor, codec_for
from cues_kafka.codecs.text import text_of
from cues_kafka.errors import CodecError, CuesError, GraphError
from cues_kafka.graph.codec import Codec
from cues_kafka.graph.declare import CodecSpec, Raw
from cues_kafka.graph.formats import Avro, JsonSchema, Protobuf


class Form(NamedTuple):
    """
    One form of values in JSON.

    Attributes:
        text: makes JSON of a value and of its bytes.
        data: makes bytes of JSON.
    """

    text: Callable[[Any, bytes], str]
    data: Callable[[str], bytes]


class AsJson:
    """
    Converts the values of one codec.

    Args:
        declared: the codec's declaration.
        made_for: see `codec_for`.
    """

    def __init__(self, declared: CodecSpec, made_for: MadeFor) -> None:
        self._codec: Any = codec_for(declared, made_for)
        self._raw = isinstance(declared, Raw)
        self._forms = [] if self._raw else [*_forms(declared, made_for, self._codec)]

    def text(self, value: Any, data: bytes) -> str | None:
        """
        JSON on one line; None: no JSON would be read as the same value.

        Args:
            value: what the bytes stand for.
            data: the bytes, with the id of their schema in front.
        """
        if self._raw:
            return None
        for form in self._forms:
            try:
                text = form.text(value, data)
                if "\n" not in text and self.data(text) == self._codec.encode(value):
                    return text
            except (CuesError, TypeError, ValueError, RecursionError):  # this form has no JSON for it
                continue
        return None

    def data(self, text: str) -> bytes:
        """
        The bytes of a value that is given as JSON.

        Raises:
            CodecError: it does not fit; in the words of the first form.
        """
        if self._raw:
            return text.encode()
        first: Exception | None = None
        for form in self._forms:
            try:
                return form.data(text)
            except (CodecError, GraphError, TypeError, ValueError) as error:
                first = first or error
        if isinstance(first, CodecError):
            raise first
        raise CodecError(f"the value does not fit the topic's codec: {first}") from first


def _forms(declared: CodecSpec, made_for: MadeFor, codec: Any) -> list[Form]:
    if isinstance(declared, Protobuf):
        return [_of_protobuf(codec)]
    forms = [_by(made, codec) for cls in _classes(declared) if (made := _json(cls)) is not None]
    if (text := text_of(declared, made_for)) is not None:
        forms.append(Form(lambda _, data: text.decode(data) or "null", lambda given: text.encode(given) or b""))
    return forms


def _classes(declared: CodecSpec) -> list[Any]:
    """What values may be: of a class, and any JSON where no class is declared."""
    if isinstance(declared, Codec):
        return [Any if declared.schema is None else declared.schema]
    cls = declared.record if isinstance(declared, Avro | JsonSchema) else getattr(declared, "cls", None)
    return [Any if cls is None else cls]


def _json(cls: Any) -> JsonCodec | None:
    """None: JSON has no form for the class."""
    try:
        return JsonCodec(cls)
    except GraphError:
        return None


def _by(made: JsonCodec, codec: Any) -> Form:
    return Form(
        lambda value, _: made.encode(value).decode(),
        lambda text: bytes(codec.encode(made.decode(text.encode()))),
    )


def _of_protobuf(codec: Any) -> Form:
    from google.protobuf import json_format  # noqa: PLC0415  of an extra

    def data(text: str) -> bytes:
        try:
            return bytes(codec.encode(json_format.Parse(text, codec.message())))
        except json_format.ParseError as error:
            raise CodecError(f"the value does not fit the topic's codec: {error!s:.300}") from error

    def text(value: Any, _: bytes) -> str:
        return json.dumps(json_format.MessageToDict(value, preserving_proto_field_name=True), ensure_ascii=False)

    return Form(text, data)

"""JSON Schema: JSON that fits a schema; with a registry, each message names the schema's id.

The declared schema decides, whatever the writer's was. A schema that is derived from a class says what the class says,
so msgspec checks it alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgspec

from cues_kafka.codecs import framing
from cues_kafka.codecs.json import JsonCodec
from cues_kafka.codecs.json_derived import derived
from cues_kafka.codecs.registered import Own, Part, Registered, Schemas, Writers, unfit
from cues_kafka.codecs.sizes import check_read, check_written
from cues_kafka.errors import CodecError, GraphError
from cues_kafka.extras import JSONSCHEMA, missing
from cues_kafka.graph.formats import JsonSchema

if TYPE_CHECKING:
    from cues_kafka.codecs.json_validation import Validation


class JsonSchemaCodec:
    """
    Converts values of one schema.

    Args:
        declared: the declaration.
        subject: in the registry, if there is one.
        schemas: the registry; None: messages are JSON alone.
        part: what of a message it converts.

    Raises:
        ConfigError: the package jsonschema is missing.
        GraphError: the schema is none, or the class cannot travel.
    """

    def __init__(
        self, declared: JsonSchema, subject: str = "", schemas: Schemas | None = None, part: Part = "value"
    ) -> None:
        self._declared = declared
        self._subject = subject
        self._schemas = schemas
        self.id_header = None if schemas is None else framing.header_of(part)
        self._json = JsonCodec(Any if declared.cls is None else declared.cls)
        self.schema = declared.cls
        self.shape = self._json.shape
        self._own = own_schema(declared)
        self._prefix = b""
        self._writers: Writers[tuple[int, Validation]] | None = None
        self._valid: Validation | None = None
        if declared.schema is None and schemas is not None:
            self._writers = Writers(schemas, self._writer)
        elif self._own is not None and declared.schema is not declared.cls:
            self._valid = _declared_validation(declared, self._own)
        self.nullable = self._json.nullable and (self._valid is None or _takes_null(self._valid))

    def encode(self, value: Any) -> bytes:
        """
        Raises:
            CodecError: the value does not fit the schema; names the path.
            ConfigError: the registry does not have the schema.
            RetriableError: the registry does not answer.
        """
        if not self._prefix and self._schemas is not None:
            self._find_own_schema(self._schemas)
        data = self._json.encode(value)
        try:
            if self._valid is not None:
                _check(self._valid, data, self._declared)
            else:
                self._json.decode(data)  # what a class demands of its fields beyond their types
        except CodecError as error:
            text = str(error).removesuffix(_FIX)
            raise CodecError(f"{text} Return a value that fits the schema.") from error
        return check_written(self._prefix + data, self._declared.limits.bytes)

    def _find_own_schema(self, schemas: Schemas) -> None:
        if self._own is None:
            newest = schemas.latest(self._subject)
            number, self._valid = newest.number, self._writer(newest, newest.number, 5)[1]
        else:
            number = schemas.id_of(self._subject, self._own)
        self._prefix = framing.id_prefix(number)

    def decode(self, data: bytes) -> Any:
        """
        Raises:
            CodecError: the bytes do not fit, or are beyond a limit; names the path.
            RetriableError: the registry does not answer.
        """
        check_read(data, self._declared.limits.bytes)
        start, valid = 0, self._valid
        if self._writers is not None:
            start, valid = self._writers.of(data)
        elif self._schemas is not None:
            start = framing.written_with(data)[1]
        body = data[start:] if start else data
        value = self._json.decode(body)
        if valid is not None:
            _check(valid, body if self._declared.cls is not None else value, self._declared)
        return value

    def _writer(self, found: Registered, name: int | UUID, start: int) -> tuple[int, Validation]:
        try:
            _expect_json(found)
            return start, _validation(found.text, found.references, self._declared)
        except ValueError as error:
            raise unfit(name, found, "JSON Schema", error) from error


_FIX = " Fix the message, or its class."

_plain = msgspec.json.Decoder().decode


def _check(valid: Validation, given: Any, declared: JsonSchema) -> None:
    """Check JSON, or the value that it stands for."""
    try:
        valid.check(_plain(given) if isinstance(given, bytes) else given)
    except (ValueError, ArithmeticError, RecursionError) as error:  # `Misfit`, and what numbers do to a schema's
        root = valid.title or (declared.cls.__name__ if declared.cls else "value")
        raise CodecError(f"{root}{getattr(error, 'path', '')}: {error}. Fix the message, or its class.") from None


def _takes_null(valid: Validation) -> bool:
    try:
        valid.check(None)
    except ValueError:
        return False
    return True


def _declared_validation(declared: JsonSchema, own: Own) -> Validation:
    try:
        return _validation(own.text, [(name, _text(one)) for name, one in declared.references], declared)
    except ValueError as error:
        raise GraphError(f"JsonSchema(...): this is not a JSON Schema: {error}") from error


def _validation(text: str, references: Any, declared: JsonSchema) -> Validation:
    try:
        from cues_kafka.codecs.json_validation import Validation  # noqa: PLC0415  an extra
    except ImportError as error:
        raise missing("JsonSchema(...)", JSONSCHEMA, error=error) from None
    return Validation(text, references, declared.limits)


def _expect_json(found: Registered) -> None:
    if found.kind != "JSON":
        raise ValueError(f"it is of the type {found.kind}")


codec = JsonSchemaCodec
"""See `formats.Format`."""


def record_name(declared: JsonSchema) -> str:
    """The title of the schema."""
    own = own_schema(declared)
    schema = None if own is None else json.loads(own.text)
    if isinstance(schema, dict) and isinstance(title := schema.get("title"), str):
        return title
    raise GraphError("JsonSchema(strategy=...): the schema has no title to name the subject. Add one, or subject=.")


def own_schema(declared: JsonSchema) -> Own | None:
    """The declared schema as a registry gets it; None: it is the registry's."""
    if declared.schema is None:
        return None
    texts = {name: _text(schema) for name, schema in declared.references}
    return _own(_text(declared.schema), texts, ())


def _text(schema: Any) -> str:
    return derived(schema) if isinstance(schema, type) else str(schema)


def _own(text: str, texts: Mapping[str, str], above: tuple[str, ...]) -> Own:
    """The schema with those that it names itself, and so on."""
    found = set(_refs(json.loads(text)))
    named = [(name, one) for name, one in texts.items() if name in found and name not in above]
    return Own(text, "JSON", tuple((name, _own(one, texts, (*above, name))) for name, one in named))


def _refs(schema: Any) -> Iterator[str]:
    """The schemas that a schema names, without the places inside of them."""
    if isinstance(schema, dict) and isinstance(ref := schema.get("$ref"), str):
        yield ref.partition("#")[0]
    if isinstance(schema, dict | list):
        for one in schema.values() if isinstance(schema, dict) else schema:
            yield from _refs(one)


def unreadable(_: JsonSchema, newest: Registered) -> list[str]:
    """Nothing: only the registry compares JSON Schemas."""
    _expect_json(newest)
    return []

"""Avro: values of a schema, each message naming the schema that it was written with.

A message is read by the schema that wrote it, into the declared one (Avro's schema resolution): fields that the
declared schema lacks are left out, fields that the writer lacked take their defaults. Values are checked before they
are written, see `avro_values`. Rules of Avro that users meet:

- A `datetime` in a field of `timestamp-micros` or `timestamp-millis` has a time zone, and comes back in UTC.
- A `Decimal` has the digits that the schema gives it. NaN and infinity are floats like any other.
- A union of several records is a class by the record's name, or an `AvroRecord`, a dict with `record_name`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO
from typing import Any, NamedTuple, NoReturn
from uuid import UUID

from fastavro import schemaless_writer

from cues_kafka.codecs import framing
from cues_kafka.codecs.avro_compat import problems
from cues_kafka.codecs.avro_decode import decoder
from cues_kafka.codecs.avro_fit import misfits
from cues_kafka.codecs.avro_instances import Reading
from cues_kafka.codecs.avro_limits import check_of
from cues_kafka.codecs.avro_records import Unfit
from cues_kafka.codecs.avro_references import in_order, with_references
from cues_kafka.codecs.avro_resolve import with_values
from cues_kafka.codecs.avro_scalars import TooShort
from cues_kafka.codecs.avro_schema import (
    Schema,
    fingerprint,
    full_name,
    parse,
    same_bytes,
    schema_of,
    shape_of,
)
from cues_kafka.codecs.avro_values import Writing
from cues_kafka.codecs.registered import Own, Part, Registered, Schemas, Writers, unfit
from cues_kafka.codecs.schema import Null, OneOf, Shape, describe
from cues_kafka.codecs.sizes import check_read, check_written
from cues_kafka.errors import CodecError, CuesError, GraphError
from cues_kafka.graph.formats import Avro


@dataclass(frozen=True, slots=True)
class _Resolution:
    """
    How messages of one writer's schema are read.

    Attributes:
        start: where the value begins.
        writer: the schema that it was written with.
        resolved: whether it is read into another one.
        check: of limits, where the message's size does not bound them.
        decode: from the bytes to plain values.
        build: from these to the value; None: it is the value.
    """

    start: int
    writer: Schema
    resolved: bool
    check: Callable[[bytes, int], None] | None
    decode: Callable[[bytes, int], Any]
    build: Callable[[Any], Any] | None


class _Way(NamedTuple):
    """
    How values are written: all of it is found at once, as threads share a codec.

    Attributes:
        prefix: what stands before each value.
        schema: with defaults as values.
        to_plain: checks a value, and gives it as fastavro takes it.
        check: of limits; None: the size of a message bounds it.
    """

    prefix: bytes
    schema: Schema
    to_plain: Callable[[Any], Any]
    check: Callable[[bytes, int], None] | None


class AvroCodec:
    """
    Converts values of one schema.

    Args:
        declared: the declaration.
        subject: in the registry, if there is one.
        schemas: the registry; None: messages carry fingerprints.
        part: what of a message it converts.

    Raises:
        GraphError: the schema is none, or a class that Avro cannot carry.
    """

    def __init__(
        self,
        declared: Avro,
        subject: str = "",
        schemas: Schemas | None = None,
        part: Part = "value",
    ) -> None:
        self._declared = declared
        self._subject = subject
        self._schemas = schemas
        self.id_header = None if schemas is None else framing.header_of(part)
        self.schema = declared_schema(declared)
        self.shape = self._shape()
        self.nullable = _takes_null(self.shape)
        self._length = 10 if schemas is None else 5
        self._most_bytes = declared.limits.bytes
        self._writers = None if schemas is None else Writers(schemas, self._reader_by_id)
        self._readers: dict[bytes, _Resolution] = {} if self._writers is None else self._writers.known
        self._way: _Way | None = None
        self._to_plain: Callable[[Any], Any] | None = None
        if self.schema is not None:
            self._to_plain = Writing().convert(self._valued(), self._own_shape)
        if schemas is None:
            self._know_fingerprints()

    def _shape(self) -> Shape | None:
        cls = self._declared.cls
        if cls is None:
            return None if self.schema is None else shape_of(self.schema)
        own: Shape = describe(cls, models=True)
        if cls is not self._declared.schema:
            given = shape_of(self.schema)
            if _takes_null(given):  # a message may be null: a tombstone, too
                own = OneOf((Null(), own))
            if found := next(misfits(given, own, cls.__name__), ""):
                raise GraphError(f"Avro(schema, {cls.__name__}): {found}. Change one of them.")
        return own

    @property
    def _own_shape(self) -> Shape | None:
        """The shape of a class; None: of a schema alone, which says all by itself."""
        return None if self._declared.cls is None else self.shape

    def _valued(self) -> Schema:
        try:
            return with_values(self.schema)
        except ValueError as error:
            raise GraphError(f"Avro(...): this is not an Avro schema: {error}") from error

    def _know_fingerprints(self) -> None:
        assert self._to_plain is not None
        self._way = self._way_of(framing.SINGLE_OBJECT + fingerprint(self.schema), self._valued(), self._to_plain)
        for text in self._declared.older:
            older = parse(schema_text(text))
            if (mark := framing.SINGLE_OBJECT + fingerprint(older)) == self._way.prefix and not same_bytes(
                older, self.schema
            ):
                raise GraphError(
                    f"Avro(older=...): {full_name(older)} and the declared schema differ in logical types or digits "
                    "alone. Avro's fingerprints leave these out, so messages cannot tell which schema wrote them. Give "
                    "the field another name, or use a registry."
                )
            try:
                self._readers[mark] = self._reader_of(older, 10)
            except ValueError as error:
                raise GraphError(f"Avro(older=...): {full_name(older)}: {error}") from error
        self._readers[self._way.prefix] = self._reader_of(self.schema, 10)

    def _reader_of(self, writer: Schema, start: int) -> _Resolution:
        shape = shape_of(writer) if self.shape is None else self.shape
        check, exact = check_of(writer, self._declared.limits), isinstance(self._declared.schema, type)
        if self.schema is None or writer == self.schema:
            build = Reading(exact=exact).build(shape)
            return _Resolution(start, writer, resolved=False, check=check, decode=decoder(writer), build=build)
        build, decode = Reading(exact=exact, resolved=True).build(shape), decoder(writer, self._valued())
        return _Resolution(start, writer, resolved=True, check=check, decode=decode, build=build)

    # Writing

    def encode(self, value: Any) -> bytes:
        """
        Raises:
            CodecError: the value does not fit the schema; names the path and what was expected.
            ConfigError: the registry does not have the schema.
            RetriableError: the registry does not answer.
        """
        prefix, schema, to_plain, check = self._way or self._find_own_schema()
        out = BytesIO()
        try:
            schemaless_writer(out, schema, to_plain(value))
        except Unfit as unfit:
            raise CodecError(f"{unfit.text(self._root)}. Return a value that fits the schema.") from None
        except RecursionError:  # without its traceback, which is as deep as the value
            raise CodecError("The value is nested too deeply for Avro. Flatten it.") from None
        except Exception as error:  # noqa: BLE001  fastavro raises what its types raise
            self._refuse(value, error)
        data = check_written(prefix + out.getvalue(), self._most_bytes)
        if check is not None:
            self._check_limits(check, data, len(prefix))
        return data

    def _check_limits(self, check: Callable[[bytes, int], None], data: bytes, start: int) -> None:
        """What readers with the same limits would refuse is not written."""
        try:
            check(data, start)
        except CodecError as error:
            raise CodecError(f"The value of {self._root} would not be read again. {error}") from None

    def _refuse(self, value: Any, error: Exception) -> NoReturn:
        """Say where the value does not fit: a look at each field finds a number that is too large."""
        schema = self.schema if self._way is None else self._way.schema
        name = full_name(schema)
        try:
            Writing(each=True).convert(schema, self._own_shape)(value)
        except Unfit as unfit:
            raise CodecError(f"{unfit.text(self._root)}. Return a value that fits the schema.") from None
        raise CodecError(f"The value does not fit the schema {name}: {_short(error)}") from error

    @property
    def _root(self) -> str:
        return full_name(self.schema if self._way is None else self._way.schema).rpartition(".")[2]

    def _find_own_schema(self) -> _Way:
        assert self._schemas is not None
        if self._to_plain is None:
            found = self._schemas.latest(self._subject)
            schema = with_values(parse_with(found))
            made = self._way_of(framing.id_prefix(found.number), schema, Writing().convert(schema))
        else:
            number = self._schemas.id_of(self._subject, own_of(self._declared))
            made = self._way_of(framing.id_prefix(number), self._valued(), self._to_plain)
        self._way = made
        return made

    def _way_of(self, prefix: bytes, schema: Schema, to_plain: Callable[[Any], Any]) -> _Way:
        return _Way(prefix, schema, to_plain, check_of(schema, self._declared.limits))

    # Reading

    def decode(self, data: bytes) -> Any:
        """
        Raises:
            CodecError: the bytes do not fit, or are beyond a limit; names the schemas of writer and reader.
            RetriableError: the registry does not answer.
        """
        found = self._readers.get(data[: self._length]) or self._learn(data)
        check_read(data, self._most_bytes)
        try:
            if found.check is not None:
                found.check(data, found.start)
            value = found.decode(data, found.start)
            return value if found.build is None else found.build(value)
        except CuesError:
            raise
        except Unfit as unfit:
            raise self._unreadable(found, unfit) from getattr(unfit, "error", None)
        except Exception as error:  # a class may raise what it likes when it validates itself
            raise self._unreadable(found, error) from error

    def _unreadable(self, found: _Resolution, error: Exception) -> CodecError:
        writer = full_name(found.writer)
        if isinstance(error, TooShort):
            where = "".join(reversed(error.path))[:300]
            return CodecError(
                f"The message ends before the last field of the schema {writer}, which it names"
                f"{': at ' + self._root_of(writer) + where if where else ''}."
            )
        into = f", which is not readable as {full_name(self.schema)}" if found.resolved else ""
        what = error.text(self._root_of(writer)) if isinstance(error, Unfit) else _short(error)
        return CodecError(f"The message was written with the schema {writer}{into}: {what}")

    def _root_of(self, writer: str) -> str:
        return writer.rpartition(".")[2] if len(writer) < 100 else "value"

    def _learn(self, data: bytes) -> _Resolution:
        """The reader of a schema that no message of this codec had before."""
        if self._writers is not None:
            return self._writers.of(data)
        mark = framing.fingerprint_of(data)
        raise CodecError(
            f"The message was written with a schema of fingerprint {mark.hex()}, and {full_name(self.schema)} has "
            f"{fingerprint(self.schema).hex()}. Name the writer's schema in Avro(..., older=[...])."
        )

    def _reader_by_id(self, found: Registered, name: int | UUID, start: int) -> _Resolution:
        try:
            return self._reader_of(parse_with(found), start)
        except ValueError as error:
            raise unfit(name, found, "Avro schema", error) from error


def _short(error: Exception) -> str:
    """What a library says, without the values and schemas that it may quote at length."""
    return f"{type(error).__name__}: {error}"[:300].rstrip(": ")


def parse_with(found: Registered) -> Schema:
    """
    Parse a schema of a registry, and those that it names.

    Raises:
        ValueError: it is no schema.
    """
    if found.kind != "AVRO":
        raise ValueError(f"it is of the type {found.kind}")
    return parse(found.text, [text for _, text in found.references])


def declared_schema(declared: Avro) -> Schema | None:
    """
    The schema of a declaration; None: it is the registry's.

    Raises:
        GraphError: it is no schema, or a class that Avro cannot carry.
    """
    if declared.schema is None:
        return None
    try:
        return parse(schema_text(declared), in_order(own_of(declared).references))
    except ValueError as error:
        raise GraphError(f"Avro(...): this is not an Avro schema: {error}") from error


def schema_text(declared: Avro | Any) -> str:
    """The JSON of a declared schema, or of one of `older`."""
    schema, namespace = (declared.schema, declared.namespace) if isinstance(declared, Avro) else (declared, None)
    if isinstance(schema, type):
        return json.dumps(schema_of(describe(schema, models=True), namespace))
    return str(schema)


def own_of(declared: Avro) -> Own:
    """The declared schema with those that it names, as a registry gets it."""
    return with_references(schema_text(declared), dict(declared.references), ())


codec = AvroCodec
"""See `formats.Format`."""


def record_name(declared: Avro) -> str:
    """The full name of the declared record."""
    return full_name(declared_schema(declared))


def own_schema(declared: Avro) -> Own | None:
    """The declared schema as a registry gets it; None: it is the registry's."""
    return None if declared.schema is None else own_of(declared)


def unreadable(declared: Avro, newest: Registered) -> list[str]:
    """
    Say why messages of a registered schema cannot be read into the declared one.

    Raises:
        ValueError: what is registered is no Avro schema.
    """
    return problems(parse_with(newest), declared_schema(declared))


def _takes_null(shape: Shape | None) -> bool:
    options = shape.options if isinstance(shape, OneOf) else (shape,)
    return any(isinstance(one, Null) for one in options)

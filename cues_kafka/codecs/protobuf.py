"""Protobuf: messages of a generated class; with a registry, each message names its schema, and its place in there.

The library reads what another version of the class wrote: fields that it does not know are kept, and missing ones have
their defaults. It refuses messages that nest values more than 100 deep.
"""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID

from google.protobuf.message import DecodeError, EncodeError

from cues_kafka.codecs import framing
from cues_kafka.codecs.protobuf_files import class_of, indexes_of, name_at, no_message_at, own_of
from cues_kafka.codecs.registered import Own, Part, Registered, Schemas, Writers, unfit
from cues_kafka.codecs.sizes import check_read, check_written
from cues_kafka.errors import CodecError, GraphError
from cues_kafka.graph.formats import Protobuf

_MAX_PLACES: Final = 1_000
"""Places of messages that are remembered for one schema."""


class _Writer:
    """A schema that messages were written with: which of its messages are ours."""

    def __init__(self, text: str, name: int | UUID, start: int) -> None:
        self.start = start
        self._text = text
        self._name = name
        self._found: dict[tuple[int, ...], str | None] = {}

    def name_at(self, indexes: tuple[int, ...]) -> str | None:
        """The full name of the message at a place; None: the registry cannot tell."""
        if indexes not in self._found:
            if len(self._found) >= _MAX_PLACES:
                self._found.clear()
            try:
                if min(indexes) < 0:  # also where only the source text is known
                    raise ValueError(no_message_at(indexes))
                found = name_at(self._text, indexes)
            except ValueError as error:
                raise CodecError(
                    f"The schema {self._name} of the registry {error}, which the message names. Its producer uses "
                    "another version of the schema, or another codec."
                ) from None
            self._found[indexes] = found
            return found
        return self._found[indexes]


class ProtobufCodec:
    """
    Converts messages of one class.

    Args:
        declared: the declaration.
        subject: in the registry, if there is one.
        schemas: the registry; None: messages are Protobuf alone.
        part: what of a message it converts.
    """

    nullable = False
    shape = None

    def __init__(
        self, declared: Protobuf, subject: str = "", schemas: Schemas | None = None, part: Part = "value"
    ) -> None:
        self._cls: Any = _class(declared)
        self._name: str = self._cls.DESCRIPTOR.full_name
        self._subject = subject
        self._schemas = schemas
        self.id_header = None if schemas is None else framing.header_of(part, places=True)
        self._most_bytes = declared.limits.bytes
        self._nests = _nests(self._cls.DESCRIPTOR)
        self._own = own_of(self._cls.DESCRIPTOR.file)
        self._writers = None if schemas is None else Writers(schemas, self._writer)
        self._prefix = b""

    def message(self) -> Any:
        """A new message of the class, without any field."""
        return self._cls()

    def encode(self, value: Any) -> bytes:
        """
        Raises:
            CodecError: the value is no message of the class, or lacks a required field.
            ConfigError: the registry does not have the schema.
            RetriableError: the registry does not answer.
        """
        if self._schemas is not None and not self._prefix:
            number = self._schemas.id_of(self._subject, self._own)
            self._prefix = framing.id_prefix(number) + framing.places(indexes_of(self._cls.DESCRIPTOR))
        if not isinstance(value, self._cls):
            raise CodecError(f"Expected {self._name}, got {type(value).__name__}. Return a message of this class.")
        try:
            body = bytes(value.SerializeToString(deterministic=True))
        except (EncodeError, ValueError) as error:
            raise CodecError(f"The value is not a complete {self._name}: {error!s:.300}. Set its fields.") from error
        if self._nests:
            self._check_depth(body)
        return check_written(self._prefix + body, self._most_bytes)

    def _check_depth(self, body: bytes) -> None:
        """The library writes what nests values deeper than it reads."""
        try:
            self._cls().ParseFromString(body)
        except (DecodeError, RecursionError) as error:
            raise CodecError(
                f"The value is a {self._name} that readers refuse: {error!s:.300}. Nest its values less deeply."
            ) from error

    def decode(self, data: bytes) -> Any:
        """
        Raises:
            CodecError: the bytes do not fit, are beyond a limit, or are those of another class.
            RetriableError: the registry does not answer.
        """
        check_read(data, self._most_bytes)
        body = data if self._writers is None else data[self._start(data, self._writers) :]
        value = self._cls()
        try:
            value.ParseFromString(body)
        except (DecodeError, ValueError, RecursionError) as error:
            raise CodecError(f"The message is not a {self._name}: {error!s:.300}") from error
        if not value.IsInitialized():
            missing = ", ".join(value.FindInitializationErrors())
            raise CodecError(f"The message is not a {self._name}: it lacks {missing:.300}.")
        return value

    def _start(self, data: bytes, writers: Writers[_Writer]) -> int:
        """Where the value begins, if it is one of the class."""
        writer = writers.of(data)
        indexes, start = framing.places_of(data, writer.start)
        name = writer.name_at(indexes)
        if name not in (None, self._name):
            raise CodecError(f"The message is a {name}, and the topic is declared as {self._name}.")
        return start

    def _writer(self, found: Registered, name: int | UUID, start: int) -> _Writer:
        if found.kind != "PROTOBUF":
            raise unfit(name, found, "Protobuf schema", f"it is of the type {found.kind}")
        return _Writer(found.text, name, start)


def _nests(message: Any, around: frozenset[Any] = frozenset(), done: set[Any] | None = None) -> bool:
    """Whether a message, or one of those in it, may hold itself."""
    done = set() if done is None else done
    if message in around or message in done:
        return message in around
    inner = [each.message_type for each in message.fields if each.message_type is not None]
    found = any(_nests(each, around | {message}, done) for each in inner)
    done.add(message)
    return found


def _class(declared: Protobuf) -> Any:
    try:
        return class_of(declared.described) if declared.cls is None else declared.cls
    except KeyError as error:
        raise GraphError(f"{declared!r:.200}: its description lacks {error}. Declare the generated class.") from error


codec = ProtobufCodec
"""See `formats.Format`."""


def record_name(declared: Protobuf) -> str:
    """The messages' full name."""
    return declared.described.name


def own_schema(declared: Protobuf) -> Own | None:
    """The file of the class as a registry gets it."""
    return own_of(_class(declared).DESCRIPTOR.file)


def unreadable(_: Protobuf, newest: Registered) -> list[str]:
    """Nothing: only the registry compares Protobuf schemas."""
    if newest.kind != "PROTOBUF":
        raise ValueError(f"it is of the type {newest.kind}")
    return []

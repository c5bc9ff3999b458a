"""What codecs and a schema registry exchange: the schemas that are declared, and those that messages name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Generic, Literal, NamedTuple, Protocol, TypeAlias, TypeVar
from uuid import UUID

from cues_kafka.codecs import framing
from cues_kafka.errors import CodecError

MAX_SCHEMAS: Final = 1_000
"""Schemas of writers that a codec remembers."""

Kind: TypeAlias = Literal["AVRO", "JSON", "PROTOBUF"]

Part: TypeAlias = Literal["key", "value"]


class Own(NamedTuple):
    """
    A declared schema, as a registry gets it.

    Attributes:
        text: JSON, or a serialized `FileDescriptorProto` in Base64.
        kind: its language.
        references: the schemas that it names, by the names that it has for them. In the registry each of them is in
            the subject of its name.
    """

    text: str
    kind: Kind = "AVRO"
    references: tuple[tuple[str, Own], ...] = ()


class Registered(NamedTuple):
    """
    A schema of a registry.

    Attributes:
        number: its id.
        text: JSON, or what the registry has for Protobuf.
        references: the schemas that it names as (name, text), those that others need first.
        kind: its language.
    """

    number: int
    text: str
    references: tuple[tuple[str, str], ...] = ()
    kind: str = "AVRO"


class Schemas(Protocol):
    """A registry, as codecs use it. Its answers are kept: a schema of an id never changes."""

    def by_id(self, name: int | UUID) -> Registered:
        """
        Find the schema of an id or GUID.

        Raises:
            CodecError: the registry has none.
            RetriableError: the registry does not answer.
        """
        ...

    def id_of(self, subject: str, own: Own) -> int:
        """
        Find the id of a schema of a subject.

        Raises:
            ConfigError: the subject does not have this schema.
            RetriableError: the registry does not answer.
        """
        ...

    def latest(self, subject: str) -> Registered:
        """
        Find the newest schema of a subject.

        Raises:
            ConfigError: there is no such subject.
            RetriableError: the registry does not answer.
        """
        ...


_DECLARED: Final = {"AVRO": "Avro", "JSON": "JsonSchema", "PROTOBUF": "Protobuf"}
"""What reads messages of each type of schemas."""

_KINDS: Final = {"Avro schema": "AVRO", "JSON Schema": "JSON", "Protobuf schema": "PROTOBUF"}


def unfit(name: int | UUID, found: Registered, what: str, why: object) -> CodecError:
    """The error of a message whose schema is not one of the declared language."""
    text = f"The schema {name} of the registry is no {what}: {str(why).removesuffix('.')}."
    if found.kind == _KINDS[what]:
        return CodecError(f"{text} Have its producer use a schema that readers can parse.")
    if (declared := _DECLARED.get(found.kind)) is None:
        return CodecError(f"{text} Have its producer use another codec.")
    return CodecError(f"{text} Its producer uses another codec: declare {declared}(..., registry=True).")


Made = TypeVar("Made")


class Writers(Generic[Made]):
    """
    What a codec makes for each schema that messages were written with.

    Args:
        schemas: the registry.
        make: makes it, of a schema, its id or GUID, and the place where values begin.

    Attributes:
        known: by the first bytes of messages, up to where values begin.
    """

    def __init__(self, schemas: Schemas, make: Callable[[Registered, int | UUID, int], Made]) -> None:
        self._schemas = schemas
        self._make = make
        self.known: dict[bytes, Made] = {}
        self._refused: dict[bytes, str] = {}

    def of(self, data: bytes) -> Made:
        """
        What belongs to the schema that a message names.

        Raises:
            CodecError: the message names none, or the registry does not have it.
            RetriableError: the registry does not answer.
        """
        name, start = framing.written_with(data)
        key = data[:start]
        if (known := self.known.get(key)) is not None:
            return known
        if (why := self._refused.get(key)) is not None:
            raise CodecError(why)
        found = self._schemas.by_id(name)
        try:
            made = self._make(found, name, start)
        except CodecError as error:  # for good, as a schema of an id never changes; reading it may take long
            if len(self._refused) >= MAX_SCHEMAS:
                self._refused.clear()
            self._refused[key] = str(error)
            raise
        if len(self.known) >= MAX_SCHEMAS:
            self.known.clear()
        self.known[key] = made
        return made

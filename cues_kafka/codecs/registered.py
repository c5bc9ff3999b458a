"""What codecs and a schema registry exchange: the schemas that are declared, and those that messages name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Generic, Literal, NamedTuple, Protocol, TypeAlias, TypeVar
from uuid import UUID

from cues_kafka.codecs import framing

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

    def of(self, data: bytes) -> Made:
        """
        What belongs to the schema that a message names.

        Raises:
            CodecError: the message names none, or the registry does not have it.
            RetriableError: the registry does not answer.
        """
        name, start = framing.written_with(data)
        key = data[:start]
        if (found := self.known.get(key)) is not None:
            return found
        made = self._make(self._schemas.by_id(name), name, start)
        if len(self.known) >= MAX_SCHEMAS:
            self.known.clear()
        self.known[key] = made
        return made

"""The formats whose schemas a registry can have, and the subjects of their schemas."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final, Protocol

from cues_kafka.codecs.registered import Own, Part, Registered, Schemas
from cues_kafka.extras import missing
from cues_kafka.graph.formats import Avro, JsonSchema, Protobuf, SchemaSpec
from cues_kafka.ports.codec import WireCodec


class Format(Protocol):
    """The module of a format. It imports the format's library, so it is imported when a topic declares it."""

    def codec(
        self, declared: Any, subject: str = "", schemas: Schemas | None = None, part: Part = "value"
    ) -> WireCodec:
        """
        Make the codec; without a registry messages stand alone.

        Raises:
            ConfigError: a package is missing.
            GraphError: the schema is none, or does not fit the class.
        """
        ...

    def record_name(self, declared: Any) -> str:
        """The full name by which a subject can be named."""
        ...

    def own_schema(self, declared: Any) -> Own | None:
        """The declared schema as a registry gets it; None: it is the registry's."""
        ...

    def unreadable(self, declared: Any, newest: Registered) -> list[str]:
        """
        Say why messages of a registered schema cannot be read as declared, as far as that can be told.

        Raises:
            ValueError: what is registered is of another format.
        """
        ...


_MODULES: Final[dict[type[SchemaSpec], str]] = {
    Avro: "cues_kafka.codecs.avro",
    JsonSchema: "cues_kafka.codecs.json_schema",
    Protobuf: "cues_kafka.codecs.protobuf",
}


def format_of(declared: SchemaSpec) -> Format:
    """
    The format of a declaration.

    Raises:
        MissingExtra: its packages are not installed.
    """
    name = _MODULES[type(declared)]
    try:
        found: Any = import_module(name)
    except ModuleNotFoundError as error:
        if not declared.library:
            raise
        raise missing(f"{type(declared).__name__}(...)", *declared.library, error=error) from None
    return found  # type: ignore[no-any-return]


def subject_of(declared: SchemaSpec, topic: str, part: Part) -> str:
    """The registry's subject of a topic's keys or values."""
    if declared.subject is not None:
        return declared.subject
    if declared.strategy == "topic":
        return f"{topic}-{part}"
    name = format_of(declared).record_name(declared)
    return name if declared.strategy == "record" else f"{topic}-{name}"

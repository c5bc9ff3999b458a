"""Declarations of codecs whose schemas a registry can have: Avro, JSON Schema, Protobuf. Plain data, like `declare`."""

from __future__ import annotations

import contextlib
import json
import pkgutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Final, Literal, NamedTuple

from cues_kafka.arguments import known_arguments
from cues_kafka.errors import GraphError
from cues_kafka.extras import JSONSCHEMA, PROTOBUF, REGISTRY, Package
from cues_kafka.graph.declare import CodecSpec, Limits


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaSpec(CodecSpec):
    """
    The base of codecs whose schemas a registry can have.

    Attributes:
        registry: whether messages carry the id of a schema in the cluster's `Registry` (Confluent's wire format).
        subject: the registry's subject; None: the strategy names it.
        strategy: names the subject: topic: ``<topic>-value`` or ``<topic>-key``; record: the record's full name;
            topic-record: ``<topic>-<full name>``.
        limits: what a message may ask of the decoder.
        library: what reads and writes the format, besides the core.
    """

    library: ClassVar[tuple[Package, ...]] = ()

    registry: bool = False
    subject: str | None = None
    strategy: Literal["topic", "record", "topic-record"] = "topic"
    limits: Limits = field(default=Limits())

    def packages(self) -> tuple[Package, ...]:
        return (*self.library, *((REGISTRY,) if self.registry else ()))

    def _check(self, *, has_schema: bool) -> None:
        """
        Raises:
            GraphError: a combination without a meaning.
        """
        name = type(self).__name__
        if not has_schema and not self.registry:
            raise GraphError(
                f"{name}() has no schema. Write {name}(schema), {name}(SomeDataclass) or {name}(registry=True)."
            )
        if self.strategy not in ("topic", "record", "topic-record"):
            raise GraphError(f"{name}(strategy={self.strategy!r}): takes 'topic', 'record' or 'topic-record'.")
        if not self.registry and (self.subject is not None or self.strategy != "topic"):
            raise GraphError(f"{name}(subject=..., strategy=...) need a registry. Add registry=True, or drop them.")
        if not has_schema and self.strategy != "topic" and self.subject is None:
            raise GraphError(f"{name}(registry=True) without a schema has no record to name the subject. Add subject=.")


@known_arguments()
@dataclass(frozen=True, slots=True)
class Avro(SchemaSpec):
    """
    Avro: each message names its schema, by a fingerprint or by its id in a schema registry.

    Values are instances of the class, or dicts. `Avro("schemas/order.avsc")` reads the file at once, below the working
    directory; the declaration then holds the schema itself. Further attributes are those of `SchemaSpec`.

    Attributes:
        schema: a file that ends in ``.avsc``, JSON text, parsed JSON, or a class to derive the schema from; None:
            values are read by the schema that they were written with, and written by the subject's latest one.
        cls: the class of the values, if the schema is not derived from it; its fields are fields of the schema.
        older: schemas of older messages, without a registry; they are read into the declared one.
        namespace: of the schema that is derived from a class.
        references: other schemas, by the full names that the schema has for them. In a registry each of them is in the
            subject of its name.

    Raises:
        GraphError: no schema, a file that cannot be read, or a combination without a meaning.
    """

    kind: ClassVar[str] = "avro"
    schema: Any = None
    cls: type[Any] | None = None
    older: Sequence[Any] = field(default=(), kw_only=True)
    namespace: str | None = field(default=None, kw_only=True)
    references: Any = field(default=(), kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "schema", as_schema(self, self.schema))
        object.__setattr__(self, "references", _references(self, self.references))
        object.__setattr__(self, "older", tuple(as_schema(self, one) for one in self.older))
        object.__setattr__(self, "cls", class_of(self, self.schema, self.cls))
        self._check(has_schema=self.schema is not None)
        if self.registry and self.older:
            raise GraphError("Avro(registry=True, older=...): the registry has the older schemas. Drop older=.")
        if self.references and not isinstance(self.schema, str):
            raise GraphError("Avro(references=...) belong to a schema that is given. Drop them.")

    @property
    def record(self) -> type[Any] | None:
        return self.cls


@known_arguments()
@dataclass(frozen=True, slots=True)
class JsonSchema(SchemaSpec):
    """
    JSON whose values fit a JSON Schema; with a registry each message names its schema by its id.

    Values are instances of the class, or what `Json()` gives. `JsonSchema("schemas/order.json")` reads the file at
    once, below the working directory; the declaration then holds the schema itself. Further attributes are those of
    `SchemaSpec`.

    Attributes:
        schema: a file that ends in ``.json``, JSON text, parsed JSON, or a class to derive the schema from; None:
            values are read by the schema that they were written with, and written by the subject's latest one.
        cls: the class of the values, if the schema is not derived from it.
        references: other schemas, by the names that the schema has for them in ``$ref``. In a registry each of them is
            in the subject of its name.

    Raises:
        GraphError: no schema, a file that cannot be read, or a combination without a meaning.
    """

    kind: ClassVar[str] = "json-schema"
    library: ClassVar[tuple[Package, ...]] = (JSONSCHEMA,)
    schema: Any = None
    cls: type[Any] | None = None
    references: Any = field(default=(), kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "schema", as_schema(self, self.schema))
        object.__setattr__(self, "references", _references(self, self.references))
        object.__setattr__(self, "cls", class_of(self, self.schema, self.cls))
        self._check(has_schema=self.schema is not None)
        if self.references and not isinstance(self.schema, str):
            raise GraphError("JsonSchema(references=...) belong to a schema that is given. Drop them.")

    @property
    def record(self) -> type[Any] | None:
        return self.cls


def _references(spec: CodecSpec, given: Any) -> tuple[tuple[str, Any], ...]:
    """Schemas by name, in one form."""
    try:
        named = sorted(given.items() if isinstance(given, Mapping) else given)
        return tuple((name, as_schema(spec, one)) for name, one in named)
    except (TypeError, ValueError) as error:
        raise GraphError(
            f"{type(spec).__name__}(references={given!r:.100}): takes schemas by their names, as in "
            f"{{'com.shop.Line': LINE}}."
        ) from error


def class_of(spec: CodecSpec, schema: Any, cls: type[Any] | None) -> type[Any] | None:
    """The class of the values of a declaration: the schema is derived from it, or it is given."""
    name = type(spec).__name__
    if isinstance(schema, type):
        if cls not in (None, schema):
            raise GraphError(f"{name}({schema.__name__}, cls=...): the first argument is the class. Drop cls=.")
        return schema
    if schema is None and cls is not None:
        raise GraphError(f"{name}() has no schema. Write {name}(schema, {cls.__name__}) or {name}({cls.__name__}).")
    return cls


_ENDINGS: Final = {"avro": ".avsc", "json-schema": ".json"}


def as_schema(spec: CodecSpec, given: Any) -> Any:
    """A class, or JSON text in one form, so that declarations can be compared and sent elsewhere."""
    if given is None or isinstance(given, type):
        return given
    codec, ending = type(spec).__name__, _ENDINGS[spec.kind]
    name = str(given) if isinstance(given, Path) or str(given).endswith(ending) else None
    try:
        parsed = given if name is None and not isinstance(given, str) else json.loads(_text(given, name))
        return json.dumps(parsed, sort_keys=spec.kind == "avro")  # registries compare JSON Schemas with their order
    except OSError as error:
        raise GraphError(
            f"{codec}({name!r}): the file cannot be read: {error}. Give a path from {Path.cwd()}, or an absolute one."
        ) from error
    except (ValueError, TypeError, RecursionError) as error:
        what = repr(name or given)
        raise GraphError(
            f"{codec}({what:.80}): the schema is not JSON: {error}. Give a file that ends in {ending}, JSON text, or a "
            "class."
        ) from error


def _text(given: Any, name: str | None) -> str:
    if name is not None:
        return Path(name).read_text(encoding="utf-8")
    return given if given.lstrip()[:1] in tuple('{["') else json.dumps(given)


class Described(NamedTuple):
    """
    A class of Protobuf messages as data.

    Attributes:
        imported: its name to import, as ``module:qualname``.
        name: the full name of its messages.
        files: what describes them: serialized `FileDescriptorProto`, those that others need first.
    """

    imported: str
    name: str
    files: tuple[bytes, ...]


@known_arguments()
@dataclass(frozen=True, slots=True)
class Protobuf(SchemaSpec):
    """
    Protobuf messages; with a registry each message names its schema by its id.

    Values are instances of the class. Further attributes are those of `SchemaSpec`.

    Attributes:
        cls: a class of messages, as ``protoc`` generates it. None in another process that cannot import it.
        described: the class as data.

    Raises:
        GraphError: no class of messages, or a combination without a meaning.
    """

    kind: ClassVar[str] = "protobuf"
    library: ClassVar[tuple[Package, ...]] = (PROTOBUF,)
    cls: type[Any] | None = field(compare=False)
    described: Described = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.cls, type) or not hasattr(getattr(self.cls, "DESCRIPTOR", None), "full_name"):
            raise GraphError(f"Protobuf({self.cls!r:.200}): takes a class of messages, as protoc generates it.")
        object.__setattr__(self, "described", _described(self.cls))
        self._check(has_schema=True)

    def __reduce__(self) -> tuple[Any, ...]:
        settings = {name: getattr(self, name) for name in ("described", "registry", "subject", "strategy", "limits")}
        return _arrived, (settings,)

    @property
    def record(self) -> type[Any] | None:
        return self.cls


def _described(cls: Any) -> Described:
    files: dict[str, bytes] = {}

    def collect(file: Any) -> None:
        for each in file.dependencies:
            collect(each)
        files[file.name] = file.serialized_pb

    collect(cls.DESCRIPTOR.file)
    return Described(f"{cls.__module__}:{cls.__qualname__}", cls.DESCRIPTOR.full_name, tuple(files.values()))


def _arrived(settings: dict[str, Any]) -> Protobuf:
    """A declaration that another process sent, which may know modules that are not here."""
    made = object.__new__(Protobuf)
    cls = None
    with contextlib.suppress(ImportError, AttributeError, ValueError):
        cls = pkgutil.resolve_name(settings["described"].imported)
    for name, value in {**settings, "cls": cls if isinstance(cls, type) else None}.items():
        object.__setattr__(made, name, value)
    return made

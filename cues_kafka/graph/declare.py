"""Declarations of codecs, stores and retries: plain data without an implementation.

The runtime finds the implementation by the type of the declaration when a graph starts. So `plan`, `to_dict` and the
command line need neither a codec library nor a client.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

from cues_kafka.errors import GraphError


class CodecSpec:
    """
    The base of declared codecs; `codecs.lookup.MAKERS` has the maker of each class.

    Attributes:
        kind: the codec's name in plain data.
    """

    __slots__ = ()
    kind: ClassVar[str]

    @property
    def record(self) -> type[Any] | None:
        """The class of the values; None: the declaration does not name one."""
        return None


@dataclass(frozen=True, slots=True)
class Json(CodecSpec):
    """
    JSON in UTF-8. With a class, values are instances of it, validated when they are read and written.

    With a class, fields that it does not have are dropped when a message is read, so that a producer may add fields
    first. If an object has a key twice, the last one counts. Read `Json()` or `Raw()` where neither may happen.

    Attributes:
        cls: a dataclass or a `msgspec.Struct`; None: the types of `json` (dict, list, str, int, float, bool, None).
    """

    kind: ClassVar[str] = "json"
    cls: type[Any] | None = None

    def __post_init__(self) -> None:
        if self.cls is not None and not isinstance(self.cls, type):
            raise GraphError(f"Json({self.cls!r}): takes a class, or nothing. Write Json({type(self.cls).__name__}).")

    @property
    def record(self) -> type[Any] | None:
        """See `CodecSpec`."""
        return self.cls


@dataclass(frozen=True, slots=True)
class Alias:
    """
    The name in messages of a field that Python cannot name so: ``Annotated[str, Alias("order-id")]``.

    JSON and Spark's columns have this name; Avro has the field's own. A `msgspec.Struct` has ``msgspec.field(name=)``.

    Attributes:
        name: in messages.
    """

    name: str

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise GraphError(f"Alias({self.name!r}): takes the field's name in messages.")


@dataclass(frozen=True, slots=True)
class Digits:
    """
    How many digits a `Decimal` has: ``Annotated[Decimal, Digits(12, 2)]``. Avro and Spark need to know, JSON does not.

    Attributes:
        precision: all digits.
        scale: those behind the point.
    """

    precision: int
    scale: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.precision <= 38 or not 0 <= self.scale <= self.precision:
            raise GraphError(f"{self}: takes 1 to 38 digits, and no more than these behind the point.")


@dataclass(frozen=True, slots=True)
class Limits:
    """
    What a message may make its decoder do. A message beyond a limit is a decoding error, like any other bad message.

    Attributes:
        bytes: size of a message.
        nesting: how deep values may lie inside each other, where the schema does not bound it.
        empty_items: items of arrays that take no bytes, such as nulls; all other items are bounded by the size.
    """

    bytes: int = 16 * 1024 * 1024
    nesting: int = 100
    empty_items: int = 10_000


@dataclass(frozen=True, slots=True)
class Avro(CodecSpec):
    """
    Avro: each message names its schema, by a fingerprint or by its id in a schema registry.

    Values are instances of the class, or dicts. `Avro("schemas/order.avsc")` reads the file at once, below the working
    directory; the declaration then holds the schema itself.

    Attributes:
        schema: a file that ends in ``.avsc``, JSON text, parsed JSON, or a class to derive the schema from; None:
            values are read by the schema that they were written with, and written by the subject's latest one.
        cls: the class of the values, if the schema is not derived from it; its fields are fields of the schema.
        registry: whether messages carry the id of a schema in the cluster's `Registry` (Confluent's wire format).
        subject: the registry's subject; None: the strategy names it.
        strategy: names the subject: topic: ``<topic>-value`` or ``<topic>-key``; record: the record's full name;
            topic-record: ``<topic>-<full name>``.
        older: schemas of older messages, without a registry; they are read into the declared one.
        namespace: of the schema that is derived from a class.
        limits: what a message may ask of the decoder.

    Raises:
        GraphError: no schema, a file that cannot be read, or a combination without a meaning.
    """

    kind: ClassVar[str] = "avro"
    schema: Any = None
    cls: type[Any] | None = None
    registry: bool = field(default=False, kw_only=True)
    subject: str | None = field(default=None, kw_only=True)
    strategy: Literal["topic", "record", "topic-record"] = field(default="topic", kw_only=True)
    older: Sequence[Any] = field(default=(), kw_only=True)
    namespace: str | None = field(default=None, kw_only=True)
    limits: Limits = field(default=Limits(), kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "schema", _schema(self.schema))
        object.__setattr__(self, "older", tuple(_schema(one) for one in self.older))
        if isinstance(self.schema, type):
            if self.cls not in (None, self.schema):
                raise GraphError(f"Avro({self.schema.__name__}, cls=...): the first argument is the class. Drop cls=.")
            object.__setattr__(self, "cls", self.schema)
        if self.schema is None and (not self.registry or self.cls is not None):
            raise GraphError("Avro() has no schema. Write Avro(schema), Avro(SomeDataclass) or Avro(registry=True).")
        if self.strategy not in ("topic", "record", "topic-record"):
            raise GraphError(f"Avro(strategy={self.strategy!r}): takes 'topic', 'record' or 'topic-record'.")
        if not self.registry and (self.subject is not None or self.strategy != "topic"):
            raise GraphError("Avro(subject=..., strategy=...) need a registry. Add registry=True, or drop them.")
        if self.schema is None and self.strategy != "topic" and self.subject is None:
            raise GraphError("Avro(registry=True) without a schema has no record to name the subject. Add subject=.")
        if self.registry and self.older:
            raise GraphError("Avro(registry=True, older=...): the registry has the older schemas. Drop older=.")

    @property
    def record(self) -> type[Any] | None:
        """See `CodecSpec`."""
        return self.cls


def _schema(given: Any) -> Any:
    """A class, or JSON text with its keys in order, so that declarations can be compared and sent elsewhere."""
    if given is None or isinstance(given, type):
        return given
    name = str(given) if isinstance(given, Path) or str(given).endswith(".avsc") else None
    try:
        parsed = given if name is None and not isinstance(given, str) else json.loads(_text(given, name))
        return json.dumps(parsed, sort_keys=True)
    except OSError as error:
        raise GraphError(
            f"Avro({name!r}): the file cannot be read: {error}. Give a path from {Path.cwd()}, or an absolute one."
        ) from error
    except (ValueError, TypeError, RecursionError) as error:
        what = repr(name or given)
        raise GraphError(
            f"Avro({what:.80}): the schema is not JSON: {error}. Give a file that ends in .avsc, JSON text, or a class."
        ) from error


def _text(given: Any, name: str | None) -> str:
    if name is not None:
        return Path(name).read_text(encoding="utf-8")
    return given if given.lstrip()[:1] in tuple('{["') else json.dumps(given)


@dataclass(frozen=True, slots=True)
class Raw(CodecSpec):
    """The bytes themselves."""

    kind: ClassVar[str] = "raw"


@dataclass(frozen=True, slots=True)
class Store:
    """
    A key-value store of one processor whose changes are committed with the step.

    Attributes:
        value: codec of the values.
    """

    value: CodecSpec = Json()

    def __post_init__(self) -> None:
        if not isinstance(self.value, CodecSpec):
            raise GraphError(
                f"Store({self.value!r}): takes a codec. Write Store(Json()), Store(Avro(...)) or Store(Raw())."
            )


@dataclass(frozen=True, slots=True)
class Retry:
    """
    Which exceptions are retried, and for how long; each retry calls the function with the same step and hash.

    Attributes:
        on: exception classes to retry.
        for_s: how long, in seconds since the first call.
        first_s: the first pause, in seconds; each later one is twice as long.
        max_s: the longest pause, in seconds.
        then: what follows when the time is over. stop: the task stops, because an outage is not the message's fault.
            error: the exception is handled like any other, as an error message if there is an errors topic.
    """

    on: type[Exception] | tuple[type[Exception], ...] = (OSError,)
    for_s: float = field(default=300.0, kw_only=True)
    first_s: float = field(default=0.1, kw_only=True)
    max_s: float = field(default=30.0, kw_only=True)
    then: Literal["stop", "error"] = field(default="stop", kw_only=True)

    def __post_init__(self) -> None:
        classes: tuple[Any, ...] = self.on if isinstance(self.on, tuple) else (self.on,)
        object.__setattr__(self, "on", classes)
        if not classes or not all(isinstance(cls, type) and issubclass(cls, Exception) for cls in classes):
            raise GraphError(f"Retry(on={self.on!r}): takes subclasses of Exception. Write Retry(on=(OSError,)).")
        for name in ("for_s", "first_s", "max_s"):
            seconds = getattr(self, name)
            if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds < math.inf:
                raise GraphError(f"Retry({name}={seconds!r}): takes seconds above 0. Give a number such as 30.")
        if self.first_s > self.max_s:
            raise GraphError(f"Retry: first_s={self.first_s} is longer than max_s={self.max_s}. Swap or raise max_s.")
        if self.then not in ("stop", "error"):
            raise GraphError(f"Retry(then={self.then!r}): takes 'stop' or 'error'.")

    @property
    def classes(self) -> tuple[type[Exception], ...]:
        """`on` as a tuple, for ``isinstance`` and ``except``."""
        return self.on if isinstance(self.on, tuple) else (self.on,)

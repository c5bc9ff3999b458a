"""Declarations of codecs, stores and retries: plain data without an implementation.

The runtime finds the implementation by the type of the declaration when a graph starts. So `plan`, `to_dict` and the
command line need neither a codec library nor a client.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
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
        cls: a dataclass; None: the types of `json` (dict, list, str, int, float, bool, None).
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
class Avro(CodecSpec):
    """
    Avro, with a schema in the declaration or in a schema registry.

    Attributes:
        schema: the schema as JSON text or as parsed JSON, or a dataclass to derive it from; None: the registry's.
        registry: whether values carry the id of a schema in a registry.
        subject: the registry's subject; None: ``<topic>-value``.
    """

    kind: ClassVar[str] = "avro"
    schema: str | Mapping[str, Any] | type[Any] | None = None
    registry: bool = field(default=False, kw_only=True)
    subject: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if self.schema is None and not self.registry:
            raise GraphError("Avro() has no schema. Write Avro(schema), Avro(SomeDataclass) or Avro(registry=True).")
        if self.subject is not None and not self.registry:
            raise GraphError("Avro(subject=...) needs a registry. Add registry=True, or drop subject=.")

    @property
    def record(self) -> type[Any] | None:
        """See `CodecSpec`."""
        return self.schema if isinstance(self.schema, type) else None


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

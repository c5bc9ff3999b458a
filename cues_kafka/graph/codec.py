"""`Codec`, the base of a user's own codecs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Literal

from cues_kafka.graph.declare import CodecSpec


class Codec(CodecSpec, ABC):
    """
    A format of your own: subclass it, and declare an instance, as in ``Topic(value=Csv())``.

    Instances are settings and code, without state. Threads share them, they are compared when graphs are, and Spark
    sends them to its processes. So a frozen dataclass at the top level of a module serves best.

    Attributes:
        schema: the type of the values, a dataclass or anything else that `Json` takes; None: they have no schema.
            Spark's columns come from it, and `Topic(key=...)` is checked against it. None must not be a value then,
            unless the type has it (``Order | None``): a message without a value (a tombstone) is refused.
    """

    __slots__ = ()
    kind: ClassVar[str] = "own"
    schema: Any = None

    @abstractmethod
    def encode(self, value: Any) -> bytes:
        """
        Convert a value to bytes, the same ones each time. It is never None: that is a message without a value.

        Raises:
            Exception: the value does not fit. The message that it was made for becomes an error message.
            RetriableError: something else does not answer. The task tries again, and then stops.
        """

    @abstractmethod
    def decode(self, data: bytes) -> Any:
        """
        Convert bytes to a value. Anyone may have written them.

        Raises:
            Exception: the bytes do not fit. The message becomes an error message with its bytes.
            RetriableError: something else does not answer. The task tries again, and then stops.
        """

    def open(self, topic: str, part: Literal["key", "value"]) -> Codec:
        """
        Return the codec of one topic. Each task calls it once in its own process, before it converts anything.

        Override it to make what one process cannot send to another, such as a compiled parser, or what depends on the
        topic.
        """
        return self

    @property
    def record(self) -> type[Any] | None:
        return self.schema if isinstance(self.schema, type) else None

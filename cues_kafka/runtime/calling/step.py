"""`step` and the received messages, as user code sees them. They are valid only during the call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from cues_kafka.core.delivery import HEADER
from cues_kafka.core.hashing import delivery_hash
from cues_kafka.errors import CodecError
from cues_kafka.graph.message import travels
from cues_kafka.observe.log import Logger, get_logger
from cues_kafka.ports import UNREADABLE, Coordinates, Headers, WireMessage, headers_of

_log = get_logger("cues_kafka.step")


class Received:
    """
    A message that a processor or a client received.

    Attributes:
        value: the value, decoded by the codec of the topic.
    """

    __slots__ = ("_key", "_message", "value")

    def __init__(self, message: WireMessage, value: Any, key: Callable[[WireMessage], Any] | None = None) -> None:
        self._message = message
        self._key = key
        self.value = value

    def __repr__(self) -> str:
        place = f"{self.topic}/{self.partition} at {self.offset}"
        return f"Received({self.value!r}, key={self.key_bytes!r}, {place})"

    @property
    def key(self) -> Any:
        """
        The key: decoded by the topic's `key_codec=`, else as UTF-8 text; None: the message has none.

        Raises:
            CodecError: the key does not fit the codec, or is not UTF-8; read `key_bytes`.
        """
        if self._key is not None:
            return self._key(self._message)
        key = self._message.key()
        try:
            return None if key is None else key.decode()
        except UnicodeDecodeError:
            raise CodecError(f"the key {key!r} is not UTF-8: read `key_bytes`") from None

    @property
    def key_bytes(self) -> bytes | None:
        """The key as bytes."""
        return self._message.key()

    @property
    def headers(self) -> Headers:
        """
        All headers, in order.

        Raises:
            CodecError: the name of a header is not UTF-8. A processor never gets such a message.
        """
        return readable(self._message) or []

    @property
    def timestamp_ms(self) -> int:
        """Milliseconds since the epoch."""
        return self._message.timestamp()[1]

    @property
    def topic(self) -> str:
        """The topic that it was read from."""
        return self._message.topic()

    @property
    def partition(self) -> int:
        """The partition that it was read from."""
        return self._message.partition()

    @property
    def offset(self) -> int:
        """Its offset in the partition."""
        return self._message.offset()

    @property
    def meta(self) -> dict[str, str]:
        """The headers that travel to the outputs, as text."""
        return {k: (v or b"").decode(errors="replace") for k, v in self.headers if k != HEADER and travels(k)}


def readable(message: WireMessage) -> Headers | None:
    """
    The headers of a message.

    Raises:
        CodecError: they cannot be read.
    """
    found = headers_of(message)
    if found is UNREADABLE:
        raise unreadable(message)
    return found


def unreadable(message: WireMessage) -> CodecError:
    """The error of a message whose headers are `UNREADABLE`."""
    where = f"{message.topic()}/{message.partition()} at {message.offset()}"
    return CodecError(
        f"{where} has a header whose name is not UTF-8, so none of its headers can be read. Send it again with header "
        "names in UTF-8"
    )


class Step:
    """
    The present delivery.

    Attributes:
        inputs: the received messages by binding. Alts have one; a join has those that the filter passed.
        binding: for alts, the binding of the message; else that of the first input.
        processor: the name of the processor.
        task: `processor/partition`.
        attempt: 0 at the first call, one more at each retry in this process.
        starts: how often a process has died on exactly this batch.
        replay: the number of this replay of an error; None: this is no replay.
    """

    __slots__ = (
        "_consumed", "_graph", "attempt", "binding", "commit_requested", "context", "inputs", "processor", "replay",
        "starts", "task",
    )  # fmt: skip

    def __init__(
        self,
        graph: str,
        processor: str,
        consumed: tuple[Coordinates, ...],
        inputs: Mapping[str, Received],
        *,
        attempt: int = 0,
        starts: int = 0,
    ) -> None:
        self._graph = graph
        self._consumed = consumed
        self.inputs = inputs
        self.binding = consumed[0].binding
        self.processor = processor
        self.task = f"{processor}/{consumed[0].partition}"
        self.attempt = attempt
        self.starts = starts
        self.replay: int | None = None
        self.context: dict[str, str] = {}
        self.commit_requested = False

    @property
    def hash(self) -> str:
        """The delivery hash (O4), 32 hexadecimal digits. It is the same on every attempt."""
        return delivery_hash(self._graph, self.processor, self._consumed).hex()

    def error_context(self, **fields: object) -> None:
        """Add fields to the error message of this delivery, if it becomes one."""
        self.context.update({name: str(value) for name, value in fields.items()})

    def request_commit(self) -> None:
        """Commit right after this step."""
        self.commit_requested = True

    @property
    def log(self) -> Logger:
        """A logger that names the task and the delivery."""
        return _log.bind(task=self.task, hash=self.hash)

"""`step` and the received messages, as user code sees them. They are valid only during the call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from cues_kafka.core.delivery import show_origin
from cues_kafka.core.hashing import delivery_hash
from cues_kafka.errors import CodecError, GraphError
from cues_kafka.graph.message import travels
from cues_kafka.graph.meta import META, Meta
from cues_kafka.graph.processor import Processor
from cues_kafka.graph.timers import Timer, due_ms
from cues_kafka.observe.log import Logger, get_logger
from cues_kafka.ports.log import UNREADABLE, Coordinates, Headers, WireMessage, headers_of
from cues_kafka.state.scheduled import Scheduled
from cues_kafka.task.calling.metadata import Marks, what_travels

_log = get_logger("cues_kafka.step")


class Received:
    """
    A message that a processor or a client received.

    Attributes:
        value: the value, decoded by the codec of the topic.
    """

    __slots__ = ("_key", "_marks", "_message", "value")

    def __init__(
        self,
        message: WireMessage,
        value: Any,
        key: Callable[[WireMessage], Any] | None = None,
        marks: Marks = None,
    ) -> None:
        self._message = message
        self._key = key
        self._marks = marks
        self.value: Any = value

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
    def value_bytes(self) -> bytes | None:
        """The value as bytes, before the codec; None: a tombstone. `value` is also None for the value null of JSON."""
        return self._message.value()

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
    def meta(self) -> Meta:
        """
        What is known of its ancestors, see `Topic(meta=)`; and the headers that travel.

        Raises:
            CodecError: see `headers`.
        """
        if self._marks is False:
            return Meta()
        places, tx, truncated = what_travels(self._message, self.headers, self._marks)
        texts = {k: (v or b"").decode(errors="replace") for k, v in self.headers if k != META and travels(k)}
        return Meta(places, tx, texts, truncated)


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
        processor: the processor as it was declared. A function that reads its outputs there can serve any processor:
            ``dict.fromkeys([binding for binding, _ in step.processor.outputs], message)`` is a broadcast.
        task: `name/partition` of the task, such as ``check/3``.
        attempt: 0 at the first call, one more at each retry in this process.
        starts: how often a process has died on exactly this batch.
        replay: the number of this replay of an error message: 1 for the first one; None: this is no replay.
        timer: the timer that began this step; None: messages did. Then `inputs` is empty.
    """

    __slots__ = (
        "_consumed", "_graph", "_timers", "attempt", "binding", "commit_requested", "context", "inputs", "processor",
        "replay", "starts", "task", "timer",
    )  # fmt: skip

    def __init__(
        self,
        graph: str,
        processor: Processor,
        consumed: tuple[Coordinates, ...],
        inputs: Mapping[str, Received],
        *,
        attempt: int = 0,
        starts: int = 0,
        timers: Scheduled | None = None,
        timer: Timer | None = None,
        replay: int | None = None,
    ) -> None:
        self._graph = graph
        self._timers = timers
        self.timer: Timer | None = timer
        self._consumed = consumed
        self.inputs: Mapping[str, Received] = inputs
        self.binding: str = consumed[0].binding
        self.processor: Processor = processor
        self.task: str = f"{processor.name}/{consumed[0].partition}"
        self.attempt: int = attempt
        self.starts: int = starts
        self.replay: int | None = replay
        self.context: dict[str, str] = {}
        self.commit_requested: bool = False

    @property
    def hash(self) -> str:
        """The delivery hash (O4), or the timer's (F1), 32 hexadecimal digits. It is the same on every attempt."""
        if self.timer is not None:
            return self.timer.hash
        return delivery_hash(self._graph, self.processor.name, self._consumed).hex()

    def error_context(self, **fields: object) -> None:
        """Add fields to the error message of this delivery, if it becomes one."""
        self.context.update({name: str(value) for name, value in fields.items()})

    def request_commit(self) -> None:
        """Commit right after this step."""
        self.commit_requested = True

    def schedule(self, key: str, *, at: int | datetime) -> None:
        """
        Set a timer: the function of the processor's `Timers` is called when that time has come (F1 to F4).

        It is set when this step ends as outputs or nil. The same key at the same time is one timer, at another time
        another one. A time that has passed already is due at once: before the task's next message. In the step of a
        timer it must be later than that timer: else two steps could have the same hash (F1).

        Args:
            key: text of your own, such as the key of the message.
            at: when it is due: milliseconds since the epoch, or a `datetime` with a zone.

        Raises:
            ValueError: `at` is no such time, or not later than the timer of this step, or `key` is no text.
            GraphError: the processor declares no timers.
        """
        timers, due = self._declared(), due_ms(at)
        if self.timer is not None and due <= self.timer.due_ms:
            raise ValueError(f"at={due}: the timer of {self.timer.due_ms} sets only timers that are due after it")
        timers.schedule(_text(key), due, show_origin(self._consumed))

    def unschedule(self, key: str, *, at: int | datetime) -> bool:
        """
        Remove a timer.

        Args:
            key: what it was scheduled under.
            at: for when.

        Returns:
            Whether it was set, and had not fired.

        Raises:
            ValueError, GraphError: see `schedule`.
        """
        return self._declared().unschedule(_text(key), due_ms(at))

    @property
    def time_ms(self) -> int:
        """
        The time by which the processor's timers are due (F2), in milliseconds since the epoch.

        By messages it is the newest timestamp among those that the task has processed, this one with them.

        Raises:
            GraphError: see `schedule`.
        """
        return self._declared().now_ms

    def count_late(self) -> int:
        """
        Count a message that came too late for its window, and give how many this process has met.

        Raises:
            GraphError: see `schedule`.
        """
        timers = self._declared()
        timers.late += 1
        return timers.late

    def _declared(self) -> Scheduled:
        if self._timers is None:
            raise GraphError(
                f'{self.processor.label} declares no timers. Write state={{"timers": Timers(function)}}: the function '
                "is called with each timer that is due."
            )
        return self._timers

    @property
    def log(self) -> Logger:
        """A logger that names the task and the delivery."""
        return _log.bind(task=self.task, hash=self.hash)


def _text(key: object) -> str:
    if type(key) is not str:
        raise ValueError(f"{key!r:.60} is not a key of a timer: keys are text")
    return key

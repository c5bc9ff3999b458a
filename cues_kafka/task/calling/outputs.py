"""Makes records of what a function returned: key, partition, timestamp, headers, provenance."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from cues_kafka.codecs.framing import header_of
from cues_kafka.core.delivery import HEADER
from cues_kafka.errors import OutputError
from cues_kafka.graph.message import (
    Message,
    Out,
    header_list,
    key_bytes,
    travelling,
    with_travelling,
    writable,
    written_ms,
)
from cues_kafka.ports.log import Headers, WireMessage
from cues_kafka.task.calling.metadata import Marks, passed_on

OVERHEAD_BYTES = 500
"""What a record needs besides key and value (P4): our headers, and its share of the record batch."""

PROVENANCE_BYTES = 300
"""The part of `OVERHEAD_BYTES` for the provenance header. A longer one, as of a join of many inputs, counts like any
other header. The rest is for the record batch (61 bytes), the record's lengths and the header's name."""

HEADER_BYTES = 8
"""What a header needs besides name and value: their lengths, each of one to four bytes below 128 MB."""

Payload: TypeAlias = "tuple[Target, bytes | None, bytes | None, Headers, int | None, int | None]"
"""(target, key, value, own headers, timestamp or None, partition or None), before provenance is known."""


@dataclass(frozen=True, slots=True)
class Output:
    """
    An output topic, and which records the client and the brokers accept for it.

    Attributes:
        topic: its name.
        partitions: their number. A record without a key goes to the task's number modulo this.
        max_bytes: bytes of the largest record, `OVERHEAD_BYTES` included.
        provenance: whether records carry the header.
        bare: whether no header travels to its records, by `meta=False`.
        compacted: whether the brokers refuse records without a key.
        older_ms, newer_ms: how far from the broker's clock a timestamp may be; None: not limited, or not known.
        bounds: the settings that limit a record's size, each with its bytes.
        batch_bytes: bytes of the largest record batch; None: not known.
    """

    topic: str
    partitions: int
    max_bytes: int
    provenance: bool = True
    bare: bool = False
    compacted: bool = False
    older_ms: int | None = None
    newer_ms: int | None = None
    bounds: tuple[tuple[str, int], ...] = ()
    batch_bytes: int | None = None

    def refusal(self, key: bytes | None, size: int, headers: Headers, when_ms: int, now_ms: int) -> str | None:
        """
        Why a record cannot be written; None: it can.

        Args:
            key: its key.
            size: bytes of key, value and headers, and `OVERHEAD_BYTES`.
            headers: its headers.
            when_ms: its timestamp; 0: the broker's time.
            now_ms: the time of day.
        """
        if size > self.max_bytes:
            return self.too_large(size)
        if key is None and self.compacted:
            return self.keyless
        if not all(name is not None and writable(name) for name, _ in headers):
            return NAMELESS
        return self.untimely(when_ms, now_ms)

    def too_large(self, size: int) -> str:
        """Why a record of this size is refused, with each setting that would have to be raised."""
        bounds = [f"the {most} of {name}" for name, most in self.bounds if size > most] or [self.limit]
        return (
            f"{size} bytes for {self.topic!r} are more than {' and '.join(bounds)}. Send a reference to the data "
            f"instead, or raise {'both' if len(bounds) > 1 else 'it'}."
        )

    @property
    def limit(self) -> str:
        """What limits a record's size."""
        least = [name for name, most in self.bounds if most == self.max_bytes]
        return f"the {self.max_bytes} of {' and '.join(least) or 'the topic'}"

    @property
    def keyless(self) -> str:
        """Why a record without a key is refused."""
        return f"{self.topic!r} is compacted and takes no message without a key. Return Message(value, key=...)."

    def untimely(self, when_ms: int, now_ms: int) -> str | None:
        """Why a record with this timestamp is refused; None: it is not."""
        if self.older_ms is not None and 0 < when_ms < now_ms - self.older_ms:
            bound, most, where = "before", self.older_ms, "older"
        elif self.newer_ms is not None and when_ms > now_ms + self.newer_ms:
            bound, most, where = "after", self.newer_ms, "further ahead"
        else:
            return None
        return (
            f"the timestamp {when_ms} is {where} than {self.topic!r} takes (message.timestamp.{bound}.max.ms={most}). "
            "Return Message(value, timestamp_ms=...) with another one, or raise the topic's setting."
        )

    def takes(self, times_ms: Sequence[int], now: Now) -> bool:
        """Whether all of these timestamps are surely accepted; if not, `untimely` decides for each."""
        if self.newer_ms is not None and max(times_ms) > now.since_ms + self.newer_ms:
            return False
        return self.older_ms is None or min(times_ms) >= now() - self.older_ms


KEY_ID: Final = header_of("key")

NAMELESS = "a header has no name, or one with a NUL, behind which it would be cut off. Rename the header."


@dataclass(frozen=True, slots=True, kw_only=True)
class Target(Output):
    """
    An output topic with its codec.

    Attributes:
        binding: the output binding.
        encode: the codec's method.
        encode_all: the same for many values, where the codec has something quicker; it may raise other errors, so a
            caller asks `encode` then. None: there is nothing quicker.
        unchecked: see `codecs.json.JsonCodec`; None: every value is checked.
        key_of: reads the value's key field; None: the topic has no `key=`.
        encode_key: from a key to bytes.
        inherit: from the lead input's key to the key of an output without one; None: it is the same.
        foreign: names of headers that say which schema a value was written with: the codec says that itself.
    """

    binding: str
    encode: Callable[[Any], bytes]
    key_of: Callable[[Any], Any] | None
    encode_key: Callable[[Any], bytes | None] = key_bytes
    inherit: Callable[[bytes], bytes | None] | None = None
    foreign: tuple[str, ...] = ()
    encode_all: Callable[[Sequence[Any]], list[bytes]] | None = None
    unchecked: tuple[Callable[[Any], bytes], tuple[Any, ...]] | None = None


class Now:
    """
    The time of day in milliseconds since the epoch.

    Attributes:
        since_ms: the time when it was last asked for. What was not too far ahead of it then is not now either.
    """

    __slots__ = ("_time", "since_ms")

    def __init__(self, time: Callable[[], float]) -> None:
        """Ask the time; `time` gives seconds since the epoch."""
        self._time = time
        self.since_ms: int = int(time() * 1000)

    def __call__(self) -> int:
        self.since_ms = int(self._time() * 1000)
        return self.since_ms


class Origin:
    """
    What a step's outputs inherit besides the lead's key: the latest timestamp, and the headers that travel.

    `headers_of` was called for the messages before. Nothing travels from headers that cannot be read.
    """

    __slots__ = ("timestamp_ms", "travelled")

    def __init__(
        self,
        messages: tuple[WireMessage, ...],
        now_ms: int = 0,
        marks: Sequence[Marks] | None = None,
        *,
        timed: bool = True,
    ) -> None:
        """Outputs of no message (O8) inherit the time of day. See `passed_on` for `marks` and `timed`."""
        self.timestamp_ms = written_ms(messages[0].timestamp()[1]) if messages else now_ms
        self.travelled: Headers = []
        if not messages:
            return
        if len(messages) > 1:
            self.timestamp_ms = written_ms(max(message.timestamp()[1] for message in messages))
        if marks is not None or len(messages) > 1:
            self.travelled = passed_on(messages, marks, timed=timed)
        elif (came := messages[0].headers()) and (len(came) > 1 or came[0][0] != HEADER):
            self.travelled = travelling((came,))


def key_field(name: str) -> Callable[[Any], Any]:
    """Makes a reader of a topic's `key=` field: a mapping's item or an object's attribute."""

    def read(value: Any) -> Any:
        try:
            return value[name] if isinstance(value, Mapping) else getattr(value, name)
        except (KeyError, AttributeError):
            raise OutputError(
                f"the topic's key= is {name!r}, which this {type(value).__name__} lacks. Return a value that has it, "
                "or Message(value, key=...)."
            ) from None

    return read


def payload(target: Target, value: Any, default_key: bytes | None) -> Payload:
    """
    Encode one value, or a `Message`, for one topic.

    Raises:
        OutputError: the topic does not take it.
        CodecError: the codec refuses it.
    """
    headers: Headers = []
    timestamp = partition = None
    given: Any = None
    if isinstance(value, Message):
        message, value = value, value.value
        given, timestamp, partition = message.key, message.timestamp_ms, message.partition
        headers = header_list(message.headers) if message.headers else headers
        if timestamp is not None and not (type(timestamp) is int and 0 <= timestamp < 2**63):
            raise OutputError(f"timestamp_ms={timestamp!r}: milliseconds since the epoch are a whole number from 0 on.")
        timestamp = None if timestamp is None else written_ms(timestamp)
        if partition is not None and not (type(partition) is int and 0 <= partition < target.partitions):
            raise OutputError(
                f"partition {partition!r} of {target.topic!r} does not exist; it has {target.partitions}. "
                "Leave partition= out."
            )
        if value is None and given is None:
            raise OutputError("a tombstone has no meaning without a key. Return Message(None, key=...).")
    if given is None and target.key_of is not None and value is not None:
        given = target.key_of(value)
    if given is not None:
        key = target.encode_key(given)
    else:
        key = default_key if target.inherit is None or default_key is None else target.inherit(default_key)
    if headers:
        headers = _own_headers(target, headers, given)
    if key is None and target.compacted:
        raise OutputError(target.keyless)
    data = None if value is None else target.encode(value)
    check_size(target, key, data, headers)
    return target, key, data, headers, timestamp, partition


def _own_headers(target: Target, headers: Headers, given: Any) -> Headers:
    """
    The headers without those that name the schema of the bytes that a message was read from.

    A key that is given as bytes is written as it is, so that its header belongs to it.
    """
    dropped = target.foreign
    if type(given) is not bytes and (given is not None or target.inherit is not None):
        dropped = (*dropped, KEY_ID)
    return [(name, value) for name, value in headers if name not in dropped]


def size_of(headers: Headers) -> int:
    """The size of headers as the client counts it, or a few bytes more."""
    size = HEADER_BYTES * len(headers)
    for name, value in headers:
        size += len(name) if name.isascii() else len(name.encode())
        if value:
            size += len(value)
    return size


def check_size(target: Target, key: bytes | None, data: bytes | None, headers: Headers) -> None:
    """Make a record that is too large an error of its step (P4): the producer would refuse the whole batch."""
    size = len(key or b"") + len(data or b"") + OVERHEAD_BYTES + (size_of(headers) if headers else 0)
    if size > target.max_bytes:
        raise OutputError(target.too_large(size))


def record(made: Payload, origin: Origin, partition: int, provenance: bytes, now: Now) -> tuple[Any, ...]:
    """
    Make a record of a payload, shaped like `ports.log.Outgoing`.

    Args:
        made: the payload.
        origin: what it inherits.
        partition: the task's partition.
        provenance: the value of the header.
        now: the time.

    Raises:
        OutputError: with the headers that travel, or with its provenance, it is too large, or its timestamp is
            refused.
    """
    target, key, data, headers, timestamp, chosen = made
    if origin.travelled and not target.bare:
        headers = with_travelling(headers, origin.travelled)
        check_size(target, key, data, headers)
    if target.provenance:
        headers = [(HEADER, provenance), *headers]
        if len(provenance) > PROVENANCE_BYTES:
            check_size(target, key, data, headers)
    if chosen is None and key is None:
        chosen = partition % target.partitions
    when = origin.timestamp_ms if timestamp is None else timestamp
    late = target.newer_ms is not None and when > now.since_ms + target.newer_ms
    if (late or target.older_ms is not None) and (why := target.untimely(when, now())):
        raise OutputError(why)
    return target.topic, chosen, key, data, headers or None, when


def _closing(read: Callable[[Any, bytes | None], list[Payload]]) -> Callable[[Any, bytes | None], list[Payload]]:
    """Have a generator whose output is refused end within its step: its `finally` may change stores, too."""

    def whole(result: Any, key: bytes | None) -> list[Payload]:
        try:
            return read(result, key)
        except BaseException:
            if isinstance(result, Generator):
                result.close()
            raise

    return whole


class Returned:
    """
    Reads what a function returns. The declaration decides how, not the value.

    Attributes:
        targets: the output topics, by binding.
    """

    def __init__(self, shape: str, targets: Mapping[str, Target], *, generator: bool) -> None:
        self.targets = targets
        self._one = next(iter(targets.values()), None)
        read = {"none": self._read_none, "one": self._read_one, "many": self._read_many}[shape]
        self.read: Callable[[Any, bytes | None], list[Payload]] = _closing(self._iterate(shape)) if generator else read
        """Gives the encoded outputs of one call; empty: nil. Raises `OutputError` or `CodecError`."""
        self._whole = read

    def drained(self, given: Any) -> list[Payload]:
        """Encode what a state handler held back, as a function would return or yield it."""
        if isinstance(given, Out):
            made = self._of_out(given, None)
            return [] if made is None else [made]
        return self._whole(given, None)

    def _read_none(self, result: Any, _: bytes | None) -> list[Payload]:
        if result is not None:
            raise OutputError(
                f"returned {type(result).__name__}, but the processor has no outputs. Return None, or declare outputs=."
            )
        return []

    def _read_one(self, result: Any, key: bytes | None) -> list[Payload]:
        if result is None:
            return []
        assert self._one
        return [payload(self._one, result, key)]

    def _read_many(self, result: Any, key: bytes | None) -> list[Payload]:
        if result is None:
            return []
        if not isinstance(result, Mapping):
            raise OutputError(
                f"returned {type(result).__name__}, but outputs= has bindings. Return {{binding: message}}, None, or "
                f"yield Out(binding, message). Bindings: {sorted(self.targets)}."
            )
        made = [(self._target(binding), value) for binding, value in result.items()]
        return [payload(target, value, key) for target, value in made if value is not None]

    def _iterate(self, shape: str) -> Callable[[Any, bytes | None], list[Payload]]:
        if shape == "many":
            return lambda result, key: [made for out in result or () if (made := self._of_out(out, key)) is not None]
        if shape == "one":
            one = self._one
            assert one
            return lambda result, key: [payload(one, value, key) for value in result or () if value is not None]
        return self._drain

    def _drain(self, result: Iterable[Any] | None, key: bytes | None) -> list[Payload]:
        for value in result or ():
            self._read_none(value, key)
        return []

    def _of_out(self, out: Any, key: bytes | None) -> Payload | None:
        if not isinstance(out, Out):
            raise OutputError(f"yielded {type(out).__name__}. With outputs={{...}}, yield Out(binding, message).")
        target = self._target(out.binding)
        return None if out.message is None else payload(target, out.message, key)

    def _target(self, binding: str) -> Target:
        try:
            return self.targets[binding]
        except KeyError:
            raise OutputError(
                f"unknown binding {binding!r} (outputs= has {', '.join(map(repr, sorted(self.targets)))}). "
                "With outputs={...}, return {binding: message}, or yield Out(binding, message)."
            ) from None

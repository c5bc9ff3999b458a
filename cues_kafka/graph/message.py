"""Messages as functions get and return them, and the headers that travel from inputs to outputs (docs/api.md)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, fields
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeAlias

from cues_kafka.errors import OutputError
from cues_kafka.graph.meta import META
from cues_kafka.ports.log import Headers

if TYPE_CHECKING:  # type checkers read the defaults (PEP 696), so that users may write a plain `Message` or `Out`
    from typing_extensions import TypeVar

    T_co = TypeVar("T_co", covariant=True, default=Any)
    B = TypeVar("B", bound=str, default=str)
else:
    from typing import TypeVar

    T_co = TypeVar("T_co", covariant=True)
    B = TypeVar("B", bound=str)

Key: TypeAlias = "str | bytes | int | None"
HeaderValue: TypeAlias = "str | bytes | None"

PROVENANCE = "cues"
"""Name of the provenance header (O8). It names the origin of one record, so it never travels."""

OWN = (PROVENANCE, META)
"""Headers that only the framework writes. Users get them with the others, and may pass all of them on. Then ours are
left out, because they are about the message that brought them."""

EARLIEST_MS = 1
"""The earliest timestamp that an output may have. Kafka's client takes 0 for the present, which is another time at each
attempt, and brokers from 4.0 on refuse what is below."""

TRAVELLING_PREFIX = "cues-"
TRACE = ("traceparent", "tracestate")
TRAVELLING = frozenset({*TRACE, "baggage"})


@dataclass(frozen=True, slots=True)
class Message(Generic[T_co]):
    """
    A value with its key, headers, timestamp and partition. A function may return one instead of a bare value.

    Attributes:
        value: what the topic's codec encodes; None is a tombstone, which needs a key.
        key: None: the topic's `key=` field of the value, else the (lead) input's key.
        headers: a mapping, or (name, value) pairs; text is encoded as UTF-8.
        timestamp_ms: milliseconds since the epoch, where 0 counts as 1; None: the input's, the latest of several.
        partition: None: murmur2 of the key; without a key, the task's number modulo the count of partitions.
    """

    value: T_co
    _: KW_ONLY
    key: Any = None
    headers: Mapping[str, HeaderValue] | Sequence[tuple[str, HeaderValue]] = ()
    timestamp_ms: int | None = None
    partition: int | None = None


def quick_message(value: Any, key: Any, headers: Any, timestamp_ms: int | None) -> Message[Any]:
    """A `Message` in a third of the time: the initialiser of a frozen class looks each field up by its name."""
    made: Message[Any] = _new(Message)
    _set_value(made, value)
    _set_key(made, key)
    _set_headers(made, headers)
    _set_timestamp_ms(made, timestamp_ms)
    _set_partition(made, None)
    return made


_new: Any = object.__new__
_set_value, _set_key, _set_headers, _set_timestamp_ms, _set_partition = (
    getattr(Message, field.name).__set__ for field in fields(Message)
)


class Out(NamedTuple, Generic[B]):
    """
    One message for one output binding, as a processor with ``outputs={...}`` yields it.

    With the annotation ``Iterator[Out[Literal["all", "big"]]]``, the graph refuses unknown bindings.

    Attributes:
        binding: the output binding, not the topic.
        message: a value, or a `Message`.
    """

    binding: B
    message: Any


def written_ms(timestamp_ms: int) -> int:
    """The timestamp that an output is written with, given that of its input or of a `Message`; see `EARLIEST_MS`."""
    return max(timestamp_ms, EARLIEST_MS)


def key_bytes(key: object) -> bytes | None:
    """
    A key as bytes: text and whole numbers as UTF-8, bytes unchanged.

    Raises:
        OutputError: a key of any other type, or text that UTF-8 cannot carry.
    """
    match key:
        case None | bytes():
            return key
        case str():
            return _utf8(key, "A key")
        case bool():
            pass
        case int():
            return str(key).encode()
    raise OutputError(
        f"A key is a string, bytes or a whole number, not {type(key).__name__}. "
        "Return Message(value, key=str(...)), or name another field in Topic(key=...)."
    )


def _utf8(text: str, what: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise OutputError(f"{what} holds half of a surrogate pair, which UTF-8 cannot carry. Replace it.") from None


def header_list(headers: Mapping[str, HeaderValue] | Sequence[tuple[str, HeaderValue]] | None) -> Headers:
    """
    Headers with encoded values, in the given order, without those that only the framework writes (`OWN`).

    Raises:
        OutputError: a name that is not text or cannot be written, a value that is neither text nor bytes, or text that
            UTF-8 cannot carry.
    """
    if not headers:
        return []
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    return [_header(name, value) for name, value in pairs if name not in OWN]


def _header(name: object, value: object) -> tuple[str, bytes | None]:
    if not isinstance(name, str):
        raise OutputError(f"A header's name is a string, not {name!r}. Rename the header.")
    if not writable(name):
        raise OutputError(f"A header's name is text in UTF-8 without NUL, not {name!r}. Rename the header.")
    if isinstance(value, str):
        try:
            return name, value.encode()
        except UnicodeEncodeError:
            return name, _utf8(value, f"Header {name!r}")
    if value is None or isinstance(value, bytes):
        return name, value
    raise OutputError(f"Header {name!r} is {type(value).__name__}; a header is text, bytes or None. Convert it.")


def writable(name: str) -> bool:
    """
    Whether the client writes a header's name unchanged.

    In `produce`, confluent-kafka 2.16.1 ends the process at a lone surrogate, and cuts a name off at a NUL.
    """
    if name.isascii():  # without a cache, which would hold the long names of strangers
        return "\0" not in name
    try:
        return b"\0" not in name.encode()
    except UnicodeEncodeError:
        return False


def travels(name: str) -> bool:
    """Whether a header of this name is copied from the inputs of a step to its outputs."""
    return name in TRAVELLING or name.startswith(TRAVELLING_PREFIX)


def travelling(inputs: Iterable[Headers | None]) -> Headers:
    """
    The headers of one or several inputs that travel on.

    All values of a name come from the first input that has the name. ``tracestate`` belongs to one ``traceparent``
    (W3C Trace Context), so both come from the first input with a ``traceparent``.

    Args:
        inputs: each input's headers, the lead input's first.
    """
    merged: Headers = []
    taken: set[str] = set()
    for headers in inputs:
        if not headers:
            continue
        own = [(name, value) for name, value in headers if name not in taken and travels(name)]
        if not own:
            continue
        merged += own
        taken.update(name for name, _ in own)
        if "traceparent" in taken:
            taken.add("tracestate")
    return merged


def with_travelling(own: Headers, travelled: Headers) -> Headers:
    """An output's own headers, then those that travel and whose names the output does not set."""
    if not own or not travelled:
        return own or travelled
    names = {name for name, _ in own}
    if "traceparent" in names:
        names.add("tracestate")
    return own + [(name, value) for name, value in travelled if name not in names]

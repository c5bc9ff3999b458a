"""Processors with functions of ours: they drop repeated messages, or give messages other keys."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, TypeAlias

from cues_kafka.errors import GraphError
from cues_kafka.graph.dataframe import DataFrameProcessor
from cues_kafka.graph.declare import Raw, Store
from cues_kafka.graph.durations import written
from cues_kafka.graph.message import Message
from cues_kafka.graph.names import hint, quoted
from cues_kafka.graph.processor import Processor
from cues_kafka.graph.topic import Topic, fields_of

LONGEST_ID: Final = 16
"""Bytes of an id that are kept as they are; of longer ones 128 bits of BLAKE2b are kept."""


@dataclass(frozen=True, slots=True)
class Header:
    """
    A header of a message: where `Dedupe` and `rekey` find an id or a key.

    Attributes:
        name: of the header.
    """

    name: str

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise GraphError(f"Header({self.name!r}): takes the name of a header. Write Header('message-id').")


By: TypeAlias = str | Header | Callable[[Any], Any]
"""Where something is found in a message: a field of its value, a header, or what a function of the value returns."""


def Dedupe(  # noqa: N802  it stands where `Processor` stands
    name: str, *, inputs: str, outputs: str, by: By, within: str | timedelta | int, **settings: Any
) -> Processor:
    """
    A processor that passes each message on once, by an id.

    It keeps its key and headers. A message is dropped if one with its id was passed on within the bound. Ids are kept
    for each task, so messages with one id must be in one partition. The time is that of messages (see `Store.ttl`). A
    message that is older than the bound is passed on, because its id may have been forgotten. Such messages are
    counted, and the log tells the 1st, 2nd, 4th, 8th and so on, with their number.

    Args:
        name: of the processor.
        inputs: the topic.
        outputs: where the first message of each id goes.
        by: where the id is: text, a whole number, bytes or a UUID.
        within: how long an id is kept, such as "7 days", or for how many messages of the task.
        settings: others of `Processor`; and `max_bytes` and `on_disk` of `Store`.

    Raises:
        GraphError: something does not fit.
    """
    check_place(name, by)
    try:
        within = within if type(within) is int else written(within, "within")  # type: ignore[arg-type]
    except ValueError as error:
        raise GraphError(f"{name}: {error}, or a number of messages.") from None
    given: dict[str, Any] = {"ttl_messages" if type(within) is int else "ttl": within}
    given |= {name: settings.pop(name) for name in ("max_bytes", "on_disk") if name in settings}
    state = {"seen": Store(Raw(), key=Raw(), **given)}
    return Processor(first, name=name, inputs=inputs, outputs=outputs, state=state, opts={"by": by}, **settings)


def rekey(name: str, *, inputs: str, outputs: str, by: By, **settings: Any) -> Processor:
    """
    A processor that gives messages another key, so that those with the same key are in one partition.

    Args:
        name: of the processor.
        inputs: the topic.
        outputs: where the messages go, with the new key.
        by: where the key is.
        settings: others of `Processor`.

    Raises:
        GraphError: something does not fit.
    """
    check_place(name, by)
    return Processor(keyed, name=name, inputs=inputs, outputs=outputs, opts={"by": by}, **settings)


def by_of(processor: Processor | DataFrameProcessor) -> By | None:
    """Where one of these processors finds its ids or keys; None: it is another kind of processor."""
    if isinstance(processor, Processor) and processor.fn in (first, keyed):
        found: By = processor.opts["by"]
        return found
    return None


def check_by(processor: Processor, settings: Topic) -> None:
    """
    Check the field that a processor takes its ids or keys from.

    Args:
        processor: of any kind.
        settings: of the topic that it reads.

    Raises:
        GraphError: the topic's values have no such field.
    """
    by, topic = by_of(processor), processor.lead
    if not isinstance(by, str):
        return
    if isinstance(settings.value, Raw):
        raise GraphError(
            f"{processor.label}: by={by!r}: the values of {topic!r} are bytes, which have no fields. Write "
            'Header("name"), or a function of the value.'
        )
    owner, fields = fields_of(settings.value)
    if fields and by not in fields and not hasattr(settings.value.record, by):
        raise GraphError(
            f"{processor.label}: by={by!r}: {owner}, the value of {topic!r}, does not have this "
            f"field{hint(by, fields)}. Fields: {quoted(fields)}."
        )


def first(_: Any, step: Any, seen: Any, by: Any) -> Any:
    """The function of `Dedupe`."""
    received = step.inputs[step.binding]
    if late := seen.count_late(received.timestamp_ms):
        if late & (late - 1) == 0:  # the 1st, 2nd, 4th, 8th, ...: a replay of a long log must not fill this one
            at = f"{received.topic}/{received.partition} at {received.offset}"
            step.log.warning("older than the bound", at=at, messages=late)
        return _copy(received)
    key = _id(found(by, received))
    if key in seen:
        return None
    seen[key] = b""
    return _copy(received)


def keyed(_: Any, step: Any, by: Any) -> Message:
    """The function of `rekey`."""
    received = step.inputs[step.binding]
    return _copy(received, found(by, received))


def _copy(received: Any, key: Any = None) -> Message:
    """With all headers; without a key it gets that of the input."""
    return Message(received.value, key=key, headers=received.headers)


def check_place(name: str, by: By) -> None:
    """Refuse what names no place in a message."""
    if not ((isinstance(by, str | Header) and by) or callable(by)):
        raise GraphError(f'{name}: by={by!r}. Name a field of the value, or write Header("name") or a function.')


def found(by: By, received: Any) -> Any:
    """What is there in a received message."""
    if isinstance(by, Header):
        values = [data for name, data in received.headers if name == by.name]
        if not values:
            raise LookupError(f"the message has no header {by.name!r}")
        return values[-1]
    value = received.value
    if callable(by):
        return by(value)
    try:
        return value[by] if isinstance(value, Mapping) else getattr(value, by)
    except (KeyError, AttributeError):
        raise LookupError(f"the value has no field {by!r}") from None


def _id(given: Any) -> bytes:
    """The id's bytes, behind a letter for its type."""
    match given:
        case str():
            found = b"s" + given.encode()
        case bytes():
            found = b"b" + given
        case int() if not isinstance(given, bool):
            found = b"i%d" % given
        case _:
            from uuid import UUID  # noqa: PLC0415  # milliseconds of each start, and few programs have such ids

            if not isinstance(given, UUID):
                raise TypeError(f"an id is text, a whole number, bytes or a UUID, and not {type(given).__name__}")
            found = b"u" + given.bytes
    return found if len(found) <= LONGEST_ID else b"h" + hashlib.blake2b(found, digest_size=LONGEST_ID).digest()

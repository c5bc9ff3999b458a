"""The quick way of a row into its batch: encoded bytes for a topic that takes any bytes, with headers of known names.

Most rows of bridges are of this kind. All others, and all that are refused, go the general way (`rows.Into.add`), which
says why. What is quick here gives the same record, which a test compares.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from cues_kafka.codecs.raw import as_is
from cues_kafka.core.delivery import HEADER
from cues_kafka.graph.feed import Encoded
from cues_kafka.graph.message import EARLIEST_MS, OWN, Message, key_bytes, writable
from cues_kafka.ports.log import Headers
from cues_kafka.task.calling.outputs import HEADER_BYTES, KEY_ID, OVERHEAD_BYTES, Now, Target

ROOM = b"9" * 40
"""Stands for a row's place in the batch while rows are added: how many there will be is known at the end."""

MARK: Final = (HEADER, ROOM)
"""The provenance header of a row before its batch is sealed."""

MOST_NAMES: Final = 1_000
LONGEST_NAME: Final = 100
"""Names of headers that are kept, so that each is looked at once. Longer ones, of strangers, are not kept."""


class FeedRow(NamedTuple):
    """A record to produce, shaped like `ports.log.Outgoing`, whose provenance header is written when the batch ends."""

    topic: str
    partition: int | None
    key: bytes | None
    value: bytes | None
    headers: Headers | None
    timestamp_ms: int


class PlainRows:
    """Makes records of the usual rows of one topic."""

    def __init__(self, target: Target, decode: Callable[[bytes | None], Any]) -> None:
        self._target = target
        self._fits = decode is as_is and target.key_of is None and target.older_ms is None
        self._any_key = target.encode_key is key_bytes
        self._names: dict[str, int] = {}  # with their sizes
        self._pairs: dict[tuple[str, str], tuple[int, tuple[str, bytes | None]]] = {}  # encoded, with their sizes

    def record(self, message: Any, keyless: int, now: Now) -> FeedRow | None:
        """
        The record of a message; None: it goes the general way.

        Args:
            message: as a source gave it.
            keyless: the task's partition, for a record without a key.
            now: the time of day.
        """
        if not self._fits or type(message) is not Message or type(message.value) is not Encoded:
            return None
        target, key, when = self._target, message.key, message.timestamp_ms
        if message.partition is not None or (key is None and target.compacted):
            return None
        if key is not None and type(key) is not bytes:
            if type(key) is not str or not self._any_key or not key.isascii():
                return None
            key = key.encode()
        headers: Headers = [MARK] if target.provenance else []
        size = self._add_headers(headers, message.headers)
        if size < 0:
            return None
        value = bytes(message.value)
        if size + len(value) + OVERHEAD_BYTES + (len(key) if key else 0) > target.max_bytes:
            return None
        present = now()
        if when is None:
            when = present
        elif type(when) is not int or when < EARLIEST_MS or when >= 2**63:
            return None
        if target.newer_ms is not None and when > present + target.newer_ms:
            return None
        where = keyless % target.partitions if key is None else None
        return FeedRow(target.topic, where, key, value, headers or None, when)

    def _add_headers(self, headers: Headers, given: Any) -> int:
        """Encode headers; gives their size, or -1 where one is unusual."""
        if not given:
            return 0
        if type(given) is not list:
            return -1
        pairs, size = self._pairs, 0
        for pair in given:
            try:
                known = pairs.get(pair)
            except TypeError:  # a part of it cannot be a key, so it is unusual
                return -1
            if known is None and (known := self._encoded(*pair)) is None:
                return -1
            size += known[0]
            headers.append(known[1])
        return size

    def _encoded(self, name: Any, value: Any) -> tuple[int, tuple[str, bytes | None]] | None:
        """A header and its size; None: it is unusual. A short text is remembered: messages share most of theirs."""
        names = self._names
        room = names.get(name) if type(name) is str else None
        if room is None:
            if not self._is_usual(name):
                return None
            room = HEADER_BYTES + len(name)
            if len(names) < MOST_NAMES:
                names[name] = room
        if value is None or type(value) is bytes:
            return room + len(value or b""), (name, value)
        if type(value) is not str or not value.isascii():
            return None
        made = room + len(value), (name, value.encode())
        if len(value) <= LONGEST_NAME:
            if len(self._pairs) >= MOST_NAMES:  # those of one message, such as its time, fill it up
                self._pairs.clear()
            self._pairs[name, value] = made
        return made

    def _is_usual(self, name: Any) -> bool:
        """Whether a header of this name is written as it is."""
        return (
            type(name) is str
            and len(name) <= LONGEST_NAME
            and name.isascii()
            and writable(name)
            and name not in OWN
            and name not in self._target.foreign
            and name != KEY_ID
        )

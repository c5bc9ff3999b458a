"""The journal of a task: the answers to its calls, kept until the steps that asked are committed (E4).

An entry's key names the step and the call, in words that any Kafka tool shows::

    orders:Zm9vYmFyYmF6cXV4Lg@4711 0 2
    |                              | |
    |                              | the call: its number in the step, or `name:key` of a `once`
    |                              number of the replay of an error
    the messages of the step (O8)

Its value is a line of JSON, and behind it the body of the answer as it came.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from cues_kafka.core.delivery import parse_origin
from cues_kafka.errors import AnswerTooLarge, CodecError
from cues_kafka.ports.log import Positions

BARRIER: Final = b"t"
"""The key of what a recovery writes: its offset is an end of the partition that no broker has forgotten."""

VERSION: Final = 1
"""The version of entries. One of another version is refused."""

OVERHEAD: Final = 500
"""Bytes of a record besides its key and value, at most."""


class Answered(NamedTuple):
    """
    The answer to a call.

    Attributes:
        digest: of what was asked; empty: nothing but the key.
        head: what is kept besides the body.
        body: of the answer, or the result of a `once` as JSON.
    """

    digest: str
    head: Mapping[str, Any]
    body: bytes


def encode(entry: Answered) -> bytes:
    """The bytes of an entry."""
    head = {"version": VERSION, "digest": entry.digest, **entry.head}
    return json.dumps(head, separators=(",", ":")).encode() + b"\n" + entry.body


def decode(data: bytes) -> Answered:
    """
    Read what `encode` wrote.

    Raises:
        CodecError: it is no entry, or one of another release.
    """
    head, version, body = _split(data)
    if version != VERSION:
        raise CodecError(
            f"the journal has an entry of another release; this one reads version {VERSION}: run the release that "
            "wrote it until its step is delivered, or a newer one"
        )
    return Answered(head.pop("digest"), head, body)


def check(key: bytes, value: bytes | None, partition: int) -> None:
    """
    Check a record of a journal, which other programs may have written. An entry of another release passes: its step
    needs it, and `decode` says so.

    Raises:
        CodecError: it is none of a journal.
    """
    if key == BARRIER:
        return
    step, _, call = key.partition(b" ")
    try:
        if not (call and parse_origin(step.decode(), partition)):
            raise ValueError("it has no call")
    except ValueError as error:
        raise CodecError(f"its key {key[:80]!r} names no call of a step ({error})") from None
    if value is None:
        return
    head, version, body = _split(value)
    if version == VERSION and "status" not in head:
        _json(body, value)  # the result of a `once`


def _split(data: bytes) -> tuple[dict[str, Any], int, bytes]:
    """The checked head of an entry, its version, and the body."""
    first, _, body = data.partition(b"\n")
    head = _json(first, data)
    version = head.pop("version", None) if isinstance(head, dict) else None
    if not isinstance(version, int):
        raise _no_entry(data, "it has no version")
    if version == VERSION:
        if not isinstance(head.get("digest"), str):
            raise _no_entry(data, "it has no digest")
        if "status" in head and not (type(head["status"]) is int and _is_texts(head.get("headers"))):
            raise _no_entry(data, "its status is not a number, or its headers are no texts")
    return head, version, body


def _is_texts(value: object) -> bool:
    return isinstance(value, dict) and all(isinstance(one, str) for one in value.values())


def _json(text: bytes, data: bytes) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _no_entry(data, str(error)) from None


def _no_entry(data: bytes, why: str) -> CodecError:
    return CodecError(f"not an entry of a journal: {data[:80]!r} ({why})")


class Journal:
    """
    The journal of one task as its process knows it; threads may share it.

    Attributes:
        topic: the topic.
        partition: the task's.
        most: the largest record that the topic takes, in bytes.
        offset: up to here the partition was read.
        topic_id: of the topic that was read; empty: nothing was read yet.
    """

    def __init__(self, topic: str, partition: int, most: int) -> None:
        self.topic = topic
        self.partition = partition
        self.most = most
        self.offset = 0
        self.topic_id = b""
        # Guards the next three: steps that run side by side keep and look up answers in threads of their own. No other
        # lock is taken under it.
        self._lock = threading.Lock()
        self._steps: dict[bytes, dict[bytes, bytes]] = {}
        self._refused: set[tuple[bytes, bytes]] = set()
        self._left: list[bytes] = []

    def load(self, found: Iterable[tuple[bytes, bytes | None]], behind: int) -> None:
        """
        Take what was read.

        Raises:
            CodecError: a key is not one of a journal.
        """
        with self._lock:
            for key, value in found:
                if key != BARRIER:
                    self._load(key, value)
            self.offset = behind

    def _load(self, key: bytes, value: bytes | None) -> None:
        step, _, call = key.partition(b" ")
        if not call:
            raise CodecError(f"{self.topic}/{self.partition} has the key {key[:80]!r}, which is none of a journal")
        if value is not None:
            self._steps.setdefault(step, {})[call] = value
        elif (calls := self._steps.get(step)) is not None:
            calls.pop(call, None)
            if not calls:
                del self._steps[step]

    def begin_again(self, topic_id: bytes) -> None:
        """Forget everything: the topic is another one than before."""
        with self._lock:
            self._steps.clear()
            self._refused.clear()
            self.offset, self.topic_id = 0, topic_id

    def sort_out(self, positions: Positions) -> None:
        """
        Find entries of steps that are committed: those of an attempt that was late. `leftovers` has them from now on.

        Raises:
            CodecError: a key is not one of a journal.
        """
        with self._lock:
            done = [step for step in self._steps if self._is_done(step, positions)]
            self._left = [b"%b %b" % (step, call) for step in done for call in self._steps[step]]

    def settle(self, positions: Positions) -> None:
        """A batch is committed up to here: forget the entries of its steps. It has deleted them in the topic."""
        with self._lock:
            self._left = []
            done = {step for step in self._steps if self._is_done(step, positions)}
            for step in done:
                del self._steps[step]
            self._refused = {one for one in self._refused if one[0] not in done}

    def _is_done(self, step: bytes, positions: Positions) -> bool:
        now = {one.binding: one for one in positions}
        try:
            consumed = parse_origin(step.decode(), self.partition)
        except ValueError as error:
            raise CodecError(f"{self.topic}/{self.partition}: {step[:80]!r} names no step ({error})") from None
        for one in consumed:
            place = now.get(one.binding)
            if place is None or place.topic_id != one.topic_id or one.offset < place.offset:
                return True
        return False

    @property
    def leftovers(self) -> list[bytes]:
        """Keys of entries whose steps were committed without them; the next batch deletes them."""
        return self._left

    def keys_of(self, step: bytes) -> list[bytes]:
        """The keys of all entries of a step, of its replays too."""
        with self._lock:
            return [b"%b %b" % (step, call) for call in self._steps.get(step, ())]

    def size_of(self, step: bytes) -> int:
        """How many bytes the entries of a step have."""
        with self._lock:
            return sum(map(len, self._steps.get(step, {}).values()))

    def find(self, step: bytes, call: bytes) -> Answered | None:
        """
        The entry of a call; None: there is none, or the function has refused its answer.

        Raises:
            CodecError: it is of another release.
        """
        with self._lock:
            if (step, call) in self._refused:
                return None
            found = self._steps.get(step, {}).get(call)
        return None if found is None else decode(found)

    def fit(self, step: bytes, call: bytes, data: bytes, what: str) -> None:
        """
        Raises:
            AnswerTooLarge: the topic does not take such an entry.
        """
        size = len(step) + len(call) + len(data) + OVERHEAD
        if size > self.most:
            raise AnswerTooLarge(
                f"{what} needs {size:,} bytes in the journal, and {self.topic} takes {self.most:,}. Raise its "
                "max.message.bytes (and message.max.bytes in Kafka(producer={...})), or ask for less"
            )

    def keep(self, step: bytes, call: bytes, data: bytes) -> None:
        """An entry is in the topic."""
        with self._lock:
            self._steps.setdefault(step, {})[call] = data
            self._refused.discard((step, call))

    def refuse(self, step: bytes, call: bytes) -> None:
        """The function has refused an answer: another attempt of this process asks again."""
        with self._lock:
            self._refused.add((step, call))

"""One partition of a changelog as `verify --state` reads it: its marks, and the entries as of the task's record."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from cues_kafka.ports.log import WireMessage
from cues_kafka.state.entries import TIME_BYTES, Changes
from cues_kafka.state.expiring import Expiring
from cues_kafka.state.layers import ENTRY, MARK, TOPIC
from cues_kafka.state.mapping import StoreSpec
from cues_kafka.state.marks import NO_MARK, order, shown_mark
from cues_kafka.words import count

PROBLEMS: Final = 5
"""Number of texts that are kept for one changelog."""


class Changelog:
    """
    The entries of one store of one task, and what is wrong with how they were written (R4b).

    Changes count when the mark behind them is read. Those of transactions that the record does not know yet are left
    out.

    Args:
        spec: the store.
        until: the mark with which the record says that the changelog ends.

    Attributes:
        entries: values by key as they are kept, with their times where entries end.
        time: the task's time at the end of `entries`.
        mark: the newest one.
        hidden: whether an open transaction hides its end.
        later: changes of later transactions.
        problems: what is wrong.
    """

    def __init__(self, spec: StoreSpec, until: int) -> None:
        self._spec, self._until = spec, until
        self._kind = ENTRY if spec.ttl is None else Expiring.entry
        self.entries: dict[bytes, bytes] = {}
        self.time = self._coming = 0
        self.mark = NO_MARK
        self.hidden = False
        self.later: Changes = {}
        self.problems: list[str] = []
        self._held: Changes = {}
        self._held_from = 0
        self._seen = until == NO_MARK

    @property
    def open(self) -> bool:
        """Whether changes were read and not the mark behind them, as where the end cuts a transaction in two."""
        return bool(self._held)

    @property
    def gap(self) -> str | None:
        """Why `entries` are not those of the record's step; None: they are, or should be."""
        if self._seen:
            return None
        if self.hidden:
            return f"an open transaction hides what its changelog has up to {shown_mark(self._until)}"
        if order(self.mark) > order(self._until):
            return f"its changelog was compacted beyond {shown_mark(self._until)} meanwhile; look again"
        return None

    def feed(self, messages: Sequence[WireMessage]) -> None:
        """Take the next committed messages."""
        for message in messages:
            self._take(message)

    def finish(self, messages: Sequence[WireMessage]) -> None:
        """Take the rest of the last transaction, and nothing behind its mark."""
        for message in messages:
            if self._held:
                self._take(message)

    def _take(self, message: WireMessage) -> None:
        key, value, offset = message.key() or b"", message.value(), message.offset()
        if key == MARK:
            self._marked(value, offset)
        elif key[:1] == self._kind:
            self._change(key[1:], value, offset)
        elif self._spec.ttl is not None and key == self._spec.unit:
            self._coming = _number(value)
        elif key != TOPIC:
            self._say(
                f"offset {offset} has key {key!r:.60}, which is not a key of this store: another program wrote it, and "
                "compaction keeps it. Delete the records up to there with kafka-delete-records, then run "
                "`cues-kafka rebuild MODULE:GRAPH PROCESSOR`"
            )

    def close(self) -> None:
        """Everything was read: what has no mark behind it was not written by a task, but a task would take it."""
        if self._held:
            self._say(
                f"{count(len(self._held), 'entry', 'entries')} from offset {self._held_from} on stand behind the last "
                f"mark, {shown_mark(self.mark)}: no transaction of the task wrote them"
            )
            if not self.later:
                self._apply()

    def take_later(self) -> None:
        """Count the changes of later transactions, too: the task has no record of them."""
        self._held, self.later = self.later, {}
        self._apply()

    def _marked(self, value: bytes | None, offset: int) -> None:
        mark = _number(value)
        if order(mark) <= order(self.mark):
            self._say(
                f"the mark at offset {offset} says {shown_mark(mark)}, behind the mark of {shown_mark(self.mark)}"
            )
        if order(mark) > order(self._until):
            self.later |= self._held
            self._held = {}
        else:
            self._apply()
        self._seen = self._seen or mark == self._until
        self.mark = max(self.mark, mark, key=order)

    def _change(self, key: bytes, value: bytes | None, offset: int) -> None:
        if key in self._held:
            self._say(f"the transaction of offset {offset} writes {self.show(key)} twice")
        if value is not None and self._spec.ttl is not None and len(value) < TIME_BYTES:
            self._say(f"the entry {self.show(key)} at offset {offset} has no time")
            return
        if not self._held:
            self._held_from = offset
        self._held[key] = value

    def _apply(self) -> None:
        for key, value in self._held.items():
            if value is None:
                self.entries.pop(key, None)
            else:
                self.entries[key] = value
        self._held, self.time = {}, self._coming

    def show(self, key: bytes) -> str:
        """A key as people know it."""
        return shown(self._spec.decode_key, key)

    def _say(self, text: str) -> None:
        if len(self.problems) < PROBLEMS:
            self.problems.append(text)


def shown(decode: Callable[[bytes], object], data: bytes) -> str:
    """What bytes stand for; the bytes, where that cannot be told."""
    try:
        return f"{decode(data)!r:.60}"
    except Exception:  # noqa: BLE001 - of any codec: that the bytes are wrong is what has to be shown
        return f"{data!r:.60}"


def _number(value: bytes | None) -> int:
    try:
        return int(value or b"-1")
    except ValueError:
        return NO_MARK

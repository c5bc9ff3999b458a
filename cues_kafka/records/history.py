"""
What operators did to a task, as its backing partition keeps it (X6).

The newest record of a task says where it stands, and compaction takes the older ones. So a tool that gives a task other
positions, inputs or another name writes a second message, under a key of its own and in the same transaction: the
history of all such moves. Compaction keeps the newest message of each key, and a rename takes the history along. From
it `rebuild` and `verify` know which messages a task has delivered, whatever verbs came before.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from cues_kafka.core.records import Totals
from cues_kafka.ports.broker import Broker
from cues_kafka.ports.clock import Clock
from cues_kafka.ports.log import Position, Positions, TopicPartition
from cues_kafka.records.reading import newest
from cues_kafka.records.strangers import MOST as LARGEST
from cues_kafka.records.strangers import NAME, TOPIC, Fields, read_plain, readable

HISTORY: Final = b"h"
"""The key of the history in a backing partition."""

VERSION: Final = 1
"""The version of what a history means. One of another version is not read."""

TRIED: Final = 20
"""How many histories are tried, from the newest one on, until one can be read."""

WHAT: Final = "history of a task"

MOST: Final = 500
"""Moves that a history holds. The oldest ones are left out, and it says so."""


class Moved(NamedTuple):
    """
    One move of a task by a tool.

    Attributes:
        sequence: of the record with which it was committed.
        was: where the task stood before.
        kept: up to where its stores hold what it had delivered: `was`, and after a way back to a cut the place of the
            cut.
        now: where it stands since.
        totals: of the task at this moment.
        name: the former name, if the move was a rename; empty: it kept its name.
    """

    sequence: int
    was: Positions
    kept: Positions
    now: Positions
    totals: Totals
    name: str = ""

    @property
    def back_to_cut(self) -> bool:
        """Whether the stores went back, too."""
        return self.kept != self.was


@dataclass(frozen=True, slots=True)
class History:
    """
    The moves of a task.

    Attributes:
        began: where it began; None: a tool did not see that, and the first record of the task says it.
        moves: the oldest first.
        whole: no move was left out.
    """

    began: Positions | None = None
    moves: tuple[Moved, ...] = ()
    whole: bool = True

    def then(self, move: Moved) -> History:
        """This history with one more move; the same if it is the newest one already."""
        if self.moves and self.moves[-1].sequence == move.sequence:
            return self
        moves = (*self.moves, move)
        return replace(self, moves=moves[-MOST:], whole=self.whole and len(moves) <= MOST)

    @property
    def names(self) -> tuple[str, ...]:
        """The former names of the processor, the oldest first."""
        return tuple(dict.fromkeys(move.name for move in self.moves if move.name))


class Span(NamedTuple):
    """Offsets `[start, end)` of one input."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class DeliveredSpans:
    """
    Which messages a task has delivered, in offsets.

    Attributes:
        spans: of each input that the task has now, in the order in which they were delivered. Up to the positions that
            were given.
        gone: names of inputs that the task had, and whose messages are in its stores.
        repeated: an operator has moved it back, so that messages are in more than one of the spans.
        whole: the history has all moves.
        returned: it went back to a cut, so that the totals of the task count more than its stores hold.
    """

    spans: Mapping[str, tuple[Span, ...]]
    gone: tuple[str, ...] = ()
    repeated: bool = False
    whole: bool = True
    returned: bool = False

    def has(self, binding: str, offset: int) -> bool:
        """Whether the message at this offset was delivered."""
        return any(start <= offset < end for start, end in self.spans.get(binding, ()))

    def skipped(self, binding: str) -> tuple[Span, ...]:
        """What an operator has moved the task over, between the spans."""
        found, at = list[Span](), -1
        for start, end in sorted(self.spans.get(binding, ())):
            if -1 < at < start:
                found.append(Span(at, start))
            at = max(at, end)
        return tuple(found)

    @property
    def why_not_followed(self) -> str:
        """Why the entries of its stores are not what its inputs make; empty: they are."""
        if not self.whole:
            return f"operators have moved it more than {MOST} times, and the first moves are not kept"
        if self.gone:
            names = ", ".join(map(repr, self.gone))
            return f"its entries also come from messages of {names}, which an operator has dropped (migrate or reset)"
        if self.repeated:
            return "an operator has moved it back (reset), and messages were delivered more than once"
        return ""


def delivered(
    history: History, positions: Positions, starts: Mapping[str, int], *, stores: bool = False
) -> DeliveredSpans:
    """
    Follow the moves of a task.

    Args:
        history: of the task.
        positions: where it stands.
        starts: by binding, where the task began, if the history does not say it.
        stores: give what its stores hold: on the way back to a cut they went back, too.
    """
    walk = _MoveWalk(history, positions, starts, stores=stores)
    for move in history.moves:
        walk.take(move)
    walk.close(positions)
    spans = {p.binding: tuple(walk.spans.get((p.binding, p.topic_id), ())) for p in positions}
    return DeliveredSpans(spans, tuple(dict.fromkeys(walk.gone)), walk.repeated, history.whole, walk.returned)


class _MoveWalk:
    """Follows a task from move to move; inputs are known by their binding and the id of their topic."""

    def __init__(self, history: History, positions: Positions, starts: Mapping[str, int], *, stores: bool) -> None:
        first = history.moves[0].was if history.moves else positions
        began = {(p.binding, p.topic_id): p.offset for p in history.began or ()}
        self._at = {
            (p.binding, p.topic_id): began.get((p.binding, p.topic_id), starts.get(p.binding, 0)) for p in first
        }
        self.spans: dict[tuple[str, bytes], list[Span]] = {}
        self.gone: list[str] = []
        self.repeated = False
        self.returned = False
        self._stores = stores

    def close(self, positions: Positions) -> None:
        """The task has delivered up to these positions."""
        for p in positions:
            key = p.binding, p.topic_id
            if (start := self._at.get(key, p.offset)) < p.offset:
                self.spans.setdefault(key, []).append(Span(start, p.offset))

    def take(self, move: Moved) -> None:
        """It stands elsewhere."""
        self.close(move.was)
        kept = move.kept if self._stores else move.was
        self.returned = self.returned or kept != move.was
        for p in kept if kept != move.was else ():
            key = p.binding, p.topic_id
            self.spans[key] = [Span(s, min(e, p.offset)) for s, e in self.spans.get(key, ()) if s < p.offset]
        there = {(p.binding, p.topic_id) for p in move.now}
        lost = [p for p in move.was if (p.binding, p.topic_id) not in there]
        had = {(p.binding, p.topic_id): p.offset for p in kept}
        for p in move.now:
            key = p.binding, p.topic_id
            if key not in had:
                same = next((q for q in lost if (q.topic_id, q.offset) == (p.topic_id, p.offset)), None)
                if same is not None:  # it only has another name
                    lost.remove(same)
                    self.spans[key] = self.spans.pop((same.binding, same.topic_id), [])
                    had[key] = same.offset
            self.repeated = self.repeated or p.offset < had.get(key, p.offset)
        self.gone += [p.binding for p in lost if self.spans.get((p.binding, p.topic_id))]
        self._at = {(p.binding, p.topic_id): p.offset for p in move.now}


# ------------------------------------------------------------------------------------------------------------ bytes


def encode_history(history: History) -> bytes:
    """The value of the message."""
    value = {
        "version": VERSION,
        "whole": history.whole,
        "began": None if history.began is None else _plain(history.began),
        "moves": [
            {
                **move._asdict(),
                "was": _plain(move.was),
                "kept": _plain(move.kept) if move.back_to_cut else None,
                "now": _plain(move.now),
                "totals": move.totals._asdict(),
            }
            for move in history.moves
        ],
    }
    return json.dumps(value, separators=(",", ":")).encode()


def decode_history(data: bytes | None) -> History:
    """
    Read what `encode_history` wrote.

    Raises:
        CodecError: it is no history, or one of another release.
    """
    plain = read_plain(data, WHAT, VERSION)
    began = _positions(plain, "began") if plain.has("began") else None
    return History(began, tuple(_moved(one) for one in plain.objects("moves")), plain.flag("whole"))


def _moved(plain: Fields) -> Moved:
    was, totals = _positions(plain, "was"), plain.counts("totals", -LARGEST)
    if unknown := totals.keys() - {*Totals._fields}:
        plain.refuse("totals", min(unknown))
    return Moved(
        sequence=plain.whole("sequence"),
        was=was,
        kept=_positions(plain, "kept") if plain.has("kept") else was,
        now=_positions(plain, "now"),
        totals=Totals(**totals),
        name=plain.text("name", like=_FORMER),
    )


_FORMER: Final = re.compile(f"(?:{NAME.pattern})?")
"""A former name; empty: the move was no rename."""


def _plain(positions: Positions) -> list[list[Any]]:
    return [[p.binding, p.topic, p.topic_id.hex(), p.offset] for p in positions]


def _positions(plain: Fields, name: str) -> Positions:
    rows = plain.rows(name, 4)
    return tuple(Position(row.text("0"), row.text("1", like=TOPIC), row.id("2"), row.whole("3")) for row in rows)


# ---------------------------------------------------------------------------------------------------------- reading


def read_history(broker: Broker, place: TopicPartition, low: int, end: int, clock: Clock, *, group: str) -> History:
    """
    The history of a task; an empty one, if no tool has moved it.

    One that cannot be read is refused by name, and the newest readable one counts. It then says that it is not whole.

    Args:
        broker: the cluster.
        place: the backing partition.
        low: the first offset that is read.
        end: the offset behind the last one.
        clock: bounds the wait.
        group: see `reading.newest`.

    Raises:
        BrokerError: see `reading.newest`.
    """
    for tried in range(TRIED):
        message = newest(broker, place, low, end, clock, group=group, key=HISTORY)
        if message is None:
            return History(whole=not tried)
        found = readable(message, lambda one: decode_history(one.value()), f"the {WHAT}")
        if found is not None:
            return replace(found, whole=found.whole and not tried)
        end = message.offset() or 0
    return History(whole=False)

"""Mutants of the rules of bridges (B1 to B7), and of what they expect of a broker; see `mutants`."""

from __future__ import annotations

from collections import deque
from typing import Any, Final

from cues_kafka.bridges.acked import Acked, AckedPart
from cues_kafka.bridges.ledger import AttemptLedger, digest
from tests.proof.model import bridges
from tests.proof.model.bridges import BridgeWorld, Reading
from tests.proof.model.bridging import Broker, Link, Queue
from tests.proof.model.feeds import FeedWorld
from tests.proof.model.mutant import CRASH, CRASHES, MOVE, NET, NOTHING, Mutant, Patch, around_world
from tests.proof.model.worlds import ONE


def _around(owner: type, name: str, new: Any) -> Patch:
    """Another method, which is given the original one first."""
    old = getattr(owner, name)

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return new(old, self, *args, **kwargs)

    return owner, name, method


def _last_batch_only() -> Patch:
    """B1: the ledger has the ids of the last batch."""

    def begin(old: Any, self: Any, place: str | None, room: int) -> None:
        del room
        old(self, place, 1)

    return _around(AttemptLedger, "__init__", begin)


def _acknowledged_forgotten() -> Patch:
    """B1: ids leave the ledger when they are acknowledged."""

    def settle(old: Any, self: Any) -> None:
        old(self)
        if self._memory is not None and self._connection is not None:
            counts = self._memory._counts
            for one in [one for one, at in counts.items() if at <= self._committed]:
                del counts[one]
            self._memory._order = list(counts)

    return _around(AckedPart, "_settle", settle)


def _redeliveries_are_not_newest() -> Patch:
    """B1: a redelivery leaves the order of the ledger as it is."""
    return AttemptLedger, "known", lambda self, delivery: self._counts.get(digest(delivery.id))


def _new_ones_first() -> Patch:
    """What B1 expects: the source delivers again behind what is new."""

    def lost(old: Any, queue: Queue, link: Link, **order: Any) -> Queue:
        after: Queue = old(queue, link, **order)
        back = len(link.unacked)
        return after._replace(ready=after.ready[back:] + after.ready[:back])

    return _around(Queue, "lost", lost)


def _other_order() -> Patch:
    """What B1 expects: the source delivers again in another order than the first time."""
    return Queue, "again", lambda _, messages: tuple(sorted(messages, reverse=True))


def _two_consumers() -> Patch:
    """What B1 expects: a part has any number of consumers."""

    def begin(old: Any, self: Any, *args: Any, **kwargs: Any) -> None:
        old(self, *args, **kwargs)
        self.sole = False

    return _around(Broker, "__init__", begin)


def _taken_is_acknowledged() -> Patch:
    """B2: messages are acknowledged before their commit."""

    def accept(old: Any, self: Any, memory: Any) -> None:
        old(self, memory)
        self._committed = memory.count

    return _around(AckedPart, "_accept", accept)


def _known_is_acknowledged() -> Patch:
    """B2: a known redelivery is acknowledged before its id is committed."""
    return _around(AttemptLedger, "known", lambda old, self, one: None if old(self, one) is None else -1)


def _known_is_dropped() -> Patch:
    """B2: a known redelivery is not acknowledged."""
    return _around(AttemptLedger, "known", lambda old, self, one: None if old(self, one) is None else 9)


def _connection_kept() -> Patch:
    """B3: a recovery leaves the connection open."""

    def stand_at(old: Any, self: Any, place: str | None) -> Any:
        self._disconnect = lambda: None
        try:
            return old(self, place)
        finally:
            del self._disconnect

    return _around(AckedPart, "_stand_at", stand_at)


def _reconnected() -> Patch:
    """B3: a library connects again by itself: what came on the former connection is acknowledged on the next one."""

    def disconnect(old: Any, self: Any) -> None:
        pending = deque(self._pending)
        old(self)
        self._pending = pending

    return _around(AckedPart, "_disconnect", disconnect)


def _any_attempt() -> Patch:
    """B4: a place of another attempt is believed."""
    return AttemptLedger, "covers", lambda _, place: int(place.partition(".")[0])


def _waits_until_full() -> tuple[Patch, ...]:
    """B5: a batch may have more messages than the source delivers, and waits until it is full."""

    def take(old: Any, world: BridgeWorld, turn: Any, got: Any) -> None:
        if len(got.rows) == world.most:
            old(world, turn, got)

    return (bridges, "most_of", lambda window: window + 1), around_world("_take", take, BridgeWorld)


def _no_ledger() -> Patch:
    """B6: a redelivery is a message."""
    return AttemptLedger, "known", lambda *_: None


def _forgotten_in_time() -> Patch:
    """B6: ids count for a time, which is over when an attempt begins."""

    def begin(old: Any, self: Any, place: str | None, room: int) -> None:
        old(self, place, room)
        self.forget()

    return _around(AttemptLedger, "__init__", begin)


def _read_first() -> Patch:
    """G1: a task connects before its recovery has read the record, with the place that its process has."""

    def begin(_: Any, world: BridgeWorld, turn: Any, assign: Any) -> None:
        own = turn.lane.own._replace(told=None, ahead=()) if turn.lane.own else Reading()
        super(FeedWorld, world)._begin_to_read(turn._replace(lane=turn.lane._replace(own=own)), assign)

    return around_world("_begin_to_read", begin, BridgeWorld)


def _never_released() -> Patch:
    """B7: a process that has lost its part keeps the connection."""
    return Acked, "release", lambda *_: None


def _without_selector() -> Patch:
    """Each part gets any message."""
    return BridgeWorld, "selects", lambda *_: True


def _parts_changed() -> Patch:
    """Each second process declares one part less, so messages go to another part."""
    return BridgeWorld, "declared", lambda world, deaths: world.setting.partitions - deaths % 2


BRIDGES: Final = [
    Mutant("a ledger has the ids of the last batch", "feed-queue-ahead", CRASH, (_last_batch_only(),)),
    Mutant("a ledger forgets what is acknowledged", "feed-queue-ahead", NET, (_acknowledged_forgotten(),)),
    Mutant("a source delivers again behind what is new", "feed-queue-ahead", NET, (_new_ones_first(),)),
    Mutant("a source delivers again in another order", "feed-queue-ahead", CRASHES, (_other_order(),), progress=False),
    Mutant("a part of a source has two consumers", "feed-queue-ahead", CRASH, (_two_consumers(),)),
    Mutant("a message is acknowledged when it is taken", "feed-queue-batch", CRASH, (_taken_is_acknowledged(),)),
    Mutant("a redelivery is acknowledged at once", "feed-queue-ahead", NET, (_known_is_acknowledged(),)),
    Mutant("a redelivery is not acknowledged", "feed-queue-ahead", CRASH, (_known_is_dropped(),)),
    Mutant("a recovery keeps the connection of its source", "feed-queue-batch", NET, (_connection_kept(),)),
    Mutant("a library connects again by itself", "feed-queue-batch", NET, (_reconnected(),), progress=False),
    Mutant("a batch waits for more than its source delivers", "feed-queue", NOTHING, _waits_until_full()),
    Mutant("a redelivery is a message", "feed-queue-ahead", CRASH, (_no_ledger(),)),
    Mutant("a ledger forgets ids in time", "feed-queue-ahead", CRASH, (_forgotten_in_time(),)),
    Mutant("a task connects before it has its record", "feed-queue-ahead", CRASH, (_read_first(),)),
    Mutant("a process keeps the connection of a part that it has lost", "feed-queue", MOVE, (_never_released(),)),
    Mutant("parts of a queue without selectors", "feed-queue-parts", CRASH, (_without_selector(),), progress=False),
    Mutant("another number of parts", "feed-queue-parts", CRASH, (_parts_changed(),), progress=False),
]
"""Rules of bridges."""

COVERED_BRIDGES: Final = [
    (
        Mutant("a redelivery is not the newest id", "feed-queue-ahead", CRASHES, (_redeliveries_are_not_newest(),)),
        "the order of redeliveries",
    ),
    (
        Mutant("a place of another attempt is believed", "feed-queue-ahead", ONE, (_any_attempt(),)),
        "a part that leaves is released (B7), which ends the attempt",
    ),
]
"""Rules that another one covers for."""

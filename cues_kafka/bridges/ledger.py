"""The ledger of a source with acknowledgements: the deliveries that a place names, and which come again (B1, B6)."""

from __future__ import annotations

import re
import secrets
from binascii import b2a_base64
from functools import lru_cache
from hashlib import blake2b
from typing import Final, NamedTuple

from cues_kafka.bridges.deliveries import Arrival, Deliveries
from cues_kafka.errors import RecoveryError
from cues_kafka.graph.feed import LatePlace

ID_CHARACTERS: Final = 16
"""Characters of an id in a place: 12 bytes of a digest in base64, so two ids of a ledger are never taken for one."""

MOST_IDS: Final = 10_000
"""Ids of a ledger. A place has at most 200,000 characters."""

FORGOTTEN: Final = 1_000
"""Ids that are in the list of an attempt behind those that count, at most."""

_HEAD: Final = re.compile(r"(\d{1,20})\.([0-9a-f]{8}):")
_PLACE: Final = re.compile(r"(\d{1,20})\.([0-9a-f]{8}):((?:[A-Za-z0-9_-]{16})*)")


class Ledger(NamedTuple):
    """
    What a place says.

    Attributes:
        taken: count of messages up to it.
        attempt: the attempt that gave it, see B4.
        ids: digests of the newest ids, the oldest first, each of `ID_CHARACTERS`.
    """

    taken: int
    attempt: str
    ids: str

    @classmethod
    def read(cls, place: str | LatePlace | None) -> Ledger:
        """
        Read a place; None: the beginning.

        Raises:
            RecoveryError: another kind of source gave this place.
        """
        if place is None:
            return cls(0, "", "")
        if (found := _PLACE.fullmatch(str(place))) is None:
            raise RecoveryError(
                f"{str(place)[:80]!r} is not a place of a source with acknowledgements: the feed had another source "
                "before",
                remedy="give the feed a new name=, or its former source",
            )
        return cls(int(found[1]), found[2], found[3])

    @classmethod
    def head(cls, place: str | LatePlace) -> tuple[int, str]:
        """Count and attempt of a place; the ids behind them are not looked at. See `read` for what is raised."""
        if (found := _HEAD.match(str(place))) is None:
            return cls.read(place)[:2]
        return int(found[1]), found[2]

    def split(self) -> list[str]:
        """The digests."""
        return [self.ids[at : at + ID_CHARACTERS] for at in range(0, len(self.ids), ID_CHARACTERS)]

    def __str__(self) -> str:
        return f"{self.taken}.{self.attempt}:{self.ids}"


@lru_cache(maxsize=32)
def digest(name: str) -> str:
    """An id as a ledger has it. One that is not known is offered next, so those of the last ones are kept."""
    made = _ID.copy()  # takes a third less time than a new one
    made.update(name.encode("utf-8", "surrogatepass"))
    return b2a_base64(made.digest(), newline=False).translate(_FOR_URLS).decode()


_ID: Final = blake2b(digest_size=12)
_FOR_URLS: Final = bytes.maketrans(b"+/", b"-_")


class LedgerPlace(LatePlace):
    """
    The place behind a delivery that is offered. Its text has the whole ledger, so it is made for one row of a batch.

    A text of 4,000 ids has 64 kB. To make one for each message took longer than all else that a ledger does.

    Args:
        head: count and attempt.
        order: ids of the ledger, the newest last; more may be added later.
        end: how many of them were there before the delivery.
        mine: that of the delivery; empty: it has none.
        room: ids in the text at most.
    """

    __slots__ = ("_end", "_head", "_mine", "_order", "_room")

    def __init__(self, head: tuple[int, str], order: list[str], end: int, mine: str, room: int) -> None:
        self._head, self._order, self._end, self._mine, self._room = head, order, end, mine, room

    def __str__(self) -> str:
        count, attempt = self._head
        older = self._room - 1 if self._mine else self._room
        ids = "".join(self._order[max(0, self._end - older) : self._end])
        return f"{count}.{attempt}:{ids}{self._mine}"


class Offered(NamedTuple):
    """
    A delivery that was given, until the next call shows whether it was taken.

    Attributes:
        delivery: the one.
        place: the place behind it.
        digest: of its id.
        connection: the one that brought it; on another one it cannot be acknowledged.
    """

    delivery: Arrival
    place: LedgerPlace
    digest: str
    connection: Deliveries | None


def new_attempt() -> str:
    """A name that no other attempt has (B4)."""
    return secrets.token_hex(4)


class AttemptLedger:
    """
    The ledger of an attempt: places that follow each other without a recovery between them.

    Attributes:
        base: the place that it began with; None: the beginning.
        place: the newest one that was taken.
        offered: the delivery that was given last; None: it was taken.
        count: messages up to `place`.
        former: ids that the ledger had when connections began, and their counts. They stay known when the ledger has
            forgotten them; at most `MOST_IDS`, the newest.
        late: whether a redelivery came that only `former` knew.
    """

    def __init__(self, place: str | None, room: int) -> None:
        begun = Ledger.read(place)
        self.base = place
        self.place: str | LedgerPlace | None = place
        self.offered: Offered | None = None
        self.count = begun.taken
        self.former: dict[str, int] = {}
        self.late = False
        self._attempt = new_attempt()
        self._room = room
        ids = begun.split()
        self._counts = {one: begun.taken - len(ids) + nth for nth, one in enumerate(ids, 1)}
        # The keys of `_counts`, the newest last, behind some that are forgotten. Places look at it, so nothing is taken
        # out of it, and nothing is changed.
        self._order = list(self._counts)

    def offer(self, delivery: Arrival, connection: Deliveries | None) -> LedgerPlace:
        """The place behind a delivery, which is offered from now on."""
        mine = digest(delivery.id) if delivery.id else ""
        order = self._without(mine) if mine in self._counts else self._order
        place = LedgerPlace((self.count + 1, self._attempt), order, len(order), mine, self._room)
        self.offered = Offered(delivery, place, mine, connection)
        return place

    def accept(self) -> None:
        """Note that the offered delivery was taken."""
        if self.offered is None:
            return
        (_, self.place, mine, _), self.offered = self.offered, None
        self.count += 1
        if mine:
            self._note(mine, self.count)

    def known(self, delivery: Arrival) -> int | None:
        """
        The count up to which a redelivery must be committed before it is acknowledged; None: it is a message to take.

        It is the newest delivery from now on (B1).
        """
        if not (delivery.again and delivery.id):
            return None
        mine = digest(delivery.id)
        count = self._counts.get(mine)
        if count is None:
            if (count := self.former.get(mine)) is None:
                return None
            self.late = True
        self._note(mine, count)
        return count

    def remember(self) -> None:
        """Keep what former connections may have brought: it may come again behind any number of new messages."""
        older = {one: at for one, at in self.former.items() if one not in self._counts}
        self.former = dict(list((older | self._counts).items())[-MOST_IDS:])

    def former_at(self, place: str | LatePlace | None) -> dict[str, int]:
        """What of `former` is committed up to the place of the next attempt; the rest is void."""
        count = self.covers(str(place)) if place is not None else None
        return {} if count is None else {one: at for one, at in self.former.items() if at <= count}

    def forget(self) -> None:
        """Forget all ids: the broker uses them for other messages."""
        self._counts.clear()
        self.former.clear()
        self._order = []

    def covers(self, place: str) -> int | None:
        """How many messages are committed with a place; None: it is of another attempt (B4)."""
        taken, attempt = Ledger.head(place)
        return taken if place == self.base or attempt == self._attempt else None

    def _note(self, mine: str, count: int) -> None:
        """Make an id the newest one."""
        counts, room = self._counts, self._room
        if mine in counts:  # most are new
            self._order = self._without(mine)
            del counts[mine]
        elif len(self._order) > room + FORGOTTEN:
            self._order = list(counts)
        order = self._order
        order.append(mine)
        counts[mine] = count
        while len(counts) > room:
            del counts[order[-len(counts)]]

    def _without(self, mine: str) -> list[str]:
        """The ids that the ledger has, but for one."""
        return [one for one in self._counts if one != mine]

"""A model of a broker with acknowledgements, of Kafka's side of a feed, and of processes that die, for `Acked`."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from random import Random
from typing import Any

from cues_kafka.bridges.acked import Acked
from cues_kafka.bridges.deliveries import Arrival
from cues_kafka.graph.message import Message


@dataclass(eq=False)
class Link:
    """
    One connection, at both of its ends.

    Attributes:
        broker: the other end.
        unacked: what the broker has delivered on it, by tag, in that order.
        arrived: what is here and not taken.
        acks: what was acknowledged, and has not come to the broker.
        lost: whether it is.
        fresh: see `Deliveries`.
    """

    broker: Queue
    unacked: dict[int, Copy] = field(default_factory=dict)
    arrived: deque[Arrival] = field(default_factory=deque)
    acks: list[int] = field(default_factory=list)
    lost: bool = False
    fresh: bool = False

    def take(self, limit: int) -> Sequence[Arrival]:
        """See `Deliveries`."""
        self._check()
        return [self.arrived.popleft() for _ in range(min(limit, len(self.arrived)))]

    def ack(self, tokens: Sequence[Any]) -> None:
        """See `Deliveries`; it is on its way."""
        self._check()
        self.acks.extend(tokens)

    def close(self) -> None:
        """See `Deliveries`; acknowledgements that are on their way arrive, or do not."""
        self.broker.lose(self, self.broker.random.choice((0, len(self.acks))))

    def _check(self) -> None:
        if self.lost:
            raise ConnectionResetError("the connection is lost")


@dataclass
class Copy:
    """One message at the broker: its number, its name in the ledger, and whether it was delivered."""

    number: int
    id: str = ""
    marked: bool = False


class Queue:
    """
    A queue that delivers at most `prefetch` messages without an acknowledgement.

    Attributes:
        ids: `unique`; `marked`: unique, and matched by the mark only; `packets`: numbers that are used again in turn,
            twice as many as the window has; `lowest`: the lowest free number, which is used again at once.
        late: whether it delivers again anywhere among what is new.
    """

    def __init__(self, random: Random, prefetch: int, ids: str) -> None:
        self.random, self.prefetch, self.ids = random, prefetch, ids
        self.ready: deque[Copy] = deque()
        self.links: list[Link] = []
        self.published = 0
        self.away = self.fresh = self.late = False
        self._tags = count(1)
        self._packet = 0

    def connect(self, part: int, arrived: Callable[[], None]) -> Link:
        """See `Acknowledging`."""
        if self.away:
            raise ConnectionRefusedError("nothing listens")
        self.links.append(Link(self, fresh=self.fresh))
        self.fresh = False
        return self.links[-1]

    def show(self, message: str) -> str:
        """See `Acknowledging`."""
        return f"{message} of the queue"

    def publish(self) -> None:
        """One message more."""
        self.published += 1
        self.ready.append(Copy(self.published, "" if self.ids in ("packets", "lowest") else f"m{self.published}"))

    def push(self) -> None:
        """Deliver what the windows have room for."""
        for link in self.links:
            while self.ready and len(link.unacked) < self.prefetch:
                copy, tag = self.ready.popleft(), next(self._tags)
                if not copy.id:
                    copy.id = self._free_packet()
                link.unacked[tag] = copy
                again = copy.marked or self.ids == "unique"
                link.arrived.append(Arrival(copy.id, again, Message(copy.number), tag))
                copy.marked = True

    def _free_packet(self) -> str:
        """A number that no message has; in turn, as mosquitto counts, or the lowest."""
        used = {copy.id for link in self.links for copy in link.unacked.values()}
        used |= {copy.id for copy in self.ready}
        if self.ids == "lowest":
            self._packet = 0
        while True:
            self._packet = self._packet % (2 * self.prefetch) + 1
            if f"p{self._packet}" not in used:
                return f"p{self._packet}"

    def forget(self) -> None:
        """The session is lost: new messages get the ids of old ones."""
        first, self.fresh = self.published, True
        self.ready = deque(Copy(first + n, f"m{n}") for n in (1, 2))
        self.published += 2

    def settle(self, link: Link, most: int) -> None:
        """Let acknowledgements arrive."""
        for tag in link.acks[:most]:
            link.unacked.pop(tag)
        del link.acks[:most]

    def lose(self, link: Link, arrive: int) -> None:
        """Lose a connection, after some of its acknowledgements have arrived."""
        if not link.lost:
            self.settle(link, arrive)
            link.lost = True
            self.links.remove(link)
            for copy in reversed(link.unacked.values()):
                self.ready.insert(self.random.randint(0, len(self.ready)) if self.late else 0, copy)


class World:
    """Some processes read the queue one after another; Kafka has what they commit."""

    def __init__(self, seed: int, ids: str, make: Callable[..., Acked] = Acked) -> None:
        self.random = Random(seed)
        self.queue = Queue(self.random, self.random.choice((1, 2, 3, 5, 8)), ids)
        self._make = make
        self.topic: list[int] = []
        self.place: str | None = None
        self.batch: list[int] = []
        self.former: list[Acked] = []
        self.trace: list[str] = []
        self._start()

    def _start(self) -> None:
        self.source = self._make(self.queue, prefetch=self.queue.prefetch)
        self._recover()

    def _recover(self) -> None:
        """What a lane does: from the newest record on."""
        self.batch, self.at, self.told = [], self.place, False

    # What happens.

    def publish(self) -> None:
        """Messages come."""
        for _ in range(self.random.randint(1, 4)):
            self.queue.publish()

    def acks(self) -> None:
        """Some acknowledgements arrive."""
        for link in self.queue.links:
            self.queue.settle(link, self.random.randint(0, len(link.acks)))

    def read(self) -> None:
        """The broker works, and the lane reads, twice where the first connection is lost."""
        for _ in range(2):
            self._read()
            if self.random.random() < 0.8:
                self.queue.push()

    def _read(self) -> None:
        """It may refuse the last row for a moment, or take only some."""
        room = self.source.most - len(self.batch)
        if room <= 0:
            return
        try:
            self.tell()
            for message, at in self.source.read(0, self.at, room):
                if self.random.random() < 0.1:
                    return
                self.batch.append(message.value)
                self.at = at
                if self.random.random() < 0.2 or len(self.batch) >= self.source.most:
                    return
        except OSError:
            return

    def tell(self) -> None:
        """The lane says what is committed, before a read."""
        if not self.told and self.place is not None:
            self.source.committed(0, self.place)
        self.told = True

    def commit(self) -> None:
        """Messages and place, at once."""
        if self.batch:
            self.topic += self.batch
            self.place, self.batch, self.told = self.at, [], False

    def suspect(self) -> None:
        """A commit whose answer is lost: committed or not, the newest record says it."""
        if self.random.random() < 0.5:
            self.commit()
        self._recover()

    def abort(self) -> None:
        """The transaction is discarded; the process goes on."""
        self._recover()

    def die(self) -> None:
        """The process dies, and its connection with it."""
        for link in list(self.queue.links):
            self.queue.lose(link, self.random.randint(0, len(link.acks)))
        self._start()

    def move(self) -> None:
        """The task goes to another process, or comes back to a former one."""
        self.source.release(0)
        self.former.append(self.source)
        if self.random.random() < 0.5:
            self.source = self.former.pop(0)
            self._recover()
        else:
            self._start()

    def cut(self) -> None:
        """A connection is lost."""
        if self.queue.links:
            link = self.random.choice(self.queue.links)
            self.queue.lose(link, self.random.randint(0, len(link.acks)))

    def leave(self) -> None:
        """The broker is away, or back."""
        self.queue.away = not self.queue.away
        for link in list(self.queue.links):
            self.queue.lose(link, self.random.randint(0, len(link.acks)))

    STEPS = (
        "publish",
        "acks",
        *["read"] * 4,
        *["commit"] * 2,
        "suspect",
        "abort",
        "die",
        "move",
        "cut",
        "cut",
        "leave",
    )

    def happen(self, steps: int, among: Sequence[str] | None = None) -> None:
        """Let things happen."""
        for _ in range(steps):
            step = self.random.choice(among or self.STEPS)
            self.trace.append(step)
            getattr(self, step)()

    def run_late(self) -> str:
        """The broker keeps no order from some death of the process on, and the next process lives; see `run`."""
        self.happen(30)
        self.queue.late = True
        self.die()
        return self.run(among=[one for one in self.STEPS if one not in ("die", "move")])

    def run(self, steps: int = 60, among: Sequence[str] | None = None) -> str:
        """Let things happen, then heal; gives what is wrong, empty: nothing."""
        self.happen(steps, among)
        self.queue.away = False
        for _ in range(20 + 4 * self.queue.published):
            for step in ("read", "commit", "read"):
                getattr(self, step)()
            for link in self.queue.links:
                self.queue.settle(link, len(link.acks))
            if not (self.batch or self.queue.ready or any(link.unacked for link in self.queue.links)):
                break
        return self.wrong()

    def wrong(self) -> str:
        """Loss, duplicate or standstill."""
        counts = Counter(self.topic)
        if twice := [n for n, times in counts.items() if times > 1]:
            return f"duplicate: {twice}"
        left = [copy.number for link in self.queue.links for copy in link.unacked.values()]
        left += [copy.number for copy in self.queue.ready]
        if missing := [n for n in range(1, self.queue.published + 1) if n not in counts]:
            return f"{'standstill' if set(missing) <= set(left) else 'loss'}: {missing}"
        return f"never acknowledged: {left}" if left else ""

"""A world whose task is a feed of a source that redelivers: a queue of another broker (B1 to B7).

Messages are acknowledged behind their commit in Kafka, and the place in the record is a ledger of ids. `bridging` has
the broker, and runs the shell's code. Here is when what happens.

The broker delivers at most `Setting.window` messages without an acknowledgement. It gives a part to one consumer at a
time, and it delivers again what was not acknowledged before anything new, in the order of the first deliveries.
Acknowledgements are on their way for any time. A connection that its process has closed stays with the broker for any
time; acknowledgements on it arrive, or do not. At the price of a lost request a connection is lost, with all
acknowledgements on their way; a restart of the broker is the same. A zombie keeps its connection until it hears that it
is one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from cues_kafka.core import effects as do
from cues_kafka.core.records import Attempt, Record
from tests.proof.model.bridging import CLOSED, OPEN, Asked, Broker, Client, Got, Queue, most_of, read, released
from tests.proof.model.feeds import FeedWorld
from tests.proof.model.states import COMMITTING, NET, Delivered, Faults, Moves, Part, Setting, State, Turn


class Reading(NamedTuple):
    """
    How far a lane has read since its recovery.

    Attributes:
        at: the place behind the last row; None: the beginning.
        told: the place that its source was told is committed.
        places: of the rows of the batch that is called.
        ahead: rows that were read during a commit (P7), with their places.
    """

    at: str | None = None
    told: str | None = None
    places: tuple[str, ...] = ()
    ahead: tuple[tuple[int, str], ...] = ()


class Bridge(NamedTuple):
    """The broker, and by process and part what each process holds of it."""

    queue: Queue
    clients: tuple[tuple[Client, ...], ...]


class BridgeWorld(FeedWorld):
    """A setting with `feed` and `window`, and everything that can happen in it."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        self.most = most_of(setting.window)
        self._bridge = self._faults + 1

    # States.

    def first(self) -> State:
        """Nothing is connected."""
        [log] = self.setting.inputs
        nothing: tuple[Client, ...] = (None,) * self.setting.partitions
        bridge = Bridge(Queue(tuple(range(len(log)))), (nothing,) * self._workers)
        return (*super().first(), self.values.number(bridge))

    def bridge(self, s: State) -> Bridge:
        """See `Bridge`."""
        return self.values.items[s[self._bridge]]  # type: ignore[return-value]

    def _put_bridge(self, s: State, bridge: Bridge) -> State:
        return (*s[: self._bridge], self.values.number(bridge))

    def _put_client(self, s: State, w: int, p: int, client: Client, queue: Queue) -> State:
        rows = [list(row) for row in self.bridge(s).clients]
        rows[w][p] = client
        return self._put_bridge(s, Bridge(queue, tuple(map(tuple, rows))))

    def _spend(self, s: State, kind: int) -> State | None:
        spent = super()._spend(s, kind)
        return None if spent is None else (*spent, s[self._bridge])

    def ends(self, record: Record) -> tuple[int, ...]:
        """How many messages were taken."""
        return (int(record.place.partition(".")[0] or 0),)

    def done(self, s: State) -> bool:
        """Whether all is delivered and acknowledged, and nothing is left open."""
        queue = self.bridge(s).queue
        [places] = self.places
        return queue.acked == places and not any(part.phase or part.pending for part in self.parts(s))

    # What the broker does.

    def _stages(self, s: State, out: Moves) -> Iterator[None]:
        """See `World`; a process that has lost its task lets go of its part (B7)."""
        self._at_the_broker(s, out)
        yield
        known = len(out)
        for _ in super()._stages(s, out):
            out[known:] = [(label, calm, self._let_go(s, after)) for label, calm, after in out[known:]]
            known = len(out)
            yield

    def _at_the_broker(self, s: State, out: Moves) -> None:
        bridge = self.bridge(s)
        for link in bridge.queue.links:
            name = f"connection of w{link.w}/p{link.p}"
            if link.acks:
                after = bridge.queue.settled(link)
                label = ("source", f"{name}: gets the acknowledgement of delivery {link.acks[0]}")
                out.append((label, True, self._put_bridge(s, bridge._replace(queue=after))))
            if link.state == CLOSED:
                after = bridge.queue.lost(link)
                label = ("source", f"{name}: it sees that it is closed")
                out.append((label, True, self._put_bridge(s, bridge._replace(queue=after))))

    def _breaking(self, s: State, faults: Faults, out: Moves) -> None:
        super()._breaking(s, faults, out)
        bridge = self.bridge(s)
        for link in bridge.queue.links if faults.net else ():
            spent = self._spend(s, NET) if link.state == OPEN else None
            if spent is not None:
                after = self._put_bridge(spent, bridge._replace(queue=bridge.queue.lost(link)))
                out.append((("source", f"connection of w{link.w}/p{link.p}: it is lost"), False, after))

    def _let_go(self, s: State, after: State) -> State:
        for w, (before, now) in enumerate(zip(self.workers(s), self.workers(after), strict=True)):
            for p, lane in enumerate(before.lanes):
                if lane is not None and now.lanes[p] is None and before.deaths == now.deaths:
                    after = self._released(after, w, p)
        return after

    def _released(self, s: State, w: int, p: int) -> State:
        bridge = self.bridge(s)
        got = released(bridge.clients[w][p], self._broker(s, w, p), self.setting.partitions)
        return self._put_client(s, w, p, got.client, got.queue)

    def _broker(self, s: State, w: int, p: int) -> Broker:
        parts = self.declared(self.worker(s, w).deaths)
        return Broker(
            self.bridge(s).queue, w, p, self.setting.window, lambda message: self.selects(message, p, parts)
        )  # fmt: skip

    def selects(self, message: int, p: int, parts: int) -> bool:
        """Whether a part is to get a message."""
        return message % parts == p

    def declared(self, deaths: int) -> int:
        """How many parts a process declares."""
        del deaths
        return self.setting.partitions

    # What processes do.

    def _dead(self, s: State, w: int, *, by: int | None = None) -> State:
        """Its connections close."""
        s = super()._dead(s, w, by=by)
        for p in range(self.setting.partitions):
            s = self._put_client(s, w, p, None, self.bridge(s).queue.closed(w, p))
        return s

    def _begin_to_read(self, turn: Turn, assign: do.AssignReader) -> None:
        """G1: from the place of the newest record."""
        record = self.task(turn.lane).record
        assert record
        own = Reading(record.place or None)
        super(FeedWorld, self)._begin_to_read(turn._replace(lane=turn.lane._replace(own=own)), assign)

    def _await(self, turn: Turn, _: Any) -> None:
        """Tell the source what is committed, and read; a batch has all that is there, or less."""
        s, w, p, _, owner, out = turn
        seen, most = None, self.most
        while most > 0:
            got = self._read(turn, most)
            rows = got.rows[:most]
            if rows:
                self._take(turn, got)
            elif seen is None:
                after = self._asked(turn, got)
                if after != s:
                    label = (self._name(w, p), f"asks its source: {got.failed or 'nothing'}")
                    out.append((label, owner, after))
            seen, most = got, min(most, len(rows)) - 1

    def _read(self, turn: Turn, most: int) -> Got:
        s, w, p, lane = turn[:4]
        record, bridge = self.task(lane).record, self.bridge(s)
        assert record
        told = record.place if record.place and record.place != lane.own.told else None
        asked = Asked(lane.own.at, told, most, self._free_name(s))
        return read(bridge.clients[w][p], self._broker(s, w, p), self.setting.partitions, asked)

    def _asked(self, turn: Turn, got: Got, places: tuple[str, ...] = ()) -> State:
        s, w, p, lane = turn[:4]
        record = self.task(lane).record
        told = record.place or None if record and not got.failed else lane.own.told
        lane = lane._replace(own=lane.own._replace(told=told, places=places))
        return self._put_client(self._put_lane(s, w, p, lane), w, p, got.client, got.queue)

    def _take(self, turn: Turn, got: Got) -> None:
        s = self._asked(turn, got, tuple(place for _, place in got.rows))
        lane = self.worker(s, turn.w).lanes[turn.p]
        assert lane is not None
        self._run(turn._replace(s=s, lane=lane), tuple(((0, message),) for message, _ in got.rows))

    def _after_calls(self, turn: Turn, ends: tuple[int, ...], done: Delivered, halt: str) -> State:
        """The place is behind the last row that ended."""
        s, w, p, lane, *_ = turn
        place = lane.own.places[len(done) - 1] if done else ""
        own = lane.own._replace(at=place or lane.own.at, places=())
        lane = lane._replace(carried=done, own=own)
        return self._tell(s, w, p, lane, "fed", self._counts(done), halt, place)

    def _free_name(self, s: State) -> str:
        """Of an attempt: one that no place has which is known anywhere. So names are as different as random ones."""
        known = [record.place for record in self._records(s) if record.place]
        lanes = [lane for worker in self.workers(s) for lane in worker.lanes if lane is not None]
        text = repr((known, [lane.own for lane in lanes], self.bridge(s).clients))
        number = 0
        while f"{number:08x}" in text:
            number += 1
        return f"{number:08x}"

    def _records(self, s: State) -> list[Any]:
        numbers = [entry >> 1 for part in self.parts(s) for entry in part.log if entry >= 0]
        numbers += [message[2] for message in self.net(s) if message[0] == "record"]
        tasks = [self.task(lane) for worker in self.workers(s) for lane in worker.lanes if lane is not None]
        held = [record for task in tasks for record in (task.record, task.pending) if record]
        return [*map(self.machine.record, numbers), *held]

    # What must hold.

    def judged(self, part: Part, record: Record | None) -> str:
        """I2, I3: as many messages have outcomes as the place says were taken."""
        steps = {outcome.step for outcome in part.outputs}
        taken = self.ends(record)[0] if record else 0
        if len(steps) != taken:
            return f"I2, I3: {len(steps)} messages have outcomes, the place says {taken}"
        if isinstance(record, Attempt) and record.totals.deliveries != taken:
            return f"I3, I13: {taken} messages were taken, the record counts {record.totals}"
        return ""

    def together(self, s: State) -> str:
        """I1 over all parts; and the broker forgets no message that has no outcome (B2)."""
        seen: list[int] = []
        for part in self.parts(s):
            outcomes = part.outputs + (part.loose if part.phase == COMMITTING else ())
            seen += {offset for outcome in outcomes for _, offset in outcome.step}
        if len(seen) > len(set(seen)):
            return f"I1: a message was delivered by two parts, of {sorted(seen)}"
        if lost := [message for message in self.bridge(s).queue.acked if message not in seen]:
            return f"B2: the source has forgotten message {lost[0]}, which has no outcome"
        return self.bridge(s).queue.wrong


class BridgeAheadWorld(BridgeWorld):
    """The same, where a lane reads the next batch while a commit is under way (P7)."""

    def _commit(self, turn: Turn, effect: Any) -> None:
        s, w, p, lane, _, out = turn
        if lane.carried and not lane.own.ahead:
            got = self._read(turn, self.most)
            after = self._asked(turn, got)
            read = self.worker(after, w).lanes[p]
            assert read is not None
            if got.rows:
                own = read.own._replace(at=got.rows[-1][1], ahead=got.rows)
                after = self._put_lane(after, w, p, read._replace(own=own))
            if after != s:
                label = (self._name(w, p), f"reads ahead: {len(got.rows)} messages {got.failed}")
                out.append((label, False, after))
        super()._commit(turn, effect)

    def _await(self, turn: Turn, effect: Any) -> None:
        """What was read ahead is the next batch; the source may be told of the commit before, or later."""
        s, w, p, lane, _, out = turn
        rows = lane.own.ahead
        if not rows:
            super()._await(turn, effect)
            return
        own = lane.own._replace(ahead=(), places=tuple(place for _, place in rows))
        self._run(turn._replace(lane=lane._replace(own=own)), tuple(((0, message),) for message, _ in rows))
        after = self._asked(turn, self._read(turn, 0))
        if after != s:
            out.append(((self._name(w, p), "tells its source what is committed"), False, after))

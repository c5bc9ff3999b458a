"""The reader of a worker: it is pointed where recoveries said, held back, and what it brings goes to the tasks (A2)."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from cues_kafka.core import events as on
from cues_kafka.errors import BrokerError, UnreadableError
from cues_kafka.observe.log import get_logger
from cues_kafka.ports.clients import Reader
from cues_kafka.ports.log import Positions, TopicPartition
from cues_kafka.records.unreadable import way_past
from cues_kafka.task.calling.pairing import Buffer, OutOfOrder
from cues_kafka.task.lane import Lane

log = get_logger("cues_kafka.worker")

POLL_S = 0.05
"""A2. How long one fetch waits. Commands to the reader and the group are served in between."""

BUFFER_MESSAGES = 12_000
"""All inputs of all tasks of a processor share this: a full batch, and what a fetch brings meanwhile. The client keeps
more behind it. With 20,000 for each task, a worker with 4 tasks took 174 MiB instead of 140 and was not faster."""

LEAST_BUFFER = 1_000
"""The share of one input of one task is not smaller, however many there are."""

BUFFER_BYTES = 16 * 1024 * 1024
"""All inputs of all tasks of a processor share this, counting values only: about 12,000 messages of 1.4 kB. While an
input is below its share, a fetch takes all that the client has ready. So a processor holds at most this and once more
the client's own queue, `queued.max.messages.kbytes`."""

LEAST_BYTES = 1024 * 1024
"""The share of one input of one task is not smaller, however many there are."""

AHEAD_MESSAGES = 10_000
AHEAD_BYTES = 4 * 1024 * 1024
"""An input that holds more than twice this and twice its share is paused while other inputs have room."""

REQUESTS = 1_000
"""Requests to replay an error message that one task holds at most, about."""


class Fetching:
    """
    What a worker fetches, for which task.

    It is used on the poller's thread, which owns the reader. `point`, `wake` and `made_room` may be called on any.

    Attributes:
        reader: the worker's, once it is open.
    """

    reader: Reader

    def __init__(
        self, name: str, *, poll_s: float, submit: Callable[[Lane, on.Event], None], arrived: Callable[[], None]
    ) -> None:
        """
        Args:
            name: the processor's.
            poll_s: how long a fetch waits.
            submit: has a task do an event.
            arrived: called when messages have arrived.
        """
        self.name = name
        self._poll_s = poll_s
        self._submit = submit
        self._arrived = arrived
        self._commands: deque[tuple[Lane, Positions, Buffer]] = deque()
        self._routes: dict[TopicPartition, tuple[Lane, Buffer]] = {}
        self._refused: dict[TopicPartition, UnreadableError] = {}  # what the client refuses behind what it gave
        self._paused: set[TopicPartition] = set()
        self._steady = False  # all have room, and nothing has come since: buffers only get emptier
        self._room = threading.Event()

    def point(self, lane: Lane, positions: Positions) -> None:
        """Have the reader bring messages from these positions on, to the buffer that the task has now."""
        assert lane.buffer
        self._commands.append((lane, positions, lane.buffer))
        self._room.set()

    def wake(self) -> None:
        """End a wait for room in the buffers."""
        self._room.set()

    def made_room(self) -> None:
        """Like `wake`, behind calls that have taken messages; a feed fetches none, and its poller sleeps on."""
        if self._routes:
            self._room.set()

    def once(self) -> None:
        """Point the reader, fetch, and stop tasks that have come to what cannot be read."""
        self._obey()
        self._fetch()
        self._stop_at_refused()

    def drop(self, lane: Lane) -> None:
        """Read nothing more for a task."""
        self._steady = False
        places = [place for place, (owner, _) in self._routes.items() if owner is lane]
        for place in places:
            del self._routes[place]
            self._paused.discard(place)
            self._refused.pop(place, None)
        self.reader.unassign(places)

    def _obey(self) -> None:
        """Point the reader where a recovery said (R5). What was fetched before went with its buffer."""
        while self._commands:
            lane, positions, buffer = self._commands.popleft()
            if lane.buffer is not buffer or lane.interpreter.gate.closed:
                continue
            starts = {TopicPartition(p.topic, lane.spec.partition): p.offset for p in positions}
            self.reader.unassign(list(starts))
            self._paused -= starts.keys()
            self.reader.assign(starts)
            self._steady = False
            self._routes |= dict.fromkeys(starts, (lane, buffer))

    def _fetch(self) -> None:
        if not self._steady and not self._balance():
            self._room.wait(self._poll_s)
            self._room.clear()
            return
        try:
            fetched = self.reader.poll(self._poll_s)
        except BrokerError as error:
            self.broken(error)
            return
        for part in fetched:
            route = self._routes.get(part.partition)
            if route is None:
                continue
            lane, buffer = route
            try:
                buffer.add(part)
            except OutOfOrder as error:
                self.drop(lane)
                self._submit(lane, lane.fail(str(error)))
        if fetched:
            self._steady = False
            self._arrived()

    def _balance(self) -> bool:
        """
        Apply backpressure.

        While every buffer is full, the worker does not poll, and the client's bounded queue fills up: that costs
        nothing. Pausing a partition costs a fetch, because the client drops what it has fetched. So the worker pauses
        only a partition that runs far ahead of the others.

        Returns:
            Whether any buffer has room.
        """
        room, ahead, behind = False, [], []
        routes = max(1, sum(not buffer.is_replay(place.topic) for place, (_, buffer) in self._routes.items()))
        share, share_bytes = max(LEAST_BUFFER, BUFFER_MESSAGES // routes), max(LEAST_BYTES, BUFFER_BYTES // routes)
        far, far_bytes = 2 * max(share, AHEAD_MESSAGES), 2 * max(share_bytes, AHEAD_BYTES)
        for place, (lane, buffer) in self._routes.items():
            size, held = buffer.size_of(place.topic), buffer.bytes_of(place.topic)
            if buffer.is_replay(place.topic):  # read only while something else is
                if place in self._paused:
                    behind += [place] if size < REQUESTS // 2 else []
                elif size >= REQUESTS:
                    ahead.append(place)
                continue
            short = lane.short
            room = room or short or (size < share and held < share_bytes)
            if place in self._paused:
                behind += [place] if short or (size < share // 2 and held < share_bytes // 2) else []
            elif (size >= far or held >= far_bytes) and not short:
                ahead.append(place)
        if ahead and room:
            self.reader.pause(ahead)
            self._paused.update(ahead)
        if behind:
            self.reader.resume(behind)
            self._paused.difference_update(behind)
        self._steady = room and not self._paused
        return room

    def broken(self, error: BrokerError) -> None:
        """Send the tasks whose partitions cannot be read back to R1, which compares record and log again."""
        at: TopicPartition | None = getattr(error, "at", None)
        if at is not None and at in self._routes and self._routes[at][1].is_replay(at.topic):
            self._without_replays(at, error)
            return
        if isinstance(error, UnreadableError) and at in self._routes:
            self._refused[at] = error
            self.reader.unassign([at])  # else the client asks for it again and again
            return
        log.warning("reader failed", processor=self.name, error=str(error))
        lanes = {lane.spec.partition: lane for lane, _ in self._routes.values()}
        for partition, lane in lanes.items():
            if at is None or at.partition == partition:
                self.drop(lane)
                self._submit(lane, lane.fail(f"reading: {error}", way_past(error, self.name)))

    def _stop_at_refused(self) -> None:
        """Stop the tasks that have delivered what stands before a batch that the client refuses."""
        for at, error in list(self._refused.items()):
            lane, buffer = self._routes.get(at, (None, None))
            if lane is None or buffer is None:
                del self._refused[at]
            elif _has_come_to(lane, buffer, at.topic):
                log.warning("reader failed", processor=self.name, error=str(error))
                self.drop(lane)
                self._submit(lane, lane.fail(f"reading: {error}", way_past(error, self.name)))

    def _without_replays(self, at: TopicPartition, error: BrokerError) -> None:
        """Messages are delivered as before; the task looks for its replay topic again when it recovers (Y1)."""
        log.warning(
            "replay topic cannot be read", processor=self.name, topic=at.topic, error=str(error), remedy=error.remedy
        )
        _, buffer = self._routes.pop(at)
        self._paused.discard(at)
        self.reader.unassign([at])
        buffer.requests = None


def _has_come_to(lane: Lane, buffer: Buffer, topic: str) -> bool:
    """Whether a task has delivered all that it can before a batch that cannot be read."""
    due = lane.task.due
    return (not buffer.size_of(topic) and lane.idle) or (due is not None and not buffer.holds(due.ends))

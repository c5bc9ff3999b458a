"""The reader of a slot: it reads each input of a task up to a bound, no further than the next batch needs it (D2)."""

from __future__ import annotations

from collections.abc import Mapping

from cues_kafka.core.spec import Spec
from cues_kafka.core.task import Task
from cues_kafka.graph.declare import CommitPolicy
from cues_kafka.ports.broker import Broker
from cues_kafka.ports.clients import Reader
from cues_kafka.ports.clock import Clock
from cues_kafka.ports.log import Fetched, Positions, TopicPartition
from cues_kafka.task.calling.pairing import Buffer, OutOfOrder

POLL_S = 0.5
"""Time that a reader waits for messages that are known to be there."""

PATIENCE_S = 60.0
"""After this time without a message or an end, the task returns to R1, which finds out why the range cannot be read."""


class Intake:
    """Fill the buffer of a slot's task from its inputs."""

    def __init__(self, spec: Spec, *, broker: Broker, clock: Clock, policy: CommitPolicy) -> None:
        """
        Args:
            spec: the task.
            broker: the cluster.
            clock: time.
            policy: the limits of a batch, beyond which nothing is read.
        """
        self._spec = spec
        self._broker = broker
        self._clock = clock
        self._policy = policy
        self._places = {one.topic: TopicPartition(one.topic, spec.partition) for one in spec.inputs}
        self._reader: Reader | None = None
        self._polled = False
        self._read_to: dict[str, int] = {}
        self._bounds: Mapping[str, int] = {}
        self._over: set[str] = set()  # read to their bounds, which the buffer has heard
        self._paused: set[TopicPartition] = set()

    def begin(self, hint: Mapping[str, int]) -> None:
        """Begin to fetch where the positions probably are, while the task recovers."""
        self._read_to = dict(hint)
        self._open()

    def point(self, positions: Positions, bounds: Mapping[str, int]) -> None:
        """
        After R5: read from the positions up to these offsets, below which everything is decided, by topic.

        A reader that was not read yet and stands at the positions may stay.
        """
        starts = {p.topic: p.offset for p in positions}
        if self._polled or self._read_to != starts:
            self.close()
        self._read_to = starts
        self._bounds = bounds
        self._over = set()

    def read(self, buffer: Buffer, task: Task) -> None:
        """
        Read until a whole batch is there, or all that can be delivered of the messages below the bounds.

        An end of the log below a bound does not count, because the leader that reported it lags. An end beyond it says
        nothing about the messages between, so the buffer hears of the bound instead. Then positions move over markers
        up to the bound, and no further.

        Args:
            buffer: of the task.
            task: as it is now.

        Raises:
            OutOfOrder: nothing comes, or not what should come next.
            BrokerError: an input cannot be read.
        """
        deadline = self._clock.monotonic() + PATIENCE_S
        while not self._has_enough(buffer, task):
            if self._clock.monotonic() > deadline:
                raise OutOfOrder(f"nothing new below {self._left()} for {PATIENCE_S:g} s")
            reader = self._open()
            self._balance(reader, buffer, task)
            self._polled = True
            for fetched in reader.poll(POLL_S):
                if fetched.partition.topic not in self._over:
                    self._add(buffer, fetched)
                    deadline = self._clock.monotonic() + PATIENCE_S

    def close(self) -> None:
        """Release the client; the next reading has a new one, because a moved one waits for its old fetches first."""
        if self._reader:
            self._reader.close()
        self._reader = None
        self._polled = False
        self._paused = set()

    def _left(self) -> str:
        """What is not read yet, for people."""
        left = [place for topic, place in self._places.items() if topic not in self._over]
        return ", ".join(f"{self._bounds[place.topic]} of {place.topic}/{place.partition}" for place in left)

    def _open(self) -> Reader:
        if self._reader is None:
            self._reader = self._broker.reader(self._spec.group, prompt=True)
            self._reader.assign({self._places[topic]: offset for topic, offset in self._read_to.items()})
        return self._reader

    def _add(self, buffer: Buffer, fetched: Fetched) -> None:
        place, messages, eof = fetched
        bound = self._bounds[place.topic]
        last = messages[-1].offset() if messages else -1
        over = last >= bound - 1 or (eof is not None and eof >= bound)
        if last >= bound:
            messages = [message for message in messages if message.offset() < bound]
        self._read_to[place.topic] = max(self._read_to[place.topic], bound if over else last + 1)
        buffer.add(Fetched(place, messages, None))
        if over:
            self._tell_end(buffer, place.topic)

    def _tell_end(self, buffer: Buffer, topic: str) -> None:
        buffer.add(Fetched(self._places[topic], [], self._read_to[topic]))
        self._over.add(topic)

    def _has_enough(self, buffer: Buffer, task: Task) -> bool:
        """Whether the next batch is there, or cannot grow. A due range counts as a whole, whatever its size."""
        for topic, offset in self._read_to.items():
            if topic not in self._over and offset >= self._bounds[topic]:
                self._tell_end(buffer, topic)
        if task.due:
            return buffer.holds(task.due.ends)
        if self._over.issuperset(self._lacking(buffer, task)):
            return True
        if self._turn(buffer, task):
            return False
        ready, held = buffer.ready, 0
        for topic in self._places:
            size = buffer.size_of(topic)
            paired = ready if self._spec.pairing == "join" else size
            held += buffer.bytes_of(topic) * paired // size if size else 0
        return ready >= self._policy.max_messages or held >= self._policy.max_bytes

    def _lacking(self, buffer: Buffer, task: Task) -> list[str]:
        """The inputs of which more messages make more steps."""
        if self._spec.pairing == "join":
            return [topic for topic in self._places if buffer.size_of(topic) == buffer.ready]
        turn = self._turn(buffer, task)
        return [turn] if turn else list(self._places)

    def _turn(self, buffer: Buffer, task: Task) -> str:
        """The input of alts that a recorded choice names next, if nothing of it was fetched yet; else empty."""
        topics = [one.topic for one in self._spec.inputs if task.choice and one.binding == task.choice[0][0]]
        return next((topic for topic in topics if topic not in self._over and not buffer.size_of(topic)), "")

    def _balance(self, reader: Reader, buffer: Buffer, task: Task) -> None:
        """Pause inputs that are over, or that have more than a batch needs while another one lacks messages."""
        if len(self._places) == 1:
            return
        lacking = self._lacking(buffer, task)
        ends = {p.topic: p.offset for p in task.due.ends} if task.due else {}
        seen = buffer.seen
        held = set()
        for topic, place in self._places.items():
            full = buffer.size_of(topic) >= self._policy.max_messages
            full = full or buffer.bytes_of(topic) >= self._policy.max_bytes
            waits = seen[topic] >= ends[topic] if ends else full and topic not in lacking
            if topic in self._over or waits:
                held.add(place)
        if begun := held - self._paused:
            reader.pause(sorted(begun))
        if ended := self._paused - held:
            reader.resume(sorted(ended))
        self._paused = held

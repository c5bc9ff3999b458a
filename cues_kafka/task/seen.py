"""What other threads see of a task at work. Nothing here changes anything, and nothing waits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from cues_kafka.core import effects as do
from cues_kafka.core.task import Doing, Task
from cues_kafka.ports.log import Positions
from cues_kafka.task.ahead import COMMITTING
from cues_kafka.task.calling.pairing import Buffer
from cues_kafka.task.desk import Desk
from cues_kafka.task.filling import Filling
from cues_kafka.task.parts.participant import Kind, Participant


class Calling(NamedTuple):
    """
    A call of user code that is under way.

    Attributes:
        steps: the chunk that it belongs to.
        at: the index of its step there.
    """

    steps: list[Any]
    at: int


class Seen:
    """A lane, for other threads; see `lane.Lane`, which has the attributes."""

    _desk: Desk
    _filling: Filling
    _pending: int
    _working: bool
    _restart_at_s: float

    @property
    def busy(self) -> bool:
        """Whether an event is on its way to the task."""
        return self._pending > 0

    @property
    def task(self) -> Task:
        """The task as it is now."""
        return self._desk.task

    @property
    def buffer(self) -> Buffer | None:
        """What was fetched and not yet taken; None before the first recovery."""
        return self._desk.buffer

    @property
    def parts(self) -> Sequence[Participant]:
        """What takes part in its steps."""
        return self._desk.context.parts

    def part(self, kind: type[Kind]) -> Kind | None:
        """The participant of this class; None: the task has none."""
        return self._desk.context.part(kind)

    @property
    def missed(self) -> int:
        """How often what calls wait for was not there in time."""
        return sum(part.missed for part in self._desk.at.before_chunk)

    @property
    def commits_first(self) -> bool:
        """Whether something commits its steps ahead of Kafka's transaction (E1)."""
        return bool(self._desk.at.ask)

    @property
    def ready(self) -> bool:
        """Whether the task has a record and waits for messages, or works on them."""
        return self.task.record is not None and self.buffer is not None

    @property
    def restored(self) -> bool:
        """Whether it is ready, and reads nothing of its state any more. It stays so while the task commits."""
        return self.ready and self.task.state is not Doing.ASSIGNING

    @property
    def delivers(self) -> bool:
        """Whether the recovery is over, with all that it reads, and the task is not stopped. So in a commit, too."""
        task = self.task
        return self.ready and (task.then if task.state in COMMITTING else task.state) in (Doing.READY, Doing.CALLING)

    @property
    def _effect(self) -> do.Effect | None:
        return self._desk.interpreter.effect

    @property
    def short(self) -> bool:
        """Whether a range is due that is not yet fetched to its end. Until then nothing is taken from the buffer."""
        due, buffer = self.task.due, self.buffer
        return due is not None and buffer is not None and not buffer.holds(due.ends)

    @property
    def idle(self) -> bool:
        """Whether nothing is fetched, called or on its way."""
        # In the order opposite to that in which a message passes, so that none is missed.
        desk, buffer = self._desk, self._desk.buffer
        if self._filling.waits or buffer is None or buffer.ready or buffer.asked or self._working or self.busy:
            return False
        if desk.due_at_s is not None and desk.due_at_s <= desk.clock.monotonic():
            return False
        waits = desk.batch is None and desk.retrying is None and desk.failed is None
        return waits and isinstance(self._effect, do.Await)

    @property
    def at_rest(self) -> bool:
        """Whether everything that was called is committed, so that `finish` has nothing to do."""
        return not self._filling.waits and self._desk.batch is None and not self._working and not self.busy

    @property
    def in_parts(self) -> bool:
        """Whether a part of the open batch is committed ahead of Kafka (E1)."""
        batch = self._desk.batch
        return batch is not None and batch.kept > 0

    @property
    def calling(self) -> Calling | None:
        """The call of user code that is under way; None while no code of the user runs."""
        if (now := self._desk.calling) is None:
            return None
        steps, batch, before = now
        if (fired := batch.fired) is not None:
            return Calling([fired], 0)
        ended = batch.begun_by_messages - before
        return Calling(steps, self._desk.caller.under_way(steps, ended)) if steps else None

    def place(self, calling: Calling) -> str:
        """Where the messages of a call stand."""
        return self._desk.caller.place(*calling)

    @property
    def reached(self) -> Positions:
        """The positions. Where everything is delivered, they include the markers behind the last message."""
        buffer = self.buffer
        return buffer.positions if buffer is not None and self.idle else self.task.positions

    @property
    def seen(self) -> dict[str, int]:
        """The offset up to which everything was fetched, by topic."""
        return self.buffer.seen if self.buffer is not None else {}

    @property
    def oldest_s(self) -> float | None:
        """The timestamp of the oldest message that waits for its call; None if no message waits."""
        oldest_ms = self.buffer.oldest_ms if self.buffer is not None else None
        return oldest_ms / 1_000 if oldest_ms is not None else None

    @property
    def wake_at_s(self) -> float | None:
        """When to call `work` again although nothing arrives; None: no need."""
        if self.busy:
            return None
        if isinstance(self._effect, do.Stop):
            return self._restart_at_s
        desk = self._desk
        if desk.ask_at_s is not None:
            return desk.ask_at_s
        return desk.retry_at_s if desk.retrying else desk.due_at_s

    @property
    def waits_for_clock(self) -> bool:
        """Whether `wake_at_s` is when something will be due by the time of day."""
        wake, due = self.wake_at_s, self._desk.due_at_s
        return wake is not None and wake == due and due > self._desk.clock.monotonic()

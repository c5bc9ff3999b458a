"""Calls of user code ahead of a commit of the same task that is under way (P7).

What is called ahead is in no transaction yet. If the commit fails, a recovery voids it, and it is called again. A
target (E1) holds it meanwhile, together with what it has locked.
"""

from __future__ import annotations

from collections.abc import Callable

from cues_kafka.core.events import IllegalEvent
from cues_kafka.core.task import Doing, Task
from cues_kafka.errors import RetriableError
from cues_kafka.task.calling.batch import Batch
from cues_kafka.task.calling.pairing import Buffer
from cues_kafka.task.desk import Desk
from cues_kafka.task.interpreter import IN_TRANSACTION

HELD_S = 5.0
"""How long a target holds what was called ahead of Kafka's commit (P7). Others may wait for what it has locked, and a
commit in an outage takes a minute."""

COMMITTING = IN_TRANSACTION | {Doing.BEGINNING}

_WAITING = COMMITTING - {Doing.PRODUCING}
"""The task waits for the cluster in these states. Calling ahead pays while reports are awaited: JSON messages went from
0.79 to 0.91 of a hand-written loop's rate. While records are enqueued, both would compete for Python's lock."""


def check_follows(task: Task, batch: Batch) -> None:
    """
    Raise unless a batch was called for the attempt that comes next (O8, P7): its headers and its stores name that one.

    Raises:
        IllegalEvent: another record came between. The process ends, with nothing of the batch committed.
    """
    if batch.sequence != task.next_sequence:
        raise IllegalEvent(
            f"{task.spec.name}: a batch was called for attempt {batch.sequence}, and {task.next_sequence} comes next"
        )


class CallsAhead:
    """
    Calls user code of one task while a commit of it is under way. All methods are the calling thread's.

    Attributes:
        sole: whether no other task is called on this thread. Only then may a target stay open between two calls of
            `Lane.work`: another task's call could wait for what it has locked, and keep the thread from committing it.
    """

    def __init__(self, desk: Desk, fill: Callable[..., int]) -> None:
        """
        Args:
            desk: what the lane works on.
            fill: calls user code; see `Filling.fill`.
        """
        self.sole = False
        self._desk, self._fill = desk, fill

    @property
    def held_alone(self) -> bool:
        """Whether nothing outside of Kafka shows that a batch is called ahead, and no other task is held up by it."""
        return all(part.may_hold(sole=self.sole) for part in self._desk.at.may_hold)

    def call(self, task: Task, buffer: Buffer) -> bool:
        """Call user code if the commit can only be waited for; whether a step ended. `assign` drops what is void."""
        if task.state not in _WAITING or not task.pipelined or not self.held_alone:
            return False
        called = False
        try:
            called = self._fill(task, buffer, once=True) > 0
        except RetriableError as error:  # of a codec's registry, or of a participant
            self._drop(buffer, str(error), error.remedy)
        if self._desk.at.free:
            self._let_recovery_ask(buffer)
        return called

    def hold_briefly(self) -> None:
        """Take back what is held too long, also where the task may not call now; it is called again."""
        desk, buffer, batch = self._desk, self._desk.buffer, self._desk.batch
        if buffer is None or batch is None or not desk.at.free:
            return
        if desk.clock.monotonic() - batch.began_s >= HELD_S:
            self._drop(buffer, f"Kafka's commit took longer than {HELD_S:g} s")

    def _drop(self, buffer: Buffer, why: str, remedy: str = "") -> None:
        self._desk.drop(buffer, self._desk.fail(why, remedy))
        self._free()

    def _free(self) -> None:
        for part in self._desk.at.free:
            part.free()

    def _let_recovery_ask(self, buffer: Buffer) -> None:
        """
        Take back what was called ahead of a commit that has failed meanwhile: its lock is in the way of `ask`.

        The state comes first. If it is that of a commit, a recovery begins later, and `ask` takes the batch back.
        """
        state = self._desk.task.state
        if not self._desk.is_present(buffer) or state not in COMMITTING | {Doing.READY}:
            self._free()

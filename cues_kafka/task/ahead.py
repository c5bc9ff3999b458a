"""Calls of user code ahead of a commit of the same task that is under way (P7).

What is called ahead is in no transaction yet. If the commit fails, a recovery voids it, and it is called again. A
target (E1) holds it meanwhile, together with what it has locked.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import NamedTuple

from cues_kafka.core import events as on
from cues_kafka.core.events import IllegalEvent
from cues_kafka.core.task import Doing, Task
from cues_kafka.errors import RetriableError
from cues_kafka.ports import Clock, TransactionalSink
from cues_kafka.task.calling.batch import Batch, CallContext
from cues_kafka.task.calling.pairing import Buffer
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


class OpenBatch(NamedTuple):
    """
    What calls ahead need of the lane that they fill a batch of.

    Attributes:
        fill: calls user code for one chunk; gives how many steps ended.
        drop: forgets the open batch if this buffer is still the lane's; whether it is. Called under the lane's lock.
        state: what the task does now.
        is_present: whether this buffer is still the lane's.
    """

    fill: Callable[[Task, Buffer], int]
    drop: Callable[[Buffer], bool]
    state: Callable[[], Doing]
    is_present: Callable[[Buffer], bool]


class CallsAhead:
    """
    Calls user code of one task while a commit of it is under way.

    Attributes:
        sole: whether no other task is called on this thread. Only then may its target stay open between two calls of
            `Lane.work`: another task's call could wait for what it has locked, and keep the thread from committing it.
        failed: what went wrong; heard when the commit under way is through. The lane's lock guards it.
    """

    def __init__(self, context: CallContext, clock: Clock, lock: threading.Lock, batch: OpenBatch) -> None:
        self.sole = False
        self.failed: on.Event | None = None
        self._context, self._clock, self._lock, self._open = context, clock, lock, batch

    @property
    def held_alone(self) -> bool:
        """Whether nothing outside of Kafka shows that a batch is called ahead, and no other task is held up by it."""
        target = self._context.target
        return target is None or (target.ahead and self.sole and self._context.calls is None)

    @property
    def barred(self) -> bool:
        """Whether nothing may be called ahead until the commit is through."""
        # A handler holds one batch at a time: it would checkpoint what may not come.
        return self.failed is not None or self._context.handlers is not None

    def call(self, task: Task, buffer: Buffer) -> bool:
        """Call user code if the commit can only be waited for; whether a step ended. `assign` drops what is void."""
        if task.state not in _WAITING or not task.pipelined or not self.held_alone:
            return False
        called = False
        try:
            called = self._open.fill(task, buffer) > 0
        except RetriableError as error:  # of a codec's registry, or of the target
            self._fail(buffer, on.Failed(str(error), self._clock.monotonic(), remedy=error.remedy))
        if self._context.target is not None:
            self._let_recovery_ask(self._context.target, buffer)
        return called

    def hold_briefly(self, buffer: Buffer | None, batch: Batch | None) -> None:
        """Take back what a target has held too long, also where the task may not call now; it is called again."""
        if buffer is None or batch is None or self._context.target is None:
            return
        if self._clock.monotonic() - batch.began_s >= HELD_S:
            text = f"Kafka's commit took longer than {HELD_S:g} s"
            self._fail(buffer, on.Failed(text, self._clock.monotonic()))

    def _fail(self, buffer: Buffer, failed: on.Event) -> None:
        """Drop what was called ahead; the task recovers when the commit under way is through."""
        with self._lock:
            if self._open.drop(buffer):
                self.failed = failed
        if self._context.target is not None:
            self._context.target.discard()

    def _let_recovery_ask(self, target: TransactionalSink, buffer: Buffer) -> None:
        """
        Take back what was called ahead of a commit that has failed meanwhile: its lock is in the way of `ask`.

        The state comes first. If it is that of a commit, a recovery begins later, and `ask` takes the batch back.
        """
        state = self._open.state()
        if not self._open.is_present(buffer) or state not in COMMITTING | {Doing.READY}:
            target.discard()

"""What the parts of one lane share: what was fetched, what was called and waits for its commit, and the pace."""

from __future__ import annotations

import threading
from typing import Any

from cues_kafka.core import events as on
from cues_kafka.core.spec import Spec
from cues_kafka.core.task import Task
from cues_kafka.graph.declare import CommitPolicy
from cues_kafka.ports.clock import Clock
from cues_kafka.ports.log import Positions
from cues_kafka.task.calling.batch import Batch, Retrying
from cues_kafka.task.calling.caller import Caller
from cues_kafka.task.calling.pairing import Buffer, Cut
from cues_kafka.task.interpreter import Interpreter
from cues_kafka.task.parts.participant import CallContext, Moments
from cues_kafka.task.parts.source import StepSource

FIRST_BATCH = 500
"""Steps of the first batch after a start. Each commit doubles the number, up to the policy's limit. The first batch is
delivered under a snapshot, so after two deaths in it each step is a transaction of its own (Q2). 500 take seconds."""


class Desk:
    """
    What one lane works on.

    `lock` guards `buffer`, and with it all that a recovery makes void: `batch`, `cut`, `retrying` and `failed`. The
    advancing thread replaces them together (`renew`) while the calling thread may still be in user code. So that one
    takes the buffer first, and asks under the lock whether it `is_present` before it leaves something for it. The lock
    is held for a few lines: no call, no wait and no other lock is inside.

    All else belongs to the calling thread, unless it says otherwise.

    Attributes:
        spec, caller, context, at, clock, policy, interpreter: what never changes.
        lock: see above.
        buffer: what was fetched and not yet taken; None before the first recovery.
        batch: what was called and is not closed.
        cut: messages that are announced, and not called yet.
        retrying: earlier calls of the step that comes next.
        failed: what went wrong ahead of a commit; heard when the commit is through (P7).
        retried: whose step that is; None: a message's.
        retry_at_s: when it is called again.
        closed: the batch that waits for its commit; the advancing thread takes it.
        closed_s: when its last call had ended (monotonic).
        worked_on: the buffer that the present event comes of. The advancing thread compares it.
        calling: the steps that are being called, their batch, and how many it had before; for other threads.
        limit: steps of a batch at most; the advancing thread raises it with each commit, and the calling thread with
            each part that a target has committed.
        chunk: steps of a call at the present pace.
        committed_at_s: when the task last wrote; the advancing thread sets it, too.
        due_at_s: when something is due that no message brings.
        ask_at_s: when to work again, whatever comes.
        ahead: whether to work again soon.
        finishing: whether user code is not called.
    """

    def __init__(
        self,
        spec: Spec,
        caller: Caller,
        context: CallContext,
        interpreter: Interpreter,
        *,
        clock: Clock,
        policy: CommitPolicy,
    ) -> None:
        self.spec, self.caller, self.context, self.interpreter = spec, caller, context, interpreter
        self.at: Moments = context.at
        self.clock, self.policy = clock, policy
        self.lock = threading.Lock()
        self.buffer: Buffer | None = None
        self.batch: Batch | None = None
        self.cut: Cut | None = None
        self.retrying: Retrying | None = None
        self.failed: on.Event | None = None
        self.retried: StepSource | None = None
        self.retry_at_s = 0.0
        self.closed: Batch | None = None
        self.closed_s = 0.0
        self.worked_on: Buffer | None = None
        self.calling: tuple[list[Any], Batch, int] | None = None
        self.limit = min(FIRST_BATCH, policy.max_messages)
        self.chunk = 1
        self.committed_at_s = clock.monotonic()
        self.due_at_s: float | None = None
        self.ask_at_s: float | None = None
        self.ahead = self.finishing = False

    @property
    def task(self) -> Task:
        """The task as it is now."""
        return self.interpreter.task

    def renew(self, buffer: Buffer) -> None:
        """A recovery, on the advancing thread: everything that was fetched and called is void."""
        record = self.task.record
        with self.lock:
            self.buffer = buffer
            for part in self.at.attach:
                part.attach(buffer, record)
            self.batch = self.cut = self.retrying = self.failed = None
            most = self.policy.max_messages
            self.limit = min(FIRST_BATCH, most) if self.task.first else most

    def is_present(self, buffer: Buffer) -> bool:
        """Whether no recovery has replaced this buffer."""
        with self.lock:
            return self.buffer is buffer

    def is_void(self) -> bool:
        """Whether a recovery, or the end of the task, has voided what was called."""
        return self.buffer is not self.worked_on or self.interpreter.gate.closed

    def put(self, buffer: Buffer, cut: Cut) -> bool:
        """Keep what is announced; whether it is not void."""
        with self.lock:
            if self.buffer is not buffer:
                return False
            self.cut = cut
            return True

    def take_cut(self, buffer: Buffer) -> Cut | None:
        """What was announced; None: it is void, or it was not messages."""
        with self.lock:
            if self.buffer is not buffer:
                return None
            cut, self.cut = self.cut, None
            return cut

    def drop(self, buffer: Buffer, failed: on.Event) -> None:
        """Drop what was called ahead; the task recovers when the commit under way is through."""
        with self.lock:
            if self.buffer is buffer:
                self.batch, self.failed = None, failed

    def fail(self, text: str, remedy: str = "") -> on.Event:
        """The event for an input that cannot be read on (A2, R6), or for something else that does not answer."""
        return on.Failed(text, self.clock.monotonic(), remedy=remedy)

    def ends(self, task: Task) -> Positions:
        """S5: the ends that a snapshot holds."""
        return next((part.ends(task) for part in self.at.ends), ())

"""A target that commits the steps of a task together with its attempt, before Kafka does: a database (E1)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from cues_kafka.core.tails import behind
from cues_kafka.core.task import Task
from cues_kafka.core.writing import owner_of, row_of
from cues_kafka.errors import OutputError
from cues_kafka.ports.log import Coordinates
from cues_kafka.ports.target import HeldAttempt, TransactionalSink
from cues_kafka.records.held import held_of
from cues_kafka.sinks.calls import Surroundings
from cues_kafka.task.ahead import check_follows
from cues_kafka.task.calling.batch import Batch, Retrying
from cues_kafka.task.calling.failures import Delivering
from cues_kafka.task.calling.outage import Outage
from cues_kafka.task.calling.step import Received
from cues_kafka.task.parts.part_commits import is_part
from cues_kafka.task.parts.participant import Moments, Run, StepParticipant

COMMIT_TARGET: Final = "CommitTarget"
"""The crash point before and after the commit of the target (E1)."""


class FailedTogether(BaseException):
    """A step failed in a chunk that is called in one go; what it wrote to a target cannot be told from the others'."""


class Committing(StepParticipant):
    """Has a target commit the batches of its task ahead of Kafka's transaction."""

    apart = True  # what is written belongs to the step that began last

    def __init__(self, target: TransactionalSink, *, calls: bool) -> None:
        """
        Args:
            target: the target.
            calls: whether the function also makes calls that have a journal (E4).
        """
        self._target, self._calls = target, calls

    def connect(self, around: Surroundings) -> None:
        self._point = around.point

    def expect(self) -> None:
        self._target.expect()

    def ask(self, owner: int, step: int) -> HeldAttempt | None:
        return self._target.ask(owner, step)

    def outbox(self) -> Sequence[tuple[Any, ...]]:
        return list(self._target.outbox())

    def void(self) -> None:
        self._target.discard()

    def free(self) -> None:
        """Its lock, and what the calls have locked, may be in the way of a recovery or of other tasks."""
        self._target.discard()

    def close(self, *, orderly: bool = True) -> None:
        self._target.close() if orderly else self._target.close(orderly=False)

    # A batch

    def may_hold(self, *, sole: bool) -> bool:
        """See `TransactionalSink.ahead`; answers of calls would show outside of Kafka what is called ahead."""
        return self._target.ahead and sole and not self._calls

    def begin_batch(self, batch: Batch, task: Task) -> None:
        """It begins behind the attempt that is being committed, where the batch is called ahead of that commit."""
        self._target.begin_batch(owner_of(task), task.next_base)

    def before_chunk(self, batch: Batch, task: Task, given_up: Callable[[], bool]) -> None:
        """If all that was called is committed, begin the next part."""
        if batch.kept and batch.kept == batch.deliveries:
            self._target.begin_batch(owner_of(task), task.next_base + batch.kept)

    def keep(self, batch: Batch, task: Task, *, limit: int, void: Callable[[], bool]) -> bool:
        """Commit a part, and have Kafka's transaction come behind a later one."""
        now_s = batch.now()
        # Answers of calls are records, too, and each later part would write them again.
        if self._calls or not self._target.parts or not is_part(task, batch, limit=limit, now_s=now_s) or void():
            return False
        check_follows(task, batch)
        self._point("before", COMMIT_TARGET)
        self._target.start_commit(self._attempt(batch, task))
        self._point("after", COMMIT_TARGET)
        return True

    def seal(self, batch: Batch, task: Task, caller: Any) -> None:
        """E1: commit what the steps wrote, with their outcomes. Kafka's transaction comes behind."""
        if batch.deliveries == batch.kept:  # a transaction may have begun, for a step that did not end
            self._target.finish_commit()
            self._target.discard()
        else:
            self._commit(batch, task)

    def _commit(self, batch: Batch, task: Task) -> None:
        check_follows(task, batch)
        self._point("before", COMMIT_TARGET)
        self._target.commit(self._attempt(batch, task), batch.records)
        self._point("after", COMMIT_TARGET)

    def _attempt(self, batch: Batch, task: Task) -> HeldAttempt:
        row = row_of(task, batch.ends, batch.totals, batch.behind)
        return held_of(behind(task, row, batch.tails, put_off=batch.halt is not None))

    # Steps

    def run(self, inner: Run, caller: Any, steps: Sequence[Any], batch: Batch, retrying: Retrying | None) -> int:
        """
        Call for the chunk in one go; where a step fails, take all of it back, and call step by step.

        A savepoint for each step would cost two round trips for each message. What takes back single steps only, such
        as stores, cannot take back several: with that each step has its own.
        """
        before = batch.begun_by_messages
        at: Moments = batch.context.at
        together = at.undo_step == (self,) and not self._target.alone
        try:
            if not (retrying is None and together and len(steps) > 1 and self._together(inner, steps, batch)):
                self._one_by_one(caller, steps, batch, retrying)
        finally:
            self._target.rest()
        return batch.begun_by_messages - before

    def _together(self, inner: Run, steps: Sequence[Any], batch: Batch) -> bool:
        """Call in one go; False: a step failed, and all is taken back."""
        before = batch.mark()
        self._target.mark()
        batch.tentative = True
        try:
            inner(steps, batch, None)
            if not self._target.check():
                return True
        except FailedTogether:
            self._target.finish_commit()
        finally:
            batch.tentative = False
        batch.back_to(before)
        batch.closed = False
        self._target.back()
        return False

    def _one_by_one(self, caller: Any, steps: Sequence[Any], batch: Batch, retrying: Retrying | None) -> None:
        for taken in caller.through(steps):
            before = batch.mark()
            self._target.mark()
            ended = caller.one.deliver(taken, batch, retrying)
            if ended and (why := self._target.check()):
                batch.back_to(before)
                ended = caller.ending.fail(OutputError(why), Delivering(taken, batch, retrying, kind="raised"))
            batch.closed = batch.closed or self._target.alone
            if not ended or batch.closed:
                return
            retrying = None
            if not caller.goes_on(batch):
                return

    def undo_step(self, error: BaseException, step: Delivering) -> None:
        """
        See `StepParticipant`.

        Raises:
            Outage: the target is why the step failed.
            FailedTogether: the step is called in one go with others.
        """
        if why := self._target.outage(error):
            raise Outage(why, code="TARGET") from error
        if step.batch.tentative:
            raise FailedTogether from error
        self._target.back()

    def rest(self) -> None:
        self._target.rest()

    def mark(self) -> None:
        self._target.mark()

    def check(self) -> str:
        return self._target.check()

    @property
    def alone(self) -> bool:
        return self._target.alone


class Placing(Committing):
    """The same for a target whose rows tell older from newer by the places of their messages (E2)."""

    each = True  # a row names the message of its own call

    def __init__(
        self, target: TransactionalSink, placed: Callable[[Sequence[Coordinates]], None], *, calls: bool
    ) -> None:
        super().__init__(target, calls=calls)
        self._placed = placed

    def begin_step(self, step: Delivering, received: Mapping[str, Received]) -> None:
        self._placed([_place_of(received, step.batch)])

    def begin_list(self, steps: Sequence[Delivering], received: Sequence[Mapping[str, Received]]) -> None:
        self._placed([_place_of(came, step.batch) for step, came in zip(steps, received, strict=True)])


def _place_of(received: Mapping[str, Received], batch: Batch) -> Coordinates:
    """Where the message of a processor with one input stands."""
    [(binding, one)] = received.items()
    if batch.replayed is not None:
        return batch.replayed.consumed[0]
    return Coordinates(binding, batch.topic_ids[binding], one.partition, one.offset)

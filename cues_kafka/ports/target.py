"""Where the calls of a task write besides Kafka."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple, Protocol


class Sink(Protocol):
    """
    Where the calls of one task write besides Kafka, such as a database; for processors with `effects=True`.

    The lane tells it how a batch goes, so that it can keep the batch's effects in a transaction of its own. All calls
    come on the thread that calls the function, but for `after_commit` and `discard`. A method that raises
    `RetriableError` sends the task back to R1, as a broker that does not answer does.
    """

    def begin_batch(self, sequence: int) -> None:
        """Steps will be called for the attempt of this sequence number."""
        ...

    def begin_step(self) -> None:
        """The function is called next. What it writes belongs to this step until the next one begins."""
        ...

    def undo_step(self) -> None:
        """Take back what the step wrote: it became an error message, or it did not end."""
        ...

    def before_commit(self, sequence: int, records: Iterable[tuple[Any, ...]]) -> None:
        """All steps of the batch have ended, and Kafka's transaction comes next (P5).

        Args:
            sequence: of the attempt.
            records: what the batch will produce, shaped like `Outgoing`.
        """
        ...

    def after_commit(self, sequence: int) -> None:
        """Kafka's transaction is committed."""
        ...

    def discard(self) -> None:
        """The batch is void. May come at any time, twice, on any thread, and while a step still runs."""
        ...


class HeldAttempt(NamedTuple):
    """The newest attempt of a task that its target has committed (E1).

    Attributes:
        base: step number of the record that the attempt was made over.
        step: step number behind it.
        owner: sequence of the first record of the start that made it.
        attempt: the rest of it, as text that the runtime reads.
    """

    base: int
    step: int
    owner: int
    attempt: str


class TransactionalSink(Protocol):
    """
    Where the calls of one task write besides Kafka in a transaction that also keeps the attempt (E1): a database.

    Methods raise `RetriableError` where the target does not answer, or does not hold what the task goes on from: the
    task recovers, asks again, and decides by the answer. All calls come on the thread that calls the function, but for
    `ask` and `outbox`, on the thread that recovers the task, and `discard` and `close`.
    """

    @property
    def value(self) -> Any:
        """What the function is given."""
        ...

    @property
    def ahead(self) -> bool:
        """
        Whether a batch may be called while Kafka's commit of the one before is under way (P7).

        It holds the task's lock, and what calls have locked, until that commit is through; other tasks go on beside.
        """
        ...

    @property
    def alone(self) -> bool:
        """
        Whether the step that is called next is to be the only one of its batch.

        A transaction of several steps has failed as a whole, and nothing but the next try shows which one did it.
        """
        ...

    @property
    def parts(self) -> bool:
        """
        Whether it may commit a batch in several transactions, and Kafka's comes behind the last of them.

        Each of them has the attempt of all steps since Kafka's newest record, and the later ones begin at its step.
        """
        ...

    def expect(self) -> None:
        """
        A snapshot of the first steps was committed, so it has been asked before.

        Raises:
            RetriableError: it holds nothing of the task, and that does not mean that nothing was written.
        """
        ...

    def ask(self, owner: int, step: int) -> HeldAttempt | None:
        """
        The newest attempt. Waits for one that is being committed, and ends what a former process left open.

        In the same transaction, where it stands at this step, is made over it, or nothing is known of the task and the
        step is 0, it notes the owner: batches of smaller ones are refused from now on.
        """
        ...

    def outbox(self) -> Iterable[tuple[Any, ...]]:
        """The records of the newest attempt, shaped like `Outgoing`."""
        ...

    def newest(self) -> HeldAttempt | None:
        """The newest attempt; nothing is noted."""
        ...

    @property
    def torn(self) -> bool:
        """Whether the target lacks something below what it holds, so that no task goes on before `settle`."""
        ...

    def settle(self, held: HeldAttempt, was: HeldAttempt | None) -> bool:
        """
        Have the target stand where this attempt ends, with an empty outbox, as an operator wants it.

        Args:
            held: the attempt; smaller owners are refused from now on.
            was: what was found before.

        Returns:
            False: it holds something else by now, and nothing was changed.
        """
        ...

    def begin_batch(self, owner: int, step: int) -> None:
        """
        Begin a transaction for steps behind `step`, under the lock of the task.

        Raises:
            RetriableError: the newest attempt ends at another step, another process has the lock or is a later owner.
        """
        ...

    def mark(self) -> None:
        """What is written from now on can be taken back by `back`."""
        ...

    def back(self) -> None:
        """Take back what was written since the last `mark`."""
        ...

    def check(self) -> str:
        """
        Why what was written since the last `mark` cannot be committed, although no exception left the function.

        Raises:
            RetriableError: nothing of the batch can be committed any more.
        """
        ...

    def outage(self, error: BaseException) -> str:
        """Why the batch must be called again, if this exception of the function says so; empty: it is the step's."""
        ...

    def commit(self, held: HeldAttempt, records: Iterable[tuple[Any, ...]]) -> None:
        """Commit the transaction, with the attempt and the records that Kafka gets in it."""
        ...

    def start_commit(self, held: HeldAttempt) -> None:
        """
        Begin to commit a part of a batch, and perhaps do not wait for the answer. What follows is the next transaction.

        `commit`, the next `start_commit` and `ask` wait for it first. Kafka's transaction comes behind `finish_commit`.
        """
        ...

    def finish_commit(self) -> None:
        """
        Wait until all that was begun is committed.

        Raises:
            RetriableError: it is not, or that is not known.
        """
        ...

    def rest(self) -> None:
        """No call is under way: end what `discard` could not end."""
        ...

    def discard(self) -> None:
        """The batch is void. May come at any time, twice, on any thread, and while a step still runs."""
        ...

    def close(self, *, orderly: bool = True) -> None:
        """The task is given up; `orderly=False`: at once, as when the process is killed."""
        ...

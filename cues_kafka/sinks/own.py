"""A target of a user's own as the target of one task (E1): what `Transactions` leaves out is here.

Writes are collected while the function is called, so that a step is taken back by dropping them. No transaction is
open while user code runs, unless the target takes writes early (`Writes`). The commit is one transaction of the target:
the writes, and the kept bytes in place of those that this process knows of. After any failure the process knows of
none, and asks.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from cues_kafka.errors import CodecError, CuesError, OutputError, RetriableError
from cues_kafka.graph.effects import Effect
from cues_kafka.graph.targets import TargetMoved, TargetPart, TaskName, TransactionalTarget, Transactions
from cues_kafka.ports.target import HeldAttempt
from cues_kafka.sinks.guard import CallInProgress, Lone
from cues_kafka.sinks.kept import Kept
from cues_kafka.sinks.turns import TaskTarget
from cues_kafka.sinks.writes import Writes

CLAIMS: Final = 20
"""How many commits of others one question passes before it says that the task is run twice."""

_ALONE: Final = "The next steps are committed one by one, to find the step that is refused"
_REFUSED: Final = (
    "correct what the function writes, or what the target takes. With an errors topic the message becomes an error "
    "message by itself"
)


class OwnTarget(TaskTarget):
    """
    The target of one task; a `ports.TransactionalSink`.

    Attributes:
        values: what the function is given, by name.
    """

    what = "target"

    def __init__(self, home: TransactionalTarget, task: TaskName, declared: Mapping[str, Effect]) -> None:
        super().__init__(task)
        self._home = home
        self._opened: Transactions | None = None
        self._kept: Kept | None = None  # as far as this process knows
        self._writes = Writes()
        self._caller = 0  # the thread that calls the function
        self._begun: tuple[int, int] | None = None  # owner and step of the open batch
        self._started: int | None = None  # the step at which the commit under way began
        self._lone, self._present = Lone(), CallInProgress()
        self.value: Any = home.value(self._write)
        self.values: dict[str, Any] = {
            name: one.value(self._write) if isinstance(one, TargetPart) else self.value
            for name, one in declared.items()
        }

    def _write(self, item: Any) -> None:
        if self._begun is None:
            raise RuntimeError("what effects= gives is valid only during the call of the function")
        self._present.check()
        if self._writes.add(item) and threading.get_ident() == self._caller and self._lock.acquire(blocking=False):
            try:  # who has the lock discards the batch, or closes the target
                if not self._void:
                    self._writes.hand_on_early(self._opened)
            finally:
                self._lock.release()

    @property
    def alone(self) -> bool:
        return self._begun is not None and self._lone.holds(self._begun[1])

    @property
    def ahead(self) -> bool:
        """See `ports.TransactionalSink`. Nothing is locked while user code runs."""
        return True

    @property
    def parts(self) -> bool:
        return True

    # Recovery

    def expect(self) -> None:
        if not self._home.apart or self.newest() is not None:
            return
        lost = self._retriable("it keeps nothing, although the first batch was begun: what it kept was deleted")
        lost.remedy = (
            "see whether the messages of that batch are there. If not, begin with it: `cues-kafka reset MODULE:GRAPH "
            f"{self._task.processor} --to here`. If they are, then go behind them, with `--to FILE`"
        )
        raise lost

    def ask(self, owner: int, step: int) -> HeldAttempt | None:
        """See `ports.TransactionalSink`. It fences each time: a commit without an answer may arrive later."""
        self.discard()
        with self._lock:
            self._end_open()
            self._started = None  # what is found tells whether it was committed
            for _ in range(CLAIMS):
                found = self._kept = self._newest()
                if found is None:
                    if step:
                        return None
                    claim = Kept.of(HeldAttempt(0, 0, owner, ""))
                elif step not in found.held[:2] or found.held.owner > owner:
                    return found.held
                else:
                    claim = found.owned(owner)
                if self._fence(claim, found):
                    self._kept = claim
                    return None if found is None else found.held
        raise self._retriable("other processes commit one attempt after the other; is this task run twice?")

    def newest(self) -> HeldAttempt | None:
        with self._lock:
            found = self._newest()
            return None if found is None else found.held

    @property
    def torn(self) -> bool:
        """See `ports.TransactionalSink`. What is kept has nothing below it."""
        return False

    def settle(self, held: HeldAttempt, was: HeldAttempt | None) -> bool:
        with self._lock:
            found = self._newest()
            if (None if found is None else found.held) != was:
                return False
            owner = max(held.owner, was.owner if was else 0)
            return self._fence(Kept.of(held._replace(owner=owner)), found)

    def outbox(self) -> Iterable[tuple[Any, ...]]:
        with self._lock:
            found = self._kept or self._newest()
        try:
            return [] if found is None else list(found.records())
        except CodecError as error:
            raise self._retriable(str(error)) from error

    def _newest(self) -> Kept | None:
        try:
            data = self._transactions().ask()
            return None if data is None else Kept.read(data)
        except Exception as error:
            self._drop()
            raise self._failed(error) from error

    def _fence(self, kept: Kept, over: Kept | None) -> bool:
        """Have the target keep this; False: it keeps something else by now."""
        try:
            self._transactions().fence(kept.data, over.data if over else None)
        except TargetMoved:
            self._drop()
            return False
        except Exception as error:
            self._drop()
            raise self._failed(error) from error
        return True

    def _transactions(self) -> Transactions:
        if self._opened is None:
            self._opened = self._home.open(self._task)
        return self._opened

    def _failed(self, error: Exception) -> RetriableError:
        """What any exception but `TargetMoved` and a refusal means: the target does not answer, or not in time."""
        text = " ".join(str(error).split())
        why = text if isinstance(error, CuesError) else f"{type(error).__name__}: {text}"
        failed = self._retriable(why)
        failed.remedy = error.remedy if isinstance(error, CuesError) else ""
        return failed

    # A batch

    def begin_batch(self, owner: int, step: int) -> None:
        """See `TransactionalSink`. Nothing is requested: whether the task still owns it shows at the commit."""
        with self._lock:
            self._renew()
            held = self._kept.held if self._kept else None
            if held is None or held.step != step or held.owner > owner:
                where = "was not asked yet" if held is None else f"is at step {held.step}, owner {held.owner}"
                raise self._retriable(f"it {where}; the task is at step {step}, owner {owner}, and asks again")
            self._begun = owner, step

    def mark(self) -> None:
        with self._lock:
            self._check_void()
            self._calling, self._caller = True, threading.get_ident()
        self._writes.mark()
        self._present.begin()

    def back(self) -> None:
        self._writes.back()

    def check(self) -> str:
        self._check_void()
        return self._lone.refused(self._begun[1]) if self._begun and self.alone else ""

    def outage(self, error: BaseException) -> str:
        if self._begun is None:
            return f"the {self.what} of {self._task}: the batch has ended"
        return str(error) if isinstance(error, RetriableError) and error.code == "TARGET" else ""

    def commit(self, held: HeldAttempt, records: Iterable[tuple[Any, ...]]) -> None:
        self._commit(Kept.of(held, records), wait=True)

    def start_commit(self, held: HeldAttempt) -> None:
        """See `TransactionalSink`. It waits for the answer if the next steps are committed one by one."""
        self._commit(Kept.of(held), wait=self.alone)

    def finish_commit(self) -> None:
        with self._lock:
            if (step := self._started) is None:
                return
            if self._opened is None:
                raise self._retriable("the connection was closed before a commit was answered")
            self._finish(self._opened, step)

    def _commit(self, kept: Kept, *, wait: bool) -> None:
        with self._lock:
            self._check_void()
            over, begun, writes = self._kept, self._begun, self._writes
            if over is None or begun is None:
                raise self._retriable("no batch is open")
            # From here on it may be committed, whatever is answered. So nothing is known of it until it is.
            self._kept, self._begun, self._writes = None, None, Writes()
            with self._committing(begun[1]):
                opened = self._transactions()
                writes.hand_on(opened)
            if self._started is not None:
                self._finish(opened, self._started)
            with self._committing(begun[1]):
                self._check_void()  # the last look: what is discarded behind it may be committed, and `ask` finds it
                if wait:
                    opened.commit(kept.data, over.data)
                    self._lone.committed(begun[1])
                else:
                    opened.start_commit(kept.data, over.data)
                    self._started = begun[1]
            self._kept = kept

    def _finish(self, opened: Transactions, step: int) -> None:
        with self._committing(step):
            opened.finish_commit()
        self._started = None
        self._lone.committed(step)

    @contextmanager
    def _committing(self, step: int) -> Iterator[None]:
        """Drop the connection where the commit of the steps from this one fails, and say what that means."""
        try:
            yield
        except TargetMoved as error:
            self._drop()
            raise self._retriable("another process has committed since: this one is no longer the owner") from error
        except OutputError as error:
            self._drop()
            self._lone.suspect(step, str(error))
            raise RetriableError(
                f"the {self.what} of {self._task} refuses what was written: {error}. {_ALONE}",
                code="TARGET",
                remedy=_REFUSED,
            ) from error
        except Exception as error:
            self._drop()
            raise self._failed(error) from error
        except BaseException:
            self._drop()
            raise

    # Endings

    def _end_open(self) -> None:
        self._begun, self._writes = None, Writes()

    def _stop(self) -> None:
        self._end_open()
        self._drop()

    def _drop(self) -> None:
        """Close the connection, which takes an open transaction back; what is kept is to be asked."""
        opened, self._opened, self._kept = self._opened, None, None
        if opened is not None:
            opened.close()

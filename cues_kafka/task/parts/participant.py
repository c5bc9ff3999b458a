"""What takes part in a task's batches and steps beside its messages: the moments, and who does something at which.

Every moment is empty here. A participant overrides those at which it does something, and `Moments` gives the lane and
the caller the tuple of these for each moment. A plain pipe has no participant: all of its tuples are empty.

The thread of a moment is in its heading. *Advancing* is the thread that hands events to the task, one at a time, and
*calling* the one that calls the function. A task in its recovery is not called, but the call of before may still run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

from cues_kafka.core.records import Record
from cues_kafka.core.task import Task
from cues_kafka.ports.log import Headers, Positions
from cues_kafka.ports.target import HeldAttempt
from cues_kafka.sinks.calls import Surroundings
from cues_kafka.task.calling.batch import Batch, Retrying
from cues_kafka.task.calling.columns import Columns
from cues_kafka.task.calling.failures import Delivering
from cues_kafka.task.calling.outputs import Payload
from cues_kafka.task.calling.pairing import Buffer
from cues_kafka.task.calling.step import Received

Run: TypeAlias = Callable[[Sequence[Any], Batch, Retrying | None], int]
"""Calls the function for steps in order, up to one that must not end yet; gives how many messages' steps ended."""

Kind = TypeVar("Kind")


class Participant:
    """
    The moments of a task and of its batches.

    A method that raises `RetriableError` sends the task back to R1, as a broker that does not answer does.
    """

    # Advancing: a recovery

    def connect(self, around: Surroundings) -> None:
        """The lane is made. On the thread that makes it."""

    def attach(self, buffer: Buffer, record: Record | None) -> None:
        """A recovery has made a new buffer: what is void with it hangs on it. Under the lane's lock, so never wait."""

    def restore(self, record: Record | None, positions: Positions) -> None:
        """R6: become what the newest record says. Everything of before is void. May wait, until the gate is closed."""

    def expect(self) -> None:
        """E1: it has been asked before; see `ports.target.TransactionalSink`."""

    def ask(self, owner: int, step: int) -> HeldAttempt | None:
        """E1: what was committed ahead of Kafka; see `ports.target.TransactionalSink`."""

    def outbox(self) -> Sequence[tuple[Any, ...]]:
        """E1: the records of that; see `ports.target.TransactionalSink`."""
        return ()

    # Advancing: a batch has ended

    def committed(self, batch: Batch, record: Record) -> None:
        """The batch is committed: the newest record shows it (R4)."""

    def moved(self, positions: Positions) -> None:
        """The task has moved over markers alone (P1)."""

    # Any thread, at any time, twice, and while a step still runs

    def void(self) -> None:
        """What was called, and is not committed, is void."""

    def free(self) -> None:
        """What was called ahead of a commit (P7) is void, and that commit is not: let go of what others wait for."""

    def close(self, *, orderly: bool = True) -> None:
        """The task is given up; `orderly=False`: at once, as when the process is killed."""

    # Calling: a batch

    @property
    def missed(self) -> int:
        """How often what calls wait for was not there in time."""
        return 0

    def broken(self) -> str | None:
        """Why no batch may begin: the task recovers."""

    def may_hold(self, *, sole: bool) -> bool:
        """
        P7: whether a batch may be called while Kafka's commit of the one before is under way.

        Args:
            sole: whether no other task is called on this thread, which could wait for what this one has locked.
        """
        return True

    def idle(self, now_s: float) -> float | None:
        """No step is to be called; when to say so again."""

    def ends(self, task: Task) -> Positions:
        """S5: the ends that a snapshot holds."""
        return ()

    def begin_batch(self, batch: Batch, task: Task) -> None:
        """A batch is open. It may halt it; then no participant behind it hears of the batch."""

    def before_chunk(self, batch: Batch, task: Task, given_up: Callable[[], bool]) -> None:
        """Messages, or timers, are called next. May wait; meanwhile nothing counts as a call that takes long."""

    def keep(self, batch: Batch, task: Task, *, limit: int, void: Callable[[], bool]) -> bool:
        """E1: commit what was called, if more is called before Kafka's transaction; whether it did."""
        return False

    def seal(self, batch: Batch, task: Task, caller: Any) -> None:
        """All steps have ended, and Kafka's transaction comes next (P5): add what belongs to it. May halt the batch."""


class StepParticipant(Participant):
    """
    The moments of a step, all of them calling.

    Attributes:
        each: whether every step must be called by itself, with all of these moments. Else `following` takes the place
            of `begin_step` in the loops that call a chunk in one go.
        apart: whether no two steps may be under way at once.
    """

    each = False
    apart = False

    # A chunk

    def begin_chunk(self, steps: Sequence[Any], batch: Batch, retrying: Retrying | None, caller: Any) -> None:
        """These steps come next."""

    def end_chunk(self, batch: Batch) -> None:
        """The chunk is over, however it ended."""

    def run(self, inner: Run, caller: Any, steps: Sequence[Any], batch: Batch, retrying: Retrying | None) -> int:
        """Call for these steps by `inner`, or step by step; see `Caller.run`."""
        return inner(steps, batch, retrying)

    def chosen(self, steps: Sequence[Any]) -> Sequence[int]:
        """The indices of steps that are called by themselves, where the others are called in one go."""
        return ()

    def enter_list(self, batch: Batch) -> None:
        """The steps of the chunk are called together, with one call of the function (`batch=True`)."""

    def following(self, call: Callable[[Any], Any], time: Callable[[], Callable[[], int]]) -> Callable[[Any], Any]:
        """
        The call of the function for one value, which begins a step.

        Args:
            call: the call.
            time: makes what gives the timestamp of the message whose step is called.
        """
        return call

    def rest(self) -> None:
        """No call is under way."""

    # A step that is called by itself

    def enter_step(self, step: Delivering) -> None:
        """It is taken up, and is not decoded yet."""

    def leave_step(self, step: Delivering) -> None:
        """It is over, or another thread's to end."""

    def introduce(self) -> Mapping[str, Any]:
        """What the `Step` that the function gets is made with besides."""
        return {}

    def begin_step(self, step: Delivering, received: Mapping[str, Received]) -> None:
        """The function is called next."""

    def begin_list(self, steps: Sequence[Delivering], received: Sequence[Mapping[str, Received]]) -> None:
        """The function is called next, once for all of these steps (`batch=True`)."""

    def wrap(self, made: Any, step: Delivering) -> Any:
        """What an ``async def`` has given."""
        return made

    def outputs(self, payloads: list[Payload], step: Delivering) -> list[Payload]:
        """What the step sends, if the function has returned this."""
        return payloads

    def travel(self, headers: Headers, step: Delivering) -> Headers:
        """The headers that travel to the outputs and the error message. They give way where they do not fit."""
        return headers

    def columns(self, columns: Columns, data: Sequence[bytes | None], batch: Batch) -> Columns:
        """The same, for all steps of a list in one go, which have ended."""
        return columns

    def end_step(self, step: Delivering) -> None:
        """It has an outcome, and its records are in the batch; see `Delivering.outcome`."""

    def between(self, caller: Any, batch: Batch) -> bool:
        """A step has ended; whether the next one may begin."""
        return True

    # A step that failed

    def failing(self, error: BaseException, step: Delivering) -> None:
        """It raised, or it cannot be decoded or sent. What it did is not taken back yet."""

    def undo_step(self, error: BaseException, step: Delivering) -> None:
        """Take back what the step did: it becomes an error message, or does not end. It was called."""

    def may_end(self, error: BaseException, step: Delivering) -> bool:
        """Whether the step may become an error message, or halt the batch; else it is called again first."""
        return True

    def failed(self, error: BaseException, step: Delivering, *, ended: bool) -> None:
        """It became an error message, or it has not ended; also where something else was raised on the way."""

    # A step that is called by itself within a batch of others

    def mark(self) -> None:
        """What is written from now on can be taken back by `undo_step`."""

    def check(self) -> str:
        """Why what was written since `mark` cannot be committed, although no exception left the function."""
        return ""

    @property
    def alone(self) -> bool:
        """Whether the step that is called next is to be the only one of its batch."""
        return False


_BACKWARDS = ("end_chunk", "end_step", "undo_step")
"""What is ended or taken back goes the other way round: the one that began last comes first."""


class Moments:
    """The participants of one task: for each moment those that do something then, in their order."""

    connect: tuple[Participant, ...]
    attach: tuple[Participant, ...]
    restore: tuple[Participant, ...]
    ask: tuple[Participant, ...]
    committed: tuple[Participant, ...]
    moved: tuple[Participant, ...]
    void: tuple[Participant, ...]
    free: tuple[Participant, ...]
    close: tuple[Participant, ...]
    broken: tuple[Participant, ...]
    may_hold: tuple[Participant, ...]
    idle: tuple[Participant, ...]
    ends: tuple[Participant, ...]
    begin_batch: tuple[Participant, ...]
    before_chunk: tuple[Participant, ...]
    keep: tuple[Participant, ...]
    seal: tuple[Participant, ...]
    begin_chunk: tuple[StepParticipant, ...]
    end_chunk: tuple[StepParticipant, ...]
    run: tuple[StepParticipant, ...]
    chosen: tuple[StepParticipant, ...]
    enter_list: tuple[StepParticipant, ...]
    following: tuple[StepParticipant, ...]
    rest: tuple[StepParticipant, ...]
    enter_step: tuple[StepParticipant, ...]
    leave_step: tuple[StepParticipant, ...]
    introduce: tuple[StepParticipant, ...]
    begin_step: tuple[StepParticipant, ...]
    begin_list: tuple[StepParticipant, ...]
    wrap: tuple[StepParticipant, ...]
    outputs: tuple[StepParticipant, ...]
    travel: tuple[StepParticipant, ...]
    columns: tuple[StepParticipant, ...]
    end_step: tuple[StepParticipant, ...]
    between: tuple[StepParticipant, ...]
    failing: tuple[StepParticipant, ...]
    undo_step: tuple[StepParticipant, ...]
    may_end: tuple[StepParticipant, ...]
    failed: tuple[StepParticipant, ...]
    mark: tuple[StepParticipant, ...]
    alone: tuple[StepParticipant, ...]

    def __init__(self, parts: Sequence[Participant]) -> None:
        stepwise = [one for one in parts if isinstance(one, StepParticipant)]
        for name in Moments.__annotations__:
            found = _overriding(name, parts if hasattr(Participant, name) else stepwise)
            setattr(self, name, found[::-1] if name in _BACKWARDS else found)
        self.flat = not any(one.each for one in stepwise)
        """Whether chunks may be called in one go."""
        self.side_by_side = not any(one.apart for one in stepwise)
        """Whether several steps may be under way at once."""


def _overriding(name: str, parts: Sequence[Any]) -> tuple[Any, ...]:
    empty = getattr(StepParticipant, name)
    return tuple(one for one in parts if getattr(type(one), name) is not empty)


@dataclass(frozen=True, slots=True)
class CallContext:
    """
    What the calls of one task have besides their messages.

    Attributes:
        values: the values of parameters from `opts=`, `system=` and their like, by name.
        parts: what takes part, in the order of `order`.
        at: those of them for each moment.
    """

    values: Mapping[str, Any]
    parts: Sequence[Participant] = ()
    at: Moments = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "at", Moments(self.parts))

    def part(self, kind: type[Kind]) -> Kind | None:
        """The participant of this class; None: the task has none."""
        return next((one for one in self.parts if isinstance(one, kind)), None)

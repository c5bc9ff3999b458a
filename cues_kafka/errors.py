"""The exception tree, named by what the reader must do.

::

    CuesError
    ├── GraphError          fix the declaration
    ├── ConfigError         fix the setting that is named
    │   ├── LoginError          fix the login or the certificates; a BrokerError, too
    │   ├── MissingExtra        install the extra; an ImportError, too
    │   └── TopicsMissing       create the topics, or allow the start to
    ├── OutputError         fix what the function returned
    ├── CodecError          fix the message or its codec
    ├── FactoryError        repair what a factory of ``system=`` connects to
    ├── RecoveryError       decide: the task refuses to go on by itself
    ├── TaskStopped         read the cause, fix it, start again
    ├── CallError           see the text: a call of ``effects=`` gave no answer that can be used
    │   ├── CallUnanswered      name it in ``retry=``: the server is away, or asks to wait
    │   ├── CallRefused         look at ``response``: ``raise_for_status`` met a status of 400 or above
    │   ├── AnswerTooLarge      raise the limit that is named
    │   └── CallChanged         make the function ask the same on every attempt
    ├── Unknown             ask again, or decide: it is not known whether a message was sent
    ├── TaskElsewhere       ask the process that runs the task, or read a table
    └── BrokerError         nothing: the task discards its producer and recovers
        ├── RetriableError      the cluster did not answer (yet)
        ├── AbortableError      this transaction is over
        └── FatalError          this client is over; ``fenced`` says that another one took its place
            └── UnreadableError     raise the setting that is named, or go on behind what the client refuses
    BaseException
    ├── Interrupt           raised by user code that wants its task to stop
    └── Fenced              raised into user code whose task another worker has by now

The docstring of a class is its default message: cause first, remedy second.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

_CONTEXT = "__cues_context__"


@contextmanager
def error_context(**fields: object) -> Iterator[None]:
    """
    Add fields to the error message of any exception that leaves a block of code.

    Write ``with error_context(order=order.id):``. Blocks may lie inside each other, in functions that know nothing of
    each other. The message has the fields of all of them, with those of the exceptions that led to this one. Where two
    have one name, the inner one counts.
    """
    try:
        yield
    except BaseException as error:
        error.__dict__[_CONTEXT] = {**{name: str(value) for name, value in fields.items()}, **context_of(error)}
        raise


def context_of(error: BaseException) -> Mapping[str, str]:
    """What `error_context` has added to one exception."""
    found: Mapping[str, str] = error.__dict__.get(_CONTEXT, {})
    return found


class CuesError(Exception):
    """Something failed in cues-kafka. See the subclass's message."""

    def __init__(self, message: str | None = None, *, remedy: str = "") -> None:
        super().__init__(message or " ".join((type(self).__doc__ or "").split()))
        self.remedy = remedy  # what to do if a task stops because of it; empty: what helps most tasks


class GraphError(CuesError):
    """The graph's declaration contradicts itself. Change the declaration as the message says."""


class ConfigError(CuesError):
    """A setting is missing, unknown, or contradicts the guarantee. Change the setting that is named."""


class MissingExtra(ConfigError, ImportError):
    """A package of an extra is not installed. Install the extra that is named."""


class TopicsMissing(ConfigError):
    """Topics do not exist, and this start must not create them. Create them first, or allow it."""


class OutputError(CuesError):
    """A function returned what its declaration does not allow. Return what `outputs=` declares."""


class CodecError(CuesError):
    """A message does not fit the codec of its topic. Fix the message or the codec of the topic."""


class FactoryError(CuesError):
    """A factory of `system=` keeps failing. Repair what it connects to (``__cause__``), then start again."""


class RecoveryError(CuesError):
    """A task cannot go on without losing or repeating data. Follow the remedy that is named."""


class TaskStopped(CuesError):
    """A task stopped and waits. Fix the cause (``__cause__``); it is recovered again with back-off."""


class HandlerFailed(CuesError):
    """A method of a state handler failed or took too long. Fix it; the task is tried again with back-off."""


class LateMessage(CuesError):
    """A message came after its window was closed. Declare a longer `grace=`, or `late="drop"`."""


class EarlyMessage(CuesError):
    """A message's time is further ahead of the clock than `ahead=` allows. Correct the clock of its sender."""


class Unknown(CuesError):
    """It is not known whether messages were sent. Remove what hides the answer and ask again, or decide."""


class TaskElsewhere(CuesError):
    """The task with this key runs in another process. Ask that process, or read the store with `table`.

    Attributes:
        processor: whose task it is.
        partition: the task's partition; None: it may be one of several.
    """

    def __init__(self, message: str | None = None, *, processor: str = "", partition: int | None = None) -> None:
        super().__init__(message)
        self.processor = processor
        self.partition = partition


class CallError(CuesError):
    """A call of `effects=` gave no answer that can be used. See the message."""


class CallUnanswered(CallError):
    """A server did not answer. Name this class in `retry=`, and the step is tried again.

    Attributes:
        status: 429, 502, 503 or 504, if it said that it cannot answer now; else None.
        retry_after_s: for how many seconds it asked to wait; None: it did not say.
    """

    def __init__(
        self, message: str | None = None, *, status: int | None = None, retry_after_s: float | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after_s = retry_after_s


class CallRefused(CallError):
    """A server answered with a status of 400 or above. Look at its answer.

    Attributes:
        response: the answer.
    """

    def __init__(self, message: str | None = None, *, response: Any = None) -> None:
        super().__init__(message)
        self.response = response


class AnswerTooLarge(CallError):
    """An answer, or a result of `once`, is larger than what is kept. Raise the limit that is named."""


class CallChanged(CallError):
    """An attempt at a step asked something else than an earlier one. Have the function ask the same each time."""


_REMEDIES = {"TARGET": "bring the database or the store back; the task then resumes by itself"}
"""What helps a task that stops because of an error of this code."""


class BrokerError(CuesError):
    """A call to the cluster failed. Nothing to do: the task discards its producer and recovers.

    Attributes:
        code: the client's name of the error, such as ``_FENCED`` or ``ILLEGAL_GENERATION``.
        at: topic and partition that the error is about, where it is about one.
    """

    def __init__(
        self, message: str | None = None, *, code: str = "", at: tuple[str, int] | None = None, remedy: str = ""
    ) -> None:
        super().__init__(message, remedy=remedy or _REMEDIES.get(code, ""))
        self.code = code
        self.at = at

    @property
    def fenced(self) -> bool:
        """Whether another client with the same transactional id took this one's place."""
        return self.code in {"_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"}

    @property
    def forbidden(self) -> bool:
        """Whether the cluster refused it because this user lacks a right; the message names the right."""
        return self.code.endswith("_AUTHORIZATION_FAILED")

    @property
    def final(self) -> bool:
        """
        Whether another start of the same process would fail in the same way, or harm.

        A process that meets its own instance name in use was not replaced by its supervisor, which starts a successor
        only when the predecessor is dead. So the name belongs to a second supervisor or program, and the two would
        take each other's tasks in turns.
        """
        return self.code == "FENCED_INSTANCE_ID"


class RetriableError(BrokerError):
    """The cluster did not answer in time. Nothing to do: the task discards its producer and recovers."""


class UnstableOffsets(RetriableError):
    """A transaction with offsets of this group is still open. Nothing to do: it is asked again."""


class AbortableError(BrokerError):
    """This transaction cannot be committed. Nothing to do: the task discards its producer and recovers."""


class FatalError(BrokerError):
    """This client cannot go on. Nothing to do: the task discards its producer and recovers."""


class UnreadableError(FatalError):
    """The client refuses a batch in a log. Raise the setting that is named, or go on behind the batch.

    Attributes:
        place: topic and partition of the batch.
        offset: the first offset of the batch, or, where the client does not say it, the offset that it reads next.
        bounded: the client names the offset of the batch whatever offset it reads from.
    """

    def __init__(
        self,
        message: str | None = None,
        *,
        code: str = "",
        place: tuple[str, int] = ("", 0),
        offset: int = 0,
        remedy: str = "",
        bounded: bool = True,
    ) -> None:
        super().__init__(message, code=code, at=place, remedy=remedy)
        self.place: tuple[str, int] = place
        self.offset: int = offset
        self.bounded: bool = bounded


class LoginError(ConfigError, FatalError):
    """The cluster or this program refused the connection. Fix the login, the certificates or the port."""


class Interrupt(BaseException):
    """Raise it in a function to stop its task: the steps before this one commit, this one does not."""


class StoreFull(Interrupt):
    """The entries of a store need more room than its `max_bytes`. Raise it, or delete entries."""


class StoreBroken(Interrupt):
    """The file of a store cannot be read. Nothing to do: the task stops, and reads the changelog again."""


class Fenced(BaseException):
    """This task belongs to another worker by now. Let it pass: the result of this call is thrown away."""

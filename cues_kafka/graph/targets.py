"""`TransactionalTarget` and `Transactions`: what a user writes to get exactly once to a system with transactions (E1).

`cues_kafka.targets` has the public names, and docs/targets.md builds one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, NamedTuple, Protocol

from cues_kafka.errors import CuesError
from cues_kafka.graph.effects import Effect
from cues_kafka.graph.levels import EXACTLY_ONCE, OWN_TARGET, EdgeKind


class TaskName(NamedTuple):
    """
    The key of what a target keeps for a task: its graph, its processor and its partition.

    No two tasks of one Kafka cluster have the same.
    """

    graph: str
    processor: str
    partition: int

    def __str__(self) -> str:
        return f"{self.processor}/{self.partition}"

    @property
    def key(self) -> str:
        """The key as one text, such as `shop.ledger/0`."""
        return f"{self.graph}.{self.processor}/{self.partition}"


class TargetMoved(CuesError):
    """
    The target keeps something else for the task than this commit was made over, so nothing was committed.

    Another process has fenced this one, or has committed before it. The task then asks again.
    """


class Transactions(ABC):
    """
    The transactions of one task on a target. A user writes these methods; `TransactionalTarget.open` makes the object.

    For each task the target keeps some bytes. They change only together with what is written, in one transaction, and
    only from what the writer believes them to be. That is all that exactly once needs:

    1. `commit` makes the writes and the kept bytes durable together, or none of them.
    2. `commit` compares: if the target keeps anything else than `over`, nothing is committed, and it raises
       `TargetMoved`. The comparison and the commit are one step for the target. So of two processes that commit over
       the same bytes, one wins.
    3. `ask` sees every commit that has returned, whichever process made it: it reads no cache and no lagging replica.
    4. Nothing of a transaction without a commit stays, and no reader sees it.

    A call ends in bounded time, so give sockets a time-out. Raise `OutputError` if the target refuses a write for what
    it says: the message becomes an error message. Raise any other exception if the outcome is not known or the target
    does not answer: the task recovers, and asks. Do not reconnect between `begin` and the end of `commit`.

    One thread at a time uses an object, but not always the same one. After an exception it is closed, and another one
    is opened.
    """

    @property
    def early(self) -> bool:
        """
        Whether it takes writes *early*: while the function is still called, so that the system works on them meanwhile.

        By default it gets them when all calls of the batch have ended. If it is True, user code runs between `begin`
        and `commit`. So an open transaction may lock nothing that a call could wait for. A batch that is called again,
        or given up, calls `begin` in an open transaction, which takes back what was written; so does `ask`.
        """
        return False

    @abstractmethod
    def ask(self) -> bytes | None:
        """Return the bytes that the target keeps for the task; None: nothing was ever committed for it."""

    @abstractmethod
    def begin(self) -> None:
        """
        Begin a transaction.

        The calls of `write` and one `commit` follow at once, and no user code runs in between, unless `early` is True.
        """

    @abstractmethod
    def write(self, item: Any) -> None:
        """
        Write one thing in the open transaction.

        Args:
            item: what the function has handed to the `write` of `TransactionalTarget.value`.

        Raises:
            OutputError: the target refuses it for what it says.
        """

    @abstractmethod
    def commit(self, kept: bytes, over: bytes | None) -> None:
        """
        Commit what was written since `begin`, together with these bytes.

        Args:
            kept: what the target keeps for the task from now on. It holds the attempt and the messages for Kafka that
                come of it, so it may be as large as those.
            over: what it keeps now; None: nothing.

        Raises:
            TargetMoved: it keeps something else; nothing was committed.
            OutputError: the target refuses what was written for what it says; nothing was committed.
        """

    def start_commit(self, kept: bytes, over: bytes | None) -> None:
        """
        Begin a commit whose answer the task needs only later: the system works on it while functions are called.

        A task commits the parts of a batch by this. It calls `finish_commit` before the next commit, and before Kafka's
        transaction, so one commit at most has no answer. `begin` and `write` may come before `finish_commit`: what they
        write is in the next transaction. By default this is `commit`.

        Raises:
            TargetMoved, OutputError: as `commit`. `finish_commit` may raise them instead.
        """
        self.commit(kept, over)

    def finish_commit(self) -> None:  # noqa: B027 - by default `start_commit` has waited
        """
        Wait for the commit that `start_commit` has begun, if there is one. `ask` waits for it, too.

        Raises:
            TargetMoved: the target kept something else; nothing was committed.
            OutputError: the target refused what was written for what it says; nothing was committed.
        """

    def fence(self, kept: bytes, over: bytes | None) -> None:
        """
        Keep these bytes in place of `over`, so that former processes commit nothing from now on.

        By default this is a commit without writes: every former process has other bytes in its hands than `kept`. A
        target that has more to do, such as to end a former session, does it here.

        Raises:
            TargetMoved: the target keeps something else; nothing was changed.
        """
        self.begin()
        self.commit(kept, over)

    @abstractmethod
    def close(self) -> None:
        """Let go of the connection, in any state; an open transaction is taken back. It does not raise."""


class Write(Protocol):
    """Takes one thing that a function writes; it goes to `Transactions.write` when the batch is committed."""

    def __call__(self, item: Any) -> None: ...


class TargetWriter:
    """The parameter for a `TransactionalTarget` without a `value` of its own. Valid only during the call."""

    __slots__ = ("_write",)

    def __init__(self, write: Write) -> None:
        self._write = write

    def write(self, item: Any, message: Any = None) -> None:
        """
        Write one thing. It is committed with the outcome of the message, or not at all.

        Args:
            item: what `Transactions.write` gets.
            message: in a `Sink`, the message whose value it is; not used here.
        """
        del message
        self._write(item)


class TransactionalTarget(Effect, ABC):
    """
    Base of a target of your own: a system with transactions that a function writes to, exactly once (E1).

    A subclass is what `effects={"name": ...}` and `Sink(..., into=...)` take. It is made once, where the graph is
    declared, and used by all tasks; each task opens its own `Transactions`. A frozen dataclass serves best: two equal
    ones are one target, and the graph can be written down. A field with `metadata={"hidden": True}` may hold a
    password; no text shows it.

    Attributes:
        level: what it guarantees; `plan` prints it.
        rests_on: what that asks of the system, such as that it keeps what it has committed; `plan` prints it.
        apart: whether what it keeps for a task may be deleted while what was written stays, as a message of a queue.
            Then a task that has begun its first batch stops if nothing is kept.
    """

    kind: ClassVar[str] = "target"
    transactional: ClassVar[bool] = True
    what: ClassVar[str] = "target"
    holder: ClassVar[str] = "target"
    apart: ClassVar[bool] = False

    level: ClassVar[str] = EXACTLY_ONCE
    rests_on: ClassVar[str] = OWN_TARGET.why

    @abstractmethod
    def open(self, task: TaskName) -> Transactions:
        """
        Make the transactions of one task. It may connect now, or in the first call.

        Raises:
            ConfigError: a package or the address is missing.
        """

    def value(self, write: Write) -> Any:
        """
        Make what the function gets in the parameter with the name of `effects=`.

        What it hands to `write` is collected during the calls, and dropped if the call fails. So user code runs in no
        open transaction, and does not see what it has written. For a `Sink` it needs `write(value, message)`. If it has
        `write_all(values)`, too, a `Sink` calls that with the values of a batch; if it raises, one by one.

        Args:
            write: takes one thing to write.
        """
        return TargetWriter(write)

    def inspect(self) -> Iterable[str]:
        """
        Say what keeps the target from working, such as a missing table or right. `plan` and each start refuse it.

        Raises:
            RetriableError: it does not answer; `plan` warns, and tasks ask it again.
        """
        return ()

    def changes(self, *, first: bool) -> Iterable[str]:
        """
        Say what `make` would change in the system, in full sentences. `plan` prints it.

        Args:
            first: as for `make`.

        Raises:
            RetriableError: it does not answer, or has lost what was made; `plan` warns.
        """
        del first
        return ()

    def make(self, *, first: bool) -> None:
        """
        Make what is missing in the system, such as a table. `plan --apply` and each start do it, before topics.

        Args:
            first: whether no processor has begun that writes to it. If one has, what is missing was lost, and must not
                be made: an empty directory may be a mount that is gone.

        Raises:
            ConfigError: the system refuses, or does not fit.
            RetriableError: it does not answer, or has lost what was made.
        """
        del first

    @property
    def home(self) -> TransactionalTarget:
        return self

    @property
    def edge(self) -> EdgeKind:  # type: ignore[override]  # a class variable of those whose edge is always the same
        return EdgeKind(OWN_TARGET.edge, self.level, self.rests_on, OWN_TARGET.shown_by)

    def title(self, name: str) -> str:
        return f"{type(self).__name__} {name}"


class TargetPart(Effect, ABC):
    """
    Base of a part of a target, such as one queue of a broker. Parts of one target share its transaction.

    It has a `home`, which is the target.
    """

    kind: ClassVar[str] = "target-part"
    transactional: ClassVar[bool] = True
    what: ClassVar[str] = "part"
    holder: ClassVar[str] = TransactionalTarget.holder

    @property
    @abstractmethod
    def home(self) -> TransactionalTarget:
        """The target that it is a part of."""

    @abstractmethod
    def value(self, write: Write) -> Any:
        """Make what the function gets; see `TransactionalTarget.value`."""

    @property
    def edge(self) -> EdgeKind:  # type: ignore[override]  # as above
        return self.home.edge


Writable = TransactionalTarget | TargetPart
"""What a `Sink` writes to, and `effects=` gives to a function, in the transaction of a target."""


def refused_as_sink(into: TransactionalTarget | TargetPart) -> str:
    """Why a `Sink` cannot write to it; empty: it can."""
    checked: Callable[..., Any] | None = getattr(into.value(lambda _: None), "write", None)
    return "" if callable(checked) else "what its value() makes has no method write(value, message)"

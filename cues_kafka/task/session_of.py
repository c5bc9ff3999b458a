"""The session of a task, as its interpreter sees it: one of its own, or a part of one that many tasks share (J1 to J9).

The interpreter asks in the order of the core: `init`, and then for each transaction `begin`, `produce`, `send_offsets`,
`flush`, `commit`. Each call gives the event that answers the effect. None says that the answer comes later, through
`Interpreter.resume`: the task then waits without a thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol, TypeAlias

from cues_kafka.core import effects as do
from cues_kafka.core import events as on
from cues_kafka.core.spec import Spec
from cues_kafka.errors import RetriableError
from cues_kafka.ports.broker import Broker
from cues_kafka.ports.clients import GroupMetadata, Session
from cues_kafka.ports.log import TopicPartition

Parts: TypeAlias = Iterable[Iterable[tuple[Any, ...]]]
"""Records as they are produced, in parts."""

AWAITED = (do.Init, do.Begin, do.SendOffsets, do.Flush, do.Commit, do.Discard)
"""Effects whose answer may come later."""


class TaskSession(Protocol):
    """
    What a task asks of its session. Every method but the last three may raise a `BrokerError`.

    A task calls it on one thread at a time, with the interpreter's lock held.
    """

    def init(self, *, timeout_s: float) -> on.Event | None:
        """R1: whatever wrote under the task's id before is fenced, and its transaction is decided."""
        ...

    def begin(self) -> on.Event | None:
        """P5: begin a transaction."""
        ...

    def send_offsets(
        self, offsets: Mapping[TopicPartition, int], membership: Callable[[], GroupMetadata]
    ) -> on.Event | None:
        """P5: put the task's offsets into the transaction; empty: it has none. The proof is read when they are sent."""
        ...

    def emit(self, parts: Parts) -> on.Event:
        """W5: produce these parts and wait for their reports, without a transaction."""
        ...

    def produce(self, parts: Parts) -> None:
        """P6: produce these parts; the first record is the task's. They may be taken later than this returns."""
        ...

    def flush(self) -> on.Event | None:
        """P6, P6a: what the delivery reports say of the task's records."""
        ...

    def commit(self) -> on.Event | None:
        """P7: commit the transaction."""
        ...

    def discard(self, delay_s: float) -> on.Event | None:
        """P8, R7: abandon the session; the task recovers when the delay is over, or at once if its gate closes."""
        ...

    def leave(self, timeout_s: float) -> bool:
        """J5: wait until the task may leave in order; whether it may. Called without the interpreter's lock."""
        ...

    def abandon(self) -> None:
        """The task has nothing more to do with the session, in whatever state it is. Bounded, and never raises."""
        ...


class OwnSession:
    """A session that no other task has, see `TaskSession`. Each call waits for its answer."""

    def __init__(self, spec: Spec, broker: Broker, batch_bytes: int | None, pause: Callable[[float], None]) -> None:
        """
        Args:
            spec: the task's.
            broker: the cluster.
            batch_bytes: see `ports.broker.Broker.session`.
            pause: waits for this number of seconds, or until the gate of the task closes.
        """
        self._spec, self._broker, self._batch_bytes, self._pause = spec, broker, batch_bytes, pause
        self._session: Session | None = None
        self._produced = 0

    def init(self, *, timeout_s: float) -> on.Event:
        self.abandon()
        opened = self._broker.session if self._spec.rules.fenced else self._broker.loose_session
        self._session = opened(self._spec.transactional_id, batch_bytes=self._batch_bytes)
        self._session.init(timeout_s=timeout_s)
        return on.Initialised()

    def begin(self) -> on.Event:
        self._open.begin()
        return on.Done()

    def send_offsets(self, offsets: Mapping[TopicPartition, int], membership: Callable[[], GroupMetadata]) -> on.Event:
        if offsets:
            self._open.send_offsets(offsets, membership())
        return on.Done()

    def emit(self, parts: Parts) -> on.Event:
        produced = sum(map(self._open.produce, parts))
        report = self._open.flush()
        self._open.begin()  # what is produced next is the record, and its reports are counted by themselves
        return on.Flushed(report.delivered, produced, report.first_offset)

    def produce(self, parts: Parts) -> None:
        self._produced = sum(map(self._open.produce, parts))

    def flush(self) -> on.Event:
        report = self._open.flush()
        return on.Flushed(report.delivered, self._produced, report.first_offset)

    def commit(self) -> on.Event:
        return on.Committed(self._open.commit())

    def discard(self, delay_s: float) -> on.Event:
        self.abandon()
        self._pause(delay_s)
        return on.Done()

    def leave(self, timeout_s: float) -> bool:
        """It may at once: who holds the interpreter's lock knows that nothing is under way."""
        return True

    def abandon(self) -> None:
        if self._session:
            self._session.abandon()
            self._session = None

    @property
    def _open(self) -> Session:
        if self._session is None:
            raise RetriableError("the session is gone")
        return self._session

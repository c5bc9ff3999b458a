"""What one task has in a session of many (J3): what it asks for, and what of its transaction waits for the round."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Protocol

from cues_kafka.core import events as on
from cues_kafka.errors import BrokerError
from cues_kafka.ports.clients import GroupMetadata
from cues_kafka.ports.log import TopicPartition
from cues_kafka.task.interpreter import Interpreter
from cues_kafka.task.session_of import Parts

Membership = Callable[[], GroupMetadata]


class Rounds(Protocol):
    """What a task asks of the session. No method waits, but `leaves`; none calls a task."""

    def wants_init(self, share: Share, timeout_s: float) -> None:
        """J2: the task recovers."""
        ...

    def wants_round(self, share: Share) -> None:
        """J3: the task waits for a transaction."""
        ...

    def asks(self, share: Share) -> None:
        """The task has come to where it asks for the next stage of its round."""
        ...

    def discards(self, share: Share, delay_s: float) -> bool:
        """J4, J7: the task wants nothing any more; whether it hears when the delay is over."""
        ...

    def leaves(self, share: Share, timeout_s: float) -> bool:
        """J5: wait until the task may leave in order; whether it may."""
        ...


class Share:
    """
    The part of one task, see `TaskSession`.

    Attributes:
        task: the partition.
        interpreter: that of the task.
        offsets: of the round under way.
        membership: gives the newest proof of membership.
        parts: the records of the round under way, the task's own first.
        turn: how often the task has asked. An answer to what it has asked before is void.
        resume: hands an answer to the task; set by the owner of its lane.
    """

    def __init__(self, interpreter: Interpreter, rounds: Rounds) -> None:
        """
        Args:
            interpreter: that of the task.
            rounds: the session.
        """
        self.task = interpreter.task.spec.partition
        self.interpreter = interpreter
        self.offsets: Mapping[TopicPartition, int] = {}
        self.membership: Membership | None = None
        self.parts: Parts = ()
        self.turn = 0
        self.resume: Callable[[on.Event], None] = lambda _: None
        self._rounds = rounds

    def hear(self, turn: int, answer: on.Event) -> None:
        """Hand the task the answer to what it asked in this turn; who hands it on sees to what that raises."""
        with self.interpreter.lock, contextlib.suppress(Exception):
            if turn == self.turn:
                self.resume(answer)

    def init(self, *, timeout_s: float) -> None:
        self.turn += 1
        self._rounds.wants_init(self, timeout_s)

    def begin(self) -> None:
        self.turn += 1
        self._rounds.wants_round(self)

    def send_offsets(self, offsets: Mapping[TopicPartition, int], membership: Membership) -> None:
        self.turn += 1
        self.offsets, self.membership = offsets, membership
        self._rounds.asks(self)

    def emit(self, parts: Parts) -> on.Event:
        """At-least-once has no transactions (J9): such a task has a session of its own."""
        raise AssertionError("a task without a lock is in no transaction")

    def produce(self, parts: Parts) -> None:
        self.parts = parts

    def flush(self) -> None:
        self.turn += 1
        self._rounds.asks(self)

    def commit(self) -> None:
        self.turn += 1
        self._rounds.asks(self)

    def discard(self, delay_s: float) -> on.Event | None:
        self.turn += 1
        self.parts = ()
        return None if self._rounds.discards(self, delay_s) else on.Done()

    def leave(self, timeout_s: float) -> bool:
        return self._rounds.leaves(self, timeout_s)

    def abandon(self) -> None:
        self.turn += 1
        self.parts = ()
        self._rounds.discards(self, 0.0)

    def failure(self, error: BrokerError, *, its_id: bool) -> on.Event:
        """J4: only the task whose id was taken learns that it was fenced (R7)."""
        return self.interpreter.failure(error, fenced=error.fenced and its_id)

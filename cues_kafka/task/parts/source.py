"""What begins steps of its own, beside the messages of a task: when it is due, and how it is announced and called."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Protocol

from cues_kafka.core import effects as do
from cues_kafka.core import events as on
from cues_kafka.core.task import Task
from cues_kafka.task.calling.batch import Batch, Retrying
from cues_kafka.task.calling.pairing import Buffer
from cues_kafka.task.parts.participant import StepParticipant


class Announced(Protocol):
    """Steps that a snapshot has announced, or an effect is about."""

    @property
    def timers(self) -> bool:
        """Whether they are steps of timers (F3)."""
        ...

    @property
    def replay(self) -> bool:
        """Whether they are the step of a request (Y1)."""
        ...


class StepSource(StepParticipant, ABC):
    """
    Begins steps beside those of messages. All moments are calling.

    A source either has steps that come before the next message, in the same batch (`is_due`, `fire`), or batches of its
    own (`comes_next`).
    """

    @abstractmethod
    def is_mine(self, announced: Announced) -> bool:
        """Whether these are steps of it."""

    def is_due(self) -> bool:
        """Whether a step of it comes before the next message."""
        return False

    def wake_at_s(self, task: Task) -> float | None:
        """When that will be so although nothing arrives."""

    def fire(self, caller: Any, batch: Batch, most: int, retrying: Retrying | None = None) -> bool:
        """Call for at most these steps that are due; whether a message may be delivered next."""
        return True

    def comes_next(self, task: Task, buffer: Buffer) -> bool:
        """Whether a batch of it comes before the next message."""
        return False

    @abstractmethod
    def announce(self, desk: Any, task: Task, buffer: Buffer) -> on.Event | None:
        """The event for steps that come next, or again; None: they are still to come."""

    @abstractmethod
    def deliver(self, filling: Any, task: Task, buffer: Buffer, effect: do.Call | do.Quarantine) -> on.Event | None:
        """Deliver the steps that were announced; None: they are void."""

    def put_back(self, buffer: Buffer) -> None:
        """What was announced is not delivered now: it comes again."""

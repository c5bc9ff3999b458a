"""What a task needs of the world to do what the core decides."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from cues_kafka.ports.broker import Broker, Inlet
from cues_kafka.ports.clients import GroupMetadata
from cues_kafka.ports.clock import Clock
from cues_kafka.ports.log import Positions, TopicPartition
from cues_kafka.ports.observer import Observer
from cues_kafka.ports.target import HeldAttempt
from cues_kafka.task.lookups import Lookups
from cues_kafka.task.session_of import Parts, TaskSession

Hook: TypeAlias = Callable[[str, str], None]

CommitOffsets: TypeAlias = Callable[[Mapping[TopicPartition, int], bool], None]

Records: TypeAlias = Parts


class AskedAhead(Protocol):
    """What a recovery asks for an attempt ahead of Kafka (E1); see `ports.target.TransactionalSink`."""

    def expect(self) -> None:
        """It has been asked before, so it holds something of the task."""
        ...

    def ask(self, owner: int, step: int) -> HeldAttempt | None:
        """The newest attempt; None: it holds none."""
        ...

    def outbox(self) -> Iterable[tuple[Any, ...]]:
        """Its records."""
        ...


@dataclass(frozen=True, slots=True)
class World:
    """
    What an interpreter needs besides its task.

    Attributes:
        broker: the cluster.
        clock: time.
        assign: point the task's reader to these positions; everything fetched before is void (A2).
        membership: the newest published proof of membership (A2), for P5.
        hook: crash points.
        batch_bytes: see `ports.broker.Broker.session`.
        inlet: where the inputs are; None: topics of the broker.
        observers: told what the task does, besides the log.
        changes: what a tool writes behind the record that moves the task, such as entries of its stores; asked again
            whenever the transaction is.
        asked: has committed what user code writes outside of Kafka with the attempt (E1); None: nothing has.
        commit_offsets: have the group's member commit these offsets (W5); waits for its answer if told to, and raises a
            `BrokerError` if that is no.
        waits: called before the task waits for the cluster within a transaction: user code may be called ahead (P7).
        session_of: gives an interpreter its part of a session of many tasks (J1); None: it has a session of its own.
        lookups: asks the cluster for recoveries; None: each asks by itself.
    """

    broker: Broker
    clock: Clock
    assign: Callable[[Positions], None]
    membership: Callable[[], GroupMetadata]
    hook: Hook | None = None
    batch_bytes: int | None = None
    inlet: Inlet | None = None
    observers: Sequence[Observer] = ()
    changes: Callable[[], Iterable[tuple[Any, ...]]] | None = None
    asked: AskedAhead | None = None
    commit_offsets: CommitOffsets = lambda _, __: None
    waits: Callable[[], None] = lambda: None
    session_of: Callable[[Any], TaskSession] | None = None
    lookups: Lookups | None = None

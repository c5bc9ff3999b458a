"""How a worker works."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from cues_kafka.graph.declare import CallPolicy, CommitPolicy
from cues_kafka.ports.broker import Inlet
from cues_kafka.ports.observer import Observer
from cues_kafka.task.alone import PROCESS, Alone
from cues_kafka.task.interpreter import Hook
from cues_kafka.task.making.apart import Away
from cues_kafka.workers.needed import Needed


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """
    How a worker works.

    Attributes:
        instance: static membership (A4); None: the worker's tasks wait for the session if it is killed.
        policy: when batches are committed.
        revoke_timeout_s: how long a revocation waits for transactions past P5.
        calls: what to do about calls that take long.
        hook: crash points.
        alone: shared by all tasks of the process.
        inlet: where the inputs are; None: topics of the broker.
        observers: told what each task does, besides the log.
        held: why the tasks of a processor are held back now, see `pauses`; empty: they are not.
        sessions: 0: each task has a session of its own; 1: the tasks of a processor have one together (J1).
        away: the database or store that a processor waits for since the start, see `apart`; it is held back, too.
        needed: topics that the tasks need beside their inputs, and do not touch while they are idle.
    """

    instance: str | None = None
    policy: CommitPolicy = field(default_factory=CommitPolicy)
    revoke_timeout_s: float = 60.0
    calls: CallPolicy = field(default_factory=CallPolicy)
    hook: Hook | None = None
    alone: Alone = PROCESS
    inlet: Inlet | None = None
    observers: Sequence[Observer] = ()
    sessions: int = 0
    held: Callable[[str], str] = lambda _: ""
    away: Callable[[str], Away | None] = lambda _: None
    needed: Sequence[Needed] = ()

"""Does what the core decides, through the ports, and reports what happened.

Each effect has a crash point before and after it: `hook(moment, name)` is called with `before` or `after` and the
effect's name, and tests kill there. One thread at a time is inside `advance`, which holds `lock`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any

from cues_kafka.core import effects as do
from cues_kafka.core import events as on
from cues_kafka.core.machine import handle
from cues_kafka.core.moves import MOVED
from cues_kafka.core.records import KEY, Attempt, Record, Start
from cues_kafka.core.spec import Spec
from cues_kafka.core.task import Doing, Task
from cues_kafka.errors import BrokerError, CodecError, ConfigError
from cues_kafka.observe.log import get_logger
from cues_kafka.observe.tally import FenceMeter
from cues_kafka.ports.log import TopicPartition
from cues_kafka.ports.observer import Observer
from cues_kafka.records.bytes import encode_record
from cues_kafka.records.extents import offsets_of
from cues_kafka.state.layers import MARK
from cues_kafka.task.gate import Gate
from cues_kafka.task.lookups import LookupsAlone
from cues_kafka.task.recovering import Recovering
from cues_kafka.task.session_of import AWAITED, OwnSession, TaskSession
from cues_kafka.task.task_log import TaskLog
from cues_kafka.task.world import CommitOffsets, Hook, Records, World

log = get_logger("cues_kafka.task")

__all__ = [
    "INIT_TIMEOUT_S",
    "IN_TRANSACTION",
    "LEAVING_INIT_TIMEOUT_S",
    "CommitOffsets",
    "Hook",
    "Interpreter",
    "Records",
    "World",
    "record_message",
]

INIT_TIMEOUT_S = 30.0
"""R1. Longer than a coordinator's fail-over; a cluster that is gone for longer costs a round (R7)."""

LEAVING_INIT_TIMEOUT_S = 5.0
"""The same where only `left` remains to be committed (Q1): a shutdown in an outage waits this long for each task."""

IN_TRANSACTION = frozenset({Doing.SENDING_OFFSETS, Doing.EMITTING, Doing.PRODUCING, Doing.FLUSHING, Doing.COMMITTING})
"""Past P5: a revocation waits for the end of these states (A3)."""


class Interpreter(Recovering):
    """
    Does the effects of one task.

    Attributes:
        task: the task as it is now.
        effect: what the task waits for, while no thread is in `advance`: the shell, or its session (`awaits_session`).
        about: `at` and `hash` of the message that a stop is about; empty: about none.
        gate: closed when the task is taken away.
        lock: held inside `advance`.
        over: told whenever the session has answered; it has the lock.
        log: writes what the task does; the first of its observers.
        observers: told what the task does.
    """

    def __init__(self, spec: Spec, world: World) -> None:
        self.task = Task(spec)
        self.effect: do.Effect | None = None
        self.about: Mapping[str, Any] = {}
        self.gate = Gate()
        self.lock = threading.RLock()
        self.over = threading.Condition(self.lock)
        self.log = TaskLog(spec.name, world.clock)
        self.observers: Sequence[Observer] = (self.log, *world.observers)
        self._world = world
        self._lookups = world.lookups or LookupsAlone(world.broker, world.clock)
        self._records: Records = ()  # of the called batch, produced behind the next attempt
        self._acts: Mapping[type[do.Effect], Callable[[Any], on.Event | None]] = {
            do.Init: self._init,
            do.FetchOffsets: self._fetch_offsets,
            do.FetchWatermark: self._fetch_watermark,
            do.ReadNewest: self._read_newest,
            do.FetchInputs: self._fetch_inputs,
            do.AskTarget: self._ask_target,
            do.FetchSibling: self._fetch_sibling,
            do.FetchParts: self._fetch_parts,
            do.AssignReader: self._assign_reader,
            do.Begin: self._begin,
            do.SendOffsets: self._send_offsets,
            do.Emit: self._emit,
            do.Produce: self._produce,
            do.Flush: self._flush,
            do.Commit: self._commit,
            do.Discard: self._discard,
            do.Stop: self._stop,
            do.Release: self._release,
        }
        self._session: TaskSession = self._own_session() if world.session_of is None else world.session_of(self)
        self._low = 0  # of the backing partition
        self._failed_at_s: float | None = None  # since then it has delivered nothing

    def _own_session(self) -> OwnSession:
        world = self._world
        pause = lambda seconds: self.gate.wait(seconds)  # noqa: E731, PLW0108  a `Tester` changes the gate
        return OwnSession(self.task.spec, world.broker, world.batch_bytes, pause)

    def advance(self, event: on.Event, records: Records = ()) -> do.Effect | None:
        """
        Report an event and do what follows from it, up to the next effect that only the shell can answer.

        Args:
            event: what happened.
            records: for `Called`, also within `Revoked`, the records of the batch. A part may be made while another one
                is produced.

        Returns:
            `Await`, `Call`, `Quarantine`, `Stop` or `Release`; None: the gate closed on the way, and `Revoked` or
            `Lost` comes next. Or what the task's session was asked for, and answers by `resume`.
        """
        with self.lock:
            if isinstance(event, on.Called) or (isinstance(event, on.Revoked) and event.called):
                self._records = records
            self.task, effect = handle(self.task, event)
            leaving = isinstance(event, on.Revoked) or self.task.leaving
            while not isinstance(effect, do.Await | do.Call | do.Quarantine):
                if self.gate.lost and not isinstance(effect, do.Release):
                    self._abandon()
                    return None
                if self.gate.closed and not leaving and self.task.state not in IN_TRANSACTION:
                    self.effect = None
                    return None
                answer = self._do(effect)
                if answer is None:
                    break
                self.task, effect = handle(self.task, answer)
            self.effect = effect
            if isinstance(effect, do.Await | do.Call | do.Quarantine) and not self.task.spec.feed:
                self.tell_recovered()
            return effect

    @property
    def awaits_session(self) -> bool:
        """Whether the task waits for the answer of its session, without a thread."""
        return isinstance(self.effect, AWAITED)

    def resume(self, answer: on.Event) -> do.Effect | None:
        """Report the answer of the session to what it was asked for, and go on as `advance` does."""
        with self.lock:
            self.point("after", type(self.effect).__name__)
            return self.advance(answer)

    def leave(self, timeout_s: float) -> bool:
        """J5: wait until the task may leave in order, as far as its session knows; whether it may."""
        return self._session.leave(timeout_s)

    def failure(self, error: BrokerError, *, fenced: bool) -> on.Failed:
        """The event for an effect that a broker, or the client, has refused; `fenced`: the task's id was taken."""
        where, now_s = self.task.state.value, self._world.clock.monotonic()
        if self.task.leaving:  # it is released next
            log.warning("not left", task=self.task.spec.name, why=f"{where}: {error}")
        if fenced:
            self._tell_fenced()
        return on.Failed(f"{where}: {error}", now_s, fenced=fenced, remedy=error.remedy)

    def tell_recovered(self) -> None:
        """Tell observers that the task works again, if it did not. That of a feed says so once its source answers."""
        failed_at_s, self._failed_at_s = self._failed_at_s, None
        if failed_at_s is not None:
            for observer in self.observers:
                observer.recovered(self.task.spec.name, self._world.clock.monotonic() - failed_at_s)

    def _tell_fenced(self) -> None:
        for observer in self.observers:
            if isinstance(observer, FenceMeter):
                observer.fenced(self.task.spec.name)

    def _abandon(self) -> None:
        self._session.abandon()
        self.effect = None

    def _do(self, effect: do.Effect) -> on.Event | None:
        name = type(effect).__name__
        self.point("before", name)
        try:
            answer: on.Event | None = self._acts[type(effect)](effect)
        except BrokerError as error:
            answer = self.failure(error, fenced=error.fenced)
        except (CodecError, ConfigError) as error:  # such as a certificate that is being replaced just now
            now_s = self._world.clock.monotonic()
            answer = on.Failed(f"{self.task.state.value}: {error}", now_s, remedy=error.remedy)
        if answer is not None or not isinstance(effect, AWAITED):
            self.point("after", name)
        return answer

    def point(self, moment: str, name: str) -> None:
        """Mark a crash point; the lane marks `Call` and `Quarantine` with it, too."""
        if self._world.hook:
            self._world.hook(moment, name)

    # Recovery

    def _init(self, _: do.Init) -> on.Event | None:
        return self._session.init(timeout_s=LEAVING_INIT_TIMEOUT_S if self.task.leaving else INIT_TIMEOUT_S)

    def _assign_reader(self, effect: do.AssignReader) -> on.Event:
        task = self.task
        if task.careful or (task.due and task.due.starts):
            # A position may be that of a marker; then the message comes after it.
            at = ", ".join(f"{p.topic}/{task.spec.partition} at or after {p.offset}" for p in effect.positions)
            due = {"deaths": task.due.starts, "steps": task.due.steps} if task.due else {}
            log.warning("died here", task=task.spec.name, at=at, **due)
        self._world.assign(effect.positions)
        return on.Done()

    # Transactions

    def _begin(self, _: do.Begin) -> on.Event | None:
        return self._session.begin()

    def _send_offsets(self, effect: do.SendOffsets) -> on.Event | None:
        partition = self.task.spec.partition
        offsets = {TopicPartition(p.topic, partition): p.offset for p in effect.positions}
        for extent in effect.extents:
            offsets |= offsets_of(extent, extent.start)
        if not self.task.spec.rules.fenced:
            self._world.commit_offsets(offsets, isinstance(self.task.pending, Start))
            return on.Done()
        if offsets:  # a part has none: those of its batch come with the next announcement (T4)
            self._world.waits()
        return self._session.send_offsets(offsets, self._world.membership)

    def _emit(self, _: do.Emit) -> on.Event:
        """W5: what the batch leaves, before the record speaks of it."""
        return self._session.emit(self._records)

    def _produce(self, effect: do.Produce) -> on.Event:
        spec, record = self.task.spec, effect.record
        if not spec.rules.fenced:
            self._records = ()  # they were emitted
        parts: Records = ((record_message(spec, record),),)
        if isinstance(record, Attempt) and record.batch.deliveries:
            parts = chain(parts, self._records, (marks_of(spec, record),))
            if not spec.rules.takes:  # else the task may take again with the same outcomes (W3)
                self._records = ()
        elif self._world.changes is not None:  # not kept like a batch: a tool that goes back to R1 writes them again
            parts = chain(parts, (self._world.changes(), marks_of(spec, record)))
        self._session.produce(parts)
        return on.Done()

    def _flush(self, _: do.Flush) -> on.Event | None:
        self._world.waits()
        return self._session.flush()

    def _commit(self, effect: do.Commit) -> on.Event | None:
        if effect.unmarked and self.task.record is not None:
            log.warning(
                "marker missing",
                task=self.task.spec.name,
                record=self.task.record.sequence,
                why="a broker lost the commit marker of this record; the commit that follows commits it too",
                remedy="`kafka-transactions --bootstrap-server BOOTSTRAP find-hanging --broker-id ID` finds other "
                "partitions that lack it; `cues-kafka verify` compares what is committed",
            )
        return self._session.commit()

    # Endings

    def _discard(self, effect: do.Discard) -> on.Event | None:
        for observer in self.observers:
            observer.failed(self.task.spec.name, effect.text, self.task.rounds)
        self._note_failure()
        self.effect = None
        if not self.task.spec.rules.takes:
            self._records = ()
        return self._session.discard(effect.delay_s)

    def _stop(self, effect: do.Stop) -> None:
        if effect.halt.kind == MOVED:
            log.info("moved", task=self.task.spec.name)
            self._abandon()
            return
        for observer in self.observers:
            observer.stopped(self.task.spec.name, effect.halt.text, effect.halt.remedy, self.about)
        self._note_failure()
        self._abandon()

    def _note_failure(self) -> None:
        if self._failed_at_s is None:
            self._failed_at_s = self._world.clock.monotonic()

    def _release(self, _: do.Release) -> None:
        self._abandon()


def marks_of(spec: Spec, record: Record) -> list[tuple[Any, ...]]:
    """R4b: what ends the changelogs of a task, behind all changes of the transaction."""
    ends = dict(record.stores)
    return [(changelog, spec.partition, MARK, b"%d" % ends[name], None, 0) for name, changelog in spec.stores]


def record_message(spec: Spec, record: Record) -> tuple[Any, ...]:
    """A task's record as it is produced. A header names its kind, too, for people with a Kafka console."""
    kind = type(record).__name__.lower().encode()
    return spec.backing, spec.partition, KEY, encode_record(record), [("cues-kind", kind)], 0

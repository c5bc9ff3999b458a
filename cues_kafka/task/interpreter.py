"""Does what the core decides, through the ports, and reports what happened.

Each effect has a crash point before and after it: `hook(moment, name)` is called with `before` or `after` and the
effect's name, and tests kill there. One thread at a time is inside `advance`, which holds `lock`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from cues_kafka.core import effects as do
from cues_kafka.core import events as on
from cues_kafka.core.machine import handle
from cues_kafka.core.moves import MOVED
from cues_kafka.core.records import KEY, Attempt, Record, Snapshot, Start
from cues_kafka.core.spec import REPLAY, Input, Spec
from cues_kafka.core.task import Doing, Task
from cues_kafka.errors import BrokerError, CodecError, ConfigError, FatalError, RetriableError
from cues_kafka.observe.log import get_logger
from cues_kafka.observe.tally import FenceMeter
from cues_kafka.ports.broker import Broker, Inlet
from cues_kafka.ports.clients import GroupMetadata, Session
from cues_kafka.ports.clock import Clock
from cues_kafka.ports.log import Positions, TopicPartition
from cues_kafka.ports.observer import Observer
from cues_kafka.ports.target import HeldAttempt
from cues_kafka.records.bytes import encode_record
from cues_kafka.records.extents import offsets_of
from cues_kafka.records.held import published, row_of
from cues_kafka.records.reading import newest, read_record, record_below
from cues_kafka.state.layers import MARK
from cues_kafka.task.gate import Gate
from cues_kafka.task.outbox_places import check_places
from cues_kafka.task.task_log import TaskLog

log = get_logger("cues_kafka.task")

Hook: TypeAlias = Callable[[str, str], None]

CommitOffsets: TypeAlias = Callable[[Mapping[TopicPartition, int], bool], None]

Records: TypeAlias = Iterable[Iterable[tuple[Any, ...]]]
"""Records as they are produced, in parts."""

INIT_TIMEOUT_S = 30.0
"""R1. Longer than a coordinator's fail-over; a cluster that is gone for longer costs a round (R7)."""

LEAVING_INIT_TIMEOUT_S = 5.0
"""The same where only `left` remains to be committed (Q1): a shutdown in an outage waits this long for each task."""

_WAY_OUT = (
    "Run the release that wrote it, if it is newer. Otherwise revoke the other program's right to write there, and "
    "restore the partition from a backup, or run `cues-kafka delete MODULE:GRAPH {}`: the processor then begins at its "
    "start="
)
"""What helps where the newest record of a task cannot be read. The command needs the processor's name."""

AT_ONCE = 16
"""How many backing partitions are read side by side (T2)."""

IN_TRANSACTION = frozenset({Doing.SENDING_OFFSETS, Doing.EMITTING, Doing.PRODUCING, Doing.FLUSHING, Doing.COMMITTING})
"""Past P5: a revocation waits for the end of these states (A3)."""


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


class Interpreter:
    """
    Does the effects of one task.

    Attributes:
        task: the task as it is now.
        effect: what the task waits for, while no thread is in `advance`.
        about: `at` and `hash` of the message that a stop is about; empty: about none.
        gate: closed when the task is taken away.
        lock: held inside `advance`.
        log: writes what the task does; the first of its observers.
        observers: told what the task does.
    """

    def __init__(self, spec: Spec, world: World) -> None:
        self.task = Task(spec)
        self.effect: do.Effect | None = None
        self.about: Mapping[str, Any] = {}
        self.gate = Gate()
        self.lock = threading.RLock()
        self.log = TaskLog(spec.name, world.clock)
        self.observers: Sequence[Observer] = (self.log, *world.observers)
        self._world = world
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
        self._session: Session | None = None
        self._produced = 0
        self._low = 0  # of the backing partition
        self._failed_at_s: float | None = None  # since then it has delivered nothing

    def advance(self, event: on.Event, records: Records = ()) -> do.Effect | None:
        """
        Report an event and do what follows from it, up to the next effect that only the shell can answer.

        Args:
            event: what happened.
            records: for `Called`, also within `Revoked`, the records of the batch. A part may be made while another one
                is produced.

        Returns:
            `Await`, `Call`, `Quarantine`, `Stop` or `Release`; None: the gate closed on the way, and `Revoked` or
            `Lost` comes next.
        """
        with self.lock:
            if isinstance(event, on.Called) or (isinstance(event, on.Revoked) and event.called):
                self._records = records
            self.task, effect = handle(self.task, event)
            leaving = isinstance(event, on.Revoked)
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
            if not isinstance(effect, do.Stop | do.Release) and not self.task.spec.feed:
                self.tell_recovered()
            return effect

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
        if self._session:
            self._session.abandon()
            self._session = None
        self.effect = None

    def _do(self, effect: do.Effect) -> on.Event | None:
        name = type(effect).__name__
        self.point("before", name)
        try:
            answer: on.Event | None = self._acts[type(effect)](effect)
        except BrokerError as error:
            where = self.task.state.value
            if self.task.leaving:  # it is released next
                log.warning("not left", task=self.task.spec.name, why=f"{where}: {error}")
            now_s = self._world.clock.monotonic()
            if error.fenced:
                self._tell_fenced()
            answer = on.Failed(f"{where}: {error}", now_s, fenced=error.fenced, remedy=error.remedy)
        except (CodecError, ConfigError) as error:  # such as a certificate that is being replaced just now
            now_s = self._world.clock.monotonic()
            answer = on.Failed(f"{self.task.state.value}: {error}", now_s, remedy=error.remedy)
        self.point("after", name)
        return answer

    def point(self, moment: str, name: str) -> None:
        """Mark a crash point; the lane marks `Call` and `Quarantine` with it, too."""
        if self._world.hook:
            self._world.hook(moment, name)

    # Recovery

    def _init(self, _: do.Init) -> on.Event:
        if self._session:
            self._session.abandon()
        world, spec = self._world, self.task.spec
        opened = world.broker.session if spec.rules.fenced else world.broker.loose_session
        self._session = opened(spec.transactional_id, batch_bytes=world.batch_bytes)
        self._session.init(timeout_s=LEAVING_INIT_TIMEOUT_S if self.task.leaving else INIT_TIMEOUT_S)
        return on.Initialised()

    def _fetch_offsets(self, _: do.FetchOffsets) -> on.Event:
        spec = self.task.spec
        places = self._places()
        committed = self._world.broker.committed(spec.group, list(places.values())) if places else {}
        return on.OffsetsFetched({binding: committed.get(place) for binding, place in places.items()})

    def _fetch_watermark(self, _: do.FetchWatermark) -> on.Event:
        place = TopicPartition(self.task.spec.backing, self.task.spec.partition)
        try:
            marks = self._world.broker.watermarks([place])[place]
            self._low = marks.low
            return on.WatermarkFetched(marks.high)
        except BrokerError as error:
            facts = self._world.broker.facts([place.topic]).topics.get(place.topic)
            if facts is None or place.partition < facts.partitions:
                raise
            raise FatalError(
                f"{place.topic!r} has {facts.partitions} partitions, none for this task: its input has more. "
                "'cues-kafka plan MODULE:GRAPH --apply' adds the missing ones"
            ) from error

    def _read_newest(self, effect: do.ReadNewest) -> on.Event:
        spec = self.task.spec
        place = TopicPartition(spec.backing, spec.partition)
        found = newest(self._world.broker, place, self._low, effect.high, self._world.clock, group=spec.group)
        if found is None:
            return on.NewestRead(None)
        try:
            return on.NewestRead(read_record(found))
        except CodecError as error:
            where = f"offset {found.offset()} of {spec.backing}/{spec.partition}"
            return on.NewestRead(
                None, f"{where}: {error}{' ' if str(error).endswith('.') else '. '}{_WAY_OUT.format(spec.processor)}"
            )

    def _fetch_inputs(self, _: do.FetchInputs) -> on.Event:
        spec, inlet = self.task.spec, self._world.inlet or self._world.broker
        if not spec.inputs:
            return on.InputsFetched({}, self._world.clock.monotonic())
        replay = (Input(REPLAY, spec.replay),) if spec.replays else ()
        together = inlet is self._world.broker and not spec.tailers
        found = self._facts_of(inlet, spec.inputs + replay if together else spec.inputs)
        tails = {REPLAY: found.pop(REPLAY)} if REPLAY in found else {}
        if others := () if together else spec.tailers + replay:
            tails = self._facts_of(self._world.broker, others)
        return on.InputsFetched(found, self._world.clock.monotonic(), tails)

    def _facts_of(self, inlet: Inlet, bindings: Sequence[Input]) -> dict[str, on.InputFacts]:
        """Ask about the partition of each binding; those whose topic does not have it are left out."""
        partition = self.task.spec.partition
        facts = inlet.facts(list(dict.fromkeys(i.topic for i in bindings))).topics
        places = {
            i.binding: TopicPartition(i.topic, partition)
            for i in bindings
            if i.topic in facts and partition < facts[i.topic].partitions
        }
        marks = inlet.watermarks(list(dict.fromkeys(places.values())))
        return {b: on.InputFacts(facts[place.topic].topic_id, *marks[place]) for b, place in places.items()}

    def _ask_target(self, effect: do.AskTarget) -> on.Event:
        """Its records are made when they are produced: their provenance names the attempt that commits them."""
        asked = self._world.asked
        assert asked is not None
        if isinstance(self.task.record, Snapshot) and not effect.step:
            asked.expect()
        held = asked.ask(effect.owner, effect.step)
        row = None if held is None else row_of(held)
        if row is not None and self.task.record is not None and row.step > self.task.record.step:
            sequence = self.task.next_sequence
            log.warning("target ahead of Kafka", task=self.task.spec.name, steps=row.step - self.task.record.step)
            records = list(asked.outbox())
            check_places(records, self._world.broker)
            self._records = (published(records, sequence),)
        return on.TargetAsked(row)

    def _fetch_sibling(self, _: do.FetchSibling) -> on.Event:
        spec, broker = self.task.spec, self._world.broker
        width = broker.partitions([spec.backing]).get(spec.backing)
        if width is None:  # the broker that was asked does not know yet a topic that was created just now
            raise RetriableError(f"asking for the partitions of {spec.backing}: the topic is not there")
        others = [TopicPartition(spec.backing, p) for p in range(width) if p != spec.partition]
        for place, marks in broker.watermarks(others).items() if others else ():
            record = record_below(broker, place, marks.low, marks.stable, self._world.clock, group=spec.group)
            if record is not None:
                return on.SiblingRead(record.born, record.moving_from)
        return on.SiblingRead(None)

    def _fetch_parts(self, effect: do.FetchParts) -> on.Event:
        """Read up to high watermarks: a publication's markers may still be on their way past the last stable offset."""
        broker, spec = self._world.broker, self.task.spec
        places = [TopicPartition(spec.backing, part) for part in range(1, effect.parts)]
        marks = broker.watermarks(places) if places else {}

        def settled(place: TopicPartition) -> bool:
            record = record_below(broker, place, *marks[place][::2], self._world.clock, group=spec.group)
            staged = record.staged if record is not None else None
            return staged is not None and staged.number == effect.number

        with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="parts") as pool:
            return on.PartsRead(all(pool.map(settled, places)))

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

    def _begin(self, _: do.Begin) -> on.Event:
        self._open.begin()
        return on.Done()

    def _send_offsets(self, effect: do.SendOffsets) -> on.Event:
        partition = self.task.spec.partition
        offsets = {TopicPartition(p.topic, partition): p.offset for p in effect.positions}
        for extent in effect.extents:
            offsets |= offsets_of(extent, extent.start)
        if not self.task.spec.rules.fenced:
            self._world.commit_offsets(offsets, isinstance(self.task.pending, Start))
        elif offsets:  # a part has none: those of its batch come with the next announcement (T4)
            self._world.waits()
            self._open.send_offsets(offsets, self._world.membership())
        return on.Done()

    def _emit(self, _: do.Emit) -> on.Event:
        """W5: what the batch leaves, before the record speaks of it."""
        produced = sum(map(self._open.produce, self._records))
        report = self._open.flush()
        return on.Flushed(report.delivered, produced, report.first_offset)

    def _produce(self, effect: do.Produce) -> on.Event:
        first, rules = record_message(self.task.spec, effect.record), self.task.spec.rules
        if not rules.fenced:
            self._open.begin()  # the reports of what was emitted are in
            self._records = ()
        self._produced = self._open.produce((first,))
        if isinstance(effect.record, Attempt) and effect.record.batch.deliveries:
            self._produced += sum(map(self._open.produce, self._records))
            self._produced += self._open.produce(marks_of(self.task.spec, effect.record))
            if not rules.takes:  # else the task may take again with the same outcomes (W3)
                self._records = ()
        elif self._world.changes is not None:  # not kept like a batch: a tool that goes back to R1 writes them again
            self._produced += self._open.produce(self._world.changes())
            self._produced += self._open.produce(marks_of(self.task.spec, effect.record))
        return on.Done()

    def _flush(self, _: do.Flush) -> on.Event:
        self._world.waits()
        report = self._open.flush()
        return on.Flushed(report.delivered, self._produced, report.first_offset)

    def _commit(self, effect: do.Commit) -> on.Event:
        if effect.unmarked and self.task.record is not None:
            log.warning(
                "marker missing",
                task=self.task.spec.name,
                record=self.task.record.sequence,
                why="a broker lost the commit marker of this record; the commit that follows commits it too",
                remedy="`kafka-transactions --bootstrap-server BOOTSTRAP find-hanging --broker-id ID` finds other "
                "partitions that lack it; `cues-kafka verify` compares what is committed",
            )
        return on.Committed(self._open.commit())

    # Endings

    def _discard(self, effect: do.Discard) -> on.Event:
        for observer in self.observers:
            observer.failed(self.task.spec.name, effect.text, self.task.rounds)
        self._note_failure()
        self._abandon()
        if not self.task.spec.rules.takes:
            self._records = ()
        self.gate.wait(effect.delay_s)
        return on.Done()

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

    @property
    def _open(self) -> Session:
        if self._session is None:
            raise RetriableError("the session is gone")
        return self._session

    def _places(self) -> Mapping[str, TopicPartition]:
        spec = self.task.spec
        return {i.binding: TopicPartition(i.topic, spec.partition) for i in spec.inputs}


def marks_of(spec: Spec, record: Record) -> list[tuple[Any, ...]]:
    """R4b: what ends the changelogs of a task, behind all changes of the transaction."""
    ends = dict(record.stores)
    return [(changelog, spec.partition, MARK, b"%d" % ends[name], None, 0) for name, changelog in spec.stores]


def record_message(spec: Spec, record: Record) -> tuple[Any, ...]:
    """A task's record as it is produced. A header names its kind, too, for people with a Kafka console."""
    kind = type(record).__name__.lower().encode()
    return spec.backing, spec.partition, KEY, encode_record(record), [("cues-kind", kind)], 0

"""A world in which one task lives: literal facts, and a shell that answers effects from them without any I/O."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from cues_kafka.core import effects as do
from cues_kafka.core import events as on
from cues_kafka.core.hashing import fingerprint
from cues_kafka.core.machine import handle
from cues_kafka.core.records import Attempt, Extent, Record, Snapshot, Staged, Start, Totals, Writer
from cues_kafka.core.spec import Input, Spec
from cues_kafka.core.task import Task
from cues_kafka.ports.log import Position, Positions

A, B, RECREATED = b"a" * 16, b"b" * 16, b"n" * 16
"""Ids of the topics `alpha` and `beta`, and of a topic that was recreated."""

IDS = {"alpha": A, "beta": B}
ME = Writer("g.p.1", "native", "here", "this-run")
BEFORE = Writer("g.p.1", "native", "there", "an-earlier-run")

ONE = (Input("in", "alpha"),)
TWO = (Input("left", "alpha"), Input("right", "beta"))


def make_spec(inputs: tuple[Input, ...] = ONE, **changes: Any) -> Spec:
    """Task 1 of processor `p` in graph `g`."""
    common: dict[str, Any] = {
        "graph": "g", "processor": "p", "partition": 1, "inputs": inputs, "transactional_id": "g.p.1", "group": "g.p",
        "backing": "g.p.backing", "width": 4, "writer": ME,
    }  # fmt: skip
    return Spec(**common | changes)


def at(*offsets: int, spec: Spec | None = None) -> Positions:
    """Positions of the inputs of a task, in the order of declaration."""
    inputs = (spec or make_spec(ONE if len(offsets) == 1 else TWO)).inputs
    return tuple(Position(i.binding, i.topic, IDS[i.topic], o) for i, o in zip(inputs, offsets, strict=True))


def plan(spec: Spec) -> bytes:
    """The fingerprint of the declaration as it stands."""
    return fingerprint(spec.processor, spec.pairing, [(i.binding, IDS[i.topic]) for i in spec.inputs])


_Kind = TypeVar("_Kind", bound=Record)


def made(kind: type[_Kind], spec: Spec, positions: Positions, **fields: Any) -> _Kind:
    """A record of an earlier run of this task."""
    common: dict[str, Any] = {
        "sequence": 7, "step": 40, "positions": positions, "totals": Totals(40, 30, 4, 6, 30, 40), "born": 4,
        "writer": BEFORE, "fingerprint": plan(spec),
    }  # fmt: skip
    return kind(**common | fields)


def attempt(spec: Spec, *offsets: int, **fields: Any) -> Attempt:
    """Delivered up to here."""
    return made(Attempt, spec, at(*offsets, spec=spec), **fields)


def start(spec: Spec, *offsets: int, **fields: Any) -> Start:
    """The first record."""
    return made(Start, spec, at(*offsets, spec=spec), **{"sequence": 0, "step": 0, "totals": Totals()} | fields)


def snapshot(spec: Spec, begins: tuple[int, ...], ends: tuple[int, ...], steps: int, **fields: Any) -> Snapshot:
    """About to deliver `[begins, ends)`."""
    return made(Snapshot, spec, at(*begins, spec=spec), **{"ends": at(*ends, spec=spec), "steps": steps} | fields)


QUERY, OTHER_QUERY = "query", "another"


def staged(number: int = 5, *, batch: int = 3, part: int = 0, **changes: Any) -> Staged:
    """A batch of a query, which took [10 * batch, 10 * batch + 10) of its only input."""
    common: dict[str, Any] = {
        "query": QUERY, "batch": batch, "attempt": "first", "checksum": b"c", "number": number, "part": part,
        "parts": 2, "extents": () if part else (Extent("in", A, str(10 * batch), str(10 * batch + 10)),),
    }  # fmt: skip
    return Staged(**common | changes)


def announced(spec: Spec, batch: Staged, **fields: Any) -> Snapshot:
    """T2: the snapshot of a staged batch."""
    return made(Snapshot, spec, (), **{"ends": (), "steps": 0, "sequence": batch.number, "staged": batch} | fields)


def published(spec: Spec, batch: Staged, **fields: Any) -> Attempt:
    """T3: the attempt of one part."""
    return made(Attempt, spec, (), **{"sequence": batch.number + 1, "staged": batch} | fields)


def facts(spec: Spec, *, low: int = 0, stable: int = 100, high: int = 100) -> dict[str, on.InputFacts]:
    """What the cluster says of each input."""
    return {i.binding: on.InputFacts(IDS[i.topic], low, stable, high) for i in spec.inputs}


SHELL = do.Await | do.Call | do.Quarantine | do.Stop | do.Release


@dataclass
class World:
    """
    Answers effects; what it holds may be changed between calls.

    Attributes:
        spec: of the task.
        log: committed records of the backing partition.
        offsets: the group's offsets by binding; None: as the newest record says.
        inputs: facts of the inputs.
        tails: facts of tailers, and of the replay topic.
        born: what a sibling's newest record says.
        now_s: monotonic time; passes with every discard.
        high: high watermark of the backing partition.
        effects: all that was asked for, in order.
        tasks: the task behind each event, in order.
        answers: given once each in the place of the usual answer, by class of the effect.
    """

    spec: Spec
    log: list[Record] = field(default_factory=list)
    offsets: dict[str, int | None] | None = None
    inputs: dict[str, on.InputFacts] | None = None
    tails: dict[str, on.InputFacts] = field(default_factory=dict)
    born: int | None = None
    now_s: float = 1000.0
    high: int = 10
    effects: list[do.Effect] = field(default_factory=list)
    tasks: list[Task] = field(default_factory=list)
    answers: dict[type[do.Effect], list[on.Event]] = field(default_factory=dict)
    _open: Record | None = None

    def run(self, task: Task, event: on.Event) -> tuple[Task, do.Effect]:
        """From an event to the next effect that only a shell with user code can answer."""
        task, effect = handle(task, event)
        self.effects.append(effect)
        self.tasks.append(task)
        while not isinstance(effect, SHELL):
            task, effect = handle(task, self._answer(effect))
            self.effects.append(effect)
            self.tasks.append(task)
        return task, effect

    def begin(self) -> tuple[Task, do.Effect]:
        """A new task, assigned."""
        return self.run(Task(self.spec), on.Assigned())

    def names(self) -> list[str]:
        """Names of the effects since the last call."""
        names = [type(effect).__name__ for effect in self.effects]
        self.effects.clear()
        return names

    def failed(self, text: str = "no answer", *, fenced: bool = False) -> on.Failed:
        """An effect that raised."""
        return on.Failed(text, self.now_s, fenced=fenced)

    def _answer(self, effect: do.Effect) -> on.Event:  # noqa: C901 - one case for each effect
        if planned := self.answers.get(type(effect)):
            answer = planned.pop(0)
            return replace(answer, at_s=self.now_s) if isinstance(answer, on.Failed) else answer
        match effect:
            case do.Init():
                return on.Initialised()
            case do.FetchParts():
                return on.PartsRead(True)
            case do.FetchOffsets():
                return on.OffsetsFetched(self._held())
            case do.FetchWatermark():
                return on.WatermarkFetched(self.high)
            case do.ReadNewest():
                return on.NewestRead(self.log[-1] if self.log else None)
            case do.FetchInputs():
                found = facts(self.spec) if self.inputs is None else self.inputs
                return on.InputsFetched(found, self.now_s, self.tails)
            case do.FetchSibling():
                return on.SiblingRead(self.born)
            case do.Emit():
                return on.Flushed(1, 1, None)
            case do.Produce(record):
                self._open = record
                if not self.spec.rules.fenced:
                    self.log.append(record)
                    self.high += 1
            case do.Flush():
                return on.Flushed(1, 1, self.high)
            case do.Commit():
                assert self._open
                self.log.append(self._open)
                self.high += 2 + self._open.batch.replays * isinstance(self._open, Attempt)
                return on.Committed()
            case do.Discard(_, delay_s):
                self.now_s += delay_s
        return on.Done()

    def _held(self) -> dict[str, int | None]:
        if self.offsets is not None:
            return self.offsets
        held: dict[str, int | None] = dict.fromkeys(i.binding for i in self.spec.inputs)
        return held | ({p.binding: p.offset for p in self.log[-1].positions} if self.log else {})


def called(ends: Positions, outputs: int = 0, errors: int = 0, nils: int = 0, halt: on.Halt | None = None) -> on.Called:
    """User code was called for a number of steps."""
    return on.Called(ends, Totals(outputs + errors + nils, outputs, errors, nils, outputs), halt)


def deliver(
    world: World, task: Task, ends: Positions, steps: int, *, errors: int = 0, nils: int = 0
) -> tuple[Task, do.Effect]:
    """One batch of steps through, under a snapshot where one is due; what is neither error nor nil is an output."""
    if task.snapshot_due:
        task, effect = world.run(task, on.Polled(ends, steps))
        assert isinstance(effect, do.Call)
    return world.run(task, called(ends, steps - errors - nils, errors, nils))

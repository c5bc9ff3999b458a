"""Calls of a processor with a state handler, by the code of the shell: what a batch leaves, each way that it can go.

`task.parts.handlers`, `task.calling.caller` and `state` decide what a handler is told when, so they run here as
they are, on a handler that writes down the steps that changed it. What a process holds between two batches is a value
(`Kept`), from which they are made again. So equal questions have equal answers, and each is asked once.

What stands in the place of the lane: it opens a batch, calls it chunk by chunk, and seals it if a step ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from cues_kafka.brokers.memory.log import MemoryMessage
from cues_kafka.core.delivery import HEADER, parse_provenance
from cues_kafka.core.spec import Spec
from cues_kafka.core.task import Task
from cues_kafka.graph.declare import Raw, Retry
from cues_kafka.graph.definition import Graph
from cues_kafka.graph.handler import Handler, StateHandler
from cues_kafka.graph.processor import Processor, Source
from cues_kafka.graph.topic import Topic
from cues_kafka.ports.facts import ClusterFacts, TopicFacts
from cues_kafka.state.handlers import Handlers, Standing
from cues_kafka.task.calling.batch import Batch, Retrying
from cues_kafka.task.calling.outputs import Now
from cues_kafka.task.making.build import caller_of
from cues_kafka.task.parts.handlers import Handling
from cues_kafka.task.parts.participant import CallContext
from cues_kafka.task.parts.stores import stores_of
from tests.proof.model.states import Delivered, Step
from tests.proof.model.stores import KEEPS, STORE, Value

MAX_RESETS: Final = 1
"""Of the handler: two resets in a row are allowed, so that two faults reach the third."""

LATE_S: Final = 1_000.0
"""How long a method takes that takes too long."""

TOPIC: Final = "topic-a"
CHANGELOG: Final = f"g.p.{STORE}.changelog"


class Again(Exception):
    """What user code raises to be called again."""


class Killed(BaseException):
    """User code has killed its process."""


class Broken(Exception):
    """What a method of the handler raises that fails."""


class Told(NamedTuple):
    """
    What the handler's object holds.

    Attributes:
        steps: that changed it, in order.
        changed: places of those that were not checkpointed.
        held: those that were not drained.
    """

    steps: Value = ()
    changed: tuple[int, ...] = ()
    held: Value = ()


UNFIT: Final = Told(steps=(((0, -1),),))
"""What an object holds that was made and not reset yet."""


class Kept(NamedTuple):
    """
    What a process keeps of a handler between two events of its task.

    Attributes:
        standing: what the handler must be told next.
        told: what its object holds; None: it is not made yet.
        retrying: whether the next step was called before.
        sealed: sequence of the batch whose commit is under way; -1: there is none.
        value: the store behind that batch.
        row: how often the handler was reset before a first call, without a commit or a stop in between.
    """

    standing: Standing = Standing()
    told: Told | None = None
    retrying: bool = False
    sealed: int = -1
    value: Value = ()
    row: int = 0


class Asked(NamedTuple):
    """
    A batch to call.

    Attributes:
        kept: what the process keeps.
        committed: the store as the process knows it.
        record: sequence number of the newest record.
        begun: whether an attempt that delivers is committed.
        steps: of the batch; the first chunk has `chunk` of them.
        kinds: of their messages.
        chunk: see `steps`.
        room: how many faults may happen.
        quarantine: whether the only step is taken out without a call.
    """

    kept: Kept
    committed: Value
    record: int
    begun: bool
    steps: tuple[Step, ...]
    kinds: str
    chunk: int
    room: int
    quarantine: bool = False


class Went(NamedTuple):
    """
    One way that a batch went.

    Attributes:
        kept: what the process keeps.
        carried: the steps that ended, and how.
        totals: of the batch.
        halt: the kind of its halt; empty: there is none.
        faults: how many happened.
        killed: how many steps ended before user code killed the process; -1: it did not.
        wrong: what must not be; empty: nothing.
    """

    kept: Kept
    carried: Delivered = ()
    totals: tuple[int, ...] = ()
    halt: str = ""
    faults: int = 0
    killed: int = -1
    wrong: str = ""


class Steps(StateHandler):
    """The user's object: the steps that changed it."""

    def __init__(self, run: Run, told: Told) -> None:
        self._run = run
        self.told = told

    def take(self, step: Step) -> None:
        """A step changes it."""
        steps, changed, held = self.told
        self.told = Told((*steps, step), (*changed, len(steps)), (*held, step))

    def checkpoint(self) -> Iterator[tuple[bytes, bytes | None]]:
        """The steps with their places."""
        self._run.may_fail("checkpoint")
        steps, changed, _ = self.told
        self.told = self.told._replace(changed=())
        return iter([(b"%d" % place, b"%d" % steps[place][0][1]) for place in changed])

    def reset(self, entries: Iterable[tuple[bytes, bytes]]) -> None:
        """Become what is committed."""
        self._run.reset(initial=False)
        self.told = Told(value_of({int(key): int(value) for key, value in entries}))

    def reset_to_initial(self) -> None:
        """Become nothing."""
        self._run.reset(initial=True)
        self.told = Told()

    def drain(self) -> Iterator[bytes]:
        """One output that names the steps."""
        self._run.may_fail("drain")
        held = self.told.held
        self.told = self.told._replace(held=())
        return iter([b"held %d" % len(held)] if held else [])

    def retire(self, sequence: int) -> None:
        """Hear of a commit."""
        self._run.may_fail("retire")
        self._run.retired(sequence)


def value_of(entries: Mapping[int, int]) -> Value:
    """The store with these offsets by place; a place that is missing has no step."""
    if not entries:
        return ()
    return tuple(((0, entries[place]),) if place in entries else () for place in range(max(entries) + 1))


@dataclass(slots=True)
class Run:
    """
    One way that a batch goes, while it goes.

    Attributes:
        asked: the batch.
        script: what is chosen, place by place; behind its end the first.
        made: what was chosen, and of how many.
        clock_s: the time.
        done: the steps of the batch that changed the handler and are still in it, as it should be.
        row: see `Kept.row`.
        began: whether a step was called.
        failed: the method that failed, but for `retire`.
        faults: how many happened.
        wrong: see `Went`.
    """

    asked: Asked
    script: tuple[int, ...]
    made: list[tuple[int, int]]
    clock_s: float = 0.0
    done: tuple[Step, ...] = ()
    row: int = 0
    began: bool = False
    failed: str = ""
    faults: int = 0
    wrong: str = ""

    def choose(self, ways: int) -> int:
        """One of these ways, by its number."""
        at = len(self.made)
        way = self.script[at] if at < len(self.script) else 0
        self.made.append((way, ways))
        return way

    def fault(self, ways: int) -> int:
        """0: no fault happens; else its kind, from 1 on, as far as there is room."""
        way = self.choose(1 + ways) if self.faults < self.asked.room else 0
        self.faults += way > 0
        return way

    def may_fail(self, method: str) -> None:
        """Raise, where a fault happens."""
        if self.fault(1):
            self.failed = self.failed if method == "retire" else method
            raise Broken(method)

    def reset(self, *, initial: bool) -> None:
        """The handler is reset; it may raise, or take too long."""
        if initial is self.asked.begun:
            self.wrong = f"a reset {'to the beginning' if initial else 'to entries'} where begun={self.asked.begun}"
        if not self.began:
            self.row += 1
            if self.row > MAX_RESETS + 1:
                self.wrong = f"{self.row} resets in a row without a commit, and max_resets={MAX_RESETS}"
        self.done = ()
        way = self.fault(2)
        if way == 1:
            self.failed = "reset"
            raise Broken("reset")
        if way == 2:
            self.failed = "late reset"
            self.clock_s += LATE_S

    def retired(self, sequence: int) -> None:
        """The handler hears that this attempt is committed."""
        if sequence > self.asked.record:
            self.wrong = f"the handler hears of attempt {sequence}, and the newest record is {self.asked.record}"

    def call(self, model: Steps, step: Step, kind: str) -> bytes | None:
        """User code: it changes the handler, and ends as its message says."""
        self.began = True
        due = (*self.asked.committed, *self.done)
        if model.told.steps != due:
            self.wrong = f"the handler says {model.told.steps} before step {step}, and is to say {due}"
        model.take(step)
        ended = "one"[self.choose(3)] if kind == "?" else kind
        match ended:
            case "k":
                raise Killed
            case "e":
                raise ValueError(kind)
            case "r" if self.fault(1):
                raise Again
        self.done = (*self.done, step)
        return None if ended == "n" else b"%d" % step[0][1]


class Calling:
    """
    A processor with a state handler, as the shell calls it.

    Args:
        spec: a task of it.
        asks: whether user code takes its step, and so may ask for a commit: such functions are called another way.
    """

    def __init__(self, spec: Spec, *, asks: bool) -> None:
        self._spec, self._task = spec, Task(spec)
        self._known: dict[Asked, tuple[Went, ...]] = {}
        self._run: Any = None
        self._kinds: dict[int, str] = {}
        names = (TOPIC, "out", "errors", CHANGELOG)
        facts = ClusterFacts(1, {name: TopicFacts(name, name[-1].encode() * 16, 1) for name in names})
        processor = Processor(
            self._called_with_step if asks else self._called,
            name="p",
            inputs={"a": TOPIC},
            outputs="out",
            state={STORE: Handler(lambda: Steps(self._run, UNFIT), max_resets=MAX_RESETS)},
            retry=Retry(on=Again),
        )
        graph = Graph("g", Source(TOPIC), processor, defaults=Topic(value=Raw()), errors="errors")
        self._caller = caller_of(graph, processor, facts, {}, 1_000_000)

    def ways(self, asked: Asked) -> tuple[Went, ...]:
        """Every way that a batch can go, each once."""
        found = self._known.get(asked)
        if found is None:
            found = self._known[asked] = tuple(dict.fromkeys(self._ways(asked)))
        return found

    def _ways(self, asked: Asked) -> Iterator[Went]:
        script: tuple[int, ...] | None = ()
        while script is not None:
            self._run = run = Run(asked, script, [], row=asked.kept.row)
            yield self._went(run)
            script = _following(run.made)

    def _called(self, a: bytes, steps: Steps) -> bytes | None:
        offset = int(a)
        made: bytes | None = self._run.call(steps, ((0, offset),), self._kinds[offset])
        return made

    def _called_with_step(self, a: bytes, steps: Steps, step: Any) -> bytes | None:
        made = self._called(a, steps)
        if self._kinds[int(a)] == "c":
            step.request_commit()
        return made

    def _went(self, run: Run) -> Went:
        asked = run.asked
        self._kinds = {step[0][1]: kind for step, kind in zip(asked.steps, asked.kinds, strict=True)}
        context = self._made(run)
        handlers = handlers_of(context)
        batch = Batch(
            *(self._spec, asked.record + 1, {"a": b"a" * 16}, context), now=lambda: 0.0, today=Now(lambda: 0.0)
        )
        try:
            self._fill(batch, asked)
            self._close(batch)
        except Killed:
            return Went(Kept(), faults=run.faults, killed=len(batch.steps) + batch.deliveries, wrong=run.wrong)
        carried, changes = self._read(batch, asked.steps[: batch.deliveries])
        ended = asked.kinds[: batch.deliveries]
        if "c" in ended[:-1] and not asked.quarantine:
            run.wrong = f"a commit was asked for, and {ended!r} come with it"
        before = {place: step[0][1] for place, step in enumerate(asked.committed) if step}
        if run.failed and batch.deliveries:
            run.wrong = f"{batch.deliveries} steps are to be committed, and {run.failed}() of the handler failed"
        if batch.drained != any(kind in KEEPS for _, kind in carried):
            run.wrong = f"{batch.drained} outputs were drained behind {carried}"
        model = context.values.get(STORE)
        again = batch.halt is not None and batch.halt.kind == "retry"
        kept = Kept(
            standing=handlers.standing,
            told=model.told if isinstance(model, Steps) else None,
            retrying=again,
            sealed=batch.sequence if batch.deliveries else -1,
            value=value_of(before | changes) if batch.deliveries else (),
            row=run.row,
        )
        halt = batch.halt.kind if batch.halt else ""
        return Went(kept, carried, tuple(batch.totals), halt, run.faults, wrong=run.wrong)

    def _made(self, run: Run) -> CallContext:
        """The stores and the handler as the process has them."""
        context, kept = self._caller.context_of(self._spec), run.asked.kept
        handlers = handlers_of(context)
        entries = ((b"%d" % at, b"%d" % step[0][1]) for at, step in enumerate(run.asked.committed) if step)
        stores_of(context).cache(STORE).layers.load(entries)
        handlers.standing = kept.standing
        handlers._now = lambda: run.clock_s
        if kept.told is not None:
            made = Steps(run, kept.told)
            handlers._held[STORE].made = made
            handlers._values[STORE] = made
        return context

    # As the lane does it: `_open`, `_called` or `_fill` or `_quarantined`, and `_close`.

    def _fill(self, batch: Batch, asked: Asked) -> None:
        for part in batch.context.at.begin_batch:
            part.begin_batch(batch, self._task)
        messages = [self._message(step[0][1]) for step in asked.steps]
        if asked.quarantine:
            if batch.halt is None:
                self._caller.quarantine(messages[0], batch)
            return
        retrying = Retrying(1, 0.0) if asked.kept.retrying else None
        done, chunk = 0, asked.chunk
        while done < len(messages) and not (batch.halt or batch.closed):
            done += self._caller.run(messages[done : done + chunk], batch, retrying)
            chunk, retrying = len(messages), None

    def _close(self, batch: Batch) -> None:
        for part in batch.context.at.seal:
            part.seal(batch, self._task, self._caller)

    def _message(self, offset: int) -> MemoryMessage:
        return MemoryMessage(TOPIC, self._spec.partition, offset, None, b"%d" % offset, None, (1, 0), 0)

    def _read(self, batch: Batch, ended: tuple[Step, ...]) -> tuple[Delivered, dict[int, int]]:
        """What the transaction is to hold: outcomes of the steps, and entries of the store by place."""
        kinds: dict[int, str] = {}
        changes: dict[int, int] = {}
        for topic, _, key, value, headers, _ in batch.records:
            if topic == CHANGELOG:
                if key[:1] == b"k":
                    changes[int(key[1:])] = int(value)
                continue
            consumed = parse_provenance(dict(headers)[HEADER]).consumed
            if consumed:
                kinds[consumed[0].offset] = "e" if topic == "errors" else "o"
        return tuple((step, kinds.get(step[0][1], "n")) for step in ended), changes


def _following(made: list[tuple[int, int]]) -> tuple[int, ...] | None:
    """The next script, in the order of counting; None: that was the last one."""
    while made and made[-1][0] + 1 == made[-1][1]:
        made.pop()
    return (*(way for way, _ in made[:-1]), made[-1][0] + 1) if made else None


def handlers_of(context: CallContext) -> Handlers:
    """The handlers of a task."""
    handling = context.part(Handling)
    assert handling is not None
    return handling.handlers

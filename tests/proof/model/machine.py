"""The production core as a function over small integers, so that states of a world are cheap to hash and to keep.

`handle` is pure: the same task and the same event give the same answer. So each pair is asked once, and the answer is
kept; tasks, effects and records are numbered in the order in which they are met. This is no reduction: every
transition of every state goes through `cues_kafka.core.machine.handle`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import replace
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

from cues_kafka.core import effects as do
from cues_kafka.core import events as on
from cues_kafka.core import machine as core
from cues_kafka.core.records import Choice, Record, Totals
from cues_kafka.core.spec import REPLAY, Input, Spec
from cues_kafka.core.task import Doing, Task
from cues_kafka.ports.log import Position, Positions

Key: TypeAlias = tuple[Any, ...]
"""An event as a tuple: its kind and what the world knows of it."""

REPLAY_ID = b"r" * 16
MOST_ASKED = 9
"""The end of the replay topic, as far as R5 is concerned: no world asks that often."""

_Item = TypeVar("_Item", bound=Hashable)


class Broken(Exception):
    """The core was told what it says cannot happen, or failed an assertion: a counterexample by itself."""


class Register(Generic[_Item]):
    """Equal values get the same number."""

    __slots__ = ("_numbers", "items")

    def __init__(self) -> None:
        self._numbers: dict[_Item, int] = {}
        self.items: list[_Item] = []

    def number(self, item: _Item) -> int:
        """Its number, from 0."""
        found = self._numbers.get(item)
        if found is None:
            found = self._numbers[item] = len(self.items)
            self.items.append(item)
        return found


class Facts(NamedTuple):
    """
    What all tasks of a world see of their inputs.

    Attributes:
        inputs: bindings and topics.
        ids: the topics' ids.
        high: the ends of their logs, when all has arrived.
        tailers, tailed_ids, tailed_high: the same of tailers.
        replay: name of the replay topic; empty: there is none.
    """

    inputs: tuple[Input, ...]
    ids: tuple[bytes, ...]
    high: tuple[int, ...]
    tailers: tuple[Input, ...] = ()
    tailed_ids: tuple[bytes, ...] = ()
    tailed_high: tuple[int, ...] = ()
    replay: str = ""

    def positions(self, offsets: tuple[int, ...]) -> Positions:
        """One for each binding."""
        rows = zip(self.inputs, self.ids, offsets, strict=True)
        return tuple(Position(i.binding, i.topic, topic_id, offset) for i, topic_id, offset in rows)

    def tails(self, offsets: tuple[int, ...]) -> Positions:
        """One for each tailer; none where nothing is said of them."""
        rows = zip(self.tailers, self.tailed_ids, offsets, strict=bool(offsets))
        return tuple(Position(i.binding, i.topic, topic_id, offset) for i, topic_id, offset in rows)

    def asked(self, place: int) -> Positions:
        """The place in the replay topic; below 0: nothing is said of it."""
        return (Position(REPLAY, self.replay, REPLAY_ID, place),) if place >= 0 else ()

    def answer(self, highs: tuple[int, ...]) -> on.InputsFetched:
        """R5; time stands still in a world, so that two fences are always close to each other (R7)."""
        rows = zip(self.inputs, self.ids, highs, strict=True)
        tails = zip(self.tailers, self.tailed_ids, self.tailed_high, strict=True)
        found, tailed = (
            {i.binding: on.InputFacts(id_, 0, high, high) for i, id_, high in each} for each in (rows, tails)
        )
        if self.replay:
            tailed[REPLAY] = on.InputFacts(REPLAY_ID, 0, MOST_ASKED, MOST_ASKED)
        return on.InputsFetched(found, 0.0, tailed)


class Machine:
    """
    Tasks by number.

    Attributes:
        tasks: all that were met.
        effects: what they asked for.
        records: what they wrote.
    """

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.tasks: Register[Task] = Register()
        self.effects: Register[Any] = Register()
        self.records: Register[Record] = Register()
        self._known: dict[tuple[int, Key], tuple[int, int]] = {}

    def new(self, spec: Spec) -> int:
        """A task that was told nothing yet."""
        return self.tasks.number(Task(spec))

    def tell(self, task: int, key: Key) -> tuple[int, int]:
        """
        The task afterwards, and its effect.

        Two effects are answered at once. What the inputs are is told with the event before (`newest`), for no worker
        can tell one moment from the other. Records are enqueued in memory, so no reader can tell a crash before from
        one after it.

        Raises:
            Broken: the core refuses the event.
        """
        known = self._known.get((task, key))
        if known is None:
            known = self._known[task, key] = self._tell(self.tasks.items[task], key)
        return known

    def _tell(self, task: Task, key: Key) -> tuple[int, int]:
        task, effect = self._handled(task, self._in_order(task, _EVENTS[key[0]](self, *key[1:])), key)
        while (answer := self.at_once(effect, key)) is not None:
            task, effect = self._handled(task, answer, key)
        return self.tasks.number(task), self.effects.number(effect)

    def _in_order(self, task: Task, event: on.Event) -> on.Event:
        """The shell gives positions in the order in which its process declares the bindings."""
        if task.spec.inputs != self.facts.inputs:
            match event:
                case on.Polled(ends) | on.Called(ends):
                    return replace(event, ends=ends[::-1])
                case on.Idle(positions):
                    return on.Idle(positions[::-1])
        return event

    def _handled(self, task: Task, event: on.Event, key: Key) -> tuple[Task, do.Effect]:
        """What the core alone does: a failure of the explorer itself is no counterexample."""
        try:
            after, effect = core.handle(task, event)
            if after.state is Doing.READY and after.positions:
                declared = [i.binding for i in task.spec.inputs]
                assert [p.binding for p in after.positions] == declared, "the shell pairs messages by place (O7)"
            return after, effect
        except (AssertionError, LookupError, TypeError, ValueError) as error:
            raise Broken(f"{task.spec.name} is {task.state.value}, told {key}: {error!r}") from error

    def at_once(self, effect: do.Effect, key: Key) -> on.Event | None:
        """The answer to an effect that is no transition; None: it is one."""
        match effect:
            case do.FetchInputs():  # mutants ask elsewhere too, in worlds whose inputs do not grow
                return self.facts.answer(key[2] if key[0] == "newest" else self.facts.high)
            case do.Produce():
                return on.Done()
        return None

    def record(self, number: int) -> Record:
        """A record by its number."""
        return self.records.items[number]


def offsets_of(positions: Positions) -> tuple[int, ...]:
    """In the order of the names of bindings, which is the world's; a process may declare them in another one."""
    return tuple(p.offset for p in sorted(positions))


def _held(machine: Machine, held: tuple[int, ...]) -> on.Event:
    offsets = held or (None,) * len(machine.facts.inputs)
    return on.OffsetsFetched({i.binding: o for i, o in zip(machine.facts.inputs, offsets, strict=True)})


def _newest(machine: Machine, number: int, _: tuple[int, ...]) -> on.Event:
    return on.NewestRead(machine.record(number) if number >= 0 else None)


def _polled(  # noqa: PLR0917  a key has its parts in order
    machine: Machine,
    ends: tuple[int, ...],
    steps: int,
    choice: Choice,
    timers: bool = False,
    tail_ends: tuple[int, ...] = (),
    replay: bool = False,
) -> on.Event:
    facts = machine.facts
    return on.Polled(facts.positions(ends), steps, choice, timers, facts.tails(tail_ends), replay)


def _called(  # noqa: PLR0917  as above
    machine: Machine,
    ends: tuple[int, ...],
    counts: tuple[int, ...],
    kind: str,
    tails: tuple[int, ...] = (),
    replays: int = -1,
) -> on.Called:
    facts = machine.facts
    halt = on.Halt(kind, "user code said so", "none") if kind else None
    places = facts.positions(ends) if ends else ()
    return on.Called(places, Totals(*counts), halt, tails=facts.tails(tails), replays=facts.asked(replays))


def _fed(_: Machine, counts: tuple[int, ...], kind: str, place: str) -> on.Event:
    halt = on.Halt(kind, "the source said so", "none") if kind else None
    return on.Called((), Totals(*counts), halt, place)


_EVENTS: dict[str, Callable[..., on.Event]] = {
    "assigned": lambda _, first: on.Assigned(first),
    "revoked": lambda machine, *called: on.Revoked(_called(machine, *called) if called else None),
    "lost": lambda _: on.Lost(),
    "done": lambda _: on.Done(),
    "initialised": lambda _: on.Initialised(),
    "held": _held,
    "high": lambda _, high: on.WatermarkFetched(high),
    "newest": _newest,
    "asked": lambda _, row: on.TargetAsked(row),
    "parts": lambda _, settled: on.PartsRead(settled),
    "sibling": lambda _, *read: on.SiblingRead(*read),
    "flushed": lambda _, delivered, produced, first: on.Flushed(delivered, produced, first),
    "committed": lambda _, suspect: on.Committed(suspect),
    "polled": _polled,
    "called": _called,
    "fed": _fed,
    "idle": lambda machine, ends: on.Idle(machine.facts.positions(ends)),
    "failed": lambda _, text, fenced: on.Failed(text, 0.0, fenced),
}

"""What a mutant is, and how it is put in the place of the rule that it takes out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

from cues_kafka.core import effects as do
from cues_kafka.core import machine as core
from cues_kafka.core.task import Doing, Task
from tests.proof.model.search import Found, Search
from tests.proof.model.states import Faults
from tests.proof.model.world import World
from tests.proof.model.worlds import with_faults, world_of

Patch: TypeAlias = tuple[Any, str, Any]
"""Owner of a name, the name, and what stands there instead."""

Handler: TypeAlias = Callable[..., tuple[Task, do.Effect]]

CRASH = Faults(crash=1, move=0, net=0, zombie=0, total=1)
CRASHES = Faults(crash=2, move=0, net=0, zombie=0, total=2)
NET = Faults(crash=0, move=0, net=1, zombie=0, total=1)
NETS = Faults(crash=0, move=0, net=2, zombie=0, total=2)
MOVE = Faults(crash=0, move=1, net=0, zombie=0, total=1)
MOVES = Faults(crash=0, move=2, net=0, zombie=0, total=2)
ZOMBIE = Faults(crash=0, move=0, net=0, zombie=1, total=1)
NOTHING = Faults(crash=0, move=0, net=0, zombie=0, total=0)
NET_AND_CRASH = Faults(crash=1, move=0, net=1, zombie=0, total=2)
NET_AND_MOVE = Faults(crash=0, move=1, net=1, zombie=0, total=2)
ZOMBIE_AND_CRASH = Faults(crash=1, move=0, net=0, zombie=1, total=2)


@dataclass(frozen=True, slots=True)
class Mutant:
    """
    One change.

    Attributes:
        name: what is missing.
        world: where it must show.
        faults: that are enough for it.
        patches: the change.
        progress: whether I5 is judged; where it is not needed the search is faster.
    """

    name: str
    world: str
    faults: Faults
    patches: tuple[Patch, ...]
    progress: bool = True

    def explore(self, *, limit: int = 400_000) -> Found:
        """Search the world with the rule taken out."""
        with applied(*self.patches):
            return Search(world_of(with_faults(self.world, self.faults)), limit=limit, progress=self.progress).run()


@contextmanager
def applied(*patches: Patch) -> Iterator[None]:
    """Put the changes in their places, and back what stood there."""
    with ExitStack() as stack:
        for owner, name, new in patches:
            if name in vars(owner):
                stack.callback(setattr, owner, name, getattr(owner, name))
            else:  # inherited
                stack.callback(delattr, owner, name)
            setattr(owner, name, new)
        yield


def handler(name: str, new: Handler) -> Patch:
    """Another handler in the core's table, see `handlers`."""
    return handlers(**{name: new})


def handlers(**new: Handler) -> Patch:
    """
    Other handlers in the core's table, by the names of those that they replace.

    Each is given the original one, the task and the event, and may lead anywhere.
    """
    everywhere = frozenset(Doing)
    there = {old.__name__ for row in core.TRANSITIONS.values() for old, _ in row.values()}
    assert new.keys() <= there, f"not in the table: {new.keys() - there}"
    table = {
        state: {
            event: (partial(new[old.__name__], old), everywhere) if old.__name__ in new else (old, following)
            for event, (old, following) in row.items()
        }
        for state, row in core.TRANSITIONS.items()
    }
    return core, "TRANSITIONS", table


def around_world(name: str, new: Callable[..., Any], world: type[World] = World) -> Patch:
    """Another method of the world, which is given the original one first."""
    old = getattr(world, name)

    def method(self: World, *args: Any, **kwargs: Any) -> Any:
        return new(old, self, *args, **kwargs)

    return world, name, method


# Rules that several worlds have in common.


def reading_first(**more: Handler) -> Patch:
    """R1 behind R4."""

    def start(old: Handler, task: Task, event: Any) -> tuple[Task, do.Effect]:
        task, _ = old(task, event)
        return replace(task, state=Doing.FETCHING_OFFSETS), do.FetchOffsets()

    def newest(old: Handler, task: Task, event: Any) -> tuple[Task, do.Effect]:
        task, _ = old(task, event)
        return replace(task, state=Doing.INITIALISING), do.Init()

    def initialised(_: Handler, task: Task, _event: Any) -> tuple[Task, do.Effect]:
        return replace(task, state=Doing.FETCHING_INPUTS), do.FetchInputs()

    return handlers(assigned=start, discarded=start, newest_read=newest, initialised=initialised, **more)


def reports_ignored(*, place: bool) -> Patch:
    """P6, and with `place` P6a too."""

    def flushed(old: Handler, task: Task, event: Any) -> tuple[Task, do.Effect]:
        first = task.expected if place else event.first_offset
        return old(task, replace(event, delivered=event.produced, first_offset=first))

    return handler("flushed", flushed)


def anywhere(old: Handler, task: Task, event: Any) -> tuple[Task, do.Effect]:
    """P6a left out."""
    return old(task, replace(event, first_offset=task.expected))


def suspect_trusted() -> Patch:
    """P8 for failures only."""
    return handler("committed", lambda old, task, event: old(task, replace(event, suspect=None)))


def fenced_slot_again() -> Patch:
    """D5 left out."""

    def failed(old: Handler, task: Task, event: Any) -> tuple[Task, do.Effect]:
        after, effect = old(replace(task, spec=replace(task.spec, slot=False)), event)
        return replace(after, spec=task.spec), effect

    return handler("failed", failed)

"""Tools that die at each of their effects: a cluster as a process sees it that ends there, as by SIGKILL."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeVar

from cues_kafka.errors import BrokerError
from cues_kafka.testing.tester import Tester

EFFECTS: Final = frozenset({
    *("init", "begin", "send_offsets", "produce", "flush", "commit", "send", "member", "settle"),
    *("create", "add_partitions", "configure", "delete", "trim", "forget"),
})  # fmt: skip
"""What a tool changes outside of its process, by the names of `ports`."""

CLIENTS: Final = frozenset(["session", "loose_session", "reader", "member", "sender"])
"""What gives a client, which dies with its process."""


class Killed(BaseException):
    """The process has ended. No code of it does anything any more, whatever it catches."""


class Life:
    """A process that ends before or after its nth effect; at 0 it only counts them."""

    def __init__(self, moment: str, nth: int) -> None:
        self._moment, self._nth = moment, nth
        self.effects: list[str] = []
        self.ended = False

    def check(self) -> None:
        """The dead ask nothing."""
        if self.ended:
            raise Killed

    def passes(self, moment: str, effect: str) -> None:
        """An effect begins, or has happened."""
        if moment == "before":
            self.effects.append(effect)
        if (moment, len(self.effects)) == (self._moment, self._nth):
            self.ended = True
            raise Killed


class Mortal:
    """A port, or a client that it gave, in such a process."""

    def __init__(self, target: Any, life: Life) -> None:
        self._target, self._life = target, life

    def __getattr__(self, name: str) -> Any:
        found, life = getattr(self._target, name), self._life
        if not callable(found):
            return found

        def call(*args: Any, **kwargs: Any) -> Any:
            life.check()
            if name in EFFECTS:
                life.passes("before", name)
            result = found(*args, **kwargs)
            if name in EFFECTS:
                life.passes("after", name)
            return Mortal(result, life) if name in CLIENTS else result

        return call


class HasBroker(Protocol):
    """A world of a test."""

    @property
    def broker(self) -> Any:
        """Its cluster, in memory."""
        ...

    @property
    def tester(self) -> Tester:
        """Its workers, and its time."""
        ...


class Numbers:
    """
    A world with a topic `numbers`.

    Attributes:
        tester: its workers.
        width: how many partitions the topic has.
    """

    tester: Tester
    width: int

    @property
    def broker(self) -> Any:
        """The cluster."""
        return self.tester.broker

    def send(self, *numbers: int) -> None:
        """Into each partition."""
        records = [("numbers", p, None, b"%d" % n, None, 0) for p in range(self.width) for n in numbers]
        self.broker.sender("test").send(records)


W = TypeVar("W", bound=HasBroker)


@dataclass(frozen=True)
class Verb(Generic[W]):
    """
    What an operator does.

    Attributes:
        world: makes the cluster that it is done to, always the same.
        act: does it, whole, from the plan to the end; gets the world and what its process sees of the cluster.
        seen: what must come out; it may run workers.
        groups: groups that the tool joins; a dead one's members are gone when it is run again.
        rest_s: what passes until then.
    """

    world: Callable[[], W]
    act: Callable[[W, Any], Any]
    seen: Callable[[W], Any]
    groups: tuple[str, ...] = ()
    rest_s: float = 0.0

    def die_everywhere(self) -> Mapping[str, int]:
        """
        Let it die before and after each effect, and run it again; what comes out must be as if it had not died.

        Returns:
            How many effects of each kind it has.
        """
        whole, life = self.world(), Life("", 0)
        self.act(whole, Mortal(whole.broker, life))
        expected = self.seen(whole)
        for nth in range(1, len(life.effects) + 1):
            for moment in ("before", "after"):
                one, death = self.world(), Life(moment, nth)
                with contextlib.suppress(Killed):
                    self.act(one, Mortal(one.broker, death))
                where = f"{moment} effect {nth} of {life.effects}"
                assert death.ended, where
                self._bury(one)
                self.act(one, one.broker)
                assert self.seen(one) == expected, where
        return {name: life.effects.count(name) for name in dict.fromkeys(life.effects)}

    def _bury(self, world: W) -> None:
        for group in self.groups:
            with contextlib.suppress(BrokerError):  # it had not joined
                world.broker.expire(group)
        if self.rest_s:
            world.tester.clock.sleep(self.rest_s)

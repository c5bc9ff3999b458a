"""Holds consumer groups without other members, so that no worker joins while a tool writes (P5)."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Final, Self, TypeAlias

from cues_kafka.errors import RecoveryError
from cues_kafka.operate.look.members import has_members
from cues_kafka.ports.broker import Broker
from cues_kafka.ports.clients import GroupMetadata, Member
from cues_kafka.ports.clock import Clock

JOIN_TIMEOUT_S: Final = 60.0
"""Time for a join: brokers hold back the first join of a group for some seconds, and wait for other members."""


class HeldGroup:
    """The only member of a group for a moment. A call returns the proof, and fails when another member has joined."""

    def __init__(self, broker: Broker, group: str, topic: str, width: int, clock: Clock) -> None:
        self._group = group
        self._width = width
        self._clock = clock
        self._owned: set[int] = set()
        self._member: Member = broker.member(group, topic, self)

    def __enter__(self) -> Self:
        try:
            self._join()
        except BaseException:
            self._member.close(leave=True)  # a client that may not join tries it again without end
            raise
        return self

    def _join(self) -> None:
        deadline = self._clock.monotonic() + JOIN_TIMEOUT_S
        pause = threading.Event()
        self._member.poll()
        while not self._alone:
            if self._clock.monotonic() > deadline:
                raise RecoveryError(f"group {self._group!r} is not free after {JOIN_TIMEOUT_S:g} s. Stop its workers.")
            pause.wait(0.05)  # a poll never waits, and no event tells of it
            self._member.poll()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._member.close(leave=True)

    def hold(self, seconds: float) -> None:
        """
        Stay the only member for this time.

        Raises:
            RecoveryError: another member has joined.
        """
        deadline, pause = self._clock.monotonic() + seconds, threading.Event()
        while self._clock.monotonic() < deadline:
            self()
            pause.wait(0.05)  # a poll never waits, and no event tells of it

    def __call__(self) -> GroupMetadata:
        self._member.poll()
        if not self._alone:
            raise RecoveryError(f"a worker joined group {self._group!r}. Stop it, run the command again.")
        return self._member.metadata()

    @property
    def _alone(self) -> bool:
        return self._member.metadata().generation >= 0 and self._owned >= set(range(self._width))

    def on_assign(self, partitions: Sequence[int]) -> None:
        """Note the partitions; a member that has all of them is alone."""
        self._owned.update(partitions)

    def on_revoke(self, partitions: Sequence[int]) -> None:
        """Note that another member has joined."""
        self._owned.difference_update(partitions)

    on_lost = on_revoke


HeldGroups: TypeAlias = Mapping[str, HeldGroup]
"""Groups that are held, by name."""


@contextlib.contextmanager
def hold_groups(broker: Broker, groups: Iterable[str], topic: str, width: int, clock: Clock) -> Iterator[HeldGroups]:
    """Hold groups until the end of the block, joined in this order; `width` is the number of the topic's partitions."""
    with contextlib.ExitStack() as memberships:
        yield {group: memberships.enter_context(HeldGroup(broker, group, topic, width, clock)) for group in groups}


def proof_of(held: HeldGroups, group: str) -> Callable[[], GroupMetadata]:
    """Gives the proof of membership in one of the groups, and fails when another member has joined any of them."""

    def proof() -> GroupMetadata:
        for name, other in held.items():
            if name != group:
                other()
        return held[group]()

    return proof


def refuse_members(broker: Broker, groups: Iterable[str]) -> None:
    """Refuse with a `RecoveryError` while one of these groups has members."""
    for group in groups:
        if members := broker.members(group):
            raise RecoveryError(has_members({group: members}))

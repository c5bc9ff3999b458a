"""`Acked` in random worlds; and without each of its rules, which then are found broken."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from cues_kafka.bridges import acked
from cues_kafka.bridges.acked import Acked, AckedPart
from cues_kafka.bridges.ledger import AttemptLedger
from tests.unit.bridges.acked_world import World

SEEDS = 100


@pytest.mark.parametrize("ids", ["unique", "marked", "packets"])
def test_messages_come_exactly_once_and_all_are_acknowledged(ids: str) -> None:
    """Whatever dies, is lost or comes late, at any moment."""
    for seed in range(SEEDS):
        world = World(seed, ids)
        wrong = world.run()
        assert not wrong, f"seed {seed}: {wrong}: {world.trace}"


def late_world(seed: int) -> World:
    """One whose process knows what its ledger has forgotten."""
    return World(seed, "unique", partial(Acked, unique=True))


def test_messages_come_once_however_late_a_broker_delivers_again() -> None:
    """As long as the process lives that had their ids in its ledger when it began, or took them."""
    for seed in range(2 * SEEDS):
        world = late_world(seed)
        wrong = world.run_late()
        assert not wrong, f"seed {seed}: {wrong}: {world.trace}"


HEALTHY = ("publish", "acks", "read", "commit")


def test_numbers_that_are_used_again_at_once_are_new_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the broker's mark, a known id is a message."""
    monkeypatch.setattr(World, "STEPS", HEALTHY)
    for seed in range(SEEDS):
        assert not World(seed, "lowest").run()


def _small_ledger(patch: pytest.MonkeyPatch) -> None:
    """B1: fewer ids than the broker delivers."""
    made = AttemptLedger.__init__
    patch.setattr(AttemptLedger, "__init__", lambda self, place, room: made(self, place, max(1, room // 2)))


def _forget_acknowledged(patch: pytest.MonkeyPatch) -> None:
    """B1: ids leave the ledger when they are acknowledged."""
    settle = AckedPart._settle

    def forget(self: Any) -> None:
        settle(self)
        if self._memory is not None and self._connection is not None:
            counts = self._memory._counts
            for one in [one for one, at in counts.items() if at <= self._committed]:
                del counts[one]
            self._memory._order = list(counts)

    patch.setattr(AckedPart, "_settle", forget)


def _ack_known_at_once(patch: pytest.MonkeyPatch) -> None:
    """B2: a known redelivery is acknowledged before its id is committed."""
    known = AttemptLedger.known
    patch.setattr(AttemptLedger, "known", lambda self, delivery: None if known(self, delivery) is None else -1)


def _ack_when_taken(patch: pytest.MonkeyPatch) -> None:
    """B2: messages are acknowledged before their commit."""
    accept = AckedPart._accept

    def taken(self: Any, memory: AttemptLedger) -> None:
        accept(self, memory)
        self._committed = memory.count

    patch.setattr(AckedPart, "_accept", taken)


def _never_ack_known(patch: pytest.MonkeyPatch) -> None:
    """B2: a redelivery is dropped and not acknowledged."""

    class Deaf(type(acked.deque())):  # type: ignore[misc]
        def append(self, one: Any) -> None:
            if one[0] >= 0:
                super().append(one)

    known = AttemptLedger.known
    patch.setattr(AttemptLedger, "known", lambda self, delivery: None if known(self, delivery) is None else -1)
    made = AckedPart.__init__

    def deaf(self: Any, *given: Any, **more: Any) -> None:
        made(self, *given, **more)
        self._pending = Deaf()

    patch.setattr(AckedPart, "__init__", deaf)


def _keep_connection(patch: pytest.MonkeyPatch) -> None:
    """B3: after a recovery the connection stays."""
    stand_at = AckedPart._stand_at

    def keep(self: Any, place: str | None) -> AttemptLedger:
        kept, disconnect = self._connection, self._disconnect
        self._disconnect = lambda: None
        try:
            return stand_at(self, place)
        finally:
            self._disconnect = disconnect
            assert self._connection is kept

    patch.setattr(AckedPart, "_stand_at", keep)


def _any_connection(patch: pytest.MonkeyPatch) -> None:
    """B4: what came on another connection is acknowledged on this one."""
    disconnect = AckedPart._disconnect

    def keep(self: Any) -> None:
        pending = list(self._pending)
        disconnect(self)
        self._pending.extend(pending)

    patch.setattr(AckedPart, "_disconnect", keep)


def _large_batches(patch: pytest.MonkeyPatch) -> None:
    """B5: a batch waits for more than the broker delivers. A lane closes it when it is full only, in this world."""
    commit = World.commit

    def full(self: World) -> None:
        if len(self.batch) >= self.source.most:
            commit(self)

    patch.setattr(World, "commit", full)
    patch.setattr(World, "_start", _with_most(World._start))


def _with_most(start: Callable[[World], None]) -> Callable[[World], None]:
    def started(self: World) -> None:
        start(self)
        self.source.most = self.queue.prefetch + 1

    return started


def _ids_without_mark(patch: pytest.MonkeyPatch) -> None:
    """B6: numbers that are used again are matched without the broker's mark; nothing else goes wrong."""
    patch.setattr(World, "STEPS", HEALTHY)
    known = AttemptLedger.known
    patch.setattr(AttemptLedger, "known", lambda self, delivery: known(self, delivery._replace(again=True)))


def _no_match(patch: pytest.MonkeyPatch) -> None:
    """Redeliveries are messages."""
    patch.setattr(AttemptLedger, "known", lambda _, __: None)


def _no_release(patch: pytest.MonkeyPatch) -> None:
    """B7: the connection of a process that has lost the part stays open."""
    patch.setattr(Acked, "release", lambda _, __: None)


def _remember_nothing(patch: pytest.MonkeyPatch) -> None:
    """B1: what the ledger forgets is forgotten."""
    patch.setattr(AttemptLedger, "remember", lambda _: None)


def _forget_in_a_recovery(patch: pytest.MonkeyPatch) -> None:
    """B1: an aborted transaction ends what the process remembers."""
    patch.setattr(AttemptLedger, "former_at", lambda _, __: {})


def _remember_what_is_void(patch: pytest.MonkeyPatch) -> None:
    """B1: what an aborted transaction had is remembered, too."""
    patch.setattr(AttemptLedger, "former_at", lambda self, _: self.former)


LATE: dict[Callable[[pytest.MonkeyPatch], None], str] = {
    _remember_nothing: "duplicate",
    _forget_in_a_recovery: "duplicate",
    _remember_what_is_void: "loss",
}


MUTANTS: dict[Callable[[pytest.MonkeyPatch], None], tuple[str, str]] = {
    _small_ledger: ("duplicate", "unique"),
    _forget_acknowledged: ("duplicate", "unique"),
    _ack_known_at_once: ("loss", "unique"),
    _ack_when_taken: ("loss", "unique"),
    _never_ack_known: ("never acknowledged", "unique"),
    _keep_connection: ("standstill", "unique"),
    _any_connection: ("unknown delivery", "unique"),
    _large_batches: ("standstill", "unique"),
    _ids_without_mark: ("loss", "lowest"),
    _no_match: ("duplicate", "unique"),
    _no_release: ("standstill", "unique"),
}


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda one: one.__name__.strip("_"))
def test_without_a_rule_a_world_is_broken(
    mutant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each rule of `Acked` is needed."""
    mutant(monkeypatch)
    kind, ids = MUTANTS[mutant]
    for seed in range(10 * SEEDS):
        try:
            wrong = World(seed, ids).run()
        except KeyError:  # the broker is told of a delivery that it does not know
            wrong = "unknown delivery"
        if wrong.startswith(kind):
            return
    pytest.fail("no world was broken")


@pytest.mark.parametrize("mutant", LATE, ids=lambda one: one.__name__.strip("_"))
def test_a_late_redelivery_needs_what_a_process_remembers(
    mutant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of it, and only what is committed."""
    mutant(monkeypatch)
    wrong = (late_world(seed).run_late() for seed in range(10 * SEEDS))
    assert any(one.startswith(LATE[mutant]) for one in wrong), "no world was broken"

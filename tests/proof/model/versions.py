"""What worlds with workers of two declarations share: how such a worker starts, and hears that it was stopped."""

from __future__ import annotations

from tests.proof.model.states import MOVE, Moves, State, Worker, put
from tests.proof.model.world import World

FORMER, LATTER, TOOL = range(3)
"""The workers: of the former declaration, of the new one, and the operator's."""


class VersionsWorld(World):
    """A world whose first two workers have different declarations."""

    def _start(self, s: State, w: int, out: Moves, *, calm: bool) -> None:
        """A worker is started; it costs a fault where the operator did not do it."""
        group = self.group(s)
        if group.members[w] or any(self.worker(s, w).lanes):
            return
        after = s if calm else self._spend(s, MOVE)
        if after is not None:
            after = self._put_group(after, group._replace(members=put(group.members, w, True)))
            out.append((("operator" if calm else "another operator", f"starts w{w}"), calm, after))

    def _noticing(self, s: State, out: Moves) -> None:
        """A worker that was stopped, or expelled, hears of it and ends."""
        group = self.group(s)
        for w in (FORMER, LATTER):
            worker = self.worker(s, w)
            if not group.members[w] and any(worker.lanes):
                for lane in filter(None, worker.lanes):
                    self.machine.tell(lane.task, ("lost",))
                after = self._put_worker(s, w, Worker(worker.deaths, (None,) * self.setting.partitions))
                out.append(((f"w{w}", "hears that it lost its partitions, and ends"), True, after))

"""A world whose user code reads another topic with a tailer, and writes into a target (E1, L2, S5).

Where the tailers stand behind a batch is in the target's row, because the target may be ahead of Kafka: then the task
commits the attempt that the row has, with these places. What the steps of that attempt saw is in the outbox.
"""

from __future__ import annotations

from typing import Any, cast

from cues_kafka.core.tails import behind
from tests.proof.model.outbox import EMPTY, Batch, Contents, OutboxWorld, Published
from tests.proof.model.states import Lane, Part, State
from tests.proof.model.stores import NOTHING_HELD
from tests.proof.model.tailing import Seen, Tailing, TailWorld


class TailedOutboxWorld(TailWorld, OutboxWorld):
    """A setting with a target and `tailed`. The tailer takes the place of a store in a lane, which has none."""

    def _tailing(self, lane: Lane) -> Tailing:
        held: Any = lane.store
        return Tailing() if held == NOTHING_HELD else cast("Tailing", held)

    def _with_tailing(self, lane: Lane, tailing: Tailing) -> Lane:
        return lane._replace(store=cast("Any", tailing))

    def _views_of(self, lane: Lane) -> Seen:
        return lane.own.value if isinstance(lane.own, Published) else super()._views_of(lane)

    def _seen_in(self, part: Part) -> Seen:
        seen: Seen = (part.target or EMPTY).seen
        return seen

    def _with_seen(self, part: Part, seen: Seen) -> Part:
        return part._replace(target=(part.target or EMPTY)._replace(seen=seen))

    def _written(self, s: State, p: int, lane: Lane, batch: Batch) -> Contents:
        """The row says where the tailers stand, too; the outbox, what its steps saw."""
        made, tailing = super()._written(s, p, lane, batch), self._tailing(lane)
        assert made.row
        tails = self.machine.facts.tails((tailing.at,))
        row = behind(self.task(lane), made.row, tails, put_off=bool(batch.halt))
        return made._replace(row=row, value=tailing.views)

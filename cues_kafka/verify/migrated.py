"""A migration of a task to other inputs, as its history tells it (X6).

Outcomes from before name other inputs, other pairs, or messages that the books would miss. So the books of the task
begin at the migration, at its positions and totals, and what came before is not judged any more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from cues_kafka.core.records import Totals
from cues_kafka.graph.names import quoted
from cues_kafka.ports.log import Positions
from cues_kafka.records.history import Moved
from cues_kafka.verify.ledger import OUTPUT, Marks, Track


class Migration(NamedTuple):
    """
    A record with which an operator gave a task other inputs.

    Attributes:
        sequence: of the record.
        before: where the former inputs stood.
        positions: where the inputs of now began.
        totals: of the task at this moment.
    """

    sequence: int
    before: Positions
    positions: Positions
    totals: Totals

    def parts(self, *, join: bool) -> bool:
        """
        Whether the books have to begin here.

        They need not, if each message is a step of its own, all former inputs are there, maybe under other names, and
        the added ones began at their first messages.

        Args:
            join: whether the processor is a join now.
        """
        was, now = [p.topic_id for p in self.before], [p.topic_id for p in self.positions]
        skipped = any(p.offset for p in self.positions if p.topic_id not in was)
        return join or skipped or len({*now}) < len(now) or not {*was} <= {*now}

    @property
    def limit(self) -> str:
        """What is not judged, and why."""
        bindings = quoted([p.binding for p in self.before])
        return (
            f"an operator migrated it at backing record {self.sequence} from the inputs {bindings}; its outcomes from "
            "before that are not judged"
        )


def migration(move: Moved) -> Migration | None:
    """What a move has changed; None: the inputs are the same."""
    if {(p.binding, p.topic) for p in move.was} == {(p.binding, p.topic) for p in move.now}:
        return None
    return Migration(move.sequence, move.was, move.now, move.totals)


def newest_part(migrations: Sequence[Migration], *, join: bool) -> Migration | None:
    """The migration at which the books of a task begin; None: none of them parts the books."""
    return next((one for one in reversed(migrations) if one.parts(join=join)), None)


def without(totals: Totals, part: Migration | None) -> Totals:
    """The totals since a migration."""
    return totals if part is None else Totals(*(now - was for now, was in zip(totals, part.totals, strict=True)))


class Former(Track):
    """Outcomes from before a migration, of any form; they are not judged."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(Marks(0, -1), OUTPUT, (0,))  # `ends`: every message goes through `several`

    def several(self, part: bytes, where: bytes) -> None:
        """Leave it out."""

"""What a state has besides that of `tests.proof.model.states`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from tests.proof.model.states import IDLE, Moves, Outcome, Setting, State


class Share(NamedTuple):
    """
    What one task has in a transaction.

    Attributes:
        p: its partition.
        places: where its records landed in the backing log.
        backing: whether the backing partition is part of the transaction: one that is added gets a marker.
        offsets: pending; empty: none.
        loose: outcomes that are not committed.
    """

    p: int
    places: tuple[int, ...] = ()
    backing: bool = False
    offsets: tuple[int, ...] = ()
    loose: tuple[Outcome, ...] = ()


class Transaction(NamedTuple):
    """What the coordinator knows of one transactional id; the newest session is `Part.holder` of its partition."""

    phase: int = IDLE
    shares: tuple[Share, ...] = ()


class Met(Exception):
    """The first calm move was found."""

    def __init__(self, after: State) -> None:
        super().__init__()
        self.after = after


class First(Moves):
    """Ends with the first calm move that is added."""

    def append(self, move: Any) -> None:
        """
        Add a move.

        Raises:
            Met: it is calm.
        """
        _, calm, after = move
        if calm:
            raise Met(after)


@dataclass(frozen=True, slots=True, kw_only=True)
class JointSetting(Setting):
    """
    One world.

    Attributes:
        former: workers that have a session for each task, as releases before; so have slots and tools, always.
        upgraded: these workers are of a former release in their first life only.
        spark: `enters`: the processor moves from the workers to Spark; `leaves`: from Spark to the workers; and back.
        markers: `together`: all of a transaction in one step; `offsets`: those of the group apart; `apart`: all apart.
        refused: offset of a message from partition 1 on whose output a broker always refuses; -1: there is none.
        any_id: a session takes any id that it may, not the first.
        begun: the world begins where the first process has all tasks, which wait for messages.
        first_id: whose id its session has then.
        delivered: tasks that have nothing left to deliver then.
    """

    former: tuple[int, ...] = ()
    upgraded: bool = False
    spark: str = ""
    markers: str = "together"
    refused: int = -1
    any_id: bool = False
    begun: bool = False
    first_id: int = 0
    delivered: tuple[int, ...] = ()

"""Worlds whose operator may also drop error messages, instead of having them replayed (X1, Y2).

`errors drop` writes requests, as `errors replay` does, and reads what is settled. It writes nothing else. So wherever
it is killed, and however often it is run again, it has asked for some errors, in some order, once or several times. The
operator here asks for any error at any time, by either wish, which includes all that such a command may leave.

`Part.target` has the wishes beside the requests. The first request of an error message decides what becomes of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from cues_kafka.core.records import Record
from tests.proof.model.replaying import AGAIN, Error, ReplayWorld, error_of, place_of
from tests.proof.model.states import Delivered, Moves, Part, State, Step, Turn

WISHES: Final = ("replay", "drop")


class DroppingWorld(ReplayWorld):
    """A setting with a worker of the kind `dropper`, which is the operator's."""

    def _asking(self, s: State, out: Moves) -> None:
        """X1: an operator asks for any error that is there, at any time and at no price; twice, too."""
        for p, part in enumerate(self.parts(s)):
            if len(part.asked) == self.setting.replays:
                continue
            for error in sorted({error_of(one.step) for one in part.outputs if one.kind in "eq"}):
                for wish in WISHES:
                    wishes = (*(part.target or ()), wish)
                    after = self._put_part(s, p, part._replace(asked=(*part.asked, error), target=wishes))
                    out.append((("operator", f"asks for a {wish} of {error}"), False, after))

    def _results(self, turn: Turn, steps: tuple[Step, ...]) -> Iterator[tuple[Delivered, str]]:
        """Y2: a drop calls nothing, and settles its error message as a nil."""
        if self._replays(steps) and self._drops(turn):
            [step] = steps
            yield ((step, AGAIN),), ""
        else:
            yield from super()._results(turn, steps)

    def _drops(self, turn: Turn) -> bool:
        """Whether the request that comes next is a drop."""
        part = self.part(turn.s, turn.p)
        return bool(part.target[place_of(self.task(turn.lane).record)] == "drop")

    def _dropped(self, part: Part, record: Record) -> set[Error]:
        first: dict[Error, str] = {}
        for error, wish in zip(part.asked[: place_of(record)], part.target or (), strict=False):
            first.setdefault(error, wish)
        return {error for error, wish in first.items() if wish == "drop"}

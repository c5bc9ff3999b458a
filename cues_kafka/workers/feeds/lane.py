"""One task of a feed at work, for those that ask how it is. `reading` says how it fills its batches."""

from __future__ import annotations

from functools import partial
from typing import Any

from cues_kafka.core import effects as do
from cues_kafka.observe.log import get_logger
from cues_kafka.ports.log import Positions
from cues_kafka.task.calling.failures import show
from cues_kafka.task.lane import Lane
from cues_kafka.workers.feeds.reading import Feeding, FeedReading

log = get_logger("cues_kafka.task")

MANY = 10
"""A `Tester` lets time pass for a source that does not answer until it has been asked so often."""


class FeedLane(Lane):
    """One task of a feed; see `Lane` for what it has besides."""

    _filling: FeedReading

    def __init__(self, spec: Any, feeding: Feeding, **world: Any) -> None:
        super().__init__(spec, feeding, fills=partial(FeedReading, feeding=feeding), **world)  # type: ignore[arg-type]

    @property
    def wakes_to_call_ahead(self) -> bool:
        """See `Lane`. What a source has ready wakes no thread."""
        return True

    @property
    def idle(self) -> bool:
        """Whether nothing is read or on its way, and the source had nothing more when it was asked last."""
        reading, place = self._filling, self._filling.place
        return (
            place is not None
            and place.ended
            and not reading.hurried
            and not reading.awaits(place)
            and super().idle
            and place is self.buffer
        )

    @property
    def reached(self) -> Positions:
        """The end of its own records."""
        return self.task.positions

    @property
    def read_up_to(self) -> str:
        """The committed place, for people."""
        record = self.task.record
        return self._filling.feeding.into.show(record.place) if record and record.place else ""

    @property
    def silent(self) -> str:
        """Why the source does not answer, and for how long; empty: it answers."""
        place = self._filling.place
        if place is None or not place.why:
            return ""
        return f"source does not answer for {self.silent_s:.0f} s: {place.why}"

    @property
    def silent_s(self) -> float:
        """For how long the source has not answered, in seconds; 0: it answers."""
        place = self._filling.place
        return 0.0 if place is None or not place.why else self._desk.clock.monotonic() - place.since_s

    @property
    def wake_at_s(self) -> float | None:
        """When to call `work` again; None: no need."""
        place = self._filling.place
        if self.busy or isinstance(self.interpreter.effect, do.Stop) or self._desk.ask_at_s is not None:
            return super().wake_at_s
        if place is None or not isinstance(self.interpreter.effect, do.Await):
            return None
        return 0.0 if self._filling.awaits(place) else place.look_at_s

    @property
    def waits_for_clock(self) -> bool:
        """Whether it waits for news of a source that had nothing more, or that has failed often."""
        place = self._filling.place
        waits = place is not None and place.look_at_s > self._desk.clock.monotonic()
        return waits and place is not None and (place.ended or place.failures > MANY)

    def look(self) -> None:
        """Ask the source at once: it has news, or may have."""
        self._filling.hurried = True

    def revoke(self, timeout_s: float, **more: Any) -> bool:
        """
        See `Lane`. The source is told of the last commit, unless it is being read or no time is left.

        The next start tells it again. Until then a broker would keep messages whose outcome is committed.
        """
        place = self._filling.place
        released = super().revoke(timeout_s, **more)
        told_now = released and timeout_s > 0 and not self._working
        if told_now and place is not None and not place.why:
            try:
                self._filling.tell_committed(place)
            except Exception as error:  # noqa: BLE001 - it is shown, and the next start tells the source again
                log.warning("last commit not reported to the source", task=self.spec.name, why=show(error))
        return released

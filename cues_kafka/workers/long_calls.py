"""How long the present call of a worker takes, and what is done about a long one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from cues_kafka.graph.declare import CallPolicy
from cues_kafka.observe.log import get_logger
from cues_kafka.ports.clock import Clock
from cues_kafka.task.lane import Calling, Lane

log = get_logger("cues_kafka.worker")

LONG_S = 1.0
"""The status shows calls that take longer."""


@dataclass(slots=True)
class _Call:
    """A call that is under way, since when, and whether it was logged as long."""

    lane: Lane
    calling: Calling
    since_s: float
    logged: bool = False

    def is_same(self, lane: Lane, calling: Calling) -> bool:
        """Whether the same call is still under way."""
        return self.lane is lane and self.calling.steps is calling.steps and self.calling.at == calling.at


class Overdue(NamedTuple):
    """A task whose call takes longer than `end_seconds`, and what to say about it."""

    lane: Lane
    text: str


class LongCalls:
    """Measures the present call. `look` is called on the poller's thread, `shown` on any."""

    def __init__(self, clock: Clock, policy: CallPolicy) -> None:
        self._clock = clock
        self._policy = policy
        self._call: _Call | None = None

    def look(self, lanes: Iterable[Lane]) -> Overdue | None:
        """Look at the present call of these tasks, and log a long one; the task that must be given up."""
        found = next(((lane, now) for lane in lanes if (now := lane.calling)), None)
        call = self._call
        if found is None or call is None or not call.is_same(*found):
            self._call = _Call(*found, self._clock.monotonic()) if found else None
            return None
        took_s, policy, lane = self._clock.monotonic() - call.since_s, self._policy, call.lane
        if took_s >= policy.warn_seconds and not call.logged:
            call.logged = True
            log.warning("call takes long", task=lane.spec.name, at=lane.place(call.calling), for_s=round(took_s))
        if policy.end_seconds is None or took_s < policy.end_seconds:
            return None
        return Overdue(
            lane,
            f"task {lane.spec.name} has been calling the function for {took_s:.0f} s with {lane.place(call.calling)}, "
            f"longer than calls.end_seconds={policy.end_seconds:g}. Find what it waits for, and give that a time-out",
        )

    def shown(self, lane: Lane) -> dict[str, Any]:
        """What the status of a task says about its call; empty: none of it is under way, or not for long."""
        call, now = self._call, lane.calling
        if call is None or now is None or not call.is_same(lane, now):
            return {}
        took_s = self._clock.monotonic() - call.since_s
        if took_s < LONG_S:
            return {}
        return {"calling": f"calling for {took_s:.0f} s: {lane.place(call.calling)}", "calling_s": took_s}

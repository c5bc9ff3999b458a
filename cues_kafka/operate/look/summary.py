"""A graph in one sentence: the last line of `status`, and the header of the browser view."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cues_kafka.plan.wellness import NOT_AT_WORK
from cues_kafka.words import count

if TYPE_CHECKING:
    from cues_kafka.operate.look.seen import GraphStatus


def words(seen: GraphStatus) -> str:
    """The whole in a sentence."""
    if seen.unreachable:
        return f"cannot reach the cluster: {seen.unreachable}"
    found = seen.unwell
    bad = [one for one in seen.tasks if not one.ok and one.state in (*NOT_AT_WORK, "stopped")]
    waiting = f"{count(seen.lag, 'offset')} behind" if seen.lag else "no messages are waiting"
    if throttled := len({one.owner for one in seen.tasks if one.throttled_s}):
        waiting += f", {count(throttled, 'process', 'processes')} throttled by a quota"
    blocked = len({one.name for one in found if one.kind == "blocked"})
    if blocked:
        waiting += f", {count(blocked, 'task')} held back by an open transaction"
    if silent := len({one.name for one in found if one.kind == "silent"}):
        waiting = f"{count(silent, 'task')} without an answer of {'its' if silent == 1 else 'their'} source, {waiting}"
    if late := sum(one.late for one in seen.tasks):
        waiting = f"{count(late, 'message')} came too late for a window or a bound, {waiting}"
    if lost := len({one.name for one in found if one.kind == "lost"}):
        waiting = f"{count(lost, 'task')} without what {'it works' if lost == 1 else 'they work'} on, {waiting}"
    if killed := sum(one.quarantined for one in seen.tasks):
        waiting = f"{count(killed, 'message')} in quarantine, {waiting}"
    if refused := [one for one in found if one.kind == "refused"]:
        waiting = f"{count(len(refused), 'refusal')} by the plan, {waiting}"
    if not bad and found:
        return waiting
    if not bad:
        paused = sum(one.state in ("paused", "pausing") for one in seen.tasks)
        well = f"{count(paused, 'task')} of {len(seen.tasks)} paused" if paused else "all is well"
        return f"{well}, {waiting}"
    states = [one.state for one in bad]
    return f"{', '.join(_in_state(state, states.count(state)) for state in dict.fromkeys(states))}; {waiting}"


def _in_state(state: str, tasks: int) -> str:
    """How many tasks are in a state: ``2 tasks stopped``."""
    has = "has" if tasks == 1 else "have"
    plain = {"no worker": f"{has} no worker", "left": f"{has} no worker (it was shut down)"}
    return f"{count(tasks, 'task')} {plain.get(state, state)}"

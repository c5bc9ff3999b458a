"""
The worlds of joint sessions, by name. Each has two tasks, and most of them two processes.

`joint-stop` is about J7. `joint-former`, `joint-after-former`, `joint-upgraded`, `joint-slot`, `joint-enters`,
`joint-leaves` and `joint-moved` are about J8, and `joint-most` and `joint-least` about J9.
"""

from __future__ import annotations

from dataclasses import replace

from cues_kafka.core.strategies import AT_LEAST_ONCE, AT_MOST_ONCE
from tests.proof.model.outbox import OutboxWorld
from tests.proof.model.states import Faults, State
from tests.proof.model.taking import TakingWorld
from tests.proof.model.world import World
from tests.proof.sessions.entering import EnteringWorld
from tests.proof.sessions.joint import JointWorld
from tests.proof.sessions.loose import JointLoose
from tests.proof.sessions.states import JointSetting


class JointTaking(TakingWorld, JointWorld):
    """A setting at-most-once, whose native workers have one session each."""

    def _left(self, s: State, w: int, p: int) -> State:
        """I16: a revocation whose time is over may drop what was taken under the id."""
        session = self.session(s, w)
        for q in session.last if session.id == p else ():
            s = self._excused(s, q)
        return super()._left(s, w, p)


class JointOutbox(OutboxWorld, JointWorld):
    """A setting with a target, whose native workers have one session each."""


_JOINT = JointSetting(name="", about="", inputs=("o",), partitions=2, batch=1, begun=True)

_WORLDS = [
    replace(_JOINT, name="joint", about="two workers"),
    replace(_JOINT, name="joint-idle", about="the task of the session's id has nothing to deliver", delivered=(0,)),
    replace(_JOINT, name="joint-other", about="the other task has nothing to deliver", delivered=(1,)),
    replace(
        _JOINT, name="joint-idle-markers", about="the first of these two, and markers apart", delivered=(0,),
        markers="apart",
    ),
    replace(_JOINT, name="joint-fresh", about="the same, from the first record of each task on", begun=False),
    replace(
        _JOINT, name="joint-alone", about="one worker, two messages of each task",
        workers=("native",), inputs=("oo",),
    ),
    replace(_JOINT, name="joint-ids", about="a session that takes the id of any of its tasks", any_id=True),
    replace(_JOINT, name="joint-markers", about="markers of the group and of each partition apart", markers="apart"),
    replace(_JOINT, name="joint-eager", about="rebalances take everything", eager=True),
    replace(_JOINT, name="joint-three", about="three workers", workers=("native",) * 3),
    replace(_JOINT, name="joint-former", about="a worker of a former release takes tasks over", former=(1,)),
    replace(_JOINT, name="joint-after-former", about="tasks come from a worker of a former release", former=(0,)),
    replace(
        _JOINT, name="joint-upgraded", about="processes of a former release, whose successors have joint sessions",
        former=(0, 1), upgraded=True,
    ),
    replace(_JOINT, name="joint-slot", about="a slot of Spark beside a worker", workers=("native", "slot")),
    replace(
        _JOINT, name="joint-enters", about="the processor moves from a worker to Spark",
        workers=("native", "slot"), spark="enters", first_id=1,
    ),
    replace(
        _JOINT, name="joint-leaves", about="the processor moves from Spark to a worker",
        workers=("native", "slot"), spark="leaves", begun=False,
    ),
    replace(
        _JOINT, name="joint-moved", about="a reset beside a worker that the operator believes stopped",
        workers=("native", "tool"), moves=2, first_id=1,
    ),
    replace(
        _JOINT, name="joint-kill", about="a message that kills its process, beside a task that is delivered",
        inputs=("o",), others=("k",), workers=("native",),
    ),
    replace(
        _JOINT, name="joint-careful", about="the same in a batch: the task goes step by step behind two deaths",
        inputs=("oo",), others=("ok",), workers=("native",), batch=2,
    ),
    replace(
        _JOINT, name="joint-stop", about="user code that stops its task on purpose",
        inputs=("oo",), others=("os",), workers=("native",), batch=2,
    ),
    replace(
        _JOINT, name="joint-refused", about="a task whose output no broker takes", others=("o",),
        workers=("native",), refused=0,
    ),
    replace(_JOINT, name="joint-retry", about="user code that asks to be called again", others=("r",)),
    replace(_JOINT, name="joint-target", about="a target that commits the attempt too", inputs=("?",), target=True),
    replace(_JOINT, name="joint-most", about="at-most-once", strategy=AT_MOST_ONCE),
    replace(
        _JOINT, name="joint-least", about="at-least-once: one plain producer for all tasks", strategy=AT_LEAST_ONCE,
    ),
]  # fmt: skip

WORLDS = {setting.name: setting for setting in _WORLDS}


def with_faults(name: str, faults: Faults) -> JointSetting:
    """A world by its name, with this number of faults."""
    return replace(WORLDS[name], faults=faults)


def world_of(setting: JointSetting) -> World:
    """What a setting speaks of."""
    if setting.strategy == AT_LEAST_ONCE:
        return JointLoose(setting)
    if setting.strategy == AT_MOST_ONCE:
        return JointTaking(setting)
    if setting.spark:
        return EnteringWorld(setting)
    return JointOutbox(setting) if setting.target else JointWorld(setting)

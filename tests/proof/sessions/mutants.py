"""Mutants of joint sessions: rules of `facts` and of J1 to J7 taken out, each of which the explorer must catch.

P6a alone guards the backing partition against every second writer, because a record must land where the log ended. So a
rule that only keeps a second writer away is covered by it, and goes together with it here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from cues_kafka.core import effects as do
from cues_kafka.core.events import OffsetsFetched
from cues_kafka.core.records import Snapshot
from cues_kafka.core.task import Doing, Task
from cues_kafka.workers.joint import rounds
from cues_kafka.workers.joint.rounds import BeforeLeaving, Round, RoundStage, SessionState
from tests.proof.model.mutant import (
    CRASH,
    CRASHES,
    MOVE,
    NET,
    NET_AND_MOVE,
    NOTHING,
    ZOMBIE,
    Handler,
    Mutant,
    Patch,
    anywhere,
    applied,
    around_world,
    handlers,
    reading_first,
    reports_ignored,
)
from tests.proof.model.search import Found
from tests.proof.model.states import HOLE, ONGOING, Faults, Part, State, Turn, unowned
from tests.proof.sessions.entering import EnteringWorld
from tests.proof.sessions.joint import JointWorld
from tests.proof.sessions.loose import JointLoose
from tests.proof.sessions.search import JointSearch
from tests.proof.sessions.session import Sessions
from tests.proof.sessions.worlds import JointTaking, with_faults, world_of

MOVE_AND_CRASH = Faults(crash=1, move=1, net=0, zombie=0, total=2)


@dataclass(frozen=True, slots=True)
class JointMutant(Mutant):
    """
    One change, in a world of joint sessions.

    Attributes:
        turns: whether progress is judged of tasks that take turns.
    """

    turns: bool = False

    def explore(self, *, limit: int = 400_000, nearest: int | None = None) -> Found:
        """Search the world with the rule taken out; progress is judged of the `nearest` states, or of all."""
        with applied(*self.patches):
            return self.search(limit, nearest).run()

    def search(self, limit: int, nearest: int | None) -> JointSearch:
        """The search, which has not begun."""
        world = world_of(with_faults(self.world, self.faults))
        return JointSearch(world, limit=limit, progress=self.progress, nearest=nearest, turns=self.turns)


def around(name: str, new: Any) -> Patch:
    """Another method of the world, which is given the original one first."""
    return around_world(name, new, JointWorld)


def rule(name: str, new: Any) -> Patch:
    """Another rule of a session, in production code; it is given the original one first."""
    old = getattr(SessionState, name)

    def method(self: SessionState, *args: Any, **kwargs: Any) -> Any:
        return new(old, self, *args, **kwargs)

    return SessionState, name, method


PLACE = handlers(flushed=anywhere)
"""P6a left out."""


def _unstable_read() -> Patch:
    return around("_require_stable", lambda *_: False)


def _high_before_stable(**more: Handler) -> Patch:
    """R3 before R2."""

    def initialised(_: Handler, task: Task, _event: Any) -> tuple[Task, do.Effect]:
        return replace(task, state=Doing.FETCHING_WATERMARK), do.FetchWatermark()

    def watermark(_: Handler, task: Task, event: Any) -> tuple[Task, do.Effect]:
        return replace(task, state=Doing.FETCHING_OFFSETS, expected=event.high, follows=False), do.FetchOffsets()

    def offsets(_: Handler, task: Task, event: OffsetsFetched) -> tuple[Task, do.Effect]:
        held = tuple(event.offsets.items())
        return replace(task, state=Doing.READING_NEWEST, offsets=held), do.ReadNewest(task.expected)

    return handlers(initialised=initialised, watermark_fetched=watermark, offsets_fetched=offsets, **more)


def _slow_cleaner() -> Patch:
    """The record before the newest one is still there, so that an old watermark leads to it."""

    def marked(old: Any, world: JointWorld, part: Part) -> Part:
        after: Part = old(world, part)
        before = max((i for i, entry in enumerate(part.log) if entry >= 0 and entry & 1), default=-1)
        if before < 0 or after.log[before] != HOLE:
            return after
        return after._replace(log=(*after.log[:before], part.log[before], *after.log[before + 1 :]))

    return around("_marked", marked)


def _without_throwaway() -> Patch:
    """J2: only the own id is initialised."""

    def initialise(old: Any, world: JointWorld, turn: Turn, k: int, *, own: bool) -> None:
        if own or world._per_task(turn.s, turn.w):
            old(world, turn, k, own=own)
            return
        told = world._tell(turn.s, turn.w, turn.p, turn.lane, "initialised")
        turn.out.append(((world._name(turn.w, turn.p), "initialises nothing"), turn.owner, told))

    return around("_initialise", initialise)


def _id_kept() -> Patch:
    """J1: the id stays when its task goes, and the session with it."""
    return rule("left", lambda _, session, task: session.discards(task))


def _own_id_trusted() -> Patch:
    """J2: a task whose id the session has is taken for initialised."""

    def init(old: Any, world: JointWorld, turn: Turn, effect: Any) -> None:
        session = world.session(turn.s, turn.w)
        if world._per_task(turn.s, turn.w) or not session.live or session.id != turn.p:
            old(world, turn, effect)
            return
        told = world._tell(turn.s, turn.w, turn.p, turn.lane, "initialised")
        turn.out.append(((world._name(turn.w, turn.p), "trusts its session"), turn.owner, told))

    return around("_init", init)


def _without_generation() -> Patch:
    return around("_is_member", lambda *_: True)


def _last_stable() -> Patch:
    """R3 by the last stable offset."""

    def watermark(_: Any, _world: JointWorld, log: tuple[int, ...]) -> int:
        opened = [i for i, entry in enumerate(log) if entry >= 0 and not entry & 1]
        return opened[0] if opened else len(log)

    return around("_watermark", watermark)


def _acknowledged_early() -> Patch:
    """J5: a revocation is acknowledged while the task goes on, also within a transaction."""

    def rebalancing(old: Any, world: JointWorld, s: State, out: Any) -> None:
        group = world.group(s)
        for p, owner in enumerate(group.owners):
            if owner >= 0 and group.revoking[p]:
                after = world._regenerated(world._put_group(s, unowned(group, p)))
                out.append(((f"w{owner}", f"acknowledges at once that p{p} is revoked"), True, after))
                return
        old(world, s, out)

    return around("_rebalancing", rebalancing)


def _offers_without(kind: type) -> Patch:
    """P5: a transaction whose records are of this kind sends no offsets, so no generation is looked at."""

    def offer(old: Any, world: JointWorld, *given: Any) -> None:
        s, w, tasks, turn, out = given
        pending = [world.task(world.worker(s, w).lanes[q]).pending for q in tasks]
        k = world._id(s, w, tasks[0])
        without = all(isinstance(record, kind) for record in pending) and world._has_epoch(s, w, k, tasks)
        if not without:
            old(world, *given)
            return
        told = world._opened_here(s, k)
        for q in tasks:
            told = world._told(told, w, q, "done")
        told = world._gone_on(told, w, tasks)
        out.append(((f"w{w}/{world._shown(tasks)}", "sends no offsets"), turn.owner, told))

    return around("_offer", offer)


def _group_not_served() -> Patch:
    """A worker does not poll while one of its tasks recovers: it gets no task, and gives none back."""
    busy = {
        Doing.INITIALISING,
        Doing.FETCHING_OFFSETS,
        Doing.FETCHING_WATERMARK,
        Doing.READING_NEWEST,
        Doing.DISCARDING,
    }

    def recovers(world: JointWorld, s: State, w: int) -> bool:
        return any(lane is not None and world.task(lane).state in busy for lane in world.worker(s, w).lanes)

    def assigning(old: Any, world: JointWorld, *given: Any) -> None:
        s, p, group, out = given
        members = tuple(one and not recovers(world, s, w) for w, one in enumerate(group.members))
        found: Any = []
        old(world, s, p, group._replace(members=members), found)
        for label, calm, after in found:
            out.append((label, calm, world._put_group(after, world.group(after)._replace(members=group.members))))

    return around("_assigning", assigning)


def _records_first() -> Patch:
    """J3 in the order of P5: records may land before the request for offsets is refused."""

    def refused(old: Any, world: JointWorld, *given: Any, **more: Any) -> None:
        s, w, k, tasks, who = given
        old(world, *given, **more)
        if not world._per_task(s, w):
            after = world._over_for(world._all_written(s, w, k, tasks), w, tasks, "no member")
            more["out"].append(((who, "offsets: no member any more, and records have landed"), more["calm"], after))

    return around("_refused", refused)


def _blocked_waits() -> Patch:
    """R7: a recovery that is blocked asks again, and does not return to R1."""
    effects: dict[Doing, do.Effect] = {Doing.FETCHING_OFFSETS: do.FetchOffsets()}

    def failed(old: Handler, task: Task, event: Any) -> tuple[Task, do.Effect]:
        if event.text in ("blocked", "unstable"):
            return task, effects.get(task.state, do.ReadNewest(task.expected))
        return old(task, event)

    return handlers(failed=failed)


def _others_not_told() -> Patch:
    """J4: where the records of one task are not right, the others commit."""

    def reported(old: Any, world: JointWorld, *given: Any, **more: Any) -> State:
        def kept(_old: Any, inner: JointWorld, s: State, w: int, going: Any, _why: str) -> State:
            left = tuple(q for q in going if isinstance(inner._effect(s, w, q), do.Commit))
            rest = Round(left, RoundStage.COMMIT, left) if left else None
            return inner._put_session(s, w, replace(inner.session(s, w), round=rest))

        with applied(around("_over_for", kept)):
            return old(world, *given, **more)  # type: ignore[no-any-return]

    return around("_reported", reported)


def _session_kept() -> Patch:
    """P8: the session goes on after a failure, with its transaction open."""

    def over(old: Any, world: JointWorld, s: State, w: int, tasks: Any, *why: Any) -> State:
        session = world.session(s, w)
        after: State = old(world, s, w, tasks, *why)
        return after if world._per_task(s, w) else world._put_session(after, w, replace(session, round=None))

    return around("_over_for", over)


def _suspect_trusted() -> Patch:
    """P8: the session goes on behind a suspect commit."""
    return rule("concluded", lambda old, session, **_: old(session))


def _never_by_itself() -> Patch:
    return rounds, "commits_by_itself", lambda _: False


def _fresh_ids() -> Patch:
    """J1: an id of its own for each session: no other init ends what it left open."""

    def initialise(old: Any, world: JointWorld, turn: Turn, k: int, *, own: bool) -> None:
        open_ = world.transaction(turn.s, k).phase == ONGOING
        if not own or not open_:
            old(world, turn, k, own=own)
            return
        s, w, p, lane, owner, out = turn
        after = world._put_session(s, w, SessionState(k, live=True))
        if k == p:
            after = world._tell(after, w, p, lane, "initialised")
        out.append(((world._name(w, p), "init under another id"), owner, after))

    return around("_initialise", initialise)


def _rounds_without_end(**more: Handler) -> Patch:
    """R7 left out."""
    return handlers(failed=lambda old, task, event: old(replace(task, rounds=0), event), **more)


def _throwaway_of_new_tasks() -> Patch:
    """J2 by the letter of the first form: a task that the process kept is not initialised again."""

    def initialise(old: Any, world: JointWorld, turn: Turn, k: int, *, own: bool) -> None:
        if own or not world.task(turn.lane).rounds:
            old(world, turn, k, own=own)
            return
        told = world._tell(turn.s, turn.w, turn.p, turn.lane, "initialised")
        turn.out.append(((world._name(turn.w, turn.p), "initialises nothing"), turn.owner, told))

    return around("_initialise", initialise)


def _believed_written() -> Patch:
    """J9: where the shared producer was closed, the others take their outcomes for written."""

    def failed(old: Any, world: JointLoose, *given: Any, **more: Any) -> State:
        s, w, p, lane, why = given
        after: State = super(JointLoose, world)._failed(s, w, p, lane, why, **more)
        for q, other in enumerate(world.worker(after, w).lanes):
            if q != p and other is not None and isinstance(world._effect_of(other), do.Emit):
                count = len(other.carried)
                after = world._tell(after, w, q, other, "flushed", count, count, None)
        return after

    return around_world("_failed", failed, JointLoose)


def _waits_for_round_only(old: Any, session: SessionState, task: int) -> BeforeLeaving:
    return BeforeLeaving.ROUND if old(session, task) is BeforeLeaving.ROUND else BeforeLeaving.NOTHING


_ID_GOES_AT_ONCE = rule("leaves", lambda *_: BeforeLeaving.NOTHING)
_MARKERS_AT_ONCE = rule("leaves", _waits_for_round_only)
_NO_TASK_RECOVERS = rule("left", lambda old, session, task: old(replace(session, last=()), task))
_NOT_EXCUSED: Patch = (JointTaking, "_left", JointWorld._left)
_NOT_RENEWED: Patch = (SessionState, "renews", property(lambda _: False))
_BELOW_FOR_ALL = rule("knows_marker", lambda *_: True)
_SLOT_ASKS_NOTHING = around_world("_asks", lambda *_: False, Sessions)
_TOOL_ENDS_ITS_OWN = around("_all_ended", lambda *_: True)
_DRIVER_ENDS_NOTHING = around_world("_initialises_all", lambda *_: False, EnteringWorld)

MUTANTS = (
    JointMutant("delivery reports not counted", "joint-alone", NET, (reports_ignored(place=True),), progress=False),
    JointMutant(
        "offsets not stable, and a record lands anywhere", "joint-idle", ZOMBIE, (PLACE, _unstable_read()),
        progress=False,
    ),
    JointMutant(
        "watermark before stable offsets, and a record lands anywhere", "joint-idle", ZOMBIE,
        (_high_before_stable(flushed=anywhere), _slow_cleaner()), progress=False,
    ),
    JointMutant("no throwaway init", "joint", CRASH, (_without_throwaway(),)),
    JointMutant(
        "own id trusted, and kept when its task goes", "joint-other", MOVE_AND_CRASH, (_id_kept(), _own_id_trusted())
    ),
    JointMutant(
        "no generation check, and a record lands anywhere", "joint-idle", ZOMBIE, (PLACE, _without_generation()),
        progress=False,
    ),
    JointMutant(
        "last stable offset, and a record lands anywhere", "joint-idle-markers", NET_AND_MOVE, (PLACE, _last_stable()),
        progress=False,
    ),
    JointMutant(
        "tasks go on behind a change of the id", "joint-markers", MOVE, (_MARKERS_AT_ONCE, _NO_TASK_RECOVERS),
        progress=False,
    ),
    JointMutant(
        "tasks recover behind a change of the id, at-most-once", "joint-most", MOVE, (_MARKERS_AT_ONCE, _NOT_EXCUSED)
    ),
    JointMutant("suspect commits trusted", "joint-alone", NET, (_suspect_trusted(),), progress=False),
    JointMutant("revocation acknowledged early", "joint-idle", MOVE, (_acknowledged_early(),), progress=False),
    JointMutant("init after reading", "joint", CRASH, (reading_first(),)),
    JointMutant("snapshots without offsets", "joint", NOTHING, (_offers_without(Snapshot),), progress=False),
    JointMutant("records before offsets", "joint", ZOMBIE, (_records_first(),)),
    JointMutant("a blocked recovery does not return to R1", "joint", CRASH, (_blocked_waits(),)),
    JointMutant("the others commit without the task that failed", "joint", NET, (_others_not_told(),), progress=False),
    JointMutant("a session goes on after a failure", "joint-alone", NET, (_session_kept(),), progress=False),
    JointMutant("a discarded session waits for a task", "joint-idle", NET_AND_MOVE, (_NOT_RENEWED,)),
    JointMutant("ids of their own", "joint", CRASH, (_fresh_ids(),)),
    JointMutant("a session keeps the id of a task that is gone", "joint", MOVE, (_id_kept(),), turns=True),
    JointMutant(
        "a task behind failures commits with others", "joint-refused", NOTHING, (_never_by_itself(),), turns=True
    ),
    JointMutant(
        "a group that is not served in a recovery, and rounds without end", "joint-alone", NET_AND_MOVE,
        (_group_not_served(), _rounds_without_end()),
    ),
    JointMutant("a tool initialises the id of one task", "joint-moved", NOTHING, (_TOOL_ENDS_ITS_OWN,)),
    JointMutant("a driver initialises no ids before its slots", "joint-enters", MOVE, (_DRIVER_ENDS_NOTHING,)),
    JointMutant(
        "outcomes of a closed producer are taken for written", "joint-least", NET, (_believed_written(),),
        progress=False,
    ),
    JointMutant("a slot that does not ask for members", "joint-slot", MOVE, (_SLOT_ASKS_NOTHING,)),
    JointMutant(
        "a record lands anywhere, beside a slot that does not ask for members", "joint-slot", MOVE,
        (PLACE, _SLOT_ASKS_NOTHING), progress=False,
    ),
)  # fmt: skip

COVERED = (
    (
        JointMutant("a group that is not served in a recovery", "joint-alone", NET_AND_MOVE, (_group_not_served(),)),
        "R7: after five rounds the task stops, and the worker serves its group",
    ),
    (JointMutant("a record lands anywhere", "joint-idle", ZOMBIE, (PLACE,)), "stable offsets, and the generation"),
    (
        JointMutant("a record lands anywhere, beside a slot", "joint-slot", MOVE, (PLACE,), progress=False),
        "J8: a slot that asks for members is never beside a worker that goes on",
    ),
    (JointMutant("offsets not stable", "joint-idle", ZOMBIE, (_unstable_read(),)), "P6a"),
    (
        JointMutant("watermark before stable offsets", "joint-idle", ZOMBIE, (_high_before_stable(), _slow_cleaner())),
        "P6a",
    ),
    (
        JointMutant("last stable offset", "joint-idle-markers", NET_AND_MOVE, (_last_stable(),)),
        "P6a, and J4: a discarded session is initialised at once",
    ),
    (JointMutant("no generation check", "joint-idle", ZOMBIE, (_without_generation(),)), "P6a"),
    (
        JointMutant("throwaway init of new tasks only", "joint", MOVE_AND_CRASH, (_throwaway_of_new_tasks(),)),
        "J1: the id is kept, so what a process left open under it is ended by its next own init",
    ),
    (
        JointMutant("an id is given up without another init", "joint-markers", MOVE, (_MARKERS_AT_ONCE,)),
        "J4: the tasks of the last transaction recover, which costs a round; at-most-once, see above",
    ),
    (
        JointMutant("P6b after a commit of any session", "joint-markers", MOVE, (_BELOW_FOR_ALL,), progress=False),
        "J5: the id is given up behind the markers of its last transaction",
    ),
    (
        JointMutant("the task of the id leaves within a transaction", "joint", MOVE, (_ID_GOES_AT_ONCE,)),
        "J4: the other tasks fail and recover, which costs a round",
    ),
    (
        JointMutant("careful tasks commit with the others", "joint-careful", CRASHES, (_never_by_itself(),)),
        "J4 and Q1: deaths are counted for each task; alone it costs the others no round",
    ),
    (
        JointMutant("tasks in quarantine commit with the others", "joint-kill", CRASH, (_never_by_itself(),)),
        "as the one before",
    ),
    (
        JointMutant("tasks with a target commit with the others", "joint-target", NET, (_never_by_itself(),)),
        "E1: each target has a transaction of its own; alone no lock waits for the outputs of other tasks",
    ),
)

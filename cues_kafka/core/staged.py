"""T2 and T3: what a driver may announce of a staged batch, and what a part of it may still publish.

Spark may prepare a staged batch several times; each attempt has files of its own. A snapshot in the backing partition
of slot 0 announces one attempt, and the first committed announcement wins: the transactional id is the lock, so no file
system decides who was first. The sequence of that snapshot is the *publication number*. An attempt with this number in
the slot of a part publishes that part. A smaller number there means that the part is due, the same number that it is
done, and a greater number that the driver that asks is a zombie. A reset takes a number too, in every slot.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeAlias

from cues_kafka.core.events import Halt
from cues_kafka.core.records import Attempt, Record, Staged

RESET: Final = -1
"""The batch number of a reset by an operator; its query is the one whose checkpoint is void since then."""


@dataclass(frozen=True, slots=True)
class Enter:
    """
    A query starts: end the open transaction of a predecessor, and see whether the query may go on.

    Attributes:
        query: id of the query; empty if its checkpoint is new.
        stateless: Spark keeps no state for it between two batches.
        part: number of the slot.
    """

    query: str
    stateless: bool
    part: int


@dataclass(frozen=True, slots=True)
class Announce:
    """
    T2: this batch is prepared; commit its snapshot, or find that it was announced before.

    Attributes:
        batch: the batch with its extents; the snapshot gives it its number.
        stateless: as in `Enter`.
        settled: the publication that this driver saw in every part; -1 if it saw none.
    """

    batch: Staged
    stateless: bool
    settled: int = -1


@dataclass(frozen=True, slots=True)
class Publish:
    """T3: publish this part, unless it is published."""

    batch: Staged


Role: TypeAlias = Enter | Announce | Publish
"""What a slot of a staged processor does."""


class Turn(Enum):
    """What a role does next."""

    GO = "go on: what is wanted may be done, or is done"
    ASK = "ask whether every part of the newest batch is published"
    SNAPSHOT = "commit the snapshot"


Verdict: TypeAlias = Turn | Halt
_RESET: Final = "`cues-kafka reset MODULE:GRAPH PROCESSOR` (where there is no graph: another name and checkpoint)"


def verdict(role: Role, record: Record | None, *, settled: bool | None = None) -> Verdict:
    """
    Decide what a slot does.

    Args:
        role: what the slot shall do.
        record: the newest committed record of its backing partition.
        settled: whether every part of that record's batch is published; None if that was not asked yet.
    """
    if record is None:
        return _without_record(role)
    if record.staged is None:
        return Halt(
            "refused",
            "the newest record is not that of a staged processor",
            "give the processor a new name: what was written directly does not go on staged",
        )
    match role:
        case Enter():
            return _entered(role, record.staged)
        case Announce():
            return _announced(role, record.staged, settled)
        case Publish():
            return _due(role.batch, record.staged)


def is_published(role: Role | None, record: Record | None) -> bool:
    """Whether the newest record of the slot is an attempt with this publication number."""
    wanted = role.batch.number if isinstance(role, Publish) else -1
    return isinstance(record, Attempt) and record.staged is not None and record.staged.number == wanted


def _without_record(role: Role) -> Verdict:
    match role:
        case Announce():
            return Turn.SNAPSHOT
        case Publish(batch) if batch.part == 0:
            return Halt(
                "refused",
                f"the announcement of batch {batch.batch} is gone: its backing partition is empty",
                "restore the backing topic; what was published of the batch cannot be known without it",
            )
    return Turn.GO


def _entered(role: Enter, was: Staged) -> Verdict:
    if role.part == 0 and was.batch == RESET:
        return _void() if role.query == was.query else Turn.GO
    return _foreign(was) if role.part == 0 and not role.stateless and role.query != was.query else Turn.GO


def _announced(role: Announce, was: Staged, settled: bool | None) -> Verdict:
    mine = role.batch
    if was.parts != mine.parts:
        text = f"batch {mine.batch} has {mine.parts} parts, the processor began with {was.parts}"
        return Halt("refused", text, "start the query again: the parts of the first record hold")
    anywhere = was.batch == RESET and not was.extents
    if not anywhere and (other := _other_sources(mine, was)):
        return other
    if was.batch == RESET:
        if mine.query == was.query or mine.batch > 0:  # a new query announces its batch 0 first
            return _void()
    elif was.query != mine.query and not role.stateless:
        return _foreign(was)
    elif was.query == mine.query and was.batch != mine.batch - 1:
        return _same_query(mine, was)
    if not anywhere and [e.start for e in mine.extents] != [e.end for e in was.extents]:
        text = f"batch {mine.batch} begins at {_shown(mine, 'start')}, but {_shown(was, 'end')} is where the last ended"
        return Halt("refused", text, f"start the query from the checkpoint that wrote the last batch, or {_RESET}")
    if settled is None and role.settled != was.number:
        return Turn.ASK
    if settled is False and was.batch == RESET:
        return Halt(
            "refused",
            "its reset has not reached all parts",
            "run `cues-kafka reset MODULE:GRAPH PROCESSOR` again, to its end",
        )
    if settled is False:
        text = f"batch {was.batch} of query {was.query} is announced, and not all of its parts are published"
        return Halt("refused", text, f"start the query from that batch's checkpoint, which completes it; or {_RESET}")
    return Turn.SNAPSHOT


def _same_query(mine: Staged, was: Staged) -> Verdict:
    if was.batch > mine.batch:
        text = f"batch {mine.batch} was asked for, but batch {was.batch} of the same query is announced already"
        return Halt("refused", text, f"stop the older driver of the two; or, if its checkpoint is a copy, {_RESET}")
    if was.batch < mine.batch:
        text = f"batch {mine.batch} was asked for, but batch {was.batch} is the newest that was announced"
        return Halt("refused", text, f"restore backing topic and checkpoint of the same moment, or {_RESET}")
    if [e.end for e in mine.extents] != [e.end for e in was.extents]:
        text = f"batch {mine.batch} was announced up to {_shown(was, 'end')}, and is now {_shown(mine, 'end')}"
        return Halt("refused", text, f"its checkpoint was altered or restored: take the newest one, or {_RESET}")
    pairs = zip(mine.extents, was.extents, strict=True)
    if any(now.start != then.start for now, then in pairs if now.start and then.start):
        text = f"batch {mine.batch} was announced from {_shown(was, 'start')}, and is now from {_shown(mine, 'start')}"
        return Halt("refused", text, f"start the query again: it begins where that was announced; or {_RESET}")
    return Turn.GO


def _other_sources(mine: Staged, was: Staged) -> Halt | None:
    now, then = {e.source: e.ids for e in mine.extents}, {e.source: e.ids for e in was.extents}
    if now.keys() != then.keys():
        text = f"the query reads {sorted(now)}, the newest record has {sorted(then)}"
        return Halt("refused", text, "declare the inputs as they were, or give the processor a new name")
    ids = [(source, topic, topic_id) for source in now for topic, topic_id in then[source].items() if topic_id]
    if made := sorted({topic or source for source, topic, was_id in ids if now[source].get(topic, was_id) != was_id}):
        text = f"the topics of {made} were deleted and recreated: offsets mean other messages now"
        return Halt("refused", text, f"{_RESET} starts at the new topics' beginning")
    return None


def _foreign(was: Staged) -> Halt:
    text = f"the newest record is of query {was.query}, batch {was.batch}, and this checkpoint is of another query: "
    text += "what Spark kept for it, state or where its sources ended, is not here"
    return Halt("refused", text, f"start with the checkpoint of that query; or {_RESET}, after which outputs repeat")


def _void() -> Halt:
    text = "the processor was reset, and this checkpoint is from before that"
    return Halt("refused", text, "delete the checkpoint's directory, or give another one: the query begins again")


def _due(mine: Staged, was: Staged) -> Verdict:
    if was.number > mine.number:
        since = "the processor was reset since" if was.batch == RESET else f"batch {was.batch} is published there"
        text = f"part {mine.part} of batch {mine.batch} was asked for, but {since}"
        return Halt("refused", text, "stop the older driver of the two")
    if was.number == mine.number and (was.attempt, was.checksum) != (mine.attempt, mine.checksum):
        text = f"publication {mine.number} is attempt {was.attempt}, not {mine.attempt}"
        return Halt("refused", text, "find who else writes the backing topic: only this processor may")
    if was.number < mine.number and mine.part == 0:
        text = f"the announcement of batch {mine.batch} is gone; the newest record is of batch {was.batch}"
        return Halt("refused", text, "restore the backing topic; what was published of the batch cannot be known")
    return Turn.GO


def _shown(batch: Staged, side: str) -> str:
    return ", ".join(f"{extent.source}: {getattr(extent, side) or 'unknown'}" for extent in batch.extents)

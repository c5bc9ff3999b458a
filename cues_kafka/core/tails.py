"""Tailers of imperative processors: where they stand, and up to where they show messages (S5, L1, L2).

User code reads other topics with its tailers while it is called. Where they stand behind a batch is in the attempt that
commits it, and nowhere else. What a tailer shows depends on the moment, so a task whose calls are seen outside, or are
made again, fixes it: the snapshot before each batch holds the *ends* of its tailers, and no call of an announced step
sees a message at or beyond them. The ends are handed down until the last call of these steps can be made.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

from cues_kafka.core.events import Halt, InputFacts
from cues_kafka.core.records import Attempt, Record, Snapshot, Start, TargetRow
from cues_kafka.core.recover import Decision, Delivered, Pending, Refuse
from cues_kafka.core.spec import Spec
from cues_kafka.core.task import Task, before
from cues_kafka.ports.log import Position, Positions

AnyRow = TypeVar("AnyRow", Attempt, TargetRow)


def begin(spec: Spec, facts: Mapping[str, InputFacts], born: int | None = None) -> Positions:
    """
    Where tailers begin: with `start="latest"` at the ends of their logs, else at the beginnings.

    Offsets and times of `start=` are about the inputs.

    Args:
        spec: the task.
        facts: what the cluster says about the partition of each tailer.
        born: see `recover.first_positions`.
    """
    at_end = spec.start == "latest" and (born is None or spec.partition < born)
    found = {one.binding: facts[one.binding] for one in spec.tailers}
    return tuple(
        Position(b, topic, found[b].topic_id, found[b].stable if at_end else found[b].low) for b, topic in spec.tailers
    )


def placed(spec: Spec, decision: Decision, facts: Mapping[str, InputFacts]) -> Decision:
    """
    What R5 has decided, with the tailers that are declared now (L2).

    A tailer that the record does not know begins at `start=`. One that is not declared any more is forgotten.

    Args:
        spec: the task.
        decision: by the inputs alone.
        facts: what the cluster says about the partition of each tailer.
    """
    if isinstance(decision, Refuse):
        return decision
    missing = [one for one in spec.tailers if one.binding not in facts]
    if missing:
        text = f"the topic {missing[0].topic!r} of tailer {missing[0].binding!r} has no partition {spec.partition}"
        return Refuse(Halt("refused", text, "create the topic, or add partitions to it"))
    if not isinstance(decision, Delivered | Pending):
        return decision
    record = decision.record
    ends = record.tail_ends
    known = {(p.binding, p.topic): p for p in record.tails}
    refusals = (_refused(spec, known[one], facts[one.binding], ends) for one in spec.tailers if one in known)
    if refusal := next(filter(None, refusals), None):
        return refusal
    tails = tuple(known.get((p.binding, p.topic), p) for p in begin(spec, facts))
    declared = {(one.binding, one.topic) for one in spec.tailers}
    kept = replace(record, tails=tails, tail_ends=tuple(p for p in ends if p[:2] in declared))
    return replace(decision, record=kept)  # type: ignore[arg-type]  # the record is of the same kind


def _refused(spec: Spec, at: Position, facts: InputFacts, ends: Positions) -> Refuse | None:
    """L2: a tailer does not go on over messages that are gone, or in another topic of the same name."""
    where = f"tailer {at.binding!r}, which reads {at.topic}/{spec.partition}"
    if at.topic_id != facts.topic_id:
        text = f"{where}: the topic was deleted and recreated, so offsets mean other messages now"
        remedy = f"run `cues-kafka accept-loss MODULE:GRAPH {spec.processor}`: the tailer then begins at start= again"
        return Refuse(Halt("refused", text, remedy))
    if at.offset < facts.low:
        return Refuse(
            Halt(
                "refused",
                f"{where}, stands at {at.offset}, and the log begins at {facts.low} (retention or trim)",
                f"`cues-kafka accept-loss MODULE:GRAPH {spec.processor}` has it go on at {facts.low}",
            )
        )
    end = max([at.offset, *(p.offset for p in ends if p.binding == at.binding)])
    if end > facts.high:
        text = f"{where}, stands at {end}, past the end {facts.high} of the log: it was truncated"
        return Refuse(Halt("refused", text, "see what the brokers lost before going on"), stale=True)
    return None


def behind_loss(record: Record, facts: Mapping[str, InputFacts]) -> Positions:
    """Where tailers go on after messages are gone; those of recreated topics are left out, so they begin again."""
    return tuple(
        p._replace(offset=max(p.offset, found.low))
        for p in record.tails
        if (found := facts.get(p.binding)) is not None and found.topic_id == p.topic_id
    )


def begun(task: Task, record: Start, born: int | None) -> Start:
    """R5, L2: the first record of a task says where its tailers begin."""
    return replace(record, tails=begin(task.spec, dict(task.tail_facts), born)) if task.spec.tailers else record


def announced(task: Task, record: Snapshot, ends: Positions) -> Snapshot:
    """
    S5: the snapshot with the ends of its tailers: those handed down, or else those of now.

    Args:
        task: before it.
        record: the snapshot.
        ends: last stable offsets of the tailers' logs; empty: the processor needs none.
    """
    if not (ends or task.tail_ends):
        return record
    return replace(record, tail_ends=_joined(task.tail_ends, ends))


def _joined(handed_down: Positions, ends: Positions) -> Positions:
    """A tailer that was added meanwhile was not shown to any call, and gets the end of now."""
    known = {p.binding for p in handed_down}
    return (*handed_down, *(p for p in ends if p.binding not in known))


def behind(task: Task, made: AnyRow, tails: Positions, *, put_off: bool = False) -> AnyRow:
    """
    L2, S5: the attempt with where the tailers stand behind it, and with the ends that later calls need.

    A step that was called and did not end is called again, as is each step in careful mode. Their calls see the same
    messages as those before, so the ends are handed down with the attempt. Timers have no tailers: a batch of timers
    alone ends none of the steps that the ends are for.

    Args:
        task: before it.
        made: the attempt, or the row of a target that holds it.
        tails: where the tailers stand; empty: where they stood.
        put_off: a step behind the batch was called and did not end.
    """
    if not task.spec.tailers:
        return made
    assert task.record
    reached = made.positions if isinstance(made, Attempt) else made.ends
    kept = put_off or before(reached, task.careful_until) or 0 < made.batch.taken == made.batch.timers
    return replace(made, tails=tails or task.record.tails, tail_ends=task.tail_ends if kept else ())


def in_row(task: Task, made: Attempt, row: TargetRow) -> Attempt:
    """E1, L2: the attempt that a target holds, with what the row says of its tailers."""
    return replace(made, tails=row.tails, tail_ends=row.tail_ends) if task.spec.tailers else made

"""R5: how a task goes on, decided from its newest committed record. Read it as a list of cases."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from cues_kafka.core.events import Halt, InputFacts
from cues_kafka.core.hashing import fingerprint
from cues_kafka.core.records import VERSION, Record, Snapshot
from cues_kafka.core.spec import Spec
from cues_kafka.ports.log import Position, Positions

MIGRATE = "run the command that `cues-kafka plan MODULE:GRAPH --records` prints, which adds and drops inputs; or "
"""What a remedy for changed bindings begins with. `plan --records` itself names that command instead."""


@dataclass(frozen=True, slots=True)
class Fresh:
    """There is no record: resolve `start=` and commit a `Start` with the positions."""


@dataclass(frozen=True, slots=True)
class Delivered:
    """The newest record is an attempt or a start: go on at its positions."""

    record: Record


@dataclass(frozen=True, slots=True)
class Pending:
    """The newest record is a snapshot: deliver its ranges and choice again. `starts` counts the deaths on them (Q1)."""

    record: Snapshot
    starts: int


@dataclass(frozen=True, slots=True)
class Refuse:
    """
    Going on would lose or repeat data, so the task writes nothing (I12).

    Attributes:
        halt: the cause and the remedy.
        stale: a leader or coordinator that is cut off may have given an old answer; the task asks again for a while.
    """

    halt: Halt
    stale: bool = False


Decision: TypeAlias = Fresh | Delivered | Pending | Refuse


def recover(
    spec: Spec, record: Record | None, offsets: Mapping[str, int | None], inputs: Mapping[str, InputFacts]
) -> Decision:
    """
    Decide how a task goes on (R5).

    Args:
        spec: the task.
        record: the newest committed record of its backing partition.
        offsets: the group's next offset for each binding; None if it has none, for example because it expired.
        inputs: what the cluster says now about the partition of each binding.
    """
    missing = [i for i in spec.inputs if i.binding not in inputs]
    if missing:
        return _refuse(
            f"input topic {missing[0].topic!r} has no partition {spec.partition}",
            "create the topic, or point the binding to one that exists",
        )
    if record is None:
        return _without_record(spec, offsets)
    refusal = (
        _other_writer(spec, record)
        or _other_bindings(spec, record)
        or _other_topics(spec, record, inputs)
        or _other_offsets(spec, record, offsets)
        or _outside_the_log(spec, record, inputs)
    )
    if refusal:
        return refusal
    record = replace(record, positions=_in_order(spec, record.positions))
    if isinstance(record, Snapshot):
        record = replace(record, ends=_in_order(spec, record.ends))
        return Pending(record, record.starts + died(spec, record))
    return Delivered(record)


def refused(
    spec: Spec, record: Record, offsets: Mapping[str, int | None], inputs: Mapping[str, InputFacts]
) -> Refuse | None:
    """Why a task may not even commit what its target holds: the record, or its bindings, are not those of the graph."""
    missing = [i.topic for i in spec.inputs if i.binding not in inputs]
    if missing:
        return _refuse(f"input topic {missing[0]!r} is gone, and the target holds outcomes of it", "create the topic")
    return _other_writer(spec, record) or _other_bindings(spec, record) or _other_offsets(spec, record, offsets)


def _in_order(spec: Spec, positions: Positions) -> Positions:
    """
    Positions in the order of declaration, which may differ from the record's (O7).

    The shell pairs messages by the place of their input, so the old order would give one binding another's messages.
    """
    by_binding = {position.binding: position for position in positions}
    return tuple(by_binding[i.binding] for i in spec.inputs)


def died(spec: Spec, record: Record) -> bool:
    """Whether the writer of this snapshot died in user code: another incarnation that did not say `left` (Q1)."""
    return not record.left and record.writer.incarnation != spec.writer.incarnation


def plan_of(spec: Spec, inputs: Mapping[str, InputFacts]) -> bytes:
    """The fingerprint of the plan that the task has now."""
    return fingerprint(spec.processor, spec.pairing, [(i.binding, inputs[i.binding].topic_id) for i in spec.inputs])


def first_positions(
    spec: Spec,
    inputs: Mapping[str, InputFacts],
    born: int | None,
    offsets: Mapping[str, int | None] | None = None,
    resolved: Positions = (),
) -> Positions:
    """
    Where a fresh task starts.

    `latest` means the moment of the processor's first start. All messages of a partition that was added later came
    after that moment, so the task starts at its beginning. A task never starts at the high watermark, because an open
    transaction below it may still commit.

    Args:
        spec: the task.
        inputs: what the cluster says about the inputs.
        born: partition count in a sibling's record; None if no sibling has one.
        offsets: at-least-once: the group's, which a start that was not completed has committed (W6).
        resolved: at-least-once: where this task wanted to start before, with or without an answer (W6).
    """
    at_end = spec.start == "latest" and (born is None or spec.partition < born)
    before = {(p.binding, p.topic_id): p.offset for p in resolved}

    def offset(binding: str) -> int:
        facts = inputs[binding]
        if (held := (offsets or {}).get(binding)) is not None:
            return held
        if (asked := before.get((binding, facts.topic_id))) is not None:
            return asked
        if isinstance(spec.start, int):
            return spec.start
        return facts.stable if at_end else facts.low

    return tuple(Position(i.binding, i.topic, inputs[i.binding].topic_id, offset(i.binding)) for i in spec.inputs)


def _refuse(text: str, remedy: str, *, stale: bool = False) -> Refuse:
    return Refuse(Halt("refused", text, remedy), stale)


def _without_record(spec: Spec, offsets: Mapping[str, int | None]) -> Decision:
    held = {binding: offset for binding, offset in offsets.items() if offset is not None}
    if not held or not spec.rules.fenced:
        return Fresh()  # at-least-once, at the offsets that are held (W6)
    # The backing partition was deleted or truncated, and with it the proof of what was delivered. A coordinator that
    # knows no offsets may be wrong for a moment (KAFKA-20416); here it knows some.
    return _refuse(
        f"backing topic {spec.backing!r} is empty, yet group {spec.group!r} has committed offsets {held}",
        f"restore the backing topic, or begin again on purpose: `cues-kafka reset MODULE:GRAPH {spec.processor}`",
        stale=True,
    )


def foreign(spec: Spec, record: Record) -> Refuse | None:
    """Refuse a record of another release, of another application, or of a processor that moved to another name."""
    if record.version != VERSION:
        return _refuse(
            f"the newest record of {spec.backing!r} has version {record.version}, this release knows {VERSION}",
            "run the release that wrote it, or a newer one",
        )
    if record.writer.transactional_id != spec.transactional_id:
        return _refuse(
            f"the newest record of {spec.backing!r} was written by {record.writer.transactional_id!r}",
            f"give this application its own graph name; {spec.transactional_id!r} is the only writer allowed here",
        )
    if record.moved_to and not (spec.move and spec.move.moved_to == record.moved_to):
        return _refuse(
            f"processor {spec.processor!r} has moved to the name {record.moved_to!r}",
            f"run it as {record.moved_to!r}; a new function must not be named {spec.processor!r}",
        )
    if record.moving_from and not (spec.move and spec.move.moving_from == record.moving_from):
        return incomplete(spec, record.moving_from)
    return None


def incomplete(spec: Spec, moving_from: str) -> Refuse:
    """X5: the task, or another one of its processor, has a placeholder; its place may be under the old name."""
    return _refuse(
        f"the move of {spec.processor!r} from the name {moving_from!r} is not complete",
        f"end it: `cues-kafka rename MODULE:GRAPH {moving_from} {spec.processor} --yes`",
    )


def _other_writer(spec: Spec, record: Record) -> Refuse | None:
    if refusal := foreign(spec, record):
        return refusal
    if record.strategy != spec.strategy:  # also of a former worker at-least-once that wrote behind a change (W7)
        return _refuse(
            f"the newest record of {spec.backing!r} was written {record.strategy}; the graph says {spec.strategy}",
            f"`cues-kafka strategy` changes it for {spec.processor!r}; or declare strategy={record.strategy!r} again",
        )
    if record.staged and not spec.staged:
        return _refuse(
            f"the newest record of {spec.backing!r} is that of a staged processor",
            "keep it staged, or give the processor a new name: a staged processor does not move",
        )
    return None


def _other_bindings(spec: Spec, record: Record) -> Refuse | None:
    was, now = {(p.binding, p.topic) for p in record.positions}, set(spec.inputs)
    if was == now:
        return None
    return _refuse(
        f"bindings changed: the record, written by {record.writer.name!r}, has {_shown(was)}; the graph has "
        f"{_shown(now)}",
        f"{MIGRATE}declare the inputs as they were. If {record.writer.name!r} is another application, give this graph "
        "a name of its own. Or give the processor a new name: it then begins at its start=, and with 'earliest' all "
        "that its inputs hold is delivered again, so outputs repeat",
    )


def _shown(bindings: Collection[tuple[str, str]]) -> str:
    return ", ".join(f"{binding!r} from {topic!r}" for binding, topic in sorted(bindings))


def _other_topics(spec: Spec, record: Record, inputs: Mapping[str, InputFacts]) -> Refuse | None:
    for position in record.positions:
        if inputs[position.binding].topic_id != position.topic_id:
            return _refuse(
                f"topic {position.topic!r} was deleted and recreated: offsets mean other messages now",
                f"start at the new topic's beginning: `cues-kafka reset MODULE:GRAPH {spec.processor}`",
            )
    if isinstance(record, Snapshot) and record.timers and not spec.timers:
        return _refuse(
            f"the processor {spec.processor!r} declares no timers any more, and an announced timer is due",
            "start the former version until it has fired what it announced, then this one",
        )
    if isinstance(record, Snapshot) and record.replay and not spec.replays:
        return _refuse(
            f"the processor {spec.processor!r} has announced the replay of an error, which it cannot deliver now",
            "run it natively, with its errors topic, until it has delivered what it announced",
        )
    if isinstance(record, Snapshot) and record.fingerprint != plan_of(spec, inputs):
        return _refuse(
            "the declaration of the inputs changed while a batch of steps was being delivered",
            "start the former version until it has delivered what it took, then this one",
        )
    return None


def _other_offsets(spec: Spec, record: Record, offsets: Mapping[str, int | None]) -> Refuse | None:
    if not spec.rules.fenced:
        return None
    for position in record.positions:
        held = offsets.get(position.binding)
        if held is not None and held != position.offset:
            return _refuse(
                f"group offset {held} of {position.topic!r} is not the record's {position.offset}: "
                "another program committed or reset offsets of this group",
                "set the group's offsets back to the record's, or delete them: the record decides",
                stale=True,
            )
    return None


def _outside_the_log(spec: Spec, record: Record, inputs: Mapping[str, InputFacts]) -> Refuse | None:
    if spec.feed:
        return None  # its own log, which ends behind its newest record or further on (G2)
    ends = record.ends if isinstance(record, Snapshot) else ()
    for position in record.positions:
        facts = inputs[position.binding]
        where = f"{position.topic}/{spec.partition}"
        if position.offset < facts.low:
            return _refuse(
                f"offsets [{position.offset}, {facts.low}) of {where} are gone from the log (retention or trim) and "
                "were not delivered; they may have held markers only",
                f"go on at {facts.low}, and record the loss: `cues-kafka accept-loss MODULE:GRAPH {spec.processor}`",
            )
        end = max([position.offset, *(p.offset for p in ends if p.binding == position.binding)])
        if end > facts.high:
            return _refuse(
                f"position {end} is past the end {facts.high} of {where}: the log was truncated",
                "see what the brokers lost (unclean leader election?) before going on",
                stale=True,
            )
    return None

"""Whether the numbers and names of a task's record can be those of a task: what reads one relies on it."""

from __future__ import annotations

from collections.abc import Iterator

from cues_kafka.core.records import Record, Snapshot
from cues_kafka.ports.log import Positions
from cues_kafka.records.strangers import ITEMS, MOST, TOPIC


def unfit(record: Record) -> str:
    """What in a record no task writes; empty: nothing."""
    return next(_faults(record), "")


def _faults(record: Record) -> Iterator[str]:
    least = {"sequence": 0, "step": 0, "starts": 0, "careful_timers": 0, "owner": 0, "epoch": 0, "journal_from": -1}
    for name, low in least.items():
        if getattr(record, name) < low:
            yield f"{name} is {getattr(record, name)}"
    if record.born < 1:
        yield f"born is {record.born}"
    ends = record.ends if isinstance(record, Snapshot) else ()
    if isinstance(record, Snapshot) and record.steps < 0:
        yield f"steps is {record.steps}"
    own = (record.positions, record.tails, record.tail_ends, record.careful_until, record.replays, ends)
    for positions in own:
        yield from _of_places(positions)
    if (staged := record.staged) is not None:
        if not 1 <= staged.parts <= ITEMS or not 0 <= staged.part < staged.parts:
            yield f"it is part {staged.part} of {staged.parts}"
        if staged.batch < -1 or staged.number < -1:
            yield f"it is of batch {staged.batch}, number {staged.number}"
    bindings = {position.binding for position in record.positions}
    for name, named in (("ends", {one.binding for one in ends}), ("choice", {one for one, _ in record.choice})):
        if not named <= bindings:
            yield f"{name} names {min(named - bindings)[:40]!a}, which no position does"
    if any(count < 1 for _, count in record.choice):
        yield "choice has a count below 1"


def _of_places(positions: Positions) -> Iterator[str]:
    for binding, topic, topic_id, offset in positions:
        if not TOPIC.fullmatch(topic) or len(topic_id) != 16 or not 0 <= offset <= MOST:
            what = f"offset {offset} of {topic[:40]!a}, whose id has {len(topic_id)} bytes"
            yield f"the place of {binding[:40]!a} is {what}"

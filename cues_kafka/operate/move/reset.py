"""`cues-kafka reset`: let tasks begin elsewhere.

A staged processor (DataFrames that shuffle or keep state) has one place for all of its slots: the end of its newest
batch. So it is reset as a whole. Slot 0 comes first, and its record gives the reset its publication number.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from cues_kafka.core.moves import To, begin
from cues_kafka.core.records import Attempt, Extent, Record, Staged
from cues_kafka.core.spec import Move
from cues_kafka.core.staged import RESET
from cues_kafka.errors import ConfigError
from cues_kafka.operate.move.base import Maintenance, PlannedMove, places_of, sequence_of, standing_at
from cues_kafka.operate.move.places import wanted
from cues_kafka.operate.move.settle import DATABASE, HERE, settle
from cues_kafka.ports.log import TopicPartition
from cues_kafka.records.extents import ids_of


def reset(tool: Maintenance, *, to: str = "earliest", partition: int | None = None) -> list[PlannedMove]:
    """
    Plan to let tasks begin elsewhere.

    Args:
        tool: what moves them.
        to: see `places.wanted`; `earliest` repeats the messages in the log, `latest` skips them. `database` and `here`
            bring tasks and their targets together, see `settle`.
        partition: of a single task; None: all tasks.

    Raises:
        ConfigError: there is no such partition or place, or the processor is staged and cannot be reset in part.
        RecoveryError: the group has members, or a record is not this task's.
    """
    name, tasks = tool.specs[0].processor, len(tool.specs)
    if tool.staged:
        if partition is not None:
            raise ConfigError(
                f"--partition {partition}: {name!r} is written staged. Its batches take all partitions of its inputs "
                "at once, so it is reset as a whole: leave --partition out"
            )
        return _reset_staged(tool, to)
    if partition is not None and partition not in range(tasks):
        raise ConfigError(f"--partition {partition}: {name!r} has 0 to {tasks - 1}")
    specs = [spec for spec in tool.specs if partition in (None, spec.partition)]
    if to in (DATABASE, HERE):
        return settle(tool, to, specs)
    if to in ("earliest", "latest"):
        end: To = "earliest" if to == "earliest" else "latest"
        return tool.moves_to(lambda spec, _, inputs: begin(spec, inputs, end), specs)
    return tool.moves_to(standing_at(wanted(tool.broker, to, places_of(specs))), specs)


def _reset_staged(tool: Maintenance, to: str) -> list[PlannedMove]:
    """Plan the moves of all slots of a staged processor. Slot 0 decides, and is moved first."""
    tool.refuse_others()
    records = [tool.settled(spec) for spec in tool.specs]
    known = [record.staged for record in records if record and record.staged]
    newest = max(known, key=lambda staged: staged.number)
    first = records[0].sequence if records[0] else -1
    places, begins = _begins(tool, to)
    extents = () if to == "earliest" else places  # at the first messages of that time, not of now
    reset = Staged(
        query=newest.query,
        batch=RESET,
        attempt="",
        checksum=b"",
        number=max(first, newest.number) + 1,
        parts=newest.parts,
        extents=extents,
    )
    if len(known) == len(records) and all(
        was == replace(reset, number=newest.number, part=part, extents=() if part else extents)
        for part, was in enumerate(known)
    ):
        return []
    unpublished = [part for part, record in enumerate(records) if not (record and _is_out(record, newest.number))]
    notes = tuple(_notes(to, newest, unpublished, begins))
    parts = (reset, *(replace(reset, part=part, extents=()) for part in range(1, len(records))))
    begins_of = (places, *(() for _ in records[1:]))
    moves = [
        Move(after=sequence_of(record), positions=(), staged=staged, begins=starts)
        for record, staged, starts in zip(records, parts, begins_of, strict=True)
    ]
    return [
        PlannedMove(replace(spec, move=move), () if spec.partition else notes)
        for spec, move in zip(tool.specs, moves, strict=True)
    ]


def _begins(tool: Maintenance, to: str) -> tuple[tuple[Extent, ...], dict[TopicPartition, int]]:
    """Where a staged processor shall begin: by source, in the form of a batch's record, and by partition."""
    widths = {i.topic: tool.reading.width(i.topic) for i in tool.inputs}
    places = [TopicPartition(topic, p) for topic, width in widths.items() for p in range(width)]
    offsets = wanted(tool.broker, to, places)
    ends = {
        topic: json.dumps(
            {topic: {str(p): offsets[TopicPartition(topic, p)] for p in range(width)}},
            sort_keys=True,
            separators=(",", ":"),
        )
        for topic, width in widths.items()
    }
    named = tool.graph.errors_of(tool.declared) is not None  # as its batches have it, which take requests, too (Y4)
    ids = {topic: tool.reading.topic_id(topic) for topic in widths}
    shown = {topic: ids_of({topic: one}) if named else one for topic, one in ids.items()}
    extents = (Extent(i.binding, shown[i.topic], ends[i.topic], ends[i.topic]) for i in tool.inputs)
    return tuple(sorted(extents)), offsets


def _notes(to: str, newest: Staged, unpublished: Sequence[int], begins: Mapping[TopicPartition, int]) -> Iterator[str]:
    if newest.batch != RESET and unpublished:
        parts = ", ".join(map(str, unpublished))
        yield f"batch {newest.batch} is announced, but its parts {parts} are not published, and never will be"
    for topic in dict.fromkeys(place.topic for place in begins):
        places = ", ".join(f"{place.partition} at {begins[place]}" for place in begins if place.topic == topic)
        yield (
            f"{topic}: begins again, by partition: {places}; outputs of the messages behind REPEAT"
            if to == "earliest"
            else f"{topic}: begins again, by partition: {places}; what is unpublished below is LOST"
        )
    yield (
        f"what Spark keeps in the checkpoint of query {newest.query} (sums, windows, joined rows) is void, and "
        "that checkpoint is refused from then on"
    )


def _is_out(record: Record, number: int) -> bool:
    return isinstance(record, Attempt) and record.staged is not None and record.staged.number == number

"""What a move loses or repeats, in words, and the moves that stores do not allow."""

from __future__ import annotations

from collections.abc import Iterator

from cues_kafka.core.records import Record, Snapshot
from cues_kafka.core.spec import Spec
from cues_kafka.errors import ConfigError
from cues_kafka.ports.log import Position, Positions
from cues_kafka.words import count


def goes_back(record: Record, positions: Positions) -> bool:
    """Whether any of these positions is below the record's."""
    before = {(p.binding, p.topic_id): p.offset for p in record.positions}
    return any(p.offset < before.get((p.binding, p.topic_id), 0) for p in positions)


def refuse_stores(spec: Spec, record: Record | None, positions: Positions) -> None:
    """Refuse with a `ConfigError` to move a task with stores back."""
    if record is not None and record.stores and goes_back(record, positions):
        stores = ", ".join(name for name, _ in record.stores)
        raise ConfigError(
            f"{spec.name} cannot go back: its stores ({stores}) hold what the messages since then have changed "
            "and would take the same changes twice. Give the processor a new name=: under it, stores are built "
            "from start= on. It can be reset to places further on"
        )


def notes_of(spec: Spec, record: Record | None, positions: Positions) -> Iterator[str]:
    """What a task loses and repeats that goes from its record to these positions."""
    before = {(p.binding, p.topic): p for p in record.positions} if record else {}
    for position in positions:
        place, was = f"{position.topic}/{spec.partition}", before.get((position.binding, position.topic))
        if was is None:
            yield (
                f"{place}: begins at {position.offset}, and no record says what was delivered: before it something may "
                "be LOST, behind it something may be delivered AGAIN"
            )
        elif was.topic_id != position.topic_id:
            yield f"{place}: begins at {position.offset} of the new topic; what the old one still held is LOST"
        elif was.offset < position.offset:
            yield (
                f"{place}: what offsets [{was.offset}, {position.offset}) hold is LOST, it will never be delivered: at "
                f"most {count(position.offset - was.offset, 'message')}, for markers of transactions have offsets too"
            )
        elif was.offset > position.offset:
            yield again(place, position.offset, was.offset)
    if spec.pairing == "join":
        yield "from there, a join pairs the k-th message of each input behind these positions"
    yield from in_delivery(record)


def again(place: str, start: int, end: int) -> str:
    """That messages are delivered a second time."""
    return (
        f"{place}: what offsets [{start}, {end}) hold is delivered AGAIN, with the same delivery hashes: at most "
        f"{count(end - start, 'message')}; outputs and effects repeat"
    )


def in_delivery(record: Record | None) -> Iterator[str]:
    """That a batch was announced, whose calls may have had effects."""
    if isinstance(record, Snapshot):
        yield (
            f"a batch of {count(record.steps, 'step')} was being delivered; its effects outside Kafka may have happened"
        )


def tail_note(spec: Spec, was: Position, now: Position | None) -> str:
    """What a tailer does not see that goes to another position; None: it begins at its start=."""
    place = f"{was.topic}/{spec.partition}"
    if now is None:
        return f"{place}: tailer {was.binding!r} begins at start= of the new topic; what the old one still held is LOST"
    gone = count(now.offset - was.offset, "message")
    return (
        f"{place}: tailer {was.binding!r} goes on at {now.offset}; what offsets [{was.offset}, {now.offset}) held is "
        f"LOST, it is never shown: at most {gone}, for markers of transactions have offsets too"
    )

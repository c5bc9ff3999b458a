"""Offsets that the member of a worker commits for its tasks at-least-once (W5, W6)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from cues_kafka.errors import RetriableError
from cues_kafka.ports.log import TopicPartition
from cues_kafka.workers.member_offsets import MemberOffsets

PLACE, OTHER = TopicPartition("in", 0), TopicPartition("in", 1)


class Group:
    """A member that keeps what it is told, and answers as it is told to."""

    def __init__(self, answer: str | None = "") -> None:
        self.answer = answer
        self.told: list[dict[TopicPartition, int]] = []

    def commit(self, offsets: Mapping[TopicPartition, int], done: Callable[[str], None]) -> None:
        self.told.append(dict(offsets))
        if self.answer is not None:
            done(self.answer)


def offsets_of(group: Group, *, waits: bool) -> MemberOffsets:
    """For a worker with this member."""
    made = MemberOffsets(waits=waits)
    made.member = group  # type: ignore[assignment]
    return made


def test_offsets_of_batches_go_together_at_the_pollers_next_turn() -> None:
    """The newest of each place, and no task waits."""
    group = Group("refused")
    offsets = offsets_of(group, waits=True)
    for place, offset in ((PLACE, 3), (OTHER, 5), (PLACE, 7)):
        offsets.commit({place: offset}, False)
    assert group.told == []
    offsets.send()
    offsets.send()

    assert group.told == [{PLACE: 7, OTHER: 5}]


def test_a_start_waits_for_the_answer() -> None:
    """W6: its record is written only behind a yes."""
    group = Group("UNKNOWN_MEMBER_ID")
    offsets = offsets_of(group, waits=False)
    with pytest.raises(RetriableError, match="offsets of a start: UNKNOWN_MEMBER_ID"):
        offsets.commit({PLACE: 3}, True)
    group.answer = ""

    offsets.commit({PLACE: 3}, True)

    assert group.told == [{PLACE: 3}, {PLACE: 3}]


def test_a_start_whose_partition_is_taken_away_waits_no_longer() -> None:
    """The poller, which would hear the answer, gives the partition back and waits for the task."""
    group, failed = Group(None), list[Any]()
    offsets = offsets_of(group, waits=True)

    def begin() -> None:
        try:
            offsets.commit({PLACE: 3}, True)
        except RetriableError as error:
            failed.append(str(error))

    thread = threading.Thread(target=begin)
    thread.start()
    while not group.told:
        offsets.send()
    offsets.refuse("the partition is taken away")
    thread.join(10)

    assert failed == ["committing the offsets of a start: the partition is taken away"]

"""From what users write of a place in a topic to offsets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Literal, TypeAlias

from cues_kafka.client.access import Access, Since
from cues_kafka.client.cursor import LogCursor
from cues_kafka.errors import ConfigError
from cues_kafka.ports.log import TopicPartition

Start: TypeAlias = "Literal['earliest', 'latest'] | int | datetime | Mapping[int, int]"


class Starts:
    """The places of one tailer, whose cursor asks for the ends of its partitions."""

    def __init__(self, access: Access, cursor: LogCursor, topic: str) -> None:
        self._access, self._cursor, self._topic = access, cursor, topic

    def given(self, offset: int | Mapping[int, int]) -> dict[TopicPartition, int]:
        """
        Offsets of a user, checked.

        Raises:
            ConfigError: the log has no such offset.
        """
        if isinstance(offset, Mapping):
            given = {TopicPartition(self._topic, partition): one for partition, one in offset.items()}
        elif self._cursor.single or len(self._cursor.places) == 1:
            given = {self._cursor.places[0]: offset}
        else:
            raise ConfigError(
                f"offset {offset!r}: this tailer reads {len(self._cursor.places)} partitions of {self._topic!r}. Give "
                "a mapping, such as {0: 17}"
            )
        unknown = [place.partition for place in given if place not in self._cursor.places]
        if unknown:
            have = [place.partition for place in self._cursor.places]
            raise ConfigError(f"this tailer of {self._topic!r} reads partitions {have}, not {unknown[0]!r}")
        marks = self._cursor.marks()
        for place, one in given.items():
            low, _, high = marks[place]
            if isinstance(one, bool) or not isinstance(one, int) or not low <= one <= high:
                raise ConfigError(
                    f"offset {one!r} is not in {place.topic}/{place.partition}, which has {low} to {high}. "
                    "to_start() and to_end() go to its ends"
                )
        return given

    def resolved(self, start: Start, places: Sequence[TopicPartition] | None = None) -> dict[TopicPartition, int]:
        """
        The offsets of a start, for some of the partitions; None: for all.

        Raises:
            ConfigError: there is no such place.
        """
        wanted = self._cursor.places if places is None else places
        marks = self._cursor.marks()
        if start == "earliest":
            found = {place: marks[place].low for place in wanted}
        elif start == "latest":
            found = {place: marks[place].stable for place in wanted}
        elif isinstance(start, datetime):
            found = self.at_time(start)
        elif isinstance(start, int | Mapping):
            found = {place: marks[place].low for place in wanted} | self.given(start)
        else:
            raise ConfigError(f"start={start!r}: give 'earliest', 'latest', an offset or a datetime")
        return {place: found[place] for place in wanted}

    def at_time(self, time: Since) -> dict[TopicPartition, int]:
        """Before the first message that is not older than a time; without one, behind the last message."""
        marks = self._cursor.marks()
        firsts = self._access.broker.offsets_at(dict.fromkeys(self._cursor.places, self._access.milliseconds(time)))
        return {
            place: marks[place].stable if first is None else max(marks[place].low, first)
            for place, first in firsts.items()
        }

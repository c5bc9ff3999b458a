"""Reads ranges of partitions for `verify`: committed messages only, with patience for open transactions."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from time import monotonic
from typing import TypeAlias

from cues_kafka.brokers.patience import ask_again
from cues_kafka.errors import RetriableError, UnreadableError
from cues_kafka.ports.broker import Broker
from cues_kafka.ports.clients import Reader
from cues_kafka.ports.facts import Watermarks
from cues_kafka.ports.log import TopicPartition, WireMessage
from cues_kafka.records.unreadable import RefusedBatch, refused_at

Progress: TypeAlias = Callable[[int, int], None]
"""Called now and then with the number of offsets that were read, and of those to read."""

Feed: TypeAlias = Callable[[TopicPartition, Sequence[WireMessage]], None]
"""Takes the next messages of a partition."""

Ranges: TypeAlias = Mapping[TopicPartition, tuple[int, int]]
"""By partition: the first offset, and that behind the last."""


class Sweeper:
    """
    Reads for one run of `verify`.

    Args:
        broker: the cluster.
        group: a group that the caller may describe; the readers do not join it.
        patience_s: how long no message comes before an open transaction is said to hide the rest.
        progress: told how far the reading is.

    Attributes:
        broker, patience_s: as given.
        scanned: messages read.
        refused: batches that the client refuses to read, and that were passed over.
    """

    def __init__(self, broker: Broker, group: str, patience_s: float, progress: Progress | None) -> None:
        self.broker = broker
        self.patience_s = patience_s
        self._group = group
        self._progress = progress
        self._read = self._to_read = 0
        self.scanned = 0
        self.refused: dict[tuple[TopicPartition, int], RefusedBatch] = {}

    def watermarks(self, places: Collection[TopicPartition]) -> dict[TopicPartition, Watermarks]:
        """The watermarks of now."""
        return ask_again(lambda: self.broker.watermarks([*places]), self.patience_s) if places else {}

    def sweep(self, ranges: Ranges, feed: Feed) -> dict[TopicPartition, int]:
        """
        Read ranges.

        Returns:
            Where the reading stopped short of the end, and at which offset.
        """
        hidden: dict[TopicPartition, int] = {}
        for place, messages in self.stream(ranges, hidden):
            feed(place, messages)
        return hidden

    def stream(
        self, ranges: Ranges, hidden: dict[TopicPartition, int]
    ) -> Iterator[tuple[TopicPartition, Sequence[WireMessage]]]:
        """
        Read ranges, and give the messages as they come.

        Args:
            ranges: what to read.
            hidden: gets what `sweep` returns, when everything was read.
        """
        at = {place: start for place, (start, end) in ranges.items() if start < end}
        if not at:
            return
        self._to_read += sum(ranges[place][1] - start for place, start in at.items())
        reader = self.broker.reader(self._group)
        try:
            reader.assign(at)
            deadline, trouble = monotonic() + self.patience_s, None
            while at and monotonic() < deadline:
                try:
                    came = reader.poll(0.5)
                except UnreadableError as error:
                    self._pass_over(reader, at, TopicPartition(*error.place), ranges)
                    deadline = monotonic() + self.patience_s
                    continue
                except RetriableError as error:
                    trouble = error  # the client tries again; if that fails too, this is why nothing came
                    continue
                for place, messages, eof in came:
                    if place not in at:
                        continue
                    before, end = at[place], ranges[place][1]
                    if messages:
                        at[place] = messages[-1].offset() + 1
                        yield place, self._below(messages, end)
                        deadline, trouble = monotonic() + self.patience_s, None
                    if eof is not None:
                        at[place] = max(at[place], eof)
                    self._read += min(at[place], end) - before
                    if at[place] >= end:
                        del at[place]
                        reader.unassign([place])
                if self._progress:
                    self._progress(self._read, self._to_read)
            if at and trouble:
                raise trouble
            hidden |= at
        finally:
            reader.close()

    def _pass_over(self, reader: Reader, at: dict[TopicPartition, int], place: TopicPartition, ranges: Ranges) -> None:
        """Go on behind a batch that the client refuses, and remember it."""
        if place not in at:
            return
        end = ranges[place][1]
        reader.unassign([place])
        batch = refused_at(self.broker, place, at[place], end, group=self._group)
        if batch is not None:
            self.refused[place, batch.start] = batch
            self._read += batch.end - at[place]
            at[place] = batch.end
        if at[place] >= end:
            del at[place]
        else:
            reader.assign({place: at[place]})

    def _below(self, messages: Sequence[WireMessage], end: int) -> Sequence[WireMessage]:
        if messages[-1].offset() >= end:
            messages = [message for message in messages if message.offset() < end]
        self.scanned += len(messages)
        return messages

"""Offsets of partitions: what bounds them, where times are, and deleting below one. Their leaders are asked."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import Future
from typing import Any, Final

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection
from confluent_kafka import TopicPartition as ClientPartition

# The package does not export these names to type checkers.
from confluent_kafka.admin._listoffsets import OffsetSpec

from cues_kafka.brokers.kafka.asking import MISSING, Asking
from cues_kafka.brokers.kafka.rights import Right
from cues_kafka.errors import RetriableError
from cues_kafka.ports.facts import Watermarks
from cues_kafka.ports.log import TopicPartition

_NONE: Final = -1
"""The brokers' answer where no message is as late as a time."""
_NO_ENTRY: Final = KafkaError._NOENT  # noqa: SLF001 - what the client itself says of a partition that is not there
_AGE_MS: Final = 900_000
"""How long the client remembers leaders, by its own default."""
_END: Final = "asking for the end of"
_TIME: Final = "asking for the offset of a time in"
_SPEC: Any = OffsetSpec  # its stubs are untyped
_EARLIEST: Final = _SPEC.earliest()
_LATEST: Final = _SPEC.latest()


class Offsets:
    """Questions to leaders; every method raises `BrokerError`."""

    def __init__(self, asking: Asking) -> None:
        self._asking = asking
        age_ms = int(asking.settings.get("metadata.max.age.ms", _AGE_MS))
        self._led_s = age_ms / 1000 / 2  # well before the client forgets
        self._led: dict[TopicPartition, float] = {}  # until when the client knows who leads it

    def watermarks(
        self, partitions: Collection[TopicPartition], for_s: float | None = None
    ) -> dict[TopicPartition, Watermarks]:
        if not partitions:
            return {}
        self._find_leaders(partitions, for_s, _END)
        # Three questions side by side. The answers may be of slightly different moments; offsets only grow.
        low = self._offsets(dict.fromkeys(partitions, _EARLIEST), for_s)
        stable = self._offsets(dict.fromkeys(partitions, _LATEST), for_s, IsolationLevel.READ_COMMITTED)
        high = self._offsets(dict.fromkeys(partitions, _LATEST), for_s)
        # An error ends this client, and it must not be destroyed while other answers are on their way.
        self._asking.wait_for([*low.values(), *stable.values(), *high.values()], "asking for the ends of partitions")
        found = {}
        for tp in partitions:
            doing = f"{_END} {tp.topic}/{tp.partition}"
            right = Right("Describe", "topic", tp.topic)
            lows, stables, highs = (self._offset(asked[tp], doing, right) for asked in (low, stable, high))
            stables = max(lows, stables)
            found[tp] = Watermarks(lows, stables, max(stables, highs))
        return found

    def stable_ends(self, partitions: Collection[TopicPartition], for_s: float) -> dict[TopicPartition, int]:
        if not partitions:
            return {}
        self._find_leaders(partitions, for_s, _END)
        asked = self._offsets(dict.fromkeys(partitions, _LATEST), for_s, IsolationLevel.READ_COMMITTED)
        self._asking.wait_for(asked.values(), "asking for the ends of partitions")
        return {
            tp: self._offset(asked[tp], f"{_END} {tp.topic}/{tp.partition}", Right("Describe", "topic", tp.topic))
            for tp in partitions
        }

    def offsets_at(
        self, times: Mapping[TopicPartition, int], for_s: float | None = None
    ) -> dict[TopicPartition, int | None]:
        if not times:
            return {}
        self._find_leaders(times, for_s, _TIME)
        found: dict[TopicPartition, int | None] = {}
        specs = {at: _SPEC.for_timestamp(time_ms) for at, time_ms in times.items()}
        for at, future in self._offsets(specs, for_s).items():
            doing = f"{_TIME} {at.topic}/{at.partition}"
            offset = self._offset(future, doing, Right("Describe", "topic", at.topic), none=_NONE)
            found[at] = None if offset == _NONE else offset
        return found

    def trim(self, offsets: Mapping[TopicPartition, int]) -> None:
        places = [ClientPartition(topic, partition, offset) for (topic, partition), offset in offsets.items()]
        if not places:
            return
        self._find_leaders(offsets, None, "deleting records of")
        for place, future in self._asking.ask(self._asking.client.delete_records, places).items():
            doing = f"deleting records of {place.topic}/{place.partition} below {place.offset}"
            self._asking.result(future, doing, Right("Delete", "topic", place.topic))

    def _find_leaders(self, partitions: Iterable[TopicPartition], for_s: float | None, doing: str) -> None:
        """
        Have the client know who leads these partitions; before each question for leaders.

        librdkafka 2.16 begins ListOffsets and DeleteRecords on the calling thread. Where it does not know a leader, it
        waits for the next metadata. If they come in that moment, its own thread ends the search while the caller is
        still within it, and the process dies of a segmentation fault (`rdkafka_partition.c`,
        `rd_kafka_topic_partition_list_query_leaders_async_worker`). Several threads with a new client met it.

        Raises:
            RetriableError: a partition has no leader now, or is not there.
        """
        now = time.monotonic()
        wanted = [place for place in partitions if self._led.get(place, now) <= now]
        if not wanted:
            return
        asked = self._asking.ask(
            self._asking.client.describe_topics, TopicCollection(list({one.topic for one in wanted})), for_s=for_s
        )
        self._asking.wait_for(asked.values(), f"{doing} {len(wanted)} partitions")
        for place in wanted:
            at, right = f"{doing} {place.topic}/{place.partition}", Right("Describe", "topic", place.topic)
            found = self._asking.result(asked[place.topic], at, right, ignore=MISSING)
            leaders = {one.id: one.leader for one in found.partitions} if found else {}
            if place.partition not in leaders:
                raise self._asking.failed(KafkaException(KafkaError(_NO_ENTRY, "the partition does not exist")), at)
            if (leader := leaders[place.partition]) is None or leader.id < 0:
                raise RetriableError(f"{at}: the partition has no leader at the moment", code="LEADER_NOT_AVAILABLE")
        self._led |= dict.fromkeys(wanted, now + self._led_s)

    def _offsets(
        self,
        specs: Mapping[TopicPartition, OffsetSpec],
        for_s: float | None,
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    ) -> dict[TopicPartition, Future[Any]]:
        request = {ClientPartition(topic, partition): spec for (topic, partition), spec in specs.items()}
        asked = self._asking.ask(self._asking.client.list_offsets, request, for_s=for_s, isolation_level=isolation)
        return {TopicPartition(place.topic, place.partition): future for place, future in asked.items()}

    def _offset(self, future: Future[Any], doing: str, right: Right, *, none: int = 0) -> int:
        """
        The answered offset. While brokers come and go, librdkafka 2.16 can answer -1001 without an error.

        Args:
            future: its answer.
            doing: what is asked for.
            right: what it needs.
            none: the least that is an answer.

        Raises:
            RetriableError: it is no offset. Taken for one, a task would begin there, or at the other end of its input.
        """
        offset = int(self._asking.result(future, doing, right).offset)
        if offset < none:
            self._asking.spent = True
            raise RetriableError(f"{doing}: the client returned no offset and no error", code="LEADER_NOT_AVAILABLE")
        return offset

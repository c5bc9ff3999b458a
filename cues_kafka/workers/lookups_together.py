"""Recoveries that look things up in the same moment ask the cluster together.

A worker that gets 256 tasks has 256 recoveries, each with four questions. Most of the price of a question is the
request, and for offsets and records a client of its own. So what several tasks ask at one time is asked once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Hashable, Mapping
from typing import Generic, TypeAlias, TypeVar

from cues_kafka.errors import BrokerError
from cues_kafka.ports.broker import Broker
from cues_kafka.ports.clock import Clock
from cues_kafka.ports.facts import TopicFacts, Watermarks
from cues_kafka.ports.log import TopicPartition, WireMessage
from cues_kafka.records.newest_of_many import BackingRange, newest_of_many
from cues_kafka.task.lookups import LookupsAlone

_Key = TypeVar("_Key", bound=Hashable)
_Answer = TypeVar("_Answer")
_Read: TypeAlias = tuple[TopicPartition, BackingRange]


class _Question(Generic[_Key, _Answer]):
    """One question of some callers; guarded by the lock of `AskedOnce`."""

    def __init__(self) -> None:
        self.keys: dict[_Key, None] = {}  # in the order in which they came
        self.callers = 0
        self.answers: Mapping[_Key, _Answer] = {}
        self.over = False


class AskedOnce(Generic[_Key, _Answer]):
    """
    Asks for several callers at once; may be called on any thread.

    A caller that comes while a question is under way waits for the next one, so no answer is older than its question.
    Who comes alone asks at once.
    """

    def __init__(self, ask: Callable[[Collection[_Key]], Mapping[_Key, _Answer]]) -> None:
        """
        Args:
            ask: answers for these keys; those that it leaves out have no answer.
        """
        self._ask = ask
        self._changed = threading.Condition()  # guards what follows; not held while the cluster is asked
        self._next: _Question[_Key, _Answer] = _Question()
        self._asking = False

    def __call__(self, keys: Collection[_Key]) -> Mapping[_Key, _Answer]:
        """
        The answers for these keys, and maybe for those of others.

        A question of several callers that fails has no answers: each then asks alone, and learns whether its own keys
        are the reason.

        Raises:
            BrokerError: a question of this caller alone has failed.
        """
        with self._changed:
            mine = self._next
            mine.keys |= dict.fromkeys(keys)
            mine.callers += 1
            while self._asking and not mine.over:
                self._changed.wait()
            if mine.over:
                return mine.answers
            self._asking, self._next = True, _Question()
        try:
            mine.answers = self._ask(tuple(mine.keys))
        except BrokerError:
            if mine.callers == 1:
                raise
        finally:
            with self._changed:
                mine.over, self._asking = True, False
                self._changed.notify_all()
        return mine.answers


class LookupsTogether:
    """The lookups of all tasks of a processor in this process, see `task.lookups.Lookups`."""

    def __init__(self, broker: Broker, clock: Clock, group: str) -> None:
        """
        Args:
            broker: the cluster.
            clock: time.
            group: of the processor.
        """
        self._broker, self._clock, self._group = broker, clock, group
        self._alone = alone = LookupsAlone(broker, clock)
        self._committed = AskedOnce[TopicPartition, int | None](lambda places: alone.committed(group, places))
        self._watermarks = AskedOnce(alone.watermarks)
        self._facts = AskedOnce(alone.facts)
        self._partitions = AskedOnce(alone.partitions)
        self._newest = AskedOnce(self._read)

    def committed(self, group: str, places: Collection[TopicPartition]) -> Mapping[TopicPartition, int | None]:
        assert group == self._group
        found = self._committed(places)
        return found if found.keys() >= {*places} else self._alone.committed(group, places)

    def watermarks(self, places: Collection[TopicPartition]) -> Mapping[TopicPartition, Watermarks]:
        found = self._watermarks(places)
        return found if found.keys() >= {*places} else self._alone.watermarks(places)

    def facts(self, topics: Collection[str]) -> Mapping[str, TopicFacts]:
        found = self._facts(topics)
        return found if found.keys() >= {*topics} else self._alone.facts(topics)

    def partitions(self, topics: Collection[str]) -> Mapping[str, int]:
        found = self._partitions(topics)
        return found if found.keys() >= {*topics} else self._alone.partitions(topics)

    def newest(self, place: TopicPartition, low: int, high: int, *, group: str) -> WireMessage | None:
        assert group == self._group
        key = place, BackingRange(low, high)
        found = self._newest([key])
        return found[key] if key in found else self._alone.newest(place, low, high, group=group)

    def _read(self, keys: Collection[_Read]) -> Mapping[_Read, WireMessage | None]:
        found = newest_of_many(self._broker, dict(keys), self._clock, group=self._group)
        return {key: found[key[0]] for key in keys if key[0] in found}

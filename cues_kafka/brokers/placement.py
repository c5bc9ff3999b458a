"""Whether the messages of a partition are where the declared partitioner puts their keys.

Stores, tables, timers, upserts and `Dedupe` count on it: one key, one partition. A topic that another client writes may
use another rule. Then a lookup finds nothing and a count has two entries, without any error.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Final, NamedTuple

from cues_kafka.brokers.partitioners import KNOWN, place_of
from cues_kafka.graph.partitioners import MURMUR2
from cues_kafka.ports.log import WireMessage

AT_FIRST: Final = 1_000
"""The number of messages of a partition that are looked at one by one; a hash takes about a microsecond."""

ONE_IN: Final = 16
"""The later messages are sampled: one of this number."""

LEARN_S: Final = 600.0
"""Producers learn within this time that a topic has more partitions: twice their default of metadata.max.age.ms."""

KEPT: Final = 64
"""The number of keys in their place that are kept: another rule that these do not fit is not recommended."""


class Misplaced(NamedTuple):
    """
    A message that is not in its key's partition.

    Attributes:
        text: what was found, and where.
        remedy: what to do.
    """

    text: str
    remedy: str


class Placement:
    """
    Looks at keys of one partition.

    An input that has got more partitions holds older messages where fewer partitions put them. So a message counts as
    misplaced once no smaller number of partitions explains all that were seen. Partition 0 holds every key of a topic
    that had one partition, so there a misplaced key is not told from those. A message of a later time has no such
    excuse: its key shows that the topic has more partitions by now, or another rule. Nor has any message if the
    processor began when the topic had as many partitions as now: nothing has moved the entries of its key, and the next
    message of the key comes to another task. Nor has a table, or an input whose keys are looked up in one: entries are
    where the present number of partitions puts them.

    Attributes:
        found: the first misplaced message; None: no message so far was misplaced.
    """

    def __init__(
        self,
        topic: str,
        partition: int,
        width: int,
        partitioner: str,
        why: str,
        *,
        table: bool = False,
        known_ms: int | None = None,
    ) -> None:
        """
        Args:
            topic: the topic.
            partition: the one that is looked at.
            width: how many partitions the topic has.
            partitioner: the declared one.
            why: what counts on it, such as "the store 'totals'".
            table: whether it is a table, or an input whose keys are looked up in one.
            known_ms: from this time on all producers know of this number of partitions; in milliseconds since the
                epoch. None: messages of any time may have been sent when there were fewer.
        """
        self.found: Misplaced | None = None
        self._topic, self._partition, self._width, self._why = topic, partition, width, why
        self._partitioner = partitioner
        self._place = place_of(partitioner) if width > 1 else None
        self._table = table
        self._widths = [] if table else list(range(1, width))  # that explain all misplaced keys so far
        self._others = [one for one in KNOWN if place_of(one) is not self._place]  # rules that explain them
        self._known_ms, self._right = known_ms, list[bytes]()
        self._seen = 0

    def began(self, born: int | None) -> None:
        """
        Say how many partitions the topic had when the processor began: no smaller number explains a key.

        Args:
            born: see `core.records.Record`; None: the processor begins now.
        """
        self._widths = [] if self._table else list(range(born or self._width, self._width))

    def look(self, messages: Iterable[WireMessage]) -> int | None:
        """
        Look at messages, at the first thousand of the partition each, then at one in sixteen.

        Returns:
            The index of the message that shows a wrong place; None: all is well, as far as was seen.
        """
        if self._place is None:
            return None
        if self._seen < AT_FIRST:
            for index, message in enumerate(messages):
                self._seen += 1
                if self._is_misplaced(message):
                    return index
            return None
        for index, message in enumerate(islice(messages, 0, None, ONE_IN)):
            if self._is_misplaced(message):
                return index * ONE_IN
        return None

    def _is_misplaced(self, message: WireMessage) -> bool:
        key, here = message.key(), self._partition
        assert self._place is not None
        if not key or self._place(key, self._width) == here:  # some clients place an empty key at random
            if key and len(self._right) < KEPT:
                self._right.append(key)
            return False
        self._widths = [width for width in self._widths if self._place(key, width) == here]
        self._others = [
            one for one in self._others if (place := place_of(one)) is not None and place(key, self._width) == here
        ]
        if self._widths and (self._known_ms is None or message.timestamp()[1] < self._known_ms):
            return False
        self.found = self.found or self._described(key, message.offset())
        return True

    def _described(self, key: bytes, offset: int) -> Misplaced:
        assert self._place is not None
        shown = repr(key.decode(errors="backslashreplace"))[:60]
        rule = f"{self._partitioner}, Kafka's default," if self._partitioner == MURMUR2 else self._partitioner
        text = (
            f"{self._why} needs all messages of a key in one partition, and {self._topic}/{self._partition} has key "
            f"{shown} at offset {offset}, which {rule} puts into partition {self._place(key, self._width)} of "
            f"{self._width}"
        )
        others = [rule for rule in self._others if self._explains(rule)]
        apart = (
            f"put rekey(...) between {self._topic!r} and the processor, so that cues-kafka places the keys; a table "
            "may be a GlobalTable instead, whose entries every task sees"
        )
        if others:
            return Misplaced(
                text,
                f"The keys seen fit {others[0]}: if every writer of {self._topic!r} uses it, declare "
                f"Topic(partitioner={others[0]!r}) for this topic and for all topics that share its keys. Otherwise "
                f"{apart}. {ADDED}",
            )
        return Misplaced(
            text,
            f"{ADDED}. If its writers place every key by one rule of their own, declare Topic(partitioner='custom'). "
            f"Otherwise {apart}",
        )

    def _explains(self, rule: str) -> bool:
        """Whether a rule puts the keys that are in their place there, too."""
        place = place_of(rule)
        return place is not None and all(place(key, self._width) == self._partition for key in self._right)


ADDED: Final = (
    "If the topic was given more partitions while workers ran, `cues-kafka plan MODULE:GRAPH --records` says what to "
    "do; if that was before the processor first ran, rekey(...) helps"
)

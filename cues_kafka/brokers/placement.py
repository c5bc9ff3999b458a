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
from cues_kafka.ports import WireMessage

AT_FIRST: Final = 1_000
"""The number of messages of a partition that are looked at one by one; a hash takes about a microsecond."""

ONE_IN: Final = 16
"""The later messages are sampled: one of this number."""


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
    that had one partition, so there a misplaced key is not told from those. A table has no such excuse: its entries are
    looked up where the present number of partitions puts them.

    Attributes:
        found: the first misplaced message; None: no message so far was misplaced.
    """

    def __init__(
        self, topic: str, partition: int, width: int, partitioner: str, why: str, *, table: bool = False
    ) -> None:
        """
        Args:
            topic: the topic.
            partition: the one that is looked at.
            width: how many partitions the topic has.
            partitioner: the declared one.
            why: what counts on it, such as "the store 'totals'".
            table: whether it is read as a table only.
        """
        self.found: Misplaced | None = None
        self._topic, self._partition, self._width, self._why = topic, partition, width, why
        self._partitioner = partitioner
        self._place = place_of(partitioner) if width > 1 else None
        self._widths = [] if table else list(range(1, width))  # that explain all misplaced keys so far
        self._others = [one for one in KNOWN if place_of(one) is not self._place]  # rules that explain them
        self._seen = 0

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
            return False
        self._widths = [width for width in self._widths if self._place(key, width) == here]
        self._others = [
            one for one in self._others if (place := place_of(one)) is not None and place(key, self._width) == here
        ]
        if self._widths:
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
        declared = f"Topic(partitioner={self._others[0]!r})" if self._others else "Topic(partitioner='custom')"
        fits = (
            f"The keys seen fit {self._others[0]}: if every writer of {self._topic!r} uses it, declare {declared} for "
            "this topic and for all topics that share its keys"
            if self._others
            else f"If its writers place every key by one rule of their own, declare {declared}"
        )
        return Misplaced(
            text,
            f"{fits}. Otherwise put rekey(...) between {self._topic!r} and the processor, so that cues-kafka places "
            "the keys; a table may be a GlobalTable instead, whose entries every task sees. If the topic was given "
            "more partitions while workers ran, `cues-kafka plan MODULE:GRAPH --records` says what to do",
        )

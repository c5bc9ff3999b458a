"""What a renamed task takes along: the entries of its stores, what it has settled, and its history (X5, X6, R4b).

It is written under the new name in the transaction with which the task arrives, behind its record, and the changelogs
end with the same marks. So a task has all of it, or none and no record. Of a large store most entries are written
before, in transactions of their own, each with a mark below that of the record: a task takes none of them before it
has arrived.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any, Final

from cues_kafka.core.records import Record
from cues_kafka.core.spec import Spec
from cues_kafka.errors import RecoveryError
from cues_kafka.graph.names import quoted
from cues_kafka.ports.broker import Broker
from cues_kafka.ports.log import TopicPartition
from cues_kafka.records.requests import settled_in
from cues_kafka.records.scanning import read_range
from cues_kafka.state.layers import MARK, TOPIC
from cues_kafka.state.marks import NO_MARK, UNFINISHED, mark_in, order, shown_mark

CHUNK: Final = 20_000
"""Entries that are written in one transaction."""

FENCE_S: Final = 30.0
"""How long a coordinator may take to end the transaction of a former tool."""


def refuse_other_stores(spec: Spec, record: Record) -> None:
    """
    Refuse where the record's stores are not those of the declaration.

    Raises:
        RecoveryError: stores were added, or are being rebuilt.
    """
    kept = dict(record.stores)
    if UNFINISHED in kept:
        raise RecoveryError(
            f"{spec.name}: its stores are being rebuilt, and that is not finished. While the processor has its old "
            f"name: `cues-kafka rebuild MODULE:GRAPH {spec.processor} --yes`."
        )
    if kept and (added := sorted(dict(spec.stores).keys() - kept.keys())):
        raise RecoveryError(
            f"{spec.name} has not run with {quoted(added)} in state= yet. Declare its stores as they were, and rename "
            "it first; or start it once under its old name."
        )


class TakenAlong:
    """
    What one task takes along.

    Args:
        broker: the cluster.
        old: the task under its old name.
        new: the same under its new name.
        record: the last one under the old name.
        topic_ids: of the changelogs of the new name.
    """

    def __init__(
        self, broker: Broker, old: Spec, new: Spec, record: Record, topic_ids: Callable[[], Mapping[str, bytes]]
    ) -> None:
        self._broker, self._old, self._new, self._topic_ids = broker, old, new, topic_ids
        self.kept = dict(record.stores) if new.stores else {}
        self._newest: dict[str, dict[bytes, int]] = {}
        self._done: dict[str, int] = {}

    def write_most(self, tick: Callable[[], Any]) -> None:
        """
        Write what does not fit into the last transaction. The task must not have arrived; another run does it again.

        Args:
            tick: called before each commit; raises if the tool must not go on.

        Raises:
            RecoveryError: a changelog does not end where the record says.
            BrokerError: the cluster refused.
        """
        for name, topic in self._new.stores if self.kept else ():
            entries = self._entries(name)
            chunks = max(0, len(self._offsets(name)) - 1) // CHUNK
            first = order(self._end(topic)) + 1
            if not chunks or first + chunks > order(self.kept[name]):
                continue
            session = self._broker.session(self._new.transactional_id)
            try:
                session.init(timeout_s=FENCE_S)
                for nth in range(chunks):
                    session.begin()
                    # R4b: each with a mark below that of the record, so a task that dies here has none of it.
                    session.produce(islice(entries, CHUNK))
                    session.produce([(topic, self._new.partition, MARK, b"%d" % _mark_at(first + nth), None, 0)])
                    session.flush()
                    # P5: asked behind the flush, which takes long. A worker of either name may have joined by then.
                    tick()
                    session.commit()
                    self._done[name] = (nth + 1) * CHUNK
            finally:
                session.abandon()

    def rest(self) -> Iterator[tuple[Any, ...]]:
        """What is written with the record, without the marks; asked whenever the transaction is begun again."""
        ids = self._topic_ids() if self.kept else {}
        for name, topic in self._new.stores if self.kept else ():
            yield from islice(self._entries(name), self._done.get(name, 0), None)
            yield topic, self._new.partition, TOPIC, ids[topic], None, 0
        backing = TopicPartition(self._old.backing, self._old.partition)
        for key, value in settled_in(self._read(backing)):
            yield self._new.backing, self._new.partition, key, value, None, 0

    def _source(self, store: str) -> TopicPartition:
        return TopicPartition(dict(self._old.stores)[store], self._old.partition)

    def _read(self, place: TopicPartition) -> Iterator[Any]:
        low, stable, _ = self._broker.watermarks([place])[place]
        yield from read_range(self._broker, place, low, stable, group=self._old.group) if low < stable else ()

    def _end(self, topic: str) -> int:
        """The newest mark in a changelog of the new name, which a run before this one has left."""
        place = TopicPartition(topic, self._new.partition)
        marks = [mark_in(message.value(), NO_MARK) for message in self._read(place) if message.key() == MARK]
        return marks[-1] if marks else NO_MARK

    def _offsets(self, store: str) -> dict[bytes, int]:
        """Where the newest version of each key is. The old name writes no more, so it stays there."""
        if store not in self._newest:
            place, found = self._source(store), dict[bytes, int]()
            mark: int | None = None
            for message in self._read(place):
                match message.key() or b"":
                    case key if key == MARK:
                        mark = mark_in(message.value(), NO_MARK)
                    case key if key != TOPIC and message.value() is None:
                        found.pop(key, None)
                    case key if key != TOPIC:
                        found[key] = message.offset()
            self._refuse_other_end(place, mark, self.kept[store])
            self._newest[store] = found
        return self._newest[store]

    def _entries(self, store: str) -> Iterator[tuple[Any, ...]]:
        """The newest version of each key, in the order of the old changelog."""
        offsets = self._offsets(store)
        topic = dict(self._new.stores)[store]
        for message in self._read(self._source(store)):
            if offsets.get(key := message.key() or b"") == message.offset():
                yield topic, self._new.partition, key, message.value(), None, 0

    def _refuse_other_end(self, place: TopicPartition, mark: int | None, expected: int) -> None:
        if mark == expected:
            return
        ends = "has no entries" if mark is None else f"ends with {shown_mark(mark)}"
        raise RecoveryError(
            f"{place.topic}/{place.partition} {ends}, and the task's record says {shown_mark(expected)}: a broker gave "
            "an old end of the log, or the changelog was recreated or has lost messages. Run the command again; if it "
            f"says the same, and {self._old.name} has not left yet, declare the old name again and run `cues-kafka "
            f"rebuild MODULE:GRAPH {self._old.processor} --yes`."
        )


def _mark_at(place: int) -> int:
    """The mark of a tool that stands at this place in the order of marks."""
    return -place - 2

"""Plan ranges by options: which partitions there are, where a read begins, how far it can go, and what is lost.

A range is half-open, and its end is a last stable offset: everything below is decided, so a range can be read to its
end. This module asks a `Broker`, on the driver, and its ranges go to Spark's tasks.

Lost messages are never passed over silently. A read may begin at offsets that are no longer in the log (retention,
DeleteRecords), or not yet (another topic under the old name, a truncated log). That is an error that names the range,
unless `failOnDataLoss` is false. Offsets below the log's start may have held markers only, which cannot be known.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from pyspark.sql.datasource import InputPartition

from cues_kafka.brokers.patience import ask_again
from cues_kafka.errors import BrokerError, ConfigError, RecoveryError
from cues_kafka.observe.log import get_logger
from cues_kafka.on_spark.source.options import EARLIEST, LATEST, Bound, SourceOptions, Subscription
from cues_kafka.ports.broker import Broker
from cues_kafka.ports.clients import GroupMetadata
from cues_kafka.ports.facts import Watermarks
from cues_kafka.ports.log import TopicPartition

log = get_logger("cues_kafka.source")

_Answer = TypeVar("_Answer")

Offsets: TypeAlias = "dict[TopicPartition, int]"
"""Offsets by partition, sorted by topic and number."""

SURE_S: Final = 15.0
"""How long to ask the cluster again before messages count as lost: a new leader's first answers may be old (R5)."""

ASK_AGAIN_S: Final = 0.2

_GONE: Final = "the partition no longer exists, or the query subscribes to other topics than before"

PIN_ROUNDS: Final = 5
"""Drivers with the same name fence each other; one of them wins each round."""


@dataclass(frozen=True)
class OffsetRange(InputPartition):
    """One partition's offsets `[start, end)`, which one Spark task reads."""

    place: TopicPartition
    start: int
    end: int


class LostRange(NamedTuple):
    """Offsets `[start, end)` that can no longer be read, and what happened to them; an end of None is not known."""

    place: TopicPartition
    start: int
    end: int | None
    why: str

    def __str__(self) -> str:
        end = "..." if self.end is None else self.end
        return f"{self.place.topic}/{self.place.partition} [{self.start}, {end}): {self.why}"


GO_ON: Final = 'to go on with what is there, start the query once with option("failOnDataLoss", "false")'
"""The remedy for readers of `format("cues")`."""


def report(lost: Iterable[LostRange], *, fail: bool, remedy: str = GO_ON) -> None:
    """Log what is lost, or raise it as a RecoveryError."""
    found = list(lost)
    if found and fail:
        raise RecoveryError(f"lost: {'; '.join(map(str, found))}. Remedy: {remedy}")
    for one in found:
        log.warning(
            "lost", topic=one.place.topic, partition=one.place.partition, start=one.start, end=one.end, why=one.why
        )


@dataclass(frozen=True, slots=True)
class Found:
    """A partition as a read finds it: it goes on at `first`, the offset that it asked for, unless that is lost."""

    first: int
    marks: Watermarks
    lost: LostRange | None = None

    @property
    def last(self) -> int:
        """How far it can be read now; messages behind an open transaction cannot be read yet."""
        return max(self.first, self.marks.stable)


class Planner:
    """The driver's half of a source, which answers Spark."""

    def __init__(self, settings: SourceOptions, broker: Broker, *, sure_s: float = SURE_S) -> None:
        self._settings = settings
        self._broker = broker
        self._sure_s = sure_s

    def ranges(self) -> list[OffsetRange]:
        """Return all ranges of a batch read, also empty ones; a ConfigError says what cannot be read."""
        places = self._places()
        start = self._resolve(self._settings.start, places)
        found = self._sure(start)
        report((one.lost for one in found.values() if one.lost), fail=self._settings.fail_on_loss)
        end = self._ends(found)
        if self._settings.end.offsets is not None:
            _check_order(start, end)
        return [OffsetRange(place, one.first, max(one.first, end[place])) for place, one in found.items()]

    def begin(self) -> Offsets:
        """Return where a stream without a checkpoint begins; a stream with a name keeps it for its next start."""
        places = self._places()
        if not places and self._settings.start.moves:
            raise ConfigError(
                f"{self._settings.subscription} matches no topic yet, so there are no latest offsets to keep; begin "
                'with option("startingOffsets", "earliest")'
            )
        if self._settings.name is None or not places:
            return self._resolve(self._settings.start, places)
        pinned = pin(self._broker, self._settings.name, places, lambda: self._resolve(self._settings.start, places))
        self._check_pinned(pinned)
        return pinned

    def until(self) -> Offsets:
        """The last stable offset of each partition of now."""
        return {place: marks.stable for place, marks in self._marks(self._covered()).items()}

    def ahead(self, start: Mapping[TopicPartition, int]) -> dict[TopicPartition, Found]:
        """Return what a stream at `start` finds; partitions that are new since then begin at their beginning."""
        places = self._subscribed(start)
        gone = [LostRange(place, start[place], None, _GONE) for place in start.keys() - set(places)]
        found = self._sure({place: start.get(place, 0) for place in places})
        lost = [*sorted(gone), *(one.lost for one in found.values() if one.lost)]
        report(lost, fail=self._settings.fail_on_loss)
        return found

    def between(self, start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> list[OffsetRange]:
        """Return the ranges of a micro-batch, also empty ones. A batch that runs again has the same ranges."""
        there = self._existing(end)
        gone = [place for place in end if place not in there]
        lost = [LostRange(place, start.get(place, 0), end[place], _GONE) for place in gone]
        ranges = {place: OffsetRange(place, end[place], end[place]) for place in gone}
        for place, marks in self._marks(there).items():
            first, last = start.get(place, 0), end[place]
            if first > last:
                # The log was recreated, and this batch was planned to take it from its beginning; or the options of the
                # first start were others.
                lost.append(LostRange(place, last, first, f"its batch was planned to end at {last}"))
                first = marks.low
            elif first < marks.low and first < last:
                lost.append(_below(place, first, min(marks.low, last)))
            ranges[place] = OffsetRange(place, min(max(first, marks.low), last), last)
        report(sorted(lost), fail=self._settings.fail_on_loss)
        return [ranges[place] for place in sorted(end)]

    # Partitions.

    def _places(self) -> list[TopicPartition]:
        """Return the partitions that the subscription covers now; each that is named must exist."""
        chosen = self._settings.subscription
        counts = self._counts(chosen)
        wanted = chosen.topics or {place.topic for place in chosen.places}
        if missing := sorted(set(wanted) - counts.keys()):
            raise ConfigError(
                f"these topics do not exist: {', '.join(missing)} ({chosen}). Create them, or correct the names"
            )
        beyond = [place for place in chosen.places if place.partition >= counts[place.topic]]
        if beyond:
            raise ConfigError(f"these partitions do not exist: {', '.join(map(_shown, beyond))} ({chosen})")
        return _all(chosen, counts)

    def _subscribed(self, start: Mapping[TopicPartition, int]) -> list[TopicPartition]:
        """The same for a running stream; ask again before a partition that was there counts as gone."""
        return self._until(self._covered, lambda places: not start.keys() - set(places))

    def _covered(self) -> list[TopicPartition]:
        return _all(self._settings.subscription, self._counts(self._settings.subscription))

    def _until(self, question: Callable[[], _Answer], is_good: Callable[[_Answer], bool]) -> _Answer:
        """Ask until an answer is good, or for so long that a bad one is believed."""
        deadline = time.monotonic() + self._sure_s
        while not is_good(answer := question()) and time.monotonic() < deadline:
            time.sleep(ASK_AGAIN_S)
        return answer

    def _existing(self, places: Iterable[TopicPartition]) -> list[TopicPartition]:
        wanted = list(places)
        counts = self._ask(lambda: self._broker.partitions(sorted({place.topic for place in wanted})))
        return [place for place in wanted if place.partition < counts.get(place.topic, 0)]

    def _counts(self, chosen: Subscription) -> dict[str, int]:
        if chosen.pattern:
            match = re.compile(chosen.pattern).fullmatch
            return {topic: count for topic, count in self._ask(self._broker.partitions).items() if match(topic)}
        named = chosen.topics or sorted({place.topic for place in chosen.places})
        return self._ask(lambda: self._broker.partitions(named))

    # Offsets.

    def _marks(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, Watermarks]:
        wanted = list(places)
        found = self._ask(lambda: self._broker.watermarks(wanted))
        return {place: found[place] for place in wanted}

    def _sure(self, start: Mapping[TopicPartition, int]) -> dict[TopicPartition, Found]:
        """Compare each start with its log; ask again before an offset past the end is believed."""
        marks = self._until(
            lambda: self._marks(start),
            lambda marks: all(offset <= marks[place].high for place, offset in start.items()),
        )
        return {place: _found(place, offset, marks[place]) for place, offset in start.items()}

    def _ends(self, found: Mapping[TopicPartition, Found]) -> Offsets:
        """Return where a batch ends, nowhere beyond the last stable offset."""
        bound = self._settings.end
        if bound.edge == LATEST:
            return {place: one.last for place, one in found.items()}
        wanted = self._resolve(bound, list(found))
        if bound.offsets is None:
            return {place: min(wanted[place], one.last) for place, one in found.items()}
        beyond = [f"{_shown(place)} ends at {one.last}" for place, one in found.items() if wanted[place] > one.last]
        if beyond:
            raise ConfigError(
                f"{bound.option} is past what can be read: {'; '.join(beyond)}. Messages after an open "
                "transaction cannot be read yet"
            )
        return wanted

    def _resolve(self, bound: Bound, places: list[TopicPartition]) -> Offsets:
        """One offset for each partition."""
        if bound.edge is not None:
            return self._edges(dict.fromkeys(places, bound.edge))
        if bound.offsets is not None:
            return self._edges(_complete(bound, bound.offsets, places))
        if bound.time_ms is not None:
            return self._at(bound, dict.fromkeys(places, bound.time_ms))
        return self._at(bound, _complete(bound, bound.times_ms or {}, places))

    def _edges(self, offsets: Mapping[TopicPartition, int]) -> Offsets:
        """Replace `EARLIEST` and `LATEST` by the offsets that they mean now."""
        marks = self._marks(place for place, offset in offsets.items() if offset < 0)
        meaning = {EARLIEST: lambda place: marks[place].low, LATEST: lambda place: marks[place].stable}
        return {place: meaning[offset](place) if offset < 0 else offset for place, offset in offsets.items()}

    def _at(self, bound: Bound, times_ms: Mapping[TopicPartition, int]) -> Offsets:
        found = self._ask(lambda: self._broker.offsets_at(times_ms))
        late = [place for place in times_ms if found[place] is None]
        if late and not bound.or_latest:
            raise ConfigError(
                f"{bound.option}: no message is that young in {', '.join(map(_shown, late))}; give an earlier time, or "
                'option("startingOffsetsByTimestampStrategy", "latest")'
            )
        ends = self._marks(late)
        return {place: ends[place].stable if (at := found[place]) is None else at for place in times_ms}

    def _ask(self, question: Callable[[], _Answer]) -> _Answer:
        """Ask again for a while, because a broker that restarts must not end a query."""
        return ask_again(question, self._sure_s, longest_s=ASK_AGAIN_S)

    def _check_pinned(self, pinned: Offsets) -> None:
        """Refuse options that differ from what the name has kept."""
        for place, offset in (self._settings.start.offsets or {}).items():
            if offset >= 0 and place in pinned and pinned[place] != offset:
                raise ConfigError(
                    f"{self._settings.start.option} says {offset} for {_shown(place)}, and the name "
                    f"{self._settings.name!r} has kept {pinned[place]} from its first start; for another start give "
                    "the stream another name"
                )


def pin(broker: Broker, name: str, places: list[TopicPartition], resolve: Callable[[], Offsets]) -> Offsets:
    """
    Return the first offsets of a stream, which are committed offsets of the group `name`: made once, then always the
    same.

    The driver takes the transactional id `<name>.start`. So if two ask at once, one sees what the other has committed:
    the commit of the earlier one is over or will fail. Existing offsets are committed once more, unchanged, so that
    they expire later. A partition that came after the first time has no offset, and is not in the answer.

    Raises:
        ConfigError: the group has members.
        BrokerError: the cluster refuses.
    """
    if members := broker.members(name):
        raise ConfigError(
            f"name={name!r}: the group of this name has members {members}; a stream needs a name that no consumer uses"
        )
    for _ in range(PIN_ROUNDS - 1):
        try:
            return _pin_once(broker, name, places, resolve)
        except BrokerError as error:
            log.info("start not pinned yet", name=name, error=str(error))
    return _pin_once(broker, name, places, resolve)


def _pin_once(broker: Broker, name: str, places: list[TopicPartition], resolve: Callable[[], Offsets]) -> Offsets:
    session = broker.session(f"{name}.start")
    try:
        session.init(timeout_s=30.0)
        kept = {place: offset for place, offset in broker.committed(name, places).items() if offset is not None}
        offsets = kept or resolve()
        session.begin()
        session.send_offsets(offsets, GroupMetadata.outside(name))
        session.flush()
        session.commit()
    except BaseException:
        session.abandon()
        raise
    session.close()
    log.info("start pinned", name=name, found=bool(kept), offsets={_shown(place): o for place, o in offsets.items()})
    return dict(sorted(offsets.items()))


def within(found: Mapping[TopicPartition, Found], ends: Mapping[TopicPartition, int], limit: int) -> Offsets:
    """
    Return ends that are about `limit` offsets ahead in all, shared by how far each partition is behind.

    As in Spark's Kafka source, a share below one offset counts as one: the sum may exceed the limit by one for each.
    """
    behind = {place: max(0, end - found[place].first) for place, end in ends.items()}
    total = sum(behind.values())
    if total <= limit:
        return dict(ends)
    shares = {place: min(own, max(1, limit * own // total)) if own else 0 for place, own in behind.items()}
    return {place: min(ends[place], found[place].first + shares[place]) for place in ends}


def _found(place: TopicPartition, offset: int, marks: Watermarks) -> Found:
    if offset < marks.low:
        return Found(marks.low, marks, _below(place, offset, marks.low))
    if offset > marks.high:
        why = f"the log ends at {marks.high}: it was recreated or cut, or the offset was never there"
        return Found(marks.low, marks, LostRange(place, marks.high, offset, why))
    return Found(offset, marks)


def _below(place: TopicPartition, start: int, end: int) -> LostRange:
    return LostRange(
        place, start, end, "deleted from the log (retention, DeleteRecords); it may have held markers only"
    )


def _complete(bound: Bound, given: Mapping[TopicPartition, int], places: list[TopicPartition]) -> Offsets:
    """Refuse an option that does not name exactly the partitions that are read."""
    missing, unknown = sorted(set(places) - given.keys()), sorted(given.keys() - set(places))
    if missing or unknown:
        named = {"missing": missing, "not read": unknown}
        parts = [f"{what} {', '.join(map(_shown, places))}" for what, places in named.items() if places]
        raise ConfigError(f"{bound.option} must name every partition that is read, and no other: {'; '.join(parts)}")
    return dict(sorted(given.items()))


def _check_order(start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> None:
    if odd := [f"{_shown(place)} from {start[place]} to {end[place]}" for place in start if end[place] < start[place]]:
        raise ConfigError(f"a batch cannot end before it begins: {', '.join(odd)}")


def _all(chosen: Subscription, counts: Mapping[str, int]) -> list[TopicPartition]:
    if chosen.places:
        return [place for place in chosen.places if place.partition < counts.get(place.topic, 0)]
    return [TopicPartition(topic, number) for topic in sorted(counts) for number in range(counts[topic])]


def _shown(place: TopicPartition) -> str:
    return f"{place.topic}/{place.partition}"


def to_json(offsets: Mapping[TopicPartition, int]) -> dict[str, Any]:
    """Offsets as Spark keeps them; always in the same order, because Spark compares the text."""
    found: dict[str, dict[str, int]] = {}
    for place in sorted(offsets):
        found.setdefault(place.topic, {})[str(place.partition)] = offsets[place]
    return found


def from_json(given: Mapping[str, Any]) -> Offsets:
    """Offsets from that text."""
    return {TopicPartition(topic, int(p)): offset for topic, parts in given.items() for p, offset in parts.items()}

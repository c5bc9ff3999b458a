"""Reads a task's stores from their changelogs (R4b), after R1 has fenced the former owner."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from cues_kafka.core.records import Kept
from cues_kafka.errors import ConfigError, RetriableError
from cues_kafka.observe.log import get_logger
from cues_kafka.ports.broker import Broker
from cues_kafka.ports.clock import Clock
from cues_kafka.ports.facts import ClusterFacts, Watermarks
from cues_kafka.ports.log import Fetched, TopicPartition, WireMessage
from cues_kafka.records.reading import PATIENCE_S
from cues_kafka.records.scanning import read_merged
from cues_kafka.state.entries import EntriesPlace
from cues_kafka.state.expiring import Expiring
from cues_kafka.state.layers import MARK, TOPIC
from cues_kafka.state.marks import UNFINISHED, UNREADABLE, mark_in, shown_mark
from cues_kafka.state.stores import Cache, Stores
from cues_kafka.task.foreign_entries import is_other_kind, own_entries
from cues_kafka.words import SERVER

log = get_logger("cues_kafka.state")

TELL_S: Final = 5.0
"""How often progress is logged."""

RETENTION_MS: Final = 86_400_000
"""Kafka's default of `delete.retention.ms`: so long a compacted topic keeps the message that deletes an entry."""


LOST: Final = (
    "run `cues-kafka rebuild MODULE:GRAPH PROCESSOR`, which builds its stores again from its input. Where the input "
    "does not hold all messages, give the store another name: it begins empty, and the task continues at its position"
)
"""What to do where the entries of a changelog are gone."""


FINISH: Final = "run `cues-kafka rebuild MODULE:GRAPH PROCESSOR` again, to its end"


class ChangelogEnds(NamedTuple):
    """
    What the cluster says of a changelog's partition.

    Attributes:
        topic_id: of the changelog.
        marks: its watermarks.
        asked_ms: when they were asked for, in milliseconds since the epoch.
        retention_ms: its `delete.retention.ms`; None: this user may not read it.
    """

    topic_id: bytes
    marks: Watermarks
    asked_ms: int
    retention_ms: int | None


@dataclass(frozen=True, slots=True)
class Restoring:
    """
    Reads the stores of one task.

    Attributes:
        broker: the cluster.
        clock: bounds the wait.
        task: its name, for the log.
        partition: of the changelogs.
        group: a group that the caller may describe; the reader does not join it or commit there.
        given_up: whether the task is taken away meanwhile.
        foreign: gets the keys of each store's changelog that no task with this store writes; None: entries with
            another kind of lifetime are refused.
    """

    broker: Broker
    clock: Clock
    task: str
    partition: int
    group: str
    given_up: Callable[[], bool]
    foreign: dict[str, set[bytes]] | None = None

    def bring_up(self, stores: Stores, kept: Kept, *, whole: bool = True) -> None:
        """
        Bring the stores up to the high watermarks of now: a last stable offset may hide changes that are committed.

        A broker that has lost the leadership may give an old high watermark. So the changelog must end where the record
        says.

        What a process before has left on the disk is kept as far as the changelog bears it out, else wiped.

        Args:
            stores: those of the task; what they have read before is kept.
            kept: what the newest record says of them.
            whole: whether the changelogs must have all that the record says.

        Raises:
            RetriableError: no progress, for example because of an open transaction; the changelog ends elsewhere; or
                the task was given up.
            ConfigError: there are entries that no record of this task knows, a changelog is gone, or the stores are
                being rebuilt.
            BrokerError: a changelog cannot be read.
        """
        if UNFINISHED in dict(kept):
            raise ConfigError("the rebuild of its stores is not finished", remedy=FINISH)  # X3
        stores.open()
        expected, asked_ms = dict(kept), int(self.clock.time() * 1000)
        facts = self.broker.facts([one.spec.changelog for one in stores.caches])
        places = {TopicPartition(one.spec.changelog, self.partition): one for one in stores.caches}
        for place, one in places.items():
            if place.topic not in facts.topics:
                known = expected.get(one.spec.name)
                raise ConfigError(f"the changelog {place.topic!r} does not exist", remedy="" if known is None else LOST)
        for place, marks in self.broker.watermarks(list(places)).items():
            one, step = places[place], expected.get(places[place].spec.name)
            found = ChangelogEnds(
                facts.topics[place.topic].topic_id, marks, asked_ms, _retention_ms(facts, place.topic)
            )
            if (why := _unfit(one, found)) is not None:
                self._begin_again(one, found, why)
            one.begins, proven_ms = marks.low, one.place.proven_ms
            newest_ms = self._read_up(one, found)
            why = _not_borne_out(one.place.step, step, newest_ms - proven_ms, found.retention_ms)
            if one.inherited and why is not None:
                self._begin_again(one, found, why)
                self._read_up(one, found)
            if whole:
                self._compare(one, step)

    def _begin_again(self, one: Cache, found: ChangelogEnds, why: str) -> None:
        one.layers.clear(why if one.inherited else "")
        one.place, one.inherited = EntriesPlace(found.topic_id, found.marks.low, None, 0, found.asked_ms), False
        one.written_to = b""

    def _read_up(self, one: Cache, found: ChangelogEnds) -> int:
        """Read up to the high watermark; gives the newest timestamp of what was read, 0: nothing was."""
        low, _, high = found.marks
        start, before, began_s = max(one.place.offset, low), one.read, self.clock.monotonic()
        if one.layers.durable:
            log.info("restoring", task=self.task, store=one.spec.name, start=start, end=high)
        newest_ms = self._read(one, start, high) if start < high else 0
        # Where nothing came behind, this proves as much as the time of the last proof did.
        fresh = start < high or not _is_old(one, found)
        place = one.place._replace(offset=high, proven_ms=found.asked_ms if fresh else one.place.proven_ms)
        if place != one.place:
            one.layers.load((), place)
            one.place = place
        if one.layers.durable:
            took_s = round(self.clock.monotonic() - began_s, 3)
            log.info("restored", task=self.task, store=one.spec.name, entries=one.read - before, s=took_s)
        return newest_ms

    def _compare(self, one: Cache, step: int | None) -> None:
        place = f"{one.spec.changelog}/{self.partition}"
        if step is None and one.place.step is not None:
            raise ConfigError(
                f"{place} has entries of step {one.place.step}, and the task has no record of the store "
                f"{one.spec.name!r}",
                remedy="delete the changelog, or give the store another name",
            )
        if one.written_to not in (b"", one.place.topic_id):
            raise ConfigError(
                f"{place} was deleted and recreated while the task was running, and its former entries are lost",
                remedy=LOST,
            )
        if one.place.step == UNREADABLE:
            raise ConfigError(f"{place} ends with {shown_mark(UNREADABLE)}", remedy=LOST)
        if one.place.step != step:
            ends = "has no entries" if one.place.step is None else f"ends with step {one.place.step}"
            raise RetriableError(
                f"{place} {ends}, and the task's record says that step {step} wrote there: a broker gave an old end of "
                "the log, or the changelog was recreated or has lost messages",
                code="STALE_END",
                remedy=LOST,
            )

    def _read(self, one: Cache, start: int, high: int) -> int:
        reader = self.broker.reader(self.group, prompt=True)
        try:
            reader.assign({TopicPartition(one.spec.changelog, self.partition): start})
            heard_s = told_s = self.clock.monotonic()
            newest_ms = 0
            while not self.given_up():
                polled = reader.poll(0.2)
                read, ended = self._load(one, polled, high)
                newest_ms = max(
                    [newest_ms, *(fetched.messages[-1].timestamp()[1] for fetched in polled if fetched.messages)]
                )
                if ended:
                    return newest_ms
                now = self.clock.monotonic()
                heard_s = now if read else heard_s
                if now - told_s >= TELL_S:
                    told_s = now
                    log.info(
                        "restoring", task=self.task, store=one.spec.name, read=one.place.offset - start, of=high - start
                    )
                if now - heard_s >= PATIENCE_S:
                    raise RetriableError(
                        f"nothing new below {high} of {one.spec.changelog}/{self.partition} for {PATIENCE_S:g} s: an "
                        f"open transaction hides it. `kafka-transactions {SERVER} find-hanging --topic "
                        f"{one.spec.changelog} --partition {self.partition}` finds it, its `abort` ends it",
                        code="OPEN_TRANSACTION",
                    )
        finally:
            reader.close()
        raise RetriableError(f"{self.task} was given up while its stores were restored")

    def _load(self, one: Cache, polled: Sequence[Fetched], high: int) -> tuple[bool, bool]:
        """Take what was fetched below `high`; whether there was something, and whether that is all."""
        read = ended = False
        for fetched in polled:
            fit = [message for message in fetched.messages if message.offset() < high]
            behind = fit[-1].offset() + 1 if fit else None
            if self.foreign is None:
                self._refuse_other_kind(one, fit, high)
                self._take(one, [*own_entries(fit, one.layers)], behind)
            else:
                self._take(one, [*own_entries(fit, one.layers, self.foreign.setdefault(one.spec.name, set()))], behind)
            read = read or bool(fit)
            past = fetched.eof is not None and fetched.eof >= high
            ended = ended or past or bool(fetched.messages and fetched.messages[-1].offset() >= high - 1)
        return read, ended

    def _refuse_other_kind(self, one: Cache, fit: Sequence[WireMessage], high: int) -> None:
        """
        Refuse entries with another kind of lifetime, unless they are deleted again below `high`, as `rebuild` does.

        Raises:
            ConfigError: there are some.
        """
        others = (each for each in fit if each.value() is not None and is_other_kind(each.key() or b"", one.layers))
        first = next(others, None)
        if first is None or first.offset() < one.others_gone_below:
            return
        place, left = TopicPartition(one.spec.changelog, self.partition), set[bytes]()
        for _, each in read_merged(self.broker, {place: (first.offset(), high)}, group=self.group):
            if is_other_kind(key := each.key() or b"", one.layers):
                (left.discard if each.value() is None else left.add)(key)
        if left:
            raise ConfigError(
                f"{one.spec.changelog}/{self.partition} has entries with another kind of lifetime (ttl=, "
                "ttl_messages= or none)",
                remedy="declare it as it was, run `cues-kafka rebuild MODULE:GRAPH PROCESSOR`, which makes the "
                "entries again, or give the store another name",
            )
        one.others_gone_below = high

    def _take(self, one: Cache, found: Sequence[tuple[bytes, bytes | None]], behind: int | None) -> None:
        if behind is None:
            return
        layers, times = one.layers, [one.layers.unit] if isinstance(one.layers, Expiring) else []
        for key, value in found:
            one.written_to = value or b"" if key == TOPIC else one.written_to
        marks = [value for key, value in found if key == MARK]
        step = mark_in(marks[-1], -1) if marks else one.place.step
        said = [value for key, value in found if key in times]
        time = (
            max(0, mark_in(said[-1], 0)) if said else one.place.time
        )  # the last one counts: a reset turns it back (X4)
        place = one.place._replace(offset=behind, step=step, time=time)
        changes = [(key[1:], value) for key, value in found if key[:1] == layers.entry]
        layers.load(changes, place)
        one.read += len(changes)
        if isinstance(layers, Expiring):
            layers.load_time(time)
        one.place = place


def _retention_ms(facts: ClusterFacts, topic: str) -> int | None:
    """A topic's `delete.retention.ms`."""
    if topic in facts.unchecked:
        return None
    return int(facts.topics[topic].config.get("delete.retention.ms", RETENTION_MS))


def _is_old(one: Cache, found: ChangelogEnds) -> bool:
    """
    Whether a message that deletes an entry may be gone that came behind the place.

    It is kept for `delete.retention.ms`. Clocks may differ by half of that.
    """
    if found.retention_ms is None:
        return True
    return abs(found.asked_ms - one.place.proven_ms) >= found.retention_ms / 2


def _not_borne_out(ends: int | None, step: int | None, elapsed_ms: int, retention_ms: int | None) -> str | None:
    """
    Why entries that another process has left do not fit what was read behind them; None: they do.

    The brokers' timestamps bound the time that has passed, where the clock of this machine was set back.
    """
    if ends != step:
        return f"it ends with step {ends}, and the task's record says {step}"
    if retention_ms is not None and elapsed_ms >= retention_ms / 2:
        return f"messages {elapsed_ms // 1000} s behind it were read: a deletion may be missed"
    return None


def _unfit(one: Cache, found: ChangelogEnds) -> str | None:
    """Why the entries cannot be kept; None: they can."""
    low, _, high = found.marks
    place = one.place
    if place.topic_id != found.topic_id:
        return "the changelog is another topic of the same name"
    if place.offset > high:
        return f"its position is {place.offset}, and the changelog ends at {high}"
    if not one.inherited:
        return None
    if place.offset < low:
        return f"its position is {place.offset}, and the changelog begins at {low}"
    if place.offset == high or not _is_old(one, found):
        return None
    if found.retention_ms is None:
        return "delete.retention.ms of the changelog may not be read (DescribeConfigs): a deletion may be missed"
    age_s = (found.asked_ms - place.proven_ms) // 1000
    return f"it was current {age_s} s ago, and delete.retention.ms is {found.retention_ms}: a deletion may be missed"

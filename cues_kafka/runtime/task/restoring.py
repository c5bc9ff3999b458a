"""Reads a task's stores from their changelogs (R4b), after R1 has fenced the former owner."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from cues_kafka.core.records import Kept
from cues_kafka.errors import ConfigError, RetriableError
from cues_kafka.observe.log import get_logger
from cues_kafka.ports import Broker, Clock, Fetched, TopicPartition
from cues_kafka.records.reading import PATIENCE_S
from cues_kafka.state.expiring import Expiring
from cues_kafka.state.layers import MARK
from cues_kafka.state.stores import Cache, Stores

log = get_logger("cues_kafka.state")

TELL_S: Final = 5.0
"""How often progress is logged."""


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
    """

    broker: Broker
    clock: Clock
    task: str
    partition: int
    group: str
    given_up: Callable[[], bool]

    def bring_up(self, stores: Stores, kept: Kept) -> None:
        """
        Bring the stores up to the high watermarks of now: a last stable offset may hide changes that are committed.

        A broker that has lost the leadership may give an old high watermark. So the changelog must end where the record
        says.

        Args:
            stores: those of the task; what they have read before is kept.
            kept: what the newest record says of them.

        Raises:
            RetriableError: no progress, for example because of an open transaction; the changelog ends elsewhere; or
                the task was given up.
            ConfigError: there are entries that no record of this task knows.
            BrokerError: a changelog cannot be read.
        """
        expected = dict(kept)
        facts = self.broker.facts([one.spec.changelog for one in stores.caches]).topics
        places = {TopicPartition(one.spec.changelog, self.partition): one for one in stores.caches}
        for place, marks in self.broker.watermarks(list(places)).items():
            one = places[place]
            if one.topic_id != facts[place.topic].topic_id or one.offset > marks.high:  # another topic of this name
                one.layers.clear()
                one.offset, one.step, one.topic_id = marks.low, None, facts[place.topic].topic_id
            start = max(one.offset, marks.low)
            if start < marks.high:
                self._read(one, start, marks.high)
            one.offset = marks.high
            self._compare(one, expected.get(one.spec.name))

    def _compare(self, one: Cache, step: int | None) -> None:
        place = f"{one.spec.changelog}/{self.partition}"
        if step is None and one.step is not None:
            raise ConfigError(
                f"{place} has entries of step {one.step}, and the task has no record of the store {one.spec.name!r}. "
                "Delete the changelog, or give the store another name"
            )
        if one.step != step:
            raise RetriableError(
                f"{place} ends with step {one.step}, and the task's record says {step}: a broker gave an old end of "
                "the log, or the changelog has lost messages",
                code="STALE_END",
            )

    def _read(self, one: Cache, start: int, high: int) -> None:
        reader = self.broker.reader(self.group, prompt=True)
        try:
            reader.assign({TopicPartition(one.spec.changelog, self.partition): start})
            heard_s = told_s = self.clock.monotonic()
            while not self.given_up():
                read, ended = self._load(one, reader.poll(0.2), high)
                if ended:
                    return
                now = self.clock.monotonic()
                heard_s = now if read else heard_s
                if now - told_s >= TELL_S:
                    told_s = now
                    log.info("restoring", task=self.task, store=one.spec.name, read=one.offset - start, of=high - start)
                if now - heard_s >= PATIENCE_S:
                    raise RetriableError(
                        f"nothing new below {high} of {one.spec.changelog}/{self.partition} for {PATIENCE_S:g} s: an "
                        "open transaction hides it. `kafka-transactions.sh ... find-hanging` finds it, its `abort` "
                        "ends it",
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
            self._take(one, [(message.key() or b"", message.value()) for message in fit])
            if fit:
                read, one.offset = True, fit[-1].offset() + 1
            past = fetched.eof is not None and fetched.eof >= high
            ended = ended or past or bool(fetched.messages and fetched.messages[-1].offset() >= high - 1)
        return read, ended

    def _take(self, one: Cache, found: Sequence[tuple[bytes, bytes | None]]) -> None:
        layers, times = one.layers, [one.layers.unit] if isinstance(one.layers, Expiring) else []
        for key, _ in found:
            if key[:1] != layers.entry and key not in (MARK, *times):
                raise ConfigError(
                    f"{one.spec.changelog}/{self.partition} has entries with another kind of lifetime (ttl=, "
                    "ttl_messages= or none). Give the store another name"
                )
        layers.load((key[1:], value) for key, value in found if key[:1] == layers.entry)
        if isinstance(layers, Expiring):
            layers.load_time(max((int(value or b"0") for key, value in found if key == layers.unit), default=0))
        marks = [value for key, value in found if key == MARK]
        one.step = int(marks[-1] or b"-1") if marks else one.step

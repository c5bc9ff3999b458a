"""The log of a staged processor in a store of files (E5): one entry commits all files of a batch.

::

    <url>/_cues/<graph>.<processor>/0/<n, 20 digits>.json                          entry n, as for tasks (E3)
    <url>/<table>/<graph>.<processor>/<query>/<batch>/<attempt>/<name>.parquet     files of one attempt at a batch

Kafka decides which attempt at a batch counts (T2), and gives it a publication number. The entry of that number is put
before any part of the batch is published in Kafka (T3). So where a part is published, the entry is there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

from cues_kafka.errors import CodecError, RecoveryError, RetriableError
from cues_kafka.observe.log import get_logger
from cues_kafka.sinks.blobs.entries import ATTEMPT, CLAIM, TENDED, CommitLog, FileEntry, LogEnds, LogEntry, Sweep
from cues_kafka.sinks.blobs.marker import KnownStore
from cues_kafka.sinks.blobs.store import BlobStore
from cues_kafka.sinks.blobs.sweeping import MOST_SWEEPS, SWEPT_AGAIN_S
from cues_kafka.sinks.blobs.target import CLAIMS
from cues_kafka.sinks.standing import StandsAt, compared

log = get_logger("cues_kafka.sinks")


class BatchFiles(NamedTuple):
    """
    An announced batch, as the log gets it.

    Attributes:
        number: its publication number (T3).
        attempt: which attempt at the batch was announced.
        directory: in the store, of this attempt alone; all attempts at the batch are beside it.
        files: of the attempt.
        log_at: the log had the entry of this publication when the batch was prepared; -1: that is not known.
    """

    number: int
    attempt: str
    directory: str
    files: tuple[FileEntry, ...]
    log_at: int = -1


def attempt_directory(table: str, processor: str, query: str, batch: int, attempt: str) -> str:
    """The directory of one attempt at a batch. `processor` is `<graph>.<processor>`."""
    return f"{table}/{processor}/{query}/{batch}/{attempt}"


class BatchLog:
    """
    The log of one staged processor, for one driver. Another driver may append to it, which is then seen.

    Methods raise `RetriableError` where the store does not answer.

    Args:
        store: where it is.
        processor: `<graph>.<processor>`.
    """

    def __init__(self, store: BlobStore, processor: str) -> None:
        self._store = store
        self._processor = processor
        self._log = CommitLog(store, f"{processor}/0")
        self._known = KnownStore()
        self._tail: tuple[int, LogEntry] | None = None  # as far as this driver knows
        self._former: LogEntry | None = None
        self._settled = False

    def compare(self, asked: Callable[[], StandsAt | None]) -> None:
        """
        Compare the log with Kafka before a driver prepares its first batch.

        Behind a reset the log gets a claim, which refuses batches that were announced before it.

        Args:
            asked: where the processor stands in Kafka by now; None: it has no record.

        Raises:
            RecoveryError: the log is ahead of Kafka, or lacks what is published. One of the two was restored or lost.
        """
        kafka = asked()
        self._told(self._known.check, self._store)
        kafka, why = compared(asked, kafka, self._mismatch)
        if why:
            raise RecoveryError(why)
        if kafka and kafka.reset and kafka.number > self.top:
            self._append(CLAIM, BatchFiles(kafka.number, "", "", ()))

    def _stands(self, kafka: StandsAt | None) -> tuple[int, LogEntry] | None:
        """The newest entry. Behind a reset the claim says that nothing counts that is behind a gap."""
        found: LogEnds = self._told(self._log.standing)
        if found.gap is None or found.top is None:
            return found.newest
        number, top = found.top
        if not (kafka and kafka.reset and kafka.number > top.step):
            raise RecoveryError(
                f"{found.gap.lost}: {self._store.url(self._log.place(found.gap.number))} was lost. Put it back, from a "
                "backup or an older version of the bucket; or `cues-kafka reset MODULE:GRAPH PROCESSOR` begins again, "
                "after which rows repeat"
            )
        return number, replace(top, voids=(*top.voids, (found.gap.number, number)))

    def _mismatch(self, kafka: StandsAt | None) -> str:
        self._tail = self._stands(kafka)
        top, number = self.top, kafka.number if kafka else -1
        where = f"the log of commits of {self._processor} ends at publication {top}"
        if top > number:
            return (
                f"{where}, and its newest record in Kafka is at {number}: the backing topic was restored or recreated, "
                "or another cluster writes to this store. Restore the topic; or give the processor another name, or "
                "the table another store"
            )
        if kafka and kafka.published and not kafka.reset and top < number:
            if self._tail is None:
                where = f"the store has no log of commits of {self._processor}"
            return (
                f"{where}, and publication {number} is in Kafka: the store was restored or emptied, or the processor "
                "wrote to topics before. Restore the store; or `cues-kafka reset MODULE:GRAPH PROCESSOR` begins "
                "again, after which rows repeat"
            )
        return ""

    @property
    def top(self) -> int:
        """Publication of the newest entry that this driver knows; -1: it knows none."""
        return self._tail[1].step if self._tail else -1

    def commit(self, batch: BatchFiles) -> None:
        """
        Put the entry of an announced batch, unless it is there.

        Raises:
            RecoveryError: the log has a later publication, so this driver is an older one; or another attempt has this
                number; or the log lacks what it had when the batch was prepared.
        """
        self._append(ATTEMPT, batch)

    def _append(self, kind: str, batch: BatchFiles) -> None:
        self._told(self._known.glance, self._store)
        for _ in range(CLAIMS):
            tail = self._tail = self._tail or self._told(self._log.newest)
            if tail and tail[1].step >= batch.number:
                self._refuse_other(tail[1], batch.number, batch.attempt)
                if self._former is None and tail[0]:
                    self._former = self._told(self._log.entry, tail[0] - 1)
                return
            self._refuse_loss(batch)
            number, base = (tail[0] + 1, tail[1].step) if tail else (0, 0)
            named = (batch.number, 0, batch.attempt, batch.directory, batch.files)
            voids = tail[1].voids if tail else ()
            entry = LogEntry(kind, base, *named, sweeps=tuple(self._sweeps(batch)), voids=voids)
            if self._told(self._log.append, number, entry):
                self._former, self._tail = tail[1] if tail else None, (number, entry)
                return
            self._tail = None  # another driver has put one
        raise RetriableError(
            f"the files of {self._processor}: other processes put one entry after the other; does another driver run?",
            code="TARGET",
        )

    def _refuse_loss(self, batch: BatchFiles) -> None:
        if self.top < batch.log_at:
            where = f"ends at publication {self.top}" if self._tail else "is gone"
            raise RecoveryError(
                f"the log of commits of {self._processor} {where}, and had publication {batch.log_at} when publication "
                f"{batch.number} was prepared: the store was restored or emptied. Restore the store; or `cues-kafka "
                "reset MODULE:GRAPH PROCESSOR` begins again, after which rows repeat"
            )

    def _refuse_other(self, found: LogEntry, number: int, attempt: str) -> None:
        if found.step > number:
            raise RecoveryError(
                f"publication {number} of {self._processor} was to be committed in the store, and {found.step} is "
                "there already: stop the older driver of the two"
            )
        if found.attempt != attempt:
            raise RecoveryError(
                f"publication {number} of {self._processor} is attempt {found.attempt or 'none'} in the store, and "
                f"{attempt or 'none'} in Kafka: another cluster writes to this store, or the backing topic was "
                "restored. Give the processor another name, or the table another store"
            )

    def missing(self, batch: BatchFiles) -> list[str]:
        """The files of a batch that are not in the store, or have another size there, by their paths."""
        there = self._told(self._store.sizes, batch.directory) if batch.files else {}
        return sorted(one.path for one in batch.files if there.get(one.path) != one.bytes)

    # Cleaning up

    def clean(self) -> None:
        """
        Delete what lies beside the files of the newest batch and of the one before it.

        These batches are announced, so no other attempt at them can count any more. Now and then, keep the log short.
        """
        try:
            tail = self._tail
            if tail is None:
                return
            for entry in (tail[1], self._former):
                if entry is not None and entry.kind == ATTEMPT:
                    self._delete(_siblings(entry.directory), {one.path for one in entry.files})
            self._settled = True
            if (tail[0] + 1) % TENDED == 0:
                self._log.tend(tail[0])
        except (RetriableError, CodecError) as error:
            log.warning("not cleaned up", processor=self._processor, why=str(error))

    def drop(self, directory: str) -> None:
        """Delete an attempt that lost or failed. What cannot be deleted is logged."""
        try:
            self._delete(directory)
        except RetriableError as error:
            log.warning("not cleaned up", processor=self._processor, why=str(error))

    def _sweeps(self, batch: BatchFiles) -> Iterator[Sweep]:
        """
        The directories that are to be looked at again; those that are due are looked at now.

        A driver that died may have left processes that still write. They write at the first batch of its successor.
        """
        for one in self._tail[1].sweeps[-MOST_SWEEPS:] if self._tail else ():
            if one.due > time.time() or not self._tried(one):
                yield one
        if batch.directory and not self._settled:
            yield Sweep(_siblings(batch.directory), batch.directory, time.time() + SWEPT_AGAIN_S)

    def _tried(self, sweep: Sweep) -> bool:
        try:
            self._delete(sweep.path, keep=sweep.keep)
        except RetriableError as error:
            log.warning("not cleaned up", processor=self._processor, why=str(error))
            return False
        return True

    def _delete(self, directory: str, kept: Collection[str] = (), *, keep: str = "") -> None:
        for path in self._store.below(directory):
            if path not in kept and not (keep and path.startswith(f"{keep}/")):
                self._store.delete(path)

    def _told(self, ask: Callable[..., Any], *given: Any) -> Any:
        try:
            return ask(*given)
        except RetriableError as error:
            text = f"the files of {self._processor}: {error}"
            raise RetriableError(text, code="TARGET", remedy=error.remedy) from error


def _siblings(directory: str) -> str:
    """The directory of all attempts at a batch, by that of one of them."""
    return directory.rpartition("/")[0]

"""DataFrames whose plan shuffles or keeps state: prepared once, published once, however often Spark computes a batch.

A micro-batch has three steps. Job 1 computes it, with all its state, into files (T1). The driver announces one attempt
in the backing topic, or finds that one was announced before (T2). Job 2 publishes the announced attempt, each part in
one transaction (T3). Only then does Spark hear that the batch is done (T4). After a crash in between, the announcement
says which files count. So the function may give other rows when it is called again.

Rows of a processor with `into=` go to a `FrameTarget` instead. The driver commits those of the announced attempt there,
before it publishes the first part (E5).
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any, Final
from uuid import uuid4

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from cues_kafka.core.records import Extent, Staged
from cues_kafka.core.staged import Announce
from cues_kafka.errors import ConfigError, RecoveryError
from cues_kafka.graph.names import transactional_id
from cues_kafka.observe.log import get_logger
from cues_kafka.on_spark.in_arrow import map_in_arrow
from cues_kafka.on_spark.query.jobs import AT_ONCE, RESULT, BatchFailed, run_job
from cues_kafka.on_spark.query.offset_log import query_id
from cues_kafka.on_spark.query.outcome import Outcome, brief, outcome_of_row, raise_stops
from cues_kafka.on_spark.query.run import Tell
from cues_kafka.on_spark.query.slots import incarnation
from cues_kafka.on_spark.staged.files import SMALL_BYTES, Staging
from cues_kafka.on_spark.staged.manifest import Chunk, Manifest
from cues_kafka.on_spark.staged.publish import (
    PublishFiles,
    PublishRows,
    StagedWork,
    newest_batch,
    published,
    stands_at,
)
from cues_kafka.on_spark.staged.undecoded import Observed, Search

log = get_logger("cues_kafka.spark")


class StagedBatch:
    """The function that Spark calls for each micro-batch: prepare, announce, publish."""

    def __init__(
        self,
        work: StagedWork,
        extents: Callable[[Any, int], tuple[Extent, ...]],
        checkpoint: str,
        *,
        tell: Tell | None = None,
        done: Callable[[Staged], None] = lambda _: None,
        undecided: Callable[[Staged], None] = lambda _: None,
        observed: Observed = dict,
        small_bytes: int = SMALL_BYTES,
    ) -> None:
        """
        Args:
            work: what its slots do.
            extents: what a batch takes of each source.
            checkpoint: the query's directory.
            tell: gets the outcomes of slots.
            done: gets each batch whose parts are all published.
            undecided: gets a batch whose announcement failed; only entering slot 0 shows whether it is announced.
            observed: what Spark has counted of messages that cannot be decoded.
            small_bytes: see `Staging`.
        """
        self._work = work
        self._extents = extents
        self._checkpoint = checkpoint
        self._tell = tell
        self._done = done
        self._undecided = undecided
        self._observed = observed
        self._small_bytes = small_bytes
        self._settled = -1
        self._small_in_a_row = int(work.into.small)
        self._needed_in_a_row = 1  # small batches after which the next one is expected to be small
        self._commits = work.into.open()

    def __call__(self, frame: Any, number: int) -> None:
        """Give one micro-batch a name for this attempt, and write it."""
        session = frame.sparkSession
        if not self._work.query:
            self._work = replace(self._work, query=query_id(session, self._checkpoint))
        mine = Staged(
            query=self._work.query,
            batch=number,
            attempt=uuid4().hex,
            checksum=b"",
            parts=self._work.parts,
            extents=self._extents(session, number),
        )
        self.write(frame, mine, prepared=self._settled < 0 and self._work.stateless and self._is_announced(mine))

    def _is_announced(self, mine: Staged) -> bool:
        """Whether a predecessor has announced this batch. Without state its rows, which may be gone, are not needed."""
        newest = newest_batch(self._work, self._work.broker)
        return newest is not None and (newest.query, newest.batch) == (mine.query, mine.batch)

    def write(self, frame: Any, mine: Staged, *, prepared: bool = False) -> list[Outcome]:
        """
        Prepare, announce and publish.

        `mine` names this attempt at the batch; `prepared`: it is announced already, and Spark keeps no state that needs
        its rows again.

        Raises:
            SlotsStopped: a slot refuses to go on; Spark runs the batch again.
        """
        times_s = [time.monotonic()]
        if self._settled < 0:
            self._commits.compare(lambda: stands_at(self._work, self._work.broker))
        self._expect()
        staging = Staging(frame.sparkSession, stage_of(self._checkpoint), small_bytes=self._small_bytes)
        manifest = None if prepared else self._stage(staging, frame, mine)
        times_s.append(time.monotonic())
        # Staged in full, then announced, then published (T1 to T3): another driver may publish it once it is announced.
        announced = self._announce(replace(mine, checksum=manifest.checksum) if manifest else mine)
        times_s.append(time.monotonic())
        if manifest is None or announced.attempt != mine.attempt:
            self.drop(staging, mine)
            manifest = None
        manifest, outcomes = self._publish_once(staging, announced, manifest)
        if self._tell:
            self._tell(outcomes)
        raise_stops(outcomes, mine.batch)
        # Behind the outcomes: a slot that refuses has left parts unpublished, and their files are still needed.
        self._settled = announced.number
        self._learn(staging, manifest)
        times_s.append(time.monotonic())
        tidy(staging.clean, announced)
        self._commits.clean()
        self._log(staging, announced, manifest, times_s)
        self._done(announced)
        return outcomes

    def _publish_once(
        self, staging: Staging, announced: Staged, manifest: Manifest | None
    ) -> tuple[Manifest | None, list[Outcome]]:
        """Publish what is announced, by its manifest if this process staged it; return the manifest that was needed."""
        if manifest is None and (outcomes := published(self._work, announced)) is not None:
            return None, outcomes
        try:
            staged_here = manifest is not None
            manifest = manifest or staging.read(announced.batch, announced.attempt, announced.checksum)
            self._commit(announced, manifest, staged_here=staged_here)
            return manifest, self._publish(staging, announced, manifest)
        except (BatchFailed, RecoveryError):
            self._refuse_older(announced)
            raise

    def _commit(self, announced: Staged, manifest: Manifest, *, staged_here: bool) -> None:
        """E5: commit the announced attempt's rows to the target."""
        self._commits.commit(announced, manifest, staged_here=staged_here)

    def drop(self, staging: Staging, mine: Staged) -> None:
        """Delete what an attempt that lost or failed has staged, and has written to the target."""
        tidy(staging.drop, mine)
        self._commits.drop(mine)

    def _log(self, staging: Staging, announced: Staged, manifest: Manifest | None, times_s: list[float]) -> None:
        staged_s, announced_s, published_s = (round(end - start, 3) for start, end in pairwise(times_s))
        log.info(
            "published",
            processor=self._work.processor,
            batch=announced.batch,
            attempt=announced.attempt,
            rows=manifest.rows + manifest.data_rows if manifest else 0,
            bytes=manifest.bytes if manifest else 0,
            staged_s=staged_s,
            announced_s=announced_s,
            published_s=published_s,
            disk_bytes=disk_bytes(staging),
        )
        if manifest and (refused := sum(chunk.errors for chunk in manifest.chunks)):
            where = {"processor": self._work.processor, "batch": announced.batch, "topic": manifest.errors}
            log.warning("error messages", rows=refused, **where)

    @property
    def _expects_small(self) -> bool:
        return self._small_in_a_row >= self._needed_in_a_row

    def _learn(self, staging: Staging, manifest: Manifest | None) -> None:
        """Expect a small batch only after more small ones in a row, so that few batches are computed twice."""
        if staging.computed_twice:
            self._needed_in_a_row *= 4
        if manifest is not None and manifest.rows:
            self._small_in_a_row = self._small_in_a_row + 1 if staging.is_small(manifest) else 0

    def _stage(self, staging: Staging, frame: Any, mine: Staged) -> Manifest:
        """T1: prepare the batch. The files of a failed attempt are deleted now, of a killed one by `Staging.clean`."""
        work = self._work
        try:
            pack = work.into.packing(work.parts, work.refusing(mine), mine)
            small, log_at = self._expects_small, self._commits.top
            search = Search(work, mine, self._observed)
            manifest = staging.write(
                *(frame, mine.batch, mine.attempt, pack, work.target),
                small=small,
                log_at=log_at,
                more=partial(search.chunks, frame.sparkSession),
            )
            search.check(manifest)
            check_parts(manifest, work.options.transaction_timeout_s)
            self._commits.prepared(mine, manifest)
            return manifest
        except BaseException as failed:
            self.drop(staging, mine)
            if isinstance(failed, Py4JError | PySparkException):
                raise BatchFailed(f"batch {mine.batch} could not be prepared: {innermost(str(failed))}") from None
            raise

    def _expect(self) -> None:
        """Let slots connect while job 1 runs, because connecting takes longer than publishing a small part."""
        work = self._work
        parts = [0, *(range(work.parts) if self._expects_small else ())][: AT_ONCE + 1]
        ids = [transactional_id(work.graph, work.processor, part) for part in parts]
        work.broker.expect(ids, batch_bytes=work.target.batch_bytes)

    def _announce(self, mine: Staged) -> Staged:
        """T2: the attempt that is announced for this batch, this one or an earlier one."""
        role = Announce(mine, self._work.stateless, self._settled)
        try:
            slot = self._work.slot(0, role, incarnation(mine.query, mine.batch, -1, 0))
            raise_stops([slot.recover()], mine.batch)
        except BaseException:
            self._undecided(mine)  # the announcement may be committed all the same: keep its files
            raise
        record = slot.task.record
        assert record
        assert record.staged
        return record.staged

    def _refuse_older(self, batch: Staged) -> None:
        """Stop if another driver announced a newer batch: it deleted this one's files, which must not be restored."""
        newest = newest_batch(self._work, self._work.broker)
        if newest and newest.number > batch.number:
            raise RecoveryError(
                f"batch {batch.batch} was asked for, but batch {newest.batch} is announced already: stop the older "
                "driver of the two"
            )

    def _publish(self, staging: Staging, batch: Staged, manifest: Manifest) -> list[Outcome]:
        """T3: publish parts with rows by one job, or from the driver if they are small; the others from the driver."""
        errors = manifest.errors if any(chunk.errors for chunk in manifest.chunks) else ""
        target = self._work.target.announced(manifest.outputs, errors)
        work = replace(self._work, target=target, in_files=manifest.data_rows, above=manifest.log_at)
        chunks = {part: own for part in range(batch.parts) if (own := manifest.part(part))}
        kept, outcomes = staging.kept, []
        if chunks and kept is None:
            staging.check(manifest)
            outcomes = self._by_spark(staging, work, batch, manifest, chunks)
            if any(outcome.kind for outcome in outcomes):
                return outcomes  # the Spark task stopped at the part that refuses
            if missing := set(chunks) - {outcome.partition for outcome in outcomes}:
                raise ConfigError(f"parts {sorted(missing)} of batch {batch.batch} left no rows in the staged files")

        def from_here(part: int) -> Outcome:
            [outcome] = work.publish(batch, chunks, lambda part: iter((kept or {}).get(part, ())), [part], 0)
            return outcome

        done = {outcome.partition for outcome in outcomes}
        with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="publish") as pool:
            return [*outcomes, *pool.map(from_here, [part for part in range(batch.parts) if part not in done])]

    def _by_spark(
        self,
        staging: Staging,
        work: StagedWork,
        batch: Staged,
        manifest: Manifest,
        chunks: Mapping[int, tuple[Chunk, ...]],
    ) -> list[Outcome]:
        """Publish with as many Spark tasks as run at once, or with one for each part if Spark brings the files."""
        files = staging.files(manifest)
        if files is None:
            frame = staging.chunks(manifest).select("part", "row", "payload")
            sorted_ = frame.repartitionById(batch.parts, "part").sortWithinPartitions("row")
            rows = run_job(map_in_arrow(sorted_, PublishRows(work, batch, chunks), RESULT).collect)
            return [outcome_of_row(json.loads(row[0])) for row in rows]
        context = staging.session.sparkContext
        tasks = min(len(chunks), max(context.defaultParallelism, -(-len(chunks) // PARTS_OF_A_TASK)))
        groups = [list(chunks)[task::tasks] for task in range(tasks)]
        publish = PublishFiles(work, batch, chunks, files)
        return run_job(lambda: context.parallelize(groups, tasks).flatMap(publish).collect())


PARTS_OF_A_TASK: Final = 4
"""Parts that one Spark task publishes at most, because they stay connected from its start to its end."""

ROWS_PER_S: Final = 200_000
BYTES_PER_S: Final = 100_000_000
"""Rates that no part has reached: at most half of these rows and a third of these staged bytes were measured."""

LONGEST_S: Final = 450.0
"""Half of the longest time-out that brokers allow, so that an announced batch goes out at half the rate, too."""


def check_parts(manifest: Manifest, timeout_s: float) -> None:
    """Refuse a part that is too large for its transaction even at the best rate, before it is announced."""
    rows, size = manifest.largest
    time_s = min(timeout_s, LONGEST_S)
    if rows > time_s * ROWS_PER_S or size > time_s * BYTES_PER_S:
        raise ConfigError(
            f"a part of batch {manifest.batch} has {rows:,} rows, {size:,} bytes: more than a transaction of "
            f"{timeout_s:g} s can take. Raise transaction_timeout_s, which brokers allow up to 900; spread the rows "
            "over more Spark tasks, by a repartition() at the end, and more partitions; or take less at once: "
            "max_offsets_per_trigger"
        )


_CAUSED: Final = re.compile(r"^Caused by: (?:[\w.$]+\.)?(\w+: .+)$", re.MULTILINE)


def innermost(text: str) -> str:
    """Why a job failed: the exception of Python in it, else the last cause that Java names, such as a full disk."""
    causes = [] if "Traceback (most recent call last)" in text else _CAUSED.findall(text)
    return str(causes[-1])[:1_000] if causes else brief(text)


def tidy(delete: Callable[[int, str], None], batch: Staged) -> None:
    """Delete files that are not needed. A failure is logged and does not stop the query."""
    try:
        delete(batch.batch, batch.attempt)
    except (OSError, Py4JError, PySparkException) as error:
        log.warning("staged files left", batch=batch.batch, attempt=batch.attempt, error=innermost(str(error)))


def disk_bytes(staging: Staging) -> int:
    """Bytes that a query has on disk: its last batch, and what could not be deleted; -1: not known."""
    try:
        return staging.size
    except (OSError, Py4JError, PySparkException):
        return -1


def stage_of(checkpoint: str) -> str:
    """The directory of a query's staged files."""
    return f"{checkpoint}/stage"

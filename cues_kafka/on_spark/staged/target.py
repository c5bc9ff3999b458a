"""The port of what `into=` of a `DataFrameProcessor` names (E5): where the rows of a batch are committed.

A batch has five moments, and a target takes part in each:

1. **Plan**: a `Maker` looks whether the columns of the DataFrame fit, and makes the `FrameTarget`.
2. **Prepare** (T1): Spark's tasks call `FrameTarget.packing`. They write files that no reader sees, and name them in
   chunks (`chunks.reference`); or they put the rows into chunks. Rows that do not fit become chunks of error messages.
3. **Announce** (T2): the manifest names these files and chunks, and how far the target was (`FrameCommits.top`).
4. **Commit**: for a whole batch the driver, `FrameCommits.commit`; or each part alone, `PartTarget.commit_part` (E7).
5. **Publish** (T3): each part puts its error messages and its record into Kafka, behind the commit.

A driver may die between any two, and an older driver may wake up at any. The **publication number** of the batch
(`Staged.number`), which only grows, tells what is done. So a target keeps the number of its newest commit, and changes
it in one step with the rows. It commits number p once: only if it keeps a smaller one.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeAlias

import pyarrow as pa

from cues_kafka.core.records import Staged
from cues_kafka.errors import RecoveryError
from cues_kafka.on_spark.staged.chunks import Pack, Packing
from cues_kafka.on_spark.staged.manifest import Manifest
from cues_kafka.sinks.standing import StandsAt

if TYPE_CHECKING:
    from cues_kafka.on_spark.staged.error_rows import Refusing


class FrameCommits(ABC):
    """
    What the driver does for a target: one object for each start of a query, used by one thread.

    A method raises `RetriableError` where the target does not answer: the query ends, and is started again.
    """

    @abstractmethod
    def compare(self, asked: Callable[[], StandsAt | None]) -> None:
        """
        Compare the target with Kafka before this driver prepares its first batch.

        The number that the target keeps must not be greater than Kafka's. If Kafka's record is published, it must be
        the same one. Another driver may go on meanwhile, so ask again before you refuse. Behind a reset the target
        keeps the number of the reset from now on, so that a batch that was announced before it is not committed.

        Args:
            asked: where the processor stands in Kafka by now; None: it has no record.

        Raises:
            RecoveryError: one of the two was restored or lost. The text has the remedy.
        """

    @property
    @abstractmethod
    def top(self) -> int:
        """The number of the newest commit that this driver knows; -1: it knows none. The manifest has it: `log_at`."""

    @abstractmethod
    def prepared(self, mine: Staged, manifest: Manifest) -> None:
        """
        Look for what this driver's Spark tasks have just written, before it is announced.

        Raises:
            ConfigError: it is not there, because driver and executors do not share the place.
        """

    @abstractmethod
    def commit(self, announced: Staged, manifest: Manifest, *, staged_here: bool) -> None:
        """
        Commit the rows of an announced attempt, before any of its parts is published.

        Compare the number that the target keeps with that of the batch, and commit over what was compared: of two
        drivers that do it at once, one wins, and the other one compares again.

        - smaller, or none: commit the rows, the number and the attempt in one step;
        - the same, and the same attempt: return, for the batch is committed;
        - the same, and another attempt: raise, for another cluster writes there, or Kafka was restored;
        - greater: raise, for this is the older driver of two.

        A target whose parts commit for themselves does nothing here but refuse what it can see early.

        Args:
            announced: the batch.
            manifest: of the announced attempt.
            staged_here: this driver has just prepared it; else what it names may be gone, and must be looked for.

        Raises:
            RecoveryError: see above; or the target has lost the commit `manifest.log_at`, or something of this batch.
        """

    @abstractmethod
    def clean(self) -> None:
        """Delete what lies beside the newest batches, behind each batch. It logs what fails, and does not raise."""

    @abstractmethod
    def drop(self, mine: Staged) -> None:
        """Delete an attempt that lost or failed. It logs what fails, and does not raise."""


class FrameTarget(ABC):
    """
    Where the rows of a staged processor go. It is pickled for Spark's tasks, so a frozen dataclass serves best.

    Attributes:
        small: expect from the first batch that what comes to the driver is small: rows are not in chunks.
    """

    small: ClassVar[bool] = True

    @abstractmethod
    def packing(self, parts: int, refusing: Refusing, mine: Staged) -> Packing:
        """
        Make the last function of job 1, which Spark's tasks call.

        Spark may run a task several times, also side by side, and only one of them is named in the manifest. So names
        of files have a random part. For a `PartTarget` a chunk has rows, of any columns, or error messages, never both.

        Args:
            parts: of a batch.
            refusing: makes error messages of rows that do not fit.
            mine: the attempt.
        """

    @abstractmethod
    def open(self) -> FrameCommits:
        """Make the driver's side. It connects when it is first asked."""


class PartTarget(FrameTarget):
    """A target to which each part commits its rows, which are in chunks (E7)."""

    @abstractmethod
    def commit_part(self, due: DuePart, rows: Iterable[tuple[int, pa.Table]]) -> Sequence[pa.Table]:
        """
        Commit the rows of one part of an announced batch, if the target keeps a smaller number for the part.

        It is called by the owner of the part's slot, which has seen that the part is not published; and again if the
        publication fails, or by an owner that was frozen. With the same number it returns, and with a greater one it
        raises a `RecoveryError`: stop the older driver of the two.

        Args:
            due: the part.
            rows: the announced chunks of the part, in their order, each behind the number of its first row. They can be
                read repeatedly.

        Returns:
            Error messages, with the columns `chunks.MESSAGES`, of rows that the target refuses. A second call for the
            same number returns the same ones, so the target keeps them with the rows.
        """


@dataclass(frozen=True, slots=True)
class DuePart:
    """
    A part of an announced batch that is to be committed.

    Attributes:
        batch: the batch; `batch.part` is the part.
        above: the target had this number when the batch was prepared (`Manifest.log_at`); -1: that is not known.
        refusing: makes error messages.
    """

    batch: Staged
    above: int
    refusing: Refusing


Maker: TypeAlias = Callable[[Any, Any, str, str], tuple[Any, FrameTarget]]
"""
Makes a target of a declaration: (DataFrame, what `into=` names, how texts name the processor, `<graph>.<processor>`).

It returns the columns that go to the target, and the target; a `ConfigError` says what does not fit. It is called where
a graph is planned, too, so it writes nothing.
"""


def refuse_files(announced: Staged, manifest: Manifest) -> None:
    """
    Refuse a batch that was announced with files, where the target has none.

    Raises:
        RecoveryError: it was.
    """
    if manifest.data:
        raise RecoveryError(
            f"batch {announced.batch} was announced for files of table {manifest.data[0].table!r}, and is not "
            "published yet. Declare into= as it was until the batch is published"
        )


class OutputTopics(FrameTarget):
    """The output topics, where there is no `into=`: parts publish what is in chunks, and nothing else is committed."""

    small = False

    def packing(self, parts: int, refusing: Refusing, mine: Staged) -> Packing:
        del mine
        return Pack(parts, refusing, int(time.time() * 1000))

    def open(self) -> FrameCommits:
        return _NoCommits()


class _NoCommits(FrameCommits):
    def compare(self, asked: Callable[[], StandsAt | None]) -> None: ...

    @property
    def top(self) -> int:
        return -1

    def prepared(self, mine: Staged, manifest: Manifest) -> None: ...

    def commit(self, announced: Staged, manifest: Manifest, *, staged_here: bool) -> None:
        del staged_here
        refuse_files(announced, manifest)

    def clean(self) -> None: ...

    def drop(self, mine: Staged) -> None: ...


TOPICS: Final = OutputTopics()

"""The commits of a staged processor of Spark to a table of Delta Lake (E6): one for each batch, made by the driver.

Kafka decides which attempt at a batch counts (T2), and gives it a publication number. The commit adds the files of this
attempt, and sets two application transactions: `<graph>.<processor>` has the number as its version, and that with the
suffix `.mark` a number that is made of the attempt's name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from cues_kafka.errors import ConfigError, RecoveryError, RetriableError
from cues_kafka.graph.names import quoted
from cues_kafka.graph.targets import TargetMoved
from cues_kafka.observe.log import get_logger
from cues_kafka.sinks.delta.checks import make_table, widen_table
from cues_kafka.sinks.delta.columns import Declared
from cues_kafka.sinks.delta.table import OpenedTable, TableChanged, TableFile
from cues_kafka.sinks.delta.transactions import mark_of
from cues_kafka.sinks.standing import StandsAt, compared

log = get_logger("cues_kafka.sinks")

TRIES: Final = 10
"""How often a driver compares again after another one has committed."""

RESET: Final = "`cues-kafka reset MODULE:GRAPH PROCESSOR` begins again, after which rows repeat"


class DeltaBatch(NamedTuple):
    """
    An announced batch, as the table gets it.

    Attributes:
        number: its publication number (T3).
        batch: its number in the query.
        attempt: which attempt at the batch was announced.
        files: of the attempt.
        known: the table had the commit of this publication when the batch was prepared; -1: that is not known.
        elsewhere: names of other tables that files were written for.
    """

    number: int
    batch: int
    attempt: str
    files: tuple[TableFile, ...] = ()
    known: int = -1
    elsewhere: tuple[str, ...] = ()


class BatchCommits:
    """
    The commits of one staged processor, by one driver. Another driver may commit meanwhile, which is then seen.

    Methods raise `RetriableError` where the table is away or does not answer.
    """

    def __init__(self, declared: Declared, processor: str) -> None:
        """
        Args:
            declared: the table.
            processor: `<graph>.<processor>`.
        """
        self._declared, self._processor = declared, processor
        self._table = OpenedTable(declared.url(), declared.options)
        self._mark: int | None = None
        self.top = -1
        """Publication of the newest commit that this driver knows; -1: it knows none."""

    def compare(self, asked: Callable[[], StandsAt | None]) -> None:
        """
        Make the table where the processor begins, also behind a reset, and add columns; then compare it with Kafka.

        Behind a reset the table gets the reset's number, which refuses batches that were announced before it.

        Args:
            asked: where the processor stands in Kafka by now; None: it has no record.

        Raises:
            ConfigError: the table does not fit, or its store lets a second writer win.
            RecoveryError: the table is ahead of Kafka, or lacks what is published. One of the two was restored or lost.
        """
        kafka = asked()
        begins = kafka is None or kafka.reset
        make_table(self._declared, first=True) if begins else widen_table(self._declared)
        kafka, why = compared(asked, kafka, self._mismatch)
        if why:
            raise RecoveryError(why)
        if kafka and kafka.reset and kafka.number > self.top:
            self.commit(DeltaBatch(kafka.number, -1, ""), look=False)

    def _mismatch(self, kafka: StandsAt | None) -> str:
        self._look()
        number = kafka.number if kafka else -1
        where = f"the newest commit of {self._processor} in the table is publication {self.top}"
        if self.top > number:
            return (
                f"{where}, and its newest record in Kafka is at {number}: the backing topic was restored or recreated, "
                "or another cluster writes to this table. Restore the topic; or give the processor another name"
            )
        if kafka and kafka.published and not kafka.reset and self.top < number:
            if self.top < 0:
                where = f"the table has no commit of {self._processor}"
            return (
                f"{where}, and publication {number} is in Kafka: the table was restored or recreated, or the processor "
                f"wrote elsewhere before. Restore the table; or {RESET}"
            )
        return ""

    def commit(self, batch: DeltaBatch, *, look: bool) -> None:
        """
        Commit an announced batch, unless it is committed.

        Args:
            batch: the batch.
            look: look for its files first.

        Raises:
            RecoveryError: the table has a later publication, so this driver is an older one; or another attempt has
                this number; or the table lacks what it had when the batch was prepared, or does not fit.
        """
        apps = {self._processor: batch.number, self._marks: mark_of(batch.attempt.encode())}
        for _ in range(TRIES):
            self._look()
            if self.top >= batch.number:
                self._refuse_other(batch, apps[self._marks])
                return
            self._refuse_loss(batch, look=look)
            try:
                self._table.append((), apps, batch.files)
            except (TargetMoved, TableChanged):  # another driver has committed, or another program has changed columns
                continue
            self.top, self._mark = batch.number, apps[self._marks]
            return
        raise RetriableError(
            f"the table of {self._processor}: other processes put one commit after the other; does another driver run?",
            code="TARGET",
        )

    def _look(self) -> None:
        """
        Look at the newest version: a commit is made over the version in which the number was compared.

        Raises:
            RecoveryError: rows do not fit the table any more.
        """
        self._table.renew()
        shape = self._table.shape()
        for wrong in (*shape.unfit(self._declared, running=True), *shape.unchecked()):
            raise RecoveryError(wrong.why, remedy=wrong.remedy)
        found = self._table.placed(self._processor)
        self.top, self._mark = -1 if found is None else found, self._table.placed(self._marks)

    def _refuse_other(self, batch: DeltaBatch, mark: int) -> None:
        if self.top > batch.number:
            raise RecoveryError(
                f"publication {batch.number} of {self._processor} was to be committed to the table, and {self.top} is "
                "there already: stop the older driver of the two"
            )
        if self._mark != mark:
            raise RecoveryError(
                f"publication {batch.number} of {self._processor} is another attempt in the table than in Kafka: "
                "another cluster writes to this table, or the backing topic was restored. Give the processor another "
                "name, or write to another table"
            )

    def _refuse_loss(self, batch: DeltaBatch, *, look: bool) -> None:
        if batch.elsewhere:
            raise RecoveryError(
                f"batch {batch.batch} was announced for files of table {quoted(batch.elsewhere)}, and is not published "
                "yet. Declare the table as it was until the batch is published"
            )
        if self.top < batch.known:
            where = f"ends at publication {self.top}" if self.top >= 0 else "has no commit of it"
            raise RecoveryError(
                f"the table of {self._processor} {where}, and had publication {batch.known} when publication "
                f"{batch.number} was prepared: it was restored or recreated. Restore the table; or {RESET}"
            )
        if look and (missing := self._table.missing(batch.files)):
            raise RecoveryError(
                f"{missing[0]} is not in the directory of the table as it was written: batch {batch.batch} was "
                "announced with it, and is not published yet. Declare the table as it was, or restore the file (vacuum "
                f"deletes it after its retention time); or {RESET}"
            )

    def check_shared(self, batch: DeltaBatch) -> None:
        """
        Look for files that this driver's Spark tasks have written, if the table is in a directory.

        Raises:
            ConfigError: one is not there.
        """
        if self._table.in_directory and (missing := self._table.missing(batch.files)):
            raise ConfigError(
                f"the driver does not find {missing[0]} in the directory of the table as a Spark task wrote it: the "
                "driver and the executors do not share that directory. Give an address that all of them see"
            )

    def drop(self, files: Iterable[TableFile]) -> None:
        """Delete files that no commit will name. What cannot be deleted is logged; `vacuum` deletes it later."""
        try:
            for one in files:
                self._table.delete(one.path)
        except RetriableError as error:
            log.warning("not cleaned up", processor=self._processor, why=str(error))

    @property
    def _marks(self) -> str:
        return f"{self._processor}.mark"

"""
The transactions of one task on a table of Delta Lake (E6).

The commit of E1 is one commit of the table's log. It adds the rows, and two **application transactions**: `<app>` has
the task's step as its version, and `<app>.mark` a number that is made of the bytes that are kept for the task. These
bytes are an object beside the table, whose name is that number. It is put before the commit and never changed, so a
process that reads the number finds the bytes.

The comparison has two halves. What is kept is compared with a version of the log, and the commit is made over this very
version: Delta refuses it if another commit for the same application came between. Delta alone would let a writer pass
that reads the newest version first.
"""

from __future__ import annotations

from contextlib import suppress
from hashlib import blake2b
from typing import Any, Final

from cues_kafka.errors import RecoveryError, RetriableError
from cues_kafka.graph.targets import TargetMoved, TaskName, Transactions
from cues_kafka.sinks.delta.columns import Declared
from cues_kafka.sinks.delta.commit_turns import turn_at
from cues_kafka.sinks.delta.table import BESIDE, OpenedTable, TableChanged
from cues_kafka.sinks.kept import Kept

LOOKS: Final = 3
"""How often the bytes are looked for again, whose number was read: a commit in between deletes them."""


class DeltaTransactions(Transactions):
    """The transactions of one task, on a view of the table that is never opened again."""

    def __init__(self, table: OpenedTable, app: str, declared: Declared) -> None:
        """
        Args:
            table: the table.
            app: id of the task's application transaction.
            declared: what is written to it.
        """
        self._table, self._app, self._declared = table, app, declared
        self._rows: list[Any] = []
        self._shape: object = None
        self._known: tuple[int, int | None] | None = None  # a version, and the mark in it

    def ask(self) -> bytes | None:
        mark = None
        for _ in range(LOOKS):
            self._table.renew()
            self._fit()
            mark = self._table.placed(self._marks)
            if mark is None:
                return None
            if (data := self._table.read(self._path(mark))) is not None:
                if mark_of(data) != mark:
                    raise RecoveryError(f"{self._path(mark)} of the table was changed", remedy=_PUT_BACK)
                return data
        raise RecoveryError(f"{self._path(mark or 0)} of the table is missing", remedy=_PUT_BACK)

    def begin(self) -> None:
        self._rows = []

    def write(self, item: Any) -> None:
        self._rows.append(item)

    def commit(self, kept: bytes, over: bytes | None) -> None:
        self._commit(kept, over)
        if over is not None:
            # A reader that has read the number before may miss it, and looks again. What is left here is deleted by
            # the next owner of the task.
            with suppress(RetriableError):
                self._table.delete(self._path(mark_of(over)))

    def fence(self, kept: bytes, over: bytes | None) -> None:
        """
        See `Transactions`. What lies there was put over `over` or earlier, so none of it can be committed behind this.

        It is deleted when this commit is made.
        """
        left = self._table.names(self._directory)
        self.begin()
        self._commit(kept, over)
        with suppress(RetriableError):
            for name in left:
                self._table.delete(f"{self._directory}/{name}")

    def close(self) -> None:
        self._rows = []

    def _commit(self, kept: bytes, over: bytes | None) -> None:
        mark, rows, self._rows = mark_of(kept), self._rows, []
        with turn_at(self._table.url):
            self._table.look()
            self._compare(over)
            self._table.put(self._path(mark), kept)
            apps = {self._app: Kept.read(kept).held.step, self._marks: mark}
            try:
                self._table.append(rows, apps)
            except TableChanged:
                self._table.renew()
                self._compare(over)
                self._table.append(rows, apps)
            # Rows bring the view to their own version, and a fence leaves it at the one before.
            self._known = (self._table.version, mark) if rows else None

    def _compare(self, over: bytes | None) -> None:
        """
        Compare what is kept with the version that was looked at, and whether rows fit it.

        Raises:
            TargetMoved: something else is kept than `over`.
            RecoveryError: rows do not fit.
        """
        if self._known is None or self._known[0] != self._table.version:  # else it is this process's own commit
            self._fit()
            self._known = self._table.version, self._table.placed(self._marks)
        if self._known[1] != (None if over is None else mark_of(over)):
            raise TargetMoved("the table has another mark of the task")

    def _fit(self) -> None:
        """
        Look whether rows fit the table.

        Raises:
            RecoveryError: they do not.
        """
        shape = self._table.shape()
        if shape == self._shape:
            return
        for wrong in shape.unfit(self._declared, running=True):
            raise RecoveryError(wrong.why, remedy=wrong.remedy)
        self._shape = shape

    @property
    def _marks(self) -> str:
        return f"{self._app}.mark"

    @property
    def _directory(self) -> str:
        return f"{BESIDE}/{self._app}"

    def _path(self, mark: int) -> str:
        return f"{self._directory}/{mark:016x}"


_PUT_BACK: Final = (
    "put it back from a backup of the table's directory. Nothing in _cues/ may be changed or deleted by hand"
)


def mark_of(kept: bytes) -> int:
    """The number of these bytes, of 63 bits: the version of an application transaction is a signed number."""
    return int.from_bytes(blake2b(kept, digest_size=8).digest(), "big") >> 1


def app_of(task: TaskName) -> str:
    """The id of a task's application transaction."""
    return f"{task.graph}.{task.processor}.{task.partition}"


def transactions_of(declared: Declared, task: TaskName) -> DeltaTransactions:
    """Make the transactions of a task."""
    return DeltaTransactions(OpenedTable(declared.url(), declared.options), app_of(task), declared)

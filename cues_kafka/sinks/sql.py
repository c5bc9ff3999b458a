"""A database as the target of one task: effects, outcomes and position in one transaction (E1)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from cues_kafka.errors import ConfigError, OutputError, RetriableError
from cues_kafka.graph.addresses import led_to
from cues_kafka.graph.targets import TaskName
from cues_kafka.observe.log import get_logger
from cues_kafka.ports.target import HeldAttempt
from cues_kafka.sinks.connection import Database
from cues_kafka.sinks.dialect import BACK, Dialect, Finish, NotMoved
from cues_kafka.sinks.guard import CallInProgress, Lone
from cues_kafka.sinks.own_statements import Statements
from cues_kafka.sinks.packing import packed, unpacked
from cues_kafka.sinks.task_row import TaskRow
from cues_kafka.sinks.turns import TaskTarget

log = get_logger("cues_kafka.sinks")

_LATER = (
    "another process has the task now. If no other process runs it, an application of this name on another cluster "
    "uses the database too, or Kafka lost records: stop the workers, and run "
    "`cues-kafka reset MODULE:GRAPH {} --to database`"
)
"""What helps where the row has a later owner than the task."""

_MOVED = (
    "the row of the task in cues_task, or its rows in cues_outbox, are not what was written: a function, a trigger, a "
    "rule or a policy of the database has changed them, or keeps them from being changed"
)
_ENDED = (
    "a statement has ended the transaction of the batch, such as INSERT OR ROLLBACK, RAISE(ROLLBACK) or ON CONFLICT "
    "ROLLBACK in SQLite, so everything written in it is rolled back"
)
_ALONE = "The next steps are committed one by one, to find the step that does it"
_FASTER = "Raise {} of the user or the database, or make the statement faster"

_NOT_HERE = (
    "leave cues_task and cues_outbox to cues-kafka, and remove triggers, rules and policies from them; ROLLBACK in a "
    "constraint, a trigger or an INSERT becomes ABORT. The task then resumes by itself"
)
"""What helps where the transaction of a batch failed as a whole."""

_REFUSED = "let the database accept this user and this address again; the task then resumes by itself"
"""What helps where the database refuses what it took at the start."""


class SqlTarget(TaskTarget):
    """
    The database of one task; a `ports.target.TransactionalSink`.

    Its connection is used by the thread that calls user code. `ask` and `outbox` have connections of their own.
    """

    what = "database"

    def __init__(self, dialect: Dialect, task: TaskName) -> None:
        super().__init__(task)
        self._dialect = dialect
        self._row = TaskRow(dialect, task)
        self._connection: Any = None
        self._open = False  # a transaction is
        self._marked = False  # nothing is written behind the savepoint
        self.noted = ""
        self._claimed: tuple[int, str] | None = None
        self._outbox_filled = True  # as far as is known
        self._begun = 0, 0  # owner and step of the open transaction
        self._marks = 0  # since it began
        self._limited = False  # how long its statements may take, by the function
        self._lone, self._present = Lone(), CallInProgress()
        self._on: Statements | None = None  # the statements on our tables, for the present connection
        self.value: Any = Database(self)

    # What the function's connection asks

    @property
    def dialect(self) -> Dialect:
        return self._dialect

    @property
    def in_use(self) -> Any:
        self._present.check()
        found = self._used
        if not self._dialect.alive(found):
            raise OutputError(_ENDED) if self.alone else self._ended()
        return found

    @property
    def _used(self) -> Any:
        if not self._open or self._connection is None:
            raise RuntimeError("the connection is valid only during the call of the function")
        return self._connection

    @property
    def alone(self) -> bool:
        return self._lone.holds(self._begun[1])

    @property
    def ahead(self) -> bool:
        return self._dialect.locks_rows

    @property
    def parts(self) -> bool:
        return True

    # Recovery

    def ask(self, owner: int, step: int) -> HeldAttempt | None:
        self.discard()
        dialect = self._dialect
        with self._connected() as connection:
            on = self._row.statements(connection)
            row = self._row.locked(connection, on, owner)
            if row is None and step == 0:
                dialect.execute(connection, on.insert, (*self._task, owner))
            elif row is not None and step in row[:2] and row[2] < owner:
                dialect.execute(connection, on.own, (owner, *self._task))
            dialect.commit(connection)
        return None if row is None else HeldAttempt(*row[:4])

    def newest(self) -> HeldAttempt | None:
        with self._connected() as connection:
            row = self._dialect.execute(connection, self._row.statements(connection).select, self._task).fetchone()
        return None if row is None else HeldAttempt(*row[:4])

    @property
    def torn(self) -> bool:
        """See `ports.target.TransactionalSink`. A row has nothing below it."""
        return False

    def settle(self, held: HeldAttempt, was: HeldAttempt | None) -> bool:
        dialect = self._dialect
        with self._connected() as connection:
            on = self._row.statements(connection)
            row = self._row.locked(connection, on)
            if (None if row is None else HeldAttempt(*row[:4])) != was:
                dialect.rollback(connection)
                return False
            if row is None:
                dialect.execute(connection, on.insert, (*self._task, held.owner))
            owner = max(held.owner, row[2] if row else 0)
            dialect.execute(connection, on.move, (held.base, held.step, owner, held.attempt, *self._task))
            dialect.execute(connection, on.empty, self._task)
            dialect.commit(connection)
        return True

    def outbox(self) -> Iterable[tuple[Any, ...]]:
        with self._connected() as connection:
            rows = self._dialect.execute(connection, self._row.statements(connection).read, self._task).fetchall()
        for (data,) in rows:
            yield from unpacked(bytes(data))

    @contextmanager
    def _connected(self) -> Iterator[Any]:
        try:
            connection = self._dialect.connect()
        except ConfigError as error:  # the database let this user in at the start
            error.remedy = error.remedy or _REFUSED
            raise
        try:
            self._dialect.brief(connection, on=True)
            yield connection
        except self._dialect.errors as error:
            raise self._failed(error) from error
        finally:
            self._dialect.close(connection)

    def _failed(self, error: BaseException) -> RetriableError:
        self._dialect.address.hide(error)  # it is the cause of what is raised
        return self._retriable(_text(self._dialect, error))

    # A batch

    def begin_batch(self, owner: int, step: int) -> None:
        with self._lock:
            self._renew()
            try:
                self._begin(owner, step)
            except self._dialect.errors as error:
                self._drop()
                raise self._failed(error) from error
            except ConfigError as error:  # the database was there at the start, so it may come back
                self._drop()
                raise self._retriable(str(error)) from error
            except BaseException:
                self._drop()
                raise
            self._check_void()

    def _begin(self, owner: int, step: int) -> None:
        dialect = self._dialect
        if self._connection is None:
            self._connection, self._claimed, self._on = dialect.connect(), None, None
        connection = self._connection
        on = self._on = self._on or self._row.statements(connection)
        # Claimed and committed before the batch locks the row: a successor ends this connection by the name in the row.
        if self._claimed is None or self._claimed[0] != owner:
            self._outbox_filled = True  # another process may have had the task since
            name = self._claimed[1] if self._claimed else dialect.name_of(connection)
            self._row.claim(connection, on, owner, name)
            self._claimed = owner, name
        row = self._row.locked(connection, on, owner)
        self._open, self._marked = True, True
        self._begun, self._marks, self._limited = (owner, step), 0, False
        if row is None or row[1] != step or row[2] > owner:
            where = "has no row" if row is None else f"is at step {row[1]}, owner {row[2]}"
            raise RetriableError(
                f"the database of {self._task} {where}; the task is at step {step}, owner {owner}, and asks again",
                code="TARGET",
                remedy=_LATER.format(self._task.processor) if row is not None and row[2] > owner else "",
            )

    def mark(self) -> None:
        with self._lock:
            self._check_void()
            self._calling = True
        if not self._marked:
            self._check_alive()
            try:
                self._dialect.mark(self._used)
            except self._dialect.errors as error:
                raise self._failed(error) from error
        self._marked = False
        self._marks += 1
        self.value.forget_savepoints()
        self._present.begin()

    def back(self) -> None:
        self._present.end()
        self.value.forget_savepoints()
        if self._marks == 1 and not self._dialect.alive(self._used):
            self._begin_again()
            return
        self._check_alive()
        try:
            self._dialect.execute(self._used, BACK)
        except self._dialect.errors as error:
            raise self._failed(error) from error

    def _begin_again(self) -> None:
        """What was written since the first mark is gone with its transaction: that is what `back` does."""
        try:
            with self._lock:
                self._check_void()
                self._begin(*self._begun)
        except self._dialect.errors as error:
            raise self._failed(error) from error
        self._marked, self._marks = False, 1

    def check(self) -> str:
        self._present.end()
        dialect = self._dialect
        if self.noted:  # the function has taken the exception
            raise RetriableError(self.noted, code="TARGET")
        if not dialect.alive(self._used):
            if self.alone:
                return _ENDED
            raise self._ended()
        if self.alone and (why := self._lone.refused(self._begun[1])):
            return why
        if why := self.value.left_open or dialect.broken(self._used):
            return str(why)
        try:
            dialect.check(self._used)
        except dialect.errors as error:
            if why := self.outage(error):
                raise RetriableError(why, code="TARGET") from error
            return str(error)
        return ""

    def _check_alive(self) -> None:
        if not self._dialect.alive(self._used):
            raise self._ended()

    def _ended(self) -> RetriableError:
        """The transaction has ended, and the client knows of no outage: a statement has done it."""
        if not self.alone:
            self._lone.suspect(self._begun[1], _ENDED)
        self.noted = "" if self.alone else f"the {self.what} of {self._task}: {_ENDED}. {_ALONE}"
        return RetriableError(f"the {self.what} of {self._task}: {_ENDED}. {_ALONE}", code="TARGET", remedy=_NOT_HERE)

    def note(self, error: BaseException) -> None:
        self._dialect.address.hide(error)
        if self._limited and self._dialect.cancelled(error):
            return
        if not self.noted and (setting := self._dialect.time_limit(error)):
            said = _text(self._dialect, error)
            why = f"a statement took longer than {setting} allows ({said}). {_FASTER.format(setting)}"
            if not self._lone.late(self._begun[1], why):
                self.noted = f"the database of {self._task}: {why}"
        elif not self.noted and (why := self._dialect.outage(error, self._connection)):
            if self._dialect.doubtful(error):
                if self.alone:  # nothing else is in the transaction, which the database has let begin
                    return
                self._lone.suspect(self._begun[1], why)
            self.noted = f"the database of {self._task}: {why}"

    def limited(self) -> None:
        self._limited = True

    def outage(self, error: BaseException) -> str:
        if not self._open:
            return f"the database of {self._task}: the transaction has ended"
        if isinstance(error, self._dialect.errors):
            self.note(error)
        for one in led_to(error):  # the function may have raised another exception because of a cursor's
            if isinstance(one, self._dialect.errors):
                self._dialect.address.hide(one)
        if not self.noted and not self.alone and not self._dialect.alive(self._used):
            return str(self._ended())
        return self.noted

    def commit(self, held: HeldAttempt, records: Iterable[tuple[Any, ...]]) -> None:
        with self._lock:
            dialect, task = self._dialect, self._task
            rows = [(*task, place, data) for place, data in enumerate(packed(records))]
            begun, on = self._begun, self._on
            where = held.base, held.step, held.owner, held.attempt
            assert on is not None, "a batch is open"
            last = Finish(
                before=[(on.empty, task)] if self._outbox_filled else [],
                advance=(on.advance, (*where, *task, begun[1], begun[0])),
                fill=on.fill,
                rows=rows,
                moved=(on.moved, (*task, *where, *task, len(rows), *task, sum(len(row[-1]) for row in rows))),
            )
            try:
                self._check_void()
                if self.noted:
                    raise RetriableError(self.noted, code="TARGET")
                dialect.finish(self._used, last)
            except NotMoved:
                self._drop()
                raise self._not_committed(_MOVED) from None
            except dialect.errors as error:
                outage = dialect.outage(error, self._connection) and not dialect.doubtful(error)
                outage = outage and not dialect.time_limit(error)
                self._drop()
                failed = self._failed(error)
                raise (failed if outage else self._not_committed(_text(self._dialect, error))) from error
            except BaseException:
                self._drop()
                raise
            self._lone.committed(begun[1])
            self._open = False
            if dialect.changed(self._connection):
                self._drop()
            self._outbox_filled = bool(rows)

    def _not_committed(self, why: str) -> RetriableError:
        """The database answers, and refuses what was written as a whole: some step of it is the cause."""
        self._lone.suspect(self._begun[1], why)
        return RetriableError(
            f"the {self.what} of {self._task} does not commit: {why}. {_ALONE}", code="TARGET", remedy=_NOT_HERE
        )

    # Endings

    def _end_open(self) -> None:
        if not self._open:
            return
        if self.noted or self._dialect.changed(self._connection):
            self._drop()  # what the connection keeps, such as prepared statements, may be the cause
            return
        try:
            self._dialect.rollback(self._connection)
            self._open = False
        except self._dialect.errors:
            self._drop()

    def _stop(self) -> None:
        self._drop()

    def _drop(self) -> None:
        """Close the connection; a transaction that is open on it is rolled back by the database."""
        connection, self._connection, self._open, self._claimed = self._connection, None, False, None
        self.noted = ""
        self._outbox_filled = True
        if connection is not None:
            with suppress(self._dialect.errors):
                self._dialect.close(connection)


def _text(dialect: Dialect, error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(dialect.address.quiet(error).split())}"

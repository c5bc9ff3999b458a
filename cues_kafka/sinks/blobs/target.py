"""A store of files as the target of one task (E3): a try of a batch is uploaded, and one entry of the log commits it.

The store refuses a second entry of a number. So it refuses the commit of a former owner, or of a slow one, as the lock
of a row does in a database. What void tries have left is deleted: by their own process at once, else by the next owner,
and once more an hour later, because a process that was frozen may still write.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from cues_kafka.errors import CodecError, ConfigError, OutputError, RetriableError
from cues_kafka.graph.blobs import FileTable
from cues_kafka.graph.effects import Effect
from cues_kafka.graph.targets import TaskName
from cues_kafka.observe.log import get_logger
from cues_kafka.ports.target import HeldAttempt
from cues_kafka.sinks.blobs.entries import (
    ATTEMPT,
    CLAIM,
    SETTLED,
    CommitLog,
    FileEntry,
    LogEnds,
    LogEntry,
    LogGap,
    Sweep,
)
from cues_kafka.sinks.blobs.marker import KnownStore
from cues_kafka.sinks.blobs.names import refused
from cues_kafka.sinks.blobs.store import BlobStore
from cues_kafka.sinks.blobs.sweeping import MOST_SWEEPS, SWEPT_AGAIN_S, Sweeping
from cues_kafka.sinks.blobs.tables import TableFiles
from cues_kafka.sinks.packing import packed, unpacked
from cues_kafka.sinks.turns import TaskTarget

log = get_logger("cues_kafka.sinks")

UPLOADS: Final = 4
"""How many uploads of one task are under way at once."""

LONGEST_S: Final = 1800.0
"""A batch that began this number of seconds ago puts and commits nothing any more: half of `SWEPT_AGAIN_S`."""

CLAIMS: Final = 20
"""How many entries of others one question passes before it says that the store is contended."""


def boot_time() -> float:
    """Seconds that go on while the machine sleeps, as far as the system tells them."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


@dataclass(slots=True)
class Put:
    """An object of a try, with its upload."""

    entry: FileEntry
    upload: Future[None]


@dataclass(slots=True)
class Try:
    """One try of one batch: what it has put, in a directory of its own."""

    base: int
    owner: int
    directory: str
    began: float
    puts: list[Put] = field(default_factory=list)
    dropped: list[Put] = field(default_factory=list)
    count: int = 0


class PutFiles:
    """The parameter of a function for `Blobs`: it puts objects. Valid only during the call."""

    def __init__(self, target: BlobTarget) -> None:
        self._target = target

    @property
    def url(self) -> str:
        """The address of the store."""
        return self._target.store.url("").rstrip("/")

    def put(self, name: str, data: bytes | Path) -> str:
        """
        Put an object, which counts when the step is committed.

        Args:
            name: how its address ends, such as `2026/report.pdf`. Other steps may use the same name.
            data: its bytes, or a file of this machine, which must stay as it is until the batch is committed.

        Returns:
            Its address, which is valid for readers as soon as the outputs of the step are.

        Raises:
            OutputError: the name or the data cannot be those of an object.
            RuntimeError: the call is over.
        """
        return self._target.put(name, data)


class BlobTarget(TaskTarget):
    """
    The store of one task; a `ports.target.TransactionalSink`.

    Attributes:
        values: what the function is given, by name.
    """

    what = "files"

    def __init__(
        self,
        opened: Callable[[], BlobStore],
        task: TaskName,
        declared: Mapping[str, Effect],
        known: KnownStore | None = None,
    ) -> None:
        super().__init__(task)
        self._opened = opened
        self._known = known or KnownStore()
        self._store: BlobStore | None = None
        self._tail: tuple[int, LogEntry] | None = None  # as far as this process knows
        self._seen = 0.0
        self._try: Try | None = None
        self._mark = 0
        self._sweeping = Sweeping(str(task), self.home, lambda: self.log, lambda: self._tail)
        self._pool: ThreadPoolExecutor | None = None
        self._files = {name: TableFiles(self, one) for name, one in declared.items() if isinstance(one, FileTable)}
        self.value: Any = PutFiles(self)
        self.values: dict[str, Any] = {name: self._files.get(name, self.value) for name in declared}

    @property
    def store(self) -> BlobStore:
        """The store, which is opened when it is first asked."""
        if self._store is None:
            self._store = self._opened()
        return self._store

    @property
    def log(self) -> CommitLog:
        """The log of this task."""
        return CommitLog(self.store, self.home)

    @property
    def home(self) -> str:
        """The directory of this task's objects."""
        return f"{self._task.graph}.{self._task.processor}/{self._task.partition}"

    @property
    def in_use(self) -> Try:
        """
        The try whose step is called.

        Raises:
            RuntimeError: none is.
        """
        if self._try is None:
            raise RuntimeError("what effects= gives is valid only during the call of the function")
        return self._try

    @property
    def ahead(self) -> bool:
        """See `ports.target.TransactionalSink`. Objects are put while the function is called."""
        return False

    @property
    def alone(self) -> bool:
        """See `ports.target.TransactionalSink`. An entry of a log takes nothing of a step back by itself."""
        return False

    @property
    def parts(self) -> bool:
        """See `ports.target.TransactionalSink`. The log has one entry for each attempt of Kafka."""
        return False

    # Recovery

    def ask(self, owner: int, step: int) -> HeldAttempt | None:
        """See `TransactionalSink`. A claim is put also by an owner that has one: a late put loses its number."""
        self.discard()
        with self._lock:
            self._end_open()
            self._tail = None
            self._asked(self._known.check, self.store)
            for _ in range(CLAIMS):
                found = self._asked(self.log.newest)
                held = None if found is None else found[1].held
                if found is None and step:
                    return None
                entry = found[1] if found else LogEntry(CLAIM, 0, 0, owner)
                fresh = list(self._sweeping.left_by(entry, owner))
                left = [*entry.sweeps, *fresh][-MOST_SWEEPS:]
                if entry.step != step or entry.owner > owner:
                    self._sweeping.left, self._tail, self._seen = left, found, boot_time()
                    return held
                told = (CLAIM, entry.base, entry.step, owner, entry.attempt)
                claim = LogEntry(*told, sweeps=tuple(left), voids=entry.voids)
                number = found[0] + 1 if found else 0
                if self._asked(self.log.append, number, claim):
                    self._sweeping.left, self._tail, self._seen = left, (number, claim), boot_time()
                    self._sweeping.sweep_all(owner, fresh)
                    return held
        raise self._retriable("other processes put one entry after the other; is this task run twice?")

    def newest(self) -> HeldAttempt | None:
        """See `ports.target.TransactionalSink`. It is the newest one below which no entry is lost."""
        found = self._standing().newest
        return None if found is None else found[1].held

    @property
    def torn(self) -> bool:
        return self._standing().gap is not None

    def _standing(self) -> LogEnds:
        self._asked(self._known.check, self.store)
        found: LogEnds = self._asked(self.log.standing)
        return found

    def settle(self, held: HeldAttempt, was: HeldAttempt | None) -> bool:
        """See `ports.target.TransactionalSink`. Files that are committed stay committed, but for those behind a gap."""
        found = self._standing()
        if (found.newest[1].held if found.newest else None) != was:
            return False
        number, top = found.top or (-1, LogEntry(SETTLED, 0, 0, 0))
        voids = (*top.voids, (found.gap.number, number)) if found.gap else top.voids
        owner = max(held.owner, top.owner)
        entry = LogEntry(SETTLED, held.base, held.step, owner, held.attempt, sweeps=top.sweeps, voids=voids)
        return bool(self._asked(self.log.append, number + 1, entry))

    def outbox(self) -> Iterable[tuple[Any, ...]]:
        found = self._asked(self.log.newest)
        if found is None or not found[1].outbox:
            return
        data = self._asked(self.store.read, found[1].outbox)
        if data is None:
            raise self._retriable(f"{found[1].outbox} is missing, and the log names it; restore it")
        for part in _parts(data):
            yield from unpacked(part)

    def _asked(self, ask: Callable[..., Any], *given: Any) -> Any:
        try:
            return ask(*given)
        except RetriableError as error:
            raise RetriableError(f"the files of {self._task}: {error}", code="TARGET", remedy=error.remedy) from error
        except LogGap as error:
            raise RetriableError(
                f"the files of {self._task}: {error.lost}", code="TARGET", remedy=error.remedy
            ) from error
        except (CodecError, ConfigError) as error:
            raise self._retriable(str(error)) from error

    # A batch

    def begin_batch(self, owner: int, step: int) -> None:
        """See `TransactionalSink`. Nothing is requested: whether the task still owns it shows at the commit."""
        with self._lock:
            self._renew()
            self._check_tail(owner, step)
            self._check_there()
            directory = f"{self._sweeping.directory(step, owner)}/{secrets.token_hex(8)}"
            self._try, self._mark = Try(step, owner, directory, boot_time()), 0

    def _check_tail(self, owner: int, step: int) -> None:
        if self._tail is not None and boot_time() - self._seen > LONGEST_S:
            found = self._asked(self.log.newest)  # what stood behind it may be folded and deleted
            self._tail = self._tail if found and found[0] == self._tail[0] else None
            self._seen = boot_time()
        if self._tail is None or self._tail[1].step != step or self._tail[1].owner > owner:
            where = "have no entry" if self._tail is None else f"are at step {self._tail[1].step}"
            raise self._retriable(f"they {where}; the task is at step {step}, owner {owner}, and asks again")

    def put(self, name: str, data: bytes | Path) -> str:
        running = self.in_use
        if why := refused(name, data):
            raise OutputError(why)
        given = data if isinstance(data, Path) else bytes(data)
        size = given.stat().st_size if isinstance(given, Path) else len(given)
        running.count += 1
        path = f"{running.directory}/{running.count}/{name}"
        begun = self._upload(running, FileEntry(path, bytes=size), given)
        if isinstance(given, Path):
            begun.result()  # as soon as `put` returns, the function may remove the file, or write into it
            if not given.is_file() or given.stat().st_size != size:
                raise OutputError(
                    f"put({name!r:.80}): {str(given)!r} was changed while it was stored. Put it when it is whole"
                )
        return self.store.url(path)

    def _upload(self, running: Try, entry: FileEntry, data: bytes | Path) -> Future[None]:
        def upload() -> None:
            if boot_time() - running.began > LONGEST_S:
                raise RetriableError(f"the batch began more than {LONGEST_S:.0f} s ago", code="TARGET")
            self.store.put(entry.path, data)

        begun = self._threads().submit(upload)
        running.puts.append(Put(entry, begun))
        return begun

    def _threads(self) -> ThreadPoolExecutor:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(UPLOADS, thread_name_prefix=f"cues-files-{self._task}")
        return self._pool

    def mark(self) -> None:
        with self._lock:
            self._check_void()
            self._calling = True
        self._mark = len(self.in_use.puts)
        for table in self._files.values():
            table.mark()

    def back(self) -> None:
        running = self.in_use
        running.dropped += running.puts[self._mark :]
        del running.puts[self._mark :]
        for table in self._files.values():
            table.back()

    def check(self) -> str:
        """See `ports.target.TransactionalSink`. Uploads go on meanwhile; the commit waits for them."""
        self._check_void()
        return ""

    def outage(self, error: BaseException) -> str:
        if self._try is None:
            return f"the files of {self._task}: the batch has ended"
        return str(error) if isinstance(error, RetriableError) and error.code == "TARGET" else ""

    def commit(self, held: HeldAttempt, records: Iterable[tuple[Any, ...]]) -> None:
        """See `ports.target.TransactionalSink`. Uploads have ended before the entry is put, and the outbox is there."""
        with self._lock:
            self._check_void()
            running, tail = self.in_use, self._tail
            assert tail is not None
            try:
                self._prepare(running)
                outbox = self._put_outbox(running, records)
            except BaseException:
                self._end_open()
                raise
            files = tuple(one.entry for one in running.puts)
            directory = running.directory if files else ""
            due = time.time() + SWEPT_AGAIN_S
            self._sweeping.left += (Sweep(one.entry.path, "", due) for one in running.dropped)
            entry = LogEntry(ATTEMPT, *held, directory, files, outbox, tuple(self._sweeping.left), tail[1].voids)
            self._check_void()
            # From here on the try may be committed, whatever is answered: nothing of it is deleted.
            self._try, self._tail = None, None
            if not self._asked(self.log.append, tail[0] + 1, entry):
                raise self._retriable("another process has put the next entry: this one is no longer the owner")
            self._tail, self._seen = (tail[0] + 1, entry), boot_time()
            # What is deleted from here on belongs to no entry, or to one that the new entry has replaced.
            for table in self._files.values():
                table.drop()
            self._threads().submit(self._sweeping.tend, running.owner, running.dropped, tail[1], tail[0] + 1)

    def _prepare(self, running: Try) -> None:
        """Upload the tables, wait for all uploads, and see that they went into the store."""
        for table in self._files.values():
            for entry, data in table.made(running.directory):
                self._upload(running, entry, data)
        for one in (*running.puts, *running.dropped):
            try:
                self._asked(one.upload.result)
            except OSError as error:  # a file of this machine that the function has named
                raise self._retriable(f"{one.entry.path}: {error}") from error
        if boot_time() - running.began > LONGEST_S:
            raise self._retriable(f"the batch began more than {LONGEST_S:.0f} s ago; it is called again")
        self._check_there()

    def _check_there(self) -> None:
        """The store is the one that was asked: what is put into the place of another one is lost."""
        self._asked(self._known.glance, self.store)

    def _put_outbox(self, running: Try, records: Iterable[tuple[Any, ...]]) -> str:
        rows = list(packed(records))
        if not rows:
            return ""
        nonce = running.directory.rpartition("/")[2]
        path = f"{self.log.directory}/outbox/{running.base:020d}-{running.owner}-{nonce}"
        self._asked(self.store.put, path, b"".join(len(one).to_bytes(8, "big") + one for one in rows))
        return path

    def _end_open(self) -> None:
        """The try is void: its uploads are cancelled or awaited, and what they have put is deleted."""
        running, self._try = self._try, None
        for table in self._files.values():
            table.drop()
        if running is None or self._killed:
            return
        puts = [*running.puts, *running.dropped]
        for one in puts:
            one.upload.cancel()
        if puts:
            self._sweeping.left.append(Sweep(running.directory, "", time.time() + SWEPT_AGAIN_S))
            self._threads().submit(self._sweeping.delete, puts)

    def _stop(self) -> None:
        self._end_open()
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(wait=not self._killed, cancel_futures=self._killed)


def _parts(data: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        size = int.from_bytes(data[at : at + 8], "big")
        yield data[at + 8 : at + 8 + size]
        at += 8 + size

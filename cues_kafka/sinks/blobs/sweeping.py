"""Deletes what void tries of a task have left in its store of files (E3)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Final, Protocol

from cues_kafka.errors import CodecError, RetriableError
from cues_kafka.observe.log import get_logger
from cues_kafka.sinks.blobs.entries import ATTEMPT, SETTLED, TENDED, CommitLog, FileEntry, LogEntry, Sweep
from cues_kafka.sinks.blobs.store import BlobStore

log = get_logger("cues_kafka.sinks")

SWEPT_AGAIN_S: Final = 3600.0
"""After how many seconds what dead owners left is looked at once more."""

MOST_SWEEPS: Final = 500
"""How many directories an entry names at most. Of a task that dies more often in an hour, void files may stay."""


class Upload(Protocol):
    """A file whose upload was begun."""

    @property
    def entry(self) -> FileEntry: ...
    @property
    def upload(self) -> Future[None]: ...


class Sweeping:
    """
    Knows the directories of dead and fenced owners, and deletes what is in them.

    Attributes:
        left: these directories.
    """

    def __init__(
        self, task: str, home: str, opened: Callable[[], CommitLog], tail: Callable[[], tuple[int, LogEntry] | None]
    ) -> None:
        """
        Args:
            task: for the log.
            home: the directory of the task's files.
            opened: gives the log of the task in its store.
            tail: gives the newest entry, with its number, as far as this process knows.
        """
        self.left: list[Sweep] = []
        self._task, self._home = task, home
        self._opened = opened
        self._tail = tail

    @property
    def _store(self) -> BlobStore:
        return self._opened().store

    def directory(self, step: int, owner: int) -> str:
        """Where the tries of an owner at the steps behind this one are."""
        return f"{self._home}/{step:020d}-{owner}"

    def left_by(self, entry: LogEntry, owner: int) -> Iterator[Sweep]:
        """
        Directories in which a former owner may have left void tries. Own ones are known by name.

        A tool leaves none. Its step may be that of committed files, where Kafka's steps went back.
        """
        if entry.owner >= owner or entry.kind == SETTLED:
            return
        due = time.time() + SWEPT_AGAIN_S
        yield Sweep(self.directory(entry.step, entry.owner), "", due)
        if entry.kind == ATTEMPT:
            yield Sweep(self.directory(entry.base, entry.owner), entry.directory, due)

    def tend(self, owner: int, dropped: Sequence[Upload], former: LogEntry, number: int) -> None:
        """After a commit, on a thread of its own: delete what is void, and keep the log short."""
        try:
            for one in dropped:
                self._store.delete(one.entry.path)
            if former.outbox:
                self._store.delete(former.outbox)
            if number % TENDED == 0:
                self.sweep_all(owner)
                self._opened().tend(number)
        except (RetriableError, CodecError) as error:
            log.warning("not cleaned up", task=self._task, why=str(error))

    def sweep_all(self, owner: int, fresh: Sequence[Sweep] = ()) -> None:
        """Delete what former owners left: what is new in the list, which stays in it, and what is due, which goes."""
        try:
            self._sweep_outbox(owner)
            for one in list(self.left):  # a copy: on the thread of `tend`, commits add to the list meanwhile
                if one in fresh or one.due <= time.time():
                    self._sweep(one)
                if one.due <= time.time():
                    self.left.remove(one)
            self._store.tidy(self._opened().directory)
        except RetriableError as error:
            log.warning("not cleaned up", task=self._task, why=str(error))

    def _sweep(self, sweep: Sweep) -> None:
        for path in self._store.below(sweep.path) or [sweep.path]:
            if not (sweep.keep and path.startswith(f"{sweep.keep}/")):
                self._store.delete(path)

    def _sweep_outbox(self, owner: int) -> None:
        """Delete the outboxes of smaller owners that are not the newest one's: those of later owners may be needed."""
        directory = f"{self._opened().directory}/outbox"
        tail = self._tail()
        newest = tail[1].outbox if tail else ""
        for name in self._store.names(directory):
            parts = name.split("-")
            if len(parts) == 3 and int(parts[1]) < owner and f"{directory}/{name}" != newest:
                self._store.delete(f"{directory}/{name}")

    def delete(self, puts: Sequence[Upload]) -> None:
        """Delete what uploads have put, when they have ended."""
        for one in puts:
            if one.upload.cancelled():
                continue
            one.upload.exception()
            with suppress(RetriableError):  # it is swept once more, later
                self._store.delete(one.entry.path)

"""A directory for the entries of one store of one task: held by one process, marked while they are open."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import threading
import time
from itertools import count
from pathlib import Path
from typing import Any, Final

from cues_kafka.errors import RetriableError
from cues_kafka.observe.log import get_logger

log = get_logger("cues_kafka.state")

BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
"""Names the run of the machine's kernel."""

MOST_DEATHS: Final = 3
"""How many processes in a row may die with these entries open, before any of them has committed."""

UNUSED_S: Final = 7 * 86_400
"""So long no process has used the files of a task that are removed. They are a copy, so this costs time at most."""

_held: set[str] = set()  # by this process: the lock of the operating system is between processes only
_holding = threading.Lock()


class StoreDirectory:
    """
    A directory that no other process and no other task of this process uses at the same time.

    The lock is the operating system's, so it ends with the process, and a child of the process does not inherit it. If
    the directory is in use, the next free one with a number behind its name is taken, and removed in the end.

    Attributes:
        path: of the directory.
        data: of the file with the entries.
    """

    def __init__(self, wanted: Path) -> None:
        """
        Raises:
            RetriableError: it cannot be made or written.
        """
        try:
            for number in count(1):
                self.path = wanted if number == 1 else wanted.with_name(f"{wanted.name}-{number}")
                if (lock := _taken(self.path)) is not None:
                    self._lock = lock
                    break
        except OSError as error:
            raise failed(wanted, error) from error
        self._own = self.path == wanted
        self.data = self.path / "entries"
        self._marker = self.path / "state.json"
        self._deaths = 0
        self._progressed = False
        if not self._own:
            log.warning("in use", directory=str(wanted), instead=str(self.path))
        _tidy(wanted.parent)

    def why_unfit(self) -> str | None:
        """Why the entries that are there cannot be trusted; None: they can, or there is no file."""
        if not self.data.exists():
            return None
        try:
            found = json.loads(self._marker.read_bytes())
            boot, deaths, size = found["boot"], found["deaths"], found["size"]
        except (OSError, ValueError, KeyError, TypeError):
            return "it does not say how it was closed"
        if size is not None:
            return None if self.data.stat().st_size == size else "it has not the size with which it was closed"
        if not boot or boot != boot_id():
            return "the machine stopped while it was open"
        self._deaths = deaths + 1
        if self._deaths >= MOST_DEATHS:
            return f"{self._deaths} processes died with it before they committed anything"
        return None

    def wipe(self) -> None:
        """Remove the entries."""
        self._deaths = 0
        for path in (self.data, self.data.with_name("entries-lock")):
            path.unlink(missing_ok=True)

    def mark_open(self) -> None:
        """Say, before anything is written, that the entries are open."""
        self._mark({"boot": boot_id(), "deaths": self._deaths, "size": None}, now=True)

    def mark_progress(self) -> None:
        """Say that something was committed since."""
        if not self._progressed:
            self._progressed = True
            with contextlib.suppress(OSError):  # then a death counts that need not
                self._mark({"boot": boot_id(), "deaths": -1, "size": None}, now=False)

    def mark_closed(self) -> None:
        """Say that all entries are on the disk."""
        self._mark({"boot": "", "deaths": 0, "size": self.data.stat().st_size}, now=True)

    def leave(self) -> None:
        """Let others have the directory."""
        if not self._own:
            _remove(self.path)
        with _holding:
            _held.discard(str(self.path))
        os.close(self._lock)

    def _mark(self, what: dict[str, Any], *, now: bool) -> None:
        beside = self._marker.with_suffix(".new")
        with beside.open("w") as file:
            json.dump(what, file)
            if now:
                file.flush()
                os.fsync(file.fileno())
        beside.replace(self._marker)
        if now:
            directory = os.open(self.path, os.O_RDONLY)
            try:
                os.fsync(directory)
            finally:
                os.close(directory)


def _taken(path: Path) -> int | None:
    """The descriptor that locks the directory; None: it is in use."""
    path.mkdir(parents=True, exist_ok=True)
    with _holding:
        if str(path) in _held:  # to open and close the file would also end this process's lock
            return None
        lock = os.open(path / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            return None
        except BaseException:
            os.close(lock)
            raise
        if os.fstat(lock).st_nlink == 0:  # the process that had it has removed the directory
            os.close(lock)
            return None
        _held.add(str(path))
        return lock


def _tidy(stores: Path) -> None:
    """Remove the files of other tasks that no process has open, nor had within `UNUSED_S`: the tasks are elsewhere."""
    for path in sorted(marker.parent for marker in stores.glob("*/state.json")):
        with contextlib.suppress(OSError):  # another process does the same, or it may not be removed
            if not _is_unused(path) or (lock := _taken(path)) is None:
                continue
            try:
                if _is_unused(path):
                    _remove(path)
                    log.info("removed", directory=str(path), why=f"unused for {UNUSED_S // 86_400} days")
            finally:
                with _holding:
                    _held.discard(str(path))
                os.close(lock)


def _is_unused(path: Path) -> bool:
    """Whether none of its files was written for that long."""
    now = time.time()
    return now - max((one.stat().st_mtime for one in path.iterdir()), default=now) > UNUSED_S


def _remove(path: Path) -> None:
    """Remove a directory that this process holds; the lock is the last file to go: then another one may take it."""
    for name in ("entries", "entries-lock", "state.json", "state.new", "lock"):
        (path / name).unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # another process has taken it since
        path.rmdir()


def boot_id() -> str:
    """Names the run of the machine; empty: not known."""
    with contextlib.suppress(OSError):
        return BOOT.read_text().strip()
    return ""


def failed(path: Path, error: Exception) -> RetriableError:
    """The error for entries that cannot be written."""
    return RetriableError(
        f"the store in {path} cannot be written: {error}. Nothing is lost: its entries are in the changelog. Make room "
        "there, or set state_dir to another disk",
        code="STATE_DIR",
    )

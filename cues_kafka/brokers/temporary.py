"""Temporary directories that do not outlive their owner: its end removes them, or after a kill the next start.

The owner holds a lock (`flock`) on its directory, which the kernel releases however the owner ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cues_kafka.errors import ConfigError

SUFFIX = ".locked"
"""Ends the names of these directories, so that a start never takes a directory of the user for one that was left."""


@contextmanager
def temporary_directory(prefix: str) -> Iterator[Path]:
    """A directory of this process in the system's temporary directory; see `locked_directory`."""
    directory, lock = locked_directory(prefix, Path(tempfile.gettempdir()))
    owner = os.getpid()
    try:
        yield directory
    finally:
        if os.getpid() == owner:  # a forked child that leaves by an exception passes here, too
            shutil.rmtree(directory, ignore_errors=True)
        os.close(lock)


def locked_directory(prefix: str, place: Path) -> tuple[Path, int]:
    """
    Make a directory, and remove those of the same prefix whose owners are dead.

    Returns:
        The directory, and the descriptor that holds its lock. A child that inherits the descriptor is an owner too.

    Raises:
        ConfigError: the place has no locks, or this process cannot open more files.
    """
    for left in place.glob(f"{prefix}*{SUFFIX}"):
        with contextlib.suppress(OSError):  # another user's
            if (lock := _locked(left)) is not None:
                shutil.rmtree(left, ignore_errors=True)
                os.close(lock)
    while True:
        directory = Path(tempfile.mkdtemp(SUFFIX, prefix, place))
        try:
            lock = _locked(directory)
        except OSError as error:
            directory.rmdir()
            raise ConfigError(
                f"{place} cannot be used for temporary directories: {error}. Its file system may have no locks "
                "(flock), such as NFS: set TMPDIR, or CUES_KAFKA_STATE for `broker up`, to a local directory."
            ) from error
        if lock is not None and directory.exists():  # else another process found it before it was locked
            return directory, lock


def has_owner(directory: Path) -> bool:
    """Whether the directory exists and a living process holds its lock."""
    lock = _locked(directory)
    if lock is not None:
        os.close(lock)
    return lock is None and directory.exists()


def _locked(directory: Path) -> int | None:
    """
    A descriptor that holds the directory's lock; None if another process holds it, or there is no directory.

    Raises:
        OSError: it cannot be locked at all.
    """
    try:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        if isinstance(error, BlockingIOError):
            return None
        raise
    return descriptor

"""
Committed entries in a file, of which the memory holds what the operating system keeps of it (LMDB).

A batch's changes and the place behind them are one write transaction (R4b). It is not waited for until it is on the
disk: a process that dies loses nothing of it, and after a machine that stops the file is not used (`directory`). The
changelog has everything, so whatever is wrong with the file is answered by reading that again.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, Final
from zlib import crc32

from cues_kafka.errors import Fenced, RetriableError, StoreBroken
from cues_kafka.extras import LMDB, missing
from cues_kafka.observe.log import get_logger
from cues_kafka.state.directory import StoreDirectory, failed
from cues_kafka.state.entries import TIME_BYTES, EntriesPlace
from cues_kafka.state.filed import (
    FRONT,
    RAW_BYTES,
    SUM_BYTES,
    WHOLE,
    DamagedError,
    OldestParts,
    PartsOfTime,
    closed,
    key_of_long,
    long_value,
    opened,
    short_key,
    value_of_long,
)

log = get_logger("cues_kafka.state")

VERSION: Final = 4
"""The form of what is in the file; another one is wiped."""


PIECE: Final = 500
"""Entries that a scan takes at once."""

MOST_READ: Final = 10_000
MOST_READ_BYTES: Final = 2 * 2**20
"""
What is kept of entries that were read, and again of those before: a function often sets what it has read, and the
commit asks for the size of that, while the function reads for the next batch.
"""


MOST_MAPPED: Final = 2**44
"""The most addresses of the process for one file. They are no memory."""

META: Final = b"place"

NAMES: Final = 5
"""The last parts of a file's directory say whose entries it has: cluster id, graph, processor, store and partition."""


MOST_CHECKED: Final = 2**28
"""Bytes of the largest file whose entries are all checked when it is opened; those of others, when they are read."""

UNREADABLE: Final = "it cannot be read"


class OnDisk:
    """
    See `TimedEntries`.

    Args:
        directory: where the file is to be.
        most: bytes that entries may take, about; they bound the file, too.
        width: entries are filed by the time before their values, in parts of this width; None: they have no time. In
            front of its value an entry has the part that it is filed under, which is never behind its time.
    """

    durable: ClassVar = True
    each: ClassVar = 80

    def __init__(self, directory: Path, most: int, *, width: int | None = None) -> None:
        self.size = 0
        self._path, self._most, self._width = directory, most, width
        self._of = "/".join(directory.parts[-NAMES:])
        self._front = 0 if width is None else TIME_BYTES  # in front of a value: what it is filed under
        self._late = set[bytes]()  # keys that are to be filed under their time
        self._lmdb: Any = library()
        self._directory: StoreDirectory | None = None
        self._env: Any = None  # None: it is closed
        self._reader: Any = None  # what `get` sees
        # What it has seen of that, and what it saw earlier. They stay the same objects: `get` looks without the lock.
        self._read: dict[bytes, bytes | None] = {}
        self._read_before: dict[bytes, bytes | None] = {}
        self._read_bytes = 0  # of the values in `_read`
        self._lock = threading.RLock()  # held by everything that reads; the calls of the library let other threads run
        self._writing = threading.RLock()  # held by everything that writes, outside of the other one
        self._spoilt = self._closed = False

    # Open and close

    def open(self) -> EntriesPlace | None:
        with self._writing, self._lock:
            if self._closed:
                raise RetriableError("the store is closed")
            if self._env is not None and not self._spoilt:
                return None
            self._end()
            if self._directory is None:
                self._directory = StoreDirectory(self._path)
            try:
                why = UNREADABLE if self._spoilt else self._directory.why_unfit()
            except OSError as error:
                raise failed(self._directory.path, error) from error
            if why is None:
                try:
                    return self._begin(self._directory)
                except (self._lmdb.Error, ValueError, TypeError, KeyError) as error:
                    why = f"it cannot be read: {error}"
            return self._fresh(why)

    def clear(self, why: str) -> None:
        with self._writing, self._lock:
            if self._env is not None and (self.size or why):
                self._fresh(why)

    def close(self, *, orderly: bool = True) -> None:
        with self._writing, self._lock:
            self._closed = True  # a recovery that is still under way must not take the lock again
            directory, self._directory = self._directory, None
            clean = orderly and self._env is not None and not self._spoilt
            try:
                if clean:
                    self._env.sync(True)
                self._end()
                if directory is not None and clean:
                    directory.mark_closed()
                elif directory is not None and self._spoilt:
                    log.warning("wiped", directory=str(directory.path), why=UNREADABLE)
                    directory.wipe()
            except (self._lmdb.Error, OSError) as error:
                log.warning("not closed", directory=str(self._path), why=str(error))
            finally:
                self._end()
                if directory is not None:
                    directory.leave()

    def _end(self) -> None:
        if self._env is not None:
            self._reader = None
            self._forget()
            self._env.close()
            self._env = None

    def _fresh(self, why: str) -> EntriesPlace:
        """Begin without entries."""
        self._end()
        assert self._directory is not None
        if why:
            log.warning("wiped", directory=str(self._directory.path), why=why, then="read from the changelog again")
        try:
            self._directory.wipe()
            place = self._begin(self._directory)
        except (self._lmdb.Error, OSError) as error:
            raise failed(self._directory.path, error) from error
        self._spoilt = False
        return place

    def _begin(self, directory: StoreDirectory) -> EntriesPlace:
        try:
            directory.mark_open()
        except OSError as error:
            raise failed(directory.path, error) from error
        self._env = env = self._lmdb.open(
            str(directory.data),
            subdir=False,
            map_size=min(8 * self._most + 2**30, MOST_MAPPED),
            max_dbs=3,
            sync=False,
            metasync=False,
            readahead=False,
            mode=0o600,
        )
        self._data, self._times, self._meta = (env.open_db(name) for name in (b"entries", b"times", b"meta"))
        self._reader = env.begin(db=self._data)
        found = self._reader.get(META, db=self._meta)
        if found is None:
            self.size = 0
            return EntriesPlace()
        kept = json.loads(opened(META, found))
        if kept["version"] != VERSION or kept["width"] != self._width:
            raise ValueError("another release, or another lifetime, has written it")
        if kept["of"] != self._of:
            raise ValueError(f"it is a copy of the file of {kept['of']!r:.200}, and this one is of {self._of!r}")
        self.size = int(kept["size"])
        if directory.data.stat().st_size <= MOST_CHECKED:
            self._check()
        return EntriesPlace(
            bytes.fromhex(kept["topic_id"]), kept["offset"], kept["step"], kept["time"], kept["proven_ms"]
        )

    def _check(self) -> None:
        """Read all entries: a key that is damaged is missing where it is looked for."""
        size, count = 0, 0
        for at, found in self._reader.cursor():
            value = opened(at, found)[self._front :]
            size += self.each + (len(value) - 4 if len(at) > RAW_BYTES + 1 else len(at) - len(FRONT) + len(value))
            count += 1
        filed = count if self._width is None else self._reader.stat(db=self._times)["entries"]
        if (size, filed) != (self.size, count):
            raise DamagedError("entries are missing")

    # Read

    def get(self, key: bytes) -> bytes | None:
        if (known := self._read.get(key, _UNKNOWN)) is not _UNKNOWN:
            return None if known is None else known[self._front :]
        with self._lock:
            reader = self._reader or self._open_reader()
            found: bytes | None = self._read_before.get(key, _UNKNOWN)
            if found is _UNKNOWN:
                raw = len(key) <= RAW_BYTES
                at = FRONT + key if raw else short_key(key)
                try:
                    found = reader.get(at)
                    if found is None:
                        pass
                    elif raw and crc32(found, crc32(at)) == WHOLE:  # `opened`, without its call
                        found = found[:-SUM_BYTES]
                    else:
                        found = self._body(opened(at, found), raw=raw)
                except (self._lmdb.Error, DamagedError) as error:
                    raise self._broken(error) from error
            if len(self._read) >= MOST_READ or self._read_bytes > MOST_READ_BYTES:
                self._read_before.clear()
                self._read_before.update(self._read)
                self._read.clear()
                self._read_bytes = 0
            self._read[key] = found
            self._read_bytes += len(found or b"")
            return None if found is None else found[self._front :]

    def _body(self, found: bytes, *, raw: bool) -> bytes:
        """What an entry is filed under, and its value."""
        front = self._front
        return found if raw else found[:front] + value_of_long(found[front:])

    def _forget(self) -> None:
        self._read.clear()
        self._read_before.clear()
        self._read_bytes = 0

    def __len__(self) -> int:
        with self._lock:
            try:
                return int(self._open_reader().stat(self._data)["entries"])
            except self._lmdb.Error as error:
                raise self._broken(error) from error

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        with self._lock:
            self._open_reader()
            env, reading = self._env, self._env.begin(db=self._data)
        return self._scan(env, reading, prefix)

    def _scan(self, env: Any, reading: Any, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Keys that are longer than `RAW_BYTES` stand by what they begin with, and are sorted here."""
        begin, long = FRONT + prefix[:RAW_BYTES], list[tuple[bytes, bytes]]()
        for at, value in self._pieces(env, reading, self._data, begin):
            if not at.startswith(begin):
                break
            value = value[self._front :]  # noqa: PLW2901
            if long and at[1 : RAW_BYTES + 1] != long[0][0][:RAW_BYTES]:
                yield from sorted(long)
                long = []
            if len(at) > RAW_BYTES + 1:
                key = key_of_long(value)
                if key.startswith(prefix):
                    long.append((key, value_of_long(value)))
            elif len(prefix) <= RAW_BYTES:
                yield at[1:], value
        yield from sorted(long)

    def ended(self, before: int) -> Iterator[bytes]:
        end = max(0, before).to_bytes(TIME_BYTES, "big")
        with self._lock:
            self._open_reader()
            env, reading = self._env, self._env.begin(db=self._times)
        for at, key in self._pieces(env, reading, self._times, bytes(TIME_BYTES)):
            if at[:TIME_BYTES] >= end:
                break
            found = key or at[TIME_BYTES + len(FRONT) :]
            value = self.get(found)
            if value is None or value[:TIME_BYTES] < end:
                yield found
            else:
                self._late.add(found)

    def _pieces(self, env: Any, reading: Any, db: Any, begin: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Entries from a key on. The file may be closed between two pieces, and opened again."""
        cursor = None
        try:
            while True:
                with self._lock:
                    if self._env is not env:
                        raise Fenced("the store was closed")
                    try:
                        if cursor is None:
                            cursor = reading.cursor(db=db)
                            more = cursor.set_range(begin)
                        piece: list[tuple[bytes, bytes]] = []
                        while more and len(piece) < PIECE:
                            at, value = cursor.item()
                            piece.append((at, opened(at, value) if db is self._data else value))
                            more = cursor.next()
                    except (self._lmdb.Error, DamagedError) as error:
                        raise self._broken(error) from error
                yield from piece
                if not more:
                    return
        finally:
            with self._lock:
                if self._env is env:
                    reading.abort()

    def _open_reader(self) -> Any:
        if self._reader is None:
            raise Fenced("the store is closed")
        return self._reader

    def _broken(self, error: Exception) -> StoreBroken:
        self._spoilt = True
        return StoreBroken(f"{self._path}: {error}")

    # Write

    def apply(self, changes: Iterable[tuple[bytes, bytes | None]], place: EntriesPlace | None) -> None:
        with self._writing:
            if self._env is None:
                raise RetriableError("the store is closed")
            given = dict(changes)
            late, self._late = self._late - given.keys(), set()
            try:
                with self._env.begin(write=True, db=self._data) as writing:
                    newest = sorted({**given, **self._unchanged(writing, late)}.items())
                    grown, bodies = self._put(writing, newest, late)
                    size = self.size + grown
                    if place is not None:
                        writing.put(META, closed(META, self._kept(place, size)), db=self._meta)
                with self._lock:
                    self._reader.abort()
                    self._reader = self._env.begin(db=self._data)
                    self.size = size
                    read, before = self._read, self._read_before
                    for (key, _), body in zip(newest, bodies, strict=True):
                        if key in read:
                            read[key] = body
                            self._read_bytes += len(body or b"")
                        elif key in before:
                            before[key] = body
                if newest and self._directory is not None:
                    self._directory.mark_progress()
            except (
                *(self._lmdb.CorruptedError, self._lmdb.PageNotFoundError, self._lmdb.InvalidError, DamagedError),
            ) as error:
                self._spoilt = True
                raise RetriableError(f"the store in {self._path} cannot be read: {error}") from error
            except (self._lmdb.Error, OSError) as error:
                raise failed(self._path, error) from error

    def _unchanged(self, writing: Any, late: set[bytes]) -> dict[bytes, bytes]:
        """Entries that are to be filed under their time, with their values, as far as they are still there."""
        bodies = self._known(writing, [(key, None) for key in late]) if late else ()
        return {key: body[self._front :] for key, body in zip(late, bodies, strict=True) if body is not None}

    def _put(
        self, writing: Any, changes: list[tuple[bytes, bytes | None]], late: set[bytes]
    ) -> tuple[int, list[bytes | None]]:
        """
        Take changes, in the order of their keys.

        Args:
            writing: the transaction.
            changes: new values by key.
            late: keys that are filed under their time in any case.

        Returns:
            By how much the entries grow, and for each change what is kept of it.
        """
        grown, each, width, front = 0, self.each, self._width, self._front
        known, bodies = self._known(writing, changes), list[bytes | None]()
        new, filed = list[tuple[bytes, bytes]](), list[tuple[bytes, bytes]]()
        parts, oldest, long = PartsOfTime(width or 0), OldestParts(width or 0), False
        for (key, value), before in zip(changes, known, strict=True):
            raw = len(key) <= RAW_BYTES
            at = FRONT + key if raw else short_key(key)
            if before is not None:
                grown -= len(key) + len(before) - front + each
            under = b""
            if width is not None:
                was = None if before is None else before[:TIME_BYTES]
                now = None if value is None else parts[value[:TIME_BYTES]]
                kept = was is not None and now is not None and oldest[now] <= was <= now and key not in late
                if was is not None and not kept and was != now:
                    writing.delete(was + at, db=self._times)
                if now is not None and not kept and was != now:
                    filed.append((now + at, b"" if raw else key))
                under = (was if kept else now) or b""
            if value is None:
                bodies.append(None)
                if before is not None:
                    writing.delete(at)
                continue
            grown += len(key) + len(value) + each
            bodies.append(body := under + value)
            new.append((at, closed(at, body if raw else under + long_value(key, value))))
            long = long or not raw
        for entries, db in ((sorted(new) if long else new, self._data), (sorted(filed), self._times)):
            if entries:
                writing.cursor(db=db).putmulti(entries)
        return grown, bodies

    def _known(self, writing: Any, changes: list[tuple[bytes, bytes | None]]) -> list[bytes | None]:
        """What is kept of the keys that are changed."""
        read, before, found = self._read.get, self._read_before.get, list[Any]()
        for key, _ in changes:
            value = read(key, _UNKNOWN)
            if value is _UNKNOWN and (value := before(key, _UNKNOWN)) is _UNKNOWN:
                raw = len(key) <= RAW_BYTES
                at = FRONT + key if raw else short_key(key)
                if (value := writing.get(at)) is not None:
                    value = self._body(opened(at, value), raw=raw)
            found.append(value)
        return found

    def _kept(self, place: EntriesPlace, size: int) -> bytes:
        found = {**place._asdict(), "topic_id": place.topic_id.hex()}
        kept = {"version": VERSION, "width": self._width, "of": self._of, "size": size, **found}
        return json.dumps(kept).encode()


def library() -> Any:
    """
    LMDB, which is an optional package.

    Raises:
        ConfigError: it is not installed.
    """
    try:
        return import_module("lmdb")
    except ImportError as error:
        raise missing("Store(on_disk=True)", LMDB, error=error) from None


_UNKNOWN: Final[Any] = object()

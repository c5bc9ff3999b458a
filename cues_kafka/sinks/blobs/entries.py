"""The log of commits of one task in a store (E3), and the files that it names.

::

    <url>/_cues/<graph>.<processor>/<task>/<n, 20 digits>.json       entry n: 0, 1, 2 ... without gaps, never changed
    <url>/_cues/<graph>.<processor>/<task>/segments/<k>.json         entries 256 k to 256 k + 255 in one object
    <url>/_cues/<graph>.<processor>/<task>/outbox/...                records for Kafka of an entry that has some
    <url>/_cues/<graph>.<processor>/<task>/hint.json                 where to begin to look for the newest entry

The store refuses a second entry of a number (`BlobStore.create`). So of two processes that decide what follows entry n,
one wins, and the other one sees that. A reader of files needs nothing but this log: see `reading.files`.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

from cues_kafka.errors import CodecError, RetriableError
from cues_kafka.ports import HeldAttempt
from cues_kafka.sinks.blobs.store import BlobStore

LOGS: Final = "_cues"
"""The directory of all logs in a store."""

VERSION: Final = 1
"""The version of entries and segments. Others are refused."""

FOLDED: Final = 256
"""How many entries one segment has."""

HINTED: Final = 32
"""After how many entries the hint is written again: a start asks for at most about that many that are not there."""

KEPT_S: Final = 3600.0
"""For how many seconds an entry stays besides its segment."""

CLAIM, ATTEMPT, SETTLED = "claim", "attempt", "settled"
"""Kinds of entries: an owner says that it is there; an attempt is committed; an operator says where the task stands."""


@dataclass(frozen=True, slots=True)
class FileEntry:
    """
    A file in an entry.

    Attributes:
        path: in the store.
        table: which table it is a part of; empty: a function put it.
        rows: its number of rows; None: it has none.
        bytes: its size.
        topic, partition, first, last: the messages that it has; empty and None where a function or Spark put it.
    """

    path: str
    table: str = ""
    rows: int | None = None
    bytes: int = 0
    topic: str = ""
    partition: int | None = None
    first: int | None = None
    last: int | None = None


@dataclass(frozen=True, slots=True)
class Sweep:
    """
    A directory of dead or fenced owners, which nothing reads.

    Attributes:
        path: the directory in the store.
        keep: what is committed in it; empty: nothing.
        due: when it is looked at for the last time, in seconds since the epoch.
    """

    path: str
    keep: str
    due: float


@dataclass(frozen=True, slots=True)
class LogEntry:
    """
    One entry of a log.

    Attributes:
        kind: see `CLAIM`.
        base, step, owner, attempt: see `ports.HeldAttempt`.
        directory: of the try that it commits, in the store; empty: it has no files.
        files: what readers may read since this entry.
        outbox: path of its records for Kafka; empty: it has none.
        sweeps: directories that are to be looked at again.
        id: tells this entry from that of another process.
        time: when it was made, in seconds since the epoch.
    """

    kind: str
    base: int
    step: int
    owner: int
    attempt: str = ""
    directory: str = ""
    files: tuple[FileEntry, ...] = ()
    outbox: str = ""
    sweeps: tuple[Sweep, ...] = ()
    id: str = field(default_factory=lambda: secrets.token_hex(8))
    time: float = field(default_factory=lambda: round(time.time(), 3))

    @property
    def held(self) -> HeldAttempt:
        """What recoveries ask for."""
        return HeldAttempt(self.base, self.step, self.owner, self.attempt)


def encode_entry(entry: LogEntry) -> bytes:
    """The bytes of an entry: JSON."""
    return json.dumps({"version": VERSION, **_bare(entry)}, separators=(",", ":")).encode()


def decode_entry(data: bytes) -> LogEntry:
    """
    Read what `encode_entry` made.

    Raises:
        CodecError: it is something else, or of another release.
    """
    return _entry(_read(data))


def _bare(entry: LogEntry) -> dict[str, Any]:
    """What an entry says, without what it leaves open."""
    data = {name: value for name, value in asdict(entry).items() if value not in ("", ())}
    data["files"] = [{name: one for name, one in asdict(file).items() if one not in ("", None)} for file in entry.files]
    return data


def _read(data: bytes) -> dict[str, Any]:
    try:
        found: Any = json.loads(data)
        version = found["version"]
    except (ValueError, KeyError, TypeError) as error:
        raise CodecError(f"no entry of a log of commits: {data[:100]!r} ({error})") from None
    if version != VERSION:
        raise CodecError(
            f"the log has an entry of version {version}; this release reads version {VERSION}: run the release that "
            "wrote it, or a newer one"
        )
    return dict(found)


def _entry(found: dict[str, Any]) -> LogEntry:
    try:
        given = {name: one for name, one in found.items() if name != "version"}
        given["files"] = tuple(FileEntry(**one) for one in given.get("files", ()))
        given["sweeps"] = tuple(Sweep(**one) for one in given.get("sweeps", ()))
        return LogEntry(**given)
    except TypeError as error:
        raise CodecError(f"no entry of a log of commits: {str(found)[:100]!r} ({error})") from None


class CommitLog:
    """
    The log of one task. One process appends to it, and another one may, which is then seen.

    Methods raise `RetriableError` where the store does not answer, and `CodecError` where it holds something else.

    Args:
        store: where it is.
        name: of the log: `<graph>.<processor>/<task>`.
    """

    def __init__(self, store: BlobStore, name: str) -> None:
        self.store = store
        self.name = name
        self.directory = f"{LOGS}/{name}"

    def place(self, number: int) -> str:
        """The path of an entry."""
        return f"{self.directory}/{number:020d}.json"

    def segment_place(self, block: int) -> str:
        """The path of a segment."""
        return f"{self.directory}/segments/{block:012d}.json"

    def entry(self, number: int) -> LogEntry | None:
        """The entry of this number, if it is there by itself."""
        data = self.store.read(self.place(number))
        return None if data is None else decode_entry(data)

    def segment(self, block: int) -> tuple[LogEntry, ...] | None:
        """The entries of a block that is folded, without what only the newest one needs; None: it is not."""
        data = self.store.read(self.segment_place(block))
        if data is None:
            return None
        found = tuple(_entry(one) for one in _read(data)["entries"])
        if len(found) != FOLDED:
            raise CodecError(f"{self.segment_place(block)} has {len(found)} entries instead of {FOLDED}")
        return found

    def append(self, number: int, entry: LogEntry) -> bool:
        """
        Put an entry, if its number is free.

        Returns:
            False: another process has put one.

        Raises:
            RetriableError: no answer. The entry may be there, and may still come.
        """
        if self.store.create(self.place(number), encode_entry(entry)):
            return True
        found = self.entry(number)  # libraries ask again by themselves, and then meet what they have put
        return found is not None and found.id == entry.id

    def newest(self) -> tuple[int, LogEntry] | None:
        """The newest entry with its number; None: the log is empty. The hint and lists only say where to begin."""
        number = self._first_guess()
        found: LogEntry | None = None
        while True:
            if (entry := self.entry(number)) is not None:
                found, number = entry, number + 1
                continue
            # A gap means the end only if nothing was folded and deleted here.
            block = number // FOLDED
            if (segment := self.segment(block)) is not None:
                found, number = segment[-1], (block + 1) * FOLDED
                continue
            return None if found is None else (number - 1, found)

    def _first_guess(self) -> int:
        hinted = self.hint().get("newest", 0)
        if hinted and self.store.exists(self.place(hinted)):
            return hinted
        single = [int(one[:-5]) for one in self.store.names(self.directory) if one[:-5].isdigit()]
        if single:
            return max(single)
        folded = [int(one[:-5]) for one in self.store.names(f"{self.directory}/segments") if one[:-5].isdigit()]
        return (max(folded) + 1) * FOLDED - 1 if folded else 0

    def after(self, number: int) -> list[LogEntry]:
        """All entries from this number on, each once, also while they are folded."""
        found: list[LogEntry] = []
        first = number
        while True:
            block = number // FOLDED
            if (segment := self.segment(block)) is not None:
                found += segment[number % FOLDED :]
                number = (block + 1) * FOLDED
            elif (entry := self.entry(number)) is not None:
                found += self._singles(number, entry)
                number = first + len(found)
            elif self.segment(block) is None:  # else it was folded, and the entry deleted, just now
                return found

    def _singles(self, number: int, entry: LogEntry | None) -> Iterable[LogEntry]:
        """Entries of one block, from this one to the first that is not there."""
        end = (number // FOLDED + 1) * FOLDED
        while entry is not None:
            yield entry
            number += 1
            entry = self.entry(number) if number < end else None

    # Growth

    def hint(self) -> dict[str, int]:
        """Where to begin to look for the newest entry, and which blocks have no single entries any more."""
        data = self.store.read(f"{self.directory}/hint.json")
        try:
            found = json.loads(data) if data else {}
            return {name: int(found.get(name, 0)) for name in ("newest", "cleaned")}
        except (ValueError, AttributeError, TypeError):  # it is nothing but a hint
            return {}

    def tend(self, newest: int) -> None:
        """Write the hint, fold blocks that are full, and delete entries whose segment is older than an hour."""
        cleaned = block = self.hint().get("cleaned", 0)
        while (block + 1) * FOLDED <= newest:  # the newest entry stays by itself
            entries = self.segment(block) or self._fold(block)
            if entries[-1].time < time.time() - KEPT_S and block == cleaned:
                for number in range(block * FOLDED, (block + 1) * FOLDED):
                    self.store.delete(self.place(number))
                cleaned += 1
            block += 1
        data = json.dumps({"newest": newest, "cleaned": cleaned}).encode()
        self.store.put(f"{self.directory}/hint.json", data)

    def _fold(self, block: int) -> Sequence[LogEntry]:
        numbers = range(block * FOLDED, (block + 1) * FOLDED)
        entries = [entry for number in numbers if (entry := self.entry(number)) is not None]
        if len(entries) < FOLDED:
            raise RetriableError(f"{self.directory}: entries of block {block} are missing", code="TARGET")
        brief = [replace(one, attempt="", outbox="", sweeps=()) for one in entries[:-1]]
        data = {"version": VERSION, "entries": [_bare(one) for one in (*brief, entries[-1])]}
        self.store.create(self.segment_place(block), json.dumps(data, separators=(",", ":")).encode())
        return entries

"""The log of commits of one task in a store (E3), and the files that it names.

::

    <url>/_cues/<graph>.<processor>/<task>/<n, 20 digits>.json       entry n: 0, 1, 2 ... without gaps, never changed
    <url>/_cues/<graph>.<processor>/<task>/segments/<k>.json         entries 256 k to 256 k + 255 in one object
    <url>/_cues/<graph>.<processor>/<task>/outbox/...                records for Kafka of an entry that has some
    <url>/_cues/<graph>.<processor>/<task>/hint.json                 which segments have no single entries any more

The store refuses a second entry of a number (`BlobStore.create`). So of two processes that decide what follows entry n,
one wins, and the other one sees that. A reader of files needs nothing but this log: see `reading.files`.

An entry that is missing below another one was lost. Readers and tasks stop at such a gap: they raise `LogGap`.
An operator who gives up what lies behind it has a later entry say so, and all entries after that: `LogEntry.voids`.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final, NamedTuple, TypeAlias

from cues_kafka.errors import CodecError, RecoveryError, RetriableError
from cues_kafka.ports.target import HeldAttempt
from cues_kafka.sinks.blobs.store import LOGS, BlobStore, ObjectGone, gone

VERSION: Final = 1
"""The version of entries and segments. Others are refused."""

FOLDED: Final = 256
"""How many entries one segment has."""

TENDED: Final = 32
"""After how many entries of a process the log is looked after: see `CommitLog.tend`."""

KEPT_S: Final = 3600.0
"""For how many seconds an entry stays besides its segment."""

CLAIM, ATTEMPT, SETTLED, VOID = "claim", "attempt", "settled", "void"
"""Kinds: an owner is there; an attempt is committed; an operator says where the task stands; it does not count."""

Voids: TypeAlias = tuple[tuple[int, int], ...]
"""The first and the last numbers of entries that do not count."""


class LogGap(RecoveryError):
    """
    An entry of a log is lost, and later ones are there.

    Attributes:
        number: of the entry.
    """

    def __init__(self, url: str, name: str, number: int, top: int) -> None:
        processor = name.partition("/")[0].rpartition(".")[2]
        self.number = number
        self.lost = f"entry {number} of the log of commits of {name} is missing, and entry {top} is there"
        super().__init__(
            f"{self.lost}: {url} was lost",
            remedy="put it back, from a backup or an older version of the bucket. Or give up what the log has behind "
            f"it, and have it delivered again: `cues-kafka reset MODULE:GRAPH {processor} --to database`. On Spark, "
            f"`cues-kafka reset MODULE:GRAPH {processor}` begins again",
        )

    def __str__(self) -> str:
        return f"{super().__str__()}. Remedy: {self.remedy}"


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
        base, step, owner, attempt: see `ports.target.HeldAttempt`.
        directory: of the try that it commits, in the store; empty: it has no files.
        files: what readers may read since this entry.
        outbox: path of its records for Kafka; empty: it has none.
        sweeps: directories that are to be looked at again.
        voids: the first and the last number of entries that do not count; later entries say the same.
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
    voids: Voids = ()
    id: str = field(default_factory=lambda: secrets.token_hex(8))
    time: float = field(default_factory=lambda: round(time.time(), 3))

    @property
    def held(self) -> HeldAttempt:
        """What recoveries ask for."""
        return HeldAttempt(self.base, self.step, self.owner, self.attempt)


def encode_entry(entry: LogEntry, log: str) -> bytes:
    """The bytes of an entry: JSON. `log` is the name of its log: a copy in the directory of another one is no entry."""
    return json.dumps({"version": VERSION, "log": log, **_bare(entry)}, separators=(",", ":")).encode()


def decode_entry(data: bytes, log: str) -> LogEntry:
    """
    Read what `encode_entry` made.

    Raises:
        CodecError: it is something else, of another release, or of another log.
    """
    return _entry(_read(data, log))


def _bare(entry: LogEntry) -> dict[str, Any]:
    """What an entry says, without what it leaves open."""
    data = {name: value for name, value in asdict(entry).items() if value not in ("", ())}
    data["files"] = [{name: one for name, one in asdict(file).items() if one not in ("", None)} for file in entry.files]
    return data


def _read(data: bytes, log: str) -> dict[str, Any]:
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
    if (of := found.get("log")) != log:
        raise CodecError(
            f"the directory of the log of commits of {log} has an entry of {of or 'no log'}: it was copied from there. "
            "Put back what was there before, from a backup; if nothing was, delete the copy"
        )
    return dict(found)


def _entry(found: dict[str, Any]) -> LogEntry:
    try:
        given = {name: one for name, one in found.items() if name not in ("version", "log")}
        given["files"] = tuple(FileEntry(**one) for one in given.get("files", ()))
        given["sweeps"] = tuple(Sweep(**one) for one in given.get("sweeps", ()))
        given["voids"] = tuple((int(first), int(last)) for first, last in given.get("voids", ()))
        return LogEntry(**given)
    except (TypeError, ValueError) as error:
        raise CodecError(f"no entry of a log of commits: {str(found)[:100]!r} ({error})") from None


class LogEnds(NamedTuple):
    """
    Where a log stands.

    Attributes:
        newest: the newest entry below which all are there, with its number; None: there is none.
        top: the newest entry of all; another one only where there is a gap.
        gap: what is lost between the two; None: nothing.
    """

    newest: tuple[int, LogEntry] | None
    top: tuple[int, LogEntry] | None
    gap: LogGap | None


class _Listed(NamedTuple):
    """
    What a list of a log says.

    Attributes:
        single: numbers of entries that are there by themselves.
        folded: numbers of blocks that have a segment.
    """

    single: set[int]
    folded: set[int]


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
        return None if data is None else decode_entry(data, self.name)

    def segment(self, block: int) -> tuple[LogEntry, ...] | None:
        """The entries of a block that is folded, without what only the newest one needs; None: it is not."""
        data = self.store.read(self.segment_place(block))
        if data is None:
            return None
        found = tuple(_entry(one) for one in _read(data, self.name)["entries"])
        if len(found) != FOLDED:
            raise CodecError(f"{self.segment_place(block)} has {len(found)} entries instead of {FOLDED}")
        return found

    def append(self, number: int, entry: LogEntry) -> bool:
        """
        Put an entry behind the one before it, if its number is free.

        Returns:
            False: another process has put one.

        Raises:
            ObjectGone: the entry before it is not there, so this is not the log that the process knows.
            RetriableError: no answer. The entry may be there, and may still come.
        """
        data, former = encode_entry(entry, self.name), number - 1
        try:
            if not number and self.segment(0) is not None:
                raise gone(self.place(0))
            put = self.store.create(self.place(number), data, after=self.place(former) if number else "")
        except ObjectGone:
            if number and self.segment(former // FOLDED) is None:
                raise
            folded = self.segment(number // FOLDED)
            if folded is not None:  # the number was taken long ago, and its entry is deleted
                return folded[number % FOLDED].id == entry.id
            put = self.store.create(self.place(number), data)
        if put:
            return True
        found = self.entry(number)  # libraries ask again by themselves, and then meet what they have put
        return found is not None and found.id == entry.id

    def newest(self) -> tuple[int, LogEntry] | None:
        """
        The newest entry with its number; None: the log is empty.

        Raises:
            LogGap: an entry below it is lost.
        """
        found = self.standing()
        if found.gap is not None:
            raise found.gap
        return found.newest

    def standing(self) -> LogEnds:
        """How far the log goes without a gap, and where it ends. A list says where to look, and reading decides."""
        listed = self._listed()
        top = self._top(listed)
        missing = None if top is None else next(self._missing(listed, *top), None)
        if top is None or missing is None:
            return LogEnds(top, top, None)
        before = next((n for n in range(missing - 1, -1, -1) if not _is_void(n, top[1].voids)), None)
        entry = None if before is None else self._at(listed, before)
        newest = None if before is None or entry is None else (before, entry)
        return LogEnds(newest, top, self._gap(missing, top[0]))

    def _listed(self) -> _Listed:
        single = self._numbers(self.directory)  # a single entry that is missing here is in a segment by now
        return _Listed(single, self._numbers(f"{self.directory}/segments"))

    def _numbers(self, directory: str) -> set[int]:
        return {int(one[:-5]) for one in self.store.names(directory) if one[:-5].isdigit()}

    def _top(self, listed: _Listed) -> tuple[int, LogEntry] | None:
        """The newest entry. Those that are younger than the list are there one by one."""
        number = max((*listed.single, *((block + 1) * FOLDED - 1 for block in listed.folded)), default=0)
        found: tuple[int, LogEntry] | None = None
        while (entry := self._at(listed, number)) is not None:
            found, number = (number, entry), number + 1
        if found is None and number:
            raise RetriableError(f"{self.place(number)} went away while the log was read", code="TARGET")
        return found

    def _at(self, listed: _Listed, number: int) -> LogEntry | None:
        """The entry of this number, by itself or in its segment, where a late put of a zombie is not looked at."""
        block, place = divmod(number, FOLDED)
        if block not in listed.folded and (entry := self.entry(number)) is not None:
            return entry
        segment = self.segment(block)
        return None if segment is None else segment[place]

    def _missing(self, listed: _Listed, top: int, newest: LogEntry) -> Iterator[int]:
        """Numbers below the newest one whose entries are neither in the list nor there."""
        for block in range(top // FOLDED + 1):
            numbers = range(block * FOLDED, min((block + 1) * FOLDED, top))
            for number in () if block in listed.folded else sorted(set(numbers) - listed.single):
                if not _is_void(number, newest.voids) and self._at(listed, number) is None:
                    yield number

    def _gap(self, number: int, top: int) -> LogGap:
        return LogGap(self.store.url(self.place(number)), self.name, number, top)

    def after(self, number: int) -> list[LogEntry]:
        """
        All entries from this number on that count, each once, also while they are folded.

        Raises:
            LogGap: one is lost.
        """
        top = self._top(self._listed())
        if top is None:
            return []
        voids, found, block = top[1].voids, list[LogEntry](), -1
        segment: tuple[LogEntry, ...] | None = None
        while True:
            if number // FOLDED != block:
                block = number // FOLDED
                segment = self.segment(block)
            entry = segment[number % FOLDED] if segment else self.entry(number)
            if entry is None and not _is_void(number, voids):
                segment = self.segment(block)  # it was folded, and the entry deleted, just now
                if segment is None and number <= top[0]:
                    raise self._gap(number, top[0])
                if segment is None:
                    return found
                entry = segment[number % FOLDED]
            if entry is not None and not _is_void(number, voids):
                found.append(entry)
            number += 1

    # Growth

    def hint(self) -> dict[str, int]:
        """Up to which block no single entries are left, and which entry was the newest one then."""
        data = self.store.read(f"{self.directory}/hint.json")
        try:
            found = json.loads(data) if data else {}
            return {name: int(found.get(name, 0)) for name in ("newest", "cleaned")}
        except (ValueError, AttributeError, TypeError):  # it is nothing but a hint
            return {}

    def tend(self, newest: int) -> None:
        """Write the hint, fold blocks that are full, and delete entries whose segment is older than an hour."""
        cleaned = block = self.hint().get("cleaned", 0)
        last = self.entry(newest)
        while (block + 1) * FOLDED <= newest:  # the newest entry stays by itself
            entries = self.segment(block) or self._fold(block, last.voids if last else ())
            if entries[-1].time < time.time() - KEPT_S and block == cleaned:
                for number in range(block * FOLDED, (block + 1) * FOLDED):
                    self.store.delete(self.place(number))
                cleaned += 1
            block += 1
        data = json.dumps({"newest": newest, "cleaned": cleaned}).encode()
        self.store.put(f"{self.directory}/hint.json", data)

    def _fold(self, block: int, voids: Voids) -> Sequence[LogEntry]:
        entries: list[LogEntry] = []
        for number in range(block * FOLDED, (block + 1) * FOLDED):
            entry = LogEntry(VOID, 0, 0, 0) if _is_void(number, voids) else self.entry(number)
            if entry is None:
                raise RetriableError(f"{self.place(number)} is missing, so its block is not folded", code="TARGET")
            entries.append(entry)
        brief = [replace(one, attempt="", outbox="", sweeps=()) for one in entries[:-1]]
        data = {"version": VERSION, "log": self.name, "entries": [_bare(one) for one in (*brief, entries[-1])]}
        self.store.create(self.segment_place(block), json.dumps(data, separators=(",", ":")).encode())
        return entries


def _is_void(number: int, voids: Voids) -> bool:
    return any(first <= number <= last for first, last in voids)

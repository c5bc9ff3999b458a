"""Files as sources of feeds: lines of files that grow, and whole files of a directory.

The place names every file that is there, with its identity and how far it was read. So files may grow side by side, new
ones may have any name, and what was replaced or cut short is noticed, in whatever process. A file's identity is its
number in the file system and digests of its first bytes, and of the last ones that were delivered: numbers are used
again when a file is gone, and a file that is cut to nothing keeps its number.
"""

from __future__ import annotations

import glob
import json
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import IO, Any, Final, NamedTuple
from zlib import crc32

from cues_kafka.arguments import known_arguments
from cues_kafka.errors import GraphError, RecoveryError
from cues_kafka.graph.feed import Encoded
from cues_kafka.graph.message import Message

HEAD_BYTES: Final = 256
"""Bytes at a file's beginning whose digest is part of its identity, as far as they were delivered."""

TAIL_BYTES: Final = 256
"""Bytes before the place that are part of a file's identity, as a CRC-32: it is made for each line."""

CHUNK_BYTES: Final = 256 * 1024

LONGEST_BYTES: Final = 64 * 1024 * 1024
"""The longest line, and the largest file that is one message. Brokers take far less."""

PLACE_BYTES: Final = 190_000
"""A place is in each record of the task, which has room for 200,000 bytes of it: about 2,000 files."""

MOST_AWAY: Final = 10_000
"""Files that are gone of which a process remembers how far they were delivered, in case that they come back."""


class Entry(NamedTuple):
    """
    How far a file was delivered.

    Attributes:
        name: relative to the directory that the pattern begins with.
        number: of the file in the file system.
        digest: of its first bytes, at most `HEAD_BYTES`, none behind `offset`; of a `Directory`, of all its bytes.
        offset: bytes that were delivered, whole lines only.
        line: how many lines these are.
        tail: CRC-32 of the last bytes before `offset`, at most `TAIL_BYTES`; empty: not known, as for a `Directory`.
    """

    name: str
    number: int
    digest: str
    offset: int
    line: int
    tail: str = ""


class Listing:
    """
    The files of a pattern that belong to one part, and how far each was delivered.

    Attributes:
        entries: by name.
        place: of these entries; another one is asked for after a failure, and has other entries.
        seen: of files that were looked through to their end since then, the size and the time of the last change.
        known: up to where files are known to hold something that is to be delivered, since then.
    """

    def __init__(self, pattern: str, part: int, parts: int, *, whole: bool = False) -> None:
        self.entries: dict[str, Entry] = {}
        self.place: str | None = None
        self.seen: dict[str, tuple[int, int]] = {}
        self.known: dict[str, int] = {}
        self._away: dict[str, Entry] = {}
        self._stamps: dict[str, tuple[int, ...]] = {}  # of files that were found as they were delivered
        self._pattern, self._part, self._parts, self._whole = pattern, part, parts, whole
        self._root = _root_of(pattern)

    def stand_at(self, place: str | None) -> None:
        """
        Go back, or on, to a place.

        Raises:
            RecoveryError: this is no place of files.
        """
        if place == self.place:
            return
        self.entries, self.place = {entry.name: entry for entry in _read_place(place)}, place
        self.seen, self.known, self._away = {}, {}, {}

    def files(self) -> list[tuple[str, Path]]:
        """
        The files that are there, by name. Entries of files that are gone end, unless the same file comes back.

        Raises:
            OSError: the directory of the pattern cannot be listed, or the file is not there and nothing was read of it.
            RecoveryError: a file is gone that was known to hold more.
        """
        self._look_at_root()
        paths = [Path(one) for one in glob.glob(self._pattern, recursive=True)]  # noqa: PTH207 - absolute ones, too
        found = {os.path.relpath(path, self._root): path for path in paths if path.is_file()}
        mine = {name: path for name, path in found.items() if self._is_mine(name)}
        for name in sorted((self.entries.keys() | self.known.keys()) - mine.keys()):
            self._gone(name)
        for name in self._away.keys() & mine.keys():
            self._back(self._away[name], mine[name])
            del self._away[name]
        if not found and not glob.has_magic(self._pattern):
            raise FileNotFoundError(f"{self._pattern!r} does not exist")
        return sorted(mine.items())

    def _look_at_root(self) -> None:
        """`glob` takes a directory that cannot be read for one that is empty, and all of its files would be gone."""
        if glob.has_magic(self._pattern):
            os.scandir(self._root).close()
        else:
            self._root.stat()

    def _is_mine(self, name: str) -> bool:
        if self._parts == 1:
            return True
        return int.from_bytes(blake2b(os.fsencode(name), digest_size=8).digest()) % self._parts == self._part

    def _gone(self, name: str) -> None:
        entry = self.entries.get(name, Entry(name, 0, "", 0, 0))
        if (left := self.known.get(name, 0) - entry.offset) > 0:
            raise RecoveryError(
                f"file {name!r} was removed, and {left} bytes after line {entry.line} were not delivered",
                remedy="put it back; or restart the worker, which then goes on without them",
            )
        if name in self.entries:
            self._away[name] = self.entries.pop(name)
        self.seen.pop(name, None)
        self.known.pop(name, None)
        if len(self._away) > MOST_AWAY:
            del self._away[next(iter(self._away))]

    def _back(self, entry: Entry, path: Path) -> None:
        """Go on with a file that was away for a moment, as with its file system; another one of its name is new."""
        if self._whole:
            if self.is_same(entry, path, path.stat()):
                self.entries[entry.name] = entry
            return
        with path.open("rb") as opened, suppress(RecoveryError):
            self.entries[entry.name] = _same_file(opened, entry.name, entry)[2]

    def is_same(self, entry: Entry, path: Path, facts: os.stat_result) -> bool:
        """Whether a file that was delivered as a whole is as it was; it is read where the file system cannot tell."""
        stamp = facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns
        if self._stamps.get(entry.name) == stamp:
            return True
        same = (entry.number, entry.offset) == stamp[:2] and _digest(path.read_bytes()) == entry.digest
        if same:
            self._stamps[entry.name] = stamp
        return same

    def others(self, name: str) -> str:
        """The beginning of a place whose last entry is that of this file."""
        rest = [entry for entry in self.entries.values() if entry.name != name]
        text = "".join(f"{json.dumps(entry, separators=(',', ':'))}," for entry in rest)
        if len(text.encode()) > PLACE_BYTES:
            raise RecoveryError(
                f"{len(rest)} files are more than a place has room for ({PLACE_BYTES:,} bytes of names)",
                remedy="move files away that are delivered, or share them between more tasks: a feed of a new name "
                "with Files(..., tasks=4)",
            )
        return f'{{"files":[{text}'

    def moved(self, begin: str, entry: Entry) -> str:
        """Note how far a file was delivered; gives the place. `begin` is what `others` and `identity` gave."""
        self.entries[entry.name] = entry
        tail = f',"{entry.tail}"' if entry.tail else ""
        self.place = f"{begin}{entry.offset},{entry.line}{tail}]]}}"
        return self.place


def identity(name: str, number: int, digest: str) -> str:
    """The beginning of an entry in a place, up to how far the file was delivered."""
    return f'[{json.dumps(name)},{number},"{digest}",'


@known_arguments()
@dataclass(frozen=True, slots=True)
class Files:
    """
    The lines of files, each one a message, for a `Feed`.

    A line is delivered once it is whole, with its end. Files are read in the order of their names, each one up to its
    present end; then those that have grown, and new ones. Lines are in the bytes of the topic's codec.

    Attributes:
        pattern: a file, or a pattern such as ``logs/*.jsonl``; ``**`` stands for directories. It is resolved in the
            process that reads.
        tasks: how many tasks share the files, by their names.
        name_header: a header of each message that gets the file's name; None: none.
    """

    pattern: str | os.PathLike[str]
    tasks: int = field(default=1, kw_only=True)
    name_header: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        _check(self, self.pattern, self.tasks)
        object.__setattr__(self, "pattern", os.fspath(self.pattern))

    def parts(self) -> int:
        return self.tasks

    def open(self) -> FileReader:
        """Make what a process reads from."""
        return FileReader(self)

    def read(self, part: int, place: str | None, limit: int) -> Iterator[tuple[Message[Any], str]]:
        """See `ReplayableSource`; each call looks at all files again."""
        return self.open().read(part, place, limit)

    def show(self, place: str) -> str:
        """The file and the line."""
        return _show(place)


class FileReader:
    """Reads `Files` in one process."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._listings: dict[int, Listing] = {}

    def parts(self) -> int:
        return self._files.tasks

    def read(self, part: int, place: str | None, limit: int) -> Iterator[tuple[Message[Any], str]]:
        listing = self._listings.get(part)
        if listing is None:
            listing = self._listings[part] = Listing(str(self._files.pattern), part, self._files.tasks)
        listing.stand_at(place)
        for name, path in listing.files():
            yield from self._lines_of(listing, name, path)

    def _lines_of(self, listing: Listing, name: str, path: Path) -> Iterator[tuple[Message[Any], str]]:
        entry, facts = listing.entries.get(name), path.stat()
        if entry is None and facts.st_size == 0:
            return
        seen = facts.st_size, facts.st_mtime_ns
        if seen == listing.seen.get(name) and (entry is None or facts.st_ino == entry.number):
            return
        with path.open("rb") as opened:
            changed_ns = os.fstat(opened.fileno()).st_mtime_ns  # before it is read: what comes meanwhile is read next
            head, tail, entry = _same_file(opened, name, entry)
            headers = {self._files.name_header: _readable(name)} if self._files.name_header else {}
            others, number = listing.others(name), entry.number
            digest = _digest(head)
            begin = others + identity(name, number, digest)
            line, end, behind = entry.line, entry.offset, entry.offset
            listing.known[name] = os.fstat(opened.fileno()).st_size
            for data, end in _whole_lines(opened, name, entry.offset):
                line += 1
                tail = _tail_with(tail, data)
                if len(head) < HEAD_BYTES:
                    opened_at = opened.tell()
                    opened.seek(0)
                    head = opened.read(min(HEAD_BYTES, end))
                    opened.seek(opened_at)
                    digest = _digest(head)
                    begin = others + identity(name, number, digest)
                if value := data.removesuffix(b"\r"):
                    at = listing.moved(begin, Entry(name, number, digest, end, line, f"{crc32(tail):x}"))
                    behind = end
                    yield Message(Encoded(value), headers=headers), at
            size = opened.tell()
            listing.seen[name] = size, changed_ns
            listing.known[name] = behind + size - end  # behind them the file has only empty lines


def _tail_with(tail: bytes, line: bytes) -> bytes:
    """The last bytes of a file that has one more line; `tail` are those before."""
    if len(line) >= TAIL_BYTES:
        return line[1 - TAIL_BYTES :] + b"\n"
    return (tail + line + b"\n")[-TAIL_BYTES:]


def _whole_lines(opened: IO[bytes], name: str, offset: int) -> Iterator[tuple[bytes, int]]:
    """The lines from an offset on, without the newlines at their ends, and where each one ends."""
    opened.seek(offset)
    kept = b""
    while chunk := opened.read(CHUNK_BYTES):
        *lines, kept = (kept + chunk).split(b"\n")
        for data in lines:
            offset += len(data) + 1
            yield data, offset
        if len(kept) > LONGEST_BYTES:
            raise RecoveryError(
                f"file {name!r} has more than {LONGEST_BYTES:,} bytes after offset {offset} without the end of a line",
                remedy="see whether it is a file of lines; a feed reads text, one message in each line",
            )


def _same_file(opened: IO[bytes], name: str, entry: Entry | None) -> tuple[bytes, bytes, Entry]:
    """
    The first bytes of a file, the last ones that were delivered, and how far it was delivered.

    Raises:
        RecoveryError: it is another file than before, or is shorter.
    """
    facts = os.fstat(opened.fileno())
    if entry is None:
        return b"", b"", Entry(name, facts.st_ino, "", 0, 0)
    head = opened.read(min(HEAD_BYTES, entry.offset))
    opened.seek(max(0, entry.offset - TAIL_BYTES))
    tail = opened.read(min(TAIL_BYTES, entry.offset))
    if facts.st_size < entry.offset:
        what = f"has {facts.st_size} bytes, and {entry.offset} were delivered of it: it was cut short, or replaced"
    elif facts.st_ino != entry.number or _digest(head) != entry.digest:
        what = f"is another one than the one of which {entry.line} lines were delivered: it was replaced"
    elif entry.tail and f"{crc32(tail):x}" != entry.tail:
        what = (
            f"has other bytes before offset {entry.offset} than the {entry.line} lines that were delivered: it was cut "
            "to nothing and has grown since, as copytruncate does, or was changed"
        )
    else:
        return head, tail, entry
    raise RecoveryError(
        f"file {name!r} {what}",
        remedy="put the file back; or move what is there now to a name that was not used before, and it is read "
        "from its beginning",
    )


@known_arguments()
@dataclass(frozen=True, slots=True)
class Directory:
    """
    The files of a directory, each one a message as a whole, for a `Feed`.

    A file must be complete when it gets its name: write it under another name, and rename it. Values are in the bytes
    of the topic's codec.

    Attributes:
        pattern: such as ``in/*.xml``.
        tasks: how many tasks share the files, by their names.
        name_header: a header of each message that gets the file's name; None: none.
    """

    pattern: str | os.PathLike[str]
    tasks: int = field(default=1, kw_only=True)
    name_header: str | None = field(default="file", kw_only=True)

    def __post_init__(self) -> None:
        _check(self, self.pattern, self.tasks)
        pattern = os.fspath(self.pattern)
        object.__setattr__(self, "pattern", pattern if glob.has_magic(pattern) else str(Path(pattern) / "*"))

    def parts(self) -> int:
        return self.tasks

    def open(self) -> DirectoryReader:
        """Make what a process reads from."""
        return DirectoryReader(self)

    def read(self, part: int, place: str | None, limit: int) -> Iterator[tuple[Message[Any], str]]:
        """See `ReplayableSource`; each call looks at all files again."""
        return self.open().read(part, place, limit)

    def show(self, place: str) -> str:
        """The file."""
        return f"file {_read_place(place)[-1].name!r}"


class DirectoryReader:
    """Reads a `Directory` in one process."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._listings: dict[int, Listing] = {}

    def parts(self) -> int:
        return self._directory.tasks

    def read(self, part: int, place: str | None, limit: int) -> Iterator[tuple[Message[Any], str]]:
        listing = self._listings.get(part)
        if listing is None:
            listing = self._listings[part] = Listing(
                str(self._directory.pattern), part, self._directory.tasks, whole=True
            )
        listing.stand_at(place)
        for name, path in listing.files():
            facts = path.stat()
            entry = listing.entries.get(name)
            if entry is not None and not listing.is_same(entry, path, facts):
                raise RecoveryError(
                    f"file {name!r} was changed or replaced after it was delivered",
                    remedy="put it back; or give what is there now a name that was not used before",
                )
            if entry is not None:
                continue
            if facts.st_size > LONGEST_BYTES:
                raise RecoveryError(
                    f"file {name!r} has {facts.st_size:,} bytes, more than a message can have",
                    remedy="take it out of the directory; to read its lines, use Files",
                )
            data, header = path.read_bytes(), self._directory.name_header
            entry = Entry(name, facts.st_ino, _digest(data), len(data), 1)
            message: Message[Any] = Message(Encoded(data), headers={header: _readable(name)} if header else {})
            begin = listing.others(name) + identity(name, entry.number, entry.digest)
            yield message, listing.moved(begin, entry)


def _check(source: object, pattern: object, tasks: object) -> None:
    label = type(source).__name__
    if not isinstance(pattern, str | os.PathLike) or not os.fspath(pattern):
        raise GraphError(f"{label}({pattern!r}): takes a path, or a pattern such as 'logs/*.jsonl'.")
    if isinstance(tasks, bool) or not isinstance(tasks, int) or tasks < 1:
        raise GraphError(f"{label}(tasks={tasks!r}): takes a whole number from 1 on.")


def _root_of(pattern: str) -> Path:
    """The directory that a pattern begins with."""
    root = Path(pattern)
    while glob.has_magic(str(root)):
        root = root.parent
    return root if glob.has_magic(pattern) else root.parent


def _read_place(place: str | None) -> list[Entry]:
    if place is None:
        return []
    try:
        return [Entry(*one) for one in json.loads(place)["files"]]
    except (ValueError, KeyError, TypeError) as error:
        raise RecoveryError(
            f"{place[:80]!r} is not a position in files ({type(error).__name__}): the feed had another source before",
            remedy="give the feed a new name=, or its former source",
        ) from error


def _show(place: str) -> str:
    newest = _read_place(place)[-1]
    return f"file {newest.name!r}, line {newest.line}"


def _readable(name: str) -> str:
    """A name as a header has it: bytes that are not UTF-8 are written as hexadecimal numbers."""
    return os.fsencode(name).decode(errors="backslashreplace")


def _digest(data: bytes) -> str:
    return blake2b(data, digest_size=8).hexdigest() if data else ""

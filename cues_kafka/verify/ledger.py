"""The books of `verify`: the outcomes of each message of an input.

The books take one byte for each offset, in pages that appear where offsets are. A million messages cost 1 MB for each
task that reads them, and 3 MB if deliveries have several records. This module neither reads nor decides what is right:
`verify.scan` feeds the books and draws the balance.
"""

from __future__ import annotations

import functools
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from cues_kafka.ports.log import Headers, WireMessage, headers_of_each
from cues_kafka.records.strangers import MOST
from cues_kafka.verify.seen_parts import SeenParts

EXISTS, OUTPUT, ERROR = 1, 2, 4
"""Bits of an offset: the input holds it; it was seen as an output; it was seen as an error."""

OUTCOME = OUTPUT | ERROR

UNFOUNDED = (OUTPUT, ERROR, OUTCOME)
"""An outcome of a message that the input does not hold."""

EXAMPLES = 5
"""Number of offsets to show for each kind of anomaly."""

BITS = 16
SIZE = 1 << BITS
"""Number of offsets in a page, which has one byte for each."""

LOW = SIZE - 1
_WIDE = 8
"""A delivery with more records than this is kept in a dictionary, which takes about 200 bytes each."""

_EXIST = bytes(value | EXISTS for value in range(256))
_TRACKS = 4096


class Balance(NamedTuple):
    """
    What the books of one input say about a range of offsets.

    Attributes:
        exist: messages that the input holds.
        outputs: deliveries with an output.
        errors: deliveries with an error.
        seen: deliveries with any outcome.
        unfounded: deliveries among these whose message the input does not hold.
    """

    exist: int
    outputs: int
    errors: int
    seen: int
    unfounded: int


class Marks:
    """
    The books of one input of one task.

    Attributes:
        begin: where the task began; messages below are not its steps.
        end: its position; outcomes at or above it count in `ahead` only.
        ahead: offsets of these outcomes.
        more: output records after the first of each delivery, each index counted once.
        duplicated: records for which another outcome of the same delivery leaves no room.
        out_of_order: records whose offset is below that of the record before them in the same partition.
        malformed: records with an index that their count does not allow, or with impossible offsets.
        pages: flags of offsets, see `page`.
        pairs: for a join, the offsets that its outcomes name, one for each input, in one list.
        examples: offsets to show, by kind of anomaly.
    """

    __slots__ = (
        "_parts", "_wide", "ahead", "begin", "duplicated", "end", "examples", "malformed",
        "more", "out_of_order", "pages", "pairs",
    )  # fmt: skip

    def __init__(self, begin: int, end: int) -> None:
        self.begin = begin
        self.end = end
        self.ahead = array("q")
        self.more = self.duplicated = self.out_of_order = self.malformed = 0
        self.pairs = array("q")
        self.examples: dict[str, list[int]] = {}
        self.pages: dict[int, bytearray] = {}
        self._parts: dict[int, array[int]] = {}  # count and, bit by bit, which records were seen
        self._wide: dict[int, tuple[int, SeenParts]] = {}  # by offset the count, and which were seen

    # Writing

    def exist(self, offsets: Sequence[int]) -> None:
        """Enter messages that the input holds, ascending; those outside `[begin, end)` are left out."""
        at, size = bisect_left(offsets, self.begin), bisect_left(offsets, self.end)
        while at < size:
            number = offsets[at] >> BITS
            until = bisect_left(offsets, (number + 1) << BITS, at, size)
            page = self.page(number)
            first, last = offsets[at] & LOW, offsets[until - 1] & LOW
            if last - first == until - 1 - at:
                page[first : last + 1] = page[first : last + 1].translate(_EXIST)
            else:
                for offset in offsets[at:until]:
                    page[offset & LOW] |= EXISTS
            at = until

    def page(self, number: int) -> bytearray:
        """The flags of offsets `number * 65536` and up."""
        return page_of(self.pages, number)

    def note(self, offset: int, index: int, count: int, kind: int) -> bool:
        """
        Enter an outcome: record `index` of `count` of the delivery of `offset`.

        Returns:
            Whether there was room for it.
        """
        number, at = offset >> BITS, offset & LOW
        page = self.pages.get(number) or self.page(number)
        flags = page[at]
        first = not flags & kind
        if first:
            page[at] = flags | kind
            if flags & OUTCOME:
                self._twice(offset)  # an error besides outputs: counted once, however many outputs there are
        if not (first if count == 1 else self._part(offset, index, count, first=first)):
            self._twice(offset)
            return False
        if not first:
            self.more += 1
        return True

    def _part(self, offset: int, index: int, count: int, *, first: bool) -> bool:
        """Enter one of several records of a delivery."""
        if count > _WIDE:
            return self._wide_part(offset, index, count, first=first)
        parts, at = self._parts.get(offset >> BITS), offset & LOW
        if parts is None:
            parts = self._parts[offset >> BITS] = array("H", bytes(2 * SIZE))
        bit = 1 << index
        value = count << 8 if first else parts[at]
        if value >> 8 != count or value & bit:
            return False
        parts[at] = value | bit
        return True

    def _wide_part(self, offset: int, index: int, count: int, *, first: bool) -> bool:
        """Enter one of many records of a delivery."""
        known, parts = self._wide.get(offset) or (count if first else 0, SeenParts())
        if known != count or not parts.note(index):
            return False
        self._wide[offset] = (count, parts)
        return True

    def _twice(self, offset: int) -> None:
        self.duplicated += 1
        self.example("duplicated", offset)

    def example(self, kind: str, offset: int) -> None:
        """Keep an offset to show, as long as there are few."""
        kept = self.examples.setdefault(kind, [])
        if len(kept) < EXAMPLES:
            kept.append(offset)

    # Reading

    def balance(self, start: int, end: int) -> Balance:
        """Sum up the books of `[start, end)`."""
        found = [0] * 8
        for number, page in self.pages.items():
            first, last = max(start - (number << BITS), 0), min(end - (number << BITS), SIZE)
            if first < last:
                for flags in range(1, 8):
                    found[flags] += page.count(flags, first, last)
        having = {kind: sum(n for flags, n in enumerate(found) if flags & kind) for kind in (1, 2, 4, 6)}
        unfounded = sum(found[flags] for flags in UNFOUNDED)
        return Balance(having[EXISTS], having[OUTPUT], having[ERROR], having[OUTCOME], unfounded)

    def has_output(self, offset: int) -> bool:
        """Whether an output of the delivery of this offset was seen."""
        page = self.pages.get(offset >> BITS)
        return page is not None and bool(page[offset & LOW] & OUTPUT)

    def torn(self) -> list[int]:
        """Offsets of deliveries of which some records were seen and others were not, ascending."""
        torn = [offset for offset, (count, parts) in self._wide.items() if parts.count != count]
        for number, parts in self._parts.items():
            partial = {value for value in set(parts) if value & 255 != (1 << (value >> 8)) - 1}
            if partial:
                torn += [(number << BITS) + at for at, value in enumerate(parts) if value in partial]
        return sorted(torn)

    def found(self, flags: Iterable[int], start: int, end: int) -> Iterator[int]:
        """Offsets in `[start, end)` with exactly one of these flags, in no order between pages."""
        for number, page in self.pages.items():
            base = number << BITS
            first, last = max(start - base, 0), min(end - base, SIZE)
            for value in flags:
                at = page.find(value, first, last) if first < last else -1
                while at >= 0:
                    yield base + at
                    at = page.find(value, at + 1, last)


class Track:
    """
    Outcomes of one input of one task in one partition of one topic.

    Attributes:
        marks: the books.
        kind: `OUTPUT` or `ERROR`.
        ends: for a join, the positions of all its inputs; else empty.
        last: consumed offset of the last record.
    """

    __slots__ = ("ends", "kind", "last", "marks")

    def __init__(self, marks: Marks, kind: int, ends: tuple[int, ...] = ()) -> None:
        self.marks = marks
        self.kind = kind
        self.ends = ends
        self.last = -1

    def several(self, part: bytes, where: bytes) -> None:
        """Note a record of a join, or one of several of its delivery."""
        index, count = _numbers(part)
        if count > 1 and self.kind == ERROR:
            raise ValueError(part)
        marks = self.marks
        offsets: tuple[int, ...] = ()
        if self.ends:
            offsets = tuple(map(int, where.split(b",")))
            if len(offsets) != len(self.ends):
                raise ValueError(where)
            offset = offsets[0] if all(map(int.__lt__, offsets, self.ends)) else max(offsets[0], marks.end)
        else:
            offset = int(where)
        if not 0 <= offset <= MOST or not all(0 <= one <= MOST for one in offsets):
            raise ValueError(where)
        if offset >= marks.end:
            marks.ahead.append(offset)
            return
        if not marks.note(offset, index, count, self.kind):
            return
        if index == 0:
            marks.pairs.extend(offsets)
        if offset < self.last:
            self.disorder(offset)
        self.last = offset

    def disorder(self, offset: int) -> None:
        """Note that a record stands behind one of a later message."""
        self.marks.out_of_order += 1
        self.marks.example("out of order", offset)


class Outcomes:
    """
    Read the provenance headers of one partition of one topic.

    Attributes:
        unmarked: records without such a header, and those whose headers cannot be read.
        foreign: records of tasks that are not verified, by `graph.processor`.
        unreadable: records whose header makes no sense.
    """

    __slots__ = ("_header", "_resolve", "_tracks", "foreign", "unmarked", "unreadable")

    def __init__(self, header: str, resolve: Callable[[bytes], Track | None]) -> None:
        """
        Args:
            header: name of the header.
            resolve: gives the track for the first words of a header (all but the last two), or None for a task that is
                not verified; raises `ValueError` if the header makes no sense.
        """
        self._header = header
        self._resolve = resolve
        self._tracks: dict[bytes, Track | None] = {}
        self.unmarked = self.unreadable = 0
        self.foreign: Counter[str] = Counter()

    def feed(self, messages: Sequence[WireMessage]) -> None:
        """
        Note the messages that these outcomes, in order of offset, belong to. Every line here costs time for each
        message.

        Records of one batch follow each other, and their headers begin alike. Most deliveries have one record.
        """
        name, shared = self._header, b"\0"
        track: Track | None = None
        for headers in headers_of_each(messages):
            header = headers[0][1] if headers and headers[0][0] == name else self._behind(headers)
            if header is None:
                self.unmarked += 1
                continue
            try:
                if not header.startswith(shared):
                    shared, track = self._shared(header)
                if track is None:
                    self.foreign[shared.split(b" ", 2)[1].rpartition(b"/")[0].decode()] += 1
                    continue
                part, _, where = header[len(shared) :].partition(b" ")
                if part != b"0/1" or track.ends:
                    track.several(part, where)
                    continue
                offset = int(where)
            except ValueError:
                self._broken(header)
                continue
            marks = track.marks
            if not 0 <= offset < marks.end:
                marks.ahead.append(offset) if 0 <= offset <= MOST else self._broken(header)
                continue
            page = marks.pages.get(offset >> BITS) or marks.page(offset >> BITS)
            at = offset & LOW
            if page[at] & OUTCOME:
                marks.note(offset, 0, 1, track.kind)
                continue
            page[at] |= track.kind
            if offset < track.last:
                track.disorder(offset)
            track.last = offset

    def _behind(self, headers: Headers | None) -> bytes | None:
        """Our header behind others, or None."""
        return next((value for key, value in headers or () if key == self._header), None)

    def _shared(self, header: bytes) -> tuple[bytes, Track | None]:
        """Find what the headers of this batch begin with, and where to note its records."""
        shared = header.rsplit(b" ", 2)[0] + b" "
        if shared not in self._tracks:
            if len(self._tracks) >= _TRACKS:
                self._tracks.clear()  # it is of one batch; old ones do not come again
            self._tracks[shared] = self._resolve(shared[:-1])
        return shared, self._tracks[shared]

    def _broken(self, header: bytes) -> None:
        """Count a header that makes no sense: as a defect of a task of this graph, or as unreadable."""
        track = self._tracks.get(header.rsplit(b" ", 2)[0] + b" ")
        if track is None:
            self.unreadable += 1
        else:
            track.marks.malformed += 1


def offsets_of(messages: Sequence[WireMessage]) -> list[int]:
    """Offsets of messages of one client, without a Python loop."""
    read: Any = type(messages[0]).offset if messages else None
    return list(map(read, messages)) if messages else []


def mismatched(pairs: Sequence[int], columns: Sequence[Sequence[int]], *, from_end: bool) -> list[int]:
    """
    Lead offsets of join outcomes that do not pair the k-th message of each input.

    Args:
        pairs: offsets that outcomes name, flat, one for each input.
        columns: of each input the offsets of its steps, ascending.
        from_end: count from the last step, because the first ones may be trimmed at different places.
    """
    width = len(columns)
    sizes = [len(column) if from_end else 0 for column in columns]
    wrong = []
    for at in range(0, len(pairs), width):
        ranks = set()
        for column, size, offset in zip(columns, sizes, pairs[at : at + width], strict=True):
            place = bisect_left(column, offset)
            there = place < len(column) and column[place] == offset
            ranks.add(place - size if there else None)
        if len(ranks) > 1 or None in ranks:
            wrong.append(pairs[at])
    return wrong


@functools.lru_cache
def _numbers(part: bytes) -> tuple[int, int]:
    """Read index and count."""
    index, _, count = part.partition(b"/")
    if not 0 <= int(index) < int(count):
        raise ValueError(part)
    return int(index), int(count)


def page_of(pages: dict[int, bytearray], number: int) -> bytearray:
    """The page with this number, made when it is first asked for."""
    page = pages.get(number)
    if page is None:
        page = pages[number] = bytearray(SIZE)
    return page

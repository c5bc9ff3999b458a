"""What became of each message of an input: the books that `verify` keeps while it reads a cluster.

One byte for each offset, in pages that appear where offsets are: a million messages cost 1 MB for each task that reads
them, 3 MB where deliveries have several records. Nothing here reads or decides what is right: `runtime.verify` feeds
these books and draws the balance.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from cues_kafka.ports import WireMessage

EXISTS, OUTPUT, ERROR = 1, 2, 4
"""Of one offset: the input holds it; it was seen as an output; it was seen as an error."""

OUTCOME = OUTPUT | ERROR

UNFOUNDED = (OUTPUT, ERROR, OUTCOME)
"""An outcome of what the input does not hold."""

EXAMPLES = 5
"""Offsets that are kept of each kind of anomaly, for people."""

_BITS = 16
_SIZE = 1 << _BITS
_LOW = _SIZE - 1
_WIDE = 8
"""Deliveries of more records than a byte has bits are kept in a dictionary, about 200 bytes each."""

_EXIST = bytes(value | EXISTS for value in range(256))
_FULL = bytes((1 << min(count, _WIDE)) - 1 for count in range(256))
_TRACKS = 4096


class Balance(NamedTuple):
    """
    What the books of one input say of a range of offsets.

    Attributes:
        exist: messages that the input holds.
        outputs: deliveries with an output.
        errors: deliveries with an error.
        seen: deliveries with any outcome.
        unfounded: of those, the ones whose message the input does not hold.
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
        begin: where the task began; messages below are none of its steps.
        end: its position; outcomes at or above it go to `ahead` and are counted nowhere else.
        ahead: offsets of those.
        messages: output records seen, each (delivery, index) once.
        duplicated: records for which another outcome of the same delivery leaves no room.
        out_of_order: records whose offset is below that of the record before them in the same partition.
        malformed: records with an index that their count does not allow.
        pairs: of a join, the offsets that its outcomes name, flat, one for each input.
        examples: offsets, by kind of anomaly.
    """

    __slots__ = (
        "_counts", "_masks", "_pages", "_wide", "ahead", "begin", "duplicated", "end", "examples", "malformed",
        "messages", "out_of_order", "pairs",
    )  # fmt: skip

    def __init__(self, begin: int, end: int) -> None:
        self.begin = begin
        self.end = end
        self.ahead = array("q")
        self.messages = self.duplicated = self.out_of_order = self.malformed = 0
        self.pairs = array("q")
        self.examples: dict[str, list[int]] = {}
        self._pages: dict[int, bytearray] = {}
        self._counts: dict[int, bytearray] = {}
        self._masks: dict[int, bytearray] = {}
        self._wide: dict[int, tuple[int, int]] = {}

    # Writing

    def exist(self, offsets: Sequence[int]) -> None:
        """The input holds these, ascending; those outside of `[begin, end)` are left out."""
        at, size = bisect_left(offsets, self.begin), bisect_left(offsets, self.end)
        while at < size:
            number = offsets[at] >> _BITS
            until = bisect_left(offsets, (number + 1) << _BITS, at, size)
            page = self.page(number)
            first, last = offsets[at] & _LOW, offsets[until - 1] & _LOW
            if last - first == until - 1 - at:
                page[first : last + 1] = page[first : last + 1].translate(_EXIST)
            else:
                for offset in offsets[at:until]:
                    page[offset & _LOW] |= EXISTS
            at = until

    def page(self, number: int) -> bytearray:
        """The flags of offsets `number * 65536` and up."""
        return _page(self._pages, number)

    def note(self, offset: int, index: int, count: int, kind: int) -> bool:
        """
        An outcome was seen: record `index` of `count` of the delivery of `offset`.

        Returns:
            Whether there was room for it.
        """
        if not 0 <= index < count or (kind == ERROR and count != 1):
            self.malformed += 1
            self.example("malformed", offset)
            return False
        page, at = self.page(offset >> _BITS), offset & _LOW
        flags = page[at]
        page[at] = flags | kind
        first = not flags & kind
        if first and flags & OUTCOME:
            self._twice(offset)  # an error besides outputs: counted once, however many outputs there are
        if not (first if count == 1 else self._part(offset, index, count, first=first)):
            self._twice(offset)
            return False
        if kind == OUTPUT:
            self.messages += 1
        return True

    def _part(self, offset: int, index: int, count: int, *, first: bool) -> bool:
        """One of several records of a delivery."""
        if count > _WIDE:
            known, mask = self._wide.get(offset, (count if first else 0, 0))
            if known != count or mask >> index & 1:
                return False
            self._wide[offset] = (count, mask | 1 << index)
            return True
        number, at = offset >> _BITS, offset & _LOW
        counts, masks = _page(self._counts, number), _page(self._masks, number)
        if first:
            counts[at] = count
        if counts[at] != count or masks[at] >> index & 1:
            return False
        masks[at] |= 1 << index
        return True

    def _twice(self, offset: int) -> None:
        self.duplicated += 1
        self.example("duplicated", offset)

    def example(self, kind: str, offset: int) -> None:
        """Keep an offset to show, while there are few."""
        kept = self.examples.setdefault(kind, [])
        if len(kept) < EXAMPLES:
            kept.append(offset)

    # Reading

    def balance(self, start: int, end: int) -> Balance:
        """What is in the books of `[start, end)`."""
        found = [0] * 8
        for number, page in self._pages.items():
            first, last = max(start - (number << _BITS), 0), min(end - (number << _BITS), _SIZE)
            if first < last:
                for flags in range(1, 8):
                    found[flags] += page.count(flags, first, last)
        having = {kind: sum(n for flags, n in enumerate(found) if flags & kind) for kind in (1, 2, 4, 6)}
        unfounded = sum(found[flags] for flags in UNFOUNDED)
        return Balance(having[EXISTS], having[OUTPUT], having[ERROR], having[OUTCOME], unfounded)

    def torn(self) -> list[int]:
        """Offsets of deliveries of which some records were seen and others were not, ascending."""
        torn = [offset for offset, (count, mask) in self._wide.items() if mask != (1 << count) - 1]
        for number, counts in self._counts.items():
            full, masks = counts.translate(_FULL), self._masks[number]
            if full != masks:
                first = number << _BITS
                torn += [first + at for at, (want, got) in enumerate(zip(full, masks, strict=True)) if want != got]
        return sorted(torn)

    def found(self, flags: Iterable[int], start: int, end: int) -> Iterator[int]:
        """Offsets in `[start, end)` with exactly one of these flags, in no order between pages."""
        for number, page in self._pages.items():
            base = number << _BITS
            first, last = max(start - base, 0), min(end - base, _SIZE)
            for value in flags:
                at = page.find(value, first, last) if first < last else -1
                while at >= 0:
                    yield base + at
                    at = page.find(value, at + 1, last)


class Track:
    """
    Outcomes of one input of one task in one partition of one topic.

    Attributes:
        marks: where they are noted.
        kind: `OUTPUT` or `ERROR`.
        ends: of a join, the positions of all its inputs; else empty.
        last: consumed offset of the record before.
    """

    __slots__ = ("ends", "kind", "last", "marks")

    def __init__(self, marks: Marks, kind: int, ends: tuple[int, ...] = ()) -> None:
        self.marks = marks
        self.kind = kind
        self.ends = ends
        self.last = -1

    def slow(self, part: bytes, where: bytes) -> None:
        """A record of a join, or one of several of its delivery."""
        index, _, count = part.partition(b"/")
        offsets = [int(offset) for offset in where.split(b",")]
        marks, lead = self.marks, offsets[0]
        if lead >= marks.end or any(map(int.__ge__, offsets, self.ends)):
            marks.ahead.append(lead)
            return
        if not marks.note(lead, int(index), int(count), self.kind):
            return
        if self.ends and index == b"0":
            # A header that names too few messages fits no pair.
            marks.pairs.extend((offsets + [-1] * len(self.ends))[: len(self.ends)])
        if lead < self.last:
            marks.out_of_order += 1
            marks.example("out of order", lead)
        self.last = lead


class Outcomes:
    """
    Reads the provenance headers of one partition of one topic.

    Attributes:
        unmarked: records without such a header.
        foreign: records of tasks that nobody asked for.
        unreadable: records whose header makes no sense.
    """

    __slots__ = ("_header", "_resolve", "_tracks", "foreign", "unmarked", "unreadable")

    def __init__(self, header: str, resolve: Callable[[bytes], Track | None]) -> None:
        """
        Args:
            header: its name.
            resolve: gives the track of all headers that begin so (all but the last two words), or None: nobody asked
                for it; raises `ValueError` where it makes no sense.
        """
        self._header = header
        self._resolve = resolve
        self._tracks: dict[bytes, Track | None] = {}
        self.unmarked = self.foreign = self.unreadable = 0

    def feed(self, messages: Iterable[WireMessage]) -> None:
        """Note what these, in order of offset, are the outcomes of. Every line is paid for each message."""
        name, tracks = self._header, self._tracks
        for message in messages:
            headers = message.headers()
            if headers and headers[0][0] == name:
                header = headers[0][1]
            else:
                header = next((value for key, value in headers or () if key == name), None)
            if header is None:
                self.unmarked += 1
                continue
            try:
                prefix, part, where = header.rsplit(b" ", 2)
                track = tracks[prefix] if prefix in tracks else self._track(prefix)
                if track is None:
                    self.foreign += 1
                    continue
                if part != b"0/1" or track.ends:
                    track.slow(part, where)
                    continue
                offset = int(where)
            except ValueError:
                self.unreadable += 1
                continue
            marks = track.marks
            if offset >= marks.end:
                marks.ahead.append(offset)
                continue
            page, at = marks.page(offset >> _BITS), offset & _LOW
            flags = page[at]
            if flags & OUTCOME:
                marks.note(offset, 0, 1, track.kind)
                continue
            page[at] = flags | track.kind
            if track.kind == OUTPUT:
                marks.messages += 1
            if offset < track.last:
                marks.out_of_order += 1
                marks.example("out of order", offset)
            track.last = offset

    def _track(self, prefix: bytes) -> Track | None:
        if len(self._tracks) >= _TRACKS:
            self._tracks.clear()  # a prefix is of one batch; old ones do not come again
        track = self._tracks[prefix] = self._resolve(prefix)
        return track


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


def _page(pages: dict[int, bytearray], number: int) -> bytearray:
    page = pages.get(number)
    if page is None:
        page = pages[number] = bytearray(_SIZE)
    return page

"""Metadata of messages: the places of their ancestors, in one header that travels (docs/lineage.md).

The header `cues-meta` is one line of text, so that any Kafka tool shows it::

    1 orders/3@4711:1767225600000 ... prices/3@88 checked/3@9:1767225600007
    | |                           |   places, those that the message came from last at the end
    | |                           places are missing in front: there were more than 64, or a header could not be read
    | the place that counts as the transaction, or -
    version

A place has its timestamp where the topic's `meta=` has "time". An offset is known only after the write, so a message's
own place is in no header: its reader adds it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from cues_kafka.errors import CodecError

META: Final = "cues-meta"
"""Name of the header."""

MARKS: Final = ("offset", "time", "tx")
"""What `Topic(meta=)` may name."""

MOST_PLACES: Final = 64

_VERSION: Final = "1"
_MISSING: Final = "..."
_NONE: Final = "-"


class Place(NamedTuple):
    """
    Where a message is. Places of one partition compare by their offsets; others have no order.

    Attributes:
        topic: its topic.
        partition: its partition.
        offset: its offset.
        timestamp_ms: milliseconds since the epoch; None: the topic's `meta=` does not ask for it.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int | None = None

    def _offsets(self, other: object) -> tuple[int, int]:
        if not isinstance(other, Place) or self[:2] != other[:2]:
            shown = other.text if isinstance(other, Place) else repr(other)
            raise TypeError(f"{self.text} and {shown} are not in one partition, so neither comes before the other")
        return self.offset, other.offset

    def __lt__(self, other: object) -> bool:
        mine, theirs = self._offsets(other)
        return mine < theirs

    def __le__(self, other: object) -> bool:
        mine, theirs = self._offsets(other)
        return mine <= theirs

    def __gt__(self, other: object) -> bool:
        mine, theirs = self._offsets(other)
        return mine > theirs

    def __ge__(self, other: object) -> bool:
        mine, theirs = self._offsets(other)
        return mine >= theirs

    @property
    def text(self) -> str:
        """The place as the header has it: ``orders/3@17``, with the timestamp behind a colon."""
        time = "" if self.timestamp_ms is None else f":{self.timestamp_ms}"
        return f"{self.topic}/{self.partition}@{self.offset}{time}"


@dataclass(frozen=True, slots=True)
class Meta:
    """
    What is known of a message's ancestors, and of itself.

    Attributes:
        places: by topic, the newest place that the message came through, its own with them if its topic's `meta=` asks
            for it. Those that it came through last are at the end.
        tx: the place of the message that counts as the transaction, by `meta={"tx"}`; None: there is none.
        headers: the headers that travel to the outputs, as text, without this one.
        truncated: whether places are missing: there were more than 64, or a header could not be read.
    """

    places: Mapping[str, Place] = field(default_factory=dict)
    tx: Place | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    truncated: bool = False


class Travelled(NamedTuple):
    """
    What travels: `Meta` without `headers`.

    Attributes:
        places: see `Meta`.
        tx: see `Meta`.
        truncated: see `Meta`.
    """

    places: Mapping[str, Place]
    tx: Place | None
    truncated: bool


NOTHING_TRAVELLED: Final = Travelled({}, None, truncated=False)


def read_meta(header: bytes | None) -> Travelled:
    """What a header says. One that cannot be read says that places are missing: another program may have written it."""
    if header is None:
        return NOTHING_TRAVELLED
    try:
        return _parse(header.decode())
    except (ValueError, CodecError):
        return NOTHING_TRAVELLED._replace(truncated=True)


def _parse(text: str) -> Travelled:
    version, tx, *words = text.split(" ")
    if version != _VERSION:
        raise CodecError(f"a header {META} of version {version!r}; this release reads version {_VERSION}")
    truncated = words[:1] == [_MISSING]
    places = [_place(word) for word in words[truncated:]]
    return Travelled({place.topic: place for place in places}, None if tx == _NONE else _place(tx), truncated)


def _place(word: str) -> Place:
    rest, _, at = word.rpartition("@")
    topic, _, partition = rest.rpartition("/")
    offset, _, time = at.partition(":")
    if not topic:
        raise CodecError(f"{word!r} is not a place")
    return Place(topic, int(partition), int(offset), int(time) if time else None)


def write_meta(meta: Travelled) -> bytes | None:
    """The header; None: there is nothing to say. The oldest of more than 64 places are left out."""
    places = list(meta.places.values())[-MOST_PLACES:]
    if not (places or meta.tx or meta.truncated):
        return None
    missing = [_MISSING] if meta.truncated or len(places) < len(meta.places) else []
    tx = _NONE if meta.tx is None else meta.tx.text
    return " ".join([_VERSION, tx, *missing, *(place.text for place in places)]).encode()


def own_place(travelled: Travelled, own: Place, marks: frozenset[str]) -> Travelled:
    """
    What travels from a message, with its own place as far as its topic's `meta=` asks for it.

    Args:
        travelled: from the message's header.
        own: where the message is, with its timestamp.
        marks: the topic's `meta=`.
    """
    own = own if "time" in marks else own._replace(timestamp_ms=None)
    places = dict(travelled.places)
    if not marks.isdisjoint(("offset", "time")):
        places.pop(own.topic, None)  # a cycle: its newest place stands at the end
        places[own.topic] = own
    return travelled._replace(places=places, tx=own if "tx" in marks else travelled.tx)


def merge_meta(inputs: Sequence[Travelled]) -> Travelled:
    """
    What travels from the messages of a join.

    Of a topic on several paths the newest place stays: of one partition that with the highest offset, else that with
    the latest timestamp, else that of the first input. The transaction is that of the first input that has one.
    """
    if len(inputs) == 1:
        return inputs[0]
    newest: dict[str, tuple[int, Place]] = {}  # with how many places come behind it
    for one in inputs:
        for behind, place in enumerate(reversed([*one.places.values()])):
            known = newest.get(place.topic)
            newest[place.topic] = (behind, place) if known is None else _newer(known, (behind, place))
    ordered = sorted(newest.values(), key=lambda found: -found[0])
    tx = next((one.tx for one in inputs if one.tx is not None), None)
    return Travelled({place.topic: place for _, place in ordered}, tx, any(one.truncated for one in inputs))


def _newer(known: tuple[int, Place], other: tuple[int, Place]) -> tuple[int, Place]:
    """The newer of two places of a topic, as far from the end as the nearer one is."""
    (near, mine), (far, theirs) = known, other
    if mine.partition == theirs.partition:
        later = theirs.offset > mine.offset
    else:
        later = (theirs.timestamp_ms or -1) > (mine.timestamp_ms or -1)
    return min(near, far), theirs if later else mine


def header_in(headers: Iterable[tuple[str, bytes | None]] | None) -> bytes | None:
    """The header among those of a message; None: it has none."""
    return next((value for name, value in headers or () if name == META), None)

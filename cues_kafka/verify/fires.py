"""The books of `verify` for steps that timers or replays began (F1, Y1, Y3): they have no place in the order."""

from __future__ import annotations

from typing import NamedTuple

from cues_kafka.core.delivery import parse_origin
from cues_kafka.records.strangers import MOST
from cues_kafka.verify.ledger import ERROR, OUTPUT, Marks, Track
from cues_kafka.verify.seen_parts import SeenParts


class FiredOnce(NamedTuple):
    """
    What was seen of one such step.

    Attributes:
        kind: `OUTPUT` or `ERROR`.
        of: records that it has.
        parts: those that were seen.
    """

    kind: int
    of: int
    parts: SeenParts


class Fires:
    """
    The outcomes of the timers of one task, or those of its replays. Each that left one takes about 300 bytes.

    Attributes:
        replays: whether they are of replays: each error message is replayed once (Y2), and each timer fires once.
        known: sequence number of its newest record; outcomes of later attempts are not judged.
        origins: of replays, the messages that were delivered again, by error message.
        duplicated: records for which another outcome of the same step leaves no room.
    """

    def __init__(self, known: int, *, replays: bool = False) -> None:
        self.replays = replays
        self.known = known
        self.duplicated = 0
        self.origins: dict[bytes, bytes] = {}
        self._seen: dict[bytes, FiredOnce] = {}

    def track(self, sequence: int, kind: int, strays: Marks) -> Track:
        """Where to note the outcomes of one attempt; headers that make no sense are among the strays."""
        return _Fired(self, sequence, kind, strays)

    def note(self, sequence: int, word: bytes, index: int, of: int, kind: int) -> None:
        """Note a record by the last word of its header."""
        if sequence > self.known:
            return
        if self.replays:  # number:error@messages; the error message alone tells
            name, _, origin = word.partition(b"@")
            word = name.partition(b":")[2]
            self.origins[word] = origin
        seen = self._seen.get(word) or FiredOnce(kind, of, SeenParts())
        if (seen.kind, seen.of) != (kind, of) or not seen.parts.note(index):
            self.duplicated += 1
            return
        self._seen[word] = seen

    @property
    def outputs(self) -> int:
        """Steps that ended with an output."""
        return sum(seen.kind == OUTPUT for seen in self._seen.values())

    @property
    def errors(self) -> int:
        """Steps that ended with an error message."""
        return sum(seen.kind == ERROR for seen in self._seen.values())

    @property
    def messages(self) -> int:
        """Output messages, each once."""
        return sum(seen.parts.count for seen in self._seen.values() if seen.kind == OUTPUT)

    @property
    def torn(self) -> int:
        """Steps of whose records some were seen and others were not."""
        return sum(seen.parts.count != seen.of for seen in self._seen.values())


class _Fired(Track):
    """The outcomes of one attempt, in one partition of one topic."""

    __slots__ = ("_fires", "_sequence")

    def __init__(self, fires: Fires, sequence: int, kind: int, strays: Marks) -> None:
        super().__init__(strays, kind, (0,))  # `ends`: every message goes through `several`
        self._fires, self._sequence = fires, sequence

    def several(self, part: bytes, where: bytes) -> None:
        """Note a message."""
        index, _, count = part.partition(b"/")
        if b"@" not in where or not 0 <= int(index) < int(count):
            raise ValueError(part)
        origin = where.partition(b"@")[2].decode()
        if not all(0 <= one.offset <= MOST and len(one.topic_id) == 16 for one in parse_origin(origin, 0)):
            raise ValueError(where)
        self._fires.note(self._sequence, where, int(index), int(count), self.kind)

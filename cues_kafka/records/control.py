"""
What a graph's control topic holds: what operators hold back, its cuts, a pause while a cut is taken, and a reset that
is not complete (X4).

The topic is compacted and has one partition. A null value ends a hold, a pause or a reset, or deletes a cut. Values are
JSON, so that people can read them with a Kafka console.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Final, NamedTuple

from cues_kafka.errors import CodecError
from cues_kafka.graph.times import shown_time
from cues_kafka.observe.refused import REFUSED
from cues_kafka.ports.log import WireMessage
from cues_kafka.records.strangers import LATEST_S, MOST, NAME, TOPIC, Fields, read_plain, shown
from cues_kafka.words import visible

VERSION: Final = 1
"""The version of what the values mean."""

PAUSE: Final = b"pause"
RESET: Final = b"reset"
CUT: Final = b"cut/"
"""Stands before the name of a cut."""

LEASE_AT_MOST_S: Final = 3_600.0
"""The longest lease of a pause that is believed; tools ask for half a minute, and renew it."""

CUT_AT_MOST_MS: Final = 10 * 366 * 86_400_000
"""The longest time for which a cut can say that stores are kept."""

REFUSED_AT_MOST: Final = 1_000
"""How many records that cannot be read are kept, with their reasons."""

SHORT: Final = 300
"""The most characters of a name or a reason in a record."""

HOLD: Final = b"hold/"
"""Stands before the name of a processor that an operator holds back; alone it is the whole graph."""


PAUSED_BY: Final = "paused by "
"""Begins the reason of a pause that an operator has asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """
    Workers call nothing of these processors until it is taken back, or its lease ends.

    Attributes:
        by: who pauses: a tool and its machine.
        token: a random text, another one for each run of a tool.
        cut: the cut that is taken.
        processors: their names.
        lease_s: how long the pause holds when its record is not renewed, so that a tool that died pauses nothing.
    """

    by: str
    token: str
    cut: str
    processors: tuple[str, ...]
    lease_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """
    An operator's pause of a processor, or of the whole graph, until it is taken back.

    Attributes:
        by: who: a user and a machine.
        token: a random text, another one for each pause; tasks tell which one they follow.
        processor: its name; None: the whole graph.
        since_ms: when the broker wrote it down, in milliseconds since the epoch.
    """

    by: str
    token: str
    processor: str | None = None
    since_ms: int = 0

    def __str__(self) -> str:
        """The reason that tasks give."""
        return f"{PAUSED_BY}{self.by} since {shown_time(self.since_ms)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetUnderWay:
    """Some tasks stand at the cut and others do not, so workers wait until the command has moved all of them."""

    by: str
    cut: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InputCut:
    """
    An input of a processor at the cut.

    Attributes:
        topic, topic_id: which topic; its id in hexadecimal.
        offsets: the next one to read, by task.
    """

    topic: str
    topic_id: str
    offsets: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreCut:
    """
    A store of a processor at the cut.

    Attributes:
        topic, topic_id: its changelog; the id in hexadecimal.
        starts, ends: the first offset and the high watermark, by task.
        marks: what the task's record said of the changelog's end, by task; None: nothing was written yet.
    """

    topic: str
    topic_id: str
    starts: tuple[int, ...]
    ends: tuple[int, ...]
    marks: tuple[int | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessorCut:
    """
    A processor at the cut.

    Attributes:
        steps: steps that were taken, by task.
        inputs: by binding.
        stores: by name.
    """

    steps: tuple[int, ...]
    inputs: Mapping[str, InputCut]
    stores: Mapping[str, StoreCut] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphCut:
    """
    Where all tasks of a graph stood at one moment, and their stores.

    Attributes:
        name: the user's.
        graph: name of the graph.
        by: who took it.
        keeps_ms: how long the changelogs could be read up to it when it was taken (`cuts=`), in milliseconds.
        processors: by name.
        at_ms: when the broker wrote it down, in milliseconds since the epoch.
    """

    name: str
    graph: str
    by: str
    keeps_ms: int
    processors: Mapping[str, ProcessorCut]
    at_ms: int = 0

    @property
    def tasks(self) -> int:
        """How many tasks it has."""
        return sum(len(one.steps) for one in self.processors.values())


class RefusedRecord(NamedTuple):
    """
    A record of the topic that cannot be read: another program wrote it, or another release.

    Attributes:
        key: of the record.
        why: it cannot be read.
    """

    key: bytes
    why: str

    def __str__(self) -> str:
        """For people: what it should be, and why it is none."""
        return f"the record with the key {shown(self.key)} ({self.why})"


class _Found(NamedTuple):
    """A value of the topic, and when the broker wrote it, in milliseconds since the epoch."""

    value: bytes
    at_ms: int


class Control:
    """
    The control topic as far as it was read.

    What cannot be read holds nothing back, but for a reset: between tasks at a cut and others that are not there,
    messages would be lost or repeated. Cuts are read when one is asked for.

    Args:
        cuts: whether cuts are kept; workers need none.
    """

    def __init__(self, *, cuts: bool = True) -> None:
        self._keeps_cuts = cuts
        self._cuts: dict[bytes, _Found] = {}
        self._holds: dict[str | None, Hold] = {}
        self._paused: tuple[Pause, int] | None = None
        self._reset: ResetUnderWay | None = None
        self._refused: dict[bytes, RefusedRecord] = {}

    def feed(self, messages: Iterable[WireMessage]) -> None:
        """Take the next messages; one that cannot be read is named in the log, once."""
        for message in messages:
            key, value = message.key() or b"", message.value()
            self._forget(key)
            if value is None or (key.startswith(CUT) and not self._keeps_cuts):
                continue
            try:
                self._take(key, value, _time_of(message))
            except CodecError as error:
                if len(self._refused) < REFUSED_AT_MOST or key == RESET:
                    self._refused[key] = RefusedRecord(key, str(error))
                REFUSED.note(message, "a record of the control topic", str(error))

    def _forget(self, key: bytes) -> None:
        """Another value of a key, or none, takes the place of this one."""
        self._refused.pop(key, None)
        self._cuts.pop(key, None)
        if key == PAUSE:
            self._paused = None
        elif key == RESET:
            self._reset = None
        elif key.startswith(HOLD):
            self._holds.pop(key.removeprefix(HOLD).decode(errors="replace") or None, None)

    def _take(self, key: bytes, value: bytes, at_ms: int) -> None:
        if key == PAUSE:
            self._paused = _pause(value), at_ms
        elif key == RESET:
            self._reset = _reset(value)
        elif key.startswith(HOLD):
            hold = _hold(key, value, at_ms)
            self._holds[hold.processor] = hold
        elif key.startswith(CUT):
            self._cuts[key] = _Found(value, at_ms)
        else:
            raise CodecError(f"its key is {shown(key)}, which is none of this topic")

    @property
    def resetting(self) -> bool:
        """Whether a reset is not complete; also where its record cannot be read."""
        return self._reset is not None or RESET in self._refused

    def pause(self) -> tuple[Pause, int] | None:
        """The newest pause that was not taken back, and when the broker wrote it; its lease may have ended."""
        return self._paused

    def reset(self) -> ResetUnderWay | None:
        """
        The reset that is not complete.

        Raises:
            CodecError: it cannot be read.
        """
        if RESET in self._refused:
            raise CodecError(f"the reset in the control topic cannot be read: {self._refused[RESET].why}")
        return self._reset

    def holds(self) -> dict[str | None, Hold]:
        """What operators hold back, by processor; None: the whole graph."""
        return dict(self._holds)

    def refused(self) -> list[RefusedRecord]:
        """The records that cannot be read, but for cuts; `REFUSED_AT_MOST` of them at most."""
        return list(self._refused.values())

    @property
    def names(self) -> Sequence[str]:
        """The names of all cuts, the oldest first; a name that is no text has escapes for its bytes."""
        cuts = [(found.at_ms, key) for key, found in self._cuts.items()]
        return [_name_of(key) for _, key in sorted(cuts)]

    def key_of_cut(self, name: str) -> bytes:
        """The key of the cut that `names` gives so."""
        return next((key for key in self._cuts if _name_of(key) == name), key_of(name))

    def cut(self, name: str) -> GraphCut | None:
        """
        The cut of a name.

        Raises:
            CodecError: it cannot be read.
        """
        found = self._cuts.get(self.key_of_cut(name))
        return None if found is None else _cut(name, found)


def _name_of(key: bytes) -> str:
    return key.removeprefix(CUT).decode(errors="backslashreplace")


def _time_of(message: WireMessage) -> int:
    """When the broker wrote a record, in milliseconds since the epoch; 0: it has no date."""
    at_ms = message.timestamp()[1]
    return at_ms if 0 <= at_ms <= LATEST_S * 1000 else 0


def key_of(cut: str) -> bytes:
    """The key of a cut's record."""
    return CUT + cut.encode()


def key_of_hold(processor: str | None) -> bytes:
    """The key of the hold of a processor; None: of the whole graph."""
    return HOLD + (processor or "").encode()


def encode(value: Pause | Hold | ResetUnderWay | GraphCut) -> bytes:
    """The value of a record."""
    plain = {"version": VERSION, **asdict(value)}
    for name in ("at_ms", "since_ms"):  # the broker says it
        plain.pop(name, None)
    return json.dumps(plain, separators=(",", ":")).encode()


def _hold(key: bytes, value: bytes, at_ms: int) -> Hold:
    """The hold under a key, which alone says what is held; its value says the same, for people."""
    plain = read_plain(value, "pause of an operator", VERSION)
    name = key.removeprefix(HOLD).decode(errors="replace")
    said = plain.text("processor", like=NAME) if plain.has("processor") else ""
    if name != said:
        raise CodecError(f"not a pause of an operator: its key is {shown(key)}, and its processor {said!r}")
    return Hold(
        by=visible(plain.text("by", SHORT)), token=plain.text("token", SHORT), processor=name or None, since_ms=at_ms
    )


def _pause(value: bytes) -> Pause:
    plain = read_plain(value, "pause for a cut", VERSION)
    return Pause(
        by=visible(plain.text("by", SHORT)),
        token=plain.text("token", SHORT),
        cut=plain.text("cut", SHORT),
        processors=plain.texts("processors", like=NAME),
        lease_s=plain.number("lease_s", 0.0, LEASE_AT_MOST_S),
    )


def _reset(value: bytes) -> ResetUnderWay:
    plain = read_plain(value, "reset", VERSION)
    return ResetUnderWay(by=visible(plain.text("by", SHORT)), cut=plain.text("cut", SHORT))


def _cut(name: str, found: _Found) -> GraphCut:
    plain = read_plain(found.value, f"cut {name!r}", VERSION)
    if (said := plain.text("name", SHORT)) != name:
        raise CodecError(f"not a cut {name!r}: it names itself {said!r}")
    return GraphCut(
        name=name,
        graph=plain.text("graph", SHORT),
        by=visible(plain.text("by", SHORT)),
        keeps_ms=plain.whole("keeps_ms", 0, CUT_AT_MOST_MS),
        processors={processor: _processor_cut(one) for processor, one in plain.named("processors")},
        at_ms=found.at_ms,
    )


def _processor_cut(plain: Fields) -> ProcessorCut:
    steps = plain.wholes("steps")
    inputs = {binding: _input_cut(at, len(steps)) for binding, at in plain.named("inputs")}
    return ProcessorCut(
        steps=steps, inputs=inputs, stores={store: _store_cut(at, len(steps)) for store, at in plain.named("stores")}
    )


def _input_cut(at: Fields, tasks: int) -> InputCut:
    offsets = at.wholes("offsets")
    if len(offsets) != tasks:
        at.refuse("offsets", list(offsets))
    return InputCut(topic=at.text("topic", like=TOPIC), topic_id=at.id("topic_id").hex(), offsets=offsets)


def _store_cut(at: Fields, tasks: int) -> StoreCut:
    starts, ends, marks = at.wholes("starts"), at.wholes("ends"), at.maybe_wholes("marks", -MOST)
    for name, found in (("starts", starts), ("ends", ends), ("marks", marks)):
        if len(found) != tasks:
            at.refuse(name, list(found))
    topic, topic_id = at.text("topic", like=TOPIC), at.id("topic_id").hex()
    return StoreCut(topic=topic, topic_id=topic_id, starts=starts, ends=ends, marks=marks)

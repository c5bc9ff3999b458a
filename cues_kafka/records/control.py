"""
What a graph's control topic holds: what operators hold back, its cuts, a pause while a cut is taken, and a reset that
is not complete (X4).

The topic is compacted and has one partition. A null value ends a hold, a pause or a reset, or deletes a cut. Values are
JSON, so that people can read them with a Kafka console.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any, Final, NamedTuple

from cues_kafka.errors import CodecError
from cues_kafka.graph.times import shown_time
from cues_kafka.ports import WireMessage

VERSION: Final = 1
"""The version of what the values mean."""

PAUSE: Final = b"pause"
RESET: Final = b"reset"
CUT: Final = b"cut/"
"""Stands before the name of a cut."""

HOLD: Final = b"hold/"
"""Stands before the name of a processor that an operator holds back; alone it is the whole graph."""


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
        return f"paused by {self.by} since {shown_time(self.since_ms)}"


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


class _Found(NamedTuple):
    """A value of the topic, and when the broker wrote it, in milliseconds since the epoch."""

    value: bytes
    at_ms: int


class Control:
    """The control topic as far as it was read."""

    def __init__(self) -> None:
        self._found: dict[bytes, _Found] = {}

    def feed(self, messages: Iterable[WireMessage]) -> None:
        """Take the next messages."""
        for message in messages:
            key, value = message.key() or b"", message.value()
            if value is None:
                self._found.pop(key, None)
            else:
                self._found[key] = _Found(value, message.timestamp()[1])

    @property
    def resetting(self) -> bool:
        """Whether a reset is not complete; also where its record cannot be read."""
        return RESET in self._found

    def pause(self) -> tuple[Pause, int] | None:
        """
        The newest pause that was not taken back, and when the broker wrote it; its lease may have ended.

        Raises:
            CodecError: it cannot be read.
        """
        found = self._found.get(PAUSE)
        return None if found is None else (_pause(_read("the pause", found.value)), found.at_ms)

    def reset(self) -> ResetUnderWay | None:
        """
        The reset that is not complete.

        Raises:
            CodecError: it cannot be read.
        """
        found = self._found.get(RESET)
        if found is None:
            return None
        plain = _read("the reset", found.value)
        with _shaped("the reset"):
            return ResetUnderWay(by=plain["by"], cut=plain["cut"])

    def holds(self) -> dict[str | None, Hold]:
        """
        What operators hold back, by processor; None: the whole graph.

        Raises:
            CodecError: one cannot be read.
        """
        found = [
            _hold(_read("a hold", one.value), one.at_ms) for key, one in self._found.items() if key.startswith(HOLD)
        ]
        return {one.processor: one for one in found}

    @property
    def names(self) -> Sequence[str]:
        """The names of all cuts, the oldest first."""
        cuts = [(found.at_ms, key) for key, found in self._found.items() if key.startswith(CUT)]
        return [key.removeprefix(CUT).decode(errors="replace") for _, key in sorted(cuts)]

    def cut(self, name: str) -> GraphCut | None:
        """
        The cut of a name.

        Raises:
            CodecError: it cannot be read.
        """
        found = self._found.get(key_of(name))
        return None if found is None else _cut(_read(f"cut {name!r}", found.value), found.at_ms)


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


@contextmanager
def _shaped(what: str) -> Iterator[None]:
    """Within it, a field that a value lacks is a `CodecError`."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CodecError(f"{what} in the control topic cannot be read: {error!r}") from error


def _read(what: str, value: bytes) -> Any:
    with _shaped(what):
        plain = json.loads(value)
        if plain["version"] != VERSION:
            raise CodecError(
                f"{what} in the control topic has version {plain['version']!r}, this release knows {VERSION}. Use the "
                "release that wrote it"
            )
        return plain


def _hold(plain: Any, at_ms: int) -> Hold:
    with _shaped("a hold"):
        return Hold(by=plain["by"], token=plain["token"], processor=plain["processor"], since_ms=at_ms)


def _pause(plain: Any) -> Pause:
    with _shaped("the pause"):
        return Pause(
            by=plain["by"],
            token=plain["token"],
            cut=plain["cut"],
            processors=tuple(plain["processors"]),
            lease_s=float(plain["lease_s"]),
        )


def _cut(plain: Any, at_ms: int) -> GraphCut:
    with _shaped("a cut"):
        processors = {
            name: ProcessorCut(
                steps=tuple(one["steps"]),
                inputs={
                    binding: InputCut(
                        topic=at["topic"], topic_id=at["topic_id"], offsets=tuple(map(int, at["offsets"]))
                    )
                    for binding, at in one["inputs"].items()
                },
                stores={
                    store: StoreCut(
                        topic=at["topic"],
                        topic_id=at["topic_id"],
                        starts=tuple(map(int, at["starts"])),
                        ends=tuple(map(int, at["ends"])),
                        marks=tuple(at["marks"]),
                    )
                    for store, at in one["stores"].items()
                },
            )
            for name, one in plain["processors"].items()
        }
        return GraphCut(
            name=plain["name"],
            graph=plain["graph"],
            by=plain["by"],
            keeps_ms=int(plain["keeps_ms"]),
            processors=processors,
            at_ms=at_ms,
        )

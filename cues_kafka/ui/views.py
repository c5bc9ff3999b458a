"""What pages show, as plain data made of what the operators' functions return. Nothing here asks a cluster."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, is_dataclass, replace
from typing import Any, Final, Literal, TypeAlias

from cues_kafka.operate.look.seen import GraphStatus, SeenTask
from cues_kafka.operate.look.summary import words
from cues_kafka.operate.repair.filed import FailureCause, FiledError
from cues_kafka.ui.layout import PlacedArrow
from cues_kafka.ui.spread import Spread
from cues_kafka.words import visible

Tone: TypeAlias = Literal["well", "paused", "wrong"]
"""The colour of a state. Pages also show the state in words."""

LONGEST: Final = 4_000
"""Characters of a text that a page shows; the commands show all of it."""

_WORSE: Final[Sequence[Tone]] = ("well", "paused", "wrong")


@dataclass(frozen=True, slots=True)
class SeenRow:
    """
    A task in the table; see `SeenTask`.

    Attributes:
        tone: its colour.
        position: its place in each input, or in the source of a feed.
        why, remedy: why it does not work, and what to do; empty: it works.
        notes: what else is worth reading.
    """

    task: str
    processor: str
    state: str
    tone: Tone
    owner: str
    position: str
    lag: int | None
    waiting_s: float | None
    rate: float | None
    errors: int
    retries: int | None
    committed_s: float
    why: str = ""
    remedy: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Traffic:
    """What goes through an arrow that leads to a processor; None: not known."""

    processor: str
    topic: str
    lag: int | None
    rate: float | None


@dataclass(frozen=True, slots=True)
class Overview:
    """
    A graph at one moment.

    Attributes:
        at_s: when the tasks were seen, in seconds since the epoch.
        ok: whether nothing is wrong; what may pass by itself counts as well.
        words: the whole in the sentence that ends `cues-kafka status`; empty: not known.
        trouble: why nothing newer is seen; empty: it is the newest.
        tones: by processor, the worst of its tasks.
        unwell: what is unwell and what to do, in sentences.
    """

    graph: str
    at_s: float
    ok: bool
    words: str
    trouble: str
    tasks: tuple[SeenRow, ...]
    flows: tuple[Traffic, ...]
    tones: Mapping[str, Tone]
    unwell: tuple[tuple[str, str], ...]


def overview(seen: GraphStatus, arrows: Iterable[PlacedArrow], text: Callable[[str], str]) -> Overview:
    """
    A status as a page shows it.

    Args:
        seen: the status.
        arrows: of the picture.
        text: makes commands in remedies name the graph and the cluster.
    """
    rows = tuple(task_row(one, text) for one in seen.tasks)
    tones: dict[str, Tone] = {}
    for row in rows:
        tones[row.processor] = max(tones.get(row.processor, "well"), row.tone, key=_WORSE.index)
    unwell = tuple((f"{one.name}: {one.what}", text(one.remedy)) for one in seen.unwell)
    unseen = tuple((one, "") for one in seen.unseen)
    return Overview(
        graph=seen.graph,
        at_s=seen.at_s,
        ok=seen.ok,
        words=words(seen),
        trouble=seen.unreachable,
        tasks=rows,
        flows=tuple(_flow(arrow, seen.tasks) for arrow in arrows if arrow.reads),
        tones=tones,
        unwell=unwell + unseen,
    )


def after_loss(last: Overview | None, graph: str, at_s: float, trouble: str) -> Overview:
    """
    What is shown while the cluster does not answer: what was seen last, with its time, and why there is nothing newer.

    Args:
        last: what was seen last; None: nothing was.
        graph: its name.
        at_s: the time of now.
        trouble: why nothing is seen.
    """
    last = last or Overview(graph, at_s, ok=False, words="", trouble="", tasks=(), flows=(), tones={}, unwell=())
    return replace(last, ok=False, trouble=trouble)


def task_row(one: SeenTask, text: Callable[[str], str]) -> SeenRow:
    """A task as the table shows it; see `overview`."""
    why, remedy = (one.stopped, one.remedy) if one.stopped else (one.missing, one.missing_remedy)
    notes = [note for note in (one.held, *one.notes) if note]
    if one.at:
        notes.append(f"stopped at message {one.at}, hash {one.hash}")
    if one.error:
        notes.append(f"the newest error: {one.error}")
    return SeenRow(
        task=one.task,
        processor=one.processor,
        state=one.state,
        tone=_tone(one),
        owner=one.owner,
        position=one.place or ", ".join(f"{at.topic}/{at.partition}@{_or_unknown(at.position)}" for at in one.inputs),
        lag=one.lag,
        waiting_s=one.waiting_s,
        rate=one.rate,
        errors=one.errors,
        retries=one.retries,
        committed_s=one.committed_s,
        why=why,
        remedy=text(remedy),
        notes=tuple(text(note) for note in notes),
    )


def _tone(one: SeenTask) -> Tone:
    if not one.ok:
        return "wrong"
    return "paused" if one.state in ("paused", "pausing") else "well"


def _or_unknown(position: int | None) -> str:
    return "?" if position is None else str(position)


def _flow(arrow: PlacedArrow, tasks: Iterable[SeenTask]) -> Traffic:
    """The lag of all tasks in a topic. Deliveries are counted by task, so the rate is that of the processor."""
    own = [one for one in tasks if one.processor == arrow.processor]
    lags = [at.lag for one in own for at in one.inputs if at.topic == arrow.topic and at.lag is not None]
    rates = [one.rate for one in own if one.rate is not None]
    shown = arrow.role == "input"
    return Traffic(
        arrow.processor,
        arrow.topic,
        sum(lags) if lags else None,
        sum(rates) if rates and shown else None,
    )


class Spreads:
    """When the error messages of each cause failed. Give it to `Repairs.causes`."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str, str], Spread] = {}

    def add(self, one: FiledError) -> None:
        """Count an error message."""
        key = one.message.processor, one.message.exception, one.message.kind
        self._found.setdefault(key, Spread()).add(one.message.timestamp_ms)

    def bars(self, cause: FailureCause) -> list[int]:
        """How many there are of a cause, in parts of the time from its first to its last."""
        found = self._found.get((cause.processor, cause.exception, cause.kind))
        return found.bars() if found else []


def cause_rows(causes: Iterable[FailureCause], spreads: Spreads) -> list[dict[str, Any]]:
    """Causes of error messages, as `errors list` counts them, and when they failed."""
    names = ("processor", "exception", "kind", "count", "asked", "first_ms", "last_ms", "example", "text")
    return [{name: getattr(one, name) for name in names} | {"bars": spreads.bars(one)} for one in causes]


def to_json(data: Any) -> bytes:
    """
    Data for a page. What others may have written is made visible: control characters and marks of direction become
    escapes, and long texts are cut with a word on it.
    """
    return json.dumps(_shown(data), separators=(",", ":")).encode()


def _shown(data: Any) -> Any:
    if isinstance(data, str):
        cut = data if len(data) <= LONGEST else f"{data[:LONGEST]} ... ({len(data) - LONGEST:,} more characters)"
        return visible(cut)
    if is_dataclass(data) and not isinstance(data, type):
        return _shown(asdict(data))
    if isinstance(data, Mapping):
        return {_shown(str(name)): _shown(value) for name, value in data.items()}
    if isinstance(data, list | tuple):
        return [_shown(one) for one in data]
    return data

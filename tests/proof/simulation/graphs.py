"""Graphs and pure functions from options; the checker calls the same functions without any of the runtime."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from zlib import crc32

from cues_kafka.graph.declare import Json, Retry, Store
from cues_kafka.graph.definition import Graph
from cues_kafka.graph.handler import Handler, StateHandler
from cues_kafka.graph.message import Message
from cues_kafka.graph.processor import Processor, Source
from cues_kafka.graph.topic import Topic
from tests.proof.simulation.options import EXACTLY_ONCE, Options, Part

GRAPH = "sim"
ERRORS = "failed"
BINDINGS = ("left", "right")

Trace = Callable[[Part, Sequence[str], Any], None]
"""Told of each call: processor, its values, its `Step` (None where the function does not ask for it)."""


class TryAgain(Exception):
    """What `retry=` names."""


class Bad(Exception):
    """What becomes an error message."""


@dataclass(frozen=True, slots=True)
class Made:
    """One output record that a delivery must have."""

    topic: str
    value: str
    key: str | None


class Seen(StateHandler):
    """What the store would be, in a dict of its own. Its entries in the changelog are the same."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._changed: set[str] = set()

    def get(self, entry: str, default: int) -> int:
        """As of a `State`."""
        return self._counts.get(entry, default)

    def __setitem__(self, entry: str, count: int) -> None:
        self._counts[entry] = count
        self._changed.add(entry)

    def checkpoint(self) -> Iterator[tuple[bytes, bytes | None]]:
        """What changed."""
        changed, self._changed = sorted(self._changed), set()
        return ((entry.encode(), b"%d" % self._counts[entry]) for entry in changed)

    def reset(self, entries: Iterable[tuple[bytes, bytes]]) -> None:
        """What is committed."""
        self._counts = {entry.decode(): int(count) for entry, count in entries}
        self._changed = set()


def digits(part: Part, values: Sequence[str], what: str) -> int:
    """A number below 100 that looks random and is the same for the same delivery."""
    return crc32(f"{what} {part.name} {' '.join(values)}".encode()) % 100


def outcome(part: Part, values: Sequence[str]) -> list[Made] | Bad:
    """What a delivery of these values must become: records (none: nil), or an error."""
    if digits(part, values, "fails") < part.fails:
        return Bad(f"bad {' '.join(values)}")
    if not part.outputs or digits(part, values, "nil") < part.nil:
        return []
    topics = part.outputs
    if part.kind == "fork" and digits(part, values, "fork") < 50:
        topics = topics[:1]
    key = f"k{digits(part, values, 'key') % 7}" if part.rekeys else None
    return [Made(topic, f"{'+'.join(values)}>{topic}", key) for topic in topics]


def build(options: Options, trace: Trace) -> Graph:
    """The graph of these options; `trace` hears of every call that has an effect or may kill."""
    return Graph(
        GRAPH,
        *(Source(name) for name in options.sources),
        *(_processor(part, options, trace) for part in options.parts),
        errors=ERRORS if options.errors else None,
        defaults=Topic(value=Json(), partitions=options.partitions),
    )


def _processor(part: Part, options: Options, trace: Trace) -> Processor:
    named = dict(zip(BINDINGS, part.inputs, strict=False))
    settings: dict[str, Any] = {"alts": named} if part.kind == "alts" else {"inputs": named}
    if part.kind not in ("alts", "join"):
        settings = {"inputs": part.inputs[0]}
    if part.kind == "fork":
        settings["outputs"] = {topic: topic for topic in part.outputs}
    elif part.outputs:
        settings["outputs"] = part.outputs[0]
    if part.retries:
        settings["retry"] = Retry(on=TryAgain, for_s=1e6, max_s=2.0, then="error" if options.errors else "stop")
    if part.outputs:
        settings["effects"] = part.effects
    traces = part.effects or bool(options.poison or options.change) or part.strategy != EXACTLY_ONCE
    fn = _function(part, traces=traces, trace=trace)
    if part.store:
        settings["state"] = {"seen": Handler(Seen) if part.handler else Store(Json(int))}
    quarantine = options.quarantine_after
    settings["strategy"] = part.strategy
    return Processor(fn, name=part.name, batch=part.batch, quarantine_after=quarantine, **settings)


def counted(part: Part, values: Sequence[str]) -> str:
    """The entry of a store that a call changes."""
    return f"n{digits(part, values, 'entry') % 5}"


def _function(part: Part, *, traces: bool, trace: Trace) -> Callable[..., Any]:
    """A function with the parameters that this processor needs, and no more, so that every way of calling is met."""
    made = _stateless(part, traces=traces, trace=trace)
    if not part.store:
        return made

    def count(seen: Any, *values: str) -> None:
        entry = counted(part, values)
        seen[entry] = seen.get(entry, 0) + 1

    return _counting(part, made, count, steps=traces or part.retries > 0)


def _counting(part: Part, made: Callable[..., Any], count: Callable[..., None], *, steps: bool) -> Callable[..., Any]:
    """The function with a store, and with the same other parameters."""

    def lists(values: list[str], seen: Any) -> Any:
        for value in values:
            count(seen, value)
        return made(values)

    def lists_of_steps(values: list[str], seen: Any, step: Any) -> Any:
        for value in values:
            count(seen, value)
        return made(values, step)

    def pair(left: str, right: str, seen: Any) -> Any:
        count(seen, left, right)
        return made(left, right)

    def pair_step(left: str, right: str, seen: Any, step: Any) -> Any:
        count(seen, left, right)
        return made(left, right, step)

    def either(left: str | None = None, right: str | None = None, seen: Any = None) -> Any:
        count(seen, _either(left, right))
        return made(left, right)

    def either_step(left: str | None = None, right: str | None = None, seen: Any = None, step: Any = None) -> Any:
        count(seen, _either(left, right))
        return made(left, right, step)

    def one(value: str, seen: Any) -> Any:
        count(seen, value)
        return made(value)

    def one_step(value: str, seen: Any, step: Any) -> Any:
        count(seen, value)
        return made(value, step)

    if part.batch:
        return lists_of_steps if steps else lists
    plain = {"join": pair, "alts": either}.get(part.kind, one)
    stepping = {"join": pair_step, "alts": either_step}.get(part.kind, one_step)
    return stepping if steps else plain


def _stateless(part: Part, *, traces: bool, trace: Trace) -> Callable[..., Any]:
    """The same without a store."""

    def plain(*values: str) -> Any:
        return _result(part, values)

    def stepping(values: Sequence[str], step: Any) -> Any:
        if traces:
            trace(part, values, step)
        # Percent of the deliveries, once or twice each.
        again = digits(part, values, "retries") < part.retries
        if again and step.attempt <= digits(part, values, "times") % 2:
            raise TryAgain(f"attempt {step.attempt}")
        return _result(part, values)

    steps = traces or part.retries > 0
    if part.batch:
        return _listed(plain, stepping, steps=steps)
    match part.kind, steps:
        case "join", False:
            return lambda left, right: _result(part, (left, right))
        case "join", True:
            return lambda left, right, step: stepping((left, right), step)
        case "alts", False:
            return lambda left=None, right=None: plain(_either(left, right))
        case "alts", True:
            return lambda left=None, right=None, step=None: stepping((_either(left, right),), step)
        case _, False:
            return lambda value: _result(part, (value,))
        case _:
            return lambda value, step: stepping((value,), step)


def _listed(plain: Callable[..., Any], stepping: Callable[..., Any], *, steps: bool) -> Callable[..., Any]:
    """With `batch=True`: one result for each value; what one of them raises stands in its place."""

    def settled(fn: Callable[..., Any], *args: Any) -> Any:
        try:
            return fn(*args)
        except (Bad, TryAgain) as error:
            return error

    if steps:
        return lambda values, step: [settled(stepping, (value,), one) for value, one in zip(values, step, strict=True)]
    return lambda values: [settled(plain, value) for value in values]


def _either(left: str | None, right: str | None) -> str:
    found = left if left is not None else right
    assert found is not None
    return found


def _result(part: Part, values: Sequence[str]) -> Any:
    made = outcome(part, values)
    if isinstance(made, Bad):
        raise made
    given = [Message(one.value, key=one.key) if one.key else one.value for one in made]
    if part.kind == "fork":
        return {one.topic: value for one, value in zip(made, given, strict=True)}
    return given[0] if given else None

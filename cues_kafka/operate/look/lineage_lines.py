"""Where a message comes from and what became of it, as lines for people: what `lineage` prints and the view shows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, TypeVar

from cues_kafka.core.delivery import Provenance
from cues_kafka.graph.times import shown_time
from cues_kafka.operate.look.descendants import Descendant, Descent
from cues_kafka.operate.look.lineage import Ancestor, Changed
from cues_kafka.words import count

_Node = TypeVar("_Node")

MOST_TEXT: Final = 200
"""Characters of an error that a line shows."""

_STATES: Final = {
    "sent": "sent to the topic; it has no provenance header",
    "entry": "an entry of a store; it has no provenance header",
    "trimmed": "no longer there: the beginning of its partition was deleted",
    "compacted": "no longer there: compaction removed it",
    "recreated": "no longer there: its topic was deleted",
    "not followed": "not looked at, because --most messages were",
}


def tree(root: Ancestor) -> Iterator[str]:
    """The lines of the tree. A message that is there twice has its ancestors once."""
    return _drawn(root, lambda one: [(f"{binding}: ", parent) for binding, parent in one.inputs], _line, _notes)


def descent_tree(found: Descent) -> Iterator[str]:
    """The lines of what became of a message, and how far was looked. A message that is there twice is followed once."""
    yield from _drawn(found.root, lambda one: [("", output) for output in one.outputs], _made_line, lambda _: [])
    messages = count(found.count, "message")
    yield f"{messages} found; more may be there, because {found.ended}" if found.ended else f"{messages} found"


def _drawn(
    root: _Node,
    next_of: Callable[[_Node], list[tuple[str, _Node]]],
    line: Callable[[_Node], str],
    notes: Callable[[_Node], list[str]],
) -> Iterator[str]:
    """
    A tree as lines.

    Args:
        root: its first node.
        next_of: what is below a node, each with the text before it.
        line: says a node.
        notes: lines below a node, before what is below it.
    """
    seen: set[int] = set()
    left: list[tuple[str, str, str, _Node]] = [("", "", "", root)]
    while left:
        indent, branch, name, one = left.pop()
        again = id(one) in seen
        seen.add(id(one))
        yield f"{indent}{branch}{name}{line(one)}{', see above' if again else ''}"
        below = indent + {"": "", "├─ ": "│  ", "└─ ": "   "}[branch]
        if again:
            continue
        following, besides = next_of(one), notes(one)
        for number, note in enumerate(besides, 1):
            yield f"{below}{'└─ ' if number == len(besides) and not following else '├─ '}{note}"
        branches = [*["├─ "] * (len(following) - 1), "└─ "]
        left += [(below, mark, *node) for mark, node in zip(branches, following, strict=False)][::-1]


def _notes(one: Ancestor) -> list[str]:
    return [*([_batch(one)] if one.batch is not None else ()), *_besides(one)]


def _made_line(one: Descendant) -> str:
    if one.made is None:
        return one.place
    key = [] if one.key is None else [f"key {_shown(one.key)}"]
    words = [one.place, _time(one.timestamp_ms or 0), *key, _by(one.made)]
    return "  ".join([*words, *([_error(one.error)] if one.error else [])])


def _by(made: Provenance) -> str:
    which = f", record {made.index + 1} of {made.count}" if made.count > 1 else ""
    return f"by {made.task}, batch {made.sequence}{which}"


def _error(text: str) -> str:
    return f"error {' '.join(text.split())[:MOST_TEXT]}"


def _line(one: Ancestor) -> str:
    words = [one.place]
    if one.timestamp_ms is not None:
        words += [_time(one.timestamp_ms), *([] if one.key is None else [f"key {_shown(one.key)}"])]
    if one.made is None:
        words.append(_STATES[one.state])
        return "  ".join(words)
    words.append(_by(one.made))
    if one.made.timer is not None:
        key, due_ms = one.made.timer
        words.append(f"timer {key!r}, due {_time(due_ms)}, which was set with")
    if one.made.replay is not None:
        words.append(f"replay {one.made.replay[0]} of error message {one.replay_of}, which delivered again")
    if one.error:
        words.append(_error(one.error))
    return "  ".join(words)


def _besides(one: Ancestor) -> Iterator[str]:
    """What attempts did besides writing messages: the one that wrote this one, and those that took it."""
    if one.changed is not None:
        yield from _did(one.changed)
    for taken in one.taken:
        if taken.sequence is None:
            yield f"{taken.task}: has not taken it, or its records no longer show"
            continue
        yield f"{taken.task}: took it in batch {taken.sequence}"
        yield from (f"{taken.task}: {line}" for line in _did(taken))


def _did(changed: Changed) -> Iterator[str]:
    of = f" with its batch of {changed.deliveries} deliveries" if changed.deliveries > 1 else ""
    for store in changed.stores:
        if store.count is None:
            yield f"store {store.store}: compaction has removed what the batch changed in it"
            continue
        entries = [f"{'deleted' if entry.deleted else 'set'} {entry.key!r} ({entry.place})" for entry in store.entries]
        more = store.count - len(entries)
        yield f"store {store.store}{of}: {', '.join(entries)}{f' and {more:,} more' if more else ''}"
    for effect in changed.effects:
        found = f"{', '.join(effect.found)}; " if effect.found else ""
        yield f"effect {effect.name} ({effect.what}): {found}{effect.says}"


def _batch(one: Ancestor) -> str:
    """What stands in the place of messages."""
    batch = one.batch
    assert batch is not None
    ranges = ", ".join(
        f"{topic}/{partition}@{start} to {end - 1}"
        for topic, places in batch.ranges.items()
        for partition, (start, end) in sorted(places.items())
        if start < end
    )
    return {
        "staged": f"made by Spark of all rows of {batch.spark}: {ranges or 'what it took is no longer recorded'}",
        "feed": f"read by a feed, whose batch ended at its place {batch.place}",
        "held back": f"of no single message: made when the task had read all before {batch.place}",
        "entry": f"changed by {batch.place}, which took what is in {ranges}",
        "unknown": "made of no single message; the records of its task no longer show which",
    }[batch.kind]


def _shown(key: bytes) -> str:
    """A key in the form of Python: text, or bytes that are not UTF-8."""
    try:
        return repr(key.decode())
    except UnicodeDecodeError:
        return repr(key)


def _time(ms: int) -> str:
    """The time of a message; with milliseconds if it has any."""
    return shown_time(ms, fine=ms % 1_000 != 0)

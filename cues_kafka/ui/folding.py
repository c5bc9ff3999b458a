"""A picture with processors folded by the first word of their names, so that large graphs stay readable."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from cues_kafka.ui.layout import Picture, PlacedArrow, PlacedNode, placed

MANY: Final = 30
"""A graph with more processors is folded until someone unfolds it."""

_WORD: Final = re.compile(r"[-_.]")


@dataclass(frozen=True, slots=True)
class FoldedArrow:
    """
    What goes between two nodes; see `PlacedArrow`.

    Attributes:
        start, end: ids of nodes.
        role: of one of the bindings.
        reads: whether messages go to processors.
        bindings: processor and topic of each binding that it stands for.
    """

    start: str
    end: str
    role: str
    reads: bool
    bindings: tuple[tuple[str, str], ...]


def groups(picture: Picture) -> dict[str, list[str]]:
    """By the first word of their names, the processors that have it; only where several do."""
    found: dict[str, list[str]] = {}
    for node in picture.nodes:
        if _works(node):
            found.setdefault(word_of(node.name), []).append(node.name)
    return {word: names for word, names in found.items() if len(names) > 1}


def word_of(name: str) -> str:
    """The first word of a name, which ends before a hyphen, an underline or a dot: ``bill`` of ``bill-send``."""
    return _WORD.split(name, maxsplit=1)[0] or name


def folded(picture: Picture, words: Collection[str]) -> dict[str, Any]:
    """
    The picture for a page.

    A group that is folded is one node. A topic that only its processors use is inside of it.

    Args:
        picture: of the graph.
        words: of the groups that are folded; others than those that there are do not matter.

    Returns:
        `nodes`, `arrows`, `groups` with the names of their processors, and `advised`: which of them a page folds at
        first. A node of a group has its word as name.
    """
    known = groups(picture)
    inside = {f"processor {name}": f"group {word}" for word in words if word in known for name in known[word]}
    inside |= _hidden(picture.arrows, inside, {node.id for node in picture.nodes if node.kind == "source"})
    kept: dict[str, PlacedNode] = {}
    for node in picture.nodes:
        at = inside.get(node.id, node.id)
        own = node if at == node.id else PlacedNode(at, at.removeprefix("group "), "group", 0, 0)
        kept.setdefault(at, own)
    arrows = _merged(picture.arrows, inside)
    places = placed(list(kept), [(one.start, one.end) for one in arrows])
    nodes = [PlacedNode(node.id, node.name, node.kind, *places[node.id]) for node in kept.values()]
    advised = list(known) if sum(map(_works, picture.nodes)) > MANY else []
    return {"graph": picture.graph, "nodes": nodes, "arrows": arrows, "groups": known, "advised": advised}


def _hidden(arrows: Sequence[PlacedArrow], inside: Mapping[str, str], sources: Collection[str]) -> dict[str, str]:
    """By the id of a topic, the folded group whose processors alone use it."""
    users: dict[str, set[str]] = {}
    for arrow in arrows:
        topic, processor = (arrow.start, arrow.end) if arrow.reads else (arrow.end, arrow.start)
        users.setdefault(topic, set()).add(inside.get(processor, ""))
    between = {one.end for one in arrows if not one.reads} & {one.start for one in arrows if one.reads}
    alone = {topic: next(iter(found)) for topic, found in users.items() if len(found) == 1 and topic in between}
    return {topic: group for topic, group in alone.items() if group and topic not in sources}


def _merged(arrows: Iterable[PlacedArrow], inside: Mapping[str, str]) -> list[FoldedArrow]:
    """Arrows between what is kept; those inside of a group are not drawn."""
    found: dict[tuple[str, str], list[PlacedArrow]] = {}
    for arrow in arrows:
        start, end = inside.get(arrow.start, arrow.start), inside.get(arrow.end, arrow.end)
        if start != end:
            found.setdefault((start, end), []).append(arrow)
    return [
        FoldedArrow(*ends, many[0].role, many[0].reads, tuple((one.processor, one.topic) for one in many))
        for ends, many in found.items()
    ]


def _works(node: PlacedNode) -> bool:
    return node.kind in ("processor", "feed")

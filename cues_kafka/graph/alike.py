"""Whether two labelled graphs are the same up to the names of their nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from typing import NamedTuple


class Colouring(NamedTuple):
    """
    A graph as coloured nodes and labelled arrows, without the names that may differ.

    Attributes:
        colours: what is known of each node so far; nodes of different colours are different.
        arrows: for each node its arrows' labels and other ends.
    """

    colours: dict[Hashable, object]
    arrows: dict[Hashable, list[tuple[str, Hashable]]]

    def signature(self, node: Hashable) -> object:
        """A node's colour, and the colours that it sees along its arrows."""
        seen = Counter((label, self.colours[other]) for label, other in self.arrows[node])
        return self.colours[node], frozenset(seen.items())

    def with_mark(self, node: Hashable) -> Colouring:
        """The same shape, one node with a colour of its own."""
        return self._replace(colours={**self.colours, node: "marked"})


def same_shape(left: Colouring, right: Colouring) -> bool:
    """Refine the colours until nothing changes; where nodes still look alike, try each of them."""
    for _ in left.colours:  # colours travel one arrow a round, so as many rounds as nodes are enough
        numbers: dict[object, int] = {}
        left, right = (
            shape._replace(colours={n: numbers.setdefault(shape.signature(n), len(numbers)) for n in shape.colours})
            for shape in (left, right)
        )
        if Counter(left.colours.values()) != Counter(right.colours.values()):
            return False
    alike = Counter(left.colours.values())
    node = next((node for node, colour in left.colours.items() if alike[colour] > 1), None)
    if node is None:
        return len(left.colours) == len(right.colours)
    twins = (twin for twin, colour in right.colours.items() if colour == left.colours[node])
    return any(same_shape(left.with_mark(node), right.with_mark(twin)) for twin in twins)

"""`Topology`: which parts of a graph come before which others, as a value without functions and settings.

It has the operations of Cues' `cues.deps`. The standard library's `graphlib` sorts. Reachability and cycles are a few
lines here, because `graphlib` has neither, and this package imports the standard library only.
"""

from __future__ import annotations

import graphlib
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, TypeAlias

from cues_kafka.errors import GraphError
from cues_kafka.graph.alike import Colouring, same_shape
from cues_kafka.graph.names import hint, quoted
from cues_kafka.words import article

Steps: TypeAlias = Any
"""A literal of Cues: a name, None, or a mapping, sequence or set of literals, or a `Topology`."""


@dataclass(frozen=True, slots=True, eq=False)
class Topology:
    """
    Names, and which of them come right before which others.

    It may be in several pieces and have cycles. Two are equal if they have the same nodes and edges, in any order. Each
    operation returns a new value.

    Attributes:
        nodes: the names, in the order of declaration.
        edges: (before, after) pairs of names, in the order of declaration.

    Raises:
        GraphError: a name is not a string, an edge is no pair, or has a name that is not among the nodes.
    """

    nodes: tuple[str, ...] = ()
    edges: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        if odd := [edge for edge in self.edges if not isinstance(edge, tuple | list) or len(edge) != 2]:
            raise GraphError(f"Topology: {odd[0]!r:.200} is not an edge. Give pairs of names, as in (before, after).")
        object.__setattr__(self, "nodes", tuple(dict.fromkeys(self.nodes)))
        object.__setattr__(self, "edges", tuple(dict.fromkeys((before, after) for before, after in self.edges)))
        if wrong := [node for node in self.nodes if not isinstance(node, str)]:
            raise GraphError(f"Topology: {wrong[0]!r:.200} is not a name. Give strings.")
        self._known(*(name for edge in self.edges for name in edge))

    @classmethod
    def of(cls, steps: Steps) -> Topology:
        """
        Read a literal of Cues.

        - ``"a"``: one node.
        - ``["a", "b", "c"]``, or a tuple: each one comes before the next.
        - ``{"a", "b"}``: side by side.
        - ``{"a": "b"}``: each key comes before its value. All pairs are merged.

        They nest; between two groups, the last nodes of the first one come before the first nodes of the second one.
        None counts as nothing. Keys of mappings and members of sets must be hashable, so write tuples, frozensets and
        `Topology.of(...)` there.

        Raises:
            GraphError: something else is in it.
        """
        if isinstance(steps, Topology):
            return steps
        if steps is None:
            return cls()
        if isinstance(steps, str):
            return cls((steps,))
        if isinstance(steps, Mapping):
            return cls().merge(*(cls.of(before).then(after) for before, after in steps.items()))
        if isinstance(steps, AbstractSet):
            return cls().merge(*map(cls.of, sorted(steps, key=_sorting)))
        if isinstance(steps, list | tuple):
            whole = cls()
            for one in steps:
                whole = whole.then(one)
            return whole
        raise GraphError(
            f"Topology.of({steps!r:.200}): {article(type(steps).__name__)} is not a step. Give a name, a list, a set "
            "or a mapping of steps."
        )

    # Neighbours

    def dependencies(self, node: str) -> frozenset[str]:
        """The nodes right before this one; itself too if it feeds itself."""
        return self._neighbours(self._before(), node)

    def dependents(self, node: str) -> frozenset[str]:
        """The nodes right after this one; itself too if it feeds itself."""
        return self._neighbours(self._after(), node)

    def transitive_dependencies(self, *nodes: str) -> frozenset[str]:
        """All nodes from which one of these can be reached; one of these too if it is on a cycle."""
        return self._reached(self._before(), nodes)

    def transitive_dependents(self, *nodes: str) -> frozenset[str]:
        """All nodes that can be reached from one of these; one of these too if it is on a cycle."""
        return self._reached(self._after(), nodes)

    def depends(self, node: str, on: str) -> bool:
        """Whether `on` comes before `node`, directly or not."""
        self._known(on)
        return on in self.transitive_dependencies(node)

    def two_hops(self, node: str) -> frozenset[str]:
        """The dependencies of the dependencies: from processor to processor, where the nodes between are topics."""
        before = self._before()
        return frozenset(far for near in self.dependencies(node) for far in before[near])

    @property
    def in_nodes(self) -> frozenset[str]:
        """The nodes without dependencies: where messages enter."""
        return frozenset(node for node, before in self._before().items() if not before)

    @property
    def out_nodes(self) -> frozenset[str]:
        """The nodes without dependents: where messages end."""
        return frozenset(node for node, after in self._after().items() if not after)

    # The whole

    @property
    def order(self) -> tuple[str, ...]:
        """
        All nodes, each one behind those that it depends on.

        Raises:
            GraphError: there is a cycle, so there is no such order.
        """
        try:
            return tuple(graphlib.TopologicalSorter(self._before()).static_order())
        except graphlib.CycleError as error:
            around = " -> ".join(error.args[1])
            raise GraphError(
                f"Topology: {around} is a cycle, so there is no order. Remove one of these nodes or dependencies first."
            ) from None

    @property
    def cycles(self) -> tuple[tuple[str, ...], ...]:
        """The groups of nodes that come before each other or themselves, each in the order of declaration."""
        before = self._before()
        reach = {node: _reachable(before, (node,)) for node in self.nodes}
        groups: dict[tuple[str, ...], None] = {}
        for node in self.nodes:
            if node in reach[node]:
                groups[tuple(other for other in self.nodes if other in reach[node] and node in reach[other])] = None
        return tuple(groups)

    @property
    def components(self) -> tuple[Topology, ...]:
        """The pieces that no edge connects, in the order of declaration."""
        before, after = self._before(), self._after()
        both = {node: before[node] | after[node] for node in self.nodes}
        pieces: list[Topology] = []
        left = dict.fromkeys(self.nodes)
        while left:
            first = next(iter(left))
            piece = _reachable(both, (first,)) | {first}
            pieces.append(self._only(piece))
            left = dict.fromkeys(node for node in left if node not in piece)
        return tuple(pieces)

    def isomorphic(self, other: Topology) -> bool:
        """Whether both are the same up to the names. The time can grow exponentially where many nodes look alike."""
        return same_shape(self._shape(), other._shape())

    # Changes

    def add(self, *nodes: str) -> Topology:
        """The same with these nodes, too."""
        return Topology((*self.nodes, *nodes), self.edges)

    def remove(self, *nodes: str) -> Topology:
        """
        The same without these nodes and their edges.

        Raises:
            GraphError: there is no such node.
        """
        self._known(*nodes)
        return self._only(node for node in self.nodes if node not in nodes)

    def depend(self, node: str, *on: str) -> Topology:
        """The same where `node` also depends on these; names that are not there are added."""
        return Topology((*self.nodes, *on, node), (*self.edges, *((before, node) for before in on)))

    def undepend(self, node: str, *on: str) -> Topology:
        """
        The same where `node` no longer depends on these directly; the nodes stay.

        Raises:
            GraphError: there is no such dependency.
        """
        if missing := sorted(set(on) - self.dependencies(node)):
            raise GraphError(
                f"Topology: {node!r} does not depend on {quoted(missing)} directly. Its dependencies are "
                f"{quoted(sorted(self.dependencies(node)))}."
            )
        return Topology(self.nodes, tuple(edge for edge in self.edges if edge not in {(one, node) for one in on}))

    def merge(self, *others: Topology) -> Topology:
        """One topology with the nodes and edges of all; equal names are one node."""
        every = (self, *others)
        return Topology(
            tuple(node for one in every for node in one.nodes), tuple(edge for one in every for edge in one.edges)
        )

    def then(self, steps: Steps) -> Topology:
        """Both, where the first nodes of `steps` depend on the last nodes of this one."""
        following = Topology.of(steps)
        last, first = self.out_nodes, following.in_nodes
        between = [(end, start) for end in self.nodes if end in last for start in following.nodes if start in first]
        whole = self.merge(following)
        return Topology(whole.nodes, (*self.edges, *between, *following.edges))

    # How

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Topology):
            return NotImplemented
        return set(self.nodes) == set(other.nodes) and set(self.edges) == set(other.edges)

    def __hash__(self) -> int:
        return hash((frozenset(self.nodes), frozenset(self.edges)))

    def _before(self) -> dict[str, frozenset[str]]:
        return self._sides([(after, before) for before, after in self.edges])

    def _after(self) -> dict[str, frozenset[str]]:
        return self._sides(self.edges)

    def _sides(self, pairs: Iterable[tuple[str, str]]) -> dict[str, frozenset[str]]:
        found: dict[str, set[str]] = {node: set() for node in self.nodes}
        for node, other in pairs:
            found[node].add(other)
        return {node: frozenset(others) for node, others in found.items()}

    def _neighbours(self, sides: Mapping[str, frozenset[str]], node: str) -> frozenset[str]:
        self._known(node)
        return sides[node]

    def _reached(self, sides: Mapping[str, frozenset[str]], nodes: tuple[str, ...]) -> frozenset[str]:
        self._known(*nodes)
        return _reachable(sides, nodes)

    def _only(self, nodes: Iterable[str]) -> Topology:
        kept = set(nodes)
        return Topology(
            tuple(node for node in self.nodes if node in kept),
            tuple(edge for edge in self.edges if kept.issuperset(edge)),
        )

    def _shape(self) -> Colouring:
        arrows: dict[Any, list[tuple[str, Any]]] = {node: [] for node in self.nodes}
        for before, after in self.edges:
            arrows[before].append(("before", after))
            arrows[after].append(("after", before))
        return Colouring(dict.fromkeys(self.nodes), arrows)

    def _known(self, *nodes: str) -> None:
        there = set(self.nodes)
        if unknown := [node for node in nodes if node not in there]:
            raise GraphError(
                f"Topology: there is no {unknown[0]!r}{hint(str(unknown[0]), self.nodes)}. "
                f"Its nodes are {quoted(self.nodes)}."
            )


def _reachable(steps: Mapping[str, frozenset[str]], starts: Iterable[str]) -> frozenset[str]:
    seen: set[str] = set()
    waiting = [other for start in starts for other in steps[start]]
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            waiting += steps[name]
    return frozenset(seen)


def _sorting(step: Steps) -> str:
    """Sets have no order of their own, and that of hashes changes from process to process."""
    return repr(sorted(step, key=repr) if isinstance(step, AbstractSet) else step)

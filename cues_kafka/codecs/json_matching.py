"""Whether a pattern is found in a text, in time that grows with the text alone.

Python's `re` tries one way after the other: `^(a+)+$` takes years to refuse 50 letters, and `a+b` an hour to refuse a
million. A worker does nothing else meanwhile, and the text is a stranger's. So where that may happen, all ways are
followed at once (Thompson, "Regular expression search algorithm", 1968). What such a search cannot do, `re` does:
references to groups, looking ahead and behind, borders of words, flags, and patterns of more than `MAX_STATES` places.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from re import _constants as op  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any, Final, TypeAlias

SHORT, FEW, MANY = 200, 2, 3
"""Characters that `re` may search for a pattern of few repeats: at most their cube of tries."""

MAX_STATES: Final = 400
"""Each character costs as much as there are states at the worst."""

MOST_KEPT: Final = 100_000
"""States in the steps that are remembered of a pattern, some megabytes; and characters. Then all are forgotten."""

Test: TypeAlias = Callable[[str], bool]
States: TypeAlias = frozenset[int]

_CATEGORIES: Final = {
    "CATEGORY_DIGIT": r"\d", "CATEGORY_NOT_DIGIT": r"\D", "CATEGORY_SPACE": r"\s", "CATEGORY_NOT_SPACE": r"\S",
    "CATEGORY_WORD": r"\w", "CATEGORY_NOT_WORD": r"\W",
}  # fmt: skip


@lru_cache(maxsize=1024)
def finder(pattern: str) -> Test:
    """What says whether a pattern of Python's is found in a text."""
    search = re.compile(pattern).search
    parsed = parser.parse(pattern)
    try:
        found = _Search(parsed).found
    except _Beyond:
        return lambda text: search(text) is not None
    if _ways(parsed) > FEW:
        return found
    return lambda text: found(text) if len(text) > SHORT else search(text) is not None


class _Beyond(Exception):
    """Only `re` can do it."""


def _ways(parsed: Any, *, repeated: bool = False) -> int:
    """How many parts of a pattern can be matched in several ways; one inside of a repeat counts as many."""
    found, each = 0, MANY if repeated else 1
    for kind, what in parsed:
        if kind in (op.MAX_REPEAT, op.MIN_REPEAT):
            least, most, part = what
            found += each * (least != most) + _ways(part, repeated=repeated or most > 1)
        elif kind is op.SUBPATTERN:
            found += _ways(what[3], repeated=repeated)
        elif kind is op.BRANCH:
            found += each + sum(_ways(one, repeated=repeated) for one in what[1])
    return found


class _Search:
    """
    A search for one pattern. Threads share it.

    Args:
        parsed: the pattern, as Python's own parser takes it apart.

    Raises:
        _Beyond: only `re` can do it.
    """

    def __init__(self, parsed: Any) -> None:
        self._free: list[list[int]] = []
        """By state, those that it is also in."""
        self._edges: list[tuple[int, int] | None] = []
        """By state, the class of the characters that lead on, as a bit, and where to."""
        self._classes: dict[str, tuple[int, Test]] = {}
        """The classes of characters with their bits; many places of a pattern may have the same one."""
        self._begins: dict[int, int] = {}
        self._ends: dict[int, int] = {}
        """Where a state leads at the beginning, and at the end of the text."""
        if parsed.state.flags & ~re.UNICODE:
            raise _Beyond
        self._last = self._state()
        self._first = self._made(parsed, self._last)
        self._bits: dict[str, int] = {}
        """By character, the classes that have it."""
        self._steps: dict[tuple[States, int], States] = {}
        self._kept = 0

    def found(self, text: str) -> bool:
        """Whether the pattern is somewhere in a text."""
        states = self._closed([self._first], self._begins)
        for character in text:
            if self._last in states:
                return True
            if (bits := self._bits.get(character)) is None:
                bits = self._bits_of(character)
            if (after := self._steps.get((states, bits))) is None:
                after = self._step(states, bits)
            states = after
        return self._last in states or self._last in self._closed(
            states, self._ends if text else {**self._begins, **self._ends}
        )

    def _bits_of(self, character: str) -> int:
        if len(self._bits) >= MOST_KEPT:
            self._bits.clear()
        made = sum(bit for bit, test in self._classes.values() if test(character))
        self._bits[character] = made
        return made

    def _step(self, states: States, bits: int) -> States:
        onward = [edge[1] for one in states if (edge := self._edges[one]) is not None and edge[0] & bits]
        made = self._closed([*onward, self._first], {})
        self._kept += len(made)
        if self._kept > MOST_KEPT:
            self._steps.clear()
            self._kept = len(made)
        self._steps[states, bits] = made
        return made

    def _closed(self, states: Iterable[int], passable: dict[int, int]) -> States:
        """These states with all that are reached without a character."""
        seen, waiting = set(states), list(states)
        while waiting:
            one = waiting.pop()
            more = [*self._free[one], passable[one]] if one in passable else self._free[one]
            for other in more:
                if other not in seen:
                    seen.add(other)
                    waiting.append(other)
        return frozenset(seen)

    # The states of a pattern, from its end to its beginning

    def _state(self, *free: int, edge: tuple[int, int] | None = None) -> int:
        if len(self._free) >= MAX_STATES:
            raise _Beyond
        self._free.append([*free])
        self._edges.append(edge)
        return len(self._free) - 1

    def _made(self, parsed: Any, after: int) -> int:
        """The state at which a part of the pattern begins, behind which comes another state."""
        for kind, what in reversed(list(parsed)):
            after = self._part(kind, what, after)
        return after

    def _part(self, kind: Any, what: Any, after: int) -> int:
        if kind in (op.LITERAL, op.NOT_LITERAL, op.IN):
            return self._state(edge=(self._class(kind, what), after))
        if kind is op.SUBPATTERN and not what[1] and not what[2]:
            return self._made(what[3], after)
        if kind is op.BRANCH:
            return self._state(*(self._made(one, after) for one in what[1]))
        if kind in (op.MAX_REPEAT, op.MIN_REPEAT):
            least, most, part = what
            return self._repeated(least, most, part, after)
        if kind is op.AT and what in (op.AT_BEGINNING, op.AT_END_STRING):
            made = self._state()
            (self._begins if what is op.AT_BEGINNING else self._ends)[made] = after
            return made
        raise _Beyond

    def _class(self, kind: Any, what: Any) -> int:
        """The bit of a class of characters."""
        name = f"{kind} {what}"
        return self._classes.setdefault(name, (1 << len(self._classes), _test(kind, what)))[0]

    def _repeated(self, least: int, most: Any, part: Any, after: int) -> int:
        if most is op.MAXREPEAT:
            again = self._state(after)
            self._free[again].append(self._made(part, again))
            begin = again
        else:
            begin = after
            for _ in range(int(most) - least):
                begin = self._state(after, self._made(part, begin))
        for _ in range(least):
            begin = self._made(part, begin)
        return begin


def _test(kind: Any, what: Any) -> Test:
    """Whether a character is one of a class."""
    if kind is not op.IN:
        literal, same = chr(what), kind is op.LITERAL
        return lambda character: (character == literal) is same
    negated = what[0][0] is op.NEGATE
    tests = [_part_of_class(*one) for one in what[negated:]]
    return lambda character: any(test(character) for test in tests) is not negated


def _part_of_class(kind: Any, what: Any) -> Test:
    if kind is op.LITERAL:
        return chr(what).__eq__
    if kind is op.RANGE:
        first, last = map(chr, what)
        return lambda character: first <= character <= last
    if kind is op.CATEGORY and str(what) in _CATEGORIES:
        match = re.compile(_CATEGORIES[str(what)]).match
        return lambda character: match(character) is not None
    raise _Beyond

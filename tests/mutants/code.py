"""The code that mutants change: where a mutant's place is, and the text of its file without the rule."""

from __future__ import annotations

import ast
import builtins
import difflib
import re
import textwrap
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from tests.mutants.edits import Change, Edit
from tests.mutants.mutant import Mutant
from tests.mutants.trees import bare, bodies, parts

_NEAREST: Final = 5
"""The number of candidates that an error names."""


@dataclass(frozen=True, slots=True)
class Source:
    """
    One file.

    Attributes:
        path: from the root.
        text: as it is.
        tree: of the text.
    """

    path: Path
    text: str
    tree: ast.Module


@dataclass(frozen=True, slots=True)
class Definition:
    """
    A function, a method, a class, or a name of a module or a class that has a value.

    Attributes:
        name: its qualified name, which begins with that of its module.
        node: its code.
        source: the file that has it.
    """

    name: str
    node: ast.AST
    source: Source

    def is_called(self, end: str) -> bool:
        """Whether the qualified name is this one, or ends with it."""
        wanted = [bare(part) for part in end.split(".")]
        return [bare(part) for part in self.name.split(".")[-len(wanted) :]] == wanted


@dataclass(frozen=True, slots=True)
class Found:
    """
    A change that an edit could make.

    Attributes:
        change: which.
        definition: where.
    """

    change: Change
    definition: Definition

    @property
    def at(self) -> tuple[Path, int, int]:
        """The file, the line, and the byte in that line."""
        return (self.definition.source.path, *_start(self.change.old[0]))

    def __str__(self) -> str:
        """One line for people."""
        path, line, _ = self.at
        first = ast.unparse(self.change.old[0]).splitlines()[0]
        return f"{self.definition.name} ({path}:{line}): {first}"


class PlaceError(ValueError):
    """A mutant does not fit the code: its place is gone, or is there more than once."""


class Code:
    """
    A package as trees.

    Args:
        root: the folder that has the package.
        package: its name.
    """

    def __init__(self, root: Path, package: str = "cues_kafka") -> None:
        self._sources = []
        for path in sorted((root / package).rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            self._sources.append(Source(path.relative_to(root), text, ast.parse(text)))

    @cached_property
    def definitions(self) -> Sequence[Definition]:
        """All of them."""
        return [one for source in self._sources for one in _definitions(source)]

    @cached_property
    def _by_last_name(self) -> Mapping[str, Sequence[Definition]]:
        found = defaultdict(list)
        for one in self.definitions:
            found[_last(one.name)].append(one)
        return found

    @cached_property
    def _attributes(self) -> set[str]:
        """The names that come after a dot anywhere."""
        return {name for source in self._sources for name in re.findall(r"\.(\w+)", source.text)}

    def mutated(self, mutant: Mutant) -> Source:
        """
        The file of a mutant, without its rule.

        Raises:
            PlaceError: the code does not have the place exactly once, the edit changes nothing, or the new code fails
                by itself.
        """
        places = [one for one in self._by_last_name.get(_last(mutant.at), ()) if one.is_called(mutant.at)]
        found = _found(mutant.edit, places)
        if len(found) != 1:
            raise PlaceError("\n".join([f"{mutant.rule}: {mutant.edit}", *self._why_not(mutant, places, found)]))
        [one] = found
        source = one.definition.source
        text = _spliced(source.text, one.change)
        changed = Source(source.path, text, ast.parse(text))
        if list(map(ast.unparse, one.change.old)) == list(map(ast.unparse, one.change.new)):
            raise PlaceError(f"{mutant.rule}: {mutant.edit} changes nothing at {one}")
        if strange := sorted(self._strange(one)):
            raise PlaceError(f"{mutant.rule}: what {mutant.edit} puts at {one} has names that are not there: {strange}")
        return changed

    def _why_not(self, mutant: Mutant, places: Sequence[Definition], found: Sequence[Found]) -> Iterator[str]:
        if found:
            yield f"is found {len(found)} times in {mutant.at!r}:"
            yield from (f"- {one}" for one in found)
            return
        if places:
            yield f"is not found in {' or '.join(one.name for one in places)}. The nearest there:"
            yield from _nearest(mutant.edit, places)
        else:
            yield f"No definition is called {mutant.at!r}. The nearest names:"
            for name in difflib.get_close_matches(_last(mutant.at), self._by_last_name, _NEAREST):
                yield from (f"- {one.name}" for one in self._by_last_name[name])
        if elsewhere := _found(mutant.edit, self.definitions):
            yield "It is found elsewhere:"
            yield from (f"- {one}" for one in elsewhere[: _NEAREST * 4])

    def _strange(self, one: Found) -> set[str]:
        """
        Names in the new code that its place does not have.

        A test would fail because of them, and not because the rule is gone.
        """
        new = [part for node in one.change.new for part in ast.walk(node)]
        names = {part.id for part in new if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load)}
        stored = {part.id for part in new if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)}
        attributes = {part.attr for part in new if isinstance(part, ast.Attribute)}
        source = one.definition.source
        known = set(dir(builtins)) | stored | _identifiers(one.definition.node)
        for node in source.tree.body:
            known |= _identifiers(node) if isinstance(node, ast.Import | ast.ImportFrom) else _top_names(node)
        return (names - known) | {name for name in attributes if name not in self._attributes}


def _last(name: str) -> str:
    """The last part of a qualified name, without the underscores before it."""
    return bare(name.rpartition(".")[2])


def _identifiers(node: ast.AST) -> set[str]:
    """The names that a definition or an import uses or gives."""
    found = set()
    for part in ast.walk(node):
        if isinstance(part, ast.Name):
            found.add(part.id)
        elif isinstance(part, ast.arg):
            found.add(part.arg)
        elif isinstance(part, ast.alias):
            found.add((part.asname or part.name).partition(".")[0])
    return found


def _top_names(node: ast.stmt) -> set[str]:
    return {node.name} if isinstance(node, _DEFINING) else _identifiers(node)


_DEFINING: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def _definitions(source: Source) -> Iterator[Definition]:
    inside = ".".join(source.path.with_suffix("").parts)
    waiting: list[tuple[str, ast.AST]] = [(inside, source.tree)]
    while waiting:
        outer, node = waiting.pop()
        for child in ast.iter_child_nodes(node):
            if isinstance(child, _DEFINING):
                yield Definition(f"{outer}.{child.name}", child, source)
                waiting.append((f"{outer}.{child.name}", child))
                continue
            if isinstance(node, ast.Module | ast.ClassDef):
                targets = [child.target] if isinstance(child, ast.AnnAssign) else getattr(child, "targets", [])
                yield from (
                    Definition(f"{outer}.{one.id}", child, source) for one in targets if isinstance(one, ast.Name)
                )
            if isinstance(child, ast.stmt | ast.excepthandler):
                waiting.append((outer, child))


def _found(edit: Edit, places: Sequence[Definition]) -> Sequence[Found]:
    """All changes of an edit, once each: with the innermost definition that has it."""
    found: dict[Any, Found] = {}
    for place in places:
        for change in edit.changes(place.node):
            one = Found(change, place)
            key = (one.at, _end(change.old[-1]), tuple(map(ast.dump, change.new)))
            if key not in found or len(found[key].definition.name) < len(place.name):
                found[key] = one
    return list(found.values())


def _nearest(edit: Edit, places: Sequence[Definition]) -> Iterator[str]:
    """Code that reads most as an edit does, one piece of a line."""
    seen = {}
    for place in places:
        for part in (*parts(place.node), *(one for body in bodies(place.node) for one in body)):
            if isinstance(part, ast.expr | ast.stmt) and not isinstance(part, (*_DEFINING, ast.Constant, ast.Name)):
                seen[ast.unparse(part)] = f"{place.source.path}:{part.lineno}"
    pattern = str(getattr(edit, "old", "") or getattr(edit, "condition", "") or getattr(edit, "part", ""))
    wanted = textwrap.dedent(pattern).replace("$", "").strip()
    named: set[str] = set()
    for text in difflib.get_close_matches(wanted, seen, _NEAREST * 4, cutoff=0.3):
        if seen[text] not in named and len(named) < _NEAREST:
            named.add(seen[text])
            yield f"- {seen[text]}: {text.splitlines()[0]}"


def _start(node: ast.AST) -> tuple[int, int]:
    assert isinstance(node, ast.expr | ast.stmt)
    return node.lineno, node.col_offset


def _end(node: ast.AST) -> tuple[int, int]:
    assert isinstance(node, ast.expr | ast.stmt)
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    return node.end_lineno, node.end_col_offset


def _spliced(text: str, change: Change) -> str:
    """The text with a change, and otherwise as it is."""
    lines = text.encode().splitlines(keepends=True)
    line, begin = _start(change.old[0])
    last, end = _end(change.old[-1])
    before, after = lines[line - 1][:begin], lines[last - 1][end:]
    if isinstance(change.old[0], ast.expr):
        made = f"({ast.unparse(change.new[0])})"
    else:
        new = "\n".join(map(ast.unparse, change.new))
        made = textwrap.indent(new, " " * begin).lstrip(" ")
    changed = [*lines[: line - 1], before + made.encode() + after, *lines[last:]]
    return b"".join(changed).decode()

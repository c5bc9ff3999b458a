"""Patterns: Python text that is compared with code as a tree, so layout, comments and parentheses do not matter.

In a pattern

- `$name` is a hole. It stands for any expression, for any identifier, or, alone on a line, for any one statement. A
  hole that occurs twice stands for the same both times. What may be renamed, as a local variable, is a hole.
- `$*name`, alone on a line or among arguments, stands for any number of statements or arguments.
- `...` stands for any expression, for any number of arguments or elements, or, alone on a line, for any statements.
- `self` stands for any receiver, so a method may move to another object.
- Identifiers are compared without leading underscores: what becomes public is still the same.
"""

from __future__ import annotations

import ast
import copy
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Final

_HOLE: Final = "hole_of_"

_SERIES: Final = "hole_of_all_"

_SELF: Final = "self"

_ALL: Final = "$" + _SERIES.removeprefix(_HOLE)
"""How the name of a hole for any number begins."""

_UNCOMPARED: Final = frozenset({"ctx", "kind", "type_comment"})
"""Fields of nodes that follow from where a node stands, or that say nothing."""

Bound = Mapping[str, Any]
"""What a match has found: under `$name` a node; under an identifier of the pattern, how the code spells it."""

NOTHING: Final[Bound] = {}


@cache
def expression(text: str) -> ast.expr | None:
    """A pattern as one expression, or None where it is statements."""
    try:
        return ast.parse(f"({_holes_named(text)}\n)", mode="eval").body if text.strip() else None
    except SyntaxError:
        return None


@cache
def statements(text: str) -> Sequence[ast.stmt]:
    """A pattern as statements."""
    return tuple(ast.parse(_holes_named(text)).body)


@cache
def argument(text: str) -> ast.expr | ast.keyword:
    """A pattern as one argument of a call, with its name where it has one."""
    call = ast.parse(f"call({_holes_named(text)}\n)", mode="eval").body
    assert isinstance(call, ast.Call)
    given: list[ast.expr | ast.keyword] = [*call.args, *call.keywords]
    assert len(given) == 1, text
    return given[0]


def _holes_named(text: str) -> str:
    text = textwrap.dedent(text).strip()
    return re.sub(r"\$(?=\w)", _HOLE, re.sub(r"\$\*(?=\w)", _SERIES, text))


def fit(pattern: Any, code: Any, bound: Bound = NOTHING) -> Bound | None:
    """
    What a pattern finds in code that fits it, or None.

    Args:
        pattern: a node, a list of nodes, or what a field of a node has.
        code: the same of the code.
        bound: what the parts of the pattern before this one have found.
    """
    if isinstance(pattern, Sequence) and not isinstance(pattern, str | bytes):
        return _fit_all(pattern, code, bound) if isinstance(code, Sequence) else None
    if not isinstance(pattern, ast.AST):
        return _fit_field(pattern, code, bound)
    if (hole := _hole(pattern)) is not None:
        wanted = ast.stmt if isinstance(pattern, ast.stmt) else ast.expr
        return _bind(hole, code, bound) if isinstance(code, wanted) else None
    if _is_anything(pattern):
        return bound if isinstance(code, ast.expr | ast.stmt) else None
    if type(pattern) is not type(code):
        return None
    if isinstance(pattern, ast.Constant) and isinstance(code, ast.Constant):
        is_equal = type(pattern.value) is type(code.value) and pattern.value == code.value
        return bound if is_equal else None
    if isinstance(pattern, ast.Call) and isinstance(code, ast.Call) and any(map(_is_anything, pattern.args)):
        return _fit_call(pattern, code, bound)
    return _fit_fields(pattern, code, bound, pattern._fields)


def _fit_fields(pattern: ast.AST, code: ast.AST, bound: Bound, fields: Sequence[str]) -> Bound | None:
    found: Bound | None = bound
    for field in fields:
        if found is not None and field not in _UNCOMPARED:
            found = fit(getattr(pattern, field, None), getattr(code, field, None), found)
    return found


def _fit_field(pattern: Any, code: Any, bound: Bound) -> Bound | None:
    """A field that is no node: an identifier, a number, or nothing."""
    if not isinstance(pattern, str) or not isinstance(code, str):
        return bound if type(pattern) is type(code) and pattern == code else None
    if pattern.startswith(_HOLE):
        return _bind("$" + pattern.removeprefix(_HOLE), ast.Name(code), bound)
    return {**bound, pattern: code} if bare(pattern) == bare(code) else None


def _fit_all(patterns: Sequence[Any], codes: Sequence[Any], bound: Bound) -> Bound | None:
    if not patterns:
        return None if codes else bound
    if _is_anything(patterns[0]):
        return _first(_fit_all(patterns[1:], codes[count:], bound) for count in range(len(codes) + 1))
    if isinstance(patterns[0], ast.AST) and (hole := _hole(patterns[0]) or "").startswith(_ALL):
        return _first(
            _fit_all(patterns[1:], codes[count:], {**bound, hole: codes[:count]}) for count in range(len(codes) + 1)
        )
    if not codes or (found := fit(patterns[0], codes[0], bound)) is None:
        return None
    return _fit_all(patterns[1:], codes[1:], found)


def _fit_call(pattern: ast.Call, code: ast.Call, bound: Bound) -> Bound | None:
    """A call with `...` among its arguments: arguments by name that the pattern does not have do not matter."""
    found = _fit_fields(pattern, code, bound, ("func", "args"))
    for one in pattern.keywords:
        if found is not None:
            found = _first(fit(one, given, found) for given in code.keywords)
    return found


def _first(tried: Iterable[Bound | None]) -> Bound | None:
    return next((found for found in tried if found is not None), None)


def _bind(hole: str, code: ast.AST, bound: Bound) -> Bound | None:
    if hole not in bound:
        return {**bound, hole: code}
    return bound if same(bound[hole], code) else None


def _hole(pattern: ast.AST) -> str | None:
    """The name of the hole that a node is."""
    if isinstance(pattern, ast.Expr):
        pattern = pattern.value
        return _hole(pattern) if isinstance(pattern, ast.Name) and pattern.id != _SELF else None
    if isinstance(pattern, ast.Name) and pattern.id.startswith(_HOLE):
        return "$" + pattern.id.removeprefix(_HOLE)
    return "$" + _SELF if isinstance(pattern, ast.Name) and pattern.id == _SELF else None


def _is_anything(pattern: Any) -> bool:
    value = pattern.value if isinstance(pattern, ast.Expr) else pattern
    return isinstance(value, ast.Constant) and value.value is ...


def same(one: ast.AST, other: ast.AST) -> bool:
    """Whether two trees are equal, whatever is done with them."""
    return _written(one) == _written(other)


def _written(node: ast.AST) -> str:
    return re.sub(r"ctx=(Load|Store|Del)\(\)", "", ast.dump(node))


def bare(identifier: str) -> str:
    """An identifier without the underscores before it."""
    return identifier.lstrip("_") or identifier


def fill(new: Any, bound: Bound) -> Any:
    """
    A copy of what is to be put into code, with what its holes stand for, and spelled as the code is.

    Raises:
        ValueError: a hole of it was not found by the pattern.
    """
    return _Filled(bound).visit(copy.deepcopy(new))


class _Filled(ast.NodeTransformer):
    def __init__(self, bound: Bound) -> None:
        self._bound = bound

    def visit(self, node: ast.AST) -> Any:
        hole = _hole(node)
        if hole == "$self" and hole not in self._bound:
            return node
        if hole is not None:
            if hole not in self._bound:
                raise ValueError(f"{hole} is not in the pattern")
            return copy.deepcopy(self._bound[hole])
        for field, value in ast.iter_fields(node):
            if isinstance(value, str) and not isinstance(node, ast.Constant):
                setattr(node, field, self._spelled(value))
        return self.generic_visit(node)

    def _spelled(self, identifier: str) -> str:
        if identifier.startswith(_HOLE):
            found = self._bound["$" + identifier.removeprefix(_HOLE)]
            return str(found.id)
        return str(self._bound.get(identifier, identifier))


def parts(node: ast.AST) -> Iterator[ast.AST]:
    """A node and all below it; a text with values in it is one part."""
    yield node
    if not isinstance(node, ast.JoinedStr):
        for child in ast.iter_child_nodes(node):
            yield from parts(child)


def bodies(node: ast.AST) -> Iterator[Sequence[ast.stmt]]:
    """The blocks of statements in a node."""
    for one in parts(node):
        for _, value in ast.iter_fields(one):
            if isinstance(value, list) and value and isinstance(value[0], ast.stmt):
                yield value

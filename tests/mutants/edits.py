"""The edits that take a rule out of the code. Their texts are patterns (see `tests.mutants.trees`)."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tests.mutants.trees import NOTHING, argument, bodies, expression, fill, fit, parts, statements


@dataclass(frozen=True, slots=True)
class Change:
    """
    Code that an edit takes out, and what it puts there.

    Attributes:
        old: one expression, or statements that follow each other.
        new: one expression, or statements.
    """

    old: Sequence[ast.AST]
    new: Sequence[ast.AST]


class Edit(Protocol):
    """What is changed."""

    def changes(self, scope: ast.AST) -> Iterator[Change]:
        """All that the edit could change in a definition; a mutant has exactly one."""


@dataclass(frozen=True, slots=True)
class Replace:
    """
    An expression by an expression, or statements by statements.

    Attributes:
        old: a pattern.
        new: what comes in its place. It may have the holes of the pattern; `$it` is all that was found, if that is an
            expression or one statement.
    """

    old: str
    new: str

    def changes(self, scope: ast.AST) -> Iterator[Change]:
        """See `Edit`."""
        old, new = expression(self.old), expression(self.new)
        if old is not None and new is not None:
            for node in parts(scope):
                if isinstance(node, ast.expr) and (bound := fit(old, node)) is not None:
                    yield Change([node], [fill(new, {**bound, "$it": node})])
            return
        pattern = statements(self.old)
        for body in bodies(scope):
            for start in range(len(body)):
                found = body[start : start + len(pattern)]
                if (bound := fit(pattern, found)) is not None:
                    made = [fill(one, {**bound, "$it": found[0]}) for one in statements(self.new)]
                    yield Change(found, made or _nothing(body, found))


def _nothing(body: Sequence[ast.stmt], found: Sequence[ast.stmt]) -> Sequence[ast.stmt]:
    """What is left of statements that are deleted: a block without any is no Python."""
    return [ast.Pass()] if len(found) == len(body) else []


@dataclass(frozen=True, slots=True)
class Delete:
    """
    Statements.

    Attributes:
        old: a pattern.
    """

    old: str

    def changes(self, scope: ast.AST) -> Iterator[Change]:
        """See `Edit`."""
        return Replace(self.old, "").changes(scope)


@dataclass(frozen=True, slots=True)
class Never:
    """
    A condition, by False.

    Attributes:
        condition: a pattern.
    """

    condition: str

    def changes(self, scope: ast.AST) -> Iterator[Change]:
        """See `Edit`."""
        return Replace(self.condition, "False").changes(scope)


@dataclass(frozen=True, slots=True)
class Without:
    """
    One operand of `and` or `or`, one argument of a call, or one entry of a dictionary or a list.

    Attributes:
        part: a pattern; for an entry of a dictionary, of its key.
    """

    part: str

    def changes(self, scope: ast.AST) -> Iterator[Change]:
        """See `Edit`."""
        pattern = argument(self.part)
        for node in parts(scope):
            for fields in _SERIES.get(type(node), ()):
                for at, one in enumerate(getattr(node, fields[0])):
                    if fit(pattern, one, NOTHING) is not None:
                        yield Change([node], [_shorter(node, fields, at)])


_SERIES: dict[type[ast.AST], Sequence[Sequence[str]]] = {
    ast.BoolOp: [["values"]],
    ast.Call: [["args"], ["keywords"]],
    ast.Dict: [["keys", "values"]],
    ast.List: [["elts"]],
    ast.Tuple: [["elts"]],
}
"""The fields with the parts of each kind of node; those that belong together."""


def _shorter(node: ast.AST, fields: Sequence[str], at: int) -> Any:
    made = copy.copy(node)
    for field in fields:
        values = getattr(node, field)
        setattr(made, field, [*values[:at], *values[at + 1 :]])
    return made.values[0] if isinstance(made, ast.BoolOp) and len(made.values) == 1 else made


@dataclass(frozen=True, slots=True)
class Default:
    """
    The default of a parameter.

    Attributes:
        parameter: its name.
        new: another default.
    """

    parameter: str
    new: str

    def changes(self, scope: ast.AST) -> Iterator[Change]:
        """See `Edit`."""
        if isinstance(scope, ast.FunctionDef | ast.AsyncFunctionDef):
            given = scope.args
            positional = [*given.posonlyargs, *given.args][-len(given.defaults) :] if given.defaults else []
            for parameter, default in [
                *zip(positional, given.defaults, strict=True),
                *zip(given.kwonlyargs, given.kw_defaults, strict=True),
            ]:
                if parameter.arg == self.parameter and default is not None:
                    yield Change([default], [fill(expression(self.new), NOTHING)])


@dataclass(frozen=True, slots=True)
class Text:
    """
    A piece of a text, as of SQL, however its lines are broken.

    Attributes:
        old: a piece of a string, with its values in braces.
        new: what comes in its place.
    """

    old: str
    new: str

    def changes(self, scope: ast.AST) -> Iterator[Change]:
        """See `Edit`."""
        for node in parts(scope):
            if isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str)):
                text = ast.unparse(node)
                for _ in range(text.count(self.old)):
                    yield Change([node], [ast.parse(text.replace(self.old, self.new), mode="eval").body])

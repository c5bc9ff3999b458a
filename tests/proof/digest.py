"""What a proof is about: a digest of programs as Python understands them.

It is taken of syntax trees without docstrings, and the names and folders of files do not count. So better words,
another layout and a file that moves void no result. What changes what runs does. Of `from a import b` the name `b`
counts, and of our own modules not where `b` is kept: it is the same program after its file has moved. Nor does the
order of a file's imports count, which follows the names of modules.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from functools import cache
from hashlib import sha256
from pathlib import Path

OURS = ("cues_kafka", "tests")


def digest(files: Iterable[Path], *, shared: tuple[str, Iterable[Path]] | None = None) -> str:
    """
    Of Python files, in 16 hexadecimal digits.

    Args:
        files: the whole of each.
        shared: a module or package that they import, and its files. Only what they take from it counts, in whichever
            of its files that is.
    """
    files = list(files)
    programs = _programs(file.read_text(encoding="utf-8") for file in files)
    if shared is not None:
        module, places = shared
        names = {name for one in files for name in _taken_from(module, ast.parse(one.read_text(encoding="utf-8")))}
        statements = [one for file in places for one in _statements(ast.parse(file.read_text(encoding="utf-8")))]
        programs += sorted({_hashed(one) for one in _reached(names, statements)})
    return _joined(programs)


def digest_of_rooms(package: Path, rooms: Iterable[str]) -> str:
    """
    Of all Python files of some folders of a package.

    Raises:
        FileNotFoundError: a folder has no such file, so it has moved, and the digest would be of other code.
    """
    found = []
    for room in rooms:
        files = list((package / room).rglob("*.py"))
        if not files:
            raise FileNotFoundError(f"{room} has no Python file: name the folder in which its code is now.")
        found += files
    return digest(found)


def digest_of(texts: Iterable[str]) -> str:
    """Of Python programs that are given as text."""
    return _joined(_programs(texts))


def _programs(texts: Iterable[str]) -> list[bytes]:
    """The digest of each program, in an order that names do not decide."""
    return sorted(map(_program, texts))


@cache  # the mutants of one file have the same tests
def _program(text: str) -> bytes:
    return _hashed(_imports_sorted(ast.parse(text).body))


def _imports_sorted(body: list[ast.stmt]) -> list[ast.stmt]:
    imports = [one for one in body if isinstance(one, ast.Import | ast.ImportFrom)]
    ordered = sorted(imports, key=lambda one: "".join(_written(one)))
    return [*ordered, *(one for one in body if one not in imports)]


def _joined(programs: Iterable[bytes]) -> str:
    return sha256(b"".join(programs)).hexdigest()[:16]


def _taken_from(module: str, program: ast.Module) -> Iterator[str]:
    """The names that a program imports from a module or from below it."""
    for node in ast.walk(program):
        if isinstance(node, ast.ImportFrom) and f"{node.module}.".startswith(f"{module}."):
            yield from (alias.name for alias in node.names)


def _statements(program: ast.Module) -> Iterator[ast.stmt]:
    """Of a module that is shared: each name that it imports by itself, and none of ours, which are pooled."""
    for one in program.body:
        if not isinstance(one, ast.ImportFrom):
            yield one
        elif not str(one.module).startswith(OURS):
            yield from (ast.ImportFrom(one.module, [alias], one.level) for alias in one.names)


def _reached(names: set[str], statements: Iterable[ast.stmt]) -> set[ast.stmt]:
    """The statements that define these names, and those that they use."""
    statements, found = list(statements), set[ast.stmt]()
    while new := {one for one in statements if one not in found and names & _defined(one)}:
        found |= new
        names |= {node.id for one in new for node in ast.walk(one) if isinstance(node, ast.Name)}
    return found


def _defined(node: ast.stmt) -> set[str]:
    """The names that a statement of a module defines or imports."""
    if isinstance(node, ast.ClassDef | ast.FunctionDef):
        return {node.name}
    if isinstance(node, ast.Import | ast.ImportFrom):
        return {alias.asname or alias.name.partition(".")[0] for alias in node.names}
    stored = (one for one in ast.walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store))
    return {one.id for one in stored}


def _hashed(tree: object) -> bytes:
    return sha256("".join(_written(tree)).encode()).digest()


def _written(value: object) -> Iterator[str]:
    """A tree as text, the same in all versions of Python: a field that is empty does not count."""
    if isinstance(value, ast.AST):
        yield f"({type(value).__name__}"
        for name, field in ast.iter_fields(value):
            if field is not None and field != [] and not (name == "module" and str(field).startswith(OURS)):
                yield f" {name}="
                yield from _written(field)
        yield ")"
    elif isinstance(value, list):
        yield "["
        for one in value:
            if not _is_docstring(one):
                yield from _written(one)
        yield "]"
    else:
        yield f"{type(value).__name__} {value!r} "


def _is_docstring(node: object) -> bool:
    """Of a module, a class, a function or an attribute: a text that nothing is done with."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)

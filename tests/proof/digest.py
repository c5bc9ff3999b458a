"""What a proof is about: a digest of programs as Python understands them.

It is taken of syntax trees without docstrings, and the names and folders of files do not count. So better words,
another layout and a file that moves void no result. What changes what runs does, and so does an import that names
another module.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from hashlib import sha256
from pathlib import Path


def digest(files: Iterable[Path]) -> str:
    """Of Python files, in 16 hexadecimal digits."""
    programs = sorted(_program(file.read_text(encoding="utf-8")) for file in files)
    return sha256(b"".join(programs)).hexdigest()[:16]


def _program(text: str) -> bytes:
    """The digest of one file."""
    return sha256("".join(_written(ast.parse(text))).encode()).digest()


def _written(value: object) -> Iterator[str]:
    """A tree as text, the same in all versions of Python: a field that is empty does not count."""
    if isinstance(value, ast.AST):
        yield f"({type(value).__name__}"
        for name, field in ast.iter_fields(value):
            if field is not None and field != []:
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

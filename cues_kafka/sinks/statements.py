"""Which statements a function must not run: those that would end its transaction, or change tables in it."""

from __future__ import annotations

import re
from typing import Final

_FIRST: Final = re.compile(r"(?:\s|--[^\n]*(?:\n|$)|/\*.*?\*/|\()*([A-Za-z]+)", re.DOTALL)

ENDING: Final = frozenset({"ABORT", "BEGIN", "COMMIT", "END", "PREPARE", "ROLLBACK", "START", "XA"})

CHANGING: Final = frozenset(
    {"ALTER", "ATTACH", "CREATE", "DETACH", "DROP", "GRANT", "RENAME", "REVOKE", "TRUNCATE", "VACUUM"}
)


def refused(statement: str) -> str:
    """Why user code must not run this statement; empty: it may."""
    found = _FIRST.match(statement)
    word = found.group(1).upper() if found else ""
    if word in ENDING:
        return (
            f"{word} would end the transaction, which is committed with the place in the input. Leave it out: a "
            "step is committed when the function returns, and taken back when it raises"
        )
    if word in CHANGING:
        return (
            f"{word} changes tables, and some databases commit at it. Do it before the start: in a migration, or with "
            "psql or its like"
        )
    return ""

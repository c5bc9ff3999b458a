"""Which statements a function must not run: those that would end its transaction, or change tables in it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

_PART: Final = re.compile(
    r"""
    (?P<skip> \s+ | --[^\n]* | \#[^\n]* | /\*(?!!).*?(?:\*/|$) | [(]+ )
    | (?P<text> '(?:[^'\\]|''|\\.)*(?:'|$) | "(?:[^"\\]|""|\\.)*(?:"|$) | `[^`]*(?:`|$)
              | \$(?P<tag>\w*)\$.*?(?:\$(?P=tag)\$|$) )
    | (?P<end> ; )
    | (?P<word> [^\W\d]\w* )
    | (?P<other> . )
    """,
    re.DOTALL | re.VERBOSE,
)
"""Takes a text of SQL apart, of all three databases at once."""

ENDING: Final = frozenset({"ABORT", "BEGIN", "COMMIT", "END", "PREPARE", "ROLLBACK", "START", "XA"})

ENDING_MYSQL: Final = frozenset(
    {"ANALYZE", "CACHE", "CHECK", "FLUSH", "INSTALL", "LOCK", "OPTIMIZE", "REPAIR", "RESET", "UNINSTALL", "UNLOCK"}
)
"""MySQL and MariaDB commit at these, too."""

CHANGING: Final = frozenset(
    {"ALTER", "ATTACH", "CREATE", "DETACH", "DROP", "GRANT", "RENAME", "REVOKE", "TRUNCATE", "VACUUM"}
)

OURS: Final = frozenset({"SAVEPOINT", "RELEASE"})


@lru_cache(maxsize=1024)
def refused(statement: str, more: frozenset[str] = frozenset()) -> str:
    """
    Why user code must not run these statements; empty: it may.

    Args:
        statement: one or several, with `;` between them.
        more: first words of statements at which this database commits.
    """
    for word in _first_words(statement):
        if word in ENDING or word in more or (word == "SET" and "AUTOCOMMIT" in statement.upper()):
            return (
                f"{word} would end the transaction, which is committed with the place in the input. Leave it out: a "
                "step is committed when the function returns, and taken back when it raises. To take back a part of "
                "it, write `with db.savepoint():`"
            )
        if word in OURS:
            return f"{word}: write `with db.savepoint():`, which does not meet the savepoints of the steps"
        if word in CHANGING:
            return (
                f"{word} changes tables, and some databases commit at it. Do it before the start: in a migration, or "
                "with psql or its like"
            )
    return ""


def _first_words(statement: str) -> Iterator[str]:
    """The first word of each statement, in upper case; it may follow an opening bracket."""
    begun = False
    for found in _PART.finditer(statement):
        match found.lastgroup:
            case "end":
                begun = False
            case "word" if not begun:
                begun = True
                yield found["word"].upper()
            case "text":
                begun = True

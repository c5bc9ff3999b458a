"""Which statements a function must not run: those that would end its transaction, or change tables in it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

ENDING: Final = frozenset({"ABORT", "BEGIN", "COMMIT", "END", "PREPARE", "ROLLBACK", "START", "XA"})

_PLAIN: Final = r"""'(?:[^']|'')*(?:'|$) | "(?:[^"]|"")*(?:"|$)"""
_BACKSLASH: Final = r"""'(?:[^'\\]|''|\\.)*(?:'|$) | "(?:[^"\\]|""|\\.)*(?:"|$) | `[^`]*(?:`|$)"""


@dataclass(frozen=True, slots=True, eq=False)
class Grammar:
    """
    How one kind of database reads a text of SQL.

    Attributes:
        tokens: takes a text apart; see `_grammar`.
        nests: whether a comment may have comments in it.
        ending: first words of statements that end the transaction.
    """

    tokens: re.Pattern[str]
    nests: bool
    ending: frozenset[str]


def _grammar(*, skipped: str, texts: str, nests: bool = False, more: frozenset[str] = frozenset()) -> Grammar:
    """
    The grammar of one database.

    Args:
        skipped: a pattern of comments that end with their line, and of what else has no meaning.
        texts: a pattern of everything quoted. What lacks its end goes on to the end of the statement.
        nests: see `Grammar`.
        more: first words of statements at which this database commits, beside those that all of them know.
    """
    tokens = rf"""
        (?P<skip> \s+ | {skipped} | [(]+ )
        | (?P<comment> /\* )
        | (?P<text> {texts} )
        | (?P<end> ; )
        | (?P<word> [^\W\d][\w$]* )
        | (?P<other> . )
    """
    return Grammar(re.compile(tokens, re.DOTALL | re.VERBOSE), nests, ENDING | more)


POSTGRES: Final = _grammar(
    skipped=r"--[^\n]*",
    texts=rf"[eE]'(?:[^'\\]|''|\\.)*(?:'|$) | {_PLAIN} | \$(?P<tag>(?:[^\W\d]\w*)?)\$.*?(?:\$(?P=tag)\$|$)",
    nests=True,
)
"""A backslash escapes in `E'...'` alone, as it does by default (`standard_conforming_strings`)."""

MYSQL: Final = _grammar(
    skipped=r"--(?=\s|$)[^\n]* | \#[^\n]* | /\*M?!\d*",  # the last one begins what is run, not a comment
    texts=_BACKSLASH,
    more=frozenset(
        {"ANALYZE", "CACHE", "CHECK", "FLUSH", "INSTALL", "LOCK", "OPTIMIZE", "REPAIR", "RESET", "UNINSTALL", "UNLOCK"}
    ),
)
"""MySQL and MariaDB, where a backslash escapes as it does by default (no `NO_BACKSLASH_ESCAPES`)."""

SQLITE: Final = _grammar(skipped=r"--[^\n]*", texts=rf"{_PLAIN} | `[^`]*(?:`|$) | \[[^\]]*(?:\]|$)")

CHANGING: Final = frozenset(
    {"ALTER", "ATTACH", "CREATE", "DETACH", "DROP", "GRANT", "RENAME", "REVOKE", "TRUNCATE", "VACUUM"}
)

OURS: Final = frozenset({"SAVEPOINT", "RELEASE"})


@lru_cache(maxsize=1024)
def refused(statement: str, grammar: Grammar) -> str:
    """
    Why user code must not run these statements; empty: it may.

    Args:
        statement: one or several, with `;` between them.
        grammar: how the database reads them.
    """
    for word in _first_words(statement, grammar):
        if word in grammar.ending or (word == "SET" and "AUTOCOMMIT" in statement.upper()):
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


def _first_words(statement: str, grammar: Grammar) -> Iterator[str]:
    """The first word of each statement, in upper case; it may follow an opening bracket."""
    begun, at = False, 0
    while found := grammar.tokens.match(statement, at):
        at = found.end()
        match found.lastgroup:
            case "comment":
                at = _behind_comment(statement, at, nests=grammar.nests)
            case "end":
                begun = False
            case "word" if not begun:
                begun = True
                yield found["word"].upper()
            case "text":
                begun = True


def _behind_comment(statement: str, at: int, *, nests: bool) -> int:
    """Where a comment that began before `at` ends."""
    depth = 1
    for mark in _MARKS.finditer(statement, at):
        if mark[0] == "*/":
            depth -= 1
        elif nests:
            depth += 1
        if not depth:
            return mark.end()
    return len(statement)


_MARKS: Final = re.compile(r"/\*|\*/")

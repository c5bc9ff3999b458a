"""Which statements a function must not run: those that would end its transaction, or change tables in it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Final

ENDING: Final = frozenset({"ABORT", "BEGIN", "COMMIT", "END", "PREPARE", "ROLLBACK", "START", "XA"})

_PLAIN: Final = r"""'(?:[^']|'')*(?:'|$) | "(?:[^"]|"")*(?:"|$)"""
_LETTER: Final = r"[a-zA-Z_\x80-\U0010ffff]"
_IN_WORD: Final = r"a-zA-Z0-9_\x80-\U0010ffff"
"""What a name begins with, and what may follow. All databases take any character beyond ASCII, also a space."""

_BACKSLASH: Final = r"""'(?:[^'\\]|''|\\.)*(?:'|$) | "(?:[^"\\]|""|\\.)*(?:"|$) | `[^`]*(?:`|$)"""


@dataclass(frozen=True, slots=True, eq=False)
class Grammar:
    """
    How one kind of database reads a text of SQL.

    Attributes:
        tokens: a pattern that takes a text apart, see `_grammar`. It is compiled when the first statement is looked at:
            that takes 10 ms for all grammars, and most workers see no SQL.
        nests: whether a comment may have comments in it.
        opens: whether a comment may be more than that: run as a statement by some releases, or the place of a parameter
            that the driver writes into the text, which may end the comment.
        ending: first words of statements that end the transaction; two words are written with a space between them.
        hiding: first words of statements that run others, which are not looked at.
        fixed: settings that a function must not change, and words behind `SET` that mean several of them.
    """

    tokens: str
    nests: bool
    opens: bool
    ending: frozenset[str]
    hiding: frozenset[str]
    fixed: frozenset[str]


def _grammar(
    *,
    skipped: str,
    texts: str,
    nests: bool = False,
    opens: bool = False,
    more: frozenset[str] = frozenset(),
    hiding: frozenset[str] = frozenset(),
    fixed: frozenset[str] = frozenset(),
) -> Grammar:
    """
    The grammar of one database.

    Args:
        skipped: a pattern of comments that end with their line, and of what else has no meaning.
        texts: a pattern of everything quoted. What lacks its end goes on to the end of the statement.
        nests: see `Grammar`.
        opens: see `Grammar`.
        more: first words of statements at which this database commits, beside those that all of them know.
        hiding: see `Grammar`.
        fixed: see `Grammar`.
    """
    tokens = rf"""
        (?P<skip> [ \t\n\r\f\v]+ | [(]+ )
        | (?P<line> {skipped} )
        | (?P<code> /\*M?!\d* )
        | (?P<comment> /\* )
        | (?P<text> {texts} )
        | (?P<end> ; )
        | (?P<word> {_LETTER}[{_IN_WORD}$]* )
        | (?P<other> . )
    """
    return Grammar(tokens, nests, opens, ENDING | more, hiding, fixed)


_ESCAPED: Final = r"'(?:[^'\\]|''|\\.)*(?:'|$)"
_GOES_ON: Final = r"(?:[ \t\f\v]|--[^\n\r]*)*[\n\r](?:[ \t\n\r\f\v]|--[^\n\r]*[\n\r])*"
"""What may stand between two parts of one text, which are read alike: white space and comments with a line end."""

POSTGRES: Final = _grammar(
    skipped=r"--[^\n\r]*",
    texts=rf"""[eE]{_ESCAPED}(?:{_GOES_ON}{_ESCAPED})* | {_PLAIN}
        | \$(?P<tag>(?:{_LETTER}[{_IN_WORD}]*)?)\$.*?(?:\$(?P=tag)\$|$)""",
    nests=True,
    fixed=frozenset(
        {"CHARACTERISTICS", "TRANSACTION", "TRANSACTION_DEFERRABLE", "TRANSACTION_ISOLATION", "TRANSACTION_READ_ONLY"}
        | {"DEFAULT_TRANSACTION_DEFERRABLE", "DEFAULT_TRANSACTION_ISOLATION", "DEFAULT_TRANSACTION_READ_ONLY"}
        | {"IDLE_IN_TRANSACTION_SESSION_TIMEOUT", "IDLE_SESSION_TIMEOUT", "TRANSACTION_TIMEOUT"}
    ),
)
"""A backslash escapes in `E'...'` alone, as it does by default (`standard_conforming_strings`)."""

_LOCKS: Final = frozenset({"RELEASE_ALL_LOCKS"})
"""Releases also the lock by whose name another worker ends this connection, if its process is frozen."""

MYSQL: Final = _grammar(
    skipped=r"--(?=[\x01-\x20\x7f]|$)[^\n]* | \#[^\n]*",
    texts=_BACKSLASH,
    opens=True,
    more=frozenset(
        {"ANALYZE", "BACKUP", "CACHE", "CHANGE", "CHECK", "FLUSH", "INSTALL", "LOAD INDEX", "LOCK", "OPTIMIZE"}
        | {"REPAIR", "RESET", "SET DEFAULT", "SET PASSWORD", "STOP", "UNINSTALL", "UNLOCK"}
    ),
    hiding=frozenset(
        {"CALL", "EXECUTE", "REPEAT"}
    ),  # the other compound statements have END as the first word of a line
    fixed=frozenset(
        {"COMPLETION_TYPE", "ROLE", "TRANSACTION", "TRANSACTION_ISOLATION", "TRANSACTION_READ_ONLY", "TX_ISOLATION"}
        | {"TX_READ_ONLY", "MAX_STATEMENT_TIME", "MAX_EXECUTION_TIME", "WAIT_TIMEOUT", "INTERACTIVE_TIMEOUT"}
        | {"NET_READ_TIMEOUT", "NET_WRITE_TIMEOUT", "IDLE_TRANSACTION_TIMEOUT", "IDLE_WRITE_TRANSACTION_TIMEOUT"}
        | {"IDLE_READONLY_TRANSACTION_TIMEOUT", "SQL_SELECT_LIMIT", "READ_ONLY", "NAMES", "CHARSET", "CHARACTER"}
        | {"CHARACTER_SET_CLIENT", "CHARACTER_SET_CONNECTION"}
        | _LOCKS
    ),
)
"""MySQL and MariaDB, where a backslash escapes as it does by default (no `NO_BACKSLASH_ESCAPES`)."""

SQLITE: Final = _grammar(skipped=r"--[^\n]* | \ufeff", texts=rf"{_PLAIN} | `[^`]*(?:`|$) | \[[^\]]*(?:\]|$)")

CHANGING: Final = frozenset(
    {"ALTER", "ATTACH", "CREATE", "DETACH", "DROP", "GRANT", "RENAME", "REVOKE", "TRUNCATE", "VACUUM"}
)

KEEPING: Final = {
    "DEALLOCATE": "",
    "DISCARD": "",
    "USE": "; name the database of a table, database.table",
    "PRAGMA": "; to read what one gives, write SELECT * FROM pragma_table_info('t')",
}
"""First words of statements that change a connection, with what helps."""

OURS: Final = frozenset({"SAVEPOINT", "RELEASE"})


@lru_cache(maxsize=1024)
def refused(statement: str, grammar: Grammar) -> str:
    """
    Why user code must not run these statements; empty: it may.

    Args:
        statement: one or several, with `;` between them.
        grammar: how the database reads them.
    """
    for words in _words(statement, grammar):
        word = words[0]
        if _ends(words, statement, grammar):
            return (
                f"{word} would end the transaction, which is committed with the place in the input. Leave it out: a "
                "step is committed when the function returns, and taken back when it raises. To take back a part of "
                "it, write `with db.savepoint():`"
            )
        if setting := _sets(words, statement, grammar):
            return (
                f"{word} {setting} changes the connection that the place in the input is written with, and the "
                "batches that follow. Leave it out"
            )
        if word in KEEPING:
            return f"{word} changes the connection, which later batches use, too. Leave it out{KEEPING[word]}"
        if word == "COPY" and not {"STDIN", "STDOUT"}.isdisjoint(words):
            return (
                "COPY with the rows of the client leaves the connection waiting for them. To write many rows, call "
                "`db.insert(table, columns, rows)`, which copies; to read some, SELECT them"
            )
        if word in grammar.hiding:
            return f"{word} runs statements that may end the transaction. Run each of them by itself"
        if word in OURS:
            return f"{word}: write `with db.savepoint():`, which does not meet the savepoints of the steps"
        if word in CHANGING:
            return (
                f"{word} changes tables, and some databases commit at it. Do it before the start: in a migration, or "
                "with psql or its like"
            )
    return _opened(statement, grammar) if grammar.opens else ""


def _opened(statement: str, grammar: Grammar) -> str:
    """Why the database may run a comment of a statement; empty: it runs none of them."""
    for kind, text in _tokens(statement, grammar):
        if kind == "code":
            return (
                f"{text} begins what some releases run and others skip, so it may hide a statement that would end the "
                "transaction. Leave it out"
            )
        if kind in {"line", "comment"} and ("%s" in text or "%(" in text):
            return (
                "the driver writes parameters into the text of a statement, and in a comment a parameter may end the "
                "comment, so that what follows would end the transaction. Write no parameter into a comment"
            )
    return ""


_LIMIT: Final = re.compile(r"statement_timeout|max_statement_time|max_execution_time", re.IGNORECASE)


def limits(statement: str) -> bool:
    """Whether a statement says how long statements may take: that one is cancelled then is no outage."""
    return _LIMIT.search(statement) is not None


@lru_cache(maxsize=1024)
def lasting(statement: str, grammar: Grammar) -> bool:
    """Whether a statement changes what neither a commit nor a rollback of MySQL takes back: whether it is a `SET`."""
    return any(words[0] == "SET" and words[1:2] != ["STATEMENT"] for words in _words(statement, grammar))


def ours_in(statement: str) -> str:
    """Why a statement must not be run because it names a table of ours; empty: it names none."""
    if "cues_" not in (text := statement.lower()):
        return ""
    for table in ("cues_task", "cues_outbox"):
        if table in text:
            return (
                f"{table} says which messages are delivered, and is changed by cues-kafka alone. Leave it out; "
                "to read it, use a connection of your own"
            )
    return ""


def _ends(words: Sequence[str], statement: str, grammar: Grammar) -> bool:
    """Whether a statement ends the transaction, as far as its words tell."""
    ending, two = grammar.ending, " ".join(words[:2])
    if two == "SET STATEMENT":  # MariaDB: variables for one statement, which follows
        return not (ending | CHANGING | grammar.hiding).isdisjoint(words)
    return words[0] in ending or two in ending or (words[0] == "SET" and "AUTOCOMMIT" in statement.upper())


def _sets(words: Sequence[str], statement: str, grammar: Grammar) -> str:
    """Which setting of `fixed` a statement changes, as far as its words tell; empty: none."""
    if words[0] == "SET":
        if words[1:2] == ["STATEMENT"]:
            return ""
        # A setting may be in quotes, and the text of a value may be a word that means several settings.
        named = {one for one in _NAME.findall(statement.upper()) if "_" in one} | set(words[1:3])
    elif "SET_CONFIG" in words:
        named = set(_NAME.findall(statement.upper())) - {"TRANSACTION", "CHARACTERISTICS"}
    else:
        return min(_LOCKS.intersection(words) & grammar.fixed, default="")
    return min(named & grammar.fixed, default="")


_NAME: Final = re.compile(r"[A-Z_]+")


def _words(statement: str, grammar: Grammar) -> Iterator[list[str]]:
    """The words of each statement in upper case, also behind opening brackets; a quoted text is an empty one."""
    words: list[str] = []
    for kind, text in _tokens(statement, grammar):
        match kind:
            case "end" if words:
                yield words
                words = []
            case "word":
                words.append(text.upper())
            case "text":
                words.append("")
    if words:
        yield words


_compiled = lru_cache(partial(re.compile, flags=re.DOTALL | re.VERBOSE))


def _tokens(statement: str, grammar: Grammar) -> Iterator[tuple[str, str]]:
    """What a text of SQL is made of: the kind of each part, as `_grammar` names it, and the part."""
    at = 0
    match = _compiled(grammar.tokens).match
    while found := match(statement, at):
        begin, at, kind = at, found.end(), found.lastgroup or ""
        if kind == "code" and not grammar.opens:
            kind, at = "comment", begin + 2
        if kind == "comment":
            at = _behind_comment(statement, at, nests=grammar.nests)
        yield kind, statement[begin:at]


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

"""Rows of MySQL and MariaDB by exactly their key: most collations take `a` for `A`, and all for `a` with a blank.

A unique index compares as its collation does. So a row of the key `A` would take the place of that of `a`, and a
tombstone of the one would delete the other. Here the statements compare bytes besides: such a row is refused, and such
a tombstone finds no row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from cues_kafka.graph.effects import OFFSET

_TOO_LARGE: Final = "9223372036854775807 + "
_OUT_OF_RANGE: Final = 1690
"""The number of the server's error for a whole number beyond 64 bits: a statement has no other way to fail."""


def put_or_fail(keys: Sequence[str], value: str) -> str:
    """
    An expression behind ON DUPLICATE KEY UPDATE, which fails where the row that is found has another key.

    Args:
        keys: the columns of the key, as statements name them.
        value: what it is where the key is the same.
    """
    same = " AND ".join(f"CAST({one} AS BINARY) <=> CAST(VALUES({one}) AS BINARY)" for one in keys)
    return f"IF({same}, {value}, {_TOO_LARGE}VALUES({OFFSET}) + 1)"


def is_exactly(key: str) -> str:
    """A condition of a column of a key and two parameters, both of them its value. Numbers and times have no case."""
    bytes_of = f"CAST(CONVERT({key} USING utf8mb4) AS BINARY)"
    return f"{key} = ? AND (COLLATION({key}) = 'binary' OR {bytes_of} = CAST(? AS BINARY))"


def refusal(error: BaseException, keys: Sequence[str]) -> str:
    """What the failure of `put_or_fail` means; empty: it is another one."""
    if not error.args or error.args[0] != _OUT_OF_RANGE or _TOO_LARGE not in str(error):
        return ""
    return (
        f"the database takes the key ({', '.join(keys)}) for that of another row, with letters of another case or "
        "other blanks at its end. Have it compare the columns of the key by their bytes: COLLATE utf8mb4_nopad_bin in "
        "MariaDB, utf8mb4_0900_bin in MySQL"
    )

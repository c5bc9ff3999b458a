"""Patterns of JSON Schema, which are regular expressions of ECMA-262, as those of Python that match the same texts."""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Iterable
from functools import cache
from typing import Final, TypeAlias

Ranges: TypeAlias = tuple[tuple[int, int], ...]
"""Characters, as first and last ones."""

_DIGITS: Final[Ranges] = ((0x30, 0x39),)
_WORD: Final[Ranges] = ((0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A))
_SPACE: Final[Ranges] = (
    (0x09, 0x0D), (0x20, 0x20), (0xA0, 0xA0), (0x1680, 0x1680), (0x2000, 0x200A), (0x2028, 0x2029), (0x202F, 0x202F),
    (0x205F, 0x205F), (0x3000, 0x3000), (0xFEFF, 0xFEFF),
)  # fmt: skip
_NEW_LINES: Final[Ranges] = ((0x0A, 0x0A), (0x0D, 0x0D), (0x2028, 0x2029))

_CLASSES: Final = {"d": _DIGITS, "w": _WORD, "s": _SPACE}
_CONTROLS: Final = {"t": 9, "n": 10, "v": 11, "f": 12, "r": 13, "0": 0}

_LONG: Final = {
    "Letter": "L", "Cased_Letter": "LC", "Uppercase_Letter": "Lu", "Lowercase_Letter": "Ll", "Titlecase_Letter": "Lt",
    "Modifier_Letter": "Lm", "Other_Letter": "Lo", "Mark": "M", "Nonspacing_Mark": "Mn", "Spacing_Mark": "Mc",
    "Enclosing_Mark": "Me", "Number": "N", "Decimal_Number": "Nd", "Letter_Number": "Nl", "Other_Number": "No",
    "Punctuation": "P", "Symbol": "S", "Math_Symbol": "Sm", "Currency_Symbol": "Sc", "Separator": "Z",
    "Space_Separator": "Zs", "Other": "C", "Control": "Cc", "digit": "Nd", "punct": "P",
}  # fmt: skip

_SHORT: Final = {
    "L", "LC", "Lu", "Ll", "Lt", "Lm", "Lo", "M", "Mn", "Mc", "Me", "N", "Nd", "Nl", "No", "P", "Pc", "Pd", "Ps", "Pe",
    "Pi", "Pf", "Po", "S", "Sm", "Sc", "Sk", "So", "Z", "Zs", "Zl", "Zp", "C", "Cc", "Cf", "Cs", "Co", "Cn",
}  # fmt: skip


@cache
def translated(pattern: str) -> str:
    """
    Translate a pattern.

    Raises:
        ValueError: it is not a pattern, or has a construct that Python's expressions lack; names it.
    """
    made = _Translating(pattern).made()
    try:
        re.compile(made)
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"the pattern {pattern!r:.100} is not a regular expression of ECMA-262: {error}") from None
    return made


class _Translating:
    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._at = 0

    def made(self) -> str:
        """The whole pattern."""
        found = []
        while self._at < len(self._pattern):
            found.append(self._next())
        return "".join(found)

    def _next(self) -> str:
        rest = self._pattern[self._at :]
        if rest[0] == "\\":
            return self._escape()
        if rest[0] == "[":
            return self._class()
        if named := re.match(r"\(\?<([A-Za-z_$][\w$]*)>", rest):
            self._at += named.end()
            return f"(?P<{named[1].replace('$', '_')}>"
        self._at += 1
        if rest[0] == "$":
            return r"\Z"  # in Python `$` is before a line's end, too
        return _set(_NEW_LINES, negated=True) if rest[0] == "." else rest[0]

    def _escape(self) -> str:
        """An escape outside of a class."""
        if (found := self._characters()) is not None:
            return _set(found)
        rest = self._pattern[self._at :]
        if named := re.match(r"\\k<([A-Za-z_$][\w$]*)>", rest):
            self._at += named.end()
            return f"(?P={named[1].replace('$', '_')})"
        self._at += 2
        if rest[1:2] in ("b", "B"):
            return f"(?a:{rest[:2]})"
        if rest[1:2].isdigit():
            return rest[:2]
        return re.escape(rest[1:2]) if rest[1:2] not in ("A", "Z") else rest[:2]

    def _characters(self) -> Ranges | None:
        """The characters that an escape stands for; None: it is another escape."""
        rest = self._pattern[self._at :]
        kind = rest[1:2]
        if not kind:
            raise ValueError(f"the pattern {self._pattern!r:.100} ends with a backslash")
        if kind.lower() in _CLASSES:
            self._at += 2
            return _CLASSES[kind.lower()] if kind.islower() else _others(_CLASSES[kind.lower()])
        if kind in ("p", "P"):
            return self._property(rest)
        if kind in _CONTROLS and not rest[2:3].isdigit():
            self._at += 2
            return ((_CONTROLS[kind], _CONTROLS[kind]),)
        found = re.match(r"\\(?:u\{([0-9a-fA-F]+)\}|u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|c([A-Za-z]))", rest)
        if found is None:
            return None
        self._at += found.end()
        code = ord(found[4]) % 32 if found[4] else int(found[1] or found[2] or found[3], 16)
        if code > sys.maxunicode:
            raise ValueError(f"the pattern {self._pattern!r:.100} has {found[0]!r}, which is not a character")
        return ((code, code),)

    def _property(self, rest: str) -> Ranges:
        found = re.match(r"\\[pP]\{(?:General_Category=|gc=)?([A-Za-z_]+)\}", rest)
        name = found[1] if found else ""
        if name in ("Any", "ASCII"):
            ranges: Ranges | None = ((0, 0x7F if name == "ASCII" else sys.maxunicode),)
        else:
            short = _LONG.get(name, name)
            ranges = _of_category(short) if short in _SHORT else None
        if found is None or ranges is None:
            shown = re.match(r"\\[pP](\{[^}]*\})?", rest)
            raise ValueError(
                f"the pattern {self._pattern!r:.100} has {shown[0] if shown else rest!r:.40}, which is known for "
                "general categories only, such as \\p{L}. Write the characters, as in [\\u0370-\\u03ff]"
            )
        self._at += found.end()
        return _others(ranges) if rest[1] == "P" else ranges

    def _class(self) -> str:
        self._at += 1
        negated = self._pattern[self._at : self._at + 1] == "^"
        self._at += negated
        found: list[tuple[int, int]] = []
        while True:
            if self._at >= len(self._pattern):
                raise ValueError(f"the pattern {self._pattern!r:.100} has a [ without its ]")
            if self._pattern[self._at] == "]":
                self._at += 1
                return _set(found, negated=negated)
            ranges = self._one()
            if self._is_range() and len(ranges) == 1 and ranges[0][0] == ranges[0][1]:
                self._at += 1
                last = self._one()
                if len(last) != 1 or last[0][0] != last[0][1]:
                    found += [*ranges, (0x2D, 0x2D), *last]  # a hyphen beside a class is one
                    continue
                if last[0][0] < ranges[0][0]:
                    raise ValueError(f"the pattern {self._pattern!r:.100} has a range that ends before it begins")
                ranges = ((ranges[0][0], last[0][0]),)
            found += ranges

    def _is_range(self) -> bool:
        rest = self._pattern[self._at : self._at + 2]
        return len(rest) == 2 and rest[0] == "-" and rest[1] != "]"

    def _one(self) -> Ranges:
        """One character of a class, or what an escape stands for."""
        if self._pattern[self._at] == "\\":
            if (found := self._characters()) is not None:
                return found
            escaped = self._pattern[self._at + 1]
            self._at += 2
            code = 8 if escaped == "b" else ord(escaped)
        else:
            code = ord(self._pattern[self._at])
            self._at += 1
        return ((code, code),)


def _set(ranges: Iterable[tuple[int, int]], *, negated: bool = False) -> str:
    """A class of Python's."""
    parts = [_code(one) if one == last else f"{_code(one)}-{_code(last)}" for one, last in ranges]
    if not parts:
        return r"[\s\S]" if negated else "(?!)"
    return f"[{'^' if negated else ''}{''.join(parts)}]"


def _code(code: int) -> str:
    return f"\\U{code:08x}" if code > 0xFFFF else f"\\u{code:04x}"


def _others(ranges: Ranges) -> Ranges:
    """All other characters."""
    made, start = [], 0
    for first, last in ranges:
        if first > start:
            made.append((start, first - 1))
        start = last + 1
    if start <= sys.maxunicode:
        made.append((start, sys.maxunicode))
    return tuple(made)


@cache
def _of_category(name: str) -> Ranges:
    """The characters of a general category."""
    names = ("Lu", "Ll", "Lt") if name == "LC" else (name,)
    made: list[tuple[int, int]] = []
    for code in range(sys.maxunicode + 1):
        if unicodedata.category(chr(code)).startswith(names):
            if made and made[-1][1] == code - 1:
                made[-1] = (made[-1][0], code)
            else:
                made.append((code, code))
    return tuple(made)

"""Types of columns, as a declaration names them: `long`, `decimal(12,2)`, `array<string>`, `struct<id:long>` (E6)."""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple, TypeAlias

SCALARS: Final = (
    "string", "long", "integer", "short", "byte", "double", "float", "boolean", "binary", "date", "timestamp",
    "timestamp_ntz",
)  # fmt: skip
"""The types without a parameter, as Delta names them."""


class Decimal(NamedTuple):
    """A number with a fixed number of digits, some of them behind the point."""

    precision: int
    scale: int


class ListOf(NamedTuple):
    """A list of items of one type."""

    item: ColumnType


class StructOf(NamedTuple):
    """A structure: fields with names and types, in order."""

    fields: tuple[tuple[str, ColumnType], ...]


ColumnType: TypeAlias = str | Decimal | ListOf | StructOf
"""A type, taken apart; a text is one of `SCALARS`."""

_TOKEN: Final = re.compile(r"decimal\((\d{1,2}),(\d{1,2})\)|[^ ,;:{}()<>\n\t=]+|[<>:,]")


class _TypeText:
    """The text of a type, as it is taken apart."""

    def __init__(self, text: str) -> None:
        tokens = [*_TOKEN.finditer(text)]
        if "".join(one[0] for one in tokens) != text:
            raise ValueError(text)
        self._text, self._left = text, tokens[::-1]

    def _next(self) -> re.Match[str]:
        if not self._left:
            raise ValueError(self._text)
        return self._left.pop()

    def _take(self, *wanted: str) -> str:
        if (found := self._next()[0]) not in wanted:
            raise ValueError(self._text)
        return found

    def type(self) -> ColumnType:
        token = self._next()
        if token[0] in SCALARS:
            return token[0]
        if token[1] is not None:
            made = Decimal(int(token[1]), int(token[2]))
            if 1 <= made.precision <= 38 and made.scale <= made.precision:
                return made
        elif token[0] == "array":
            self._take("<")
            item = self.type()
            self._take(">")
            return ListOf(item)
        elif token[0] == "struct":
            return self._struct()
        raise ValueError(self._text)

    def _struct(self) -> StructOf:
        fields, then = list[tuple[str, ColumnType]](), self._take("<")
        while then != ">":
            name = self._next()
            if name[1] is not None or name[0] in "<>:,":
                raise ValueError(self._text)
            self._take(":")
            fields.append((name[0], self.type()))
            then = self._take(",", ">")
        if len({name.lower() for name, _ in fields}) < len(fields):
            raise ValueError(self._text)
        return StructOf(tuple(fields))

    def whole(self) -> ColumnType:
        found = self.type()
        if self._left:
            raise ValueError(self._text)
        return found


def column_type(text: Any) -> ColumnType:
    """
    Take the text of a type apart.

    Raises:
        ValueError: the text names no type; or two fields of a structure have names that are equal but for case.
    """
    if not isinstance(text, str):
        raise ValueError(repr(text))
    return _TypeText(text).whole()


def type_text(one: Any) -> str:
    """
    The text of a type of a table, as deltalake gives it.

    Where an item or a field may not be null the text says so. No declaration has such a type.
    """
    if one.type == "array":
        return f"array<{type_text(one.element_type)}{'' if one.contains_null else ' not null'}>"
    if one.type == "struct":
        fields = (f"{f.name}:{type_text(f.type)}{'' if f.nullable else ' not null'}" for f in one.fields)
        return f"struct<{','.join(fields)}>"
    return str(one.type)

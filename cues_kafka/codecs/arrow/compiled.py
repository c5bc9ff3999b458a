"""What of the compiled module is for columns. Where it is not installed, or is turned off, Python does the same."""

from __future__ import annotations

import dataclasses
import functools
import typing
from typing import Any, Final, NamedTuple, Protocol

from cues_kafka.codecs.compiled import compiled_module
from cues_kafka.codecs.schema import Null, OneOf, Scalar, Shape, Structure, is_struct

MOST_FIELDS: Final = 64
"""How many fields a record may have: the module keeps them on its stack."""

KINDS: Final[dict[type[Any], int]] = {int: 0, float: 1, bool: 2, str: 3}
"""How the module numbers the columns that it reads."""

WRITTEN: Final = 4
"""How it numbers a column of texts that are JSON already."""

Buffers = tuple[bytes | None, bytes | None, bytes]
"""The buffers of a column: a bit for each row that has a value, the offsets of texts, and the values. The first is None
if all rows have one, the second if the column has no texts."""

Carried = tuple[list[bytes | None], list[bytes | None], list[Any], bytes, bytes, bytes | None, bytes, bytes]
"""Values, keys and headers; then buffers: offsets, times, and those of the keys."""


class ColumnsModule(Protocol):
    """The functions for columns."""

    def read_json(
        self, values: list[bytes | None], fields: tuple[tuple[bytes, int, int], ...], strict: bool, /
    ) -> tuple[int, list[Buffers], list[int]]:
        """
        Read what is usual: gives the number of rows, the columns, and the indices of values that have no row.

        Fields have a name, a kind, and flags: `PlainField`.
        """
        ...

    def write_json(self, rows: int, columns: tuple[tuple[Any, ...], ...], /) -> list[bytes] | None:
        """Write rows; None: one of them is not usual. Columns: what stands before, kind, first row, buffers."""
        ...

    def carried(self, messages: list[Any], /) -> Carried | None:
        """What the module's own messages carry; None: others are among them, or headers that cannot be read."""
        ...


class PlainField(NamedTuple):
    """
    A field of a class whose JSON the module reads and writes.

    Attributes:
        name: in messages.
        cls: of its values.
        nullable: whether they may be null.
        may_lack: whether it may be missing, and is null then.
    """

    name: str
    cls: type[Any]
    nullable: bool
    may_lack: bool

    @property
    def flags(self) -> int:
        """What the module takes for `nullable` and `may_lack`."""
        return self.nullable + 2 * self.may_lack


@functools.cache
def module() -> ColumnsModule | None:
    """The module; None: it is not used."""
    return compiled_module("read_json")


def plain_fields(shape: Shape | None) -> list[PlainField] | None:
    """
    The fields of a class whose values need no other check than that of their type; None: some need more.

    Only `int`, `float`, `bool`, `str` and `bytes` are plain, each also with None. Names stand in JSON as they are.
    """
    if not isinstance(shape, Structure) or shape.tag is not None or not shape.fields:
        return None
    if not (is_struct(shape.cls) or dataclasses.is_dataclass(shape.cls)):
        return None
    hints = typing.get_type_hints(shape.cls, include_extras=True)
    found = []
    for each in shape.fields:
        options = each.shape.options if isinstance(each.shape, OneOf) else (each.shape,)
        rest = [one for one in options if not isinstance(one, Null)]
        if len(rest) != 1 or not isinstance(rest[0], Scalar) or not _is_bare(hints[each.name], rest[0].cls):
            return None
        if not each.wire_name.isascii() or not each.wire_name.isprintable() or set(each.wire_name) & set('"\\'):
            return None
        nullable = len(rest) < len(options)
        may_lack = nullable and each.default is not None and _static_default(shape.cls, each.name) is None
        found.append(PlainField(each.wire_name, rest[0].cls, nullable, may_lack))
    return found


def _is_bare(hint: Any, cls: type[Any]) -> bool:
    """Whether an annotation is this class, or it and None: nothing inside of it has a constraint."""
    if cls not in {*KINDS, bytes}:
        return False
    return hint is cls or {*typing.get_args(hint)} == {cls, type(None)}


def _static_default(cls: type[Any], name: str) -> Any:
    """The default of a field; a mark that is no value where it has none, or a function makes it."""
    known = getattr(cls, "__dataclass_fields__", None)
    if known is not None:
        return known[name].default
    names: tuple[str, ...] = cls.__struct_fields__
    defaults: tuple[Any, ...] = cls.__struct_defaults__
    behind = names.index(name) - (len(names) - len(defaults))
    return defaults[behind] if behind >= 0 else ...

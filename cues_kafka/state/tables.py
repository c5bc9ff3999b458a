"""Tables: compacted topics as read-only mappings. They are read beside the inputs, and never cause a call."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from cues_kafka.state.entries import size_of

Value_co = TypeVar("Value_co", covariant=True)


@dataclass(frozen=True, slots=True)
class TableSpec:
    """
    One table of a processor, on a cluster.

    Attributes:
        name: the parameter of the function.
        topic: what it is read from.
        width: how many partitions the topic has.
        whole: whether each process holds all of it; else each task holds its own partition.
        decode: gives the value of a message's bytes.
        id_header: name of the header that may carry the schema's id; None if the codec reads no header.
        encode_key, decode_key: between keys and their bytes.
        most: bytes that the entries of one partition may take in memory.
        wait_s: how long a call waits for what was committed before it, in seconds; None: it does not.
        stops: whether the task fails when that time is over; else the function is called.
    """

    name: str
    topic: str
    width: int
    whole: bool
    decode: Callable[[bytes], Any]
    id_header: str | None
    encode_key: Callable[[Any], bytes | None]
    decode_key: Callable[[bytes], Any]
    most: int
    wait_s: float | None = None
    stops: bool = True


class Held:
    """
    What was read of one partition of a table.

    Attributes:
        entries: the newest value of each key, as bytes.
        offset: up to which it was read.
        size: of the entries in memory, about.
    """

    __slots__ = ("entries", "offset", "size")

    def __init__(self, offset: int) -> None:
        self.entries: dict[bytes, bytes] = {}
        self.offset = offset
        self.size = 0

    def take(self, key: bytes, value: bytes | None, offset: int) -> None:
        """Take one message; None deletes the entry."""
        self.size += size_of(key, value) - size_of(key, self.entries.get(key))
        if value is None:
            self.entries.pop(key, None)
        else:
            self.entries[key] = value
        self.offset = offset + 1


class TableView(Mapping[Any, Value_co]):
    """
    A table as a function sees it: read-only, as new as it was read. A value that you get is yours.

    Which version a step saw is no part of its promise: a later attempt may see a newer one.

    Attributes:
        passed_by: the argument of `Processor` whose parameters get one.
    """

    passed_by: ClassVar[str] = "tables"
    __slots__ = ("_held", "_spec")

    def __init__(self, spec: TableSpec, held: Callable[[], list[Held]]) -> None:
        self._spec, self._held = spec, held

    def __getitem__(self, key: Any) -> Value_co:
        data = self._find(key)
        if data is None:
            raise KeyError(key)
        return self._spec.decode(data)  # type: ignore[no-any-return]

    def __contains__(self, key: object) -> bool:
        return self._find(key) is not None

    def __iter__(self) -> Iterator[Any]:
        return (self._spec.decode_key(key) for one in self._held() for key in list(one.entries))

    def __len__(self) -> int:
        return sum(len(one.entries) for one in self._held())

    def __repr__(self) -> str:
        return f"TableView({self._spec.name!r})"

    def _find(self, key: Any) -> bytes | None:
        at = self._spec.encode_key(key)
        if at is None:
            return None
        return next((data for one in self._held() if (data := one.entries.get(at)) is not None), None)

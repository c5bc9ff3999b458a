"""A store as a function sees it: a mapping of keys to values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeVar, overload

from cues_kafka.errors import CodecError
from cues_kafka.graph.timers import Times
from cues_kafka.ports.codec import WireCodec
from cues_kafka.state.expiring import MESSAGES, MILLISECONDS, Expiring
from cues_kafka.state.layers import Layers

Value = TypeVar("Value")
Other = TypeVar("Other")


@dataclass(frozen=True, slots=True)
class StoreSpec:
    """
    One store of a processor, on a cluster.

    Attributes:
        name: the parameter of the function.
        changelog: its topic.
        value: codec of the values.
        encode_key, decode_key: between keys and their bytes.
        limit: bytes of the largest entry.
        most: bytes that the entries of a task may take.
        ttl: how long an entry lives: milliseconds of message time, or a number of steps; None: until it is deleted.
        by_time: whether it is message time.
        directory: where the entries of all tasks of the store are kept on the disk; None: in memory.
        timers: if its entries are timers: whose time counts, see `graph.timers.Timers`; None: it is a store.
    """

    name: str
    changelog: str
    value: WireCodec
    encode_key: Callable[[Any], bytes]
    decode_key: Callable[[bytes], Any]
    limit: int
    most: int
    ttl: int | None = None
    by_time: bool = True
    directory: Path | None = None
    timers: Times | None = None

    @property
    def unit(self) -> bytes:
        """The unit of the lifetime, see `Expiring`."""
        return MILLISECONDS if self.by_time else MESSAGES

    def key_of(self, data: bytes) -> Any:
        """
        The key of these bytes.

        Raises:
            CodecError: the bytes are no key. Another program may have written them. Names the store and a remedy.
        """
        try:
            return self.decode_key(data)
        except (CodecError, ValueError) as error:
            raise self.unfit(f"the key {data[:80]!r}", error) from error

    def value_of(self, key: bytes, data: bytes) -> Any:
        """
        The value of these bytes, under this key.

        Raises:
            CodecError: see `key_of`.
        """
        try:
            return self.value.decode(data)
        except CodecError as error:
            raise self.unfit(f"the value of the key {key[:80]!r}", error) from error

    def unfit(self, what: str, error: Exception) -> CodecError:
        """The error for a part of an entry that the codecs do not read."""
        return CodecError(
            f"{what} in the store {self.name!r} cannot be read: {str(error).removesuffix('.')}. If another program "
            f"wrote it to {self.changelog}, `cues-kafka rebuild MODULE:GRAPH PROCESSOR` writes the store again; if it "
            "was written with another codec, declare that one"
        )


class State(MutableMapping[Any, Value]):
    """
    One store of one task. Changes are kept when the step ends as outputs or nil, and committed with it.

    A value that you get is yours: to change the store, set it again.

    Attributes:
        passed_by: the argument of `Processor` whose parameters get one.
        late: how many messages `count_late` has counted.
    """

    passed_by: ClassVar[str] = "state"
    __slots__ = ("_change", "_decode", "_encode", "_encode_key", "_find", "_layers", "_limit", "_spec", "late")

    def __init__(self, spec: StoreSpec, layers: Layers) -> None:
        self._spec, self._layers = spec, layers
        self.late: int = 0
        # What each step calls, found once: the hot methods are all look-ups otherwise.
        self._encode_key, self._encode, self._decode = spec.encode_key, spec.value.encode, spec.value.decode
        self._find, self._change, self._limit = layers.get, layers.change, spec.limit

    @overload
    def get(self, key: Any) -> Value | None: ...
    @overload
    def get(self, key: Any, default: Value | Other) -> Value | Other: ...
    def get(self, key: Any, default: Any = None) -> Any:
        """The value; the default if there is no such entry. The inherited method raises and catches an error then."""
        data = self._find(at := self._encode_key(key))
        try:
            return default if data is None else self._decode(data)
        except CodecError:
            return self._spec.value_of(at, data or b"")  # it says which entry

    def __getitem__(self, key: Any) -> Value:
        data = self._find(at := self._encode_key(key))
        if data is None:
            raise KeyError(key)
        try:
            return self._decode(data)  # type: ignore[no-any-return]
        except CodecError:
            return self._spec.value_of(at, data)  # type: ignore[no-any-return]  # it says which entry

    def __setitem__(self, key: Any, value: Value) -> None:
        """
        Raises:
            CodecError: the value does not fit the store's codec, or the entry is larger than its topic takes.
        """
        at = self._encode_key(key)
        try:
            data = self._encode(value)
        except CodecError as error:
            raise CodecError(f"{self._spec.name}[{key!r:.60}]: {error}") from error
        if len(at) + len(data) > self._limit:
            raise CodecError(
                f"{self._spec.name}[{key!r:.60}]: the entry has {len(at) + len(data)} bytes, and its changelog takes "
                f"{self._limit}. Store less, or raise max.message.bytes of the changelog"
            )
        self._change(at, data)

    def __delitem__(self, key: Any) -> None:
        at = self._spec.encode_key(key)
        if self._layers.get(at) is None:
            raise KeyError(key)
        self._layers.change(at, None)

    def __contains__(self, key: object) -> bool:
        return self._layers.get(self._spec.encode_key(key)) is not None

    def clear(self) -> None:
        """Delete all entries. The inherited method would sort them once for each."""
        for key, _ in self._layers.entries():
            self._layers.change(key, None)

    def __iter__(self) -> Iterator[Any]:
        return (self._spec.key_of(key) for key, _ in self._layers.entries())

    def __len__(self) -> int:
        return self._layers.count()

    def popitem(self) -> tuple[Any, Value]:
        """
        Delete the entry whose key comes first in the order of bytes, and give it.

        Raises:
            KeyError: there are no entries.
        """
        for key, data in self._layers.entries():
            self._layers.change(key, None)
            return self._spec.key_of(key), self._spec.value_of(key, data)
        raise KeyError(f"popitem(): the store {self._spec.name!r} is empty")

    def count_late(self, timestamp_ms: int) -> int:
        """
        Count a message if an entry that was set at its time would have ended by now. Only where `ttl` is a time.

        Returns:
            How many such messages this process has met; 0 if this is none of them.
        """
        layers = self._layers
        if not (isinstance(layers, Expiring) and self._spec.by_time and layers.is_over(timestamp_ms)):
            return 0
        self.late += 1
        return self.late

    def scan(self, prefix: str = "") -> Iterator[tuple[Any, Value]]:
        """Keys that begin with this text, with their values, in the order of the keys' bytes."""
        for key, data in self._layers.entries(prefix.encode()):
            yield self._spec.key_of(key), self._spec.value_of(key, data)

    def __repr__(self) -> str:
        return f"State({self._spec.name!r})"

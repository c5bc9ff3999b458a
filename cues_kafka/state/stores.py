"""All stores of one task: they follow its batches, and put their changes into its transactions."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cues_kafka.ports import Positions
from cues_kafka.state.expiring import Expiring
from cues_kafka.state.layers import Layers
from cues_kafka.state.mapping import State, StoreSpec


@dataclass(slots=True)
class Cache:
    """
    What a process knows of one store of one task.

    Attributes:
        spec: the store.
        layers: its entries.
        offset: up to which the changelog was read.
        step: the mark with which it ended there; None: it had none.
        topic_id: of the changelog then; empty: it was not read yet.
    """

    spec: StoreSpec
    layers: Layers
    offset: int = 0
    step: int | None = None
    topic_id: bytes = b""

    def decoded(self) -> dict[Any, Any]:
        """All committed entries."""
        spec, entries = self.spec, self.layers.committed_entries()
        return {spec.decode_key(key): spec.value.decode(data) for key, data in entries.items()}


class Stores:
    """
    The stores of one task; a `ports.Sink`.

    Attributes:
        values: the stores as the function gets them, by name.
        caches: the same, for restoring and reading.
    """

    def __init__(self, specs: Sequence[StoreSpec], partition: int) -> None:
        self._partition = partition
        self.caches = [Cache(spec, _layers(spec)) for spec in specs]
        self._expiring = [(one.layers, one.spec.by_time) for one in self.caches if isinstance(one.layers, Expiring)]
        self.values: Mapping[str, State[Any]] = {one.spec.name: State(one.spec, one.layers) for one in self.caches}
        self._lock = threading.Lock()
        self._positions: Positions | None = None  # up to which the committed entries are true; None: not known
        self._next: tuple[int, Positions] | None = None  # sequence of a commit, and the positions behind it

    def following(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """The function, which begins a step whenever it is called."""
        begin = self.begin_step if len(self.caches) > 1 else self.caches[0].layers.begin_step

        def call(*args: Any, **kwargs: Any) -> Any:
            begin()
            return fn(*args, **kwargs)

        return call

    @property
    def timed(self) -> bool:
        """Whether a step's messages move the time of entries that end."""
        return bool(self._expiring)

    def advance(self, timestamps_ms: Iterable[int]) -> None:
        """Tell when the messages of the step, which has begun, were made."""
        newest, count = 0, 0
        for made in timestamps_ms:
            newest, count = max(newest, made), count + 1
        for layers, by_time in self._expiring:
            layers.advance(newest if by_time else layers.time + count)

    def begin_batch(self, _: int) -> None:
        """See `ports.Sink`."""
        for one in self.caches:
            one.layers.begin_batch()

    def begin_step(self) -> None:
        """See `ports.Sink`."""
        for one in self.caches:
            one.layers.begin_step()

    def undo_step(self) -> None:
        """See `ports.Sink`."""
        for one in self.caches:
            one.layers.undo_step()

    def before_commit(self, sequence: int, records: Any) -> None:
        """Add the last change of each key to what the transaction produces, behind the outputs."""
        for one in self.caches:
            topic, at = one.spec.changelog, self._partition
            for key, value in one.layers.seal(sequence).items():
                records.add(topic, at, one.layers.entry + key, value, None, 0)
            if isinstance(one.layers, Expiring):
                records.add(topic, at, one.layers.unit, b"%d" % one.layers.time, None, 0)

    def after_commit(self, sequence: int) -> None:
        """See `ports.Sink`."""
        with self._lock:
            for one in self.caches:
                one.layers.commit(sequence)
            if self._next is not None and self._next[0] == sequence:
                self._positions = self._next[1]

    def discard(self) -> None:
        """See `ports.Sink`."""
        for one in self.caches:
            one.layers.discard()

    # For readers of other threads

    def will_stand_at(self, sequence: int, positions: Positions) -> None:
        """Say which positions `after_commit` of this sequence number makes true."""
        with self._lock:
            self._next = sequence, positions

    def stand_at(self, positions: Positions | None) -> None:
        """Say up to where the committed entries are true; None: they are being read from the changelogs."""
        with self._lock:
            self._positions, self._next = positions, None

    def committed(self, store: str, key: Any) -> tuple[bytes | None, Positions] | None:
        """
        The committed value of a key as bytes, and up to where in the inputs it is true.

        Returns:
            None while the entries are read from the changelogs. The value is None if there is no such entry.

        Raises:
            TypeError, CodecError: it is no key of the store.
        """
        cache = self.cache(store)
        data = cache.spec.encode_key(key)
        with self._lock:
            return None if self._positions is None else (cache.layers.committed(data), self._positions)

    def cache(self, store: str) -> Cache:
        """The cache of a store."""
        return next(one for one in self.caches if one.spec.name == store)


def _layers(spec: StoreSpec) -> Layers:
    if spec.ttl is None:
        return Layers(spec.most)
    return Expiring(spec.most, spec.ttl, spec.unit)

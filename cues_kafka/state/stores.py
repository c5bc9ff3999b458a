"""All stores of one task: they follow its batches, and put their changes into its transactions."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cues_kafka.errors import Fenced, RetriableError
from cues_kafka.ports.log import Positions
from cues_kafka.state.entries import NOWHERE, EntriesPlace
from cues_kafka.state.expiring import Expiring, part_of
from cues_kafka.state.layers import TOPIC, Layers
from cues_kafka.state.mapping import State, StoreSpec
from cues_kafka.state.on_disk import OnDisk
from cues_kafka.state.scheduled import Scheduled


@dataclass(slots=True)
class Cache:
    """
    What a process knows of one store of one task.

    Attributes:
        spec: the store.
        layers: its entries.
        place: up to where the changelog is in the entries.
        inherited: whether entries of another process are among them.
        written_to: what its writers took for the changelog's id; empty: they did not say.
        read: how many changes were read from the changelog.
        others_gone_below: an offset below which all entries with another kind of lifetime are deleted again.
        begins: where the changelog began when it was read.
    """

    spec: StoreSpec
    layers: Layers
    place: EntriesPlace = NOWHERE
    inherited: bool = False
    written_to: bytes = b""
    read: int = 0
    others_gone_below: int = 0
    begins: int = 0

    def open(self) -> None:
        """
        Open the entries if they are not open.

        Raises:
            RetriableError: that does not work at present.
        """
        place = self.layers.open()
        if place is None:
            return
        self.place, self.inherited = place, bool(place.topic_id)
        if isinstance(self.layers, Expiring):
            self.layers.load_time(place.time)

    def commit(self, sequence: int, step: int | None, now_ms: int) -> None:
        """
        The transaction of a sealed batch is committed: its changes, the time, the topic's id, the mark, and a marker of
        the cluster.

        A transaction is behind the one before: after any that is void the changelog is read up to its end.

        Raises:
            RetriableError: the entries cannot be written.
        """
        layers = self.layers
        count = layers.sealed(sequence)
        if count is None:  # it is void, or was read from the changelog
            return
        timed = isinstance(layers, Expiring)
        time = layers.time_behind(sequence) if isinstance(layers, Expiring) else 0
        place = EntriesPlace(self.place.topic_id, self.place.offset + count + timed + 3, step, time, now_ms)
        layers.commit(sequence, place)
        self.place = place

    def decoded(self) -> dict[Any, Any]:
        """All committed entries."""
        spec, entries = self.spec, self.layers.committed_entries()
        return {spec.key_of(key): spec.value_of(key, data) for key, data in entries.items()}


class Stores:
    """
    The stores of one task; a `ports.target.Sink`.

    Attributes:
        values: the stores as the function gets them, by name; its timers are not among them.
        timers: those of the task; None: it has none.
        caches: the same, for restoring and reading.
        failed: why what was committed is not in the entries; None: it is.
    """

    def __init__(self, specs: Sequence[StoreSpec], partition: int) -> None:
        self._partition = partition
        self.caches = [Cache(spec, _layers(spec, partition)) for spec in specs]
        self._expiring = [(one.layers, one.spec.by_time) for one in self.caches if isinstance(one.layers, Expiring)]
        self.values: Mapping[str, State[Any]] = {
            one.spec.name: State(one.spec, one.layers) for one in self.caches if one.spec.timers is None
        }
        self.timers = next((one.layers for one in self.caches if isinstance(one.layers, Scheduled)), None)
        self._lock = threading.Lock()
        self._positions: Positions | None = None  # up to which the committed entries are true; None: not known
        self._next: tuple[int, Positions, int, int] | None = None  # of a commit, see `will_stand_at`
        self.failed: str | None = None

    def following(self, call: Callable[[Any], Any], made: Callable[[], int] | None = None) -> Callable[[Any], Any]:
        """
        The call of the function for one value, which begins a step.

        Args:
            call: the call.
            made: gives when the one message of this step was made. Needed where stores are `timed`.
        """
        begin = self.begin_step if len(self.caches) > 1 else self.caches[0].layers.begin_step
        expiring = self._expiring

        def begun(value: Any) -> Any:
            begin()
            return call(value)

        def begun_timed(value: Any) -> Any:
            begin()
            time = made()  # type: ignore[misc]
            for layers, by_time in expiring:
                layers.advance(time if by_time else layers.time + 1)
            return call(value)

        return begun if made is None else begun_timed

    @property
    def late(self) -> int:
        """Messages that came too late for their window or bound, since the task is in this process."""
        return sum(one.late for one in self.values.values()) + (0 if self.timers is None else self.timers.late)

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
        if self.failed is not None:
            raise RetriableError(self.failed, code="STATE_DIR")
        for one in self.caches:
            one.layers.begin_batch()

    def begin_step(self) -> None:
        for one in self.caches:
            one.layers.begin_step()

    def undo_step(self) -> None:
        for one in self.caches:
            one.layers.undo_step()

    def before_commit(self, sequence: int, records: Any) -> None:
        """Add the last change of each key to what the transaction produces, behind the outputs."""
        for one in self.caches:
            topic, at = one.spec.changelog, self._partition
            changes, entry = one.layers.seal(sequence), one.layers.entry
            records.extend_alike(topic, at, [entry + key for key in changes], changes.values(), 0)
            if isinstance(one.layers, Expiring):
                records.add(topic, at, one.layers.unit, b"%d" % one.layers.time, None, 0)
            records.add(topic, at, TOPIC, one.place.topic_id, None, 0)

    def after_commit(self, sequence: int) -> None:
        """
        See `Sink`. Where entries cannot be written, the batch stays on top of them, and the next one does not
        begin: the task recovers, and reads the batch from the changelog.
        """
        with self._lock:
            known = self._next if self._next is not None and self._next[0] == sequence else None
            _, positions, step, now_ms = known or (0, None, None, 0)
            try:
                for one in self.caches:
                    one.commit(sequence, step, now_ms)
            except RetriableError as error:
                self.failed = str(error)
                return
            if known is not None and self._positions is not None:  # else its changes are still to be read
                self._positions = positions

    def discard(self) -> None:
        for one in self.caches:
            one.layers.discard()

    def open(self) -> None:
        """
        Open the entries where they are not open.

        Raises:
            RetriableError: that does not work at present.
        """
        for one in self.caches:
            one.open()
        self.failed = None

    def close(self, *, orderly: bool = True) -> None:
        """Let go of the entries; `orderly=False`: as a process that is killed does."""
        for one in self.caches:
            one.layers.close(orderly=orderly)

    # For readers of other threads

    def will_stand_at(self, sequence: int, positions: Positions, step: int, now_s: float) -> None:
        """Say which positions `after_commit` of this sequence number makes true, the record's step, and the time."""
        with self._lock:
            self._next = sequence, positions, step, int(now_s * 1000)

    def stand_at(self, positions: Positions | None) -> None:
        """Say up to where the committed entries are true; None: they are being read from the changelogs."""
        with self._lock:
            self._positions, self._next = positions, None

    def committed(self, store: str, key: Any) -> tuple[bytes | None, Positions] | None:
        """
        The committed value of a key as bytes, and up to where in the inputs it is true.

        Returns:
            None while the entries are read from the changelogs, or are closed. The value is None if there is no such
            entry.

        Raises:
            TypeError, CodecError: it is no key of the store.
        """
        cache = self.cache(store)
        data = cache.spec.encode_key(key)
        with self._lock:
            if self._positions is None:
                return None
            try:
                return cache.layers.committed(data), self._positions
            except Fenced:
                return None

    def cache(self, store: str) -> Cache:
        """The cache of a store."""
        return next(one for one in self.caches if one.spec.name == store)


def _layers(spec: StoreSpec, partition: int) -> Layers:
    entries = None
    if spec.directory is not None:
        entries = OnDisk(spec.directory / str(partition), spec.most, width=spec.ttl and part_of(spec.ttl))
    if spec.timers is not None:
        assert spec.ttl is not None
        return Scheduled(spec.most, spec.ttl, spec.limit, clock=spec.timers == "clock", name=repr(spec.name))
    if spec.ttl is None:
        return Layers(spec.most, entries, name=repr(spec.name))
    return Expiring(spec.most, spec.ttl, spec.unit, entries, name=repr(spec.name))

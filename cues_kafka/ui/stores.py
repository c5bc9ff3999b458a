"""An entry of a store, looked up as `client.table(...)` does it, which any program may."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from cues_kafka.brokers.options import Options
from cues_kafka.brokers.partitioners import place_of
from cues_kafka.client.access import Access
from cues_kafka.client.client import Client
from cues_kafka.client.queries import home_of, processor_with
from cues_kafka.client.store_reading import ViewFull
from cues_kafka.client.store_view import StoreView
from cues_kafka.errors import CodecError, ConfigError
from cues_kafka.graph.definition import Graph
from cues_kafka.graph.names import backing_topic
from cues_kafka.graph.processor import Processor
from cues_kafka.graph.timers import Timers
from cues_kafka.operate.shown import plain_json
from cues_kafka.ports.broker import Broker
from cues_kafka.task.clock import SystemClock
from cues_kafka.ui.bounds import MEGABYTE, megabytes
from cues_kafka.ui.given import partition_of
from cues_kafka.ui.turns import Turns

SIZE: Final = 64 * MEGABYTE
"""Memory that the entries of a partition, or of a store, may take while they are read for a look-up."""

SECONDS: Final = 20.0
"""How long that may take."""

ENTRIES: Final = 50
"""Entries of an answer."""


@dataclass(frozen=True, slots=True)
class StoredRow:
    """
    An entry of a store, as JSON.

    Attributes:
        key, value: both as JSON; in brackets why one cannot be read.
    """

    key: str
    value: str


class StoreAnswers:
    """
    Answers about entries of stores, one at a time.

    Args:
        graph: the graph.
        broker: where it runs.
        cluster: its settings, for codecs with a registry.
    """

    def __init__(
        self, graph: Graph, broker: Broker, cluster: Options, *, size: int = SIZE, seconds: float = SECONDS
    ) -> None:
        self._graph, self._broker, self._cluster = graph, broker, cluster
        self._size, self._seconds = size, seconds
        self._turns = Turns()

    def stores(self) -> dict[str, Any]:
        """The stores of the graph without its timers, which are not looked up by key, and the bounds."""
        names = [
            {"processor": name, "store": store, "keys": "text" if declared.key is None else "JSON"}
            for name, part in self._graph.processors.items()
            for store, declared in part.state.items()
            if not isinstance(declared, Timers)
        ]
        read = f"what is read has {megabytes(self._size)} at most, and takes {self._seconds:g} s"
        return {"stores": names, "bounds": f"{ENTRIES} entries; {read}"}

    def look_up(self, given: Mapping[str, str]) -> dict[str, Any]:
        """
        The entry of a key. Where keys are text and `begins` is given, those of keys that begin with it, up to a number.

        The partition that messages with this key have is read first, and the others only where it has no such entry:
        a store may have other keys than the messages.

        Raises:
            ConfigError: there is no such store, the store cannot have this key, or it has too many entries.
            BrokerError: the changelog cannot be read.
            TooMany: others ask as well.
        """
        processor, store, partition = given.get("processor", ""), given.get("store", ""), partition_of(given)
        declared = processor_with(self._graph, processor, store).state[store]
        if isinstance(declared, Timers):
            raise ConfigError(f"{store!r} of {processor!r} holds timers, which are not looked up by key.")
        wanted = _Wanted.of(given, text=declared.key is None)
        with self._turns, closing(Client(self._broker, self._graph, cluster=self._cluster)) as client:
            for read in self._partitions(self._graph.processors[processor], partition, wanted):
                view = self._opened(client, processor, store, read)
                if (found := wanted.entries(view)) or read == partition:
                    break
                view.close()
            at = [f"{place.topic}/{place.partition}@{offset}" for place, offset in sorted(view.positions.items())]
            return {
                "rows": found[:ENTRIES], "more": len(found) > ENTRIES, "entries": len(view), "true_up_to": at,
                "read": "all partitions" if read is None else f"partition {read}",
            }  # fmt: skip

    def _partitions(self, processor: Processor, partition: int | None, wanted: _Wanted) -> list[int | None]:
        """What is read, in this order, until the entry is found; None: all partitions."""
        if partition is not None or wanted.begins:
            return [partition]
        backing = backing_topic(self._graph.name, processor.name)
        width = self._broker.partitions([backing]).get(backing, 0)
        access = Access(self._broker, self._graph, self._cluster, SystemClock())
        home = home_of(access, self._graph, processor, wanted.key, width) if width else None
        if home is None and width and wanted.text and processor.input_topics:
            # No input says what its keys are. Most programs send them as they are, and a miss costs one partition.
            place = place_of(self._graph.topic(processor.input_topics[0]).partitioner)
            home = place(wanted.key.encode(errors="replace"), width) if place is not None else None
        return [None] if home is None else [home, None]

    def _opened(self, client: Client, processor: str, store: str, partition: int | None) -> StoreView:
        try:
            return client.table(processor, store, partition=partition, timeout_s=self._seconds, max_bytes=self._size)
        except ViewFull:
            raise ConfigError(
                f"the store {store!r} of {processor!r} has more than {megabytes(self._size)}, which the view does "
                "not read. Name the partition of one task, or read it with `client.table(...)`, which takes "
                "`max_bytes=`."
            ) from None
        except TimeoutError:
            raise ConfigError(
                f"the store {store!r} of {processor!r} was not read in {self._seconds:g} s. Name the partition of one "
                "task, or read it with `client.table(...)`, which takes `timeout_s=`."
            ) from None


@dataclass(frozen=True, slots=True)
class _Wanted:
    """
    Which entries are looked for.

    Attributes:
        key: as the function of the processor has it.
        text: whether the keys of the store are text.
        begins: whether keys that begin with it will do, too.
    """

    key: Any
    text: bool
    begins: bool

    @classmethod
    def of(cls, given: Mapping[str, str], *, text: bool) -> _Wanted:
        """
        What a page asks for.

        Raises:
            ConfigError: the key is not JSON, and the keys of the store are.
        """
        key = given.get("key", "")
        if text:
            return cls(key, text, bool(given.get("begins")))
        try:
            return cls(json.loads(key), text, begins=False)
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"the keys of this store are JSON, and {key!r:.80} is not: {error}.") from None

    def entries(self, view: StoreView) -> list[StoredRow]:
        """The entries that are shown, and one more if there are more."""
        if self.text:
            found = (entry for entry in view.scan_all(self.key) if self.begins or entry[0] == self.key)
            return [_row(*entry) for entry in islice(found, ENTRIES + 1)]
        try:
            return [_row(self.key, view[self.key])]
        except KeyError:
            return []
        except (CodecError, TypeError) as error:
            raise ConfigError(f"{self.key!r:.80} is no key of this store: {error}") from None


def _row(key: Any, value: Any) -> StoredRow:
    return StoredRow(*(f"({part})" if isinstance(part, CodecError) else plain_json(part) for part in (key, value)))

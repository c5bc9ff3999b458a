"""An entry of a store, looked up as `client.table(...)` does it, which any program may."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from cues_kafka.brokers.options import Options
from cues_kafka.client.client import Client
from cues_kafka.client.queries import processor_with
from cues_kafka.client.store_reading import ViewFull
from cues_kafka.client.store_view import StoreView
from cues_kafka.errors import CodecError, ConfigError
from cues_kafka.graph.definition import Graph
from cues_kafka.graph.timers import Timers
from cues_kafka.operate.shown import plain_json
from cues_kafka.ports.broker import Broker
from cues_kafka.ui.bounds import MEGABYTE, megabytes
from cues_kafka.ui.given import partition_of

SIZE: Final = 64 * MEGABYTE
"""Memory that the entries of a store may take while it is looked up: all of them are read."""

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
        self._alone = threading.Lock()

    def stores(self) -> dict[str, Any]:
        """The stores of the graph without its timers, which are not looked up by key, and the bounds."""
        names = [
            {"processor": name, "store": store, "keys": "text" if declared.key is None else "JSON"}
            for name, part in self._graph.processors.items()
            for store, declared in part.state.items()
            if not isinstance(declared, Timers)
        ]
        read = f"the store is read as a whole, up to {megabytes(self._size)} and {self._seconds:g} s"
        return {"stores": names, "bounds": f"{ENTRIES} entries; {read}"}

    def look_up(self, given: Mapping[str, str]) -> dict[str, Any]:
        """
        The entry of a key. Where keys are text, also those of keys that begin with it, up to a number of them.

        Raises:
            ConfigError: there is no such store, the store cannot have this key, or it has too many entries.
            BrokerError: the changelog cannot be read.
        """
        processor, store, partition = given.get("processor", ""), given.get("store", ""), partition_of(given)
        declared = processor_with(self._graph, processor, store).state[store]
        if isinstance(declared, Timers):
            raise ConfigError(f"{store!r} of {processor!r} holds timers, which are not looked up by key.")
        with self._alone, closing(Client(self._broker, self._graph, cluster=self._cluster)) as client:
            view = self._opened(client, processor, store, partition)
            found = _entries(view, given.get("key", ""), text=declared.key is None)
            at = [f"{place.topic}/{place.partition}@{offset}" for place, offset in sorted(view.positions.items())]
            return {"rows": found[:ENTRIES], "more": len(found) > ENTRIES, "entries": len(view), "true_up_to": at}

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


def _entries(view: StoreView, key: str, *, text: bool) -> list[StoredRow]:
    """The entries that are shown, and one more if there are more."""
    if text:
        return [_row(*entry) for entry in islice(view.scan_all(key), ENTRIES + 1)]
    try:
        wanted = json.loads(key)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"the keys of this store are JSON, and {key!r:.80} is not: {error}.") from None
    try:
        return [_row(wanted, view[wanted])]
    except KeyError:
        return []
    except (CodecError, TypeError) as error:
        raise ConfigError(f"{key!r:.80} is no key of this store: {error}") from None


def _row(key: Any, value: Any) -> StoredRow:
    return StoredRow(*(f"({part})" if isinstance(part, CodecError) else plain_json(part) for part in (key, value)))

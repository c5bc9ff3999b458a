"""Enqueues records by column: by the compiled module where it is, else by the Python client, called from inside C.

Both give each record to the client once, in order, and say how far they are when they raise.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import islice, repeat
from operator import length_hint
from typing import Any, Final, Protocol

from confluent_kafka import KafkaError, KafkaException, Producer

from cues_kafka.brokers.kafka.compiled.loaded import Acknowledged, Module, loaded
from cues_kafka.core.delivery import HEADER

AT_ONCE: Final = 500
"""How many records are enqueued before other threads of this process get their turn: about a millisecond."""


class ColumnRecords(Protocol):
    """Records that can be taken by column: a batch's outbox."""

    def columns(self) -> tuple[Any, ...]: ...
    def lists(self) -> tuple[list[Any], ...]: ...
    def __getitem__(self, index: int) -> tuple[Any, ...]: ...
    def __len__(self) -> int: ...


class Enqueuing(Protocol):
    """One run over the records of an outbox.

    Attributes:
        done: how many records the client has.
        at: the record that is enqueued now, or was refused.
    """

    @property
    def done(self) -> int: ...
    @property
    def at(self) -> int: ...
    def run(self) -> None:
        """Enqueue all of them. Raises what the client raises; the queue is never full (`wait_for_room`)."""
        ...


class ClientColumns:
    """Calls the client for each record from inside C: a loop in Python would cost a third of the call."""

    def __init__(
        self, producer: Producer, records: ColumnRecords, report: Any, wait_for_room: Callable[[tuple[Any, ...]], None]
    ) -> None:
        topics, partitions, keys, values, headers, times = records.columns()
        self._records, self._report, self._wait_for_room = records, report, wait_for_room
        self._count = len(values)
        self._waiting = iter(values)  # its length hint is exact, and says how far the calls are
        # topic, value, key, partition, callback, on_delivery, timestamp, headers
        self._calls = map(
            producer.produce, topics, self._waiting, keys, partitions, repeat(report), repeat(None), times, headers
        )

    @property
    def done(self) -> int:
        return self._count - length_hint(self._waiting)

    @property
    def at(self) -> int:
        return max(0, self.done - 1)

    def run(self) -> None:
        while length_hint(self._waiting):
            try:
                deque(islice(self._calls, AT_ONCE), maxlen=0)
            except BufferError:  # the record left the columns and did not get in; the calls go on behind it
                self._wait_for_room(arguments(self._records[self.at], self._report))


class ModuleColumns:
    """Lets the compiled module take the columns. What it cannot take goes to the client, with a report of its own."""

    def __init__(
        self,
        module: Module,
        producer: Producer,
        records: ColumnRecords,
        report: Any,
        wait_for_room: Callable[[tuple[Any, ...]], None],
    ) -> None:
        self._module, self._producer, self._records = module, producer, records
        self._report, self._wait_for_room = report, wait_for_room
        self.done = 0

    @property
    def at(self) -> int:
        return self.done

    def run(self) -> None:
        lists = self._records.lists()
        while self.done < len(self._records):
            count, code = self._module.produce(self._producer, self.done, lists, HEADER)
            self.done += count
            if code == self._module.QUEUE_FULL:
                self._wait_for_room(arguments(self._records[self.done], self._report))
                self.done += 1
            elif code == self._module.UNUSUAL:
                self._one(arguments(self._records[self.done], self._report))
                self.done += 1
            elif code:
                raise KafkaException(KafkaError(code))

    def _one(self, record: tuple[Any, ...]) -> None:
        try:
            self._producer.produce(*record)
        except BufferError:
            self._wait_for_room(record)


class Counted:
    """
    How the records of one producer are enqueued, and what became of those that have no report of their own.

    Args:
        producer: it was made with `plugin_settings`.
    """

    def __init__(self, producer: Producer) -> None:
        module = loaded().module
        self._tally: Acknowledged | None = module.tally_of(producer) if module else None
        self._module = module if self._tally is not None else None

    def begin(self) -> None:
        """A transaction begins: count from zero."""
        if self._tally is not None:
            self._tally.reset()

    @property
    def delivered(self) -> int:
        """Records that the cluster has acknowledged in this transaction, besides those with a report."""
        return self._tally.read()[0] if self._tally is not None else 0

    @property
    def error(self) -> tuple[KafkaError, str, int] | None:
        """Why the first of them failed, with its topic and partition; None: none did."""
        if self._tally is None:
            return None
        _, failed, code, topic, partition = self._tally.read()
        return (KafkaError(code), topic, partition) if failed else None

    def enqueue(
        self, producer: Producer, records: ColumnRecords, report: Any, wait_for_room: Callable[[tuple[Any, ...]], None]
    ) -> Enqueuing:
        """A run over these records; see `arguments` for what `wait_for_room` gets."""
        if self._module is None:
            return ClientColumns(producer, records, report, wait_for_room)
        return ModuleColumns(self._module, producer, records, report, wait_for_room)


def arguments(record: tuple[Any, ...], report: Any) -> tuple[Any, ...]:
    """The arguments of the client's call for one record, by position."""
    topic, partition, key, value, headers, timestamp_ms = record
    return topic, value, key, -1 if partition is None else partition, report, None, timestamp_ms, headers


def plugin_settings(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings of a producer whose acknowledgements the module counts, where it is; plugins of the user stay."""
    module = loaded().module
    if module is None:
        return settings
    others = settings.get("plugin.library.paths", "")
    return settings | {"plugin.library.paths": f"{others};{module.__file__}" if others else module.__file__}

"""Calls the function of a processor for messages that it has delivered, to make its stores again (X3)."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import groupby, islice
from pathlib import Path
from typing import Any, Final, Self

from cues_kafka.brokers.patience import ask_again
from cues_kafka.core.records import Record
from cues_kafka.core.spec import Spec
from cues_kafka.errors import ConfigError, RecoveryError, RetriableError
from cues_kafka.graph.processor import Processor
from cues_kafka.operate.move.base import Maintenance
from cues_kafka.operate.move.delivered import CHUNK, DeliveredInput
from cues_kafka.operate.move.rebuilt import Rebuilt, latest_times
from cues_kafka.state.marks import finished
from cues_kafka.state.stores import Stores
from cues_kafka.task.calling.batch import Batch
from cues_kafka.task.calling.caller import Caller
from cues_kafka.task.making.build import caller_of, state_dir_of
from cues_kafka.task.parts.stores import stores_of
from cues_kafka.task.restoring import Restoring

STALE: Final = "STALE_END"
LOST_S: Final = 3.0
"""How long a changelog that does not end where the record says may be the old answer of a broker."""


class RebuildCalls:
    """Makes the stores of tasks from what they have delivered; a context manager, which removes scratch files."""

    def __init__(
        self, tool: Maintenance, processor: Processor, system: Mapping[str, Any], cluster: Any, notes: list[str]
    ) -> None:
        self._reading, self._specs, self._processor = tool.reading, tool.specs, processor
        self._cluster, self._notes = cluster, notes
        self._stack = contextlib.ExitStack()
        facts = tool.reading.facts
        self._caller: Caller = caller_of(
            *(tool.graph, processor, facts, dict(system), tool.broker.max_bytes),
            cluster=cluster,
            state_dir=self._scratch(),
        )
        self._stack.callback(self._caller.close)
        self._ids = {binding: tool.reading.topic_id(topic) for binding, topic in processor.inputs}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def made(self, group: Sequence[int], source: DeliveredInput) -> Iterator[list[Rebuilt]]:
        """Gives what the stores of these tasks become; the entries are gone with the next step."""
        rebuilt = [self._empty(partition, source.records[partition]) for partition in group]
        try:
            self._call_all({one.spec.partition: one for one in rebuilt}, source, group)
            source.refuse_other_steps(rebuilt)
            if source.whole:
                latest = latest_times(rebuilt)
                for one in rebuilt:
                    one.latest = latest
            yield [one.compare() for one in rebuilt]
        finally:
            for one in rebuilt:
                one.close()

    def _scratch(self) -> Path | None:
        """A directory for the entries of stores that are on the disk, removed in the end."""
        root = state_dir_of(self._cluster, self._reading.facts)
        if root is None or not any(store.on_disk for store in self._processor.state.values()):
            return None
        root.mkdir(parents=True, exist_ok=True)
        return Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="rebuild-", dir=root)))

    def _empty(self, partition: int, record: Record | None) -> Rebuilt:
        spec = self._specs[partition]
        context = self._caller.context_of(spec)
        stores_of(context).open()
        return Rebuilt(spec, record, context, *self._present(spec, record))

    def _present(
        self, spec: Spec, record: Record | None
    ) -> tuple[Stores | None, bool, Mapping[str, Collection[bytes]]]:
        """
        The entries that the changelogs have, whether some are lost, and keys that no task writes, by store.

        The entries are None if the task has no changelogs yet.
        """
        if any(spec.partition >= self._reading.width(topic) for _, topic in spec.stores):
            return None, False, {}
        stores = stores_of(self._caller.context_of(spec))
        kept = finished(record.stores) if record else ()
        foreign: dict[str, set[bytes]] = {}
        clients = self._reading.broker, self._reading.clock
        restoring = Restoring(*clients, spec.name, spec.partition, spec.group, lambda: False, foreign)
        try:
            ask_again(lambda: restoring.bring_up(stores, kept), LOST_S, while_=lambda error: error.code == STALE)
        except (ConfigError, RetriableError) as error:
            if isinstance(error, RetriableError) and error.code != STALE:
                raise
            self._notes.append(f"{spec.name}: {error}")
            restoring.bring_up(stores, kept, whole=False)
            return stores, True, foreign
        return stores, False, foreign

    def _call_all(self, rebuilt: Mapping[int, Rebuilt], source: DeliveredInput, group: Sequence[int]) -> None:
        indices: dict[str, list[int]] = {}
        for index, (_, topic) in enumerate(self._processor.inputs):
            indices.setdefault(topic, []).append(index)
        alts = self._processor.input_shape == "alts"
        coming = source.messages(group)
        while chunk := list(islice(coming, CHUNK)):
            mine: dict[int, list[tuple[int, Any]]] = {}
            for place, message in chunk:
                owner = source.task_of(place, message)
                target = mine.setdefault(owner, [])
                target += [
                    (place.partition, (index, message) if alts else message)
                    for index in indices[place.topic]
                    if source.wanted(place, self._processor.inputs[index][0], message.offset(), rebuilt[owner])
                ]
            for partition, steps in mine.items():
                for partition_of, run in groupby(steps, key=lambda step: step[0]):
                    self._call(rebuilt[partition], partition_of, [step for _, step in run])

    def _call(self, one: Rebuilt, source: int, steps: list[Any]) -> None:
        """Call the function for these messages of a partition, and keep its changes."""
        stores = stores_of(one.context)
        while steps:
            batch = Batch(self._specs[source], 0, self._ids, one.context)
            stores.begin_batch(0)
            ended = self._caller.run(steps, batch)
            one.calls += ended
            one.raised += batch.errors
            if batch.halt is not None:
                if batch.halt.kind != "unhandled":
                    raise RecoveryError(f"{self._caller.place(steps, ended)}: {batch.halt}")
                ended, one.calls, one.raised = ended + 1, one.calls + 1, one.raised + 1
            stores.before_commit(0, batch.records)
            stores.after_commit(0)
            if stores.failed is not None:
                raise RecoveryError(f"{one.spec.name}: {stores.failed}")
            steps = steps[ended:]

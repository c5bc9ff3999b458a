"""What the tasks of a processor share, and the context of calls that each of them gets of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from time import monotonic, time
from typing import Any

from cues_kafka.brokers.placement import LEARN_S
from cues_kafka.core.spec import Spec
from cues_kafka.graph.calls import Given
from cues_kafka.graph.definition import Graph
from cues_kafka.graph.effects import Effect
from cues_kafka.graph.handler import Handler
from cues_kafka.graph.processor import Processor
from cues_kafka.ports.facts import ClusterFacts
from cues_kafka.ports.log import WireMessage
from cues_kafka.sinks.blobs.marker import KnownStore
from cues_kafka.sinks.calls import Calls, Shared
from cues_kafka.sinks.journal import Journal
from cues_kafka.sinks.lookup import open_target
from cues_kafka.sinks.publish import PublishSink
from cues_kafka.state.handlers import Handlers
from cues_kafka.state.mapping import StoreSpec
from cues_kafka.state.stores import Stores
from cues_kafka.task.calling.imperative import Hands, TailerSpec
from cues_kafka.task.calling.outputs import Target
from cues_kafka.task.calling.placements import moved_key, placements_of
from cues_kafka.task.following import Tables
from cues_kafka.task.parts.calls import JournaledCalls
from cues_kafka.task.parts.handlers import Handling
from cues_kafka.task.parts.keys import Keys
from cues_kafka.task.parts.order import arranged
from cues_kafka.task.parts.participant import CallContext, Participant
from cues_kafka.task.parts.replays import ReplayRequests
from cues_kafka.task.parts.sink import SinkBatches
from cues_kafka.task.parts.stores import Storing
from cues_kafka.task.parts.tables import Awaiting, Following
from cues_kafka.task.parts.tailers import Tailing
from cues_kafka.task.parts.target import Committing, Placing
from cues_kafka.task.parts.timers import Timing
from cues_kafka.task.parts.trail import Trailing
from cues_kafka.task.parts.undivided import Undivided
from cues_kafka.task.waiting import TablesRead


@dataclass(frozen=True, slots=True)
class TaskContexts:
    """
    Makes the context of each task of a processor.

    Attributes:
        graph, processor, facts: what runs, and its topics.
        values: what the functions get of `opts=` and `Graph(system=)`, by name.
        stores: the stores, with their changelogs.
        tables: the tables; None: it has none.
        targets, appenders, tailers: the topics that it writes and reads at will, by binding.
        calls: what the function calls by `effects=`, by name.
        shared: the connections of these; None: it calls nothing.
        journal, journal_bytes: the topic that keeps answers, and its largest record; None: none are kept.
        effects: what it has of `effects=`, with schemas of files.
        publishers: what it publishes to without a transaction, by name.
        trail: the topic of the trail; None: it has none.
        read_key: reads the key of a message.
        tracing: makes the participant that has spans; None: none has.
        known: what is known of its store of files.
        known_ms: the time from which on the placement of keys counts as known, in milliseconds since the epoch.
    """

    graph: Graph
    processor: Processor
    facts: ClusterFacts
    values: Mapping[str, Any]
    stores: Sequence[StoreSpec]
    tables: Tables | None
    targets: Mapping[str, Target]
    appenders: Mapping[str, Target]
    tailers: Sequence[TailerSpec]
    calls: Mapping[str, Effect]
    shared: Shared | None
    journal: str | None
    journal_bytes: int
    effects: Any
    publishers: Mapping[str, Any]
    trail: Target | None
    read_key: Callable[[WireMessage], bytes | None]
    tracing: Callable[[], Participant | None]
    known: KnownStore = field(default_factory=KnownStore)
    known_ms: int = field(default_factory=lambda: int((time() + LEARN_S) * 1000))

    def of(self, spec: Spec) -> CallContext:
        """The context of one task: what its function is given, and what takes part in its steps."""
        graph, processor, tables = self.graph, self.processor, self.tables
        stores = Stores(self.stores, spec.partition) if self.stores else None
        target = None
        if processor.target:
            target = open_target(self.effects, graph.name, processor.name, spec.partition, self.known)
        published = PublishSink(self.publishers) if self.publishers else None
        everything = {
            **self.values,
            **(stores.values if stores else {}),
            **(tables.values(spec.partition) if tables else {}),
            **(target.values if target is not None else {}),
            **(published.values if published else {}),
            **{name: one.value for name, one in processor.targets.items() if isinstance(one, Given)},
        }
        hands = Hands(self.tailers, self.appenders, spec.partition) if self.tailers or self.appenders else None
        values = {**everything, **(hands.values if hands is not None else {})}
        given = {name: one for name, one in values.items() if name in processor.call.context}
        keys = placements_of(graph, processor, self.facts, spec.partition, self.known_ms)
        moved = partial(moved_key, graph, processor, spec.width)
        declared = {name: store for name, store in processor.state.items() if isinstance(store, Handler)}
        handlers = Handlers(declared, given, stores, monotonic) if declared and stores else None
        parts = (
            Keys(keys, tables) if keys else None,
            Handling(handlers, stores) if handlers and stores else None,
            self.tracing(),
            Tailing(hands, spec, self.read_key) if hands is not None else None,
            Timing(processor, stores, self.targets, everything) if processor.timers and stores else None,
            ReplayRequests(spec, graph.error_topics(), moved) if spec.replays else None,
            Storing(stores, spec) if stores else None,
            SinkBatches(published) if published else None,
            Following(tables, spec) if tables else None,
            Awaiting(TablesRead(tables, spec)) if tables and tables.awaited else None,
            self._journaled(spec),
            Trailing(self.trail) if self.trail else None,
            Undivided() if processor.columnar else None,
            _committing(processor, target, calls=bool(self.shared)),
        )
        return CallContext(given, arranged(parts))

    def _journaled(self, spec: Spec) -> JournaledCalls | None:
        if self.shared is None:
            return None
        journal = Journal(self.journal, spec.partition, self.journal_bytes) if self.journal else None
        return JournaledCalls(Calls(self.calls, self.shared, journal), spec)

    def release(self) -> None:
        """Close what the tasks share. No task is left."""
        for one in (self.tables, self.shared, *self.publishers.values()):
            if one is not None:
                one.close()


def _committing(processor: Processor, target: Any, *, calls: bool) -> Committing | None:
    if target is None:
        return None
    placed = getattr(target, "placed", None) if processor.placed else None
    return Committing(target, calls=calls) if placed is None else Placing(target, placed, calls=calls)

"""Makes the native workers of a process: one for each processor or feed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from cues_kafka.brokers.options import Kafka, Options
from cues_kafka.graph.declare import CallPolicy, CommitPolicy
from cues_kafka.graph.definition import Graph
from cues_kafka.graph.feed import Feed
from cues_kafka.graph.processor import Processor
from cues_kafka.observe.spans import Spans
from cues_kafka.plan.plan import Plan
from cues_kafka.ports.broker import Broker
from cues_kafka.ports.facts import ClusterFacts
from cues_kafka.ports.observer import Observer
from cues_kafka.task.clock import SystemClock
from cues_kafka.task.interpreter import Hook
from cues_kafka.task.making.apart import Away
from cues_kafka.task.making.build import caller_of, state_dir_of
from cues_kafka.task.making.specs import Identity, feed_spec_of, spec_of
from cues_kafka.task.making.system import System
from cues_kafka.workers.feeds.worker import FeedWorker, feeding_of
from cues_kafka.workers.needed import Needed, needed_by
from cues_kafka.workers.options import WorkerOptions
from cues_kafka.workers.worker import ProcessorWorker


@dataclass(frozen=True, slots=True)
class NativeWorkers:
    """
    What all native workers of a process share.

    Attributes:
        broker: the cluster.
        cluster: its options.
        system: the objects of `system=`.
        identity: of this process.
        instance: see `start`.
        policy: of processors and feeds without one of their own.
        calls: what to do about calls that take long.
        hook: see `start`.
        observers: told what the tasks do.
        held: why a processor is held back; empty: it is not.
        away: the database or store that a processor waits for since the start.
        changed: called when something about a task may have changed.
    """

    broker: Broker
    cluster: Options
    system: System
    identity: Identity
    instance: str | None
    policy: CommitPolicy
    calls: CallPolicy
    hook: Hook | None
    observers: Sequence[Observer]
    held: Callable[[str], str]
    away: Callable[[str], Away | None]
    changed: Callable[[], None]

    def processor(self, graph: Graph, processor: Processor, planned: Plan, facts: ClusterFacts) -> ProcessorWorker:
        """The worker of a processor."""
        width = facts.topics[processor.lead].partitions
        return ProcessorWorker(
            processor.name,
            caller=caller_of(
                *(graph, processor, facts, self.system.values, self.broker.max_bytes),
                cluster=self.cluster,
                state_dir=state_dir_of(self.cluster, facts),
                spans=next((one for one in self.observers if isinstance(one, Spans)), None),
            ),
            spec_of=spec_of(graph, planned, processor, width, self.identity),
            **self._common(processor.commit, needed_by(planned[processor.name], facts)),
        )

    def feed(self, graph: Graph, feed: Feed, planned: Plan, facts: ClusterFacts) -> FeedWorker:
        """The worker of a feed."""
        found = next(one for one in planned.feeds if one.name == feed.name)
        return FeedWorker(
            feeding_of(graph, feed, facts, self.broker.max_bytes, cluster=self.cluster),
            spec_of=feed_spec_of(graph, feed, self.identity),
            **self._common(feed.commit, needed_by(found, facts)),
        )

    def _common(self, policy: CommitPolicy | None, needed: Sequence[Needed]) -> dict[str, Any]:
        options = WorkerOptions(
            instance=self.instance,
            policy=policy or self.policy,
            revoke_timeout_s=_revoke_timeout_s(self.cluster),
            calls=self.calls,
            hook=self.hook,
            observers=self.observers,
            sessions=self.cluster.sessions,
            held=self.held,
            away=self.away,
            needed=needed,
        )
        return {"broker": self.broker, "clock": SystemClock(), "options": options, "changed": self.changed}


def _revoke_timeout_s(options: Options) -> float:
    """How long a revocation may wait: less than a third of `max.poll.interval.ms` (A3)."""
    return options.max_poll_interval_s * 0.3 if isinstance(options, Kafka) else 30.0

"""What a Spark task needs to deliver a range of one processor, as one value that is pickled for it.

A Python worker of Spark serves many Spark tasks of many batches. Each process keeps what may be kept between them
(`_site`): the connection for questions, the codecs, and the graph's `system=`. It never keeps producers and consumers.
"""

from __future__ import annotations

import atexit
import threading
from contextlib import ExitStack
from dataclasses import dataclass, replace

from cues_kafka.brokers.open import open_broker
from cues_kafka.brokers.options import Options
from cues_kafka.core.spec import Spec
from cues_kafka.graph.declare import CommitPolicy
from cues_kafka.graph.definition import Graph
from cues_kafka.on_spark.direct.replay_slot import ReplaySlot
from cues_kafka.on_spark.direct.slot import Slot
from cues_kafka.on_spark.query.outcome import Outcome
from cues_kafka.on_spark.query.slots import POLICY
from cues_kafka.on_spark.source.ranges import RangeRow
from cues_kafka.plan.plan import Plan
from cues_kafka.ports.broker import Broker
from cues_kafka.ports.facts import ClusterFacts
from cues_kafka.task.calling.caller import Caller
from cues_kafka.task.clock import SystemClock
from cues_kafka.task.making.build import caller_of
from cues_kafka.task.making.specs import Identity, spec_of
from cues_kafka.task.making.system import System


@dataclass(frozen=True, slots=True)
class Work:
    """
    One processor of a graph, as a query run ships it.

    Attributes:
        graph: the graph.
        processor: name of the processor.
        options: the cluster.
        planned: the plan of the processor, with its names.
        facts: facts of all topics, as they were when the query started.
        identity: id of this run of the query; each Spark task attempt adds its own number (D3).
        policy: when batches of steps are committed at the latest.
    """

    graph: Graph
    processor: str
    options: Options
    planned: Plan
    facts: ClusterFacts
    identity: Identity
    policy: CommitPolicy = POLICY

    @property
    def width(self) -> int:
        """Partitions of each input."""
        return self.facts.topics[self.graph.processors[self.processor].lead].partitions

    def slot(self, partition: int, attempt: str) -> Slot:
        """
        The slot of one partition, in this process.

        Args:
            partition: its number.
            attempt: number of the Spark task's attempt; two attempts are two incarnations (Q1).
        """
        site, spec = _site(self), replace(self._spec(partition, attempt), slot=True)
        return Slot(spec, site.caller, broker=site.broker, clock=SystemClock(), policy=self._policy(site))

    def replay_slot(self, partition: int, attempt: str) -> ReplaySlot:
        """The slot that delivers requests to replay errors; see `slot`."""
        site, spec = _site(self), self._spec(partition, attempt)
        return ReplaySlot(spec, site.caller, broker=site.broker, clock=SystemClock(), policy=self._policy(site))

    def deliver(self, given: RangeRow, *, attempt: str, first: bool) -> Outcome:
        """Deliver what a task is given, see `Slot.deliver`."""
        hint = given.starts if given.holds_offsets else None
        return self.slot(given.partition, attempt).deliver(given.ends, first=first, hint=hint)

    def replay(self, partition: int, until: int, *, attempt: str) -> Outcome:
        """Deliver requests to replay errors, see `ReplaySlot.replay`."""
        return self.replay_slot(partition, attempt).replay(until)

    def _spec(self, partition: int, attempt: str) -> Spec:
        who = replace(self.identity, incarnation=f"{self.identity.incarnation}.{attempt}")
        return spec_of(self.graph, self.planned, self.graph.processors[self.processor], self.width, who)(partition)

    def _policy(self, site: _Site) -> CommitPolicy:
        return site.caller.processor.commit or self.policy


@dataclass(frozen=True, slots=True)
class _Site:
    """What a process keeps for one processor of one query run."""

    broker: Broker
    system: System
    caller: Caller

    def close(self) -> None:
        with ExitStack() as stack:  # one that raises keeps no other open
            stack.callback(self.broker.close)
            stack.callback(self.system.close)
            stack.callback(self.caller.close)


_sites: dict[tuple[str, str], _Site] = {}
_lock = threading.Lock()  # guards `_sites`; held while a site opens, so that Spark tasks that begin at once share one


def _site(work: Work) -> _Site:
    """The site of a query run, opened once by each process; a newer run of the same query replaces an older one."""
    name, run = f"{work.graph.name}.{work.processor}", work.identity.incarnation
    with _lock:
        if (name, run) not in _sites:
            for old in [key for key in _sites if key[0] == name]:
                _sites.pop(old).close()
            _sites[name, run] = _opened(work)
        return _sites[name, run]


def _opened(work: Work) -> _Site:
    with ExitStack() as stack:  # Spark tries again in the same process, so what fails leaves nothing open
        system = System(work.graph.system)
        stack.callback(system.close)
        broker, processor = open_broker(work.options), work.graph.processors[work.processor]
        stack.callback(broker.close)
        caller = caller_of(work.graph, processor, work.facts, system.values, broker.max_bytes, cluster=work.options)
        stack.pop_all()
        return _Site(broker, system, caller)


@atexit.register
def _close_sites() -> None:
    while _sites:
        _sites.popitem()[1].close()

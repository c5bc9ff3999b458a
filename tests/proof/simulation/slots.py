"""Slots in place of native workers: what a Spark task does for one partition, without Spark (D1 to D6).

A query plans a range for each partition that has something, and runs an attempt for it. An attempt may stand still
while another query, which believes that it is dead, runs another one: then one of them is fenced (D5).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from cues_kafka.brokers.memory import MemoryMember
from cues_kafka.errors import BrokerError
from cues_kafka.graph.declare import CommitPolicy
from cues_kafka.on_spark.direct.slot import Slot
from cues_kafka.ports.log import TopicPartition
from cues_kafka.task.making.build import caller_of
from cues_kafka.task.making.specs import Identity, spec_of
from cues_kafka.testing.tester import VirtualGate
from tests.proof.simulation.faults import SimulatedCluster
from tests.proof.simulation.options import Part
from tests.proof.simulation.strands import Killed, Lock

if TYPE_CHECKING:
    from tests.proof.simulation.run import Simulation


class Place(NamedTuple):
    """One slot."""

    part: Part
    partition: int


class Query:
    """
    A process that delivers by slots; the same interface as `run.Process`.

    Attributes:
        name: of the application.
        incarnation: of this query; each attempt has one below it.
        alive: until it is killed or has stopped.
        workers: its processors.
    """

    members: Sequence[MemoryMember] = ()
    """None: a query is in no group."""

    def __init__(self, simulation: Simulation, name: str, incarnation: str) -> None:
        self.name = name
        self.incarnation = incarnation
        self.alive = True
        self.workers = list(simulation.options.parts)
        self._simulation = simulation
        self._reached: dict[Place, dict[str, int]] = {}
        self._running: set[Place] = set()
        self._attempts = 0
        self._retried: set[Place] = set()

    def kill(self) -> None:
        """The executor is gone, with everything on it."""
        self.alive = False

    def stop(self, *, leave: bool) -> None:
        """End the query; attempts that stand still below end as killed ones."""
        self.alive = False

    @property
    def busy(self) -> Collection[Place]:
        """Where an attempt stands still below, or runs."""
        return self._running

    @property
    def still(self) -> bool:
        """Whether no attempt stands still below."""
        return not self._running

    def step(self, part: Part, action: str) -> bool:
        """One attempt for one partition of a processor; whether there was something to do."""
        if not self.alive or action != "work":
            return False
        for partition in range(self._simulation.options.partitions):
            place = Place(part, partition)
            ends = self._ends(place)
            reached = self._reached.get(place, {})
            if place not in self._running and any(end > reached.get(topic, -1) for topic, end in ends.items()):
                return self._attempt(place, ends)
        return False

    def _ends(self, place: Place) -> dict[str, int]:
        places = [TopicPartition(topic, place.partition) for topic in place.part.inputs]
        # An operator's view: no fault stands between it and the cluster.
        marks = SimulatedCluster.watermarks(self._simulation.broker, places)
        return {at.topic: marks[at].stable for at in places}

    def _attempt(self, place: Place, ends: dict[str, int]) -> bool:
        simulation = self._simulation
        before, simulation.strand = simulation.strand, object()
        process, simulation.process = simulation.process, self
        self._running.add(place)
        first = place not in self._reached or place in self._retried
        self._retried.add(place)
        try:
            slot = self._slot(place)
            if place not in self._reached:
                slot.enter()
                slot = self._slot(place)
            outcome = slot.deliver(ends, first=first)
            if outcome.kind:
                return False
            self._reached[place] = ends
            self._retried.discard(place)
            return True
        except (Killed, BrokerError):
            return False
        finally:
            self._running.discard(place)
            simulation.strand, simulation.process = before, process

    def _slot(self, place: Place) -> Slot:
        simulation, options = self._simulation, self._simulation.options
        self._attempts += 1
        identity = Identity("spark", self.name, f"{self.incarnation}.{self._attempts}")
        processor = simulation.graph.processors[place.part.name]
        spec = spec_of(simulation.graph, simulation.planned, processor, options.partitions, identity)(place.partition)
        made = Slot(
            replace(spec, slot=True),
            caller_of(simulation.graph, processor, simulation.facts, {}, simulation.broker.max_bytes),
            broker=simulation.broker,
            clock=simulation.clock,
            policy=CommitPolicy(max_messages=options.max_messages),
            hook=lambda moment, effect: simulation.at(self, moment, effect),
        )
        interpreter = made._lane.interpreter  # the same two as of a worker's tasks
        interpreter.lock = cast(Any, Lock(simulation))
        interpreter.gate = VirtualGate(simulation.clock)
        return made

    def wakes(self) -> list[float]:
        """Never: an attempt waits by itself."""
        return []

    def state(self) -> list[Any]:
        """What changes while there is something to do."""
        return [
            (place.part.name, place.partition, "reached", None, *ends.items()) for place, ends in self._reached.items()
        ]

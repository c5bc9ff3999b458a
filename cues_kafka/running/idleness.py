"""Whether a graph has delivered everything and shows it, and what is in the way."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from cues_kafka.errors import BrokerError
from cues_kafka.graph.definition import Graph
from cues_kafka.plan.wellness import TaskCondition, Unwell, verdict, without_task
from cues_kafka.ports.broker import Broker
from cues_kafka.ports.log import Positions, TopicPartition
from cues_kafka.records.scanning import due, holds_messages, unstable
from cues_kafka.task.making.without_task import partitions_without_task
from cues_kafka.task.workers import Worker


class Idleness:
    """Looks at the workers of this process, and at the cluster."""

    def __init__(self, broker: Broker, graph: Graph, workers: Callable[[], Sequence[Worker]]) -> None:
        self._broker = broker
        self._graph = graph
        self._all_workers = workers
        self._outputs: list[TopicPartition] | None = None  # of the processors that run here, once asked

    @property
    def _workers(self) -> Sequence[Worker]:
        return self._all_workers()

    def grow(self, graph: Graph) -> None:
        """The graph has more processors now."""
        self._graph = graph
        self._outputs = None

    def reached(self) -> bool:
        """Whether all is delivered. Checks twice: a processor may have fed one that was checked before it."""
        before = self._positions()
        once = all(self._idle(worker) for worker in self._workers)
        return (
            once
            and all(self._idle(worker) for worker in self._workers)
            and before == self._positions()
            and self._shown()
            and not any(one.lag for one in partitions_without_task(self._broker, self._workers))
        )

    def _positions(self) -> list[Positions]:
        lanes = (worker.lanes.copy() for worker in self._workers)
        return [lane.task.positions for owned in lanes for _, lane in sorted(owned.items())]

    def obstacles(self) -> tuple[Unwell, ...]:
        """What keeps the graph from being idle, besides its tasks: partitions without a task, and open transactions."""
        try:
            missing = partitions_without_task(self._broker, self._workers)
            tasks = [without_task(name, place.topic, place.partition, tasks) for name, place, tasks, _ in missing]
            open_in = {one.name: self._open_for(one) for one in self._workers}
        except BrokerError as error:
            return verdict(self._graph.name, unreachable=str(error))
        lost = [
            TaskCondition(one.task, why=one.lost, remedy=one.lost_remedy)
            for worker in self._workers
            for one in worker.status()
            if one.lost
        ]
        held = [
            TaskCondition(f"{n}/{at.partition}", blocked={at: s}) for n, one in open_in.items() for at, s in one.items()
        ]
        return verdict(self._graph.name, [*tasks, *lost, *held], long_open_s=0.0)

    def _open_for(self, worker: Worker) -> dict[TopicPartition, float]:
        """For how long transactions have been open in the inputs and outputs of a processor, in seconds."""
        topics = [*{*(i.topic for i in worker.first.inputs), *self._written_by(worker.first.processor)}]
        widths = self._broker.partitions(topics)
        places = [TopicPartition(topic, p) for topic, width in widths.items() for p in range(width)]
        stuck = unstable(self._broker.watermarks(places)) if places else set()
        if not stuck:
            return {}
        since = self._broker.open_since(stuck, group=worker.first.group)
        return {place: max(0.0, time.time() - since_s) for place, since_s in since.items()}

    def _shown(self) -> bool:
        """Whether the outputs have the markers of every commit, so that readers see what was committed."""
        if self._outputs is None:
            written = sorted({topic for worker in self._workers for topic in self._written_by(worker.first.processor)})
            facts = self._broker.facts(written).topics if written else {}
            self._outputs = [TopicPartition(name, p) for name, found in facts.items() for p in range(found.partitions)]
        return not self._outputs or not unstable(self._broker.watermarks(self._outputs))

    def _written_by(self, name: str) -> Iterator[str]:
        if name in self._graph.dataframes:
            yield from self._graph.dataframes[name].output_topics
            return
        processor = self._graph.processors.get(name) or self._graph.feeds[name]
        yield from processor.output_topics
        if errors := self._graph.errors_of(processor):
            yield errors

    def _idle(self, worker: Worker) -> bool:
        if not worker.positions_in_group:
            return not worker.busy and not self._missing(worker, worker.reached)
        spec = worker.first
        topics = [i.topic for i in spec.inputs]
        marks = self._broker.watermarks([TopicPartition(topic, p) for topic in topics for p in range(spec.width)])
        if unstable(marks):
            return False
        remote: list[TopicPartition] = []
        for place, mark in marks.items():
            lane = worker.lanes.get(place.partition)
            if lane is None:
                remote.append(place)
            elif not lane.idle or lane.seen.get(place.topic, -1) < mark.stable:
                return False
        if not remote:
            return True
        committed = self._broker.committed(spec.group, remote)
        waiting = {place for place in remote if self._left(worker, place, committed.get(place), marks[place].stable)}
        tasks = [[place for place in remote if place.partition == p] for p in {place.partition for place in remote}]
        return not any(due(spec.pairing, places, waiting.intersection(places)) for places in tasks)

    def _missing(self, worker: Worker, reached: Mapping[TopicPartition, int]) -> bool:
        marks = self._broker.watermarks(list(reached))
        left = (self._left(worker, place, offset, marks[place].stable) for place, offset in reached.items())
        return bool(unstable(marks)) or any(left)

    def _left(self, worker: Worker, place: TopicPartition, committed: int | None, stable: int) -> bool:
        """Whether messages, not only markers, come after the committed position of another process."""
        if committed is None:
            return True
        return committed < stable and holds_messages(self._broker, place, committed, stable, group=worker.first.group)

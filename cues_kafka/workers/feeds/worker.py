"""A feed in this process: membership by its own backing topic, and lanes that read the source (G1)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from typing import Any

from cues_kafka.codecs.lookup import MadeFor
from cues_kafka.core.spec import Spec
from cues_kafka.graph.definition import Graph
from cues_kafka.graph.feed import Feed, called_if_there
from cues_kafka.ports.broker import Broker
from cues_kafka.ports.clients import Reader
from cues_kafka.ports.clock import Clock
from cues_kafka.ports.facts import ClusterFacts
from cues_kafka.ports.log import Fetched, Positions, TopicPartition
from cues_kafka.task.calling.carried import carried_by
from cues_kafka.task.lane import Lane
from cues_kafka.task.making.build import decoder, target_of
from cues_kafka.task.status import TaskStatus
from cues_kafka.workers.feeds.lane import FeedLane
from cues_kafka.workers.feeds.reading import Feeding
from cues_kafka.workers.feeds.rows import Into
from cues_kafka.workers.options import WorkerOptions
from cues_kafka.workers.worker import ProcessorWorker


def feeding_of(graph: Graph, feed: Feed, facts: ClusterFacts, client_bytes: int, *, cluster: Any = None) -> Feeding:
    """
    What the lanes of a feed share.

    Args:
        graph: what runs.
        feed: the one.
        facts: of its topics.
        client_bytes: see `ports.broker.Broker.max_bytes`.
        cluster: see `MadeFor`.

    Raises:
        ConfigError: a package is missing.
    """
    errors = graph.errors_of(feed)
    made_for = MadeFor(feed.into, cluster)
    shows = called_if_there(feed.source, "show")
    return Feeding(
        feed,
        Into(
            target_of(graph.topic(feed.into), facts.topics[feed.into], "output", client_bytes, cluster),
            decoder(graph.topic(feed.into), made_for).decode,
            target_of(graph.topic(errors), facts.topics[errors], "errors", client_bytes, cluster) if errors else None,
            _plain if shows is None else shows,
            graph.topic(feed.into).value,
            carried_by(graph, feed),
        ),
    )


def _plain(place: str) -> str:
    return f"place {place}" if len(place) <= SHOWN else f"place {place[:SHOWN]}..."


SHOWN = 200
"""Characters of a place that a log line shows, where its source does not say how to."""


class _NoReader:
    """A feed reads no partitions."""

    def assign(self, _: Mapping[TopicPartition, int]) -> None:
        """Nothing is read."""

    def unassign(self, _: Collection[TopicPartition]) -> None:
        """Nothing is read."""

    def pause(self, _: Collection[TopicPartition]) -> None:
        """Nothing is read."""

    def resume(self, _: Collection[TopicPartition]) -> None:
        """Nothing is read."""

    def poll(self, timeout_s: float, max_messages: int = 0) -> list[Fetched]:
        """Nothing is read."""
        return []

    def close(self) -> None:
        """Nothing is open."""


class FeedWorker(ProcessorWorker):
    """The tasks of one feed that the group gives to this process; see `ProcessorWorker`."""

    def __init__(
        self,
        feeding: Feeding,
        *,
        broker: Broker,
        clock: Clock,
        spec_of: Callable[[int], Spec],
        options: WorkerOptions,
        changed: Callable[[], None],
        executor: Executor | None = None,
    ) -> None:
        super().__init__(
            feeding.feed.name,
            broker=broker,
            clock=clock,
            caller=feeding,  # type: ignore[arg-type]
            spec_of=spec_of,
            options=replace(options, inlet=None),
            changed=changed,
            executor=executor,
        )
        self._feeding = feeding

    @property
    def positions_in_group(self) -> bool:
        """The group's offsets say nothing of the source."""
        return False

    @property
    def busy(self) -> bool:
        """Whether a source has more, or was not asked yet. Tasks in other processes are not seen."""
        return self.generation < 0 or not all(lane.idle for lane in list(self.lanes.values()))

    def open(self) -> None:
        """Join the group; nothing is assigned yet."""
        if notifies := called_if_there(self._feeding.source, "notify"):
            notifies(self.look)
        super().open()

    def _open_reader(self) -> Reader:
        return _NoReader()

    def look(self) -> None:
        """Ask the source at once."""
        for lane in list(self.lanes.values()):
            if isinstance(lane, FeedLane):
                lane.look()
        super().look()

    def on_revoke(self, partitions: Sequence[int]) -> None:
        """Give these tasks up behind their commits; other processes read their parts."""
        super().on_revoke(partitions)
        self._release(partitions)

    def on_lost(self, partitions: Sequence[int]) -> None:
        """Give these tasks up at once; other processes read their parts already."""
        super().on_lost(partitions)
        self._release(partitions)

    def _release(self, partitions: Sequence[int]) -> None:
        for partition in partitions:
            self._feeding.release(partition)

    def status(self) -> list[TaskStatus]:
        """The tasks that the group gave to this process, with their places in the source."""
        lanes = {lane.spec.name: lane for lane in self.lanes.copy().values() if isinstance(lane, FeedLane)}
        return [
            replace(one, place=lane.read_up_to, silent=lane.silent, silent_s=lane.silent_s)
            if (lane := lanes.get(one.task))
            else one
            for one in super().status()
        ]

    def _make_lane(self, spec: Spec, **world: Any) -> Lane:
        return FeedLane(spec, self._feeding, wake=self._notify, **{**world, "point_reader": _point_nothing})


def _point_nothing(_lane: Lane, _positions: Positions) -> None:
    """There is no partition to read."""

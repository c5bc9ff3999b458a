"""`Run`: a query as the worker sees it that keeps it running. Each way of writing has a `Run` of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, runtime_checkable

from cues_kafka.core.spec import Spec
from cues_kafka.observe.log import get_logger
from cues_kafka.on_spark.query.hold import BatchHold
from cues_kafka.on_spark.query.outcome import Outcome
from cues_kafka.on_spark.source.ranges import Begins
from cues_kafka.ports.log import Position, Positions, TopicPartition
from cues_kafka.task.workers import Job

log = get_logger("cues_kafka.spark")


@dataclass(frozen=True, slots=True)
class QuerySettings:
    """
    How a query runs.

    Attributes:
        session: of Spark.
        checkpoint: directory of this query.
        trigger: keyword arguments of `DataStreamWriter.trigger`.
        limit: offsets in one micro-batch.
        patience_s: time for which members of a killed native worker may still be in the group.
        upstream: whether a worker runs that feeds this one; with `available-now` this one waits until none does.
        hold: what each batch waits for; None: nothing holds batches back.
    """

    session: Any
    checkpoint: str
    trigger: dict[str, Any]
    limit: int | None = None
    patience_s: float = 20.0
    upstream: Callable[[], bool] = bool
    hold: BatchHold | None = None

    def write(self, frame: Any, name: str, batch: Callable[[Any, int], None], mode: str = "append") -> Any:
        """Start a streaming query that calls `batch` for each micro-batch."""
        query = (
            frame.writeStream.foreachBatch(self.hold.over(batch) if self.hold else batch)
            .queryName(name)
            .option("checkpointLocation", self.checkpoint)
            .outputMode(mode)
            .trigger(**self.trigger)
            .start()
        )
        log.info("query started", query=name)
        return query


Tell: TypeAlias = Callable[[list[Outcome]], None]


class Run(Protocol):
    """A query, as the worker that keeps it running sees it."""

    @property
    def first(self) -> Spec:
        """The task of partition 0."""
        ...

    def enter(self, partition: int) -> Outcome:
        """Make sure that one task has a record, and return where it stands (D6)."""
        ...

    def leave(self, partition: int) -> Outcome:
        """Like `enter`, for a slot of this run that was cut off, so that no death is counted for it (Q1)."""
        ...

    def start(self, positions: Begins, tell: Tell) -> Any:
        """
        Start Spark's query.

        Args:
            positions: where the tasks stand; empty for a staged processor, whose slots have no positions.
            tell: gets the outcomes of slots, as far as this process hears them.
        """
        ...

    def positions(self, outcome: Outcome) -> Positions:
        """The status of a task, as people read it."""
        ...

    @property
    def positions_in_group(self) -> bool: ...

    @property
    def checkpoint_is_hint(self) -> bool:
        """Whether the records of the tasks say all that the query needs, so that it may begin a new checkpoint."""
        ...

    @property
    def reached(self) -> Mapping[TopicPartition, int]: ...


class DirectRun:
    """
    What all direct runs answer alike: their slots have positions, which are in the group, and a record says them.

    Args:
        job: the processor.
        settings: of the query.
        first: the task of partition 0.
    """

    def __init__(self, job: Job, settings: QuerySettings, first: Spec) -> None:
        self.first: Spec = first
        self._job = job
        self._settings = settings

    def positions(self, outcome: Outcome) -> Positions:
        """Where a slot stands in its inputs; empty if it has no record yet."""
        return tuple(
            Position(one.binding, one.topic, self._job.facts.topics[one.topic].topic_id, outcome.positions[one.topic])
            for one in self.first.inputs
            if one.topic in outcome.positions
        )

    @property
    def positions_in_group(self) -> bool:
        return True

    @property
    def checkpoint_is_hint(self) -> bool:
        return True

    @property
    def reached(self) -> Mapping[TopicPartition, int]:
        return {}


@runtime_checkable
class Replays(Protocol):
    """A run whose tasks take requests to replay errors; those of DataFrames do not."""

    def replay(self, partition: int, until: int) -> Outcome:
        """
        Deliver requests, if the spec of the tasks has a replay topic; no batch runs meanwhile (Y1).

        Args:
            partition: of the replay topic.
            until: the offset up to which there may be requests.
        """
        ...

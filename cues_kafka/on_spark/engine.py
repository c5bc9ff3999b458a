"""`Spark(...)`: where to run a graph's processors, as a value for `start`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from weakref import WeakValueDictionary

from cues_kafka.arguments import known_arguments
from cues_kafka.brokers.options import Kafka
from cues_kafka.errors import ConfigError
from cues_kafka.graph.dataframe import DataFrameProcessor
from cues_kafka.graph.declare import CommitPolicy
from cues_kafka.graph.definition import Graph
from cues_kafka.graph.processor import Processor
from cues_kafka.observe.log import get_logger
from cues_kafka.on_spark.databases import unreachable
from cues_kafka.on_spark.direct.frames import FrameRun
from cues_kafka.on_spark.direct.plain import PlainRun
from cues_kafka.on_spark.direct.work import Work
from cues_kafka.on_spark.letter_case import SETTING, ambiguous_inputs, case_counts
from cues_kafka.on_spark.query.files import has_jvm
from cues_kafka.on_spark.query.hold import BatchHold
from cues_kafka.on_spark.query.plans import call_function
from cues_kafka.on_spark.query.run import QuerySettings, Run
from cues_kafka.on_spark.query.slots import POLICY
from cues_kafka.on_spark.query.triggers import streaming_trigger
from cues_kafka.on_spark.query.worker import SparkWorker
from cues_kafka.on_spark.shipping import ship, ship_options
from cues_kafka.on_spark.staged.run import StagedRun
from cues_kafka.on_spark.verdict import planned_verdict, refusal, refused_settings, weak_settings
from cues_kafka.task.making.specs import Identity
from cues_kafka.task.workers import Job

log = get_logger("cues_kafka.spark")


@known_arguments(ConfigError)
@dataclass(frozen=True, slots=True)
class Spark:
    """
    Run plain processors (pipes, forks, sinks, joins, alts) and processors of DataFrames on Spark.

    Attributes:
        session: a `SparkSession`.
        checkpoint: a directory that Spark can write, below which each processor has its own.
        trigger: `"10 seconds"`: a micro-batch in this interval; `"available-now"`: deliver what is there now, then
            stop.
        max_offsets_per_trigger: limit of messages in one micro-batch of one processor, over all partitions.
        policy: when batches of steps are committed at the latest.

    Raises:
        ConfigError: a setting would break exactly-once.
    """

    session: Any = field(repr=False)
    checkpoint: str = field(kw_only=True)
    trigger: str = field(default="0 seconds", kw_only=True)
    max_offsets_per_trigger: int | None = field(default=None, kw_only=True)
    policy: CommitPolicy = field(default=POLICY, kw_only=True)

    def __post_init__(self) -> None:
        if not hasattr(self.session, "readStream"):
            raise ConfigError(f"Spark(...) needs a SparkSession, not {type(self.session).__name__}.")
        if not str(self.checkpoint).strip():
            raise ConfigError("Spark(checkpoint=...) needs a directory that driver and executors can write.")
        if self.max_offsets_per_trigger is not None and self.max_offsets_per_trigger < 1:
            raise ConfigError(
                f"max_offsets_per_trigger={self.max_offsets_per_trigger}: give at least 1, or leave it out."
            )
        streaming_trigger(self.trigger)

    @property
    def runtime(self) -> str:
        """The name in records and logs."""
        return "spark"

    def refuses(self, graph: Graph, processor: Processor | DataFrameProcessor) -> str:
        """Why Spark cannot run this processor, with the remedy; empty if it can."""
        return refusal(graph, processor)

    def check(self, graph: Graph, names: Sequence[str]) -> None:
        """
        Check the session before the cluster is read or changed.

        Raises:
            ConfigError: a setting of the session would break exactly-once, or it runs one of these processors already.
        """
        refusals, warnings = session_findings(self.session, graph, names)
        for warning in warnings:
            log.warning("spark setting", text=warning)
        if refusals:
            raise ConfigError("Spark cannot run this: " + "; ".join(refusals))

    def worker(self, job: Job) -> SparkWorker:
        """Make a worker, which is not started yet."""
        if not isinstance(job.options, Kafka):
            raise ConfigError("engine=Spark(...) needs Kafka(...): Spark's processes share no memory with this one.")
        ship(job.graph)
        options = ship_options(job.options)
        job = replace(job, options=options)
        settings = QuerySettings(
            session=self.session,
            checkpoint=checkpoint_of(self.checkpoint, job.graph.name, job.processor),
            trigger=streaming_trigger(self.trigger),
            limit=self.max_offsets_per_trigger,
            patience_s=2 * options.session_timeout_s,
            upstream=self._upstream(job.graph, job.processor),
            hold=BatchHold(lambda: job.held(job.processor)) if has_jvm(self.session) else None,
        )
        worker = SparkWorker(job, self._run(job, settings), settings)
        _workers[id(self.session), query_name(job.graph.name, job.processor)] = worker
        log.info("worker made", processor=job.processor)
        return worker

    def _run(self, job: Job, settings: QuerySettings) -> Run:
        if job.processor in job.graph.dataframes:
            return self._frames(job, settings)
        identity = Identity.of_process(self.runtime)
        work = Work(job.graph, job.processor, job.options, job.planned, job.facts, identity, self.policy)
        return PlainRun(job, work, settings)

    def _frames(self, job: Job, settings: QuerySettings) -> Run:
        """Make a direct run if the plan keeps the input's partitions apart, else a staged one."""
        assert isinstance(job.options, Kafka)
        processor, frames = job.graph.dataframes[job.processor], None
        if len(processor.inputs) == len(processor.outputs) == 1:
            [topic] = processor.read_topics
            begin = (0,) * job.facts.topics[topic].partitions
            frames = call_function(settings, job.options, job.graph, processor, {topic: begin})
            if planned_verdict(processor, frames).mode == "direct":
                return FrameRun(job, settings, self.policy)
        return StagedRun(job, settings, frames)

    def _upstream(self, graph: Graph, name: str) -> Callable[[], bool]:
        """Return a check: whether a worker runs in this session that feeds the processor and is not fed by it."""
        topology = graph.topology
        feeding = topology.transitive_dependencies(name) - topology.transitive_dependents(name)
        before = feeding & graph.all_processors.keys()
        keys = [(id(self.session), query_name(graph.name, other)) for other in before]
        return lambda: any((worker := _workers.get(key)) is not None and worker.running for key in keys)


_workers: WeakValueDictionary[tuple[int, str], SparkWorker] = WeakValueDictionary()
"""The newest worker of each query, by session. Spark does not show a query that is about to start."""


def query_name(graph: str, processor: str) -> str:
    """The name of a processor's streaming query, in Spark's progress and logs."""
    return f"{graph}.{processor}"


def checkpoint_of(directory: str, graph: str, processor: str) -> str:
    """The checkpoint of a processor's query: a directory of its own, because queries cannot share one."""
    return f"{str(directory).rstrip('/')}/{query_name(graph, processor)}"


# What Spark can run, and what it cannot. `refuses`, `explain` and the command line all ask here.


def session_findings(session: Any, graph: Graph, names: Sequence[str]) -> tuple[list[str], list[str]]:
    """
    What keeps a session from running processors exactly once, and settings that only make it slow.

    Args:
        session: a `SparkSession`.
        graph: the graph.
        names: of the processors.
    """
    settings = {str(name): str(value) for name, value in dict(session.conf.getAll).items()}
    queries = [query_name(graph.name, name) for name in names]
    running = {query.name for query in session.streams.active}
    running |= {name for name in queries if (found := _workers.get((id(session), name))) and found.running}
    refusals = refused_settings(settings) + [
        f"query {name!r} runs in this session already: two queries for one processor would fence each other. Stop it, "
        "or leave the processor out with only="
        for name in queries
        if name in running
    ]
    alike = [] if case_counts(settings.get(SETTING)) else ambiguous_inputs(graph, names)
    return [*refusals, *alike, *unreachable(graph, names, settings)], weak_settings(settings)

"""`Spark(...)`: where to run a graph's processors, as a value for `start`."""

from __future__ import annotations

import sys
import sysconfig
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark import cloudpickle

from cues_kafka.brokers.options import Kafka
from cues_kafka.errors import ConfigError
from cues_kafka.graph.definition import Graph, Processor
from cues_kafka.runtime.build import Identity
from cues_kafka.runtime.lane import CommitPolicy
from cues_kafka.runtime.spark.query import Settings, SparkWorker
from cues_kafka.runtime.spark.slot import POLICY
from cues_kafka.runtime.spark.work import Work
from cues_kafka.runtime.workers import Job

_AVAILABLE = "available-now"


@dataclass(frozen=True, slots=True)
class Spark:
    """
    Runs plain processors (pipes, forks, sinks) on Spark.

    Attributes:
        session: a `SparkSession`.
        checkpoint: a directory that Spark can write, below which each processor has its own.
        trigger: `"10 seconds"`: a micro-batch so often; `"available-now"`: what is there now, then stop.
        max_offsets_per_trigger: messages in one micro-batch of one processor at most, over all partitions.
        policy: when batches of steps are committed at the latest.

    Raises:
        ConfigError: a setting that exactly-once does not go with.
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
        """As records and logs call it."""
        return "spark"

    def refuses(self, graph: Graph, processor: Processor) -> str:
        """Why Spark cannot carry this processor, with what to do instead; empty: it can."""
        return refusal(graph, processor)

    def worker(self, job: Job) -> SparkWorker:
        """A worker that is not started yet."""
        if not isinstance(job.options, Kafka):
            raise ConfigError("engine=Spark(...) needs Kafka(...): Spark's processes share no memory with this one.")
        ship_modules()
        identity = Identity.of_process(self.runtime)
        work = Work(job.graph, job.processor, job.options, job.planned, job.facts, identity, self.policy)
        settings = Settings(
            session=self.session,
            checkpoint=f"{str(self.checkpoint).rstrip('/')}/{job.graph.name}.{job.processor}",
            trigger=streaming_trigger(self.trigger),
            limit=self.max_offsets_per_trigger,
            patience_s=2 * job.options.session_timeout_s,
        )
        return SparkWorker(job, work, settings)


def refusal(graph: Graph, processor: Processor) -> str:
    """Why Spark cannot carry a plain processor; empty: it can."""
    for present, what in (
        (processor.input_shape != "single", f"a {processor.kind} reads several inputs in step"),
        (bool(processor.state), "state= lives in a native worker"),
        (bool(processor.tailers or processor.appenders), "tailers= and appenders= live in a native worker"),
    ):
        if present:
            return f"{what}: run it natively (--only {processor.name})"
    del graph
    return ""


def streaming_trigger(text: str) -> dict[str, Any]:
    """
    Keyword arguments of Spark's `trigger` for ours.

    Raises:
        ConfigError: exactly-once does not go with it, or it is not known.
    """
    if text == _AVAILABLE:
        return {"availableNow": True}
    words = text.split()
    if len(words) == 2 and words[0].isdecimal():
        return {"processingTime": text}
    raise ConfigError(
        f"trigger={text!r} is not known here. Write '10 seconds' or 'available-now'; continuous and real-time triggers "
        "call no foreachBatch, so nothing could be committed with the positions."
    )


def ship_modules() -> None:
    """
    Let Spark's processes have the user's modules as they are here, by value: nobody need copy or zip them.

    A module counts as the user's when it lies in no place where packages are installed.
    """
    paths = sysconfig.get_paths()
    installed = [Path(paths[key]).resolve() for key in ("stdlib", "platstdlib", "purelib", "platlib")]
    ours = Path(__file__).resolve().parents[2]
    by_value: Any = cloudpickle  # its functions have no types
    known = by_value.list_registry_pickle_by_value()
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if file is None or name == "__main__" or name in known:
            continue
        path = Path(file).resolve()
        if not any(path.is_relative_to(place) for place in (*installed, ours)):
            by_value.register_pickle_by_value(module)

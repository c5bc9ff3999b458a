"""Write DataFrames whose plan has no shuffle into Kafka, exactly once (D1 to D4).

Each micro-batch is one job. Its Spark partitions are the input's partitions, so each of them commits its rows and its
place in one transaction. The driver knows which ranges the batch has, because Spark writes them into the checkpoint
before it calls. It publishes an empty attempt for ranges without rows.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import uuid4

from cues_kafka.brokers.options import Kafka
from cues_kafka.codecs.lookup import MadeFor, codec_for
from cues_kafka.graph.declare import CommitPolicy
from cues_kafka.on_spark.columns import key_column
from cues_kafka.on_spark.direct.frame_batch import FrameBatch
from cues_kafka.on_spark.direct.frame_slot import Range
from cues_kafka.on_spark.direct.frame_work import Frames
from cues_kafka.on_spark.query.outcome import Outcome
from cues_kafka.on_spark.query.plans import call_function
from cues_kafka.on_spark.query.run import DirectRun, QuerySettings, Tell
from cues_kafka.on_spark.query.slots import written
from cues_kafka.on_spark.source.ranges import Begins
from cues_kafka.on_spark.source.report import UndecodedReport
from cues_kafka.on_spark.undecoded import undecoded_of
from cues_kafka.ports.log import TopicPartition
from cues_kafka.task.making.specs import Identity
from cues_kafka.task.workers import Job


class FrameRun(DirectRun):
    """The run of a direct processor of DataFrames, whose function turns the streaming input into rows to write."""

    def __init__(self, job: Job, settings: QuerySettings, policy: CommitPolicy) -> None:
        """
        Args:
            job: the processor, which has one input and one output.
            settings: of the query.
            policy: when rows are committed at the latest.

        Raises:
            ConfigError: the output topic does not exist.
        """
        assert isinstance(job.options, Kafka)
        graph, processor = job.graph, job.graph.dataframes[job.processor]
        [(binding, source)], [(_, topic)] = processor.inputs, processor.outputs
        declared = graph.topic(topic)
        width = job.facts.topics[source].partitions
        marks = job.broker.watermarks([TopicPartition(source, p) for p in range(width)])
        identity = Identity.of_process("spark")
        undecoded = undecoded_of(
            graph, processor, identity, facts=job.facts, options=job.options, client_bytes=job.broker.max_bytes
        )
        self._work = Frames(
            job.options,
            graph.name,
            processor.name,
            source,
            width,
            tuple(job.planned.first_of(processor, place, mark) for place, mark in marks.items()),
            written(job.facts, topic, job.broker.max_bytes, provenance=declared.provenance),
            identity,
            policy=policy,
            codec=declared.value,
            key_field=key_column(codec_for(declared.value, MadeFor(topic, job.options)), declared.key),
            binding=binding,
            report=UndecodedReport(uuid4().hex, undecoded[source]),
        )
        super().__init__(job, settings, self._work.spec(0, "driver"))

    def enter(self, partition: int) -> Outcome:
        return self._work.slot(partition, -1, -1, 0).publish((), Range(-1, -1))

    def leave(self, partition: int) -> Outcome:
        """See `query.Run`; user code has no snapshots here."""
        return self.enter(partition)

    def start(self, positions: Begins, tell: Tell) -> Any:
        work, settings, graph = self._work, self._settings, self._job.graph
        processor = graph.dataframes[work.processor]
        [frame] = call_function(settings, work.options, graph, processor, positions, report=work.report).values()
        batch = FrameBatch(lambda _, __, query: replace(work, query=query), settings.checkpoint, tell)
        return settings.write(frame, f"{work.graph}.{work.processor}", batch, processor.output_mode)

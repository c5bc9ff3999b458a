"""What must hold before a query starts: its checkpoint, its group, its upstream, and what Spark's processes get."""

from __future__ import annotations

import threading

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from cues_kafka.codecs.lookup import MadeFor
from cues_kafka.core.events import Halt
from cues_kafka.errors import BrokerError
from cues_kafka.observe.log import get_logger
from cues_kafka.on_spark.query.checkpoint import repaired
from cues_kafka.on_spark.query.outcome import brief
from cues_kafka.on_spark.query.run import QuerySettings, Run
from cues_kafka.on_spark.shipping import packed, rehearse
from cues_kafka.ports.clock import Clock
from cues_kafka.task.workers import Job

log = get_logger("cues_kafka.spark")


class Conditions:
    """
    Those of one processor.

    Args:
        job: the processor.
        run: its query.
        settings: of the query.
        clock: time.
        stopping: set when the worker is asked to stop, so that no wait goes on.

    Attributes:
        rehearsed: Spark's processes can use what they get, so that is not looked at again.
    """

    def __init__(self, job: Job, run: Run, settings: QuerySettings, clock: Clock, stopping: threading.Event) -> None:
        self.rehearsed = False
        self._job, self._run, self._settings, self._clock, self._stopping = job, run, settings, clock, stopping

    def refused(self) -> Halt | None:
        """Why the query cannot start from its checkpoint, which begins again if it is a hint."""
        hint = self._run.checkpoint_is_hint
        return repaired(self._settings.session, self._settings.checkpoint, self._job.processor, hint=hint)

    def rehearse(self) -> None:
        """
        Check once that Spark's processes can use what they will get.

        Raises:
            NotShipped: they cannot; a later try would find the same.
        """
        if self.rehearsed:
            return
        graph, name, session = self._job.graph, self._job.processor, self._settings.session
        part = graph.processors.get(name) or graph.dataframes[name]
        topics = (*part.read_topics, *part.output_topics)
        codecs = [(graph.topic(topic).value, MadeFor(topic, self._job.options)) for topic in topics]
        data = packed(graph if name in graph.processors else None, codecs)
        try:
            rehearse(session, data, self._run.first.width, frames=name in graph.dataframes)
            self.rehearsed = True
        except (PySparkException, Py4JError) as error:  # for example, a process was killed; the first batch will tell
            log.info("not rehearsed", processor=name, error=brief(str(error)))

    def wait_for_the_group(self) -> None:
        """
        Wait for members of a killed worker, which live until their session ends.

        Raises:
            BrokerError: the group has other members.
        """
        group, name = self._run.first.group, self._job.processor
        deadline = self._clock.monotonic() + self._settings.patience_s
        while members := self._job.broker.members(group):
            if self._clock.monotonic() > deadline or self._stopping.wait(0.2):
                raise BrokerError(
                    f"group {group!r} has members {members}: native workers run {name!r}. Stop them, "
                    "or leave the processor out here with only=: it runs in one runtime at a time"
                )

    def wait_for_upstream(self) -> None:
        """Count outputs of the processors that feed this one as messages that are there now."""
        while self._settings.upstream() and not self._stopping.wait(0.1):
            pass

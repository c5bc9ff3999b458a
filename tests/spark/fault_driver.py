"""The program that tests of faults kill: a Spark session, and a graph on it.

What its functions and crash points do happens in Spark's Python workers; they tell the test through a named pipe, so
that not even a dead driver comes between.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from cues_kafka import Graph, Out
from cues_kafka.graph.declare import CommitPolicy
from cues_kafka.on_spark.direct.replay_slot import ReplaySlot
from cues_kafka.on_spark.direct.slot import Slot
from cues_kafka.on_spark.direct.work import Work
from cues_kafka.on_spark.query.worker import SparkWorker
from cues_kafka.spark import Spark
from cues_kafka.task.interpreter import Hook
from cues_kafka.task.workers import Job
from tests.fault.support import Setup, run_child
from tests.spark.connect_server import connect_session

PARTITIONS = 4
BAD, NIL = 7, 3
"""Of ten numbers: one becomes an error, one nothing."""

CONNECT = "connect:"

DEADLY = 1_000_000
"""The number whose delivery ends the process."""


def route(n: int) -> Iterator[Out]:
    """Fork: an error, nothing, one output or two."""
    if n == DEADLY:
        os.kill(os.getpid(), signal.SIGKILL)
    if n % 10 == BAD:
        raise ValueError(f"bad {n}")
    if n % 10 != NIL:
        yield Out("all", n)
        if n % 2 == 0:
            yield Out("even", n)


def graph(name: str, changes: Mapping[str, Any] | None = None) -> Graph:
    """
    One fork between topics of one test's own.

    Args:
        name: of the graph, and prefix of its topics.
        changes: `partitions`, `errors`, and settings of the processor. Quarantine is off where it is not asked for:
            many kills from outside may meet one message (I11).
    """
    outputs = {binding: f"{name}.{binding}" for binding in ("all", "even")}
    settings = {"outputs": outputs, "partitions": PARTITIONS, "quarantine_after": None, **(changes or {})}
    return Setup("", name).graph(route, **settings)


@dataclass(frozen=True, slots=True)
class Point:
    """
    A crash point of slots.

    Attributes:
        where: moment and effect, such as `before Commit`.
        nth: the slot's how-manieth pass.
        partition: of which slots; None: of any.
        action: `SIGSTOP`, in a session of its own, so that no process that dies takes it along; or `SIGKILL`.
        times: how often at all, over all slots.
        entering: of the driver's slots (D6), not of Spark's.
        replays: of slots that deliver requests to replay errors, not of those of batches.
        pipe: where to say so.
    """

    where: str
    nth: int
    partition: int | None
    action: str
    times: int
    entering: bool
    replays: bool
    pipe: str

    def hook(self, partition: int, attempt: str) -> Hook | None:
        """For one slot."""
        if (attempt == "driver") != self.entering or self.partition not in (None, partition):
            return None
        seen, here = 0, False

        def pass_by(moment: str, effect: str) -> None:
            nonlocal seen, here
            if here:
                tell(self.pipe, f"then {moment} {effect} of {partition}")
            seen += f"{moment} {effect}" == self.where
            if not here and seen == self.nth and self._mine():
                here = True
                self._act(partition)

        return pass_by

    def _mine(self) -> bool:
        """Whether fewer slots than `times` came here before."""
        for number in range(self.times):
            try:
                os.close(os.open(f"{self.pipe}.{number}", os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                continue
            return True
        return False

    def _act(self, partition: int) -> None:
        if self.action == "SIGSTOP" and os.getsid(0) != os.getpid():  # a driver leads its own
            os.setsid()
            subprocess.Popen([sys.executable, "-c", _UNTIL_THE_TEST_ENDS, self.pipe], start_new_session=True)
        tell(self.pipe, f"point: at {self.where} of {partition} pid {os.getpid()}")
        os.kill(os.getpid(), signal.Signals[self.action])


_UNTIL_THE_TEST_ENDS = """
import os, select, signal, sys
paused, end = os.getppid(), select.poll()
end.register(os.open(sys.argv[1], os.O_WRONLY), 0)
end.poll()
if os.getppid() == paused:
    os.kill(paused, signal.SIGKILL)
"""
"""A paused process that has left all sessions must not stay there when the test run is killed."""


def tell(pipe: str, text: str) -> None:
    """One line into a named pipe, which the test holds open."""
    pipe_fd = os.open(pipe, os.O_WRONLY)
    os.write(pipe_fd, f"{text}\n".encode())
    os.close(pipe_fd)


@dataclass(frozen=True, slots=True)
class PointedWork(Work):
    """Work whose slots have a crash point."""

    point: Point | None = None

    def slot(self, partition: int, attempt: str) -> Slot:
        """With the hook."""
        slot = Work.slot(self, partition, attempt)
        if self.point and not self.point.replays:
            self._hook(slot, partition, attempt)
        return slot

    def replay_slot(self, partition: int, attempt: str) -> ReplaySlot:
        """With the hook."""
        slot = Work.replay_slot(self, partition, attempt)
        if self.point and self.point.replays:
            self._hook(slot, partition, attempt)
        return slot

    def _hook(self, slot: Slot, partition: int, attempt: str) -> None:
        assert self.point
        interpreter = slot._lane.interpreter
        interpreter._world = replace(interpreter._world, hook=self.point.hook(partition, attempt))


@dataclass(frozen=True, slots=True)
class PointedSpark(Spark):
    """
    The engine, with crash points.

    Attributes:
        point: of slots.
        batches: the driver stops after the slots of this number of batches, before Spark notes the batch as done.
        pipe: where to say so.
    """

    point: Point | None = None
    batches: int | None = None
    pipe: str = ""

    def worker(self, job: Job) -> SparkWorker:
        """With points in its slots, and behind its batches."""
        worker = Spark.worker(self, job)
        if self.point:
            run: Any = worker._planned
            run._work = PointedWork(**{f.name: getattr(run._work, f.name) for f in fields(Work)}, point=self.point)
        if self.batches is not None:
            self._stop_after(worker, self.batches)
        return worker

    def _stop_after(self, worker: SparkWorker, batches: int) -> None:
        take, seen = worker._take_and_tell, 0

        def tell_and_stop(outcomes: Any) -> None:
            nonlocal seen
            seen += 1
            take(outcomes)
            if seen == batches:
                tell(self.pipe, f"point: behind batch {seen} pid {os.getpid()}")
                os.kill(os.getpid(), signal.SIGSTOP)

        worker._take_and_tell = tell_and_stop  # type: ignore[method-assign]


def session_of(setup: Mapping[str, Any]) -> SparkSession:
    """The session that a setup asks for; with `connect:` in front of its master one of Spark Connect."""
    if setup["master"].startswith(CONNECT):
        made: SparkSession = connect_session(setup["master"].removeprefix(CONNECT), setup["conf"])
        return made
    builder = SparkSession.builder.master(setup["master"]).appName("fault")
    for key, value in setup["conf"].items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def run_graph(setup: Mapping[str, Any], engine: Spark) -> int:
    """The graph on Spark, until told to stop."""
    return run_child({**setup, "policy": {}, "instance": None, "point": None}, engine)


def main(setup: Mapping[str, Any]) -> int:
    """The session, then the graph until told to stop."""
    session = session_of(setup)
    engine = PointedSpark(
        session,
        checkpoint=setup["checkpoint"],
        max_offsets_per_trigger=setup["limit"],
        policy=CommitPolicy(**setup["policy"]),
        point=Point(**setup["point"], pipe=setup["pipe"]) if setup["point"] else None,
        batches=setup["batches"],
        pipe=setup["pipe"],
    )
    return run_graph(setup, engine)


if __name__ == "__main__":
    sys.exit(main(json.loads(Path(sys.argv[1]).read_text())))

"""The handle of a graph that runs in this process."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from cues_kafka.client.client import Client
from cues_kafka.client.queries import Answer, Question, ask, has_passed, home_of, processor_with
from cues_kafka.errors import ConfigError, RetriableError, TaskElsewhere, TaskStopped
from cues_kafka.graph.definition import Graph
from cues_kafka.graph.names import quoted
from cues_kafka.observe.http import Endpoint
from cues_kafka.plan.plan import Plan
from cues_kafka.ports.broker import Broker
from cues_kafka.ports.log import Sent, TopicPartition
from cues_kafka.ports.observer import RunObserver
from cues_kafka.running.collector import Collector, TaskFacts
from cues_kafka.running.health import HealthLook
from cues_kafka.running.idleness import Idleness
from cues_kafka.running.status_writer import StatusWriter
from cues_kafka.task.calling.failures import ended_by
from cues_kafka.task.clock import SystemClock
from cues_kafka.task.heart import Loop
from cues_kafka.task.lane import Lane
from cues_kafka.task.making.patterns import PatternLook
from cues_kafka.task.making.run_facts import run_facts
from cues_kafka.task.making.system import System
from cues_kafka.task.status import Status
from cues_kafka.task.workers import Worker
from cues_kafka.workers.pauses import Pauses


class Running(Client):
    """
    A graph at work. `stop` it, or use it as a context manager: it stops on the way out, and abandons when the body
    raised.

    Attributes:
        graph: what runs.
        planned: what it is on the cluster.
    """

    def __init__(
        self,
        graph: Graph,
        broker: Broker,
        system: System,
        *,
        name: str,
        planned: Plan,
        cluster: Any = None,
        observers: Sequence[RunObserver] = (),
        runtime: str = "native",
        collector: Collector,
        endpoint: Endpoint | None = None,
    ) -> None:
        super().__init__(broker, graph, name=name, cluster=cluster)
        self.graph: Graph = graph
        self._collector = collector
        self._endpoint = endpoint
        self._told_here = runtime != "spark"
        self._health: HealthLook | None = None
        self.planned: Plan = planned
        self._system = system
        self._workers: list[Worker] = []
        self._news = threading.Condition()
        self._version = 0
        self._over = False
        self._pauses: Pauses | None = None  # None: nothing holds the tasks back
        self._status: StatusWriter | None = None
        self._patterns: PatternLook | None = None  # None: every source is one topic
        self._observers = observers
        self._told: list[RunObserver] = []  # that the run has begun
        self._facts_of = functools.partial(run_facts, graph, cluster=cluster, runtime=runtime)
        self._idleness = Idleness(broker, graph, lambda: self._workers)

    # Making it, see `start`.

    def changed(self) -> None:
        """Wake waiting threads: something about a task may have changed."""
        with self._news:
            self._version += 1
            self._news.notify_all()

    def look(self) -> None:
        """Have all workers look again at what they would see a moment later, such as a pause."""
        for worker in self._workers:
            worker.look()
        self.changed()

    def run(
        self,
        workers: Sequence[Worker],
        *,
        timeout_s: float | None,
        pauses: Pauses | None = None,
        status: StatusWriter | None = None,
        patterns: PatternLook | None = None,
    ) -> None:
        """
        Start the workers. With a time-out, wait until every task has a record, so that `latest` means now (R5).

        Raises:
            TaskStopped: a task refuses to start.
            TimeoutError: tasks were not ready in time.
        """
        for observer in self._observers:
            observer.began(self._facts_of([worker.name for worker in workers]))
            self._told.append(observer)
        self._workers, self._pauses, self._status = list(workers), pauses, status
        if pauses is not None:
            pauses.start()
        for worker in workers:
            worker.start()
        if status is not None:
            status.start()
        if self._endpoint is not None:
            self._health = HealthLook(
                self.graph.name, self._broker, SystemClock(), lambda: self._workers, self.collect, told=self._told_here
            )
            self._health.start()
            self._endpoint.begin(self._health)
        if timeout_s is not None:
            self._await(self._all_recorded, timeout_s, "ready")
        self._patterns = patterns
        if patterns is not None:
            patterns.start()

    def grow(self, graph: Graph, planned: Plan, workers: Sequence[Worker]) -> None:
        """Run the workers of topics that were not there at the start, beside the others."""
        self.graph = self._graph = self._access.graph = graph
        self.planned = planned
        self._workers.extend(workers)
        self._idleness.grow(graph)
        for worker in workers:
            worker.start()
        self.changed()

    # What users call.

    def wait_idle(self, *, timeout_s: float = 60.0) -> None:
        """
        Wait until every processor of this process has delivered everything in its inputs, and no open transaction
        writes to them. Tasks in other processes count, too. A message of a join that waits for its partner does not.
        Of feeds, those of this process are waited for: their sources are asked again from now on.
        At-most-once, a task in another process counts as soon as it has taken its messages: their outcomes may come a
        moment later.

        Raises:
            TaskStopped: a task stopped; the user's exception is its cause.
            TimeoutError: the time is over; the text has the status of the tasks.
        """
        self.look()
        self._await(self._idleness.reached, timeout_s, "idle")

    def wait(self) -> None:
        """
        Wait until the graph is stopped, or has ended by itself (Spark's `available-now`).

        Raises:
            TaskStopped: a task stopped.
        """
        self._await(lambda: self._over or self.finished, None, "stopped")

    @property
    def names(self) -> tuple[str, ...]:
        """The processors that run here."""
        return tuple(worker.name for worker in self._workers)

    @property
    def settled(self) -> bool:
        """Whether every task has its first record and has read its stores and tables, or stopped."""
        return all(self._recorded(worker, settled=True) for worker in self._workers)

    @property
    def finished(self) -> bool:
        """Whether every worker has ended by itself, because everything that was there at the start is delivered."""
        return bool(self._workers) and all(worker.over for worker in self._workers)

    def loops(self) -> list[Loop]:
        """The threads of this process that must not stand still."""
        return [loop for worker in self._workers if (loop := worker.loop) is not None]

    @property
    def failed(self) -> BaseException | None:
        """Why this process cannot go on, although it was not stopped. Stopped tasks are in `status`."""
        return next((worker.failed for worker in self._workers if worker.failed is not None), None)

    def status(self) -> Status:
        """The tasks of this process."""
        return Status(tuple(status for worker in self._workers for status in worker.status()))

    def collect(self) -> list[TaskFacts]:
        """Everything that is known of the tasks of this process now, for metrics and status pages; see `Collector`."""
        return self._collector.collect(self._workers)

    def query(
        self,
        processor: str,
        store: str,
        key: Any,
        *,
        partition: int | None = None,
        default: Any = None,
        after: Sent | None = None,
        timeout_s: float = 10.0,
    ) -> Answer:
        """
        Read the committed value of a key from a store of a task in this process.

        If an input declares `key=`, the answer is that of the task which gets messages with this key. Else all tasks of
        this process are asked.

        Args:
            processor: its name.
            store: the store's name.
            key: the key.
            partition: the task to ask, if the store has other keys than the messages.
            default: the value if there is no such entry.
            after: what `send` returned; the answer then has what came of this message.
            timeout_s: how long to wait for that, and for a task that reads its store from the changelog.

        Returns:
            The value, and up to where in the inputs it is true.

        Raises:
            TaskElsewhere: the task of the key is in another process.
            ConfigError: there is no such store or partition; or tasks have the key that do not own it.
            TaskStopped: a task stopped, and there is no answer yet.
            TimeoutError: the task has not read its store in time, or has not passed the message.
        """
        declared = processor_with(self.graph, processor, store)
        worker = self._worker_of(processor, store, partition)
        width = worker.first.width
        home = home_of(self._access, self.graph, declared, key, width) if partition is None else partition
        question = Question(processor, store, key, home, partition is not None)
        answers: list[Answer] = []

        def asked() -> bool:
            joined = worker.generation >= 0
            answer = ask(question, worker.lanes.copy(), width, default) if joined else None
            if answer is None or not has_passed(question, answer, after):
                return False
            answers.append(answer)
            return True

        if not asked():
            self._await(asked, timeout_s, f"restored and behind {after}" if after else "restored")
        return answers[0]

    def _worker_of(self, processor: str, store: str, partition: int | None) -> Worker:
        worker = next((one for one in self._workers if one.name == processor), None)
        if worker is None:
            raise TaskElsewhere(
                f"processor {processor!r} does not run in this process, which runs {quoted(self.names)}. Ask one that "
                f"runs it, or read the store through connect(...).table({processor!r}, {store!r})",
                processor=processor,
                partition=partition,
            )
        if partition is not None and not 0 <= partition < worker.first.width:
            raise ConfigError(
                f"query(partition={partition!r}): processor {processor!r} has partitions 0 to {worker.first.width - 1}"
            )
        return worker

    def stop(self) -> None:
        """Leave in order: transactions under way end, groups are left, `system=` is closed."""
        self._end(leave=True)

    def release(self) -> None:
        """Leave in order, but keep the places of static members for a successor that comes at once (A4)."""
        self._end(leave=False)

    def abandon(self, *, leave: bool = True) -> None:
        """
        Stop without waiting for transactions under way. They are dropped, and the next start recovers.

        The process lives on, so no death is counted for the messages that were being called (Q1).

        Args:
            leave: leave the group; else keep the places of static members for a successor (A4).
        """
        failures = self._failures()
        for lane in self._lanes():
            lane.revoke(0.0)
        self._end(leave=leave, failures=failures)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:  # type: ignore[override]
        if error is not None:
            self.abandon()
            return
        stopped = self._stopped()
        self.stop()
        if stopped:
            raise stopped

    # How.

    def _lanes(self) -> list[Lane]:
        return [lane for worker in self._workers for _, lane in sorted(worker.lanes.copy().items())]

    def _stopped(self) -> TaskStopped | None:
        return next((stopped for _, stopped in self._stops()), None)

    def _failures(self) -> dict[str, str]:
        """By processor, why it does not work now."""
        return {name: str(stopped) for name, stopped in self._stops()} if self._told else {}

    def _stops(self) -> Iterator[tuple[str, TaskStopped]]:
        for worker in self._workers:
            if worker.failed is not None:
                stopped = TaskStopped(f"the worker of {worker.name!r} failed: {ended_by(worker.failed)}")
                stopped.__cause__ = worker.failed
                yield worker.name, stopped
            for one in worker.stopped():
                stopped = TaskStopped(f"task {one.task} stopped: {one.halt}")
                stopped.__cause__ = one.cause
                yield worker.name, stopped

    def _await(self, done: object, timeout_s: float | None, what: str) -> None:
        """
        Check again when something changed, and at least every 50 ms, because other processes change the cluster too.
        Wait 20 ms between two checks: each one asks the cluster, and under load something changes with each batch.
        """
        assert callable(done)
        end = None if timeout_s is None else self._clock() + timeout_s
        while True:
            with self._news:
                version = self._version
            if stopped := self._stopped():
                raise stopped
            looked_s = time.monotonic()
            try:
                if done():
                    return
                unanswered = ""
            except RetriableError as error:
                # Leaders move and brokers restart. The tasks recover from that, so go on waiting for them.
                unanswered = f"\nthe cluster did not answer: {error}"
            if end is not None and self._clock() >= end:
                waits = "".join(
                    f"\n{one}" for one in (self._idleness.obstacles() if what == "idle" and not unanswered else ())
                )
                raise TimeoutError(f"not {what} after {timeout_s:g} s:\n{self.status()}{unanswered}{waits}")
            with self._news:
                if self._version == version:
                    self._news.wait(0.05)
            time.sleep(max(0.0, looked_s + 0.02 - time.monotonic()))

    def _clock(self) -> float:
        return self._workers[0].clock.monotonic() if self._workers else 0.0

    def _all_recorded(self) -> bool:
        return all(self._recorded(worker) for worker in self._workers)

    def _recorded(self, worker: Worker, *, settled: bool = False) -> bool:
        lanes = worker.lanes.copy().values()
        if settled and not lanes and worker.stopped():
            return True
        if worker.generation < 0:
            return False
        if not all(lane.restored or lane.stopped if settled else lane.ready for lane in lanes):
            return False
        if not worker.positions_in_group:
            return True
        spec = worker.first
        others = [TopicPartition(spec.backing, p) for p in range(spec.width) if p not in worker.lanes]
        return not others or all(marks.high > 0 for marks in self._broker.watermarks(others).values())

    def _end(self, *, leave: bool, failures: Mapping[str, str] | None = None) -> None:
        """Stop; `failures`: the run is abandoned, and this was wrong before."""
        if self._over:
            return
        self._over = True
        abandoned = failures is not None
        failures = self._failures() if failures is None else failures
        if self._patterns is not None:
            self._patterns.stop()
        if self._status is not None:
            self._status.stop()
        if self._health is not None:
            self._health.stop()
        if self._endpoint is not None:
            self._endpoint.close()
        for worker in self._workers:
            worker.stop(leave=leave)
        for worker in self._workers:
            worker.join()
        if self._pauses is not None:
            self._pauses.stop()
        for observer in self._told:
            observer.ended(failures, abandoned=abandoned)
        self.changed()
        self.close()
        self._system.close()
        self._broker.close()

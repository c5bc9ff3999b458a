"""The worker of a processor on Spark: one streaming query, which it starts again with back-off when it ends by itself.

The driver delivers nothing. Before a query starts it makes sure that no other process runs the processor, and enters
every slot once (D6). That ends the open transactions of a dead predecessor, and gives each task a record. Then Spark
plans micro-batches, and each batch is one job with a slot for each partition.

A task that stops fails its batch, after the other slots of the batch have delivered, because Spark has no other way to
keep the batch for later. The query is started again after a pause, Spark runs the same batch again, and the slots
deliver what is missing.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from cues_kafka.core.events import Halt
from cues_kafka.core.spec import Spec
from cues_kafka.errors import CuesError, TaskStopped
from cues_kafka.observe.log import get_logger
from cues_kafka.on_spark.lost import lost_in
from cues_kafka.on_spark.query.books import DriverBooks
from cues_kafka.on_spark.query.conditions import Conditions
from cues_kafka.on_spark.query.earlier import GivingWay
from cues_kafka.on_spark.query.entering import end_all, enter_all
from cues_kafka.on_spark.query.files import has_jvm
from cues_kafka.on_spark.query.offset_log import drop_unfinished
from cues_kafka.on_spark.query.outcome import STOPPED_MARK, Outcome, brief, outcome_of_row, passes, unstarted
from cues_kafka.on_spark.query.replays import BetweenBatches
from cues_kafka.on_spark.query.run import QuerySettings, Replays, Run
from cues_kafka.on_spark.shipping import NotShipped
from cues_kafka.on_spark.source.ranges import Begins
from cues_kafka.ports.clock import Clock
from cues_kafka.ports.log import TopicPartition
from cues_kafka.task.calling.failures import ended_by
from cues_kafka.task.clock import SystemClock
from cues_kafka.task.heart import Loop
from cues_kafka.task.lane import RESTART_FIRST_S, RESTART_MAX_S, Lane
from cues_kafka.task.status import TaskStatus
from cues_kafka.task.workers import Job, Stopped

log = get_logger("cues_kafka.spark")

BATCH_END_S: Final = 10.0
"""
How long a stop waits for the current micro-batch.

A slot that is killed inside its transaction leaves it open until the next start, or its time-out, and readers wait.
Only user code takes longer, and is cut off.
"""

MAX_UNSTARTED: Final = 5
"""How often in a row a Python process may start too slowly before that stops the processor: as often as a task recovers
(R7). On a machine under load some take longer than Spark waits."""

ASIDE_S: Final = 5.0
"""How often a driver that gave way looks whether the earlier one still writes (D7)."""

CONNECT: Final = "behind Spark Connect a pause does not reach the batches; stop the program that started the query"
"""Why a processor cannot be paused there, and what to do instead."""

_WAITS: Final = "Waiting for data to arrive"
"""Spark's message when a trigger has found no work."""

_NOT_EMPTY: Final = "STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY"


class SparkWorker:
    """
    See `workers.Worker`.

    Attributes:
        name: of the processor.
        clock: time.
        first: the task of partition 0.
        lanes: empty, because the tasks live in Spark's processes.
        failed: why the worker ended, although nothing stopped it.
    """

    def __init__(self, job: Job, run: Run, settings: QuerySettings, clock: Clock | None = None) -> None:
        clock = clock or SystemClock()
        self.name: str = job.processor
        self.clock: Clock = clock
        self.lanes: dict[int, Lane] = {}
        self.failed: BaseException | None = None
        self.first: Spec = run.first
        self._deaf = not has_jvm(settings.session)  # Spark Connect: the outcomes of slots stay on the server
        self._job = job
        self._planned = run
        self._settings = settings
        self._query: Any = None
        self._entered = self._done = self._cut_off = False
        self._unstarted = 0  # how often a Python process did not start in time, since something was delivered
        self._lock = threading.Lock()  # either `stop` finds `_query`, or `_once` finds `_stopping` and starts no query
        self._stopping = threading.Event()
        self._told = threading.Event()
        self._books = DriverBooks(self.name, run, job.broker, clock, job.changed)
        self._way = GivingWay(self.name, run.first, job.broker, clock, self._books)
        self._conditions = Conditions(job, run, settings, clock, self._stopping)
        self._thread = threading.Thread(target=self._run, name=f"{self.name}-spark", daemon=True)

    def start(self) -> None:
        """Begin in the background."""
        self._thread.start()

    def look(self) -> None:
        """Look again whether the processor is held back; at its inputs Spark looks by itself."""
        if self._settings.hold is not None:
            self._settings.hold.look()

    def stop(self, *, leave: bool) -> None:
        """Ask the query to stop after the current micro-batch, if that does not take too long."""
        del leave  # a slot is never a member
        with self._lock:
            self._stopping.set()
            query = self._query
        if self._settings.hold is not None:
            self._settings.hold.end()
        if query is not None:
            threading.Thread(target=self._end, args=(query,), name=f"{self.name}-end", daemon=True).start()

    def join(self) -> None:
        """Wait until the query is over."""
        self._thread.join()

    @property
    def running(self) -> bool:
        """Whether the worker has begun and not ended; its query may wait for its next start."""
        return self._thread.is_alive()

    @property
    def generation(self) -> int:
        """0 after every slot was entered and Spark's processes can use what they get, -1 before."""
        return 0 if self._entered else -1

    @property
    def query(self) -> Any:
        """Spark's `StreamingQuery`, for progress and ids; None between two runs."""
        return self._query

    def status(self) -> list[TaskStatus]:
        """Every task as its last slot left it, and the processor itself if it stopped as a whole."""
        if self._deaf and self._entered:
            self._books.look()
        state = "on spark" if self._query is not None else "starting"
        return self._books.status(state, self._held(), tallied=not self._deaf)

    def _held(self) -> dict[str, Any]:
        """What a status says of a pause."""
        hold = self._settings.hold
        if hold is None:
            return {"unpausable": CONNECT}
        resting = hold.resting  # before the reason: what rests may go on meanwhile, but then it is not held
        return {"held": hold.why, "resting": resting}

    def stopped(self) -> list[Stopped]:
        """Tasks that stopped, until the next query has gone on with them."""
        return list(self._books.stops)

    @property
    def positions_in_group(self) -> bool:
        return self._planned.positions_in_group

    @property
    def reached(self) -> Mapping[TopicPartition, int]:
        return self._planned.reached

    @property
    def busy(self) -> bool:
        """
        Whether Spark computes a batch.

        A batch without new messages (windows that close, timers) shows in no input.
        """
        query = self._query
        try:
            return not self._done and (query is None or query.status["message"] != _WAITS)
        except (Py4JError, OSError):  # the JVM may have ended; then `failed` says so in a moment
            return True

    @property
    def unreachable_s(self) -> float:
        """0: the query asks the cluster, not the worker."""
        return 0.0

    @property
    def over(self) -> bool:
        """Whether the query has delivered all messages (`available-now`), or was stopped."""
        return self._done

    @property
    def loop(self) -> Loop | None:
        """None: a batch may take as long as it takes, and Spark has time-outs of its own."""
        return None

    # The thread that keeps the query running.

    def _run(self) -> None:
        pause_s = RESTART_FIRST_S
        try:
            while not self._stopping.is_set():
                before = self._books.delivered
                try:
                    if self._once():
                        self._done = True
                        return
                    self._end_of_run()
                except (NotShipped, TaskStopped):
                    raise  # a later try would find the same
                except CuesError as error:
                    if self._ends_by_itself and not passes(error):
                        raise
                    halt = Halt("refused", str(error), "see the cause; tried again later")
                    self._books.note(Stopped(self.name, halt))
                except PySparkException as error:
                    self._read_failure(error)
                if self._stopping.wait(ASIDE_S if self._way.waits else pause_s):
                    return
                delivered = self._books.delivered > before
                pause_s = RESTART_FIRST_S if delivered else min(pause_s * 2, RESTART_MAX_S)
                self._unstarted = 0 if delivered else self._unstarted
        except BaseException as error:  # a worker without its thread must not look alive
            if not self._stopping.is_set():
                self.failed = lost_in(error, self._settings.session) or error
                log.error("worker failed", processor=self.name, error=ended_by(self.failed))
        finally:
            self._query = None
            if self._cut_off:
                self._tidy()
            self._job.changed()

    @property
    def _ends_by_itself(self) -> bool:
        """`available-now`: a program waits for the end, so it gets an error that no later try would change."""
        return "availableNow" in self._settings.trigger

    def _end_of_run(self) -> None:
        """
        Raise what stopped if the query does not wait for it to be fixed.

        Raises:
            TaskStopped: the query ends by itself, and tasks of it have stopped.
        """
        if self._ends_by_itself and self._books.stops:
            raise TaskStopped("; ".join(f"{one.task} stopped: {one.halt}" for one in self._books.stops))

    def _tidy(self) -> None:
        """End the transactions that cut-off slots left open, so that readers need not wait for their time-out (R1)."""
        try:
            if not self._job.broker.members(self.first.group):
                enter_all(self._planned.leave, self.first.width)
        except CuesError as error:
            log.warning("transactions may be open", processor=self.name, error=str(error))

    def _once(self) -> bool:
        """Run the query once; return whether it ended because all messages are delivered."""
        if not self._way.may_go_on():
            return False
        blind = self._deaf and self._planned.checkpoint_is_hint  # its checkpoint may be on the server alone
        if not blind and (halt := self._conditions.refused()):
            self._books.note(Stopped(self.name, halt))
            return False
        with ThreadPoolExecutor(1, thread_name_prefix=f"{self.name}-rehearse") as pool:
            rehearsal = None if self._deaf else pool.submit(self._conditions.rehearse)
            first = self._enter()
            if rehearsal is not None:
                rehearsal.result()
        if first is None:
            return False
        self._entered = True  # not before: a start would return, and hide what the rehearsal refuses
        if self._ends_by_itself:
            self._conditions.wait_for_upstream()
        with self._lock:
            if self._stopping.is_set():
                return True
            if not blind:
                drop_unfinished(self._settings.session, self._settings.checkpoint)  # before the start, which reads it
            query = self._query = self._planned.start(first, self._take_and_tell)
        self._job.changed()
        try:
            self._await(query)
        finally:
            self._query = None
            self._job.changed()
        return True

    def _await(self, query: Any) -> None:
        """Wait for the end of the query. Requests to replay errors are delivered meanwhile, between its batches."""
        hold, planned = self._settings.hold, self._planned
        if hold is None or not self.first.replay or not isinstance(planned, Replays):
            query.awaitTermination()
            return
        replays = BetweenBatches(
            *(planned.replay, self.first, self._job.broker, self.clock),
            hold=hold,
            tell=self._take_replayed,
            met=self._books.meet,
        )
        try:
            with replays:
                query.awaitTermination()
                while self._ends_by_itself and not self._stopping.is_set() and replays.turn():
                    pass
        finally:
            self._cut_off |= replays.under_way

    def _take_replayed(self, outcome: Outcome) -> None:
        """A slot has delivered requests; which tasks are stopped, the batches tell."""
        self._books.count_fences([outcome])
        self._books.keep(outcome, stands=not outcome.kind)
        self._job.changed()

    def _enter(self) -> Begins | None:
        """D6: make sure that no other process runs and every slot has a record; return where each stands, or None."""
        self._conditions.wait_for_the_group()
        if isinstance(self._planned, Replays) and not self._deaf:
            self._way.look()  # D7: only slots of plain processors tell what they found
        end_all(self._job.broker, self.first.graph, self.first.processor, self.first.width)
        found = enter_all(self._planned.enter, self.first.width)
        self._books.count_fences(found)
        self._books.take(found)
        if any(outcome.kind for outcome in found):
            return None
        return {topic: tuple(outcome.positions[topic] for outcome in found) for topic in found[0].positions}

    def _end(self, query: Any) -> None:
        deadline = self.clock.monotonic() + BATCH_END_S
        try:
            self._told.clear()  # before the look: a batch that ends from here on ends the wait
            while query.status["isTriggerActive"] and self.clock.monotonic() < deadline and not self._told.wait(0.1):
                pass
            self._cut_off = not self._told.is_set() and query.status["isTriggerActive"]
            query.stop()
        except (PySparkException, Py4JError, OSError) as error:  # Spark was ended from outside, and the query with it
            log.debug("query not stopped", processor=self.name, error=str(error))

    def _take_and_tell(self, outcomes: list[Outcome]) -> None:
        self._books.count_fences(outcomes)  # within the batch, on the thread by which Spark calls back
        self._books.take(outcomes)
        self._told.set()  # behind `_take`: `_end` may stop the query at once, and the outcomes must be known by then
        self._job.changed()
        self._way.meet(outcomes)

    def _read_failure(self, error: PySparkException) -> None:
        """
        Raise why a query ended; with Spark Connect the text has the stopped tasks.

        Raises:
            TaskStopped: see `_end_of_run`.
        """
        if self._stopping.is_set():
            return
        if self._way.waits:
            self._end_of_run()
            return
        if found := re.search(re.escape(STOPPED_MARK) + r"(\[.*?\])" + re.escape(STOPPED_MARK), str(error), re.DOTALL):
            stops = [outcome_of_row(row) for row in json.loads(found.group(1))]
            if self._deaf:
                self._books.count_fences(stops)
            self._books.take(stops)
            self._job.changed()
            self._end_of_run()
            return
        text, checkpoint = brief(str(error)), self._settings.checkpoint
        if unstarted(error) and self._unstarted < MAX_UNSTARTED:
            self._unstarted += 1
            log.warning("failed", processor=self.name, why=text, round=self._unstarted)
            return
        again = "start again" if self._ends_by_itself and not passes(error) else "the query is tried again by itself"
        remedy = f"fix the cause; {again}. --log-level debug shows all that Spark says"
        if _NOT_EMPTY in str(error):
            remedy = (
                f"stop this process, move {checkpoint} away, and start again: the records in Kafka say what is done, "
                "and refuse a new checkpoint where it would repeat or lose something"
            )
        self._books.note(Stopped(self.name, Halt("refused", f"the query ended: {text}", remedy)))
        if not passes(error):
            self._end_of_run()

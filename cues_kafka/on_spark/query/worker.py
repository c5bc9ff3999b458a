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
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from cues_kafka.codecs.lookup import MadeFor
from cues_kafka.core.events import Halt
from cues_kafka.core.records import Record, Totals
from cues_kafka.core.spec import Spec
from cues_kafka.errors import BrokerError, CodecError, CuesError, TaskStopped
from cues_kafka.observe.log import get_logger
from cues_kafka.on_spark.query.checkpoint import repaired
from cues_kafka.on_spark.query.earlier import QUIET_S, EarlierDriver, GaveWay
from cues_kafka.on_spark.query.entering import enter_all
from cues_kafka.on_spark.query.files import has_jvm
from cues_kafka.on_spark.query.jobs import AT_ONCE
from cues_kafka.on_spark.query.offset_log import drop_unfinished
from cues_kafka.on_spark.query.outcome import STOPPED_MARK, Outcome, brief, outcome_of_row, passes, unstarted
from cues_kafka.on_spark.query.replays import BetweenBatches
from cues_kafka.on_spark.query.run import QuerySettings, Replays, Run
from cues_kafka.on_spark.query.slots import standing
from cues_kafka.on_spark.shipping import NotShipped, packed, rehearse
from cues_kafka.on_spark.source.ranges import Begins
from cues_kafka.ports.clock import Clock
from cues_kafka.ports.log import TopicPartition
from cues_kafka.records.reading import newest_record
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

LOOK_S: Final = 2.0
"""How often the records of tasks are read at most, where no slot tells the driver where it stands."""

ASIDE_S: Final = 5.0
"""How often a driver that gave way looks whether the earlier one still writes (D7)."""

RIVAL_S: Final = 60.0
"""For how long the status names another process that runs a task too, after it was met last."""

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

    def __init__(self, job: Job, run: Run, settings: QuerySettings) -> None:
        self.name: str = job.processor
        self.clock: Clock = SystemClock()
        self.lanes: dict[int, Lane] = {}
        self.failed: BaseException | None = None
        self.first: Spec = run.first
        self._deaf = not has_jvm(settings.session)  # Spark Connect: the outcomes of slots stay on the server
        self._job = job
        self._planned = run
        self._settings = settings
        self._query: Any = None
        self._outcomes: dict[int, Outcome] = {}  # filled by several threads, a partition at a time; readers copy it
        self._stops: list[Stopped] = []
        self._fenced: Counter[int] = Counter()  # by partition, what slots have told
        self._rivals: dict[int, tuple[str, float]] = {}  # by partition: another process, and when it was met
        self._earlier: EarlierDriver | None = None
        self._gave_way: Stopped | None = None  # to an earlier driver
        self._entered = self._rehearsed = self._done = self._cut_off = False
        self._looked_s = float("-inf")
        self._unstarted = 0  # how often a Python process did not start in time, since something was delivered
        self._lock = threading.Lock()  # either `stop` finds `_query`, or `_once` finds `_stopping` and starts no query
        self._stopping = threading.Event()
        self._told = threading.Event()
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
            self._look()
        stopped = {one.task: one.halt for one in self._stops}
        state = "on spark" if self._query is not None else "starting"
        held = self._held()
        found = []
        for partition, outcome in sorted(self._outcomes.copy().items()):
            halt = stopped.get(outcome.task)
            found.append(
                TaskStatus(
                    outcome.task,
                    "stopped" if halt else state,
                    self._planned.positions(outcome),
                    outcome.totals,
                    halt.text if halt else "",
                    halt.remedy if halt else "",
                    fenced=self._fenced[partition],
                    tally=None if self._deaf else outcome.tally,
                    rival=self._rival(partition),
                    **held,
                )
            )
        told = {status.task for status in found}
        rest = {task: halt for task, halt in stopped.items() if task not in told}
        found += [TaskStatus(t, "stopped", (), Totals(), halt.text, halt.remedy, **held) for t, halt in rest.items()]
        return found

    def _held(self) -> dict[str, Any]:
        """What a status says of a pause."""
        hold = self._settings.hold
        if hold is None:
            return {"unpausable": CONNECT}
        resting = hold.resting  # before the reason: what rests may go on meanwhile, but then it is not held
        return {"held": hold.why, "resting": resting}

    def _rival(self, partition: int) -> str:
        name, met_s = self._rivals.get(partition, ("", 0.0))
        lately = name and self.clock.monotonic() - met_s < RIVAL_S
        return f"{name!r} runs this task too: stop one of the two" if lately else ""

    def _meet(self, partition: int, name: str) -> None:
        """Note that another process works on a task."""
        if not self._rival(partition):
            log.warning("two processes", task=replace(self.first, partition=partition).name, other=name)
        self._rivals[partition] = (name, self.clock.monotonic())
        self._job.changed()

    def _count_fences(self, outcomes: list[Outcome]) -> None:
        for outcome in outcomes:
            self._fenced[outcome.partition] += outcome.fenced or outcome.kind == "fenced"
            if outcome.rival:
                self._meet(outcome.partition, outcome.rival)

    def _look(self) -> None:
        """The status of tasks by their records, if no slot tells; not more often than `LOOK_S`, for it reads them."""
        now_s = self.clock.monotonic()
        if now_s - self._looked_s < LOOK_S:
            return
        self._looked_s = now_s
        for partition in range(self.first.width):
            spec = replace(self.first, partition=partition)
            try:
                self._outcomes[partition] = standing(spec, self._job.broker, self.clock)
            except BrokerError as error:
                log.info("record not looked at", task=spec.name, error=str(error))

    def stopped(self) -> list[Stopped]:
        """Tasks that stopped, until the next query has gone on with them."""
        return list(self._stops)

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
        return not self._done and (query is None or query.status["message"] != _WAITS)

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
                before = self._delivered()
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
                    self._note(Stopped(self.name, Halt("refused", str(error), "see the cause; tried again later")))
                except PySparkException as error:
                    self._read_failure(error)
                if self._stopping.wait(ASIDE_S if self._gave_way else pause_s):
                    return
                delivered = self._delivered() > before
                pause_s = RESTART_FIRST_S if delivered else min(pause_s * 2, RESTART_MAX_S)
                self._unstarted = 0 if delivered else self._unstarted
        except BaseException as error:  # a worker without its thread must not look alive
            if not self._stopping.is_set():
                self.failed = error
                log.error("worker failed", processor=self.name, error=ended_by(error))
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
        if self._ends_by_itself and self._stops:
            raise TaskStopped("; ".join(f"{one.task} stopped: {one.halt}" for one in self._stops))

    def _tidy(self) -> None:
        """End the transactions that cut-off slots left open, so that readers need not wait for their time-out (R1)."""
        try:
            if not self._job.broker.members(self.first.group):
                enter_all(self._planned.leave, self.first.width)
        except CuesError as error:
            log.warning("transactions may be open", processor=self.name, error=str(error))

    def _once(self) -> bool:
        """Run the query once; return whether it ended because all messages are delivered."""
        if self._gave_way and not self._may_go_on():
            return False
        if halt := self._checkpoint_refused():
            self._note(Stopped(self.name, halt))
            return False
        with ThreadPoolExecutor(1, thread_name_prefix=f"{self.name}-rehearse") as pool:
            rehearsal = pool.submit(self._rehearse)
            first = self._enter()
            rehearsal.result()
        if first is None:
            return False
        self._entered = True  # not before: a start would return, and hide what the rehearsal refuses
        if self._ends_by_itself:
            self._wait_for_upstream()
        with self._lock:
            if self._stopping.is_set():
                return True
            if not self._deaf:
                drop_unfinished(self._settings.session, self._settings.checkpoint)  # before the start, which reads it
            query = self._query = self._planned.start(first, self._take_and_tell)
        self._job.changed()
        try:
            self._await(query)
        finally:
            self._query = None
            self._job.changed()
        return True

    def _checkpoint_refused(self) -> Halt | None:
        """Why the query cannot start from its checkpoint, which begins again if it is a hint. Not on Connect."""
        settings, hint = self._settings, self._planned.checkpoint_is_hint
        return None if self._deaf else repaired(settings.session, settings.checkpoint, self.name, hint=hint)

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
            met=self._meet,
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
        self._count_fences([outcome])
        self._keep(outcome, stands=not outcome.kind)
        self._job.changed()

    def _rehearse(self) -> None:
        """Check once that Spark's processes can use what they will get; a later try would find the same."""
        if self._rehearsed or self._deaf:
            return
        graph, session = self._job.graph, self._settings.session
        part = graph.processors.get(self.name) or graph.dataframes[self.name]
        topics = (*part.read_topics, *part.output_topics)
        codecs = [(graph.topic(topic).value, MadeFor(topic, self._job.options)) for topic in topics]
        data = packed(graph if self.name in graph.processors else None, codecs)
        try:
            rehearse(session, data, self.first.width, frames=self.name in graph.dataframes)
            self._rehearsed = True
        except (PySparkException, Py4JError) as error:  # for example, a process was killed; the first batch will tell
            log.info("not rehearsed", processor=self.name, error=brief(str(error)))

    def _enter(self) -> Begins | None:
        """D6: make sure that no other process runs and every slot has a record; return where each stands, or None."""
        self._wait_for_the_group()
        self._look_for_earlier()
        found = enter_all(self._planned.enter, self.first.width)
        self._count_fences(found)
        self._take(found)
        if any(outcome.kind for outcome in found):
            return None
        return {topic: tuple(outcome.positions[topic] for outcome in found) for topic in found[0].positions}

    def _look_for_earlier(self) -> None:
        """D7: once, before any id is taken, see who has delivered so far. Only slots of plain processors tell later."""
        if self._earlier or self._deaf or not isinstance(self._planned, Replays):
            return

        def newest(partition: int) -> Record | None:
            with suppress(CodecError):  # a task that cannot read its record refuses, and says why
                return newest_record(replace(self.first, partition=partition), self._job.broker, self.clock)
            return None

        with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="look") as pool:
            self._earlier = EarlierDriver(self.clock, pool.map(newest, range(self.first.width)))

    def _wait_for_the_group(self) -> None:
        """Wait for members of a killed worker, which live until their session ends; name others."""
        deadline = self.clock.monotonic() + self._settings.patience_s
        while members := self._job.broker.members(self.first.group):
            if self.clock.monotonic() > deadline or self._stopping.wait(0.2):
                raise BrokerError(
                    f"group {self.first.group!r} has members {members}: native workers run {self.name!r}. Stop them, "
                    "or leave the processor out here with only=: it runs in one runtime at a time"
                )

    def _wait_for_upstream(self) -> None:
        """Count outputs of the processors that feed this one as messages that are there now."""
        while self._settings.upstream() and not self._stopping.wait(0.1):
            pass

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

    # Outcomes of slots.

    def _take_and_tell(self, outcomes: list[Outcome]) -> None:
        self._count_fences(outcomes)  # within the batch, on the thread by which Spark calls back
        self._take(outcomes)
        self._told.set()  # behind `_take`: `_end` may stop the query at once, and the outcomes must be known by then
        self._job.changed()
        if self._earlier and (other := self._earlier.meet(outcomes)):
            self._give_way(other)

    def _give_way(self, other: str) -> None:
        """
        Fail the batch, which is delivered, so that no slot of this driver is at work any more.

        Raises:
            GaveWay: always.
        """
        text = f"{other!r} runs this processor on Spark too, and started before this driver, which gives way"
        remedy = f"stop one of the two. Once {other!r} writes nothing for {QUIET_S:.0f} s, this one resumes by itself"
        self._gave_way = Stopped(self.name, Halt("claimed", text, remedy))
        self._note(self._gave_way)
        raise GaveWay(text)

    def _may_go_on(self) -> bool:
        """Whether the driver to which this one gave way is silent."""
        assert self._earlier
        backing = [TopicPartition(self.first.backing, p) for p in range(self.first.width)]
        quiet = self._earlier.is_quiet(self._job.broker.watermarks(backing))
        self._stops = [self._gave_way] if self._gave_way else []  # a look that failed has told why in its place
        if quiet:
            self._gave_way = None
        return quiet

    def _take(self, outcomes: list[Outcome]) -> None:
        for outcome in outcomes:
            self._keep(outcome, stands=bool(outcome.positions) or not outcome.kind)
        halts = [Stopped(o.task, Halt(o.kind, o.text, o.remedy)) for o in outcomes if o.kind]
        if halts or all(not outcome.kind for outcome in outcomes):
            self._stops = halts
        for one in halts:
            log.error("stopped", task=one.task, why=one.halt.text, remedy=one.halt.remedy)

    def _keep(self, outcome: Outcome, *, stands: bool) -> None:
        """Keep what a slot told, and where its task stands if the slot says so, in one: they are read together."""
        before = self._outcomes.get(outcome.partition)
        if stands:
            self._outcomes[outcome.partition] = outcome.behind(before)
        elif before is not None:
            self._outcomes[outcome.partition] = replace(before, tally=outcome.behind(before).tally)

    def _note(self, stopped: Stopped) -> None:
        self._stops = [stopped]
        log.error("stopped", processor=self.name, why=stopped.halt.text, remedy=stopped.halt.remedy)
        self._job.changed()

    def _read_failure(self, error: PySparkException) -> None:
        """
        Raise why a query ended; with Spark Connect the text has the stopped tasks.

        Raises:
            TaskStopped: see `_end_of_run`.
        """
        if self._stopping.is_set():
            return
        if self._gave_way:
            self._end_of_run()
            return
        if found := re.search(re.escape(STOPPED_MARK) + r"(\[.*?\])" + re.escape(STOPPED_MARK), str(error), re.DOTALL):
            stops = [outcome_of_row(row) for row in json.loads(found.group(1))]
            if self._deaf:
                self._count_fences(stops)
            self._take(stops)
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
        self._note(Stopped(self.name, Halt("refused", f"the query ended: {text}", remedy)))
        if not passes(error):
            self._end_of_run()

    def _delivered(self) -> int:
        return sum(outcome.totals.deliveries for outcome in self._outcomes.copy().values())

"""Tells other machines the state of the tasks of this process, on the graph's status topic.

A thread looks at the tasks twice a second, and less often if a look takes long. It writes what changed, and the rest
every few seconds, with an idempotent producer of its own. So no transaction and no message waits for it. If it cannot
write, it says so once in the log, and tries again.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

from cues_kafka.errors import BrokerError, RetriableError
from cues_kafka.observe.log import get_logger
from cues_kafka.observe.throttling import THROTTLING, Throttling
from cues_kafka.ports.broker import Broker
from cues_kafka.ports.clients import Sender
from cues_kafka.ports.clock import Clock
from cues_kafka.records.status import StatusRecord, TaskOwner, TaskState, encode_status
from cues_kafka.running.collector import TaskFacts
from cues_kafka.task.making.specs import Identity
from cues_kafka.task.status import RECOVERING, STARTING

log = get_logger("cues_kafka.status")

LOOK_S: Final = 0.5
"""How soon a change is told. A process that ends sooner opens no client for it."""

SHARE: Final = 0.01
"""The part of its thread's time that looking may take: a look at 256 tasks takes 10 ms, so they are looked at once a
second. But every task is told in its period."""

SEND_S: Final = 10.0
"""How long a record may take."""

END_S: Final = 2.0
"""The same at the end of a process, which does not wait longer for it."""

AGAIN_MAX_S: Final = 60.0
"""How long to wait at most before it is tried again after an error; the first wait is a period, and doubles."""

Collect: TypeAlias = Callable[[], Sequence[TaskFacts]]


def state_of(facts: TaskFacts) -> TaskState:
    """What a task does, in a word."""
    status = facts.status
    if status.stopped:
        return "stopped"
    if status.held:
        return "paused" if status.resting else "pausing"
    if status.state in STARTING:
        return "starting"
    if status.state in RECOVERING:
        return "recovering"
    return "working" if facts.rate or status.calling else "idle"


def owner_of_process(identity: Identity) -> TaskOwner:
    """This process, as the owner of tasks."""
    return TaskOwner(
        instance=identity.name,
        host=socket.gethostname(),
        pid=os.getpid(),
        runtime=identity.runtime,
        incarnation=identity.incarnation,
    )


def record_of(
    facts: TaskFacts, owner: TaskOwner, every_s: float, pause: str = "", throttled_s: float = 0.0
) -> StatusRecord:
    """
    What is told of a task.

    Args:
        facts: what its process knows of it.
        owner: the process.
        every_s: how often it tells.
        pause: the token of the pause that the task follows.
        throttled_s: what brokers held back of the process.
    """
    status, tally = facts.status, facts.tally
    totals = status.totals
    return StatusRecord(
        task=status.task,
        state=state_of(facts),
        owner=owner,
        every_s=every_s,
        positions=status.positions,
        place=status.place,
        totals={
            name: getattr(totals, name) for name in ("deliveries", "outputs", "errors", "nils", "messages", "dropped")
        },
        rate=round(facts.rate, 1),
        committed_s=round(tally.committed_s, 3),
        **{name: getattr(tally, name) for name in ("errors", "retries", "failures", "stops", "error")},
        error_s=round(tally.error_s, 3),
        stopped_s=round(tally.stopped_s, 3),
        **{name: getattr(status, name) for name in ("stopped", "remedy", "at", "hash", "held", "unpausable")},
        pause=pause,
        **{name: getattr(status, name) for name in ("calling", "silent", "rival", "lost", "lost_remedy")},
        silent_s=round(status.silent_s, 1),
        unreachable_s=round(status.unreachable_s, 1),
        throttled_s=round(throttled_s, 1),
        late=status.late,
        quarantined=tally.kinds.get("quarantine", 0),
    )


class StatusWriter:
    """
    Tells the state of the tasks of this process.

    Args:
        broker: the cluster.
        topic: the status topic.
        owner: this process.
        every_s: how often a task is told at least.
        clock: time.
        collect: the facts of the tasks.
        pause: the token of the pause of a processor; empty: none.
        throttling: counts what brokers hold back of the process.
    """

    def __init__(
        self,
        broker: Broker,
        topic: str,
        owner: TaskOwner,
        *,
        every_s: float,
        clock: Clock,
        collect: Collect,
        pause: Callable[[str], str] = lambda _: "",
        throttling: Throttling = THROTTLING,
    ) -> None:
        self._broker, self._topic, self._owner, self._every_s = broker, topic, owner, every_s
        self._clock, self._collect, self._pause, self._throttling = clock, collect, pause, throttling
        self._sender: Sender | None = None
        self._told: dict[str, tuple[StatusRecord, float]] = {}  # by task: the record, and when
        self._not_before_s = float("-inf")  # after an error
        self._again_s = 0.0
        self._refused = ""  # what the log has said
        self._wait_s = LOOK_S  # until the next look
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="status", daemon=True)

    def start(self) -> None:
        """Begin to tell."""
        self._thread.start()

    def stop(self) -> None:
        """Tell that the tasks are left, and end. It comes before the workers leave: their successors tell after it."""
        if self._thread.ident is None or self._ending.is_set():
            return
        self._ending.set()
        self._thread.join(END_S)

    def _run(self) -> None:
        try:
            while not self._ending.wait(self._wait_s):
                began_s = self._clock.monotonic()
                self.look()
                took_s = self._clock.monotonic() - began_s
                self._wait_s = min(max(LOOK_S, took_s / SHARE), max(LOOK_S, self._every_s / 2))
            self._leave()
        except Exception as error:  # noqa: BLE001 - the tasks go on; `cues-kafka status` shows since when nothing was heard
            log.error("status writer ended", topic=self._topic, error=f"{type(error).__name__}: {error}")
        finally:
            self._close()

    def look(self) -> None:
        """Tell what is due; for tests without the thread."""
        now_s = self._clock.monotonic()
        if now_s < self._not_before_s:
            return
        found = self._looked()
        due = [one for one in found if self._is_due(*one, now_s)]
        # A task that is gone belongs to another process now, which tells its own. A processor that had stopped as a
        # whole has no other process.
        over = [name for name in self._told.keys() - {facts.task for facts, _ in found} if "/" not in name]
        if due or over:
            throttled_s = self._throttling.recent_s
            records = [record_of(facts, self._owner, self._every_s, pause, throttled_s) for facts, pause in due]
            self._tell(records, now_s, SEND_S, over)

    def _looked(self) -> list[tuple[TaskFacts, str]]:
        """The tasks of now, and the pause of each: asked for first, so that a task that rests does so under it."""
        pauses = {name: self._pause(name) for name in self._processors}
        found = self._collect()
        self._processors = {one.processor for one in found}
        return [(one, pauses.get(one.processor, "")) for one in found]

    _processors: Iterable[str] = ()

    def _is_due(self, facts: TaskFacts, pause: str, now_s: float) -> bool:
        told, told_s = self._told.get(facts.task, (None, 0.0))
        return told is None or now_s - told_s >= self._every_s - self._wait_s / 2 or _changed(told, facts, pause)

    def _tell(self, records: Sequence[StatusRecord], now_s: float, timeout_s: float, over: Sequence[str] = ()) -> None:
        try:
            self._sender = self._sender or self._open()
            values = [(one.task, encode_status(one)) for one in records] + [(name, None) for name in over]
            self._sender.send(
                [(self._topic, 0, task.encode(), value, None, 0) for task, value in values], timeout_s=timeout_s
            )
        except BrokerError as error:
            self._close()
            self._again_s = min(max(self._every_s, self._again_s * 2), AGAIN_MAX_S)
            self._not_before_s = now_s + self._again_s
            if not self._refused:
                self._refused = str(error)
                log.warning("status not written", topic=self._topic, why=str(error), again="from time to time")
            return
        self._told.update({one.task: (one, now_s) for one in records})
        for name in over:
            del self._told[name]
        if self._refused:
            log.info("status written again", topic=self._topic)
        self._refused, self._again_s = "", 0.0

    def _open(self) -> Sender:
        """A producer; a topic that is missing, or another program's, is left alone."""
        found = self._broker.facts([self._topic]).topics.get(self._topic)
        if found is None:
            raise RetriableError(
                f"topic {self._topic!r} does not exist. `cues-kafka plan MODULE:GRAPH --apply` creates it. "
                "With status_every_s = 0 no status is written",
                code="UNKNOWN_TOPIC_OR_PART",
            )
        if (policy := found.config.get("cleanup.policy", "compact")) != "compact":
            raise RetriableError(
                f"topic {self._topic!r} has cleanup.policy={policy}, so it may be another program's. Set it to compact "
                "if it is not; with status_every_s = 0 no status is written",
                code="POLICY",
            )
        return self._broker.sender(f"{self._topic}.{self._owner.instance}")

    def _leave(self) -> None:
        """Tell that the tasks which still live here wait for another process."""
        here = {one.task for one in self._collect()}
        left = [replace(one, state="left", rate=0.0) for one, _ in self._told.values() if one.task in here]
        if left and not self._refused:
            self._tell(left, self._clock.monotonic(), END_S)

    def _close(self) -> None:
        sender, self._sender = self._sender, None
        if sender is not None:
            sender.close()


def _changed(told: StatusRecord, facts: TaskFacts, pause: str) -> bool:
    """Whether something is new that is worth a record at once; counts and positions wait for the period."""
    status = facts.status
    return (
        told.pause != pause
        or any(getattr(told, name) != getattr(status, name) for name in _AT_ONCE)
        or _busy(told.state) != _busy(state_of(facts))
    )


_AT_ONCE: Final = ("stopped", "remedy", "held", "unpausable", "at", "rival", "lost")


def _busy(state: TaskState) -> str:
    """The state; whether a task works or is idle changes with each message."""
    return "idle" if state == "working" else state

"""
When the workers of a process hold their tasks back: while an operator wants it, while a cut is taken, and while a reset
is not complete.

A thread follows the graph's control topic. A cut is right whether or not workers pause in time, since the tool that
takes it sees each task that moves meanwhile (X4). So a pause may end by its lease. A reset is another thing: between
tasks at the cut and others that are not there yet, messages would be lost or repeated. So workers also wait until they
have read the topic to its end. Then the successor of a worker that was killed while it was paused is paused, too.

Only a graph with cuts waits without end for a topic that is missing, or that it may not read. Another one works on: no
pause can be there, or none can be heard, and the log says so.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Final

from cues_kafka.errors import BrokerError, CodecError, RetriableError, UnreadableError
from cues_kafka.observe.log import get_logger
from cues_kafka.ports.broker import Broker
from cues_kafka.ports.clients import Reader
from cues_kafka.ports.clock import Clock
from cues_kafka.ports.log import TopicPartition
from cues_kafka.records.control import Control, Hold
from cues_kafka.records.unreadable import passed

log = get_logger("cues_kafka.control")

POLL_S: Final = 0.2
"""How long one fetch waits. `stop` waits for it."""

AGAIN_FIRST_S: Final = 0.5
AGAIN_MAX_S: Final = 30.0
"""How long to wait before the topic is read again after an error; the pause doubles."""


TAKE_BACK: Final = "if no one resets this graph, `cues-kafka resume MODULE:GRAPH --reset` takes it back"

MISSING: Final = "UNKNOWN_TOPIC_OR_PART"


class Pauses:
    """
    Says whether the tasks of a processor are held back, and why.

    Args:
        broker: the cluster.
        topic: the control topic.
        group: a group that the caller may describe; the reader does not join it or commit there.
        clock: time.
        changed: called when the answer may have changed.
        required: tasks must not work unless the topic is read: the graph has cuts.
    """

    def __init__(
        self,
        broker: Broker,
        topic: str,
        group: str,
        clock: Clock,
        changed: Callable[[], None],
        *,
        required: bool = True,
    ) -> None:
        self._broker, self._group, self._clock, self._changed = broker, group, clock, changed
        self._required = required
        self._place = TopicPartition(topic, 0)
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._reset: str | None = f"{topic} is not read to its end yet"
        self._paused: frozenset[str] = frozenset()
        self._until_s = 0.0
        self._why = ""
        self._holds: Mapping[str | None, Hold] = {}
        # As the topic says, for the log.
        self._held: tuple[str | None, frozenset[str], Mapping[str | None, Hold]] = (None, frozenset(), {})
        self._said = ""
        self._thread = threading.Thread(target=self._run, name="control", daemon=True)

    def start(self) -> None:
        """Begin to follow the topic."""
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join()

    def why(self, processor: str) -> str:
        """Why the tasks of a processor are held back now; empty: they are not."""
        with self._lock:
            if self._reset is not None:
                return self._reset
            if self._paused and self._clock.monotonic() >= self._until_s:
                log.warning("lease ended", was=self._why)
                self._paused = frozenset()
            hold = self._hold(processor)
            return self._why if processor in self._paused else str(hold) if hold else ""

    def token(self, processor: str) -> str:
        """The token of the operator's pause of a processor; empty: there is none."""
        with self._lock:
            hold = self._hold(processor)
            return hold.token if hold else ""

    def _hold(self, processor: str) -> Hold | None:
        """The hold of the whole graph comes first: who takes it back has all of it work."""
        return self._holds.get(None) or self._holds.get(processor)

    # The thread

    def _run(self) -> None:
        again_s = AGAIN_FIRST_S
        while not self._stopping.is_set():
            try:
                self._follow()
            except BrokerError as error:
                if self._works_without(error):
                    again_s = AGAIN_MAX_S
                elif str(error) != self._said:
                    log.warning("control topic not read", topic=self._place.topic, error=str(error), again_in_s=again_s)
                self._said = str(error)
                self._stopping.wait(again_s)
                again_s = min(again_s * 2, AGAIN_MAX_S)
            except BaseException as error:  # tasks must not go on as if nothing could hold them back
                with self._lock:
                    self._reset = f"the thread that follows {self._place.topic} ended: {error!r}"
                raise

    def _works_without(self, error: BrokerError) -> bool:
        """Whether the tasks work although the topic cannot be read; they keep to a pause that was heard before."""
        if self._required or not (error.forbidden or error.code == MISSING):
            return False
        with self._lock:
            waited, self._reset = self._reset is not None, None
        if waited:
            log.warning("pauses are not followed", topic=self._place.topic, why=str(error))
            self._changed()
        return True

    def _follow(self) -> None:
        topic = self._place.topic
        if topic not in self._broker.partitions([topic]):
            raise RetriableError(
                f"topic {topic!r} does not exist; `cues-kafka plan MODULE:GRAPH --apply` creates it", code=MISSING
            )
        marks = self._broker.watermarks([self._place])[self._place]
        control, due = Control(cuts=False), marks.low < marks.stable
        reader = self._broker.reader(self._group)
        try:
            reader.assign({self._place: marks.low})
            if not due:
                self._take(control, live=False)
            while not self._stopping.is_set():
                found, end = self._poll(reader, control)
                live, due = not due, due and end < marks.stable
                if found and not due:
                    self._take(control, live=live)
        finally:
            reader.close()

    def _poll(self, reader: Reader, control: Control) -> tuple[bool, int]:
        """One fetch: whether it brought something, and the offset behind it."""
        try:
            found, end = reader.poll(POLL_S), 0
        except UnreadableError as error:
            behind = passed(self._broker, error, "a control record", group=self._group)
            reader.unassign([self._place])
            reader.assign({self._place: behind})
            return True, behind
        for _, messages, eof in found:
            control.feed(messages)
            end = max(end, messages[-1].offset() + 1 if messages else 0, eof or 0)
        return bool(found), end

    def _take(self, control: Control, *, live: bool) -> None:
        """Hold back what the topic says now; `live`: what is new came while the topic was followed."""
        reset, paused, until_s, why = None, frozenset[str](), 0.0, ""
        holds = control.holds()
        if control.resetting:
            reset = _why_reset(control)
        if (found := control.pause()) is not None:
            pause, at_ms = found
            passed_s = 0.0 if live else max(0.0, self._clock.time() - at_ms / 1000)  # clocks may differ
            if passed_s < pause.lease_s:
                paused, until_s = frozenset(pause.processors), self._clock.monotonic() + pause.lease_s - passed_s
            why = f"paused by {pause.by}, which takes cut {pause.cut!r}"
        with self._lock:
            before, self._held = self._held, (reset, paused, holds)
            self._reset, self._paused, self._until_s, self._why = reset, paused, until_s, why
            self._holds, self._said = holds, ""
        if before != self._held:
            if reset or paused or holds:
                reasons = [reset or why, *(str(hold) for hold in holds.values())]
                said = "; ".join(reason for reason in reasons if reason)
                log.warning("held back", processors=_names(reset, paused, holds), why=said)
            else:
                log.warning("goes on", processors=_names(*before), why="no pause or reset holds them")
        self._changed()


def _why_reset(control: Control) -> str:
    """Why tasks wait for a reset; where its record cannot be read, the safe answer is that one is not complete."""
    try:
        under_way = control.reset()
    except CodecError as error:
        return f"{error}. Tasks wait, because it may not be complete; {TAKE_BACK}"
    assert under_way is not None
    return (
        f"the reset to cut {under_way.cut!r} by {under_way.by} is not complete: tasks wait until the same command has "
        f"moved the rest of them; {TAKE_BACK}"
    )


def _names(reset: str | None, paused: frozenset[str], holds: Mapping[str | None, Hold]) -> list[str]:
    """The processors that are held back, for the log; `all`: the whole graph."""
    return sorted({*paused, *(name or "all" for name in holds), *(("all",) if reset else ())})

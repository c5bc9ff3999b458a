"""D7: of two drivers that deliver the messages of one plain processor, the one that started later gives way.

Before a driver takes any id, it looks at the newest record of each task. A driver that wrote one of them started
earlier. It may be dead, because a restart looks the same, so this driver begins. But if slots of the earlier driver go
on writing beside those of this one, it lives, and this one stops.

Never do both give way. A driver writes nothing before its look, so if each had seen a record of the other one, each
look would have ended before the other one. If neither has seen one, because no message came, neither gives way.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import Final

from cues_kafka.core.events import Halt
from cues_kafka.core.records import Record
from cues_kafka.core.spec import Spec
from cues_kafka.errors import CodecError, CuesError
from cues_kafka.on_spark.query.books import DriverBooks
from cues_kafka.on_spark.query.jobs import AT_ONCE
from cues_kafka.on_spark.query.outcome import Outcome
from cues_kafka.on_spark.query.slots import FENCED_S
from cues_kafka.ports.broker import Broker
from cues_kafka.ports.clock import Clock
from cues_kafka.ports.facts import Watermarks
from cues_kafka.ports.log import TopicPartition
from cues_kafka.records.reading import newest_record
from cues_kafka.task.workers import Stopped

MEETINGS: Final = 3
"""How many slots of the earlier driver must have written records of one task: a Python worker that outlives its driver
writes those of one slot."""

MEETINGS_S: Final = 120.0
"""How long ago the first of them must have been found: in a roll-out the earlier driver is stopped when this one is
ready."""

QUIET_S: Final = 2 * FENCED_S
"""When nothing was written for so long, the earlier driver is gone. A batch of it that this one had fenced fails after
`FENCED_S`, and then its query starts again."""

APART_S: Final = 120.0
"""How far apart two of them may be found: what is found later may be the last record of a driver that was stopped."""


class GaveWay(CuesError):
    """Ends a query behind a batch that is delivered: another driver delivers the next ones."""


class EarlierDriver:
    """Finds a driver that started earlier than this one and delivers the same messages."""

    def __init__(self, clock: Clock, newest: Iterable[Record | None]) -> None:
        """
        Args:
            clock: time.
            newest: the newest records of all tasks, read before this driver took any id.
        """
        self._clock = clock
        self._before = {one.writer.incarnation for one in newest if one and one.writer.runtime == "spark"}
        self._runs = {_run_of(slot) for slot in self._before}
        self._met: dict[tuple[int, str], dict[str, float]] = {}  # by task and run: its slots, and when each was found
        self._ends: Mapping[TopicPartition, Watermarks] = {}
        self._changed_s = 0.0

    def meet(self, outcomes: Iterable[Outcome]) -> str:
        """The name of the earlier driver, if what the slots of a batch have found shows that it delivers; else ''."""
        now_s = self._clock.monotonic()
        for one in outcomes:
            run = _run_of(one.found)
            if run not in self._runs or one.found in self._before:
                continue
            met = self._met.setdefault((one.partition, run), {})
            if met and now_s - max(met.values()) > APART_S:
                met.clear()
            met.setdefault(one.found, now_s)
            if len(met) >= MEETINGS and now_s - min(met.values()) >= MEETINGS_S:
                return one.found_name
        return ""

    def is_quiet(self, ends: Mapping[TopicPartition, Watermarks]) -> bool:
        """
        Whether nothing was written for `QUIET_S`, so that this driver may go on. It writes nothing meanwhile.

        Args:
            ends: of the backing topic now.
        """
        now_s = self._clock.monotonic()
        if ends != self._ends:
            self._ends, self._changed_s = ends, now_s
            return False
        if now_s - self._changed_s < QUIET_S:
            return False
        self._met.clear()
        return True


class GivingWay:
    """
    Stops the query of a driver that has met an earlier one, until that one is silent.

    Args:
        name: of the processor.
        first: the task of partition 0.
        broker: has the records of the tasks.
        clock: time.
        books: of this driver.

    """

    def __init__(self, name: str, first: Spec, broker: Broker, clock: Clock, books: DriverBooks) -> None:
        self._name, self._first, self._broker, self._clock, self._books = name, first, broker, clock, books
        self._earlier: EarlierDriver | None = None
        self._stopped: Stopped | None = None

    @property
    def waits(self) -> bool:
        """Whether the query is stopped for the earlier driver."""
        return self._stopped is not None

    def look(self) -> None:
        """Once, before any id is taken, see which driver has delivered so far."""
        if self._earlier:
            return

        def newest(partition: int) -> Record | None:
            with suppress(CodecError):  # a task that cannot read its record refuses, and says why
                return newest_record(replace(self._first, partition=partition), self._broker, self._clock)
            return None

        with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="look") as pool:
            self._earlier = EarlierDriver(self._clock, pool.map(newest, range(self._first.width)))

    def meet(self, outcomes: list[Outcome]) -> None:
        """
        Look whether the earlier driver still delivers.

        Raises:
            GaveWay: it does. That fails the batch, which is delivered, so that no slot of this driver is at work.
        """
        other = self._earlier.meet(outcomes) if self._earlier else ""
        if not other:
            return
        text = f"{other!r} runs this processor on Spark too, and started before this driver, which gives way"
        remedy = f"stop one of the two. Once {other!r} writes nothing for {QUIET_S:.0f} s, this one resumes by itself"
        self._stopped = Stopped(self._name, Halt("claimed", text, remedy))
        self._books.note(self._stopped)
        raise GaveWay(text)

    def may_go_on(self) -> bool:
        """Whether the query may start: it was not stopped here, or the earlier driver is silent by now."""
        if self._earlier is None or self._stopped is None:
            return True
        backing = [TopicPartition(self._first.backing, p) for p in range(self._first.width)]
        quiet = self._earlier.is_quiet(self._broker.watermarks(backing))
        self._books.stops = [self._stopped]  # a look that failed has told why in its place
        if quiet:
            self._stopped = None
        return quiet


def _run_of(incarnation: str) -> str:
    """The run of a driver that a slot belongs to."""
    return incarnation.rpartition(".")[0]

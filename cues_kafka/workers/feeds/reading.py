"""Fills the batches of a feed's task: reads its part of the source, and encodes what it gives.

Its messages come from a source, not from partitions. Nothing is announced before
it is read (G3): it reads, encodes, and reports `Called` with the place behind the last row. While a commit is under
way it reads ahead (P7). If the commit fails, a recovery voids what was read, and reading goes on from the place of the
newest record.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

from cues_kafka.core import events as on
from cues_kafka.core.events import Halt
from cues_kafka.core.task import Task
from cues_kafka.errors import Fenced, Interrupt, RecoveryError, RetriableError
from cues_kafka.graph.feed import Feed, LatePlace, ReplayableSource, called_if_there
from cues_kafka.observe.log import get_logger
from cues_kafka.ports.log import Positions
from cues_kafka.task.calling.batch import Batch
from cues_kafka.task.calling.failures import location, show
from cues_kafka.task.calling.outputs import Now
from cues_kafka.task.calling.pairing import Buffer
from cues_kafka.task.desk import Desk
from cues_kafka.task.filling import Filling
from cues_kafka.task.parts.participant import CallContext
from cues_kafka.workers.feeds.rows import Into, RowBatch

log = get_logger("cues_kafka.task")

ASK_FIRST_S = 0.1
ASK_MAX_S = 10.0
"""A source that does not answer is asked again after the first pause, which doubles up to the second one."""

PLACE_LIMIT = 200_000
"""Characters of a place. It is in each record of the task, which has at most 256,000 bytes."""


class SourcePlace(Buffer):
    """
    How far a source was read since the last recovery. It takes the place of what other tasks fetch.

    Attributes:
        at: the place behind the last row that was read; None: the beginning.
        told: the place up to which the source was told that everything is committed.
        look_at_s: when the source is asked next.
        ended: whether it had nothing more when it was asked last.
        failures: how often it did not answer since it last did.
        since_s: when it began not to answer.
        why: why it does not answer; empty: it does.
    """

    def __init__(self, positions: Positions, at: str | None) -> None:
        super().__init__("single", positions)
        self.at = at
        self.told: str | None = None
        self.look_at_s = 0.0
        self.ended = False
        self.failures = 0
        self.since_s = 0.0
        self.why = ""


class Feeding:
    """
    What the lanes of one feed share, in the place of a `Caller`.

    Attributes:
        feed: the declaration.
        source: what is read.
        into: where it goes.
    """

    def __init__(self, feed: Feed, into: Into) -> None:
        self.feed = feed
        self.source: ReplayableSource = feed.source
        if opens := called_if_there(feed.source, "open"):
            self.source = opens()
        self.into = into
        self.processor = feed

    @property
    def most(self) -> int:
        """Rows of one batch at most, if the source says so."""
        return int(getattr(self.source, "most", sys.maxsize))

    @property
    def prompt(self) -> bool:
        """Whether the source is to be told of each commit at once."""
        return bool(getattr(self.source, "prompt", False))

    @property
    def batch_bytes(self) -> int | None:
        return self.into.batch_bytes

    def context_of(self, _: Any) -> CallContext:
        """Nothing besides its rows."""
        return CallContext({})

    def place(self, steps: Any, index: int) -> str:
        """What a call that takes long is about: the place behind which the source is asked."""
        return self.into.show(str(steps[index])) if steps[index] else "the beginning of the source"

    def under_way(self, steps: Any, ended: int) -> int:
        """One look at the source is one call."""
        return 0

    def release(self, part: int) -> None:
        """Another process may read this part from now on."""
        if part < self.feed.parts and (releases := called_if_there(self.source, "release")):
            releases(part)

    def close(self) -> None:
        """No task is left."""
        if closes := called_if_there(self.source, "close"):
            closes()


class FeedReading(Filling):
    """
    Fills the batches of one task of a feed.

    Attributes:
        feeding: what the tasks of the feed share.
        hurried: whether to ask the source at once: it has news, or may have. Any thread sets it.
    """

    def __init__(self, desk: Desk, feeding: Feeding) -> None:
        super().__init__(desk)
        self.feeding = feeding
        self.hurried = False

    @property
    def place(self) -> SourcePlace | None:
        """How far the source was read; None before the first recovery."""
        buffer = self.desk.buffer
        return buffer if isinstance(buffer, SourcePlace) else None

    def new_buffer(self, positions: Positions) -> Buffer:
        record = self.desk.task.record
        return SourcePlace(positions, record.place or None if record else None)

    def fill(self, task: Task, buffer: Buffer, *, once: bool) -> int:
        """Read what is there, up to the policy's limits or for one chunk; gives how many rows were read."""
        assert isinstance(buffer, SourcePlace)
        if self.hurried:
            self.hurried, buffer.look_at_s = False, 0.0
        if self.desk.clock.monotonic() < buffer.look_at_s and not self.awaits(buffer):
            return 0
        with self.desk.lock:
            if self.desk.buffer is not buffer:
                return 0
            batch = self.desk.batch
        if batch is None:
            clock, spec, context = self.desk.clock, self.desk.spec, self.desk.context
            batch = RowBatch(spec, task.next_sequence, {}, context, now=clock.monotonic, today=Now(clock.time))
        assert isinstance(batch, RowBatch)
        room = min(self.desk.limit, self.feeding.most) - batch.deliveries
        if batch.halt or room <= 0 or batch.size >= self.desk.policy.max_bytes:
            return 0
        before = batch.deliveries
        if self.desk.spec.partition >= self.feeding.feed.parts:
            batch.halt = self._no_such_part()
        else:
            self._read(batch, buffer, min(room, READ_AHEAD) if once else room)
        with self.desk.lock:
            if self.desk.buffer is buffer and (batch.deliveries or batch.halt):
                self.desk.batch = batch
        if (
            self.desk.interpreter.gate.closed
        ):  # the task is given up, and the source may have connected behind its release
            self.feeding.release(self.desk.spec.partition)
        return batch.deliveries - before

    def _read(self, batch: RowBatch, place: SourcePlace, most: int) -> None:
        """Read up to `most` rows."""
        self.desk.interpreter.point("before", "Call")
        self.desk.calling = [place.at], batch, batch.deliveries
        try:
            self.tell_committed(place)
            left = self._add(self.feeding.source.read(self.desk.spec.partition, place.at, most), batch, place, most)
            place.ended = left and not batch.halt
            place.look_at_s = self.desk.clock.monotonic() + self.feeding.feed.poll_seconds if place.ended else 0.0
            if batch.halt is None:
                self._answers(place)
        except (OSError, RetriableError) as error:
            if not self.desk.interpreter.gate.closed:  # else the task is given up, which may have ended the connection
                self._does_not_answer(place, error)
        except RecoveryError as error:
            batch.halt, batch.cause = Halt("refused", str(error), error.remedy or REMEDY), error
        except (Interrupt, Fenced) as error:
            batch.halt, batch.cause = Halt("interrupt", show(error), "it was asked for"), error
        except Exception as error:  # noqa: BLE001 - it is shown, and the task stops
            where = f" at {at}" if (at := location(error)) else ""
            behind = self.feeding.into.show(str(place.at)) if place.at else "its beginning"
            text = f"the source raised behind {behind}: {show(error)}{where}"
            batch.halt, batch.cause = Halt("unhandled", text, "fix the source; the task is retried"), error
        finally:
            self.desk.calling = None
        self.desk.interpreter.point("after", "Call")

    def _add(self, rows: Iterable[tuple[Any, str]], batch: RowBatch, place: SourcePlace, most: int) -> bool:
        """Add rows to the batch; whether the source had no more."""
        deadline, into = batch.began_s + self.desk.policy.max_seconds, self.feeding.into
        most_bytes, gate, now = self.desk.policy.max_bytes, self.desk.interpreter.gate, self.desk.clock.monotonic
        for taken, (message, at) in enumerate(rows, 1):
            if not (isinstance(at, LatePlace) or (type(at) is str and 0 < len(at) <= PLACE_LIMIT)):
                shown = f"one of {len(at)} characters" if isinstance(at, str) and at else repr(at)
                text = f"the source gave {shown} as a place; a place is a text of 1 to {PLACE_LIMIT:,} characters"
                batch.halt = Halt("refused", text, "fix the source; the task is retried")
                return False
            if place.why:
                self._answers(place)
            if not into.add(message, at, batch):
                return False
            place.at = at
            if taken >= most or batch.size >= most_bytes or gate.closed or now() >= deadline:
                return False
        return True

    def tell_committed(self, place: SourcePlace) -> None:
        """Tell the source what it may drop."""
        record = self.desk.task.record
        if record is None or not record.place or record.place == place.told:
            return
        if tells := called_if_there(self.feeding.source, "committed"):
            tells(self.desk.spec.partition, record.place)
        place.told = record.place

    def awaits(self, place: SourcePlace) -> bool:
        """Whether the source waits for a commit that it was not told of, such as a broker for acknowledgements."""
        record = self.desk.task.record
        return self.feeding.prompt and not place.why and bool(record and record.place and record.place != place.told)

    def _answers(self, place: SourcePlace) -> None:
        if place.why:
            after_s = round(self.desk.clock.monotonic() - place.since_s, 3)
            log.info("source answers again", task=self.desk.spec.name, after_s=after_s)
        place.failures, place.why = 0, ""
        self.desk.interpreter.tell_recovered()

    def _does_not_answer(self, place: SourcePlace, error: BaseException) -> None:
        """Ask again after a pause. What was read before stays read."""
        now = self.desk.clock.monotonic()
        if not place.why:
            place.since_s = now
        place.why, place.ended = show(error), False
        pause_s = min(ASK_FIRST_S * 2.0 ** min(place.failures, 32), ASK_MAX_S)
        place.failures += 1
        place.look_at_s = now + pause_s
        log.warning("source does not answer", task=self.desk.spec.name, why=place.why, again_in_s=pause_s)

    def _no_such_part(self) -> Halt:
        return Halt(
            "refused",
            f"the source has {self.feeding.feed.parts} parts, none for this task: {self.desk.spec.backing!r} was given "
            "more partitions",
            "give the feed a new name; partitions cannot be taken away",
        )

    def close(self, _: Task, batch: Batch) -> on.Event | None:
        """Make the event that commits an open batch."""
        assert isinstance(batch, RowBatch)
        self.desk.closed, self.desk.closed_s = batch, self.desk.clock.monotonic()
        batch.seal()
        batch.place = str(batch.place)  # of a `LatePlace`, the one text of a batch that is made
        return on.Called((), batch.totals, batch.halt, batch.place)


READ_AHEAD = 500
"""Rows that are read at once while a commit is under way."""

REMEDY = "see docs/feeds.md; the task is retried"

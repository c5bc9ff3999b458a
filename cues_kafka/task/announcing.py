"""What comes next of a task, and its announcement in a snapshot before user code sees it (P2)."""

from __future__ import annotations

from cues_kafka.core import events as on
from cues_kafka.core.task import Task
from cues_kafka.observe.log import get_logger
from cues_kafka.task.calling.pairing import Buffer, Cut, OutOfOrder
from cues_kafka.task.desk import Desk
from cues_kafka.task.parts.source import StepSource

log = get_logger("cues_kafka.task")

CHUNK_S = 0.01
"""How long a chunk of calls takes, about. Between chunks the lane checks the clock and the gate; other tasks work."""


class Announcing:
    """
    Says what comes next. All methods are the calling thread's, but for `wake_at_s`.

    Attributes:
        sources: what begins steps beside messages.
    """

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self.sources = tuple(part for part in desk.context.parts if isinstance(part, StepSource))

    def wake_at_s(self) -> float | None:
        """When something is due that no message brings."""
        desk = self._desk
        if not self.sources or desk.buffer is None or desk.interpreter.gate.closed:
            return None
        wakes = [at_s for source in self.sources if (at_s := source.wake_at_s(desk.task)) is not None]
        return min(wakes, default=None)

    def of(self, announced: object) -> StepSource | None:
        """Whose steps these are; None: messages began them."""
        return next((source for source in self.sources if source.is_mine(announced)), None)  # type: ignore[arg-type]

    def next_source(self, task: Task, buffer: Buffer) -> StepSource | None:
        """What has a batch of its own that comes next, unless other steps come before the next message anyway (F2)."""
        desk = self._desk
        if not self.sources or desk.batch is not None or desk.retrying is not None:
            return None
        found = next((source for source in self.sources if source.comes_next(task, buffer)), None)
        if found is None or any(source.is_due() for source in self.sources):
            return None
        return found

    def polled(self, task: Task, buffer: Buffer) -> on.Event | None:
        """Announce steps (P2): none is decoded, filtered or shown to user code before its snapshot is committed."""
        for source in self.sources:
            if source.is_mine(task.due) if task.due else source.is_due():
                return source.announce(self._desk, task, buffer)
        if task.due:
            cut = self._cut_again(task, buffer)
        else:
            cut = self.next_cut(task, buffer, 1 if task.step_by_step else self.worth_announcing())
        if not isinstance(cut, Cut):
            return cut
        if not cut.steps:
            return self.idled(task, buffer, self._desk.clock.monotonic())
        if not self._desk.put(buffer, cut):
            return None
        return on.Polled(cut.ends, len(cut.steps), cut.choice, tail_ends=self._desk.ends(task))

    def _cut_again(self, task: Task, buffer: Buffer) -> Cut | on.Event | None:
        """The messages that a snapshot has announced; else what happened to them; None: they are still to come."""
        due, spec = task.due, self._desk.spec
        assert due is not None
        if not buffer.holds(due.ends):
            return None
        try:
            cut = buffer.cut_exactly(due.ends, due.choice)
        except OutOfOrder as error:
            return self._gone(str(error))
        gone = due.steps - len(cut.steps)
        if gone < 0 or (gone and not spec.compacted):
            # A snapshot named messages that are not there: read again, and then stop.
            ends = ", ".join(f"{p.topic}/{spec.partition} at {p.offset}" for p in due.ends)
            return self._gone(
                f"{len(cut.steps)} of the {due.steps} steps up to {ends} are there; compaction may have taken the "
                "other messages"
            )
        if gone:
            log.warning("superseded", task=spec.name, steps=gone, left=len(cut.steps))
        return cut if cut.steps else on.Idle(due.ends)

    def _gone(self, text: str) -> on.Event:
        """The event for announced messages that are gone, although the topic is not declared compacted."""
        return self._desk.fail(
            text,
            "stop the workers, and go on without what is gone: "
            f"`cues-kafka accept-loss MODULE:GRAPH {self._desk.spec.processor}`",
        )

    def next_cut(self, task: Task, buffer: Buffer, limit: int) -> Cut:
        """Take the next messages."""
        if task.choice:
            return buffer.cut_chosen(limit, task.choice, task.careful_until)
        return buffer.cut(limit)

    def worth_announcing(self) -> int:
        """
        The number of steps that a snapshot announces.

        The order of alts with effects is fixed until all of it is delivered. So it is no longer than one batch at the
        present pace: else an input would wait behind all of another one's messages.
        """
        return self._desk.limit if self._desk.spec.pairing != "alts" else self.at_this_pace()

    def at_this_pace(self) -> int:
        """The number of steps that one batch has at the present pace."""
        desk = self._desk
        return min(desk.limit, max(1, int(desk.chunk * desk.policy.max_seconds / CHUNK_S)))

    def idled(self, task: Task, buffer: Buffer, now_s: float) -> on.Event | None:
        """The event for a position that has moved over markers only for so long that it is committed (P1)."""
        desk = self._desk
        if desk.at.idle:
            again = [at_s for part in desk.at.idle if (at_s := part.idle(now_s)) is not None]
            desk.ask_at_s = min(again, default=None)
        if now_s - desk.committed_at_s < desk.policy.idle_seconds or buffer.ready or not buffer.at_end:
            return None
        desk.committed_at_s = now_s
        positions = buffer.positions
        return on.Idle(positions) if positions != task.positions else None

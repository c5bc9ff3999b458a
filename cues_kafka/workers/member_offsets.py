"""Offsets that a member of the group commits without a transaction, for tasks at-least-once (W5, W6)."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping

from cues_kafka.errors import RetriableError
from cues_kafka.observe.log import get_logger
from cues_kafka.ports.clients import Member
from cues_kafka.ports.log import TopicPartition

log = get_logger("cues_kafka.worker")

ANSWER_S = 30.0
"""How long a start waits for the group's answer. Longer than a coordinator's fail-over, as the session's init."""


class MemberOffsets:
    """
    What the tasks of a worker want their member to commit.

    Tasks ask on any thread; the poller, which owns the member (A2), sends what was asked and hears the answers.

    Attributes:
        member: the worker's.
    """

    member: Member

    def __init__(self, *, waits: bool) -> None:
        """
        Args:
            waits: another thread is the poller's; else the one that asks owns the member too.
        """
        self._waits = waits
        self._wanted: dict[TopicPartition, int] = {}
        self._starts: list[tuple[dict[TopicPartition, int], Callable[[str], None]]] = []
        self._asked: set[queue.SimpleQueue[str]] = set()
        self._lock = threading.Lock()

    def commit(self, offsets: Mapping[TopicPartition, int], wait: bool) -> None:
        """
        Have the member commit these offsets soon.

        Args:
            offsets: the next ones.
            wait: for the answer, which only a start needs (W6).

        Raises:
            RetriableError: the group refuses them, does not answer, or the partition is taken away meanwhile.
        """
        if not wait:
            with self._lock:
                self._wanted |= offsets
            if not self._waits:
                self.send()
            return
        answer: queue.SimpleQueue[str] = queue.SimpleQueue()
        with self._lock:
            self._starts.append((dict(offsets), answer.put))
            self._asked.add(answer)
        if not self._waits:
            self.send()
        try:
            why = answer.get(timeout=ANSWER_S)
        except queue.Empty:
            why = f"no answer within {ANSWER_S:g} s"
        finally:
            with self._lock:
                self._asked.discard(answer)
        if why:
            raise RetriableError(f"committing the offsets of a start: {why}")

    def send(self) -> None:
        """Hand over to the member what was asked since the last call; on its thread."""
        if not self._wanted and not self._starts:
            return
        with self._lock:
            wanted, self._wanted = self._wanted, {}
            starts, self._starts = self._starts, []
        for offsets, done in starts:
            self.member.commit(offsets, done)
        if wanted:
            self.member.commit(wanted, _tell)

    def refuse(self, why: str) -> None:
        """Let no task wait any longer for an answer: it is given up, or asks again."""
        with self._lock:
            for answer in self._asked:
                answer.put(why)


def _tell(why: str) -> None:
    """The record decides; these offsets are for tools that show the lag."""
    if why:
        log.info("offsets not committed", why=why)

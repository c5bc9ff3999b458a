"""Processes that read a queue of the fake queue manager one after another, and Kafka's side of their feed."""

from __future__ import annotations

import threading
import time
from collections import Counter
from random import Random

from cues_kafka import IbmMq
from cues_kafka.bridges.acked import Acked
from tests.unit.bridges.ibmmq.manager import Manager

URL = "mq://app:geheim@mq.internal:1414/QM1?channel=APP.SVRCONN"
QUEUE = "ORDERS"
WAIT_S = 10.0


class Reader:
    """One process with a feed, from the newest place on."""

    def __init__(self, prefetch: int = 4, place: str | None = None) -> None:
        self.source: Acked = IbmMq(URL).queue(QUEUE, prefetch=prefetch).open()
        self.news = threading.Event()
        self.source.notify(self.news.set)
        self.at = place
        if place is not None:
            self.source.committed(0, place)

    def read(self, many: int) -> list[bytes]:
        """What is there now, at most this number."""
        found: list[bytes] = []
        for message, place in self.source.read(0, self.at, many):
            found.append(bytes(message.value))
            self.at = place
            if len(found) == many:
                break
        return found

    def take(self, many: int) -> list[bytes]:
        """This number of messages, which take a moment to arrive."""
        found: list[bytes] = []
        until = time.monotonic() + WAIT_S
        while len(found) < many:
            self.news.clear()
            found += self.read(many - len(found))
            if len(found) < many:
                assert time.monotonic() < until, f"only {found} of {many} came"
                self.news.wait(0.05)
        return found

    def committed(self) -> None:
        """Kafka has what was read."""
        assert self.at is not None
        self.source.committed(0, self.at)


class World:
    """Random things happen; then all is healed, and each message must be in Kafka once and in the queue no more."""

    STEPS = (
        *("publish", "publish", "urgent"),
        *["read"] * 5,
        *["commit"] * 3,
        *("suspect", "abort", "die", "move", "cut", "restart", "refuse", "refuse", "deaf"),
    )

    def __init__(self, manager: Manager, seed: int) -> None:
        self.random, self.manager = Random(seed), manager
        self.prefetch = self.random.choice((1, 2, 3, 5))
        manager.by_priority = False
        self.published = 0
        self.topic: list[bytes] = []
        self.place: str | None = None
        self.batch: list[bytes] = []
        self.former: list[Reader] = []
        self.trace: list[str] = []
        self.reader = Reader(self.prefetch)

    def publish(self) -> None:
        """Messages come."""
        for _ in range(self.random.randint(1, 3)):
            self.manager.put(QUEUE, b"%d" % self.published)
            self.published += 1

    def urgent(self) -> None:
        """One with another priority, in a queue that keeps the order of arrival."""
        self.manager.put(QUEUE, b"%d" % self.published, Priority=9)
        self.published += 1

    def read(self) -> None:
        """The lane reads what fits into its batch."""
        room = self.reader.source.most - len(self.batch)
        if room > 0:
            self.reader.news.clear()
            try:
                self.batch += self.reader.read(room)
            except (OSError, RuntimeError):
                return
            except Exception as error:
                if type(error).__name__ not in ("MqWaits", "MqRefused"):
                    raise
                return
            self.reader.news.wait(0.003)

    def commit(self) -> None:
        """Messages and place, at once; then the source is told."""
        if self.batch:
            self.topic += self.batch
            self.place, self.batch = self.reader.at, []
            self.tell()

    def tell(self) -> None:
        """The acknowledgement may fail."""
        try:
            self.reader.committed()
        except OSError:
            return

    def suspect(self) -> None:
        """A commit whose answer is lost."""
        if self.random.random() < 0.5 and self.batch:
            self.topic += self.batch
            self.place = self.reader.at
        self.abort()

    def abort(self) -> None:
        """The transaction is discarded; the process goes on from the newest record."""
        self.batch, self.reader.at = [], self.place
        if self.place is not None:
            self.tell()

    def die(self) -> None:
        """The process dies: its connection ends without a word."""
        self.manager.drop()
        self.reader, self.batch = Reader(self.prefetch, self.place), []

    def move(self) -> None:
        """The task goes to another process."""
        self.reader.source.release(0)
        self.former.append(self.reader)
        self.reader, self.batch = Reader(self.prefetch, self.place), []

    def cut(self) -> None:
        """The connection is lost."""
        self.manager.drop()

    def restart(self) -> None:
        """The queue manager restarts."""
        self.manager.restart()

    def refuse(self) -> None:
        """A call fails, and is not done."""
        verb, reason = self.random.choice((("MQCMIT", 2003), ("MQCMIT", 2009), ("MQGET", 2009), ("MQOPEN", 2161)))
        self.manager.refusals[verb] = [reason]

    def deaf(self) -> None:
        """A call is done, and its answer is lost."""
        self.manager.unanswered[self.random.choice(("MQCMIT", "MQGET"))] = 1

    def run(self, steps: int = 40) -> str:
        """Let things happen, then heal; gives what is wrong, empty: nothing."""
        for _ in range(steps):
            step = self.random.choice(self.STEPS)
            self.trace.append(step)
            getattr(self, step)()
        until = time.monotonic() + 1.0
        while time.monotonic() < until and self.manager.left(QUEUE):
            self.read()
            self.commit()
        for one in (*self.former, self.reader):
            one.source.close()
        return self.wrong()

    def wrong(self) -> str:
        """Loss, duplicate or standstill."""
        counts = Counter(self.topic)
        if twice := sorted(one for one, times in counts.items() if times > 1):
            return f"duplicate: {twice}"
        left = self.manager.bodies(QUEUE)
        if missing := [one for one in (b"%d" % n for n in range(self.published)) if one not in counts]:
            return f"{'standstill' if set(missing) <= set(left) else 'loss'}: {missing}"
        return f"never committed: {left}" if left else ""

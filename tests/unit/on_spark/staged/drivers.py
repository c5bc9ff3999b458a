"""Drivers of staged batches on the reference broker, without Spark: they die, sleep, and run side by side."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pyarrow as pa

from cues_kafka import Kafka
from cues_kafka.codecs.error_messages import error_messages
from cues_kafka.core.staged import Role
from cues_kafka.on_spark.staged.part_slot import PartSlot
from cues_kafka.on_spark.staged.publish import StagedWork
from cues_kafka.on_spark.staged.target import FrameTarget
from cues_kafka.on_spark.staged.topics import StagedTarget
from cues_kafka.ports.broker import Broker
from cues_kafka.records.scanning import read_all
from cues_kafka.task.calling.outputs import Output
from cues_kafka.task.clock import SystemClock
from cues_kafka.task.making.specs import Identity

ROWS = 5
"""Of a batch; one more does not fit."""


class Died(BaseException):
    """The process is gone."""


class Life:
    """
    What one driver does, counted; it dies at a place.

    Attributes:
        seen: everything that it has done so far.
        at: which of these is its last, `before` or `after` it was done; None: it lives.
    """

    def __init__(self, at: tuple[str, int] | None = None) -> None:
        self.seen: list[str] = []
        self.at = at
        self.dead = False
        self.gate: Callable[[], None] = lambda: None

    def through(self, what: str, do: Callable[[], Any]) -> Any:
        """Do something with the target."""
        self.pass_by("before", what)
        found = do()
        self.pass_by("after", what)
        return found

    def pass_by(self, moment: str, what: str) -> None:
        """Before and behind each thing."""
        if moment == "before":
            self.gate()
            self.seen.append(what)
        self.dead = self.dead or (moment, len(self.seen)) == self.at
        if self.dead:
            raise Died(what)


class Clock(SystemClock):
    """Time that a driver passes by waiting for others."""

    def __init__(self, life: Life) -> None:
        self._life = life
        self._slept_s = 0.0

    def monotonic(self) -> float:
        """See `Clock`."""
        return super().monotonic() + self._slept_s

    def sleep(self, seconds: float) -> None:
        """See `Clock`."""
        self._slept_s += seconds
        self._life.pass_by("before", "wait")


@dataclass(frozen=True, slots=True)
class MortalWork(StagedWork):
    """The work of a driver that dies."""

    world: Any = None
    life: Any = None

    @property
    def broker(self) -> Broker:
        """The reference broker."""
        broker: Broker = self.world.broker
        return broker

    def slot(self, part: int, role: Role, who: str) -> PartSlot:
        """With the places at which it dies."""

        def pass_by(moment: str, effect: str) -> None:
            if effect == "Commit":
                self.life.pass_by(moment, f"{effect} {type(role).__name__}")

        return PartSlot(self.spec(part, role, who), broker=self.broker, clock=Clock(self.life), hook=pass_by)


def parallelize(groups: list[list[int]], _: int) -> Any:
    """Spark's tasks, one after the other."""
    return SimpleNamespace(flatMap=lambda publish: SimpleNamespace(collect=lambda: [*chain(*map(publish, groups))]))


class Frame:
    """A DataFrame whose function is called here; its rows name the computation, and one of them does not fit."""

    sparkSession: Any = SimpleNamespace(  # noqa: N815 - Spark's name
        conf=SimpleNamespace(get=lambda *_: "1"),
        sparkContext=SimpleNamespace(defaultParallelism=1, parallelize=parallelize),
    )

    def mapInArrow(self, pack: Any, _: str) -> Any:  # noqa: N802 - Spark's name
        """One Spark task."""
        values = [*map(str, range(ROWS)), "bad"]
        rows = pa.RecordBatch.from_pydict({"attempt": [uuid4().hex] * len(values), "n": values})
        return SimpleNamespace(toArrow=lambda: pa.Table.from_batches(list(pack([rows]))))


def mortal_work(into: FrameTarget, world: Any, life: Life) -> MortalWork:
    """What the slots of a driver do that writes to a target."""
    return MortalWork(
        options=Kafka("localhost:1"),
        graph="g",
        processor="frames",
        parts=1,
        target=StagedTarget((), Output("g.errors", 2, 1_000_000)),
        codecs=(),
        key_fields=(),
        stateless=False,
        identity=Identity.of_process("spark"),
        query="first",
        into=into,
        world=world,
        life=life,
    )


def errors_of(world: Any) -> list[str]:
    """Of rows that did not fit."""
    return [error_messages().decode(one.value() or b"").text for one in read_all(world.broker, "g.errors", 2)]


class Turns:
    """Several drivers in threads, one of which takes a step at a time."""

    def __init__(self, count: int) -> None:
        self._news = threading.Condition()
        self._turn: int | None = None
        self._waiting: set[int] = set()
        self.running = set(range(count))

    def gate(self, who: int) -> None:
        """A driver waits for its turn."""
        with self._news:
            self._waiting.add(who)
            self._news.notify_all()
            assert self._news.wait_for(lambda: self._turn == who, 60)
            self._turn = None
            self._waiting.discard(who)

    def over(self, who: int) -> None:
        """A driver has ended."""
        with self._news:
            self.running.discard(who)
            self._news.notify_all()

    def grant(self, choose: Callable[[list[int]], int]) -> None:
        """One more step of one of them, once all stand still."""
        with self._news:
            assert self._news.wait_for(lambda: self._turn is None and self.running <= self._waiting, 60)
            if self.running:
                self._turn = choose(sorted(self.running))
                self._news.notify_all()

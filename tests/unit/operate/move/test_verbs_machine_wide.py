"""
Verbs that move places, in random orders, over several partitions: after each one, what is sent and open is right.

`test_verbs_machine` has a store, which no task may take back; here a pipe goes back and forth, loses messages to
retention, changes its strategy and its name, and takes its places from a group of another program.
"""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from cues_kafka import Graph, Json, Message, Processor, Source, Topic
from cues_kafka.errors import BrokerError
from cues_kafka.operate.move.accept_loss import accept_loss
from cues_kafka.operate.move.adopt import adopt
from cues_kafka.operate.move.base import Maintenance
from cues_kafka.operate.move.rename import Renaming
from cues_kafka.operate.move.reset import reset
from cues_kafka.operate.move.strategy import change_strategy
from cues_kafka.operate.repair.ask import Repairs
from cues_kafka.plan.plan import plan
from cues_kafka.plan.topics import topics_to_ask
from cues_kafka.ports.clients import GroupMetadata
from cues_kafka.ports.log import TopicPartition
from cues_kafka.testing.tester import Crash, Tester
from cues_kafka.verify.scan import verify
from tests.unit.operate.move.dying import Killed, Life, Mortal

FIXED = {"is": False}

WIDTH = 3


def passed(number: int) -> int:
    """Every seventh one fails until the code is fixed."""
    if number % 7 == 0 and not FIXED["is"]:
        raise ValueError(number)
    return number


class Moving:
    """
    A pipe, what its operators do, and a model of what must be there.

    Attributes:
        logs: what was sent to each partition.
        low: the first offset that each partition still has.
        at: the offset of the next message of each task.
        sent: how often each number must be in the output.
        open: the numbers whose error messages must be open, as often as they are.
        back: whether a task ever went back, so that `verify` counts what came again.
        said: the verbs so far.
    """

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        FIXED["is"] = False
        self.name, self.strategy, self.renames = "n0", "exactly-once", 0
        self.tester = Tester(self.graph)
        self.broker: Any = self.tester.broker
        self.logs: list[list[int]] = [[] for _ in range(WIDTH)]
        self.low, self.at = [0] * WIDTH, [0] * WIDTH
        self.sent: Counter[int] = Counter()
        self.open: list[int] = []
        self.number = 0
        self.back = False
        self.said: list[str] = []
        self.send()
        self.deliver()

    @property
    def graph(self) -> Graph:
        """As it is declared by now."""
        strategy: Any = self.strategy
        return Graph(
            "g",
            Source("in"),
            Processor(passed, name=self.name, inputs="in", outputs="out", strategy=strategy),
            defaults=Topic(value=Json(int), partitions=WIDTH),
            errors="g.errors",
        )

    def live(self, steps: int) -> None:
        """Do that many things, and look after each of them."""
        weights = {"send": 5, "deliver": 4, "reset": 3, "trim": 1, "change_strategy": 2, "rename": 2, "adopt": 1}
        for _ in range(steps):
            can = ["send", "deliver", "reset", "trim"]
            can += ["change_strategy"] if self.at == [len(log) for log in self.logs] else []
            if self.strategy == "exactly-once":  # the others have no lock, and settle nothing
                can += ["rename", *(["settle"] if self.open else ["adopt"])]
            [name] = self.random.choices(can, [weights.get(one, 2) for one in can])
            self.said.append(name)
            getattr(self, name)()
            self.check()

    # What comes

    def send(self) -> None:
        """Numbers that were never sent, to any partition."""
        for _ in range(self.random.randint(1, 5)):
            self.number += 1
            place = self.random.randrange(WIDTH)
            self.tester.clock.advance(0.001)
            self.tester.send("in", Message(self.number, key="k", partition=place))
            self.logs[place].append(self.number)

    def deliver(self) -> None:
        """Workers run until nothing is left; the first ones may be killed, where that neither loses nor repeats."""
        if self.strategy == "exactly-once" and self.random.random() < 0.5:
            first = Tester(self.graph, broker=self.broker)
            moment: Any = self.random.choice(["before", "after"])
            first.run(crash=Crash(moment=moment, effect="Commit", nth=self.random.randint(1, 4)))
            first.restart()
        worker = Tester(self.graph, broker=self.broker)
        worker.run()
        worker.stop()
        for place, log in enumerate(self.logs):
            for number in log[self.at[place] :]:
                self._take(number)
            self.at[place] = len(log)

    def _take(self, number: int) -> None:
        if number % 7 == 0 and not FIXED["is"]:
            self.open.append(number)
        else:
            self.sent[number] += 1

    # Verbs

    def _verb(self, act: Callable[[Any], Any], *groups: str) -> None:
        """Do it, and if it is killed, once more."""
        if self.random.random() < 0.5:
            life = Life(self.random.choice(["before", "after"]), self.random.randint(1, 12))
            self.said[-1] += " killed"
            with contextlib.suppress(Killed):
                act(Mortal(self.broker, life))
            if not life.ended:
                return
            for group in groups:
                with contextlib.suppress(BrokerError):  # it had not joined
                    self.broker.expire(group)
        act(self.broker)

    def _tool(self, broker: Any) -> Maintenance:
        return Maintenance(self.graph, broker, self.name, who="test", clock=self.tester.clock, session_s=0.0)

    def reset(self) -> None:
        """All tasks or one, to the begin or the end."""
        to, partition = self.random.choice(["earliest", "latest"]), self.random.choice([None, *range(WIDTH)])
        self.said[-1] += f" {to} {partition}"

        def act(broker: Any) -> None:
            tool = self._tool(broker)
            tool.carry_out(reset(tool, to=to, partition=partition))

        self._verb(act, f"g.{self.name}")
        for place in range(WIDTH) if partition is None else [partition]:
            now = self.low[place] if to == "earliest" else len(self.logs[place])
            self.back = self.back or now < self.at[place]
            self.at[place] = now

    def trim(self) -> None:
        """Retention takes messages, some of them not delivered; the loss is accepted."""
        place = self.random.randrange(WIDTH)
        self.low[place] = self.random.randint(self.low[place], len(self.logs[place]))
        self.broker.trim({TopicPartition("in", place): self.low[place]})
        if self.low[place] <= self.at[place]:
            return
        self.said[-1] += f", {place} lost to {self.low[place]}"

        def act(broker: Any) -> None:
            tool = self._tool(broker)
            tool.carry_out(accept_loss(tool))

        self._verb(act, f"g.{self.name}")
        self.at[place] = self.low[place]

    def change_strategy(self) -> None:
        """To another one, while nothing waits."""
        self.strategy = self.random.choice(
            [one for one in ("exactly-once", "at-least-once", "at-most-once") if one != self.strategy]
        )
        self.said[-1] += f" {self.strategy}"

        def act(broker: Any) -> None:
            tool = self._tool(broker)
            tool.carry_out(change_strategy(tool))

        self._verb(act, f"g.{self.name}")

    def rename(self) -> None:
        """To a name that it never had."""
        old, self.renames = self.name, self.renames + 1
        self.name = f"n{self.renames}"
        graph = self.graph

        def act(broker: Any) -> None:
            tool = Renaming(graph, broker, old, self.name, who="test", clock=self.tester.clock)
            tool.carry_out(tool.plan())

        self._verb(act, f"g.{old}", f"g.{self.name}")

    def adopt(self) -> None:
        """A processor of a new name begins where another program's group stands."""
        self.renames += 1
        self.name = f"n{self.renames}"
        self.said[-1] += " as " + self.name
        begins = [self.random.randint(self.low[place], len(log)) for place, log in enumerate(self.logs)]
        session = self.broker.session(f"program-{self.name}")
        session.init(timeout_s=30)
        session.begin()
        offsets = {TopicPartition("in", place): at for place, at in enumerate(begins)}
        session.send_offsets(offsets, GroupMetadata.outside(f"program-{self.name}"))
        session.commit()
        self.broker.create(plan(self.graph, self.broker.facts(topics_to_ask(self.graph))).create)

        def act(broker: Any) -> None:
            tool = self._tool(broker)
            tool.carry_out(adopt(tool, f"program-{self.name}"))

        act(self.broker)
        self.at, self.back = begins, True

    def settle(self) -> None:
        """The code is fixed, and all error messages are replayed, or they are dropped."""
        wish: Any = self.random.choice(["replay", "drop"])
        self.said[-1] += f" {wish}"
        FIXED["is"] = FIXED["is"] or wish == "replay"
        with Repairs(self.graph, self.broker, clock=self.tester.clock) as tool:
            tool.ask(wish)
        kept = {number for place, log in enumerate(self.logs) for number in log[self.low[place] :]}
        gone = [one for one in self.open if wish == "replay" and one not in kept]  # retention took their messages
        asked, self.open, self.back = [one for one in self.open if one not in gone], gone, True
        self.deliver()
        if wish == "replay":
            self.sent.update(asked)

    # What must be true

    def _outputs(self) -> Counter[int]:
        return Counter(self.tester.values("out"))

    def _open(self) -> int:
        with Repairs(self.graph, self.broker, clock=self.tester.clock) as tool:
            return sum(cause.count for cause in tool.causes())

    def check(self) -> None:
        """After each verb."""
        assert self._outputs() == self.sent
        assert self._open() == len(self.open)
        report = verify(self.graph, self.broker)
        text = f"{report.verdict}: " + "\n".join(report.lines)
        assert self.back or report.anomalies == 0, text  # what comes again counts as duplicated


def lived(seed: int, steps: int) -> None:
    """One order; what fails says which."""
    one = Moving(seed)
    try:
        one.live(steps)
    except BaseException as error:
        error.add_note(f"seed {seed}: {', '.join(one.said)}")
        raise


@pytest.mark.parametrize("seed", range(4))
def test_places_are_right_after_each_verb(seed: int) -> None:
    """A few orders."""
    lived(seed, 10)


@pytest.mark.full
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("first", range(4, 404, 100))
def test_places_are_right_after_each_verb_of_many(first: int) -> None:
    """Many orders."""
    for seed in range(first, first + 100):
        lived(seed, 14)

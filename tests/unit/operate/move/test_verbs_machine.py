"""Verbs in random orders, some of them killed half-way: after each one, all that can be asked says what is true."""

from __future__ import annotations

import contextlib
import json
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from cues_kafka import Graph, Json, Message, Processor, RecoveryError, Source, State, Store, Table, Topic
from cues_kafka.errors import BrokerError
from cues_kafka.operate.applying import apply_plan
from cues_kafka.operate.deleting import Deleting
from cues_kafka.operate.move.base import Maintenance
from cues_kafka.operate.move.migrate import migrate
from cues_kafka.operate.move.rebuild import Rebuild
from cues_kafka.operate.move.rename import Renaming
from cues_kafka.operate.move.reset import reset
from cues_kafka.operate.repair.ask import Repairs
from cues_kafka.plan.plan import plan
from cues_kafka.plan.topics import topics_to_ask
from cues_kafka.records.scanning import read_all
from cues_kafka.state.layers import ENTRY
from cues_kafka.testing.tester import Crash, Tester
from cues_kafka.verify.scan import verify
from tests.unit.operate.move.dying import Killed, Life, Mortal

FIXED = {"is": False}

Verb = Callable[[Any], Any]
"""Does a verb, whole, on what its process sees of the cluster."""


def counted(a: Any = None, b: Any = None, *, counts: State[int]) -> Any:
    """Counts each word; fails for `bad` until it is fixed."""
    word = a or b
    if word == "bad" and not FIXED["is"]:
        raise ValueError(word)
    counts[word] = counts.get(word, 0) + 1
    return [word, counts[word]]


def named(pair: Any, names: Any) -> Any:
    """Looks each counted word up in a table."""
    return [names.get(pair[0]), *pair]


def graph_of(name: str, *, both: bool) -> Graph:
    """A processor with a store, which has one input or two, and one with a table behind it."""
    read: dict[str, Any] = {"alts": {"a": "a", "b": "b"}} if both else {"inputs": {"a": "a"}}
    return Graph(
        "g",
        Source("a"),
        Source("b"),
        Source("names"),
        Processor(counted, name=name, outputs="out", state={"counts": Store(Json(int))}, **read),
        Processor(named, name="named", inputs="out", outputs="told", tables={"names": Table("names")}),
        errors="g.errors",
        defaults=Topic(value=Json(), partitions=1),
    )


class Operating:
    """
    A graph, what its operators do, and a model of what must be there.

    Attributes:
        name: of the processor by now.
        entries: what its store must hold.
        outputs: what it must have sent.
        open: error messages that are open.
        waiting: words that are sent and not delivered, by topic.
        said: the verbs so far.
    """

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.said: list[str] = []
        FIXED["is"] = False
        self.name, self.both, self.number = "n0", False, 0
        self.tester = Tester(self.graph)
        self.broker: Any = self.tester.broker
        self.entries: Counter[str] = Counter()
        self.outputs: Counter[tuple[str, int]] = Counter()
        self.open = 0
        self.waiting: dict[str, list[str]] = {"a": [], "b": []}
        self.asked, self.due = "", 0
        self.mixed = self.dropped_b = self.settled = False
        self.b_delivered = 0

    def live(self, steps: int) -> None:
        """Do that many things in a random order, and look after each of them."""
        self.begin()
        weights = {"send": 5, "deliver": 3, "rebuild": 3, "settle": 4, "rename": 2, "fix": 1}
        for _ in range(steps):
            can = self.possible()
            [name] = self.random.choices(can, [weights.get(one, 1) for one in can])
            self.said.append(name)
            getattr(self, name)()

    def possible(self) -> list[str]:
        """What may be done now."""
        can = ["send", "deliver", "rebuild", "reset_to_latest", "delete_unused", "apply", "compact", "fix"]
        can += ["send_other"] if self.both else []
        can += [] if self.asked else ["rename"]
        can += [] if self.dropped_b else ["migrate"]
        return can + (["settle"] if self.open and not self.asked else [])

    def kill(self) -> tuple[str, int] | None:
        """Where a verb is killed; None: it is not."""
        if self.random.random() < 0.5:
            return None
        return self.random.choice(["before", "after"]), self.random.randint(1, 12)

    def likely(self) -> bool:
        """True or false."""
        return self.random.random() < 0.5

    @property
    def graph(self) -> Graph:
        """As it is declared by now."""
        return graph_of(self.name, both=self.both)

    def begin(self) -> None:
        """Each processor has a place."""
        for word in ("x", "y", "bad"):
            self.tester.send("names", Message(word.upper(), key=word))
        self.tester.run()
        self.tester.stop()

    # What comes

    def send(self) -> None:
        """Messages come, and are delivered at once or not."""
        self._send("a", self.random.choices(["x", "y", "bad"], k=self.random.randint(1, 3)))
        if self.likely():
            self._deliver(None)

    def send_other(self) -> None:
        """To the other input; none of them fails."""
        self._send("b", ["y"] * self.random.randint(1, 2))

    def _send(self, topic: str, words: list[str]) -> None:
        for word in words:
            self.tester.clock.advance(0.001)
            self.tester.send(topic, Message(word, key=word))
        self.waiting[topic] += words

    def deliver(self) -> None:
        """Workers run until nothing is left; the first ones may be killed."""
        self._deliver((self.random.choice(["before", "after"]), self.random.randint(1, 3)) if self.likely() else None)

    def _deliver(self, crash: tuple[Any, int] | None) -> None:
        if crash:
            first = Tester(self.graph, broker=self.broker)
            first.run(crash=Crash(moment=crash[0], effect="Commit", nth=crash[1]))
            first.restart()
        worker = Tester(self.graph, broker=self.broker)
        worker.run()
        worker.stop()
        for topic in ("a", "b") if self.both else ("a",):
            for word in self.waiting[topic]:
                self._take(word)
            self.b_delivered += len(self.waiting[topic]) if topic == "b" else 0
            self.waiting[topic] = []
        if self.asked:
            if self.asked == "drop":
                self.open -= self.due
            elif FIXED["is"]:
                for _ in range(self.due):
                    self._count("bad")
                self.open -= self.due
            self.asked, self.settled = "", True

    def _take(self, word: str) -> None:
        if word == "bad" and not FIXED["is"]:
            self.open += 1
        else:
            self._count(word)

    def _count(self, word: str) -> None:
        self.entries[word] += 1
        self.outputs[word, self.entries[word]] += 1

    def fix(self) -> None:
        """A redeploy."""
        FIXED["is"] = True

    # Verbs

    def _verb(self, act: Verb, *groups: str) -> None:
        """Do it, and if it is killed, once more."""
        if (kill := self.kill()) is not None:
            self.said[-1] += f" killed {kill[0]} effect {kill[1]}"
            life = Life(*kill)
            with contextlib.suppress(Killed):
                act(Mortal(self.broker, life))
            if not life.ended:
                return
            for group in groups:
                with contextlib.suppress(BrokerError):  # it had not joined
                    self.broker.expire(group)
        act(self.broker)

    def rename(self) -> None:
        """To a name that it never had."""
        old, self.number = self.name, self.number + 1
        self.name = f"n{self.number}"
        graph = self.graph

        def act(broker: Any) -> None:
            tool = Renaming(graph, broker, old, self.name, who="test", clock=self.tester.clock)
            tool.carry_out(tool.plan())

        self._verb(act, f"g.{old}", f"g.{self.name}")

    def rebuild(self) -> None:
        """Nothing was wrong, so nothing changes; where that cannot be known, it is refused."""

        def act(broker: Any) -> None:
            with Rebuild(self.graph, broker, self.name, who="test", clock=self.tester.clock) as tool:
                tool.hold()
                for group in tool.look():
                    assert not any(one.differs for one in group), [one.line for one in group]
                    tool.write(group)

        if self.mixed:
            with pytest.raises(RecoveryError, match="its entries also come from messages of 'b'"):
                act(self.broker)
        else:
            self._verb(act, f"g.{self.name}")

    def reset_to_latest(self) -> None:
        """What waits is skipped."""

        def act(broker: Any) -> None:
            tool = Maintenance(self.graph, broker, self.name, who="test", clock=self.tester.clock)
            tool.carry_out(reset(tool, to="latest"))

        self._verb(act, f"g.{self.name}")
        for topic in ("a", "b") if self.both else ("a",):
            self.waiting[topic] = []

    def migrate(self) -> None:
        """Another input comes, and goes without end."""
        self.both, add, drop = not self.both, {"b": self.random.choice(["earliest", "latest"])}, ["b"]
        if not self.both:
            self.dropped_b, self.mixed = True, self.b_delivered > 0
            self.waiting["b"] = []
        graph = self.graph

        def act(broker: Any) -> None:
            tool = Maintenance(graph, broker, self.name, who="test", clock=self.tester.clock)
            tool.carry_out(migrate(tool, *((add, ()) if self.both else ({}, drop))))

        self._verb(act, f"g.{self.name}")

    def settle(self) -> None:
        """Some error messages, or all."""
        wish: Any = self.random.choice(["replay", "replay", "drop"])
        limit, live = self.random.choice([None, 1]), self.likely()

        def act(broker: Any) -> None:
            with Repairs(self.graph, broker, clock=self.tester.clock) as tool:
                before = sum(one.asked is not None and one.settled is None for one in tool.find())
                if not before:
                    tool.ask(wish, limit=limit)

        self._verb(act)
        self.asked, self.due = wish, min(self.open, limit or self.open)
        if live:
            self._deliver(None)

    def delete_unused(self) -> None:
        """What former names have left."""

        def act(broker: Any) -> None:
            tool = Deleting(self.graph, broker, clock=self.tester.clock)
            tool.carry_out(tool.unused())

        self._verb(act)
        assert [topic for topic in self.broker.partitions() if topic.endswith(".backing")] == [
            "g.named.backing",
            f"g.{self.name}.backing",
        ] or self.name < "named"

    def apply(self) -> None:
        """`plan --apply`."""

        def act(broker: Any) -> None:
            apply_plan(plan(self.graph, broker.facts(topics_to_ask(self.graph))), broker)

        self._verb(act)

    def compact(self) -> None:
        """The brokers keep the newest message of each key."""
        for topic in self.broker.partitions():
            if topic.startswith("g.") and topic.endswith((".backing", ".changelog")):
                self.broker.compact(topic)

    # What must be true

    def check(self) -> None:
        """After each verb."""
        report = verify(self.graph, self.broker, state=True)
        text = f"{report.verdict}: " + "\n".join(report.lines)
        assert report.anomalies == 0, text
        if not (self.both or self.dropped_b or self.settled):
            assert report[self.name].verdict == "ok", text
        assert self._entries() == self.entries
        assert Counter((word, n) for word, n in self.tester.values("out")) == self.outputs
        with Repairs(self.graph, self.broker, clock=self.tester.clock) as tool:
            assert sum(cause.count for cause in tool.causes()) == self.open

    def _entries(self) -> dict[str, int]:
        found: dict[bytes, bytes] = {}
        topic = f"g.{self.name}.counts.changelog"
        for message in read_all(self.broker, topic, 1):
            key, value = message.key() or b"", message.value()
            if key[:1] == ENTRY and value is not None:
                found[key[1:]] = value
        return {key.decode().strip('"'): json.loads(value) for key, value in found.items()}


def lived(seed: int, steps: int) -> None:
    """One order; what fails says which."""
    one = Operating(seed)
    try:
        one.live(steps)
    except BaseException as error:
        error.add_note(f"seed {seed}: {', '.join(one.said)}")
        raise


@pytest.mark.parametrize("seed", range(4))
def test_operator_finds_the_truth_after_each_verb(seed: int) -> None:
    """A few orders."""
    lived(seed, 12)


@pytest.mark.full
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("first", range(4, 404, 100))
def test_operator_finds_the_truth_after_each_verb_of_many(first: int) -> None:
    """Many orders."""
    for seed in range(first, first + 100):
        lived(seed, 16)

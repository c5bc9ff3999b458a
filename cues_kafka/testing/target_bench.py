"""What the cases of the contract of targets work with: a target, its task, and a graph that writes to it."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from cues_kafka.errors import RetriableError
from cues_kafka.graph.declare import CommitPolicy
from cues_kafka.graph.definition import Graph
from cues_kafka.graph.processor import Processor, Source
from cues_kafka.graph.topic import Topic
from cues_kafka.ports.target import HeldAttempt, TransactionalSink
from cues_kafka.sinks.lookup import open_target
from cues_kafka.testing.tester import Tester

MESSAGES: Final = 12
"""How many numbers a graph of the suite writes, in two partitions; those that end with 3 fail after their write."""

EFFECTS: Final = ("AskTarget", "Init", "Call", "CommitTarget", "Begin", "Produce", "SendOffsets", "Flush", "Commit")
"""Before and after these effects of the runtime a process is killed."""

RECORDS: Final = [
    ("written", 0, None, b"1", None, 5),
    ("written", None, b"key", None, [("h", b"\x00\n"), ("none", None)], 0),
    ("written", 1, b"\n", b"x" * 600_000, [], 0),
]
"""What Kafka gets with an attempt, as a target must give it back."""

PROCESSOR: Final = "contract"


class TargetAccess:
    """How the cases write to a target and read it again; see `TargetAccess`, which is what to subclass."""

    most_lines: ClassVar[int] = 150
    """At how many lines of `Transactions` a process is killed, at most. Where there are more, every n-th is taken."""

    def write(self, into: Any, number: int) -> None:
        """
        Write a number, as a function does.

        Args:
            into: what the function gets of the target.
            number: from 0; the same number is written again only after it was taken back.
        """
        into.write(number)

    def read(self, target: Any) -> Iterable[int]:
        """All the numbers that others see now, in any order; a number that is there twice comes twice."""
        raise NotImplementedError("the contract suite needs read(), which gives the numbers that others see")

    def write_refused(self, into: Any) -> bool:
        """Write what the target refuses for what it says. Return False where it takes everything, as by default."""
        del into
        return False

    def prepare(self, target: Any) -> None:
        """Make what a target needs before it is asked, such as its tables; by default nothing."""


@dataclass(slots=True)
class Bench:
    """
    One target, and what the cases do with it.

    Attributes:
        contract: how the target is written and read.
        target: its declaration.
        name: the graph's name, which no other case has.
        first: the first number that is written; others are those of other runs on the same target.
    """

    contract: TargetAccess
    target: Any
    name: str = field(default_factory=lambda: f"contract-{uuid.uuid4().hex[:12]}")
    first: int = 0
    _opened: list[TransactionalSink] = field(default_factory=list)

    def again(self) -> Bench:
        """Another run on the same target: another graph, and other numbers."""
        return Bench(self.contract, self.target, first=self.first + 1000)

    def open(self) -> Any:
        """The target of the task, as another process opens it."""
        found = open_target({"into": self.target}, self.name, PROCESSOR, 0)
        self._opened.append(found)
        return found

    def close(self) -> None:
        """Close all that was opened."""
        for one in self._opened:
            one.close()
        self._opened.clear()

    def seen(self) -> list[int]:
        """The numbers of this run that others see."""
        return sorted(one - self.first for one in self.contract.read(self.target) if 0 <= one - self.first < 1000)

    def attempt(self, sink: Any, owner: int, step: int, *numbers: int, records: Iterable[Any] = ()) -> None:
        """One batch with a step for each number; its row begins where the batch does."""
        self.begin(sink, owner, step, *numbers)
        sink.commit(HeldAttempt(step, step + len(numbers), owner, ""), records)

    def begin(self, sink: Any, owner: int, step: int, *numbers: int) -> None:
        """The same without the commit."""
        sink.begin_batch(owner, step)
        for number in numbers:
            self.step(sink, number)

    def step(self, sink: Any, number: int) -> None:
        """One call of the function."""
        sink.mark()
        self.contract.write(sink.values["into"], self.first + number)
        assert not sink.check(), "the target refuses a number"
        sink.rest()

    def tester(self, **settings: Any) -> Tester:
        """A graph with one function that writes, and messages for it."""
        tester = Tester(self.graph(), policy=CommitPolicy(max_messages=3), **settings)
        self.send(tester, 0, MESSAGES)
        return tester

    def graph(self) -> Graph:
        """The graph: even numbers become messages, those that end with 3 become errors."""

        def deliver(number: int, into: Any) -> int | None:
            self.contract.write(into, self.first + number)
            if number % 10 == 3:
                raise ValueError("three")
            return number if number % 2 == 0 else None

        return Graph(
            self.name,
            Source("numbers"),
            Processor(deliver, name=PROCESSOR, inputs="numbers", outputs="written", effects={"into": self.target}),
            errors="errors",
            defaults=Topic(partitions=2),
        )

    def send(self, tester: Tester, first: int, last: int) -> None:
        """Send the numbers from `first` to below `last`."""
        for number in range(first, last):
            tester.send("numbers", number, key=str(number))

    def check(self, tester: Tester, messages: int = MESSAGES) -> None:
        """Each message has one outcome, on both sides."""
        kept = [one for one in range(messages) if one % 10 != 3]
        seen = self.seen()
        assert seen == kept, f"the target shows {seen}, and not each of {kept} once"
        assert sorted(tester.values("written")) == [one for one in kept if one % 2 == 0]
        assert len(tester.errors()) == messages - len(kept)
        assert tester.totals(PROCESSOR).deliveries == messages


@dataclass(frozen=True, slots=True)
class Case:
    """
    One case of the contract.

    Attributes:
        name: what it is about.
        run: does it; it raises where the target breaks the contract.
    """

    name: str
    run: Callable[[Bench], None]

    def check(self, contract: TargetAccess, target: Any) -> None:
        """Run it on a target."""
        bench = Bench(contract, target)
        contract.prepare(target)
        try:
            self.run(bench)
        finally:
            bench.close()


def commit_of_one(sink: Any) -> None:
    """What the runtime does behind a call that has ended."""
    sink.check()
    sink.rest()
    sink.commit(HeldAttempt(0, 1, 1, ""), [])


def step_of(held: HeldAttempt | None) -> int:
    """Over which step the target holds an attempt; 0: it holds none."""
    return 0 if held is None else held.step


def takes_over(heir: Any, owner: int, step: int, stands: int) -> bool:
    """
    Whether another process gets the task. False: the target has it wait until the former owner's connection has ended.

    Until then the former owner has the task, and what it commits counts.
    """
    try:
        held = heir.ask(owner, step)
    except RetriableError:
        return False
    assert step_of(held) == stands, f"the target is at step {step_of(held)} instead of {stands}"
    return True


def is_void(bench: Bench, sink: Any, owner: int, step: int, number: int) -> None:
    """A batch of a former owner fails at its beginning or at its commit."""
    try:
        bench.begin(sink, owner, step, number)
        sink.commit(HeldAttempt(step, step + 1, owner, ""), [])
    except RetriableError:
        sink.rest()
        return
    raise AssertionError("a former owner has committed after another one got the task")


def shown_records(records: Iterable[Any]) -> list[tuple[Any, ...]]:
    """Records in a shape that can be compared."""
    return [
        (topic, partition, key, value, [tuple(one) for one in headers or ()], timestamp)
        for topic, partition, key, value, headers, timestamp in records
    ]

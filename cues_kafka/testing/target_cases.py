"""The cases of the contract of targets."""

from __future__ import annotations

import inspect
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from types import FrameType
from typing import Any, Final
from unittest.mock import patch

import pytest

from cues_kafka.errors import RetriableError, TaskStopped
from cues_kafka.graph.definition import Graph
from cues_kafka.graph.processor import Processor, Source
from cues_kafka.graph.targets import TransactionalTarget
from cues_kafka.ports.target import HeldAttempt
from cues_kafka.sinks.lookup import open_target
from cues_kafka.testing.target_bench import (
    EFFECTS,
    MESSAGES,
    PROCESSOR,
    RECORDS,
    Bench,
    Case,
    commit_of_one,
    is_void,
    shown_records,
    step_of,
    takes_over,
)
from cues_kafka.testing.tester import Crash, Tester


# Whole graphs
def _runs(bench: Bench) -> None:
    tester = bench.tester()
    tester.run()
    bench.check(tester)
    tester.stop()


def _restarts(bench: Bench) -> None:
    tester = bench.tester()
    tester.run()
    tester.restart()
    bench.send(tester, MESSAGES, 2 * MESSAGES)
    tester.run()
    bench.check(tester, 2 * MESSAGES)
    tester.stop()


def _killed(moment: str, effect: str) -> Callable[[Bench], None]:
    def run(bench: Bench) -> None:
        for nth in (1, 3):
            tester = bench.tester()
            tester.run(crash=Crash(moment, effect, nth))
            assert tester.crashed or nth > 1, f"{effect} is not reached"
            tester.restart().run()
            bench.check(tester)
            tester.stop()
            bench = bench.again()

    return run


def _killed_at_each_line(bench: Bench) -> None:
    """For a target by `Transactions`: within `ask`, `fence`, `begin`, `write` and `commit`."""
    home = bench.target.home
    if not isinstance(home, TransactionalTarget):
        pytest.skip("the lines of a target that is part of cues-kafka are killed by its own tests")
    lines = _Lines(0, lambda: None)
    tester = bench.tester()
    with lines.of(home):
        tester.run()
    bench.check(tester)
    tester.stop()
    assert lines.passed, "no line of the target's own code was run"
    most = bench.contract.most_lines
    for number in range(1, lines.passed + 1, max(1, -(-lines.passed // most))):
        bench = bench.again()
        tester = bench.tester()
        with _Lines(number, tester.kill).of(home):
            tester.run(crash=_NEVER)
        assert tester.crashed
        tester.restart().run()
        bench.check(tester)
        tester.stop()


_NEVER: Final = Crash("after", "Stop", 10**9)


class _Lines:
    """Kills at the n-th line that the code of a target runs: nothing unwinds, as with SIGKILL."""

    def __init__(self, at: int, kill: Callable[[], None]) -> None:
        self.passed = 0
        self._at, self._kill = at, kill
        self._file = ""

    @contextmanager
    def of(self, home: TransactionalTarget) -> Iterator[None]:
        """While this block runs, `home` opens transactions that are watched."""
        opens, lines = type(home).open, self

        def watched(target: TransactionalTarget, task: Any) -> Any:
            made = opens(target, task)
            lines._file = inspect.getfile(type(made))
            for name in ("ask", "fence", "begin", "write", "commit"):
                stack.enter_context(lines._traced(made, name))
            return made

        with ExitStack() as stack, patch.object(type(home), "open", watched):
            yield

    @contextmanager
    def _traced(self, made: Any, name: str) -> Iterator[None]:
        method = getattr(type(made), name)
        if getattr(method, "traced_by", None) is self:
            yield
            return

        def traced(*given: Any, **named: Any) -> Any:
            former = sys.gettrace()
            sys.settrace(self._enter)
            try:
                return method(*given, **named)
            finally:
                sys.settrace(former)

        traced.traced_by = self  # type: ignore[attr-defined]
        with patch.object(type(made), name, traced):
            yield

    def _enter(self, frame: FrameType, event: str, _: Any) -> Any:
        del event
        return self._line if frame.f_code.co_filename == self._file else None

    def _line(self, frame: FrameType, event: str, _: Any) -> Any:
        del frame
        if event == "line":
            self.passed += 1
            if self.passed == self._at:
                sys.settrace(None)
                self._kill()
        return self._line


def _answer_lost(*, committed: bool) -> Callable[[Bench], None]:
    """The commit has no answer: the connection was lost behind it, or before it."""

    def run(bench: Bench) -> None:
        kind = type(bench.open())
        commit, count = kind.commit, 0

        def ambiguous(sink: Any, held: HeldAttempt, records: Iterable[Any]) -> None:
            nonlocal count
            count += 1
            if count not in (1, 3):
                commit(sink, held, records)
                return
            if committed:
                commit(sink, held, records)
            raise RetriableError("the contract suite has lost the answer of a commit", code="TARGET")

        tester = bench.tester()
        with patch.object(kind, "commit", ambiguous):
            tester.run()
        assert count > 3
        bench.check(tester)
        tester.stop()

    return run


def _function_fails(bench: Bench) -> None:
    """The third number is written, and its call fails; those beside it stay."""
    tester = Tester(bench.graph())
    bench.send(tester, 0, 5)
    tester.run()
    bench.check(tester, 5)
    [error] = tester.errors()
    assert "three" in error.text
    tester.stop()


def _write_is_refused(bench: Bench) -> None:
    """The message becomes an error message; those beside it have their writes."""
    refused: list[bool] = []

    def deliver(number: int, into: Any) -> None:
        if number == 2:
            refused.append(bench.contract.write_refused(into))
        else:
            bench.contract.write(into, number)

    parts = Source("numbers"), Processor(deliver, name=PROCESSOR, inputs="numbers", effects={"into": bench.target})
    tester = Tester(Graph(bench.name, *parts, errors="errors"))
    bench.send(tester, 0, 5)
    tester.run()
    tester.stop()
    if not all(refused):
        pytest.skip("the target takes everything: write_refused() returned False")
    assert bench.seen() == [0, 1, 3, 4]
    assert len(tester.errors()) == 1


def _ahead_of_kafka(bench: Bench) -> None:
    """Kafka has lost everything: the task refuses to go on, rather than write again."""
    tester = bench.tester()
    tester.run()
    tester.stop()
    lost = bench.tester()
    with pytest.raises(TaskStopped, match="holds an attempt over step"):
        lost.run()
    bench.check(tester)


def _behind_kafka(bench: Bench) -> None:
    """The target was restored from a backup: the task refuses to go on, rather than leave a gap."""
    tester = bench.tester()
    tester.run()
    tester.stop()
    for partition in range(2):
        sink = open_target({"into": bench.target}, bench.name, PROCESSOR, partition)
        found = sink.newest()
        assert found is not None
        assert found.step > 1
        assert sink.settle(HeldAttempt(0, 1, found.owner, ""), found)
        sink.close()
    tester.restart()
    with pytest.raises(TaskStopped, match="was restored from a backup, or lost commits"):
        tester.run()


# Two processes
def _zombie_between_batches(bench: Bench) -> None:
    """It had the task, and sleeps. Another one gets it. Then it wakes up, and begins its next batch."""
    zombie, heir = bench.open(), bench.open()
    assert step_of(zombie.ask(1, 0)) == 0
    bench.attempt(zombie, 1, 0, 0)
    if takes_over(heir, 2, 1, 1):
        is_void(bench, zombie, 1, 1, 10)
        bench.attempt(heir, 2, 1, 1)
    else:
        bench.attempt(zombie, 1, 1, 1)
        zombie.close(orderly=False)
        assert step_of(heir.ask(2, 1)) == 2, "what the former owner has committed is not seen"
    is_void(bench, zombie, 1, 2, 11)
    heir.close()
    assert bench.seen() == [0, 1]
    assert step_of(bench.open().newest()) == 2


def _zombie_in_its_batch(bench: Bench) -> None:
    """It sleeps after its writes and before its commit. Either it commits, or the other one has the task."""
    zombie, heir = bench.open(), bench.open()
    assert step_of(zombie.ask(1, 0)) == 0
    bench.begin(zombie, 1, 0, 10)
    taken = takes_over(heir, 2, 0, 0)
    try:
        zombie.commit(HeldAttempt(0, 1, 1, ""), [])
    except RetriableError:
        assert bench.seen() == []
        zombie.close()
        assert step_of(heir.ask(2, 0)) == 0
        bench.attempt(heir, 2, 0, 0)
        assert bench.seen() == [0]
    else:
        assert not taken, "a former owner has committed after another one got the task"
        zombie.close(orderly=False)
        assert step_of(heir.ask(2, 0)) == 1
        assert bench.seen() == [10]


def _two_of_one_number(bench: Bench) -> None:
    """Two processes have read the same record, so both ask with the same number. One of them commits."""
    first, second = bench.open(), bench.open()
    assert step_of(first.ask(1, 0)) == 0
    takes_over(second, 1, 0, 0)
    done: list[int] = []
    for number, sink in enumerate((second, first)):
        with suppress(RetriableError):
            bench.attempt(sink, 1, 0, number)
            done.append(number)
    assert len(done) == 1, f"{len(done)} of two processes have committed over the same step"
    assert bench.seen() == done


def _heir_publishes(bench: Bench) -> None:
    """A process dies behind its commit. Its successor gets the attempt and its records, and no other one adds."""
    former, heir = bench.open(), bench.open()
    assert step_of(former.ask(1, 0)) == 0
    bench.attempt(former, 1, 0, 0, 1, records=RECORDS)
    if not takes_over(heir, 3, 0, 2):
        former.close(orderly=False)
        assert heir.ask(3, 0) == HeldAttempt(0, 2, 1, "")
    assert shown_records(heir.outbox()) == shown_records(RECORDS), "the records of the attempt come back changed"
    if former.parts or former.ahead:  # else it begins no batch before Kafka has the attempt
        is_void(bench, former, 1, 2, 12)
    bench.attempt(heir, 3, 2, 2)
    assert shown_records(heir.outbox()) == []
    assert bench.seen() == [0, 1, 2]


def _looking_changes_nothing(bench: Bench) -> None:
    """A tool looks while a worker has the task, and the worker goes on."""
    worker, tool = bench.open(), bench.open()
    assert step_of(worker.ask(1, 0)) == 0
    with suppress(RetriableError):  # it may say that another process has the task
        tool.newest()
    tool.close()
    bench.attempt(worker, 1, 0, 0)
    assert bench.seen() == [0]


def _question_elsewhere(bench: Bench) -> None:
    """A process asks with a place that does not fit. It gets the answer, and takes the task from no process."""
    worker, other = bench.open(), bench.open()
    assert step_of(worker.ask(1, 0)) == 0
    bench.attempt(worker, 1, 0, 0)
    bench.attempt(worker, 1, 1, 1)
    worker.close()
    for step in (0, 7):
        assert step_of(other.ask(9, step)) == 2
    assert step_of(other.ask(1, 2)) == 2
    bench.attempt(other, 1, 2, 2)
    assert bench.seen() == [0, 1, 2]


def _tool_settles(bench: Bench) -> None:
    """An operator moves the task, only from where it was seen."""
    tool = bench.open()
    assert tool.settle(HeldAttempt(0, 5, 4, ""), None)
    assert not tool.settle(HeldAttempt(0, 6, 4, ""), None)
    assert not tool.settle(HeldAttempt(0, 6, 4, ""), HeldAttempt(0, 4, 4, ""))
    assert step_of(tool.newest()) == 5
    found = tool.newest()
    assert tool.settle(HeldAttempt(0, 6, 2, ""), found)
    assert tool.newest() == HeldAttempt(0, 6, 4, ""), "a smaller owner takes the place of a greater one"


# One process
def _step_is_taken_back(bench: Bench) -> None:
    """Half of a call was written. The steps before and behind it stay."""
    sink = bench.open()
    assert step_of(sink.ask(1, 0)) == 0
    bench.begin(sink, 1, 0, 0)
    sink.mark()
    bench.contract.write(sink.values["into"], bench.first + 10)
    sink.back()
    sink.rest()
    bench.step(sink, 1)
    assert bench.seen() == [], "others see what is not committed"
    sink.commit(HeldAttempt(0, 3, 1, ""), [])
    assert bench.seen() == [0, 1]


def _parts_follow(bench: Bench) -> None:
    """Several transactions of the target come before one of Kafka; the attempt of each covers those before."""
    sink = bench.open()
    assert step_of(sink.ask(1, 0)) == 0
    if not sink.parts:
        pytest.skip("the target has one transaction for each of Kafka's")
    for step in range(3):
        bench.begin(sink, 1, step, step)
        sink.commit(HeldAttempt(0, step + 1, 1, ""), RECORDS if step == 2 else [])
    sink.close()
    heir = bench.open()
    assert heir.ask(2, 0) == HeldAttempt(0, 3, 1, "")
    assert shown_records(heir.outbox()) == shown_records(RECORDS)
    assert bench.seen() == [0, 1, 2]


def _discarded_on_another_thread(bench: Bench) -> None:
    """The task is taken away while its function runs: nothing of the batch is committed, and it can begin again."""
    sink = bench.open()
    assert step_of(sink.ask(1, 0)) == 0
    sink.begin_batch(1, 0)
    sink.mark()
    bench.contract.write(sink.values["into"], bench.first + 10)
    other = threading.Thread(target=sink.discard)
    other.start()
    other.join()
    with pytest.raises(RetriableError):
        commit_of_one(sink)
    sink.rest()
    assert bench.seen() == []
    assert step_of(sink.ask(2, 0)) == 0
    bench.attempt(sink, 2, 0, 0)
    assert bench.seen() == [0]


def _closed_in_its_batch(bench: Bench) -> None:
    """The task is given up, in order or at once: nothing of the batch stays, and the next process takes it."""
    for number, orderly in enumerate((True, False)):
        sink = bench.open()
        assert sink.ask(number + 1, number) == (HeldAttempt(0, 1, 1, "") if number else None)
        bench.begin(sink, number + 1, number, 10)
        sink.close(orderly=orderly)
        with pytest.raises(RetriableError):
            sink.begin_batch(number + 1, number)
        heir = bench.open()
        assert step_of(heir.ask(number + 1, number)) == number
        bench.attempt(heir, number + 1, number, number)
        heir.close()
    assert bench.seen() == [0, 1]


def _tasks_are_apart(bench: Bench) -> None:
    """What is kept for one task is not what is kept for another one."""
    sink = bench.open()
    assert step_of(sink.ask(1, 0)) == 0
    bench.attempt(sink, 1, 0, 0)
    places = [(bench.name, PROCESSOR, 1), (bench.name, "other", 0), (f"{bench.name}x", PROCESSOR, 0)]
    for graph, processor, partition in places:
        other = open_target({"into": bench.target}, graph, processor, partition)
        assert other.newest() is None
        other.close()


CASES: Final = (
    Case("a run without a failure", _runs),
    Case("a restart", _restarts),
    *(
        Case(f"killed {moment} {effect}", _killed(moment, effect))
        for effect in EFFECTS
        for moment in ("before", "after")
    ),
    Case("killed at each line of the transactions", _killed_at_each_line),
    Case("the answer of a commit is lost", _answer_lost(committed=True)),
    Case("a commit is lost with its answer", _answer_lost(committed=False)),
    Case("the function fails behind its write", _function_fails),
    Case("the target refuses a write", _write_is_refused),
    Case("the target is ahead of Kafka", _ahead_of_kafka),
    Case("the target is behind Kafka", _behind_kafka),
    Case("a former owner wakes up between its batches", _zombie_between_batches),
    Case("a former owner wakes up in its batch", _zombie_in_its_batch),
    Case("two owners with one number", _two_of_one_number),
    Case("a successor publishes what it finds", _heir_publishes),
    Case("a tool looks at the target", _looking_changes_nothing),
    Case("a question with a place that does not fit", _question_elsewhere),
    Case("an operator moves the task", _tool_settles),
    Case("a step is taken back", _step_is_taken_back),
    Case("a batch is committed in parts", _parts_follow),
    Case("discarded on another thread", _discarded_on_another_thread),
    Case("closed in its batch", _closed_in_its_batch),
    Case("tasks are apart", _tasks_are_apart),
)
"""All cases, in the order in which a new target should pass them."""

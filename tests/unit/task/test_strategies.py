"""Strategies on the reference broker: kills at every crash point, what each allows and what it does not (W1 to W8)."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from cues_kafka import (
    Codec,
    ConfigError,
    Graph,
    Http,
    Interrupt,
    Json,
    Memory,
    Message,
    Once,
    Processor,
    RetriableError,
    Retry,
    Source,
    Sql,
    Store,
    Table,
    Topic,
    start,
)
from cues_kafka.brokers.memory import Faults, MemoryBroker, MemoryReader
from cues_kafka.core.records import Attempt, Start
from cues_kafka.core.taking import in_flight
from cues_kafka.core.task import Doing
from cues_kafka.errors import TaskStopped
from cues_kafka.graph.declare import CommitPolicy
from cues_kafka.ports.facts import Watermarks
from cues_kafka.task.lane import Lane
from cues_kafka.testing.tester import Crash, Tester, VirtualClock
from cues_kafka.verify.scan import Report, verify

CALLED: list[int] = []
COUNT = 12
POLICY = CommitPolicy(max_messages=4)
BOTH = ("Init", "FetchOffsets", "ReadNewest", "AssignReader", "Begin", "SendOffsets", "Produce", "Flush", "Call")


def text(n: int) -> int | None:
    """Nil for 3, an error for 7; who it is called for is written down at once."""
    CALLED.append(n)
    if n == 7:
        raise ValueError("seven")
    return None if n == 3 else n


def graph(strategy: str, fn: Callable[..., Any] = text, **more: Any) -> Graph:
    """One processor, with an errors topic."""
    return Graph(
        "g",
        Source("numbers"),
        Processor(fn, name="text", inputs="numbers", outputs="texts", **more),
        errors="failed",
        strategy=strategy,  # type: ignore[arg-type]
        defaults=Topic(value=Json(int)),
    )


@pytest.fixture(autouse=True)
def _nothing_called() -> None:
    CALLED.clear()


def world_of(strategy: str, fn: Callable[..., Any] = text, **more: Any) -> Tester:
    """With the messages sent."""
    tester = Tester(graph(strategy, fn, **more), policy=POLICY)
    for n in range(COUNT):
        tester.send("numbers", n)
    return tester


def looked(tester: Tester) -> Report:
    """What `verify` says."""
    return verify(tester.graph, tester.broker)


def crashed_everywhere(strategy: str, names: tuple[str, ...]) -> Iterator[Tester]:
    """A world for each moment before and after each effect, killed there and restarted."""
    moments = 0
    for name in names:
        for moment in ("before", "after"):
            for nth in range(1, 40):
                CALLED.clear()
                tester = world_of(strategy)
                if not tester.run(crash=Crash(moment, name, nth)).crashed:
                    break
                moments += 1
                yield tester.run()
    assert moments > 40


def test_at_most_once_a_kill_at_any_moment_repeats_nothing_and_counts_what_it_drops() -> None:
    """I15, I16: what is missing is exactly what the totals say."""
    dropped = Counter[int]()
    for tester in crashed_everywhere("at-most-once", (*BOTH, "Commit")):
        totals, outputs = tester.totals("text"), tester.values("texts")
        assert len(CALLED) == len(set(CALLED))
        assert outputs == sorted(set(outputs))
        assert (totals.outputs, totals.errors) == (len(outputs), len(tester.errors()))
        assert totals.taken == COUNT == totals.deliveries + totals.dropped
        report = looked(tester)
        assert report.ok, list(report.lines)
        assert report["text"].dropped == totals.dropped
        dropped[totals.dropped] += 1

    assert dropped[0] > 10  # recoveries, and between two batches
    assert set(dropped) == {0, 4}  # one batch: its outcomes waited, or it was taken and not called


def test_at_least_once_a_kill_at_any_moment_loses_nothing() -> None:
    """I17: repeats are allowed, and some happen."""
    repeated = 0
    for tester in crashed_everywhere("at-least-once", (*BOTH, "Emit")):
        values = tester.values("texts")
        assert set(values) == set(range(COUNT)) - {3, 7}
        assert {error.consumed[0].offset for error in tester.errors()} == {7}
        repeated += len(values) > COUNT - 2
        report = looked(tester)
        assert report.ok, list(report.lines)
        assert (report["text"].lost, report["text"].dropped) == (0, 0)

    assert repeated > 3


@pytest.mark.parametrize("strategy", ["at-most-once", "at-least-once"])
def test_without_faults_each_message_has_one_outcome(strategy: str) -> None:
    """In order, with errors and nils."""
    tester = world_of(strategy).run()

    assert tester.values("texts") == [n for n in range(COUNT) if n not in (3, 7)]
    assert list(range(COUNT)) == CALLED
    assert [error.text for error in tester.errors()] == ["seven"]
    assert looked(tester).ok


def test_at_most_once_has_one_transaction_for_each_batch() -> None:
    """W1: a start, the takes, and the last one's outcomes."""
    tester = world_of("at-most-once").run()
    records = tester.records("text", 0)

    assert isinstance(records[0], Start)
    assert [type(record) for record in records[1:]] == [Attempt] * (len(records) - 1)
    assert [record.batch.taken for record in records[1:]] == [4, 4, 4, 0]
    assert [record.batch.deliveries for record in records[1:]] == [0, 4, 4, 4]
    assert in_flight(records[-1]) == 0


def test_at_most_once_a_message_that_kills_its_process_is_dropped_with_its_batch() -> None:
    """W4: it is not called again, and nothing is quarantined."""

    def deadly(n: int) -> int:
        CALLED.append(n)
        if n == 5:
            tester.kill()
        return n

    tester = world_of("at-most-once", deadly)
    tester.run(crash=Crash("before", "Stop", 99))
    assert tester.crashed
    tester.run()

    assert CALLED == [0, 1, 2, 3, 4, 5, 8, 9, 10, 11]
    assert tester.values("texts") == [0, 1, 2, 3, 8, 9, 10, 11]
    assert tester.totals("text").dropped == 4
    assert looked(tester).ok


def test_at_most_once_a_stop_in_order_gives_back_what_was_not_called() -> None:
    """W2: the position is behind the step that was interrupted."""

    def stopping(n: int) -> int:
        CALLED.append(n)
        if n == 5 and CALLED.count(5) == 1:
            raise Interrupt("enough")
        return n

    tester = world_of("at-most-once", stopping)
    with pytest.raises(TaskStopped, match="enough"):
        tester.run()
    assert [position.offset for position in tester.records("text", 0)[-1].positions] == [6]
    tester.run()

    assert list(range(COUNT)) == CALLED
    assert tester.values("texts") == [n for n in range(COUNT) if n != 5]
    assert tester.totals("text").dropped == 1


def test_at_most_once_without_an_errors_topic_the_failed_step_is_dropped() -> None:
    """The task stops and names it; its restart goes on behind it."""
    tester = Tester(
        Graph(
            "g",
            Source("numbers"),
            Processor(text, inputs="numbers", outputs="texts", strategy="at-most-once"),
            defaults=Topic(value=Json(int)),
        ),
        policy=POLICY,
    )
    for n in range(COUNT):
        tester.send("numbers", n)
    with pytest.raises(ValueError, match="seven"):
        tester.run()
    tester.run()

    assert list(range(COUNT)) == CALLED
    assert tester.totals("text").dropped == 1


def test_at_most_once_a_list_that_raises_is_not_called_again() -> None:
    """Exactly-once its messages would be called one by one."""

    def lists(ns: list[int]) -> list[int]:
        CALLED.extend(ns)
        if 5 in ns:
            raise ValueError("five")
        return ns

    tester = world_of("at-most-once", lists, batch=True).run()

    assert sorted(CALLED) == list(range(COUNT))
    assert sorted(error.consumed[0].offset for error in tester.errors()) == [4, 5, 6, 7]
    assert tester.values("texts") == [0, 1, 2, 3, 8, 9, 10, 11]


def test_at_most_once_coroutines_run_side_by_side() -> None:
    """Each passes the gate by itself."""

    async def later(n: int) -> int:
        CALLED.append(n)
        await asyncio.sleep(0)
        return n

    tester = world_of("at-most-once", later, concurrency=3).run()

    assert sorted(CALLED) == list(range(COUNT))
    assert tester.values("texts") == list(range(COUNT))
    assert tester.totals("text").dropped == 0


@pytest.mark.parametrize("shape", ["alts", "join"])
@pytest.mark.parametrize("strategy", ["at-most-once", "at-least-once"])
def test_several_inputs_keep_the_promise(strategy: Any, shape: str) -> None:
    """With a kill behind each call."""

    def alts(left: int | None = None, right: int | None = None) -> int:
        CALLED.append(left if left is not None else 100 + (right or 0))
        return CALLED[-1]

    def join(left: int, right: int) -> int:
        CALLED.append(100 * left + right)
        return CALLED[-1]

    named = {"left": "lefts", "right": "rights"}
    given: dict[str, Any] = {"alts": named} if shape == "alts" else {"inputs": named}
    processor = Processor(alts if shape == "alts" else join, name="p", outputs="out", strategy=strategy, **given)
    declared = Graph("g", Source("lefts"), Source("rights"), processor, defaults=Topic(value=Json(int)))
    for nth in range(1, 4):
        CALLED.clear()
        tester = Tester(declared, policy=POLICY)
        for n in range(6):
            tester.send("lefts", n)
            tester.send("rights", n)
        assert tester.run(crash=Crash("after", "Call", nth)).crashed
        tester.run()

        totals = tester.totals("p")
        if strategy == "at-most-once":
            assert len(CALLED) == len(set(CALLED))
            assert totals.taken == (12 if shape == "alts" else 6) == totals.deliveries + totals.dropped
        else:
            assert len(set(tester.values("out"))) == (12 if shape == "alts" else 6)
        assert looked(tester).ok, list(looked(tester).lines)


class Phone:
    """A function that can be held up in its call for one number; `calling` is set when it is there."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.calling, self.go_on = threading.Event(), threading.Event()

    def __call__(self, n: int) -> int:
        CALLED.append(n)
        if n == self.number:
            self.calling.set()
            assert self.go_on.wait(30)
        return n


def test_at_most_once_a_stop_in_mid_call_waits_for_nothing_and_gives_the_rest_back() -> None:
    """W2: the call that is under way is dropped, what has ended is committed, what was not started comes again."""
    phone, memory = Phone(5), Memory()
    declared = graph("at-most-once", phone, commit=CommitPolicy(max_messages=COUNT))
    running = start(declared, memory)
    for n in range(COUNT):
        running.send("numbers", n)
    assert phone.calling.wait(30)
    running.stop()
    at_stop = list(CALLED)
    phone.go_on.set()

    with start(declared, memory) as again:
        again.wait_idle(timeout_s=30)
        told = [message.value for message in again.messages("texts")]
        [task] = again.status().tasks
    assert at_stop == list(range(6))
    assert list(range(COUNT)) == CALLED
    assert told == [n for n in range(COUNT) if n != 5]
    assert (task.totals.dropped, task.totals.taken) == (1, COUNT)
    assert "1 dropped" in str(task)


def test_at_most_once_a_failure_during_a_call_drops_nothing() -> None:
    """The reader fails, or a topic is looked at; the outcomes of the call are committed by the next session."""
    phone, memory = Phone(5), Memory()
    with start(graph("at-most-once", phone), memory) as running:
        for n in range(COUNT):
            running.send("numbers", n)
        assert phone.calling.wait(30)
        [worker] = running._workers
        [lane] = worker.lanes.values()
        lane.post()
        lane.advance(lane.fail("the reader failed"))
        phone.go_on.set()
        running.wait_idle(timeout_s=30)
        told = [message.value for message in running.messages("texts")]
        [task] = running.status().tasks

    assert list(range(COUNT)) == CALLED == told
    assert task.totals.dropped == 0


def test_at_most_once_a_failure_before_the_first_call_of_a_batch_drops_nothing(monkeypatch: Any) -> None:
    """I16: the batch is taken, and the reader fails before user code gets it. The simulation found it (1000107)."""
    poll, failed = MemoryReader.poll, list[int]()

    def poll_or_fail(self: MemoryReader, *given: Any) -> Any:
        lanes = [lane for worker in tester._workers for lane in worker.lanes.values()]
        if not failed and CALLED and lanes[0].task.state is Doing.CALLING:
            failed.append(len(CALLED))
            raise RetriableError("the connection is gone", code="_TRANSPORT")
        return poll(self, *given)

    monkeypatch.setattr(MemoryReader, "poll", poll_or_fail)
    tester = world_of("at-most-once")
    tester.run()

    assert failed == [4]
    assert list(range(COUNT)) == CALLED
    assert (tester.totals("text").dropped, tester.totals("text").taken) == (0, COUNT)
    assert looked(tester).ok


class RefusedOnce(Faults):
    """One request to produce is refused, once it is wanted."""

    wanted = False

    def before(self, operation: str, client: str) -> None:
        """See `Faults`."""
        if self.wanted and operation == "produce":
            self.wanted = False
            raise RetriableError("the broker is gone", code="_TRANSPORT")


def test_at_least_once_nothing_is_called_ahead_of_a_second_start(monkeypatch: Any) -> None:
    """A write fails, and an old answer hides all records: the task begins again. The simulation found it."""
    tester, refused, ahead = world_of("at-least-once"), RefusedOnce(), list[int]()
    tester.broker._faults = refused
    emitted = iter(range(2 * COUNT))

    def hook(moment: str, effect: str) -> None:
        [worker] = tester._workers
        lane = worker.lanes[0]
        if (moment, effect) == ("before", "Emit") and next(emitted) == 0:
            refused.wanted = True
            monkeypatch.setattr(tester.broker, "watermarks", no_records)
        if (moment, effect) == ("before", "Flush") and lane.task.record is None and lane.buffer is not None:
            called = len(CALLED)
            worker.call_once()
            ahead.append(len(CALLED) - called)

    def no_records(partitions: Any) -> Any:
        monkeypatch.undo()
        return {place: Watermarks(0, 0, 0) for place in partitions}

    tester._hook = lambda: hook  # type: ignore[method-assign]
    tester.run()

    assert ahead == [0]
    assert set(CALLED) == set(range(COUNT))
    assert [type(record) for record in tester.records("text", 0)][:2] == [Start, Start]
    assert looked(tester).ok


def test_at_most_once_observers_and_the_log_hear_of_drops(caplog: pytest.LogCaptureFixture) -> None:
    """W4: once, when the record that counts them is committed."""
    tester = world_of("at-most-once")
    tester.run(crash=Crash("before", "Call", 1))
    tester.run()

    assert [line for line in caplog.messages if line.startswith("dropped")] == ["dropped task='text/0' steps=4"]


def test_at_most_once_looks_up_tables() -> None:
    """They are read only, so any strategy may."""

    def look(n: int, names: Any) -> str:
        return str(names.get(str(n), "unknown"))

    tester = Tester(
        Graph(
            "g",
            Source("numbers"),
            Source("names"),
            Processor(look, inputs="numbers", outputs="out", tables={"names": Table("names")}, strategy="at-most-once"),
            topics={"names": Topic(value=Json(str), partitions=1, config={"cleanup.policy": "compact"})},
            defaults=Topic(value=Json(), partitions=1),
        )
    )
    tester.send("names", Message("one", key="1"))
    tester.run()
    tester.send("numbers", Message(1, key="1"))

    assert tester.run().values("out") == ["one"]


def test_a_strategy_that_differs_from_the_records_is_refused_with_the_verb() -> None:
    """W7: it does not change by itself."""
    tester = world_of("at-least-once").run()
    with pytest.raises(TaskStopped, match="was written at-least-once; the graph says at-most-once"):
        Tester(graph("at-most-once"), broker=tester.broker).run()


async def asks(n: int, db: Any) -> int:
    """A call with something of `effects=`."""
    return n + (db is not None)


@pytest.mark.parametrize(
    ("strategy", "more", "words"),
    [
        ("at-most-once", {"retry": Retry()}, "retry= calls a step again"),
        ("at-most-once", {"fn": lambda n, s: n, "state": {"s": Store(Json(int))}}, "state= is committed"),
        ("at-least-once", {"fn": lambda n, s: n, "state": {"s": Store(Json(int))}}, "state= is committed"),
        ("at-most-once", {"fn": asks, "effects": {"db": Sql("sqlite:////tmp/shop.db")}}, "a database or a store"),
        ("at-most-once", {"fn": asks, "effects": {"db": Http("https://pay.example")}}, "calls of effects= are kept"),
        ("at-least-once", {"fn": asks, "effects": {"db": Once()}}, "calls of effects= are kept for a retry"),
    ],
    ids=["retry", "state", "state-at-least-once", "database", "server", "calls"],
)
def test_what_only_exactly_once_carries_is_refused_by_name(strategy: str, more: dict[str, Any], words: str) -> None:
    """W8: before anything is created."""
    memory = Memory()
    with pytest.raises(ConfigError, match=words) as refusal:
        start(graph(strategy, **more), memory)
    assert f"strategy='{strategy}'" in str(refusal.value)
    assert "Remedy:" in str(refusal.value)


def test_a_graph_with_cuts_is_exactly_once() -> None:
    """W8: a batch that is taken and not called is between two places."""
    declared = Graph(
        "g",
        Source("numbers"),
        Processor(text, inputs="numbers", outputs="texts", strategy="at-most-once"),
        cuts="7 days",
        defaults=Topic(value=Json(int)),
    )
    with pytest.raises(ConfigError, match="cuts= say where all tasks stood"):
        start(declared, Memory())


def test_at_most_once_a_revocation_before_the_first_call_gives_the_whole_batch_back() -> None:
    """W2: the take was under way when the task was asked to leave, and no step of it was started."""
    tester, leaving = world_of("at-most-once"), list[threading.Thread]()
    commits = iter(range(COUNT))

    def hook(moment: str, effect: str) -> None:
        if (moment, effect) == ("after", "Commit") and next(commits) == 1:
            [lane] = tester._workers[0].lanes.values()
            leaving.append(threading.Thread(target=lane.revoke, args=(5.0,)))
            leaving[0].start()
            lane.interpreter.gate.wait(5.0)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(tester, "_hook", lambda: hook)
        tester.run()
        leaving[0].join(5.0)
    assert CALLED == []
    tester.restart().run()

    assert list(range(COUNT)) == CALLED
    assert (tester.totals("text").dropped, tester.totals("text").taken) == (0, COUNT)
    assert looked(tester).ok


class Rebalanced(Faults):
    """The group refuses the second batch of a task, and takes the task away at the same time."""

    def __init__(self) -> None:
        self.lane: Lane | None = None

    def before(self, operation: str, client: str) -> None:
        """Refuse it once."""
        if operation == "offsets" and self.lane is not None and len(CALLED) == POLICY.max_messages:
            self.lane.interpreter.gate.close()
            self.lane = None
            raise RetriableError("ILLEGAL_GENERATION")


def test_at_most_once_a_rebalance_that_refuses_a_commit_drops_nothing() -> None:
    """W2: the task is taken away before it has recovered; it commits what waits first."""
    faults = Rebalanced()
    tester = Tester(graph("at-most-once"), policy=POLICY, broker=MemoryBroker(clock=VirtualClock(), faults=faults))
    worker = tester.run()._workers[0]
    faults.lane = worker.lanes[0]
    for n in range(COUNT):
        tester.send("numbers", n)
    tester.run()
    assert worker.lanes[0].task.state is Doing.DISCARDING

    worker.on_revoke([0])

    newest = tester.records("text")[-1]
    assert (newest.totals.deliveries, newest.totals.dropped, in_flight(newest)) == (POLICY.max_messages, 0, 0)
    tester.restart().run()
    assert list(range(COUNT)) == CALLED
    assert looked(tester).ok
    assert looked(tester)["text"].totals.dropped == 0


class Silent(Codec):
    """Numbers as text; what says what they mean does not answer at the first 5."""

    def __init__(self, *, encoding: bool = False) -> None:
        self.answers, self.encoding = False, encoding

    def encode(self, value: int) -> bytes:
        if self.encoding:
            self._ask(value)
        return str(value).encode()

    def decode(self, data: bytes) -> int:
        if not self.encoding:
            self._ask(int(data))
        return int(data)

    def _ask(self, value: int) -> None:
        if value == 5 and not self.answers:
            self.answers = True
            raise RetriableError("the registry does not answer", code="_TIMED_OUT")


async def later(n: int) -> int:
    CALLED.append(n)
    return n


def lists(ns: list[int]) -> list[int]:
    CALLED.extend(ns)
    return ns


@pytest.mark.parametrize(
    ("fn", "more"),
    [(text, {}), (later, {"concurrency": 3}), (lists, {"batch": True})],
    ids=["one by one", "side by side", "as a list"],
)
def test_at_most_once_an_outage_while_decoding_gives_the_steps_back(fn: Any, more: dict[str, Any]) -> None:
    """User code did not get the message, so it is taken again."""
    tester = Tester(
        Graph(
            "g",
            Source("numbers"),
            Processor(fn, name="text", inputs="numbers", outputs="texts", **more),
            errors="failed",
            strategy="at-most-once",
            topics={"numbers": Topic(value=Silent())},
            defaults=Topic(value=Json(int)),
        ),
        policy=POLICY,
    )
    for n in range(COUNT):
        tester.send("numbers", n)
    tester.run()

    assert list(range(COUNT)) == sorted(CALLED)
    assert tester.totals("text").dropped == 0
    assert tester.totals("text").taken == tester.totals("text").deliveries == COUNT
    assert looked(tester).ok


def test_at_most_once_an_outage_while_encoding_drops_the_step_that_was_called() -> None:
    """It must not be called again, and its outcome is not known."""
    tester = Tester(
        Graph(
            "g",
            Source("numbers"),
            Processor(text, inputs="numbers", outputs="texts", strategy="at-most-once"),
            topics={"texts": Topic(value=Silent(encoding=True))},
            errors="failed",
            defaults=Topic(value=Json(int)),
        ),
        policy=POLICY,
    )
    for n in range(COUNT):
        tester.send("numbers", n)
    tester.run()

    assert list(range(COUNT)) == CALLED
    assert tester.values("texts") == [n for n in range(COUNT) if n not in (3, 5, 7)]
    assert tester.totals("text").dropped == 1
    assert looked(tester).ok

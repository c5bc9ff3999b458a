"""Defects that were found once, each with the shortest sequence that shows it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from cues_kafka import (
    ConfigError,
    Graph,
    Memory,
    Message,
    Out,
    OutputError,
    Processor,
    RetriableError,
    Retry,
    Source,
    TaskStopped,
    Topic,
    connect,
    start,
)
from cues_kafka.brokers.memory import Faults, MemoryBroker, MemoryMessage, MemoryReader
from cues_kafka.brokers.open import open_broker
from cues_kafka.core import effects as do
from cues_kafka.core import events as on
from cues_kafka.core.machine import handle
from cues_kafka.core.records import Snapshot
from cues_kafka.core.task import State, Task
from cues_kafka.operate.moving import Maintenance
from cues_kafka.ports import Fetched, NewTopic, Outgoing, Position, TopicPartition
from cues_kafka.records.bytes import ErrorMessage
from cues_kafka.runtime import CommitPolicy
from cues_kafka.runtime.calling.pairing import Buffer
from cues_kafka.runtime.native import worker
from cues_kafka.runtime.task.clock import SystemClock
from cues_kafka.runtime.task.gate import Gate
from cues_kafka.runtime.task.interpreter import LEAVING_INIT_TIMEOUT_S, Interpreter, World
from cues_kafka.testing.tester import Crash, Tester
from tests.unit.core.world import ME, attempt, facts, make_spec, snapshot
from tests.unit.core.world import at as task_at


def same(value: Any) -> Any:
    """A pipe that passes on what it gets."""
    return value


def test_careful_mode_that_ended_lends_its_choice_to_no_later_range() -> None:
    """A stale end made the next crash loop retry other ranges under an old choice, and skip what it did not name."""
    deadly, seen = [False], []
    made: list[Tester] = []

    def sink(a: str | None = None, b: str | None = None) -> None:
        if deadly[0]:
            made[0].kill()
        seen.append(a or b)

    tester = Tester(Graph("g", Source("a"), Source("b"), Processor(sink, alts={"a": "a", "b": "b"}), errors="failed"))
    made.append(tester)

    def put(*values: str) -> None:
        for value in values:
            tester.send(value[0], value, key="k")

    put("a0", "a1", "b0", "b1")
    deadly[0] = True
    assert tester.run_to_death()
    assert tester.run_to_death()
    deadly[0] = False
    tester.run_to_death()
    put("a2", "a3", "b2", "b3")
    deadly[0] = True
    tester.run(crash=Crash("never", ""))
    tester.run_to_death()
    put("a4", "a5", "b4")
    tester.run_to_death()
    deadly[0] = False
    tester.run_to_death()
    assert {f"a{i}" for i in range(6)} | {f"b{i}" for i in range(5)} <= set(seen)


class _At:
    """A message that has an offset, and a value of no bytes."""

    def __init__(self, offset: int) -> None:
        self._offset = offset

    def offset(self) -> int:
        return self._offset

    def __len__(self) -> int:
        return 0


def test_a_retried_choice_takes_every_message_of_each_run() -> None:
    """One message too many was taken from the input for each run of the choice but its last."""
    buffer = Buffer("alts", (Position("a", "a", b"", 0), Position("b", "b", b"", 0)))
    buffer.add(Fetched(TopicPartition("a", 0), [_At(0), _At(1)], 2))  # type: ignore[list-item]
    buffer.add(Fetched(TopicPartition("b", 0), [_At(0)], 1))  # type: ignore[list-item]
    ends = (Position("a", "a", b"", 2), Position("b", "b", b"", 1))
    steps = buffer.cut_exactly(ends, (("a", 1), ("b", 1), ("a", 1))).steps
    assert [(index, message.offset()) for index, message in steps] == [(0, 0), (1, 0), (0, 1)]


def test_a_yielded_none_is_nothing() -> None:
    """It became a tombstone with the input's key."""

    def fork(_: int) -> Iterator[Out]:
        yield Out("all", None)

    tester = Tester(Graph("g", Source("in"), Processor(fork, inputs="in", outputs={"all": "all"})))
    tester.send("in", 1, key="k")
    assert tester.run().messages("all") == []


def test_wait_idle_waits_for_user_code_that_runs() -> None:
    """A batch that was being called was neither in the buffer nor on its way."""
    done = []

    def slow(n: int) -> int:
        if n == 2:
            time.sleep(0.7)
        done.append(n)
        return n

    with start(Graph("g", Source("in"), Processor(slow, inputs="in", outputs="out")), Memory()) as running:
        for n in (1, 2):
            running.send("in", n, key="k")
            running.wait_idle(timeout_s=20)
        assert done == [1, 2]


@pytest.mark.parametrize("wrong", ["soon", 1.5, -5, 2**70, True])
def test_a_wrong_timestamp_is_an_error_of_its_step(wrong: Any) -> None:
    """It reached the client, which raised in the middle of a batch."""
    late = Processor(lambda n: Message(n, timestamp_ms=wrong), inputs="in", outputs="out", name="late")
    tester = Tester(Graph("g", Source("in"), late, errors="failed"))
    tester.send("in", 1, key="k")
    assert [error.kind for error in tester.run().errors()] == ["output"]


def test_an_exception_without_a_text_is_an_error_message_too() -> None:
    """Its `__str__` raised, and took the worker with it."""

    class Bad(Exception):
        def __str__(self) -> str:
            return str(self.args[5])

    def raises(_: int) -> int:
        raise Bad("x")

    tester = Tester(Graph("g", Source("in"), Processor(raises, inputs="in", outputs="out"), errors="failed"))
    tester.send("in", 1, key="k")
    [error] = tester.run().errors()
    assert "IndexError" in error.text


def test_a_retry_of_the_first_step_under_a_snapshot_ends_after_its_time() -> None:
    """It killed the worker, and its time was measured by another clock than its pauses."""
    calls = []

    def down(n: int) -> int:
        calls.append(n)
        raise OSError("down")

    retry = Retry(on=(OSError,), for_s=5, then="error")
    tester = Tester(Graph("g", Source("in"), Processor(down, inputs="in", outputs="out", retry=retry), errors="failed"))
    tester.send("in", 1, key="k")
    [error] = tester.run().errors()
    assert (error.kind, error.attempts) == ("retries exhausted", len(calls))
    assert len(calls) == 7, "0.1 s doubled until 5 s are over"


def test_starts_that_fail_count_no_deaths() -> None:
    """A refused task made `start` drop the others like a crash, and their snapshots counted against the messages."""

    def slow(n: int) -> int:
        time.sleep(0.2)
        return n

    def other(n: int) -> int:
        return n

    memory = Memory()
    graph = Graph(
        "g",
        Source("in"),
        Source("in2"),
        Processor(slow, inputs="in", outputs="out"),
        Processor(other, inputs="in2", outputs="out2"),
        errors="failed",
    )
    with start(graph, memory) as running:
        running.send("in2", 1, key="k")
        running.wait_idle(timeout_s=20)
        running.send("in", 1, key="k")
    broker = open_broker(memory)
    broker.delete(["in2"])
    broker.create([NewTopic("in2", 1)])
    for _ in range(4):
        with pytest.raises(TaskStopped, match="recreated"):
            start(graph, memory)
    with start(graph, memory, only=["slow"]) as running:
        running.wait_idle(timeout_s=20)
        assert [m.value for m in running.messages("out")] == [1]
        assert running.messages("failed") == []


def test_commits_that_are_suspect_and_succeed_are_progress() -> None:
    """Each cost a round, and the sixth stopped the task."""

    class Slow(Faults):
        def after(self, operation: str, client: str) -> str | None:
            return "slow" if operation == "commit" and client.startswith("g.f") else None

    graph = Graph("g", Source("in"), Processor(same, inputs="in", outputs="out", name="f"))
    tester = Tester(graph)
    tester.broker = MemoryBroker(clock=tester.clock, faults=Slow())
    tester = Tester(graph, broker=tester.broker)
    for n in range(5):
        tester.send("in", n, key="k")
        tester.run()
    assert tester.values("out") == [0, 1, 2, 3, 4]


def test_two_clients_of_a_process_do_not_fence_each_other() -> None:
    """Their transactions had one id."""
    memory = Memory()
    open_broker(memory).create([NewTopic("t", 1)])
    with connect(memory) as one, connect(memory) as two:
        one.send_many("t", [1])
        two.send_many("t", [2])
        one.send_many("t", [3])
        assert [m.value for m in one.messages("t")] == [1, 2, 3]


COMPACTED = Topic(config={"cleanup.policy": "compact"})


@pytest.mark.parametrize("keys", ["k", "kl", "lk", "klmk"])
@pytest.mark.parametrize("deaths", [1, 2, 3, 4])
def test_a_retry_on_a_compacted_topic_goes_on_with_what_is_left(keys: str, deaths: int) -> None:
    """It stopped for ever, without a remedy. Newer messages of a key supersede the older ones, so these may be gone."""
    processor = Processor(same, inputs="in", outputs="out", quarantine_after=None)
    tester = Tester(Graph("g", Source("in"), processor, topics={"in": COMPACTED}))
    for n, key in enumerate(keys):
        tester.send("in", f"old {key}{n}", key=key)
    for _ in range(deaths):
        tester.restart().run(crash=Crash("before", "Call"))
    tester.send("in", "new k", key="k")
    tester.broker.compact("in")
    left = tester.values("in")
    tester.restart().run()
    tester.restart().run()

    assert tester.values("out") == left == [f"old {key}{n}" for n, key in enumerate(keys) if key != "k"] + ["new k"]


def test_a_poison_message_that_compaction_takes_away_holds_up_none_behind_it() -> None:
    """It was due again for ever, alone, after each of its deaths."""
    topics = {"in": Topic(config={"cleanup.policy": "compact"})}

    def deadly(value: str) -> str:
        if value == "kill":
            tester.kill()
        return value

    tester = Tester(Graph("g", Source("in"), Processor(deadly, inputs="in", outputs="out"), topics=topics))
    tester.send("in", "kill", key="k")
    assert tester.run_to_death()
    assert tester.run_to_death()
    tester.send("in", "mended", key="k")
    tester.broker.compact("in")
    tester.run()

    assert tester.values("out") == ["mended"]


def test_deaths_on_several_messages_count_on_none_that_compaction_has_left() -> None:
    """I11: one of two is left, after a death on both. It is quarantined after three deaths of its own."""
    made: list[Tester] = []
    seen: list[str] = []

    def deadly(value: str) -> None:
        seen.append(value)
        made[0].kill()

    tester = Tester(Graph("g", Source("in"), Processor(deadly, inputs="in"), errors="f", topics={"in": COMPACTED}))
    made.append(tester)
    tester.send("in", "old", key="k")
    tester.send("in", "deadly", key="l")
    assert tester.run_to_death()
    tester.send("in", "new", key="k")
    tester.broker.compact("in")
    while tester.run_to_death():
        pass

    assert seen[:4] == ["old", "deadly", "deadly", "deadly"]
    assert [(error.payload, error.starts) for error in tester.errors()][:1] == [(b'"deadly"', 3)]


@pytest.mark.parametrize("left", [0, 1])
def test_a_retry_on_a_topic_that_is_not_compacted_never_goes_on_without_a_message(left: int) -> None:
    """It was compacted since the worker started. The text names what shortens the batch, and that works."""
    graph = Graph("g", Source("in"), Processor(same, inputs="in", outputs="out"))
    tester = Tester(graph)
    tester.send("in", "old", key="k")
    for n in range(left):
        tester.send("in", f"other {n}", key="l")
    tester.run(crash=Crash("before", "Call"))
    tester.send("in", "new", key="k")
    tester.broker.compact("in")
    with pytest.raises(TaskStopped, match=rf"{left} of the {left + 1} steps.*`cues-kafka accept-loss` for 'same'"):
        tester.restart().run()
    assert not tester.values("out")

    tester.broker.expire("g.same")
    tool = Maintenance(graph, tester.broker, "same", who="test", clock=tester.clock)
    [move] = tool.accept_loss()
    assert move.notes[0] == (
        f"in/0: 1 message of a batch that was announced up to {left + 1} is gone from the log and LOST; {left} of it "
        f"{'is' if left == 1 else 'are'} left"
    )
    tool.carry_out([move])
    assert not tool.accept_loss()
    assert tester.restart().run().values("out") == [*["other 0"][:left], "new"]


def test_a_processor_reads_an_errors_topic_as_error_messages() -> None:
    """The graph was accepted, and then nothing of it could be decoded."""
    seen: list[ErrorMessage] = []

    def fails(value: int) -> int:
        raise ValueError(f"not {value}")

    graph = Graph(
        "g",
        Source("in"),
        Processor(fails, inputs="in", outputs="out"),
        Processor(seen.append, name="watch", inputs="failed", errors=False),
        errors="failed",
    )
    tester = Tester(graph)
    tester.send_many("in", [1, 2])
    tester.run()

    assert [(e.processor, e.exception, e.text) for e in seen] == [
        ("fails", "ValueError", "not 1"),
        ("fails", "ValueError", "not 2"),
    ]


@pytest.mark.parametrize("batch", [False, True])
def test_the_error_message_of_a_join_carries_the_bytes_of_the_input_that_cannot_be_decoded(*, batch: bool) -> None:
    """It carried those of the lead, which could be decoded."""
    processor = Processor(lambda a, b: b, name="join", inputs={"a": "a", "b": "b"}, outputs="out", batch=batch)
    tester = Tester(Graph("g", Source("a"), Source("b"), processor, errors="failed"))
    tester.send("a", {"good": 1})
    tester.broker.sender("raw").send([Outgoing("b", 0, b"k", b"\xff no json")])
    tester.run()

    assert [(e.kind, e.payload) for e in tester.errors()] == [("decode", b"\xff no json")]


def test_a_join_whose_inputs_were_compacted_stops_and_says_so() -> None:
    """It ended the thread that called user code. The plan refuses it where the cluster or the graph says so."""
    graph = Graph(
        "g",
        Source("a"),
        Source("b"),
        Processor(lambda a, b: [a, b], inputs={"a": "a", "b": "b"}, outputs="out", name="pair"),
    )
    tester = Tester(graph)
    for n in range(2):
        tester.send("a", n, key="k")
        tester.send("b", n, key="k")
    tester.run(crash=Crash("before", "Call"))
    tester.broker.compact("a")
    with pytest.raises(TaskStopped, match=r"compacted.*accept-loss"):
        tester.restart().run()

    tester.broker.expire("g.pair")
    tool = Maintenance(graph, tester.broker, "pair", who="test", clock=tester.clock)
    [move] = tool.accept_loss()
    assert "a/0: 1 message of a batch that was announced up to 2 is gone" in move.notes[0]
    assert "b/0: what offsets [0, 2) hold is LOST" in " ".join(move.notes)
    tool.carry_out([move])
    for n in (7, 8):
        tester.send("a", n, key=f"k{n}")
        tester.send("b", n, key=f"k{n}")
    assert tester.restart().run().values("out") == [[7, 7], [8, 8]]


def test_a_retried_alts_choice_that_compaction_thinned_out_moves_over_nothing() -> None:
    """The retry went on with fewer steps under the old choice, and the one after it moved over a message."""
    made: list[Tester] = []
    seen: list[str] = []

    def sink(a: str | None = None, b: str | None = None) -> None:
        seen.append(a or b or "")
        made[0].kill()

    topics = {"a": Topic(config={"cleanup.policy": "compact"})}
    graph = Graph("g", Source("a"), Source("b"), Processor(sink, alts={"a": "a", "b": "b"}), errors="f", topics=topics)
    tester = Tester(graph)
    made.append(tester)
    for key in ("x", "x", "y"):
        tester.send("a", f"a{key}", key=key)
    for n in range(2):
        tester.send("b", f"b{n}", key="x")
    assert tester.run_to_death()
    tester.broker.compact("a")
    with pytest.raises(TaskStopped, match="4 of the 5 steps"):
        tester.run_to_death()
    assert {r.choice for r in tester.records("sink") if isinstance(r, Snapshot)} == {(("a", 3), ("b", 2))}

    tester.broker.expire("g.sink")
    tool = Maintenance(graph, tester.broker, "sink", who="test", clock=tester.clock)
    [move] = tool.accept_loss()
    assert move.notes[0].startswith("a/0: 1 message of a batch that was announced up to 3 is gone")
    tool.carry_out([move])
    seen.clear()
    while tester.run_to_death():
        pass
    assert sorted(set(seen)) == ["ax", "ay", "b0", "b1"]


def test_a_retried_alts_step_is_the_one_that_comes_next() -> None:
    """A message of another input came in between, and was taken for the one that was retried."""
    calls: list[tuple[str, int]] = []

    def either(step: Any, a: str | None = None, b: str | None = None) -> str:
        calls.append((a or b or "", step.attempt))
        if b == "b1" and step.attempt < 2:
            tester.send("a", f"late{step.attempt}", key="k")
            raise OSError("later")
        return a or b or ""

    either_of = Processor(either, alts={"a": "a", "b": "b"}, outputs="out", retry=Retry(on=(OSError,)))
    tester = Tester(Graph("g", Source("a"), Source("b"), either_of))
    for n in range(2):
        tester.send("b", f"b{n}", key="k")
    tester.run()
    assert calls[:4] == [("b0", 0), ("b1", 0), ("b1", 1), ("b1", 2)]


def test_the_error_context_of_one_step_of_a_list_is_kept() -> None:
    """Only functions that get one message at a time had theirs in the error message."""

    def several(values: list[int], step: list[Any]) -> list[Any]:
        step[1].error_context(who="me")
        return [values[0], ValueError("no"), *values[2:]]

    tester = Tester(
        Graph("g", Source("in"), Processor(several, inputs="in", outputs="out", batch=True), errors="failed")
    )
    tester.send_many("in", [1, 2, 3])
    [error] = tester.run().errors()
    assert error.context == {"who": "me"}
    assert sorted(tester.values("out")) == [1, 3]


def test_the_first_batch_after_a_start_keeps_to_the_commit_policy() -> None:
    """It took 500 steps whatever they cost, so that a slow function never committed between two restarts."""
    tester = Tester(
        Graph("g", Source("in"), Processor(same, inputs="in", outputs="out")), policy=CommitPolicy(max_messages=3)
    )
    tester.send_many("in", list(range(10)))
    tester.run()
    assert [r.steps for r in tester.records("same") if isinstance(r, Snapshot)] == [3]


def test_a_rebalance_that_meets_a_recovery_is_no_death() -> None:
    """P5 was refused under the old generation; revoked on its way back, the task was silent: a death was counted."""
    spec = make_spec()
    mine = snapshot(spec, (0,), (2,), 2, writer=ME)
    task = Task(spec, state=State.READY, record=mine, first=False, inputs=tuple(facts(spec).items()))
    task, _ = handle(task, on.Failed("ILLEGAL_GENERATION", 1.0))
    assert task.state is State.DISCARDING
    task, effect = handle(task, on.Revoked())
    for event in (
        on.Done(), on.Initialised(), on.OffsetsFetched({"in": None}), on.WatermarkFetched(10), on.NewestRead(mine),
        on.InputsFetched(facts(spec), 1.0), on.Done(), on.Done(),
    ):  # fmt: skip
        task, effect = handle(task, event)
    assert isinstance(effect, do.Produce)
    assert effect.record.left
    assert effect.record.starts == mine.starts
    for answer in (on.Done(), on.Flushed(1, 1, 10), on.Committed()):
        task, effect = handle(task, answer)
    assert isinstance(effect, do.Release)


def test_what_the_client_cannot_take_is_refused_by_send_as_by_produce() -> None:
    """Between the client's limit and a higher one of the topic."""
    memory = Memory()
    open_broker(memory).create([NewTopic("wide", 1, config={"max.message.bytes": "5000000"})])

    with (
        connect(memory) as client,
        pytest.raises(OutputError, match=r"'wide' are more than the 1000000 of message\.max\.bytes"),
    ):
        client.send("wide", "x" * 1_200_000)


def test_start_says_what_it_wants_instead_of_a_graph() -> None:
    """The name of one, for example."""
    with pytest.raises(ConfigError, match=r"first argument is the graph, not str. Write start\(Graph"):
        start("life", Memory())  # type: ignore[arg-type]


class Flaky:
    """An alts sink that raises at the first call of each message that comes from the right."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def __call__(self, left: str | None = None, right: str | None = None, step: Any = None) -> None:
        if right is not None and not step.attempt:
            raise OSError(right)
        self.seen.append(left or right or "")


def test_alts_go_on_with_another_input_after_a_retry_under_a_snapshot() -> None:
    """The choice of what was put back stayed behind when its snapshot took it again; the task then waited for ever."""
    sink = Flaky()
    graph = Graph(
        "g", Source("a"), Source("b"), Processor(sink, alts={"left": "a", "right": "b"}, name="sink", retry=Retry())
    )
    tester = Tester(graph)
    tester.send("b", "first")
    tester.run()
    tester.send("a", "second")
    tester.run()
    assert sink.seen == ["first", "second"]


def test_what_a_retry_put_off_comes_next_after_a_death_too() -> None:
    """I7: it was called under its step.step already; another message in its place would be taken for it (E1)."""
    calls: list[str] = []

    def sink(left: str | None = None, right: str | None = None) -> None:
        calls.append(left or right or "")
        if right == "second" and len(calls) < 3:
            raise OSError("later")

    graph = Graph(
        "g", Source("a"), Source("b"), Processor(sink, alts={"left": "a", "right": "b"}, name="sink", retry=Retry())
    )
    tester = Tester(graph)
    tester.send("b", "first")
    tester.send("b", "second")
    tester.run(crash=Crash("after", "Commit", 3))  # the start's record, the snapshot, and what was delivered before it
    tester.send("a", "meanwhile")
    tester.restart().run()
    assert calls == ["first", "second", "second", "meanwhile"]


def test_an_order_of_alts_that_compaction_has_emptied_holds_nobody_up() -> None:
    """The order of what a retry put off names one message of the left input, which is gone; the right one goes on."""
    buffer = Buffer("alts", (Position("left", "a", b"", 0), Position("right", "b", b"", 0)))
    buffer.add(Fetched(TopicPartition("a", 0), [], 3))
    buffer.add(Fetched(TopicPartition("b", 0), [at("b", 0)], 1))
    cut = buffer.cut_chosen(5, (("left", 1),), ())
    assert (len(cut.steps), cut.choice) == (1, (("right", 1),))


def test_an_order_of_alts_that_compaction_has_thinned_out_ends_where_the_log_does() -> None:
    """Of three messages one was left; the order still named two, and the other input waited for ever."""
    buffer = Buffer("alts", (Position("left", "a", b"", 1), Position("right", "b", b"", 0)))
    buffer.add(Fetched(TopicPartition("a", 0), [at("a", 3)], 4))
    buffer.add(Fetched(TopicPartition("b", 0), [at("b", 0)], 1))
    cut = buffer.cut_chosen(5, (("left", 3), ("right", 1)), ())
    assert cut.choice == (("left", 1), ("right", 1))


def test_what_was_fenced_twice_long_ago_is_forgotten_with_the_next_delivery() -> None:
    """R7: a coordinator had moved twice; a week later, one start of another worker stopped the task for good."""
    spec = make_spec()
    task = Task(spec, state=State.DISCARDING, rounds=2, fenced_at_s=1.0, fenced_twice=True)
    for event in (
        on.Done(), on.Initialised(), on.OffsetsFetched({"in": None}), on.WatermarkFetched(10),
        on.NewestRead(attempt(spec, 5, writer=ME)), on.InputsFetched(facts(spec), 2.0), on.Done(), on.Idle(task_at(9)),
        on.Done(), on.Done(), on.Done(), on.Flushed(1, 1, 10),
    ):  # fmt: skip
        task, _ = handle(task, event)
    assert task.fenced_twice
    task, _ = handle(task, on.Committed())
    assert not task.fenced_twice


def test_a_range_that_is_due_is_fetched_however_full_the_buffers_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Buffers smaller than a snapshot's range, all of them full: nothing was polled any more, and all stood still."""
    calls: list[str] = []
    deadly = [True]

    def sink(left: str | None = None, right: str | None = None) -> None:
        if deadly[0]:
            tester.kill()
        calls.append(left or right or "")

    graph = Graph("g", Source("a"), Source("b"), Processor(sink, alts={"left": "a", "right": "b"}, name="sink"))
    tester = Tester(graph)
    for n in range(4):
        tester.send("a", f"a{n}", key="k")
        tester.send("b", f"b{n}", key="k")
    assert tester.run_to_death()
    poll = MemoryReader.poll
    monkeypatch.setattr(MemoryReader, "poll", lambda self, timeout_s: poll(self, timeout_s, 1))
    monkeypatch.setattr(worker, "BUFFER_MESSAGES", 2)
    monkeypatch.setattr(worker, "LEAST_BUFFER", 1)
    deadly[0] = False
    tester.restart().run()
    for _ in range(50):  # what is fetched alone is no event for `run`
        tester._turn()
    assert sorted(calls) == [f"{side}{n}" for side in "ab" for n in range(4)]


class Gone:
    """A cluster that never answers, as broker and session of it."""

    def __init__(self) -> None:
        self.patience: list[float] = []

    def session(self, _: str, *, batch_bytes: int | None = None) -> Gone:
        """Made without asking anybody."""
        return self

    def init(self, timeout_s: float) -> None:
        """Waits in vain."""
        self.patience.append(timeout_s)
        raise RetriableError("nobody answers")

    def abandon(self) -> None:
        """Nothing to close."""


def test_a_stopped_task_that_owes_left_does_not_hold_up_a_shutdown_in_an_outage() -> None:
    """Where only `left` remains to be said (Q1), init has not the patience of a recovery."""
    cluster: Any = Gone()
    world = World(cluster, SystemClock(), lambda _: None, lambda: cluster)
    interpreter = Interpreter(make_spec(), world)
    interpreter.task = Task(make_spec(), state=State.STOPPED, left_due=True)
    assert isinstance(interpreter.advance(on.Revoked()), do.Release | None)
    assert (interpreter.task.state, cluster.patience) == (State.RELEASED, [LEAVING_INIT_TIMEOUT_S])


def test_a_setting_that_cannot_be_used_stops_the_task_and_not_its_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new client reads the files of certificates, which may be replaced at that moment; the task is tried again."""
    cluster: Any = Gone()

    def refuse(*_: object, **__: object) -> None:
        raise ConfigError("ssl.key.location: 'key.pem' is not the key of 'certificate.pem'")

    cluster.session = refuse
    interpreter = Interpreter(make_spec(), World(cluster, SystemClock(), lambda _: None, lambda: cluster))
    monkeypatch.setattr(Gate, "wait", lambda _, delay_s: None)
    effect = interpreter.advance(on.Assigned())
    assert isinstance(effect, do.Stop)
    assert "is not the key of" in effect.halt.text


def buffer_behind_a_marker() -> Buffer:
    """Two inputs; of the first, one message and a marker behind it are delivered and recorded."""
    buffer = Buffer("alts", (Position("left", "a", b"", 0), Position("right", "b", b"", 0)))
    buffer.add(Fetched(TopicPartition("a", 0), [at("a", 0)], 2))
    assert [p.offset for p in buffer.cut(5).ends] == [2, 0]
    buffer.add(Fetched(TopicPartition("b", 0), [at("b", 0), at("b", 1)], 2))
    return buffer


def at(topic: str, offset: int) -> MemoryMessage:
    """A message."""
    return MemoryMessage(topic, 0, offset, b"k", b"v", None, (0, 0), 0)


def test_a_position_behind_a_marker_stays_there_when_a_batch_is_cut_short() -> None:
    """It went back to the marker, and `verify` said so: a record's position had gone back."""
    buffer = buffer_behind_a_marker()
    steps = buffer.cut(5).steps
    assert [p.offset for p in buffer.ends_before(steps[1:])] == [2, 1]


def test_a_position_behind_a_marker_stays_there_when_more_arrives() -> None:
    """The same, where the next batch takes nothing of that input yet."""
    buffer = buffer_behind_a_marker()
    buffer.add(Fetched(TopicPartition("a", 0), [at("a", 2)], 3))
    buffer.cut(1)
    assert [p.offset for p in buffer.positions] == [3, 0]
    buffer = buffer_behind_a_marker()
    buffer.add(Fetched(TopicPartition("a", 0), [at("a", 2)], 3))
    assert [p.offset for p in buffer.positions] == [2, 0]

"""Single conditions of the shell that hold the guarantee up, each with the shortest run that falls without it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest

from cues_kafka import (
    Codec,
    ConfigError,
    Graph,
    Json,
    Processor,
    RetriableError,
    Retry,
    Source,
    State,
    Store,
    TaskStopped,
    Topic,
)
from cues_kafka.brokers.memory import Faults, MemoryBroker
from cues_kafka.core import effects as do
from cues_kafka.core import events as on
from cues_kafka.core.records import Attempt, Snapshot
from cues_kafka.core.states import transitions as go
from cues_kafka.core.task import Doing, Task
from cues_kafka.graph.declare import CommitPolicy
from cues_kafka.ports.clients import GroupMetadata
from cues_kafka.ports.facts import NewTopic
from cues_kafka.ports.log import Fetched, Position, TopicPartition
from cues_kafka.task import lane
from cues_kafka.task.calling.pairing import Buffer, OutOfOrder
from cues_kafka.task.clock import SystemClock
from cues_kafka.task.gate import Gate
from cues_kafka.task.interpreter import LEAVING_INIT_TIMEOUT_S, Interpreter, World
from cues_kafka.testing.tester import Tester, VirtualClock
from tests.unit.core.world import make_spec
from tests.unit.samples import at, same

IN = TopicPartition("in", 0)
OUT = TopicPartition("out", 0)


class Disturbed(Faults):
    """Calls `disturb(nth)` before the nth request of one kind that the task makes; nothing else goes wrong."""

    def __init__(self, operation: str, disturb: Callable[[int], None]) -> None:
        self._operation = operation
        self.disturb = disturb
        self._seen = 0

    def before(self, operation: str, client: str) -> None:
        """Count, and disturb."""
        if (operation, client) == (self._operation, "g.f.0"):
            self._seen += 1
            self.disturb(self._seen)


def pipe(fn: Callable[..., Any] = same, **options: Any) -> Graph:
    """From `in` to `out`."""
    return Graph("g", Source("in"), Processor(fn, inputs="in", outputs="out", name="f", **options), errors="failed")


def refuse_commits_from(first: int) -> Disturbed:
    """The cluster does not answer them."""

    def disturb(nth: int) -> None:
        if nth >= first:
            raise RetriableError("no broker answers")

    return Disturbed("commit", disturb)


def disturbed_tester(graph: Graph, faults: Disturbed) -> Tester:
    """A tester whose cluster has faults."""
    return Tester(graph, broker=MemoryBroker(clock=VirtualClock(), faults=faults))


# What was fetched and called before a recovery is void (A2, R6)


def test_what_was_called_before_reading_failed_is_thrown_away() -> None:
    """A2: it was committed behind what the recovery read again, and every output came twice."""
    seen: list[int] = []

    def work(n: int) -> int:
        seen.append(n)
        if len(seen) == 1:
            tester._workers[0]._fetching.broken(RetriableError("fetch failed"))
        return n

    tester = Tester(pipe(work))
    tester.send_many("in", [1, 2, 3])

    assert tester.run().values("out") == [1, 2, 3]
    assert len(seen) > 3, "reading did not fail while the function ran"


def test_a_failed_commit_forgets_which_step_was_to_be_called_again() -> None:
    """A2: the message before it took its place, and was told of a first attempt that it never had."""
    calls: list[tuple[int, int]] = []

    def work(n: int, step: Any) -> int:
        calls.append((n, step.attempt))
        if (n, step.attempt) == (2, 0) and calls.count((2, 0)) <= 2:
            raise OSError("later")
        return n

    def disturb(nth: int) -> None:
        if nth == 3:  # after the start's record and the snapshot: what was delivered before the retry
            raise RetriableError("no answer")

    tester = disturbed_tester(pipe(work, retry=Retry(on=(OSError,))), Disturbed("commit", disturb))
    tester.send_many("in", [1, 2])
    tester.run()

    assert calls == [(1, 0), (2, 0), (1, 0), (2, 0), (2, 1)]


def test_an_error_that_names_no_partition_sends_every_task_back() -> None:
    """A2: the reader is silent afterwards, and the tasks would wait without end for what it does not bring."""
    tester = Tester(pipe()).run()
    worker = tester._workers[0]
    buffer = worker.lanes[0].buffer
    worker._fetching.broken(RetriableError("all brokers are down"))

    assert worker.lanes[0].buffer is not buffer


def test_a_reader_that_went_wrong_brings_nothing_more_until_it_is_pointed_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A2: each poll during the recovery would fail the task once more, until it gives up (R7)."""
    tester = Tester(pipe())
    tester.send("in", 1)
    worker = tester.run()._workers[0]
    monkeypatch.setattr(worker._fetching.reader, "poll", lambda _: [Fetched(IN, [at("in", 0)], 1)])
    assert worker._fetching._routes
    worker._fetching._fetch()

    assert not worker._fetching._routes


def test_a_reader_is_not_pointed_for_a_recovery_that_was_followed_by_another() -> None:
    """A2: the task would be given messages from a position that its newest recovery has left behind."""
    tester = Tester(pipe())
    tester.send("in", 1)
    worker = tester.run()._workers[0]
    lane = worker.lanes[0]
    stale = Buffer("single", lane.task.positions)
    worker._fetching._commands.append((lane, lane.task.positions, stale))
    worker._fetching._obey()

    assert {buffer for _, buffer in worker._fetching._routes.values()} == {lane.buffer}


@pytest.mark.parametrize("again", [2, 4, 5])
def test_a_message_below_the_place_of_the_reader_is_refused(again: int) -> None:
    """A2: a client that repeats what it had fetched before an assign would have it delivered twice."""
    buffer = Buffer("single", (Position("in", "in", b"", 4),))
    if again >= 4:
        buffer.add(Fetched(IN, [at("in", 4), at("in", 5)], None))
    with pytest.raises(OutOfOrder, match=f"gave {again} to {again}"):
        buffer.add(Fetched(IN, [at("in", again)], None))


def test_a_topic_that_was_made_anew_beside_a_worker_stops_its_task() -> None:
    """R6: the new topic would be read on by the old offsets, and its first messages left out without a word."""
    tester = Tester(pipe())
    tester.send("in", 1)
    worker = tester.run()._workers[0]
    tester.broker.delete(["in"])
    tester.broker.create([NewTopic("in", 1)])
    worker._questions.compare_topic_ids()

    [stopped] = worker.stopped()
    assert "recreated" in stopped.halt.text


def test_a_changelog_that_was_recreated_beside_a_worker_stops_its_task() -> None:
    """R4b: what the task adds there would look like all of its entries to the next one."""

    def count(_: Any, counts: State[int]) -> None:
        counts["all"] = counts.get("all", 0) + 1

    processor = Processor(count, inputs="in", state={"counts": Store(Json(int))})
    tester = Tester(Graph("g", Source("in"), processor, defaults=Topic(value=Json())))
    tester.send("in", 1)
    worker = tester.run()._workers[0]
    worker._questions.compare_topic_ids()
    assert not list(worker.stopped())
    tester.broker.delete(["g.count.counts.changelog"])
    tester.broker.create([NewTopic("g.count.counts.changelog", 1)])
    worker._questions.compare_topic_ids()

    [stopped] = worker.stopped()
    assert "has no entries, and the task's record says that step 1 wrote there" in stopped.halt.text


# Retries, batches


def test_a_message_behind_a_retried_one_has_a_time_and_attempts_of_its_own() -> None:
    """It inherited those of the message before it, and became an error at its first failure."""
    calls: list[tuple[int, int]] = []

    def work(n: int, step: Any) -> int:
        calls.append((n, step.attempt))
        if step.attempt < 6:
            raise OSError("later")
        return n

    tester = Tester(pipe(work, retry=Retry(on=(OSError,), for_s=5, then="error")))
    tester.send_many("in", [1, 2])
    tester.run()

    assert calls == [(n, attempt) for n in (1, 2) for attempt in range(7)]


def test_a_transaction_ends_when_it_has_the_bytes_of_the_commit_policy() -> None:
    """P1: under the first snapshot and after it, large messages would make transactions of any size."""
    tester = Tester(pipe(), policy=CommitPolicy(max_bytes=1))
    tester.send_many("in", [1, 2, 3, 4, 5])
    records = tester.run().records("f")

    chunks = [record.batch.deliveries for record in records if isinstance(record, Attempt)]
    assert chunks == [1, 2, 2], "the size is looked at behind each chunk, and chunks grow"


def test_what_is_put_back_twice_comes_again_in_its_first_order() -> None:
    """I7: another message would be called under the step number of one that a retry has put off."""
    left, right = TopicPartition("a", 0), TopicPartition("b", 0)
    buffer = Buffer("alts", (Position("left", "a", b"", 0), Position("right", "b", b"", 0)))
    buffer.add(Fetched(left, [at("a", 0), at("a", 1)], None))
    buffer.add(Fetched(right, [at("b", 0), at("b", 1)], None))
    steps = buffer.cut(4).steps
    buffer.put_back(steps[2:])
    buffer.put_back(steps[1:2])
    buffer.add(Fetched(left, [at("a", 2)], None))

    again = [*buffer.cut(4).steps, *buffer.cut(4).steps]
    assert again[:3] == steps[1:]


def test_pairs_that_are_put_back_stay_pairs() -> None:
    """O3: a batch that ends early would leave the second input's messages out, and pair all later ones wrongly."""
    left, right = TopicPartition("a", 0), TopicPartition("b", 0)
    buffer = Buffer("join", (Position("left", "a", b"", 0), Position("right", "b", b"", 0)))
    buffer.add(Fetched(left, [at("a", 0), at("a", 1), at("a", 2)], None))
    buffer.add(Fetched(right, [at("b", 0), at("b", 1), at("b", 2)], None))
    steps = buffer.cut(3).steps

    assert [p.offset for p in buffer.ends_before(steps[1:])] == [1, 1]
    assert buffer.cut(3).steps == steps[1:]


# What is called ahead (P7)


@pytest.mark.parametrize(("effects", "ahead"), [(True, 0), (False, 1)])
def test_a_function_with_effects_is_never_called_ahead_of_a_commit(effects: bool, ahead: int) -> None:
    """The commit may fail, and the effect on a message that another owner gets then is there."""
    called: list[int] = []
    early: list[int] = []

    def disturb(nth: int) -> None:
        before = len(called)
        tester._workers[0].call_once()
        early.append(len(called) - before)

    def work(n: int) -> int:
        called.append(n)
        return n

    graph, faults = pipe(work, effects=effects), Disturbed("commit", disturb)
    tester = Tester(
        graph, broker=MemoryBroker(clock=VirtualClock(), faults=faults), policy=CommitPolicy(max_messages=1)
    )
    for n in range(5):
        tester.send("in", n)
    tester.run()

    assert called == tester.values("out") == [*range(5)]
    assert max(early) == ahead
    assert len(early) == len(tester.records("f")) > 5


class Silent(Codec):
    """Asks something that does not answer while `silent` is true."""

    silent = False

    def encode(self, value: Any) -> bytes:
        """Text."""
        return str(value).encode()

    def decode(self, data: bytes) -> Any:
        """An outage, or a number."""
        if self.silent:
            raise RetriableError("the key server does not answer")
        return int(data)


def test_an_outage_during_a_call_ahead_sends_the_task_back_when_the_commit_is_through() -> None:
    """It ended the worker, and every task of its processor with it."""
    codec = Silent()

    def disturb(nth: int) -> None:
        codec.silent = nth == 4
        tester._workers[0].call_once()
        codec.silent = False

    graph = Graph(
        "g",
        Source("in"),
        Processor(same, inputs="in", outputs="out", name="f"),
        topics={"in": Topic(value=codec)},
        errors="failed",
    )
    broker = MemoryBroker(clock=VirtualClock(), faults=Disturbed("commit", disturb))
    tester = Tester(graph, broker=broker, policy=CommitPolicy(max_messages=1))
    for n in range(6):
        tester.send("in", n)
    tester.run()

    steps = [(type(record), record.step) for record in tester.records("f")]
    assert steps[3:5] == [(Attempt, 2), (Snapshot, 2)], "the fourth commit is through, and a recovery follows"
    assert tester.values("out") == [*range(6)]
    assert tester.errors() == []


# Revocations (A3, Q1), and stopped tasks


def test_a_revocation_stops_nothing_that_has_sent_its_offsets() -> None:
    """A3: it aborted what was almost committed, so that every rebalance cost the work of every task."""

    def disturb(nth: int) -> None:
        if nth == 2:  # the snapshot's
            tester._workers[0].lanes[0].interpreter.gate.close()

    tester = disturbed_tester(pipe(), Disturbed("produce", disturb))
    tester.send("in", 1)
    tester.run()._workers[0].on_revoke([0])

    newest = tester.records("f")[-1]
    assert isinstance(newest, Snapshot)
    assert newest.left


def test_left_is_said_under_the_generation_that_has_begun() -> None:
    """Q1: the group refuses the former one, so every cooperative rebalance would count as a death."""

    def work(n: int) -> int:
        worker = tester._workers[0]
        published = worker._membership.published
        worker._membership.published = published._replace(generation=published.generation - 1)
        worker.on_revoke([0])
        return n

    tester = Tester(pipe(work))
    tester.send("in", 1)
    newest = tester.run().records("f")[-1]

    assert isinstance(newest, Snapshot)
    assert newest.left


def test_a_stopped_task_leaves_no_transaction_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """P8: who reads its output topics would wait behind it, until the transaction timed out."""
    monkeypatch.setattr(go, "MAX_ROUNDS", 0)
    tester = disturbed_tester(pipe(), refuse_commits_from(3))
    tester.send("in", 1)
    with pytest.raises(TaskStopped, match="no broker answers"):
        tester.run()

    out = tester.broker.watermarks([OUT])[OUT]
    assert out.high > 0
    assert out.stable == out.high


def test_a_task_that_an_outage_stops_stays_alone_until_it_has_said_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Q2a: else the death of another task's message would count on the step that it has announced."""
    monkeypatch.setattr(go, "MAX_ROUNDS", 0)
    lanes: list[lane.Lane] = []

    def work(n: int) -> int:
        lanes.append(tester._workers[0].lanes[0])
        if len(lanes) == 1:
            tester.kill()
        return n

    tester = disturbed_tester(pipe(work), refuse_commits_from(4))
    tester.send("in", 1)
    assert tester.run_to_death()
    with pytest.raises(TaskStopped, match="no broker answers"):
        tester.restart().run()
    stopped = lanes[-1]
    assert stopped.task.left_due
    assert not stopped._alone.enter("another task", tester.clock.monotonic())
    stopped.lose()
    assert stopped._alone.enter("another task", tester.clock.monotonic())


def test_a_stopped_task_that_owes_left_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Q1: given up as if it had nothing to say, it was counted as a death at the next start."""
    monkeypatch.setattr(go, "MAX_ROUNDS", 0)
    monkeypatch.setattr(lane, "RECOVERY_PATIENCE_S", 0.0)
    faults = refuse_commits_from(3)
    tester = disturbed_tester(pipe(), faults)
    worker = tester.run()._workers[0]
    tester.send("in", 1)
    with pytest.raises(TaskStopped, match="no broker answers"):
        tester.run()
    faults.disturb = lambda _: None
    stopped = worker.lanes[0]
    assert (stopped.task.state, stopped.task.left_due) == (Doing.STOPPED, True)

    held = threading.Event()

    def hold() -> None:
        with stopped.interpreter.lock:
            held.set()
            stopped.interpreter.gate._event.wait(10)
            threading.Event().wait(0.05)  # a task without patience gives up meanwhile

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait(10)
    stopped.revoke(60)
    holder.join()

    newest = tester.records("f")[-1]
    assert isinstance(newest, Snapshot)
    assert newest.left


@pytest.mark.parametrize("state", [Doing.STOPPED, Doing.DISCARDING])
def test_a_task_that_owes_left_fences_no_successor_once_its_worker_is_out_of_the_group(
    state: Doing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Q1, A4: the group refuses its `left`, and its partition may have another owner by now."""

    def refuse(nth: int) -> None:
        if nth == 3:
            if state is Doing.DISCARDING:  # a task whose gate is closed recovers no further
                task.interpreter.gate.close()
            raise RetriableError("no broker answers")

    monkeypatch.setattr(go, "MAX_ROUNDS", 0 if state is Doing.STOPPED else go.MAX_ROUNDS)
    tester = disturbed_tester(pipe(), Disturbed("commit", refuse))
    worker = tester.run()._workers[0]
    task = worker.lanes[0]
    tester.send("in", 1)
    with pytest.raises(TaskStopped, match="no broker answers") if state is Doing.STOPPED else nullcontext():
        tester.run()
    assert (task.task.state, task.task.left_due) == (state, True)
    successor = tester.broker.session("g.f.0")
    successor.init(timeout_s=1)
    monkeypatch.setattr(worker._membership.member, "metadata", lambda: GroupMetadata("g.f", -1))

    worker.on_revoke([0])

    assert task.task.state is Doing.RELEASED
    successor.begin()
    successor.produce([("out", 0, None, b"1", None, 0)])
    assert successor.commit() is None
    successor.close()


def test_a_task_that_stops_again_and_again_waits_longer_each_time() -> None:
    """Each try takes the id and reads the backing topic: a cause that stays would be tried without end, each second."""

    def refuse(_: Any) -> None:
        raise ValueError("no")

    graph = Graph("g", Source("in"), Processor(refuse, inputs="in", name="f"))
    tester = Tester(graph)
    tester.send("in", 1)
    waits: list[float] = []
    tester._start()
    [worker] = tester._workers
    while len(waits) < 3:
        worker.poll_once()
        worker.call_once()
        lane = worker.lanes.get(0)
        if lane and lane.stopped and (wake := lane.wake_at_s):
            waits.append(wake - tester.clock.monotonic())
            tester.clock.advance(waits[-1])

    assert waits == pytest.approx([1, 2, 4], abs=0.1)


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


def test_the_first_batch_after_a_start_keeps_to_the_commit_policy() -> None:
    """It took 500 steps whatever they cost, so that a slow function never committed between two restarts."""
    tester = Tester(
        Graph("g", Source("in"), Processor(same, inputs="in", outputs="out")), policy=CommitPolicy(max_messages=3)
    )
    tester.send_many("in", list(range(10)))
    tester.run()
    assert [r.steps for r in tester.records("same") if isinstance(r, Snapshot)] == [3]


class Gone:
    """A cluster that never answers, as broker and session of it."""

    def __init__(self) -> None:
        self.patience: list[float] = []

    def session(self, _: str, *, batch_bytes: int | None = None, brief: bool = False) -> Gone:
        """Made without asking a broker."""
        return self

    def init(self, timeout_s: float) -> None:
        """Waits without success."""
        self.patience.append(timeout_s)
        raise RetriableError("no broker answers")

    def abandon(self) -> None:
        """Nothing to close."""


def test_a_stopped_task_that_owes_left_does_not_hold_up_a_shutdown_in_an_outage() -> None:
    """Where only `left` remains to be said (Q1), init has not the patience of a recovery."""
    cluster: Any = Gone()
    world = World(cluster, SystemClock(), lambda _: None, lambda: cluster)
    interpreter = Interpreter(make_spec(), world)
    interpreter.task = Task(make_spec(), state=Doing.STOPPED, left_due=True)
    assert isinstance(interpreter.advance(on.Revoked()), do.Release | None)
    assert (interpreter.task.state, cluster.patience) == (Doing.RELEASED, [LEAVING_INIT_TIMEOUT_S])


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

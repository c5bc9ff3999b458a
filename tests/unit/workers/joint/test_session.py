"""One session for the tasks of a process (J1 to J7), in workers with threads on the reference broker."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from cues_kafka import Graph, Json, Memory, Message, Processor, Running, Source, TaskStopped, Topic, start
from cues_kafka.brokers.memory import Faults, MemoryBroker
from cues_kafka.core.task import Doing
from cues_kafka.errors import RetriableError
from cues_kafka.workers.joint.session import JointSession
from tests.unit.workers.test_lost_rights import until

TASKS = 4


class Counted(Faults):
    """Counts the requests under each id; `wrong` says what happens to the nth commit, before or after it."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, str]] = Counter()
        self.before_commit: Callable[[int], None] = lambda _: None
        self.after_commit: Callable[[int], str | None] = lambda _: None
        self.commits = 0
        self._lock = threading.Lock()

    def before(self, operation: str, client: str) -> None:
        """Count, and refuse."""
        with self._lock:
            self.requests[operation, client] += 1
            self.commits += operation == "commit"
        if operation == "commit":
            self.before_commit(self.commits)

    def after(self, operation: str, client: str) -> str | None:
        """Doubt."""
        return self.after_commit(self.commits) if operation == "commit" else None

    def clients(self, operation: str) -> set[str]:
        """The ids under which this was asked."""
        return {client for asked, client in self.requests if asked == operation}


def graph_of(function: Callable[..., Any]) -> Graph:
    """A pipe with several tasks."""
    return Graph(
        "g",
        Source("in"),
        Processor(function, inputs="in", outputs="out", name="f"),
        errors="failed",
        defaults=Topic(value=Json(int), partitions=TASKS),
    )


def same(n: int) -> int:
    """What goes in comes out."""
    return n


def on(broker: MemoryBroker, **options: Any) -> Memory:
    """A cluster whose broker other workers have, too."""
    memory = Memory(sessions=1, **options)
    memory.held.append(broker)
    return memory


def send(running: Running, numbers: range) -> None:
    """Number n goes to partition n modulo the count."""
    for n in numbers:
        running.send("in", Message(n, partition=n % TASKS))


def delivered(running: Running) -> list[int]:
    """All outputs, sorted."""
    running.wait_idle(timeout_s=20)
    return sorted(int(message.value) for message in running.messages("out"))


def test_the_tasks_of_a_process_write_under_the_id_of_one_of_them() -> None:
    """J1, J2: the other ids are taken for a moment when their tasks recover, and nothing is written under them."""
    faults = Counted()
    with start(graph_of(same), on(MemoryBroker(faults=faults))) as running:
        send(running, range(20))

        assert delivered(running) == list(range(20))
    assert faults.clients("init") == {f"g.f.{p}" for p in range(TASKS)}
    [writer] = faults.clients("commit")
    assert faults.clients("produce") == faults.clients("offsets") == {writer}


def test_tasks_are_ready_while_they_commit() -> None:
    """Under load one of them nearly always commits. A task that commits its recovery is not ready yet."""
    faults, seen = Counted(), list[tuple[bool, bool]]()
    with start(graph_of(same), on(MemoryBroker(faults=faults))) as running:
        lanes = running._workers[0].lanes

        def look(_: int) -> None:
            committing = [lane for lane in lanes.values() if lane.task.state is Doing.COMMITTING]
            seen.extend((lane.task.then is Doing.ASSIGNING, lane.delivers) for lane in committing)

        faults.before_commit = look
        send(running, range(8))

        assert delivered(running) == list(range(8))
        assert len(seen) >= TASKS
        assert all(ready is not recovers for recovers, ready in seen)


def test_a_round_that_fails_sends_all_of_its_tasks_back_and_doubles_nothing() -> None:
    """J4: each of them recovers under a session with a new epoch."""
    faults = Counted()

    def refuse(nth: int) -> None:
        if nth in (2, 4):
            raise RetriableError("no answer")

    faults.before_commit = refuse
    with start(graph_of(same), on(MemoryBroker(faults=faults))) as running:
        send(running, range(40))

        assert delivered(running) == list(range(40))
        assert faults.commits > 4
        assert not running.status().stopped


def test_a_commit_without_its_answer_is_looked_up_by_all_of_its_tasks() -> None:
    """J4, P8: what was committed is not delivered again."""
    faults = Counted()

    def lose(nth: int) -> str | None:
        if nth in (2, 3):
            raise RetriableError("the reply is lost")
        return None

    faults.after_commit = lose
    with start(graph_of(same), on(MemoryBroker(faults=faults))) as running:
        send(running, range(40))

        assert delivered(running) == list(range(40))


def test_behind_a_suspect_commit_the_session_is_another_one_and_no_task_recovers() -> None:
    """J4: the commit was answered, and what comes late meets another epoch."""
    faults = Counted()
    with start(graph_of(same), on(MemoryBroker(faults=faults))) as running:
        before = sum(count for (asked, _), count in faults.requests.items() if asked == "committed")
        faults.after_commit = lambda nth: "slow"
        send(running, range(8))

        assert delivered(running) == list(range(8))
        assert sum(count for (asked, _), count in faults.requests.items() if asked == "committed") == before
    [writer] = faults.clients("commit")
    assert faults.requests["init", writer] > 1


def test_a_task_that_stops_leaves_the_others_alone() -> None:
    """J7: without an errors topic its exception stops it; the others go on under the same session."""

    def fussy(n: int) -> int:
        if n == 5:
            raise ValueError("five")
        return n

    graph = Graph(
        "g",
        Source("in"),
        Processor(fussy, inputs="in", outputs="out", name="f"),
        defaults=Topic(value=Json(int), partitions=TASKS),
    )
    running = start(graph, on(MemoryBroker(faults=Counted())))
    try:
        send(running, range(20))
        with pytest.raises(TaskStopped, match="five"):
            running.wait_idle(timeout_s=20)
        wanted = sorted([1, *(n for n in range(20) if n % TASKS != 1)])
        until(running, lambda: sorted(int(message.value) for message in running.messages("out")) == wanted)
    finally:
        running.abandon()


def test_tasks_that_go_to_another_worker_and_back_lose_nothing() -> None:
    """J5: the session gives its id up in order, and the other tasks go on under the next one."""
    broker = MemoryBroker(faults=Counted())
    with start(graph_of(same), on(broker)) as first:
        send(first, range(20))
        for nth in range(1, 4):
            with start(graph_of(same), on(broker)) as second:
                send(first, range(20 * nth, 20 * nth + 20))
                second.wait_idle(timeout_s=20)

        assert delivered(first) == list(range(80))
        assert not first.status().stopped


def test_a_session_that_lost_its_thread_ends_its_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """No task would commit again, and the worker would look alive."""

    def broken(_: JointSession) -> bool:
        raise ValueError("planted")

    def run() -> None:
        with start(graph_of(same), on(MemoryBroker())) as running:
            send(running, range(4))
            running.wait_idle(timeout_s=20)
            monkeypatch.setattr(JointSession, "work", broken)
            send(running, range(4, 8))
            running.wait_idle(timeout_s=20)

    with pytest.raises(TaskStopped, match="planted"):
        run()

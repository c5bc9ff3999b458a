"""Timers fire once, in their place, whatever crashes: each schedule is compared with plain Python (F1 to F4)."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cues_kafka import (
    Graph,
    GraphError,
    Handler,
    Json,
    Memory,
    Message,
    Out,
    Processor,
    Retry,
    Source,
    State,
    StateHandler,
    Step,
    Store,
    Timer,
    Timers,
    Topic,
    Tumbling,
    start,
)
from cues_kafka.core.records import Snapshot
from cues_kafka.graph.declare import CommitPolicy
from cues_kafka.running.running import Running
from cues_kafka.task.alone import ASK_AGAIN_S
from cues_kafka.task.calling.outputs import Now
from cues_kafka.task.parts.timers import Timing
from cues_kafka.testing.tester import Crash, Tester
from cues_kafka.verify.scan import verify
from tests.examples import examples

MOMENTS = st.sampled_from(["before", "after"])
EFFECTS = st.sampled_from(["Call", "Begin", "Produce", "Flush", "Commit", "Init", "AssignReader", "ReadNewest"])
CRASHES = st.lists(st.none() | st.builds(Crash, MOMENTS, EFFECTS, st.integers(1, 3)), min_size=1, max_size=4)
MESSAGES = st.lists(
    st.tuples(
        st.sampled_from(["set", "set", "unset", "bad", "nil"]),
        st.sampled_from(["a", "b", "n", "again"]),
        st.integers(3, 9),
        st.integers(-2, 5),
    ),
    max_size=10,
)
"""What a message says: what to do, the key, its timestamp, and how much later the timer is due."""

LAST = 12
"""Up to this time a timer sets the next one."""


def on_message(said: list[Any], counts: State[int], step: Step) -> str | None:
    """Sets or removes a timer, and counts."""
    what, key, made, later = said
    counts[key] = counts.get(key, 0) + 1
    if what == "unset":
        return f"{key} {step.unschedule(key, at=made + later)}"
    step.schedule(key, at=made + later)
    if what == "bad":
        raise ValueError(key)
    return None if what == "nil" else f"{key} {counts[key]} {step.time_ms}"


def on_timer(timer: Timer, counts: State[int], step: Step) -> str | None:
    """Counts, and fails, says nothing, or sets the next timer."""
    counts["fired"] = counts.get("fired", 0) + 1
    assert timer.hash == step.hash
    if timer.key == "again" and timer.due_ms < LAST:
        step.schedule("again", at=timer.due_ms + 3)
    if timer.key == "b":
        raise ValueError(timer.due_ms)
    return None if timer.key == "n" else f"{timer.key}@{timer.due_ms} {counts['fired']}"


class Plain:
    """The same in plain Python, by the rules."""

    def __init__(self) -> None:
        self.time = 0
        self.counts: dict[str, int] = {}
        self.timers: set[tuple[int, str]] = set()
        self.out: list[str] = []
        self.errors: list[str] = []
        self.fired = 0

    def take(self, said: Sequence[Any]) -> None:
        """One message, and then all timers that are due."""
        what, key, made, later = said
        if what == "bad":
            self.errors.append(key)
            return
        self.time = max(self.time, made)
        self.counts[key] = self.counts.get(key, 0) + 1
        timer = (made + later, key)
        if what == "unset":
            self.out.append(f"{key} {timer in self.timers}")
            self.timers.discard(timer)
        else:
            self.timers.add(timer)
            self.out += [f"{key} {self.counts[key]} {self.time}"] if what == "set" else []
        while self.timers and min(self.timers)[0] <= self.time:
            self._fire(*min(self.timers))

    def _fire(self, due: int, key: str) -> None:
        self.timers.remove((due, key))
        self.fired += 1
        if key == "b":
            self.errors.append(str(due))
            return
        self.counts["fired"] = self.counts.get("fired", 0) + 1
        if key == "again" and due < LAST:
            self.timers.add((due + 3, key))
        self.out += [] if key == "n" else [f"{key}@{due} {self.counts['fired']}"]


def graph_of(**settings: Any) -> Graph:
    """One processor with a store and timers."""
    state = {"counts": Store(Json(int)), "timers": Timers(on_timer)}
    given: dict[str, Any] = {"inputs": "in", "outputs": "out", "errors": "bad", "state": state}
    topic = settings.pop("topic", Topic(value=Json(), partitions=1))
    return Graph("g", Source("in"), Processor(on_message, **(given | settings)), defaults=topic)


def timers_of(tester: Tester) -> set[tuple[int, str]]:
    """The timers that are set."""
    return {(due_ms, key) for key, due_ms in tester.state("timers")}


@examples(60)
@given(rounds=st.lists(st.tuples(MESSAGES, CRASHES), max_size=3), most=st.sampled_from([1, 2, 3, 100]))
def test_timers_fire_as_in_plain_python(rounds: list[tuple[list[Any], list[Crash | None]]], most: int) -> None:
    """In the same order among the messages, however these are cut into batches and whatever crashes."""
    tester, plain = Tester(graph_of(), policy=CommitPolicy(max_messages=most)), Plain()
    for messages, crashes in rounds:
        for said in messages:
            tester.send("in", Message(said, timestamp_ms=said[2]))
            plain.take(said)
        for crash in crashes:
            tester.restart().run(crash=crash)
    tester.restart().run()
    errors = tester.errors()
    if any(error.kind == "quarantine" for error in errors):
        return
    assert tester.values("out") == plain.out
    assert [error.text for error in errors] == plain.errors
    assert tester.state("counts") == plain.counts
    assert timers_of(tester) == plain.timers
    totals = tester.totals("on_message")
    assert (totals.timers, totals.deliveries) == (plain.fired, plain.fired + sum(len(one) for one, _ in rounds))
    outcomes = tester.outcomes("on_message")
    assert len(outcomes) == totals.outputs + totals.errors
    tester.stop()
    report = verify(tester.graph, tester.broker, state=True)
    assert report.ok, str(report)
    assert report["on_message"].entries == len(plain.counts) + len(plain.timers)


def test_an_announced_batch_ends_where_a_timer_is_due() -> None:
    """So the batch behind it, which announces the timer, is another one (F3)."""
    tester = Tester(graph_of())
    for made in (1, 2, 3):
        tester.send("in", Message(["set", "a", made, 1], timestamp_ms=made))
    tester.run()

    first, *others = [record for record in tester.records("on_message") if type(record).__name__ == "Attempt"]
    assert (first.batch.deliveries, first.batch.timers) == (2, 0)
    assert sum(record.batch.timers for record in others) == 2
    assert tester.values("out") == ["a 1 1", "a 2 2", "a@2 1", "a 3 3", "a@3 2"]


def test_a_restarted_task_announces_its_due_timers() -> None:
    """A crash behind the commit that made them due leaves them to the next process."""
    tester = Tester(graph_of())
    for key in ("a", "c"):
        tester.send("in", Message(["set", key, 5, 0], timestamp_ms=5))
    tester.run(crash=Crash("after", "Commit", 3))  # of the start, of the snapshot, of the first step
    assert tester.crashed

    tester.restart().run()

    announced = [r for r in tester.records("on_message") if isinstance(r, Snapshot) and r.timers]
    assert [(record.steps, record.ends == record.positions) for record in announced] == [(1, True)]
    assert tester.values("out") == ["a 1 5", "a@5 1", "c 1 5", "c@5 2"]


def test_a_timer_that_kills_its_process_becomes_an_error_message() -> None:
    """After the stated deaths it is alone in its transaction, and then taken out; the others go on (F3, Q3)."""
    tester: Tester

    def deadly(timer: Timer) -> str:
        if timer.key == "k":
            tester.kill()
        return timer.key

    tester = Tester(graph_of(state={"counts": Store(Json(int)), "timers": Timers(deadly)}))
    for key in ("j", "k", "l"):
        tester.send("in", Message(["set", key, 5, 3], timestamp_ms=5))
    tester.send("in", Message(["nil", "z", 8, 9], timestamp_ms=8))
    deaths = 0
    while tester.run_to_death():
        deaths += 1

    [error] = tester.errors()
    assert (error.kind, error.context["timer.key"], error.starts) == ("quarantine", "k", 3)
    assert [one for one in tester.values("out") if len(one) == 1] == ["j", "l"]
    assert tester.totals("on_message").timers == 3
    assert deaths <= 7


def test_a_timer_is_called_again() -> None:
    """A step that is to be called again keeps its timer and its place; the same step gets the same hash (F4)."""
    hashes: list[str] = []

    def flaky(timer: Timer, step: Step) -> str:
        hashes.append(step.hash)
        if len(hashes) < 3:
            raise OSError("not yet")
        return f"{timer.key} {step.attempt}"

    tester = Tester(graph_of(state={"counts": Store(Json(int)), "timers": Timers(flaky)}, retry=Retry(on=(OSError,))))
    for made in (1, 2, 3):
        tester.send("in", Message(["set", "a", made, 0 if made == 2 else 90], timestamp_ms=made))
    tester.run()

    assert tester.values("out") == ["a 1 1", "a 2 2", "a 2", "a 3 3"]
    assert len(hashes) == 3
    assert len(set(hashes)) == 1


def test_a_message_that_is_called_again_keeps_its_attempts_behind_a_timer() -> None:
    """By the clock a timer may become due in the pause before the next attempt; it has attempts of its own."""
    attempts: list[tuple[str, int]] = []

    def flaky(due_ms: int, step: Step) -> None:
        attempts.append(("message", step.attempt))
        if due_ms:
            step.schedule("a", at=due_ms)
        elif len(attempts) < 4:
            tester.clock.advance(60)
            raise OSError("not yet")

    def ring(timer: Timer, step: Step) -> None:
        attempts.append((timer.key, step.attempt))

    state = {"timers": Timers(ring, by="clock")}
    processor = Processor(flaky, inputs="in", state=state, errors="bad", retry=Retry(on=(OSError,)))
    tester = Tester(Graph("g", Source("in"), processor, defaults=Topic(value=Json(), partitions=1)))
    for value in (int(tester.clock.time() * 1000) + 30_000, 0):
        tester.send("in", value)
    tester.run()

    assert attempts == [("message", 0), ("message", 0), ("a", 0), ("message", 1)]


def test_many_due_timers_are_several_transactions() -> None:
    """A batch takes no more timers than messages, and a commit that is asked for ends it."""

    def asks(timer: Timer, step: Step) -> str:
        if timer.key == "k01":
            step.request_commit()
        return timer.key

    state = {"counts": Store(Json(int)), "timers": Timers(asks)}
    tester = Tester(graph_of(state=state), policy=CommitPolicy(max_messages=4))
    for i in range(10):
        tester.send("in", Message(["set", f"k{i:02}", 5, 3], timestamp_ms=5))
    tester.run()
    tester.send("in", Message(["nil", "z", 8, 9], timestamp_ms=8))
    tester.run()

    sizes = [record.batch.timers for record in tester.records("on_message")]
    assert sum(sizes) == 10
    assert max(sizes) <= 4
    assert [one for one in tester.values("out") if " " not in one] == [f"k{i:02}" for i in range(10)]


def test_a_batch_of_timers_ends_at_its_bytes() -> None:
    """As one of messages does."""
    state = {"counts": Store(Json(int)), "timers": Timers(lambda timer: timer.key * 1_000)}
    tester = Tester(graph_of(state=state), policy=CommitPolicy(max_bytes=2_000))
    for key in "abcde":
        tester.send("in", Message(["nil", key, 5, 3], timestamp_ms=5))
    tester.run()
    tester.send("in", Message(["nil", "z", 8, 9], timestamp_ms=8))
    tester.run()

    sizes = [record.batch.timers for record in tester.records("on_message")]
    assert (sum(sizes), max(sizes)) == (5, 2)


def test_a_timer_fires_however_short_a_batch_may_take() -> None:
    """As a message does: each batch has a step at least."""
    tester = Tester(graph_of(), policy=CommitPolicy(max_seconds=1e-9))
    tester.send("in", Message(["nil", "a", 5, 0], timestamp_ms=5))
    tester.run()

    assert tester.values("out") == ["a@5 1"]


def test_a_task_that_is_lost_between_two_timers_leaves_them_to_the_next_owner() -> None:
    """User code of a lost task may still run; what it does is void, and its worker goes on (R6)."""
    tester: Tester
    lost: list[str] = []

    def slow(timer: Timer) -> str:
        if not lost:
            lost.append(timer.key)
            for worker in tester._workers:
                for lane in worker.lanes.values():
                    lane.lose()
                    assert lane.wake_at_s is None
        return timer.key

    tester = Tester(graph_of(state={"counts": Store(Json(int)), "timers": Timers(slow)}))
    for key in ("a", "b"):
        tester.send("in", Message(["nil", key, 5, 3], timestamp_ms=5))
    tester.send("in", Message(["nil", "z", 8, 9], timestamp_ms=8))
    tester.run()
    assert tester.values("out") == []

    tester.restart().run()
    assert (lost, tester.values("out")) == (["a"], ["a", "b"])


def test_a_timer_sets_only_later_ones() -> None:
    """Else the step of a timer that is set again for the same time would have the same hash (F1)."""

    def again(timer: Timer, step: Step) -> None:
        step.schedule("b" if timer.key == "a" else "a", at=timer.due_ms)

    tester = Tester(graph_of(state={"counts": Store(Json(int)), "timers": Timers(again)}))
    tester.send("in", Message(["nil", "a", 5, 0], timestamp_ms=5))
    tester.run()

    assert [error.text for error in tester.errors()] == ["at=5: the timer of 5 sets only timers that are due after it"]
    assert tester.state("timers") == {}


def test_a_timer_behind_the_year_9999_can_fail() -> None:
    """Its error message has its time in milliseconds; a message from there can make it due."""
    far = 10**17
    config = {"message.timestamp.after.max.ms": str(2**63 - 1)}
    tester = Tester(graph_of(topic=Topic(value=Json(), partitions=1, config=config)))
    tester.send("in", Message(["nil", "b", far, 0], timestamp_ms=far))
    tester.run()

    [error] = tester.errors()
    assert (error.text, error.context["timer.due"]) == (str(far), f"{far} ms")


@pytest.mark.parametrize("due_ms", [253_402_300_800_000, -62_135_596_800_001, 2**62, -(2**62)])
def test_time_of_a_timer_outside_of_the_years_1_to_9999_is_one_error_that_names_it(due_ms: int) -> None:
    """It was `year 55840 is out of range`, or an OverflowError; the timer is named, and what to use instead."""
    with pytest.raises(ValueError, match=f"due_ms={due_ms} of timer 'a' is outside of the years 1 to 9999: use due_ms"):
        _ = Timer("a", due_ms, "").due


def test_time_of_a_timer_is_exact() -> None:
    """Before 1970 and at both ends of the years, to the millisecond."""
    for due_ms, iso in (
        (-1, "1969-12-31T23:59:59.999000+00:00"),
        (253_402_300_799_999, "9999-12-31T23:59:59.999000+00:00"),
        (-62_135_596_800_000, "0001-01-01T00:00:00+00:00"),
    ):
        assert Timer("a", due_ms, "").due.isoformat() == iso


def test_announced_timers_wait_for_a_clock_that_is_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock of the process that announced them was ahead; this one asks from time to time, and not all the time."""
    tester = Tester(graph_of(state={"counts": Store(Json(int)), "timers": Timers(on_timer, by="clock")}))
    now_ms = int(tester.clock.time() * 1000)
    for later in (60_000, 61_000):
        tester.send("in", Message(["nil", "a", now_ms, later], timestamp_ms=1))
    tester.run()
    tester.clock.advance(61)
    tester.restart().run(crash=Crash("after", "Commit", 1))
    assert tester.crashed

    now, announce = tester.clock.time, Timing.announce
    asked: list[float] = []

    def counted(timing: Timing, *args: Any) -> Any:
        asked.append(now())
        return announce(timing, *args)

    monkeypatch.setattr(tester.clock, "time", lambda: now() - 0.5)
    monkeypatch.setattr(Timing, "announce", counted)
    tester.restart().run()

    assert len(tester.values("out")) == 2
    assert 2 <= len(asked) <= 0.5 / ASK_AGAIN_S + 5


def test_timers_by_the_clock_fire_without_messages() -> None:
    """Once, when their time has come; until then the task is idle."""
    state = {"counts": Store(Json(int)), "timers": Timers(on_timer, by="clock")}
    graph = graph_of(state=state)
    tester = Tester(graph)
    soon_ms = int(tester.clock.time() * 1000) + 60_000
    tester.send("in", Message(["set", "a", soon_ms, 0], timestamp_ms=1))
    tester.run()
    assert len(tester.values("out")) == 1

    tester.restart().run()
    assert len(tester.values("out")) == 1
    tester.clock.advance(60)
    tester.run().run()

    assert tester.values("out")[1:] == [f"a@{soon_ms} 1"]
    assert tester.state("timers") == {}


def test_a_timer_gets_what_its_function_asks_for() -> None:
    """Options, and several outputs of a generator; it has no inputs, and a place of its own in the log."""

    def several(timer: Timer, *, greeting: str, step: Step) -> Iterator[Out]:
        assert step.inputs == {}
        assert step.timer == timer
        assert timer.due == datetime.fromtimestamp(0.005, UTC)
        yield Out("out", f"{greeting} {timer.key}")
        yield Out("also", {"due": timer.due_ms})

    def sets(said: list[Any], step: Step) -> dict[str, Any]:
        step.schedule("a", at=datetime.fromtimestamp(0.005, UTC))
        return {"out": "set"}

    processor = Processor(
        sets, inputs="in", outputs={"out": "out", "also": "also"}, state={"t": Timers(several)}, opts={"greeting": "hi"}
    )
    tester = Tester(Graph("g", Source("in"), processor, defaults=Topic(value=Json(), partitions=1)))
    tester.send("in", Message([], key="m", timestamp_ms=7))
    tester.run()

    [_, fired] = tester.messages("out")
    assert (fired.value, fired.key, fired.timestamp_ms) == ("hi a", "a", 5)
    assert tester.values("also") == [{"due": 5}]


def test_a_timer_set_by_a_join_names_all_its_messages() -> None:
    """So an error message of it says which messages they were."""

    def pair(left: int, right: int, step: Step) -> None:
        step.schedule("p", at=0)

    def fails(timer: Timer) -> None:
        raise ValueError(timer.key)

    processor = Processor(pair, inputs={"left": "l", "right": "r"}, state={"t": Timers(fails)}, errors="bad")
    tester = Tester(Graph("g", Source("l"), Source("r"), processor, defaults=Topic(value=Json(int), partitions=1)))
    for topic in ("l", "r"):
        tester.send(topic, 1)
    tester.run()

    [error] = tester.errors()
    assert [one.binding for one in error.consumed] == ["left", "right"]
    assert error.topics == ("l", "r")


class Own(StateHandler):
    """A handler."""

    def checkpoint(self) -> list[Any]:
        """Nothing."""
        return []

    def reset(self, entries: Any) -> None:
        """Nothing."""


async def later(timer: Timer) -> None:
    """Is awaited."""


def no_first() -> None:
    """Takes nothing."""


def unknown(timer: Timer, nowhere: int) -> None:
    """Asks for what there is not."""


@pytest.mark.parametrize(
    ("state", "settings", "text"),
    [
        ({"a": Timers(on_timer), "b": Timers(on_timer)}, {}, "several Timers"),
        ({"t": Timers(on_timer)}, {"batch": True}, "Timers with batch=True"),
        ({"t": Timers(on_timer), "own": Handler(Own)}, {}, "Timers with a Handler"),
        ({"t": Timers(no_first)}, {}, "no first parameter"),
        ({"t": Timers(unknown)}, {}, "'nowhere' is not defined"),
    ],
)
def test_timers_that_cannot_be_kept_are_refused(state: Any, settings: Any, text: str) -> None:
    """Where they are declared."""
    with pytest.raises(GraphError, match=text):
        Graph("g", Source("in"), Processor(lambda m, **_: None, name="p", inputs="in", state=state, **settings))


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Timers(3), "takes the function"),  # type: ignore[arg-type]
        (lambda: Timers(later), "plain function"),
        (lambda: Timers(on_timer, by="moon"), "'messages'"),  # type: ignore[arg-type]
        (lambda: Tumbling("t", inputs="a", outputs="b", every="soon"), "every='soon'"),
        (lambda: Tumbling("t", inputs="a", outputs="b", every="1 hour", late="never"), "late='never'"),  # type: ignore[arg-type]
        (lambda: Tumbling("t", inputs="a", outputs="b", every="1 hour", by=3), "by=3"),  # type: ignore[arg-type]
    ],
)
def test_wrong_declarations_are_refused(make: Any, text: str) -> None:
    """They say what they take."""
    with pytest.raises(GraphError, match=text):
        make()


@pytest.mark.parametrize("at", [1.5, "now", datetime(2026, 1, 1), 2**63])  # noqa: DTZ001
def test_a_time_that_is_none_fails_the_step(at: Any) -> None:
    """As any other mistake in a function does."""

    def sets(said: Any, step: Step) -> None:
        step.schedule("a", at=at)

    tester = Tester(
        Graph("g", Source("in"), Processor(sets, inputs="in", state={"t": Timers(on_timer_alone)}, errors="e"))
    )
    tester.send("in", {})
    tester.run()

    [error] = tester.errors()
    assert error.exception == "ValueError"


def on_timer_alone(timer: Timer) -> None:
    """Needs nothing."""


def test_a_processor_without_timers_says_how_to_declare_them() -> None:
    """In the function that asks for one."""

    def sets(said: Any, step: Step) -> None:
        step.schedule("a", at=1)

    tester = Tester(Graph("g", Source("in"), Processor(sets, inputs="in", errors="e")))
    tester.send("in", {})
    tester.run()

    [error] = tester.errors()
    assert "Timers(function)" in error.text


def test_a_graph_with_timers_is_written_down_and_read_back() -> None:
    """The function by its name."""
    graph = graph_of()

    again = Graph.from_dict(graph.to_dict())

    assert again.processors["on_message"].state == graph.processors["on_message"].state


@examples(40)
@given(
    times=st.lists(st.tuples(st.integers(1, 40), st.sampled_from("ab")), max_size=20),
    grace=st.integers(1, 12),
    crashes=CRASHES,
)
def test_windows_count_as_plain_python_does(
    times: list[tuple[int, str]], grace: int, crashes: list[Crash | None]
) -> None:
    """A message is late if its window has closed, and each window that has closed gave one count for each key."""
    counter = Tumbling(
        "count", inputs="in", outputs="out", every="10 seconds", grace=f"{grace} seconds", late="error", errors="bad"
    )
    tester = Tester(Graph("g", Source("in"), counter, defaults=Topic(value=Json(), partitions=1)))
    windows: dict[tuple[int, str], int] = {}
    now = 0
    late: list[str] = []
    closed: dict[tuple[int, str], int] = {}
    for made, key in times:
        tester.send("in", Message({}, key=key, timestamp_ms=made * 1000))
        start = made // 10 * 10
        if start + 10 + grace <= max(now, made):
            late.append(key)
            continue
        now = max(now, made)
        windows[start, key] = windows.get((start, key), 0) + 1
        closed |= {one: n for one, n in windows.items() if one[0] + 10 + grace <= now}
    for crash in crashes:
        tester.restart().run(crash=crash)
    tester.restart().run()
    errors = tester.errors()
    if any(error.kind == "quarantine" for error in errors):
        return
    found = {(one["start_ms"] // 1000, one["key"]): one["count"] for one in tester.values("out")}

    assert found == closed
    assert len(tester.values("out")) == len(closed)
    assert [(error.exception, (error.key or b"").decode()) for error in errors] == [
        ("LateMessage", key) for key in late
    ]
    assert len(tester.state("counts")) == len(windows) - len(closed)
    tester.stop()


@pytest.mark.parametrize(("by", "asked"), [("messages", 0), ("clock", 21)])
def test_the_time_of_day_is_asked_behind_each_message_only_where_it_counts(
    monkeypatch: pytest.MonkeyPatch, by: Any, asked: int
) -> None:
    """A graph whose timers go by the messages pays for no clock. One that has one asks before the first, too."""
    asks: list[Now] = []

    def ask(now: Now) -> int:
        asks.append(now)
        return now.since_ms

    tester = Tester(graph_of(state={"counts": Store(Json(int)), "timers": Timers(on_timer, by=by)}))
    monkeypatch.setattr(Now, "__call__", ask)
    for n in range(20):
        tester.send("in", Message(["nil", f"k{n}", 3, 10**12], timestamp_ms=3))
    tester.run()
    assert len(asks) == asked


DAY_MS = 86_400_000


@contextmanager
def skewed(**options: Any) -> Iterator[Running]:
    """One message 30 days ahead of the clock, then ten honest ones, counted by the hour."""
    loose = Topic(value=Json(), partitions=1, config={"message.timestamp.after.max.ms": str(2**63 - 1)})
    counter = Tumbling("count", inputs="in", outputs="out", every="1 hour", **options)
    graph = Graph("g", Source("in"), counter, defaults=loose, errors="bad")
    now_ms = int(time.time() * 1000)
    with start(graph, Memory()) as running:
        running.send("in", Message({}, key="a", timestamp_ms=now_ms + 30 * DAY_MS))
        running.send_many("in", [Message({}, key="a", timestamp_ms=now_ms + number) for number in range(10)])
        running.wait_idle(timeout_s=30)
        yield running


def test_late_messages_of_windows_are_counted() -> None:
    """One wrong clock closed all windows, and `status` said that all is well, without a number."""
    with skewed() as running:
        [task] = running.status().tasks
        assert task.late == 10
        assert "11 delivered, 0 errors, 11 nil, 10 late" in str(task)


def test_bound_on_the_clock_keeps_windows_open() -> None:
    """The message of the wrong clock is an error message, and those behind it are counted."""
    with skewed(ahead="1 hour") as running:
        [task] = running.status().tasks
        assert task.late == 0
        [error] = [one.value for one in running.messages("bad")]
        assert error.exception.endswith("EarlyMessage")
        assert "ahead=3600 s" in error.text
        assert "11 delivered, 1 errors, 10 nil" in str(task)

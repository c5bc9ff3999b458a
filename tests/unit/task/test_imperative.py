"""Imperative processors on the reference broker: tailers, appenders, and what failures leave (S5, L1 to L3)."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar
from unittest.mock import Mock

import pytest

from cues_kafka import (
    Appender,
    CodecError,
    ConfigError,
    FatalError,
    Graph,
    GraphError,
    Handler,
    Interrupt,
    Json,
    Memory,
    Message,
    OutputError,
    Processor,
    RetriableError,
    Retry,
    Source,
    Sql,
    Store,
    Tailer,
    TaskStopped,
    Timers,
    Topic,
)
from cues_kafka.brokers.memory import MemoryBroker
from cues_kafka.core.delivery import HEADER, parse_provenance
from cues_kafka.core.records import Attempt, Snapshot
from cues_kafka.graph.declare import CommitPolicy
from cues_kafka.ports.facts import NewTopic, Watermarks
from cues_kafka.ports.log import Fetched, Position, TopicPartition
from cues_kafka.task.calling.imperative import Line, ends_of
from cues_kafka.task.clock import SystemClock
from cues_kafka.testing.tester import Crash, Tester
from examples import closing
from tests.unit.task.test_handlers import Counts

ONE = Topic(value=Json(), partitions=1)


class Later(Exception):
    """Asks for a retry."""


def graph_of(fn: Any, *more: Any, **settings: Any) -> Graph:
    """One processor between `orders` and `out`, which tails `old` and appends to `archive`."""
    given: dict[str, Any] = {
        "inputs": "orders",
        "outputs": "out",
        "tailers": {"old": "old"},
        "appenders": {"kept": "archive"},
    }
    given = {name: one for name, one in {**given, **settings}.items() if one is not None}
    return Graph("shop", Source("orders"), Source("old"), Processor(fn, name="work", **given), *more, errors="failed",
                 defaults=ONE)  # fmt: skip


def tried(fn: Any, *, policy: CommitPolicy | None = None, **settings: Any) -> Tester:
    """A tester of `graph_of`."""
    return Tester(graph_of(fn, **settings), policy=policy)


def put(tester: Tester, topic: str, *values: Any) -> None:
    """Send values, all with one key."""
    for value in values:
        tester.send(topic, Message(value, key="k"))


def drain(n: int, old: Tailer, kept: Appender) -> list[Any]:
    """Append what the tailer shows, and return the number with how many there were."""
    seen = [one.value for one in old.messages()]
    for value in seen:
        kept.append(value)
    return [n, len(seen)]


def tails(tester: Tester) -> list[int]:
    """Where the newest record says that tailers stand."""
    return [p.offset for p in tester.records("work")[-1].tails]


def test_a_processor_reads_and_appends_by_itself() -> None:
    """Where its tailer stands is in the record; appended messages have the key of the input."""
    tester = tried(drain)
    put(tester, "old", "a", "b")
    put(tester, "orders", 1, 2)
    tester.run()

    assert tester.values("out") == [[1, 2], [2, 0]]
    assert tester.values("archive") == ["a", "b"]
    assert [one.key for one in tester.messages("archive")] == ["k", "k"]
    assert tails(tester) == [2]
    put(tester, "old", "c")
    put(tester, "orders", 3)
    tester.run()
    assert tester.values("archive") == ["a", "b", "c"]


def test_appended_messages_come_before_the_outputs_and_are_counted_with_them() -> None:
    """The provenance header says i of n over all records of the step, also of a generator."""

    def fn(n: int, kept: Appender) -> Iterator[int]:
        kept.append(f"{n} before")
        yield n
        kept.append(f"{n} after")
        yield n + 1

    tester = tried(fn, tailers=None)
    put(tester, "orders", 1)
    tester.run()

    def parts(topic: str) -> list[tuple[int, int]]:
        headers = [dict(one.headers)[HEADER] for one in tester.messages(topic)]
        found = [parse_provenance(header) for header in headers if header]
        return [(one.index, one.count) for one in found]

    assert parts("archive") == [(0, 4), (1, 4)]
    assert parts("out") == [(2, 4), (3, 4)]
    assert tester.totals("work")[:5] == (1, 1, 0, 0, 4)


def test_a_step_that_only_appends_has_ended_with_outputs() -> None:
    """It is no nil."""
    tester = tried(lambda n, kept: kept.append(n), outputs=None, tailers=None)
    put(tester, "orders", 1)
    tester.run()

    assert tester.values("archive") == [1]
    assert tester.totals("work")[:5] == (1, 1, 0, 0, 1)
    assert not tester.graph.processors["work"].has_effects


def test_moves_and_appends_of_a_step_that_failed_are_gone() -> None:
    """The next step sees what it had seen; its error message is all that is left."""

    def fn(n: int, old: Tailer, kept: Appender) -> list[Any]:
        made = drain(n, old, kept)
        if n == 1:
            raise ValueError("no")
        return made

    tester = tried(fn)
    put(tester, "old", "a", "b")
    put(tester, "orders", 1, 2)
    tester.run()

    assert tester.values("out") == [[2, 2]]
    assert tester.values("archive") == ["a", "b"]
    assert [one.text for one in tester.errors()] == ["no"]
    assert tails(tester) == [2]


def test_a_refused_output_takes_the_moves_and_appends_with_it() -> None:
    """The step became an error after it had ended."""
    tester = tried(lambda n, old, kept: kept.append([one.value for one in old.messages()]) or object())
    put(tester, "old", "a")
    put(tester, "orders", 1)
    tester.run()

    assert tester.values("archive") == []
    assert tails(tester) == [0]
    assert [one.kind for one in tester.errors()] == ["output"]


def test_an_appended_message_that_its_topic_refuses_is_an_error_of_the_call() -> None:
    """It is encoded at once, so the function may answer it."""
    seen: list[Exception] = []

    def fn(n: int, kept: Appender) -> int:
        for wrong in (object(), None, Message(None)):
            with pytest.raises((OutputError, CodecError)) as caught:
                kept.append(wrong)
            seen.append(caught.value)
        if n == 2:
            kept.append(object())
        return n

    tester = tried(fn, tailers=None)
    put(tester, "orders", 1, 2)
    tester.run()

    assert tester.values("out") == [1]
    assert "append Message(None, key=...)" in str(seen[1])
    assert [(one.kind, one.exception) for one in tester.errors()] == [("raised", "CodecError")]


def test_an_interrupted_step_leaves_no_move_and_no_append() -> None:
    """It is called again with the tailer where it stood."""
    stop = [True]

    def fn(n: int, old: Tailer, kept: Appender) -> list[Any]:
        made = drain(n, old, kept)
        if n == 2 and stop.pop():
            raise Interrupt("now")
        return made

    tester = tried(fn)
    put(tester, "old", "a")
    put(tester, "orders", 1)
    tester.run()
    put(tester, "old", "b")
    put(tester, "orders", 2)
    with pytest.raises((TaskStopped, Interrupt)):
        tester.run()
    assert tester.values("archive") == ["a"]
    assert tails(tester) == [1]
    stop.append(False)
    tester.restart().run()

    assert tester.values("archive") == ["a", "b"]


@pytest.mark.parametrize("name", ["one", "all"])
def test_a_retry_sees_what_its_first_call_saw(name: str) -> None:
    """S5: also if steps before the one that is put off are committed. The next batch sees what came meanwhile."""
    calls: list[tuple[int, list[Any]]] = []
    left = [2]
    made: list[Tester] = []

    def fn(n: int, old: Tailer, step: Any) -> Any:
        seen = [one.value for one in old.messages()]
        calls.append((n, seen))
        if n == 2 and left[0]:
            left[0] -= 1
            put(made[0], "old", f"late {step.attempt}")
            raise Later
        return [n, seen]

    tester = tried(fn, appenders=None, retry=Retry(on=(Later,)))
    made.append(tester)
    put(tester, "old", "a")
    put(tester, "orders", *([2, 3] if name == "one" else [1, 2, 3]))
    tester.run()
    first = [["a"]] if name == "one" else [[]]
    if name == "all":
        assert calls[0] == (1, ["a"])

    assert [seen for n, seen in calls if n == 2] == first * 3
    assert calls[-1] == (3, ["late 0", "late 1"] if name == "all" else [])
    assert tester.records("work")[-1].tail_ends == ()


def test_every_batch_with_fixed_views_has_a_snapshot() -> None:
    """S5: with effects, and with `retry=`; without them only the first batch of a start has one."""
    for settings, expected in (({"effects": True}, 3), ({"retry": Retry(on=(Later,))}, 3), ({}, 1)):
        tester = tried(drain, **settings)
        for n in range(3):
            put(tester, "orders", n)
            tester.run()
        records = tester.records("work")

        assert sum(isinstance(record, Snapshot) for record in records) == expected


def test_a_killed_process_finds_its_tailer_where_the_last_commit_left_it() -> None:
    """And sees the same again, because its calls are seen outside."""
    calls: list[tuple[int, list[Any]]] = []
    deadly = [True]
    made: list[Tester] = []

    def fn(n: int, old: Tailer, kept: Appender) -> None:
        seen = [one.value for one in old.messages()]
        calls.append((n, seen))
        kept.append(n)
        if n == 2 and deadly[0]:
            made[0].kill()

    tester = tried(fn, outputs=None, effects=True)
    made.append(tester)
    put(tester, "old", "a")
    put(tester, "orders", 1)
    tester.run()
    put(tester, "old", "b")
    put(tester, "orders", 2)
    assert tester.run_to_death()
    put(tester, "old", "c")
    deadly[0] = False
    tester.run()

    assert calls == [(1, ["a"]), (2, ["b"]), (2, ["b"])]
    assert tester.values("archive") == [1, 2]
    assert tails(tester) == [2]


def test_tailers_seek_peek_and_know_where_they_stand() -> None:
    """Moves last until the next step moves again."""
    seen: list[Any] = []

    def fn(n: int, old: Tailer) -> None:
        head = old.peek()
        assert head is not None
        assert (head.value, head.offset, head.key, head.topic) == ("a", 0, "k", "old")
        assert old.offset == 0
        assert [one.value for one in old.messages(limit=2)] == ["a", "b"]
        assert old.offset == 2
        old.to_start()
        seen.append(old.read().value)  # type: ignore[union-attr]
        old.to_end()
        assert (old.offset, old.read(), old.peek()) == (3, None, None)
        old.seek(1)
        seen.append([one.value for one in old.messages()])
        for wrong in (-1, 4, "1", True):
            with pytest.raises(ValueError, match="has offsets 0 to 3"):
                old.seek(wrong)  # type: ignore[arg-type]
        old.seek(n)

    tester = tried(fn, appenders=None, effects=True)
    put(tester, "old", "a", "b", "c")
    put(tester, "orders", 0, 2)
    tester.run()

    assert seen == ["a", ["b", "c"]] * 2
    assert tails(tester) == [2]
    assert tester.errors() == []


def test_a_message_that_cannot_be_decoded_is_passed() -> None:
    """The call may go on behind it."""

    def fn(_: int, old: Tailer) -> list[Any]:
        with pytest.raises(CodecError):
            old.peek()
        with pytest.raises(CodecError):
            old.read()
        return [one.value for one in old.messages()]

    graph = Graph("shop", Source("orders"), Source("old"), Source("raw"), Processor(fn, name="work", inputs="orders",
        outputs="out", tailers={"old": "old"}), defaults=ONE)  # fmt: skip
    tester = Tester(graph)
    tester.broker.sender("raw").send([("old", 0, b"k", b"{", None, 0), ("old", 0, b"k", b'"a"', None, 0)])
    put(tester, "orders", 1)
    tester.run()

    assert tester.values("out") == [["a"]]


def test_a_tailer_may_read_an_input_of_its_own_processor_and_two_may_read_one_topic() -> None:
    """L2: their places are not among the offsets, which are by topic."""

    def fn(n: int, own: Tailer, again: Tailer) -> list[Any]:
        first = own.read()
        assert first is not None
        return [n, first.value, len(list(again.messages()))]

    tester = tried(fn, appenders=None, tailers={"own": "orders", "again": "orders"}, name=None)
    put(tester, "orders", 7, 8, 9)
    tester.run()
    tester.restart()
    put(tester, "orders", 10)
    tester.run()

    assert tester.values("out") == [[7, 7, 3], [8, 8, 0], [9, 9, 0], [10, 10, 1]]


def test_handles_are_valid_during_their_call_only() -> None:
    """What a function keeps of them is of no use later."""
    kept_ones: list[Any] = []
    tester = tried(lambda n, old, kept: kept_ones.extend([old, kept]), outputs=None)
    put(tester, "orders", 1)
    tester.run()
    old, kept = kept_ones

    for use in (old.read, old.to_end, lambda: old.offset, lambda: kept.append(1)):
        with pytest.raises(RuntimeError, match="valid during the call"):
            use()


def test_places_are_copied_when_a_batch_is_closed() -> None:
    """L2: calls ahead of the commit move the tailer on; a record must not say so yet."""
    tester = tried(drain, policy=CommitPolicy(max_messages=1))
    for n in range(4):
        put(tester, "old", n)
        put(tester, "orders", n)
    tester.run()
    attempts = [record for record in tester.records("work") if isinstance(record, Attempt)]

    assert [record.tails[0].offset for record in attempts] == [4] * len(attempts)


def test_a_store_goes_with_tailers() -> None:
    """Both are taken back with a step that failed."""

    def fn(n: int, old: Tailer, counts: Any) -> int | None:
        counts["seen"] = counts.get("seen", 0) + len(list(old.messages()))
        if n == 1:
            raise ValueError
        return int(counts["seen"])

    tester = tried(fn, appenders=None, state={"counts": Store(Json(int))})
    put(tester, "old", "a", "b")
    put(tester, "orders", 1, 2, 3)
    tester.run()

    assert tester.values("out") == [2, 2]
    assert tester.state("counts") == {"seen": 2}


async def waits(n: int, old: Tailer, kept: Appender) -> list[Any]:
    """A coroutine function."""
    return drain(n, old, kept)


def test_a_coroutine_function_has_them_too() -> None:
    """One call at a time."""
    tester = tried(waits)
    put(tester, "old", "a")
    put(tester, "orders", 1, 2)
    tester.run()

    assert tester.values("out") == [[1, 1], [2, 0]]


POINTS = [
    (moment, effect)
    for effect in ("Init", "ReadNewest", "FetchInputs", "AssignReader", "Begin", "SendOffsets", "Produce", "Flush",
                   "Commit", "Call")
    for moment in ("before", "after")
]  # fmt: skip


def world(tester: Tester) -> Mapping[str, Any]:
    """Everything that readers can see."""
    return {
        "out": [(one.value, one.key) for one in tester.messages("out")],
        "archive": [(one.value, one.key) for one in tester.messages("archive")],
        "failed": [one.text for one in tester.errors()],
        "totals": tester.totals("work"),
        "tails": tails(tester),
    }


def sums(n: int, old: Tailer, kept: Appender) -> int | None:
    """Each order takes two of the old messages; some fail, some are nil."""
    taken = [one.value for one in old.messages(limit=2)]
    kept.append([n, taken])
    if n % 5 == 3:
        raise ValueError(f"{n}: {taken}")
    return None if n % 3 == 0 else n + sum(taken)


@pytest.mark.parametrize("point", POINTS, ids=" ".join)
@pytest.mark.parametrize("settings", [{}, {"retry": Retry(on=(Later,))}], ids=["free", "fixed"])
def test_a_crash_anywhere_changes_nothing_that_readers_can_see(point: tuple[str, str], settings: Any) -> None:
    """At the first, the fourth and the eleventh time that this point is passed."""

    def made() -> Tester:
        tester = tried(sums, policy=CommitPolicy(max_messages=3), **settings)
        put(tester, "old", *range(20))
        put(tester, "orders", *range(12))
        return tester

    expected = world(made().run())
    for nth in (1, 4, 11):
        tester = made()
        tester.run(crash=Crash(*point, nth))
        tester.run()

        assert world(tester) == expected, f"{point}, time {nth}"


def reader_of(tester: Tester, *fetched: Any) -> Any:
    """A reader that brings these fetches, one at each poll, and notes what it was told."""
    left = list(fetched)

    class Brings:
        told: ClassVar[list[Any]] = []

        def poll(self, timeout_s: float, most: int) -> list[Fetched]:
            del timeout_s, most
            found = left.pop(0) if left else []
            if isinstance(found, Exception):
                raise found
            return found

        def __getattr__(self, name: str) -> Any:
            return lambda *given: self.told.append((name, *given))

    return Brings()


OLD = TopicPartition("old", 0)


def line_of(stable: int, *fetched: Any) -> tuple[Line, Any]:
    """A line whose broker says that committed messages end there, and its reader."""
    tester = Tester(graph_of(drain))
    reader = reader_of(tester, *fetched)
    broker: Any = tester.broker
    broker.watermarks = lambda places: {place: Watermarks(0, stable, stable + 5) for place in places}
    broker.reader = lambda *_, **__: reader
    return Line(OLD, broker, tester.clock, "g"), reader


def message(offset: int) -> Any:
    """A message as a client brings it."""
    return Mock(offset=lambda: offset)


def test_none_is_there_only_when_the_end_was_seen() -> None:
    """L3: an empty poll says nothing. An end below the bound says nothing either: a leader may give an old one."""
    line, reader = line_of(3, [], [Fetched(OLD, [], 1)], [], [Fetched(OLD, [], 3)])

    assert line.head(0, None, lambda: False) is None
    assert [name for name, *_ in reader.told] == ["unassign", "assign"]


def test_a_tailer_at_the_end_rests_when_it_is_not_used() -> None:
    """Its reader would ask the broker all the time; the next read points it again, where it stands."""
    line, reader = line_of(3, [Fetched(OLD, [], 3)], [Fetched(OLD, [message(3)], None)])
    line.head(0, 3, lambda: False)
    used_s = line.rest(0.0)
    assert used_s is not None
    assert line.rest(used_s - 0.1) == used_s
    assert line.rest(used_s) is None
    assert reader.told[-1] == ("unassign", [OLD])

    found = line.head(3, 4, lambda: False)

    assert found is not None
    assert reader.told[-1] == ("assign", {OLD: 3})


def test_a_tailer_that_hears_nothing_is_an_outage() -> None:
    """L3: a message is there by the broker's word, and does not come."""
    line, _ = line_of(3)

    with pytest.raises(
        RetriableError, match="nothing came of old/0 from 0 on for 3 s, and committed messages end at 3"
    ):
        line.head(0, None, lambda: False)
    with pytest.raises(RetriableError, match="given up"):
        line_of(3)[0].head(0, None, lambda: True)


def test_a_consumer_is_pointed_again_by_a_seek_and_behind_an_error() -> None:
    """What it said of the end before is of no use then."""
    line, reader = line_of(
        *(3, [Fetched(OLD, [message(0), message(2)], 3)], [Fetched(OLD, [message(0)], None)], RetriableError("gone")),
        [Fetched(OLD, [message(0)], None)],
    )

    def head(offset: int, end: int | None = None) -> int | None:
        found = line.head(offset, end, lambda: False)
        return None if found is None else found.offset()

    assert [head(0), head(1), head(2), head(2, 2), head(3)] == [0, 2, 2, None, None]
    assert head(0) == 0
    with pytest.raises(RetriableError, match="gone"):
        head(1)
    assert head(0) == 0
    assert [given for name, *given in reader.told if name == "assign"] == [[{OLD: 0}]] * 3
    assert sum(name == "close" for name, *_ in reader.told) == 1


def test_an_outage_of_a_tailer_voids_the_batch_even_if_the_function_goes_on() -> None:
    """L3: its outcome would be of another view."""
    fails = [True]

    def fn(n: int, old: Tailer) -> Any:
        try:
            return [n, [one.value for one in old.messages()]]
        except RetriableError:
            return "swallowed"

    tester = tried(fn, appenders=None)
    put(tester, "old", "a")
    put(tester, "orders", 1)
    broker: Any = tester.broker
    watermarks = broker.watermarks

    def asked(places: Any) -> Any:
        if [place.topic for place in places] == ["old"] and fails and tester.values("out") == [] and called:
            fails.clear()
            raise RetriableError("no answer")
        return watermarks(places)

    called: list[int] = []
    broker.watermarks = asked
    original = Line.head

    def head(self: Line, *given: Any) -> Any:
        called.append(1)
        return original(self, *given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Line, "head", head)
        tester.run()

    assert not fails
    assert tester.values("out") == [[1, ["a"]]]


def test_the_thread_of_a_reader_is_left_alone_when_the_task_is_given_up() -> None:
    """The read that is under way closes it when it ends."""
    line, reader = line_of(3, [Fetched(OLD, [message(0)], None)])
    poll = reader.poll

    def closing(*given: Any) -> Any:
        line.close()
        assert not any(name == "close" for name, *_ in reader.told)
        return poll(*given)

    reader.poll = closing
    with pytest.raises(RetriableError, match="given up"):
        line.head(0, None, lambda: False)

    assert reader.told[-1] == ("close",)


def test_the_example_closes_each_day_once() -> None:
    """The third one cannot be closed."""
    assert closing.main(Memory()) == [
        {"day": "Monday", "total": 12, "orders": 2},
        {"day": "Tuesday", "total": 0, "orders": 0},
    ]


def test_what_a_state_handler_would_call_again_is_refused() -> None:
    """L1: its step is called again for the handler."""
    with pytest.raises(GraphError, match="called again for the handler"):
        tried(drain, state={"counts": Handler(Counts)})


def test_a_compacted_tailer_of_a_processor_with_effects_is_refused() -> None:
    """S5 cannot hold there; without effects a retry may see something else."""
    config = {"cleanup.policy": "compact"}
    for settings, refused in (({"effects": True}, True), ({}, False)):
        graph = graph_of(drain, **settings)
        broker = MemoryBroker()
        broker.create([NewTopic("old", 1, config=config)])
        if refused:
            with pytest.raises(ConfigError, match="its tailer 'old' reads 'old', which is compacted"):
                Tester(graph, broker=broker)
        else:
            Tester(graph, broker=broker)


def test_ends_are_last_stable_offsets() -> None:
    """S5: behind them an open transaction may still abort, or commit what a retry would then see."""
    broker: Any = Mock()
    broker.watermarks = lambda places: {place: Watermarks(0, 3, 8) for place in places}

    assert ends_of(broker, (Position("old", "old", b"o" * 16, 1),), 0) == (Position("old", "old", b"o" * 16, 3),)
    broker.watermarks = Mock(side_effect=FatalError("no"))
    with pytest.raises(RetriableError, match="the ends of tailers cannot be read: no"):
        ends_of(broker, (Position("old", "old", b"o" * 16, 1),), 0)


def test_a_tailer_that_finds_nothing_stands_behind_the_markers() -> None:
    """L2: if retention takes what was read, and the markers behind it, nothing is missed."""
    tester = tried(drain)
    tester.send_many("old", [Message("a", key="k"), Message("b", key="k")])
    put(tester, "orders", 1)
    tester.run()
    assert tails(tester) == [3]
    tester.broker.trim({OLD: 3})
    put(tester, "orders", 2)
    tester.restart().run()

    assert tester.values("out") == [[1, 2], [2, 0]]


def test_a_timer_that_fails_leaves_the_moves_of_the_message_before_it() -> None:
    """Its function has no tailers, so it takes none back."""

    def fn(n: int, old: Tailer, step: Any) -> list[Any]:
        step.schedule(f"k{n}", at=0)
        return drain(n, old, Mock())

    def fires(timer: Any) -> None:
        raise ValueError(timer.key)

    tester = tried(fn, appenders=None, state={"timers": Timers(fires)})
    put(tester, "old", "a", "b")
    put(tester, "orders", 1, 2)
    tester.run()

    assert tester.values("out") == [[1, 2], [2, 0]]
    assert [one.text for one in tester.errors()] == ["k1", "k2"]
    assert tails(tester) == [2]


TARGET_POINTS = [
    (moment, effect) for effect in ("CommitTarget", "Begin", "Produce", "Commit") for moment in ("before", "after")
]


@pytest.mark.parametrize("point", TARGET_POINTS, ids=" ".join)
def test_a_target_and_tailers_are_together_after_a_crash(point: tuple[str, str], tmp_path: Path) -> None:
    """E1: what the target is ahead with is published without a call, and the tailer stands behind it."""
    address = f"sqlite:///{tmp_path / 'shop.db'}"
    with sqlite3.connect(tmp_path / "shop.db") as db:
        db.execute("CREATE TABLE taken (n INTEGER, value INTEGER)")
    db.close()

    def fn(n: int, old: Tailer, kept: Appender, db: Any) -> list[Any]:
        taken = [one.value for one in old.messages(limit=2)]
        kept.append([n, taken])
        for value in taken:
            db.execute("INSERT INTO taken VALUES (?, ?)", (n, value))
        if n == 2:
            raise ValueError("no")
        return [n, taken]

    tester = tried(fn, policy=CommitPolicy(max_messages=2), effects={"db": Sql(address)})
    put(tester, "old", *range(12))
    put(tester, "orders", *range(5))
    tester.run(crash=Crash(*point, 2))
    assert tester.crashed
    put(tester, "old", 99)
    tester.run()

    taken_by = {0: [0, 1], 1: [2, 3], 3: [4, 5], 4: [6, 7]}
    expected = [[n, taken] for n, taken in taken_by.items()]
    assert tester.values("out") == tester.values("archive") == expected
    assert [one.text for one in tester.errors()] == ["no"]
    assert tails(tester) == [8]
    tester.stop()
    with sqlite3.connect(tmp_path / "shop.db") as db:
        assert db.execute("SELECT n, value FROM taken ORDER BY value").fetchall() == [
            (n, value) for n, taken in taken_by.items() for value in taken
        ]
    db.close()


def test_a_call_that_goes_on_behind_a_revocation_never_hears_that_nothing_is_there() -> None:
    """L3: it would act on half a log, and what it does outside cannot be taken back."""
    broker = MemoryBroker()
    broker.create([NewTopic("orders", 1)])
    place = TopicPartition("orders", 0)
    broker.sender("s").send([("orders", 0, None, b"1", None, 0)] * 3)
    line = Line(place, broker, SystemClock(), "g")
    assert line.head(0, None, lambda: True) is not None
    line.close()
    with pytest.raises(RetriableError, match="the task was given up"):
        line.head(1, None, lambda: True)

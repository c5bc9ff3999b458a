"""Stores change with the steps that change them: every kind of call, every crash, compared with a plain dict (R4b)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from itertools import permutations
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cues_kafka import (
    ConfigError,
    Graph,
    GraphError,
    Json,
    Message,
    Out,
    Processor,
    Raw,
    Retry,
    Source,
    State,
    Store,
    TaskStopped,
    Topic,
)
from cues_kafka.graph.declare import CommitPolicy
from cues_kafka.operate.move.base import Maintenance
from cues_kafka.operate.move.reset import reset
from cues_kafka.ports.facts import NewTopic
from cues_kafka.state.layers import Layers
from cues_kafka.testing.tester import Crash, Tester
from cues_kafka.workers.questions import CHECK_TOPICS_S
from tests.examples import examples

MOMENTS = st.sampled_from(["before", "after"])
EFFECTS = st.sampled_from(["Call", "Begin", "Produce", "Flush", "Commit", "Init", "AssignReader", "ReadNewest"])
CRASHES = st.lists(st.none() | st.builds(Crash, MOMENTS, EFFECTS, st.integers(1, 3)), min_size=1, max_size=4)
WORDS = st.lists(st.sampled_from(["a", "b", "del a", "bad a", "bad b", "nil b", "wrong a"]), max_size=8)


def apply(word: str, counts: State[Any]) -> Any:
    """Change the store, and then fail, say nothing, or say how often the word was there."""
    *what, name = word.split()
    if what == ["del"]:
        counts.pop(name, None)
        return f"{name}=0"
    counts[name] = counts.get(name, 0) + 1
    if what == ["bad"]:
        raise ValueError(word)
    if what == ["wrong"]:
        return b"no text"
    return None if what == ["nil"] else f"{name}={counts[name]}"


def plain(word: str, counts: State[Any]) -> Any:
    """The hot loop."""
    return apply(word, counts)


def with_step(word: str, counts: State[Any], step: Any) -> Any:
    """The long way."""
    assert step.hash
    return apply(word, counts)


async def coroutine(word: str, counts: State[Any]) -> Any:
    """Awaited."""
    return apply(word, counts)


def fork(word: str, counts: State[Any]) -> Iterator[Out]:
    """A generator, whose body runs while it is read."""
    if (made := apply(word, counts)) is not None:
        yield Out("out", made)


def lists(words: list[str], counts: State[Any]) -> list[Any]:
    """All at once; a failing word spoils the call, and each is called alone."""
    return [apply(word, counts) for word in words]


def lists_of_errors(words: list[str], counts: State[Any]) -> list[Any]:
    """The failing word has its exception as its result."""

    def one(word: str) -> Any:
        try:
            return apply(word, counts)
        except ValueError as error:
            return error

    return [one(word) for word in words]


def expiring(word: str, counts: State[Any]) -> Any:
    """Entries end after some messages."""
    return apply(word, counts)


LIFETIME = 3


def graph_of(fn: Callable[..., Any], *, on_disk: bool = False) -> Graph:
    """One processor with a store."""
    lifetime = LIFETIME if fn is expiring else None
    outputs: Any = {"out": "out"} if fn is fork else "out"
    processor = Processor(
        fn,
        inputs="in",
        outputs=outputs,
        state={"counts": Store(Json(int), ttl_messages=lifetime, on_disk=on_disk)},
        batch="lists" in fn.__name__,
        errors="bad",
    )
    return Graph("g", Source("in"), processor, topics={"in": Topic(value=Json(str)), "out": Topic(value=Json(str))})


def expected(words: Sequence[str], lifetime: float = math.inf) -> tuple[list[str], dict[str, int], int]:
    """Outputs, entries and the number of errors; a failed step does not count for the lifetime."""
    counts: dict[str, int] = {}
    began: dict[str, int] = {}
    out, errors, now = [], 0, 0
    for word in words:
        *what, name = word.split()
        if what in (["bad"], ["wrong"]):
            errors += 1
            continue
        now += 1
        counts = {key: value for key, value in counts.items() if began[key] + lifetime > now}
        if what == ["del"]:
            counts.pop(name, None)
        else:
            counts[name], began[name] = counts.get(name, 0) + 1, now
        if what != ["nil"]:
            out.append(f"{name}={counts.get(name, 0)}")
    return out, counts, errors


@pytest.mark.parametrize(
    ("fn", "on_disk"),
    [
        *((fn, False) for fn in (plain, with_step, fork, lists, lists_of_errors, expiring)),
        (plain, True),
        (expiring, True),
    ],
)
@examples(15)
@given(rounds=st.lists(st.tuples(WORDS, CRASHES), max_size=3), most=st.sampled_from([1, 2, 100]))
def test_a_store_has_what_each_step_has_committed(
    fn: Callable[..., Any], on_disk: bool, rounds: list[tuple[list[str], list[Crash | None]]], most: int
) -> None:
    """Also where processes crash at any effect: nothing of a failed step, nothing twice."""
    with TemporaryDirectory() as directory:
        _compare(fn, rounds, most, Path(directory) if on_disk else None)


def _compare(
    fn: Callable[..., Any], rounds: list[tuple[list[str], list[Crash | None]]], most: int, state_dir: Path | None
) -> None:
    graph = graph_of(fn, on_disk=state_dir is not None)
    tester = Tester(graph, policy=CommitPolicy(max_messages=most), state_dir=state_dir)
    sent: list[str] = []
    for words, crashes in rounds:
        for word in words:
            tester.send("in", word)
        sent += words
        for crash in crashes:
            tester.restart().run(crash=crash)
    tester.restart().run()
    quarantined = [error for error in tester.errors() if error.kind == "quarantine"]
    if not quarantined:
        lifetime = LIFETIME if fn is expiring else math.inf
        assert (tester.values("out"), tester.state("counts"), len(tester.errors())) == expected(sent, lifetime)
    tester.stop()


def test_a_coroutine_changes_a_store() -> None:
    """Without crashes: a thread that is never continued would leave its event loop behind."""
    tester, words = Tester(graph_of(coroutine)), ["a", "bad a", "a", "nil b", "wrong a", "b", "del a"]
    for word in words:
        tester.send("in", word)
    tester.run()
    assert (tester.values("out"), tester.state("counts"), len(tester.errors())) == expected(words)
    tester.stop()


def test_a_retried_step_begins_with_the_store_as_it_was() -> None:
    """Each call of it."""
    calls = []

    def twice(word: str, counts: State[Any]) -> str:
        counts[word] = counts.get(word, 0) + 1
        calls.append(counts[word])
        if len(calls) < 3:
            raise OSError("not yet")
        return f"{word}={counts[word]}"

    graph = Graph(
        "g",
        Source("in"),
        Processor(twice, inputs="in", outputs="out", state={"counts": Store()}, retry=Retry(on=(OSError,))),
    )
    tester = Tester(graph)
    tester.send("in", "a")
    tester.run()
    assert calls == [1, 1, 1]
    assert tester.state("counts") == {"a": 1}


@pytest.mark.parametrize("first", [True, False])
def test_a_generator_whose_output_is_refused_ends_within_its_step(*, first: bool) -> None:
    """What its `finally` changes is gone with the step, instead of being a change of the next one."""

    def counted(word: str, counts: State[Any]) -> Iterator[Any]:
        try:
            yield b"no text" if word == "wrong" else word
        finally:
            counts[word] = 1

    tester = Tester(graph_of(counted))
    for word in ("wrong", "a") if first else ("a", "wrong", "b"):
        tester.send("in", word)
    tester.run()
    assert tester.state("counts") == dict.fromkeys(tester.values("out"), 1)
    assert len(tester.values("bad")) == 1


@pytest.mark.parametrize("settings", [{}, {"ttl": "1 day"}, {"ttl_messages": 100}])
def test_a_store_answers_as_a_dict_does(settings: dict[str, Any]) -> None:
    """`popitem` differs: a dict gives what was set last, a store the first key in the order of bytes."""
    found = []

    def ask(word: str, counts: State[int]) -> None:
        plain = dict(counts.items())
        match word:
            case "popitem":
                found.append(counts.popitem())
                assert found[-1] == (min(plain), plain.pop(min(plain)))
            case "pop":
                assert counts.pop("a") == plain.pop("a")
                assert counts.pop("gone", None) is plain.pop("gone", None)
            case "setdefault":
                assert counts.setdefault("a", 7) == plain.setdefault("a", 7)
            case _:
                counts.update({word: len(counts)})
                plain[word] = len(plain)
        assert (len(counts), bool(counts), list(counts)) == (len(plain), bool(plain), sorted(plain))
        assert counts == plain
        assert list(counts.values()) == [plain[key] for key in sorted(plain)]

    processor = Processor(ask, inputs="in", state={"counts": Store(Json(int), **settings)}, errors="bad")
    tester = Tester(Graph("g", Source("in"), processor))
    for word in ("popitem", "b", "c", "a", "popitem", "setdefault", "pop", "popitem", "popitem", "popitem"):
        tester.send("in", word)
        tester.run()
    assert found == [("a", 2), ("b", 0), ("c", 1)]
    assert [error.text for error in tester.errors()] == ["\"popitem(): the store 'counts' is empty\""] * 2


def test_a_large_store_is_cleared_in_one_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """The method of `MutableMapping` sorts all entries for each that it removes: hours for 300,000."""
    passes = []
    entries = Layers.entries

    def counting(self: Layers, prefix: bytes = b"") -> Any:
        passes.append(prefix)
        return entries(self, prefix)

    def fill(word: str, counts: State[Any]) -> None:
        if word == "fill":
            counts.update({str(number): number for number in range(100)})
            return
        monkeypatch.setattr(Layers, "entries", counting)
        counts.clear()
        if word == "bad":
            raise ValueError(word)

    tester = Tester(graph_of(fill))
    tester.send("in", "fill")
    tester.send("in", "bad")
    assert len(tester.run().state("counts")) == 100
    tester.send("in", "clear")
    passes.clear()
    assert tester.run().state("counts") == {}
    assert len(passes) == 1


def test_a_value_changed_in_place_is_no_change() -> None:
    """It has to be set again."""

    def add(n: int, seen: State[Any]) -> list[int]:
        found: list[int] = seen.get("all", [])
        found.append(n)
        if n % 2:
            seen["all"] = found
        return list(seen.get("all", []))

    graph = Graph("g", Source("in"), Processor(add, inputs="in", outputs="out", state={"seen": Store()}))
    tester = Tester(graph)
    for n in (1, 2, 3):
        tester.send("in", n)
    assert tester.run().values("out") == [[1], [1], [1, 3]]


def test_a_join_and_alts_have_stores() -> None:
    """Two of them, one of bytes with keys of numbers."""

    def pair(left: int, right: int, sums: State[Any], raw: State[Any]) -> int:
        sums["all"] = sums.get("all", 0) + left * right
        raw[left] = b"%d" % right
        return int(sums["all"])

    def either(left: int | None = None, right: int | None = None, *, last: State[Any]) -> None:
        last["left" if right is None else "right"] = left if right is None else right

    state: Any = {"sums": Store(Json(int)), "raw": Store(Raw(), key=Json(int))}
    graph = Graph(
        "g",
        Source("l"),
        Source("r"),
        Processor(pair, inputs={"left": "l", "right": "r"}, outputs="out", state=state),
        Processor(either, alts={"left": "l", "right": "r"}, state={"last": Store(Json(int))}),
    )
    tester = Tester(graph)
    for n in (1, 2, 3):
        tester.send("l", n)
        tester.send("r", 10 * n)
    tester.run()
    assert tester.values("out") == [10, 50, 140]
    assert tester.state("raw") == {1: b"10", 2: b"20", 3: b"30"}
    assert tester.state("last") == {"left": 3, "right": 30}


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda s: s.__setitem__("k", "text"), "counts['k']: value: expected int, got text"),
        (lambda s: s.__setitem__("k" * 2_000_000, 1), "the entry has 20000"),
        (lambda s: s.__setitem__(5, 1), "5 is not a key of this store"),
        (lambda s: s.__delitem__("none"), "none"),
    ],
)
def test_what_a_store_cannot_hold_is_an_error_message(change: Callable[[State[Any]], None], text: str) -> None:
    """Of the step that tried it."""

    def fn(n: int, counts: State[Any]) -> None:
        counts["before"] = n
        change(counts)

    state = {"counts": Store(Json(int))}
    graph = Graph("g", Source("in"), Processor(fn, inputs="in", state=state, errors="bad"))
    tester = Tester(graph)
    tester.send("in", 1)
    [error] = tester.run().errors()
    assert text in error.text
    assert tester.state("counts") == {}


def counting(store: str = "counts", **settings: Any) -> Graph:
    """Counts words."""

    def count(word: str, **stores: State[int]) -> int:
        counts = stores[store]
        counts[word] = counts.get(word, 0) + 1
        return counts[word]

    state = {store: Store(Json(int), **settings)}
    return Graph("g", Source("in"), Processor(count, inputs="in", outputs="out", state=state))


def test_a_changelog_that_has_lost_its_messages_stops_the_task() -> None:
    """The record knows how it must end; counting from nothing would give wrong totals."""
    tester = Tester(counting())
    tester.send("in", "a")
    tester.run().stop()
    tester.broker.delete(["g.count.counts.changelog"])
    again = Tester(counting(), broker=tester.broker)
    again.send("in", "a")
    with pytest.raises(TaskStopped, match="has no entries, and the task's record says that step 1 wrote there"):
        again.run()
    assert again.values("out") == [1]


def test_a_changelog_recreated_beside_a_running_task_stops_the_next_one() -> None:
    """It ends as the record says, but the entries of before are gone; counting on would give wrong totals."""
    tester = Tester(counting())
    tester.send("in", "a")
    tester.run()
    tester.broker.delete(["g.count.counts.changelog"])
    tester.broker.create([NewTopic("g.count.counts.changelog", 1, config={"cleanup.policy": "compact"})])
    tester.send("in", "b")
    tester.run().stop()
    again = Tester(counting(), broker=tester.broker)
    again.send("in", "a")
    with pytest.raises(TaskStopped, match="deleted and recreated while the task was running"):
        again.run()


def test_a_changelog_that_was_deleted_is_told_with_what_helps() -> None:
    """Beside a running task, and again when the next process has made an empty one in its place."""
    tester = Tester(counting())
    tester.send("in", "a")
    tester.run()
    tester.broker.delete(["g.count.counts.changelog"])
    tester.clock.advance(2 * CHECK_TOPICS_S)
    lost = "Remedy: run `cues-kafka rebuild MODULE:GRAPH PROCESSOR`.* give the store another name"
    with pytest.raises(TaskStopped, match=rf"the changelog 'g.count.counts.changelog' does not exist. {lost}"):
        tester.run()
    with pytest.raises(TaskStopped, match=rf"has no entries, and the task's record says that step 1 .* {lost}"):
        Tester(counting(), broker=tester.broker).run()

    renamed = Tester(counting("words"), broker=tester.broker)
    renamed.send("in", "a")
    assert renamed.run().values("out") == [1, 1]


def test_entries_of_another_task_are_refused() -> None:
    """No record of this one has written them."""
    tester = Tester(counting())
    tester.broker.sender("other").send([("g.count.counts.changelog", 0, b"m", b"7", None, 0)])
    tester.send("in", "a")
    with pytest.raises(TaskStopped, match="has entries of step 7, and the task has no record of the store 'counts'"):
        tester.run()


def test_a_store_with_another_kind_of_lifetime_is_refused() -> None:
    """Its entries are kept in another form; another length of the same kind is fine."""
    kinds: list[dict[str, Any]] = [{}, {"ttl": "1 day"}, {"ttl_messages": 7}]
    for before, after in permutations(kinds, 2):
        tester = Tester(counting(**before))
        tester.send("in", "a")
        tester.run().stop()
        with pytest.raises(TaskStopped, match=r"another kind of lifetime .* or give the store another name"):
            Tester(counting(**after), broker=tester.broker).run()
    broker = Tester(counting(ttl="1 day")).broker
    for ttl in ("1 day", "2 days"):
        tester = Tester(counting(ttl=ttl), broker=broker)
        tester.send("in", "a")
        tester.run().stop()
    assert tester.values("out") == [1, 2]


def test_a_task_with_stores_is_reset_forwards_only() -> None:
    """Backwards, its stores would count messages twice."""
    tester = Tester(counting())
    for word in "aab":
        tester.send("in", word)
    tester.run().stop()
    tool = Maintenance(tester.graph, tester.broker, "count", who="reset on here", clock=tester.clock)
    with pytest.raises(ConfigError, match=r"count/0 cannot go back: its stores \(counts\) hold .* a new name="):
        reset(tool, to="earliest")
    tester.send("in", "b")
    tool.carry_out(reset(tool, to="latest"))
    again = Tester(counting(), broker=tester.broker)
    again.send("in", "b")
    again.run()
    assert again.values("out") == [1, 2, 1, 2]


def test_a_store_that_is_added_later_begins_empty() -> None:
    """And one that is taken away and declared again has what it had."""

    def plain(word: str) -> None:
        """Remember nothing."""

    def without() -> Graph:
        return Graph("g", Source("in"), Processor(plain, name="count", inputs="in", outputs="out"))

    broker = Tester(without()).broker
    counted = (("counts", 2),)
    for graph, ends in ((without(), ()), (counting(), counted), (without(), counted), (counting(), (("counts", 4),))):
        tester = Tester(graph, broker=broker)
        tester.send("in", "a")
        tester.run().stop()
        assert tester.records("count")[-1].stores == ends
    assert tester.values("out") == [1, 2]


def test_a_store_that_is_full_stops_its_task_and_loses_nothing() -> None:
    """The steps before it are committed; with more room it goes on there."""

    def keep(n: int, seen: State[int]) -> int:
        seen[str(n)] = n
        return n

    def graph(most: int) -> Graph:
        state = {"seen": Store(Json(int), max_bytes=most)}
        return Graph("g", Source("in"), Processor(keep, inputs="in", outputs="out", state=state, errors="bad"))

    tester = Tester(graph(1000))
    for n in range(20):
        tester.send("in", n)
    with pytest.raises(TaskStopped, match=r"entries of 'seen' .*max_bytes=1000.*raise max_bytes=.*on_disk=True"):
        tester.run()
    assert tester.values("out") == list(range(6))
    assert not tester.errors()
    again = Tester(graph(10_000), broker=tester.broker).run()
    assert again.values("out") == list(range(20))
    assert again.state("seen") == {str(n): n for n in range(20)}


def test_steps_side_by_side_have_no_store() -> None:
    """They would see each other's changes."""

    async def fn(n: int, counts: State[Any]) -> None:
        """Do nothing."""

    with pytest.raises(GraphError, match="state= with concurrency=2"):
        Processor(fn, inputs="in", state={"counts": Store()}, concurrency=2)


def test_a_key_that_the_codec_refuses_names_it() -> None:
    """As everywhere."""
    with pytest.raises(GraphError, match=r"Store\(key=5\): takes a codec"):
        Store(key=5)  # type: ignore[arg-type]


def last(reading: dict[str, Any], last: State[Any]) -> Any:
    """What the sensor said before, if that is not too long ago."""
    before = last.get(reading["sensor"])
    if reading["value"] is not None:
        last[reading["sensor"]] = reading["value"]
    if reading["value"] == "bad":
        raise ValueError("bad")
    return [before, reading["value"]]


remembered = last


def lasts(readings: list[dict[str, Any]], last: State[Any]) -> Any:
    """All at once: the newest of them says what time it is."""
    return [f"{[*last]}" for _ in readings]


def _at(seconds: float, sensor: str, value: Any) -> Message[Any]:
    return Message({"sensor": sensor, "value": value}, timestamp_ms=int(NOON_MS + seconds * 1000))


NOON_MS = 1_767_268_800_000


def one_of_many(reading: dict[str, Any], last: State[Any]) -> dict[str, Any]:
    """The same, for a fork."""
    return {"out": remembered(reading, last)}


LOOPS: dict[str, dict[str, Any]] = {
    "columns": {"fn": last, "outputs": "out"},
    "one by one": {"fn": one_of_many, "outputs": {"out": "out"}},
    "the long way": {"fn": last, "outputs": "out", "filter": lambda _: True},
}


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("restarts", [False, True])
def test_an_entry_ends_by_the_time_of_messages(restarts: bool, loop: str) -> None:
    """Not of the clock; neither a failed step nor an undecodable message moves it, and a restart changes nothing."""
    state = {"last": Store(Json(), ttl=timedelta(minutes=1))}
    processor = Processor(name="p", inputs="in", state=state, errors="bad", **LOOPS[loop])
    tester = Tester(Graph("g", Source("in"), processor, defaults=Topic(value=Json())))
    raw = Tester(Graph("raw", Source("in"), defaults=Topic(value=Raw())), broker=tester.broker)
    for seconds, sensor, value in [
        *((0, "a", 1), (30, "b", 2), (59.999, "a", 3), (80, "a", "bad"), (50, "b", None), (90, "b", None)),
        *((119.998, "a", None), (119.999, "a", None)),
    ]:
        raw.send("in", Message(b"{", timestamp_ms=NOON_MS + 200_000))
        tester.send("in", _at(seconds, sensor, value))
        if restarts:
            tester.run().restart()
    tester.run()
    assert tester.values("out") == [[None, 1], [None, 2], [1, 3], [2, None], [None, None], [3, None], [None, None]]
    assert tester.state("last") == {}
    assert len(tester.messages("bad")) == 9


def test_lists_of_messages_have_the_time_of_the_newest() -> None:
    """What is called together is called at one time."""
    state = {"last": Store(Json(), ttl="10 seconds")}
    first = Processor(last, name="p", inputs="in", outputs="out", state=state)
    tester = Tester(Graph("g", Source("in"), first, defaults=Topic(value=Json())))
    tester.send("in", _at(0, "a", 1))
    tester.run()
    then = Processor(lasts, name="p", inputs="in", outputs="out", state=state, batch=True)
    tester = Tester(Graph("g", Source("in"), then, defaults=Topic(value=Json())), broker=tester.broker)
    for seconds in (9, 10):
        tester.send("in", _at(seconds, "a", 1))
    tester.run()
    assert tester.values("out") == [[None, 1], "[]", "[]"]


def test_lifetimes_that_are_none_are_refused_with_the_remedy() -> None:
    """By the declaration."""
    assert Store(ttl="1 hour") == Store(ttl=timedelta(minutes=60))
    both: dict[str, Any] = {"ttl": "1 day", "ttl_messages": 3}
    for wrong in ({"ttl": "7 moons"}, {"ttl": timedelta(0)}, {"ttl": 7}, both):
        with pytest.raises(GraphError, match=r"^Store\(ttl=.*(hours, days or weeks|Drop one)"):
            Store(Json(), **wrong)
    with pytest.raises(GraphError, match="takes a number of messages"):
        Store(Json(), ttl_messages=0)


def test_a_long_restore_says_how_far_it_is(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Every few seconds: the task, the store, how many messages of how many were read."""
    tester = Tester(graph_of(plain))
    tester.send_many("in", [str(n) for n in range(10_500)])
    tester.run()
    monkeypatch.setattr("cues_kafka.task.restoring.TELL_S", 0.0)
    caplog.set_level("INFO", "cues_kafka.state")
    tester.restart().run()
    told = [record.getMessage() for record in caplog.records if "restoring" in record.getMessage()]
    assert told
    assert "store='counts'" in told[0]
    assert "task='plain/0'" in told[0]
    reads = [int(text.partition("read=")[2].partition(" ")[0]) for text in told]
    assert reads == sorted(set(reads))
    assert all("of=105" in text for text in told)


def test_an_error_of_a_store_names_the_line_of_the_function() -> None:
    """Not the line of `State` that raised it."""

    def missing(_: str, sums: State[int]) -> None:
        sums["a"] += 1

    def unfit(_: str, sums: State[int]) -> None:
        sums["a"] = 1.5  # type: ignore[assignment]

    for fn in (missing, unfit):
        one = Processor(fn, inputs="in", state={"sums": Store(Json(int))})
        tester = Tester(Graph("g", Source("in"), one, defaults=Topic(value=Json()), errors="e"))
        tester.send("in", "a")
        [error] = tester.run().errors()
        assert error.location.startswith(f"test_state.py:{fn.__name__}:")

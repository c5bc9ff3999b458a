"""State in objects of the user's changes with the steps that change it: every crash, beside a plain dict (R4b)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar, cast

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cues_kafka import (
    CommitPolicy,
    Graph,
    GraphError,
    Handler,
    HandlerFailed,
    Json,
    Out,
    Processor,
    Raw,
    RetriableError,
    Retry,
    Source,
    State,
    StateHandler,
    Step,
    Store,
    Topic,
)
from cues_kafka.brokers.memory import Faults, MemoryBroker
from cues_kafka.core.delivery import HEADER
from cues_kafka.testing.tester import Crash, Tester, VirtualClock
from tests.examples import examples

MOMENTS = st.sampled_from(["before", "after"])
EFFECTS = st.sampled_from(["Call", "Begin", "Produce", "Flush", "Commit", "Init", "AssignReader", "ReadNewest"])
CRASHES = st.lists(st.none() | st.builds(Crash, MOMENTS, EFFECTS, st.integers(1, 3)), min_size=1, max_size=4)
WORDS = st.lists(
    st.sampled_from(["a", "b", "del a", "bad a", "bad b", "nil b", "wrong a", "ask b", "retry a"]), max_size=8
)


class Counts(StateHandler):
    """Counts words in a dict of its own, and holds back what it saw until it is drained."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {"traces": -1}  # only a reset makes it fit
        self.changed: set[str] = set()
        self.held: Counter[str] = Counter()
        self.heard: list[Any] = []

    one: ClassVar = False
    """Whether there is one output."""

    def reset(self, entries: Iterable[tuple[bytes, bytes]]) -> None:
        """Become what is committed."""
        self.counts = {key.decode(): int(value) for key, value in entries}
        self.changed, self.held = set(), Counter()
        self.heard.append("reset")

    def reset_to_initial(self) -> None:
        """Become nothing."""
        self.reset(())
        self.heard[-1] = "initial"

    def drain(self) -> Iterator[Any]:
        """One message for each word that came since the last commit."""
        self.heard.append("drain")
        for word, number in sorted(self.held.items()):
            yield f"held {word}={number}" if self.one else Out("held", f"{word}={number}")
        self.held = Counter()

    def checkpoint(self) -> Iterator[tuple[bytes, bytes | None]]:
        """What changed."""
        self.heard.append("checkpoint")
        for word in sorted(self.changed):
            yield word.encode(), b"%d" % self.counts[word] if word in self.counts else None
        self.changed = set()

    def retire(self, sequence: int) -> None:
        """Learn of a commit."""
        self.heard.append(sequence)


class One(Counts):
    """As its base, for one output."""

    one: ClassVar = True


class Broken(ConnectionError):
    """What a retry is for."""


def count(word: str, model: Counts, seen: State[int], step: Step) -> Any:
    """Change the handler and a store first, and then fail, say nothing, or say how often the word was there."""
    *what, name = word.split()
    model.held[name] += 1
    model.changed.add(name)
    seen[name] = seen.get(name, 0) + 1
    if what == ["del"]:
        model.counts.pop(name, None)
        return {"out": f"{name}=0"}
    model.counts[name] = model.counts.get(name, 0) + 1
    if what == ["bad"]:
        raise ValueError(word)
    if what == ["retry"] and step.attempt < 2:
        raise Broken(word)
    if what == ["wrong"]:
        return {"out": b"no text"}
    if what == ["ask"]:
        step.request_commit()
    return None if what == ["nil"] else {"out": f"{name}={model.counts[name]}"}


def simple(word: str, model: Counts, seen: State[int]) -> Any:
    """As `count`, where each message is called with its value alone."""
    return count(word, model, seen, cast(Step, _Never()))


def plain(word: str, model: Counts, seen: State[int]) -> Any:
    """As `simple`, with one output, which is the hot loop."""
    made = simple(word, model, seen)
    return made and made["out"]


class _Never:
    """A step that is never called again, and asks for nothing."""

    attempt = 2

    def request_commit(self) -> None:
        """Nothing."""


def graph_of(fn: Callable[..., Any] = count, handler: Handler | None = None, **settings: Any) -> Graph:
    """One processor with a handler and a store."""
    processor = Processor(
        fn,
        inputs="in",
        outputs="out" if fn is plain else {"out": "out", "held": "held"},
        state={"model": handler or Handler(Counts), "seen": Store(Json(int))},
        **{"errors": "bad", **settings},
    )
    return Graph("g", Source("in"), processor, defaults=Topic(value=Json(str)))


def expected(words: list[str]) -> dict[str, Any]:
    """What plain Python makes of it."""
    counts: dict[str, int] = {}
    seen: Counter[str] = Counter()
    out, errors = [], 0
    for word in words:
        *what, name = word.split()
        if what in (["bad"], ["wrong"]):
            errors += 1
            continue
        seen[name] += 1
        if what == ["del"]:
            counts.pop(name, None)
        else:
            counts[name] = counts.get(name, 0) + 1
        if what != ["nil"]:
            out.append(f"{name}={counts.get(name, 0)}")
    return {"out": out, "errors": errors, "counts": counts, "seen": dict(seen), "held": dict(seen)}


def found(tester: Tester) -> dict[str, Any]:
    """What is committed; of drained messages, their sums."""
    held: Counter[str] = Counter()
    out, more = tester.values("out"), [] if "held" not in tester.graph.topics_written() else tester.values("held")
    more += [text.removeprefix("held ") for text in out if text.startswith("held ")]
    for text in more:
        name, _, number = text.partition("=")
        held[name] += int(number)
    entries = {key.decode(): int(value) for key, value in tester.state("model").items()}
    return {
        "out": [text for text in out if not text.startswith("held ")],
        "errors": len(tester.errors()),
        "counts": entries,
        "seen": tester.state("seen"),
        "held": dict(held),
    }


@pytest.mark.parametrize("fn", [count, simple, plain])
@examples(25)
@given(rounds=st.lists(st.tuples(WORDS, CRASHES), max_size=3), most=st.sampled_from([1, 2, 100]))
def test_a_handler_has_what_each_step_has_committed(
    fn: Callable[..., Any], rounds: list[tuple[list[str], list[Crash | None]]], most: int
) -> None:
    """Also where processes crash at any effect: nothing of a failed step, nothing twice; also what is drained."""
    graph = graph_of(fn, Handler(One if fn is plain else Counts), retry=Retry(Broken, first_s=0.1))
    tester = Tester(graph, policy=CommitPolicy(max_messages=most))
    sent: list[str] = []
    for words, crashes in rounds:
        for word in words:
            tester.send("in", word)
        sent += words
        for crash in crashes:
            tester.restart().run(crash=crash)
    tester.restart().run()
    totals = tester.totals(fn.__name__)
    assert totals.deliveries == len(sent)
    written = sum(len(tester.values(topic)) for topic in graph.processors[fn.__name__].output_topics)
    assert totals.messages + totals.drained == written
    if not any(error.kind == "quarantine" for error in tester.errors()):
        assert found(tester) == expected(sent)


class Failures(Faults):
    """Requests that fail, by operation, number, and whether they were applied; and calls ahead, if it can."""

    def __init__(self, planned: set[tuple[str, int, bool]]) -> None:
        self.planned = planned
        self.seen: Counter[str] = Counter()
        self.ahead: list[bool] = []
        self.tester: Tester | None = None

    def before(self, operation: str, client: str) -> None:
        """Fail, or look whether the processor calls ahead of its commit."""
        self.seen[operation] += 1
        if (operation, self.seen[operation], False) in self.planned:
            raise RetriableError("no answer")
        if operation == "commit" and self.tester is not None and self.tester._workers:
            [worker] = self.tester._workers
            worker.call_once()
            self.ahead.append(worker.lanes[0].ahead)

    def after(self, operation: str, client: str) -> str | None:
        """Lose the answer."""
        if (operation, self.seen[operation], True) in self.planned:
            raise RetriableError("the answer is lost")
        return None


@examples(25)
@given(
    words=WORDS,
    planned=st.sets(
        st.tuples(st.sampled_from(["commit", "produce", "offsets"]), st.integers(3, 9), st.booleans()), max_size=3
    ),
)
@example(words=["a"], planned={("commit", 3, False)})
@example(words=["a", "bad a"], planned={("produce", 3, False), ("commit", 3, False), ("commit", 4, False)})
def test_a_transaction_that_fails_leaves_nothing_in_a_handler(
    words: list[str], planned: set[tuple[str, int, bool]]
) -> None:
    """P8, in the same process: the object is the one that the failed batch has changed."""
    clock, faults = VirtualClock(), Failures(planned)
    graph = graph_of(retry=Retry(Broken, first_s=0.1))
    tester = Tester(graph, broker=MemoryBroker(clock=clock, faults=faults), policy=CommitPolicy(max_messages=2))
    faults.tester = tester
    for word in words:
        tester.send("in", word)
    tester.run()
    assert found(tester) == expected(words)
    assert not any(faults.ahead)


def made_by(tester: Tester) -> Counts:
    """The object of the only task."""
    [lane] = tester._workers[0].lanes.values()
    made: Counts = lane._desk.context.values["model"]
    return made


def test_the_methods_come_in_the_order_that_is_promised() -> None:
    tester = Tester(graph_of())
    for word in ("a", "b"):
        tester.send("in", word)
    model = made_by(tester.run())
    assert model.heard[:3] == ["initial", "drain", "checkpoint"]
    first = tester.records("count")[-1].sequence
    tester.send("in", "a")
    tester.run()
    assert model.heard[3:6] == [first, "drain", "checkpoint"]
    assert "reset" not in model.heard


def test_a_step_that_raises_is_committed_alone_and_the_others_without_it() -> None:
    tester = Tester(graph_of())
    for word in ("a", "b", "bad a", "a", "a"):
        tester.send("in", word)
    tester.run()
    batches = [record.batch[:3] for record in tester.records("count") if record.batch.deliveries]
    assert batches == [(2, 2, 0), (1, 0, 1), (2, 2, 0)]
    heard = [one for one in made_by(tester).heard if one in ("initial", "reset")]
    assert heard == ["initial", "initial", "reset"]  # at first, before the two again, and before its error


def test_what_is_drained_names_the_attempt_and_no_message() -> None:
    tester = Tester(graph_of())
    for word in ("a", "b"):
        tester.send("in", word)
    tester.run()
    [record] = [one for one in tester.records("count") if one.batch.deliveries]
    headers = [dict(message.headers)[HEADER] for message in tester.messages("held")]
    assert headers == [b"1 g.count/0 %d - %d/2 -" % (record.sequence, index) for index in (0, 1)]


class Failing(Counts):
    """Fails in one method, a number of times."""

    where: ClassVar[str]
    times: ClassVar[int]

    def _fail(self, where: str) -> None:
        if where == Failing.where and Failing.times:
            Failing.times -= 1
            raise LookupError(where)

    def reset(self, entries: Iterable[tuple[bytes, bytes]]) -> None:
        """As its base."""
        self._fail("reset")
        super().reset(entries)

    def drain(self) -> Iterator[Any]:
        """As its base."""
        self._fail("drain")
        yield from super().drain()

    def checkpoint(self) -> Iterator[tuple[bytes, bytes | None]]:
        """As its base, and then too late."""
        yield from super().checkpoint()
        self._fail("checkpoint")

    def retire(self, sequence: int) -> None:
        """As its base."""
        self._fail("retire")


@pytest.mark.parametrize("where", ["reset", "drain", "checkpoint"])
@pytest.mark.parametrize("words", [["a", "b"], ["a", "bad b"], ["bad b"]])
def test_a_method_that_raises_stops_the_task_and_nothing_is_committed(where: str, words: list[str]) -> None:
    """Each failure stops it once; when the handler works again, all of it comes, once."""
    Failing.where, Failing.times = where, 3
    tester = Tester(graph_of(handler=Handler(Failing)))
    for word in words:
        tester.send("in", word)
    failures = 0
    while Failing.times:
        with pytest.raises(HandlerFailed, match=rf"model\.{where}\(\) raised LookupError: {where}"):
            tester.run()
        failures += 1
    assert failures == 3
    assert found(tester.run()) == expected(words)


def test_retire_that_raises_resets_the_handler_and_the_commit_stands() -> None:
    Failing.where, Failing.times = "retire", 1
    tester = Tester(graph_of(handler=Handler(Failing)))
    for word in ("a", "b", "a"):
        tester.send("in", word)
        tester.run()
    assert found(tester) == expected(["a", "b", "a"])
    assert made_by(tester).heard.count("reset") == 1


def test_what_a_changelog_does_not_take_stops_the_task() -> None:
    class Large(Counts):
        def checkpoint(self) -> Iterator[tuple[bytes, bytes | None]]:
            yield b"k", b"x" * 2_000_000

    tester = Tester(graph_of(handler=Handler(Large)))
    tester.send("in", "a")
    with pytest.raises(HandlerFailed, match=r"model\.checkpoint\(\) raised CodecError: .*max\.message\.bytes"):
        tester.run()


@pytest.mark.parametrize("given", [{b"k": b"v"}, [("k", b"v")], [(b"k", 1)], [b"kv"]])
def test_a_checkpoint_that_is_no_pairs_of_bytes_says_what_it_should_be(given: Any) -> None:
    class Odd(Counts):
        def checkpoint(self) -> Any:
            return given

    tester = Tester(graph_of(handler=Handler(Odd)))
    tester.send("in", "a")
    with pytest.raises(HandlerFailed, match=r"model\.checkpoint\(\) raised TypeError: .*pairs \(key, value\) of bytes"):
        tester.run()


def test_what_cannot_be_sent_is_not_drained() -> None:
    class Wrong(Counts):
        def drain(self) -> Iterator[Any]:
            yield Out("nowhere", "text")

    tester = Tester(graph_of(handler=Handler(Wrong)))
    tester.send("in", "a")
    with pytest.raises(Exception, match=r"unknown binding 'nowhere'.* return {binding: message}"):
        tester.run()
    assert tester.totals("count").deliveries == 0


@pytest.mark.parametrize(
    ("method", "setting"),
    [("reset", "reset_timeout_s"), ("drain", "drain_timeout_s"), ("checkpoint", "drain_timeout_s")],
)
def test_a_method_that_takes_too_long_has_failed(monkeypatch: pytest.MonkeyPatch, method: str, setting: str) -> None:
    """Nothing of the batch is committed. With enough time the task goes on where it stood."""
    now, slow = [0.0], [11]
    monkeypatch.setattr("cues_kafka.task.making.contexts.monotonic", lambda: now[0])

    class Slow(Counts):
        def reset(self, entries: Iterable[tuple[bytes, bytes]]) -> None:
            self.take("reset")
            super().reset(entries)

        def drain(self) -> Iterator[Any]:
            self.take("drain")
            yield from super().drain()

        def checkpoint(self) -> Iterator[tuple[bytes, bytes | None]]:
            self.take("checkpoint")
            yield from super().checkpoint()

        def take(self, called: str) -> None:
            now[0] += slow[0] if called == method else 0

    settings: dict[str, Any] = {setting: 10}
    tester = Tester(graph_of(handler=Handler(Slow, **settings)))
    tester.send("in", "a")
    with pytest.raises(HandlerFailed, match=rf"model\.{method}\(\) took 11\.0 s, and may take 10"):
        tester.run()
    assert tester.totals("count").deliveries == 0
    slow[0] = 10
    tester.run()
    assert tester.totals("count").deliveries == 1


def test_resets_without_a_commit_in_between_are_bounded() -> None:
    """A function that fails at another step each time makes no progress."""
    calls = [0]

    def moody(word: str, model: Counts, seen: State[int]) -> None:
        calls[0] += 1
        if word != "0" and calls[0] % 7 == 0:
            raise ValueError(word)

    tester = Tester(graph_of(moody, Handler(Counts, max_resets=3)), policy=CommitPolicy(max_messages=100))
    for n in range(50):
        tester.send("in", str(n))
    tester.run()
    assert tester.totals("moody").deliveries == 50


def test_alts_and_joins_have_handlers() -> None:
    def either(left: str | None = None, right: str | None = None, *, model: Counts) -> str:
        name = left or right or ""
        model.counts[name] = model.counts.get(name, 0) + 1
        model.changed.add(name)
        if name == "r2":
            raise ValueError(name)
        return f"{name}={model.counts[name]}"

    def pair(left: str, right: str, model: Counts) -> str:
        return either(left + right, model=model)

    state = {"model": Handler(Counts)}
    graph = Graph(
        "g",
        Source("l"),
        Source("r"),
        Processor(either, alts={"left": "l", "right": "r"}, outputs="out", state=state, errors="bad"),
        Processor(pair, inputs={"left": "l", "right": "r"}, outputs="pairs", state=state, errors="bad"),
        defaults=Topic(value=Json(str)),
    )
    tester = Tester(graph)
    for n in (1, 2, 3):
        tester.send("l", f"l{n}")
        tester.send("r", f"r{n}")
    tester.run()
    assert sorted(tester.values("out")) == ["l1=1", "l2=1", "l3=1", "r1=1", "r3=1"]
    assert tester.values("pairs") == ["l1r1=1", "l2r2=1", "l3r3=1"]
    assert [error.text for error in tester.errors()] == ["r2"]


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Handler(5), "takes a class, or a function"),  # type: ignore[arg-type]
        (lambda: Handler(dict), "Write class dict"),  # type: ignore[arg-type]
        (lambda: Handler(StateHandler), "lacks checkpoint and reset"),
        (lambda: Processor(plain, inputs="a", state={"model": Counts}), r"'model': Handler\(Counts\)"),  # type: ignore[dict-item]
        (lambda: Handler(Counts, max_resets=0), "max_resets=0"),
        (lambda: Handler(Counts, drain_timeout_s=0), "drain_timeout_s=0"),
        (lambda: Handler(Counts, reset_timeout_s=True), "reset_timeout_s=True"),
        (lambda: graph_of(batch=True), "a Handler with batch=True"),
        (lambda: graph_of(concurrency=2), "concurrency=2"),
    ],
)
def test_what_makes_no_sense_is_refused_with_the_remedy(make: Callable[[], Any], text: str) -> None:
    with pytest.raises(GraphError, match=text):
        make()


def test_a_factory_that_makes_something_else_stops_the_task() -> None:
    tester = Tester(graph_of(handler=Handler(lambda: {"a": 1})))  # type: ignore[arg-type, return-value]
    tester.send("in", "a")
    with pytest.raises(HandlerFailed, match="dict, which is no StateHandler"):
        tester.run()


def test_a_graph_with_handlers_is_written_and_read_as_data() -> None:
    graph = graph_of(handler=Handler(Counts, max_resets=9))
    again = Graph.from_dict(graph.to_dict())
    assert again.processors["count"].state == graph.processors["count"].state
    assert Handler(Counts) == Handler(Counts)
    assert Handler(Counts) != Handler(Counts, max_resets=9)
    assert Handler(Counts) != Store(Raw(), key=Raw())


def test_a_task_whose_commits_fail_again_and_again_stops_and_says_so() -> None:
    """Each failure resets the handler; behind `max_resets` of them the task stops, and is tried again later."""
    faults = Failures({("commit", nth, False) for nth in range(3, 9)})
    broker = MemoryBroker(clock=VirtualClock(), faults=faults)
    tester = Tester(graph_of(handler=Handler(Counts, max_resets=3)), broker=broker)
    tester.send("in", "a")
    with pytest.raises(HandlerFailed, match=r"3 resets in a row without a commit \(max_resets=3\)"):
        tester.run()
    assert found(tester.run()) == expected(["a"])

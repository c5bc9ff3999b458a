"""Kills before and after every effect of the interpreter, on the reference broker; the whole world is compared."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest

from cues_kafka import Graph, Json, Message, Out, Processor, Source, TaskStopped, Topic
from cues_kafka.core import effects
from cues_kafka.core.records import Attempt, Snapshot, Start
from cues_kafka.graph.declare import CommitPolicy
from cues_kafka.testing.tester import Crash, Tester

NAMES = [
    name
    for name, cls in inspect.getmembers(effects, inspect.isclass)
    if cls.__module__ == effects.__name__
    and name not in ("Await", "Discard", "Stop", "Release", "Quarantine", "FetchParts", "AskTarget", "Emit")
]
"""Every effect that a run without failures has, of a processor that is exactly-once, not staged and has no target."""

SEEN: list[str] = []


def clean(n: int) -> int | None:
    """Nil for 3, an error for 7."""
    if n == 7:
        raise ValueError("seven")
    return None if n == 3 else n


def route(n: int) -> Iterator[Out]:
    """A fork."""
    yield Out("all", n)
    if n % 2:
        yield Out("odd", Message(n, headers={"odd": "yes"}))


def ledger(n: int, step: Any) -> None:
    """A sink with an effect that shows the hash."""
    SEEN.append(step.hash)


def pair(left: int, right: int) -> int:
    """A join."""
    return 100 * left + right


def either(left: int | None = None, right: int | None = None) -> int:
    """Alts."""
    return left if left is not None else 1000 + (right or 0)


GRAPH = Graph(
    "world",
    Source("numbers"),
    Processor(clean, inputs="numbers", outputs="clean"),
    Processor(route, inputs="clean", outputs={"all": "all", "odd": "odd"}),
    Processor(ledger, inputs="all"),
    Processor(pair, inputs={"left": "clean", "right": "all"}, outputs="pairs"),
    Processor(either, alts={"left": "odd", "right": "pairs"}, outputs="either"),
    errors="failed",
    defaults=Topic(value=Json(), partitions=2),
)
POLICY = CommitPolicy(max_messages=4, idle_seconds=1.0)


def feed(tester: Tester) -> None:
    """Two partitions, known order."""
    for n in range(12):
        tester.send("numbers", Message(n, key=f"k{n % 5}"))


def world(tester: Tester) -> dict[Any, Any]:
    """Everything that readers can see: values, keys, places in order; errors; where each task stands; its totals."""
    seen: dict[Any, Any] = {}
    for topic in ("clean", "all", "odd", "pairs"):
        for message in tester.messages(topic):
            seen.setdefault((topic, message.partition), []).append((message.value, message.key_bytes))
    # Alts take what is there first: the order between inputs is free, within one input it is not.
    for partition in range(2):
        values = [m.value for m in tester.messages("either") if m.partition == partition]
        seen["either", partition] = sorted(values)
    seen["failed"] = sorted((e.processor, e.text, e.hash) for e in tester.errors())
    for name in GRAPH.processors:
        seen[name] = tester.totals(name)
    return seen


def check_records(tester: Tester) -> None:
    """I13: no gap, no repeat; totals add up; positions never go back."""
    for name in GRAPH.processors:
        for partition in range(2):
            records = tester.records(name, partition)
            assert [r.sequence for r in records] == list(range(len(records))), name
            assert isinstance(records[0], Start)
            for before, record in pairwise(records):
                assert record.step == before.step + record.batch.deliveries
                assert record.totals == before.totals.plus(record.batch)
                assert all(p.offset >= q.offset for p, q in zip(record.positions, before.positions, strict=True))
                if isinstance(before, Snapshot) and isinstance(record, Attempt) and not before.careful_until:
                    assert record.batch.deliveries <= before.steps
            t = records[-1].totals
            assert t.deliveries == t.outputs + t.errors + t.nils


@pytest.fixture(scope="module")
def undisturbed() -> dict[str, Any]:
    """The world without a crash."""
    tester = Tester(GRAPH, policy=POLICY)
    feed(tester)
    tester.run()
    check_records(tester)
    assert tester.totals("clean").errors == 1
    return world(tester)


@pytest.mark.parametrize("nth", [1, 2, 7, 20])
@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("effect", NAMES)
def test_a_kill_at_any_effect_changes_nothing_that_is_committed(
    effect: str, moment: str, nth: int, undisturbed: dict[str, Any]
) -> None:
    """One kill, a new process over the same logs, the same world; no record is missing or doubled."""
    tester = Tester(GRAPH, policy=POLICY)
    feed(tester)
    tester.run(crash=Crash(moment, effect, nth))
    tester.restart().run()
    assert undisturbed == world(tester)
    check_records(tester)
    for name in GRAPH.processors:
        for topics in tester.outcomes(name).values():
            assert len(topics) == len(set(topics)), "one record of each output for each delivery"


def test_every_effect_is_really_reached() -> None:
    """A crash point that no run passes would make the tests above pass for nothing."""
    for name in NAMES:
        tester = Tester(GRAPH, policy=POLICY)
        feed(tester)
        tester.run(crash=Crash("before", name))
        assert tester.crashed, name


def test_recovery_survives_a_kill_at_each_of_its_own_effects(undisturbed: dict[str, Any]) -> None:
    """I10: recovery is idempotent, also when it is itself interrupted anywhere."""
    tester = Tester(GRAPH, policy=POLICY)
    feed(tester)
    tester.run(crash=Crash("after", "Flush", 5))
    recovery = ("Init", "FetchOffsets", "FetchWatermark", "ReadNewest", "FetchInputs", "AssignReader")
    for name in (*recovery, "Begin", "Commit"):
        for moment in ("before", "after"):
            tester.restart().run(crash=Crash(moment, name, 3))
    tester.restart().run()
    assert undisturbed == world(tester)
    check_records(tester)


def test_the_hash_of_a_delivery_is_the_same_on_every_attempt() -> None:
    """I6."""
    SEEN.clear()
    tester = Tester(GRAPH, policy=POLICY)
    feed(tester)
    tester.run(crash=Crash("before", "Commit", 40))
    tester.restart().run()
    assert tester.totals("ledger").deliveries == len(set(SEEN))


def killer(bad: int, *, several: int, **settings: Any) -> tuple[Tester, int]:
    """A processor that kills its process at one value, restarted until it is through; and how often it died."""
    made: list[Tester] = []

    def deadly(n: int) -> int:
        if n == bad:
            made[0].kill()
        return n

    graph = Graph(
        "deadly", Source("numbers"), Processor(deadly, inputs="numbers", outputs="out", **settings), errors="failed"
    )
    tester = Tester(graph)
    made.append(tester)
    tester.send_many("numbers", list(range(several)))
    deaths = 0
    while tester.run_to_death():
        deaths += 1
        assert deaths < 30, "it never ends"
    return tester, deaths


def test_a_single_message_that_kills_is_quarantined_after_three_deaths() -> None:
    """Q3: starts > 2, so the third death is the last; the bytes are kept undecoded."""
    tester, deaths = killer(0, several=1)
    assert deaths == 3
    [error] = tester.errors()
    assert (error.kind, error.payload, error.starts) == ("quarantine", b"0", 3)
    snapshots = [r.starts for r in tester.records("deadly") if isinstance(r, Snapshot)]
    assert snapshots == [0, 1, 2]


def test_among_others_the_killer_is_found_one_by_one_and_the_rest_is_delivered_once() -> None:
    """Q2: two deaths of the whole range, one when its single step has no snapshot yet, three of that very message."""
    tester, deaths = killer(3, several=6)
    assert tester.values("out") == [0, 1, 2, 4, 5]
    [error] = tester.errors()
    assert error.kind == "quarantine"
    assert error.consumed[0].offset == 3
    assert "at least 3 times" in error.text
    assert deaths == 2 + 1 + 3
    assert tester.totals("deadly").deliveries == 6


def test_the_first_of_several_is_not_counted_as_the_same_range() -> None:
    """Q2: the first step of careful mode is new ranges, which begin at 0."""
    tester, deaths = killer(0, several=6)
    assert tester.values("out") == [1, 2, 3, 4, 5]
    assert deaths == 2 + 3


def test_quarantine_can_be_turned_off() -> None:
    """`quarantine_after=None`: it dies without end."""
    with pytest.raises(AssertionError, match="never ends"):
        killer(0, several=1, quarantine_after=None)


def test_without_an_errors_topic_the_task_stops_and_names_the_message() -> None:
    """Q3."""
    with pytest.raises(TaskStopped, match=r"numbers/0 at 0 killed its process at least 3 times"):
        killer(0, several=1, errors=False)


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
    tester.run(crash=Crash("before", "Stop", 10**9))
    tester.run_to_death()
    put("a4", "a5", "b4")
    tester.run_to_death()
    deadly[0] = False
    tester.run_to_death()
    assert {f"a{i}" for i in range(6)} | {f"b{i}" for i in range(5)} <= set(seen)

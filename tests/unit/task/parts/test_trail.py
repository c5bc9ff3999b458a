"""`trail=`: one record for each step that ends, committed with its outcome."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from cues_kafka import Graph, GraphError, Json, Message, Processor, Source, Sql, Store, Timers, Topic
from cues_kafka.graph.declare import CommitPolicy
from cues_kafka.graph.handler import Handler, StateHandler
from cues_kafka.testing import Crash, Tester
from cues_kafka.verify.scan import verify

DEFAULTS = Topic(value=Json(), partitions=1)


def check(n: int) -> int | None:
    """0 gives nothing, a negative number fails."""
    if n < 0:
        raise ValueError(n)
    return n or None


def graph_of(fn: Any = check, **options: Any) -> Graph:
    """A pipe with a trail."""
    options = {"inputs": "in", "outputs": "out", "trail": "trail", "name": "p", **options}
    return Graph("g", Source("in"), Processor(fn, **options), errors="errors", defaults=DEFAULTS)


class Kept(StateHandler):
    """State in an object of the user's."""

    def checkpoint(self) -> Any:
        """Nothing has changed."""
        return ()

    def reset(self, entries: Any) -> None:
        """Nothing is kept."""


def told(tester: Tester) -> list[tuple[int, str, int]]:
    """Offset, outcome and number of outputs of each step, in the order of the trail."""
    rows = tester.values("trail")
    return [(row["consumed"][0]["offset"], row["outcome"], row["outputs"]) for row in rows]


def test_each_step_that_ends_has_a_record_with_its_outcome() -> None:
    """With what it consumed, and the hash that its outputs and its error message have."""
    tester = Tester(graph_of())
    began_ms = int(tester.clock.time() * 1000)
    for n in (5, 0, -1):
        tester.send("in", n)
    tester.run()

    assert told(tester) == [(0, "outputs", 1), (1, "nothing", 0), (2, "error", 0)]
    last = tester.messages("trail")[-1]
    [error] = tester.errors()
    assert last.key == last.value["hash"] == error.hash.hex()
    assert last.value["consumed"] == [{"topic": "in", "partition": 0, "offset": 2}]
    assert (last.value["processor"], last.value["task"]) == ("p", "p/0")
    assert last.value["begun_by"] == "messages"
    assert began_ms <= last.value["time_ms"] <= int(tester.clock.time() * 1000)


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("effect", ["Produce", "Commit"])
def test_records_are_committed_with_their_steps(moment: str, effect: str) -> None:
    """A process dies in the middle of the transaction or behind it: each step has one record, and one outcome."""
    tester = Tester(graph_of())
    for n in (1, 0, -1, 2):
        tester.send("in", n)
    tester.run(crash=Crash(moment, effect, 3))
    assert tester.crashed
    tester.restart().run()

    assert told(tester) == [(0, "outputs", 1), (1, "nothing", 0), (2, "error", 0), (3, "outputs", 1)]
    assert tester.values("out") == [1, 2]


def test_lists_forks_and_filters_have_records_too() -> None:
    """A list is several steps, what a filter leaves out gives nothing, and a fork counts all of its outputs."""

    def spread(n: int) -> dict[str, int]:
        return {"a": n, "b": n}

    lists = Tester(graph_of(lambda ns: [check(n) if n >= 0 else ValueError(n) for n in ns], batch=True))
    filtered = Tester(graph_of(filter=lambda one: one.value != 5))
    forks = Tester(graph_of(spread, outputs={"a": "a", "b": "b"}))
    for tester in (lists, filtered, forks):
        for n in (5, 0, -1):
            tester.send("in", n)
        tester.run()

    assert told(lists) == [(0, "outputs", 1), (1, "nothing", 0), (2, "error", 0)]
    assert told(filtered) == [(0, "nothing", 0), (1, "nothing", 0), (2, "error", 0)]
    assert [row[1:] for row in told(forks)] == [("outputs", 2)] * 3


def test_a_step_of_a_timer_is_named_by_its_timer() -> None:
    """It consumed the message that set it."""

    def schedule(n: int, step: Any) -> None:
        step.schedule("k", at=n)

    def fired(timer: Any) -> int:
        return int(timer.due_ms)

    tester = Tester(graph_of(schedule, state={"timers": Timers(fired)}))
    tester.send("in", Message(10, timestamp_ms=5))
    tester.send("in", Message(99, timestamp_ms=50))
    tester.run()

    rows = tester.values("trail")
    assert [(row["begun_by"].split(" of ")[0], row["outcome"]) for row in rows] == [
        ("messages", "nothing"), ("messages", "nothing"), ("timer 'k'", "outputs"),
    ]  # fmt: skip
    assert tester.values("out") == [10]


def test_a_step_that_a_database_takes_back_has_the_record_of_its_error_alone(tmp_path: Path) -> None:
    """All steps of the chunk are called again one by one; and the records are in the database's outbox, too."""

    def write(n: int, db: Any) -> int:
        db.execute("INSERT INTO paid VALUES (?)", (n,))
        return n

    sqlite3.connect(tmp_path / "a.db").execute("CREATE TABLE paid (n INTEGER PRIMARY KEY)")
    tester = Tester(graph_of(write, effects={"db": Sql(f"sqlite:///{tmp_path / 'a.db'}")}))
    for n in (1, 1, 2):
        tester.send("in", n)
    tester.run(crash=Crash("after", "CommitTarget", 1))
    assert tester.crashed
    tester.restart().run()

    assert told(tester) == [(0, "outputs", 1), (1, "error", 0), (2, "outputs", 1)]
    assert tester.values("out") == [1, 2]


def test_a_target_without_outputs_commits_the_records_with_its_rows(tmp_path: Path) -> None:
    """Its batches have no parts: each part would publish the records of those before again."""

    def write(n: int, db: Any) -> None:
        db.execute("INSERT INTO paid VALUES (?)", (n,))

    sqlite3.connect(tmp_path / "a.db").execute("CREATE TABLE paid (n INTEGER)")
    effects = {"db": Sql(f"sqlite:///{tmp_path / 'a.db'}")}
    policy = CommitPolicy(max_messages=2)
    tester = Tester(graph_of(write, outputs=None, effects=effects), policy=policy)
    for n in range(7):
        tester.send("in", n)
    tester.run()

    assert told(tester) == [(n, "nothing", 0) for n in range(7)]


def test_verify_finds_nothing_wrong_in_a_trail() -> None:
    """Its records are of an attempt, and are counted there."""
    tester = Tester(graph_of(state={"s": Store(Json(int))}, fn=lambda n, s: s.setdefault("a", n)))
    for n in (1, 2, 3):
        tester.send("in", n)
    tester.run()

    found = verify(tester.graph, tester.broker)
    assert found.ok, found
    assert tester.totals("p").drained == 3


def test_a_trail_is_declared_as_data_and_bound_like_other_topics() -> None:
    """The framework sets its codec, whatever the defaults are."""
    graph = graph_of()

    assert Graph.from_dict(graph_of(fn=check).to_dict()) == graph
    assert graph.topic("trail").value == Json()
    assert "trail" in graph.topics_written()
    assert graph.bind(topics={"trail": "other"}).processors["p"].trail == "other"


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"strategy": "at-most-once"}, "trail= with strategy="),
        ({"state": {"h": Handler(Kept)}}, "trail= with a Handler"),
        ({"trail": "out"}, "is a trail=, and messages of another form"),
        ({"trail": "g.p.backing"}, "only the framework writes"),
    ],
)
def test_a_trail_that_could_not_be_kept_is_refused(options: dict[str, Any], text: str) -> None:
    """Where it is declared."""
    with pytest.raises(GraphError, match=text):
        graph_of(**options)


def test_the_codec_of_a_trail_cannot_be_set() -> None:
    """Its records have a form of their own."""
    with pytest.raises(GraphError, match="the framework sets its codec"):
        Graph(
            "g",
            Source("in"),
            Processor(check, inputs="in", outputs="out", trail="t"),
            topics={"t": Topic(value=Json(int))},
        )

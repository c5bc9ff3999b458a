"""Retries of a batch whose input was compacted after the batch was announced."""

from __future__ import annotations

import pytest

from cues_kafka import Graph, Processor, Source, TaskStopped, Topic
from cues_kafka.core.records import Snapshot
from cues_kafka.operate.move.accept_loss import accept_loss
from cues_kafka.operate.move.base import Maintenance
from cues_kafka.testing.tester import Crash, Tester
from tests.unit.samples import same

COMPACTED = Topic(config={"cleanup.policy": "compact"})


@pytest.mark.parametrize("keys", ["k", "kl", "lk", "klmk"])
@pytest.mark.parametrize("deaths", [1, 2, 3, 4])
def test_a_retry_on_a_compacted_topic_goes_on_with_what_is_left(keys: str, deaths: int) -> None:
    """It stopped for good, without a remedy. Newer messages of a key supersede the older ones, so these may be gone."""
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
    """It was due again without end, alone, after each of its deaths."""
    topics = {"in": Topic(config={"cleanup.policy": "compact"})}

    def deadly(value: str) -> str:
        if value == "kill":
            tester.kill()
        return value

    tester = Tester(Graph("g", Source("in"), Processor(deadly, inputs="in", outputs="out"), topics=topics))
    tester.send("in", "kill", key="k")
    assert tester.run_to_death()
    assert tester.run_to_death()
    tester.send("in", "fixed", key="k")
    tester.broker.compact("in")
    tester.run()

    assert tester.values("out") == ["fixed"]


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
    with pytest.raises(
        TaskStopped, match=rf"{left} of the {left + 1} steps.*`cues-kafka accept-loss MODULE:GRAPH same`"
    ):
        tester.restart().run()
    assert not tester.values("out")

    tester.broker.expire("g.same")
    tool = Maintenance(graph, tester.broker, "same", who="test", clock=tester.clock)
    [move] = accept_loss(tool)
    assert move.notes[0] == (
        f"in/0: 1 message of a batch that was announced up to {left + 1} is gone from the log and LOST; {left} of it "
        f"{'is' if left == 1 else 'are'} left"
    )
    tool.carry_out([move])
    assert not accept_loss(tool)
    assert tester.restart().run().values("out") == [*["other 0"][:left], "new"]


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
    [move] = accept_loss(tool)
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
    [move] = accept_loss(tool)
    assert move.notes[0].startswith("a/0: 1 message of a batch that was announced up to 3 is gone")
    tool.carry_out([move])
    seen.clear()
    while tester.run_to_death():
        pass
    assert sorted(set(seen)) == ["ax", "ay", "b0", "b1"]

"""Two graphs that share topics: each sees, replays and deletes what is its own."""

from __future__ import annotations

from typing import Any

import pytest

from cues_kafka import Graph, Json, Processor, RecoveryError, Source, Topic
from cues_kafka.operate.deleting import Deleting
from cues_kafka.operate.look.status import StatusView
from cues_kafka.operate.repair.ask import Repairs
from cues_kafka.operate.repair.filed import Selection
from cues_kafka.plan.topics import Sides
from cues_kafka.testing.tester import Tester
from cues_kafka.verify.scan import verify


def first(n: int) -> int:
    """Refuses fives."""
    if n % 5 == 0:
        raise ValueError("five")
    return n


def second(n: int) -> int:
    """Refuses sevens."""
    if n % 7 == 0:
        raise ValueError("seven")
    return n


def graph_of(name: str, fn: Any, into: str, out: str, **more: Any) -> Graph:
    """Its processor has the same name in each graph, and its errors topic is shared."""
    function = Processor(fn, name="work", inputs=into, outputs=out)
    return Graph(name, Source(into), function, defaults=Topic(value=Json(), partitions=2), errors="errors", **more)


ONE = graph_of("one", first, "in", "mid")
PAIRS = {
    "one feeds the other": (ONE, graph_of("two", second, "mid", "out")),
    "both write one topic": (ONE, graph_of("two", second, "in", "mid")),
    "one name begins the other": (ONE, graph_of("two", second, "mid", "out", prefix="one.")),
    "each feeds the other": (ONE, graph_of("two", lambda n: None, "mid", "in")),
}


def at_work(one: Graph, two: Graph) -> tuple[Tester, Tester]:
    """Both have delivered, and their workers live."""
    tester = Tester(one)
    for n in range(1, 15):
        tester.send("in", n, key=str(n))
    return tester.run(), Tester(two, broker=tester.broker).run()


@pytest.mark.parametrize("pair", PAIRS)
def test_graphs_with_shared_topics_see_and_replay_their_own(pair: str) -> None:
    """Errors, status and verify; a replay of one asks no task of the other."""
    one, two = PAIRS[pair]
    own, other = at_work(one, two)
    texts = {one.name: {"five"}, two.name: {"seven"} if pair != "each feeds the other" else set()}
    for graph, tester in ((one, own), (two, other)):
        causes = Repairs(graph, tester.broker).causes()
        assert {cause.text for cause in causes} == texts[graph.name]
        assert verify(graph, tester.broker).ok
        with StatusView(graph, tester.broker, sides=Sides(status=False, control=False)) as view:
            seen = view.look()
        assert ([task.task for task in seen.tasks], seen.unwell) == (["work/0", "work/1"], ())
    asked = Repairs(one, own.broker).ask("replay", Selection(), dry=False)
    assert (asked.asked, not asked.refused) == (2, True)
    for tester in (own, other):
        tester.run()
    assert sum(totals(own)) == 2
    assert sum(totals(other)) == 0
    assert verify(one, own.broker).ok
    assert verify(two, own.broker).ok


def totals(tester: Tester) -> list[int]:
    """How many error messages each task has replayed."""
    return [tester.records("work", p)[-1].totals.replays for p in (0, 1)]


def test_topics_that_another_graph_reads_are_not_deleted_under_its_workers() -> None:
    """`--data` and `--topic` name who reads, refuse while it does, and warn once it is stopped."""
    one, two = PAIRS["one feeds the other"]
    first_tester, second_tester = at_work(one, two)
    first_tester.stop()
    tool = Deleting(one, first_tester.broker)
    for planned in (tool.whole(data=True), tool.topic("mid")):
        assert planned.readers == ("two.work",)
        assert any("group two.work, which is not of this graph, reads mid." in text for text in planned.warnings)
        with pytest.raises(RecoveryError, match=r"group 'two\.work' has members"):
            tool.carry_out(planned)
    assert "mid" in first_tester.broker.partitions()
    assert tool.whole().readers == (), "topics of the user stay then"
    tool.carry_out(tool.whole())
    assert verify(two, first_tester.broker).ok
    second_tester.stop()
    tool.carry_out(tool.topic("mid"))
    assert "mid" not in first_tester.broker.partitions()
    assert "two.work.backing" in first_tester.broker.partitions()

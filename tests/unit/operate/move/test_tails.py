"""What operators see and do about tailers: `accept-loss`, `plan`, `status`, `verify` and cuts (L2)."""

from __future__ import annotations

from typing import Any

import pytest

from cues_kafka import Graph, Json, Message, Processor, Source, Store, Tailer, TaskStopped, Topic
from cues_kafka.errors import FatalError
from cues_kafka.operate.look.forgotten import forgotten_tailers
from cues_kafka.operate.look.lineage import lineage
from cues_kafka.operate.move.accept_loss import accept_loss
from cues_kafka.operate.move.base import Maintenance
from cues_kafka.operate.move.reset import reset
from cues_kafka.plan.plan import plan
from cues_kafka.plan.rebuildable import obstacle as cannot_rebuild
from cues_kafka.ports.log import TopicPartition
from cues_kafka.testing.tester import Tester
from cues_kafka.verify.recompute import obstacle as cannot_recompute
from cues_kafka.verify.scan import verify
from tests.unit.operate.move.test_moving import recreate


def work(n: int, old: Tailer) -> list[Any]:
    """Two of the old messages."""
    return [n, [one.value for one in old.messages(limit=2)]]


def graph_of(tailers: Any = None, fn: Any = work) -> Graph:
    """One processor with a tailer."""
    return Graph(
        "shop",
        Source("orders"),
        Source("old"),
        Processor(fn, name="work", inputs="orders", outputs="out", tailers=tailers or {}),
        defaults=Topic(value=Json(), partitions=1),
    )


GRAPH = graph_of({"old": "old"})


def delivered() -> Tester:
    """Two orders are delivered, so the tailer stands at 4."""
    tester = Tester(GRAPH)
    for n in range(8):
        tester.send("old", Message(n, key="k"))
    for n in (1, 2):
        tester.send("orders", n)
    tester.run()
    tester.stop()
    return tester


def tool(tester: Tester) -> Maintenance:
    """As the command makes it."""
    return Maintenance(GRAPH, tester.broker, "work", who="tool", clock=tester.clock)


def test_a_tailer_goes_on_behind_what_was_trimmed_when_an_operator_accepts_it() -> None:
    """Until then the task refuses; the plan says what is lost, and the input's place stays."""
    tester = delivered()
    tester.broker.trim({TopicPartition("old", 0): 6})
    tester.send("orders", 3)
    with pytest.raises(TaskStopped, match=r"stands at 4, and the log begins at 6.*accept-loss"):
        tester.run()
    tester.stop()
    tester.broker.expire("shop.work")
    moves = accept_loss(tool(tester))
    assert [note for move in moves for note in move.notes] == [
        (
            "old/0: tailer 'old' goes on at 6; what offsets [4, 6) held is LOST, it is never shown: at most 2 "
            "messages, for markers of transactions have offsets too"
        )
    ]
    tool(tester).carry_out(moves)
    tester.restart().run()

    assert tester.values("out")[-1] == [3, [6, 7]]
    tester.stop()
    assert accept_loss(tool(tester)) == []


def test_a_loss_of_both_is_one_move() -> None:
    """The input and the tailed topic were trimmed."""
    tester = delivered()
    for n in range(3, 6):
        tester.send("orders", n)
    tester.broker.trim({TopicPartition("old", 0): 6, TopicPartition("orders", 0): 4})
    [move] = accept_loss(tool(tester))
    assert len(move.notes) == 2
    tool(tester).carry_out([move])
    tester.restart().run()

    assert tester.values("out")[-1] == [5, [6, 7]]


def test_a_tailer_of_a_recreated_topic_begins_again_when_an_operator_accepts_it() -> None:
    """At `start=`."""
    tester = delivered()
    recreate(tester, "old")
    tester.send("old", Message("new", key="k"))
    tester.send("orders", 3)
    with pytest.raises(TaskStopped, match="deleted and recreated"):
        tester.run()
    tester.stop()
    tester.broker.expire("shop.work")
    [move] = accept_loss(tool(tester))
    assert "begins at start= of the new topic" in move.notes[0]
    tool(tester).carry_out([move])
    tester.restart().run()

    assert tester.values("out")[-1] == [3, ["new"]]


def test_a_reset_of_the_input_leaves_the_tailer() -> None:
    """Its messages were taken, and are not given back."""
    tester = delivered()
    tool(tester).carry_out(reset(tool(tester)))
    tester.restart().run()

    assert tester.values("out")[-2:] == [[1, [4, 5]], [2, [6, 7]]]


def test_a_plan_shows_tailers_and_warns_of_those_that_are_forgotten() -> None:
    """By the newest record."""
    tester = delivered()
    assert "orders -> out; tailers: old" in str(plan(GRAPH))
    assert list(forgotten_tailers(GRAPH, tester.broker, tester.clock)) == []
    [gone] = forgotten_tailers(graph_of(fn=abs), tester.broker, tester.clock)
    [other] = forgotten_tailers(graph_of({"old": "orders"}), tester.broker, tester.clock)

    assert "work no longer has the tailer 'old'" in gone
    assert "has read 'old' so far, and now reads 'orders'" in other
    assert list(forgotten_tailers(GRAPH, Tester(GRAPH).broker)) == []


def test_a_user_who_may_not_read_records_is_told_so_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A deployer is such a user, and needs no right for it: the user of a worker sees the warning."""
    tester = delivered()

    def forbidden(*_: Any, **__: Any) -> Any:
        raise FatalError("user `ann` may not read group `shop.work`", code="GROUP_AUTHORIZATION_FAILED")

    monkeypatch.setattr(tester.broker, "reader", forbidden)
    [warning] = forgotten_tailers(GRAPH, tester.broker, tester.clock)

    assert "whether work had other tailers before, for this user may not read the records of tasks" in warning


def test_a_removed_tailer_is_forgotten_and_begins_again_when_it_is_back() -> None:
    """With the same backing topic."""
    tester = delivered()
    later = Tester(graph_of(fn=lambda n: n), broker=tester.broker)
    later.send("orders", 3)
    later.run()
    later.stop()
    assert later.records("work")[-1].tails == ()
    again = Tester(GRAPH, broker=tester.broker)
    again.send("orders", 4)
    again.run()

    assert again.values("out")[-1] == [4, [0, 1]]


def test_lineage_of_an_appended_message_leads_to_the_message_of_its_step() -> None:
    """As that of an output."""
    processor = Processor(lambda n, kept: kept.append(n), name="work", inputs="orders", appenders={"kept": "archive"})
    tester = Tester(Graph("shop", Source("orders"), processor, defaults=Topic(value=Json(), partitions=1)))
    tester.send("orders", 7)
    tester.run()
    [kept] = tester.messages("archive")
    [(_, parent)] = lineage(tester.broker, TopicPartition("archive", 0), kept.offset).inputs

    assert (parent.topic, parent.offset) == ("orders", 0)


def test_verify_finds_nothing_wrong_and_says_where_it_cannot_look() -> None:
    """Appended records and outputs are counted together; a store cannot be recomputed from the input alone."""

    def both(n: int, old: Tailer, kept: Any, counts: Any) -> int:
        counts["n"] = n
        for one in old.messages(limit=2):
            kept.append(one.value)
        return n

    processor = Processor(
        both,
        name="work",
        inputs="orders",
        outputs="out",
        tailers={"old": "old"},
        appenders={"kept": "archive"},
        state={"counts": Store(Json())},
    )
    tester = Tester(Graph("shop", Source("orders"), Source("old"), processor, defaults=Topic(value=Json())))
    for n in range(6):
        tester.send("old", Message(n, key="k"))
        tester.send("orders", Message(n, key="k"))
    tester.run()
    report = verify(tester.graph, tester.broker)

    assert report.ok, str(report)
    assert len(tester.values("archive")) == 6
    assert "reads 'old' by itself" in str(cannot_recompute(processor, ()))
    assert "reads 'old' by itself" in str(cannot_rebuild(processor, pure=True))

"""`cues-kafka strategy` on the reference broker: from each strategy to each other one (W7)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from typing import Any

import pytest

from cues_kafka import Graph, Json, Processor, RecoveryError, Source, TaskStopped, Topic
from cues_kafka.core.records import Start
from cues_kafka.graph.declare import CommitPolicy
from cues_kafka.operate.move.base import Maintenance
from cues_kafka.operate.move.holding import HeldGroup
from cues_kafka.operate.move.strategy import change_strategy
from cues_kafka.operate.repair.ask import Repairs
from cues_kafka.records.bytes import encode_record
from cues_kafka.testing.tester import Crash, Tester
from cues_kafka.verify.scan import verify

NAMES = ("exactly-once", "at-least-once", "at-most-once")


def graph(strategy: Any, partitions: int = 1) -> Graph:
    """A pipe."""
    return Graph(
        "c",
        Source("numbers"),
        Processor(lambda n: n, name="same", inputs="numbers", outputs="copies", strategy=strategy),
        defaults=Topic(value=Json(int), partitions=partitions),
    )


def sent(tester: Tester, *numbers: int) -> Tester:
    """With more messages."""
    for n in numbers:
        tester.send("numbers", n)
    return tester


def tool(tester: Tester, strategy: str, hook: Any = None) -> Maintenance:
    """The tool of the new declaration; no time is waited for in a world whose clock stands."""
    return Maintenance(graph(strategy), tester.broker, "same", who="strategy on here", session_s=0.0, hook=hook)


@pytest.mark.parametrize(("former", "new"), list(permutations(NAMES, 2)))
def test_each_strategy_becomes_each_other_one(former: str, new: str) -> None:
    """Said first; then the tasks go on where they stood, and verify knows both."""
    tester = sent(Tester(graph(former)), 1, 2, 3).run()
    tester.stop()
    with pytest.raises(TaskStopped, match=f"was written {former}; the graph says {new}"):
        Tester(graph(new), broker=tester.broker).run()
    tester.broker.expire("c.same")

    changing = tool(tester, new)
    [move] = change_strategy(changing)
    assert move.notes == (f"{former} becomes {new}, from the same place on",)
    assert tester.records("same", 0)[-1].strategy == former
    changing.carry_out([move])
    assert change_strategy(tool(tester, new)) == []

    after = sent(Tester(graph(new), broker=tester.broker), 4).run()
    assert after.values("copies") == [1, 2, 3, 4]
    assert after.records("same", 0)[-1].strategy == new
    report = verify(after.graph, after.broker)
    assert report.ok, list(report.lines)


@pytest.mark.parametrize("new", ["at-least-once", "at-most-once"])
def test_what_was_settled_stays_settled_under_another_strategy(new: str) -> None:
    """Such a processor takes no requests, and what it took as exactly-once is done."""

    def refusing(strategy: Any) -> Graph:
        def refuse(_: int) -> int:
            raise ValueError("no")

        function = Processor(refuse, name="same", inputs="numbers", outputs="copies", strategy=strategy)
        settings = Topic(value=Json(int), partitions=1)
        return Graph("c", Source("numbers"), function, defaults=settings, errors="c.errors")

    tester = sent(Tester(refusing("exactly-once")), 1, 2).run()
    with Repairs(tester.graph, tester.broker, clock=tester.clock) as repairs:
        repairs.ask("drop", limit=1)
    tester.run().stop()
    changed = refusing(new)
    tool = Maintenance(changed, tester.broker, "same", who="strategy on here", session_s=0.0)
    tool.carry_out(change_strategy(tool))

    with Repairs(changed, tester.broker, clock=tester.clock) as repairs:
        assert sum(cause.count for cause in repairs.causes()) == 1
        assert [one.settled is not None for one in repairs.find()] == [True, False]
        asked = repairs.ask("replay")
    assert (asked.settled, sum(asked.refused.values())) == (1, 1)


def test_a_batch_that_is_announced_is_not_taken_over() -> None:
    """The former version delivers it first."""
    tester = sent(Tester(graph("exactly-once")), 1, 2, 3)
    tester.run(crash=Crash("before", "Call", 1))
    tester.restart()
    tester.broker.expire("c.same")

    with pytest.raises(RecoveryError, match="has announced 3 steps, which exactly-once has to deliver"):
        change_strategy(tool(tester, "at-most-once"))


def test_steps_in_flight_are_counted_and_said() -> None:
    """W4: a process at-most-once died; nothing of its batch is delivered exactly-once afterwards."""
    tester = sent(Tester(graph("at-most-once"), policy=CommitPolicy(max_messages=2)), 1, 2, 3, 4)
    tester.run(crash=Crash("before", "Call", 1))
    tester.restart()
    tester.broker.expire("c.same")

    changing = tool(tester, "exactly-once")
    moves = change_strategy(changing)
    assert moves[0].notes[1] == "2 steps that a dead process has taken and not settled count as DROPPED"
    changing.carry_out(moves)

    after = Tester(graph("exactly-once"), broker=tester.broker).run()
    assert after.values("copies") == [3, 4]
    assert after.totals("same").dropped == 2
    report = verify(after.graph, after.broker)
    assert report.ok, list(report.lines)
    assert report["same"].dropped == 2


def test_an_older_record_that_came_last_does_not_move_a_task_back() -> None:
    """W7: a former worker at-least-once was paused, and wrote behind the newest record."""
    tester = sent(Tester(graph("at-least-once")), 1, 2, 3).run()
    tester.stop()
    first = tester.records("same", 0)[0]
    assert isinstance(first, Start)
    late = ("c.same.backing", 0, b"t", encode_record(first), None, 0)
    tester.broker.sender("zombie").send([late])

    changing = tool(tester, "exactly-once")
    [move] = change_strategy(changing)
    assert move.notes == ("at-least-once becomes exactly-once, at the group's offsets: an older record came last",)
    changing.carry_out([move])
    tester.broker.sender("zombie").send([late])
    with pytest.raises(TaskStopped, match="was written at-least-once"):
        sent(Tester(graph("exactly-once"), broker=tester.broker), 4).run()
    tester.broker.expire("c.same")
    changing = tool(tester, "exactly-once")
    changing.carry_out(change_strategy(changing))

    after = Tester(graph("exactly-once"), broker=tester.broker).run()
    assert after.values("copies") == [1, 2, 3, 4]


def test_workers_that_run_are_not_changed_under() -> None:
    """The group has a member."""
    tester = sent(Tester(graph("at-least-once")), 1).run()

    with pytest.raises(RecoveryError, match="Stop its workers first"):
        change_strategy(tool(tester, "exactly-once"))


@pytest.mark.parametrize("effect", ["Init", "SendOffsets", "Produce", "Flush", "Commit"])
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_tool_that_dies_leaves_one_strategy_or_the_other(moment: str, effect: str) -> None:
    """The same command completes it."""

    class Died(BaseException):
        pass

    def hook(*point: str) -> None:
        if point == (moment, effect):
            raise Died

    tester = sent(Tester(graph("at-most-once")), 1, 2).run()
    tester.stop()
    dying = tool(tester, "exactly-once", hook)
    with pytest.raises(Died):
        dying.carry_out(change_strategy(dying))
    changing = tool(tester, "exactly-once")
    changing.carry_out(change_strategy(changing))

    after = sent(Tester(graph("exactly-once"), broker=tester.broker), 3).run()
    assert after.values("copies") == [1, 2, 3]
    assert verify(after.graph, after.broker).ok


def test_another_member_ends_the_hold() -> None:
    """W7: a worker that joins within the two sessions."""
    tester = sent(Tester(graph("at-least-once", partitions=2)), 1).run()
    tester.stop()
    changing = Maintenance(
        graph("exactly-once", partitions=2), tester.broker, "same", who="strategy on here", session_s=30.0
    )
    moves = change_strategy(changing)
    held: list[Any] = []

    def poll_and_join(self: HeldGroup, seconds: float) -> None:
        held.append(seconds)
        member = tester.broker.member("c.same", "numbers", Silent())
        member.poll()
        hold(self, seconds)

    hold = HeldGroup.hold
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(HeldGroup, "hold", poll_and_join)
        with pytest.raises(RecoveryError, match="a worker joined group"):
            changing.carry_out(moves)

    assert held == [60.0]
    assert tester.records("same", 0)[-1].strategy == "at-least-once"


class Silent:
    """A listener that does nothing."""

    def on_assign(self, partitions: Sequence[int]) -> None:
        """Nothing."""

    on_revoke = on_lost = on_assign

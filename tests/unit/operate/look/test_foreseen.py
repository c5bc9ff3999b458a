"""What a changed declaration would do, said before it is deployed: the tasks themselves stop with the same words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from cues_kafka import Graph, Json, Processor, Source, State, Store, TaskStopped, Topic
from cues_kafka.brokers.memory import MemoryBroker
from cues_kafka.operate.applying import apply_plan
from cues_kafka.operate.look.foreseen import Foreseen, foresee
from cues_kafka.plan.plan import plan
from cues_kafka.plan.topics import topics_to_ask
from cues_kafka.ports.facts import NewTopic
from cues_kafka.ports.log import TopicPartition
from cues_kafka.testing.tester import Crash, Tester
from tests.unit.operate.move.test_moving import recreate


def double(n: int) -> int:
    """A pipe."""
    return 2 * n


def counted(n: int, counts: State[int]) -> int:
    """With a store."""
    counts["all"] = counts.get("all", 0) + 1
    return n


def twice_counted(n: int, counts: State[int], more: State[int]) -> int:
    """With two stores."""
    more["all"] = counts["all"]
    return n


def named(n: int, counts: State[str]) -> str:
    """With a store of texts."""
    return counts["all"]


def both(left: int, right: int) -> int:
    """A join."""
    return left + right


def graph_of(fn: Any = double, **declared: Any) -> Graph:
    """One processor `work`, from `a` to `out`; `b` is another source."""
    work = Processor(fn, name="work", **{"inputs": "a", "outputs": "out", **declared})
    return Graph("g", Source("a"), Source("b"), work, defaults=Topic(value=Json(), partitions=2))


def delivered(graph: Graph, count: int = 4) -> Tester:
    """A graph that has delivered numbers to both of its tasks and left in order."""
    tester = Tester(graph)
    for n in range(count):
        for topic in ("a", "b"):
            tester.send(topic, n, key=str(n))
    tester.run()
    tester.stop()
    return tester


def foreseen(graph: Graph, tester: Tester) -> Foreseen:
    """What the graph would do there."""
    planned = plan(graph, tester.broker.facts(topics_to_ask(graph)))
    return foresee(graph, tester.broker, planned, [*graph.all_processors], clock=tester.clock)


def test_a_graph_that_is_not_changed_goes_on() -> None:
    """Also where it never ran: on an empty cluster, and where topics are all there is."""
    for graph in (graph_of(), graph_of(counted, state={"counts": Store(Json(int))})):
        assert foreseen(graph, delivered(graph)) == Foreseen((), ())
        broker = MemoryBroker()
        assert foresee(graph, broker, plan(graph, broker.facts(topics_to_ask(graph))), ["work"]) == Foreseen((), ())
        apply_plan(plan(graph, broker.facts(topics_to_ask(graph))), broker)
        assert foresee(graph, broker, plan(graph, broker.facts(topics_to_ask(graph))), ["work"]) == Foreseen((), ())


CHANGED: Mapping[str, tuple[Graph, str, str]] = {
    "added": (
        graph_of(both, inputs={"left": "a", "right": "b"}),
        "bindings changed",
        "declare the inputs as they were",
    ),
    "repointed": (graph_of(inputs="b"), "the graph has 'input' from 'b'", "declare the inputs as they were"),
    "strategy": (
        graph_of(strategy="at-least-once"),
        "was written exactly-once; the graph says at-least-once",
        "`cues-kafka strategy MODULE:GRAPH work` changes it",
    ),
}


@pytest.mark.parametrize(("graph", "why", "remedy"), CHANGED.values(), ids=CHANGED)
def test_a_task_stops_with_the_words_that_were_foreseen(graph: Graph, why: str, remedy: str) -> None:
    """One implementation: the functions of the core that decide a recovery."""
    tester = delivered(graph_of())

    [stop] = foreseen(graph, tester).stops

    assert stop.tasks == ("work/0", "work/1")
    assert why in stop.why
    assert remedy in stop.remedy
    assert "--records" not in stop.remedy, "it names the command itself"
    with pytest.raises(TaskStopped) as stopped:
        Tester(graph, broker=tester.broker).run()
    assert stop.why in str(stopped.value)
    assert ("plan MODULE:GRAPH --records" in str(stopped.value)) == ("declare the inputs" in remedy)


def test_an_input_that_is_taken_out_is_foreseen() -> None:
    """Of a join, whose other input goes on alone."""
    tester = delivered(graph_of(both, inputs={"left": "a", "right": "b"}))

    [stop] = foreseen(graph_of(lambda left: left, inputs={"left": "a"}), tester).stops

    assert "the record, written by" in stop.why
    assert "has 'left' from 'a', 'right' from 'b'; the graph has 'left' from 'a'" in stop.why


def summed(**numbers: int) -> int:
    """Of any inputs."""
    return sum(numbers.values())


def sums(*topics: str) -> Graph:
    """One processor that takes messages of these topics one by one; each binding is called as its topic."""
    work = Processor(summed, name="work", alts={one: one for one in topics}, outputs="out")
    return Graph("g", *map(Source, topics), work, defaults=Topic(value=Json(), partitions=2))


def test_an_added_input_that_does_not_exist_yet_is_foreseen_with_both_commands_in_their_order() -> None:
    """`migrate` refuses while its topic is missing. What the plan does not create is said by the task alone."""
    tester, wider = delivered(sums("a", "b")), sums("a", "c")

    [stop] = foreseen(wider, tester).stops

    assert stop.tasks == ("work/0", "work/1")
    assert "bindings changed" in stop.why
    assert stop.remedy.startswith(
        "stop the workers, run `cues-kafka plan MODULE:GRAPH --apply`, which creates 'c', then run `cues-kafka migrate "
        "MODULE:GRAPH work --add c=earliest --drop b`, or with latest in place of earliest to skip what an added input "
        "holds."
    )
    planned = plan(wider, tester.broker.facts(topics_to_ask(wider)))
    bare = foresee(wider, tester.broker, replace(planned, create=()), ["work"], clock=tester.clock)
    assert [one.why for one in bare.stops] == [f"input topic 'c' has no partition {p}" for p in (0, 1)]

    apply_plan(planned, tester.broker)
    [stop] = foreseen(wider, tester).stops
    assert stop.remedy.startswith("stop the workers, and run `cues-kafka migrate MODULE:GRAPH work --add c=earliest")


def test_an_added_input_that_does_not_exist_waits_for_the_former_version_too() -> None:
    """A batch is announced, so three things come before the task goes on."""
    tester = Tester(sums("a", "b"))
    tester.send("a", 1, key="1")
    tester.run(crash=Crash("before", "Call"))
    tester.restart()
    tester.broker.expire("g.work")

    [stop] = (one for one in foreseen(sums("a", "b", "c"), tester).stops if "announced" in one.remedy)

    assert "Start the former version, with the inputs as they were" in stop.remedy
    assert (
        "Before it, run `cues-kafka plan MODULE:GRAPH --apply`, which creates 'c', then run `cues-kafka mig"
        in stop.remedy
    )


def test_a_task_that_never_started_begins_in_an_input_that_the_plan_creates() -> None:
    """It has no record, so nothing of it changes."""
    broker, narrow, wider = MemoryBroker(), sums("a"), sums("a", "c")
    apply_plan(plan(narrow, broker.facts(topics_to_ask(narrow))), broker)
    assert foresee(wider, broker, plan(wider, broker.facts(topics_to_ask(wider))), ["work"]) == Foreseen((), ())


def test_an_input_that_was_deleted_is_no_added_one() -> None:
    """Its messages are gone, and the topic that would take its place is another one."""
    tester = delivered(sums("a", "b"))
    tester.broker.delete(["b"])
    assert {one.why for one in foreseen(sums("a", "b"), tester).stops} == {
        f"input topic 'b' has no partition {p}" for p in (0, 1)
    }


def test_a_strategy_is_not_changed_over_a_batch_that_is_announced() -> None:
    """The command would refuse, so what comes before it is said, too."""
    tester = Tester(graph_of())
    tester.send("a", 1, key="1")
    tester.run(crash=Crash("before", "Call"))
    tester.restart()
    tester.broker.expire("g.work")

    stops = {stop.tasks[0]: stop for stop in foreseen(graph_of(strategy="at-least-once"), tester).stops}
    assert len(stops) == 2
    stop = next(stop for stop in stops.values() if "announced" in stop.why)

    assert "has announced 1 step" in stop.why
    assert stop.remedy.startswith("run the former version until it has delivered them, and stop it; then `cues-kafka ")


def test_a_recreated_input_is_foreseen_with_its_command() -> None:
    """The command names the processor."""
    tester = delivered(graph_of())
    recreate(tester, "a")

    [stop] = foreseen(graph_of(), tester).stops

    assert "'a' was deleted and recreated" in stop.why
    assert "`cues-kafka reset MODULE:GRAPH work`" in stop.remedy


def test_messages_that_are_gone_are_foreseen_for_their_task_alone() -> None:
    """The other one goes on."""
    tester = delivered(graph_of())
    place = TopicPartition("a", 0)
    for n in range(8):
        tester.send("a", n, key=str(n))
    tester.broker.trim({place: tester.broker.watermarks([place])[place].high})

    [stop] = foreseen(graph_of(), tester).stops

    assert stop.tasks == ("work/0",)
    assert "`cues-kafka accept-loss MODULE:GRAPH work`" in stop.remedy


def test_offsets_that_another_program_has_committed_are_foreseen() -> None:
    """Where no worker runs; a group that is empty is held by no one."""
    tester = delivered(graph_of())
    tester.broker.delete(["g.work.backing"])
    tester.broker.create([NewTopic("g.work.backing", 2, config={"cleanup.policy": "compact"})])

    stops = foreseen(graph_of(), tester).stops

    assert [task for stop in stops for task in stop.tasks] == ["work/0", "work/1"]
    assert all("is empty, yet group 'g.work' has committed offsets" in stop.why for stop in stops)


STORE = {"counts": Store(Json(int))}


def test_stores_that_come_and_go_are_warned_of() -> None:
    """No task stops, but entries are missing, or stay behind."""
    tester = delivered(graph_of(counted, state=STORE))

    added = foreseen(graph_of(twice_counted, state={**STORE, "more": Store(Json(int))}), tester)
    gone = foreseen(graph_of(), tester)

    assert (added.stops, gone.stops) == ((), ())
    [warning] = added.warnings
    assert "new store 'more'. It begins empty" in warning
    assert "`cues-kafka rebuild MODULE:GRAPH work`" in warning
    [warning] = gone.warnings
    assert "work no longer has the store 'counts'. 'g.work.counts.changelog' keeps its entries" in warning


def test_a_store_with_another_lifetime_stops_its_task() -> None:
    """As the task itself says it."""
    tester = delivered(graph_of(counted, state=STORE))
    changed = graph_of(counted, state={"counts": Store(Json(int), ttl="1 day")})

    stops = foreseen(changed, tester).stops

    assert [stop.tasks for stop in stops] == [("work/0",), ("work/1",)]
    assert all("entries with another kind of lifetime" in stop.why for stop in stops)
    assert all("declare it as it was, run `cues-kafka rebuild" in stop.remedy for stop in stops)


def test_a_store_with_another_codec_is_warned_of() -> None:
    """The task runs, and its function raises."""
    tester = delivered(graph_of(counted, state=STORE))

    seen = foreseen(graph_of(named, state={"counts": Store(Json(str))}), tester)

    assert seen.stops == ()
    assert any("work/0: the declared codecs of store 'counts' do not read its entries" in one for one in seen.warnings)


def test_a_changelog_that_is_gone_stops_its_task() -> None:
    """Its entries are gone, too."""
    tester = delivered(graph_of(counted, state=STORE))
    tester.broker.delete(["g.work.counts.changelog"])

    [stop] = foreseen(graph_of(counted, state=STORE), tester).stops

    assert "the changelog 'g.work.counts.changelog' does not exist" in stop.why
    assert "`cues-kafka rebuild MODULE:GRAPH work`" in stop.remedy


def test_a_changelog_that_ends_elsewhere_stops_its_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mark further back than what is read at first is looked for in all of it."""
    monkeypatch.setattr("cues_kafka.operate.look.foreseen.LAST", 1)
    tester = delivered(graph_of(counted, state=STORE))
    assert foreseen(graph_of(counted, state=STORE), tester).stops == ()
    recreate(tester, "g.work.counts.changelog")

    stops = foreseen(graph_of(counted, state=STORE), tester).stops

    assert [stop.tasks for stop in stops] == [("work/0",), ("work/1",)]
    assert all("has no entries, and the task's record says that step" in stop.why for stop in stops)


def test_a_record_that_is_none_is_foreseen() -> None:
    """Another program has written there."""
    tester = delivered(graph_of())
    with_key = [("g.work.backing", 0, b"t", b"nonsense", None, 0)]
    sender = tester.broker.sender("stranger")
    sender.send(with_key)

    [stop] = foreseen(graph_of(), tester).stops

    assert stop.tasks == ("work/0",)
    assert "its newest record cannot be read" in stop.why


def test_a_running_graph_is_compared_as_well() -> None:
    """Its workers deliver meanwhile; offsets that move are not taken for another program's."""
    tester = Tester(graph_of())
    tester.send("a", 1, key="1")
    tester.run()
    assert tester.broker.members("g.work")

    assert foreseen(graph_of(), tester) == Foreseen((), ())
    assert len(foreseen(graph_of(inputs="b"), tester).stops) == 1


def test_feeds_are_compared_too() -> None:
    """Their tasks recover in the same way."""
    from cues_kafka import Feed
    from cues_kafka.bridges.iterate import Iterate

    def numbers(place: str | None) -> Any:
        return ((n, str(n)) for n in range(int(place or -1) + 1, 3))

    def fed() -> Graph:
        return Graph("g", Feed(Iterate(numbers), into="a", name="numbers"), defaults=Topic(value=Json()))

    tester = Tester(fed())
    tester.run()
    tester.stop()

    assert foreseen(fed(), tester) == Foreseen((), ())

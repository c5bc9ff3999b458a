"""Each verb that writes, killed before and after each of its effects and run again, on the reference broker."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cues_kafka import Graph, Json, Processor, RecoveryError, Source, State, Store, Topic
from cues_kafka.core.records import Record
from cues_kafka.operate import pausing as pausing_module
from cues_kafka.operate.applying import apply_plan
from cues_kafka.operate.cut.control import ControlTopic, delete_cut
from cues_kafka.operate.cut.drain import Drain
from cues_kafka.operate.cut.going_back import GoBack
from cues_kafka.operate.deleting import Deleting
from cues_kafka.operate.move.accept_loss import accept_loss
from cues_kafka.operate.move.adopt import adopt, forget
from cues_kafka.operate.move.base import Maintenance
from cues_kafka.operate.move.migrate import migrate
from cues_kafka.operate.move.reset import reset
from cues_kafka.operate.pausing import Pausing
from cues_kafka.operate.repair.ask import Repairs
from cues_kafka.plan.plan import plan
from cues_kafka.plan.topics import Sides, topics_to_ask
from cues_kafka.ports.clients import GroupMetadata
from cues_kafka.ports.facts import NewTopic
from cues_kafka.ports.log import TopicPartition
from cues_kafka.testing.tester import Tester
from cues_kafka.verify.scan import verify
from tests.unit.operate.move.dying import Mortal, Numbers, Verb
from tests.unit.operate.move.test_settling import Shop

WIDTH = 2

LEASES_S = 61.0
"""Until the transaction of a dead tool has ended, and its pause."""


def double(n: int, seen: State[int]) -> int:
    """Fails for what is divisible by 5 until it is fixed; counts what it delivers."""
    if n % 5 == 0 and not double.__dict__.get("fixed"):
        raise ValueError(f"{n} is too round")
    seen["all"] = seen.get("all", 0) + 1
    return 2 * n


def total(n: int, sums: State[int]) -> None:
    """A sink."""
    sums["all"] = sums.get("all", 0) + n


def route(n: int) -> int:
    """A pipe, without a store, so that it can go back."""
    return n


def any_of(**message: int) -> int:
    """Alts: the one value that came."""
    return next(n for n in message.values() if n is not None)


def graph_of(*left_out: str, width: int = WIDTH) -> Graph:
    """Three processors; some of them are not declared any more."""
    parts = [
        Processor(double, inputs="numbers", outputs="doubles", state={"seen": Store(Json(int))}),
        Processor(total, inputs="doubles", state={"sums": Store(Json(int))}),
        Processor(route, inputs="numbers", outputs="routed"),
    ]
    kept = [part for part in parts if part.name not in left_out]
    sources = [Source("numbers"), *([Source("doubles")] if "double" in left_out else [])]
    return Graph(
        "g", *sources, *kept,
        errors="g.errors", cuts="1 day", defaults=Topic(value=Json(), partitions=width),
    )  # fmt: skip


GRAPH = graph_of()


@dataclass
class World(Numbers):
    """What a verb is done to."""

    tester: Tester
    width: int = WIDTH

    def deliver(self) -> World:
        """Run, and leave."""
        self.tester.run()
        self.tester.stop()
        return self

    def records(self, processor: str = "route") -> list[Any]:
        """What tasks and tools have written, but for who wrote it."""
        return [_said(record) for record in self.tester.records(processor)]


def _said(record: Record) -> Any:
    return type(record), record.sequence, record.positions, record.step, record.totals


def delivered(graph: Graph = GRAPH, width: int = WIDTH) -> World:
    """Six numbers in each partition, of which each fifth is an error."""
    double.__dict__["fixed"] = False
    found = World(Tester(graph), width)
    found.send(*range(1, 7))
    return found.deliver()


def tool(world: World, broker: Any, processor: str = "route", graph: Graph = GRAPH) -> Maintenance:
    """What moves tasks."""
    return Maintenance(graph, broker, processor, who="tool on here", clock=world.tester.clock)


def routed(world: World) -> Any:
    """Records and outputs, once the workers have gone on."""
    before = world.records()
    world.deliver()
    return before, sorted(world.tester.values("routed")), world.records()


# Moves


@pytest.mark.parametrize(
    ("to", "partition", "commits"), [pytest.param("earliest", None, 2, marks=pytest.mark.full), ("3", 1, 1)]
)
def test_reset_is_ended_by_the_next_run(to: str, partition: int | None, commits: int) -> None:
    """Some tasks moved, others not; none moves twice."""

    def world() -> World:
        found = delivered()
        found.send(99)
        return found

    def act(one: World, broker: Any) -> None:
        made = tool(one, broker)
        made.carry_out(reset(made, to=to, partition=partition))

    effects = Verb(world, act, routed, groups=("g.route",)).die_everywhere()

    assert (effects["member"], effects["commit"]) == (1, commits)


def test_accept_loss_is_ended_by_the_next_run() -> None:
    """Of tasks whose messages are trimmed away, of two processors."""
    graph = graph_of("total", width=1)

    def world() -> World:
        found = delivered(graph, 1)
        found.send(91, 92, 93)
        found.broker.trim({TopicPartition("numbers", 0): 8})
        return found

    def act(one: World, broker: Any) -> None:
        for name in ("double", "route"):
            made = tool(one, broker, name, graph)
            made.carry_out(accept_loss(made))

    assert Verb(world, act, routed, groups=("g.double", "g.route")).die_everywhere()["commit"] == 2


@pytest.mark.full
def test_adopt_is_ended_by_the_next_run() -> None:
    """Until the group is deleted; then nothing is left to do, and the command says that this group does not exist."""
    places = [TopicPartition("numbers", p) for p in range(WIDTH)]

    def world() -> World:
        tester = Tester(GRAPH)
        found = World(tester)
        apply_plan(plan(GRAPH, tester.broker.facts(topics_to_ask(GRAPH))), tester.broker)
        found.send(*range(1, 7))
        session = tester.broker.session("legacy")
        session.init(timeout_s=1.0)
        session.begin()
        session.send_offsets(dict(zip(places, (2, 4), strict=True)), GroupMetadata.outside("legacy"))
        session.commit()
        return found

    def act(one: World, broker: Any) -> None:
        made = tool(one, broker)
        if "legacy" not in one.broker.examine((), ()).listed:
            with pytest.raises(RecoveryError, match="this group does not exist"):
                adopt(made, "legacy")
            return
        made.carry_out(adopt(made, "legacy"), holding="legacy")
        forget(made, "legacy")

    def seen(one: World) -> Any:
        return routed(one), one.broker.committed("legacy", places)

    effects = Verb(world, act, seen, groups=("g.route", "legacy")).die_everywhere()
    assert (effects["member"], effects["commit"], effects["forget"]) == (2, WIDTH, 1)


def test_migrate_is_ended_by_the_next_run() -> None:
    """Some tasks have the other inputs, some not yet; none moves twice."""
    wide = Graph(
        "g", Source("numbers"), Source("doubles"),
        Processor(any_of, name="route", alts={"input": "numbers", "extra": "doubles"}, outputs="routed"),
        errors="g.errors", defaults=Topic(value=Json(), partitions=WIDTH),
    )  # fmt: skip

    def world() -> World:
        found = delivered()
        found.send(99)
        return found

    def act(one: World, broker: Any) -> None:
        made = tool(one, broker, graph=wide)
        made.carry_out(migrate(made, {"extra": "earliest"}, ()))

    def seen(one: World) -> Any:
        before = one.records()
        after = Tester(wide, broker=one.broker).run()
        after.stop()
        assert verify(wide, one.broker).ok
        return before, sorted(after.values("routed")), World(after).records()

    effects = Verb(world, act, seen, groups=("g.route",)).die_everywhere()
    assert (effects["member"], effects["commit"]) == (1, WIDTH)


# The whole graph


def stores(world: World) -> Any:
    """Of all tasks."""
    return world.tester.state("seen"), world.tester.state("sums")


@pytest.mark.full
def test_reset_to_a_cut_is_ended_by_the_next_run() -> None:
    """Records and stores of all processors, and workers that are let go."""
    graph = graph_of("route", width=1)

    def world() -> World:
        found = delivered(graph, 1)
        Drain(graph, found.broker, who="drain on here", clock=found.tester.clock).take("one", timeout_s=20.0)
        found.send(91, 92, 93)
        return found.deliver()

    def act(one: World, broker: Any) -> None:
        made = GoBack(graph, broker, who="reset on here", clock=one.tester.clock)
        made.carry_out(made.plan("one"))

    def seen(one: World) -> Any:
        before = [one.records(name) for name in graph.processors]
        resetting = ControlTopic(graph, one.broker).read().resetting
        one.deliver()
        return before, resetting, stores(one), sorted(one.tester.values("doubles"))

    groups = tuple(f"g.{name}" for name in graph.processors)
    effects = Verb(world, act, seen, groups=groups, rest_s=LEASES_S).die_everywhere()
    assert (effects["send"], effects["commit"]) == (2, 2)


def test_cut_is_taken_by_the_next_run() -> None:
    """Of a stopped graph; a drain that died leaves no pause behind, and a cut whole or not at all."""

    def act(one: World, broker: Any) -> None:
        if "one" not in ControlTopic(GRAPH, broker).read().names:
            Drain(GRAPH, broker, who="drain on here", clock=one.tester.clock).take("one", timeout_s=20.0)

    def seen(one: World) -> Any:
        control = ControlTopic(GRAPH, one.broker).read()
        cut = control.cut("one")
        assert cut is not None
        world = one.deliver()
        return cut.processors, control.resetting, world.records()

    assert Verb(delivered, act, seen, rest_s=LEASES_S).die_everywhere() == {"send": 3}


def test_cut_is_deleted_by_the_next_run() -> None:
    """It is there or gone."""

    def world() -> World:
        found = delivered()
        Drain(GRAPH, found.broker, who="drain on here", clock=found.tester.clock).take("one", timeout_s=20.0)
        return found

    def act(one: World, broker: Any) -> None:
        if "one" in ControlTopic(GRAPH, one.broker).read().names:
            delete_cut(GRAPH, broker, "one")

    assert Verb(world, act, lambda one: ControlTopic(GRAPH, one.broker).read().names).die_everywhere() == {"send": 1}


# Pauses


@pytest.mark.parametrize("processor", [None, "route"])
@pytest.mark.parametrize("verb", ["pause", "resume"])
def test_pause_and_resume_are_ended_by_the_next_run(
    verb: str, processor: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One pause and not two."""
    monkeypatch.setattr(pausing_module, "LOOK_S", 0.001)
    monkeypatch.setattr(pausing_module, "UNMANNED_S", 0.0)

    def of(one: World, broker: Any) -> Pausing:
        return Pausing(
            GRAPH, broker, who="amy@desk", clock=one.tester.clock, sides=Sides(status=True, control=True)
        )  # fmt: skip

    def world() -> World:
        found = delivered()
        found.broker.create([NewTopic("g.status", 1, config={"cleanup.policy": "compact"})])
        if verb == "resume":
            for name in ("route", "total"):
                of(found, found.broker).pause(name, timeout_s=5.0)
        return found

    def act(one: World, broker: Any) -> None:
        made = of(one, broker)
        try:
            _ = made.pause(processor, timeout_s=5.0) if verb == "pause" else made.resume(processor)
        finally:
            made.close()

    def seen(one: World) -> Any:
        return {name: hold.by for name, hold in of(one, one.broker).holds().items()}

    effects = Verb(world, act, seen).die_everywhere()
    assert effects == {"send": 2 if (verb, processor) == ("resume", None) else 1}


# Deletions


@pytest.mark.parametrize("what", ["whole", "data", "processor", "unused", "topic"])
def test_deletion_is_ended_by_the_next_run(what: str) -> None:
    """A group and a topic after the other; the backing topic goes last, so that what is left is found."""
    graph = graph_of("double") if what == "unused" else GRAPH

    def act(_: World, broker: Any) -> None:
        made = Deleting(graph, broker)
        match what:
            case "processor":
                if "g.double.backing" not in broker.partitions():
                    return
                planned = made.processor("double")
            case "topic":
                planned = made.topic("routed")
            case "unused":
                planned = made.unused()
            case _:
                planned = made.whole(data=what == "data")
        made.carry_out(planned)

    def seen(one: World) -> Any:
        return one.broker.partitions(), {*one.broker.examine((), ()).listed}

    assert Verb(delivered, act, seen).die_everywhere()["delete"] >= 1


# Errors


@pytest.mark.parametrize("wish", ["replay", "drop"])
def test_errors_are_asked_for_once_by_two_runs(wish: Any) -> None:
    """A request that came twice is settled once."""

    def act(one: World, broker: Any) -> None:
        double.__dict__["fixed"] = True
        with Repairs(GRAPH, broker, clock=one.tester.clock) as made:
            made.ask(wish)

    def seen(one: World) -> Any:
        one.deliver()
        with Repairs(GRAPH, one.broker) as made:
            assert made.causes() == ()
        assert not verify(GRAPH, one.broker).anomalies
        return sorted(one.tester.values("doubles")), stores(one)

    assert Verb(delivered, act, seen).die_everywhere() == {"send": 1}


# Topics


@pytest.mark.parametrize("wider", [False, True])
def test_plan_is_applied_by_the_next_run(wider: bool) -> None:
    """Topics are created, and configured or widened."""
    graph = graph_of("double", "total") if wider else GRAPH  # a wider changelog needs a rebuild

    def world() -> World:
        found = delivered()
        if wider:
            found.broker.add_partitions("numbers", WIDTH + 1)
        found.broker.configure("g.double.seen.changelog", {"min.compaction.lag.ms": "0"})
        found.broker.delete(["g.control"])
        return found

    def planned(broker: Any) -> Any:
        return plan(graph, broker.facts(topics_to_ask(graph)))

    def seen(one: World) -> Any:
        made = planned(one.broker)
        assert (made.create, made.grow, made.alter) == ((), (), ())
        return one.broker.partitions()

    effects = Verb(world, lambda _, broker: apply_plan(planned(broker), broker), seen).die_everywhere()
    assert {*effects} == {"create", "add_partitions" if wider else "configure"}


# A database


def test_reset_to_a_database_is_ended_by_the_next_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """First the record, then the row in the database."""
    numbers = itertools.count()

    def world() -> Shop:
        shop = Shop(tmp_path / f"{next(numbers)}.db")
        shop.send(6).tester.run()
        backup = shop.save()
        shop.send(6).tester.run()
        return shop.restore(backup)

    def act(one: Shop, broker: Any) -> None:
        made = Maintenance(one.graph, broker, "book", who="tool on here", clock=one.tester.clock)
        if isinstance(broker, Mortal):
            target_of, life = made.target_of, broker._life
            monkeypatch.setattr(made, "target_of", lambda spec: Mortal(target_of(spec), life))
        made.carry_out(reset(made, to="database"))

    def seen(one: Shop) -> Any:
        one.tester.run()
        return one.rows(), one.booked(), [_said(record) for record in one.tester.records("book")]

    effects = Verb(world, act, seen, groups=("g.book",)).die_everywhere()
    assert (effects["commit"], effects["settle"]) == (1, 1)

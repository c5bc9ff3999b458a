"""One verdict: whatever is unwell with a graph, `status`, `doctor` and the others say so, and name a remedy."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from typer.testing import CliRunner

from cues_kafka import Graph, Json, Memory, Processor, Source, Store, TaskStopped, Topic, start
from cues_kafka.brokers import open as opening
from cues_kafka.brokers.memory import MemoryBroker
from cues_kafka.brokers.open import open_broker
from cues_kafka.cli import loading
from cues_kafka.cli.main import app
from cues_kafka.cli.status import words
from cues_kafka.errors import RetriableError
from cues_kafka.operate.doctor import examine
from cues_kafka.operate.status import StatusView
from cues_kafka.plan.plan import plan
from cues_kafka.plan.topics import Sides, topics_to_ask
from cues_kafka.plan.wellness import TaskCondition, is_well, verdict
from cues_kafka.ports import NewTopic, Outgoing, TopicPartition
from cues_kafka.runtime import status_writer
from cues_kafka.runtime.health import HealthLook
from cues_kafka.runtime.task.clock import SystemClock
from cues_kafka.verify.scan import verify

ORDERS = TopicPartition("orders", 0)


def count(order: Any, seen: Any) -> Any:
    """Refuse what is negative; count the rest."""
    if order < 0:
        raise ValueError("negative")
    seen["all"] = seen.get("all", 0) + 1
    return order


def graph_of(**changes: Any) -> Graph:
    """A processor with a store."""
    inputs = changes.pop("inputs", "orders")
    function = Processor(count, inputs=inputs, outputs="checked", name="check", state={"seen": Store()}, **changes)
    return Graph("g", Source("orders"), function, defaults=Topic(value=Json(), partitions=1))


class World:
    """A graph that has delivered an order, and runs."""

    def __init__(self) -> None:
        self.options = Memory(status_every_s=0.2)
        self.graph = graph_of()
        self.later_s = 0.0
        self.running = start(self.graph, self.options)
        self.send(1)
        self.running.wait_idle(timeout_s=20)
        broker = open_broker(self.options)
        assert isinstance(broker, MemoryBroker)
        self.broker = broker

    def send(self, order: int) -> None:
        """Send an order."""
        self.running.send("orders", order)

    def recreate(self, topic: str) -> None:
        """Delete a topic, and create it again as it was."""
        facts = self.broker.facts([topic]).topics[topic]
        self.broker.delete([topic])
        self.broker.create([NewTopic(topic, facts.partitions, 1, dict(facts.config))])


def partition_added(world: World) -> None:
    """By others, with a message."""
    world.broker.add_partitions("orders", 2)
    world.broker.sender("other").send([("orders", 1, None, b"2", None, 0)], timeout_s=5)


def stopped(world: World) -> None:
    """By an exception, without an errors topic."""
    world.send(-1)
    with pytest.raises(TaskStopped):
        world.running.wait_idle(timeout_s=20)


def shut_down(world: World) -> None:
    """No worker is left."""
    world.running.stop()


def waiting(world: World) -> None:
    """No worker is left, and messages wait."""
    world.running.stop()
    world.broker.sender("other").send([("orders", 0, None, b"2", None, 0)], timeout_s=5)


def without(topic: str) -> Callable[[World], None]:
    """A topic was deleted while no worker ran."""

    def act(world: World) -> None:
        world.running.stop()
        world.broker.delete([topic])

    act.__name__ = f"{topic}_deleted"
    return act


def recreated(topic: str) -> Callable[[World], None]:
    """A topic was deleted and created again while no worker ran."""

    def act(world: World) -> None:
        world.running.stop()
        world.recreate(topic)

    act.__name__ = f"{topic}_recreated"
    return act


def not_compacted(topic: str) -> Callable[[World], None]:
    """Another policy."""

    def act(world: World) -> None:
        world.broker.configure(topic, {"cleanup.policy": "delete"})

    act.__name__ = f"{topic}_not_compacted"
    return act


def retention(world: World) -> None:
    """It took what was not delivered."""
    world.running.stop()
    world.broker.sender("other").send([("orders", 0, None, b"2", None, 0)] * 3, timeout_s=5)
    world.broker.trim({ORDERS: 3})


def redeclared(**changes: Any) -> Callable[[World], None]:
    """The declaration changed."""

    def act(world: World) -> None:
        world.running.stop()
        world.graph = graph_of(**changes)

    act.__name__ = "redeclared_" + "_".join(changes)
    return act


def same(order: Any) -> Any:
    """Nothing changes."""
    return order


def never_started(world: World) -> None:
    """A processor was added."""
    more = Processor(same, inputs="checked", outputs="more", name="more")
    world.graph = Graph("g", *world.graph.parts, more, defaults=world.graph.defaults)


def blocked(world: World) -> None:
    """By an open transaction of another program, for two minutes."""
    session = world.broker.session("other")
    session.init(timeout_s=30)
    session.begin()
    session.produce([Outgoing("orders", 0, None, b"2")])
    session.flush()
    began_s = time.time() - 120.0
    world.broker.open_since = lambda places, **_: dict.fromkeys(places, began_s)  # type: ignore[method-assign]


def refused_batch(world: World) -> None:
    """The client cannot unpack it."""
    world.broker.damage(ORDERS, 1, 2)
    world.send(2)
    with pytest.raises(TaskStopped):
        world.running.wait_idle(timeout_s=20)


def unreachable(world: World) -> None:
    """The cluster does not answer."""

    def away(*_: Any, **__: Any) -> Any:
        raise RetriableError("Kafka did not answer within 10 s")

    for verb in ("facts", "partitions", "watermarks"):
        setattr(world.broker, verb, away)


STATES = [
    partition_added, stopped, shut_down, retention, never_started, blocked, refused_batch, unreachable,
    without("orders"), without("checked"), without("g.check.backing"), without("g.check.seen.changelog"),
    recreated("orders"), recreated("g.check.backing"), recreated("g.check.seen.changelog"),
    not_compacted("g.check.backing"), not_compacted("g.check.seen.changelog"),
    redeclared(strategy="at-least-once"), redeclared(strategy="at-most-once"), redeclared(inputs={"order": "orders"}),
]  # fmt: skip


class Later(SystemClock):
    """A clock that is ahead."""

    def __init__(self, later_s: float) -> None:
        self._later_s = later_s

    def time(self) -> float:
        return super().time() + self._later_s


NOTED = (shut_down, "checked_deleted")
"""`doctor` is asked before workers start, too: that none runs, and topics that a plan creates, are no faults there."""


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Changes are told without a long wait."""
    monkeypatch.setattr(status_writer, "LOOK_S", 0.02)


@pytest.mark.parametrize("unwell", STATES, ids=lambda one: one.__name__)
def test_unwell_state_is_named_by_status_and_doctor(unwell: Callable[[World], None]) -> None:
    """Neither says that all is well; each thing that is unwell has a text."""
    world = World()
    try:
        unwell(world)
        clock = Later(world.later_s)
        with StatusView(world.graph, world.broker, sides=Sides.of(world.options), clock=clock) as view:
            seen = view.look()
            until = time.monotonic() + 10
            while seen.ok and time.monotonic() < until:  # a process tells its state a moment later
                time.sleep(0.05)
                seen = view.look()
        doctor = list(examine(world.graph, world.broker, watch_s=0, clock=clock, cluster=world.options))
    finally:
        world.running.abandon()
    assert not seen.ok
    assert all(one.what for one in seen.unwell)
    assert not words(seen).startswith("all is well")
    assert any(one.wrong for one in doctor) != (unwell in NOTED or unwell.__name__ in NOTED)


class Told(NamedTuple):
    """What a command says."""

    code: int
    text: str

    @property
    def last(self) -> str:
        """Its last line."""
        return self.text.rstrip().splitlines()[-1]


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Told]:
    """Runs a command of the command line on a world."""

    def run(world: World, *words: str) -> Told:
        monkeypatch.setattr(loading, "load_graph", lambda _: world.graph)
        monkeypatch.setattr(opening, "open_broker", lambda _: world.broker)
        monkeypatch.setattr(world.broker, "close", lambda: None)
        result = CliRunner().invoke(app, [words[0], "m:g", "--bootstrap", "localhost:9092", *words[1:]])
        return Told(result.exit_code, result.output)

    return run


@pytest.mark.parametrize(
    ("unwell", "word"),
    [
        (partition_added, "check/1 never started"),
        (stopped, "check/0 stopped"),
        (waiting, "check/0 left"),
        (blocked, "check/0 blocked"),
        (without("g.check.backing"), "check/0 left"),
        (recreated("g.check.backing"), "check/0 left"),
        (not_compacted("g.check.backing"), "g refused"),
    ],
)
def test_plan_with_records_and_verify_say_what_status_says(
    command: Callable[..., Told], unwell: Callable[[World], None], word: str
) -> None:
    """They end with another code than 0, and the last line of `verify` names what is unwell."""
    world = World()
    try:
        unwell(world)
        verified, planned = command(world, "verify"), command(world, "plan", "--records")
        assert verified.code in (3, 4, 6), verified.text
        assert "but the graph is not well now: " in verified.last
        assert word in verified.last
        assert planned.code == 1, planned.text
        assert "Not well now:" in planned.text or "Refused:" in planned.text
        data = json.loads(command(world, "plan", "--records", "--json").text)
        assert data["refusals"] or [f"{one['name']} {one['kind']}" for one in data["unwell"]] == [word]
        seen = json.loads(command(world, "verify", "--json").text)["unwell"]
        assert word in [f"{one['name']} {one['kind']}" for one in seen]
    finally:
        world.running.abandon()


def test_graph_that_was_shut_down_is_well_for_plan_and_verify(command: Callable[..., Told]) -> None:
    """Where nothing waits: both are asked before a deployment, and after a shutdown. `status` says that none runs."""
    world = World()
    shut_down(world)
    assert [command(world, *words).code for words in (("verify",), ("plan", "--records"), ("status",))] == [0, 0, 1]


def test_added_partition_is_never_started_everywhere() -> None:
    """`status`, `doctor`, `/readyz`, metrics, `wait_idle`, `plan` and `verify` agree on the task and its lag."""
    world = World()
    partition_added(world)
    try:
        with StatusView(world.graph, world.broker, sides=Sides.of(world.options)) as view:
            seen = view.look()
        assert (seen["check/1"].state, seen["check/1"].lag, seen.ok) == ("never started", 1, False)
        with pytest.raises(TimeoutError, match=r"check/1: 'orders' has a partition 1, and 'check' has only 1 task"):
            world.running.wait_idle(timeout_s=0.3)
        workers = world.running._workers
        look = HealthLook("g", world.broker, SystemClock(), lambda: workers, world.running.collect, told=True)
        look.look_at_ends()
        health = look()
        assert any(text.startswith("check/1 never started") for text in health.unready)
        [lag] = [one for one in health.rows if one.name == "cues_kafka_lag_messages" and one.labels["partition"] == "1"]
        assert lag.value == 1.0
        doctor = examine(world.graph, world.broker, watch_s=0, cluster=world.options)
        assert any(one.wrong and one.what.startswith("check/1: ") for one in doctor)
        planned = plan(world.graph, world.broker.facts(topics_to_ask(world.graph)))
        assert planned.would_change
        assert not verify(world.graph, world.broker).ok
    finally:
        world.running.abandon()


def test_wait_idle_names_the_open_transaction_that_it_waits_for() -> None:
    """Of another program, in an input."""
    world = World()
    blocked(world)
    try:
        with pytest.raises(
            TimeoutError, match=r"orders/0 has had an open transaction for .* find-hanging --topic orders"
        ):
            world.running.wait_idle(timeout_s=0.3)
    finally:
        world.running.abandon()


def test_what_may_pass_by_itself_is_a_note() -> None:
    """A transaction that has been open for seconds; one of a minute is wrong."""
    young, old = (verdict("g", [TaskCondition("check/0", blocked={ORDERS: age_s})]) for age_s in (10.0, 60.0))
    assert (young[0].severity, is_well(young)) == ("note", True)
    assert (old[0].severity, is_well(old)) == ("wrong", False)
    assert verdict("g", [TaskCondition("check/0", blocked={ORDERS: 1.0}), TaskCondition("check/1", "paused")]) == ()

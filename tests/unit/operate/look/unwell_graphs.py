"""Graphs in states in which they are unwell, or may be taken for it: one function for each state."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from cues_kafka import (
    Feed,
    Graph,
    Json,
    Memory,
    Message,
    Processor,
    Retry,
    Source,
    Sql,
    Store,
    TaskStopped,
    Topic,
    Tumbling,
    start,
)
from cues_kafka.brokers.memory import MemoryBroker
from cues_kafka.brokers.memory.clients import MemorySession
from cues_kafka.brokers.open import open_broker
from cues_kafka.errors import FatalError, RetriableError
from cues_kafka.graph.error_message import Errors
from cues_kafka.graph.publish import Published, Publisher
from cues_kafka.operate.pausing import Pausing
from cues_kafka.plan.topics import Sides
from cues_kafka.ports.clients import GroupMetadata
from cues_kafka.ports.facts import NewTopic
from cues_kafka.ports.log import Outgoing, TopicPartition
from cues_kafka.sinks.dialect import TASKS
from cues_kafka.sinks.tables import make_tables
from cues_kafka.task.making import prepare
from cues_kafka.testing.tester import Tester
from cues_kafka.workers.worker import ProcessorWorker

ORDERS = TopicPartition("orders", 0)

DAY_MS = 86_400_000

AWAY = 99
"""An order for which the function needs what is away."""


def count(order: Any, seen: Any) -> Any:
    """Refuse what is negative; count the rest."""
    if order == AWAY:
        raise ConnectionError("the shop is away")
    if order < 0:
        raise ValueError("negative")
    seen["all"] = seen.get("all", 0) + 1
    return order


def graph_of(errors: Errors | None = None, **changes: Any) -> Graph:
    """A processor with a store."""
    inputs, partitions = changes.pop("inputs", "orders"), changes.pop("partitions", 1)
    function = Processor(count, inputs=inputs, outputs="checked", name="check", state={"seen": Store()}, **changes)
    return Graph("g", Source("orders"), function, defaults=Topic(value=Json(), partitions=partitions), errors=errors)


class World:
    """
    A graph that has delivered an order, and runs.

    Args:
        graph: the graph; None: the plain one.
        control: whether workers follow operators.
    """

    def __init__(self, graph: Graph | None = None, *, control: bool = False) -> None:
        self.options = Memory(status_every_s=0.2, control=control)
        self.graph = graph or graph_of()
        self.begin()
        self.send(1)
        self.running.wait_idle(timeout_s=20)
        found = open_broker(self.options)
        assert isinstance(found, MemoryBroker)
        self.broker = found

    def begin(self) -> None:
        """Start a worker."""
        self.running = start(self.graph, self.options)

    def send(self, order: int) -> None:
        """Send an order."""
        self.running.send("orders", Message(order, key="a"))

    def send_by_other(self, *values: bytes, topic: str = "orders", partition: int = 0) -> None:
        """Another program sends."""
        self.broker.sender("other").send([(topic, partition, None, one, None, 0) for one in values], timeout_s=5)

    def stops(self) -> None:
        """Wait until the task stops."""
        with pytest.raises(TaskStopped):
            self.running.wait_idle(timeout_s=20)

    def until(self, text: str) -> None:
        """Wait until the status of a task has a text."""
        deadline = time.monotonic() + 20
        while not any(text in str(one) for one in self.running.status().tasks):
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def recreate(self, topic: str) -> None:
        """Delete a topic, and create it again as it was."""
        facts = self.broker.facts([topic]).topics[topic]
        self.broker.delete([topic])
        self.broker.create([NewTopic(topic, facts.partitions, 1, dict(facts.config))])


Unwell = Callable[[Path], World]


def on_world(act: Callable[[World], None]) -> Unwell:
    """A state of the plain graph."""

    def made(_: Path) -> World:
        world = World()
        act(world)
        return world

    made.__name__ = act.__name__
    return made


@on_world
def partition_added(world: World) -> None:
    """By others, with a message."""
    world.broker.add_partitions("orders", 2)
    world.send_by_other(b"2", partition=1)


@on_world
def stopped(world: World) -> None:
    """By an exception, without an errors topic."""
    world.send(-1)
    world.stops()


def deadly(world: World) -> None:
    """A message kills its process three times, and the worker starts once more."""

    def kill(order: Any, seen: Any) -> Any:
        tester.kill()

    world.running.stop()
    world.send_by_other(b"2")
    function = Processor(kill, inputs="orders", outputs="checked", name="check", state={"seen": Store()})
    defaults, errors = world.graph.defaults, world.graph.errors
    tester = Tester(Graph("g", Source("orders"), function, defaults=defaults, errors=errors), broker=world.broker)
    for _ in range(3):
        assert tester.run_to_death()
        tester.restart()
    tester.stop()
    world.broker.expire("g.check")
    world.running = start(world.graph, world.options, timeout_s=None)


@on_world
def killed(world: World) -> None:
    """A message kills its process each time, and there is no errors topic that takes it."""
    deadly(world)
    world.stops()


def in_quarantine(_: Path) -> World:
    """The same with an errors topic."""
    world = World(graph_of(errors=Errors("g.errors")))
    deadly(world)
    world.running.wait_idle(timeout_s=20)
    return world


@on_world
def shut_down(world: World) -> None:
    """No worker is left."""
    world.running.stop()


@on_world
def waiting(world: World) -> None:
    """No worker is left, and messages wait."""
    world.running.stop()
    world.send_by_other(b"2")


def without(topic: str) -> Unwell:
    """A topic was deleted while no worker ran."""

    def act(world: World) -> None:
        world.running.stop()
        world.broker.delete([topic])

    act.__name__ = f"{topic}_deleted"
    return on_world(act)


def recreated(topic: str) -> Unwell:
    """A topic was deleted and created again while no worker ran."""

    def act(world: World) -> None:
        world.running.stop()
        world.recreate(topic)

    act.__name__ = f"{topic}_recreated"
    return on_world(act)


def not_compacted(topic: str) -> Unwell:
    """Another policy."""

    def act(world: World) -> None:
        world.broker.configure(topic, {"cleanup.policy": "delete"})

    act.__name__ = f"{topic}_not_compacted"
    return on_world(act)


@on_world
def retention(world: World) -> None:
    """It took what was not delivered."""
    world.running.stop()
    world.send_by_other(b"2", b"2", b"2")
    world.broker.trim({ORDERS: 3})


def redeclared(**changes: Any) -> Unwell:
    """The declaration changed."""

    def act(world: World) -> None:
        world.running.stop()
        world.graph = graph_of(**changes)

    act.__name__ = "redeclared_" + "_".join(f"{n}_{v}" if isinstance(v, str) else n for n, v in changes.items())
    return on_world(act)


def same(order: Any) -> Any:
    """Nothing changes."""
    return order


@on_world
def never_started(world: World) -> None:
    """A processor was added."""
    more = Processor(same, inputs="checked", outputs="more", name="more")
    world.graph = Graph("g", *world.graph.parts, more, defaults=world.graph.defaults)


@on_world
def blocked(world: World) -> None:
    """By an open transaction of another program, for two minutes."""
    session = world.broker.session("other")
    session.init(timeout_s=30)
    session.begin()
    session.produce([Outgoing("orders", 0, None, b"2")])
    session.flush()
    began_s = time.time() - 120.0
    world.broker.open_since = lambda places, **_: dict.fromkeys(places, began_s)  # type: ignore[method-assign]


@on_world
def refused_batch(world: World) -> None:
    """The client cannot unpack it."""
    world.broker.damage(ORDERS, 1, 2)
    world.send(2)
    world.stops()


@on_world
def unreachable(world: World) -> None:
    """The cluster does not answer."""

    def away(*_: Any, **__: Any) -> Any:
        raise RetriableError("Kafka did not answer within 10 s")

    for verb in ("facts", "partitions", "watermarks"):
        setattr(world.broker, verb, away)


@on_world
def recreated_while_at_work(world: World) -> None:
    """The input was deleted and created again beside a worker, which compares ids every 30 s."""
    world.recreate("orders")
    world.send_by_other(b"2")


@on_world
def record_lost_while_at_work(world: World) -> None:
    """The backing topic was trimmed beside a worker, which holds its place in memory until its next batch."""
    place = TopicPartition("g.check.backing", 0)
    world.broker.trim({place: world.broker.watermarks([place])[place].high})


@on_world
def changelog_deleted_while_at_work(world: World) -> None:
    """The next batch cannot be committed."""
    world.broker.delete(["g.check.seen.changelog"])
    world.send(2)
    world.stops()


@on_world
def output_deleted_while_at_work(world: World) -> None:
    """The next batch cannot be sent."""
    world.broker.delete(["checked"])
    world.send(2)
    world.stops()


@on_world
def changelog_trimmed(world: World) -> None:
    """Its entries are gone, and no worker runs."""
    world.running.stop()
    place = TopicPartition("g.check.seen.changelog", 0)
    world.broker.trim({place: world.broker.watermarks([place])[place].high})


def errors_deleted_while_at_work(_: Path) -> World:
    """The next error message cannot be sent."""
    world = World(graph_of(errors=Errors("g.errors")))
    world.broker.delete(["g.errors"])
    world.send(-1)
    world.stops()
    return world


@on_world
def recreated_wider(world: World) -> None:
    """With more partitions than there are tasks, while no worker ran."""
    world.running.stop()
    world.broker.delete(["orders"])
    world.broker.create([NewTopic("orders", 2, 1, {})])


@on_world
def redeclared_beside_a_worker(world: World) -> None:
    """The former version is at work; the one that is asked about would be refused."""
    world.graph = graph_of(strategy="at-least-once")


def paused(_: Path) -> World:
    """On purpose, and messages wait."""
    world = World(control=True)
    Pausing(world.graph, world.broker, who="test", sides=Sides(control=True, status=True)).pause(timeout_s=20)
    world.send(2)
    return world


@on_world
def group_moved(world: World) -> None:
    """Another program committed offsets of the group."""
    world.running.stop()
    session = world.broker.session("other")
    session.init(timeout_s=30)
    session.begin()
    session.send_offsets({ORDERS: 0}, GroupMetadata.outside("g.check"))
    session.commit()


def retrying(_: Path) -> World:
    """What the function calls is away, and the policy tries again for minutes."""
    world = World(graph_of(retry=Retry(ConnectionError, first_s=0.05, max_s=0.1)))
    world.send(AWAY)
    return world


def retries_over(_: Path) -> World:
    """The same, for longer than the policy tries."""
    world = World(graph_of(retry=Retry(ConnectionError, first_s=0.01, for_s=0.05)))
    world.send(AWAY)
    world.stops()
    return world


def keep(order: Any, db: Any) -> Any:
    """Keep an order in a table."""
    db.execute("INSERT INTO kept (number) VALUES (?)", (order,))
    return order


def target_behind(directory: Path) -> World:
    """The database of its effects was restored from an older backup."""
    path = directory / "shop.db"
    with sqlite3.connect(path) as shop:
        shop.execute("CREATE TABLE kept (number INTEGER)")
    declared = Sql(f"sqlite:///{path}")
    make_tables(declared, "the test", create=True)
    function = Processor(keep, inputs="orders", outputs="checked", name="check", effects={"db": declared})
    world = World(Graph("g", Source("orders"), function, defaults=Topic(value=Json(), partitions=1)))
    for order in (2, 3):  # a database that is one batch behind is brought up
        world.send(order)
        world.running.wait_idle(timeout_s=20)
    world.running.stop()
    with sqlite3.connect(path) as shop:
        shop.execute(f"UPDATE {TASKS} SET base = 0, step = 0")
    with pytest.raises(TaskStopped, match="restored from a backup"):
        world.begin()
    return world


def target_away(directory: Path) -> World:
    """The database of its effects does not answer when the worker starts."""
    home = directory / "mounted"
    home.mkdir()
    with sqlite3.connect(home / "shop.db") as shop:
        shop.execute("CREATE TABLE kept (number INTEGER)")
    declared = Sql(f"sqlite:///{home}/shop.db")
    make_tables(declared, "the test", create=True)
    function = Processor(keep, inputs="orders", outputs="checked", name="check", effects={"db": declared})
    world = World(Graph("g", Source("orders"), function, defaults=Topic(value=Json(), partitions=1)))
    world.running.stop()
    world.send_by_other(b"2")
    home.rename(directory / "unmounted")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(prepare, "AT_START_S", 0.0)
        world.running = start(world.graph, world.options, timeout_s=None)
    until = time.monotonic() + 20
    while not any(one.stopped for one in world.running.status().tasks):  # it joins its group first
        assert time.monotonic() < until
        time.sleep(0.01)
    return world


def unreadable_request(_: Path) -> World:
    """A stranger wrote to the replay topic; the task goes on behind it."""
    world = World(graph_of(errors=Errors("g.errors")))
    world.send_by_other(b"no request", topic="g.check.replay")
    world.send(2)
    world.running.wait_idle(timeout_s=20)
    return world


def late(_: Path) -> World:
    """One message a month ahead closed the windows of ten honest ones."""
    loose = Topic(value=Json(), partitions=1, config={"message.timestamp.after.max.ms": str(2**63 - 1)})
    counter = Tumbling("check", inputs="orders", outputs="checked", every="1 hour")
    world = World(Graph("g", Source("orders"), counter, defaults=loose))
    now_ms = int(time.time() * 1000)
    for number, timestamp_ms in enumerate((now_ms + 30 * DAY_MS, *[now_ms] * 10)):
        world.running.send("orders", Message(number, key="a", timestamp_ms=timestamp_ms))
    world.running.wait_idle(timeout_s=20)
    return world


def narrower(world: World) -> None:
    """Delete the input, and create it again with one partition."""
    world.broker.delete(["orders"])
    world.broker.create([NewTopic("orders", 1, 1, {})])


def recreated_narrower(_: Path) -> World:
    """With fewer partitions than there are tasks, while no worker ran."""
    world = World(graph_of(partitions=2))
    world.running.stop()
    narrower(world)
    return world


def recreated_narrower_while_at_work(_: Path) -> World:
    """The same beside a worker, which has compared ids since."""
    world = World(graph_of(partitions=2))
    narrower(world)
    [worker] = world.running._workers
    assert isinstance(worker, ProcessorWorker)
    worker._questions.compare_topic_ids()
    world.until("deleted and recreated")  # the task of partition 1 stops by itself, for another reason
    return world


@on_world
def group_right_lost_while_at_work(world: World) -> None:
    """The user of the worker may no longer read its group."""
    [worker] = world.running._workers
    assert isinstance(worker, ProcessorWorker)
    member, left = worker._membership.member, Event()

    def refused() -> None:
        if not left.is_set():
            left.set()
            member.close(leave=True)
        raise FatalError("user `worker` may not read group `g.check`", code="GROUP_AUTHORIZATION_FAILED")

    member.poll = refused  # type: ignore[method-assign]
    world.until("STOPPED")


@on_world
def write_right_lost_while_at_work(world: World) -> None:
    """The user of the worker may no longer write the outputs."""

    def refused(_: Any, records: Any) -> int:
        raise FatalError("user `worker` may not write topic `checked`", code="TOPIC_AUTHORIZATION_FAILED")

    opened = world.broker.session

    def session(*given: Any, **options: Any) -> Any:
        made = opened(*given, **options)
        made.produce = refused.__get__(made)  # type: ignore[method-assign]
        return made

    with pytest.MonkeyPatch.context() as patched:  # for the session that is open
        patched.setattr(MemorySession, "produce", refused)
        world.broker.session = session  # type: ignore[method-assign]
        world.send(2)
        world.stops()


class Tape:
    """A source of numbers, which may go away."""

    def __init__(self) -> None:
        self.away = False

    def parts(self) -> int:
        """One."""
        return 1

    def read(self, part: int, place: str | None, limit: int) -> Iterable[tuple[Any, str]]:
        """One number; then nothing more."""
        if self.away:
            raise ConnectionRefusedError("the tape is away")
        return [] if place else [(Message(1, key="a"), "1")]


class Fed(World):
    """A graph that a feed fills; its source has gone away."""

    def __init__(self) -> None:
        tape = Tape()
        function = Processor(count, inputs="orders", outputs="checked", name="check", state={"seen": Store()})
        feed = Feed(tape, into="orders", name="tape", poll_seconds=0.02)
        super().__init__(Graph("g", feed, function, defaults=Topic(value=Json(), partitions=1)))
        tape.away = True
        self.until("does not answer")

    def send(self, order: int) -> None:
        """The feed does."""


def source_away(_: Path) -> World:
    """The source of a feed does not answer for a moment."""
    return Fed()


def source_away_for_long(_: Path) -> World:
    """The source of a feed has not answered for two minutes."""
    world = Fed()
    [feed] = [one for one in world.running._workers if one.name == "tape"]
    assert isinstance(feed, ProcessorWorker)
    [lane] = feed.lanes.values()
    lane.buffer.since_s -= 120.0  # type: ignore[union-attr]
    return world


class Pigeons(Published):
    """A broker that acknowledges messages, and has gone away."""

    def publisher(self, graph: str, processor: str) -> Publisher:
        """Of one process."""
        return Away()


class Away:
    """Publishes nothing."""

    def prepare(self, value: Any, step: Any, given: Any) -> Any:
        """As it is."""
        return value

    def publish(self, messages: Sequence[tuple[str, Any]]) -> None:
        """It is refused."""
        raise ConnectionRefusedError("the loft does not answer")

    def close(self) -> None:
        """Nothing is open."""


def send_off(order: Any, loft: Any, step: Any) -> None:
    """Publish an order; the first one is not for it."""
    if order != 1:
        loft.publish(order, step)


def other_broker_away(_: Path) -> World:
    """The broker that a bridge publishes to does not answer."""
    function = Processor(send_off, inputs="orders", name="check", effects={"loft": Pigeons()})
    world = World(Graph("g", Source("orders"), function, defaults=Topic(value=Json(), partitions=1)))
    world.send(2)
    world.stops()
    return world

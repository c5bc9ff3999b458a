"""A graph under load on a cluster that is hurt: what runs, which node is which, and what must be there at the end."""

from __future__ import annotations

import json
import resource
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

from confluent_kafka import Message
from confluent_kafka.admin import AdminClient

from cues_kafka import Graph, Json, Processor, Source, Topic
from cues_kafka.brokers.local import LocalBroker, Node
from cues_kafka.brokers.local.ports import free_ports
from tests.fault.proxy import Proxy, Side
from tests.fault.support import IMPATIENT, Load, Setup, backing, check_chain, committed, outcomes, until

PARTITIONS = 2
TASKS = 2 * PARTITIONS


def first(value: Any) -> Any:
    """Errors, nothing, and messages."""
    if value[1] % 10 == 3:
        raise ValueError(f"three: {value}")
    return None if value[1] % 10 == 4 else value


def second(value: Any) -> Any:
    """All that came."""
    return value


def chain(name: str) -> Graph:
    """Two processors in a row."""
    return Graph(
        name,
        Source(f"{name}.in"),
        Processor(first, inputs=f"{name}.in", outputs=f"{name}.mid"),
        Processor(second, inputs=f"{name}.mid", outputs=f"{name}.out"),
        errors=f"{name}.errors",
        defaults=Topic(value=Json(), partitions=PARTITIONS),
    )


def check_prefix(bootstrap: str, name: str) -> None:
    """What is committed so far: in order, without a gap, each message once."""
    for topic in (f"{name}.mid", f"{name}.out"):
        found = committed(bootstrap, topic, to_stable=True)
        for p in range(PARTITIONS):
            numbers = [json.loads(m.value() or b"")[1] for m in found if m.partition() == p]
            assert numbers == [k for k in range(max(numbers, default=-1) + 1) if k % 10 not in (3, 4)]
        assert set(outcomes(found).values()) <= {1}


def check(bootstrap: str, name: str, count: int) -> int:
    """
    Outputs, errors, totals: each message of the input once, in its order.

    What the input holds counts, and not what was sent: an idempotent producer whose leader dies may write a message
    twice. None of `count` may be missing there. Gives how many are there twice.
    """
    read = committed(bootstrap, f"{name}.in")
    sent = [[json.loads(m.value() or b"")[1] for m in read if m.partition() == p] for p in range(PARTITIONS)]
    assert [set(numbers) for numbers in sent] == [set(range(count))] * PARTITIONS
    wanted = [[[p, k] for k in sent[p] if k % 10 not in (3, 4)] for p in range(PARTITIONS)]
    for topic in (f"{name}.mid", f"{name}.out"):
        found = committed(bootstrap, topic)
        for p in range(PARTITIONS):
            values = [json.loads(m.value() or b"") for m in found if m.partition() == p]
            assert values == wanted[p], topic
        assert set(outcomes(found).values()) == {1}
    errors = committed(bootstrap, f"{name}.errors")
    due = sum(k % 10 == 3 for numbers in sent for k in numbers)
    assert len(errors) == due, f"{len(errors)} error messages instead of {due}"
    assert set(outcomes([*errors, *committed(bootstrap, f"{name}.mid")]).values()) == {1}
    for processor, deliveries in (("first", sent), ("second", wanted)):
        records = backing(bootstrap, f"{name}.{processor}.backing")
        check_chain(records)
        assert [r[-1]["totals"]["deliveries"] for r in records] == [len(each) for each in deliveries]
    return sum(len(numbers) - count for numbers in sent)


def check_doubled(bootstrap: str, name: str) -> None:
    """What a lost marker leaves (docs/proof.md): nothing is lost, and one task has some outcomes twice."""
    read = {topic: committed(bootstrap, f"{name}.{topic}") for topic in ("in", "mid", "errors", "out")}
    twice: set[str] = set()
    due = [m for m in read["in"] if json.loads(m.value() or b"")[1] % 10 != 4]  # the others give nothing
    pairs = (("first", due, [*read["mid"], *read["errors"]]), ("second", read["mid"], read["out"]))
    for task, inputs, outputs in pairs:
        found = Counter(map(_consumed, outputs))
        assert set(found) == {(m.partition(), m.offset()) for m in inputs}, f"{task}: an outcome is lost, or made up"
        assert set(found.values()) <= {1, 2}, f"{task}: {found.most_common(3)}"
        twice |= {f"{task}/{p}" for (p, _), outcomes in found.items() if outcomes == 2}
    assert len(twice) == 1, twice


def _consumed(message: Message) -> tuple[int, int]:
    """Partition and offset of the message that this one was made from, by its provenance."""
    header = dict(message.headers() or [])["cues"]
    assert isinstance(header, bytes)
    _, task, _, _, _, offsets = header.decode().split(" ")
    return int(task.rpartition("/")[2]), int(offsets)


class Endured(NamedTuple):
    """What a graph went through.

    Attributes:
        recovered_s: of each fault, how long after it each task had delivered again, in seconds.
        silent_s: of each fault, the longest time in which a task delivered nothing, in seconds.
        messages: how many were written.
        twice: how many of them the input has twice, because of the producer that wrote them.
    """

    recovered_s: list[float]
    silent_s: list[float]
    messages: int
    twice: int


def under_load(
    broker: LocalBroker,
    name: str,
    hurt: Callable[[], None],
    repair: Callable[[], None] = lambda: None,
    *,
    bootstrap: str = "",
    seconds: float = 0.0,
) -> Endured:
    """
    Run the graph, write, hurt the cluster, go on writing, repair the cluster, compare everything.

    Args:
        broker: the cluster.
        name: of the graph.
        hurt: what is done to the cluster.
        repair: what is done when each task has delivered again.
        bootstrap: where the graph finds it; empty: where the other clients do.
        seconds: for how long this is repeated; it is done once at least.
    """
    setup = Setup(bootstrap or broker.bootstrap, name)
    recovered: list[float] = []
    silent: list[float] = []
    end = time.monotonic() + seconds
    with setup.start(chain(name), options=IMPATIENT) as running:
        with Load(broker.bootstrap, f"{name}.in", PARTITIONS) as load:
            while not recovered or time.monotonic() < end:
                _await_progress(running, [0] * TASKS, 20)
                earlier = deliveries(running)
                try:
                    with Silence(running) as silence:
                        hurt()
                        began, before = time.monotonic(), deliveries(running)
                        before = before if len(before) == TASKS else earlier  # else some are lost now
                        _await_progress(running, before, 5)
                        recovered.append(time.monotonic() - began)
                    silent.append(silence.longest_s)
                finally:
                    repair()
                if running.status().stopped:
                    break
        running.wait_idle(timeout_s=120)  # raises what has stopped a task
        assert not running.status().stopped
    twice = check(broker.bootstrap, name, load.count)
    return Endured(recovered, silent, PARTITIONS * load.count, twice)


class Silence(threading.Thread):
    """
    Watches the tasks of a graph under load, in a `with` block.

    Attributes:
        longest_s: the longest time in which one of them delivered nothing.
    """

    def __init__(self, running: Any) -> None:
        super().__init__(daemon=True)
        self._running, self._over = running, threading.Event()
        self._moved: dict[str, tuple[int, float]] = {}  # by task: what it had delivered, and since when
        self.longest_s = 0.0

    def run(self) -> None:
        while not self._over.wait(0.02):
            self.look(time.monotonic())

    def look(self, now_s: float) -> None:
        """Compare with the look before; a task that another worker has, or none, delivers nothing here."""
        totals = {task.task: task.totals.deliveries for task in self._running.status().tasks}
        for task in totals.keys() | self._moved.keys():
            count, since_s = self._moved.get(task, (-1, now_s))
            self.longest_s = max(self.longest_s, now_s - since_s)
            if totals.get(task, count) > count:
                self._moved[task] = totals[task], now_s

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join()


def _await_progress(running: Any, before: list[int], count: int) -> None:
    """Wait until each task has delivered more than before, or one has stopped."""

    def ahead() -> bool:
        now = deliveries(running)
        further = len(now) == len(before) and all(new >= old + count for new, old in zip(now, before, strict=True))
        return further or bool(running.status().stopped)

    until(ahead, "each task goes on, or one says why not", 90)


def deliveries(running: Any) -> list[int]:
    """Of each task."""
    return [task.totals.deliveries for task in running.status().tasks]


class ProxiedBroker(LocalBroker):
    """
    Nodes with a proxy before each, which those clients use that begin with `front`; the nodes themselves do not.

    Attributes:
        proxies: in order of the nodes.
        front: ``bootstrap.servers`` of the proxies.
    """

    def __init__(self, nodes: int, **options: Any) -> None:
        ports = free_ports(nodes)
        super().__init__(
            nodes,
            listeners=["FRONT"],
            advertised={"FRONT": ports},
            overrides={
                "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,FRONT:PLAINTEXT",
                **options.pop("overrides", {}),
            },
            **options,
        )
        self.front = ",".join(f"127.0.0.1:{port}" for port in ports)
        self._fronts = ports
        self.proxies: list[Proxy] = []
        self._open = ExitStack()

    def start(self) -> Self:
        super().start()
        for front, back in zip(self._fronts, self.listener("FRONT").split(","), strict=True):
            self.proxies.append(self._open.enter_context(Proxy(front, int(back.rpartition(":")[2]))))
        return self

    def stop(self) -> None:
        if self.proxies:
            self.proxies.clear()
            self._open.close()
        super().stop()


# ---- which node is which


def leader_of(broker: LocalBroker, topic: str, partition: int = 0) -> Node:
    """The node that leads a partition."""
    client = AdminClient({"bootstrap.servers": broker.bootstrap})
    leader: int = client.list_topics(topic, timeout=10).topics[topic].partitions[partition].leader
    return broker.nodes[leader - 1]


def transaction_coordinator(broker: LocalBroker, transactional_id: str) -> Node:
    """The leader of the partition of the transaction log that the id has by Java's hash."""
    number = 0
    for letter in transactional_id:
        number = (31 * number + ord(letter)) & 0xFFFFFFFF
    client = AdminClient({"bootstrap.servers": broker.bootstrap})
    log = client.list_topics("__transaction_state", timeout=10).topics["__transaction_state"]
    return leader_of(broker, "__transaction_state", (number & 0x7FFFFFFF) % len(log.partitions))


def group_coordinator(broker: LocalBroker, group: str) -> Node:
    """As the cluster says."""
    client = AdminClient({"bootstrap.servers": broker.bootstrap})
    found = client.describe_consumer_groups([group])[group].result()
    return broker.nodes[int(found.coordinator.id) - 1]


def controller(broker: LocalBroker) -> Node:
    """The leader of the quorum; clients are told any node instead, so this reads what the nodes have written down."""
    states = [
        json.loads((node.directory / "data" / "__cluster_metadata-0" / "quorum-state").read_text("utf-8"))
        for node in broker.nodes
    ]
    leader = int(max((one["leaderEpoch"], one["leaderId"]) for one in states)[1])
    return broker.nodes[leader - 1]


def whole(broker: LocalBroker) -> None:
    """Wait until all nodes are back, and in sync in each partition."""
    client = AdminClient({"bootstrap.servers": broker.bootstrap})

    def synced() -> bool:
        topics = client.list_topics(timeout=10).topics.values()
        return all(len(p.isrs) == len(p.replicas) and p.leader > 0 for t in topics for p in t.partitions.values())

    until(lambda: all(node.is_alive() for node in broker.nodes) and synced(), "all nodes are back, and in sync", 90)


# ---- faults

ROLES: dict[str, Callable[[LocalBroker, str], Node]] = {
    "leader-of-input": lambda broker, name: leader_of(broker, f"{name}.in"),
    "transaction-coordinator": lambda broker, name: transaction_coordinator(broker, f"{name}.first.0"),
    "group-coordinator": lambda broker, name: group_coordinator(broker, f"{name}.first"),
    "controller": lambda broker, _: controller(broker),
}
"""The node that has a role for the graph of a name."""


@dataclass
class Killed:
    """The node of a role dies, or its disk is full; it comes back."""

    broker: LocalBroker
    name: str
    role: str
    dead: list[Node] = field(default_factory=list)

    def hurt(self) -> None:
        """SIGKILL."""
        self.dead.append(ROLES[self.role](self.broker, self.name))
        self.dead[-1].kill()

    def fill_disk(self) -> None:
        """Let none of its files grow, as on a full disk: Kafka then gives its only directory up, and ends."""
        node = ROLES[self.role](self.broker, self.name)
        assert node.pid is not None
        resource.prlimit(node.pid, resource.RLIMIT_FSIZE, (1, 1))
        until(lambda: not node.is_alive(), "the node has ended by itself", 60)
        node.kill()
        self.dead.append(node)

    def repair(self) -> None:
        """Start it, and wait until it is in sync."""
        while self.dead:
            self.dead.pop().start()
        whole(self.broker)


def roll(broker: LocalBroker) -> None:
    """Restart all nodes, one after the other."""
    for node in broker.nodes:
        node.terminate(timeout_s=60)
        node.start()
        whole(broker)


def cut_off(broker: ProxiedBroker, name: str, side: Side) -> None:
    """
    Let nothing through to the transaction coordinator, or nothing back from it.

    It lasts until a client has given its connection up and has come again.
    """
    proxy = broker.proxies[transaction_coordinator(broker, f"{name}.first.0").id - 1]
    before = max(request.connection for request in list(proxy.requests))
    with proxy.severed(side) as fault:
        until(lambda: proxy.requests[-1].connection > before, "a client has come again")
    assert fault.bites > 0

"""Commands see a driver of Spark that lives, and no other, though the clock of their machine is off."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from cues_kafka import Graph, Json, Processor, RecoveryError, Source, Topic
from cues_kafka.operate.deleting import Deleting
from cues_kafka.operate.look.drivers import refuse_drivers
from cues_kafka.operate.move import migrate as verb
from cues_kafka.operate.move.base import Maintenance
from cues_kafka.operate.move.rename import Renaming
from cues_kafka.ports.facts import NewTopic
from cues_kafka.records.status import StatusRecord, TaskOwner, encode_status
from cues_kafka.testing.tester import Tester

OFF_S = [-3600.0, -20.0, 0.0, 20.0, 3600.0]
"""By how much the machine's clock is ahead of the cluster's."""

DAY_S = 86_400.0


def work(**message: int) -> int:
    """A pipe, whatever its input is called."""
    [n] = message.values()
    return n


def graph_of(name: str = "work", binding: str = "a") -> Graph:
    """One processor, under this name and with this name of its input."""
    declared = Processor(work, name=name, inputs={binding: "x"}, outputs="out")
    return Graph("g", Source("x"), declared, defaults=Topic(value=Json(), partitions=1))


class Machine:
    """An operator's machine, whose clock is off, and a cluster on which a driver may live while time passes."""

    def __init__(self, off_s: float = 0.0) -> None:
        self.off_s, self.now_s = off_s, 1_700_000_000.0  # of the cluster
        self.tester = Tester(graph_of())
        self.tester.send("x", 1)
        self.tester.run()
        self.tester.stop()
        self.broker = self.tester.broker
        self.broker.create([NewTopic("g.status", 1, config={"cleanup.policy": "compact"})])
        self.tells: Callable[[], Any] = lambda: None
        self.next_s = float("inf")
        self.said: list[str] = []

    def monotonic(self) -> float:
        """Seconds."""
        return self.now_s

    def time(self) -> float:
        """What the operator sees."""
        return self.now_s + self.off_s

    def sleep(self, seconds: float) -> None:
        """What is due meanwhile happens."""
        self.now_s += seconds
        if self.now_s >= self.next_s:
            self.next_s = float("inf")
            self.tells()

    def told(self, ago_s: float = 0.0, *, task: str = "work/0", every_s: float = 5.0, **changed: Any) -> None:
        """A driver has told."""
        owner = TaskOwner(instance="spark-1", host="node-7", pid=12, runtime=changed.pop("runtime", "spark"))
        record = StatusRecord(task=task, owner=owner, every_s=every_s, **{"state": "idle", **changed})
        stamp_ms = int((self.now_s - ago_s) * 1000)
        self.broker.sender("driver").send([("g.status", 0, task.encode(), encode_status(record), None, stamp_ms)])

    def later(self, in_s: float, tells: Callable[[], Any]) -> None:
        """Let this happen while the command waits."""
        self.next_s, self.tells = self.now_s + in_s, tells

    def look(self, *names: str) -> float:
        """How long the command waits; it may refuse."""
        began_s = self.now_s
        assert not refuse_drivers(graph_of(), self.broker, names or ["work"], clock=self, tell=self.said.append)
        return self.now_s - began_s


@pytest.mark.parametrize("off_s", OFF_S)
def test_driver_that_lives_is_seen_whatever_the_clock_says(off_s: float) -> None:
    """It tells again within its period; where the clock is right, nothing is waited for."""
    machine = Machine(off_s)
    machine.told(ago_s=2.0)
    machine.later(3.0, machine.told)

    with pytest.raises(
        RecoveryError, match=r"spark-1 \(node-7, pid 12\) runs work on Spark, and reported it"
    ) as refused:
        machine.look()

    waits = "spark-1 (node-7, pid 12) on Spark was not shut down gracefully; waiting for up to 15 s, to see whether it"
    assert [waits in said for said in machine.said] == ([True] if off_s else [])
    way = "ahead of" if off_s > 0 else "behind"
    assert (f"about {abs(off_s):.0f} s {way} the cluster's" in str(refused.value)) == bool(off_s)
    assert machine.now_s - 1_700_000_000.0 <= 3.5


@pytest.mark.parametrize("off_s", OFF_S)
def test_driver_that_was_killed_is_watched_for_three_periods(off_s: float) -> None:
    """Once, whatever the clock says; then the command goes on."""
    machine = Machine(off_s)
    machine.told(ago_s=100.0)

    assert 15.0 <= machine.look() <= 16.0
    assert len(machine.said) == 1


def test_driver_is_watched_for_periods_of_its_own() -> None:
    """`status_every_s` is a setting of its process."""
    machine = Machine(3600.0)
    machine.told(ago_s=1.0, every_s=20.0)
    machine.later(19.0, machine.told)
    with pytest.raises(RecoveryError, match="runs work on Spark"):
        machine.look()
    assert "for up to 60 s" in machine.said[0]


@pytest.mark.parametrize("off_s", OFF_S)
@pytest.mark.parametrize(
    "last",
    [
        {"ago_s": 2 * DAY_S},
        {"state": "left"},
        {"runtime": "native"},
        {"task": "other/0"},
    ],
    ids=str,
)
def test_nothing_is_waited_for_without_reason(off_s: float, last: dict[str, Any]) -> None:
    """A driver that has told nothing for a day is dead; a worker is a member of its group."""
    machine = Machine(off_s)
    machine.told(**last)

    assert (machine.look(), machine.said) == (0.0, [])


def test_driver_that_stops_in_order_meanwhile_is_waited_for_no_longer() -> None:
    """It tells that too."""
    machine = Machine(20.0)
    machine.told()
    machine.later(2.0, lambda: machine.told(state="left"))

    assert machine.look() == 2.0


@pytest.mark.parametrize("before", [{"ago_s": 2 * DAY_S}, {"state": "left"}], ids=str)
def test_driver_that_starts_meanwhile_is_seen(before: dict[str, Any]) -> None:
    """Also for a task of which nothing was waited for."""
    machine = Machine(20.0)
    machine.told(**before)
    machine.told(task="work/1")
    machine.later(2.0, machine.told)

    with pytest.raises(RecoveryError, match="reported it while this command waited"):
        machine.look()


def delete(machine: Machine) -> None:
    """What the command does."""
    tool = Deleting(graph_of(), machine.broker, clock=machine)
    tool.carry_out(tool.processor("work"), tell=machine.said.append)


def migrate(machine: Machine) -> None:
    """Give its input another name."""
    tool = Maintenance(graph_of(binding="b"), machine.broker, "work", who="test", clock=machine)
    assert verb.migrate(tool, {"b": "a"}, ["a"], tell=machine.said.append)


def rename(machine: Machine) -> None:
    """Give it another name."""
    tool = Renaming(graph_of("new"), machine.broker, "work", "new", who="test", clock=machine)
    assert tool.plan(tell=machine.said.append).notes


@pytest.mark.parametrize("command", [delete, migrate, rename])
def test_commands_wait_before_they_take_a_driver_for_dead(command: Callable[[Machine], None]) -> None:
    """And say so."""
    machine = Machine(20.0)
    machine.told()
    machine.later(4.0, machine.told)
    with pytest.raises(RecoveryError, match="runs work on Spark"):
        command(machine)
    assert "waiting for up to 15 s" in machine.said[0]

    machine.off_s = 40.0  # the driver is killed
    command(machine)
    assert "waiting for up to 15 s" in machine.said[1]

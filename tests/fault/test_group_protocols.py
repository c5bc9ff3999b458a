"""Both protocols of groups, and a change from one to the other, while workers come, leave and are killed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from cues_kafka import Graph, Running, TaskStopped
from cues_kafka.brokers.local import LocalBroker
from tests.fault.support import Children, Load, Setup, until

pytestmark = [pytest.mark.full, pytest.mark.timeout(120)]

PARTITIONS = 4
OPTIONS: dict[str, dict[str, Any]] = {
    "classic": {"session_timeout_s": 2.0, "heartbeat_s": 0.3},
    "consumer": {"group_protocol": "consumer"},
    "one session": {"session_timeout_s": 2.0, "heartbeat_s": 0.3, "sessions": 1},
    "one session, consumer": {"group_protocol": "consumer", "sessions": 1},
}
SHORT = {
    "group.min.session.timeout.ms": "500",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "2000",
    "group.consumer.min.heartbeat.interval.ms": "300",
    "group.consumer.heartbeat.interval.ms": "300",
}
"""Sessions end after two seconds, in both protocols."""


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    """A broker with short sessions."""
    with LocalBroker(overrides=SHORT) as broker:
        yield broker.bootstrap


def same(value: Any) -> Any:
    """What the workers run."""
    return value


def graph(bootstrap: str, name: str) -> Graph:
    """A pipe."""
    return Setup(bootstrap, name).graph(same, partitions=PARTITIONS)


def check(setup: Setup, count: int) -> None:
    """Each message has one output, in the order of its partition, and the records say the same."""
    world = setup.world()
    for p in range(PARTITIONS):
        assert [k for partition, k in world.values if partition == p] == list(range(count))
    assert world.totals == {"deliveries": PARTITIONS * count, "outputs": PARTITIONS * count, "errors": 0, "nils": 0}
    assert set(world.outcomes.values()) == {1}


@pytest.mark.parametrize("protocol", OPTIONS)
def test_each_message_has_one_outcome_while_workers_come_and_are_killed(bootstrap: str, protocol: str) -> None:
    """One worker, then three; one is killed and restarted under its name, one is killed for good."""
    setup = Setup(bootstrap, f"kills-{protocol.replace(', ', '-').replace(' ', '-')}")
    load = Load(bootstrap, setup.source, PARTITIONS)
    with Children() as workers:

        def worker(k: int) -> Any:
            return workers.add(
                bootstrap, f"{__name__}:graph", bootstrap, setup.name, options=OPTIONS[protocol], instance=f"w.{k}",
                policy={"max_messages": 20, "max_seconds": 0.05},
            )  # fmt: skip

        worker(1).expect("started")
        load.start()
        second, third = worker(2), worker(3)
        second.expect("all tasks ready")
        third.expect("all tasks ready")
        third.kill()
        third = worker(3)
        second.kill()
        third.expect("all tasks ready")
        load.finish()
        until(lambda: delivered(setup) == load.count * PARTITIONS, "two workers deliver what is left")
    check(setup, load.count)


def delivered(setup: Setup) -> int:
    """By the newest backing records."""
    return setup.world().totals["deliveries"]


class Team(ExitStack):
    """Two workers of one graph in this process, and what they are fed."""

    def __init__(self, setup: Setup) -> None:
        super().__init__()
        self.setup, self.load = setup, Load(setup.bootstrap, setup.source, PARTITIONS)
        self.workers: dict[int, Running] = {}

    def begin(self, k: int, **options: Any) -> None:
        """Start worker k with these options of a cluster."""
        made = graph(self.setup.bootstrap, self.setup.name)
        self.workers[k] = self.enter_context(self.setup.start(made, options=options, instance=f"w.{k}"))

    def finish(self) -> None:
        """Let the workers deliver what there is, and compare everything."""
        self.load.finish()
        until(lambda: self.tasks() == PARTITIONS, "each task has one owner")
        for one in self.workers.values():
            one.wait_idle(timeout_s=60)
            assert not one.status().stopped
        check(self.setup, self.load.count)

    def tasks(self, *, of_each: int = 0) -> int:
        """How many tasks the workers have together; 0: one has fewer than `of_each`."""
        counts = [len(one.status().tasks) for one in self.workers.values()]
        return sum(counts) if min(counts) >= of_each else 0


def test_a_group_changes_its_protocol_and_back_one_worker_after_the_other(bootstrap: str) -> None:
    """As SIGHUP does it: each worker ends in order, keeps its place, and its successor has the other protocol."""
    classic = OPTIONS["classic"] | {"assignor": "range"}
    with Team(Setup(bootstrap, "rolling")) as team:
        team.begin(0, **classic)
        team.load.start()
        team.begin(1, **classic)
        until(lambda: team.tasks(of_each=1) == PARTITIONS, "they share the tasks")
        for options in (OPTIONS["consumer"], classic):
            for k in (0, 1):
                team.workers[k].release()
                team.begin(k, **options)
        team.finish()


def test_workers_with_a_session_for_each_task_and_with_one_for_all_share_a_group(bootstrap: str) -> None:
    """J8: one after the other gets the other setting, and back, while the tasks move between them."""
    many, one = OPTIONS["classic"], OPTIONS["one session"]
    with Team(Setup(bootstrap, "mixed")) as team:
        team.begin(0, **many)
        team.load.start()
        team.begin(1, **one)
        until(lambda: team.tasks(of_each=1) == PARTITIONS, "they share the tasks")
        for k, options in ((0, one), (1, many), (0, many), (1, one)):
            team.workers.pop(k).stop()
            team.begin(k, **options)
            until(lambda: team.tasks(of_each=1) == PARTITIONS, "they share the tasks again")
        team.finish()


def test_workers_of_the_default_assignor_stop_before_their_group_changes_its_protocol(bootstrap: str) -> None:
    """The brokers do not convert it while it has such a member (M31), and say so. The way back needs no stop."""
    with Team(Setup(bootstrap, "stopping")) as team:
        for k in (0, 1):
            team.begin(k, **OPTIONS["classic"])
        team.load.start()
        until(lambda: team.tasks(of_each=1) == PARTITIONS, "they share the tasks")
        team.workers.pop(0).stop()
        with pytest.raises(TaskStopped, match="stop all of its workers with SIGTERM"):
            team.begin(0, **OPTIONS["consumer"])
        team.workers.pop(1).stop()
        for k in (0, 1):
            team.begin(k, **OPTIONS["consumer"])
        until(lambda: team.tasks(of_each=1) == PARTITIONS, "they share the tasks")
        for k in (0, 1):
            team.workers[k].release()
            team.begin(k, **OPTIONS["classic"])
        team.finish()

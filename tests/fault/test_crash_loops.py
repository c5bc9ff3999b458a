"""Functions that kill their process: isolated, quarantined after the stated starts, the rest proceeds (PROTOCOL 2)."""

from __future__ import annotations

import itertools
import json
import os
import signal
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from cues_kafka import Graph
from cues_kafka.testing.fixtures import KafkaFixture
from tests.fault.support import PATIENCE_S, QUICK, Child, Setup, backing, create, until

pytestmark = pytest.mark.fault
INSTANCE = "one"


def deadly(value: Any) -> Any:
    """SIGKILL for one value."""
    if value == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    return value


def deadly_graph(bootstrap: str, name: str, errors: bool, quarantine_after: int | None) -> Graph:
    """What the children run."""
    return Setup(bootstrap, name).graph(deadly, errors=errors, quarantine_after=quarantine_after)


@pytest.fixture
def setup(kafka: KafkaFixture) -> Setup:
    """Names of the test's own; the topics are there before the first child."""
    return Setup(kafka.bootstrap, kafka.unique("g"))


def loop(setup: Setup, done: Callable[[], bool], errors: bool = True, quarantine_after: int | None = 2) -> int:
    """Start workers one after the other, each when the last one died, until `done`; gives how many died."""
    for deaths in itertools.count():
        with Child(
            setup.bootstrap,
            "tests.fault.test_crash_loops:deadly_graph",
            setup.bootstrap,
            setup.name,
            errors,
            quarantine_after,
            options=QUICK,
            instance=INSTANCE,
        ) as child:
            until(partial(died_or, child, done), "it died, or all is delivered")
            if child.process.poll() is None:
                child.stop()
                return deaths
            assert child.process.returncode == -signal.SIGKILL, "\n".join(child.lines)
    raise AssertionError("unreachable")


def died_or(child: Child, done: Callable[[], bool]) -> bool:
    """Whether it died, or there is nothing left to do."""
    return child.process.poll() is not None or done()


def delivered(setup: Setup) -> int:
    """Deliveries so far, by the newest backing records."""
    return sum(records[-1]["totals"]["deliveries"] for records in backing(setup.bootstrap, setup.backing))


def prepare(setup: Setup, values: list[Any], errors: bool = True) -> None:
    """Topics, and the messages in them, before the first child looks."""
    setup.start(setup.graph(deadly, errors=errors)).stop()
    setup.send(*(json.dumps(v).encode() for v in values), transaction=True)


def test_a_message_that_kills_its_process_is_quarantined_and_the_rest_proceeds(setup: Setup) -> None:
    """Two deaths on the batch, then one step at a time, then quarantine after the stated starts, undecoded."""
    values = [0, 1, 2, "kill", 3, 4]
    prepare(setup, values)
    deaths = loop(setup, lambda: delivered(setup) == len(values))

    world = setup.world()
    assert world.values == [0, 1, 2, 3, 4]
    [error] = world.errors
    assert (error["kind"], error["consumed"][0]["offset"]) == ("quarantine", 3)
    assert error["payload"] == b'"kill"'
    assert error["starts"] == 3
    assert world.totals == {"deliveries": 6, "outputs": 5, "errors": 1, "nils": 0}
    assert set(world.outcomes.values()) == {1}
    # Two with the batch, one when its turn came in careful mode (without a snapshot), three under its own.
    assert deaths == 6


@pytest.mark.slow
def test_a_single_deadly_message_is_quarantined_after_three_deaths(setup: Setup) -> None:
    """quarantine_after=2: the third death is one too many; two deadly ones in a row each get their own count."""
    prepare(setup, ["kill"])
    deaths = loop(setup, lambda: delivered(setup) == 1)

    world = setup.world()
    assert [e["kind"] for e in world.errors] == ["quarantine"]
    assert world.totals == {"deliveries": 1, "outputs": 0, "errors": 1, "nils": 0}
    assert deaths == 3


def test_without_an_errors_topic_the_task_stops_and_names_the_message(setup: Setup) -> None:
    """Nothing is skipped; the process is not killed again."""
    prepare(setup, ["kill", 1], errors=False)
    graph = "tests.fault.test_crash_loops:deadly_graph"
    settings: dict[str, Any] = {"options": QUICK, "instance": INSTANCE}
    arguments = (setup.bootstrap, graph, setup.bootstrap, setup.name, False, 1)
    for _ in range(10):
        with Child(*arguments, **settings) as child:
            child.dead()
            if child.process.returncode != -signal.SIGKILL:
                assert child.process.returncode == 3
                told = child.expect("TaskStopped")
                break
    assert f"{setup.source}/0 at 0" in told
    assert "killed its process at least 2 times" in told
    assert setup.world(errors=False).totals == {"deliveries": 0, "outputs": 0, "errors": 0, "nils": 0}


@pytest.mark.slow
def test_quarantine_can_be_switched_off(setup: Setup) -> None:
    """quarantine_after=None: it dies as long as it is started."""
    prepare(setup, ["kill"])
    for _ in range(4):
        with Child(
            setup.bootstrap,
            "tests.fault.test_crash_loops:deadly_graph",
            setup.bootstrap,
            setup.name,
            True,
            None,
            options=QUICK,
            instance=INSTANCE,
        ) as child:
            assert child.dead(PATIENCE_S) == -signal.SIGKILL
    [[*_, newest]] = backing(setup.bootstrap, setup.backing)
    assert (newest["kind"], newest["starts"]) == ("Snapshot", 3)
    world = setup.world()
    assert (world.outputs, world.errors, world.outcomes) == ([], [], Counter())


# ---- latest


def latest_graph(bootstrap: str, name: str) -> Graph:
    """What the children of the next test run."""
    return Setup(bootstrap, name).graph(deadly, start="latest")


@pytest.mark.parametrize("where", ["before Call", "before Commit", "after Commit"])
def test_a_crash_before_the_first_commit_does_not_move_latest(setup: Setup, where: str) -> None:
    """`latest` is the moment of the first start, made durable by its record: what came later is not skipped (R5)."""
    create(setup.bootstrap, setup.source)
    setup.send(b'"before"')
    count = 1 if where == "before Call" else 2  # the first commit is that of `Start`
    with Child(
        setup.bootstrap,
        "tests.fault.test_crash_loops:latest_graph",
        setup.bootstrap,
        setup.name,
        options=QUICK,
        instance=INSTANCE,
        point=(where, count, "SIGKILL"),
    ) as child:
        child.expect("started")
        setup.send(b'"after"')
        assert child.dead() == -signal.SIGKILL
    setup.send(b'"later"')
    with setup.start(latest_graph(setup.bootstrap, setup.name), options=QUICK, instance=INSTANCE) as running:
        running.wait_idle(timeout_s=PATIENCE_S)

    world = setup.world()
    assert world.values == ["after", "later"]
    assert world.totals == {"deliveries": 2, "outputs": 2, "errors": 0, "nils": 0}

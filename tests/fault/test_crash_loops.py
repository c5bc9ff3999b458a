"""Functions that kill their process: isolated, quarantined after the stated starts, the rest proceeds (Q1 to Q3)."""

from __future__ import annotations

import itertools
import json
import os
import signal
import sys
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from cues_kafka import Codec, Graph
from cues_kafka.testing.fixtures import KafkaFixture
from tests.fault.support import (
    PATIENCE_S,
    QUICK,
    Child,
    Program,
    Setup,
    _avro,
    backing,
    committed_all,
    create,
    end_offset,
    produce,
    until,
)

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


class Deadly(Codec):
    """JSON whose decoder dies of one message, as a parser in C may."""

    def encode(self, value: Any) -> bytes:
        """As text."""
        return json.dumps(value).encode()

    def decode(self, data: bytes) -> Any:
        """SIGKILL for one message."""
        return deadly(json.loads(data))


def harmless(value: Any) -> Any:
    """Gives what it gets."""
    return value


def undecodable_graph(bootstrap: str, name: str, errors: bool, quarantine_after: int | None) -> Graph:
    """What the children run whose decoder dies."""
    return Setup(bootstrap, name).graph(harmless, value=Deadly(), errors=errors, quarantine_after=quarantine_after)


@pytest.fixture
def setup(kafka: KafkaFixture) -> Setup:
    """Names of the test's own; the topics are there before the first child."""
    return Setup(kafka.bootstrap, kafka.unique("g"))


def loop(
    setup: Setup,
    done: Callable[[], bool],
    errors: bool = True,
    quarantine_after: int | None = 2,
    make: Callable[..., Graph] = deadly_graph,
) -> int:
    """Start workers one after the other, each when the last one died, until `done`; gives how many died."""
    for deaths in itertools.count():
        with Child(
            setup.bootstrap,
            f"tests.fault.test_crash_loops:{make.__name__}",
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


@pytest.mark.parametrize(
    "make", [deadly_graph, pytest.param(undecodable_graph, marks=pytest.mark.full)], ids=["function", "decoder"]
)
def test_a_message_that_kills_its_process_is_quarantined_and_the_rest_proceeds(
    setup: Setup, make: Callable[..., Graph]
) -> None:
    """Two deaths on the batch, then one step at a time, then quarantine after the stated starts, undecoded."""
    values = [0, 1, 2, "kill", 3, 4]
    prepare(setup, values)
    deaths = loop(setup, lambda: delivered(setup) == len(values), make=make)

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


BESIDE = """
import os, signal, time
from pathlib import Path
from cues_kafka import Graph, Processor, Raw, Source, Topic

told = Path({told!r})

def tell(text):
    with told.open("a") as file:
        file.write(text + "\\n")

def deadly(value):
    until_s, awaited = time.monotonic() + 1.0, {{f"slow in {{os.getpid()}}", "slow done"}}
    while time.monotonic() < until_s and not awaited & {{*told.read_text().split("\\n")}}:
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGKILL)

def slow(value):
    tell(f"slow in {{os.getpid()}}")
    time.sleep(2.0)
    tell("slow done")
    return value

graph = Graph(
    {name!r}, Source("{name}.poison"), Source("{name}.fine"),
    Processor(deadly, inputs="{name}.poison", outputs="{name}.bad"),
    Processor(slow, inputs="{name}.fine", outputs="{name}.good"),
    errors="{name}.errors", defaults=Topic(value=Raw(), partitions=1),
)
"""
"""`deadly` kills the process while `slow` is in its call, as often as the two may run side by side."""


@pytest.mark.full
def test_a_message_that_dies_with_another_processors_message_is_not_quarantined(setup: Setup, tmp_path: Path) -> None:
    """One worker, restarted by its supervisor: the message that kills it is the only error message (Q2a)."""
    told, name = tmp_path / "told", setup.name
    told.touch()
    file = tmp_path / f"beside_{name.replace('-', '_')}.py"
    file.write_text(BESIDE.format(name=name, told=str(told)))
    topics = poison, fine, good, errors = [f"{name}.{topic}" for topic in ("poison", "fine", "good", "errors")]
    for topic in topics:
        create(setup.bootstrap, topic)
    produce(setup.bootstrap, fine, [b"innocent"])
    produce(setup.bootstrap, poison, [b"poison"])

    def decided() -> bool:
        return all(end_offset(setup.bootstrap, topic) for topic in (good, errors))

    command = [sys.executable, "-m", "cues_kafka.cli.main", "run", f"{file}:graph", "--bootstrap", setup.bootstrap]
    with Program([*command, "--workers", "1", "--instance", INSTANCE]) as running:
        until(lambda: decided() or "\n".join(running.lines).count(" quarantined ") > 1, "both are decided")
        running.process.terminate()
        assert running.dead() == 0

    found = committed_all(setup.bootstrap, topics[2:])
    assert [message.value() for message in found[good]] == [b"innocent"]
    [error] = [_avro(message.value() or b"", "error") for message in found[errors]]
    assert (error["kind"], error["payload"]) == ("quarantine", b"poison")
    assert told.read_text().count("slow in") > 1, "it shared no death"


@pytest.mark.slow
def test_a_single_deadly_message_is_quarantined_after_three_deaths(setup: Setup) -> None:
    """quarantine_after=2: the third death is one too many; two deadly ones in a row each get their own count."""
    prepare(setup, ["kill"])
    deaths = loop(setup, lambda: delivered(setup) == 1)

    world = setup.world()
    assert [e["kind"] for e in world.errors] == ["quarantine"]
    assert world.totals == {"deliveries": 1, "outputs": 0, "errors": 1, "nils": 0}
    assert deaths == 3


@pytest.mark.full
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


@pytest.mark.parametrize(
    "where", ["before Commit", *(pytest.param(one, marks=pytest.mark.full) for one in ("before Call", "after Commit"))]
)
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

"""`rebuild` on a real broker: as a program, after partitions were added, and through SIGKILL (X3)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from cues_kafka import (
    ConfigError,
    Graph,
    Json,
    Kafka,
    Message,
    Processor,
    Source,
    State,
    Store,
    TaskStopped,
    Topic,
    connect,
)
from cues_kafka import start as started
from cues_kafka.brokers.kafka import KafkaBroker
from cues_kafka.brokers.murmur2 import partition_for
from cues_kafka.operate.move.rebuild import Rebuild
from cues_kafka.testing.fixtures import KafkaFixture
from cues_kafka.verify.scan import verify
from tests.fault.killing import forked
from tests.fault.support import until

WORDS = [f"w{n}" for n in range(12)]

MODULE = """
from tests.fault.test_rebuild import fixed, graph_of
graph = graph_of({prefix!r}, fixed)
"""

MODULE_THAT_WAITS = """
import threading
from pathlib import Path
from tests.fault.test_rebuild import graph_of

def wait(word, counts):
    Path({came!r}).touch()
    threading.Event().wait(60)

graph = graph_of({prefix!r}, wait)
"""

SESSION_S = 6.0
"""How long a tool that was killed is a member of the group; brokers take no less."""


def count(word: str, counts: State[int]) -> int:
    """How often a word came."""
    counts[word] = counts.get(word, 0) + 1
    return counts[word]


def fixed(word: str, counts: State[int]) -> int:
    """The same in tens, and without one of them."""
    if word == "w3":
        raise ValueError("never this one")
    counts[word] = counts.get(word, 0) + 10
    return counts[word]


def graph_of(prefix: str, fn: Any = count) -> Graph:
    """Words are counted, in two partitions at first."""
    return Graph(
        prefix,
        Source(f"{prefix}.words"),
        Processor(
            fn,
            name="count",
            inputs=f"{prefix}.words",
            outputs=f"{prefix}.numbers",
            state={"counts": Store(Json(int))},
        ),
        defaults=Topic(value=Json(), partitions=2),
        errors=f"{prefix}.errors",
    )


class World:
    """One graph on the cluster, and what plain Python says of it."""

    def __init__(self, kafka: KafkaFixture, directory: Path) -> None:
        self.prefix = kafka.unique("rb").replace("_", "-")
        self.options = Kafka(kafka.bootstrap, session_timeout_s=SESSION_S)
        self.broker = KafkaBroker(self.options)
        self.sent = Counter[str]()
        self.module = directory / "counting.py"
        self.module.write_text(MODULE.format(prefix=self.prefix))

    def run(self, fn: Any, *words: str, width: int = 2) -> dict[str, int]:
        """Deliver these words; the entries of all tasks, each of which is where its key belongs."""
        self.sent.update(words)
        found: dict[str, int] = {}
        with started(graph_of(self.prefix, fn), self.options) as running:
            for word in words:
                running.send(f"{self.prefix}.words", Message(word, key=word))
            running.wait_idle(timeout_s=60)
        with connect(self.options, graph_of(self.prefix, fn)) as client:
            for partition in range(width):
                view = client.table("count", "counts", partition=partition)
                assert {partition_for(word.encode(), width) for word in view} <= {partition}
                found |= view.copy()
        return found

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run the program."""
        return subprocess.run(self.program(*arguments), capture_output=True, text=True, check=False, timeout=100)

    def program(self, *arguments: str) -> list[str]:
        """The command as the system runs it."""
        command = [sys.executable, "-m", "cues_kafka.cli.main", "rebuild", f"{self.module}:graph", "count", *arguments]
        return [*command, "--bootstrap", self.options.bootstrap]

    def widen(self, width: int) -> None:
        """The input gets more partitions."""
        self.broker.add_partitions(f"{self.prefix}.words", width)

    @property
    def in_tens(self) -> dict[str, int]:
        """What the fixed function makes of everything that was sent."""
        return {word: 10 * n for word, n in self.sent.items() if word != "w3"}

    def die(self, point: tuple[str, str, int]) -> None:
        """Rebuild in a process that is killed there, and wait until the group has forgotten it."""
        context = forked()
        process = context.Process(target=rebuild_and_die, args=(self.options.bootstrap, self.prefix, point))
        process.start()
        process.join(100)
        assert process.exitcode == -signal.SIGKILL, point
        until(lambda: not self.broker.members(f"{self.prefix}.count"), "the group forgets it", timeout_s=30)

    def rebuild(self) -> int:
        """Rebuild in this process; gives how many tasks were written."""
        with Rebuild(graph_of(self.prefix, fixed), self.broker, "count", who="test", cluster=self.options) as tool:
            tool.hold()
            return sum(map(tool.write, tool.look()))


def rebuild_and_die(bootstrap: str, prefix: str, point: tuple[str, str, int]) -> None:
    """The body of a process that is killed before or after the nth effect of a name."""
    seen = 0

    def hook(moment: str, effect: str) -> None:
        nonlocal seen
        if (moment, effect) == point[:2]:
            seen += 1
            if seen == point[2]:
                os.kill(os.getpid(), signal.SIGKILL)

    options = Kafka(bootstrap, session_timeout_s=SESSION_S)
    graph = graph_of(prefix, fixed)
    with Rebuild(graph, KafkaBroker(options), "count", who="dying", cluster=options, hook=hook) as tool:
        tool.hold()
        for group in tool.look():
            tool.write(group)


@pytest.mark.full
def test_a_fixed_function_gets_its_entries_and_then_added_partitions(kafka: KafkaFixture, tmp_path: Path) -> None:
    """Said first, done with --yes. The graph then goes on as plain Python says, and `verify` finds nothing wrong."""
    world = World(kafka, tmp_path)
    assert world.run(count, *WORDS, *WORDS[:4]) == world.sent

    said = world.command()
    assert said.returncode == 1, said.stdout + said.stderr
    assert sum(int(line.split()[1]) for line in said.stdout.splitlines()) == 16
    assert "Nothing was changed" in said.stderr
    done = world.command("--yes")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "count: 2 tasks rebuilt"), done.stderr
    assert world.run(fixed) == world.in_tens
    world.widen(3)
    with pytest.raises(ConfigError, match=r"Run 'cues-kafka rebuild MODULE:GRAPH count'"):
        world.run(fixed)
    done = world.command("--yes")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "count: 3 tasks rebuilt"), done.stderr
    assert world.run(fixed, *WORDS, width=3) == world.in_tens
    report = verify(graph_of(world.prefix, fixed), world.broker, state=True)
    assert report.anomalies == 0, str(report)


POINTS = [("after", "Init", 2), ("before", "Commit", 5), ("after", "Commit", 4)]
"""While the tasks are announced, and when one of them has its new entries. The memory broker has all effects."""


@pytest.mark.full
@pytest.mark.parametrize("point", POINTS)
def test_a_rebuild_that_is_killed_is_ended_by_the_next(
    kafka: KafkaFixture, tmp_path: Path, point: tuple[str, str, int]
) -> None:
    """Until then no task runs on half of it, whatever the effect at which it died."""
    world = World(kafka, tmp_path)
    world.run(count, *WORDS)
    world.widen(3)
    world.die(point)
    with pytest.raises((ConfigError, TaskStopped), match="cues-kafka rebuild"):
        world.run(fixed)
    assert world.rebuild() == 3
    assert world.run(fixed, *WORDS, width=3) == world.in_tens


@pytest.mark.full
def test_a_worker_keeps_the_rebuild_out_and_ctrl_c_ends_it(kafka: KafkaFixture, tmp_path: Path) -> None:
    """The worker is named, and goes on. After Ctrl-C the entries are those of before."""
    world = World(kafka, tmp_path)
    with started(graph_of(world.prefix), world.options, instance="here") as running:
        done = world.command("--yes")
        running.send(f"{world.prefix}.words", Message("w1", key="w1"))
        running.wait_idle(timeout_s=30)
    assert done.returncode == 1
    assert "has members (here" in done.stderr

    came = tmp_path / "came"
    world.module.write_text(MODULE_THAT_WAITS.format(prefix=world.prefix, came=str(came)))
    with subprocess.Popen(world.program("--yes"), stderr=subprocess.PIPE, text=True) as process:
        until(came.exists, "the function is called", timeout_s=60)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 130, said
    assert "Interrupted. Each task has its old entries or the new ones." in said
    assert world.run(count) == {"w1": 1}

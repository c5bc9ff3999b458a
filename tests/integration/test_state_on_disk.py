"""Stores on disk in workers that are killed, and on a disk that is full (R4b)."""

from __future__ import annotations

import os
import random
import re
import resource
import shutil
import signal
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from cues_kafka import Graph, Kafka, Message, connect
from cues_kafka.brokers.open import open_broker
from cues_kafka.cli.loading import load_graph
from cues_kafka.testing.fixtures import KafkaFixture
from cues_kafka.verify.scan import verify
from tests.fault.support import end_offset
from tests.integration.test_run_command import running
from tests.integration.test_supervisor import wait_for

pytestmark = [pytest.mark.fault, pytest.mark.full]

MOST = 100
"""Steps in a transaction."""

WIDTH = 2
KILLS = 4
PIECE = 2_000


@pytest.fixture
def target(kafka: KafkaFixture, tmp_path: Path) -> str:
    """A graph in a file of its own: counts words, with 500 bytes for each of them."""
    name = kafka.unique("disk")
    file = tmp_path / f"graph_{name.replace('-', '_')}.py"
    file.write_text(
        dedent(
            f"""
            from cues_kafka import CommitPolicy, Graph, Json, Processor, Source, State, Store, Topic

            def count(word: str, counts: State[list]) -> list:
                before, _ = counts.get(word, (0, ""))
                counts[word] = [before + 1, "x" * 500]
                return [word, before + 1]

            graph = Graph("{name}", Source("{name}.in"),
                          Processor(count, inputs="{name}.in", outputs="{name}.out", quarantine_after=None,
                                    state={{"counts": Store(Json(list), on_disk=True)}},
                                    commit=CommitPolicy(max_messages={MOST})),
                          defaults=Topic(value=Json(), partitions={WIDTH}))
            """
        )
    )
    return f"{file}:graph"


def send(kafka: KafkaFixture, graph: Graph, words: list[str]) -> None:
    """Words, each always to the same partition."""
    with connect(Kafka(kafka.bootstrap), graph) as client:
        client.send_many(f"{graph.name}.in", [Message(word, key=word) for word in words])


def delivered(kafka: KafkaFixture, graph: Graph) -> int:
    """About how many outputs there are, markers included."""
    return sum(end_offset(kafka.bootstrap, f"{graph.name}.out", partition) for partition in range(WIDTH))


def worker(log: Path) -> int:
    """The process that was started last."""
    return int(re.findall(r"ready after .* pid (\d+)$", log.read_text(), re.MULTILINE)[-1])


def restored(log: Path) -> list[int]:
    """How many entries were read from the changelog, task by task and start by start."""
    return [int(found) for found in re.findall(r"restored.*entries=(\d+)", log.read_text())]


def check(kafka: KafkaFixture, graph: Graph, words: list[str]) -> None:
    """Compare outputs, changelog and stores with plain Python."""
    expected = Counter(words)
    with connect(Kafka(kafka.bootstrap), graph) as client:
        outputs = [tuple(message.value) for message in client.messages(f"{graph.name}.out", limit=1_000_000)]
        table = client.table("count", "counts")
        assert {word: count for word, (count, _) in table.copy().items()} == expected
    assert sorted(outputs) == sorted((word, nth) for word, count in expected.items() for nth in range(1, count + 1))
    broker = open_broker(Kafka(kafka.bootstrap))
    report = verify(graph, broker, state=True)
    assert report.ok, report.lines
    assert report["count"].entries == len(expected)
    broker.close()


def from_files(kafka: KafkaFixture, target: str, files: Path, log: Path, count: int) -> list[int]:
    """Start once more, count one word, and stop in order; gives what was restored."""
    graph = load_graph(target)
    before = delivered(kafka, graph)
    with running(kafka, log, target, "--state-dir", str(files)) as process:
        send(kafka, graph, ["0"] * count)
        wait_for(lambda: delivered(kafka, graph) >= before + count, timeout_s=40)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    return restored(log)


def test_a_worker_that_is_killed_again_and_again_restores_only_what_is_new(
    kafka: KafkaFixture, target: str, tmp_path: Path
) -> None:
    """SIGKILL in the midst of its transactions; at most one of them is not in the file of a task."""
    graph, log, files = load_graph(target), tmp_path / "log", tmp_path / "files"
    chance = random.Random(7)
    words: list[str] = []
    options = ["--workers", "1", "--instance", "blue", "--state-dir", str(files)]
    with running(kafka, log, target, *options) as process:
        wait_for(lambda: b"ready after" in log.read_bytes(), timeout_s=40)
        for kill in range(KILLS + 1):
            piece = [str(chance.randrange(1_000)) for _ in range(PIECE)]
            before, victim = delivered(kafka, graph), worker(log)
            send(kafka, graph, piece)
            words += piece
            if kill < KILLS:
                enough = before + chance.randrange(1, PIECE // 2)
                wait_for(partial(lambda least: delivered(kafka, graph) > least, enough), timeout_s=60)
                wait_for(partial(lambda least: len(restored(log)) >= least, (kill + 1) * WIDTH), timeout_s=60)
                os.kill(victim, signal.SIGKILL)
                wait_for(partial(lambda dead: worker(log) != dead, victim), timeout_s=30)
        wait_for(lambda: read_through(kafka, graph, len(words)), timeout_s=60)
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0

    found = restored(log)
    assert len(found) >= (KILLS + 1) * WIDTH
    assert max(found) <= MOST
    assert "wiped" not in log.read_text()
    check(kafka, graph, words)
    assert from_files(kafka, target, files, tmp_path / "again", 1) == [0] * WIDTH
    shutil.rmtree(files)
    assert sum(from_files(kafka, target, files, tmp_path / "all", 1)) > len(words) // 4
    check(kafka, graph, [*words, "0", "0"])


def read_through(kafka: KafkaFixture, graph: Graph, count: int) -> bool:
    """Whether there are as many outputs as this."""
    with connect(Kafka(kafka.bootstrap), graph) as client:
        return len(client.messages(f"{graph.name}.out", limit=count)) >= count


class Limited:
    """A disk on which a process may write no larger file: the kernel refuses each write beyond that."""

    def __init__(self, files: Path) -> None:
        self.files = files
        self._pid = 0

    def fill(self, pid: int) -> None:
        """Let the process write next to nothing more."""
        self._pid = pid
        largest = max(one.stat().st_size for one in self.files.rglob("entries"))
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (largest + 2**16, resource.RLIM_INFINITY))

    def free(self) -> None:
        """Make room."""
        resource.prlimit(self._pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))

    def close(self) -> None:
        """Nothing is left."""


class Small:
    """A file system of its own, in memory."""

    def __init__(self, files: Path) -> None:
        files.mkdir()
        self.files = files
        command = ["mount", "-t", "tmpfs", "-o", "size=64m", "none", str(files)]
        if subprocess.run(command, check=False, capture_output=True).returncode:
            pytest.skip("this user may not mount a file system")

    def fill(self, _: int) -> None:
        """Write all that is free, but a little."""
        free = shutil.disk_usage(self.files).free
        with (self.files / "ballast").open("wb") as ballast:
            ballast.write(bytes(free - 2**16))

    def free(self) -> None:
        """Make room."""
        (self.files / "ballast").unlink()

    def close(self) -> None:
        """Take it away."""
        subprocess.run(["umount", str(self.files)], check=True)


@pytest.fixture(params=[Limited, Small])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    """A disk that can be filled, and emptied again."""
    make: Callable[[Path], Any] = request.param
    disk = make(tmp_path / "files")
    yield disk
    disk.close()


def test_a_full_disk_stops_the_task_with_the_remedy_and_it_goes_on_when_there_is_room(
    kafka: KafkaFixture, target: str, tmp_path: Path, disk: Any
) -> None:
    """Nothing is lost: what was committed and could not be written is read from the changelog."""
    graph, log = load_graph(target), tmp_path / "log"
    words = [str(number) for number in range(200)]
    later = [str(number % 3_000) for number in range(6_000)]
    with running(kafka, log, target, "--state-dir", str(disk.files)) as process:
        wait_for(lambda: b"ready after" in log.read_bytes(), timeout_s=40)
        send(kafka, graph, words)
        wait_for(lambda: read_through(kafka, graph, len(words)), timeout_s=40)
        disk.fill(process.pid)
        send(kafka, graph, later)
        wait_for(lambda: "cannot be written" in log.read_text(), timeout_s=60)
        assert not read_through(kafka, graph, len(words) + len(later))
        disk.free()
        wait_for(lambda: read_through(kafka, graph, len(words) + len(later)), timeout_s=90)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    told = log.read_text()
    assert re.search(rf"the store in {disk.files}/[^:]*/{graph.name}/count/counts/\d cannot be written: ", told)
    assert "Make room there, or set state_dir to another disk" in told
    assert "wiped" not in told
    check(kafka, graph, [*words, *later])
    assert from_files(kafka, target, disk.files, tmp_path / "again", 1) == [0] * WIDTH

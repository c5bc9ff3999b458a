"""How each side is started, and which settings it has."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version

from benchmarks.peers import jobs
from benchmarks.peers.environments import PROGRAMS, STREAMS, java_of, python_of

ORDERS, PIPE, FORK = "orders", "pipe", "fork"
"""The jobs."""


@dataclass(frozen=True, slots=True)
class Peer:
    """
    One side.

    Attributes:
        title: its name and version.
        command: of a job, the program and its arguments.
        group: by the name of a run and the job, the group whose committed offsets show the progress.
        refused: which order an error message of it is about.
        short: its name in names of topics.
        guarantee: the setting of its guarantee.
        settings: what else was set, for readers of the table.
        slow: whether it gets a tenth of the messages.
    """

    title: str
    short: str
    guarantee: str
    command: Callable[[str], list[str]]
    settings: str
    refused: jobs.Reader = jobs.of_json
    group: Callable[[str, str], str] = lambda name, _: name
    slow: bool = False


OURS = {ORDERS: "count", PIPE: "forward", FORK: "fork"}
"""The processor of each job in cues-kafka."""


def _ours(job: str) -> list[str]:
    program = PROGRAMS / f"cues_{job}.py"
    return [sys.executable, "-m", "cues_kafka.cli.main", "run", f"{program}:graph", "--log-level", "error"]


PEERS = {
    "cues": Peer(
        f"cues-kafka {version('cues-kafka')}",
        "cues",
        "the default",
        _ours,
        "defaults, so stores in memory and lz4",
        jobs.of_ours,
        lambda name, job: f"{name}.{OURS[job]}",
    ),
    "streams": Peer(
        f"Kafka Streams {STREAMS}",
        "streams",
        "`exactly_once_v2`",
        lambda job: java_of(f"Streams{job.title()}"),
        "1 thread, commits every 100 ms (its default), no cache, RocksDB, lz4",
        jobs.of_bytes,
    ),
    "quix": Peer(
        "Quix Streams 3.28.1",
        "quix",
        "`exactly-once`",
        lambda job: [str(python_of("quix")), str(PROGRAMS / f"quix_{job}.py")],
        "`commit_interval=0.1` (default 5 s), RocksDB, lz4",
    ),
    "faust": Peer(
        "Faust 0.15.3",
        "faust",
        "`exactly_once`",
        lambda job: [str(python_of("faust")), str(PROGRAMS / f"faust_{job}.py"), "worker", "-l", "error"],
        "`broker_commit_interval=0.1` (default 2.8 s), tables in memory, lz4",
        slow=True,
    ),
}
"""All sides, by the names that `--only` takes."""

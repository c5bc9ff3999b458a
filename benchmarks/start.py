"""How long a worker takes from its process to its first record, and what importing costs."""

from __future__ import annotations

import os
import subprocess
import sys
import time

from benchmarks.harness import Cluster, Pipe, side, spread, unique, until
from benchmarks.report import Section, holds

TARGET_S = 1.0

HOW = """*First record*: from the creation of the process of `cues-kafka run` to the high watermark of the backing
topic above 0, seen by another process every 5 ms; topics and groups are new. *Once more*: the same over its own
record, to the first new committed message, in a group without static names. Imports are the whole process less one
that imports nothing."""

IMPORTS = {
    "import cues_kafka": "import cues_kafka",
    "all that a worker imports": "import cues_kafka.cli.main, cues_kafka.running.start, cues_kafka.brokers.kafka",
}


def measure(repetitions: int, cluster: Cluster) -> Section:
    """Measure: spawn, watch, stop."""
    section = Section("Start", HOW, ("figure", f"seconds, median of {repetitions} (min to max)", "target", "holds"))
    starts = [_start(cluster) for _ in range(repetitions)]
    for label, column in (("first record", 0), ("once more, to the next commit", 1)):
        figures = [row[column] for row in starts]
        verdict = holds(sorted(figures)[len(figures) // 2] < TARGET_S)
        section.rows.append([label, spread(figures, "{:.2f}"), f"< {TARGET_S:g}", verdict])
    for label, code in IMPORTS.items():
        figures = [_python(code) - _python("pass") for _ in range(repetitions)]
        section.rows.append([label, spread(figures, "{:.3f}"), "", ""])
    for row in section.rows:
        print(f"  {row[0]}: {row[1]} s", flush=True)
    return section


def _start(cluster: Cluster) -> tuple[float, float]:
    pipe = Pipe(unique("s"), cluster.create(unique("in")), cluster.create(unique("out")))
    backing = f"{pipe.group('cues')}.backing"
    cluster.create(backing, 1, {"cleanup.policy": "compact"})
    began = time.monotonic()
    with side("cues", cluster, pipe) as process:
        until(
            lambda: cluster.marks(backing).high > 0,
            timeout_s=30,
            every_s=0.005,
            what="a record",
            process=process,
        )
        first = time.monotonic() - began
    cluster.fill(pipe.source, [b"x"], 1)
    began = time.monotonic()
    with side("cues", cluster, pipe) as process:
        until(
            lambda: cluster.committed(pipe.group("cues"), pipe.source, 1) > 0,
            timeout_s=30,
            every_s=0.005,
            what="a commit",
            process=process,
        )
        again = time.monotonic() - began
    cluster.delete(pipe.source, pipe.target)
    return first, again


def _python(code: str) -> float:
    began = time.monotonic()
    subprocess.run([sys.executable, "-c", code], check=True, env=dict(os.environ))
    return time.monotonic() - began

"""`clean`, `route` and `hourly` on Spark: the driver's program.

::

    python -m examples.flights.on_spark --bootstrap localhost:9092 --checkpoint /tmp/flights
"""

from __future__ import annotations

import argparse
import os
import select
import signal
import sys
import threading
import time
from dataclasses import replace

from cues_kafka import Kafka, start
from cues_kafka.on_spark.session import opened_session
from cues_kafka.spark import Spark
from examples.flights.graph import graph

MASTER = "local[2, 4]"
"""Two cores of this machine. A Spark task may fail three times, as on a cluster; with `local[2]` never."""

PLAIN = ["clean", "route"]

BATCH = 40_000
"""Messages in one micro-batch of `clean` and of `route` at most, over all partitions."""

LARGE = 100_000
"""The same for `hourly`, whose batches are computed, announced and published: large, so that it keeps up."""

SETTINGS = {
    "spark.sql.shuffle.partitions": "2",
    # The checkpoint belongs to this run and lies on the local disk, so its files need no checksum files. And they are
    # written without a process that sets their rights: 7 ms a file instead of 73.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
}


def main() -> None:
    """Run until SIGTERM or SIGKILL."""
    args = _parser().parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    if args.parent:
        end_with(args.parent)
    with opened_session(MASTER, name="flights", quiet=False, settings=SETTINGS) as session:
        session.sparkContext.setLogLevel("WARN")
        engine = Spark(session, checkpoint=args.checkpoint, trigger="1 seconds", max_offsets_per_trigger=BATCH)
        larger = replace(engine, max_offsets_per_trigger=LARGE)
        kafka = Kafka(args.bootstrap)
        with (
            start(graph, kafka, engine=engine, only=PLAIN, timeout_s=None) as plain,
            start(graph, kafka, engine=larger, only=["hourly"], timeout_s=None) as frames,
        ):
            # A stopped task is retried, as with `cues-kafka run`.
            while not (plain.failed or frames.failed):
                time.sleep(0.2)


def end_with(parent: int) -> None:
    """
    Kill this process group when the parent ends, however it ends.

    The JVM is in the group. Spark's Python workers are not, but end with their JVM. A killed driver loses nothing: its
    successor recovers.

    Args:
        parent: its process id; it started this process with a group of its own.
    """
    ended = os.pidfd_open(parent)

    def watch() -> None:
        if os.getppid() == parent:  # else it ended before it could be watched
            select.select([ended], [], [])
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m examples.flights.on_spark", description=__doc__.partition("\n")[0])
    parser.add_argument("--bootstrap", required=True, help="the cluster")
    parser.add_argument("--checkpoint", required=True, help="directory of Spark's checkpoints")
    parser.add_argument("--parent", type=int, help="end when this process does")
    return parser


if __name__ == "__main__":
    main()

"""A program whose JVM is killed while it waits for its messages: ``lost_program NAME BOOTSTRAP DIRECTORY``."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from pyspark import SparkContext
from pyspark.sql import SparkSession

from cues_kafka import Graph, Json, Kafka, Processor, Source, Topic, start
from cues_kafka.on_spark.session import prepare_environment
from cues_kafka.spark import Spark


def same(number: int) -> int:
    """Pipe."""
    return number


def main(name: str, bootstrap: str, directory: str) -> None:
    """Deliver a message, kill the JVM, and wait for the next message to be delivered."""
    defaults = Topic(value=Json(int), partitions=1)
    graph = Graph(
        name, Source(f"{name}.in"), Processor(same, inputs=f"{name}.in", outputs=f"{name}.out"), defaults=defaults
    )
    builder: Any = SparkSession.builder
    session = builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
    with start(graph, Kafka(bootstrap), engine=Spark(session, checkpoint=directory)) as running:
        running.send(f"{name}.in", 1)
        running.wait_idle(timeout_s=200)
        gateway: Any = SparkContext._gateway
        os.kill(gateway.proc.pid, signal.SIGKILL)
        running.send(f"{name}.in", 2)
        running.wait_idle(timeout_s=100)


if __name__ == "__main__":
    prepare_environment("local[1]")
    main(*sys.argv[1:])

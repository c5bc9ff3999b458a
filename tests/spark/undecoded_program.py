"""The program that a test of undecoded messages kills: a Spark session, and one topic copied directly and staged."""

from __future__ import annotations

import sys
from typing import Any

from pyspark.sql import SparkSession

from cues_kafka import Graph, Kafka, start
from cues_kafka.spark import Spark
from tests.spark.drivers import CONF


def graph_of(name: str) -> Graph:
    """Both processors."""
    from tests.spark.test_undecoded import copying, direct, make, staged

    return make(name, f"{name}.in", *[copying(fn, name, f"{name}.in", label=fn.__name__) for fn in (direct, staged)])


def main(name: str, bootstrap: str, checkpoint: str, until: str) -> None:
    """Run until idle, or until killed."""
    builder: Any = SparkSession.builder.master("local[2]").config("spark.sql.shuffle.partitions", "2")
    for setting, value in CONF.items():
        builder = builder.config(setting, value)
    engine = Spark(builder.getOrCreate(), checkpoint=checkpoint)
    with start(graph_of(name), Kafka(bootstrap), engine=engine, timeout_s=300) as running:
        if until == "idle":
            running.wait_idle(timeout_s=800)
        else:
            running.wait()


if __name__ == "__main__":
    main(*sys.argv[1:])

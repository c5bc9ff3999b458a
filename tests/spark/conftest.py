"""One Spark session for all tests of Spark: starting one takes ten seconds and more."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A local session with two slots for Spark tasks, on loopback only."""
    from pyspark.sql import SparkSession

    import cues_kafka.spark  # noqa: F401 - names the interpreter of Spark's Python processes before they start
    from cues_kafka.on_spark.daemon import FRAMES

    os.environ[FRAMES] = "yes"
    builder: SparkSession.Builder = SparkSession.builder
    session = (
        builder.master("local[2]")
        .appName("cues-kafka-tests")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.python.daemon.module", "cues_kafka.on_spark.daemon")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture
def rocksdb(spark: SparkSession) -> Iterator[None]:
    """The state store that `transformWithState` needs."""
    from cues_kafka.on_spark.query.plans import ROCKSDB, STORE

    spark.conf.set(STORE, ROCKSDB)
    yield
    spark.conf.unset(STORE)

"""The jars with which Spark reads and writes `s3a://`, which pyspark leaves out."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from cues_kafka.brokers.local.jars import MAVEN_PLUGIN, Wanted, fetched, read_lock
from cues_kafka.brokers.local.java import find_java

HERE = Path(__file__).with_name("s3")
LOCK = HERE / "jars.lock"
WANTED = Wanted(
    "Hadoop's S3 client",
    "hadoop-aws-3.5.0",
    read_lock(LOCK),
    LOCK.name,
    maven=(
        *("-f", str(HERE / "pom.xml"), f"{MAVEN_PLUGIN}:copy-dependencies", "-DincludeScope=runtime"),
        # The other jars are in pyspark.
        "-DexcludeGroupIds=io.netty,org.slf4j,org.apache.httpcomponents,commons-codec,commons-logging",
    ),
    ivy=("-ivy", str(HERE / "ivy.xml")),
)


@cache
def s3_jars() -> tuple[Path, ...]:
    """Fetch them the first time, from Maven Central."""
    return fetched(WANTED, find_java()).files

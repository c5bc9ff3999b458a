"""A standalone cluster of two workers, with checkpoints and staged batches on S3: hosts are lost, drivers move."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import fsspec
import pytest

from cues_kafka.testing.fixtures import KafkaFixture
from tests.fault.support import Program, Record, committed_all, create, outcomes, produce, until
from tests.servers.fixtures import S3Bucket
from tests.spark.archive import jvm_options
from tests.spark.s3_jars import s3_jars
from tests.spark.standalone import LOOPBACK, kill_below, standalone
from tests.spark.standalone_graph import HOLD, KEYS, WIDTH
from tests.spark.test_spark_docs import SPARK_PAGE
from tests.test_docs import blocks

DELIVERED_S = 240.0
"""A JVM, a session, executors, two queries: on a busy machine."""

SETTINGS = f"""
spark.driver.bindAddress        {LOOPBACK}
spark.driver.host               {LOOPBACK}
spark.executor.cores            1
spark.executor.memory           512m
spark.executor.extraJavaOptions {jvm_options()}
spark.cores.max                 2
spark.sql.shuffle.partitions    2
"""


@dataclass(frozen=True)
class World:
    """
    Names and places.

    Attributes:
        bootstrap: of the brokers.
        name: of the graph.
        directory: of the test; each host of a driver has its own below it.
        bucket: where checkpoints are.
        master: address of the cluster.
    """

    bootstrap: str
    name: str
    directory: Path
    bucket: S3Bucket
    master: str = ""

    @property
    def held(self) -> Path:
        """Where the process writes that `hold` keeps."""
        return self.directory / "held"

    @property
    def environment(self) -> dict[str, str]:
        """Of all drivers, with the settings of the page."""
        conf = self.directory / "conf"
        conf.mkdir(exist_ok=True)
        [shown] = blocks("properties", SPARK_PAGE)
        jars = ",".join(str(jar) for jar in s3_jars())
        lines = [line for line in shown.text.splitlines() if "packages" not in line]
        text = "\n".join(lines).replace("https://s3.example.com", self.bucket.server.endpoint)
        scratch = f"spark.hadoop.fs.s3a.buffer.dir {self.directory}/s3a\nspark.jars {jars}\n"
        (conf / "spark-defaults.conf").write_text(f"{text}\n{SETTINGS}{scratch}")
        named = {"CLUSTER_GRAPH": self.name, "CLUSTER_HELD": str(self.held)}
        named |= {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
        return {**os.environ, **named, "SPARK_CONF_DIR": str(conf), "SPARK_LOCAL_IP": LOOPBACK}

    def driver(self, host: str) -> Program:
        """The command, in a directory of its own, with a copy of the user's module there."""
        place = self.directory / host
        place.mkdir()
        file = place / f"graph_{host}.py"
        shutil.copy(Path(__file__).with_name("standalone_graph.py"), file)
        command = [sys.executable, "-m", "cues_kafka.cli.main", "run", f"{file}:graph", "--bootstrap", self.bootstrap]
        command += [
            "--engine",
            "spark",
            "--master",
            self.master,
            "--checkpoint",
            f"s3a://{self.bucket.name}/checkpoints",
        ]
        own = {"TMPDIR": str(place), "SPARK_LOCAL_DIRS": str(place)}
        return Program(command, cwd=place, env={**self.environment, **own})

    def send(self, numbers: Iterable[int]) -> None:
        """Write them, in turn to the partitions."""
        records = [Record(json.dumps({"n": n}).encode(), partition=n % WIDTH) for n in numbers]
        produce(self.bootstrap, f"{self.name}.in", records)

    def read(self) -> tuple[list[Any], list[dict[str, Any]]]:
        """What is committed of doubled numbers, as messages, and of sums, as values."""
        names = [f"{self.name}.doubled", f"{self.name}.sums"]
        found = committed_all(self.bootstrap, names, to_stable=True)
        return found[names[0]], [json.loads(message.value() or b"") for message in found[names[1]]]

    def await_delivered(self, count: int) -> None:
        """Until numbers up to that one are doubled, and are in the sums."""

        def over() -> bool:
            doubled, sums = self.read()
            return len(doubled) >= count and newest(sums) == expected(count)

        until(over, f"{count} numbers are delivered", DELIVERED_S)


def expected(count: int) -> dict[str, tuple[int, int]]:
    """What plain Python says: how many numbers leave each rest, and their sum."""
    rests = {str(rest): range(rest, count, KEYS) for rest in range(KEYS)}
    return {rest: (len(numbers), sum(numbers)) for rest, numbers in rests.items()}


def newest(sums: list[dict[str, Any]]) -> dict[str, tuple[int, int]]:
    """The last message of each rest."""
    return {one["rest"]: (one["numbers"], one["total"]) for one in sums}


def check(world: World, count: int) -> None:
    """Each number is doubled once, and each message of the sums says more than the one before it."""
    doubled, sums = world.read()
    assert Counter(json.loads(message.value())["n"] for message in doubled) == Counter(2 * n for n in range(count))
    assert set(outcomes(doubled).values()) == {1}
    assert newest(sums) == expected(count)
    for rest, found in groupby(sorted(sums, key=itemgetter("rest")), key=itemgetter("rest")):
        counts = [one["numbers"] for one in found]
        assert counts == sorted(set(counts)), f"{rest}: repeated or out of order: {counts}"
    written = fsspec.filesystem("s3", skip_instance_cache=True, **world.bucket.options).find(world.bucket.name)
    places = [path.split("/")[2:4] for path in written]
    kinds = {(place[0].rpartition(".")[2], place[1]) for place in places if len(place) == 2}
    assert {("double", "commits"), ("add", "commits"), ("add", "state"), ("add", "stage")} <= kinds, kinds


@pytest.mark.full
@pytest.mark.timeout(900)
def test_totals_are_exact_though_a_worker_is_lost_and_the_driver_moves_to_another_host(
    kafka: KafkaFixture, s3: S3Bucket, tmp_path: Path
) -> None:
    """The worker dies while one of its executors is in a call; the driver, with messages under way."""
    world = World(kafka.bootstrap, kafka.unique("standalone"), tmp_path, s3)
    for topic in ("in", "doubled", "sums"):
        create(world.bootstrap, f"{world.name}.{topic}", WIDTH)
    world.send(range(HOLD))
    with standalone(tmp_path, LOOPBACK, LOOPBACK, cores=2) as cluster:
        world = replace(world, master=cluster.address)
        with world.driver("here") as driver:
            world.await_delivered(HOLD)
            world.send(range(HOLD, 2 * HOLD))
            held = until(lambda: world.held.exists() and world.held.read_text().strip(), "a call is held", DELIVERED_S)
            cluster.kill_worker_of(int(held))
            world.await_delivered(2 * HOLD)
            world.send(range(2 * HOLD, 3 * HOLD))
            kill_below(driver)
        with world.driver("there") as driver:
            world.await_delivered(3 * HOLD)
            kill_below(driver)
    check(world, 3 * HOLD)

"""Executors that are other processes: the user's modules reach them, and what one has staged another one publishes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyspark
import pytest

from cues_kafka import Graph, Kafka, connect
from cues_kafka.brokers.open import open_broker
from cues_kafka.cli.loading import load_graph
from cues_kafka.ports.facts import NewTopic
from cues_kafka.testing.fixtures import KafkaFixture
from tests.spark.cluster_graph import WIDTH
from tests.spark.standalone import standalone
from tests.test_docs import PROGRAM, ROOT

CUSTOMERS, ORDERS = 10, 200

DEFAULTS = """
spark.driver.bindAddress        127.0.0.1
spark.driver.host               127.0.0.1
spark.executor.cores            1
spark.executor.extraJavaOptions -XX:TieredStopAtLevel=1 -XX:+UseSerialGC
spark.executor.memory           512m
spark.cores.max                 2
spark.sql.shuffle.partitions    2
# One Spark task reads all staged files, also those that the other executor wrote.
spark.sql.files.minPartitionNum 1
"""


@pytest.fixture
def environment(kafka: KafkaFixture, tmp_path: Path) -> dict[str, str]:
    """Of driver, master and workers: loopback only, and nothing is written outside of the test's directory."""
    home, conf = tmp_path / "spark-home", tmp_path / "conf"
    home.mkdir()
    for part in Path(pyspark.__file__).parent.iterdir():
        (home / part.name).symlink_to(part)
    conf.mkdir()
    (conf / "spark-defaults.conf").write_text(DEFAULTS)
    return {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "CLUSTER_GRAPH": kafka.unique("cluster"),
        "SPARK_HOME": str(home),
        "SPARK_CONF_DIR": str(conf),
        "SPARK_LOCAL_DIRS": str(tmp_path),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


@pytest.fixture
def master(request: pytest.FixtureRequest, environment: dict[str, str], tmp_path: Path) -> Iterator[str]:
    """Of two executors with one core each."""
    if request.param == "local-cluster":
        yield "local-cluster[2,1,1024]"
        return
    with standalone(tmp_path, "127.0.0.1", cores=2, memory="2g", environment=environment) as found:
        yield found.address


def users_module(environment: dict[str, str], directory: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Graph]:
    """A module where no executor looks, and its graph."""
    name = environment["CLUSTER_GRAPH"]
    monkeypatch.setenv("CLUSTER_GRAPH", name)
    monkeypatch.setattr(sys, "path", [*sys.path])
    file = directory / f"graph_{name.replace('-', '_')}.py"
    directory.mkdir()
    shutil.copy(Path(__file__).with_name("cluster_graph.py"), file)
    graph = load_graph(f"{file}:graph")
    return sys.modules[file.stem], graph


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("master", ["local-cluster", "standalone"], indirect=True)
def test_a_graph_is_exact_where_executors_are_other_processes(
    kafka: KafkaFixture, master: str, environment: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One batch of a plain processor and of a staged aggregate, each on both executors."""
    module, graph = users_module(environment, tmp_path / "users", monkeypatch)
    name, target = graph.name, f"{module.__file__}:graph"
    orders = [module.Order(str(n), f"c{n % CUSTOMERS}", n % 5) for n in range(ORDERS)]
    options = Kafka(kafka.bootstrap)
    broker = open_broker(options)
    broker.create([NewTopic(f"{name}.orders", WIDTH, 1, {})])
    broker.close()
    with connect(options, graph) as client:
        client.send_many(f"{name}.orders", orders)
        place = ["--engine", "spark", "--master", master, "--checkpoint", (tmp_path / "checkpoint").as_uri()]
        command = [*PROGRAM, "run", target, "--bootstrap", kafka.bootstrap, "--trigger", "available-now", *place]
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=500, check=False
        )
        assert done.returncode == 0, f"{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
        checked = [message.value for message in client.messages(f"{name}.checked")]
        sums = [message.value for message in client.messages(f"{name}.sums")]
    assert Counter((one.id, one.total) for one in checked) == Counter((o.id, o.total) for o in orders if o.total)
    expected: dict[str, list[int]] = {}
    for one in orders:
        expected.setdefault(one.customer, []).append(one.total)
    assert sorted((one.customer, one.orders, one.total) for one in sums) == sorted(
        (customer, len(totals), sum(totals)) for customer, totals in expected.items()
    )
    assert {one.executor for one in checked} == {"0", "1"}, "both executors delivered"
    assert {one.executor for one in sums} == {"0", "1"}, (
        "both executors staged, so one published what it had not staged"
    )

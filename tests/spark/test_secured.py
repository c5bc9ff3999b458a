"""Spark on a secured cluster: the permissions that `plan` prints for the worker suffice, by password and by token."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from cues_kafka import Graph, Kafka, OAuthBearer, connect, start
from cues_kafka.brokers.kafka import KafkaBroker
from cues_kafka.brokers.local import LocalBroker
from cues_kafka.cli.loading import load_graph
from cues_kafka.plan.plan import plan
from cues_kafka.plan.topics import topics_to_ask
from cues_kafka.spark import Spark
from cues_kafka.verify.scan import verify
from tests.integration.test_permissions import WITH_LOGIN, Cluster

pytestmark = [pytest.mark.full, pytest.mark.timeout(300)]

OAUTH = WITH_LOGIN | {
    "listener.security.protocol.map": (
        "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SECURED:SASL_PLAINTEXT,OAUTH:SASL_PLAINTEXT"
    ),
    "listener.name.oauth.sasl.enabled.mechanisms": "OAUTHBEARER",
    "listener.name.oauth.oauthbearer.sasl.jaas.config": (
        "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
        'unsecuredLoginStringClaim_sub="broker";'
    ),
}

MODULE = '''
import base64, json, os, time
from dataclasses import dataclass

from cues_kafka import DataFrameProcessor, Graph, Json, Source, Topic, processor

CALLS = "DIRECTORY/calls"


def token(config):
    """Of the user `worker`, without a signature; says which process asked."""
    with open(CALLS, "a") as calls:
        calls.write(f"{os.getpid()}\\n")
    end = time.time() + 3600  # it is asked for again after half of that
    parts = [{"alg": "none"}, {"sub": "worker", "iat": int(time.time()) - 1, "exp": int(end)}]
    coded = [base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts]
    return ".".join(coded) + ".", end


@dataclass
class Order:
    n: int


@processor(inputs="NAME.orders", outputs="NAME.clean", name="check")
def tidy(order):
    if order.n < 0:
        raise ValueError("negative")
    return order


def sums(orders):
    from pyspark.sql import functions as f

    return orders.groupBy((f.col("n") % 2).alias("odd")).agg(f.sum("n").alias("total"))


graph = Graph(
    "NAME",
    Source("NAME.orders", default=True),
    tidy,
    DataFrameProcessor(sums, name="sums", inputs="NAME.clean", outputs="NAME.sums", output_mode="update"),
    errors="NAME.errors",
    topics={f"NAME.{topic}": Topic(value=Json(Order), partitions=2) for topic in ("orders", "clean")},
)
'''


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Nothing is allowed that no ACL allows, with users and with tokens."""
    with LocalBroker(overrides=OAUTH, listeners=("SECURED", "OAUTH")) as broker:
        yield Cluster(broker)


@pytest.fixture
def graph(cluster: Cluster, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: Any) -> Graph:
    """In a module that no other process can import; its topics are there, and the worker has its permissions."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    name = f"secured_{request.node.originalname[5:21]}"
    file = tmp_path / f"{name}.py"
    file.write_text(MODULE.replace("NAME", name).replace("DIRECTORY", str(tmp_path)))
    graph = load_graph(f"{file}:graph")
    with closing(KafkaBroker(cluster.super_user)) as admin:
        admin.create(plan(graph, admin.facts(topics_to_ask(graph))).create)
    cluster.grant(*(acl for acl in plan(graph).acls if acl.role == "worker"))
    return graph


def check(cluster: Cluster, graph: Graph, options: Kafka, engine: Spark, *batches: tuple[int, ...]) -> None:
    """All of it is delivered, direct and staged; the slots of each batch recover from what the last one has written."""
    order = sys.modules[graph.name].Order
    sent = [n for numbers in batches for n in numbers]
    clean = sorted(n for n in sent if n >= 0)
    with connect(cluster.super_user, graph) as client:
        with start(graph, options, engine=engine) as running:
            for numbers in batches:
                client.send_many(f"{graph.name}.orders", [order(n) for n in numbers])
                running.wait_idle(timeout_s=200)
        assert sorted(message.value.n for message in client.messages(f"{graph.name}.clean")) == clean
        assert len(client.messages(f"{graph.name}.errors")) == len(sent) - len(clean)
        totals = {message.value["odd"]: message.value["total"] for message in client.messages(f"{graph.name}.sums")}
        assert totals == {odd: sum(n for n in clean if n % 2 == odd) for odd in (0, 1)}
    with closing(KafkaBroker(cluster.super_user)) as broker:
        assert verify(graph, broker).complete


def test_the_workers_printed_permissions_suffice_on_spark(
    cluster: Cluster, graph: Graph, spark: Any, tmp_path: Path
) -> None:
    """Driver and Spark's processes log in as a user who has no others."""
    engine = Spark(spark, checkpoint=str(tmp_path / "c"))
    check(cluster, graph, cluster.login("worker"), engine, (1, 2, -1), (3, -2, 4))


def test_a_function_that_gives_tokens_travels_to_sparks_processes(
    cluster: Cluster, graph: Graph, spark: Any, tmp_path: Path
) -> None:
    """It is named as for native workers, and each process asks it once for all of its clients."""
    security = OAuthBearer(token=f"{graph.name}:token", tls=None)
    options = Kafka(cluster.broker.listener("OAUTH"), security=security)

    check(cluster, graph, options, Spark(spark, checkpoint=str(tmp_path / "c")), (1, 2, -1))

    calls = (tmp_path / "calls").read_text().split()
    assert calls.count(str(os.getpid())) == 1
    assert len(set(calls)) > 1
    assert len(calls) == len(set(calls))

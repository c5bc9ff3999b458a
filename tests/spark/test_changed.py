"""Operators give processors that run on Spark other inputs and another name, with real queries on a real broker."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from cues_kafka import ConfigError, Graph, Json, Kafka, Processor, Source, TaskStopped, Topic, connect, start
from cues_kafka.cli.main import app
from cues_kafka.spark import Spark
from cues_kafka.testing.fixtures import KafkaFixture
from tests.spark.test_staged import Payment, World, make, together, values

pytestmark = [pytest.mark.timeout(300), pytest.mark.full]


def merged(order: int | None = None, refund: int | None = None) -> list[int | None]:
    """A pipe of orders, or alts of orders and refunds."""
    return [order, refund]


def plain(name: str, processor: str = "work", **declared: Any) -> Graph:
    """One processor of one partition."""
    work = Processor(merged, name=processor, outputs=f"{name}.out", **declared)
    sources = (Source(f"{name}.orders"), Source(f"{name}.refunds"))
    return Graph(name, *sources, work, defaults=Topic(value=Json(), partitions=1))


@pytest.fixture
def command(kafka: KafkaFixture, tmp_path: Path) -> Callable[..., str]:
    """Run a command with a graph; its output."""

    def run(graph: str, verb: str, *arguments: str, code: int = 0) -> str:
        module = tmp_path / "changed.py"
        module.write_text(f"from tests.spark.test_changed import plain, staged\n\ngraph = {graph}\n")
        done = CliRunner().invoke(app, [verb, f"{module}:graph", *arguments, "--bootstrap", kafka.bootstrap])
        assert done.exit_code == code, done.output
        return " ".join(done.output.split())

    return run


def test_plain_processor_goes_on_with_another_input_and_name(
    spark: Any, kafka: KafkaFixture, tmp_path: Path, command: Callable[..., str]
) -> None:
    """The checkpoint of the former inputs stays, and Spark repeats a batch for them first."""
    name, cluster = kafka.unique("changed"), Kafka(kafka.bootstrap, status_every_s=0.0)  # migrate would hear of drivers

    def run(graph: Graph, *orders: int) -> list[Any]:
        with start(graph, cluster, engine=Spark(spark, checkpoint=str(tmp_path / "c"))) as running:
            running.send_many(f"{name}.orders", orders)
            running.wait_idle(timeout_s=180)
            return sorted((message.value for message in running.messages(f"{name}.out")), key=str)

    before = plain(name, inputs={"order": f"{name}.orders"})
    assert run(before, 1, 2) == [[1, None], [2, None]]
    with connect(cluster, before) as client:
        client.send_many(f"{name}.refunds", [10])
    commits = tmp_path / "c" / f"{name}.work" / "commits"
    newest = max(int(one.name) for one in commits.iterdir() if one.name.isdecimal())
    for one in (str(newest), f".{newest}.crc"):
        (commits / one).unlink()

    alts = {"order": f"{name}.orders", "refund": f"{name}.refunds"}
    after = f"plain({name!r}, alts={alts})"
    assert "graph work --add refund=earliest`" in command(after, "plan", "--records", code=1)
    command(after, "migrate", "work", "--add", "refund=earliest", "--yes")
    assert [*map(str, run(plain(name, alts=alts), 3))] == ["[1, None]", "[2, None]", "[3, None]", "[None, 10]"]

    renamed = f"plain({name!r}, 'merge', alts={alts})"
    command(renamed, "rename", "work", "merge", "--yes")
    assert len(run(plain(name, "merge", alts=alts), 4)) == 5
    with pytest.raises((TaskStopped, ConfigError), match="has moved to the name 'merge'"):
        run(plain(name, alts=alts), 5)
    assert "nothing is wrong" in command(renamed, "verify")


def totals(orders: Any, payments: Any) -> Any:
    """A row for each message, staged because of the union."""
    paid = payments.selectExpr("order AS customer", "1L AS orders", "paid AS total")
    return orders.selectExpr("customer", "1L AS orders", "total").union(paid)


def staged(name: str) -> Graph:
    """Of the topics of `make`, from both inputs."""
    return make(name, totals, inputs={"orders": f"{name}.orders", "payments": f"{name}.payments"})


def test_staged_processor_begins_again_with_other_inputs(
    spark: Any, kafka: KafkaFixture, tmp_path: Path, command: Callable[..., str]
) -> None:
    """Its place is in its checkpoint, too. The plan, the command and the start say so, before Spark does."""
    name, world = kafka.unique("changed"), World(spark, Kafka(kafka.bootstrap), tmp_path)
    with world.start(make(name)) as running:
        running.send_many(f"{name}.orders", together("a"))
        running.wait_idle(timeout_s=180)

    changed = f"staged({name!r})"
    assert "frames/0: inputs changed: the newest record has 'input' from" in command(
        changed, "plan", "--records", code=1
    )
    assert "Or let it begin again" in command(changed, "migrate", "frames", "--add", "payments=earliest", code=2)
    for checkpoint in ("c", "another"):
        with pytest.raises(TaskStopped, match="inputs changed: the newest record has 'input' from"):
            world.start(staged(name), checkpoint)
    command(changed, "reset", "frames", "--yes")
    with world.start(staged(name), "another") as running:
        running.send(f"{name}.payments", Payment("p", 7))
        running.wait_idle(timeout_s=180)
        out = [one["total"] for one in values(running, f"{name}.out") if "nonce" not in one]
    assert sorted(out) == sorted([*range(20), 7])
    assert "nothing is wrong" in command(changed, "verify")

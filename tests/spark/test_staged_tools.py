"""`reset`, `verify`, `plan` and `explain` of a staged processor, with real queries on a real broker."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from cues_kafka import Kafka, TaskStopped, connect
from cues_kafka.brokers.open import open_broker
from cues_kafka.cli.main import app
from cues_kafka.core.staged import RESET
from cues_kafka.operate.move.base import Maintenance
from cues_kafka.operate.move.reset import reset
from cues_kafka.ports.broker import Broker
from cues_kafka.spark import Spark, explain
from cues_kafka.testing.fixtures import KafkaFixture
from cues_kafka.verify.scan import verify
from tests.spark.test_staged import WIDTH, World, make, together, values

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def world(spark: Any, kafka: KafkaFixture, tmp_path: Path) -> World:
    """The session and the cluster."""
    return World(spark, Kafka(kafka.bootstrap), tmp_path)


@pytest.fixture
def broker(kafka: KafkaFixture) -> Iterator[Broker]:
    """For the tools."""
    broker = open_broker(Kafka(kafka.bootstrap))
    yield broker
    broker.close()


@pytest.mark.full
def test_a_new_checkpoint_begins_again_after_a_reset_and_the_old_one_is_refused(
    world: World, kafka: KafkaFixture, broker: Broker, tmp_path: Path
) -> None:
    """The commands say what happens, and what has to go; what is published stays verified all the way."""
    name = kafka.unique("second")
    graph, module = make(name), tmp_path / "summing.py"
    module.write_text(f"from tests.spark.test_staged import make\n\ngraph = make({name!r})\n")

    def command(verb: str, *arguments: str) -> Result:
        return CliRunner().invoke(app, [verb, f"{module}:graph", *arguments, "--bootstrap", kafka.bootstrap])

    with world.start(graph) as running:
        running.send_many(f"{name}.orders", together("a"))
        running.wait_idle(timeout_s=180)
    report = verify(graph, broker)
    assert (report.verdict, report.complete, report["frames"].steps) == ("ok", True, 5)
    shown = explain(graph, world.options, engine=Spark(world.spark, checkpoint="/cp"))["frames"]
    assert (shown.mode, shown.slots, shown.state) == ("staged", WIDTH, True)

    said = command("reset", "frames")
    assert said.exit_code == 1
    assert "outputs of the messages behind REPEAT" in said.stdout
    done = command("reset", "frames", "--yes")
    assert done.exit_code == 0, done.output
    assert f"{WIDTH} tasks moved" in done.stdout
    assert f"delete the checkpoint of its query (<checkpoint>/{name}.frames)" in done.stdout
    refused = command("accept-loss", "frames", "--yes")
    assert refused.exit_code == 2
    assert "written staged" in refused.output
    assert verify(graph, broker).verdict == "ok"
    assert not verify(graph, broker).complete

    with pytest.raises(TaskStopped, match="the processor was reset, and this checkpoint is from before that"):
        world.start(graph)
    with world.start(graph, "another") as running:
        running.wait_idle(timeout_s=180)
        found = values(running, f"{name}.out")
    assert Counter((one.customer, one.orders) for one in found) == Counter({(f"c{c}", 4): 2 for c in range(5)})
    report = verify(graph, broker)
    assert (report.verdict, report.complete, report["frames"].steps) == ("ok", True, 10)
    assert command("verify", "--complete").exit_code == 0

    assert command("reset", "frames", "--to", "latest", "--yes").exit_code == 0
    assert verify(graph, broker).verdict == "ok"


def test_a_query_that_still_runs_is_refused_after_a_reset(world: World, kafka: KafkaFixture, broker: Broker) -> None:
    """While it waits for messages nothing of it shows; nothing of its next batch is written."""
    graph = make(kafka.unique("zombie"))
    with pytest.raises(TaskStopped), world.start(graph) as running:  # noqa: PT012 - leaving it raises too
        running.send_many(f"{graph.name}.orders", together("a"))
        running.wait_idle(timeout_s=180)
        tool = Maintenance(graph, broker, "frames", who="reset in a test")
        tool.carry_out(reset(tool))
        running.send_many(f"{graph.name}.orders", together("b"))
        with pytest.raises(TaskStopped, match="was reset"):
            running.wait_idle(timeout_s=180)
        assert len(values(running, f"{graph.name}.out")) == 5
        running.wait_idle(timeout_s=10)
    after = Maintenance(graph, broker, "frames", who="reset in a test")
    assert reset(after) == []
    wanted = [move.spec.move for move in reset(after, to="latest")]
    assert {move.staged.batch for move in wanted if move and move.staged} == {RESET}


@pytest.mark.full
def test_a_first_batch_that_comes_again_after_a_reset_counts_what_was_published(
    world: World, kafka: KafkaFixture, broker: Broker
) -> None:
    """Spark asks again where it begins: at what the reset said, not where the log begins, nor where the batch ended."""
    graph = make(kafka.unique("again"))
    with world.start(graph) as running:
        running.send_many(f"{graph.name}.orders", together("a"))
        running.wait_idle(timeout_s=180)
    tool = Maintenance(graph, broker, "frames", who="reset in a test")
    tool.carry_out(reset(tool, to="latest"))
    with connect(world.options, graph) as client:
        client.send_many(f"{graph.name}.orders", together("b", 5))
    with world.start(graph, "second") as running:
        running.wait_idle(timeout_s=180)
    commits = world.checkpoint / "second" / f"{graph.name}.frames" / "commits"
    for name in ("0", ".0.crc"):
        (commits / name).unlink()
    with world.start(graph, "second") as running:
        running.wait_idle(timeout_s=180)
        running.send_many(f"{graph.name}.orders", together("c", 5))
        running.wait_idle(timeout_s=180)
        found = values(running, f"{graph.name}.out")
    again = Counter({4: 5, 1: 5, 2: 5})
    assert Counter(one.orders for one in found) == again, "nothing of before the reset counts in the new sums"
    assert verify(graph, broker).verdict == "ok"

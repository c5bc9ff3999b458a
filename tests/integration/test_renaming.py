"""`rename` on a real broker: as a command, and killed at each of its commits."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from cues_kafka import Graph, Json, Kafka, Processor, Source, State, Store, Topic, start
from cues_kafka.brokers.kafka import KafkaBroker
from cues_kafka.cli.main import app
from cues_kafka.operate.deleting import Deleting
from cues_kafka.operate.move.base import Maintenance
from cues_kafka.operate.move.rebuild import Rebuild
from cues_kafka.operate.move.rename import Renaming
from cues_kafka.operate.move.reset import reset
from cues_kafka.operate.repair.ask import Repairs
from cues_kafka.records.scanning import read_all
from cues_kafka.testing.fixtures import KafkaFixture
from cues_kafka.verify.scan import verify

MODULE = """
from cues_kafka import Graph, Json, Processor, Source, Topic

def double(n: int) -> int:
    return 2 * n

graph = Graph(
    {name!r},
    Source("{name}.in"),
    Processor(double, name="twice", renamed_from="double", inputs="{name}.in", outputs="{name}.out"),
    defaults=Topic(value=Json(), partitions={width}),
)
"""


def double(n: int) -> int:
    """As in the module of the command."""
    return 2 * n


class Doubling:
    """A graph whose processor is renamed."""

    def __init__(self, kafka: KafkaFixture, width: int) -> None:
        self.name, self.width, self.options = kafka.unique("g"), width, Kafka(kafka.bootstrap)

    def graph(self, processor: str) -> Graph:
        """With this name of the processor."""
        declared = Processor(double, name=processor, inputs=f"{self.name}.in", outputs=f"{self.name}.out")
        defaults = Topic(value=Json(), partitions=self.width)
        return Graph(self.name, Source(f"{self.name}.in"), declared, defaults=defaults)

    def deliver(self, processor: str, *numbers: int) -> list[int]:
        """Send, deliver, stop; all outputs so far."""
        with start(self.graph(processor), self.options) as running:
            for n in numbers:
                running.send(f"{self.name}.in", n, key=str(n))
            running.wait_idle(timeout_s=30)
            return sorted(message.value for message in running.messages(f"{self.name}.out"))


def test_renamed_processor_goes_on_where_it_stood(kafka: KafkaFixture, tmp_path: Path) -> None:
    """By the command; docs/operations.md shows it whole."""
    doubling, module = Doubling(kafka, 2), tmp_path / "doubling.py"
    assert doubling.deliver("double", 1, 2, 3) == [2, 4, 6]
    module.write_text(MODULE.format(name=doubling.name, width=2))

    arguments = [f"{module}:graph", "double", "twice", "--yes", "--bootstrap", kafka.bootstrap]
    done = CliRunner().invoke(app, ["rename", *arguments])

    assert (done.exit_code, done.output.splitlines()[-1]) == (0, "double: goes on as twice")
    assert doubling.deliver("twice", 4) == [2, 4, 6, 8]


@pytest.mark.full
def test_rename_that_dies_at_each_commit_ends_once(kafka: KafkaFixture) -> None:
    """Before and after it, of each of the three records of a task; the last run finds the rest."""

    class Gone(BaseException):
        """The tool ends here, and what it has open stays so."""

    doubling, deaths = Doubling(kafka, 1), 0
    assert doubling.deliver("double", 1, 2, 3) == [2, 4, 6]
    for moment in ("before", "after") * 3:

        def hook(when: str, effect: str, moment: str = moment) -> None:
            if (when, effect) == (moment, "Commit"):
                raise Gone

        broker = KafkaBroker(doubling.options)
        tool = Renaming(doubling.graph("twice"), broker, "double", "twice", who="test", hook=hook)
        planned = tool.plan()
        with pytest.raises(Gone):
            tool.carry_out(planned)
        deaths += 1
        broker.close()
    assert deaths == 6
    assert doubling.deliver("twice", 4) == [2, 4, 6, 8]
    broker = KafkaBroker(doubling.options)
    assert Renaming(doubling.graph("twice"), broker, "double", "twice", who="test").plan().done
    assert verify(doubling.graph("twice"), broker).ok
    broker.close()


def counted(word: str, counts: State[int]) -> list[Any]:
    """Counts each word; fails for `bad` until it is fixed."""
    if word == "bad" and not counted.__dict__.get("fixed"):
        raise ValueError(word)
    counts[word] = counts.get(word, 0) + 1
    return [word, counts[word]]


@pytest.mark.full
def test_verbs_behind_a_rename_know_what_was_done_before_it(kafka: KafkaFixture) -> None:
    """A reset, a replay, the deletion of the former name's topics, `verify --state` and `rebuild`, in this order."""
    name = kafka.unique("g")

    def graph(processor: str) -> Graph:
        one = Processor(
            counted, name=processor, inputs=f"{name}.in", outputs=f"{name}.out", state={"counts": Store(Json(int))}
        )
        defaults = Topic(value=Json(), partitions=1)
        return Graph(name, Source(f"{name}.in"), one, errors=f"{name}.errors", defaults=defaults)

    def deliver(processor: str, *words: str) -> None:
        with start(graph(processor), Kafka(kafka.bootstrap)) as running:
            for word in words:
                running.send(f"{name}.in", word, key=word)
                running.wait_idle(timeout_s=30)

    counted.__dict__["fixed"] = False
    deliver("old", "x", "x", "bad")
    broker = KafkaBroker(Kafka(kafka.bootstrap))
    with contextlib.closing(broker):
        broker.sender("test").send([(f"{name}.in", 0, b"x", b'"x"', None, 0)] * 2)
        mover = Maintenance(graph("old"), broker, "old", who="test")
        mover.carry_out(reset(mover, to="latest"))
        counted.__dict__["fixed"] = True
        tool = Renaming(graph("new"), broker, "old", "new", who="test")
        tool.carry_out(tool.plan())
        deleting = Deleting(graph("new"), broker)
        deleting.carry_out(deleting.unused())

        report = verify(graph("new"), broker, state=True)
        assert report.ok, [*report.lines]
        with Rebuild(graph("new"), broker, "new", who="test") as rebuild:
            rebuild.hold()
            [[one]] = rebuild.look()
            assert one.line == "new/0: 2 calls; 1 entry: nothing changes"
        with Repairs(graph("new"), broker) as repairs:
            repairs.ask("replay")
            deliver("new", "x")
            assert repairs.causes() == ()
        values = [json.loads(message.value() or b"") for message in read_all(broker, f"{name}.out", 1)]
        assert sorted(values) == [["bad", 1], ["x", 1], ["x", 2], ["x", 3]]
        assert verify(graph("new"), broker).ok

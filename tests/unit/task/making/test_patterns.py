"""Graphs with patterns at work: topics that are there at the start, that appear later, and that are gone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from cues_kafka import ConfigError, Graph, Memory, Processor, Source, connect, start
from cues_kafka.brokers.open import open_broker
from cues_kafka.cli.main import app
from cues_kafka.plan.inspectors import Terms
from cues_kafka.ports.facts import NewTopic
from cues_kafka.running.running import Running
from cues_kafka.task.making.patterns import on_cluster, resolved
from cues_kafka.task.making.prepare import plan_start
from cues_kafka.testing.tester import Tester


def passed(reading: dict[str, Any]) -> dict[str, Any]:
    """One output for each input."""
    return reading


def graph(name: str = "passed", **given: Any) -> Graph:
    """A template whose workers look often."""
    source = Source("readings", pattern="sensors[.].+", look_seconds=0.05, **given)
    return Graph("g", source, Source("plain"), Processor(passed, name=name, inputs="readings", outputs="out"))


def cluster(*topics: str) -> Memory:
    """With these topics."""
    memory = Memory()
    open_broker(memory).create([NewTopic(topic, 2) for topic in topics])
    return memory


def await_names(running: Running, names: set[str]) -> None:
    """Until these processors run."""
    running._await(lambda: set(running.names) == names, 20.0, str(names))


def values(running: Running) -> list[Any]:
    """All outputs, in order."""
    running.wait_idle(timeout_s=20.0)
    return sorted(one.value["n"] for one in running.messages("out"))


def test_a_topic_that_appears_is_read_from_its_beginning_without_a_restart() -> None:
    """By the process that runs, beside its other tasks; also where no topic matches at the start."""
    memory = cluster()
    broker = open_broker(memory)
    with start(graph(), memory) as running:
        assert running.names == ()
        broker.create([NewTopic("sensors.rome", 2)])
        with connect(memory) as client:
            client.send("sensors.rome", {"n": 1})
        await_names(running, {"passed_sensors_rome"})
        broker.create([NewTopic("sensors.oslo", 1)])
        await_names(running, {"passed_sensors_rome", "passed_sensors_oslo"})
        running.send("sensors.oslo", {"n": 2})
        assert values(running) == [1, 2]
        assert "passed_sensors_oslo" in {one.name for one in running.planned.processors}


def test_a_restart_goes_on_at_the_place_of_each_topic() -> None:
    """What was delivered is not delivered again; a topic that appeared meanwhile is read from its beginning."""
    memory = cluster("sensors.rome")
    with start(graph(), memory) as running:
        running.send("sensors.rome", {"n": 1})
        assert values(running) == [1]
    open_broker(memory).create([NewTopic("sensors.oslo", 1)])
    with connect(memory, graph()) as client:
        client.send("sensors.oslo", {"n": 2})
        client.send("sensors.rome", {"n": 3})
    with start(graph(), memory) as running:
        assert values(running) == [1, 2, 3]


def test_a_process_that_runs_other_processors_takes_no_new_topic() -> None:
    """And a name of the template stands for those of its topics."""
    memory = cluster("sensors.rome")
    template = Graph("g", *graph().parts, Processor(passed, name="other", inputs="plain", outputs="copied"))
    broker = open_broker(memory)
    with start(template, memory, only=["other"]) as one, start(template, memory, only=["passed"]) as two:
        broker.create([NewTopic("sensors.oslo", 1)])
        await_names(two, {"passed_sensors_rome", "passed_sensors_oslo"})
        assert one.names == ("other",)


def test_a_new_topic_that_must_not_be_read_leaves_the_others_at_work() -> None:
    """Its reason is logged, and it is looked at again."""
    memory = cluster("sensors.rome")
    broker = open_broker(memory)
    with start(graph(), memory) as running:
        broker.create([NewTopic("sensors.oslo", 1), NewTopic("g.passed_sensors_oslo.backing", 3)])
        running.send("sensors.rome", {"n": 1})
        assert values(running) == [1]
        broker.delete(["g.passed_sensors_oslo.backing"])
        await_names(running, {"passed_sensors_rome", "passed_sensors_oslo"})


def test_a_template_under_another_name_is_refused_as_a_renamed_processor() -> None:
    """Its copies would begin again; one for a new topic is new without being named."""
    memory = cluster("sensors.rome")
    broker = open_broker(memory)
    with start(graph(), memory) as running:
        running.send("sensors.rome", {"n": 1})
        assert values(running) == [1]
    broker.create([NewTopic("sensors.oslo", 1)])

    def refused(template: Graph) -> tuple[str, ...]:
        found, _, new = resolved(template, broker, None, ())
        return plan_start(found, broker, Terms([*found.all_processors], new)).refusals

    assert not [text for text in refused(graph()) if "has no place" in text]
    [renamed] = [text for text in refused(graph("renamed")) if "has no place" in text]
    assert renamed.startswith("'renamed_sensors_rome' has no place on this cluster yet")


def test_a_topic_that_is_gone_leaves_a_place_that_is_named() -> None:
    """The graph goes on without it, and says what is left."""
    memory = cluster("sensors.rome", "sensors.oslo")
    broker = open_broker(memory)
    with start(graph(), memory):
        pass
    broker.delete(["sensors.oslo"])
    found, _, new = resolved(graph(), broker, None, ())
    planned = plan_start(found, broker, Terms([*found.all_processors], new))

    assert [*found.processors] == ["passed_sensors_rome"]
    assert any("'g.passed_sensors_oslo.backing'" in text for text in planned.warnings)


def test_a_resolved_graph_is_tested_as_any_other() -> None:
    """With topics that the test names."""
    tester = Tester(graph().resolve(["sensors.rome"]))
    tester.send("sensors.rome", {"n": 1})

    assert tester.run().values("out") == [{"n": 1}]
    assert on_cluster(graph().resolve(["sensors.rome"]), tester.broker).processors


def test_plan_without_a_cluster_says_that_it_needs_one(tmp_path: Path) -> None:
    """Code 2: a setting is wrong."""
    path = tmp_path / "patterned.py"
    path.write_text(
        "from cues_kafka import Graph, Processor, Source\n"
        "def f(x): return x\n"
        "g = Graph('g', Source('r', pattern='s[.].+'), Processor(f, inputs='r'))\n"
    )
    found = CliRunner().invoke(app, ["plan", f"{path}:g", "--offline"])

    assert found.exit_code == 2
    assert "only the cluster knows the topics that match" in " ".join(found.output.split())
    with pytest.raises(ConfigError):
        plan_start(graph(), open_broker(Memory()), Terms())

"""`reset`, `accept-loss` and `plan --apply` as programs, on a real broker."""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cues_kafka import Graph, Json, Kafka, Processor, RecoveryError, Source, TaskStopped, Topic, start
from cues_kafka.brokers.kafka import KafkaBroker
from cues_kafka.cli.loading import load_graph
from cues_kafka.cli.main import app
from cues_kafka.operate.deleting import Deleting
from cues_kafka.operate.look.foreseen import foresee
from cues_kafka.operate.move.accept_loss import accept_loss
from cues_kafka.operate.move.base import Maintenance
from cues_kafka.plan.plan import plan
from cues_kafka.plan.topics import topics_to_ask
from cues_kafka.ports.log import TopicPartition
from cues_kafka.testing.fixtures import KafkaFixture
from tests.fault.support import until

MODULE = """
from cues_kafka import Graph, Json, Processor, Source, Topic

def double(n: int) -> int:
    return 2 * n

graph = Graph(
    {name!r},
    Source({numbers!r}),
    Processor(double, inputs={numbers!r}, outputs={doubles!r}),
    defaults=Topic(value=Json(), partitions=2),
)
"""


def double(n: int) -> int:
    """As in the module of the commands."""
    return 2 * n


class Setting:
    """One graph, as a value and as a module."""

    def __init__(self, kafka: KafkaFixture, directory: Path) -> None:
        name, self.numbers, self.doubles = (kafka.unique(word) for word in ("g", "numbers", "doubles"))
        self.options = Kafka(kafka.bootstrap)
        self.graph = Graph(
            name,
            Source(self.numbers),
            Processor(double, inputs=self.numbers, outputs=self.doubles),
            defaults=Topic(value=Json(), partitions=2),
        )
        self.module = directory / "doubling.py"
        self.module.write_text(MODULE.format(name=name, numbers=self.numbers, doubles=self.doubles))

    def command(self, verb: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run the program."""
        program = [sys.executable, "-m", "cues_kafka.cli.main", verb, f"{self.module}:graph", *arguments]
        return subprocess.run(
            [*program, "--bootstrap", self.options.bootstrap], capture_output=True, text=True, check=False, timeout=100
        )

    def deliver(self, *numbers: int) -> list[int]:
        """Send, deliver, stop; all outputs so far."""
        with start(self.graph, self.options) as running:
            for n in numbers:
                running.send(self.numbers, n, key="k")
            running.wait_idle(timeout_s=30)
            return sorted(message.value for message in running.messages(self.doubles))


def test_reset_repeats_and_accept_loss_goes_on(kafka: KafkaFixture, tmp_path: Path) -> None:
    """Said first, done with --yes; the tasks recover from the tool's records, and its offsets agree with them."""
    setting = Setting(kafka, tmp_path)
    assert setting.deliver(1, 2, 3) == [2, 4, 6]

    said = setting.command("reset", "double")
    assert said.returncode == 1, said.stdout + said.stderr
    assert "offsets [0, 3) hold is delivered AGAIN" in said.stdout
    assert setting.deliver() == [2, 4, 6]

    done = setting.command("reset", "double", "--yes")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 task moved" in done.stdout
    assert setting.deliver() == [2, 2, 4, 4, 6, 6]

    broker = KafkaBroker(setting.options)
    with start(setting.graph, setting.options, only=[]) as client:
        place = client.send(setting.numbers, 10, key="k")
        for n in (11, 12):
            client.send(setting.numbers, n, key="k")
    broker.trim({TopicPartition(setting.numbers, place.partition): place.offset + 2})
    planned = plan(setting.graph, broker.facts(topics_to_ask(setting.graph)))
    [stop] = foresee(setting.graph, broker, planned, ["double"]).stops
    with pytest.raises(TaskStopped, match=r"`cues-kafka accept-loss MODULE:GRAPH double`") as stopped:
        setting.deliver()
    assert stop.tasks == (f"double/{place.partition}",)
    assert stop.why in str(stopped.value)
    lost = setting.command("accept-loss", "double", "--yes")
    assert lost.returncode == 0, lost.stdout + lost.stderr
    assert (
        f"offsets [{place.offset}, {place.offset + 2}) hold is LOST, it will never be delivered: at most 2 messages"
        in lost.stdout
    )
    assert setting.deliver() == [2, 2, 4, 4, 6, 6, 24]


def test_nothing_is_moved_under_a_live_worker(kafka: KafkaFixture, tmp_path: Path) -> None:
    """Its group is named, and it is not disturbed."""
    setting = Setting(kafka, tmp_path)
    with start(setting.graph, setting.options) as running:
        refused = setting.command("reset", "double", "--yes")
        running.send(setting.numbers, 4, key="k")
        running.wait_idle(timeout_s=30)

    assert refused.returncode == 1
    assert "has members" in refused.stderr


def test_an_applied_plan_lets_added_partitions_run(kafka: KafkaFixture, tmp_path: Path) -> None:
    """The backing topic follows its input; a task on the new partition has its record."""
    setting = Setting(kafka, tmp_path)
    broker = KafkaBroker(setting.options)
    applied = setting.command("plan", "--apply")
    assert applied.returncode == 0, applied.stdout + applied.stderr
    assert "5 topics created" in applied.stderr
    broker.add_partitions(setting.numbers, 4)
    broker.add_partitions(setting.numbers, 4)
    shown = setting.command("plan")
    assert "double/2, double/3 cannot start until" in shown.stdout
    applied = setting.command("plan", "--apply")
    assert "partitions added to 1 topic" in applied.stderr, applied.stdout + applied.stderr
    assert "cannot start until" not in applied.stdout, "it warns of what it resolves"

    with start(setting.graph, setting.options) as running:
        assert sorted(task.task for task in running.status().tasks) == [f"double/{p}" for p in range(4)]
        with pytest.raises(RecoveryError, match="has members"):
            Deleting(setting.graph, broker).carry_out(Deleting(setting.graph, broker).whole(data=True))

    deleted = setting.command("delete", "--data", "--confirm", setting.graph.name)
    assert deleted.returncode == 0, deleted.stdout + deleted.stderr
    assert f"group {setting.graph.name}.double is deleted" in deleted.stdout
    assert Deleting(setting.graph, broker).whole(data=True).empty
    assert f"{setting.graph.name}.double" not in broker.examine((), ()).listed


EAGER = {
    "cleanup.policy": "compact",
    "segment.ms": "300",
    "min.cleanable.dirty.ratio": "0.01",
    "max.compaction.lag.ms": "500",
}


def test_tasks_go_on_after_kafka_compacted_announced_messages_away(kafka: KafkaFixture) -> None:
    """A task with one input goes on with what is left; alts stop, until accept-loss has shortened their batch."""
    name, states, others, out, either_out = (kafka.unique(word) for word in ("g", "states", "others", "out", "either"))
    options, broken, calls = Kafka(kafka.bootstrap), [True], list[str]()

    def one(value: str) -> str:
        return either(value)

    def either(state: str | None = None, other: str | None = None) -> str:
        value = state or other or ""
        calls.append(value)
        if broken[0]:
            raise RuntimeError("not yet")
        return value

    graph = Graph(
        name,
        Source(states),
        Source(others),
        Processor(one, inputs=states, outputs=out),
        Processor(either, alts={"state": states, "other": others}, outputs=either_out),
        topics={states: Topic(value=Json(), config=EAGER), others: Topic(value=Json())},
        defaults=Topic(value=Json(), partitions=1),
    )
    with start(graph, options, only=[]) as client:
        for value, key in (("old k", "k"), ("l", "l")):
            client.send(states, value, key=key)
        # One by one: the first that stops may end a start before the other has begun.
        for processor in ("one", "either"):
            with suppress(RuntimeError, TaskStopped), start(graph, options, only=[processor]) as running:
                until(lambda: any(task.stopped for task in running.status().tasks), "stops")
        broken[0] = False

        def compacted() -> bool:
            """The segment that is written to is never cleaned, so more is sent."""
            client.send(states, "new k", key="k")
            return "old k" not in [message.value for message in client.messages(states)]

        until(compacted, "the old message is compacted away")
        calls.clear()
        with suppress(TaskStopped), start(graph, options) as running:
            until(lambda: [m.value for m in running.messages(out)][-1:] == ["new k"], "the task with one input goes on")
            until(lambda: any(task.task == "either/0" and task.stopped for task in running.status().tasks), "alts stop")
            assert next(m.value for m in running.messages(out)) == "l"
        tool = Maintenance(graph, KafkaBroker(options), "either", who="test")
        [move] = accept_loss(tool)
        assert f"{states}/0: 1 message of a batch that was announced" in move.notes[0]
        tool.carry_out([move])
        with start(graph, options) as running:
            running.wait_idle(timeout_s=30)
            assert next(m.value for m in running.messages(either_out)) == "l"
    assert "old k" not in calls


WIDER = """
from cues_kafka import Graph, Json, Processor, Source, Topic

def double(**numbers: int) -> int:
    return 2 * next(n for n in numbers.values() if n is not None)

graph = Graph(
    {name!r},
    Source({numbers!r}),
    Source({more!r}),
    Processor(double, alts={{"input": {numbers!r}, "more": {more!r}}}, outputs={doubles!r}),
    defaults=Topic(value=Json(), partitions=2),
)
"""


def test_added_input_is_delivered_beside_the_one_that_stays(kafka: KafkaFixture, tmp_path: Path) -> None:
    """Each message once; the group's offset of the new input agrees with the tool's record."""
    setting, more = Setting(kafka, tmp_path), kafka.unique("more")
    assert setting.deliver(1, 2) == [2, 4]
    setting.module.write_text(
        WIDER.format(name=setting.graph.name, numbers=setting.numbers, doubles=setting.doubles, more=more)
    )
    wider = load_graph(f"{setting.module}:graph")
    words = ["migrate", f"{setting.module}:graph", "double", "--add", "more=earliest", "--bootstrap", kafka.bootstrap]

    with start(wider, setting.options, only=[]) as client:
        client.send(more, 10, key="k")
        client.send(setting.numbers, 3, key="k")
        said = CliRunner().invoke(app, words)
        assert said.exit_code == 1, said.output
        assert "input 'more' is added and begins at 0: its log delivers at most 1 message," in said.output
        done = CliRunner().invoke(app, [*words, "--yes"])
        assert done.exit_code == 0, done.output
    with start(wider, setting.options) as running:
        running.wait_idle(timeout_s=30)
        assert sorted(message.value for message in running.messages(setting.doubles)) == [2, 4, 6, 20]
    assert CliRunner().invoke(app, words).output == "double: nothing to do, all tasks are there already\n"

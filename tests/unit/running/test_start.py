"""`start`: waiting until the graph is idle, starts that fail, arguments that are no graph."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import pytest

from cues_kafka import ConfigError, Graph, Memory, Processor, Source, TaskStopped, start
from cues_kafka.brokers.memory import MemoryBroker
from cues_kafka.brokers.open import open_broker
from cues_kafka.operate.applying import apply_plan
from cues_kafka.plan.inspectors import Terms
from cues_kafka.plan.plan import plan
from cues_kafka.plan.topics import topics_to_ask
from cues_kafka.ports.facts import ClusterFacts, NewTopic
from cues_kafka.task.making.prepare import prepare
from cues_kafka.task.workers import Job


class Together:
    """An engine whose workers are made only if all of them are made at the same time."""

    runtime = "elsewhere"

    def __init__(self, processors: int) -> None:
        self.made = threading.Barrier(processors)

    def refuses(self, graph: Graph, processor: Any) -> str:
        """Nothing."""
        del graph, processor
        return ""

    def check(self, graph: Graph, names: Sequence[str]) -> None:
        """All is well."""

    def worker(self, job: Job) -> Any:
        """Wait for the others, and then make none."""
        self.made.wait(10)
        raise RuntimeError(f"{job.processor} beside the others")


def test_an_engine_makes_its_workers_side_by_side() -> None:
    """Each of Spark's asks processes for a plan, and the first query waited for all of them."""
    names = ("one", "two", "three")
    processors = [Processor(abs, name=name, inputs="in", outputs=f"out-{name}") for name in names]

    with pytest.raises(RuntimeError, match="one beside the others"):
        start(Graph("g", Source("in"), *processors), Memory(), engine=Together(len(names)))


def test_wait_idle_waits_for_user_code_that_runs() -> None:
    """A batch that was being called was neither in the buffer nor on its way."""
    done = []

    def slow(n: int) -> int:
        if n == 2:
            time.sleep(0.7)
        done.append(n)
        return n

    with start(Graph("g", Source("in"), Processor(slow, inputs="in", outputs="out")), Memory()) as running:
        for n in (1, 2):
            running.send("in", n, key="k")
            running.wait_idle(timeout_s=20)
        assert done == [1, 2]


def test_starts_that_fail_count_no_deaths() -> None:
    """A refused task made `start` drop the others like a crash, and their snapshots counted against the messages."""

    def slow(n: int) -> int:
        time.sleep(0.2)
        return n

    def other(n: int) -> int:
        return n

    memory = Memory()
    graph = Graph(
        "g",
        Source("in"),
        Source("in2"),
        Processor(slow, inputs="in", outputs="out"),
        Processor(other, inputs="in2", outputs="out2"),
        errors="failed",
    )
    with start(graph, memory) as running:
        running.send("in2", 1, key="k")
        running.wait_idle(timeout_s=20)
        running.send("in", 1, key="k")
    broker = open_broker(memory)
    broker.delete(["in2"])
    broker.create([NewTopic("in2", 1)])
    for _ in range(4):
        with pytest.raises(TaskStopped, match="recreated"):
            start(graph, memory)
    with start(graph, memory, only=["slow"]) as running:
        running.wait_idle(timeout_s=20)
        assert [m.value for m in running.messages("out")] == [1]
        assert running.messages("failed") == []


def test_start_says_what_it_wants_instead_of_a_graph() -> None:
    """The name of one, for example."""
    with pytest.raises(ConfigError, match=r"first argument is the graph, not str. Write start\(Graph"):
        start("life", Memory())  # type: ignore[arg-type]


def test_topics_that_a_broker_does_not_know_yet_do_not_end_a_start() -> None:
    """Another worker has created them just now: the next broker that is asked may lag. KeyError ended the process."""

    class Lagging(MemoryBroker):
        """Its second answer about topics, and its first one about the partitions of one, come from such a broker."""

        asked, counted = 0, 0

        def facts(self, topics: Collection[str]) -> ClusterFacts:
            self.asked += 1
            return replace(super().facts(topics), topics={}) if self.asked == 2 else super().facts(topics)

        def partitions(self, topics: Collection[str] | None = None) -> dict[str, int]:
            self.counted += topics is not None
            return {} if topics is not None and self.counted == 1 else super().partitions(topics)

    def upper(word: str) -> str:
        return word.upper()

    graph = Graph("g", Source("in"), Processor(upper, inputs="in", outputs="out"))
    memory, lagging = Memory(), Lagging()
    memory.held.append(lagging)
    prepare(graph, lagging, only=["upper"], terms=Terms(["upper"]))
    lagging.asked = lagging.counted = 0

    with start(graph, memory, only=["upper"]) as running:
        assert lagging.asked > 2
        assert lagging.counted > 1
        running.send("in", "a", key="k")
        running.wait_idle(timeout_s=20)
        assert [message.value for message in running.messages("out")] == ["A"]


def test_a_method_of_a_built_in_class_is_a_function_like_others() -> None:
    """`str.upper` has no `__module__`: the declaration that error messages carry could not be written, at the start."""
    graph = Graph("g", Source("in"), Processor(str.upper, name="upper", inputs="in", outputs="out", errors="failed"))
    with start(graph, Memory()) as running:
        running.send("in", "a", key="k")
        running.send("in", 7, key="k")
        running.wait_idle(timeout_s=20)
        assert [message.value for message in running.messages("out")] == ["A"]
        [failed] = running.messages("failed")
        assert failed.value.declaration["fn"] == "builtins:str.upper"


class OfTheCluster(MemoryBroker):
    """A cluster that gives each new topic settings of its own, whatever is asked for."""

    def create(self, topics: Sequence[NewTopic]) -> None:
        own = {"unclean.leader.election.enable": "true"}
        super().create([replace(topic, config={**topic.config, **own}) for topic in topics])


def test_nothing_starts_on_new_topics_that_can_lose_data() -> None:
    """The cluster kept a setting to itself, so nothing has checked it before."""
    graph = Graph("g", Source("in"), Processor(abs, name="check", inputs="in", outputs="out"))
    broker = OfTheCluster(brokers=3)

    with pytest.raises(ConfigError, match=r"(?s)nothing was started.*Topic 'in' allows unclean leader election"):
        prepare(graph, broker)
    with pytest.raises(ConfigError, match="allows unclean leader election"):  # and the plan finds them from now on
        prepare(graph, broker)


def test_plan_apply_says_that_a_new_topic_can_lose_data() -> None:
    """It is the deployer who can change that."""
    graph = Graph("g", Source("in"), Processor(abs, name="check", inputs="in", outputs="out"))
    broker = OfTheCluster(brokers=3)

    with pytest.raises(ConfigError, match=r"unclean leader election.*\n.*g\.check\.backing"):
        apply_plan(plan(graph, broker.facts(topics_to_ask(graph))), broker)


def test_a_cluster_for_development_may_have_its_settings() -> None:
    """One or two brokers cannot meet the conditions, and the plan warns of them."""
    graph = Graph("g", Source("in"), Processor(abs, name="check", inputs="in", outputs="out"))

    planned, _ = prepare(graph, OfTheCluster(brokers=1))

    assert "Use it for development" in planned.warnings[0]

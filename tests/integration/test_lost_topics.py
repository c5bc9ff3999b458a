"""Topics that others delete, shrink or trim on a real broker beside a worker that has nothing to do."""

from __future__ import annotations

from contextlib import closing

import pytest

from cues_kafka import Errors, Graph, Json, Kafka, Message, Processor, Source, State, Store, Topic, start, status
from cues_kafka.brokers.open import open_broker
from cues_kafka.ports.facts import NewTopic
from cues_kafka.ports.log import TopicPartition
from cues_kafka.testing.fixtures import KafkaFixture
from cues_kafka.workers import questions
from tests.integration.test_supervisor import wait_for


def count(order: int, seen: State[int]) -> int:
    """Count orders."""
    if order < 0:
        raise ValueError("negative")
    seen["all"] = seen.get("all", 0) + 1
    return order


@pytest.mark.timeout(300)
def test_topics_lost_beside_an_idle_worker_are_told_until_they_are_back(
    kafka: KafkaFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker goes on by itself; a partition that is gone does not end its process."""
    monkeypatch.setattr(questions, "CHECK_TOPICS_S", 0.5)
    name = kafka.unique("lost")
    function = Processor(count, inputs=f"{name}.in", outputs=f"{name}.out", name="f", state={"seen": Store(Json(int))})
    defaults = Topic(value=Json(), partitions=2)
    graph = Graph(name, Source(f"{name}.in"), function, defaults=defaults, errors=Errors(f"{name}.errors"))
    options = Kafka(kafka.bootstrap, status_every_s=1.0)

    def lost() -> str:
        return "".join(one.lost for one in running.status().tasks)

    with closing(open_broker(options)) as broker, start(graph, options) as running:
        running.send(f"{name}.in", Message(1, partition=1))
        running.wait_idle()
        output, replay = f"{name}.out", f"{name}.f.replay"
        facts = broker.facts([output, replay]).topics
        broker.delete([output])
        wait_for(lambda: f"output '{output}' was deleted" in lost(), timeout_s=60)
        wait_for(lambda: any(one.kind == "lost" for one in status(options, graph).unwell), timeout_s=60)
        broker.create([NewTopic(output, 2, 1, dict(facts[output].config))])
        broker.delete([replay])
        broker.create([NewTopic(replay, 1, 1, dict(facts[replay].config))])
        wait_for(lambda: "has 1 partition, and this task needs partition 1" in lost(), timeout_s=60)
        broker.add_partitions(replay, 2)
        wait_for(lambda: not lost(), timeout_s=60)
        running.send(f"{name}.in", Message(2, partition=1))
        running.wait_idle()
        assert [one.value for one in running.messages(output)] == [2]
        changelog = f"{name}.f.seen.changelog"
        broker.configure(changelog, {"cleanup.policy": "compact,delete"})  # else the broker refuses to trim it
        broker.trim({TopicPartition(changelog, 1): 1})
        wait_for(lambda: "changelog/1 was trimmed" in lost(), timeout_s=60)
        assert not running.status().stopped

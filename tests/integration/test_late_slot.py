"""A slot of Spark that begins beside a native worker, on a real broker (J8)."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace

from cues_kafka import Graph, Json, Kafka, Processor, Source, Topic, connect, start
from cues_kafka.brokers.open import open_broker
from cues_kafka.on_spark.direct.slot import Slot
from cues_kafka.ports.log import TopicPartition
from cues_kafka.records.reading import records_of
from cues_kafka.records.scanning import read_all
from cues_kafka.running.running import Running
from cues_kafka.task.clock import SystemClock
from cues_kafka.task.making.build import caller_of
from cues_kafka.task.making.prepare import prepare
from cues_kafka.task.making.specs import Identity, spec_of
from cues_kafka.testing.fixtures import KafkaFixture
from cues_kafka.verify.scan import verify

COUNT = 20


def test_a_slot_whose_init_comes_behind_a_worker_gives_up_and_the_worker_goes_on(kafka: KafkaFixture) -> None:
    """Its group had no members when it began; it writes nothing, and holds nothing up."""
    name = kafka.unique("late")
    processor = Processor(lambda n: n, name="pipe", inputs=f"{name}.in", outputs=f"{name}.out")
    graph = Graph(name, Source(f"{name}.in"), processor, defaults=Topic(value=Json(), partitions=1))
    broker = open_broker(cluster := Kafka(kafka.bootstrap))
    planned, facts = prepare(graph, broker)
    backing = f"{name}.pipe.backing"
    spec = spec_of(graph, planned, processor, 1, Identity("spark", "query", "late"))(0)
    with ExitStack() as stack, connect(cluster, graph) as client:
        client.send_many(f"{name}.in", list(range(COUNT)))

        workers: list[Running] = []

        def overtaken(when: str, what: str) -> None:
            if (when, what) == ("before", "Init"):
                workers.append(stack.enter_context(start(graph, cluster)))
                workers[0].wait_idle()

        caller = caller_of(graph, processor, facts, {}, 1_000_000)
        slot = Slot(replace(spec, slot=True), caller, broker=broker, clock=SystemClock(), hook=overtaken)
        place = TopicPartition(f"{name}.in", 0)
        outcome = slot.deliver({place.topic: broker.watermarks([place])[place].stable}, first=False)
        client.send_many(f"{name}.in", list(range(COUNT, 2 * COUNT)))
        workers[0].wait_idle()

        assert outcome.kind == "claimed"
        assert [one.value for one in client.messages(f"{name}.out")] == list(range(2 * COUNT))
        assert {record.writer.runtime for record in records_of(list(read_all(broker, backing, 1)))} == {"native"}
    assert verify(graph, broker).ok

"""Joins and alts on Spark, of every shape, on a real broker: the same messages come out as of native workers."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from cues_kafka import Graph, Json, Kafka, Out, Processor, Source, Topic, start
from cues_kafka.brokers.open import open_broker
from cues_kafka.ports.log import Outgoing
from cues_kafka.spark import Spark
from cues_kafka.testing.fixtures import KafkaFixture
from cues_kafka.verify.scan import verify
from tests.fault.support import Setup, committed_all, until
from tests.spark.drivers import STARTED_S, Drivers, await_open, readable, stable

WIDTH = 2
INPUTS = ("left", "right")
OUTPUTS = ("some", "even")

Place = tuple[str, int, int]
"""Input, partition, number within it; the value of each message."""


def paired(left: Any, right: Any) -> list[Any]:
    """A join."""
    return [left, right]


def parted(left: Any, right: Any) -> Any:
    """A join-fork: one or two outputs, or none."""
    if left[2] % 3 == 0:
        yield Out("some", [left, right])
    if left[2] % 2 == 0:
        yield Out("even", [left, right])


def picked(left: Any = None, right: Any = None) -> Any:
    """Alts that act outside of Kafka, as far as the library knows."""
    return left or right


def spread(left: Any = None, right: Any = None) -> Any:
    """An alts-fork, which fails for one message."""
    value = left or right
    if value == ["right", 0, 3]:
        raise ValueError("the fourth on the right")
    yield Out("some", value)


def seen(left: Any = None, right: Any = None) -> None:
    """A join-sink."""


def graph_of(name: str, inputs: str, *kinds: str) -> Graph:
    """
    Processors with two inputs, of these kinds.

    Args:
        name: of the graph, and prefix of its outputs.
        inputs: prefix of the inputs.
        kinds: names of the processors.
    """
    both = {side: f"{inputs}.{side}" for side in INPUTS}

    def two(processor: str) -> dict[str, str]:
        return {output: f"{name}.{processor}.{output}" for output in OUTPUTS}

    everyone = [
        Processor(paired, name="join", inputs=both, outputs=f"{name}.join"),
        Processor(parted, name="join-fork", inputs=both, outputs=two("join-fork")),
        Processor(seen, name="join-sink", inputs=both),
        Processor(picked, name="alts", alts=both, outputs=f"{name}.alts", effects=True),
        Processor(spread, name="alts-fork", alts=both, outputs=two("alts-fork")),
    ]
    return Graph(
        name,
        *map(Source, both.values()),
        *(one for one in everyone if one.name in kinds),
        errors=f"{name}.errors",
        defaults=Topic(value=Json(), partitions=WIDTH),
    )


def killed(name: str) -> Graph:
    """The join-fork alone, under the names by which drivers are watched. Kills from outside may meet one pair often."""
    return Graph(
        name,
        *(Source(f"{name}.{side}") for side in INPUTS),
        Processor(
            parted,
            name="work",
            inputs={side: f"{name}.{side}" for side in INPUTS},
            outputs={output: f"{name}.{output}" for output in OUTPUTS},
            quarantine_after=None,
        ),
        errors=f"{name}.errors",
        defaults=Topic(value=Json(), partitions=WIDTH),
    )


class Inputs:
    """Sends numbered messages to one partition of an input."""

    def __init__(self, options: Kafka, prefix: str) -> None:
        self._options = options
        self._prefix = prefix
        self._counts = defaultdict[tuple[str, int], int](int)

    def send(self, side: str, partition: int, count: int) -> None:
        """The next ones."""
        begin = self._counts[side, partition]
        self._counts[side, partition] += count
        values = [json.dumps([side, partition, n]).encode() for n in range(begin, begin + count)]
        broker = open_broker(self._options)
        sender = broker.sender("test")
        sender.send([Outgoing(f"{self._prefix}.{side}", partition, None, value) for value in values])
        sender.close()
        broker.close()


def outputs(running: Any, name: str) -> dict[str, list[Any]]:
    """Values of all outputs, in the order of their partitions' logs; those of alts by input, which no order binds."""
    topics = ["join-fork.some", "join-fork.even", "alts", "alts-fork.some"]
    found = {topic: [message.value for message in running.messages(f"{name}.{topic}")] for topic in topics}
    return {topic: sorted(values, key=lambda v: v[0]) if "alts" in topic else values for topic, values in found.items()}


def deliveries(running: Any) -> dict[str, int]:
    """Of each processor, since its beginning."""
    totals = defaultdict[str, int](int)
    for task in running.status().tasks:
        totals[task.task.partition("/")[0]] += task.totals.deliveries
    return dict(totals)


@pytest.mark.timeout(120)
def test_a_join_on_spark_delivers_a_pair_when_its_second_message_comes(
    spark: Any, kafka: KafkaFixture, tmp_path: Path
) -> None:
    """The micro-batches before have taken the offsets of the first one already."""
    options, name = Kafka(kafka.bootstrap), kafka.unique("pairs")
    graph, inputs = graph_of(name, name, "join"), Inputs(options, name)
    with start(graph, options, engine=Spark(spark, checkpoint=str(tmp_path))) as running:
        worker: Any = running._workers[0]
        until(lambda: worker.query is not None, "the query runs", 100)
        for side, count, pairs in (("left", 5, 0), ("right", 3, 3), ("right", 3, 5)):
            inputs.send(side, 0, count)
            worker.query.processAllAvailable()
            running.wait_idle(timeout_s=100)
            found = [message.value for message in running.messages(f"{name}.join")]
            assert found == [[["left", 0, n], ["right", 0, n]] for n in range(pairs)]
        [positions, _] = [task.positions for task in running.status().tasks]
        assert [(p.topic, p.offset) for p in positions] == [(f"{name}.left", 5), (f"{name}.right", 5)]


@pytest.mark.full
@pytest.mark.timeout(300)
def test_every_kind_with_two_inputs_delivers_on_spark_what_native_workers_deliver(
    spark: Any, kafka: KafkaFixture, tmp_path: Path
) -> None:
    """The same input, uneven, in several micro-batches."""
    options, name = Kafka(kafka.bootstrap), kafka.unique("kinds")
    kinds = ("join-fork", "join-sink", "alts", "alts-fork")
    native, on_spark = (graph_of(f"{name}-{runtime}", name, *kinds) for runtime in ("n", "s"))
    inputs = Inputs(options, name)
    found = []
    with (
        start(native, options) as beside,
        start(on_spark, options, engine=Spark(spark, checkpoint=str(tmp_path))) as running,
    ):
        for left, right in ((20, 5), (0, 5), (3, 20)):
            inputs.send("left", 0, left)
            inputs.send("right", 0, right)
            inputs.send("right", 1, right)
            inputs.send("left", 1, right)
            running.wait_idle(timeout_s=200)
        beside.wait_idle(timeout_s=60)
        found = [(outputs(one, f"{name}-{key}"), deliveries(one)) for one, key in ((beside, "n"), (running, "s"))]

    assert found[0] == found[1]
    pairs, messages = 23 + 30, 23 + 30 + 2 * 30
    assert found[1][1] == {"join-fork": pairs, "join-sink": pairs, "alts": messages, "alts-fork": messages}


@pytest.mark.full
@pytest.mark.fault
@pytest.mark.timeout(400)
def test_a_driver_that_dies_in_a_transaction_of_pairs_repeats_and_hides_nothing(
    kafka: KafkaFixture, tmp_path: Path
) -> None:
    """SIGKILL of driver, JVM and workers while a slot is about to commit; partners come after the death."""
    options, setup = Kafka(kafka.bootstrap), Setup(kafka.bootstrap, kafka.unique("g"))
    graph, inputs = killed(setup.name), Inputs(options, setup.name)
    sinks = [f"{setup.name}.{output}" for output in OUTPUTS]
    setup.start(graph).stop()
    for partition, (left, right) in enumerate(((30, 20), (5, 40))):
        inputs.send("left", partition, left)
        inputs.send("right", partition, right)
    with Drivers(setup, tmp_path, graph="tests.spark.test_pairs:killed", policy={"max_messages": 8}) as drivers:
        dying = drivers.add(point={"where": "before Commit", "nth": 2})
        dying.reached()
        await_open(setup, OUTPUTS)
        marks = stable(setup, OUTPUTS)
        dying.kill_all()
        inputs.send("right", 0, 7)
        inputs.send("left", 1, 35)

        driver = drivers.add().started()
        assert readable(stable(setup, OUTPUTS), marks), "readers wait for a dead transaction"
        until(lambda: setup.world(sinks=sinks).totals["deliveries"] == 27 + 40, "all pairs are delivered", STARTED_S)
        driver.stop()
    found = committed_all(setup.bootstrap, sinks)
    for sink, every in zip(sinks, (3, 2), strict=True):
        values = [json.loads(message.value() or b"") for message in found[sink]]
        assert values == [
            [["left", p, n], ["right", p, n]] for p, count in ((0, 27), (1, 40)) for n in range(0, count, every)
        ]
    broker = open_broker(options)
    report = verify(graph, broker)
    broker.close()
    assert report.ok, str(report)

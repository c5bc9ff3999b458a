"""Mutated Avro messages on a real broker: each is one output or one error message with its bytes, and nothing stops."""

from __future__ import annotations

import json
import random
from collections import Counter
from io import BytesIO
from itertools import islice
from typing import Any

import fastavro
import pytest
from fastavro.utils import generate_one

from cues_kafka import Avro, Graph, Json, Kafka, Processor, Source, Topic, start
from cues_kafka.brokers.open import open_broker
from cues_kafka.codecs.avro_schema import parse
from cues_kafka.operate.applying import apply_plan
from cues_kafka.plan.inspectors import Terms
from cues_kafka.task.making.prepare import plan_start
from cues_kafka.testing.fixtures import KafkaFixture
from cues_kafka.verify.scan import verify
from tests.fault.support import produce
from tests.unit.codecs.test_avro import in_front, mutated, random_schema

SCHEMAS = 30


def seen(**message: Any) -> int:
    """One message of any topic; that it was called is all."""
    return len(message)


@pytest.mark.parametrize("count", [20, pytest.param(667, marks=pytest.mark.full)])
def test_each_hostile_message_has_one_outcome(kafka: KafkaFixture, count: int) -> None:
    """Of 30 schemas, each with a topic of its own; one task reads all of them."""
    name, options, rng = kafka.unique("hostile"), Kafka(kafka.bootstrap), random.Random(20261123)
    random.seed(11)
    schemas = list(islice(iter(lambda: random_schema(rng), None), SCHEMAS))
    inputs = {f"{name}.in{n}": Topic(value=Avro(schema), partitions=1) for n, schema in enumerate(schemas)}
    graph = Graph(
        name,
        *map(Source, inputs),
        Processor(seen, alts={f"in{n}": topic for n, topic in enumerate(inputs)}, outputs=f"{name}.out"),
        errors=f"{name}.errors",
        topics={**inputs, f"{name}.out": Topic(value=Json(int), partitions=1)},
    )
    broker = open_broker(options)
    apply_plan(plan_start(graph, broker, Terms()), broker)
    sent = Counter[bytes]()
    for topic, schema in zip(inputs, schemas, strict=True):
        parsed, good = parse(json.dumps(schema)), BytesIO()
        fastavro.schemaless_writer(good, parsed, generate_one(parsed))
        messages = [in_front(schema, mutated(rng, good.getvalue())) for _ in range(count)]
        produce(kafka.bootstrap, topic, messages)
        sent.update(messages)
    with start(graph, options) as running:
        running.wait_idle(timeout_s=240)
        outputs = running.messages(f"{name}.out", limit=10**6)
        errors = [message.value for message in running.messages(f"{name}.errors", limit=10**6)]
    report = verify(graph, broker)
    broker.close()
    assert (report.verdict, report.complete) == ("ok", True)
    assert len(outputs) + len(errors) == sent.total() == SCHEMAS * count
    assert len(errors) > sent.total() * 0.4
    assert {error.kind for error in errors} == {"decode"}
    assert not Counter(error.payload for error in errors) - sent

"""Metadata of messages on a real broker: times that the broker gives, and a join after several transactions."""

from __future__ import annotations

from typing import Any

from cues_kafka import Graph, Kafka, Place, Processor, Source, Topic, start
from cues_kafka.core.delivery import HEADER
from cues_kafka.testing.fixtures import KafkaFixture


def test_places_and_times_are_those_that_the_broker_keeps(kafka: KafkaFixture) -> None:
    """The topic's timestamps are the broker's, which no writer knows."""
    name = kafka.unique("meta")
    orders, left, right, out = (f"{name}.{word}" for word in ("orders", "left", "right", "out"))
    seen: list[Any] = []

    def join(a: int, b: int, step: Any) -> int:
        seen.append(step.inputs["a"].meta)
        return a + b

    graph = Graph(
        name,
        Source(orders),
        Processor(lambda n: {"a": n, "b": n}, name="fork", inputs=orders, outputs={"a": left, "b": right}),
        Processor(join, inputs={"a": left, "b": right}, outputs=out),
        defaults=Topic(meta={"offset"}),
        topics={orders: Topic(meta={"offset", "time", "tx"}, config={"message.timestamp.type": "LogAppendTime"})},
    )
    with start(graph, Kafka(kafka.bootstrap)) as running:
        for n in range(3):
            running.send(orders, n)
            running.wait_idle(timeout_s=60)
        sources, lefts, messages = (running.messages(topic) for topic in (orders, left, out))

    for n, (source, half, message) in enumerate(zip(sources, lefts, messages, strict=True)):
        came = Place(orders, 0, source.offset, source.timestamp_ms)
        own = {out: Place(out, 0, message.offset)}
        places = {orders: came, left: Place(left, 0, half.offset), right: Place(right, 0, half.offset)}
        assert dict(message.meta.places) == places | own
        assert message.meta.tx == came
        assert seen[n].places == {orders: came, left: places[left]}
        header = dict(message.headers)["cues-meta"]
        assert header == f"1 {came.text} {came.text} {places[left].text} {places[right].text}".encode()
        assert {key for key, _ in message.headers} == {HEADER, "cues-meta"}
    assert [one.offset for one in lefts] != [0, 1, 2]  # markers of transactions take offsets, too
    assert messages[0].meta.tx < messages[2].meta.tx  # type: ignore[operator]

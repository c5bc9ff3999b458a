"""The examples that shuffle or keep state: what they publish is what plain Python says."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from cues_kafka import Avro, DataFrameProcessor, Graph, Json, Kafka, Source, Topic, start
from cues_kafka.running.running import Running
from cues_kafka.spark import Spark
from cues_kafka.testing.fixtures import KafkaFixture
from examples.flights import data, independent
from examples.flights.graph import SCHEMA, Flight, Hour, Weather, clean, hourly
from examples.flights.load import seen

pytestmark = pytest.mark.timeout(300)

EXAMPLES = Path(__file__).parents[2] / "examples"
WHOLE = {"sessions": "clicks", "top": "sales"}
"""
Inputs with a watermark, which have one partition here: then one batch reads all that was sent at once.

A transaction ends in each partition on its own; what a second batch reads may be behind the first one's watermark.
"""


class Example:
    """
    One file of `examples/`, with names on the cluster that are this test's own.

    Attributes:
        module: the file, imported.
    """

    def __init__(self, name: str, spark: Any, kafka: KafkaFixture, directory: Path) -> None:
        self._own = kafka.unique(name)
        text = (EXAMPLES / f"{name}.py").read_text("utf-8")
        if name in WHOLE:
            text, changed = re.subn(rf'("{name}\.{WHOLE[name]}": Topic\([^:]*partitions)=4', r"\1=1", text)
            assert changed == 1
        file = directory / f"example_{name}.py"
        file.write_text(text.replace(f'"{name}.', f'"{self._own}.').replace(f'"{name}",', f'"{self._own}",'))
        spec = importlib.util.spec_from_file_location(file.stem, file)
        assert spec
        assert spec.loader
        self.module: ModuleType = importlib.util.module_from_spec(spec)
        sys.modules[file.stem] = self.module
        spec.loader.exec_module(self.module)
        self._engine = Spark(spark, checkpoint=str(directory / "checkpoint"))
        self._options = Kafka(kafka.bootstrap)
        self._running: Running | None = None

    @contextmanager
    def running(self) -> Iterator[None]:
        """At work; may be entered again, which goes on where it was left."""
        with start(self.module.graph, self._options, engine=self._engine) as running:
            self._running = running
            yield

    def send(self, topic: str, messages: list[Any]) -> None:
        """Send, without waiting for what becomes of it."""
        assert self._running
        self._running.send_many(f"{self._own}.{topic}", messages)

    def found(self, topic: str) -> list[Any]:
        """What is committed there, once all is delivered."""
        assert self._running
        self._running.wait_idle(timeout_s=180)
        return [message.value for message in self._running.messages(f"{self._own}.{topic}")]


@pytest.fixture
def example(request: pytest.FixtureRequest, spark: Any, kafka: KafkaFixture, tmp_path: Path) -> Example:
    """The example that the test's mark names."""
    return Example(request.param, spark, kafka, tmp_path)


def of(name: str) -> pytest.MarkDecorator:
    """Give the test this example."""
    return pytest.mark.parametrize("example", [name], indirect=True)


@pytest.mark.full
@of("sessions")
@pytest.mark.usefixtures("rocksdb")
def test_sessions_are_published_once_when_they_are_over(example: Example) -> None:
    """By a later click, and by the watermark; one is open over a restart."""
    m = example.module
    expected: Counter[Any] = Counter()
    for visitor in ("ann", "bob", "eve"):
        clicks = [one for one in m.CLICKS if one.visitor == visitor]
        groups: list[list[Any]] = []
        for click in clicks:
            if not groups or click.at - groups[-1][-1].at > timedelta(minutes=30):
                groups.append([])
            groups[-1].append(click)
        expected.update(m.Session(visitor, ms(g[0].at), ms(g[-1].at), len(g)) for g in groups if visitor != "eve")
    with example.running():
        example.send("clicks", m.CLICKS[:2])
        assert example.found("closed") == []
    with example.running():
        example.send("clicks", m.CLICKS[2:])
        assert Counter(example.found("closed")) == expected
    assert expected.total() == 3


def ms(at: datetime) -> int:
    """Milliseconds since 1970."""
    return round(at.timestamp() * 1000)


@pytest.mark.full
@of("payments")
def test_orders_are_settled_once_with_their_payment_or_without(example: Example) -> None:
    """
    A left join: what has no partner is published when none can come; over a restart between the two sides.

    Spark forgets there how far the watermark of each side was, so time goes on when both have a new message.
    """
    m = example.module
    paid = {one.order: one for one in m.PAYMENTS}
    expected = []
    for order in m.ORDERS:
        payment = paid.get(order.order)
        if payment is not None and not order.at <= payment.at <= order.at + timedelta(hours=1):
            payment = None
        expected.append(m.Settled(order.order, payment and payment.cents))
    with example.running():
        example.send("orders", m.ORDERS)
        assert example.found("settled") == []
    with example.running():
        example.send("orders", [m.Amount("later", 0, m.LATER)])
        example.send("received", [*m.PAYMENTS, m.Amount("none", 0, m.LATER)])
        assert Counter(example.found("settled")) == Counter(expected)
    assert sum(one.paid is None for one in expected) == 4


@pytest.mark.full
@of("top")
def test_the_best_of_each_hour_are_published_once_in_order(example: Example) -> None:
    """Two aggregates, one on the other, with a restart in between."""
    m = example.module
    sums: dict[datetime, Counter[str]] = defaultdict(Counter)
    for sale in m.SALES:
        sums[sale.at.replace(minute=0)][sale.article] += sale.count
    expected = [
        m.Place(hour, rank, article, count)
        for hour, articles in sorted(sums.items())
        for rank, (count, article) in enumerate(sorted(((c, a) for a, c in articles.items()), reverse=True)[:2], 1)
    ]
    for sales in (m.SALES, [m.LATER]):
        with example.running():
            example.send("sales", sales)
            found = example.found("places")
    assert sorted(found, key=lambda one: (one.hour, one.rank)) == expected
    assert len(expected) == 6


@pytest.mark.full
@of("dedupe")
def test_events_that_come_again_are_passed_on_once(example: Example) -> None:
    """At once, and in another micro-batch after a restart."""
    m = example.module
    with example.running():
        example.send("events", m.EVENTS + m.EVENTS)
        assert Counter(example.found("unique")) == Counter(m.EVENTS)
    with example.running():
        more = m.Event("more", 1, m.NOON)
        example.send("events", [*m.EVENTS, more])
        assert Counter(example.found("unique")) == Counter([*m.EVENTS, more])


@pytest.mark.full
@of("alarms")
def test_alarms_are_raised_once_though_the_state_is_carried_over_a_restart(example: Example) -> None:
    """A row of hot readings may begin in one micro-batch and end in the next."""
    m = example.module
    hot: Counter[str] = Counter()
    expected = []
    for reading in m.READINGS:
        hot[reading.sensor] = hot[reading.sensor] + 1 if reading.celsius > m.HOT else 0
        if hot[reading.sensor] == m.TIMES:
            expected.append(reading)
    for half in (m.READINGS[:30], m.READINGS[30:]):
        with example.running():
            example.send("readings", half)
            found = example.found("raised")
    assert Counter(found) == Counter(expected)
    assert expected


@pytest.mark.full
def test_the_hours_of_the_demo_are_what_the_tables_say(spark: Any, kafka: KafkaFixture, tmp_path: Path) -> None:
    """Weather of one airport comes before its flights, that of the others later, over a restart."""
    name, airports, expected = kafka.unique("hours"), data.airports(), independent.Expected()
    lines = list(data.flights(600))
    for number, line in enumerate(lines):
        expected.add(line, number, airports)
    known = [line.encode() for line in lines if line.split(",")[13] in airports]
    took_off = [flight for line in known if (flight := clean(line, airports))]
    weather = [line for line in data.weather() if ",2013,1,1," in line]
    for line in weather:
        expected.see(line)
    inputs = {"flights": f"{name}.flights", "weather": f"{name}.weather"}
    graph = Graph(
        name,
        *map(Source, inputs.values()),
        DataFrameProcessor(hourly, inputs=inputs, outputs=f"{name}.hours", output_mode="update"),
        topics={
            f"{name}.flights": Topic(value=Avro(SCHEMA, Flight), partitions=2),
            f"{name}.weather": Topic(value=Json(Weather), key="origin", partitions=2),
            f"{name}.hours": Topic(value=Json(Hour), partitions=independent.PARTITIONS),
        },
    )
    for share in (lambda line: line.startswith("EWR"), lambda line: not line.startswith("EWR")):
        with start(graph, Kafka(kafka.bootstrap), engine=Spark(spark, checkpoint=str(tmp_path / "c"))) as running:
            running.send_many(inputs["weather"], [seen(line) for line in weather if share(line)])
            half, took_off = took_off[:300], took_off[300:]
            running.send_many(inputs["flights"], half)
            running.wait_idle(timeout_s=180)
    found = independent.read_hours(kafka.bootstrap, f"{name}.hours")
    assert not independent.compare_hours(expected.hours(), found)
    assert len(found) > 30

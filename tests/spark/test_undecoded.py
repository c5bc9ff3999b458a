"""Input messages that cannot be decoded: error messages as a native worker writes them, direct and staged (T1)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from cues_kafka import (
    Avro,
    Codec,
    DataFrameProcessor,
    Graph,
    Json,
    Kafka,
    Processor,
    Raw,
    Registry,
    Source,
    TaskStopped,
    Topic,
    connect,
    start,
)
from cues_kafka.brokers.open import open_broker
from cues_kafka.codecs.avro import schema_text
from cues_kafka.core.delivery import HEADER, parse_provenance
from cues_kafka.core.hashing import delivery_hash
from cues_kafka.graph.error_message import ErrorMessage
from cues_kafka.operate.repair.filed import Selection
from cues_kafka.operate.repair.find import ErrorFinder
from cues_kafka.ports.facts import NewTopic
from cues_kafka.running.running import Running
from cues_kafka.spark import Spark
from cues_kafka.task.clock import SystemClock
from cues_kafka.task.making.prepare import prepare
from cues_kafka.testing.fixtures import KafkaFixture
from cues_kafka.testing.registry import TestRegistry
from cues_kafka.verify.scan import verify
from tests.fault.support import Setup, until
from tests.spark import test_faults
from tests.spark.drivers import STARTED_S, Drivers
from tests.spark.undecoded_program import graph_of

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.timeout(300)

cluster = test_faults.cluster
"""A fixture: settings of drivers whose executors are processes."""

WIDTH = 2

MANY = 3_000


@dataclass(frozen=True)
class Order:
    """What comes in, and goes out."""

    id: str
    total: int


ORDERS = Json(Order)


@dataclass(frozen=True)
class Deadly(Codec):
    """JSON; the first process that decodes a certain message dies of it."""

    died: str
    schema = Order

    def encode(self, value: Order) -> bytes:
        """Not used."""
        raise NotImplementedError

    def decode(self, data: bytes) -> Order:
        """An order."""
        if data == b"deadly" and not Path(self.died).exists():
            Path(self.died).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return Order(**json.loads(data))


def same(order: Order) -> Order:
    return order


def direct(orders: Any) -> Any:
    return orders


def staged(orders: Any) -> Any:
    return orders.select("id", "total").repartition(2)


def pruned(orders: Any) -> Any:
    """Spark sees that no row is left, and does not read the input at all."""
    return orders.where("false")


def pruned_staged(orders: Any) -> Any:
    return staged(orders.where("false"))


def parsed(messages: Any) -> Any:
    """Bytes, which a tombstone has not: its key says what is deleted."""
    from pyspark.sql import functions as f

    text = messages["value"].cast("string")
    total = f.get_json_object(text, "$.total").cast("int")
    return messages.select(
        f.when(messages["value"].isNull(), messages["_cues.key"].cast("string"))
        .otherwise(f.get_json_object(text, "$.id"))
        .alias("id"),
        f.coalesce(total, f.lit(-1)).alias("total"),
        "_cues",
    )


def make(name: str, topic: str, *parts: Any, errors: bool = True, codec: Any = ORDERS) -> Graph:
    """Processors that pass messages of one topic on, native or of DataFrames."""
    return Graph(
        name,
        Source(topic),
        *parts,
        errors=f"{name}.errors" if errors else None,
        topics={
            topic: Topic(value=codec, partitions=WIDTH),
            **{
                name: Topic(value=Json(Order), key="id", partitions=WIDTH) for part in parts for _, name in part.outputs
            },
        },
    )


def copying(fn: Callable[..., Any], name: str, topic: str, kind: Any = DataFrameProcessor, label: str = "copy") -> Any:
    return kind(fn, name=label, inputs=topic, outputs=f"{name}.{label}")


def produce(kafka: KafkaFixture, topic: str, values: Sequence[tuple[int, bytes | None]], key: bytes = b"k") -> None:
    """Bytes of any kind, each to a partition."""
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "linger.ms": 5})
    for n, (partition, value) in enumerate(values):
        producer.produce(topic, value, key + b"%d" % n, partition, headers={"trace": f"t{n}"})
    assert producer.flush(30) == 0


def good(n: int) -> bytes:
    return b'{"id": "%d", "total": %d}' % (n, n)


MIXED: list[tuple[int, bytes | None]] = [
    (0, b"first"), (0, good(1)), (0, b"{}"), (0, good(2)), (0, None), (0, b""), (0, good(3)), (0, b"last"),
    *[(1, b"bad %d" % n) for n in range(20)],
]  # fmt: skip
"""First, in the middle and last in partition 0; in partition 1 nothing else."""

LATER: list[tuple[int, bytes | None]] = [(0, b"alone"), (1, good(4)), (1, b"\xff"), (1, good(5))]


def errors_of(running: Running, graph: str, label: str = "copy") -> dict[tuple[int, int], Any]:
    """By the place of the message, each once."""
    found = [m for m in running.messages(f"{graph}.errors", limit=100_000) if m.value.processor == label]
    places = {(one.partition, one.offset): m for m in found for one in m.value.consumed}
    assert len(places) == len(found)
    return places


def is_idle(running: Running) -> bool:
    """Whether everything is delivered. A query that ends meanwhile is tried again by itself."""
    try:
        running.wait_idle(timeout_s=5)
    except (TaskStopped, TimeoutError):
        return False
    return True


def fields(found: Any, label: str = "copy") -> tuple[Any, ...]:
    """An error message but for what names graph, engine and time."""
    error: ErrorMessage = found.value
    assert error.hash == delivery_hash(error.graph, label, error.consumed)
    headers = [(name, value) for name, value in found.headers if name != HEADER]
    return replace(error, graph="", hash=b"", declaration={}, timestamp_ms=0), found.key_bytes, headers


@pytest.mark.parametrize("fn", [pytest.param(direct, marks=pytest.mark.full), staged])
def test_spark_and_native_workers_write_the_same(fn: Any, spark: Any, kafka: KafkaFixture, tmp_path: Path) -> None:
    """Kind, reason, trace, coordinates, hash, payload, key and headers; whatever is among good messages, and alone."""
    topic, native, frames = kafka.unique("in"), kafka.unique("native"), kafka.unique("frames")
    options = Kafka(kafka.bootstrap)
    with start(make(native, topic, copying(same, native, topic, Processor)), options) as running:
        produce(kafka, topic, MIXED, b"\xff")  # keys that are no UTF-8 are passed on as they are
        running.wait_idle(timeout_s=60)
        produce(kafka, topic, [*LATER, *[(1, b"%d of many" % n) for n in range(MANY)]])
        running.wait_idle(timeout_s=60)
        expected, rows = errors_of(running, native), sorted(m.value.id for m in running.messages(f"{native}.copy"))
    graph = make(frames, topic, copying(fn, frames, topic))
    with start(graph, options, engine=Spark(spark, checkpoint=str(tmp_path))) as running:
        running.wait_idle(timeout_s=200)
        found = errors_of(running, frames)
        assert sorted(m.value.id for m in running.messages(f"{frames}.copy")) == rows == ["1", "2", "3", "4", "5"]
        totals = [task.totals for task in running.status().tasks]
        raw = list(running.committed(f"{frames}.errors"))
    assert found.keys() == expected.keys()
    assert len(found) == MANY + 27
    for place, error in expected.items():
        assert fields(found[place]) == fields(error)
    assert (sum(one.errors for one in totals), sum(one.deliveries for one in totals)) == (len(found), len(found) + 5)
    places = [parse_provenance(bytes(dict(m.headers() or [])[HEADER] or b"")) for m in raw]
    assert {place.task.rpartition("/")[0] for place in places} == {f"{frames}.copy"}
    if fn is direct:
        assert {(p.consumed[0].partition, p.consumed[0].offset) for p in places} == found.keys()
    broker = open_broker(options)
    try:
        filed = list(ErrorFinder(graph, broker, SystemClock()).find(Selection()))
        report = verify(graph, broker)
        again: Any = raw[-1]  # an error message that no task committed
        producer = Producer({"bootstrap.servers": kafka.bootstrap})
        producer.produce(f"{frames}.errors", again.value(), again.key(), again.partition(), headers=again.headers())
        assert producer.flush(30) == 0
        forged = verify(graph, broker)
    finally:
        broker.close()
    assert {(one.message.consumed[0].partition, one.message.consumed[0].offset) for one in filed} == found.keys()
    assert (report.ok, report.anomalies) == (fn is staged, 0), list(report.lines)
    [books] = report.processors
    assert (books.outputs, books.errors, books.behind) == (5, len(found), 0)
    assert (forged.anomalies, forged["copy"].duplicated) == (1, 1), list(forged.lines)


@pytest.mark.full
def test_tombstone_is_null_where_the_topic_holds_raw_bytes(spark: Any, kafka: KafkaFixture, tmp_path: Path) -> None:
    """The way that docs/dataframes.md names for topics with tombstones: nothing is an error, not even other bytes."""
    topic, name = kafka.unique("in"), kafka.unique("raw")
    graph = make(name, topic, copying(parsed, name, topic), codec=Raw())
    with start(graph, Kafka(kafka.bootstrap), engine=Spark(spark, checkpoint=str(tmp_path))) as running:
        produce(kafka, topic, [(0, good(1)), (0, None), (0, good(2)), (1, None)])
        running.wait_idle(timeout_s=200)
        found = sorted((m.value.id, m.value.total) for m in running.messages(f"{name}.copy"))
        assert errors_of(running, name) == {}
    assert found == [("1", 1), ("2", 2), ("k1", -1), ("k3", -1)]


@pytest.mark.full
def test_message_is_an_error_though_spark_does_not_read_its_input(
    spark: Any, kafka: KafkaFixture, tmp_path: Path
) -> None:
    """The optimizer leaves the source out where it sees that no row is left."""
    topic, name = kafka.unique("in"), kafka.unique("pruned")
    parts = [copying(fn, name, topic, label=fn.__name__) for fn in (pruned, pruned_staged)]
    with start(
        make(name, topic, *parts), Kafka(kafka.bootstrap), engine=Spark(spark, checkpoint=str(tmp_path))
    ) as running:
        produce(kafka, topic, MIXED)
        running.wait_idle(timeout_s=200)
        found = {fn.__name__: errors_of(running, name, fn.__name__) for fn in (pruned, pruned_staged)}
    assert len(found["pruned"]) == 25
    assert found["pruned"].keys() == found["pruned_staged"].keys()


@pytest.mark.parametrize("fn", [direct, pytest.param(staged, marks=pytest.mark.full)])
def test_without_an_errors_topic_the_text_names_message_and_remedy(
    fn: Any, spark: Any, kafka: KafkaFixture, tmp_path: Path
) -> None:
    """And it goes on, once an errors topic is declared, with each message once."""
    topic, name = kafka.unique("in"), kafka.unique("stops")
    options, engine = Kafka(kafka.bootstrap), Spark(spark, checkpoint=str(tmp_path))
    running = start(make(name, topic, copying(fn, name, topic), errors=False), options, engine=engine)
    try:
        produce(kafka, topic, [(1, good(1)), (1, b"no json"), (1, good(2)), (0, good(3))])
        with pytest.raises(TaskStopped) as stopped:
            running.wait_idle(timeout_s=200)
    finally:
        running.stop()
    assert f"{topic}/1 at 1 cannot be decoded: CodecError: The message is not JSON" in str(stopped.value)
    assert "fix the cause, or declare an errors topic" in str(stopped.value)
    assert "copy/1" in str(stopped.value)
    with start(make(name, topic, copying(fn, name, topic)), options, engine=engine) as running:
        running.wait_idle(timeout_s=200)
        assert sorted(m.value.id for m in running.messages(f"{name}.copy")) == ["1", "2", "3"]
        assert errors_of(running, name).keys() == {(1, 1)}


@pytest.mark.full
@pytest.mark.parametrize("fn", [direct, staged])
def test_python_worker_that_dies_among_undecoded_messages_repeats_and_hides_none(
    fn: Any, spark: Any, kafka: KafkaFixture, tmp_path: Path
) -> None:
    """It has reported ten thousand of them, and dies in the same range, of a message that is one of them."""
    topic, name, died = kafka.unique("in"), kafka.unique("deadly"), tmp_path / "died"
    graph = make(name, topic, copying(fn, name, topic), codec=Deadly(str(died)))
    many = [(0, b"bad %d" % n if n % 10 else good(n)) for n in range(12_000)]
    engine = Spark(spark, checkpoint=str(tmp_path / "checkpoint"))
    with start(graph, Kafka(kafka.bootstrap), engine=engine) as running:
        produce(kafka, topic, [*many, (0, b"deadly"), (0, good(-1)), (1, b"bad")])
        until(died.exists, "a process has died", STARTED_S)
        until(lambda: is_idle(running), "the query is tried again, and delivers everything", 250)
        found = errors_of(running, name)
        rows = sorted(int(m.value.id) for m in running.messages(f"{name}.copy", limit=100_000))
        totals = [task.totals for task in running.status().tasks]
    assert len(found) == 10_800 + 2
    assert rows == [-1, *range(0, 12_000, 10)]
    assert (sum(one.errors for one in totals), sum(one.outputs for one in totals)) == (len(found), len(rows))


@pytest.mark.full
@pytest.mark.parametrize("fn", [direct, staged])
def test_unknown_schema_ids_are_errors_as_natively_and_a_silent_registry_is_not(
    fn: Any, spark: Any, kafka: KafkaFixture, tmp_path: Path
) -> None:
    """While the registry does not answer the processor stops with its address; then it goes on, and tells it apart."""
    topic, native, frames = kafka.unique("in"), kafka.unique("native"), kafka.unique("frames")
    unknown, no_magic = b"\0\0\0\0\x63\x02a", b"\1"
    codec = Avro(Order, registry=True)
    with ExitStack() as at_end:
        with TestRegistry() as registry:
            registry.register(f"{topic}-value", schema_text(codec))
            options = Kafka(kafka.bootstrap, registry=Registry(registry.url))
            port = int(registry.url.rpartition(":")[2])
            with start(make(native, topic, copying(same, native, topic, Processor), codec=codec), options) as running:
                running.send(topic, Order("1", 1), key="k")
                produce(kafka, topic, [(0, unknown), (0, no_magic), (1, unknown)])
                running.wait_idle(timeout_s=60)
                expected = errors_of(running, native)
            running = start(
                make(frames, topic, copying(fn, frames, topic), codec=codec),
                options,
                engine=Spark(spark, checkpoint=str(tmp_path)),
            )
            at_end.callback(running.stop)
            running.wait_idle(timeout_s=200)
            found = errors_of(running, frames)
            assert [m.value.id for m in running.messages(f"{frames}.copy")] == ["1"]
            assert found.keys() == expected.keys()
            assert len(found) == 3
            for place, error in expected.items():
                assert nowhere(fields(found[place])) == nowhere(fields(error))
        produce(kafka, topic, [(0, b"\0\0\0\0\x64\x02a")])
        until(lambda: any(registry.url in str(one) for one in running.status().stopped), "it stops", STARTED_S)
        assert len(errors_of(running, frames)) == 3
        with TestRegistry(port=port):
            until(lambda: len(errors_of(running, frames)) == 4, "it goes on", STARTED_S)
            running.wait_idle(timeout_s=100)


def nowhere(found: tuple[Any, ...]) -> tuple[Any, ...]:
    """Fields without the line of this package: the first look asks the registry, the second one remembers."""
    return replace(found[0], location=""), *found[1:]


@pytest.mark.fault
@pytest.mark.slow
@pytest.mark.timeout(1_200)
def test_executors_that_die_among_undecoded_messages_repeat_and_hide_no_error_message(
    kafka: KafkaFixture, tmp_path: Path, cluster: dict[str, Any]
) -> None:
    """SIGKILL, with all that it started, as soon as readers see an error message of a batch, four times."""
    setup = Setup(kafka.bootstrap, kafka.unique("g"))
    name, graph = setup.name, graph_of(setup.name)
    options = Kafka(kafka.bootstrap)
    broker = open_broker(options)
    prepare(graph, broker)
    broker.close()
    program = "tests.spark.undecoded_program:graph_of"
    sent: list[tuple[int, bytes | None]] = []
    with Drivers(setup, tmp_path, graph=program, **cluster) as drivers, connect(options, graph) as client:

        def seen(label: str) -> list[Any]:
            found = [m for m in client.messages(f"{name}.errors", limit=100_000) if m.value.processor == label]
            return [one for m in found for one in m.value.consumed]

        def bad() -> int:
            return sum((value or b"").startswith(b"bad") for _, value in sent)

        driver = drivers.add().started()
        for _ in range(4):
            before = len(seen("direct")) + len(seen("staged"))
            more = [(n % WIDTH, b"bad %d" % n if n % 3 else good(n)) for n in range(len(sent), len(sent) + 600)]
            produce(kafka, f"{name}.in", more)
            sent += more
            until(lambda: len(seen("direct")) + len(seen("staged")) > before, "an error", STARTED_S)  # noqa: B023
            driver.kill_executor()
        for label in ("direct", "staged"):
            until(lambda: len(seen(label)) >= bad(), f"all errors of {label}", 2 * STARTED_S)  # noqa: B023
        values = sorted(int(value[8:].partition(b'"')[0]) for _, value in sent if value and value.startswith(b"{"))
        for label in ("direct", "staged"):
            rows = f"{name}.{label}"
            until(lambda: len(client.messages(rows, limit=100_000)) >= len(values), "all rows", STARTED_S)  # noqa: B023
        driver.stop()
        for label in ("direct", "staged"):
            assert len(seen(label)) == len(set(seen(label))) == bad()
            assert sorted(int(m.value.id) for m in client.messages(f"{name}.{label}", limit=100_000)) == values


@pytest.mark.full
@pytest.mark.fault
@pytest.mark.timeout(2_500)
def test_driver_that_dies_behind_a_commit_repeats_and_hides_no_error_message(
    kafka: KafkaFixture, tmp_path: Path
) -> None:
    """Driver and JVM are killed as soon as readers see an error message; Spark has not noted the batch by then."""
    name, options = kafka.unique("killed"), Kafka(kafka.bootstrap)
    broker = open_broker(options)
    broker.create([NewTopic(f"{name}.in", WIDTH), NewTopic(f"{name}.errors", WIDTH)])
    broker.close()
    command = [sys.executable, "-m", "tests.spark.undecoded_program", name, kafka.bootstrap, str(tmp_path)]
    rounds = [(n % WIDTH, b"bad %d" % n if n % 3 else good(n)) for n in range(60)]
    with connect(options, graph_of(name)) as client:

        def seen() -> Sequence[Any]:
            return client.messages(f"{name}.errors", limit=100_000)

        for _ in range(2):
            produce(kafka, f"{name}.in", rounds)
            before = len(seen())
            driver = subprocess.Popen([*command, "killed"], cwd=ROOT, start_new_session=True)
            ended = driver.poll
            try:
                until(lambda: len(seen()) > before or ended() is not None, "an error", 4 * STARTED_S)  # noqa: B023
                assert ended() is None
            finally:
                os.killpg(driver.pid, signal.SIGKILL)
                driver.wait()
        subprocess.run([*command, "idle"], cwd=ROOT, check=True, timeout=900)
        for label in ("direct", "staged"):
            errors = [one for m in seen() if m.value.processor == label for one in m.value.consumed]
            values = [m.value.id for m in client.messages(f"{name}.{label}")]
            assert len(errors) == len(set(errors)) == 2 * 40
            assert sorted(values) == sorted(2 * [str(n) for n in range(0, 60, 3)])

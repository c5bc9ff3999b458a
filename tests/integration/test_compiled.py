"""The compiled module beside the Python client, on a real broker: the same records, messages, events and errors."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka import TopicPartition as ClientPartition

from cues_kafka import Kafka
from cues_kafka.brokers.kafka import columns as columns_of
from cues_kafka.brokers.kafka.compiled.loaded import CHOICE, Module, loaded
from cues_kafka.brokers.kafka.polled import ClientPolling, ModulePolling, Polling
from cues_kafka.brokers.open import open_broker
from cues_kafka.core.delivery import HEADER
from cues_kafka.errors import BrokerError
from cues_kafka.ports.facts import NewTopic
from cues_kafka.ports.log import UNREADABLE, TopicPartition, headers_of_each
from cues_kafka.task.calling.outbox import Outbox
from cues_kafka.task.calling.tight import compiled
from cues_kafka.testing.fixtures import KafkaFixture
from tests.fault.support import until

NOW_MS = int(time.time()) * 1000
"""Retention deletes what is older than a week."""

HOSTILE: list[list[tuple[str, bytes | None]] | bytes | None] = [
    None,
    [],
    b"",
    b"1 a/0 7 in:x 0/1 5",
    [("a", b""), ("a", None), ("b", b"\0" * 300)],
    [("né", b"x"), ("", b"y")],
    [(HEADER, b"z" * 5_000)],
]


@pytest.fixture
def module() -> Module:
    """The module, which `.ci/setup` builds wherever there is a C compiler; without one, these tests say so."""
    found = loaded()
    assert found.module is not None, f"the compiled module is not used: {found.why_not}"
    return found.module


def topic_of(kafka: KafkaFixture, name: str, partitions: int = 1, **config: str) -> str:
    topic = kafka.unique(name)
    broker = open_broker(Kafka(kafka.bootstrap))
    broker.create([NewTopic(topic, partitions, 1, {key.replace("_", "."): one for key, one in config.items()})])
    broker.close()
    return topic


def drawn(topics: Sequence[str], count: int, seed: int) -> Outbox:
    """Records of all shapes that an outbox may hold."""
    draw, box = random.Random(seed), Outbox()
    for n in range(count):
        key = draw.choice([None, b"", b"k%d" % draw.randrange(9), bytes(draw.randrange(2_000))])
        value = draw.choice([None, b"", b"%d" % n, draw.randbytes(draw.randrange(3_000))])
        partition = draw.choice([None, 0, 1] if key else [0, 1])  # without a key the client draws one
        box.add(draw.choice(topics), partition, key, value, draw.choice(HOSTILE), NOW_MS + n)
    return box


def rows(bootstrap: str, topics: Sequence[str], partitions: int = 2) -> dict[tuple[str, int], list[Any]]:
    """What topics hold, by the Python client."""
    found: dict[tuple[str, int], list[Any]] = {}
    settings = {"bootstrap.servers": bootstrap, "group.id": "look", "enable.partition.eof": True}
    consumer = Consumer(settings | {"isolation.level": "read_committed"})
    places = [ClientPartition(topic, one, 0) for topic in topics for one in range(partitions)]
    consumer.assign(places)
    ends = 0
    while ends < len(places):
        message = consumer.poll(30)
        assert message is not None
        if message.error() is not None:
            ends += 1
            continue
        row = message.key(), message.value(), message.headers(), message.timestamp()
        found.setdefault((message.topic() or "", message.partition() or 0), []).append(row)
    consumer.close()
    return found


@pytest.mark.parametrize("room", [100_000, 50], ids=["room for all", "a full queue"])
def test_both_ways_write_the_same_records(module: Module, kafka: KafkaFixture, room: int) -> None:
    """Keys, values, headers, times and partitions, of several topics in turn; and P6 counts each of them once."""
    written = []
    for way in ("client", "module"):
        topics = [topic_of(kafka, f"{way}-{room}-{n}", 2) for n in range(2)]
        broker = open_broker(Kafka(kafka.bootstrap, producer={"queue.buffering.max.messages": room}))
        session: Any = broker.session(kafka.unique(f"{way}-{room}"))
        if way == "client":
            session._counted._module = None
        session.init(timeout_s=30)
        for seed in range(3):
            session.begin()
            made = session.produce([(topics[0], 0, b"first", b"first", None, NOW_MS)])
            made += session.produce(drawn(topics, 700, seed))
            report = session.flush()
            assert (made, report.delivered) == (701, 701)
            session.commit()
        session.close()
        broker.close()
        found = rows(kafka.bootstrap, topics)
        written.append([found[topic, partition] for topic in topics for partition in range(2)])
    assert sum(map(len, written[0])) == 3 * 701
    assert written[0] == written[1]


@pytest.mark.parametrize(
    "bad",
    [
        ("value", "text"),
        ("key", 5),
        ("headers", [("a", 5)]),
        ("headers", ("a", b"b")),
        ("headers", [["a", b"b"]]),
        ("partition", 2**40),
        ("time", 2**70),
        ("time", None),
        ("topic", "\ud800"),
    ],
    ids=str,
)
def test_what_is_no_record_is_handled_as_the_client_does(
    module: Module, kafka: KafkaFixture, bad: tuple[str, Any]
) -> None:
    """The client takes text and some pairs, and refuses the rest; what came before is neither lost nor doubled."""
    ends = []
    for way in ("client", "module"):
        topic = topic_of(kafka, way)
        producer = Producer(columns_of.plugin_settings({"bootstrap.servers": kafka.bootstrap}))
        counted, box = columns_of.Counted(producer), Outbox()
        reports: list[int] = []
        if way == "client":
            counted._module = None
        record = {"topic": topic, "partition": 0, "key": b"k", "value": b"v", "headers": None, "time": NOW_MS}
        for n in range(5):
            box.add(*(record | ({bad[0]: bad[1]} if n == 2 else {})).values())  # type: ignore[arg-type]
        run = counted.enqueue(producer, box, lambda *_, to=reports: to.append(1), lambda _: pytest.fail("no room"))
        try:
            run.run()
            ended: Any = "all"
        except Exception as problem:
            ended = type(problem)
        assert producer.flush(30) == 0
        written = len(rows(kafka.bootstrap, [topic], 1).get((topic, 0), []))
        assert counted.delivered + len(reports) == written
        ends.append((ended, written))
    assert ends[0] == ends[1]


def test_a_record_that_the_brokers_refuse_names_its_topic(module: Module, kafka: KafkaFixture) -> None:
    """The module's count has the error of the first that failed, and the transaction cannot be committed."""
    small = topic_of(kafka, "small", max_message_bytes="2000")
    broker = open_broker(Kafka(kafka.bootstrap))
    session = broker.session(kafka.unique("tx"))
    session.init(timeout_s=30)
    session.begin()
    session.produce([(small, 0, b"first", b"first", None, NOW_MS)])
    box = Outbox()
    box.extend(small, 0, [b"k"], [os.urandom(5_000)], [b"p"], [NOW_MS], alone=True)
    session.produce(box)
    with pytest.raises(BrokerError, match=f"writing to {small}") as refused:
        session.flush()
    assert refused.value.code == "MSG_SIZE_TOO_LARGE"
    session.abandon()
    broker.close()
    assert rows(kafka.bootstrap, [small], 1) == {}


@pytest.fixture
def mixed(kafka: KafkaFixture) -> str:
    """A topic with messages of all shapes, two partitions, and a name of a header that is not UTF-8."""
    topic = topic_of(kafka, "mixed", 2)
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for index, (name, partition, key, value, headers, time_ms) in enumerate(drawn([topic], 400, 7)):
        given = [(HEADER, headers)] if isinstance(headers, bytes) else headers
        producer.produce(
            name, value, key, index % 2 if partition is None else partition, headers=given, timestamp=time_ms
        )
    producer.flush(30)
    return topic


def taken(way: str, module: Module, bootstrap: str, topic: str) -> list[Any]:
    """All messages and ends of a topic, by one of the two ways."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "look", "enable.partition.eof": True}
    consumer = Consumer(settings)
    polled: Polling = ModulePolling(module, consumer) if way == "module" else ClientPolling(consumer)
    places = {(topic, 0): 0, (topic, 1): 0}
    polled.expect(places)
    consumer.incremental_assign([ClientPartition(*place, 0) for place in places])
    found: list[Any] = []
    while sum(1 for one in found if one.error() is not None) < 2:
        found += polled.take(1.0, 50)
    polled.close()
    consumer.close()
    return found


def shown(messages: Sequence[Any]) -> list[Any]:
    """All that the project asks messages for, by partition."""
    made = []
    for one in sorted(messages, key=lambda one: (one.partition(), one.offset())):
        error = None if one.error() is None else (one.error().code(), one.error().str())
        head = None if error else headers_of_each([one])[0]
        row = one.topic(), one.partition(), one.offset(), one.key(), one.value(), head, one.timestamp(), len(one), error
        made.append(row)
    return made


def test_both_ways_take_the_same_messages_and_ends(module: Module, kafka: KafkaFixture, mixed: str) -> None:
    """Messages of all shapes, tombstones, headers, times, and the event at the end of each partition."""
    by_client, by_module = (taken(way, module, kafka.bootstrap, mixed) for way in ("client", "module"))
    assert len(by_module) == 402
    assert shown(by_module) == shown(by_client)
    del by_client
    only = [one for one in by_module if one.error() is None]
    found = compiled().columns_of(only)  # type: ignore[union-attr]
    times = [one.timestamp()[1] for one in only]
    assert found == ([one.key() for one in only], [one.value() for one in only], headers_of_each(only), times)
    assert compiled().columns_of([*only, None]) is None  # type: ignore[union-attr, list-item]
    first = by_module[0]
    first.set_headers(UNREADABLE)
    assert first.headers() is UNREADABLE


def test_a_partition_that_is_assigned_again_and_again_loses_nothing(
    module: Module, kafka: KafkaFixture, mixed: str
) -> None:
    """The client stops a partition some time after it was unassigned, and that ends the forwarding of its queue."""
    broker = open_broker(Kafka(kafka.bootstrap))
    reader: Any = broker.reader(kafka.unique("reader"))
    assert isinstance(reader._polling, ModulePolling)
    place, offsets = TopicPartition(mixed, 0), len(rows(kafka.bootstrap, [mixed])[mixed, 0])
    for start in range(0, offsets, 5):
        reader.assign({place: start})
        found: list[int] = []
        while len(found) < min(3, offsets - start):
            found += [message.offset() for fetched in reader.poll(0.5, 3) for message in fetched.messages]
        assert found == list(range(start, start + len(found)))
        reader.unassign([place])
    reader.close()
    broker.close()


def test_an_offset_that_is_not_there_is_the_same_error(module: Module, kafka: KafkaFixture, mixed: str) -> None:
    """An event with an error, in the place of messages."""
    codes = []
    for way in ("client", "module"):
        consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "look", "auto.offset.reset": "error"})
        polled: Polling = ModulePolling(module, consumer) if way == "module" else ClientPolling(consumer)
        polled.expect([(mixed, 0)])
        consumer.incremental_assign([ClientPartition(mixed, 0, 1_000_000)])
        [event] = until(lambda: polled.take(0.5, 50))  # noqa: B023
        codes.append((event.error().code(), event.topic(), event.partition()))
        polled.close()
        consumer.close()
    assert codes[0] == codes[1]


def test_closed_clients_and_other_objects_are_refused(module: Module, kafka: KafkaFixture) -> None:
    """A wrong pointer would end the process."""
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "g"})
    fetcher = module.fetcher_of(consumer, KafkaError)
    for bad in (object(), None, "x", Kafka):
        for call in (module.name_of, module.tally_of):
            with pytest.raises(TypeError, match="no client of confluent-kafka"):
                call(bad)
    with pytest.raises(TypeError):
        module.produce(object(), 0, ([], [], [], [], [], []), HEADER)
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    with pytest.raises(ValueError, match="differ in length"):
        module.produce(producer, 0, (["t"], [], [], [], [], []), HEADER)
    with pytest.raises(ValueError, match="outside of"):
        module.produce(producer, 1, ([], [], [], [], [], []), HEADER)
    for wrong in ((-1.0, 5), (float("nan"), 5), (0.0, 0), (1e12, 5)):
        with pytest.raises(ValueError, match="take"):
            fetcher.take(*wrong)
    fetcher.close()
    fetcher.close()
    with pytest.raises(RuntimeError, match="closed"):
        fetcher.take(0.0, 1)
    with pytest.raises(RuntimeError, match="closed"):
        fetcher.forward("t", 0)
    consumer.close()
    with pytest.raises(RuntimeError, match="closed"):
        module.name_of(consumer)


def test_a_fetcher_that_is_closed_while_another_thread_waits_ends_that_wait_unharmed(
    module: Module, kafka: KafkaFixture
) -> None:
    """It belongs to one thread; a mistake there must not end the process."""
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "g"})
    fetcher = module.fetcher_of(consumer, KafkaError)
    began = threading.Event()
    found: list[Any] = []

    def wait() -> None:
        began.set()
        with suppress(RuntimeError):  # it was closed first
            found.append(fetcher.take(1.0, 10))

    thread = threading.Thread(target=wait)
    thread.start()
    began.wait(10)
    fetcher.close()
    thread.join(10)
    assert found in ([[]], [])
    consumer.close()


def test_the_environment_decides_whether_it_is_used() -> None:
    """`0` is Python alone; `1` without the module is an error with a remedy."""
    program = "from cues_kafka.brokers.kafka.compiled.loaded import loaded; print(loaded())"
    off = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, CHOICE: "0"}, capture_output=True, text=True, check=True
    )
    assert "turns it off" in off.stdout
    hidden = "import sys; sys.modules['_cues_kafka'] = None; " + program
    refused = subprocess.run(
        [sys.executable, "-c", hidden], env={**os.environ, CHOICE: "1"}, capture_output=True, text=True, check=False
    )
    assert refused.returncode == 1
    assert "asks for the compiled module, but it is not installed" in refused.stderr
    absent = subprocess.run(
        [sys.executable, "-c", hidden], env={**os.environ, CHOICE: ""}, capture_output=True, text=True, check=True
    )
    assert "module=None" in absent.stdout


def test_a_partition_that_is_gone_does_not_end_the_process(kafka: KafkaFixture) -> None:
    """The client tells its error callback, which ends the process where another than the client calls it."""
    topic = kafka.unique("shrunk")
    program = (
        "import logging, sys, time\n"
        "from cues_kafka import Kafka\n"
        "from cues_kafka.brokers.open import open_broker\n"
        "from cues_kafka.brokers.kafka.polled import ModulePolling\n"
        "from cues_kafka.ports.facts import NewTopic\n"
        "from cues_kafka.ports.log import TopicPartition\n"
        "broker = open_broker(Kafka(sys.argv[1]))\n"
        "topic = sys.argv[2]\n"
        "places = [TopicPartition(topic, p) for p in (0, 1)]\n"
        "broker.create([NewTopic(topic, 2, 1, {})])\n"
        "reader = broker.reader('shrunk')\n"
        "assert isinstance(reader._polling, ModulePolling)\n"
        "reader.assign(dict.fromkeys(places, 0))\n"
        "reader.poll(1.0)\n"
        "broker.delete([topic])\n"
        "broker.create([NewTopic(topic, 1, 1, {})])\n"
        "changed, end = [], time.monotonic() + 60\n"
        "logs = logging.getLogger('cues_kafka.librdkafka')\n"
        "logs.setLevel(logging.INFO)\n"
        "logs.addFilter(lambda line: changed.append(1) if 'count changed' in line.getMessage() else True)\n"
        "while not changed and time.monotonic() < end:\n"
        "    reader.poll(0.2)\n"
        "reader.poll(1.0)\n"
        "print('alive', bool(changed))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, kafka.bootstrap, topic],
        capture_output=True,
        text=True,
        check=False,
        timeout=110,
    )
    assert (done.returncode, done.stdout) == (0, "alive True\n"), done.stderr[-2000:]

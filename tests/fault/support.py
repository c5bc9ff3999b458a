"""What tests of faults share: plain clients to write and to check with, and child processes to kill, pause and restart.

The checks read with confluent-kafka alone and take backing and error records apart by their schema files; nothing of
the product's own reading or decoding is in them, so a defect there cannot hide itself.
"""

from __future__ import annotations

import ctypes
import importlib
import io
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import confluent_kafka
import fastavro
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from cues_kafka import Graph, Json, Kafka, Processor, Source, TaskStopped, Topic, start
from cues_kafka.graph.declare import CommitPolicy
from cues_kafka.running.running import Running
from cues_kafka.task.workers import Engine

ROOT = Path(__file__).parents[2]
PATIENCE_S = 40.0
"""How long a test waits for what must happen; the machine may be busy with other things."""

QUICK: dict[str, Any] = {"session_timeout_s": 6.0, "heartbeat_s": 0.5}
"""Options of a cluster whose dead workers lose their tasks soon; brokers allow no less than six seconds."""

IMPATIENT: dict[str, Any] = {"socket_timeout_s": 3.0}
"""Options of a cluster whose broker dies: a transaction gives a request up after 4.5 s instead of 15."""


def until(condition: Callable[[], Any], what: str = "it happens", timeout_s: float = PATIENCE_S) -> Any:
    """
    Poll until the condition gives something true, and give it.

    A condition may be a client that connects, or a walk through all processes. Polled without a pause, it would take a
    processor from what is awaited; so each pause is three times what the last look took of one.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        began = time.thread_time()
        found = condition()
        if found:
            return found
        assert time.monotonic() < deadline, f"not within {timeout_s:g} s: {what}"
        time.sleep(min(max(0.02, 3 * (time.thread_time() - began)), 0.5))


# ---- plain clients


def create(bootstrap: str, topic: str, partitions: int = 1, **config: str) -> None:
    """Make a topic and wait until it has its leaders."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, partitions, 1, config=config)])[topic].result()
    until(lambda: _led(admin, topic, partitions), f"{topic} is there")


def delete(bootstrap: str, topic: str) -> None:
    """Delete a topic and wait until it is gone."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_topics([topic])[topic].result()
    until(lambda: not _led(admin, topic, 1), f"{topic} is gone")


def _led(admin: AdminClient, topic: str, partitions: int) -> bool:
    found = admin.describe_topics(TopicCollection([topic]))[topic]
    if found.exception() is not None:
        return False
    leaders = [p.leader for p in found.result().partitions]
    return len(leaders) >= partitions and all(leader is not None and leader.id >= 0 for leader in leaders)


def trim(bootstrap: str, topic: str, offset: int, partition: int = 0) -> None:
    """Delete the records below an offset."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.delete_records([TopicPartition(topic, partition, offset)]).values():
        future.result()


class Record(NamedTuple):
    """A record to produce."""

    value: bytes | None
    key: bytes | None = None
    partition: int = 0
    headers: list[tuple[str, str | bytes | None]] | None = None


def produce(bootstrap: str, topic: str, records: Iterable[Record | bytes], *, transaction: bool = False) -> None:
    """Write records with a plain producer; in one transaction where that is asked for."""
    settings: dict[str, Any] = {"bootstrap.servers": bootstrap, "linger.ms": 0, "message.max.bytes": 2_000_000}
    producer = Producer(settings | ({"transactional.id": uuid.uuid4().hex} if transaction else {}))
    failed: list[KafkaError] = []
    if transaction:
        producer.init_transactions(PATIENCE_S)
        producer.begin_transaction()
    for given in records:
        value, key, partition, headers = given if isinstance(given, Record) else Record(given)
        producer.produce(
            topic,
            value,
            key,
            partition,
            on_delivery=lambda error, _: failed.append(error) if error else None,
            headers=headers,
        )
    assert producer.flush(PATIENCE_S) == 0
    if transaction:
        producer.commit_transaction(PATIENCE_S)
    assert not failed, failed


class Load(threading.Thread):
    """
    Writes numbered messages, with pauses, in a `with` block; idempotent, so that each is there once.

    Where the block raises, it ends without a wait for what the brokers have not acknowledged.
    """

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        super().__init__(daemon=True)
        self._topic, self._partitions = topic, partitions
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 5,
                "partitioner": "murmur2_random",
            }
        )
        self._over = threading.Event()
        self._left = -1
        self.count = 0

    def run(self) -> None:
        while not self._over.wait(0.01):
            for p in range(self._partitions):
                self._producer.produce(self._topic, json.dumps([p, self.count]).encode(), partition=p)
            self.count += 1
            self._producer.poll(0)
        self._left = self._producer.flush(60)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.finish()
            return
        self._over.set()
        self._producer.purge()
        self.join(90)

    def finish(self) -> None:
        """Stop, and wait until all is acknowledged."""
        self._over.set()
        self.join(90)
        assert not self.is_alive()
        assert self._left == 0, "all is acknowledged"


def produce_any_headers(
    bootstrap: str, topic: str, value: bytes, headers: Iterable[tuple[bytes, bytes]], partition: int = 0
) -> None:
    """Write one record whose headers' names may be any bytes, as C clients can and Python's cannot."""
    [path] = Path(confluent_kafka.__file__).parents[1].glob("confluent_kafka.libs/librdkafka*.so*")
    client, pointer, text = ctypes.CDLL(str(path)), ctypes.c_void_p, ctypes.c_char_p
    for name in ("conf_new", "new", "headers_new"):
        getattr(client, f"rd_kafka_{name}").restype = pointer
    problem = ctypes.create_string_buffer(512)
    settings = pointer(client.rd_kafka_conf_new())
    assert not client.rd_kafka_conf_set(settings, b"bootstrap.servers", bootstrap.encode(), problem, 512), problem.value
    producer = pointer(client.rd_kafka_new(0, settings, problem, ctypes.c_size_t(512)))
    assert producer, problem.value
    given = pointer(client.rd_kafka_headers_new(ctypes.c_size_t(1)))
    for name_, content in headers:
        sizes = ctypes.c_ssize_t(len(name_)), ctypes.c_ssize_t(len(content))
        assert not client.rd_kafka_header_add(given, text(name_), sizes[0], text(content), sizes[1])
    # Pairs of a tag (rd_kafka_vtype_t) and what it announces: topic, partition, value, flags (copy), headers, the end.
    tags = [ctypes.c_int(tag) for tag in (1, 3, 4, 7, 10, 0)]
    size, copied = ctypes.c_size_t(len(value)), ctypes.c_int(2)
    topic_, place = text(topic.encode()), ctypes.c_int32(partition)
    assert not client.rd_kafka_producev(
        producer, tags[0], topic_, tags[1], place, tags[2], text(value), size, tags[3], copied, tags[4], given, tags[5]
    )
    assert not client.rd_kafka_flush(producer, int(PATIENCE_S * 1000))
    client.rd_kafka_destroy(producer)


def committed(bootstrap: str, topic: str, *, to_stable: bool = False) -> list[Message]:
    """
    All committed messages of a topic, partition by partition, once no transaction is open on it.

    Args:
        bootstrap: where.
        topic: what to read.
        to_stable: do not wait for open transactions; read up to the last stable offsets.
    """
    return committed_all(bootstrap, [topic], to_stable=to_stable)[topic]


def committed_all(bootstrap: str, topics: Sequence[str], *, to_stable: bool = False) -> dict[str, list[Message]]:
    """`committed` of several topics at once."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "check", "enable.auto.commit": False}
    marks = Consumer(settings | {"isolation.level": "read_uncommitted"})
    consumer = Consumer(
        settings | {"isolation.level": "read_committed", "enable.partition.eof": True, "fetch.wait.max.ms": 20}
    )
    try:
        places = [TopicPartition(topic, p, -2) for topic in topics for p in _partitions(marks, topic)]  # -2: the start
        consumer.assign(places)
        found: dict[tuple[str, int], list[Message]] = {(p.topic, p.partition): [] for p in places}
        bound = consumer if to_stable else marks
        ends = {(p.topic, p.partition): _high(bound, p) for p in places}
        deadline = time.monotonic() + PATIENCE_S
        while ends:
            assert time.monotonic() < deadline, f"not readable to the ends {ends}: an open transaction?"
            for message in consumer.consume(1000, 0.1):
                error = message.error()
                place = (str(message.topic()), int(message.partition() or 0))
                if error is None:
                    found[place].append(message)
                elif error.code() != KafkaError._PARTITION_EOF:
                    raise AssertionError(error)
                elif place in ends and int(message.offset() or 0) >= ends[place]:
                    del ends[place]
        return {t: [m for (topic, _), run in sorted(found.items()) if topic == t for m in run] for t in topics}
    finally:
        marks.close()
        consumer.close()


def _partitions(consumer: Consumer, topic: str) -> list[int]:
    found = consumer.list_topics(topic, timeout=10).topics[topic]
    assert found.error is None, found.error
    return sorted(found.partitions)


def _high(consumer: Consumer, place: TopicPartition) -> int:
    """The high watermark; of a topic that was just made as soon as its leader knows that it is."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            marks = consumer.get_watermark_offsets(place, timeout=10)
        except KafkaException as problem:
            if problem.args[0].code() not in _NOT_YET or time.monotonic() > deadline:
                raise
            consumer.poll(0.05)
        else:
            assert marks is not None
            return int(marks[1])


_NOT_YET = {KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError._UNKNOWN_PARTITION}


def end_offset(bootstrap: str, topic: str, partition: int = 0, *, to_stable: bool = False) -> int:
    """The high watermark, open transactions included; or the last stable offset, where the first open one begins."""
    level = "read_committed" if to_stable else "read_uncommitted"
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "check", "isolation.level": level})
    try:
        return _high(consumer, TopicPartition(topic, partition))
    finally:
        consumer.close()


def _avro(data: bytes, *names: str) -> dict[str, Any]:
    """A single Avro object, taken apart by that of the schema files whose fingerprint it has."""
    for name in names:
        schema = fastavro.parse_schema(json.loads((ROOT / "schemas" / f"{name}.avsc").read_text()))
        form = fastavro.schema.to_parsing_canonical_form(schema)
        if data[:10] == b"\xc3\x01" + bytes.fromhex(fastavro.schema.fingerprint(form, "CRC-64-AVRO")):
            found = fastavro.schemaless_reader(io.BytesIO(data[10:]), schema, None)
            assert isinstance(found, dict)
            return found
    raise AssertionError(f"none of {names} has the fingerprint of {data[:10].hex()}")


def backing(bootstrap: str, topic: str) -> list[list[dict[str, Any]]]:
    """The task records of each partition of a backing topic, oldest first (before compaction all of them)."""
    return _task_records(committed(bootstrap, topic))


def _task_records(messages: Iterable[Message]) -> list[list[dict[str, Any]]]:
    found: dict[int, list[dict[str, Any]]] = {}
    for message in messages:
        if message.key() == b"t":
            found.setdefault(int(message.partition() or 0), []).append(
                _avro(message.value() or b"", "backing", "stores", "tails", "replays")
            )
    return [found[p] for p in sorted(found)]


@dataclass(frozen=True, slots=True)
class World:
    """Everything that a processor has committed.

    Attributes:
        outputs: (key, value) of each output message, partition by partition.
        errors: error messages.
        totals: of the newest backing records, summed.
        outcomes: how often each consumed message has an output or an error: (binding, partition, offset) -> deliveries.
        newest: the newest backing record of each partition.
    """

    outputs: list[tuple[bytes | None, bytes | None]]
    errors: list[dict[str, Any]]
    totals: dict[str, int]
    outcomes: Counter[tuple[str, int, int]]
    newest: list[dict[str, Any]]

    @property
    def values(self) -> list[Any]:
        """Values of the outputs, JSON."""
        return [json.loads(value) if value is not None else None for _, value in self.outputs]


@dataclass(frozen=True, slots=True)
class Setup:
    """
    A graph of one processor `work` between topics of its own.

    Attributes:
        bootstrap: where.
        name: of the graph, and prefix of its topics.
    """

    bootstrap: str
    name: str

    @property
    def source(self) -> str:
        return f"{self.name}.in"

    @property
    def sink(self) -> str:
        return f"{self.name}.out"

    @property
    def errors(self) -> str:
        return f"{self.name}.errors"

    @property
    def backing(self) -> str:
        return f"{self.name}.work.backing"

    @property
    def transactional_id(self) -> str:
        return f"{self.name}.work.0"

    def graph(
        self, fn: Callable[..., Any], *, errors: bool = True, value: Any = None, partitions: int = 1, **settings: Any
    ) -> Graph:
        """One processor from source to sink."""
        settings = {"inputs": self.source, "outputs": self.sink} | settings
        return Graph(
            self.name,
            Source(self.source),
            Processor(fn, name="work", **settings),
            errors=self.errors if errors else None,
            defaults=Topic(value=value or Json(), partitions=partitions),
        )

    def start(self, graph: Graph, *, options: Mapping[str, Any] | None = None, **settings: Any) -> Running:
        """Run it in this process."""
        return start(graph, Kafka(self.bootstrap, **(options or {})), **settings)

    def send(self, *records: Record | bytes, transaction: bool = False) -> None:
        """Write to the source."""
        produce(self.bootstrap, self.source, records, transaction=transaction)

    def world(self, *, sinks: Sequence[str] | None = None, errors: bool = True) -> World:
        """What is committed now, in these topics (`sink` alone) and the errors topic."""
        sinks = [self.sink] if sinks is None else sinks
        found = committed_all(self.bootstrap, [*sinks, *([self.errors] if errors else []), self.backing])
        outputs = [message for sink in sinks for message in found[sink]]
        failed = found.get(self.errors, [])
        records = _task_records(found[self.backing])
        check_chain(records)
        totals = Counter[str]()
        for partition in records:
            totals.update(partition[-1]["totals"])
        return World(
            [(m.key(), m.value()) for m in outputs],
            [_avro(m.value() or b"", "error") for m in failed],
            {name: totals[name] for name in ("deliveries", "outputs", "errors", "nils")},
            outcomes([*outputs, *failed]),
            [partition[-1] for partition in records],
        )


def check_chain(partitions: Sequence[Sequence[Mapping[str, Any]]]) -> None:
    """I13: sequences have no gap and no repeat, and every record's totals are those before it and its batch."""
    for records in partitions:
        sequences = [r["sequence"] for r in records]
        assert sequences == list(range(sequences[0], sequences[0] + len(records))), sequences
        for before, after in pairwise(records):
            batch = after["batch"] if after["kind"] == "Attempt" else {}
            sums = {k: before["totals"].get(k, 0) + batch.get(k, 0) for k in before["totals"] | after["totals"]}
            assert after["totals"] == sums, (before, after)


def _text(header: str | bytes | None) -> str:
    assert isinstance(header, bytes)
    return header.decode()


def outcomes(messages: Iterable[Message]) -> Counter[tuple[str, int, int]]:
    """Deliveries of each consumed message by their provenance headers; one with a record missing fails."""
    parts: dict[tuple[str, str, str], Counter[str]] = {}
    for message in messages:
        headers = dict(message.headers() or [])
        _, task, sequence, places, part, offsets = _text(headers["cues"]).split(" ")
        parts.setdefault((task, sequence, f"{places} {offsets}"), Counter())[part] += 1
    found = Counter[tuple[str, int, int]]()
    for (task, _, consumed), seen in parts.items():
        count = int(next(iter(seen)).partition("/")[2])
        assert seen == Counter(f"{i}/{count}" for i in range(count)), f"torn or doubled: {task} {consumed} {seen}"
        places, offsets = consumed.split(" ")
        for place, offset in zip(places.split(","), offsets.split(","), strict=True):
            found[place.partition(":")[0], int(task.rpartition("/")[2]), int(offset)] += 1
    return found


# ---- child processes


class Program:
    """A program in a process of its own, which tells what it does in lines, and dies with its parent."""

    def __init__(self, argv: Sequence[str], **settings: Any) -> None:
        """
        Args:
            argv: of the program.
            settings: of `subprocess.Popen`; it runs in the root of the project unless they name a directory.
        """
        self.lines: list[str] = []
        self._news = threading.Condition()
        self.process = subprocess.Popen(
            argv,
            cwd=settings.pop("cwd", ROOT),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            **settings,
        )
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            print(f"--- child {self.process.pid}", *self.lines[-60:], sep="\n")
        self.kill()

    def expect(self, text: str, timeout_s: float = PATIENCE_S) -> str:
        """Wait for a line that has this text."""
        deadline = time.monotonic() + timeout_s
        with self._news:
            while True:
                for line in self.lines:
                    if text in line:
                        return line
                left = deadline - time.monotonic()
                assert left > 0, f"the child did not say {text!r}"
                assert self._listener.is_alive(), f"the child ended without saying {text!r}:\n" + "\n".join(
                    self.lines[-40:]
                )
                self._news.wait(min(left, 0.5))

    def paused(self, timeout_s: float = PATIENCE_S) -> None:
        """Wait until it has stopped itself."""
        status = Path(f"/proc/{self.process.pid}/stat")
        until(lambda: status.read_text().rpartition(") ")[2].startswith("T"), "the child is paused", timeout_s)

    def resume(self) -> None:
        """SIGCONT."""
        self.process.send_signal(signal.SIGCONT)

    def dead(self, timeout_s: float = PATIENCE_S) -> int:
        """Wait for its end; gives the exit code."""
        return self.process.wait(timeout_s)

    def ended_by(self, number: int, timeout_s: float = PATIENCE_S) -> int:
        """Send it a signal and wait for its end; gives the exit code."""
        self.process.send_signal(number)
        return self.dead(timeout_s)

    def ask(self, text: str) -> None:
        """Tell it a line."""
        assert self.process.stdin
        self.process.stdin.write(f"{text}\n")
        self.process.stdin.flush()

    def stop(self) -> None:
        """Let it leave in order."""
        self.ask("stop")
        assert self.dead() == 0, "\n".join(self.lines[-40:])

    def kill(self) -> None:
        """SIGKILL, if it lives."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self._listener.join(5)
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe:
                pipe.close()

    def _listen(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            with self._news:
                self.lines.append(line.rstrip())
                self._news.notify_all()
        with self._news:
            self._news.notify_all()


class Child(Program):
    """A graph in a process of its own."""

    def __init__(
        self,
        bootstrap: str,
        graph: str,
        *args: Any,
        options: Mapping[str, Any] | None = None,
        policy: Mapping[str, Any] | None = None,
        instance: str | None = None,
        point: tuple[str, int, str] | None = None,
    ) -> None:
        """
        Args:
            bootstrap: where.
            graph: `module:function` that makes the graph.
            args: of that function.
            options: of `Kafka`.
            policy: of `CommitPolicy`.
            instance: static member id.
            point: ("before Commit", n, "SIGSTOP"): the signal that it sends itself the n-th time that it comes there.
        """
        setup = {
            "bootstrap": bootstrap,
            "graph": graph,
            "args": args,
            "options": dict(options or {}),
            "policy": dict(policy or {}),
            "instance": instance,
            "point": point,
        }
        super().__init__([sys.executable, "-m", "tests.fault.support", json.dumps(setup)])


@dataclass
class Point:
    """A crash point: the process sends itself a signal there."""

    where: str
    count: int
    signal: str
    seen: int = field(default=0)

    def __call__(self, moment: str, name: str) -> None:
        if f"{moment} {name}" != self.where:
            return
        self.seen += 1
        if self.seen == self.count:
            say(f"at {self.where}")
            os.kill(os.getpid(), signal.Signals[self.signal])


def say(text: str) -> None:
    """Tell the parent."""
    os.write(1, f"{text}\n".encode())


def run_child(setup: Mapping[str, Any], engine: Engine | None = None) -> int:
    """The child's program: run the graph until told to stop, or until the parent is gone."""
    logging.basicConfig(level=logging.INFO, format="%(relativeCreated)d %(name)s %(message)s", stream=sys.stdout)
    module, _, factory = str(setup["graph"]).partition(":")
    graph = getattr(importlib.import_module(module), factory)(*setup["args"])
    hook = Point(*setup["point"]) if setup["point"] else None
    asked = threading.Event()

    def listen() -> None:
        if sys.stdin.readline() != "stop\n":
            os._exit(9)
        asked.set()

    threading.Thread(target=listen, daemon=True).start()
    policy = CommitPolicy(**setup["policy"])
    try:
        running = start(
            graph,
            Kafka(setup["bootstrap"], **setup["options"]),
            engine=engine,
            hook=hook,
            policy=policy,
            instance=setup["instance"],
        )
        with running:
            say("started")
            said: list[str] = []
            while not asked.wait(0.1):
                stopped = [f"stopped {t.task}: {t.stopped} ({t.remedy})" for t in running.status().stopped]
                for line in stopped:
                    if line not in said:
                        say(line)
                said = stopped
    except TaskStopped as error:
        say(f"TaskStopped: {error}")
        return 3
    say("left")
    return 0


class Children(ExitStack):
    """Several children, all ended with the block."""

    def add(self, *args: Any, **settings: Any) -> Child:
        """Start one more."""
        return self.enter_context(Child(*args, **settings))


if __name__ == "__main__":
    sys.exit(run_child(json.loads(sys.argv[1])))

"""
Both sides of `bridges`, as child processes: cues-kafka, and a plain client loop that does the same job.

The loop reads up to `BATCH` messages from the other broker, writes them into Kafka in one transaction, and acknowledges
them behind its commit; or it reads them from Kafka, publishes them, waits until the other broker has confirmed all, and
commits the positions. It is what a good program has by hand, and no more: it remembers nothing of what it has had, so a
crash doubles messages. It does not reconnect.
"""

from __future__ import annotations

import argparse
import gc
import queue
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any
from urllib.parse import urlsplit

import paho.mqtt.client as mqtt
import pika
from confluent_kafka import Consumer, Producer
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from benchmarks.bridges_amqp import AmqpReader, AmqpWriter
from cues_kafka import Amqp, CommitPolicy, Feed, Graph, Kafka, Mqtt, RabbitMq, Raw, Sink, Source, Stomp, Topic, start
from cues_kafka.bridges.stomp.frames import Frame, Parser

BATCH = 500
"""Messages in a transaction."""

WINDOW = 1_000
"""Messages that the other broker delivers without an acknowledgement: two batches."""

WAIT_S = 0.1
Row = tuple[bytes, list[tuple[str, str | bytes]], Any]
"""Value, headers, and what acknowledges it."""


# cues-kafka


def graph_of(case: str, url: str, name: str, port: int) -> Graph:
    """The bridge of a case: a feed into the topic `name`, or a sink of it."""
    kind, _, way = case.rpartition("-")
    broker: Any
    if kind == "amqp":
        broker = Amqp(url)
    else:
        broker = RabbitMq(url) if url.startswith("amqp") else Stomp(url) if url.startswith("stomp") else Mqtt
    made = Topic(value=Raw(), partitions=1)
    if way == "in":
        sources: dict[str, Callable[[], Any]] = {
            "classic": lambda: broker.queue(name, prefetch=WINDOW),
            "quorum": lambda: broker.queue(name, prefetch=WINDOW),
            "stream": lambda: broker.stream(name, prefetch=WINDOW),
            "mqtt": lambda: Mqtt(url, topics=[f"{name}/#"], session=name, prefetch=WINDOW),
            "activemq": lambda: Stomp(url, queue=name, prefetch=WINDOW),
            "artemis": lambda: Stomp(url, queue=name, prefetch=WINDOW, window_bytes=WINDOW * 300),
            "amqp": lambda: broker.queue(name, prefetch=WINDOW),
        }
        return Graph(name, Feed(sources[kind](), into=name, name="feed"), defaults=made)
    targets: dict[str, Callable[[], Any]] = {
        "classic": lambda: broker.exchange("", name),
        "quorum": lambda: broker.exchange("", name),
        "stream": lambda: broker.to_stream(name, port=port),
        "mqtt": lambda: Mqtt(url).topic(f"{name}/out"),
        "activemq": lambda: broker.to_queue(name),
        "artemis": lambda: broker.to_queue(name),
        "amqp": lambda: broker.to_queue(name),
    }
    return Graph(name, Source(name), Sink("sink", inputs=name, into=targets[kind]()), defaults=made)


def run_cues(case: str, url: str, name: str, port: int, bootstrap: str) -> None:
    """Run the bridge until SIGTERM."""
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    policy = CommitPolicy(max_messages=BATCH)
    with start(graph_of(case, url, name, port), Kafka(bootstrap), policy=policy):
        ended.wait()


# By hand: into Kafka


class RabbitReader:
    """pika's blocking connection, with a callback for each message."""

    def __init__(self, url: str, name: str, *, stream: bool) -> None:
        self._connection = pika.BlockingConnection(pika.URLParameters(url))
        self._channel = self._connection.channel()
        self._channel.basic_qos(prefetch_count=WINDOW)
        self._rows: list[Row] = []
        self._channel.basic_consume(
            name, self._arrived, arguments={"x-stream-offset": "first"} if stream else None, exclusive=False
        )

    def _arrived(self, _: Any, delivered: Any, properties: Any, body: bytes) -> None:
        headers: list[tuple[str, str | bytes]] = (
            [("message-id", properties.message_id)] if properties.message_id else []
        )
        self._rows.append((body, headers, delivered.delivery_tag))

    def take(self) -> list[Row]:
        """Up to `BATCH` messages."""
        if len(self._rows) < BATCH:
            self._connection.process_data_events(WAIT_S)
        rows, self._rows = self._rows[:BATCH], self._rows[BATCH:]
        return rows

    def ack(self, tokens: Sequence[Any]) -> None:
        """All up to the last one."""
        self._channel.basic_ack(tokens[-1], multiple=True)
        self._connection.process_data_events(0)


class MqttReader:
    """paho on its thread, with acknowledgements by hand."""

    def __init__(self, url: str, name: str) -> None:
        address = urlsplit(url)
        self._rows: queue.SimpleQueue[Row] = queue.SimpleQueue()
        self._client = mqtt.Client(CallbackAPIVersion.VERSION2, name, protocol=mqtt.MQTTv5, manual_ack=True)
        self._client.on_message = lambda _, __, one: self._rows.put(
            (bytes(one.payload), [("mqtt.topic", one.topic)], (one.mid, one.qos))
        )
        session = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
        session.SessionExpiryInterval, session.ReceiveMaximum = 2**32 - 1, WINDOW
        self._client.connect(address.hostname or "", address.port or 1883, clean_start=False, properties=session)
        self._client.loop_start()

    def take(self) -> list[Row]:
        """Up to `BATCH` messages."""
        rows: list[Row] = []
        try:
            while len(rows) < BATCH:
                rows.append(self._rows.get(timeout=WAIT_S / 10))
        except queue.Empty:
            pass
        return rows

    def ack(self, tokens: Sequence[Any]) -> None:
        """Each one by itself."""
        for number, qos in tokens:
            self._client.ack(number, qos)


class StompLine:
    """A socket that speaks STOMP, with a parser of frames; by hand one would take a package, which does the same."""

    def __init__(self, url: str) -> None:
        address = urlsplit(url)
        self._socket = socket.create_connection((address.hostname or "", address.port or 61613))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._parser = Parser(1 << 20)
        self.frames: list[Frame] = []
        self.send([Frame("CONNECT", {"accept-version": "1.2", "host": "localhost", "login": "", "passcode": ""})])
        self.server = self.until("CONNECTED").headers.get("server", "")

    def send(self, frames: Iterable[Frame]) -> None:
        """Send frames in one write."""
        self._socket.sendall(b"".join(one.encode() for one in frames))

    def receive(self) -> bool:
        """Take in what comes; False: nothing does."""
        self._socket.settimeout(WAIT_S)
        try:
            data = self._socket.recv(1 << 16)
        except TimeoutError:
            return False
        finally:
            self._socket.settimeout(None)
        if not data:
            raise ConnectionError("the broker has closed the connection")
        self.frames += self._parser.feed(data)
        return True

    def until(self, command: str) -> Frame:
        """Wait for a frame; messages before it stay."""
        while True:
            for at, one in enumerate(self.frames):
                if one.command == command:
                    self.frames = self.frames[:at] + self.frames[at + 1 :]
                    return one
                if one.command == "ERROR":
                    raise ConnectionError(one.body.decode())
            self.receive()

    def close(self) -> None:
        """Disconnect."""
        self._socket.close()

    def destination(self, name: str) -> dict[str, str]:
        """A queue."""
        classic = self.server.startswith("ActiveMQ/")
        return {"destination": f"/queue/{name}"} if classic else {"destination": name, "destination-type": "ANYCAST"}


class StompDrain:
    """Takes all messages of a queue, and looks at none."""

    def __init__(self, url: str, name: str) -> None:
        self._line, self._taken = StompLine(url), 0
        own = {"id": "1", "ack": "auto", "subscription-type": "ANYCAST", **self._line.destination(name)}
        self._line.send([Frame("SUBSCRIBE", own)])

    def taken(self) -> int:
        """How many have come by now; it waits for some."""
        self._line.receive()
        self._taken += sum(one.command == "MESSAGE" for one in self._line.frames)
        self._line.frames.clear()
        return self._taken

    def close(self) -> None:
        """Disconnect."""
        self._line.close()


class StompReader:
    """A subscription with an acknowledgement for each message, and a receipt for those of a batch."""

    def __init__(self, url: str, name: str) -> None:
        self._line = StompLine(url)
        self._number = 0
        self._line.send(
            [
                Frame(
                    "SUBSCRIBE",
                    {
                        "id": "1",
                        "ack": "client-individual",
                        "activemq.prefetchSize": str(WINDOW),
                        "consumer-window-size": str(WINDOW * 300),
                        "subscription-type": "ANYCAST",
                        **self._line.destination(name),
                    },
                )
            ]
        )

    def take(self) -> list[Row]:
        """Up to `BATCH` messages."""
        line = self._line
        while len(line.frames) < BATCH and line.receive():
            pass
        taken, line.frames = line.frames[:BATCH], line.frames[BATCH:]
        return [(one.body, [("message-id", one.headers["message-id"])], one.headers["ack"]) for one in taken]

    def ack(self, tokens: Sequence[Any]) -> None:
        """Each one by itself."""
        self._number += 1
        last = {"receipt": str(self._number)}
        self._line.send([*(Frame("ACK", {"id": one}) for one in tokens[:-1]), Frame("ACK", {"id": tokens[-1], **last})])
        self._line.until("RECEIPT")


def run_into_kafka(reader: Any, name: str, bootstrap: str) -> None:
    """Read, commit in Kafka, acknowledge."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": f"{name}-hand",
            "compression.type": "lz4",
            "linger.ms": 5,
            "retry.backoff.ms": 2,
        }
    )
    producer.init_transactions()
    while True:
        rows = reader.take()
        if not rows:
            continue
        producer.begin_transaction()
        for value, headers, _ in rows:
            producer.produce(name, value, headers=headers, partition=0)
        producer.commit_transaction()
        reader.ack([token for _, _, token in rows])


# By hand: out of Kafka


class RabbitWriter:
    """pika's asynchronous connection on its thread, with confirmations; a blocking one waits for each message."""

    def __init__(self, url: str, name: str) -> None:
        self._name, self._news, self._open = name, threading.Condition(), threading.Event()
        self._published = self._confirmed = 0
        self._connection = pika.SelectConnection(
            pika.URLParameters(url), on_open_callback=lambda one: one.channel(on_open_callback=self._opened)
        )
        threading.Thread(target=self._connection.ioloop.start, daemon=True).start()
        self._open.wait()

    def _opened(self, channel: Any) -> None:
        self._channel = channel
        channel.confirm_delivery(self._told, callback=lambda _: self._open.set())

    def _told(self, frame: Any) -> None:
        with self._news:
            tag = frame.method.delivery_tag
            self._confirmed = tag if frame.method.multiple else self._confirmed + 1
            self._news.notify_all()

    def publish(self, rows: Sequence[tuple[str, bytes]]) -> None:
        """Publish, and wait until all are confirmed."""

        def send() -> None:
            for number, value in rows:
                properties = pika.BasicProperties(message_id=number, delivery_mode=2)
                self._channel.basic_publish("", self._name, value, properties, mandatory=True)

        self._published += len(rows)
        self._connection.ioloop.add_callback_threadsafe(send)
        with self._news:
            self._news.wait_for(lambda: self._confirmed >= self._published)


class MqttWriter:
    """paho on its thread, with QoS 1."""

    def __init__(self, url: str, name: str) -> None:
        address = urlsplit(url)
        self._name = f"{name}/out"
        self._client = mqtt.Client(CallbackAPIVersion.VERSION2, f"{name}-hand", protocol=mqtt.MQTTv5)
        self._client.max_inflight_messages_set(WINDOW)
        self._client.connect(address.hostname or "", address.port or 1883)
        self._client.loop_start()
        while not self._client.is_connected():
            threading.Event().wait(WAIT_S)

    def publish(self, rows: Sequence[tuple[str, bytes]]) -> None:
        """Publish, and wait until all are acknowledged."""
        sent = []
        for number, value in rows:
            properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
            properties.UserProperty = ("cues-id", number)
            sent.append(self._client.publish(self._name, value, 1, properties=properties))
        for one in sent:
            one.wait_for_publish()


class StompWriter:
    """A transaction of the broker for each batch."""

    def __init__(self, url: str, name: str) -> None:
        self._line, self._number = StompLine(url), 0
        self._where = self._line.destination(name)

    def publish(self, rows: Sequence[tuple[str, bytes]]) -> None:
        """Send all, and wait for the receipt of the commit."""
        self._number += 1
        own = {"transaction": str(self._number)}
        headers = {**self._where, **own, "persistent": "true"}
        self._line.send(
            [
                Frame("BEGIN", own),
                *(Frame("SEND", headers, value) for _, value in rows),
                Frame("COMMIT", {**own, "receipt": "1"}),
            ]
        )
        self._line.until("RECEIPT")


def run_out_of_kafka(writer: Any, name: str, bootstrap: str) -> None:
    """Read, publish and have it confirmed, commit the positions."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"{name}-hand",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 100,
            "fetch.queue.backoff.ms": 10,
        }
    )
    consumer.subscribe([name])
    while True:
        messages = consumer.consume(BATCH, WAIT_S)
        if messages:
            writer.publish([(f"{one.partition()}-{one.offset()}", one.value()) for one in messages])
            consumer.commit(asynchronous=False)


def run_by_hand(case: str, url: str, name: str, bootstrap: str) -> None:
    """Run the loop until SIGTERM ends it."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    kind, _, way = case.rpartition("-")
    if way == "in":
        readers: dict[str, Callable[[], Any]] = {
            "stream": lambda: RabbitReader(url, name, stream=True),
            "mqtt": lambda: MqttReader(url, name),
            "activemq": lambda: StompReader(url, name),
            "artemis": lambda: StompReader(url, name),
            "amqp": lambda: AmqpReader(url, name, WINDOW, BATCH, WAIT_S),
        }
        run_into_kafka(readers.get(kind, lambda: RabbitReader(url, name, stream=False))(), name, bootstrap)
    writers: dict[str, Callable[[], Any]] = {
        "mqtt": lambda: MqttWriter(url, name),
        "activemq": lambda: StompWriter(url, name),
        "artemis": lambda: StompWriter(url, name),
        "amqp": lambda: AmqpWriter(url, name, WINDOW),
    }
    run_out_of_kafka(writers.get(kind, lambda: RabbitWriter(url, name))(), name, bootstrap)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("side", "case", "url", "name", "bootstrap"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--port", type=int, default=0)
    given = parser.parse_args()
    gc.freeze()  # as in a worker that `cues-kafka run` starts
    gc.set_threshold(50_000, 20, 100)
    if given.side == "cues":
        run_cues(given.case, given.url, given.name, given.port, given.bootstrap)
    else:
        run_by_hand(given.case, given.url, given.name, given.bootstrap)


if __name__ == "__main__":
    main()

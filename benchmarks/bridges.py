"""Each bridge to another broker, in and out, beside a plain client loop with the same acknowledgements."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import paho.mqtt.client as mqtt
import pika
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from benchmarks.bridges_amqp import AmqpWriter
from benchmarks.bridges_side import BATCH, WINDOW, StompDrain, StompLine
from benchmarks.harness import Cluster, alternating, child, cpu_s, median, spread, unique, until, values_of
from benchmarks.report import Section, holds
from cues_kafka.bridges.stomp.frames import Frame
from tests.servers.activemq import ActiveMq
from tests.servers.artemis import Artemis
from tests.servers.mosquitto import Mosquitto
from tests.servers.rabbitmq import RabbitMq as RabbitMqServer

GOAL = 0.7
SHARE = 10
"""The first part of the messages is for the start, and is not measured."""

EVERY_S = 0.02
PATIENCE_S = 300.0


@dataclass(frozen=True, slots=True)
class Bridge:
    """
    One bridge, one way.

    Attributes:
        title: of its row.
        case: as `bridges_side` has it: its kind, and `in` or `out`.
        server: the broker.
        per_s: messages a second of the quicker side, about. A run has as many as that side moves in its time.
    """

    title: str
    case: str
    server: str
    per_s: int


BRIDGES = (
    Bridge("RabbitMQ, classic queue to Kafka", "classic-in", "rabbitmq", 16_000),
    Bridge("RabbitMQ, quorum queue to Kafka", "quorum-in", "rabbitmq", 29_000),
    Bridge("RabbitMQ, stream to Kafka", "stream-in", "rabbitmq", 22_000),
    Bridge("MQTT to Kafka", "mqtt-in", "mosquitto", 31_000),
    Bridge("ActiveMQ Classic to Kafka, STOMP", "activemq-in", "activemq", 5_300),
    Bridge("Artemis to Kafka, STOMP", "artemis-in", "artemis", 27_000),
    Bridge("Artemis to Kafka, AMQP 1.0", "amqp-in", "artemis", 12_000),
    Bridge("Kafka to RabbitMQ, classic queue", "classic-out", "rabbitmq", 15_000),
    Bridge("Kafka to RabbitMQ, quorum queue", "quorum-out", "rabbitmq", 19_000),
    Bridge("Kafka to RabbitMQ, stream", "stream-out", "rabbitmq", 35_000),
    Bridge("Kafka to MQTT", "mqtt-out", "mosquitto", 4_000),
    Bridge("Kafka to ActiveMQ Classic, STOMP", "activemq-out", "activemq", 7_700),
    Bridge("Kafka to Artemis, STOMP", "artemis-out", "artemis", 32_000),
    Bridge("Kafka to Artemis, AMQP 1.0", "amqp-out", "artemis", 10_300),
)
"""Another bridge is a row here, and what its two sides do in `bridges_side`."""

HOW = f"""100-byte values that are there from the beginning, batches of {BATCH}, and a window of {WINDOW:,} messages
without an acknowledgement. *To Kafka*: the other broker's messages are written in one transaction, and acknowledged
after its commit. *From Kafka*: they are published and confirmed, then the positions are committed. By hand,
[benchmarks/bridges_side.py](../benchmarks/bridges_side.py): a plain loop with pika, paho, Proton or a socket that
speaks STOMP by our own frames, and the same acknowledgements and durability. It remembers nothing of what it has had,
so a crash doubles messages; it carries one header, and ends at the first error. A process outside looks every
{EVERY_S * 1000:.0f} ms at the end of
the topic, or at the group's positions. The rate is that behind the first tenth. *CPU* is processor time of the process
for each message over the same stretch; its ratio is that of the loop to ours, so that more is better in both.
ActiveMQ Classic and Artemis have a heap of 1 GB for both sides, so that they hold all messages of a run."""


class _Roomy(Artemis):
    """An Artemis whose queues hold a run."""

    heap = "1g"


class _RoomyActiveMq(ActiveMq):
    """An ActiveMQ Classic whose queues may grow, too; else it makes publishers wait for consumers, who do not come."""

    heap = "1g"


SERVERS: dict[str, Callable[[], Any]] = {
    "rabbitmq": RabbitMqServer,
    "mosquitto": lambda: Mosquitto(settings={"autosave_on_changes": "false", "max_inflight_messages": str(WINDOW)}),
    "activemq": _RoomyActiveMq,
    "artemis": _Roomy,
}


@dataclass(frozen=True, slots=True)
class Rate:
    """One run: messages a second, and processor time in microseconds for each."""

    per_s: float
    cpu_us: float


def measure(repetitions: int, seconds: float, cluster: Cluster, only: str = "") -> Section:
    """Measure all bridges, both sides in turn; a run of the quicker side takes about `seconds`."""
    section = Section(
        "Bridges",
        f"{HOW}\nA run lasts about {seconds:g} s on the quicker side; medians of {repetitions} runs (min to max).",
        ("bridge", "cues-kafka, /s", "by hand, /s", "ratio", "CPU us: ours", "by hand", "ratio", f"goal >= {GOAL}"),
    )
    for bridge in [one for one in BRIDGES if one.case.startswith(only)]:
        runs: dict[str, list[Rate]] = {"cues": [], "hand": []}
        with ExitStack() as running:
            server = SERVERS[bridge.server]()
            running.callback(server.close)
            server.start()
            for sides in alternating(repetitions):
                for side in sides:
                    runs[side].append(_run(side, bridge, server, int(bridge.per_s * seconds), cluster))
        section.rows.append(_row(bridge, runs["cues"], runs["hand"]))
        print(section.rows[-1], flush=True)
    return section


def _row(bridge: Bridge, ours: list[Rate], hand: list[Rate]) -> list[str]:
    rate = median([one.per_s for one in ours]) / median([one.per_s for one in hand])
    cpu = median([one.cpu_us for one in hand]) / median([one.cpu_us for one in ours])
    return [
        bridge.title,
        spread([one.per_s for one in ours]),
        spread([one.per_s for one in hand]),
        f"{rate:.2f}",
        f"{median([one.cpu_us for one in ours]):.0f}",
        f"{median([one.cpu_us for one in hand]):.0f}",
        f"{cpu:.2f}",
        f"rate: {holds(rate >= GOAL)}, CPU: {holds(cpu >= GOAL)}",
    ]


def _run(side: str, bridge: Bridge, server: Any, count: int, cluster: Cluster) -> Rate:
    """One run of one side, with messages of its own."""
    values = values_of("raw")
    name = cluster.create(unique(f"bridge-{bridge.case}-"))
    url = _amqp(server) if bridge.case.startswith("amqp-") else server.url()
    _declare(bridge, server, name)
    if bridge.case.endswith("-in"):
        _load(bridge, server, name, values, count)
    else:
        cluster.fill(name, values, count)
    group = f"{name}-hand" if side == "hand" else f"{name}.sink"

    def done() -> int:
        return cluster.marks(name).high if bridge.case.endswith("-in") else cluster.committed(group, name, 1)

    options = {"side": side, "case": bridge.case, "url": url, "name": name, "bootstrap": cluster.bootstrap}
    if bridge.server == "rabbitmq":
        options["port"] = str(server.stream_port)
    command = [sys.executable, "-m", "benchmarks.bridges_side", *(f"--{key}={one}" for key, one in options.items())]
    with child(command, os.environ) as process:

        def reached(most: int) -> tuple[float, float, int]:
            until(lambda: done() >= most, timeout_s=PATIENCE_S, every_s=EVERY_S, what=bridge.title, process=process)
            return time.monotonic(), cpu_s(process), done()

        began, cpu_before, first = reached(count // SHARE)
        ended, cpu_behind, last = reached(count)
    cluster.delete(name)
    _empty(bridge, server, name, count)
    moved = min(last, count) - first
    return Rate(moved / (ended - began), 1e6 * (cpu_behind - cpu_before) / moved)


def _amqp(server: Any) -> str:
    """Where a broker speaks AMQP 1.0 beside its first protocol."""
    return f"amqp://127.0.0.1:{server.amqp_port}"


def _declare(bridge: Bridge, server: Any, name: str) -> None:
    """Make the queue or the session."""
    if bridge.server == "rabbitmq":
        with pika.BlockingConnection(pika.URLParameters(server.url())) as connection:
            kind = {"x-queue-type": bridge.case.partition("-")[0]}
            connection.channel().queue_declare(name, durable=True, arguments=kind)
    elif bridge.server == "mosquitto" and bridge.case.endswith("-in"):
        client = _device(server, name, 2**32 - 1)
        granted: list[int] = []
        client.on_subscribe = lambda *_: granted.append(1)
        client.subscribe(f"{name}/#", 1)
        until(lambda: bool(granted), timeout_s=PATIENCE_S, every_s=EVERY_S, what="subscribed")
        client.disconnect()
        client.loop_stop()


def _empty(bridge: Bridge, server: Any, name: str, count: int) -> None:
    """Take away what a run has left at the broker, so that the next one finds it as this one did."""
    if bridge.server == "rabbitmq":
        with pika.BlockingConnection(pika.URLParameters(server.url())) as connection:
            connection.channel().queue_delete(name)
    elif bridge.server in ("activemq", "artemis") and bridge.case.endswith("-out"):
        drain = StompDrain(server.url(), name)
        until(lambda: drain.taken() >= count, timeout_s=PATIENCE_S, every_s=0, what=f"empty: {name}")
        drain.close()


def _device(server: Any, name: str, expiry_s: int = 0) -> mqtt.Client:
    address = urlsplit(server.url())
    client = mqtt.Client(CallbackAPIVersion.VERSION2, name, protocol=mqtt.MQTTv5)
    session = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
    session.SessionExpiryInterval = expiry_s
    client.max_inflight_messages_set(WINDOW)
    client.connect(address.hostname or "", address.port or 1883, clean_start=not expiry_s, properties=session)
    client.loop_start()
    until(client.is_connected, timeout_s=PATIENCE_S, every_s=EVERY_S, what="connected")
    return client


def _load(bridge: Bridge, server: Any, name: str, values: list[bytes], count: int) -> None:
    """Give the other broker all messages."""
    if bridge.server == "rabbitmq":
        with pika.BlockingConnection(pika.URLParameters(server.url())) as connection:
            channel = connection.channel()
            for number in range(count):
                properties = pika.BasicProperties(message_id=f"{name}-{number}", delivery_mode=2)
                channel.basic_publish("", name, values[number % len(values)], properties)
            until(
                lambda: channel.queue_declare(name, passive=True).method.message_count >= count,
                timeout_s=PATIENCE_S,
                every_s=EVERY_S,
                what="loaded",
            )
    elif bridge.server == "mosquitto":
        client = _device(server, f"{name}-load")
        for begin in range(0, count, BATCH):  # a client has 65,535 ids
            some = range(begin, min(begin + BATCH, count))
            for one in [client.publish(f"{name}/a", values[number % len(values)], 1) for number in some]:
                one.wait_for_publish()
        client.disconnect()
        client.loop_stop()
    elif bridge.case.startswith("amqp-"):
        writer = AmqpWriter(_amqp(server), name, WINDOW)
        for begin in range(0, count, BATCH):
            some = range(begin, min(begin + BATCH, count))
            writer.publish([(f"{name}-{number}", values[number % len(values)]) for number in some])
        writer.close()
    else:
        line = StompLine(server.url())
        headers = {**line.destination(name), "persistent": "true"}
        for begin in range(0, count, BATCH):
            some = range(begin, min(begin + BATCH, count))
            line.send(
                [
                    *(Frame("SEND", headers, values[number % len(values)]) for number in some[:-1]),
                    Frame("SEND", {**headers, "receipt": "1"}, values[some[-1] % len(values)]),
                ]
            )
            line.until("RECEIPT")

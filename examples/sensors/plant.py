"""The plant: sensors that publish readings, a siren that hears alarms, and what both should be."""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter, deque
from typing import Any, Final

from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from examples.sensors.graph import HOT, TIMES

SENSORS: Final = 20
WINDOW: Final = 20
"""Readings under way to the broker at most."""

ANSWER_S: Final = 5.0
FOREVER: Final = 2**32 - 1


def readings(count: int, seed: int) -> list[dict[str, Any]]:
    """Readings of all sensors, in the order in which they are published."""
    draw = random.Random(seed)
    numbers: Counter[str] = Counter()
    found = []
    for _ in range(count):
        sensor = f"s{draw.randrange(SENSORS):02}"
        numbers[sensor] += 1
        found.append({"sensor": sensor, "number": numbers[sensor], "celsius": draw.randrange(60, 101)})
    return found


def alarms(given: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The readings that raise an alarm, computed in one pass without a crash."""
    row: Counter[str] = Counter()
    found = []
    for reading in given:
        sensor = reading["sensor"]
        row[sensor] = row[sensor] + 1 if reading["celsius"] > HOT else 0
        if row[sensor] == TIMES:
            found.append(reading)
    return found


class Plant(threading.Thread):
    """
    Publishes readings in order, each with an id. After a lost connection it publishes again what was not acknowledged.

    Attributes:
        sent: readings that the broker has acknowledged.
        repeated: readings that were published more than once.
        error: why it ended before the last reading; None: it has not.
    """

    def __init__(self, port: int, given: list[dict[str, Any]], rate: float) -> None:
        super().__init__(name="plant", daemon=True)
        self.sent = self.repeated = 0
        self.error: BaseException | None = None
        self._port, self._rate = port, rate
        self._left = deque(given)
        self._news = threading.Condition()
        self._under_way: dict[int, dict[str, Any]] = {}
        self._early: set[int] = set()  # acknowledged before `publish` of the client has said its number

    def run(self) -> None:
        """Publish all readings."""
        try:
            while self._left:
                self._publish()
        except BaseException as error:
            self.error = error
            raise

    def _publish(self) -> None:
        """Publish as long as the connection is there."""
        client, lost = _client(""), threading.Event()
        client.on_publish = lambda _, __, number, *___: self._heard(number)
        client.on_disconnect = lambda *_: self._ended(lost)
        try:
            client.connect("127.0.0.1", self._port)
        except OSError:
            time.sleep(0.1)
            return
        client.loop_start()
        while self._left and not lost.is_set():
            with self._news:
                if len(self._under_way) >= WINDOW:
                    self._news.wait(ANSWER_S)
                    continue
            reading = self._left.popleft()
            topic = f"plant/{reading['sensor']}/celsius"
            name = f"{reading['sensor']}-{reading['number']}"
            info = client.publish(topic, json.dumps(reading), qos=1, properties=_with_id(name))
            with self._news:
                if info.mid in self._early:
                    self._early.remove(info.mid)
                else:
                    self._under_way[info.mid] = reading
            time.sleep(1 / self._rate)
        with self._news:
            self._news.wait_for(lambda: not self._under_way or lost.is_set(), ANSWER_S)
            self.repeated += len(self._under_way)
            self._left.extendleft(reversed(self._under_way.values()))
            self._under_way.clear()
            self._early.clear()
        client.disconnect()
        client.loop_stop()

    def _heard(self, number: int) -> None:
        with self._news:
            if self._under_way.pop(number, None) is None:
                self._early.add(number)
            self.sent += 1
            self._news.notify_all()

    def _ended(self, lost: threading.Event) -> None:
        lost.set()
        with self._news:
            self._news.notify_all()


class Siren:
    """
    Hears alarms in a session that the broker keeps.

    Attributes:
        heard: each alarm by its id.
        repeated: alarms that came more than once, which the ids tell.
    """

    def __init__(self, port: int) -> None:
        self.heard: dict[str, dict[str, Any]] = {}
        self.repeated = 0
        self._lock = threading.Lock()
        self._client = _client("siren")
        self._client.on_message = self._hear
        granted = threading.Event()
        self._client.on_subscribe = lambda *_: granted.set()
        properties: Any = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
        properties.SessionExpiryInterval = FOREVER
        self._client.reconnect_delay_set(min_delay=1, max_delay=1)
        self._client.connect("127.0.0.1", port, clean_start=False, properties=properties)
        self._client.loop_start()
        self._client.subscribe("alarms/#", qos=1)
        if not granted.wait(ANSWER_S):
            raise TimeoutError("the broker did not answer the siren")

    def close(self) -> None:
        """Leave."""
        self._client.disconnect()
        self._client.loop_stop()

    def _hear(self, _client: Client, _data: object, message: MQTTMessage) -> None:
        name = dict(message.properties.UserProperty)["cues-id"]  # type: ignore[union-attr]
        with self._lock:
            self.repeated += name in self.heard
            self.heard[name] = json.loads(message.payload)


def _client(name: str) -> Client:
    return Client(CallbackAPIVersion.VERSION2, client_id=name, protocol=MQTTProtocolVersion.MQTTv5)


def _with_id(name: str) -> Properties:
    made: Any = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
    made.UserProperty = [("cues-id", name)]
    return made  # type: ignore[no-any-return]

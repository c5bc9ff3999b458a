"""The graph: readings from a broker of MQTT, an alarm at the third hot one in a row, alarms to the same broker."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from cues_kafka import Feed, Graph, Json, Mqtt, Processor, Sink, State, Store, Topic

HOT, TIMES = 80, 3

ADDRESS = "SENSORS_BROKER"
"""The environment variable with the address of the broker."""

SESSION = "sensors-demo"


@dataclass(frozen=True)
class Reading:
    """What a sensor has measured; `number` counts its readings."""

    sensor: str
    number: int
    celsius: int


def watch(reading: Reading, hot: State[int]) -> dict[str, Any] | None:
    """Give the reading that raises an alarm."""
    hot[reading.sensor] = hot.get(reading.sensor, 0) + 1 if reading.celsius > HOT else 0
    return asdict(reading) if hot[reading.sensor] == TIMES else None


broker = Mqtt(env=ADDRESS, topics=["plant/+/celsius"], session=SESSION, key=1)

# `make demo-sensors` kills the processes, so no message is to blame for a death: quarantine_after=None.
graph = Graph(
    "sensors",
    Feed(broker, into="readings", name="plant"),
    Processor(watch, inputs="readings", outputs="alarms", state={"hot": Store(Json(int))}, quarantine_after=None),
    Sink("tell", inputs="alarms", into=broker.topic("alarms/{key}"), quarantine_after=None),
    errors="sensors.errors",
    topics={"readings": Topic(value=Json(Reading), key="sensor"), "alarms": Topic(value=Json(), key="sensor")},
    defaults=Topic(partitions=2),
)

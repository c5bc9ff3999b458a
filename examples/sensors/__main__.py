"""``python -m examples.sensors``: publish, kill, compare; the exit code is 1 if anything differs."""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console

from cues_kafka import Kafka, connect
from cues_kafka.brokers.local import LocalBroker
from cues_kafka.brokers.open import open_broker
from cues_kafka.cli.supervise import worker_command
from cues_kafka.task.making.prepare import prepare
from cues_kafka.verify.scan import verify
from cues_kafka.workers.supervisor import Supervisor
from examples.sensors.graph import ADDRESS, graph
from examples.sensors.plant import Plant, Siren, alarms, readings
from tests.servers.mosquitto import Mosquitto

ROOT = Path(__file__).parents[2]

STALLED_S = 120.0
"""The run fails after this time without news."""

DOWN_S = (0.2, 1.5)
"""How long a stopped MQTT broker is down: between these, in seconds."""


def main(arguments: list[str] | None = None) -> int:
    """Run the demo, and return its exit code."""
    args = _parser().parse_args(arguments)
    console = Console()
    args.seed = args.seed if args.seed is not None else random.randrange(2**32)
    began = time.monotonic()
    with LocalBroker(say=lambda text: console.print(text, markup=False)) as kafka, Mosquitto() as mosquitto:
        os.environ[ADDRESS] = mosquitto.url()
        console.print(f"{args.readings:,} readings, {args.kills} stops, seed {args.seed}", highlight=False)
        differences = Run(kafka, mosquitto, args, console).run()
    for difference in differences:
        console.print(f"[red]unequal[/]: {difference}", highlight=False)
    verdict = "[red]NOT exactly once" if differences else "[green]every reading and every alarm exactly once"
    console.print(f"{verdict}[/] ({time.monotonic() - began:.0f} s in all)")
    return 1 if differences else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m examples.sensors",
        description="Send readings from MQTT through Kafka and alarms back, kill processes meanwhile, compare all.",
    )
    parser.add_argument(
        "--kills", type=int, default=10, help="number of stops: of workers by SIGKILL, and of the MQTT broker (10)"
    )
    parser.add_argument("--readings", type=int, default=5_000, help="number of readings (5000)")
    parser.add_argument("--rate", type=float, default=500.0, help="readings published in a second at most (500)")
    parser.add_argument("--seed", type=int, help="seed of the readings, and of the kills")
    return parser


class Run:
    """One run: publish, kill, wait, compare."""

    def __init__(self, kafka: LocalBroker, mosquitto: Mosquitto, args: argparse.Namespace, console: Console) -> None:
        self._kafka = Kafka(kafka.bootstrap)
        self._directory, self._mosquitto = kafka.directory, mosquitto
        self._args, self._console = args, console
        self._given = readings(args.readings, args.seed)
        self._draw = random.Random(args.seed)

    def run(self) -> list[str]:
        """Run, and give what differs."""
        prepare(graph, open_broker(self._kafka))
        siren = Siren(self._mosquitto.port)
        log = self._directory / "workers.log"
        try:
            with log.open("ab") as output, self._supervisor(output) as workers:
                self._wait(self._session_exists, "the feed did not connect to the MQTT broker")
                plant = Plant(self._mosquitto.port, self._given, self._args.rate)
                plant.start()
                self._kill(workers, plant)
                self._wait(lambda: not plant.is_alive(), "the plant did not end")
                self._wait(self._quiet(siren), "readings or alarms are missing")
        except TimeoutError as error:
            self._console.print(log.read_text(errors="replace")[-4_000:], markup=False, highlight=False)
            return [*self._compared(siren), str(error)]
        finally:
            siren.close()
        self._console.print(
            f"{plant.repeated} readings and {siren.repeated} alarms were published again after a stop, and dropped by "
            "their ids",
            highlight=False,
        )
        return self._compared(siren)

    def _supervisor(self, output: Any) -> Supervisor:
        def command(k: int) -> list[str]:
            options = ["--bootstrap", self._kafka.bootstrap]
            return worker_command("examples.sensors.graph:graph", instance=f"sensors.{k}", options=options)

        return Supervisor(
            command, workers=2, env={**os.environ, "TMPDIR": str(self._directory)}, cwd=ROOT, output=output,
            healthy_after_s=1.0,
        )  # fmt: skip

    def _session_exists(self) -> bool:
        return "sensors-demo" in self._mosquitto.log_file.read_text(errors="replace")

    def _kill(self, workers: Supervisor, plant: Plant) -> None:
        """Kill a worker, or stop the MQTT broker, each time when a share of the readings is published."""
        for nth in range(self._args.kills):
            due = len(self._given) * (nth + 1) // (self._args.kills + 1)
            self._wait(lambda due=due: plant.sent >= due or not plant.is_alive(), "the plant does not go on")  # type: ignore[misc]
            time.sleep(self._draw.uniform(0, 0.05))
            if nth % 2:
                self._mosquitto.stop()  # by SIGKILL it loses messages that it has acknowledged, and not saved yet
                time.sleep(self._draw.uniform(*DOWN_S))
                self._mosquitto.start()
                victim = "the MQTT broker, which is down for a while"
            else:
                k = self._draw.choice(list(workers.pids) or [1])
                victim = f"worker {k}, process {workers.signal(k, signal.SIGKILL)}"
            self._console.print(f"stop {nth + 1}: {victim}, after {plant.sent:,} readings", highlight=False)

    def _quiet(self, siren: Siren) -> Callable[[], bool]:
        expected = len(alarms(self._given))
        return lambda: len(self._values("readings")) >= len(self._given) and len(siren.heard) >= expected

    def _values(self, topic: str) -> list[Any]:
        with connect(self._kafka) as client:
            return [one.value for one in client.messages(topic)]

    def _compared(self, siren: Siren) -> list[str]:
        """What differs from the computation in one pass."""
        expected = alarms(self._given)
        found = [
            *_differences("readings in Kafka", self._given, self._values("readings")),
            *_differences("alarms in Kafka", expected, self._values("alarms")),
            *_differences("alarms by MQTT", expected, list(siren.heard.values())),
        ]
        report = verify(graph, open_broker(self._kafka))
        return found if report.ok else [*found, *report.lines]

    def _wait(self, there: Callable[[], bool], why: str) -> None:
        until = time.monotonic() + STALLED_S
        while not there():
            if time.monotonic() > until:
                raise TimeoutError(why)
            time.sleep(0.1)


def _differences(what: str, expected: list[dict[str, Any]], found: list[dict[str, Any]]) -> list[str]:
    """Readings that are missing or too many, and whether those of each sensor are in order."""
    one, other = (Counter(json.dumps(reading, sort_keys=True) for reading in side) for side in (expected, found))
    said = [f"{what}: missing {reading}" for reading in (one - other)][:5]
    said += [f"{what}: too many {reading}" for reading in (other - one)][:5]
    for sensor in sorted({reading["sensor"] for reading in found}):
        numbers = [reading["number"] for reading in found if reading["sensor"] == sensor]
        if "MQTT" not in what and numbers != sorted(numbers):
            said.append(f"{what}: those of {sensor} are out of order")
    return said


if __name__ == "__main__":
    sys.exit(main())

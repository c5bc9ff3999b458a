"""Kills of drivers that write staged, by the hundred: `python -m tests.spark.proof_staged --write docs/proof`.

Each part has a broker and a graph of its own, kills drivers, each at the next of all moments, and reads what is
published after each kill with a plain client. It writes one small JSON file; one of the same code is not made again.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from cues_kafka import Kafka
from cues_kafka.brokers.local import LocalBroker
from cues_kafka.brokers.open import open_broker
from cues_kafka.brokers.temporary import temporary_directory
from cues_kafka.task.making.prepare import prepare
from tests.fault.support import Setup
from tests.proof import subjects
from tests.spark.staged_checks import LIMIT, Audit, StagedDrivers, Tally, announcing, at, noted, publishing
from tests.spark.staged_driver import WIDTH, graph

POINTS: dict[str, dict[str, Any]] = {
    "in job 1": at("staging"),
    "before the manifest": at("unlisted"),
    "staged, not announced": at("staged"),
    "before the announcement's commit": announcing("before Commit"),
    "behind the announcement's commit": announcing("after Commit"),
    "announced, nothing published": at("announced"),
    "before a part's init": publishing("before Init"),
    "before a part's transaction": publishing("before Begin"),
    "in a part's transaction": publishing("after Flush"),
    "before a part's commit": publishing("before Commit"),
    "behind a part's commit": publishing("after Commit"),
    "all parts published": at("published"),
    "before Spark has noted the batch": at("behind"),
    "at any moment": {},
}

ANY_S = 15.0
"""Within this time behind its start a driver dies at any moment."""


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; its result is the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.spark.proof_staged", description=__doc__)
    parser.add_argument("--kills", type=int, default=200, help="of all parts")
    parser.add_argument("--of-a-part", type=int, default=20, help="kills of one part")
    parser.add_argument("--part", type=int, help="this part alone")
    parser.add_argument("--write", type=Path, help="the folder for the results")
    given = parser.parse_args(arguments)
    parts = range(-(-given.kills // given.of_a_part)) if given.part is None else [given.part]
    code, failed = subjects.staged(), False
    for part in parts:
        path = given.write / f"spark-{part:02}.json" if given.write else None
        if path and path.exists() and json.loads(path.read_text(encoding="utf-8"))["code"] == code:
            print(f"{path}: made from this code already")
            continue
        count = min(given.of_a_part, given.kills - part * given.of_a_part)
        found = {"code": code, **run(part, count)}
        failed |= bool(found["problems"])
        text = json.dumps(found, indent=1) + "\n"
        print(text, end="", flush=True)
        if path:
            path.write_text(text, encoding="utf-8")
    return int(failed)


def run(part: int, count: int) -> Mapping[str, Any]:
    """One part: its kills, then everything is published and read."""
    began_s = time.monotonic()
    chance = random.Random(part)
    names = [list(POINTS)[(part * count + number) % len(POINTS)] for number in range(count)]
    kills: Counter[str] = Counter()
    with ExitStack() as ends:
        directory = ends.enter_context(temporary_directory("cues-proof-"))
        broker = LocalBroker()
        broker.start()
        ends.callback(broker.stop)
        setup = Setup(broker.bootstrap, f"proof-{part:02}")
        client = open_broker(Kafka(setup.bootstrap))
        prepare(graph(setup.name), client)
        client.close()
        tally = Tally(setup)
        problems: list[str] = []
        for number, name in enumerate(names):
            tally.send(2 * LIMIT)
            with StagedDrivers(setup, directory) as drivers:
                _kill(drivers, name, chance, noted(directory))
            kills[name] += 1
            problems += [f"kill {number}, {name}: {text}" for text in tally.audit(whole=False).problems]
            if problems:
                break
            print(f"part {part}: kill {number}, {name}", flush=True)
        with StagedDrivers(setup, directory) as drivers:
            last = drivers.add().started()
            tally.wait(600)
            last.stop()
        audit = tally.audit()
    return _result(part, kills, audit, problems + audit.problems, time.monotonic() - began_s)


def _kill(drivers: StagedDrivers, name: str, chance: random.Random, newest: int) -> None:
    """
    One driver, with its JVM; with or without its workers, which the end of the block takes.

    Every other one dies in its first batch, which Spark writes and publishes; the others in a later one, which has few
    rows as the one before it had, so that the driver keeps and publishes them itself.
    """
    point = dict(POINTS[name].get("point", {}))
    if point and chance.random() < 0.5:
        # A first batch that is published already has no rows, so which one the driver publishes first is not known.
        point |= {"held": True, "batch": None if point.get("role") == "Publish" else newest + 2}
    if point.get("role") == "Publish":
        point["partition"] = chance.randrange(WIDTH)
    driver = drivers.add(point=point or None)
    if point:
        driver.reached()
    else:
        driver.started()
        threading.Event().wait(chance.uniform(0.0, ANY_S))  # the moment is the fault; nothing is waited for
    chance.choice([driver.kill_all, driver.kill_driver])()
    driver.gone()


def _result(part: int, kills: Mapping[str, int], audit: Audit, problems: list[str], seconds: float) -> dict[str, Any]:
    return {
        "part": part,
        "kills": dict(sorted(kills.items())),
        "batches": audit.batches,
        "rows": audit.rows,
        "lost": audit.lost,
        "doubled": audit.doubled,
        "mixed": audit.mixed,
        "problems": problems[:10],
        "seconds": round(seconds),
    }


if __name__ == "__main__":
    os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    sys.exit(main())

"""Read back the results of a run, and compare them with the independent computation and with `verify`."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, field
from os import getpid
from typing import Any

from cues_kafka.core.records import Totals
from examples.flights import independent
from examples.flights.sides import ROOT

TOPICS = {
    "clean": ["flights.clean"],
    "route": ["flights.all", "flights.delayed", "flights.on_time"],
    "ledger": ["flights.inspections"],
    "by_airline": ["flights.by_airline"],
    "punctuality": [],
}
"""The processors, and those of their topics whose messages are known byte by byte."""

MIXED = "flights.by_airline"
"""Its streams mix those of `flights.clean`, in an order that is not known before."""

VERIFY = """
import sys
from cues_kafka.workers.die_with import die_with
die_with(int(sys.argv.pop(1)))
from cues_kafka.cli.main import main
main()
"""


@dataclass
class Counts:
    """Counts of one processor."""

    deliveries: int = 0
    outputs: int = 0
    errors: int = 0
    nil: int = 0


@dataclass
class Findings:
    """
    The counts of one processor from two sources, and the defects of its messages.

    Attributes:
        ours: its tasks' own counters.
        tables: counts that plain Python computes from the tables.
        lost, duplicated, torn, disorder: messages, the greater number of the independent reading and of `verify`.
    """

    ours: Counts = field(default_factory=Counts)
    tables: Counts = field(default_factory=Counts)
    lost: int = 0
    duplicated: int = 0
    torn: int = 0
    disorder: int = 0


@dataclass
class Result:
    """
    The results of the comparison.

    Attributes:
        processors: findings by name, of those that ran.
        differences: sentences about what is unequal; empty: everything is equal.
        messages: how many messages were read back and compared.
        booked: rows of the ledger.
        airlines: pairs of an airline and an airport that `punctuality` has totals of.
        hours: the last message of `hourly` about each airport and hour.
        published: how many messages `hourly` published.
        without: hours with flights but without weather.
    """

    processors: dict[str, Findings]
    differences: list[str]
    messages: int
    booked: int = 0
    airlines: int = 0
    hours: list[dict[str, Any]] = field(default_factory=list)
    published: int = 0
    without: int = 0


class Verification:
    """``cues-kafka verify`` of some processors in a process of its own, beside the independent check."""

    def __init__(self, bootstrap: str, graph: str, processors: list[str]) -> None:
        command = ["verify", f"examples.flights.graph:{graph}", "--bootstrap", bootstrap, "--json"]
        command += [f"--processor={name}" for name in processors]
        self._process = subprocess.Popen(
            [sys.executable, "-c", VERIFY, str(getpid()), *command], stdout=subprocess.PIPE, cwd=ROOT
        )

    def report(self) -> dict[str, Any]:
        """Wait for its report."""
        out, _ = self._process.communicate()
        if not out:
            raise SystemExit(f"cues-kafka verify ended with {self._process.returncode}")
        report: dict[str, Any] = json.loads(out)
        return report


def check(
    bootstrap: str,
    database: str,
    expected: independent.Expected,
    totals: dict[str, Totals],
    *,
    hourly: Totals | None = None,
) -> Result:
    """
    Read everything and compare it, which takes some seconds.

    Args:
        bootstrap: the cluster.
        database: the address of the ledger's; empty: the ledger did not run.
        expected: the results that plain Python computed.
        totals: the tasks' counts, by processor; of those that ran.
        hourly: the counts of the parts of `hourly`; None: it did not run.
    """
    frames = [] if hourly is None else ["hourly"]
    names, kind = [*totals, *frames], "graph" if frames else "plain"
    verifications = [Verification(bootstrap, kind, half) for half in (names[::2], names[1::2])]
    result = Result({name: Findings() for name in TOPICS if name in totals}, [], 0)
    for name, total in totals.items():
        result.processors[name].ours = Counts(total.deliveries, total.outputs, total.errors, total.nils)
    _by_tables(result, expected)
    _compare_topics(result, bootstrap, expected)
    _compare_errors(result, bootstrap, expected)
    if database:
        _compare_ledger(result, database, expected)
    _compare_punctuality(result, bootstrap, expected)
    for name, found in result.processors.items():
        if found.ours != found.tables:
            result.differences.append(f"{name}: the tasks counted {found.ours}, the tables say {found.tables}")
    if hourly is not None:
        _compare_hours(result, bootstrap, expected, hourly)
    for verification in verifications:
        _add_verification(result, verification.report())
    return result


def _by_tables(result: Result, expected: independent.Expected) -> None:
    took_off = expected.count("flights.clean")
    unknown = expected.unknown.total()
    due = expected.count("flights.inspections")
    tables = {
        "clean": Counts(expected.rows, took_off, unknown, expected.never),
        "route": Counts(took_off, took_off, 0, 0),
        "ledger": Counts(took_off, due, 0, took_off - due),
        "by_airline": Counts(took_off, took_off, 0, 0),
        "punctuality": Counts(took_off, took_off, 0, 0),
    }
    for name, found in result.processors.items():
        found.tables = tables[name]


def _compare_topics(result: Result, bootstrap: str, expected: independent.Expected) -> None:
    routed: dict[str, Counter[bytes]] = {}
    for name in result.processors:
        for topic in TOPICS[name]:
            found = independent.read_topic(bootstrap, topic)
            result.messages += sum(map(len, found.values()))
            difference = independent.compare(expected.topics[topic], found, ordered=topic != MIXED)
            _add(result, name, topic, difference)
            if difference and name == "route":
                routed[topic] = sum((Counter(stream) for stream in found.values()), Counter())
    if routed:  # equal topics cannot be torn; in unequal topics each flight is counted
        have = {t: routed.get(t) or _counter(expected.topics[t]) for t in TOPICS["route"]}
        halves = have["flights.delayed"] + have["flights.on_time"]
        torn = (have["flights.all"] - halves) + (halves - have["flights.all"])
        result.processors["route"].torn += torn.total()


def _counter(streams: independent.Streams) -> Counter[bytes]:
    return sum((Counter(stream) for stream in streams.values()), Counter())


def _add(result: Result, name: str, what: str, difference: independent.Difference) -> None:
    found = result.processors[name]
    found.lost += difference.lost
    found.duplicated += difference.added
    found.disorder += difference.reordered
    if difference:
        result.differences.append(
            f"{what}: {difference.lost} lost, {difference.added} too many, {difference.reordered} streams out of "
            f"order, for example {difference.example}"
        )


def _compare_errors(result: Result, bootstrap: str, expected: independent.Expected) -> None:
    found = independent.read_unknown(bootstrap, "flights.errors")
    result.messages += found.total()
    missing, more = expected.unknown - found, found - expected.unknown
    example = f"missing {dict(missing)}, too many {dict(more)}"
    _add(result, "clean", "flights.errors", independent.Difference(missing.total(), more.total(), 0, example))


def _compare_ledger(result: Result, database: str, expected: independent.Expected) -> None:
    booked, aircraft = independent.read_ledger(database)
    result.booked = booked.total()
    result.messages += booked.total() + len(aircraft)
    _add(result, "ledger", "the ledger", independent.compare_ledger(expected, booked, aircraft))


def _compare_punctuality(result: Result, bootstrap: str, expected: independent.Expected) -> None:
    found = independent.read_punctuality(bootstrap, "flights.punctuality")
    result.airlines = len(found)
    result.messages += sum(map(len, found.values()))
    difference = independent.compare_punctuality(expected.airlines, found)
    _add(result, "punctuality", "flights.punctuality", difference)


def _compare_hours(result: Result, bootstrap: str, expected: independent.Expected, ours: Totals) -> None:
    found = independent.read_hours(bootstrap, "flights.hours")
    want = expected.hours()
    result.hours = [rows[-1] for _, rows in sorted(found.items())]
    result.published = sum(map(len, found.values()))
    result.without = len(expected.delays) - len(want)
    result.messages += result.published
    if difference := independent.compare_hours(want, found):
        result.differences.append(
            f"flights.hours: {difference.lost} hours wrong or missing, {difference.added} messages too many, "
            f"{difference.reordered} hours out of order, for example {difference.example}"
        )
    if (ours.outputs, ours.errors) != (result.published, 0):
        result.differences.append(f"hourly: its parts counted {ours}, flights.hours has {result.published} messages")


def _add_verification(result: Result, report: dict[str, Any]) -> None:
    for one in report["processors"]:
        found = result.processors.get(one["name"], Findings())  # for `hourly`, only the verdict counts
        found.lost = max(found.lost, one["lost"])
        found.duplicated = max(found.duplicated, one["duplicated"])
        found.torn = max(found.torn, one["torn"])
        found.disorder = max(found.disorder, one["out_of_order"])
    if report["verdict"] != "ok":
        texts = [text for one in report["processors"] for task in one["tasks"] for text in _texts(task)]
        result.differences.append(f"verify says {report['verdict']}: {'; '.join([*report['limits'], *texts][:5])}")


def _texts(task: dict[str, Any]) -> list[str]:
    return [f"{task['task']}: {text}" for kind in ("problems", "details", "limits") for text in task[kind]]

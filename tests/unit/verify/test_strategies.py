"""`verify` of processors at-least-once and at-most-once: what is allowed is shown, what is not is found (W1 to W5)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from cues_kafka import Graph, Json, Processor, Source, Topic
from cues_kafka.cli.verify import table
from cues_kafka.core.records import Record, Totals
from cues_kafka.graph.declare import CommitPolicy
from cues_kafka.records.bytes import encode_record
from cues_kafka.testing.tester import Crash, Tester
from cues_kafka.verify.scan import Report, verify


def graph(strategy: Any) -> Graph:
    """A pipe."""
    return Graph(
        "v",
        Source("numbers"),
        Processor(lambda n: n, name="same", inputs="numbers", outputs="copies", strategy=strategy),
        defaults=Topic(value=Json(int)),
    )


def delivered(strategy: str, crash: Crash | None = None) -> Tester:
    """Six messages, two in a batch, and perhaps a death on the way."""
    tester = Tester(graph(strategy), policy=CommitPolicy(max_messages=2))
    for n in range(6):
        tester.send("numbers", n)
    if crash is not None:
        assert tester.run(crash=crash).crashed
    return tester.run()


def append(tester: Tester, record: Record) -> None:
    """A record that no task wrote."""
    tester.broker.sender("other").send([("v.same.backing", 0, b"t", encode_record(record), None, 0)])


def looked(tester: Tester) -> Report:
    """What it says now."""
    return verify(tester.graph, tester.broker)


def test_drops_have_a_column_and_are_no_anomaly() -> None:
    """Those in flight are named in a line."""
    tester = delivered("at-most-once", Crash("before", "Call", 2))
    report = looked(tester)

    assert report.ok
    assert report["same"].dropped == 2
    assert table(report, width=200)[0].split() == ["processor", "kind", "steps", "outputs", "dropped", "verdict"]
    assert "same/0: dropped: 2 steps by at-most-once, 0 of them in flight" in list(report.lines)
    assert report.to_dict()["processors"][0]["dropped"] == 2


def test_a_batch_that_a_dead_process_left_is_in_flight() -> None:
    """No successor has counted it yet."""
    tester = Tester(graph("at-most-once"), policy=CommitPolicy(max_messages=4))
    for n in range(6):
        tester.send("numbers", n)
    tester.run(crash=Crash("before", "Call", 1))
    report = looked(tester)

    assert report.ok
    assert "same/0: dropped: 4 steps by at-most-once, 4 of them in flight" in list(report.lines)


def test_more_losses_than_the_totals_say_are_losses() -> None:
    """At-most-once, a record has settled what has no output."""
    tester = delivered("at-most-once", Crash("before", "Call", 2))
    newest = tester.records("same", 0)[-1]
    wrong = Totals(6, 6, 0, 0, 6, taken=6)
    append(tester, replace(newest, sequence=newest.sequence + 1, totals=wrong, batch=Totals(2, 2, 0, 0, 2, dropped=-2)))
    report = looked(tester)

    assert report.verdict == "WRONG"
    assert (report["same"].lost, report["same"].dropped) == (2, 0)


def test_at_least_once_repeats_are_counted_and_allowed() -> None:
    """A death between the outputs and the record."""
    report = looked(delivered("at-least-once", Crash("after", "Emit", 2)))

    assert report.ok
    assert report["same"].duplicated == 2
    assert "duplicated: numbers/0 at 2, 3" in " ".join(report.lines)


def test_at_least_once_a_record_ahead_of_its_outputs_is_a_loss() -> None:
    """What must never be there."""
    tester = delivered("at-least-once")
    for n in (6, 7):
        tester.send("numbers", n)
    newest = tester.records("same", 0)[-1]
    [place] = newest.positions
    append(tester, replace(newest, sequence=newest.sequence + 1, positions=(place._replace(offset=8),)))
    report = looked(tester)

    assert report.verdict == "WRONG"
    assert report["same"].lost == 2


def test_at_least_once_an_older_record_behind_the_newest_is_no_defect() -> None:
    """A worker that was paused wrote it; its outcomes above are repeated, not foreign."""
    tester = delivered("at-least-once")
    append(tester, tester.records("same", 0)[1])
    report = looked(tester)

    assert report.ok, list(report.lines)
    assert report["same"].ahead == 4

"""What pages show of a status: view models, the last hour, and what remains of it when the cluster is lost."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest

from cues_kafka.errors import BrokerError
from cues_kafka.operate.look.seen import GraphStatus, InputLag, SeenTask
from cues_kafka.ui.history import KEPT_S, STEP_S, LastHour
from cues_kafka.ui.layout import Picture, PlacedArrow
from cues_kafka.ui.poller import Poller
from cues_kafka.ui.views import LONGEST, overview, to_json

READS = PlacedArrow("topic orders", "processor check", "input", "check", "orders", reads=True)
WRITES = PlacedArrow("processor check", "topic checked", "output", "check", "checked", reads=False)
PICTURE = Picture("g", (), (READS, WRITES))


def task(partition: int, **values: Any) -> SeenTask:
    """A task that works, but for what the test says."""
    at = InputLag(topic="orders", partition=partition, position=5, end=9, lag=4)
    told = {"state": "working", "owner": "host:1", "inputs": (at,), "lag": 4, "rate": 2.5, "committed_s": 90.0}
    return SeenTask(processor="check", partition=partition, **{**told, **values})


def seen(*tasks: SeenTask, at_s: float = 100.0, unreachable: str = "") -> GraphStatus:
    return GraphStatus(graph="g", at_s=at_s, tasks=tasks, unreachable=unreachable)


def named(text: str) -> str:
    """As the command does it."""
    return text.replace("MODULE:GRAPH", "shop:graph")


def test_an_arrow_has_the_lag_and_the_rate_of_all_tasks() -> None:
    """Only an arrow that leads to a processor has."""
    found = overview(seen(task(0), task(1)), PICTURE.arrows, named)

    assert [(one.topic, one.lag, one.rate) for one in found.flows] == [("orders", 8, 5.0)]


def test_a_stopped_task_is_wrong_with_reason_and_remedy() -> None:
    """And so is its processor, although the other task is well."""
    stopped = task(1, state="stopped", stopped="no schema", remedy="`cues-kafka plan MODULE:GRAPH`", at="orders/1@5")
    found = overview(seen(task(0), stopped), PICTURE.arrows, named)

    assert [row.tone for row in found.tasks] == ["well", "wrong"]
    assert found.tones == {"check": "wrong"}
    assert not found.ok
    assert (found.tasks[1].why, found.tasks[1].remedy) == ("no schema", "`cues-kafka plan shop:graph`")
    assert found.tasks[1].position == "orders/1@5"
    assert any("orders/1@5" in note for note in found.tasks[1].notes)
    assert ("check/1: no schema", "`cues-kafka plan shop:graph`") in [(what, remedy) for what, remedy in found.unwell]


def test_a_paused_task_is_neither_well_nor_wrong() -> None:
    """As for `status`, the graph is well."""
    found = overview(seen(task(0), task(1, state="paused", held="paused by an operator")), PICTURE.arrows, named)

    assert found.tones == {"check": "paused"}
    assert found.ok
    assert found.tasks[1].notes == ("paused by an operator",)


def test_header_says_what_the_last_line_of_status_says() -> None:
    """Also while nothing is wrong: an open transaction of a killed worker may end by itself, and holds readers back."""
    held = InputLag(topic="orders", partition=1, position=5, end=9, lag=4, open_s=12.0)
    found = overview(seen(task(0), task(1, inputs=(held,))), PICTURE.arrows, named)

    assert found.ok
    assert found.words == "8 offsets behind, 1 task held back by an open transaction"
    assert overview(seen(task(0, lag=0)), PICTURE.arrows, named).words == "all is well, no messages are waiting"


@pytest.mark.parametrize("sign", ["\x1b[2J", "\u202e", "\u200b", "\x00", "\ud800"])
def test_signs_that_hide_or_turn_a_text_are_shown_as_escapes(sign: str) -> None:
    """In values and in names."""
    shown = to_json({f"a{sign}": [f"b{sign}"]}).decode()

    assert sign not in json.loads(shown)
    assert "\\\\u" in shown
    assert not any(sign in text for pair in json.loads(shown).items() for text in (pair[0], *pair[1]))


def test_a_long_text_is_cut_and_says_so() -> None:
    """A page does not grow with a message."""
    [text] = json.loads(to_json(["x" * (LONGEST + 5)]))

    assert text == f"{'x' * LONGEST} ... (5 more characters)"


def test_the_last_hour_is_kept_and_no_more() -> None:
    """With points that are not nearer than the step."""
    history = LastHour()
    for number in range(2 * int(KEPT_S)):
        history.take(seen(task(0, errors=number), at_s=float(number)))

    points = history.of("check/0")["points"]
    assert len(points) <= KEPT_S / STEP_S + 1
    assert points[-1].at_s - points[0].at_s >= KEPT_S - STEP_S
    assert points[-1].at_s >= 2 * KEPT_S - STEP_S


@pytest.mark.parametrize(
    ("lag", "rate", "delay_s"),
    [(10, 2.0, 5.0), (0, 2.0, 0.0), (0, None, 0.0), (10, 0.0, None), (10, None, None), (None, 2.0, None)],
)
def test_latency_is_the_lag_divided_by_the_rate(lag: int | None, rate: float | None, delay_s: float | None) -> None:
    """Where messages wait and none is delivered, it is not known; the chart has a gap there."""
    history = LastHour()
    history.take(seen(task(0, lag=lag, rate=rate)))

    [point] = history.of("check/0")["points"]
    assert point.delay_s == delay_s


def test_a_new_owner_and_a_stop_are_marks() -> None:
    """At the time when they are seen; the first look marks nothing."""
    history = LastHour()
    history.take(seen(task(0), at_s=1.0))
    history.take(seen(task(0, owner="host:2", state="recovering"), at_s=2.0))
    history.take(seen(task(0, owner="host:2"), at_s=3.0))
    history.take(seen(task(0, owner="host:2", state="stopped"), at_s=4.0))

    marks = history.of("check/0")["marks"]
    assert [tuple(one) for one in marks] == [(2.0, "moved to host:2"), (2.0, "recovering"), (4.0, "stopped")]


def test_a_recovery_between_two_looks_is_a_mark() -> None:
    """By the count of failures, which begins with each process."""
    history = LastHour()
    for at_s, failures, owner in [
        (1.0, 3, "a:1"),
        (2.0, 3, "a:1"),
        (3.0, 4, "a:1"),
        (4.0, 5, "b:1"),
        (5.0, None, "b:1"),
    ]:
        history.take(seen(task(0, failures=failures, owner=owner), at_s=at_s))

    marks = history.of("check/0")["marks"]
    assert [tuple(one) for one in marks] == [(3.0, "recovered from a failure"), (4.0, "moved to b:1")]


def test_a_task_that_is_gone_takes_no_memory() -> None:
    """As after a processor was removed."""
    history = LastHour()
    history.take(seen(task(0), task(1)))
    history.take(seen(task(0)))

    assert history.of("check/1") == {"task": "check/1", "points": [], "marks": []}


def test_a_lost_cluster_leaves_what_was_seen_last_and_comes_back() -> None:
    """Whether the look says so or raises."""
    looks: list[GraphStatus | BrokerError] = [
        seen(task(0), at_s=1.0),
        seen(at_s=2.0, unreachable="no broker answers"),
        BrokerError("the right is missing", code="TOPIC_AUTHORIZATION_FAILED"),
        seen(task(0), at_s=4.0),
    ]

    def look() -> GraphStatus:
        found = looks.pop(0)
        if isinstance(found, BrokerError):
            raise found
        return found

    poller = Poller(PICTURE, look, named)
    shown = []
    for _ in range(4):
        poller.once()
        shown.append(json.loads(poller.newest()[1]))

    assert [one["ok"] for one in shown] == [True, False, False, True]
    assert [one["at_s"] for one in shown] == [1.0, 1.0, 1.0, 4.0]
    assert [len(one["tasks"]) for one in shown] == [1, 1, 1, 1]
    assert shown[1]["trouble"] == "no broker answers"
    assert "the right is missing" in shown[2]["trouble"]
    assert shown[3]["trouble"] == ""


def test_a_defect_in_a_look_is_shown_and_the_next_look_is_made() -> None:
    """A page that stays as it was would look well."""
    shown: list[bytes] = []
    twice = threading.Event()

    def look() -> GraphStatus:
        shown.append(poller.newest()[1])
        if len(shown) == 1:
            raise ValueError("a defect")
        twice.set()
        return seen(task(0))

    poller = Poller(PICTURE, look, named, every_s=0.0)
    poller.start()
    try:
        assert twice.wait(10.0)
    finally:
        poller.close()

    assert "ValueError: a defect" in json.loads(shown[1])["trouble"]

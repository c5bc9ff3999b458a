"""`cues-kafka status` on screens of any width, and its exit codes."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from typer.testing import CliRunner

from cues_kafka import Memory, start
from cues_kafka.brokers import open as open_module
from cues_kafka.brokers.open import open_broker
from cues_kafka.cli import status as command
from cues_kafka.cli.main import app
from cues_kafka.errors import RetriableError
from cues_kafka.operate.look import summary
from cues_kafka.operate.look.seen import GraphStatus, InputLag, SeenTask

AT_S = 1_800_000_000.0
BIG = 123_456_789


def report(processor: str = "check", partition: int | None = 0, **given: Any) -> SeenTask:
    settings: dict[str, Any] = {"state": "working", "owner": "blue.1 (node-7, pid 47)", "committed_s": AT_S - 3}
    return SeenTask(processor=processor, partition=partition, **{**settings, **given})


def seen(*tasks: SeenTask, **given: Any) -> GraphStatus:
    return GraphStatus(graph="shop", at_s=AT_S, tasks=tasks, **given)


FULL = seen(
    report(lag=BIG, waiting_s=90_000.0, rate=12_345.6, errors=BIG, retries=4),
    report(partition=1, state="idle", lag=0, rate=0.0, retries=0),
    report("count", state="not heard of", told_s=AT_S - 60, committed_s=0.0),
)


def test_wide_screens_have_a_row_for_each_task() -> None:
    """Numbers are aligned to the right."""
    assert command.table(FULL, width=140) == [
        "task     state                 lag  oldest  rate/s       errors  retries     commit  owner",
        "check/0  working       123,456,789    25 h  12,346  123,456,789        4  3.0 s ago  blue.1 (node-7, pid 47)",
        "check/1  idle                    0       -     0.0            0        0  3.0 s ago  blue.1 (node-7, pid 47)",
        "count/0  not heard of            -       -       -            0        -          -  blue.1 (node-7, pid 47)",
    ]


@pytest.mark.parametrize("width", [30, 40, 60, 80, 100, 120])
def test_no_number_is_cut_on_a_narrow_screen(width: int) -> None:
    """Lines are not wider than the screen, but for a name or a number that is."""
    lines = command.table(FULL, width=width)
    text = " ".join(lines)

    assert text.count("123,456,789") == 2
    assert "12,346" in text
    assert "not heard of" in text
    assert max(len(line) for line in lines) <= max(width, 34)


def test_owners_are_listed_below_where_they_do_not_fit() -> None:
    """With the tasks of each."""
    tasks = [report(partition=p) for p in range(5)]
    lines = command.table(seen(*tasks), width=80)

    assert "owner" not in lines[0]
    assert lines[-1] == "blue.1 (node-7, pid 47): check/0, check/1, check/2 and 2 more tasks"


def test_lines_say_why_a_task_stands_still_and_what_to_do() -> None:
    """With the message, and since when."""
    stopped = report(
        state="stopped", stopped="bad", remedy="fix the cause", stopped_s=AT_S - 60,
        at="orders/0 at 17", hash="ab", error="orders/0 at 3: KeyError", error_s=AT_S - 70, notes=("calling for 75 s",),
    )  # fmt: skip
    assert [*command.lines(seen(stopped))] == [
        "check/0 stopped since 2027-01-15T07:59:00Z: bad (message orders/0 at 17, hash ab); remedy: fix the cause",
        "check/0: calling for 75 s",
        "check/0: the newest error, 2027-01-15T07:58:50Z: orders/0 at 3: KeyError",
    ]


def test_lines_say_what_is_not_heard_of_left_or_paused() -> None:
    """And what cannot be seen."""
    tasks = [
        report(state="not heard of", told_s=AT_S - 60),
        report(partition=1, state="left", told_s=AT_S - 60),
        report(partition=2, state="paused", held="paused by amy@desk since 2027-01-15T07:00:00Z"),
        report(partition=4, state="pausing", held="paused by amy@desk since 2027-01-15T07:00:00Z"),
        report(partition=3, error="old", error_s=AT_S - 2 * command.RECENT_S),
    ]
    assert [*command.lines(seen(*tasks, unseen=("Who runs 'check' cannot be seen: no right.",)))] == [
        "check/0, not heard of since 2027-01-15T07:59:00Z: its process was blue.1 (node-7, pid 47)",
        "check/1, left at 2027-01-15T07:59:00Z: its process was blue.1 (node-7, pid 47)",
        "paused by amy@desk since 2027-01-15T07:00:00Z: check/2, check/4",
        "Who runs 'check' cannot be seen: no right.",
    ]


def test_transactions_that_are_open_for_long_are_named() -> None:
    """One of ours takes a second, so short ones are not."""
    short = InputLag(topic="orders", partition=0, position=1, end=2, lag=1, open_s=1.0)
    long = InputLag(topic="orders", partition=0, position=1, end=2, lag=1, open_s=600.0)
    assert [*command.lines(seen(report(inputs=(short,), open_s=2.0)))] == []
    own, of_input = command.lines(seen(report(inputs=(long,), open_s=30.0)))
    assert own == "check/0: its own transaction has been open for 30 s"
    assert of_input.startswith("check/0: orders/0 has had an open transaction for 600 s, and no reader gets past it; ")
    assert "find-hanging --topic orders --partition 0" in of_input
    blocked = seen(report(inputs=(long,), lag=1))
    assert not blocked.ok
    assert summary.words(blocked) == "1 offset behind, 1 task held back by an open transaction"


def test_throttled_processes_are_named_with_their_tasks_and_the_remedy() -> None:
    """A line for each process, with a command that can be pasted; the task is slow, not ill."""
    slow = [report(partition=p, throttled_s=12.3) for p in range(2)]
    found = seen(*slow, report(partition=2, owner="blue.2", throttled_s=0.5), report(partition=3, owner="blue.3"))
    first, second = command.lines(found, bootstrap="k:9092")
    assert first.startswith(
        "throttled by a quota: in the last minute brokers held back answers to blue.1 (node-7, pid 47) for 12 s in all "
        "(check/0, check/1); remedy: raise the quota"
    )
    assert "`kafka-configs --bootstrap-server k:9092 --describe" in first
    assert "to blue.2 for 0.5 s in all (check/2)" in second
    assert summary.words(found) == "all is well, no messages are waiting, 2 processes throttled by a quota"
    assert found.ok
    assert found.to_dict()["tasks"][0]["throttled_s"] == 12.3


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (seen(report(lag=0)), "all is well, no messages are waiting"),
        (seen(report(lag=1)), "all is well, 1 offset behind"),
        (seen(report(state="paused"), report()), "1 task of 2 paused, no messages are waiting"),
        (seen(report(state="stopped"), report(state="no worker")), "1 task stopped, 1 task has no worker; no messages"),
        (
            seen(report(state="left"), report(state="left", partition=1)),
            "2 tasks have no worker (it was shut down); no messages are waiting",
        ),
        (seen(report(state="left", lag=3)), "1 task has no worker (it was shut down); 3 offsets behind"),
        (seen(report(late=10)), "10 messages came too late for a window or a bound, no messages are waiting"),
        (seen(report(state="stopped", late=1)), "1 task stopped; 1 message came too late for a window or a bound, no"),
        (seen(unreachable="no answer"), "cannot reach the cluster: no answer"),
    ],
)
def test_whole_is_said_in_a_sentence(status: GraphStatus, words: str) -> None:
    assert summary.words(status).startswith(words)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "-"), (0.04, "0.0 s"), (9.96, "10.0 s"), (10.0, "10 s"), (119.0, "119 s"), (7_100.0, "118 min"),
     (90_000.0, "25 h"), (200_000.0, "2 d"), (-1.0, "0.0 s")],
)  # fmt: skip
def test_time_spans_are_short(seconds: float | None, text: str) -> None:
    assert command._span(seconds) == text


SHOP = "examples/shop.py:graph"


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Memory:
    """What the commands take for their cluster."""
    cluster = Memory()
    monkeypatch.setattr(open_module, "open_broker", lambda _: open_broker(cluster))
    return cluster


def run(*words: str) -> tuple[int, str]:
    """Exit code and output of the command."""
    done = CliRunner().invoke(app, ["status", SHOP, *words, "--bootstrap", "localhost:1"])
    return done.exit_code, done.output


def test_command_exits_with_0_if_all_is_well_and_with_1_if_not(cluster: Memory) -> None:
    """Before the first start, at work, and afterwards."""
    from examples.shop import graph

    assert run()[0] == 1
    with start(graph, cluster):
        code, text = run()
        assert code == 0, text
        assert re.search(
            r"^shop on localhost:1 \(--bootstrap\), 20.*Z: all is well, no messages are waiting$", text, re.MULTILINE
        )
    code, text = run("--json")
    assert code == 1
    assert {one["state"] for one in json.loads(text)["tasks"]} == {"no worker"}


def test_unreachable_cluster_has_an_exit_code_of_its_own(cluster: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also as JSON."""

    def silent(*_: Any) -> Any:
        raise RetriableError("Kafka did not answer", code="_TRANSPORT")

    monkeypatch.setattr(type(open_broker(cluster)), "partitions", silent)
    code, text = run()
    assert code == 3
    assert "cannot reach the cluster: Kafka did not answer" in text
    assert json.loads(run("--json")[1])["unreachable"] == "Kafka did not answer"


def test_wrong_graph_or_setting_exits_with_2() -> None:
    assert CliRunner().invoke(app, ["status", "examples/shop.py:graf"]).exit_code == 2
    assert CliRunner().invoke(app, ["status", SHOP], env={"CUES_KAFKA_STATUS_EVERY_S": "0.1"}).exit_code == 2


def test_watch_looks_again_until_it_is_interrupted(cluster: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line of JSON for each look."""
    looks: list[float] = []

    class Ended:
        def wait(self, seconds: float) -> bool:
            looks.append(seconds)
            return len(looks) == 3

    class Interrupts:
        def __enter__(self) -> Ended:
            return Ended()

        def __exit__(self, *_: object) -> None: ...

    monkeypatch.setattr(command, "interrupts", Interrupts)
    code, text = run("--watch", "--json")

    assert (code, looks) == (1, [command.EVERY_S] * 3)
    assert [json.loads(line)["graph"] for line in text.splitlines()] == ["shop"] * 3

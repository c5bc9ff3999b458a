"""One verdict: whatever is unwell with a graph, all that are asked say so, or differ for a reason that is given."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
from typer.testing import CliRunner

from cues_kafka import TaskStopped
from cues_kafka.brokers import open as opening
from cues_kafka.cli import loading
from cues_kafka.cli.main import app
from cues_kafka.errors import CuesError
from cues_kafka.graph.error_message import Errors
from cues_kafka.observe.http import Health
from cues_kafka.plan.wellness import TaskCondition, is_well, verdict
from cues_kafka.running import status_writer
from cues_kafka.running.health import HealthLook
from cues_kafka.task.clock import SystemClock
from tests.unit.operate.look import lost_topics
from tests.unit.operate.look import unwell_graphs as graphs
from tests.unit.operate.look.unwell_graphs import ORDERS, Unwell, World, not_compacted, recreated, redeclared, without


class Well(NamedTuple):
    """An answer that nothing is wrong, by design."""

    why: str


class Row(NamedTuple):
    """
    A state, and what each answers: a pattern that an unwell answer contains, or `Well`.

    Attributes:
        state: makes the graph.
        status, doctor, plan, verify: the commands; `plan` with --records.
        ready: `/readyz` and the metric `cues_kafka_ready`.
        idle: `wait_idle`.
    """

    state: Unwell
    status: str | Well
    doctor: str | Well
    plan: str | Well
    verify: str | Well
    ready: str | Well
    idle: str | Well


GONE = Well("no worker of the process is left to ask")
PAST = Well("what was delivered is whole; `doctor` and `plan --records` say what the next start would do")
ALIVE = Well("the tasks of this process work, and neither a restart nor less traffic would help")
OUTSIDE = Well("it waits for the tasks of this process, and nothing waits for those")
GOES_ON = Well("the task is at work, and goes on by itself")
BEFORE = Well("it is asked before a start, too, and nothing waits for a worker")
NEW = Well("a new processor is what a plan is for")
MADE = Well("a plan creates a topic of outputs; only `verify` knows what it held")
LATER = Well("the process says it once the cluster has been silent for 10 s")
TARGET = Well("the task that starts asks the database, and its start ends with that")

CURE = Well("the code to be deployed may be the cure, so it is named as a note; see the test of `plan --records`")

ABSENT = r"check, effects\['db'\]: the file of SQLite"
DEADLY = "the message orders/0 at 1 killed its process at least 3 times"
MEMORY = Well("the task holds its place in memory, and writes it with its next batch")
IDS = Well("the worker compares the ids of topics every 10 s")
PAUSED = Well("an operator wants it so")
FORMER = Well("the former version works; what is asked about would be refused at its start")

NO_WORKER = "has shut down|no worker"
ADDED = "'orders' has a partition 1, and 'check' has only 1 task"
NEGATIVE = "orders/0 at 1 raised: ValueError: negative"
UNREAD = "the batch of orders/0 at offset 1 cannot be read"
OPEN = "orders/0 has had an open transaction"
SILENT = "did not answer within 10 s"
LOST = "backing topic 'g.check.backing' (is empty|has no record)"
GONE_OUT = "checked does not exist"
GONE_ERR = "g.errors does not exist"
CHANGELOG = "g.check.seen.changelog"
FEWER = "'g.check.backing' has 2 partitions, but the inputs of check have 1"
GROUP = "user `worker` may not read group `g.check`"
WRITE = "user `worker` may not write topic `checked`"
SOURCE = "source does not answer for .* s: ConnectionRefusedError: the tape is away"
LOFT = "the loft does not answer"
POLICY = "has cleanup.policy=delete"

WRITTEN: Final[dict[str, str | Well]] = {
    "checked": "does not exist",
    "g.errors": "does not exist",
    "g.check.replay": OUTSIDE,
}
"""Topics that an idle task does not touch; and what `wait_idle` says, which asks for the ends of outputs."""

NARROWER = "was deleted and recreated: it has 1 partition"
TRIMMED = "changelog/0 was trimmed: its entries below offset"


def alike(state: Unwell, text: str, idle: str | Well) -> Row:
    """All but `wait_idle` say the same."""
    return Row(state, text, text, text, text, text, idle)


ROWS: Final = [
    # the state | status | doctor | plan --records | verify | /readyz and the metric | wait_idle
    Row(graphs.partition_added, ADDED, ADDED, "Messages of a key may", ADDED, ADDED, ADDED),
    Row(graphs.stopped, NEGATIVE, NEGATIVE, CURE, NEGATIVE, NEGATIVE, NEGATIVE),
    Row(graphs.retries_over, "still after", "still after", CURE, "still after", "still after", "still after"),
    Row(graphs.killed, DEADLY, DEADLY, DEADLY, DEADLY, DEADLY, DEADLY),
    Row(graphs.in_quarantine, GOES_ON, GOES_ON, GOES_ON, GOES_ON, GOES_ON, GOES_ON),
    Row(graphs.retrying, GOES_ON, GOES_ON, GOES_ON, GOES_ON, GOES_ON, "not idle"),
    Row(graphs.unreadable_request, GOES_ON, GOES_ON, GOES_ON, GOES_ON, GOES_ON, GOES_ON),
    Row(graphs.target_behind, NO_WORKER, TARGET, TARGET, PAST, GONE, OUTSIDE),
    Row(graphs.target_away, ABSENT, ABSENT, ABSENT, ABSENT, ABSENT, ABSENT),
    Row(graphs.refused_batch, UNREAD, UNREAD, UNREAD, UNREAD, UNREAD, UNREAD),
    Row(graphs.blocked, OPEN, "transaction has been open", OPEN, OPEN, ALIVE, OPEN),
    Row(graphs.unreachable, SILENT, SILENT, SILENT, SILENT, LATER, SILENT),
    Row(graphs.never_started, "1 task never started", "has no record", NEW, "never started", ALIVE, OUTSIDE),
    Row(graphs.shut_down, NO_WORKER, BEFORE, BEFORE, PAST, GONE, OUTSIDE),
    Row(graphs.waiting, NO_WORKER, "No worker runs", NO_WORKER, NO_WORKER, GONE, "not idle"),
    Row(graphs.retention, NO_WORKER, "are gone", "are gone", "out of range", GONE, "out of range"),
    Row(graphs.group_moved, NO_WORKER, "another program", "another program", PAST, GONE, "not idle"),
    Row(without("orders"), NO_WORKER, "'orders' has no", "'orders' has no", "'orders'", GONE, "does not exist"),
    Row(without("checked"), NO_WORKER, MADE, MADE, "lost: orders/0", GONE, "does not exist"),
    Row(without("g.check.backing"), LOST, LOST, LOST, LOST, GONE, OUTSIDE),
    Row(without("g.check.seen.changelog"), NO_WORKER, CHANGELOG, CHANGELOG, PAST, GONE, OUTSIDE),
    Row(recreated("orders"), NO_WORKER, "recreated", "recreated", "recreated", GONE, "not idle"),
    Row(recreated("g.check.backing"), LOST, LOST, LOST, LOST, GONE, OUTSIDE),
    Row(recreated("g.check.seen.changelog"), NO_WORKER, CHANGELOG, CHANGELOG, PAST, GONE, OUTSIDE),
    Row(graphs.recreated_while_at_work, "recreated", "recreated", "recreated", "recreated", IDS, IDS),
    Row(graphs.record_lost_while_at_work, LOST, LOST, LOST, "no record yet", MEMORY, MEMORY),
    Row(graphs.changelog_deleted_while_at_work, CHANGELOG, CHANGELOG, CHANGELOG, CHANGELOG, CHANGELOG, CHANGELOG),
    Row(graphs.output_deleted_while_at_work, GONE_OUT, GONE_OUT, GONE_OUT, "lost: orders/0", GONE_OUT, GONE_OUT),
    Row(graphs.errors_deleted_while_at_work, GONE_ERR, GONE_ERR, GONE_ERR, GONE_ERR, GONE_ERR, GONE_ERR),
    *(alike(lost_topics.deleted(one), f"{one}' was deleted", idle) for one, idle in WRITTEN.items()),
    *(alike(lost_topics.narrower(one), NARROWER, idle) for one, idle in WRITTEN.items()),
    *(alike(lost_topics.trimmed(one), TRIMMED, OUTSIDE) for one in (1, -1)),
    Row(graphs.changelog_trimmed, NO_WORKER, CHANGELOG, CHANGELOG, PAST, GONE, OUTSIDE),
    Row(graphs.recreated_wider, ADDED, "recreated", "recreated", ADDED, ADDED, ADDED),
    Row(graphs.recreated_narrower, FEWER, FEWER, FEWER, FEWER, GONE, "does not exist"),
    Row(graphs.recreated_narrower_while_at_work, FEWER, FEWER, FEWER, FEWER, "recreated", "recreated"),
    Row(graphs.group_right_lost_while_at_work, GROUP, GROUP, GROUP, GROUP, GROUP, GROUP),
    Row(graphs.write_right_lost_while_at_work, WRITE, WRITE, WRITE, WRITE, WRITE, WRITE),
    Row(graphs.source_away, GOES_ON, GOES_ON, GOES_ON, GOES_ON, ALIVE, SOURCE),
    Row(graphs.source_away_for_long, SOURCE, SOURCE, SOURCE, SOURCE, ALIVE, SOURCE),
    Row(graphs.other_broker_away, LOFT, LOFT, LOFT, LOFT, LOFT, LOFT),
    Row(graphs.redeclared_beside_a_worker, FORMER, "exactly-once", "exactly-once", FORMER, FORMER, FORMER),
    Row(graphs.paused, PAUSED, PAUSED, PAUSED, PAUSED, PAUSED, "not idle"),
    Row(not_compacted("g.check.backing"), POLICY, POLICY, POLICY, POLICY, ALIVE, OUTSIDE),
    Row(not_compacted("g.check.seen.changelog"), POLICY, POLICY, POLICY, POLICY, ALIVE, OUTSIDE),
    Row(redeclared(strategy="at-least-once"), NO_WORKER, "exactly-once", "exactly-once", PAST, GONE, OUTSIDE),
    Row(redeclared(strategy="at-most-once"), NO_WORKER, "exactly-once", "exactly-once", PAST, GONE, OUTSIDE),
    Row(redeclared(inputs={"order": "orders"}), NO_WORKER, "bindings", "bindings", "not an input", GONE, OUTSIDE),
]


class Told(NamedTuple):
    """What one says: whether all is well, and its words."""

    well: bool
    text: str


Command = Callable[..., Told]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Changes are told without a long wait."""
    monkeypatch.setattr(status_writer, "LOOK_S", 0.02)


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> Command:
    """Runs a command of the command line on a world."""

    def run(world: World, *words: str) -> Told:
        monkeypatch.setattr(loading, "load_graph", lambda _: world.graph)
        monkeypatch.setattr(opening, "open_broker", lambda _: world.broker)
        monkeypatch.setattr(world.broker, "close", lambda: None)
        result = CliRunner().invoke(app, [words[0], "m:g", "--bootstrap", "localhost:9092", *words[1:]])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Told(result.exit_code == 0, result.output)

    return run


def ready(world: World) -> Told:
    """`/readyz`, and the metric that says the same."""
    health = health_of(world)
    [metric] = [one.value for one in health.rows if one.name == "cues_kafka_ready"]
    assert metric == float(not health.unready)
    return Told(not health.unready, "\n".join(health.unready))


def health_of(world: World) -> Health:
    """The health of the process."""
    workers = world.running._workers
    look = HealthLook("g", world.broker, SystemClock(), lambda: workers, world.running.collect, told=True)
    look.look_at_ends()
    return look()


def idle(world: World) -> Told:
    """`wait_idle`."""
    try:
        world.running.wait_idle(timeout_s=0.3)
    except (CuesError, TimeoutError, TaskStopped) as error:
        return Told(False, str(error))
    return Told(True, "")


def settled(ask: Callable[[], Told], *, well: bool, text: str = "") -> Told:
    """
    What one says once processes have told their states, a moment later; a stopped task is tried now and then.

    Until a process has told its state, that of the process before it counts, which may be unwell for another reason.
    """
    until = time.monotonic() + (0 if well else 10)
    while (found := ask()).well or not re.search(text, found.text):
        if time.monotonic() >= until:
            break
        time.sleep(0.05)
    return found


def expected_of(row: Row, who: str) -> Told:
    """Whether one says that all is well, and a text that it says if not."""
    expected = getattr(row, who)
    return Told(well=isinstance(expected, Well), text=expected if isinstance(expected, str) else "")


def answers(world: World, command: Command, row: Row) -> dict[str, Told]:
    """What all say; the process itself first, because it says something else of a cluster that is away for long."""
    asked: dict[str, Callable[[], Told]] = {
        "ready": lambda: ready(world),
        "idle": lambda: idle(world),
        "status": lambda: command(world, "status"),
        "doctor": lambda: command(world, "doctor", "--for", "0"),
        "plan": lambda: command(world, "plan", "--records"),
        "verify": lambda: command(world, "verify"),
    }
    expected = {who: expected_of(row, who) for who in asked}
    return {who: settled(ask, well=expected[who].well, text=expected[who].text) for who, ask in asked.items()}


@pytest.mark.parametrize("row", ROWS, ids=lambda one: one.state.__name__)
def test_all_that_are_asked_say_what_the_table_says(row: Row, command: Command, tmp_path: Path) -> None:
    """Well, or unwell with the word; the last line of an unwell `status` never says that all is well."""
    world = row.state(tmp_path)
    try:
        told = answers(world, command, row)
    finally:
        world.running.abandon()
    for who, expected in row._asdict().items():
        if who == "state":
            continue
        said = told[who]
        assert said.well == isinstance(expected, Well), f"{who}: {said.text}"
        if isinstance(expected, str):
            assert re.search(expected, said.text), f"{who}: {said.text}"
    if not told["status"].well:
        assert "all is well" not in told["status"].text


def test_table_has_all_kinds_of_states() -> None:
    """At least 25, and no state twice."""
    names = [one.state.__name__ for one in ROWS]
    assert len(set(names)) == len(names) >= 25


def test_last_line_of_verify_names_what_is_unwell(command: Command) -> None:
    """Behind what was verified, with the task."""
    for state, words in (
        (graphs.stopped, "but the graph is not well now: check/0 stopped"),
        (graphs.waiting, "but the graph is not well now: check/0 has no worker"),
        (not_compacted("g.check.backing"), "but the graph is not well now: its plan is refused"),
    ):
        world = state(Path())
        try:
            told = settled(lambda world=world: command(world, "verify"), well=False)  # type: ignore[misc]
        finally:
            world.running.abandon()
        assert words in told.text.rstrip().splitlines()[-1]


def test_last_line_of_status_counts_the_tasks_that_have_lost_something(command: Command) -> None:
    """They are at work, so no state says it."""
    world = graphs.record_lost_while_at_work(Path())
    try:
        told = settled(lambda: command(world, "status"), well=False)
    finally:
        world.running.abandon()
    assert "1 task without what it works on, no messages are waiting" in told.text.rstrip().splitlines()[-1]


def test_late_messages_are_in_the_last_line_of_status_instead_of_all_is_well(command: Command) -> None:
    """And `doctor` notes them; nothing stands still, so the exit codes stay 0."""
    world = graphs.late(Path())
    try:
        until = time.monotonic() + 10
        while "too late" not in (told := command(world, "status")).text and time.monotonic() < until:
            time.sleep(0.05)
        doctor = command(world, "doctor", "--for", "0")
    finally:
        world.running.abandon()
    assert told.well
    last = told.text.rstrip().splitlines()[-1]
    assert last.endswith("10 messages came too late for a window or a bound, no messages are waiting")
    assert "`ahead=` of Tumbling" in told.text
    assert doctor.well
    assert "note  check/0: 10 messages came too late for a window or a bound" in doctor.text


def test_plan_names_a_task_that_stopped_at_a_message_and_lets_the_cure_be_deployed(command: Command) -> None:
    """Whether other code delivers the message, only a run shows; `status` says it is wrong meanwhile."""
    world = graphs.stopped(Path())
    try:
        assert not settled(lambda: command(world, "status"), well=False).well
        plan = command(world, "plan", "--records")
        world.graph = graphs.graph_of(inputs={"order": "orders"})
        other = command(world, "plan", "--records")
    finally:
        world.running.abandon()
    assert plan.well
    assert "Not well now" in plan.text
    assert re.search(rf"check/0: {NEGATIVE}.*; only a run shows whether it goes on", plan.text)
    assert not other.well, "what other records refuse still counts"


def test_plan_lets_the_cure_of_a_deadly_message_be_deployed_and_nothing_else(command: Command) -> None:
    """The record and the declaration show whether the task goes on: without errors=, no other function is called."""
    world = graphs.killed(Path())
    cures = {"errors=": graphs.graph_of(errors=Errors("g.errors")), "None": graphs.graph_of(quarantine_after=None)}
    try:
        assert not settled(lambda: command(world, "status"), well=False).well
        same = command(world, "plan", "--records")
        told = {}
        for name, graph in cures.items():
            world.graph = graph
            told[name] = command(world, "plan", "--records")
    finally:
        world.running.abandon()
    assert not same.well
    would = same.text.partition("Tasks that would stop:")[2]
    assert DEADLY in would.partition("Not well now")[0]
    assert "`errors=`" in would
    assert "`quarantine_after=None`" in would
    for one in told.values():
        assert one.well, one.text
        assert re.search(rf"Tasks that would stop:\s+none\s+Not well now:\s+check/0: {DEADLY}", one.text)
        assert "the task goes on with it" in one.text


@pytest.mark.parametrize("cure", [{"errors": Errors("g.errors")}, {"quarantine_after": None}], ids=str)
def test_cure_of_a_deadly_message_is_one(cure: dict[str, Any]) -> None:
    """The task goes on with what the plan has let through."""
    world = graphs.killed(Path())
    world.running.stop()
    world.graph = graphs.graph_of(**cure)
    world.begin()
    try:
        world.running.wait_idle(timeout_s=20)
        [task] = [one for one in world.running.status().tasks if one.task == "check/0"]
    finally:
        world.running.stop()
    assert (task.stopped, task.totals.deliveries) == ("", 2)


def test_quarantined_messages_are_in_the_last_line_of_status_and_noted(command: Command) -> None:
    """Nothing stands still, so the exit codes stay 0."""
    world = graphs.in_quarantine(Path())
    try:
        until = time.monotonic() + 10
        while "quarantine" not in (told := command(world, "status")).text and time.monotonic() < until:
            time.sleep(0.05)
        doctor = command(world, "doctor", "--for", "0")
    finally:
        world.running.abandon()
    assert told.well
    assert told.text.rstrip().splitlines()[-1].endswith("1 message in quarantine, no messages are waiting")
    assert "killed its process at least 3 times" in told.text, "the newest error"
    assert "`cues-kafka errors list m:g --kind quarantine`" in told.text.replace("MODULE:GRAPH", "m:g")
    assert doctor.well
    assert (
        "note  check/0: 1 message killed the process of the task each time, and is an error message now" in doctor.text
    )


def test_doctor_says_of_a_paused_processor_that_it_is_paused_and_by_whom(command: Command) -> None:
    """Messages wait and nothing is committed, as where a task has stopped; but an operator wants it so."""
    world = graphs.paused(Path())
    try:
        doctor = command(world, "doctor", "--for", "0.01")
    finally:
        world.running.abandon()
    assert doctor.well
    assert re.search("note  check: paused by test since .*, and messages of orders/0 wait", doctor.text)
    assert "cues-kafka resume" in doctor.text
    assert "may have stopped" not in doctor.text


def test_partition_without_a_task_has_its_lag_in_the_metrics() -> None:
    """All that it holds waits."""
    world = graphs.partition_added(Path())
    try:
        rows = health_of(world).rows
    finally:
        world.running.abandon()
    [lag] = [one for one in rows if one.name == "cues_kafka_lag_messages" and one.labels["partition"] == "1"]
    assert lag.value == 1.0


def test_json_of_plan_and_status_has_the_same_tasks(command: Command) -> None:
    """From one function."""
    world = graphs.stopped(Path())
    try:
        told = [
            settled(lambda words=words: command(world, *words), well=False).text  # type: ignore[misc]
            for words in (("status", "--json"), ("plan", "--records", "--json"), ("verify", "--json"))
        ]
    finally:
        world.running.abandon()
    assert len({json.dumps([(one["name"], one["kind"]) for one in json.loads(text)["unwell"]]) for text in told}) == 1


def test_what_may_pass_by_itself_is_a_note() -> None:
    """A transaction that has been open for seconds; one of a minute is wrong."""
    young, old = (verdict("g", [TaskCondition("check/0", blocked={ORDERS: age_s})]) for age_s in (10.0, 60.0))
    assert (young[0].severity, is_well(young)) == ("note", True)
    assert (old[0].severity, is_well(old)) == ("wrong", False)
    assert verdict("g", [TaskCondition("check/0", blocked={ORDERS: 1.0}), TaskCondition("check/1", "paused")]) == ()

"""What the log says of single messages and tasks: one event each, with task, place and hash, and never a flood."""

from __future__ import annotations

import io
import json
import logging
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaError

from cues_kafka import (
    Feed,
    Graph,
    Iterate,
    Json,
    Memory,
    Processor,
    RecoveryError,
    Retry,
    Source,
    TaskStopped,
    Topic,
    start,
)
from cues_kafka.brokers.kafka import watch
from cues_kafka.brokers.memory import Faults, MemoryBroker
from cues_kafka.errors import RetriableError
from cues_kafka.observe import log as observed
from cues_kafka.observe.log import INTERVAL_S, LINES, JsonLog, Sparing, get_logger
from cues_kafka.task import lane
from cues_kafka.task.lane import RESTART_FIRST_S
from cues_kafka.task.task_log import TaskLog
from cues_kafka.testing.tester import Crash, Tester, VirtualClock

Said = list[tuple[int, str, dict[str, Any]]]


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> Said:
    """Every line: level, event, keys and values."""
    lines: Said = []

    def write(self: Any, level: int, event: str, values: dict[str, Any]) -> None:
        lines.append((level, event, {**self.bound, **values}))

    monkeypatch.setattr(observed._OnDemand, "_write", write)
    return lines


def of(said: Said, event: str) -> list[dict[str, Any]]:
    """Keys and values of the lines of one event."""
    return [values for _, name, values in said if name == event]


def graph_of(work: Any, *, errors: str | None = "bad", retry: Retry | None = None) -> Graph:
    """A pipe of one task."""
    part = Processor(work, name="work", inputs="in", outputs="out", retry=retry)
    return Graph("g", Source("in"), part, errors=errors, defaults=Topic(value=Json(), partitions=1))


def odd_fails(n: int) -> int:
    """Every odd number raises."""
    if n % 2:
        raise ValueError(f"{n} is odd")
    return n


def test_each_error_message_leaves_one_line_with_its_place_and_hash(said: Said) -> None:
    """The same hash as in the error message, so that one leads to the other."""
    tester = Tester(graph_of(odd_fails))
    for n in (4, 5, 6, 7):
        tester.send("in", n)
    tester.run()

    lines = of(said, "error message")
    assert [(line["task"], line["at"], line["error"]) for line in lines] == [
        ("work/0", "in/0 at 1", "ValueError: 5 is odd"),
        ("work/0", "in/0 at 3", "ValueError: 7 is odd"),
    ]
    assert [line["hash"] for line in lines] == [one.hash.hex() for one in tester.errors()]
    assert {level for level, event, _ in said if event == "error message"} == {logging.WARNING}
    assert lines[0]["where"].startswith("test_log.py:odd_fails:")


def test_an_error_of_a_batch_that_is_called_again_is_told_once(said: Said) -> None:
    """The first process dies before its commit; what it found is not there, and no reader is told of it."""
    tester = Tester(graph_of(odd_fails))
    tester.send("in", 1)
    tester.run(crash=Crash("before", "Commit", 2))
    assert of(said, "error message") == []
    tester.restart().run()

    assert len(of(said, "error message")) == len(tester.errors()) == 1


class LosesOneReply(Faults):
    """The commit of a task's first batch is applied, and its reply is lost."""

    def __init__(self) -> None:
        self.commits = 0

    def after(self, operation: str, client: str) -> str | None:
        """Called when it is applied."""
        self.commits += operation == "commit" and client.startswith("g.work.")
        if operation == "commit" and self.commits == 3:
            self.commits += 1
            raise RetriableError("no reply")
        return None


def test_an_error_is_told_where_the_reply_to_its_commit_was_lost(said: Said) -> None:
    """The record that recovery finds says that the batch is there; the recovery is told as well."""
    tester = Tester(graph_of(odd_fails), broker=MemoryBroker(faults=LosesOneReply()))
    tester.send("in", 1)
    tester.run()

    assert [line["why"] for line in of(said, "failed")] == ["committing: no reply"]
    assert [line["task"] for line in of(said, "recovered")] == ["work/0"]
    assert len(of(said, "error message")) == len(tester.errors()) == 1


def test_commit_behind_a_marker_that_the_broker_lost_says_so(said: Said) -> None:
    """P6b: the log of the backing partition ends one offset too early, as behind a broker that came back without it."""
    tester = Tester(graph_of(odd_fails))
    tester.send("in", 2)
    tester.run()
    tester.broker.topics.log_of(("g.work.backing", 0)).end -= 1
    for n in (4, 6):
        tester.send("in", n)
        tester.run()

    [line] = of(said, "marker missing")
    assert (line["task"], line["record"]) == ("work/0", 2)
    assert of(said, "failed") == []
    assert tester.values("out") == [2, 4, 6]


def test_a_flood_of_errors_leaves_few_lines_and_a_count(said: Said) -> None:
    """What is left out is counted, and told when its interval is over."""
    tester = Tester(graph_of(odd_fails))
    tester.run()
    for _ in range(3):
        for _ in range(500):
            tester.send("in", 1)
        tester.run()
    lines = of(said, "error message")
    assert len(lines) == LINES
    assert all("hash" in line for line in lines)

    tester.clock.advance(INTERVAL_S)
    tester.send("in", 2)
    tester.run()
    assert [line["more"] for line in of(said, "error message")[LINES:]] == [1500 - LINES]
    assert len(tester.errors()) == 1500


def test_no_line_is_made_for_messages_that_succeed(said: Said) -> None:
    """Nothing that costs something for each message, not even a look."""
    tester = Tester(graph_of(odd_fails))
    for _ in range(100):
        tester.send("in", 2)
    tester.run()

    assert [event for _, event, _ in said] == ["assigned", "all tasks ready"]


def test_each_retry_leaves_a_line_and_the_last_one_an_error(said: Said) -> None:
    """Info while there is hope, a warning when it is over."""
    tester = Tester(graph_of(odd_fails, retry=Retry(on=(ValueError,), for_s=5.0, first_s=1.0, then="error")))
    tester.send("in", 1)
    tester.run()

    [error] = tester.errors()
    lines = of(said, "retry")
    assert [line["attempt"] for line in lines] == list(range(1, error.attempts))
    assert [line["again_in_s"] for line in lines] == [2.0**n for n in range(len(lines))]
    assert {(line["task"], line["at"], line["hash"]) for line in lines} == {("work/0", "in/0 at 0", error.hash.hex())}
    assert {level for level, event, _ in said if event == "retry"} == {logging.INFO}
    [last] = of(said, "error message")
    assert (last["kind"], last["hash"]) == ("retries exhausted", error.hash.hex())


def test_quarantine_says_which_message_and_each_death_before_it_where(said: Said) -> None:
    """An operator finds the message in the log, not only in the errors topic."""

    def deadly(n: int) -> int:
        if n == 1:
            tester.kill()
        return n

    tester = Tester(graph_of(deadly))
    tester.send("in", 0)
    tester.send("in", 1)
    while tester.run_to_death():
        tester.restart()

    [error] = tester.errors()
    [line] = of(said, "quarantined")
    assert line == {"task": "work/0", "at": "in/0 at 1", "hash": error.hash.hex(), "deaths": error.starts}
    assert [event for level, event, _ in said if level == logging.ERROR] == ["quarantined"]
    assert of(said, "error message") == []
    assert "in/0 at or after 1" in [one["at"] for one in of(said, "died here")]


def test_a_stop_says_of_which_message_and_its_end_is_told_too(said: Said) -> None:
    """Cause and remedy, place and hash; and when the cause is gone, how long it took."""
    broken = [True]

    def work(n: int) -> int:
        if broken:
            raise ValueError("not yet")
        return n

    with start(graph_of(work, errors=None), Memory()) as running:
        running.send("in", 1)
        with pytest.raises(TaskStopped):
            running.wait_idle(timeout_s=60)
        [line] = of(said, "stopped")
        assert (line["task"], line["at"], len(line["hash"])) == ("work/0", "in/0 at 0", 32)
        assert "not yet" in line["why"]
        assert line["remedy"]

        broken.clear()
        until(lambda: of(said, "recovered") and not running.status().stopped)
        running.wait_idle(timeout_s=60)
    [recovered] = of(said, "recovered")
    assert recovered["task"] == "work/0"
    assert recovered["after_s"] >= RESTART_FIRST_S


def until(done: Callable[[], object]) -> None:
    """Wait for what other threads do."""
    deadline = time.monotonic() + 60
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_sparing_says_what_it_held_back_at_the_end_of_a_task(said: Said) -> None:
    """Nothing is swallowed with a task that is given up."""
    sparing = Sparing(observed.get_logger("x"))
    sparing.warning("e", [{"n": n} for n in range(LINES + 3)], 100, now_s=0.0)
    assert sparing.held
    sparing.catch_up(INTERVAL_S - 1)
    assert len(said) == LINES
    sparing.catch_up(1.0, at_once=True)

    assert said[-1] == (logging.WARNING, "e", {"more": 100 - LINES, "in_s": 1.0})
    assert not sparing.held


def test_a_refused_login_is_said_once_however_many_clients_try(said: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each client of a process tries again every second."""
    monkeypatch.setattr(watch, "_refused_s", {})
    for client in ("a", "b"):
        one = watch.Watch(client)
        one.on_error(
            KafkaError(
                KafkaError._AUTHENTICATION,
                "SASL authentication error: SaslAuthenticateRequest failed: Local: Broker transport failure",
            )
        )
        for _ in range(3):
            one.on_error(KafkaError(KafkaError._AUTHENTICATION, "SASL authentication error: Authentication failed"))

    ((level, event, keys),) = said
    assert (level, event, keys["client"]) == (logging.ERROR, "authentication refused", "a")
    assert "wrong user name or password" in keys["why"]
    assert "restart it with the new one" in keys["remedy"]


def test_failures_of_a_stopped_task_are_said_once(said: Said) -> None:
    """It is tried again up to each minute, five rounds each time; something else that fails is said."""
    task = TaskLog("p/0", VirtualClock())
    for attempt in range(3):
        for round_ in range(1, 6):
            task.failed("p/0", "the store does not read", round_)
        if attempt == 1:
            task.failed("p/0", "no broker", 1)
        task.stopped("p/0", "gave up", "have it answer", {})
    assert [one["why"] for one in of(said, "failed")] == ["the store does not read"] * 5 + ["no broker"]
    assert len(of(said, "stopped")) == 3
    task.recovered("p/0", 1.0)
    task.failed("p/0", "the store does not read", 1)
    assert len(of(said, "failed")) == 7


def test_feed_has_recovered_when_its_source_answers(said: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not at each try while its file is still wrong."""
    monkeypatch.setattr(lane, "RESTART_FIRST_S", 0.05)
    wrong: list[str] = []

    def rows(place: str | None) -> Iterator[tuple[int, str]]:
        if wrong:
            raise RecoveryError("file 'a' was changed")
        yield from ((n, str(n + 1)) for n in range(int(place or 0), 3))

    graph = Graph("g", Feed(Iterate(rows), into="in", name="f", poll_seconds=0.05), defaults=Topic(value=Json(int)))
    with start(graph, Memory()) as running:
        running.wait_idle()
        wrong.append("still")
        until(lambda: len(of(said, "stopped")) >= 2)
        assert of(said, "recovered") == []
        wrong.clear()
        until(lambda: of(said, "recovered"))


def test_json_lines_of_a_worker_below_a_supervisor_have_its_number() -> None:
    """Lines of several workers stand in one log."""
    record = logging.LogRecord("cues_kafka.worker", logging.INFO, "", 0, "assigned", None, None)
    line = json.loads(JsonLog(2).format(record))
    assert (list(line), line["worker"]) == (["time", "level", "logger", "event", "worker"], 2)


def test_json_lines_have_the_event_its_values_and_four_keys_of_their_own() -> None:
    """A value cannot take the place of the time; what JSON does not know is written as text."""
    written = io.StringIO()
    handler = logging.StreamHandler(written)
    handler.setFormatter(JsonLog())
    logger = logging.getLogger("cues_kafka.test_json_lines")
    logger.addHandler(handler)
    logger.propagate = False
    try:
        get_logger(logger.name).bind(task="check/0").warning("stopped", why='no "right"\n', at={1}, time="mine")
        try:
            raise ValueError("no")
        except ValueError:
            logger.exception("of %s", "another library")
    finally:
        logger.removeHandler(handler)

    ours, other = (json.loads(line) for line in written.getvalue().splitlines())
    assert list(ours) == ["time", "level", "logger", "event", "task", "why", "at"]
    assert ours["time"].endswith("+00:00")
    assert (ours["level"], ours["logger"], ours["event"]) == ("warning", logger.name, "stopped")
    assert (ours["task"], ours["why"], ours["at"]) == ("check/0", 'no "right"\n', "{1}")
    assert other["event"] == "of another library"
    assert other["exception"].endswith("ValueError: no")

"""Health, readiness and metrics of a graph: what the pages say while it works, stops, starts and is cut off."""

from __future__ import annotations

import socket
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from prometheus_client.parser import text_string_to_metric_families

from cues_kafka import ConfigError, Graph, Json, Memory, Processor, Source, TaskStopped, Topic, start
from cues_kafka.brokers.local.ports import free_ports
from cues_kafka.brokers.memory import MemoryBroker
from cues_kafka.core.records import Totals
from cues_kafka.errors import RetriableError
from cues_kafka.graph.names import transactional_id
from cues_kafka.observe.histogram import Histogram
from cues_kafka.observe.http import Health, listen
from cues_kafka.observe.metrics import KINDS, METRICS, Sample, exposition
from cues_kafka.observe.refused import Refused
from cues_kafka.observe.tally import TaskTally
from cues_kafka.observe.throttling import Throttling
from cues_kafka.ports.log import Position
from cues_kafka.running.collector import TaskFacts
from cues_kafka.running.health import STANDS_S, HealthLook
from cues_kafka.task.clock import SystemClock
from cues_kafka.task.status import TaskStatus
from cues_kafka.workers.supervisor import Supervisor
from cues_kafka.workers.together import TogetherLook
from cues_kafka.workers.worker import ProcessorWorker
from tests.unit.samples import at


def check(order: dict[str, int]) -> dict[str, int]:
    """Refuse what is negative."""
    if order["total"] < 0:
        raise ValueError("negative")
    return order


def shop(*, errors: str | None = "shop.errors") -> Graph:
    """A graph of one task."""
    part = Processor(check, inputs="orders", outputs="checked")
    return Graph("shop", Source("orders"), part, errors=errors, defaults=Topic(value=Json(), partitions=1))


def get(port: int, page: str) -> tuple[int, str]:
    """Status and text of a page."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/{page}", timeout=5) as found:
            return found.status, found.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def parsed(text: str) -> dict[str, list[tuple[dict[str, str], float]]]:
    """What Prometheus reads from the text: by name, labels and value."""
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in text_string_to_metric_families(text):
        for one in family.samples:
            found.setdefault(one.name, []).append((one.labels, one.value))
    return found


@pytest.fixture
def port() -> int:
    """A port that is free."""
    return free_ports(1)[0]


ELSEWHERE = {
    "cues_kafka_worker_up",
    "cues_kafka_worker_restarts_total",
    "cues_kafka_lag_messages",
    "cues_kafka_lag_seconds",
}
"""Those of a supervisor, and the lag, which a thread measures in its own time: they have tests of their own."""


def test_pages_of_a_graph_at_work(port: int) -> None:
    """It lives, is ready, and counts what it did; every metric is there, with the labels that the table names."""
    began_s = SystemClock().time()
    with start(shop(), Memory(), http=str(port)) as running:
        running.send_many("orders", [{"total": 1}, {"total": -1}, {"total": 2}])
        running.wait_idle()
        assert get(port, "healthz") == (200, "ok\n")
        assert get(port, "readyz") == (200, "ok\n")
        assert get(port, "nothing")[0] == 404
        found = parsed(get(port, "metrics")[1])

    task = {"graph": "shop", "processor": "check", "partition": "0", "worker": "1"}
    assert found["cues_kafka_deliveries_total"] == [(task, 3.0)]
    assert found["cues_kafka_outputs_total"] == [(task, 2.0)]
    errors = {labels["kind"]: count for labels, count in found["cues_kafka_errors_total"]}
    assert errors == {kind: float(kind == "raised") for kind in KINDS}
    assert found["cues_kafka_ready"] == [({"graph": "shop", "worker": "1"}, 1.0)]
    [(_, commits)] = found["cues_kafka_commit_seconds_count"]
    assert commits == found["cues_kafka_batch_seconds_bucket"][-1][1] >= 1
    assert found["cues_kafka_output_bytes_total"][0][1] > 0
    assert sum(value for _, value in found["cues_kafka_task_state"]) == 1
    assert found["cues_kafka_output_messages_total"] == [(task, 2.0)]
    assert [found[f"cues_kafka_{name}"] for name in ("dropped_total", "stops_total")] == [[(task, 0.0)]] * 2
    [(_, committed_s)] = found["cues_kafka_last_commit_timestamp_seconds"]
    assert began_s <= committed_s <= SystemClock().time()
    for name in METRICS.keys() - ELSEWHERE:
        [(labels, _), *_] = found.get(name) or found[f"{name}_count"]
        assert set(labels) == set(METRICS[name].labels), name
    with pytest.raises(urllib.error.URLError):  # the port is given back
        get(port, "healthz")


def test_a_stopped_task_is_not_ready_and_says_its_remedy_but_lives(port: int) -> None:
    """A restart would not help, so the process is healthy."""
    running = start(shop(errors=None), Memory(), http=f":{port}")
    try:
        running.send("orders", {"total": -1})
        with pytest.raises(TaskStopped, match="negative"):
            running.wait_idle()
        status, said = get(port, "readyz")
        assert (status, get(port, "healthz")[0]) == (503, 200)
        assert said.startswith("check/0 stopped: ")
        assert "remedy: " in said
        found = parsed(get(port, "metrics")[1])
        assert found["cues_kafka_ready"][0][1] == 0
        assert found["cues_kafka_stops_total"][0][1] >= 1
    finally:
        running.stop()


def test_a_task_that_another_process_fenced_is_counted_and_its_recovery_too(port: int) -> None:
    """The other process took its transactional id and ended."""
    with start(shop(), Memory(), http=str(port)) as running:
        running.send("orders", {"total": 1})
        running.wait_idle()
        running._broker.session(transactional_id("shop", "check", 0)).init(timeout_s=1)
        running.send("orders", {"total": 2})
        running.wait_idle()
        found = parsed(get(port, "metrics")[1])
        assert [message.value["total"] for message in running.messages("checked")] == [1, 2]

    names = ("fenced_total", "failures_total", "recovery_seconds_count", "deliveries_total")
    assert [found[f"cues_kafka_{name}"][0][1] for name in names] == [1.0, 1.0, 1.0, 2.0]


def facts(state: str = "ready", *, tally: TaskTally | None = None, **status: Any) -> TaskFacts:
    """A task."""
    positions = (Position("orders", "orders", b"i" * 16, 7),)
    return TaskFacts(
        "check", 0, TaskStatus("check/0", state, positions, Totals(5, 4, 1), **status), tally or TaskTally(), 0
    )


class Placed:
    """A worker with a place in its group."""

    name, failed, over, generation, positions_in_group = "check", None, False, 1, False
    unreachable_s = 0.0


def look(*tasks: TaskFacts, workers: Sequence[Any] = (Placed(),), told: bool = True, broker: Any = None) -> HealthLook:
    """A look at these."""
    return HealthLook("shop", broker, SystemClock(), lambda: cast(Any, workers), lambda: tasks, told=told)


def values(health: Health, name: str) -> list[float | Histogram]:
    """The values of a metric."""
    return [row.value for row in health.rows if row.name == name]


def test_each_number_is_exported_under_its_own_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """No two of them are alike, and alerts need each of them."""
    throttling = Throttling()
    throttling.held_back("client", "b1", 1.5)
    monkeypatch.setattr("cues_kafka.running.health.THROTTLING", throttling)
    refused = Refused()
    for offset in range(7):
        refused.note(at("g.status", offset), "a status record", "no JSON")
    monkeypatch.setattr("cues_kafka.running.health.REFUSED", refused)
    counts = TaskTally(deliveries=21, outputs=17, messages=31, size=500, dropped=3, retries=4)
    tally = replace(counts, failures=5, stops=6, fenced=2, committed_s=1_700_000_000.5)
    task = facts(tally=tally, calling_s=301.0, unreachable_s=61.0)
    found = parsed(exposition(look(task)().rows).decode())

    expected = {
        "deliveries_total": 21,
        "outputs_total": 17,
        "output_messages_total": 31,
        "output_bytes_total": 500,
        "dropped_total": 3,
        "retries_total": 4,
        "failures_total": 5,
        "stops_total": 6,
        "fenced_total": 2,
        "call_seconds": 301.0,
        "last_commit_timestamp_seconds": 1_700_000_000.5,
        "cluster_unreachable_seconds": 61.0,
        "throttled_seconds_total": 1.5,
        "refused_records_total": 7,
    }
    assert {name: [one for _, one in found[f"cues_kafka_{name}"]] for name in expected} == {
        name: [value] for name, value in expected.items()
    }


def test_totals_of_tasks_on_spark_are_exported_under_their_own_names() -> None:
    """They tell no observer."""
    status = TaskStatus("check/0", "ready", (), Totals(deliveries=21, outputs=17, messages=31, dropped=3))
    found = look(TaskFacts("check", 0, status, TaskTally(), 0), told=False)()

    names = ("deliveries_total", "outputs_total", "output_messages_total", "dropped_total")
    assert [values(found, f"cues_kafka_{name}") for name in names] == [[21], [17], [31], [3]]


@pytest.mark.parametrize(
    ("task", "why"),
    [
        (facts("fetching sibling"), "check/0 is recovering"),
        (facts("starting"), "check/0 is starting"),
        (facts(unreachable_s=12.0), "check/0: the cluster has not answered for 12 s"),
        (facts(stopped="no right", remedy="grant it"), "check/0 stopped: no right; remedy: grant it"),
    ],
)
def test_what_is_not_ready_is_said(task: TaskFacts, why: str) -> None:
    """And the process lives."""
    found = look(task)()
    assert (found.ill, found.unready) == ((), (why,))


def test_paused_and_briefly_cut_off_tasks_are_ready() -> None:
    """An operator paused it; the cluster may be silent for a moment."""
    assert look(facts(held="paused", resting=True), facts(unreachable_s=3.0))().unready == ()


def test_a_graph_without_workers_or_place_is_not_ready() -> None:
    """It is starting, or waits for the session of its predecessor."""
    waits = Placed()
    waits.generation = -1
    assert look(workers=())().unready == ("the graph is starting",)
    assert look(workers=(waits,))().unready == ("check waits for its place in the group",)


def test_a_worker_whose_session_ended_while_the_cluster_was_silent_is_not_ready() -> None:
    """It has lost its tasks, which said so before; while it has one, the task says it, and only once."""
    cut_off = Placed()
    cut_off.unreachable_s = 31.0
    found = look(workers=(cut_off,))()

    assert found.unready == ("check: the cluster has not answered for 31 s",)
    assert values(found, "cues_kafka_cluster_unreachable_seconds") == [31.0]
    assert values(found, "cues_kafka_ready") == [0.0]
    [said] = look(facts(unreachable_s=31.0), workers=(cut_off,))().unready
    assert said.startswith("check/0: ")
    cut_off.unreachable_s = 3.0
    assert look(workers=(cut_off,))().unready == ()


class StandsStill(ProcessorWorker):
    """A worker of `check` whose poller has not come round."""

    def __init__(self) -> None:
        self.name, self.failed = "check", None

    @property
    def generation(self) -> int:
        return -1

    @property
    def unreachable_s(self) -> float:
        return 0.0

    @property
    def stands_for_s(self) -> float:
        return STANDS_S


def test_a_worker_that_failed_or_stands_still_is_ill() -> None:
    """Only a restart helps."""
    failed, stands = Placed(), StandsStill()
    failed.failed = cast(Any, RuntimeError("no thread"))

    assert look(workers=(failed,))().ill == ("check failed: RuntimeError: no thread",)
    [said] = look(workers=(stands,))().ill
    assert said.startswith("check has not served its group for ")


def test_lag_is_measured_at_the_ends_of_inputs_and_missing_while_the_cluster_is_silent() -> None:
    """In messages, and in seconds by the timestamp of the oldest one that was fetched."""
    now_s = SystemClock().time()
    with start(shop(), Memory()) as running:
        running.send_many("orders", [{"total": 1}] * 9)
        running.wait_idle()
        looks = look(facts(oldest_s=now_s - 60), broker=running._broker)
        assert values(looks(), "cues_kafka_lag_messages") == []
        looks.look_at_ends()
        assert values(looks(), "cues_kafka_lag_messages") == [3]  # two messages, and the marker of their transaction
        [seconds] = values(looks(), "cues_kafka_lag_seconds")
        assert isinstance(seconds, float)
        assert 60 <= seconds < 70

        looks._broker = cast(MemoryBroker, Silent())
        looks.look_at_ends()
        assert values(looks(), "cues_kafka_lag_messages") == []


class Silent:
    """A broker that does not answer."""

    def watermarks(self, _: Any) -> Any:
        raise RetriableError("no answer")


def errors_by_kind(health: Health) -> dict[str, Any]:
    """Counts of error messages that are not 0."""
    return {one.labels["kind"]: one.value for one in health.rows if one.name.endswith("errors_total") and one.value}


OF_SLOTS = ("output_bytes_total", "retries_total", "failures_total", "stops_total", "batch_seconds", "commit_seconds")


def test_tasks_on_spark_give_their_totals() -> None:
    """Where slots tell nothing, durations, retries and kinds of errors are missing, not 0."""
    found = look(facts(tally=TaskTally(deliveries=99), fenced=3), told=False)()
    assert values(found, "cues_kafka_deliveries_total") == [5]
    assert values(found, "cues_kafka_fenced_total") == [3]
    assert errors_by_kind(found) == {"unnamed": 1}
    for name in (*OF_SLOTS, "recovery_seconds", "call_seconds"):
        assert values(found, f"cues_kafka_{name}") == [], name


def test_tasks_on_spark_whose_slots_tell_the_driver_have_durations_retries_and_kinds_of_errors() -> None:
    """Totals count since the beginning of the task: errors that no slot has told this driver stay without a name."""
    told = TaskTally(size=70, retries=2, failures=1, stops=4, batch_s=Histogram().plus(0.2), commit_s=Histogram())
    kinds = {"decode": 2, "unnamed": 1}
    status = TaskStatus("check/0", "on spark", (), Totals(9, 4, 5), tally=replace(told, kinds=kinds))
    found = look(TaskFacts("check", 0, status, told, 0), told=False)()
    assert [values(found, f"cues_kafka_{name}") for name in OF_SLOTS] == [
        [70], [2], [1], [4], [told.batch_s], [told.commit_s],
    ]  # fmt: skip
    assert errors_by_kind(found) == {"decode": 2, "unnamed": 3}
    assert values(found, "cues_kafka_recovery_seconds") == values(found, "cues_kafka_call_seconds") == []


def test_text_of_a_histogram_is_cumulative() -> None:
    """As Prometheus wants it."""
    labels = {"graph": "g", "processor": "p", "partition": "0", "worker": "1"}
    value = Histogram().plus(0.005).plus(0.006).plus(60.0)
    found = parsed(exposition([Sample("cues_kafka_commit_seconds", labels, value)]).decode())
    counts = {one["le"]: count for one, count in found["cues_kafka_commit_seconds_bucket"]}
    assert (counts["0.005"], counts["0.01"], counts["30.0"], counts["+Inf"]) == (1, 2, 2, 3)
    [(_, total_s)] = found["cues_kafka_commit_seconds_sum"]
    assert total_s == pytest.approx(60.011)


# Addresses.


def test_a_port_that_is_taken_is_refused_before_anything_starts() -> None:
    """With the next step."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ConfigError, match=rf"--http {address}: cannot listen there: .*Choose another port"):
            start(shop(), Memory(), http=address)


@pytest.mark.parametrize("address", ["", "nine", "127.0.0.1", "127.0.0.1:99999", "http://127.0.0.1:9100/x"])
def test_an_address_that_is_none_is_refused(address: str) -> None:
    """With an example."""
    with pytest.raises(ConfigError, match=r"write HOST:PORT, such as 127\.0\.0\.1:9100"):
        listen(address)


def test_a_missing_library_is_refused_with_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything starts."""
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install 'cues-kafka\[metrics\]'"):
        start(shop(), Memory(), http="0")


# Several workers.


class Two:
    """A supervisor of two workers."""

    def __init__(self, gave_up: int | None = None) -> None:
        self.restarts = {1: 0, 2: 3}
        self.gave_up = gave_up


@pytest.fixture
def together(tmp_path: Path) -> Iterator[TogetherLook]:
    """Two workers, of which the first one answers."""
    looks = TogetherLook("shop", 2, tmp_path)
    endpoint = listen(looks.address(1))
    endpoint.begin(look(facts(), facts(stopped="no right", remedy="grant it")))
    yield looks
    endpoint.close()


def test_a_supervisor_answers_for_all_of_its_workers(together: TogetherLook) -> None:
    """One that is not there yet is not ready, and no reason to restart the others."""
    found = together.look(cast(Supervisor, Two()))

    assert found.ill == ()
    assert found.unready == ("worker 1: check/0 stopped: no right; remedy: grant it", "worker 2: it is starting")
    text = parsed(exposition(found.rows).decode())
    assert [value for _, value in text["cues_kafka_worker_restarts_total"]] == [0, 3]
    assert {labels["worker"]: up for labels, up in text["cues_kafka_worker_up"]} == {"1": 1.0, "2": 0.0}
    assert {labels["worker"] for labels, _ in text["cues_kafka_task_state"]} == {"1"}


def test_a_frozen_worker_is_ill(together: TogetherLook, monkeypatch: pytest.MonkeyPatch) -> None:
    """It listens, and says nothing; so does a supervisor that gave up."""
    monkeypatch.setattr("cues_kafka.workers.together.ANSWER_S", 0.05)
    release, frozen = threading.Event(), listen(together.address(2))

    def wait() -> Health:
        release.wait(10)
        return Health()

    frozen.begin(wait)
    try:
        found = together.look(cast(Supervisor, Two(gave_up=2)))
    finally:
        release.set()
        frozen.close()
    assert found.ill == ("worker 2: it has not answered for 0.05 s", "the supervisor gave up")


def test_a_worker_that_starts_again_takes_the_file_of_the_one_before(together: TogetherLook) -> None:
    """A worker that was killed leaves its socket file."""
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(together.address(2).removeprefix("unix:"))
    endpoint = listen(together.address(2))
    try:
        assert together.look(cast(Supervisor, Two())).unready[-1] == "worker 2: the process is starting"
    finally:
        endpoint.close()


def test_a_file_that_is_no_socket_is_not_removed(tmp_path: Path) -> None:
    """Whose path was given by mistake."""
    file = tmp_path / "orders.csv"
    file.write_text("a,b")

    with pytest.raises(ConfigError, match="there is another file, and no socket"):
        listen(f"unix:{file}")
    assert file.read_text() == "a,b"


def test_a_defect_of_a_page_is_logged_with_its_cause(port: int, caplog: pytest.LogCaptureFixture) -> None:
    """The client gets no answer; a log at its usual level says why."""
    endpoint = listen(str(port))

    def broken() -> Health:
        raise LookupError("no such task")

    try:
        endpoint.begin(broken)
        with pytest.raises(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=10):  # noqa: PT011
            pass
    finally:
        endpoint.close()
    assert "LookupError: no such task" in caplog.text

"""The status of a graph as another machine sees it, on the reference broker."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from cues_kafka import BrokerError, Feed, Graph, Iterate, Json, Memory, Processor, Source, Topic, connect, start
from cues_kafka.brokers.memory import MemoryBroker
from cues_kafka.brokers.memory.clients import MemoryReader
from cues_kafka.brokers.open import open_broker
from cues_kafka.core.records import Totals
from cues_kafka.errors import FatalError, RetriableError
from cues_kafka.operate.look import newest as newest_module
from cues_kafka.operate.look import waiting
from cues_kafka.operate.look.seen import GraphStatus, SeenTask
from cues_kafka.operate.look.status import StatusView, _of_slots, _of_task, status
from cues_kafka.plan.topics import Sides
from cues_kafka.plan.wellness import AHEAD
from cues_kafka.ports.facts import NewTopic
from cues_kafka.ports.log import Fetched, Outgoing, TopicPartition
from cues_kafka.records.reading import OPEN_TRANSACTION, newest
from cues_kafka.records.status import StatusRecord, TaskOwner, encode_status
from cues_kafka.running import status_writer
from cues_kafka.running.running import Running
from cues_kafka.task.clock import SystemClock

WAIT_S = 20.0
SIDES = Sides(status=True, control=True)

WORKS = ("idle", "working")
"""Which of the two is a matter of seconds."""


class Now(SystemClock):
    """A clock whose time of day the test moves; it waits as the real one does."""

    def __init__(self) -> None:
        self.later_s = 0.0

    def time(self) -> float:
        return super().time() + self.later_s


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Changes are told without a long wait."""
    monkeypatch.setattr(status_writer, "LOOK_S", 0.02)


@pytest.fixture
def cluster() -> Memory:
    """A cluster with status."""
    return Memory(status_every_s=0.5)


def graph_of(function: Callable[..., Any], *more: Any, width: int = 1, **settings: Any) -> Graph:
    """One processor, and what the test adds."""
    return Graph(
        "g",
        Source("orders"),
        Processor(function, inputs="orders", outputs="checked", name="check"),
        *more,
        defaults=Topic(value=Json(), partitions=width),
        **settings,
    )


def same(order: Any) -> Any:
    """Nothing changes."""
    return order


def refuse(order: Any) -> Any:
    """Refuse what is negative."""
    if order["n"] < 0:
        raise ValueError("negative")
    return order


def view_of(cluster: Memory, graph: Graph, clock: Any = None) -> StatusView:
    return StatusView(graph, open_broker(cluster), sides=SIDES, clock=clock)


def until(running: Running, look: Callable[[], GraphStatus], condition: Callable[[GraphStatus], Any]) -> GraphStatus:
    """Look again and again, until what tasks tell is there."""
    found: list[GraphStatus] = []

    def seen() -> bool:
        found.append(look())
        return bool(condition(found[-1]))

    running._await(seen, WAIT_S, "what the test waits for")
    return found[-1]


def test_status_shows_what_tasks_did_where_they_stand_and_who_has_them(cluster: Memory) -> None:
    """Counts and positions from their records; retries, the newest error and the rate as their process told them."""
    graph = graph_of(refuse, Processor(lambda _: None, inputs="checked", name="count"), errors="wrong")
    with start(graph, cluster, instance="blue.1") as running:
        running.send_many("orders", [{"n": 1}, {"n": -1}, {"n": 2}])
        running.wait_idle()
        seen = until(running, lambda: status(cluster, graph), lambda seen: any(one.error for one in seen.tasks))

    assert [one.task for one in seen.tasks] == ["check/0", "count/0"]
    task = seen["check/0"]
    assert (task.state in WORKS, task.ok, task.runtime) == (True, True, "memory")
    assert task.owner.startswith("blue.1 (")
    assert (task.deliveries, task.outputs, task.errors, task.nils) == (3, 2, 1, 0)
    assert (task.retries, task.failures, task.stopped) == (0, 0, "")
    assert task.error == "orders/0 at 1: ValueError: negative"
    assert (task.lag, task.waiting_s) == (0, None)
    [of_input] = task.inputs
    assert (of_input.topic, of_input.partition, of_input.lag) == ("orders", 0, 0)
    assert of_input.position == of_input.end
    assert 0 <= seen.at_s - task.committed_s < WAIT_S
    assert seen.ok
    assert seen.lag == 0


def test_stopped_task_shows_the_cause_the_remedy_and_what_waits(cluster: Memory) -> None:
    """The lag counts from the message that it stopped at."""
    graph = graph_of(refuse)
    running = start(graph, cluster)
    try:
        running.send_many("orders", [{"n": 1}, {"n": -1}, {"n": 2}])
        view, pause = view_of(cluster, graph), threading.Event()
        while (seen := view.look())["check/0"].state != "stopped":
            pause.wait(0.02)
        task = seen["check/0"]
    finally:
        running.abandon()

    assert not seen.ok
    assert task.stopped.startswith("orders/0 at 1 raised: ValueError: negative")
    assert task.remedy == "fix the cause, or declare an errors topic"
    assert (task.at, len(task.hash)) == ("orders/0 at 1", 32)
    assert task.stopped_s > 0
    assert (task.deliveries, task.lag) == (1, 2)  # without the marker behind them
    assert task.waiting_s is not None
    assert 0 <= task.waiting_s < WAIT_S


def test_what_was_told_three_periods_ago_is_not_heard_of() -> None:
    """A process that was killed says nothing more; the counts and the lag stay right."""
    cluster, graph, clock = Memory(status_every_s=5.0), graph_of(same), Now()
    with start(graph, cluster) as running:
        running.send("orders", {"n": 1})
        running.wait_idle()
        view = view_of(cluster, graph, clock)
        until(running, view.look, lambda seen: seen["check/0"].told_s)
        clock.later_s = 8.0
        assert view.look()["check/0"].state in WORKS
        clock.later_s = 20.0
        seen = view.look()

    assert (seen["check/0"].state, seen["check/0"].deliveries, seen.ok) == ("not heard of", 1, False)
    assert seen["check/0"].told_s < seen.at_s - 15.0


def test_graceful_stop_is_told(cluster: Memory) -> None:
    """A graph without workers is not well, whether they stopped in order or not."""
    graph = graph_of(same)
    with start(graph, cluster) as running:
        until(running, lambda: status(cluster, graph), lambda seen: seen["check/0"].told_s)

    seen = status(cluster, graph)
    assert (seen["check/0"].state, seen.ok) == ("left", False)


def test_status_is_right_where_no_process_tells_anything() -> None:
    """State, owner and lag come from the group, the records and the ends of the inputs."""
    quiet, graph = Memory(), graph_of(same)
    before = status(quiet, graph)
    assert [(one.state, one.ok, one.lag, one.owner) for one in before.tasks] == [("never started", False, None, "")]

    with start(graph, quiet, instance="blue.1") as running:
        running.send_many("orders", [{"n": 1}, {"n": 2}])
        running.wait_idle()
        at_work = status(quiet, graph)["check/0"]
        assert (at_work.state, at_work.owner, at_work.deliveries) == ("running", "blue.1", 2)
        assert (at_work.lag, at_work.retries, at_work.rate) == (0, None, None)
    with connect(quiet, graph) as client:
        client.send("orders", {"n": 3})
    seen = status(quiet, graph)
    assert (seen["check/0"].state, seen["check/0"].lag, seen.ok) == ("no worker", 1, False)
    assert seen["check/0"].waiting_s is not None


def test_deleted_input_topic_hides_no_other_task() -> None:
    """Its tasks stand somewhere in a topic that has no end any more."""
    quiet = Memory()
    graph = graph_of(same, Source("more"), Processor(same, inputs="more", outputs="checked", name="other"))
    with start(graph, quiet) as running:
        running.send("orders", {"n": 1})
        running.send("more", {"n": 1})
        running.wait_idle()
    open_broker(quiet).delete(["orders"])
    with connect(quiet, graph) as client:
        client.send("more", {"n": 2})

    seen = status(quiet, graph)

    assert (seen["check/0"].lag, seen["check/0"].inputs[0].position) == (None, 1)
    assert seen["other/0"].lag == 1


def test_rate_is_seen_from_two_looks_where_it_is_not_told() -> None:
    """By the records of the task."""
    quiet, graph, clock = Memory(), graph_of(same), Now()
    with start(graph, quiet) as running, StatusView(graph, open_broker(quiet), sides=Sides(), clock=clock) as view:
        assert view.look()["check/0"].rate is None
        running.send_many("orders", [{"n": n} for n in range(100)])
        running.wait_idle()
        clock.later_s = 100.0
        assert view.look()["check/0"].rate == pytest.approx(1.0, rel=0.3)


def test_lag_of_markers_alone_is_none(cluster: Memory) -> None:
    """Nor do messages of an aborted transaction wait; only reading shows that."""
    quiet, graph = Memory(), graph_of(same, Processor(lambda _: None, inputs="checked", name="count"))
    with start(graph, quiet) as running:
        running.send("orders", {"n": 1})
        running.wait_idle()
    broker = open_broker(quiet)
    aborted = broker.session("other")
    aborted.init(timeout_s=1.0)
    aborted.begin()
    aborted.produce([Outgoing("checked", 0, None, b"{}")])
    aborted.flush()
    broker.session("other").init(timeout_s=1.0)
    seen = status(quiet, graph)

    [of_input] = seen["count/0"].inputs
    assert of_input.position is not None
    assert of_input.position < of_input.end
    assert (of_input.lag, seen["count/0"].lag) == (0, 0)


def test_each_reader_of_a_topic_has_the_lag_and_the_age_of_its_own_place() -> None:
    """Of two processors that read it, one has delivered all, and its place is followed by messages or markers alone."""
    quiet, graph, clock = Memory(), graph_of(same, Processor(lambda _: None, inputs="orders", name="count")), Now()
    start(graph, quiet).stop()
    with start(graph, quiet, only=["count"]) as running:
        running.send_many("orders", [{"n": 1}, {"n": 2}])
        running.wait_idle()
    broker = open_broker(quiet)
    clock.later_s = 100.0
    with StatusView(graph, broker, sides=SIDES, clock=clock) as view:
        seen = view.look()
        assert (seen["check/0"].lag, seen["count/0"].lag) == (2, 0)  # without the marker behind them
        assert seen["check/0"].waiting_s == pytest.approx(100.0, abs=10.0)
        assert seen["count/0"].waiting_s is None

        aborted = broker.session("other")
        aborted.init(timeout_s=1.0)
        aborted.begin()
        aborted.produce([Outgoing("orders", 0, None, b"{}")])
        aborted.flush()
        broker.session("other").init(timeout_s=1.0)
        seen = view.look()

    assert (seen["check/0"].lag, seen["count/0"].lag) == (2, 0)  # nor what was aborted
    assert seen["check/0"].waiting_s == pytest.approx(100.0, abs=10.0)
    assert seen["count/0"].waiting_s is None


def test_open_transactions_are_shown_at_the_tasks_that_wait_for_them(cluster: Memory) -> None:
    """A program that hangs in a transaction on an input; and the task's own."""
    quiet, graph, clock = Memory(), graph_of(same), Now()
    start(graph, quiet).stop()
    broker = open_broker(quiet)
    session = broker.session("other")
    session.init(timeout_s=1.0)
    session.begin()
    session.produce([Outgoing("orders", 0, None, b'{"n":1}'), Outgoing("g.check.backing", 0, b"t", b"")])
    session.flush()
    clock.later_s = 100.0

    [task] = StatusView(graph, broker, sides=SIDES, clock=clock).look().tasks
    session.abandon()

    assert task.inputs[0].open_s == pytest.approx(100.0, abs=10.0)
    assert task.open_s == pytest.approx(100.0, abs=10.0)
    assert task.lag == 1
    assert task.waiting_s is None


def test_feed_shows_its_place_and_has_no_lag(cluster: Memory) -> None:
    """Its source is not on the cluster."""
    graph = graph_of(same, Feed(Iterate(lambda place: [] if place else [({"n": 1}, "1")]), into="orders", name="old"))
    with start(graph, cluster) as running:
        running.wait_idle()
        seen = until(running, lambda: status(cluster, graph), lambda seen: seen["old/0"].place)

    assert (seen["old/0"].inputs, seen["old/0"].lag, seen["old/0"].deliveries) == ((), None, 1)


def test_added_partitions_without_tasks_are_said(cluster: Memory) -> None:
    """With the command that gives them tasks."""
    graph = graph_of(same)
    start(graph, cluster).stop()
    open_broker(cluster).add_partitions("orders", 3)

    seen = status(cluster, graph)
    assert [one.task for one in seen.tasks] == ["check/0", "check/1", "check/2"]
    assert (seen["check/2"].state, seen["check/2"].lag, seen["check/2"].ok, seen.ok) == (
        "never started",
        0,
        False,
        False,
    )
    [_, text] = [one.what for one in seen.unwell if one.kind == "never started"]
    assert text == "'orders' has a partition 2, and 'check' has only 1 task"


def test_unreachable_cluster_is_a_status(cluster: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    """It raises nothing, and the next look may succeed."""
    graph = graph_of(same)
    start(graph, cluster).stop()
    view = view_of(cluster, graph)
    silent = RetriableError("Kafka at kafka:9092 did not answer within 10 s", code="_TRANSPORT")
    with monkeypatch.context() as patch:
        patch.setattr(MemoryBroker, "partitions", _raises(silent))
        seen = view.look()
        assert (seen.unreachable, seen.tasks, seen.ok) == (str(silent), (), False)
    assert not view.look().unreachable


def test_record_of_a_newer_release_is_no_reason_to_delete_a_task(
    cluster: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An older command that looks at newer workers does not know the record, which is whole."""
    graph = graph_of(same)
    with start(graph, cluster) as running:
        running.send_many("orders", range(2))
        running.wait_idle(timeout_s=WAIT_S)
    monkeypatch.setattr("cues_kafka.records.bytes.VERSION", 0)
    task = view_of(cluster, graph).look()["check/0"]
    assert "this program knows 0. Update cues-kafka" in task.missing
    assert task.missing_remedy == "run the release that wrote it"


def test_record_that_brokers_do_not_give_in_time_hides_no_other_task(
    cluster: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Brokers are slow while they recover. The task is told with that note, and read again at the next look."""
    graph = graph_of(same, width=2)
    with start(graph, cluster) as running:
        running.send_many("orders", range(20))
        running.wait_idle(timeout_s=WAIT_S)
        until(running, lambda: status(cluster, graph), lambda seen: seen["check/0"].told_s and seen["check/1"].told_s)
    view = view_of(cluster, graph)
    slow = RetriableError("nothing new below 4 of g.check.backing/1 for 15 s", code=OPEN_TRANSACTION)

    def asked(broker: Any, place: TopicPartition, *more: Any, **options: Any) -> Any:
        if place.partition == 1:
            raise slow
        return newest(broker, place, *more, **options)

    with monkeypatch.context() as patch:
        patch.setattr(newest_module, "newest", asked)
        seen = view.look()
        assert not seen.unreachable
        assert (seen["check/0"].deliveries > 0, seen["check/0"].notes) == (True, ())
        assert seen["check/1"].notes == (
            "its newest record cannot be read: the brokers gave nothing within 15 s. Look again",
        )
        assert seen["check/1"].state == "left"
        assert seen["check/1"].lag is None

        slow.code = "_TRANSPORT"
        assert view.look().unreachable
    again = view.look()["check/1"]
    assert (again.deliveries > 0, again.notes) == (True, ())


def _raises(error: BrokerError) -> Callable[..., Any]:
    def asked(*_: Any, **__: Any) -> Any:
        raise error

    return asked


FORBIDDEN = FatalError("user `amy` may not", code="TOPIC_AUTHORIZATION_FAILED")


@pytest.mark.parametrize(
    ("method", "what"),
    [("members", "Who runs 'check'"), ("open_since", "Open transactions"), ("reader", "The age of messages that wait")],
)
def test_missing_right_hides_only_what_it_is_for(monkeypatch: pytest.MonkeyPatch, method: str, what: str) -> None:
    """What cannot be seen is said, with the right that is missing; the rest is shown."""
    quiet, graph = Memory(), graph_of(same)
    start(graph, quiet).stop()
    broker = open_broker(quiet)
    broker.sender("test").send([Outgoing("orders", 0, None, b'{"n":1}')])
    session = broker.session("other")
    session.init(timeout_s=1.0)
    session.begin()
    session.produce([Outgoing("orders", 0, None, b'{"n":1}')])
    session.flush()
    view = StatusView(graph, broker, sides=SIDES)
    view._newest.look(broker.watermarks([TopicPartition("g.check.backing", 0)]))  # with readers
    monkeypatch.setattr(MemoryBroker, method, _raises(FORBIDDEN))

    seen = view.look()
    session.abandon()

    assert seen.unseen == (f"{what} cannot be seen: user `amy` may not.",)
    assert seen["check/0"].lag == 2


def test_right_that_all_of_it_needs_is_an_error(cluster: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing right is no outage."""
    graph = graph_of(same)
    monkeypatch.setattr(MemoryBroker, "watermarks", _raises(FORBIDDEN))
    with pytest.raises(FatalError, match="may not"):
        view_of(cluster, graph).look()


def record(task: str, **given: Any) -> StatusRecord:
    settings: dict[str, Any] = {"state": "idle", "owner": TaskOwner(instance="blue.1"), "every_s": 5.0}
    return StatusRecord(task=task, **{**settings, **given})


@pytest.fixture
def told(cluster: Memory) -> Iterator[Callable[..., GraphStatus]]:
    """A graph whose status topic the test writes by hand."""
    graph, quiet = graph_of(same), Memory()
    quiet.held.append(open_broker(cluster))  # the same brokers, without a writer
    start(graph, quiet).stop()
    broker = open_broker(cluster)
    broker.create([NewTopic("g.status", 1, config={"cleanup.policy": "compact"})])
    view = view_of(cluster, graph)

    def look(*records: StatusRecord | tuple[bytes, bytes | None]) -> GraphStatus:
        values = [one if isinstance(one, tuple) else (one.task.encode(), encode_status(one)) for one in records]
        broker.sender("test").send([("g.status", 0, key, value, None, 0) for key, value in values])
        return view.look()

    yield look
    view.close()


def test_what_processes_told_is_shown_until_it_is_replaced(told: Callable[..., GraphStatus]) -> None:
    """Only what is new is read at each look."""
    long = record("check/0", calling="calling for 75 s: orders/0 at 17", silent="source does not answer")
    rival = "'blue.2' runs this task too: stop one of the two"
    task = told(replace(long, unreachable_s=12.0, retries=4, rival=rival, late=10))["check/0"]
    assert task.notes == (
        "calling for 75 s: orders/0 at 17",
        rival,
        "its process has not reached the cluster for 12 s",
        f"10 messages came too late for a window or a bound, since its process has the task. {AHEAD}",
    )
    assert (task.silent, task.ok) == ("source does not answer", True)
    assert (task.retries, task.state, task.owner) == (4, "idle", "blue.1")

    task = told(replace(long, state="paused", held="paused by amy", unpausable="it cannot"))["check/0"]
    assert (task.state, task.held, task.notes[-1]) == ("paused", "paused by amy", "it cannot be paused: it cannot")

    assert told((b"check/0", None))["check/0"].state == "no worker"


def test_record_of_another_program_or_release_counts_as_not_told(told: Callable[..., GraphStatus]) -> None:
    """The rest of the status is shown; a field that this release does not know is left out."""
    known = json.loads(encode_status(record("check/0")))
    for bad in (b"not JSON", b"[]", b"{}", json.dumps({**known, "version": 2}).encode(),
                json.dumps({**known, "state": "asleep"}).encode()):  # fmt: skip
        assert told((b"check/0", bad))["check/0"].state == "no worker"
    told(record("check/0"))
    assert told((b"check/0", b"not JSON"))["check/0"].state == "no worker"
    assert told((b"check/0", json.dumps({**known, "mood": "good"}).encode()))["check/0"].state == "idle"


def test_throttling_is_shown_while_its_process_is_heard_of(told: Callable[..., GraphStatus]) -> None:
    """Nothing is known of a record of a release before that did not tell it, nor of a process that is not heard of."""
    assert told(record("check/0", throttled_s=12.5))["check/0"].throttled_s == 12.5
    assert told(record("check/0", throttled_s=12.5, every_s=-5.0))["check/0"].throttled_s == 0.0
    assert told((b"check/0", FORMER))["check/0"].throttled_s == 0.0


def test_record_of_the_release_before_is_read(told: Callable[..., GraphStatus]) -> None:
    """Old and new processes run side by side while a graph is redeployed."""
    task = told((b"check/0", FORMER))["check/0"]
    assert (task.owner, task.retries, task.error, task.throttled_s) == ("blue.1 (node-7, pid 12)", 2, "e", 0.0)


FORMER = (
    b'{"version":1,"task":"check/0","state":"idle","owner":{"instance":"blue.1","host":"node-7","pid":12,"runtime":'
    b'"native","incarnation":"ab"},"every_s":5.0,"positions":[{"binding":"orders","topic":"orders","topic_id":'
    b'"69696969696969696969696969696969","offset":7}],"place":"","totals":{"deliveries":9,"outputs":5,"errors":1,'
    b'"nils":3,"messages":6,"dropped":0},"rate":1.2,"committed_s":6.0,"errors":1,"retries":2,"failures":3,"stops":4,'
    b'"error":"e","error_s":5.0,"stopped":"","remedy":"","stopped_s":0.0,"at":"","hash":"","pause":"","held":"",'
    b'"unpausable":"","calling":"","silent":"","unreachable_s":0.0}'
)
"""A record as it was written before processes told of throttling."""


def test_processor_on_spark_that_stopped_as_a_whole_shows_at_each_task(told: Callable[..., GraphStatus]) -> None:
    """No slot of it has told anything yet, or all did so before."""
    whole = record("check", state="stopped", stopped="the query ended", remedy="fix the cause")
    assert told(record("check/0"), whole, record("check/0"))["check/0"].stopped == "the query ended"
    assert told((b"check", None))["check/0"].stopped == ""


def test_status_as_json_has_all_that_is_documented(cluster: Memory) -> None:
    """docs/watch.md names these fields."""
    graph = graph_of(same)
    with start(graph, cluster):
        plain = json.loads(json.dumps(status(cluster, graph).to_dict()))

    assert [*plain] == ["graph", "at_s", "tasks", "unseen", "unreachable", "refusals", "ok", "lag", "unwell"]
    assert [*plain["tasks"][0]] == ["task", "ok", *SeenTask.__slots__]
    assert [*plain["tasks"][0]["inputs"][0]] == [
        "topic", "partition", "position", "end", "lag", "waiting_s", "open_s",
    ]  # fmt: skip
    assert Totals._fields[:4] == ("deliveries", "outputs", "errors", "nils")


@pytest.mark.parametrize(
    ("whole_s", "own_s", "own_by", "own_state", "counts"),
    [
        (100.0, 99.0, "a", "idle", "whole"),
        (100.0, 101.0, "a", "idle", "whole"),
        (100.0, 99.0, "b", "idle", "own"),
        (100.0, 90.0, "b", "idle", "whole"),
        (100.0, 99.0, "b", "left", "whole"),
        (100.0, 101.0, "b", "left", "own"),
    ],
)
def test_a_processor_that_stopped_as_a_whole_did_so_in_its_process_only(
    whole_s: float, own_s: float, own_by: str, own_state: Any, counts: str
) -> None:
    """Another process may have its tasks; what that one told long ago, or before it left, is over."""

    def told(task: str, state: Any, by: str, at_s: float) -> StatusRecord:
        owner = TaskOwner(instance=by, incarnation=by)
        return StatusRecord(task=task, state=state, owner=owner, every_s=1.0, told_s=at_s)

    whole, own = told("check", "stopped", "a", whole_s), told("check/0", own_state, own_by, own_s)

    assert _of_task(whole, own) is (own if counts == "own" else whole)
    assert (_of_task(None, own), _of_task(whole, None)) == (own, whole)


def test_a_staged_processor_is_not_shown_as_its_predecessor_that_ended() -> None:
    """What a driver told of the whole processor stays in the topic. The driver that came after it tells of slots."""

    def told(task: str, driver: str, **values: Any) -> StatusRecord:
        owner = TaskOwner(instance="d", host="h", pid=1, runtime="spark", incarnation=driver)
        return StatusRecord(task=task, owner=owner, every_s=5.0, **values)

    ended = told("f", "old", state="left", stopped="the query ended", told_s=100.0)
    works = told("f/0", "new", state="working", told_s=200.0)
    stopped = told("f/1", "new", state="stopped", stopped="a reason", told_s=150.0)

    assert _of_slots(ended, [works]) is works
    assert _of_slots(None, [works, stopped]) is stopped
    assert _of_slots(ended, []) is ended


def test_lag_of_many_offsets_is_not_read_and_counts_markers(cluster: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound is on what is read; below it each message counts as one, however many transactions wrote them."""
    graph = graph_of(same)
    start(graph, cluster).stop()
    broker = open_broker(cluster)
    session = broker.session("other")
    session.init(timeout_s=1.0)
    for _ in range(5):
        session.begin()
        session.produce([Outgoing("orders", 0, None, b"{}")])
        session.flush()
        session.commit()
    poll = MemoryReader.poll

    def first(reader: MemoryReader, timeout_s: float) -> list[Fetched]:
        polled = poll(reader, timeout_s)
        cut = [Fetched(one.partition, one.messages[:1], None) for one in polled if one.partition.topic == "orders"]
        return cut or polled

    with StatusView(graph, broker, sides=SIDES) as view:
        assert view.look()["check/0"].lag == 5
    monkeypatch.setattr(waiting, "COUNTED", 9)
    monkeypatch.setattr(MemoryReader, "poll", first)
    with StatusView(graph, broker, sides=SIDES) as view:
        assert view.look()["check/0"].lag == 10

"""Replays at work in memory: which messages are delivered again, what they see, and what a crash leaves (Y1 to Y3)."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cues_kafka import (
    CommitPolicy,
    FatalError,
    Graph,
    Http,
    Interrupt,
    Json,
    Processor,
    Retry,
    Source,
    Sql,
    State,
    Step,
    Store,
)
from cues_kafka.brokers.memory import Faults, MemoryBroker
from cues_kafka.codecs.error_messages import error_messages
from cues_kafka.core import effects as do
from cues_kafka.core.delivery import HEADER, ErrorPlace, parse_provenance
from cues_kafka.core.records import Snapshot
from cues_kafka.graph.error_message import ErrorMessage, Errors
from cues_kafka.observe.refused import REFUSED
from cues_kafka.ports.log import TopicPartition
from cues_kafka.records import scanning
from cues_kafka.records.requests import ReplayRequest, Settled, decode_settled, encode_request
from cues_kafka.task import again
from cues_kafka.task.proving import Proving
from cues_kafka.task.replaying import Replaying
from cues_kafka.testing.tester import Crash, Tester, VirtualClock
from cues_kafka.verify.scan import verify
from tests.examples import examples


class Switch:
    """Whether the bug is fixed."""

    def __init__(self) -> None:
        self.fixed = False
        self.calls: list[Any] = []


def graph_of(fn: Callable[..., Any], **options: Any) -> Graph:
    """`in` to `out`, one partition."""
    options = {"inputs": "in", "outputs": "out"} | options
    return Graph("g", Source("in"), Processor(fn, name="p", **options), errors=Errors("g.errors", payload=True))


def broken(switch: Switch) -> Callable[..., Any]:
    """Fails for negative numbers until it is fixed."""

    def fn(value: int, step: Step) -> int:
        switch.calls.append((value, step.replay, step.hash))
        if value < 0 and not switch.fixed:
            raise ValueError(f"{value} is negative")
        return abs(value)

    return fn


def requests_of(tester: Tester, wish: Any = "replay", *, payload: bool = True) -> list[ReplayRequest]:
    """A request for each error message that is there."""
    found = []
    facts = tester.broker.facts(["g.errors"]).topics["g.errors"]
    for message in tester.client.committed("g.errors"):
        value: ErrorMessage = error_messages().decode(message.value() or b"")
        made = parse_provenance(dict(message.headers() or [])[HEADER] or b"")
        request = ReplayRequest(
            error=ErrorPlace(facts.topic_id, message.partition(), message.offset()),
            errors="g.errors",
            wish=wish,
            number=(made.replay[0] if made.replay else 0) + 1,
            consumed=value.consumed,
            topics=value.topics,
            payload=value.payload if payload else None,
            key=value.key,
        )
        found.append(request)
    return found


def ask(tester: Tester, requests: Sequence[ReplayRequest]) -> None:
    """Write requests into the replay topic, as the command does."""
    sender = tester.broker.sender("tool")
    for one in requests:
        partition = one.consumed[0].partition
        sender.send([("g.p.replay", partition, str(one.error).encode(), encode_request(one), None, 0)])
    sender.close()


def settled(tester: Tester) -> list[tuple[str, int]]:
    """Outcome and number of what is settled."""
    found: dict[bytes, Settled] = {}
    for message in tester.client.committed("g.p.backing"):
        if (key := message.key() or b"").startswith(b"r/"):
            found[key] = decode_settled(message.value())
    return [(one.outcome, one.number) for one in found.values()]


def failed(switch: Switch, *values: int, **options: Any) -> Tester:
    """A graph that has left errors."""
    tester = Tester(graph_of(broken(switch), **options))
    for value in values:
        tester.send("in", value)
    return tester.run()


def test_replay_delivers_the_message_again_under_its_hash() -> None:
    """The function sees the number of the replay; its output says which error it settles."""
    switch = Switch()
    tester = failed(switch, 1, -2, 3)
    [error] = tester.errors()
    switch.fixed = True
    ask(tester, requests_of(tester))

    assert tester.run().values("out") == [1, 3, 2]
    assert switch.calls[-1] == (-2, 1, error.hash.hex())
    output = tester.messages("out")[-1]
    made = parse_provenance(dict(output.headers)[HEADER] or b"")
    assert made.replay is not None
    assert (made.replay[0], made.consumed, made.hash) == (1, error.consumed, error.hash)
    totals = tester.totals("p")
    assert (totals.deliveries, totals.outputs, totals.errors, totals.replays) == (4, 3, 1, 1)
    assert settled(tester) == [("output", 1)]


def test_messages_that_stand_together_are_read_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """A read for each of them took a quarter of the time of replays."""
    switch = Switch()
    tester = failed(switch, -1, 2, -3, -4, 5, -6)
    switch.fixed = True
    ask(tester, requests_of(tester))
    read: list[int] = []

    def chunk_from(broker: Any, reader: Any, place: TopicPartition, start: int) -> Sequence[Any]:
        read.append(start)
        return scanning.chunk_from(broker, reader, place, start)

    monkeypatch.setattr(again, "chunk_from", chunk_from)
    tester.run()

    assert tester.values("out") == [2, 5, 1, 3, 4, 6]
    assert read == [0, 0], "the error messages, and what they are about"


def test_second_request_is_nil() -> None:
    """Also from another process, which reads what is settled from the backing topic."""
    switch = Switch()
    tester = failed(switch, -2)
    switch.fixed = True
    requests = requests_of(tester)
    ask(tester, requests * 2)
    tester.run()
    ask(tester, requests)
    tester.restart().run()

    assert tester.values("out") == [2]
    assert len(switch.calls) == 2
    totals = tester.totals("p")
    assert (totals.deliveries, totals.nils, totals.replays) == (4, 2, 3)
    assert settled(tester) == [("output", 1)]


def test_a_recovery_reads_what_another_process_has_settled() -> None:
    """What was read before it is old, also in the same process."""
    switch = Switch()
    tester = failed(switch, -2, -3)
    switch.fixed = True
    first, second = requests_of(tester)
    ask(tester, [first])
    tester.run()
    [lane] = tester._workers[0].lanes.values()
    former = Replaying(lane.spec, tester.broker, tester.clock, ("g.errors",))
    assert set(former._known(lane.task)) == {first.error.key}
    ask(tester, [second])
    tester.run()
    former.void()

    assert set(former._known(lane.task)) == {first.error.key, second.error.key}


def test_replay_that_fails_leaves_an_error_that_can_be_replayed() -> None:
    """Its number is one more."""
    switch = Switch()
    tester = failed(switch, -2)
    first = requests_of(tester)
    ask(tester, first)
    tester.run()
    assert settled(tester) == [("error", 1)]
    switch.fixed = True
    ask(tester, requests_of(tester)[1:])

    assert tester.run().values("out") == [2]
    assert [number for _, number, _ in switch.calls] == [None, 1, 2]
    assert len({hash_ for *_, hash_ in switch.calls}) == 1
    assert sorted(settled(tester)) == [("error", 1), ("output", 2)]


def test_replays_are_no_anomalies_for_verify() -> None:
    """Neither the outputs nor the errors of replays count as second outcomes of their messages."""
    switch = Switch()
    tester = failed(switch, 1, -2, 3, -4)
    ask(tester, requests_of(tester)[:1])
    tester.run()
    switch.fixed = True
    ask(tester, requests_of(tester)[1:] * 2)
    tester.run()

    report = verify(tester.graph, tester.broker)
    assert (report.verdict, list(report.lines)) == ("ok", [])
    found = report["p"]
    assert (found.steps, found.replays, found.outputs, found.errors, found.totals.nils) == (9, 5, 4, 3, 2)


def test_drop_settles_without_a_call() -> None:
    """One path for both wishes."""
    switch = Switch()
    tester = failed(switch, -2)
    ask(tester, requests_of(tester, "drop"))
    tester.run()
    ask(tester, requests_of(tester))
    switch.fixed = True

    assert tester.run().values("out") == []
    assert len(switch.calls) == 1
    assert settled(tester) == [("dropped", 0)]


def test_message_that_is_gone_comes_from_its_error_message() -> None:
    """Where that has kept the payload; else the replay ends as an error that says so."""
    switch = Switch()
    for kept in (True, False):
        declared = Processor(broken(switch), name="p", inputs="in", outputs="out")
        tester = Tester(Graph("g", Source("in"), declared, errors=Errors("g.errors", payload=kept)))
        switch.fixed = False
        tester.send("in", -2)
        tester.run()
        [request] = requests_of(tester)
        tester.broker.trim({TopicPartition("in", 0): 1})
        switch.fixed = True
        ask(tester, [request])
        tester.run()

        assert tester.values("out") == ([2] if kept else [])
        assert settled(tester) == [("output" if kept else "error", 1)]

    last = tester.errors()[-1]
    assert last.exception == "MessageGone"
    assert "in/0 at 0 is gone" in last.text
    assert last.consumed == request.consumed


def test_request_that_is_none_stops_nothing() -> None:
    """It is settled as unreadable, by its own place."""
    switch = Switch()
    tester = failed(switch, 1)
    sender = tester.broker.sender("another")
    sender.send([("g.p.replay", 0, b"k", b"no request", None, 0)])
    tester.send("in", 2)

    assert tester.run().values("out") == [1, 2]
    assert settled(tester) == [("unreadable", 0)]


FORGED: dict[str, Callable[[ReplayRequest], ReplayRequest]] = {
    "succeeded": lambda one: replace(one, consumed=(one.consumed[0]._replace(offset=0),)),
    "no error there": lambda one: replace(
        one, error=one.error._replace(offset=7), consumed=(one.consumed[0]._replace(offset=0),)
    ),
    "behind the end": lambda one: replace(one, error=one.error._replace(offset=10**12)),
    "no such partition": lambda one: replace(one, error=one.error._replace(partition=9)),
    "the input for its error": lambda one: replace(
        one, error=ErrorPlace(one.consumed[0].topic_id, 0, 0), errors="in", consumed=(one.consumed[0],)
    ),
    "another topic of that name": lambda one: replace(one, error=one.error._replace(topic_id=b"x" * 16)),
    "another number": lambda one: replace(one, number=2),
    "other topics": lambda one: replace(one, topics=("elsewhere",)),
}


@pytest.mark.parametrize("forge", FORGED.values(), ids=FORGED)
@pytest.mark.parametrize("wish", ["replay", "drop"])
def test_request_that_no_error_message_proves_is_refused(
    forge: Callable[[ReplayRequest], ReplayRequest], wish: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Y1: it delivers nothing and settles nothing, and the real request behind it is heard."""
    REFUSED.forget()
    switch = Switch()
    tester = failed(switch, 1, -2)
    switch.fixed = True
    [real] = requests_of(tester)
    ask(tester, [replace(forge(real), wish=wish)])
    tester.run()

    assert tester.values("out") == [1]
    assert settled(tester) == [("refused", 0)]
    [line] = [one.getMessage() for one in caplog.records if "record refused" in one.getMessage()]
    assert "g.p.replay/0 at 0" in line
    assert "cues-kafka errors replay" in line
    ask(tester, [real])
    assert tester.run().values("out") == [1, 2]
    assert sorted(settled(tester)) == [("output", 1), ("refused", 0)]
    assert list(verify(tester.graph, tester.broker).lines) == []


def test_verify_tells_a_replay_of_a_message_that_had_succeeded(monkeypatch: pytest.MonkeyPatch) -> None:
    """An earlier release believed each request: the output of such a replay is a duplicate."""
    switch = Switch()
    tester = failed(switch, 1, -2)
    [real] = requests_of(tester)
    monkeypatch.setattr(Proving, "proven", lambda _, request: request)
    ask(tester, [FORGED["succeeded"](real)])
    tester.run()
    assert tester.values("out") == [1, 1]

    report = verify(tester.graph, tester.broker)
    assert report["p"].duplicated == 1
    assert any("replayed although they had an output: in/0 at 0" in line for line in report.lines)


def test_replay_delivers_what_the_error_message_has_kept() -> None:
    """Y1: not what the request says of it."""
    switch = Switch()
    tester = failed(switch, -2)
    [real] = requests_of(tester)
    tester.broker.trim({TopicPartition("in", 0): 1})
    switch.fixed = True
    ask(tester, [replace(real, payload=b"7", key=b"another")])

    assert tester.run().values("out") == [2]


def test_error_message_of_another_processor_proves_nothing() -> None:
    """Y1: both have consumed the same message, and only one of them failed."""

    def bad(value: int) -> int:
        raise ValueError("bad")

    graph = Graph(
        "g",
        Source("in"),
        Processor(lambda value: value, name="p", inputs="in", outputs="out"),
        Processor(bad, name="q", inputs="in", outputs="other"),
        errors=Errors("g.errors"),
    )
    tester = Tester(graph)
    tester.send("in", 5)
    tester.run()
    ask(tester, requests_of(tester))

    assert tester.run().values("out") == [5]
    assert settled(tester) == [("refused", 0)]


@pytest.mark.parametrize(
    ("raised", "kind"),
    [(Interrupt("stop"), "raised"), (OSError("later"), "retries exhausted"), (KeyError("k"), "raised")],
)
def test_replay_neither_stops_its_task_nor_holds_it_up(raised: BaseException, kind: str) -> None:
    """What would do so for a message becomes the error of the replay."""

    def fn(value: int, step: Step) -> int:
        if value < 0:
            raise raised if step.replay else ValueError("bad")
        return value

    tester = Tester(graph_of(fn, retry=Retry(on=OSError, for_s=600.0)))
    tester.send("in", -1)
    tester.run()
    ask(tester, requests_of(tester))
    tester.run()
    tester.send("in", 5)
    before_s = tester.clock.monotonic()

    assert tester.run().values("out") == [5]
    assert tester.clock.monotonic() - before_s < 60.0
    assert [one.kind for one in tester.errors()] == ["raised", kind]


def test_replay_that_kills_is_quarantined() -> None:
    """It has a snapshot of its own, so nothing else is blamed."""
    switch = Switch()
    tester = failed(switch, -2, 3)
    ask(tester, requests_of(tester))
    for _ in range(3):
        tester.run(crash=Crash("before", "Call"))
        assert tester.crashed
    tester.send("in", 4)
    tester.run()

    assert tester.values("out") == [3, 4]
    assert [one.kind for one in tester.errors()] == ["raised", "quarantine"]
    assert tester.errors()[-1].hash == tester.errors()[0].hash
    assert settled(tester) == [("error", 1)]


def test_replay_that_a_pause_puts_off_is_called_once_when_it_is_over() -> None:
    """It has a death behind it, so the paused task says `left` above its snapshot (Q2a); the request comes again."""
    switch = Switch()
    tester = failed(switch, -2)
    switch.fixed = True
    ask(tester, requests_of(tester))
    tester.run(crash=Crash("before", "Call"))
    tester.restart()._start()
    worker = tester._workers[0]
    paused: list[str] = []

    def held(_: str) -> str:
        if any(isinstance(lane.interpreter.effect, do.Call) for lane in worker.lanes.values()):
            paused.append("paused")
        return "paused" if paused else ""

    before, worker._options = worker._options, replace(worker._options, held=held)
    called = len(switch.calls)
    tester.run()
    assert paused
    assert len(switch.calls) == called
    record = tester.records("p")[-1]
    assert isinstance(record, Snapshot)
    assert record.left

    worker._options = before
    assert tester.run().values("out") == [2]
    assert settled(tester) == [("output", 1)]


def test_join_gets_all_of_its_messages_again() -> None:
    """By the coordinates of each."""
    switch = Switch()

    def fn(left: int, right: int) -> int:
        if not switch.fixed:
            raise ValueError("bad")
        return left * right

    graph = Graph(
        "g",
        Source("a"),
        Source("b"),
        Processor(fn, name="p", inputs={"left": "a", "right": "b"}, outputs="out"),
        errors="g.errors",
    )
    tester = Tester(graph)
    for left, right in ((2, 5), (3, 7)):
        tester.send("a", left)
        tester.send("b", right)
    tester.run()
    switch.fixed = True
    ask(tester, requests_of(tester)[1:])

    assert tester.run().values("out") == [21]


def test_alts_and_batches_are_replayed_like_messages() -> None:
    """The step has the shape that the function takes."""
    switch = Switch()

    def fn(values: Sequence[int]) -> list[int]:
        if not switch.fixed and min(values) < 0:
            raise ValueError("bad")
        return [abs(value) for value in values]

    tester = Tester(graph_of(fn, batch=True))
    for value in (1, -2, 3):
        tester.send("in", value)
    tester.run()
    switch.fixed = True
    ask(tester, requests_of(tester))

    assert tester.run().values("out") == [1, 3, 2]


def test_coroutine_is_replayed() -> None:
    """Alone."""
    switch = Switch()

    async def fn(value: int) -> int:
        if not switch.fixed:
            raise ValueError("bad")
        return value

    tester = Tester(graph_of(fn))
    tester.send("in", 4)
    tester.run()
    switch.fixed = True
    ask(tester, requests_of(tester))

    assert tester.run().values("out") == [4]


def test_replay_sees_state_as_it_is_now() -> None:
    """And changes it in its transaction."""
    switch = Switch()

    def fn(value: int, seen: State[int]) -> int:
        if value < 0 and not switch.fixed:
            raise ValueError("bad")
        seen["n"] = seen.get("n", 0) + 1
        return seen["n"]

    tester = Tester(graph_of(fn, state={"seen": Store(value=Json())}))
    for value in (-1, 2, 3):
        tester.send("in", value)
    tester.run()
    switch.fixed = True
    ask(tester, requests_of(tester))
    tester.run()

    assert tester.values("out") == [1, 2, 3]
    assert tester.state("seen") == {"n": 3}


def test_replays_get_their_share_beside_messages() -> None:
    """Y3: they wait for no silence, and hold no message up for long."""
    switch = Switch()
    tester = failed(switch, *([-1] * 20))
    switch.fixed = True
    ask(tester, requests_of(tester))
    for value in range(50):
        tester.send("in", value)
    tester.run()

    assert sorted(tester.values("out")) == sorted([*range(50), *([1] * 20)])
    assert tester.totals("p").replays == 20


class CallsAhead(Faults):
    """While a commit is under way, the function is called for what comes next (P7), as beside a real broker."""

    def __init__(self) -> None:
        self.commits = 0
        self.tester: Tester | None = None

    def before(self, operation: str, client: str) -> None:
        """Nothing goes wrong; requests come while messages flow."""
        if (operation, client) != ("commit", "g.p.0") or self.tester is None:
            return
        self.commits += 1
        if self.commits == 10:
            ask(self.tester, requests_of(self.tester))
        self.tester._workers[0].poll_once()
        self.tester._workers[0].call_once()


def test_replays_get_their_share_beside_calls_ahead_of_the_commits() -> None:
    """Y3: what is called ahead is committed first, so a request that comes next lets nothing be called ahead."""
    switch, faults = Switch(), CallsAhead()
    broker = MemoryBroker(clock=VirtualClock(), faults=faults)
    tester = Tester(graph_of(broken(switch)), broker=broker, policy=CommitPolicy(max_messages=1))
    tester.send("in", -1)
    tester.run()
    switch.fixed = True
    for value in range(2, 100):
        tester.send("in", value)
    faults.tester = tester
    tester.run()

    assert 5 < tester.values("out").index(1) < 40


@pytest.mark.parametrize(
    "crash", [None, *(Crash(m, e) for m in ("before", "after") for e in ("CommitTarget", "Commit"))]
)
def test_replay_writes_its_row_once(crash: Crash | None, tmp_path: Path) -> None:
    """E1: what the database holds is published with the place in the replay topic, and calls nothing again."""
    switch = Switch()

    def fn(value: int, db: Any) -> int:
        db.execute("INSERT INTO found (value) VALUES (?)", (value,))
        if value < 0 and not switch.fixed:
            raise ValueError("bad")
        return abs(value)

    path = tmp_path / "x.db"
    with sqlite3.connect(path) as made:
        made.execute("CREATE TABLE found (value INTEGER)")
    tester = Tester(graph_of(fn, effects={"db": Sql(f"sqlite:///{path}")}))
    for value in (1, -2, 3):
        tester.send("in", value)
    tester.run()
    switch.fixed = True
    ask(tester, requests_of(tester) * 2)
    tester.send("in", 4)
    tester.run(crash=crash)
    assert tester.crashed == (crash is not None)
    tester.restart().run()

    assert sorted(tester.values("out")) == [1, 2, 3, 4]
    with sqlite3.connect(path) as made:
        assert sorted(made.execute("SELECT value FROM found")) == [(-2,), (1,), (3,), (4,)]
    assert settled(tester) == [("output", 1)]
    assert tester.totals("p").replays == 2, "the row has the place in the replay topic: no request is read again"
    assert list(verify(tester.graph, tester.broker).lines) == []


@pytest.mark.parametrize("crash", [None, Crash("after", "Record"), Crash("before", "Commit", 2)])
def test_replay_calls_a_server_under_keys_of_its_own(crash: Crash | None) -> None:
    """E4: the key has the number of the replay, and the journal keeps the answer through a crash."""
    switch, keys = Switch(), list[str]()

    def answer(request: httpx2.Request) -> httpx2.Response:
        keys.append(request.headers["Idempotency-Key"])
        return httpx2.Response(200, json=len(keys))

    def fn(value: int, http: Any) -> int:
        found: int = http.post("/pay", json=value).json()
        if not switch.fixed:
            raise ValueError("bad")
        return found

    graph = graph_of(fn, effects={"http": Http("https://pay.internal", journal=True)})
    tester = Tester(graph, effects={"http": httpx2.MockTransport(answer)})
    tester.send("in", 1)
    tester.run()
    switch.fixed = True
    ask(tester, requests_of(tester))
    tester.run(crash=crash)
    assert tester.crashed == (crash is not None)
    tester.restart().run()

    [error] = tester.errors()
    assert keys == [f"{error.hash.hex()}.0-0", f"{error.hash.hex()}.1-0"]
    assert tester.values("out") == [2]


def test_replay_topic_that_cannot_be_read_lets_messages_go_on(caplog: pytest.LogCaptureFixture) -> None:
    """A missing right is one warning with the remedy; requests wait for the next recovery."""
    switch = Switch()
    tester = failed(switch, -2)
    ask(tester, requests_of(tester))
    switch.fixed = True
    refused = FatalError("no right", code="TOPIC_AUTHORIZATION_FAILED", at=TopicPartition("g.p.replay", 0))
    tester._workers[0]._fetching.broken(refused)
    for value in (3, 4):
        tester.send("in", value)
        tester.run()

    assert tester.values("out") == [3, 4]
    assert len([one for one in caplog.records if "replay topic cannot be read" in one.getMessage()]) == 1
    assert sorted(tester.restart().run().values("out")) == [2, 3, 4]


def test_replay_topic_that_is_not_there_lets_messages_go_on() -> None:
    """Workers of this release may come before `plan --apply`."""
    switch = Switch()
    tester = failed(switch, 1)
    tester.broker.delete(["g.p.replay"])
    tester.send("in", 2)

    assert tester.restart().run().values("out") == [1, 2]


def test_no_record_of_a_task_without_replays_changes() -> None:
    """The release before this one reads them."""
    tester = failed(Switch(), 1, -2)

    assert all(record.totals.replays == 0 for record in tester.records("p"))
    for message in tester.client.committed("g.p.backing"):
        assert b"BackingWithReplays" not in (message.value() or b"")
    assert all(record.replays == () for record in tester.records("p"))


CRASHES = st.lists(
    st.none()
    | st.builds(
        Crash,
        st.sampled_from(["before", "after"]),
        st.sampled_from(["Call", "Begin", "SendOffsets", "Produce", "Flush", "Commit", "Init", "AssignReader"]),
        st.integers(1, 4),
    ),
    min_size=1,
    max_size=5,
)


@examples(60)
@given(st.lists(st.integers(-3, 3), max_size=6), st.lists(st.integers(0, 9), max_size=4), CRASHES)
@example([-1], [0], 3 * [Crash("before", "Call")])
def test_each_error_is_replayed_once_whatever_crashes(
    values: list[int], asked: list[int], crashes: list[Crash | None]
) -> None:
    """Beside messages, with requests that repeat, through crashes that are never one message's fault."""
    switch = Switch()
    tester = failed(switch, *values, quarantine_after=None)
    errors = requests_of(tester)
    switch.fixed = True
    wanted = [errors[number % len(errors)] for number in asked] if errors else []
    ask(tester, wanted)
    for value in values:
        tester.send("in", value)
    for crash in crashes:
        tester.run(crash=crash)
    tester.run()

    first = [value for value in values if value >= 0]
    again = [abs(values[one.consumed[0].offset]) for one in {one.error: one for one in wanted}.values()]
    assert sorted(tester.values("out")) == sorted([*first, *map(abs, values), *again])
    assert list(verify(tester.graph, tester.broker).lines) == []
    assert tester.totals("p").replays == len(wanted)
    assert not isinstance(tester.records("p")[-1], Snapshot)

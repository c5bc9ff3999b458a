"""Calls one by one: what is sent, what is kept, and what is refused (E4)."""

from __future__ import annotations

import re
import socket
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from typing import Any

import httpx2
import pytest

from cues_kafka import (
    AnswerTooLarge,
    CallRefused,
    CallUnanswered,
    ConfigError,
    Feed,
    Graph,
    GraphError,
    Http,
    Memory,
    Once,
    Processor,
    RecoveryError,
    RetriableError,
    Retry,
    Source,
    Sql,
    SqlOutbox,
    Step,
    Topic,
    processor,
    start,
)
from cues_kafka.brokers.memory import MemoryBroker
from cues_kafka.brokers.open import open_broker
from cues_kafka.core.delivery import show_origin
from cues_kafka.graph.effects import Effect
from cues_kafka.on_spark.verdict import verdict
from cues_kafka.plan.edges import edges_of
from cues_kafka.plan.plan import plan
from cues_kafka.ports.log import Coordinates
from cues_kafka.sinks.calls import Calls, Shared
from cues_kafka.sinks.journal import BARRIER, Answered, Journal, encode
from cues_kafka.task.making.prepare import unset_text, unset_variables
from cues_kafka.testing.tester import Crash, Tester

SECRET = "https://user:hidden@pay.internal/api"


def graph_of(fn: Callable[..., Any], *effects: Effect, errors: str | None = "errors", **settings: Any) -> Graph:
    """One processor."""
    found = {{"http": "http", "once": "once", "sql": "db"}[one.kind]: one for one in effects}
    made = Processor(fn, name="call", inputs="orders", outputs="done", effects=found, **settings)
    return Graph("g", Source("orders"), made, errors=errors, defaults=Topic(partitions=1))


def done(fn: Callable[..., Any], answer: Callable[[httpx2.Request], httpx2.Response], **settings: Any) -> Tester:
    """Run one message through a function with a server."""
    http = settings.pop("http", Http(SECRET, journal=True))
    tester = Tester(graph_of(fn, http, **settings), effects={"http": httpx2.MockTransport(answer)})
    tester.send("orders", 1)
    return tester.run()


def post(n: int, http: Any) -> Any:
    """The plainest call."""
    return http.post("/pay", json={"n": n}).json()


def test_request_carries_key_login_query_and_body() -> None:
    """The key names delivery, replay and call; reading requests have none."""
    seen: list[httpx2.Request] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        seen.append(request)
        return httpx2.Response(200, text="ok")

    def call(n: int, http: Any, step: Step) -> str:
        http.get("/limits", params={"of": n})
        http.put("things/1", data={"a": "b"}, headers={"X-Own": "1"})
        http.request("post", "", data=b"raw")
        return step.hash

    tester = done(call, answer, http=Http(SECRET, journal=True, headers=lambda: {"X-Login": "t"}))
    [hash_] = tester.values("done")
    assert [str(one.url) for one in seen] == [
        "https://pay.internal/api/limits?of=1",
        "https://pay.internal/api/things/1",
        "https://pay.internal/api",
    ]
    assert [one.headers.get("Idempotency-Key") for one in seen] == [None, f"{hash_}.0-1", f"{hash_}.0-2"]
    assert [one.content for one in seen] == [b"", b"a=b", b"raw"]
    assert {one.headers["X-Login"] for one in seen} == {"t"}
    assert {one.headers["Authorization"] for one in seen} == {"Basic dXNlcjpoaWRkZW4="}
    assert seen[1].headers["X-Own"] == "1"


def test_server_that_is_away_is_asked_again_and_then_named_by_retry() -> None:
    """Refused connections, 503 and Retry-After, in virtual time; the same key each time."""
    keys: list[str] = []
    tries = count()

    def answer(request: httpx2.Request) -> httpx2.Response:
        keys.append(request.headers["Idempotency-Key"])
        match next(tries):
            case n if n < 10:
                raise httpx2.ConnectError("[Errno 111] Connection refused by pay.internal")
            case 10:
                return httpx2.Response(503, headers={"Retry-After": "120"})
        return httpx2.Response(200, json=7)

    tester = done(post, answer, retry=Retry(on=(CallUnanswered,), for_s=3600))
    assert tester.values("done") == [7]
    assert len(set(keys)) == 1
    assert not tester.errors()


def test_unanswered_call_becomes_an_error_message_without_the_address() -> None:
    """Where no `retry=` names it."""

    def answer(request: httpx2.Request) -> httpx2.Response:
        raise httpx2.ConnectTimeout("no answer of pay.internal")

    [error] = done(post, answer).errors()
    assert error.exception == "CallUnanswered"
    assert "http: POST /pay: ConnectTimeout" in error.text
    assert "internal" not in error.text
    assert "hidden" not in error.text


def test_task_that_is_taken_away_stops_asking() -> None:
    """Its waiting call ends, nothing of the step is committed, and the next owner asks with the same key."""
    keys: list[str] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        keys.append(request.headers["Idempotency-Key"])
        if len(keys) == 1:
            tester._workers[0].lanes[0].interpreter.gate.close(lost=True)
            raise httpx2.ConnectError("away")
        return httpx2.Response(200, json=2)

    tester = Tester(graph_of(post, Http(SECRET, journal=True)), effects={"http": httpx2.MockTransport(answer)})
    tester.send("orders", 1)
    tester.run()
    assert len(keys) == 1
    assert not tester.values("done")
    assert tester.restart().run().values("done") == [2]
    assert len(keys) == 2
    assert len(set(keys)) == 1


def test_too_many_requests_waits_for_as_long_as_the_server_says() -> None:
    """Within the bound; the virtual clock shows the wait."""
    answers = iter([httpx2.Response(429, headers={"Retry-After": "3"}), httpx2.Response(200, json=1)])
    tester = Tester(
        graph_of(post, Http(SECRET, journal=True)), effects={"http": httpx2.MockTransport(lambda _: next(answers))}
    )
    tester.send("orders", 1)
    began_s = tester.clock.monotonic()
    assert tester.run().values("done") == [1]
    assert 3 <= tester.clock.monotonic() - began_s < 10


def test_answer_that_no_journal_takes_is_refused_by_name() -> None:
    """By `max_bytes`, and by the topic's `max.message.bytes`."""

    def answer(request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, content=b"x" * 2000)

    [error] = done(post, answer, http=Http(SECRET, journal=True, max_bytes=1000)).errors()
    assert (error.exception, "max_bytes=" in error.text) == ("AnswerTooLarge", True)
    journal = Journal("g.call.journal", 0, 1000)
    with pytest.raises(AnswerTooLarge, match=r"g\.call\.journal takes 1,000.*max\.message\.bytes"):
        journal.fit(b"o:AA@1", b"0 0", encode(Answered("", {}, b"x" * 2000)), "the answer to http: POST /pay")


def test_bad_json_and_refused_statuses_are_errors_of_the_step() -> None:
    """With the beginning of what came."""
    [error] = done(post, lambda _: httpx2.Response(200, text="<html>")).errors()
    assert "not JSON" in error.text
    assert "<html>" in error.text

    def careful(n: int, http: Any) -> Any:
        return http.post("/pay").raise_for_status().json()

    [error] = done(careful, lambda _: httpx2.Response(404, text="no such account")).errors()
    assert (error.exception, "404" in error.text, "no such account" in error.text) == ("CallRefused", True, True)


def test_refused_answer_is_asked_for_again_by_a_retry() -> None:
    """A 500 that is kept would come back each time."""
    answers = iter([httpx2.Response(500), httpx2.Response(200, json=3)])

    def careful(n: int, http: Any) -> Any:
        return http.post("/pay").raise_for_status().json()

    tester = done(careful, lambda _: next(answers), retry=Retry(on=(CallRefused,), for_s=60))
    assert tester.values("done") == [3]


@pytest.mark.parametrize("path", ["https://other.example/", "//other.example/"])
def test_path_cannot_name_another_server(path: str) -> None:
    """It would get the login."""

    def call(n: int, http: Any) -> Any:
        return http.get(path).text

    [error] = done(call, lambda _: httpx2.Response(200)).errors()
    assert "give the path only: Http(...) names the server" in error.text


def test_another_request_under_the_key_of_a_kept_answer_is_an_error() -> None:
    """The function asks something else after a crash: the answer in the journal is not that of this request."""
    salt = count()

    def call(n: int, http: Any) -> Any:
        return http.post("/pay", json={"salt": next(salt)}).json()

    tester = Tester(
        graph_of(call, Http(SECRET, journal=True)),
        effects={"http": httpx2.MockTransport(lambda _: httpx2.Response(200, json=1))},
    )
    tester.send("orders", 1)
    tester.run(crash=Crash("after", "Record"))
    tester.restart().run()
    [error] = tester.errors()
    assert error.exception == "CallChanged"
    assert "the journal has" in error.text
    assert not kept(tester), "an error message drops the answer"


def kept(tester: Tester) -> dict[bytes | None, bytes | None]:
    """Entries of the journal that are not deleted."""
    found = {m.key(): m.value() for m in tester.client.committed("g.call.journal")}
    return {key: value for key, value in found.items() if key != b"t" and value is not None}


def test_late_answer_of_a_zombie_is_deleted_at_the_next_recovery() -> None:
    """Its step is committed; the batch behind deletes it in its transaction."""
    tester = Tester(
        graph_of(post, Http(SECRET, journal=True)),
        effects={"http": httpx2.MockTransport(lambda _: httpx2.Response(200, json=1))},
    )
    tester.send("orders", 1)
    tester.run()
    [message] = tester.messages("orders")
    [record] = tester.records("call")[-1:]
    consumed = [Coordinates(p.binding, p.topic_id, 0, message.offset) for p in record.positions]
    late = show_origin(consumed) + b" 0 0"
    tester.broker.sender("zombie").send([("g.call.journal", 0, late, encode(Answered("", {}, b"1")), None, 0)])
    assert kept(tester)
    tester.restart().send("orders", 2)
    tester.run()
    assert not kept(tester)
    assert tester.values("done") == [1, 1]


@pytest.mark.parametrize("arrives", [True, False])
def test_answer_that_the_cluster_does_not_take_voids_the_batch(arrives: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the function makes of it. An entry that arrived all the same is found, else the key is asked again."""
    keys: list[str] = []
    failing = iter([False, True])
    send = Shared.send

    def fails_once(self: Shared, broker: Any, record: Any) -> int:
        fails = record[2] != BARRIER and next(failing, False)
        found = send(self, broker, record) if arrives or not fails else 0
        if fails:
            raise RetriableError("no answer", code="_MSG_TIMED_OUT")
        return found

    def answer(request: httpx2.Request) -> httpx2.Response:
        keys.append(request.headers["Idempotency-Key"])
        return httpx2.Response(200, json=1)

    def call(n: int, http: Any) -> Any:
        try:
            first, second = http.post("/pay"), http.post("/pay")
        except Exception:
            return "swallowed"
        return [first.kept, second.kept]

    monkeypatch.setattr(Shared, "send", fails_once)
    tester = done(call, answer)
    assert tester.values("done") == [[True, arrives]]
    assert len(keys) == (2 if arrives else 3)
    assert len(set(keys)) == 2
    assert not kept(tester)


# Once


@pytest.mark.parametrize(
    ("crash", "made"),
    [
        (Crash("before", "Request"), 1),
        (Crash("after", "Request"), 2),
        (Crash("after", "Record"), 1),
        (Crash("after", "Commit", 2), 1),
    ],
)
def test_once_gives_what_was_first_kept(crash: Crash, made: int) -> None:
    """Only a crash between the call and its record has it made again."""
    numbers = count(1)

    def call(n: int, once: Any) -> Any:
        first = once("a", lambda: next(numbers))
        assert once("a", lambda: -1) == first, "the same key in one step is one result"
        return [first, once("pair", lambda: (1, 2))]

    tester = Tester(graph_of(call, Once()))
    tester.send("orders", 1)
    tester.run(crash=crash)
    tester.restart().run()
    assert tester.values("done") == [[made, [1, 2]]]
    assert not kept(tester)


def test_recovery_finds_an_answer_above_the_high_watermark_that_a_former_leader_gives(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """E4.4: it reads up to a record of its own, so an end of the past hides no answer that was acknowledged."""
    numbers = count(1)

    def call(n: int, once: Any) -> Any:
        return once("a", lambda: next(numbers))

    asks = MemoryBroker.watermarks

    def former(self: MemoryBroker, partitions: Any) -> Any:
        """The journal ends where it begins, as a broker says that has not heard of the records yet."""
        found = asks(self, partitions)
        return {p: m._replace(high=m.low, stable=m.low) if p.topic == "g.call.journal" else m for p, m in found.items()}

    monkeypatch.setattr(MemoryBroker, "watermarks", former)
    tester = Tester(graph_of(call, Once()))
    tester.send("orders", 1)
    tester.run(crash=Crash("after", "Record"))
    assert tester.crashed
    tester.restart().run()
    assert tester.values("done") == [1]


def test_once_in_coroutines_awaits_a_coroutine_function() -> None:
    """And several steps side by side have results of their own."""

    async def make(n: int) -> int:
        return n * 10

    async def call(n: int, once: Any) -> Any:
        return await once("a", lambda: make(n))

    tester = Tester(graph_of(call, Once(), concurrency=4))
    for n in range(8):
        tester.send("orders", n)
    assert tester.run().values("done") == [n * 10 for n in range(8)]


def test_once_refuses_what_json_has_not() -> None:
    """Keys, too, are text."""

    def call(n: int, once: Any) -> Any:
        return once("a", lambda: {1, 2}) if n else once("", lambda: 1)

    tester = Tester(graph_of(call, Once()))
    tester.send("orders", 1)
    tester.send("orders", 0)
    first, second = tester.run().errors()
    assert "not JSON" in first.text
    assert "the key is text" in second.text


# Beside a database, fakes and refusals


def test_server_and_database_side_by_side(tmp_path: Path) -> None:
    """A crash after the database's commit: the attempt is published from there, and deletes the entries."""
    calls = count()

    def call(n: int, http: Any, db: Any) -> Any:
        db.execute("INSERT INTO rows (id) VALUES (?)", (n,))
        return http.post("/pay", json=n).json()

    with sqlite3.connect(tmp_path / "x.db") as made:
        made.execute("CREATE TABLE rows (id INTEGER PRIMARY KEY)")
    for crash in (Crash("after", "CommitTarget"), Crash("after", "Record", 3)):
        graph = graph_of(call, Http(SECRET, journal=True), Sql(f"sqlite:///{tmp_path / 'x.db'}"))
        transport = httpx2.MockTransport(lambda _: httpx2.Response(200, json=next(calls)))
        tester = Tester(graph, effects={"http": transport})
        for n in range(5):
            tester.send("orders", n)
        tester.run(crash=crash)
        tester.restart().run()
        assert len(tester.values("done")) == 5
        assert not tester.errors()
        assert not kept(tester)
        with sqlite3.connect(tmp_path / "x.db") as made:
            assert made.execute("SELECT count(*) FROM rows").fetchone() == (5,)
            for table in ("rows", "cues_task", "cues_outbox"):
                made.execute(f"DELETE FROM {table}")
    assert next(calls) == 10, "no call was repeated"


def test_object_stands_in_for_an_effect() -> None:
    """Any object that is no transport is given as it is; a wrong name and a database are refused."""

    class Fake:
        def post(self, path: str, json: Any) -> Any:
            return httpx2.Response(200, json=json["n"] + 1)

    tester = Tester(graph_of(post, Http(env="NOT_SET", journal=True)), effects={"http": Fake()})
    tester.send("orders", 1)
    assert tester.run().values("done") == [2]
    with pytest.raises(ConfigError, match="did you mean 'http'"):
        Tester(graph_of(post, Http(SECRET)), effects={"htpp": Fake()})


def test_missing_address_is_named_at_the_start() -> None:
    """Before anything is called."""
    tester = Tester(graph_of(post, Http(env="NOT_SET_ANYWHERE")))
    with pytest.raises(ConfigError, match="NOT_SET_ANYWHERE is not set"):
        tester.run()


def test_address_shows_nowhere() -> None:
    """Neither in plans nor in texts of Python; and edges say the level with its condition."""

    def call(n: int, http: Any, once: Any) -> Any:
        raise NotImplementedError

    graph = graph_of(call, Http(SECRET, journal=True), Once())
    planned = plan(graph)
    texts = [planned.text(topics=True, acls=True), repr(graph), repr(graph.processors), str(planned.to_dict())]
    assert not [text for text in texts if "hidden" in text or "internal" in text]
    assert "g.call.journal" in texts[0]
    assert planned.to_dict()["processors"][0]["journal"] == "g.call.journal"
    assert [(one.where, one.level) for one in edges_of(graph)][-2:] == [
        ("call -> server http", "once, if the server knows the key"),
        ("call -> calls once", "at least once"),
    ]
    with pytest.raises(GraphError, match="cannot be written down") as refused:
        graph.to_dict()
    assert "hidden" not in str(refused.value)
    assert {acl.operation for acl in planned.acls if acl.role == "worker" and acl.name == "g.call.journal"} >= {
        "Read",
        "Write",
    }


@processor(inputs="orders", outputs="done", effects={"http": Http(env="PAY_API", journal=True), "once": Once()})
def written(n: int, http: Any, once: Any) -> Any:
    """A function that can be imported."""


def test_graph_with_calls_is_written_down_and_read() -> None:
    """With the name of the variable, and no address."""
    graph = Graph("g", Source("orders"), written)
    assert Graph.from_dict(graph.to_dict()) == graph


def test_without_journal_there_is_no_topic() -> None:
    """Only keys are sent."""
    graph = graph_of(post, Http(SECRET))
    assert "g.call.journal" not in graph.internal_topics()
    assert [one.level for one in edges_of(graph)][-1] == "at least once"
    tester = Tester(graph, effects={"http": httpx2.MockTransport(lambda _: httpx2.Response(200, json=5))})
    tester.send("orders", 1)
    assert tester.run().values("done") == [5]


def test_what_cannot_know_its_step_is_refused() -> None:
    """Lists, names on the cluster, wrong addresses; Spark names the native worker."""
    with pytest.raises(GraphError, match="batch=True"):
        graph_of(post, Http(SECRET), batch=True)
    with pytest.raises(GraphError, match="'journal' is reserved"):
        Processor(post, name="journal", inputs="orders")
    for wrong in ("pay.internal/api", "ftp://pay.internal", "https://pay.internal/?a=hidden"):
        with pytest.raises(GraphError) as refused:
            Http(wrong)
        assert "internal" not in str(refused.value)
    graph = graph_of(post, Http(SECRET))
    found = verdict(graph, graph.processors["call"])
    assert (found.mode, "calls of effects=" in found.why) == ("natively", True)


def test_call_outside_of_its_step_is_refused() -> None:
    """An object that was kept knows no step any more."""
    found: list[Any] = []

    def call(n: int, http: Any) -> Any:
        found.append(http)
        return found[0].post("/pay").json()

    tester = Tester(
        graph_of(call, Http(SECRET, journal=True)),
        effects={"http": httpx2.MockTransport(lambda _: httpx2.Response(200, json=1))},
    )
    tester.send("orders", 1)
    tester.send("orders", 2)
    [error] = tester.run().errors()
    assert "valid only during the call" in error.text


# A real socket


@pytest.fixture
def hostile() -> Iterator[str]:
    """A server whose bodies never end, or that says nothing, or that is none."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/silent":
                stopped.wait()
                return
            if self.path == "/garbage":
                self.wfile.write(b"SSH-2.0-nothing\r\n\r\n")
                return
            self.send_response(200)
            if self.path == "/packed":
                self.send_header("Content-Encoding", "gzip")
            self.end_headers()
            try:
                while self.path == "/endless" and not stopped.is_set():
                    self.wfile.write(b"x" * 10_000)
                while self.path == "/dripping" and not stopped.wait(0.05):
                    self.wfile.write(b"x")
            except OSError:
                return

        def log_message(self, *_: object) -> None:
            pass

    stopped = threading.Event()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    stopped.set()
    server.shutdown()
    server.server_close()


def test_hostile_server_is_bounded(hostile: str) -> None:
    """Endless and dripping bodies, silence, no HTTP at all, a packed body, and a port that is closed."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        closed = f"http://127.0.0.1:{probe.getsockname()[1]}"
    wanted = {
        "/endless": "AnswerTooLarge",
        "/dripping": "CallUnanswered",
        "/silent": "CallUnanswered",
        "/garbage": "CallUnanswered",
        "/packed": "CallError",
    }

    def call(path: str, http: Any) -> Any:
        return http.get(path).text

    for base, paths in ((hostile, wanted), (closed, {"/": "CallUnanswered"})):
        tester = Tester(graph_of(call, Http(base, journal=True, timeout_s=0.3, patience_s=0)))
        tester.clock = tester.broker.monitor.clock = _Real()  # type: ignore[assignment]
        for path in paths:
            tester.send("orders", path)
        assert [one.exception for one in tester.run().errors()] == [*paths.values()]
        assert not [one for one in tester.errors() if "127.0.0.1" in one.text]
        asked = [one.text for one in tester.errors() if one.exception == "CallUnanswered"]
        assert all(re.search(r"it was asked for 0\.\d s, and patience_s is 0$", one) for one in asked)
        tester.stop()


class _Real:
    """The clock of the machine: a body that drips takes real time."""

    def __init__(self) -> None:
        self.monotonic, self.time, self.sleep = time.monotonic, time.time, time.sleep

    def advance(self, seconds: float) -> None:
        """Tests wait for nothing here."""


def test_address_that_is_missing_is_refused_before_topics_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a server and of an outbox; a plan without a cluster mentions all of them, and a Tester has its own server."""
    monkeypatch.delenv("PAY_API", raising=False)

    def pay(order: int, http: Any) -> Any:
        return http.get("/").text

    graph = Graph(
        "g",
        Source("orders"),
        Processor(pay, inputs="orders", outputs="paid", effects={"http": Http(env="PAY_API", journal=True)}),
        Feed(SqlOutbox(env="SHOP_DATABASE"), into="booked", name="outbox"),
    )
    memory = Memory()
    with pytest.raises(
        ConfigError, match=r"pay, effects\['http'\]: .* PAY_API is not set[^\n]*\n.*feed 'outbox'.*"
    ) as no:
        start(graph, memory)
    assert "SHOP_DATABASE" in str(no.value)
    assert open_broker(memory).facts(["g.pay.backing", "orders"]).topics == {}
    Tester(graph, effects={"http": httpx2.MockTransport(lambda _: httpx2.Response(200))})
    found = dict(unset_variables(graph))
    assert [unset_text(one) for one in found.values()] == [
        "Http(env='PAY_API'): the environment variable PAY_API is not set. Set it to the address",
        "SqlOutbox(env='SHOP_DATABASE'): the environment variable SHOP_DATABASE is not set. Set it to the address",
    ]


def test_call_before_the_recovery_is_refused() -> None:
    """The journal may have its answer, which only the recovery reads."""
    with pytest.raises(RecoveryError, match="before its task has recovered"):
        Calls({}, Shared({}, "g.call", side_by_side=False, threads=False), None).check_owner()

"""The browser view on a real broker: the command as an operator starts it, asked as a browser asks."""

from __future__ import annotations

import hashlib
import hmac
import http.client
import json
import re
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import pytest

from cues_kafka import Kafka, Message, connect, start
from cues_kafka.cli.loading import load_graph
from cues_kafka.testing.fixtures import KafkaFixture
from cues_kafka.ui.actions import END_S
from tests.fault.support import Program, committed, committed_all, until

MODULE = """
from typing import Any
from cues_kafka import Graph, Json, Processor, Source, State, Store, Topic

def check(order: dict[str, Any], seen: State[Any]) -> dict[str, Any]:
    if order["n"] < 0:
        raise ValueError("<script>alert(1)</script> \\u202e")
    seen[order.get("name", "-")] = order["n"]
    return order

graph = Graph(
    {name!r},
    Source("{name}.orders"),
    Processor(check, inputs="{name}.orders", outputs="{name}.checked", state={{"seen": Store()}}),
    errors="{name}.errors",
    defaults=Topic(value=Json(), partitions=2),
)
"""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user whose views were never started."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


class Browser:
    """Opens the address that the command has printed, and asks with its cookie."""

    def __init__(self, address: str) -> None:
        self._place = urlsplit(address)
        self._cookie = ""
        answer = self.ask(f"{self._place.path}?{self._place.query}")
        assert answer.status == 303
        self._take_cookie(answer)

    def _take_cookie(self, answer: http.client.HTTPResponse) -> None:
        self._cookie = (answer.getheader("Set-Cookie") or "").split(";")[0]

    @property
    def port(self) -> int:
        """That of the view."""
        assert self._place.port
        return self._place.port

    def comes_back(self, kept: Mapping[str, str]) -> int:
        """Show the pass that `/api/pass` gave before, as the script of a page does; gives the status."""
        refused = self.ask("/api/state")
        assert refused.status == 403
        signed = f"{json.loads(refused.read())['challenge']}\n{self._place.netloc}".encode()
        proof = hmac.new(bytes.fromhex(kept["key"]), signed, hashlib.sha256).hexdigest()
        answer = self.post("/api/back", {"id": kept["id"], "proof": proof})
        if answer.status == 200:
            self._take_cookie(answer)
        return answer.status

    def data(self, path: str) -> Any:
        answer = self.ask(path)
        assert answer.status == 200, answer.read()
        return json.loads(answer.read())

    def does(self, verb: str, **given: Any) -> Any:
        """Begin a job, and wait for its end."""
        answer = self.post(f"/api/do/{verb}", given)
        assert answer.status == 202, answer.read()
        begun = json.loads(answer.read())
        until(lambda: self.data("/api/job")["state"] != "running", f"{verb} has ended")
        job = self.data("/api/job")
        assert job["number"] == begun["number"]
        return job

    def post(self, path: str, given: Mapping[str, Any]) -> http.client.HTTPResponse:
        """Send something, as a page of the view does."""
        origin = f"{self._place.scheme}://{self._place.netloc}"
        headers = {"Content-Type": "application/json", "X-Cues-Kafka": "page", "Origin": origin}
        return self.ask(path, "POST", json.dumps(given), headers)

    def ask(
        self, path: str, method: str = "GET", body: str | None = None, headers: Mapping[str, str] | None = None
    ) -> http.client.HTTPResponse:
        """The answer to a request with the cookie."""
        connection = http.client.HTTPConnection(self._place.netloc, timeout=30)
        connection.request(method, path, body, {"Cookie": self._cookie, **(headers or {})})
        return connection.getresponse()


@contextmanager
def viewed(kafka: KafkaFixture, target: str, *options: str) -> Iterator[tuple[Program, Browser]]:
    """The view of a graph, as its command starts it, and a browser."""
    command = [sys.executable, "-m", "cues_kafka.cli.main", "ui", target, "--bootstrap", kafka.bootstrap, *options]
    with Program(command) as program:
        [address] = re.findall(r"http://\S+", program.expect("token="))
        yield program, Browser(address)


@contextmanager
def opened(kafka: KafkaFixture, target: str) -> Iterator[Browser]:
    """The view of a graph, and nothing else."""
    with viewed(kafka, target) as (_, browser):
        yield browser


def test_the_view_shows_a_graph_its_tasks_and_an_error_message(kafka: KafkaFixture, tmp_path: Path) -> None:
    """Of workers that run elsewhere; with the text of an error message that is HTML and turns the direction."""
    name = kafka.unique("shop")
    (tmp_path / "app.py").write_text(MODULE.format(name=name))
    target = f"{tmp_path / 'app.py'}:graph"
    graph, cluster = load_graph(target), Kafka(kafka.bootstrap)
    with start(graph, cluster) as running:
        with connect(cluster, graph) as client:
            client.send_many(f"{name}.orders", [{"n": 1}, {"n": -1}])
        running.wait_idle()
        with opened(kafka, target) as browser:
            until(lambda: len(browser.data("/api/state")["tasks"]) == 2, "the view has looked")

            state = browser.data("/api/state")
            assert {one["task"]: (one["lag"], one["errors"]) for one in state["tasks"]}.keys() == {"check/0", "check/1"}
            assert sum(one["errors"] for one in state["tasks"]) == 1
            assert [(one["topic"], one["lag"]) for one in state["flows"]] == [(f"{name}.orders", 0)]
            nodes = {one["id"]: one["column"] for one in browser.data("/api/graph")["nodes"]}
            assert nodes[f"topic {name}.orders"] < nodes["processor check"] < nodes[f"topic {name}.errors"]
            [cause] = browser.data("/api/errors")["causes"]
            assert (cause["exception"], cause["count"]) == ("ValueError", 1)
            shown = "\n".join(browser.data(f"/api/error?place={cause['example']}")["lines"])
            assert "<script>alert(1)</script> \\u202e" in shown
            assert "open; it can be replayed" in shown


def test_messages_their_path_and_an_entry_are_found(kafka: KafkaFixture, tmp_path: Path) -> None:
    """Over HTTP; with a key that is HTML and turns the direction."""
    name, key = kafka.unique("shop"), "<b>\u202e"
    (tmp_path / "app.py").write_text(MODULE.format(name=name))
    target = f"{tmp_path / 'app.py'}:graph"
    graph, cluster = load_graph(target), Kafka(kafka.bootstrap)
    with start(graph, cluster) as running:
        with connect(cluster, graph) as client:
            client.send_many(f"{name}.orders", [Message({"n": n, "name": f"Anna {n}"}, key=key) for n in range(5)])
        running.wait_idle()
    with opened(kafka, target) as browser:
        assert browser.data("/api/topics")["topics"] == [f"{name}.{one}" for one in ("checked", "errors", "orders")]
        asked = urlencode({"topic": f"{name}.orders", "key": key, "text": "anna 3"})
        found = browser.data(f"/api/messages?{asked}")
        [row] = found["rows"]
        assert (row["key"], row["value"]) == ("<b>\\u202e", '{"n": 3, "name": "Anna 3"}')
        assert (found["messages"], found["ended"]) == (5, "")

        path = browser.data(f"/api/path?{urlencode({'place': row['place']})}")
        [before, after] = sorted(path["nodes"], key=lambda node: node["column"])
        assert (before["id"], after["topic"]) == (row["place"], f"{name}.checked")
        [arrow] = path["arrows"]
        assert (arrow["start"], arrow["end"]) == (before["id"], after["id"])
        assert arrow["task"].startswith(f"{name}.check/")
        back = browser.data(f"/api/path?{urlencode({'place': after['id']})}")
        assert back["arrows"] == [arrow]

        assert browser.data("/api/stores")["stores"] == [{"processor": "check", "store": "seen", "keys": "text"}]
        entry = browser.data(f"/api/entry?{urlencode({'processor': 'check', 'store': 'seen', 'key': 'Anna 3'})}")
        assert (entry["rows"], entry["entries"]) == ([{"key": '"Anna 3"', "value": "3"}], 5)
        assert entry["read"] in ("partition 0", "partition 1", "all partitions"), "its messages have another key"


def test_an_open_page_comes_back_to_the_command_that_was_started_again(kafka: KafkaFixture, tmp_path: Path) -> None:
    """At the same port, which was not given; not after --log-out, and not to a view that may do less or more."""
    (tmp_path / "app.py").write_text(MODULE.format(name=kafka.unique("shop")))
    target = f"{tmp_path / 'app.py'}:graph"
    with viewed(kafka, target) as (program, browser):
        kept = browser.data("/api/pass")
        assert program.ended_by(signal.SIGTERM) == 0
    with viewed(kafka, target) as (program, other):
        assert other.port == browser.port
        assert browser.comes_back(kept) == 200
        assert browser.data("/api/pass")["id"] != kept["id"]
        program.expect("view opened again")
        assert not [line for line in program.lines if kept["key"] in line]
    with viewed(kafka, target, "--read-only", "--port", str(browser.port)):
        assert browser.comes_back(kept) == 403
    with viewed(kafka, target, "--log-out") as (_, other):
        assert other.port == browser.port
        assert browser.comes_back(kept) == 403


REPAIRED = """
from typing import Any
from cues_kafka import Graph, Json, Processor, Source, Topic

def check(order: dict[str, Any]) -> dict[str, Any]:
    if order["n"] < {least}:
        raise ValueError("<img src=x onerror=alert(1)> \\u202e")
    return order

graph = Graph(
    {name!r},
    Source("{name}.orders"),
    Processor(check, inputs="{name}.orders", outputs="{name}.checked"),
    errors="{name}.errors",
    defaults=Topic(value=Json(), partitions=1),
)
"""


def test_the_view_replays_drops_pauses_and_resumes(kafka: KafkaFixture, tmp_path: Path) -> None:
    """After a dry run, as the commands: a failed message arrives when its defect is fixed, and another is dropped."""
    name = kafka.unique("shop")
    cluster = Kafka(kafka.bootstrap)
    broken, fixed = tmp_path / "broken.py", tmp_path / "app.py"
    broken.write_text(REPAIRED.format(name=name, least=0))
    fixed.write_text(REPAIRED.format(name=name, least=-1))
    with start(load_graph(f"{broken}:graph"), cluster) as running:
        with connect(cluster, load_graph(f"{broken}:graph")) as client:
            client.send_many(f"{name}.orders", [{"n": 1}, {"n": -1}, {"n": -2}])
        running.wait_idle()
    target = f"{fixed}:graph"
    command = [sys.executable, "-m", "cues_kafka.cli.main", "ui", target, "--bootstrap", kafka.bootstrap]
    with start(load_graph(target), cluster), Program(command) as program:
        [address] = re.findall(r"http://\S+", program.expect("token="))
        browser = Browser(address)
        [cause] = browser.data("/api/errors")["causes"]
        assert (cause["count"], sum(cause["bars"])) == (2, 2)
        chosen = {key: cause[key] for key in ("processor", "exception", "kind")}

        dry = browser.does("replay", **chosen)
        assert (dry["state"], dry["more"]["asked"], dry["more"]["dry"]) == ("done", 2, True)
        assert f"{name}: would replay 2 error messages" in dry["lines"]
        assert browser.data("/api/errors")["causes"][0]["asked"] == 0
        assert "who='127.0.0.1'" in program.expect("change begun")

        done = browser.does("replay", **chosen, yes=True, counted=dry["more"]["counted"])
        assert (done["state"], done["why"]) == ("done", "")
        assert "replayed now: 1 with outputs, 1 with a new error message" in done["lines"]
        assert [json.loads(one.value() or b"")["n"] for one in committed(kafka.bootstrap, f"{name}.checked")] == [1, -1]

        [left] = browser.data("/api/errors")["causes"]
        shown = browser.data(f"/api/error?place={left['example']}")
        assert (shown["replay"], shown["drop"]) == (True, True)
        assert "<img src=x onerror=alert(1)> \\u202e" in "\n".join(shown["lines"])
        dropped = browser.does("drop", place=left["example"], yes=True)
        assert "dropped now: 1 dropped" in dropped["lines"]
        assert browser.data("/api/errors")["causes"] == []
        again = browser.does("drop", place=left["example"], yes=True)
        assert "settled already: 1" in again["lines"]

        paused = browser.does("pause", processor="check")
        assert (paused["state"], paused["lines"]) == (
            "done",
            [f"{name}: check paused; `cues-kafka resume` lets it go on"],
        )
        until(lambda: [one["state"] for one in browser.data("/api/state")["tasks"]] == ["paused"], "it is seen")
        wrong = browser.does("pause", processor="chekc")
        assert (wrong["state"], "chekc" in wrong["why"]) == ("failed", True)
        [line] = browser.does("resume")["lines"]
        assert line.startswith(f"{name}: check goes on; it was ")
        assert "127.0.0.1 in the browser view" in line


def failed_three(kafka: KafkaFixture, tmp_path: Path) -> tuple[str, str]:
    """Three error messages of a graph that no worker runs. Gives its name, and the graph with the fixed code."""
    name = kafka.unique("shop")
    broken, fixed = tmp_path / "broken.py", tmp_path / "app.py"
    broken.write_text(REPAIRED.format(name=name, least=0))
    fixed.write_text(REPAIRED.format(name=name, least=-9))
    with start(load_graph(f"{broken}:graph"), Kafka(kafka.bootstrap)) as running:
        with connect(Kafka(kafka.bootstrap), load_graph(f"{broken}:graph")) as client:
            client.send_many(f"{name}.orders", [{"n": -1}, {"n": -2}, {"n": -3}])
        running.wait_idle()
    return name, f"{fixed}:graph"


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.full)])
def test_a_signal_within_a_replay_ends_the_view_soon_and_says_what_was_not_done(
    kafka: KafkaFixture, tmp_path: Path, number: int
) -> None:
    """No transaction stays open, the requests stay, and the worker that comes later does each of them once."""
    name, target = failed_three(kafka, tmp_path)
    with viewed(kafka, target) as (program, browser):
        until(lambda: browser.data("/api/state")["tasks"], "the view has looked")
        [cause] = browser.data("/api/errors")["causes"]
        chosen = {key: cause[key] for key in ("processor", "exception", "kind")}
        assert browser.post("/api/do/replay", {**chosen, "yes": True}).status == 202
        until(lambda: browser.data("/api/job")["step"] == "settling", "the requests are sent, and no worker takes them")
        began_s = time.monotonic()
        assert program.ended_by(number) == 0
        assert time.monotonic() - began_s < 2 * END_S, "the job would have waited for 60 s"
        program.expect("replay of check, ValueError, raised is not done:")
        program.expect(f"{name}: replay requested for 3 error messages")
        program.expect(f"{name}: 3 error messages not settled in time. The requests stay.")
    topics = [f"{name}.{one}" for one in ("checked", "errors", "check.replay")]
    found = committed_all(kafka.bootstrap, topics)  # which an open transaction would hold
    assert [len(found[topic]) for topic in topics] == [0, 3, 3]
    with start(load_graph(target), Kafka(kafka.bootstrap)) as running:
        running.wait_idle()
        until(lambda: len(committed(kafka.bootstrap, topics[0])) == 3, "the requests are done")
    assert [json.loads(one.value() or b"")["n"] for one in committed(kafka.bootstrap, topics[0])] == [-1, -2, -3]


def test_a_view_that_was_started_read_only_changes_nothing_by_any_way(kafka: KafkaFixture, tmp_path: Path) -> None:
    """With the cookie and all headers of its own page: each verb by each method, and the end of a wait."""
    name, target = failed_three(kafka, tmp_path)
    with viewed(kafka, target, "--read-only") as (_, browser):
        assert "read-only" in browser.data("/api/job")["refusal"]
        [cause] = browser.data("/api/errors")["causes"]
        chosen = {key: cause[key] for key in ("processor", "exception", "kind")}
        wishes: list[tuple[str, dict[str, Any]]] = [
            *((verb, {**chosen, "yes": yes}) for verb in ("replay", "drop") for yes in (True, False)),
            *((verb, given) for verb in ("pause", "resume") for given in ({}, {"processor": "check"})),
            ("drop", {"place": cause["example"], "yes": True}), ("end-wait", {}), ("reset", {}), ("../do/pause", {}),
        ]  # fmt: skip
        for verb, given in wishes:
            assert browser.post(f"/api/do/{verb}", given).status == 403, (verb, given)
            asked = f"/api/do/{verb}?{urlencode(given)}"
            for method in ("GET", "HEAD"):
                assert browser.ask(asked, method, headers={"X-HTTP-Method-Override": "POST"}).status == 404
            for method in ("PUT", "PATCH", "DELETE"):
                assert browser.ask(asked, method, json.dumps(given)).status == 501
        assert browser.data("/api/job")["number"] == 0
        assert browser.data("/api/errors")["causes"][0]["asked"] == 0
    topics = [f"{name}.{one}" for one in ("check.replay", "control")]
    assert [*committed_all(kafka.bootstrap, topics).values()] == [[], []]

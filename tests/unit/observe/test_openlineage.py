"""OpenLineage: which events a run gives, in the form of the specification, and that no catalog delays a task."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import attr
import pytest
from openlineage.client import facet_v2

from cues_kafka import ConfigError, Feed, Graph, Iterate, Json, Memory, OpenLineage, Processor, Source, Topic, start
from cues_kafka.observe import openlineage
from cues_kafka.ports.observer import BatchReport, Observer, PartFacts, RunFacts, RunObserver

WAIT_S = 20.0


@dataclass(frozen=True)
class Order:
    id: str
    total: int


def check(order: Order) -> Order | None:
    """
    Keep orders that cost something.

    Negative totals are errors.
    """
    if order.total < 0:
        raise ValueError("negative")
    return order if order.total else None


def split(order: Order) -> dict[str, Order]:
    return {"all": order, "big": order}


def graph() -> Graph:
    """A pipe, a fork and a feed."""
    return Graph(
        "shop",
        Source("orders"),
        Processor(check, inputs="orders", outputs="checked"),
        Processor(split, inputs="checked", outputs={"all": "shop.all", "big": "shop.big"}),
        Feed(Iterate(lambda _: []), into="orders", name="old"),
        errors="shop.errors",
        defaults=Topic(value=Json(Order)),
    )


FACTS = RunFacts(
    "shop", "kafka-1:9092", "native", [PartFacts("check", "pipe", "", ["orders"], ["checked", "errors"], "errors")], {}
)


def batch(deliveries: int = 1) -> BatchReport:
    """What a committed batch reports."""
    return BatchReport(deliveries, 1, 0, 1, 0.1, 0, ())


def told(events: list[dict[str, Any]], job: str) -> list[str]:
    """The types of the events of one job."""
    return [one["eventType"] for one in events if one["job"]["name"] == job]


def test_run_tells_its_start_counts_and_end() -> None:
    """Each processor is a run below that of the graph, with its topics as datasets."""
    events: list[dict[str, Any]] = []
    with start(graph(), Memory(), observers=[OpenLineage(events.append, every_seconds=3600)]) as running:
        running.send_many("orders", [Order("a", 1), Order("b", 0), Order("c", -1)])
        running.wait_idle()

    assert told(events, "shop") == ["START", "COMPLETE"]
    assert told(events, "shop.check") == told(events, "shop.split") == ["START", "RUNNING", "COMPLETE"]
    assert told(events, "shop.old") == ["START", "COMPLETE"]
    assert events[0]["job"]["name"] == events[-1]["job"]["name"] == "shop"
    by_type = {one["eventType"]: one for one in events if one["job"]["name"] == "shop.check"}
    begun, over = by_type["START"], by_type["COMPLETE"]
    assert begun["run"]["runId"] == over["run"]["runId"] == by_type["RUNNING"]["run"]["runId"]
    assert [one["name"] for one in over["inputs"]] == ["orders"]
    assert {one["name"]: one.get("outputFacets", {}).get("outputStatistics", {}).get("rowCount")
            for one in over["outputs"]} == {"checked": 1, "shop.errors": 1}  # fmt: skip
    assert all("outputFacets" not in one for one in begun["outputs"])
    assert over["inputs"][0]["namespace"] == "memory"
    assert over["inputs"][0]["facets"]["schema"]["fields"] == [{"name": "id"}, {"name": "total"}]
    counts = {key: one for key, one in over["run"]["facets"]["cues_kafka_totals"].items() if key[0] != "_"}
    assert counts == {"deliveries": 3, "outputs": 1, "errors": 1, "messages": 1}
    assert begun["job"]["facets"]["documentation"]["description"] == "Keep orders that cost something."
    parent = begun["run"]["facets"]["parent"]
    assert parent["run"]["runId"] == events[0]["run"]["runId"] != begun["run"]["runId"]
    assert parent["job"] == {"namespace": "cues-kafka", "name": "shop"}
    forked = next(one for one in reversed(events) if one["job"]["name"] == "shop.split")
    assert [one["name"] for one in forked["outputs"]] == ["shop.all", "shop.big", "shop.errors"]
    assert "outputFacets" not in forked["outputs"][0]


def test_events_have_the_form_of_the_specification() -> None:
    """Every facet of it has the attributes and the address that the official client gives it."""
    events: list[dict[str, Any]] = []
    observer = OpenLineage(events.append, namespace="prod")
    observer.began(FACTS._replace(fields={"orders": ["id"]}, parts=[FACTS.parts[0]._replace(about="Checks.")]))
    observer.committed("check/0", batch())
    observer.stopped("check/0", "no such topic", "make it", {})
    observer.ended({}, abandoned=False)

    found: dict[str, dict[str, Any]] = {}
    for one in events:
        uuid.UUID(one["run"]["runId"])
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", one["eventTime"])
        assert one.keys() == {"eventType", "eventTime", "run", "job", "inputs", "outputs", "producer", "schemaURL"}
        assert (one["job"]["namespace"], one["schemaURL"].rpartition("/")[2]) == ("prod", "RunEvent")
        found |= one["run"]["facets"] | one["job"]["facets"]
        for dataset in (*one["inputs"], *one["outputs"]):
            assert dataset["namespace"] == "kafka://kafka-1:9092"
            found |= dataset["facets"] | dataset.get("outputFacets", {})
    found.pop("cues_kafka_totals")
    assert sorted(found) == ["documentation", "errorMessage", "jobType", "outputStatistics", "parent",
                             "processing_engine", "schema"]  # fmt: skip
    for facet in found.values():
        name = facet["_schemaURL"].rpartition("/")[2]
        cls = next(getattr(module, name) for module in vars(facet_v2).values() if hasattr(module, name))
        assert facet["_schemaURL"] == cls._get_schema()
        assert facet.keys() - {"_producer", "_schemaURL"} <= {one.name for one in attr.fields(cls)}


def test_counts_are_told_at_once_and_then_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    """At most once in `every_seconds`; what was counted in between is in the next event."""
    now = [100.0]
    monkeypatch.setattr("cues_kafka.observe.openlineage.time.monotonic", lambda: now[0])
    events: list[dict[str, Any]] = []
    observer = OpenLineage(events.append, every_seconds=30)
    observer.began(FACTS)
    for at in (100.0, 110.0, 129.0, 130.5, 131.0):
        now[0] = at
        observer.committed("check/0", batch(2))
    observer.ended({}, abandoned=False)

    counts = [one["run"]["facets"]["cues_kafka_totals"]["deliveries"] for one in events if one["inputs"] and
              "cues_kafka_totals" in one["run"]["facets"]]  # fmt: skip
    assert counts == [2, 8, 10]
    assert told(events, "shop.check") == ["START", "RUNNING", "RUNNING", "COMPLETE"]


def test_stopped_task_is_told_and_its_run_goes_on() -> None:
    """A run that is stopped with it has failed; the others are complete."""
    events: list[dict[str, Any]] = []

    def broken(order: Order) -> Order:
        raise ValueError("no stock")

    both = Graph("g", Source("in"), Source("other"), Processor(broken, inputs="in", outputs="out"), Processor(
        check, inputs="other", outputs="kept"), defaults=Topic(value=Json(Order)))  # fmt: skip
    running = start(both, Memory(), observers=[OpenLineage(events.append)])
    running.send("in", Order("a", 1))
    with pytest.raises(Exception, match="broken/0 stopped"):
        running.wait_idle()
    running.stop()

    assert told(events, "g.broken") == ["START", "RUNNING", "FAIL"]
    assert told(events, "g.check") == ["START", "COMPLETE"]
    assert told(events, "g") == ["START", "FAIL"]
    messages = [
        one["run"]["facets"]["errorMessage"]["message"] for one in events if "errorMessage" in one["run"]["facets"]
    ]
    assert len(messages) == 3
    assert all("broken/0 stopped" in one and "no stock" in one for one in messages)


def test_run_of_a_program_that_raises_is_aborted() -> None:
    """Transactions under way are dropped, so the counts may be the last word."""
    events: list[dict[str, Any]] = []
    with pytest.raises(KeyError), start(graph(), Memory(), observers=[OpenLineage(events.append)]):
        raise KeyError

    assert {kind for job in ("shop", "shop.check") for kind in told(events, job)[1:]} == {"ABORT"}


def test_start_that_fails_ends_what_it_began() -> None:
    """A second run is refused while the first one goes on, and nothing of it was told."""
    events: list[dict[str, Any]] = []
    observer = OpenLineage(events.append)
    with start(graph(), Memory(), observers=[observer]):
        with pytest.raises(ConfigError, match=r"observes a run now\. Give graph 'shop' one of its own"):
            start(graph(), Memory(), observers=[observer])
        assert told(events, "shop")[1:] == []
    with start(graph(), Memory(), observers=[observer]):
        pass

    assert told(events, "shop") == ["START", "COMPLETE"] * 2


def test_catalog_that_does_not_answer_delays_no_task(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Events wait up to a number, the end waits for a time, and the log says what was left out."""
    monkeypatch.setattr(openlineage, "MOST_WAITING", 5)
    monkeypatch.setattr(openlineage, "END_S", 0.2)
    answers = threading.Event()
    observer = OpenLineage(lambda _: answers.wait(WAIT_S), every_seconds=1e-9)
    try:
        with start(graph(), Memory(), observers=[observer]) as running:
            for number in range(10):
                running.send("orders", Order("a", number))
                running.wait_idle()
            assert len(running.messages("checked")) == 9
    finally:
        answers.set()

    assert "5 events wait already" in caplog.text
    assert "lineage left out events=" in caplog.text


def test_event_that_is_refused_is_logged_and_the_next_one_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """Whatever the function raises."""
    events: list[str] = []

    def refusing(event: dict[str, Any]) -> None:
        events.append(event["eventType"])
        if event["eventType"] == "START":
            raise LookupError("no such job")

    observer = OpenLineage(refusing)
    observer.began(FACTS)
    observer.ended({}, abandoned=False)

    assert events == ["START", "START", "COMPLETE", "COMPLETE"]
    assert "lineage left out job='shop' type='START' why='LookupError: no such job'" in caplog.text


def test_file_has_a_line_for_each_event(tmp_path: Path) -> None:
    """Events are appended, so that several processes can share it."""
    path = tmp_path / "lineage.jsonl"
    for _ in range(2):
        observer = OpenLineage(path)
        observer.began(FACTS)
        observer.ended({}, abandoned=False)

    events = [json.loads(line) for line in path.read_text().splitlines()]
    assert told(events, "shop.check") == ["START", "COMPLETE"] * 2


class Catalog(BaseHTTPRequestHandler):
    """A server for lineage, which keeps what it gets."""

    def do_POST(self) -> None:
        """Take an event."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.events.append((self.path, self.headers.get("Authorization"), json.loads(body)))  # type: ignore[attr-defined]
        self.send_response(201)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Nothing."""


@pytest.fixture
def catalog() -> Iterator[Any]:
    """A server at work."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Catalog)
    server.events = []  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.mark.parametrize("named", [True, False])
def test_server_gets_the_events_from_the_official_client(
    catalog: Any, monkeypatch: pytest.MonkeyPatch, *, named: bool
) -> None:
    """By its URL, or by the client's own settings; with the key of the environment."""
    url = f"http://127.0.0.1:{catalog.server_port}"
    monkeypatch.setenv("OPENLINEAGE_API_KEY", "s3cret")
    if not named:
        monkeypatch.setenv("OPENLINEAGE_URL", url)
    direct: list[dict[str, Any]] = []
    observers = OpenLineage(url if named else None), OpenLineage(direct.append)
    for observer in observers:
        observer.began(FACTS)
        observer.committed("check/0", batch())
        observer.ended({"check": "task check/0 stopped"}, abandoned=False)

    assert [(path, key) for path, key, _ in catalog.events] == [("/api/v1/lineage", "Bearer s3cret")] * 5
    assert [one["eventType"] for *_, one in catalog.events] == ["START", "START", "RUNNING", "FAIL", "FAIL"]
    [sent], [made] = ([one for one in found if one["eventType"] == "RUNNING"] for found in
                      ([one for *_, one in catalog.events], direct))  # fmt: skip
    for name in ("inputs", "outputs"):
        assert [one["facets"] | one.get("outputFacets", {}) for one in sent[name]] == [
            one["facets"] | one.get("outputFacets", {}) for one in made[name]
        ]
    assert sent["run"]["facets"]["cues_kafka_totals"] == made["run"]["facets"]["cues_kafka_totals"]
    assert sent["job"]["facets"]["jobType"] == made["job"]["facets"]["jobType"]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"to": "/nowhere/lineage.jsonl"}, "the file cannot be written"),
        ({"to": 7}, r"OpenLineage\(7\): takes a file, a URL or a function"),
        ({"to": print, "every_seconds": 0}, "every_seconds=0.: takes a number of seconds above 0"),
        ({"to": print, "every_seconds": True}, "every_seconds=True"),
    ],
)
def test_wrong_arguments_are_refused_at_once(arguments: dict[str, Any], text: str) -> None:
    """Before a graph starts."""
    with pytest.raises(ConfigError, match=text):
        OpenLineage(**arguments)


def test_client_that_is_not_installed_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files and functions need none."""
    monkeypatch.setitem(sys.modules, "openlineage.client", None)

    with pytest.raises(ConfigError, match=r"pip install 'cues-kafka\[openlineage\]', or give a file or a function"):
        OpenLineage("http://127.0.0.1:9")
    OpenLineage(print)


def test_it_is_an_observer_of_runs() -> None:
    """A plain observer is not, and is not told of them."""
    observer: RunObserver = OpenLineage(print)
    plain: Observer = observer

    assert isinstance(plain, RunObserver)


def test_nothing_of_it_is_loaded_unless_it_is_asked_for() -> None:
    """What is off costs no import."""
    code = "import sys; from cues_kafka import start; print([m for m in sys.modules if 'lineage' in m])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert out.stdout.strip() == "[]"

"""`cues-kafka errors`: what it prints, its exit codes, and what it refuses."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated

import pytest
from typer.testing import CliRunner, Result

from cues_kafka import Avro, Digits, Errors, Graph, Json, Processor, Source, Topic
from cues_kafka.brokers import open as open_module
from cues_kafka.cli import loading
from cues_kafka.cli.main import app
from cues_kafka.operate.repair import ask as repairing
from cues_kafka.testing.tester import Tester


class Bug:
    fixed = False

    def check(self, value: int) -> int | None:
        if value < 0 and not self.fixed:
            raise ValueError(f"{value} is negative")
        return abs(value)


@pytest.fixture
def bug() -> Bug:
    return Bug()


@pytest.fixture
def tester(bug: Bug, monkeypatch: pytest.MonkeyPatch) -> Tester:
    """A graph with three open errors, which the command finds."""
    graph = Graph(
        "shop", Source("in"), Processor(bug.check, inputs="in", outputs="out", name="check"),
        errors=Errors("shop.errors", payload=True), defaults=Topic(value=Json(), partitions=1),
    )  # fmt: skip
    found = Tester(graph)
    for value in (1, -2, -3, -4):
        found.send("in", value, key="k")
    found.run()
    monkeypatch.setattr(loading, "load_graph", lambda _: graph)
    monkeypatch.setattr(open_module, "open_broker", lambda _: found.broker)
    monkeypatch.setattr(found.broker, "close", lambda: None)
    monkeypatch.setattr(repairing, "LOOK_S", 0.01)
    return found


def call(*arguments: str, exit_code: int = 0) -> Result:
    """The command on a wide screen."""
    done = CliRunner().invoke(
        app, ["errors", *arguments], env={"COLUMNS": "160", "CUES_KAFKA_BOOTSTRAP": "localhost:1"}
    )
    assert done.exit_code == exit_code, done.output
    return done


def test_list_prints_causes(tester: Tester) -> None:
    """As a table, as paragraphs on a narrow screen, and as data."""
    shown = call("list", "shop:graph").output.splitlines()
    assert shown[0].split()[:5] == ["processor", "exception", "kind", "errors", "asked"]
    assert shown[1].split()[:5] == ["check", "ValueError", "raised", "3", "0"]
    *_, newest = tester.client.committed("shop.errors")
    assert shown[1].endswith(f"shop.errors/0@{newest.offset()}")
    assert shown[2] == "shop: 3 open error messages of 1 cause"

    narrow = CliRunner().invoke(app, ["errors", "list", "shop:graph"], env={"COLUMNS": "60"})
    assert narrow.output.splitlines()[0] == "check: ValueError (raised)"
    found = json.loads(call("list", "shop:graph", "--json").output)
    assert [(one["exception"], one["count"], one["text"]) for one in found["causes"]] == [
        ("ValueError", 3, "-4 is negative")
    ]
    assert call("list", "shop:graph", "--kind", "decode").output == "shop: 0 open error messages of 0 causes\n"


def test_show_prints_one_whole(tester: Tester) -> None:
    """What became of it, too."""
    place = json.loads(call("list", "shop:graph", "--json").output)["causes"][0]["example"]
    shown = call("show", "shop:graph", place).output
    for text in (f"{place}: ValueError: -4 is negative", "open; it can be replayed", "shop.check/0", "payload   -4"):
        assert text in shown
    data = json.loads(call("show", "shop:graph", place, "--json").output)
    assert (data["place"], data["settled"], data["payload"], data["replay"]) == (place, None, "-4", 1)
    call("drop", "shop:graph", place, "--yes")
    assert "asked to be dropped; its task has not settled it yet" in call("show", "shop:graph", place).output
    tester.run()
    assert ": dropped" in call("show", "shop:graph", place).output


def test_replay_says_what_it_would_do_then_does_it(bug: Bug, tester: Tester) -> None:
    """A dry run exits with 1, so that a script notices; a second run asks for nothing."""
    dry = call("replay", "shop:graph", exit_code=1)
    assert "shop: would replay 3 error messages" in dry.output
    assert "Nothing was replayed. Add --yes to do it." in dry.output
    late = call("replay", "shop:graph", "--limit", "2", "--yes", "--wait", "0.02", exit_code=1)
    assert "2 error messages not settled in time" in late.output
    assert "not settled yet: shop.errors/0@" in late.output
    bug.fixed = True
    tester.run()
    done = call("replay", "shop:graph", "--yes", "--json")
    assert {name: json.loads(done.output)[name] for name in ("asked", "asked before", "settled before")} == {
        "asked": 1, "asked before": 0, "settled before": 2,
    }  # fmt: skip
    tester.run()
    last = call("replay", "shop:graph", "--yes", "--wait", "5").output
    assert last == "shop: replay requested for 0 error messages\nsettled already: 3\n"
    assert sorted(tester.values("out")) == [1, 2, 3, 4]
    assert call("list", "shop:graph").output == "shop: 0 open error messages of 0 causes\n"
    assert "replay 1 ended with outputs" in call("show", "shop:graph", *_first(tester)).output


def _first(tester: Tester) -> list[str]:
    first = next(iter(tester.client.committed("shop.errors")))
    return [f"shop.errors/0@{first.offset()}"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["replay", "shop:graph", "--processor", "chek"], "did you mean 'check'"),
        (["replay", "shop:graph", "shop.errors"], "Write TOPIC/PARTITION@OFFSET"),
        (["list", "shop:graph", "--since", "noon"], "--since 'noon': give a time"),
        (["replay", "shop:graph", "--wait", "5"], "goes with --yes only"),
        (["drop", "shop:graph", "in/0@0", "--yes"], "'in' is not an errors topic"),
        (["show", "shop:graph", "shop.errors/0@999"], "is not there: committed messages are from"),
    ],
)
def test_wrong_arguments_are_refused(tester: Tester, arguments: list[str], message: str) -> None:
    """With what to write instead; exit code 2."""
    assert message in " ".join(call(*arguments, exit_code=2).output.split())


@dataclass
class Order:
    id: str
    total: Annotated[Decimal, Digits(9, 2)]


def fail(order: Order) -> None:
    raise ValueError(order.id)


def test_payload_of_a_codec_is_shown_as_json_and_foreign_bytes_as_escapes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The graph says the codec; the raw bytes of Avro went to the terminal."""
    graph = Graph(
        "shop",
        Source("in"),
        Processor(fail, inputs="in", name="check"),
        errors=Errors("shop.errors", payload=True),
        topics={"in": Topic(value=Avro(Order), partitions=1)},
    )
    tester = Tester(graph)
    tester.send("in", Order("é\x1b", Decimal("1.10")), key=b"\xff\x1b")
    tester.broker.sender("stranger").send([("in", 0, b"k", b"\x1b[2J\xff\x00", None, 0)])
    tester.run()
    monkeypatch.setattr(loading, "load_graph", lambda _: graph)
    monkeypatch.setattr(open_module, "open_broker", lambda _: tester.broker)
    monkeypatch.setattr(tester.broker, "close", lambda: None)
    places = [f"shop.errors/{one.partition}@{one.offset}" for one in tester.messages("shop.errors")]
    shown = {place: call("show", "shop:graph", place).output for place in places}
    first = next(text for text in shown.values() if "ValueError" in text)
    other = next(text for text in shown.values() if "ValueError" not in text)

    assert '  payload   {"id": "é\\u001b", "total": "1.10"}\n' in first
    assert "  key       \\xff\\u001b\n" in first
    assert "  payload   \\u001b[2J\\xff\\u0000\n" in other
    data = json.loads(
        call("show", "shop:graph", next(p for p, text in shown.items() if text is other), "--json").output
    )
    assert base64.b64decode(data["payload"]) == b"\x1b[2J\xff\x00"
    assert data["payload_encoding"] == "base64"

"""Forged requests on a replay topic: each is refused by name or answered, and the task goes on with its messages."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from cues_kafka import Graph, Processor, Source
from cues_kafka.core.delivery import show_topic_id
from cues_kafka.graph.error_message import Errors
from cues_kafka.observe.log import LINES
from cues_kafka.observe.refused import REFUSED
from cues_kafka.operate.repair.ask import Repairs
from cues_kafka.records.requests import decode_settled
from cues_kafka.testing.tester import Tester

REPLAY = "g.p.replay"


def positive(value: Any) -> Any:
    """Raises for texts."""
    if isinstance(value, str):
        raise ValueError(value)
    return value


@pytest.fixture
def tester() -> Tester:
    """A task that has delivered a message, and one error message."""
    graph = Graph(
        "g", Source("in"), Processor(positive, name="p", inputs="in", outputs="out"), errors=Errors("g.errors")
    )
    made = Tester(graph)
    made.send("in", 1)
    made.send("in", "bad")
    return made.run()


def request_of(tester: Tester, **fields: Any) -> dict[str, Any]:
    """A request for the error message that is there, and what is forged of it."""
    facts = tester.broker.facts(["in", "g.errors"]).topics
    row = ["input", "in", show_topic_id(facts["in"].topic_id), 0, 1]
    error = f"{show_topic_id(facts['g.errors'].topic_id)}/0/0"
    names = {"version": 1, "wish": "replay", "error": error, "errors": "g.errors", "number": 1}
    return {**names, "consumed": [row], "payload": None, "key": None, **fields}


def with_row(tester: Tester, index: int, value: Any) -> bytes:
    """A request with another value in the row of its message."""
    made = request_of(tester)
    made["consumed"][0][index] = value
    return json.dumps(made).encode()


Forge = Callable[[Tester], bytes | None]

FORMS: dict[str, Forge] = {
    "infinite number": lambda t: json.dumps(request_of(t, number=float("inf"))).encode(),
    "number beyond floats": lambda t: json.dumps(request_of(t)).replace('"number": 1', '"number": 1e999').encode(),
    "large number": lambda t: json.dumps(request_of(t, number=10**30)).encode(),
    "number of many digits": lambda t: json.dumps(request_of(t, number=0)).replace("0", "9" * 9_000).encode(),
    "deep": lambda _: b"[" * 200_000,
    "deep behind a version": lambda _: b'{"version":1,"wish":' + b'{"a":' * 200_000,
    "large offset": lambda t: with_row(t, 4, 10**30),
    "offset below 0": lambda t: with_row(t, 4, -5),
    "offset that is true": lambda t: with_row(t, 4, True),
    "offset behind the end": lambda t: with_row(t, 4, 1_000),
    "binding that is a list": lambda t: with_row(t, 0, ["input"]),
    "binding with a line break": lambda t: with_row(t, 0, "in put\n"),
    "partition below 0": lambda t: with_row(t, 3, -3),
    "partition of another task": lambda t: with_row(t, 3, 77),
    "topic id of 3 bytes": lambda t: with_row(t, 2, "AAAA"),
    "error that is a number": lambda t: json.dumps(request_of(t, error=5)).encode(),
    "error of many digits": lambda t: json.dumps(request_of(t, error=f"{'A' * 22}/{'1' * 5_000}/0")).encode(),
    "half of a surrogate pair": lambda t: json.dumps(request_of(t, errors="\ud800")).encode(),
    "payload that is no base64": lambda t: json.dumps(request_of(t, payload="***")).encode(),
    "nothing consumed": lambda t: json.dumps(request_of(t, consumed=[])).encode(),
    "version of later": lambda t: json.dumps(request_of(t, version=2)).encode(),
    "list": lambda _: b"[1]",
    "bytes": lambda _: b"\xff\xfe\x00",
    "tombstone": lambda _: None,
}


def test_forged_requests_are_refused_by_name_and_the_task_goes_on(
    tester: Tester, caplog: pytest.LogCaptureFixture
) -> None:
    """Each is counted, settled under a key of its own, and not met again by the next process; the first have a line."""
    REFUSED.forget()
    before, sender = REFUSED.counts.get(REPLAY, 0), tester.broker.sender("another")
    for forge in FORMS.values():
        sender.send([(REPLAY, 0, b"k", forge(tester), None, 0)])
    tester.send("in", 2)

    assert tester.run().values("out") == [1, 2]
    lines = [one for one in caplog.messages if one.startswith("record refused") and f"{REPLAY}/0" in one]
    assert len(lines) == LINES
    assert all("remedy=" in line for line in lines)
    assert REFUSED.counts[REPLAY] == before + len(FORMS)
    backing = tester.client.committed("g.p.backing")
    settled = [decode_settled(m.value()).outcome for m in backing if (m.key() or b"").startswith(b"r/?")]
    assert settled == ["unreadable"] * len(FORMS)
    tester.send("in", 3)
    assert tester.restart().run().values("out") == [1, 2, 3]
    assert (len(tester.errors()), tester.totals("p").replays) == (1, len(FORMS))


def test_commands_read_past_forged_requests(tester: Tester) -> None:
    """The error message counts as open and not as asked for, before and after a task has refused what was forged."""
    sender = tester.broker.sender("another")
    for forge in FORMS.values():
        sender.send([(REPLAY, 0, b"k", forge(tester), None, 0)])
    tester.run()
    with Repairs(tester.graph, tester.broker) as tool:
        [found] = tool.find()
        assert (found.asked, found.settled) == (None, None)
        assert tool.ask("drop").asked == 1
    tester.run()
    with Repairs(tester.graph, tester.broker) as tool:
        [found] = tool.find()
        assert found.settled is not None
        assert found.settled.outcome == "dropped"


@pytest.mark.parametrize(
    "value", [b"", b"[]", b"\xff", b"[" * 200_000, b'{"version":1,"outcome":"nil","at_ms":-1,"number":0}']
)
def test_forged_record_of_a_settled_error_does_not_settle_it(tester: Tester, value: bytes) -> None:
    """The task and the commands refuse it by name, and the error message stays open."""
    error = f"{show_topic_id(tester.broker.facts(['g.errors']).topics['g.errors'].topic_id)}/0/0"
    tester.broker.sender("another").send([("g.p.backing", 0, f"r/{error}".encode(), value, None, 0)])
    tester.restart().run()
    with Repairs(tester.graph, tester.broker) as tool:
        assert tool.ask("drop").asked == 1
    tester.run()
    with Repairs(tester.graph, tester.broker) as tool:
        [found] = tool.find()
        assert found.settled is not None

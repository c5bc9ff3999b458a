"""E4: calls of a server, counted by their idempotency keys, through crashes at every effect and around every call."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import httpx2
import pytest

from cues_kafka import (
    CommitPolicy,
    Graph,
    Http,
    Out,
    Processor,
    Source,
    Topic,
)
from cues_kafka.testing.tester import Crash, Tester

MESSAGES = 12
EFFECTS = ("Begin", "Call", "Commit", "Flush", "Init", "Produce", "Record", "Request", "SendOffsets")


class Bank:
    """A server that knows keys: it pays once for each, and answers the same again."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self.answers: dict[str, dict[str, Any]] = {}
        self.transport = httpx2.MockTransport(self.answer)

    def answer(self, request: httpx2.Request) -> httpx2.Response:
        """One request."""
        if request.method == "GET":
            self.asked[request.url.path] += 1
            return httpx2.Response(200, json={"limit": 100})
        key = request.headers["Idempotency-Key"]
        self.asked[key] += 1
        made = self.answers.setdefault(key, {"payment": len(self.answers), **json.loads(request.content)})
        return httpx2.Response(201, json=made, headers={"Location": f"/p/{made['payment']}", "Set-Cookie": "a=b"})


def pay(order: dict[str, Any], http: Any) -> dict[str, Any] | None:
    """Two calls for each order; every fourth one is refused behind its first call."""
    first = http.post("/payments", json={"order": order["id"]}).json()
    if order["id"] % 4 == 3:
        raise ValueError("three")
    second = http.post("/receipts", json={"order": order["id"], "for": first["payment"]})
    assert second.headers["location"] == f"/p/{second.json()['payment']}"
    assert "set-cookie" not in second.headers
    return {"order": order["id"], "payments": [first["payment"], second.json()["payment"]]}


async def pay_later(order: dict[str, Any], http: Any) -> dict[str, Any] | None:
    """The same side by side."""
    first = (await http.post("/payments", json={"order": order["id"]})).json()
    if order["id"] % 4 == 3:
        raise ValueError("three")
    second = await http.post("/receipts", json={"order": order["id"], "for": first["payment"]})
    return {"order": order["id"], "payments": [first["payment"], second.json()["payment"]]}


def fork(order: dict[str, Any], http: Any) -> Any:
    """A generator that calls between its messages."""
    found = pay(order, http)
    if found:
        yield Out("paid", found)


def graph_of(fn: Callable[..., Any] = pay, **settings: Any) -> Graph:
    """One processor with a server."""
    outputs: Any = {"paid": "paid"} if fn is fork else "paid"
    settings = {"effects": {"http": Http("https://hidden.example/api", journal=True)}, "outputs": outputs, **settings}
    processor = Processor(fn, name="pay", inputs="orders", **settings)
    return Graph("g", Source("orders"), processor, errors="errors", defaults=Topic(partitions=2))


def sent(graph: Graph, bank: Bank, messages: int = MESSAGES, **settings: Any) -> Tester:
    """With messages."""
    tester = Tester(graph, policy=CommitPolicy(max_messages=5), effects={"http": bank.transport}, **settings)
    for i in range(messages):
        tester.send("orders", {"id": i}, key=str(i % 5))
    return tester


def journal(tester: Tester) -> dict[bytes | None, bytes | None]:
    """What compaction would leave of the journal, without the barrier and without deleted entries."""
    found = {(m.partition(), m.key()): m.value() for m in tester.client.committed("g.pay.journal")}
    return {key: value for (_, key), value in found.items() if key != b"t" and value is not None}


def check(tester: Tester, bank: Bank) -> None:
    """Each order is paid once, and has one outcome."""
    refused = [i for i in range(MESSAGES) if i % 4 == 3]
    paid = tester.values("paid")
    assert sorted(one["order"] for one in paid) == [i for i in range(MESSAGES) if i not in refused]
    assert len(tester.errors()) == len(refused)
    assert len(bank.answers) == 2 * MESSAGES - len(refused)
    for one in paid:  # what Kafka got is what the server did
        mine = sorted(made["payment"] for made in bank.answers.values() if made["order"] == one["order"])
        assert sorted(one["payments"]) == mine
    assert not journal(tester)


KINDS: dict[str, dict[str, Any]] = {
    "plain": {"fn": pay},
    "fork": {"fn": fork},
    "async": {"fn": pay_later, "concurrency": 3},
}


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("effect", EFFECTS)
@pytest.mark.parametrize("kind", KINDS)
def test_crash_anywhere_leaves_one_payment_of_each_key(kind: str, effect: str, moment: str) -> None:
    """Only a crash between a call and its record has it made again, with the same key."""
    for nth in (1, 2, 5):
        bank = Bank()
        tester = sent(graph_of(**KINDS[kind]), bank)
        tester.run(crash=Crash(moment, effect, nth))
        assert tester.crashed or nth == 5  # there are fewer of some
        tester_crashed = tester.crashed
        tester.restart().run()
        check(tester, bank)
        repeated = sum(bank.asked.values()) - len(bank.asked)
        in_doubt = (effect, moment) in {("Request", "after"), ("Record", "before")}
        assert repeated == (1 if in_doubt and tester_crashed else 0), bank.asked
        tester.stop()

"""Questions that take long wait for one another, and leave places for those that ask how the graph is."""

from __future__ import annotations

import http.client
import queue
import threading
from collections.abc import Mapping
from typing import Any

import pytest

from cues_kafka import Graph, Json, Memory, Processor, Source, Topic
from cues_kafka.observe.limited import MOST
from cues_kafka.operate.repair.ask import Repairs
from cues_kafka.testing.tester import Tester
from cues_kafka.ui.errors import ErrorAnswers
from cues_kafka.ui.server import Address, ViewServer
from cues_kafka.ui.turns import WAITING, TooMany, Turns

SOON_S = 10.0
TOKEN = "token-of-the-test"


def test_one_is_let_in_and_as_many_as_may_wait_are_not_refused() -> None:
    """Also after one was refused, and after all have left."""
    turns, inside, go = Turns(waiting=1), threading.Semaphore(0), threading.Event()
    most: list[int] = []
    now: list[None] = []

    def ask() -> None:
        with turns:
            now.append(None)
            most.append(len(now))
            inside.release()
            assert go.wait(SOON_S)
            now.pop()

    first = threading.Thread(target=ask)
    first.start()
    assert inside.acquire(timeout=SOON_S)
    one_waits, refused = turns._places, pytest.raises(TooMany, match="2 questions of this kind are being answered")
    with one_waits, refused, turns:
        pass
    second = threading.Thread(target=ask)
    second.start()
    go.set()
    for one in (first, second):
        one.join(SOON_S)
    assert most == [1, 1]
    with turns:
        pass


def ask(view: ViewServer, path: str) -> int:
    """The status of an answer; 0: the client was turned away."""
    connection = http.client.HTTPConnection("127.0.0.1", view.port, timeout=SOON_S)
    try:
        connection.request("GET", path, headers={"Cookie": f"cues_kafka_ui_{view.port}={TOKEN}"})
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return 0
    finally:
        connection.close()


def test_pages_learn_how_the_graph_is_while_many_search_for_messages() -> None:
    """Those who cannot wait are told so at once."""
    turns, go = Turns(), threading.Event()
    answers: queue.Queue[int] = queue.Queue()

    def search(_: Mapping[str, str]) -> Any:
        with turns:
            assert go.wait(SOON_S)
            return {}

    view = ViewServer(Address(), lambda: (1, b"{}"), {"/api/messages": search}, token=TOKEN)
    view.start()
    clients = [
        threading.Thread(target=lambda: answers.put(ask(view, "/api/messages")), daemon=True) for _ in range(MOST + 8)
    ]
    try:
        for client in clients:
            client.start()
        refused = {answers.get(timeout=SOON_S) for _ in range(len(clients) - 1 - WAITING)}
        assert refused <= {0, 503}
        assert ask(view, "/api/state") == 200
        go.set()
        assert [answers.get(timeout=SOON_S) for _ in range(1 + WAITING)] == [200] * (1 + WAITING)
    finally:
        go.set()
        view.close()


def fails(order: Any) -> Any:
    """Fails."""
    raise ValueError(order)


def test_an_error_message_is_shown_while_all_are_counted_and_a_change_makes_the_count_old(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A count reads the topics as a whole, which may take minutes."""
    graph = Graph(
        "shop",
        Source("orders"),
        Processor(fails, inputs="orders", errors="shop.errors"),
        defaults=Topic(value=Json(), partitions=1),
    )
    tester = Tester(graph)
    tester.send("orders", 1)
    tester.run()
    answers = ErrorAnswers(graph, tester.broker, Memory(), str)
    begun, go = threading.Event(), threading.Event()
    counts: list[int] = []

    def slow(tool: Repairs, *given: Any, **options: Any) -> Any:
        counts.append(1)
        begun.set()
        assert go.wait(SOON_S)
        return causes(tool, *given, **options)

    causes = Repairs.causes
    monkeypatch.setattr(Repairs, "causes", slow)
    counting = threading.Thread(target=answers.causes, daemon=True)
    counting.start()
    assert begun.wait(SOON_S)

    assert "ValueError: 1" in answers.show("shop.errors/0@0")["lines"][0]
    answers.forget()  # waits for no count
    go.set()
    counting.join(SOON_S)
    assert [one["count"] for one in answers.causes()["causes"]] == [1]
    assert len(counts) == 2, "what was counted before the change is not shown behind it"
    answers.causes()
    assert len(counts) == 2

"""Values of other systems: `Retry-After`, paths made of messages, and answers that are nested too deeply."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

from cues_kafka import Graph, Http, Processor, Source, Topic
from cues_kafka.sinks.http_texts import MOST_WAIT_S, leaves_base, retry_after_s, without_query
from cues_kafka.testing.tester import Tester, VirtualClock


@pytest.mark.parametrize(
    ("text", "wait_s"),
    [
        (None, None),
        ("7", 7.0),
        ("9" * 5000, MOST_WAIT_S),
        ("0" * 5000 + "7", 0.0),
        ("-5", None),
        ("soon", None),
        ("Mon, 01 Jan 99999999999999999999 00:00:00 GMT", None),
        ("Mon, 01 Jan 2024 00:00:00 +99999999999999999999", None),
        ("Fri, 31 Dec 9999 23:59:59 GMT", MOST_WAIT_S),
        ("Mon, 01 Jan 0001 00:00:00 GMT", 0.0),
    ],
)
def test_retry_after_is_bounded_whatever_it_says(text: str | None, wait_s: float | None) -> None:
    """It is a text of a stranger; nonsense says nothing."""
    assert retry_after_s(text, VirtualClock()) == wait_s


@pytest.mark.parametrize(
    "path",
    [
        "../admin",
        "/orders/../../admin",
        "/orders/%2e%2e/admin",
        "/a/%252e%252E/b",
        "/a/..%2fb",
        "/a\\\\..\\\\b",
        "/./a",
    ],
)
def test_a_path_that_leads_away_from_the_base_is_refused(path: str) -> None:
    """A part of it may come from a message, and the request carries a login."""
    assert leaves_base(path)


@pytest.mark.parametrize("path", ["", "/", "/orders/1", "/a..b/...", "/v1/x?next=../y", "/a%20b/100%25"])
def test_other_paths_are_taken(path: str) -> None:
    """Dots in a name, and in a query, lead nowhere."""
    assert not leaves_base(path)


def test_texts_show_no_query() -> None:
    """It may be a login."""
    assert without_query("/orders?key=secret#a") == "/orders"


def errors_of(path: str, answer: httpx2.Response) -> list[str]:
    """What errors a call of this path with this answer ends in."""

    def call(order: int, http: object) -> object:
        return http.get(path).json()  # type: ignore[attr-defined]

    effects = {"http": Http("https://api.example/base", patience_s=0)}
    processor = Processor(call, inputs="orders", outputs="out", effects=effects)
    graph = Graph("g", Source("orders"), processor, errors="errors", defaults=Topic(partitions=1))
    tester = Tester(graph, effects={"http": httpx2.MockTransport(lambda _: answer)})
    tester.send("orders", 1)
    tester.run()
    return [f"{error.exception}: {error.text}" for error in tester.errors()]


def test_calls_name_no_query_and_stay_below_their_base() -> None:
    """Each is one error message of its kind, also for an answer that no parser can read."""
    [deep] = errors_of("/a?key=secret", httpx2.Response(200, content=b"[" * 100_000))
    assert deep.split(":")[0].endswith("CallError")
    assert "secret" not in deep
    [left] = errors_of("/orders/../../admin?key=secret", httpx2.Response(200, json={}))
    assert "leads away" in left
    assert "secret" not in left


@pytest.mark.parametrize("value", ["a\r\nIdempotency-Key: 1", "a\n", " a", "a\0b", "a\x0b"])
@pytest.mark.parametrize("part", ["value", "name", "method"])
def test_what_http_has_no_form_for_is_an_error_of_its_message(value: str, part: str) -> None:
    """The client's own error looks like one of the connection: the task asked again, and stopped."""

    def pay(number: int, http: Any) -> int:
        odd = value if number == 1 else "a"
        method, name, text = ("GET" if number != 1 or part != "method" else odd), "x-a", odd
        if part == "name" and number == 1:
            name, text = odd, "a"
        http.request(method, "/p", headers={name: text if part != "method" else "a"})
        return number

    server = Http("https://api.example/base", transport=lambda: httpx2.MockTransport(lambda _: httpx2.Response(200)))
    processor = Processor(pay, inputs="in", outputs="out", effects={"http": server})
    tester = Tester(Graph("g", Source("in"), processor, errors="errors", defaults=Topic(partitions=1)))
    tester.send_many("in", [0, 1, 2])
    tester.run()

    assert tester.values("out") == [0, 2]
    assert [one.exception.rpartition(".")[2] for one in tester.errors()] == ["CallError"]
    assert "Idempotency" not in tester.errors()[0].text or part != "value"

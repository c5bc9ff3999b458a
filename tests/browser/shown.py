"""A browser view without a cluster: it shows what a test gives it, made by the functions that make it of a status."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

from cues_kafka import Graph, Processor, Source
from cues_kafka.operate.look.seen import GraphStatus, InputLag, SeenTask
from cues_kafka.ui.actions import Actions
from cues_kafka.ui.folding import folded
from cues_kafka.ui.history import LastHour
from cues_kafka.ui.layout import Picture, picture
from cues_kafka.ui.passes import Passes
from cues_kafka.ui.server import Address, ViewServer
from cues_kafka.ui.views import Overview, after_loss, overview, to_json
from tests.browser.devtools import Browser, Page

TOKEN = "token-of-the-test"
SECRET = b"s" * 32
CAUSE = {
    "processor": "check", "exception": "ValueError", "kind": "exception", "count": 3, "asked": 0,
    "first_ms": 1_760_000_000_000, "last_ms": 1_760_000_090_000, "example": "shop.errors/0@2", "text": "no such size",
    "bars": [1, 0, 2],
}  # fmt: skip
MESSAGE = {
    "place": "orders/3@17", "timestamp_ms": 1_760_000_000_000, "time": "2025-10-09T08:53:20.000Z", "key": "ann",
    "value": '{"n": 1}', "why": "", "headers": [["trace", "t1"]], "more": 2, "size": 11,
}  # fmt: skip
NODE = {"key": "ann", "state": "present", "error": "", "row": 0}
ANSWERS: Mapping[str, Any] = {
    "/api/topics": {"topics": ["orders", "packed"], "shown": 100, "bounds": "20,000 messages, 32 MB or 5 s"},
    "/api/messages": {
        "rows": [MESSAGE], "messages": 5, "bytes": 55, "bounds": "20,000 messages, 32 MB or 5 s", "ended": "",
        "whole": True,
    },
    "/api/path": {
        "root": "orders/3@17",
        "nodes": [
            {"id": "orders/3@17", "topic": "orders", "column": 0, **NODE},
            {"id": "packed/1@4", "topic": "packed", "column": 1, **NODE},
        ],
        "arrows": [{"start": "orders/3@17", "end": "packed/1@4", "task": "shop.pack/3", "sequence": 7}],
        "back": ["orders/3@17  the message"], "forward": ["packed/1@4  made of it"], "ended": "",
        "bounds": "100 messages each way",
    },
    "/api/stores": {
        "stores": [
            {"processor": "pack", "store": "seen", "keys": "text"},
            {"processor": "pack", "store": "pairs", "keys": "JSON"},
        ],
        "bounds": "50 entries",
    },
    "/api/entry": {
        "rows": [{"key": '"ann"', "value": "3"}], "more": False, "entries": 5, "true_up_to": ["orders/3@18"],
        "read": "partition 3",
    },
}  # fmt: skip
"""What is found on the pages of messages, lineage and stores."""

LINES = ("shop.errors/0@2: open; it can be replayed", "ValueError: no such size", "payload: {'size': 'XXL'}")


def chain(processors: int) -> Graph:
    """A graph of a number of processors in rows of ten, one behind the other, and with an errors topic."""
    made = [
        Processor(
            _same, name=f"step{number}", inputs=f"topic{number if number % 10 else 0}", outputs=f"topic{number + 1}"
        )
        for number in range(processors)
    ]
    return Graph("shop", Source("topic0"), *made, errors="shop.errors")


def _same(message: Any) -> Any:
    return message


def task(processor: str, partition: int = 0, **values: Any) -> SeenTask:
    """A task that works, but for what the test says."""
    at = InputLag(topic="orders", partition=partition, position=5, end=9, lag=4)
    told = {"state": "working", "owner": "host:1", "inputs": (at,), "lag": 4, "rate": 2.5, "committed_s": 90.0}
    return SeenTask(processor=processor, partition=partition, **{**told, **values})


def status(*tasks: SeenTask, graph: str = "shop", at_s: float = 1_760_000_100.0, unreachable: str = "") -> GraphStatus:
    """A graph at one moment."""
    return GraphStatus(graph=graph, at_s=at_s, tasks=tasks, unreachable=unreachable)


class Shown:
    """
    What a view shows; a test changes it at will.

    Attributes:
        causes, lines: the answers about error messages.
        answers: by path, those of the pages of messages, lineage and stores; an error is raised.
        asked: the questions of these pages.
    """

    def __init__(self, drawn: Picture, seen: GraphStatus) -> None:
        self.drawn, self.history = drawn, LastHour()
        self.causes: list[dict[str, Any]] = [CAUSE]
        self.lines: list[str] = list(LINES)
        self.answers: dict[str, Any] = dict(ANSWERS)
        self.asked: list[tuple[str, Mapping[str, str]]] = []
        self._answer = (0, b"")
        self._last: Overview | None = None
        self.show(seen)

    def show(self, seen: GraphStatus) -> None:
        """From now on, as the poller does it."""
        if seen.unreachable:
            found = after_loss(self._last, seen.graph, seen.at_s, seen.unreachable)
        else:
            self.history.take(seen)
            found = self._last = overview(seen, self.drawn.arrows, str)
        self._answer = (self._answer[0] + 1, to_json(found))

    def _found(self, path: str, given: Mapping[str, str]) -> Any:
        self.asked.append((path, dict(given)))
        if isinstance(found := self.answers[path], Exception):
            raise found
        return found

    def server(
        self, port: int = 0, *, token: str = TOKEN, secret: bytes = SECRET, actions: Actions | None = None
    ) -> ViewServer:
        """A server of it that has begun to answer; the secret is that of its passes; without actions it only shows."""
        made = ViewServer(
            Address(port=port),
            lambda: self._answer,
            {
                "/api/graph": lambda given: folded(self.drawn, given.get("fold", "").split(",")),
                "/api/history": lambda given: self.history.of(given.get("task", "")),
                "/api/commands": lambda _: {name: f"cues-kafka {name} app:shop" for name in ("pause", "resume")},
                "/api/errors": lambda _: {"causes": self.causes, "unreadable": 0},
                **{path: partial(self._found, path) for path in ANSWERS},
                "/api/error": lambda given: {"lines": [given.get("place", ""), *self.lines]},
            },
            token=token,
            passes=Passes(secret),
            actions=actions,
        )
        made.start()
        return made


def shop() -> Shown:
    """Three processors: one works, one is paused, one has stopped."""
    stopped: dict[str, Any] = {
        "state": "stopped", "stopped": "the message is no JSON", "remedy": "`cues-kafka drop shop:graph pack/0`",
        "at": "topic2/0@17", "hash": "0a1b2c3d", "errors": 3,
    }  # fmt: skip
    tasks = (
        task("step0", 0), task("step0", 1, owner="host:2"), task("step1", state="paused", held="paused by an operator"),
        task("step2", waiting_s=4_000.0, **stopped),
    )  # fmt: skip
    return Shown(picture(chain(3)), status(*tasks))


@contextmanager
def opened(browser: Browser, given: Shown, *, width: int = 1280, dark: bool = False) -> Iterator[Page]:
    """A page of a view that has shown something; at the end nothing must have gone wrong on it."""
    server = given.server()
    try:
        with browser.page(width, dark=dark) as page:
            page.open(server.url)
            ready(page)
            yield page
            assert page.told == []
            assert {url.split("/")[2] for url in page.asked} == {f"127.0.0.1:{server.port}"}
    finally:
        server.close()


def ready(page: Page) -> None:
    """Wait until it has shown a state."""
    page.until("document.querySelector('#whole').textContent && document.querySelector('#canvas svg')")


def view(page: Page, name: str) -> None:
    """Go to a view by the mouse."""
    page.click(f"[data-view={name}]")
    page.until(f"!document.getElementById('{name}').hidden")
    if name == "errors":
        page.until("document.querySelector('#causes tr')")


def texts(page: Page, selector: str) -> list[str]:
    """The texts of all that match."""
    found: list[str] = page.run(f"[...document.querySelectorAll({json.dumps(selector)})].map((one) => one.textContent)")
    return found


def values(page: Page, script: str) -> Mapping[str, Any]:
    """What a script finds, as a mapping."""
    found: Mapping[str, Any] = page.run(script)
    return found

"""What tests of bridges share: a graph that another broker feeds, runs of it with crashes, and cut connections."""

from __future__ import annotations

import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from cues_kafka import CommitPolicy, Feed, Graph, Raw, Topic
from cues_kafka.testing.tester import Crash, Tester

WAIT_S = 60.0
PAUSE_S = 0.01


class Cut:
    """Something between a client and a broker, which cuts all connections."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._server.close()
        self.cut()

    def cut(self) -> None:
        """End all connections, in both directions."""
        pairs, self._pairs = self._pairs, []
        for pair in pairs:
            for one in pair:
                with suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                here, _ = self._server.accept()
                there = socket.create_connection(("127.0.0.1", self._to))
                self._pairs.append((here, there))
                for one, other in ((here, there), (there, here)):
                    threading.Thread(target=_pass_on, args=(one, other), daemon=True).start()


def _pass_on(one: socket.socket, other: socket.socket) -> None:
    with suppress(OSError):
        while data := one.recv(65_536):
            other.sendall(data)
    for end in (one, other):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


def payloads(count: int, begin: int = 0) -> list[bytes]:
    """Different ones."""
    return [b"%d" % n for n in range(begin, begin + count)]


def fed(source: Any, *, name: str = "feed", **more: Any) -> Graph:
    """A feed of a queue."""
    settings = {"defaults": Topic(value=Raw(), partitions=1), "errors": "g.errors", **more}
    return Graph("g", Feed(source, into="ingress", name=name, poll_seconds=0.02), **settings)


def a_tester(source: Any, *, most: int = 10) -> Tester:
    """A tester that commits after `most` messages."""
    return Tester(fed(source), policy=CommitPolicy(max_messages=most))


def run_until(
    tester: Tester,
    count: int,
    crash: Crash | None = None,
    between: Callable[[], object] = bool,
    *,
    cut: Cut | None = None,
) -> None:
    """
    Run, with one crash if it comes, until `count` messages are there.

    The thread of a tester that crashes stays, so `cut` ends the connections that the system would close.
    """
    until_s, crashed = time.monotonic() + WAIT_S, crash is None
    while len(tester.messages("ingress")) < count or not crashed:
        assert time.monotonic() < until_s, (len(tester.messages("ingress")), crashed)
        if crashed:
            tester.run()
        else:
            tester.run(crash=crash)
            crashed = tester.crashed
            if crashed:
                if cut is not None:
                    cut.cut()
                between()
                until_s = time.monotonic() + WAIT_S
        time.sleep(PAUSE_S)  # the broker delivers meanwhile


def deliver_over_a_death(graph: Graph, count: int) -> None:
    """Numbered orders go to a target, three in a commit; the process dies behind the target's second commit."""
    tester = Tester(graph, policy=CommitPolicy(max_messages=3))
    for number in range(count):
        tester.send("orders", {"id": number})
    tester.run(crash=Crash("after", "CommitTarget", 2))
    assert tester.crashed
    tester.restart().run()
    tester.stop()


def counted(tester: Tester) -> Counter[bytes]:
    """How often each payload is in the topic."""
    return Counter(bytes(one.value) for one in tester.messages("ingress"))


def until(done: Callable[[], object], what: Callable[[], object] = bool) -> None:
    """Wait for it."""
    end_s = time.monotonic() + WAIT_S
    while not done():
        assert time.monotonic() < end_s, what()
        time.sleep(0.02)


def numbers(values: Sequence[Any]) -> list[int]:
    """Payloads as numbers, sorted."""
    return sorted(int(one.value) for one in values)

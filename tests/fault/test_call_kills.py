"""SIGKILL around the calls of a server, on a real broker; the server counts its keys, and is away at times (E4)."""

from __future__ import annotations

import json
import re
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from cues_kafka import Kafka, Message
from cues_kafka.brokers.open import open_broker
from cues_kafka.client.client import Client
from cues_kafka.task.making.prepare import prepare
from cues_kafka.testing.fixtures import KafkaFixture
from cues_kafka.verify.scan import verify
from tests.fault import call_world
from tests.fault.killing import forked
from tests.fault.support import backing, check_chain, committed

MOMENTS = ("before", "after")
FEW = [
    ("before", "Request", 3),
    ("after", "Request", 3),
    ("after", "Record", 3),
]
MORE = [
    (moment, effect, nth)
    for effect in ("Request", "Record", "Begin", "Produce", "Flush", "Commit", "Call")
    for moment in MOMENTS
    for nth in (2, 7)
]
IN_DOUBT = {("after", "Request"), ("before", "Record")}
BESIDE = {"Begin", "Produce", "Flush", "Commit"}
"""Effects of threads that do not call: one that does may be in a call of the other task when they kill the process."""


class Bank:
    """A server that knows idempotency keys, and can be away: it closes its port, and opens the same one again."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self.payments: dict[str, int] = {}
        self.bodies: dict[str, bytes] = {}
        self.changed: list[str] = []
        self.busy = 0
        self.lock = threading.Lock()
        # Bound and never listening, so that no other program gets the port while the bank is away.
        self._place = socket.socket()
        self._place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._place.bind(("127.0.0.1", 0))
        self.port = self._place.getsockname()[1]
        self.open()

    def open(self) -> None:
        """Come, or come back."""
        bank = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                length = int(self.headers["Content-Length"])
                body = self.rfile.read(length)
                if len(body) < length:
                    return  # A kill between headers and body: no server acts on half a request.
                key = self.headers["Idempotency-Key"]
                with bank.lock:
                    if bank.busy:
                        bank.busy -= 1
                        self.answer(503, b"")
                        return
                    bank.asked[key] += 1
                    if bank.bodies.setdefault(key, body) != body:
                        bank.changed.append(key)
                    made = bank.payments.setdefault(key, len(bank.payments))
                self.answer(201, json.dumps({"payment": made}).encode())

            def do_PUT(self) -> None:
                self.do_POST()

            def answer(self, status: int, body: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def close(self) -> None:
        """Go away."""
        self._server.shutdown()
        self._server.server_close()

    def end(self) -> None:
        """Go away for good."""
        self.close()
        self._place.close()


@pytest.fixture
def bank() -> Iterator[Bank]:
    """A server on loopback."""
    made = Bank()
    yield made
    made.end()


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    "points", [pytest.param(FEW, id="few"), pytest.param(FEW + MORE, id="all", marks=pytest.mark.full)]
)
def test_a_kill_repeats_a_call_only_between_the_call_and_its_record(
    kafka: KafkaFixture, bank: Bank, points: list[tuple[str, str, int]]
) -> None:
    """The keys that the server has seen twice are no more than the kills there; each has one payment, each step one
    outcome with exactly its payments, and no entry is left in the journal. The server is away in between."""
    context = forked()
    prefix = re.sub(r"[^A-Za-z0-9-]", "-", kafka.unique("calls"))
    graph = call_world.graph(prefix)
    broker = open_broker(Kafka(kafka.bootstrap))
    client = Client(broker, graph)
    prepare(graph, broker)
    sent = 0

    def run(point: tuple[str, str, int] | None) -> int | None:
        args = (kafka.bootstrap, prefix, f"http://127.0.0.1:{bank.port}/api", point)
        process = context.Process(target=call_world.run, args=args)
        process.start()
        if point == FEW[0]:  # the server is not there at the start
            process.join(1.0)
            bank.open()
        process.join(120)
        assert process.exitcode is not None, f"the process of {point} hangs"
        return process.exitcode

    bank.close()
    unkilled, repeated = [], 0
    for point in points:
        before = sum(bank.asked.values()) - len(bank.asked)
        for n in range(sent, sent + 10):
            client.send(f"{prefix}.numbers", Message(n, partition=n % call_world.PARTITIONS))
        sent += 10
        if run(point) != -9:
            unkilled.append(point)
        with bank.lock:
            bank.busy = 3
        now = sum(bank.asked.values()) - len(bank.asked)
        assert now <= before + 1, point
        assert now <= repeated, f"{point}: the kills before may have repeated {repeated} calls"
        repeated += point[:2] in IN_DOUBT or point[1] in BESIDE
    assert run(None) == 0
    assert unkilled == [], "a point that no run passes proves nothing"

    paid = [json.loads(m.value() or b"") for m in committed(kafka.bootstrap, f"{prefix}.paid")]
    bad = [n for n in range(sent) if n % 10 == call_world.BAD]
    assert sorted(one[0] for one in paid) == [n for n in range(sent) if n not in bad]
    assert len(committed(kafka.bootstrap, f"{prefix}.failed")) == len(bad)
    used = sorted(payment for one in paid for payment in one[1:3])
    assert len(set(used)) == 2 * len(paid), "each outcome has the payments of its own keys"
    assert len(bank.payments) == 2 * len(paid) + len(bad), "each key was paid once, and no key is of another step"
    assert bank.changed == [], "what `once` and the first answer gave is the same on each attempt"
    # A kill between a call and its record may be that of the `once`, which the server does not see.
    assert sum(bank.asked.values()) - len(bank.asked) <= repeated
    left = {(m.partition(), m.key()): m.value() for m in committed(kafka.bootstrap, f"{prefix}.pay.journal")}
    assert {key for (_, key), value in left.items() if value is not None} == {b"t"}
    report = verify(graph, broker)
    assert report.ok, str(report)
    check_chain(backing(kafka.bootstrap, f"{prefix}.pay.backing"))
    client.close()
    broker.close()

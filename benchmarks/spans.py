"""The price of spans: one pipe without them, and with them for no message, one in a hundred, and each one."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final

from benchmarks.harness import SPANS, Cluster, Pipe, median, spread, unique, values_of
from benchmarks.report import Section, holds
from benchmarks.throughput import Run, run

SHARES: Final = {"off": "cues", "0": f"{SPANS}0", "1 %": f"{SPANS}0.01", "100 %": f"{SPANS}1"}
"""By what the page says, the side."""

MOST: Final = 0.02
WHERE: Final = "OTEL_EXPORTER_OTLP_ENDPOINT"

HOW = """One worker process with raw messages of 100 B in one partition; no message has a trace. Spans go to a collector
in another process, over HTTP, which drops them. *CPU* is processor time of the worker per message."""


def measure(repetitions: int, messages: int, cluster: Cluster) -> Section:
    """Measure all of them in turn."""
    section = Section(
        "Spans",
        HOW + f"\n{messages:,} messages a run, medians of {repetitions} (min to max).",
        ("spans", "CPU us", "price", "messages/s", "ratio", "goal"),
    )
    source = cluster.create(unique("in-spans-"), 1)
    cluster.fill(source, values_of("raw"), messages)
    runs: dict[str, list[Run]] = {share: [] for share in SHARES}
    with _collector():
        for turn in range(repetitions):
            for share in list(SHARES) if turn % 2 == 0 else reversed(SHARES):
                runs[share].append(run(SHARES[share], Pipe(unique("t"), source, unique("out")), messages, cluster))
    cluster.delete(source)
    off = runs["off"]
    for share, found in runs.items():
        price = median([one.cpu_us for one in found]) / median([one.cpu_us for one in off]) - 1
        ratio = median([one.per_s for one in found]) / median([one.per_s for one in off])
        section.rows.append([
            share, spread([one.cpu_us for one in found], "{:.2f}"), f"{price:+.1%}",
            spread([one.per_s for one in found]), f"{ratio:.3f}",
            f"< {MOST:.0%}: {holds(price < MOST)}" if share == "0" else "",
        ])  # fmt: skip
    return section


class _Drops(BaseHTTPRequestHandler):
    """A collector that drops what it gets."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def _collector() -> Iterator[None]:
    """Where the workers export to."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Drops)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    os.environ[WHERE] = f"http://127.0.0.1:{server.server_port}"
    try:
        yield
    finally:
        del os.environ[WHERE]
        server.shutdown()
        server.server_close()
        thread.join()

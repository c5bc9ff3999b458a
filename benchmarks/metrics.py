"""The price of metrics: one pipe with `--http`, scraped every second, and without, in turn."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.error import URLError
from urllib.request import urlopen

from benchmarks.harness import SCRAPED_PORT, Cluster, Pipe, alternating, median, spread, unique, values_of
from benchmarks.report import Section, holds
from benchmarks.throughput import Run, run

EVERY_S = 1.0
"""Prometheus scrapes every 15 s or 60 s."""

MOST = 0.02
HOW = """Both sides are cues-kafka, with raw messages of 100 B in one partition. One side serves metrics, which are read
once a second, fifteen times as often as by Prometheus. *CPU* is processor time of the worker per message."""


def measure(repetitions: int, messages: int, cluster: Cluster) -> Section:
    """Measure both, alternating."""
    section = Section(
        "Metrics",
        HOW + f"\n{messages:,} messages a run, medians of {repetitions} (min to max).",
        ("case", "CPU us: with", "without", "price", "goal"),
    )
    source = cluster.create(unique("in-metrics-"), 1)
    cluster.fill(source, values_of("raw"), messages)
    runs: dict[str, list[Run]] = {"cues": [], "metrics": []}
    for turn in alternating(repetitions):
        for name in ("cues", "metrics") if turn[0] == "cues" else ("metrics", "cues"):
            with _scraped():
                runs[name].append(run(name, Pipe(unique("t"), source, unique("out")), messages, cluster))
    cluster.delete(source)
    without, used = ([one.cpu_us for one in runs[name]] for name in ("cues", "metrics"))
    price = median(used) / median(without) - 1
    section.rows.append([
        "raw 100 B, 1 partition", spread(used, "{:.2f}"), spread(without, "{:.2f}"), f"{price:+.1%}",
        f"< {MOST:.0%}: {holds(price < MOST)}",
    ])  # fmt: skip
    return section


@contextmanager
def _scraped() -> Iterator[None]:
    """Read the metrics every second, where they are served."""
    over = threading.Event()

    def scrape() -> None:
        while not over.wait(EVERY_S):
            try:
                with urlopen(f"http://127.0.0.1:{SCRAPED_PORT}/metrics", timeout=5) as found:
                    found.read()
            except (URLError, OSError):  # the other side, or the worker starts or ends
                continue

    thread = threading.Thread(target=scrape)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()

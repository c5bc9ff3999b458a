"""What each strategy costs: the same pipe exactly-once, at-least-once and at-most-once, in turn."""

from __future__ import annotations

from benchmarks import latency, throughput
from benchmarks.harness import Cluster, Pipe, median, percentile, side, spread, unique, values_of
from benchmarks.report import Section

CODECS = {"exactly-once": "raw", "at-least-once": "least", "at-most-once": "most"}
SMALL = 100
"""Messages in a batch where a crash shall repeat or drop few."""

HOW = f"""Rate and CPU as under Throughput, raw values in one partition, with up to 10,000 messages in a batch, and
with up to {SMALL}. At-most-once a batch has as many messages as its calls take about a second for. *p50* and *p99* as
under Latency, in ms, at default settings; the reader is read-committed for all three."""


def measure(repetitions: int, messages: int, hops: int, cluster: Cluster) -> Section:
    """Measure all strategies in turn."""
    section = Section(
        "Strategies",
        HOW + f"\n{messages:,} messages, {hops:,} hops a run, medians of {repetitions} (min to max).",
        ("strategy", "/s", f"/s, batches of {SMALL}", "CPU us", f"CPU us, batches of {SMALL}", "p50", "p99"),
    )
    source = cluster.create(unique("in-strategies-"))
    cluster.fill(source, values_of("raw"), messages)
    large: dict[str, list[throughput.Run]] = {name: [] for name in CODECS}
    small: dict[str, list[throughput.Run]] = {name: [] for name in CODECS}
    took: dict[str, list[list[float]]] = {name: [] for name in CODECS}
    for _ in range(repetitions):
        for name, codec in CODECS.items():
            pipe = Pipe(unique("t"), source, unique("out"), codec)
            large[name].append(throughput.run("cues", pipe, messages, cluster))
            pipe = Pipe(unique("t"), source, unique("out"), codec, most=SMALL)
            small[name].append(throughput.run("cues", pipe, messages, cluster))
            took[name].append(_hops(codec, hops, cluster))
    cluster.delete(source)
    for name in CODECS:
        p50, p99 = ([percentile(one, percent) for one in took[name]] for percent in (50, 99))
        section.rows.append(
            [
                name,
                spread([run.per_s for run in large[name]]),
                spread([run.per_s for run in small[name]]),
                f"{median([run.cpu_us for run in large[name]]):.1f}",
                f"{median([run.cpu_us for run in small[name]]):.1f}",
                spread(p50, "{:.1f}"),
                spread(p99, "{:.1f}"),
            ]
        )
    return section


def _hops(codec: str, messages: int, cluster: Cluster) -> list[float]:
    pipe = Pipe(unique("l"), cluster.create(unique("in")), cluster.create(unique("out")), codec)
    with side("cues", cluster, pipe, take="soon"):
        took = latency.hop(cluster, pipe, messages)
    cluster.delete(pipe.source, pipe.target)
    return took

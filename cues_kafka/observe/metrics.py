"""The metrics of a running graph: their names, kinds and labels, and their text for Prometheus.

Every metric is a row of `METRICS`. Labels have few values: names of the graph, numbers of partitions and workers, and
words of a list. Counters of a task count since its process has it, and begin at 0 in the next process.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

from cues_kafka.extras import PROMETHEUS, require
from cues_kafka.observe.histogram import BOUNDS_S, Histogram
from cues_kafka.observe.tally import UNNAMED


class Metric(NamedTuple):
    """
    One metric.

    Attributes:
        kind: its type, as Prometheus names it.
        about: what it says, a sentence.
        labels: their names.
    """

    kind: Literal["counter", "gauge", "histogram"]
    about: str
    labels: tuple[str, ...]


class Sample(NamedTuple):
    """
    One number.

    Attributes:
        name: of its metric.
        labels: a value for each label of the metric.
        value: the number.
    """

    name: str
    labels: Mapping[str, str]
    value: float | Histogram


_WORKER: Final = ("graph", "worker")
_TASK: Final = ("graph", "processor", "partition", "worker")

STATES: Final = ("starting", "recovering", "working", "idle", "pausing", "paused", "stopped")
"""Values of the label `state`."""

KINDS: Final = ("raised", "decode", "output", "retries exhausted", "quarantine", UNNAMED)
"""Values of the label `kind` that are there from the start, with 0: a counter that begins at 1 has no increase."""

METRICS: Final[Mapping[str, Metric]] = {
    "cues_kafka_deliveries_total": Metric("counter", "Steps whose outcome is committed.", _TASK),
    "cues_kafka_outputs_total": Metric("counter", "Steps that ended with at least one output message.", _TASK),
    "cues_kafka_output_messages_total": Metric("counter", "Output messages that are committed.", _TASK),
    "cues_kafka_output_bytes_total": Metric(
        "counter", "Bytes of keys and values that tasks wrote, error messages included.", _TASK
    ),
    "cues_kafka_errors_total": Metric("counter", "Steps that became error messages.", (*_TASK, "kind")),
    "cues_kafka_dropped_total": Metric("counter", "Steps that at-most-once took and never settled.", _TASK),
    "cues_kafka_late_total": Metric("counter", "Messages that came too late for their window or bound.", _TASK),
    "cues_kafka_table_waits_missed_total": Metric(
        "counter", "How often a table with wait= was not read in time for a call.", _TASK
    ),
    "cues_kafka_retries_total": Metric("counter", "Calls that Retry put off.", _TASK),
    "cues_kafka_failures_total": Metric("counter", "Failures after which the task recovered.", _TASK),
    "cues_kafka_stops_total": Metric("counter", "How often the task stopped; each new try counts.", _TASK),
    "cues_kafka_fenced_total": Metric("counter", "Failures because another process had the task.", _TASK),
    "cues_kafka_recovery_seconds": Metric("histogram", "From a failure or stop until the task works again.", _TASK),
    "cues_kafka_batch_seconds": Metric("histogram", "From the first call of a batch to its commit.", _TASK),
    "cues_kafka_commit_seconds": Metric("histogram", "From the last call of a batch to its commit.", _TASK),
    "cues_kafka_task_state": Metric("gauge", "1 for the state that the task is in, 0 for others.", (*_TASK, "state")),
    "cues_kafka_lag_messages": Metric("gauge", "Offsets between the task's position and the end.", (*_TASK, "topic")),
    "cues_kafka_lag_seconds": Metric("gauge", "Age of the oldest message that waits, by its timestamp.", _TASK),
    "cues_kafka_call_seconds": Metric("gauge", "How long the present call has taken; 0 below a second.", _TASK),
    "cues_kafka_last_commit_timestamp_seconds": Metric("gauge", "When the newest batch was committed.", _TASK),
    "cues_kafka_cluster_unreachable_seconds": Metric("gauge", "How long the cluster has not answered.", _WORKER),
    "cues_kafka_throttled_seconds_total": Metric(
        "counter", "How long brokers held back answers to the process because of a quota.", _WORKER
    ),
    "cues_kafka_refused_records_total": Metric(
        "counter", "Records on topics of cues-kafka that it did not write, and refused.", _WORKER
    ),
    "cues_kafka_ready": Metric("gauge", "1 if all tasks of the worker work, else 0.", _WORKER),
    "cues_kafka_worker_up": Metric("gauge", "1 if the worker process answers its supervisor, else 0.", _WORKER),
    "cues_kafka_worker_restarts_total": Metric("counter", "How often the worker process was replaced.", _WORKER),
}


def check_installed() -> None:
    """
    Check that the text can be made.

    Raises:
        ConfigError: the library is missing.
    """
    require("--http or start(http=...)", [PROMETHEUS])


def exposition(rows: Iterable[Sample]) -> bytes:
    """
    The text of these rows, in Prometheus' format.

    Raises:
        ConfigError: the library is missing.
    """
    check_installed()
    from prometheus_client import CollectorRegistry, generate_latest  # noqa: PLC0415 - only where metrics are asked for

    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Rows(list(rows)))
    return bytes(generate_latest(registry))


class _Rows:
    """A collector of the library."""

    def __init__(self, rows: Sequence[Sample]) -> None:
        self._rows = rows

    def collect(self) -> Iterator[Any]:
        from prometheus_client import core  # noqa: PLC0415 - see `exposition`

        families = {
            "counter": core.CounterMetricFamily,
            "gauge": core.GaugeMetricFamily,
            "histogram": core.HistogramMetricFamily,
        }
        for name, metric in METRICS.items():
            family: Any = families[metric.kind](name, metric.about, labels=metric.labels)
            for row in self._rows:
                if row.name == name:
                    values = [row.labels[label] for label in metric.labels]
                    if isinstance(row.value, Histogram):
                        family.add_metric(values, list(_buckets(row.value)), row.value.total_s)
                    else:
                        family.add_metric(values, row.value)
            yield family


def _buckets(histogram: Histogram) -> Iterator[tuple[str, float]]:
    """(Upper bound, durations up to it)."""
    below = 0
    for bound, count in zip((*map(str, BOUNDS_S), "+Inf"), histogram.counts, strict=True):
        below += count
        yield bound, below


def to_json(row: Sample) -> list[Any]:
    """A row as a worker tells it to its supervisor."""
    return [row.name, row.labels, row.value]


def from_json(found: Sequence[Any], worker: str) -> Sample:
    """A row that a worker told, under its number."""
    name, labels, value = found
    if METRICS[name].kind == "histogram":
        value = Histogram(tuple(value[0]), value[1])
    return Sample(name, {**labels, "worker": worker}, value)

"""OpenLineage: events that say which processor reads and writes which topics, for catalogs of data.

A run of OpenLineage is one processor at work in one process. Its events are START, then RUNNING with counts at most
once in `every_seconds`, and at the end COMPLETE, FAIL or ABORT. The graph is a run of its own, and the parent of the
others.

Tasks only count. A thread of this module makes the events and hands them over, so a catalog that does not answer
delays no batch.
"""

from __future__ import annotations

import json
import os
import queue
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from cues_kafka.arguments import known_arguments
from cues_kafka.errors import ConfigError
from cues_kafka.extras import OPENLINEAGE, missing
from cues_kafka.observe.lineage_events import EventType, JobRun, event
from cues_kafka.observe.log import Sparing, get_logger
from cues_kafka.ports.observer import BatchReport, RunFacts

log = get_logger("cues_kafka.lineage")

_GRAPH: Final = "the graph"
"""Among the names of processors, which have no space, the run of the graph itself."""

MOST_WAITING: Final = 1_000
"""Events that wait for a catalog that does not answer; further ones are left out."""

END_S: Final = 10.0
"""How long the end of a run waits for events that are not handed over yet."""


@dataclass(slots=True)
class _Job:
    """A run, what it has committed, and when that was told last."""

    run: JobRun
    totals: Counter[str] = field(default_factory=Counter)
    told_s: float | None = None


@known_arguments(ConfigError)
class OpenLineage:
    """
    Observes a graph and tells a catalog of data about it: ``start(graph, ..., observers=[OpenLineage(...)])``.

    One of these observes one run at a time.

    Attributes:
        to: a file, to which events are appended as lines of JSON; a function, which gets each of them as a dict; or the
            URL of a server, which the official client sends them to. None: what the client's own settings name, such as
            OPENLINEAGE_URL, OPENLINEAGE_API_KEY and ``openlineage.yml``.
        namespace: of the jobs.
        every_seconds: how often a processor's counts are told at most.

    Raises:
        ConfigError: the file cannot be written, or the client is not installed.
    """

    def __init__(
        self,
        to: Callable[[dict[str, Any]], object] | str | os.PathLike[str] | None = None,
        *,
        namespace: str = "cues-kafka",
        every_seconds: float = 60.0,
    ) -> None:
        if isinstance(every_seconds, bool) or not isinstance(every_seconds, int | float) or not every_seconds > 0:
            raise ConfigError(f"OpenLineage(every_seconds={every_seconds!r}): takes a number of seconds above 0.")
        if not isinstance(namespace, str) or not namespace:
            raise ConfigError(f"OpenLineage(namespace={namespace!r}): takes a name, such as 'cues-kafka'.")
        self.to = to
        self.namespace = namespace
        self.every_seconds: float = float(every_seconds)
        self._write = _writer(to)
        self._lock = threading.Lock()
        self._jobs: dict[str, _Job] = {}  # by processor; and `_GRAPH`
        self._post: _Post | None = None  # while a graph runs

    def began(self, run: RunFacts) -> None:
        """
        Tell that the graph and its processors start.

        Raises:
            ConfigError: this object observes another run now.
        """
        with self._lock:
            if self._post is not None:
                raise ConfigError(f"OpenLineage(...) observes a run now. Give graph {run.graph!r} one of its own.")
            self._post = _Post(self._write)
            graph = JobRun(self.namespace, run, None, str(uuid.uuid4()), None)
            self._jobs = {_GRAPH: _Job(graph)}
            for part in run.parts:
                self._jobs[part.name] = _Job(graph._replace(part=part, run_id=str(uuid.uuid4()), parent=graph.run_id))
        for job in self._jobs.values():
            self._tell(job, "START")

    def committed(self, task: str, batch: BatchReport) -> None:
        """Count, and tell the counts if that is due."""
        job = self._jobs.get(task.rpartition("/")[0])
        if job is None:
            return
        now_s = time.monotonic()
        with self._lock:
            job.totals.update(
                deliveries=batch.deliveries, outputs=batch.outputs, errors=batch.errors, messages=batch.messages
            )
            due = job.told_s is None or now_s - job.told_s >= self.every_seconds
            if due:
                job.told_s = now_s
        if due:
            self._tell(job, "RUNNING")

    def retried(self, task: str, about: Mapping[str, Any], attempt: int, pause_s: float) -> None:
        """Nothing: no run ends or fails by it."""

    def failed(self, task: str, why: str, round_: int) -> None:
        """Nothing: the task recovers."""

    def stopped(self, task: str, why: str, remedy: str, about: Mapping[str, Any]) -> None:
        """Tell the cause. The run goes on: the task is tried again."""
        if (job := self._jobs.get(task.rpartition("/")[0])) is not None:
            self._tell(job, "RUNNING", f"task {task} stopped: {why}")

    def recovered(self, task: str, after_s: float) -> None:
        """Nothing: the next counts say it."""

    def ended(self, failures: Mapping[str, str], *, abandoned: bool) -> None:
        """Tell how the runs ended, and wait up to `END_S` until the events are handed over."""
        if self._post is None:
            return
        usual: EventType = "ABORT" if abandoned else "COMPLETE"
        of_graph = {_GRAPH: "; ".join(f"{name}: {why}" for name, why in failures.items())} if failures else {}
        for name, why in {**dict.fromkeys(reversed(self._jobs)), **failures, **of_graph}.items():
            self._tell(self._jobs[name], usual if why is None else "FAIL", why)
        self._post.close(END_S)
        with self._lock:
            self._post, self._jobs = None, {}

    def _tell(self, job: _Job, kind: EventType, error: str | None = None) -> None:
        with self._lock:
            if self._post is not None:  # else the run is over, and the task was slower
                self._post.put(event(job.run, kind, dict(job.totals), error))


class _Post:
    """A thread that hands events over, in order."""

    def __init__(self, write: Callable[[dict[str, Any]], object]) -> None:
        self._write = write
        self._waiting: queue.Queue[dict[str, Any] | None] = queue.Queue(MOST_WAITING)
        self._sparing = Sparing(log)
        self._thread = threading.Thread(target=self._loop, name="lineage", daemon=True)
        self._thread.start()

    def put(self, told: dict[str, Any]) -> None:
        try:
            self._waiting.put_nowait(told)
        except queue.Full:
            self._warn(told, f"{MOST_WAITING} events wait already")

    def close(self, timeout_s: float) -> None:
        """Wait until all events are handed over; what is left after the time-out is lost."""
        until_s = time.monotonic() + timeout_s
        try:
            self._waiting.put(None, timeout=timeout_s)
        except queue.Full:
            pass
        else:
            self._thread.join(max(0.0, until_s - time.monotonic()))
        if self._thread.is_alive():
            log.warning("lineage left out", events=self._waiting.qsize(), why=f"not taken within {timeout_s:g} s")
        self._sparing.catch_up(time.monotonic(), at_once=True)

    def _loop(self) -> None:
        while (told := self._waiting.get()) is not None:
            try:
                self._write(told)
            except Exception as error:
                self._warn(told, f"{type(error).__name__}: {error}")

    def _warn(self, told: Mapping[str, Any], why: str) -> None:
        about = {"job": told["job"]["name"], "type": told["eventType"], "why": why}
        self._sparing.warning("lineage left out", [about], 1, time.monotonic())


# --- Where they go


def _writer(to: object) -> Callable[[dict[str, Any]], object]:
    if callable(to):
        return to
    if to is None or (isinstance(to, str) and to.startswith(("http://", "https://"))):
        return _client(to)
    if not isinstance(to, str | os.PathLike):
        raise ConfigError(f"OpenLineage({to!r:.200}): takes a file, a URL or a function.")
    path = Path(to)
    try:
        with path.open("a"):
            pass
    except OSError as error:
        raise ConfigError(
            f"OpenLineage({str(path)!r}): the file cannot be written: {error}. Name a file in a directory that exists."
        ) from error
    return lambda told: _append(path, told)


def _append(path: Path, told: Mapping[str, Any]) -> None:
    """Write one line at once, so that several processes can share the file."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(told) + "\n")


def _client(url: str | None) -> Callable[[dict[str, Any]], object]:
    try:
        from openlineage.client import OpenLineageClient  # noqa: PLC0415  an extra
        from openlineage.client import event_v2 as made  # noqa: PLC0415
    except ModuleNotFoundError as error:
        otherwise = ", or give a file or a function"
        raise missing(f"OpenLineage({url!r})", OPENLINEAGE, otherwise=otherwise, error=error) from None
    key = os.environ.get("OPENLINEAGE_API_KEY")
    auth = {"auth": {"type": "api_key", "apiKey": key}} if key else {}
    config = None if url is None else {"transport": {"type": "http", "url": url, **auth}}
    client = OpenLineageClient(config=config)

    def send(told: dict[str, Any]) -> None:
        client.emit(
            made.RunEvent(
                eventType=made.RunState[told["eventType"]],
                eventTime=told["eventTime"],
                run=made.Run(**told["run"]),
                job=made.Job(**told["job"]),
                inputs=[made.InputDataset(**one) for one in told["inputs"]],
                outputs=[made.OutputDataset(**one) for one in told["outputs"]],
                producer=told["producer"],
            )
        )

    return send

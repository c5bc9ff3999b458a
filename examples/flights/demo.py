"""One run: load, kill, wait, and what was measured on the way."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from cues_kafka import Kafka
from cues_kafka.brokers.open import open_broker
from cues_kafka.cli.run import worker_command
from cues_kafka.core.records import Attempt, Totals
from cues_kafka.ports import Broker, TopicPartition
from cues_kafka.runtime.build import prepare
from cues_kafka.runtime.native.supervisor import Supervisor
from cues_kafka.runtime.progress import Progress, Seen
from examples.flights.graph import graph
from examples.flights.load import Loader

ROOT = Path(__file__).parents[2]
STALLED_S = 90.0
"""Without a new record for this long the run has failed; a transaction that nobody ends is aborted after 60 s."""

HEALTHY_AFTER_S = 1.0
"""Whom we kill did nothing wrong: it shall not wait longer each time, as one that crashes by itself should."""

ROWS = 336_776


class Failed(Exception):
    """The run cannot be finished."""


@dataclass
class Kill:
    """
    One SIGKILL.

    Attributes:
        worker: its number.
        at_s: when, monotonic.
        open_tasks: tasks of the victim whose transaction was open on the brokers then.
        before: incarnation of the victim.
        recovered_s: from the kill to the next message that its successor committed; None: it had no more to do.
    """

    worker: int
    at_s: float
    open_tasks: int
    before: str
    recovered_s: float | None = None


@dataclass
class Outcome:
    """
    What one run did.

    Attributes:
        kills: all of them.
        seconds: from the first row that was sent to the last delivery that was committed.
        totals: by processor.
        restarts: of all workers.
    """

    kills: list[Kill] = field(default_factory=list)
    seconds: float = 0.0
    totals: dict[str, Totals] = field(default_factory=dict)
    restarts: int = 0


class Demo:
    """Runs the graph once. `show` is called with the progress so far."""

    def __init__(
        self,
        bootstrap: str,
        directory: Path,
        *,
        rows: int,
        kills: int,
        workers: int,
        seed: int,
        show: Callable[[Demo], None],
    ) -> None:
        self.rows = rows
        self.loader = Loader(bootstrap, rows)
        self.outcome = Outcome()
        self.ledger = directory / "ledger.db"
        self.log = directory / "workers.log"
        self._servers = bootstrap
        self._directory = directory
        self._wanted = kills
        self._workers = workers
        self._random = random.Random(seed)
        self._show = show
        self._live: dict[str, str] = {}
        """The incarnation that committed last under each worker's name, since its last kill."""

    def run(self) -> Outcome:
        """
        Run until all is delivered.

        Raises:
            Failed: it does not get there.
        """
        broker = open_broker(Kafka(self._servers))
        try:
            self._prepare(broker)
            with Progress(graph, broker) as progress, self._supervised() as supervisor:
                self._work(broker, progress, supervisor)
        finally:
            broker.close()
        return self.outcome

    def _prepare(self, broker: Broker) -> None:
        if broker.facts(graph.topics_used()).topics:
            raise Failed("this cluster has topics of the graph already: the demo needs a cluster without them")
        prepare(graph, broker)

    @contextmanager
    def _supervised(self) -> Iterator[Supervisor]:
        env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        env["FLIGHTS_LEDGER"] = str(self.ledger)
        # Restarted workers read what the first ones compiled; without it each of them compiles everything anew.
        env.setdefault("PYTHONPYCACHEPREFIX", str(self._directory / "pycache"))
        options = ["--bootstrap", self._servers]
        with self.log.open("ab") as log:
            yield_to = Supervisor(
                lambda k: worker_command("examples.flights.graph:graph", instance=_name(k), options=options),
                workers=self._workers,
                env=env,
                cwd=ROOT,
                output=log,
                healthy_after_s=HEALTHY_AFTER_S,
            )
            with yield_to as supervisor:
                yield supervisor
                self.outcome.restarts = sum(supervisor.restarts.values())

    def _work(self, broker: Broker, progress: Progress, supervisor: Supervisor) -> None:
        slices = self._wanted + 2
        loader, kills = self.loader, self.outcome.kills
        began = last = time.monotonic()
        loader.allow(2 * self.rows // slices)
        loader.start()
        due = self._next_kill(slices)
        while True:
            seen = progress.poll(0.2)
            for one in seen:
                self._note(one)
                last = one.at_s
            self.outcome.totals = {name: progress.totals(name) for name in graph.processors}
            self._show(self)
            if supervisor.gave_up is not None or loader.error or time.monotonic() - last > STALLED_S:
                news = f"the last news came after {last - began:.0f} s, behind: {progress.behind()}"
                raise Failed(f"workers gave up: {supervisor.gave_up}; loader: {loader.error}; {news}")
            if len(kills) < self._wanted and self.outcome.totals["clean"].deliveries >= due:
                if self._kill(broker, progress, supervisor):
                    due = self._next_kill(slices)
                    # What is sent follows the kills, so that messages flow during every one of them.
                    loader.allow((len(kills) + 2) * self.rows // slices)
            elif loader.done and len(kills) == self._wanted and not seen and not progress.behind():
                break
        self.outcome.seconds = last - began

    def _next_kill(self, slices: int) -> float:
        """After so many deliveries of `clean`; what is sent by then reaches further."""
        return (len(self.outcome.kills) + self._random.uniform(0.1, 1.6)) * self.rows / slices

    def _note(self, seen: Seen) -> None:
        writer = seen.record.writer
        if not isinstance(seen.record, Attempt) or not seen.record.batch.deliveries:
            return
        for kill in self.outcome.kills:
            if kill.recovered_s is None and writer.name == _name(kill.worker) and writer.incarnation != kill.before:
                kill.recovered_s = seen.at_s - kill.at_s
        if not any(writer.incarnation == kill.before for kill in self.outcome.kills):
            self._live[writer.name] = writer.incarnation

    def _kill(self, broker: Broker, progress: Progress, supervisor: Supervisor) -> bool:
        """SIGKILL to a worker that has committed something since its start; whether there was one."""
        candidates = [k for k in supervisor.pids if _name(k) in self._live]
        if not candidates:
            return False
        k = self._random.choice(candidates)
        at_s = time.monotonic()
        if supervisor.signal(k, signal.SIGKILL) is None:
            return False
        tasks = [
            TopicPartition(f"{graph.name}.{name}.backing", partition)
            for (name, partition), seen in progress.newest.items()
            if seen.record.writer.name == _name(k)
        ]
        marks = broker.watermarks(tasks).values()
        open_tasks = sum(mark.stable < mark.high for mark in marks)
        self.outcome.kills.append(Kill(k, at_s, open_tasks, self._live.pop(_name(k))))
        return True


def _name(k: int) -> str:
    return f"flights.{k}"


def log_tail(path: Path, lines: int = 40) -> str:
    """The end of the workers' log."""
    return "\n".join(path.read_text("utf-8", errors="replace").splitlines()[-lines:]) if path.is_file() else "(no log)"

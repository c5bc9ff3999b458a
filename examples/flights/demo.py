"""One run of the demo: load, kill, wait, measure."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import cycle, islice
from pathlib import Path

from cues_kafka import Kafka
from cues_kafka.brokers.open import open_broker
from cues_kafka.core.records import Attempt, Totals
from cues_kafka.graph.names import backing_topic
from cues_kafka.plan.inspectors import Terms
from cues_kafka.ports.broker import Broker
from cues_kafka.ports.log import TopicPartition
from cues_kafka.records.reading import has_reached
from cues_kafka.task.making.prepare import prepare
from examples.flights.database import LEDGER, NONE, LedgerDatabase
from examples.flights.graph import graph, plain
from examples.flights.load import Loader
from examples.flights.progress import Progress, Seen
from examples.flights.sides import DRIVER, NATIVE, PYTHON, SERVER, NativeWorkers, Side, SparkDriver, Victim

STALLED_S = 180.0
"""The run fails after this time without a new record. A driver starts in less, and a transaction ends after 60 s."""

AIMED = 0.5
"""Share of the kills that wait for an open transaction, the worst moment: it is open for hundredths of a second."""

AIM_S = 3.0
"""How long they wait for one."""

AIM_LOOK_S = 0.005
"""How often they look: each look asks the brokers or the database, which have work to do."""

OVER_S = 1.0
"""How often a kill that waits asks the brokers whether anything is left to wait for."""

LOOK_S = 0.2
"""How long to wait for news."""

AHEAD = 6
"""How many intervals between two kills are sent ahead, so that work continues while kills wait for `hourly`."""

CRASHES = 5
"""The run fails after more deaths than this that the demo did not cause."""

ROWS = 336_776

HOURLY = "hourly"

BESIDE = (LEDGER, "by_airline", "punctuality")
"""What native workers run beside Spark."""

LOST = re.compile(r"Lost task .*Python worker exited")
"""Spark's log line about a Spark task whose Python worker has died."""


class Failed(Exception):
    """The run cannot be finished."""


@dataclass
class Kill:
    """
    One SIGKILL.

    Attributes:
        kind: of the victim.
        at_s: when, monotonic.
        open_tasks: tasks of the victim, by (processor, partition), whose transaction was open then: on the brokers, or
            in the database's server. The task of one Python worker of Spark cannot be seen: the tasks of all of them.
        follows: whether the victim's successor has committed something; None: records do not tell.
        publishing: parts of `hourly` that were announced but not published then, by (batch, part).
        recovered_s: from the kill until the successor committed, or if records do not tell it, until all open tasks
            did; None: there was nothing to do.
    """

    kind: str
    at_s: float
    open_tasks: frozenset[tuple[str, int]]
    follows: Callable[[Seen], bool] | None
    publishing: frozenset[tuple[int, int]] = frozenset()
    recovered_s: float | None = None

    def __post_init__(self) -> None:
        self._waiting = set(self.open_tasks)

    def see(self, seen: Seen) -> None:
        """Take note of committed deliveries."""
        task = (seen.processor, seen.partition)
        if self.follows is None and task in self._waiting:
            self._waiting.remove(task)
            self.recovered_s = None if self._waiting else seen.at_s - self.at_s
        elif self.follows and self.recovered_s is None and self.follows(seen):
            self.recovered_s = seen.at_s - self.at_s


@dataclass
class Outcome:
    """
    The measurements of one run.

    Attributes:
        kills: all kills.
        seconds: from the first row that was sent to the last committed delivery.
        calm_s: from the first committed delivery to the first kill, or to the last delivery.
        calm: deliveries that were committed in this time.
        totals: counts by processor.
        restarts: number of restarts of supervised processes.
        lost: Spark tasks whose Python worker died, and which Spark retried.
        hourly: counts of the parts of `hourly`; None: it does not run on native workers.
    """

    kills: list[Kill] = field(default_factory=list)
    seconds: float = 0.0
    calm_s: float = 0.0
    calm: int = 0
    totals: dict[str, Totals] = field(default_factory=dict)
    restarts: int = 0
    lost: int = 0
    hourly: Totals | None = None


def mixed(kills: int) -> list[str]:
    """Kinds of the kills of a run on Spark: of ten, three hit its driver, which takes seconds to restart."""
    ten = (DRIVER, PYTHON, NATIVE, PYTHON, DRIVER, NATIVE, PYTHON, DRIVER, NATIVE, PYTHON)
    return list(islice(cycle(ten), kills))


class Plan:
    """When to kill which kind of process: after a number of deliveries of `clean`, and a random delay."""

    def __init__(self, kinds: Sequence[str], rows: int, spread_s: float, draw: random.Random) -> None:
        self._kinds = draw.sample(kinds, len(kinds))
        self._slice = rows / (len(kinds) + AHEAD)
        self._spread_s = spread_s
        self._draw = draw
        self._done = -1
        self.next()

    def next(self) -> None:
        """Go on to the next kill."""
        self._done += 1
        self._after = (self._done + self._draw.uniform(0.1, 1.6)) * self._slice
        self._at_s: float | None = None

    @property
    def over(self) -> bool:
        """Whether all kills are done."""
        return self._done == len(self._kinds)

    @property
    def ahead(self) -> int:
        """Rows to send by now: a share for each kill, so that messages flow during every kill."""
        return int((self._done + AHEAD) * self._slice) + 1

    @property
    def more(self) -> int:
        """The same if a kill waits for messages; some rows are left, so that work follows the kill."""
        return int((self._done + AHEAD + 0.5) * self._slice) + 1

    def due(self, delivered: int) -> str:
        """The kind to kill now; empty: no kill is due."""
        if self.over or delivered < self._after:
            return ""
        now = time.monotonic()
        self._at_s = self._at_s or now + self._draw.uniform(0.0, self._spread_s)
        return self._kinds[self._done] if now >= self._at_s else ""


class Demo:
    """
    Runs the graph once.

    Attributes:
        rows: how many flights.
        loader: sends them.
        processors: names of the plain processors that run.
        outcome: what happened up to now.
    """

    def __init__(
        self,
        bootstrap: str,
        directory: Path,
        *,
        database: LedgerDatabase,
        rows: int,
        kills: int,
        server_kills: int,
        workers: int,
        native: bool,
        seed: int,
        show: Callable[[Demo], None],
    ) -> None:
        """
        Keep the options; `run` runs.

        Args:
            bootstrap: a cluster without the graph's topics.
            directory: for all files of the run.
            database: where the ledger is.
            rows: number of flights to send.
            kills: number of SIGKILLs to the processes that run the graph.
            server_kills: number of SIGKILLs to the database's server.
            workers: number of native worker processes.
            native: run everything on them, and nothing on Spark.
            seed: seed of the moments and victims of the kills.
            show: is called with the demo after each look at its progress.
        """
        self.rows = rows
        self.loader = Loader(bootstrap, rows, weather=not native)
        self.outcome = Outcome()
        self._servers = bootstrap
        self._database = database
        self._first_s = self._last_s = self._over_s = 0.0
        self._draw = random.Random(seed)
        self._show = show
        self._graph = plain if native else graph
        without = {LEDGER} if database.kind == NONE else set()
        self.processors = [name for name in self._graph.processors if name not in without]
        beside = self.processors if native else [name for name in BESIDE if name not in without]
        side = NativeWorkers(bootstrap, directory, processors=beside, workers=workers)
        self._sides: list[Side] = [side]
        if not native:
            self._sides.insert(0, SparkDriver(bootstrap, directory))
        kinds = [NATIVE] * kills if native else mixed(kills)
        self._plan = Plan([*kinds, *[SERVER] * server_kills], rows, self._sides[0].spread_s, self._draw)

    def run(self) -> Outcome:
        """
        Run until all is delivered.

        Raises:
            Failed: the run cannot be finished.
        """
        broker = open_broker(Kafka(self._servers))
        try:
            self._prepare(broker)
            # With their names: otherwise a processor of DataFrames counts as behind only after its start.
            everyone = [*self.processors, *self._graph.dataframes]
            with Progress(self._graph, broker, only=everyone) as progress, self._running():
                self._work(broker, progress)
        finally:
            broker.close()
        self._database.settle()
        return self.outcome

    def log_tail(self, lines: int = 40) -> str:
        """The last lines of the processes' output."""
        texts = [f"--- {side.log.name}\n" + "\n".join(side.printed().splitlines()[-lines:]) for side in self._sides]
        return "\n".join([*texts, self._database.log_tail()])

    def _prepare(self, broker: Broker) -> None:
        if broker.facts(graph.topics_used()).topics:
            raise Failed("This cluster already has topics of the graph. Give the demo a cluster without them.")
        prepare(self._graph, broker, only=self.processors, terms=Terms(self.processors))

    @contextmanager
    def _running(self) -> Iterator[None]:
        with ExitStack() as sides:
            for side in self._sides:
                sides.enter_context(side)
            yield
            self.outcome.restarts = sum(side.restarts for side in self._sides)
            self.outcome.lost = sum(len(LOST.findall(side.printed())) for side in self._sides)

    def _work(self, broker: Broker, progress: Progress) -> None:
        began = self._last_s = time.monotonic()
        self.loader.allow(self._plan.ahead)
        self.loader.start()
        while True:
            seen = self._look(progress)
            self.outcome.totals = {name: progress.totals(name) for name in self.processors}
            self.outcome.hourly = progress.totals(HOURLY) if self._graph.dataframes else None
            self._show(self)
            if not self.outcome.kills and self._first_s:
                self.outcome.calm_s = self._last_s - self._first_s
                self.outcome.calm = sum(total.deliveries for total in self.outcome.totals.values())
            self._check(began, self._last_s, progress)
            kind = self._plan.due(self.outcome.totals["clean"].deliveries)
            if kind and self._kill(kind, broker, progress):
                self._plan.next()
                self.loader.allow(self._plan.ahead)
            elif self._plan.over and self.loader.done and not seen and not progress.behind():
                break
        self.outcome.seconds = self._last_s - began

    def _look(self, progress: Progress, timeout_s: float = LOOK_S) -> list[Seen]:
        """Poll for new records, and take note of them."""
        found = progress.poll(timeout_s)
        for one in found:
            self._note(one)
            self._last_s = one.at_s
        return found

    def _waits(self, kind: str, progress: Progress) -> bool:
        """
        Whether a kill of this kind waits until `hourly` publishes a batch that no kill has hit.

        On Spark the first kill waits, and half of all kills. Publishing is short, so random kills would rarely hit it.
        """
        before = [kill for kill in self.outcome.kills if kill.kind == kind]
        if kind not in {DRIVER, PYTHON} or 2 * sum(bool(kill.publishing) for kill in before) > len(before):
            return False
        hit = {batch for kill in self.outcome.kills for batch, _ in kill.publishing}
        return {batch for batch, _ in publishing(progress)} <= hit and not self._over(progress)

    def _over(self, progress: Progress) -> bool:
        """Send a few more rows for `hourly` to publish; whether it has nothing left to publish before this kill."""
        if time.monotonic() < self._over_s:
            return False
        self._over_s = time.monotonic() + OVER_S
        self.loader.allow(0 if progress.behind() else self._plan.more)
        return self.loader.sent >= self._plan.more and not progress.behind()

    def _check(self, began: float, last: float, progress: Progress) -> None:
        gave_up = [side.log.name for side in self._sides if side.gave_up is not None]
        crashes = sum(side.restarts for side in self._sides) - sum(kill.kind != SERVER for kill in self.outcome.kills)
        failed = self.loader.error or self._database.error
        if gave_up or crashes > CRASHES or failed or time.monotonic() - last > STALLED_S:
            news = f"the last news came after {last - began:.0f} s, behind: {progress.behind()}"
            why = f"loader: {self.loader.error}, database: {self._database.error}"
            raise Failed(f"gave up: {gave_up}, died by themselves: {crashes}, {why}; {news}")

    def _note(self, seen: Seen) -> None:
        if not isinstance(seen.record, Attempt) or not (seen.record.batch.deliveries or seen.record.staged):
            return
        self._first_s = self._first_s or seen.at_s
        for side in self._sides:
            side.note(seen.record.writer)
        for kill in self.outcome.kills:
            kill.see(seen)

    def _kill(self, kind: str, broker: Broker, progress: Progress) -> bool:
        """Send SIGKILL to a process of this kind; whether there was one."""
        victims = [victim for side in self._sides for victim in side.victims(kind)]
        victims += self._database.victims(kind, self._draw)
        if not victims or self._waits(kind, progress):
            return False
        victim = self._draw.choice(victims)
        if self._draw.random() < AIMED:
            self._aim(victim, broker, progress)
        if self._waits(kind, progress):  # everything was published before an open transaction was seen
            return False
        own = victim.opened() if victim.opened else None  # it cannot tell afterwards; the brokers can
        at_s = time.monotonic()
        if not victim.kill():
            return False
        tasks = open_tasks(victim, broker, progress) if own is None else own
        done = Kill(kind, at_s, tasks, victim.follows)
        self.outcome.kills.append(done)
        self._look(progress)  # what was committed just before
        done.publishing = publishing(progress)
        return True

    def _aim(self, victim: Victim, broker: Broker, progress: Progress) -> None:
        """Wait a little for an open transaction of the victim, or of a part of `hourly` while it publishes."""
        deadline = time.monotonic() + AIM_S
        if publishing(progress) and not victim.opened:
            while parts := publishing(progress):
                if opened([part_of(part) for _, part in parts], broker) or time.monotonic() > deadline:
                    break
                self._look(progress, AIM_LOOK_S)
            return
        while not open_tasks(victim, broker, progress) and time.monotonic() < deadline:
            self._look(progress, AIM_LOOK_S)


def open_tasks(victim: Victim, broker: Broker, progress: Progress) -> frozenset[tuple[str, int]]:
    """Tasks that may be the victim's and have a transaction open, by (processor, partition)."""
    if victim.opened:
        return victim.opened()
    tasks = {
        TopicPartition(backing_topic(graph.name, name), partition): (name, partition)
        for (name, partition), seen in progress.newest.items()
        if victim.wrote(seen.record.writer)
    }
    return frozenset(tasks[place] for place in opened(list(tasks), broker))


def opened(places: list[TopicPartition], broker: Broker) -> list[TopicPartition]:
    """Those of these partitions that an open transaction writes to."""
    marks = broker.watermarks(places)
    return [place for place in places if marks[place].stable < marks[place].high]


def part_of(number: int) -> TopicPartition:
    """The partition with the records of a part of `hourly`."""
    return TopicPartition(backing_topic(graph.name, HOURLY), number)


def publishing(progress: Progress) -> frozenset[tuple[int, int]]:
    """Parts of `hourly` that are announced but not published, by the records seen so far; as (batch, part)."""
    records = {part: seen.record for (name, part), seen in progress.newest.items() if name == HOURLY}
    batch = records[0].staged if 0 in records else None
    if batch is None:
        return frozenset()
    due = (part for part in range(batch.parts) if not has_reached(records.get(part), batch))
    return frozenset((batch.batch, part) for part in due)

"""`Tester` runs a graph in memory, in one thread and in virtual time, and can crash it.

It runs the code of the native runtime: recovery, snapshots, commits, errors, retries, quarantine. Time is virtual, so a
retry that waits five minutes takes no time.

Not supported: several workers at once, slow brokers, calls from other threads.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, get_args, overload

from cues_kafka.brokers.memory import MemoryBroker
from cues_kafka.client.client import Client, Since
from cues_kafka.client.messages import Messages
from cues_kafka.core.delivery import HEADER, parse_provenance
from cues_kafka.core.effects import Effect
from cues_kafka.core.records import Record, Totals
from cues_kafka.errors import ConfigError, TaskStopped
from cues_kafka.graph.declare import CommitPolicy
from cues_kafka.graph.definition import Graph
from cues_kafka.graph.error_message import ErrorMessage
from cues_kafka.graph.names import backing_topic, hint, quoted
from cues_kafka.observe.spans import Spans
from cues_kafka.ports.clock import Clock
from cues_kafka.ports.log import Sent
from cues_kafka.records.reading import records_of
from cues_kafka.sinks.calls import RECORD, REQUEST
from cues_kafka.task.alone import Alone
from cues_kafka.task.gate import Gate
from cues_kafka.task.interpreter import Hook
from cues_kafka.task.making.build import caller_of
from cues_kafka.task.making.prepare import prepare, selected, selected_feeds
from cues_kafka.task.making.specs import Identity, feed_spec_of, spec_of
from cues_kafka.task.making.system import System
from cues_kafka.task.parts.stores import Storing
from cues_kafka.task.parts.target import COMMIT_TARGET
from cues_kafka.testing.stand_ins import Inline, stood_in
from cues_kafka.workers.feeds.worker import FeedWorker, feeding_of
from cues_kafka.workers.options import WorkerOptions
from cues_kafka.workers.worker import ProcessorWorker

_INSTANCE = "tester"
_EFFECTS: Final = frozenset(effect.__name__ for effect in get_args(Effect)) | {COMMIT_TARGET, REQUEST, RECORD}
_IDLE_TURNS = 3


class VirtualClock:
    """Virtual time: it passes when code waits, and a little with each look at the clock, so that deadlines pass."""

    def __init__(self) -> None:
        self._now = 1_000_000.0
        self._began_s = time.time() - self._now  # so that users' timestamps of today are not in the future

    def monotonic(self) -> float:
        """Seconds from an arbitrary start."""
        self._now += 1e-5
        return self._now

    def time(self) -> float:
        """Seconds since the epoch."""
        return self._began_s + self._now

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self._now += max(0.0, seconds)

    sleep = advance


class VirtualGate(Gate):
    """A gate at which virtual time is waited for."""

    __slots__ = ("_clock",)

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        if seconds > 0 and not self.closed:
            self._clock.sleep(seconds)


class VirtualWorker(ProcessorWorker):
    """A worker whose tasks wait in virtual time before they recover."""

    def on_assign(self, partitions: Sequence[int]) -> None:
        """The same, with gates of virtual time."""
        super().on_assign(partitions)
        for partition in partitions:
            self.lanes[partition].interpreter.gate = VirtualGate(self.clock)


class VirtualFeedWorker(FeedWorker):
    """The same for a feed."""

    def on_assign(self, partitions: Sequence[int]) -> None:
        """The same, with gates of virtual time."""
        super().on_assign(partitions)
        for partition in partitions:
            self.lanes[partition].interpreter.gate = VirtualGate(self.clock)


@dataclass(frozen=True, slots=True)
class Crash:
    """
    Where the process crashes: `moment` (`before` or `after`) the `nth` effect of this name.

    The names are those of the classes in `cues_kafka.core.effects`, such as `Call`, `Produce` and `Commit`; and
    `CommitTarget`, the commit of the database of `effects={"db": Sql(...)}`, which comes before `Begin`; and, within
    `Call`, `Request`, a call of `Http` or `Once`, and `Record`, what puts its answer into the journal. Where the
    run has fewer effects of this name, it does not crash; `Tester.crashed` says whether it did.

    Raises:
        ValueError: there is no such moment or effect.
    """

    moment: str
    effect: str
    nth: int = 1

    def __post_init__(self) -> None:
        if self.moment not in {"before", "after"}:
            raise ValueError(f"Crash({self.moment!r}, ...): a process crashes 'before' or 'after' an effect")
        if self.effect not in _EFFECTS:
            known = f"{hint(self.effect, _EFFECTS)}; there are {quoted(sorted(_EFFECTS))}"
            raise ValueError(f"Crash(..., {self.effect!r}): this effect does not exist{known}")


_NEVER: Final = Crash("before", "Stop", 10**9)


class Tester:
    """
    Runs a graph until it is idle.

    Attributes:
        graph: the graph.
        client: a client in the same time, for everything else: topics, tailers, transactions by hand, `sent`.
        clock: the virtual clock.
        broker: the broker in memory.
        crashed: whether the last run reached its crash.

    Example:
        >>> from cues_kafka import Graph, Processor, Source
        >>> def double(n: int) -> int:
        ...     return 2 * n
        >>> tester = Tester(Graph("demo", Source("numbers"), Processor(double, inputs="numbers", outputs="doubles")))
        >>> _ = tester.send("numbers", 21)
        >>> tester.run().values("doubles")
        [42]
    """

    __test__ = False  # for pytest: not a test class

    def __init__(
        self,
        graph: Graph,
        *,
        only: Sequence[str] | None = None,
        policy: CommitPolicy | None = None,
        broker: MemoryBroker | None = None,
        system: Mapping[str, Any] | None = None,
        effects: Mapping[str, Any] | None = None,
        state_dir: Path | None = None,
        spans: Spans | None = None,
    ) -> None:
        """
        Args:
            graph: the graph to run.
            system: objects that functions get instead of those that the graph's `system=` factories would open. They
                are passed as they are: the factories are not called, and the objects are not closed.
            effects: what stands in for effects of processors, by name. For an `Http` a transport of httpx2, such as
                `httpx2.MockTransport(function)`, takes the place of the network; keys, journal and retries stay as they
                are. Any other object is given to the functions as it is.
            only: names of processors; None: all of them.
            policy: when batches are committed at the latest.
            broker: a broker to continue with; None: a new one.
            state_dir: where stores with `on_disk=True` are; None: in memory.
            spans: makes spans of the steps; None makes no spans.
        """
        self.graph = graph
        self._fakes = dict(system or {})
        for fake in self._fakes.keys() - graph.system.keys():
            raise ConfigError(
                f"Tester(system={{{fake!r}: ...}}): the graph has no {fake!r} in its system="
                f"{hint(fake, graph.system)}. Its names: {quoted(graph.system)}."
            )
        self._effects = dict(effects or {})
        named = {name for one in graph.processors.values() for name in one.targets}
        for fake in self._effects.keys() - named:
            raise ConfigError(
                f"Tester(effects={{{fake!r}: ...}}): no processor has {fake!r} in its effects={hint(fake, named)}. "
                f"Names: {quoted(sorted(named))}."
            )
        self.clock: VirtualClock = VirtualClock()
        self.broker: MemoryBroker = broker or MemoryBroker(clock=self.clock)
        self._only = only
        self._state_dir = state_dir
        self._spans = spans
        self._policy = policy or CommitPolicy()
        self.client: Client = Client(self.broker, graph, name=_INSTANCE, stable=True, clock=self.clock)
        self._planned, self._facts = prepare(graph, self.broker, only=only)
        self._workers: list[ProcessorWorker] = []
        self._system = System({})
        self._crash: Crash | None = None
        self._seen = 0
        self._parked: threading.Event | None = None
        self.crashed: bool = False

    def send(self, topic: Any, message: Any = ..., **options: Any) -> Sent:
        """Send one message, see `Client.send`."""
        return self.client.send(topic, message, **options)

    def send_many(self, topic: str, messages: Sequence[Any]) -> int:
        """Send messages in one transaction."""
        return self.client.send_many(topic, messages)

    def run(self, *, crash: Crash | None = None) -> Tester:
        """
        Run until idle, or until the crash.

        A crash is like SIGKILL: nothing unwinds and nothing is closed; the thread of the run never continues. Call
        `run` again to restart, with another crash or without. A process that has not crashed goes on in the next run;
        `restart` begins a new one.

        Raises:
            TaskStopped: a task stopped; or the exception of user code that no errors topic took.
        """
        self._crash, self._seen, self.crashed = crash, 0, False
        if crash is None:
            self._parked = None  # no thread that kill() could leave behind
            self._run()
            return self
        failed: list[BaseException] = []
        parked = self._parked = threading.Event()

        def body() -> None:
            try:
                self._run()
            except BaseException as error:  # raised again on the caller's thread
                failed.append(error)
            finally:
                parked.set()

        thread = threading.Thread(target=body, daemon=True)
        thread.start()
        parked.wait()
        if failed:
            raise failed[0]
        return self

    def kill(self) -> None:
        """
        Crash here, when called by user code in a run with `crash=` or in `run_to_death`.

        Raises:
            ConfigError: the run is another one, which has no thread that could end here.
        """
        self._die(self._parked_for("kill()"))

    def _parked_for(self, what: str) -> threading.Event:
        if self._parked is None:
            raise ConfigError(f"{what} ends a run with crash=, or run_to_death(), and this run is neither: begin it so")
        return self._parked

    def _die(self, parked: threading.Event) -> None:
        self._drop_workers()
        self.crashed = True
        parked.set()
        threading.Event().wait()  # this thread stays here, as if it were killed

    def run_to_death(self) -> bool:
        """Restart, run until idle or until user code calls `kill`, and return whether it did."""
        self.restart().run(crash=_NEVER)
        return self.crashed

    def restart(self) -> Tester:
        """Begin a new process, as after a crash of the former one."""
        self._drop_workers()
        self._crash, self._seen, self.crashed = None, 0, False
        return self

    def stop(self) -> None:
        """Stop the workers cleanly, and close the system."""
        for worker in self._workers:
            worker.close()
        self._workers = []
        self._system.close()

    def _drop_workers(self) -> None:
        """Nothing is closed in order. What the operating system takes from a dead process is taken."""
        workers, self._workers = self._workers, []
        for worker in workers:
            for lane in worker.lanes.values():
                for part in lane.parts:
                    part.close(orderly=False)

    def _hook(self) -> Hook:
        def hook(moment: str, effect: str) -> None:
            crash = self._crash
            if crash is None or (moment, effect) != (crash.moment, crash.effect):
                return
            self._seen += 1
            if self._seen == crash.nth:
                self._die(self._parked_for("a crash"))

        return hook

    def _run(self) -> None:
        if not self._workers:
            self._start()
        for worker in self._workers:
            worker.look()  # the source of a feed may have news
        idle = 0
        while idle < _IDLE_TURNS:
            idle = 0 if self._turn() else idle + 1

    def _start(self) -> None:
        self._system = System({k: v for k, v in self.graph.system.items() if k not in self._fakes})
        identity = Identity.of_process("memory", _INSTANCE)
        hook, alone = self._hook(), Alone()
        for processor in selected(self.graph, self._only):
            width = self._facts.topics[processor.lead].partitions
            worker = VirtualWorker(
                processor.name,
                broker=self.broker,
                clock=self.clock,
                caller=caller_of(
                    self.graph,
                    stood_in(processor, self._effects),
                    self._facts,
                    {**self._system.values, **self._fakes},
                    self.broker.max_bytes,
                    state_dir=self._state_dir,
                    threads=False,
                    spans=self._spans,
                ),
                spec_of=spec_of(self.graph, self._planned, processor, width, identity),
                options=WorkerOptions(
                    instance=_INSTANCE, policy=processor.commit or self._policy, hook=hook, alone=alone
                ),
                changed=lambda: None,
                executor=Inline(),
            )
            worker.open()
            self._workers.append(worker)
        for feed in selected_feeds(self.graph, self._only):
            feeder = VirtualFeedWorker(
                feeding_of(self.graph, feed, self._facts, self.broker.max_bytes),
                broker=self.broker,
                clock=self.clock,
                spec_of=feed_spec_of(self.graph, feed, identity),
                options=WorkerOptions(instance=_INSTANCE, policy=feed.commit or self._policy, hook=hook, alone=alone),
                changed=lambda: None,
                executor=Inline(),
            )
            feeder.open()
            self._workers.append(feeder)

    def _turn(self) -> bool:
        """Let each worker do one turn; False: nothing happened, and no worker waits for a time."""
        before = self._state()
        worked = False
        for worker in self._workers:
            worker.poll_once()
            worked = worker.call_once() or worked
            self._raise_stopped(worker)
        if worked or self._state() != before:
            return True
        lanes = [lane for worker in self._workers for lane in worker.lanes.values()]
        # Time does not pass for a timer that is due by the clock: one that sets the next one would never end.
        wakes = [wake for lane in lanes if (wake := lane.wake_at_s) and not lane.waits_for_clock]
        if not wakes:
            return False
        self.clock.advance(min(wakes) - self.clock.monotonic())
        return True

    def _state(self) -> list[Any]:
        return [
            (worker.name, p, lane.task, lane.reached) for worker in self._workers for p, lane in worker.lanes.items()
        ]

    def _raise_stopped(self, worker: ProcessorWorker) -> None:
        for lane in worker.lanes.values():
            if (halt := lane.stopped) is None:
                continue
            cause = lane.cause
            self.restart()
            if isinstance(cause, Exception):
                raise cause
            raise TaskStopped(f"task {lane.spec.name} stopped: {halt}") from cause

    @overload
    def messages(self, topic: str, *, last: int | None = None, since: Since | None = None) -> Messages: ...

    @overload
    def messages(
        self, topic: None = None, *, last: int | None = None, since: Since | None = None
    ) -> dict[str, Messages]: ...

    def messages(
        self, topic: str | None = None, *, last: int | None = None, since: Since | None = None
    ) -> Messages | dict[str, Messages]:
        """The committed messages of a topic, or of all topics of the graph by name; see `Client.messages`."""
        return self.client.messages(topic, last=last, since=since)

    def values(self, topic: str) -> list[Any]:
        """The committed values of a topic, partition by partition."""
        return [message.value for message in self.messages(topic)]

    def state(self, store: str, processor: str | None = None) -> dict[Any, Any]:
        """
        The committed entries of a store, of all tasks together.

        Args:
            store: its name.
            processor: whose store; None: of the only processor that has one of this name.

        Raises:
            ConfigError: no processor has it, or several have.
        """
        found = [one for one in self.graph.processors.values() if store in one.state and processor in (None, one.name)]
        if len(found) != 1:
            having = {name for one in self.graph.processors.values() for name in one.state}
            raise ConfigError(f"Tester.state({store!r}): {len(found)} processors have it{hint(store, having)}.")
        entries: dict[Any, Any] = {}
        for worker in self._workers:
            for lane in worker.lanes.values() if worker.name == found[0].name else ():
                storing = lane.part(Storing)
                for cache in storing.stores.caches if storing else ():
                    if cache.spec.name == store:
                        entries |= cache.decoded()
        return entries

    def errors(self) -> list[ErrorMessage]:
        """All committed error messages."""
        return [message.value for topic in self.graph.error_topics() for message in self.messages(topic)]

    def records(self, processor: str, partition: int = 0) -> list[Record]:
        """
        The committed task records of one task, in order; also of a feed.

        Raises:
            ConfigError: the graph has no such processor.
        """
        self._check(processor)
        backing = backing_topic(self.graph.name, processor)
        found = [m for m in self.client.committed(backing) if m.partition() == partition]
        return records_of(found)

    def totals(self, processor: str) -> Totals:
        """
        The summed counts of all tasks of a processor.

        Raises:
            ConfigError: the graph has no such processor.
        """
        self._check(processor)
        total = Totals()
        for partition in range(self._facts.topics[self.graph.processors[processor].lead].partitions):
            for record in self.records(processor, partition)[-1:]:
                total = total.plus(record.totals)
        return total

    def outcomes(self, processor: str) -> dict[str, list[str]]:
        """
        The topics of a processor's outcomes by delivery hash. Nil deliveries leave no trace; see `totals`.

        Raises:
            ConfigError: the graph has no such processor.
        """
        self._check(processor)
        task = f"{self.graph.name}.{processor}/"
        found: dict[str, list[str]] = {}
        for topic in self.graph.topics_written():
            for message in self.messages(topic):
                header = dict(message.headers).get(HEADER)
                if header is not None and (provenance := parse_provenance(header)).task.startswith(task):
                    found.setdefault(provenance.hash.hex(), []).append(topic)
        return found

    def _check(self, processor: str) -> None:
        known = self.graph.all_processors
        if processor not in known:
            names = quoted(known)
            raise ConfigError(
                f"graph {self.graph.name!r} has no processor {processor!r}; it has {names}{hint(processor, known)}."
            )

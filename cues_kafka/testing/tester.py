"""`Tester`: a graph on the reference broker, one thread, virtual time; crashes included.

Supported: everything that the native runtime does, through the same code: recovery, snapshots, commits, errors, retry,
quarantine. Time is virtual, so a retry that waits five minutes takes no time.

Not supported: several workers at once, slow brokers, threads of your own that call the handle.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from typing import Any, TypeVar

from cues_kafka.brokers.memory import MemoryBroker
from cues_kafka.core.delivery import HEADER, parse_provenance
from cues_kafka.core.records import Record, Totals
from cues_kafka.errors import ConfigError, TaskStopped
from cues_kafka.graph.definition import Graph
from cues_kafka.graph.names import hint, quoted
from cues_kafka.ports import Sent
from cues_kafka.records.bytes import ErrorMessage
from cues_kafka.records.reading import records_of
from cues_kafka.runtime.build import caller_of
from cues_kafka.runtime.calling.step import Received
from cues_kafka.runtime.client import Client, Since
from cues_kafka.runtime.native.worker import ProcessorWorker, WorkerOptions
from cues_kafka.runtime.prepare import prepare, selected
from cues_kafka.runtime.specs import Identity, spec_of
from cues_kafka.runtime.system import System
from cues_kafka.runtime.task.alone import Alone
from cues_kafka.runtime.task.interpreter import Hook
from cues_kafka.runtime.task.lane import CommitPolicy

_Result = TypeVar("_Result")
_INSTANCE = "tester"
_IDLE_TURNS = 3


class VirtualClock:
    """Time that passes when somebody waits, and a little whenever somebody looks, so that every deadline comes."""

    def __init__(self) -> None:
        self._now = 1_000_000.0
        self._began_s = time.time() - self._now  # timestamps that users give are of their own present

    def monotonic(self) -> float:
        """Seconds from an arbitrary start."""
        self._now += 1e-5
        return self._now

    def time(self) -> float:
        """Seconds since the epoch."""
        return self._began_s + self._now

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        self.advance(seconds)

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self._now += max(0.0, seconds)


class Inline(Executor):
    """Does what is submitted, at once, on the caller's thread."""

    def submit(self, fn: Callable[..., _Result], /, *args: Any, **kwargs: Any) -> Future[_Result]:
        """Run it."""
        future: Future[_Result] = Future()
        future.set_result(fn(*args, **kwargs))
        return future


@dataclass(frozen=True, slots=True)
class Crash:
    """
    Where a crash happens: the process is gone `moment` (`before` or `after`) the `nth` effect of this name.

    The names are those of the classes in `cues_kafka.core.effects`.
    """

    moment: str
    effect: str
    nth: int = 1


class Tester:
    """
    Runs a graph until it is idle.

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
    ) -> None:
        """
        Args:
            graph: what to run.
            system: what functions get in the place of what these factories of the graph's `system=` would open. Values,
                not factories: they are not opened or closed, and the factories are not called.
            only: names of processors; None: all of them.
            policy: when batches are committed at the latest.
            broker: logs to go on with; None: new ones.
        """
        self.graph = graph
        self._fakes = dict(system or {})
        for fake in self._fakes.keys() - graph.system.keys():
            raise ConfigError(
                f"Tester(system={{{fake!r}: ...}}): the graph has no {fake!r} in its system="
                f"{hint(fake, graph.system)}. Its names: {quoted(graph.system)}."
            )
        self.clock = VirtualClock()
        self.broker = broker or MemoryBroker(clock=self.clock)
        self._only = only
        self._policy = policy or CommitPolicy()
        self._client = Client(self.broker, graph, name=_INSTANCE, now=self.clock.time)
        self._planned, self._facts = prepare(graph, self.broker, only=only)
        self._workers: list[ProcessorWorker] = []
        self._system = System({})
        self._crash: Crash | None = None
        self._seen = 0
        self._parked: threading.Event | None = None
        self._died = False

    # Feeding it.

    def send(self, topic: str, message: Any, **options: Any) -> Sent:
        """Send one message, see `Client.send`."""
        return self._client.send(topic, message, **options)

    def send_many(self, topic: str, messages: Sequence[Any]) -> int:
        """Send messages in one transaction."""
        return self._client.send_many(topic, messages)

    # Running it.

    def run(self, *, crash: Crash | None = None) -> Tester:
        """
        Run until idle, or until the crash.

        A crash is a kill: nothing unwinds, nothing is closed; the thread that ran stands still for ever. Call `run`
        again for the restart.

        Raises:
            Whatever user code raised that no errors topic took; TaskStopped: a task refuses to go on.
        """
        self._crash, self._seen = crash, 0
        if crash is None:
            self._run()
            return self
        failed: list[BaseException] = []
        parked = self._parked = threading.Event()

        def body() -> None:
            try:
                self._run()
            except BaseException as error:  # handed to the caller's thread
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
        """Call it in user code: its process is gone here, as by SIGKILL. Only below `run(crash=)` or `run_to_death`."""
        parked = self._parked
        assert parked, "kill() outside of a run that expects it"
        self._workers = []
        self._died = True
        parked.set()
        threading.Event().wait()

    def run_to_death(self) -> bool:
        """Run until idle or until user code calls `kill`; whether it did. The next run is a new process."""
        self._died = False
        self.restart().run(crash=Crash("never", "", 1))
        return self._died

    @property
    def crashed(self) -> bool:
        """Whether the last run ended in its crash."""
        return self._crash is not None and self._seen >= self._crash.nth

    def restart(self) -> Tester:
        """A new process: the former one is gone without a word."""
        self._workers = []
        self._crash, self._seen = None, 0
        return self

    def stop(self) -> None:
        """Leave in order."""
        for worker in self._workers:
            worker.close()
        self._workers = []
        self._system.close()

    def _hook(self) -> Hook:
        incarnation = self._parked

        def hook(moment: str, effect: str) -> None:
            crash = self._crash
            if crash is None or (moment, effect) != (crash.moment, crash.effect):
                return
            self._seen += 1
            if self._seen == crash.nth:
                assert incarnation
                self._workers = []
                incarnation.set()
                threading.Event().wait()  # dead

        return hook

    def _run(self) -> None:
        if not self._workers:
            self._start()
        idle = 0
        while idle < _IDLE_TURNS:
            idle = 0 if self._turn() else idle + 1

    def _start(self) -> None:
        self._system = System({k: v for k, v in self.graph.system.items() if k not in self._fakes})
        identity = Identity.of_process("memory", _INSTANCE)
        hook, alone = self._hook(), Alone()
        for processor in selected(self.graph, self._only):
            width = self._facts.topics[processor.lead].partitions
            worker = ProcessorWorker(
                processor.name,
                broker=self.broker,
                clock=self.clock,
                caller=caller_of(
                    self.graph,
                    processor,
                    self._facts,
                    {**self._system.values, **self._fakes},
                    self.broker.max_bytes,
                ),
                spec_of=spec_of(self.graph, self._planned, processor, width, identity),
                options=WorkerOptions(instance=_INSTANCE, policy=self._policy, hook=hook, alone=alone),
                changed=lambda: None,
                executor=Inline(),
            )
            worker.open()
            self._workers.append(worker)

    def _turn(self) -> bool:
        """One turn of everything; False: nothing happened and nothing is waited for."""
        before = self._state()
        worked = False
        for worker in self._workers:
            worker.poll_once()
            worked = worker.call_once() or worked
            self._raise_stopped(worker)
        if worked or self._state() != before:
            return True
        wakes = [wake for worker in self._workers for lane in worker.lanes.values() if (wake := lane.wake_at_s)]
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

    # Looking at it.

    def messages(self, topic: str, *, last: int | None = None, since: Since | None = None) -> list[Received]:
        """The committed messages of a topic, partition by partition; `last` and `since` as of `Client.messages`."""
        return self._client.messages(topic, limit=10**9, last=last, since=since)

    def values(self, topic: str) -> list[Any]:
        """The committed values of a topic, partition by partition."""
        return [message.value for message in self.messages(topic)]

    def errors(self) -> list[ErrorMessage]:
        """All committed error messages."""
        return [message.value for topic in self.graph.error_topics() for message in self.messages(topic)]

    def records(self, processor: str, partition: int = 0) -> list[Record]:
        """The committed task records of one task, in order."""
        backing = self._planned[processor].backing
        found = [m for m in self._client.committed(backing) if m.partition() == partition]
        return records_of(found)

    def totals(self, processor: str) -> Totals:
        """Counts of all tasks of a processor."""
        total = Totals()
        for partition in range(self._facts.topics[self.graph.processors[processor].lead].partitions):
            for record in self.records(processor, partition)[-1:]:
                total = total.plus(record.totals)
        return total

    def outcomes(self, processor: str) -> dict[str, list[str]]:
        """By delivery hash: the topics that its outcomes went to. Nil deliveries leave no trace, see `totals`."""
        task = f"{self.graph.name}.{processor}/"
        found: dict[str, list[str]] = {}
        for topic in self.graph.topics_written():
            for message in self.messages(topic):
                header = dict(message.headers).get(HEADER)
                if header is not None and (provenance := parse_provenance(header)).task.startswith(task):
                    found.setdefault(provenance.hash.hex(), []).append(topic)
        return found

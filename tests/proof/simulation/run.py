"""One run: workers driven step by step by one thread, in an order that the seed decides, under virtual time.

How steps overlap. A worker's poller, its caller and the effects of each of its tasks are threads in production. Here
each is a *strand* that is run for one step. Before and after every effect the interpreter calls `hook`, and there the
run may go on with others, on top of the stack, before it comes back: a strand that stands still between two effects is
just a frame below. So a pause of any length, a zombie, a revocation beside a commit that is under way need no threads,
and the same seed gives the same run.

What does not happen: two paused strands that come back in the order in which they were paused (the last one comes back
first).
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Executor, Future
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias, TypeVar, cast

from cues_kafka.brokers.memory import MemoryMember
from cues_kafka.codecs.json import JsonCodec
from cues_kafka.core.task import Doing
from cues_kafka.errors import BrokerError
from cues_kafka.graph.declare import CommitPolicy
from cues_kafka.ports.broker import Broker
from cues_kafka.ports.clients import Listener
from cues_kafka.ports.log import WireMessage
from cues_kafka.task.alone import Alone
from cues_kafka.task.making.build import caller_of
from cues_kafka.task.making.prepare import prepare
from cues_kafka.task.making.specs import Identity, spec_of
from cues_kafka.testing.tester import VirtualClock, VirtualWorker
from cues_kafka.workers.joint.session import JointSession
from cues_kafka.workers.options import WorkerOptions
from cues_kafka.workers.worker import ProcessorWorker
from tests.proof.simulation.faults import Swarm, broker_for
from tests.proof.simulation.graphs import ERRORS, build
from tests.proof.simulation.joint import Condition, locks_of, wakes_of
from tests.proof.simulation.operator import Operator
from tests.proof.simulation.options import AT_LEAST_ONCE, AT_MOST_ONCE, EXACTLY_ONCE, Options, Part
from tests.proof.simulation.slots import Query
from tests.proof.simulation.strands import Killed, Lock

_Result = TypeVar("_Result")

DEPTH = 3
"""The most strands that stand still on top of each other."""

HEALED_TURNS = 1_000
"""Turns of all workers within which everything must be delivered when nothing goes wrong any more; 400 are needed."""

IDLE_TURNS = 3

AHEAD = frozenset({("before", "SendOffsets"), ("before", "Flush"), ("after", "Flush"), ("before", "Commit")})
"""Moments at which the cluster is waited for: there a worker calls ahead."""

COMMITTING = frozenset({Doing.SENDING_OFFSETS, Doing.FLUSHING, Doing.COMMITTING})


class Stuck(AssertionError):
    """The healed system did not deliver everything."""


class SteppedWorker(VirtualWorker):
    """A worker whose tasks wait in virtual time."""

    def __init__(self, simulation: Simulation, name: str, **settings: Any) -> None:
        self.simulation = simulation
        super().__init__(name, **settings)

    def on_assign(self, partitions: Sequence[int]) -> None:
        """The same, with locks of the simulation."""
        self.simulation.note_lost(self.name, partitions)
        super().on_assign(partitions)
        for partition in partitions:
            interpreter = self.lanes[partition].interpreter
            interpreter.lock = lock = cast(Any, Lock(self.simulation))
            interpreter.over = cast(Any, Condition(self.simulation, lock))

    def on_revoke(self, partitions: Sequence[int]) -> None:
        """The same; the judge is told."""
        self.simulation.note_lost(self.name, partitions)
        super().on_revoke(partitions)

    @property
    def session(self) -> JointSession | None:
        """Of all of its tasks together; None: each has its own."""
        return self._sessions.joint

    @property
    def holding(self) -> bool:
        """Whether no call may begin."""
        return self._holding

    def call_once(self) -> bool:
        """The same, and count the tasks that were called ahead."""
        worked = super().call_once()
        self.simulation.called_ahead += sum(lane.ahead for lane in self.lanes.values())
        return worked


_NEVER: Future[Any] = Future()  # no strand asks for results; a new one for each job would cost more than the job


class Strands(Executor):
    """Keeps what was submitted until the run takes it up."""

    def __init__(self) -> None:
        self.jobs: deque[tuple[Callable[..., Any], tuple[Any, ...]]] = deque()

    def submit(self, fn: Callable[..., _Result], /, *args: Any, **kwargs: Any) -> Future[_Result]:
        """Keep it."""
        self.jobs.append((fn, args))
        return _NEVER

    def take(self) -> Callable[[], Any] | None:
        """The first job that need not wait for another one of its task."""
        for index, (fn, args) in enumerate(self.jobs):
            if not all(lock.free for lock in locks_of(fn, args)):
                continue
            del self.jobs[index]
            return lambda: fn(*args)
        return None


class _Port:
    """A process's way to the cluster; remembers the members, which a kill makes silent."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.members: list[MemoryMember] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._broker, name)

    def member(self, group: str, topic: str, listener: Listener, *, instance: str | None = None) -> MemoryMember:
        made = cast(MemoryMember, self._broker.member(group, topic, listener, instance=instance))
        self.members.append(made)
        return made


Action: TypeAlias = Literal["poll", "call", "work", "session"]
ACTIONS: tuple[Action, ...] = ("poll", "call", "work")
OFTEN: Mapping[Action, float] = {"poll": 0.6, "call": 0.6, "work": 0.6, "session": 0.2}
"""How often a step is taken. A session is slower than tasks, so that several of them wait for its next round."""

JOINT_ACTIONS: tuple[Action, ...] = (*ACTIONS, "session")


class Process:
    """
    One process: a worker for each processor.

    Attributes:
        name: of the instance, which a successor has too.
        incarnation: of this process alone.
        alive: until it is killed or has stopped.
        workers: its workers.
    """

    def __init__(self, simulation: Simulation, name: str, incarnation: str) -> None:
        self.name = name
        self.incarnation = incarnation
        self.alive = True
        self.port = _Port(simulation.broker)
        self._simulation = simulation
        self._alone = Alone()
        self._busy: set[tuple[SteppedWorker, str]] = set()
        self._strands: dict[SteppedWorker, Strands] = {}
        self.workers = [self._worker(part) for part in simulation.options.parts]
        for worker in self.workers:
            worker.open()

    def _worker(self, part: Part) -> SteppedWorker:
        simulation, options = self._simulation, self._simulation.options
        processor = simulation.graph.processors[part.name]
        identity = Identity("memory", self.name, self.incarnation)
        strands = Strands()
        worker = SteppedWorker(
            simulation,
            part.name,
            broker=cast(Broker, self.port),
            clock=simulation.clock,
            caller=caller_of(simulation.graph, processor, simulation.facts, {}, simulation.broker.max_bytes),
            spec_of=spec_of(simulation.graph, simulation.planned, processor, options.partitions, identity),
            options=WorkerOptions(
                instance=self.name if options.static else None,
                policy=CommitPolicy(max_messages=options.max_messages, idle_seconds=options.idle_s),
                hook=lambda moment, effect: simulation.at(self, moment, effect, worker),
                alone=self._alone,
                held=lambda name: simulation.held.get(name, ""),
                sessions=int(options.joint),
            ),
            changed=lambda: None,
            executor=strands,
        )
        self._strands[worker] = strands
        if worker.session is not None:
            worker.session._changed = cast(Any, Condition(simulation))
        return worker

    def kill(self) -> None:
        """SIGKILL: nothing unwinds, nothing is closed."""
        self.alive = False
        for member in self.port.members:
            member.kill()

    def stop(self, *, leave: bool) -> None:
        """Leave in order."""
        for worker in self.workers:
            worker.stop(leave=leave)
            self._busy.add((worker, "call"))  # its caller and its poller have ended their loops
            if self.alive:
                self._strand((worker, "poll"), worker.close)
                self._busy.add((worker, "poll"))
        self._busy.clear()
        self.alive = False

    @property
    def members(self) -> Sequence[MemoryMember]:
        """Its memberships, one for each worker."""
        return self.port.members

    @property
    def busy(self) -> Collection[Any]:
        """Its strands that stand still below, or run."""
        return self._busy

    @property
    def still(self) -> bool:
        """Whether none of its strands stands still below."""
        return not self._busy

    def step(self, worker: SteppedWorker, action: Action) -> bool:
        """One step of one strand; whether there was one to take."""
        if not self.alive:
            return False
        if action == "work":
            job = self._strands[worker].take()
            return job is not None and self._strand(None, job)
        if (worker, action) in self._busy:
            return False
        if action == "session":
            return self._serve(worker)
        return self._strand((worker, action), worker.poll_once if action == "poll" else worker.call_once)

    def _serve(self, worker: SteppedWorker) -> bool:
        """What is due in a session; it would wait for a task that stands still below."""
        locks = (cast(Lock, lane.interpreter.lock) for lane in worker.lanes.values())
        session = worker.session
        return (
            session is not None and all(lock.free for lock in locks) and self._strand((worker, "session"), session.work)
        )

    def _strand(self, role: tuple[SteppedWorker, str] | None, step: Callable[[], Any]) -> bool:
        simulation = self._simulation
        role = role or (self.workers[0], f"work {id(step)}")
        before, simulation.strand = simulation.strand, object()
        self._busy.add(role)
        process, simulation.process = simulation.process, self
        try:
            return step() is not False
        except Killed:
            assert not self.alive
            return True
        finally:
            self._busy.discard(role)
            simulation.strand, simulation.process = before, process

    def wakes(self) -> list[float]:
        """When tasks want to be called although nothing arrives."""
        wakes = [at for worker in self.workers for lane in worker.lanes.values() if (at := lane.wake_at_s) is not None]
        return wakes + [at for worker in self.workers if worker.session for at in wakes_of(worker.session)]

    def state(self) -> list[Any]:
        """What changes while there is something to do."""
        return [
            (
                worker.name,
                p,
                lane.task.state,
                lane.task.record,
                lane.busy,
                lane.reached,
                worker.session and worker.session._state,
            )
            for worker in self.workers
            for p, lane in worker.lanes.items()
        ]


class Runner(Protocol):
    """What a run asks of a process: one with workers, or one with slots."""

    name: str
    incarnation: str
    alive: bool

    def __init__(self, simulation: Simulation, name: str, incarnation: str) -> None: ...

    @property
    def workers(self) -> Sequence[Any]:
        """What `step` takes."""
        ...

    @property
    def members(self) -> Sequence[MemoryMember]:
        """Its memberships."""
        ...

    @property
    def busy(self) -> Collection[Any]:
        """What of it stands still below, or runs."""
        ...

    @property
    def still(self) -> bool:
        """Whether nothing of it stands still below."""
        ...

    def kill(self) -> None: ...
    def stop(self, *, leave: bool) -> None: ...
    def step(self, worker: Any, action: Action) -> bool: ...
    def wakes(self) -> list[float]: ...
    def state(self) -> list[Any]: ...


class Traced(NamedTuple):
    """
    A call of a function that has effects.

    Attributes:
        part: name of the processor.
        values: that it got.
        hash: of the delivery.
        task: `processor/partition`.
        incarnation: of its process.
        strategy: of the processor at that time.
    """

    part: str
    values: tuple[str, ...]
    hash: str
    task: str
    incarnation: str
    strategy: str


class _Clock(VirtualClock):
    """A strand that sleeps lets the others go on meanwhile."""

    def __init__(self, simulation: Simulation) -> None:
        super().__init__()
        self._simulation = simulation

    def sleep(self, seconds: float) -> None:
        """See `Simulation.elapse`."""
        self._simulation.elapse(seconds)


class Simulation:
    """
    One run of some options.

    Attributes:
        options: what is run.
        clock: virtual time.
        swarm: the faults.
        broker: the cluster.
        graph: the graph.
        sent: by source, what was sent, in order.
        calls: every traced call, in order.
        called: how often each delivery was traced.
        poison: values that kill their process.
        called_ahead: looks of a caller in which a task was called while its last commit was under way (P7).
        at_healing: deliveries of the tasks that lived when faults ended.
        history: committed messages that compaction may have removed since, by topic.
        strategies: by processor, those that it had until now.
        lost: by processor and partition, how many records the cluster had when a worker got or gave back that task.
        held: why processors are paused, by name.
        called_while_held: processors whose function was called although their worker held them back.
        strand: what runs now.
        process: whose it is.
    """

    def __init__(self, options: Options) -> None:
        self.options = options
        self._blames_poison = options.blames_poison
        self.clock = _Clock(self)
        self.swarm = Swarm(options)
        self.random = self.swarm.random
        self.broker = broker_for(self, options)
        self.graph = build(options, self.trace)
        self.planned, self.facts = prepare(self.graph, self.broker)
        self.sent: dict[str, list[str]] = {name: [] for name in options.sources}
        self.calls: list[Traced] = []
        self.called: Counter[tuple[str, tuple[str, ...]]] = Counter()
        self.history: dict[str, dict[tuple[int, int], WireMessage]] = {}
        self.strategies = {part.name: {part.strategy} for part in options.parts}
        self.lost: dict[tuple[str, int], list[int]] = defaultdict(list)
        self.held: dict[str, str] = {}
        self.called_while_held: list[str] = []
        self.called_ahead = self.at_healing = 0
        self.strand: object = None
        self.process: Runner | None = None
        self.processes: list[Runner] = []
        self.backing = [self.planned[part.name].backing for part in options.parts]
        self.changelogs = [topic for part in options.parts for _, topic in self.planned[part.name].changelogs]
        self.broker.stale_topics = frozenset((*self.backing, *self.changelogs))
        self._sender = self.broker.sender("sender")
        self._incarnations = 0
        self._depth = 0
        self.poison = self._poisoned()
        self._operator = Operator(self)

    @property
    def blames_poison(self) -> bool:
        """See `Options`; the strategies that the operator has changed are behind it."""
        return self._blames_poison

    @property
    def repeats(self) -> bool:
        """Whether a delivery may have its outcomes more than once."""
        return any(AT_LEAST_ONCE in found for found in self.strategies.values())

    @property
    def drops(self) -> bool:
        """Whether a delivery may have no outcome."""
        return any(AT_MOST_ONCE in found for found in self.strategies.values())

    def note_lost(self, name: str, partitions: Sequence[int]) -> None:
        """A worker gets tasks, or gives them back: what they had taken may be dropped (W2, W4)."""
        for partition in partitions:
            self.lost[name, partition].append(len(self.broker.topics.arrivals or ()))

    def run(self) -> None:
        """
        Faults, then none: everything must be delivered.

        Raises:
            Stuck: it is not.
        """
        for number in range(self.options.workers):
            self._start(f"w{number}")
        self.swarm.on = True
        for at in range(self.options.steps):
            self._send(at)
            self._turn()
            self._operate()
        self._send(self.options.steps)
        self._heal()

    # What happens to strands.

    def at(self, process: Runner, moment: str, effect: str, worker: ProcessorWorker | None = None) -> None:
        """The hook of every interpreter: here processes die, and strands stand still."""
        if process.alive and not self.swarm.on:
            return
        if (
            worker
            and self.options.ahead
            and process.alive
            and (moment, effect) in AHEAD
            and any(lane.task.pipelined and lane.task.state in COMMITTING for lane in worker.lanes.values())
            and self.swarm.happens("ahead", f"{moment} {effect}")
        ):
            self._call_ahead(process, worker)
        if process.alive and self.swarm.happens("kill", f"{process.incarnation} {moment} {effect}"):
            process.kill()
        elif process.alive and self._depth < DEPTH and self.swarm.happens("pause", f"{moment} {effect}"):
            self._meanwhile(self.random.choice((1, 4, 12)))
            if self.random.random() < 0.3:
                self._expire(process)
                self._meanwhile(self.random.choice((4, 16)))
        if not process.alive:
            raise Killed

    def _call_ahead(self, process: Runner, worker: ProcessorWorker) -> None:
        """A commit is under way: more messages come, and the worker's poller and caller go on (P7)."""
        for _ in range(self.random.choice((3, 6))):
            self._send_more(self.random.choice((0, self.options.partitions)))
            process.step(worker, "poll")
            process.step(worker, "call")

    def elapse(self, seconds: float) -> None:
        """A strand waits: others go on, and time passes."""
        if self._depth < DEPTH:
            self._meanwhile(self.random.choice((0, 1, 3)))
        self.clock.advance(seconds)

    def _meanwhile(self, steps: int) -> None:
        self._depth += 1
        for _ in range(steps):
            self._turn()
        self._depth -= 1

    def _turn(self) -> None:
        """Some strands of one worker take one step each."""
        alive = [process for process in self.processes if process.alive]
        if alive:
            process = self.random.choice(alive)
            worker = self.random.choice(process.workers)
            for action in JOINT_ACTIONS if self.options.joint else ACTIONS:
                if self.random.random() < OFTEN[action]:
                    process.step(worker, action)
        if self.swarm.late and self.random.random() < 0.1:
            self.swarm.arrive()

    def trace(self, part: Part, values: Sequence[str], step: Any) -> None:
        assert self.process
        self._look_for_holds(self.process, part)
        made = Traced(part.name, tuple(values), step.hash, step.task, self.process.incarnation, part.strategy)
        self.calls.append(made)
        self.called[part.name, tuple(values)] += 1
        if any(value in self.poison for value in values) and part.strategy != AT_LEAST_ONCE:  # it would never end
            self.process.kill()
            raise Killed
        if self.options.inside and part.strategy != EXACTLY_ONCE:
            process = self.process
            self._disturb(process)
            self.at(process, "inside", "Call")

    def _look_for_holds(self, process: Runner, part: Part) -> None:
        """No call begins in a worker that holds its tasks back. An exception here would become an error message."""
        if any(worker.name == part.name and getattr(worker, "holding", False) for worker in process.workers):
            self.called_while_held.append(part.name)

    def _disturb(self, process: Runner) -> None:
        """In the middle of a call its process is asked to stop, or gets company, or is left alone."""
        at_rest = process.alive and len(process.busy) == 1
        if at_rest and self.swarm.happens("move", "inside a call", times=2):
            if self.random.random() < 0.5:
                process.stop(leave=self.random.random() < 0.5)
            elif sum(other.alive for other in self.processes) < 4:
                self._start(f"x{self._incarnations}")
                self._meanwhile(self.random.choice((4, 12)))

    # What operators do.

    def _operate(self) -> None:
        swarm = self.swarm
        if not any(process.alive for process in self.processes) or self.random.random() < 0.02:
            self._restart()
        if swarm.happens("move", "operator"):
            self._move()
        if swarm.happens("compact", "operator"):
            self._compact(self.random.choice([*self.backing, *self.changelogs]))
        if self.random.random() < 0.02:
            self.clock.advance(self.random.choice((0.5, 3.0, 11.0, 70.0)))
        if not any(process.alive for process in self.processes) and swarm.happens("forget", "operator", times=20):
            self._forget()
        self._operator.act()

    def _restart(self) -> None:
        """A dead process comes back."""
        names = {process.name for process in self.processes if process.alive}
        gone = [process.name for process in self.processes if process.name not in names and process.still]
        self.processes = [process for process in self.processes if process.alive or not process.still]
        for name in dict.fromkeys(gone):
            self._start(name)

    def _start(self, name: str) -> None:
        self._incarnations += 1
        kind: type[Runner] = Query if self.options.slots else Process
        self.processes.append(kind(self, name, f"run{self._incarnations}"))

    def _move(self) -> None:
        alive = [process for process in self.processes if process.alive and process.still]
        match self.random.choice(("join", "leave", "stop", "expire")):
            case "join" if len(alive) < 4:
                self._start(f"x{self._incarnations}")
            case "leave" if len(alive) > 1:
                process = self.random.choice(alive)
                process.stop(leave=True)
                self.processes.remove(process)
            case "stop" if alive:
                self.random.choice(alive).stop(leave=False)
            case "expire" if alive:
                self._expire(self.random.choice(alive))

    def _expire(self, process: Runner) -> None:
        """The group gives up a member that may well be alive."""
        for member in process.members:
            metadata = member.metadata()
            try:
                self.broker.expire(metadata.group, metadata.token[1] or metadata.token[0])
            except BrokerError:
                continue  # it is out already

    def _compact(self, topic: str) -> None:
        self.remember(topic)
        self.broker.compact(topic)

    def _forget(self) -> None:
        """Offsets of groups without members expire."""
        for part in self.options.parts:
            group = self.planned[part.name].group
            if not self.broker.members(group):
                self.broker.forget_offsets(group)

    def remember(self, topic: str) -> None:
        """Keep what compaction may remove."""
        kept = self.history.setdefault(topic, {})
        for message in self.broker.messages(topic):
            kept[message.partition(), message.offset()] = message

    def _send(self, at: int) -> None:
        """Messages by and by, so that all have been sent when the schedule is over."""
        options = self.options
        due = options.messages * (at + 1) // options.steps if at < options.steps else options.messages
        self._send_more(due - sum(map(len, self.sent.values())))

    def _send_more(self, count: int) -> None:
        options, first = self.options, sum(map(len, self.sent.values()))
        for number in range(first, min(first + count, options.messages)):
            source = options.sources[number % len(options.sources)]
            value = f"{source}.{number}"
            self._sender.send([(source, None, b"k%d" % (number % 11), _encode(value), None, 0)])
            self.sent[source].append(value)

    def _poisoned(self) -> frozenset[str]:
        options = self.options
        numbers = self.random.sample(range(options.messages), min(options.poison, options.messages))
        return frozenset(f"{options.sources[n % len(options.sources)]}.{n}" for n in numbers)

    # Healed.

    def _heal(self) -> None:
        self.at_healing = sum(record.step for _, state in self.state() for _, _, _, record, *_ in state if record)
        self.swarm.heal()
        self.held.clear()
        self.broker.transactions.timeouts = False
        idle = 0
        for _ in range(HEALED_TURNS):
            self._restart()
            idle = 0 if self._round() else idle + 1
            if idle == IDLE_TURNS:
                # Sessions of the dead end; who was told nothing yet may be given something now.
                self.clock.advance(11.0)
            if idle > 2 * IDLE_TURNS:
                return
        tasks = [
            f"{name}/{partition} of {who} is {state.value}"
            for who, tasks in self.state()
            for name, partition, state, *_ in tasks
        ]
        raise Stuck(f"not delivered within {HEALED_TURNS} turns of all workers: {', '.join(tasks)}")

    def _round(self) -> bool:
        """Everybody takes every step once; whether anything happened or is waited for."""
        before = self.state()
        for process in [process for process in self.processes if process.alive]:
            for worker in process.workers:
                process.step(worker, "poll")
                process.step(worker, "call")
                while process.step(worker, "work") or process.step(worker, "session"):
                    pass
        if self.state() != before:
            return True
        wakes = [at for process in self.processes if process.alive for at in process.wakes()]
        if wakes:
            self.clock.advance(min(wakes) - self.clock.monotonic())
        return bool(wakes)

    def state(self) -> list[Any]:
        """What changes while there is something to do."""
        return [(process.incarnation, process.state()) for process in self.processes if process.alive]

    def digest(self) -> str:
        """Of everything that was committed: the same for the same options. Error messages carry the machine's time."""
        found = hashlib.blake2b(digest_size=8)
        for topic in sorted({*self.graph.topics_used(), *self.backing, *self.changelogs}):
            for m in self.broker.messages(topic):
                value = None if topic == ERRORS else m.value()
                found.update(repr((topic, m.partition(), m.offset(), m.key(), value, m.headers())).encode())
        return found.hexdigest()


_encode = JsonCodec().encode

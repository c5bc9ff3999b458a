"""What `start` does: it checks what was asked for, prepares the cluster, and makes the workers of a process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, fields, replace
from functools import partial

from cues_kafka.brokers.open import open_broker
from cues_kafka.brokers.options import Kafka, Memory, Options
from cues_kafka.errors import ConfigError
from cues_kafka.graph.dataframe import DataFrameProcessor
from cues_kafka.graph.declare import CallPolicy, CommitPolicy
from cues_kafka.graph.definition import Graph
from cues_kafka.graph.names import control_topic, group_id, quoted, status_topic
from cues_kafka.graph.packages import require_packages
from cues_kafka.graph.processor import Processor
from cues_kafka.observe.http import listen
from cues_kafka.observe.log import get_logger
from cues_kafka.plan.edges import refuse_weaker, required_level
from cues_kafka.plan.inspectors import Terms
from cues_kafka.plan.plan import Plan
from cues_kafka.plan.topics import Sides
from cues_kafka.ports.broker import Broker
from cues_kafka.ports.facts import ClusterFacts
from cues_kafka.ports.observer import Observer, RunObserver
from cues_kafka.running.collector import Collector
from cues_kafka.running.given import check_start
from cues_kafka.running.native import NativeWorkers
from cues_kafka.running.running import Running
from cues_kafka.running.status_writer import StatusWriter, owner_of_process
from cues_kafka.task.clock import SystemClock
from cues_kafka.task.interpreter import Hook
from cues_kafka.task.making.apart import Apart
from cues_kafka.task.making.patterns import PatternLook, resolved, resolved_at
from cues_kafka.task.making.prepare import prepare, prepared, selected, selected_feeds
from cues_kafka.task.making.specs import Identity
from cues_kafka.task.making.system import System
from cues_kafka.task.workers import Engine, Job, Worker
from cues_kafka.workers.pauses import Pauses

log = get_logger("cues_kafka.start")


@dataclass(frozen=True, slots=True)
class StartArguments:
    """The arguments of `start`, which says what they mean."""

    graph: Graph
    options: Options
    engine: Engine | None
    only: Sequence[str] | None
    instance: str | None
    policy: CommitPolicy | None
    calls: CallPolicy | None
    timeout_s: float | None
    new: Sequence[str]
    create_topics: bool
    require: str | None
    observers: Sequence[Observer]
    http: str | None
    hook: Hook | None

    @property
    def runtime(self) -> str:
        """Where the processors run, in records and logs."""
        if self.engine is not None:
            return self.engine.runtime
        return "memory" if isinstance(self.options, Memory) else "native"


@dataclass(frozen=True, slots=True)
class Ready:
    """
    A graph that is prepared on a cluster.

    Attributes:
        broker: the cluster.
        graph: with the topics that match its patterns.
        only: the processors that run here; None: all.
        terms: what the plan was checked against.
        apart: what takes databases that do not answer; None: nothing does.
        planned: its names on the cluster.
        facts: of its topics.
    """

    broker: Broker
    graph: Graph
    only: Sequence[str] | None
    terms: Terms
    apart: Apart | None
    planned: Plan
    facts: ClusterFacts


def begin(asked: StartArguments) -> Running:
    """Run a graph. See `start`."""
    _check(asked)
    options, engine = asked.options, asked.engine
    if engine is None:  # an engine's processes are elsewhere
        require_packages(asked.graph, asked.only)  # before the topics of patterns are looked for, which connects
    graph, only, new = resolved_at(asked.graph, options, asked.only, asked.new)
    only = _runnable(graph, engine, only)
    if asked.require is not None:
        refuse_weaker(graph, required_level(asked.require, where="start(require=...):"), only)
    with ExitStack() as undo:
        endpoint = listen(asked.http) if asked.http is not None else None
        if endpoint is not None:
            undo.callback(endpoint.close)
        broker = open_broker(options)
        undo.callback(broker.close)
        ready = _prepare(asked, graph, only, new, broker)
        patience_s = options.start_timeout_s if isinstance(options, Kafka) else 0.0
        system = System({} if engine else graph.system, patience_s=patience_s)
        undo.pop_all()
    identity = Identity.of_process(asked.runtime, asked.instance)
    collector, observers = Collector(SystemClock()), asked.observers
    running = Running(
        *(graph, broker, system),
        name=identity.name,
        planned=ready.planned,
        cluster=options,
        observers=[
            one for one in (*observers, *([ready.apart] if ready.apart else [])) if isinstance(one, RunObserver)
        ],
        runtime=asked.runtime,
        collector=collector,
        endpoint=endpoint,
    )
    try:
        _run(replace(asked, observers=(*observers, collector.tally)), ready, running, system, identity)
    except BaseException:
        running.abandon()
        raise
    return running


def _check(asked: StartArguments) -> None:
    graph = asked.graph
    if not isinstance(graph, Graph):
        raise ConfigError(
            f"start({graph!r:.80}, ...): the first argument is the graph, not {type(graph).__name__}. Write "
            "start(Graph(...), Kafka(...)); a name of the form MODULE:GRAPH is for the commands"
        )
    check_start({field.name: getattr(asked, field.name) for field in fields(asked)})


def _runnable(graph: Graph, engine: Engine | None, only: Sequence[str] | None) -> Sequence[str] | None:
    """
    The processors that run here; None: all.

    Raises:
        ConfigError: the engine, or this process, cannot run what was asked for.
    """
    if engine is None:
        if frames := sorted(name for name in graph.dataframes if only is None or name in only):
            raise ConfigError(
                f"processors {frames} work on DataFrames, not in native workers: leave them out with only="
            )
        return only
    if graph.cuts is not None:
        raise ConfigError(
            f"graph {graph.name!r} has cuts=, which needs workers that pause: run it natively, or leave cuts= out "
            f"to run it on {engine.runtime}"
        )
    only = carried(graph, engine, only)
    engine.check(graph, only)
    return only


def _prepare(
    asked: StartArguments, graph: Graph, only: Sequence[str] | None, new: Sequence[str], broker: Broker
) -> Ready:
    options = asked.options
    everyone = None if isinstance(options, Memory) else list(only or graph.all_processors)
    accept = isinstance(options, Kafka) and options.accept_unchecked
    terms = Terms(everyone, new, asked.create_topics, accept, options)
    apart = None
    if asked.engine is None and asked.timeout_s is None:  # a caller that waits for all first records wants an error
        apart = Apart(partial(prepared, graph, terms=terms, broker=broker))
    planned, facts = prepare(graph, broker, only=only, terms=terms, apart=apart)
    for warning in planned.warnings:
        log.info("plan", warning=warning)
    return Ready(broker, graph, only, terms, apart, planned, facts)


def _run(asked: StartArguments, ready: Ready, running: Running, system: System, identity: Identity) -> None:
    """Make the workers, and have the handle run them."""
    graph, only, broker, options, engine = ready.graph, ready.only, ready.broker, asked.options, asked.engine
    processors = [] if engine else selected(graph, only)
    feeds = [] if engine else selected_feeds(graph, only)
    names = list(only or ()) if engine else [*(p.name for p in processors), *(feed.name for feed in feeds)]
    pauses = _pauses(graph, broker, options, names, running)
    held = _held(pauses, ready.apart, running)
    workers: list[Worker] = []
    if engine is not None:
        about = (options, ready.planned, ready.facts, broker, running.changed, held)
        with ThreadPoolExecutor(len(names) or 1, thread_name_prefix="make") as pool:  # an engine asks its processes
            workers += pool.map(lambda name: engine.worker(Job(graph, name, *about)), names)
    make = NativeWorkers(
        *(broker, options, system, identity, asked.instance, asked.policy or CommitPolicy()),
        *(asked.calls or CallPolicy(), asked.hook, asked.observers, held),
        *(ready.apart.away if ready.apart else _none_away, running.changed),
    )
    workers += [make.processor(graph, processor, ready.planned, ready.facts) for processor in processors]
    workers += [make.feed(graph, feed, ready.planned, ready.facts) for feed in feeds]
    status = None
    if Sides.of(options).of_graph(graph).status:
        status = StatusWriter(
            broker,
            status_topic(graph.name),
            owner_of_process(identity),
            every_s=options.status_every_s,
            clock=SystemClock(),
            collect=running.collect,
            pause=pauses.token if pauses else _never_held,
        )
    look = None
    if asked.graph.patterns and engine is None:
        grow = partial(_grow, asked.graph, asked.only, ready.terms, running=running, make=make)
        look = PatternLook(asked.graph, broker, asked.only, lambda: running.names, grow)
    running.run(workers, timeout_s=asked.timeout_s, pauses=pauses, status=status, patterns=look)


def _grow(
    template: Graph, chosen: Sequence[str] | None, terms: Terms, *, running: Running, make: NativeWorkers
) -> None:
    """
    Run the processors of topics that match a pattern since the start.

    Raises:
        CuesError: the cluster does not answer, or the graph with the new topics must not run.
    """
    broker = make.broker
    graph, only, new = resolved(template, broker, chosen, terms.new)
    everyone = None if terms.names is None else list(only or graph.all_processors)
    planned, facts = prepare(graph, broker, only=only, terms=replace(terms, names=everyone, new=new))
    processors = [one for one in selected(graph, only) if one.name not in running.names]
    running.grow(graph, planned, [make.processor(graph, one, planned, facts) for one in processors])
    log.info("new topics", topics=quoted(one.lead for one in processors))


def _pauses(graph: Graph, broker: Broker, options: Options, names: Sequence[str], running: Running) -> Pauses | None:
    """What holds back the workers of these processors; None: nothing does."""
    if not names or not Sides.of(options).of_graph(graph).control:
        return None
    topic, group, required = control_topic(graph.name), group_id(graph.name, names[0]), graph.cuts is not None
    return Pauses(broker, topic, group, SystemClock(), running.look, required=required)


def _held(pauses: Pauses | None, apart: Apart | None, running: Running) -> Callable[[str], str]:
    """Why the tasks of a processor are held back now."""
    held: Callable[[str], str] = pauses.why if pauses else _never_held
    if apart is None:
        return held
    apart.changed = running.look
    return apart.over(held)


def _never_held(_: str) -> str:
    return ""


def _none_away(_: str) -> None:
    return None


def carried(graph: Graph, engine: Engine, only: Sequence[str] | None) -> list[str]:
    """
    The processors that an engine runs: those that were asked for, else all that it can run.

    The others are logged with the reason.

    Raises:
        ConfigError: the engine cannot run one that was asked for, or none at all.
    """
    everyone: list[Processor | DataFrameProcessor] = [*graph.processors.values(), *graph.dataframes.values()]
    selected(graph, only)  # unknown names
    asked = [part for part in everyone if only is None or part.name in only]
    reasons = {part.name: why for part in asked if (why := engine.refuses(graph, part))}
    names = [part.name for part in asked if part.name not in reasons]
    reasons |= {
        name: "it is a feed, which reads a source outside of Kafka; run it natively, next to it"
        for name in graph.feeds
        if only is None or name in only
    }
    said = "; ".join(f"{name}: {why}" for name, why in reasons.items())
    if reasons and (only is not None or not names):
        raise ConfigError(f"{engine.runtime} cannot run {said}")
    if reasons:
        log.warning("not run here", runtime=engine.runtime, reasons=said)
    return names

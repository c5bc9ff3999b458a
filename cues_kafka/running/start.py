"""`start`: a graph on a cluster, in this process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from cues_kafka.arguments import known_call
from cues_kafka.brokers.open import open_broker
from cues_kafka.brokers.options import Kafka, Memory, Options
from cues_kafka.errors import ConfigError
from cues_kafka.graph.dataframe import DataFrameProcessor
from cues_kafka.graph.declare import CallPolicy, CommitPolicy
from cues_kafka.graph.definition import Graph
from cues_kafka.graph.names import control_topic, group_id, quoted, status_topic
from cues_kafka.graph.packages import require_packages
from cues_kafka.graph.processor import Processor
from cues_kafka.observe.http import Endpoint, listen
from cues_kafka.observe.log import get_logger
from cues_kafka.plan.edges import refuse_weaker, required_level
from cues_kafka.plan.inspectors import Terms
from cues_kafka.plan.topics import Sides
from cues_kafka.ports.broker import Broker
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
from cues_kafka.workers.worker import ProcessorWorker

log = get_logger("cues_kafka.start")


@known_call(ConfigError)
def start(
    graph: Graph,
    options: Kafka | Memory,
    *,
    engine: Engine | None = None,
    only: Sequence[str] | None = None,
    instance: str | None = None,
    policy: CommitPolicy | None = None,
    calls: CallPolicy | None = None,
    timeout_s: float | None = 60.0,
    new: Sequence[str] = (),
    create_topics: bool = True,
    require: str | None = None,
    observers: Sequence[Observer] = (),
    http: str | None = None,
    hook: Hook | None = None,
) -> Running:
    """
    Run a graph in this process, and return when every task has its first record.

    Start it in more processes or on more machines to share the work: each partition of each processor is one task, and
    the group gives every task to one process.

    Args:
        graph: what to run.
        options: the cluster.
        engine: where the processors run; None: in this process.
        only: names of the processors to run here; None: all that the engine can run.
        instance: a name that this process shares with its successor, so that the successor takes over at once.
        policy: when batches are committed at the latest.
        calls: what to do about calls that take long; None: log them after 60 s.
        timeout_s: how long to wait for the first records; None: do not wait, and raise neither for tasks that stop
            nor for databases and stores that do not answer, whose processors then wait until they do.
        new: names of processors that are new, not renamed, although the graph has lost others. Needed until they have
            a record of their own.
        create_topics: create missing topics; else they are refused.
        require: the level that each edge of what runs here must keep, such as `exactly-once`; None: none. A graph with
            a weaker edge is refused, and the text names the edge with its remedy.
        observers: told what the tasks of this process do, such as `OpenLineage(...)` and `Spans(...)`; see
            `ports.Observer`. An engine's tasks live elsewhere, so with an engine only the start and the end of the run
            are told.
        http: where to serve `/healthz`, `/readyz` and `/metrics`: `HOST:PORT`, `PORT` for this machine only, or
            `unix:PATH`; None: nowhere.
        hook: called before and after each effect of a task; for tests that kill.

    Raises:
        MissingExtra: a native worker needs packages that are not installed.
        ConfigError: an argument is not what it takes, the plan is refused, an edge is weaker than `require`, a
            processor cannot run here, or nothing can listen at `http`.
        BrokerError: the cluster does not answer.
        FactoryError: a factory of `system=` still raises after `start_timeout_s`; its exception is the cause.
        TaskStopped: a task refuses to start.
    """
    if not isinstance(graph, Graph):
        raise ConfigError(
            f"start({graph!r:.80}, ...): the first argument is the graph, not {type(graph).__name__}. Write "
            "start(Graph(...), Kafka(...)); a name of the form MODULE:GRAPH is for the commands"
        )
    check_start({
        "engine": engine, "only": only, "instance": instance, "policy": policy, "calls": calls, "timeout_s": timeout_s,
        "new": new, "require": require, "observers": observers, "http": http, "hook": hook,
    })  # fmt: skip
    template, chosen = graph, only
    _check_packages(graph, only, engine)  # before the topics of patterns are looked for, which connects
    graph, only, new = resolved_at(graph, options, only, new)
    if engine is not None:
        if graph.cuts is not None:
            raise ConfigError(
                f"graph {graph.name!r} has cuts=, which needs workers that pause: run it natively, or leave cuts= out "
                f"to run it on {engine.runtime}"
            )
        only = carried(graph, engine, only)
        engine.check(graph, only)
    elif frames := sorted(name for name in graph.dataframes if only is None or name in only):
        raise ConfigError(f"processors {frames} work on DataFrames, not in native workers: leave them out with only=")
    _check_level(graph, require, only)
    endpoint = listen(http) if http is not None else None
    try:
        broker = open_broker(options)
    except BaseException:
        _close(endpoint)
        raise
    try:
        everyone = None if isinstance(options, Memory) else list(only or graph.all_processors)
        accept = isinstance(options, Kafka) and options.accept_unchecked
        terms = Terms(everyone, new, create_topics, accept, options)
        apart = _apart(graph, broker, terms, engine, timeout_s)
        planned, facts = prepare(graph, broker, only=only, terms=terms, apart=apart)
        for warning in planned.warnings:
            log.info("plan", warning=warning)
        patience_s = options.start_timeout_s if isinstance(options, Kafka) else 0.0
        system = System({} if engine else graph.system, patience_s=patience_s)
    except BaseException:
        broker.close()
        _close(endpoint)
        raise
    runtime = engine.runtime if engine else "memory" if isinstance(options, Memory) else "native"
    identity = Identity.of_process(runtime, instance)
    collector = Collector(SystemClock())
    running = Running(
        *(graph, broker, system),
        name=identity.name,
        planned=planned,
        cluster=options,
        observers=[one for one in (*observers, *([apart] if apart else [])) if isinstance(one, RunObserver)],
        runtime=runtime,
        collector=collector,
        endpoint=endpoint,
    )
    observers = (*observers, collector.tally)
    try:
        workers: list[Worker] = []
        native: list[ProcessorWorker] = []
        processors = [] if engine else selected(graph, only)
        feeds = [] if engine else selected_feeds(graph, only)
        names = list(only or ()) if engine else [*(p.name for p in processors), *(feed.name for feed in feeds)]
        pauses = _pauses(graph, broker, options, names, running)
        held = _held(pauses, apart, running)
        if engine is not None:
            jobs = [Job(graph, name, options, planned, facts, broker, running.changed, held) for name in only or ()]
            workers += map(engine.worker, jobs)
        make = NativeWorkers(
            *(broker, options, system, identity, instance, policy or CommitPolicy(), calls or CallPolicy(), hook),
            *(observers, held, apart.away if apart else _none_away, running.changed),
        )
        native += [make.processor(graph, processor, planned, facts) for processor in processors]
        native += [make.feed(graph, feed, facts) for feed in feeds]
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
        if template.patterns and engine is None:
            grow = partial(_grow, template, chosen, terms, running=running, make=make)
            look = PatternLook(template, broker, chosen, lambda: running.names, grow)
        running.run([*workers, *native], timeout_s=timeout_s, pauses=pauses, status=status, patterns=look)
    except BaseException:
        running.abandon()
        raise
    return running


def _check_packages(graph: Graph, only: Sequence[str] | None, engine: Engine | None) -> None:
    """Refuse a graph whose packages are not installed here; an engine's processes are elsewhere."""
    if engine is None:
        require_packages(graph, only)


def _check_level(graph: Graph, require: str | None, only: Sequence[str] | None) -> None:
    """Refuse a graph with an edge that is weaker than what is required."""
    if require is not None:
        refuse_weaker(graph, required_level(require, where="start(require=...):"), only)


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


def _apart(graph: Graph, broker: Broker, terms: Terms, engine: Engine | None, timeout_s: float | None) -> Apart | None:
    """What takes databases that do not answer; None: a caller that waits for all first records wants an error."""
    if engine is not None or timeout_s is not None:
        return None
    return Apart(partial(prepared, graph, terms=terms, broker=broker))


def _held(pauses: Pauses | None, apart: Apart | None, running: Running) -> Callable[[str], str]:
    """Why the tasks of a processor are held back now."""
    held: Callable[[str], str] = pauses.why if pauses else _never_held
    if apart is None:
        return held
    apart.changed = running.look
    return apart.over(held)


def _close(endpoint: Endpoint | None) -> None:
    if endpoint is not None:
        endpoint.close()


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

"""`start`: a graph on a cluster, in this process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from cues_kafka.arguments import known_call
from cues_kafka.brokers.open import open_broker
from cues_kafka.brokers.options import Kafka, Memory, Options
from cues_kafka.errors import ConfigError
from cues_kafka.graph.declare import CommitPolicy
from cues_kafka.graph.definition import Graph
from cues_kafka.graph.names import control_topic, group_id, status_topic
from cues_kafka.graph.processor import DataFrameProcessor, Processor
from cues_kafka.observe.http import Endpoint, listen
from cues_kafka.observe.log import get_logger
from cues_kafka.observe.spans import Spans
from cues_kafka.plan.inspectors import Terms
from cues_kafka.plan.topics import Sides
from cues_kafka.ports import Broker, Observer, RunObserver
from cues_kafka.runtime.apart import Apart
from cues_kafka.runtime.build import caller_of, state_dir_of
from cues_kafka.runtime.collector import Collector
from cues_kafka.runtime.feeds.worker import FeedWorker, feed_spec_of, feeding_of
from cues_kafka.runtime.given import check_start
from cues_kafka.runtime.native.pauses import Pauses
from cues_kafka.runtime.native.worker import CallPolicy, ProcessorWorker, WorkerOptions
from cues_kafka.runtime.prepare import prepare, prepared, selected, selected_feeds
from cues_kafka.runtime.running import Running
from cues_kafka.runtime.specs import Identity, spec_of
from cues_kafka.runtime.status_writer import StatusWriter, owner_of_process
from cues_kafka.runtime.system import System
from cues_kafka.runtime.task.clock import SystemClock
from cues_kafka.runtime.task.interpreter import Hook
from cues_kafka.runtime.workers import Engine, Job, Worker

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
        observers: told what the tasks of this process do, such as `OpenLineage(...)` and `Spans(...)`; see
            `ports.Observer`. An engine's tasks live elsewhere, so with an engine only the start and the end of the run
            are told.
        http: where to serve `/healthz`, `/readyz` and `/metrics`: `HOST:PORT`, `PORT` for this machine only, or
            `unix:PATH`; None: nowhere.
        hook: called before and after each effect of a task; for tests that kill.

    Raises:
        ConfigError: an argument is not what it takes, the plan is refused, a processor cannot run here, or nothing can
            listen at `http`.
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
        "new": new, "observers": observers, "http": http, "hook": hook,
    })  # fmt: skip
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
        for processor in processors:
            width = facts.topics[processor.lead].partitions
            native.append(
                ProcessorWorker(
                    processor.name,
                    broker=broker,
                    clock=SystemClock(),
                    caller=caller_of(
                        *(graph, processor, facts, system.values, broker.max_bytes),
                        cluster=options,
                        state_dir=state_dir_of(options, facts),
                        spans=next((one for one in observers if isinstance(one, Spans)), None),
                    ),
                    spec_of=spec_of(graph, planned, processor, width, identity),
                    options=WorkerOptions(
                        instance=instance,
                        policy=processor.commit or policy or CommitPolicy(),
                        revoke_timeout_s=_revoke_timeout_s(options),
                        calls=calls or CallPolicy(),
                        hook=hook,
                        observers=observers,
                        held=held,
                    ),
                    changed=running.changed,
                )
            )
        native += [
            FeedWorker(
                feeding_of(graph, feed, facts, broker.max_bytes, cluster=options),
                broker=broker,
                clock=SystemClock(),
                spec_of=feed_spec_of(graph, feed, identity),
                options=WorkerOptions(
                    instance=instance,
                    policy=feed.commit or policy or CommitPolicy(),
                    revoke_timeout_s=_revoke_timeout_s(options),
                    calls=calls or CallPolicy(),
                    hook=hook,
                    observers=observers,
                    held=held,
                ),
                changed=running.changed,
            )
            for feed in feeds
        ]
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
        running.run([*workers, *native], timeout_s=timeout_s, pauses=pauses, status=status)
    except BaseException:
        running.abandon()
        raise
    return running


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


def _revoke_timeout_s(options: Kafka | Memory) -> float:
    """How long a revocation may wait: less than a third of `max.poll.interval.ms` (A3)."""
    return options.max_poll_interval_s * 0.3 if isinstance(options, Kafka) else 30.0

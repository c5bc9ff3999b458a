"""`start`: a graph on a cluster, in this process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from cues_kafka.arguments import known_call
from cues_kafka.errors import ConfigError

if TYPE_CHECKING:
    from cues_kafka.brokers.options import Kafka, Memory
    from cues_kafka.graph.declare import CallPolicy, CommitPolicy
    from cues_kafka.graph.definition import Graph
    from cues_kafka.ports.observer import Observer
    from cues_kafka.running.running import Running
    from cues_kafka.task.interpreter import Hook
    from cues_kafka.task.workers import Engine


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
    return _begin(
        *(graph, options, engine, only, instance, policy, calls, timeout_s, new, create_topics, require, observers),
        *(http, hook),
    )


def _begin(*arguments: Any) -> Running:
    """Load what runs a graph: a module that declares one imports `start`, and most commands run nothing."""
    from cues_kafka.running.starting import StartArguments, begin  # noqa: PLC0415  # see above

    return begin(StartArguments(*arguments))

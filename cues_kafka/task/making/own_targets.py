"""Targets with transactions that are no database and no store of files: what a plan and a start do with them (E1)."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from cues_kafka.errors import ConfigError, RecoveryError, RetriableError
from cues_kafka.graph.definition import Graph
from cues_kafka.graph.names import backing_topic
from cues_kafka.graph.targets import TransactionalTarget
from cues_kafka.plan.inspectors import Findings, Terms
from cues_kafka.ports.broker import Broker
from cues_kafka.task.making.file_schemas import with_schemas

RETRIED = "; the task is retried"
"""The end of remedies that does not hold for what a start refuses."""


class OwnTargetUse(NamedTuple):
    """
    A target, and who uses it.

    Attributes:
        where: how texts name it: the first processor that uses it, and the name there.
        home: the target, with its columns.
        declared: the same as it is declared.
        processors: all of the graph that use it.
    """

    where: str
    home: TransactionalTarget
    declared: TransactionalTarget
    processors: tuple[str, ...]

    def backing_topics(self, graph: Graph) -> set[str]:
        """The backing topics of its processors: they are there once one has begun."""
        return {backing_topic(graph.name, name) for name in self.processors}


def own_targets(graph: Graph, names: Collection[str] | None = None) -> Iterator[OwnTargetUse]:
    """
    The targets of these processors, each once.

    Raises:
        ConfigError: a table takes its columns from a class, which has none.
    """
    seen: set[Any] = set()
    for processor in graph.processors.values():
        if names is not None and processor.name not in names:
            continue
        typed = with_schemas(graph, processor) if processor.targets else {}
        for key, one in typed.items():
            home = one.home
            if not isinstance(home, TransactionalTarget) or home in seen:
                continue
            seen.add(home)
            declared = processor.targets[key].home
            assert isinstance(declared, TransactionalTarget)
            users = [
                name for name, own in graph.targets.items() if any(other.home == declared for other in own.values())
            ]
            yield OwnTargetUse(f"{processor.name}, effects[{key!r}]", home, declared, tuple(users))


def inspect_own_targets(graph: Graph, broker: Broker, terms: Terms) -> Findings:
    """Ask the targets of a graph what keeps them from working, and what a start would change."""
    refusals: list[str] = []
    warnings: list[str] = []
    changes: list[str] = []
    try:
        found = [*own_targets(graph, terms.names)]
    except ConfigError as error:
        return Findings(refusals=(str(error),))
    for one in found:
        try:
            refusals += (f"{one.where}: {why}" for why in one.home.inspect())
            begun = broker.facts(sorted(one.backing_topics(graph))).topics
            changes += (f"{one.where}: {what}" for what in one.home.changes(first=not begun))
        except (ConfigError, RecoveryError) as error:
            refusals.append(f"{one.where}: {error}{_remedy(error)}")
        except RetriableError as error:  # its tasks ask it again
            warnings.append(f"{one.where}: {error}{_remedy(error)}")
    return Findings(refusals=tuple(refusals), warnings=tuple(warnings), changes=tuple(changes))


def _remedy(error: RecoveryError | RetriableError | ConfigError) -> str:
    return f". Remedy: {error.remedy.removesuffix(RETRIED)}" if error.remedy else ""


@contextmanager
def refused_at(where: str) -> Iterator[None]:
    """Have a refusal say which target it is of."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from error

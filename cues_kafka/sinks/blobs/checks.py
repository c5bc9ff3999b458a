"""What a plan and a start ask a store of files: whether it answers, and whether it refuses to overwrite (E3)."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial

from cues_kafka.errors import ConfigError, RetriableError
from cues_kafka.graph.blobs import PARQUET, Blobs, FileTable
from cues_kafka.graph.definition import Graph
from cues_kafka.graph.names import backing_topic
from cues_kafka.plan.inspectors import Findings, Terms
from cues_kafka.ports.broker import Broker
from cues_kafka.sinks.blobs.marker import is_store, make_store, name_tables, require_store
from cues_kafka.sinks.blobs.store import LOGS, BlobStore
from cues_kafka.sinks.blobs.tables import schema_of
from cues_kafka.sinks.lookup import store_of
from cues_kafka.sinks.patience import PATIENCE_S, asking


def stores(graph: Graph, names: Iterable[str] | None = None) -> dict[str, Blobs]:
    """The stores of the graph's processors, by processor and name; each once."""
    found: dict[Blobs, str] = {}
    for where, one in graph.declared_targets(names):
        if isinstance(one.home, Blobs):
            found.setdefault(one.home, where)
    return {where: one for one, where in found.items()}


def await_store(declared: Blobs, where: str, *, patience_s: float = PATIENCE_S) -> None:
    """
    Ask a store until it answers.

    Args:
        declared: the store.
        where: how texts name it.
        patience_s: for how long it is asked.

    Raises:
        RetriableError: it does not answer.
    """
    with suppress(ConfigError):  # what a plan says of it, together with the rest
        asking("store", where, patience_s)(_listed, declared)


def _listed(declared: Blobs) -> None:
    store_of(declared).names(LOGS)


def make_ready(
    declared: Blobs, where: str, *, first: bool, tables: Iterable[str] = (), patience_s: float = PATIENCE_S
) -> None:
    """
    Make a store where there is none, and refuse one that lets a second writer win, because commits would be lost there.

    Args:
        declared: the store.
        where: how texts name it.
        first: whether no processor has begun that writes to it. Else it must be there: a directory without a marker may
            be that of a mount which is gone.
        tables: the tables that the graph declares in it.
        patience_s: for how long it is asked.

    Raises:
        ConfigError: it lets a second writer win, or the declaration does not fit.
        RetriableError: it is not there, does not answer, or refuses to write.
    """
    if why := asking("store", where, patience_s)(_ready_once, store_of(declared), first, tuple(tables)):
        raise ConfigError(f"{where}: {why}")


def _ready_once(store: BlobStore, first: bool, tables: tuple[str, ...]) -> str:
    if first:
        store.make()
    else:
        require_store(store)
    if why := probe(store):
        return why
    make_store(store)
    name_tables(store, tables)
    return ""


def tables_in(graph: Graph, declared: Blobs) -> set[str]:
    """The names of the tables that a graph has in a store."""
    found = (one for _, one in graph.declared_targets() if isinstance(one, FileTable))
    return {one.table for one in found if one.blobs == declared}


def backing_topics(graph: Graph, declared: Blobs) -> list[str]:
    """The backing topics of the processors that write to a store: they are there once one has begun."""
    targets = graph.targets.items()
    return sorted(
        backing_topic(graph.name, name) for name, own in targets if any(one.home == declared for one in own.values())
    )


def probe(store: BlobStore) -> str:
    """
    Put one object twice, the second time which the store must refuse.

    Returns:
        Why the store cannot hold a log of commits; empty: it can.

    Raises:
        RetriableError: it does not answer.
    """
    path = f"{LOGS}-probe/{secrets.token_hex(8)}"
    try:
        store.create(path, b"first")
        again = store.create(path, b"second")
        found = store.read(path)
    finally:
        with suppress(RetriableError):
            store.delete(path)
    if again or found != b"first":
        return (
            "the store lets a second writer replace an object although the request forbids it "
            "(If-None-Match: *). Exactly-once needs that. Use a store that has it: S3, MinIO, Ceph of 2024 or later, "
            "or file://"
        )
    return ""


def inspect_stores(graph: Graph, broker: Broker, terms: Terms) -> Findings:
    """Ask the stores of a graph whether they answer, and look at the schemas of its tables. Nothing is written."""
    refusals: list[str] = []
    warnings: list[str] = []
    changes: list[str] = []
    asked: list[tuple[str, Callable[[], object]]] = []

    def look(declared: Blobs, where: str) -> None:
        if is_store(store_of(declared)):
            return
        if broker.facts(backing_topics(graph, declared)).topics:
            warnings.append(
                f"{where}: there is no store at its address, and its processors have begun. Mount the directory, or "
                "put the store back. If it shall be a new one, `plan --apply` makes it"
            )
        else:
            changes.append(f"{where}: there is no store at its address yet. `plan --apply` and the first start make it")

    for where, declared in stores(graph, terms.names).items():
        asked.append((where, partial(look, declared, where)))
    for where, one in graph.declared_targets(terms.names):
        if isinstance(one, FileTable) and one.format == PARQUET:
            asked.append((where, partial(schema_of, one)))
    for where, ask in asked:
        try:
            ask()
        except ConfigError as error:
            refusals.append(f"{where}: {error}")
        except RetriableError as error:
            warnings.append(f"{where}: {error}")
    return Findings(refusals=tuple(refusals), warnings=tuple(warnings), changes=tuple(changes))

"""Looks up what implements a declared target."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial

from cues_kafka.errors import ConfigError, GraphError
from cues_kafka.graph.addresses import DatabaseAddress
from cues_kafka.graph.blobs import Blobs, check_address
from cues_kafka.graph.calls import Http
from cues_kafka.graph.effects import Effect, Sql
from cues_kafka.graph.processor import Processor
from cues_kafka.graph.targets import TaskName, TransactionalTarget
from cues_kafka.sinks.blobs.marker import KnownStore
from cues_kafka.sinks.blobs.store import BlobStore, open_store
from cues_kafka.sinks.blobs.target import BlobTarget
from cues_kafka.sinks.calls import Shared
from cues_kafka.sinks.dialect import Dialect
from cues_kafka.sinks.own import OwnTarget
from cues_kafka.sinks.rows import TablesTarget


def open_target(
    declared: Mapping[str, Effect], graph: str, processor: str, partition: int, known: KnownStore | None = None
) -> TablesTarget | BlobTarget | OwnTarget:
    """
    Make the target of one task. It connects when it is first asked.

    Args:
        declared: what the function acts on, by name: the database or the store, or tables of it.
        graph: of the task.
        processor: of the task.
        partition: of the task.
        known: what all tasks of the processor in this process know of a store of files; None: nothing yet.

    Raises:
        ConfigError: a package or the address is missing, or it is no target with transactions.
    """
    inside = {name: one for name, one in declared.items() if one.home is not None}
    home = next((one.home for one in inside.values()), None)
    task = TaskName(graph, processor, partition)
    if isinstance(home, Blobs):
        return BlobTarget(partial(store_of, home), task, inside, known)
    if isinstance(home, TransactionalTarget):
        return OwnTarget(home, task, inside)
    found = next((one.database for one in inside.values()), None)
    if found is None:
        raise ConfigError(f"{', '.join(map(repr, declared.values()))}: no target with transactions of its own")
    return TablesTarget(dialect(found), task, inside)


def dialect(declared: Sql) -> Dialect:
    """
    How to talk to the database that is declared.

    Raises:
        ConfigError: a package or the address is missing, or the address cannot be read.
    """
    url = address(declared)
    match DatabaseAddress(url).dialect:
        case "sqlite":
            from cues_kafka.sinks.sqlite import Sqlite  # noqa: PLC0415

            return Sqlite(url)
        case "postgresql":
            from cues_kafka.sinks.postgres import Postgres  # noqa: PLC0415

            return Postgres(url)
        case "mysql":
            from cues_kafka.sinks.mysql import MySql  # noqa: PLC0415

            return MySql(url)
        case name:
            raise ConfigError(f"{name!r} is not a database that cues-kafka knows: give sqlite, postgresql or mysql")


def address(declared: Sql) -> str:
    """
    The database's address.

    Raises:
        ConfigError: the environment variable is not set.
    """
    if declared.url:
        return declared.url
    if url := os.environ.get(declared.env):
        return url
    raise ConfigError(
        f"Sql(env={declared.env!r}): the environment variable {declared.env} is not set. Set it to the address of the "
        "database: postgresql://user@host/database"
    )


def store_of(declared: Blobs) -> BlobStore:
    """
    Open the store that is declared.

    Raises:
        ConfigError: a package is missing, the options do not fit, or the environment variable is not an address.
    """
    url = declared.url or os.environ.get(declared.env, "").rstrip("/")
    if not url:
        raise ConfigError(
            f"Blobs(env={declared.env!r}): the environment variable {declared.env} is not set. Set it to the address "
            "of the store: s3://bucket/prefix"
        )
    try:
        check_address(url)
    except GraphError as error:
        raise ConfigError(f"Blobs(env={declared.env!r}): {error}") from None
    return open_store(url, declared.options)


def open_calls(declared: Mapping[str, Effect], graph: str, processor: Processor, *, threads: bool) -> Shared:
    """
    Make what the calls of a processor share in one process. It connects when the first call is made.

    Args:
        declared: the effects that its function asks for, by name.
        graph: the graph's name.
        processor: the processor.
        threads: see `Shared`.

    Raises:
        ConfigError: a package or an address is missing.
    """
    servers = {}
    for name, one in declared.items():
        if isinstance(one, Http):
            from cues_kafka.sinks.http import Server  # noqa: PLC0415

            servers[name] = Server(one, name)
    return Shared(servers, f"{graph}.{processor.name}.journal", side_by_side=processor.call.is_async, threads=threads)

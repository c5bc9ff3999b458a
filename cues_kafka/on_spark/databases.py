"""Which databases a session of Spark can write to: those that its executors reach under the address of the driver."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence

from cues_kafka.errors import GraphError
from cues_kafka.graph.definition import Graph
from cues_kafka.graph.effects import Sql, dialect_of


def unreachable(graph: Graph, names: Sequence[str], settings: Mapping[str, str]) -> Iterator[str]:
    """
    Say which of these processors have a database that executors elsewhere do not see, with the remedy.

    Args:
        graph: the graph.
        names: of processors that are to run on Spark.
        settings: of the session.
    """
    master = settings.get("spark.master", "local")
    if master.startswith("local"):
        return
    for name in names:
        part = graph.dataframes.get(name) or graph.processors.get(name)
        databases = [] if part is None else [one.database for one in part.targets.values()]
        if any(one is not None and _is_file(one) for one in databases):
            yield (
                f"processor {name!r} writes to SQLite, which is a file of one machine, and the session's master is "
                f"{master!r}, whose executors may be on others. Give a database server, such as PostgreSQL or MariaDB, "
                f"run it with master local[*], or run it natively: --only {name}"
            )


def _is_file(declared: Sql) -> bool:
    try:
        return dialect_of(declared.url or os.environ.get(declared.env, "")) == "sqlite"
    except GraphError:  # it is refused where it is used, with the reason
        return False

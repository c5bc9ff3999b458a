"""Read a query's checkpoint: its id, and where the sources of each micro-batch end before the batch is called."""

from __future__ import annotations

import json
from typing import Any

from cues_kafka.errors import ConfigError
from cues_kafka.on_spark.query.files import delete, names, read_text


def source_ends(session: Any, checkpoint: str, number: int) -> list[Any]:
    """
    Return the ends of a batch, one for each source of the query in Spark's order; None for a source without an offset.

    A file of the checkpoint's offset log has a version, metadata, and a line for each source.

    Args:
        session: of Spark, which can read the checkpoint's file system.
        checkpoint: the query's directory.
        number: of the batch.

    Raises:
        ConfigError: the file is empty or cut.
    """
    file = f"{checkpoint}/offsets/{number}"
    lines = [line.strip() for line in read_text(session, file).splitlines()[2:]]
    found = [None if line == "-" else _parsed(file, line) for line in lines if line]
    if not found:
        raise ConfigError(_cut(file))
    return found


def batch_ends(session: Any, checkpoint: str, number: int) -> dict[str, Any]:
    """
    Return the end of a batch, as the query's only source gave it; the batch starts where the one before it ends.

    Raises:
        ConfigError: the query has several sources.
    """
    sources = [source for source in source_ends(session, checkpoint, number) if source is not None]
    if len(sources) != 1:
        raise ConfigError(f"the query has {len(sources)} sources. Direct writing takes one; split it into queries.")
    found: dict[str, Any] = sources[0]
    return found


def query_id(session: Any, checkpoint: str) -> str:
    """
    The id of the query, which is the same after each restart from its checkpoint.

    Raises:
        ConfigError: the file is empty or cut.
    """
    file = f"{checkpoint}/metadata"
    plain = _parsed(file, read_text(session, file))
    if not isinstance(plain, dict) or "id" not in plain:
        raise ConfigError(_cut(file))
    return str(plain["id"])


def known_query(session: Any, checkpoint: str) -> str:
    """The id if a query was ever started from this checkpoint, else nothing."""
    try:
        return query_id(session, checkpoint)
    except FileNotFoundError:
        return ""


def drop_unfinished(session: Any, checkpoint: str) -> None:
    """
    Delete the file of a driver that was killed while it wrote the offsets of its first batch.

    Spark writes offsets under a temporary name first. If that file is the only one, Spark takes the checkpoint of a
    query with state for one of another query, and refuses it at each start.

    Args:
        session: of Spark, with its Java; the checkpoint may be on any of its file systems.
        checkpoint: the query's directory.
    """
    found = {log: names(session, f"{checkpoint}/{log}") for log in ("offsets", "commits")}
    if any(name.isdecimal() for kept in found.values() for name in kept):
        return
    for log, kept in found.items():
        for name in kept:
            if name.startswith("."):
                delete(session, f"{checkpoint}/{log}/{name}")


def _parsed(file: str, text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        raise ConfigError(_cut(file)) from None


def _cut(file: str) -> str:
    return (
        f"{file} is empty or cut, as a full disk or a crash leaves it. Make room on that disk, and start the query "
        "again: it then looks at its checkpoint, and says what to do if it needs the file"
    )

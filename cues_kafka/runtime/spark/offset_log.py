"""What a query's checkpoint says: its id, and of each micro-batch, before it is called for, where its sources end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from cues_kafka.errors import ConfigError


def batch_ends(session: Any, checkpoint: str, number: int) -> dict[str, Any]:
    """
    The end of a batch, as the query's only source gave it; the batch starts where the one before it ends.

    One file of the checkpoint's offset log: a version, metadata, and a line for each source.

    Args:
        session: of Spark, which can read the checkpoint's file system.
        checkpoint: the query's directory.
        number: of the batch.

    Raises:
        ConfigError: the query has several sources.
    """
    text = _text(session, f"{checkpoint}/offsets/{number}")
    sources = [json.loads(line) for line in text.splitlines()[2:] if line.strip() not in ("", "-")]
    if len(sources) != 1:
        raise ConfigError(f"the query has {len(sources)} sources. Direct writing takes one; split it into queries.")
    found: dict[str, Any] = sources[0]
    return found


def query_id(session: Any, checkpoint: str) -> str:
    """Of the query, the same after each restart from its checkpoint."""
    return str(json.loads(_text(session, f"{checkpoint}/metadata"))["id"])


def has_jvm(session: Any) -> bool:
    """Whether Java can be reached from this process; with Spark Connect it is elsewhere."""
    return hasattr(session, "_jvm")


def _text(session: Any, path: str) -> str:
    local = Path(path.removeprefix("file:"))
    if local.is_file():
        return local.read_text("utf-8")
    if not has_jvm(session):
        return str(session.read.option("wholetext", True).text(path).collect()[0][0])
    # Not `session.read`: that would be a job of Spark's for a line or two, in each micro-batch.
    jvm = session._jvm  # noqa: SLF001 - Spark offers its file systems to Java only
    place = jvm.org.apache.hadoop.fs.Path(path)
    stream = place.getFileSystem(session._jsc.hadoopConfiguration()).open(place)  # noqa: SLF001
    try:
        return str(jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
    finally:
        stream.close()

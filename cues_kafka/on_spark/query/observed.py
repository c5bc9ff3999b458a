"""What Spark has counted while it computed a micro-batch, asked from inside the batch."""

from __future__ import annotations

from typing import Any


def observed_in(session: Any, query: str) -> dict[str, list[int | None]]:
    """
    The counts of `DataFrame.observe` in the micro-batch that a query computes now, by name.

    Spark reports them when the batch is over, which is too late for what the batch commits. So this asks Java.

    Args:
        session: in which the query was started; it has Java in its driver.
        query: its id.
    """
    running = session.streams.get(query)
    if running is None:
        return {}
    metrics = running._jsq.streamingQuery().lastExecution().observedMetrics().iterator()  # noqa: SLF001 - only Java tells it
    found: dict[str, list[int | None]] = {}
    while metrics.hasNext():
        pair = metrics.next()
        name, row = pair._1(), pair._2()  # noqa: SLF001 - Scala's names
        found[str(name)] = [None if row.isNullAt(place) else int(row.getLong(place)) for place in range(row.length())]
    return found

"""The state of `sessions.py`: the open session of each visitor, and a timer that closes it."""

from collections.abc import Iterator
from typing import Any

from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

GAP_MS = 30 * 60_000


class Sessions(StatefulProcessor):
    """Holds one open session of each visitor: when it began, when its last click was, and how many clicks it has."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the state; Spark calls this first."""
        self._handle = handle
        self._open = handle.getValueState("open", "began_ms BIGINT, ended_ms BIGINT, clicks BIGINT")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        """Handle the clicks of one visitor in one micro-batch, which come in any order."""
        for click in sorted(rows, key=lambda row: row.ms):
            began, ended, clicks = self._open.get() or (click.ms, click.ms, 0)
            if click.ms > ended + GAP_MS:
                yield self._close(key)
                began, ended, clicks = click.ms, click.ms, 0
            self._forget()
            self._open.update((min(began, click.ms), max(ended, click.ms), clicks + 1))
            self._handle.registerTimer(max(ended, click.ms) + GAP_MS)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:  # noqa: N802, N803
        """Close a session whose end the watermark has passed: no click of it can come."""
        yield self._close(key)

    def close(self) -> None:
        """Release nothing."""

    def _close(self, key: Any) -> Row:
        began_ms, ended_ms, clicks = self._forget()
        return Row(visitor=key[0], began_ms=began_ms, ended_ms=ended_ms, clicks=clicks)

    def _forget(self) -> tuple[int, ...]:
        session = self._open.get() or ()
        if session:
            self._handle.deleteTimer(session[1] + GAP_MS)
            self._open.clear()
        return session

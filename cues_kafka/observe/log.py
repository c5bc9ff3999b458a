"""Structured logs: events with `task=`, `step=`, `hash=` keys, never sentences to be parsed."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Mapping, MutableMapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, Protocol

from cues_kafka.words import visible


class Logger(Protocol):
    """The part of a structlog logger that is used here."""

    def debug(self, event: str, **values: Any) -> Any: ...
    def info(self, event: str, **values: Any) -> Any: ...
    def warning(self, event: str, **values: Any) -> Any: ...
    def error(self, event: str, **values: Any) -> Any: ...
    def bind(self, **values: Any) -> Logger: ...


def get_logger(name: str) -> Logger:
    """
    A logger of the standard library's `logging` behind structlog's key-value interface.

    Applications configure `logging` as they always do; nothing is printed below WARNING by default.
    """
    return _OnDemand(name, {})


LINES = 10
"""Lines of one event that one task may write in `INTERVAL_S`."""

INTERVAL_S = 10.0


class Sparing:
    """
    Writes at most `LINES` lines of each event in `INTERVAL_S`; the rest is counted and said in one line afterwards.

    Attributes:
        held: whether occurrences are counted and not yet said: `catch_up` is due some time.
    """

    __slots__ = ("_left", "_lock", "_log", "_windows", "held")

    def __init__(self, log: Logger) -> None:
        self.held = False
        self._lock = threading.RLock()
        self._log = log
        self._windows: dict[str, tuple[float, int]] = {}  # when it began, lines written in it
        self._left: dict[str, int] = {}

    def warning(self, event: str, lines: Sequence[Mapping[str, Any]], count: int, now_s: float) -> None:
        """
        An event that an operator should look at.

        Args:
            event: its name.
            lines: keys and values of its first occurrences.
            count: of all occurrences.
            now_s: monotonic time.
        """
        for values in self._room(event, lines, count, now_s):
            self._log.warning(event, **values)

    def info(self, event: str, values: Mapping[str, Any], now_s: float) -> None:
        """One occurrence of an event that is part of normal work."""
        for one in self._room(event, (values,), 1, now_s):
            self._log.info(event, **one)

    def _room(
        self, event: str, lines: Sequence[Mapping[str, Any]], count: int, now_s: float
    ) -> Sequence[Mapping[str, Any]]:
        with self._lock:
            self.catch_up(now_s)
            began_s, written = self._windows.get(event, (now_s, 0))
            said = lines[: LINES - written]
            self._windows[event] = began_s, written + len(said)
            if count > len(said):
                self.held = True
                self._left[event] = self._left.get(event, 0) + count - len(said)
            return said

    def catch_up(self, now_s: float, *, at_once: bool = False) -> None:
        """
        Say how often an event came without a line, where its interval is over.

        Args:
            now_s: monotonic time.
            at_once: do not wait for the end of the interval: the task is given up.
        """
        with self._lock:
            for event, (began_s, _) in list(self._windows.items()):
                if at_once or now_s - began_s >= INTERVAL_S:
                    del self._windows[event]
                    if count := self._left.pop(event, 0):
                        self._log.warning(event, more=count, in_s=round(now_s - began_s, 1))
            self.held = bool(self._left)


class _OnDemand:
    """
    Loads structlog when the first line is written: its import takes a third of a worker's start.

    Attributes:
        name: of the logger.
        bound: keys that every line carries.
    """

    def __init__(self, name: str, bound: dict[str, Any]) -> None:
        self.name = name
        self.bound = bound
        self._logging = logging.getLogger(name)
        self._structured: Any = None

    def bind(self, **values: Any) -> Logger:
        return _OnDemand(self.name, {**self.bound, **values})

    def debug(self, event: str, **values: Any) -> None:
        self._write(logging.DEBUG, event, values)

    def info(self, event: str, **values: Any) -> None:
        self._write(logging.INFO, event, values)

    def warning(self, event: str, **values: Any) -> None:
        self._write(logging.WARNING, event, values)

    def error(self, event: str, **values: Any) -> None:
        self._write(logging.ERROR, event, values)

    def _write(self, level: int, event: str, values: dict[str, Any]) -> None:
        if not self._logging.isEnabledFor(level):
            return
        if self._structured is None:
            self._structured = _structlog(self._logging).bind(**self.bound)
        self._structured.log(level, event, **values)


def _structlog(logger: logging.Logger) -> Any:
    import structlog  # noqa: PLC0415 - see _OnDemand

    return structlog.wrap_logger(
        logger,
        processors=[structlog.stdlib.filter_by_level, _render],
        wrapper_class=structlog.stdlib.BoundLogger,
        context_class=dict,
    )


def _render(_: Any, __: str, event: MutableMapping[str, Any]) -> tuple[tuple[str], dict[str, Any]]:
    """The line for people; the record has the event with its values besides, for `JsonLog`."""
    name = event.pop("event")
    line = " ".join(
        [name, *(f"{key}={value!r}" if isinstance(value, str) else f"{key}={value}" for key, value in event.items())]
    )
    return (visible(line),), {"extra": {EVENT: (name, dict(event))}}


EVENT: Final = "cues_kafka_event"
"""The attribute of a record of `logging` that has the event and its values."""


class JsonLog(logging.Formatter):
    """
    Formats records of `logging` as JSON, one object a line.

    Each object has `time` (UTC, RFC 3339), `level`, `logger` and `event`. The keys and values of an event follow. The
    event of another library's record is its message, and `exception` is the traceback, if there is one.

    Args:
        worker: the number of this process below its supervisor, which each line then has; None: it has none.
    """

    def __init__(self, worker: int | None = None) -> None:
        super().__init__()
        self._worker = {} if worker is None else {"worker": worker}

    def format(self, record: logging.LogRecord) -> str:
        """The line, without its end."""
        values: dict[str, Any]
        event, values = getattr(record, EVENT, None) or (record.getMessage(), {})
        own = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": event,
        }
        found = {**own, **self._worker, **values, **own}  # these four come first, and keep their values
        if record.exc_info:
            found["exception"] = self.formatException(record.exc_info)
        return json.dumps(found, default=str)

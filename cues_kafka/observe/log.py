"""Structured logs: events with `task=`, `step=`, `hash=` keys, never sentences to be parsed."""

from __future__ import annotations

import logging
from collections.abc import MutableMapping
from typing import Any, Protocol


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


def _render(_: Any, __: str, event: MutableMapping[str, Any]) -> str:
    name = event.pop("event")
    return " ".join(
        [name, *(f"{key}={value!r}" if isinstance(value, str) else f"{key}={value}" for key, value in event.items())]
    )

"""Structured logs: events with `task=`, `step=`, `hash=` keys, never sentences to be parsed."""

from __future__ import annotations

import logging
from collections.abc import MutableMapping
from typing import Any, Protocol

import structlog


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
    logger: Logger = structlog.wrap_logger(
        logging.getLogger(name),
        processors=[
            structlog.stdlib.filter_by_level,
            _render,
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
        context_class=dict,
    )
    return logger


def _render(_: Any, __: str, event: MutableMapping[str, Any]) -> str:
    name = event.pop("event")
    return " ".join(
        [name, *(f"{key}={value!r}" if isinstance(value, str) else f"{key}={value}" for key, value in event.items())]
    )

"""Gives the compiled module to loops that only convert values: they need no client of Kafka."""

from __future__ import annotations

import os
from typing import Any, Final

COMPILED: Final = "CUES_KAFKA_COMPILED"
"""Environment variable: ``0`` never uses the module. The broker's adapter says where it is missed."""


def compiled_module(function: str) -> Any | None:
    """The compiled module, if it has this function: an older one may be installed. None: Python does the same."""
    if os.environ.get(COMPILED) == "0":
        return None
    try:
        import _cues_kafka  # type: ignore[import-not-found]  # noqa: PLC0415 - not everywhere
    except ImportError:
        return None
    return _cues_kafka if hasattr(_cues_kafka, function) else None

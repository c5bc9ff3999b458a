"""Runs graphs: the interpreter does what the core asks for, a runtime gives it threads or slots.

A name is imported when it is first asked for: each Python process of Spark imports modules of this package, and none of
them needs all.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cues_kafka.graph.declare import CallPolicy, CommitPolicy
    from cues_kafka.runtime.calling.step import Received, Step
    from cues_kafka.runtime.client import Client
    from cues_kafka.runtime.running import Running

_LAZY = {
    "CallPolicy": "cues_kafka.graph.declare",
    "Client": "cues_kafka.runtime.client",
    "CommitPolicy": "cues_kafka.graph.declare",
    "Received": "cues_kafka.runtime.calling.step",
    "Running": "cues_kafka.runtime.running",
    "Step": "cues_kafka.runtime.calling.step",
}

__all__ = ["CallPolicy", "Client", "CommitPolicy", "Received", "Running", "Step"]


if not TYPE_CHECKING:  # a type checker would take any misspelt name for one that is found here

    def __getattr__(name: str) -> Any:
        module = _LAZY.get(name)
        if module is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(module), name)

"""Checks the arguments of public calls before anything is opened: the error names the argument, and what it takes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from cues_kafka.errors import ConfigError
from cues_kafka.graph.declare import CallPolicy, CommitPolicy
from cues_kafka.graph.definition import Graph


def check_graph(call: str, graph: Any) -> None:
    """
    Check the second argument of a call that takes a cluster and a graph.

    Raises:
        ConfigError: it is no graph.
    """
    if not isinstance(graph, Graph):
        raise ConfigError(
            f"{call}(..., {graph!r:.80}): the second argument is the graph, not {type(graph).__name__}. Write "
            f"{call}(Kafka(...), Graph(...)); a name of the form MODULE:GRAPH is for the commands."
        )


def check_start(given: Mapping[str, Any]) -> None:
    """
    Check the arguments of `start` by name.

    Raises:
        ConfigError: one is of another kind than what it takes.
    """
    for name, (fits, takes) in _TAKES.items():
        value = given[name]
        if not fits(value) and (value is not None or name in _NEVER_NONE):
            raise ConfigError(f"start({name}={value!r:.80}): takes {takes}.")


def _is_seconds(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _are_names(value: Any) -> bool:
    return _are_several(value) and all(isinstance(one, str) for one in value)


def _are_observers(value: Any) -> bool:
    return _are_several(value) and all(
        not isinstance(one, type) and callable(getattr(one, "committed", None)) for one in value
    )


def _are_several(value: Any) -> bool:
    return isinstance(value, Collection) and not isinstance(value, str | bytes)


def _is_engine(value: Any) -> bool:
    return isinstance(getattr(value, "runtime", None), str)


_TAKES: Final[Mapping[str, tuple[Callable[[Any], bool], str]]] = {
    "engine": (_is_engine, "an engine, such as Spark(session, checkpoint=...)"),
    "only": (_are_names, "a list with names of processors, such as only=['check']"),
    "instance": (lambda value: isinstance(value, str), "a name of this process, such as 'blue-1'"),
    "policy": (lambda value: isinstance(value, CommitPolicy), "a CommitPolicy(...)"),
    "calls": (lambda value: isinstance(value, CallPolicy), "a CallPolicy(...)"),
    "timeout_s": (_is_seconds, "a number of seconds, or None to wait for nothing"),
    "new": (_are_names, "a list with names of processors, such as new=['check']"),
    "require": (lambda value: isinstance(value, str), "a level, such as 'exactly-once'"),
    "observers": (_are_observers, "a list of observers, such as observers=[OpenLineage(...)]"),
    "http": (lambda value: isinstance(value, str), "'HOST:PORT', 'PORT' or 'unix:PATH'"),
    "hook": (callable, "a function"),
}

_NEVER_NONE: Final = ("new", "observers")
"""An empty list leaves them out; None leaves the others out."""

"""Wrong arguments of `start`, `connect`, `status` and `repairs` are refused with what they take."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from cues_kafka import ConfigError, Graph, Memory, OpenLineage, Processor, Source, connect, repairs, start, status

GRAPH = Graph("g", Source("in"), Processor(lambda order: order, name="check", inputs="in", outputs="out"))
start_any: Callable[..., Any] = start
connect_any: Callable[..., Any] = connect
status_any: Callable[..., Any] = status
repairs_any: Callable[..., Any] = repairs


@pytest.mark.parametrize(
    ("named", "takes"),
    [
        ({"onyl": ["check"]}, r"start\(onyl=...\): unknown argument \(did you mean 'only'\?\)"),
        ({"only": "check"}, r"start\(only='check'\): takes a list with names of processors, such as only=\['check'\]"),
        ({"only": [GRAPH]}, "takes a list with names of processors"),
        ({"engine": "spark"}, r"takes an engine, such as Spark\("),
        ({"instance": 5}, "takes a name of this process"),
        ({"policy": {"max_messages": 1}}, r"takes a CommitPolicy\("),
        ({"calls": 5}, r"takes a CallPolicy\("),
        ({"timeout_s": "5"}, "takes a number of seconds"),
        ({"timeout_s": True}, "takes a number of seconds"),
        ({"new": None}, "takes a list with names of processors"),
        ({"observers": OpenLineage(print)}, "takes a list of observers"),
        ({"observers": [OpenLineage]}, "takes a list of observers"),
        ({"observers": None}, "takes a list of observers"),
        ({"http": 9100}, "takes 'HOST:PORT'"),
        ({"hook": 5}, "takes a function"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_an_argument_of_start_that_does_not_fit_is_refused_with_what_it_takes(
    named: dict[str, Any], takes: str
) -> None:
    """Python's own error would come from deep inside, or after topics were created."""
    cluster = Memory()
    with pytest.raises(ConfigError, match=takes):
        start_any(GRAPH, cluster, **named)
    assert not cluster.held


@pytest.mark.parametrize(
    ("call", "refusal"),
    [
        (start_any, r"start\(...\): 'graph' is missing"),
        (lambda: start_any(GRAPH), r"start\(...\): 'options' is missing"),
        (lambda: start_any(None, Memory()), "the first argument is the graph, not NoneType"),
        (lambda: start_any(GRAPH, None), r"give Kafka\('host:port'\)"),
        (lambda: start_any(GRAPH, Memory(), 60), r"start takes 2 arguments without a name.*timeout_s="),
        (connect_any, r"connect\(...\): 'options' is missing"),
        (lambda: connect_any(None), r"give Kafka\('host:port'\)"),
        (lambda: connect_any(GRAPH, Memory()), "the second argument is the graph, not Memory"),
        (lambda: connect_any(Memory(), "app:graph"), "the second argument is the graph, not str"),
        (lambda: connect_any(Memory(), nmae="x"), r"did you mean 'name'\?"),
        (lambda: connect_any(Memory(), GRAPH, "x"), r"Name the others: name="),
        (status_any, r"status\(...\): 'cluster' is missing"),
        (lambda: status_any(GRAPH, Memory()), "the second argument is the graph, not Memory. Write status"),
        (lambda: status_any(None, GRAPH), r"give Kafka\('host:port'\)"),
        (lambda: status_any(Memory(), GRAPH, watch=True), r"status\(watch=...\): unknown argument"),
        (lambda: repairs_any(Memory()), r"repairs\(...\): 'graph' is missing"),
        (lambda: repairs_any(Memory(), "shop:graph"), r"the second argument is the graph, not str. Write repairs"),
        (lambda: repairs_any("localhost:9092", GRAPH), r"give Kafka\('host:port'\)"),
    ],
)
def test_a_call_without_what_it_needs_is_refused(call: Callable[[], Any], refusal: str) -> None:
    """With what is missing, or too much, by its name."""
    with pytest.raises(ConfigError, match=refusal):
        call()

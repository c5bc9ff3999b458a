"""Arguments that a declaration does not take: options of a cluster, and classes with arguments of any number."""

from __future__ import annotations

import copy
import inspect
import pickle
from dataclasses import replace
from typing import Any

import pytest

import cues_kafka
from cues_kafka import ConfigError, CuesError, GraphError, Json, Kafka, Memory, Processor, Source, Topic
from cues_kafka.arguments import known_arguments
from cues_kafka.brokers.security import Scram

DECLARATIONS = [
    "Alias",
    "Amqp",
    "Avro",
    "Blobs",
    "CommitPolicy",
    "DataFrameProcessor",
    "Digits",
    "Directory",
    "Errors",
    "Feed",
    "Files",
    "GlobalTable",
    "Graph",
    "Handler",
    "Http",
    "IbmMq",
    "Iterate",
    "Json",
    "JsonSchema",
    "Kafka",
    "Limits",
    "Memory",
    "Mqtt",
    "OAuthBearer",
    "Oidc",
    "Once",
    "OpenLineage",
    "Plain",
    "Processor",
    "Protobuf",
    "RabbitMq",
    "Registry",
    "Retry",
    "Scram",
    "Secret",
    "Selection",
    "Source",
    "Spans",
    "Sql",
    "SqlOutbox",
    "Stomp",
    "Store",
    "Table",
    "Timers",
    "Tls",
    "Topic",
]
"""All but what functions make for each message (`Message`, `Out`, `Timer`): there the check would cost too much."""


def test_options_of_a_cluster_are_a_matter_of_configuration() -> None:
    """And no argument's value is shown: it may be a secret."""
    with pytest.raises(ConfigError, match=r"Kafka\(bootstap=\.\.\.\): .* \(did you mean 'bootstrap'\?\)"):
        Kafka(bootstap="localhost:9092")  # type: ignore[call-arg]
    many: list[Any] = ["hunter2"] * 9
    with pytest.raises(ConfigError) as refused:
        Scram(*many)
    assert "hunter" not in str(refused.value)
    with pytest.raises(ConfigError, match=r"Memory\(broker=\.\.\.\)"):
        Memory(broker=3)  # type: ignore[call-arg]


def test_python_still_knows_what_a_class_takes() -> None:
    """For editors, documentation and copies."""
    assert list(inspect.signature(Source).parameters) == ["topic", "default", "level", "pattern", "look_seconds"]
    assert "inputs" in inspect.signature(Processor).parameters
    topic = Topic(value=Json(), key="id", partitions=3)
    assert replace(Json(), cls=int) == Json(int)
    assert pickle.loads(pickle.dumps(Json(int))) == copy.deepcopy(Json(int)) == Json(int)
    assert Topic(**topic.given) == topic
    assert Processor.__init__.__doc__ == inspect.unwrap(Processor.__init__).__doc__


def test_classes_with_arguments_of_any_number_name_what_is_wrong() -> None:
    @known_arguments()
    class Many:
        def __init__(self, first: int, *rest: int, last: int) -> None:
            self.all = (first, *rest, last)

    @known_arguments(ConfigError)
    class Loose:
        def __init__(self, first: int, /, **rest: Any) -> None:
            self.all = (first, rest)

    assert Many(1, 2, 3, last=4).all == (1, 2, 3, 4)
    assert Loose(1, second=2).all == (1, {"second": 2})
    with pytest.raises(GraphError, match="'last' is missing"):
        Many(1, 2)  # type: ignore[call-arg]
    with pytest.raises(GraphError, match=r"Many\(lst=\.\.\.\): .* \(did you mean 'last'\?\)"):
        Many(1, lst=2)  # type: ignore[call-arg]
    with pytest.raises(ConfigError, match="'first' is missing"):
        Loose(second=2)  # type: ignore[call-arg]
    with pytest.raises(ConfigError, match="Loose takes one argument without a name, 'first', and was given 2"):
        Loose(1, 2)  # type: ignore[call-arg]


def test_argument_that_is_given_twice_is_named() -> None:
    """Once without its name, and a class that takes none like that says so."""
    with pytest.raises(GraphError, match=r"Topic\(value=\.\.\.\): argument 1, without a name, is 'value' already"):
        Topic("orders", value=Json())  # type: ignore[misc, arg-type]
    with pytest.raises(ConfigError, match=r"Memory takes no argument without a name and was given 1\. Name the others"):
        Memory(1)  # type: ignore[call-arg]


def test_errors_inside_a_constructor_are_not_taken_for_wrong_arguments() -> None:
    @known_arguments()
    class Odd:
        def __init__(self) -> None:
            raise TypeError("inside")

    with pytest.raises(TypeError, match="inside"):
        Odd()


@pytest.mark.parametrize("name", DECLARATIONS)
def test_every_declaration_says_what_it_takes(name: str) -> None:
    with pytest.raises(CuesError, match=rf"^{name}\(no_such=\.\.\.\): unknown argument"):
        getattr(cues_kafka, name)(no_such=1)

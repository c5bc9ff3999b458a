"""`payload_of`: the value of an error message's payload, by the codec of its topic."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest

from cues_kafka import (
    Avro,
    CodecError,
    ConfigError,
    Errors,
    Graph,
    GraphError,
    Json,
    Processor,
    Raw,
    Source,
    Topic,
    payload_of,
)
from cues_kafka.codecs.redacting import redacted
from cues_kafka.ports.log import Outgoing
from cues_kafka.testing.tester import Tester


@dataclass(frozen=True)
class Order:
    """An input."""

    id: str
    cents: int = 0


def boom(order: Any, other: Any = None) -> Any:
    """Fail always."""
    raise ValueError("boom")


def graph_of(codec: Any, **errors: Any) -> Graph:
    """One input with this codec."""
    return Graph(
        "g",
        Source("in"),
        Processor(boom, inputs="in", outputs="out"),
        errors=Errors("failed", **{"payload": True, **errors}),
        topics={"in": Topic(value=codec)},
    )


@pytest.mark.parametrize(
    ("codec", "value"),
    [(Json(Order), Order("a1", 5)), (Avro(Order), Order("a1", 5)), (Json(), {"id": 1}), (Raw(), b"a1")],
    ids=["json", "avro", "plain", "raw"],
)
def test_payload_is_the_value_that_the_function_got(codec: Any, value: Any) -> None:
    graph = graph_of(codec)
    tester = Tester(graph)
    tester.send("in", value)
    [error] = tester.run().errors()

    assert payload_of(error, graph) == value


def test_payload_without_redacted_fields_is_plain_json() -> None:
    """The class may not take "(redacted)" for a value."""
    graph = graph_of(Avro(Order), redact=("cents",))
    tester = Tester(graph)
    tester.send("in", Order("a1", 5))
    [error] = tester.run().errors()

    assert payload_of(error, graph) == {"id": "a1", "cents": "(redacted)"}
    for forged in (b"{", b"\xff", b"[" * 100_000):
        with pytest.raises(CodecError, match="redacted fields that is no JSON"):
            payload_of(replace(error, payload=forged), graph)


def test_numbers_beside_a_redacted_field_stay_as_they_were_written() -> None:
    """1.10 was 1.1, and 12345678901234567.89 another number."""
    data = b'{"a":1.10,"b":12345678901234567.89,"c":1e400,"d":-0.0,"iban":"x"}'

    assert redacted(data, Json(), list, ["iban"]) == data.replace(b'"x"', b'"(redacted)"').replace(b"1e400", b"1E+400")


def test_error_message_without_a_whole_payload_says_what_to_do() -> None:
    graph = graph_of(Json(Order))
    tester = Tester(graph)
    tester.send("in", Order("a1"))
    [error] = tester.run().errors()

    for wrong, what in (
        (replace(error, payload=None), r"boom/0 has no payload\. Declare errors=Errors\(topic, payload=True\)"),
        (
            replace(error, truncated=("payload",)),
            r"only the beginning of its payload\. Read .* in 'in': error",
        ),
        (replace(error, topics=(), consumed=()), r"a feed, which was in no topic\. error.payload has its bytes"),
    ):
        with pytest.raises(ConfigError, match=what):
            payload_of(wrong, graph)
    with pytest.raises(GraphError, match=r"'other' has no topic 'in' \(did you mean 'inn'\?\)\. Give the graph of 'g'"):
        payload_of(error, Graph("other", Source("inn")))


def test_bytes_that_are_no_value_are_an_error_of_the_codec() -> None:
    graph = graph_of(Json(Order))
    tester = Tester(graph)
    tester.broker.sender("raw").send([Outgoing("in", 0, None, b"{")])
    [error] = tester.run().errors()

    with pytest.raises(CodecError):
        payload_of(error, graph)
    with pytest.raises(CodecError, match=r"does not say which of 'in', 'too' it is"):
        payload_of(replace(error, topics=("in", "too")), graph)

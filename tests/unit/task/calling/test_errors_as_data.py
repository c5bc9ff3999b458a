"""Errors as data: what error messages carry, and processors that read and write them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from cues_kafka import (
    Avro,
    Encoded,
    ErrorCause,
    ErrorMessage,
    ErrorMessages,
    Errors,
    Feed,
    Graph,
    Interrupt,
    Iterate,
    Json,
    Processor,
    Raw,
    Retry,
    Source,
    Store,
    TaskStopped,
    Topic,
    error_context,
    has_tag,
)
from cues_kafka.ports.log import Outgoing
from cues_kafka.testing.tester import Tester
from examples import repairs


@dataclass(frozen=True)
class Order:
    """An order with a secret."""

    id: int
    card: str = ""


def errors_of(fn: Any, *values: Any, errors: Any = "failed", codec: Any = None, **settings: Any) -> list[ErrorMessage]:
    """The error messages of a pipe with this function."""
    topics = {} if codec is None else {"in": Topic(value=codec)}
    graph = Graph(
        "g", Source("in"), Processor(fn, name="p", inputs="in", outputs="out", **settings), errors=errors, topics=topics
    )
    tester = Tester(graph)
    tester.send_many("in", list(values))
    return tester.run().errors()


# ------------------------------------------------------------------------------------------------ causes and context


def test_an_error_message_has_the_chain_of_causes_with_their_traces() -> None:
    """What it was raised from, then in whose handling that came up; frames of cues-kafka are left out."""
    known: dict[str, int] = {}

    def parse(text: str) -> int:
        return int(text)

    def fails(value: str) -> int:
        try:
            try:
                return parse(value)
            except ValueError:
                return known[value]
        except KeyError as error:
            raise RuntimeError("no such order") from error

    [error] = errors_of(fails, "x")

    assert (error.exception, error.text) == ("RuntimeError", "no such order")
    assert [one.exception for one in error.causes] == ["KeyError", "ValueError"]
    assert error.causes[1].text == "invalid literal for int() with base 10: 'x'"
    assert [frame.split(":")[:2] for frame in error.causes[1].trace] == [
        ["test_errors_as_data.py", "fails"],
        ["test_errors_as_data.py", "parse"],
    ]
    assert [frame.split(":")[1] for frame in error.trace] == ["fails"]
    assert error.location == error.trace[-1]


def test_a_chain_is_bounded_and_may_bite_its_tail() -> None:
    """Five causes, ten frames; a cause that was suppressed is none."""

    def deep(n: int) -> int:
        if n:
            return deep(n - 1)
        raise ValueError("deep")

    def fails(value: int) -> int:
        error: Exception | None = None
        for n in range(8):
            error, before = ValueError(str(n)), error
            error.__cause__ = before
        if value == 1:
            error = ValueError("ring")
            error.__cause__ = KeyError("back")
            error.__cause__.__cause__ = error
        if value == 2:
            return deep(30)
        if value == 3:
            try:
                deep(0)
            except ValueError:
                raise KeyError("alone") from None
        raise error  # type: ignore[misc]

    many, ring, frames, suppressed = errors_of(fails, 0, 1, 2, 3)

    assert [one.text for one in many.causes] == ["6", "5", "4", "3", "2"]
    assert [one.text for one in ring.causes] == ["'back'"]
    assert len(frames.trace) == 10
    assert frames.trace[-1] == frames.location
    assert suppressed.causes == ()


@pytest.mark.parametrize("settings", [{}, {"state": {"seen": Store()}}], ids=["list", "list with a store"])
def test_the_call_for_all_messages_of_a_list_is_no_cause(settings: dict[str, Any]) -> None:
    """It raises first, and its steps are called again one by one; none of them was raised in its handling."""

    def several(values: list[int], **_: Any) -> list[Any]:
        if 2 in values:
            raise ValueError(f"one of {values}")
        return [KeyError("three") if value == 3 else value for value in values]

    two, three = errors_of(several, 1, 2, 3, batch=True, **settings)

    assert (two.text, two.causes) == ("one of [2]", ())
    assert (three.text, three.causes) == ("'three'", ())


def test_context_is_merged_outwards() -> None:
    """From the step, from blocks around the call, and from the exceptions before; the innermost counts."""

    def inner(value: int) -> int:
        with error_context(part="price", item=value):
            raise ValueError("no price")

    def fails(value: int, step: Any) -> int:
        step.error_context(customer="c1", part="order")
        try:
            with error_context(item="outer", order=7):
                return inner(value)
        except ValueError as error:
            raise RuntimeError("cannot bill") from error

    [error] = errors_of(fails, 4)

    assert error.context == {"customer": "c1", "order": "7", "part": "price", "item": "4"}


def test_context_does_not_change_what_is_raised() -> None:
    """An interrupt stops the task as it does without; without an exception nothing is kept."""

    def stops(value: int) -> int:
        with error_context(item=value):
            if value:
                raise Interrupt("enough")
        return value

    with pytest.raises(TaskStopped, match="enough"):
        errors_of(stops, 0, 1)


# ------------------------------------------------------------------------------------------- declaration and payload


def test_an_error_message_has_the_declaration_without_secrets() -> None:
    """A local function has its name all the same; of options the names alone."""

    def fails(value: int, limit: int, password: str) -> int:
        raise ValueError(f"{limit} {bool(password)} {value}")

    options: Any = {"filter": ~has_tag("x"), "retry": Retry(on=OSError, for_s=5)}
    [error] = errors_of(fails, 1, opts={"password": "s3cret", "limit": 3}, **options)

    assert error.declaration == {
        "name": "p",
        "kind": "pipe",
        "fn": f"{__name__}:test_an_error_message_has_the_declaration_without_secrets.<locals>.fails",
        "inputs": "in",
        "outputs": "out",
        "opts": ["limit", "password"],
        "filter": {"not": {"has_tag": ["x"]}},
        "retry": {"on": ["builtins:OSError"], "for_s": 5, "first_s": 0.1, "max_s": 30.0, "then": "stop"},
    }


def boom(_: Any) -> Any:
    """Fails always."""
    raise ValueError("boom")


def test_an_error_message_has_the_payload_where_it_is_asked_for() -> None:
    """As it came; a tombstone has none."""
    [plain] = errors_of(boom, {"id": 1})
    [asked] = errors_of(boom, {"id": 1}, errors=Errors("failed", payload=True))

    assert (plain.payload, plain.redacted) == (None, ())
    assert (asked.payload, asked.redacted) == (b'{"id":1}', ())


@pytest.mark.parametrize(
    ("codec", "value"),
    [
        (Json(), {"id": 1, "card": "55", "lines": [{"card": {"n": 5}}, 7]}),
        (Json(Order), Order(1, "55")),
        (Avro(Order), Order(1, "55")),
    ],
    ids=["json", "class", "avro"],
)
def test_redacted_fields_are_in_no_payload(codec: Any, value: Any) -> None:
    """However deep they are; the payload is JSON then."""
    [error] = errors_of(boom, value, errors=Errors("failed", payload=True, redact=("card",)), codec=codec)
    expected = {"id": 1, "card": "(redacted)"}
    if isinstance(value, dict):
        expected |= {"lines": [{"card": "(redacted)"}, 7]}

    assert json.loads(error.payload or b"") == expected
    assert error.redacted == ("card",)


@pytest.mark.parametrize(
    ("codec", "data", "shown"),
    [
        (Json(Order), b'{"id":"one","card":"55"}', {"id": "one", "card": "(redacted)"}),
        (Json(Order), b'{"id":1,"card":"55"', None),
        (Avro(Order), b"card 55", None),
    ],
    ids=["of another shape", "no json", "no avro"],
)
def test_bytes_in_which_fields_cannot_be_found_are_left_out(codec: Any, data: bytes, shown: Any) -> None:
    """Without `redact=` they would be in the message."""
    graph = Graph(
        "g",
        Source("in"),
        Processor(boom, inputs="in", outputs="out"),
        errors=Errors("failed", redact=["card"]),  # type: ignore[arg-type]
        topics={"in": Topic(value=codec)},
    )
    tester = Tester(graph)
    tester.broker.sender("raw").send([Outgoing("in", 0, None, data)])
    [error] = tester.run().errors()

    assert (error.kind, error.redacted) == ("decode", ("card",))
    assert error.payload is None if shown is None else json.loads(error.payload or b"") == shown


def test_raw_bytes_have_no_fields_to_redact() -> None:
    """So nothing of them is shown."""
    [error] = errors_of(boom, b"card 55", errors=Errors("failed", payload=True, redact=("card",)), codec=Raw())

    assert error.payload is None


def test_the_errors_of_a_feed_have_declaration_causes_and_redacted_bytes() -> None:
    """Its source may hold a password, so only the class is named."""
    lines = Iterate(numbers)
    graph = Graph(
        "g",
        Feed(lines, into="in", errors=Errors("failed", redact=("card",))),
        topics={"in": Topic(value=Json(Order))},
    )
    [error] = Tester(graph).run().errors()

    assert error.declaration["source"] == "cues_kafka.bridges.iterate:Iterate"
    assert error.declaration["into"] == "in"
    assert (error.payload, error.redacted) == (b'{"id":"x","card":"(redacted)"}', ("card",))


def numbers(place: str | None) -> Any:
    """One line that does not fit."""
    if place is None:
        yield Encoded(b'{"id":"x","card":"55"}'), "1"


# -------------------------------------------------------------------------------------- processors that read errors


def test_a_processor_of_another_graph_reads_and_writes_error_messages() -> None:
    """By the codec `ErrorMessages`, on the same cluster."""
    first = Graph("g", Source("in"), Processor(boom, inputs="in", outputs="out"), errors="failed")
    tester = Tester(first)
    tester.send_many("in", [1, 2])
    tester.run()
    seen: list[Any] = []

    def park(error: ErrorMessage) -> ErrorMessage:
        seen.append(error.hash)
        return error

    second = Graph(
        "h",
        Processor(park, inputs="failed", outputs="parked"),
        topics={name: Topic(value=ErrorMessages(), key="processor") for name in ("failed", "parked")},
    )
    other = Tester(second, broker=tester.broker)
    other.run()

    assert other.values("parked") == tester.errors()
    assert [message.key for message in other.messages("parked")] == ["boom", "boom"]
    assert seen == [error.hash for error in tester.errors()]


def test_foreign_bytes_on_an_errors_topic_are_errors_of_its_reader() -> None:
    """They become its error messages, by its own errors topic."""
    graph = Graph(
        "g",
        Source("in"),
        Processor(boom, inputs="in", outputs="out"),
        Processor(boom, name="watch", inputs="failed", errors="watch.failed"),
        errors="failed",
    )
    tester = Tester(graph)
    tester.broker.sender("raw").send([Outgoing("failed", 0, None, b"foreign"), Outgoing("failed", 0, b"k", None)])
    tester.run()

    assert [(e.kind, e.payload) for e in tester.values("watch.failed")] == [("decode", b"foreign"), ("decode", None)]


def test_the_example_repairs_what_it_can() -> None:
    """An amount with a comma comes again; words wait for a person."""
    tester = Tester(repairs.graph)
    for number, text in enumerate(["10.00", "12,50", "ten"]):
        tester.send("repairs.orders", {"id": number, "amount": text}, key=str(number))
    tester.run()

    assert tester.values("repairs.bills") == [{"id": 0, "total": 10.0}, {"id": 1, "total": 12.5}]
    [parked] = tester.values("repairs.parked")
    assert parked.causes == (
        ErrorCause("ValueError", "could not convert string to float: 'ten'", parked.causes[0].trace),
    )
    assert msgspec.json.decode(parked.payload) == {"id": 2, "amount": "ten"}

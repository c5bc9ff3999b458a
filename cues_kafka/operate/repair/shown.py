"""An error message as lines for people: what `errors show` prints and the browser view shows."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, Final

from cues_kafka.codecs.payloads import payload_of
from cues_kafka.errors import CuesError
from cues_kafka.graph.declare import Json, Raw
from cues_kafka.graph.definition import Graph
from cues_kafka.graph.error_message import ErrorMessage
from cues_kafka.graph.times import shown_time
from cues_kafka.operate.repair.filed import FiledError
from cues_kafka.operate.shown import plain_json
from cues_kafka.records.requests import Settled
from cues_kafka.words import as_data

OUTCOMES: Final = {
    "output": "with outputs",
    "error": "with a new error message",
    "nil": "without an output",
    "row": "as a row of a batch",
    "dropped": "dropped",
    "unreadable": "not understood",
    "refused": "refused",
}
"""In words, what a request ended with."""


def payload_text(error: ErrorMessage, graph: Graph, cluster: Any = None) -> str | None:
    """
    The payload of an error message as the codec of its topic reads it, in JSON; None: its bytes are shown.

    It has no escapes yet: what prints or shows it makes them.

    Args:
        error: the error message.
        graph: says the codec.
        cluster: `Kafka(...)`, whose registry may have the schema.
    """
    if error.payload is None:
        return None
    topic = error.topics[0] if error.topics else ""
    known = topic in graph.topics_used() and not isinstance(graph.topic(topic).value, Json | Raw)
    if known and not error.redacted:
        try:
            return plain_json(payload_of(error, graph, cluster))
        except CuesError:  # bytes that are no value of the topic are why the message failed
            pass
    return None


def lines(one: FiledError, payload: str | None = None, *, text: Callable[[str], str] = str) -> Iterator[str]:
    """
    One error message for people; what prints or shows a line makes its escapes.

    Args:
        one: the error message.
        payload: its payload as text, see `payload_text`.
        text: makes commands name the graph.
    """
    error = one.message
    yield f"{one}: {error.exception}: {error.text}"
    yield f"  {text(_state(one))}"
    fields: list[tuple[str, Any]] = [
        ("task", f"{error.graph}.{error.task}"),
        ("renamed", f"goes on as {one.asked_of}" if one.asked_of != error.processor else None),
        ("kind", error.kind),
        ("failed", shown_time(error.timestamp_ms)),
        ("at", error.location),
        *(("message", place) for place in _consumed(one)),
        *_bytes("key", error.key),
        ("hash", error.hash.hex()),
        ("calls", error.attempts),
        ("deaths", error.starts or None),
        *((f"context {name}", value) for name, value in error.context.items()),
        *(("trace", frame) for frame in error.trace),
        *((f"cause {cause.exception}", cause.text) for cause in error.causes),
        *_bytes("payload", error.payload, payload),
        ("redacted", ", ".join(error.redacted)),
        ("cut", ", ".join(error.truncated)),
        ("declared", json.dumps(dict(error.declaration)) if error.declaration else None),
    ]
    can_be_empty = ("key", "payload")  # an empty one is not a missing one
    shown = [(name, value) for name, value in fields if value is not None and (value != "" or name in can_be_empty)]
    yield from (f"  {name:<9} {value}" for name, value in shown)


def _bytes(name: str, data: bytes | None, shown: str | None = None) -> Iterator[tuple[str, str]]:
    """
    A field of bytes for people: text, or escapes and then Base64 for what is not UTF-8.

    Args:
        name: of the field.
        data: the bytes; None: the message has no such field.
        shown: the value, as a codec reads it; None: no codec can read the bytes.
    """
    if data is None:
        return
    if shown is not None:
        yield name, shown
        return
    yield name, data.decode(errors="backslashreplace")
    fields = as_data(name, data)
    if encoding := fields.get(f"{name}_encoding"):
        yield f"{name} in {encoding}", fields[name]


def _state(one: FiledError) -> str:
    """What became of it, and what can be done."""
    if one.settled is not None:
        return f"settled at {shown_time(one.settled.at_ms)}: {_how(one.settled)}"
    if one.asked is not None:
        return f"asked to be {'replayed' if one.asked == 'replay' else 'dropped'}; its task has not settled it yet"
    return f"open; it cannot be replayed: {one.obstacle}" if one.obstacle else "open; it can be replayed"


def _how(settled: Settled) -> str:
    return "dropped" if settled.outcome == "dropped" else f"replay {settled.number} ended {OUTCOMES[settled.outcome]}"


def _consumed(one: FiledError) -> list[str]:
    rows = zip(one.message.topics, one.message.consumed, strict=True)
    return [f"{topic}/{place.partition}@{place.offset} ({place.binding})" for topic, place in rows]

"""The value that an error message carries as bytes, read with the codec of its topic."""

from __future__ import annotations

import json
from typing import Any

from cues_kafka.codecs.lookup import MadeFor, codec_for
from cues_kafka.errors import CodecError, ConfigError, GraphError
from cues_kafka.graph.definition import Graph
from cues_kafka.graph.error_message import ErrorMessage
from cues_kafka.graph.names import hint, quoted


def payload_of(error: ErrorMessage, graph: Graph, cluster: Any = None) -> Any:
    """
    Read the payload of an error message: the value of the (lead) input's message, as the function got it.

    Fields that were redacted are "(redacted)", so such a value is plain JSON, and no instance of the topic's class.

    Args:
        error: the error message.
        graph: the graph that declares the topic.
        cluster: `Kafka(...)`, whose registry has the schema of a codec with `registry=True`; else None.

    Raises:
        CodecError: the bytes are no value of the topic, which is then why the message became an error
            (`error.kind` is `decode`); of several inputs, they may be those of another than the lead. Or the payload of
            an error message that another program wrote is no JSON, although fields of it are redacted.
        ConfigError: the error message has no payload, or not all of it, or the message came from no topic.
        GraphError: the graph does not have the topic.
    """
    what = f"The error message of {error.task}"
    if error.payload is None:
        raise ConfigError(f"{what} has no payload. Declare errors=Errors(topic, payload=True) for those to come.")
    if "payload" in error.truncated:
        raise ConfigError(
            f"{what} has only the beginning of its payload. Read the message itself, in {quoted(error.topics)}: "
            "error.consumed has its place."
        )
    if error.redacted:
        try:
            return json.loads(error.payload)
        except (ValueError, RecursionError) as unfit:
            raise CodecError(f"{what} has a payload with redacted fields that is no JSON: {unfit!s:.200}.") from None
    if not error.topics:
        raise ConfigError(f"{what} is about a message of a feed, which was in no topic. error.payload has its bytes.")
    topic = error.topics[0]
    if error.kind == "decode" and len(set(error.topics)) > 1:
        raise CodecError(
            f"{what} has the bytes of the input that could not be decoded, and does not say which of "
            f"{quoted(error.topics)} it is. error.payload has the bytes."
        )
    if topic not in (known := graph.topics_used()):
        raise GraphError(
            f"graph {graph.name!r} has no topic {topic!r}{hint(topic, known)}. Give the graph of {error.graph!r}, "
            "which wrote the error message."
        )
    return codec_for(graph.topic(topic).value, MadeFor(topic, cluster)).decode(error.payload)

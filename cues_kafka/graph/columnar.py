"""Processors whose function gets columns (`batch="arrow"`): what they exclude, with the remedy."""

from __future__ import annotations

from collections.abc import Callable

from cues_kafka.errors import GraphError
from cues_kafka.graph.codec import Codec
from cues_kafka.graph.declare import CodecSpec, Json, Raw
from cues_kafka.graph.formats import Avro, JsonSchema
from cues_kafka.graph.processor import Processor
from cues_kafka.graph.topic import Topic


def check_columnar(processor: Processor, topic_of: Callable[[str], Topic], strategy: str) -> None:
    """
    Check what a processor with columns reads and writes.

    Args:
        processor: the processor.
        topic_of: gives the settings of a topic.
        strategy: what it promises.

    Raises:
        GraphError: a topic has no columns, or the processor has something that does not go with them.
    """
    if not processor.columnar:
        return
    label = processor.label
    if strategy != "exactly-once":
        raise GraphError(
            f"{label}: batch='arrow' with strategy={strategy!r}: rows that belong to several messages need their one "
            "transaction. Leave strategy= out, or write batch=True."
        )
    for topic in processor.input_topics:
        codec = topic_of(topic).value
        if wrong := _why_not_read(codec):
            raise GraphError(f"{label}: batch='arrow' reads {topic!r}, and {wrong}")
    for topic, codec in [(topic, topic_of(topic).value) for _, topic in processor.outputs]:
        if not isinstance(codec, Json | Avro | Raw):
            raise GraphError(
                f"{label}: batch='arrow' cannot write {topic!r}, whose codec is {type(codec).__name__}. Declare "
                "Json(...), Avro(...) or Raw(), or write batch=True."
            )


def _why_not_read(codec: CodecSpec) -> str:
    if isinstance(codec, Json) and codec.cls is None:
        return "Json() does not say which columns its values have. Declare Json(SomeDataclass), or Raw() for the bytes."
    if not isinstance(codec, Json | Avro | JsonSchema | Raw | Codec):
        return f"{type(codec).__name__} has no columns. Declare Raw() and parse the bytes, or write batch=True."
    return ""

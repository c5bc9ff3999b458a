"""Keys that outputs inherit from inputs: the topics of an alts must agree on how keys are written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cues_kafka.errors import GraphError

if TYPE_CHECKING:
    from collections.abc import Callable

    from cues_kafka.graph.processor import Processor
    from cues_kafka.graph.topic import Topic


def check_keys(processor: Processor, topic_of: Callable[[str], Topic]) -> None:
    """
    Refuse outputs that would inherit keys of several formats.

    A key of one format is written in that of the output. Which of several it is, an output cannot tell.

    Raises:
        GraphError: names the topics.
    """
    if processor.input_shape != "alts":
        return
    codecs = {topic: topic_of(topic).key_codec for _, topic in processor.inputs}
    first, *rest = codecs
    other = next((topic for topic in rest if codecs[topic] != codecs[first]), None)
    written = (*processor.output_topics, *processor.appenders.values())
    into = next((topic for topic in written if topic_of(topic).key is None), None)
    if other is not None and into is not None:
        raise GraphError(
            f"{processor.label}: messages on {into!r} without a key of their own inherit those of {first!r} and "
            f"{other!r}, whose key_codec= differ. Declare Topic(key=...) for {into!r}, or one key_codec= for both, or "
            "a processor for each."
        )

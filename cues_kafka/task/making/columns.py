"""Makes what converts the columns of a processor with `batch="arrow"`; imported for such a processor only."""

from __future__ import annotations

from typing import Any

from cues_kafka.codecs.arrow.reading import reader_of
from cues_kafka.codecs.arrow.writing import Encoded, writer_of
from cues_kafka.codecs.lookup import MadeFor, codec_for
from cues_kafka.codecs.schema import Structure
from cues_kafka.errors import ConfigError, RetriableError
from cues_kafka.graph.declare import Raw
from cues_kafka.graph.definition import Graph
from cues_kafka.graph.processor import Processor
from cues_kafka.task.calling.arrow_lists import with_columns
from cues_kafka.task.calling.columnar import Columnar, ColumnOutput
from cues_kafka.task.calling.function import Function
from cues_kafka.task.calling.lists import Calling
from cues_kafka.task.calling.outage import Outage
from cues_kafka.task.calling.outputs import Target


def calling_of(graph: Graph, processor: Processor, function: Function, cluster: Any) -> Calling:
    """
    What calls the function with columns.

    Raises:
        ConfigError: a topic has no columns; the text has the remedy.
    """
    readers = {}
    for (binding, topic), decoder in zip(processor.inputs, function.decoders, strict=True):
        codec = codec_for(graph.topic(topic).value, MadeFor(topic, cluster))
        if codec.shape is None and not isinstance(decoder.declared, Raw):
            raise ConfigError(
                f"{processor.label}: batch='arrow' needs columns, and the codec of {topic!r}, "
                f"{decoder.declared!r:.100}, has no schema. Declare Json(SomeDataclass), Avro(...) with a schema, or "
                "Raw() for the bytes."
            )
        readers[binding] = reader_of(codec, decoder.decode)
    outputs = {
        binding: _output(graph, target, MadeFor(target.topic, cluster))
        for binding, target in function.returned.targets.items()
    }
    return with_columns(Columnar(readers, outputs, processor.output_shape))


def _output(graph: Graph, target: Target, made_for: MadeFor) -> ColumnOutput:
    settings = graph.topic(target.topic)
    shape = codec_for(settings.value, made_for).shape
    fields = shape.fields if isinstance(shape, Structure) else ()
    key = next((each.wire_name for each in fields if each.name == settings.key), settings.key)
    return ColumnOutput(target, _Telling(writer_of(settings.value, made_for)), key)


class _Telling:
    """A writer whose outages can be told from what the user's function raises."""

    def __init__(self, writer: Any) -> None:
        self.schema = writer.schema
        self._encode = writer.encode

    def encode(self, batch: Any) -> Encoded:
        try:
            return self._encode(batch)  # type: ignore[no-any-return]
        except RetriableError as error:
            raise Outage(str(error)) from error

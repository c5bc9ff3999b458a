"""The columns of a table whose declaration has none: those of the class in the topic's codec (E3, E6)."""

from __future__ import annotations

from cues_kafka.codecs.schema import Null, OneOf, Scalar, Shape, Structure, describe
from cues_kafka.errors import ConfigError, GraphError
from cues_kafka.graph.definition import Graph
from cues_kafka.graph.effects import Effect
from cues_kafka.graph.error_message import ErrorMessages
from cues_kafka.graph.processor import Processor


def with_schemas(graph: Graph, processor: Processor) -> dict[str, Effect]:
    """
    The targets of a processor, in which each table has columns.

    Raises:
        ConfigError: a class has a field that needs a declared type.
    """
    return {name: _with_schema(graph, processor, name, one) for name, one in processor.targets.items()}


def _with_schema(graph: Graph, processor: Processor, name: str, one: Effect) -> Effect:
    if not one.untyped:
        return one
    where = f"{processor.label}: {one.title(name)}"
    declared = graph.topic(processor.lead).value
    cls = None if isinstance(declared, ErrorMessages) else declared.record
    shape = describe(cls) if cls is not None else Null()
    if not isinstance(shape, Structure):
        raise ConfigError(_remedy(where, one, "the codec of its topic has no class with fields"))
    try:
        return one.typed({field.name: _type_of(where, one, field.name, field.shape) for field in shape.fields})
    except GraphError as error:
        raise ConfigError(f"{processor.label}: {error}") from error


def _type_of(where: str, one: Effect, name: str, shape: Shape) -> str:
    options = [one for one in shape.options if not isinstance(one, Null)] if isinstance(shape, OneOf) else [shape]
    [option, *others] = options or [shape]
    if not others and isinstance(option, Scalar) and option.cls in one.column_types:
        return one.column_types[option.cls]
    raise ConfigError(_remedy(where, one, f"the field {name!r} is neither text, a number, a boolean, a date nor bytes"))


def _remedy(where: str, one: Effect, why: str) -> str:
    return f"{where} has no columns, and {why}. Name them: {one.how_typed}"

"""The schema of a Parquet table whose declaration has none: that of the class in the topic's codec (E3)."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime, time
from typing import Any, Final

from cues_kafka.codecs.schema import Null, OneOf, Scalar, Shape, Structure, describe
from cues_kafka.errors import ConfigError
from cues_kafka.graph.blobs import PARQUET, FileTable
from cues_kafka.graph.definition import Graph
from cues_kafka.graph.effects import Effect
from cues_kafka.graph.error_message import ErrorMessages
from cues_kafka.graph.processor import Processor

TYPES: Final[Mapping[type[Any], str]] = {
    bool: "bool",
    int: "int64",
    float: "double",
    str: "string",
    bytes: "binary",
    datetime: "timestamp[us]",
    date: "date32",
    time: "time64[us]",
}
"""By class, the type of a column as pyarrow names it."""


def with_schemas(graph: Graph, processor: Processor) -> dict[str, Effect]:
    """
    The targets of a processor, in which each Parquet table has a schema.

    Raises:
        ConfigError: a class has a field that needs a declared type.
    """
    return {name: _with_schema(graph, processor, one) for name, one in processor.targets.items()}


def _with_schema(graph: Graph, processor: Processor, one: Effect) -> Effect:
    if not isinstance(one, FileTable) or one.format != PARQUET or one.schema:
        return one
    declared = graph.topic(processor.lead).value
    cls = None if isinstance(declared, ErrorMessages) else declared.record
    shape = describe(cls) if cls is not None else Null()
    if not isinstance(shape, Structure):
        raise ConfigError(_remedy(processor, one, "the codec of its topic has no class with fields"))
    schema = {field.name: _type_of(processor, one, field.name, field.shape) for field in shape.fields}
    return FileTable(one.blobs, one.table, one.format, schema, one.max_file_bytes)


def _type_of(processor: Processor, table: FileTable, name: str, shape: Shape) -> str:
    options = [one for one in shape.options if not isinstance(one, Null)] if isinstance(shape, OneOf) else [shape]
    [option, *others] = options or [shape]
    if not others and isinstance(option, Scalar) and option.cls in TYPES:
        return TYPES[option.cls]
    raise ConfigError(_remedy(processor, table, f"the field {name!r} is no text, number, truth value, date or bytes"))


def _remedy(processor: Processor, table: FileTable, why: str) -> str:
    return (
        f"{processor.label}: table {table.table!r} has no schema, and {why}. Name the columns: "
        f'parquet({table.table!r}, schema={{"id": "int64"}})'
    )

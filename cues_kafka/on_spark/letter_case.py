"""Columns whose names differ by case only: Spark takes them for one, unless its setting says that case counts.

Spark itself would refuse only the expression that names such a column, often one that is not the user's own. So inputs
are looked at before a query starts, and what a function returns before it is written. Values are walked whole, because
the same holds for the fields of a struct.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from cues_kafka.codecs.lookup import MadeFor, codec_for
from cues_kafka.codecs.schema import Items, Mapped, OneOf, Shape, Structure, shape_name
from cues_kafka.errors import ConfigError
from cues_kafka.graph.definition import Graph

SETTING: Final = "spark.sql.caseSensitive"

_SET: Final = f"Set {SETTING}=true where the session is made, or in spark-defaults.conf"


def case_counts(setting: object) -> bool:
    """Whether case counts for Spark, by the value of `SETTING`."""
    return str(setting).strip().lower() == "true"


def ambiguous_inputs(graph: Graph, names: Sequence[str]) -> Iterator[str]:
    """
    Say which inputs of processors of DataFrames have fields that differ by case only, with the remedy.

    Args:
        graph: the graph.
        names: of processors; those that are plain get no columns.
    """
    for name in names:
        processor = graph.dataframes.get(name)
        for topic in processor.read_topics if processor else ():
            shape = codec_for(graph.topic(topic).value, MadeFor(topic)).shape
            for where, first, second in () if shape is None else _alike_fields(shape):
                yield (
                    f"processor {name!r}: the fields {first!r} and {second!r} of {where} in topic {topic!r} differ by "
                    f"case only, and Spark takes them for one column. {_SET}; or declare Raw() for the topic, and "
                    "parse the values in the function"
                )


def ambiguous_values(shape: Shape) -> str:
    """Why values cannot be a column, with the remedy; empty: they can."""
    for where, first, second in _alike_fields(shape):
        return (
            f"the fields {first!r} and {second!r} of {where} differ by case only, and Spark takes them for one. "
            f"{_SET}, before register(session, ...); or read the bytes"
        )
    return ""


def refuse_ambiguous(frame: Any, label: str) -> None:
    """
    Refuse a DataFrame that has columns, or fields of a struct, whose names differ by case only.

    Args:
        frame: what is to be written.
        label: how texts name its processor.

    Raises:
        ConfigError: it has, and case does not count in its session.
    """
    found = next(_alike_columns(frame.schema, ""), None)
    if found is not None and not case_counts(frame.sparkSession.conf.get(SETTING)):
        first, second = found
        raise ConfigError(
            f"{label}: the columns {first!r} and {second!r} differ by case only, and Spark takes them for one. Drop "
            f"one of them, or give it another name; or keep both: {_SET[0].lower()}{_SET[1:]}"
        )


def _alike_fields(shape: Shape) -> Iterator[tuple[str, str, str]]:
    """Pairs of fields in a shape, each with the name of what has them."""
    match shape:
        case Items(inner) | Mapped(inner):
            yield from _alike_fields(inner)
        case OneOf(options):
            for option in options:
                yield from _alike_fields(option)
        case Structure():
            for first, second in _pairs([one.wire_name for one in shape.fields]):
                yield shape_name(shape), first, second
            for one in shape.fields:
                yield from _alike_fields(one.shape)


def _alike_columns(kind: Any, path: str) -> Iterator[tuple[str, str]]:
    """Pairs of columns or fields in a type of Spark, each with its path."""
    from pyspark.sql.types import ArrayType, MapType, StructType  # noqa: PLC0415 - a graph is planned without Spark

    match kind:
        case ArrayType():
            yield from _alike_columns(kind.elementType, path)
        case MapType():
            yield from _alike_columns(kind.valueType, path)
        case StructType():
            for first, second in _pairs(kind.names):
                yield f"{path}{first}", f"{path}{second}"
            for one in kind.fields:
                yield from _alike_columns(one.dataType, f"{path}{one.name}.")


def _pairs(names: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Pairs of names that differ by case only."""
    seen: dict[str, str] = {}
    for name in names:
        if (first := seen.setdefault(name.lower(), name)) != name:
            yield first, name

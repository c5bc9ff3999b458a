"""Names that differ by case only, which Spark takes for one: where they are found, and what the texts say."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Annotated, Any

import pytest
from pyspark.sql.types import ArrayType, LongType, MapType, StringType, StructType

from cues_kafka import Alias, Avro, ConfigError, DataFrameProcessor, Graph, Json, Processor, Raw, Source, Topic
from cues_kafka.graph.declare import CodecSpec
from cues_kafka.on_spark.letter_case import SETTING, ambiguous_inputs, refuse_ambiguous


@dataclass(frozen=True)
class Plain:
    """Nothing is ambiguous."""

    id: str
    total: int


@dataclass(frozen=True)
class Twice:
    """Two names that differ by case only."""

    id: str
    ID: int


@dataclass(frozen=True)
class Aliased:
    """Its names in messages differ by case only; those of the class do not."""

    id: str
    number: Annotated[int, Alias("Id")] = 0


@dataclass(frozen=True)
class Nested:
    """They are in a field."""

    id: str
    parts: dict[str, list[Twice | None]] = field(default_factory=dict)


def passed(x: Any) -> Any:
    """A function."""
    return x


def graph(codec: CodecSpec) -> Graph:
    """A processor of DataFrames and a plain one, with the same input."""
    return Graph(
        "shop",
        Source("orders"),
        DataFrameProcessor(passed, name="rows", inputs="orders", outputs="copies"),
        Processor(passed, name="plain", inputs="orders", outputs="others"),
        topics={"orders": Topic(value=codec)},
    )


@pytest.mark.parametrize(
    ("codec", "words"),
    [
        (Json(Plain), ""),
        (Raw(), ""),
        (Json(), ""),
        (Json(Twice), "the fields 'id' and 'ID' of Twice in topic 'orders'"),
        (Avro(Twice), "the fields 'id' and 'ID' of Twice in topic 'orders'"),
        (Avro(Aliased), "the fields 'id' and 'Id' of Aliased in topic 'orders'"),
        (Json(Nested), "the fields 'id' and 'ID' of Twice in topic 'orders'"),
    ],
)
def test_input_with_such_fields_is_named_with_the_remedy(codec: CodecSpec, words: str) -> None:
    """Only for processors of DataFrames: a plain one gets objects."""
    found = [*ambiguous_inputs(graph(codec), ["rows", "plain"])]

    assert len(found) == bool(words)
    for text in found:
        assert text.startswith(f"processor 'rows': {words} differ by case only")
        assert f"Set {SETTING}=true" in text


def frame(schema: StructType, setting: str) -> Any:
    """What is asked of a DataFrame."""
    return SimpleNamespace(
        schema=schema, sparkSession=SimpleNamespace(conf=SimpleNamespace(get={SETTING: setting}.__getitem__))
    )


TWO = StructType().add("a", LongType()).add("A", StringType())


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        (StructType().add("a", LongType()).add("b", TWO), "'b.a' and 'b.A'"),
        (TWO, "'a' and 'A'"),
        (StructType().add("b", ArrayType(MapType(StringType(), TWO))), "'b.a' and 'b.A'"),
    ],
)
def test_columns_of_this_kind_are_refused_unless_case_counts(schema: StructType, words: str) -> None:
    """With both names, and where they are."""
    with pytest.raises(ConfigError, match=f"^shop.rows: the columns {words} differ by case only"):
        refuse_ambiguous(frame(schema, "false"), "shop.rows")
    refuse_ambiguous(frame(schema, "true"), "shop.rows")


def test_other_columns_pass() -> None:
    """Also where the same name is in two structs."""
    schema = StructType().add("a", LongType()).add("B", StructType().add("A", LongType()))
    refuse_ambiguous(frame(schema, "false"), "shop.rows")

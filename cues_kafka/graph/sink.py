"""`Sink`: a processor without a function of the user's, which writes values into a table, or to another broker."""

from __future__ import annotations

from typing import Any, TypeAlias

from cues_kafka.errors import GraphError
from cues_kafka.graph.blobs import FileTable
from cues_kafka.graph.dataframe import INTO
from cues_kafka.graph.declare import Raw
from cues_kafka.graph.effects import SqlTable, Upsert
from cues_kafka.graph.names import hint, quoted
from cues_kafka.graph.processor import Processor
from cues_kafka.graph.publish import Published
from cues_kafka.graph.targets import TargetPart, TransactionalTarget, refused_as_sink
from cues_kafka.graph.topic import Topic, fields_of

Into: TypeAlias = SqlTable | Upsert | FileTable | TransactionalTarget | TargetPart | Published


def Sink(name: str, *, inputs: str, into: Into, **settings: Any) -> Processor:  # noqa: N802
    """
    A processor that writes each value into a table or another target, exactly once, and needs no function.

    With `Sql(...).table(...)` each value is a row, and a tombstone is an error. With `Sql(...).upsert(...)` each value
    is the new row of its key, and a tombstone deletes the row of the message's key. A value that lacks a field, or
    that the database refuses, becomes an error message. With `Blobs(...).parquet(...)` or `.json_lines(...)` each value
    is a row of a file, and a tombstone is an error. A target of your own gets each value with its message
    (docs/targets.md).

    With a target of another broker, such as `Mqtt(...).topic(...)`, each value is a message in the bytes that it has in
    Kafka, at least once.

    Args:
        name: of the processor.
        inputs: the topic.
        into: the table, or the target.
        settings: others of `Processor`, such as `errors`, `filter` and `start`.

    Raises:
        GraphError: something does not fit.
    """
    if not isinstance(into, Into):
        raise GraphError(
            f'Sink {name!r}: into={into!r} is not a table. Write into=Sql(...).table("name", columns=[...]), or '
            '.upsert("name", key="id", columns=[...]), or Blobs(...).json_lines("name"), or Mqtt(...).topic("name"), '
            "or a target of your own."
        )
    if taken := sorted({"outputs", "alts", "effects", "batch", "concurrency", "opts", "state"} & settings.keys()):
        raise GraphError(
            f"Sink {name!r}: {quoted(taken)} are not for a sink without a function. Write a Processor, whose function "
            "gets the table: effects={" + f"{INTO!r}: ..." + "}."
        )
    if isinstance(into, Published):
        return Processor(publish_message, name=name, inputs=inputs, effects={INTO: into}, **settings)
    fn: Any = write_files if isinstance(into, FileTable) else write_rows
    if isinstance(into, Upsert):
        fn = write_latest
    if isinstance(into, TransactionalTarget | TargetPart):
        if why := refused_as_sink(into):
            raise GraphError(f"Sink {name!r}: into={into!r}: {why}.")
        fn = write_all if callable(getattr(into.value(lambda _: None), "write_all", None)) else write_each
    return Processor(fn, name=name, inputs=inputs, effects={INTO: into}, batch=True, **settings)


def write_rows(values: list[Any], into: Any) -> None:
    """The function of a `Sink` with a table that gets a row for each value."""
    into.write(values)


def write_latest(values: list[Any], step: list[Any], into: Any) -> None:
    """The function of a `Sink` with an upsert. What it deletes is named by the keys of the messages."""
    into.write(values, [one.inputs[one.binding] for one in step])


def write_files(values: list[Any], step: list[Any], into: Any) -> None:
    """The function of a `Sink` with a table of files, which are named by the place of the messages."""
    into.write(values, [one.inputs[one.binding] for one in step])


def write_each(values: list[Any], step: list[Any], into: Any) -> None:
    """The function of a `Sink` with a target of a user's own, which gets each value with its message."""
    for value, one in zip(values, step, strict=True):
        into.write(value, one.inputs[one.binding])


def write_all(values: list[Any], into: Any) -> None:
    """The function of a `Sink` with a target that takes many values at once, such as a table of Delta Lake."""
    into.write_all(values)


def publish_message(value: Any, step: Any, into: Any) -> None:
    """The function of a `Sink` with a target of another broker."""
    into.publish(value, step)


def is_sink(processor: Processor) -> bool:
    """Whether a processor was made by `Sink`."""
    return processor.fn in (write_rows, write_latest, write_files, write_each, write_all, publish_message)


def check_columns(processor: Processor, settings: Topic) -> None:
    """
    Check the fields that a `Sink` writes.

    Args:
        processor: of any kind.
        settings: of the topic that it reads.

    Raises:
        GraphError: the topic's values have no such field.
    """
    into = processor.targets.get(INTO)
    if not is_sink(processor) or not isinstance(into, SqlTable | Upsert):
        return
    if isinstance(settings.value, Raw):
        raise GraphError(
            f"{processor.label}: the values of {processor.lead!r} are bytes, which have no fields. Give the topic a "
            f"codec, topics={{{processor.lead!r}: Topic(value=Json())}}, or write a Processor."
        )
    owner, fields = fields_of(settings.value)
    missing = [field for _, field in into.columns if fields and not hasattr(settings.value.record, field)]
    missing = [field for field in missing if field not in fields]
    if missing:
        raise GraphError(
            f"{processor.label}: {owner}, the value of {processor.lead!r}, has no field {quoted(missing)}"
            f"{hint(missing[0], fields)}. Fields: {quoted(fields)}. Where a column has another name than its field, "
            'write columns={"column": "field"}.'
        )

"""Turn rows of DataFrames that cannot be sent into error messages of the same publication."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from hashlib import blake2b
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from cues_kafka.codecs.error_messages import error_messages
from cues_kafka.codecs.lookup import MadeFor, codec_for
from cues_kafka.codecs.raw import as_is
from cues_kafka.errors import CodecError
from cues_kafka.graph.declare import CodecSpec, Json
from cues_kafka.graph.error_message import ErrorMessage
from cues_kafka.on_spark.staged.chunks import part_of
from cues_kafka.on_spark.staged.topics import ERRORS, StagedTarget
from cues_kafka.task.calling.carried import NOTHING, Carried, Shown
from cues_kafka.task.calling.outputs import HEADER_BYTES, NAMELESS, OVERHEAD_BYTES, Output

VALUE = "<value>"
"""Stands in a reason for the value of the row's column."""


@dataclass(frozen=True)
class Refusing:
    """
    Check messages of a staged batch against the codecs and record limits of their topics.

    `codecs` are the declarations of the outputs' codecs, in their order; `carried` is what error messages have besides
    the reason; `parts` is the number of parts, of which one publishes the error message.
    """

    graph: str
    processor: str
    query: str
    batch: int
    codecs: tuple[CodecSpec, ...]
    target: StagedTarget
    options: Any = None
    carried: Carried = NOTHING
    parts: int = 1

    def __call__(self, piece: pa.RecordBatch, row: int) -> pa.RecordBatch:
        """
        Return the rows, which have the columns `MESSAGES`, with error messages in the place of those that do not fit.

        Raises:
            CodecError: a row does not fit, and there is no errors topic.
        """
        found = dict(self._refused(piece))
        if not found:
            return piece
        if self.target.errors is None:
            at, why = min(found.items())
            raise _no_topic(self.target.topic(piece.column("output")[at].as_py()).topic, why)
        columns = {name: piece.column(name).to_pylist() for name in piece.schema.names}
        now_ms = int(time.time() * 1000)
        for at, why in found.items():
            output, data = columns["output"][at], columns["value"][at]
            shown = self.carried.shown(data, self.codecs[output], partial(self._decoders[output], data))
            made = self._error(columns["key"][at], row + at, why, now_ms, shown)
            columns["key"][at], columns["value"][at] = made
            columns["headers"][at] = None
            columns["timestamp"][at] = now_ms
            columns["output"][at] = ERRORS
            columns["error"][at] = True
        arrays = [pa.array(columns[field.name], field.type) for field in piece.schema]
        return pa.RecordBatch.from_arrays(arrays, schema=piece.schema)

    def messages(
        self, refused: Sequence[tuple[int, bytes, str]], table: str, exception: str = "CodecError"
    ) -> pa.RecordBatch:
        """
        Return error messages, with the columns `MESSAGES`, of rows that do not fit a table (E5).

        Args:
            refused: (number of the row, the row as JSON, why) of each.
            table: its name.
            exception: what error messages name.

        Raises:
            CodecError: there is no errors topic.
        """
        if self.target.errors is None:
            raise _no_topic(table, refused[0][2])
        now_ms = int(time.time() * 1000)
        made = []
        for row, value, why in refused:
            shown = self.carried.shown(value, Json(), partial(json.loads, value))
            made.append(self._error(None, row, why, now_ms, shown, exception=exception))
        count = len(made)
        columns = {
            "output": pa.repeat(pa.scalar(ERRORS, pa.int32()), count),
            "key": pa.array([key for key, _ in made], pa.binary()),
            "value": pa.array([value for _, value in made], pa.binary()),
            "headers": pa.nulls(count, pa.binary()),
            "timestamp": pa.repeat(pa.scalar(now_ms, pa.int64()), count),
            "error": pa.repeat(pa.scalar(value=True), count),
        }
        return pa.RecordBatch.from_pydict(columns)

    @cached_property
    def _decoders(self) -> list[Callable[[bytes], Any]]:
        """The codecs of the outputs, in their order, made once in each Spark task."""
        topics = [self.target.topic(number).topic for number in range(len(self.codecs))]
        return [codec_for(c, MadeFor(t, self.options)).decode for c, t in zip(self.codecs, topics, strict=True)]

    def _refused(self, piece: pa.RecordBatch) -> Iterator[tuple[int, str]]:
        outputs, values, sizes = piece.column("output"), piece.column("value"), _sizes(piece)
        for number in outputs.unique().to_pylist():
            fits = pc.equal(outputs, number)
            for bad, column, why in _refused_by_the_broker(self.target.topic(number), piece, sizes):
                for at in pc.indices_nonzero(pc.and_(fits, bad)).to_pylist():
                    yield at, why.replace(VALUE, str(column[at].as_py()))
                fits = pc.and_not(fits, bad)
            decode = self._decoders[number]
            if decode is as_is:
                continue
            for at in pc.indices_nonzero(pc.and_(fits, pc.is_valid(values))).to_pylist():
                try:
                    decode(values[at].as_py())
                except CodecError as error:
                    yield at, str(error)

    def _error(
        self, key: bytes | None, row: int, why: str, now_ms: int, shown: Shown, *, exception: str = "CodecError"
    ) -> tuple[bytes | None, bytes]:
        """Key and value of an error message. It has the row's key if that fits beside the value."""
        number, errors = self._hash(row), self.target.errors
        assert errors
        value = error_messages().encode(
            ErrorMessage(
                graph=self.graph,
                processor=self.processor,
                task=f"{self.processor}/{part_of(row, self.parts)}",
                consumed=(),
                topics=(),
                hash=number,
                kind="output",
                exception=exception,
                text=why,
                context={"query": self.query, "batch": str(self.batch), "row": str(row)},
                timestamp_ms=now_ms,
                key=key,
                declaration=self.carried.declaration,
                **shown,
            )
        )
        room = errors.max_bytes - len(value) - OVERHEAD_BYTES
        own = key if key is not None and len(key) <= room else number if errors.compacted else None
        if room < len(own or b""):
            raise CodecError(
                f"an error message of {len(value)} bytes does not fit {errors.topic!r}, with {OVERHEAD_BYTES} more it "
                f"has to keep to {errors.limit}: raise that"
            )
        return own, value

    def _hash(self, row: int) -> bytes:
        name = f"{self.graph}.{self.processor}/{self.query}/{self.batch}/{row}"
        return blake2b(name.encode(), digest_size=16).digest()


def _no_topic(where: str, why: str) -> CodecError:
    return CodecError(f"a row does not fit {where!r}: {why}. Declare an errors topic, which takes such rows")


def _refused_by_the_broker(
    output: Output, piece: pa.RecordBatch, sizes: pa.Array
) -> Iterator[tuple[pa.Array, pa.Array, str]]:
    """
    Rows that the brokers would always refuse: a mask, a column, and the reason with `VALUE` for its value.

    A row gets older until it is published, so a limit of a week is enough, and one of a minute is not.
    """
    when, now_ms = piece.column("timestamp"), int(time.time() * 1000)
    yield pc.greater(sizes, output.max_bytes), sizes, f"{VALUE} bytes, more than {output.limit}"
    yield pc.less(when, 0), when, f"its timestamp is {VALUE}; milliseconds since the epoch are a whole number from 0 on"
    yield _nameless(piece), when, f"it cannot be written: {NAMELESS}"
    if output.compacted:
        keys = piece.column("key")
        yield pc.is_null(keys), keys, "it has no key, and a compacted topic takes none without. Give it a _key"
    if output.older_ms is not None:
        why = f"its timestamp {VALUE} is older than the {output.older_ms} ms of message.timestamp.before.max.ms"
        # 0 stands for the broker's own time.
        yield pc.and_(pc.less(when, now_ms - output.older_ms), pc.not_equal(when, 0)), when, why
    if output.newer_ms is not None:
        why = f"its timestamp {VALUE} is further ahead than the {output.newer_ms} ms of message.timestamp.after.max.ms"
        yield pc.greater(when, now_ms + output.newer_ms), when, why


def _sizes(piece: pa.RecordBatch) -> pa.Array:
    """Size of each row as a record, in bytes."""
    sizes = pa.repeat(pa.scalar(OVERHEAD_BYTES, pa.int64()), len(piece))
    for name in ("key", "value"):
        sizes = pc.add(sizes, pc.fill_null(pc.binary_length(piece.column(name)), 0))
    if piece.column("headers").null_count < len(piece):
        given = [
            sum(len(name or b"") + len(value or b"") + HEADER_BYTES for name, value in row) for row in _headers(piece)
        ]
        sizes = pc.add(sizes, pa.array(given, pa.int64()))
    return sizes


def _nameless(piece: pa.RecordBatch) -> pa.Array:
    """Rows that have a header without a name, or with a name that would be cut off."""
    headers = piece.column("headers")
    # If no row has headers, they are a column of bytes: see `columns`.
    if headers.null_count == len(piece):
        return pa.repeat(pa.scalar(False), len(piece))
    names = pc.struct_field(headers.flatten(), "key")
    if not names.null_count and not pc.any(pc.match_substring(names, "\0")).as_py():
        return pa.repeat(pa.scalar(False), len(piece))
    return pa.array([any(name is None or b"\0" in name for name, _ in row) for row in _headers(piece)])


def _headers(piece: pa.RecordBatch) -> list[list[tuple[bytes | None, bytes | None]]]:
    """Names as bytes, and values; nothing for a header that is null."""
    given = [[one or {"key": None, "value": None} for one in row or ()] for row in piece.column("headers").to_pylist()]
    return [[(None if h["key"] is None else h["key"].encode(), h["value"]) for h in row] for row in given]

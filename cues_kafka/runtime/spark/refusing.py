"""Rows of DataFrames that cannot be sent become error messages, in the same publication as all others."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from cues_kafka.codecs.lookup import codec_for
from cues_kafka.codecs.records import ErrorMessage, encode_error
from cues_kafka.errors import CodecError
from cues_kafka.runtime.outputs import OVERHEAD_BYTES
from cues_kafka.runtime.spark.parts import ERRORS, Target


@dataclass(frozen=True)
class Refusing:
    """
    What a staged batch's messages must fit: the codecs and the largest records of their topics.

    Attributes:
        graph, processor: names.
        query, batch: of the micro-batch.
        codecs: of the outputs, in their order; None: any bytes.
        target: the topics.
    """

    graph: str
    processor: str
    query: str
    batch: int
    codecs: tuple[Any, ...]
    target: Target

    def __call__(self, piece: pa.RecordBatch, row: int) -> pa.RecordBatch:
        """
        The same rows, those that do not fit as error messages.

        Args:
            piece: columns output, key, value, headers, timestamp, error.
            row: number of the first one.

        Raises:
            CodecError: one does not fit, and there is no errors topic.
        """
        found = dict(self._refused(piece))
        if not found:
            return piece
        if self.target.errors is None:
            at, why = min(found.items())
            topic = self.target.topic(piece.column("output")[at].as_py()).topic
            raise CodecError(f"a row does not fit {topic!r}: {why}. Declare an errors topic, which takes such rows")
        columns = {name: piece.column(name).to_pylist() for name in piece.schema.names}
        for at, why in found.items():
            columns["value"][at] = self._error(columns, at, row + at, why)
            columns["headers"][at] = None
            columns["output"][at] = ERRORS
            columns["error"][at] = True
        arrays = [pa.array(columns[field.name], field.type) for field in piece.schema]
        return pa.RecordBatch.from_arrays(arrays, schema=piece.schema)

    def _refused(self, piece: pa.RecordBatch) -> Iterator[tuple[int, str]]:
        outputs, values, sizes = piece.column("output"), piece.column("value"), _sizes(piece)
        for number in outputs.unique().to_pylist():
            most, codec = self.target.topic(number).max_bytes, self.codecs[number]
            mine = pc.equal(outputs, number)
            for at in pc.indices_nonzero(pc.and_(mine, pc.greater(sizes, most))).to_pylist():
                yield at, f"{sizes[at].as_py()} bytes, more than the {most} that the topic takes"
            if codec is None:
                continue
            decode = codec_for(codec).decode
            fits = pc.and_(pc.and_(mine, pc.less_equal(sizes, most)), pc.is_valid(values))
            for at in pc.indices_nonzero(fits).to_pylist():
                try:
                    decode(values[at].as_py())
                except CodecError as error:
                    yield at, str(error)

    def _error(self, columns: dict[str, list[Any]], at: int, row: int, why: str) -> bytes:
        name = f"{self.graph}.{self.processor}/{self.query}/{self.batch}/{row}"
        return encode_error(
            ErrorMessage(
                graph=self.graph,
                processor=self.processor,
                task=self.processor,
                consumed=(),
                topics=(),
                hash=blake2b(name.encode(), digest_size=16).digest(),
                kind="output",
                exception="CodecError",
                text=why,
                context={"query": self.query, "batch": str(self.batch), "row": str(row)},
                timestamp_ms=int(time.time() * 1000),
                key=columns["key"][at],
                payload=columns["value"][at],
            )
        )


def _sizes(piece: pa.RecordBatch) -> pa.Array:
    """Bytes of each row as a record."""
    headers = piece.column("headers")
    sizes = pa.array([OVERHEAD_BYTES] * len(piece), pa.int64())
    for name in ("key", "value"):
        sizes = pc.add(sizes, pc.fill_null(pc.binary_length(piece.column(name)), 0))
    if headers.null_count < len(headers):
        given = [sum(len(h["key"]) + len(h["value"] or b"") for h in each or ()) for each in headers.to_pylist()]
        sizes = pc.add(sizes, pa.array(given, pa.int64()))
    return sizes

"""The values of an input of DataFrames, decoded in Spark's processes by the decoder that native workers use.

A message that cannot be decoded, or that its column cannot hold, makes no row. The function never sees it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql.types import StructType

from cues_kafka.codecs.error_messages import as_avro
from cues_kafka.codecs.lookup import MadeFor, codec_for
from cues_kafka.codecs.plain_values import Convert, plain
from cues_kafka.codecs.raw import as_is
from cues_kafka.errors import CodecError, RetriableError
from cues_kafka.graph.declare import CodecSpec
from cues_kafka.graph.topic import Topic
from cues_kafka.on_spark.columns import value_type
from cues_kafka.on_spark.source.values import arrow_type
from cues_kafka.ports.log import UNREADABLE, Headers, WireMessage, headers_of_each
from cues_kafka.task.calling.decoding import Decoder
from cues_kafka.task.calling.step import unreadable
from cues_kafka.task.making.build import decoder

_MISFITS = (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError)
"""What Arrow raises for a value that a column cannot hold."""


class NotDecoded(NamedTuple):
    """A message that cannot be decoded, and why."""

    message: WireMessage
    error: Exception


class Separated(NamedTuple):
    """
    Messages of one partition, by whether they can be decoded.

    Attributes:
        good: in order.
        headers: theirs.
        values: their column; None: the bytes are the values.
        failed: the others, in order.
    """

    good: Sequence[WireMessage]
    headers: Sequence[Headers | None]
    values: Any
    failed: Sequence[NotDecoded]


def _read(
    decode: Callable[[bytes | None], Any], rest: Iterator[WireMessage], messages: Sequence[WireMessage]
) -> Iterator[Any]:
    """Decode values; messages of a reader have one class, whose methods are quicker than calls by name."""
    return map(decode, map(type(messages[0]).value, rest)) if messages else iter(())


class Decoding:
    """
    Decodes the values of one topic. It can be pickled, and makes its codec where it is used.

    Args:
        declared: the topic's codec.
        made_for: see `codec_for`.

    Attributes:
        ddl: Spark's type of the values; None: the codec has no schema, so they stay bytes.
        kind: Arrow's type of them, once `know` was called; None: they stay bytes.

    Raises:
        ConfigError: no column can hold a field of the class.
    """

    def __init__(self, declared: CodecSpec, made_for: MadeFor) -> None:
        self._settings = Topic(value=as_avro(declared))
        self._made_for = made_for
        self.ddl = value_type(codec_for(self._settings.value, made_for))
        self.kind: Any = None
        self._decoder: Decoder | None = None
        self._convert: Convert | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_decoder": None, "_convert": None}

    @property
    def decoder(self) -> Decoder:
        """The decoder of native workers."""
        if self._decoder is None:
            codec = codec_for(self._settings.value, self._made_for)
            self._convert = None if codec.shape is None else plain(codec.shape)
            self._decoder = decoder(self._settings, self._made_for)
        return self._decoder

    def know(self, schema: StructType) -> None:
        """Take the type of the column from the schema that Spark made of `ddl`."""
        self.kind = None if self.ddl is None else arrow_type(schema["value"].dataType)

    def separate(self, messages: Sequence[WireMessage]) -> Separated:
        """
        Decode messages of one partition, in order.

        Raises:
            RetriableError: what the codec asks does not answer.
        """
        came, decoder, kind = headers_of_each(messages), self.decoder, self.kind
        if decoder.decode is as_is and UNREADABLE not in came:
            return Separated(messages, came, None, ())
        values, failed = self._decoded(decoder, messages, came)
        good, headers = messages, came
        if failed:
            bad = {id(one.message) for one in failed}  # of replays, two may have one offset
            kept = [(one, own) for one, own in zip(messages, came, strict=True) if id(one) not in bad]
            good, headers = [one for one, _ in kept], [own for _, own in kept]
        if kind is None:
            return Separated(good, headers, None, failed)
        if (convert := self._convert) is not None:
            values = [None if value is None else convert(value) for value in values]
        try:
            return Separated(good, headers, pa.array(values, kind), failed)
        except _MISFITS:
            return self._held(good, headers, values, failed, kind)

    @staticmethod
    def _decoded(
        decoder: Decoder, messages: Sequence[WireMessage], came: Sequence[Headers | None]
    ) -> tuple[list[Any], list[NotDecoded]]:
        """The values of the messages that can be decoded, and the others; both in order."""
        failed: list[NotDecoded] = []
        if UNREADABLE in came:
            pairs = list(zip(messages, came, strict=True))
            failed = [NotDecoded(one, unreadable(one)) for one, own in pairs if own is UNREADABLE]
            messages = [one for one, own in pairs if own is not UNREADABLE]
        values: list[Any] = []
        # Calls of a message that go through `map` cost half, and `extend` keeps what came before an exception. The
        # iterators go on behind it.
        rest, before = iter(messages), len(failed)
        read = map(decoder.read, rest) if decoder.id_header is not None else _read(decoder.decode, rest, messages)
        while True:
            try:
                values.extend(read)
                break
            except RetriableError:
                raise
            except Exception as error:  # noqa: BLE001 - a codec of a user may raise what it likes
                failed.append(NotDecoded(messages[len(values) + len(failed) - before], error))
        failed.sort(key=lambda one: one.message.offset())
        return values, failed

    @staticmethod
    def _held(
        good: Sequence[WireMessage],
        headers: Sequence[Headers | None],
        values: Sequence[Any],
        failed: list[NotDecoded],
        kind: Any,
    ) -> Separated:
        """Separate values that the column cannot hold, such as numbers beyond 64 bits."""
        held: list[tuple[WireMessage, Headers | None, Any]] = []
        for message, own, value in zip(good, headers, values, strict=True):
            try:
                pa.array([value], kind)
            except _MISFITS as error:
                why = f"A column of Spark cannot hold the value: {error}. Declare Raw(), and parse it in the function."
                failed.append(NotDecoded(message, CodecError(why)))
            else:
                held.append((message, own, value))
        column = pa.array([value for _, _, value in held], kind)
        failed.sort(key=lambda one: one.message.offset())
        return Separated([message for message, _, _ in held], [own for _, own, _ in held], column, failed)

"""Values of a topic as a column with the types of their schema, in the place of their bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_type

from cues_kafka.codecs.avro import schema_text
from cues_kafka.codecs.error_messages import as_avro
from cues_kafka.codecs.framing import in_front
from cues_kafka.codecs.lookup import MadeFor, codec_for
from cues_kafka.codecs.plain_values import Convert, plain
from cues_kafka.errors import CodecError, ConfigError
from cues_kafka.graph.declare import CodecSpec
from cues_kafka.graph.formats import Avro
from cues_kafka.observe.log import get_logger
from cues_kafka.on_spark.columns import value_type
from cues_kafka.on_spark.letter_case import ambiguous_values
from cues_kafka.ports.log import UNREADABLE, Headers, WireMessage

FAILFAST: Final = "FAILFAST"
PERMISSIVE: Final = "PERMISSIVE"
MODES: Final = (FAILFAST, PERMISSIVE)
"""What a message that cannot be read does, by Spark's names: it fails the read; or its value is null."""

log = get_logger("cues_kafka.source")


def arrow_type(kind: Any) -> Any:
    """Arrow's type of a column, from Spark's."""
    return to_arrow_type(kind, timezone="UTC")


class Values:
    """
    Makes a column of the values of messages. It can be pickled, and makes its codec where it is used.

    Args:
        declared: the codec. A class in Avro is not needed, because values are the records of its schema.
        made_for: see `codec_for`.
        mode: one of `MODES`.

    Attributes:
        ddl: Spark's type of the column.
        ambiguous: why Spark cannot tell its fields apart unless case counts, with the remedy; empty: it can.

    Raises:
        ConfigError: the codec has no schema, or no column can hold its values.
    """

    def __init__(self, declared: CodecSpec, made_for: MadeFor, mode: str = FAILFAST) -> None:
        declared = as_avro(declared)
        if isinstance(declared, Avro) and declared.schema is not None:
            declared = replace(declared, schema=schema_text(declared), cls=None)
        self._declared, self._made_for, self._mode = declared, made_for, mode
        self._codec: Any = None
        self._convert: Convert | None = None
        self._type: Any = None
        codec = codec_for(declared, made_for)
        found = value_type(codec)
        if found is None or codec.shape is None:
            raise ConfigError(
                f"{made_for.topic!r} has no columns: its codec {declared!r:.100} has no schema. Declare "
                "Json(SomeDataclass) or Avro(...), or give a Codec of your own a schema. To read the bytes, leave out "
                'option("graph", ...)'
            )
        self.ddl = found
        self.ambiguous = ambiguous_values(codec.shape)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_codec": None, "_convert": None, "_type": None}

    @property
    def id_header(self) -> str | None:
        """The header whose value `column` needs, where a message has it."""
        return getattr(self._open(), "id_header", None)

    def column(self, messages: Sequence[WireMessage], headers: Sequence[Headers | None], kind: Any) -> Any:
        """
        Make the column; a message without a value has null.

        Args:
            messages: of one partition.
            headers: theirs, if `id_header` names one; else not looked at.
            kind: Arrow's type of the column, see `arrow_type`.

        Raises:
            CodecError: a message cannot be read, and the mode is FAILFAST; names its place.
        """
        name, came = self.id_header, headers or [None] * len(messages)
        rows = [self._value(message, own, name) for message, own in zip(messages, came, strict=True)]
        try:
            return pa.array(rows, kind)
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
            first = messages[0]
            raise CodecError(
                f"{first.topic()}/{first.partition()} from {first.offset()}: a value does not fit its column: {error}"
            ) from error

    def _value(self, message: WireMessage, headers: Headers | None, name: str | None) -> Any:
        data = message.value()
        if data is None:
            return None
        try:
            if headers is UNREADABLE:
                raise CodecError("the name of a header is not UTF-8, so the id of the schema cannot be looked for")
            value = self._codec.decode(data if name is None else in_front(headers, name, data))
        except CodecError as error:
            return self._unread(message, error)
        return value if self._convert is None else self._convert(value)

    def _unread(self, message: WireMessage, error: CodecError) -> None:
        place = {"topic": message.topic(), "partition": message.partition(), "offset": message.offset()}
        if self._mode == PERMISSIVE:
            log.warning("value left out", **place, why=str(error))
            return
        raise CodecError(
            f"{message.topic()}/{message.partition()} at {message.offset()} cannot be read: {error} To get null for "
            'such a message, add option("mode", "PERMISSIVE"). To see its bytes, read without graph, avroSchema and '
            "schema.registry.url."
        ) from error

    def _open(self) -> Any:
        if self._codec is None:
            self._codec = codec_for(self._declared, self._made_for)
            self._convert = plain(self._codec.shape)
        return self._codec

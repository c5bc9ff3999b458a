"""What the client refuses to give to its reader: batches that it cannot unpack, check or receive.

librdkafka asks for such a batch again and again, and gives nothing of the partition meanwhile. It names the offset of
the batch, whatever offset it reads from, except where the batch is too large to be received: then it ends the
connection, and names neither topic nor partition (2.16.1).
"""

from __future__ import annotations

import re
from typing import Any, Final

from cues_kafka.errors import UnreadableError
from cues_kafka.ports.log import TopicPartition

LIMIT: Final = "receive.message.max.bytes"
"""The setting that bounds a response of a broker, and what a batch with zstd unpacks to."""

LIMIT_DEFAULT: Final = 100_000_000

TOO_LARGE: Final = "TOO_LARGE"
"""The code of a batch that is too large to be received."""

RAISE: Final = (
    f"raise {LIMIT} in Kafka(consumer={{...}}), here {{limit}}, to what the batch needs, and start again with it"
)

_REPLACE: Final = "if the broker's copy is damaged, let another replica lead the partition, which may have a good one"

CODES: Final = {
    "_BAD_COMPRESSION": (
        f"the client cannot unpack it: it is damaged, or unpacked it is larger than {LIMIT} ({{limit}})",
        f"{RAISE}; {_REPLACE}",
    ),
    "_NOT_IMPLEMENTED": (
        "the client does not know its compression",
        "install a release of confluent-kafka that has this compression, and start again with it",
    ),
    "_UNSUPPORTED_FEATURE": ("the client does not know its format", "install a newer release of confluent-kafka"),
    "_BAD_MSG": ("it is damaged: its checksum or its lengths are wrong", _REPLACE),
    "_UNDERFLOW": ("it is damaged: it ends too early", _REPLACE),
    "INVALID_MSG": ("the broker says that its copy is damaged", _REPLACE),
    "INVALID_MSG_SIZE": ("the broker says that its copy is damaged", _REPLACE),
    "MSG_SIZE_TOO_LARGE": (f"it is larger than {LIMIT} ({{limit}})", RAISE),
    TOO_LARGE: (f"it is larger than {LIMIT} ({{limit}})", RAISE),
}
"""By code of an error that names a partition: what is wrong with the batch, and what helps."""

SAID_TOO_LARGE: Final = r"Invalid response size (\d+) .*in state UP"
"""What the client says when it ends a connection because of a large response. In another state no Kafka answers."""


def response_size(text: str) -> int | None:
    """The size of a response that a log line of the client calls too large, in bytes; None: it says something else."""
    found = re.search(SAID_TOO_LARGE, text)
    return None if found is None else int(found[1])


def limit_of(settings: dict[str, Any]) -> int:
    """The largest response that a client with these settings takes, in bytes."""
    return int(settings.get(LIMIT, LIMIT_DEFAULT))


def refused(code: str, reader: str, place: TopicPartition, offset: int, *, said: str, limit: int) -> UnreadableError:
    """
    The error for a batch that the client refuses.

    Args:
        code: the client's, one of `CODES`.
        reader: the name of the reader.
        place: topic and partition.
        offset: of the batch; where it is too large to be received, the offset that is read next.
        said: what the client said.
        limit: of the client, in bytes.
    """
    what, remedy = (text.replace("{limit}", f"{limit:,}") for text in CODES[code])
    return UnreadableError(
        f"{reader}: the batch of {place.topic}/{place.partition} at offset {offset} cannot be read: {what} [{code}: "
        f"{said}]",
        code=code,
        place=place,
        offset=offset,
        remedy=remedy,
        bounded=code != TOO_LARGE,
    )

"""Records of the outbox as a few large values: a row for each record would cost ten times as much."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import Any, TypeAlias

import msgspec

from cues_kafka.errors import CodecError

MOST_BYTES = 512 * 1024
"""How many bytes of keys, values and headers one row holds, about; a record that is larger has a row of its own.
Databases limit the size of a statement: MariaDB to 16 MiB, where nothing else is set."""

EXTRA_BYTES = 64
"""Bytes of a record besides key and value, about."""

_Packed: TypeAlias = tuple[str, int | None, bytes | None, bytes | None, list[tuple[str, bytes | None]] | None, int]

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[_Packed]).decode


def packed(records: Iterable[tuple[Any, ...]]) -> Iterator[bytes]:
    """
    Pack records that are shaped like `ports.log.Outgoing`.

    The form is MessagePack: an array of records, each of which is an array of topic, partition or nil, key, value,
    headers (an array of name and value) or nil, and timestamp in milliseconds.
    """
    rows = list(records)
    sizes = accumulate(
        EXTRA_BYTES + len(key or b"") + len(value or b"") + (_size_of(headers) if headers else 0)
        for _, _, key, value, headers, _ in rows
    )
    begin = done = 0
    for end, size in enumerate(sizes, 1):
        if size - done >= MOST_BYTES:
            yield _encode(rows[begin:end])
            begin, done = end, size
    if begin < len(rows):
        yield _encode(rows[begin:])


def unpacked(data: bytes) -> list[_Packed]:
    """
    Read what `packed` made.

    Raises:
        CodecError: it is something else.
    """
    try:
        return _decode(data)
    except msgspec.DecodeError as error:
        raise CodecError(f"the outbox in the database holds something that is not a record: {error}") from error


def _size_of(headers: Iterable[tuple[str, bytes | None]]) -> int:
    size = 0
    for name, value in headers:
        size += len(name) + len(value or b"")
    return size

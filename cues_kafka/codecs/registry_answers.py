"""Bounds the answers of a schema registry: Confluent's client reads each one whole, and would unpack it to any size."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from httpx2 import ByteStream, HTTPError, Response, SyncByteStream

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import SchemaRegistryClient

ANSWER_BYTES: Final = 16 << 20
"""The largest answer. A schema is some kilobytes, and one with the texts of its references seldom more than one MB."""


def bound(client: SchemaRegistryClient) -> SchemaRegistryClient:
    """Have a client ask for plain answers, and refuse packed ones and those that are too large."""
    session = client._rest_client.session  # noqa: SLF001  it has no setting for this; a test holds that it is there
    session.headers["Accept-Encoding"] = "identity"  # a small answer may unpack to an endless one
    session.event_hooks = {"response": [_refuse]}
    return client


def _refuse(response: Response) -> None:
    """Look at an answer before its body is read."""
    coding = response.headers.get("content-encoding", "identity")
    if coding != "identity":
        raise HTTPError(f"its answer is packed ({coding:.40}), which was not asked for")
    if isinstance(response.stream, SyncByteStream) and not isinstance(response.stream, ByteStream):
        response.stream = _Bounded(response.stream)


class _Bounded(SyncByteStream):
    """A body that ends with an error where it is too large."""

    def __init__(self, stream: SyncByteStream) -> None:
        self._stream = stream

    def __iter__(self) -> Iterator[bytes]:
        size = 0
        for chunk in self._stream:
            size += len(chunk)
            if size > ANSWER_BYTES:
                raise HTTPError(f"its answer is larger than {ANSWER_BYTES:,} bytes")
            yield chunk

    def close(self) -> None:
        self._stream.close()

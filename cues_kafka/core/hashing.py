"""Identities: the delivery hash and the plan's fingerprint, over canonical, versioned, struct-packed bytes.

Golden values in the tests never change: another byte here repeats or loses effects of running systems.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from functools import lru_cache
from hashlib import blake2b

from cues_kafka.ports import Coordinates

_DELIVERY = b"\x01"  # version of the encoding
_PLAN = b"\x01"
_COUNT = struct.Struct(">H")
_PLACE = struct.Struct(">16sIQ")  # topic id, partition, offset


@lru_cache(maxsize=1024)  # names: a few for each graph, the same for every delivery
def _text(value: str) -> bytes:
    data = value.encode()
    return _COUNT.pack(len(data)) + data


def delivery_hash(graph: str, processor: str, consumed: Sequence[Coordinates]) -> bytes:
    """
    Name one delivery by the messages that it consumes (O4).

    It is the same on every attempt, in every cut of batches and in every runtime (I6). Python's `hash()` is not.

    Args:
        graph: name of the graph.
        processor: name of the processor.
        consumed: coordinates of each consumed message, in any order; they are hashed in the order of binding names.

    Returns:
        16 bytes, BLAKE2b.
    """
    parts = [_DELIVERY, _text(graph), _text(processor), _COUNT.pack(len(consumed))]
    for binding, topic_id, partition, offset in sorted(consumed):
        parts += (_text(binding), _PLACE.pack(topic_id, partition, offset))
    return blake2b(b"".join(parts), digest_size=16, person=b"cues.delivery").digest()


def fingerprint(processor: str, kind: str, inputs: Iterable[tuple[str, bytes]]) -> bytes:
    """
    What must not change under a snapshot (O7): processor name, kind, input bindings with their topic ids.

    Outputs, code, codecs, the order of the bindings, partition count and record version may change.

    Args:
        processor: name of the processor.
        kind: `single`, `join` or `alts`: how inputs are paired.
        inputs: (binding, topic id) in any order; they are hashed in the order of binding names.

    Returns:
        8 bytes.
    """
    parts = [_PLAN, _text(processor), _text(kind)]
    for binding, topic_id in sorted(inputs):
        parts += (_text(binding), topic_id)
    return blake2b(b"".join(parts), digest_size=8, person=b"cues.plan").digest()

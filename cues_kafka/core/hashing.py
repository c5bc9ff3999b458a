"""Identities: the delivery hash and the plan's fingerprint, over canonical, versioned, struct-packed bytes.

Golden values in the tests never change: another byte here repeats or loses effects of running systems.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from functools import lru_cache
from hashlib import blake2b

from cues_kafka.ports.log import Coordinates

_DELIVERY = b"\x01"  # version of the encoding
_PLAN = b"\x01"
_TIMER = b"\x01"
_COUNT = struct.Struct(">H")
_PLACE = struct.Struct(">16sIQ")  # topic id, partition, offset
_DUE = struct.Struct(">Iq")  # partition, milliseconds since 1970


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
    parts = [_DELIVERY, _text(graph), _text(processor), *_places(consumed)]
    return blake2b(b"".join(parts), digest_size=16, person=b"cues.delivery").digest()


def _places(consumed: Sequence[Coordinates]) -> list[bytes]:
    parts = [_COUNT.pack(len(consumed))]
    for binding, topic_id, partition, offset in sorted(consumed):
        parts += (_text(binding), _PLACE.pack(topic_id, partition, offset))
    return parts


def timer_hash(  # noqa: PLR0917  what names a task, and what names its timer
    graph: str, processor: str, partition: int, key: str, due_ms: int, origin: Sequence[Coordinates]
) -> bytes:
    """
    Name the step that one timer begins (F1). It is the same on every attempt, as a `delivery_hash` is.

    Args:
        graph: name of the graph.
        processor: name of the processor.
        partition: the task's.
        key: of the timer.
        due_ms: the time at which the timer is due, in milliseconds since 1970.
        origin: coordinates of the messages whose step set it: when it has fired, another step may set it again.

    Returns:
        16 bytes, BLAKE2b.
    """
    parts = (_TIMER, _text(graph), _text(processor), _DUE.pack(partition, due_ms), *_places(origin), key.encode())
    return blake2b(b"".join(parts), digest_size=16, person=b"cues.timer").digest()


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

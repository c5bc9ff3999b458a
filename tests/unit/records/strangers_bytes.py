"""Bytes that another program may write to a topic of ours: random, deep, huge, and records of ours with changes."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from copy import deepcopy
from typing import Any, Final

SCALARS: Final[Sequence[Any]] = (
    *(None, True, False, 0, -1, 1, 2**31, 2**63, -(2**63), 10**40, 0.5, -0.0, 1e308, float("nan"), float("inf")),
    *("", "x", "\x1b[2J", "\u202e", "\ud800", "a/b", "p/0", "9" * 5_000, "A" * 22, [], {}, [[]], {"a": {}}),
)

RAW: Final[Sequence[bytes | None]] = (
    *(None, b"", b"\x00", b"\xff\xfe", b"null", b"[]", b"{}", b"1e999", b"NaN", b'"\\ud800"', b'{"version":1}'),
    *(b"[" * 200_000, b'{"a":' * 100_000, b"9" * 9_000, b'{"version":' + b"9" * 5_000 + b"}", b"\xc3\x01" + b"\0" * 64),
)


def values(seed: int, number: int, samples: Sequence[bytes]) -> Iterator[bytes | None]:
    """
    Give values, the same ones for a seed.

    Args:
        seed: of the random numbers.
        number: how many.
        samples: values of ours, which are changed.
    """
    rand = random.Random(seed)
    for _ in range(number):
        sample = rand.choice(samples)
        match rand.randrange(5):
            case 0:
                yield rand.choice(RAW)
            case 1:
                yield rand.randbytes(rand.randrange(200))
            case 2:
                yield _bent(rand, sample)
            case _:
                yield _changed(rand, sample)


def _bent(rand: random.Random, sample: bytes) -> bytes:
    """Bytes that are cut, doubled or flipped."""
    at = rand.randrange(len(sample))
    match rand.randrange(3):
        case 0:
            return sample[:at]
        case 1:
            return sample[:at] + sample
        case _:
            return sample[:at] + bytes([sample[at] ^ (1 << rand.randrange(8))]) + sample[at + 1 :]


def _changed(rand: random.Random, sample: bytes) -> bytes:
    """A JSON value with something else at one place or at several; other bytes are bent."""
    try:
        plain = json.loads(sample)
    except ValueError:
        return _bent(rand, sample)
    for _ in range(rand.choice((1, 1, 1, 2, 5))):
        _change(rand, plain)
    return json.dumps(plain).encode()


def _change(rand: random.Random, plain: Any) -> None:
    while isinstance(plain, dict | list) and plain:
        key = rand.choice([*plain]) if isinstance(plain, dict) else rand.randrange(len(plain))
        below = plain[key]
        if isinstance(below, dict | list) and below and rand.random() < 0.7:
            plain = below
            continue
        if isinstance(plain, dict) and rand.random() < 0.1:
            del plain[key]
        else:
            plain[key] = deepcopy(rand.choice(SCALARS))
        return

"""Keys go where Kafka's Java client would put them."""

from __future__ import annotations

import random

import confluent_kafka
import pytest

from cues_kafka.brokers.murmur2 import murmur2, partition_for


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_the_hash_is_the_one_of_kafkas_own_tests(key: bytes, expected: int) -> None:
    """Golden values of the Java client's `UtilsTest`, as unsigned numbers."""
    assert murmur2(key) == expected & 0xFFFFFFFF


def test_partitions_are_those_of_librdkafka() -> None:
    """Every length of the tail, and bytes above 127, which Java reads as negative."""
    source = random.Random(4)
    for length in [*range(40), 100, 1000]:
        key = source.randbytes(length)
        assert partition_for(key, 17) == confluent_kafka.murmur2(key, 17)

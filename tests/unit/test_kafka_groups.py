"""Assignments of classic groups, as their members have them in bytes."""

from __future__ import annotations

import pytest

from cues_kafka.brokers.kafka.groups import partitions_of

# Version 0, one topic "t" with partitions 0 to 3, no bytes of the assignor; as a broker 4.3.1 listed it.
FOUR = b"\0\0\0\0\0\1\0\1t\0\0\0\4\0\0\0\0\0\0\0\1\0\0\0\2\0\0\0\3\0\0\0\0"
# Version 1, two topics "ab" [7] and "t" [1], bytes of the assignor behind them.
TWO_TOPICS = b"\0\1\0\0\0\2\0\2ab\0\0\0\1\0\0\0\7\0\1t\0\0\0\1\0\0\0\1\0\0\0\2xy"


@pytest.mark.parametrize(
    ("assignment", "topic", "expected"),
    [
        (FOUR, "t", {0, 1, 2, 3}),
        (FOUR, "u", set()),
        (TWO_TOPICS, "ab", {7}),
        (TWO_TOPICS, "t", {1}),
        (b"", "t", set()),
        (b"\0\0\0\0\0\0\0\0\0\0", "t", set()),
    ],
)
def test_an_assignment_names_the_partitions_of_each_topic(assignment: bytes, topic: str, expected: set[int]) -> None:
    """KIP-429's ConsumerProtocolAssignment: version, topics with partitions, the assignor's own."""
    assert partitions_of(assignment, topic) == expected

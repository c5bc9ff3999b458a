"""What the client answers about groups: assignments in bytes, and committed offsets."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError
from confluent_kafka import TopicPartition as ClientPartition

from cues_kafka.brokers.kafka.groups import _offsets_of, partitions_of
from cues_kafka.errors import BrokerError
from cues_kafka.ports.log import TopicPartition

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


class Answered:
    """A partition as the client answers it; its own class takes no error."""

    def __init__(self, partition: int, offset: int, error: KafkaError | None = None) -> None:
        self.topic, self.partition, self.offset, self.error = "t", partition, offset, error


def test_a_partition_without_an_offset_is_absent() -> None:
    """-1001 where nothing was committed."""
    places = [ClientPartition("t", 0, 7), ClientPartition("t", 1)]

    assert _offsets_of(places, "asking") == {TopicPartition("t", 0): 7, TopicPartition("t", 1): None}


def test_an_error_of_one_partition_is_not_an_absent_offset() -> None:
    """R2: the offset beside it reads -1001 too; taken for absent, it would switch the cross-check of R5 off."""
    refused = Answered(1, -1001, KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))

    with pytest.raises(BrokerError, match=r"asking at t/1") as said:
        _offsets_of([Answered(0, 7), refused], "asking", user="w", address="kafka-1:9092")  # type: ignore[list-item]
    assert "`kafka-acls --bootstrap-server kafka-1:9092 --add --allow-principal User:w " in str(said.value)
    assert said.value.at == ("t", 1)

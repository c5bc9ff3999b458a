"""Outputs whose topic's settings may not be read (`accept_unchecked`)."""

from __future__ import annotations

from confluent_kafka import KafkaError

from cues_kafka.brokers.kafka.classify import translate
from cues_kafka.plan.refusals import LEAST_BYTES
from cues_kafka.ports.facts import TopicFacts
from cues_kafka.task.making.build import output_of


def test_batches_for_a_topic_of_unknown_limit_keep_to_the_least_that_plan_takes() -> None:
    """A topic refuses a larger batch as a whole, although each of its messages would fit."""
    unread, read = (
        output_of(TopicFacts("out", b"i" * 16, 1, config=config), 1_000_000)
        for config in ({}, {"max.message.bytes": "500000"})
    )

    assert (unread.batch_bytes, unread.max_bytes) == (LEAST_BYTES, 1_000_000)
    assert (read.batch_bytes, read.max_bytes) == (500_000, 500_000)


def test_a_message_above_an_unread_limit_names_the_right_to_grant() -> None:
    """Its task stops, because only the broker knows the limit."""
    assert "grant DescribeConfigs on it" in str(translate(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE), "writing"))

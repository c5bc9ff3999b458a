"""Tests leave no topics to a broker that runs on."""

from __future__ import annotations

from cues_kafka import Kafka
from cues_kafka.brokers.open import open_broker
from cues_kafka.ports.facts import NewTopic
from cues_kafka.testing.fixtures import KafkaFixture
from tests.fault.support import until
from tests.sweeping import TESTS, Sweeper


def test_topics_of_tests_that_are_over_go_and_those_of_others_stay(kafka: KafkaFixture) -> None:
    """Those of all tests since the last time at once."""
    over = [f"{kafka.unique('over')}-{number}" for number in range(TESTS)]
    gone, stays = {f"{over[0]}.in", f"{over[0]}.out", f"{over[-1]}.in"}, {f"{kafka.unique('other')}.in"}
    broker = open_broker(Kafka(kafka.bootstrap))
    try:
        broker.create([NewTopic(topic, 1) for topic in sorted(gone | stays)])
        sweeper = Sweeper(kafka.bootstrap)
        for prefix in over[:-1]:
            sweeper.over(prefix)
        assert broker.partitions(gone | stays).keys() == gone | stays

        sweeper.over(over[-1])
        until(lambda: broker.partitions(gone | stays).keys() == stays, "the topics are gone")
    finally:
        broker.close()

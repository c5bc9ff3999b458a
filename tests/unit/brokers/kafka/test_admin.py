"""The client for questions, without a cluster."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator

import pytest

from cues_kafka.brokers.kafka.admin import Admin
from cues_kafka.brokers.options import Kafka
from cues_kafka.errors import RetriableError
from cues_kafka.ports import NewTopic, TopicPartition

PLACE = TopicPartition("in", 0)


@pytest.fixture
def without_collector() -> Iterator[None]:
    """What is still there was held by its own frames."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("without_collector")
@pytest.mark.parametrize(
    "ask",
    [
        lambda admin: admin.facts(["in"]),
        lambda admin: admin.members("group"),
        lambda admin: admin.watermarks([PLACE]),
        lambda admin: admin.offsets_at({PLACE: 5}),
        lambda admin: admin.create([NewTopic("in", 1, 1)]),
    ],
    ids=["facts", "members", "watermarks", "offsets_at", "create"],
)
def test_a_client_whose_question_failed_is_destroyed_with_its_last_reference(ask: Callable[[Admin], object]) -> None:
    """Python's garbage collector might come by in a thread of librdkafka, and end the process there."""
    admin = Admin(Kafka("localhost:1", start_timeout_s=0.3))
    seen = weakref.ref(admin)
    with pytest.raises(RetriableError):
        ask(admin)
    del admin

    assert seen() is None

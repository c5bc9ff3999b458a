"""The client for questions, without a cluster."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

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


def test_a_coordinator_that_moves_or_reads_its_log_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client passes its answer on, although it holds for a moment only."""
    admin, asked = Admin(Kafka("localhost:1")), list[str]()
    moving = KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_LOAD_IN_PROGRESS

    def describe(groups: Sequence[str], **_: Any) -> dict[str, Future[Any]]:
        asked.extend(groups)
        answer: Future[Any] = Future()
        if len(asked) <= len(moving):
            answer.set_exception(KafkaException(KafkaError(moving[len(asked) - 1])))
        else:
            answer.set_result(SimpleNamespace(members=[SimpleNamespace(group_instance_id=None, client_id="a")]))
        return dict.fromkeys(groups, answer)

    monkeypatch.setattr(admin, "reach", lambda: None)
    monkeypatch.setattr(admin, "_client", SimpleNamespace(describe_consumer_groups=describe, poll=lambda _: 0))

    assert admin.members("group") == ["a"]
    assert asked == ["group"] * 3

"""R4: the newest record of a key, behind whatever was aborted since (`records.reading`)."""

from __future__ import annotations

import pytest

from cues_kafka.brokers.memory import MemoryBroker
from cues_kafka.core.records import KEY
from cues_kafka.errors import RetriableError
from cues_kafka.ports.facts import NewTopic
from cues_kafka.ports.log import TopicPartition
from cues_kafka.records.reading import FIRST_WINDOW, newest
from cues_kafka.testing.tester import VirtualClock

PLACE = TopicPartition("g.f.backing", 0)


def broker_with(*transactions: tuple[bytes, bytes, bool]) -> tuple[MemoryBroker, VirtualClock]:
    """A backing topic after these transactions of one record each: key, value, committed or not."""
    clock = VirtualClock()
    broker = MemoryBroker(clock=clock)
    broker.create([NewTopic(PLACE.topic, 1, 1)])
    for key, value, commit in transactions:
        session = broker.session("g.f.0")
        session.init(timeout_s=1)
        session.begin()
        session.produce([(*PLACE, key, value, None, 0)])
        session.flush()
        if commit:
            session.commit()
            session.close()
        else:
            session.abandon()
    return broker, clock


def found(broker: MemoryBroker, clock: VirtualClock) -> bytes | None:
    """The value of the newest record."""
    low, _, high = broker.watermarks([PLACE])[PLACE]
    message = newest(broker, PLACE, low, high, clock, group="g.f")
    return None if message is None else message.value()


@pytest.mark.parametrize("aborted", [0, FIRST_WINDOW // 2 - 1, FIRST_WINDOW // 2, 9 * FIRST_WINDOW, 40 * FIRST_WINDOW])
def test_the_newest_record_is_found_behind_any_number_of_aborted_ones(aborted: int) -> None:
    """Each failed commit leaves a record and a marker; what lies beyond the first window is read as well."""
    old, new, failed = (KEY, b"old", True), (KEY, b"new", True), (KEY, b"failed", False)

    assert found(*broker_with(old, new, *[failed] * aborted)) == b"new"


def test_records_of_other_keys_hide_none() -> None:
    """Nor are they taken for one."""
    other = (b"other", b"other", True)

    assert found(*broker_with((KEY, b"mine", True), *[other] * FIRST_WINDOW)) == b"mine"
    assert found(*broker_with(*[other] * FIRST_WINDOW)) is None


def test_an_open_transaction_is_said_and_not_read_over() -> None:
    """A newer record may be hidden there, so nothing older may be taken for the newest."""
    broker, clock = broker_with((KEY, b"old", True))
    zombie = broker.session("g.f.0")
    zombie.init(timeout_s=1)
    zombie.begin()
    zombie.produce([(*PLACE, KEY, b"hidden", None, 0)])
    zombie.flush()

    with pytest.raises(RetriableError, match="an open transaction hides it"):
        found(broker, clock)

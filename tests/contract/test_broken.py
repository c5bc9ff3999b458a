"""Every case of the contract fails on a broker that breaks its rule."""

from __future__ import annotations

import pytest

from cues_kafka.brokers.memory import MemoryBroker
from cues_kafka.errors import BrokerError
from tests.contract import test_contract
from tests.contract.backends import MemoryBackend
from tests.contract.broken import BREAKS
from tests.contract.world import World

CASES = {name.removeprefix("test_"): case for name, case in vars(test_contract).items() if name.startswith("test_")}
PAIRS = [(name, broker) for name, brokers in BREAKS.items() for broker in brokers]


def test_every_case_has_a_broker_that_it_must_fail_on() -> None:
    """And no broken broker is there for a case that is gone."""
    assert set(BREAKS) == set(CASES)


@pytest.mark.parametrize(("name", "broker"), PAIRS, ids=[f"{name}-{broker.__name__}" for name, broker in PAIRS])
def test_the_case_fails_on_the_broken_broker(name: str, broker: type[MemoryBroker]) -> None:
    """It fails by an assertion, a missing or an unexpected refusal, never by an accident inside the broken broker."""
    world = World(MemoryBackend(broker, patience_s=0.3))
    try:
        with pytest.raises((AssertionError, pytest.fail.Exception, BrokerError)):
            CASES[name](world)
    finally:
        world.close()

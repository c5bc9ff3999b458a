"""What old brokers cannot do is said before anything runs."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

import pytest

from cues_kafka import ConfigError, Kafka
from cues_kafka.brokers.kafka import KafkaBroker
from tests.contract.conftest import NEWEST, OLDEST


@pytest.mark.full
def test_the_consumer_protocol_is_refused_where_the_brokers_do_not_have_it(
    other_cluster: Callable[[str], str],
) -> None:
    """A member would wait there without end and without a word (M34)."""
    old, new = (KafkaBroker(Kafka(other_cluster(version), group_protocol="consumer")) for version in (OLDEST, NEWEST))
    with (
        closing(old),
        pytest.raises(ConfigError, match=r"needs brokers of Kafka 4\.0 .*Write group_protocol='classic'"),
    ):
        old.facts([])

    with closing(new):
        assert new.facts([]).topics == {}

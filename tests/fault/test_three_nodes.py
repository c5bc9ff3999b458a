"""Three nodes, of which one is killed, restarted or cut off under load: everything is there once, in order.

Each test runs a graph of its own on one cluster, and leaves it whole. `make proof-faults` does the same for longer.
"""

from __future__ import annotations

import logging
import math
import re
import time
from collections import Counter
from collections.abc import Iterator
from typing import Final

import pytest

from tests.fault.loaded import ROLES, Killed, ProxiedBroker, cut_off, roll, under_load
from tests.fault.proxy import Side

pytestmark = [pytest.mark.fault, pytest.mark.full, pytest.mark.timeout(200)]

REFUSED: Final = re.compile(r"Connect to (\S+) failed: Connection refused")


@pytest.fixture(scope="module")
def cluster() -> Iterator[ProxiedBroker]:
    """One for all."""
    with ProxiedBroker(3) as broker:
        yield broker


@pytest.mark.parametrize("role", ROLES)
def test_a_graph_goes_on_while_a_node_is_dead(cluster: ProxiedBroker, role: str) -> None:
    """Each role once; the node comes back when all tasks have delivered without it."""
    fault = Killed(cluster, role, role)
    under_load(cluster, role, fault.hurt, fault.repair)


def test_a_graph_goes_on_while_the_disk_of_a_node_is_full(cluster: ProxiedBroker) -> None:
    """A node that cannot write ends; the others take over."""
    fault = Killed(cluster, "full-disk", "leader-of-input")
    under_load(cluster, "full-disk", fault.fill_disk, fault.repair)


def test_a_graph_goes_on_through_a_rolling_restart(cluster: ProxiedBroker, caplog: pytest.LogCaptureFixture) -> None:
    """Each node ends when it has handed over its leaders, and is in sync before the next one; few lines say so."""
    caplog.set_level(logging.WARNING, "cues_kafka.librdkafka")
    began = time.monotonic()
    under_load(cluster, "rolling", lambda: roll(cluster))
    minutes = math.ceil((time.monotonic() - began) / 60)
    refused = Counter(REFUSED.findall(caplog.text))
    assert len(refused) <= len(cluster.nodes)
    assert max(refused.values(), default=0) <= 1 + minutes, "one for all clients, and one after each minute"


@pytest.mark.parametrize("side", ["request", "response"])
def test_a_graph_goes_on_behind_a_one_way_partition(cluster: ProxiedBroker, side: Side) -> None:
    """
    Nothing reaches the transaction coordinator; or it does, and no answer comes back.

    It lasts until the clients have given their connections up and have come again.
    """
    name = f"one-way-{side}"
    under_load(cluster, name, lambda: cut_off(cluster, name, side), bootstrap=cluster.front)

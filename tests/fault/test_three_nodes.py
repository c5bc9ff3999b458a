"""Three nodes, of which one is killed, restarted or cut off under load: everything is there once, in order.

Each test runs a graph of its own on one cluster, and leaves it whole. `make proof-faults` does the same for longer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from cues_kafka.brokers.local import LocalBroker, Node
from tests.fault.loaded import (
    ProxiedBroker,
    controller,
    group_coordinator,
    leader_of,
    transaction_coordinator,
    under_load,
    whole,
)
from tests.fault.proxy import Side
from tests.fault.support import until

pytestmark = [pytest.mark.fault, pytest.mark.full, pytest.mark.timeout(200)]

NODES: dict[str, Callable[[LocalBroker, str], Node]] = {
    "leader-of-input": lambda broker, name: leader_of(broker, f"{name}.in"),
    "transaction-coordinator": lambda broker, name: transaction_coordinator(broker, f"{name}.first.0"),
    "group-coordinator": lambda broker, name: group_coordinator(broker, f"{name}.first"),
    "controller": lambda broker, _: controller(broker),
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[ProxiedBroker]:
    """One for all."""
    with ProxiedBroker(3) as broker:
        yield broker


@pytest.mark.parametrize("role", NODES)
def test_a_graph_goes_on_while_a_node_is_dead(cluster: ProxiedBroker, role: str) -> None:
    """Each role once; the node comes back when all tasks have delivered without it."""
    dead: list[Node] = []

    def hurt() -> None:
        dead.append(NODES[role](cluster, role))
        dead[0].kill()

    try:
        under_load(cluster, role, hurt)
    finally:
        for node in dead:
            node.start()
        whole(cluster)


def test_a_graph_goes_on_through_a_rolling_restart(cluster: ProxiedBroker) -> None:
    """Each node hands over its leaders and ends, and is in sync again before the next one does."""

    def hurt() -> None:
        for node in cluster.nodes:
            node.terminate()
            node.start()
            whole(cluster)

    under_load(cluster, "rolling", hurt)


@pytest.mark.parametrize("side", ["request", "response"])
def test_a_graph_goes_on_behind_a_one_way_partition(cluster: ProxiedBroker, side: Side) -> None:
    """
    Nothing reaches the transaction coordinator; or it does, and no answer comes back.

    It lasts until the clients have given their connections up and have come again.
    """
    name = f"one-way-{side}"

    def hurt() -> None:
        proxy = cluster.proxies[transaction_coordinator(cluster, f"{name}.first.0").id - 1]
        before = max(request.connection for request in list(proxy.requests))
        with proxy.severed(side) as fault:
            until(lambda: proxy.requests[-1].connection > before, "a client has come again")
        assert fault.bites > 0

    under_load(cluster, name, hurt, bootstrap=cluster.front)

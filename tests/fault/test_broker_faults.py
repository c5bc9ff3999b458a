"""Brokers that die under load: tasks recover by themselves, and everything is there once, in order."""

from __future__ import annotations

import re

import pytest

from cues_kafka import TaskStopped
from cues_kafka.brokers.local import Node
from cues_kafka.testing.fixtures import FaultClusters
from tests.fault.loaded import check_doubled, check_prefix, under_load

pytestmark = pytest.mark.fault


@pytest.mark.timeout(400)
def test_a_broker_that_is_killed_and_comes_back_loses_nothing(
    kafka_fault_cluster: FaultClusters, caplog: pytest.LogCaptureFixture
) -> None:
    """
    One node, SIGKILL, started again on its data: everything stood still, then goes on by itself.

    Kafka 4.3.1 has a gap here, seen with one node only, in one of five restarts: of a transaction that was prepared
    when its broker died, the restarted broker notes that it is complete without having written all its markers
    (docs/proof.md says why). It then never ends; or the end of the task's next transaction aborts what is left of
    it, and where that is the offsets, they are other than the record's. The tasks that it concerns must then stop and
    name it, nothing doubled or skipped; and the next broker must do. Where it is the record and the offsets, no rule
    sees it, and a message gets a second outcome: then the log says that a record landed where a marker should be.
    """
    for _ in range(5):
        caplog.clear()
        broker = kafka_fault_cluster()
        [node] = broker.nodes

        def hurt(node: Node = node) -> None:
            node.kill()
            node.start()  # takes seconds, in which all requests fail

        try:
            under_load(broker, "killed", hurt)
        except TaskStopped as stopped:
            known = ("find-hanging", "is not the record's")
            assert any(words in str(stopped) for words in known), stopped  # noqa: PT017 - else it goes on
            check_prefix(broker.bootstrap, "killed")
            broker.stop()
        except AssertionError:
            if not lacks_marker(caplog.text):
                raise
            check_doubled(broker.bootstrap, "killed")
            broker.stop()
        else:
            return
    pytest.fail("Kafka lost a marker in each of five restarts")


def lacks_marker(log: str) -> bool:
    """Whether a record landed below the place that follows the marker of the transaction before it."""
    landed = re.findall(r"the record landed at (\d+), not at (\d+)", log)
    return any(int(at) < int(due) for at, due in landed)

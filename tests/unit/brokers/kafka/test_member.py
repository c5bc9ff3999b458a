"""A membership gives partitions back in the order that keeps two owners apart; without a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import pytest
from confluent_kafka import TopicPartition as ClientPartition

from cues_kafka import Kafka
from cues_kafka.brokers.kafka.member import KafkaMember

Assignor = Literal["cooperative-sticky", "range"]


class Heard:
    """A listener and a client's consumer in one: keeps what it is told, in order."""

    def __init__(self, *, fails: bool = False) -> None:
        self.calls: list[Any] = []
        self._fails = fails

    def on_assign(self, partitions: Sequence[int]) -> None:
        """Tasks begin."""
        self.calls.append(("assign", list(partitions)))

    def on_revoke(self, partitions: Sequence[int]) -> None:
        """Tasks end in order."""
        self.calls.append(("revoke", list(partitions)))
        if self._fails:
            raise RuntimeError("a task did not end")

    def on_lost(self, partitions: Sequence[int]) -> None:
        """Tasks end at once."""
        self.calls.append(("lost", list(partitions)))

    def __getattr__(self, name: str) -> Any:
        return lambda *args: self.calls.append((name, *args))


ACKNOWLEDGED: dict[str, tuple[Any, ...]] = {"cooperative-sticky": ("incremental_unassign", []), "range": ("unassign",)}


def holding(heard: Heard, assignor: Assignor) -> KafkaMember:
    """A member of partitions 0 and 1; no broker listens at its address."""
    member = KafkaMember(Kafka("127.0.0.1:1", assignor=assignor), "g", "t", heard)
    member._assign(heard, [ClientPartition("t", 0), ClientPartition("t", 1)])  # type: ignore[arg-type]
    heard.calls.clear()
    return member


@pytest.mark.parametrize("assignor", ["cooperative-sticky", "range"])
@pytest.mark.parametrize("how", ["revoke", "lost"])
def test_tasks_end_before_their_partitions_are_given_back(assignor: Assignor, how: str) -> None:
    """The next owner begins with the acknowledgement: it would find a task that is still committing."""
    heard = Heard()
    member = holding(heard, assignor)
    take = member._revoke if how == "revoke" else member._lose

    take(heard, [ClientPartition("t", 1)])  # type: ignore[arg-type]

    assert heard.calls == [(how, [1]), ACKNOWLEDGED[assignor]]


@pytest.mark.parametrize("assignor", ["cooperative-sticky", "range"])
def test_partitions_are_given_back_even_if_a_task_does_not_end(assignor: Assignor) -> None:
    """The group would wait for the acknowledgement without end."""
    heard = Heard(fails=True)
    member = holding(heard, assignor)

    with pytest.raises(RuntimeError, match="did not end"):
        member._revoke(heard, [ClientPartition("t", 0)])  # type: ignore[arg-type]

    assert heard.calls == [("revoke", [0]), ACKNOWLEDGED[assignor]]

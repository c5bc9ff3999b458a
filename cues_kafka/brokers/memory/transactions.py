"""What the brokers keep of transactions."""

from __future__ import annotations

from dataclasses import dataclass, field

from cues_kafka.brokers.memory.log import Log


@dataclass(slots=True, eq=False)
class Transaction:
    """An open transaction: the logs that it wrote to, the groups whose offsets it holds, and when it times out."""

    number: int
    deadline: float
    logs: set[Log] = field(default_factory=set)
    groups: set[str] = field(default_factory=set)


@dataclass(slots=True, eq=False)
class TransactionalId:
    """What the transaction coordinator keeps of one id."""

    timeout_s: float
    epoch: int = -1
    open: Transaction | None = None

"""What you need for a target of your own: exactly once to any system with transactions.

Subclass `TransactionalTarget`, which is declared in `effects=` or `Sink(..., into=...)`, and `Transactions`, which
talks to the system. Then run the contract suite, `cues_kafka.testing.targets`, against it. docs/targets.md builds one
in 80 lines.
"""

from __future__ import annotations

from cues_kafka.errors import OutputError
from cues_kafka.graph.targets import (
    TargetMoved,
    TargetPart,
    TargetWriter,
    TaskName,
    TransactionalTarget,
    Transactions,
    Write,
)

__all__ = [
    "OutputError", "TargetMoved", "TargetPart", "TargetWriter", "TaskName", "TransactionalTarget", "Transactions",
    "Write",
]  # fmt: skip

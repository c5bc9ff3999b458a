"""What the books of `verify` for a task and for a part of a staged processor share."""

from __future__ import annotations

from collections.abc import Sequence

from cues_kafka.core.records import Record
from cues_kafka.graph.names import backing_topic, transactional_id
from cues_kafka.ports.log import TopicPartition
from cues_kafka.verify.chain import Chain
from cues_kafka.verify.ledger import ERROR, OUTPUT, Marks


class Books:
    """
    What one task or part should have written, and what was seen.

    Attributes:
        name: the processor's.
        written: topics of its outputs.
        errors: topic of its error messages; None: it has none.
        chain: its backing records.
        record: the newest record when `verify` began.
        strays: outcomes that fit nowhere.
        behind: offsets that are not delivered yet.
        sequence: the highest sequence that an outcome names.
    """

    def __init__(self, graph: str, name: str, partition: int, written: tuple[str, ...], errors: str | None) -> None:
        self.name = name
        self.partition = partition
        self.written = written
        self.errors = errors
        self.backing = TopicPartition(backing_topic(graph, name), partition)
        self.chain = Chain(transactional_id(graph, name, partition))
        self.record: Record | None = None
        self.strays = Marks(0, -1)
        self.behind = 0
        self.sequence = -1

    @property
    def task(self) -> str:
        """The name of the task: `processor/partition`."""
        return f"{self.name}/{self.partition}"

    @property
    def topics(self) -> tuple[str, ...]:
        """Topics that it writes."""
        return (*self.written, self.errors) if self.errors else self.written

    @property
    def there(self) -> bool:
        """Whether it has a place in the report."""
        return True

    def open(self) -> None:
        """Begin the books at what the newest record says."""
        self.record = self.chain.newest

    def kind_of(self, topic: str) -> int:
        """Whether its messages in a topic are outputs or errors."""
        return ERROR if topic == self.errors and topic not in self.written else OUTPUT


def unmarked_limit(topics: Sequence[str]) -> str:
    """Why some outcomes are not judged: these topics have no provenance headers."""
    names = ", ".join(map(repr, topics))
    return f"{names} has provenance=False, so verify cannot say what in it is lost, torn or duplicated"

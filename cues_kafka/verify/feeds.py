"""The books of `verify` for a feed: rows of its batches, which name no message, only the attempt that wrote them.

What the source still holds is not asked: `verify` reads topics only. So it says whether all that the records count is
there, once, whole and in order.
"""

from __future__ import annotations

from cues_kafka.graph.definition import Graph
from cues_kafka.graph.feed import Feed
from cues_kafka.graph.names import backing_topic
from cues_kafka.ports.facts import ClusterFacts
from cues_kafka.verify.parts import Part


class FeedPart(Part):
    """One task of a feed; see `Part`."""

    unit = "batch"

    def __init__(self, graph: Graph, feed: Feed, facts: ClusterFacts, partition: int, family: list[Part]) -> None:
        super().__init__(graph, feed, facts, partition, family)
        self.errors = graph.errors_of(feed)

    @property
    def is_direct(self) -> bool:
        """It never is."""
        return False

    @property
    def not_staged(self) -> str:
        """Why `verify` cannot check the feed; empty if it has a record."""
        return "" if any(part.record for part in self._family) else f"{self.name} has no record yet: it never started"

    @property
    def there(self) -> bool:
        """Each partition of its backing topic is a task."""
        return True

    @property
    def _due(self) -> int:
        """What its source holds is not known here."""
        return 0


def feed_parts_of(graph: Graph, feed: Feed, facts: ClusterFacts) -> list[Part]:
    """Make the books of each task of a feed."""
    family: list[Part] = []
    known = facts.topics.get(backing_topic(graph.name, feed.name))
    family += [FeedPart(graph, feed, facts, p, family) for p in range(known.partitions if known else 0)]
    return family

"""What a cluster says about itself and its topics, and a topic to create."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple


class Watermarks(NamedTuple):
    """Offsets that bound a partition: log start, last stable offset, high watermark (`low <= stable <= high`)."""

    low: int
    stable: int
    high: int


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """What the cluster says about one topic."""

    name: str
    topic_id: bytes
    partitions: int
    replication: int = 1
    config: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """
    What the cluster says about itself and some topics; a missing topic is not in `topics`.

    Attributes:
        brokers: number of brokers.
        topics: topics by name.
        unchecked: topics whose settings this user may not read, so that their `config` is empty.
        user: this client's user, as the brokers know it; None: not known.
        cluster_id: names the cluster for good; empty: it ends with this process.
    """

    brokers: int
    topics: Mapping[str, TopicFacts]
    unchecked: tuple[str, ...] = ()
    user: str | None = None
    cluster_id: str = ""


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create."""

    name: str
    partitions: int
    replication: int | None = None
    """Replication factor; None: 3, or the number of brokers if that is smaller."""
    config: Mapping[str, str] = field(default_factory=dict)
    may_lack: tuple[str, ...] = field(default=(), compare=False)
    """Settings of `config` that a managed cluster may refuse to set, those to leave out first before the others."""
